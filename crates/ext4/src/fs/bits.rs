//! A group's free space as the allocator sees it: the bitmap and its buddies.
//!
//! Picture:    a bit a block (1: not to be given out), and for each order from 1 to the block
//!             size's bits plus one, a bit for each free aligned run of that power of two that is
//!             not part of a larger one.
//! Invariants: each free block is in one buddy, or single; buddies are as large as they can be.
//! Source:     Linux `fs/ext4/mballoc.c` (`ext4_mb_generate_buddy`, `mb_mark_used`,
//!             `mb_free_blocks`, `mb_find_extent`).

/// A group's blocks: 1 = not to be given out.
pub(super) struct Bits {
    words: Vec<u64>,
    pub(super) blocks: u32,
    /// Of order `i + 1`: 1 = a free buddy.
    orders: Vec<Vec<u64>>,
    /// How many free buddies there are of each order, from 0 (`bb_counters`).
    counters: Vec<u32>,
    free: u32,
    /// Free runs.
    fragments: u32,
    /// No block before this one is free.
    first_free: u32,
    /// When the group last changed its largest order and its mean fragment's order: where it stands
    /// in the lists of kernels that had lists (`bb_largest_free_order_node`,
    /// `bb_avg_fragment_size_node`).
    pub(super) joined: [u64; 2],
}

fn mask(from: u32, to: u32) -> u64 {
    (u64::MAX << from) & (u64::MAX >> (64 - to))
}

