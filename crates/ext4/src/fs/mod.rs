//! The mounted file system: ext4 on a block layer, with its journal, in virtual or real time.
//!
//! Picture:    namei/dir (names) -> inode -> extents (where) -> balloc (space); data (page cache)
//!             and fsync above them; every change of a block goes through a jbd2 handle.
//! Invariants: 1. no metadata block changes outside a handle; home locations are written only by
//!                the flusher, by checkpoints and at unmount.
//!             2. a block freed in a transaction is not given out before that transaction is
//!                durable.
//!             3. a name never leads to an inode that is not in the same or an older transaction.
//! Left out:   quotas, encryption, casefolding, inline data (read-only code reads them),
//!             setting POSIX ACLs and inheriting them,
//!             hash trees of three levels.
//! Source:     Linux `fs/ext4`; behaviour checked against the reference kernels.

mod balloc;
mod bits;
mod block_map;
mod clusters;
mod conflicts;
mod convert;
mod data;
mod data_journal;
mod dir;
mod dir_names;
mod direct;
mod direct_cached;
mod discard;
pub mod era;
mod extents;
mod fast_commit;
mod features;
mod file_flags;
mod htree;
mod ialloc;
mod indirect;
mod inode;
mod iomap;
mod lazy_init;
mod mapped;
mod mballoc;
mod mount;
mod mount_check;
mod mount_replay;
mod namei;
mod ops;
mod orlov;
mod orphan;
mod orphan_file;
mod prealloc;
mod prefetch;
mod punch;
mod rename;
mod search;
mod shift;
mod super_block;
mod sync;
mod syncfs;
mod table_trim;
mod truncate;
mod unmount;
mod untorn;
mod unwritten;
mod write_now;
mod writeback;
mod xattr;

pub use data_journal::DataMode;
pub use fast_commit::{FastOptions, Fixes as FastFixes};
pub use iomap::IomapOptions;
pub use mount::{Ext4, MountOptions};
pub use mount_check::Literature;
pub use ops::Mounted;
pub use table_trim::TableTrim;
