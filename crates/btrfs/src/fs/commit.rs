//! Commits: when, and how their blocks get to the device.
//!
//! Source: fs/btrfs/transaction.c (`btrfs_commit_transaction`), disk-io.c (`transaction_kthread`,
//! `write_all_supers`), extent_io.c (`write_one_eb`).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use wp_base::event::{Class, Event, FS_ASKED, FS_BEGIN, FS_END, Flags};
use wp_base::{FsError, FsResult, Span, Time};
use wp_block::{Bio, InFlight};
use wp_cache::{Fut, Mapping, WbControl, WbOps};
use wp_medium::Slice;
use wp_rt::{Completion, CpuOp, Lock, Rt, WaitQueue, wait_timeout};

use crate::core::Core;
use crate::disk::wide;
use crate::site;
use crate::trans::{Plan, PlanBlock};

use super::snapshots::PendingSnapshot;
use super::{Btrfs, sector};

/// Tree blocks that were sent before a commit or a log's sync asks for them. Both wait for them, as
/// the kernel waits for all that a transaction or log has made dirty, whoever sent it.
struct Early {
    transid: u64,
    /// Are they of logs?
    is_log: bool,
    done: Completion,
    has_failed: Cell<bool>,
}

/// What is known of transactions.
pub(super) struct Commits {
    /// Held by who commits: one at a time.
    lock: Lock<()>,
    /// The last transaction that is on the device.
    last: Cell<u64>,
    /// The running transaction and when it began.
    started: Cell<Option<(u64, Time)>>,
    /// Ordered extents that the running transaction waits for, as an fsync has logged them.
    pub(super) pending: Cell<u32>,
    /// Those who have it not committed meanwhile.
    pub(super) handles: Cell<u32>,
    pub(super) pending_done: WaitQueue,
    /// No call may begin to change anything (`TRANS_STATE_COMMIT_START`).
    is_closed: Cell<bool>,
    opened: WaitQueue,
    /// Snapshots that the next commit makes (`pending_snapshots`).
    pub(super) snapshots: RefCell<Vec<Rc<PendingSnapshot>>>,
    /// Commits since the mount.
    pub(super) count: Cell<u64>,
    wake: Rc<WaitQueue>,
    is_stopped: Cell<bool>,
    /// Tree blocks that were sent early: on their way, or failed.
    early: RefCell<Vec<Rc<Early>>>,
}

impl Commits {
    pub fn new(rt: &Rt, last: u64) -> Commits {
        Commits {
            lock: Lock::new(rt, "btrfs commit", ()),
            last: Cell::new(last),
            started: Cell::new(None),
            pending: Cell::new(0),
            handles: Cell::new(0),
            pending_done: WaitQueue::new(rt, "btrfs pending ordered extents"),
            is_closed: Cell::new(false),
            opened: WaitQueue::new(rt, "btrfs transaction"),
            snapshots: RefCell::default(),
            count: Cell::new(0),
            wake: Rc::new(WaitQueue::new(rt, "btrfs-transaction")),
            is_stopped: Cell::new(false),
            early: RefCell::default(),
        }
    }

    pub fn wake_all(&self) {
        self.opened.wake_all();
        self.pending_done.wake_all();
        self.wake.wake_all();
    }

    pub fn stop(&self) {
        self.is_stopped.set(true);
        self.wake.wake_all();
    }

    /// The last transaction that is on the device.
    pub fn last(&self) -> u64 {
        self.last.get()
    }
}

/// What sends tree blocks for the flusher. `btree_aops`.
pub(super) struct TreeWriter(Weak<Btrfs>);

impl TreeWriter {
    pub fn new(fs: &Weak<Btrfs>, trees: &Mapping) -> Rc<TreeWriter> {
        let writer = Rc::new(TreeWriter(fs.clone()));
        let ops: Rc<dyn WbOps> = writer.clone();
        trees.set_ops(Rc::downgrade(&ops));
        writer
    }
}

