//! Block groups and free space as the trees have them.

use std::collections::BTreeSet;

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::free_space::{USING_BITMAPS, is_set};
use crate::disk::{BlockGroupItem, FreeSpaceInfo, Key, SuperBlock, id, kind, view, wide};

use super::{Group, Runs, SizeClass};

/// Number of evenly spaced places in a group at which the next extent is read to determine the
/// group's size class.
const SAMPLES: u64 = 5;
/// Bytes of a sector, the unit of free space.
const SECTOR: u64 = 4096;
/// Bytes around a copy of the super block that are never given out. `BTRFS_STRIPE_LEN`.
const SUPER_STRIPE: u64 = 64 << 10;

/// A block group's part of the free-space tree, while it is read.
struct Loading {
    start: u64,
    end: u64,
    /// Is there such a group?
    is_group: bool,
    uses_bitmaps: bool,
    /// Runs that its info says that it has.
    says: u32,
    /// The run that the last bitmap ended with, which may go on in the next one.
    run: Option<(u64, u64)>,
    /// Runs before that.
    runs: u64,
    /// Byte address of its info, for errors.
    at: u64,
}

impl Loading {
    /// A sector is free; answers the run before it, if it does not go on.
    fn add_sector(&mut self, at: u64) -> Option<(u64, u64)> {
        match &mut self.run {
            Some((start, bytes)) if start.checked_add(*bytes) == Some(at) => {
                *bytes += SECTOR;
                None
            }
            run => run.replace((at, SECTOR)),
        }
    }
}

