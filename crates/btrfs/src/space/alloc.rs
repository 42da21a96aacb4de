//! Finding a place.
//!
//! Metadata comes out of a cluster: all free runs of a group, taken by ascending address until none
//! is left, space that becomes free meanwhile is not considered. Data is taken from behind a hint,
//! or without one from the longest run of the first group that has room: of the groups for extents
//! of that size first, then of those that had none yet, then of a new one, and only where the
//! device has no room for that of any.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::chunk::group;
use crate::disk::id;

use super::{Cluster, Group, SizeClass};

/// What a cluster must hold beside a block. `fetch_cluster_info`: for metadata, not on an SSD.
const CLUSTER_BYTES: u64 = 64 << 10;
/// A search of data begins at a multiple of this, from the group's start. `offset_to_bitmap`: a
/// page of bits.
const WINDOW: u64 = 4096 * 8 * 4096;

/// Which groups of data are searched. `enum btrfs_loop_type`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// Those for extents of that size; first that of the hint, from the hint on.
    Hinted,
    /// The same without a hint.
    Own,
    /// Also those without a size. `LOOP_UNSET_SIZE_CLASS`.
    Unset,
    /// All. `LOOP_WRONG_SIZE_CLASS`.
    Any,
}

impl Search {
    /// `find_free_extent_check_size_class`.
    fn takes(self, g: &Group, class: SizeClass) -> bool {
        !g.has_size_class()
            || match self {
                Search::Hinted | Search::Own => g.size_class == Some(class),
                Search::Unset => g.size_class.is_none_or(|c| c == class),
                Search::Any => true,
            }
    }
}

