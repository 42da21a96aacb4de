//! Verdicts that come later: a checker may be asked about a state, and answer while others are
//! explored.
//!
//! Invariants: what is counted and kept is the same as if every verdict had come at once.

use super::{Explorer, Failure, Look};
use crate::rules::Violation;
use crate::states::Kept;

/// What a checker says of a state.
#[derive(Clone, Debug)]
pub enum Opinion {
    /// Nothing is wrong with it.
    Fine,
    /// This is wrong with it.
    Bad(Violation),
    /// [`Explorer::settle`] asks for the verdict of this number.
    Later(u64),
}

impl From<Option<Violation>> for Opinion {
    fn from(wrong: Option<Violation>) -> Opinion {
        wrong.map_or(Opinion::Fine, Opinion::Bad)
    }
}

/// A state that may be a failure.
#[derive(Debug)]
struct Suspect {
    frame: usize,
    kept: Kept,
    cut: (usize, usize),
    operations: (u32, u32),
    after: u64,
}

/// States that wait for one verdict.
#[derive(Default, Debug)]
pub(super) struct Waiting {
    states: u64,
    /// The first of them, as many as failures are kept.
    first: Vec<Suspect>,
}

impl Waiting {
    /// Adds a state, of which `most` are kept.
    pub(super) fn add(
        &mut self,
        most: usize,
        (frame, kept): (usize, &Kept),
        look: &Look,
        after: u64,
    ) {
        self.states += 1;
        if self.first.len() < most {
            let (kept, cut, operations) = (kept.clone(), look.cut, look.operations);
            self.first.push(Suspect { frame, kept, cut, operations, after });
        }
    }
}

impl Explorer<'_> {
    /// Counts and keeps the states whose verdicts came later. `answer` is asked what is wrong, by
    /// number, in the order in which the numbers were given.
    pub fn settle(&mut self, answer: &mut dyn FnMut(u64) -> Option<Violation>) {
        let mut suspects = Vec::new();
        for (number, waiting) in std::mem::take(&mut self.later) {
            let Some(violation) = answer(number) else { continue };
            if let Some(entry) = self.listed.as_deref().and_then(|listed| listed(&violation)) {
                *self.known_failures.entry(entry).or_default() += waiting.states;
                continue;
            }
            self.totals.broken[violation.rule as usize] += waiting.states;
            self.count(&violation, waiting.states);
            suspects.extend(waiting.first.into_iter().map(|s| Failure {
                violation: violation.clone(),
                frame: s.frame,
                kept: s.kept,
                cut: s.cut,
                operations: s.operations,
                after: s.after,
            }));
        }
        suspects.sort_by_key(|f| f.after);
        for failure in suspects {
            if self.kept_of(failure.violation.rule) < self.options.keep {
                self.failures.push(failure);
            }
        }
        // Stable: of one state the checker's verdict is the last.
        self.failures.sort_by_key(|f| f.after);
    }
}
