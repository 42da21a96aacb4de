//! Fast commits: what the journal lends to a file system that logs the changes of an fsync as
//! records of its own, behind the ring.
//!
//! Picture:    [`Journal::begin_fast`] (waits for whoever commits) -> [`Journal::lock_updates`] ->
//!             [`FastWrites`]: blocks of the area, from its start on -> [`Journal::end_fast`], or
//!             [`Journal::end_fast_in_full`] when the full commit must do.
//! Invariants: 1. either one full commit or one fast commit is under way.
//!                With areas for cores (iJournaling) several fast commits are, each in its own.
//!             2. a full commit takes the place of all fast commits since the one before it: the
//!                areas are used from their start again.
//! Source:     Linux 6.12 `jbd2_fc_begin_commit`, `jbd2_fc_end_commit`, `jbd2_fc_get_buf`,
//!             `jbd2_fc_wait_bufs`, `jbd2_journal_lock_updates`.

use std::num::NonZeroU32;
use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_medium::Slice;

use crate::counters::FastStats;
use crate::disk::{INCOMPAT_FAST_COMMIT, INCOMPAT_IJOURNAL, SUPER_V2, SuperBlock, tid_at_least};
use crate::journal::Journal;
use crate::log_io::{LogBlock, LogWrites};
use crate::superblock::SuperState;

/// Told when a commit is over: was it a full one, and of which transaction (0 for a fast commit
/// that did what it should). Source: `j_fc_cleanup_callback`.
pub type FastCleanup = Rc<dyn Fn(bool, u32)>;

/// The area behind the ring, and who commits.
#[derive(Clone, Default)]
pub(crate) struct FastArea {
    /// First log block of it (`j_fc_first`).
    first: u32,
    /// The block behind its last (`j_fc_last`).
    end: u32,
    /// Blocks used since the last full commit (`j_fc_off`), of each part; Linux has one part.
    used: Vec<u32>,
    /// Several fast commits may be under way.
    together: bool,
    /// `JBD2_FULL_COMMIT_ONGOING`.
    full: bool,
    /// Fast commits under way (`JBD2_FAST_COMMIT_ONGOING`).
    fast: u32,
    /// Those of them that keep handles from starting.
    locks: u32,
    /// Full commits since the journal was loaded (`j_stats.ts_tid`).
    full_commits: u64,
}

impl FastArea {
    /// The area of a log with the feature. The ring ends one block before it, which stays unused
    /// (`jbd2_journal_initialize_fast_commit`).
    pub fn of(sb: &SuperBlock, kind: FastKind) -> FastArea {
        let (end, blocks) = (sb.maxlen.get(), sb.fast_commit_blocks());
        let (parts, together) = match kind {
            FastKind::Off => return FastArea::default(),
            FastKind::Linux => (1, false),
            FastKind::Cores(n) => (n.get(), true),
        };
        let first = (end.saturating_sub(blocks) + 1).min(end);
        FastArea { first, end, used: vec![0; parts as usize], together, ..FastArea::default() }
    }

    /// Blocks of each part: what is left over stays unused.
    fn part_blocks(&self) -> u32 {
        (self.end - self.first) / self.used.len().max(1) as u32
    }
}

/// Who uses the last blocks of the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FastKind {
    /// Nobody: they are log.
    #[default]
    Off,
    /// Fast commits, one at a time.
    Linux,
    /// i-transactions of iJournaling: a part for each core, and as many at a time as there are
    /// fsyncs.
    Cores(NonZeroU32),
}

impl FastKind {
    /// Incompatible features of a log that is used so.
    pub fn features(self) -> u32 {
        match self {
            FastKind::Off => 0,
            FastKind::Linux => INCOMPAT_FAST_COMMIT,
            FastKind::Cores(_) => INCOMPAT_FAST_COMMIT | INCOMPAT_IJOURNAL,
        }
    }
}

