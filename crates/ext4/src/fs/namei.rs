//! Names: create, unlink, link; files without one.
//!
//! Source: Linux `fs/ext4/namei.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::BufFlag;
use wp_jbd2::Handle;
use wp_medium::Slice;
use wp_rt::{CpuOp, LockGuard, soon};
use wp_vfs::{FileType, NodeSpec};

use super::data::RETRIES;
use super::inode::{Inode, NewInode};
use super::mount::Ext4;
use crate::disk::fast_commit::tag;
use crate::disk::inode::{flag, mode};
use crate::disk::{dir, incompat, ro_compat};

/// Most links of an inode (`EXT4_LINK_MAX`); directories beyond it count as having one.
pub(super) const LINK_MAX: u16 = 65000;
/// Credits of creating or removing a name: two directory paths, bitmaps, descriptors, inodes, super
/// block.
pub(super) const CREDITS_NAME: u32 = 64;
/// Credits of making a node: a data block's (`EXT4_DATA_TRANS_BLOCKS`, 24 with extents), a new
/// block and a split of the directory's index (`EXT4_INDEX_EXTRA_TRANS_BLOCKS`, 12), the inode, its
/// bitmap and descriptor (3), and the security attribute that a kernel with `CONFIG_SECURITY` may
/// have to store (`ext4_xattr_credits_for_new_inode`, 7). How many show when a transaction is full.
const CREDITS_CREATE: u32 = 24 + 12 + 3 + 7;
/// Credits of making a file without a name: the inode, its bitmap, descriptor, the orphan list and
/// a security attribute (`ext4_tmpfile`).
const CREDITS_TMPFILE: u32 = 4 + 7;
/// Revoke credits for taking a failed creation back: a directory's or a link's blocks.
const REVOKES_UNDO: u32 = 16;
/// Flags that a new inode inherits from its directory (`EXT4_FL_INHERITED` of what this build
/// knows).
const INHERITED: u32 =
    flag::COMPR | flag::SYNC | flag::NODUMP | flag::NOATIME | flag::DIRSYNC | flag::JOURNAL_DATA;

impl Ext4 {
    /// The type byte of a name; without the `filetype` feature the byte is the upper half of a
    /// length, and zero (`ext4_set_de_type`).
    pub(super) fn type_byte(&self, mode: u16) -> u8 {
        if self.sb.borrow().has_incompat(incompat::FILETYPE) {
            FileType::entry_of_mode(mode.into())
        } else {
            0
        }
    }

    /// Flags of what is made in a directory (`ext4_mask_flags` is left to the caller).
    pub(super) fn inherited(&self, dir: &Inode) -> u32 {
        dir.disk.borrow().flags.get() & INHERITED
    }

    /// Makes a node. The caller holds the directory's `lock`.
    pub(super) async fn create_node(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        name: &[u8],
        spec: &NodeSpec,
    ) -> FsResult<Rc<Inode>> {
        let mut tries = 0;
        loop {
            match self.create_once(dir, name, spec).await {
                Err(FsError::NoSpace)
                    if tries < RETRIES && Box::pin(self.commit_for_space()).await? =>
                {
                    tries += 1;
                }
                other => return other,
            }
        }
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
        if !self.is_known_missing(dir.ino, name) && soon!(self.find(dir, name))?.is_some() {
            return Err(FsError::Exists);
        }
        self.check_may_add(dir)?;
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
        let h = soon!(self.start_revoking(CREDITS_CREATE, self.revokes(REVOKES_UNDO)))?;
        let out = self.create_in(&h, dir, name, spec).await;
        soon!(self.stop(h, out))
    }

