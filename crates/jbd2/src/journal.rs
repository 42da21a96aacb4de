//! A mounted journal: loading it, its thread, asking for commits and waiting for them, closing it.
//!
//! Picture:    [`Journal::load`] starts the thread -> handles -> requests, age or lack of room wake
//!             the thread -> it commits -> waiters -> [`Journal::destroy`].
//! Invariants: 1. one commit at a time (in dual mode: is dispatched at a time); transaction ids are
//!                committed in order.
//!             2. no borrow of the state is held while anything waits.
//!             3. the thread and the timer hold the journal weakly while idle: a dropped world is
//!                freed.
//! Source:     Linux 6.1 `fs/jbd2/journal.c`.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::rc::{Rc, Weak};

use wp_base::event::{Class, Event, FS_ASKED, Flags};
use wp_base::live::{Kind, Tally};
use wp_base::{BlockSize, FsError, FsResult, Span, Time};
use wp_cache::{Bdev, ErrMark};
use wp_rt::{Lock, Rt, TimerSink, WaitQueue};
use zerocopy::byteorder::big_endian::U32;

use crate::commit::Commit;
use crate::counters::JournalCounters;
use crate::disk::{self, Format, SuperBlock, tid_after, tid_at_least};
use crate::fast::{self, FastArea, FastCleanup, FastKind};
use crate::flushing;
use crate::heads::Heads;
use crate::inode::OrderedData;
use crate::log::LogMap;
use crate::options::JournalOptions;
use crate::recover::verify_super;
use crate::site;
use crate::state::{Dropped, State, TransactionState, Transactions};
use crate::superblock::SuperState;

/// Called with the id of a transaction that has committed, or failed to; the commit waits for it.
pub type CommitCallback = Rc<dyn Fn(u32) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A file system's journal, loaded.
pub struct Journal {
    pub(crate) rt: Rt,
    pub(crate) bdev: Rc<Bdev>,
    pub(crate) bs: BlockSize,
    pub(crate) log: LogMap,
    pub(crate) opts: JournalOptions,
    pub(crate) format: Cell<Format>,
    pub(crate) sb: SuperState,
    pub(crate) errno_unwritten: Cell<bool>,
    /// Of whom every commit is told (`j_commit_callback`).
    pub(crate) told: RefCell<Option<CommitCallback>>,
    error_recorded_on_disk: Cell<bool>,
    /// What was known of failed writes of metadata (`j_fs_dev_wb_err`).
    device_errors: Cell<ErrMark>,
    pub(crate) st: RefCell<State>,
    /// Who moves the tail or writes the log's start (`j_checkpoint_mutex`).
    pub(crate) checkpoint_lock: Lock<()>,
    /// Handle starts that wait for a transaction to take them.
    pub(crate) wait_transaction_locked: WaitQueue,
    /// Those who wait for a commit, or for the thread's end.
    pub(crate) wait_done_commit: WaitQueue,
    /// The file whose data the commit waits for.
    pub(crate) waited_data: RefCell<Option<Rc<dyn OrderedData>>>,
    /// The thread, when it has nothing to do.
    wait_commit: Rc<WaitQueue>,
    /// The flush thread, when it has nothing to do (dual mode).
    pub(crate) wait_flush: Rc<WaitQueue>,
    /// Commits that were dispatched and that the flush thread has not begun with, oldest first.
    pub(crate) handed: RefCell<VecDeque<Commit>>,
    /// The commit, for the transaction's last handle.
    pub(crate) wait_updates: WaitQueue,
    pub(crate) wait_reserved: WaitQueue,
    /// Those who wait for the end of a full or a fast commit (`j_fc_wait`).
    pub(crate) wait_fast: WaitQueue,
    pub(crate) fast_cleanup: RefCell<Option<FastCleanup>>,
    pub(crate) me: Weak<Journal>,
    _tally: Tally,
}

