//! The usage of segments and the checkpoints.

use std::collections::BTreeMap;

use wp_base::FsResult;

use crate::disk::{
    Checkpoint, CheckpointHeader, Inode, SegmentUsage, SuperRoot, Table, UsageHeader, ino, view,
};

use super::{Checker, File, Kind, Owner, Report, Seen};

/// A segment in use.
pub(super) struct Usage {
    /// Blocks from its start on that logs have.
    pub blocks: u64,
    /// Could it not be written?
    pub is_bad: bool,
}

impl Checker<'_> {
    fn metadata(&self, number: u64, inode: Inode, place: &str) -> File {
        File { ino: number, inode, cno: self.newest, place: place.to_owned() }
    }

    /// The blocks of a table by their place in the file. `None`: reported.
    fn table(
        &self,
        file: &File,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<Option<BTreeMap<u64, Vec<u8>>>> {
        let walked = self.walk(file, seen, report)?;
        let mut blocks = BTreeMap::new();
        for (offset, block) in &walked.data {
            blocks.insert(*offset, self.volume.read(*block)?);
        }
        if !walked.is_bad && !blocks.contains_key(&0) {
            report.add(Kind::BlockMap, file.place.as_str(), "a hole", "a first block");
        }
        Ok(Some(blocks).filter(|b| b.contains_key(&0)))
    }

    /// How segments are used, and the counts of that.
    pub(super) fn segment_usage(
        &self,
        root: &SuperRoot,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<BTreeMap<u64, Usage>> {
        let g = &self.volume.g;
        let file = self.metadata(ino::SUFILE, root.sufile, "segment usage");
        let mut out = BTreeMap::new();
        let Some(blocks) = self.table(&file, seen, report)? else { return Ok(out) };
        let (mut clean, mut dirty) = (g.segments, 0);
        for (n, at, bytes) in entries(&g.sufile, &blocks).filter(|(n, ..)| *n < g.segments) {
            let Some(usage) = view::<SegmentUsage>(bytes, at) else { continue };
            if usage.is_clean() {
                continue;
            }
            clean -= 1;
            dirty += u64::from(usage.is_dirty());
            let (start, end) = g.segment(n);
            let used = u64::from(usage.nblocks.get());
            if used > end - start {
                let expected = format!("0 to {}", end - start);
                report.add(Kind::Usage, format!("segment {n}: su_nblocks"), used, expected);
            }
            out.insert(n, Usage { blocks: used, is_bad: usage.is_bad() });
        }
        if let Some(head) = blocks.get(&0).and_then(|b| view::<UsageHeader>(b, 0)) {
            let counts = [
                ("sh_ncleansegs", head.ncleansegs.get(), clean),
                ("sh_ndirtysegs", head.ndirtysegs.get(), dirty),
            ];
            for (field, found, right) in counts.into_iter().filter(|(_, a, b)| a != b) {
                report.add(Kind::UsageCount, format!("segment usage: {field}"), found, right);
            }
            let last = head.last_alloc.get();
            if last >= g.segments {
                let expected = format!("less than {}", g.segments);
                report.add(Kind::UsageCount, "segment usage: sh_last_alloc", last, expected);
            }
        }
        Ok(out)
    }

    /// All checkpoints, and the counts and lists of them.
    pub(super) fn checkpoints(
        &self,
        root: &SuperRoot,
        seen: &mut Seen,
        report: &mut Report,
    ) -> FsResult<BTreeMap<u64, Checkpoint>> {
        let g = &self.volume.g;
        let file = self.metadata(ino::CPFILE, root.cpfile, "checkpoints");
        let mut out = BTreeMap::new();
        let Some(blocks) = self.table(&file, seen, report)? else { return Ok(out) };
        for (cno, at, bytes) in entries(&g.cpfile, &blocks) {
            let Some(cp) = view::<Checkpoint>(bytes, at).filter(|cp| cp.is_valid()) else {
                continue;
            };
            if cp.cno.get() != cno || cno > self.newest {
                let expected = format!("{cno}, at most {}", self.newest);
                report.add(Kind::Checkpoint, format!("checkpoint {cno}"), cp.cno.get(), expected);
                continue;
            }
            out.insert(cno, *cp);
        }
        for (block, bytes) in blocks.iter().filter(|(block, _)| **block != 0) {
            let valid = g.cpfile.in_block(*block).filter(|(cno, _)| out.contains_key(cno));
            let (right, found) = (valid.count() as u64, view::<Checkpoint>(bytes, 0));
            let found = found.map_or(0, |cp| u64::from(cp.checkpoints_count.get()));
            if found != right {
                let place = format!("checkpoints, block {block}: cp_checkpoints_count");
                report.add(Kind::CheckpointCount, place, found, right);
            }
        }
        if let Some(head) = blocks.get(&0).and_then(|b| view::<CheckpointHeader>(b, 0)) {
            let snapshots: Vec<u64> =
                out.iter().filter(|(_, cp)| cp.is_snapshot()).map(|(cno, _)| *cno).collect();
            let counts = [
                ("ch_ncheckpoints", head.ncheckpoints.get(), out.len()),
                ("ch_nsnapshots", head.nsnapshots.get(), snapshots.len()),
            ];
            for (field, found, right) in counts.into_iter().filter(|(_, a, b)| *a != *b as u64) {
                report.add(Kind::CheckpointCount, format!("checkpoints: {field}"), found, right);
            }
            self.snapshot_list(head, &snapshots, &out, report);
        }
        if !out.contains_key(&self.newest) {
            let expected = "the checkpoint that the super root ends";
            report.add(Kind::Checkpoint, format!("checkpoint {}", self.newest), "none", expected);
        }
        Ok(out)
    }

    /// Snapshots are in a ring with the head, in order.
    fn snapshot_list(
        &self,
        head: &CheckpointHeader,
        snapshots: &[u64],
        all: &BTreeMap<u64, Checkpoint>,
        report: &mut Report,
    ) {
        let lists = snapshots.iter().filter_map(|cno| all.get(cno)).map(|cp| cp.snapshot_list);
        let ring = std::iter::once((0, head.snapshot_list));
        let ring: Vec<_> = ring.chain(snapshots.iter().copied().zip(lists)).collect();
        let after = ring.iter().skip(1).chain(ring.first());
        for ((cno, list), (next, next_list)) in ring.iter().zip(after) {
            let found = (list.next.get(), next_list.prev.get());
            if found != (*next, *cno) {
                let found = format!("next {}, whose prev is {}", found.0, found.1);
                let place = format!("snapshot list at {cno}");
                report.add(Kind::Snapshots, place, found, format!("next {next}, prev {cno}"));
            }
        }
    }

    /// What is referred to lies in logs of segments in use, and summaries name the same owner.
    pub(super) fn blocks(
        &self,
        seen: &Seen,
        usage: &BTreeMap<u64, Usage>,
        owners: &BTreeMap<u64, Owner>,
        report: &mut Report,
    ) {
        let g = &self.volume.g;
        for (block, owner) in &seen.blocks {
            let segment = g.segment_of(*block);
            let (start, _) = g.segment(segment);
            let place = || format!("block {block} of file {}", owner.ino);
            match usage.get(&segment) {
                Some(u) if block - start < u.blocks => {}
                Some(u) => {
                    let expected = format!("within the {} blocks of segment {segment}", u.blocks);
                    report.add(Kind::BlockFree, place(), block - start, expected);
                    continue;
                }
                None => {
                    let expected = "a segment in use";
                    report.add(Kind::BlockFree, place(), format!("segment {segment}"), expected);
                    continue;
                }
            }
            match owners.get(block) {
                Some(told) if told == owner => {}
                // The log is no good, which was reported.
                None => {}
                Some(told) => {
                    let show =
                        |o: &Owner| format!("file {}, number {}, {:?}", o.ino, o.number, o.offset);
                    report.add(Kind::Summary, place(), show(told), show(owner));
                }
            }
        }
    }
}

/// All entries of a table's blocks: number, byte in the block, the block.
fn entries<'b>(
    table: &'b Table,
    blocks: &'b BTreeMap<u64, Vec<u8>>,
) -> impl Iterator<Item = (u64, usize, &'b [u8])> {
    blocks.iter().flat_map(|(block, bytes)| {
        table.in_block(*block).map(move |(n, at)| (n, at, bytes.as_slice()))
    })
}
