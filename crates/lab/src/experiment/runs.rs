//! All runs of an experiment, or of a shard of it, on some threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::kept::Kept;
use super::run::{Outcome, run};
use super::table::Row;
use super::{Experiment, results};
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

/// Makes the runs. `progress(done, of, name)` is called before each; `false` stops.
///
/// Errors: the host's, of what is kept.
pub fn run_all(
    e: &Experiment,
    plan: &Plan<'_>,
    progress: &(dyn Fn(usize, usize, &str) -> bool + Sync),
) -> std::io::Result<Ended> {
    let inputs = results::inputs_hash(&e.inputs);
    let numbers = plan.shard.runs(e.runs());
    let name = |n: usize| {
        let (point, seed) = e.run_of(n);
        plan.kept.map(|kept| kept.name(&e.points[point].text(), &inputs, seed))
    };
    let mut outcomes: Vec<Option<Outcome>> = numbers
        .iter()
        .map(|n| {
            let (kept, name) = (plan.kept.filter(|_| !plan.again)?, name(*n)?);
            kept.find(&name)
        })
        .collect();
    let missing: Vec<usize> = (0..numbers.len()).filter(|i| outcomes[*i].is_none()).collect();
    let before = numbers.len() - missing.len();
    let done = AtomicUsize::new(0);
    // Places in the file are of this thread.
    let work: Vec<_> = missing
        .iter()
        .map(|i| {
            let n = numbers[*i];
            let (point, seed) = e.run_of(n);
            (&e.points[point], seed, e.describe(n), name(n))
        })
        .collect();
    let made = each(plan.workers, missing.len(), || (), |(), i| {
        let (setup, seed, shown, name) = &work[i];
        let so_far = done.load(Ordering::SeqCst);
        if !progress(so_far, missing.len(), shown) {
            return None;
        }
        let outcome = run(setup, *seed);
        let kept = match (&outcome, plan.kept, name) {
            (Ok(outcome), Some(kept), Some(name)) => kept.keep(name, outcome),
            _ => Ok(()),
        };
        done.fetch_add(1, Ordering::SeqCst);
        Some((outcome, kept))
    });
    let mut done = before;
    for (place, answer) in missing.iter().zip(made) {
        let Some((outcome, kept)) = answer else { continue };
        kept?;
        match outcome {
            Ok(outcome) => outcomes[*place] = Some(outcome),
            Err(error) => return Ok(Ended::Failed(numbers[*place], error)),
        }
        done += 1;
    }
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
