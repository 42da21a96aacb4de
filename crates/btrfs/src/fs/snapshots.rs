//! Subvolumes and snapshots are made and deleted.
//!
//! Picture:    a subvolume is made as a directory is, with a tree of its own. A snapshot is made by
//!             the commit that the call waits for, when all of the source has arrived that was
//!             written before. One that is deleted loses its name; the cleaner deletes its tree,
//!             when nobody has a file of it open, in transactions later on.
//! Invariants: 1. a snapshot has all that was changed in its source before the call, and what was
//!                written before.
//!             2. it is on the device when the call returns; a new subvolume and a deletion are
//!                with the next commit.
//! Source:     fs/btrfs/ioctl.c (`btrfs_mksubvol`, `btrfs_mksnapshot`, `create_subvol`,
//!             `create_snapshot`, `btrfs_ioctl_snap_destroy`), inode.c (`btrfs_delete_subvolume`),
//!             transaction.c (`create_pending_snapshot`, `btrfs_clean_one_deleted_snapshot`).

use std::cell::RefCell;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_rt::CpuOp;
use wp_vfs::{FileType, NodeSpec, may_create, may_delete};

use crate::core::Core;
use crate::disk::{Key, id, kind};
use crate::items::RootName;
use crate::trans::{Dropped, NewRoot};

use super::Btrfs;
use super::inode::{InUse, Inode};
use super::namei::Place;
use super::subvolumes::Subvol;

/// Leaves of a dead tree that are deleted before others have their turn.
const DROP_STEP: u64 = 256;
/// Extents whose references may wait before some are run between two steps.
const REFS_MAX: u64 = 4096;

/// A snapshot that the next commit makes (`struct btrfs_pending_snapshot`).
pub(super) struct PendingSnapshot {
    dir: Rc<Inode>,
    name: Vec<u8>,
    source: Rc<Subvol>,
    is_read_only: bool,
    /// Its tree.
    made: RefCell<FsResult<u64>>,
}

impl Btrfs {
    /// A directory in which subvolumes are made and deleted. Errors: `NotDir`; `NoSuchIoctl` for
    /// one that only stands for a name.
    fn dir_for_subvols(&self, dir: u64) -> FsResult<Rc<Inode>> {
        let dir = self.dir(dir)?;
        if dir.is_stub() {
            return Err(FsError::NoSuchIoctl);
        }
        self.check_writable()?;
        Ok(dir)
    }

    /// May a subvolume get this name? The caller has the directory's lock. `btrfs_mksubvol`.
    fn check_new_subvol(&self, (dir, name): Place<'_>) -> FsResult<()> {
        if self.find(dir, name)?.is_some() {
            return Err(FsError::Exists);
        }
        self.check_dir(dir)?;
        self.check_writable_in(dir)?;
        may_create(dir.file_flags())?;
        self.with(|c| c.check_name(dir.tree, dir.ino, name))
    }

    fn take_tree(&self) -> u64 {
        let tree = self.next_tree.get();
        self.next_tree.set(tree + 1);
        tree
    }

    /// Makes an empty subvolume. `create_subvol`.
    pub(super) async fn create_subvolume(&self, dir: u64, name: &[u8]) -> FsResult<()> {
        let dir = self.dir_for_subvols(dir)?;
        let _lock = dir.lock.lock().await;
        self.check_new_subvol((&dir, name))?;
        // Root block, root item, two references, uuid; and what a directory takes.
        let _p = self.reserve(12).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        self.rt.cpu(CpuOp::InodeChange, 1).await;
        self.with(|c| c.check_name(dir.tree, dir.ino, name))?;
        let tree = self.take_tree();
        let done = self.must(|c| {
            let transid = c.transid_begun()?;
            let mut item = self.new_item(&dir, &NodeSpec::new(FileType::Dir, 0o755), transid);
            // Nothing of the directory's is inherited.
            item.flags = 0.into();
            c.create_subvolume(NewRoot { tree, now: self.time() }, &item)?;
            c.touch_root(tree, self.time_of(self.rt.now()))?;
            let vol = self.subvol(c, tree)?;
            vol.has_orphans.set(false);
            let inode = self.add_inode(&vol, id::FIRST_FREE, item, true)?;
            self.note_change(&inode, transid);
            let index = self.take_index(c, &dir)?;
            self.add_name(c, (&dir, name), &inode, index)?;
            // Only a commit tells of it (`btrfs_record_new_subvolume`).
            dir.logged.last_unlink.set(transid);
            Ok(())
        });
        self.settled(done).await
    }

