//! Direct writes to the end of the data log (`direct=log`), a way of ours.
//!
//! Picture:    [an operation, so that no checkpoint begins: a place in the log -> data to it, and
//!             wait -> the node names it, the old place is free] -> an fsync flushes before the
//!             first node that it marks.
//! Invariants: 1. a node, in memory too, names a block only when its data has arrived: neither a
//!                checkpoint nor an fsync of somebody else can make a name durable that leads to
//!                what was there before;
//!             2. a checkpoint flushes the cache before its last block, and an fsync before a node
//!                with its mark, so that arrived is durable by the time that the node counts;
//!             3. until then the old block is in use: what was there is there after a crash;
//!             4. blocks of the log are sent in the order in which they were given out, those of
//!                others among them: so a zone is written at its write pointer.
//!
//! Linux, in `mode=lfs` and where a hole is filled in any mode, names the new block first
//! (`f2fs_map_blocks` of `F2FS_GET_BLOCK_DIO`), and a checkpoint does not wait for direct writes.
//! With order-preserving recovery on zoned devices an fsync needs no flush: recovery leaves out
//! nodes whose data is not below a write pointer. It does not check a checkpoint's nodes in this
//! way, hence invariant 1 there too.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_cache::BufFlag;
use wp_medium::{Pieces, Slice};
use wp_rt::{CpuOp, Rt, WaitQueue};
use wp_vfs::SyncKind;

use super::data::{BIO_BLOCKS, BLOCK};
use super::direct::Dio;
use super::dnode::{Dnode, Find, Found};
use super::inode::{Inode, fi};
use super::io::{Held, Kind};
use super::mount::{DirectMode, F2fs, FsyncMode};
use super::sent::{Of, Page};
use crate::disk::{Summary, addr};
use crate::site;

/// Blocks of a direct write on their way.
pub(crate) struct Arrivals {
    left: Cell<u32>,
    failed: Cell<bool>,
    wait: WaitQueue,
}

impl Arrivals {
    fn new(rt: &Rt) -> Rc<Arrivals> {
        let wait = WaitQueue::new(rt, "direct write to the log");
        Rc::new(Arrivals { left: Cell::new(0), failed: Cell::new(false), wait })
    }

    fn page(self: &Rc<Self>, ino: u32, data: Slice) -> Page {
        self.left.set(self.left.get() + 1);
        Page { of: Of::Direct(data, self.clone()), ino, cp: false, listed: None }
    }

    /// One of them was written, or could not be.
    pub(super) fn arrived(&self, failed: bool) {
        self.failed.set(self.failed.get() || failed);
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.wait.wake_all();
        }
    }

    /// Waits: for all. Errors: `Io` if one failed.
    async fn all(&self) -> FsResult<()> {
        while self.left.get() > 0 {
            self.wait.wait().await;
        }
        if self.failed.get() { Err(FsError::Io) } else { Ok(()) }
    }
}

impl F2fs {
    /// Do direct writes go to the data log?
    pub(super) fn logs_direct(&self) -> bool {
        self.opts.direct == DirectMode::Log
    }

    /// Writes whole blocks. The caller has the inode's lock.
    ///
    /// Waits: for checkpoints and garbage collection, the device. Errors: `NoSpace`, `Io`,
    /// `Corrupt`: what the file has of these blocks is old or new, piece by piece.
    pub(super) async fn write_to_log(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (offset, end): (u64, u64),
        data: &[Slice],
        sync: Option<SyncKind>,
    ) -> FsResult<()> {
        // A node in strict mode goes behind a flush anyhow; elsewhere the write is forced, so that
        // its sync needs one flush and not two.
        // With order-preserving recovery neither is needed.
        let forced = sync.is_some()
            && !matches!(self.opts.fsync_mode, FsyncMode::Strict | FsyncMode::StrictFixed)
            && !(self.opts.oprw && self.g.is_zoned)
            && self.io.part().limits().fua;
        let forced = forced && self.opts.barrier;
        let mut pieces = Pieces::new(data);
        let (mut at, last) = (offset / BLOCK, end / BLOCK);
        while at < last {
            // Before the piece is under way, so that this file's blocks are collected, too.
            self.balance_fs(true).await;
            let most = (at + BIO_BLOCKS as u64).min(last);
            let _dio = Dio::alone(inode).await;
            self.write_back(inode, at * BLOCK, most * BLOCK).await?;
            self.drop_cache(inode, at * BLOCK, most * BLOCK).await;
            let _op = self.lock_op().await;
            at += self.log_piece(inode, (at, most), &mut pieces, forced).await?;
        }
        self.forget_reads(inode, offset / BLOCK, last).await;
        Ok(())
    }

