//! Super blocks, checkpoint, SIT and NAT as they stand.

use std::collections::BTreeMap;

use wp_base::FsResult;
use wp_medium::{Sound, View};

use crate::disk::{
    Block, Checkpoint, Compacted, Geometry, Journal, Log, NatEntry, OrphanBlock, SEGMENT_BLOCKS,
    SitEntry, SummaryBlock, SuperBlock, ZERO_BLOCK, addr, bits, cp_flag, nid,
};

use super::{Kind, Report};

/// What a set of images is remembered by: these blocks of the NAT, first and how many, are zeroes.
const NAT_IS_ZERO: u64 = 1;

/// All of them.
pub(super) struct Tables<'a> {
    view: &'a dyn View,
    pub(super) sb: SuperBlock,
    pub(super) g: Geometry,
    pub(super) cp: Checkpoint,
    pub(super) pack: u32,
    pub(super) sit: Vec<SitEntry>,
    /// Numbers in use.
    pub(super) nat: BTreeMap<u32, NatEntry>,
    /// Summaries of the data logs.
    pub(super) data: Vec<SummaryBlock>,
    pub(super) orphans: Vec<u32>,
}

impl<'a> Tables<'a> {
    /// Reads them; `None` if there is no file system to read. What is wrong with them is reported.
    pub(super) fn read(
        view: &'a dyn View,
        sound: &Sound,
        report: &mut Report,
    ) -> FsResult<Option<Tables<'a>>> {
        let Some(sb) = supers(view, report)? else { return Ok(None) };
        let g = match Geometry::from_super(&sb) {
            Ok(g) if g.bytes() <= view.len_bytes() => g,
            Ok(g) => {
                report.add(Kind::SuperBlock, "length of the image", view.len_bytes(), g.bytes());
                return Ok(None);
            }
            Err(e) => {
                report.add(Kind::SuperBlock, "layout", e, "areas that fit the image");
                return Ok(None);
            }
        };
        let mut best: Option<(u32, Checkpoint)> = None;
        let mut wrong = Vec::new();
        for second in [false, true] {
            match pack(view, &g, g.pack(second))? {
                Ok(cp) => {
                    let newer = best.as_ref().is_none_or(|(_, b)| {
                        let (old, new) = (b.head().checkpoint_ver, cp.head().checkpoint_ver);
                        new.get().wrapping_sub(old.get()).cast_signed() > 0
                    });
                    if newer {
                        best = Some((g.pack(second), cp));
                    }
                }
                Err(c) => wrong.push(c),
            }
        }
        let Some((pack, cp)) = best else {
            wrong.iter().for_each(|c| report.corrupt(Kind::Checkpoint, "pack", c));
            return Ok(None);
        };
        if let Err(c) = cp.verify(&sb, &g, Geometry::byte_of(pack)) {
            report.corrupt(Kind::Checkpoint, "checkpoint", &c);
            return Ok(None);
        }
        let mut t = Tables {
            view,
            sb,
            g,
            cp,
            pack,
            sit: Vec::new(),
            nat: BTreeMap::new(),
            data: Vec::new(),
            orphans: Vec::new(),
        };
        t.read_summaries()?;
        t.read_sit(report)?;
        t.read_nat(sound, report)?;
        t.read_orphans(report)?;
        Ok(Some(t))
    }

    /// A block; zeroes behind the end of the image.
    pub(super) fn block(&self, n: u32) -> FsResult<Block> {
        block(self.view, n)
    }

    fn read_summaries(&mut self) -> FsResult<()> {
        if self.cp.has(cp_flag::COMPACT_SUM) {
            let mut next = self.pack + self.cp.head().cp_pack_start_sum.get();
            let read = Compacted::load(Compacted::counts(&self.cp), || {
                next += 1;
                block(self.view, next - 1)
            })?;
            for owners in &read.data {
                let mut summary = SummaryBlock::empty(false);
                owners.iter().zip(0..).for_each(|(s, n)| summary.set_entry(n, *s));
                self.data.push(summary);
            }
            if let [hot, _, cold] = self.data.as_mut_slice() {
                (hot.journal, cold.journal) = (read.nat, read.sit);
            }
        } else {
            for log in Log::DATA {
                let place = self.cp.summary_place(log).unwrap_or(0);
                self.data.push(SummaryBlock::load(&self.block(self.pack + place)?));
            }
        }
        Ok(())
    }

    fn journal(&self, n: usize) -> Journal {
        self.data.get(n).map_or(Journal::empty(), |s| s.journal)
    }

    fn read_sit(&mut self, report: &mut Report) -> FsResult<()> {
        for n in 0..self.g.sit_blocks_used() {
            let block = self.block(self.g.current_sit_block(n, &self.cp))?;
            let left = self.g.segments as usize - self.sit.len();
            self.sit.extend(SitEntry::all(&block).iter().take(left));
        }
        let journal = self.journal(2);
        if usize::from(journal.count.get()) > Journal::SIT_MAX {
            report.add(Kind::Journal, "SIT journal", journal.count.get(), Journal::SIT_MAX);
        }
        for e in journal.sits() {
            match self.sit.get_mut(e.segment.get() as usize) {
                Some(entry) => *entry = e.entry,
                None => report.add(Kind::Journal, "SIT journal", e.segment.get(), "a segment"),
            }
        }
        for (entry, segment) in self.sit.iter().zip(0..) {
            if let Err(c) = entry.verify(segment, 0) {
                report.corrupt(Kind::SitEntry, format!("segment {segment}"), &c);
            }
        }
        Ok(())
    }

    fn read_nat(&mut self, sound: &Sound, report: &mut Report) -> FsResult<()> {
        let mut all: BTreeMap<u32, NatEntry> = BTreeMap::new();
        for first in (0..self.g.nat_blocks).step_by(SEGMENT_BLOCKS as usize) {
            let blocks = SEGMENT_BLOCKS.min(self.g.nat_blocks - first);
            self.read_nat_blocks(sound, first, blocks, &mut all)?;
        }
        let journal = self.journal(0);
        if usize::from(journal.count.get()) > Journal::NAT_MAX {
            report.add(Kind::Journal, "NAT journal", journal.count.get(), Journal::NAT_MAX);
        }
        for e in journal.nats() {
            let nid = e.nid.get();
            if nid >= self.g.nids() {
                report.add(Kind::Journal, "NAT journal", nid, "a node id");
            } else if e.entry.is_free() {
                all.remove(&nid);
            } else {
                all.insert(nid, e.entry);
            }
        }
        // The first numbers stand for caches in memory.
        all.retain(|nid, _| *nid >= nid::ROOT);
        for (nid, e) in &all {
            let place = e.block_addr.get();
            if !addr::is_block(place) || !self.g.is_main(place) {
                report.add(
                    Kind::NatEntry,
                    format!("node {nid}"),
                    place,
                    "a block of the main area",
                );
            }
        }
        self.nat = all;
        Ok(())
    }

    /// Reads `n` blocks of the NAT, which lie in one segment of either copy. Are all of them, in
    /// both copies, zeroes in every image of the set? Then nobody looks there again.
    fn read_nat_blocks(
        &self,
        sound: &Sound,
        first: u32,
        n: u32,
        all: &mut BTreeMap<u32, NatEntry>,
    ) -> FsResult<bool> {
        let piece = [NAT_IS_ZERO, first.into(), n.into()];
        let bytes = Geometry::byte_of(n);
        let is_fixed = [false, true].iter().all(|second| {
            self.view.is_fixed(Geometry::byte_of(self.g.nat_block(first, *second)), bytes)
        });
        if is_fixed && sound.has(&piece) {
            return Ok(true);
        }
        let is_zero = if n > 1 {
            let half = n / 2;
            let low = self.read_nat_blocks(sound, first, half, all)?;
            self.read_nat_blocks(sound, first + half, n - half, all)? && low
        } else {
            let second = bits::test(self.cp.nat_bitmap(), first);
            let block = self.block(self.g.nat_block(first, second))?;
            let is_zero = bits::is_zero(&block);
            if !is_zero {
                let nids = first * NatEntry::PER_BLOCK..;
                let used = NatEntry::all(&block).iter().zip(nids).filter(|(e, _)| !e.is_free());
                all.extend(used.map(|(e, nid)| (nid, *e)));
            }
            is_zero && is_fixed && bits::is_zero(&self.block(self.g.nat_block(first, !second))?)
        };
        if is_zero {
            sound.add(piece.to_vec());
        }
        Ok(is_zero)
    }

    fn read_orphans(&mut self, report: &mut Report) -> FsResult<()> {
        if !self.cp.has(cp_flag::ORPHAN_PRESENT) {
            return Ok(());
        }
        for n in 1 + self.cp.payload()..self.cp.head().cp_pack_start_sum.get() {
            let at = self.pack + n;
            match OrphanBlock::load(&self.block(at)?, Geometry::byte_of(at)) {
                Ok(found) => self.orphans.extend(found.inodes()),
                Err(c) => report.corrupt(Kind::Orphan, "orphans", &c),
            }
        }
        Ok(())
    }

    /// Is a log in a segment?
    pub(super) fn log_in(&self, segment: u32) -> Option<Log> {
        Log::ALL.into_iter().find(|l| self.cp.log(*l).0 == segment)
    }
}

