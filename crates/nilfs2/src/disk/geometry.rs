//! Where segments lie, and how large things are.
//!
//! Picture:    first super block | segment 0 (from `first_data_block`), 1, 2, … | second super
//!             block
//! Units:      addresses are in blocks from the start of the device.

use wp_base::{Corruption, FsError, FsResult};

use super::super_block::feature_ro;
use super::{Palloc, SuperBlock, Table, checkpoint, usage};

/// The layout of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Base-2 logarithm of a block's bytes.
    pub block_bits: u32,
    /// Segments.
    pub segments: u64,
    /// Blocks of a segment; segment 0 has fewer, as the first super block lies before it.
    pub segment_blocks: u64,
    /// First block of segment 0.
    pub first_data_block: u64,
    /// Bytes of an inode, 128 or more.
    pub inode_bytes: usize,
    /// Seed of all checksums.
    pub crc_seed: u32,
    /// First inode of users.
    pub first_ino: u64,
    /// Percent of the segments that are kept free.
    pub reserved_percent: u64,
    /// Entries of the DAT.
    pub dat: Palloc,
    /// Entries of an inode file.
    pub ifile: Palloc,
    /// Entries of the file of checkpoints, the first of which has number 1.
    pub cpfile: Table,
    /// Entries of the file of segments' usage.
    pub sufile: Table,
}

impl Geometry {
    /// The layout that a good super block tells. `device_bytes`: of the device, or of its image.
    ///
    /// Errors: `Corrupt` for what no mount accepts; `Unsupported` for features.
    /// Source: `nilfs_store_disk_layout`, `nilfs_get_blocksize`, `nilfs_*_read`.
    pub fn from_super(sb: &SuperBlock, device_bytes: u64) -> FsResult<Geometry> {
        let incompatible = sb.feature_incompat.get();
        if incompatible != 0 {
            return Err(FsError::Unsupported(format!("nilfs2 features {incompatible:#x}")));
        }
        let unknown = sb.feature_compat_ro.get() & !feature_ro::BLOCK_COUNT;
        if unknown != 0 {
            return Err(FsError::Unsupported(format!("nilfs2 read-only features {unknown:#x}")));
        }
        let g = Self::sizes(sb)?;
        let blocks = device_bytes >> g.block_bits;
        let needed = g.segments.checked_mul(g.segment_blocks);
        let field = |field, found, expected: String| {
            Err(FsError::corrupt("nilfs2 super block", field, SuperBlock::AT, found, expected))
        };
        if g.segments == 0 || needed.is_none_or(|n| n > blocks) {
            let most = blocks / g.segment_blocks;
            return field("s_nsegments", g.segments, format!("1 to {most}"));
        }
        if g.first_data_block >= g.segment_blocks {
            let expected = format!("less than {}", g.segment_blocks);
            return field("s_first_data_block", g.first_data_block, expected);
        }
        Ok(g)
    }

    fn sizes(sb: &SuperBlock) -> Result<Geometry, Corruption> {
        let log = sb.log_block_size.get();
        let most = SuperBlock::LOG_BLOCK_SIZE_MAX;
        check("s_rev_level", sb.rev_level.get(), SuperBlock::REVISION, u32::MAX)?;
        check("s_log_block_size", log, 0, most)?;
        let block_bits = 10 + log;
        let block = 1u32 << block_bits;
        // Three inodes and a header fit in the block of the super root.
        check("s_inode_size", sb.inode_size.get().into(), 128, (block - 16) / 3)?;
        check("s_first_ino", sb.first_ino.get(), 11, u32::MAX)?;
        let least = SuperBlock::SEGMENT_BLOCKS_MIN;
        check("s_blocks_per_segment", sb.blocks_per_segment.get(), least, u32::MAX)?;
        check("s_r_segments_percentage", sb.r_segments_percentage.get(), 1, 99)?;
        check("s_dat_entry_size", sb.dat_entry_size.get().into(), 32, block)?;
        let inode = u32::from(sb.inode_size.get());
        check("s_checkpoint_size", sb.checkpoint_size.get().into(), 64 + inode, block)?;
        check("s_segment_usage_size", sb.segment_usage_size.get().into(), 16, block)?;
        let inode_bytes = usize::from(sb.inode_size.get());
        let dat_bytes = usize::from(sb.dat_entry_size.get());
        let checkpoint_bytes = usize::from(sb.checkpoint_size.get());
        let usage_bytes = usize::from(sb.segment_usage_size.get());
        Ok(Geometry {
            block_bits,
            segments: sb.nsegments.get(),
            segment_blocks: sb.blocks_per_segment.get().into(),
            first_data_block: sb.first_data_block.get(),
            inode_bytes,
            crc_seed: sb.crc_seed.get(),
            first_ino: sb.first_ino.get().into(),
            reserved_percent: sb.r_segments_percentage.get().into(),
            dat: Palloc::new(block_bits, dat_bytes),
            ifile: Palloc::new(block_bits, inode_bytes),
            cpfile: Table::new(block_bits, checkpoint_bytes, checkpoint::HEADER_BYTES, 1),
            sufile: Table::new(block_bits, usage_bytes, usage::HEADER_BYTES, 0),
        })
    }

    /// Bytes of a block.
    pub const fn block_bytes(&self) -> usize {
        1 << self.block_bits
    }

    /// Byte address of a block.
    pub const fn byte_of(&self, block: u64) -> u64 {
        block << self.block_bits
    }

    /// First block of a segment, and the block behind its last. `nilfs_get_segment_range`.
    pub const fn segment(&self, n: u64) -> (u64, u64) {
        let start = if n == 0 { self.first_data_block } else { n * self.segment_blocks };
        (start, (n + 1) * self.segment_blocks)
    }

    /// The segment that a block lies in. `nilfs_get_segnum_of_block`.
    pub const fn segment_of(&self, block: u64) -> u64 {
        block / self.segment_blocks
    }

    /// The block behind the last segment.
    pub const fn end(&self) -> u64 {
        self.segments * self.segment_blocks
    }

    /// Can this block be one of a log?
    pub const fn is_in_segment(&self, block: u64) -> bool {
        block >= self.first_data_block && block < self.end()
    }

    /// Segments that users' data never take. `nilfs_nrsvsegs`.
    pub fn reserved_segments(&self) -> u64 {
        (self.segments * self.reserved_percent).div_ceil(100).max(8)
    }
}

fn check(field: &'static str, found: u32, least: u32, most: u32) -> Result<(), Corruption> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let expected = format!("{least} to {most}");
    let (structure, at) = ("nilfs2 super block", SuperBlock::AT);
    Err(Corruption { structure, field, at, found: found.into(), expected })
}
