//! A campaign: many programs, with a power failure at every crash point of each, by several
//! workers.
//!
//! Invariants: 1. what comes out does not depend on the number of workers: work is dealt in chunks
//!                of programs, and what recoveries are known is forgotten between chunks;
//!             2. it can be stopped after any chunk, and goes on from there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wp_base::FsError;
use wp_block::ZoneOrder;
use wp_crash::{
    Contract, Did, Entry, Explorer, Failure, FsSubject, History, Plan, Profile, Rule, Totals,
    Violation, most_of_frame,
};
use wp_machine::MachineError;
use wp_medium::Medium;
use wp_medium::Sound;
use wp_workload::program::{Call, Interleavings, Program};

use super::calls::Calls;
use super::command::Command;
use super::known_failures::KnownFailures;
use super::lives::Lives;
use super::mounts::{self, Choice};
use super::play::{Bench, Played, play_on};
use super::sequences::Of;
use super::wild::{self, Extras};
use super::{database, sequences};

/// Programs that share what is known of recoveries.
const CHUNK: u64 = 16;

/// Where programs come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// One, as text.
    Text(Program),
    /// One with power failures in it.
    Lives(Arc<Lives>),
    /// Interleavings of one with threads.
    Threads(Arc<Interleavings>),
    /// Every sequence of this number of these operations.
    Sequences(Of, u32),
    /// Random ones.
    Wild {
        /// Seed of the first.
        seed: u64,
        /// Calls of each, about.
        calls: u32,
        /// What they may do.
        extras: Extras,
    },
    /// Databases with rollback journals.
    Database {
        /// Seed of the first.
        seed: u64,
        /// Databases of a transaction.
        journals: u32,
    },
    /// Those of [`super::programs`].
    Made {
        /// Seed of the first.
        seed: u64,
        /// The one of a seed.
        make: super::programs::Make,
    },
}

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
    fn first_frame(&self, played: &Played, history: &History) -> usize {
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
    /// Plays program `n` on a new file system. Errors: as [`super::play()`].
    pub fn play(&self, image: Medium, n: u64) -> Result<Played, MachineError> {
        match &self.source {
            Source::Lives(lives) => lives.play(&self.bench, self.space, image, n),
            source => play_on(&self.bench, image, &source.program(n)),
        }
    }
}

impl Source {
    /// How many there are; `None`: as many as one likes.
    pub fn count(&self) -> Option<u64> {
        match self {
            Source::Text(_) => Some(1),
            Source::Lives(lives) => Some(lives.count()),
            Source::Threads(all) => Some(all.programs().len() as u64),
            Source::Sequences(of, length) => Some(sequences::count(*of, *length)),
            Source::Wild { .. } | Source::Database { .. } | Source::Made { .. } => None,
        }
    }

    /// Program number `n`.
    pub fn program(&self, n: u64) -> Program {
        match self {
            Source::Text(p) => p.clone(),
            Source::Lives(lives) => lives.program(n),
            Source::Threads(all) => all.programs().get(n as usize).cloned().unwrap_or_default(),
            Source::Sequences(of, length) => sequences::program(*of, *length, n),
            Source::Wild { seed, calls, extras } => {
                wild::generate(seed.wrapping_add(n), *calls, *extras)
            }
            Source::Database { seed, journals } => {
                database::program(seed.wrapping_add(n), *journals)
            }
            Source::Made { seed, make } => make(seed.wrapping_add(n)),
        }
    }
}

/// Which states are explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// What the contract of the device permits, with its breaches.
    Permitted {
        /// FLUSH is not done.
        lying_flush: bool,
        /// FUA is not done.
        lost_fua: bool,
        /// The device says that it has no volatile cache, and has one.
        faulty_plp: bool,
        /// Bytes written whole; `None`: as the device says.
        atomic: Option<u32>,
    },
    /// What the modelled device could be left with at that nanosecond.
    Modelled,
    /// As an honest contract permits, but that a zone may have holes below its write pointer: dies
    /// finish out of order.
    ZoneHoles,
}

