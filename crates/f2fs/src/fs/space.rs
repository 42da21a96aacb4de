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

#[cfg(test)]
pub(super) mod tests {
    use wp_base::Sector;
    use wp_medium::{Medium, MediumView};

    use super::*;
    use crate::disk::{Log, Summary, alloc};
    use crate::image::Image;
    use crate::mkfs::{MkfsOptions, mkfs};

    /// A new, empty file system of `mib` MiB; `cap` blocks of a section can be written.
    pub(in crate::fs) fn space(mib: u64, per_section: u32, cap: u32) -> Space {
        let mut o = MkfsOptions::new(mib << 20);
        o.segments_per_section = per_section;
        let mut medium = Medium::new();
        mkfs(&o).expect("possible").write_to(&mut medium);
        let view = MediumView { medium, start: Sector(0), bytes: mib << 20 };
        let image = Image::open(&view).expect("just made");
        let mut s = Space::new(image.geometry(), image.checkpoint(), cap, false);
        for (n, log) in s.logs.iter_mut().enumerate() {
            (log.segment, log.next) = (n as u32 * per_section, 0);
        }
        s.sort_segments();
        s
    }

    fn fill(s: &mut Space, log: Log, blocks: u32) -> Vec<u32> {
        let mut out = Vec::new();
        for _ in 0..blocks {
            let addr = s.take(log, 0, Summary::new(7, 0, 0));
            out.push(s.g.place(addr).expect("of the main area").0);
            if s.is_full(log) {
                s.advance(log, false).expect("a free segment");
            }
        }
        out
    }

    #[test]
    fn a_log_goes_on_in_the_next_free_segment() {
        let mut s = space(96, 1, 512);
        let free = s.segs.free_segments();
        let used = fill(&mut s, Log::WarmData, 512 + 3);
        assert_eq!((used[0], used[511], used[512], used[514]), (1, 1, 6, 6));
        assert_eq!(s.segs.free_segments(), free - 1);
        assert_eq!((s.seg(1).valid, s.seg(6).valid), (512, 3));
        assert_eq!(s.sit.written, 515);
    }

    #[test]
    fn of_a_section_only_its_capacity_is_written() {
        // Sections of two segments, of which 700 blocks can be written.
        let mut s = space(128, 2, 700);
        assert_eq!((s.usable(0), s.usable(1), s.usable_segments()), (512, 188, 2));
        let used = fill(&mut s, Log::WarmData, 701);
        assert_eq!((used[511], used[512], used[699], used[700]), (2, 3, 3, 12));
        assert_eq!((s.section_valid(2), s.section_valid(12)), (700, 1));
        // 400: the second segment of a section has nothing.
        let s = space(128, 2, 400);
        assert_eq!((s.usable(0), s.usable(1), s.usable_segments()), (400, 0, 1));
    }

    #[test]
    fn an_emptied_segment_is_free_after_the_next_checkpoint_only() {
        let mut s = space(96, 1, 512);
        fill(&mut s, Log::WarmData, 513);
        for n in 0..512 {
            s.invalidate(s.g.block(1, n));
        }
        assert!(s.segs.emptied.test(1) && s.segs.in_use.test(1));
        let free = s.segs.free_segments();
        s.free_emptied();
        assert!(!s.segs.in_use.test(1));
        assert_eq!(s.segs.free_segments(), free + 1);
        assert!(!s.segs.dirty.test(1));
    }

    #[test]
    fn holes_that_a_checkpoint_needs_are_not_filled() {
        let mut s = space(96, 1, 512);
        fill(&mut s, Log::WarmData, 512 + 1);
        // The checkpoint has all of segment 1; ten blocks of it are gone since.
        (0..10).for_each(|n| s.invalidate(s.g.block(1, n * 2)));
        assert!(s.segs.dirty.test(1) && s.ssr_segment(Log::WarmData).is_none());
        let se = s.seg_mut(1);
        se.ckpt_valid = se.valid;
        let maps = se.maps(false);
        maps.ckpt = maps.cur;
        assert_eq!(s.ssr_segment(Log::WarmData), Some(1));
        s.log_mut(Log::WarmData).next = 512;
        let left = s.advance(Log::WarmData, true).expect("a segment");
        assert!(left.read && left.segment == 6);
        let l = s.log(Log::WarmData).clone();
        assert_eq!((l.segment, l.next, l.alloc), (1, 0, alloc::SSR));
        let mut places = Vec::new();
        while !s.is_full(Log::WarmData) {
            let addr = s.take(Log::WarmData, 0, Summary::new(7, 0, 0));
            places.push(s.g.place(addr).expect("within").1);
        }
        assert_eq!(places, (0..10).map(|n| n * 2).collect::<Vec<u32>>());
    }

    #[test]
    fn the_emptiest_section_is_collected_in_the_foreground() {
        let mut s = space(128, 1, 512);
        fill(&mut s, Log::WarmData, 4 * 512);
        let segments: Vec<u32> = vec![1, 6, 7];
        for (segment, gone) in segments.iter().zip([100, 400, 300]) {
            (0..gone).for_each(|n| s.invalidate(s.g.block(*segment, n)));
        }
        assert_eq!(s.gc_victim(true), Some(6));
        assert_eq!(s.segs.victim, Some(6));
        assert_eq!(s.gc_victim(true), Some(7), "the one that is collected is not chosen again");
        s.segs.victim = None;
        (s.seg_mut(1).mtime, s.seg_mut(6).mtime, s.seg_mut(7).mtime) = (10, 90, 50);
        (s.sit.min_mtime, s.sit.max_mtime) = (0, 100);
        // In the background a section that was chosen is left alone afterwards.
        let first = s.gc_victim(false).expect("one with holes");
        let second = s.gc_victim(false).expect("another");
        assert_ne!(first, second);
    }
}
