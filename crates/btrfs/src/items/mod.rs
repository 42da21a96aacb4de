//! Files by their items: inodes, names, attributes, extents and checksums in a tree of files.
//!
//! Picture:    one call here = the items that one call of the kernel's helpers changes; what makes
//!             a whole system call of them (times, link counts, orphans, logs) is the file
//!             system's.
//! Invariants: 1. sizes and counts in inode items are the caller's.
//!             2. file extents and references to data go together, but in log trees, which have
//!                none.
//! Left out:   compressed extents are kept and dropped, not made.
//! Source:     fs/btrfs/{dir-item,inode-item,xattr,file,file-item,root-tree}.c.

#![deny(clippy::indexing_slicing)]

mod csums;
mod extents;
mod inodes;
mod names;
mod parts;
mod refs;
mod roots;
mod written;
mod xattrs;

pub use extents::Extent;
pub use names::{INDEX_START, NameEntry};
pub use parts::FilePart;
pub use roots::RootName;
pub use xattrs::Set;

use wp_base::FsError;

/// An item is not what its key says.
fn wrong(structure: &'static str, objectid: u64, expected: &str) -> FsError {
    FsError::corrupt(structure, "item", 0, objectid, expected)
}
