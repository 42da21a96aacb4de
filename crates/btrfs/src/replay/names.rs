//! Names, with all that says the same of them: entries by hash and by place in the directory,
//! references in the inode, the directory's size.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};
use wp_vfs::FileType;

use crate::core::Core;
use crate::disk::dir::{self, entry_bytes, name_hash};
use crate::disk::inode::{self, extref_bytes, extref_hash, ref_bytes};
use crate::disk::node::{ITEM_BYTES, leaf_space};
use crate::disk::{Key, id, kind, wide};

use super::{Replay, broken, missing};

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub name: Vec<u8>,
    pub location: Key,
    /// Its type byte.
    pub kind: u8,
}

/// Names by their place that are not in the tree yet, as the kernel has them: inserted after the
/// next name that is removed, or in the end. What the tree looks like meanwhile hangs on it.
pub(super) type Delayed = BTreeMap<(u64, Key), Vec<u8>>;

/// `btrfs_run_delayed_items`.
pub(super) fn insert_delayed(core: &mut Core<'_>, delayed: &mut Delayed) -> FsResult<()> {
    for ((tree, key), entry) in std::mem::take(delayed) {
        core.insert_item(tree, key, &entry).map_err(|e| match e {
            FsError::Exists => broken("directory index", key.offset, "no other name at its place"),
            other => other,
        })?;
    }
    Ok(())
}

impl Replay<'_, '_> {
    /// The entry of a name. `btrfs_lookup_dir_item`.
    pub(super) fn dir_item(&mut self, folder: u64, name: &[u8]) -> FsResult<Option<Found>> {
        self.entry(Key::new(folder, kind::DIR_ITEM, name_hash(name)), name)
    }

    /// The entry of a name at a place. `btrfs_lookup_dir_index_item`.
    pub(super) fn dir_index(
        &mut self,
        folder: u64,
        index: u64,
        name: &[u8],
    ) -> FsResult<Option<Found>> {
        self.entry(Key::new(folder, kind::DIR_INDEX, index), name)
    }

    fn entry(&mut self, key: Key, name: &[u8]) -> FsResult<Option<Found>> {
        let item = self.core.lookup(self.tree, key)?.unwrap_or_default();
        let found = dir::entries(&item).map_while(Result::ok).find(|e| e.name == name);
        Ok(found.map(|e| Found { name: name.to_vec(), location: e.location, kind: e.kind }))
    }

    /// Removes a part of an item, or all of it if nothing is left.
    pub(super) fn cut(&mut self, key: Key, item: &[u8], at: usize, bytes: usize) -> FsResult<()> {
        let mut rest = item.get(..at).unwrap_or(&[]).to_vec();
        rest.extend_from_slice(item.get(at + bytes..).unwrap_or(&[]));
        if rest.is_empty() {
            self.core.remove_item(self.tree, key)
        } else {
            self.core.replace_item(self.tree, key, &rest)
        }
    }

    /// Takes a name from an inode: in the directory, in the inode. `btrfs_unlink_inode`.
    pub(super) fn unlink(&mut self, folder: u64, ino: u64, name: &[u8]) -> FsResult<()> {
        let key = Key::new(folder, kind::DIR_ITEM, name_hash(name));
        let item = self.core.lookup(self.tree, key)?.unwrap_or_default();
        let entry = dir::entries(&item).map_while(Result::ok).find(|e| e.name == name);
        let Some(entry) = entry else {
            return Err(broken("name", folder, "in the directory that it is removed from"));
        };
        self.cut(key, &item, entry.at, entry.bytes)?;
        let index = self.remove_ref(ino, folder, name)?;
        let key = Key::new(folder, kind::DIR_INDEX, index);
        if self.state.delayed.remove(&(self.tree, key)).is_none() {
            self.core.remove_item(self.tree, key).map_err(missing("directory index", index))?;
        }
        self.state.done.unlinked += 1;
        let now = self.now();
        let mut dir = self.inode_needed(folder)?;
        dir.size = dir.size.get().saturating_sub(2 * wide(name.len())).into();
        (dir.mtime, dir.ctime) = (now, now);
        dir.sequence = dir.sequence.get().wrapping_add(1).into();
        self.put_inode(folder, &dir)?;
        let mut file = self.inode_needed(ino)?;
        file.ctime = now;
        file.sequence = file.sequence.get().wrapping_add(1).into();
        // Counted again in the end.
        file.nlink = file.nlink.get().saturating_sub(1).into();
        self.put_inode(ino, &file)?;
        insert_delayed(self.core, &mut self.state.delayed)
    }

    /// An entry of a directory goes, as another is to come. `drop_one_dir_item`.
    pub(super) fn drop_entry(&mut self, folder: u64, found: &Found) -> FsResult<()> {
        let ino = found.location.objectid;
        self.count_names_later(ino)?;
        self.unlink(folder, ino, &found.name)
    }

