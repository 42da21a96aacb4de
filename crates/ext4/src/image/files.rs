//! Contents of files and targets of symbolic links.

use wp_base::{FsError, FsResult};
use wp_vfs::{Digest, Part, TakePart};

use crate::disk::inode::flag;
use crate::disk::xattr;

use super::{FileMap, Image, InodeRecord};

/// How much is read at a time.
const CHUNK: u64 = 1 << 20;

impl Image<'_> {
    /// The contents of a file, in order, in pieces of at most 1 MiB; holes and unwritten runs as
    /// numbers of zeroes.
    ///
    /// Errors: of the map, of the view and of `each`, which is called before others may be found.
    pub fn read_file(&self, record: &InodeRecord, each: &mut TakePart<'_>) -> FsResult<()> {
        let size = record.inode.size();
        if record.inode.has(flag::INLINE_DATA) {
            let data = self.inline_data(record)?;
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let wrong = || self.wrong_size(record, data.len() as u64);
            return each(Part::Bytes(data.get(..size).ok_or_else(wrong)?));
        }
        let map = self.map(record)?;
        let bs = u64::from(self.block_size().bytes());
        let mut at = 0u64;
        let mut buffer = Vec::new();
        for run in map.runs.iter().filter(|r| !r.is_unwritten) {
            let from = u64::from(run.logical) * bs;
            let end = (run.end() * bs).min(size);
            each(Part::Zeroes(from.min(size).saturating_sub(at)))?;
            at = at.max(from.min(size));
            while at < end {
                let n = (end - at).min(CHUNK);
                buffer.resize(n as usize, 0);
                self.view.read_at(self.byte_of(run.start) + (at - from), &mut buffer)?;
                each(Part::Bytes(&buffer))?;
                at += n;
            }
        }
        each(Part::Zeroes(size.saturating_sub(at)))
    }

    /// Digest of a file's contents. `bytes_left`: data that may still be read.
    pub fn sha256(&self, record: &InodeRecord, bytes_left: &mut u64) -> FsResult<Digest> {
        Digest::of(bytes_left, |each| self.read_file(record, each))
    }

    /// Target of a symbolic link.
    ///
    /// Errors: `Invalid` if it is none; `Corrupt` if it is longer than its place, empty, or has no
    ///         block.
    pub fn link_target(&self, record: &InodeRecord) -> FsResult<Vec<u8>> {
        if !record.inode.is_symlink() {
            return Err(FsError::Invalid("not a symbolic link"));
        }
        let size = record.inode.size();
        let mut target = if record.inode.has(flag::INLINE_DATA) {
            self.inline_data(record)?
        } else if record.inode.is_fast_symlink(self.block_size().sectors()) {
            record.inode.block.to_vec()
        } else {
            let map = self.map(record)?;
            let block = map.block(0).ok_or_else(|| self.wrong_size(record, 0))?;
            self.read_block(block, "ext4 symbolic link")?
        };
        if size == 0 || size > target.len() as u64 {
            return Err(self.wrong_size(record, target.len() as u64));
        }
        target.truncate(size as usize);
        // `vfs_readlink()` copies up to the first NUL.
        let end = target.iter().position(|b| *b == 0).unwrap_or(target.len());
        target.truncate(end);
        Ok(target)
    }

    /// Inline data: `i_block`, then the value of the attribute `system.data`. May be longer than
    /// the file.
    pub(super) fn inline_data(&self, record: &InodeRecord) -> FsResult<Vec<u8>> {
        let mut data = record.inode.block.to_vec();
        for (at, entries) in self.inode_attributes(record)?.iter().map(|a| (a.at, a.entries())) {
            for e in entries? {
                if e.header.name_index == xattr::INDEX_SYSTEM && e.name == xattr::INLINE_DATA_NAME {
                    if e.header.value_inum.get() != 0 {
                        let found = e.header.value_inum.get().into();
                        return Err(FsError::corrupt(
                            "ext4 inline data",
                            "e_value_inum",
                            at,
                            found,
                            "0",
                        ));
                    }
                    data.extend_from_slice(e.value);
                }
            }
        }
        Ok(data)
    }

    fn wrong_size(&self, record: &InodeRecord, room: u64) -> FsError {
        let expected = format!("1 to {room} (inode {})", record.number);
        FsError::corrupt("ext4 inode", "i_size", record.at, record.inode.size(), expected)
    }

    /// Blocks that a file has beyond its size, or none: for checks.
    pub fn blocks_of(&self, map: &FileMap) -> u64 {
        let bits = self.g.cluster_bits;
        let (mut clusters, mut last) = (map.nodes.len() as u64, None);
        for run in &map.runs {
            let (first, end) = (run.start >> bits, (run.start + u64::from(run.blocks) - 1) >> bits);
            clusters += end - first + u64::from(last != Some(first));
            last = Some(end);
        }
        clusters << bits
    }
}
