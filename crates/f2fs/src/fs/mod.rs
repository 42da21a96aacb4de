//! The mounted file system: F2FS on a block layer, in virtual or real time.
//!
//! Picture:    namei/dir (names) -> inode -> dnode (where) -> data (page cache), fsync above them;
//!             below: node (node blocks by number) -> nat (where nodes are), alloc (six logs) ->
//!             sit/segments (what is in use) -> io (merged bios); checkpoint makes it last.
//! Invariants: 1. a block that the last checkpoint has in use is not written over, unless in place
//!                with data of the same file.
//!             2. a segment that was emptied is given out after the next checkpoint only.
//!             3. blocks of a log are sent in the order in which they were given out.
//! Left out:   quotas, encryption, compression, casefolding, verity, pinned files, ATGC,
//!             `checkpoint=disable`, `mode=fragment`; images that need them are refused by name.
//! Source:     Linux `fs/f2fs`; behaviour checked against the reference kernels.

mod alloc;
mod arrivals;
mod atomic;
mod balance;
mod bitmap;
mod checkpoint;
mod counts;
mod curseg;
mod data;
mod devices;
mod dir;
mod direct;
mod direct_log;
mod discard;
mod dnode;
mod evict;
mod extent;
mod fallocate;
mod file_flags;
mod flush;
mod fsync;
mod gc;
mod inline_data;
mod ino_sets;
mod inode;
mod inode_node;
mod io;
mod load;
mod mapped;
mod meta;
mod mount;
mod namei;
mod nat;
mod new_inode;
mod nids;
mod node;
mod ops;
mod range_flush;
mod rename;
mod replace;
mod segments;
mod sent;
mod sit;
mod space;
mod summary;
mod tail;
mod truncate;
mod victim;
mod writeback;
mod xattr;

pub use mount::{DirectMode, F2fs, FsMode, FsyncMode, MountOptions};
pub use ops::Mounted;
pub use range_flush::RangeFlush;
