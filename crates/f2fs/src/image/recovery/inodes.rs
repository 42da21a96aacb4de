//! The list of fsynced inodes that roll-forward keeps, found by number, and what finding one in the
//! kernel's list takes.
//!
//! The kernel's is a linked list that is searched from its head (`get_fsync_inode`): pass 1 appends
//! to it, pass 2 takes an inode off it once its last mark is reached. So the cost of a recovery
//! grows with the square of its nodes; [`Work::entries_searched`] is that cost. Here the place in
//! the list comes from an index, and how far down it stands from a tree of counts.

use std::collections::BTreeMap;

use super::Work;

/// An inode with an fsync mark.
struct Entry {
    ino: u32,
    /// Its last marked node.
    last: u32,
    /// Its last inode that is marked for the name.
    last_dentry: Option<u32>,
    is_gone: bool,
}

/// The list.
#[derive(Default)]
pub(super) struct FsyncInodes {
    entries: Vec<Entry>,
    places: BTreeMap<u32, usize>,
    /// After pass 1: for each place (from 1) how many of a range ending there are on the list
    /// (Fenwick tree).
    counts: Vec<u32>,
}

impl FsyncInodes {
    /// Is none on it?
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Their numbers, those too that have left.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|e| e.ino)
    }

    /// Looks for an inode; counts the entries that the kernel passes.
    pub(super) fn find(&self, ino: u32, work: &mut Work) -> Option<usize> {
        let place = self.places.get(&ino).copied();
        let found = place.filter(|p| self.entries.get(*p).is_some_and(|e| !e.is_gone));
        work.entries_searched += match found {
            Some(place) => self.ahead(place) + 1,
            None => self.ahead(self.entries.len()),
        };
        found
    }

    /// How many on the list stand before a place.
    fn ahead(&self, place: usize) -> u64 {
        if self.counts.is_empty() {
            return place as u64;
        }
        let (mut n, mut sum) = (place, 0);
        while n > 0 {
            sum += u64::from(self.counts.get(n).copied().unwrap_or(0));
            n &= n - 1;
        }
        sum
    }

    /// Appends one; its place.
    pub(super) fn push(&mut self, ino: u32) -> usize {
        let place = self.entries.len();
        self.entries.push(Entry { ino, last: 0, last_dentry: None, is_gone: false });
        self.places.insert(ino, place);
        place
    }

    /// Notes a marked node at block `at`.
    pub(super) fn mark(&mut self, place: usize, at: u32, is_named: bool) {
        if let Some(e) = self.entries.get_mut(place) {
            e.last = at;
            if is_named {
                e.last_dentry = Some(at);
            }
        }
    }

    /// Nothing is appended any more.
    pub(super) fn end_of_pass(&mut self) {
        // A node of the tree sums as many places as its lowest bit says.
        let width = |n: usize| (n & n.wrapping_neg()) as u32;
        self.counts = (0..=self.entries.len()).map(width).collect();
    }

    /// Its last mark, and the last for its name.
    pub(super) fn marks(&self, place: usize) -> (u32, Option<u32>) {
        self.entries.get(place).map_or((0, None), |e| (e.last, e.last_dentry))
    }

    /// It leaves the list.
    pub(super) fn leave(&mut self, place: usize) {
        let Some(e) = self.entries.get_mut(place) else { return };
        e.is_gone = true;
        let mut n = place + 1;
        while let Some(count) = self.counts.get_mut(n) {
            *count -= 1;
            n += n & n.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's list, as it is.
    #[derive(Default)]
    struct Plain(Vec<u32>);

    impl Plain {
        fn find(&self, ino: u32, visits: &mut u64) -> Option<usize> {
            for (i, have) in self.0.iter().enumerate() {
                *visits += 1;
                if *have == ino {
                    return Some(i);
                }
            }
            None
        }
    }

    #[test]
    fn searches_cost_what_a_linked_list_costs() {
        let mut rng = wp_base::rng::Rng::stream(7, "list");
        let (mut list, mut plain) = (FsyncInodes::default(), Plain::default());
        let (mut work, mut visits) = (Work::default(), 0);
        let mut all: Vec<u32> = (0..400).map(|_| rng.below(120) as u32).collect();
        for ino in &all {
            if list.find(*ino, &mut work).is_none() {
                list.push(*ino);
            }
            if plain.find(*ino, &mut visits).is_none() {
                plain.0.push(*ino);
            }
        }
        assert_eq!(work.entries_searched, visits);
        list.end_of_pass();
        // Numbers that are not there cost the whole list.
        all.push(10_000);
        for ino in all {
            let (a, b) = (list.find(ino, &mut work), plain.find(ino, &mut visits));
            assert_eq!((a.is_some(), work.entries_searched), (b.is_some(), visits), "{ino}");
            if let (Some(a), Some(b)) = (a, b)
                && rng.below(3) == 0
            {
                list.leave(a);
                plain.0.remove(b);
            }
        }
        assert!(plain.0.len() < 100 && visits > 10_000);
    }
}
