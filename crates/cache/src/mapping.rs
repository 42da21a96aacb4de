//! A cached address space: a file's blocks, or the block device's.

mod waits;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use wp_base::live::{Kind, Tally};
use wp_base::{FsResult, Time};
use wp_medium::PAGE_BYTES;
use wp_rt::{Rt, WaitQueue};

use crate::Fut;
use crate::buffer::{BufFlag, Buffer};
use crate::dirty_list::Listed;
use crate::errseq::ErrSeq;
use crate::index::Index;
use crate::tags::{Order, Tags};
use crate::writeback::Writeback;

/// Cached blocks of one mapping above which idle ones are dropped, oldest first.
const BLOCKS_MAX: usize = 1 << 18;

/// How a mapping is to be cleaned (`struct writeback_control`).
#[derive(Debug)]
pub struct WbControl {
    /// The caller waits for the result: I/O is sent as SYNC, locked pages are waited for
    /// (`WB_SYNC_ALL`).
    pub sync: bool,
    /// How many blocks may still be written; the writer subtracts.
    pub budget: Cell<u64>,
    /// First and last index to write, inclusive.
    pub range: (u64, u64),
    /// Start where the last pass ended and wrap around.
    pub cyclic: bool,
    /// Only blocks that have a place already; never allocate (the journal's own data writes).
    pub mapped_only: bool,
    /// Each run of blocks is an epoch of its own (`filemap_ordered_write_range`, BarrierFS).
    pub ordered: bool,
    /// Dirty blocks that the writer left for another time; it adds (`pages_skipped`).
    pub skipped: Cell<u64>,
}

impl WbControl {
    /// Everything, for a waiting caller.
    pub fn sync_all() -> WbControl {
        WbControl {
            sync: true,
            budget: Cell::new(u64::MAX),
            range: (0, u64::MAX),
            cyclic: false,
            mapped_only: false,
            ordered: false,
            skipped: Cell::new(0),
        }
    }
    /// Everything that is dirty now, before somebody waits for it (`tagged_writepages`).
    pub fn before_sync() -> WbControl {
        WbControl { sync: false, ..WbControl::sync_all() }
    }
    /// As the flusher does it in the background.
    pub fn background(budget: u64) -> WbControl {
        WbControl {
            sync: false,
            budget: Cell::new(budget),
            range: (0, u64::MAX),
            cyclic: true,
            mapped_only: false,
            ordered: false,
            skipped: Cell::new(0),
        }
    }
}

/// What a file system does for a mapping of its own.
pub trait WbOps {
    /// Cleans dirty blocks: the only place where a file system decides where blocks go.
    ///
    /// Submits; waits only for what it needs to submit. Completion clears `Writeback` on each
    /// buffer.
    fn writepages<'a>(&'a self, map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()>;

    /// After the blocks: brings what the owner keeps of it elsewhere up to date, where a journal
    /// does not (`write_inode`). `None`: nothing is to be done.
    fn write_inode<'a>(&'a self, map: &'a Rc<Mapping>) -> Option<Fut<'a, ()>> {
        let _ = map;
        None
    }

    /// Times that had been left for later are to be written with the rest now (`dirty_inode`).
    fn times_taken(&self) {}
}

/// What of a mapping and its owner is dirty, and where it is with the flusher (`i_state`).
pub(crate) mod state {
    /// Blocks (`I_DIRTY_PAGES`). Stays when they were written by another, until the flusher looks.
    pub const BLOCKS: u8 = 1;
    /// What the owner keeps of it elsewhere (`I_DIRTY_SYNC`).
    pub const OWNER: u8 = 1 << 1;
    /// Only times of it (`I_DIRTY_TIME`).
    pub const TIMES: u8 = 1 << 2;
    /// In line to be written by the flusher (`I_SYNC_QUEUED`).
    pub const QUEUED: u8 = 1 << 3;
    /// Being written (`I_SYNC`).
    pub const WRITING: u8 = 1 << 4;
    /// `I_DIRTY`.
    pub const DIRTY: u8 = BLOCKS | OWNER;
    /// `I_DIRTY_ALL`.
    pub const ANY: u8 = DIRTY | TIMES;
}

