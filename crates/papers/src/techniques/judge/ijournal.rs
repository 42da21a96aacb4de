//! iJournaling: what an fsync writes, whom it disturbs, and how far it grows with threads.

use wp_machine::MachineError;

use super::fast_commit::{Claims, DEVICE, NO_TIMER, blocks_of_a_commit, setup};
use super::files::{Made, Work, run};
use super::{Ask, Observed};
use crate::claims::Measured;

/// A drive without a volatile cache: no FLUSH is most of the time.
const SAFE: &str = "ssd-128-plp";
/// Threads that sync.
const THREADS: [u64; 6] = [1, 2, 4, 8, 16, 40];

/// Options of the two sides, jbd2 last.
fn sides() -> [String; 2] {
    let cores = crate::journal_conflict::profile().model().cores;
    [format!(",ijournal,cpus={cores}"), String::new()]
}

fn both(
    ask: Ask,
    drive: &'static str,
    work: Work,
    count: (u64, u64),
) -> Result<[Made; 2], MachineError> {
    let one = |options: &str| {
        let mut setup = setup(ask, options, None);
        setup.device = drive;
        run(&setup, work, count.0, count.1)
    };
    let [own, full] = sides();
    Ok([one(&own)?, one(&full)?])
}

/// Latency that all but one in a hundred stay below, nanoseconds.
fn p99(made: &Made) -> u64 {
    let last = made.append_ns.len().saturating_sub(1);
    made.append_ns.get((made.append_ns.len() * 99 / 100).min(last)).copied().unwrap_or(0)
}

/// Syncs per second of each number of threads, of both sides.
fn by_threads(ask: Ask, drive: &'static str) -> Result<Vec<[Made; 2]>, MachineError> {
    let syncs = ask.pick(160, 1600);
    THREADS.iter().map(|n| both(ask, drive, Work::Mark, (*n, syncs / n))).collect()
}

/// Most syncs per second over those of one thread.
fn growth(all: &[[Made; 2]], side: usize) -> f64 {
    let most = all.iter().map(|m| m[side].per_second).fold(0.0, f64::max);
    all.first().map_or(0.0, |one| most / one[side].per_second)
}

pub(super) fn measure(ask: Ask) -> Result<Claims, MachineError> {
    let [own, full] = sides().map(|o| format!("{o}{NO_TIMER}"));
    let appends =
        |options: &str| run(&setup(ask, options, None), Work::Append, 1, ask.pick(60, 200));
    let (own, full) = (appends(&own)?, appends(&full)?);
    let own_blocks = own.counter("fast_blocks") / own.counter("fast_commits").max(1.0);
    let full_blocks = blocks_of_a_commit(&full);
    let beside = both(ask, DEVICE, Work::AppendBesideMark, (9, ask.pick(100, 400)))?;
    let (near, far) = (p99(&beside[0]), p99(&beside[1]));
    let all = by_threads(ask, DEVICE)?;
    let (grows, jbd2) = (growth(&all, 0), growth(&all, 1));
    Ok(vec![
        (
            "ij.blocks",
            Measured::answer((1.0..=2.0).contains(&own_blocks) && own_blocks < full_blocks).why(
                format!(
                    "{own_blocks} in {} i-transactions, jbd2 {full_blocks}",
                    own.counter("fast_commits")
                ),
            ),
        ),
        ("ij.interfere", Measured::answer(near < far).why(format!("{near} ns, jbd2 {far} ns"))),
        (
            "ij.cores",
            Measured::answer(grows > jbd2).why(format!("{grows:.2} times, jbd2 {jbd2:.2} times")),
        ),
    ])
}

/// The curves behind `ij.cores`, those of a drive with power-loss protection too, and how many
/// syncs were no i-transaction.
pub(super) fn observe(ask: Ask) -> Result<Vec<Observed>, MachineError> {
    let mut out = Vec::new();
    for drive in [DEVICE, SAFE] {
        for (n, [own, full]) in THREADS.iter().zip(&by_threads(ask, drive)?) {
            let full_ones = own.counter("fast_ineligible") + own.counter("fast_failed");
            for (name, made, why) in [
                ("ijournal", own, format!("{full_ones} calls became a full commit")),
                ("jbd2", full, format!("{} commits", full.counter("commits"))),
            ] {
                out.push(Observed {
                    id: format!("{drive}: {n} threads, {name}"),
                    value: Some(made.per_second),
                    unit: "files/s".to_owned(),
                    why,
                });
            }
        }
    }
    Ok(out)
}
