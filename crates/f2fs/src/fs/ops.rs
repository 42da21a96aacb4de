//! What the mounted file system offers to system calls.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Ino};
use wp_block::PlugGuard;
use wp_cache::{Fut, Readahead, WbControl};
use wp_medium::Slice;
use wp_vfs::{
    AtomicWrite, Attr, AttrChange, Call, DirEntry, ErrSeqCursor, FileFlags, FileSystem, FileType,
    InUse, Kiocb, NodeSpec, Opened, Reserve, Seek, StatFs, SyncKind, XattrSet, closed, opened,
};

use super::data::block_range;
use super::inode::{Inode, fi};
use super::mount::F2fs;
use crate::disk;
use crate::disk::inode::flag;
use crate::site;

/// A mounted F2FS, as [`wp_vfs::FileSystem`].
pub struct Mounted(pub Rc<F2fs>);

impl Mounted {
    async fn get(&self, ino: Ino) -> FsResult<Rc<Inode>> {
        let n = u32::try_from(ino.0).map_err(|_| FsError::NotFound)?;
        self.0.iget(n).await
    }

    async fn dir(&self, ino: Ino) -> FsResult<Rc<Inode>> {
        let d = self.get(ino).await?;
        if d.is_dir() { Ok(d) } else { Err(FsError::NotDir) }
    }

    /// Ends a use of an inode: if its last name went meanwhile, it is freed now.
    async fn done<T>(&self, user: InUse<Inode>, out: FsResult<T>) -> FsResult<T> {
        let inode = user.0.clone();
        drop(user);
        let freed = self.0.free_if_unused(&inode).await;
        let value = out?;
        freed.map(|()| value)
    }

    /// Changes attributes (`f2fs_setattr`); the caller holds the inode's `lock`.
    async fn change(&self, inode: &Rc<Inode>, change: &AttrChange) -> FsResult<()> {
        self.0.check_writable()?;
        if inode.gone.get() {
            return Err(FsError::NotFound);
        }
        self.0.check_mutable(inode)?;
        let AttrChange { size, mode, uid, gid, atime, mtime } = change;
        let others = mode.is_some() || uid.is_some() || gid.is_some();
        let sets_times = atime.is_some() || mtime.is_some();
        if (others || sets_times) && inode.has_flag(flag::APPEND) {
            return Err(FsError::NotPermitted);
        }
        if let Some(size) = size {
            if inode.is_dir() {
                return Err(FsError::IsDir);
            }
            if !inode.is_file() {
                return Err(FsError::Invalid("only regular files have a length to change"));
            }
            self.0.set_length(inode, *size).await?;
        }
        let others = others || sets_times;
        if others {
            let now = self.0.time();
            let mut f = inode.f.borrow_mut();
            if let Some(m) = mode {
                f.mode = f.mode & disk::inode::mode::TYPE | (*m & 0o7777) as u16;
            }
            (f.uid, f.gid) = (uid.unwrap_or(f.uid), gid.unwrap_or(f.gid));
            (f.atime, f.mtime) = (atime.unwrap_or(f.atime), mtime.unwrap_or(f.mtime));
            f.ctime = now;
        }
        if others || size.is_some() {
            self.0.mark_inode_dirty(inode, true);
            self.0.balance_fs(true).await;
        }
        Ok(())
    }
}

impl Opened for Inode {
    fn opens(&self) -> &Cell<u32> {
        &self.opens
    }
    fn writers(&self) -> &Cell<u32> {
        &self.writers
    }
    fn is_gone(&self) -> bool {
        self.gone.get()
    }
    fn is_immutable(&self) -> bool {
        self.has_flag(flag::IMMUTABLE)
    }
}

impl FileSystem for Mounted {
    wp_vfs::inode_calls!();

