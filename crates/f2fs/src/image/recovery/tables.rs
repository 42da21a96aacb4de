//! The tables of a file system while it is being recovered: NAT, SIT, summaries, logs, counts, all
//! in memory; and the two ways to change them, to take a block and to give one up.
//!
//! Invariants: 1. nothing reaches the image before `seal`.
//!             2. a block that the last checkpoint has, or that was taken since, is not taken again
//!                before the next checkpoint, though it may have been given up.
//! Left out:   filling of holes when no segment is free (`NoSpace`): a mount would clean first.
//! Source:     fs/f2fs/segment.c, fs/f2fs/node.c.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};

use crate::disk::{
    Block, Footer, Geometry, Log, NatEntry, SEGMENT_BLOCKS, SitEntry, Summary, SummaryBlock, addr,
    alloc, bits, nid,
};
use crate::image::Image;

use super::zones::ZoneTable;

/// A segment: what is valid now, and what must not be taken.
pub(super) struct Segment {
    pub(super) entry: SitEntry,
    /// Valid at the last checkpoint or since. `ckpt_valid_map`.
    kept: [u8; 64],
    /// Was it free when it was read?
    was_free: bool,
}

/// Where a log goes on.
pub(super) struct LogHead {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) alloc: u8,
    /// Summaries of the segment; of a node log that is where the checkpoint has it, none: they
    /// are made from its nodes when the log leaves.
    pub(super) summary: Option<SummaryBlock>,
    /// Nodes that were written meanwhile where there are no summaries: block, and which node.
    fresh: Vec<(u32, Summary)>,
}

/// How many nodes, inodes and blocks are valid.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) blocks: u64,
    pub(super) nodes: u32,
    pub(super) inodes: u32,
}

/// The tables.
pub(super) struct Tables<'a> {
    pub(super) image: &'a Image<'a>,
    pub(super) g: &'a Geometry,
    pub(super) counts: Counts,
    pub(super) nat: BTreeMap<u32, NatEntry>,
    pub(super) segments: BTreeMap<u32, Box<Segment>>,
    pub(super) changed_segments: BTreeSet<u32>,
    pub(super) logs: [LogHead; 6],
    /// Summary blocks of segments that no log is in, to be written.
    pub(super) summaries: BTreeMap<u32, SummaryBlock>,
    zones: ZoneTable,
    /// Sections that logs were moved to: no longer free though nothing is in them.
    taken: BTreeSet<u32>,
    /// Logs go to zones that need no reset, as long as there are any.
    spares_zones: bool,
    /// Before this number no nid is free, from the start of the search on.
    next_nid: u32,
}