impl Journal {
    /// Opens the log at `log`, which must be empty or just recovered, and starts its thread.
    ///
    /// Waits:  for the superblock's read; for its write if a recovery left the log's start on disk.
    /// Errors: `Corrupt` or `Unsupported` for a superblock that cannot be; `Invalid` if the log
    ///         needs recovery or is shorter than 1024 blocks; `Io`.
    /// Source: `jbd2_journal_load`, `journal_reset`.
    pub async fn load(
        rt: &Rt,
        bdev: &Rc<Bdev>,
        log: LogMap,
        opts: JournalOptions,
    ) -> FsResult<Rc<Journal>> {
        let bs = bdev.block_size();
        if bs.bytes() < 1024 {
            return Err(FsError::Invalid("a journal needs blocks of 1024 bytes at least"));
        }
        let at = log.block(0).ok_or(FsError::Invalid("the journal has no first block"))?;
        let sb_state = SuperState::new(rt, bdev.read(at).await?);
        let sb = sb_state.get();
        let unknown = |incompat| opts.era.unknown_incompat(incompat);
        verify_super(&sb, &log, bs, at * u64::from(bs.bytes()), unknown)?;
        if sb.start.get() != 0 && opts.recovered.is_none() {
            return Err(FsError::Invalid("the journal needs recovery"));
        }
        fast::wanted(&sb_state, opts.fast)?;
        let sb = sb_state.get();
        let st = fresh_state(&sb, &opts)?;
        let journal = Rc::new_cyclic(|me| Journal {
            rt: rt.clone(),
            bdev: bdev.clone(),
            bs,
            log,
            format: Cell::new(Format::of(&sb)),
            sb: sb_state,
            errno_unwritten: Cell::new(false),
            told: RefCell::new(None),
            error_recorded_on_disk: Cell::new(false),
            device_errors: Cell::new(bdev.mapping().errors().sample(false)),
            st: RefCell::new(st),
            checkpoint_lock: Lock::new(rt, "checkpoint", ()),
            wait_transaction_locked: WaitQueue::new(rt, "journal transaction locked"),
            wait_done_commit: WaitQueue::new(rt, "journal commit done"),
            waited_data: RefCell::default(),
            wait_commit: Rc::new(WaitQueue::new(rt, "journal commit request")),
            wait_flush: Rc::new(WaitQueue::new(rt, "journal flush thread")),
            handed: RefCell::default(),
            wait_updates: WaitQueue::new(rt, "journal handles"),
            wait_reserved: WaitQueue::new(rt, "journal reserved credits"),
            wait_fast: WaitQueue::new(rt, "journal fast commit"),
            fast_cleanup: RefCell::default(),
            opts,
            me: me.clone(),
            _tally: Tally::new(Kind::World),
        });
        if journal.opts.async_commit {
            journal.set_features(0, disk::INCOMPAT_ASYNC_COMMIT)?;
        }
        journal.refresh_format();
        if sb.start.get() != 0 {
            let guard = journal.checkpoint_lock.lock().await;
            let (tid, block) = {
                let st = journal.st.borrow();
                (st.tail_sequence, st.tail)
            };
            // FUA: new transactions reuse the log at once.
            let force = if site::LOAD_FUA.on() { Flags::FUA } else { Flags::NONE };
            journal.write_log_tail(&guard, tid, block, force).await?;
        }
        let thread = run(journal.me.clone(), journal.wait_commit.clone());
        rt.spawn_daemon(journal.opts.ino_name.as_str(), thread);
        if journal.opts.mode.dual().is_some() {
            let name = journal.opts.ino_name.replacen("jbd2/", "jbd2cp/", 1);
            rt.spawn_daemon(name, flushing::run(journal.me.clone(), journal.wait_flush.clone()));
        }
        Ok(journal)
    }

    /// Recomputes what follows from the feature words.
    pub(crate) fn refresh_format(&self) {
        let format = Format::of(&self.sb.get());
        self.format.set(format);
        let mut st = self.st.borrow_mut();
        st.base_credits = base_credits(&self.opts, &format, self.bs, st.max_buffers);
    }

