//! Pages found by number, without order: what a state asks for at every read.
//!
//! Invariants: 1. half of the places are free at least, so that every search ends soon;
//!             2. nobody can go through it, so no order of places can be seen.

/// The table. Nothing is taken out but everything at once.
pub(crate) struct PageTable<V> {
    /// Page + 1, or 0 where there is none; a power of two of places, or none yet.
    places: Vec<(u64, V)>,
    held: usize,
}

impl<V> Default for PageTable<V> {
    fn default() -> PageTable<V> {
        PageTable { places: Vec::new(), held: 0 }
    }
}

impl<V: Copy + Default> PageTable<V> {
    /// What is held for a page. Pages lie below `u64::MAX`.
    #[inline]
    pub(crate) fn get(&self, page: u64) -> Option<V> {
        if self.held == 0 {
            return None;
        }
        let (key, value) = self.places[self.place(page)];
        (key != 0).then_some(value)
    }

    /// Holds `value` for a page; what was held for it until now.
    pub(crate) fn put(&mut self, page: u64, value: V) -> Option<V> {
        if self.held * 2 >= self.places.len() {
            self.grow();
        }
        let place = self.place(page);
        let (key, old) = std::mem::replace(&mut self.places[place], (page + 1, value));
        self.held += usize::from(key == 0);
        (key != 0).then_some(old)
    }

    /// Holds nothing any more.
    pub(crate) fn clear(&mut self) {
        if self.held > 0 {
            self.places.fill((0, V::default()));
            self.held = 0;
        }
    }

    /// Where a page is, or would be.
    #[inline]
    fn place(&self, page: u64) -> usize {
        let mask = self.places.len() - 1;
        // Fibonacci hashing: neighbours, which pages mostly are, go far apart.
        let mut at = (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.places[at].0 != 0 && self.places[at].0 != page + 1 {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let more = (self.places.len() * 2).max(32);
        let old = std::mem::replace(&mut self.places, vec![(0, V::default()); more]);
        for (key, value) in old.into_iter().filter(|(key, _)| *key != 0) {
            let place = self.place(key - 1);
            self.places[place] = (key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wp_base::rng::Rng;

    use super::*;

    #[test]
    fn it_holds_what_a_map_holds() {
        let mut rng = Rng::stream(1, "pages");
        let (mut table, mut map) = (PageTable::default(), BTreeMap::new());
        for round in 0..5 {
            for n in 0..2000u64 {
                // Neighbours, far ones, and some that meet at a place.
                let page = match rng.below(3) {
                    0 => rng.below(500),
                    1 => rng.below(500) << 40,
                    _ => u64::MAX - 2 - rng.below(500),
                };
                assert_eq!(table.put(page, n), map.insert(page, n), "round {round}");
                let other = rng.below(600);
                assert_eq!(table.get(other), map.get(&other).copied());
            }
            assert!(map.iter().all(|(page, n)| table.get(*page) == Some(*n)));
            table.clear();
            map.clear();
            assert_eq!(table.get(3), None);
        }
    }
}