    /// Writes blocks from the first one on, as far as one node names them and there is room; how
    /// many. No checkpoint begins meanwhile.
    async fn log_piece(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (first, end): (u64, u64),
        pieces: &mut Pieces<'_>,
        forced: bool,
    ) -> FsResult<u64> {
        let (dn, slots, version) = self.promise(inode, first, end).await?;
        let log = self.log_of(inode, false);
        let write = Arrivals::new(&self.rt);
        let mut flags = Flags::SYNC | Flags::IDLE;
        if forced && site::DIRECT_LOG_FUA.on() {
            flags |= Flags::FUA;
        }
        let mut places = Vec::new();
        let mut given = Ok(());
        for slot in slots.clone() {
            self.rt.cpu(CpuOp::BlockAlloc, 1).await;
            // The old block stays in use.
            match self.allocate(log, addr::NULL, Summary::new(dn.nid, version, slot)).await {
                Ok(place) => {
                    let page = write.page(inode.ino, pieces.take_one(BLOCK as u32));
                    self.merge(Kind::Data, Some(log), page, place.addr, flags);
                    places.push(place.addr);
                }
                Err(e) => {
                    given = Err(e);
                    break;
                }
            }
        }
        self.submit_merged_cond(Kind::Data, Held::Direct(&write));
        if site::DIRECT_LOG_WAIT.on() {
            given = given.and(write.all().await);
        }
        let covered = forced || self.recovery_looks(&places);
        let named = match given {
            Ok(()) => self.name_places(inode, first, slots.start, &places, covered).await,
            failed => failed,
        };
        if let Err(e) = named {
            places.into_iter().for_each(|place| self.invalidate(place));
            return Err(e);
        }
        Ok(places.len() as u64)
    }

    /// The node of block `first`, made if it must be; those of its slots up to block `end` that
    /// have a block, or space promised now; and the node's version. Errors: `NoSpace` if the first
    /// one can have none.
    async fn promise(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        first: u64,
        end: u64,
    ) -> FsResult<(Dnode, Range<u32>, u8)> {
        let _tree = inode.map_lock.lock().await;
        let Found::At(dn) = self.dnode(inode, first, Find::Alloc).await? else {
            return Err(FsError::Invalid("a block beside inline data"));
        };
        let most = (end - first).min(u64::from(dn.slots - dn.slot)) as u32;
        let wanted = dn.slot..dn.slot + most;
        if self.reserve(inode, &dn, wanted.clone()).await.is_err()
            && dn.addr(inode, dn.slot) == addr::NULL
        {
            return Err(FsError::NoSpace);
        }
        let mut n = 0;
        for slot in wanted {
            if self.checked(inode, dn.addr(inode, slot))? == addr::NULL {
                break;
            }
            n += 1;
        }
        let version = self.nat(dn.nid).await?.version;
        let slots = dn.slot..dn.slot + n;
        Ok((dn, slots, version))
    }

    /// The data is there: its node says so, and what was in its place is free. `covered`: a node
    /// that names it needs no flush.
    async fn name_places(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        first: u64,
        slot: u32,
        places: &[u32],
        covered: bool,
    ) -> FsResult<()> {
        let _tree = inode.map_lock.lock().await;
        // The node may have left the cache meanwhile, and the blocks their places.
        let Found::At(dn) = self.dnode(inode, first, Find::Lookup).await? else {
            return Err(FsError::Io);
        };
        assert_eq!(dn.slot, slot, "a file's blocks keep their slots");
        if !covered && self.io.parts().iter().any(|p| p.limits().volatile_cache) {
            inode.arrived.set(inode.arrived.get() + 1);
        }
        let now: Vec<(u32, u32)> = (slot..).zip(places.iter().copied()).collect();
        let old: Vec<u32> = now.iter().map(|(slot, _)| dn.addr(inode, *slot)).collect();
        self.set_addrs(inode, &dn, &now).await;
        old.into_iter().filter(|at| addr::is_block(*at)).for_each(|at| self.invalidate(at));
        for (index, at) in (first..).zip(places) {
            self.update_extent(inode, index, 1, *at);
        }
        inode.set(fi::APPEND_WRITE);
        Ok(())
    }

    /// Blocks that somebody was reading from their old places leave the cache.
    async fn forget_reads(&self, inode: &Inode, from: u64, to: u64) {
        for b in inode.map.range(from, to) {
            if b.flag(BufFlag::Reading) {
                b.wait_clear(BufFlag::Reading).await;
            }
        }
    }

    /// Does recovery by itself leave out nodes that name these blocks, if they are not written?
    fn recovery_looks(&self, places: &[u32]) -> bool {
        self.opts.oprw && places.iter().all(|at| self.is_sequential(*at))
    }

    /// Must the device be flushed before a node of this file is sent with a mark of fsync, for
    /// direct data that it may name? `atomic`: the node goes behind a flush itself, if any does.
    pub(super) fn must_flush_direct(&self, inode: &Inode, atomic: bool) -> bool {
        let flushed = self.g.is_zoned && self.opts.era.zoned_flush_not_fua();
        inode.flushed.get() < inode.arrived.get()
            && self.opts.fsync_mode != FsyncMode::NoBarrier
            && !(atomic && self.opts.barrier && !flushed)
            && site::DIRECT_LOG_FLUSH.on()
    }

    /// Makes direct data durable that has arrived. Waits: for the flush. Errors: `Io`.
    pub(super) async fn flush_direct(&self, inode: &Inode) -> FsResult<()> {
        let arrived = inode.arrived.get();
        self.issue_flush(inode.ino).await?;
        // Another's may have ended before.
        inode.flushed.set(inode.flushed.get().max(arrived));
        Ok(())
    }
}
