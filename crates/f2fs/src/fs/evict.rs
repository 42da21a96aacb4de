//! Inodes that leave memory, and those that are freed.
//!
//! Source:     Linux `fs/f2fs/inode.c` (`f2fs_evict_inode`).

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_rt::CpuOp;

use super::ino_sets::InoSet;
use super::inode::{Inode, fi};
use super::mount::F2fs;

impl F2fs {
    /// Drops idle inodes, oldest first, if there are too many.
    pub(super) fn drop_idle_inodes(&self) {
        let mut inodes = self.files.inodes.borrow_mut();
        let mut order = self.files.order.borrow_mut();
        if order.len() > 2 * inodes.len() + 64 {
            let mut seen = BTreeSet::new();
            order.retain(|i| inodes.contains(u64::from(*i)) && seen.insert(*i));
        }
        let mut looks = order.len().min(64);
        while inodes.len() >= self.files.limits.get().0 && looks > 0 {
            looks -= 1;
            let Some(ino) = order.pop_front() else { break };
            match inodes.get(u64::from(ino)) {
                None => {}
                Some(i) if i.is_idle() => {
                    self.remember_writes(i);
                    inodes.remove(u64::from(ino));
                }
                Some(_) => order.push_back(ino),
            }
        }
    }

    /// What an fsync must know of an inode that leaves memory (end of `f2fs_evict_inode`).
    fn remember_writes(&self, inode: &Inode) {
        for (bit, set) in [(fi::APPEND_WRITE, InoSet::Append), (fi::UPDATE_WRITE, InoSet::Update)] {
            if inode.is(bit) {
                self.add_ino(inode.ino, set);
            }
        }
    }

    /// Forgets idle inodes and clean blocks (`drop_caches`).
    pub(super) fn drop_file_caches(&self) {
        let mut inodes = self.files.inodes.borrow_mut();
        for i in inodes.values() {
            i.map.invalidate(0, u64::MAX);
        }
        let idle: Vec<u64> =
            inodes.values().filter(|i| i.is_idle()).map(|i| u64::from(i.ino)).collect();
        for ino in idle {
            if let Some(i) = inodes.remove(ino) {
                self.remember_writes(&i);
            }
        }
    }

    /// An inode that nobody uses and that has no name any more is freed, with all that it has
    /// (`f2fs_evict_inode`). Not to be called with [`F2fs::lock_op`] held.
    pub(super) async fn free_if_unused(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.nlink() > 0 || inode.opens.get() > 0 || inode.gone.replace(true) {
            return Ok(());
        }
        if self.cp_error() || !self.is_mounted() {
            return Ok(());
        }
        self.wb.forget(&inode.map);
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        self.drop_pages(inode, 0, u64::MAX).await;
        for set in [InoSet::Append, InoSet::Update] {
            self.remove_ino(inode.ino, set);
        }
        self.inos.flushed(inode.ino);
        inode.set(fi::NO_ALLOC);
        inode.size.set(0);
        if inode.is_file() {
            inode.extents.borrow_mut().clear();
            inode.set(fi::NO_EXTENT);
        }
        let own_blocks = u64::from(inode.f.borrow().xattr_nid != 0);
        let mut out = Ok(());
        if inode.f.borrow().blocks > own_blocks {
            out = self.truncate_blocks(inode, 0, true).await;
        }
        if out.is_ok() {
            let op = self.lock_op().await;
            out = self.remove_inode_node(inode).await;
            drop(op);
        }
        match out {
            Ok(()) | Err(FsError::NotFound) => out = Ok(()),
            Err(_) => self.update_inode_page(inode).await?,
        }
        self.mark_inode_synced(inode);
        self.wb.forget(&inode.map);
        self.forget_inode(inode);
        let cow = inode.cow.take();
        if let Some(cow) = cow {
            cow.opens.set(0);
            out = out.and(Box::pin(self.free_if_unused(&cow)).await);
        }
        out
    }

    /// Forgets an inode in memory, unless its number leads to another by now.
    pub(super) fn forget_inode(&self, inode: &Rc<Inode>) {
        let mut inodes = self.files.inodes.borrow_mut();
        if inodes.get(u64::from(inode.ino)).is_some_and(|i| Rc::ptr_eq(i, inode)) {
            inodes.remove(u64::from(inode.ino));
        }
    }

    /// At unmount, before the last checkpoint: frees what only open descriptors kept, drops
    /// what is in memory after everything was written.
    pub(super) async fn evict_all(self: &Rc<Self>) -> FsResult<()> {
        let all: Vec<Rc<Inode>> = self.files.inodes.borrow().values().cloned().collect();
        for inode in all {
            inode.opens.set(0);
            self.free_if_unused(&inode).await?;
            if !inode.gone.get() {
                self.write_inode(&inode).await?;
            }
        }
        Ok(())
    }
}
