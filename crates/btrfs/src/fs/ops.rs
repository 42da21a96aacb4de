//! What the mounted file system offers to system calls.

use std::rc::Rc;

use wp_base::{FsError, FsResult, Ino};
use wp_block::PlugGuard;
use wp_cache::{Fut, Readahead, WbControl};
use wp_medium::Slice;
use wp_vfs::{
    Attr, AttrChange, Call, DirEntry, ErrSeqCursor, FileFlags, FileSystem, FileType, Kiocb,
    NodeSpec, RenameHow, Reserve, Seek, Share, StatFs, SyncKind, TimeSpec, XattrSet,
};

use crate::disk::Timespec;
use crate::items::Set;

use super::inode::{InUse, Inode};
use super::{BLOCK, Btrfs};

/// A mounted btrfs, as [`wp_vfs::FileSystem`].
pub struct Mounted(pub Rc<Btrfs>);

/// `btrfs_xattr_handlers`.
fn check_xattr(name: &[u8]) -> FsResult<()> {
    let known: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
    if name.is_empty() || name.len() > 255 {
        return Err(FsError::Range);
    }
    match known.iter().find(|p| name.starts_with(p)) {
        Some(prefix) if name.len() > prefix.len() => Ok(()),
        Some(_) => Err(FsError::Invalid("an attribute without a name")),
        None => Err(FsError::Unsupported("extended attributes of this name".to_owned())),
    }
}

impl Mounted {
    fn file(&self, ino: Ino) -> FsResult<Rc<Inode>> {
        let inode = self.0.iget(ino.0)?;
        if inode.is_dir() { Err(FsError::IsDir) } else { Ok(inode) }
    }
}

impl FileSystem for Mounted {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn root(&self) -> Ino {
        Ino(self.0.top.root_dir)
    }