    pub(crate) fn revokes_per_block(&self) -> u32 {
        self.format.get().revokes_per_block(self.bs.bytes() as usize)
    }

    pub(crate) fn emit(&self, what: &'static str, tid: u32, value: u64) {
        self.rt.emit(Class::JBD2, || Event::Jbd2 { what, tid, value });
    }

    pub(crate) fn emit_dropped(&self, dropped: impl IntoIterator<Item = Dropped>) {
        for d in dropped {
            self.emit("checkpoint_stats", d.tid, u64::from(d.buffers));
        }
    }

    /// What it runs with.
    pub fn options(&self) -> &JournalOptions {
        &self.opts
    }

    /// The transaction that takes handles, if there is one.
    pub fn running_tid(&self) -> Option<u32> {
        self.st.borrow().running
    }

    /// The transaction that is being committed; the newest, where there are several.
    pub fn committing_tid(&self) -> Option<u32> {
        self.st.borrow().newest_committing()
    }

    /// State of a transaction that is not gone yet.
    pub fn transaction_state(&self, tid: u32) -> Option<TransactionState> {
        self.st.borrow().transactions.get(tid).map(|t| t.state)
    }

    /// Newest transaction that has committed.
    pub fn commit_sequence(&self) -> u32 {
        self.st.borrow().commit_sequence
    }

    /// Oldest transaction that the log on disk holds, and its first log block.
    pub fn tail(&self) -> (u32, u32) {
        let st = self.st.borrow();
        (st.tail_sequence, st.tail)
    }

    /// Most blocks that one transaction may hold.
    pub fn transaction_blocks_max(&self) -> u32 {
        self.st.borrow().max_buffers as u32
    }

    /// Log blocks that are free.
    pub fn free_blocks(&self) -> u32 {
        self.st.borrow().free.max(0) as u32
    }

    /// What it has done.
    pub fn counters(&self) -> JournalCounters {
        self.st.borrow().counters
    }

    /// Is a transaction of this id neither running nor committing?
    pub fn is_committed(&self, tid: u32) -> bool {
        let st = self.st.borrow();
        st.running != Some(tid) && !st.is_committing(tid)
    }

    /// Starts a transaction, and its clock.
    pub(crate) fn begin_transaction(&self, st: &mut RefMut<'_, State>) -> u32 {
        let tid = st.begin_transaction(self.rt.now(), self.opts.commit_interval);
        let at = self.timer_at(st.transaction(tid).expires);
        self.arm_by(st, at);
        tid
    }

    /// Arms the timer for `at`, if it does not fire earlier.
    fn arm_by(&self, st: &mut RefMut<'_, State>, at: Time) {
        if st.timer_armed.is_none_or(|t| at < t) {
            st.timer_armed = Some(at);
            self.arm(at);
        }
    }

    /// When the timer of a transaction that expires at `at` fires: at the next whole second, as the
    /// kernel rounds (`round_jiffies_up`), so that timers of many devices share a wake-up; since
    /// 4.8 whole seconds of the kernel's own count. Then the timers have their turn.
    fn timer_at(&self, at: Time) -> Time {
        let ticks = self.opts.ticks;
        let start = ticks.at(at.before(self.opts.commit_interval));
        let at = if ticks.wheel {
            ticks.round_up(ticks.at(at))
        } else {
            ticks.at(Time::ZERO + Span::secs(at.secs() + 1))
        };
        ticks.time(ticks.fires(start, at))
    }

    fn arm(&self, at: Time) {
        let timer = CommitTimer { journal: self.me.clone() };
        self.rt.timer(at, Rc::new(timer), 0);
    }

    /// Asks for the commit of `tid`, if it is the running one and nobody has asked. Never waits.
    /// Source: `jbd2_log_start_commit`.
    pub fn request_commit(&self, tid: u32) {
        let wake = self.st.borrow_mut().request_commit(tid, self.rt.now());
        if wake {
            let id = u64::from(tid);
            self.rt.emit(Class::FS, || Event::Fs { work: "commit", step: FS_ASKED, id, why: "" });
            self.wait_commit.wake_all();
        }
    }