impl Space {
    /// An honest device's.
    pub const HONEST: Space =
        Space::Permitted { lying_flush: false, lost_fua: false, faulty_plp: false, atomic: None };

    /// Their names.
    pub const NAMES: [&str; 7] = [
        "permitted",
        "modelled",
        "zone-holes",
        "lying-flush",
        "lost-fua",
        "faulty-plp",
        "faulty-drive",
    ];

    /// The one of a name; `atomic`: see [`Space::Permitted`].
    pub fn named(name: &str, atomic: Option<u32>) -> Option<Space> {
        let permitted = |lying_flush, lost_fua, faulty_plp| {
            Some(Space::Permitted { lying_flush, lost_fua, faulty_plp, atomic })
        };
        match name {
            "permitted" => permitted(false, false, false),
            "lying-flush" => permitted(true, false, false),
            "lost-fua" => permitted(false, true, false),
            "faulty-plp" => permitted(false, false, true),
            "faulty-drive" => permitted(true, true, true),
            "modelled" => Some(Space::Modelled),
            "zone-holes" => Some(Space::ZoneHoles),
            _ => None,
        }
    }

    /// The history that a tape has in it.
    pub fn history(&self, played: &Played) -> History {
        match *self {
            Space::Modelled => History::modelled(&played.tape, played.atomic),
            Space::ZoneHoles => {
                let contract = Contract {
                    volatile: played.volatile,
                    atomic: played.atomic,
                    zone_order: ZoneOrder::Holes,
                    ..Contract::HONEST
                };
                History::permitted(&played.tape, &contract)
            }
            Space::Permitted { lying_flush, lost_fua, faulty_plp, atomic } => {
                let contract = Contract {
                    volatile: played.volatile || faulty_plp,
                    atomic: atomic.unwrap_or(played.atomic),
                    lying_flush,
                    lost_fua,
                    lost_barriers: false,
                    zone_order: ZoneOrder::Prefix,
                };
                History::permitted(&played.tape, &contract)
            }
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
}

/// A failure, with all that is needed to see it again.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Number of the program.
    pub program: u64,
    /// What is wrong.
    pub violation: Violation,
    /// Frame, and its unpersisted units that were lost.
    pub frame: usize,
    /// See `frame`.
    pub lost: Vec<usize>,
    /// Operations called, and returned, by then.
    pub operations: (u32, u32),
    /// Raw states that had been explored in its chunk when it was found.
    pub after: u64,
    /// Is it of a cut during the mount of that state?
    pub mount: bool,
}

/// What came of a campaign.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// Numbers.
    pub totals: Totals,
    /// First failures of each rule, in order of programs.
    pub found: Vec<Found>,
    /// All failures, by rule and path: in how many states. Of the first ten thousand or so.
    pub places: BTreeMap<(Rule, String), u64>,
    /// Known failures that were met: number of the entry, states.
    pub known: BTreeMap<usize, u64>,
    /// Programs that could not be played, and why.
    pub not_played: Vec<(u64, String)>,
    /// Of those, the numbers of programs with a call that the file system does not have.
    pub lacking: Vec<u64>,
    /// What the calls of the programs answered.
    pub calls: Calls,
    /// One after the last program that was done.
    pub done: u64,
    /// The part that was running when the campaign was stopped. The other numbers do not include
    /// it, and a resumed campaign does it again.
    pub unfinished: Option<Unfinished>,
}

/// A part of a campaign that was stopped while it was under way.
#[derive(Clone, PartialEq, Debug)]
pub struct Unfinished {
    /// The program that was being explored.
    pub program: u64,
    /// Its frames that were explored in full.
    pub frames: usize,
    /// Number of frames of the program.
    pub of_frames: usize,
    /// What was done, with programs before it that are not in [`Findings::done`].
    pub totals: Totals,
    /// What was found there.
    pub found: Vec<Found>,
    /// What the calls of its programs answered.
    pub calls: Calls,
}

