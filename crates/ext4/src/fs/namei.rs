//! Names: create, unlink, rename, link.
//!
//! Source: Linux `fs/ext4/namei.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_jbd2::Handle;
use wp_medium::Slice;
use wp_vfs::{FileType, NodeSpec};

use super::inode::{Inode, NewInode};
use super::mount::Ext4;
use crate::disk::inode::flag;
use crate::disk::{FileType as DirType, dir, ro_compat};

/// Most links of an inode (`EXT4_LINK_MAX`); directories beyond it count as having one.
const LINK_MAX: u16 = 65000;
/// Credits of creating or removing a name: two directory paths, bitmaps, descriptors, inodes, super
/// block.
const CREDITS_NAME: u32 = 64;
/// Flags that a new inode inherits from its directory (`EXT4_FL_INHERITED` of what this build
/// knows).
const INHERITED: u32 =
    flag::SYNC | flag::NODUMP | flag::NOATIME | flag::DIRSYNC | flag::JOURNAL_DATA;

impl Ext4 {
    fn type_byte(&self, mode: u16) -> u8 {
        DirType::of_mode(mode).byte()
    }

    /// Makes a node. The caller holds the directory's `lock`.
    pub(super) async fn create_node(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        spec: &NodeSpec,
    ) -> FsResult<Rc<Inode>> {
        loop {
            match self.create_once(dir, name, spec).await {
                Err(FsError::NoSpace)
                    if self.journal().running_tid().is_some() && self.pending_frees() =>
                {
                    self.journal().force_commit().await?;
                }
                other => return other,
            }
        }
    }

    /// Does a transaction hold blocks or inodes back that its commit would give?
    fn pending_frees(&self) -> bool {
        self.groups.free_blocks.get() > self.reserved_blocks.get()
    }

