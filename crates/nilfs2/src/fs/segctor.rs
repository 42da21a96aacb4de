//! The thread that writes logs, and who asks it to.
//!
//! Source: fs/nilfs2/segment.c (`nilfs_segctor_thread`, `nilfs_segctor_sync`,
//!         `nilfs_construct_dsync_segment`).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use wp_base::event::{Class, Event, FS_ASKED, FS_BEGIN, FS_END, Flags};
use wp_base::{FsError, FsResult, Span, Time};
use wp_block::{Bio, InFlight};
use wp_rt::{CpuOp, Either, Rt, WaitQueue, race};

use super::Nilfs;
use crate::disk::SuperBlock;
use crate::log::{Block, Cleaning, Kind, Log};
use crate::site;

/// Seconds from the first change to its log. `NILFS_SC_DEFAULT_TIMEOUT`.
const INTERVAL: u32 = 5;
/// Blocks of a bio at most. `BIO_MAX_VECS`.
const BIO_BLOCKS: usize = 256;
/// The thread writes files when more than this number of their blocks have changed
/// (`NILFS_SC_DEFAULT_WATERMARK`).
const WATERMARK: u32 = 3600;
/// A log that has been open for this number of seconds gets its checkpoint
/// (`NILFS_SC_DEFAULT_SR_FREQ`).
const CHECKPOINT_SECS: u64 = 30;

/// How the log ended that somebody waits for. `struct nilfs_segctor_wait_request`.
type Outcome = Rc<RefCell<Option<FsResult<()>>>>;

/// What the thread is to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needed {
    Nothing,
    /// Logs of files, without a checkpoint.
    Files,
    Checkpoint,
}

/// What is asked of the thread.
pub(super) struct Segctor {
    /// From the first change to its log (`sc_interval`).
    interval: Span,
    /// Changed blocks of files above which they are written (`sc_watermark`).
    watermark: u64,
    /// Those who wait for the log that begins next.
    waiting: RefCell<Vec<Outcome>>,
    /// When it is to write what was changed.
    due: Cell<Option<Time>>,
    /// Are there many changed blocks (`sc_flush_request`)?
    is_full: Cell<bool>,
    wake: Rc<WaitQueue>,
    finished: WaitQueue,
    /// Is the next log to be followed by a super block (`THE_NILFS_DISCONTINUED`)?
    wants_super: Cell<bool>,
    is_stopped: Cell<bool>,
}

impl Segctor {
    pub fn new(rt: &Rt, sb: &SuperBlock) -> Segctor {
        let or = |set: u32, default| u64::from(if set > 0 { set } else { default });
        Segctor {
            interval: Span::secs(or(sb.c_interval.get(), INTERVAL)),
            watermark: or(sb.c_block_max.get(), WATERMARK),
            waiting: RefCell::default(),
            due: Cell::new(None),
            is_full: Cell::new(false),
            wake: Rc::new(WaitQueue::new(rt, "segctord")),
            finished: WaitQueue::new(rt, "nilfs2 log"),
            wants_super: Cell::new(false),
            is_stopped: Cell::new(false),
        }
    }

    pub fn stop(&self) {
        self.is_stopped.set(true);
        self.wake.wake_all();
    }
}

impl Nilfs {
    pub(super) fn start_segctor(self: &Rc<Self>) {
        let wake = self.segctor.wake.clone();
        self.rt.spawn_daemon("segctord", serve(self.rt.clone(), Rc::downgrade(self), wake));
    }

    /// Something was changed that a log is to have. `nilfs_segctor_start_timer`, and the end of
    /// `nilfs_transaction_commit`.
    pub(super) fn changed(&self) {
        let s = &self.segctor;
        if s.due.get().is_none() {
            s.due.set(Some(self.rt.now() + s.interval));
            s.wake.wake_all();
        }
        if self.store.borrow().blocks_to_write() > s.watermark && !s.is_full.replace(true) {
            s.wake.wake_all();
        }
    }

    /// Waits: until a log has all that was changed before. `nilfs_construct_segment`.
    pub(super) async fn write_all(&self) -> FsResult<()> {
        self.check_writable()?;
        let s = &self.segctor;
        let mine = Outcome::default();
        s.waiting.borrow_mut().push(mine.clone());
        let id = self.store.borrow().cno();
        self.rt.emit(Class::FS, || Event::Fs { work: "checkpoint", step: FS_ASKED, id, why: "" });
        s.wake.wake_all();
        loop {
            if let Some(result) = mine.take() {
                return result;
            }
            s.finished.wait().await;
        }
    }

