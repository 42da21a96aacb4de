//! Numbers in the order in which they came, each once: what the kernel keeps as a list with a flag
//! in each member.

use std::collections::BTreeMap;

/// A set that remembers the order of arrival. A number that goes and comes again is the newest.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    by_turn: BTreeMap<u64, u32>,
    turns: BTreeMap<u32, u64>,
    next: u64,
}

impl Arrivals {
    /// Is it new there? One that is there keeps its turn.
    pub fn insert(&mut self, number: u32) -> bool {
        if self.turns.contains_key(&number) {
            return false;
        }
        self.turns.insert(number, self.next);
        self.by_turn.insert(self.next, number);
        self.next += 1;
        true
    }

    /// Was it there?
    pub fn remove(&mut self, number: u32) -> bool {
        self.turns.remove(&number).is_some_and(|turn| self.by_turn.remove(&turn).is_some())
    }

    /// The oldest.
    pub fn first(&self) -> Option<u32> {
        self.by_turn.first_key_value().map(|(_, number)| *number)
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_turn.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_the_order_of_arrival() {
        let mut all = Arrivals::default();
        assert!(all.insert(7) && all.insert(3) && all.insert(9) && !all.insert(7));
        assert_eq!((all.first(), all.iter().collect::<Vec<_>>()), (Some(7), vec![7, 3, 9]));
        assert!(all.remove(7) && !all.remove(7) && all.insert(7));
        assert_eq!(all.iter().collect::<Vec<_>>(), [3, 9, 7]);
    }
}
