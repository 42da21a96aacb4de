//! Flags of inodes that programs set.
//!
//! Source: fs/nilfs2/ioctl.c (`nilfs_fileattr_set`), nilfs.h (`nilfs_mask_flags`).

use wp_base::FsResult;
use wp_vfs::FileFlags;

use super::Nilfs;
use crate::disk::Inode;

/// Those that are kept; others are let pass without an error. `FS_FL_USER_MODIFIABLE`.
const KEPT: u32 = 0x0003_80FF;
/// Those that what is made in a directory has from it. `NILFS_FL_INHERITED`.
const INHERITED: u32 = 0x0001_86FF;

/// Flags without those that do not fit a kind of file. `nilfs_mask_flags`.
fn fitting(flags: u32, (is_dir, is_file): (bool, bool)) -> u32 {
    const TOPDIR: u32 = 0x2_0000;
    match (is_dir, is_file) {
        (true, _) => flags,
        (_, true) => flags & !(FileFlags::DIRSYNC.0 | TOPDIR),
        _ => flags & (FileFlags::NODUMP.0 | FileFlags::NOATIME.0),
    }
}

/// The flags of an inode that have words.
pub(crate) fn flags_of(inode: &Inode) -> FileFlags {
    FileFlags(inode.flags.get() & FileFlags::SETTABLE.0)
}

/// The flags of a new inode in a directory.
pub(super) fn inherited(dir: &Inode, new: &Inode) -> u32 {
    fitting(dir.flags.get() & INHERITED, (new.is_dir(), new.is_file()))
}

impl Nilfs {
    /// Replaces the flags that have words. Waits: for a log, if the file is a synchronous one then.
    pub(super) async fn set_file_flags(&self, number: u64, flags: FileFlags) -> FsResult<()> {
        let done = {
            let _inode = self.lock_inode(number).await;
            let _sem = self.begin().await?;
            let done = self.change(number, true, |i| {
                let set = fitting(flags.0, (i.is_dir(), i.is_file())) & KEPT;
                i.flags = (i.flags.get() & !(FileFlags::SETTABLE.0 & KEPT) | set).into();
                self.stamp(i, false);
            });
            self.settled(done).await
        };
        done?;
        self.sync_with(number).await
    }

    /// A change of names in a synchronous directory is in a log before the call returns
    /// (`nilfs_commit_chunk`). The caller has no `sem`.
    pub(super) async fn sync_names(&self, dirs: &[u64]) -> FsResult<()> {
        let is_dirsync = |dir: &u64| self.inode(*dir).is_ok_and(|i| flags_of(&i).is_dirsync());
        if dirs.iter().any(is_dirsync) { self.write_all().await } else { Ok(()) }
    }

    /// A change of a synchronous file is in a log before the call returns (`NILFS_TI_SYNC`). The
    /// caller has no `sem`.
    pub(super) async fn sync_with(&self, number: u64) -> FsResult<()> {
        match flags_of(&self.inode(number)?).has(FileFlags::SYNC) {
            true => self.write_all().await,
            false => Ok(()),
        }
    }
}
