//! What the mounted file system offers to system calls.

use std::rc::Rc;

use wp_base::{FsError, FsResult, Ino};
use wp_cache::{Fut, Readahead};
use wp_medium::Slice;
use wp_rt::CpuOp;
use wp_vfs::{
    Attr, AttrChange, Call, Checkpointing, DirEntry, ErrSeqCursor, FileFlags, FileSystem, FileType,
    Kiocb, NodeSpec, RenameHow, Reserve, StatFs, SyncKind, TimeSpec,
};

use super::Nilfs;
use super::file_flags::flags_of;
use crate::disk;

/// A mounted NILFS2, as [`wp_vfs::FileSystem`].
pub struct Mounted(pub Rc<Nilfs>);

fn time(secs: u64, nanos: u32) -> TimeSpec {
    TimeSpec { secs: secs.cast_signed(), nanos }
}

impl Mounted {
    /// The work of freeing inode `number`, which is about to lose a name, if it has `last` links or
    /// fewer and is not open.
    async fn freeing(&self, number: u64, last: u16) {
        let is_open = self.0.opens.borrow().get(&number).is_some_and(|n| *n > 0);
        if self.0.inode(number).is_ok_and(|i| i.links_count.get() <= last) && !is_open {
            self.0.rt.cpu(CpuOp::InodeChange, 1).await;
        }
    }

    pub(super) fn file(&self, ino: Ino) -> FsResult<disk::Inode> {
        let inode = self.0.inode(ino.0)?;
        if inode.is_dir() { Err(FsError::IsDir) } else { Ok(inode) }
    }

    fn get_attr(&self, ino: Ino) -> FsResult<Attr> {
        let i = self.0.inode(ino.0)?;
        let mode = i.mode.get().into();
        let mtime = time(i.mtime.get(), i.mtime_nsec.get());
        Ok(Attr {
            ino,
            kind: FileType::from_mode(mode).ok_or(FsError::Io)?,
            mode: mode & 0o7777,
            nlink: i.links_count.get().into(),
            uid: i.uid.get(),
            gid: i.gid.get(),
            size: i.size.get(),
            blocks_512: i.blocks.get(),
            device: i.device(),
            // Access times are not kept.
            atime: mtime,
            mtime,
            ctime: time(i.ctime.get(), i.ctime_nsec.get()),
        })
    }

    /// Writes through memory, at the end without an offset; where, and how many bytes.
    async fn write_at(
        &self,
        ino: Ino,
        offset: Option<u64>,
        data: &[Slice],
    ) -> FsResult<(u64, u64)> {
        let _inode = self.0.lock_inode(ino.0).await;
        let at = offset.unwrap_or(self.file(ino)?.size.get());
        self.0.write_bytes(ino.0, at, data).await.map(|written| (at, written))
    }

    /// Forgets clean blocks of those files that `which` names. Those of directories stay, as what
    /// is known of their names does.
    fn drop_clean(&self, which: impl Fn(u64) -> bool) {
        let is_dir = |number| self.0.inode(number).is_ok_and(|i| i.is_dir());
        self.0.pages.drop_clean(|number| which(number) && !is_dir(number));
    }
}

