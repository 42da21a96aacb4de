//! Space that is set aside in memory: for a file that grows, and for small files together.
//!
//! Picture:    a group's bits count it as busy, the disk's bitmap as free. Blocks leave it when
//!             they are allocated; what is left returns to the bits when it is discarded.
//! Left out:   a locality group for each CPU: there is one, as if every task ran on the same CPU;
//!             the limit of 512 spaces of a file (5.9 to 6.3).
//! Source:     Linux `fs/ext4/mballoc.c` (`ext4_prealloc_space`, `ext4_mb_use_preallocated`,
//!             `ext4_mb_new_inode_pa`, `ext4_mb_add_n_trim`, `ext4_discard_preallocations`).

use std::collections::BTreeMap;

use super::inode::Inode;
use super::mount::Ext4;

/// Lists of a locality group, by the order of what is left (`PREALLOC_TB_SIZE`).
const LISTS: usize = 10;
/// A list longer than this is cut to [`LIST_KEPT`].
const LIST_MOST: usize = 8;
/// See [`LIST_MOST`].
const LIST_KEPT: usize = 5;

/// A run of blocks set aside.
#[derive(Debug)]
pub(super) struct Space {
    /// First logical block of the file it is for; means nothing for a locality group.
    pub logical: u64,
    /// First block on the device.
    pub start: u64,
    /// Clusters; blocks without bigalloc, here and below.
    pub len: u32,
    /// Its ranges that are not allocated yet: (offset, clusters).
    pub free: Vec<(u32, u32)>,
}

impl Space {
    pub(super) fn new(logical: u64, start: u64, len: u32) -> Space {
        Space { logical, start, len, free: vec![(0, len)] }
    }

    fn end(&self, bits: u32) -> u64 {
        self.logical + (u64::from(self.len) << bits)
    }

    fn left(&self) -> u32 {
        self.free.iter().map(|f| f.1).sum()
    }

    /// Takes up to `want` clusters from `offset` on.
    fn take(&mut self, offset: u32, want: u32) -> Option<u32> {
        let i = self.free.iter().position(|(at, n)| (*at..at + n).contains(&offset))?;
        let (at, n) = self.free[i];
        let len = want.min(at + n - offset);
        let rest = [(at, offset - at), (offset + len, at + n - offset - len)];
        self.free.splice(i..=i, rest.into_iter().filter(|r| r.1 > 0));
        Some(len)
    }
}

/// All that is set aside.
#[derive(Default)]
pub(super) struct Preallocs {
    /// [`crate::disk::Geometry::cluster_bits`].
    cluster_bits: u32,
    /// By inode number.
    files: BTreeMap<u32, Vec<Space>>,
    /// The locality group's, by order, each list by what is left.
    small: [Vec<Space>; LISTS],
}

fn list_of(blocks: u32) -> usize {
    (blocks.max(1).ilog2() as usize).min(LISTS - 1)
}

impl Preallocs {
    pub(super) fn new(cluster_bits: u32) -> Preallocs {
        Preallocs { cluster_bits, ..Preallocs::default() }
    }

    /// Takes from what is set aside for the file: (first block, clusters). `logical` is the first
    /// block of a cluster.
    pub(super) fn take_for(&mut self, ino: u32, logical: u64, want: u32) -> Option<(u64, u32)> {
        let bits = self.cluster_bits;
        let spaces = self.files.get_mut(&ino)?;
        let i = spaces.iter().position(|s| (s.logical..s.end(bits)).contains(&logical))?;
        // A space need not begin with a cluster of the file.
        let offset = ((logical - spaces[i].logical) >> bits) as u32;
        let len = spaces[i].take(offset, want)?;
        let start = spaces[i].start + (u64::from(offset) << bits);
        if spaces[i].free.is_empty() {
            spaces.remove(i);
        }
        if spaces.is_empty() {
            self.files.remove(&ino);
        }
        Some((start, len))
    }

    /// Takes from what is set aside for small files: all of `want`, as near to `goal` as there is.
    pub(super) fn take_small(&mut self, goal: u64, want: u32) -> Option<(u64, Vec<Space>)> {
        let mut best: Option<(u64, usize, usize)> = None;
        for (l, list) in self.small.iter().enumerate().skip(list_of(want)) {
            for (i, s) in list.iter().enumerate().filter(|(_, s)| s.len >= want) {
                let far = goal.abs_diff(s.start);
                if best.is_none_or(|(b, ..)| far < b) {
                    best = Some((far, l, i));
                }
            }
        }
        let (_, l, i) = best?;
        let space = self.small[l].remove(i);
        let start = space.start;
        Some((start, self.put_small(space, want)))
    }

    /// Files what is left of `space` behind its first `used` clusters. Returns what there is no
    /// room for in the lists.
    pub(super) fn put_small(&mut self, space: Space, used: u32) -> Vec<Space> {
        let left = space.len - used;
        if left == 0 {
            return Vec::new();
        }
        let start = space.start + (u64::from(used) << self.cluster_bits);
        let space = Space::new(0, start, left);
        let list = &mut self.small[list_of(left)];
        let at = list.iter().position(|s| left < s.len).unwrap_or(list.len());
        list.insert(at, space);
        if list.len() <= LIST_MOST {
            return Vec::new();
        }
        // The space in use now stays.
        let mut gone = Vec::new();
        let mut i = 0;
        let mut at = at;
        while i < list.len() && list.len() > LIST_KEPT {
            if i == at {
                i += 1;
                continue;
            }
            gone.push(list.remove(i));
            if i < at {
                at -= 1;
            }
        }
        gone
    }

