//! Inodes in memory. (FILES owns this file: what is here is what STORE needs of it.)

use std::rc::Rc;

use wp_base::FsResult;
use wp_cache::{Buffer, Mapping};
use wp_rt::Rt;

use super::mount::F2fs;

/// An inode in memory.
pub(crate) struct Inode {
    /// Its number.
    pub ino: u32,
    /// Its blocks.
    pub map: Rc<Mapping>,
}

/// What the files' half keeps for a mounted file system.
pub(crate) struct Files {}

impl Files {
    pub(super) fn new(_rt: &Rt) -> Files {
        Files {}
    }
}

impl F2fs {
    /// The inode, if it is in memory (`ilookup`).
    pub(super) fn inode_in_memory(&self, ino: u32) -> Option<Rc<Inode>> {
        let _ = ino;
        todo!()
    }

    /// The inode (`f2fs_iget`).
    pub(super) async fn iget(self: &Rc<Self>, ino: u32) -> FsResult<Rc<Inode>> {
        let _ = ino;
        todo!()
    }

    /// Does the inode differ from its node block (`FI_DIRTY_INODE`)?
    pub(super) fn is_inode_dirty(&self, ino: u32) -> bool {
        let _ = ino;
        todo!()
    }

    /// Copies a dirty inode's fields into its node block, and marks that dirty
    /// (`f2fs_update_inode`); takes it off the list of dirty inodes.
    pub(super) async fn update_inode(&self, inode: &Rc<Inode>, buf: &Rc<Buffer>) -> FsResult<()> {
        let _ = (inode, buf);
        todo!()
    }

    /// Finds the dirty inode's node block and copies it there (`sync_inode_metadata`,
    /// `f2fs_update_inode_page`). An inode that is not in memory is taken off the list.
    pub(super) async fn sync_inode(self: &Rc<Self>, ino: u32) -> FsResult<()> {
        let _ = ino;
        todo!()
    }

    /// Copies inline data that is dirty in the page cache into the inode's node
    /// (`flush_inline_data`).
    pub(super) async fn flush_inline_data(self: &Rc<Self>, ino: u32) -> FsResult<()> {
        let _ = ino;
        todo!()
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
        let _ = (ino, node_ofs, slot, addr, foreground);
        todo!()
    }

    /// At unmount, before the last checkpoint: frees what only open descriptors kept, drops
    /// what is in memory after everything was written.
    pub(super) async fn evict_all(self: &Rc<Self>) -> FsResult<()> {
        todo!()
    }
}
