//! What a mount checks besides what opening and recovery read: its logs and its root directory.
//!
//! Invariants: no bytes make it panic; nothing here writes.
//! Left out:   what the kernel reads of the summaries of the logs.
//! Source:     fs/f2fs of Linux 6.12: `sanity_check_curseg`, `f2fs_fill_super`,
//!             `sanity_check_inode`. The checks are in the stable releases of all modelled
//!             versions.

use wp_base::{FsError, FsResult};

use crate::disk::{Log, alloc, nid};

use super::Image;

/// Checks the image as a mount does before it is recovered. Errors: `Corrupt`.
pub(super) fn check(image: &Image<'_>) -> FsResult<()> {
    for log in Log::ALL {
        let found = image.checkpoint().alloc_type(log);
        if found != alloc::LFS && found != alloc::SSR {
            let expected = format!("0 or 1, for the log {log:?}");
            let structure = "f2fs checkpoint";
            return Err(FsError::corrupt(structure, "alloc_type", 0, found.into(), expected));
        }
    }
    let record = image.inode(nid::ROOT)?;
    let i = record.inode();
    let wrong = |field, found: u64, expected: &str| {
        Err(FsError::corrupt("f2fs root inode", field, record.at, found, expected))
    };
    if !i.is_dir() {
        return wrong("i_mode", i.mode.get().into(), "a directory");
    }
    // One block is the inode's own, which does not count (`do_read_inode`).
    if i.links.get() == 0 || i.size.get() == 0 {
        return wrong("i_links", i.links.get().into(), "a link and a length");
    }
    let further = i.xattr_nid.get();
    if further != 0 && !(nid::ROOT..image.geometry().nids()).contains(&further) {
        return wrong("i_xattr_nid", further.into(), "0 or the number of a node");
    }
    Ok(())
}
