//! Dirty blocks of files and directories on their way to the device, in place or to a log.
//!
//! Source: Linux `fs/f2fs/data.c` (`f2fs_write_cache_pages`, `f2fs_write_single_data_page`,
//! `f2fs_do_write_data_page`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer, Fut, Mapping, WbControl, WbOps};
use wp_rt::CpuOp;

use super::checkpoint::OpGuard;
use super::data::BLOCK;
use super::direct::Move;
use super::dnode::{Dnode, Find, Found};
use super::inode::{Inode, fi};
use super::io::{DataWrite, Held, IpuRun, Kind};
use super::mount::F2fs;
use crate::disk::inode::{advise, inline};
use crate::disk::{Log, addr};
use crate::site;

/// On a data buffer: garbage collection moves it (`page_private_gcing`).
pub(super) const GCING: BufFlag = BufFlag::Private2;

/// A file with at most this number of dirty blocks goes to the hot log (`DEF_MIN_HOT_BLOCKS`).
const HOT_BLOCKS: u64 = 16;
/// A pass of at least this number of dirty blocks runs alone (`min_seq_blocks`); a directory with
/// fewer is left to the checkpoint (`nr_pages_to_skip`).
const SEQ_BLOCKS: u64 = 512;

/// How one block is written.
#[derive(Clone, Copy)]
struct How {
    /// Somebody waits for it.
    sync: bool,
    /// It must move.
    gc: bool,
}

/// Is the block being written, so that its next write waits?
fn is_on_its_way(b: &Buffer) -> bool {
    b.flag(BufFlag::Writeback) && site::DATA_AGAIN.on()
}

impl F2fs {
    /// Does a file's data stay where it is, if it can (`need_inplace_update`)? `gc`: its block is
    /// being moved.
    fn updates_in_place(&self, inode: &Inode, gc: bool) -> bool {
        if self.is_lfs() || inode.is_dir() || gc || self.opts.oprw || inode.is(fi::ATOMIC) {
            return false;
        }
        if inode.has_advice(advise::COLD) {
            return true;
        }
        if self.is_small_volume() {
            return true;
        }
        inode.is(fi::NEED_IPU)
    }

    /// Log that a file's data goes to.
    pub(super) fn log_of(&self, inode: &Inode, gc: bool) -> Log {
        let hot = inode.has_advice(advise::HOT) || inode.is(fi::HOT_DATA);
        self.data_log(hot, gc || inode.has_advice(advise::COLD))
    }