    async fn create_in(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        spec: &NodeSpec,
    ) -> FsResult<Rc<Inode>> {
        self.rt.cpu(CpuOp::NameChange, 1).await;
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        let fast_link = spec.kind == FileType::Symlink
            && spec.target.len() <= crate::disk::Inode::FAST_SYMLINK_MAX;
        // `ext4_mask_flags`
        let fitting = match spec.kind {
            FileType::Dir => u32::MAX,
            FileType::File => !flag::DIRSYNC,
            _ => flag::NODUMP | flag::NOATIME,
        };
        let mut flags = self.inherited(dir) & fitting;
        let mapped = matches!(spec.kind, FileType::File | FileType::Dir | FileType::Symlink);
        if !fast_link && mapped && self.sb.borrow().has_incompat(incompat::EXTENTS) {
            flags |= flag::EXTENTS;
        }
        let generation = self.groups.next_generation(&self.rt);
        let new = NewInode {
            mode: spec.kind.mode_bits() as u16 | (spec.mode & 0o7777) as u16,
            uid: spec.uid,
            gid: spec.gid,
            flags,
            generation,
        };
        let inode = self.take_inode(h, dir, Some(name), &new).await?;
        inode.set_nlink(if spec.kind == FileType::Dir { 2 } else { 1 });
        if fast_link {
            let mut d = inode.disk.borrow_mut();
            d.block[..spec.target.len()].copy_from_slice(&spec.target);
            drop(d);
            inode.size.set(spec.target.len() as u64);
            inode.disksize.set(spec.target.len() as u64);
        }
        if matches!(spec.kind, FileType::Char | FileType::Block) {
            inode.disk.borrow_mut().set_device(spec.device);
        }
        let made = async {
            if spec.kind == FileType::Dir {
                Box::pin(self.fill_new_dir(h, &inode, dir.ino)).await?;
            } else if spec.kind == FileType::Symlink && !fast_link {
                Box::pin(self.fill_link(h, &inode, &spec.target)).await?;
            }
            soon!(self.write_inode(h, &inode))?;
            self.add_name(h, dir, name, inode.ino, self.type_byte(new.mode)).await?;
            self.fast_track_new(h, dir, &inode, name);
            // ext4_ext_tree_init(), ext4_add_nondir() or ext4_mkdir()
            self.count_again(h, &inode, 2);
            Ok(())
        }
        .await;
        if let Err(e) = made {
            // No name leads to it: free it as the kernel does, through the orphan chain if blocks
            // hang on it.
            Box::pin(self.undo_create(h, &inode, spec.kind == FileType::Dir)).await?;
            return Err(e);
        }
        if spec.kind == FileType::Dir {
            self.grow_links(dir);
            soon!(self.write_inode(h, dir))?;
        }
        self.sync_names(h, dir);
        // What inherited the flag, too (`__ext4_new_inode`).
        self.sync_names(h, &inode);
        Ok(inode)
    }

    pub(super) async fn undo_create(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        was_dir: bool,
    ) -> FsResult<()> {
        inode.set_nlink(0);
        self.drop_blocks(inode, 0).await;
        while !self.cut_once(h, inode, 0, was_dir).await? {}
        inode.size.set(0);
        inode.disksize.set(0);
        inode.disk.borrow_mut().dtime = (self.time().secs as u32).into();
        soon!(self.write_inode(h, inode))?;
        self.forget_inode(inode);
        self.return_inode(h, inode, was_dir).await?;
        let jinode = inode.jinode.borrow_mut().take();
        if let Some(j) = jinode {
            self.journal().release_inode(&j).await;
        }
        Ok(())
    }

    /// The target of a long symbolic link: placed in the handle that makes the name, and written
    /// before it commits, so that no crash shows a link without a target. Under `data=journal` it
    /// is logged: nothing else keeps older copies of its block out of a recovery, for there freed
    /// blocks are not revoked. (The kernel logs it in every mode.)
    async fn fill_link(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        target: &[u8],
    ) -> FsResult<()> {
        let run = self.allocate(h, inode, 0, 1, false).await?;
        let mut bytes = target.to_vec();
        bytes.resize(self.bs().bytes() as usize, 0);
        let b = inode.map.get(0);
        b.map_to(run.phys);
        inode.size.set(target.len() as u64);
        inode.disksize.set(target.len() as u64);
        let logged = self.journals_data(inode);
        if logged {
            self.data_access(h, inode, &b).await?;
        }
        b.set_contents(Slice::from_bytes(&bytes));
        b.set(BufFlag::Uptodate);
        if logged {
            return self.data_dirty(h, inode, &b);
        }
        self.file_inode(h, inode, 0, 1)?;
        inode.map.mark_dirty(&b);
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
        let kind = self.type_byte(mode::DIR);
        buf.with_mut(|b| {
            let at = dir::insert(b, 0, inode.ino, b".", kind);
            dir::insert(b, at, parent, b"..", kind);
        });
        self.dirty_dir_block(h, inode, &buf)
    }

