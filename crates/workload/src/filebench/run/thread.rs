//! A thread: its list of flowops, its descriptors, and the loop.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Span, Time};
use wp_vfs::{Fd, Vfs};

use super::super::chance::{Chance, of_thread};
use super::super::model::{Flowop, Kind, Num, Personality, QuitMode, Step};
use super::super::result::{FlowopResult, ThreadResult};
use super::Shared;
use super::files::Aio;
use super::limits::{Limit, Post};
use crate::fio::Stat;

/// Descriptors of a thread, 0 to 128.
pub(super) const FDS: usize = 129;
/// Flowops of a thread in no time, of a run that has a deadline.
const STUCK: u64 = 5_000_000;

/// Operations of a process: what limits and checks without a target look at. filebench leaves
/// nothing out of it but flowops of the text's own.
#[derive(Clone, Copy, Default)]
pub(super) struct Control {
    /// Operations.
    pub(super) ops: u64,
    /// Those that read or write.
    pub(super) ios: u64,
    /// Bytes.
    pub(super) bytes: u64,
}

/// Why a flowop did not end well.
pub(super) enum Stop {
    /// No file is left that it could take, or as much was done as was to be.
    NoMore,
    /// The run is over.
    Over,
    /// The file system's answer, or a list that cannot be.
    Fs(FsError),
}

impl From<FsError> for Stop {
    fn from(e: FsError) -> Stop {
        Stop::Fs(e)
    }
}

/// A step of the list, flat.
#[derive(Clone, Debug)]
enum Instr {
    Do(usize),
    Repeat { times: Num, end: usize },
    Again { begin: usize },
}

/// The list of a kind of threads.
pub(super) struct List {
    pub(super) flowops: Vec<Flowop>,
    /// By flowop: its place in the result.
    slots: Vec<usize>,
    instrs: Vec<Instr>,
}

impl List {
    fn add(&mut self, steps: &[Step], slot: &mut impl FnMut(&Flowop) -> usize) {
        for step in steps {
            match step {
                Step::Do(f) => {
                    self.instrs.push(Instr::Do(self.flowops.len()));
                    self.slots.push(slot(f));
                    self.flowops.push(f.clone());
                }
                Step::Repeat(times, inner) => {
                    let begin = self.instrs.len();
                    self.instrs.push(Instr::Repeat { times: *times, end: 0 });
                    self.add(inner, slot);
                    let end = self.instrs.len();
                    self.instrs.push(Instr::Again { begin });
                    self.instrs[begin] = Instr::Repeat { times: *times, end };
                }
            }
        }
    }
}

/// A thread that is to run.
pub(super) struct Plan {
    pub(super) number: u32,
    process: usize,
    list: Rc<List>,
    chance: Rc<RefCell<Chance>>,
    memory: u64,
    posts: Vec<Option<Rc<Post>>>,
}

