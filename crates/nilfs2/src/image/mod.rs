//! Reading a file system: purely, synchronously, from any [`View`], and never trusting it.
//!
//! Picture:    [`search`] finds the newest super root -> [`Image`] = its three inodes and a
//!             checkpoint's inode file -> inode -> block map -> DAT -> bytes, names; [`recover()`]
//!             does what a mount does after a crash, into an overlay; [`inspect`] lists the result.
//! Invariants: 1. no bytes make it panic, and no walk is longer than the image is large: keys of a
//!                block map ascend, over all of its nodes.
//!             2. nothing here writes, but [`recover()`] into the overlay that it is given.
//!             3. an error says where in the image it lies.
//! Left out:   what the cleaner's own system calls would show.

#![deny(clippy::indexing_slicing)]

mod files;
mod list;
mod map;
mod recovery;
mod search;
mod survey;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::View;

use crate::disk::{
    Checkpoint, CheckpointHeader, DatEntry, Geometry, Inode, SegmentUsage, SuperBlock, SuperRoot,
    UsageHeader, ino, view as field,
};

pub use files::DirName;
pub use list::{InspectOptions, Inspection, inspect, list};
pub use map::Run;
pub use recovery::{RecoverOptions, Recovery, recover};
pub use search::{LogAt, Orphans, Tip, search};
pub use survey::survey;

/// Blocks of metadata that are kept in memory, at most.
const HELD: usize = 4096;

/// A file of the image: its inode, and where that stands.
#[derive(Clone, Debug)]
pub struct Record {
    /// Inode number.
    pub ino: u64,
    /// Byte address of the inode.
    pub at: u64,
    /// The inode.
    pub inode: Inode,
}

/// An opened file system, as one of its checkpoints has it.
pub struct Image<'a> {
    view: &'a dyn View,
    tip: Tip,
    super_root: SuperRoot,
    dat: Record,
    cpfile: Record,
    sufile: Record,
    ifile: Record,
    checkpoint: Checkpoint,
    held: RefCell<BTreeMap<u64, Rc<[u8]>>>,
}

