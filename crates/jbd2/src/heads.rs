//! Journal heads: what the journal knows of a buffer, and the lists that they are on.
//!
//! Picture:    slab of [`Head`]; each is on at most one list of its transaction and at most one
//!             checkpoint list.
//! Invariants: 1. a head lives while a transaction or a checkpoint list has it, no longer.
//!             2. a buffer's private word is its head's key, 0 without one.
//! Source:     `struct journal_head`.

use std::rc::Rc;

use wp_cache::{BufFlag, Buffer, Mapping};
use wp_medium::Slice;

/// Which list of its transaction a head is on. `BJ_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum On {
    /// None.
    Nothing = 0,
    /// To be logged.
    Metadata = 1,
    /// Logged already, or forgotten by this transaction: processed when the commit ends.
    Forget = 2,
    /// Being written to the log.
    Shadow = 3,
    /// A handle may change it, none has said so yet.
    Reserved = 4,
}

/// The two lists that a head can be on at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Kind {
    Transaction = 0,
    Checkpoint = 1,
}

#[derive(Clone, Copy, Default)]
struct Links {
    next: u32,
    prev: u32,
}

/// A buffer in the journal.
pub(crate) struct Head {
    pub buffer: Rc<Buffer>,
    /// The address space that it is cached in: the device's, or a file's under `data=journal`.
    pub map: Rc<Mapping>,
    /// Transaction that owns it (`b_transaction`).
    pub owner: Option<u32>,
    /// Running transaction that wants it too while the committing one owns it
    /// (`b_next_transaction`).
    pub next_owner: Option<u32>,
    /// Transactions before the owner that have a version of it and are not over, oldest first
    /// (multi-version shadow paging).
    pub older: Vec<u32>,
    /// Transaction whose log copy is still needed (`b_cp_transaction`).
    pub checkpoint: Option<u32>,
    pub on: On,
    /// Changed in the newest transaction that has it (`b_modified`).
    pub modified: bool,
    /// What the committing transaction logs although the buffer has changed since
    /// (`b_frozen_data`).
    pub frozen: Option<Slice>,
    /// Contents as last committed, for undo (`b_committed_data`).
    pub committed: Option<Slice>,
    links: [Links; 2],
}

impl Head {
    /// Has a transaction that is not over this buffer?
    pub fn is_in_transaction(&self) -> bool {
        self.owner.is_some() || !self.older.is_empty()
    }

    /// The newest transaction that is not over and has it.
    pub fn newest(&self) -> Option<u32> {
        self.owner.or(self.older.last().copied())
    }
}

/// The device block where a buffer's home is: file data has a place of its own, metadata is cached
/// by it.
pub(crate) fn home_of(b: &Buffer) -> u64 {
    if b.flag(BufFlag::Mapped) { b.phys() } else { b.block() }
}

/// A circular list of heads, by key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List {
    pub first: u32,
    pub len: u32,
}

impl List {
    pub fn is_empty(&self) -> bool {
        self.first == 0
    }
}

/// All heads.
#[derive(Default)]
pub(crate) struct Heads {
    slots: Vec<Option<Head>>,
    free: Vec<u32>,
}

