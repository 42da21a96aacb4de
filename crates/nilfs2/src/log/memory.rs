//! Blocks of metadata and nodes of maps that are in memory, and which of them are to be written.
//!
//! Picture:    clean -> wanted (dirty, in no log yet) -> closed (dirty, in a log of this
//!             construction) -> clean
//! Invariants: a key is in `wanted` exactly if what it leads to is dirty and in no closed log, so
//!             that nobody looks at what is clean to find what is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use wp_medium::Versions;

#[derive(Clone, Debug)]
struct Held<T> {
    what: T,
    /// Is it to be written?
    is_dirty: bool,
    /// Has it a pointer of its own already, that nothing on the medium has?
    is_volatile: bool,
    /// Is it in a log of this construction that is closed?
    is_in_log: bool,
    /// What logs have of it.
    versions: Option<Versions>,
}

impl<T> Held<T> {
    fn new(what: T, is_fresh: bool) -> Held<T> {
        Held { what, is_dirty: is_fresh, is_volatile: is_fresh, is_in_log: false, versions: None }
    }
}

/// Blocks of a file by their place, or nodes of its map by their pointers.
#[derive(Clone, Debug)]
pub(super) struct Memory<T> {
    all: BTreeMap<u64, Held<T>>,
    wanted: BTreeSet<u64>,
    /// What is in closed logs; some may be gone since.
    closed: Vec<u64>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Memory { all: BTreeMap::new(), wanted: BTreeSet::new(), closed: Vec::new() }
    }
}

impl<T> Memory<T> {
    /// What stands there.
    pub fn get(&self, key: u64) -> Option<&T> {
        self.all.get(&key).map(|held| &held.what)
    }

    /// The same, to be changed. It does not become dirty by that.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        self.all.get_mut(&key).map(|held| &mut held.what)
    }

    /// Does anything stand there?
    pub fn contains(&self, key: u64) -> bool {
        self.all.contains_key(&key)
    }

    /// Puts there what stands on the medium.
    pub fn put_clean(&mut self, key: u64, what: T) {
        self.wanted.remove(&key);
        self.all.insert(key, Held::new(what, false));
    }

    /// Puts there what is new, has a pointer of its own, and is to be written.
    pub fn put_fresh(&mut self, key: u64, what: T) {
        self.wanted.insert(key);
        self.all.insert(key, Held::new(what, true));
    }

    /// It is to be written; what it is, and whether that was known. `None`: nothing stands there.
    pub fn dirty(&mut self, key: u64) -> Option<(&mut T, bool)> {
        let held = self.all.get_mut(&key)?;
        let was_dirty = std::mem::replace(&mut held.is_dirty, true);
        if !was_dirty {
            self.wanted.insert(key);
        }
        Some((&mut held.what, was_dirty))
    }

    /// Has it a pointer of its own already, that nothing on the medium has?
    pub fn is_volatile(&self, key: u64) -> bool {
        self.all.get(&key).is_some_and(|held| held.is_volatile)
    }

    /// Another key leads to it, which nothing on the medium has.
    pub fn rename(&mut self, old: u64, new: u64) {
        let Some(mut held) = self.all.remove(&old) else { return };
        held.is_volatile = true;
        if self.wanted.remove(&old) {
            self.wanted.insert(new);
        }
        if held.is_in_log {
            self.closed.push(new);
        }
        self.all.insert(new, held);
    }

    /// Takes it out.
    pub fn remove(&mut self, key: u64) {
        self.wanted.remove(&key);
        self.all.remove(&key);
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = Memory::default();
    }

    /// Is anything to be written?
    pub fn has_dirty(&self) -> bool {
        !self.wanted.is_empty() || !self.closed.is_empty()
    }

    /// What of `keys` is to go into the log that is being made, in order.
    pub fn wanted(&self, keys: RangeInclusive<u64>) -> impl Iterator<Item = u64> {
        self.wanted.range(keys).copied()
    }

    /// A log has it, which is closed; what it is, and its versions in logs, without this one.
    pub fn close(&mut self, key: u64) -> Option<(&mut T, &mut Versions)> {
        let held = self.all.get_mut(&key)?;
        self.wanted.remove(&key);
        if !std::mem::replace(&mut held.is_in_log, true) {
            self.closed.push(key);
        }
        Some((&mut held.what, held.versions.get_or_insert_default()))
    }

    /// What is in closed logs was written.
    pub fn written(&mut self) {
        for key in self.closed.drain(..) {
            if let Some(held) = self.all.get_mut(&key).filter(|held| held.is_in_log) {
                (held.is_dirty, held.is_volatile, held.is_in_log) = (false, false, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_what_is_dirty_and_in_no_log() {
        let mut m = Memory::default();
        m.put_clean(1, 'a');
        m.put_fresh(2, 'b');
        m.put_clean(3, 'c');
        assert_eq!(m.dirty(3), Some((&mut 'c', false)));
        assert_eq!(m.dirty(3), Some((&mut 'c', true)));
        assert_eq!(m.dirty(4), None);
        assert_eq!(m.wanted(0..=9).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(m.close(2).map(|(what, _)| *what), Some('b'));
        // Whoever changes it now finds it dirty, and it is in no second log.
        assert_eq!(m.dirty(2), Some((&mut 'b', true)));
        assert_eq!(m.wanted(0..=9).collect::<Vec<_>>(), [3]);
        m.rename(2, 7);
        m.rename(3, 8);
        assert_eq!(m.wanted(0..=9).collect::<Vec<_>>(), [8]);
        assert!(m.is_volatile(7) && m.is_volatile(8));
        m.written();
        assert!(m.has_dirty() && !m.is_volatile(7));
        m.remove(8);
        assert!(!m.has_dirty() && !m.contains(8));
        assert_eq!(m.dirty(7), Some((&mut 'b', false)));
    }
}
