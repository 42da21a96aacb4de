//! Checks a whole tree, as it is in memory.

use wp_base::FsResult;

use crate::core::Core;
use crate::disk::node::{Expected, flag};
use crate::disk::{Key, NodeRef, wide};

/// What a tree has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Blocks.
    pub blocks: u64,
    /// Items.
    pub items: u64,
    /// Bytes of items with their heads.
    pub bytes: u64,
}

impl Core<'_> {
    /// Goes through a whole tree, with what was changed and not written, and checks each block by
    /// itself and against its parent: layout, order of keys, level, generation.
    pub fn verify_tree(&mut self, tree: u64) -> FsResult<Shape> {
        let (root, level) = self.load_root(tree)?;
        let mut shape = Shape::default();
        self.verify_below(root, level, None, &mut shape)?;
        Ok(shape)
    }

    fn verify_below(
        &mut self,
        bytenr: u64,
        level: u8,
        first_key: Option<Key>,
        shape: &mut Shape,
    ) -> FsResult<()> {
        let bytes = self.bytes_of(bytenr)?;
        // What was changed has no checksum yet, and no sign that it was written.
        let mut copy = bytes.to_vec();
        let header = super::page::header(&mut copy);
        header.flags = (header.flags.get() | flag::WRITTEN).into();
        self.common().csum.seal(&mut copy);
        let expected = Expected { level: Some(level), first_key, ..Expected::at(bytenr) };
        let node = NodeRef::verify(&copy, self.common(), &expected, 0)?;
        shape.blocks += 1;
        let Some(below) = level.checked_sub(1) else {
            shape.items += wide(node.len());
            shape.bytes += wide(copy.len() - crate::disk::node::HEADER_BYTES - node.free_bytes());
            return Ok(());
        };
        for slot in 0..node.len() {
            let child = self.load_child(&node, slot)?;
            self.verify_below(child, below, node.key(slot), shape)?;
        }
        Ok(())
    }
}
