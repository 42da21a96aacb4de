//! Names in directories. Hash trees are read block by block like any directory: their inner blocks
//! hold no names.

use wp_base::{FsError, FsResult};

use crate::disk::compat;
use crate::disk::dir::{self, DirIter};
use crate::disk::htree;
use crate::disk::inode::flag;

use super::{FileMap, Image, InodeRecord};

/// A name and what it stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirName {
    /// The name, without slashes, as bytes.
    pub name: Vec<u8>,
    /// Its inode.
    pub inode: u32,
    /// Type byte of the entry, see [`wp_vfs::FileType::from_entry`]; 0 without the filetype
    /// feature.
    pub file_type: u8,
}

/// What readdir(2) tells of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// The names.
    pub names: Vec<DirName>,
    /// What a kernel reports (`ext4_error`) and passes over: the rest of a block is not listed.
    pub reported: Vec<FsError>,
}

/// Bytes of inline directories before the first entry: the inode of "..".
const INLINE_PARENT_BYTES: usize = 4;

impl Image<'_> {
    /// The names in a directory, in the order in which they stand, without "." and "..".
    ///
    /// Errors: `NotDir`; `Corrupt` for a hole, a wrong checksum, an entry that cannot be, a name
    ///         with a slash
    /// or a zero byte.
    pub fn names(&self, record: &InodeRecord) -> FsResult<Vec<DirName>> {
        if !record.inode.is_dir() {
            return Err(FsError::NotDir);
        }
        if record.inode.has(flag::INLINE_DATA) {
            return self.inline_names(record);
        }
        let map = self.map(record)?;
        let mut out = Vec::new();
        for logical in 0..self.dir_blocks(record)? {
            let (bytes, at) = self.dir_block(record, &map, logical)?;
            self.names_in(&bytes, at, &mut out)?;
        }
        Ok(out)
    }

    /// The names that a kernel lists: what is wrong with an entry hides the rest of its block, and
    /// is no error of the call.
    ///
    /// Errors: `NotDir`; `Corrupt` for a block with a wrong checksum, or none, of a directory that
    ///         is read in order of hashes (all of one block are, with `dir_index`).
    /// Source: `ext4_readdir`, `htree_dirblock_to_tree`.
    pub fn listing(&self, record: &InodeRecord) -> FsResult<Listing> {
        let mut out = Listing::default();
        if !record.inode.is_dir() || record.inode.has(flag::INLINE_DATA) {
            out.names = self.names(record)?;
            return Ok(out);
        }
        let (map, blocks) = (self.map(record)?, self.dir_blocks(record)?);
        let by_hash =
            self.sb.has_compat(compat::DIR_INDEX) && (record.inode.has(flag::INDEX) || blocks == 1);
        for logical in 0..blocks {
            let done = self
                .dir_block(record, &map, logical)
                .map(|(bytes, at)| self.names_in(&bytes, at, &mut out.names));
            match done {
                Ok(Ok(())) => {}
                Ok(Err(e)) => out.reported.push(e),
                Err(e) if by_hash => return Err(e),
                // Holes are passed over in silence.
                Err(_) if map.block(logical).is_none() => {}
                Err(e) => out.reported.push(e),
            }
        }
        Ok(out)
    }

    /// Blocks of a directory by its size.
    pub(super) fn dir_blocks(&self, record: &InodeRecord) -> FsResult<u32> {
        let bs = u64::from(self.block_size().bytes());
        let size = record.inode.size();
        match u32::try_from(size / bs) {
            // A directory has no holes, so it cannot be larger than the device.
            Ok(n) if size.is_multiple_of(bs) && u64::from(n) <= self.g.blocks_count => Ok(n),
            _ => {
                let expected = format!("whole blocks of the device (directory {})", record.number);
                Err(FsError::corrupt("ext4 inode", "i_size", record.at, size, expected))
            }
        }
    }

    /// Block `logical` of a directory, with its byte address; checks its checksum.
    pub(super) fn dir_block(
        &self,
        record: &InodeRecord,
        map: &FileMap,
        logical: u32,
    ) -> FsResult<(Vec<u8>, u64)> {
        let Some(block) = map.block(logical) else {
            let expected = format!("a mapped block (directory {})", record.number);
            return Err(FsError::corrupt(
                "ext4 directory",
                "logical block",
                record.at,
                logical.into(),
                expected,
            ));
        };
        let bytes = self.read_block(block, "ext4 directory block")?;
        let at = self.byte_of(block);
        let seed = self.seed_of(record);
        let inner = htree::entries_at(&bytes).filter(|_| record.inode.has(flag::INDEX));
        let is_right = match inner {
            // A leaf whose only entry is free looks like an inner block.
            Some(entries_at) => {
                self.sums.htree_block_ok(seed, &bytes, entries_at)
                    || self.sums.dir_block_ok(seed, &bytes)
            }
            None => self.sums.dir_block_ok(seed, &bytes),
        };
        if !is_right {
            let right =
                format!("{:#x} (directory {})", self.sums.dir_block(seed, &bytes), record.number);
            return Err(FsError::corrupt(
                "ext4 directory block",
                "checksum",
                at,
                logical.into(),
                right,
            ));
        }
        Ok((bytes, at))
    }

    fn names_in(&self, bytes: &[u8], at: u64, out: &mut Vec<DirName>) -> FsResult<()> {
        for entry in DirIter::new(bytes, at, self.g.inodes_count) {
            let entry = entry?;
            if entry.inode == 0 || entry.name == b"." || entry.name == b".." {
                continue;
            }
            if entry.name.is_empty() || entry.name.iter().any(|c| matches!(c, 0 | b'/')) {
                let at = at + entry.offset as u64;
                let found = entry.name.len() as u64;
                let expected = "a name without slashes and zero bytes";
                return Err(FsError::corrupt("ext4 directory entry", "name", at, found, expected));
            }
            out.push(DirName {
                name: entry.name.to_vec(),
                inode: entry.inode,
                file_type: entry.file_type,
            });
        }
        Ok(())
    }

    /// Inline directories: the parent's number, entries up to the end of `i_block`, then entries in
    /// the attribute.
    fn inline_names(&self, record: &InodeRecord) -> FsResult<Vec<DirName>> {
        let data = self.inline_data(record)?;
        let (first, second) =
            data.split_at_checked(record.inode.block.len()).unwrap_or((&data, &[]));
        let mut out = Vec::new();
        let entries = first.get(INLINE_PARENT_BYTES..).unwrap_or(&[]);
        self.names_in(entries, record.at, &mut out)?;
        if second.len() >= dir::REC_LEN_MIN {
            self.names_in(second, record.at, &mut out)?;
        }
        Ok(out)
    }
}
