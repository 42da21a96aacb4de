//! Multi-version shadow paging: a buffer in several transactions that are not over.
//!
//! Picture:    the newest transaction that has a buffer owns its head; those before keep a
//!             [`Version`] each, with the contents that they still have to log. A transaction's
//!             version lies in slot `tid % N`.
//! Invariants: 1. the log is written from copies: no handle ever waits for log I/O.
//!             2. a transaction does not begin its commit while an older one holds the slot of one
//!                of its versions.
//!             3. a buffer is not written to its home while a transaction that has it is not over.
//! Source:     CJFS (Oh et al., FAST 2023) and its published kernel, in which a handle may change a
//!             buffer that the committing transaction has not copied yet: here that transaction
//!             gets its copy first.

use wp_cache::BufFlag;

use crate::heads::On;
use crate::options::Conflict;
use crate::site;
use crate::state::{Dropped, State, Version};

impl State {
    /// Makes the buffer `tid`'s, whoever has it.
    pub fn take_version(&mut self, key: u32, tid: u32) -> Conflict {
        if self.heads.get(key).owner == Some(tid) {
            return if self.slot_in_use(key, tid) { Conflict::Joined } else { Conflict::None };
        }
        self.heads.get_mut(key).modified = false;
        self.detach(key);
        let shared = !self.heads.get(key).older.is_empty();
        self.file(key, tid, On::Reserved);
        match (shared, self.wait_for_slot(key, tid)) {
            (false, _) => Conflict::None,
            (true, false) => Conflict::Versioned,
            (true, true) => Conflict::Slot,
        }
    }

    /// Makes the buffer `tid`'s, to be forgotten: what older transactions have of it is needed
    /// until this one has committed.
    pub fn forget_version(&mut self, key: u32, tid: u32) {
        self.detach(key);
        self.file_forget(key, tid);
        self.wait_for_slot(key, tid);
    }

    /// `tid` has just got the buffer: must it wait for its slot?
    fn wait_for_slot(&mut self, key: u32, tid: u32) -> bool {
        let waits = self.slot_in_use(key, tid) && site::VERSION_SLOT.on();
        self.transaction_mut(tid).waits += u32::from(waits);
        waits
    }

    /// Has an older transaction the slot of `tid`'s version?
    pub fn slot_in_use(&self, key: u32, tid: u32) -> bool {
        let Some(n) = self.versions else { return false };
        self.heads.get(key).older.iter().any(|old| *old % n == tid % n)
    }

    /// Leaves the owner, if there is one, its version.
    fn detach(&mut self, key: u32) {
        let h = self.heads.get(key);
        let Some(owner) = h.owner else { return };
        let b = h.buffer.clone();
        let unlogged = (h.on == On::Metadata && site::VERSION_COPY.on()).then(|| b.snapshot());
        let goes_home = b.flag(BufFlag::JbdDirty);
        self.heads.get_mut(key).older.push(owner);
        self.unlink(key);
        self.heads.get_mut(key).owner = None;
        self.transaction_mut(owner).versions.push(Version { key, unlogged, goes_home });
    }

    /// `tid` is over: its versions are the ones that the log keeps until the buffers are home.
    pub fn settle_versions(&mut self, tid: u32, gone: &mut Vec<Dropped>) {
        let aborted = self.aborted();
        for version in std::mem::take(&mut self.transaction_mut(tid).versions) {
            let key = version.key;
            gone.extend(self.remove_checkpoint(key));
            if version.goes_home {
                self.insert_checkpoint(key, tid);
            }
            self.heads.get_mut(key).older.retain(|old| *old != tid);
            let (owner, running) = (self.heads.get(key).owner, self.running);
            let same_slot = |r: u32| self.versions.is_some_and(|n| r % n == tid % n);
            if let Some(r) = running.filter(|r| owner == Some(*r) && same_slot(*r)) {
                let waits = &mut self.transaction_mut(r).waits;
                *waits = waits.saturating_sub(1);
            }
            let h = self.heads.get(key);
            if !h.is_in_transaction() {
                let (b, map) = (h.buffer.clone(), h.map.clone());
                let freed = b.clear(BufFlag::Freed);
                if b.clear(BufFlag::JbdDirty) && !freed && !aborted && site::RELEASE_DIRTY.on() {
                    map.mark_dirty(&b);
                }
                self.heads.put(key);
            }
        }
    }
}
