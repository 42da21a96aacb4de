//! Files are made, named, renamed and dropped.
//!
//! Source: fs/btrfs/inode.c (`btrfs_create_new_inode`, `btrfs_add_link`, `btrfs_unlink_inode`,
//! `btrfs_rename`, `btrfs_link`).

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_rt::CpuOp;
use wp_vfs::{FileType, NodeSpec};

use crate::core::Core;
use crate::disk::dir::NAME_MAX;
use crate::disk::inode::flag;
use crate::disk::{FileKind, InodeItem, kind, wide};
use crate::items::NameEntry;

use super::Btrfs;
use super::inode::{InUse, Inode};

/// Most names of an inode. `BTRFS_LINK_MAX`.
const LINKS_MAX: u32 = 65_535;

/// What is not gone into.
const OTHER: &str = "btrfs: names in subvolumes other than the mounted one (subvol=)";

/// A directory, in which a name is.
type Place<'a> = (&'a Rc<Inode>, &'a [u8]);

impl Btrfs {
    /// A directory. Errors: `NotDir`.
    pub(super) fn dir(&self, ino: u64) -> FsResult<Rc<Inode>> {
        let dir = self.iget(ino)?;
        if dir.is_dir() { Ok(dir) } else { Err(FsError::NotDir) }
    }

