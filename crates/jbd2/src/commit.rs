//! The commit of a transaction, phase by phase.
//!
//! Picture:    lock (handles end) -> flush (ordered data is submitted; a new transaction may run)
//!             -> log (revokes, descriptors, metadata, in one plug) -> data complete -> log
//!             complete -> record (flush, FUA) -> buffers to the checkpoint list or the next
//!             transaction -> callbacks -> finished.
//! Invariants: 1. the record is submitted only when ordered data and every log block are complete
//!                (not so with asynchronous commits), and is durable before anyone is told.
//!             2. nothing here waits for room in the log.
//!             3. an aborted journal goes through the same phases and writes nothing.
//! Source:     Linux 6.1 `jbd2_journal_commit_transaction`; order of events checked against traces
//!             of 3.4.2, 3.8.0, 4.6.2 and 6.12.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, Time};
use wp_cache::BufFlag;
use wp_medium::{Content, Page, Slice};
use wp_rt::CpuOp;

use crate::disk;
use crate::heads::{Kind, On, home_of};
use crate::journal::Journal;
use crate::log_io::{LogBlock, LogWrites};
use crate::site;
use crate::state::TransactionState;

/// Shows a slice's bytes, without copying those of a page.
fn with_bytes<R>(slice: &Slice, f: impl FnOnce(&[u8]) -> R) -> R {
    match slice.content() {
        Content::Bytes(page) => {
            let off = slice.offset() as usize;
            f(&page.bytes()[off..off + slice.len() as usize])
        }
        _ => f(&slice.to_vec()),
    }
}

/// What the phases of one commit hand on.
pub(crate) struct Commit {
    pub tid: u32,
    /// When it was locked.
    pub locked: Time,
    /// When it became the committing one.
    pub flush_started: Time,
    /// When its metadata began to be logged.
    pub logging_started: Time,
    /// Descriptor and revoke blocks.
    pub control: Rc<LogWrites>,
    /// Metadata blocks, in the order of the shadow list.
    pub metadata: Rc<LogWrites>,
    /// Running CRC-32 over descriptors and metadata (checksum v1).
    crc: u32,
    /// An asynchronous record, submitted early.
    pub record: Option<Rc<LogWrites>>,
    /// Where the tail may go when the record is durable.
    pub tail: Option<(u32, u32)>,
    pub blocks_logged: u64,
}

impl Journal {
    /// Commits the running transaction. Waits: for its handles, its data and its log blocks. Errors
    /// abort the journal.
    pub(crate) async fn commit(&self) {
        self.write_start_if_empty().await;
        self.keep_fast_out().await;
        let tid = self.running_tid().expect("commits are of a running transaction");
        self.emit_start(tid);
        let locked = self.lock(tid).await;
        self.retire_leftovers(tid);
        self.switch(tid);
        let mut c = Commit {
            tid,
            locked,
            flush_started: self.rt.now(),
            logging_started: self.rt.now(),
            control: LogWrites::new(&self.rt),
            metadata: LogWrites::new(&self.rt),
            crc: !0,
            record: None,
            tail: None,
            blocks_logged: 0,
        };
        if site::ORDERED_SUBMIT.on()
            && let Err(e) = self.submit_ordered(tid).await
        {
            self.abort(e);
        }
        if self.opts.mode.dual().is_some() {
            self.wait_ordered_dispatched(tid).await;
        }
        self.write_log(&mut c).await;
        if self.opts.mode.dual().is_some() {
            return self.dispatch(c).await;
        }
        self.wait_log(&mut c).await;
        if c.tail.is_some() && !site::TAIL_LATER.on() {
            self.advance_tail(c.tail.take()).await;
        }
        self.write_record(&mut c).await;
        self.advance_tail(c.tail).await;
        self.count_run(&c);
        self.settle(tid);
        self.finish(&c).await;
    }

    /// Moves the tail to where it was seen that it could go, if nobody else did meanwhile. The
    /// record's own flush has covered what was written home.
    pub(crate) async fn advance_tail(&self, to: Option<(u32, u32)>) {
        let Some((tid, block)) = to else { return };
        let guard = self.checkpoint_lock.lock().await;
        let still_ahead = disk::tid_after(tid, self.st.borrow().tail_sequence);
        if still_ahead {
            // An error has aborted the journal.
            let _aborted = self.move_tail(&guard, tid, block).await;
        }
    }

    fn emit_start(&self, tid: u32) {
        let sync = self.st.borrow().transaction(tid).synchronous;
        self.emit("start_commit", tid, u64::from(sync));
    }

