//! Group descriptors: 32 bytes, or 64 with the 64BIT feature.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{hi16, hi32, lo16, lo32};

/// A descriptor in its 64-byte form. `struct ext4_group_desc`.
///
/// The first 32 bytes are the short form. [`GroupDesc::load`] fills the rest with zeroes then, so
/// that the accessors need not know which form the file system uses.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct GroupDesc {
    /// `bg_block_bitmap_lo`.
    pub block_bitmap_lo: U32,
    /// `bg_inode_bitmap_lo`.
    pub inode_bitmap_lo: U32,
    /// `bg_inode_table_lo`.
    pub inode_table_lo: U32,
    /// `bg_free_blocks_count_lo`.
    pub free_blocks_count_lo: U16,
    /// `bg_free_inodes_count_lo`.
    pub free_inodes_count_lo: U16,
    /// `bg_used_dirs_count_lo`.
    pub used_dirs_count_lo: U16,
    /// `bg_flags`, see [`Self::INODE_UNINIT`].
    pub flags: U16,
    /// `bg_exclude_bitmap_lo`, unused.
    pub exclude_bitmap_lo: U32,
    /// `bg_block_bitmap_csum_lo`.
    pub block_bitmap_csum_lo: U16,
    /// `bg_inode_bitmap_csum_lo`.
    pub inode_bitmap_csum_lo: U16,
    /// `bg_itable_unused_lo`, inodes at the table's end that were never used.
    pub itable_unused_lo: U16,
    /// `bg_checksum` of the descriptor.
    pub checksum: U16,
    /// `bg_block_bitmap_hi`; this and what follows only with 64BIT.
    pub block_bitmap_hi: U32,
    /// `bg_inode_bitmap_hi`.
    pub inode_bitmap_hi: U32,
    /// `bg_inode_table_hi`.
    pub inode_table_hi: U32,
    /// `bg_free_blocks_count_hi`.
    pub free_blocks_count_hi: U16,
    /// `bg_free_inodes_count_hi`.
    pub free_inodes_count_hi: U16,
    /// `bg_used_dirs_count_hi`.
    pub used_dirs_count_hi: U16,
    /// `bg_itable_unused_hi`.
    pub itable_unused_hi: U16,
    /// `bg_exclude_bitmap_hi`, unused.
    pub exclude_bitmap_hi: U32,
    /// `bg_block_bitmap_csum_hi`.
    pub block_bitmap_csum_hi: U16,
    /// `bg_inode_bitmap_csum_hi`.
    pub inode_bitmap_csum_hi: U16,
    /// `bg_reserved`.
    pub reserved: U32,
}
const _: () = assert!(size_of::<GroupDesc>() == GroupDesc::BYTES);
const _: () = assert!(offset_of!(GroupDesc, flags) == 0x12);
const _: () = assert!(offset_of!(GroupDesc, checksum) == GroupDesc::CHECKSUM_AT);
const _: () = assert!(offset_of!(GroupDesc, block_bitmap_hi) == GroupDesc::SHORT_BYTES);
const _: () = assert!(offset_of!(GroupDesc, block_bitmap_csum_hi) == 0x38);

impl GroupDesc {
    /// Bytes of the long form.
    pub const BYTES: usize = 64;
    /// Bytes of the short form.
    pub const SHORT_BYTES: usize = 32;
    /// Where the checksum stands in it.
    pub const CHECKSUM_AT: usize = 0x1E;
    /// `EXT4_BG_INODE_UNINIT` in `flags`: the inode bitmap was never written; all its inodes are
    /// free.
    pub const INODE_UNINIT: u16 = 1;
    /// `EXT4_BG_BLOCK_UNINIT` in `flags`: the block bitmap was never written; only metadata is in
    /// use.
    pub const BLOCK_UNINIT: u16 = 2;
    /// `EXT4_BG_INODE_ZEROED` in `flags`: the inode table is zero where it is unused.
    pub const INODE_ZEROED: u16 = 4;

