//! On-disk structures of ext4, each declared once, as bytes.
//!
//! Picture:    super block -> [`Geometry`] -> group descriptors -> inodes -> extent nodes |
//!             directory blocks | attribute blocks. [`Checksums`] seals and checks every one of
//!             them.
//! Invariants: 1. everything is little-endian and unaligned, so any byte slice can be viewed in
//!                place.
//!             2. what is read is verified and answers [`wp_base::Corruption`]; nothing here panics
//!                on bytes from an image. Writers take buffers that they own and assert their
//!                sizes.
//!             3. no other module does arithmetic on offsets inside these structures.
//! Left out:   meta_bg and encryption: [`Geometry::from_super`] refuses the
//!             first two.
//! Source:     Linux Documentation/filesystems/ext4; field names are the kernel's, without prefix.

#![deny(clippy::indexing_slicing, clippy::as_conversions)]

pub mod csum;
pub mod dir;
pub mod extent;
pub mod fast_commit;
pub mod feature;
pub mod geometry;
pub mod group;
pub mod hash;
pub mod htree;
pub mod ijournal;
pub mod inode;
pub mod mmp;
pub mod orphan;
pub mod super_block;
pub mod xattr;

#[cfg(test)]
mod tests;

pub use csum::Checksums;
pub use dir::{DirEntry, DirEntryHeader, DirEntryTail, DirIter};
pub use extent::{Extent, ExtentHeader, ExtentIdx, ExtentNode, ExtentTail};
pub use feature::{compat, incompat, ro_compat};
pub use geometry::{Geometry, InodeSlot};
pub use group::GroupDesc;
pub use inode::{Inode, InodeExtra, Stamp};
pub use super_block::SuperBlock;

/// Inode numbers with a fixed meaning.
pub mod ino {
    /// `EXT4_ROOT_INO`, the root directory.
    pub const ROOT: u32 = 2;
    /// `EXT4_USR_QUOTA_INO`.
    pub const USER_QUOTA: u32 = 3;
    /// `EXT4_GRP_QUOTA_INO`.
    pub const GROUP_QUOTA: u32 = 4;
    /// `EXT4_RESIZE_INO`, owner of the reserved descriptor blocks.
    pub const RESIZE: u32 = 7;
    /// `EXT4_JOURNAL_INO`, where mkfs puts the journal.
    pub const JOURNAL: u32 = 8;
    /// `EXT4_GOOD_OLD_FIRST_INO`, first inode of a revision 0 file system that is not reserved.
    pub const GOOD_OLD_FIRST: u32 = 11;
}

/// A 32-bit count or offset as an index; never truncates on the 64-bit hosts that we build for.
#[expect(
    clippy::as_conversions,
    reason = "u32 -> usize loses nothing where usize has 32 bits or more"
)]
pub const fn index(n: u32) -> usize {
    const { assert!(size_of::<usize>() >= 4) };
    n as usize
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

/// The low 16 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo16(n: u32) -> u16 {
    n as u16
}

/// Bits 16 to 31.
pub const fn hi16(n: u32) -> u16 {
    lo16(n >> 16)
}

/// The low 32 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo32(n: u64) -> u32 {
    n as u32
}

/// Bits 32 to 63.
pub const fn hi32(n: u64) -> u32 {
    lo32(n >> 32)
}