    pub(super) fn grow_links(&self, dir: &Inode) {
        let n = dir.nlink();
        // With dir_nlink, 1 means: too many to count.
        dir.set_nlink(if n == 1 || n + 1 >= LINK_MAX { 1 } else { n + 1 });
    }

    pub(super) fn shrink_links(&self, dir: &Inode) {
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
        if want_dir && name == b"." {
            return Err(FsError::Invalid("'.' cannot be removed"));
        }
        if want_dir && name == b".." {
            return Err(FsError::NotEmpty);
        }
        let place = soon!(self.find(dir, name))?.ok_or(FsError::NotFound)?;
        let inode = soon!(self.inode(place.ino))?;
        self.check_may_remove(dir, &inode)?;
        match (inode.is_dir(), want_dir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            _ => {}
        }
        // Nobody may add a name to it, or in it, from here on.
        let victim = self.lock_victim(dir, &inode).await?;
        if want_dir && !self.is_empty_dir(&inode).await? {
            return Err(FsError::NotEmpty);
        }
        let h = soon!(self.start(CREDITS_NAME))?;
        self.sync_names(&h, dir);
        let out = async {
            self.rt.cpu(CpuOp::NameChange, 1).await;
            self.remove_name(&h, dir, &place, name).await?;
            self.drop_link(&h, &inode, want_dir).await?;
            self.fast_track_name(&h, tag::UNLINK, dir, &inode, name);
            if want_dir {
                self.shrink_links(dir);
                soon!(self.write_inode(&h, dir))?;
            }
            Ok(())
        }
        .await;
        soon!(self.stop(h, out))?;
        drop(victim);
        self.free_if_unused(&inode).await
    }

