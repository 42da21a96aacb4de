//! Checkpoints: committed blocks go home, and the log's tail follows.
//!
//! Picture:    usually the flusher writes the blocks and commits find them clean. With too little
//!             room in the log, the oldest transaction is written in batches; then: flush the
//!             device, write the superblock, free the space.
//! Invariants: 1. log space is freed only when what it held is home *and* flushed, and the
//!                superblock says so.
//!             2. a buffer that a newer transaction owns goes home only after that one has
//!                committed.
//! Source:     Linux 6.1 `fs/jbd2/checkpoint.c`.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::{BufFlag, Buffer, Mapping};
use wp_rt::LockGuard;

use crate::heads::home_of;
use crate::journal::Journal;
use crate::options::CHECKPOINT_BATCH;
use crate::site;

/// Buffers to send home, with the address spaces that they are cached in.
type Batch = Vec<(Rc<Buffer>, Rc<Mapping>)>;

/// What moving the tail came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tail {
    Moved,
    /// The oldest transaction is still needed.
    Stuck,
}

/// What to do next with the oldest transaction.
enum Next {
    /// It is done, or gone.
    Done,
    /// A newer transaction owns this one's buffer: commit it first.
    Commit(u32),
    /// This buffer is on its way home.
    Wait(Rc<Buffer>),
    /// The batch is full.
    Flush,
}

impl Journal {
    /// Waits until a full transaction fits into the log.
    ///
    /// Waits: for checkpoints, or for the committing transaction if there is nothing to checkpoint.
    /// Source: `__jbd2_log_wait_for_space`.
    pub(crate) async fn wait_for_space(&self) {
        loop {
            let guard = self.checkpoint_lock.lock().await;
            let (enough, has_old, committing) = {
                let st = self.st.borrow();
                if st.aborted() {
                    return;
                }
                (
                    st.space_left() >= st.space_needed(),
                    !st.checkpoint.is_empty(),
                    st.newest_committing(),
                )
            };
            if enough {
                return;
            }
            if has_old {
                // An error has aborted the journal; the caller sees that.
                let _aborted = self.do_checkpoint(guard).await;
                continue;
            }
            let moved = self.clean_tail(&guard).await;
            drop(guard);
            match (moved, committing) {
                (Ok(Tail::Moved) | Err(_), _) => {}
                (Ok(Tail::Stuck), Some(tid)) => {
                    let _aborted = self.wait_commit(tid).await;
                }
                // Nothing to write home, nothing committing, and still no room: the accounting is
                // wrong.
                (Ok(Tail::Stuck), None) => self.abort(FsError::Io),
            }
        }
    }

    /// Writes everything in the log home and marks the log empty; commits first what is running.
    ///
    /// Waits: for all of that. The caller has no handle open and keeps others from starting.
    /// Errors: `Io` on an aborted journal. Source: `jbd2_journal_flush`.
    pub async fn checkpoint_all(&self) -> FsResult<()> {
        self.force_commit().await?;
        while !self.st.borrow().checkpoint.is_empty() {
            self.checkpoint_oldest().await?;
        }
        let guard = self.checkpoint_lock.lock().await;
        self.clean_tail(&guard).await?;
        self.mark_empty(&guard, Flags::FUA).await
    }

    /// Checkpoints the oldest transaction.
    pub(crate) async fn checkpoint_oldest(&self) -> FsResult<()> {
        let guard = self.checkpoint_lock.lock().await;
        self.do_checkpoint(guard).await
    }

    /// Moves the tail past what is home. Source: `jbd2_cleanup_journal_tail`.
    async fn clean_tail(&self, guard: &LockGuard<'_, ()>) -> FsResult<Tail> {
        if self.is_aborted() {
            return Err(FsError::Io);
        }
        let Some((tid, block)) = self.st.borrow().log_tail() else { return Ok(Tail::Stuck) };
        // What was just written home may be in the device's cache; the log copy goes only when it
        // is not.
        let flush = self.opts.barrier && self.opts.era.forced_tail() && site::TAIL_FLUSH.on();
        if flush && self.bdev.queue().flush().await.is_err() {
            self.abort(FsError::Io);
            return Err(FsError::Io);
        }
        self.move_tail(guard, tid, block).await?;
        Ok(Tail::Moved)
    }

