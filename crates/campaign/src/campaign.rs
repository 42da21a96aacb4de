//! A campaign: many programs, with a power failure at every crash point of each, by several
//! workers.
//!
//! Invariants: 1. what comes out does not depend on the number of workers: work is dealt in chunks
//!                of programs, and what recoveries are known is forgotten between chunks;
//!             2. it can be stopped after any chunk, and goes on from there.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wp_crash::{Entry, Explorer, FsSubject, History, Plan, Profile, Rule, Totals};
use wp_machine::MachineError;
use wp_medium::{Medium, Sound};
use wp_workload::program::Call;

use super::alike::Alike;
use super::chunk::{self, Stage};
use super::command::Command;
use super::findings::{Findings, Found, KEEP};
use super::known_failures::KnownFailures;
use super::play::{Bench, Played, play_on};
use super::source::Source;
use super::space::Space;

/// Programs that share what is known of recoveries.
pub const CHUNK: u64 = 16;

impl Campaign {
    /// Programs on a machine: honest states, the default plan, what its file system promises, no
    /// check.
    pub fn new(bench: Bench, source: Source, programs: (u64, u64)) -> Campaign {
        Campaign {
            profile: Profile::mounted(bench.fs, &bench.fs_options),
            bench,
            source,
            programs,
            space: Space::HONEST,
            plan: Plan::default(),
            seed: 1,
            check: false,
            second_cuts: 0,
            mounts: 0,
            prune: true,
            recovery_in_order: true,
            stop_at: Vec::new(),
            known: Arc::default(),
            after_acks: 0,
            command: None,
            alike: None,
        }
    }

    /// What recovers the states of its runs.
    pub fn subject(&self, played: &Played, check: bool) -> FsSubject {
        FsSubject {
            entry: self.bench.fs,
            options: self.bench.fs_options.clone(),
            block_bytes: played.ledger.block_bytes() as u32,
            check,
            keep_writes: self.second_cuts > 0,
            sound: Sound::default(),
        }
    }

    /// How its runs are explored, with this plan.
    pub fn options(&self, plan: Plan, partition: (u64, u64)) -> wp_crash::Options {
        wp_crash::Options {
            plan,
            seed: self.seed,
            profile: self.profile,
            partition,
            keep: KEEP,
            second_cuts: self.second_cuts,
            prune: self.prune,
            recovery_in_order: self.recovery_in_order,
        }
    }

    /// The first frame of a run that is explored: that in which the acknowledgement returns with
    /// which it begins. The last one of a run that does not acknowledge so much.
    pub(super) fn first_frame(&self, played: &Played, history: &History) -> usize {
        if let Source::Log(log) = &self.source {
            return log.first_frame(&played.tape, history);
        }
        if self.after_acks == 0 {
            return 0;
        }
        let is_ack =
            |n: u32| matches!(played.dids.get(n as usize).map(|did| &did.call), Some(Call::Ack(_)));
        let entries = played.tape.entries.iter().zip(0..);
        let mut acks = entries.filter_map(|((_, entry), pos)| match entry {
            Entry::End(n) if is_ack(*n) => Some(pos),
            _ => None,
        });
        history.frame_after(acks.nth(self.after_acks as usize - 1).unwrap_or(usize::MAX))
    }

    /// Gives an explorer what this campaign looks at besides: where it begins, known failures, and
    /// the command of O8 for the run that comes next.
    pub(super) fn equip(
        &self,
        explorer: &mut Explorer<'_>,
        played: &Rc<Played>,
        history: &Rc<History>,
    ) {
        explorer.begin_at(self.first_frame(played, history));
        if !self.known.is_empty() {
            let known = self.known.clone();
            explorer.forgive(move |v| known.entry_of(v));
        }
        if let Some(command) = &self.command {
            let fs = (self.bench.fs, self.bench.fs_options.clone());
            let checker = command.checker(fs, played.clone(), history.clone());
            explorer.check_with(command.sees_images(), checker);
        }
    }
}

impl Campaign {
    /// What its programs begin on. Errors: as of [`Bench::image`]; those of the host.
    pub fn image(&self) -> Result<Medium, MachineError> {
        match &self.source {
            Source::Log(log) => log.image(),
            _ => self.bench.image(),
        }
    }

    /// Plays program `n` on what [`Campaign::image`] gave. Errors: as [`super::play()`].
    pub fn play(&self, image: Medium, n: u64) -> Result<Played, MachineError> {
        match &self.source {
            Source::Log(log) => log.play(image),
            Source::Lives(lives) => lives.play(&self.bench, self.space, image, n),
            source => play_on(&self.bench, image, &source.program(n)),
        }
    }
}

/// What to do.
#[derive(Clone)]
pub struct Campaign {
    /// Machine.
    pub bench: Bench,
    /// Programs.
    pub source: Source,
    /// First and one after the last.
    pub programs: (u64, u64),
    /// Which states.
    pub space: Space,
    /// How many of each cut.
    pub plan: Plan,
    /// Seed of samples.
    pub seed: u64,
    /// What the file system is held to.
    pub profile: Profile,
    /// Check every recovered state in full?
    pub check: bool,
    /// Cuts during recovery, see [`wp_crash::Options::second_cuts`].
    pub second_cuts: u32,
    /// States of each program that are mounted, and the mount cut.
    pub mounts: u32,
    /// See [`wp_crash::Options::prune`].
    pub prune: bool,
    /// See [`wp_crash::Options::recovery_in_order`].
    pub recovery_in_order: bool,
    /// Stop after a chunk in which all of these rules are broken, if any are given.
    pub stop_at: Vec<Rule>,
    /// Failures that are known, and count as none.
    pub known: Arc<KnownFailures>,
    /// Crash points before this number of acknowledgements are left out.
    pub after_acks: u32,
    /// A command that judges every recovered tree: O8.
    pub command: Option<Arc<Command>>,
    /// Campaigns that differ in the kernel version alone.
    pub alike: Option<Alike>,
}

