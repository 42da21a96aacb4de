//! One construction: which blocks go into which log, and the logs as bytes.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use wp_base::crc::crc32_le;
use wp_base::{FsError, FsResult};

use crate::disk::summary::{data_sum, flag, set_data_sum};
use crate::disk::{
    FileInfo, Inode, Summary, SummaryHead, SuperRoot, index, ino, lo32, view_mut, wide,
};

use super::block::Block;
use super::dat::Via;
use super::draft::{Chosen, Draft, Payload};
use super::file::File;
use super::meta_file::MetaFile;
use super::{Place, Store};

/// What a construction is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A checkpoint of everything. `SC_LSEG_SR`.
    Checkpoint,
    /// Data of one file, for an fdatasync that needs no more. `SC_LSEG_DSYNC`.
    DataSync {
        /// The file.
        ino: u64,
        /// Its first block.
        from: u64,
        /// Its last block.
        to: u64,
    },
    /// Data of all files and the nodes of their maps, without a checkpoint: many are dirty. The
    /// logs are left open, for the next checkpoint to end. `SC_FLUSH_FILE`.
    Files,
}

/// A log as it is to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// Its first block.
    pub start: u64,
    /// Its sequence number.
    pub seq: u64,
    /// Its blocks, the summary first.
    pub blocks: Vec<Block>,
    /// Does it end with a super root?
    pub has_root: bool,
}

impl Log {
    /// All of its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.blocks.iter().flat_map(Block::to_vec).collect()
    }
}

/// Most segments that a construction takes at once. `SC_MAX_SEGDELTA`.
const SEGMENTS_AT_ONCE: u64 = 64;

/// How far a construction has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Data of a file: number, first and last block.
    Sync(u64, u64, u64),
    /// Which of the versions of files that a cleaning moves comes next.
    Moved(usize),
    /// Which of the files with changes comes next.
    Files(usize),
    Ifile,
    Cpfile,
    Sufile,
    Dat,
    Root,
    Done,
}

/// A construction.
pub(super) struct Run {
    pub drafts: Vec<Draft>,
    /// Files with changes, in the order of their first one.
    files: Vec<u64>,
    current: usize,
    stage: Stage,
    /// Are the data of the stage's file in logs, so that its nodes come next?
    at_nodes: bool,
    has_delta: bool,
    ends_after_files: bool,
}

/// What the last logs left for the next ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    /// When the logs began that no other has ended, in seconds since 1970
    /// (`NILFS_SC_UNCLOSED`, `sc_lseg_stime`).
    pub since: Option<u64>,
    /// Blocks of these logs, the last ones' too (`sc_nblk_inc`).
    blocks: u64,
    /// Has a file with data or nodes been in a log since the last checkpoint
    /// (`NILFS_SC_HAVE_DELTA`)?
    has_delta: bool,
}

/// The current log is full, and there is no other.
pub(super) struct Full;

