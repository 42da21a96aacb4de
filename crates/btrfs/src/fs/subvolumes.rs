//! Trees of files that are in use: the mounted subvolume and those that names below it lead to.
//!
//! Picture:    a number that calls know an inode by ([`Handle`]) -> tree and inode. An inode of the
//!             mounted subvolume has its own number; one of another has the tree's in front of it,
//!             as there is one device number (`st_dev`) where Linux has one for each subvolume.
//! Invariants: 1. a name of a subvolume leads to its root directory only where the root tree says
//!                so too (ROOT_REF); else, as in a snapshot of its parent, to a directory without
//!                anything in it.
//! Source:     fs/btrfs/inode.c (`btrfs_lookup_dentry`, `fixup_tree_root_location`,
//!             `new_simple_dir`), disk-io.c (`btrfs_get_fs_root`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::inode::mode;
use crate::disk::root::{INO_BITS, OTHER_TREE, TREE_BITS, flag, inode_number};
use crate::disk::{InodeItem, Key, id};

use super::Btrfs;
use super::inode::Inode;
use super::log::TreeLog;

/// In a number that calls use: a subvolume's name that leads to nothing.
const STUB: u64 = 1 << 63;

/// `BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`.
const STUB_INO: u64 = 2;

/// What a number that calls use stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handle {
    /// An inode of a tree.
    Inode { tree: u64, ino: u64 },
    /// The name of a subvolume in a tree that has no reference to it.
    Stub { tree: u64, subvolume: u64 },
}

impl Handle {
    /// As calls use it; `top`: the mounted tree. Errors: `Unsupported` for numbers that have no
    /// place in it.
    pub fn pack(self, top: u64) -> FsResult<u64> {
        let (found, tree, low) = match self {
            Handle::Inode { tree, ino } => (inode_number(tree, ino, top), tree, ino),
            Handle::Stub { tree, subvolume } => {
                let fits = tree < 1 << TREE_BITS && subvolume < 1 << INO_BITS;
                (fits.then_some(STUB | tree << INO_BITS | subvolume), tree, subvolume)
            }
        };
        found.ok_or_else(|| FsError::Unsupported(format!("btrfs: number {low} in tree {tree}")))
    }

    /// What it was made of.
    pub fn unpack(number: u64, top: u64) -> Handle {
        let tree = number >> INO_BITS & ((1 << TREE_BITS) - 1);
        let low = number & ((1 << INO_BITS) - 1);
        match number {
            n if n & STUB != 0 => Handle::Stub { tree, subvolume: low },
            n if n & OTHER_TREE != 0 => Handle::Inode { tree, ino: low },
            ino => Handle::Inode { tree: top, ino },
        }
    }
}

/// A tree of files in use.
pub(super) struct Subvol {
    /// Its number.
    pub tree: u64,
    /// Its root directory.
    pub root_dir: u64,
    /// May it not be changed (`BTRFS_ROOT_SUBVOL_RDONLY`)?
    pub is_read_only: bool,
    /// The number of the next inode.
    next_ino: Cell<u64>,
    /// What is known of its log.
    pub log: TreeLog,
    /// Are inodes that lost their last name before it was in use to be deleted?
    pub has_orphans: Cell<bool>,
    /// It is being deleted: no name leads to it any more.
    pub is_dead: Cell<bool>,
}

impl Subvol {
    pub fn open(c: &mut Core<'_>, tree: u64) -> FsResult<Subvol> {
        let next_ino = c.next_ino(tree)?;
        let item = c.root(tree)?.item;
        Ok(Subvol {
            tree,
            root_dir: item.root_dirid.get(),
            is_read_only: item.flags.get() & flag::RDONLY != 0,
            next_ino: Cell::new(next_ino),
            log: TreeLog::default(),
            has_orphans: Cell::new(true),
            is_dead: Cell::new(false),
        })
    }