/// How often it is looked whether a campaign shall be given up, while a program is played.
const LOOK: Duration = Duration::from_millis(50);

/// Failures kept of each rule in a chunk.
const KEEP: usize = 3;

/// Rules and paths that are told apart.
const PLACES: usize = 10_000;

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

/// How far the exploration of a program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its number.
    pub program: u64,
    /// Crash points that are explored.
    pub points: u64,
    /// Number of crash points of the program.
    pub of_points: u64,
    /// States that they have.
    pub states: u64,
    /// States of all crash points, at most: ordering rules some out.
    pub of_states: u64,
    /// Most unpersisted writes of a crash point.
    pub unpersisted: usize,
}

impl Stage {
    /// Of a program of which nothing is explored.
    fn new(program: u64, first: usize, history: &History, plan: &Plan) -> Stage {
        let frames = history.frames.iter().zip(0..).skip(first);
        let points = frames.clone().filter(|(f, n)| *n == first || f.new > 0).count() as u64;
        let of = |n| most_of_frame(history, n, plan);
        let of_states = frames.fold(0u64, |sum, (_, n)| sum.saturating_add(of(n)));
        let unpersisted = history.frames.iter().map(|f| f.live.len()).max().unwrap_or(0);
        Stage { program, points: 0, of_points: points, states: 0, of_states, unpersisted }
    }
}

/// Runs a campaign with `workers` threads; `go_on` is asked after each chunk, with what is done.
pub fn run(c: &Campaign, workers: usize, go_on: &(dyn Fn(&Totals) -> bool + Sync)) -> Findings {
    let step = |f: &Findings, _: &[Found]| go_on(&f.totals);
    resume(c, workers, Findings::before(c), &Watch { step: &step, abandon: &|| false, at: &|_| {} })
}

impl Campaign {
    /// Could the user's command not be run?
    fn command_failed(&self) -> bool {
        self.command.as_ref().is_some_and(|command| command.error().is_some())
    }
}

impl Findings {
    /// The first program that could not be played, and why; not one with a call that the file
    /// system does not have, unless there was no other.
    pub fn unplayed(&self) -> Option<&(u64, String)> {
        let first = self.not_played.iter().find(|(n, _)| !self.lacking.contains(n));
        first.or_else(|| self.not_played.first().filter(|_| self.totals.programs == 0))
    }

    /// Nothing is done.
    pub fn before(c: &Campaign) -> Findings {
        Findings { done: c.programs.0, ..Findings::default() }
    }

    /// Keeps a failure, if there are not enough of its rule.
    fn keep(&mut self, found: Found) {
        let same = |o: &&Found| o.violation.rule == found.violation.rule;
        if self.found.iter().filter(same).count() < KEEP {
            self.found.push(found);
        }
    }

    /// Adds what was under way in a chunk when all was stopped.
    fn add_unfinished(&mut self, part: Unfinished) {
        let Some(all) = &mut self.unfinished else {
            self.unfinished = Some(part);
            return;
        };
        let (mut first, later) =
            if part.program < all.program { (part, all.clone()) } else { (all.clone(), part) };
        first.totals.add(&later.totals);
        first.found.extend(later.found);
        first.calls.add(later.calls);
        *all = first;
    }

    /// States of which it is known whether they break a rule, also those of what was stopped.
    pub fn explored(&self) -> u64 {
        self.totals.raw + self.unfinished.as_ref().map_or(0, |u| u.totals.raw)
    }

    /// Is a rule broken in some of them?
    pub fn is_broken(&self) -> bool {
        let broken = |t: &Totals| t.broken.iter().any(|n| *n > 0);
        broken(&self.totals) || self.unfinished.as_ref().is_some_and(|u| broken(&u.totals))
    }

