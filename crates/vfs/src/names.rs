//! System calls that change names.

use wp_base::{DeviceNumber, FsError, FsResult, Ino};
use wp_rt::soon;

use crate::file_type::FileType;
use crate::fs::{NodeSpec, RenameHow};
use crate::syscall::{Fd, Vfs};
use crate::walk::{End, Last};

/// `S_ISGID`.
const SET_GROUP: u32 = 0o2000;

impl Vfs {
    /// In a set-group-ID directory what is made has its group, and a directory the bit too
    /// (`inode_init_owner`). Who is privileged keeps the bit of a file (`mode_strip_sgid`).
    pub(crate) async fn inherit_group(&self, dir: Ino, spec: &mut NodeSpec) -> FsResult<()> {
        let dir = soon!(self.fs().attr(dir))?;
        if dir.mode & SET_GROUP != 0 {
            spec.gid = dir.gid;
            spec.mode |= if spec.kind == FileType::Dir { SET_GROUP } else { 0 };
        }
        Ok(())
    }

    /// Removes a name.
    pub async fn unlink(&self, path: &str) -> FsResult<()> {
        let body = async {
            let at = self.last(path, FsError::IsDir).await?;
            if at.slash {
                // No directory is unlinked, and nothing else has a slash behind its name.
                let found = soon!(self.fs().lookup(at.dir, at.name))?;
                let is_dir = self.kind(found).await? == FileType::Dir;
                return Err(if is_dir { FsError::IsDir } else { FsError::NotDir });
            }
            self.fs().unlink(at.dir, at.name).await
        };
        self.call("unlink", || path.to_owned(), |()| 0, body).await
    }

    /// Makes a directory.
    pub async fn mkdir(&self, path: &str, mode: u32) -> FsResult<()> {
        let body = async {
            let at = self.last(path, FsError::Exists).await?;
            let mut spec = NodeSpec::new(FileType::Dir, mode);
            self.inherit_group(at.dir, &mut spec).await?;
            self.fs().create(at.dir, at.name, &spec).await.map(|_| ())
        };
        self.call("mkdir", || path.to_owned(), |()| 0, body).await
    }

    /// Where a name that is no directory's may be made (`filename_create`).
    async fn vacancy<'p>(&self, path: &'p str) -> FsResult<Last<'p>> {
        let at = self.last(path, FsError::Exists).await?;
        if at.slash {
            return soon!(self.fs().lookup(at.dir, at.name)).and(Err(FsError::Exists));
        }
        Ok(at)
    }

    /// Makes a symbolic link at `path` that points to `target`.
    pub async fn symlink(&self, target: &str, path: &str) -> FsResult<()> {
        let body = async {
            let at = self.vacancy(path).await?;
            let mut spec = NodeSpec::new(FileType::Symlink, 0o777);
            spec.target = target.as_bytes().to_vec();
            self.inherit_group(at.dir, &mut spec).await?;
            self.fs().create(at.dir, at.name, &spec).await.map(|_| ())
        };
        self.call("symlink", || path.to_owned(), |()| 0, body).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, path: &str) -> FsResult<()> {
        let body = async {
            let dots = match End::of(path.as_bytes()) {
                End::DotDot => FsError::NotEmpty,
                _ if path.trim_matches('/').is_empty() => FsError::Busy,
                _ => FsError::Invalid("rmdir of `.`"),
            };
            let at = self.last(path, dots).await?;
            self.fs().rmdir(at.dir, at.name).await
        };
        self.call("rmdir", || path.to_owned(), |()| 0, body).await
    }

    /// Makes a device (`Char`, `Block`), a named pipe or a socket at `path`. Errors: as
    /// [`crate::FileSystem::create`].
    pub async fn mknod(
        &self,
        path: &str,
        kind: FileType,
        mode: u32,
        device: DeviceNumber,
    ) -> FsResult<()> {
        let body = async {
            let at = self.vacancy(path).await?;
            let mut spec = NodeSpec::new(kind, mode);
            spec.device = device;
            self.inherit_group(at.dir, &mut spec).await?;
            self.fs().create(at.dir, at.name, &spec).await.map(|_| ())
        };
        self.call("mknod", || path.to_owned(), |()| 0, body).await
    }

    /// Moves a name, whatever has the new one.
    pub async fn rename(&self, from: &str, to: &str) -> FsResult<()> {
        self.renameat2(from, to, RenameHow::Replace).await
    }

    /// Moves a name, or has two change places. Errors: `Exists` with `NoReplace`, `NotFound` with
    /// `Exchange`, `Invalid` where the file system has no such rename.
    pub async fn renameat2(&self, from: &str, to: &str, how: RenameHow) -> FsResult<()> {
        let call = if how == RenameHow::Replace { "rename" } else { "renameat2" };
        let body = async {
            let from = self.last(from, FsError::Busy).await?;
            let dots = match how {
                RenameHow::NoReplace => FsError::Exists,
                _ => FsError::Busy,
            };
            let to = self.last(to, dots).await?;
            // A slash behind a name is for directories; of an exchange each for its own.
            let exchanges = how == RenameHow::Exchange;
            if (to.slash || from.slash) && how != RenameHow::Replace {
                // What is there or not there comes before what it is (`do_renameat2`).
                soon!(self.fs().lookup(from.dir, from.name))?;
                match soon!(self.fs().lookup(to.dir, to.name)) {
                    Ok(_) if how == RenameHow::NoReplace => return Err(FsError::Exists),
                    Err(FsError::NotFound) if !exchanges => {}
                    other => drop(other?),
                }
            }
            if from.slash || (to.slash && !exchanges) {
                let moved = soon!(self.fs().lookup(from.dir, from.name))?;
                if self.kind(moved).await? != FileType::Dir {
                    return Err(FsError::NotDir);
                }
            }
            if to.slash && exchanges {
                let other = soon!(self.fs().lookup(to.dir, to.name))?;
                if self.kind(other).await? != FileType::Dir {
                    return Err(FsError::NotDir);
                }
            }
            self.fs().rename((from.dir, from.name), (to.dir, to.name), how).await
        };
        self.call(call, || format!("{from} -> {to}"), |()| 0, body).await
    }

    /// Adds a name to a file; to a symbolic link itself, not to where it points.
    pub async fn link(&self, from: &str, to: &str) -> FsResult<()> {
        let body = async {
            let ino = match End::of(from.as_bytes()) {
                End::Name => {
                    let at = self.last(from, FsError::NotPermitted).await?;
                    soon!(self.fs().lookup(at.dir, at.name))?
                }
                _ => self.walk(from).await?,
            };
            let at = self.vacancy(to).await?;
            self.fs().link(ino, at.dir, at.name).await
        };
        self.call("link", || format!("{from} -> {to}"), |()| 0, body).await
    }

    /// Gives an open file a name (`linkat` with `AT_EMPTY_PATH`): one more, or, made with
    /// `O_TMPFILE`, its first. Errors: `NotFound` for a file that has lost its last name.
    pub async fn linkat(&self, fd: Fd, to: &str) -> FsResult<()> {
        let body = async {
            let ino = self.file(fd)?.ino;
            let at = self.vacancy(to).await?;
            self.fs().link(ino, at.dir, at.name).await
        };
        self.call("linkat", || format!("{} -> {to}", fd.0), |()| 0, body).await
    }
}
