//! Subvolumes: `ioctl` on the directory that a subvolume's name is in.
//!
//! Source: `btrfs_ioctl_snap_create`, `btrfs_ioctl_snap_create_v2`, `btrfs_ioctl_snap_destroy`
//! (fs/btrfs/ioctl.c) of Linux 6.12, called as btrfs-progs does: on the directory, opened, with the
//! last name of the path.

use wp_base::{FsError, FsResult};

use crate::file_type::FileType;
use crate::syscall::Vfs;
use crate::walk::Last;

impl Vfs {
    /// The directory of a subvolume, which is opened before anything is said of the name.
    async fn dir_of<'p>(&self, path: &'p str, dots: FsError) -> FsResult<Last<'p>> {
        let at = self.last(path, dots).await?;
        if self.kind(at.dir).await? != FileType::Dir {
            return Err(FsError::NotDir);
        }
        // What follows the last slash is no name (`lookup_one`).
        if at.slash { Err(FsError::AccessDenied) } else { Ok(at) }
    }

    /// `BTRFS_IOC_SUBVOL_CREATE`: makes an empty subvolume. Errors: as
    /// [`crate::FileSystem::create_subvolume`].
    pub async fn create_subvolume(&self, path: &str) -> FsResult<()> {
        let body = async {
            let at = self.dir_of(path, FsError::Exists).await?;
            self.fs().create_subvolume(at.dir, at.name).await
        };
        self.call("ioctl(BTRFS_IOC_SUBVOL_CREATE)", || path.to_owned(), |()| 0, body).await
    }

    /// `BTRFS_IOC_SNAP_CREATE_V2`: makes a subvolume at `path` of what the one at `source` has.
    /// Errors: as [`crate::FileSystem::snapshot`].
    pub async fn snapshot(&self, source: &str, path: &str, is_read_only: bool) -> FsResult<()> {
        let body = async {
            let source = self.walk(source).await?;
            let at = self.dir_of(path, FsError::Exists).await?;
            self.fs().snapshot(source, (at.dir, at.name), is_read_only).await
        };
        let what = || format!("{source} -> {path}");
        self.call("ioctl(BTRFS_IOC_SNAP_CREATE_V2)", what, |()| 0, body).await
    }

    /// `BTRFS_IOC_SNAP_DESTROY`: deletes a subvolume. Errors: as
    /// [`crate::FileSystem::delete_subvolume`].
    pub async fn delete_subvolume(&self, path: &str) -> FsResult<()> {
        let body = async {
            let dots = FsError::Invalid("a deletion of `.` or `..`");
            let at = self.dir_of(path, dots).await?;
            self.fs().delete_subvolume(at.dir, at.name).await
        };
        self.call("ioctl(BTRFS_IOC_SNAP_DESTROY)", || path.to_owned(), |()| 0, body).await
    }
}