/// Plans all threads, and makes what they share. Errors: more than `most`, or none.
pub(super) fn make(
    shared: &mut Shared,
    personality: &Personality,
    most: usize,
) -> FsResult<Vec<Plan>> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut slots: BTreeMap<(Rc<str>, Kind), usize> = BTreeMap::new();
    let result = shared.result.get_mut();
    let mut once = Chance::seeded(shared.seed, "filebench instances");
    let numbers = shared.numbers.get_mut();
    for process in &personality.processes {
        for instance in 0..numbers.whole(process.instances, &mut once) {
            let own = personality
                .own_numbers
                .then(|| Rc::new(RefCell::new(Chance::own(shared.seed ^ plans.len() as u64))));
            let number = shared.controls.get_mut().len();
            shared.controls.get_mut().push(Control::default());
            for kind in &process.threads {
                let mut list = List { flowops: vec![], slots: vec![], instrs: vec![] };
                list.add(&kind.steps, &mut |f| {
                    *slots.entry((f.name.clone(), f.kind)).or_insert_with(|| {
                        let latency = Stat::default();
                        let name = f.name.clone();
                        result.flowops.push(FlowopResult { name, kind: f.kind, bytes: 0, latency });
                        result.flowops.len() - 1
                    })
                });
                let list = Rc::new(list);
                // One thread runs where filebench is asked for none.
                for n in 0..numbers.whole(kind.instances, &mut once).max(1) {
                    if plans.len() >= most {
                        return Err(FsError::Invalid("filebench: more than 16384 threads"));
                    }
                    let thread = plans.len() as u32;
                    let seeded = || Rc::new(RefCell::new(of_thread(shared.seed, thread)));
                    let posts = list.flowops.iter();
                    let posts = posts.map(|f| shared.posts.make(shared.vfs.rt(), f)).collect();
                    let (p, i) = (&process.name, instance + 1);
                    let name = format!("{p}-{i}/{}-{}", kind.name, n + 1);
                    result.threads.push(ThreadResult { name, ..ThreadResult::default() });
                    plans.push(Plan {
                        number: thread,
                        process: number,
                        list: list.clone(),
                        chance: own.clone().unwrap_or_else(seeded),
                        memory: numbers.whole(kind.memory, &mut once),
                        posts,
                    });
                }
            }
        }
    }
    if plans.is_empty() {
        return Err(FsError::Invalid("filebench: no process has an instance"));
    }
    Ok(plans)
}

/// A file that a thread has open.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) fd: Fd,
    /// Where the next read or write is.
    pub(super) at: u64,
}

/// One of a thread's descriptors.
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    /// Fileset and file that it was last opened on; a close leaves it.
    pub(super) file: Option<(usize, usize)>,
    pub(super) open: Option<Open>,
}

/// What a thread keeps of one of its flowops.
#[derive(Default)]
pub(super) struct Own {
    /// Operations and bytes of this thread.
    pub(super) ops: u64,
    pub(super) bytes: u64,
    /// `workingset` and `value`, drawn once.
    pub(super) workingset: u64,
    pub(super) value: u64,
    pub(super) limit: Limit,
}

/// A running thread.
pub(super) struct Thread {
    pub(super) shared: Rc<Shared>,
    pub(super) vfs: Vfs,
    pub(super) number: u32,
    pub(super) process: usize,
    pub(super) list: Rc<List>,
    pub(super) chance: Rc<RefCell<Chance>>,
    pub(super) memory: u64,
    pub(super) posts: Vec<Option<Rc<Post>>>,
    pub(super) fds: Vec<Slot>,
    pub(super) fd_rotor: usize,
    pub(super) own: Vec<Own>,
    pub(super) aio: Vec<Aio>,
    /// When anything last took time, and flowops since.
    moved: (Time, u64),
}

impl Thread {
    pub(super) fn new(shared: Rc<Shared>, plan: Plan) -> Thread {
        let mut thread = Thread {
            vfs: shared.vfs.clone(),
            shared,
            number: plan.number,
            process: plan.process,
            chance: plan.chance,
            memory: plan.memory,
            posts: plan.posts,
            fds: vec![Slot::default(); FDS],
            fd_rotor: 0,
            own: Vec::new(),
            aio: Vec::new(),
            moved: (Time(0), 0),
            list: plan.list,
        };
        let list = thread.list.clone();
        for f in &list.flowops {
            let value = if f.kind == Kind::Print { 0 } else { thread.draw(f.value) };
            let workingset = thread.draw(f.workingset);
            thread.own.push(Own { value, workingset, ..Own::default() });
        }
        thread
    }

    /// The next value of a number.
    pub(super) fn draw(&self, n: Num) -> u64 {
        match n {
            Num::Fixed(n) => n,
            drawn => self.shared.numbers.borrow_mut().whole(drawn, &mut self.chance.borrow_mut()),
        }
    }

