//! Node blocks: made, read, changed, written.
//!
//! A node's buffer has its nid as index, and its bytes with the footer. Who changes one waits for
//! its writeback first ([`F2fs::wait_on_page_writeback`] with [`Kind::Node`]).
//!
//! Source: Linux `fs/f2fs/node.c`.
//!
//! [`Kind::Node`]: super::io::Kind::Node

use std::rc::Rc;

use wp_base::FsResult;
use wp_cache::{BufFlag, Buffer};

use super::inode::Inode;
use super::mount::F2fs;

/// On the buffer of an inode's node: its inline data was changed in the page cache, and is copied
/// in before the node is written (`page_private_inline`).
pub(crate) const INLINE: BufFlag = BufFlag::Private1;

/// Nodes that fsync has sent, in order (`fsync_node_list`).
pub(crate) struct FsyncNodes {}

impl F2fs {
    /// A node, up to date. Errors: `NotFound` if it is not there (or was never written), `Corrupt`
    /// if its footer is another's or its checksum is wrong, `Io`.
    pub(crate) async fn node(&self, nid: u32) -> FsResult<Rc<Buffer>> {
        let _ = nid;
        todo!()
    }

    /// As [`F2fs::node`] of entry `slot` of an indirect node (or of the inode's own nids), and
    /// starts reading up to 128 of those behind it (`f2fs_get_node_page_ra`).
    pub(crate) async fn node_ra(&self, nid: u32, more: &[u32]) -> FsResult<Rc<Buffer>> {
        let _ = (nid, more);
        todo!()
    }

    /// Starts reading a node that is not in memory (`f2fs_ra_node_page`).
    pub(crate) async fn ra_node(&self, nid: u32) {
        let _ = nid;
        todo!()
    }

    /// A fresh node of zeroes with its footer, dirty, its number in use from now on
    /// (`f2fs_new_node_page`; `i_blocks`, `i_xattr_nid` and [`F2fs::alloc_nid_done`] are the
    /// caller's). `ofs`: its place in the tree (0: the inode). Errors: `NoSpace`.
    pub(crate) async fn new_node(
        &self,
        ino: u32,
        nid: u32,
        ofs: u32,
        is_dir: bool,
    ) -> FsResult<Rc<Buffer>> {
        let _ = (ino, nid, ofs, is_dir);
        todo!()
    }

    /// Marks a node to be written. No if it was already (`set_page_dirty`).
    pub(crate) fn dirty_node(&self, buf: &Rc<Buffer>) -> bool {
        let _ = buf;
        todo!()
    }

    /// Frees a node: its block, its number at the next checkpoint; of an inode its orphan entry
    /// too (`truncate_node`; `i_blocks` is the caller's).
    pub(crate) async fn free_node(&self, nid: u32, buf: &Rc<Buffer>) -> FsResult<()> {
        let _ = (nid, buf);
        todo!()
    }

    /// Sends the dirty direct nodes of a file with fsync marks (`f2fs_fsync_node_pages`): all of
    /// them marked, or (`atomic`) the last alone, behind a flush. The sequence number of the last
    /// one sent goes to `seq`.
    pub(crate) async fn fsync_node_pages(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        atomic: bool,
        seq: &mut u32,
    ) -> FsResult<()> {
        let _ = (inode, atomic, seq);
        todo!()
    }

    /// Waits for the nodes that fsync has sent up to `seq`
    /// (`f2fs_wait_on_node_pages_writeback`). Errors: `Io` if one failed.
    pub(crate) async fn wait_node_writeback(&self, seq: u32) -> FsResult<()> {
        let _ = seq;
        todo!()
    }

    /// Sends dirty nodes: indirect ones, those of directories, those of files
    /// (`f2fs_sync_node_pages`). `sync`: somebody waits; `balance`: not in a checkpoint.
    pub(crate) async fn sync_node_pages(
        self: &Rc<Self>,
        sync: bool,
        balance: bool,
        budget: &mut u64,
    ) -> FsResult<()> {
        let _ = (sync, balance, budget);
        todo!()
    }
}
