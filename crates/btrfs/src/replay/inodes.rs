//! Inodes: replaced by what the log has, rid of names and attributes that it no longer has, and
//! their names counted.

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::disk::inode;
use crate::disk::misc::orphan_key;
use crate::disk::node::{ITEM_BYTES, leaf_space};
use crate::disk::{InodeItem, Key, dir, id, kind};
use crate::site;

use super::names::insert_delayed;
use super::{Overgrown, Replay, broken, log, missing};

fn fixup_key(ino: u64) -> Key {
    Key::new(id::TREE_LOG_FIXUP, kind::ORPHAN_ITEM, ino)
}

impl Replay<'_, '_> {
    /// An inode of the subvolume, if it is there.
    pub(super) fn inode(&mut self, ino: u64) -> FsResult<Option<InodeItem>> {
        let key = Key::new(ino, kind::INODE_ITEM, 0);
        let item = self.core.lookup(self.tree, key)?;
        item.map(|item| log::inode_of(&item, key)).transpose()
    }

    /// An inode that must be there.
    pub(super) fn inode_needed(&mut self, ino: u64) -> FsResult<InodeItem> {
        self.inode(ino)?.ok_or_else(|| broken("inode", ino, "one that is there"))
    }

    /// Writes an inode. `btrfs_update_inode`.
    pub(super) fn put_inode(&mut self, ino: u64, inode: &InodeItem) -> FsResult<()> {
        let mut inode = *inode;
        inode.transid = self.core.transid().into();
        let key = Key::new(ino, kind::INODE_ITEM, 0);
        let done = self.core.replace_item(self.tree, key, inode.as_bytes());
        done.map_err(missing("inode", ino))
    }

    /// An item of the log replaces that of the subvolume. `overwrite_item`.
    pub(super) fn overwrite_item(&mut self, key: Key, item: &[u8]) -> FsResult<()> {
        let have = self.core.lookup(self.tree, key)?;
        if have.as_deref() == Some(item) {
            return Ok(());
        }
        if key.kind != kind::INODE_ITEM {
            return match have {
                Some(have) => {
                    self.count_panic(key, have.len(), item.len())?;
                    self.core.replace_item(self.tree, key, item)
                }
                None => self.core.insert_item(self.tree, key, item),
            };
        }
        let mut new = log::inode_of(item, key)?;
        let Some(have) = have else {
            // Extents that are replayed count up, names of a directory too.
            new.nbytes = 0.into();
            if new.is_dir() {
                new.size = 0.into();
            }
            self.fill_generation(&mut new);
            return self.core.insert_item(self.tree, key, new.as_bytes());
        };
        let mut old = log::inode_of(&have, key)?;
        if new.generation.get() == 0 {
            // Logged only so that it is there: nothing but a size that was written counts.
            if new.is_file() && old.is_file() && new.size.get() != 0 {
                old.size = new.size;
            }
            return self.core.replace_item(self.tree, key, old.as_bytes());
        }
        new.nbytes = old.nbytes;
        let keeps_size = !self.state.old.dir_size && site::REPLAY_DIR_SIZE.on();
        if new.is_dir() && keeps_size {
            new.size = if old.is_dir() { old.size } else { 0.into() };
        }
        self.fill_generation(&mut new);
        self.core.replace_item(self.tree, key, new.as_bytes())
    }

    /// Linux 6.12 panics here where an item grows to more than about half of a leaf, and the leaf
    /// has no room: the search does not split it then (`EOVERFLOW`), and `btrfs_extend_item` is
    /// called all the same. Seen with many names of a file in one directory.
    fn count_panic(&mut self, key: Key, have: usize, new: usize) -> FsResult<()> {
        if new + have + ITEM_BYTES <= leaf_space(self.core.node_bytes()) {
            return Ok(());
        }
        let path = self.core.path(self.tree, key)?;
        let free = self.core.leaf(&path)?.free_bytes();
        if self.state.old.overwrite && free < new + ITEM_BYTES {
            let expected = "room for a second item of its size (EOVERFLOW)";
            return Err(broken("item that is replaced", crate::disk::wide(free), expected));
        }
        if new > have && free < new - have {
            self.state.done.panics += 1;
            if self.state.overgrown == Overgrown::Panic {
                let expected = "room for an item that grows: Linux 6.12 panics here";
                return Err(broken("item that is replaced", crate::disk::wide(free), expected));
            }
        }
        Ok(())
    }

    fn fill_generation(&self, inode: &mut InodeItem) {
        if inode.generation.get() == 0 {
            inode.generation = self.core.transid().into();
        }
    }