/// A list of the flusher's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum List {
    /// `b_dirty`.
    Dirty,
    /// `b_io`.
    Io,
    /// `b_more_io`.
    MoreIo,
    /// `b_dirty_time`.
    Times,
}

/// A cached address space.
pub struct Mapping {
    rt: Rt,
    name: &'static str,
    block_bytes: u32,
    ops: RefCell<Weak<dyn WbOps>>,
    pub(crate) wb: Weak<Writeback>,
    blocks: RefCell<Index<Rc<Buffer>>>,
    /// Indices in the order in which they entered the cache; some are gone since.
    order: RefCell<Order>,
    limit: Cell<usize>,
    /// Indices with the dirty tag. The tag outlives the buffer's own `Dirty` when the journal takes
    /// the buffer over, as a Linux page's tag outlives its buffers' bits.
    tags: RefCell<Tags>,
    writeback: Cell<u64>,
    writeback_done: WaitQueue,
    /// Bios that were submitted and that the device does not have yet, where their owner counts
    /// them.
    undispatched: Cell<u64>,
    /// Something of it reached the device, and no barrier was sent after that.
    unordered: Cell<bool>,
    /// Bits of [`state`].
    state: Cell<u8>,
    /// When it became dirty, in jiffies (`dirtied_when`).
    dirtied: Cell<u64>,
    /// When its times became dirty, in jiffies, with nothing else (`dirtied_time_when`, which is
    /// not set if something else was dirty: then it lies in the distant past).
    times_since: Cell<Option<u64>>,
    /// The flusher's list that it is on, and its place there.
    list: Cell<Option<List>>,
    place: Cell<Option<i64>>,
    next_index: Cell<u64>,
    /// `AS_EIO`: a write failed, and nobody has asked since.
    error: Cell<bool>,
    /// Making a block dirty leaves [`BufFlag::Ahead`].
    keeps_ahead: Cell<bool>,
    /// `wb_err`: the same for each open file.
    errors: ErrSeq,
    _tally: Tally,
}

/// The name of a block device's mapping.
pub(crate) const DEVICE: &str = "block device";

impl Mapping {
    /// Is it the block device's own?
    pub(crate) fn is_device(&self) -> bool {
        self.name == DEVICE
    }

