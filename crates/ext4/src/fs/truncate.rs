//! Cutting files, and freeing inodes that nobody names any more.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::BufFlag;
use wp_rt::{CpuOp, soon};

use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;
use crate::site;

/// Credits of a handle that cuts one leaf: inode, super block, a path of nodes, bitmaps and
/// descriptors.
const CREDITS_CUT: u32 = 64;

impl Ext4 {
    /// Changes the length of a file; the caller holds its `lock`.
    ///
    /// Waits: for writeback of what is cut off, for the journal. Errors: `TooBig`.
    pub(super) async fn set_size(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        self.check_size(inode, size)?;
        if inode.gone.get() {
            return Err(FsError::NotFound);
        }
        self.announce_size(size).await?;
        let old = inode.size.get();
        if size == 0 {
            inode.alloc_on_close.set(true);
        }
        if size == old && !self.has_blocks_from(inode, size.div_ceil(bs)).await? {
            return self.touch(inode).await;
        }
        if size > old {
            if inode.iomap.get() {
                self.grow_over(inode, old, size).await?;
            } else if self.opts.era.zeroes_tail_on_extension() && site::EXTEND_ZERO.on() {
                self.zero_tail(inode, old).await?;
            }
            let h = self.start(2).await?;
            let block = |bytes: u64| bytes.saturating_sub(1) / bs;
            self.fast_track_range(&h, inode, (block(old), block(size)));
            inode.size.set(size);
            self.set_length(inode, size);
            let now = self.time();
            inode.set_mtime(now);
            inode.set_ctime(now);
            let out = self.write_inode(&h, inode).await;
            self.stop(h, out).await?;
            // Else the length would wait for the flusher, not for the next commit.
            return self.send_growth(inode).await;
        }
        self.end_growth_for_cut(inode, size).await?;
        self.write_ordered(inode, size / bs).await?;
        let h = self.start(8).await?;
        let out = async {
            if site::TRUNCATE_ORPHAN.on() {
                self.add_orphan(&h, inode).await?;
            }
            if size != old {
                let last = match self.opts.era.fast_tracks_to_the_end() {
                    true => u64::MAX,
                    false => old.saturating_sub(1) / bs,
                };
                self.fast_track_range(&h, inode, (size.saturating_sub(1) / bs, last));
            }
            inode.disksize.set(size);
            inode.size.set(size);
            self.write_inode(&h, inode).await
        }
        .await;
        self.stop(h, out).await?;
        self.drop_blocks(inode, size.div_ceil(bs)).await;
        if site::TRUNCATE_ZERO.on() {
            let zeroed = self.zero_tail(inode, size).await?;
            self.cut_over(inode, size, zeroed);
        }
        self.finish_truncate(inode).await?;
        if !inode.has(flag::SYNC) {
            return Ok(());
        }
        // The truncate has committed its transaction, and the attributes come behind it
        // (`setattr_copy`, `mark_inode_dirty`).
        let h = self.start(2).await?;
        let out = self.write_inode(&h, inode).await;
        self.stop(h, out).await
    }

    /// Is anything allocated from block `from` on?
    async fn has_blocks_from(&self, inode: &Inode, from: u64) -> FsResult<bool> {
        Ok(match self.find_run(inode, from).await? {
            Ok(_) => true,
            Err(hole) => from.saturating_add(hole) < u64::from(u32::MAX),
        })
    }

    /// New times for a length that stays, which fdatasync does not wait for. Data that waits for
    /// its blocks loses its protection: the length is on the disk before it (`ext4_ext_truncate`
    /// sets `i_disksize` to `i_size`).
    async fn touch(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let h = self.start(2).await?;
        self.set_length(inode, inode.size.get());
        let now = self.time();
        inode.set_mtime(now);
        inode.set_ctime(now);
        let out = self.write_inode(&h, inode).await;
        self.stop(h, out).await
    }