impl WbOps for TreeWriter {
    /// It has no blocks of its own.
    fn writepages<'a>(&'a self, _: &'a Rc<Mapping>, _: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn write_inode<'a>(&'a self, _: &'a Rc<Mapping>) -> Option<Fut<'a, ()>> {
        let fs = self.0.upgrade().filter(|fs| !fs.has_failed.get())?;
        Some(Box::pin(async move { fs.send_early().await }))
    }
}

impl Btrfs {
    pub(super) fn start_committer(&self) {
        let (rt, wake) = (self.rt.clone(), self.commits.wake.clone());
        self.rt.spawn_daemon("btrfs-transacti", serve(rt, self.me.clone(), wake));
    }

    /// A transaction may have begun, and tree blocks may have become dirty.
    pub(super) fn note_transaction(&self) {
        let (is_running, id) = {
            let core = self.core.borrow();
            (core.is_running(), core.transid())
        };
        self.note_dirty_trees(false);
        match self.commits.started.get() {
            Some((known, _)) if is_running && known == id => {}
            _ if is_running => self.commits.started.set(Some((id, self.rt.now()))),
            _ => self.commits.started.set(None),
        }
    }

    /// So much of the trees is dirty now; the flusher is to see to it, as it is to what was dirty
    /// for a moment (`was`). `filemap_dirty_folio` for tree blocks.
    fn note_dirty_trees(&self, was: bool) {
        let blocks = {
            let core = self.core.borrow();
            core.dirty_blocks() * core.node_bytes() / 4096
        };
        self.wb.set_dirty_elsewhere(wide(blocks));
        if blocks > 0 || was {
            self.trees.mark_inode_dirty();
        }
    }

    /// Counts `blocks` tree blocks as written.
    fn note_written_trees(&self, blocks: usize) {
        self.wb.note_written(wide(blocks * self.core.borrow().node_bytes() / 4096));
    }

    /// Waits: while a commit lets nobody begin. `wait_current_trans`.
    pub(super) async fn wait_for_start(&self) {
        while self.commits.is_closed.get() && !self.has_failed.get() {
            self.commits.opened.wait().await;
        }
    }

    /// Number of the transaction that has all that was changed so far.
    pub(super) fn newest(&self) -> u64 {
        self.core.borrow().transid()
    }

    /// Waits: until all that was changed before is on the device.
    pub(super) async fn commit_now(&self) -> FsResult<()> {
        self.commit(self.newest()).await
    }

    /// Waits: until a transaction is on the device. `btrfs_commit_transaction`.
    ///
    /// Errors: `Io` if it cannot be any more.
    pub(super) async fn commit(&self, want: u64) -> FsResult<()> {
        if self.commits.last.get() >= want {
            return Ok(());
        }
        self.tell("commit", FS_ASKED, want);
        let _one = self.commits.lock.lock().await;
        if self.commits.last.get() >= want {
            return Ok(());
        }
        if self.has_failed.get() {
            return Err(FsError::Io);
        }
        self.tell("commit", FS_BEGIN, want);
        let done = self.commit_alone().await;
        self.tell("commit", FS_END, want);
        done
    }

    /// Tells the trace of a commit or of the sync of a log.
    pub(super) fn tell(&self, work: &'static str, step: &'static str, id: u64) {
        self.rt.emit(Class::FS, || Event::Fs { work, step, id, why: "" });
    }

