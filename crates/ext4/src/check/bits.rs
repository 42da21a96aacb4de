//! A set of small numbers.

/// One bit a number below a limit; numbers beyond it are never in the set.
pub(super) struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    pub(super) fn new(len: u64) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize], len }
    }

    pub(super) fn has(&self, n: u64) -> bool {
        n < self.len && self.words.get((n / 64) as usize).is_some_and(|w| w >> (n % 64) & 1 == 1)
    }

    /// Adds `n`; was it new?
    pub(super) fn add(&mut self, n: u64) -> bool {
        if n >= self.len {
            return false;
        }
        let Some(word) = self.words.get_mut((n / 64) as usize) else { return false };
        let is_new = *word >> (n % 64) & 1 == 0;
        *word |= 1 << (n % 64);
        is_new
    }
}