    fn name(&self) -> &'static str {
        "f2fs"
    }

    fn root(&self) -> Ino {
        Ino(u64::from(disk::nid::ROOT))
    }

    fn lookup<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Call<'a, Ino> {
        Call::later(async move {
            let d = self.dir(dir).await?;
            let _lock = d.lock.lock().await;
            if name == b"." {
                return Ok(dir);
            }
            let place = self.0.find_name(&d, name).await?.ok_or(FsError::NotFound)?;
            let inode = self.0.iget(place.ino()).await?;
            self.0.met(&inode, d.ino, name);
            Ok(Ino(u64::from(inode.ino)))
        })
    }

    fn read_link<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<u8>> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            if inode.kind() != FileType::Symlink {
                return Err(FsError::Invalid("not a symbolic link"));
            }
            let user = InUse::new(&inode);
            let got = self
                .0
                .read_data(&inode, 0, inode.size.get().min(4096), &Readahead::default())
                .await;
            let out = got.map(|all| Slice::concat(&all));
            self.done(user, out).await
        })
    }

    fn attr<'a>(&'a self, ino: Ino) -> Call<'a, Attr> {
        if let Some(inode) = self.0.files.inodes.borrow().get(ino.0) {
            return Call::now(Ok(inode.attr()));
        }
        Call::later(async move { Ok(self.get(ino).await?.attr()) })
    }

    fn kind_in_memory(&self, ino: Ino) -> Option<FileType> {
        self.0.files.inodes.borrow().get(ino.0).map(|inode| inode.kind())
    }

    fn flags_in_memory(&self, ino: Ino) -> FileFlags {
        let inodes = self.0.files.inodes.borrow();
        inodes.get(ino.0).map_or(FileFlags::NONE, |inode| inode.file_flags())
    }

    fn set_flags<'a>(&'a self, ino: Ino, flags: FileFlags) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            let user = InUse::new(&inode);
            let lock = self.0.lock_alone(&inode).await;
            let out = match inode.gone.get() {
                true => Err(FsError::NotFound),
                false => self.0.set_file_flags(&inode, flags),
            };
            drop(lock);
            self.done(user, out).await
        })
    }

    fn checks_immutable_writes(&self) -> bool {
        true
    }

    fn seek<'a>(&'a self, ino: Ino, offset: u64, what: Seek) -> Fut<'a, u64> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            let user = InUse::new(&inode);
            let out = self.0.seek_in(&inode, offset, what).await;
            self.done(user, out).await
        })
    }

    fn read_dir<'a>(&'a self, dir: Ino) -> Fut<'a, Vec<DirEntry>> {
        Box::pin(async move {
            let d = self.dir(dir).await?;
            let _lock = d.lock.lock().await;
            let mut all = Vec::new();
            self.0
                .each_name(&d, |n| {
                    if n.name != b"." && n.name != b".." {
                        let kind = FileType::from_entry(n.entry.file_type);
                        all.push((n.name.to_vec(), n.entry.ino.get(), kind));
                    }
                })
                .await?;
            let mut out = Vec::with_capacity(all.len());
            for (name, ino, kind) in all {
                let kind = match kind {
                    Some(kind) => kind,
                    None => self.0.iget(ino).await?.kind(),
                };
                out.push(DirEntry { name, ino: Ino(u64::from(ino)), kind });
            }
            Ok(out)
        })
    }

    fn open<'a>(&'a self, ino: Ino, write: bool) -> Call<'a, ()> {
        if let Some(inode) = self.0.files.inodes.borrow().get(ino.0) {
            return Call::now(opened(&**inode, write));
        }
        Call::later(async move { opened(&*self.get(ino).await?, write) })
    }

    fn release<'a>(&'a self, ino: Ino, write: bool) -> Call<'a, ()> {
        let is_last = move |inode: &Inode| write && inode.writers.get() == 1;
        if let Some(inode) = self.0.files.inodes.borrow().get(ino.0)
            && inode.nlink() > 0
            && !(inode.is(fi::ATOMIC) && is_last(inode))
        {
            return Call::now(closed(&**inode, write));
        }
        Call::later(async move {
            let inode = self.get(ino).await?;
            if is_last(&inode) {
                self.0.abort_unfinished(&inode).await;
            }
            closed(&*inode, write)?;
            self.0.free_if_unused(&inode).await
        })
    }

    fn write<'a>(&'a self, ino: Ino, offset: Option<u64>, data: &'a [Slice]) -> Call<'a, u64> {
        Call::later(async move {
            let inode = self.get(ino).await?;
            if inode.is_dir() {
                return Err(FsError::IsDir);
            }
            let user = InUse::new(&inode);
            let lock = self.0.lock_for_write(&inode).await;
            let at = offset.unwrap_or(inode.size.get());
            let out = self.0.write_data(&inode, at, data).await;
            drop(lock);
            self.done(user, out).await
        })
    }

    fn told(&self, ino: Ino) -> ErrSeqCursor {
        let inodes = self.0.files.inodes.borrow();
        inodes.get(ino.0).map(|inode| self.0.told(inode)).unwrap_or_default()
    }

    fn drop_file_cache<'a>(&'a self, ino: Ino) -> Call<'a, bool> {
        Call::later(async move {
            let inode = self.get(ino).await?;
            // Who writes is told of errors by his next sync.
            drop(inode.map.writepages(&WbControl::before_sync()).await);
            inode.map.invalidate(0, u64::MAX);
            Ok(true)
        })
    }

    fn drop_caches(&self) {
        self.0.drop_file_caches();
        self.0.nodes.invalidate(0, u64::MAX);
        self.0.meta.invalidate(0, u64::MAX);
    }

    fn sync_file<'a>(&'a self, ino: Ino, kind: SyncKind, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            let user = InUse::new(&inode);
            let out = self.0.fsync(&inode, kind, (0, u64::MAX), told).await;
            self.done(user, out).await
        })
    }

    fn sync_range<'a>(
        &'a self,
        ino: Ino,
        kind: SyncKind,
        (from, to): (u64, u64),
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            let user = InUse::new(&inode);
            let out = match site::SYNC_WRITE.on() {
                true => self.0.fsync(&inode, kind, block_range(from, to), told).await,
                false => Ok(()),
            };
            self.done(user, out).await
        })
    }

    fn plug(&self) -> Option<PlugGuard> {
        Some(self.0.io.part().plug())
    }

    fn write_direct<'a>(
        &'a self,
        ino: Ino,
        offset: Option<u64>,
        data: &'a [Slice],
        sync: Option<SyncKind>,
        told: &'a ErrSeqCursor,
        io: &'a Kiocb,
    ) -> Fut<'a, u64> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            if inode.is_dir() {
                return Err(FsError::IsDir);
            }
            let user = InUse::new(&inode);
            let out = self.0.write_direct(&inode, offset, data, (sync, told), io).await;
            self.done(user, out).await
        })
    }

    fn reserve<'a>(&'a self, ino: Ino, how: Reserve, offset: u64, len: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            let user = InUse::new(&inode);
            let lock = self.0.lock_alone(&inode).await;
            let out = match inode.gone.get() {
                true => Err(FsError::NotFound),
                false => match self.0.check_mutable(&inode) {
                    Ok(()) => self.0.reserve_space(&inode, how, offset, len).await,
                    e => e,
                },
            };
            drop(lock);
            self.done(user, out).await
        })
    }

    /// `f2fs_fallocate` does not look at `O_SYNC`.
    fn sync_reserve<'a>(&'a self, _: Ino, _: Reserve, _: u64, _: u64) -> Fut<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn has_atomic_writes(&self) -> bool {
        true
    }

    fn atomic_write<'a>(
        &'a self,
        ino: Ino,
        what: AtomicWrite,
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.get(ino).await?;
            let user = InUse::new(&inode);
            let out = self.0.atomic_write(&inode, what, told).await;
            self.done(user, out).await
        })
    }

    fn stat_fs<'a>(&'a self) -> Fut<'a, StatFs> {
        Box::pin(async move { Ok(self.0.stat()) })
    }

    fn unmount<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(async move {
            self.0.abort_all().await;
            self.0.unmount_all().await
        })
    }
}
