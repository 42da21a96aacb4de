//! Names made, linked, moved and removed.
//!
//! Source: Linux `fs/f2fs/namei.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::Slice;
use wp_rt::CpuOp;
use wp_vfs::{FileType, NodeSpec};

use super::dir::Place;
use super::ino_sets::InoSet;
use super::inode::{Inode, fi};
use super::mount::{F2fs, FsyncMode};
use super::new_inode::NewInode;
use crate::disk::inode::{advise, flag};
use crate::disk::{self, addr};

/// Longest target of a symbolic link (`PATH_MAX`, one block with its 0).
const TARGET_MAX: usize = 4095;

fn check_name(name: &[u8]) -> FsResult<()> {
    if name.len() > disk::Inode::NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid("a name"));
    }
    Ok(())
}

fn check_plain(name: &[u8]) -> FsResult<()> {
    check_name(name)?;
    match name {
        b"." => Err(FsError::Invalid("the directory itself")),
        b".." => Err(FsError::NotEmpty),
        _ => Ok(()),
    }
}

impl F2fs {
    /// Is it a directory that can be changed? Errors: `NotFound`, `NotPermitted`, `ReadOnly`, `Io`.
    fn check_dir(&self, dir: &Inode) -> FsResult<()> {
        self.check_writable()?;
        self.note_request();
        if dir.gone.get() || dir.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        self.check_mutable(dir)
    }

