//! Items of the extent tree: made, given references, and taken them away.

use std::mem::offset_of;

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::disk::extent::{Extent, Inline, flag};
use crate::disk::node::{ITEM_BYTES, leaf_space};
use crate::disk::{ExtentItem, Key, Reference, id, kind, view_mut};
use crate::tree::{Path, Purpose};

use super::lost;

const TREE: u64 = id::EXTENT_TREE;

/// The key of an extent's item.
fn item_key(bytenr: u64, level: Option<u8>, bytes: u64) -> Key {
    match level {
        Some(level) => Key::new(bytenr, kind::METADATA_ITEM, level.into()),
        None => Key::new(bytenr, kind::EXTENT_ITEM, bytes),
    }
}

/// Where in an item's order of references one is, or belongs. `lookup_inline_extent_backref`: by
/// ascending type, then by descending rank.
fn place_of(extent: &Extent, who: Reference, end: usize) -> Result<Inline, usize> {
    for r in &extent.refs {
        if r.who == who {
            return Ok(*r);
        }
        let is_behind =
            r.who.kind() > who.kind() || (r.who.kind() == who.kind() && r.who.rank() < who.rank());
        if is_behind {
            return Err(r.at);
        }
    }
    Err(end)
}

fn too_many(bytenr: u64) -> FsError {
    lost(bytenr, "fewer than 2^32 uses of a user, with those that came")
}

