//! Access to buffers: who may change what, and what happens when the committing transaction is in
//! the way.
//!
//! Picture:    get_*_access -> change the bytes -> dirty_metadata; or forget. [`Conflict`] names
//!             the cases.
//! Invariants: 1. bytes that the committing transaction still has to log never change: they are
//!                copied first, or the handle waits.
//!             2. a buffer under a transaction is not written to its home.
//! Left out:   commit-time triggers (`t_frozen`).
//! Source:     Linux 6.1 `do_get_write_access`,
//!             `jbd2_journal_{get_create_access,get_undo_access,dirty_metadata, forget}`. Copies
//!             are references: the bytes are copied by whoever writes to shared ones.

use std::rc::Rc;

use wp_base::{FsError, FsResult, Span};
use wp_cache::{BufFlag, Buffer, Mapping};
use wp_rt::MaybeReady;

use crate::handle::Handle;
use crate::heads::{On, home_of};
use crate::options::Conflict;
use crate::site;
use crate::state::Busy;

/// May the buffer's bytes be copied although its transaction has logged them?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    IfNeeded,
    /// For undo: the copy becomes the committed contents.
    Always,
}

impl Handle {
    /// Says that this handle is about to change the buffer.
    ///
    /// Waits:  while the buffer is being written to its home; while its only copy is being written
    ///         to the log by the committing transaction (conflict case 3).
    /// Errors: `ReadOnly` on an aborted journal; `Io`, which aborts it, after a failed write of
    ///         metadata.
    /// Crash:  the change is in this handle's transaction, or nowhere.
    #[inline]
    pub fn get_write_access<'a>(&'a self, b: &'a Rc<Buffer>) -> MaybeReady<'a, FsResult<()>> {
        match self.write_access_now(b) {
            Some(done) => MaybeReady::now(done),
            None => MaybeReady::later(async { self.get_write_access_met(b).await.map(|_| ()) }),
        }
    }

    /// [`Handle::get_write_access`] where it need not wait, or is refused; `None`, and nothing has
    /// come of it, where it must.
    pub fn write_access_now(&self, b: &Rc<Buffer>) -> Option<FsResult<()>> {
        let j = self.journal();
        if let Err(refused) = j.check_device() {
            return Some(Err(refused));
        }
        if self.has_access(b) {
            return Some(Ok(()));
        }
        let granted = self.granted(b, Copy::IfNeeded);
        if !granted && self.is_going_home(b) {
            return None;
        }
        match self.try_access(j.bdev.mapping(), b, Copy::IfNeeded) {
            Ok(Conflict::Shadow) => None,
            Ok(case) => {
                self.took(b, case, (case, Span::ZERO), granted);
                Some(Ok(()))
            }
            Err(e) => Some(Err(e)),
        }
    }

    /// Counts `n` calls more on a buffer that this handle has: where the kernel says again and
    /// again that it will change what it has changed, and nothing else comes of that.
    pub fn count_again(&self, b: &Rc<Buffer>, n: u32) {
        let j = self.journal();
        if b.jh() == 0 || j.is_aborted() {
            return;
        }
        let case = {
            let st = j.st.borrow();
            let h = st.heads.get(b.jh());
            let ours = h.owner == Some(self.tid())
                && (h.older.is_empty() || !st.slot_in_use(b.jh(), self.tid()));
            if ours { Conflict::None } else { Conflict::Joined }
        };
        for _ in 0..n {
            j.count_conflict(case, Span::ZERO);
            if case != Conflict::None || j.opts.observe_all {
                j.observe(b, case, Span::ZERO);
            }
        }
    }

    /// As [`Handle::get_write_access`]; answers what it met.
    pub async fn get_write_access_met(&self, b: &Rc<Buffer>) -> FsResult<Conflict> {
        self.access(self.journal().bdev.mapping(), b, Copy::IfNeeded).await
    }

    /// As [`Handle::get_write_access`] for a block of a file's data under `data=journal`: `b` is
    /// cached in `map`, and its home is [`Buffer::phys`].
    pub async fn get_write_access_in(
        &self,
        map: &Rc<Mapping>,
        b: &Rc<Buffer>,
    ) -> FsResult<Conflict> {
        assert!(b.flag(BufFlag::Mapped), "data is journaled only with a place to go");
        self.access(map, b, Copy::IfNeeded).await
    }