    pub(crate) fn emit_phase(&self, what: &'static str, tid: u32) {
        let sync = self.st.borrow().transaction(tid).synchronous;
        self.emit(what, tid, u64::from(sync));
    }

    pub(crate) fn set_state(&self, tid: u32, state: TransactionState) {
        let mut st = self.st.borrow_mut();
        let t = st.transaction_mut(tid);
        assert!(t.state < state, "transaction {tid} goes from {:?} to {state:?}", t.state);
        t.state = state;
    }

    /// Phase 0: a log that is empty on disk gets its start. No flush: it becomes durable with the
    /// record.
    async fn write_start_if_empty(&self) {
        if !self.st.borrow().flushed || !site::LOG_START.on() {
            return;
        }
        let guard = self.checkpoint_lock.lock().await;
        let (tid, block) = {
            let st = self.st.borrow();
            (st.tail_sequence, st.tail)
        };
        // An error has aborted the journal; the commit goes on and writes nothing.
        let order = if self.opts.mode.dual().is_some() { Flags::ORDERED } else { Flags::NONE };
        let _aborted = self.write_log_tail(&guard, tid, block, order).await;
    }

    /// Phase 1: no new handles; those that are open end. Returns when it was locked.
    async fn lock(&self, tid: u32) -> Time {
        self.count_in_flight();
        let locked = loop {
            self.wait_coalescing(tid).await;
            let locked = self.rt.now();
            self.set_state(tid, TransactionState::Locked);
            self.emit_phase("commit_locking", tid);
            let open = || self.st.borrow().transaction(tid).updates > 0;
            if open() && site::HANDLES_WAIT.on() {
                self.wait_updates.wait_until(|| !open()).await;
            }
            self.set_state(tid, TransactionState::Switch);
            if self.wait_for_older(tid).await {
                break locked;
            }
        };
        let st = self.st.borrow();
        let outstanding = st.transaction(tid).outstanding;
        assert!(
            outstanding <= st.max_buffers,
            "{outstanding} credits outstanding of {}",
            st.max_buffers
        );
        locked
    }

    /// Buffers that a handle reserved and did not change go back; what went home leaves the
    /// checkpoint lists.
    fn retire_leftovers(&self, tid: u32) {
        let dropped = {
            let mut st = self.st.borrow_mut();
            loop {
                let key = st.transaction(tid).list(On::Reserved).first;
                if key == 0 {
                    break;
                }
                st.heads.get_mut(key).committed = None;
                st.refile(key);
            }
            st.clean_checkpoints(false)
        };
        self.emit_dropped(dropped);
        self.switch_revoke_table();
    }

    /// The transaction becomes the committing one; a new one may run.
    fn switch(&self, tid: u32) {
        self.emit_phase("commit_flushing", tid);
        {
            let mut st = self.st.borrow_mut();
            assert!(st.committing.is_none(), "{:?} is committing", st.committing);
            let (head, reserved) = (st.head, st.reserved_credits);
            let t = st.transaction_mut(tid);
            // Nobody can claim a reservation in it any more.
            t.outstanding -= reserved;
            t.state = TransactionState::Flush;
            t.log_start = head;
            st.committing = Some(tid);
            st.running = None;
        }
        self.wait_transaction_locked.wake_all();
    }

    /// Phase 2: revokes, then descriptors with their metadata, all under one plug; then the ordered
    /// data is waited for.
    async fn write_log(&self, c: &mut Commit) {
        let plug = self.bdev.queue().plug();
        self.write_revokes(c);
        self.set_state(c.tid, TransactionState::Commit);
        self.emit_phase("commit_logging", c.tid);
        c.logging_started = self.rt.now();
        self.count_blocks(c.tid);
        self.write_metadata(c).await;
        if let Err(e) = self.finish_ordered(c.tid).await
            && self.opts.abort_on_data_error
        {
            self.abort(e);
        }
        c.tail = self.worthwhile_tail();
        self.set_state(c.tid, TransactionState::CommitDflush);
        if self.format.get().has(disk::INCOMPAT_ASYNC_COMMIT) {
            c.record = self.submit_record(c);
        }
        drop(plug);
    }

    /// Where the tail could go, if that frees enough to be worth a superblock write.
    fn worthwhile_tail(&self) -> Option<(u32, u32)> {
        if !self.opts.era.forced_tail() {
            return None;
        }
        let st = self.st.borrow();
        let (tid, block) = st.log_tail()?;
        (st.freed_up_to(block) >= st.max_buffers).then_some((tid, block))
    }