impl Core<'_> {
    /// A place for a tree block. `hint`: an address near which it is to be.
    ///
    /// Source: `btrfs_reserve_extent` as `btrfs_alloc_tree_block` calls it.
    pub(crate) fn reserve_block(&mut self, owner: u64, hint: u64) -> FsResult<u64> {
        let kind = if owner == id::CHUNK_TREE { group::SYSTEM } else { group::METADATA };
        let bytes = self.block_bytes();
        if let Some(at) = self.find(kind, bytes, hint)? {
            return Ok(at);
        }
        // A chunk of the system is made beforehand: making one changes the chunk tree, and this is
        // called in the middle of that.
        if kind == group::SYSTEM {
            return Err(FsError::NoSpace);
        }
        self.make_chunk(kind)?;
        self.find(kind, bytes, hint)?.ok_or(FsError::NoSpace)
    }

    /// A place for data: `bytes`, or fewer but not less than `min`. Answers where, and how many.
    ///
    /// `hint`: an address near which it is to be; 0: none. Errors: `NoSpace`, without any change.
    pub fn alloc_data(&mut self, bytes: u64, min: u64, hint: u64) -> FsResult<(u64, u64)> {
        if bytes == 0 || !bytes.is_multiple_of(4096) || min == 0 || !min.is_multiple_of(4096) {
            return Err(FsError::Invalid("bytes of data: whole sectors"));
        }
        self.begin()?;
        let mut bytes = bytes.min(super::chunk::DATA_EXTENT_MAX);
        loop {
            for search in [Search::Hinted, Search::Own, Search::Unset] {
                if let Some(at) = self.find_data(bytes, hint, search)? {
                    return Ok((at, bytes));
                }
            }
            self.secure_metadata()?;
            let searches: &[Search] = match self.make_chunk(group::DATA) {
                Ok(()) => &[Search::Unset, Search::Any],
                Err(FsError::NoSpace) => &[Search::Any],
                Err(e) => return Err(e),
            };
            for search in searches {
                if let Some(at) = self.find_data(bytes, hint, *search)? {
                    return Ok((at, bytes));
                }
            }
            let longest = self.space.of_kind(group::DATA).map(|g| g.free.longest_bytes()).max();
            if bytes == min || longest.unwrap_or(0) < min {
                return Err(FsError::NoSpace);
            }
            // `btrfs_reserve_extent` halves what it asks for.
            bytes = (bytes / 2).min(longest.unwrap_or(0)) / 4096 * 4096;
            bytes = bytes.max(min);
        }
    }

    /// `find_free_extent` of data, one round over the groups.
    fn find_data(&mut self, bytes: u64, hint: u64, search: Search) -> FsResult<Option<u64>> {
        let class = SizeClass::of(bytes);
        let all = self.space.of_kind(group::DATA).map(|g| (g.start, g.start));
        let order: Vec<(u64, u64)> = match search {
            Search::Hinted => {
                let hinted = self.space.group_of(hint).filter(|g| g.flags & group::DATA != 0);
                let Some(hinted) = hinted.map(|g| g.start) else { return Ok(None) };
                // The kernel jumps into its loop over the groups there.
                std::iter::once((hinted, hint)).chain(all.filter(|(g, _)| *g > hinted)).collect()
            }
            _ => all.collect(),
        };
        for (start, from) in order {
            let Some(g) = self.space.groups.get_mut(&start) else { continue };
            if !search.takes(g, class) {
                continue;
            }
            if let Some(at) = unclustered(g, from, bytes) {
                g.free.remove(at, bytes)?;
                g.reserved += bytes;
                // `btrfs_use_block_group_size_class`.
                if g.has_size_class() && g.size_class.is_none() {
                    g.size_class = Some(class);
                }
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// `find_free_extent` of tree blocks, as far as groups go that there are.
    fn find(&mut self, kind: u64, bytes: u64, mut hint: u64) -> FsResult<Option<u64>> {
        if kind == group::METADATA && self.space.cluster.group != 0 {
            if let Some(at) = self.space.cluster.free.first_fit(0, bytes) {
                self.space.cluster.free.remove(at, bytes)?;
                self.space.group_mut(at)?.reserved += bytes;
                return Ok(Some(at));
            }
            hint = self.space.cluster.group;
            self.return_cluster()?;
        }
        let hinted = self.space.group_of(hint).filter(|g| g.flags & kind != 0).map(|g| g.start);
        let all = self.space.of_kind(kind).map(|g| (g.start, g.start));
        let order: Vec<(u64, u64)> = hinted.map(|g| (g, hint)).into_iter().chain(all).collect();
        if kind == group::METADATA {
            // First a group with runs of some length, then any.
            for least in [bytes.max((bytes + CLUSTER_BYTES) >> 2), bytes] {
                for (start, _) in &order {
                    let Some(g) = self.space.groups.get_mut(start) else { continue };
                    if g.free.longest_bytes() < least || g.free.bytes() < bytes + CLUSTER_BYTES {
                        continue;
                    }
                    let free = std::mem::take(&mut g.free);
                    self.space.cluster = Cluster { group: *start, free };
                    return self.find(kind, bytes, hint);
                }
            }
        }
        for (start, from) in order {
            let Some(g) = self.space.groups.get_mut(&start) else { continue };
            if let Some(at) = unclustered(g, from, bytes) {
                g.free.remove(at, bytes)?;
                g.reserved += bytes;
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Gives what is left of the cluster back to its group. `return_cluster_to_free_space`.
    pub(super) fn return_cluster(&mut self) -> FsResult<()> {
        let Cluster { group, free } = std::mem::take(&mut self.space.cluster);
        let g = self.space.group_mut(group)?;
        for (start, bytes) in free.iter() {
            g.free.add(start, bytes)?;
        }
        Ok(())
    }
}

/// `btrfs_find_space_for_alloc`.
fn unclustered(g: &Group, from: u64, bytes: u64) -> Option<u64> {
    if from == g.start {
        return g.free.longest(bytes);
    }
    let window = g.start + (from - g.start) / WINDOW * WINDOW;
    g.free.first_fit(window, bytes)
}
