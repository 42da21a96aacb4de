//! What the rest does with trees: items found, inserted, changed and removed by key.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::Key;
use crate::disk::node::ITEM_BYTES;

use super::{Path, Purpose, page};

impl Core<'_> {
    /// The bytes of an item. `None`: there is none with this key.
    pub fn lookup(&mut self, tree: u64, key: Key) -> FsResult<Option<Vec<u8>>> {
        let (path, is_there) = self.search(tree, key, Purpose::Read)?;
        if !is_there {
            return Ok(None);
        }
        Ok(self.item(&path)?.map(|(_, bytes)| bytes.to_vec()))
    }

    /// The path to the first item with this key or a greater one. `None`: there is none.
    pub fn seek(&mut self, tree: u64, key: Key) -> FsResult<Option<Path>> {
        let (mut path, is_there) = self.search(tree, key, Purpose::Read)?;
        if is_there || path.slot() < self.leaf(&path)?.len() || self.next_leaf(&mut path)? {
            return Ok(Some(path));
        }
        Ok(None)
    }

    /// The path to the last item with this key or a lesser one. `None`: there is none.
    pub fn seek_back(&mut self, tree: u64, key: Key) -> FsResult<Option<Path>> {
        let (mut path, is_there) = self.search(tree, key, Purpose::Read)?;
        if is_there {
            return Ok(Some(path));
        }
        if let Some(slot) = path.slot().checked_sub(1) {
            path.set_slot(slot);
            return Ok(Some(path));
        }
        Ok(self.prev_leaf(&mut path)?.then_some(path))
    }

    /// Moves a path that was read to the next item. `false`: there is none.
    pub fn next(&mut self, path: &mut Path) -> FsResult<bool> {
        if path.slot() + 1 < self.leaf(path)?.len() {
            path.set_slot(path.slot() + 1);
            return Ok(true);
        }
        self.next_leaf(path)
    }

    /// The first item with a key from `from` on, and not beyond `to`, with its bytes.
    pub fn first(&mut self, tree: u64, from: Key, to: Key) -> FsResult<Option<(Key, Vec<u8>)>> {
        let Some(path) = self.seek(tree, from)? else { return Ok(None) };
        Ok(self.item(&path)?.filter(|(k, _)| *k <= to).map(|(k, bytes)| (k, bytes.to_vec())))
    }

    /// The last item with a key up to `to`, and not before `from`, with its bytes.
    pub fn last(&mut self, tree: u64, from: Key, to: Key) -> FsResult<Option<(Key, Vec<u8>)>> {
        let Some(path) = self.seek_back(tree, to)? else { return Ok(None) };
        Ok(self.item(&path)?.filter(|(k, _)| *k >= from).map(|(k, bytes)| (k, bytes.to_vec())))
    }

    /// Inserts an item. Errors: `Exists`; `TooBig` if it does not fit into a leaf.
    pub fn insert_item(&mut self, tree: u64, key: Key, bytes: &[u8]) -> FsResult<()> {
        self.insert_items(tree, &[(key, bytes)])
    }

    /// Inserts items with keys that follow each other in the tree, into one leaf.
    /// `btrfs_insert_empty_items`.
    pub fn insert_items(&mut self, tree: u64, items: &[(Key, &[u8])]) -> FsResult<()> {
        let Some((first, _)) = items.first() else { return Ok(()) };
        let total = items.iter().map(|(_, bytes)| bytes.len() + ITEM_BYTES).sum();
        let (path, is_there) = self.search(tree, *first, Purpose::Insert(total))?;
        if is_there {
            return Err(FsError::Exists);
        }
        let slot = path.slot();
        if slot == 0 {
            self.fix_low_keys(&path, *first, 1)?;
        }
        let sizes: Vec<_> = items.iter().map(|(key, bytes)| (*key, bytes.len())).collect();
        let leaf = self.block_mut(path.leaf())?;
        page::insert(leaf, slot, &sizes);
        for (i, (_, bytes)) in items.iter().enumerate() {
            page::data_mut(leaf, slot + i).copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Removes an item. Errors: `NotFound`.
    pub fn remove_item(&mut self, tree: u64, key: Key) -> FsResult<()> {
        let (mut path, is_there) = self.search(tree, key, Purpose::Delete)?;
        if !is_there {
            return Err(FsError::NotFound);
        }
        self.remove_items(tree, &mut path, 1)
    }

    /// Changes the bytes of an item in place. Errors: `NotFound`.
    pub fn change_item<T>(
        &mut self,
        tree: u64,
        key: Key,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> FsResult<T> {
        let (path, is_there) = self.search(tree, key, Purpose::Change)?;
        if !is_there {
            return Err(FsError::NotFound);
        }
        Ok(change(self.item_mut(&path)?))
    }

    /// The bytes at a path's place, to be changed. The path was searched for a change, and leads to
    /// an item.
    pub fn item_mut(&mut self, path: &Path) -> FsResult<&mut [u8]> {
        Ok(page::data_mut(self.block_mut(path.leaf())?, path.slot()))
    }

    /// Gives an item other bytes, as many or not. Errors: `NotFound`.
    pub fn replace_item(&mut self, tree: u64, key: Key, bytes: &[u8]) -> FsResult<()> {
        let (path, is_there) = self.search(tree, key, Purpose::Change)?;
        if !is_there {
            return Err(FsError::NotFound);
        }
        let have = self.item(&path)?.map_or(0, |(_, b)| b.len());
        let path = if bytes.len() > have {
            let (path, _) = self.search(tree, key, Purpose::Extend(bytes.len() - have))?;
            self.extend_item(&path, bytes.len() - have)?;
            path
        } else {
            if bytes.len() < have {
                self.truncate_item(&path, bytes.len())?;
            }
            path
        };
        self.item_mut(&path)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Makes the item at a path's place longer at its end. The leaf has room: it was searched with
    /// [`Purpose::Extend`].
    pub fn extend_item(&mut self, path: &Path, by: usize) -> FsResult<()> {
        if self.leaf(path)?.free_bytes() < by {
            return Err(FsError::Invalid("an item grows as far as its leaf has room"));
        }
        page::extend(self.block_mut(path.leaf())?, path.slot(), by);
        Ok(())
    }

    /// Keeps the first `size` bytes of the item at a path's place.
    pub fn truncate_item(&mut self, path: &Path, size: usize) -> FsResult<()> {
        page::truncate(self.block_mut(path.leaf())?, path.slot(), size);
        Ok(())
    }

    /// Keeps the last `size` bytes of the item at a path's place, under another key.
    pub fn truncate_item_front(&mut self, path: &Path, size: usize, key: Key) -> FsResult<()> {
        page::truncate_front(self.block_mut(path.leaf())?, path.slot(), size);
        self.set_item_key(path, key)
    }

    /// Changes the key of the item at a path's place. The order of keys is the caller's.
    /// `btrfs_set_item_key_safe`.
    pub fn set_item_key(&mut self, path: &Path, key: Key) -> FsResult<()> {
        page::set_key(self.block_mut(path.leaf())?, path.slot(), key);
        if path.slot() == 0 {
            self.fix_low_keys(path, key, 1)?;
        }
        Ok(())
    }

    /// Splits an item after its first `at` bytes: the rest gets another key, which follows.
    /// `btrfs_split_item`.
    pub fn split_item(&mut self, tree: u64, key: Key, at: usize, rest: Key) -> FsResult<()> {
        let (mut path, is_there) = self.search(tree, key, Purpose::Split)?;
        if !is_there {
            return Err(FsError::NotFound);
        }
        if self.leaf(&path)?.free_bytes() < ITEM_BYTES {
            self.split_leaf(tree, key, &mut path, ITEM_BYTES, true)?;
        }
        page::split_item(self.block_mut(path.leaf())?, path.slot(), at, rest);
        Ok(())
    }
}