impl Core<'_> {
    /// Reads block groups and free space, if that was not done: before the first change, so that
    /// the trees say what is free on the device. `btrfs_read_block_groups`,
    /// `load_free_space_tree`.
    pub(crate) fn load_space(&mut self) -> FsResult<()> {
        if self.space.is_loaded {
            return Ok(());
        }
        let chunks: Vec<_> = self.chunks.iter().cloned().collect();
        for chunk in chunks {
            let key = Key::new(chunk.logical, kind::BLOCK_GROUP_ITEM, chunk.bytes);
            let (path, is_there) = self.search(id::EXTENT_TREE, key, crate::tree::Purpose::Read)?;
            let at = self.place_of(&path);
            let fail = |field, found: u64, expected: String| {
                Err(FsError::corrupt("btrfs block group item", field, at, found, expected))
            };
            let item = if is_there { self.item(&path)? } else { None };
            let Some(item) = item.and_then(|(_, bytes)| view::<BlockGroupItem>(bytes, 0)) else {
                return fail("key", chunk.logical, "an item for each chunk".to_owned());
            };
            let (flags, used) = (item.flags.get(), item.used.get());
            if flags != chunk.flags {
                return fail("flags", flags, format!("{:#x}, the chunk's type", chunk.flags));
            }
            if used > chunk.bytes {
                return fail("used", used, format!("{:#x} or fewer", chunk.bytes));
            }
            let group = Group {
                start: chunk.logical,
                bytes: chunk.bytes,
                flags,
                used,
                written_used: used,
                reserved: 0,
                pinned: 0,
                super_bytes: 0,
                free: Runs::default(),
                size_class: None,
                needs_tree: false,
                has_chunk_item: true,
            };
            self.space.groups.insert(chunk.logical, group);
        }
        self.verify_device()?;
        self.load_free_space()?;
        let starts: Vec<u64> = self.space.groups.keys().copied().collect();
        for start in starts {
            self.exclude_supers(start)?;
            let class = self.sampled_class(start)?;
            self.space.group_mut(start)?.size_class = class;
        }
        let used = self.sb.bytes_used.get();
        let room = self.space.groups.values().map(|g| g.bytes).fold(0, u64::saturating_add);
        if used > room {
            let (at, expected) = (SuperBlock::AT, format!("{room:#x}, all block groups, or fewer"));
            return Err(FsError::corrupt("btrfs super block", "bytes_used", at, used, expected));
        }
        self.space.bytes_used = used;
        self.space.is_loaded = true;
        Ok(())
    }

    /// The size class of a group's extents, from a few of them. An empty or full group is not
    /// sampled. `load_block_group_size_class`, `read_one_block_group`.
    fn sampled_class(&mut self, start: u64) -> FsResult<Option<SizeClass>> {
        let g = self.space.group_mut(start)?;
        let (bytes, end) = (g.bytes, g.end());
        if !g.has_size_class() || g.used == 0 || g.used == bytes {
            return Ok(None);
        }
        let mut shortest = None;
        for n in 0..SAMPLES {
            let from = Key::new(start + n * (bytes / SAMPLES), kind::EXTENT_ITEM, 0);
            let Some(mut path) = self.seek(id::EXTENT_TREE, from)? else { continue };
            while let Some((key, _)) = self.item(&path)?
                && key.objectid < end
            {
                let stop = key.objectid.saturating_add(key.offset);
                if key.kind == kind::EXTENT_ITEM && stop <= end {
                    shortest = Some(shortest.map_or(key.offset, |s: u64| s.min(key.offset)));
                    break;
                }
                if !self.next(&mut path)? {
                    break;
                }
            }
        }
        Ok(shortest.map(SizeClass::of))
    }

    fn load_free_space(&mut self) -> FsResult<()> {
        let Some(mut path) = self.seek(id::FREE_SPACE_TREE, Key::MIN)? else { return Ok(()) };
        let mut missing: BTreeSet<u64> = self.space.groups.keys().copied().collect();
        let mut now: Option<Loading> = None;
        loop {
            let at = self.place_of(&path);
            let fail = |field, found: u64, expected: &str| {
                Err(FsError::corrupt("btrfs free space", field, at, found, expected))
            };
            let Some((key, bytes)) = self.item(&path)? else { break };
            let (start, length) = (key.objectid, key.offset);
            let Some(end) = start.checked_add(length) else {
                return fail("key.offset", length, "an end below 2^64");
            };
            let mut found: Vec<(u64, u64)> = Vec::new();
            let before = match (key.kind, &mut now) {
                (kind::FREE_SPACE_INFO, _) => {
                    let Some(info) = view::<FreeSpaceInfo>(bytes, 0) else {
                        return fail("size", wide(bytes.len()), "8");
                    };
                    // mkfs.btrfs 6.2 leaves entries of a group that it has removed.
                    let is_group = self.space.groups.get(&start).is_some_and(|g| g.bytes == length);
                    if is_group {
                        missing.remove(&start);
                    }
                    let uses_bitmaps = info.flags.get() & USING_BITMAPS != 0;
                    let says = info.extent_count.get();
                    let (run, runs) = (None, 0);
                    let new = Loading { start, end, is_group, uses_bitmaps, says, run, runs, at };
                    now.replace(new)
                }
                (_, None) => return fail("key.type", key.kind.into(), "a group's info first"),
                (_, Some(g)) if start < g.start || end > g.end => {
                    return fail("key", start, "within the block group before it");
                }
                (_, Some(_)) if !start.is_multiple_of(SECTOR) || !length.is_multiple_of(SECTOR) => {
                    return fail("key", start, "whole sectors");
                }
                (kind::FREE_SPACE_EXTENT, Some(g)) if !g.uses_bitmaps => {
                    if length == 0 || !bytes.is_empty() {
                        return fail("key.offset", length, "1 or more, without bytes");
                    }
                    found.push((start, length));
                    None
                }
                (kind::FREE_SPACE_BITMAP, Some(g)) if g.uses_bitmaps => {
                    let sectors = length / SECTOR;
                    if wide(bytes.len()) != sectors.div_ceil(8) {
                        return fail("size", wide(bytes.len()), "a bit for each sector");
                    }
                    for n in (0..sectors).filter(|n| is_set(bytes, crate::disk::index(*n))) {
                        // Below the end of the bitmap, which was seen to be in the group.
                        found.extend(g.add_sector(start + n * SECTOR));
                    }
                    None
                }
                (other, _) => {
                    return fail("key.type", other.into(), "what the info before it says");
                }
            };
            match (before, &mut now) {
                (Some(before), _) => self.finish_loading(before)?,
                (None, Some(g)) => {
                    g.runs += wide(found.len());
                    for (start, bytes) in found.into_iter().filter(|_| g.is_group) {
                        self.add_loaded(start, bytes, at)?;
                    }
                }
                (None, None) => {}
            }
            if !self.next(&mut path)? {
                break;
            }
        }
        if let Some(last) = now {
            self.finish_loading(last)?;
        }
        match missing.first() {
            None => Ok(()),
            Some(start) => {
                let expected = "one for each block group";
                Err(FsError::corrupt("btrfs free space", "info", 0, *start, expected))
            }
        }
    }

    /// All of a group was read. Errors: `Corrupt` if it has not as many runs as its info says:
    /// then the tree is not to be believed, and Linux does not use it either.
    fn finish_loading(&mut self, g: Loading) -> FsResult<()> {
        if !g.is_group {
            return Ok(());
        }
        if let Some((start, bytes)) = g.run {
            self.add_loaded(start, bytes, g.at)?;
        }
        let runs = g.runs + u64::from(g.run.is_some());
        if runs != u64::from(g.says) {
            let expected = format!(
                "{runs}, the number of runs (mount with clear_cache,space_cache=v2 to rebuild the tree in Linux)"
            );
            let (found, field) = (g.says.into(), "extent_count");
            return Err(FsError::corrupt("btrfs free space info", field, g.at, found, expected));
        }
        Ok(())
    }

    fn add_loaded(&mut self, start: u64, bytes: u64, at: u64) -> FsResult<()> {
        let g = self.space.group_mut(start)?;
        if start.checked_add(bytes).is_none_or(|end| end > g.end()) {
            let expected = "within its block group";
            return Err(FsError::corrupt("btrfs free space", "length", at, bytes, expected));
        }
        g.free.add(start, bytes)
    }

    /// Takes what lies on copies of the super block out of a group's free space.
    /// `exclude_super_stripes`.
    pub(super) fn exclude_supers(&mut self, start: u64) -> FsResult<()> {
        let Some(chunk) = self.chunks.of(start).cloned() else { return Ok(()) };
        let g = self.space.group_mut(start)?;
        if g.start < SuperBlock::AT {
            let bytes = SuperBlock::AT.min(g.end()) - g.start;
            g.super_bytes += bytes;
            g.free.cut(g.start, bytes);
        }
        for copy in SuperBlock::places() {
            for place in &chunk.places {
                if copy < *place || copy - place >= chunk.bytes {
                    continue;
                }
                let logical = chunk.logical + (copy - place) / SUPER_STRIPE * SUPER_STRIPE;
                let bytes = SUPER_STRIPE.min(g.end() - logical);
                g.super_bytes += bytes;
                g.free.cut(logical, bytes);
            }
        }
        Ok(())
    }
}
