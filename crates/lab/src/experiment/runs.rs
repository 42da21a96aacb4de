//! All runs of an experiment, or of a shard of it, on some threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::kept::Kept;
use super::run::{Outcome, run};
use super::table::Row;
use super::{Experiment, Setup, results};
use crate::each::each;
use crate::machine::MachineError;

/// A part of the runs: every `of`-th, from number `index` on, which counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl Shard {
    /// All of them.
    pub const WHOLE: Shard = Shard { index: 1, of: 1 };

    /// Reads `2/8`. Errors: what it takes.
    pub fn parse(text: &str) -> Result<Shard, String> {
        let pair = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match pair {
            Some((index, of)) if (1..=of).contains(&index) && of <= 100_000 => {
                Ok(Shard { index, of })
            }
            _ => Err(format!("`{text}`: write I/N with I from 1 to N, as 2/8")),
        }
    }

    /// The numbers of its runs, of so many.
    pub fn runs(self, all: usize) -> Vec<usize> {
        (0..all).filter(|n| n % self.of == self.index - 1).collect()
    }
}

/// How runs are made.
pub struct Plan<'a> {
    /// Which.
    pub shard: Shard,
    /// Threads.
    pub workers: usize,
    /// Where runs are kept; `None`: nowhere.
    pub kept: Option<&'a Kept>,
    /// Make also those that are kept.
    pub again: bool,
}

/// How it ended.
pub enum Ended {
    /// All runs were made, or were kept.
    Whole(Vec<Row>),
    /// It was stopped: so many runs are kept.
    Stopped(usize),
    /// A run failed: its number, and why.
    Failed(usize, MachineError),
}

/// A run that is to be made: its place among the numbers, and what it takes.
struct Wanted<'a> {
    place: usize,
    setup: &'a Setup,
    seed: u64,
    shown: String,
    /// What it is kept under.
    name: Option<String>,
}

/// The runs of these numbers: what is kept of them, and what is to be made.
fn look<'a>(
    e: &'a Experiment,
    plan: &Plan<'_>,
    numbers: &[usize],
) -> (Vec<Option<Outcome>>, Vec<Wanted<'a>>) {
    let of_point = |p: &Setup| {
        let own = e.inputs.iter().filter(|(name, _)| p.inputs.contains(*name));
        results::inputs_hash(own)
    };
    let points = e.points.len() + e.varied.as_ref().map_or(0, |v| v.points.len());
    let inputs: Vec<String> = (0..points).map(|n| of_point(e.setup(n))).collect();
    let (mut outcomes, mut wanted) = (Vec::new(), Vec::new());
    for (place, n) in numbers.iter().enumerate() {
        let (point, seed) = e.run_of(*n);
        let setup = e.setup(point);
        let name = plan.kept.map(|k| k.name(&setup.text(), &inputs[point], seed));
        let known = plan.kept.filter(|_| !plan.again).zip(name.as_ref());
        let outcome = known.and_then(|(kept, name)| kept.find(name));
        if outcome.is_none() {
            wanted.push(Wanted { place, setup, seed, shown: e.describe(*n), name });
        }
        outcomes.push(outcome);
    }
    (outcomes, wanted)
}

/// Makes the runs. `progress(done, of, name)` is called before each; `false` stops.
///
/// Errors: the host's, of what is kept.
pub fn run_all(
    e: &Experiment,
    plan: &Plan<'_>,
    progress: &(dyn Fn(usize, usize, &str) -> bool + Sync),
) -> std::io::Result<Ended> {
    let numbers = plan.shard.runs(e.runs());
    let (mut outcomes, wanted) = look(e, plan, &numbers);
    let made = AtomicUsize::new(0);
    let answers = each(
        plan.workers,
        wanted.len(),
        || (),
        |(), i| {
            let w = &wanted[i];
            if !progress(made.load(Ordering::SeqCst), wanted.len(), &w.shown) {
                return None;
            }
            let outcome = run(w.setup, w.seed);
            let kept = match (&outcome, plan.kept, &w.name) {
                (Ok(outcome), Some(kept), Some(name)) => kept.keep(name, outcome),
                _ => Ok(()),
            };
            made.fetch_add(1, Ordering::SeqCst);
            Some((outcome, kept))
        },
    );
    for (w, answer) in wanted.iter().zip(answers) {
        let Some((outcome, kept)) = answer else { continue };
        kept?;
        match outcome {
            Ok(outcome) => outcomes[w.place] = Some(outcome),
            Err(error) => return Ok(Ended::Failed(numbers[w.place], error)),
        }
    }
    let done = outcomes.iter().flatten().count();
    if done < numbers.len() {
        return Ok(Ended::Stopped(done));
    }
    let rows = numbers.iter().zip(outcomes).filter_map(|(n, outcome)| {
        let (point, seed) = e.run_of(*n);
        Some(Row { point, seed, outcome: outcome? })
    });
    Ok(Ended::Whole(rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_every_run_once() {
        let mut all: Vec<usize> =
            (1..=3).flat_map(|index| Shard { index, of: 3 }.runs(10)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_eq!(Shard::parse("2/8"), Ok(Shard { index: 2, of: 8 }));
        for wrong in ["", "2", "0/2", "3/2", "1/0", "a/b", "-1/2", "1/999999"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }
}
