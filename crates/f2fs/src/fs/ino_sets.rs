//! Sets of inodes that a checkpoint or an fsync must know (`struct inode_management`).
//!
//! Source: Linux `fs/f2fs/checkpoint.c` (`__add_ino_entry` and its kin).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};

use super::arrivals::Arrivals;
use super::counts::Dirty;
use super::mount::F2fs;
use crate::disk::{Checkpoint, OrphanBlock, count};

/// A set (`enum` of `APPEND_INO` and the others); orphans have their list apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InoSet {
    /// Files whose data went to new places since the last checkpoint.
    Append = 0,
    /// Files whose data was written in place since.
    Update = 1,
    /// Directories that lost or got a name by a rename since (`TRANS_DIR_INO`).
    TransDir = 2,
    /// Directories whose attributes changed since (`XATTR_DIR_INO`).
    XattrDir = 3,
}

/// The sets of a mounted file system.
#[derive(Default)]
pub(crate) struct InoSets {
    sets: RefCell<[BTreeSet<u32>; 4]>,
    /// Files that devices, as bits, hold unflushed data of (`FLUSH_INO`); kept of several devices
    /// only.
    unflushed: RefCell<BTreeMap<u32, u8>>,
    /// Orphans in order, which is the order of the list on disk.
    orphans: RefCell<Arrivals>,
    /// Orphans that there will be for certain (`ino_num` counts them in advance).
    acquired: Cell<u32>,
    /// Most orphans.
    pub max_orphans: Cell<u32>,
    /// Dirty inodes, oldest first (`inode_list[DIRTY_META]`).
    dirty: RefCell<Arrivals>,
    /// Directories with dirty blocks, oldest first (`inode_list[DIR_INODE]`).
    dirs: RefCell<Arrivals>,
}

impl InoSets {
    /// Empty ones, with room for as many orphans as a pack has (`f2fs_init_ino_entry_info`).
    pub(super) fn new(cp: &Checkpoint) -> InoSets {
        let sets = InoSets::default();
        let blocks = 512u32.saturating_sub(2 + 6 + cp.payload());
        sets.max_orphans.set(blocks * count(OrphanBlock::PER_BLOCK));
        sets
    }

    /// A device will hold something of an inode that is not flushed (`f2fs_set_dirty_device`).
    pub(super) fn dirty_device(&self, ino: u32, device: usize) {
        *self.unflushed.borrow_mut().entry(ino).or_default() |= 1 << device;
    }

    /// Does it (`f2fs_is_dirty_device`)?
    pub(super) fn is_dirty_device(&self, ino: u32, device: usize) -> bool {
        self.unflushed.borrow().get(&ino).is_some_and(|all| all & 1 << device != 0)
    }

    /// Everything of the inode is flushed, or need not be.
    pub(super) fn flushed(&self, ino: u32) {
        self.unflushed.borrow_mut().remove(&ino);
    }

    /// Orphans, in order.
    pub(super) fn orphans(&self) -> Vec<u32> {
        self.orphans.borrow().iter().collect()
    }

    /// The oldest dirty inode.
    pub(super) fn first_dirty(&self) -> Option<u32> {
        self.dirty.borrow().first()
    }

    /// The directory that became dirty first.
    pub(super) fn first_dir(&self) -> Option<u32> {
        self.dirs.borrow().first()
    }
}

impl F2fs {
    /// Puts an inode into a set.
    pub(crate) fn add_ino(&self, ino: u32, set: InoSet) {
        self.inos.sets.borrow_mut()[set as usize].insert(ino);
    }

    /// Takes it out.
    pub(crate) fn remove_ino(&self, ino: u32, set: InoSet) {
        self.inos.sets.borrow_mut()[set as usize].remove(&ino);
    }

    /// Is it in the set (`f2fs_exist_written_data`)?
    pub(crate) fn has_ino(&self, ino: u32, set: InoSet) -> bool {
        self.inos.sets.borrow()[set as usize].contains(&ino)
    }

    /// Empties all sets: a checkpoint was written (`f2fs_release_ino_entry`).
    pub(super) fn release_inos(&self) {
        self.inos.sets.borrow_mut().iter_mut().for_each(BTreeSet::clear);
        self.inos.unflushed.borrow_mut().clear();
    }

    /// Makes sure that there is room for one orphan more (`f2fs_acquire_orphan_inode`). Errors:
    /// `NoSpace`.
    pub(crate) fn acquire_orphan(&self) -> FsResult<()> {
        if self.inos.acquired.get() >= self.inos.max_orphans.get() {
            return Err(FsError::NoSpace);
        }
        self.inos.acquired.set(self.inos.acquired.get() + 1);
        Ok(())
    }

    /// It was not needed (`f2fs_release_orphan_inode`).
    pub(crate) fn release_orphan(&self) {
        self.inos.acquired.set(self.inos.acquired.get().saturating_sub(1));
    }

    /// Puts an inode on the list of orphans (`f2fs_add_orphan_inode`).
    pub(crate) fn add_orphan(&self, ino: u32) {
        self.inos.orphans.borrow_mut().insert(ino);
    }

    /// Takes it off, if it is there, with its room (`f2fs_remove_orphan_inode`).
    pub(crate) fn remove_orphan(&self, ino: u32) {
        if self.inos.orphans.borrow_mut().remove(ino) {
            self.inos.acquired.set(self.inos.acquired.get().saturating_sub(1));
        }
    }

    /// An inode differs from its node block: a checkpoint copies it there (`f2fs_inode_dirtied`).
    pub(crate) fn inode_dirtied(&self, ino: u32) {
        if self.inos.dirty.borrow_mut().insert(ino) {
            self.counts.dirtied(Dirty::Inodes);
        }
    }

    /// It does not any more (`f2fs_inode_synced`).
    pub(crate) fn inode_synced(&self, ino: u32) {
        if self.inos.dirty.borrow_mut().remove(ino) {
            self.counts.cleaned(Dirty::Inodes);
        }
    }

    /// A directory has dirty blocks (`f2fs_update_dirty_folio`; the count is the caller's).
    pub(crate) fn dir_dirtied(&self, ino: u32) {
        self.inos.dirs.borrow_mut().insert(ino);
    }

    /// It has none any more (`f2fs_remove_dirty_inode`).
    pub(crate) fn dir_cleaned(&self, ino: u32) {
        self.inos.dirs.borrow_mut().remove(ino);
    }
}
