//! Checkpoints.
//!
//! Source: Linux `fs/f2fs/checkpoint.c`.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use wp_base::event::{Class, Event, FS_BEGIN, FS_END};
use wp_base::{FsError, FsResult, Time};
use wp_cache::{BufFlag, WbControl};
use wp_rt::{Completion, Lock, Permit, Rt, WaitQueue};

use super::counts::Dirty;
use super::mount::F2fs;
use crate::disk::{NatBits, OrphanBlock, cp_flag};
use crate::site;

/// Permits of a semaphore that stands for a lock of readers and writers; the writer takes all.
pub(super) const ALL: u64 = 1 << 20;

/// Why a checkpoint is written (`CP_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// `CP_SYNC`: somebody asked.
    Sync,
    /// `CP_FASTBOOT`: likewise, and node summaries are in the pack.
    Fastboot,
    /// `CP_UMOUNT`.
    Umount,
    /// `CP_UMOUNT | CP_TRIMMED`: everything free was discarded.
    Trimmed,
}

impl Reason {
    /// In words.
    const fn name(self) -> &'static str {
        match self {
            Reason::Sync => "somebody asked",
            Reason::Fastboot => "requested, with fastboot",
            Reason::Umount => "unmount",
            Reason::Trimmed => "unmount, all discarded",
        }
    }

    /// Are node summaries in the pack (`__remain_node_summaries`)?
    pub(super) fn keeps_node_summaries(self) -> bool {
        matches!(self, Reason::Umount | Reason::Trimmed | Reason::Fastboot)
    }

    pub(super) fn is_umount(self) -> bool {
        matches!(self, Reason::Umount | Reason::Trimmed)
    }
}

/// Who waits for the checkpoint's thread, and what it answered.
type Request = (Rc<Completion>, Rc<Cell<FsResult<()>>>);

/// State of checkpoints.
pub(crate) struct CpState {
    /// One at a time (`cp_global_sem`).
    pub(super) global: Lock<()>,
    /// Garbage collection and checkpoints (`gc_lock`).
    pub(super) gc_lock: Lock<()>,
    need_cp: Cell<bool>,
    need_fsck: Cell<bool>,
    /// The pack of the last checkpoint is the second.
    pub(super) second: Cell<bool>,
    /// What nodes carry as `cp_ver`.
    pub(super) node_version: Cell<u64>,
    /// When the last one was written (`CP_TIME`), and the last operation (`REQ_TIME`).
    pub(super) written_at: Cell<Time>,
    pub(super) used_at: Cell<Time>,
    /// Unmounting (`SBI_IS_CLOSE`).
    pub(super) closing: Cell<bool>,
    requests: RefCell<Vec<Request>>,
    thread: RefCell<Option<Rc<WaitQueue>>>,
}

impl CpState {
    pub(super) fn new(rt: &Rt, second: bool, node_version: u64) -> CpState {
        CpState {
            global: Lock::new(rt, "checkpoint", ()),
            gc_lock: Lock::new(rt, "garbage collection", ()),
            need_cp: Cell::new(false),
            need_fsck: Cell::new(false),
            second: Cell::new(second),
            node_version: Cell::new(node_version),
            written_at: Cell::new(rt.now()),
            used_at: Cell::new(rt.now()),
            closing: Cell::new(false),
            requests: RefCell::default(),
            thread: RefCell::default(),
        }
    }
}

/// An operation under way: no checkpoint starts until it is dropped.
pub(crate) struct OpGuard {
    _permit: Permit,
}

impl F2fs {
    /// Begins an operation that changes something (`f2fs_lock_op`). Waits: for a checkpoint.
    pub(crate) async fn lock_op(&self) -> OpGuard {
        OpGuard { _permit: self.cp_rwsem.acquire(1).await }
    }

    /// As [`F2fs::lock_op`] if it need not wait (`f2fs_trylock_op`).
    pub(crate) fn try_lock_op(&self) -> Option<OpGuard> {
        self.cp_rwsem.try_acquire(1).map(|p| OpGuard { _permit: p })
    }

    /// Has writing stopped, because of an error (`f2fs_cp_error`)?
    pub(crate) fn cp_error(&self) -> bool {
        self.io.shared.error.get()
    }

    /// Stops writing (`f2fs_stop_checkpoint`).
    pub(crate) fn stop_checkpoint(&self) {
        if !self.io.shared.error.replace(true) {
            self.submit_all_merged();
        }
    }

    /// The image contradicts itself: a check is due (`SBI_NEED_FSCK`).
    pub(crate) fn set_need_fsck(&self) {
        self.cps.need_fsck.set(true);
    }

    /// Every fsync until the next checkpoint is one (`SBI_NEED_CP`).
    pub(crate) fn set_need_cp(&self) {
        self.cps.need_cp.set(true);
    }