impl<'a> Image<'a> {
    /// Opens the file system in `view`, at its newest checkpoint.
    ///
    /// Errors: `Corrupt` where no good super root is found, or it leads to none of its checkpoint.
    pub fn open(view: &'a dyn View) -> FsResult<Image<'a>> {
        Self::at(view, search(view)?, None)
    }

    /// Opens it at checkpoint `cno`. Errors: as [`Self::open`]; `NotFound` without such a
    /// checkpoint.
    pub fn open_checkpoint(view: &'a dyn View, cno: u64) -> FsResult<Image<'a>> {
        Self::at(view, search(view)?, Some(cno))
    }

    /// Opens what [`search`] has found.
    pub fn at(view: &'a dyn View, tip: Tip, cno: Option<u64>) -> FsResult<Image<'a>> {
        let g = &tip.g;
        let block = tip.root.start + tip.root.blocks - 1;
        let at = g.byte_of(block);
        let bytes = search::read_block(view, g, block, "nilfs2 super root")?;
        let root = SuperRoot::load(&bytes, g, at)?;
        let record = |ino, inode| Record { ino, at, inode };
        let checkpoint = Checkpoint {
            flags: 0.into(),
            checkpoints_count: 0.into(),
            snapshot_list: crate::disk::checkpoint::SnapshotList { next: 0.into(), prev: 0.into() },
            cno: 0.into(),
            create: 0.into(),
            nblk_inc: 0.into(),
            inodes_count: 0.into(),
            blocks_count: 0.into(),
            ifile_inode: Inode::zeroed(),
        };
        let mut image = Image {
            view,
            dat: record(ino::DAT, root.dat),
            cpfile: record(ino::CPFILE, root.cpfile),
            sufile: record(ino::SUFILE, root.sufile),
            ifile: record(ino::IFILE, checkpoint.ifile_inode),
            super_root: root,
            checkpoint,
            held: RefCell::default(),
            tip,
        };
        let newest = image.tip.cno;
        let wanted = cno.unwrap_or(newest);
        let found = if wanted > newest { None } else { image.checkpoint_of(wanted)? };
        let Some((at, checkpoint)) = found else {
            if cno.is_some() {
                return Err(FsError::NotFound);
            }
            let expected = "the checkpoint that the super root ends";
            return Err(FsError::corrupt("nilfs2 checkpoint", "cp_cno", at, wanted, expected));
        };
        let inode = checkpoint.ifile_inode;
        image.checkpoint = checkpoint;
        image.ifile = Record { ino: ino::IFILE, at, inode };
        Ok(image)
    }

    /// The layout.
    pub fn geometry(&self) -> &Geometry {
        &self.tip.g
    }
    /// Where the super root was found.
    pub fn tip(&self) -> &Tip {
        &self.tip
    }
    /// The super block that led to it.
    pub fn super_block(&self) -> &SuperBlock {
        &self.tip.sb
    }
    /// The super root.
    pub fn super_root(&self) -> &SuperRoot {
        &self.super_root
    }
    /// The checkpoint that it was opened at.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }
    /// What it is read from.
    pub fn view(&self) -> &'a dyn View {
        self.view
    }
    /// The DAT.
    pub fn dat(&self) -> &Record {
        &self.dat
    }
    /// The file of checkpoints.
    pub fn cpfile(&self) -> &Record {
        &self.cpfile
    }
    /// The file of segments' usage.
    pub fn sufile(&self) -> &Record {
        &self.sufile
    }
    /// The inode file of its checkpoint.
    pub fn ifile(&self) -> &Record {
        &self.ifile
    }

    /// A block's bytes. Errors: `Corrupt`, naming `structure`, for one beyond the image.
    pub fn read_block(&self, n: u64, structure: &'static str) -> FsResult<Vec<u8>> {
        search::read_block(self.view, &self.tip.g, n, structure)
    }

    /// The same for metadata, which is asked for again.
    fn block(&self, n: u64, structure: &'static str) -> FsResult<Rc<[u8]>> {
        if let Some(block) = self.held.borrow().get(&n) {
            return Ok(block.clone());
        }
        let block: Rc<[u8]> = self.read_block(n, structure)?.into();
        let mut held = self.held.borrow_mut();
        if held.len() >= HELD {
            held.clear();
        }
        held.insert(n, block.clone());
        Ok(block)
    }

    /// An entry of a file at byte `at` of its block `block`, with its byte address. `None`: a hole.
    fn entry<T>(
        &self,
        file: &Record,
        (block, at): (u64, usize),
        structure: &'static str,
    ) -> FsResult<Option<(u64, T)>>
    where
        T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + Copy,
    {
        let Some(place) = self.block_of(file, block)? else { return Ok(None) };
        let bytes = self.block(place, structure)?;
        let found = field::<T>(&bytes, at).copied();
        Ok(found.map(|t| (self.tip.g.byte_of(place) + at as u64, t)))
    }

    /// What the DAT says of a virtual block number. `None`: it has no place for it.
    pub fn dat_entry(&self, number: u64) -> FsResult<Option<DatEntry>> {
        let place = self.tip.g.dat.place(number);
        let found = self.entry::<DatEntry>(&self.dat, place, "nilfs2 DAT")?;
        Ok(found.map(|(_, e)| e))
    }

    /// Checkpoint `cno` with its byte address. `None`: there is none.
    pub fn checkpoint_of(&self, cno: u64) -> FsResult<Option<(u64, Checkpoint)>> {
        if cno == 0 {
            return Ok(None);
        }
        let place = self.tip.g.cpfile.place(cno);
        let found = self.entry::<Checkpoint>(&self.cpfile, place, "nilfs2 checkpoints")?;
        Ok(found.filter(|(_, c)| c.is_valid()))
    }

    /// All checkpoints, in order.
    pub fn checkpoints(&self) -> FsResult<Vec<Checkpoint>> {
        let table = self.tip.g.cpfile;
        let mut out = Vec::new();
        for block in self
            .map(&self.cpfile)?
            .iter()
            .flat_map(|r| (r.logical..=u64::MAX).take(r.blocks as usize))
        {
            for (cno, at) in table.in_block(block).filter(|(cno, _)| *cno <= self.tip.cno) {
                let found =
                    self.entry::<Checkpoint>(&self.cpfile, (block, at), "nilfs2 checkpoints")?;
                out.extend(found.map(|(_, c)| c).filter(|c| c.is_valid() && c.cno.get() == cno));
            }
        }
        Ok(out)
    }

    /// Head of the file of checkpoints.
    pub fn checkpoint_header(&self) -> FsResult<CheckpointHeader> {
        let found = self.entry(&self.cpfile, (0, 0), "nilfs2 checkpoints")?;
        found.map(|(_, h)| h).ok_or_else(|| self.hole(&self.cpfile, "head"))
    }

    /// The checkpoints that are snapshots, in order. Errors: `Corrupt` for a list that leads to
    /// what is none, or does not ascend.
    pub fn snapshots(&self) -> FsResult<Vec<u64>> {
        let mut out: Vec<u64> = Vec::new();
        let mut next = self.checkpoint_header()?.snapshot_list.next.get();
        while next != 0 {
            let found = self.checkpoint_of(next)?.map(|(_, cp)| cp).filter(|cp| cp.is_snapshot());
            let (Some(cp), true) = (found, out.last().is_none_or(|last| *last < next)) else {
                let expected = format!("a snapshot behind {}", out.last().unwrap_or(&0));
                let field = "ssl_next";
                return Err(FsError::corrupt("nilfs2 snapshots", field, 0, next, expected));
            };
            out.push(next);
            next = cp.snapshot_list.next.get();
        }
        Ok(out)
    }

    /// How a segment is used. A part of the file that was never written says that all are free.
    pub fn usage(&self, segment: u64) -> FsResult<SegmentUsage> {
        let place = self.tip.g.sufile.place(segment);
        let found = self.entry(&self.sufile, place, "nilfs2 segment usage")?;
        let free = SegmentUsage { lastmod: 0.into(), nblocks: 0.into(), flags: 0.into() };
        Ok(found.map_or(free, |(_, u)| u))
    }

    /// Head of the file of segments' usage.
    pub fn usage_header(&self) -> FsResult<UsageHeader> {
        let found = self.entry(&self.sufile, (0, 0), "nilfs2 segment usage")?;
        found.map(|(_, h)| h).ok_or_else(|| self.hole(&self.sufile, "head"))
    }

    /// An inode of the checkpoint. Errors: `NotFound` where there is none; `Corrupt`.
    ///
    /// Source: `__nilfs_read_inode`.
    pub fn inode(&self, number: u64) -> FsResult<Record> {
        // Of the reserved numbers only the root is a file that has a name.
        if number != ino::ROOT && number < self.tip.g.first_ino {
            let expected = format!("{} or {} and more", ino::ROOT, self.tip.g.first_ino);
            return Err(FsError::corrupt("nilfs2 inode", "number", 0, number, expected));
        }
        let place = self.tip.g.ifile.place(number);
        let found = self.entry::<Inode>(&self.ifile, place, "nilfs2 inode file")?;
        let (at, inode) = found.ok_or(FsError::NotFound)?;
        if inode.links_count.get() == 0 {
            return Err(FsError::NotFound);
        }
        Ok(Record { ino: number, at, inode })
    }

    /// An error: block 0 of a file that must have one is missing.
    fn hole(&self, file: &Record, what: &'static str) -> FsError {
        FsError::corrupt("nilfs2 metadata file", what, file.at, 0, format!("of file {}", file.ino))
    }
}