    /// Attributes that the log does not have go. `replay_xattr_deletes`.
    pub(super) fn delete_xattrs(&mut self, ino: u64) -> FsResult<()> {
        if !site::REPLAY_XATTRS_GO.on() {
            return Ok(());
        }
        let mut from = Key::new(ino, kind::XATTR_ITEM, 0);
        let to = Key::new(ino, kind::XATTR_ITEM, u64::MAX);
        while let Some((key, item)) = self.core.first(self.tree, from, to)? {
            let mut kept = Vec::new();
            let mut goes = false;
            for entry in dir::entries(&item) {
                let e = entry.map_err(|at| {
                    broken("attribute", crate::disk::wide(at), "whole attributes in an item")
                })?;
                if self.log.has_xattr(ino, e.name) {
                    kept.extend_from_slice(item.get(e.at..e.at + e.bytes).unwrap_or(&[]));
                } else {
                    goes = true;
                }
            }
            if kept.is_empty() {
                self.core.remove_item(self.tree, key)?;
            } else if goes {
                self.core.replace_item(self.tree, key, &kept)?;
            }
            match key.next() {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Names of a directory that the log would have, if they were still there, go.
    /// `replay_dir_deletes`.
    pub(super) fn delete_names(&mut self, folder: u64) -> FsResult<()> {
        if self.inode(folder)?.is_none() || !site::REPLAY_NAMES_GO.on() {
            return Ok(());
        }
        for (from, to) in self.log.ranges(folder)? {
            self.delete_range(folder, from, to, true)?;
        }
        Ok(())
    }

    fn delete_range(&mut self, folder: u64, from: u64, to: u64, asks_log: bool) -> FsResult<()> {
        let mut from = from;
        while from <= to {
            let key = |offset| Key::new(folder, kind::DIR_INDEX, offset);
            let Some((key, item)) = self.core.first(self.tree, key(from), key(to))? else { break };
            let Some(Ok(entry)) = dir::entries(&item).next() else {
                return Err(broken("directory entry", key.offset, "one whole entry"));
            };
            let (ino, name) = (entry.location.objectid, entry.name);
            if !(asks_log && self.log.has_index(folder, key.offset, name)) {
                self.count_names_later(ino)?;
                self.unlink(folder, ino, name)?;
            }
            match key.offset.checked_add(1) {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(())
    }

    /// An inode's names are to be counted in the end. `link_to_fixup_dir`.
    pub(super) fn count_names_later(&mut self, ino: u64) -> FsResult<()> {
        if !self.fixup.contains(&ino) {
            self.inode_needed(ino)?;
            self.fixup.insert(ino);
            self.core.insert_item(self.tree, fixup_key(ino), &[])?;
        }
        Ok(())
    }

    /// `fixup_inode_link_counts`.
    pub(super) fn fix_link_counts(&mut self) -> FsResult<()> {
        // Emptying a directory adds to the list.
        while let Some(ino) = self.fixup.pop_last() {
            self.core.remove_item(self.tree, fixup_key(ino))?;
            let mut inode = self.inode_needed(ino)?;
            if !site::REPLAY_LINKS.on() {
                continue;
            }
            inode.nlink = self.count_names(ino)?.into();
            if inode.is_dir() && inode.nlink.get() > 1 {
                // What a commit checks of the blocks that it writes (`check_inode_item`).
                let found = inode.nlink.get().into();
                return Err(broken("nlink of a directory", found, "no more than 1"));
            }
            self.put_inode(ino, &inode)?;
            if inode.nlink.get() > 0 {
                continue;
            }
            if inode.is_dir() {
                insert_delayed(self.core, &mut self.state.delayed)?;
                self.delete_range(ino, 0, u64::MAX, false)?;
            }
            match self.core.insert_item(self.tree, orphan_key(ino), &[]) {
                Ok(()) => self.state.done.orphans += 1,
                Err(FsError::Exists) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// `count_inode_refs`, `count_inode_extrefs`.
    fn count_names(&mut self, ino: u64) -> FsResult<u32> {
        let mut from = Key::new(ino, kind::INODE_REF, 0);
        let to = Key::new(ino, kind::INODE_EXTREF, u64::MAX);
        let mut names = 0u32;
        while let Some((key, item)) = self.core.first(self.tree, from, to)? {
            let n = match key.kind {
                kind::INODE_REF => inode::refs(&item, key.offset).map_while(Result::ok).count(),
                _ => inode::extrefs(&item).map_while(Result::ok).count(),
            };
            names = names.saturating_add(crate::disk::lo32(n));
            match key.next() {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(names)
    }
}
