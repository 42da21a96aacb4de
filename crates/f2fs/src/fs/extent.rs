//! Runs of a regular file's blocks as they were met (`extent_tree[EX_READ]`), the longest of which
//! stands in the inode.
//!
//! Source: Linux `fs/f2fs/extent_cache.c` (`__update_extent_tree_range`).

use std::collections::BTreeMap;

/// Pieces of a split run that are shorter are forgotten (`F2FS_MIN_EXTENT_LEN`).
const LEN_MIN: u32 = 64;

/// A run of blocks with consecutive addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Extent {
    /// First block in the file.
    pub fofs: u32,
    /// Its address.
    pub blk: u32,
    /// Blocks; 0: none.
    pub len: u32,
}

/// What an update did besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Changed {
    /// The longest run is another one: the inode is to be written.
    pub largest: bool,
    /// The file is too scattered: nothing is kept of it any more (`FI_NO_EXTENT`).
    pub give_up: bool,
}

/// Runs of one file.
#[derive(Default, Debug)]
pub(super) struct Extents {
    /// By first block in the file: address and blocks.
    runs: BTreeMap<u32, (u32, u32)>,
    /// The longest.
    pub largest: Extent,
    is_changed: bool,
}

impl Extents {
    /// With the run that an inode has on disk.
    pub fn of(largest: Extent) -> Extents {
        let mut e = Extents { largest, ..Extents::default() };
        if largest.len > 0 {
            e.runs.insert(largest.fofs, (largest.blk, largest.len));
        }
        e
    }

    /// Address of a block, and how many from it on are known to follow.
    pub fn find(&self, index: u64) -> Option<(u32, u64)> {
        let index = u32::try_from(index).ok()?;
        let l = self.largest;
        if l.fofs <= index && u64::from(index) < u64::from(l.fofs) + u64::from(l.len) {
            let at = index - l.fofs;
            return Some((l.blk + at, u64::from(l.len - at)));
        }
        let (fofs, (blk, len)) = self.runs.range(..=index).next_back()?;
        (index - fofs < *len).then(|| (blk + index - fofs, u64::from(len - (index - fofs))))
    }

    /// Forgets everything. Yes: there was a longest run.
    pub fn clear(&mut self) -> bool {
        self.runs.clear();
        std::mem::take(&mut self.largest).len > 0
    }

    fn consider(&mut self, e: Extent) {
        if e.len > self.largest.len {
            self.largest = e;
            self.is_changed = true;
        }
    }

    fn insert(&mut self, e: Extent) {
        self.runs.insert(e.fofs, (e.blk, e.len));
        self.consider(e);
    }

    /// Blocks `fofs..fofs + len` are at `blk` and behind it; nowhere, if that is 0.
    pub fn update(&mut self, fofs: u32, len: u32, blk: u32) -> Changed {
        let end = fofs.saturating_add(len);
        let before = self.largest;
        if fofs < before.fofs.saturating_add(before.len) && end > before.fofs {
            self.largest.len = 0;
            self.is_changed = true;
        }
        let mut over: Vec<Extent> = Vec::new();
        for (start, (blk, len)) in self.runs.range(..end).rev() {
            if start + len <= fofs {
                break;
            }
            over.push(Extent { fofs: *start, blk: *blk, len: *len });
        }
        let cut = over.first().map_or(0, |e| e.len);
        for e in over.iter().rev() {
            self.runs.remove(&e.fofs);
            let e_end = e.fofs + e.len;
            if fofs > e.fofs && fofs - e.fofs >= LEN_MIN {
                self.insert(Extent { len: fofs - e.fofs, ..*e });
            }
            if end < e_end && e_end - end >= LEN_MIN {
                self.insert(Extent { fofs: end, blk: e.blk + (end - e.fofs), len: e_end - end });
            }
        }
        let mut give_up = false;
        if blk != 0 {
            self.join(Extent { fofs, blk, len });
            if cut >= 1 && before.len < LEN_MIN && self.largest.len < LEN_MIN {
                self.largest.len = 0;
                self.is_changed = true;
                give_up = true;
                self.runs.clear();
            }
        }
        Changed { largest: std::mem::take(&mut self.is_changed), give_up }
    }

    /// Puts a run in, joined with what it continues and what continues it.
    fn join(&mut self, mut e: Extent) {
        if let Some((fofs, (blk, len))) = self.runs.range(..e.fofs).next_back()
            && fofs + len == e.fofs
            && blk + len == e.blk
        {
            e = Extent { fofs: *fofs, blk: *blk, len: len + e.len };
        }
        if let Some((blk, len)) = self.runs.get(&(e.fofs + e.len)).copied()
            && e.blk + e.len == blk
        {
            self.runs.remove(&(e.fofs + e.len));
            e.len += len;
        }
        self.insert(e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_one_by_one_become_one_run_that_is_found() {
        let mut e = Extents::default();
        for n in 0..100 {
            assert!(e.update(n, 1, 5000 + n).largest, "block {n} makes it longer");
        }
        assert_eq!(e.largest, Extent { fofs: 0, blk: 5000, len: 100 });
        assert_eq!(e.find(99), Some((5099, 1)));
        assert_eq!(e.find(100), None);
    }

    #[test]
    fn a_hole_splits_a_run_and_short_pieces_are_forgotten() {
        let mut e = Extents::of(Extent { fofs: 0, blk: 1000, len: 200 });
        let changed = e.update(100, 1, 0);
        assert!(changed.largest && !changed.give_up);
        assert_eq!((e.find(0), e.find(100)), (Some((1000, 100)), None));
        assert_eq!(e.find(199), Some((1199, 1)));
        e.update(30, 1, 0);
        assert_eq!(e.find(29), None, "30 blocks are too few to keep");
        assert_eq!(e.find(31), Some((1031, 69)));
    }

    #[test]
    fn a_file_of_short_runs_that_changes_is_given_up() {
        let mut e = Extents::default();
        e.update(0, 1, 10);
        e.update(1, 1, 11);
        let changed = e.update(0, 1, 50);
        assert!(changed.give_up && changed.largest);
        assert_eq!(e.largest.len, 0);
        assert_eq!(e.find(1), None);
    }
}
