//! A metadata file in memory: its map, and those of its blocks that were read or changed.

use std::ops::Range;

use wp_base::{FsError, FsResult};

use crate::disk::Inode;

use super::block::Block;
use super::dat::Via;
use super::file::File;
use super::memory::Blocks;

/// A metadata file.
#[derive(Clone, Debug)]
pub(super) struct MetaFile {
    /// Its inode and its map.
    pub file: File,
    /// Its blocks that are in memory, by their place in the file.
    pub blocks: Blocks,
}

impl MetaFile {
    /// A file as its inode says. `at`: byte address of the inode, for errors.
    pub fn load(number: u64, inode: Inode, at: u64) -> FsResult<MetaFile> {
        Ok(MetaFile { file: File::load(number, inode, at)?, blocks: Blocks::default() })
    }

    /// Is anything to be written?
    pub fn is_dirty(&self) -> bool {
        self.blocks.has_dirty() || self.file.nodes.has_dirty()
    }

    /// Reads block `key`, if it is not in memory; is it there, and no hole?
    pub fn load_block(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<bool> {
        if !self.blocks.contains(key) {
            let Some(pointer) = self.file.pointer(via, key)? else { return Ok(false) };
            let place = self.file.locate(via, pointer)?;
            let bytes = via.disk.read(place)?;
            self.blocks.put_clean(key, bytes.into());
        }
        Ok(true)
    }

    /// Bytes of block `key`, read if it is not in memory. `None`: a hole.
    pub fn bytes(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<Option<&[u8]>> {
        self.load_block(via, key)?;
        Ok(self.blocks.bytes(key))
    }

    /// Bytes `range` of block `key`, to be changed; of what `make` gives if it was a hole.
    pub fn block_mut(
        &mut self,
        via: &mut Via<'_>,
        key: u64,
        range: Range<usize>,
        make: impl FnOnce() -> Block,
    ) -> FsResult<&mut [u8]> {
        if !self.load_block(via, key)? {
            self.file.insert(via, key)?;
            self.blocks.put_fresh(key, make());
        }
        via.disk.dirtied(self.file.ino);
        self.blocks.dirty_bytes(key, range).ok_or(FsError::Io)
    }

    /// Block `key`, which must be there, is to be written. Errors: `Corrupt` for a hole.
    pub fn touch(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<()> {
        self.existing_mut(via, key, 0..0).map(|_| ())
    }

    /// Bytes `range` of block `key`, which must be there, to be changed; fewer than that if it ends
    /// before. Errors: `Corrupt` for a hole.
    pub fn existing_mut(
        &mut self,
        via: &mut Via<'_>,
        key: u64,
        range: Range<usize>,
    ) -> FsResult<&mut [u8]> {
        if self.load_block(via, key)? {
            via.disk.dirtied(self.file.ino);
        }
        match self.blocks.dirty_bytes(key, range) {
            Some(bytes) => Ok(bytes),
            None => {
                let expected = format!("a block {key} of file {}", self.file.ino);
                Err(FsError::corrupt("nilfs2 metadata file", "block map", 0, 0, expected))
            }
        }
    }

    /// Takes out block `key`. Errors: `NotFound` for a hole.
    pub fn remove(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<()> {
        self.blocks.remove(key);
        self.file.remove(via, key)
    }

    /// What is in closed logs was written.
    pub fn written(&mut self) {
        self.blocks.written();
        self.file.nodes.written();
    }
}
