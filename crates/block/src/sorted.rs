//! Requests in the order of their sectors: what the elevators sort by.
//!
//! Picture: a list of runs, each at most [`RUN_MAX`] keys, ascending within and across runs.
//! Why:     a queue's depth is nearly always below 128 and its keys come and go all the time. One
//!          run is then all there is: no allocation, one short `memmove`. A tree would allocate
//!          each time the queue had been empty.

use wp_base::Sector;

use crate::pool::RqId;

/// Longest run: above it a `memmove` would cost more than finding the run.
const RUN_MAX: usize = 256;

type Key = (u64, u32);

/// A set of (sector, request), sorted.
pub(crate) struct SectorIndex {
    /// Never empty: the first run stays, even without keys, for its memory. Other runs hold keys.
    runs: Vec<Vec<Key>>,
    len: usize,
}

impl Default for SectorIndex {
    fn default() -> SectorIndex {
        SectorIndex { runs: vec![Vec::new()], len: 0 }
    }
}

impl SectorIndex {
    /// Keys in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No key?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The run in which `key` is or would be.
    fn run_of(&self, key: Key) -> usize {
        // The last run whose first key is not above; an empty run is the only one.
        self.runs.partition_point(|r| r.first().is_some_and(|f| *f <= key)).saturating_sub(1)
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, at: Sector, rq: RqId) {
        let key = (at.0, rq.0);
        let run = self.run_of(key);
        let keys = &mut self.runs[run];
        let pos = keys.partition_point(|k| *k < key);
        debug_assert!(keys.get(pos) != Some(&key), "{key:?} is in the index already");
        keys.insert(pos, key);
        self.len += 1;
        if keys.len() > RUN_MAX {
            let upper = keys.split_off(RUN_MAX / 2);
            self.runs.insert(run + 1, upper);
        }
    }

    /// Removes a key that is there.
    pub fn remove(&mut self, at: Sector, rq: RqId) {
        let key = (at.0, rq.0);
        let run = self.run_of(key);
        let keys = &mut self.runs[run];
        let pos =
            keys.binary_search(&key).expect("a queued request is in the index under its sector");
        keys.remove(pos);
        self.len -= 1;
        if keys.is_empty() && self.runs.len() > 1 {
            self.runs.remove(run);
        }
    }

    /// The first request at or after `at`.
    pub fn at_or_after(&self, at: Sector) -> Option<RqId> {
        let key = (at.0, 0);
        let run = self.run_of(key);
        let keys = &self.runs[run];
        let pos = keys.partition_point(|k| *k < key);
        keys.get(pos).or_else(|| self.runs.get(run + 1)?.first()).map(|k| RqId(k.1))
    }

    /// The last request before `at`.
    pub fn before(&self, at: Sector) -> Option<RqId> {
        let key = (at.0, 0);
        let keys = &self.runs[self.run_of(key)];
        let pos = keys.partition_point(|k| *k < key);
        // If the run starts at or above `key`, there is no run below: `run_of` would have found it.
        pos.checked_sub(1).map(|p| RqId(keys[p].1))
    }

    /// The first request.
    pub fn first(&self) -> Option<RqId> {
        self.runs[0].first().map(|k| RqId(k.1))
    }

    /// The neighbours of a key that is there: (the one before, the one after).
    pub fn around(&self, at: Sector, rq: RqId) -> (Option<RqId>, Option<RqId>) {
        let key = (at.0, rq.0);
        let run = self.run_of(key);
        let keys = &self.runs[run];
        let pos =
            keys.binary_search(&key).expect("a queued request is in the index under its sector");
        let former = match pos.checked_sub(1) {
            Some(p) => Some(keys[p]),
            None => run.checked_sub(1).and_then(|r| self.runs[r].last().copied()),
        };
        let latter = keys.get(pos + 1).or_else(|| self.runs.get(run + 1)?.first());
        (former.map(|k| RqId(k.1)), latter.map(|k| RqId(k.1)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use wp_base::Rng;

    #[test]
    fn it_is_the_same_as_a_tree() {
        let mut rng = Rng::stream(3, "sorted");
        let (mut index, mut tree) = (SectorIndex::default(), BTreeSet::new());
        for step in 0..20_000u32 {
            // Grow for a while, then shrink to nothing, and again.
            let grow = (step / 2_500) % 2 == 0;
            let key = (rng.below(500), rng.below(40) as u32);
            if rng.below(10) < if grow { 8 } else { 2 } {
                if tree.insert(key) {
                    index.insert(Sector(key.0), RqId(key.1));
                }
            } else if let Some(k) = tree.range(key..).next().copied().or(tree.first().copied()) {
                tree.remove(&k);
                index.remove(Sector(k.0), RqId(k.1));
            }
            assert_eq!(index.len(), tree.len());
            assert_eq!(index.first().map(|r| r.0), tree.first().map(|k| k.1));
            let at = rng.below(510);
            assert_eq!(
                index.at_or_after(Sector(at)).map(|r| r.0),
                tree.range((at, 0)..).next().map(|k| k.1)
            );
            assert_eq!(
                index.before(Sector(at)).map(|r| r.0),
                tree.range(..(at, 0)).next_back().map(|k| k.1)
            );
            if let Some(k) = tree.range((at, 0)..).next().copied() {
                let (former, latter) = index.around(Sector(k.0), RqId(k.1));
                assert_eq!(former.map(|r| r.0), tree.range(..k).next_back().map(|k| k.1));
                let above = (std::ops::Bound::Excluded(k), std::ops::Bound::Unbounded);
                assert_eq!(latter.map(|r| r.0), tree.range(above).next().map(|k| k.1));
            }
        }
    }
}
