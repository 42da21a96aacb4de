//! Names that move.
//!
//! Source: Linux `fs/f2fs/namei.c` (`f2fs_rename2`).

use std::rc::Rc;

use wp_base::{DeviceNumber, FsError, FsResult};
use wp_rt::CpuOp;
use wp_vfs::{RenameHow, may_create, may_delete};

use super::dir::Place;
use super::ino_sets::InoSet;
use super::inode::{Inode, fi};
use super::mount::F2fs;
use super::namei::check_plain;
use super::new_inode::NewInode;
use crate::disk;
use crate::disk::inode::{advise, mode};

/// `S_ISGID`: what is made in the directory has its group (`inode_init_owner`).
const SET_GROUP: u16 = 0o2000;

impl F2fs {
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
        how: RenameHow,
    ) -> FsResult<()> {
        if how == RenameHow::Exchange {
            return Box::pin(self.exchange((old_dir, old_name), (new_dir, new_name))).await;
        }
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
        if how == RenameHow::NoReplace && replaced.is_some() {
            return Err(FsError::Exists);
        }
        if replaced.as_ref().is_some_and(|r| r.ino == inode.ino) {
            return Ok(());
        }
        let is_dir = inode.is_dir();
        if is_dir && self.is_above(inode.ino, new_dir).await? {
            return Err(FsError::Invalid("a directory into itself"));
        }
        may_delete(old_dir.file_flags(), inode.file_flags())?;
        match &replaced {
            Some(r) => may_delete(new_dir.file_flags(), r.file_flags())?,
            None => may_create(new_dir.file_flags())?,
        }
        if let Some(r) = &replaced {
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
        let left = match how {
            RenameHow::Whiteout => Some(Box::pin(self.whiteout(old_dir, old_name)).await?),
            _ => None,
        };
        let same_dir = old_dir.ino == new_dir.ino;
        if same_dir && replaced.is_none() {
            self.make_room_inline(old_dir, new_name).await?;
        }
        self.balance_fs(true).await;
        self.rt.cpu(CpuOp::NameChange, 2).await;
        let op = self.lock_op().await;
        let (from, to) = ((old_dir, old_name), (new_dir, new_name));
        let moved = self.move_name(&inode, from, to, replaced.as_ref(), left.as_ref()).await;
        drop(op);
        if let Some(device) = &left {
            device.opens.set(0);
            self.free_if_unused(device).await?;
        }
        moved?;
        F2fs::unmet(&inode, old_dir.ino, old_name);
        self.met(&inode, new_dir.ino, new_name);
        if old_dir.is_dirsync() || new_dir.is_dirsync() {
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
        left: Option<&Rc<Inode>>,
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
            if is_dir && left.is_none() {
                f.pino = new_dir.ino;
            } else {
                f.advise |= advise::LOST_PINO;
            }
        });
        inode.f.borrow_mut().ctime = self.time();
        self.mark_inode_dirty(inode, self.opts.era.checkpoint_takes_dir_times());
        // Adding the new name may have moved the old one.
        let old = self.find_name(old_dir, old_name).await?.ok_or(FsError::NotFound)?;
        self.delete_name(old_dir, &old, None).await?;
        if let Some(device) = left {
            device.set(fi::INC_LINK);
            let added = self.add_link(old_dir, old_name, device).await;
            device.clear(fi::INC_LINK);
            added?;
        }
        if let Some(place) = parent {
            self.set_link(inode, &place, new_dir).await;
        }
        if is_dir {
            self.add_links(old_dir, -1);
        }
        if self.opts.fsync_mode.keeps_names() {
            self.add_ino(new_dir.ino, InoSet::TransDir);
            if is_dir {
                self.add_ino(inode.ino, InoSet::TransDir);
            }
        }
        Ok(())
    }

    /// A character device 0:0 without a name yet, in use by the caller (`f2fs_create_whiteout`).
    async fn whiteout(self: &Rc<Self>, dir: &Rc<Inode>, name: &[u8]) -> FsResult<Rc<Inode>> {
        let (parent_mode, group) = (dir.f.borrow().mode, dir.f.borrow().gid);
        let new = NewInode {
            mode: mode::CHAR_DEVICE,
            uid: 0,
            gid: if parent_mode & SET_GROUP == 0 { 0 } else { group },
            name: None,
            device: DeviceNumber::default(),
        };
        let inode = self.new_orphan(dir, &new, Some(name)).await?;
        inode.opens.set(1);
        Ok(inode)
    }

    /// Two names change places (`f2fs_cross_rename`). The caller has the `lock`s of both
    /// directories.
    async fn exchange(
        self: &Rc<Self>,
        (a_dir, a): (&Rc<Inode>, &[u8]),
        (b_dir, b): (&Rc<Inode>, &[u8]),
    ) -> FsResult<()> {
        self.check_dir(a_dir)?;
        self.check_dir(b_dir)?;
        check_plain(a)?;
        check_plain(b)?;
        let one = self.find_name(a_dir, a).await?.ok_or(FsError::NotFound)?;
        let other = self.find_name(b_dir, b).await?.ok_or(FsError::NotFound)?;
        let (x, y) = (self.iget(one.ino()).await?, self.iget(other.ino()).await?);
        if x.is_dir() && self.is_above(x.ino, b_dir).await?
            || y.is_dir() && self.is_above(y.ino, a_dir).await?
        {
            return Err(FsError::Invalid("a directory into itself"));
        }
        if x.ino == y.ino {
            return Ok(());
        }
        may_delete(a_dir.file_flags(), x.file_flags())?;
        may_delete(b_dir.file_flags(), y.file_flags())?;
        let crosses = a_dir.ino != b_dir.ino;
        let delta = match (crosses, x.is_dir(), y.is_dir()) {
            (true, true, false) => 1,
            (true, false, true) => -1,
            _ => 0,
        };
        self.balance_fs(true).await;
        self.rt.cpu(CpuOp::NameChange, 2).await;
        let op = self.lock_op().await;
        for (inode, dir) in [(&x, b_dir), (&y, a_dir)] {
            if crosses && inode.is_dir() {
                let up = self.find_name(inode, b"..").await?.ok_or(FsError::NotFound)?;
                self.set_link(inode, &up, dir).await;
            }
        }
        let now = self.time();
        for (dir, name, new, gone) in [(a_dir, a, &y, &x), (b_dir, b, &x, &y)] {
            let place = self.find_name(dir, name).await?.ok_or(FsError::NotFound)?;
            self.set_link(dir, &place, new).await;
            let other = if Rc::ptr_eq(dir, a_dir) { b_dir } else { a_dir };
            self.change(gone, |f| match crosses && f.mode & mode::TYPE == mode::DIR {
                true => f.pino = other.ino,
                false => f.advise |= advise::LOST_PINO,
            });
            dir.f.borrow_mut().ctime = now;
            let delta = if Rc::ptr_eq(dir, b_dir) { delta } else { -delta };
            if delta != 0 {
                self.add_links(dir, delta);
            }
            self.mark_inode_dirty(dir, self.opts.era.checkpoint_takes_dir_times());
        }
        if self.opts.fsync_mode.keeps_names() {
            self.add_ino(a_dir.ino, InoSet::TransDir);
            self.add_ino(b_dir.ino, InoSet::TransDir);
        }
        drop(op);
        for (inode, from, to) in [(&x, (a_dir, a), (b_dir, b)), (&y, (b_dir, b), (a_dir, a))] {
            F2fs::unmet(inode, from.0.ino, from.1);
            self.met(inode, to.0.ino, to.1);
        }
        if a_dir.is_dirsync() || b_dir.is_dirsync() {
            self.sync_checkpoint().await?;
        }
        Ok(())
    }
}