    fn data_write<'a>(
        inode: &'a Inode,
        b: &'a Rc<Buffer>,
        how: How,
        log: Log,
        old: u32,
    ) -> DataWrite<'a> {
        DataWrite {
            map: &inode.map,
            buf: b,
            ino: inode.ino,
            log,
            old,
            nid: 0,
            ofs_in_node: 0,
            version: 0,
            flags: if how.sync { Flags::SYNC } else { Flags::NONE },
            cp: how.gc || inode.is_dir(),
        }
    }

    /// Writes a block in place. No: writing has stopped.
    fn write_in_place(
        &self,
        inode: &Inode,
        b: &Rc<Buffer>,
        how: How,
        at: u32,
        run: Option<&mut IpuRun>,
    ) -> FsResult<()> {
        let was_dirty = b.flag(BufFlag::Dirty);
        let w = F2fs::data_write(inode, b, how, self.log_of(inode, how.gc), at);
        self.write_data_inplace(&w, run)?;
        if was_dirty {
            self.count_clean(inode);
        }
        inode.set(fi::UPDATE_WRITE);
        Ok(())
    }

    /// Writes one block to where it belongs (`f2fs_do_write_data_page`). Yes: it was submitted.
    ///
    /// Waits: for a checkpoint, the node, the log. Errors: as [`F2fs::write_data_outplace`].
    async fn place_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
        how: How,
        mut run: Option<&mut IpuRun>,
    ) -> FsResult<bool> {
        let mut op: Option<OpGuard> = None;
        loop {
            let owner = self.owner_of(inode, b.block()).await?;
            let tree = owner.map_lock.lock().await;
            if is_on_its_way(b) {
                drop(tree);
                self.wait_on_page_writeback(b, Kind::Data, true).await;
                continue;
            }
            let is_ours = inode.map.peek(b.block()).is_some_and(|now| Rc::ptr_eq(&now, b));
            if !is_ours || !(b.flag(BufFlag::Dirty) || how.gc) {
                return Ok(false);
            }
            let in_place = self.updates_in_place(inode, how.gc);
            let known = inode.extents.borrow().find(b.block());
            if in_place && let Some((at, _)) = known {
                self.write_in_place(inode, b, how, at, run.as_deref_mut())?;
                return Ok(true);
            }
            let dn = match self.dnode(&owner, b.block(), Find::Lookup).await? {
                Found::At(dn) => dn,
                Found::Hole(_) => {
                    self.drop_dirty(inode, b);
                    return Ok(false);
                }
            };
            let old = self.checked(&owner, dn.addr(&owner, dn.slot))?;
            if old == addr::NULL {
                // It was cut off.
                self.drop_dirty(inode, b);
                return Ok(false);
            }
            if is_on_its_way(b) || !(b.flag(BufFlag::Dirty) || how.gc) {
                continue;
            }
            if in_place && addr::is_block(old) {
                self.write_in_place(inode, b, how, old, run.as_deref_mut())?;
                return Ok(true);
            }
            if op.is_none() {
                op = self.try_lock_op();
            }
            if op.is_none() {
                drop(tree);
                op = Some(self.lock_op().await);
                continue;
            }
            let place = (&owner, &dn, old);
            return self.write_out_of_place(inode, b, how, place).await.map(|()| true);
        }
    }

    /// `owner`: the inode of the node, which has the block at `old`.
    async fn write_out_of_place(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
        how: How,
        (owner, dn, old): (&Rc<Inode>, &Dnode, u32),
    ) -> FsResult<()> {
        let version = self.nat(dn.nid).await?.version;
        let was_dirty = b.flag(BufFlag::Dirty);
        let mut w = F2fs::data_write(inode, b, how, self.log_of(inode, how.gc), old);
        (w.nid, w.ofs_in_node, w.version) = (dn.nid, dn.slot, version);
        self.rt.cpu(CpuOp::BlockAlloc, 1).await;
        let new = self.write_data_outplace(&w).await?;
        if was_dirty {
            self.count_clean(inode);
        }
        b.clear(GCING);
        self.move_block(owner, dn, dn.slot, new).await;
        inode.set(fi::APPEND_WRITE);
        Ok(())
    }

    /// A block that is nowhere any more has nothing to write.
    fn drop_dirty(&self, inode: &Inode, b: &Rc<Buffer>) {
        if inode.map.clear_dirty(b) {
            self.count_clean(inode);
        }
        inode.map.drop_tag(b.block());
        b.clear(GCING);
    }

    /// `f2fs_write_single_data_page`. Yes: something was submitted.
    async fn write_page(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
        sync: bool,
        run: &mut IpuRun,
    ) -> FsResult<bool> {
        if self.cp_error() {
            return Err(FsError::Io);
        }
        if b.block() * BLOCK >= inode.size.get() {
            self.drop_dirty(inode, b);
            return Ok(false);
        }
        if inode.has_inline(inline::DATA) && b.block() == 0 {
            self.write_inline(inode, b).await?;
            return Ok(false);
        }
        let how = How { sync, gc: b.flag(GCING) };
        let submitted = match self.place_block(inode, b, how, Some(run)).await {
            Ok(submitted) => submitted,
            Err(e) => {
                self.keep_size(inode);
                return Err(e);
            }
        };
        self.rt.cpu(CpuOp::PageWriteback, 1).await;
        if submitted {
            let to = (b.block() + 1) * BLOCK;
            inode.last_disk_size.set(inode.last_disk_size.get().max(to));
        }
        Ok(submitted)
    }

    /// `f2fs_write_cache_pages` over one range of indices. Answers whether the whole range was
    /// scanned.
    async fn write_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        wbc: &WbControl,
        (from, to): (u64, u64),
        run: &mut IpuRun,
        written: &mut u64,
    ) -> FsResult<bool> {
        // What somebody waits for is what is dirty now, not what becomes so meanwhile.
        let tagged = inode.map.tagged(from, to, usize::MAX);
        for index in tagged {
            if !wbc.sync && self.files.sync_writers.get() > 0 {
                return Ok(false);
            }
            let Some(b) = inode.map.peek(index) else {
                inode.map.drop_tag(index);
                continue;
            };
            if !b.flag(BufFlag::Dirty) {
                if !b.flag(BufFlag::Writeback) {
                    inode.map.drop_tag(index);
                }
                continue;
            }
            if b.flag(BufFlag::Writeback) {
                if !wbc.sync {
                    continue;
                }
                if is_on_its_way(&b) {
                    self.wait_on_page_writeback(&b, Kind::Data, true).await;
                }
            }
            if self.write_page(inode, &b, wbc.sync, run).await? {
                *written += 1;
                wbc.budget.set(wbc.budget.get().saturating_sub(1));
                if !inode.is_dir() {
                    // Without the map's lock, as in the kernel without the page's.
                    self.balance_fs(true).await;
                }
            }
            inode.map.set_next_index(index + 1);
            if wbc.budget.get() == 0 && !wbc.sync {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn write_mapping(self: &Rc<Self>, inode: &Rc<Inode>, wbc: &WbControl) -> FsResult<()> {
        if inode.dirty_pages.get() <= HOT_BLOCKS {
            inode.set(fi::HOT_DATA);
        } else {
            inode.clear(fi::HOT_DATA);
        }
        let mut run = IpuRun::default();
        let mut written = 0;
        let start = if wbc.cyclic { inode.map.next_index() } else { wbc.range.0 };
        let mut out =
            self.write_range(inode, wbc, (start, wbc.range.1), &mut run, &mut written).await;
        if matches!(out, Ok(true)) && wbc.cyclic {
            if start > 0 {
                out = self.write_range(inode, wbc, (0, start - 1), &mut run, &mut written).await;
            }
            if matches!(out, Ok(true)) {
                inode.map.set_next_index(0);
            }
        }
        if written > 0 {
            self.submit_merged_cond(Kind::Data, Held::Map(&inode.map));
        }
        self.submit_ipu(&mut run);
        out.map(|_| ())
    }

    /// `__f2fs_write_data_pages`.
    async fn write_data_pages(self: &Rc<Self>, inode: &Rc<Inode>, wbc: &WbControl) -> FsResult<()> {
        let dirty = inode.dirty_pages.get();
        let writers = &self.files.sync_writers;
        if wbc.sync {
            writers.set(writers.get() + 1);
        } else if (inode.is_dir() && dirty < SEQ_BLOCKS) || writers.get() > 0 {
            wbc.skipped.set(wbc.skipped.get() + dirty);
            return Ok(());
        } else if dirty == 0 {
            return Ok(());
        }
        let alone = inode.is_file() && (!wbc.sync || dirty >= SEQ_BLOCKS);
        let lock = if alone { Some(self.files.writepages.lock().await) } else { None };
        let plug = self.io.part().plug();
        let out = self.write_mapping(inode, wbc).await;
        drop(plug);
        drop(lock);
        if wbc.sync {
            writers.set(writers.get() - 1);
        }
        if inode.is_dir() && inode.dirty_pages.get() == 0 {
            self.dir_cleaned(inode.ino);
        }
        out
    }

    /// Moves a block of a file out of a segment that is collected: reads it, and marks it dirty and
    /// cold, or (`foreground`) writes it to the cold log at once (`move_data_page`). `node_ofs`,
    /// `slot`: which block it is; `addr`: where it is, else it has moved already. Yes: something
    /// was submitted.
    pub(super) async fn gc_data_page(
        self: &Rc<Self>,
        ino: u32,
        node_ofs: u32,
        slot: u32,
        addr: u32,
        foreground: bool,
    ) -> FsResult<bool> {
        let inode = match self.iget(ino).await {
            Ok(inode) => inode,
            Err(FsError::NotFound) => return Ok(false),
            Err(e) => return Err(e),
        };
        if inode.is(fi::ATOMIC | fi::COW) {
            self.gc.has_skipped.set(true);
            return Ok(false);
        }
        let Some(_move) = Move::try_begin(&inode) else {
            self.gc.has_skipped.set(true);
            return Ok(false);
        };
        let Some(first) = inode.shape().first_block(node_ofs) else { return Ok(false) };
        let index = first + u64::from(slot);
        if inode.has_inline(inline::DATA) || self.address(&inode, index).await? != addr {
            return Ok(false);
        }
        let b = self.data_block(&inode, index).await?;
        if !foreground {
            if !b.flag(BufFlag::Writeback) {
                self.dirty_data(&inode, &b);
                b.set(GCING);
            }
            return Ok(false);
        }
        self.wait_on_page_writeback(&b, Kind::Data, true).await;
        if self.address(&inode, index).await? != addr {
            return Ok(false);
        }
        b.set(GCING);
        let how = How { sync: true, gc: true };
        self.place_block(&inode, &b, how, None).await
    }
}

impl Inode {
    /// The file system and this inode as a shared pointer, if `map` is its own still.
    fn shared(&self, map: &Rc<Mapping>) -> Option<(Rc<F2fs>, Rc<Inode>)> {
        let fs = self.fs.upgrade()?;
        let me = fs.inode_in_memory(self.ino)?;
        Rc::ptr_eq(&me.map, map).then_some((fs, me))
    }
}

impl WbOps for Inode {
    fn writepages<'a>(&'a self, map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            let Some((fs, me)) = self.shared(map) else { return Ok(()) };
            fs.write_data_pages(&me, wbc).await
        })
    }

    /// `f2fs_dirty_inode`.
    fn times_taken(&self) {
        self.clear(fi::AUTO_RECOVER);
        self.set(fi::DIRTY);
    }

    fn write_inode<'a>(&'a self, map: &'a Rc<Mapping>) -> Option<Fut<'a, ()>> {
        let (fs, me) = self.shared(map)?;
        if !me.is(fi::DIRTY) && me.has_disk_times() {
            return None;
        }
        Some(Box::pin(async move {
            if fs.cp_error() || me.gone.get() {
                return Ok(());
            }
            fs.write_inode(&me).await
        }))
    }
}
