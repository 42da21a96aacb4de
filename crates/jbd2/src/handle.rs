//! Handles: one atomic update each, counted into the running transaction.
//!
//! Picture:    start (four reasons to wait) -> get_write_access, change, dirty_metadata -> stop.
//! Invariants: 1. a transaction is locked for its commit only when no handle is open in it.
//!             2. a handle never dirties more blocks than it has credits for.
//! Left out:   nesting: callers pass their handle on.
//! Source:     Linux 6.1 `start_this_handle`, `add_transaction_credits`,
//!             `jbd2_journal_{stop,extend,restart}`.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_rt::{CpuOp, MaybeReady};

use crate::counters::JournalCounters;
use crate::journal::Journal;
use crate::site;
use crate::state::{State, TransactionState};

/// What a handle asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credits {
    /// Distinct metadata blocks that it may change.
    pub blocks: u32,
    /// Blocks that it may revoke.
    pub revokes: u32,
    /// Blocks reserved for a second handle that must not wait ([`Handle::take_reserved`]).
    pub reserve: u32,
}

/// One update in progress. End it with [`Handle::stop`]; dropping it (a power cut) only counts it
/// out.
pub struct Handle {
    journal: Rc<Journal>,
    tid: Cell<u32>,
    /// In its transaction; not between the two halves of a restart that failed.
    joined: Cell<bool>,
    /// Blocks that it may still change (`h_total_credits`).
    pub(crate) credits: Cell<i64>,
    pub(crate) revoke_credits: Cell<i64>,
    revokes_requested: Cell<i64>,
    sync: Cell<bool>,
    reserved: Cell<Option<Reserved>>,
}

/// Credits set aside for a handle that will not wait for room. Dropping it gives them back.
pub struct Reserved {
    journal: Rc<Journal>,
    blocks: i64,
}

/// Why a handle could not join yet.
enum Delay {
    /// No handle starts for a while.
    Barrier,
    /// The running transaction does not take handles.
    Locked,
    /// It would grow too large.
    Full,
    /// Too much is reserved: until this much less is.
    Reserved { limit: i64, wanted: i64 },
    /// No room in the log.
    Space,
}

