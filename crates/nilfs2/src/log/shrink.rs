//! Blocks are taken out of a block map.
//!
//! Invariants: a node has no fewer children than it must, unless it is its level's only one; a
//!             tree whose last key goes and whose others fit becomes a direct map.
//! Source:     fs/nilfs2/btree.c for which neighbour gives or takes, as in `tree`.

use wp_base::{FsError, FsResult};

use crate::disk::bmap::{DIRECT, Map, ROOT_CHILDREN};
use crate::disk::{Node, index};

use super::dat::Via;
use super::file::{File, Pointers};
use super::tree::{Path, Step};

impl File {
    /// Gives a pointer back: it ends with the checkpoint that is made. `nilfs_bmap_commit_end_ptr`.
    fn end_pointer(&mut self, via: &mut Via<'_>, pointer: u64) -> FsResult<()> {
        let is_passing = self.pointers == Pointers::Passing;
        match &mut via.dat {
            Some(dat) => dat.end(via.disk, pointer, is_passing),
            None => Ok(()),
        }
    }

    /// The last block that the file has. `None`: it has none.
    pub(super) fn last_key(&mut self, via: &mut Via<'_>) -> FsResult<Option<u64>> {
        if let Map::Direct(pointers) = &self.map {
            let last = (0..DIRECT).zip(pointers).filter(|(_, p)| **p != 0).last();
            return Ok(last.map(|(key, _)| key));
        }
        let (mut path, is_there) = self.path(via, u64::MAX)?;
        if is_there {
            return Ok(Some(u64::MAX));
        }
        path[1].at = path[1].at.wrapping_sub(1);
        Ok(self.child(&path, 1).map(|(key, _)| key))
    }

