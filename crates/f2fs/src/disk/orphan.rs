//! Orphan blocks: files without a name that are still open, to be deleted by the next mount.

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, count, index, lo16};

/// Inode numbers of orphans, in a checkpoint pack. `struct f2fs_orphan_block`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OrphanBlock {
    ino: [U32; 1020],
    /// `reserved`.
    pub reserved: U32,
    /// `blk_addr`: which of the pack's orphan blocks, from 1.
    pub blk_addr: U16,
    /// `blk_count`: how many there are.
    pub blk_count: U16,
    /// `entry_count` of this block.
    pub entry_count: U32,
    /// `check_sum`: never set by Linux.
    pub check_sum: U32,
}
const _: () = assert!(size_of::<OrphanBlock>() == BLOCK_BYTES);

impl OrphanBlock {
    /// `F2FS_ORPHANS_PER_BLOCK`.
    pub const PER_BLOCK: usize = 1020;

    /// From a block. `at`: its byte address, for the error.
    ///
    /// Errors: more entries than a block has.
    pub fn load(block: &Block, at: u64) -> Result<OrphanBlock, Corruption> {
        let found = OrphanBlock::read_from_bytes(block).expect("it is a whole block");
        if index(found.entry_count.get()) > Self::PER_BLOCK {
            return Err(Corruption {
                structure: "f2fs orphan block",
                field: "entry_count",
                at,
                found: found.entry_count.get().into(),
                expected: format!("up to {}", Self::PER_BLOCK),
            });
        }
        Ok(found)
    }

    /// The inodes in it.
    pub fn inodes(&self) -> impl Iterator<Item = u32> {
        self.ino.iter().take(index(self.entry_count.get())).map(|i| i.get())
    }

    /// As many blocks as `inodes` need, in order. `write_orphan_inodes`.
    pub fn blocks(inodes: &[u32]) -> Vec<Block> {
        let total = lo16(count(inodes.len().div_ceil(Self::PER_BLOCK)));
        let mut out = Vec::new();
        for (n, part) in inodes.chunks(Self::PER_BLOCK).enumerate() {
            let mut block = OrphanBlock::read_from_bytes(&super::ZERO_BLOCK).expect("its size");
            block.ino.iter_mut().zip(part).for_each(|(to, ino)| *to = (*ino).into());
            block.blk_addr = lo16(count(n + 1)).into();
            block.blk_count = total.into();
            block.entry_count = count(part.len()).into();
            let mut bytes = super::ZERO_BLOCK;
            block.write_to(&mut bytes).expect("its size");
            out.push(bytes);
        }
        out
    }
}
