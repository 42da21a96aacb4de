//! Making a file system: the same bytes as mkfs.nilfs2 2.2.9.
//!
//! Picture:    both super blocks, and one log: root directory with `.nilfs`, inode file,
//!             checkpoints, usage of segments, DAT, super root.
//! Invariants: only `disk` is shared with what reads and writes images.
//! Source:     mkfs.nilfs2(8) and images that it made; tests hold the two side by side.

#![deny(clippy::indexing_slicing)]

mod files;

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult, Sector};
use wp_medium::{Medium, Slice};
use zerocopy::IntoBytes;

use crate::disk::super_block::{feature_ro, state};
use crate::disk::{Geometry, Inode, SuperBlock, index};

/// What to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MkfsOptions {
    /// Bytes of the device.
    pub bytes: u64,
    /// Bytes of a block (`-b`): 1024, 2048 or 4096.
    pub block_bytes: u32,
    /// Blocks of a segment (`-B`): a power of two, 16 or more.
    pub segment_blocks: u32,
    /// Percent of the segments that are kept free (`-m`).
    pub reserved_percent: u32,
    /// Seconds between logs (`nilfs-tune -i`); 0: the default, 5.
    pub interval: u32,
    /// Dirty blocks above which the thread writes them (`nilfs-tune -m`); 0: the default, 3600.
    pub block_max: u32,
    /// Do checkpoints count blocks and inodes (`-O block_count`)?
    pub block_count: bool,
    /// Label (`-L`), up to 80 bytes.
    pub label: String,
    /// Identity.
    pub uuid: [u8; 16],
    /// Seed of all checksums: a random number in mkfs.nilfs2.
    pub crc_seed: u32,
    /// Time that everything gets, in seconds since 1970.
    pub now: u64,
}

impl MkfsOptions {
    /// The defaults of mkfs.nilfs2 for a device of `bytes` bytes.
    pub fn new(bytes: u64) -> MkfsOptions {
        MkfsOptions {
            bytes,
            block_bytes: 4096,
            segment_blocks: 2048,
            reserved_percent: 5,
            interval: 0,
            block_max: 0,
            block_count: false,
            label: String::new(),
            uuid: *b"writepathnilfs\0\x01",
            crc_seed: 0x5EED_CAFE,
            now: 1_388_534_400,
        }
    }
}

/// A file system that is to be written to a zeroed device.
pub struct Made {
    /// The super block.
    pub super_block: SuperBlock,
    /// What is to be written: byte addresses with contents.
    pub pieces: BTreeMap<u64, Vec<u8>>,
}

impl Made {
    /// Writes it to a medium of zeroes.
    pub fn write_to(&self, medium: &mut Medium) {
        for (at, bytes) in &self.pieces {
            for (sector, part) in (at / 512..).zip(bytes.chunks(512)) {
                medium.write(Sector(sector), &Slice::from_bytes(part));
            }
        }
    }
}

/// Makes a file system. Errors: `Invalid` for options that cannot be; `NoSpace` for a device that
/// is too small for its segments.
pub fn mkfs(o: &MkfsOptions) -> FsResult<Made> {
    let sb = super_block(o)?;
    let g = Geometry::from_super(&sb, o.bytes)?;
    // Segments that are kept free, and those without which nothing can be written.
    const LEAST: u64 = 8;
    if g.segments < g.reserved_segments() + LEAST {
        return Err(FsError::NoSpace);
    }
    let mut pieces = BTreeMap::from([
        (SuperBlock::AT, sb.as_bytes().to_vec()),
        (SuperBlock::second_at(o.bytes), sb.as_bytes().to_vec()),
    ]);
    let log = files::log(o, &g);
    pieces.extend((g.first_data_block..).zip(log).map(|(n, block)| (g.byte_of(n), block)));
    Ok(Made { super_block: sb, pieces })
}

fn super_block(o: &MkfsOptions) -> FsResult<SuperBlock> {
    if ![1024, 2048, 4096].contains(&o.block_bytes) {
        return Err(FsError::Invalid("block size: 1024, 2048 or 4096"));
    }
    if !o.segment_blocks.is_power_of_two() || o.segment_blocks < SuperBlock::SEGMENT_BLOCKS_MIN {
        return Err(FsError::Invalid("blocks per segment: a power of two, 16 or more"));
    }
    if !(1..=99).contains(&o.reserved_percent) {
        return Err(FsError::Invalid("reserved segments: 1 to 99 percent"));
    }
    if o.label.len() > 80 {
        return Err(FsError::Invalid("label: up to 80 bytes"));
    }
    let blocks = SuperBlock::second_at(o.bytes) / u64::from(o.block_bytes);
    let segments = blocks / u64::from(o.segment_blocks);
    if segments == 0 {
        return Err(FsError::NoSpace);
    }
    let now = o.now.into();
    // The first 4 KiB are kept for a boot loader and the first super block.
    let first = 4096 / o.block_bytes;
    let mut sb = SuperBlock::zeroed();
    sb.rev_level = SuperBlock::REVISION.into();
    sb.magic = SuperBlock::MAGIC.into();
    sb.crc_seed = o.crc_seed.into();
    sb.log_block_size = (o.block_bytes.trailing_zeros() - 10).into();
    sb.nsegments = segments.into();
    sb.dev_size = o.bytes.into();
    sb.first_data_block = u64::from(first).into();
    sb.blocks_per_segment = o.segment_blocks.into();
    sb.r_segments_percentage = o.reserved_percent.into();
    (sb.c_interval, sb.c_block_max) = (o.interval.into(), o.block_max.into());
    (sb.last_cno, sb.last_pseg) = (1.into(), u64::from(first).into());
    sb.free_blocks_count = ((segments - 1) * u64::from(o.segment_blocks)).into();
    (sb.ctime, sb.wtime, sb.lastcheck) = (now, now, now);
    sb.max_mnt_count = 50.into();
    sb.state = state::VALID.into();
    sb.errors = 1.into();
    // 180 days.
    sb.checkinterval = 15_552_000.into();
    sb.first_ino = 11.into();
    sb.inode_size = 128.into();
    sb.dat_entry_size = 32.into();
    sb.checkpoint_size = 192.into();
    sb.segment_usage_size = 16.into();
    sb.uuid = o.uuid;
    for (place, byte) in sb.volume_name.iter_mut().zip(o.label.bytes()) {
        *place = byte;
    }
    if o.block_count {
        sb.feature_compat_ro = feature_ro::BLOCK_COUNT.into();
    }
    sb.seal();
    Ok(sb)
}

/// An inode of the new file system.
fn inode(o: &MkfsOptions, mode: u16, links: u16) -> Inode {
    let mut inode = Inode::zeroed();
    (inode.ctime, inode.mtime) = (o.now.into(), o.now.into());
    (inode.mode, inode.links_count) = (mode.into(), links.into());
    inode
}

/// A block that is zero but for what `fill` puts into it.
fn block(g: &Geometry, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; g.block_bytes()];
    fill(&mut block);
    block
}

/// Puts a structure to byte `at` of a block.
fn put<T: IntoBytes + zerocopy::Immutable>(block: &mut [u8], at: usize, what: &T) {
    let place = block.get_mut(at..at + size_of::<T>()).expect("a block has room for it");
    place.copy_from_slice(what.as_bytes());
}

/// The first `n` blocks of a range as pointers of a direct map.
fn pointers(first: u64, n: u64) -> [u64; 6] {
    let mut out = [0; 6];
    for (place, pointer) in out.iter_mut().zip(first..).take(index(n)) {
        *place = pointer;
    }
    out
}
