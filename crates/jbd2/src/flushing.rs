//! Dual-mode journaling: one thread dispatches commits, another waits for them and flushes.
//!
//! Picture:    commit thread: lock -> wait for buffers that older transactions still have -> log
//!             blocks in order, the last one a barrier -> record, a barrier -> handed over, as soon
//!             as the device has them. Flush thread, oldest first: transfers complete -> flush, if
//!             somebody wants it durable -> buffers go on -> over.
//! Invariants: 1. transactions are dispatched in order, each log before its record and each record
//!                before the next log, with a barrier between: an order-keeping device that has a
//!                record has all that came before it.
//!             2. a transaction does not begin its commit while an older one has a buffer that it
//!                wants; so a buffer has one owner and at most one heir.
//!             3. who waits for durability has a flush behind the record.
//! Source:     BarrierFS (Won et al., FAST 2018) and its published kernel (3.10.61,
//!             `jbd2_journal_barrier_commit_transaction`, `jbd2_journal_cpsetup_transaction`);
//!             coalescing and compound flush: CJFS (FAST 2023). Not as there: the log's tail never
//!             passes a transaction that waits for the flush thread; an fsync that finds its
//!             transaction asked for by a call that wanted order only still gets its flush; a
//!             forced commit waits until it is durable.

use std::rc::{Rc, Weak};

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_rt::WaitQueue;

use crate::commit::Commit;
use crate::disk::tid_after;
use crate::journal::Journal;
use crate::site;
use crate::state::TransactionState;

impl Journal {
    /// How a log block is ordered: not at all, within its epoch, or as the last one of it.
    pub(crate) fn log_order(&self, ends_epoch: bool) -> Flags {
        match self.opts.mode.dual() {
            None => Flags::NONE,
            Some(_) if ends_epoch && site::EPOCH_END.on() => Flags::ORDERED | Flags::BARRIER,
            Some(_) => Flags::ORDERED,
        }
    }

    fn coalesces(&self) -> bool {
        self.opts.mode.dual().is_some_and(|dual| dual.coalesce)
    }

    /// Opportunistic coalescing: the transaction takes handles as long as it could not commit.
    pub(crate) async fn wait_coalescing(&self, tid: u32) {
        if self.coalesces() && self.must_wait(tid) {
            self.wait_out_older(tid).await;
        }
    }

    /// The delayed commit: waits until no older transaction has a buffer of this one. `false`: it
    /// takes handles again instead.
    pub(crate) async fn wait_for_older(&self, tid: u32) -> bool {
        if !self.must_wait(tid) {
            return true;
        }
        if self.coalesces() {
            let mut st = self.st.borrow_mut();
            st.counters.coalesced += 1;
            st.transaction_mut(tid).state = TransactionState::Running;
            drop(st);
            self.wait_transaction_locked.wake_all();
            return false;
        }
        self.wait_out_older(tid).await;
        true
    }

    fn must_wait(&self, tid: u32) -> bool {
        self.st.borrow().transaction(tid).waits > 0 && site::CONFLICT_WAIT.on()
    }

    async fn wait_out_older(&self, tid: u32) {
        let waits = || self.st.borrow().transaction(tid).waits;
        {
            let mut st = self.st.borrow_mut();
            let found = u64::from(st.transaction(tid).waits);
            st.counters.delayed_commits += 1;
            st.counters.wait_list_sum += found;
        }
        let since = self.rt.now();
        self.wait_done_commit.wait_until(|| waits() == 0).await;
        self.st.borrow_mut().counters.delay_ns += self.rt.now().since(since).0;
    }

    /// What is left of a commit for the commit thread: the record is sent when the device has the
    /// log blocks, and when it has the record the next may commit.
    pub(crate) async fn dispatch(&self, mut c: Commit) {
        if site::LOG_DISPATCH.on() {
            c.metadata.wait_dispatched().await;
            c.control.wait_dispatched().await;
        }
        self.set_state(c.tid, TransactionState::CommitJflush);
        c.record = self.submit_record(&c);
        if let Some(record) = &c.record
            && site::RECORD_DISPATCH.on()
        {
            record.wait_dispatched().await;
        }
        c.blocks_logged = (c.metadata.len() + c.control.len()) as u64;
        c.blocks_logged += u64::from(c.record.is_some());
        self.advance_tail(c.tail.take()).await;
        self.count_run(&c);
        self.st.borrow_mut().flushing.push_back(c.tid);
        self.handed.borrow_mut().push_back(c);
        self.wait_flush.wake_all();
        self.wait_done_commit.wake_all();
    }

    /// Ends the oldest transaction that was dispatched; `false` if there is none.
    ///
    /// Waits: for its transfers and its flush. Errors abort the journal. Source:
    /// `jbd2_journal_cpsetup_transaction`.
    pub(crate) async fn end_oldest(&self) -> bool {
        let Some(mut c) = self.handed.borrow_mut().pop_front() else { return false };
        let blocks = c.blocks_logged;
        self.wait_log(&mut c).await;
        c.blocks_logged = blocks;
        if let Some(record) = c.record.take()
            && site::RECORD_WAIT.on()
            && !record.wait(0).await
        {
            self.abort(FsError::Io);
        }
        if self.flush_is_due(c.tid) {
            if site::DUAL_FLUSH.on() && self.bdev.queue().flush().await.is_err() {
                self.abort(FsError::Io);
            }
            let mut st = self.st.borrow_mut();
            st.counters.flushes += 1;
            st.flush_sequence = c.tid;
        }
        self.settle(c.tid);
        self.st.borrow_mut().flushing.pop_front();
        self.finish(&c).await;
        true
    }

