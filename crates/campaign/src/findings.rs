//! What comes of a campaign.

use std::collections::BTreeMap;

use wp_crash::{Failure, History, Rule, Totals, Violation};

use super::calls::Calls;
use super::campaign::Campaign;

/// Failures kept of each rule in a chunk.
pub(super) const KEEP: usize = 3;

/// Rules and paths that are told apart.
pub(super) const PLACES: usize = 10_000;

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

impl Found {
    /// A failure of program `n`.
    pub(super) fn of(n: u64, f: Failure, history: &History) -> Found {
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
    pub(super) fn keep(&mut self, found: Found) {
        let same = |o: &&Found| o.violation.rule == found.violation.rule;
        if self.found.iter().filter(same).count() < KEEP {
            self.found.push(found);
        }
    }

    /// Adds what was under way in a chunk when all was stopped.
    pub(super) fn add_unfinished(&mut self, part: Unfinished) {
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
    pub fn add(&mut self, next: Findings) -> usize {
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
