//! Blocks of metadata and nodes of maps that are in memory, and which of them are to be written.
//!
//! Picture:    clean -> wanted (dirty, in no log yet) -> closed (dirty, in a log of this
//!             construction) -> clean
//! Invariants: a key is in `wanted` exactly if what it leads to is dirty and in no closed log, so
//!             that nobody looks at what is clean to find what is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use wp_cache::Index;

use crate::disk::Node;

use super::block::Block;
use super::sent::{ALL, Sent, parts};

#[derive(Clone, Debug)]
pub(super) struct Held<T> {
    what: T,
    /// Is it to be written?
    is_dirty: bool,
    /// Has it a pointer of its own already, that nothing on the medium has?
    is_volatile: bool,
    /// Is it in a log of this construction that is closed?
    is_in_log: bool,
    /// What logs have of it. `None`: that was forgotten, or nothing.
    sent: Option<Box<Sent>>,
    /// Has a log had it since versions were last forgotten?
    is_recent: bool,
    /// The parts of it that may differ from what logs have.
    touched: u16,
}

impl<T> Held<T> {
    fn new(what: T, is_fresh: bool) -> Held<T> {
        Held {
            what,
            is_dirty: is_fresh,
            is_volatile: is_fresh,
            is_in_log: false,
            sent: None,
            is_recent: false,
            touched: ALL,
        }
    }
}

/// What is in memory, by its key. Behind pointers, as a node gets another key whenever it is
/// written.
pub(super) trait Keyed: Default {
    type What;
    fn get(&self, key: u64) -> Option<&Held<Self::What>>;
    fn get_mut(&mut self, key: u64) -> Option<&mut Held<Self::What>>;
    fn insert(&mut self, key: u64, held: Box<Held<Self::What>>);
    fn remove(&mut self, key: u64) -> Option<Box<Held<Self::What>>>;
    fn each_mut(&mut self, f: impl FnMut(&mut Held<Self::What>));
}

/// Keys are close together: places in a file. Each entry that is given out is looked for a dozen
/// times.
impl<T> Keyed for Index<Box<Held<T>>> {
    type What = T;
    fn get(&self, key: u64) -> Option<&Held<T>> {
        Index::get(self, key).map(|held| &**held)
    }
    fn get_mut(&mut self, key: u64) -> Option<&mut Held<T>> {
        Index::get_mut(self, key).map(|held| &mut **held)
    }
    fn insert(&mut self, key: u64, held: Box<Held<T>>) {
        Index::insert(self, key, held);
    }
    fn remove(&mut self, key: u64) -> Option<Box<Held<T>>> {
        Index::remove(self, key)
    }
    fn each_mut(&mut self, mut f: impl FnMut(&mut Held<T>)) {
        self.values_mut().for_each(|held| f(held));
    }
}

/// Keys are far apart: pointers.
impl<T> Keyed for BTreeMap<u64, Box<Held<T>>> {
    type What = T;
    fn get(&self, key: u64) -> Option<&Held<T>> {
        BTreeMap::get(self, &key).map(|held| &**held)
    }
    fn get_mut(&mut self, key: u64) -> Option<&mut Held<T>> {
        BTreeMap::get_mut(self, &key).map(|held| &mut **held)
    }
    fn insert(&mut self, key: u64, held: Box<Held<T>>) {
        BTreeMap::insert(self, key, held);
    }
    fn remove(&mut self, key: u64) -> Option<Box<Held<T>>> {
        BTreeMap::remove(self, &key)
    }
    fn each_mut(&mut self, mut f: impl FnMut(&mut Held<T>)) {
        self.values_mut().for_each(|held| f(held));
    }
}

/// Blocks of a file by their place.
pub(super) type Blocks = Memory<Index<Box<Held<Block>>>>;

/// Nodes of the map of a file by their pointers.
pub(super) type Nodes = Memory<BTreeMap<u64, Box<Held<Node>>>>;

/// Blocks or nodes by their keys.
#[derive(Clone, Debug)]
pub(super) struct Memory<M> {
    all: M,
    wanted: BTreeSet<u64>,
    /// What is in closed logs; some may be gone since.
    closed: Vec<u64>,
    /// Versions that are kept, or a few more.
    versions: usize,
    /// How many of them are too many.
    versions_max: usize,
}

