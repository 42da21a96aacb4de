//! A set of small numbers.

/// Words of a chunk: as many bits as a group of 4 KiB blocks has blocks.
const WORDS: usize = 512;
const CHUNK: u64 = 64 * WORDS as u64;

/// One bit a number below a limit; numbers beyond it are never in the set. What nothing was added
/// to takes no memory and no time, so a large device with little on it is checked as fast as a
/// small one.
pub(super) struct Bits {
    chunks: Vec<Option<Box<[u64; WORDS]>>>,
    len: u64,
}

impl Bits {
    pub(super) fn new(len: u64) -> Bits {
        Bits { chunks: vec![None; len.div_ceil(CHUNK) as usize], len }
    }

    pub(super) fn has(&self, n: u64) -> bool {
        n < self.len && self.word(n / 64) >> (n % 64) & 1 == 1
    }

    /// Adds `n`; was it new?
    pub(super) fn add(&mut self, n: u64) -> bool {
        n < self.len && self.add_run(n, 1).is_none()
    }

    /// Adds `n` numbers from `start` on; the first of them that was there already.
    pub(super) fn add_run(&mut self, start: u64, n: u64) -> Option<u64> {
        let end = start.saturating_add(n).min(self.len);
        let (mut at, mut met) = (start, None);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            if let Some(word) = self.word_mut(at / 64) {
                let there = *word & mask;
                if there != 0 && met.is_none() {
                    met = Some(at / 64 * 64 + u64::from(there.trailing_zeros()));
                }
                *word |= mask;
            }
            at += bits;
        }
        met
    }

    /// Sixty-four numbers from `n` on, the lowest bit first.
    pub(super) fn at(&self, n: u64) -> u64 {
        let (word, shift) = (n / 64, n % 64);
        if shift == 0 {
            return self.word(word);
        }
        self.word(word) >> shift | self.word(word + 1) << (64 - shift)
    }

    /// Was nothing ever added near `n` numbers from `start` on? No does not say that something was.
    pub(super) fn is_untouched(&self, start: u64, n: u64) -> bool {
        let last = start.saturating_add(n.max(1) - 1) / CHUNK;
        (start / CHUNK..=last).all(|c| self.chunks.get(c as usize).is_none_or(|c| c.is_none()))
    }

    fn word(&self, n: u64) -> u64 {
        let chunk = self.chunks.get((n / WORDS as u64) as usize).and_then(|c| c.as_ref());
        chunk.and_then(|c| c.get((n % WORDS as u64) as usize)).copied().unwrap_or(0)
    }

    fn word_mut(&mut self, n: u64) -> Option<&mut u64> {
        let chunk = self.chunks.get_mut((n / WORDS as u64) as usize)?;
        chunk.get_or_insert_with(|| Box::new([0; WORDS])).get_mut((n % WORDS as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_set_of_runs_is_what_a_set_of_numbers_is() {
        let len = 3 * CHUNK + 77;
        let (mut bits, mut set) = (Bits::new(len), BTreeSet::new());
        let mut rng = 7u64;
        let mut below = |n: u64| {
            rng =
                rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (rng >> 33) % n
        };
        assert!(bits.is_untouched(0, len));
        for _ in 0..300 {
            let (start, n) = (below(len + 50), below(200));
            let met = (start..(start + n).min(len)).find(|b| set.contains(b));
            assert_eq!(bits.add_run(start, n), met);
            set.extend(start..(start + n).min(len));
            let at = below(len + 70);
            let right = (0..64).filter(|i| set.contains(&(at + i))).fold(0, |w, i| w | 1 << i);
            assert_eq!(bits.at(at), right);
            assert_eq!(bits.has(at), set.contains(&at));
        }
        assert!(!bits.add(len), "beyond the end");
        assert!(!bits.is_untouched(0, len));
    }
}
