//! A program's calls on a mounted file system of ours.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult, Ino};
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs, XattrSet};

use super::{Alloc, Call, Flags};

/// A process that does them: its descriptors.
pub struct Player {
    vfs: Vfs,
    open: BTreeMap<u32, Fd>,
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
        Player { vfs, open: BTreeMap::new() }
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
                };
                vfs.fallocate(self.fd(*fd)?, how, *at, *len).await
            }
            Call::Rename(a, b) => vfs.rename(a, b).await,
            Call::Link(a, b) => vfs.link(a, b).await,
            Call::Unlink(a) => vfs.unlink(a).await,
            Call::Mkdir(a) => vfs.mkdir(a, 0o755).await,
            Call::Rmdir(a) => vfs.rmdir(a).await,
            Call::Symlink(target, path) => vfs.symlink(target, path).await,
            Call::SetXattr { path, name, len, seed } => {
                let value = contents(*seed, 0, *len).to_vec();
                vfs.set_xattr(path, name, &value, XattrSet::Any).await
            }
            Call::RemoveXattr(path, name) => vfs.remove_xattr(path, name).await,
            Call::Pread { fd, len, at } => self.read(*fd, *at, *len).await.map(|_| ()),
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

    /// `pread`. Errors: as [`Player::call`].
    pub async fn read(&self, fd: u32, at: u64, len: u32) -> FsResult<Vec<Slice>> {
        self.vfs.clone().pread(self.fd(fd)?, at, u64::from(len)).await
    }

    /// The process ends: everything is closed. Errors: what a close answers.
    pub async fn exit(&mut self) -> FsResult<()> {
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
        direct: f.direct,
        dsync: f.dsync,
        sync: f.sync,
        ..OpenFlags::READ
    }
}