    /// Waits: until the data of blocks `from..=to` of a file are in a log, all else if they need
    /// it. `nilfs_construct_dsync_segment`.
    pub(super) async fn write_data(&self, ino: u64, from: u64, to: u64) -> FsResult<()> {
        let guard = self.begin().await?;
        let has_inode = self.inode_sync.borrow().contains(&ino);
        let needs_all = has_inode && site::DATASYNC_INODE.on()
            || self.opts.strict_order
            || self.opts.sync_nameless && self.inode(ino)?.links_count.get() == 0
            || self.store.borrow().open_since().is_some()
            || self.segctor.wants_super.get();
        if needs_all {
            drop(guard);
            return self.write_all().await;
        }
        let is_queued = self.store.borrow().is_file_dirty(ino);
        let made = self.store.borrow_mut().construct(Kind::DataSync { ino, from, to }, self.secs());
        let result = self.write_out(made).await.map(|_| ());
        // Also where its data were in a log already, and there was nothing to write.
        if is_queued && result.is_ok() {
            self.arrives();
        }
        drop(guard);
        result
    }

    /// Makes and writes logs of what files have, without a checkpoint; or with one, if a super
    /// block is to follow. `SC_FLUSH_FILE`.
    async fn write_files(&self) -> FsResult<()> {
        if self.segctor.wants_super.get() {
            return self.construct(None).await;
        }
        let _guard = self.sem.lock().await;
        self.segctor.is_full.set(false);
        if self.has_failed.get() {
            return Err(FsError::ReadOnly);
        }
        let made = self.store.borrow_mut().construct(Kind::Files, self.secs());
        let result = self.write_out(made).await.map(|_| ());
        // The next checkpoint ends these logs.
        self.changed();
        result
    }

    /// Makes and writes the logs of a checkpoint, or of a cleaning, and a super block if it is
    /// time.
    pub(super) async fn construct(&self, cleaning: Option<&Cleaning>) -> FsResult<()> {
        let guard = self.sem.lock().await;
        let s = &self.segctor;
        let accepted = s.waiting.take();
        s.due.set(None);
        s.is_full.set(false);
        let work = if cleaning.is_some() { "cleaning" } else { "checkpoint" };
        let id = self.store.borrow().cno();
        let why = if accepted.is_empty() { "it was time" } else { "somebody asked" };
        self.rt.emit(Class::FS, || Event::Fs { work, step: FS_BEGIN, id, why });
        let result = match self.has_failed.get() {
            false => self.construct_locked(cleaning).await,
            true => Err(FsError::ReadOnly),
        };
        self.rt.emit(Class::FS, || Event::Fs { work, step: FS_END, id, why: "" });
        for outcome in accepted {
            outcome.replace(Some(result.clone()));
        }
        s.finished.wake_all();
        drop(guard);
        self.drop_written().await;
        result
    }

    /// Files that only waited for their checkpoint go: what that changes is in the next. Before
    /// whoever waited for the checkpoint asks for another. `nilfs_iput_work_func`.
    async fn drop_written(&self) {
        let numbers = self.written_unused.take();
        if numbers.is_empty() {
            return;
        }
        let _guard = self.sem.lock().await;
        for number in numbers {
            let done = self.drop_if_unused(number);
            // Nobody is there to be told, as in the kernel's worker: the file stays, without a
            // name.
            let _ = self.settled(done).await;
        }
    }

    /// A checkpoint has been written: what it had of files is clean.
    fn note_written(&self) {
        let store = self.store.borrow();
        let (mut inode_sync, mut unused) = (self.inode_sync.borrow_mut(), self.unused.borrow_mut());
        for number in self.in_log.take() {
            inode_sync.remove(&number);
            if !store.is_file_dirty(number) && unused.remove(&number) {
                self.written_unused.borrow_mut().push(number);
            }
        }
    }

    async fn construct_locked(&self, cleaning: Option<&Cleaning>) -> FsResult<()> {
        let (made, cno) = {
            let mut store = self.store.borrow_mut();
            let cno = store.cno();
            self.in_log.replace(store.dirty_files().collect());
            let made = match cleaning {
                Some(cleaning) => store.clean(cleaning, self.secs()),
                None => store.construct(Kind::Checkpoint, self.secs()),
            };
            (made, cno)
        };
        let result = self.write_out(made).await;
        self.store.borrow_mut().moves_are_written();
        let root = result.inspect_err(|_| self.in_log.borrow_mut().clear())?;
        self.note_written();
        if let Some((start, seq)) = root {
            self.supers.borrow_mut().point_to(start, seq, cno);
            if self.segctor.wants_super.replace(false) {
                self.update_super().await?;
            }
        }
        match cleaning {
            None => Ok(()),
            Some(_) => self.secure_cleaning().await.inspect_err(|_| self.has_failed.set(true)),
        }
    }

