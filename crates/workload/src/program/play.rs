//! A program's calls on a mounted file system of ours.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Ino};
use wp_medium::Slice;
use wp_vfs::{
    Advice, DeviceNumber, Fd, FileFlags, FileType, IoCall, IoContext, Iocb, OpenFlags, Reserve,
    TimeSpec, Vfs, XattrSet,
};

use super::data::contents;
use super::{AIO_MOST, Advise, Alloc, Call, Flags};

/// A process that does them: its descriptors, and the context of its asynchronous calls. Its
/// threads share one `Player`; their calls may overlap.
pub struct Player {
    vfs: Vfs,
    open: RefCell<BTreeMap<u32, Rc<File>>>,
    context: RefCell<Option<IoContext>>,
}

/// An open file of the process.
struct File {
    fd: Fd,
    how: Flags,
    /// Calls that use it now.
    users: Cell<u32>,
    /// A thread has closed it meanwhile: the last of those calls closes the file (`fput`).
    is_closed: Cell<bool>,
}

/// An asynchronous call that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// What [`Player::submit`] was given.
    pub tag: u32,
    /// Bytes read or written.
    pub result: FsResult<u64>,
}

impl Player {
    /// Nothing is open.
    pub fn new(vfs: Vfs) -> Player {
        Player { vfs, open: RefCell::default(), context: RefCell::default() }
    }

    /// The inode behind one of the program's descriptors; `None` if it is not open.
    pub fn ino(&self, fd: u32) -> Option<Ino> {
        self.open.borrow().get(&fd).and_then(|file| self.vfs.ino(file.fd).ok())
    }

    /// How one of the program's descriptors was opened; `None` if it is not open.
    pub fn opened(&self, fd: u32) -> Option<Flags> {
        self.open.borrow().get(&fd).map(|file| file.how)
    }

    fn fd(&self, fd: u32) -> FsResult<Fd> {
        self.open.borrow().get(&fd).map(|file| file.fd).ok_or(FsError::BadFile)
    }

    /// Does `body` with the files of these descriptors, which no other thread's `close` takes away
    /// until it has ended.
    async fn using<T>(&self, fds: &[u32], body: impl Future<Output = T>) -> T {
        let files: Vec<Rc<File>> = {
            let open = self.open.borrow();
            fds.iter().filter_map(|fd| open.get(fd).cloned()).collect()
        };
        files.iter().for_each(|file| file.users.set(file.users.get() + 1));
        let answer = body.await;
        for file in files {
            file.users.set(file.users.get() - 1);
            if file.is_closed.get() && file.users.get() == 0 {
                // Nobody is told what this answers: `close` has returned.
                drop(self.vfs.close(file.fd).await);
            }
        }
        answer
    }

    /// Closes a file, or leaves that to the calls that use it.
    async fn put(&self, file: Rc<File>) -> FsResult<()> {
        if file.users.get() > 0 {
            file.is_closed.set(true);
            return Ok(());
        }
        self.vfs.close(file.fd).await
    }

    /// Does one call; how much was read or written is left out. Errors: what the call answers;
    /// `BadFile` for a descriptor that is not open.
    pub async fn call(&self, call: &Call) -> FsResult<()> {
        let fds: Vec<u32> = match call {
            Call::Open(..) | Call::Close(_) => Vec::new(),
            call => call.clone().descriptors_mut().into_iter().map(|fd| *fd).collect(),
        };
        self.using(&fds, self.run(call)).await
    }

