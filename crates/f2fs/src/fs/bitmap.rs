//! A bitmap in memory that finds its next set or clear bit.

/// Bits by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    len: u32,
    ones: u32,
}

impl Bitmap {
    /// `len` bits, all `to`.
    pub(super) fn new(len: u32, to: bool) -> Bitmap {
        let word = if to { u64::MAX } else { 0 };
        let ones = if to { len } else { 0 };
        Bitmap { words: vec![word; len.div_ceil(64) as usize], len, ones }
    }

    /// How many are set.
    pub(super) fn ones(&self) -> u32 {
        self.ones
    }

    /// How many are clear.
    pub(super) fn zeros(&self) -> u32 {
        self.len - self.ones
    }

    /// Is bit `n` set? No beyond the end.
    pub(super) fn test(&self, n: u32) -> bool {
        n < self.len && self.words[(n / 64) as usize] & (1 << (n % 64)) != 0
    }

    /// Sets or clears bit `n`. Was it set? Beyond the end nothing happens.
    pub(super) fn put(&mut self, n: u32, to: bool) -> bool {
        if n >= self.len {
            return false;
        }
        let (word, bit) = (&mut self.words[(n / 64) as usize], 1u64 << (n % 64));
        let was = *word & bit != 0;
        if to != was {
            *word ^= bit;
            self.ones = if to { self.ones + 1 } else { self.ones - 1 };
        }
        was
    }

    /// The first bit from `from` on that is `to`, before `end`; `None` if there is none.
    pub(super) fn next(&self, to: bool, from: u32, end: u32) -> Option<u32> {
        let end = end.min(self.len);
        let mut n = from;
        while n < end {
            let word = self.words[(n / 64) as usize];
            let word = (if to { word } else { !word }) >> (n % 64);
            if word != 0 {
                let found = n + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            n = (n / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_bit_is_the_one_that_a_walk_finds() {
        let mut b = Bitmap::new(200, false);
        for n in [0, 63, 64, 130, 199] {
            assert!(!b.put(n, true));
        }
        assert_eq!((b.ones(), b.zeros()), (5, 195));
        for from in 0..210 {
            for to in [false, true] {
                let walk = (from..180).find(|n| b.test(*n) == to);
                assert_eq!(b.next(to, from, 180), walk, "from {from}");
            }
        }
        assert!(b.put(64, false) && !b.test(64));
        assert_eq!(b.ones(), 4);
    }
}