    /// Removes an inode's reference to a name; answers its place in the directory.
    /// `btrfs_del_inode_ref`.
    fn remove_ref(&mut self, ino: u64, folder: u64, name: &[u8]) -> FsResult<u64> {
        let key = Key::new(ino, kind::INODE_REF, folder);
        let item = self.core.lookup(self.tree, key)?.unwrap_or_default();
        let found = inode::refs(&item, folder).map_while(Result::ok).find(|n| n.name == name);
        if let Some(n) = found {
            self.cut(key, &item, n.at, n.bytes)?;
            return Ok(n.index);
        }
        let key = Key::new(ino, kind::INODE_EXTREF, extref_hash(folder, name));
        let item = self.core.lookup(self.tree, key)?.unwrap_or_default();
        let mut all = inode::extrefs(&item).map_while(Result::ok);
        match all.find(|n| n.parent == folder && n.name == name) {
            Some(n) => {
                self.cut(key, &item, n.at, n.bytes)?;
                Ok(n.index)
            }
            None => Err(broken("inode reference", ino, "one to the name that is removed")),
        }
    }

    /// Adds to an item, or makes it. `false`: it has no room.
    fn append(&mut self, key: Key, have: Option<Vec<u8>>, more: &[u8]) -> FsResult<bool> {
        let Some(mut item) = have else {
            self.core.insert_item(self.tree, key, more)?;
            return Ok(true);
        };
        if item.len() + more.len() + ITEM_BYTES > leaf_space(self.core.node_bytes()) {
            return Ok(false);
        }
        item.extend_from_slice(more);
        self.core.replace_item(self.tree, key, &item)?;
        Ok(true)
    }

    /// An inode gets a reference to a name. Errors: `Exists`. `btrfs_insert_inode_ref`.
    fn insert_ref(&mut self, ino: u64, folder: u64, index: u64, name: &[u8]) -> FsResult<()> {
        let key = Key::new(ino, kind::INODE_REF, folder);
        let have = self.core.lookup(self.tree, key)?;
        let item = have.as_deref().unwrap_or(&[]);
        if inode::refs(item, folder).map_while(Result::ok).any(|n| n.name == name) {
            return Err(FsError::Exists);
        }
        if self.append(key, have, &ref_bytes(index, name))? {
            return Ok(());
        }
        let key = Key::new(ino, kind::INODE_EXTREF, extref_hash(folder, name));
        let have = self.core.lookup(self.tree, key)?;
        let item = have.as_deref().unwrap_or(&[]);
        let mut all = inode::extrefs(item).map_while(Result::ok);
        if all.any(|n| n.parent == folder && n.name == name) {
            return Err(FsError::Exists);
        }
        drop(all);
        if self.append(key, have, &extref_bytes(folder, index, name))? {
            return Ok(());
        }
        Err(broken("inode reference", ino, "room for one more"))
    }

    /// Adds a name to a directory: both entries, and its size. Errors: `Exists`, without any
    /// change. `btrfs_add_link`.
    pub(super) fn add_link(
        &mut self,
        folder: u64,
        ino: u64,
        name: &[u8],
        index: u64,
        adds_ref: bool,
    ) -> FsResult<()> {
        if ino == id::FIRST_FREE {
            return Err(broken("inode", ino, "one that can have a name: it is the root"));
        }
        let mode = self.inode_needed(ino)?.mode.get();
        let by_name = Key::new(folder, kind::DIR_ITEM, name_hash(name));
        let have = self.core.lookup(self.tree, by_name)?;
        let item = have.as_deref().unwrap_or(&[]);
        if dir::entries(item).map_while(Result::ok).any(|e| e.name == name) {
            return Err(FsError::Exists);
        }
        if adds_ref {
            self.insert_ref(ino, folder, index, name)?;
        }
        let location = Key::new(ino, kind::INODE_ITEM, 0);
        let transid = self.core.transid();
        let entry = entry_bytes(location, transid, FileType::entry_of_mode(mode), name, b"");
        if !self.append(by_name, have, &entry)? {
            return Err(broken("directory entry", folder, "room for one more with its hash"));
        }
        let by_index = Key::new(folder, kind::DIR_INDEX, index);
        if self.state.delayed.insert((self.tree, by_index), entry).is_some() {
            return Err(broken("directory index", index, "no other name at its place"));
        }
        self.state.done.names += 1;
        let mut dir = self.inode_needed(folder)?;
        dir.size = dir.size.get().saturating_add(2 * wide(name.len())).into();
        dir.sequence = dir.sequence.get().wrapping_add(1).into();
        self.put_inode(folder, &dir)
    }

    /// A name of a directory whose inode has no reference in the log. Errors: `NotFound` if there
    /// is no such inode; `Exists`. `insert_one_name`.
    pub(super) fn insert_name(
        &mut self,
        folder: u64,
        index: u64,
        name: &[u8],
        ino: u64,
    ) -> FsResult<()> {
        if self.inode(ino)?.is_none() {
            return Err(FsError::NotFound);
        }
        self.add_link(folder, ino, name, index, true)
    }
}