    /// Takes out all blocks from `key` on. `nilfs_bmap_truncate`.
    pub(super) fn truncate(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<()> {
        while let Some(last) = self.last_key(via)?.filter(|last| *last >= key) {
            self.remove(via, last)?;
        }
        Ok(())
    }

    /// Takes out block `key`. Errors: `NotFound` for a hole.
    pub(super) fn remove(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<()> {
        self.fresh.remove(&key);
        if let Map::Direct(pointers) = self.map {
            let pointer = pointers.get(index(key)).copied().filter(|p| *p != 0);
            self.end_pointer(via, pointer.ok_or(FsError::NotFound)?)?;
            if let Map::Direct(pointers) = &mut self.map
                && let Some(place) = pointers.get_mut(index(key))
            {
                *place = 0;
            }
            self.count(-1, via.disk.g.block_bits);
            return Ok(());
        }
        let direct = self.fits_direct(via, key)?;
        let (path, is_there) = self.path(via, key)?;
        if !is_there {
            return Err(FsError::NotFound);
        }
        self.remove_at(via, path)?;
        if let Some(pointers) = direct {
            // What is left of the tree is its root, and perhaps one node, which went with it.
            self.nodes.clear();
            self.map = Map::Direct(pointers);
        }
        Ok(())
    }

    /// The direct map that is left without the last key, if the others fit in one.
    /// `nilfs_btree_check_delete`, `nilfs_btree_gather_data`.
    fn fits_direct(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<Option<[u64; 6]>> {
        let (path, _) = self.path(via, key)?;
        let leaf = match path.top() {
            1 => self.node(path[1]).clone(),
            2 if self.node(path[2]).children.len() == 1 => self.node(path[1]).clone(),
            _ => return Ok(None),
        };
        let mut children = leaf.children;
        let is_last = children.pop().is_some_and(|(last, _)| last == key);
        let next = children.last().map_or(0, |(key, _)| *key);
        if !is_last || next >= ROOT_CHILDREN as u64 {
            return Ok(None);
        }
        let mut pointers = [0; 6];
        for (key, pointer) in children {
            if let Some(place) = pointers.get_mut(index(key)) {
                *place = pointer;
            }
        }
        Ok(Some(pointers))
    }

    /// Takes out the child at a path's place on level 1; nodes borrow or are joined upwards as far
    /// as they must. `nilfs_btree_prepare_delete`, `nilfs_btree_commit_delete`.
    fn remove_at(&mut self, via: &mut Via<'_>, mut path: Path) -> FsResult<()> {
        let bits = via.disk.g.block_bits;
        let bytes = via.disk.g.block_bytes();
        let (least, top) = (Node::children_min(bytes), path.top());
        self.count(-1, bits);
        let mut level = 1;
        while level < top {
            let step = path[level];
            let pointer = self.child(&path, level).ok_or(FsError::Io)?.1;
            self.end_pointer(via, pointer)?;
            let has_enough = self.node(step).children.len() > least;
            self.take_out(&path, level);
            if has_enough {
                return Ok(());
            }
            let above = path[level + 1];
            let siblings = self.node(above).children.len();
            if above.at > 0 {
                let left = self.beside(via, &path, level, above.at - 1)?;
                if self.node(left).children.len() > least {
                    self.borrow_left(&path, level, left);
                    return Ok(());
                }
                // Joined with the left one: this node goes.
                let given = std::mem::take(&mut self.dirty_node(step).children);
                self.dirty_node(left).children.extend(given);
                self.forget(step);
            } else if above.at + 1 < siblings {
                let right = self.beside(via, &path, level, above.at + 1)?;
                if self.node(right).children.len() > least {
                    self.borrow_right(&mut path, level, right);
                    return Ok(());
                }
                let given = std::mem::take(&mut self.dirty_node(right).children);
                self.dirty_node(step).children.extend(given);
                self.forget(right);
                path[level + 1].at += 1;
            } else {
                return self.shrink(via, &path, level);
            }
            self.count(-1, bits);
            level += 1;
        }
        let pointer = self.child(&path, level).ok_or(FsError::Io)?.1;
        self.end_pointer(via, pointer)?;
        self.take_out(&path, level);
        Ok(())
    }

    /// The only node below the root: its children move into the root, if they fit.
    fn shrink(&mut self, via: &mut Via<'_>, path: &Path, level: usize) -> FsResult<()> {
        let step = path[level];
        if self.node(step).children.len() > ROOT_CHILDREN {
            return Ok(());
        }
        let pointer = step.node.ok_or(FsError::Io)?;
        self.end_pointer(via, pointer)?;
        let children = self.node(step).children.clone();
        let root = self.dirty_node(path[level + 1]);
        root.children = children;
        root.level -= 1;
        self.forget(step);
        self.count(-1, via.disk.g.block_bits);
        Ok(())
    }

    /// The neighbour of a path's node on a level, at place `at` above, read if need be.
    fn beside(
        &mut self,
        via: &mut Via<'_>,
        path: &Path,
        level: usize,
        at: usize,
    ) -> FsResult<Step> {
        let number = self.node(path[level]).level;
        let above = self.node(path[level + 1]);
        let (_, pointer) = above.children.get(at).copied().ok_or(FsError::Io)?;
        self.load_node(via, pointer, number)?;
        Ok(Step { node: Some(pointer), at: 0 })
    }

    /// Takes out the child at a path's place on a level.
    fn take_out(&mut self, path: &Path, level: usize) {
        let step = path[level];
        let node = self.dirty_node(step);
        node.children.remove(step.at);
        let first = node.children.first().map(|(key, _)| *key);
        if let (Some(first), 0) = (first, step.at)
            && level < path.top()
        {
            self.promote(path, level + 1, first);
        }
    }

    fn borrow_left(&mut self, path: &Path, level: usize, left: Step) {
        let (n, have) = (self.node(path[level]).children.len(), self.node(left).children.len());
        let moved = (n + have) / 2 - n;
        let mut given = self.dirty_node(left).children.split_off(have - moved);
        let node = self.dirty_node(path[level]);
        given.append(&mut node.children);
        node.children = given;
        let first = node.children.first().map_or(0, |(key, _)| *key);
        self.promote(path, level + 1, first);
    }

    fn borrow_right(&mut self, path: &mut Path, level: usize, right: Step) {
        let (n, have) = (self.node(path[level]).children.len(), self.node(right).children.len());
        let moved = (n + have) / 2 - n;
        let rest = self.dirty_node(right).children.split_off(moved);
        let given = std::mem::replace(&mut self.dirty_node(right).children, rest);
        self.dirty_node(path[level]).children.extend(given);
        let first = self.node(right).children.first().map_or(0, |(key, _)| *key);
        path[level + 1].at += 1;
        self.promote(path, level + 1, first);
        path[level + 1].at -= 1;
    }

    /// A node is part of the tree no more.
    fn forget(&mut self, step: Step) {
        if let Some(pointer) = step.node {
            self.nodes.remove(pointer);
        }
    }
}
