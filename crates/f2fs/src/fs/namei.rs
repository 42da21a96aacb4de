//! Names made, linked and removed; files without one.
//!
//! Source: Linux `fs/f2fs/namei.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::Slice;
use wp_rt::CpuOp;
use wp_vfs::{FileType, NodeSpec, may_create, may_delete, may_link};

use super::inode::{Inode, fi};
use super::mount::F2fs;
use super::new_inode::NewInode;
use crate::disk::inode::flag;
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

pub(super) fn check_plain(name: &[u8]) -> FsResult<()> {
    check_name(name)?;
    match name {
        b"." => Err(FsError::Invalid("the directory itself")),
        b".." => Err(FsError::NotEmpty),
        _ => Ok(()),
    }
}

impl F2fs {
    /// Is it a directory that can be changed? Errors: `NotFound`, `ReadOnly`, `Io`.
    pub(super) fn check_dir(&self, dir: &Inode) -> FsResult<()> {
        self.check_writable()?;
        self.note_request();
        if dir.gone.get() || dir.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        Ok(())
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

    pub(super) fn unmet(inode: &Inode, dir: u32, name: &[u8]) {
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
        may_create(dir.file_flags())?;
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
            device: spec.device,
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
        if dir.is_dirsync() {
            self.sync_checkpoint().await?;
        }
        self.balance_fs(true).await;
        Ok(())
    }

    /// Undoes what was made of a new inode (`f2fs_handle_failed_inode`).
    pub(super) async fn fail_new(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
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
        may_link(dir.file_flags(), inode.file_flags())?;
        if inode.gone.get() || (inode.nlink() == 0 && !inode.linkable.get()) {
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
        inode.linkable.set(false);
        self.met(inode, dir.ino, name);
        if dir.is_dirsync() {
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
        may_delete(dir.file_flags(), inode.file_flags())?;
        match (inode.is_dir(), rmdir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            _ => {}
        }
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
        if dir.is_dirsync() {
            self.sync_checkpoint().await?;
        }
        Ok(())
    }

    /// Makes a file that no name leads to, an orphan from the first (`f2fs_tmpfile`). `linkable`:
    /// [`F2fs::link_name`] may give it one. Errors: `NotFound`, `NoSpace`.
    pub(super) async fn make_unnamed(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        spec: &NodeSpec,
        linkable: bool,
    ) -> FsResult<Rc<Inode>> {
        self.check_dir(dir)?;
        let mode = (FileType::File.mode_bits() | spec.mode & 0o7777) as u16;
        let (uid, gid, device) = (spec.uid, spec.gid, spec.device);
        let new = NewInode { mode, uid, gid, name: None, device };
        let inode = self.new_orphan(dir, &new, None).await?;
        inode.linkable.set(linkable);
        self.balance_fs(true).await;
        Ok(inode)
    }

    /// A new inode without links, on the list of orphans (`__f2fs_tmpfile`). `name`: what its node
    /// says it will be called.
    pub(super) async fn new_orphan(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        new: &NewInode<'_>,
        name: Option<&[u8]>,
    ) -> FsResult<Rc<Inode>> {
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        let inode = self.new_inode(dir, new).await?;
        inode.opens.set(1);
        let op = self.lock_op().await;
        let made = match self.acquire_orphan() {
            Ok(()) => match self.init_metadata(&inode, dir, name).await {
                Ok(()) => Ok(()),
                Err(e) => {
                    self.release_orphan();
                    Err(e)
                }
            },
            Err(e) => Err(e),
        };
        if made.is_ok() {
            inode.clear(fi::NEW);
            self.mark_inode_dirty(&inode, true);
            self.add_orphan(inode.ino);
            self.alloc_nid_done(inode.ino);
            self.add_links(&inode, -1);
        } else {
            self.fail_new(&inode).await?;
        }
        drop(op);
        inode.opens.set(0);
        made.map(|()| inode)
    }
}
