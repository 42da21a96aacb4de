//! Flags of inodes that programs set, and where data are.
//!
//! Source: Linux `ext4_fileattr_set`, `ext4_ioctl_setflags` (`fs/ext4/ioctl.c`),
//!         `ext4_change_inode_journal_flag`, `ext4_iomap_begin_report` (`fs/ext4/inode.c`),
//!         `fs/iomap/seek.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, WbControl};
use wp_jbd2::Handle;
use wp_rt::soon;
use wp_vfs::{FileFlags, Seek, SeekRun, seek_in_runs};

use super::fast_commit::Ineligible;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;

/// Flags that programs see and cannot set here: `FS_NOCOW_FL` is none of `EXT4_FL_USER_VISIBLE`.
const REFUSED: FileFlags = FileFlags::NOCOW;

impl Inode {
    /// `IS_DIRSYNC`: is every change of its names committed before the call returns?
    pub(super) fn is_dirsync(&self) -> bool {
        self.has(flag::SYNC) || self.has(flag::DIRSYNC)
    }

    /// Its flags that have words.
    pub(super) fn file_flags(&self) -> FileFlags {
        FileFlags(self.disk.borrow().flags.get() & FileFlags::SETTABLE.0)
    }
}

impl Ext4 {
    /// The handle ends with its commit if the file asks for that (`IS_SYNC`, `ext4_handle_sync`).
    pub(super) fn sync_with(&self, h: &Handle, inode: &Inode) {
        if inode.has(flag::SYNC) {
            h.set_sync();
        }
    }

    /// The same of a change of names in a directory (`IS_DIRSYNC`).
    pub(super) fn sync_names(&self, h: &Handle, dir: &Inode) {
        if dir.is_dirsync() {
            h.set_sync();
        }
    }

    /// Replaces the flags that have words. The caller holds the inode's `lock`.
    ///
    /// Waits: for the data of a file that becomes immutable or whose data go another way from here
    /// on; for the journal. Errors: `NotInKernel`; `NotPermitted` where other flags of an immutable
    /// file would change.
    pub(super) async fn set_file_flags(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        flags: FileFlags,
    ) -> FsResult<()> {
        let old = inode.file_flags();
        if flags.has(REFUSED) || !inode.is_dir() && flags.has(FileFlags::OF_DIRECTORIES) {
            return Err(FsError::NotInKernel);
        }
        if old.has(FileFlags::IMMUTABLE) && flags.has(FileFlags::IMMUTABLE) && old != flags {
            return Err(FsError::NotPermitted);
        }
        let becomes_immutable =
            flags.has(FileFlags::IMMUTABLE) && !old.has(FileFlags::IMMUTABLE) && !inode.is_dir();
        if becomes_immutable {
            self.write_all_of(inode).await?;
        }
        let h = soon!(self.start(1))?;
        self.sync_with(&h, inode);
        let kept = inode.disk.borrow().flags.get() & !FileFlags::SETTABLE.0;
        let mode = old.0 & flag::JOURNAL_DATA;
        let now = kept | flags.without(FileFlags::JOURNAL_DATA).0 | mode;
        inode.disk.borrow_mut().flags = now.into();
        inode.set_ctime(self.time());
        let out = soon!(self.write_inode(&h, inode));
        soon!(self.stop(h, out))?;
        if old.has(FileFlags::JOURNAL_DATA) == flags.has(FileFlags::JOURNAL_DATA) {
            return Ok(());
        }
        self.change_journal_flag(inode, flags.has(FileFlags::JOURNAL_DATA)).await
    }

    /// From here on the file's data go through the journal, or no longer
    /// (`ext4_change_inode_journal_flag`).
    async fn change_journal_flag(self: &Rc<Self>, inode: &Rc<Inode>, on: bool) -> FsResult<()> {
        if self.journal().is_aborted() {
            return Err(FsError::ReadOnly);
        }
        if on {
            self.write_all_of(inode).await?;
        } else {
            // Nothing of the file may be left in the log: a replay would put it over data that
            // the log does not know. What others begin meanwhile is not of this file, whose lock
            // is held.
            self.journal().checkpoint_all().await?;
        }
        {
            let mut d = inode.disk.borrow_mut();
            let others = d.flags.get() & !flag::JOURNAL_DATA;
            d.flags = (others | if on { flag::JOURNAL_DATA } else { 0 }).into();
        }
        inode.iomap.set(self.takes_iomap(inode));
        let h = soon!(self.start(1))?;
        self.fast_ineligible(&h, Ineligible::JournalFlag);
        h.set_sync();
        let out = soon!(self.write_inode(&h, inode));
        soon!(self.stop(h, out))
    }

    /// Writes what is dirty of a file and waits for it (`filemap_write_and_wait`).
    async fn write_all_of(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let written = inode.map.writepages(&WbControl::sync_all()).await;
        inode.map.settle().await;
        written
    }

    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`. Errors: `NoSuchPlace`.
    pub(super) async fn seek_in(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        what: Seek,
    ) -> FsResult<u64> {
        let _shared = inode.lock.lock().await;
        let (size, block) = (inode.size.get(), u64::from(self.bs().bytes()));
        let end = size.div_ceil(block);
        seek_in_runs((size, block), offset, what, async |at| self.seek_run(inode, at, end).await)
            .await
    }

    /// What a seek finds from block `at` on: a delayed block is data, an unwritten one where it is
    /// in memory (`mapping_seek_hole_data`).
    async fn seek_run(&self, inode: &Inode, at: u64, end: u64) -> FsResult<SeekRun> {
        let run = |blocks, is_data| SeekRun { blocks, is_data, is_hole: !is_data };
        let cached = inode.map.peek(at);
        if cached.as_ref().is_some_and(|b| b.flag(BufFlag::Delay)) {
            return Ok(run(1, true));
        }
        match self.find_run(inode, at).await? {
            Ok(found) if !found.unwritten => Ok(run(u64::from(found.len), true)),
            Ok(_) => Ok(run(1, cached.is_some_and(|b| b.flag(BufFlag::Uptodate)))),
            Err(hole) => {
                let last = at.saturating_add(hole).min(end.max(at + 1));
                let delayed = inode.map.range(at, last);
                let first = delayed.iter().find(|b| b.flag(BufFlag::Delay)).map(|b| b.block());
                Ok(run(first.map_or(hole, |first| first - at), false))
            }
        }
    }
}