    /// Adds those of the next chunk; returns how many failures were kept before.
    fn add(&mut self, next: Findings) -> usize {
        let before = self.found.len();
        self.totals.add(&next.totals);
        next.found.into_iter().for_each(|found| self.keep(found));
        for (place, n) in next.places {
            if self.places.len() < PLACES || self.places.contains_key(&place) {
                *self.places.entry(place).or_default() += n;
            }
        }
        for (entry, n) in next.known {
            *self.known.entry(entry).or_default() += n;
        }
        self.not_played.extend(next.not_played);
        self.lacking.extend(next.lacking);
        self.calls.add(next.calls);
        self.done = next.done;
        before
    }
}

/// Findings of chunks, put together in order.
struct Merge {
    all: Findings,
    next: u64,
    waiting: BTreeMap<u64, Findings>,
    stopped: bool,
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
                        let findings = match chunk(c, from, to, &abandon, watch.at) {
                            Ok(findings) => findings,
                            Err(part) => {
                                let mut m = merged();
                                part.into_iter().for_each(|part| m.all.add_unfinished(*part));
                                return;
                            }
                        };
                        let mut m = merged();
                        m.waiting.insert(n, findings);
                        while !m.stopped {
                            let number = m.next;
                            let Some(findings) = m.waiting.remove(&number) else { break };
                            let seen = |rule: &Rule| findings.totals.broken[*rule as usize] > 0;
                            let enough = !c.stop_at.is_empty() && c.stop_at.iter().all(seen);
                            let before = m.all.add(findings);
                            m.next += 1;
                            // Chunks after one that says stop do not count, whoever does them.
                            m.stopped = !(watch.step)(&m.all, &m.all.found[before..]) || enough;
                            if m.stopped {
                                halted.store(true, Ordering::Relaxed);
                            }
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

/// The call of a program of a list that the kernel of this version answers with `EOPNOTSUPP`, or
/// with `ENOTTY`. A flag that it refuses is no such call.
fn lacking<'p>(source: &Source, played: &'p Played) -> Option<&'p Did> {
    let lacks = |did: &&Did| match did.error {
        Some(FsError::NotInKernel) => !matches!(did.call, Call::Chattr(..)),
        Some(FsError::NoSuchIoctl) => true,
        _ => false,
    };
    let is_list = matches!(source, Source::Sequences(..) | Source::Wild { .. });
    played.dids.iter().find(lacks).filter(|_| is_list)
}