    /// Errors: `NotPermitted` for a file that is never changed.
    pub(super) fn check_mutable(&self, inode: &Inode) -> FsResult<()> {
        if inode.has_flag(flag::IMMUTABLE) { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    /// Remembers a name by which a file was met (its dentry), so that an fsync can find its
    /// directory.
    pub(super) fn met(&self, inode: &Inode, dir: u32, name: &[u8]) {
        if inode.is_dir() {
            return;
        }
        let mut all = inode.aliases.borrow_mut();
        if !all.iter().any(|(d, n)| *d == dir && n == name) {
            all.push((dir, name.to_vec()));
        }
    }

    fn unmet(inode: &Inode, dir: u32, name: &[u8]) {
        inode.aliases.borrow_mut().retain(|(d, n)| !(*d == dir && n == name));
    }

    /// Makes a node (`f2fs_create`, `f2fs_mkdir`, `f2fs_symlink`, `f2fs_mknod`). The caller has the
    /// directory's `lock`.
    ///
    /// Errors: `Exists`, `NoSpace`, `NameTooLong`.
    pub(super) async fn create_node(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        spec: &NodeSpec,
    ) -> FsResult<Rc<Inode>> {
        self.check_dir(dir)?;
        check_name(name)?;
        if matches!(name, b"." | b"..") || self.find_name(dir, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        let is_link = spec.kind == FileType::Symlink;
        if is_link && spec.target.len() > TARGET_MAX {
            return Err(FsError::NameTooLong);
        }
        if is_link && spec.target.is_empty() {
            return Err(FsError::NotFound);
        }
        let mode = if is_link { 0o777 } else { spec.mode & 0o7777 };
        let new = NewInode {
            mode: (spec.kind.mode_bits() | mode) as u16,
            uid: spec.uid,
            gid: spec.gid,
            name: (spec.kind == FileType::File).then_some(name),
        };
        self.rt.cpu(CpuOp::NameChange, 1).await;
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        let inode = self.new_inode(dir, &new).await?;
        inode.opens.set(1);
        let made = self.fill_node(dir, name, spec, &inode).await;
        inode.opens.set(0);
        if made.is_err() {
            self.free_if_unused(&inode).await?;
        }
        made.map(|()| inode)
    }

    async fn fill_node(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        spec: &NodeSpec,
        inode: &Rc<Inode>,
    ) -> FsResult<()> {
        if inode.is_dir() {
            inode.set(fi::INC_LINK);
        }
        let op = self.lock_op().await;
        if let Err(e) = self.add_link(dir, name, inode).await {
            self.fail_new(inode).await?;
            drop(op);
            return Err(e);
        }
        drop(op);
        self.alloc_nid_done(inode.ino);
        self.met(inode, dir.ino, name);
        if spec.kind == FileType::Symlink {
            let target = [Slice::from_bytes(&spec.target)];
            let wrote = self.write_data(inode, 0, &target).await;
            let arrived = match wrote {
                Ok(_) => self.write_back(inode, 0, spec.target.len() as u64).await,
                Err(e) => Err(e),
            };
            if let Err(e) = arrived {
                self.unlink_found(dir, name, inode).await?;
                return Err(e);
            }
        }
        if dir.has_flag(flag::DIRSYNC) {
            self.sync_checkpoint().await?;
        }
        self.balance_fs(true).await;
        Ok(())
    }

    /// Undoes what was made of a new inode (`f2fs_handle_failed_inode`).
    async fn fail_new(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        inode.clear(fi::INC_LINK);
        inode.f.borrow_mut().nlink = 0;
        let has_node = self.nat(inode.ino).await?.blk_addr != addr::NULL;
        if has_node {
            inode.clear(fi::NEW);
            self.update_inode_page(inode).await?;
            match self.acquire_orphan() {
                Ok(()) => self.add_orphan(inode.ino),
                Err(_) => self.set_need_fsck(),
            }
            self.alloc_nid_done(inode.ino);
        } else {
            // Nothing of it is anywhere.
            inode.gone.set(true);
            self.alloc_nid_failed(inode.ino);
            self.forget_inode(inode);
        }
        self.mark_inode_synced(inode);
        Ok(())
    }

    /// Adds a name to an inode (`f2fs_link`). The caller has the directory's `lock`.
    pub(super) async fn link_name(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<()> {
        self.check_dir(dir)?;
        check_name(name)?;
        if matches!(name, b"." | b"..") || self.find_name(dir, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        if inode.is_dir() {
            return Err(FsError::NotPermitted);
        }
        self.check_mutable(inode)?;
        if inode.gone.get() || inode.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        if inode.nlink() == u32::MAX {
            return Err(FsError::TooManyLinks);
        }
        self.balance_fs(true).await;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        inode.f.borrow_mut().ctime = self.time();
        inode.set(fi::INC_LINK);
        let op = self.lock_op().await;
        let added = self.add_link(dir, name, inode).await;
        inode.clear(fi::INC_LINK);
        drop(op);
        added?;
        self.met(inode, dir.ino, name);
        if dir.has_flag(flag::DIRSYNC) {
            self.sync_checkpoint().await?;
        }
        Ok(())
    }

    /// Removes a name; `rmdir`: of a directory. The caller has the directory's `lock`.
    ///
    /// Errors: `NotFound`, `IsDir`, `NotDir`, `NotEmpty`.
    pub(super) async fn unlink_name(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        rmdir: bool,
    ) -> FsResult<()> {
        self.check_dir(dir)?;
        if rmdir {
            check_plain(name)?;
        } else {
            check_name(name)?;
        }
        let place = self.find_name(dir, name).await?.ok_or(FsError::NotFound)?;
        let inode = self.iget(place.ino()).await?;
        match (inode.is_dir(), rmdir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            _ => {}
        }
        self.check_mutable(&inode)?;
        let inner = if rmdir { Some(inode.lock.lock().await) } else { None };
        if rmdir && !self.is_empty_dir(&inode).await? {
            return Err(FsError::NotEmpty);
        }
        self.unlink_found(dir, name, &inode).await?;
        drop(inner);
        self.free_if_unused(&inode).await
    }

    /// `f2fs_unlink`.
    async fn unlink_found(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        inode: &Rc<Inode>,
    ) -> FsResult<()> {
        if inode.nlink() == 0 {
            self.set_need_fsck();
            let at = self.node_at(inode.ino).await;
            let expected = format!("1 or more (inode {})", inode.ino);
            return Err(FsError::corrupt("f2fs inode", "i_links", at, 0, expected));
        }
        self.balance_fs(true).await;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        let op = self.lock_op().await;
        let place = self.find_name(dir, name).await?.ok_or(FsError::NotFound)?;
        self.acquire_orphan()?;
        F2fs::unmet(inode, dir.ino, name);
        self.delete_name(dir, &place, Some(inode)).await?;
        drop(op);
        if dir.has_flag(flag::DIRSYNC) {
            self.sync_checkpoint().await?;
        }
        Ok(())
    }

    /// Is directory `above` on the way from `dir` to the root, or `dir` itself?
    pub(super) async fn is_above(self: &Rc<Self>, above: u32, dir: &Rc<Inode>) -> FsResult<bool> {
        let mut at = dir.clone();
        // A ring of directories in a broken image must not hold us for ever.
        for _ in 0..1 << 16 {
            if at.ino == above {
                return Ok(true);
            }
            if at.ino == disk::nid::ROOT {
                return Ok(false);
            }
            let Some(parent) = self.find_name(&at, b"..").await? else { return Ok(false) };
            at = self.iget(parent.ino()).await?;
        }
        Ok(false)
    }

    /// Moves a name (`f2fs_rename`). The caller has the `lock`s of both directories.
    pub(super) async fn rename_name(
        self: &Rc<Self>,
        (old_dir, old_name): (&Rc<Inode>, &[u8]),
        (new_dir, new_name): (&Rc<Inode>, &[u8]),
    ) -> FsResult<()> {
        self.check_dir(old_dir)?;
        self.check_dir(new_dir)?;
        check_plain(old_name)?;
        check_plain(new_name)?;
        let found = self.find_name(old_dir, old_name).await?.ok_or(FsError::NotFound)?;
        let inode = self.iget(found.ino()).await?;
        let replaced = match self.find_name(new_dir, new_name).await? {
            Some(place) => Some(self.iget(place.ino()).await?),
            None => None,
        };
        if replaced.as_ref().is_some_and(|r| r.ino == inode.ino) {
            return Ok(());
        }
        self.check_mutable(&inode)?;
        let is_dir = inode.is_dir();
        if is_dir && self.is_above(inode.ino, new_dir).await? {
            return Err(FsError::Invalid("a directory into itself"));
        }
        if let Some(r) = &replaced {
            self.check_mutable(r)?;
            match (is_dir, r.is_dir()) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                (true, true) if r.ino == old_dir.ino || !self.is_empty_dir(r).await? => {
                    return Err(FsError::NotEmpty);
                }
                _ => {}
            }
        }
        let victim = replaced.clone().filter(|r| r.is_dir());
        let held = match &victim {
            Some(r) => Some(r.lock.lock().await),
            None => None,
        };
        if let Some(r) = &victim
            && !self.is_empty_dir(r).await?
        {
            return Err(FsError::NotEmpty);
        }
        let same_dir = old_dir.ino == new_dir.ino;
        if same_dir && replaced.is_none() {
            self.make_room_inline(old_dir, new_name).await?;
        }
        self.balance_fs(true).await;
        self.rt.cpu(CpuOp::NameChange, 2).await;
        let op = self.lock_op().await;
        let (from, to) = ((old_dir, old_name), (new_dir, new_name));
        self.move_name(&inode, from, to, replaced.as_ref()).await?;
        drop(op);
        F2fs::unmet(&inode, old_dir.ino, old_name);
        self.met(&inode, new_dir.ino, new_name);
        if old_dir.has_flag(flag::DIRSYNC) || new_dir.has_flag(flag::DIRSYNC) {
            self.sync_checkpoint().await?;
        }
        drop(held);
        match replaced {
            Some(r) => {
                F2fs::unmet(&r, new_dir.ino, new_name);
                self.free_if_unused(&r).await
            }
            None => Ok(()),
        }
    }

    /// What of a rename a checkpoint does not divide.
    async fn move_name(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (old_dir, old_name): (&Rc<Inode>, &[u8]),
        (new_dir, new_name): (&Rc<Inode>, &[u8]),
        replaced: Option<&Rc<Inode>>,
    ) -> FsResult<()> {
        let is_dir = inode.is_dir();
        let same_dir = old_dir.ino == new_dir.ino;
        let parent: Option<Place> = match is_dir && !same_dir {
            true => self.find_name(inode, b"..").await?,
            false => None,
        };
        match replaced {
            Some(r) => {
                self.acquire_orphan()?;
                let place = self.find_name(new_dir, new_name).await?.ok_or(FsError::NotFound)?;
                self.set_link(new_dir, &place, inode).await;
                r.f.borrow_mut().ctime = self.time();
                if is_dir {
                    self.add_links(r, -1);
                }
                self.add_links(r, -1);
                self.orphan_or_not(r).await?;
            }
            None => {
                self.add_link(new_dir, new_name, inode).await?;
                if is_dir {
                    self.add_links(new_dir, 1);
                }
            }
        }
        self.change(inode, |f| {
            if is_dir {
                f.pino = new_dir.ino;
            } else {
                f.advise |= advise::LOST_PINO;
            }
        });
        inode.f.borrow_mut().ctime = self.time();
        self.mark_inode_dirty(inode, self.opts.era.checkpoint_takes_dir_times);
        // Adding the new name may have moved the old one.
        let old = self.find_name(old_dir, old_name).await?.ok_or(FsError::NotFound)?;
        self.delete_name(old_dir, &old, None).await?;
        if let Some(place) = parent {
            self.set_link(inode, &place, new_dir).await;
        }
        if is_dir {
            self.add_links(old_dir, -1);
        }
        if matches!(self.opts.fsync_mode, FsyncMode::Strict | FsyncMode::StrictFixed) {
            self.add_ino(new_dir.ino, InoSet::TransDir);
            if is_dir {
                self.add_ino(inode.ino, InoSet::TransDir);
            }
        }
        Ok(())
    }
}