impl Journal {
    /// Starts a handle that may change `credits` blocks.
    ///
    /// Waits: while the running transaction is locked for commit; until a new one begins if it is
    /// too full (and has it committed); for room in the log (checkpointing, or waiting for a
    /// commit); for reserved credits.
    /// Errors: `ReadOnly` on an aborted journal; `NoSpace` if no transaction can ever be that
    ///         large.
    pub fn start(self: &Rc<Self>, credits: u32) -> MaybeReady<'_, FsResult<Handle>> {
        self.start_with(Credits { blocks: credits, ..Credits::default() })
    }

    /// [`Journal::start`] where it need not wait and CPU time costs nothing. `None`: else, or the
    /// journal is aborted; then nothing is done but that a transaction may have begun, as it would
    /// before the wait.
    pub fn start_now(self: &Rc<Self>, credits: u32) -> Option<Handle> {
        let blocks = i64::from(credits);
        if self.rt.is_modelled() || blocks > self.user_max() {
            return None;
        }
        let mut st = self.st.borrow_mut();
        if st.unmount || st.aborted() || st.barriers > 0 {
            return None;
        }
        let tid = match st.running {
            Some(tid) => tid,
            None => self.begin_transaction(&mut st),
        };
        Self::add_credits(&mut st, tid, blocks, 0).ok()?;
        Self::enter(&mut st, tid, blocks);
        drop(st);
        Some(self.new_handle(tid, blocks, 0, None))
    }

    /// As [`Journal::start`], with revoke credits and a reservation.
    #[inline]
    pub fn start_with(self: &Rc<Self>, wanted: Credits) -> MaybeReady<'_, FsResult<Handle>> {
        let mut computing = self.rt.cpu(CpuOp::HandleStart, 1);
        if !computing.is_over() {
            return MaybeReady::later(async move {
                computing.await;
                self.start_charged(wanted).await
            });
        }
        self.start_charged(wanted)
    }

    /// [`Journal::start_with`] when its time has been charged.
    fn start_charged(self: &Rc<Self>, wanted: Credits) -> MaybeReady<'_, FsResult<Handle>> {
        let blocks = i64::from(wanted.blocks) + self.revoke_blocks(i64::from(wanted.revokes));
        let reserve = i64::from(wanted.reserve);
        let max = self.user_max();
        if reserve > max / 2 || blocks + reserve > max {
            return MaybeReady::now(Err(FsError::NoSpace));
        }
        let handle = move |tid| {
            let reserved =
                (reserve > 0).then(|| Reserved { journal: self.clone(), blocks: reserve });
            self.new_handle(tid, blocks, i64::from(wanted.revokes), reserved)
        };
        match self.try_join(blocks, reserve) {
            Ok(Ok(tid)) => MaybeReady::now(Ok(handle(tid))),
            Ok(Err(delay)) => MaybeReady::later(async move {
                self.wait_out(delay).await;
                self.join(blocks, reserve).await.map(handle)
            }),
            Err(e) => MaybeReady::now(Err(e)),
        }
    }

    /// Starts the handle that was set aside.
    ///
    /// Waits: only while the lists of a transaction that goes into commit are put in order, never
    ///        for room.
    /// Errors: `ReadOnly` on an aborted journal.
    pub async fn start_reserved(self: &Rc<Self>, mut reserved: Reserved) -> FsResult<Handle> {
        self.rt.cpu(CpuOp::HandleStart, 1).await;
        let blocks = reserved.blocks;
        loop {
            {
                let mut st = self.st.borrow_mut();
                if st.aborted() {
                    return Err(FsError::ReadOnly);
                }
                let tid = match st.running {
                    Some(tid) => tid,
                    None => self.begin_transaction(&mut st),
                };
                if st.transaction(tid).state != TransactionState::Switch {
                    // The transaction's credits contain all reservations: this one becomes the
                    // handle's own.
                    st.reserved_credits -= reserved.take();
                    Self::enter(&mut st, tid, 0);
                    drop(st);
                    self.wait_reserved.wake_all();
                    return Ok(self.new_handle(tid, blocks, 0, None));
                }
            }
            self.wait_transaction_locked.wait().await;
        }
    }

    fn new_handle(
        self: &Rc<Self>,
        tid: u32,
        blocks: i64,
        revokes: i64,
        reserved: Option<Reserved>,
    ) -> Handle {
        Handle {
            journal: self.clone(),
            tid: Cell::new(tid),
            joined: Cell::new(true),
            credits: Cell::new(blocks),
            revoke_credits: Cell::new(revokes),
            revokes_requested: Cell::new(revokes),
            sync: Cell::new(false),
            reserved: Cell::new(reserved),
        }
    }

    /// Log blocks that `records` revoke records may need.
    pub(crate) fn revoke_blocks(&self, records: i64) -> i64 {
        if records == 0 || !self.opts.era.counts_descriptors() {
            // Before 5.5 nothing was set aside for revoke blocks.
            return 0;
        }
        (records as u64).div_ceil(u64::from(self.revokes_per_block())) as i64
    }

    /// Most credits of one handle: what a fresh transaction has room for.
    fn user_max(&self) -> i64 {
        let st = self.st.borrow();
        st.max_buffers - st.base_credits
    }

    /// Counts a handle into the running transaction.
    async fn join(self: &Rc<Self>, blocks: i64, reserve: i64) -> FsResult<u32> {
        loop {
            match self.try_join(blocks, reserve)? {
                Ok(tid) => return Ok(tid),
                // Boxed, since whoever starts a handle holds this future, and few wait.
                Err(delay) => Box::pin(self.wait_out(delay)).await,
            }
        }
    }

    fn try_join(self: &Rc<Self>, blocks: i64, reserve: i64) -> FsResult<Result<u32, Delay>> {
        let mut st = self.st.borrow_mut();
        if st.unmount {
            return Err(FsError::Invalid("the journal is closed"));
        }
        if st.aborted() {
            return Err(FsError::ReadOnly);
        }
        if st.barriers > 0 {
            st.counters.barrier_waits += 1;
            return Ok(Err(Delay::Barrier));
        }
        let tid = match st.running {
            Some(tid) => tid,
            None => self.begin_transaction(&mut st),
        };
        if let Err(delay) = Self::add_credits(&mut st, tid, blocks, reserve) {
            let c = &mut st.counters;
            match delay {
                Delay::Barrier => {}
                Delay::Locked => c.locked_waits += 1,
                Delay::Full => c.full_waits += 1,
                Delay::Reserved { .. } => c.reserved_waits += 1,
                Delay::Space => c.space_waits += 1,
            }
            return Ok(Err(delay));
        }
        Self::enter(&mut st, tid, blocks + reserve);
        Ok(Ok(tid))
    }

    /// Waits until it is worth trying again.
    async fn wait_out(self: &Rc<Self>, delay: Delay) {
        let since = self.rt.now();
        let lost: fn(&mut JournalCounters) -> &mut u64 = match delay {
            Delay::Barrier => |c| &mut c.barrier_wait_ns,
            Delay::Locked => |c| &mut c.locked_wait_ns,
            Delay::Full => |c| &mut c.full_wait_ns,
            Delay::Reserved { .. } => |c| &mut c.reserved_wait_ns,
            Delay::Space => |c| &mut c.space_wait_ns,
        };
        match delay {
            Delay::Barrier => {
                let held = || self.st.borrow().barriers > 0;
                self.wait_transaction_locked.wait_until(|| !held()).await;
            }
            Delay::Locked | Delay::Full => {
                self.somebody_waits(wp_block::Quasi::Handle);
                let woken = self.wait_transaction_locked.wait();
                if let Some(tid) = self.running_tid() {
                    self.request_commit(tid);
                }
                woken.await;
            }
            Delay::Reserved { limit, wanted } => {
                self.wait_reserved
                    .wait_until(|| self.st.borrow().reserved_credits + wanted <= limit)
                    .await;
            }
            Delay::Space => self.wait_for_space().await,
        }
        *lost(&mut self.st.borrow_mut().counters) += self.rt.now().since(since).0;
    }

    /// The four rules, in the kernel's order; where all are kept, [`Journal::enter`] follows.
    fn add_credits(st: &mut State, tid: u32, blocks: i64, reserve: i64) -> Result<(), Delay> {
        let t = st.transaction(tid);
        let (is_running, outstanding) = (t.state == TransactionState::Running, t.outstanding);
        if !is_running && site::LOCKED_WAIT.on() {
            return Err(Delay::Locked);
        }
        let total = blocks + reserve;
        if outstanding + total > st.max_buffers && site::FULL_WAIT.on() {
            if st.reserved_credits + total + st.base_credits > st.max_buffers {
                let limit = st.max_buffers - st.base_credits;
                return Err(Delay::Reserved { limit, wanted: total });
            }
            return Err(Delay::Full);
        }
        // Room is made before anything is dirtied: a commit that had to wait for a checkpoint might
        // wait for itself.
        if st.space_left() < st.space_needed() && site::SPACE_WAIT.on() {
            return Err(Delay::Space);
        }
        if reserve > 0 && st.reserved_credits + reserve > st.max_buffers / 2 {
            return Err(Delay::Reserved { limit: st.max_buffers / 2, wanted: reserve });
        }
        st.reserved_credits += reserve;
        Ok(())
    }

    /// Counts a handle in that has `credits`.
    fn enter(st: &mut State, tid: u32, credits: i64) {
        let t = st.transaction_mut(tid);
        t.outstanding += credits;
        t.updates += 1;
        t.handles += 1;
        st.counters.handles += 1;
    }
}

