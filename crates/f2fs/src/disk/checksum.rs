//! Checksums: plain CRC-32 (not CRC-32C), seeded with the magic number of F2FS.
//!
//! Source:     `f2fs_crc32`, `f2fs_chksum`, `f2fs_checkpoint_chksum`, `f2fs_inode_chksum`; checked
//!             against images of mkfs.f2fs and of Linux.

use wp_base::crc;

use super::super_block::SuperBlock;
use super::{BLOCK_BYTES, Block, Inode, feature, index};

/// Checksum of `bytes` with the seed that most structures have. `f2fs_crc32`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc::crc32_le(SuperBlock::MAGIC, bytes)
}

/// Checksum of a checkpoint's first block, whose own checksum stands at `at`: what lies before it,
/// and, where it is not at the end, what lies behind. `f2fs_checkpoint_chksum`.
pub fn checkpoint(block: &Block, at: usize) -> u32 {
    let (before, rest) = block.split_at(at.min(BLOCK_BYTES));
    crc::crc32_le(crc32(before), rest.get(4..).unwrap_or(&[]))
}

/// How the blocks of one file system are sealed.
#[derive(Clone, Copy, Debug)]
pub struct Checksums {
    inode_seed: Option<u32>,
}

impl Checksums {
    /// As a super block says.
    pub fn of(sb: &SuperBlock) -> Checksums {
        let has = sb.has(feature::INODE_CHKSUM);
        Checksums { inode_seed: has.then(|| crc::crc32_le(!0, &sb.uuid)) }
    }

    /// Checksum of the inode in node block `block`, its own field taken as zero; `None` if it has
    /// none to have. `f2fs_enable_inode_chksum`.
    pub fn inode(&self, block: &Block) -> Option<u32> {
        let inode = Inode::of(block);
        inode.checksum_place().and_then(|at| {
            let seed =
                crc::crc32_le(self.inode_seed?, &super::Footer::of(block).ino.get().to_le_bytes());
            let seed = crc::crc32_le(seed, &inode.generation.get().to_le_bytes());
            let (before, rest) = block.split_at(at);
            let crc = crc::crc32_le(crc::crc32_le(seed, before), &[0; 4]);
            Some(crc::crc32_le(crc, rest.get(4..).unwrap_or(&[])))
        })
    }

    /// Sets the checksum of the inode in `block`, if it has one.
    pub fn seal_inode(&self, block: &mut Block) {
        if let Some(crc) = self.inode(block) {
            Inode::of_mut(block).extra_mut().inode_checksum = crc.into();
        }
    }

    /// Has the inode in `block` the right checksum, or none to have?
    pub fn inode_ok(&self, block: &Block) -> bool {
        self.inode(block).is_none_or(|crc| Inode::of(block).extra().inode_checksum.get() == crc)
    }
}

/// Checksum at byte `at` of a checkpoint's block. `cur_cp_crc`.
pub fn stored(block: &Block, at: u32) -> Option<u32> {
    block.get(index(at)..)?.first_chunk::<4>().map(|b| u32::from_le_bytes(*b))
}
