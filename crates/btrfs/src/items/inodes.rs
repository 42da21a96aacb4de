//! Inode items, numbers for new ones, orphans, and times of trees.

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::disk::misc::orphan_key;
use crate::disk::{InodeItem, Key, Timespec, id, kind, view};

use super::wrong;

/// Most bytes of a file. `MAX_LFS_FILESIZE`.
const MOST_BYTES: u64 = u64::MAX >> 1;

fn inode_key(ino: u64) -> Key {
    Key::new(ino, kind::INODE_ITEM, 0)
}

impl Core<'_> {
    /// An inode. `None`: there is none.
    pub fn inode(&mut self, tree: u64, ino: u64) -> FsResult<Option<InodeItem>> {
        let Some(item) = self.lookup(tree, inode_key(ino))? else { return Ok(None) };
        let Some(inode) = view::<InodeItem>(&item, 0).copied() else {
            return Err(wrong("btrfs inode item", ino, "160 bytes"));
        };
        // Linux takes them for signed numbers.
        for (field, n) in [("size", inode.size.get()), ("nbytes", inode.nbytes.get())] {
            if n > MOST_BYTES {
                let right = format!("below 2^63 (inode {ino})");
                return Err(FsError::corrupt("btrfs inode item", field, 0, n, right));
            }
        }
        Ok(Some(inode))
    }

    /// A new inode. Errors: `Exists`.
    pub fn insert_inode(&mut self, tree: u64, ino: u64, inode: &InodeItem) -> FsResult<()> {
        self.insert_item(tree, inode_key(ino), inode.as_bytes())
    }

    /// An inode has changed. Errors: `NotFound`.
    pub fn update_inode(&mut self, tree: u64, ino: u64, inode: &InodeItem) -> FsResult<()> {
        let key = inode_key(ino);
        let is_whole = self.change_item(tree, key, |bytes| {
            let place = bytes.get_mut(..size_of::<InodeItem>());
            place.map(|place| place.copy_from_slice(inode.as_bytes())).is_some()
        })?;
        if is_whole { Ok(()) } else { Err(wrong("btrfs inode item", ino, "160 bytes")) }
    }

    /// An inode of a tree has changed in this transaction. `btrfs_update_root_times`.
    pub fn touch_root(&mut self, tree: u64, now: Timespec) -> FsResult<()> {
        self.join(tree)?;
        let transid = self.transid();
        let item = &mut self.root_mut(tree)?.item;
        item.ctransid = transid.into();
        item.ctime = now;
        Ok(())
    }

    /// A number for a new inode: one more than the greatest. `btrfs_init_root_free_objectid`.
    pub fn next_ino(&mut self, tree: u64) -> FsResult<u64> {
        let upto = Key::new(id::LAST_FREE, u8::MAX, u64::MAX);
        let last = self.last(tree, Key::new(id::FIRST_FREE, 0, 0), upto)?;
        let next = last.map_or(id::FIRST_FREE, |(key, _)| key.objectid + 1);
        if next > id::LAST_FREE { Err(FsError::NoSpace) } else { Ok(next) }
    }

    /// Something is to be deleted, though a power cut comes first: an inode, or in the root tree a
    /// subvolume. That it is noted already is no error. `btrfs_insert_orphan_item`.
    pub fn add_orphan(&mut self, tree: u64, of: u64) -> FsResult<()> {
        match self.insert_item(tree, orphan_key(of), &[]) {
            Err(FsError::Exists) => Ok(()),
            other => other,
        }
    }

    /// It is deleted. That it was not noted is no error. `btrfs_del_orphan_item`.
    pub fn remove_orphan(&mut self, tree: u64, of: u64) -> FsResult<()> {
        match self.remove_item(tree, orphan_key(of)) {
            Err(FsError::NotFound) => Ok(()),
            other => other,
        }
    }

    /// What is to be deleted, by number.
    pub fn orphans(&mut self, tree: u64) -> FsResult<Vec<u64>> {
        let mut out = Vec::new();
        let last = orphan_key(u64::MAX);
        let mut from = orphan_key(0);
        while let Some((key, _)) = self.first(tree, from, last)? {
            out.push(key.offset);
            let Some(next) = key.next() else { break };
            from = next;
        }
        Ok(out)
    }

    /// Removes all items of an inode from this key on, last first, and frees their data. It removes
    /// at most `most` items at once and answers whether there are more.
    /// `btrfs_truncate_inode_items` as eviction calls it.
    pub fn remove_inode_items(&mut self, tree: u64, from: Key, most: u64) -> FsResult<bool> {
        let upto = Key::new(from.objectid, u8::MAX, u64::MAX);
        for _ in 0..most {
            let Some((key, item)) = self.last(tree, from, upto)? else { return Ok(false) };
            self.drop_extent_ref(tree, key, &item)?;
            self.remove_item(tree, key)?;
        }
        Ok(self.last(tree, from, upto)?.is_some())
    }
}