impl Handle {
    /// The journal.
    pub fn journal(&self) -> &Rc<Journal> {
        &self.journal
    }

    /// Id of its transaction.
    pub fn tid(&self) -> u32 {
        self.tid.get()
    }

    /// Blocks that it may still change.
    pub fn credits(&self) -> u32 {
        self.credits.get().max(0) as u32
    }

    /// Has the journal been aborted?
    pub fn is_aborted(&self) -> bool {
        self.journal.is_aborted()
    }

    /// [`Handle::stop`] will commit the transaction and wait for it.
    pub fn set_sync(&self) {
        self.sync.set(true);
    }

    /// Runs `f` when the transaction has committed, in the commit thread, before those who wait for
    /// the commit are woken. After a power cut it is dropped. Hold the file system weakly in it.
    pub fn on_commit(&self, f: Box<dyn FnOnce()>) {
        self.journal.st.borrow_mut().transaction_mut(self.tid()).callbacks.push(f);
    }

    /// The reservation that the handle was started with, to be started later.
    pub fn take_reserved(&self) -> Option<Reserved> {
        self.reserved.take()
    }

    /// Asks for `blocks` more credits; false if the transaction cannot give them. Never waits.
    pub fn extend(&self, blocks: u32) -> bool {
        self.extend_with(blocks, 0)
    }

