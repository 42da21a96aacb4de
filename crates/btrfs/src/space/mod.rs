//! Space: which places are free, which are taken, and new chunks when none is left.
//!
//! Picture:    a [`Group`] for each chunk = bytes used, free runs in memory. A place goes from free
//!             to reserved (`alloc`), to used when its reference is counted (`Core::use_extent`),
//!             to pinned when the last reference is gone, and to free when the transaction that
//!             freed it is on the device (`Core::unpin`).
//! Invariants: 1. what a commit on the device needs is never given out: pinned is not free.
//!             2. the free-space tree has what is not used, so reserved and pinned places are in it
//!                while memory has them not.
//!             3. stripes with copies of the super block are never given out, though the tree calls
//!                them free.
//! Left out:   fragmentation hints of data groups, bitmaps of free space in memory (which change
//!             where a search begins only with tens of thousands of free runs), block groups that
//!             are deleted when empty, discards.
//! Source:     fs/btrfs/{extent-tree,free-space-cache,free-space-tree,block-group,volumes}.c.

#![deny(clippy::indexing_slicing)]

mod alloc;
mod chunk;
mod device;
mod free;
mod load;
mod reserve;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::chunk::group;
use crate::disk::{BlockGroupItem, Key, id, kind, view_mut, wide};
use crate::site;

pub use free::Runs;

/// How long the extents of a group of data are, so that holes of short ones do not cut up what long
/// ones need. `enum btrfs_block_group_size_class`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeClass {
    /// Up to 128 KiB.
    Small,
    /// Up to 8 MiB.
    Medium,
    /// Longer.
    Large,
}

impl SizeClass {
    /// The size class of an extent of `bytes` bytes. `btrfs_calc_block_group_size_class`.
    pub const fn of(bytes: u64) -> SizeClass {
        match bytes {
            0..=0x2_0000 => SizeClass::Small,
            0x2_0001..=0x80_0000 => SizeClass::Medium,
            _ => SizeClass::Large,
        }
    }
}

/// A block group.
#[derive(Clone, Debug)]
pub struct Group {
    /// First logical address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Kind and profile, see [`group`].
    pub flags: u64,
    /// Bytes of extents that are counted.
    pub used: u64,
    /// The same as its item has it.
    pub(crate) written_used: u64,
    /// Bytes given out and not counted yet.
    pub reserved: u64,
    /// Bytes that will be free when the transaction is on the device.
    pub pinned: u64,
    /// Bytes with copies of the super block.
    pub super_bytes: u64,
    /// Free runs, without those of a cluster.
    pub free: Runs,
    /// Of data alone: that of the first extent that was given out, or of the shortest of a sample
    /// at the mount. Nothing: it had none.
    pub size_class: Option<SizeClass>,
    /// Its entries in the free-space tree are still to be made.
    pub(crate) needs_tree: bool,
    /// Is its chunk in the chunk tree?
    pub(crate) has_chunk_item: bool,
}

impl Group {
    /// The first address behind it.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
    /// What it holds, without the profile.
    pub fn kinds(&self) -> u64 {
        self.flags & group::KINDS
    }
    /// Has it data and nothing else? `btrfs_block_group_should_use_size_class`.
    pub(crate) fn has_size_class(&self) -> bool {
        self.kinds() == group::DATA
    }
    /// Bytes that could be given out now.
    pub fn available(&self) -> u64 {
        self.bytes.saturating_sub(self.used + self.reserved + self.pinned + self.super_bytes)
    }
}

/// A group's free runs that metadata is taken from, by ascending address, while what becomes free
/// waits. `struct btrfs_free_cluster`.
#[derive(Clone, Default, Debug)]
pub(crate) struct Cluster {
    pub group: u64,
    pub free: Runs,
}

/// All space.
#[derive(Clone, Default, Debug)]
pub struct Space {
    pub(crate) groups: BTreeMap<u64, Group>,
    pub(crate) is_loaded: bool,
    /// Groups whose item is to be written, in the order of their first change.
    pub(crate) dirty: Vec<u64>,
    /// Groups that have no items in trees yet.
    pub(crate) new: Vec<u64>,
    pub(crate) cluster: Cluster,
    /// Freed in this transaction.
    pub(crate) pinned: Runs,
    /// Freed in the transaction that is being written.
    pub(crate) unpinning: Runs,
    /// Block groups that are being made, so that making one does not begin another of the kind.
    pub(crate) making: BTreeSet<u64>,
    /// Bytes of metadata promised to calls that run.
    pub(crate) promised: u64,
    /// Bytes used, as the super block has them.
    pub(crate) bytes_used: u64,
}

impl Space {
    /// The group of an address.
    pub fn group_of(&self, logical: u64) -> Option<&Group> {
        let (_, g) = self.groups.range(..=logical).next_back()?;
        (logical < g.end()).then_some(g)
    }

    fn group_mut(&mut self, logical: u64) -> FsResult<&mut Group> {
        let group = self.groups.range_mut(..=logical).next_back().map(|(_, g)| g);
        group.filter(|g| logical < g.end()).ok_or_else(|| {
            let expected = "an address in a block group";
            FsError::corrupt("btrfs block group", "address", 0, logical, expected)
        })
    }

    /// Bytes of extents in use.
    pub fn bytes_used(&self) -> u64 {
        self.bytes_used
    }

    /// Groups of a kind ([`group`]), by address.
    pub fn of_kind(&self, kind: u64) -> impl Iterator<Item = &Group> {
        self.groups.values().filter(move |g| g.flags & kind != 0)
    }
}