/// What came of [`Journal::begin_fast`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastBegin {
    /// The caller's turn.
    Started,
    /// The transaction is committed, or a commit that was under way has ended: look again whether
    /// there is anything to do.
    Over,
    /// There was no full commit yet, whose place a fast one could take.
    TooEarly,
}

/// Blocks of one fast commit that were submitted.
pub struct FastWrites {
    writes: Rc<LogWrites>,
}

impl FastWrites {
    /// Blocks of this commit.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Was none submitted?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the first `blocks` of them, from the last to the first. Errors: `Io`.
    pub async fn wait(&self, blocks: usize) -> FsResult<()> {
        let mut ok = true;
        for slot in (0..blocks.min(self.len())).rev() {
            ok &= self.writes.wait(slot).await;
        }
        if ok { Ok(()) } else { Err(FsError::Io) }
    }
}

impl Journal {
    /// Calls `told` when a full or a fast commit is over, before those who wait are woken.
    pub fn on_fast_cleanup(&self, told: FastCleanup) {
        *self.fast_cleanup.borrow_mut() = Some(told);
    }

    /// Is a full or a fast commit under way?
    pub fn commits_now(&self) -> bool {
        let st = self.st.borrow();
        st.fast.full || st.fast.fast > 0
    }

    /// Is a fast commit under way?
    pub fn fast_commits_now(&self) -> bool {
        self.st.borrow().fast.fast > 0
    }

    /// Begins a fast commit for changes of transaction `tid`.
    ///
    /// Waits: until the commit under way ends, once. Errors: `Io` on an aborted journal.
    pub async fn begin_fast(&self, tid: u32) -> FsResult<FastBegin> {
        if self.is_aborted() {
            return Err(FsError::Io);
        }
        {
            let mut st = self.st.borrow_mut();
            if st.fast.full_commits == 0 {
                return Ok(FastBegin::TooEarly);
            }
            if tid_at_least(st.commit_sequence, tid) {
                return Ok(FastBegin::Over);
            }
            if !st.fast.full && (st.fast.fast == 0 || st.fast.together) {
                st.fast.fast += 1;
                return Ok(FastBegin::Started);
            }
        }
        self.wait_fast.wait().await;
        Ok(FastBegin::Over)
    }

    /// Keeps handles from starting until the fast commit ends, and waits until those that are open,
    /// and those that were promised one, have ended. Source: `jbd2_journal_lock_updates`.
    pub async fn lock_updates(&self) {
        {
            let mut st = self.st.borrow_mut();
            st.barriers += 1;
            st.fast.locks += 1;
        }
        self.wait_reserved.wait_until(|| self.st.borrow().reserved_credits == 0).await;
        let open = || {
            let st = self.st.borrow();
            st.running.is_some_and(|tid| st.transaction(tid).updates > 0)
        };
        self.wait_updates.wait_until(|| !open()).await;
    }

    /// The end of [`Journal::lock_updates`], if nobody has ended it.
    pub fn unlock_updates(&self) {
        {
            let mut st = self.st.borrow_mut();
            if st.fast.locks == 0 {
                return;
            }
            st.fast.locks -= 1;
            st.barriers -= 1;
        }
        self.wait_transaction_locked.wake_all();
    }

    /// Where the blocks of a fast commit go.
    pub fn fast_writes(&self) -> FastWrites {
        FastWrites { writes: LogWrites::new(&self.rt) }
    }

    /// The next log block of a part of the area; `None`: it is full. `spare` blocks at its end stay
    /// unused.
    pub fn take_fast_block(&self, part: u32, spare: u32) -> Option<u32> {
        let area = &mut self.st.borrow_mut().fast;
        let blocks = area.part_blocks();
        let used = area.used.get_mut(part as usize)?;
        if *used + spare >= blocks {
            return None;
        }
        let block = area.first + part * blocks + *used;
        *used += 1;
        Some(block)
    }

    /// Parts of the area.
    pub fn fast_parts(&self) -> u32 {
        self.st.borrow().fast.used.len() as u32
    }