impl Bits {
    /// The group's bits, the last of which may be beyond its `blocks`; buddies up to `max_order`.
    pub(super) fn from_bytes(bytes: &[u8], blocks: u32, max_order: u32) -> Bits {
        let mut words = vec![u64::MAX; (blocks as usize).div_ceil(64)];
        for (w, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut word = [0xFFu8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            *w = u64::from_le_bytes(word);
        }
        let tail = blocks % 64;
        if tail != 0
            && let Some(last) = words.last_mut()
        {
            *last |= u64::MAX << tail;
        }
        let sized = |order: u32| vec![0; (blocks as usize >> order).div_ceil(64)];
        let mut bits = Bits {
            words,
            blocks,
            orders: (1..=max_order).map(sized).collect(),
            counters: vec![0; max_order as usize + 1],
            free: 0,
            fragments: 0,
            first_free: 0,
            joined: [0; 2],
        };
        bits.first_free = bits.next(0, true).unwrap_or(blocks);
        let mut at = bits.first_free;
        while let Some(start) = bits.next(at, true) {
            let end = bits.next(start, false).unwrap_or(blocks);
            bits.free += end - start;
            bits.fragments += 1;
            bits.put_pieces(start, end);
            at = end;
        }
        bits
    }

    /// Free blocks (`bb_free`).
    pub(super) fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Blocks of the free runs on average; 0 if there is none.
    pub(super) fn mean_fragment(&self) -> u32 {
        self.free.checked_div(self.fragments).unwrap_or(0)
    }

    /// The largest order of which there is a buddy (`bb_largest_free_order`).
    pub(super) fn largest_order(&self) -> Option<u32> {
        self.counters.iter().rposition(|n| *n > 0).map(|o| o as u32)
    }

    pub(super) fn is_free(&self, bit: u32) -> bool {
        bit < self.blocks && self.words[bit as usize / 64] & (1 << (bit % 64)) == 0
    }

    /// No block before this one is free.
    pub(super) fn first_free(&self) -> u32 {
        self.first_free
    }

    /// Takes or returns blocks `start..start + len`, which must all have been the opposite.
    pub(super) fn set(&mut self, start: u32, len: u32, busy: bool) {
        if len == 0 {
            return;
        }
        let end = start + len;
        let left = start > 0 && self.is_free(start - 1);
        let right = self.is_free(end);
        if busy {
            self.take_buddies(start, end);
        }
        let mut at = start;
        while at < end {
            let stop = end.min((at / 64 + 1) * 64);
            let bits = mask(at % 64, stop - at / 64 * 64);
            let word = &mut self.words[at as usize / 64];
            if busy {
                *word |= bits
            } else {
                *word &= !bits
            }
            at = stop;
        }
        if busy {
            self.free -= len;
            self.fragments = self.fragments + u32::from(left) + u32::from(right) - 1;
            if self.first_free == start {
                self.first_free = end;
            }
        } else {
            self.free += len;
            self.fragments = self.fragments + 1 - u32::from(left) - u32::from(right);
            self.first_free = self.first_free.min(start);
            self.return_buddies(start, end);
        }
    }

    /// The next bit of this value at or after `from`.
    pub(super) fn next(&self, from: u32, free: bool) -> Option<u32> {
        let mut i = from as usize / 64;
        let mut skip = u64::MAX << (from % 64);
        while i < self.words.len() {
            let w = (if free { !self.words[i] } else { self.words[i] }) & skip;
            if w != 0 {
                let bit = i as u32 * 64 + w.trailing_zeros();
                return (bit < self.blocks).then_some(bit);
            }
            skip = u64::MAX;
            i += 1;
            // Long runs are passed over several words at a time.
            let same = if free { u64::MAX } else { 0 };
            while let Some(some) = self.words.get(i..i + 8)
                && some.iter().fold(0, |different, w| different | (w ^ same)) == 0
            {
                i += 8;
            }
        }
        None
    }

    /// The first buddy of the smallest order from `order` on that there is: its order and first
    /// block (`ext4_mb_simple_scan_group`).
    pub(super) fn buddy(&self, order: u32) -> Option<(u32, u32)> {
        let order =
            (order.max(1)..self.counters.len() as u32).find(|o| self.counters[*o as usize] > 0)?;
        let words = &self.orders[order as usize - 1];
        let i = words.iter().position(|w| *w != 0)?;
        Some((order, (i as u32 * 64 + words[i].trailing_zeros()) << order))
    }

    /// How far the free space from `block` on goes, buddy by buddy until it holds `needed`
    /// (`mb_find_extent`): more may be free behind it.
    pub(super) fn extent(&self, block: u32, needed: u32) -> u32 {
        if !self.is_free(block) {
            return 0;
        }
        let order = self.order_of(block);
        self.extent_from(block, ((block >> order) + 1) << order, needed)
    }

    /// [`Bits::extent`] of a free block that is the first of its buddy.
    pub(super) fn extent_at(&self, block: u32, needed: u32) -> u32 {
        self.extent_from(block, block + (1 << self.order_at(block)), needed)
    }

    /// Goes on with the buddies from `end` on.
    fn extent_from(&self, block: u32, mut end: u32, needed: u32) -> u32 {
        while end - block < needed && self.is_free(end) {
            end += 1 << self.order_at(end);
        }
        end - block
    }

    /// The order of the buddy that a free block is in.
    fn order_of(&self, block: u32) -> u32 {
        if block == 0 || !self.is_free(block - 1) {
            return self.order_at(block);
        }
        let mut orders = 1..=self.orders.len() as u32;
        orders.find(|o| self.is_buddy(*o, block >> o)).unwrap_or(0)
    }

    /// The order of the buddy that begins with a free block: mostly the largest that can.
    fn order_at(&self, block: u32) -> u32 {
        (1..=self.aligned(block)).rev().find(|o| self.is_buddy(*o, block >> o)).unwrap_or(0)
    }

    /// The largest order of which a buddy can begin at `at`.
    fn aligned(&self, at: u32) -> u32 {
        let most = self.orders.len() as u32;
        if at == 0 { most } else { at.trailing_zeros().min(most) }
    }

    fn put(&mut self, order: u32, k: u32) {
        self.counters[order as usize] += 1;
        if order > 0 {
            self.orders[order as usize - 1][k as usize / 64] |= 1 << (k % 64);
        }
    }

    fn remove(&mut self, order: u32, k: u32) {
        self.counters[order as usize] -= 1;
        if order > 0 {
            self.orders[order as usize - 1][k as usize / 64] &= !(1 << (k % 64));
        }
    }

    /// The order of the largest aligned run that begins at `at` and ends by `end`.
    fn piece(&self, at: u32, end: u32) -> u32 {
        self.aligned(at).min((end - at).ilog2())
    }

    /// Makes buddies of a run whose neighbours are busy or in buddies that cannot grow.
    fn put_pieces(&mut self, mut at: u32, end: u32) {
        while at < end {
            let order = self.piece(at, end);
            self.put(order, at >> order);
            at += 1 << order;
        }
    }

    fn take_buddies(&mut self, start: u32, end: u32) {
        let mut at = start;
        while at < end {
            let order = self.order_of(at);
            let first = at >> order << order;
            let last = first + (1 << order);
            self.remove(order, at >> order);
            let stop = end.min(last);
            self.put_pieces(first, at);
            self.put_pieces(stop, last);
            at = stop;
        }
    }

    fn return_buddies(&mut self, start: u32, end: u32) {
        let mut at = start;
        while at < end {
            let mut order = self.piece(at, end);
            let next = at + (1 << order);
            let mut k = at >> order;
            while order < self.orders.len() as u32 && self.is_buddy(order, k ^ 1) {
                self.remove(order, k ^ 1);
                k >>= 1;
                order += 1;
            }
            self.put(order, k);
            at = next;
        }
    }

    fn is_buddy(&self, order: u32, k: u32) -> bool {
        if order == 0 {
            return self.is_free(k) && self.order_of(k) == 0;
        }
        let words = &self.orders[order as usize - 1];
        words.get(k as usize / 64).is_some_and(|w| w >> (k % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Group 1 of the paper's disk: its first 1025 blocks are a copy of super block and
    /// descriptors.
    fn paper_group() -> Bits {
        let mut b = Bits::from_bytes(&[0; 4096], 32768, 13);
        b.set(0, 1025, true);
        b
    }

    #[test]
    fn small_open_files_start_at_the_first_aligned_chunk_of_512() {
        // Sector 187310080 in the reference traces: block 34304 = 32768 + 1536.
        assert_eq!(paper_group().buddy(9), Some((9, 1536)));
    }

    #[test]
    fn space_is_measured_buddy_by_buddy() {
        let b = paper_group();
        assert_eq!(b.extent(1025, 1), 1);
        assert_eq!(b.extent(1025, 2), 3);
        assert_eq!(b.extent(1026, 1), 2);
        assert_eq!(b.extent(1025, 40_000), 32768 - 1025);
        assert_eq!(b.extent(1024, 1), 0);
    }

    #[test]
    fn a_short_last_group_has_no_blocks_beyond_its_end() {
        let b = Bits::from_bytes(&[0; 16], 70, 13);
        assert!(b.is_free(69) && !b.is_free(70));
        assert_eq!((b.free_blocks(), b.mean_fragment()), (70, 70));
        assert_eq!((b.buddy(6), b.largest_order()), (Some((6, 0)), Some(6)));
    }

    #[test]
    fn buddies_kept_up_to_date_are_those_of_the_bitmap() {
        let mut rng = wp_base::Rng::stream(1, "buddies");
        let mut b = Bits::from_bytes(&[0; 128], 1000, 11);
        for _ in 0..4000 {
            let start = rng.below(1000) as u32;
            let busy = b.is_free(start);
            let end = b.next(start, !busy).unwrap_or(1000);
            let len = 1 + rng.below(u64::from((end - start).min(70))) as u32;
            b.set(start, len, busy);
            let bytes: Vec<u8> = b.words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let fresh = Bits::from_bytes(&bytes, 1000, 11);
            assert_eq!(b.orders, fresh.orders);
            assert_eq!(b.counters, fresh.counters);
            assert_eq!((b.free, b.fragments), (fresh.free, fresh.fragments));
            assert!(b.first_free <= fresh.first_free);
        }
    }
}