    async fn run(&self, call: &Call) -> FsResult<()> {
        let vfs = self.vfs.clone();
        match call {
            Call::Open(fd, path, how) => {
                let flags = open_flags(*how);
                let path = if path == "." { "/" } else { path.as_str() };
                let mode = how.mode.map_or(0o644, u32::from);
                let opened = vfs.open(path, flags, mode).await?;
                let (users, is_closed) = (Cell::new(0), Cell::new(false));
                let file = Rc::new(File { fd: opened, how: *how, users, is_closed });
                let old = self.open.borrow_mut().insert(*fd, file);
                match old {
                    Some(old) => self.put(old).await,
                    None => Ok(()),
                }
            }
            Call::Close(fd) => {
                let gone = self.open.borrow_mut().remove(fd).ok_or(FsError::BadFile)?;
                self.put(gone).await
            }
            Call::Pwrite { fd, len, at, data, atomic } => {
                self.write(*fd, *at, &data.slices(*at, *len), *atomic).await.map(drop)
            }
            Call::MmapWrite { fd, len, at, data } => {
                vfs.write_mapped(self.fd(*fd)?, *at, &data.slices(*at, *len)).await
            }
            Call::Msync(fd, at, len) => vfs.msync(self.fd(*fd)?, *at, *len).await,
            Call::SyncFileRange(fd, at, len) => vfs.sync_file_range(self.fd(*fd)?, *at, *len).await,
            Call::CopyFileRange { .. } => self.copy(call).await.map(drop),
            Call::Reflink { from, from_at, to, to_at, len } => {
                let (from, to) = ((self.fd(*from)?, *from_at), (self.fd(*to)?, *to_at));
                vfs.clone_range(from, to, *len).await
            }
            Call::Dedupe { from, from_at, to, to_at, len } => {
                let (from, to) = ((self.fd(*from)?, *from_at), (self.fd(*to)?, *to_at));
                vfs.dedupe_range(from, to, *len).await.map(drop)
            }
            Call::Fsync(fd) => vfs.fsync(self.fd(*fd)?).await,
            Call::Fdatasync(fd) => vfs.fdatasync(self.fd(*fd)?).await,
            Call::Fbarrier(fd) => vfs.fbarrier(self.fd(*fd)?).await,
            Call::Fdatabarrier(fd) => vfs.fdatabarrier(self.fd(*fd)?).await,
            Call::Syncfs(fd) => vfs.syncfs(self.fd(*fd)?).await,
            Call::Sync => vfs.sync().await,
            Call::Ftruncate(fd, len) => vfs.ftruncate(self.fd(*fd)?, *len).await,
            Call::Fallocate(fd, how, at, len) => {
                let how = match how {
                    Alloc::Extend => Reserve::Space { keep_size: false },
                    Alloc::Keep => Reserve::Space { keep_size: true },
                    Alloc::Punch => Reserve::Punch,
                    Alloc::Zero => Reserve::Zero { keep_size: false },
                    Alloc::ZeroKeep => Reserve::Zero { keep_size: true },
                    Alloc::Collapse => Reserve::Collapse,
                    Alloc::Insert => Reserve::Insert,
                };
                vfs.fallocate(self.fd(*fd)?, how, *at, *len).await
            }
            Call::Rename(a, b) => vfs.rename(a, b).await,
            Call::Renameat2(a, b, how) => vfs.renameat2(a, b, *how).await,
            Call::Link(a, b) => vfs.link(a, b).await,
            Call::Linkat(fd, path) => vfs.linkat(self.fd(*fd)?, path).await,
            Call::Mknod(path, kind, device) => vfs.mknod(path, *kind, 0o644, *device).await,
            Call::Mkfifo(path) => {
                vfs.mknod(path, FileType::Fifo, 0o644, DeviceNumber::default()).await
            }
            Call::Chmod(path, mode) => vfs.chmod(path, *mode).await,
            Call::Chown(path, uid, gid) => vfs.chown(path, *uid, *gid).await,
            Call::Utimensat(path, atime, mtime) => vfs.utimensat(path, *atime, *mtime).await,
            Call::Truncate(path, len) => vfs.truncate(path, *len).await,
            Call::Unlink(a) => vfs.unlink(a).await,
            Call::Mkdir(a) => vfs.mkdir(a, 0o755).await,
            Call::Rmdir(a) => vfs.rmdir(a).await,
            Call::Symlink(target, path) => vfs.symlink(target, path).await,
            Call::SetXattr { path, name, len, data } => {
                let value = data.bytes(*len);
                vfs.set_xattr(path, name, &value, XattrSet::Any).await
            }
            Call::RemoveXattr(path, name) => vfs.remove_xattr(path, name).await,
            Call::SubvolumeCreate(path) => vfs.create_subvolume(path).await,
            Call::Snapshot { from, to, readonly } => vfs.snapshot(from, to, *readonly).await,
            Call::SubvolumeDelete(path) => vfs.delete_subvolume(path).await,
            Call::Chattr(path, flags) => vfs.chattr(path, *flags).await,
            Call::Seek(..) => self.seek(call).await.map(drop),
            Call::Atomic(fd, what) => vfs.atomic_write(self.fd(*fd)?, *what).await,
            Call::Mkcp(_) => self.mkcp(call).await.map(drop),
            Call::Chcp(is_snapshot, number) => vfs.chcp(*number, *is_snapshot).await,
            Call::Rmcp(number) => vfs.rmcp(*number).await,
            Call::Pread { fd, len, at } => self.read(*fd, *at, *len).await.map(|_| ()),
            Call::Fadvise(fd, what) => self.advise(self.fd(*fd)?, *what).await,
            Call::AioWrite { .. } | Call::AioRead { .. } => self.submit(call, 0).await,
            Call::AioWait(n) => self.take_ended(*n).await.map(|_| ()),
            Call::DropCaches => {
                vfs.fs().drop_caches();
                Ok(())
            }
            Call::Mark(_) | Call::Ack(_) => Ok(()),
        }
    }

