//! Which calls caused which requests: a bio is a call's if its task queued it within the call, or
//! if it was queued for shared work that served the call.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::event::Record;

use crate::requests::{Bio, Request};
use crate::shared::{Piece, Served};

/// How many pieces of one task may be under way at once: those of BarrierFS' journal.
const UNDER_WAY_MAX: usize = 64;

/// A call: its first and last record, and its task.
pub(crate) type Span<'a> = (usize, usize, &'a str);

/// Some calls of a run and the pieces of shared work that served them.
pub(crate) struct Causes<'a> {
    records: &'a [Record],
    pieces: &'a [Piece<'a>],
    served: Served,
    /// The calls of each task, in order.
    calls: BTreeMap<&'a str, Vec<(usize, usize, usize)>>,
    /// The pieces of each task, in the order in which they begin.
    work: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Causes<'a> {
    pub fn new(records: &'a [Record], pieces: &'a [Piece<'a>], calls: &[Span<'a>]) -> Causes<'a> {
        let served = Served::new(records, pieces, calls);
        let mut by_task: BTreeMap<&str, Vec<(usize, usize, usize)>> = BTreeMap::new();
        for (n, &(enter, exit, task)) in calls.iter().enumerate() {
            by_task.entry(task).or_default().push((enter, exit, n));
        }
        by_task.values_mut().for_each(|calls| calls.sort_unstable());
        let mut work: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, piece) in pieces.iter().enumerate() {
            for task in &piece.tasks {
                work.entry(task).or_default().push(i);
            }
        }
        Causes { records, pieces, served, calls: by_task, work }
    }

    /// The pieces of shared work that a task had under way at a record, the last one first.
    pub fn pieces(&self, task: &str, index: usize) -> impl Iterator<Item = usize> {
        let all = self.work.get(task).map_or(&[][..], Vec::as_slice);
        let begun = all.partition_point(|&i| self.pieces[i].begin.index <= index);
        let some = all[..begun].iter().rev().take(UNDER_WAY_MAX).copied();
        some.filter(move |&i| self.pieces[i].covers(index))
    }

    /// The calls that a bio was queued for.
    pub fn bio(&self, bio: &Bio) -> BTreeSet<usize> {
        let index = bio.queued.index;
        let task = &*self.records[index].task;
        let own = self.calls.get(task).map_or(&[][..], Vec::as_slice);
        let before = own.partition_point(|c| c.0 <= index);
        let own = own[..before].last().filter(|c| index <= c.1).map(|c| c.2);
        let shared = self.pieces(task, index).flat_map(|i| self.served.calls(i));
        own.into_iter().chain(shared).collect()
    }

    /// The calls of every request. Of a flush command those of the requests that it stands before
    /// or behind.
    pub fn requests(&self, requests: &[Request]) -> Vec<BTreeSet<usize>> {
        let of = |r: &Request| r.bios.iter().flat_map(|b| self.bio(b)).collect();
        let mut all: Vec<BTreeSet<usize>> = requests.iter().map(of).collect();
        let sequences: Vec<usize> = (0..requests.len())
            .filter(|&i| requests[i].is_sequence() && !all[i].is_empty())
            .collect();
        for (i, r) in requests.iter().enumerate().filter(|(_, r)| r.is_flush()) {
            let Some(issued) = r.issued else { continue };
            let around = |of: &Request| {
                of.start().is_some_and(|m| m.index < issued.index)
                    && of.end().is_none_or(|m| m.index > issued.index)
            };
            // In the order in which they began: what begins behind it is not around it.
            let begun = sequences
                .partition_point(|&s| requests[s].start().is_some_and(|m| m.index < issued.index));
            let near = sequences[..begun].iter().rev().take(4 * UNDER_WAY_MAX);
            all[i] =
                near.filter(|&&s| around(&requests[s])).flat_map(|&s| all[s].clone()).collect();
        }
        all
    }
}
