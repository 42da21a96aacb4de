//! Names in directories: a DIR_ITEM by hash, a DIR_INDEX by order.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::dir::{entries, entry_bytes, name_hash};
use crate::disk::{Entry, Key, kind};
use crate::tree::{Path, Purpose};

use super::wrong;

/// The first index in a directory. `BTRFS_DIR_START_INDEX`.
pub const INDEX_START: u64 = 2;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameEntry {
    /// Key of what it names.
    pub location: Key,
    /// Transaction that made it.
    pub transid: u64,
    /// What it names, as a number: see [`wp_vfs::FileType::entry`].
    pub kind: u8,
    /// The name.
    pub name: Vec<u8>,
}

impl NameEntry {
    fn of(e: &Entry<'_>) -> NameEntry {
        let (location, transid, kind) = (e.location, e.transid, e.kind);
        NameEntry { location, transid, kind, name: e.name.to_vec() }
    }
}

fn hash_key(dir: u64, name: &[u8]) -> Key {
    Key::new(dir, kind::DIR_ITEM, name_hash(name))
}

impl Core<'_> {
    /// What a name in a directory names. `btrfs_lookup_dir_item`.
    pub fn find_name(&mut self, tree: u64, dir: u64, name: &[u8]) -> FsResult<Option<NameEntry>> {
        let Some(item) = self.lookup(tree, hash_key(dir, name))? else { return Ok(None) };
        for e in entries(&item) {
            let e = e.map_err(|_| wrong("btrfs directory item", dir, "whole entries"))?;
            if e.name == name {
                return Ok(Some(NameEntry::of(&e)));
            }
        }
        Ok(None)
    }

    /// The name with this index in a directory.
    pub fn find_index(&mut self, tree: u64, dir: u64, index: u64) -> FsResult<Option<NameEntry>> {
        let key = Key::new(dir, kind::DIR_INDEX, index);
        Ok(self.read_dir(tree, dir, index)?.filter(|(i, _)| *i == key.offset).map(|(_, e)| e))
    }

    /// The first name of a directory with this index or a greater one. `btrfs_real_readdir`.
    pub fn read_dir(
        &mut self,
        tree: u64,
        dir: u64,
        from: u64,
    ) -> FsResult<Option<(u64, NameEntry)>> {
        let key = |index| Key::new(dir, kind::DIR_INDEX, index);
        let Some((key, item)) = self.first(tree, key(from), key(u64::MAX))? else {
            return Ok(None);
        };
        match entries(&item).next() {
            Some(Ok(e)) => Ok(Some((key.offset, NameEntry::of(&e)))),
            _ => Err(wrong("btrfs directory index", dir, "a whole entry")),
        }
    }

    /// The index that a name has in a directory, found among all. Errors: `NotFound`.
    /// `btrfs_search_dir_index_item`.
    pub fn index_of(&mut self, tree: u64, dir: u64, name: &[u8]) -> FsResult<u64> {
        let mut from = 0;
        while let Some((index, found)) = self.read_dir(tree, dir, from)? {
            if found.name == name {
                return Ok(index);
            }
            let Some(next) = index.checked_add(1) else { break };
            from = next;
        }
        Err(FsError::NotFound)
    }

    /// An index for a new name: one more than the greatest. Errors: `Corrupt` if none is left.
    /// `btrfs_set_inode_index_count`.
    pub fn next_index(&mut self, tree: u64, dir: u64) -> FsResult<u64> {
        let key = |index| Key::new(dir, kind::DIR_INDEX, index);
        let last = self.last(tree, key(0), key(u64::MAX))?;
        let Some((key, _)) = last else { return Ok(INDEX_START) };
        let next = key.offset.checked_add(1);
        next.ok_or_else(|| wrong("btrfs directory index", dir, "one below 2^64 - 1"))
    }

    /// Adds a name to a directory: both items. Errors: `Exists`; `TooBig` if too many names have
    /// the same hash. `btrfs_insert_dir_item`.
    pub fn add_name(
        &mut self,
        tree: u64,
        dir: u64,
        index: u64,
        name: &[u8],
        location: Key,
        kind: u8,
    ) -> FsResult<()> {
        self.add_hashed_name(tree, dir, name, location, kind)?;
        self.add_index(tree, dir, index, name, location, kind)
    }

    /// Its item by hash alone.
    pub fn add_hashed_name(
        &mut self,
        tree: u64,
        dir: u64,
        name: &[u8],
        location: Key,
        kind: u8,
    ) -> FsResult<()> {
        self.begin()?;
        let bytes = entry_bytes(location, self.transid(), kind, name, b"");
        self.insert_hashed(tree, hash_key(dir, name), name, &bytes)
    }

    /// Its item by index alone, which the kernel inserts later. `btrfs_insert_delayed_dir_index`.
    pub fn add_index(
        &mut self,
        tree: u64,
        dir: u64,
        index: u64,
        name: &[u8],
        location: Key,
        kind: u8,
    ) -> FsResult<()> {
        self.begin()?;
        let bytes = entry_bytes(location, self.transid(), kind, name, b"");
        self.insert_item(tree, Key::new(dir, self::kind::DIR_INDEX, index), &bytes)
    }

    /// Removes a name from a directory: both items. Errors: `NotFound`.
    pub fn remove_name(&mut self, tree: u64, dir: u64, index: u64, name: &[u8]) -> FsResult<()> {
        self.remove_hashed_name(tree, dir, name)?;
        self.remove_index(tree, dir, index)
    }

    /// Its item by hash alone. `btrfs_delete_one_dir_name`.
    pub fn remove_hashed_name(&mut self, tree: u64, dir: u64, name: &[u8]) -> FsResult<()> {
        self.remove_hashed(tree, hash_key(dir, name), name)
    }

    /// Its item by index alone.
    pub fn remove_index(&mut self, tree: u64, dir: u64, index: u64) -> FsResult<()> {
        self.remove_item(tree, Key::new(dir, kind::DIR_INDEX, index))
    }

    /// Adds an entry to an item that others with the same hash may have. `insert_with_overflow`.
    pub(super) fn insert_hashed(
        &mut self,
        tree: u64,
        key: Key,
        name: &[u8],
        bytes: &[u8],
    ) -> FsResult<()> {
        match self.insert_item(tree, key, bytes) {
            Err(FsError::Exists) => {}
            other => return other,
        }
        if self.entry_of(tree, key, name)?.is_some() {
            return Err(FsError::Exists);
        }
        let (path, _) = self.search(tree, key, Purpose::Extend(bytes.len()))?;
        let have = self.item(&path)?.map_or(0, |(_, b)| b.len());
        self.extend_item(&path, bytes.len())?;
        if let Some(room) = self.item_mut(&path)?.get_mut(have..) {
            room.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Where in an item the entry with this name is: first byte and bytes, and the item's.
    pub(super) fn entry_of(
        &mut self,
        tree: u64,
        key: Key,
        name: &[u8],
    ) -> FsResult<Option<(usize, usize, usize)>> {
        let Some(item) = self.lookup(tree, key)? else { return Ok(None) };
        for e in entries(&item) {
            let e = e.map_err(|_| wrong("btrfs directory item", key.objectid, "whole entries"))?;
            if e.name == name {
                return Ok(Some((e.at, e.bytes, item.len())));
            }
        }
        Ok(None)
    }

    pub(super) fn remove_hashed(&mut self, tree: u64, key: Key, name: &[u8]) -> FsResult<()> {
        let Some((at, bytes, all)) = self.entry_of(tree, key, name)? else {
            return Err(FsError::NotFound);
        };
        let (mut path, _) = self.search(tree, key, Purpose::Delete)?;
        self.cut_item(tree, &mut path, at, bytes, all)
    }

    /// Takes a part out of an item; the item goes if that was all.
    pub(super) fn cut_item(
        &mut self,
        tree: u64,
        path: &mut Path,
        at: usize,
        bytes: usize,
        all: usize,
    ) -> FsResult<()> {
        if bytes == all {
            return self.remove_items(tree, path, 1);
        }
        self.item_mut(path)?.copy_within(at + bytes..all, at);
        self.truncate_item(path, all - bytes)
    }
}
