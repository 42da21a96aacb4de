//! Block groups and free space as the trees have them.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::free_space::{USING_BITMAPS, is_set};
use crate::disk::{BlockGroupItem, FreeSpaceInfo, Key, SuperBlock, id, kind, view, wide};

use super::{Group, Runs, SizeClass};

/// Places of a group from which on the next extent is looked at for its class.
const SAMPLES: u64 = 5;
/// Bytes around a copy of the super block that are never given out. `BTRFS_STRIPE_LEN`.
const SUPER_STRIPE: u64 = 64 << 10;

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
        self.load_free_space()?;
        let starts: Vec<u64> = self.space.groups.keys().copied().collect();
        for start in starts {
            self.exclude_supers(start)?;
            let class = self.sampled_class(start)?;
            self.space.group_mut(start)?.size_class = class;
        }
        self.space.bytes_used = self.sb.bytes_used.get();
        self.space.is_loaded = true;
        Ok(())
    }

    /// The class of a group's extents, from a few of them. What is empty or full is not looked at.
    /// `load_block_group_size_class`, `read_one_block_group`.
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
        // The run that a bitmap ended with may go on in the next one.
        let mut run: Option<(u64, u64)> = None;
        let mut uses_bitmaps = false;
        let (mut is_group, mut had_group) = (false, false);
        let mut counted = (0u64, 0u64);
        loop {
            let at = self.place_of(&path);
            let fail = |field, found: u64, expected: &str| {
                Err(FsError::corrupt("btrfs free space", field, at, found, expected))
            };
            let Some((key, bytes)) = self.item(&path)? else { return Ok(()) };
            let (start, length) = (key.objectid, key.offset);
            let mut found: Vec<(u64, u64)> = Vec::new();
            match key.kind {
                kind::FREE_SPACE_INFO => {
                    let Some(info) = view::<FreeSpaceInfo>(bytes, 0) else {
                        return fail("size", wide(bytes.len()), "8");
                    };
                    // mkfs.btrfs 6.2 leaves entries of a group that it has removed.
                    is_group = self.space.groups.get(&start).is_some_and(|g| g.bytes == length);
                    uses_bitmaps = info.flags.get() & USING_BITMAPS != 0;
                    counted = (start, start.saturating_add(length));
                    found.extend(run.take());
                }
                kind::FREE_SPACE_EXTENT if !uses_bitmaps => {
                    if length == 0 || !bytes.is_empty() {
                        return fail("key.offset", length, "1 or more, without bytes");
                    }
                    found.push((start, length));
                }
                kind::FREE_SPACE_BITMAP if uses_bitmaps => {
                    let sectors = length / 4096;
                    if wide(bytes.len()) != sectors.div_ceil(8) {
                        return fail("size", wide(bytes.len()), "a bit for each sector");
                    }
                    for n in 0..sectors {
                        if is_set(bytes, crate::disk::index(n)) {
                            let here = start.saturating_add(n * 4096);
                            run = match run {
                                Some((s, len)) if s + len == here => Some((s, len + 4096)),
                                other => {
                                    found.extend(other);
                                    Some((here, 4096))
                                }
                            };
                        }
                    }
                }
                other => return fail("key.type", other.into(), "what the info before it says"),
            }
            let was_group = std::mem::replace(&mut had_group, is_group);
            for (start, bytes) in found {
                // The run that ends with the info of the next group is of the one before.
                if if key.kind == kind::FREE_SPACE_INFO { was_group } else { is_group } {
                    self.add_loaded(start, bytes, at)?;
                }
            }
            let inside =
                start >= counted.0 && start.checked_add(length).is_some_and(|e| e <= counted.1);
            if !inside {
                return fail("key", start, "within the block group before it");
            }
            if !self.next(&mut path)? {
                if let Some((start, bytes)) = run.filter(|_| is_group) {
                    self.add_loaded(start, bytes, at)?;
                }
                return Ok(());
            }
        }
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
        for copy in SuperBlock::copies(u64::MAX) {
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