    /// The commit of who has the lock.
    async fn commit_alone(&self) -> FsResult<()> {
        self.commits.is_closed.set(true);
        let is_held = || self.commits.pending.get() > 0 || self.commits.handles.get() > 0;
        while is_held() && !self.has_failed.get() && site::COMMIT_PENDING.on() {
            self.commits.pending_done.wait().await;
        }
        let supers = self.logs.supers.lock().await;
        if self.has_failed.get() {
            // What was changed is not to be believed any more (`cleanup_transaction`).
            self.commits.is_closed.set(false);
            self.commits.opened.wake_all();
            return Err(FsError::Io);
        }
        let made = {
            let mut core = self.core.borrow_mut();
            let made = self.free_logs(&mut core).and_then(|()| {
                self.make_snapshots(&mut core)?;
                core.commit_plan()
            });
            self.note_chunks(&core);
            made
        };
        self.commits.started.set(None);
        self.note_dirty_trees(true);
        self.commits.is_closed.set(false);
        self.commits.opened.wake_all();
        let done = async {
            self.settle().await?;
            let plan = made?;
            self.write_plan(&plan).await?;
            self.core.borrow_mut().committed()?;
            Ok(plan.generation)
        };
        let done = done.await;
        drop(supers);
        match done {
            Ok(generation) => {
                self.commits.last.set(generation);
                self.commits.count.set(self.commits.count.get() + 1);
                Ok(())
            }
            Err(e) => {
                self.abort();
                Err(e)
            }
        }
    }

    async fn write_plan(&self, plan: &Plan) -> FsResult<()> {
        let waits = site::COMMIT_WAIT.on();
        self.write_blocks(&plan.blocks, Flags::SYNC | Flags::META, waits).await?;
        if waits {
            self.wait_early(plan.generation, false).await?;
        }
        self.write_supers(&plan.supers).await
    }

    /// Sends tree blocks that were changed so far, of logs as well, as the flusher does, and waits
    /// for none. They are copied when they are changed again. That it fails is told by the commit
    /// or log's sync that needs them. `btree_write_cache_pages`.
    pub(super) async fn send_early(&self) -> FsResult<()> {
        let (trees, logs) = self.must(Core::seal_early)?;
        if trees.is_empty() && logs.is_empty() {
            return Ok(());
        }
        let transid = self.newest();
        let note = |is_log| {
            let done = Completion::new(&self.rt, "btrfs early tree blocks");
            let has_failed = Cell::new(false);
            let early = Rc::new(Early { transid, is_log, done, has_failed });
            self.commits.early.borrow_mut().push(early.clone());
            early
        };
        let sent = [(note(false), trees), (note(true), logs)];
        let plug = self.part.plug();
        let mut sets = Vec::new();
        for (early, blocks) in sent {
            sets.push((early, self.send_blocks(&blocks, Flags::META).await));
        }
        drop(plug);
        let me = self.rc();
        self.rt.spawn_daemon("btrfs-endio-meta", async move {
            for (early, sent) in sets {
                let blocks = sent.len();
                let done = wait_blocks(sent).await;
                me.note_written_trees(blocks);
                early.has_failed.set(done.is_err());
                early.done.done();
            }
            // What failed stays, to be told, as long as its transaction can be committed.
            let last = me.commits.last.get();
            let is_needed = |e: &Early| !e.done.is_done() || e.has_failed.get() && e.transid > last;
            me.commits.early.borrow_mut().retain(|e| is_needed(e));
        });
        Ok(())
    }

    /// Waits: until all that was sent early has arrived, whether it could be written or not.
    pub(super) async fn await_early(&self) {
        let all: Vec<_> = self.commits.early.borrow().clone();
        for e in all {
            e.done.wait().await;
        }
    }

    /// Waits: until what was sent early of this transaction, or of its log, has arrived. Errors:
    /// `Io` if something has not. `btrfs_wait_extents`, `btrfs_wait_tree_log_extents`.
    pub(super) async fn wait_early(&self, transid: u64, is_log: bool) -> FsResult<()> {
        let all: Vec<_> = self.commits.early.borrow().clone();
        let mut out = Ok(());
        for e in all.iter().filter(|e| e.is_log == is_log && e.transid == transid) {
            e.done.wait().await;
            if e.has_failed.get() {
                out = Err(FsError::Io);
            }
        }
        out
    }

