//! The six logs.
//!
//! Source: Linux `fs/f2fs/segment.c` (`new_curseg`, `change_curseg`, `f2fs_allocate_data_block`).

use crate::disk::{Log, SEGMENT_BLOCKS, Summary, SummaryBlock, alloc};

use super::space::Space;

/// Segments of the main area up to which a volume counts as small (`SMALL_VOLUME_SEGMENTS`).
pub(super) const SMALL_VOLUME: u32 = 16 * 512;

/// A log (`struct curseg_info`).
#[derive(Clone)]
pub(super) struct Curseg {
    pub segment: u32,
    /// The next block that is given out.
    pub next: u32,
    /// [`alloc::LFS`] or [`alloc::SSR`].
    pub alloc: u8,
    /// What its blocks are; the journal in it is never used.
    pub summary: Box<SummaryBlock>,
}

/// A log that has left its segment.
pub(super) struct Left {
    /// The segment left, and its summaries.
    pub segment: u32,
    pub summary: Box<SummaryBlock>,
    /// The new one's summaries must be read: it is filled where it has holes.
    pub read: bool,
}

impl Space {
    pub fn log(&self, log: Log) -> &Curseg {
        &self.logs[usize::from(log.number())]
    }

    pub fn log_mut(&mut self, log: Log) -> &mut Curseg {
        &mut self.logs[usize::from(log.number())]
    }

    /// Address of a log's next block (`NEXT_FREE_BLKADDR`).
    pub fn next_addr(&self, log: Log) -> u32 {
        let l = self.log(log);
        self.g.block(l.segment, l.next)
    }

    /// Gives out the next block of a log for what was at `old`. Whether the log is full then is
    /// asked of [`Space::is_full`].
    pub fn take(&mut self, log: Log, old: u32, summary: Summary) -> u32 {
        let addr = self.next_addr(log);
        let l = self.log_mut(log);
        l.summary.set_entry(l.next, summary);
        let (segment, next, holes) = (l.segment, l.next, l.alloc == alloc::SSR);
        let next = if holes { self.seg(segment).next_hole(next + 1) } else { next + 1 };
        self.log_mut(log).next = next;
        self.touch(old, 0);
        self.touch(addr, 0);
        self.update(addr, true);
        self.update(old, false);
        addr
    }

    /// Has the log no block left (`__has_curseg_space`)?
    pub fn is_full(&self, log: Log) -> bool {
        let l = self.log(log);
        l.next >= self.usable(l.segment).min(SEGMENT_BLOCKS)
    }

    /// Moves a log that is full on: to a free segment, or, if `ssr`, to one with holes
    /// (`need_new_seg`). `None`: there is no segment at all.
    pub fn advance(&mut self, log: Log, ssr: bool) -> Option<Left> {
        let l = self.log(log);
        let next = l.segment + 1;
        let in_section = !next.is_multiple_of(self.g.section_segments);
        let next_free = next < self.g.segments && in_section && !self.segs.in_use.test(next);
        if !(l.alloc == alloc::LFS && next_free)
            && ssr
            && let Some(victim) = self.ssr_segment(log)
        {
            return Some(self.change(log, victim));
        }
        self.begin_segment(log, false)
    }

    /// Moves a log to a free segment (`new_curseg`).
    pub fn begin_segment(&mut self, log: Log, new_section: bool) -> Option<Left> {
        let from = self.search_from(log);
        let to = self.new_segment(from, new_section)?;
        let left = self.leave(log, to);
        let l = self.log_mut(log);
        (l.alloc, l.next) = (alloc::LFS, 0);
        Some(left)
    }

    /// Where the search for a free segment begins (`__get_next_segno`).
    fn search_from(&self, log: Log) -> u32 {
        let small = self.g.segments <= SMALL_VOLUME;
        if self.is_large() {
            self.log(log).segment
        } else if small || log == Log::HotData || log.is_node() {
            0
        } else {
            self.log(log).segment
        }
    }

    /// Moves a log to a segment with holes (`change_curseg`).
    fn change(&mut self, log: Log, to: u32) -> Left {
        self.set_used(to);
        self.segs.emptied.put(to, false);
        self.remove_dirty(to);
        let mut left = self.leave(log, to);
        left.read = true;
        let next = self.seg(to).next_hole(0);
        let l = self.log_mut(log);
        (l.alloc, l.next) = (alloc::SSR, next);
        left
    }

    fn leave(&mut self, log: Log, to: u32) -> Left {
        let fresh = Box::new(SummaryBlock::empty(log.is_node()));
        let l = self.log_mut(log);
        let segment = std::mem::replace(&mut l.segment, to);
        let summary = std::mem::replace(&mut l.summary, fresh);
        // The kernel changes the footer only: what stood in the entries stays, and so in the SSA.
        l.summary.entries = summary.entries;
        let se = self.seg_mut(to);
        se.log = log;
        self.sit.dirty.insert(to);
        Left { segment, summary, read: false }
    }
}
