//! Orphans: inodes that a crash must not leave half freed or half cut.
//!
//! Picture:    the chain: `s_last_orphan` -> inode -> (its `i_dtime` field) -> inode -> 0; where
//!             the image has an orphan file, its slots ([`super::orphan_file`]), and the chain only
//!             when those are full.
//! Source:     Linux `fs/ext4/orphan.c` (`ext4_orphan_add`, `ext4_orphan_del`,
//!             `ext4_orphan_cleanup`).

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_jbd2::Handle;

use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::SuperBlock;

impl Ext4 {
    /// Lists the inode as an orphan, unless it is listed.
    pub(super) async fn add_orphan(&self, h: &Handle, inode: &Inode) -> FsResult<()> {
        let _one = self.orphan_lock.lock().await;
        if self.orphans.borrow().contains(&inode.ino) {
            return Ok(());
        }
        self.fast_orphan(h, inode.ino);
        if self.add_to_orphan_file(h, inode.ino).await? {
            return Ok(());
        }
        let head = self.sb.borrow().last_orphan.get();
        self.change_super(h, |sb| sb.last_orphan = inode.ino.into()).await?;
        inode.disk.borrow_mut().dtime = head.into();
        self.orphans.borrow_mut().insert(0, inode.ino);
        self.write_inode(h, inode).await
    }

    /// Takes an inode off the list at the end of a truncate or of a write that grew it; one without
    /// names stays there until it is freed (`ext4_truncate`, `ext4_handle_inode_extension`).
    pub(super) async fn remove_orphan_with_names(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Inode,
    ) -> FsResult<()> {
        if inode.disk.borrow().links_count.get() == 0 {
            return Ok(());
        }
        self.remove_orphan(h, inode).await
    }

    /// Takes the inode off the list, if it is there. The caller writes the inode.
    pub(super) async fn remove_orphan(self: &Rc<Self>, h: &Handle, inode: &Inode) -> FsResult<()> {
        let _one = self.orphan_lock.lock().await;
        if self.remove_from_orphan_file(h, inode.ino).await? {
            self.fast_orphan_left(h, inode.ino);
            return Ok(());
        }
        let Some(pos) = self.orphans.borrow().iter().position(|i| *i == inode.ino) else {
            return Ok(());
        };
        self.fast_orphan_left(h, inode.ino);
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

    /// Is the inode listed as an orphan?
    pub(super) fn is_orphan(&self, ino: u32) -> bool {
        self.orphans.borrow().contains(&ino) || self.orphan_file_holds(ino)
    }

    /// Is the inode an orphan, or are the lists still being read?
    pub(super) fn orphan_found(&self, ino: u32) -> bool {
        self.orphans_loading.get() || self.is_orphan(ino)
    }

    /// Every orphan, in the order in which a mount finishes them.
    pub(super) fn all_orphans(&self) -> Vec<u32> {
        let mut all = self.orphans.borrow().clone();
        all.extend(self.orphan_file_inodes());
        all
    }

    /// Reads the lists from the image. Bounded by the number of inodes; changes nothing on it.
    pub(super) async fn read_orphans(self: &Rc<Self>) -> FsResult<Vec<Rc<Inode>>> {
        self.load_orphan_file().await?;
        if self.sb.borrow().state.get() & SuperBlock::STATE_ERROR != 0 {
            // Nobody trusts the lists of an image with errors; the chain is forgotten.
            self.sb.borrow_mut().last_orphan = 0.into();
            self.forget_orphan_file_slots();
            return Ok(Vec::new());
        }
        self.orphans_loading.set(true);
        let mut found: Vec<Rc<Inode>> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut at = self.sb.borrow().last_orphan.get();
        while at != 0 {
            let inode = self.read_orphan("ext4 orphan chain", "i_dtime", at, &mut seen).await?;
            at = inode.disk.borrow().dtime.get();
            found.push(inode);
        }
        *self.orphans.borrow_mut() = found.iter().map(|i| i.ino).collect();
        for ino in self.orphan_file_inodes() {
            found.push(self.read_orphan("ext4 orphan file", "slot", ino, &mut seen).await?);
        }
        self.orphans_loading.set(false);
        Ok(found)
    }

    async fn read_orphan(
        self: &Rc<Self>,
        structure: &'static str,
        field: &'static str,
        ino: u32,
        seen: &mut BTreeSet<u32>,
    ) -> FsResult<Rc<Inode>> {
        let reserved = ino < self.geo.first_inode;
        if !seen.insert(ino) || reserved || !self.is_taken(ino).await? {
            return Err(FsError::corrupt(
                structure,
                field,
                0,
                u64::from(ino),
                "files' inodes in use, each once",
            ));
        }
        self.inode(ino).await
    }

    /// After a crash: cuts or frees what the lists name (`ext4_process_orphan`).
    pub(super) async fn clean_orphans(self: &Rc<Self>, found: Vec<Rc<Inode>>) -> FsResult<()> {
        for inode in found {
            if inode.nlink() == 0 {
                self.delete_inode(&inode).await?;
            } else {
                // What the cut left of the last block may not have been zeroed yet.
                let zeroed = self.zero_tail(&inode, inode.size.get()).await?;
                self.cut_over(&inode, inode.size.get(), zeroed);
                self.finish_truncate(&inode).await?;
            }
        }
        Ok(())
    }
}
