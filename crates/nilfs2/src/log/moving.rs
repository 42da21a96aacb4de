//! Cleaning: what still counts in segments is written again, and the segments become free.
//!
//! Picture:    [`Cleaning`] (what a cleaner found in segments, with the contents of what is kept)
//!             -> checkpoints go, numbers without a checkpoint are free again, live blocks of the
//!             DAT count as changed -> a construction that begins with the blocks that move -> the
//!             checkpoint in its last log says where they lie, and that the segments are free.
//! Invariants: 1. a block that moves keeps its number; only the DAT changes.
//!             2. until the logs are on the medium, readers are led to where the block lay.
//!             3. no segment is both freed and taken in one construction.
//! Source:     fs/nilfs2: `nilfs_clean_segments`, `nilfs_ioctl_prepare_clean_segments`, gcinode.c,
//!             `nilfs_btree_assign_gc`, `nilfs_dat_move`, `nilfs_sufile_freev`.

use std::ops::Range;

use wp_base::{FsError, FsResult};

use crate::disk::palloc::bit;
use crate::disk::summary::flag;
use crate::disk::{BlockInfo, DatEntry, FileInfo, index, view_mut, wide};

use super::block::Block;
use super::construct::{Full, Run};
use super::dat::{Dat, Via};
use super::draft::{Chosen, Part, Payload};
use super::{Disk, Kind, Log, Store, palloc};

/// A block that is written again under its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The file that it belongs to.
    pub ino: u64,
    /// The file's version, as the log with the block names it.
    pub cno: u64,
    /// Its place in the file; nodes of the map have none.
    pub offset: Option<u64>,
    /// Its number.
    pub number: u64,
    /// Its contents.
    pub contents: Block,
}

/// A block of the DAT, or a node of its map, in a segment that is to be free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatBlock {
    /// Where it lies.
    pub block: u64,
    /// Its place in the file; for a node its first key.
    pub offset: u64,
    /// 0: data.
    pub level: u8,
}

/// What is to be done so that segments can be free.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleaning {
    /// The segments.
    pub segments: Vec<u64>,
    /// What is kept, in the order in which it lies there.
    pub moved: Vec<Moved>,
    /// Numbers that no checkpoint has which stays.
    pub dead: Vec<u64>,
    /// Checkpoints that go.
    pub gone: Vec<Range<u64>>,
    /// Blocks of the DAT, which are kept if they still lie there.
    pub dat: Vec<DatBlock>,
}

/// The blocks of one version of a file that move.
#[derive(Clone, Debug)]
struct Version {
    ino: u64,
    cno: u64,
    /// By place in the file, and by number.
    data: Vec<(u64, u64, Block)>,
    /// By number.
    nodes: Vec<(u64, Block)>,
    /// How many of both are in logs that are closed.
    written: (usize, usize),
}

/// A cleaning that is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct Moving {
    /// In the order in which they are written.
    versions: Vec<Version>,
    /// To be freed.
    pub segments: Vec<u64>,
    /// Are they free in the log that is being made?
    pub are_freed: bool,
}

impl Moving {
    /// Versions of files, the one that was met last first: the kernel's list is filled at its
    /// head. `nilfs_ioctl_move_blocks`.
    fn new(c: &Cleaning) -> Moving {
        let mut versions: Vec<Version> = Vec::new();
        for m in &c.moved {
            let known = versions.iter().rposition(|v| (v.ino, v.cno) == (m.ino, m.cno));
            let at = known.unwrap_or_else(|| {
                let (data, nodes) = (Vec::new(), Vec::new());
                versions.push(Version { ino: m.ino, cno: m.cno, data, nodes, written: (0, 0) });
                versions.len() - 1
            });
            let Some(version) = versions.get_mut(at) else { continue };
            match m.offset {
                Some(offset) => version.data.push((offset, m.number, m.contents.clone())),
                None => version.nodes.push((m.number, m.contents.clone())),
            }
        }
        for v in &mut versions {
            v.data.sort_by_key(|(offset, number, _)| (*offset, *number));
            v.nodes.sort_by_key(|(number, _)| *number);
        }
        versions.reverse();
        Moving { versions, segments: c.segments.clone(), are_freed: false }
    }