    /// Writes data from block `from` on that a committing transaction has promised to write, before
    /// it is thrown away
    /// (`ext4_begin_ordered_truncate`): its blocks would come out of a crash with what stood there.
    async fn write_ordered(&self, inode: &Inode, from: u64) -> FsResult<()> {
        let jinode = inode.jinode.borrow().clone();
        match jinode {
            Some(j) if site::ORDERED_CUT.on() => {
                self.journal().begin_ordered_truncate(&j, self.pages_of(from, from).0).await
            }
            _ => Ok(()),
        }
    }

    /// Drops cached blocks from `first` on, and what was reserved for them.
    pub(super) async fn drop_blocks(&self, inode: &Inode, first: u64) {
        for b in inode.map.range(first, u64::MAX) {
            self.undelay(inode, &b);
        }
        self.invalidate_journalled(inode, first).await;
        inode.map.truncate(first).await;
    }

    /// Zeroes the last block beyond the new end (`ext4_block_truncate_page`), as ordered data. Was
    /// there anything to zero?
    pub(super) async fn zero_tail(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> FsResult<bool> {
        let bs = u64::from(self.bs().bytes());
        if size.is_multiple_of(bs) || !self.has_map(inode) {
            return Ok(false);
        }
        self.zero_part(inode, size / bs, size % bs, bs).await
    }

    /// Zeroes bytes `from..to` of a block in the cache, as ordered data
    /// (`ext4_block_zero_page_range`). Was there anything to zero?
    pub(super) async fn zero_part(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
        from: u64,
        to: u64,
    ) -> FsResult<bool> {
        // A cached block counts, wherever its extent stands: its data may be on the way.
        let cached = inode.map.peek(index).is_some_and(|b| {
            b.flag(BufFlag::Delay) || (b.flag(BufFlag::Mapped) && b.flag(BufFlag::Uptodate))
        });
        let run = self.find_run(inode, index).await?.ok().filter(|r| !r.unwritten);
        if !cached && run.is_none() {
            // A hole, or what reads as one: there is nothing to write.
            return Ok(false);
        }
        let b = self.data_block(inode, index).await?;
        if let Some(run) = run
            && !b.flag(BufFlag::Mapped)
        {
            // Read as a hole before, and zeroed on the device since.
            b.map_to(run.phys);
        }
        if self.journals_data(inode) && b.flag(BufFlag::Mapped) && !b.flag(BufFlag::Unwritten) {
            self.zero_journalled(inode, &b, from as usize..to as usize).await?;
            return Ok(true);
        }
        if self.opts.writeback.era.stable_pages() && site::ZERO_STABLE.on() {
            b.wait_clear(BufFlag::Writeback).await;
        }
        if self.journals_data(inode) && b.flag(BufFlag::Mapped) && !b.flag(BufFlag::Unwritten) {
            self.zero_journalled(inode, &b, from as usize..to as usize).await?;
            return Ok(true);
        }
        b.with_mut(|bytes| bytes[from as usize..to as usize].fill(0));
        let placed = b.flag(BufFlag::Mapped) && !b.flag(BufFlag::Unwritten);
        if placed && self.orders_data(inode) && site::ZERO_FILE.on() {
            let h = self.start(1).await?;
            let filed = self.file_inode(&h, inode, index, index + 1);
            self.stop(h, filed).await?;
        } else if self.orders_data(inode) && self.fast.is_on() {
            // Linux files it here too. No full commit can write it; a fast one writes the first
            // page of whatever was filed once.
            self.jinode(inode).remember_filed();
        }
        inode.map.mark_dirty(&b);
        Ok(true)
    }

    /// Frees everything beyond the inode's size, and takes it off the orphan chain
    /// (`ext4_truncate`).
    pub(super) async fn finish_truncate(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        self.discard_prealloc(inode);
        self.cut(inode, inode.disksize.get().div_ceil(bs), self.is_logged(inode)).await?;
        let h = self.start(8).await?;
        self.sync_with(&h, inode);
        let out = async {
            let now = self.time();
            inode.set_mtime(now);
            inode.set_ctime(now);
            self.remove_orphan_with_names(&h, inode).await?;
            {
                let mut d = inode.disk.borrow_mut();
                d.flags = (d.flags.get() & !flag::EOFBLOCKS).into();
            }
            self.write_inode(&h, inode).await
        }
        .await;
        // A changed size was logged before; only that concerns fdatasync (`ext4_do_update_inode`).
        self.stop(h, out).await
    }

    /// Removes blocks of the map from block `from` on, in as many handles as it takes.
    async fn cut(self: &Rc<Self>, inode: &Rc<Inode>, from: u64, metadata: bool) -> FsResult<()> {
        loop {
            let h = self.start_revoking(CREDITS_CUT, self.revokes_of_cut()).await?;
            let map = inode.map_lock.lock().await;
            let out = self.cut_once(&h, inode, from, metadata).await;
            drop(map);
            if self.stop(h, out).await? {
                return Ok(());
            }
        }
    }

    /// Frees an inode without names and without users (`ext4_evict_inode`).
    pub(super) async fn delete_inode(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        inode.gone.set(true);
        inode.grow.set(None);
        self.discard_prealloc(inode);
        let was_dir = inode.is_dir();
        let metadata = self.is_logged(inode);
        self.write_ordered(inode, 0).await?;
        self.drop_blocks(inode, 0).await;
        let h = self.start(8).await?;
        let out = async {
            inode.size.set(0);
            inode.disksize.set(0);
            self.write_inode(&h, inode).await
        }
        .await;
        self.stop(h, out).await?;
        let had_blocks = !inode.is_empty();
        let fast_link = inode.disk.borrow().is_fast_symlink(self.bs().sectors());
        if !fast_link {
            self.cut(inode, 0, metadata).await?;
        }
        let h = self.start_revoking(24, self.revokes(1)).await?;
        self.sync_with(&h, inode);
        let out = async {
            self.rt.cpu(CpuOp::InodeChange, 1).await;
            self.drop_xattrs(&h, inode).await?;
            self.remove_orphan(&h, inode).await?;
            inode.disk.borrow_mut().dtime = (self.time().secs as u32).into();
            self.write_inode(&h, inode).await?;
            // ext4_ext_truncate() and ext4_truncate() where there was something to cut;
            // ext4_orphan_del()
            self.count_again(&h, inode, if had_blocks { 3 } else { 1 });
            // Its number may be another's as soon as it is returned.
            self.forget_inode(inode);
            self.return_inode(&h, inode, was_dir).await
        }
        .await;
        let jinode = inode.jinode.borrow_mut().take();
        let out = self.stop(h, out).await;
        if let Some(j) = jinode {
            self.journal().release_inode(&j).await;
        }
        out
    }

    /// Are its blocks logged, so that freeing one must revoke it?
    fn is_logged(&self, inode: &Inode) -> bool {
        if self.journals_data(inode) {
            return true;
        }
        let disk = inode.disk.borrow();
        disk.is_dir() || disk.is_symlink()
    }

    /// What follows a size that moved from `old` over a gap up to `to`: the parts of blocks at the
    /// gap's edges are zeroed, and the inode is logged, if only as it was. The caller holds no
    /// handle; the kernel does both in one (`ext4_da_do_write_end`, `ext4_alloc_file_blocks`).
    pub(super) async fn zero_gap(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        old: u64,
        to: u64,
    ) -> FsResult<()> {
        if old >= to || !self.opts.era.zeroes_tail_on_extension() || inode.iomap.get() {
            return Ok(());
        }
        if self.has_map(inode) {
            self.zero_edges(inode, old, to).await?;
        }
        let h = soon!(self.start(2))?;
        let out = soon!(self.write_inode(&h, inode));
        soon!(self.stop(h, out))
    }
}
