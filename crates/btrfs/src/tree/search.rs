//! Going down a tree.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::node::{ITEM_BYTES, ptrs_max};
use crate::disk::{Key, NodeRef};

use super::Path;

/// What a search is for: it hangs on that what it does to the tree on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To read.
    Read,
    /// To change bytes of an item in place.
    Change,
    /// To insert items of this number of bytes, item heads included.
    Insert(usize),
    /// To make an item longer by this number of bytes.
    Extend(usize),
    /// To split an item: nodes are split as for an insertion, the leaf is not.
    Split,
    /// To remove items.
    Delete,
}

impl Core<'_> {
    /// The path to a key, or to where it would be, and whether it is there. In the latter case the
    /// place may be behind the last of the leaf.
    ///
    /// Errors: `TooBig` for more than fits into a leaf; `Corrupt`, `Io`; and if blocks are copied,
    /// `NoSpace`. All but the first leave the transaction useless if the search is for a change.
    /// Source: `btrfs_search_slot`.
    pub fn search(&mut self, tree: u64, key: Key, why: Purpose) -> FsResult<(Path, bool)> {
        if why == Purpose::Read {
            return self.go_down(tree, key, why);
        }
        self.join(tree)?;
        match self.go_down(tree, key, why) {
            // Said before anything is changed but which blocks the path has. `split_leaf`.
            Err(FsError::TooBig) => Err(FsError::TooBig),
            done => self.guard(done),
        }
    }

    fn go_down(&mut self, tree: u64, key: Key, why: Purpose) -> FsResult<(Path, bool)> {
        let changes = why != Purpose::Read;
        'again: loop {
            let mut path = Path::new();
            let (mut block, top) = self.load_root(tree)?;
            let mut level = usize::from(top);
            let mut is_exact = false;
            loop {
                if changes && self.should_cow(tree, block)? {
                    let parent = path.node(level + 1);
                    block = self.cow(tree, block, parent, path.at(level + 1))?;
                }
                path.set_node(level, block);
                if level == 0 {
                    return self.search_leaf(tree, key, path, why, is_exact);
                }
                let node = self.node(block)?;
                // Where a pointer's key is the one, it is the first of everything below.
                let slot = if is_exact {
                    0
                } else {
                    let found = node.find(key);
                    is_exact = found.is_ok();
                    found.unwrap_or_else(|slot| slot.saturating_sub(1))
                };
                let n = node.len();
                path.set_at(level, slot);
                let most = ptrs_max(self.node_bytes());
                let grows = matches!(why, Purpose::Insert(_) | Purpose::Extend(_) | Purpose::Split);
                if grows && n + 3 >= most {
                    self.split_node(tree, &mut path, level)?;
                } else if why == Purpose::Delete && n < most / 2 {
                    self.balance_level(tree, &mut path, level)?;
                    if path.node(level) == 0 {
                        continue 'again;
                    }
                }
                block = self.child(path.node(level), path.at(level))?;
                level -= 1;
            }
        }
    }

    fn search_leaf(
        &mut self,
        tree: u64,
        key: Key,
        mut path: Path,
        why: Purpose,
        is_exact: bool,
    ) -> FsResult<(Path, bool)> {
        let leaf = self.node(path.leaf())?;
        let (slot, is_there) = match leaf.find(key) {
            Ok(slot) => (slot, true),
            Err(slot) => (slot, false),
        };
        if is_exact && !is_there {
            let expected = format!("{key}, as its parent says");
            return Err(FsError::corrupt("btrfs leaf", "first key", 0, path.leaf(), expected));
        }
        path.set_slot(slot);
        let needed = match why {
            // What is there is made longer instead.
            Purpose::Insert(bytes) if is_there => bytes.saturating_sub(ITEM_BYTES),
            Purpose::Insert(bytes) | Purpose::Extend(bytes) => bytes,
            _ => 0,
        };
        if needed > leaf.free_bytes() {
            self.split_leaf(tree, key, &mut path, needed, is_there)?;
        }
        Ok((path, is_there))
    }

    /// The child in a slot of a node, read if it is not in memory. `btrfs_read_node_slot`.
    pub(super) fn child(&mut self, node: u64, slot: usize) -> FsResult<u64> {
        let parent = self.bytes_of(node)?;
        self.load_child(&NodeRef::trusted(&parent), slot)
    }

    /// Moves a path that was read to the first item of the next leaf. `false`: there is none, and
    /// the path is as it was. `btrfs_next_leaf`.
    pub fn next_leaf(&mut self, path: &mut Path) -> FsResult<bool> {
        let mut level = 1;
        loop {
            let node = path.node(level);
            if node == 0 {
                return Ok(false);
            }
            let slot = path.at(level) + 1;
            if slot < self.node(node)?.len() {
                path.set_at(level, slot);
                self.descend(path, level, true)?;
                return Ok(true);
            }
            level += 1;
        }
    }

    /// Moves a path that was read to the last item of the leaf before. `false`: there is none, and
    /// the path is as it was. `btrfs_prev_leaf`.
    pub fn prev_leaf(&mut self, path: &mut Path) -> FsResult<bool> {
        let mut level = 1;
        loop {
            if path.node(level) == 0 {
                return Ok(false);
            }
            if let Some(slot) = path.at(level).checked_sub(1) {
                path.set_at(level, slot);
                self.descend(path, level, false)?;
                return Ok(true);
            }
            level += 1;
        }
    }

    fn descend(&mut self, path: &mut Path, from: usize, is_first: bool) -> FsResult<()> {
        for level in (0..from).rev() {
            let block = self.child(path.node(level + 1), path.at(level + 1))?;
            let n = self.node(block)?.len();
            path.set_node(level, block);
            path.set_at(level, if is_first { 0 } else { n.saturating_sub(1) });
        }
        Ok(())
    }

    /// The leaf of a path.
    pub fn leaf(&self, path: &Path) -> FsResult<NodeRef<'_>> {
        self.node(path.leaf())
    }

    /// Key and bytes at a path's place. `None` behind the last item of the leaf.
    pub fn item(&self, path: &Path) -> FsResult<Option<(Key, &[u8])>> {
        let leaf = self.node(path.leaf())?;
        let slot = path.slot();
        Ok(leaf.key(slot).zip(leaf.data(slot)))
    }

    /// Byte address on the device of an item, for errors; 0 if it has none yet.
    pub fn place_of(&self, path: &Path) -> u64 {
        let at = self.node(path.leaf()).map_or(0, |leaf| leaf.data_at(path.slot()));
        let places = self.chunks().places(path.leaf(), 1).unwrap_or_default();
        places.first().map_or(0, |p| p + crate::disk::wide(at))
    }
}
