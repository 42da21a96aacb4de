//! The main area in memory: what is in use, which segments are free, where the logs are.

use crate::disk::{Geometry, Journal, SEGMENT_BLOCKS};

use super::curseg::Curseg;
use super::segments::Segments;
use super::sit::Sit;

/// All that giving out blocks needs, of a mounted file system.
pub(super) struct Space {
    pub g: Geometry,
    /// Blocks of a section that can be written: less than it has where zones hold less than their
    /// size (`CAP_BLKS_PER_SEC`).
    pub cap: u32,
    /// Only at the ends of the logs.
    pub lfs: bool,
    pub sit: Sit,
    pub segs: Segments,
    /// The six logs, by [`crate::disk::Log::number`].
    pub logs: Vec<Curseg>,
    /// NAT entries in the summary of the hot data log.
    pub nat_journal: Journal,
    /// SIT entries in the summary of the cold data log.
    pub sit_journal: Journal,
    /// Seconds since the file system was made, as far as it was mounted (`get_mtime`); set before
    /// each change.
    pub now: u64,
}

impl Space {
    /// Has a section several segments (`__is_large_section`)?
    pub fn is_large(&self) -> bool {
        self.g.section_segments > 1
    }

    /// Blocks of a segment that can be written (`f2fs_usable_blks_in_seg`).
    pub fn usable(&self, segment: u32) -> u32 {
        let in_section = segment % self.g.section_segments * SEGMENT_BLOCKS;
        self.cap.saturating_sub(in_section).min(SEGMENT_BLOCKS)
    }

    /// Segments of a section that can be written, at least in part: whole ones are counted off from
    /// its end (`f2fs_usable_segs_in_sec`).
    pub fn usable_segments(&self) -> u32 {
        let whole = self.g.section_segments * SEGMENT_BLOCKS;
        self.g.section_segments - (whole - self.cap) / SEGMENT_BLOCKS
    }

    /// Does a log write this segment (`IS_CURSEG`)?
    pub fn is_curseg(&self, segment: u32) -> bool {
        self.logs.iter().any(|l| l.segment == segment)
    }

    /// Does a log write in this section (`IS_CURSEC`)?
    pub fn is_cursec(&self, section: u32) -> bool {
        self.logs.iter().any(|l| self.g.section_of(l.segment) == section)
    }

    /// A block is not used any more (`f2fs_invalidate_blocks`).
    pub fn invalidate(&mut self, addr: u32) {
        let Some((segment, _)) = self.g.place(addr) else { return };
        self.touch(addr, 0);
        self.update(addr, false);
        self.locate_dirty(segment);
    }
}