    /// Can an fsync write a log of it? Not if it is new, as no commit has its root, nor if it is
    /// being deleted. `btrfs_log_inode_parent`.
    pub fn can_log(&self, c: &mut Core<'_>) -> FsResult<bool> {
        let transid = c.transid();
        let item = c.root(self.tree)?.item;
        Ok(item.refs.get() > 0 && item.generation.get() != transid)
    }

    /// A number for a new inode. `btrfs_get_free_objectid`.
    pub fn take_ino(&self) -> u64 {
        let ino = self.next_ino.get();
        self.next_ino.set(ino + 1);
        ino
    }
}

/// Trees of files in use, by number.
pub(super) type Subvols = RefCell<std::collections::BTreeMap<u64, Rc<Subvol>>>;

impl Btrfs {
    /// A tree of files, opened if it is not in use. Errors: `NotFound` for one that is not there or
    /// is being deleted. `btrfs_get_fs_root`.
    pub(super) fn subvol(&self, c: &mut Core<'static>, tree: u64) -> FsResult<Rc<Subvol>> {
        if let Some(vol) = self.subvols.borrow().get(&tree) {
            return if vol.is_dead.get() { Err(FsError::NotFound) } else { Ok(vol.clone()) };
        }
        super::mount::root_item(c, tree)?;
        let vol = Rc::new(Subvol::open(c, tree)?);
        self.subvols.borrow_mut().insert(tree, vol.clone());
        Ok(vol)
    }

    /// The number that calls know an inode of a tree by.
    pub(super) fn handle(&self, tree: u64, ino: u64) -> FsResult<u64> {
        Handle::Inode { tree, ino }.pack(self.top.tree)
    }

    /// The inode of a tree if it is in memory.
    pub(super) fn inode_of(&self, tree: u64, ino: u64) -> Option<Rc<Inode>> {
        self.inode_in_memory(self.handle(tree, ino).ok()?)
    }

    /// An inode by the number that calls know it by, read if it is not in memory. Errors:
    /// `NotFound`.
    pub(super) fn iget(&self, handle: u64) -> FsResult<Rc<Inode>> {
        if let Some(inode) = self.inode_in_memory(handle) {
            return if inode.is_gone.get() { Err(FsError::NotFound) } else { Ok(inode) };
        }
        match Handle::unpack(handle, self.top.tree) {
            Handle::Inode { tree, ino } => self.with(|c| self.load_inode(c, tree, ino)),
            Handle::Stub { tree, subvolume } => {
                self.with(|c| self.stub(c, tree, (subvolume, InodeItem::zeroed())))
            }
        }
    }

    /// An inode of a tree, read if it is not in memory. Errors: `NotFound`.
    pub(super) fn iget_in(&self, tree: u64, ino: u64) -> FsResult<Rc<Inode>> {
        self.iget(self.handle(tree, ino)?)
    }

    /// The directory that a subvolume's name in `dir` leads to. `fixup_tree_root_location`.
    pub(super) fn find_subvolume(
        &self,
        dir: &Inode,
        name: &[u8],
        subvolume: u64,
    ) -> FsResult<Rc<Inode>> {
        self.with(|c| {
            if c.root_ref(dir.tree, subvolume)?.is_some_and(|r| r.is_name(dir.ino, name)) {
                let vol = self.subvol(c, subvolume)?;
                let handle = self.handle(vol.tree, vol.root_dir)?;
                if let Some(inode) = self.inode_in_memory(handle) {
                    return Ok(inode);
                }
                return self.load_inode(c, vol.tree, vol.root_dir);
            }
            let handle = Handle::Stub { tree: dir.tree, subvolume }.pack(self.top.tree)?;
            match self.inode_in_memory(handle) {
                Some(inode) => Ok(inode),
                None => self.stub(c, dir.tree, (subvolume, *dir.item.borrow())),
            }
        })
    }

