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

    /// Adds one before all others.
    pub fn push_front(&mut self, new: Rc<T>) {
        self.first -= 1;
        new.place().set(Some(self.first));
        self.places.push_front(Some(new));
        self.used += 1;
    }

    /// Takes one out; `None` if it is not on the list.
    pub fn remove(&mut self, listed: &T) -> Option<Rc<T>> {
        let at = usize::try_from(listed.place().take()? - self.first).ok()?;
        let out = self.places.get_mut(at)?.take();
        self.used -= 1;
        self.close_gaps();
        out
    }

    /// Takes those out that `which` names, in order.
    pub fn take(&mut self, which: impl Fn(&T) -> bool) -> VecDeque<Rc<T>> {
        let mut taken = VecDeque::new();
        for place in &mut self.places {
            if let Some(out) = place.take_if(|listed| which(listed)) {
                out.place().set(None);
                self.used -= 1;
                taken.push_back(out);
            }
        }
        self.close_gaps();
        taken
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
                    naive.push_front(thing.id);
                    list.push_front(thing.clone());
                }
                None => {
                    naive.push_back(thing.id);
                    list.push_back(thing.clone());
                }
            }
            if round % 1000 == 999 {
                let even = |id: u64| id.is_multiple_of(2) || round % 7000 == 6999;
                let taken: Vec<u64> = list.take(|t| even(t.id)).iter().map(|t| t.id).collect();
                let wanted: Vec<u64> = naive.iter().copied().filter(|id| even(*id)).collect();
                assert_eq!(taken, wanted);
                naive.retain(|id| !even(*id));
            }
            assert_eq!((list.is_empty(), list.used), (naive.is_empty(), naive.len()));
            assert!(list.places.len() <= 2 * list.used + 64);
            longest = longest.max(list.places.len());
        }
        assert!(removed > 10_000 && longest > 200, "{removed} {longest}");
    }
}