impl Store<'_> {
    /// Makes the logs of a construction, each round a list; a round's logs are written before the
    /// next round's. `now`: seconds since 1970. What was written counts as clean then.
    ///
    /// Errors: `NoSpace` without a free segment, and nothing has changed; `Corrupt` and others,
    /// after which no construction is to follow.
    pub fn construct(&mut self, kind: Kind, now: u64) -> FsResult<Vec<Log>> {
        let saved = self.save(0);
        let made = self.construct_all(kind, now);
        self.kept(made, saved)
    }

    pub(super) fn construct_all(&mut self, kind: Kind, now: u64) -> FsResult<Vec<Log>> {
        let stage = match kind {
            Kind::Checkpoint => {
                self.touch_inodes()?;
                if !self.is_dirty() && self.moving.is_none() {
                    return Ok(Vec::new());
                }
                Stage::Moved(0)
            }
            Kind::DataSync { ino, from, to } => {
                if !self.data.is_dirty(ino, from..=to) {
                    return Ok(Vec::new());
                }
                Stage::Sync(ino, from, to)
            }
            Kind::Files => {
                self.touch_inodes()?;
                if !self.dirty.values().any(|number| self.has_dirty_parts(*number)) {
                    return Ok(Vec::new());
                }
                Stage::Files(0)
            }
        };
        let is_checkpoint = kind == Kind::Checkpoint;
        let cno = self.dat.cno;
        let (mut out, mut written) = (Vec::new(), BTreeSet::new());
        let mut run = Run {
            drafts: Vec::new(),
            files: self.dirty.values().copied().collect(),
            current: 0,
            stage,
            at_nodes: false,
            has_delta: self.open.has_delta,
            ends_after_files: kind == Kind::Files,
        };
        let mut blocks = 0;
        let mut is_first = self.open.since.is_none();
        let before = if is_first { 0 } else { self.open.blocks };
        while run.stage != Stage::Done {
            run.drafts = vec![self.begin()?];
            if let Some(first) = run.drafts.first_mut() {
                let is_sync = matches!(kind, Kind::DataSync { .. });
                first.flags |= if is_sync { flag::DATA_SYNC } else { 0 };
                first.flags |= if std::mem::take(&mut is_first) { flag::BEGIN } else { 0 };
            }
            self.collect(&mut run)?;
            self.mark_drafts(&mut run);
            blocks += run.drafts.iter().map(|d| d.blocks).sum::<u64>();
            let infos = self.assign(&run)?;
            if is_checkpoint && run.stage >= Stage::Ifile {
                self.fill_inodes()?;
            }
            if is_checkpoint && run.stage == Stage::Done {
                self.count_blocks();
                self.fill_checkpoint(cno, before + blocks, now, !run.has_delta)?;
                if self.moving.is_none() {
                    self.nongc_ctime = now;
                }
            }
            for d in &run.drafts {
                self.set_usage(d.segment, d.blocks + d.start - d.segment_start, now)?;
            }
            for (draft, files) in run.drafts.iter().zip(infos) {
                written.extend(draft.parts.iter().map(|part| part.ino));
                out.push(self.write(draft, files, cno, now)?);
            }
            if let Some(last) = run.drafts.last() {
                self.place = Place {
                    segment: last.segment,
                    offset: last.start - last.segment_start + last.blocks,
                    next_segment: last.next_segment,
                    seq: last.seq,
                };
            }
        }
        self.written(written);
        let is_open = kind == Kind::Files;
        self.open = Open {
            since: if is_open { self.open.since.or(Some(now)) } else { None },
            blocks: before + blocks,
            has_delta: run.has_delta && !is_checkpoint,
        };
        if !matches!(kind, Kind::DataSync { .. }) {
            self.blocks_to_write = 0;
        }
        if is_checkpoint {
            for number in std::mem::take(&mut self.dirty).into_values() {
                if let Some(file) = self.files.get_mut(&number) {
                    file.queued = None;
                }
            }
            self.dat.cno = self.dat.cno.wrapping_add(1);
        }
        Ok(out)
    }

    /// The inodes of all files with changes are written. `nilfs_segctor_collect_dirty_files`.
    fn touch_inodes(&mut self) -> FsResult<()> {
        for number in self.dirty.values().copied().collect::<Vec<u64>>() {
            let (block, _) = self.disk.g.ifile.place(number);
            let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
            self.ifile.touch(via, block)?;
        }
        Ok(())
    }

    /// A log behind the last one. `nilfs_segctor_begin_construction`.
    fn begin(&mut self) -> FsResult<Draft> {
        /// Blocks that a log has at least. `NILFS_PSEG_MIN_BLOCKS`.
        const LEAST: u64 = 2;
        let p = &mut self.place;
        let (start, end) = self.disk.g.segment(p.segment);
        if end.saturating_sub(start + p.offset) < LEAST {
            (p.segment, p.offset) = (p.next_segment, 0);
            p.seq = p.seq.wrapping_add(1);
        }
        let p = *p;
        self.use_segment(p.segment)?;
        let next = if p.next_segment == p.segment { self.take_segment()? } else { p.next_segment };
        Ok(Draft::new(&self.disk.g, p.segment, p.offset, p.seq, next))
    }

    /// Chooses blocks for the drafts, and takes more segments where all must be in one round: from
    /// the checkpoints on. `nilfs_segctor_collect`.
    fn collect(&mut self, run: &mut Run) -> FsResult<()> {
        let (stage, at_nodes) = (run.stage, run.at_nodes);
        let first_flags = run.drafts.first().map_or(0, |d| d.flags);
        let mut more = 1;
        while let Err(Full) = self.collect_blocks(run)? {
            if run.stage < Stage::Cpfile {
                break;
            }
            for draft in &mut run.drafts {
                draft.reset(&self.disk.g);
            }
            if let Some(first) = run.drafts.first_mut() {
                first.flags = first_flags;
            }
            self.keep_segments()?;
            for _ in 0..more {
                let Some(last) = run.drafts.last() else { break };
                let (segment, seq) = (last.next_segment, last.seq.wrapping_add(1));
                self.use_segment(segment)?;
                let next = self.take_segment()?;
                run.drafts.push(Draft::new(&self.disk.g, segment, 0, seq, next));
            }
            more = (more * 2).min(SEGMENTS_AT_ONCE);
            (run.stage, run.at_nodes) = (stage, at_nodes);
            run.current = 0;
        }
        for unused in run.drafts.split_off(run.current + 1) {
            self.free_segment(unused.next_segment)?;
        }
        run.current = 0;
        Ok(())
    }

    /// `nilfs_segctor_collect_blocks`.
    fn collect_blocks(&mut self, run: &mut Run) -> FsResult<Result<(), Full>> {
        loop {
            let number = match run.stage {
                Stage::Sync(number, from, to) => {
                    if self.scan_data(run, number, from..=to)?.is_err() {
                        return Ok(Err(Full));
                    }
                    if let Some(draft) = run.drafts.get_mut(run.current) {
                        draft.flags |= flag::END;
                    }
                    run.stage = Stage::Done;
                    return Ok(Ok(()));
                }
                Stage::Moved(n) => {
                    if self.scan_moved(run, n).is_err() {
                        return Ok(Err(Full));
                    }
                    run.at_nodes = false;
                    let is_more = self.moving.as_ref().is_some_and(|m| m.has(n + 1));
                    run.stage = if is_more { Stage::Moved(n + 1) } else { Stage::Files(0) };
                    continue;
                }
                Stage::Files(n) => match run.files.get(n) {
                    Some(number) => *number,
                    None if run.ends_after_files => {
                        run.stage = Stage::Done;
                        return Ok(Ok(()));
                    }
                    None => {
                        run.stage = Stage::Ifile;
                        continue;
                    }
                },
                Stage::Ifile => ino::IFILE,
                Stage::Cpfile => ino::CPFILE,
                Stage::Sufile => {
                    self.free_cleaned()?;
                    ino::SUFILE
                }
                Stage::Dat => ino::DAT,
                Stage::Root => {
                    let is_full = |d: &Draft| d.blocks >= d.room;
                    if run.drafts.get(run.current).is_some_and(is_full) && !feed(run) {
                        return Ok(Err(Full));
                    }
                    if let Some(draft) = run.drafts.get_mut(run.current) {
                        draft.blocks += 1;
                        draft.has_root = true;
                        draft.flags |= flag::SUPER_ROOT | flag::END;
                    }
                    run.stage = Stage::Done;
                    return Ok(Ok(()));
                }
                Stage::Done => return Ok(Ok(())),
            };
            if self.scan_file(run, number)?.is_err() {
                return Ok(Err(Full));
            }
            run.at_nodes = false;
            run.stage = match run.stage {
                Stage::Files(n) => Stage::Files(n + 1),
                Stage::Ifile => {
                    self.create_checkpoint(self.dat.cno)?;
                    Stage::Cpfile
                }
                Stage::Cpfile => Stage::Sufile,
                Stage::Sufile => Stage::Dat,
                Stage::Dat | Stage::Root | Stage::Done | Stage::Moved(_) | Stage::Sync(..) => {
                    Stage::Root
                }
            };
        }
    }

    /// Data of a file, then the nodes of its map. `nilfs_segctor_scan_file`.
    fn scan_file(&mut self, run: &mut Run, number: u64) -> FsResult<Result<(), Full>> {
        let mut is_begun = false;
        if !run.at_nodes {
            match self.scan_data(run, number, 0..=u64::MAX)? {
                Ok(begun) => is_begun = begun,
                Err(Full) => return Ok(Err(Full)),
            }
            run.at_nodes = true;
        }
        let (file, _) = self.file_mut(number)?;
        for (level, key) in file.wanted_nodes() {
            let (file, mut via) = self.file_mut(number)?;
            file.propagate(&mut via, level, key)?;
        }
        let (file, _) = self.file_mut(number)?;
        let mut nodes = file.wanted_nodes();
        nodes.sort_unstable();
        for (level, key) in nodes {
            if !self.add(run, (number, None), &mut is_begun, Chosen { level, key }) {
                return Ok(Err(Full));
            }
            run.has_delta |= !ino::is_root_metadata(number);
        }
        Ok(Ok(()))
    }

    /// Data of a file; whether there were any.
    fn scan_data(
        &mut self,
        run: &mut Run,
        number: u64,
        keys: RangeInclusive<u64>,
    ) -> FsResult<Result<bool, Full>> {
        let mut is_begun = false;
        for key in self.dirty_blocks(number, keys) {
            let (file, mut via) = self.file_mut(number)?;
            file.propagate(&mut via, 0, key)?;
            if !self.add(run, (number, None), &mut is_begun, Chosen { level: 0, key }) {
                return Ok(Err(Full));
            }
            run.has_delta |= !ino::is_root_metadata(number);
        }
        Ok(Ok(is_begun))
    }

    /// Adds a block to the current log or, if that is full, to the next.
    pub(super) fn add(
        &self,
        run: &mut Run,
        of: (u64, Option<usize>),
        is_begun: &mut bool,
        c: Chosen,
    ) -> bool {
        loop {
            let Some(draft) = run.drafts.get_mut(run.current) else { return false };
            if draft.add(&self.disk.g, of, *is_begun, c) {
                *is_begun = true;
                return true;
            }
            *is_begun = false;
            if !feed(run) {
                return false;
            }
        }
    }

    /// Every block gets its place. `nilfs_segctor_assign`.
    fn assign(&mut self, run: &Run) -> FsResult<Vec<Vec<FileInfo>>> {
        let cno = self.dat.cno;
        let mut all = Vec::new();
        for draft in &run.drafts {
            let mut block = draft.start + draft.summary_blocks;
            let mut files = Vec::new();
            for part in &draft.parts {
                if let Some(n) = part.moved {
                    files.push(self.relocate(part, n, &mut block)?);
                    continue;
                }
                let (file, mut via) = self.file_mut(part.ino)?;
                let mut place = |list: &[Chosen]| -> FsResult<Vec<_>> {
                    let infos = list.iter().map(|c| {
                        block += 1;
                        file.assign(&mut via, c.level, c.key, block - 1)
                    });
                    infos.collect()
                };
                let (data, nodes) = (place(&part.data)?, place(&part.nodes)?);
                let cno = if ino::is_root_metadata(part.ino) { 0 } else { cno };
                files.push(FileInfo { ino: part.ino, cno, data, nodes });
            }
            all.push(files);
        }
        Ok(all)
    }

    /// The inodes of all files with changes as they are now. `nilfs_segctor_fill_in_file_bmap`.
    fn fill_inodes(&mut self) -> FsResult<()> {
        for number in self.dirty.values().copied().collect::<Vec<u64>>() {
            let (block, at) = self.disk.g.ifile.place(number);
            let Some(file) = self.files.get_mut(&number) else { continue };
            let inode = file.sealed_inode();
            let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
            self.ifile.load_block(via, block)?;
            // It is in the log that is being made already.
            let range = at..at + size_of::<Inode>();
            let held = self.ifile.blocks.change_bytes(block, range).ok_or(FsError::Io)?;
            *view_mut::<Inode>(held, 0).ok_or(FsError::Io)? = inode;
        }
        Ok(())
    }

    /// Blocks that files have more than before.
    fn count_blocks(&mut self) {
        let mut add = |file: &mut File| {
            let added = std::mem::take(&mut file.added);
            self.blocks_count = self.blocks_count.saturating_add_signed(added);
        };
        // No other file has got or lost a block.
        for number in self.dirty.values() {
            self.files.get_mut(number).map(&mut add);
        }
        add(&mut self.ifile.file);
    }

    /// A log as bytes.
    fn write(&mut self, draft: &Draft, files: Vec<FileInfo>, cno: u64, now: u64) -> FsResult<Log> {
        let g = self.disk.g.clone();
        let head = SummaryHead {
            flags: draft.flags.into(),
            seq: draft.seq.into(),
            create: now.into(),
            next: g.segment(draft.next_segment).0.into(),
            nblocks: lo32(draft.blocks).into(),
            cno: cno.into(),
            ..SummaryHead::zeroed()
        };
        let summary = Summary { head, files };
        let mut bytes = summary.store(&g);
        let mut payload =
            Payload { blocks: Vec::new(), sum: data_sum(g.crc_seed, [bytes.as_slice()]) };
        for (part, info) in draft.parts.iter().zip(&summary.files) {
            if let Some(n) = part.moved {
                let moving = self.moving.as_mut().ok_or(FsError::Io)?;
                moving.pass(n, part, &mut payload)?;
                continue;
            }
            for c in &part.data {
                self.close_block(part.ino, c.key, &mut payload)?;
            }
            let (file, _) = self.file_mut(part.ino)?;
            for node in &info.nodes {
                let place = draft.start + draft.summary_blocks + wide(payload.blocks.len());
                let pointer = if part.ino == ino::DAT { place } else { node.virtual_block };
                let (node, sent, touched) = file.nodes.close(pointer).ok_or(FsError::Io)?;
                payload.push_node(node, g.block_bytes(), touched, sent);
            }
        }
        if draft.has_root {
            let root = SuperRoot {
                nongc_ctime: self.nongc_ctime,
                dat: self.dat.table.file.sealed_inode(),
                cpfile: self.cpfile.file.sealed_inode(),
                sufile: self.sufile.file.sealed_inode(),
            };
            let bytes = root.store(&g);
            payload.sum = crc32_le(payload.sum, &bytes);
            payload.blocks.push(Block::sparse(&bytes));
        }
        set_data_sum(&mut bytes, payload.sum);
        let mut blocks: Vec<Block> = bytes.chunks(g.block_bytes()).map(Block::sparse).collect();
        assert_eq!(wide(blocks.len()), draft.summary_blocks, "a summary as long as it was planned");
        blocks.append(&mut payload.blocks);
        assert_eq!(blocks.len(), index(draft.blocks), "a log as long as it was planned");
        Ok(Log { start: draft.start, seq: draft.seq, blocks, has_root: draft.has_root })
    }

    /// All that was in logs, which had parts of these files, is on the medium.
    fn written(&mut self, files: BTreeSet<u64>) {
        self.tables().into_iter().for_each(MetaFile::written);
        for number in files {
            // What a cleaning moved may be of a file that is not in memory.
            if let Some(file) = self.files.get_mut(&number) {
                file.nodes.written();
            }
        }
    }
}

/// Goes on with the next log, if there is one. `nilfs_segctor_feed_segment`.
fn feed(run: &mut Run) -> bool {
    let has_next = run.current + 1 < run.drafts.len();
    run.current += usize::from(has_next);
    has_next
}
