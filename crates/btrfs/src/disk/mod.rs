//! On-disk structures of btrfs, each declared once, as bytes.
//!
//! Picture:    super block (three copies) -> [`Chunk`]s of its system array: where logical
//!             addresses lie -> chunk tree: the same for all addresses -> root tree: [`RootItem`]s
//!             -> all other trees.
//!             A tree = [`NodeRef`]s of [`KeyPtr`]s down to leaves of [`Item`]s; what an item's
//!             bytes are is said by the type in its [`Key`].
//! Invariants: 1. everything is little-endian and unaligned, so any byte slice can be viewed in
//!                place.
//!             2. what is read is verified and answers [`wp_base::Corruption`]; nothing here panics
//!                on bytes from an image.
//!             3. no other module does arithmetic on offsets inside these structures.
//! Left out:   quotas, verity, balance and device replacement (items of these are passed over as
//!             bytes); extent references of the format before 2009; extent tree v2; zoned mode.
//! Source:     include/uapi/linux/btrfs_tree.h and fs/btrfs of Linux 6.12; field names are the
//!             kernel's, without prefix.

#![deny(clippy::indexing_slicing, clippy::as_conversions)]

pub mod chunk;
pub mod csum;
pub mod dir;
pub mod extent;
pub mod feature;
pub mod file_extent;
pub mod free_space;
pub mod inode;
pub mod key;
pub mod misc;
pub mod node;
pub mod root;
pub mod super_block;

pub use chunk::{BlockGroupItem, Chunk, ChunkHead, DevExtent, DevItem, Stripe};
pub use csum::CsumKind;
pub use dir::{DirItem, DirLogItem, Entry};
pub use extent::{ExtentItem, Reference};
pub use file_extent::FileExtent;
pub use free_space::FreeSpaceInfo;
pub use inode::{InodeItem, Timespec};
pub use key::{DiskKey, Key, kind};
pub use node::{Header, Item, KeyPtr, NodeRef};
pub use root::{RootItem, RootRef};
pub use super_block::{RootBackup, SuperBlock};