    /// As [`Handle::extend`], with revoke credits. Source: `jbd2_journal_extend`.
    pub fn extend_with(&self, blocks: u32, revokes: u32) -> bool {
        let requested = self.revokes_requested.get();
        let more = i64::from(blocks) + self.journal.revoke_blocks(requested + i64::from(revokes))
            - self.journal.revoke_blocks(requested);
        let mut st = self.journal.st.borrow_mut();
        let max = st.max_buffers;
        if st.aborted() {
            return false;
        }
        let t = st.transaction_mut(self.tid());
        if t.state != TransactionState::Running || t.outstanding + more > max {
            return false;
        }
        t.outstanding += more;
        self.credits.set(self.credits.get() + more);
        self.revoke_credits.set(self.revoke_credits.get() + i64::from(revokes));
        self.revokes_requested.set(requested + i64::from(revokes));
        true
    }

    /// Ends this update, asks for the commit of its transaction, and starts a new one with `blocks`
    /// credits.
    ///
    /// That is in the next transaction, or in the same one if the commit thread has not had its
    /// turn yet and there is room: as in the kernel. Waits: as [`Journal::start`]. Errors: as
    /// there; then the handle is in no transaction and only good for [`Handle::stop`]. Crash: what
    /// was done before may be there without what comes after.
    pub async fn restart(&self, blocks: u32) -> FsResult<()> {
        self.restart_with(blocks, 0).await
    }

    /// As [`Handle::restart`], with revoke credits. Source: `jbd2__journal_restart`.
    pub async fn restart_with(&self, blocks: u32, revokes: u32) -> FsResult<()> {
        if self.is_aborted() {
            return Err(FsError::ReadOnly);
        }
        let tid = self.tid();
        self.leave();
        self.journal.request_commit(tid);
        let wanted = i64::from(blocks) + self.journal.revoke_blocks(i64::from(revokes));
        if wanted > self.journal.user_max() {
            return Err(FsError::NoSpace);
        }
        let tid = self.journal.join(wanted, 0).await?;
        self.tid.set(tid);
        self.joined.set(true);
        self.credits.set(wanted);
        self.revoke_credits.set(i64::from(revokes));
        self.revokes_requested.set(i64::from(revokes));
        Ok(())
    }