    /// A log block for control data, taken from the transaction's credits.
    fn control_block(&self, tid: u32) -> u32 {
        let mut st = self.st.borrow_mut();
        st.transaction_mut(tid).outstanding -= 1;
        st.counters.control_blocks += 1;
        st.next_log_block()
    }

    fn write_revokes(&self, c: &mut Commit) {
        let blocks = self.take_revoke_blocks(c.tid);
        if self.is_aborted() || (!blocks.is_empty() && !site::REVOKES.on()) {
            return;
        }
        let (last, alone) = (blocks.len().wrapping_sub(1), self.next_metadata(c.tid).is_none());
        for (i, bytes) in blocks.iter().enumerate() {
            let block = LogBlock {
                log: self.control_block(c.tid),
                data: Slice::from_bytes(bytes),
                shadow: None,
            };
            let order = self.log_order(alone && i == last);
            if !self.submit_log(&c.control, block, order) {
                self.abort(FsError::Io);
            }
        }
    }

    /// One descriptor after the other, each with the metadata that it describes.
    async fn write_metadata(&self, c: &mut Commit) {
        let bytes = self.bs.bytes() as usize;
        let format = self.format.get();
        let batch_max = bytes / if self.opts.era.sizes_batch_by_tag() { 8 } else { 12 };
        while let Some(first) = self.next_metadata(c.tid) {
            // Made in the page that goes to the log.
            let mut page = Page::zeroed();
            let descriptor = &mut page.make_mut()[..bytes];
            disk::put_header(descriptor, disk::DESCRIPTOR, c.tid);
            let place = self.control_block(c.tid);
            let mut at = size_of::<disk::Header>();
            let mut batch: Vec<LogBlock> = Vec::new();
            let mut next = Some(first);
            while let Some(key) = next {
                self.rt.cpu(CpuOp::JournalBlock, 1).await;
                if self.opts.force_copy && self.st.borrow().heads.get(key).frozen.is_none() {
                    // A page and a copy into it. That of a read has a look-up in it besides, so
                    // this is an upper bound.
                    self.rt.cpu(CpuOp::PageRead, 1).await;
                }
                let (mut tag, block) = self.freeze(c.tid, key);
                if batch.is_empty() {
                    at = format.put_first_tag(descriptor, at, &tag, &self.sb.get().uuid);
                } else {
                    tag.flags |= disk::TAG_SAME_UUID;
                    at = format.put_tag(descriptor, at, &tag);
                }
                batch.push(block);
                let room =
                    bytes - at >= format.tag_bytes() + disk::UUID_BYTES + format.tail_bytes();
                next = self.next_metadata(c.tid).filter(|_| room && batch.len() + 1 < batch_max);
                if next.is_none() {
                    // The last tag of a descriptor says so; it starts where it was put.
                    let uuid = if batch.len() == 1 { disk::UUID_BYTES } else { 0 };
                    tag.flags |= disk::TAG_LAST;
                    format.put_tag(descriptor, at - uuid - format.tag_bytes(), &tag);
                }
            }
            if site::DESCRIPTOR_CHECKSUM.on() {
                format.set_tail(descriptor);
            }
            let descriptor = Slice::of_page(page, 0, bytes as u32);
            let is_last = self.next_metadata(c.tid).is_none();
            self.submit_batch(c, place, descriptor, batch, is_last);
        }
    }

    /// Submits a descriptor and its blocks, in this order; `is_last`: the transaction's last ones.
    fn submit_batch(
        &self,
        c: &mut Commit,
        place: u32,
        descriptor: Slice,
        batch: Vec<LogBlock>,
        is_last: bool,
    ) {
        if self.format.get().csum_v1() {
            c.crc = with_bytes(&descriptor, |bytes| disk::crc32_be(c.crc, bytes));
            for b in &batch {
                c.crc = with_bytes(&b.data, |bytes| disk::crc32_be(c.crc, bytes));
            }
        }
        let head = LogBlock { log: place, data: descriptor, shadow: None };
        let mut ok = self.submit_log(&c.control, head, self.log_order(false));
        let last = batch.len() - 1;
        for (i, b) in batch.into_iter().enumerate() {
            ok &= self.submit_log(&c.metadata, b, self.log_order(is_last && i == last));
        }
        if !ok {
            self.abort(FsError::Io);
        }
    }