fn block(view: &dyn View, n: u32) -> FsResult<Block> {
    let mut out = ZERO_BLOCK;
    if Geometry::byte_of(n) + 4096 <= view.len_bytes() {
        view.read_at(Geometry::byte_of(n), &mut out)?;
    }
    Ok(out)
}

/// The features of the first good super block; none if both are bad.
pub(super) fn features(view: &dyn View) -> u32 {
    let good = (0..SuperBlock::COPIES).find_map(|copy| {
        let sb = SuperBlock::load(&block(view, copy).ok()?);
        sb.verify(Geometry::byte_of(copy) + SuperBlock::AT as u64).is_ok().then_some(sb)
    });
    good.map_or(0, |sb| sb.feature.get())
}

fn supers(view: &dyn View, report: &mut Report) -> FsResult<Option<SuperBlock>> {
    let mut good: Vec<SuperBlock> = Vec::new();
    let mut bad = Vec::new();
    for copy in 0..SuperBlock::COPIES {
        let sb = SuperBlock::load(&block(view, copy)?);
        sb.refuse()?;
        match sb.verify(Geometry::byte_of(copy) + SuperBlock::AT as u64) {
            Ok(()) => good.push(sb),
            Err(c) => bad.push(c),
        }
    }
    let kind = if good.is_empty() { Kind::SuperBlock } else { Kind::SuperCopies };
    bad.iter().for_each(|c| report.corrupt(kind, "super block", c));
    if let [a, b] = good.as_slice() {
        use zerocopy::IntoBytes;
        if a.as_bytes() != b.as_bytes() {
            report.add(
                Kind::SuperCopies,
                "the contents of the second super block",
                "another",
                "the same",
            );
        }
    }
    Ok(good.first().copied())
}

fn pack(
    view: &dyn View,
    g: &Geometry,
    start: u32,
) -> FsResult<Result<Checkpoint, wp_base::Corruption>> {
    let first = block(view, start)?;
    let at = Geometry::byte_of(start);
    let version = match Checkpoint::version_of(&first, at) {
        Ok(v) => v,
        Err(c) => return Ok(Err(c)),
    };
    let mut cp = Checkpoint::new(&first, g.cp_payload);
    let total = cp.head().cp_pack_total_block_count.get();
    let wrong = |field, found: u64, expected: String| {
        Ok(Err(wp_base::Corruption { structure: "f2fs checkpoint", field, at, found, expected }))
    };
    if !(3..=SEGMENT_BLOCKS).contains(&total) {
        return wrong("cp_pack_total_block_count", total.into(), "3 to 512".to_owned());
    }
    let last = Checkpoint::version_of(&block(view, start + total - 1)?, at);
    if last.as_ref().ok() != Some(&version) {
        return wrong("checkpoint_ver", last.unwrap_or(0), format!("{version:#x} at both ends"));
    }
    for n in 1..=g.cp_payload {
        cp.set_block(n, &block(view, start + n)?);
    }
    Ok(Ok(cp))
}