    fn lookup<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Call<'a, Ino> {
        Call::later(async move {
            let fs = &self.0;
            let found = async {
                let d = fs.dir(dir.0)?;
                if name == b"." {
                    return Ok(dir);
                }
                if name == b".." {
                    return Ok(fs.above(d.handle)?.map_or(dir, Ino));
                }
                let (_, found) = fs.find(&d, name)?.ok_or(FsError::NotFound)?;
                Ok(Ino(found.handle))
            };
            let found = found.await;
            let found = fs.settled(found).await?;
            fs.clean_new_subvols().await?;
            Ok(found)
        })
    }

    fn create<'a>(&'a self, dir: Ino, name: &'a [u8], spec: &'a NodeSpec) -> Fut<'a, Ino> {
        Box::pin(async move { self.0.make(dir.0, name, spec).await.map(Ino) })
    }

    fn unlink<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(self.0.unlink(dir.0, name, false))
    }

    fn rmdir<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(self.0.unlink(dir.0, name, true))
    }

    fn rename<'a>(
        &'a self,
        from: (Ino, &'a [u8]),
        to: (Ino, &'a [u8]),
        how: RenameHow,
    ) -> Fut<'a, ()> {
        Box::pin(self.0.rename((from.0.0, from.1), (to.0.0, to.1), how))
    }

    fn open_unnamed<'a>(
        &'a self,
        dir: Ino,
        spec: &'a NodeSpec,
        linkable: bool,
        _write: bool,
    ) -> Fut<'a, Ino> {
        Box::pin(async move { self.0.make_unnamed(dir.0, spec, linkable).await.map(Ino) })
    }

    fn write_mapped<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        data: &'a [Slice],
        ahead: &'a Readahead,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.file(ino)?;
            self.0.write_mapped(&inode, offset, data, ahead).await
        })
    }

    fn write_range<'a>(
        &'a self,
        ino: Ino,
        range: (u64, u64),
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.0.iget(ino.0)?;
            if inode.is_dir() {
                // Its mapping has no pages (`filemap_fdatawrite_wbc`).
                return Ok(());
            }
            self.0.write_and_wait(&inode, range, told).await
        })
    }

    fn can_share(&self) -> bool {
        true
    }

    fn share_range<'a>(
        &'a self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        how: Share,
    ) -> Fut<'a, u64> {
        Box::pin(async move {
            let (source, target) = (self.file(from.0)?, self.file(to.0)?);
            let (_source_use, _target_use) = (InUse::new(&source), InUse::new(&target));
            self.0.share_range((&source, from.1), (&target, to.1), len, how).await
        })
    }

    fn link<'a>(&'a self, ino: Ino, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(self.0.link(ino.0, dir.0, name))
    }

    fn read_link<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<u8>> {
        Box::pin(async move {
            let fs = &self.0;
            let inode = fs.iget(ino.0)?;
            if inode.kind() != FileType::Symlink {
                return Err(FsError::Invalid("not a symbolic link"));
            }
            let found = fs.with(|c| c.inline_data(inode.tree, inode.ino));
            fs.settled(found).await?.ok_or_else(|| {
                let expected = "the target of a symbolic link";
                FsError::corrupt("btrfs file extent", "type", 0, inode.ino, expected)
            })
        })
    }

    fn attr<'a>(&'a self, ino: Ino) -> Call<'a, Attr> {
        if let Some(inode) = self.0.inode_in_memory(ino.0) {
            return Call::now(Ok(inode.attr()));
        }
        Call::later(async move {
            let found = self.0.iget(ino.0).map(|i| i.attr());
            self.0.settled(found).await
        })
    }

    fn kind_in_memory(&self, ino: Ino) -> Option<FileType> {
        self.0.inode_in_memory(ino.0).map(|i| i.kind())
    }

    fn flags_in_memory(&self, ino: Ino) -> FileFlags {
        self.0.inode_in_memory(ino.0).map_or(FileFlags::NONE, |i| i.file_flags())
    }

    fn set_flags<'a>(&'a self, ino: Ino, flags: FileFlags) -> Fut<'a, ()> {
        Box::pin(self.0.set_file_flags(ino.0, flags))
    }

    fn seek<'a>(&'a self, ino: Ino, offset: u64, what: Seek) -> Fut<'a, u64> {
        Box::pin(self.0.seek_in(ino.0, offset, what))
    }

    fn set_attr<'a>(&'a self, ino: Ino, change: &'a AttrChange) -> Fut<'a, ()> {
        Box::pin(async move {
            let fs = &self.0;
            let inode = fs.iget(ino.0)?;
            let _user = InUse::new(&inode);
            let _lock = fs.lock_alone(&inode).await;
            fs.check_writable_in(&inode)?;
            if let Some(size) = change.size {
                if !inode.is_file() {
                    return Err(match inode.is_dir() {
                        true => FsError::IsDir,
                        false => FsError::Invalid("only regular files have a length to change"),
                    });
                }
                fs.set_length(&inode, size).await?;
            }
            let AttrChange { mode, uid, gid, atime, mtime, .. } = change;
            if mode.is_none() && uid.is_none() && gid.is_none() && atime.or(*mtime).is_none() {
                return Ok(());
            }
            let _p = fs.reserve(u64::from(!inode.is_stub())).await?;
            let time =
                |t: TimeSpec| Timespec { sec: t.secs.cast_unsigned().into(), nsec: t.nanos.into() };
            fs.stamp(&inode, false);
            inode.change(|i| {
                if let Some(mode) = mode {
                    i.mode = (i.file_type() | mode & 0o7777).into();
                }
                i.uid = uid.map_or(i.uid, Into::into);
                i.gid = gid.map_or(i.gid, Into::into);
                i.atime = atime.map_or(i.atime, time);
                i.mtime = mtime.map_or(i.mtime, time);
            });
            if inode.is_stub() {
                // Nobody keeps it (`simple_setattr`).
                return Ok(());
            }
            let done = fs.must(|c| fs.update_inode(c, &inode));
            fs.settled(done).await
        })
    }

    fn read_dir<'a>(&'a self, dir: Ino) -> Fut<'a, Vec<DirEntry>> {
        Box::pin(async move {
            let fs = &self.0;
            let d = fs.dir(dir.0)?;
            let _lock = d.lock.lock().await;
            let all = fs.with(|c| c.list_names(d.tree, d.ino, 0));
            let mut out = Vec::new();
            for (_, found) in fs.settled(all).await? {
                let kind = FileType::from_entry(found.kind).ok_or(FsError::Io)?;
                let to = found.location;
                let ino = match to.kind {
                    crate::disk::kind::ROOT_ITEM => {
                        fs.find_subvolume(&d, &found.name, to.objectid)?.handle
                    }
                    _ => fs.handle(d.tree, to.objectid)?,
                };
                out.push(DirEntry { name: found.name, ino: Ino(ino), kind });
            }
            Ok(out)
        })
    }

    fn open<'a>(&'a self, ino: Ino, write: bool) -> Call<'a, ()> {
        let open = move |inode: &Inode| {
            if write && inode.vol.is_read_only {
                return Err(FsError::ReadOnly);
            }
            inode.opens.set(inode.opens.get() + 1);
            Ok(())
        };
        if let Some(inode) = self.0.inode_in_memory(ino.0).filter(|i| !i.is_gone.get()) {
            return Call::now(open(&inode));
        }
        Call::later(async move {
            let found = self.0.iget(ino.0).and_then(|inode| open(&inode));
            self.0.settled(found).await
        })
    }

    fn create_subvolume<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(self.0.create_subvolume(dir.0, name))
    }

    fn snapshot<'a>(&'a self, source: Ino, to: (Ino, &'a [u8]), is_read_only: bool) -> Fut<'a, ()> {
        Box::pin(self.0.snapshot(source.0, (to.0.0, to.1), is_read_only))
    }

    fn delete_subvolume<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        Box::pin(self.0.delete_subvolume(dir.0, name))
    }

    fn release<'a>(&'a self, ino: Ino, _write: bool) -> Call<'a, ()> {
        let Some(inode) = self.0.inode_in_memory(ino.0) else {
            return Call::now(if self.0.is_mounted.get() { Err(FsError::BadFile) } else { Ok(()) });
        };
        let Some(n) = inode.opens.get().checked_sub(1) else {
            return Call::now(Err(FsError::BadFile));
        };
        if !self.0.is_mounted.get() {
            inode.opens.set(n);
            return Call::now(Ok(()));
        }
        let flushes = inode.flush_on_close.take() && inode.map.has_dirty();
        if !flushes && (n > 0 || !inode.is_unwanted()) {
            inode.opens.set(n);
            return Call::now(Ok(()));
        }
        Call::later(async move {
            if flushes {
                self.0.start_flush(&inode).await;
            }
            inode.opens.set(inode.opens.get().saturating_sub(1));
            match self.0.put(&inode).await {
                // The next mount deletes it.
                Err(FsError::NoSpace | FsError::ReadOnly) => Ok(()),
                other => other,
            }
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
            let inode = self.file(ino)?;
            self.0.read_data(&inode, offset, len, ahead).await
        })
    }

    fn write<'a>(&'a self, ino: Ino, offset: Option<u64>, data: &'a [Slice]) -> Call<'a, u64> {
        Call::later(async move {
            let inode = self.file(ino)?;
            let _lock = inode.lock.lock().await;
            let at = offset.unwrap_or_else(|| inode.size());
            let done = self.0.write_data(&inode, at, data).await;
            self.0.note_write(&inode);
            done
        })
    }

    fn told(&self, ino: Ino) -> ErrSeqCursor {
        let told = ErrSeqCursor::default();
        if let Some(inode) = self.0.inode_in_memory(ino.0) {
            told.data.set(inode.map.errors().sample(true));
        }
        told.fs.set(self.0.wb.errors().sample(true));
        told
    }

    fn sync_file<'a>(&'a self, ino: Ino, kind: SyncKind, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.0.iget(ino.0)?;
            if inode.is_stub() {
                // `noop_fsync`
                return Ok(());
            }
            self.0.fsync(&inode, kind, told).await
        })
    }

    fn read_direct<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        len: u64,
        io: &'a Kiocb,
    ) -> Fut<'a, Vec<Slice>> {
        Box::pin(async move {
            let inode = self.file(ino)?;
            self.0.read_direct(&inode, offset, len, io).await
        })
    }

    fn plug(&self) -> Option<PlugGuard> {
        Some(self.0.part.plug())
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
            let inode = self.file(ino)?;
            self.0.write_direct(&inode, offset, data, (sync, told), io).await
        })
    }

    fn reserve<'a>(&'a self, ino: Ino, how: Reserve, offset: u64, len: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let inode = self.file(ino)?;
            self.0.fallocate(&inode, how, offset, len).await
        })
    }

    /// `btrfs_fallocate` looks at no `O_SYNC`.
    fn sync_reserve<'a>(&'a self, _: Ino, _: Reserve, _: u64, _: u64) -> Fut<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn sync_all<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(self.0.sync_everything())
    }

    fn sync_fs<'a>(&'a self, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move {
            let done = self.0.sync_everything().await;
            let has_failed = self.0.wb.errors().check_and_advance(&told.fs);
            done.and(if has_failed { Err(FsError::Io) } else { Ok(()) })
        })
    }

    fn drop_file_cache<'a>(&'a self, ino: Ino) -> Call<'a, bool> {
        Call::later(async move {
            let inode = self.0.iget(ino.0)?;
            // Who writes is told of errors by his next sync.
            drop(inode.map.writepages(&WbControl::before_sync()).await);
            inode.map.invalidate(0, u64::MAX);
            Ok(true)
        })
    }

    fn drop_caches(&self) {
        self.0.drop_idle();
    }

    fn get_xattr<'a>(&'a self, ino: Ino, name: &'a [u8]) -> Fut<'a, Vec<u8>> {
        Box::pin(async move {
            check_xattr(name)?;
            let inode = self.0.iget(ino.0)?;
            if inode.is_stub() {
                return Err(FsError::NotInKernel);
            }
            let found = self.0.with(|c| c.xattr(inode.tree, inode.ino, name));
            self.0.settled(found).await?.ok_or(FsError::NoData)
        })
    }

    fn list_xattrs<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            let inode = self.0.iget(ino.0)?;
            let found = self.0.with(|c| c.xattrs(inode.tree, inode.ino));
            let found = found.map(|all| all.into_iter().map(|(name, _)| name).collect());
            self.0.settled(found).await
        })
    }

    fn set_xattr<'a>(
        &'a self,
        ino: Ino,
        name: &'a [u8],
        value: Option<&'a [u8]>,
        how: XattrSet,
    ) -> Fut<'a, ()> {
        Box::pin(async move {
            check_xattr(name)?;
            let fs = &self.0;
            let inode = fs.iget(ino.0)?;
            if inode.is_stub() {
                return Err(FsError::NotInKernel);
            }
            let _user = InUse::new(&inode);
            let _lock = inode.lock.lock().await;
            fs.check_writable_in(&inode)?;
            let most = fs.core.borrow().xattr_bytes_max();
            if value.is_some_and(|v| v.len() + name.len() > most) {
                return Err(FsError::NoSpace);
            }
            let _p = fs.reserve(2).await?;
            let old = fs.with(|c| c.xattr(inode.tree, inode.ino, name))?;
            match (how, old.is_some()) {
                (XattrSet::Create, true) => return Err(FsError::Exists),
                (XattrSet::Replace, false) => return Err(FsError::NoData),
                (_, false) if value.is_none() => return Err(FsError::NoData),
                _ => {}
            }
            fs.with(|c| match value {
                Some(value) => c.set_xattr(inode.tree, inode.ino, name, value, Set::Any),
                None => c.remove_xattr(inode.tree, inode.ino, name),
            })?;
            inode.logged.copy_all.set(true);
            fs.stamp(&inode, false);
            let done = fs.must(|c| fs.update_inode(c, &inode));
            fs.settled(done).await
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let fs = &self.0;
        vec![
            ("commits", fs.commits.count.get()),
            ("log_syncs", fs.logs.syncs.get()),
            ("fsyncs_that_committed", fs.logs.refused.get()),
        ]
    }

    fn notes(&self) -> Vec<String> {
        let bad = self.0.bad_data.borrow();
        bad.iter().map(|line| format!("data that could not be read: {line}")).collect()
    }

    /// `btrfs_statfs`.
    fn stat_fs<'a>(&'a self) -> Fut<'a, StatFs> {
        Box::pin(async move {
            let fs = &self.0;
            let promised = fs.data_promised.get();
            let found = fs.with(|c| {
                let all = c.super_block().total_bytes.get();
                let (used, left) = (c.space()?.bytes_used(), c.data_left());
                Ok((all, used, left))
            });
            let (all, used, left) = fs.settled(found).await?;
            let free = all.saturating_sub(used);
            Ok(StatFs {
                block_bytes: 4096,
                blocks: all / BLOCK,
                blocks_free: free / BLOCK,
                blocks_available: left.saturating_sub(promised) / BLOCK,
                inodes: 0,
                inodes_free: 0,
            })
        })
    }

    fn unmount<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(self.0.unmount())
    }
}
