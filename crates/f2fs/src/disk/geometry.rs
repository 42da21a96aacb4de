//! Where everything lies: areas, segments, sections, zones, devices.
//!
//! Picture:    blocks 0 and 1: super blocks | segment 0: CP pack 1 | CP pack 2 | SIT (two copies,
//!             `sit_blocks` apart) | NAT (two copies, every other segment) | SSA (a block a main
//!             segment) | main segments 0, 1, ...
//! Units:      addresses are in blocks from the start of the first device; devices follow one
//!             another. "Segment" means one of the main area unless it says otherwise.

use wp_base::{FsError, FsResult};

use super::nat::NatEntry;
use super::sit::SitEntry;
use super::{Checkpoint, SEGMENT_BLOCKS, SuperBlock, bits, feature, index, lo32};

/// A device of the file system, and which blocks lie on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// As the super block names it; empty for a single device.
    pub path: Vec<u8>,
    /// First block of it.
    pub start: u32,
    /// The block behind its last.
    pub end: u32,
}

/// The layout of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Block where segments of all areas begin.
    pub segment0: u32,
    /// First block of the first checkpoint pack.
    pub cp: u32,
    /// First block of the SIT.
    pub sit: u32,
    /// First block of the NAT.
    pub nat: u32,
    /// First block of the SSA.
    pub ssa: u32,
    /// First block of the main area.
    pub main: u32,
    /// Blocks of one copy of the SIT area.
    pub sit_blocks: u32,
    /// Blocks of one copy of the NAT area.
    pub nat_blocks: u32,
    /// Segments of the main area.
    pub segments: u32,
    /// Sections of the main area.
    pub sections: u32,
    /// Segments of a section.
    pub section_segments: u32,
    /// Sections of a zone.
    pub zone_sections: u32,
    /// Blocks of a checkpoint beyond its first.
    pub cp_payload: u32,
    /// Blocks of all devices.
    pub blocks: u64,
    /// The devices, one or more, in order.
    pub devices: Vec<Device>,
    /// Made for a zoned device?
    pub is_zoned: bool,
}

impl Geometry {
    /// The layout that a super block tells, which [`SuperBlock::verify`] has passed.
    ///
    /// Errors: `Corrupt` for tables that are too small for the main area.
    pub fn from_super(sb: &SuperBlock) -> FsResult<Geometry> {
        let copy_blocks = |segments: u32| (segments / 2).saturating_mul(SEGMENT_BLOCKS);
        let g = Geometry {
            segment0: sb.segment0_blkaddr.get(),
            cp: sb.cp_blkaddr.get(),
            sit: sb.sit_blkaddr.get(),
            nat: sb.nat_blkaddr.get(),
            ssa: sb.ssa_blkaddr.get(),
            main: sb.main_blkaddr.get(),
            sit_blocks: copy_blocks(sb.segment_count_sit.get()),
            nat_blocks: copy_blocks(sb.segment_count_nat.get()),
            segments: sb.segment_count_main.get(),
            sections: sb.section_count.get(),
            section_segments: sb.segs_per_sec.get(),
            zone_sections: sb.secs_per_zone.get(),
            cp_payload: sb.cp_payload.get(),
            blocks: sb.block_count.get(),
            devices: Self::devices_of(sb),
            is_zoned: sb.has(feature::BLKZONED),
        };
        let wrong = |field, found: u32, expected: String| {
            let at = super::wide(SuperBlock::AT);
            Err(FsError::corrupt("f2fs super block", field, at, found.into(), expected))
        };
        let need = g.segments.div_ceil(SitEntry::PER_BLOCK);
        if g.sit_blocks < need {
            let expected = format!("two copies of {need} blocks");
            return wrong("segment_count_sit", sb.segment_count_sit.get(), expected);
        }
        if g.nat_blocks == 0 {
            let expected = "2 or more".to_owned();
            return wrong("segment_count_nat", sb.segment_count_nat.get(), expected);
        }
        if sb.segment_count_ssa.get().saturating_mul(SEGMENT_BLOCKS) < g.segments {
            let expected = format!("{} blocks", g.segments);
            return wrong("segment_count_ssa", sb.segment_count_ssa.get(), expected);
        }
        Ok(g)
    }

    fn devices_of(sb: &SuperBlock) -> Vec<Device> {
        let mut out = Vec::new();
        let mut start = 0u32;
        for d in sb.devices() {
            // Before segment 0 lie the super blocks, on the first device.
            let head = if start == 0 { sb.segment0_blkaddr.get() } else { 0 };
            let blocks = d.total_segments.get().saturating_mul(SEGMENT_BLOCKS);
            let end = start.saturating_add(blocks).saturating_add(head);
            let path = d.path.iter().copied().take_while(|b| *b != 0).collect();
            out.push(Device { path, start, end });
            start = end;
        }
        if out.is_empty() {
            let end = u32::try_from(sb.block_count.get()).unwrap_or(u32::MAX);
            out.push(Device { path: Vec::new(), start: 0, end });
        }
        out
    }

    /// Number of node ids, 0 included. `max_nid`.
    pub fn nids(&self) -> u32 {
        self.nat_blocks.saturating_mul(NatEntry::PER_BLOCK)
    }