impl Core<'_> {
    /// Block groups and free space; empty until something was changed or they were asked for.
    pub fn space(&mut self) -> FsResult<&Space> {
        self.load_space()?;
        Ok(&self.space)
    }

    /// A reserved extent has its first reference. `alloc_reserved_extent`.
    pub(crate) fn use_extent(&mut self, bytenr: u64, bytes: u64) -> FsResult<()> {
        self.tree_take(bytenr, bytes)?;
        let used = self.space.bytes_used.checked_add(bytes).ok_or_else(|| {
            let (found, right) = (self.space.bytes_used, "a sum below 2^64");
            FsError::corrupt("btrfs super block", "bytes_used", 0, found, right)
        })?;
        self.space.bytes_used = used;
        let g = self.space.group_mut(bytenr)?;
        g.used += bytes;
        g.reserved = g.reserved.saturating_sub(bytes);
        self.note_dirty_group(bytenr)
    }

    /// An extent's last reference is gone: its place is free when the transaction is on the device.
    /// `do_free_extent_accounting`, `btrfs_update_block_group`.
    pub(crate) fn unuse_extent(&mut self, bytenr: u64, bytes: u64) -> FsResult<()> {
        self.tree_give(bytenr, bytes)?;
        self.space.bytes_used = self.space.bytes_used.saturating_sub(bytes);
        let g = self.space.group_mut(bytenr)?;
        if g.used < bytes {
            let expected = format!("{bytes} or more (group {})", g.start);
            return Err(FsError::corrupt("btrfs block group", "used", 0, g.used, expected));
        }
        g.used -= bytes;
        if site::PIN_FREED.on() {
            g.pinned += bytes;
            self.space.pinned.add(bytenr, bytes)?;
        } else {
            g.free.add(bytenr, bytes)?;
        }
        self.note_dirty_group(bytenr)
    }

    /// A place that was given out and written, but never counted, is not to be used again before
    /// the commit. `btrfs_pin_reserved_extent`.
    pub fn pin_reserved(&mut self, bytenr: u64, bytes: u64) -> FsResult<()> {
        let g = self.space.group_mut(bytenr)?;
        g.reserved = g.reserved.saturating_sub(bytes);
        g.pinned += bytes;
        self.space.pinned.add(bytenr, bytes)
    }

    /// A place that was given out is free again at once: nothing was written there.
    /// `btrfs_free_reserved_extent`.
    pub fn free_reserved(&mut self, bytenr: u64, bytes: u64) -> FsResult<()> {
        let g = self.space.group_mut(bytenr)?;
        g.reserved = g.reserved.saturating_sub(bytes);
        g.free.add(bytenr, bytes)
    }

    /// A free place is taken, as a log says that it has it: blocks of log trees, and data that a
    /// log's replay brings back. Pinned (`pins`) it is not used before the next commit, else it is
    /// reserved. `btrfs_pin_extent_for_log_replay`, `btrfs_alloc_logged_file_extent`.
    pub fn take_for_log(&mut self, bytenr: u64, bytes: u64, pins: bool) -> FsResult<()> {
        self.load_space()?;
        if self.space.cluster.group != 0 {
            self.return_cluster()?;
        }
        let g = self.space.group_mut(bytenr)?;
        g.free.remove(bytenr, bytes)?;
        if pins {
            g.pinned += bytes;
            self.space.pinned.add(bytenr, bytes)?;
        } else {
            g.reserved += bytes;
        }
        Ok(())
    }

    /// A transaction is on the device: what it freed can be used. `btrfs_finish_extent_commit`.
    pub(crate) fn unpin(&mut self) -> FsResult<()> {
        for (start, bytes) in std::mem::take(&mut self.space.unpinning).iter() {
            let end = start + bytes;
            let mut at = start;
            while at < end {
                let g = self.space.group_mut(at)?;
                let part = end.min(g.end()) - at;
                g.pinned = g.pinned.saturating_sub(part);
                g.free.add(at, part)?;
                at += part;
            }
        }
        Ok(())
    }

    fn note_dirty_group(&mut self, logical: u64) -> FsResult<()> {
        let start = self.space.group_mut(logical)?.start;
        if !self.space.dirty.contains(&start) {
            self.space.dirty.push(start);
        }
        Ok(())
    }

    /// Writes the items of groups whose use has changed, also while that changes more.
    /// `btrfs_write_dirty_block_groups`.
    pub(crate) fn write_dirty_groups(&mut self) -> FsResult<()> {
        for start in std::mem::take(&mut self.space.dirty) {
            if self.space.new.contains(&start) {
                // Its item comes with what is used now.
                continue;
            }
            let Some(g) = self.space.groups.get_mut(&start) else { continue };
            if std::mem::replace(&mut g.written_used, g.used) == g.used {
                continue;
            }
            let (used, key) = (g.used, Key::new(start, kind::BLOCK_GROUP_ITEM, g.bytes));
            self.change_item(id::EXTENT_TREE, key, |bytes| {
                if let Some(item) = view_mut::<BlockGroupItem>(bytes, 0) {
                    item.used = used.into();
                }
            })
            .map_err(|e| match e {
                FsError::NotFound => {
                    let expected = "an item in the extent tree";
                    FsError::corrupt("btrfs block group", "item", 0, start, expected)
                }
                other => other,
            })?;
        }
        Ok(())
    }

    /// Bytes of a tree block, as an address part.
    pub(crate) fn block_bytes(&self) -> u64 {
        wide(self.node_bytes())
    }
}
