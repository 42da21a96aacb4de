//! Cutting files, and freeing inodes that nobody names any more.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::BufFlag;

use super::extents::REVOKES_CUT;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;

/// Credits of a handle that cuts one leaf: inode, super block, a path of nodes, bitmaps and
/// descriptors.
const CREDITS_CUT: u32 = 64;

impl Ext4 {
    /// Changes the length of a file; the caller holds its `lock`.
    ///
    /// Waits: for writeback of what is cut off, for the journal. Errors: `TooBig`.
    pub(super) async fn set_size(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        if size.div_ceil(bs) >= u64::from(u32::MAX) {
            return Err(FsError::TooBig);
        }
        if inode.gone.get() {
            return Err(FsError::NotFound);
        }
        if !inode.has(flag::EXTENTS) {
            return Err(FsError::Unsupported("changing files with indirect blocks".into()));
        }
        let old = inode.size.get();
        if size >= old {
            let h = self.start(2).await?;
            inode.size.set(size);
            inode.disksize.set(size);
            let now = self.time();
            inode.set_mtime(now);
            inode.set_ctime(now);
            let out = self.write_inode(&h, inode).await;
            inode.datasync_tid.set(h.tid());
            return self.stop(h, out).await;
        }
        self.write_ordered(inode).await?;
        let h = self.start(8).await?;
        let out = async {
            self.add_orphan(&h, inode).await?;
            inode.disksize.set(size);
            inode.size.set(size);
            self.write_inode(&h, inode).await
        }
        .await;
        self.stop(h, out).await?;
        self.drop_blocks(inode, size.div_ceil(bs)).await;
        self.zero_tail(inode, size).await?;
        self.finish_truncate(inode).await
    }

    /// Writes data that a committing transaction has promised to write, before it is thrown away
    /// (`ext4_begin_ordered_truncate`): its blocks would come out of a crash with what stood there.
    async fn write_ordered(&self, inode: &Inode) -> FsResult<()> {
        let jinode = inode.jinode.borrow().clone();
        match jinode {
            Some(j) => self.journal().begin_ordered_truncate(&j).await,
            None => Ok(()),
        }
    }

    /// Drops cached blocks from `first` on, and what was reserved for them.
    pub(super) async fn drop_blocks(&self, inode: &Inode, first: u64) {
        let promised =
            inode.map.range(first, u64::MAX).iter().filter(|b| b.clear(BufFlag::Delay)).count()
                as u64;
        inode.reserved.set(inode.reserved.get() - promised);
        self.reserved_blocks.set(self.reserved_blocks.get() - promised);
        inode.map.truncate(first).await;
    }

    /// Zeroes the last block beyond the new end (`ext4_block_truncate_page`), as ordered data.
    pub(super) async fn zero_tail(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        if size.is_multiple_of(bs) || !inode.has(flag::EXTENTS) {
            return Ok(());
        }
        let index = size / bs;
        let promised = inode.map.peek(index).is_some_and(|b| b.flag(BufFlag::Delay));
        if !promised && !self.find_run(inode, index).await?.is_ok_and(|r| !r.unwritten) {
            // A hole, or what reads as one: there is nothing to write.
            return Ok(());
        }
        let b = self.data_block(inode, index).await?;
        b.with_mut(|bytes| bytes[(size % bs) as usize..].fill(0));
        if b.flag(BufFlag::Mapped) {
            let h = self.start(1).await?;
            let filed = h.file_inode(&self.jinode(inode), wp_jbd2::Ordered::WriteAndWait);
            self.stop(h, filed).await?;
        }
        inode.map.mark_dirty(&b);
        Ok(())
    }

    /// Frees everything beyond the inode's size, and takes it off the orphan chain
    /// (`ext4_truncate`).
    pub(super) async fn finish_truncate(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        self.cut(inode, inode.disksize.get().div_ceil(bs), is_metadata(inode)).await?;
        let h = self.start(8).await?;
        let out = async {
            let now = self.time();
            inode.set_mtime(now);
            inode.set_ctime(now);
            self.remove_orphan(&h, inode).await?;
            self.write_inode(&h, inode).await
        }
        .await;
        inode.datasync_tid.set(h.tid());
        self.stop(h, out).await
    }

    /// Removes extents from block `from` on, in as many handles as it takes.
    async fn cut(self: &Rc<Self>, inode: &Rc<Inode>, from: u64, metadata: bool) -> FsResult<()> {
        if !inode.has(flag::EXTENTS) {
            return Ok(());
        }
        loop {
            let h = self.start_revoking(CREDITS_CUT, REVOKES_CUT).await?;
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
        let was_dir = inode.is_dir();
        let metadata = is_metadata(inode);
        self.write_ordered(inode).await?;
        self.drop_blocks(inode, 0).await;
        let h = self.start(8).await?;
        let out = async {
            inode.size.set(0);
            inode.disksize.set(0);
            self.write_inode(&h, inode).await
        }
        .await;
        self.stop(h, out).await?;
        let fast_link = inode.disk.borrow().is_fast_symlink(self.bs().sectors());
        if !fast_link {
            self.cut(inode, 0, metadata).await?;
        }
        let h = self.start(16).await?;
        let out = async {
            self.remove_orphan(&h, inode).await?;
            inode.disk.borrow_mut().dtime = (self.time().secs as u32).into();
            self.write_inode(&h, inode).await?;
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
}

/// Do its blocks count as metadata, to be revoked when they are freed?
fn is_metadata(inode: &Inode) -> bool {
    let disk = inode.disk.borrow();
    disk.is_dir() || disk.is_symlink()
}
