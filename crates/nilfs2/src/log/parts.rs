//! What a construction takes of files, of metadata or not: what of them is dirty, and its contents.

use std::ops::RangeInclusive;

use wp_base::{FsError, FsResult};

use crate::disk::ino;

use super::Store;
use super::dat::Via;
use super::draft::Payload;
use super::file::File;
use super::meta_file::MetaFile;

impl Store<'_> {
    /// The metadata files.
    pub(super) fn tables(&mut self) -> [&mut MetaFile; 4] {
        [&mut self.dat.table, &mut self.cpfile, &mut self.sufile, &mut self.ifile]
    }

    fn table(&self, number: u64) -> Option<&MetaFile> {
        match number {
            ino::DAT => Some(&self.dat.table),
            ino::CPFILE => Some(&self.cpfile),
            ino::SUFILE => Some(&self.sufile),
            ino::IFILE => Some(&self.ifile),
            _ => None,
        }
    }

    /// A file in memory, and what it needs to reach its blocks. Errors: `NotFound`.
    pub(super) fn file_mut(&mut self, number: u64) -> FsResult<(&mut File, Via<'_>)> {
        let Store { disk, dat, cpfile, sufile, ifile, files, .. } = self;
        if number == ino::DAT {
            return Ok((&mut dat.table.file, Via { disk, dat: None }));
        }
        let file = match number {
            ino::CPFILE => &mut cpfile.file,
            ino::SUFILE => &mut sufile.file,
            ino::IFILE => &mut ifile.file,
            other => files.get_mut(&other).ok_or(FsError::NotFound)?,
        };
        Ok((file, Via { disk, dat: Some(dat) }))
    }

    /// Is there anything to be written?
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
            || [&self.ifile, &self.cpfile, &self.sufile].into_iter().any(MetaFile::is_dirty)
    }

    /// Has this metadata file a block that no log has yet (`PAGECACHE_TAG_DIRTY`)?
    pub fn is_metadata_dirty(&self, number: u64) -> bool {
        self.table(number).is_some_and(|table| table.blocks.has_dirty())
    }

    /// Has this file data or nodes that no log has yet?
    pub(super) fn has_dirty_parts(&self, number: u64) -> bool {
        self.data.is_dirty(number, 0..=u64::MAX)
            || self.files.get(&number).is_some_and(|file| file.nodes.has_dirty())
    }

    /// Blocks of a file that no log has yet, in order.
    pub(super) fn dirty_blocks(&self, number: u64, keys: RangeInclusive<u64>) -> Vec<u64> {
        match self.table(number) {
            Some(table) => table.blocks.wanted(keys).collect(),
            None => self.data.dirty(number, keys),
        }
    }

    /// A log has block `key` of a file.
    pub(super) fn close_block(
        &mut self,
        number: u64,
        key: u64,
        payload: &mut Payload,
    ) -> FsResult<()> {
        let (file, _) = self.file_mut(number)?;
        file.fresh.remove(&key);
        let table = self.tables().into_iter().find(|table| table.file.ino == number);
        match table {
            Some(table) => {
                let (block, sent, touched) = table.blocks.close(key).ok_or(FsError::Io)?;
                payload.push_version(block.bytes(), touched, sent);
            }
            None => {
                let contents = self.data.take(number, key).ok_or(FsError::Io)?;
                payload.sum = contents.crc32(payload.sum);
                payload.blocks.push(self.data.sent(number, key, contents));
            }
        }
        Ok(())
    }
}
