//! A set of small numbers.

use std::rc::Rc;

/// Words of a chunk: an eighth of a group of 4 KiB blocks, most of whose blocks are free in many an
/// image, and are then not thought of at all.
const WORDS: usize = 64;
const CHUNK: u64 = 64 * WORDS as u64;

/// One bit a number below a limit; numbers beyond it are never in the set. What nothing was added
/// to takes no memory and no time, so a large device with little on it is checked as fast as a
/// small one.
pub(super) struct Bits {
    /// A set that this one has all numbers of.
    below: Option<Rc<Bits>>,
    /// Where it has more.
    chunks: Vec<Option<Box<Chunk>>>,
    len: u64,
}

impl Bits {
    pub(super) fn new(len: u64) -> Bits {
        Bits { below: None, chunks: vec![None; len.div_ceil(CHUNK) as usize], len }
    }

    /// All that `below`, which is over nothing, has.
    pub(super) fn over(below: Rc<Bits>) -> Bits {
        let len = below.len;
        Bits { below: Some(below), ..Bits::new(len) }
    }

    /// The same over nothing.
    pub(super) fn flat(self) -> Bits {
        let Some(below) = self.below else { return self };
        let both = self.chunks.into_iter().zip(&below.chunks);
        Bits {
            below: None,
            chunks: both.map(|(own, b)| own.or_else(|| b.clone())).collect(),
            len: self.len,
        }
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
            let (chunk, to) = (at / CHUNK, end.min((at / CHUNK + 1) * CHUNK));
            let Some(own) = self.chunks.get_mut(chunk as usize) else { break };
            let below = self.below.as_ref().and_then(|b| b.chunks.get(chunk as usize)?.as_ref());
            let own =
                own.get_or_insert_with(|| below.map_or_else(|| Box::new([0; WORDS]), Box::clone));
            let there = add(own, (at % CHUNK) as usize, (to - chunk * CHUNK) as usize);
            met = met.or(there.map(|n| chunk * CHUNK + n as u64));
            at = to;
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
        self.is_as_below(start, n) && self.below.as_ref().is_none_or(|b| b.is_untouched(start, n))
    }

    /// Is there near `n` numbers from `start` on just what the set below has? No does not say that
    /// there is more.
    pub(super) fn is_as_below(&self, start: u64, n: u64) -> bool {
        let last = start.saturating_add(n.max(1) - 1) / CHUNK;
        (start / CHUNK..=last).all(|c| self.chunks.get(c as usize).is_none_or(|c| c.is_none()))
    }

    fn word(&self, n: u64) -> u64 {
        let own = self.chunks.get((n / WORDS as u64) as usize).and_then(|c| c.as_ref());
        match (own, &self.below) {
            (Some(own), _) => own.get((n % WORDS as u64) as usize).copied().unwrap_or(0),
            (None, Some(below)) => below.word(n),
            (None, None) => 0,
        }
    }
}

type Chunk = [u64; WORDS];

/// Adds the bits from `from` up to `to`, which is behind it; the first that was there.
fn add(words: &mut Chunk, from: usize, to: usize) -> Option<usize> {
    let (first, last) = (from / 64, (to - 1) / 64);
    let begin = u64::MAX << (from % 64);
    let end = u64::MAX >> (63 - (to - 1) % 64);
    let mut met = None;
    let words = words.get_mut(first..=last).unwrap_or(&mut []);
    for (word, n) in words.iter_mut().zip(first..) {
        let mut mask = if n == first { begin } else { u64::MAX };
        mask &= if n == last { end } else { u64::MAX };
        let there = *word & mask;
        if there != 0 && met.is_none() {
            met = Some(n * 64 + there.trailing_zeros() as usize);
        }
        *word |= mask;
    }
    met
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
    }

    #[test]
    fn a_set_over_another_has_both_and_leaves_the_other() {
        let len = 3 * CHUNK;
        let mut below = Bits::new(len);
        below.add_run(CHUNK - 2, 4);
        let below = Rc::new(below);
        let mut bits = Bits::over(below.clone());
        assert!(bits.is_as_below(0, len) && bits.has(CHUNK - 1) && !bits.is_untouched(CHUNK, 1));
        assert_eq!(bits.add_run(CHUNK - 5, 10), Some(CHUNK - 2));
        assert!(!bits.is_as_below(0, 1) && bits.is_as_below(2 * CHUNK, CHUNK));
        let has = |bits: &Bits| (0..len).filter(|n| bits.has(*n)).collect::<Vec<_>>();
        assert_eq!(has(&bits), (CHUNK - 5..CHUNK + 5).collect::<Vec<_>>());
        assert_eq!(has(&below), (CHUNK - 2..CHUNK + 2).collect::<Vec<_>>());
        assert!(bits.is_untouched(2 * CHUNK, CHUNK));
    }

    #[test]
    fn what_was_added_is_not_untouched() {
        let len = CHUNK + 1;
        let mut bits = Bits::new(len);
        assert!(bits.is_untouched(0, len) && !bits.add(len));
        bits.add(CHUNK);
        assert!(bits.is_untouched(0, CHUNK));
        assert!(!bits.is_untouched(0, len));
    }
}