    /// Is a flush sent for this one, which has arrived? Compound flush leaves it to a later one
    /// that was dispatched already.
    fn flush_is_due(&self, tid: u32) -> bool {
        let group = self.opts.mode.dual().unwrap_or_default().compound_flush.get();
        let mut st = self.st.borrow_mut();
        let wanted = st.transaction(tid).flush_wanted || st.flush_owed;
        let due = tid.is_multiple_of(group) || st.flushing.len() == 1;
        st.flush_owed = wanted && !due;
        wanted && due
    }

    /// Makes durable what the flush thread has ended without a flush; nothing with one commit at a
    /// time.
    pub(crate) async fn flush_settled(&self) -> FsResult<()> {
        let tid = {
            let st = self.st.borrow();
            let owed = tid_after(st.settled_sequence, st.flush_sequence);
            if self.opts.mode.dual().is_none() || !owed {
                return Ok(());
            }
            st.settled_sequence
        };
        if site::SETTLED_FLUSH.on() {
            self.bdev.queue().flush().await.map_err(|_| FsError::Io)?;
        }
        let mut st = self.st.borrow_mut();
        st.counters.flushes += 1;
        if tid_after(tid, st.flush_sequence) {
            st.flush_sequence = tid;
        }
        drop(st);
        self.wait_done_commit.wake_all();
        Ok(())
    }

    /// Asks that `tid`, which is running or being dispatched, be durable when it is over. `false`
    /// if it is neither.
    pub(crate) fn want_durable(&self, tid: u32) -> bool {
        let mut st = self.st.borrow_mut();
        let open = st.running == Some(tid) || st.committing == Some(tid);
        if open {
            st.transaction_mut(tid).flush_wanted = true;
        }
        open
    }

    /// Waits until `tid`, of which that was asked ([`Journal::want_durable`]), is over and durable.
    ///
    /// Errors: `Io` on an aborted journal.
    pub(crate) async fn wait_durable(&self, tid: u32) -> FsResult<()> {
        self.wait_commit(tid).await?;
        if self.opts.mode.dual().is_some() && site::DURABLE_WAIT.on() {
            let later = || !self.is_aborted() && tid_after(tid, self.st.borrow().flush_sequence);
            self.wait_done_commit.wait_until(|| !later()).await;
        }
        if self.is_aborted() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Makes `tid`, which is not over or was not when this was called, durable.
    pub(crate) async fn force_durable(&self, tid: u32) -> FsResult<()> {
        if self.want_durable(tid) {
            return self.wait_durable(tid).await;
        }
        // The flush thread has it, perhaps without a flush.
        self.wait_commit(tid).await?;
        self.flush_settled().await
    }

    /// As [`Journal::complete_transaction`], and durable in dual mode too, whoever had it
    /// committed.
    ///
    /// Errors: `Io` on an aborted journal, and when the flush fails.
    pub async fn make_durable(&self, tid: u32) -> FsResult<()> {
        self.complete_transaction(tid).await?;
        let later = tid_after(tid, self.st.borrow().flush_sequence);
        if later { self.flush_settled().await } else { Ok(()) }
    }

    /// Has `tid` committed, in order but not durably, and waits until it was dispatched. With one
    /// commit at a time there is no such thing, and it is durable. A stale id is committed already.
    ///
    /// Errors: `Io` on an aborted journal. Source: `jbd2_complete_transaction` as BarrierFS'
    /// `fbarrier` uses it.
    pub async fn order_transaction(&self, tid: u32) -> FsResult<()> {
        if self.opts.mode.dual().is_none() {
            return self.complete_transaction(tid).await;
        }
        self.request_commit(tid);
        let dispatched = || !tid_after(tid, self.st.borrow().commit_sequence);
        if !dispatched() && site::ORDER_WAIT.on() {
            self.wait_done_commit.wait_until(dispatched).await;
        }
        if self.is_aborted() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Transactions that wait for the flush thread when a commit begins.
    pub(crate) fn count_in_flight(&self) {
        let waiting = self.handed.borrow().len() as u64;
        let counters = &mut self.st.borrow_mut().counters;
        counters.in_flight_sum += waiting;
        counters.in_flight_max = counters.in_flight_max.max(waiting);
    }
}

/// The flush thread. Ends when the commit thread has, and nothing is left. Source: `kjournald2cp`.
pub(crate) async fn run(weak: Weak<Journal>, wake: Rc<WaitQueue>) {
    loop {
        let Some(j) = weak.upgrade() else { return };
        if j.end_oldest().await {
            continue;
        }
        let over = {
            let st = j.st.borrow();
            st.unmount && !st.thread_alive
        };
        if over {
            j.st.borrow_mut().flush_thread_alive = false;
            j.wait_done_commit.wake_all();
            return;
        }
        drop(j);
        wake.wait().await;
    }
}