/// How often it is looked whether a campaign shall be given up, while a program is played.
const LOOK: Duration = Duration::from_millis(50);

/// Who looks on.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Asked after each chunk, in order, with all that came of the campaign so far and those of
    /// its failures that this chunk added: shall it go on?
    pub step: &'a (dyn Fn(&Findings, &[Found]) -> bool + Sync),
    /// Asked all the time: shall chunks that are not done be given up?
    pub abandon: &'a (dyn Fn() -> bool + Sync),
    /// Told how far each program is, at its beginning and after each crash point.
    pub at: &'a (dyn Fn(&Stage) + Sync),
}

/// Runs a campaign with `workers` threads; `go_on` is asked after each chunk, with what is done.
pub fn run(c: &Campaign, workers: usize, go_on: &(dyn Fn(&Totals) -> bool + Sync)) -> Findings {
    let step = |f: &Findings, _: &[Found]| go_on(&f.totals);
    resume(c, workers, Findings::before(c), &Watch { step: &step, abandon: &|| false, at: &|_| {} })
}

impl Campaign {
    /// Could the user's command not be run?
    pub(super) fn command_failed(&self) -> bool {
        self.command.as_ref().is_some_and(|command| command.error().is_some())
    }
}

/// Findings of chunks, put together in order.
struct Merge {
    all: Findings,
    next: u64,
    waiting: BTreeMap<u64, Findings>,
    stopped: bool,
}

impl Merge {
    /// Takes the findings of chunk `n`, and adds those whose turn it is. Is that enough?
    fn take(&mut self, c: &Campaign, watch: &Watch<'_>, (n, findings): (u64, Findings)) -> bool {
        self.waiting.insert(n, findings);
        while !self.stopped {
            let Some(findings) = self.waiting.remove(&self.next) else { break };
            let seen = |rule: &Rule| findings.totals.broken[*rule as usize] > 0;
            let enough = !c.stop_at.is_empty() && c.stop_at.iter().all(seen);
            let before = self.all.add(findings);
            self.next += 1;
            // Chunks after one that says stop do not count, whoever does them.
            self.stopped = !(watch.step)(&self.all, &self.all.found[before..]) || enough;
        }
        self.stopped
    }
}

/// Goes on with a campaign of which `before` came so far; what comes out in the end does not
/// depend on where it was stopped.
pub fn resume(c: &Campaign, workers: usize, before: Findings, watch: &Watch<'_>) -> Findings {
    let (first, end) = c.programs;
    let chunks = (end - first).div_ceil(CHUNK);
    let start = before.done.saturating_sub(first).div_ceil(CHUNK);
    let next = AtomicU64::new(start);
    let merge =
        Mutex::new(Merge { all: before, next: start, waiting: BTreeMap::new(), stopped: false });
    let merged = || merge.lock().unwrap_or_else(|e| e.into_inner());
    // What is played looks at this flag alone.
    let halted = Arc::new(AtomicBool::new(false));
    let bench = Bench { halt: Some(halted.clone()), ..c.bench.clone() };
    let c = &Campaign { bench, ..c.clone() };
    let abandon = || halted.load(Ordering::Relaxed) || (watch.abandon)() || c.command_failed();
    let ended = AtomicBool::new(false);
    let explorers = (workers.max(1) as u64).min(chunks.max(1));
    let explore = || {
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if (watch.abandon)() {
                        halted.store(true, Ordering::Relaxed);
                    }
                    std::thread::park_timeout(LOOK);
                }
            });
            let mut threads = Vec::new();
            for _ in 0..explorers {
                threads.push(scope.spawn(|| {
                    loop {
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        if n >= chunks || merged().stopped {
                            return;
                        }
                        let from = first + n * CHUNK;
                        let to = end.min(from.saturating_add(CHUNK));
                        let explore = || chunk::explore(c, from, to, &abandon, watch.at);
                        let findings = match &c.alike {
                            Some(alike) => alike.chunk(from, explore),
                            None => explore(),
                        };
                        let findings = match findings {
                            Ok(findings) => findings,
                            Err(part) => {
                                let mut m = merged();
                                part.into_iter().for_each(|part| m.all.add_unfinished(*part));
                                return;
                            }
                        };
                        if merged().take(c, watch, (n, findings)) {
                            halted.store(true, Ordering::Relaxed);
                        }
                    }
                }));
            }
            let panics: Vec<_> = threads.into_iter().filter_map(|t| t.join().err()).collect();
            ended.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
            if let Some(first) = panics.into_iter().next() {
                std::panic::resume_unwind(first);
            }
        })
    };
    match &c.command {
        // A program is explored by one thread; the others check its trees meanwhile.
        Some(command) if workers as u64 > explorers => command.serve_while(workers, explore),
        _ => explore(),
    }
    merge.into_inner().unwrap_or_else(|e| e.into_inner()).all
}
