//! Flags of inodes that programs set, and where data are.
//!
//! Source: Linux `f2fs_fileattr_set`, `f2fs_setflags_common`, `f2fs_seek_block` (`fs/f2fs/file.c`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::BufFlag;
use wp_vfs::{FileFlags, Seek, SeekRun, seek_in_data, seek_in_runs};

use super::data::BLOCK;
use super::dnode::{Find, Found};
use super::inode::Inode;
use super::mount::F2fs;
use crate::disk::addr;
use crate::disk::inode::{flag, inline};

/// Flags that programs cannot set: compression needs a feature that no image here has, a pinned
/// file shows `FS_NOCOW_FL` and is not made by it, and no journal has data.
const REFUSED: FileFlags = FileFlags::COMPRESS.and(FileFlags::JOURNAL_DATA);

impl Inode {
    /// Its flags that have words.
    pub(super) fn file_flags(&self) -> FileFlags {
        FileFlags(self.f.borrow().flags & FileFlags::SETTABLE.0)
    }

    /// `IS_DIRSYNC`: is every change of its names followed by a checkpoint?
    pub(super) fn is_dirsync(&self) -> bool {
        self.has_flag(flag::SYNC | flag::DIRSYNC)
    }
}

impl F2fs {
    /// Replaces the flags that have words. The caller holds the inode's `lock`.
    ///
    /// Errors: `Io` on a stopped file system, `NotInKernel`.
    pub(super) fn set_file_flags(&self, inode: &Rc<Inode>, flags: FileFlags) -> FsResult<()> {
        if self.check_writable().is_err() {
            return Err(FsError::Io);
        }
        if flags.has(REFUSED) || !inode.is_dir() && flags.has(FileFlags::OF_DIRECTORIES) {
            return Err(FsError::NotInKernel);
        }
        // `FS_NOCOW_FL` is shown and not set: it is let pass.
        let set = flags.without(FileFlags::NOCOW).0;
        {
            let mut f = inode.f.borrow_mut();
            f.flags = f.flags & !FileFlags::SETTABLE.0 | set;
            f.ctime = self.time();
        }
        self.mark_inode_dirty(inode, true);
        Ok(())
    }

    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`. Errors: `NoSuchPlace`.
    pub(super) async fn seek_in(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        what: Seek,
    ) -> FsResult<u64> {
        let _shared = inode.lock.lock().await;
        let size = inode.size.get();
        if inode.has_inline(inline::DATA) {
            return seek_in_data(size, offset, what);
        }
        seek_in_runs((size, BLOCK), offset, what, async |at| self.seek_run(inode, at).await).await
    }

    /// What a seek finds from block `at` on (`__found_offset`): promised space is data where it is
    /// dirty, and no hole anywhere.
    async fn seek_run(self: &Rc<Self>, inode: &Rc<Inode>, at: u64) -> FsResult<SeekRun> {
        let _tree = inode.map_lock.lock().await;
        let found = match self.dnode(inode, at, Find::Lookup).await? {
            Found::Hole(next) => {
                let blocks = next.saturating_sub(at);
                return Ok(SeekRun { blocks, is_data: false, is_hole: true });
            }
            Found::At(dn) => dn.addr(inode, dn.slot),
        };
        let is_dirty = inode.map.peek(at).is_some_and(|b| b.flag(BufFlag::Dirty));
        let is_data = addr::is_block(found) || found == addr::NEW && is_dirty;
        Ok(SeekRun { blocks: 1, is_data, is_hole: found == addr::NULL })
    }
}
