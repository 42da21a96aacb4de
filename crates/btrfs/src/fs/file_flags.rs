//! Flags of inodes that programs set, and where data are.
//!
//! Source: fs/btrfs/ioctl.c (`btrfs_fileattr_set`, `check_fsflags`), file.c
//!         (`find_desired_extent`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_vfs::{FileFlags, Seek, SeekRun, seek_in_runs};

use crate::disk::inode::flag;

use super::inode::{InUse, Inode};
use super::{BLOCK, Btrfs};

/// Flags of an item, and as programs see them. `btrfs_inode_flags_to_fsflags`.
const WORDS: [(u64, FileFlags); 8] = [
    (flag::SYNC, FileFlags::SYNC),
    (flag::IMMUTABLE, FileFlags::IMMUTABLE),
    (flag::APPEND, FileFlags::APPEND),
    (flag::NODUMP, FileFlags::NODUMP),
    (flag::NOATIME, FileFlags::NOATIME),
    (flag::DIRSYNC, FileFlags::DIRSYNC),
    (flag::NODATACOW, FileFlags::NOCOW),
    (flag::COMPRESS, FileFlags::COMPRESS),
];

/// Flags of an inode item that have words.
pub(crate) fn flags_of(item: u64) -> FileFlags {
    let set = WORDS.iter().filter(|(bit, _)| item & bit != 0);
    set.fold(FileFlags::NONE, |all, (_, flag)| all.and(*flag))
}

impl Inode {
    /// Its flags that have words.
    pub(super) fn file_flags(&self) -> FileFlags {
        flags_of(self.item.borrow().flags.get())
    }
}

/// The first byte at or behind `from` that is dirty.
fn dirty_from(inode: &Inode, from: u64) -> Option<u64> {
    let runs = inode.delalloc.borrow();
    runs.iter().find(|(start, n)| start + n > from).map(|(start, _)| start.max(from))
}

impl Btrfs {
    /// Replaces the flags that have words.
    ///
    /// Errors: `NotInKernel`; `Invalid` of compression beside `nocow`; `Unsupported` of compression
    /// alone; `NoSpace`.
    pub(super) async fn set_file_flags(&self, ino: u64, flags: FileFlags) -> FsResult<()> {
        let inode = self.iget(ino)?;
        if inode.is_stub() {
            return Err(FsError::NoSuchIoctl);
        }
        let _user = InUse::new(&inode);
        let _lock = inode.lock.lock().await;
        self.check_writable_in(&inode)?;
        let old = inode.file_flags();
        // `btrfs_mask_fsflags_for_type`: what fits no file is left out, not refused.
        let flags = match inode.is_dir() {
            true => flags,
            false => flags.without(FileFlags::OF_DIRECTORIES),
        };
        if flags.has(FileFlags::JOURNAL_DATA) {
            return Err(FsError::NotInKernel);
        }
        if flags.has(FileFlags::COMPRESS) {
            if flags.and(old).has(FileFlags::NOCOW) {
                return Err(FsError::Invalid("compression of what is not copied on write"));
            }
            return Err(FsError::Unsupported("compressed extents on btrfs".to_owned()));
        }
        if flags.has(FileFlags::NOCOW) && old.has(FileFlags::COMPRESS) {
            return Err(FsError::Invalid("nocow for what is compressed"));
        }
        // Once there are extents, the flag says how they were written.
        let cow = match (inode.is_file(), inode.size() == 0) {
            (true, false) => 0,
            (true, true) => flag::NODATACOW | flag::NODATASUM,
            (false, _) => flag::NODATACOW,
        };
        let mut bits = inode.item.borrow().flags.get();
        for (bit, flag) in WORDS {
            let bit = if bit == flag::NODATACOW { cow } else { bit };
            bits = if flags.has(flag) { bits | bit } else { bits & !bit };
        }
        bits &= !flag::NOCOMPRESS;
        // The inode, and two for properties.
        let _p = self.reserve(3).await?;
        self.stamp(&inode, false);
        inode.change(|i| i.flags = bits.into());
        let done = self.must(|c| self.update_inode(c, &inode));
        self.settled(done).await
    }

    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`. Errors: `NoSuchPlace`.
    pub(super) async fn seek_in(&self, ino: u64, offset: u64, what: Seek) -> FsResult<u64> {
        let inode = self.iget(ino)?;
        let _user = InUse::new(&inode);
        let _shared = inode.lock.lock().await;
        let run = async |at| {
            let found = self.seek_run(&inode, at);
            self.settled(found).await
        };
        seek_in_runs((inode.size(), BLOCK), offset, what, run).await
    }

    /// What a seek finds from block `at` on: where no item has data, those that are dirty or on
    /// their way are (`btrfs_find_delalloc_in_range`). Space allocated beforehand is a hole.
    fn seek_run(&self, inode: &Rc<Inode>, at: u64) -> FsResult<SeekRun> {
        let run = |blocks: u64, is_data| SeekRun { blocks, is_data, is_hole: !is_data };
        let from = at * BLOCK;
        let part = self.with(|c| c.part_from(inode.tree, inode.ino, from))?;
        let here = part.filter(|p| p.start <= from);
        if let Some(p) = here.filter(|p| p.is_inline() || p.has_place() && !p.is_prealloc()) {
            return Ok(run(p.end.div_ceil(BLOCK).saturating_sub(at).max(1), true));
        }
        let end = here.map(|p| p.end).or(part.map(|p| p.start)).unwrap_or(u64::MAX);
        if self.is_coming(inode, from) {
            return Ok(run(1, true));
        }
        // The first that is dirty or on its way ends the hole.
        let dirty = dirty_from(inode, from);
        let sent = inode.ordered.borrow().range(from..).next().map(|(start, _)| *start);
        let end = dirty.into_iter().chain(sent).fold(end, u64::min);
        Ok(run((end / BLOCK).saturating_sub(at).max(1), false))
    }

    /// Is a block dirty, or on its way?
    fn is_coming(&self, inode: &Inode, at: u64) -> bool {
        let is_sent =
            inode.ordered.borrow().range(..=at).next_back().is_some_and(|(_, o)| o.end() > at);
        is_sent || dirty_from(inode, at) == Some(at)
    }
}
