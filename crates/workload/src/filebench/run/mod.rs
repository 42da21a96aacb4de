//! Running a personality on a mounted file system, in virtual time.
//!
//! Picture:    commands in order; `run` lays files out ([`layout`]) unless `create files` has,
//!             starts a task for each thread ([`thread`]), which goes through its list of flowops
//!             ([`act`], [`files`], [`limits`]) until the run is over.
//! Laws:       the run is over at its deadline, when a thread has no more work (`firstdone`), when
//!             all have none (`alldone`), or when one fails. A thread ends after the flowop that it
//!             is in; one that waits for another thread ends at once.

mod act;
mod files;
mod layout;
mod limits;
mod thread;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::rng::mix64;
use wp_base::{FsError, FsResult, Span, Time};
use wp_medium::Slice;
use wp_rt::{TaskId, WaitQueue, wait_timeout};
use wp_vfs::Vfs;

use super::chance::Chance;
use super::fileset::{Files, Want};
use super::model::{Command, Personality, QuitMode};
use super::numbers::Numbers;
use super::result::{BenchResult, End, OpCount};
use limits::{Events, Posts};
use thread::{Control, Thread};

/// `run` of no length, in a mode that needs one.
const DEFAULT_SECS: u64 = 60;
/// Most threads: filebench has a rotor for as many.
const THREADS_MAX: usize = 16_384;

/// When threads stop, at the end of the flowop or list that they are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunLength {
    /// As the text's `run` says.
    AsWritten,
    /// `run SECONDS`, in nanoseconds.
    Time(Span),
    /// Each thread stops after this number of passes through its list.
    Loops(u64),
}

/// Callbacks while a workload model runs.
#[derive(Clone)]
pub struct Watch {
    /// Called each time that fsync has returned, with the number of fsyncs so far.
    pub at_fsync: Rc<dyn Fn(u64)>,
    /// Called with a thread's number, from 0, and its task, before the thread runs.
    pub on_thread: Rc<dyn Fn(u32, TaskId)>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { at_fsync: Rc::new(|_| {}), on_thread: Rc::new(|_, _| {}) }
    }
}

/// What all threads of a run share.
struct Shared {
    vfs: Vfs,
    sets: Vec<RefCell<Files>>,
    numbers: RefCell<Numbers>,
    result: RefCell<BenchResult>,
    /// Operations of each process.
    controls: RefCell<Vec<Control>>,
    events: Events,
    posts: Posts,
    /// Writes so far: each has contents of its own.
    writes: Cell<u64>,
    syncs: Cell<u64>,
    watch: Watch,
    seed: u64,
    mode: QuitMode,
    flowop_ns: Span,
    deadline: Cell<Option<Time>>,
    is_over: Cell<bool>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.get() || self.deadline.get().is_some_and(|at| self.vfs.rt().now() >= at)
    }

    /// Nobody goes on, and nobody waits.
    fn finish(&self) {
        self.is_over.set(true);
        for set in &self.sets {
            set.borrow().wake();
        }
        self.events.queue.wake_all();
        self.posts.wake();
    }

    /// Waits for a wake-up, or for the end of the run. Is it not over?
    async fn wait(&self, queue: &WaitQueue) -> bool {
        let now = self.vfs.rt().now();
        match self.deadline.get() {
            Some(at) if at <= now => return false,
            Some(at) => drop(wait_timeout(queue, at.since(now)).await),
            None => queue.wait().await,
        }
        !self.is_over()
    }

    /// Bytes that no other write has.
    fn contents(&self, bytes: u64) -> Slice {
        self.writes.set(self.writes.get() + 1);
        Slice::pattern(mix64(self.seed ^ self.writes.get() << 20), 0, bytes as u32)
    }
}

/// Does what a personality says. The same seed makes the same files and lengths.
///
/// Errors: what the file system answers, and `Invalid` where filebench would end without a result:
/// a flowop finds no file, or none is open.
pub async fn run(
    vfs: &Vfs,
    personality: &Personality,
    length: RunLength,
    seed: u64,
) -> FsResult<BenchResult> {
    run_watched(vfs, personality, length, seed, Watch::default()).await
}

