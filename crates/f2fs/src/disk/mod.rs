//! On-disk structures of F2FS, each declared once, as bytes.
//!
//! Picture:    super block -> [`Geometry`] -> [`Checkpoint`] (versions of NAT and SIT blocks, heads
//!             of the six logs) -> [`SummaryBlock`] and its [`Journal`] -> [`NatEntry`],
//!             [`SitEntry`] -> node blocks ([`Inode`], direct, indirect, with a [`Footer`]) ->
//!             data, directory blocks ([`DentryArea`]), attributes ([`xattr`]).
//! Invariants: 1. everything is little-endian and unaligned, so any byte slice can be viewed in
//!                place.
//!             2. what is read is verified and answers [`wp_base::Corruption`]; nothing here panics
//!                on bytes from an image. A whole [`Block`] is a type, so views of it cannot fail.
//!             3. no other module does arithmetic on offsets inside these structures.
//! Left out:   blocks other than 4 KiB and segments other than 2 MiB ([`Geometry::from_super`]
//!             refuses them, as Linux does up to 6.1); contents of compressed clusters, and names
//!             and data of encrypted files.
//! Source:     Linux Documentation/filesystems/f2fs.rst and include/linux/f2fs_fs.h; field names
//!             are the kernel's, without prefix.

#![deny(clippy::indexing_slicing, clippy::as_conversions)]

pub mod bits;
pub mod checkpoint;
pub mod checksum;
pub mod dir;
pub mod feature;
pub mod geometry;
pub mod hash;
pub mod inode;
pub mod nat;
pub mod node;
pub mod orphan;
pub mod sit;
pub mod summary;
pub mod super_block;
pub mod tree;
pub mod xattr;

pub use checkpoint::{Checkpoint, CheckpointHead, Log, alloc, cp_flag};
pub use checksum::Checksums;
pub use dir::{DentryArea, DentryEntry};
pub use geometry::{Device, Geometry};
pub use inode::{Inode, InodeExtra, Stamp};
pub use nat::{NatBits, NatEntry, NatJournalEntry};
pub use node::{Footer, Node};
pub use orphan::OrphanBlock;
pub use sit::{SitEntry, SitJournalEntry};
pub use summary::{Compacted, Journal, Summary, SummaryBlock, SummaryFooter};
pub use super_block::SuperBlock;
pub use tree::{Place, Shape};

/// Bytes of a block: the only size that Linux up to 6.1 mounts. `F2FS_BLKSIZE`.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks of a segment. `blocks_per_seg`.
pub const SEGMENT_BLOCKS: u32 = 512;

/// A block's contents.
pub type Block = [u8; BLOCK_BYTES];

/// A block of zeroes.
pub const ZERO_BLOCK: Block = [0; BLOCK_BYTES];

/// Addresses with a meaning of their own where a block address stands.
pub mod addr {
    /// `NULL_ADDR`: a hole.
    pub const NULL: u32 = 0;
    /// `NEW_ADDR`: promised, not written yet; reads as zeroes.
    pub const NEW: u32 = u32::MAX;
    /// `COMPRESS_ADDR`: head of a compressed cluster.
    pub const COMPRESS: u32 = u32::MAX - 1;

    /// Does it name a block (and is none of the three)? `__is_valid_data_blkaddr`.
    pub const fn is_block(a: u32) -> bool {
        a != NULL && a != NEW && a != COMPRESS
    }
}

/// Node numbers with a fixed meaning.
pub mod nid {
    /// `node_ino`: cache of node blocks; no block of its own.
    pub const NODE: u32 = 1;
    /// `meta_ino`: cache of everything before the main area; no block of its own.
    pub const META: u32 = 2;
    /// `root_ino`, the root directory.
    pub const ROOT: u32 = 3;
    /// `F2FS_RESERVED_NODE_NUM`: numbers below it are never given out.
    pub const RESERVED: u32 = 3;
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

/// A count of things in memory, of which there are fewer than 2^32.
#[expect(clippy::as_conversions, reason = "callers count parts of one block or of one segment")]
pub const fn count(n: usize) -> u32 {
    n as u32
}

/// The low 32 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo32(n: u64) -> u32 {
    n as u32
}

/// The low 16 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo16(n: u32) -> u16 {
    n as u16
}

/// The low 8 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo8(n: u32) -> u8 {
    n as u8
}
