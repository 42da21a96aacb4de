//! The DAT while a log is made: numbers are given out, get a block, and end.

use std::collections::BTreeMap;
use std::fmt;

use wp_base::{FsError, FsResult};

use crate::disk::{DatEntry, Geometry, view_mut};

use super::block::Block;
use super::meta_file::MetaFile;
use super::palloc;
use crate::site;

/// Where blocks are read from.
pub struct Disk<'a> {
    /// The layout.
    pub g: Geometry,
    read: Box<dyn Fn(u64) -> FsResult<Vec<u8>> + 'a>,
    dirtied: Box<dyn Fn(u64) + 'a>,
}

impl fmt::Debug for Disk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("g", &self.g).finish_non_exhaustive()
    }
}

impl<'a> Disk<'a> {
    /// A device with this layout, whose blocks `read` reads.
    pub fn new(g: Geometry, read: impl Fn(u64) -> FsResult<Vec<u8>> + 'a) -> Disk<'a> {
        Disk { g, read: Box::new(read), dirtied: Box::new(|_| {}) }
    }

    /// With `dirtied` to be called with the number of a metadata file, of which a block is about
    /// to be changed.
    #[must_use]
    pub fn on_dirty(self, dirtied: impl Fn(u64) + 'a) -> Disk<'a> {
        Disk { dirtied: Box::new(dirtied), ..self }
    }

    /// Reads a block.
    pub fn read(&self, block: u64) -> FsResult<Vec<u8>> {
        (self.read)(block)
    }

    /// A block of this metadata file is about to be changed.
    pub(super) fn dirtied(&self, ino: u64) {
        (self.dirtied)(ino);
    }
}

/// What a file needs to reach its blocks: the device, and the DAT unless it is the DAT itself.
pub(super) struct Via<'v> {
    /// The device.
    pub disk: &'v Disk<'v>,
    /// The DAT.
    pub dat: Option<&'v mut Dat>,
}

/// The DAT.
#[derive(Clone, Debug)]
pub(super) struct Dat {
    /// As a file.
    pub table: MetaFile,
    /// The checkpoint that is being made.
    pub cno: u64,
    /// Where blocks lay that are on their way to another place, by number.
    pub moved: BTreeMap<u64, u64>,
}

impl Dat {
    /// Gives out a number, from `goal` on. `nilfs_dat_prepare_alloc`, `nilfs_dat_commit_alloc`.
    pub fn take(&mut self, disk: &Disk<'_>, goal: u64) -> FsResult<u64> {
        let via = &mut Via { disk, dat: None };
        let number = palloc::take(&mut self.table, via, &disk.g.dat, goal)?;
        let entry = self.entry_mut(disk, number, true)?;
        entry.start = DatEntry::FIRST.into();
        entry.end = DatEntry::LIVE.into();
        entry.blocknr = 0.into();
        Ok(number)
    }

    /// A number's block is older than the checkpoint that is being made: it ends there. What was
    /// given out and never written is free again.
    ///
    /// `is_passing`: no checkpoint keeps it. `nilfs_dat_commit_end`.
    pub fn end(&mut self, disk: &Disk<'_>, number: u64, is_passing: bool) -> FsResult<()> {
        let cno = self.cno;
        let entry = self.entry_mut(disk, number, false)?;
        let start = entry.start.get();
        if start > cno {
            let expected = format!("{cno} or less (number {number})");
            return Err(FsError::corrupt("nilfs2 DAT", "de_start", 0, start, expected));
        }
        if site::DAT_END.on() {
            entry.end = if is_passing { start } else { cno }.into();
        }
        if entry.blocknr.get() != 0 {
            return Ok(());
        }
        (entry.start, entry.end) = (DatEntry::FIRST.into(), DatEntry::FIRST.into());
        let via = &mut Via { disk, dat: None };
        palloc::give(&mut self.table, via, &disk.g.dat, number)
    }

    /// Ends a number and gives out another for the same block. `nilfs_dat_prepare_update`.
    pub fn replace(
        &mut self,
        disk: &Disk<'_>,
        old: u64,
        goal: u64,
        is_passing: bool,
    ) -> FsResult<u64> {
        self.end(disk, old, is_passing)?;
        self.take(disk, goal)
    }

    /// A number gets its block. `nilfs_dat_commit_start`.
    pub fn start(&mut self, disk: &Disk<'_>, number: u64, block: u64) -> FsResult<()> {
        let cno = self.cno;
        let entry = self.entry_mut(disk, number, false)?;
        (entry.start, entry.blocknr) = (cno.into(), block.into());
        Ok(())
    }

    /// The block with a number's entry is to be written. `nilfs_dat_mark_dirty`.
    pub fn touch(&mut self, disk: &Disk<'_>, number: u64) -> FsResult<()> {
        self.entry_mut(disk, number, false).map(|_| ())
    }

    /// The block of a number. `nilfs_dat_translate`.
    pub fn locate(&mut self, disk: &Disk<'_>, number: u64) -> FsResult<u64> {
        if let Some(old) = self.moved.get(&number) {
            return Ok(*old);
        }
        self.entry(disk, number).map(|e| e.blocknr.get())
    }

    /// The entry of a number.
    pub fn entry(&mut self, disk: &Disk<'_>, number: u64) -> FsResult<DatEntry> {
        let (block, at) = disk.g.dat.place(number);
        let via = &mut Via { disk, dat: None };
        let held = self.table.bytes(via, block)?;
        let entry = held.and_then(|bytes| crate::disk::view::<DatEntry>(bytes, at));
        entry.copied().ok_or_else(|| Self::missing(number))
    }

    fn missing(number: u64) -> FsError {
        FsError::corrupt("nilfs2 DAT", "block map", 0, number, "a block with this number's entry")
    }

    fn entry_mut(
        &mut self,
        disk: &Disk<'_>,
        number: u64,
        may_make: bool,
    ) -> FsResult<&mut DatEntry> {
        let (block, at) = disk.g.dat.place(number);
        let via = &mut Via { disk, dat: None };
        let range = at..at + size_of::<DatEntry>();
        let bytes = if may_make {
            self.table.block_mut(via, block, range, || Block::zero(disk.g.block_bytes()))?
        } else {
            self.table.existing_mut(via, block, range)?
        };
        view_mut::<DatEntry>(bytes, 0).ok_or_else(|| Self::missing(number))
    }
}
