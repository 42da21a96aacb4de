//! Which blocks are taken: runs in a tree, so that 16 TiB cost as little as 16 MiB.

use std::collections::BTreeMap;

/// The taken blocks of a device whose file system starts at `first` and has `end` blocks.
#[derive(Clone, Debug)]
pub(super) struct Space {
    first: u64,
    end: u64,
    /// Start -> end of each taken run; runs neither touch nor overlap.
    taken: BTreeMap<u64, u64>,
}

impl Space {
    pub(super) fn new(first: u64, end: u64) -> Space {
        Space { first, end, taken: BTreeMap::new() }
    }

    /// The taken run that holds `block`, or the next one after it.
    fn run_from(&self, block: u64) -> Option<(u64, u64)> {
        if let Some((start, end)) = self.taken.range(..=block).next_back()
            && *end > block
        {
            return Some((*start, *end));
        }
        self.taken.range(block..).next().map(|(s, e)| (*s, *e))
    }

    /// Takes `blocks` blocks from `start`. Panics if one of them is taken: nothing may own a block
    /// twice.
    pub(super) fn take(&mut self, start: u64, blocks: u64) {
        assert!(self.is_free(start, blocks), "{start}+{blocks} is taken or beyond the device");
        let (mut from, mut to) = (start, start + blocks);
        if let Some((s, e)) = self.taken.range(..start).next_back().map(|(s, e)| (*s, *e))
            && e == start
        {
            from = s;
        }
        if let Some(e) = self.taken.remove(&to) {
            to = e;
        }
        self.taken.insert(from, to);
    }

    /// Are `blocks` blocks from `start` all on the device and free?
    pub(super) fn is_free(&self, start: u64, blocks: u64) -> bool {
        start + blocks <= self.end && self.run_from(start).is_none_or(|(s, _)| s >= start + blocks)
    }

    /// Taken blocks in `from..to`.
    pub(super) fn taken_in(&self, from: u64, to: u64) -> u64 {
        let mut count = 0;
        let mut at = from;
        while let Some((s, e)) = self.run_from(at).filter(|(s, _)| *s < to) {
            count += e.min(to) - s.max(at);
            at = e;
        }
        count
    }

    /// First free block from `goal` on; if there is none, first free block of all.
    pub(super) fn first_free(&self, goal: u64) -> Option<u64> {
        let goal = if goal == 0 || goal >= self.end { self.first } else { goal };
        self.next_free(goal).or_else(|| self.next_free(self.first))
    }

    fn next_free(&self, from: u64) -> Option<u64> {
        let at = match self.run_from(from) {
            Some((s, e)) if s <= from => e,
            _ => from,
        };
        (at < self.end).then_some(at)
    }

    /// The first free run from `goal` on (around the end if need be), cut to `max` blocks: (start,
    /// blocks).
    pub(super) fn first_run(&self, goal: u64, max: u64) -> Option<(u64, u64)> {
        let start = self.first_free(goal)?;
        let end = self.run_from(start).map_or(self.end, |(s, _)| s);
        Some((start, (end - start).min(max)))
    }

    /// First block in `from..to` at which `blocks` blocks are free. The run may reach beyond `to`.
    pub(super) fn find(&self, from: u64, to: u64, blocks: u64) -> Option<u64> {
        let mut at = from.max(self.first);
        while at < to && at + blocks <= self.end {
            match self.run_from(at) {
                Some((s, e)) if s < at + blocks => at = e,
                _ => return Some(at),
            }
        }
        None
    }

    /// Takes the rest of every cluster of `2^bits` blocks of which a block is taken
    /// (`ext2fs_convert_subcluster_bitmap`).
    pub(super) fn round_to_clusters(&mut self, bits: u32) {
        let down = |block: u64| block >> bits << bits;
        for (start, end) in std::mem::take(&mut self.taken) {
            let (start, end) = (down(start), down(end + (1 << bits) - 1).min(self.end));
            match self.taken.last_entry() {
                Some(mut last) if *last.get() >= start => {
                    let end = end.max(*last.get());
                    last.insert(end);
                }
                _ => {
                    self.taken.insert(start, end);
                }
            }
        }
    }

    /// Bits of the clusters of `2^bits` blocks from `from` on: 1 is taken. Clusters beyond the
    /// device read as 0. Only whole clusters are taken.
    pub(super) fn bits(&self, from: u64, bits: u32, out: &mut [u8]) {
        out.fill(0);
        let to = from + ((out.len() as u64 * 8) << bits);
        let mut at = from;
        while let Some((s, e)) = self.run_from(at).filter(|(s, _)| *s < to) {
            set_bits(out, (s.max(at) - from) >> bits, (e.min(to) - from) >> bits);
            at = e;
        }
    }
}

/// Sets bits `from..to`.
pub(super) fn set_bits(bits: &mut [u8], from: u64, to: u64) {
    let mut at = from;
    while at < to {
        if at.is_multiple_of(8) && to - at >= 8 {
            bits[(at / 8) as usize] = 0xFF;
            at += 8;
        } else {
            bits[(at / 8) as usize] |= 1 << (at % 8);
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Rng;

    #[test]
    fn runs_agree_with_a_plain_bitmap() {
        let mut rng = Rng::stream(1, "space");
        let mut space = Space::new(1, 500);
        let mut model = [false; 500];
        for _ in 0..2000 {
            let (start, blocks) = (1 + rng.below(499), 1 + rng.below(6));
            let free = start + blocks <= 500
                && !model[start as usize..][..blocks as usize].contains(&true);
            assert_eq!(space.is_free(start, blocks), free);
            if free && rng.below(20) == 0 {
                space.take(start, blocks);
                model[start as usize..][..blocks as usize].fill(true);
            }
            let next = |from: u64| (from..500).find(|b| !model[*b as usize]);
            assert_eq!(space.first_free(start), next(start).or_else(|| next(1)));
            let to = start + rng.below(100);
            let taken =
                model.iter().enumerate().filter(|(i, t)| **t && (start..to).contains(&(*i as u64)));
            assert_eq!(space.taken_in(start, to), taken.count() as u64);
            let found = (start..to.min(500)).find(|b| {
                b + blocks <= 500 && !model[*b as usize..][..blocks as usize].contains(&true)
            });
            assert_eq!(space.find(start, to, blocks), found);
        }
        let mut bits = [0u8; 64];
        space.bits(1, 0, &mut bits);
        for (i, taken) in model.iter().enumerate().skip(1) {
            assert_eq!(bits[(i - 1) / 8] >> ((i - 1) % 8) & 1 == 1, *taken);
        }
    }
}
