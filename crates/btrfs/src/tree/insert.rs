//! Leaves that are full: sharing with a neighbour, splitting in two or three.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::Key;
use crate::disk::node::{ITEM_BYTES, leaf_space};

use super::{Path, page};

/// How items go to a neighbour. `min` bytes are what the item at the path's place needs beside
/// them; `least` free bytes the neighbour must have to be touched at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Push {
    pub min: i64,
    pub least: i64,
    pub empties: bool,
    /// The first item that may go right, or before which items may go left.
    pub limit: usize,
}

#[expect(clippy::as_conversions, reason = "bytes of a block: at most 65536")]
fn signed(n: usize) -> i64 {
    n as i64
}

impl Core<'_> {
    /// Makes room in a path's leaf: `bytes` for a new item with its head, or for the item there to
    /// become longer (`extends`). `split_leaf`.
    pub(super) fn split_leaf(
        &mut self,
        tree: u64,
        key: Key,
        path: &mut Path,
        bytes: usize,
        extends: bool,
    ) -> FsResult<()> {
        let space = leaf_space(self.node_bytes());
        let leaf = self.node(path.leaf())?;
        let size = leaf.data(path.slot()).map_or(0, <[u8]>::len);
        if (extends && bytes + size + ITEM_BYTES > space) || bytes > space {
            return Err(FsError::TooBig);
        }
        if bytes > 0 && path.node(1) != 0 {
            let (free, n) = (signed(leaf.free_bytes()), leaf.len());
            let needed = |is_beside| signed(bytes) - if is_beside { free } else { 0 };
            let min = needed(path.slot() < n);
            let right = Push { min, least: min, empties: false, limit: 0 };
            if !self.push_leaf_right(tree, path, right)? {
                let min = needed(path.slot() > 0);
                let left = Push { min, least: min, empties: false, limit: usize::MAX };
                self.push_leaf_left(tree, path, left)?;
            }
            if self.node(path.leaf())?.free_bytes() >= bytes {
                return Ok(());
            }
        }
        if path.node(1) == 0 {
            self.insert_new_root(tree, path, 1)?;
        }
        let mut tried_to_avoid = false;
        let mut is_second = false;
        loop {
            let leaf = path.leaf();
            let view = self.node(leaf)?;
            let (slot, n) = (path.slot(), view.len());
            let used = |from, count| page::space_used(view.bytes(), from, count);
            let mut mid = n.div_ceil(2);
            let mut parts = 1;
            if mid <= slot {
                if n == 1 || used(mid, n - mid) + bytes > space {
                    if slot >= n {
                        parts = 0;
                    } else {
                        mid = slot;
                        if used(mid, n - mid) + bytes > space {
                            parts = 2;
                        }
                    }
                }
            } else if used(0, mid) + bytes > space {
                if !extends && bytes > 0 && slot == 0 {
                    parts = 0;
                } else if slot == 0 {
                    mid = 1;
                } else {
                    mid = slot;
                    if mid != n && used(mid, n - mid) + bytes > space {
                        parts = 2;
                    }
                }
            }
            if parts == 2 && bytes > 0 && !tried_to_avoid {
                self.push_for_double_split(tree, path, bytes)?;
                tried_to_avoid = true;
                if self.node(path.leaf())?.free_bytes() >= bytes {
                    return Ok(());
                }
                continue;
            }
            let first = if parts == 0 { key } else { view.key(mid).unwrap_or(key) };
            let new = self.alloc_block(tree, 0, leaf)?;
            self.count_tree_block(tree, true)?;
            let (parent, above, transid) = (path.node(1), path.at(1), self.transid());
            if parts == 0 {
                // An empty leaf for the item, behind the one that there is or before it.
                let at = if mid <= slot { above + 1 } else { above };
                page::insert_ptr(self.block_mut(parent)?, at, first, new, transid);
                path.set_node(0, new);
                path.set_slot(0);
                path.set_at(1, at);
                if at == 0 {
                    self.fix_low_keys(path, first, 1)?;
                }
                return Ok(());
            }
            self.with_two(leaf, new, |left, right| page::push_right(left, right, n - mid))?;
            page::insert_ptr(self.block_mut(parent)?, above + 1, first, new, transid);
            if mid <= slot {
                path.set_node(0, new);
                path.set_slot(slot - mid);
                path.set_at(1, above + 1);
            }
            if parts == 1 || is_second {
                break;
            }
            is_second = true;
        }
        if self.node(path.leaf())?.free_bytes() < bytes {
            let expected = format!("room for {bytes} bytes after a split");
            return Err(FsError::corrupt("btrfs leaf", "free bytes", 0, path.leaf(), expected));
        }
        Ok(())
    }

    /// An item that is to come into the middle fits into neither half: tries to give all that is
    /// before or behind it to the neighbours. `push_for_double_split`.
    fn push_for_double_split(&mut self, tree: u64, path: &mut Path, bytes: usize) -> FsResult<()> {
        let leaf = self.node(path.leaf())?;
        let free = signed(leaf.free_bytes());
        let least = signed(bytes) - if path.slot() < leaf.len() { free } else { 0 };
        let right = Push { min: 1, least, empties: false, limit: path.slot() };
        self.push_leaf_right(tree, path, right)?;
        let leaf = self.node(path.leaf())?;
        if path.slot() == 0 || path.slot() == leaf.len() || leaf.free_bytes() >= bytes {
            return Ok(());
        }
        let least = signed(bytes) - signed(leaf.free_bytes());
        let left = Push { min: 1, least, empties: false, limit: path.slot() };
        self.push_leaf_left(tree, path, left)?;
        Ok(())
    }

    /// Gives items of a path's leaf to its right neighbour. Answers whether that did anything; the
    /// path may lead into the neighbour then. `push_leaf_right`.
    pub(super) fn push_leaf_right(
        &mut self,
        tree: u64,
        path: &mut Path,
        push: Push,
    ) -> FsResult<bool> {
        let (parent, above) = (path.node(1), path.at(1));
        if parent == 0 || above + 1 >= self.node(parent)?.len() {
            return Ok(false);
        }
        let right = self.child(parent, above + 1)?;
        let room = signed(self.node(right)?.free_bytes());
        if room < push.least {
            return Ok(false);
        }
        let right = self.cow_if_needed(tree, right, parent, above + 1)?;
        let left = path.leaf();
        let view = self.node(left)?;
        let (n, slot) = (view.len(), path.slot());
        if n == 0 {
            return Ok(false);
        }
        if slot == n && !push.empties {
            // The new item will be the neighbour's first: nothing has to move.
            path.set_node(0, right);
            path.set_slot(0);
            path.set_at(1, above + 1);
            return Ok(true);
        }
        let first = if push.empties { 0 } else { push.limit.max(1) };
        let free = signed(view.free_bytes());
        let mut space = if slot >= n { push.min } else { 0 };
        let mut count = 0;
        for i in (first..n).rev() {
            if !push.empties && count > 0 && (slot > i || (slot == i && free + space * 2 > room)) {
                break;
            }
            if slot == i {
                space += push.min;
            }
            let size = signed(view.data(i).map_or(0, <[u8]>::len) + ITEM_BYTES);
            if size + space > room {
                break;
            }
            count += 1;
            space += size;
        }
        if count == 0 {
            return Ok(false);
        }
        self.with_two(left, right, |left, right| page::push_right(left, right, count))?;
        let key = self.node(right)?.key(0).unwrap_or_default();
        page::set_key(self.block_mut(parent)?, above + 1, key);
        let rest = n - count;
        if slot >= rest {
            path.set_slot(slot - rest);
            path.set_node(0, right);
            path.set_at(1, above + 1);
        }
        Ok(true)
    }

    /// Gives items of a path's leaf to its left neighbour, as [`Self::push_leaf_right`].
    /// `push_leaf_left`.
    pub(super) fn push_leaf_left(
        &mut self,
        tree: u64,
        path: &mut Path,
        push: Push,
    ) -> FsResult<bool> {
        let (parent, above) = (path.node(1), path.at(1));
        let right = path.leaf();
        if parent == 0 || above == 0 || self.node(right)?.len() == 0 {
            return Ok(false);
        }
        let left = self.child(parent, above - 1)?;
        let room = signed(self.node(left)?.free_bytes());
        if room < push.least {
            return Ok(false);
        }
        let left = self.cow_if_needed(tree, left, parent, above - 1)?;
        let view = self.node(right)?;
        let (n, slot) = (view.len(), path.slot());
        let last = push.limit.min(if push.empties { n } else { n - 1 });
        let free = signed(view.free_bytes());
        let (mut space, mut count) = (0, 0);
        for i in 0..last {
            if !push.empties && count > 0 && (slot < i || (slot == i && free + space * 2 > room)) {
                break;
            }
            if slot == i {
                space += push.min;
            }
            let size = signed(view.data(i).map_or(0, <[u8]>::len) + ITEM_BYTES);
            if size + space > room {
                break;
            }
            count += 1;
            space += size;
        }
        if count == 0 {
            return Ok(false);
        }
        let there = self.node(left)?.len();
        self.with_two(left, right, |left, right| page::push_left(left, right, count))?;
        if let Some(key) = self.node(right)?.key(0) {
            self.fix_low_keys(path, key, 1)?;
        }
        if slot < count {
            path.set_slot(slot + there);
            path.set_node(0, left);
            path.set_at(1, above - 1);
        } else {
            path.set_slot(slot - count);
        }
        Ok(true)
    }
}