    async fn advise(&self, fd: Fd, what: Advise) -> FsResult<()> {
        match what {
            Advise::Normal => self.vfs.fadvise(fd, Advice::Normal).await,
            Advise::Sequential => self.vfs.fadvise(fd, Advice::Sequential).await,
            Advise::Random => self.vfs.fadvise(fd, Advice::Random).await,
            // Who cannot forget keeps it, and says nothing.
            Advise::DontNeed => self.vfs.fadvise_dontneed(fd).await.map(drop),
        }
    }

    /// `pwrite`, or with `atomic` an untorn one; answers how many bytes were written. Errors: as
    /// [`Player::call`].
    pub async fn write(&self, fd: u32, at: u64, data: &[Slice], atomic: bool) -> FsResult<u64> {
        let body = async {
            let fd = self.fd(fd)?;
            match atomic {
                true => self.vfs.pwrite_atomic(fd, at, &[data]).await,
                false => self.vfs.pwrite(fd, at, data).await,
            }
        };
        self.using(&[fd], body).await
    }

    /// When a file was changed last, as its file system can keep it. Errors: as for `stat`.
    pub async fn mtime(&self, path: &str) -> FsResult<TimeSpec> {
        self.vfs.stat(path).await.map(|attr| attr.mtime)
    }

    /// `lseek`; answers where it found what was looked for. Errors: as [`Player::call`].
    pub async fn seek(&self, call: &Call) -> FsResult<u64> {
        let Call::Seek(fd, what, at) = call else {
            return Err(FsError::Invalid("not seek_data or seek_hole"));
        };
        self.vfs.seek(self.fd(*fd)?, *at, *what).await
    }

    /// `mkcp`; answers the number of the newest checkpoint. Errors: as [`Player::call`].
    pub async fn mkcp(&self, call: &Call) -> FsResult<u64> {
        let Call::Mkcp(is_snapshot) = call else { return Err(FsError::Invalid("not mkcp")) };
        self.vfs.mkcp(*is_snapshot).await
    }