impl Heads {
    /// The buffer's head; a new one if it had none.
    pub fn of(&mut self, b: &Rc<Buffer>, map: &Rc<Mapping>) -> u32 {
        if b.jh() != 0 {
            return b.jh();
        }
        let head = Head {
            buffer: b.clone(),
            map: map.clone(),
            owner: None,
            next_owner: None,
            older: Vec::new(),
            checkpoint: None,
            on: On::Nothing,
            modified: false,
            frozen: None,
            committed: None,
            links: [Links::default(); 2],
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.slots[key as usize - 1] = Some(head);
                key
            }
            None => {
                self.slots.push(Some(head));
                self.slots.len() as u32
            }
        };
        b.set_jh(key);
        key
    }

    /// Ends the head if nothing needs it.
    pub fn put(&mut self, key: u32) {
        let h = self.get(key);
        if h.is_in_transaction() || h.checkpoint.is_some() {
            return;
        }
        assert!(h.on == On::Nothing, "block {} is on a list of nobody", h.buffer.block());
        let head = self.slots[key as usize - 1].take().expect("it was there a line ago");
        head.buffer.set_jh(0);
        self.free.push(key);
    }

    /// Heads alive.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn get(&self, key: u32) -> &Head {
        self.slots[key as usize - 1].as_ref().expect("a key is used only while its head lives")
    }

    pub fn get_mut(&mut self, key: u32) -> &mut Head {
        self.slots[key as usize - 1].as_mut().expect("a key is used only while its head lives")
    }

    /// Appends to a list.
    pub fn push_back(&mut self, list: &mut List, kind: Kind, key: u32) {
        let k = kind as usize;
        list.len += 1;
        if list.first == 0 {
            list.first = key;
            self.get_mut(key).links[k] = Links { next: key, prev: key };
            return;
        }
        let first = list.first;
        let last = self.get(first).links[k].prev;
        self.get_mut(key).links[k] = Links { next: first, prev: last };
        self.get_mut(last).links[k].next = key;
        self.get_mut(first).links[k].prev = key;
    }

    /// Puts in front of a list.
    pub fn push_front(&mut self, list: &mut List, kind: Kind, key: u32) {
        self.push_back(list, kind, key);
        list.first = key;
    }

    /// Takes out of a list.
    pub fn unlink(&mut self, list: &mut List, kind: Kind, key: u32) {
        let k = kind as usize;
        let Links { next, prev } = self.get(key).links[k];
        list.len -= 1;
        if list.first == key {
            list.first = if next == key { 0 } else { next };
        }
        self.get_mut(prev).links[k].next = next;
        self.get_mut(next).links[k].prev = prev;
        self.get_mut(key).links[k] = Links::default();
    }

    /// The one after `key` in its (circular) list.
    pub fn next(&self, kind: Kind, key: u32) -> u32 {
        self.get(key).links[kind as usize].next
    }

    /// The last one of a list.
    pub fn last(&self, list: &List, kind: Kind) -> u32 {
        if list.first == 0 { 0 } else { self.get(list.first).links[kind as usize].prev }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_rt::Rt;

    /// A mapping that nothing cleans.
    fn mapping(rt: &Rt) -> Rc<Mapping> {
        struct Nothing;
        impl wp_block::DeviceModel for Nothing {
            fn limits(&self) -> &wp_block::Limits {
                const { &wp_block::Limits::plain(1024) }
            }
            fn submit(
                &mut self,
                _: wp_base::Time,
                rq: wp_block::DevRequest,
                fx: &mut wp_block::Effects,
            ) -> wp_block::Admit {
                fx.complete(rq.id);
                wp_block::Admit::Accepted
            }
            fn timer(&mut self, _: wp_base::Time, _: u64, _: &mut wp_block::Effects) {}
            fn crash_view(&self, _: wp_base::Time) -> wp_block::CrashView {
                wp_block::CrashView {
                    medium: wp_medium::Medium::new(),
                    loss: Vec::new(),
                    zones: None,
                }
            }
            fn fork(&self) -> Box<dyn wp_block::DeviceModel> {
                Box::new(Nothing)
            }
            fn medium(&self) -> wp_medium::Medium {
                wp_medium::Medium::new()
            }
            fn counters(&self) -> Vec<(&'static str, u64)> {
                Vec::new()
            }
        }
        let config = wp_block::QueueConfig::default();
        let queue = wp_block::BlockQueue::new(rt, config, Box::new(Nothing));
        let wb = wp_cache::Writeback::new(rt, queue.whole(), wp_cache::WbPolicy::default());
        Mapping::new(rt, "test", 512, &wb)
    }

    fn order(h: &Heads, list: &List, kind: Kind) -> Vec<u64> {
        let mut out = Vec::new();
        let mut key = list.first;
        for _ in 0..list.len {
            out.push(h.get(key).buffer.block());
            key = h.next(kind, key);
        }
        assert_eq!(key, list.first);
        out
    }

    #[test]
    fn a_head_is_on_both_lists_independently() {
        let rt = Rt::new(0);
        let map = mapping(&rt);
        let mut heads = Heads::default();
        let (mut a, mut b) = (List::default(), List::default());
        let buffers: Vec<_> = (0..4).map(|i| Rc::new(Buffer::new(&rt, i, 512))).collect();
        let keys: Vec<u32> = buffers.iter().map(|b| heads.of(b, &map)).collect();
        for k in &keys {
            heads.push_back(&mut a, Kind::Transaction, *k);
            heads.push_front(&mut b, Kind::Checkpoint, *k);
        }
        assert_eq!(order(&heads, &a, Kind::Transaction), [0, 1, 2, 3]);
        assert_eq!(order(&heads, &b, Kind::Checkpoint), [3, 2, 1, 0]);
        heads.unlink(&mut a, Kind::Transaction, keys[0]);
        heads.unlink(&mut a, Kind::Transaction, keys[2]);
        assert_eq!(order(&heads, &a, Kind::Transaction), [1, 3]);
        assert_eq!(heads.get(heads.last(&a, Kind::Transaction)).buffer.block(), 3);
        assert_eq!(order(&heads, &b, Kind::Checkpoint), [3, 2, 1, 0]);
        heads.unlink(&mut a, Kind::Transaction, keys[1]);
        heads.unlink(&mut a, Kind::Transaction, keys[3]);
        assert!(a.is_empty() && a.len == 0);
        for k in &keys {
            heads.unlink(&mut b, Kind::Checkpoint, *k);
            heads.put(*k);
        }
        assert!(heads.len() == 0 && buffers.iter().all(|b| b.jh() == 0));
    }
}
