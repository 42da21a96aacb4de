//! Files are made, named, renamed and dropped.
//!
//! Source: fs/btrfs/inode.c (`btrfs_create_new_inode`, `btrfs_add_link`, `btrfs_unlink_inode`,
//! `btrfs_rename`, `btrfs_link`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_rt::CpuOp;
use wp_vfs::{FileType, NodeSpec, may_create, may_delete, may_link};

use crate::core::Core;
use crate::disk::dir::NAME_MAX;
use crate::disk::inode::flag;
use crate::disk::{InodeItem, kind, wide};
use crate::items::{NameEntry, RootName};

use super::Btrfs;
use super::inode::{InUse, Inode};

/// Most names of an inode. `BTRFS_LINK_MAX`.
const LINKS_MAX: u32 = 65_535;

/// A directory, in which a name is.
pub(super) type Place<'a> = (&'a Rc<Inode>, &'a [u8]);

impl Btrfs {
    /// A directory. Errors: `NotDir`.
    pub(super) fn dir(&self, ino: u64) -> FsResult<Rc<Inode>> {
        let dir = self.iget(ino)?;
        if dir.is_dir() { Ok(dir) } else { Err(FsError::NotDir) }
    }

    /// What a name leads to. Errors: `NameTooLong`; `NotFound` for what is not there.
    pub(super) fn find(
        &self,
        dir: &Inode,
        name: &[u8],
    ) -> FsResult<Option<(NameEntry, Rc<Inode>)>> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let Some(found) = self.with(|c| c.find_name(dir.tree, dir.ino, name))? else {
            return Ok(None);
        };
        let to = found.location;
        let inode = match to.kind {
            kind::INODE_ITEM => self.iget_in(dir.tree, to.objectid)?,
            kind::ROOT_ITEM => self.find_subvolume(dir, name, to.objectid)?,
            other => {
                let (field, expected) = ("location.type", "INODE_ITEM or ROOT_ITEM");
                return Err(FsError::corrupt(
                    "btrfs directory item",
                    field,
                    0,
                    other.into(),
                    expected,
                ));
            }
        };
        Ok(Some((found, inode)))
    }

    pub(super) fn find_in(&self, (dir, name): Place<'_>) -> FsResult<Option<Rc<Inode>>> {
        Ok(self.find(dir, name)?.map(|(_, inode)| inode))
    }

    /// Can names be added here? Errors: `NotFound` if the directory was removed.
    pub(super) fn check_dir(&self, dir: &Inode) -> FsResult<()> {
        if dir.nlink() == 0 || dir.is_gone.get() { Err(FsError::NotFound) } else { Ok(()) }
    }

    /// The index of a directory's next name. `btrfs_set_inode_index`.
    pub(super) fn take_index(&self, c: &mut Core<'static>, dir: &Inode) -> FsResult<u64> {
        let next = match dir.next_index.get() {
            0 => c.next_index(dir.tree, dir.ino)?,
            n => n,
        };
        dir.next_index.set(next + 1);
        Ok(next)
    }

    /// The directory itself after a change of its names.
    fn dir_changed(
        &self,
        c: &mut Core<'static>,
        dir: &Inode,
        change: impl FnOnce(u64) -> u64,
    ) -> FsResult<()> {
        self.stamp(dir, true);
        let size = change(dir.size());
        dir.set_size(size);
        dir.disk_size.set(size);
        self.update_inode(c, dir)
    }

    /// A directory has a name more, of `bytes` bytes.
    pub(super) fn name_changed(
        &self,
        c: &mut Core<'static>,
        dir: &Inode,
        bytes: usize,
    ) -> FsResult<()> {
        self.dir_changed(c, dir, |size| size + 2 * wide(bytes))
    }

    /// Adds a name to a directory and to what it names. `btrfs_add_link`.
    pub(super) fn add_name(
        &self,
        c: &mut Core<'static>,
        (dir, name): Place<'_>,
        inode: &Inode,
        index: u64,
    ) -> FsResult<()> {
        let what = FileType::entry_of_mode(inode.item.borrow().mode.get());
        if inode.is_subvol() {
            let name = RootName { dir: dir.ino, index, name: name.to_vec() };
            c.add_root_ref(dir.tree, inode.tree, &name)?;
        }
        let to = inode.location(c)?;
        c.add_name(dir.tree, dir.ino, index, name, to, what)?;
        self.name_changed(c, dir, name.len())
    }

    /// Removes a name from both. Answers the index that it had. `__btrfs_unlink_inode`.
    pub(super) fn remove_name(
        &self,
        c: &mut Core<'static>,
        (dir, name): Place<'_>,
        inode: &Inode,
    ) -> FsResult<u64> {
        let index = match inode.is_subvol() {
            _ if inode.is_stub() => c.index_of(dir.tree, dir.ino, name),
            true => c.remove_root_ref(dir.tree, inode.tree, dir.ino, name),
            false => c.remove_ref(dir.tree, inode.ino, dir.ino, name),
        };
        let index = index.map_err(|e| match e {
            FsError::NotFound => {
                let expected = format!("a name of it in {}", dir.ino);
                FsError::corrupt("btrfs inode ref", "name", 0, inode.ino, expected)
            }
            other => other,
        })?;
        c.remove_name(dir.tree, dir.ino, index, name)?;
        self.stamp(inode, false);
        self.dir_changed(c, dir, |size| size.saturating_sub(2 * wide(name.len())))?;
        Ok(index)
    }

    /// An inode has a name less. `btrfs_unlink_inode`.
    pub(super) fn drop_name(
        &self,
        c: &mut Core<'static>,
        place: Place<'_>,
        inode: &Inode,
    ) -> FsResult<u64> {
        let index = self.remove_name(c, place, inode)?;
        if inode.is_stub() {
            if self.opts.mend.placeholder {
                place.0.logged.last_unlink.set(c.transid());
            }
            return Ok(index);
        }
        inode.change(|i| i.nlink = i.nlink.get().saturating_sub(1).into());
        if inode.is_dir() {
            inode.set_size(0);
            inode.disk_size.set(0);
        }
        self.update_inode(c, inode)?;
        if inode.nlink() == 0 {
            c.add_orphan(inode.tree, inode.ino)?;
        }
        Ok(index)
    }

    /// Makes a node.
    pub(super) async fn make(&self, dir: u64, name: &[u8], spec: &NodeSpec) -> FsResult<u64> {
        let dir = self.dir(dir)?;
        let _lock = dir.lock.lock().await;
        self.check_writable()?;
        self.check_dir(&dir)?;
        if self.find(&dir, name)?.is_some() {
            return Err(FsError::Exists);
        }
        self.check_writable_in(&dir)?;
        if dir.is_stub() {
            // It has no operation for that (`simple_dir_inode_operations`).
            return Err(match spec.kind {
                FileType::File => FsError::AccessDenied,
                _ => FsError::NotPermitted,
            });
        }
        may_create(dir.file_flags())?;
        let is_link = spec.kind == FileType::Symlink;
        if is_link && wide(spec.target.len()) > self.core.borrow().inline_bytes_max().min(4095) {
            return Err(FsError::NameTooLong);
        }
        // Inode, reference, two names, directory, and a target.
        let _p = self.reserve(5 + u64::from(is_link)).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        self.with(|c| c.check_name(dir.tree, dir.ino, name))?;
        let ino = dir.vol.take_ino();
        let done = self.must(|c| self.make_in(c, (&dir, name), ino, spec));
        self.settled(done.map(|inode| inode.handle)).await
    }

    /// `btrfs_create_new_inode`.
    pub(super) fn make_in(
        &self,
        c: &mut Core<'static>,
        (dir, name): Place<'_>,
        ino: u64,
        spec: &NodeSpec,
    ) -> FsResult<Rc<Inode>> {
        let transid = c.transid_begun()?;
        let item = self.new_item(dir, spec, transid);
        let index = self.take_index(c, dir)?;
        c.insert_inode(dir.tree, ino, &item)?;
        c.add_ref(dir.tree, ino, dir.ino, index, name)?;
        if spec.kind == FileType::Symlink {
            c.insert_inline(dir.tree, ino, &spec.target)?;
        }
        let inode = self.add_inode(&dir.vol, ino, item, true)?;
        self.note_change(&inode, transid);
        self.add_name(c, (dir, name), &inode, index)?;
        Ok(inode)
    }

    /// Makes a file that no name leads to, and opens it (`btrfs_tmpfile`). `linkable`:
    /// [`Btrfs::link`] may give it one.
    pub(super) async fn make_unnamed(
        &self,
        dir: u64,
        spec: &NodeSpec,
        linkable: bool,
    ) -> FsResult<u64> {
        let dir = self.dir(dir)?;
        if dir.is_stub() {
            return Err(FsError::NotInKernel);
        }
        self.check_writable_in(&dir)?;
        self.check_dir(&dir)?;
        // Inode and orphan.
        let _p = self.reserve(2).await?;
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        let ino = dir.vol.take_ino();
        let done = self.must(|c| {
            let transid = c.transid_begun()?;
            let mut item = self.new_item(&dir, spec, transid);
            item.nlink = 0.into();
            c.insert_inode(dir.tree, ino, &item)?;
            c.add_orphan(dir.tree, ino)?;
            let inode = self.add_inode(&dir.vol, ino, item, true)?;
            inode.linkable.set(linkable);
            inode.opens.set(1);
            self.note_change(&inode, transid);
            Ok(inode)
        });
        self.settled(done.map(|inode| inode.handle)).await
    }

    pub(super) fn new_item(&self, dir: &Inode, spec: &NodeSpec, transid: u64) -> InodeItem {
        let mut item = InodeItem::zeroed();
        let now = self.time();
        (item.generation, item.transid) = (transid.into(), transid.into());
        item.nlink = 1.into();
        (item.uid, item.gid) = (spec.uid.into(), spec.gid.into());
        item.rdev = u64::from(spec.device.kernel()).into();
        item.mode = (spec.kind.mode_bits() | spec.mode & 0o7777).into();
        (item.atime, item.mtime, item.ctime, item.otime) = (now, now, now, now);
        let inherited = dir.item.borrow().flags.get() & (flag::NOCOMPRESS | flag::COMPRESS);
        let mut flags = inherited;
        if dir.has(flag::NODATACOW) {
            flags |= flag::NODATACOW;
            if spec.kind == FileType::File {
                flags |= flag::NODATASUM;
            }
        }
        if spec.kind == FileType::File {
            if !self.opts.datasum {
                flags |= flag::NODATASUM;
            }
            if !self.opts.datacow {
                flags |= flag::NODATACOW | flag::NODATASUM;
            }
        }
        if spec.kind == FileType::Symlink {
            let n = wide(spec.target.len());
            (item.size, item.nbytes) = (n.into(), n.into());
        }
        item.flags = flags.into();
        item
    }

    /// Removes a name that is not a directory's, or (`is_dir`) that of an empty directory.
    pub(super) async fn unlink(&self, dir: u64, name: &[u8], is_dir: bool) -> FsResult<()> {
        let dir = self.dir(dir)?;
        let lock = dir.lock.lock().await;
        self.check_writable()?;
        let inode = self.find_in((&dir, name))?.ok_or(FsError::NotFound)?;
        self.check_writable_in(&dir)?;
        may_delete(dir.file_flags(), inode.file_flags())?;
        // Who makes a name in it, or is in the middle of a call on it, comes first.
        let victim = inode.lock.lock().await;
        match (inode.is_dir(), is_dir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            (true, true) if inode.size() > 0 => return Err(FsError::NotEmpty),
            _ => {}
        }
        if inode.is_subvol() {
            let done = self.unname_subvol((&dir, name), &inode).await;
            drop((victim, lock));
            done?;
            return self.forget_subvol(&inode.vol).await;
        }
        // Names, reference, inode, directory, orphan.
        let p = self.reserve_removal(6).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        let again = self.find_in((&dir, name))?;
        if !again.is_some_and(|i| Rc::ptr_eq(&i, &inode)) || inode.is_dir() && inode.size() > 0 {
            return Err(FsError::NotEmpty);
        }
        let done = self.must(|c| self.drop_name(c, (&dir, name), &inode));
        if let Ok(index) = done {
            if is_dir {
                self.note_rmdir(&dir, &inode);
            }
            self.note_unlink(&dir, &inode);
            self.forget_logged_name((&dir, name), &inode, index);
        }
        let done = self.settled(done).await;
        drop((p, victim, lock));
        done?;
        self.put_quietly(&inode).await
    }

    /// The name is gone; that space could not be given back yet is no error of the call.
    pub(super) async fn put_quietly(&self, inode: &Rc<Inode>) -> FsResult<()> {
        match self.put(inode).await {
            Err(FsError::NoSpace) => Ok(()),
            other => other,
        }
    }

    /// Adds a name to an inode. `btrfs_link`.
    pub(super) async fn link(&self, ino: u64, dir: u64, name: &[u8]) -> FsResult<()> {
        let dir = self.dir(dir)?;
        let inode = self.iget(ino)?;
        let _user = InUse::new(&inode);
        let _lock = dir.lock.lock().await;
        self.check_writable()?;
        self.check_dir(&dir)?;
        if self.find(&dir, name)?.is_some() {
            return Err(FsError::Exists);
        }
        self.check_writable_in(&dir)?;
        if dir.is_stub() {
            return Err(FsError::NotPermitted);
        }
        may_link(dir.file_flags(), inode.file_flags())?;
        // `vfs_link` refuses directories before the file system is asked.
        if inode.is_dir() {
            return Err(FsError::NotPermitted);
        }
        if inode.tree != dir.tree {
            return Err(FsError::CrossDevice);
        }
        let _target = inode.lock.lock().await;
        if inode.nlink() >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        // Reference, two names, inode, directory, and an orphan.
        let _p = self.reserve(5 + u64::from(inode.nlink() == 0)).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        let is_first = inode.nlink() == 0;
        if is_first && !inode.linkable.get() {
            return Err(FsError::NotFound);
        }
        self.with(|c| c.check_name(dir.tree, dir.ino, name))?;
        let index = self.with(|c| self.take_index(c, &dir))?;
        // The one step that may find no room.
        self.with(|c| c.add_ref(inode.tree, inode.ino, dir.ino, index, name))?;
        let done = self.must(|c| {
            inode.change(|i| i.nlink = (i.nlink.get() + 1).into());
            self.stamp(&inode, false);
            self.add_name(c, (&dir, name), &inode, index)?;
            self.update_inode(c, &inode)?;
            if is_first {
                c.remove_orphan(inode.tree, inode.ino)?;
            }
            Ok(())
        });
        inode.linkable.set(false);
        inode.logged.copy_all.set(true);
        if done.is_ok() {
            self.log_new_name(&inode, None);
        }
        self.settled(done).await
    }
}
