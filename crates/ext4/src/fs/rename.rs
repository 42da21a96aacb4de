//! Names that move.
//!
//! Source: Linux `fs/ext4/namei.c` (`ext4_rename`, `ext4_cross_rename`).

use std::rc::Rc;

use wp_base::{DeviceNumber, FsError, FsResult};
use wp_jbd2::Handle;
use wp_rt::{CpuOp, soon};
use wp_vfs::RenameHow;

use super::data::RETRIES;
use super::dir::Place;
use super::fast_commit::Ineligible;
use super::inode::{Inode, NewInode};
use super::mount::Ext4;
use super::namei::{CREDITS_NAME, LINK_MAX};
use crate::disk::inode::{flag, mode};
use crate::disk::ro_compat;

/// Revoke credits for taking a whiteout back.
const REVOKES_WHITEOUT: u32 = 16;

/// `S_ISGID`: what is made in the directory has its group (`inode_init_owner`).
const SET_GROUP: u16 = 0o2000;

impl Ext4 {
    /// Is `ino` the directory `dir` or one of its parents?
    pub(super) async fn is_above(self: &Rc<Self>, ino: u32, dir: &Rc<Inode>) -> FsResult<bool> {
        let mut at = dir.clone();
        for _ in 0..self.geo.inodes_count {
            if at.ino == ino {
                return Ok(true);
            }
            if at.ino == crate::disk::ino::ROOT {
                return Ok(false);
            }
            let up = soon!(self.find(&at, b".."))?.ok_or(FsError::NotFound)?;
            at = soon!(self.inode(up.ino))?;
        }
        Err(FsError::corrupt("ext4 directory", "..", 0, u64::from(dir.ino), "a way up to the root"))
    }