    /// As [`Handle::get_write_access`], and keeps the contents as committed until this transaction
    /// has committed: see [`crate::Journal::committed_contents`].
    pub async fn get_undo_access(&self, b: &Rc<Buffer>) -> FsResult<()> {
        self.access(self.journal().bdev.mapping(), b, Copy::Always).await?;
        let mut st = self.journal().st.borrow_mut();
        let h = st.heads.get_mut(b.jh());
        if h.committed.is_none() {
            h.committed = Some(b.snapshot());
        }
        Ok(())
    }

    /// Says that this handle fills a buffer for a block that was just allocated.
    ///
    /// Waits:  while the buffer is being written to its home (its block's earlier life).
    /// Errors: `ReadOnly` on an aborted journal, and if a transaction still has the buffer's
    ///         earlier life: then two owners think that the block is theirs, and the journal is
    ///         aborted.
    /// Source: `jbd2_journal_get_create_access`.
    pub async fn get_create_access(&self, b: &Rc<Buffer>) -> FsResult<()> {
        self.wait_home_write(b).await;
        let j = self.journal();
        let tid = self.tid();
        let possible = {
            let mut st = j.st.borrow_mut();
            if st.aborted() {
                return Err(FsError::ReadOnly);
            }
            let key = st.heads.of(b, j.bdev.mapping());
            let h = st.heads.get(key);
            let by_older = h.owner.is_some_and(|o| st.is_committing(o)) && h.on == On::Forget;
            let possible =
                (h.owner.is_none() || h.owner == Some(tid) || by_older) && h.next_owner.is_none();
            if possible && h.owner.is_none() {
                // A checkpoint of the block's earlier life is no longer wanted: who freed it has
                // committed.
                let h = st.heads.get_mut(key);
                h.modified = false;
                if site::CREATE_CLEAN.on() {
                    h.map.clear_dirty(b);
                }
                if st.heads.get(key).older.is_empty() {
                    st.file(key, tid, On::Reserved);
                } else {
                    st.take_version(key, tid);
                }
            } else if possible && h.owner != Some(tid) {
                if st.versions.is_some() {
                    st.take_version(key, tid);
                } else {
                    st.heads.get_mut(key).modified = false;
                    st.inherit(key, tid);
                }
            }
            possible
        };
        if !possible {
            j.abort(FsError::ReadOnly);
            return Err(FsError::ReadOnly);
        }
        j.cancel_revoke(b);
        Ok(())
    }

    /// Says that the buffer was changed: it will be logged.
    ///
    /// Errors: `Invalid` without access in this handle's transaction; `NoSpace` without credits;
    ///         `ReadOnly` on an aborted journal. Source: `jbd2_journal_dirty_metadata`.
    pub fn dirty_metadata(&self, b: &Rc<Buffer>) -> FsResult<()> {
        let j = self.journal();
        let tid = self.tid();
        let mut st = j.st.borrow_mut();
        if b.jh() == 0 {
            return Err(FsError::Invalid("dirty_metadata without access"));
        }
        let key = b.jh();
        let h = st.heads.get(key);
        if h.owner != Some(tid) && h.next_owner != Some(tid) {
            return Err(FsError::Invalid("dirty_metadata without access in this transaction"));
        }
        if h.modified && (h.owner != Some(tid) || h.on == On::Metadata) {
            return Ok(());
        }
        if st.aborted() {
            return Err(FsError::ReadOnly);
        }
        if !st.heads.get(key).modified {
            if self.credits.get() <= 0 {
                return Err(FsError::NoSpace);
            }
            self.credits.set(self.credits.get() - 1);
            st.heads.get_mut(key).modified = true;
        }
        b.set(BufFlag::JbdDirty);
        let h = st.heads.get(key);
        // One that the committing transaction owns is moved when that one is done with it.
        if h.owner == Some(tid) && h.on != On::Metadata {
            assert!(h.frozen.is_none(), "block {} is frozen in its own transaction", b.block());
            st.file(key, tid, On::Metadata);
        }
        Ok(())
    }

