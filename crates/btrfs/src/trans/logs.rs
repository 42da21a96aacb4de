//! Log trees as trees: made, found after a power cut, given up. What is in them, and when, is the
//! file system's.
//!
//! Picture:    super block -> log root tree -> root items (`TREE_LOG`, ROOT_ITEM, tree of files) ->
//!             a log tree for each. Blocks of all of them belong to `TREE_LOG`: they have no
//!             references, are written by themselves ([`Core::seal_log_blocks`]), and are pinned
//!             when they are given up.
//! Source:     `btrfs_add_log_tree`, `btrfs_init_log_root_tree`, `btrfs_free_log`,
//!             `btrfs_recover_log_trees`.

use wp_base::FsResult;

use crate::core::{Core, Root};
use crate::disk::{InodeItem, Key, RootItem, SuperBlock, id, inode, kind, wide};
use crate::site;

/// The tree of log trees, as a tree that is open.
pub const LOG_ROOT_TREE: u64 = id::TREE_LOG;
/// Set in the number of a tree of files: its log tree, as a tree that is open. No tree has such a
/// number on the disk.
const LOG_OF: u64 = 1 << 62;

/// The log of a tree of files, as a tree that is open.
pub const fn log_of(tree: u64) -> u64 {
    LOG_OF | tree
}

impl Core<'_> {
    /// Makes the log of a tree of files, empty; `None`: the tree of log trees. Answers the number
    /// by which it is open. `alloc_log_tree`, `btrfs_alloc_log_tree_node`.
    pub fn create_log(&mut self, tree: Option<u64>) -> FsResult<u64> {
        self.begin()?;
        let open = tree.map_or(LOG_ROOT_TREE, log_of);
        let key = Key::new(id::TREE_LOG, kind::ROOT_ITEM, tree.unwrap_or(id::TREE_LOG));
        let mut item = RootItem::zeroed();
        if tree.is_some() {
            item.inode = InodeItem {
                generation: 1.into(),
                size: 3.into(),
                nlink: 1.into(),
                nbytes: wide(self.node_bytes()).into(),
                mode: (inode::mode::DIR | 0o755).into(),
                ..InodeItem::zeroed()
            };
        }
        item.bytes_used = wide(self.node_bytes()).into();
        item.refs = 1.into();
        self.roots.insert(open, Root::new(id::TREE_LOG, key, item));
        let done = self.alloc_block(open, 0, 0);
        let node = self.guard(done)?;
        self.root_mut(open)?.node = node;
        Ok(open)
    }

    /// The root item of a log, as it is to be written to the tree of log trees.
    pub fn log_item(&mut self, open: u64) -> FsResult<RootItem> {
        self.set_root_item(open)?;
        let item = &mut self.root_mut(open)?.item;
        item.generation_v2 = item.generation;
        Ok(*item)
    }

    /// Opens the tree of log trees that the super block names; `None`: there is none. Its blocks
    /// are of the transaction after the last commit.
    pub fn open_log_root(&mut self) -> FsResult<Option<u64>> {
        if self.sb.log_root.get() == 0 {
            return Ok(None);
        }
        let mut item = RootItem::zeroed();
        item.bytenr = self.sb.log_root;
        item.level = self.sb.log_root_level;
        item.generation = (self.sb.generation.get() + 1).into();
        let key = Key::new(id::TREE_LOG, kind::ROOT_ITEM, id::TREE_LOG);
        self.roots.insert(LOG_ROOT_TREE, Root::new(id::TREE_LOG, key, item));
        self.load_root(LOG_ROOT_TREE)?;
        Ok(Some(LOG_ROOT_TREE))
    }

    /// Opens the logs of trees of files: their trees, and the numbers by which they are open.
    pub fn open_logs(&mut self) -> FsResult<Vec<(u64, u64)>> {
        let mut out = Vec::new();
        if self.open_log_root()?.is_none() {
            return Ok(out);
        }
        let key = |tree| Key::new(id::TREE_LOG, kind::ROOT_ITEM, tree);
        let mut from = key(0);
        while let Some((found, bytes)) = self.first(LOG_ROOT_TREE, from, key(u64::MAX))? {
            let item = RootItem::load(&bytes, 0)?;
            let open = log_of(found.offset);
            self.roots.insert(open, Root::new(id::TREE_LOG, found, item));
            self.load_root(open)?;
            out.push((found.offset, open));
            let Some(next) = found.next() else { break };
            from = next;
        }
        Ok(out)
    }

    /// Addresses of all blocks of a log.
    pub fn log_blocks(&mut self, open: u64) -> FsResult<Vec<u64>> {
        let (root, level) = self.load_root(open)?;
        let mut out = Vec::new();
        let mut todo = vec![(root, level)];
        while let Some((block, level)) = todo.pop() {
            out.push(block);
            let bytes = self.bytes_of(block)?;
            let node = crate::disk::NodeRef::trusted(&bytes);
            let Some(below) = level.checked_sub(1).filter(|_| level < SuperBlock::LEVELS) else {
                continue;
            };
            for slot in 0..node.len() {
                todo.push((self.load_child(&node, slot)?, below));
            }
        }
        Ok(out)
    }

    /// A log of the running transaction is not needed any more, as a commit has all of it: its
    /// blocks are not used again before that is on the device. `free_log_tree`.
    pub fn free_log(&mut self, open: u64) -> FsResult<()> {
        let bytes = wide(self.node_bytes());
        for block in self.log_blocks(open)? {
            self.forget_block(block);
            match site::LOG_PINNED.on() {
                true => self.pin_reserved(block, bytes)?,
                false => self.free_reserved(block, bytes)?,
            }
        }
        self.roots.remove(&open);
        Ok(())
    }
}
