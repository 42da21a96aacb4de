//! Paths from a root down to a leaf.

use crate::disk::SuperBlock;

const LEVELS: usize = 8;
const _: () = assert!(LEVELS == SuperBlock::LEVELS as usize);

/// The blocks from a root to a leaf, and the place in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Logical address of the block on each level; 0: none.
    nodes: [u64; LEVELS],
    slots: [usize; LEVELS],
}

impl Path {
    pub(super) fn new() -> Path {
        Path { nodes: [0; LEVELS], slots: [0; LEVELS] }
    }

    /// Address of the block on a level; 0: the tree is not so high.
    pub fn node(&self, level: usize) -> u64 {
        self.nodes.get(level).copied().unwrap_or(0)
    }

    /// Address of the leaf.
    pub fn leaf(&self) -> u64 {
        self.node(0)
    }

    /// Place in the block on a level.
    pub fn at(&self, level: usize) -> usize {
        self.slots.get(level).copied().unwrap_or(0)
    }

    /// Place in the leaf.
    pub fn slot(&self) -> usize {
        self.at(0)
    }

    pub(super) fn set_node(&mut self, level: usize, node: u64) {
        *self.nodes.get_mut(level).expect("a level of a tree") = node;
    }

    pub(super) fn set_at(&mut self, level: usize, slot: usize) {
        *self.slots.get_mut(level).expect("a level of a tree") = slot;
    }

    /// Another place in the same leaf; the caller has looked that it is there.
    pub fn set_slot(&mut self, slot: usize) {
        self.set_at(0, slot);
    }
}