impl FileSystem for Mounted {
    fn name(&self) -> &'static str {
        "nilfs2"
    }

    fn root(&self) -> Ino {
        Ino(disk::ino::ROOT)
    }

    fn lookup<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Call<'a, Ino> {
        Call::later(async move {
            self.0.load_dir(dir.0).await?;
            let found = self.0.find_name(dir.0, name)?;
            // The inode is read with it.
            let known = self.0.inode(found.ino).map(|_| Ino(found.ino));
            self.0.settled(known).await
        })
    }

    fn create<'a>(&'a self, dir: Ino, name: &'a [u8], spec: &'a NodeSpec) -> Fut<'a, Ino> {
        Box::pin(async move {
            let sem = self.0.begin().await?;
            self.0.load_dir(dir.0).await?;
            self.0.rt.cpu(CpuOp::NameChange, 1).await;
            self.0.rt.cpu(CpuOp::InodeChange, 1).await;
            let made = self.0.make(dir.0, name, spec).map(Ino);
            let made = self.0.settled(made).await?;
            drop(sem);
            self.0.sync_names(&[dir.0]).await.map(|()| made)
        })
    }

    fn unlink<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(async move {
            let sem = self.0.begin().await?;
            self.0.load_dir(dir.0).await?;
            if let Ok(found) = self.0.find_name(dir.0, name) {
                self.0.rt.cpu(CpuOp::NameChange, 1).await;
                self.freeing(found.ino, 1).await;
            }
            let done = self.0.unlink_name(dir.0, name);
            self.0.settled(done).await?;
            drop(sem);
            self.0.sync_names(&[dir.0]).await
        })
    }

    fn rmdir<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(async move {
            let sem = self.0.begin().await?;
            self.0.load_dir(dir.0).await?;
            let found = self.0.find_name(dir.0, name)?;
            self.0.load_dir(found.ino).await?;
            self.0.rt.cpu(CpuOp::NameChange, 1).await;
            self.freeing(found.ino, 2).await;
            let done = self.0.remove_dir(dir.0, name);
            self.0.settled(done).await?;
            drop(sem);
            self.0.sync_names(&[dir.0]).await
        })
    }

    /// `nilfs_rename` knows no flag but `RENAME_NOREPLACE`.
    fn rename<'a>(
        &'a self,
        from: (Ino, &'a [u8]),
        to: (Ino, &'a [u8]),
        how: RenameHow,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            let fs = &self.0;
            let sem = fs.begin().await?;
            fs.load_dir(from.0.0).await?;
            fs.load_dir(to.0.0).await?;
            let moved = fs.find_name(from.0.0, from.1)?.ino;
            if fs.inode(moved)?.is_dir() {
                if fs.is_above(moved, to.0.0).await? {
                    return Err(FsError::Invalid("a directory cannot move into itself"));
                }
                fs.load_dir(moved).await?;
            }
            if how == RenameHow::NoReplace && fs.find_name(to.0.0, to.1).is_ok() {
                return Err(FsError::Exists);
            }
            if matches!(how, RenameHow::Exchange | RenameHow::Whiteout) {
                fs.check_special_rename((from.0.0, from.1), (to.0.0, to.1), how)?;
                return Err(FsError::Invalid("NILFS2 has no RENAME_EXCHANGE or RENAME_WHITEOUT"));
            }
            fs.rt.cpu(CpuOp::NameChange, 2).await;
            if let Ok(old) = fs.find_name(to.0.0, to.1) {
                let is_dir = fs.inode(old.ino)?.is_dir();
                if is_dir {
                    fs.load_dir(old.ino).await?;
                }
                if old.ino != moved {
                    self.freeing(old.ino, if is_dir { 2 } else { 1 }).await;
                }
            }
            let done = fs.move_name((from.0.0, from.1), (to.0.0, to.1));
            fs.settled(done).await?;
            drop(sem);
            fs.sync_names(&[from.0.0, to.0.0]).await
        })
    }

    fn link<'a>(&'a self, ino: Ino, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(async move {
            let sem = self.0.begin().await?;
            self.0.load_dir(dir.0).await?;
            self.0.rt.cpu(CpuOp::NameChange, 1).await;
            let done = self.0.link_name(ino.0, dir.0, name);
            self.0.settled(done).await?;
            drop(sem);
            self.0.sync_names(&[dir.0]).await
        })
    }

    fn read_link<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<u8>> {
        Box::pin(async move {
            let inode = self.0.inode(ino.0)?;
            if !inode.is_symlink() {
                return Err(FsError::Invalid("not a symbolic link"));
            }
            // Longer ones are not made.
            let most = self.0.g.block_bytes() as u64;
            if inode.size.get() > most {
                let (found, expected) = (inode.size.get(), format!("1 to {most}"));
                return Err(FsError::corrupt("nilfs2 symlink", "i_size", 0, found, expected));
            }
            let all = self.0.read_bytes(ino.0, 0, most, &Readahead::default()).await?;
            Ok(Slice::concat(&all))
        })
    }

    fn attr<'a>(&'a self, ino: Ino) -> Call<'a, Attr> {
        Call::now(self.get_attr(ino))
    }

    fn flags_in_memory(&self, ino: Ino) -> FileFlags {
        self.0.inode(ino.0).map_or(FileFlags::NONE, |i| flags_of(&i))
    }

    fn set_flags<'a>(&'a self, ino: Ino, flags: FileFlags) -> Fut<'a, ()> {
        Box::pin(self.0.set_file_flags(ino.0, flags))
    }

    fn set_attr<'a>(&'a self, ino: Ino, change: &'a AttrChange) -> Fut<'a, ()> {
        Box::pin(async move {
            let fs = &self.0;
            let inode = fs.lock_inode(ino.0).await;
            let sem = fs.begin().await?;
            let cuts =
                change.size.is_some_and(|size| fs.inode(ino.0).is_ok_and(|i| i.size.get() != size));
            if let Some(size) = change.size {
                if !self.file(ino)?.is_file() {
                    return Err(FsError::Invalid("only regular files have a length to change"));
                }
                fs.set_length(ino.0, size).await?;
            }
            let done = fs.change(ino.0, true, |i| {
                if let Some(mode) = change.mode {
                    let bits = u16::try_from(mode & 0o7777).unwrap_or(0);
                    i.mode = (i.kind() | bits).into();
                }
                i.uid = change.uid.map_or(i.uid, Into::into);
                i.gid = change.gid.map_or(i.gid, Into::into);
                fs.stamp(i, false);
                if let Some(t) = change.mtime {
                    (i.mtime, i.mtime_nsec) = (t.secs.cast_unsigned().into(), t.nanos.into());
                }
            });
            fs.settled(done).await?;
            drop((sem, inode));
            // `nilfs_truncate`
            if cuts { fs.sync_with(ino.0).await } else { Ok(()) }
        })
    }

    fn read_dir<'a>(&'a self, dir: Ino) -> Fut<'a, Vec<DirEntry>> {
        Box::pin(async move {
            self.0.load_dir(dir.0).await?;
            let mut out = Vec::new();
            for n in self.0.all_names(dir.0)? {
                if n.name == b"." || n.name == b".." {
                    continue;
                }
                let kind = n.kind.ok_or(FsError::Io)?;
                out.push(DirEntry { name: n.name, ino: Ino(n.ino), kind });
            }
            Ok(out)
        })
    }

    fn open<'a>(&'a self, ino: Ino, _write: bool) -> Call<'a, ()> {
        Call::now(self.0.inode(ino.0).map(|_| {
            *self.0.opens.borrow_mut().entry(ino.0).or_default() += 1;
        }))
    }

    fn release<'a>(&'a self, ino: Ino, _write: bool) -> Call<'a, ()> {
        let last = match self.0.opens.borrow_mut().get_mut(&ino.0) {
            Some(n) if *n > 0 => {
                *n -= 1;
                *n == 0
            }
            _ => return Call::now(Err(FsError::BadFile)),
        };
        let has_name = |i: disk::Inode| i.links_count.get() > 0;
        if !last || !self.0.is_mounted.get() || self.0.inode(ino.0).is_ok_and(has_name) {
            return Call::now(Ok(()));
        }
        Call::later(async move {
            let _sem = self.0.sem.lock().await;
            self.0.rt.cpu(CpuOp::InodeChange, 1).await;
            let done = self.0.drop_if_unused(ino.0);
            self.0.settled(done).await
        })
    }

    fn read<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        len: u64,
        ahead: &'a Readahead,
    ) -> Fut<'a, Vec<Slice>> {
        Box::pin(async move {
            self.file(ino)?;
            let read = self.0.read_bytes(ino.0, offset, len, ahead).await;
            self.0.settled(read).await
        })
    }

    fn write<'a>(&'a self, ino: Ino, offset: Option<u64>, data: &'a [Slice]) -> Call<'a, u64> {
        Call::later(
            async move { self.write_at(ino, offset, data).await.map(|(_, written)| written) },
        )
    }

    fn read_direct<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        len: u64,
        _io: &'a Kiocb,
    ) -> Fut<'a, Vec<Slice>> {
        Box::pin(async move { self.read(ino, offset, len, &Readahead::default()).await })
    }

    /// There is no direct write (`nilfs_direct_IO` answers 0 for one): it goes through memory, and
    /// the caller of that sends what it wrote as a log, waits, and drops it from memory
    /// (`direct_write_fallback`; before 6.6 `__generic_file_write_iter`, of old
    /// `__generic_file_aio_write`).
    fn write_direct<'a>(
        &'a self,
        ino: Ino,
        offset: Option<u64>,
        data: &'a [Slice],
        sync: Option<SyncKind>,
        _told: &'a ErrSeqCursor,
        _io: &'a Kiocb,
    ) -> Fut<'a, u64> {
        Box::pin(async move {
            let fs = &self.0;
            self.invalidate(ino, offset, data).await?;
            let (at, written) = self.write_at(ino, offset, data).await?;
            fs.through_memory.set(fs.through_memory.get() + 1);
            if written > 0 {
                let bits = fs.g.block_bits;
                let (from, to) = (at >> bits, (at + written - 1) >> bits);
                fs.write_data(ino.0, from, to).await?;
                // No log is on its way whose blocks would have to be read again.
                let _sem = fs.sem.lock().await;
                fs.pages.inode(ino.0).map.invalidate(from, to + 1);
            }
            if let Some(kind) = sync
                && written > 0
            {
                // Of what it has written, not of the file (`generic_write_sync`).
                self.sync(ino.0, kind, (at, at + written - 1)).await?;
            }
            Ok(written)
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("direct_writes_through_cache", self.0.through_memory.get())]
    }

    fn notes(&self) -> Vec<String> {
        match self.0.through_memory.get() {
            0 => Vec::new(),
            n => vec![format!(
                "NILFS2 has no direct writes: {n} with O_DIRECT went through the page cache, each \
                 as a log of its own, as in Linux"
            )],
        }
    }

    fn write_mapped<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        data: &'a [Slice],
        ahead: &'a Readahead,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            // A fault takes no lock of the inode's: a store beside a `write` is one of both orders.
            let _inode = self.0.lock_inode(ino.0).await;
            self.file(ino)?;
            self.0.store_mapped(ino.0, offset, data, ahead).await
        })
    }

    fn write_range<'a>(
        &'a self,
        ino: Ino,
        range: (u64, u64),
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        Box::pin(self.write_and_wait(ino, range, told))
    }

    fn told(&self, ino: Ino) -> ErrSeqCursor {
        let pages = &self.0.pages;
        let told = ErrSeqCursor::default();
        told.data.set(pages.inode(ino.0).map.errors().sample(true));
        told.fs.set(pages.wb.errors().sample(true));
        told
    }

    fn sync_file<'a>(&'a self, ino: Ino, kind: SyncKind, _told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move { self.sync(ino.0, kind, (0, u64::MAX)).await })
    }

    fn sync_range<'a>(
        &'a self,
        ino: Ino,
        kind: SyncKind,
        (from, to): (u64, u64),
        _told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        Box::pin(async move { self.sync(ino.0, kind, (from, to.saturating_sub(1))).await })
    }

    /// `nilfs_file_operations` has none.
    fn reserve<'a>(&'a self, _: Ino, _: Reserve, _: u64, _: u64) -> Fut<'a, ()> {
        Box::pin(async { Err(FsError::NotInKernel) })
    }

    fn sync_reserve<'a>(
        &'a self,
        _ino: Ino,
        _how: Reserve,
        _offset: u64,
        _len: u64,
    ) -> Fut<'a, ()> {
        Box::pin(async { Err(FsError::NotInKernel) })
    }

    /// `ksys_sync`: `nilfs_sync_fs` twice, behind what is dirty.
    fn sync_all<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(async move {
            self.sync_inodes().await;
            self.flush_super().await?;
            self.sync_rest().await
        })
    }

    /// `sync_filesystem`: `nilfs_sync_fs` before what is dirty, too.
    fn sync_fs<'a>(&'a self, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move {
            let done = async {
                self.flush_super().await?;
                self.sync_inodes().await;
                self.sync_rest().await
            };
            let done = done.await;
            let has_failed = self.0.pages.wb.errors().check_and_advance(&told.fs);
            done.and(if has_failed { Err(FsError::Io) } else { Ok(()) })
        })
    }

    /// Nothing is written by that (`nilfs_writepages`).
    fn drop_file_cache<'a>(&'a self, ino: Ino) -> Call<'a, bool> {
        self.drop_clean(|number| number == ino.0);
        Call::now(Ok(true))
    }

    fn drop_caches(&self) {
        self.drop_clean(|_| true);
    }

    fn checkpoint<'a>(&'a self, what: Checkpointing) -> Fut<'a, u64> {
        Box::pin(self.0.checkpoint(what))
    }

    fn stat_fs<'a>(&'a self) -> Fut<'a, StatFs> {
        Box::pin(async move {
            let fs = &self.0;
            let free = fs.store.borrow_mut().segments_free()?;
            let inodes = fs.store.borrow().inodes();
            let (per, reserved) = (fs.g.segment_blocks, fs.g.reserved_segments());
            Ok(StatFs {
                block_bytes: 1 << fs.g.block_bits,
                blocks: fs.g.segments * per,
                blocks_free: free.saturating_mul(per),
                blocks_available: free.saturating_sub(reserved).saturating_mul(per),
                inodes: inodes.saturating_add(fs.g.ifile.group_entries),
                inodes_free: fs.g.ifile.group_entries,
            })
        })
    }

    fn unmount<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(async move {
            // What cannot be written is lost, and told; the unmount goes on as Linux's does.
            let fs = &self.0;
            if !fs.is_mounted.get() {
                return Err(FsError::ReadOnly);
            }
            fs.stop_cleaner().await;
            let synced = self.sync_all().await;
            fs.is_mounted.set(false);
            let finished = fs.finish().await;
            fs.segctor.stop();
            fs.pages.wb.stop();
            if !fs.has_failed.get() {
                fs.note_unmount().await?;
                fs.flush_device().await?;
            }
            synced.and(finished)
        })
    }
}