impl<'a> Tables<'a> {
    pub(super) fn new(image: &'a Image<'a>, zones: ZoneTable, spares_zones: bool) -> Tables<'a> {
        let cp = image.checkpoint();
        let h = cp.head();
        let counts = Counts {
            blocks: h.valid_block_count.get(),
            nodes: h.valid_node_count.get(),
            inodes: h.valid_inode_count.get(),
        };
        let logs = Log::ALL.map(|log| {
            let (segment, offset) = cp.log(log);
            let summary = image.data_summaries().get(usize::from(log.number())).cloned();
            LogHead { segment, offset, alloc: cp.alloc_type(log), summary, fresh: Vec::new() }
        });
        // The search begins with the block of the NAT in which the checkpoint's number lies.
        let next = h.next_free_nid.get();
        let next_nid =
            if next < image.geometry().nids() { next - next % NatEntry::PER_BLOCK } else { 0 };
        Tables {
            image,
            g: image.geometry(),
            counts,
            nat: BTreeMap::new(),
            segments: BTreeMap::new(),
            changed_segments: BTreeSet::new(),
            logs,
            summaries: BTreeMap::new(),
            zones,
            taken: BTreeSet::new(),
            spares_zones,
            next_nid,
        }
    }

    pub(super) fn log(&self, log: Log) -> &LogHead {
        let [hd, wd, cd, hn, wn, cn] = &self.logs;
        match log {
            Log::HotData => hd,
            Log::WarmData => wd,
            Log::ColdData => cd,
            Log::HotNode => hn,
            Log::WarmNode => wn,
            Log::ColdNode => cn,
        }
    }

    pub(super) fn log_mut(&mut self, log: Log) -> &mut LogHead {
        let [hd, wd, cd, hn, wn, cn] = &mut self.logs;
        match log {
            Log::HotData => hd,
            Log::WarmData => wd,
            Log::ColdData => cd,
            Log::HotNode => hn,
            Log::WarmNode => wn,
            Log::ColdNode => cn,
        }
    }

    /// Segment and next block of a log.
    pub(super) fn log_head(&self, log: Log) -> (u32, u32) {
        (self.log(log).segment, self.log(log).offset)
    }

    /// Is a log in this segment?
    fn log_in(&self, segment: u32) -> Option<Log> {
        Log::ALL.into_iter().find(|l| self.log(*l).segment == segment)
    }

    // NAT

    /// Where a node is now.
    pub(super) fn nat(&self, nid: u32) -> FsResult<NatEntry> {
        self.nat.get(&nid).map_or_else(|| self.image.nat(nid), |e| Ok(*e))
    }

    /// Moves a node. Its version grows when it loses its block. `set_node_addr`.
    pub(super) fn set_node(&mut self, nid: u32, ino: u32, to: u32) -> FsResult<()> {
        let old = self.nat(nid)?;
        let lost = !old.is_free() && to == addr::NULL;
        let version = if lost { old.version.wrapping_add(1) } else { old.version };
        // A number that is free belongs to no file any more.
        self.nat.insert(nid, NatEntry::new(version, ino, to));
        Ok(())
    }

    /// A free number. Errors: `NoSpace`. `f2fs_alloc_nid`: in order from where the checkpoint says.
    pub(super) fn free_nid(&mut self) -> FsResult<u32> {
        let n = self.g.nids();
        for _ in 0..n {
            let here = self.next_nid;
            self.next_nid = if here + 1 >= n { 0 } else { here + 1 };
            if here >= nid::ROOT && self.nat(here)?.is_free() {
                return Ok(here);
            }
        }
        Err(FsError::NoSpace)
    }

    /// The number that the next one to be free is looked for from, for the checkpoint.
    pub(super) fn peek_free_nid(&mut self) -> u32 {
        let found = self.free_nid();
        if let Ok(n) = found {
            self.next_nid = n;
        }
        found.unwrap_or(0)
    }

    // Counts

    /// Counts a block more. Errors: `NoSpace`. `inc_valid_block_count`.
    pub(super) fn count_block(&mut self) -> FsResult<()> {
        if self.counts.blocks >= self.image.checkpoint().head().user_block_count.get() {
            return Err(FsError::NoSpace);
        }
        self.counts.blocks += 1;
        Ok(())
    }

    /// Counts a node more. Errors: `NoSpace`. `inc_valid_node_count`.
    pub(super) fn count_node(&mut self) -> FsResult<()> {
        if self.counts.nodes >= self.g.nids().saturating_sub(nid::RESERVED) {
            return Err(FsError::NoSpace);
        }
        self.count_block()?;
        self.counts.nodes += 1;
        Ok(())
    }

    // SIT

    pub(super) fn segment(&mut self, n: u32) -> FsResult<&mut Segment> {
        Ok(match self.segments.entry(n) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let entry = self.image.sit(n)?;
                let is_log = Log::ALL.iter().any(|l| self.image.checkpoint().log(*l).0 == n);
                let was_free = entry.valid_blocks() == 0 && !is_log;
                place.insert(Box::new(Segment { entry, kept: entry.valid_map, was_free }))
            }
        })
    }

    /// What of a segment is valid now.
    pub(super) fn valid_map(&mut self, n: u32) -> FsResult<[u8; 64]> {
        Ok(self.segment(n)?.entry.valid_map)
    }

    /// Is a block valid now?
    pub(super) fn is_valid(&mut self, block: u32) -> FsResult<bool> {
        let Some((segment, offset)) = self.g.place(block) else { return Ok(false) };
        Ok(self.segment(segment)?.entry.is_valid(offset))
    }

    /// Marks a block as valid or not. Errors: `Corrupt` if it is so already. `update_sit_entry`.
    pub(super) fn mark(&mut self, block: u32, valid: bool) -> FsResult<()> {
        let now = self.image.checkpoint().head().elapsed_time.get();
        let Some((segment, offset)) = self.g.place(block) else {
            let expected = "a block of the main area";
            return Err(FsError::corrupt("f2fs node", "addr", 0, block.into(), expected));
        };
        let log = self.log_in(segment);
        let s = self.segment(segment)?;
        let was = s.entry.valid_blocks();
        if bits::set(&mut s.entry.valid_map, offset, valid) == valid {
            let expected = format!("a block that is {}", if valid { "free" } else { "in use" });
            let at = Geometry::byte_of(block);
            return Err(FsError::corrupt(
                "f2fs SIT entry",
                "valid_map",
                at,
                block.into(),
                expected,
            ));
        }
        if valid {
            bits::set(&mut s.kept, offset, true);
        }
        // `update_segment_mtime`: the mean, as if each valid block were as old as the segment.
        let mean = u128::from(s.entry.mtime.get()) * u128::from(was) + u128::from(now);
        let mean = if s.entry.mtime.get() == 0 { now.into() } else { mean / (u128::from(was) + 1) };
        s.entry.mtime = u64::try_from(mean).unwrap_or(u64::MAX).into();
        let blocks = if valid { was + 1 } else { was - 1 };
        let kind = log.or(Log::of(s.entry.kind())).unwrap_or(Log::WarmData);
        s.entry.set(kind, blocks);
        self.changed_segments.insert(segment);
        Ok(())
    }

    /// Segments that are free after this, as the checkpoint counts them.
    pub(super) fn free_segments(&self) -> u32 {
        let mut free = i64::from(self.image.checkpoint().head().free_segment_count.get());
        for (n, s) in &self.segments {
            let is_free = s.entry.valid_blocks() == 0 && self.log_in(*n).is_none();
            free += i64::from(is_free) - i64::from(s.was_free);
        }
        u32::try_from(free.max(0)).unwrap_or(u32::MAX)
    }

    // Logs

    /// Blocks of a segment that can be written. `f2fs_usable_blks_in_seg`.
    fn usable(&self, segment: u32) -> u32 {
        let first = self.g.section_of(segment) * self.g.section_segments;
        let start = self.g.block(first, 0);
        let of_section = self.zones.usable(start, self.g.section_blocks());
        of_section.saturating_sub((segment - first) * SEGMENT_BLOCKS).min(SEGMENT_BLOCKS)
    }

    /// Is a segment free, now and at the last checkpoint?
    fn is_free(&mut self, segment: u32) -> FsResult<bool> {
        if self.log_in(segment).is_some() || self.taken.contains(&segment) {
            return Ok(false);
        }
        if self.usable(segment) == 0 {
            return Ok(false);
        }
        let s = self.segment(segment)?;
        Ok(s.was_free && s.entry.valid_blocks() == 0)
    }

    fn is_free_section(&mut self, section: u32) -> FsResult<bool> {
        let first = section * self.g.section_segments;
        for segment in first..(first + self.g.section_segments).min(self.g.segments) {
            if self.usable(segment) > 0 && !self.is_free(segment)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A section with nothing in it, and no log in its zone. `get_new_segment`.
    fn find_section(&mut self, log: Log) -> FsResult<u32> {
        let current = self.log(log).segment;
        // `__get_next_segno`: single segments are looked for from the start.
        let hint = if self.g.section_segments > 1 { self.g.section_of(current) } else { 0 };
        let sections = self.g.sections;
        let mut spare = None;
        for n in 0..sections {
            let section = (hint + n) % sections;
            if !self.is_free_section(section)? {
                continue;
            }
            let zone = section / self.g.zone_sections;
            let busy = Log::ALL.iter().any(|l| self.g.zone_of(self.log(*l).segment) == zone);
            let start = self.g.block(section * self.g.section_segments, 0);
            let is_spared = self.spares_zones && !self.zones.is_empty(start);
            let is_first = self.g.zone_sections == 1 || zone == self.g.zone_of(current) || !busy;
            if is_first && !is_spared {
                return Ok(section);
            }
            spare = spare.or(Some(section));
        }
        spare.ok_or(FsError::NoSpace)
    }

    /// Lets a log go on in a section with nothing in it. Errors: `NoSpace`. `new_curseg`.
    pub(super) fn new_section(&mut self, log: Log) -> FsResult<()> {
        let section = self.find_section(log)?;
        self.open(log, section * self.g.section_segments)
    }

    fn next_segment(&mut self, log: Log) -> FsResult<()> {
        let next = self.log(log).segment + 1;
        let same = next < self.g.segments && !next.is_multiple_of(self.g.section_segments);
        if same && self.is_free(next)? { self.open(log, next) } else { self.new_section(log) }
    }

    fn open(&mut self, log: Log, segment: u32) -> FsResult<()> {
        self.close(log)?;
        let s = self.segment(segment)?;
        let blocks = s.entry.valid_blocks();
        s.entry.set(log, blocks);
        self.changed_segments.insert(segment);
        self.taken.insert(segment);
        let journal = self.log(log).summary.as_ref().map(|s| s.journal);
        let mut summary = SummaryBlock::empty(log.is_node());
        // The journal goes with the log.
        if let Some(journal) = journal.filter(|_| !log.is_node()) {
            summary.journal = journal;
        }
        *self.log_mut(log) = LogHead {
            segment,
            offset: 0,
            alloc: alloc::LFS,
            summary: Some(summary),
            fresh: Vec::new(),
        };
        Ok(())
    }

    /// Keeps the summaries of the segment that a log leaves. `write_sum_page`.
    fn close(&mut self, log: Log) -> FsResult<()> {
        let segment = self.log(log).segment;
        let mut summary = self.log_summary(log)?;
        summary.journal = crate::disk::Journal::empty();
        self.summaries.insert(segment, summary);
        // The segment may be left with nothing in it.
        self.segment(segment)?;
        Ok(())
    }

    /// Summaries of the segment that a log is in; those of a node log are made from its nodes.
    fn log_summary(&mut self, log: Log) -> FsResult<SummaryBlock> {
        if let Some(s) = &self.log(log).summary {
            return Ok(s.clone());
        }
        let segment = self.log(log).segment;
        let fresh = self.log(log).fresh.clone();
        let map = self.valid_map(segment)?;
        let mut summary = SummaryBlock::empty(true);
        for offset in (0..SEGMENT_BLOCKS).filter(|n| bits::test(&map, *n)) {
            let known = fresh.iter().find(|f| f.0 == offset).map(|f| f.1);
            let owner = match known {
                Some(owner) => owner,
                None => {
                    let at = self.g.block(segment, offset);
                    let block = self.image.read_block(at, "f2fs node")?;
                    Summary::new(Footer::of(&block).nid.get(), 0, 0)
                }
            };
            summary.set_entry(offset, owner);
        }
        Ok(summary)
    }

    /// Owner of a data block, from the summaries as they are now.
    pub(super) fn owner(&self, block: u32) -> FsResult<Summary> {
        let (segment, offset) = self.g.place(block).ok_or(FsError::Io)?;
        let log = Log::DATA.into_iter().find(|l| self.log(*l).segment == segment);
        if let Some(s) = log.and_then(|l| self.log(l).summary.as_ref()) {
            return Ok(s.entry(offset));
        }
        Ok(self.summary(segment)?.entry(offset))
    }

    fn summary(&self, segment: u32) -> FsResult<SummaryBlock> {
        if let Some(s) = self.summaries.get(&segment) {
            return Ok(s.clone());
        }
        let at = self.g.summary_block(segment);
        let block: Block = self.image.read_block(at, "f2fs summary block")?;
        Ok(SummaryBlock::load(&block))
    }

    /// Takes the next block of a log. Errors: `NoSpace`; those of the image.
    /// `f2fs_allocate_data_block`.
    pub(super) fn take(&mut self, log: Log, owner: Summary) -> FsResult<u32> {
        while self.log(log).offset >= self.usable(self.log(log).segment) {
            self.next_segment(log)?;
        }
        let head = self.log_mut(log);
        let (segment, offset) = (head.segment, head.offset);
        match &mut head.summary {
            Some(summary) => summary.set_entry(offset, owner),
            None => head.fresh.push((offset, owner)),
        }
        let block = self.g.block(segment, offset);
        self.mark(block, true)?;
        let next = self.next_in(segment, offset + 1, self.log(log).alloc)?;
        self.log_mut(log).offset = next;
        if next >= self.usable(segment) {
            self.next_segment(log)?;
        }
        Ok(block)
    }

    /// The next block of a segment that a log may write. `__refresh_next_blkoff`.
    fn next_in(&mut self, segment: u32, from: u32, how: u8) -> FsResult<u32> {
        if how != alloc::SSR {
            return Ok(from);
        }
        let s = self.segment(segment)?;
        let used = |n: &u32| s.entry.is_valid(*n) || bits::test(&s.kept, *n);
        Ok((from..SEGMENT_BLOCKS).find(|n| !used(n)).unwrap_or(SEGMENT_BLOCKS))
    }

    /// The block that a log will write next, for the footer of the node before it.
    pub(super) fn next_block(&self, log: Log) -> u32 {
        let (segment, offset) = self.log_head(log);
        self.g.block(segment, offset)
    }

    /// Makes a data block that is there already belong to `owner`, and gives up `old`.
    /// `f2fs_do_replace_block`: a log moves to it, so that its summary is kept.
    pub(super) fn adopt(&mut self, owner: Summary, old: u32, block: u32) -> FsResult<()> {
        let (segment, offset) = self.g.place(block).ok_or(FsError::Io)?;
        let kind = self.segment(segment)?.entry;
        let log = match Log::of(kind.kind()) {
            // A segment that was free has no kind of its own yet.
            _ if kind.valid_blocks() == 0 && self.log_in(segment).is_none() => {
                if old == addr::NULL { Log::ColdData } else { Log::WarmData }
            }
            Some(log) if !log.is_node() => log,
            _ => {
                let expected = format!("a segment of data (segment {segment})");
                let at = Geometry::byte_of(block);
                let found = kind.kind().into();
                return Err(FsError::corrupt("f2fs SIT entry", "type", at, found, expected));
            }
        };
        let log = self.log_in(segment).filter(|l| !l.is_node()).unwrap_or(log);
        if self.log(log).segment != segment {
            let mut summary = self.summary(segment)?;
            let journal = self.log(log).summary.as_ref().map(|s| s.journal);
            self.close(log)?;
            summary.footer.entry_type = SummaryBlock::DATA;
            if let Some(journal) = journal {
                summary.journal = journal;
            }
            self.summaries.remove(&segment);
            self.taken.insert(segment);
            *self.log_mut(log) = LogHead {
                segment,
                offset: 0,
                alloc: alloc::SSR,
                summary: Some(summary),
                fresh: Vec::new(),
            };
        }
        let head = self.log_mut(log);
        head.offset = offset;
        if let Some(s) = &mut head.summary {
            s.set_entry(offset, owner);
        }
        self.mark(block, true)?;
        if addr::is_block(old) {
            self.mark(old, false)?;
        }
        Ok(())
    }

    /// Nothing is put into the segments of these blocks: a log that is there goes on in another.
    pub(super) fn leave_alone(&mut self, blocks: &[u32]) -> FsResult<()> {
        let places = blocks.iter().filter_map(|at| self.g.place(*at));
        let segments: BTreeSet<u32> = places.map(|(segment, _)| segment).collect();
        self.taken.extend(&segments);
        for log in Log::ALL {
            if segments.contains(&self.log_head(log).0) {
                self.new_section(log)?;
            }
        }
        Ok(())
    }

    /// Logs of data go on in new sections, unless nothing was ever in theirs: what roll-forward
    /// found lies behind their heads. `f2fs_allocate_new_segments`.
    pub(super) fn renew_data_logs(&mut self) -> FsResult<()> {
        for log in Log::DATA {
            let (segment, offset) = self.log_head(log);
            let s = self.segment(segment)?;
            let used = offset != 0 || s.entry.valid_blocks() != 0 || s.kept != [0; 64];
            if used {
                self.new_section(log)?;
            }
        }
        Ok(())
    }
}