    /// Reads what logs needed that were made, and writes them; where the last has its super root.
    ///
    /// A failure is the end of all writing, as memory is ahead of the device from then on; but not
    /// `NoSpace`, which leaves both as they were.
    async fn write_out(&self, made: FsResult<Vec<Log>>) -> FsResult<Option<(u64, u64)>> {
        let result = async {
            self.settle().await?;
            let logs = made?;
            let root = logs.last().filter(|log| log.has_root).map(|log| (log.start, log.seq));
            self.send(logs).await?;
            Ok(root)
        };
        let result = result.await;
        self.pages.end_logs(result.is_ok());
        if !matches!(result, Ok(_) | Err(FsError::NoSpace)) {
            self.has_failed.set(true);
        }
        result
    }

    /// Sends logs, and waits for all. `nilfs_segbuf_write`, `nilfs_segctor_wait`.
    async fn send(&self, logs: Vec<Log>) -> FsResult<()> {
        let mut sent = Vec::new();
        for (n, log) in logs.iter().enumerate() {
            let begins = self.g.segment(self.g.segment_of(log.start)).0 == log.start;
            if self.opts.flush_segments && begins && site::SEGMENT_FLUSH.on() {
                self.arrived(std::mem::take(&mut sent), n > 0).await?;
                self.flush_now().await?;
            }
            let mut pieces: Vec<(u64, &[Block])> = Vec::new();
            let mut at = log.start;
            for piece in log.blocks.chunks(BIO_BLOCKS) {
                pieces.push((at, piece));
                at += piece.len() as u64;
            }
            // All but the summary are given a new place each.
            let blocks = log.blocks.len() as u64;
            self.rt.cpu(CpuOp::BlockAlloc, blocks.saturating_sub(1)).await;
            self.rt.cpu(CpuOp::PageWriteback, blocks).await;
            let last = pieces.len();
            for (n, (block, piece)) in pieces.into_iter().enumerate() {
                let flags = if n + 1 == last { Flags::SYNC } else { Flags::NONE };
                self.rt.cpu(CpuOp::BioSubmit, 1).await;
                let segs = piece.iter().filter_map(|b| b.slice().cloned()).collect();
                sent.push(self.part.send(Bio::write(self.sector(block), segs, flags)));
            }
        }
        self.arrived(sent, !logs.is_empty()).await
    }

    /// Waits for what was sent. `nilfs_wait_on_logs`.
    async fn arrived(&self, sent: Vec<InFlight>, any: bool) -> FsResult<()> {
        let mut result = Ok(());
        for bio in sent {
            if site::LOG_WAIT.on() && bio.wait().await.is_err() {
                result = Err(FsError::Io);
            }
        }
        // Not before: a flush of somebody else, meanwhile, was none of these.
        if any {
            self.arrives();
        }
        result
    }

    /// Ends the thread's work: what is left is written. `nilfs_segctor_destroy`.
    pub(super) async fn finish(&self) -> FsResult<()> {
        self.construct(None).await
    }

    /// `nilfs_log_write_required`, `nilfs_segctor_flush_mode`.
    fn needed(&self) -> Needed {
        let s = &self.segctor;
        if !s.waiting.borrow().is_empty() || s.due.get().is_some_and(|due| due <= self.rt.now()) {
            return Needed::Checkpoint;
        }
        if !s.is_full.get() {
            return Needed::Nothing;
        }
        let since = self.store.borrow().open_since();
        match since.is_some_and(|since| self.secs() >= since.saturating_add(CHECKPOINT_SECS)) {
            true => Needed::Checkpoint,
            false => Needed::Files,
        }
    }

    pub(super) fn consider_super(&self) {
        if self.supers.borrow().is_due(self.secs()) {
            self.segctor.wants_super.set(true);
        }
    }
}

/// `nilfs_segctor_thread`.
async fn serve(rt: Rt, fs: Weak<Nilfs>, wake: Rc<WaitQueue>) {
    loop {
        let woken = wake.wait();
        let Some(up) = fs.upgrade() else { return };
        if up.segctor.is_stopped.get() {
            return;
        }
        let needed = up.needed();
        if needed == Needed::Nothing {
            let due = up.segctor.due.get();
            drop(up);
            match due {
                Some(due) => match race(woken, rt.sleep_until(due)).await {
                    Either::Left(()) | Either::Right(()) => {}
                },
                None => woken.await,
            }
            continue;
        }
        drop(woken);
        // Only now: of a thread that sleeps nobody learns that the time for a super block has come.
        up.consider_super();
        // Whoever waits was told how it ended.
        let _ = match needed {
            Needed::Nothing => Ok(()),
            Needed::Files => up.write_files().await,
            Needed::Checkpoint => up.construct(None).await,
        };
    }
}