    /// Says that the buffer's block was freed: what this transaction changed in it need not be
    /// logged.
    ///
    /// Waits:  for a write of the buffer to its home, if that could not be cancelled.
    /// Errors: `Io` for a buffer with undo contents; `ReadOnly` on an aborted journal.
    /// Source: `jbd2_journal_forget`.
    pub async fn forget(&self, b: &Rc<Buffer>) -> FsResult<()> {
        let j = self.journal();
        let tid = self.tid();
        let (wait, dropped) = {
            let mut st = j.st.borrow_mut();
            if st.aborted() {
                return Err(FsError::ReadOnly);
            }
            if b.jh() == 0 {
                j.bdev.clear_dirty(b);
                return Ok(());
            }
            let key = b.jh();
            let versions = st.versions.is_some();
            let h = st.heads.get_mut(key);
            if h.committed.is_some() {
                return Err(FsError::Io);
            }
            let was_modified = std::mem::replace(&mut h.modified, false);
            let mut give_back = false;
            let mut wait = false;
            let mut dropped = None;
            match h.owner {
                Some(owner) if owner == tid => {
                    assert!(h.frozen.is_none());
                    give_back = was_modified;
                    let checkpointed = h.checkpoint.is_some() || !h.older.is_empty();
                    if site::FORGET_CLEAN.on() {
                        h.map.clear_dirty(b);
                        b.clear(BufFlag::JbdDirty);
                    }
                    if checkpointed && site::FORGET_KEEP.on() {
                        // This commit makes the older log copy obsolete; until then it is needed.
                        st.file_forget(key, tid);
                    } else {
                        st.unfile(key);
                    }
                }
                // Older transactions keep their versions.
                _ if versions && h.is_in_transaction() => {
                    st.forget_version(key, tid);
                    b.clear(BufFlag::JbdDirty);
                }
                Some(_) => {
                    // The committing transaction logs it all the same; afterwards it must not go
                    // home.
                    if site::FREED.on() {
                        b.set(BufFlag::Freed);
                    }
                    match h.next_owner {
                        None => st.inherit(key, tid),
                        Some(next) => {
                            assert_eq!(next, tid);
                            give_back = was_modified;
                        }
                    }
                }
                None => match st.try_remove_checkpoint(key) {
                    Ok(d) => dropped = d,
                    Err(Busy) => {
                        st.heads.get(key).map.clear_dirty(b);
                        wait = true;
                        st.file(key, tid, On::Forget);
                    }
                },
            }
            if give_back {
                self.credits.set(self.credits.get() + 1);
            }
            (wait, dropped)
        };
        j.emit_dropped(dropped);
        if wait && site::FORGET_WAIT.on() {
            b.wait_clear(BufFlag::Writeback).await;
        }
        Ok(())
    }

    /// Has a handle to wait until the buffer is written to its home, or read?
    fn is_going_home(&self, b: &Buffer) -> bool {
        (b.flag(BufFlag::Writeback) || b.flag(BufFlag::Reading)) && site::HOME_LOCK.on()
    }

    /// `lock_buffer`: a buffer on its way home is locked.
    async fn wait_home_write(&self, b: &Rc<Buffer>) {
        if self.is_going_home(b) {
            self.journal().st.borrow_mut().counters.home_write_waits += 1;
            self.journal().bdev.note_wait(b, wp_block::Quasi::Metadata);
            b.wait_clear(BufFlag::Writeback).await;
            b.wait_clear(BufFlag::Reading).await;
        }
    }

    async fn access(&self, map: &Rc<Mapping>, b: &Rc<Buffer>, copy: Copy) -> FsResult<Conflict> {
        let j = self.journal();
        let mut met = None;
        let began = j.rt.now();
        loop {
            let granted = self.granted(b, copy);
            if !granted {
                self.wait_home_write(b).await;
            }
            let case = self.try_access(map, b, copy)?;
            if case != Conflict::Shadow {
                // A call is told of once, by what it met first.
                let met = met.unwrap_or(case);
                let waited =
                    if met == Conflict::Shadow { j.rt.now().since(began) } else { Span::ZERO };
                self.took(b, case, (met, waited), granted);
                return Ok(met);
            }
            met = Some(case);
            let since = j.rt.now();
            b.wait_clear(BufFlag::Shadow).await;
            j.count_conflict(case, j.rt.now().since(since));
        }
    }

