//! The free-space tree kept: runs as items, or as bits where there are many.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::free_space::{
    BITMAP_BYTES, USING_BITMAPS, bitmap_covers, is_set, set as set_bits,
};
use crate::disk::node::ITEM_BYTES;
use crate::disk::{FreeSpaceInfo, Key, id, index, kind, view, view_mut, wide};
use crate::tree::Purpose;

const TREE: u64 = id::FREE_SPACE_TREE;
const SECTOR: u64 = 4096;

fn broken(at: u64, expected: &str) -> FsError {
    FsError::corrupt("btrfs free space tree", "address", 0, at, expected)
}

/// A run with this address or a lesser one has a key up to this.
fn up_to(at: u64) -> Key {
    Key::new(at, u8::MAX, u64::MAX)
}

fn run_key(start: u64, bytes: u64) -> Key {
    Key::new(start, kind::FREE_SPACE_EXTENT, bytes)
}

impl Core<'_> {
    /// A place is used. `remove_from_free_space_tree`.
    pub(super) fn tree_take(&mut self, start: u64, bytes: u64) -> FsResult<()> {
        let (group, end) = self.tree_group(start)?;
        if self.uses_bitmaps(group, end)? {
            return self.change_bits((group, end), start, bytes, false);
        }
        let Some((key, _)) = self.last(TREE, Key::new(group, 0, 0), up_to(start))? else {
            return Err(broken(start, "in the tree"));
        };
        let found_end = key.objectid + key.offset;
        let run_end = start + bytes;
        if key.kind != kind::FREE_SPACE_EXTENT || found_end < run_end {
            return Err(broken(start, "free, as it is given out"));
        }
        self.remove_item(TREE, key)?;
        let mut more = -1;
        if key.objectid < start {
            self.insert_item(TREE, run_key(key.objectid, start - key.objectid), &[])?;
            more += 1;
        }
        if run_end < found_end {
            self.insert_item(TREE, run_key(run_end, found_end - run_end), &[])?;
            more += 1;
        }
        self.count_runs((group, end), more)
    }

    /// A place is free. `add_to_free_space_tree`.
    pub(super) fn tree_give(&mut self, start: u64, bytes: u64) -> FsResult<()> {
        let (group, end) = self.tree_group(start)?;
        if self.uses_bitmaps(group, end)? {
            return self.change_bits((group, end), start, bytes, true);
        }
        let (mut run, mut run_end) = (start, start + bytes);
        let mut more = 1;
        if start > group
            && let Some((key, _)) = self.last(TREE, Key::new(group, 0, 0), up_to(start - 1))?
            && key.kind == kind::FREE_SPACE_EXTENT
        {
            if key.objectid + key.offset > start {
                return Err(broken(start, "in use, as it is freed"));
            }
            if key.objectid + key.offset == start {
                self.remove_item(TREE, key)?;
                run = key.objectid;
                more -= 1;
            }
        }
        if run_end < end
            && let Some((key, _)) = self.last(TREE, Key::new(group, 0, 0), up_to(run_end))?
            && key.kind == kind::FREE_SPACE_EXTENT
            && key.objectid >= start
        {
            if key.objectid < run_end {
                return Err(broken(start, "in use, as it is freed"));
            }
            self.remove_item(TREE, key)?;
            run_end = key.objectid + key.offset;
            more -= 1;
        }
        self.insert_item(TREE, run_key(run, run_end - run), &[])?;
        self.count_runs((group, end), more)
    }

    /// The group of an address, with its entries in the tree: start and end.
    fn tree_group(&mut self, at: u64) -> FsResult<(u64, u64)> {
        let Some(g) = self.space.group_of(at) else { return Err(broken(at, "in a block group")) };
        let range = (g.start, g.end());
        if g.needs_tree {
            self.add_group_to_tree(range.0)?;
        }
        Ok(range)
    }

    fn info(&mut self, group: u64, end: u64) -> FsResult<FreeSpaceInfo> {
        let key = Key::new(group, kind::FREE_SPACE_INFO, end - group);
        let item = self.lookup(TREE, key)?;
        let info = item.as_deref().and_then(|b| view::<FreeSpaceInfo>(b, 0)).copied();
        info.ok_or_else(|| broken(group, "an info of the block group"))
    }

    fn uses_bitmaps(&mut self, group: u64, end: u64) -> FsResult<bool> {
        Ok(self.info(group, end)?.flags.get() & USING_BITMAPS != 0)
    }

    /// Counts runs that came or went; changes to bitmaps, or back, where that takes less room.
    /// `update_free_space_extent_count`, `set_free_space_tree_thresholds`.
    fn count_runs(&mut self, (group, end): (u64, u64), more: i32) -> FsResult<()> {
        if more == 0 {
            return Ok(());
        }
        let key = Key::new(group, kind::FREE_SPACE_INFO, end - group);
        let changed = self.change_item(TREE, key, |bytes| {
            let info = view_mut::<FreeSpaceInfo>(bytes, 0)?;
            let count = info.extent_count.get().wrapping_add_signed(more);
            info.extent_count = count.into();
            Some((count, info.flags.get() & USING_BITMAPS != 0))
        })?;
        let Some((count, has_bitmaps)) = changed else { return Err(broken(group, "an info")) };
        let bitmaps = (end - group).div_ceil(bitmap_covers(4096));
        let high = bitmaps * wide(ITEM_BYTES + BITMAP_BYTES) / wide(ITEM_BYTES);
        let low = high.saturating_sub(100);
        if !has_bitmaps && u64::from(count) > high {
            self.keep_as_bitmaps(group, end)
        } else if has_bitmaps && u64::from(count) < low {
            self.keep_as_runs(group, end)
        } else {
            Ok(())
        }
    }

    /// Removes all items of a group but its info, last first; answers them.
    fn take_items(&mut self, group: u64, end: u64) -> FsResult<Vec<(Key, Vec<u8>)>> {
        let mut out = Vec::new();
        loop {
            let (mut path, _) = self.search(TREE, up_to(end - 1), Purpose::Delete)?;
            let leaf = self.leaf(&path)?;
            let last = path.slot();
            let mut first = last;
            while first > 0 {
                let (Some(key), Some(bytes)) = (leaf.key(first - 1), leaf.data(first - 1)) else {
                    break;
                };
                if key.objectid < group || key.kind == kind::FREE_SPACE_INFO {
                    break;
                }
                out.push((key, bytes.to_vec()));
                first -= 1;
            }
            if first == last {
                out.reverse();
                return Ok(out);
            }
            path.set_slot(first);
            self.remove_items(TREE, &mut path, last - first)?;
        }
    }

    fn set_bitmap_flag(&mut self, group: u64, end: u64, is_on: bool) -> FsResult<()> {
        let key = Key::new(group, kind::FREE_SPACE_INFO, end - group);
        self.change_item(TREE, key, |bytes| {
            if let Some(info) = view_mut::<FreeSpaceInfo>(bytes, 0) {
                let flags = info.flags.get() & !USING_BITMAPS;
                info.flags = (flags | if is_on { USING_BITMAPS } else { 0 }).into();
            }
        })
    }

    /// `convert_free_space_keep_as_bitmaps`.
    fn keep_as_bitmaps(&mut self, group: u64, end: u64) -> FsResult<()> {
        let sectors = |bytes: u64| index(bytes / SECTOR);
        let mut all = vec![0; sectors(end - group).div_ceil(8)];
        for (key, _) in self.take_items(group, end)? {
            set_bits(&mut all, sectors(key.objectid - group), sectors(key.offset), true);
        }
        self.set_bitmap_flag(group, end, true)?;
        let covers = bitmap_covers(4096);
        for (i, bitmap) in (0..).zip(all.chunks(BITMAP_BYTES)) {
            let at = group + i * covers;
            let key = Key::new(at, kind::FREE_SPACE_BITMAP, covers.min(end - at));
            self.insert_item(TREE, key, bitmap)?;
        }
        Ok(())
    }

    /// `convert_free_space_to_extents`.
    fn keep_as_runs(&mut self, group: u64, end: u64) -> FsResult<()> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (key, bitmap) in self.take_items(group, end)? {
            for n in 0..key.offset / SECTOR {
                if !is_set(&bitmap, index(n)) {
                    continue;
                }
                let at = key.objectid + n * SECTOR;
                match runs.last_mut() {
                    Some((start, bytes)) if *start + *bytes == at => *bytes += SECTOR,
                    _ => runs.push((at, SECTOR)),
                }
            }
        }
        self.set_bitmap_flag(group, end, false)?;
        for (start, bytes) in runs {
            self.insert_item(TREE, run_key(start, bytes), &[])?;
        }
        Ok(())
    }

    /// `modify_free_space_bitmap`.
    fn change_bits(
        &mut self,
        group: (u64, u64),
        start: u64,
        bytes: u64,
        is_free: bool,
    ) -> FsResult<()> {
        let end = start + bytes;
        let before = if start > group.0 { Some(self.bit(start - SECTOR)?) } else { None };
        let mut at = start;
        while at < end {
            let (path, is_there) = self.search(TREE, up_to(at), Purpose::Change)?;
            let mut path = path;
            let Some(slot) = path.slot().checked_sub(1).filter(|_| !is_there) else {
                return Err(broken(at, "in a bitmap"));
            };
            path.set_slot(slot);
            let key = self.bitmap_key(&path, at)?;
            let stop = end.min(key.objectid + key.offset);
            let from = index((at - key.objectid) / SECTOR);
            set_bits(self.item_mut(&path)?, from, index((stop - at) / SECTOR), is_free);
            at = stop;
        }
        let after = if end < group.1 { Some(self.bit(end)?) } else { None };
        let sides = i32::from(before == Some(true)) + i32::from(after == Some(true));
        self.count_runs(group, if is_free { 1 - sides } else { sides - 1 })
    }

    fn bitmap_key(&self, path: &crate::tree::Path, at: u64) -> FsResult<Key> {
        match self.item(path)? {
            Some((key, _))
                if key.kind == kind::FREE_SPACE_BITMAP && at - key.objectid < key.offset =>
            {
                Ok(key)
            }
            _ => Err(broken(at, "in a bitmap")),
        }
    }

    /// Is a sector free?
    fn bit(&mut self, at: u64) -> FsResult<bool> {
        let Some(path) = self.seek_back(TREE, up_to(at))? else {
            return Err(broken(at, "in a bitmap"));
        };
        let key = self.bitmap_key(&path, at)?;
        let bytes = self.item(&path)?.map_or(&[][..], |(_, bytes)| bytes);
        Ok(is_set(bytes, index((at - key.objectid) / SECTOR)))
    }
}