/// Versions that are kept at least, a page each: a table that grows with all that a run writes has
/// most of its blocks in no log any more. Few in tests, which thus meet blocks whose versions were
/// forgotten.
const VERSIONS: usize = if cfg!(test) { 64 } else { 4096 };

impl<M: Keyed> Default for Memory<M> {
    fn default() -> Self {
        Memory {
            all: M::default(),
            wanted: BTreeSet::new(),
            closed: Vec::new(),
            versions: 0,
            versions_max: VERSIONS,
        }
    }
}

impl<M: Keyed> Memory<M> {
    /// What stands there.
    pub fn get(&self, key: u64) -> Option<&M::What> {
        self.all.get(key).map(|held| &held.what)
    }

    /// Does anything stand there?
    pub fn contains(&self, key: u64) -> bool {
        self.all.get(key).is_some()
    }

    /// Puts there what stands on the medium.
    pub fn put_clean(&mut self, key: u64, what: M::What) {
        self.wanted.remove(&key);
        self.all.insert(key, Box::new(Held::new(what, false)));
    }

    /// Puts there what is new, has a pointer of its own, and is to be written.
    pub fn put_fresh(&mut self, key: u64, what: M::What) {
        self.wanted.insert(key);
        self.all.insert(key, Box::new(Held::new(what, true)));
    }

    fn held_dirty(&mut self, key: u64) -> Option<(&mut Held<M::What>, bool)> {
        let held = self.all.get_mut(key)?;
        let was_dirty = std::mem::replace(&mut held.is_dirty, true);
        if !was_dirty {
            self.wanted.insert(key);
        }
        Some((held, was_dirty))
    }

    /// It is to be written, as it is; was that known? `None`: nothing stands there.
    pub fn mark(&mut self, key: u64) -> Option<bool> {
        self.held_dirty(key).map(|(_, was_dirty)| was_dirty)
    }

    /// It is to be written, and to be changed. `None`: nothing stands there.
    pub fn dirty(&mut self, key: u64) -> Option<&mut M::What> {
        let (held, _) = self.held_dirty(key)?;
        held.touched = ALL;
        Some(&mut held.what)
    }

    /// Has it a pointer of its own already, that nothing on the medium has?
    pub fn is_volatile(&self, key: u64) -> bool {
        self.all.get(key).is_some_and(|held| held.is_volatile)
    }

    /// Another key leads to it, which nothing on the medium has.
    pub fn rename(&mut self, old: u64, new: u64) {
        let Some(mut held) = self.all.remove(old) else { return };
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
        self.all.remove(key);
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

    /// A log has it, which is closed; what it is, what logs have of it, without this one, and which
    /// parts may differ from that.
    pub fn close(&mut self, key: u64) -> Option<(&mut M::What, &mut Sent, u16)> {
        let held = self.all.get_mut(key)?;
        self.wanted.remove(&key);
        if !std::mem::replace(&mut held.is_in_log, true) {
            self.closed.push(key);
        }
        let touched = std::mem::take(&mut held.touched);
        held.is_recent = true;
        self.versions += usize::from(held.sent.is_none());
        Some((&mut held.what, held.sent.get_or_insert_default(), touched))
    }

    /// What is in closed logs was written.
    pub fn written(&mut self) {
        for key in self.closed.drain(..) {
            if let Some(held) = self.all.get_mut(key).filter(|held| held.is_in_log) {
                (held.is_dirty, held.is_volatile, held.is_in_log) = (false, false, false);
            }
        }
        if self.versions > self.versions_max {
            self.forget_versions();
        }
    }

    /// Forgets what logs have of all that has been in none since this was last done: the next log
    /// with it has it whole.
    fn forget_versions(&mut self) {
        let mut kept = 0;
        self.all.each_mut(|held| {
            if std::mem::take(&mut held.is_recent) {
                kept += 1;
            } else if held.sent.take().is_some() {
                held.touched = ALL;
            }
        });
        self.versions = kept;
        self.versions_max = VERSIONS.max(2 * kept);
    }
}

impl Blocks {
    /// The bytes of a block.
    pub fn bytes(&mut self, key: u64) -> Option<&[u8]> {
        self.all.get_mut(key).map(|held| held.what.bytes())
    }

