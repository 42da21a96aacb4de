//! Trees, read only: each block checked against what leads to it.

use std::rc::Rc;

use wp_base::{FsError, FsResult};

use crate::disk::node::Expected;
use crate::disk::{Key, NodeRef, RootItem, wide};

use super::Image;

/// Tree blocks that are kept in memory, at most.
const HELD: usize = 4096;

/// A tree, and where its root is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Its number.
    pub id: u64,
    /// Logical address of its root.
    pub bytenr: u64,
    /// Level of the root.
    pub level: u8,
    /// Generation of the root.
    pub generation: u64,
    /// Its root item; the root tree and the chunk tree have none.
    pub item: RootItem,
}

/// An item, as a walk shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub key: Key,
    pub bytes: &'a [u8],
    /// Byte address on the device.
    pub at: u64,
}

/// What to do with an item: `false` ends the walk.
type Visit<'v> = dyn FnMut(Seen<'_>) -> FsResult<bool> + 'v;

/// Where a walk is.
struct Walk<'v> {
    tree: u64,
    from: Key,
    to: Key,
    visit: &'v mut Visit<'v>,
}

impl Image<'_> {
    /// Calls `visit` with all items with keys from `from` to `to`, in order. Answers whether it was
    /// let run to the end.
    pub(crate) fn each<'v>(
        &self,
        tree: &Tree,
        from: Key,
        to: Key,
        visit: &'v mut Visit<'v>,
    ) -> FsResult<bool> {
        let root = Expected {
            bytenr: tree.bytenr,
            generation: Some(tree.generation),
            level: Some(tree.level),
            first_key: None,
            owner: Some(tree.id),
        };
        self.walk(&root, None, &mut Walk { tree: tree.id, from, to, visit })
    }

    /// The bytes of an item with its byte address. `None`: there is none with this key.
    pub(crate) fn get(&self, tree: &Tree, key: Key) -> FsResult<Option<(Vec<u8>, u64)>> {
        let mut found = None;
        self.each(tree, key, key, &mut |item| {
            found = Some((item.bytes.to_vec(), item.at));
            Ok(false)
        })?;
        Ok(found)
    }

    /// `end`: all keys below are less than this.
    fn walk(&self, block: &Expected, end: Option<Key>, walk: &mut Walk<'_>) -> FsResult<bool> {
        let bytes = self.tree_block(block)?;
        let node = NodeRef::trusted(&bytes);
        let n = node.len();
        if let (Some(end), Some(last)) = (end, n.checked_sub(1).and_then(|i| node.key(i)))
            && last >= end
        {
            let at = self.place(block.bytenr);
            let expected = format!("a key below {end}, not {last} (block {})", block.bytenr);
            return Err(FsError::corrupt(
                "btrfs tree block",
                "last key",
                at,
                last.objectid,
                expected,
            ));
        }
        let Some(below) = node.level().checked_sub(1) else {
            let first = node.find(walk.from).unwrap_or_else(|slot| slot);
            for slot in first..n {
                let (Some(key), Some(bytes)) = (node.key(slot), node.data(slot)) else { break };
                if key > walk.to {
                    return Ok(false);
                }
                let at = self.place(block.bytenr) + wide(node.data_at(slot));
                if !(walk.visit)(Seen { key, bytes, at })? {
                    return Ok(false);
                }
            }
            return Ok(true);
        };
        for slot in node.child_of(walk.from)..n {
            let Some(ptr) = node.ptr(slot) else { break };
            if ptr.key.get() > walk.to {
                return Ok(false);
            }
            let child = Expected {
                bytenr: ptr.blockptr.get(),
                generation: Some(ptr.generation.get()),
                level: Some(below),
                first_key: Some(ptr.key.get()),
                owner: Some(walk.tree),
            };
            if !self.walk(&child, node.key(slot + 1).or(end), walk)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A tree block, of the first copy that is right.
    pub(super) fn tree_block(&self, expected: &Expected) -> FsResult<Rc<[u8]>> {
        let held = self.held.borrow().get(&expected.bytenr).cloned();
        let bytes = match held {
            Some(bytes) => bytes,
            None => self.read_tree_block(expected)?,
        };
        // What is held was checked by itself; here, against what leads to it now.
        let node = NodeRef::trusted(&bytes);
        expected.verify(&node, self.place(expected.bytenr))?;
        if self.is_strict.get() && self.checked.borrow_mut().insert(expected.bytenr) {
            let checked = self.check_leaf(node, expected.bytenr);
            if checked.is_err() {
                self.checked.borrow_mut().remove(&expected.bytenr);
            }
            checked?;
        }
        Ok(bytes)
    }

    fn read_tree_block(&self, expected: &Expected) -> FsResult<Rc<[u8]>> {
        let size = self.common.node_bytes;
        let mut first_error = None;
        for at in self.chunks.places(expected.bytenr, wide(size))? {
            let mut block: Rc<[u8]> = std::iter::repeat_n(0, size).collect();
            let read = match Rc::get_mut(&mut block) {
                Some(out) => self.view.read_at(at, out),
                None => Err(FsError::Io),
            };
            let good =
                read.and_then(|()| NodeRef::verify(&block, &self.common, expected, at).map(|_| ()));
            match good {
                Ok(()) => {
                    let mut held = self.held.borrow_mut();
                    if held.len() >= HELD {
                        held.clear();
                    }
                    held.insert(expected.bytenr, Rc::clone(&block));
                    return Ok(block);
                }
                Err(e) => first_error = first_error.or(Some(e)),
            }
        }
        Err(first_error.unwrap_or(FsError::Io))
    }
}