    /// Submits a block of the area. Errors: `Io` for a hole in the log.
    pub fn submit_fast(
        &self,
        to: &FastWrites,
        log: u32,
        data: Slice,
        flags: Flags,
    ) -> FsResult<()> {
        let block = LogBlock { log, data, shadow: None };
        if self.submit_log_as(&to.writes, block, flags) { Ok(()) } else { Err(FsError::Io) }
    }

    /// A fast commit is over and has done what it should.
    pub fn end_fast(&self) {
        self.cleanup_fast(false, 0);
        self.unlock_updates();
        self.leave_fast();
    }

    /// A fast commit is over, and nobody is told: it was of one file.
    pub fn leave_fast(&self) {
        self.st.borrow_mut().fast.fast -= 1;
        self.wait_fast.wake_all();
    }

    /// A fast commit cannot do: ends it and commits the running transaction in full; no other fast
    /// commit comes between.
    ///
    /// Waits and errors: as [`Journal::complete_transaction`].
    pub async fn end_fast_in_full(&self) -> FsResult<()> {
        let tid = self.running_tid().unwrap_or(0);
        self.cleanup_fast(false, tid);
        self.unlock_updates();
        {
            let area = &mut self.st.borrow_mut().fast;
            (area.fast, area.full) = (0, true);
        }
        self.wait_fast.wake_all();
        self.complete_transaction(tid).await
    }

    /// A full commit begins: it waits for the fast one, and lets none begin.
    pub(crate) async fn keep_fast_out(&self) {
        self.st.borrow_mut().fast.full = true;
        while self.fast_commits_now() {
            self.wait_fast.wait().await;
        }
        self.st.borrow_mut().fast.used.fill(0);
    }

    /// A full commit has ended.
    pub(crate) fn let_fast_in(&self, tid: u32) {
        self.cleanup_fast(true, tid);
        let area = &mut self.st.borrow_mut().fast;
        (area.full, area.fast) = (false, 0);
        area.full_commits += 1;
    }

    /// Tells of a step of a fast commit (`ext4_fc_*` tracepoints).
    pub fn emit_fast(&self, what: &'static str, tid: u32, value: u64) {
        self.emit(what, tid, value);
    }

    fn cleanup_fast(&self, full: bool, tid: u32) {
        let told = self.fast_cleanup.borrow().clone();
        if let Some(told) = told {
            told(full, tid);
        }
    }

    /// Counts a call that asked for a fast commit.
    pub fn count_fast(&self, count: impl FnOnce(&mut FastStats)) {
        count(&mut self.st.borrow_mut().counters.fast);
    }

    /// Blocks of the area, 0 without one.
    pub fn fast_area_blocks(&self) -> u32 {
        let st = self.st.borrow();
        st.fast.end - st.fast.first
    }
}

/// A log with a fast-commit area: the feature is on while it is in use.
pub(crate) fn turn_on(sb: &mut SuperBlock, kind: FastKind) {
    sb.feature_incompat = (sb.feature_incompat.get() | kind.features()).into();
}

/// A clean log can be used by kernels that know no fast commits.
pub(crate) fn turn_off(sb: &mut SuperBlock) {
    let on = sb.feature_incompat.get() & !(INCOMPAT_FAST_COMMIT | INCOMPAT_IJOURNAL);
    sb.feature_incompat = on.into();
}

/// Turns the feature on or off, as this mount has it: what the last one wanted does not matter.
/// Errors: `Unsupported` in a journal of format version 1.
pub(crate) fn wanted(sb: &SuperState, kind: FastKind) -> FsResult<()> {
    let is_old = sb.get().header.blocktype.get() != SUPER_V2;
    match (kind != FastKind::Off, is_old) {
        (true, true) => {
            let what = "fast commits in a journal of format version 1".to_owned();
            return Err(FsError::Unsupported(what));
        }
        (false, true) => {}
        (_, false) => sb.set(|sb| {
            turn_off(sb);
            turn_on(sb, kind);
        }),
    }
    Ok(())
}
