//! Free, dirty and emptied segments.
//!
//! Source: Linux `fs/f2fs/segment.c` and `segment.h` (`locate_dirty_segment`, `get_new_segment`,
//!         `__set_test_and_free`).

use crate::disk::Log;
use crate::site;

use super::bitmap::Bitmap;
use super::space::Space;

/// Segments by state (`struct free_segmap_info`, `struct dirty_seglist_info`).
pub(super) struct Segments {
    /// Segments in use, or without a block that can be written.
    pub in_use: Bitmap,
    /// Sections with a segment in use.
    pub sections_in_use: Bitmap,
    /// Segments with holes, all, and by log.
    pub dirty: Bitmap,
    pub dirty_of: [Bitmap; 6],
    /// Segments without a block in use that the last checkpoint needs still (`PRE`).
    pub emptied: Bitmap,
    /// Sections with holes, where sections have several segments.
    pub dirty_sections: Bitmap,
    /// Sections that were chosen by background garbage collection.
    pub victims: Bitmap,
    /// Section that foreground garbage collection is at.
    pub victim: Option<u32>,
    /// Where the search for a victim goes on, by policy: cost-benefit, greedy.
    pub last_victim: [u32; 2],
    /// Segment of a chosen section that is next, for background and foreground.
    pub next_victim: [Option<u32>; 2],
}

impl Segments {
    /// Of `segments` in `sections`: all in use, none dirty.
    pub fn new(segments: u32, sections: u32) -> Segments {
        Segments {
            in_use: Bitmap::new(segments, true),
            sections_in_use: Bitmap::new(sections, true),
            dirty: Bitmap::new(segments, false),
            dirty_of: [(); 6].map(|()| Bitmap::new(segments, false)),
            emptied: Bitmap::new(segments, false),
            dirty_sections: Bitmap::new(sections, false),
            victims: Bitmap::new(sections, false),
            victim: None,
            last_victim: [0; 2],
            next_victim: [None; 2],
        }
    }

    /// Free sections.
    pub fn free_sections(&self) -> u32 {
        self.sections_in_use.zeros()
    }

    /// Free segments.
    pub fn free_segments(&self) -> u32 {
        self.in_use.zeros()
    }
}

impl Space {
    fn section_range(&self, section: u32) -> (u32, u32) {
        let start = section * self.g.section_segments;
        (start, start + self.g.section_segments)
    }

    /// A segment is free (`__set_test_and_free`), and its section, if all of it is and no log
    /// writes there (but at the mount, `any`).
    pub fn set_free(&mut self, segment: u32, any: bool) {
        if !self.segs.in_use.put(segment, false) {
            return;
        }
        let section = self.g.section_of(segment);
        if !any && self.is_cursec(section) {
            return;
        }
        let (start, end) = self.section_range(section);
        let used = self.segs.in_use.next(true, start, end);
        if used.is_none_or(|n| n >= start + self.usable_segments()) {
            self.segs.sections_in_use.put(section, false);
        }
    }

    /// A segment is in use (`__set_test_and_inuse`).
    pub fn set_used(&mut self, segment: u32) {
        if !self.segs.in_use.put(segment, true) {
            self.segs.sections_in_use.put(self.g.section_of(segment), true);
        }
    }

    /// Files a segment under what it is now (`locate_dirty_segment`).
    pub fn locate_dirty(&mut self, segment: u32) {
        if self.is_curseg(segment) {
            return;
        }
        let (valid, usable) = (self.seg(segment).valid, self.usable(segment));
        if valid == 0 {
            self.segs.emptied.put(segment, true);
            self.remove_dirty(segment);
            if !site::FREE_LATER.on() {
                self.segs.emptied.put(segment, false);
                self.set_free(segment, false);
            }
        } else if valid < usable {
            self.add_dirty(segment);
        } else {
            self.remove_dirty(segment);
        }
    }

    /// `__locate_dirty_segment`.
    pub fn add_dirty(&mut self, segment: u32) {
        self.segs.dirty.put(segment, true);
        let log = self.seg(segment).log;
        self.segs.dirty_of[usize::from(log.number())].put(segment, true);
        self.file_section(segment);
    }

    /// `__remove_dirty_segment`.
    pub fn remove_dirty(&mut self, segment: u32) {
        self.segs.dirty.put(segment, false);
        let log = self.seg(segment).log;
        self.segs.dirty_of[usize::from(log.number())].put(segment, false);
        if self.section_valid(segment) == 0 {
            self.segs.victims.put(self.g.section_of(segment), false);
        }
        self.file_section(segment);
    }

    fn file_section(&mut self, segment: u32) {
        if !self.is_large() {
            return;
        }
        let section = self.g.section_of(segment);
        let valid = self.section_valid(segment);
        if valid == 0 || valid == self.cap {
            self.segs.dirty_sections.put(section, false);
        } else if !self.is_cursec(section) {
            self.segs.dirty_sections.put(section, true);
        }
    }

    /// A free segment for a log, in a section that is free but for `from`'s own
    /// (`get_new_segment`, searching upwards: the default since `no_heap` is). `None`: there is
    /// none.
    pub fn new_segment(&mut self, from: u32, new_section: bool) -> Option<u32> {
        let per = self.g.section_segments;
        let section = self.g.section_of(from);
        if !new_section && !(from + 1).is_multiple_of(per) {
            let end = (section + 1) * per;
            if let Some(found) = self.segs.in_use.next(false, from + 1, end) {
                self.set_used(found);
                return Some(found);
            }
        }
        let sections = self.g.sections;
        let old_zone = self.g.zone_of(from);
        let mut hint = section;
        for first in [true, false] {
            let free = |from| self.segs.sections_in_use.next(false, from, sections);
            let found = free(hint).or_else(|| free(0))?;
            let segment = found * per;
            let zone = self.g.zone_of(segment);
            let taken = || self.logs.iter().any(|l| self.g.zone_of(l.segment) == zone);
            if first && self.g.zone_sections > 1 && zone != old_zone && taken() {
                // Another log writes in that zone: the next one, once.
                let zones = sections / self.g.zone_sections;
                hint = if zone + 1 >= zones { 0 } else { (zone + 1) * self.g.zone_sections };
                continue;
            }
            // The first segment is not free where a section is given out in part.
            self.set_used(segment);
            return Some(segment);
        }
        None
    }

    /// What the last checkpoint needed is free now (`set_prefree_as_free_segments`).
    pub fn free_emptied(&mut self) {
        let mut from = 0;
        while let Some(segment) = self.segs.emptied.next(true, from, self.g.segments) {
            self.set_free(segment, false);
            from = segment + 1;
        }
    }

    /// Bits of all states, as a mount finds them (`init_free_segmap`, `init_dirty_segmap`).
    pub fn sort_segments(&mut self) {
        for segment in 0..self.g.segments {
            if self.usable(segment) > 0 && self.seg(segment).valid == 0 {
                self.set_free(segment, true);
            }
        }
        for log in Log::ALL {
            let segment = self.logs[usize::from(log.number())].segment;
            self.set_used(segment);
        }
        for segment in 0..self.g.segments {
            let (valid, usable) = (self.seg(segment).valid, self.usable(segment));
            if valid > 0 && valid < usable && !self.is_curseg(segment) {
                self.add_dirty(segment);
            }
        }
    }
}
