//! System calls on attributes, plain and extended.

use wp_base::{FsError, FsResult};
use wp_rt::soon;

use crate::file_type::FileType;
use crate::fs::{Attr, AttrChange, DirEntry, TimeSpec, XattrSet};
use crate::syscall::{Fd, Vfs};

impl Vfs {
    /// Attributes by path.
    pub async fn stat(&self, path: &str) -> FsResult<Attr> {
        let body = async { soon!(self.fs().attr(self.walk(path).await?)) };
        self.call("stat", || path.to_owned(), |a: &Attr| a.size, body).await
    }

    /// Attributes of an open file.
    pub async fn fstat(&self, fd: Fd) -> FsResult<Attr> {
        let body = async { soon!(self.fs().attr(self.file(fd)?.ino)) };
        self.call("fstat", || fd.0.to_string(), |a: &Attr| a.size, body).await
    }

    async fn change(&self, call: &'static str, path: &str, change: AttrChange) -> FsResult<()> {
        let body = async {
            let ino = self.walk(path).await?;
            self.may_change(ino)?;
            self.fs().set_attr(ino, &change).await
        };
        self.call(call, || path.to_owned(), |()| 0, body).await
    }

    /// Changes permission bits: the low 12 of `mode`.
    pub async fn chmod(&self, path: &str, mode: u32) -> FsResult<()> {
        let mode = Some(mode & 0o7777);
        self.change("chmod", path, AttrChange { mode, ..AttrChange::default() }).await
    }

    /// Changes owner and group, and takes set-user-ID and set-group-ID off a file that can be run
    /// by its group (`setattr_should_drop_suidgid`).
    pub async fn chown(&self, path: &str, uid: u32, gid: u32) -> FsResult<()> {
        let body = async {
            let ino = self.walk(path).await?;
            self.may_change(ino)?;
            let now = soon!(self.fs().attr(ino))?;
            let run_by_group = if now.mode & 0o010 == 0 { 0 } else { 0o2000 };
            let left = now.mode & !(0o4000 | run_by_group);
            let mode = (now.kind != FileType::Dir && left != now.mode).then_some(left);
            let (uid, gid) = (Some(uid), Some(gid));
            self.fs().set_attr(ino, &AttrChange { uid, gid, mode, ..AttrChange::default() }).await
        };
        self.call("chown", || path.to_owned(), |()| 0, body).await
    }

    /// Changes the times of access and modification.
    pub async fn utimensat(&self, path: &str, atime: TimeSpec, mtime: TimeSpec) -> FsResult<()> {
        let (atime, mtime) = (Some(atime), Some(mtime));
        self.change("utimensat", path, AttrChange { atime, mtime, ..AttrChange::default() }).await
    }

    /// Entries of a directory.
    pub async fn read_dir(&self, path: &str) -> FsResult<Vec<DirEntry>> {
        let body = async { self.fs().read_dir(self.walk(path).await?).await };
        self.call("getdents64", || path.to_owned(), |v: &Vec<DirEntry>| v.len() as u64, body).await
    }

    /// The value of an extended attribute. Errors: `NoData`, and what the file system says.
    pub async fn get_xattr(&self, path: &str, name: &str) -> FsResult<Vec<u8>> {
        let body = async { self.fs().get_xattr(self.walk(path).await?, name.as_bytes()).await };
        self.call("getxattr", || format!("{path} {name}"), |v: &Vec<u8>| v.len() as u64, body).await
    }

    /// The names of all extended attributes.
    pub async fn list_xattrs(&self, path: &str) -> FsResult<Vec<Vec<u8>>> {
        let body = async { self.fs().list_xattrs(self.walk(path).await?).await };
        self.call("listxattr", || path.to_owned(), |v: &Vec<Vec<u8>>| v.len() as u64, body).await
    }

    /// Sets an extended attribute. Errors: `TooBig` for a value of more than 64 KiB (`E2BIG` in
    /// Linux); and what the file system says.
    pub async fn set_xattr(
        &self,
        path: &str,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> FsResult<()> {
        let body = async {
            // `XATTR_SIZE_MAX`
            if value.len() > 65536 {
                return Err(FsError::TooBig);
            }
            let ino = self.walk(path).await?;
            self.may_change(ino)?;
            self.fs().set_xattr(ino, name.as_bytes(), Some(value), how).await
        };
        self.call("setxattr", || format!("{path} {name}"), |()| 0, body).await
    }

    /// Removes an extended attribute. Errors: `NoData`, and what the file system says.
    pub async fn remove_xattr(&self, path: &str, name: &str) -> FsResult<()> {
        let body = async {
            let ino = self.walk(path).await?;
            self.may_change(ino)?;
            self.fs().set_xattr(ino, name.as_bytes(), None, XattrSet::Replace).await
        };
        self.call("removexattr", || format!("{path} {name}"), |()| 0, body).await
    }
}