    /// A directory that only stands for a name. `new_simple_dir`.
    fn stub(
        &self,
        c: &mut Core<'static>,
        tree: u64,
        (subvolume, dir): (u64, InodeItem),
    ) -> FsResult<Rc<Inode>> {
        let vol = self.subvol(c, tree)?;
        let now = self.time();
        let item = InodeItem {
            mode: (mode::DIR | 0o755).into(),
            nlink: 1.into(),
            uid: dir.uid,
            gid: dir.gid,
            atime: dir.atime,
            mtime: now,
            ctime: now,
            otime: dir.otime,
            ..InodeItem::zeroed()
        };
        let handle = Handle::Stub { tree, subvolume }.pack(self.top.tree)?;
        Ok(self.add_inode_as(handle, &vol, STUB_INO, item, false))
    }

    /// The directory above a directory, across subvolumes; `None`: it is that which is mounted.
    /// `btrfs_get_parent`.
    pub(super) fn above(&self, dir: u64) -> FsResult<Option<u64>> {
        let Handle::Inode { tree, ino } = Handle::unpack(dir, self.top.tree) else {
            return Ok(None);
        };
        if dir == self.top.root_dir {
            return Ok(None);
        }
        let found = self.with(|c| {
            let vol = self.subvol(c, tree)?;
            if ino != vol.root_dir {
                return c.parent_of(tree, ino).map(|ino| Some((tree, ino)));
            }
            Ok(c.parent_of_root(tree)?.map(|(parent, r)| (parent, r.dir)))
        })?;
        match found {
            Some((tree, ino)) => self.handle(tree, ino).map(Some),
            None => Ok(None),
        }
    }

    /// May something of this tree be changed? `btrfs_permission`.
    pub(super) fn check_writable_in(&self, inode: &Inode) -> FsResult<()> {
        self.check_writable()?;
        if inode.vol.is_read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Deletes what was to be deleted in trees that have come into use since: the first who finds a
    /// name that leads there does. `btrfs_orphan_cleanup` in `btrfs_lookup_dentry`.
    pub(super) async fn clean_new_subvols(&self) -> FsResult<()> {
        loop {
            let new = {
                let all = self.subvols.borrow();
                all.values().find(|v| v.has_orphans.get()).cloned()
            };
            let Some(vol) = new else { return Ok(()) };
            vol.has_orphans.set(false);
            if self.check_writable().is_ok() {
                self.clean_orphans(vol.tree).await?;
            }
        }
    }
}

impl Inode {
    /// Does it only stand for the name of a subvolume?
    pub fn is_stub(&self) -> bool {
        self.handle & STUB != 0
    }

    /// Is it the root directory of a subvolume?
    pub fn is_subvol(&self) -> bool {
        !self.is_stub() && self.ino == id::FIRST_FREE
    }

    /// What a name that leads to it has: its own key, or that of its tree's root item.
    /// `btrfs_add_link`.
    pub fn location(&self, c: &Core<'_>) -> FsResult<Key> {
        if self.is_subvol() { Ok(c.root(self.tree)?.key) } else { Ok(self.key()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_one_inode() {
        for what in [
            Handle::Inode { tree: 5, ino: 256 },
            Handle::Inode { tree: 300, ino: 256 },
            Handle::Inode { tree: 300, ino: (1 << 40) - 1 },
            Handle::Stub { tree: 5, subvolume: 257 },
            Handle::Stub { tree: 300, subvolume: 257 },
        ] {
            for top in [5, 300] {
                let number = what.pack(top).expect("it has a place");
                assert_eq!(Handle::unpack(number, top), what);
            }
        }
        for what in [
            Handle::Inode { tree: 5, ino: 1 << 62 },
            Handle::Inode { tree: 256, ino: 1 << 40 },
            Handle::Inode { tree: 1 << 22, ino: 256 },
        ] {
            assert!(matches!(what.pack(5), Err(FsError::Unsupported(_))), "{what:?}");
        }
    }
}
