//! Making logs: what was changed in memory gets places, and comes out as blocks to be written.
//!
//! Picture:    [`Store`] = the metadata files and the files with changes, as far as they are in
//!             memory -> [`Store::construct`]: files (data, then nodes of their maps), inode file,
//!             checkpoints, usage of segments, DAT, super root, each block with a new pointer ->
//!             [`Log`]s. Or, for an fdatasync, the data of one file and no more.
//! Invariants: 1. a block's contents are taken when all of its log have their places: what the
//!                giving of places changes is in it.
//!             2. pure and synchronous; what is not in memory is read through [`Disk`]. The data of
//!                files are elsewhere, and asked for ([`FileData`]): a mount has them in its page
//!                cache, a recovery in [`DirtyBlocks`].
//!             3. nothing that a checkpoint on the medium needs is written over: logs go to free
//!                places only.
//! Source:     `nilfs_segctor_do_construct` and what it calls, for the order of blocks and of
//!             pointers, so that logs come out as the kernel's.

#![deny(clippy::indexing_slicing)]

mod block;
mod construct;
mod dat;
mod data;
mod draft;
mod file;
mod inodes;
mod memory;
mod meta_file;
mod moving;
mod palloc;
mod parts;
mod saved;
mod sent;
mod shrink;
mod snapshots;
mod tables;
mod tree;

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::FsResult;

use crate::disk::{Checkpoint, SuperRoot, ino};

use construct::Open;
use dat::Dat;
use file::File;
use meta_file::MetaFile;
use moving::Moving;

pub use block::Block;
pub use construct::{Kind, Log};
pub use dat::Disk;
pub use data::{DirtyBlocks, FileData};
pub use moving::{Cleaning, DatBlock, Moved};

/// Where the next log goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The segment.
    pub segment: u64,
    /// Blocks of it that logs have.
    pub offset: u64,
    /// The segment that comes next; the same: none was taken yet.
    pub next_segment: u64,
    /// Sequence number of the segment.
    pub seq: u64,
}

/// What a file system begins with.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The super root, at byte `at`.
    pub root: SuperRoot,
    /// Byte address of the super root, for errors.
    pub at: u64,
    /// The checkpoint of the super root.
    pub checkpoint: Checkpoint,
    /// Number of the next checkpoint.
    pub cno: u64,
    /// Where the next log goes.
    pub place: Place,
}

/// A file system in memory, as far as it was read or changed, without the data of files.
#[derive(Debug)]
pub struct Store<'a> {
    disk: Disk<'a>,
    dat: Dat,
    cpfile: MetaFile,
    sufile: MetaFile,
    ifile: MetaFile,
    files: BTreeMap<u64, File>,
    data: Rc<dyn FileData>,
    /// Files with changes, by the order of their first one ([`File::queued`]).
    dirty: BTreeMap<u64, u64>,
    /// The order of the next that has one.
    next_dirty: u64,
    blocks_to_write: u64,
    inodes_count: u64,
    blocks_count: u64,
    place: Place,
    /// When the last log was written that was not the cleaner's.
    nongc_ctime: u64,
    /// What a cleaning moves that is being written.
    moving: Option<Moving>,
    open: Open,
}

impl<'a> Store<'a> {
    /// The file system on `disk`, whose files have their data in `data`. Errors: `Corrupt` for
    /// block maps of its metadata files.
    pub fn open(disk: Disk<'a>, origin: &Origin, data: Rc<dyn FileData>) -> FsResult<Store<'a>> {
        let load = |number, inode| MetaFile::load(number, inode, origin.at);
        Ok(Store {
            dat: Dat {
                table: load(ino::DAT, origin.root.dat)?,
                cno: origin.cno,
                moved: BTreeMap::new(),
            },
            cpfile: load(ino::CPFILE, origin.root.cpfile)?,
            sufile: load(ino::SUFILE, origin.root.sufile)?,
            ifile: load(ino::IFILE, origin.checkpoint.ifile_inode)?,
            files: BTreeMap::new(),
            data,
            dirty: BTreeMap::new(),
            next_dirty: 0,
            blocks_to_write: 0,
            inodes_count: origin.checkpoint.inodes_count.get(),
            blocks_count: origin.checkpoint.blocks_count.get(),
            place: origin.place,
            nongc_ctime: origin.root.nongc_ctime,
            moving: None,
            open: Open::default(),
            disk,
        })
    }

    /// The layout.
    pub fn geometry(&self) -> &crate::disk::Geometry {
        &self.disk.g
    }

    /// Where the next log goes.
    pub fn place(&self) -> Place {
        self.place
    }

    /// When the last log was written that was not the cleaner's, in seconds since 1970.
    pub fn nongc_ctime(&self) -> u64 {
        self.nongc_ctime
    }

    /// When the logs began that only the next checkpoint ends, in seconds since 1970.
    pub fn open_since(&self) -> Option<u64> {
        self.open.since
    }

    /// The number of the next checkpoint.
    pub fn cno(&self) -> u64 {
        self.dat.cno
    }

    /// Logs were written behind the last checkpoint that do not count any more: the segments that
    /// they are in stay in use until the cleaner comes, and logs go on in a fresh one.
    ///
    /// `used`: the segment of the last of these logs, and the one named as next there; `seq`: its
    /// sequence number. Source: `nilfs_prepare_segment_for_recovery`.
    pub fn leave_segments(&mut self, used: [u64; 2], seq: u64) -> FsResult<()> {
        let (current, next) = (self.place.segment, self.place.next_segment);
        self.free_segment(next)?;
        for segment in [next, used[0], used[1]] {
            if segment != current {
                self.scrap_segment(segment)?;
            }
        }
        let segment = self.take_segment()?;
        let seq = seq.wrapping_add(2);
        self.place = Place { segment, offset: 0, next_segment: segment, seq };
        Ok(())
    }
}