    /// All zero.
    pub fn zeroed() -> GroupDesc {
        GroupDesc::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// From the descriptor's bytes in its table: 32 or more. Bytes beyond 64 are ignored, and
    /// missing ones are zero.
    pub fn load(bytes: &[u8]) -> GroupDesc {
        let mut whole = [0u8; Self::BYTES];
        whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        GroupDesc::read_from_bytes(&whole).expect("the size is right")
    }

    /// Writes as much of it as `out` holds: 32 bytes of a short descriptor, up to 64 of a long one.
    pub fn store(&self, out: &mut [u8]) {
        out.iter_mut().zip(self.as_bytes()).for_each(|(to, from)| *to = *from);
    }

    /// Forgets what a descriptor of `len` bytes does not hold.
    pub fn shorten(&mut self, len: usize) {
        if let Some(beyond) = self.as_mut_bytes().get_mut(len..) {
            beyond.fill(0);
        }
    }

    /// Has it all these `flags`?
    pub fn has(&self, flags: u16) -> bool {
        self.flags.get() & flags == flags
    }

    /// Block of the block bitmap.
    pub fn block_bitmap(&self) -> u64 {
        join32(self.block_bitmap_lo, self.block_bitmap_hi)
    }
    /// Block of the inode bitmap.
    pub fn inode_bitmap(&self) -> u64 {
        join32(self.inode_bitmap_lo, self.inode_bitmap_hi)
    }
    /// First block of the inode table.
    pub fn inode_table(&self) -> u64 {
        join32(self.inode_table_lo, self.inode_table_hi)
    }
    /// Free blocks in the group.
    pub fn free_blocks_count(&self) -> u32 {
        join16(self.free_blocks_count_lo, self.free_blocks_count_hi)
    }
    /// Free inodes in the group.
    pub fn free_inodes_count(&self) -> u32 {
        join16(self.free_inodes_count_lo, self.free_inodes_count_hi)
    }
    /// Directories in the group.
    pub fn used_dirs_count(&self) -> u32 {
        join16(self.used_dirs_count_lo, self.used_dirs_count_hi)
    }
    /// Inodes at the table's end that were never used.
    pub fn itable_unused(&self) -> u32 {
        join16(self.itable_unused_lo, self.itable_unused_hi)
    }
    /// Checksum of the block bitmap; a short descriptor has the low half only.
    pub fn block_bitmap_csum(&self) -> u32 {
        join16(self.block_bitmap_csum_lo, self.block_bitmap_csum_hi)
    }
    /// Checksum of the inode bitmap; a short descriptor has the low half only.
    pub fn inode_bitmap_csum(&self) -> u32 {
        join16(self.inode_bitmap_csum_lo, self.inode_bitmap_csum_hi)
    }

    /// Sets both halves; likewise the following.
    pub fn set_block_bitmap(&mut self, block: u64) {
        (self.block_bitmap_lo, self.block_bitmap_hi) = split32(block);
    }
    /// Sets the block of the inode bitmap.
    pub fn set_inode_bitmap(&mut self, block: u64) {
        (self.inode_bitmap_lo, self.inode_bitmap_hi) = split32(block);
    }
    /// Sets the first block of the inode table.
    pub fn set_inode_table(&mut self, block: u64) {
        (self.inode_table_lo, self.inode_table_hi) = split32(block);
    }
    /// Sets the number of free blocks.
    pub fn set_free_blocks_count(&mut self, blocks: u32) {
        (self.free_blocks_count_lo, self.free_blocks_count_hi) = split16(blocks);
    }
    /// Sets the number of free inodes.
    pub fn set_free_inodes_count(&mut self, inodes: u32) {
        (self.free_inodes_count_lo, self.free_inodes_count_hi) = split16(inodes);
    }
    /// Sets the number of directories.
    pub fn set_used_dirs_count(&mut self, dirs: u32) {
        (self.used_dirs_count_lo, self.used_dirs_count_hi) = split16(dirs);
    }
    /// Sets the number of inodes at the end that were never used.
    pub fn set_itable_unused(&mut self, inodes: u32) {
        (self.itable_unused_lo, self.itable_unused_hi) = split16(inodes);
    }
    /// Sets the checksum of the block bitmap. The high half is dropped by [`Self::store`] of a
    /// short form.
    pub fn set_block_bitmap_csum(&mut self, csum: u32) {
        if crate::site::BLOCK_BITMAP_CHECKSUM.on() {
            (self.block_bitmap_csum_lo, self.block_bitmap_csum_hi) = split16(csum);
        }
    }
    /// Sets the checksum of the inode bitmap.
    pub fn set_inode_bitmap_csum(&mut self, csum: u32) {
        if crate::site::INODE_BITMAP_CHECKSUM.on() {
            (self.inode_bitmap_csum_lo, self.inode_bitmap_csum_hi) = split16(csum);
        }
    }
}

fn join32(lo: U32, hi: U32) -> u64 {
    u64::from(lo.get()) | u64::from(hi.get()) << 32
}
fn join16(lo: U16, hi: U16) -> u32 {
    u32::from(lo.get()) | u32::from(hi.get()) << 16
}
fn split32(n: u64) -> (U32, U32) {
    (lo32(n).into(), hi32(n).into())
}
fn split16(n: u32) -> (U16, U16) {
    (lo16(n).into(), hi16(n).into())
}