    /// Moves a name. The caller holds `rename_lock` and both directories' locks.
    pub(super) async fn rename_name(
        self: &Rc<Self>,
        (from_dir, from): (&Rc<Inode>, &[u8]),
        (to_dir, to): (&Rc<Inode>, &[u8]),
        how: RenameHow,
    ) -> FsResult<()> {
        self.check_has(how)?;
        if how == RenameHow::Exchange {
            return Box::pin(self.exchange((from_dir, from), (to_dir, to))).await;
        }
        let mut tries = 0;
        loop {
            match self.rename_once((from_dir, from), (to_dir, to), how).await {
                Err(FsError::NoSpace) if tries < RETRIES && self.commit_for_space().await? => {
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Errors: what kernels before `renameat2` answer, and those that do not know what it asks for.
    fn check_has(&self, how: RenameHow) -> FsResult<()> {
        let era = &self.opts.era;
        match how {
            RenameHow::Replace => Ok(()),
            _ if !era.has_renameat2() => Err(FsError::NoSuchCall),
            RenameHow::Whiteout if !era.has_whiteout() => {
                Err(FsError::Invalid("RENAME_WHITEOUT came with 3.18"))
            }
            _ => Ok(()),
        }
    }

    async fn rename_once(
        self: &Rc<Self>,
        (from_dir, from): (&Rc<Inode>, &[u8]),
        (to_dir, to): (&Rc<Inode>, &[u8]),
        how: RenameHow,
    ) -> FsResult<()> {
        if to_dir.gone.get() || to_dir.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        let source = soon!(self.find(from_dir, from))?.ok_or(FsError::NotFound)?;
        let inode = soon!(self.inode(source.ino))?;
        let is_dir = inode.is_dir();
        // Both names are looked up before anything is judged (`do_renameat2`).
        let target = soon!(self.find(to_dir, to))?;
        if how == RenameHow::NoReplace && target.is_some() {
            return Err(FsError::Exists);
        }
        if is_dir && self.is_above(inode.ino, to_dir).await? {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        let replaced = match &target {
            Some(t) if t.ino == inode.ino => return Ok(()),
            Some(t) => Some(soon!(self.inode(t.ino))?),
            None => None,
        };
        let goes_under = match &replaced {
            Some(r) => r.is_dir() && self.is_above(r.ino, from_dir).await?,
            None => false,
        };
        if goes_under {
            return Err(FsError::NotEmpty);
        }
        self.check_may_remove(from_dir, &inode)?;
        match &replaced {
            Some(r) => self.check_may_remove(to_dir, r)?,
            None => self.check_may_add(to_dir)?,
        }
        let mut victim = None;
        if let Some(r) = &replaced {
            match (is_dir, r.is_dir()) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                _ => {}
            }
            victim = Some(self.lock_victim(to_dir, r).await?);
            if is_dir && !self.is_empty_dir(r).await? {
                return Err(FsError::NotEmpty);
            }
        }
        if replaced.is_some() && crate::site::REPLACE_ALLOC.on() {
            self.allocate_promised(&inode).await;
        }
        let moves_up = is_dir && from_dir.ino != to_dir.ino;
        let revokes = if how == RenameHow::Whiteout { REVOKES_WHITEOUT } else { 0 };
        let h = soon!(self.start_revoking(2 * CREDITS_NAME, self.revokes(revokes)))?;
        self.sync_names(&h, from_dir);
        self.sync_names(&h, to_dir);
        let mode = inode.disk.borrow().mode.get();
        let mut left = None;
        let out = async {
            self.rt.cpu(CpuOp::NameChange, 2).await;
            if how == RenameHow::Whiteout {
                left = Some(Box::pin(self.whiteout(&h, from_dir, from)).await?);
            }
            match &target {
                Some(t) => {
                    self.retarget(&h, to_dir, t, inode.ino, self.type_byte(mode)).await?;
                    let now = self.time();
                    to_dir.set_mtime(now);
                    to_dir.set_ctime(now);
                    soon!(self.write_inode(&h, to_dir))?;
                }
                None => self.add_name(&h, to_dir, to, inode.ino, self.type_byte(mode)).await?,
            }
            inode.set_ctime(self.time());
            soon!(self.write_inode(&h, &inode))?;
            // Adding may have moved entries about: look the old name up again.
            let source = soon!(self.find(from_dir, from))?.ok_or(FsError::NotFound)?;
            match &left {
                Some(device) => {
                    let kind = mode::CHAR_DEVICE;
                    self.set_entry(&h, from_dir, &source, device.ino, kind).await?;
                }
                None => self.remove_name(&h, from_dir, &source, from).await?,
            }
            if moves_up {
                let up = soon!(self.find(&inode, b".."))?.ok_or(FsError::NotFound)?;
                self.retarget(&h, &inode, &up, to_dir.ino, self.type_byte(mode::DIR)).await?;
            }
            if let Some(r) = &replaced {
                self.drop_link(&h, r, is_dir).await?;
            }
            self.fast_track_rename(&h, &inode, (from_dir, from), (to_dir, to), (&replaced, &left));
            if is_dir {
                if moves_up || replaced.is_some() {
                    self.shrink_links(from_dir);
                    soon!(self.write_inode(&h, from_dir))?;
                }
                if moves_up && replaced.is_none() {
                    self.grow_links(to_dir);
                    soon!(self.write_inode(&h, to_dir))?;
                }
            }
            Ok(())
        }
        .await;
        if let (Err(_), Some(device)) = (&out, &left) {
            Box::pin(self.undo_create(&h, device, false)).await?;
        }
        soon!(self.stop(h, out))?;
        drop(victim);
        match replaced {
            Some(r) => self.free_if_unused(&r).await,
            None => Ok(()),
        }
    }

    /// A character device 0:0, which no name leads to yet (`ext4_whiteout_for_rename`).
    async fn whiteout(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<Rc<Inode>> {
        let parent = *dir.disk.borrow();
        let new = NewInode {
            mode: mode::CHAR_DEVICE,
            uid: 0,
            gid: if parent.mode.get() & SET_GROUP == 0 { 0 } else { parent.gid() },
            flags: self.inherited(dir) & (flag::NODUMP | flag::NOATIME),
            generation: self.groups.next_generation(&self.rt),
        };
        let inode = self.take_inode(h, dir, Some(name), &new).await?;
        inode.set_nlink(1);
        inode.disk.borrow_mut().set_device(DeviceNumber::default());
        soon!(self.write_inode(h, &inode))?;
        Ok(inode)
    }

    /// An entry leads to another inode (`ext4_setent`).
    async fn set_entry(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        place: &Place,
        ino: u32,
        mode: u16,
    ) -> FsResult<()> {
        self.retarget(h, dir, place, ino, self.type_byte(mode)).await?;
        let now = self.time();
        dir.set_mtime(now);
        dir.set_ctime(now);
        soon!(self.write_inode(h, dir))
    }

    /// Two names change places (`ext4_cross_rename`). The caller holds `rename_lock` and both
    /// directories' locks.
    async fn exchange(
        self: &Rc<Self>,
        (a_dir, a): (&Rc<Inode>, &[u8]),
        (b_dir, b): (&Rc<Inode>, &[u8]),
    ) -> FsResult<()> {
        if b_dir.gone.get() || b_dir.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        let one = soon!(self.find(a_dir, a))?.ok_or(FsError::NotFound)?;
        let other = soon!(self.find(b_dir, b))?.ok_or(FsError::NotFound)?;
        let (x, y) = (soon!(self.inode(one.ino))?, soon!(self.inode(other.ino))?);
        let crosses = a_dir.ino != b_dir.ino;
        if x.is_dir() && self.is_above(x.ino, b_dir).await?
            || y.is_dir() && self.is_above(y.ino, a_dir).await?
        {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        if x.ino == y.ino {
            return Ok(());
        }
        self.check_may_remove(a_dir, &x)?;
        self.check_may_remove(b_dir, &y)?;
        // A directory more and one fewer, on either side.
        let gains = match (crosses, x.is_dir(), y.is_dir()) {
            (true, true, false) => Some((b_dir, a_dir)),
            (true, false, true) => Some((a_dir, b_dir)),
            _ => None,
        };
        let counts_all = self.sb.borrow().has_ro_compat(ro_compat::DIR_NLINK);
        if gains.is_some_and(|(more, _)| more.nlink() >= LINK_MAX && !counts_all) {
            return Err(FsError::TooManyLinks);
        }
        let h = soon!(self.start(2 * CREDITS_NAME))?;
        self.sync_names(&h, a_dir);
        self.sync_names(&h, b_dir);
        let mode_of = |i: &Inode| i.disk.borrow().mode.get();
        let out = async {
            self.rt.cpu(CpuOp::NameChange, 2).await;
            self.set_entry(&h, b_dir, &other, x.ino, mode_of(&x)).await?;
            self.set_entry(&h, a_dir, &one, y.ino, mode_of(&y)).await?;
            for inode in [&x, &y] {
                inode.set_ctime(self.time());
                soon!(self.write_inode(&h, inode))?;
            }
            for (inode, dir) in [(&x, b_dir), (&y, a_dir)] {
                if crosses && inode.is_dir() {
                    let up = soon!(self.find(inode, b".."))?.ok_or(FsError::NotFound)?;
                    self.retarget(&h, inode, &up, dir.ino, self.type_byte(mode::DIR)).await?;
                }
            }
            self.fast_ineligible(&h, Ineligible::CrossRename);
            if let Some((more, fewer)) = gains {
                self.grow_links(more);
                self.shrink_links(fewer);
                soon!(self.write_inode(&h, more))?;
                soon!(self.write_inode(&h, fewer))?;
            }
            Ok(())
        }
        .await;
        soon!(self.stop(h, out))
    }
}
