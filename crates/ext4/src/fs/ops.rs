//! The file system as the VFS sees it.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Ino};
use wp_block::{AtomicLimits, PlugGuard};
use wp_cache::{Fut, Readahead, WbControl};
use wp_medium::Slice;
use wp_rt::soon;
use wp_vfs::{
    Attr, AttrChange, Call, DirEntry, ErrSeqCursor, FileFlags, FileSystem, FileType, InUse,
    JournalConflict, Kiocb, NodeSpec, Opened, Reserve, Seek, StatFs, SyncKind, XattrSet, closed,
    is_open, opened,
};

use super::inode::Inode;
use super::mount::Ext4;
use crate::disk;

/// A mounted ext4, as an object.
pub struct Mounted(pub Rc<Ext4>);

impl Mounted {
    fn get(&self, ino: Ino) -> Call<'_, Rc<Inode>> {
        match u32::try_from(ino.0) {
            Ok(n) => self.0.inode(n),
            Err(_) => Call::now(Err(FsError::NotFound)),
        }
    }

    fn dir(&self, ino: Ino) -> Call<'_, Rc<Inode>> {
        let dir = |d: Rc<Inode>| if d.is_dir() { Ok(d) } else { Err(FsError::NotDir) };
        match self.get(ino) {
            Call::Now(Some(found)) => Call::now(found.and_then(dir)),
            found => Call::later(async move { found.await.and_then(dir) }),
        }
    }

    /// [`FileSystem::lookup`] where it need not wait. `None`: it may have to, or something is
    /// wrong.
    fn lookup_now(&self, dir: Ino, name: &[u8]) -> Option<FsResult<Ino>> {
        let inodes = self.0.inodes.borrow();
        let d = inodes.get(dir.0)?;
        let Some(place) = self.0.find_now(d, name)? else {
            self.0.note_missing(d.ino, name);
            return Some(Err(FsError::NotFound));
        };
        inodes.contains(u64::from(place.ino)).then(|| Ok(Ino(u64::from(place.ino))))
    }

    fn sectors(&self) -> u32 {
        self.0.bs().sectors()
    }

    /// Ends a use of an inode: if its last name went meanwhile, it is freed now.
    fn done<'a, T: 'a>(&'a self, user: InUse<Inode>, out: FsResult<T>) -> Call<'a, T> {
        if user.0.nlink() > 0 {
            return Call::now(out);
        }
        let inode = user.0.clone();
        drop(user);
        Call::later(async move {
            let freed = self.0.free_if_unused(&inode).await;
            let value = out?;
            freed.map(|()| value)
        })
    }

    /// Changes attributes; the caller holds the inode's `lock`.
    async fn change(&self, inode: &Rc<Inode>, change: &AttrChange) -> FsResult<()> {
        if inode.gone.get() {
            return Err(FsError::NotFound);
        }
        self.0.check_mutable(inode)?;
        if let Some(size) = change.size {
            if inode.is_dir() {
                return Err(FsError::IsDir);
            }
            if inode.kind() != FileType::File {
                return Err(FsError::Invalid("only regular files have a length to change"));
            }
            self.0.set_size(inode, size).await?;
        }
        let AttrChange { size: _, mode, uid, gid, atime, mtime } = change;
        if mode.is_none() && uid.is_none() && gid.is_none() && atime.is_none() && mtime.is_none() {
            return Ok(());
        }
        {
            let mut d = inode.disk.borrow_mut();
            if let Some(m) = mode {
                d.mode = ((d.mode.get() & 0xF000) | (*m & 0o7777) as u16).into();
            }
            let (u, g) = (uid.unwrap_or(d.uid()), gid.unwrap_or(d.gid()));
            d.set_owner(u, g);
        }
        if let Some(t) = atime {
            inode.set_atime(*t);
        }
        if let Some(t) = mtime {
            inode.set_mtime(*t);
        }
        inode.set_ctime(self.0.time());
        soon!(self.0.dirty_inode(inode))
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
        self.has(disk::inode::flag::IMMUTABLE)
    }
}

impl FileSystem for Mounted {
    wp_vfs::inode_calls!();