    /// What follows when a buffer was taken as `case`, having `met` something, for which it waited;
    /// `granted`: it was the transaction's already.
    fn took(&self, b: &Rc<Buffer>, case: Conflict, (met, waited): (Conflict, Span), granted: bool) {
        let j = self.journal();
        j.count_conflict(case, Span::ZERO);
        if met != Conflict::None || j.opts.observe_all {
            j.observe(b, met, waited);
        }
        if !granted {
            j.cancel_revoke(b);
        }
    }

    /// What [`Handle::access`] comes to, all of it, for a buffer that is this transaction's already
    /// and of no other: most are.
    fn has_access(&self, b: &Buffer) -> bool {
        if b.jh() == 0 || b.flag(BufFlag::Dirty) {
            return false;
        }
        let mut st = self.journal().st.borrow_mut();
        let h = st.heads.get(b.jh());
        let ours = h.owner == Some(self.tid()) && h.older.is_empty() && !st.aborted();
        st.counters.conflicts[Conflict::None as usize] += u64::from(ours);
        if ours && self.journal().opts.observe_all {
            drop(st);
            self.journal().observe(b, Conflict::None, Span::ZERO);
        }
        ours
    }

    /// The quick look: nothing to do at all. Source: `jbd2_write_access_granted`.
    fn granted(&self, b: &Buffer, copy: Copy) -> bool {
        if b.flag(BufFlag::Dirty) || b.jh() == 0 {
            return false;
        }
        let st = self.journal().st.borrow();
        let h = st.heads.get(b.jh());
        let ours = h.owner == Some(self.tid()) || h.next_owner == Some(self.tid());
        ours && (copy == Copy::IfNeeded || h.committed.is_some())
    }

    /// One round of `do_get_write_access`: takes the buffer, or answers `Shadow`.
    fn try_access(&self, map: &Rc<Mapping>, b: &Rc<Buffer>, copy: Copy) -> FsResult<Conflict> {
        let j = self.journal();
        let tid = self.tid();
        let mut st = j.st.borrow_mut();
        if st.aborted() {
            return Err(FsError::ReadOnly);
        }
        let key = st.heads.of(b, map);
        if st.heads.get(key).owner.is_some() && map.clear_dirty(b) {
            // Somebody dirtied it behind our back (a tool writing to the device): it goes through
            // the log now.
            b.set(BufFlag::JbdDirty);
        }
        if st.versions.is_some() {
            return Ok(st.take_version(key, tid));
        }
        let h = st.heads.get_mut(key);
        if h.owner == Some(tid) {
            return Ok(Conflict::None);
        }
        if h.next_owner == Some(tid) {
            return Ok(Conflict::Joined);
        }
        h.modified = false;
        let Some(owner) = h.owner else {
            assert!(h.next_owner.is_none());
            // A pending write home is cancelled: the log will have something newer. `file` moves
            // the dirty bit.
            st.file(key, tid, On::Reserved);
            return Ok(Conflict::None);
        };
        // One that waits for a buffer does not begin its commit, so there is no third.
        assert!(h.next_owner.is_none(), "block {} is wanted by two transactions", b.block());
        if h.frozen.is_some() {
            st.inherit(key, tid);
            return Ok(Conflict::Frozen);
        }
        if b.flag(BufFlag::Shadow) && site::SHADOW_WAIT.on() {
            return Ok(Conflict::Shadow);
        }
        let mut case = Conflict::Logged;
        if (h.on == On::Metadata || copy == Copy::Always) && site::FROZEN_COPY.on() {
            h.frozen = Some(b.snapshot());
            case = Conflict::Copy;
        }
        assert!(st.is_committing(owner), "block {} is owned by a stranger", b.block());
        st.inherit(key, tid);
        Ok(case)
    }
}

impl crate::journal::Journal {
    /// Has a transaction that is not over this block?
    pub fn is_owned(&self, b: &Buffer) -> bool {
        b.jh() != 0 && self.st.borrow().heads.get(b.jh()).is_in_transaction()
    }