    /// Makes a subvolume of what another has. Waits: for the source's data, and for a commit.
    ///
    /// Errors: `Invalid` if the source is no subvolume; as [`Btrfs::create_subvolume`].
    /// `btrfs_mksnapshot`.
    pub(super) async fn snapshot(
        &self,
        source: u64,
        (dir, name): (u64, &[u8]),
        is_read_only: bool,
    ) -> FsResult<()> {
        let dir = self.dir_for_subvols(dir)?;
        let source = self.iget(source)?;
        if !source.is_subvol() {
            return Err(FsError::Invalid("a snapshot of what is no subvolume"));
        }
        let _user = InUse::new(&source);
        let vol = source.vol.clone();
        self.write_subvol(&vol).await;
        let _lock = dir.lock.lock().await;
        self.check_new_subvol((&dir, name))?;
        if vol.is_dead.get() {
            return Err(FsError::NotFound);
        }
        let _p = self.reserve(10).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        let pending = Rc::new(PendingSnapshot {
            dir: dir.clone(),
            name: name.to_vec(),
            source: vol,
            is_read_only,
            made: RefCell::new(Err(FsError::Io)),
        });
        let transid = self.with(|c| c.transid_begun())?;
        self.commits.snapshots.borrow_mut().push(pending.clone());
        self.commit(transid).await?;
        let tree = pending.made.borrow().clone()?;
        let opened = self.with(|c| self.subvol(c, tree));
        let vol = self.settled(opened).await?;
        vol.has_orphans.set(false);
        self.clean_orphans(vol.tree).await
    }

    /// Sends what was written to files of a subvolume, and waits until items lead to it.
    /// `btrfs_start_delalloc_snapshot`, `btrfs_wait_ordered_extents`.
    async fn write_subvol(&self, vol: &Subvol) {
        let all: Vec<Rc<Inode>> = {
            let inodes = self.inodes.borrow();
            inodes.values().filter(|i| i.tree == vol.tree).cloned().collect()
        };
        for inode in &all {
            self.start_flush(inode).await;
        }
        for inode in &all {
            self.wait_ordered(inode, 0, u64::MAX).await;
        }
    }

    /// A commit makes the snapshots that wait for it. `create_pending_snapshots`.
    pub(super) fn make_snapshots(&self, c: &mut Core<'static>) -> FsResult<()> {
        let all = std::mem::take(&mut *self.commits.snapshots.borrow_mut());
        if all.is_empty() {
            return Ok(());
        }
        c.commit_prepare()?;
        for pending in all {
            let made = self.make_snapshot(c, &pending);
            *pending.made.borrow_mut() = made.clone();
            if made.is_err() {
                c.break_off();
            }
            made?;
        }
        Ok(())
    }

    /// `create_pending_snapshot`.
    fn make_snapshot(&self, c: &mut Core<'static>, p: &PendingSnapshot) -> FsResult<u64> {
        let (dir, tree) = (&p.dir, self.take_tree());
        c.join(dir.tree)?;
        let index = self.take_index(c, dir)?;
        let new = NewRoot { tree, now: self.time() };
        c.create_snapshot(new, p.source.tree, p.is_read_only)?;
        let name = RootName { dir: dir.ino, index, name: p.name.clone() };
        c.add_root_ref(dir.tree, tree, &name)?;
        let to = Key::new(tree, kind::ROOT_ITEM, u64::MAX);
        c.add_name(dir.tree, dir.ino, index, &p.name, to, FileType::Dir.entry())?;
        self.name_changed(c, dir, p.name.len())?;
        c.register_uuids(tree)?;
        Ok(tree)
    }

