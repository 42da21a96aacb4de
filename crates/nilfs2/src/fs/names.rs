//! Names in the blocks of a directory.
//!
//! Invariants: 1. entries fill each block; a name that goes leaves its room to the entry before it.
//!             2. no entry moves: [`Names`] says where each stands as long as its name is there.
//! Source:     fs/nilfs2/dir.c.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_cache::BufFlag;
use wp_vfs::FileType;

use super::Nilfs;
use crate::disk::dir::{self, NAME_MAX, Slot};
use crate::disk::{DirEntry, view};

/// A name that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The inode.
    pub ino: u64,
    block: u64,
    at: usize,
    /// The name, and its type.
    pub name: Vec<u8>,
    pub kind: Option<FileType>,
}

/// Where the names of a directory stand that is in memory, so that nobody looks at all of them for
/// one. What it says follows from the blocks alone.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Block and byte of each name's entry.
    places: BTreeMap<Vec<u8>, (u64, usize)>,
    /// Bytes of the largest room that each block has for another entry.
    rooms: Vec<usize>,
    /// Is a name there twice, in damage? Only the first has a place here.
    has_twins: bool,
}

/// Bytes behind a slot's own entry.
fn room(slot: &Slot<'_>) -> (usize, usize) {
    let used = match slot.entry.inode.get() {
        0 => 0,
        _ => DirEntry::bytes_for(slot.name.len()),
    };
    (used, slot.entry.reach() - used)
}

/// The largest room in a block.
fn largest(bytes: &[u8]) -> FsResult<usize> {
    dir::each(bytes, 0).try_fold(0, |most, slot| Ok(most.max(room(&slot?).1)))
}

fn hole(block: u64) -> FsError {
    FsError::corrupt("nilfs2 directory", "block", 0, block, "no hole")
}

impl Nilfs {
    fn dir_blocks(&self, dir: u64) -> FsResult<u64> {
        let inode = self.inode(dir)?;
        if !inode.is_dir() {
            return Err(FsError::NotDir);
        }
        Ok(inode.size.get() >> self.g.block_bits)
    }

    /// Reads what of a directory is not in memory. Errors: `Corrupt` for a hole, so that a length
    /// beyond all blocks takes no time.
    pub(super) async fn load_dir(&self, dir: u64) -> FsResult<()> {
        let blocks = self.dir_blocks(dir)?;
        if self.names.borrow().get(&dir).is_some_and(|names| names.rooms.len() as u64 == blocks) {
            return Ok(());
        }
        let file = self.pages.inode(dir);
        for block in 0..blocks {
            if self.is_hole(&file, block)? {
                return Err(hole(block));
            }
        }
        self.start_reads(&file, (0, blocks), Flags::NONE)?;
        for block in 0..blocks {
            self.block(&file, block).await?;
        }
        Ok(())
    }

    /// Shows a block of a directory that is in memory.
    fn with_block<R>(
        &self,
        dir: u64,
        block: u64,
        f: impl FnOnce(&[u8]) -> FsResult<R>,
    ) -> FsResult<R> {
        let held = self.pages.inode(dir).map.peek(block).filter(|b| b.flag(BufFlag::Uptodate));
        held.ok_or_else(|| hole(block))?.with(f)
    }

    /// All names, `.` and `..` too; the directory is in memory.
    pub(super) fn all_names(&self, dir: u64) -> FsResult<Vec<Found>> {
        let mut out = Vec::new();
        for block in 0..self.dir_blocks(dir)? {
            self.with_block(dir, block, |bytes| {
                let slots = dir::slots(bytes, 0)?;
                out.extend(slots.iter().filter(|s| s.entry.inode.get() != 0).map(|slot| Found {
                    ino: slot.entry.inode.get(),
                    block,
                    at: slot.at,
                    name: slot.name.to_vec(),
                    kind: FileType::from_entry(slot.entry.file_type),
                }));
                Ok(())
            })?;
        }
        Ok(out)
    }