/// As [`run()`], watched.
///
/// Errors: as there.
pub async fn run_watched(
    vfs: &Vfs,
    personality: &Personality,
    length: RunLength,
    seed: u64,
    watch: Watch,
) -> FsResult<BenchResult> {
    let mut chance = if personality.own_numbers {
        Chance::own(seed)
    } else {
        Chance::seeded(seed, "filebench files")
    };
    let mut numbers = Numbers::new(&personality.drawn);
    let mut sets = None;
    for command in &personality.commands {
        match command {
            Command::Create if sets.is_none() => {
                let made = layout::create(vfs, personality, &mut numbers, &mut chance, seed).await;
                sets = Some(made?);
            }
            Command::Create => {}
            Command::Sync => vfs.sync().await?,
            Command::DropCaches => vfs.fs().drop_caches(),
            Command::Sleep(secs) => vfs.rt().sleep(Span::secs(*secs)).await,
            Command::Run(secs) => {
                let sets = match sets.take() {
                    Some(s) => s,
                    None => {
                        layout::create(vfs, personality, &mut numbers, &mut chance, seed).await?
                    }
                };
                let shared = Shared {
                    vfs: vfs.clone(),
                    sets,
                    numbers: RefCell::new(numbers),
                    result: RefCell::default(),
                    controls: RefCell::default(),
                    events: Events::new(vfs.rt()),
                    posts: Posts::default(),
                    // Behind those of the layout.
                    writes: Cell::new(1 << 40),
                    syncs: Cell::new(0),
                    watch,
                    seed,
                    mode: personality.mode,
                    flowop_ns: Span(personality.flowop_ns),
                    deadline: Cell::new(None),
                    is_over: Cell::new(false),
                };
                return threads(shared, personality, length, *secs).await;
            }
        }
    }
    Err(FsError::Invalid("filebench: the text has no `run`"))
}

fn deadline(mode: QuitMode, length: RunLength, secs: u64) -> Option<Span> {
    match length {
        RunLength::Time(span) => Some(span),
        RunLength::Loops(_) => None,
        RunLength::AsWritten if secs > 0 => Some(Span::secs(secs)),
        RunLength::AsWritten => (mode == QuitMode::Timeout).then(|| Span::secs(DEFAULT_SECS)),
    }
}

async fn threads(
    mut shared: Shared,
    personality: &Personality,
    length: RunLength,
    secs: u64,
) -> FsResult<BenchResult> {
    let rt = shared.vfs.rt().clone();
    let made = thread::make(&mut shared, personality, THREADS_MAX)?;
    let shared = Rc::new(shared);
    let start = rt.now();
    shared.deadline.set(deadline(personality.mode, length, secs).map(|span| start + span));
    let rate = shared
        .numbers
        .borrow_mut()
        .whole(personality.event_rate, &mut Chance::seeded(shared.seed, "filebench events"));
    if rate > 0 {
        limits::generate(&shared, rate);
    }
    let laps = if let RunLength::Loops(n) = length { Some(n) } else { None };
    let tasks: Vec<_> = made
        .into_iter()
        .map(|plan| {
            let number = plan.number;
            let name = format!("filebench/{}", number + 1);
            let task = rt.spawn(name, Thread::new(shared.clone(), plan).run(laps));
            (shared.watch.on_thread)(number, task.id());
            task
        })
        .collect();
    let mut failed = None;
    for task in tasks {
        if let Err(e) = task.await {
            failed.get_or_insert(e);
        }
    }
    shared.finish();
    if let Some(e) = failed {
        return Err(e);
    }
    let mut result = shared.result.take();
    result.elapsed_ns = rt.now().since(start).0;
    let there = |set: &RefCell<Files>| set.borrow().files.count(Want::Existing) as u64;
    result.files = shared.sets.iter().map(there).sum();
    result.histograms = personality.histograms;
    for f in &result.flowops {
        let bytes = if f.kind.reads() { &mut result.read } else { &mut result.written };
        *bytes += if f.kind.reads() || f.kind.writes() { f.bytes } else { 0 };
        let entry: &mut OpCount = result.ops.entry(f.kind.name()).or_default();
        entry.count += f.latency.count;
        entry.latency.merge(&f.latency);
    }
    result.ops.retain(|_, o| o.count > 0);
    if personality.mode != QuitMode::Timeout && shared.is_over.get() && laps.is_none() {
        let timed = shared.deadline.get().is_some_and(|at| rt.now() >= at);
        result.end = if timed { End::Length } else { End::Done };
    }
    Ok(result)
}
