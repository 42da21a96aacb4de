//! Nodes that are full: sharing with a neighbour, splitting, a new root.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::node::ptrs_max;

use super::{Path, page};

/// Pointers that a node keeps when a neighbour takes some off it, unless it is to be emptied.
const KEPT: usize = 8;

impl Core<'_> {
    /// A new root above the one that there is, `level` levels above the leaves.
    /// `insert_new_root`.
    pub(super) fn insert_new_root(
        &mut self,
        tree: u64,
        path: &mut Path,
        level: usize,
    ) -> FsResult<()> {
        let lower = path.node(level - 1);
        let node = self.node(lower)?;
        let (key, below) = (node.key(0).unwrap_or_default(), node.level());
        if below + 1 >= crate::disk::SuperBlock::LEVELS {
            return Err(FsError::NoSpace);
        }
        let new = self.alloc_block(tree, below + 1, lower)?;
        self.count_tree_block(tree, true)?;
        let transid = self.transid();
        page::insert_ptr(self.block_mut(new)?, 0, key, lower, transid);
        self.set_root_node(tree, new)?;
        path.set_node(level, new);
        path.set_at(level, 0);
        Ok(())
    }

    /// Makes room in a node: by what a neighbour takes, or by splitting it. `split_node`.
    pub(super) fn split_node(&mut self, tree: u64, path: &mut Path, level: usize) -> FsResult<()> {
        let most = ptrs_max(self.node_bytes());
        let mut node = path.node(level);
        if self.root(tree)?.node == node {
            self.insert_new_root(tree, path, level + 1)?;
        } else {
            let shared = self.share_for_insert(tree, path, level)?;
            node = path.node(level);
            if shared && self.node(node)?.len() + 3 < most {
                return Ok(());
            }
        }
        let view = self.node(node)?;
        let n = view.len();
        let mid = n.div_ceil(2);
        let key = view.key(mid).unwrap_or_default();
        let new = self.alloc_block(tree, view.level(), node)?;
        self.count_tree_block(tree, true)?;
        self.with_two(node, new, |left, right| page::push_ptrs_right(left, right, n - mid))?;
        let transid = self.transid();
        let above = path.at(level + 1) + 1;
        page::insert_ptr(self.block_mut(path.node(level + 1))?, above, key, new, transid);
        if path.at(level) >= mid {
            path.set_at(level, path.at(level) - mid);
            path.set_node(level, new);
            path.set_at(level + 1, above);
        }
        Ok(())
    }

    /// Gives pointers of a full node to a neighbour. Answers whether one had room.
    /// `push_nodes_for_insert`.
    fn share_for_insert(&mut self, tree: u64, path: &mut Path, level: usize) -> FsResult<bool> {
        let most = ptrs_max(self.node_bytes());
        let (parent, slot) = (path.node(level + 1), path.at(level + 1));
        if parent == 0 {
            return Ok(false);
        }
        let mid = path.node(level);
        if slot > 0 {
            let left = self.child(parent, slot - 1)?;
            let before = self.node(left)?.len();
            if before + 1 < most {
                let left = self.cow_if_needed(tree, left, parent, slot - 1)?;
                if self.push_node_left(left, mid, false)? {
                    let at = path.at(level) + before;
                    let key = self.node(mid)?.key(0).unwrap_or_default();
                    page::set_key(self.block_mut(parent)?, slot, key);
                    let n = self.node(left)?.len();
                    if n > at {
                        path.set_node(level, left);
                        path.set_at(level + 1, slot - 1);
                        path.set_at(level, at);
                    } else {
                        path.set_at(level, at - n);
                    }
                    return Ok(true);
                }
            }
        }
        if slot + 1 < self.node(parent)?.len() {
            let right = self.child(parent, slot + 1)?;
            if self.node(right)?.len() + 1 < most {
                let right = self.cow_if_needed(tree, right, parent, slot + 1)?;
                if self.push_node_right(mid, right)? {
                    let key = self.node(right)?.key(0).unwrap_or_default();
                    page::set_key(self.block_mut(parent)?, slot + 1, key);
                    let n = self.node(mid)?.len();
                    if n <= path.at(level) {
                        path.set_node(level, right);
                        path.set_at(level + 1, slot + 1);
                        path.set_at(level, path.at(level) - n);
                    }
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Copies a block unless it may be changed already. `btrfs_cow_block`.
    pub(super) fn cow_if_needed(
        &mut self,
        tree: u64,
        block: u64,
        parent: u64,
        slot: usize,
    ) -> FsResult<u64> {
        if self.should_cow(tree, block)? { self.cow(tree, block, parent, slot) } else { Ok(block) }
    }

    /// Moves pointers of a node to its left neighbour, all if `empties`. Answers whether it moved
    /// any. `push_node_left`.
    pub(super) fn push_node_left(
        &mut self,
        left: u64,
        right: u64,
        empties: bool,
    ) -> FsResult<bool> {
        let most = ptrs_max(self.node_bytes());
        let (have, room) = (self.node(right)?.len(), most.saturating_sub(self.node(left)?.len()));
        if (!empties && have <= KEPT) || room == 0 {
            return Ok(false);
        }
        let n = if empties {
            let mut n = have.min(room);
            if n < have && have - n < KEPT {
                if n <= KEPT {
                    return Ok(false);
                }
                n -= KEPT;
            }
            n
        } else {
            (have - KEPT).min(room)
        };
        self.with_two(left, right, |left, right| page::push_ptrs_left(left, right, n))?;
        Ok(true)
    }

    /// Moves up to half of a node's pointers to its right neighbour. Answers whether it moved any.
    /// `balance_node_right`.
    pub(super) fn push_node_right(&mut self, left: u64, right: u64) -> FsResult<bool> {
        let most = ptrs_max(self.node_bytes());
        let (have, room) = (self.node(left)?.len(), most.saturating_sub(self.node(right)?.len()));
        let half = have / 2 + 1;
        if room == 0 || have < 4 || half >= have {
            return Ok(false);
        }
        let n = half.min(room);
        self.with_two(left, right, |left, right| page::push_ptrs_right(left, right, n))?;
        Ok(true)
    }

    /// The first key of a path's block on `level` - 1 has become `key`: so it is above, as far as
    /// that is the first. `fixup_low_keys`.
    pub(super) fn fix_low_keys(
        &mut self,
        path: &Path,
        key: crate::disk::Key,
        level: usize,
    ) -> FsResult<()> {
        for level in level.. {
            let node = path.node(level);
            if node == 0 {
                break;
            }
            page::set_key(self.block_mut(node)?, path.at(level), key);
            if path.at(level) != 0 {
                break;
            }
        }
        Ok(())
    }
}