    /// A name of a directory that is in memory. Errors: `NotFound`, `NameTooLong`.
    pub(super) fn find_name(&self, dir: u64, name: &[u8]) -> FsResult<Found> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        self.know_names(dir)?;
        let place = self.names.borrow().get(&dir).and_then(|n| n.places.get(name).copied());
        let (block, at) = place.ok_or(FsError::NotFound)?;
        self.with_block(dir, block, |bytes| {
            let entry = view::<DirEntry>(bytes, at).ok_or(FsError::Io)?;
            let (ino, kind) = (entry.inode.get(), FileType::from_entry(entry.file_type));
            Ok(Found { ino, block, at, name: name.to_vec(), kind })
        })
    }

    /// Has [`Names`] of a directory from here on, which is in memory.
    fn know_names(&self, dir: u64) -> FsResult<()> {
        let blocks = self.dir_blocks(dir)?;
        if self.names.borrow().get(&dir).is_some_and(|names| names.rooms.len() as u64 == blocks) {
            return Ok(());
        }
        let mut names = Names::default();
        for found in self.all_names(dir)? {
            match names.places.entry(found.name) {
                Entry::Vacant(place) => drop(place.insert((found.block, found.at))),
                Entry::Occupied(_) => names.has_twins = true,
            }
        }
        for block in 0..blocks {
            names.rooms.push(self.with_block(dir, block, largest)?);
        }
        self.names.borrow_mut().insert(dir, names);
        Ok(())
    }

    /// Changes a block of a directory, and what is known of its room.
    fn change_names(
        &self,
        dir: u64,
        block: u64,
        change: impl FnOnce(&mut [u8]) -> FsResult<()>,
    ) -> FsResult<()> {
        self.know_names(dir)?;
        let file = self.pages.inode(dir);
        file.keep_versions();
        let b = file.map.get(block);
        self.dirty_block(&file, &b)?;
        let room = b.with_mut(|bytes| {
            change(bytes)?;
            largest(bytes)
        })?;
        let mut names = self.names.borrow_mut();
        let rooms = &mut names.entry(dir).or_default().rooms;
        let at = usize::try_from(block).unwrap_or(usize::MAX);
        match rooms.get_mut(at) {
            Some(known) => *known = room,
            None => rooms.push(room),
        }
        Ok(())
    }

    /// A directory is none any more: nothing is known of its names.
    pub(super) fn forget_names(&self, dir: u64) {
        self.names.borrow_mut().remove(&dir);
    }

    /// Is nothing in it but `.` and `..`?
    pub(super) fn is_empty(&self, dir: u64) -> FsResult<bool> {
        Ok(self.all_names(dir)?.iter().all(|n| n.name == b"." || n.name == b".."))
    }

    /// Adds a name where there is room, behind the last block if there is none.
    /// `nilfs_add_link`.
    pub(super) fn add_name(&self, dir: u64, name: &[u8], ino: u64, kind: u8) -> FsResult<()> {
        self.know_names(dir)?;
        let needed = DirEntry::bytes_for(name.len());
        let blocks = self.dir_blocks(dir)?;
        let first = {
            let names = self.names.borrow();
            let rooms = names.get(&dir).map_or(&[][..], |n| &n.rooms);
            (0u64..).zip(rooms).find(|(_, room)| **room >= needed).map(|(block, _)| block)
        };
        let (block, mut place) = (first.unwrap_or(blocks), 0);
        self.change_names(dir, block, |bytes| {
            if first.is_none() {
                let reach = bytes.len();
                dir::put(bytes, 0, reach, ino, kind, name);
                return Ok(());
            }
            let slots = dir::slots(bytes, 0)?;
            let slot = slots.iter().find(|s| room(s).1 >= needed).ok_or(FsError::Io)?;
            let ((used, _), reach, at) = (room(slot), slot.entry.reach(), slot.at);
            place = at + used;
            if used > 0 {
                dir::set_reach(bytes, at, used);
            }
            dir::put(bytes, place, reach - used, ino, kind, name);
            Ok(())
        })?;
        if let Some(names) = self.names.borrow_mut().get_mut(&dir) {
            names.places.insert(name.to_vec(), (block, place));
        }
        let size = (blocks + 1) << self.g.block_bits;
        self.touched(dir, first.is_none().then_some(size))
    }

    /// Takes out a name. `nilfs_delete_entry`.
    pub(super) fn remove_name(&self, dir: u64, found: &Found) -> FsResult<()> {
        self.change_names(dir, found.block, |bytes| {
            let slots = dir::slots(bytes, 0)?;
            let this = slots.iter().position(|s| s.at == found.at).ok_or(FsError::Io)?;
            let (at, reach) =
                slots.get(this).map(|s| (s.at, s.entry.reach())).ok_or(FsError::Io)?;
            let before = this.checked_sub(1).and_then(|n| slots.get(n)).map(|s| s.at);
            match before {
                Some(start) => {
                    dir::set_reach(bytes, start, at + reach - start);
                    bytes.get_mut(at..at + 8).ok_or(FsError::Io)?.fill(0);
                }
                None => dir::put(bytes, at, reach, 0, 0, b""),
            }
            Ok(())
        })?;
        let mut all = self.names.borrow_mut();
        if all.get(&dir).is_some_and(|names| names.has_twins) {
            all.remove(&dir);
        } else if let Some(names) = all.get_mut(&dir) {
            names.places.remove(&found.name);
        }
        drop(all);
        self.touched(dir, None)
    }

    /// A name leads to another inode. `nilfs_set_link`.
    pub(super) fn set_name(&self, dir: u64, found: &Found, ino: u64, kind: u8) -> FsResult<()> {
        self.change_names(dir, found.block, |bytes| {
            let reach = view::<DirEntry>(bytes, found.at).ok_or(FsError::Io)?.reach();
            dir::put(bytes, found.at, reach, ino, kind, &found.name);
            Ok(())
        })?;
        self.touched(dir, None)
    }

    /// The first block of a new directory. `nilfs_make_empty`.
    pub(super) fn make_empty(&self, dir: u64, parent: u64) -> FsResult<()> {
        let size = self.g.block_bytes();
        let mut bytes = vec![0; size];
        dir::put(&mut bytes, 0, 16, dir, FileType::Dir.entry(), b".");
        dir::put(&mut bytes, 16, size - 16, parent, FileType::Dir.entry(), b"..");
        self.put_block(dir, 0, &bytes)?;
        self.touched(dir, Some(size as u64))
    }

    /// Times of a directory whose names changed, and its length.
    fn touched(&self, dir: u64, size: Option<u64>) -> FsResult<()> {
        self.change(dir, true, |i| {
            self.stamp(i, true);
            if let Some(size) = size {
                i.size = size.into();
            }
        })
    }
}