    /// The length that a file has after a call that would have changed it; `None`: of another call.
    /// Errors: as for `stat`.
    pub async fn size(&self, call: &Call) -> FsResult<Option<u64>> {
        Ok(match call {
            Call::Ftruncate(fd, _) | Call::Fallocate(fd, ..) => {
                Some(self.vfs.fstat(self.fd(*fd)?).await?.size)
            }
            Call::Truncate(path, _) => Some(self.vfs.stat(path).await?.size),
            _ => None,
        })
    }

    /// The flags of what a call opened or changed; `None`: of another call. Errors: as for `stat`.
    pub async fn flags(&self, call: &Call) -> FsResult<Option<FileFlags>> {
        let ino = match call {
            Call::Open(fd, ..) => self.vfs.ino(self.fd(*fd)?)?,
            Call::Chattr(path, _) => self.vfs.stat(path).await?.ino,
            _ => return Ok(None),
        };
        Ok(Some(self.vfs.fs().flags_in_memory(ino)))
    }

    /// `copy_file_range`; answers how many bytes were copied. Errors: as [`Player::call`].
    pub async fn copy(&self, call: &Call) -> FsResult<u64> {
        let Call::CopyFileRange { from, from_at, to, to_at, len } = call else {
            return Err(FsError::Invalid("not copy_file_range"));
        };
        let (source, target) = ((self.fd(*from)?, *from_at), (self.fd(*to)?, *to_at));
        self.using(&[*from, *to], self.vfs.copy_file_range(source, target, *len)).await
    }

    /// `pread`. Errors: as [`Player::call`].
    pub async fn read(&self, fd: u32, at: u64, len: u32) -> FsResult<Vec<Slice>> {
        let body = async { self.vfs.pread(self.fd(fd)?, at, u64::from(len)).await };
        self.using(&[fd], body).await
    }

    /// `io_submit` of an asynchronous call. Errors: a descriptor that is not open, or not for this;
    /// a full context. What the call answers comes with its end.
    pub async fn submit(&self, call: &Call, tag: u32) -> FsResult<()> {
        let (fd, asked) = match call {
            Call::AioWrite { fd, len, at, seed } => {
                (fd, IoCall::Write(*at, vec![contents(*seed, *at, *len)]))
            }
            Call::AioRead { fd, len, at } => (fd, IoCall::Read(*at, u64::from(*len))),
            _ => return Err(FsError::Invalid("not an asynchronous call")),
        };
        let iocb = Iocb { fd: self.fd(*fd)?, call: asked, tag: u64::from(tag) };
        let known = self.context.borrow().clone();
        let context = match known {
            Some(context) => context,
            None => {
                let made = self.vfs.io_setup(AIO_MOST).await?;
                // Another thread may have made one meanwhile.
                self.context.borrow_mut().get_or_insert(made).clone()
            }
        };
        context.submit(vec![iocb]).await.map(drop)
    }

    /// `io_getevents`: waits until at least `n` have ended, or all, and takes all that have, in the
    /// order in which they ended.
    pub async fn take_ended(&self, n: u32) -> FsResult<Vec<Ended>> {
        let Some(context) = self.context.borrow().clone() else { return Ok(Vec::new()) };
        let events = context.get_events(n as usize, AIO_MOST as usize).await?;
        Ok(events.into_iter().map(|e| Ended { tag: e.tag as u32, result: e.result }).collect())
    }

    /// The process ends: what was submitted is waited for, and everything is closed (`exit_aio`).
    /// Errors: what a close answers.
    pub async fn exit(&self) -> FsResult<()> {
        self.take_ended(AIO_MOST).await?;
        self.context.take();
        for (_, file) in self.open.take() {
            self.vfs.close(file.fd).await?;
        }
        Ok(())
    }
}

fn open_flags(f: Flags) -> OpenFlags {
    OpenFlags {
        write: f.write,
        create: f.create,
        truncate: f.truncate,
        append: f.append,
        direct: f.direct,
        dsync: f.dsync,
        sync: f.sync,
        exclusive: f.excl,
        unnamed: f.tmpfile,
    }
}
