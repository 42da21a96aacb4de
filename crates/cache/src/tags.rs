//! Small sets and queues of block numbers that hold one number without an allocation: most files
//! have one block.

use std::collections::{BTreeSet, VecDeque};

/// Indices with the dirty tag. While `one` is there, `more` is empty.
#[derive(Default)]
pub(crate) struct Tags {
    one: Option<u64>,
    more: BTreeSet<u64>,
}

impl Tags {
    /// True if it was not there.
    pub fn insert(&mut self, index: u64) -> bool {
        if self.more.is_empty() {
            match self.one {
                None => {
                    self.one = Some(index);
                    return true;
                }
                Some(one) if one == index => return false,
                Some(one) => {
                    self.one = None;
                    self.more.insert(one);
                }
            }
        }
        self.more.insert(index)
    }

    pub fn remove(&mut self, index: u64) {
        if self.one == Some(index) {
            self.one = None;
        } else if self.one.is_none() {
            self.more.remove(&index);
        }
    }

    /// Takes out those of `from..to`.
    pub fn remove_range(&mut self, from: u64, to: u64) {
        self.one = self.one.filter(|i| !(from..to).contains(i));
        let mut after = self.more.split_off(&from).split_off(&to);
        self.more.append(&mut after);
    }

    pub fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    /// The first of `from..=to`, which is not backwards.
    pub fn first(&self, from: u64, to: u64) -> Option<u64> {
        match self.one {
            Some(one) => (from..=to).contains(&one).then_some(one),
            None => self.more.range(from..=to).next().copied(),
        }
    }

    /// How many from `from` on, up to `to`, which is not before it, are there without a gap; at
    /// most `max`.
    pub fn run(&self, from: u64, to: u64, max: u64) -> u64 {
        if let Some(one) = self.one {
            return u64::from(one == from && max > 0);
        }
        let run = (from..).zip(self.more.range(from..=to)).take_while(|(want, tag)| want == *tag);
        run.take(usize::try_from(max).unwrap_or(usize::MAX)).count() as u64
    }

    /// Those of `from..=to`, which is not backwards, in order.
    pub fn range(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let one = self.one.filter(|i| (from..=to).contains(i));
        one.into_iter().chain(self.more.range(from..=to).copied())
    }
}

/// Indices in an order of coming. While `first` is there, it is before all of `rest`.
#[derive(Default)]
pub(crate) struct Order {
    first: Option<u64>,
    rest: VecDeque<u64>,
}

impl Order {
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub fn push_back(&mut self, index: u64) {
        if self.len() == 0 {
            self.first = Some(index);
        } else {
            self.rest.push_back(index);
        }
    }

    pub fn pop_front(&mut self) -> Option<u64> {
        self.first.take().or_else(|| self.rest.pop_front())
    }

    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        self.first = self.first.filter(|i| keep(*i));
        self.rest.retain(|i| keep(*i));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Rng;

    #[test]
    fn same_as_a_set() {
        let mut rng = Rng::stream(1, "tags");
        for most in [2, 4, 40] {
            let (mut ours, mut set) = (Tags::default(), BTreeSet::new());
            for _ in 0..5000 {
                let i = rng.below(most);
                let to = i + rng.below(most);
                match rng.below(8) {
                    0..4 => assert_eq!(ours.insert(i), set.insert(i)),
                    4..7 => {
                        ours.remove(i);
                        set.remove(&i);
                    }
                    _ => {
                        ours.remove_range(i, to);
                        set.retain(|x| !(i..to).contains(x));
                    }
                }
                assert_eq!(ours.is_empty(), set.is_empty());
                assert_eq!(ours.first(i, to), set.range(i..=to).next().copied());
                assert!(ours.range(i, to).eq(set.range(i..=to).copied()));
                let max = rng.below(4);
                let run = (i..=to).take_while(|x| set.contains(x)).take(max as usize).count();
                assert_eq!(ours.run(i, to, max), run as u64);
            }
        }
    }

    #[test]
    fn same_as_a_queue() {
        let mut rng = Rng::stream(2, "order");
        let (mut ours, mut queue) = (Order::default(), VecDeque::new());
        for n in 0..5000 {
            match rng.below(9) {
                0..4 => {
                    ours.push_back(n);
                    queue.push_back(n);
                }
                4..8 => assert_eq!(ours.pop_front(), queue.pop_front()),
                _ => {
                    ours.retain(|i| i % 3 != 0);
                    queue.retain(|i| i % 3 != 0);
                }
            }
            assert_eq!(ours.len(), queue.len());
        }
    }
}