    /// An empty mapping of `block_bytes` blocks, cleaned by `wb` through `ops` (set later with
    /// [`Mapping::set_ops`] where owner and mapping know each other).
    pub fn new(rt: &Rt, name: &'static str, block_bytes: u32, wb: &Rc<Writeback>) -> Rc<Mapping> {
        struct Nothing;
        impl WbOps for Nothing {
            fn writepages<'a>(&'a self, _: &'a Rc<Mapping>, _: &'a WbControl) -> Fut<'a, ()> {
                Box::pin(async { Ok(()) })
            }
        }
        let none: Weak<Nothing> = Weak::new();
        Rc::new(Mapping {
            rt: rt.clone(),
            name,
            block_bytes,
            ops: RefCell::new(none),
            wb: Rc::downgrade(wb),
            blocks: RefCell::default(),
            order: RefCell::default(),
            limit: Cell::new(BLOCKS_MAX),
            tags: RefCell::default(),
            writeback: Cell::new(0),
            writeback_done: WaitQueue::new(rt, "page writeback"),
            undispatched: Cell::new(0),
            unordered: Cell::new(false),
            state: Cell::new(0),
            dirtied: Cell::new(0),
            times_since: Cell::new(None),
            list: Cell::new(None),
            place: Cell::new(None),
            next_index: Cell::new(0),
            error: Cell::new(false),
            keeps_ahead: Cell::new(false),
            errors: ErrSeq::default(),
            _tally: Tally::new(Kind::Mapping),
        })
    }

    /// Who cleans it. Held weakly: the owner holds the mapping.
    pub fn set_ops(&self, ops: Weak<dyn WbOps>) {
        *self.ops.borrow_mut() = ops;
    }

    /// Kind of mapping, for reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The cached block, if there is one.
    pub fn peek(&self, index: u64) -> Option<Rc<Buffer>> {
        self.blocks.borrow().get(index).cloned()
    }

    /// Is a block neither in the cache nor being read?
    pub fn is_missing(&self, index: u64) -> bool {
        let blocks = self.blocks.borrow();
        let is_there = |b: &Rc<Buffer>| b.flag(BufFlag::Uptodate) || b.flag(BufFlag::Reading);
        !blocks.get(index).is_some_and(is_there)
    }

    /// The cached block; a fresh one, not up to date, if there was none.
    pub fn get(&self, index: u64) -> Rc<Buffer> {
        if let Some(b) = self.blocks.borrow().get(index) {
            return b.clone();
        }
        self.shrink();
        let b = Rc::new(Buffer::new(&self.rt, index, self.block_bytes));
        self.blocks.borrow_mut().insert(index, b.clone());
        self.order.borrow_mut().push_back(index);
        b
    }

    /// Sets how many blocks may be cached before idle ones are dropped.
    pub fn set_limit(&self, blocks: usize) {
        self.limit.set(blocks);
    }

    /// Drops idle blocks, oldest first, if there are too many. Looks at each at most once, and at
    /// few where many are busy.
    fn shrink(&self) {
        let (mut blocks, mut order) = (self.blocks.borrow_mut(), self.order.borrow_mut());
        if order.len() > 2 * blocks.len() + 64 {
            // Truncates and invalidations leave their indices behind.
            let mut seen = BTreeSet::new();
            order.retain(|i| blocks.contains(i) && seen.insert(i));
        }
        let mut looks = order.len().min(64);
        while blocks.len() >= self.limit.get() && looks > 0 {
            looks -= 1;
            let Some(index) = order.pop_front() else { break };
            match blocks.get(index) {
                None => {}
                Some(b) if is_idle(b) => {
                    blocks.remove(index);
                    self.tags.borrow_mut().remove(index);
                }
                Some(_) => order.push_back(index),
            }
        }
    }

    /// Nothing to write, nothing in flight, on no list of the flusher: its owner may forget it.
    pub fn is_idle(&self) -> bool {
        !self.has_dirty()
            && self.writeback.get() == 0
            && self.state.get() == 0
            && self.list.get().is_none()
    }

    /// Cached blocks in `from..to`, in order.
    pub fn range(&self, from: u64, to: u64) -> Vec<Rc<Buffer>> {
        self.blocks.borrow().range(from, to).map(|(_, b)| b.clone()).collect()
    }

    /// Is any block of `from..to` cached?
    pub fn has_any(&self, from: u64, to: u64) -> bool {
        self.blocks.borrow().first_of(from, to).is_some()
    }

    /// Number of cached blocks.
    pub fn len(&self) -> usize {
        self.blocks.borrow().len()
    }

    /// Nothing cached?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets cached blocks from index `from` on, dirty or not. Waits: for writes of them in
    /// flight.
    pub async fn truncate(&self, from: u64) {
        self.truncate_range(from, u64::MAX).await;
    }

    /// [`Mapping::truncate`] of indices `from..to` only (`truncate_pagecache_range`).
    pub async fn truncate_range(&self, from: u64, to: u64) {
        loop {
            let gone: Vec<Rc<Buffer>> = self.range(from, to);
            let Some(busy) = gone.iter().find(|b| b.flag(BufFlag::Writeback)) else { break };
            if !crate::site::TRUNCATE_WAIT.on() {
                break;
            }
            busy.wait_clear(BufFlag::Writeback).await;
        }
        let mut blocks = self.blocks.borrow_mut();
        let gone: Vec<u64> = blocks.range(from, to).map(|(i, _)| i).collect();
        let gone: Vec<Rc<Buffer>> = gone.into_iter().filter_map(|i| blocks.remove(i)).collect();
        drop(blocks);
        self.tags.borrow_mut().remove_range(from, to);
        let dirty = gone.iter().filter(|b| b.clear(BufFlag::Dirty)).count() as u64;
        if dirty > 0
            && let Some(wb) = self.wb.upgrade()
        {
            wb.account_dropped(dirty);
        }
    }

    /// Waits until no block of `from..to` is being read.
    pub async fn wait_reads(&self, from: u64, to: u64) {
        for b in self.range(from, to) {
            b.wait_clear(BufFlag::Reading).await;
        }
    }

    /// Drops clean, idle blocks in `from..to` from the cache; returns how many.
    pub fn invalidate(&self, from: u64, to: u64) -> usize {
        let (mut blocks, mut tags) = (self.blocks.borrow_mut(), self.tags.borrow_mut());
        let (mut at, mut dropped) = (from, 0);
        while let Some((i, b)) = blocks.first_of(at, to) {
            if is_idle(b) {
                blocks.remove(i);
                tags.remove(i);
                dropped += 1;
            }
            at = i + 1;
        }
        dropped
    }

    /// Writes go through `mark_buffer_dirty`, which leaves `PG_readahead` alone; the end of their
    /// writeback clears it.
    pub fn keep_ahead(&self) {
        self.keeps_ahead.set(true);
    }

    /// A page that is made dirty starts no readahead: `PG_readahead` is `PG_reclaim`, which
    /// `folio_mark_dirty` clears.
    fn clear_ahead(&self, b: &Buffer) {
        let per_page = (PAGE_BYTES as u64 / u64::from(self.block_bytes)).max(1);
        match b.block() % per_page {
            0 => drop(b.clear(BufFlag::Ahead)),
            n => drop(self.peek(b.block() - n).map(|first| first.clear(BufFlag::Ahead))),
        }
    }

    /// Marks a block to be written, and the mapping as dirty from now on if it was clean.
    pub fn mark_dirty(self: &Rc<Self>, b: &Rc<Buffer>) {
        if !self.keeps_ahead.get() {
            self.clear_ahead(b);
        }
        let Some(wb) = self.wb.upgrade() else { return };
        if !b.flag(BufFlag::Dirty) {
            b.set(BufFlag::Dirty);
            wb.account_dirty(1);
        }
        if self.tags.borrow_mut().insert(b.block()) {
            self.mark(state::BLOCKS);
        }
    }

    /// Tags a block as dirty though its buffer is not: the journal has it, and will make it so
    /// (a dirty page with clean buffers).
    pub fn tag(self: &Rc<Self>, b: &Buffer) {
        if self.tags.borrow_mut().insert(b.block()) {
            self.mark(state::BLOCKS);
        }
    }

    /// Does a journal hold any of its blocks? Looks at each.
    pub fn is_journalled(&self) -> bool {
        self.blocks.borrow().values().any(|b| b.jh() != 0)
    }

    /// What its owner keeps of it elsewhere has changed (`mark_inode_dirty`): the flusher is to
    /// call [`WbOps::write_inode`].
    pub fn mark_inode_dirty(self: &Rc<Self>) {
        self.mark(state::OWNER);
    }

    /// Nothing but times of it has changed, on a file system that is `lazytime`: only a sync of
    /// everything has them written (`I_DIRTY_TIME`).
    pub fn mark_times_dirty(self: &Rc<Self>) {
        self.mark(state::TIMES);
    }

    /// From now on the owner has to write the timestamps whose update was deferred
    /// (`vfs_fsync_range`, which does not check whether they have been written meanwhile).
    pub fn take_times(self: &Rc<Self>) {
        if self.is(state::TIMES) {
            self.mark(state::OWNER);
            let ops = self.ops.borrow().upgrade();
            if let Some(ops) = ops {
                ops.times_taken();
            }
        }
    }

    /// `__mark_inode_dirty`.
    fn mark(self: &Rc<Self>, what: u8) {
        // Most marks find it marked; one for the owner takes the times along.
        let takes_times = what == state::OWNER && self.is(state::TIMES);
        if self.is(what) && !takes_times {
            return;
        }
        let Some(wb) = self.wb.upgrade() else { return };
        if takes_times {
            self.clear_state(state::TIMES);
        }
        let was = self.state.get();
        self.set_state(what);
        // What is on a list keeps its place there, what the flusher has gets a new one from it.
        if was & (what | state::QUEUED | state::DIRTY) == 0 {
            self.dirtied.set(wb.jiffies());
            if what == state::TIMES {
                self.times_since.set(Some(wb.jiffies()));
            }
            wb.enqueue(self);
        }
    }

    /// Clears a block's `Dirty` without writing it; true if it was set. Its tag stays.
    pub fn clear_dirty(&self, b: &Buffer) -> bool {
        let was = b.clear(BufFlag::Dirty);
        if was && let Some(wb) = self.wb.upgrade() {
            wb.account_clean(1);
        }
        was
    }

    /// Moves a block from dirty to under writeback. The caller then submits it and calls
    /// [`Mapping::end_writeback`] at completion.
    pub fn begin_writeback(&self, b: &Buffer) {
        self.clear_dirty(b);
        self.tags.borrow_mut().remove(b.block());
        assert!(!b.flag(BufFlag::Writeback), "block {} is under writeback already", b.block());
        b.set(BufFlag::Writeback);
        self.writeback.set(self.writeback.get() + 1);
        if let Some(wb) = self.wb.upgrade() {
            wb.account_submitted(1, self.is_device());
        }
    }

    /// Completion of what [`Mapping::begin_writeback`] began.
    pub fn end_writeback(&self, b: &Buffer, failed: bool) {
        if failed {
            b.set(BufFlag::WriteError);
            self.error.set(true);
            self.errors.set();
            if let Some(wb) = self.wb.upgrade() {
                wb.errors().set();
            }
        }
        b.clear(BufFlag::Writeback);
        self.clear_ahead(b);
        self.writeback.set(self.writeback.get() - 1);
        if let Some(wb) = self.wb.upgrade() {
            wb.account_written(1, self.is_device());
        }
        b.wake();
        if self.writeback.get() == 0 {
            self.writeback_done.wake_all();
        }
    }

    /// Drops the dirty tag of an index that turned out to have nothing to write.
    pub fn drop_tag(&self, index: u64) {
        self.tags.borrow_mut().remove(index);
    }

    /// Is anything tagged dirty?
    pub fn has_dirty(&self) -> bool {
        !self.tags.borrow().is_empty()
    }

    /// Tagged indices from `from` on, at most `max`, in order.
    pub fn tagged(&self, from: u64, to: u64, max: usize) -> Vec<u64> {
        if from > to {
            return Vec::new();
        }
        self.tags.borrow().range(from, to).take(max).collect()
    }

    /// The first tagged index of `from..=to`.
    pub fn first_tagged(&self, from: u64, to: u64) -> Option<u64> {
        if from > to {
            return None;
        }
        self.tags.borrow().first(from, to)
    }

    /// How many indices from `from` on, at most up to `to` and at most `max`, are tagged without a
    /// gap.
    pub fn tagged_run(&self, from: u64, to: u64, max: u64) -> u64 {
        if from > to {
            return 0;
        }
        self.tags.borrow().run(from, to, max)
    }

    /// Blocks under writeback.
    pub fn under_writeback(&self) -> u64 {
        self.writeback.get()
    }

    /// A bio of it is about to be submitted, and [`Mapping::dispatched`] will be called when the
    /// device has it.
    pub fn will_dispatch(&self) {
        self.undispatched.set(self.undispatched.get() + 1);
    }

    /// The device has one.
    pub fn dispatched(&self) {
        self.undispatched.set(self.undispatched.get() - 1);
        if self.undispatched.get() == 0 {
            self.writeback_done.wake_all();
        }
    }

    /// Has something of it reached the device that no barrier was sent after?
    pub fn is_unordered(&self) -> bool {
        self.unordered.get()
    }

    /// Something of it has reached the device; or a barrier is sent now, behind all that has.
    pub fn set_unordered(&self, unordered: bool) {
        self.unordered.set(unordered);
    }

    /// Waits until the device has all that was submitted (`filemap_fdatadispatch`, BarrierFS).
    pub async fn wait_dispatched(&self) {
        while self.undispatched.get() > 0 {
            self.writeback_done.wait().await;
        }
    }

    /// Forgets the flag of a failed write (`AS_EIO`); was it set?
    pub fn take_error(&self) -> bool {
        self.error.replace(false)
    }

    /// Failed writes, for those who keep what they were told (`wb_err`).
    pub fn errors(&self) -> &ErrSeq {
        &self.errors
    }

    /// Cleans it through its owner. Waits: for what its owner waits for.
    pub async fn writepages(self: &Rc<Self>, wbc: &WbControl) -> FsResult<()> {
        if !self.has_dirty() {
            return Ok(());
        }
        let ops = self.ops.borrow().upgrade();
        match ops {
            Some(ops) => ops.writepages(self, wbc).await,
            None => Ok(()),
        }
    }

    /// Has its owner bring the inode up to date (`write_inode`).
    pub(crate) async fn write_inode(self: &Rc<Self>) -> FsResult<()> {
        let ops = self.ops.borrow().upgrade();
        match ops.as_ref().and_then(|ops| ops.write_inode(self)) {
            Some(work) => work.await,
            None => Ok(()),
        }
    }

    /// Writes everything dirty and waits for it (`filemap_write_and_wait`).
    pub async fn write_and_wait(self: &Rc<Self>) -> FsResult<()> {
        let written = self.writepages(&WbControl::sync_all()).await;
        self.wait_writeback().await.and(written)
    }

    /// Where a cyclic pass goes on.
    pub fn next_index(&self) -> u64 {
        self.next_index.get()
    }

    /// Remembers where a cyclic pass ended.
    pub fn set_next_index(&self, index: u64) {
        self.next_index.set(index);
    }

    /// When it became dirty, in jiffies.
    pub(crate) fn dirtied(&self) -> u64 {
        self.dirtied.get()
    }

    pub(crate) fn set_dirtied(&self, jiffies: u64) {
        self.dirtied.set(jiffies);
    }

    /// When its times became dirty with nothing else, in jiffies.
    pub(crate) fn times_since(&self) -> Option<u64> {
        self.times_since.get()
    }

    /// Is any of these bits of [`state`] set?
    pub(crate) fn is(&self, bits: u8) -> bool {
        self.state.get() & bits != 0
    }

    pub(crate) fn set_state(&self, bits: u8) {
        self.state.set(self.state.get() | bits);
    }

    pub(crate) fn clear_state(&self, bits: u8) {
        self.state.set(self.state.get() & !bits);
    }

    /// The flusher's list that it is on.
    pub(crate) fn list(&self) -> &Cell<Option<List>> {
        &self.list
    }

    /// Now, for owners that stamp.
    pub fn now(&self) -> Time {
        self.rt.now()
    }
}

impl Listed for Mapping {
    fn place(&self) -> &Cell<Option<i64>> {
        &self.place
    }
}

/// Clean, unused, and of no interest to the journal.
fn is_idle(b: &Rc<Buffer>) -> bool {
    let busy =
        [BufFlag::Dirty, BufFlag::JbdDirty, BufFlag::Writeback, BufFlag::Reading, BufFlag::Delay];
    Rc::strong_count(b) == 1 && b.jh() == 0 && !busy.iter().any(|f| b.flag(*f))
}
