//! A group's free space, and the runs and buddies in it.
//!
//! Source: Linux `fs/ext4/mballoc.c` (buddies of criterion 0, best fit of criteria 1 and 2).

/// Free runs looked at before the best so far is taken (`s_mb_max_to_scan`).
const MAX_TO_SCAN: usize = 200;

/// A group's blocks: 1 = not to be given out.
pub(super) struct Bits {
    words: Vec<u64>,
    pub(super) blocks: u32,
    /// No word before this one has a free bit.
    busy_words: usize,
}

impl Bits {
    pub(super) fn from_bytes(bytes: &[u8], blocks: u32) -> Bits {
        let mut words = vec![u64::MAX; (blocks as usize).div_ceil(64)];
        for (w, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut word = [0xFFu8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            *w = u64::from_le_bytes(word);
        }
        let mut bits = Bits { words, blocks, busy_words: 0 };
        let tail = blocks % 64;
        if tail != 0
            && let Some(last) = bits.words.last_mut()
        {
            *last |= u64::MAX << tail;
        }
        bits.skip_busy();
        bits
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.words.iter().map(|w| w.count_zeros()).sum()
    }

    pub(super) fn is_free(&self, bit: u32) -> bool {
        bit < self.blocks && self.words[bit as usize / 64] & (1 << (bit % 64)) == 0
    }

    pub(super) fn set(&mut self, start: u32, len: u32, busy: bool) {
        for bit in start..start + len {
            let mask = 1u64 << (bit % 64);
            let w = &mut self.words[bit as usize / 64];
            if busy { *w |= mask } else { *w &= !mask }
        }
        if !busy {
            self.busy_words = self.busy_words.min(start as usize / 64);
        }
        self.skip_busy();
    }

    fn skip_busy(&mut self) {
        let rest = &self.words[self.busy_words..];
        self.busy_words += rest.iter().take_while(|w| **w == u64::MAX).count();
    }

    /// The next bit of this value at or after `from`.
    pub(super) fn next(&self, from: u32, free: bool) -> Option<u32> {
        let mut i = from as usize / 64;
        let mut skip = u64::MAX << (from % 64);
        if free && i < self.busy_words {
            (i, skip) = (self.busy_words, u64::MAX);
        }
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

    /// Free runs from bit `from` on: (start, length).
    pub(super) fn runs(&self, from: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(self.blocks);
            at = end;
            Some((start, end - start))
        })
    }

    /// The first free buddy of at least `order`, smallest sufficient order first, lowest address
    /// first.
    pub(super) fn buddy(&self, order: u32, max_order: u32) -> Option<u32> {
        let mut found: Option<(u32, u32)> = None;
        for (start, len) in self.runs(0) {
            let end = start + len;
            let mut at = start;
            while at < end {
                let align = if at == 0 { max_order } else { at.trailing_zeros().min(max_order) };
                let fit = (end - at).ilog2().min(align);
                if fit >= order && found.is_none_or(|(o, _)| fit < o) {
                    found = Some((fit, at));
                }
                at += 1 << fit;
            }
        }
        found.map(|(_, at)| at)
    }

    /// The free run that fits `want` best: the shortest that holds it, else the longest (`cr` 1 and
    /// 2).
    pub(super) fn best(&self, from: u32, want: u32) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32)> = None;
        for (start, len) in self.runs(from).take(MAX_TO_SCAN) {
            if len == want {
                return Some((start, len));
            }
            let better =
                best.is_none_or(|(_, b)| if b < want { len > b } else { len > want && len < b });
            if better {
                best = Some((start, len));
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Group 1 of the paper's disk: its first 1025 blocks are a copy of super block and
    /// descriptors.
    fn paper_group() -> Bits {
        let mut b = Bits::from_bytes(&[0; 4096], 32768);
        b.set(0, 1025, true);
        b
    }

    #[test]
    fn small_open_files_start_at_the_first_aligned_chunk_of_512() {
        // Sector 187310080 in the reference traces: block 34304 = 32768 + 1536.
        assert_eq!(paper_group().buddy(9, 13), Some(1536));
    }

    #[test]
    fn one_block_is_taken_from_the_shortest_run() {
        let mut b = paper_group();
        b.set(1536, 512, true);
        assert_eq!(b.best(0, 1), Some((1025, 511)));
    }

    #[test]
    fn a_short_last_group_has_no_blocks_beyond_its_end() {
        let b = Bits::from_bytes(&[0; 16], 70);
        assert!(b.is_free(69) && !b.is_free(70));
        assert_eq!(b.runs(0).collect::<Vec<_>>(), [(0, 70)]);
    }
}