    fn name(&self) -> &'static str {
        "ext4"
    }

    fn trim<'a>(&'a self, start: u64, len: u64, least: u64) -> Fut<'a, u64> {
        Box::pin(self.0.fstrim(start, len, least))
    }

    fn root(&self) -> Ino {
        Ino(u64::from(disk::ino::ROOT))
    }

    fn lookup<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Call<'a, Ino> {
        if let Some(found) = self.lookup_now(dir, name) {
            return Call::now(found);
        }
        Call::later(async move {
            let d = soon!(self.dir(dir))?;
            loop {
                let place = soon!(self.0.find(&d, name))?.ok_or(FsError::NotFound)?;
                // With the inode in memory the caller's next call does not wait for it. While it
                // was read, the name may have gone, and the number become another file's.
                let waits = !self.0.inodes.borrow().contains(u64::from(place.ino));
                let inode = soon!(self.0.inode(place.ino));
                if !waits {
                    return inode.map(|_| Ino(u64::from(place.ino)));
                }
                let now = soon!(self.0.find(&d, name))?.ok_or(FsError::NotFound)?;
                if now.ino == place.ino {
                    return inode.map(|_| Ino(u64::from(place.ino)));
                }
            }
        })
    }

    fn read_link<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<u8>> {
        Box::pin(async move {
            let inode = soon!(self.get(ino))?;
            if inode.kind() != FileType::Symlink {
                return Err(FsError::Invalid("not a symbolic link"));
            }
            if inode.disk.borrow().is_fast_symlink(self.sectors()) && inode.map.is_empty() {
                let n = (inode.size.get() as usize).min(disk::Inode::FAST_SYMLINK_MAX);
                return Ok(inode.disk.borrow().block[..n].to_vec());
            }
            // Its first block but for a NUL, whatever a damaged inode says (`ext4_get_link`).
            let len = inode.size.get().min(u64::from(self.0.bs().bytes()) - 1);
            let got = self.0.read_data(&inode, 0, len, &Readahead::default()).await?;
            Ok(Slice::concat(&got))
        })
    }

    fn attr<'a>(&'a self, ino: Ino) -> Call<'a, Attr> {
        if let Some(inode) = self.0.inodes.borrow().get(ino.0) {
            return Call::now(Ok(inode.attr(self.sectors())));
        }
        Call::later(async move { Ok(soon!(self.get(ino))?.attr(self.sectors())) })
    }

    fn kind_in_memory(&self, ino: Ino) -> Option<FileType> {
        self.0.inodes.borrow().get(ino.0).map(|inode| inode.kind())
    }

    fn flags_in_memory(&self, ino: Ino) -> FileFlags {
        self.0.inodes.borrow().get(ino.0).map_or(FileFlags::NONE, |inode| inode.file_flags())
    }

    fn atomic_limits(&self, ino: Ino) -> Option<AtomicLimits> {
        let inodes = self.0.inodes.borrow();
        inodes.get(ino.0).and_then(|inode| self.0.untorn_limits(inode))
    }

    fn set_flags<'a>(&'a self, ino: Ino, flags: FileFlags) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let lock = self.0.lock_alone(&inode).await;
            let out = match inode.gone.get() {
                true => Err(FsError::NotFound),
                false => self.0.set_file_flags(&inode, flags).await,
            };
            drop(lock);
            soon!(self.done(user, out))
        })
    }

    fn checks_immutable_writes(&self) -> bool {
        true
    }

    fn seek<'a>(&'a self, ino: Ino, offset: u64, what: Seek) -> Fut<'a, u64> {
        Box::pin(async move {
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let out = self.0.seek_in(&inode, offset, what).await;
            soon!(self.done(user, out))
        })
    }

    fn read_dir<'a>(&'a self, dir: Ino) -> Fut<'a, Vec<DirEntry>> {
        Box::pin(async move {
            let d = soon!(self.dir(dir))?;
            let mut out = Vec::new();
            for (name, ino, kind) in self.0.list(&d).await? {
                if name == b"." || name == b".." {
                    continue;
                }
                let kind = match FileType::from_entry(kind) {
                    Some(kind) => kind,
                    None => soon!(self.0.inode(ino))?.kind(),
                };
                out.push(DirEntry { name, ino: Ino(u64::from(ino)), kind });
            }
            Ok(out)
        })
    }

    fn open<'a>(&'a self, ino: Ino, write: bool) -> Call<'a, ()> {
        if self.0.mount_point_sampled.get()
            && let Some(inode) = self.0.inodes.borrow().get(ino.0)
        {
            return Call::now(opened(&**inode, write));
        }
        Call::later(async move {
            let inode = soon!(self.get(ino))?;
            if !inode.gone.get() && inode.disk.borrow().is_file() {
                self.0.sample_mount_point().await?;
            }
            opened(&*inode, write)
        })
    }

    fn release<'a>(&'a self, ino: Ino, write: bool) -> Call<'a, ()> {
        if let Some(inode) = self.0.inodes.borrow().get(ino.0)
            && !inode.alloc_on_close.get()
            && inode.nlink() > 0
        {
            self.0.closing(inode, write);
            return Call::now(closed(&**inode, write));
        }
        Call::later(async move {
            let inode = soon!(self.get(ino))?;
            if is_open(&*inode, write)
                && inode.alloc_on_close.replace(false)
                && crate::site::CLOSE_ALLOC.on()
            {
                self.0.allocate_promised(&inode).await;
            }
            self.0.closing(&inode, write);
            closed(&*inode, write)?;
            self.0.free_if_unused(&inode).await
        })
    }

    fn write<'a>(&'a self, ino: Ino, offset: Option<u64>, data: &'a [Slice]) -> Call<'a, u64> {
        let inode = self.0.inodes.borrow().get(ino.0).cloned();
        if let Some(done) = inode.and_then(|inode| self.0.write_now(&inode, offset, data)) {
            return done;
        }
        Call::later(async move {
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let mutex = self.0.lock_alone(&inode).await;
            let at = offset.unwrap_or(inode.size.get());
            let out = self.0.write_data(&inode, at, data).await;
            drop(mutex);
            soon!(self.done(user, out))
        })
    }

    fn has_copy_range(&self) -> bool {
        self.0.opts.era.has_copy_file_range()
    }

    fn told(&self, ino: Ino) -> ErrSeqCursor {
        self.0.inodes.borrow().get(ino.0).map(|inode| self.0.told(inode)).unwrap_or_default()
    }

    fn drop_file_cache<'a>(&'a self, ino: Ino) -> Call<'a, bool> {
        Call::later(async move {
            let inode = self.get(ino).await?;
            // Who writes is told of errors by his next sync.
            drop(inode.map.writepages(&WbControl::before_sync()).await);
            self.0.drop_pages(&inode);
            Ok(true)
        })
    }

    fn drop_caches(&self) {
        self.0.drop_caches();
    }

    fn sync_file<'a>(&'a self, ino: Ino, kind: SyncKind, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let out = self.0.fsync(&inode, kind, told).await;
            soon!(self.done(user, out))
        })
    }

    fn order_file<'a>(&'a self, ino: Ino, data_only: bool, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let out = self.0.order_file(&inode, data_only, told).await;
            soon!(self.done(user, out))
        })
    }

    fn journal_conflicts(&self) -> Vec<JournalConflict> {
        self.0.journal_conflicts()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.journal_handle().counters().named()
    }

    fn append_syncs_elsewhere(&self) -> bool {
        self.0.opts.era.append_syncs_elsewhere()
    }

    fn sync_range<'a>(
        &'a self,
        ino: Ino,
        kind: SyncKind,
        (from, to): (u64, u64),
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let bs = u64::from(self.0.bs().bytes());
            let range = (from / bs, to.max(from + 1).div_ceil(bs) - 1);
            let out = match crate::site::SYNC_WRITE.on() {
                true => self.0.fsync_range(&inode, kind, range, told).await,
                false => Ok(()),
            };
            soon!(self.done(user, out))
        })
    }

    fn plug(&self) -> Option<PlugGuard> {
        Some(self.0.bdev.queue().plug())
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
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let out = self.0.write_direct(&inode, offset, data, (sync, told), io).await;
            soon!(self.done(user, out))
        })
    }

    fn reserve<'a>(&'a self, ino: Ino, how: Reserve, offset: u64, len: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = soon!(self.get(ino))?;
            let user = InUse::new(&inode);
            let out = self.0.reserve(&inode, how, offset, len).await;
            soon!(self.done(user, out))
        })
    }

    /// Only `ext4_fallocate` without a mode of its own, and `ext4_zero_range` where it zeroes parts
    /// of blocks, look at `O_SYNC`.
    fn sync_reserve<'a>(&'a self, ino: Ino, how: Reserve, offset: u64, len: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let whole = (offset | len).is_multiple_of(u64::from(self.0.bs().bytes()));
            match how {
                Reserve::Space { .. } => {}
                Reserve::Zero { .. } if !whole => {}
                _ => return Ok(()),
            }
            let inode = soon!(self.get(ino))?;
            if !self.0.opts.era.space_is_synchronous() || !crate::site::SYNC_RESERVE.on() {
                return Ok(());
            }
            let tid = inode.sync_tid.get();
            match how {
                Reserve::Space { .. } if self.0.fast.is_on() => {
                    self.0.fast_commit(&inode, tid).await
                }
                _ => self.0.journal().make_durable(tid).await,
            }
        })
    }

    fn stat_fs<'a>(&'a self) -> Fut<'a, StatFs> {
        Box::pin(async move {
            let sb = self.0.sb.borrow();
            let free = self.0.groups.free_blocks.get().saturating_sub(self.0.reserved_blocks.get());
            let free = free << self.0.geo.cluster_bits;
            Ok(StatFs {
                block_bytes: self.0.bs().bytes(),
                blocks: sb.blocks_count(),
                blocks_free: free,
                blocks_available: free.saturating_sub(sb.r_blocks_count()),
                inodes: u64::from(sb.inodes_count.get()),
                inodes_free: self.0.groups.free_inodes.get(),
            })
        })
    }

    fn unmount<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(async move { self.0.unmount_all().await })
    }

    fn error_recorded_on_disk(&self) -> bool {
        self.0.journal().error_recorded_on_disk()
    }
}
