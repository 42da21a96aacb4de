//! New chunks: a part of the device for a new block group.
//!
//! Two steps, as in the kernel: first the chunk can be used (map, group, chunk tree, device item,
//! for the system the array in the super block); when references are run next, its block group
//! item, device extents and free space come into their trees, whose own blocks may be in it.

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::chunks::Device;
use crate::core::Core;
use crate::disk::chunk::{STRIPE_LEN, group};
use crate::disk::{
    BlockGroupItem, Chunk, ChunkHead, DevExtent, DevItem, FreeSpaceInfo, Key, Stripe, id, kind,
    lo16, view_mut, wide,
};

use super::{Group, Runs};

/// Longest extent of data. `BTRFS_MAX_EXTENT_SIZE`.
pub(crate) const DATA_EXTENT_MAX: u64 = 128 << 20;
/// Where chunks may begin. `BTRFS_DEVICE_RANGE_RESERVED`.
const DEVICE_START: u64 = 1 << 20;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Core<'_> {
    /// Makes a chunk for a kind of contents. Errors: `NoSpace` if the device has none left, without
    /// any change; all others, and `NoSpace` in the middle, leave the transaction useless.
    /// `do_chunk_alloc`.
    pub(super) fn make_chunk(&mut self, kind: u64) -> FsResult<()> {
        if !self.space.making.insert(kind) {
            return Err(FsError::NoSpace);
        }
        let done = self.reserve_system().and_then(|()| {
            let start = self.create_chunk(kind)?;
            self.add_chunk_item(start)
        });
        self.space.making.remove(&kind);
        done
    }

    /// Room in the chunk tree for one more chunk, before it is made. Without a device part for a
    /// new one, what is left has to do. `check_system_chunk`.
    fn reserve_system(&mut self) -> FsResult<()> {
        let needed = 3 * 8 * self.block_bytes();
        let left: u64 = self.space.of_kind(group::SYSTEM).map(Group::available).sum();
        if left < needed {
            self.make_system_chunk()?;
        }
        Ok(())
    }

    /// Answers whether there is one more.
    pub(super) fn make_system_chunk(&mut self) -> FsResult<bool> {
        if !self.space.making.insert(group::SYSTEM) {
            return Ok(false);
        }
        let done = match self.create_chunk(group::SYSTEM) {
            Ok(start) => self.add_chunk_item(start).map(|()| true),
            Err(FsError::NoSpace) => Ok(false),
            Err(e) => Err(e),
        };
        self.space.making.remove(&group::SYSTEM);
        done
    }

    /// Copies that a new chunk of this kind has: as those that there are. `get_alloc_profile`.
    fn profile(&self, kind: u64) -> u64 {
        self.space.of_kind(kind).fold(0, |all, g| all | (g.flags & group::DUP))
    }

    /// Bytes of a new chunk and places for it. `init_alloc_chunk_ctl_policy_regular`,
    /// `decide_stripe_size_regular`.
    fn plan_chunk(&self, kind: u64) -> FsResult<(u64, Vec<u64>)> {
        let copies = if self.profile(kind) & group::DUP != 0 { 2 } else { 1 };
        let device = self.sb.dev_item.total_bytes.get();
        let most = match kind {
            group::DATA => 10 * GIB,
            group::SYSTEM => 32 * MIB,
            _ if device > 50 * GIB => GIB,
            _ => 256 * MIB,
        };
        let wanted = most.min(GIB) * copies;
        let most = most.min(device / 10);
        // The first hole that is long enough, else the longest.
        let (mut best, mut at) = ((0, 0), DEVICE_START);
        let extents = self.chunks.device_extents();
        for (start, bytes) in extents.into_iter().chain([(device, 0)]) {
            let hole = start.saturating_sub(at);
            if hole > best.1 {
                best = (at, hole.min(wanted));
                if hole >= wanted {
                    break;
                }
            }
            at = at.max(start + bytes);
        }
        let mut stripe = best.1 / copies;
        if stripe > most {
            stripe = stripe.min(most.next_multiple_of(16 * MIB));
        }
        let stripe = stripe.min(GIB) / STRIPE_LEN * STRIPE_LEN;
        if stripe == 0 {
            return Err(FsError::NoSpace);
        }
        Ok((stripe, (0..copies).map(|n| best.0 + n * stripe).collect()))
    }

    /// Bytes of logical addresses that a chunk of this kind would have; 0: there is no room.
    pub(super) fn chunk_possible(&self, kind: u64) -> u64 {
        self.plan_chunk(kind).map_or(0, |(bytes, _)| bytes)
    }

    /// `create_chunk`, `btrfs_make_block_group`.
    fn create_chunk(&mut self, kind: u64) -> FsResult<u64> {
        let (bytes, places) = self.plan_chunk(kind)?;
        let done = self.create_chunk_at(kind, bytes, &places);
        self.guard(done)
    }

    fn create_chunk_at(&mut self, kind: u64, bytes: u64, places: &[u64]) -> FsResult<u64> {
        let flags = kind | self.profile(kind);
        let start = self.chunks.next_logical();
        let chunk = self.chunk_of(bytes, flags, places);
        let device = Device::of(&self.sb.dev_item);
        self.chunks.add(Chunk::key(start), &chunk, device, 0)?;
        let mut free = Runs::default();
        free.add(start, bytes)?;
        let new = Group {
            start,
            bytes,
            flags,
            used: 0,
            written_used: 0,
            reserved: 0,
            pinned: 0,
            super_bytes: 0,
            free,
            size_class: None,
            needs_tree: true,
            has_chunk_item: false,
        };
        self.space.groups.insert(start, new);
        self.exclude_supers(start)?;
        self.space.new.push(start);
        let used = &mut self.sb.dev_item.bytes_used;
        let more = bytes.saturating_mul(wide(places.len()));
        let Some(sum) = used.get().checked_add(more) else {
            let expected = "a sum with the new chunk's parts below 2^64";
            let found = used.get();
            return Err(FsError::corrupt("btrfs dev item", "bytes_used", 0, found, expected));
        };
        *used = sum.into();
        Ok(start)
    }

    fn chunk_of(&self, bytes: u64, flags: u64, places: &[u64]) -> Chunk {
        let dev = &self.sb.dev_item;
        let align = u32::try_from(STRIPE_LEN).unwrap_or(u32::MAX).into();
        Chunk {
            head: ChunkHead {
                length: bytes.into(),
                owner: id::EXTENT_TREE.into(),
                stripe_len: STRIPE_LEN.into(),
                kind: flags.into(),
                io_align: align,
                io_width: align,
                sector_size: self.sb.sectorsize,
                num_stripes: lo16(places.len()).into(),
                sub_stripes: 1.into(),
            },
            stripes: places
                .iter()
                .map(|at| Stripe { devid: dev.devid, offset: (*at).into(), dev_uuid: dev.uuid })
                .collect(),
        }
    }

    /// `btrfs_chunk_alloc_add_chunk_item`, `btrfs_update_device`.
    fn add_chunk_item(&mut self, start: u64) -> FsResult<()> {
        let done = self.write_chunk_item(start);
        self.guard(done)
    }

    fn write_chunk_item(&mut self, start: u64) -> FsResult<()> {
        let devid = self.sb.dev_item.devid.get();
        let used = self.sb.dev_item.bytes_used;
        let device = Key::new(id::DEV_ITEMS, kind::DEV_ITEM, devid);
        self.change_item(id::CHUNK_TREE, device, |bytes| {
            if let Some(item) = view_mut::<DevItem>(bytes, 0) {
                item.bytes_used = used;
            }
        })
        .map_err(|e| match e {
            FsError::NotFound => {
                let expected = "an item of the device that there is";
                FsError::corrupt("btrfs chunk tree", "dev item", 0, devid, expected)
            }
            other => other,
        })?;
        let Some(mapped) = self.chunks.of(start).cloned() else { return Ok(()) };
        let chunk = self.chunk_of(mapped.bytes, mapped.flags, &mapped.places);
        let key = Chunk::key(start);
        self.insert_item(id::CHUNK_TREE, key, &chunk.store())?;
        if mapped.flags & group::SYSTEM != 0 {
            self.sb.add_system_chunk(key, &chunk)?;
        }
        self.space.group_mut(start)?.has_chunk_item = true;
        Ok(())
    }

    /// The second step, for all new block groups, also those that it needs itself.
    /// `btrfs_create_pending_block_groups`.
    pub(crate) fn finish_new_groups(&mut self) -> FsResult<()> {
        while !self.space.new.is_empty() {
            let start = self.space.new.remove(0);
            let g = self.space.group_mut(start)?;
            g.written_used = g.used;
            let (bytes, flags, used, has_chunk_item) = (g.bytes, g.flags, g.used, g.has_chunk_item);
            let item = BlockGroupItem {
                used: used.into(),
                chunk_objectid: id::FIRST_CHUNK_TREE.into(),
                flags: flags.into(),
            };
            let key = Key::new(start, kind::BLOCK_GROUP_ITEM, bytes);
            // What that itself uses of the group makes it dirty again.
            self.insert_item(id::EXTENT_TREE, key, item.as_bytes())?;
            if !has_chunk_item {
                self.add_chunk_item(start)?;
            }
            let devid = self.sb.dev_item.devid.get();
            for place in self.chunks.places(start, bytes)? {
                let extent = DevExtent {
                    chunk_tree: id::CHUNK_TREE.into(),
                    chunk_objectid: id::FIRST_CHUNK_TREE.into(),
                    chunk_offset: start.into(),
                    length: bytes.into(),
                    chunk_tree_uuid: self.chunk_tree_uuid,
                };
                let key = Key::new(devid, kind::DEV_EXTENT, place);
                self.insert_item(id::DEV_TREE, key, extent.as_bytes())?;
            }
            self.add_group_to_tree(start)?;
        }
        Ok(())
    }

    /// A new group in the free-space tree: all of it is free. `add_block_group_free_space`.
    pub(super) fn add_group_to_tree(&mut self, start: u64) -> FsResult<()> {
        let g = self.space.group_mut(start)?;
        if !std::mem::replace(&mut g.needs_tree, false) {
            return Ok(());
        }
        let bytes = g.bytes;
        let info = FreeSpaceInfo { extent_count: 0.into(), flags: 0.into() };
        let key = Key::new(start, kind::FREE_SPACE_INFO, bytes);
        self.insert_item(id::FREE_SPACE_TREE, key, info.as_bytes())?;
        self.tree_give(start, bytes)
    }
}