    /// Sets `space` aside for a file.
    pub(super) fn put_for(&mut self, ino: u32, space: Space) {
        self.files.entry(ino).or_default().push(space);
    }

    /// The part of `start..end` around `logical` that nothing is set aside for yet
    /// (`ext4_mb_pa_adjust_overlap`).
    pub(super) fn around(&self, ino: u32, logical: u64, start: u64, end: u64) -> (u64, u64) {
        let (mut start, mut end) = (start, end);
        for s in self.files.get(&ino).into_iter().flatten() {
            let behind = s.end(self.cluster_bits);
            if behind <= logical {
                start = start.max(behind);
            } else if s.logical > logical {
                end = end.min(s.logical);
            }
        }
        (start, end)
    }

    /// Takes everything that begins in blocks `from..to` out: (first block, clusters).
    fn drain(&mut self, from: u64, to: u64) -> Vec<(u64, u32)> {
        let inside = |s: &Space| s.left() > 0 && (from..to).contains(&s.start);
        let (mut out, bits) = (Vec::new(), self.cluster_bits);
        for spaces in self.files.values_mut().chain(self.small.iter_mut()) {
            spaces.extract_if(.., |s| inside(s)).for_each(|s| out.extend(runs(&s, bits)));
        }
        self.files.retain(|_, spaces| !spaces.is_empty());
        out
    }
}

fn runs(s: &Space, bits: u32) -> impl Iterator<Item = (u64, u32)> + '_ {
    s.free.iter().map(move |(at, n)| (s.start + (u64::from(*at) << bits), *n))
}

impl Ext4 {
    /// A descriptor is about to be closed: the last writer's takes what was set aside with it,
    /// unless data still wait for a place (`ext4_release_file`).
    pub(super) fn closing(&self, inode: &Inode, write: bool) {
        if write && inode.writers.get() == 1 && inode.reserved.get() == 0 {
            self.discard_prealloc(inode);
        }
    }

    /// Gives back what is set aside for the file and not used (`ext4_discard_preallocations`): its
    /// last writer closes it, it is cut or freed.
    pub(super) fn discard_prealloc(&self, inode: &Inode) {
        let gone = self.groups.prealloc.borrow_mut().files.remove(&inode.ino);
        if let Some(spaces) = gone {
            self.free_spaces(spaces);
        }
    }

    /// Gives back spaces that nobody refers to any more.
    pub(super) fn free_spaces(&self, spaces: Vec<Space>) {
        let all = spaces.iter().flat_map(|s| runs(s, self.geo.cluster_bits));
        all.for_each(|(start, len)| self.free_in_memory(start, len));
    }

    /// Gives back what is set aside, group by group until there are `needed` clusters more
    /// (`ext4_mb_discard_preallocations`). Returns how many there are.
    pub(super) fn discard_for(&self, needed: u32) -> u32 {
        let mut freed = 0;
        for group in 0..self.geo.groups {
            let from = self.geo.group_start(group);
            let to = from + u64::from(self.geo.blocks_in_group(group));
            let gone = self.groups.prealloc.borrow_mut().drain(from, to);
            for (start, len) in gone {
                self.free_in_memory(start, len);
                freed += len;
            }
            if freed >= needed {
                break;
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_space_is_used_in_any_order_and_only_once() {
        let mut p = Preallocs::default();
        p.put_for(12, Space::new(100, 5000, 16));
        assert_eq!(p.take_for(12, 99, 1), None);
        assert_eq!(p.take_for(12, 108, 4), Some((5008, 4)));
        assert_eq!(p.take_for(12, 108, 1), None);
        assert_eq!(p.take_for(12, 104, 9), Some((5004, 4)));
        assert_eq!(p.around(12, 90, 64, 128), (64, 100));
        assert_eq!(p.around(12, 120, 64, 128), (116, 128));
        assert_eq!(p.drain(5000, 5001), [(5000, 4), (5012, 4)]);
        assert_eq!(p.take_for(12, 100, 1), None);
    }

    #[test]
    fn small_files_take_the_nearest_space_that_holds_them() {
        let mut p = Preallocs::default();
        assert!(p.put_small(Space::new(0, 1000, 512), 4).is_empty());
        assert!(p.put_small(Space::new(0, 9000, 512), 509).is_empty());
        assert_eq!(p.take_small(9000, 4).expect("space").0, 1004);
        assert_eq!(p.take_small(9000, 2).expect("space").0, 9509);
        assert_eq!(p.take_small(9000, 2).expect("space").0, 1008);
    }

    #[test]
    fn a_list_of_more_than_eight_is_cut_to_five() {
        let mut p = Preallocs::default();
        for i in 0..8 {
            assert!(p.put_small(Space::new(0, 1000 * i, 300 + i as u32), 0).is_empty());
        }
        let gone = p.put_small(Space::new(0, 9000, 300), 0);
        assert_eq!(gone.iter().map(|s| s.start).collect::<Vec<_>>(), [0, 1000, 2000, 3000]);
    }
}