    /// Ends the update.
    ///
    /// Waits: a synchronous handle for company and for the commit; any other not at all.
    /// Errors: `Io` if the journal was aborted meanwhile. Source: `jbd2_journal_stop`.
    pub fn stop(self) -> MaybeReady<'static, FsResult<()>> {
        if self.sync.get() && self.joined.get() {
            return MaybeReady::later(async move { self.stop_and_commit().await });
        }
        if self.joined.get() {
            self.end(self.is_too_old());
        }
        MaybeReady::now(if self.is_aborted() { Err(FsError::Io) } else { Ok(()) })
    }

    async fn stop_and_commit(&self) -> FsResult<()> {
        let tid = self.tid();
        self.wait_for_company(tid).await;
        self.journal.st.borrow_mut().transaction_mut(tid).synchronous = true;
        self.journal.want_durable(tid);
        self.end(true);
        self.journal.wait_durable(tid).await
    }

    /// Is its transaction due, or larger than it should be?
    fn is_too_old(&self) -> bool {
        let st = self.journal.st.borrow();
        let t = st.transaction(self.tid());
        let era = &self.journal.opts.era;
        let is_plain = !era.control_blocks_by_share() && !era.counts_descriptors();
        let too_big = is_plain && t.outstanding > st.max_buffers;
        too_big || self.journal.rt.now() >= t.expires
    }

    /// Leaves the transaction, and asks for its commit first.
    fn end(&self, commit: bool) {
        if commit {
            self.journal.request_commit(self.tid());
        }
        drop(self.reserved.take());
        self.leave();
    }

    /// Lets others join before a synchronous commit, unless this task was the last to do one: then
    /// it is probably alone. Sleeps a commit's usual time, if the transaction is younger than that.
    async fn wait_for_company(&self, tid: u32) {
        let j = &self.journal;
        let me = j.rt.current();
        let until = {
            let mut st = j.st.borrow_mut();
            if j.opts.batch_max.0 == 0 || (me.is_some() && st.last_sync_writer == me) {
                return;
            }
            st.last_sync_writer = me;
            let usual = st.average_commit.max(j.opts.batch_min).min(j.opts.batch_max);
            let now = j.rt.now();
            if now.since(st.transaction(tid).started) >= usual {
                return;
            }
            st.counters.batch_sleeps += 1;
            now + usual
        };
        j.rt.sleep_until(until).await;
    }

    /// Gives unused credits back and counts the handle out. Source: `stop_this_handle`.
    fn leave(&self) {
        if !self.joined.replace(false) {
            return;
        }
        let revoked = self.revokes_requested.get() - self.revoke_credits.get();
        let mut credits = self.credits.get();
        let last = {
            let mut st = self.journal.st.borrow_mut();
            let t = st.transaction_mut(self.tid());
            if revoked > 0 {
                // Only the revoke blocks that the transaction really comes to need stay reserved.
                let before = i64::from(t.outstanding_revokes);
                t.outstanding_revokes += revoked as u32;
                credits -= self.journal.revoke_blocks(before + revoked)
                    - self.journal.revoke_blocks(before);
            }
            t.outstanding -= credits;
            assert!(t.updates > 0, "transaction {} has no handle to end", self.tid.get());
            t.updates -= 1;
            t.updates == 0
        };
        if last {
            self.journal.wait_updates.wake_all();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Reserved {
    /// Blocks that it holds.
    pub fn blocks(&self) -> u32 {
        self.blocks as u32
    }

    fn take(&mut self) -> i64 {
        std::mem::take(&mut self.blocks)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let blocks = self.take();
        if blocks == 0 {
            return;
        }
        {
            let mut st = self.journal.st.borrow_mut();
            st.reserved_credits -= blocks;
            // Every transaction begins with all reservations; the running one has no use for this
            // one now.
            if let Some(tid) = st.running {
                st.transaction_mut(tid).outstanding -= blocks;
            }
        }
        self.journal.wait_reserved.wake_all();
    }
}