    /// The next buffer to log; an aborted journal lets all of them go instead.
    fn next_metadata(&self, tid: u32) -> Option<u32> {
        let mut st = self.st.borrow_mut();
        loop {
            let key = st.transaction(tid).list(On::Metadata).first;
            if key == 0 {
                return st.next_unlogged(tid);
            }
            if !st.aborted() {
                return Some(key);
            }
            st.heads.get(key).buffer.clear(BufFlag::JbdDirty);
            st.refile(key);
        }
    }

    /// Takes a buffer's contents for the log and puts it into the shadow.
    ///
    /// The transaction's own copy if it has one, else the buffer's bytes, which nobody may then
    /// change until they are written. A block that looks like a control block is escaped, and that
    /// copy is the transaction's own.
    /// Source: `jbd2_journal_write_metadata_buffer`.
    fn freeze(&self, tid: u32, key: u32) -> (disk::ParsedTag, LogBlock) {
        let format = self.format.get();
        let mut st = self.st.borrow_mut();
        st.transaction_mut(tid).outstanding -= 1;
        st.counters.blocks_logged += 1;
        let log = st.next_log_block();
        let version = st.take_unlogged(tid, key);
        let (versions, detached) = (st.versions.is_some(), version.is_some());
        let h = st.heads.get_mut(key);
        let b = h.buffer.clone();
        let is_forced = self.opts.force_copy && !versions && h.frozen.is_none();
        if is_forced {
            // `do_get_write_access` tests for a copy before it tests for the shadow, so the next
            // handle joins (case 2) instead of waiting (case 3).
            h.frozen = Some(b.snapshot());
        }
        let mut data = version.or(h.frozen.clone()).unwrap_or_else(|| b.snapshot());
        st.counters.forced_copies += u64::from(is_forced);
        let h = st.heads.get_mut(key);
        let mut flags = 0;
        let mut start = [0u8; 4];
        data.sub(0, 4).copy_to(&mut start);
        if start == disk::MAGIC.to_be_bytes() && site::ESCAPE.on() {
            // Kept unescaped: it may become the committed contents of an undo.
            if !versions {
                h.frozen.get_or_insert_with(|| data.clone());
            }
            data = disk::escaped(&data.to_vec()).map_or(data, |bytes| Slice::from_bytes(&bytes));
            flags = disk::TAG_ESCAPE;
            st.counters.escaped += 1;
        }
        if versions {
            // The log is written from a copy.
            if !detached {
                st.file(key, tid, On::Forget);
            }
        } else {
            st.file(key, tid, On::Shadow);
            if site::SHADOW_KEEP.on() {
                b.set(BufFlag::Shadow);
            }
        }
        let checksum = if format.csum_v2or3() && site::TAG_CHECKSUM.on() {
            with_bytes(&data, |d| format.tag_checksum(tid, d))
        } else {
            0
        };
        let tag = disk::ParsedTag { block: home_of(&b), flags, checksum };
        (tag, LogBlock { log, data, shadow: Some(b).filter(|_| !versions) })
    }

    /// Phases 3 and 4: the log blocks are waited for, from the last to the first; their buffers are
    /// free to change.
    pub(crate) async fn wait_log(&self, c: &mut Commit) {
        let mut failed = false;
        for slot in (0..c.metadata.len()).rev() {
            if site::METADATA_WAIT.on() {
                failed |= !c.metadata.wait(slot).await;
            }
            let mut st = self.st.borrow_mut();
            if st.versions.is_some() {
                continue;
            }
            let key = st.heads.last(st.transaction(c.tid).list(On::Shadow), Kind::Transaction);
            let b = st.heads.get(key).buffer.clone();
            st.file(key, c.tid, On::Forget);
            drop(st);
            if b.clear(BufFlag::Shadow) {
                b.wake();
            }
        }
        for slot in (0..c.control.len()).rev() {
            if site::CONTROL_WAIT.on() {
                failed |= !c.control.wait(slot).await;
            }
        }
        c.blocks_logged = (c.metadata.len() + c.control.len()) as u64;
        if failed {
            self.abort(FsError::Io);
        }
    }