    /// Is it so?
    pub(crate) fn is_need_cp(&self) -> bool {
        self.cps.need_cp.get()
    }

    /// Something is to be written by a checkpoint (`SBI_IS_DIRTY`).
    pub(crate) fn set_fs_dirty(&self) {
        self.counts.changed.set(true);
    }

    /// An operation was asked for: background work waits some seconds (`f2fs_update_time` with
    /// `REQ_TIME`).
    pub(crate) fn note_request(&self) {
        self.cps.used_at.set(self.rt.now());
    }

    /// Version of the last checkpoint (`cur_cp_version`).
    pub(crate) fn cp_version(&self) -> u64 {
        self.cp.borrow().head().checkpoint_ver.get()
    }

    /// Starts the thread that writes checkpoints for others (`f2fs_start_ckpt_thread`).
    pub(super) fn start_checkpoint_thread(self: &Rc<Self>) {
        let wake = Rc::new(WaitQueue::new(&self.rt, "checkpoint thread"));
        *self.cps.thread.borrow_mut() = Some(wake.clone());
        let (major, minor) = self.opts.device;
        let name = format!("f2fs_ckpt-{major}:{minor}");
        self.rt.spawn_daemon(name.as_str(), serve(Rc::downgrade(self), wake));
    }

    /// Stops it: from now on who wants a checkpoint writes it.
    pub(super) async fn stop_checkpoint_thread(self: &Rc<Self>) {
        let wake = self.cps.thread.borrow_mut().take();
        if let Some(wake) = wake {
            wake.wake_all();
        }
        self.serve_requests().await;
    }

    /// Writes a checkpoint, if anything changed since the last (`f2fs_sync_fs` with `sync`,
    /// `f2fs_issue_checkpoint`).
    pub(crate) async fn sync_checkpoint(self: &Rc<Self>) -> FsResult<()> {
        if self.opts.fastboot {
            let _gc = self.cps.gc_lock.lock().await;
            return self.write_checkpoint(Reason::Fastboot).await;
        }
        let thread = self.cps.thread.borrow().clone();
        let Some(wake) = thread else {
            let _gc = self.cps.gc_lock.lock().await;
            return self.write_checkpoint(Reason::Sync).await;
        };
        let done = Rc::new(Completion::new(&self.rt, "checkpoint"));
        let answer: Rc<Cell<FsResult<()>>> = Rc::new(Cell::new(Ok(())));
        self.cps.requests.borrow_mut().push((done.clone(), answer.clone()));
        wake.wake_all();
        done.wait().await;
        answer.replace(Ok(()))
    }

    async fn serve_requests(self: &Rc<Self>) {
        let requests = self.cps.requests.take();
        if requests.is_empty() {
            return;
        }
        let gc = self.cps.gc_lock.lock().await;
        let done = Box::pin(self.write_checkpoint(Reason::Sync)).await;
        drop(gc);
        for (wake, answer) in requests {
            answer.set(done.clone());
            wake.done();
        }
    }

    /// Writes a checkpoint (`f2fs_write_checkpoint`). For [`Reason::Sync`] and
    /// [`Reason::Fastboot`] only if anything changed. Errors: `Io`, `NoSpace`, `Corrupt`: nothing
    /// is written any more then.
    pub(crate) async fn write_checkpoint(self: &Rc<Self>, reason: Reason) -> FsResult<()> {
        let _global = self.cps.global.lock().await;
        let asked = matches!(reason, Reason::Sync | Reason::Fastboot);
        if !self.counts.changed.get() && asked {
            return Ok(());
        }
        if self.cp_error() {
            return Err(FsError::Io);
        }
        let version = self.cp_version().wrapping_add(1);
        self.tell_checkpoint(FS_BEGIN, version, reason.name());
        let blocked = match self.block_operations().await {
            Ok(blocked) => blocked,
            Err(e) => {
                self.tell_checkpoint(FS_END, version, "");
                return Err(e);
            }
        };
        self.tell_checkpoint("operations blocked", version, "");
        self.submit_all_merged();
        self.cp.borrow_mut().head_mut().checkpoint_ver = version.into();
        let done = self.write_tables(reason).await;
        if done.is_err() {
            if self.opts.era.failed_checkpoint_stops() {
                self.stop_checkpoint();
            }
        } else {
            self.clear_prefree().await;
        }
        drop(blocked);
        self.cps.written_at.set(self.rt.now());
        self.tell_checkpoint(FS_END, version, "");
        done
    }

    /// Tells the trace of a checkpoint (`f2fs_write_checkpoint`).
    pub(super) fn tell_checkpoint(&self, step: &'static str, id: u64, why: &'static str) {
        self.rt.emit(Class::FS, || Event::Fs { work: "checkpoint", step, id, why });
    }