    /// Waits until `tid` has committed and is over. It must have been requested, or be committing
    /// or older. In dual mode that does not make it durable.
    ///
    /// Errors: `Io` on an aborted journal. Source: `jbd2_log_wait_commit`.
    pub async fn wait_commit(&self, tid: u32) -> FsResult<()> {
        let later = || tid_after(tid, self.st.borrow().settled_sequence);
        if later() {
            self.wait_commit.wake_all();
            self.wait_flush.wake_all();
            self.somebody_waits(wp_block::Quasi::Commit);
            self.wait_done_commit.wait_until(|| !later()).await;
        }
        if self.is_aborted() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Commits `tid` if it has not been, and waits for it. A stale id is committed already. In dual
    /// mode one that was dispatched before this call may not be durable after it:
    /// [`Journal::will_send_data_barrier`] has told so.
    ///
    /// Errors: `Io` on a journal that is aborted while this waits. Source:
    ///         `jbd2_complete_transaction`.
    pub async fn complete_transaction(&self, tid: u32) -> FsResult<()> {
        let (running, committing) = {
            let st = self.st.borrow();
            (st.running == Some(tid), st.is_committing(tid))
        };
        if running {
            self.request_commit(tid);
        } else if !committing {
            return Ok(());
        }
        if self.opts.mode.dual().is_some() && self.want_durable(tid) {
            return self.wait_durable(tid).await;
        }
        self.wait_commit(tid).await
    }

    /// Commits what is running, or waits for what is committing. The caller has no handle open.
    ///
    /// Errors: `Io` on an aborted journal. Source: `jbd2_journal_force_commit`.
    pub async fn force_commit(&self) -> FsResult<()> {
        let (running, tid) = {
            let st = self.st.borrow();
            (st.running.is_some(), st.running.or(st.newest_committing()))
        };
        // In dual mode what is over may have had no flush.
        let Some(tid) = tid else { return self.flush_settled().await };
        if running {
            self.request_commit(tid);
        }
        if self.opts.mode.dual().is_none() {
            return self.wait_commit(tid).await;
        }
        self.force_durable(tid).await
    }

    /// Will the commit of `tid` still flush the device's cache? If not, what was written for it
    /// before this call may need a flush of its own. Source: `jbd2_trans_will_send_data_barrier`.
    pub fn will_send_data_barrier(&self, tid: u32) -> bool {
        if !self.opts.barrier {
            return false;
        }
        let st = self.st.borrow();
        if tid_at_least(st.commit_sequence, tid) {
            return false;
        }
        let dual = self.opts.mode.dual().is_some();
        dual || st.committing != Some(tid)
            || st.transaction(tid).state < TransactionState::CommitJflush
    }

    /// Has every commit from now on tell `told` before it tells those who wait for it; of an
    /// aborted journal too. Source: `j_commit_callback`.
    pub fn on_each_commit(&self, told: CommitCallback) {
        *self.told.borrow_mut() = Some(told);
    }

    /// Has the journal been aborted?
    pub fn is_aborted(&self) -> bool {
        self.st.borrow().aborted()
    }

    /// Why it was aborted.
    pub fn error(&self) -> Option<FsError> {
        self.st.borrow().abort.clone()
    }

    /// Was it aborted, and has [`Journal::destroy`] seen the reason arrive in the superblock?
    pub fn error_recorded_on_disk(&self) -> bool {
        self.error_recorded_on_disk.get()
    }

    /// Stops the journal for good: nothing further is committed, later starts answer `ReadOnly`.
    ///
    /// The reason is written to the superblock; nobody waits for that. Source:
    /// `jbd2_journal_abort`.
    pub fn abort(&self, why: FsError) {
        let errno = errno_of(&why);
        let running = {
            let mut st = self.st.borrow_mut();
            if st.aborted() {
                return;
            }
            st.abort = Some(why);
            st.running
        };
        if let Some(tid) = running {
            self.request_commit(tid);
        }
        self.emit("abort", running.unwrap_or(0), u64::from(errno));
        self.sb.set(|sb| sb.errno = U32::new(errno.wrapping_neg()));
        self.errno_unwritten.set(true);
        self.write_errno();
    }

    /// Has writeback of metadata failed since the journal was loaded? Then it is aborted, in
    /// kernels that look. Errors: `Io` if so. Source: `jbd2_check_fs_dev_write_error`.
    pub(crate) fn check_device(&self) -> FsResult<()> {
        let looks = self.opts.era.aborts_on_device_error();
        if looks && self.bdev.mapping().errors().check_and_advance(&self.device_errors) {
            self.abort(FsError::Io);
            return Err(FsError::Io);
        }
        Ok(())
    }

    /// Closes the journal cleanly: commits, writes everything home, marks the log empty, ends the
    /// thread.
    ///
    /// Waits: for all of that. The caller has ended every handle. Errors: `Io` on an aborted
    /// journal; the log then stays as it is, for recovery. Source: `jbd2_journal_destroy`.
    pub async fn destroy(self: &Rc<Self>) -> FsResult<()> {
        self.st.borrow_mut().unmount = true;
        let alive = || {
            let st = self.st.borrow();
            st.thread_alive || st.flush_thread_alive
        };
        self.wait_commit.wake_all();
        self.wait_done_commit.wait_until(|| !self.st.borrow().thread_alive).await;
        self.wait_flush.wake_all();
        self.wait_done_commit.wait_until(|| !alive()).await;
        if self.running_tid().is_some() {
            self.commit().await;
            self.end_oldest().await;
        }
        let mut result = Ok(());
        while result.is_ok() && !self.st.borrow().checkpoint.is_empty() {
            result = self.checkpoint_oldest().await;
        }
        if result.is_err() {
            let dropped = self.st.borrow_mut().clean_checkpoints(true);
            self.emit_dropped(dropped);
        }
        let home_failed = self.st.borrow().checkpoint_error;
        if home_failed {
            self.abort(FsError::Io);
        }
        if self.is_aborted() {
            let written = self.errno_written().await;
            self.error_recorded_on_disk.set(written);
            return Err(FsError::Io);
        }
        let guard = self.checkpoint_lock.lock().await;
        {
            let mut st = self.st.borrow_mut();
            assert!(st.running.is_none() && st.committing.is_none() && st.checkpoint.is_empty());
            assert!(st.flushing.is_empty(), "{:?} wait for a thread that is gone", st.flushing);
            st.sequence = st.sequence.wrapping_add(1);
            st.tail_sequence = st.sequence;
        }
        // Each of the two is a step of its own there: `site::EMPTY_PREFLUSH`, `site::EMPTY_FUA`.
        self.mark_empty(&guard, Flags::PREFLUSH | Flags::FUA).await?;
        drop(guard);
        let left = self.st.borrow().heads.len();
        assert!(left == 0, "{left} buffers are still in the closed journal");
        result
    }
}

/// Credits that every transaction starts with: a commit record and the descriptors of a full
/// transaction.
fn base_credits(opts: &JournalOptions, format: &Format, bs: BlockSize, max_buffers: i64) -> i64 {
    if !opts.era.counts_descriptors() {
        return 0;
    }
    let tags = u64::from(format.tags_per_descriptor(bs.bytes() as usize));
    1 + (max_buffers as u64).div_ceil(tags) as i64
}

/// The state of a log in which nothing has been written yet.
fn fresh_state(sb: &SuperBlock, opts: &JournalOptions) -> FsResult<State> {
    let (first, maxlen) = (sb.first.get(), sb.maxlen.get());
    let area = if opts.fast == FastKind::Off { 0 } else { sb.fast_commit_blocks() };
    let last = maxlen.saturating_sub(area);
    if u64::from(first) + u64::from(disk::LOG_BLOCKS_MIN) > u64::from(last) + 1 {
        return Err(FsError::Invalid("the journal is too short"));
    }
    let (sequence, recorded) = match &opts.recovered {
        Some(report) => (report.next_sequence, report.head),
        None => (sb.sequence.get().wrapping_add(1), sb.head.get()),
    };
    let cycles = opts.era.cycle_record() && (first..last).contains(&recorded);
    let head = if cycles { recorded } else { first };
    Ok(State {
        sequence,
        commit_sequence: sequence.wrapping_sub(1),
        commit_request: sequence.wrapping_sub(1),
        tail_sequence: sequence,
        head,
        tail: head,
        free: i64::from(last - first),
        first,
        last,
        max_buffers: i64::from((maxlen - area) / if opts.era.third_of_log() { 3 } else { 4 }),
        base_credits: 0,
        control_shift: opts.era.control_blocks_by_share().then_some(5),
        transactions: Transactions::default(),
        running: None,
        committing: None,
        flushing: VecDeque::new(),
        settled_sequence: sequence.wrapping_sub(1),
        flush_sequence: sequence.wrapping_sub(1),
        flush_owed: false,
        versions: opts.mode.dual().and_then(|dual| dual.versions),
        checkpoint: VecDeque::new(),
        heads: Heads::default(),
        revokes: [BTreeSet::new(), BTreeSet::new()],
        revoke_now: 0,
        reserved_credits: 0,
        barriers: 0,
        fast: FastArea::of(sb, opts.fast),
        flushed: sb.start.get() == 0,
        unmount: false,
        thread_alive: true,
        flush_thread_alive: opts.mode.dual().is_some(),
        abort: None,
        checkpoint_error: false,
        average_commit: Span::ZERO,
        last_sync_writer: None,
        timer_armed: None,
        counters: JournalCounters::default(),
    })
}

/// The errno's number, as `s_errno` and traces have it.
fn errno_of(e: &FsError) -> u32 {
    match e {
        FsError::Io => 5,
        FsError::ReadOnly => 30,
        FsError::NoSpace => 28,
        FsError::Corrupt(_) => 117,
        _ => 22,
    }
}

/// The thread. Source: `kjournald2`.
async fn run(weak: Weak<Journal>, wake: Rc<WaitQueue>) {
    loop {
        let Some(j) = weak.upgrade() else { return };
        let (unmount, asked) = {
            let st = j.st.borrow();
            (st.unmount, st.commit_sequence != st.commit_request)
        };
        if unmount {
            j.st.borrow_mut().thread_alive = false;
            j.wait_done_commit.wake_all();
            return;
        }
        if asked {
            j.commit().await;
            continue;
        }
        let expired = {
            let mut st = j.st.borrow_mut();
            let old = st.running.filter(|tid| j.rt.now() >= st.transaction(*tid).expires);
            if let Some(tid) = old {
                st.commit_request = tid;
            }
            old.is_some()
        };
        if !expired {
            drop(j);
            wake.wait().await;
        }
    }
}

/// Wakes the thread when the running transaction is old enough. One is armed at a time, so that a
/// busy journal does not fill the timer queue.
struct CommitTimer {
    journal: Weak<Journal>,
}

impl TimerSink for CommitTimer {
    fn fire(self: Rc<Self>, now: Time, _token: u64) {
        let Some(j) = self.journal.upgrade() else { return };
        let mut st = j.st.borrow_mut();
        if st.timer_armed.is_some_and(|t| t <= now) {
            st.timer_armed = None;
        }
        let Some(tid) = st.running else { return };
        // Armed when the transaction began, or for an earlier one: the kernel takes a timer back
        // when its transaction commits (`kjournald2`), so that one does not count.
        let at = j.timer_at(st.transaction(tid).expires);
        if at > now {
            j.arm_by(&mut st, at);
            return;
        }
        drop(st);
        j.wait_commit.wake_all();
    }
}
