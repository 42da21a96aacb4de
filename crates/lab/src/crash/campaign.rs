//! A campaign: many programs, each cut everywhere, by several workers.
//!
//! Invariants: 1. what comes out does not depend on the number of workers: work is dealt in chunks
//!                of programs, and what recoveries are known is forgotten between chunks;
//!             2. it can be stopped after any chunk, and goes on from there.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use wp_crash::{Contract, Explorer, FsSubject, History, Plan, Profile, Rule, Totals, Violation};
use wp_workload::program::Program;

use super::play::{Bench, Played, play};
use super::wild::{self, Extras};
use super::{database, sequences};

/// Programs that share what is known of recoveries.
const CHUNK: u64 = 16;

/// Where programs come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// One, as text.
    Text(Program),
    /// Every sequence of so many operations.
    Sequences(u32),
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
    /// Programs on a machine: honest states, the default plan, what ext4 is held to, no check.
    pub fn new(bench: Bench, source: Source, programs: (u64, u64)) -> Campaign {
        Campaign {
            bench,
            source,
            programs,
            space: Space::HONEST,
            plan: Plan::default(),
            seed: 1,
            profile: Profile::EXT4,
            check: false,
            second_cuts: 0,
            prune: true,
            recovery_in_order: true,
            stop_at: Vec::new(),
        }
    }
}

impl Source {
    /// How many there are; `None`: as many as one likes.
    pub fn count(&self) -> Option<u64> {
        match self {
            Source::Text(_) => Some(1),
            Source::Sequences(length) => Some(sequences::count(*length)),
            Source::Wild { .. } | Source::Database { .. } | Source::Made { .. } => None,
        }
    }

    /// Program number `n`.
    pub fn program(&self, n: u64) -> Program {
        match self {
            Source::Text(p) => p.clone(),
            Source::Sequences(length) => sequences::program(*length, n),
            Source::Wild { seed, calls, extras } => wild::generate(seed + n, *calls, *extras),
            Source::Database { seed, journals } => database::program(seed + n, *journals),
            Source::Made { seed, make } => make(seed + n),
        }
    }
}

/// Which states are looked at.
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
}

impl Space {
    /// An honest device's.
    pub const HONEST: Space =
        Space::Permitted { lying_flush: false, lost_fua: false, faulty_plp: false, atomic: None };

    /// The history that a tape has in it.
    pub fn history(&self, played: &Played) -> History {
        match *self {
            Space::Modelled => History::modelled(&played.tape, played.atomic),
            Space::Permitted { lying_flush, lost_fua, faulty_plp, atomic } => {
                let contract = Contract {
                    volatile: played.volatile || faulty_plp,
                    atomic: atomic.unwrap_or(played.atomic),
                    lying_flush,
                    lost_fua,
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
    /// See [`wp_crash::Options::prune`].
    pub prune: bool,
    /// See [`wp_crash::Options::recovery_in_order`].
    pub recovery_in_order: bool,
    /// Stop after a chunk in which all of these rules are broken, if any are given.
    pub stop_at: Vec<Rule>,
}

/// A failure, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct Found {
    /// Number of the program.
    pub program: u64,
    /// What is wrong.
    pub violation: Violation,
    /// Frame, and units in doubt of it that were lost.
    pub frame: usize,
    /// See `frame`.
    pub lost: Vec<usize>,
    /// Operations called, and returned, by then.
    pub operations: (u32, u32),
    /// Raw states that had been visited in its chunk when it was found.
    pub after: u64,
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Numbers.
    pub totals: Totals,
    /// First failures of each rule, in order of programs.
    pub found: Vec<Found>,
    /// Programs that could not be played, and why.
    pub not_played: Vec<(u64, String)>,
    /// One after the last program that was done.
    pub done: u64,
}

/// Failures kept of each rule in a chunk.
const KEEP: usize = 3;

/// Runs a campaign with `workers` threads; `go_on` is asked after each chunk, with what is done.
pub fn run(c: &Campaign, workers: usize, go_on: &(dyn Fn(&Totals) -> bool + Sync)) -> Findings {
    let (first, end) = c.programs;
    let chunks = (end - first).div_ceil(CHUNK);
    let next = AtomicU64::new(0);
    // Chunks after one that says stop do not count, whoever does them.
    let stop_after = AtomicU64::new(u64::MAX);
    let done: Mutex<Vec<(u64, Findings)>> = Mutex::new(Vec::new());
    let sum = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= chunks || n > stop_after.load(Ordering::SeqCst) {
                        return;
                    }
                    let from = first + n * CHUNK;
                    let findings = chunk(c, from, end.min(from + CHUNK));
                    let seen = |rule: &Rule| findings.totals.broken[*rule as usize] > 0;
                    let stops = !c.stop_at.is_empty() && c.stop_at.iter().all(seen);
                    let mut sum = sum.lock().unwrap_or_else(|e| e.into_inner());
                    sum.add(&findings.totals);
                    if stops || !go_on(&sum) {
                        stop_after.fetch_min(n, Ordering::SeqCst);
                    }
                    done.lock().unwrap_or_else(|e| e.into_inner()).push((n, findings));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(n, _)| *n);
    let last = stop_after.load(Ordering::SeqCst);
    let mut out = Findings::default();
    for (_, f) in done.into_iter().filter(|(n, _)| *n <= last) {
        out.totals.add(&f.totals);
        for found in f.found {
            let same = |o: &&Found| o.violation.rule == found.violation.rule;
            if out.found.iter().filter(same).count() < KEEP {
                out.found.push(found);
            }
        }
        out.not_played.extend(f.not_played);
        out.done = f.done;
    }
    out
}

/// Programs `from..to`.
fn chunk(c: &Campaign, from: u64, to: u64) -> Findings {
    let mut out = Findings::default();
    let mut subject = None;
    let mut plays = Vec::new();
    for n in from..to {
        match play(&c.bench, &c.source.program(n)) {
            Ok(played) => plays.push((n, played)),
            Err(e) => out.not_played.push((n, e.to_string())),
        }
    }
    out.done = to;
    let Some((_, first)) = plays.first() else { return out };
    let subject = subject.get_or_insert_with(|| FsSubject {
        entry: c.bench.fs,
        options: c.bench.fs_options.clone(),
        block_bytes: first.ledger.block_bytes() as u32,
        check: c.check,
        keep_writes: c.second_cuts > 0,
    });
    let options = wp_crash::Options {
        plan: c.plan,
        seed: c.seed,
        profile: c.profile,
        partition: first.partition,
        keep: KEEP,
        second_cuts: c.second_cuts,
        prune: c.prune,
        recovery_in_order: c.recovery_in_order,
    };
    let mut explorer = Explorer::new(subject, options);
    for (n, played) in &plays {
        let history = c.space.history(played);
        explorer.explore(&played.tape, &history, &played.ledger, &mut |_| true);
        for f in std::mem::take(&mut explorer.failures) {
            let same = |o: &&Found| o.violation.rule == f.violation.rule;
            if out.found.iter().filter(same).count() < KEEP {
                let live = history.frames[f.frame].live.len();
                out.found.push(Found {
                    program: *n,
                    violation: f.violation,
                    frame: f.frame,
                    lost: (0..live).filter(|i| !f.kept.has(*i)).collect(),
                    operations: f.operations,
                    after: f.after,
                });
            }
        }
    }
    out.totals = explorer.totals;
    out
}