    /// Goes through the list, `laps` times if given. Errors: see [`super::run()`].
    pub(super) async fn run(mut self, laps: Option<u64>) -> FsResult<()> {
        let done = self.go_through(laps).await;
        let mut closed = Ok(());
        for aio in std::mem::take(&mut self.aio) {
            if let Err(e) = aio.task.await {
                closed = Err(e);
            }
        }
        // The process ends: what it has open is closed.
        for slot in std::mem::take(&mut self.fds) {
            if let Some(open) = slot.open {
                if let Some((set, file)) = slot.file {
                    self.shared.sets[set].borrow_mut().files.release(file, None, -1);
                }
                closed = closed.and(self.vfs.close(open.fd).await);
            }
        }
        match done {
            Err(Stop::Fs(e)) => {
                self.shared.finish();
                Err(e)
            }
            Err(Stop::NoMore) => match self.shared.mode {
                QuitMode::AllDone => closed,
                QuitMode::FirstDone => {
                    self.shared.finish();
                    closed
                }
                QuitMode::Timeout => {
                    self.shared.finish();
                    Err(FsError::Invalid(
                        "filebench: no file is left for a flowop; set less time, more files, or `set mode quit firstdone`",
                    ))
                }
            },
            Ok(()) | Err(Stop::Over) => closed,
        }
    }

    async fn go_through(&mut self, laps: Option<u64>) -> Result<(), Stop> {
        let list = self.list.clone();
        let mut left: Vec<u64> = Vec::new();
        let mut done = 0;
        while laps.is_none_or(|n| done < n) {
            let mut at = 0;
            while let Some(instr) = list.instrs.get(at) {
                at += 1;
                match instr {
                    Instr::Do(i) => {
                        for _ in 0..self.draw(list.flowops[*i].iters) {
                            self.step(*i, laps.is_none()).await?;
                        }
                    }
                    Instr::Repeat { times, end } => match self.draw(*times) {
                        0 => at = end + 1,
                        n => left.push(n),
                    },
                    Instr::Again { begin } => match left.last_mut() {
                        Some(n) if *n > 1 => {
                            *n -= 1;
                            at = begin + 1;
                        }
                        _ => drop(left.pop()),
                    },
                }
            }
            done += 1;
            // A list of nothing would be gone through for ever.
            self.check_time(laps.is_none())?;
            let mut result = self.shared.result.borrow_mut();
            result.loops += 1;
            result.threads[self.number as usize].loops += 1;
        }
        Ok(())
    }

    async fn step(&mut self, i: usize, timed: bool) -> Result<(), Stop> {
        self.check_time(timed)?;
        if self.shared.flowop_ns > Span::ZERO {
            self.vfs.rt().sleep(self.shared.flowop_ns).await;
        }
        self.act(i).await
    }

    /// Is there a run to go on with, and does it get on?
    fn check_time(&mut self, timed: bool) -> Result<(), Stop> {
        if self.shared.is_over() {
            return Err(Stop::Over);
        }
        let now = self.vfs.rt().now();
        self.moved = if self.moved.0 == now { (now, self.moved.1 + 1) } else { (now, 0) };
        if timed && self.moved.1 > STUCK {
            let why = "filebench: five million flowops of a thread took no time at all";
            return Err(FsError::Invalid(why).into());
        }
        Ok(())
    }

    /// Counts an operation of flowop `i` that began at `from`.
    pub(super) fn count(&mut self, i: usize, from: Time, bytes: u64) {
        let took = self.vfs.rt().now().since(from).0;
        let kind = self.list.flowops[i].kind;
        let own = &mut self.own[i];
        own.ops += 1;
        own.bytes += bytes;
        let mut result = self.shared.result.borrow_mut();
        let f = &mut result.flowops[self.list.slots[i]];
        f.latency.add(took);
        f.bytes += bytes;
        *result.threads[self.number as usize].ops.entry(kind.name()).or_default() += 1;
        let mut controls = self.shared.controls.borrow_mut();
        let control = &mut controls[self.process];
        control.ops += 1;
        // aiowait is of no kind that filebench counts here.
        control.ios += u64::from(kind.reads() || kind.writes());
        control.bytes += bytes;
    }

    pub(super) fn now(&self) -> Time {
        self.vfs.rt().now()
    }
}
