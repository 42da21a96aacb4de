//! Copies on write: a block gets a new place before it is changed for the first time in a
//! transaction.

use std::rc::Rc;

use wp_base::{FsError, FsResult};

use crate::core::{Core, Root};
use crate::disk::node::flag;
use crate::disk::{Header, NodeRef, extent, id};

use super::page;

/// Metadata is looked for from the start of this much of addresses. `SZ_1G` in
/// `btrfs_cow_block`.
const HINT_ALIGN: u64 = 1 << 30;

impl Core<'_> {
    /// Must a block be copied before it is changed? `should_cow_block`.
    pub(crate) fn should_cow(&self, tree: u64, block: u64) -> FsResult<bool> {
        let header = self.node(block)?.header();
        let unsafe_flags = flag::WRITTEN | flag::RELOC;
        let is_ours = header.generation.get() == self.transid();
        Ok(!is_ours || header.flags.get() & unsafe_flags != 0 || self.root(tree)?.force_cow)
    }

    /// Copies a block to a new place; its parent (0: it is the root), or the root, leads there
    /// then. Answers the new address. `btrfs_force_cow_block`.
    pub(crate) fn cow(&mut self, tree: u64, block: u64, parent: u64, slot: usize) -> FsResult<u64> {
        let hint = block / HINT_ALIGN * HINT_ALIGN;
        let level = self.node(block)?.level();
        let old = self.bytes_of(block)?;
        let new = self.alloc_block(tree, level, hint)?;
        let (transid, fsid) = (self.transid(), self.common().fsid);
        let owner = self.root(tree)?.owner;
        let bytes = self.block_mut(new)?;
        bytes.copy_from_slice(&old);
        let header = page::header(bytes);
        header.bytenr = new.into();
        header.generation = transid.into();
        let flags = header.flags.get() & 0xFFFF_FFFF & !(flag::WRITTEN | flag::RELOC);
        header.flags = (flags | Header::REVISION).into();
        header.owner = owner.into();
        header.fsid = fsid;
        let is_last = self.account_cow(tree, block, &old, new)?;
        if self.root(tree)?.node == block {
            self.set_root_node(tree, new)?;
        } else {
            page::set_ptr(self.block_mut(parent)?, slot, new, transid);
        }
        self.free_block_as(owner, block, 0, is_last)?;
        Ok(new)
    }

    /// References when a block is copied. Answers whether the old one has no more users.
    /// `update_ref_for_cow`.
    fn account_cow(&mut self, tree: u64, block: u64, old: &Rc<[u8]>, new: u64) -> FsResult<bool> {
        let node = NodeRef::trusted(old);
        let root = self.root(tree)?;
        let (owner, can_be_shared) = (root.owner, root.may_share(block, &node, self.transid()));
        if !can_be_shared {
            return Ok(true);
        }
        let (refs, flags) = self.extent_refs(block, node.level())?;
        let is_full = flags & extent::flag::FULL_BACKREF != 0;
        if refs == 0 {
            let expected = format!("1 or more (block {block} of tree {owner})");
            return Err(FsError::corrupt("btrfs extent item", "refs", 0, 0, expected));
        }
        if refs > 1 {
            if node.header().owner.get() == owner && !is_full {
                self.count_children(old, owner, Some(block), true)?;
                self.set_full_backref(block, node.level())?;
            } else {
                self.count_children(old, owner, None, true)?;
                let _ = new;
            }
            return Ok(false);
        }
        if is_full {
            self.count_children(old, owner, None, true)?;
            self.count_children(old, owner, Some(block), false)?;
        }
        Ok(true)
    }

    /// A root's block has changed. `add_root_to_dirty_list`.
    pub(super) fn set_root_node(&mut self, tree: u64, node: u64) -> FsResult<()> {
        let root = self.root_mut(tree)?;
        root.node = node;
        let is_new = root.tracks_dirty && !root.is_dirty;
        root.is_dirty |= root.tracks_dirty;
        if is_new {
            self.note_dirty_root(tree);
        }
        Ok(())
    }

    /// Allocates a block for a tree: with a header, and empty. `btrfs_alloc_tree_block`,
    /// `btrfs_init_new_buffer`.
    pub(crate) fn alloc_block(&mut self, tree: u64, level: u8, hint: u64) -> FsResult<u64> {
        let owner = self.root(tree)?.owner;
        let bytenr = self.reserve_block(owner, hint)?;
        let mut bytes = vec![0; self.node_bytes()];
        let common = *self.common();
        let chunk_tree_uuid = self.chunk_tree_uuid();
        let transid = self.transid();
        let header = page::header(&mut bytes);
        header.bytenr = bytenr.into();
        header.generation = transid.into();
        header.flags = Header::REVISION.into();
        header.owner = owner.into();
        header.level = level;
        header.fsid = common.fsid;
        header.chunk_tree_uuid = chunk_tree_uuid;
        self.put_new_block(bytenr, bytes)?;
        if owner != id::TREE_LOG {
            self.add_block_ref(bytenr, level, owner)?;
        }
        Ok(bytenr)
    }
}

impl Root {
    /// May another tree have this block of this tree as well? `btrfs_block_can_be_shared`.
    fn may_share(&self, block: u64, node: &NodeRef<'_>, transid: u64) -> bool {
        if !self.is_shareable || block == self.node {
            return false;
        }
        let generation = node.header().generation.get();
        if generation > self.item.last_snapshot.get() {
            return false;
        }
        block != self.commit_node || generation == transid
    }
}

impl Core<'_> {
    /// Copies a tree's root, though nothing in it was changed.
    pub(crate) fn copy_root(&mut self, tree: u64) -> FsResult<()> {
        self.join(tree)?;
        let (root, _) = self.load_root(tree)?;
        self.cow(tree, root, 0, 0)?;
        Ok(())
    }
}