    /// Phase 5: the record, durable at the end unless barriers are off.
    async fn write_record(&self, c: &mut Commit) {
        self.set_state(c.tid, TransactionState::CommitJflush);
        let asynchronous = self.format.get().has(disk::INCOMPAT_ASYNC_COMMIT);
        // An empty transaction writes its record too: nothing in jbd2 has ever skipped it. Kernels
        // of today show no lone record because ext4 no longer starts such handles.
        if !asynchronous {
            c.record = self.submit_record(c);
        }
        let mut result: FsResult<()> = Ok(());
        if let Some(record) = c.record.take() {
            if site::RECORD_WAIT.on() && !record.wait(0).await {
                result = Err(FsError::Io);
            }
            c.blocks_logged += 1;
        }
        if asynchronous && self.opts.barrier && !self.is_aborted() && site::ASYNC_FLUSH.on() {
            let flushed = self.bdev.queue().flush().await;
            result = result.and(flushed.map_err(|_| FsError::Io));
        }
        if let Err(e) = result {
            self.abort(e);
        }
    }

    /// Submits the commit record; `None` on an aborted journal.
    pub(crate) fn submit_record(&self, c: &Commit) -> Option<Rc<LogWrites>> {
        if self.is_aborted() {
            return None;
        }
        let format = self.format.get();
        let mut page = Page::zeroed();
        let bytes = &mut page.make_mut()[..self.bs.bytes() as usize];
        disk::put_header(bytes, disk::COMMIT, c.tid);
        let now = self.rt.now();
        let time = (self.opts.epoch_secs + now.secs(), now.subsec_nanos());
        format.put_record(bytes, time, c.crc);
        if site::RECORD_CHECKSUM.on() {
            format.set_commit(bytes);
        }
        let dual = self.opts.mode.dual().is_some();
        let barrier = !dual && self.opts.barrier && !format.has(disk::INCOMPAT_ASYNC_COMMIT);
        let mut extra = self.log_order(true);
        if barrier && self.opts.preflush && site::PREFLUSH.on() {
            extra |= Flags::PREFLUSH;
        }
        if barrier && site::RECORD_FUA.on() {
            extra |= Flags::FUA;
        }
        let writes = LogWrites::new(&self.rt);
        let log = self.control_block(c.tid);
        let data = Slice::of_page(page, 0, self.bs.bytes());
        let block = LogBlock { log, data, shadow: None };
        if !self.submit_log(&writes, block, extra) {
            self.abort(FsError::Io);
        }
        Some(writes)
    }

    /// Phase 6: every buffer goes on: to the checkpoint list, to the transaction that wants it
    /// next, or away.
    pub(crate) fn settle(&self, tid: u32) {
        let mut gone = Vec::new();
        {
            let mut st = self.st.borrow_mut();
            assert!(st.transaction(tid).list(On::Metadata).is_empty());
            assert!(st.transaction(tid).list(On::Shadow).is_empty());
            loop {
                let key = st.transaction(tid).list(On::Forget).first;
                if key == 0 {
                    break;
                }
                let aborted = st.aborted();
                let h = st.heads.get_mut(key);
                // What was frozen is what is committed now, if anyone keeps that for undo.
                let frozen = h.frozen.take();
                if h.committed.is_some() {
                    h.committed = frozen;
                }
                let b = h.buffer.clone();
                let next = h.next_owner;
                gone.extend(st.remove_checkpoint(key));
                if next.is_none() && b.clear(BufFlag::Freed) {
                    b.clear(BufFlag::JbdDirty);
                }
                if b.flag(BufFlag::JbdDirty) && site::CHECKPOINT_LIST.on() {
                    st.insert_checkpoint(key, tid);
                    if aborted {
                        b.clear(BufFlag::JbdDirty);
                    }
                }
                st.refile(key);
            }
            st.settle_versions(tid, &mut gone);
            st.checkpoint.push_back(tid);
        }
        self.emit_dropped(gone);
    }

    /// Phase 7: told to everyone.
    pub(crate) async fn finish(&self, c: &Commit) {
        let callbacks = {
            let mut st = self.st.borrow_mut();
            st.settled_sequence = c.tid;
            let t = st.transaction_mut(c.tid);
            t.state = TransactionState::CommitCallback;
            std::mem::take(&mut t.callbacks)
        };
        self.emit("run_stats", c.tid, c.blocks_logged);
        for f in callbacks {
            f();
        }
        let told = self.told.borrow().clone();
        if let Some(told) = told {
            told(c.tid).await;
        }
        self.let_fast_in(c.tid);
        let (tail, dropped) = {
            let mut st = self.st.borrow_mut();
            let tail = st.tail_sequence;
            st.transaction_mut(c.tid).state = TransactionState::Finished;
            (tail, st.drop_if_done(c.tid))
        };
        self.emit("end_commit", c.tid, u64::from(tail));
        self.emit_dropped(dropped);
        self.wait_done_commit.wake_all();
        self.wait_fast.wake_all();
    }
}
