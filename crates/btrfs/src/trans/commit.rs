//! The stages of a commit.

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::core::{Core, Root};
use crate::disk::misc::DevStats;
use crate::disk::node::flag;
use crate::disk::{Key, id, kind, wide};
use crate::site;
use crate::tree::page;

use super::{Plan, PlanBlock};

impl Core<'_> {
    /// Ends the running transaction (an empty one if none runs): what is to be written for it.
    ///
    /// Errors: `Invalid` if the last plan was not said to be on the device; `ReadOnly` after a
    /// failure. After any other nothing can be committed any more.
    pub fn commit_plan(&mut self) -> FsResult<Plan> {
        if self.trans.is_writing {
            return Err(FsError::Invalid("a plan is still being written"));
        }
        self.begin()?;
        let done = self.commit_stages();
        self.guard(done)
    }

    /// The first stage of a commit, while calls can still change the transaction: references that
    /// wait, new block groups, items of block groups. What the kernel does between this and the
    /// rest (names and inodes that it writes late) is done between this and [`Self::commit_plan`],
    /// which does this itself if it was not done.
    pub fn commit_prepare(&mut self) -> FsResult<()> {
        self.begin()?;
        let done = self.prepare_stages();
        self.guard(done)
    }

    /// The beginning of `btrfs_commit_transaction`, with `btrfs_start_dirty_block_groups`.
    fn prepare_stages(&mut self) -> FsResult<()> {
        self.trans.is_prepared = true;
        self.run_refs(false)?;
        self.finish_new_groups()?;
        for _ in 0..2 {
            if self.space.dirty.is_empty() {
                break;
            }
            self.finish_new_groups()?;
            self.write_dirty_groups()?;
            self.run_refs(false)?;
        }
        Ok(())
    }

    fn commit_stages(&mut self) -> FsResult<Plan> {
        if !self.trans.is_prepared {
            self.prepare_stages()?;
        }
        // Now nothing else changes anything.
        self.run_refs(true)?;
        self.update_file_trees()?;
        self.update_other_trees()?;
        let blocks = self.seal_blocks()?;
        let supers = self.make_supers()?;
        self.trans.is_running = false;
        self.trans.is_prepared = false;
        self.trans.is_writing = true;
        self.trans.unwritten = blocks.iter().map(|b| b.logical).collect();
        self.space.unpinning = std::mem::take(&mut self.space.pinned);
        if !site::UNPIN_LATER.on() {
            self.unpin()?;
        }
        for root in self.roots.values_mut() {
            root.commit_node = root.node;
        }
        Ok(Plan { generation: self.trans.id, blocks, supers })
    }

    /// `commit_fs_roots`.
    fn update_file_trees(&mut self) -> FsResult<()> {
        for tree in std::mem::take(&mut self.trans.file_trees) {
            let root = self.root_mut(tree)?;
            root.force_cow = false;
            if root.commit_node != root.node {
                self.set_root_item(tree)?;
            }
            self.write_root_item(tree)?;
        }
        Ok(())
    }

    /// `commit_cowonly_roots`.
    fn update_other_trees(&mut self) -> FsResult<()> {
        let (root, _) = self.load_root(id::ROOT_TREE)?;
        if self.root(id::ROOT_TREE)?.node == root && self.needs_copy(root)? {
            self.copy_root(id::ROOT_TREE)?;
        }
        self.write_dev_stats()?;
        loop {
            while !self.trans.others.is_empty() {
                let tree = self.trans.others.remove(0);
                self.root_mut(tree)?.is_dirty = false;
                self.update_other_tree(tree)?;
            }
            self.run_refs(true)?;
            while !self.space.dirty.is_empty() {
                self.write_dirty_groups()?;
                self.run_refs(true)?;
            }
            if self.trans.others.is_empty() {
                break;
            }
        }
        self.set_root_item(id::ROOT_TREE)?;
        self.set_root_item(id::CHUNK_TREE)
    }

    /// Counts of the device's errors, which the first commit of a mount writes though they are as
    /// they were. `btrfs_run_dev_stats`.
    fn write_dev_stats(&mut self) -> FsResult<()> {
        if std::mem::replace(&mut self.trans.has_dev_stats, true) {
            return Ok(());
        }
        let devid = self.sb.dev_item.devid.get();
        let key = Key::new(id::DEV_STATS, kind::PERSISTENT_ITEM, devid);
        match self.change_item(id::DEV_TREE, key, |_| ()) {
            Err(FsError::NotFound) => {
                let none = DevStats { values: [0.into(); 5] };
                self.insert_item(id::DEV_TREE, key, none.as_bytes())
            }
            other => other,
        }
    }

    /// `update_cowonly_root`.
    fn update_other_tree(&mut self, tree: u64) -> FsResult<()> {
        let mut used = None;
        loop {
            let Root { node, item, .. } = self.root(tree)?;
            let now = item.bytes_used.get();
            if item.bytenr.get() == *node && used.unwrap_or(now) == now {
                return Ok(());
            }
            used = Some(now);
            self.set_root_item(tree)?;
            self.write_root_item(tree)?;
        }
    }

    fn needs_copy(&self, block: u64) -> FsResult<bool> {
        let header = self.node(block)?.header();
        let is_written = header.flags.get() & flag::WRITTEN != 0;
        Ok(is_written || header.generation.get() != self.trans.id)
    }

    /// A tree's root item says where its root is. `btrfs_set_root_node`.
    pub(super) fn set_root_item(&mut self, tree: u64) -> FsResult<()> {
        let (node, _) = self.load_root(tree)?;
        let header = *self.node(node)?.header();
        let item = &mut self.root_mut(tree)?.item;
        item.bytenr = node.into();
        item.level = header.level;
        item.generation = header.generation;
        Ok(())
    }

    /// Writes a tree's root item to the root tree. `btrfs_update_root`.
    fn write_root_item(&mut self, tree: u64) -> FsResult<()> {
        let root = self.root_mut(tree)?;
        root.item.generation_v2 = root.item.generation;
        let (key, item) = (root.key, root.item);
        self.replace_item(id::ROOT_TREE, key, item.as_bytes()).map_err(|e| match e {
            FsError::NotFound => {
                let expected = "a root item of a tree in use";
                FsError::corrupt("btrfs root tree", "key", 0, key.objectid, expected)
            }
            other => other,
        })
    }

    /// All blocks that were changed, as they are written. `btree_csum_one_bio`.
    pub(super) fn seal_blocks(&mut self) -> FsResult<Vec<PlanBlock>> {
        let dirty = std::mem::take(&mut self.blocks.dirty);
        self.seal(&dirty)
    }

    fn seal(&mut self, dirty: &BTreeSet<u64>) -> FsResult<Vec<PlanBlock>> {
        let mut out = Vec::with_capacity(dirty.len());
        for &logical in dirty {
            let Some(block) = self.blocks.map.get_mut(&logical) else { continue };
            let bytes = Rc::make_mut(block);
            page::wipe(bytes);
            let header = page::header(bytes);
            header.flags = (header.flags.get() | flag::WRITTEN).into();
            self.common.csum.seal(bytes);
            let bytes = Rc::clone(block);
            let places = self.chunks.places(logical, wide(bytes.len()))?;
            out.push(PlanBlock { logical, places, bytes });
        }
        Ok(out)
    }

    /// Blocks of log trees that were changed, as they are written: the first half of a log's sync.
    pub fn seal_log_blocks(&mut self) -> FsResult<Vec<PlanBlock>> {
        let dirty = std::mem::take(&mut self.blocks.dirty_log);
        self.seal(&dirty)
    }

    /// The same of some of them.
    pub(crate) fn seal_log_blocks_of(
        &mut self,
        some: impl Iterator<Item = u64>,
    ) -> FsResult<Vec<PlanBlock>> {
        let some: BTreeSet<u64> = some.filter(|b| self.blocks.dirty_log.remove(b)).collect();
        self.seal(&some)
    }

    /// The last plan is on the device. `btrfs_finish_extent_commit`.
    pub fn committed(&mut self) -> FsResult<()> {
        if !self.trans.is_writing {
            return Err(FsError::Invalid("a plan that was made"));
        }
        self.trans.is_writing = false;
        self.trans.unwritten.clear();
        for block in std::mem::take(&mut self.trans.forgotten) {
            self.blocks.map.remove(&block);
        }
        self.unpin()
    }
}
