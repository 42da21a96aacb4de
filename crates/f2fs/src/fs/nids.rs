//! Free node numbers.
//!
//! Source: Linux `fs/f2fs/node.c` (`f2fs_build_free_nids`, `f2fs_alloc_nid`).

use wp_base::FsResult;

use super::mount::F2fs;

/// Free node numbers of a mounted file system.
pub(crate) struct Nids {}

impl F2fs {
    /// A free number, held until [`F2fs::alloc_nid_done`] or [`F2fs::alloc_nid_failed`]
    /// (`f2fs_alloc_nid`). Waits: for blocks of the NAT. Errors: `NoSpace`, `Io`, `Corrupt`.
    pub(crate) async fn alloc_nid(&self) -> FsResult<u32> {
        todo!()
    }

    /// The number is in use (`f2fs_alloc_nid_done`).
    pub(crate) fn alloc_nid_done(&self, nid: u32) {
        let _ = nid;
        todo!()
    }

    /// The number is free again (`f2fs_alloc_nid_failed`).
    pub(crate) fn alloc_nid_failed(&self, nid: u32) {
        let _ = nid;
        todo!()
    }
}
