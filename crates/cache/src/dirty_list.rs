//! What is dirty, oldest first: a queue from whose middle things are taken.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What can be on a list.
pub(crate) trait Listed {
    /// The number of its place; `None`: it is on no list.
    fn place(&self) -> &Cell<Option<i64>>;
}

/// Invariants: 1. what is on the list knows its place, which is that of `first` and up;
///             2. there is no gap at either end, and of all places at most half and a few are gaps.
pub(crate) struct DirtyList<T> {
    /// Number of the first place.
    first: i64,
    places: VecDeque<Option<Rc<T>>>,
    /// Places that are no gaps.
    used: usize,
}

impl<T> Default for DirtyList<T> {
    fn default() -> DirtyList<T> {
        DirtyList { first: 0, places: VecDeque::new(), used: 0 }
    }
}

impl<T: Listed> DirtyList<T> {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds the youngest.
    pub fn push_back(&mut self, new: Rc<T>) {
        new.place().set(Some(self.first + self.places.len() as i64));
        self.places.push_back(Some(new));
        self.used += 1;
    }

    /// The oldest.
    pub fn front(&self) -> Option<&Rc<T>> {
        self.places.front()?.as_ref()
    }

    /// The youngest.
    pub fn back(&self) -> Option<&Rc<T>> {
        self.places.back()?.as_ref()
    }

    /// Takes one out; `None` if it is not on the list.
    pub fn remove(&mut self, listed: &T) -> Option<Rc<T>> {
        let at = usize::try_from(listed.place().take()? - self.first).ok()?;
        let out = self.places.get_mut(at)?.take();
        self.used -= 1;
        self.close_gaps();
        out
    }

    /// Moves those to the end of `to` that `which` names, in order, up to the first that it does
    /// not.
    pub fn move_while(&mut self, to: &mut DirtyList<T>, which: impl Fn(&T) -> bool) {
        while let Some(oldest) = self.front().filter(|listed| which(listed)).cloned() {
            self.remove(&oldest);
            to.push_back(oldest);
        }
    }

    fn close_gaps(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        while let Some(None) = self.places.back() {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.used + 64 {
            self.places.retain(Option::is_some);
            for (place, listed) in (self.first..).zip(self.places.iter().flatten()) {
                listed.place().set(Some(place));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Rng;

    struct Thing {
        id: u64,
        place: Cell<Option<i64>>,
    }

    impl Listed for Thing {
        fn place(&self) -> &Cell<Option<i64>> {
            &self.place
        }
    }

    #[test]
    fn same_as_a_queue_that_is_searched() {
        let mut rng = Rng::stream(1, "dirty");
        let things: Vec<_> =
            (0..300).map(|id| Rc::new(Thing { id, place: Cell::new(None) })).collect();
        let (mut list, mut naive) = (DirtyList::<Thing>::default(), VecDeque::new());
        let (mut removed, mut longest) = (0, 0);
        for round in 0..50_000 {
            let thing = &things[rng.below(300) as usize];
            match naive.iter().position(|id| *id == thing.id) {
                Some(at) => {
                    naive.remove(at);
                    assert_eq!(list.remove(thing).map(|t| t.id), Some(thing.id));
                    removed += 1;
                }
                None if rng.below(8) == 0 => {
                    assert!(list.remove(thing).is_none());
                }
                None => {
                    naive.push_back(thing.id);
                    list.push_back(thing.clone());
                }
            }
            if round % 1000 == 999 {
                let most = |id: u64| !id.is_multiple_of(16) || round % 7000 == 6999;
                let mut taken = DirtyList::default();
                list.move_while(&mut taken, |t| most(t.id));
                while let Some(first) = taken.front().cloned() {
                    assert_eq!(naive.pop_front(), Some(first.id));
                    taken.remove(&first);
                }
                assert!(naive.front().is_none_or(|id| !most(*id)));
            }
            assert_eq!((list.is_empty(), list.used), (naive.is_empty(), naive.len()));
            assert_eq!(list.front().map(|t| t.id), naive.front().copied());
            assert_eq!(list.back().map(|t| t.id), naive.back().copied());
            assert!(list.places.len() <= 2 * list.used + 64);
            longest = longest.max(list.places.len());
        }
        assert!(removed > 10_000 && longest > 200, "{removed} {longest}");
    }
}