    /// Source: `jbd2_log_do_checkpoint`.
    async fn do_checkpoint<'a>(&'a self, mut guard: LockGuard<'a, ()>) -> FsResult<()> {
        let moved = self.clean_tail(&guard).await?;
        self.emit("checkpoint", self.st.borrow().tail_sequence, u64::from(moved == Tail::Stuck));
        if moved == Tail::Moved {
            return Ok(());
        }
        let Some(oldest) = self.st.borrow().checkpoint.front().copied() else { return Ok(()) };
        self.st.borrow_mut().counters.checkpoints += 1;
        let mut batch = Batch::new();
        loop {
            match self.gather(oldest, &mut batch) {
                Next::Done => break,
                Next::Flush => self.flush_batch(&mut batch).await,
                Next::Wait(b) => {
                    self.flush_batch(&mut batch).await;
                    b.wait_clear(BufFlag::Writeback).await;
                    b.wait_clear(BufFlag::Reading).await;
                }
                Next::Commit(tid) => {
                    self.flush_batch(&mut batch).await;
                    self.st.borrow_mut().counters.forced_commits += 1;
                    self.request_commit(tid);
                    // That commit may want to move the tail itself.
                    drop(guard);
                    let done = self.wait_commit(tid).await;
                    guard = self.checkpoint_lock.lock().await;
                    done?;
                }
            }
        }
        self.clean_tail(&guard).await?;
        Ok(())
    }

    /// Goes through the transaction's list until something has to be done, or the batch is full.
    fn gather(&self, tid: u32, batch: &mut Batch) -> Next {
        use crate::heads::Kind;
        let mut st = self.st.borrow_mut();
        loop {
            if st.checkpoint.front() != Some(&tid) {
                return Next::Done;
            }
            let key = st.transaction(tid).checkpoint.first;
            if key == 0 {
                return if batch.is_empty() { Next::Done } else { Next::Flush };
            }
            let head = st.heads.get(key);
            let (b, map) = (head.buffer.clone(), head.map.clone());
            if batch.first().is_some_and(|(first, _)| Rc::ptr_eq(first, &b)) {
                // Once around.
                return Next::Flush;
            }
            if let Some(owner) = head.newest()
                && site::NEWER_COMMIT.on()
            {
                return Next::Commit(owner);
            }
            let busy = b.flag(BufFlag::Writeback) || b.flag(BufFlag::Reading);
            if busy && site::HOME_WAIT.on() {
                return Next::Wait(b);
            }
            if b.flag(BufFlag::Dirty) && !site::HOME_WRITE.on() {
                map.clear_dirty(&b);
            }
            if !b.flag(BufFlag::Dirty) {
                let dropped = st.remove_checkpoint(key);
                if let Some(d) = dropped {
                    drop(st);
                    self.emit_dropped([d]);
                    return Next::Done;
                }
                if st.transaction(tid).checkpoint.is_empty() {
                    return Next::Done;
                }
                continue;
            }
            // It stays on the list until it is seen to be clean: somebody may dirty it again
            // meanwhile.
            let after = st.heads.next(Kind::Checkpoint, key);
            st.transaction_mut(tid).checkpoint.first = after;
            st.counters.checkpoint_blocks += 1;
            batch.push((b, map));
            if batch.len() == CHECKPOINT_BATCH {
                return Next::Flush;
            }
        }
    }

    /// Submits a batch under one plug. Waits: for a buffer that is being written already.
    async fn flush_batch(&self, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let plug = self.bdev.queue().plug();
        for (b, map) in batch.drain(..) {
            if b.flag(BufFlag::Writeback) && site::BATCH_WAIT.on() {
                b.wait_clear(BufFlag::Writeback).await;
            }
            if !b.flag(BufFlag::Dirty) {
                continue;
            }
            if Rc::ptr_eq(&map, self.bdev.mapping()) {
                self.bdev.submit_write(&b, Flags::SYNC);
            } else {
                self.submit_data(b, map);
            }
        }
        drop(plug);
    }

    /// Sends a file's journaled block home.
    fn submit_data(&self, b: Rc<Buffer>, map: Rc<Mapping>) {
        map.begin_writeback(&b);
        let at = self.bs.sector_of(home_of(&b));
        let bio = Bio::write(at, vec![b.snapshot()], Flags::SYNC);
        let done = move |end: wp_block::BioEnd| map.end_writeback(&b, end.status.is_err());
        self.bdev.queue().submit(bio.on_end(done));
    }
}