    /// Sends tree blocks under one plug, and waits for them if `waits`. A copy of each is enough.
    /// `btrfs_write_and_wait_transaction`.
    pub(super) async fn write_blocks(
        &self,
        blocks: &[PlanBlock],
        flags: Flags,
        waits: bool,
    ) -> FsResult<()> {
        let plug = self.part.plug();
        let sent = self.send_blocks(blocks, flags).await;
        drop(plug);
        if !waits {
            return Ok(());
        }
        let done = wait_blocks(sent).await;
        self.note_written_trees(blocks.len());
        done
    }

    async fn send_blocks(&self, blocks: &[PlanBlock], flags: Flags) -> Vec<Vec<InFlight>> {
        let mut sent = Vec::with_capacity(blocks.len());
        for block in blocks {
            let segs: Vec<Slice> = block.bytes.chunks(4096).map(Slice::from_bytes).collect();
            self.rt.cpu(CpuOp::NodeWriteback, 1).await;
            let copies = block.places.iter().map(|at| {
                let bio = Bio::write(sector(*at), segs.clone(), flags);
                self.part.send(bio)
            });
            sent.push(copies.collect::<Vec<_>>());
        }
        sent
    }

    /// `write_all_supers`: a flush, then all copies, of which the first is forced.
    pub(super) async fn write_supers(&self, supers: &[(u64, Vec<u8>)]) -> FsResult<()> {
        if self.opts.barrier && site::SUPER_FLUSH.on() {
            self.part.flush().await.map_err(|_| FsError::Io)?;
        }
        let mut sent = Vec::with_capacity(supers.len());
        for (n, (at, bytes)) in supers.iter().enumerate() {
            let mut flags = Flags::SYNC | Flags::META | Flags::PRIO;
            if n == 0 && self.opts.barrier && site::SUPER_FUA.on() {
                flags |= Flags::FUA;
            }
            let bio = Bio::write(sector(*at), vec![Slice::from_bytes(bytes)], flags);
            sent.push(self.part.send(bio));
        }
        if !site::SUPER_WAIT.on() {
            return Ok(());
        }
        let mut first = None;
        for bio in sent {
            let done = bio.wait().await.map_err(|_| FsError::Io);
            first.get_or_insert(done.map(|_| ()));
        }
        // That the first is there is enough: only it is read.
        first.unwrap_or(Ok(()))
    }
}

/// Waits for copies of tree blocks: one of each is enough. Errors: `Io` for one that has none.
async fn wait_blocks(sent: Vec<Vec<InFlight>>) -> FsResult<()> {
    let mut all = Ok(());
    for copies in sent {
        let mut any = false;
        for bio in copies {
            any |= bio.wait().await.is_ok();
        }
        if !any {
            all = Err(FsError::Io);
        }
    }
    all
}

/// `transaction_kthread`.
async fn serve(rt: Rt, fs: Weak<Btrfs>, wake: Rc<WaitQueue>) {
    let mut is_open = false;
    loop {
        let Some(up) = fs.upgrade() else { return };
        if up.commits.is_stopped.get() {
            return;
        }
        let interval = up.opts.commit_secs;
        let mut delay = interval;
        if let Some((id, since)) = up.commits.started.get()
            && !up.has_failed.get()
        {
            // In whole seconds, as the kernel reads the clock here.
            let age = rt.now().secs() - since.secs();
            if age < interval {
                delay = (interval + 1 - age).min(interval);
            } else {
                // Whoever waits was told.
                let _ = up.commit(id).await;
            }
        }
        // The cleaner begins when the mount has ended.
        if std::mem::replace(&mut is_open, true) {
            up.wake_cleaner();
        }
        let ticks = up.ticks();
        drop(up);
        let now = ticks.at(rt.now());
        let alarm = ticks.time(ticks.fires(now, now + ticks.of(Span::secs(delay))));
        // Woken at the end alone.
        wait_timeout(&wake, alarm.since(rt.now())).await;
    }
}