    /// What `b` holds need not go home any more: its home was discarded, and that counts as the
    /// checkpoint's write. `false`, and nothing is changed, if a transaction that is not over has
    /// it.
    ///
    /// Crash: the log's tail moves past it only behind a flush, which makes the discard durable.
    pub fn home_is_discarded(&self, b: &Rc<Buffer>) -> bool {
        let key = b.jh();
        if key == 0 {
            self.bdev.clear_dirty(b);
            return true;
        }
        let dropped = {
            let mut st = self.st.borrow_mut();
            let h = st.heads.get(key);
            let busy = b.flag(BufFlag::Writeback) || b.flag(BufFlag::Reading);
            if busy || h.is_in_transaction() {
                return false;
            }
            h.map.clear_dirty(b);
            match st.try_remove_checkpoint(key) {
                Ok(dropped) => dropped,
                Err(Busy) => return false,
            }
        };
        self.emit_dropped(dropped);
        true
    }

    /// A block that is to leave the cache: what the journal still has of it goes, if it is home and
    /// idle (`jbd2_journal_try_to_free_buffers`).
    pub fn let_go(&self, b: &Rc<Buffer>) {
        let key = b.jh();
        if key == 0 {
            return;
        }
        let dropped = self.st.borrow_mut().try_remove_checkpoint(key);
        if let Ok(dropped) = dropped {
            self.emit_dropped(dropped);
        }
    }

    fn count_conflict(&self, case: Conflict, waited: Span) {
        let mut st = self.st.borrow_mut();
        st.counters.conflicts[case as usize] += 1;
        st.counters.shadow_wait_ns += waited.0;
    }

    fn observe(&self, b: &Buffer, case: Conflict, waited: Span) {
        if let Some(observer) = &self.opts.observer {
            observer.conflict(home_of(b), case, waited);
        }
    }

    /// A file's journaled block is truncated away: it must not be logged by the running
    /// transaction, nor go home after the committing one. Its owner drops it from the cache
    /// afterwards.
    ///
    /// Waits: while the buffer is being written to its home. Source: `journal_unmap_buffer`.
    pub async fn invalidate(&self, b: &Rc<Buffer>) {
        if b.flag(BufFlag::Writeback) && site::INVALIDATE_WAIT.on() {
            b.wait_clear(BufFlag::Writeback).await;
        }
        if b.jh() == 0 {
            return;
        }
        let mut st = self.st.borrow_mut();
        let key = b.jh();
        let (running, committing) = (st.running, st.newest_committing());
        let h = st.heads.get(key);
        let dropped = match h.owner {
            _ if st.versions.is_some()
                && h.is_in_transaction()
                && (h.owner.is_none() || h.owner != running) =>
            {
                st.heads.get_mut(key).modified = false;
                match running {
                    Some(tid) => st.forget_version(key, tid),
                    // The transaction of who cut it off is not over, and the last that has it.
                    None if site::INVALIDATE_FREED.on() => b.set(BufFlag::Freed),
                    None => {}
                }
                if running.is_some() {
                    b.clear(BufFlag::JbdDirty);
                }
                None
            }
            Some(owner) if st.is_committing(owner) => {
                if site::INVALIDATE_FREED.on() {
                    b.set(BufFlag::Freed);
                }
                if let Some(tid) = running.filter(|_| b.flag(BufFlag::JbdDirty)) {
                    let h = st.heads.get_mut(key);
                    h.modified = false;
                    if h.next_owner.is_none() {
                        st.inherit(key, tid);
                    }
                }
                None
            }
            Some(owner) => {
                st.dispose(key, owner);
                None
            }
            // The log copy is needed until the truncate itself has committed.
            None => match (st.try_remove_checkpoint(key), running.or(committing)) {
                (Ok(dropped), _) => dropped,
                (Err(Busy), Some(tid)) => {
                    st.dispose(key, tid);
                    None
                }
                (Err(Busy), None) => {
                    st.heads.get(key).map.clear_dirty(b);
                    st.remove_checkpoint(key)
                }
            },
        };
        drop(st);
        self.emit_dropped(dropped);
    }

    /// The buffer's contents as last committed, if a handle has undo access to it; else as they
    /// are.
    pub fn committed_contents(&self, b: &Buffer) -> wp_medium::Slice {
        if b.jh() == 0 {
            return b.snapshot();
        }
        let st = self.st.borrow();
        st.heads.get(b.jh()).committed.clone().unwrap_or_else(|| b.snapshot())
    }
}
