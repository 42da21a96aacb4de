//! Which blocks of a file were done already: the manual's random map. A bit set with a summary
//! level; what a done block gives way to was observed (`sequence/target.rs`).

/// A set of block numbers with a quick search for the next free one.
#[derive(Clone, Debug)]
pub struct Map {
    blocks: u64,
    words: Vec<u64>,
    /// One bit for each word that is full.
    full: Vec<u64>,
}

impl Map {
    /// All of `blocks` blocks free.
    pub fn new(blocks: u64) -> Map {
        let words = blocks.div_ceil(64).max(1) as usize;
        Map { blocks, words: vec![0; words], full: vec![0; words.div_ceil(64)] }
    }

    /// Frees all.
    pub fn reset(&mut self) {
        self.words.fill(0);
        self.full.fill(0);
    }

    /// Was `block` done?
    pub fn is_set(&self, block: u64) -> bool {
        self.words.get((block / 64) as usize).is_some_and(|w| w >> (block % 64) & 1 == 1)
    }

    /// Marks up to `count` blocks from `block`, until one that was done; how many.
    pub fn set(&mut self, block: u64, count: u64) -> u64 {
        for i in 0..count {
            let at = block + i;
            let word = (at / 64) as usize;
            if word >= self.words.len() || self.is_set(at) {
                return i;
            }
            self.words[word] |= 1 << (at % 64);
            if self.words[word] == u64::MAX {
                self.full[word / 64] |= 1 << (word % 64);
            }
        }
        count
    }

    /// The first free block after `block`, around the end if need be.
    pub fn next_free(&self, block: u64) -> Option<u64> {
        let from = if block + 1 >= self.blocks { 0 } else { block + 1 };
        self.free_from(from).or_else(|| self.free_from(0))
    }

    fn free_from(&self, from: u64) -> Option<u64> {
        let mut word = (from / 64) as usize;
        let first = !self.words.get(word)? & (u64::MAX << (from % 64));
        let found = if first != 0 {
            first
        } else {
            word += 1;
            loop {
                let group = word / 64;
                let open = !self.full.get(group)? & (u64::MAX << (word % 64));
                if open != 0 {
                    word = group * 64 + open.trailing_zeros() as usize;
                    break !*self.words.get(word)?;
                }
                word = (group + 1) * 64;
            }
        };
        let block = word as u64 * 64 + u64::from(found.trailing_zeros());
        (block < self.blocks).then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_free_block_is_found_around_the_end() {
        for blocks in [1u64, 63, 64, 65, 5000] {
            let mut m = Map::new(blocks);
            for _ in 0..blocks {
                let b = m.next_free(blocks / 2).expect("one is free");
                assert!(b < blocks && !m.is_set(b));
                assert_eq!(m.set(b, 1), 1);
            }
            assert_eq!(m.next_free(0), None);
            m.reset();
            assert_eq!(m.next_free(blocks - 1), Some(0));
        }
    }

    #[test]
    fn marking_stops_at_a_block_that_was_done() {
        let mut m = Map::new(200);
        assert_eq!(m.set(70, 1), 1);
        assert_eq!(m.set(60, 20), 10);
        assert!(m.is_set(69) && !m.is_set(71));
    }
}
