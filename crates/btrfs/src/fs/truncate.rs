//! Files cut, made longer, and deleted.
//!
//! Source: fs/btrfs/inode.c (`btrfs_setsize`, `btrfs_truncate`, `btrfs_evict_inode`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::BufFlag;
use wp_rt::{CpuOp, LockGuard};

use crate::disk::Key;

use super::inode::Inode;
use super::{BLOCK, Btrfs};

/// Items of extents that are dropped in one go.
const BATCH: usize = 32;

impl Btrfs {
    /// The inode's lock, with no direct I/O under way.
    pub(super) async fn lock_alone<'a>(&self, inode: &'a Inode) -> LockGuard<'a, ()> {
        let guard = inode.lock.lock().await;
        while inode.dio.get() > 0 {
            inode.dio_done.wait().await;
        }
        guard
    }

    /// Forgets cached blocks `from..to`, written or not; what has no place needs none any more, and
    /// what has one and was not sent is not sent. Waits: for what is being sent.
    /// `truncate_pagecache`, `btrfs_invalidate_folio`.
    pub(super) async fn drop_blocks(&self, inode: &Rc<Inode>, from: u64, to: u64) {
        loop {
            let busy = inode.map.range(from, to).into_iter();
            let Some(b) = busy.into_iter().find(|b| b.flag(BufFlag::Writeback)) else { break };
            b.wait_clear(BufFlag::Writeback).await;
        }
        for b in inode.map.range(from, to) {
            let at = b.block() * BLOCK;
            if b.flag(BufFlag::Delay) {
                self.end_delalloc(inode, at, at + BLOCK);
            } else if b.flag(BufFlag::Dirty)
                && b.clear(BufFlag::Mapped)
                && let Some(o) = self.ordered_at(inode, at)
            {
                o.kept.set(o.kept.get().min(at - o.start));
                self.end_part(inode, &o, BLOCK, false);
            }
        }
        self.give_spare(inode);
        inode.map.truncate_range(from, to).await;
    }

    /// Sets a file's length. The caller has [`Btrfs::lock_alone`]. `btrfs_setsize`.
    pub(super) async fn set_length(&self, inode: &Rc<Inode>, size: u64) -> FsResult<()> {
        if size > i64::MAX.cast_unsigned() {
            return Err(FsError::TooBig);
        }
        let old = inode.size();
        if size != old {
            self.stamp(inode, true);
        }
        if size > old {
            self.expand(inode, old, size).await?;
            let _p = self.reserve(1).await?;
            inode.set_size(size);
            inode.disk_size.set(size);
            let done = self.must(|c| self.update_inode(c, inode));
            return self.settled(done).await;
        }
        if size == 0 {
            inode.flush_on_close.set(true);
        }
        inode.set_size(size);
        let within = size % BLOCK;
        // The rest of the last block reads as zero, if it is in memory; the device keeps it.
        if within != 0
            && let Some(b) = inode.map.peek(size / BLOCK)
        {
            b.wait_clear(BufFlag::Reading).await;
            let skip = crate::disk::index(within);
            b.with_mut(|bytes| bytes.iter_mut().skip(skip).for_each(|b| *b = 0));
        }
        self.drop_blocks(inode, size.div_ceil(BLOCK), u64::MAX).await;
        self.truncate(inode, size != old).await
    }

    /// Drops extents behind a file's length; if there is one that reaches there, the next fsync
    /// looks at all that the file has. `writes`: the length is another one, and what is on its way
    /// there arrives first. `btrfs_truncate`.
    async fn truncate(&self, inode: &Rc<Inode>, writes: bool) -> FsResult<()> {
        let size = inode.size();
        if writes {
            self.write_ordered(inode, size / BLOCK * BLOCK, u64::MAX).await?;
        }
        let end = size.next_multiple_of(BLOCK);
        inode.logged.modified.borrow_mut().1.cut(end, u64::MAX - end);
        loop {
            let _p = self.reserve_removal(2).await?;
            let done = self.must(|c| {
                if c.part_from(inode.tree, inode.ino, size)?.is_some() {
                    inode.need_full_sync();
                }
                let (dropped, is_done) = c.cut_extents(inode.tree, inode.ino, size, BATCH)?;
                inode.add_bytes(0, dropped);
                inode.disk_size.set(size);
                self.update_inode(c, inode)?;
                Ok(is_done)
            });
            if self.settled(done).await? {
                return Ok(());
            }
        }
    }

    /// An inode may be one without names that nobody uses: then it goes, now or, if something of it
    /// is on its way, by the cleaner.
    pub(super) fn note_unused(&self, inode: &Rc<Inode>) {
        if inode.is_unwanted()
            && !inode.is_used()
            && !inode.is_gone.get()
            && inode.ordered.borrow().is_empty()
            && self.is_mounted.get()
        {
            self.cleaner.add(inode.handle);
        }
    }

    /// The last use of an inode may be gone. Waits: for what a deletion waits for. `iput`.
    pub(super) async fn put(&self, inode: &Rc<Inode>) -> FsResult<()> {
        if !inode.is_unwanted() || inode.is_used() || inode.is_gone.get() {
            return Ok(());
        }
        if !inode.ordered.borrow().is_empty() {
            // They hold the inode; whoever ends the last has the cleaner drop it.
            return Ok(());
        }
        self.evict(inode).await
    }

    /// An inode without names goes, with all that it has. Errors leave it to the next mount, which
    /// finds its orphan item. `btrfs_evict_inode`.
    pub(super) async fn evict(&self, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.is_gone.replace(true) {
            return Ok(());
        }
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        self.drop_blocks(inode, 0, u64::MAX).await;
        self.wait_ordered(inode, 0, u64::MAX).await;
        let done = match inode.nlink() {
            0 => self.delete_items(inode.tree, inode.ino).await,
            // All of its tree goes.
            _ => Ok(()),
        };
        self.inodes.borrow_mut().remove(&inode.handle);
        if inode.vol.is_dead.get() {
            self.note_dead(inode.tree);
        }
        done
    }

    /// Deletes all items of an inode and what they lead to, and its orphan item.
    pub(super) async fn delete_items(&self, tree: u64, ino: u64) -> FsResult<()> {
        loop {
            let _p = self.reserve_removal(2).await?;
            let done = self.must(|c| {
                let (_, is_done) = c.cut_extents(tree, ino, 0, BATCH)?;
                if is_done {
                    while c.remove_inode_items(tree, Key::new(ino, 0, 0), 100)? {}
                    c.remove_orphan(tree, ino)?;
                }
                Ok(is_done)
            });
            if self.settled(done).await? {
                return Ok(());
            }
        }
    }
}