impl Core<'_> {
    /// An extent's item, searched for this purpose. Tree blocks may have the form of before skinny
    /// metadata.
    fn seek_extent(
        &mut self,
        (bytenr, bytes): (u64, u64),
        level: Option<u8>,
        why: Purpose,
    ) -> FsResult<Option<(Path, Key, Extent)>> {
        let old = Key::new(bytenr, kind::EXTENT_ITEM, bytes);
        let first = item_key(bytenr, level, bytes);
        for key in [first, old] {
            let (path, is_there) = self.search(TREE, key, why)?;
            if is_there {
                let at = self.place_of(&path);
                let Some((key, item)) = self.item(&path)? else { return Ok(None) };
                let extent = Extent::load(key, item, at)?;
                return Ok(Some((path, key, extent)));
            }
            if key == old {
                break;
            }
        }
        Ok(None)
    }

    /// An extent's item, for reading.
    pub(crate) fn find_extent(
        &mut self,
        bytenr: u64,
        level: Option<u8>,
        bytes: u64,
    ) -> FsResult<Option<(Path, Key, Extent)>> {
        self.seek_extent((bytenr, bytes), level, Purpose::Read)
    }

    /// The first item of an extent. `alloc_reserved_tree_block`, `alloc_reserved_file_extent`.
    pub(super) fn insert_extent(
        &mut self,
        (bytenr, bytes): (u64, u64),
        level: Option<u8>,
        who: Reference,
        count: u32,
        flags: u64,
    ) -> FsResult<()> {
        let what = if level.is_some() { flag::TREE_BLOCK } else { flag::DATA };
        let head = ExtentItem {
            refs: u64::from(count).into(),
            generation: self.transid().into(),
            flags: (flags | what).into(),
        };
        let mut item = head.as_bytes().to_vec();
        item.extend(who.inline_bytes(count));
        let key = item_key(bytenr, level, bytes);
        self.insert_item(TREE, key, &item).map_err(|e| match e {
            FsError::Exists => lost(bytenr, "no item: it was free"),
            other => other,
        })?;
        self.use_extent(bytenr, bytes)
    }

    /// An extent that has an item gets uses. `__btrfs_inc_extent_ref`.
    pub(super) fn add_reference(
        &mut self,
        extent: (u64, u64),
        level: Option<u8>,
        who: Reference,
        count: u32,
    ) -> FsResult<()> {
        let new = who.inline_bytes(count);
        let found = self.seek_extent(extent, level, Purpose::Extend(new.len()))?;
        let Some((path, _, item)) = found else {
            return Err(lost(extent.0, "an item: it has one use more"));
        };
        let size = self.item(&path)?.map_or(0, |(_, b)| b.len());
        // `BTRFS_MAX_EXTENT_ITEM_SIZE`
        let most = (leaf_space(self.node_bytes()) >> 4) - ITEM_BYTES;
        match place_of(&item, who, size) {
            Ok(r) => {
                let sum = r.count.checked_add(count).ok_or_else(|| too_many(extent.0))?;
                self.recount_inline(&path, &r, sum)?;
            }
            Err(at) if size + new.len() < most && !self.has_keyed(&path, extent.0)? => {
                self.extend_item(&path, new.len())?;
                let bytes = self.item_mut(&path)?;
                bytes.copy_within(at..size, at + new.len());
                if let Some(room) = bytes.get_mut(at..at + new.len()) {
                    room.copy_from_slice(&new);
                }
            }
            Err(_) => {
                self.change_refs(&path, i64::from(count))?;
                return self.insert_keyed(extent.0, who, count);
            }
        }
        self.change_refs(&path, i64::from(count))
    }

    /// Has an extent references with items of their own? Then new ones are of that kind, too.
    fn has_keyed(&mut self, path: &Path, bytenr: u64) -> FsResult<bool> {
        let mut path = *path;
        if !self.next(&mut path)? {
            return Ok(false);
        }
        let next = self.item(&path)?.map(|(key, _)| key);
        Ok(next.is_some_and(|k| k.objectid == bytenr && k.kind < kind::BLOCK_GROUP_ITEM))
    }

    fn change_refs(&mut self, path: &Path, by: i64) -> FsResult<()> {
        if let Some(head) = view_mut::<ExtentItem>(self.item_mut(path)?, 0) {
            head.refs = head.refs.get().saturating_add_signed(by).into();
        }
        Ok(())
    }

    fn recount_inline(&mut self, path: &Path, r: &Inline, count: u32) -> FsResult<()> {
        let new = r.who.inline_bytes(count);
        if let Some(place) = self.item_mut(path)?.get_mut(r.at..r.at + new.len()) {
            place.copy_from_slice(&new);
        }
        Ok(())
    }

    /// `insert_extent_data_ref`, `insert_tree_block_ref`.
    fn insert_keyed(&mut self, bytenr: u64, who: Reference, count: u32) -> FsResult<()> {
        if let Some((key, have)) = self.find_keyed(bytenr, who)? {
            let sum = have.checked_add(count).ok_or_else(|| too_many(bytenr))?;
            let bytes = who.item_bytes(sum);
            return self.replace_item(TREE, key, &bytes);
        }
        let mut key = who.key(bytenr);
        loop {
            match self.insert_item(TREE, key, &who.item_bytes(count)) {
                // Another one with the same hash.
                Err(FsError::Exists) if key.kind == kind::EXTENT_DATA_REF => key.offset += 1,
                other => return other,
            }
        }
    }

    /// A reference with an item of its own: its key and count.
    fn find_keyed(&mut self, bytenr: u64, who: Reference) -> FsResult<Option<(Key, u32)>> {
        let mut key = who.key(bytenr);
        loop {
            let Some(item) = self.lookup(TREE, key)? else { return Ok(None) };
            match Reference::from_item(key, &item) {
                Some((found, count)) if found == who => return Ok(Some((key, count))),
                Some(_) if key.kind == kind::EXTENT_DATA_REF => key.offset += 1,
                _ => return Err(lost(bytenr, "a reference of the kind that its key says")),
            }
        }
    }

    /// Has the item of a tree block this use, or is there one of its own?
    pub(super) fn has_stored_reference(
        &mut self,
        block: u64,
        level: u8,
        who: Reference,
    ) -> FsResult<bool> {
        let found = self.find_extent(block, Some(level), self.block_bytes())?;
        let Some((_, _, item)) = found else { return Ok(false) };
        Ok(item.refs.iter().any(|r| r.who == who) || self.find_keyed(block, who)?.is_some())
    }

    /// An extent has uses less. Answers whether these were the last: then its item is gone.
    /// `__btrfs_free_extent`.
    pub(super) fn drop_reference(
        &mut self,
        extent: (u64, u64),
        level: Option<u8>,
        who: Reference,
        count: u32,
    ) -> FsResult<bool> {
        let found = self.seek_extent(extent, level, Purpose::Delete)?;
        let Some((mut path, key, item)) = found else {
            return Err(lost(extent.0, "an item: it has one use less"));
        };
        let all = item.head.refs.get();
        let Some(rest) = all.checked_sub(count.into()) else {
            let expected = format!("{count} or more {key}");
            return Err(FsError::corrupt("btrfs extent item", "refs", 0, all, expected));
        };
        let size = self.item(&path)?.map_or(0, |(_, b)| b.len());
        let too_few = || lost(extent.0, "as many uses of this user as went");
        if let Ok(r) = place_of(&item, who, size) {
            let left = r.count.checked_sub(count).ok_or_else(too_few)?;
            if rest == 0 {
                self.remove_items(TREE, &mut path, 1)?;
                return Ok(true);
            }
            self.change_refs(&path, -i64::from(count))?;
            if left > 0 {
                self.recount_inline(&path, &r, left)?;
            } else {
                self.item_mut(&path)?.copy_within(r.at + r.bytes..size, r.at);
                self.truncate_item(&path, size - r.bytes)?;
            }
            return Ok(false);
        }
        let (keyed, have) = self.find_keyed(extent.0, who)?.ok_or_else(too_few)?;
        let left = have.checked_sub(count).ok_or_else(too_few)?;
        if rest > 0 {
            self.change_refs(&path, -i64::from(count))?;
        } else {
            self.remove_items(TREE, &mut path, 1)?;
        }
        if left > 0 {
            self.replace_item(TREE, keyed, &who.item_bytes(left))?;
        } else {
            self.remove_item(TREE, keyed)?;
        }
        Ok(rest == 0)
    }

    /// `run_delayed_extent_op`.
    pub(super) fn set_extent_flags(
        &mut self,
        extent: (u64, u64),
        level: Option<u8>,
        flags: u64,
    ) -> FsResult<()> {
        let Some((path, _, _)) = self.seek_extent(extent, level, Purpose::Change)? else {
            return Err(lost(extent.0, "an item: its flags change"));
        };
        let at = offset_of!(ExtentItem, flags);
        if let Some(word) = view_mut::<zerocopy::little_endian::U64>(self.item_mut(&path)?, at) {
            *word = (word.get() | flags).into();
        }
        Ok(())
    }
}
