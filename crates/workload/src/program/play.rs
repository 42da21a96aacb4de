//! A program's calls on a mounted file system of ours.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult, Ino};
use wp_medium::Slice;
use wp_vfs::{
    Advice, DeviceNumber, Fd, FileFlags, FileType, IoCall, IoContext, Iocb, OpenFlags, Reserve,
    TimeSpec, Vfs, XattrSet,
};

use super::{AIO_MOST, Advise, Alloc, Call, Flags};

/// A process that does them: its descriptors, and the context of its asynchronous calls.
pub struct Player {
    vfs: Vfs,
    open: BTreeMap<u32, Fd>,
    context: Option<IoContext>,
}

/// An asynchronous call that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// What [`Player::submit`] was given.
    pub tag: u32,
    /// Bytes read or written.
    pub result: FsResult<u64>,
}

/// From this seed on, a `pwrite` of one whole block of 4 KiB begins like a control block of a jbd2
/// journal: the magic number, a type and a low number of a transaction.
pub const MAGIC_SEED: u32 = 0xF000_0000;
/// What control blocks of a jbd2 journal begin with: data that look like one must not be taken for
/// one.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// What a `pwrite` with `seed` writes `at` for `len` bytes: no two seeds have a word in common, but
/// for the first three from [`MAGIC_SEED`] on.
pub fn contents(seed: u32, at: u64, len: u32) -> Slice {
    let data = Slice::pattern(u64::from(seed) + 1, at, len);
    if seed < MAGIC_SEED || !at.is_multiple_of(4096) || len != 4096 {
        return data;
    }
    let mut bytes = data.to_vec();
    let mixed = seed.wrapping_mul(0x9E37_79B1) >> 16;
    let (kind, tid) = (1 + mixed % 2, mixed / 2 % 48);
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..12].copy_from_slice(&tid.to_be_bytes());
    Slice::from_bytes(&bytes)
}

impl Player {
    /// Nothing is open.
    pub fn new(vfs: Vfs) -> Player {
        Player { vfs, open: BTreeMap::new(), context: None }
    }

    /// The inode behind one of the program's descriptors; `None` if it is not open.
    pub fn ino(&self, fd: u32) -> Option<Ino> {
        self.open.get(&fd).and_then(|fd| self.vfs.ino(*fd).ok())
    }

    fn fd(&self, fd: u32) -> FsResult<Fd> {
        self.open.get(&fd).copied().ok_or(FsError::BadFile)
    }

    /// Does one call; how much was read or written is left out. Errors: what the call answers;
    /// `BadFile` for a descriptor that is not open.
    pub async fn call(&mut self, call: &Call) -> FsResult<()> {
        let vfs = self.vfs.clone();
        match call {
            Call::Open(fd, path, how) => {
                let flags = open_flags(*how);
                let path = if path == "." { "/" } else { path.as_str() };
                let opened = vfs.open(path, flags, 0o644).await?;
                if let Some(old) = self.open.insert(*fd, opened) {
                    vfs.close(old).await?;
                }
                Ok(())
            }
            Call::Close(fd) => {
                let gone = self.open.remove(fd).ok_or(FsError::BadFile)?;
                vfs.close(gone).await
            }
            Call::Pwrite { fd, len, at, seed } => {
                self.write(*fd, *at, contents(*seed, *at, *len)).await.map(drop)
            }
            Call::MmapWrite { fd, len, at, seed } => {
                vfs.write_mapped(self.fd(*fd)?, *at, &[contents(*seed, *at, *len)]).await
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
            Call::SetXattr { path, name, len, seed } => {
                let value = contents(*seed, 0, *len).to_vec();
                vfs.set_xattr(path, name, &value, XattrSet::Any).await
            }
            Call::RemoveXattr(path, name) => vfs.remove_xattr(path, name).await,
            Call::Chattr(path, flags) => vfs.chattr(path, *flags).await,
            Call::Seek(..) => self.seek(call).await.map(drop),
            Call::Pread { fd, len, at } => self.read(*fd, *at, *len).await.map(|_| ()),
            Call::Fadvise(fd, what) => {
                let fd = self.fd(*fd)?;
                match what {
                    Advise::Normal => vfs.fadvise(fd, Advice::Normal).await,
                    Advise::Sequential => vfs.fadvise(fd, Advice::Sequential).await,
                    Advise::Random => vfs.fadvise(fd, Advice::Random).await,
                    // Who cannot forget keeps it, and says nothing.
                    Advise::DontNeed => vfs.fadvise_dontneed(fd).await.map(drop),
                }
            }
            Call::AioWrite { .. } | Call::AioRead { .. } => self.submit(call, 0).await,
            Call::AioWait(n) => self.take_ended(*n).await.map(|_| ()),
            Call::DropCaches => {
                vfs.fs().drop_caches();
                Ok(())
            }
            Call::Mark(_) => Ok(()),
        }
    }

    /// `pwrite`; answers how many bytes were written. Errors: as [`Player::call`].
    pub async fn write(&self, fd: u32, at: u64, data: Slice) -> FsResult<u64> {
        self.vfs.clone().pwrite(self.fd(fd)?, at, &[data]).await
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
        let (from, to) = ((self.fd(*from)?, *from_at), (self.fd(*to)?, *to_at));
        self.vfs.copy_file_range(from, to, *len).await
    }

    /// `pread`. Errors: as [`Player::call`].
    pub async fn read(&self, fd: u32, at: u64, len: u32) -> FsResult<Vec<Slice>> {
        self.vfs.clone().pread(self.fd(fd)?, at, u64::from(len)).await
    }

    /// `io_submit` of an asynchronous call. Errors: a descriptor that is not open, or not for this;
    /// a full context. What the call answers comes with its end.
    pub async fn submit(&mut self, call: &Call, tag: u32) -> FsResult<()> {
        let (fd, asked) = match call {
            Call::AioWrite { fd, len, at, seed } => {
                (fd, IoCall::Write(*at, vec![contents(*seed, *at, *len)]))
            }
            Call::AioRead { fd, len, at } => (fd, IoCall::Read(*at, u64::from(*len))),
            _ => return Err(FsError::Invalid("not an asynchronous call")),
        };
        let iocb = Iocb { fd: self.fd(*fd)?, call: asked, tag: u64::from(tag) };
        if self.context.is_none() {
            self.context = Some(self.vfs.io_setup(AIO_MOST).await?);
        }
        let context = self.context.as_ref().ok_or(FsError::Invalid("no context"))?;
        context.submit(vec![iocb]).await.map(drop)
    }

    /// `io_getevents`: waits until at least `n` have ended, or all, and takes all that have, in the
    /// order in which they ended.
    pub async fn take_ended(&self, n: u32) -> FsResult<Vec<Ended>> {
        let Some(context) = &self.context else { return Ok(Vec::new()) };
        let events = context.get_events(n as usize, AIO_MOST as usize).await?;
        Ok(events.into_iter().map(|e| Ended { tag: e.tag as u32, result: e.result }).collect())
    }

    /// The process ends: what was submitted is waited for, and everything is closed (`exit_aio`).
    /// Errors: what a close answers.
    pub async fn exit(&mut self) -> FsResult<()> {
        self.take_ended(AIO_MOST).await?;
        self.context = None;
        for (_, fd) in std::mem::take(&mut self.open) {
            self.vfs.close(fd).await?;
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
