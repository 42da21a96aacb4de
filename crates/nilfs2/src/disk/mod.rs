//! On-disk structures of NILFS2, each declared once, as bytes.
//!
//! Picture:    super block (two copies) -> newest log with a [`SuperRoot`] -> inodes of the DAT, of
//!             the file of checkpoints and of that of segments' usage -> [`Checkpoint`] -> inode
//!             file -> [`Inode`] -> [`BlockMap`] (direct, or a tree of [`Node`]s) -> virtual block
//!             numbers -> [`DatEntry`] -> blocks.
//!             A log = summary ([`Summary`]: who owns each block), blocks, at its end perhaps a
//!             super root.
//! Invariants: 1. everything is little-endian and unaligned, so any byte slice can be viewed in
//!                place.
//!             2. what is read is verified and answers [`wp_base::Corruption`]; nothing here panics
//!                on bytes from an image.
//!             3. no other module does arithmetic on offsets inside these structures.
//! Left out:   extended attributes (the format reserves a file for them, Linux never wrote it) and
//!             the files of access times and sketches, which are as unused.
//! Source:     Linux include/uapi/linux/nilfs2_ondisk.h and fs/nilfs2; field names are the
//!             kernel's, without prefix.

#![deny(clippy::indexing_slicing, clippy::as_conversions)]

pub mod bmap;
pub mod checkpoint;
pub mod dat;
pub mod dir;
pub mod geometry;
pub mod inode;
pub mod palloc;
pub mod summary;
pub mod super_block;
pub mod super_root;
pub mod table;
pub mod usage;

pub use bmap::{BlockMap, Node};
pub use checkpoint::{Checkpoint, CheckpointHeader};
pub use dat::DatEntry;
pub use dir::DirEntry;
pub use geometry::Geometry;
pub use inode::Inode;
pub use palloc::Palloc;
pub use summary::{BlockInfo, FileInfo, Summary, SummaryHead};
pub use super_block::SuperBlock;
pub use super_root::SuperRoot;
pub use table::Table;
pub use usage::{SegmentUsage, UsageHeader};

/// Inode numbers with a fixed meaning.
pub mod ino {
    /// `NILFS_ROOT_INO`, the root directory.
    pub const ROOT: u64 = 2;
    /// `NILFS_DAT_INO`, where each virtual block number lies.
    pub const DAT: u64 = 3;
    /// `NILFS_CPFILE_INO`, the checkpoints.
    pub const CPFILE: u64 = 4;
    /// `NILFS_SUFILE_INO`, how segments are used.
    pub const SUFILE: u64 = 5;
    /// `NILFS_IFILE_INO`, the inodes of one checkpoint.
    pub const IFILE: u64 = 6;
    /// `NILFS_ATIME_INO`, reserved.
    pub const ATIME: u64 = 7;
    /// `NILFS_XATTR_INO`, reserved.
    pub const XATTR: u64 = 8;
    /// `NILFS_SKETCH_INO`, reserved; has an inode in a new file system.
    pub const SKETCH: u64 = 10;
    /// `NILFS_USER_INO`, the first that a user's file can have.
    pub const USER: u64 = 11;

    /// Is it one of the three whose inodes stand in the super root, and of which no older version
    /// is kept? `NILFS_ROOT_METADATA_FILE`.
    pub const fn is_root_metadata(ino: u64) -> bool {
        ino >= DAT && ino <= SUFILE
    }
}

/// A 64-bit count or offset as an index. What does not fit is beyond every slice.
pub fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A length of bytes in memory as a 64-bit address part.
#[expect(
    clippy::as_conversions,
    reason = "usize -> u64 loses nothing where usize has 64 bits or fewer"
)]
pub const fn wide(n: usize) -> u64 {
    const { assert!(size_of::<usize>() <= 8) };
    n as u64
}

/// The low 32 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo32(n: u64) -> u32 {
    n as u32
}

/// The low 16 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo16(n: u64) -> u16 {
    n as u16
}

/// The low 8 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo8(n: u64) -> u8 {
    n as u8
}

/// A structure at byte `at` of a block; `None` if it would reach beyond its end.
pub(crate) fn view<T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable>(
    block: &[u8],
    at: usize,
) -> Option<&T> {
    T::ref_from_prefix(block.get(at..)?).ok().map(|(t, _)| t)
}

/// The same, to be changed.
pub(crate) fn view_mut<T>(block: &mut [u8], at: usize) -> Option<&mut T>
where
    T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::KnownLayout,
{
    T::mut_from_prefix(block.get_mut(at..)?).ok().map(|(t, _)| t)
}