    /// Is there an `n`th version?
    pub fn has(&self, n: usize) -> bool {
        n < self.versions.len()
    }

    /// The blocks of the `n`th version that a log has, as bytes; it is closed.
    pub fn pass(&mut self, n: usize, part: &Part, payload: &mut Payload) -> FsResult<()> {
        let v = self.versions.get_mut(n).ok_or(FsError::Io)?;
        for c in &part.data {
            payload.push(v.data.get(index(c.key)).ok_or(FsError::Io)?.2.clone());
        }
        for c in &part.nodes {
            payload.push(v.nodes.get(index(c.key)).ok_or(FsError::Io)?.1.clone());
        }
        v.written.0 += part.data.len();
        v.written.1 += part.nodes.len();
        Ok(())
    }
}

impl Dat {
    /// A number's block lies at `block` from now on; until [`Self::settle`], readers find it where
    /// it was. `nilfs_dat_move`.
    pub(super) fn relocate(&mut self, disk: &Disk<'_>, number: u64, block: u64) -> FsResult<()> {
        let old = self.entry(disk, number)?.blocknr.get();
        if old == 0 {
            let expected = format!("a block (number {number})");
            return Err(FsError::corrupt("nilfs2 DAT", "de_blocknr", 0, old, expected));
        }
        self.moved.entry(number).or_insert(old);
        let (at_block, at) = disk.g.dat.place(number);
        let via = &mut Via { disk, dat: None };
        let range = at..at + size_of::<DatEntry>();
        let entry = view_mut::<DatEntry>(self.table.existing_mut(via, at_block, range)?, 0);
        entry.ok_or(FsError::Io)?.blocknr = block.into();
        Ok(())
    }

    /// What was moved is on the medium.
    fn settle(&mut self) {
        self.moved.clear();
    }

    /// Gives numbers back whose blocks nobody needs any more, and the blocks of entries and of
    /// bits that nobody needs then. `nilfs_dat_freev`.
    fn give_back(&mut self, disk: &Disk<'_>, numbers: &[u64]) -> FsResult<()> {
        let p = disk.g.dat;
        for number in numbers {
            let via = &mut Via { disk, dat: None };
            palloc::give(&mut self.table, via, &p, *number)?;
            let (group, within) = p.group_of(*number);
            let map = p.bitmap_block(group);
            let Some(bits) = self.table.bytes(via, map)? else { continue };
            let first = within / p.per_block * p.per_block;
            let end = (first + p.per_block).min(p.group_entries);
            let is_empty = (first..end).all(|n| !bit(bits, n));
            let is_all_empty = is_empty && bits.iter().all(|b| *b == 0);
            if is_empty {
                let (entries, _) = p.place(*number);
                forgive_hole(self.table.remove(via, entries))?;
            }
            if is_all_empty {
                forgive_hole(self.table.remove(via, map))?;
            }
        }
        Ok(())
    }
}

/// What was to be taken out may have been a hole before.
fn forgive_hole(removed: FsResult<()>) -> FsResult<()> {
    match removed {
        Err(FsError::NotFound) => Ok(()),
        other => other,
    }
}

