//! The orphan chain: inodes that a crash must not leave half freed or half cut.
//!
//! Picture:    `s_last_orphan` -> inode -> (its `i_dtime` field) -> inode -> 0.
//! Source:     Linux `fs/ext4/orphan.c` (`ext4_orphan_add`, `ext4_orphan_del`,
//!             `ext4_orphan_cleanup`).

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_jbd2::Handle;

use super::inode::Inode;
use super::mount::Ext4;

impl Ext4 {
    /// Puts the inode on the chain, unless it is there.
    pub(super) async fn add_orphan(&self, h: &Handle, inode: &Inode) -> FsResult<()> {
        let _one = self.orphan_lock.lock().await;
        if self.orphans.borrow().contains(&inode.ino) {
            return Ok(());
        }
        let head = self.sb.borrow().last_orphan.get();
        self.change_super(h, |sb| sb.last_orphan = inode.ino.into()).await?;
        inode.disk.borrow_mut().dtime = head.into();
        self.orphans.borrow_mut().insert(0, inode.ino);
        self.write_inode(h, inode).await
    }

    /// Takes the inode off the chain, if it is there. The caller writes the inode.
    pub(super) async fn remove_orphan(self: &Rc<Self>, h: &Handle, inode: &Inode) -> FsResult<()> {
        let _one = self.orphan_lock.lock().await;
        let Some(pos) = self.orphans.borrow().iter().position(|i| *i == inode.ino) else {
            return Ok(());
        };
        let next = inode.disk.borrow().dtime.get();
        if pos == 0 {
            self.change_super(h, |sb| sb.last_orphan = next.into()).await?;
        } else {
            let before = self.orphans.borrow()[pos - 1];
            let before = self.inode(before).await?;
            before.disk.borrow_mut().dtime = next.into();
            self.write_inode(h, &before).await?;
        }
        inode.disk.borrow_mut().dtime = 0.into();
        self.orphans.borrow_mut().remove(pos);
        Ok(())
    }

    /// Is the inode on the chain, or is the chain still being read?
    pub(super) fn orphan_found(&self, ino: u32) -> bool {
        self.orphans_loading.get() || self.orphans.borrow().contains(&ino)
    }

    /// Reads the chain from the image, oldest last. Bounded by the number of inodes; changes
    /// nothing.
    pub(super) async fn read_orphans(self: &Rc<Self>) -> FsResult<Vec<Rc<Inode>>> {
        self.orphans_loading.set(true);
        let mut chain: Vec<Rc<Inode>> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut at = self.sb.borrow().last_orphan.get();
        while at != 0 {
            let reserved = at < self.geo.first_inode;
            if !seen.insert(at) || reserved || !self.is_taken(at).await? {
                return Err(FsError::corrupt(
                    "ext4 orphan chain",
                    "i_dtime",
                    0,
                    u64::from(at),
                    "a chain of files' inodes in use, without a loop",
                ));
            }
            let inode = self.inode(at).await?;
            if inode.nlink() == 0 {
                self.check_can_free(&inode)?;
            }
            at = inode.disk.borrow().dtime.get();
            chain.push(inode);
        }
        self.orphans_loading.set(false);
        Ok(chain)
    }

    /// After a crash: cuts or frees what the chain names.
    pub(super) async fn clean_orphans(self: &Rc<Self>, chain: Vec<Rc<Inode>>) -> FsResult<()> {
        *self.orphans.borrow_mut() = chain.iter().map(|i| i.ino).collect();
        for inode in chain {
            if inode.nlink() == 0 {
                self.delete_inode(&inode).await?;
            } else {
                // What the cut left of the last block may not have been zeroed yet.
                self.zero_tail(&inode, inode.size.get()).await?;
                self.finish_truncate(&inode).await?;
            }
        }
        Ok(())
    }
}