    async fn write_tables(self: &Rc<Self>, reason: Reason) -> FsResult<()> {
        self.flush_nat(reason).await?;
        self.flush_sit().await;
        self.do_checkpoint(reason).await
    }

    /// Stops all operations, with nothing dirty that they left (`block_operations`).
    async fn block_operations(self: &Rc<Self>) -> FsResult<(Permit, Permit)> {
        self.flush_all_inline_data().await?;
        loop {
            let all = self.cp_rwsem.acquire(ALL).await;
            if self.inos.first_dir().is_some() && site::CP_DENTS.on() {
                drop(all);
                self.sync_dirty_dirs().await?;
                continue;
            }
            if self.inos.first_dirty().is_some() {
                drop(all);
                self.sync_inode_meta().await?;
                continue;
            }
            let nodes = loop {
                let nodes = self.node_write.acquire(ALL).await;
                if self.counts.dirty(Dirty::Nodes) == 0 || !site::CP_NODES.on() {
                    break nodes;
                }
                drop(nodes);
                let mut budget = u64::MAX;
                self.sync_node_pages(true, false, &mut budget).await?;
            };
            self.note_counts();
            return Ok((all, nodes));
        }
    }

    /// Writes dirty blocks of directories (`f2fs_sync_dirty_inodes`).
    async fn sync_dirty_dirs(self: &Rc<Self>) -> FsResult<()> {
        while let Some(ino) = self.inos.first_dir() {
            if self.cp_error() {
                return Err(FsError::Io);
            }
            match self.inode_in_memory(ino) {
                Some(inode) => {
                    let written = inode.map.writepages(&WbControl::sync_all()).await;
                    if !inode.map.has_dirty() {
                        self.dir_cleaned(ino);
                    }
                    written?;
                }
                None => {
                    self.submit_merged(super::io::Kind::Data);
                    self.dir_cleaned(ino);
                }
            }
        }
        Ok(())
    }

    /// Copies dirty inodes to their nodes (`f2fs_sync_inode_meta`).
    async fn sync_inode_meta(self: &Rc<Self>) -> FsResult<()> {
        for _ in 0..self.counts.dirty(Dirty::Inodes) {
            let Some(ino) = self.inos.first_dirty() else { break };
            if self.cp_error() {
                return Err(FsError::Io);
            }
            if let Some(inode) = self.inode_in_memory(ino) {
                self.wb.write_owner(&inode.map).await?;
            }
            self.sync_inode(ino).await?;
        }
        Ok(())
    }

    /// What the checkpoint says of what is in use (`__prepare_cp_block`).
    fn note_counts(&self) {
        let c = &self.counts;
        let mut cp = self.cp.borrow_mut();
        let h = cp.head_mut();
        h.valid_block_count = c.blocks.get().into();
        h.valid_node_count = c.nodes.get().into();
        h.valid_inode_count = c.inodes.get().into();
        h.next_free_nid = self.nids.next_free().into();
        c.last_blocks.set(c.blocks.get());
        c.given.set(0);
        c.fsynced.set(0);
    }

    /// Waits until what the checkpoint needs has arrived (`f2fs_wait_on_all_pages`).
    pub(super) async fn wait_cp(&self) {
        let s = self.io.shared.clone();
        while s.cp.get() > 0 && (self.cps.closing.get() || !self.cp_error()) {
            self.submit_merged(super::io::Kind::Data);
            wp_rt::wait_timeout(&s.cp_wait, F2fs::IO_TIMEOUT).await;
        }
    }

