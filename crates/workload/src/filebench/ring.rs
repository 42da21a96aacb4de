//! A set of indices that is gone round: the next one at or after a place, from the lowest again
//! after the highest. filebench has AVL trees for it.

/// Indices below a bound.
#[derive(Default)]
pub(super) struct Ring {
    words: Vec<u64>,
    count: usize,
}

impl Ring {
    /// Empty, for indices below `bound`.
    pub(super) fn new(bound: usize) -> Ring {
        Ring { words: vec![0; bound.div_ceil(64)], count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn insert(&mut self, i: usize) {
        let (word, bit) = (&mut self.words[i / 64], 1 << (i % 64));
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    pub(super) fn remove(&mut self, i: usize) {
        let (word, bit) = (&mut self.words[i / 64], 1 << (i % 64));
        self.count -= usize::from(*word & bit != 0);
        *word &= !bit;
    }

    /// The first at or after `from`, without going round.
    fn from(&self, from: usize) -> Option<usize> {
        let mut at = from / 64;
        let mut word = self.words.get(at)? & (!0 << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    /// The first at or after `from`, or else the lowest.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        self.from(from).or_else(|| self.from(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_round() {
        let mut ring = Ring::new(200);
        assert_eq!((ring.next(0), ring.len()), (None, 0));
        for i in [3, 63, 64, 190] {
            ring.insert(i);
            ring.insert(i);
        }
        assert_eq!(ring.len(), 4);
        let seen = [0, 3, 4, 64, 65, 190, 191, 100_000].map(|from| ring.next(from));
        assert_eq!(seen, [3, 3, 63, 64, 190, 190, 3, 3].map(Some));
        ring.remove(190);
        ring.remove(191);
        assert_eq!((ring.next(65), ring.len()), (Some(3), 3));
    }
}