    /// Deletes a subvolume with all that is in it.
    ///
    /// Errors: `Invalid` for what is none; `NotEmpty` if it has subvolumes; `NotPermitted` for the
    /// default one; `NotFound`, `NotDir`. `btrfs_ioctl_snap_destroy`.
    pub(super) async fn delete_subvolume(&self, dir: u64, name: &[u8]) -> FsResult<()> {
        let dir = self.dir_for_subvols(dir)?;
        let lock = dir.lock.lock().await;
        let inode = self.find_in((&dir, name))?.ok_or(FsError::NotFound)?;
        self.check_writable_in(&dir)?;
        may_delete(dir.file_flags(), inode.file_flags())?;
        if !inode.is_dir() {
            return Err(FsError::NotDir);
        }
        if !inode.is_subvol() {
            return Err(FsError::Invalid("a deletion of what is no subvolume"));
        }
        let victim = inode.lock.lock().await;
        let done = self.unname_subvol((&dir, name), &inode).await;
        drop((victim, lock));
        done?;
        self.forget_subvol(&inode.vol).await
    }

    /// A subvolume loses its name. The caller has the locks of it and of its directory.
    /// `btrfs_delete_subvolume`.
    pub(super) async fn unname_subvol(&self, place: Place<'_>, inode: &Inode) -> FsResult<()> {
        let tree = inode.tree;
        let (is_default, has_some) = self.with(|c| {
            let default = c.find_name(id::ROOT_TREE, id::ROOT_TREE_DIR, b"default")?;
            let is_default = default.is_some_and(|d| d.location.objectid == tree);
            Ok((is_default, c.has_subvolumes(tree)?))
        })?;
        if is_default {
            return Err(FsError::NotPermitted);
        }
        if has_some {
            return Err(FsError::NotEmpty);
        }
        let _p = self.reserve_removal(5).await?;
        self.rt.cpu(CpuOp::NameChange, 1).await;
        let done = self.must(|c| {
            // Only a commit tells of it (`btrfs_record_snapshot_destroy`).
            place.0.logged.last_unlink.set(c.transid_begun()?);
            self.remove_name(c, place, inode)?;
            c.give_up_subvolume(tree)
        });
        if done.is_ok() {
            inode.vol.is_dead.set(true);
        }
        self.settled(done).await
    }

    /// Forgets the inodes of a subvolume that has lost its name, but for those that are open: who
    /// closes the last has the cleaner delete the tree. `btrfs_prune_dentries`.
    pub(super) async fn forget_subvol(&self, vol: &Subvol) -> FsResult<()> {
        let all: Vec<Rc<Inode>> = {
            let inodes = self.inodes.borrow();
            inodes.values().filter(|i| i.tree == vol.tree).cloned().collect()
        };
        for inode in all {
            self.put_quietly(&inode).await?;
        }
        self.note_dead(vol.tree);
        Ok(())
    }

    /// A tree without a name is for the cleaner if no inode of it is in memory.
    /// `btrfs_del_inode_from_root`.
    pub(super) fn note_dead(&self, tree: u64) {
        if !self.inodes.borrow().values().any(|i| i.tree == tree) {
            self.cleaner.add_tree(tree, false);
        }
    }

    /// Trees that were to be deleted at the last power cut, or unmount, are.
    /// `btrfs_find_orphan_roots`.
    pub(super) fn find_dead_trees(&self) -> FsResult<()> {
        for tree in self.with(Core::dead_trees)? {
            self.cleaner.add_tree(tree, true);
            let has_begun =
                self.with(|c| Ok(c.root(tree)?.item.drop_progress.get() != Key::MIN))?;
            if has_begun {
                self.wake_cleaner();
            }
        }
        Ok(())
    }

    /// Deletes a tree. Waits: for room, and between its steps. `btrfs_drop_snapshot`.
    pub(super) async fn drop_dead_tree(&self, tree: u64, is_old: bool) -> FsResult<()> {
        let log = self.subvols.borrow().get(&tree).cloned();
        if let Some(vol) = log.filter(|vol| vol.log.is_open()) {
            self.must(|c| vol.log.free(c))?;
        }
        let mut is_restarted = is_old;
        loop {
            self.wait_for_start().await;
            self.check_writable()?;
            let done = self.must(|c| c.drop_tree(tree, DROP_STEP, is_restarted));
            is_restarted = true;
            if self.settled(done).await? == Dropped::All {
                break;
            }
            self.with(|c| c.run_some_refs(REFS_MAX))?;
            let is_short = self.with(|c| Ok(c.metadata_left() < c.global_reserve()))?;
            if is_short {
                self.commit_now().await?;
            }
        }
        self.subvols.borrow_mut().remove(&tree);
        Ok(())
    }
}