    async fn create_once(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        spec: &NodeSpec,
    ) -> FsResult<Rc<Inode>> {
        if dir.gone.get() || dir.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        if self.find(dir, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        if spec.kind == FileType::Symlink
            && spec.target.len() as u64 >= u64::from(self.bs().bytes())
        {
            return Err(FsError::NameTooLong);
        }
        let is_dir = spec.kind == FileType::Dir;
        if is_dir
            && dir.nlink() >= LINK_MAX
            && !self.sb.borrow().has_ro_compat(ro_compat::DIR_NLINK)
        {
            return Err(FsError::TooManyLinks);
        }
        let h = self.start(CREDITS_NAME).await?;
        let out = self.create_in(&h, dir, name, spec).await;
        let inode = self.stop(h, out).await?;
        if spec.kind == FileType::Symlink
            && spec.target.len() > crate::disk::Inode::FAST_SYMLINK_MAX
        {
            let written = self.write_data(&inode, 0, &[Slice::from_bytes(&spec.target)]).await;
            if written != Ok(spec.target.len() as u64) {
                return Err(written.err().unwrap_or(FsError::NoSpace));
            }
        }
        Ok(inode)
    }

    async fn create_in(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        spec: &NodeSpec,
    ) -> FsResult<Rc<Inode>> {
        let kind_bits = spec.kind.mode_bits() as u16;
        let fast_link = spec.kind == FileType::Symlink
            && spec.target.len() <= crate::disk::Inode::FAST_SYMLINK_MAX;
        let mut flags = dir.disk.borrow().flags.get() & INHERITED;
        if !fast_link && matches!(spec.kind, FileType::File | FileType::Dir | FileType::Symlink) {
            flags |= flag::EXTENTS;
        }
        let generation = self.groups.next_generation(&self.rt);
        let new = NewInode {
            mode: kind_bits | (spec.mode & 0o7777) as u16,
            uid: spec.uid,
            gid: spec.gid,
            flags,
            generation,
        };
        let inode = self.take_inode(h, dir.ino, &new).await?;
        inode.set_nlink(if spec.kind == FileType::Dir { 2 } else { 1 });
        if fast_link {
            let mut d = inode.disk.borrow_mut();
            d.block[..spec.target.len()].copy_from_slice(&spec.target);
            drop(d);
            inode.size.set(spec.target.len() as u64);
            inode.disksize.set(spec.target.len() as u64);
        }
        let made = async {
            if spec.kind == FileType::Dir {
                self.fill_new_dir(h, &inode, dir.ino).await?;
            }
            self.write_inode(h, &inode).await?;
            self.add_name(h, dir, name, inode.ino, self.type_byte(new.mode)).await
        }
        .await;
        if let Err(e) = made {
            // No name leads to it: free it as the kernel does, through the orphan chain if blocks
            // hang on it.
            self.undo_create(h, &inode, spec.kind == FileType::Dir).await?;
            return Err(e);
        }
        if spec.kind == FileType::Dir {
            self.grow_links(dir);
            self.write_inode(h, dir).await?;
        }
        Ok(inode)
    }

    async fn undo_create(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        was_dir: bool,
    ) -> FsResult<()> {
        inode.set_nlink(0);
        if inode.has(flag::EXTENTS) {
            while !self.cut_once(h, inode, 0, was_dir).await? {}
        }
        inode.size.set(0);
        inode.disksize.set(0);
        inode.disk.borrow_mut().dtime = (self.time().secs as u32).into();
        self.write_inode(h, inode).await?;
        self.return_inode(h, inode, was_dir).await?;
        self.forget_inode(inode.ino);
        Ok(())
    }

    /// The first block of a new directory: `.` and `..`.
    async fn fill_new_dir(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        parent: u32,
    ) -> FsResult<()> {
        let buf = self.append_dir_block(h, inode).await?;
        let kind = DirType::Dir.byte();
        buf.with_mut(|b| {
            let at = dir::insert(b, 0, inode.ino, b".", kind);
            dir::insert(b, at, parent, b"..", kind);
        });
        self.dirty_dir_block(h, inode, &buf)
    }

    fn grow_links(&self, dir: &Inode) {
        let n = dir.nlink();
        // With dir_nlink, 1 means: too many to count.
        dir.set_nlink(if n == 1 || n + 1 >= LINK_MAX { 1 } else { n + 1 });
    }

    fn shrink_links(&self, dir: &Inode) {
        let n = dir.nlink();
        if n > 2 {
            dir.set_nlink(n - 1);
        }
    }

    /// Removes a name; frees the inode if it was the last and nobody has it open.
    pub(super) async fn unlink_name(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        want_dir: bool,
    ) -> FsResult<()> {
        let place = self.find(dir, name).await?.ok_or(FsError::NotFound)?;
        let inode = self.inode(place.ino).await?;
        match (inode.is_dir(), want_dir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            _ => {}
        }
        if want_dir && (name == b"." || name == b"..") {
            return Err(FsError::Invalid("'.' and '..' cannot be removed"));
        }
        if want_dir && !self.is_empty_dir(&inode).await? {
            return Err(FsError::NotEmpty);
        }
        let h = self.start(CREDITS_NAME).await?;
        let out = async {
            self.remove_name(&h, dir, &place).await?;
            self.drop_link(&h, &inode, want_dir).await?;
            if want_dir {
                self.shrink_links(dir);
                self.write_inode(&h, dir).await?;
            }
            Ok(())
        }
        .await;
        self.stop(h, out).await?;
        self.free_if_unused(&inode).await
    }

    /// One name fewer: at none left the inode goes on the orphan chain.
    async fn drop_link(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        is_dir: bool,
    ) -> FsResult<()> {
        let left = if is_dir { 0 } else { inode.nlink().saturating_sub(1) };
        inode.set_nlink(left);
        inode.set_ctime(self.time());
        if left == 0 {
            self.add_orphan(h, inode).await?;
        }
        self.write_inode(h, inode).await
    }

    /// Frees an inode that has neither a name nor an open descriptor.
    pub(super) async fn free_if_unused(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.nlink() == 0 && inode.opens.get() == 0 && !inode.gone.get() {
            self.delete_inode(inode).await?;
        }
        Ok(())
    }

    /// Adds a name to an inode. The caller holds the directory's `lock`.
    pub(super) async fn link_name(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<()> {
        if inode.is_dir() {
            return Err(FsError::NotPermitted);
        }
        if inode.nlink() >= LINK_MAX {
            return Err(FsError::TooManyLinks);
        }
        if inode.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        if self.find(dir, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        let h = self.start(CREDITS_NAME).await?;
        let mode = inode.disk.borrow().mode.get();
        let out = async {
            self.add_name(&h, dir, name, inode.ino, self.type_byte(mode)).await?;
            inode.set_nlink(inode.nlink() + 1);
            inode.set_ctime(self.time());
            self.write_inode(&h, inode).await
        }
        .await;
        self.stop(h, out).await
    }

    /// Is `ino` the directory `dir` or one of its parents?
    async fn is_above(self: &Rc<Self>, ino: u32, dir: &Rc<Inode>) -> FsResult<bool> {
        let mut at = dir.clone();
        for _ in 0..self.geo.inodes_count {
            if at.ino == ino {
                return Ok(true);
            }
            if at.ino == crate::disk::ino::ROOT {
                return Ok(false);
            }
            let up = self.find(&at, b"..").await?.ok_or(FsError::NotFound)?;
            at = self.inode(up.ino).await?;
        }
        Err(FsError::corrupt("ext4 directory", "..", 0, u64::from(dir.ino), "a way up to the root"))
    }

    /// Moves a name. The caller holds `rename_lock` and both directories' locks.
    pub(super) async fn rename_name(
        self: &Rc<Self>,
        (from_dir, from): (&Rc<Inode>, &[u8]),
        (to_dir, to): (&Rc<Inode>, &[u8]),
    ) -> FsResult<()> {
        let source = self.find(from_dir, from).await?.ok_or(FsError::NotFound)?;
        let inode = self.inode(source.ino).await?;
        let is_dir = inode.is_dir();
        if is_dir && self.is_above(inode.ino, to_dir).await? {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        let target = self.find(to_dir, to).await?;
        let replaced = match &target {
            Some(t) if t.ino == inode.ino => return Ok(()),
            Some(t) => Some(self.inode(t.ino).await?),
            None => None,
        };
        if let Some(r) = &replaced {
            match (is_dir, r.is_dir()) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                (true, true) if !self.is_empty_dir(r).await? => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        let moves_up = is_dir && from_dir.ino != to_dir.ino;
        let h = self.start(2 * CREDITS_NAME).await?;
        let mode = inode.disk.borrow().mode.get();
        let out = async {
            match &target {
                Some(t) => {
                    self.retarget(&h, to_dir, t, inode.ino, self.type_byte(mode)).await?;
                    let now = self.time();
                    to_dir.set_mtime(now);
                    to_dir.set_ctime(now);
                    self.write_inode(&h, to_dir).await?;
                }
                None => self.add_name(&h, to_dir, to, inode.ino, self.type_byte(mode)).await?,
            }
            inode.set_ctime(self.time());
            self.write_inode(&h, &inode).await?;
            // Adding may have moved entries about: look the old name up again.
            let source = self.find(from_dir, from).await?.ok_or(FsError::NotFound)?;
            self.remove_name(&h, from_dir, &source).await?;
            if moves_up {
                let up = self.find(&inode, b"..").await?.ok_or(FsError::NotFound)?;
                self.retarget(&h, &inode, &up, to_dir.ino, DirType::Dir.byte()).await?;
            }
            if let Some(r) = &replaced {
                self.drop_link(&h, r, is_dir).await?;
            }
            if is_dir {
                let one_fewer = moves_up || replaced.is_some();
                if one_fewer {
                    self.shrink_links(from_dir);
                    self.write_inode(&h, from_dir).await?;
                }
                if moves_up && replaced.is_none() {
                    self.grow_links(to_dir);
                    self.write_inode(&h, to_dir).await?;
                }
            }
            Ok(())
        }
        .await;
        self.stop(h, out).await?;
        match replaced {
            Some(r) => self.free_if_unused(&r).await,
            None => Ok(()),
        }
    }
}