/// Numbers of trees and of other things with a fixed meaning. Those that are negative in the kernel
/// are at the end of the range here.
pub mod id {
    /// `BTRFS_ROOT_TREE_OBJECTID`, the tree of root items.
    pub const ROOT_TREE: u64 = 1;
    /// `BTRFS_EXTENT_TREE_OBJECTID`, which extents are in use, and by whom.
    pub const EXTENT_TREE: u64 = 2;
    /// `BTRFS_CHUNK_TREE_OBJECTID`, where logical addresses lie.
    pub const CHUNK_TREE: u64 = 3;
    /// `BTRFS_DEV_TREE_OBJECTID`, which parts of the device chunks have.
    pub const DEV_TREE: u64 = 4;
    /// `BTRFS_FS_TREE_OBJECTID`, the first tree of files.
    pub const FS_TREE: u64 = 5;
    /// `BTRFS_ROOT_TREE_DIR_OBJECTID`, a directory in the root tree: `default`.
    pub const ROOT_TREE_DIR: u64 = 6;
    /// `BTRFS_CSUM_TREE_OBJECTID`, checksums of data.
    pub const CSUM_TREE: u64 = 7;
    /// `BTRFS_QUOTA_TREE_OBJECTID`.
    pub const QUOTA_TREE: u64 = 8;
    /// `BTRFS_UUID_TREE_OBJECTID`, subvolumes by their uuid.
    pub const UUID_TREE: u64 = 9;
    /// `BTRFS_FREE_SPACE_TREE_OBJECTID`.
    pub const FREE_SPACE_TREE: u64 = 10;
    /// `BTRFS_BLOCK_GROUP_TREE_OBJECTID`, block groups by themselves.
    pub const BLOCK_GROUP_TREE: u64 = 11;
    /// `BTRFS_DEV_STATS_OBJECTID`.
    pub const DEV_STATS: u64 = 0;
    /// `BTRFS_DEV_ITEMS_OBJECTID`, of device items in the chunk tree.
    pub const DEV_ITEMS: u64 = 1;
    /// `BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`.
    pub const EMPTY_SUBVOL_DIR: u64 = 2;
    /// `BTRFS_FIRST_FREE_OBJECTID`, the first number of a user's file or subvolume.
    pub const FIRST_FREE: u64 = 256;
    /// `BTRFS_LAST_FREE_OBJECTID`.
    pub const LAST_FREE: u64 = u64::MAX - 255;
    /// `BTRFS_FIRST_CHUNK_TREE_OBJECTID`, of chunk items.
    pub const FIRST_CHUNK_TREE: u64 = 256;
    /// `BTRFS_BALANCE_OBJECTID`.
    pub const BALANCE: u64 = u64::MAX - 3;
    /// `BTRFS_ORPHAN_OBJECTID`, of orphan items.
    pub const ORPHAN: u64 = u64::MAX - 4;
    /// `BTRFS_TREE_LOG_OBJECTID`, of log trees.
    pub const TREE_LOG: u64 = u64::MAX - 5;
    /// `BTRFS_TREE_LOG_FIXUP_OBJECTID`.
    pub const TREE_LOG_FIXUP: u64 = u64::MAX - 6;
    /// `BTRFS_TREE_RELOC_OBJECTID`.
    pub const TREE_RELOC: u64 = u64::MAX - 7;
    /// `BTRFS_DATA_RELOC_TREE_OBJECTID`.
    pub const DATA_RELOC_TREE: u64 = u64::MAX - 8;
    /// `BTRFS_EXTENT_CSUM_OBJECTID`, of checksum items.
    pub const EXTENT_CSUM: u64 = u64::MAX - 9;
    /// `BTRFS_FREE_SPACE_OBJECTID`, of the free-space cache that the tree replaces.
    pub const FREE_SPACE: u64 = u64::MAX - 10;
    /// `BTRFS_FREE_INO_OBJECTID`.
    pub const FREE_INO: u64 = u64::MAX - 11;
    /// `BTRFS_MULTIPLE_OBJECTIDS`.
    pub const MULTIPLE: u64 = u64::MAX - 254;

    /// May a tree have blocks that were made for another (`owner`)? Trees of files may, as
    /// snapshots share blocks; logs and the trees that balance makes are not checked.
    /// `btrfs_check_eb_owner`.
    pub const fn may_have(tree: u64, owner: u64) -> bool {
        tree == owner
            || tree == TREE_LOG
            || tree == TREE_RELOC
            || (is_file_tree(tree) && is_file_tree(owner))
    }

    /// Is it a tree of files? `is_fstree`.
    pub const fn is_file_tree(tree: u64) -> bool {
        tree == FS_TREE || (tree >= FIRST_FREE && tree <= LAST_FREE)
    }
}

/// A 64-bit count or offset as an index. What does not fit is beyond every slice.
pub fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A 32-bit length as an index.
#[expect(clippy::as_conversions, reason = "u32 -> usize loses nothing where usize has 32 bits")]
pub const fn at32(n: u32) -> usize {
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

/// The low 32 bits of a length.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo32(n: usize) -> u32 {
    n as u32
}

/// The low 32 bits.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo32_of(n: u64) -> u32 {
    n as u32
}

/// The low 8 bits of a number.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo8(n: usize) -> u8 {
    n as u8
}

/// The low 16 bits of a length.
#[expect(clippy::as_conversions, reason = "truncation is what it is for")]
pub const fn lo16(n: usize) -> u16 {
    n as u16
}

/// A structure at byte `at` of a block; `None` if it would reach beyond its end.
pub fn view<T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable>(
    block: &[u8],
    at: usize,
) -> Option<&T> {
    T::ref_from_prefix(block.get(at..)?).ok().map(|(t, _)| t)
}

/// The same, to be changed.
pub fn view_mut<T>(block: &mut [u8], at: usize) -> Option<&mut T>
where
    T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::KnownLayout,
{
    T::mut_from_prefix(block.get_mut(at..)?).ok().map(|(t, _)| t)
}
