//! Names in the blocks of a directory.
//!
//! Invariants: entries fill each block; a name that goes leaves its room to the entry before it.
//! Source:     fs/nilfs2/dir.c.

use wp_base::{FsError, FsResult};

use super::Nilfs;
use crate::disk::dir::{self, NAME_MAX};
use crate::disk::{DirEntry, FileType};

/// A name that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The inode.
    pub ino: u64,
    block: u64,
    at: usize,
    /// The name, and its type.
    pub name: Vec<u8>,
    pub kind: FileType,
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
        for block in 0..blocks {
            if self.store.borrow_mut().is_hole(dir, block)? {
                return Err(hole(block));
            }
        }
        if blocks == 0 { Ok(()) } else { self.fetch(dir, 0, blocks - 1).await }
    }

    fn dir_block(&self, dir: u64, block: u64) -> FsResult<Vec<u8>> {
        let mut store = self.store.borrow_mut();
        let bytes = store.read_block(dir, block)?.map(<[u8]>::to_vec);
        bytes.ok_or_else(|| hole(block))
    }

    /// All names, `.` and `..` too; the directory is in memory.
    pub(super) fn all_names(&self, dir: u64) -> FsResult<Vec<Found>> {
        let mut out = Vec::new();
        for block in 0..self.dir_blocks(dir)? {
            let bytes = self.dir_block(dir, block)?;
            for slot in dir::slots(&bytes, 0)?.iter().filter(|s| s.entry.inode.get() != 0) {
                out.push(Found {
                    ino: slot.entry.inode.get(),
                    block,
                    at: slot.at,
                    name: slot.name.to_vec(),
                    kind: FileType::of_number(slot.entry.file_type),
                });
            }
        }
        Ok(out)
    }

    /// A name of a directory that is in memory. Errors: `NotFound`, `NameTooLong`.
    pub(super) fn find_name(&self, dir: u64, name: &[u8]) -> FsResult<Found> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let found = self.all_names(dir)?.into_iter().find(|n| n.name == name);
        found.ok_or(FsError::NotFound)
    }

    /// Is nothing in it but `.` and `..`?
    pub(super) fn is_empty(&self, dir: u64) -> FsResult<bool> {
        Ok(self.all_names(dir)?.iter().all(|n| n.name == b"." || n.name == b".."))
    }

    fn put_dir_block(&self, dir: u64, block: u64, bytes: Vec<u8>) -> FsResult<()> {
        self.store.borrow_mut().write_block(dir, block, bytes)
    }

    /// Adds a name where there is room, behind the last block if there is none.
    /// `nilfs_add_link`.
    pub(super) fn add_name(&self, dir: u64, name: &[u8], ino: u64, kind: FileType) -> FsResult<()> {
        let needed = DirEntry::bytes_for(name.len());
        let blocks = self.dir_blocks(dir)?;
        for block in 0..blocks {
            let mut bytes = self.dir_block(dir, block)?;
            let slots = dir::slots(&bytes, 0)?;
            let place = slots.iter().find_map(|s| {
                let used = match s.entry.inode.get() {
                    0 => 0,
                    _ => DirEntry::bytes_for(s.name.len()),
                };
                let reach = s.entry.reach();
                (reach >= used + needed).then(|| (s.at, used, reach, s.entry, s.name.to_vec()))
            });
            let Some((at, used, reach, entry, old)) = place else { continue };
            if used > 0 {
                let kind = FileType::of_number(entry.file_type);
                dir::put(&mut bytes, at, used, entry.inode.get(), kind, &old);
            }
            dir::put(&mut bytes, at + used, reach - used, ino, kind, name);
            self.put_dir_block(dir, block, bytes)?;
            return self.touched(dir, None);
        }
        let size = self.g.block_bytes();
        let mut bytes = vec![0; size];
        dir::put(&mut bytes, 0, size, ino, kind, name);
        self.put_dir_block(dir, blocks, bytes)?;
        self.touched(dir, Some((blocks + 1) << self.g.block_bits))
    }

    /// Takes out a name. `nilfs_delete_entry`.
    pub(super) fn remove_name(&self, dir: u64, found: &Found) -> FsResult<()> {
        let mut bytes = self.dir_block(dir, found.block)?;
        let slots = dir::slots(&bytes, 0)?;
        let this = slots.iter().position(|s| s.at == found.at).ok_or(FsError::Io)?;
        let (at, reach) = slots.get(this).map(|s| (s.at, s.entry.reach())).ok_or(FsError::Io)?;
        let before = this.checked_sub(1).and_then(|n| slots.get(n));
        match before.map(|s| (s.at, s.entry, s.name.to_vec())) {
            Some((start, entry, name)) => {
                let kind = FileType::of_number(entry.file_type);
                let reach = at + reach - start;
                dir::put(&mut bytes, start, reach, entry.inode.get(), kind, &name);
                bytes.get_mut(at..at + 8).ok_or(FsError::Io)?.fill(0);
            }
            None => dir::put(&mut bytes, at, reach, 0, FileType::Unknown, b""),
        }
        self.put_dir_block(dir, found.block, bytes)?;
        self.touched(dir, None)
    }

    /// A name leads to another inode. `nilfs_set_link`.
    pub(super) fn set_name(
        &self,
        dir: u64,
        found: &Found,
        ino: u64,
        kind: FileType,
    ) -> FsResult<()> {
        let mut bytes = self.dir_block(dir, found.block)?;
        let slots = dir::slots(&bytes, 0)?;
        let slot = slots.iter().find(|s| s.at == found.at).ok_or(FsError::Io)?;
        let (reach, name) = (slot.entry.reach(), slot.name.to_vec());
        dir::put(&mut bytes, found.at, reach, ino, kind, &name);
        self.put_dir_block(dir, found.block, bytes)?;
        self.touched(dir, None)
    }

    /// The first block of a new directory. `nilfs_make_empty`.
    pub(super) fn make_empty(&self, dir: u64, parent: u64) -> FsResult<()> {
        let size = self.g.block_bytes();
        let mut bytes = vec![0; size];
        dir::put(&mut bytes, 0, 16, dir, FileType::Dir, b".");
        dir::put(&mut bytes, 16, size - 16, parent, FileType::Dir, b"..");
        self.put_dir_block(dir, 0, bytes)?;
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
