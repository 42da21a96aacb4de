//! Removing items, and the nodes that this leaves nearly empty.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::node::{ITEM_BYTES, leaf_space, ptrs_max};

use super::insert::Push;
use super::{Path, page};

impl Core<'_> {
    /// Removes `count` items from a path's place on. The path was searched for this purpose, and
    /// leads nowhere afterwards. `btrfs_del_items`.
    pub fn remove_items(&mut self, tree: u64, path: &mut Path, count: usize) -> FsResult<()> {
        let (leaf, slot) = (path.leaf(), path.slot());
        let n = self.node(leaf)?.len();
        if count == 0 || slot + count > n {
            return Err(FsError::Invalid("items to remove: such as are there"));
        }
        let bytes = self.block_mut(leaf)?;
        page::remove(bytes, slot, count);
        if n == count {
            if self.root(tree)?.node != leaf {
                self.remove_leaf(tree, path, leaf)?;
            }
            return Ok(());
        }
        let used = page::space_used(bytes, 0, n - count);
        if slot == 0
            && let Some(key) = self.node(leaf)?.key(0)
        {
            self.fix_low_keys(path, key, 1)?;
        }
        if used >= leaf_space(self.node_bytes()) / 3 {
            return Ok(());
        }
        // Nearly empty: the neighbours take all that is left, if they have room.
        let above = path.at(1);
        let first = self.node(leaf)?.data(0).map_or(0, <[u8]>::len);
        let least = i64::try_from(ITEM_BYTES + first).unwrap_or(i64::MAX);
        let left = Push { min: 0, least, empties: true, limit: usize::MAX };
        self.push_leaf_left(tree, path, left)?;
        let rest = self.node(leaf)?.len();
        if path.leaf() == leaf && rest > 0 {
            let used = page::space_used(self.node(leaf)?.bytes(), 0, rest);
            let least = i64::try_from(used).unwrap_or(i64::MAX);
            let right = Push { min: 0, least, empties: true, limit: 0 };
            self.push_leaf_right(tree, path, right)?;
        }
        if self.node(leaf)?.len() == 0 {
            path.set_at(1, above);
            self.remove_leaf(tree, path, leaf)?;
        }
        Ok(())
    }

    /// Removes a leaf that is empty. `btrfs_del_leaf`.
    fn remove_leaf(&mut self, tree: u64, path: &mut Path, leaf: u64) -> FsResult<()> {
        self.remove_ptr(tree, path, 1, path.at(1))?;
        self.count_tree_block(tree, false)?;
        self.free_block(tree, leaf)
    }

    /// Removes the pointer in a slot of a path's node. `btrfs_del_ptr`.
    fn remove_ptr(&mut self, tree: u64, path: &Path, level: usize, slot: usize) -> FsResult<()> {
        let node = path.node(level);
        let is_root = self.root(tree)?.node == node;
        let bytes = self.block_mut(node)?;
        page::remove_ptr(bytes, slot);
        if page::len(bytes) == 0 && is_root {
            page::header(bytes).level = 0;
        } else if slot == 0
            && let Some(key) = self.node(node)?.key(0)
        {
            self.fix_low_keys(path, key, level + 1)?;
        }
        Ok(())
    }

    /// On the way down to a removal: a node with few pointers takes some from its neighbours or
    /// gives them all away, so that a removal below never leaves it without any. If the root has
    /// become superfluous, the path has none on this level afterwards. `balance_level`.
    pub(super) fn balance_level(
        &mut self,
        tree: u64,
        path: &mut Path,
        level: usize,
    ) -> FsResult<()> {
        let mid = path.node(level);
        let parent = path.node(level + 1);
        let n = self.node(mid)?.len();
        if parent == 0 {
            if n != 1 {
                return Ok(());
            }
            let child = self.child(mid, 0)?;
            let child = self.cow_if_needed(tree, child, mid, 0)?;
            self.set_root_node(tree, child)?;
            path.set_node(level, 0);
            self.count_tree_block(tree, false)?;
            return self.free_block(tree, mid);
        }
        if n > ptrs_max(self.node_bytes()) / 4 {
            return Ok(());
        }
        let slot = path.at(level + 1);
        let mut at = path.at(level);
        let mut left = None;
        if slot > 0 {
            let block = self.child(parent, slot - 1)?;
            left = Some(self.cow_if_needed(tree, block, parent, slot - 1)?);
        }
        let mut right = None;
        if slot + 1 < self.node(parent)?.len() {
            let block = self.child(parent, slot + 1)?;
            right = Some(self.cow_if_needed(tree, block, parent, slot + 1)?);
        }
        if let Some(left) = left {
            at += self.node(left)?.len();
            self.push_node_left(left, mid, true)?;
        }
        if let Some(right) = right {
            self.push_node_left(mid, right, true)?;
            match self.node(right)?.key(0) {
                None => {
                    self.remove_ptr(tree, path, level + 1, slot + 1)?;
                    self.count_tree_block(tree, false)?;
                    self.free_block(tree, right)?;
                }
                Some(key) => page::set_key(self.block_mut(parent)?, slot + 1, key),
            }
        }
        if self.node(mid)?.len() == 1 {
            let Some(left) = left else {
                let expected = "a neighbour of a node with one pointer";
                return Err(FsError::corrupt("btrfs node", "nritems", 0, parent, expected));
            };
            if !self.push_node_right(left, mid)? {
                self.push_node_left(left, mid, true)?;
            }
        }
        let mid_is_gone = match self.node(mid)?.key(0) {
            None => {
                self.remove_ptr(tree, path, level + 1, slot)?;
                self.count_tree_block(tree, false)?;
                self.free_block(tree, mid)?;
                true
            }
            Some(key) => {
                page::set_key(self.block_mut(parent)?, slot, key);
                false
            }
        };
        if let Some(left) = left {
            let there = self.node(left)?.len();
            if there > at {
                path.set_node(level, left);
                path.set_at(level + 1, slot - 1);
            } else {
                at -= there;
            }
        }
        path.set_at(level, at);
        if mid_is_gone && path.node(level) == mid {
            let expected = "a place in the left neighbour of a node that is gone";
            return Err(FsError::corrupt("btrfs node", "nritems", 0, mid, expected));
        }
        Ok(())
    }
}