    /// Bytes `range` of a block that is to be written, to be changed; as many as there are.
    pub fn dirty_bytes(&mut self, key: u64, range: Range<usize>) -> Option<&mut [u8]> {
        self.held_dirty(key).map(|(held, _)| held.change_bytes(range))
    }

    /// The same of a block that does not become dirty by that: it is, or is in a log that is being
    /// made.
    pub fn change_bytes(&mut self, key: u64, range: Range<usize>) -> Option<&mut [u8]> {
        self.all.get_mut(key).map(|held| held.change_bytes(range))
    }
}

impl Held<Block> {
    fn change_bytes(&mut self, range: Range<usize>) -> &mut [u8] {
        if range.is_empty() {
            return &mut [];
        }
        self.touched |= parts(&range);
        let bytes = self.what.bytes_mut();
        let end = range.end.min(bytes.len());
        bytes.get_mut(range.start..end).unwrap_or(&mut [])
    }
}

impl Nodes {
    /// A child of a node leads elsewhere. It does not become dirty by that: it is.
    pub fn point(&mut self, key: u64, child: usize, pointer: u64, block_bytes: usize) {
        let Some(held) = self.all.get_mut(&key) else { return };
        if let Some((_, place)) = held.what.children.get_mut(child) {
            *place = pointer;
            held.touched |= parts(&Node::pointer_at(child, block_bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_what_is_dirty_and_in_no_log() {
        let mut m = Memory::<BTreeMap<u64, Box<Held<char>>>>::default();
        m.put_clean(1, 'a');
        m.put_fresh(2, 'b');
        m.put_clean(3, 'c');
        assert_eq!((m.mark(3), m.mark(3), m.mark(4)), (Some(false), Some(true), None));
        assert_eq!(m.dirty(3), Some(&mut 'c'));
        assert_eq!(m.wanted(0..=9).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(m.close(2).map(|(what, _, touched)| (*what, touched)), Some(('b', ALL)));
        // Whoever changes it now finds it dirty, and it is in no second log.
        assert_eq!((m.mark(2), m.dirty(2)), (Some(true), Some(&mut 'b')));
        assert_eq!(m.wanted(0..=9).collect::<Vec<_>>(), [3]);
        m.rename(2, 7);
        m.rename(3, 8);
        assert_eq!(m.wanted(0..=9).collect::<Vec<_>>(), [8]);
        assert!(m.is_volatile(7) && m.is_volatile(8));
        m.written();
        assert!(m.has_dirty() && !m.is_volatile(7));
        m.remove(8);
        assert!(!m.has_dirty() && !m.contains(8));
        assert_eq!(m.mark(7), Some(false));
    }

    #[test]
    fn versions_of_what_is_in_no_log_any_more_are_forgotten() {
        let mut m = Blocks::default();
        for key in 0..20 * VERSIONS as u64 {
            m.put_fresh(key, Block::made(4096, |bytes| bytes.fill(key as u8)));
            // The first block is in each log.
            m.dirty_bytes(0, 0..1).expect("it is there").fill(key as u8);
            for key in [0, key] {
                let (block, sent, touched) = m.close(key).expect("it is there");
                let bytes = block.to_vec();
                assert_eq!(sent.next_of(&bytes, touched, 0).0.to_vec(), bytes, "block {key}");
            }
            m.written();
        }
        let keys = 0..20 * VERSIONS as u64;
        let kept =
            keys.filter(|key| m.all.get(*key).is_some_and(|held| held.sent.is_some())).count();
        assert!(kept <= 2 * VERSIONS, "{kept}");
        assert!(m.all.get(0).is_some_and(|held| held.sent.is_some() && held.touched == 0));
        // One that was forgotten comes whole, as no version stands before it.
        let (block, sent, touched) = m.close(9).expect("it is there");
        assert_eq!(touched, ALL);
        assert_eq!(sent.next_of(&block.to_vec(), touched, 0).0.to_vec(), [9; 4096]);
    }
}