    /// Locks an inode that is about to lose a name. The caller holds the lock of its directory,
    /// which comes first.
    pub(super) async fn lock_victim<'a>(
        &self,
        dir: &Inode,
        inode: &'a Inode,
    ) -> FsResult<LockGuard<'a, ()>> {
        if dir.ino == inode.ino {
            return Err(FsError::corrupt(
                "ext4 directory entry",
                "inode",
                0,
                u64::from(dir.ino),
                "another inode than the directory's own",
            ));
        }
        Ok(inode.lock.lock().await)
    }

    /// Errors: `NotPermitted` for an inode that may not be changed, or only be appended to
    /// (`IS_IMMUTABLE`, `IS_APPEND`).
    pub(super) fn check_mutable(&self, inode: &Inode) -> FsResult<()> {
        let flags = inode.disk.borrow().flags.get();
        if flags & (flag::IMMUTABLE | flag::APPEND) == 0 {
            Ok(())
        } else {
            Err(FsError::NotPermitted)
        }
    }

    /// May a name be added to the directory? Errors: `NotPermitted`.
    pub(super) fn check_may_add(&self, dir: &Inode) -> FsResult<()> {
        if dir.has(flag::IMMUTABLE) { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    /// May `inode` lose its name in `dir` (`may_delete`)? Errors: `NotPermitted`.
    pub(super) fn check_may_remove(&self, dir: &Inode, inode: &Inode) -> FsResult<()> {
        self.check_mutable(dir)?;
        self.check_mutable(inode)
    }

    /// One name fewer: at none left the inode goes on the orphan chain.
    pub(super) async fn drop_link(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        is_dir: bool,
    ) -> FsResult<()> {
        let left = if is_dir { 0 } else { inode.nlink().saturating_sub(1) };
        inode.set_nlink(left);
        inode.set_ctime(self.time());
        if left == 0 && crate::site::UNLINK_ORPHAN.on() {
            self.add_orphan(h, inode).await?;
        }
        soon!(self.write_inode(h, inode))
    }

    /// Frees an inode that has neither a name nor an open descriptor.
    pub(super) async fn free_if_unused(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.nlink() == 0 && inode.opens.get() == 0 && !inode.gone.get() {
            Box::pin(self.delete_inode(inode)).await?;
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
        if soon!(self.find(dir, name))?.is_some() {
            return Err(FsError::Exists);
        }
        if inode.is_dir() {
            return Err(FsError::NotPermitted);
        }
        // Its last name may go while we wait.
        let _inode = inode.lock.lock().await;
        let is_nameless = inode.nlink() == 0 && !inode.linkable.get();
        if is_nameless || inode.gone.get() || dir.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        self.check_may_add(dir)?;
        self.check_mutable(inode)?;
        if inode.nlink() >= LINK_MAX {
            return Err(FsError::TooManyLinks);
        }
        let mut tries = 0;
        loop {
            match self.link_once(inode, dir, name).await {
                Err(FsError::NoSpace) if tries < RETRIES && self.commit_for_space().await? => {
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    async fn link_once(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<()> {
        let h = soon!(self.start(CREDITS_NAME))?;
        self.sync_names(&h, dir);
        let mode = inode.disk.borrow().mode.get();
        let out = async {
            self.rt.cpu(CpuOp::NameChange, 1).await;
            self.add_name(&h, dir, name, inode.ino, self.type_byte(mode)).await?;
            inode.set_nlink(inode.nlink() + 1);
            inode.set_ctime(self.time());
            soon!(self.write_inode(&h, inode))?;
            let is_first = inode.linkable.replace(false);
            if is_first && crate::site::LINK_ORPHAN.on() {
                // Its first name.
                self.remove_orphan(&h, inode).await?;
                soon!(self.write_inode(&h, inode))?;
            }
            // A replay of a link finds no inode that no commit has shown.
            let creates = is_first && self.opts.fast.fixes.unnamed;
            let op = if creates { tag::CREAT } else { tag::LINK };
            self.fast_track_name(&h, op, dir, inode, name);
            Ok(())
        }
        .await;
        soon!(self.stop(h, out))
    }

    /// Makes a file that no name leads to, on the list of orphans from its first transaction on
    /// (`ext4_tmpfile`). `linkable`: [`Ext4::link_name`] may give it one.
    ///
    /// Errors: `NotFound` for a directory that is gone; `NoSpace`; `IsDir` in kernels without
    /// `O_TMPFILE`, which open the directory.
    pub(super) async fn make_unnamed(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        spec: &NodeSpec,
        linkable: bool,
    ) -> FsResult<Rc<Inode>> {
        if !self.opts.era.has_tmpfile() {
            return Err(FsError::IsDir);
        }
        if dir.gone.get() || dir.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        let mut tries = 0;
        loop {
            let h = soon!(self.start_revoking(CREDITS_TMPFILE, self.revokes(REVOKES_UNDO)))?;
            let out = self.unnamed_in(&h, dir, spec, linkable).await;
            match soon!(self.stop(h, out)) {
                Err(FsError::NoSpace)
                    if tries < RETRIES && Box::pin(self.commit_for_space()).await? =>
                {
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    async fn unnamed_in(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        spec: &NodeSpec,
        linkable: bool,
    ) -> FsResult<Rc<Inode>> {
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        let mut flags = self.inherited(dir) & !flag::DIRSYNC;
        if self.sb.borrow().has_incompat(incompat::EXTENTS) {
            flags |= flag::EXTENTS;
        }
        let new = NewInode {
            mode: FileType::File.mode_bits() as u16 | (spec.mode & 0o7777) as u16,
            uid: spec.uid,
            gid: spec.gid,
            flags,
            generation: self.groups.next_generation(&self.rt),
        };
        let inode = self.take_inode(h, dir, None, &new).await?;
        inode.set_nlink(0);
        inode.linkable.set(linkable);
        soon!(self.write_inode(h, &inode))?;
        if crate::site::TMPFILE_ORPHAN.on() {
            self.add_orphan(h, &inode).await?;
        }
        self.sync_names(h, &inode);
        Ok(inode)
    }
}