/// Programs `from..to`. Errors: it was given up; what was under way, if states were explored.
fn chunk(
    c: &Campaign,
    from: u64,
    to: u64,
    abandon: &dyn Fn() -> bool,
    at: &dyn Fn(&Stage),
) -> Result<Findings, Option<Box<Unfinished>>> {
    let mut out = Findings { done: to, ..Findings::default() };
    let image = match c.bench.image() {
        Ok(image) => image,
        Err(_) if abandon() => return Err(None),
        Err(e) => {
            out.not_played.extend((from..to).map(|n| (n, e.to_string())));
            return Ok(out);
        }
    };
    let mut plays = Vec::new();
    for n in from..to {
        if abandon() {
            return Err(None);
        }
        let program = c.source.program(n);
        match c.play(image.clone(), n) {
            // A sequence of a list that this file system has not in this version is no finding.
            Ok(played) if lacking(&c.source, &played).is_some() => {
                let did = lacking(&c.source, &played);
                let call = did.map_or(String::new(), Did::text);
                let errno = did.and_then(|d| d.error.as_ref()).map_or("", FsError::errno);
                out.lacking.push(n);
                out.not_played.push((n, format!("`{call}`: {errno}, as in this kernel version")));
            }
            Ok(played) => {
                out.calls.add(Calls::of(n, &program, &played.dids));
                plays.push((n, Rc::new(played)));
            }
            // It was halted, perhaps in the middle of this program.
            Err(_) if abandon() => return Err(None),
            Err(e) => {
                let lacks = matches!(&e, MachineError::Fs { error: FsError::Unsupported(_), .. });
                out.lacking.extend(lacks.then_some(n));
                out.not_played.push((n, e.to_string()));
            }
        }
    }
    let Some((_, first)) = plays.first() else { return Ok(out) };
    let subject = c.subject(first, c.check);
    let mut explorer = Explorer::new(&subject, c.options(c.plan, first.partition));
    let histories = plays.iter().map(|(_, p)| match abandon() {
        false => Ok(Rc::new(c.space.history(p))),
        true => Err(None),
    });
    let histories = histories.collect::<Result<Vec<_>, _>>()?;
    explorer.expect(histories.iter().map(Rc::as_ref));
    for ((n, played), history) in plays.iter().zip(&histories) {
        c.equip(&mut explorer, played, history);
        let choice = Rc::new(RefCell::new(Choice::new(c, *n)));
        if c.mounts > 0 {
            let choice = choice.clone();
            explorer.watch(move |v| choice.borrow_mut().offer(v));
        }
        let mut stage = Stage::new(*n, c.first_frame(played, history), history, &c.plan);
        let before = (explorer.totals.cuts, explorer.totals.raw);
        at(&stage);
        let mut go_on = |totals: &Totals| {
            let points = totals.cuts - before.0;
            if points > stage.points {
                (stage.points, stage.states) = (points, totals.raw - before.1);
                at(&stage);
            }
            !abandon()
        };
        let mut whole = explorer.explore(&played.tape, history, &played.ledger, &mut go_on);
        if let Some(command) = &c.command {
            let mut go_on = || {
                at(&stage);
                !abandon()
            };
            whole &= command.settle(&mut explorer, &mut go_on);
        }
        for f in std::mem::take(&mut explorer.failures) {
            out.keep(found_in(*n, f, history));
        }
        let chosen = choice.borrow_mut().take();
        let cuts = match whole {
            true => mounts::cut(c, played, history, chosen, abandon),
            false => None,
        };
        let Some(cuts) = cuts else {
            return Err(Some(Box::new(Unfinished {
                program: *n,
                frames: explorer.frames_done,
                of_frames: history.frames.len(),
                totals: explorer.totals,
                found: out.found,
                calls: out.calls,
            })));
        };
        let totals = &mut explorer.totals;
        totals.mounts += cuts.mounts;
        totals.second += cuts.raw;
        for (state, violation, states) in cuts.failures {
            if let Some(entry) = c.known.entry_of(&violation) {
                *explorer.known_failures.entry(entry).or_default() += states;
                continue;
            }
            let place = (violation.rule, violation.path.clone());
            if explorer.places.len() < PLACES || explorer.places.contains_key(&place) {
                *explorer.places.entry(place).or_default() += states;
            }
            totals.broken[violation.rule as usize] += states;
            let lost = state.lost(history);
            out.keep(Found {
                program: *n,
                violation,
                frame: state.frame,
                lost,
                operations: state.operations,
                after: totals.raw,
                mount: true,
            });
        }
    }
    // A command that could not be run has judged nothing: who goes on asks it again.
    if c.command_failed() {
        return Err(None);
    }
    out.places = std::mem::take(&mut explorer.places);
    out.known = std::mem::take(&mut explorer.known_failures);
    out.totals = explorer.totals;
    Ok(out)
}

/// A failure of program `n`.
fn found_in(n: u64, f: Failure, history: &History) -> Found {
    let live = history.frames[f.frame].live.len();
    Found {
        program: n,
        violation: f.violation,
        frame: f.frame,
        lost: (0..live).filter(|i| !f.kept.has(*i)).collect(),
        operations: f.operations,
        after: f.after,
        mount: false,
    }
}