impl Store<'_> {
    /// Makes the logs of a cleaning, which are a checkpoint of everything else too.
    /// [`Self::moves_are_written`] follows when they are on the medium.
    ///
    /// Errors: as those of [`Self::construct`].
    pub fn clean(&mut self, c: &Cleaning, now: u64) -> FsResult<Vec<Log>> {
        let saved = self.save(wide(c.moved.len() + c.dat.len()));
        let made = self.clean_all(c, now);
        self.moving = None;
        self.kept(made, saved)
    }

    fn clean_all(&mut self, c: &Cleaning, now: u64) -> FsResult<Vec<Log>> {
        for range in &c.gone {
            self.delete_checkpoints(range.clone())?;
        }
        self.dat.give_back(&self.disk, &c.dead)?;
        for block in &c.dat {
            self.touch_dat(block)?;
        }
        self.moving = Some(Moving::new(c));
        self.construct_all(Kind::Checkpoint, now)
    }

    /// Does a block of the DAT still lie where a log says? It is to be written again then.
    /// `nilfs_ioctl_mark_blocks_dirty`.
    fn touch_dat(&mut self, block: &DatBlock) -> FsResult<()> {
        if self.dat_block(block.offset, block.level)? != Some(block.block) {
            return Ok(());
        }
        let via = &mut Via { disk: &self.disk, dat: None };
        let table = &mut self.dat.table;
        if block.level == 0 {
            return table.touch(via, block.offset);
        }
        table.file.load_node(via, block.block, block.level)?;
        table.file.nodes.mark(block.block).map(|_| ()).ok_or(FsError::Io)
    }

    /// Where a block of the DAT lies, or a node of its map by its first key. `None`: nowhere.
    pub fn dat_block(&mut self, offset: u64, level: u8) -> FsResult<Option<u64>> {
        let via = &mut Via { disk: &self.disk, dat: None };
        self.dat.table.file.pointer_at(via, offset, level)
    }

    /// What the DAT says of a number.
    pub fn dat_entry(&mut self, number: u64) -> FsResult<DatEntry> {
        self.dat.entry(&self.disk, number)
    }

    /// Chooses the blocks of the `n`th version that are in no log yet.
    pub(super) fn scan_moved(&mut self, run: &mut Run, n: usize) -> Result<(), Full> {
        let Some(v) = self.moving.as_ref().and_then(|m| m.versions.get(n)) else { return Ok(()) };
        let (number, mut is_begun) = (v.ino, false);
        let data = (v.written.0..v.data.len()).map(|at| Chosen { level: 0, key: wide(at) });
        let nodes = (v.written.1..v.nodes.len()).map(|at| Chosen { level: 1, key: wide(at) });
        for c in data.chain(nodes) {
            if !self.add(run, (number, Some(n)), &mut is_begun, c) {
                return Err(Full);
            }
        }
        Ok(())
    }

    /// The blocks of the `n`th version in a log get their places, from `block` on.
    pub(super) fn relocate(
        &mut self,
        part: &Part,
        n: usize,
        block: &mut u64,
    ) -> FsResult<FileInfo> {
        let Store { disk, dat, moving, .. } = self;
        let v = moving.as_ref().and_then(|m| m.versions.get(n)).ok_or(FsError::Io)?;
        let mut out = FileInfo { ino: v.ino, cno: v.cno, data: Vec::new(), nodes: Vec::new() };
        for c in &part.data {
            let (offset, number, _) = v.data.get(index(c.key)).ok_or(FsError::Io)?;
            out.data.push(BlockInfo { virtual_block: *number, offset: *offset, level: 0 });
        }
        for c in &part.nodes {
            let (number, _) = v.nodes.get(index(c.key)).ok_or(FsError::Io)?;
            out.nodes.push(BlockInfo { virtual_block: *number, offset: 0, level: 0 });
        }
        for info in out.data.iter().chain(&out.nodes) {
            dat.relocate(disk, info.virtual_block, *block)?;
            *block += 1;
        }
        Ok(out)
    }

    /// Logs of a cleaning say so, all but its first, which Linux's does not either.
    /// `nilfs_segctor_reset_segment_buffer`, `nilfs_segctor_collect_blocks`.
    pub(super) fn mark_drafts(&self, run: &mut Run) {
        if self.moving.is_some() {
            for draft in run.drafts.iter_mut().filter(|d| d.flags & flag::BEGIN == 0) {
                draft.flags |= flag::CLEANER;
            }
        }
    }

    /// The segments of a cleaning are free in the log that is being made. `nilfs_free_segments`.
    pub(super) fn free_cleaned(&mut self) -> FsResult<()> {
        let Some(moving) = &mut self.moving else { return Ok(()) };
        moving.are_freed = true;
        for segment in moving.segments.clone() {
            self.free_segment(segment)?;
        }
        Ok(())
    }

    /// They are in use again, as the log must be made again with more segments.
    /// `nilfs_sufile_cancel_freev`.
    pub(super) fn keep_segments(&mut self) -> FsResult<()> {
        let Some(moving) = self.moving.as_mut().filter(|m| m.are_freed) else { return Ok(()) };
        moving.are_freed = false;
        for segment in moving.segments.clone() {
            self.reuse_segment(segment)?;
        }
        Ok(())
    }

    /// The logs of a cleaning are on the medium.
    pub fn moves_are_written(&mut self) {
        self.dat.settle();
    }
}