    /// What a name leads to. Errors: `NotFound`; `Unsupported` for another subvolume.
    pub(super) fn find(&self, dir: u64, name: &[u8]) -> FsResult<Option<(NameEntry, Rc<Inode>)>> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let Some(found) = self.with(|c| c.find_name(self.tree, dir, name))? else {
            return Ok(None);
        };
        if found.location.kind != kind::INODE_ITEM {
            return Err(FsError::Unsupported(OTHER.to_owned()));
        }
        let inode = self.iget(found.location.objectid)?;
        Ok(Some((found, inode)))
    }

    fn find_in(&self, (dir, name): Place<'_>) -> FsResult<Option<Rc<Inode>>> {
        Ok(self.find(dir.ino, name)?.map(|(_, inode)| inode))
    }

    /// Can names be added here? Errors: `NotFound` if the directory was removed.
    fn check_dir(&self, dir: &Inode) -> FsResult<()> {
        if dir.nlink() == 0 || dir.is_gone.get() { Err(FsError::NotFound) } else { Ok(()) }
    }

    /// The index of a directory's next name. `btrfs_set_inode_index`.
    fn take_index(&self, c: &mut Core<'static>, dir: &Inode) -> FsResult<u64> {
        let next = match dir.next_index.get() {
            0 => c.next_index(self.tree, dir.ino)?,
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

    /// Adds a name to a directory and to what it names. `btrfs_add_link`.
    fn add_name(
        &self,
        c: &mut Core<'static>,
        (dir, name): Place<'_>,
        inode: &Inode,
        index: u64,
    ) -> FsResult<()> {
        let what = FileKind::of_mode(inode.item.borrow().mode.get());
        c.add_name(self.tree, dir.ino, index, name, inode.key(), what)?;
        self.dir_changed(c, dir, |size| size + 2 * wide(name.len()))
    }

    /// Removes a name from both. Answers the index that it had. `__btrfs_unlink_inode`.
    fn remove_name(
        &self,
        c: &mut Core<'static>,
        (dir, name): Place<'_>,
        inode: &Inode,
    ) -> FsResult<u64> {
        let index = c.remove_ref(self.tree, inode.ino, dir.ino, name).map_err(|e| match e {
            FsError::NotFound => {
                let expected = format!("a name of it in {}", dir.ino);
                FsError::corrupt("btrfs inode ref", "name", 0, inode.ino, expected)
            }
            other => other,
        })?;
        c.remove_name(self.tree, dir.ino, index, name)?;
        self.stamp(inode, false);
        self.dir_changed(c, dir, |size| size.saturating_sub(2 * wide(name.len())))?;
        Ok(index)
    }

    /// An inode has a name less. `btrfs_unlink_inode`.
    fn drop_name(&self, c: &mut Core<'static>, place: Place<'_>, inode: &Inode) -> FsResult<u64> {
        let index = self.remove_name(c, place, inode)?;
        inode.change(|i| i.nlink = i.nlink.get().saturating_sub(1).into());
        if inode.is_dir() {
            inode.set_size(0);
            inode.disk_size.set(0);
        }
        self.update_inode(c, inode)?;
        if inode.nlink() == 0 {
            c.add_orphan(self.tree, inode.ino)?;
        }
        Ok(index)
    }

    /// Makes a node.
    pub(super) async fn make(&self, dir: u64, name: &[u8], spec: &NodeSpec) -> FsResult<u64> {
        let dir = self.dir(dir)?;
        let _lock = dir.lock.lock().await;
        self.check_writable()?;
        self.check_dir(&dir)?;
        if self.find(dir.ino, name)?.is_some() {
            return Err(FsError::Exists);
        }
        let is_link = spec.kind == FileType::Symlink;
        if is_link && wide(spec.target.len()) > self.core.borrow().inline_bytes_max().min(4095) {
            return Err(FsError::NameTooLong);
        }
        // Inode, reference, two names, directory, and a target.
        let _p = self.reserve(5 + u64::from(is_link)).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        self.with(|c| c.check_name(self.tree, dir.ino, name))?;
        let ino = self.next_ino.get();
        self.next_ino.set(ino + 1);
        let done = self.must(|c| {
            let transid = c.transid_begun()?;
            let item = self.new_item(&dir, spec, transid);
            let index = self.take_index(c, &dir)?;
            c.insert_inode(self.tree, ino, &item)?;
            c.add_ref(self.tree, ino, dir.ino, index, name)?;
            if is_link {
                c.insert_inline(self.tree, ino, &spec.target)?;
            }
            let inode = self.add_inode(ino, item, true);
            self.note_change(&inode, transid);
            self.add_name(c, (&dir, name), &inode, index)
        });
        self.settled(done.map(|()| ino)).await
    }

    fn new_item(&self, dir: &Inode, spec: &NodeSpec, transid: u64) -> InodeItem {
        let mut item = InodeItem::zeroed();
        let now = self.time();
        (item.generation, item.transid) = (transid.into(), transid.into());
        item.nlink = 1.into();
        (item.uid, item.gid) = (spec.uid.into(), spec.gid.into());
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
        // Who makes a name in it, or is in the middle of a call on it, comes first.
        let victim = inode.lock.lock().await;
        match (inode.is_dir(), is_dir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            (true, true) if inode.size() > 0 => return Err(FsError::NotEmpty),
            _ => {}
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
    async fn put_quietly(&self, inode: &Rc<Inode>) -> FsResult<()> {
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
        if self.find(dir.ino, name)?.is_some() {
            return Err(FsError::Exists);
        }
        if inode.is_dir() {
            return Err(FsError::NotPermitted);
        }
        let _target = inode.lock.lock().await;
        if inode.nlink() >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        let _p = self.reserve(5).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        if inode.nlink() == 0 {
            return Err(FsError::NotFound);
        }
        self.with(|c| c.check_name(self.tree, dir.ino, name))?;
        let index = self.with(|c| self.take_index(c, &dir))?;
        // The one step that may find no room.
        self.with(|c| c.add_ref(self.tree, inode.ino, dir.ino, index, name))?;
        let done = self.must(|c| {
            inode.change(|i| i.nlink = (i.nlink.get() + 1).into());
            self.stamp(&inode, false);
            self.add_name(c, (&dir, name), &inode, index)?;
            self.update_inode(c, &inode)
        });
        inode.logged.copy_all.set(true);
        if done.is_ok() {
            self.log_new_name(&inode, None);
        }
        self.settled(done).await
    }

    /// Is `ino` the directory `dir`, or above it? Errors: `Corrupt` if the way up is a ring.
    fn is_above(&self, ino: u64, mut dir: u64) -> FsResult<bool> {
        let mut seen = BTreeSet::new();
        loop {
            if !seen.insert(dir) {
                let expected = "a way to the root";
                return Err(FsError::corrupt("btrfs inode ref", "offset", 0, dir, expected));
            }
            if dir == ino {
                return Ok(true);
            }
            if dir == self.root_dir {
                return Ok(false);
            }
            dir = self.with(|c| c.parent_of(self.tree, dir))?;
        }
    }

    /// Two directories in the order in which they are locked: one above the other first, as a
    /// removal locks them, else the lesser number. `lock_rename`, which knows from memory who is
    /// above.
    fn in_order<'i>(
        &self,
        a: &'i Rc<Inode>,
        b: &'i Rc<Inode>,
    ) -> FsResult<(&'i Rc<Inode>, &'i Rc<Inode>)> {
        if a.ino == b.ino {
            return Ok((a, b));
        }
        let known = self.core.borrow().missed.len();
        let is_above =
            |a: &Inode, b: &Inode| self.check_dir(b).and_then(|()| self.is_above(a.ino, b.ino));
        let above = is_above(a, b).and_then(|ab| Ok((ab, is_above(b, a)?)));
        self.core.borrow_mut().missed.truncate(known);
        let a_first = match above? {
            (true, _) => true,
            (_, true) => false,
            _ => a.ino < b.ino,
        };
        Ok(if a_first { (a, b) } else { (b, a) })
    }

    /// May a name move, and what stands at the new one?
    fn check_rename(
        &self,
        from: Place<'_>,
        to: Place<'_>,
    ) -> FsResult<(Rc<Inode>, Option<Rc<Inode>>)> {
        let moved = self.find_in(from)?.ok_or(FsError::NotFound)?;
        self.check_dir(to.0)?;
        let old = self.find_in(to)?;
        if moved.is_dir() && from.0.ino != to.0.ino && self.is_above(moved.ino, to.0.ino)? {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        if let Some(old) = old.as_ref().filter(|old| old.ino != moved.ino) {
            // Before anything is said of what they are (`do_renameat2`).
            if old.is_dir() && from.0.ino != to.0.ino && self.is_above(old.ino, from.0.ino)? {
                return Err(FsError::NotEmpty);
            }
            match (moved.is_dir(), old.is_dir()) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                (true, true) if old.size() > 0 => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        Ok((moved, old))
    }

    /// Moves a name, replacing what stands at the new one. `btrfs_rename`.
    pub(super) async fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> FsResult<()> {
        let (a, b) = (self.dir(from.0)?, self.dir(to.0)?);
        let _one = if a.ino == b.ino { None } else { Some(self.moves.lock().await) };
        let (first, second) = self.in_order(&a, &b)?;
        let lock = first.lock.lock().await;
        let other = if first.ino == second.ino { None } else { Some(second.lock.lock().await) };
        self.check_writable()?;
        let (from, to) = ((&a, from.1), (&b, to.1));
        let (moved, old) = self.check_rename(from, to)?;
        // What is replaced is no directory that is locked: that one is not empty.
        let victim = match old.as_ref().filter(|old| old.ino != moved.ino) {
            Some(old) => Some(old.lock.lock().await),
            None => None,
        };
        // What replaces a file that has something is sent now, not with the commit.
        let replaced = old.as_ref().filter(|old| old.ino != moved.ino);
        if moved.is_file() && replaced.is_some_and(|old| old.size() > 0) {
            self.start_flush(&moved).await;
        }
        // Names, references and inodes of both, directories, orphan.
        let p = self.reserve(11).await?;
        self.rt.cpu(CpuOp::NameChange, 2).await;
        let (moved, again) = self.check_rename(from, to)?;
        if again.as_ref().is_some_and(|old| old.ino == moved.ino) {
            return Ok(());
        }
        if again.is_none() {
            self.with(|c| c.check_name(self.tree, b.ino, to.1))?;
        }
        let index = self.with(|c| self.take_index(c, &b))?;
        // The one step that may find no room.
        self.with(|c| c.add_ref(self.tree, moved.ino, b.ino, index, to.1))?;
        if a.ino != b.ino {
            self.note_move(&a, &moved);
        }
        let done = self.must(|c| {
            let was = self.remove_name(c, from, &moved)?;
            self.update_inode(c, &moved)?;
            let gone = match &again {
                Some(old) => Some(self.drop_name(c, to, old)?),
                None => None,
            };
            self.add_name(c, to, &moved, index)?;
            Ok((was, gone))
        });
        if let Ok((was, gone)) = done {
            moved.logged.renamed.set(self.newest());
            if let (Some(old), Some(gone)) = (&again, gone) {
                self.note_replaced(&b, old);
                self.forget_logged_name(to, old, gone);
            }
            self.log_new_name(&moved, Some((&a, was)));
        }
        let done = done.map(|_| ());
        let done = self.settled(done).await;
        drop((p, victim, other, lock));
        done?;
        match again {
            Some(old) => self.put_quietly(&old).await,
            None => Ok(()),
        }
    }
}