    /// Writes the pack (`do_checkpoint`).
    async fn do_checkpoint(self: &Rc<Self>, reason: Reason) -> FsResult<()> {
        // Every node was sent before, and none is while this goes on.
        let noted = self.last_note();
        self.sync_meta(u64::MAX).await;
        let orphans = self.inos.orphans();
        let orphan_blocks =
            if site::CP_ORPHANS.on() { OrphanBlock::blocks(&orphans) } else { Vec::new() };
        self.fill_checkpoint(reason, orphan_blocks.len() as u32);
        let second = self.cps.second.get() != site::CP_OTHER_PACK.on();
        let start = self.g.pack(second);
        if reason.is_umount() && self.cp.borrow().has(cp_flag::NAT_BITS) {
            self.put_nat_bits(start).await;
        }
        let mut next = start;
        let mut blocks = Vec::new();
        {
            let cp = self.cp.borrow();
            blocks.extend((0..=cp.payload()).map(|n| cp.block(n)));
        }
        blocks.extend(orphan_blocks);
        blocks.extend(self.data_summaries());
        if reason.keeps_node_summaries() {
            blocks.extend(self.node_summaries());
        }
        for block in &blocks {
            self.put_meta(next, block).await;
            next += 1;
        }
        self.sync_meta(u64::MAX).await;
        if site::CP_WAIT_META.on() {
            self.wait_cp().await;
        }
        self.flush_other_devices().await?;
        // The block that makes it count.
        let last = self.grab_meta(next).await;
        let bytes = self.cp.borrow().block(0);
        last.set_contents(wp_medium::Slice::from_bytes(&bytes));
        self.dirty_meta(&last);
        self.write_meta(&last);
        self.submit_last_block();
        if site::CP_WAIT_LAST.on() {
            self.wait_cp().await;
        }
        debug_assert!(!last.flag(BufFlag::Dirty));
        if self.opts.barrier && !self.cp_error() {
            self.checkpointed(noted);
        }
        self.release_inos();
        self.fsync_nodes.reset();
        self.counts.changed.set(false);
        self.cps.need_cp.set(false);
        self.cps.second.set(second);
        let more = self.counts.dirty(Dirty::Nodes) + self.counts.dirty(Dirty::Inodes);
        if more > 0 {
            self.set_fs_dirty();
        }
        if self.cp_error() { Err(FsError::Io) } else { Ok(()) }
    }

    /// The checkpoint's own block: where logs are, counts, flags, versions (`update_ckpt_flags`).
    fn fill_checkpoint(&self, reason: Reason, orphan_blocks: u32) {
        let mut cp = self.cp.borrow_mut();
        self.note_logs(&mut cp);
        let sums = self.data_summary_blocks(&cp);
        cp.set_flag(cp_flag::COMPACT_SUM, sums < 3);
        let payload = cp.payload();
        let node_sums = if reason.keeps_node_summaries() { 3 } else { 0 };
        let total = 2 + payload + sums + orphan_blocks + node_sums;
        let h = cp.head_mut();
        h.elapsed_time = self.mtime().into();
        h.cp_pack_start_sum = (1 + payload + orphan_blocks).into();
        h.cp_pack_total_block_count = total.into();
        if reason.is_umount() {
            self.choose_nat_bits(&mut cp, total);
        }
        cp.set_flag(cp_flag::TRIMMED, reason == Reason::Trimmed);
        cp.set_flag(cp_flag::UMOUNT, reason.is_umount());
        cp.set_flag(cp_flag::FASTBOOT, reason == Reason::Fastboot);
        cp.set_flag(cp_flag::ORPHAN_PRESENT, orphan_blocks > 0);
        if self.cps.need_fsck.get() {
            cp.set_flag(cp_flag::FSCK, true);
        }
        cp.set_flag(cp_flag::RESIZEFS | cp_flag::NOCRC_RECOVERY, false);
        cp.set_flag(cp_flag::CRC_RECOVERY, true);
        cp.nat_bitmap_mut().copy_from_slice(&self.nat.versions.borrow());
        cp.sit_bitmap_mut().copy_from_slice(&self.space.borrow().sit.versions);
        cp.seal();
        self.cps.node_version.set(cp.node_version());
    }

    /// Are bitmaps of free numbers written?
    fn choose_nat_bits(&self, cp: &mut crate::disk::Checkpoint, total: u32) {
        let mut bits = self.nat.bits.borrow_mut();
        if total + self.g.nat_bits_blocks() > 512 {
            cp.set_flag(cp_flag::NAT_BITS, false);
            *bits = None;
        } else if !cp.has(cp_flag::NAT_BITS)
            && self.opts.era.umount_flushes_nat()
            && let Some((full, empty)) = self.nat_bits_now()
        {
            *bits = Some(NatBits { version: 0, full, empty });
            cp.set_flag(cp_flag::NAT_BITS, true);
        }
    }

    async fn put_nat_bits(&self, start: u32) {
        let version = self.cp_version() | u64::from(self.cp.borrow().crc()) << 32;
        let bytes = {
            let mut bits = self.nat.bits.borrow_mut();
            let Some(bits) = &mut *bits else { return };
            bits.version = version;
            bits.store()
        };
        let first = start + 512 - self.g.nat_bits_blocks();
        for (n, block) in (first..).zip(bytes.chunks_exact(4096)) {
            let block = block.try_into().expect("a chunk is a block");
            self.put_meta(n, block).await;
        }
    }
}

/// The thread that writes checkpoints for others (`issue_checkpoint_thread`).
async fn serve(fs: Weak<F2fs>, wake: Rc<WaitQueue>) {
    loop {
        {
            let Some(fs) = fs.upgrade() else { return };
            if fs.cps.thread.borrow().is_none() {
                return;
            }
            if !fs.cps.requests.borrow().is_empty() {
                fs.serve_requests().await;
                continue;
            }
        }
        wake.wait().await;
    }
}
