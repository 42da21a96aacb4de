//! Blocks of the orphan file: slots of inode numbers, 0 for a free one, then a tail.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Last bytes of each block of the orphan file. `struct ext4_orphan_block_tail`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct OrphanTail {
    /// `ob_magic`, always [`Self::MAGIC`].
    pub magic: U32,
    /// `ob_checksum`: seed of the file's inode, then the block's number (64 bits), then the slots.
    pub checksum: U32,
}
const _: () = assert!(size_of::<OrphanTail>() == OrphanTail::BYTES);

impl OrphanTail {
    /// Its size in bytes.
    pub const BYTES: usize = 8;
    /// `EXT4_ORPHAN_BLOCK_MAGIC`.
    pub const MAGIC: u32 = 0x0B10_CA04;

    /// The tail of `block`; `None` if it is shorter than one.
    pub fn load(block: &[u8]) -> Option<OrphanTail> {
        OrphanTail::read_from_suffix(block).ok().map(|(_, tail)| tail)
    }

    /// Writes it at the end of `block`. Panics if the block is shorter.
    pub fn store(&self, block: &mut [u8]) {
        self.write_to_suffix(block).expect("a block is longer than its tail");
    }
}

/// The slots of a block of the orphan file.
pub fn slots(block: &[u8]) -> &[U32] {
    let count = block.len().saturating_sub(OrphanTail::BYTES) / 4;
    <[U32]>::ref_from_prefix_with_elems(block, count).map_or(&[], |(slots, _)| slots)
}

/// Sets a slot of a block of the orphan file; the tail is the caller's. Panics beyond the slots.
pub fn set_slot(block: &mut [u8], slot: usize, ino: u32) {
    let count = block.len().saturating_sub(OrphanTail::BYTES) / 4;
    let (slots, _) = <[U32]>::mut_from_prefix_with_elems(block, count).expect("slots fit a block");
    *slots.get_mut(slot).expect("the slot was found in this block") = ino.into();
}