    /// The block behind the main area.
    pub fn end(&self) -> u32 {
        self.main.saturating_add(self.segments.saturating_mul(SEGMENT_BLOCKS))
    }

    /// Blocks of a section.
    pub fn section_blocks(&self) -> u32 {
        self.section_segments.saturating_mul(SEGMENT_BLOCKS)
    }

    /// Does `addr` lie in the main area?
    pub fn is_main(&self, addr: u32) -> bool {
        (self.main..self.end()).contains(&addr)
    }

    /// Segment and place in it of a block of the main area. `GET_SEGNO`, `GET_BLKOFF_FROM_SEG0`.
    pub fn place(&self, addr: u32) -> Option<(u32, u32)> {
        self.is_main(addr).then(|| {
            let n = addr - self.main;
            (n / SEGMENT_BLOCKS, n % SEGMENT_BLOCKS)
        })
    }

    /// Block `offset` of segment `segment`. `START_BLOCK`. Beyond the area: an address that is not
    /// in it.
    pub fn block(&self, segment: u32, offset: u32) -> u32 {
        self.main.saturating_add(segment.saturating_mul(SEGMENT_BLOCKS)).saturating_add(offset)
    }

    /// Section of a segment.
    pub fn section_of(&self, segment: u32) -> u32 {
        segment / self.section_segments
    }

    /// Zone of a segment, in the sense of the super block (`secs_per_zone`).
    pub fn zone_of(&self, segment: u32) -> u32 {
        self.section_of(segment) / self.zone_sections
    }

    /// First block of a checkpoint pack. `second`: of the second one. `__start_cp_addr`.
    pub fn pack(&self, second: bool) -> u32 {
        self.cp + if second { SEGMENT_BLOCKS } else { 0 }
    }

    /// Block with the summaries of a segment. `GET_SUM_BLOCK`.
    pub fn summary_block(&self, segment: u32) -> u32 {
        self.ssa + segment
    }

    /// Blocks in use of one copy of the SIT.
    pub fn sit_blocks_used(&self) -> u32 {
        self.segments.div_ceil(SitEntry::PER_BLOCK)
    }

    /// Block `n` of the SIT in its copy `second` (false: the first). `current_sit_addr`.
    pub fn sit_block(&self, n: u32, second: bool) -> u32 {
        self.sit + n + if second { self.sit_blocks } else { 0 }
    }

    /// Block `n` of the NAT in its copy `second` (false: the first). `current_nat_addr`.
    pub fn nat_block(&self, n: u32, second: bool) -> u32 {
        // Copies lie side by side, a segment each.
        let first = self.nat + 2 * n - n % SEGMENT_BLOCKS;
        first + if second { SEGMENT_BLOCKS } else { 0 }
    }

    /// Where the valid copy of SIT block `n` lies, by a checkpoint's bitmap.
    pub fn current_sit_block(&self, n: u32, cp: &Checkpoint) -> u32 {
        self.sit_block(n, bits::test(cp.sit_bitmap(), n))
    }

    /// Where the valid copy of NAT block `n` lies, by a checkpoint's bitmap.
    pub fn current_nat_block(&self, n: u32, cp: &Checkpoint) -> u32 {
        self.nat_block(n, bits::test(cp.nat_bitmap(), n))
    }

    /// Bytes of the checkpoint's bitmap of SIT versions.
    pub fn sit_bitmap_bytes(&self) -> u32 {
        self.sit_blocks / 8
    }

    /// Bytes of the checkpoint's bitmap of NAT versions.
    pub fn nat_bitmap_bytes(&self) -> u32 {
        self.nat_blocks / 8
    }

    /// Blocks of the free-nid bitmaps at the end of a pack, where it has them. `nat_bits_blocks`.
    pub fn nat_bits_blocks(&self) -> u32 {
        (2 * (self.nat_blocks / 8) + 8).div_ceil(SEGMENT_BLOCKS * 8)
    }

    /// Which device a block lies on, and where there, in blocks.
    pub fn device_of(&self, addr: u32) -> Option<(usize, u32)> {
        let found = self.devices.iter().position(|d| (d.start..d.end).contains(&addr))?;
        self.devices.get(found).map(|d| (found, addr - d.start))
    }

    /// Byte address of a block in an image where devices follow one another.
    pub fn byte_of(addr: u32) -> u64 {
        u64::from(addr) * super::wide(super::BLOCK_BYTES)
    }

    /// Byte of the image in which the file system ends.
    pub fn bytes(&self) -> u64 {
        Self::byte_of(self.end())
    }

    /// Place of a nid's NAT entry: block of the NAT, and which entry there.
    pub fn nat_place(&self, nid: u32) -> (u32, usize) {
        (nid / NatEntry::PER_BLOCK, index(nid % NatEntry::PER_BLOCK))
    }

    /// Place of a segment's SIT entry: block of the SIT, and which entry there.
    pub fn sit_place(&self, segment: u32) -> (u32, usize) {
        (segment / SitEntry::PER_BLOCK, index(segment % SitEntry::PER_BLOCK))
    }

    /// Blocks that the data of all main segments would need, for sums.
    pub fn main_blocks(&self) -> u32 {
        lo32(u64::from(self.segments) * u64::from(SEGMENT_BLOCKS))
    }
}
