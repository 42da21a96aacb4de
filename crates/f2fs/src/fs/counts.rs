//! Counts of what is in use, and of what is dirty.

use std::cell::Cell;

use wp_base::{FsError, FsResult};

use super::mount::F2fs;
use crate::disk::CheckpointHead;

/// Kinds of dirty pages (`enum count_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dirty {
    /// Blocks of directories (`F2FS_DIRTY_DENTS`).
    Dents,
    /// Blocks of files (`F2FS_DIRTY_DATA`).
    Data,
    /// Node blocks.
    Nodes,
    /// Blocks before the main area.
    Meta,
    /// Inodes (`F2FS_DIRTY_IMETA`).
    Inodes,
}

/// Counts of a mounted file system.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Blocks that files may have in all (`user_block_count`).
    pub user: Cell<u64>,
    /// Blocks in use (`total_valid_block_count`).
    pub blocks: Cell<u64>,
    /// Node blocks in use.
    pub nodes: Cell<u32>,
    /// Most node blocks (`total_node_count`).
    pub nodes_max: Cell<u32>,
    /// Inodes in use.
    pub inodes: Cell<u32>,
    /// Blocks that were in use at the last checkpoint (`last_valid_block_count`).
    pub last_blocks: Cell<u64>,
    /// Blocks given out since (`alloc_valid_block_count`).
    pub given: Cell<u64>,
    /// Nodes fsynced since (`rf_node_block_count`).
    pub fsynced: Cell<u64>,
    dirty: [Cell<u64>; 5],
    /// Something is to be written by a checkpoint (`SBI_IS_DIRTY`).
    pub changed: Cell<bool>,
}

impl Counts {
    /// As a checkpoint has them, with numbers for `nids` nodes.
    pub(super) fn new(h: &CheckpointHead, nids: u32) -> Counts {
        let c = Counts::default();
        c.user.set(h.user_block_count.get());
        c.blocks.set(h.valid_block_count.get());
        c.last_blocks.set(h.valid_block_count.get());
        c.nodes.set(h.valid_node_count.get());
        c.inodes.set(h.valid_inode_count.get());
        c.nodes_max.set(nids);
        c
    }

    /// One more dirty page: but for data of files, a checkpoint has to write it
    /// (`inc_page_count`).
    pub(crate) fn dirtied(&self, kind: Dirty) {
        if kind != Dirty::Data {
            self.changed.set(true);
        }
        let c = &self.dirty[kind as usize];
        c.set(c.get() + 1);
    }

    /// One fewer.
    pub(crate) fn cleaned(&self, kind: Dirty) {
        let c = &self.dirty[kind as usize];
        c.set(c.get().saturating_sub(1));
    }

    /// How many are dirty (`get_pages`).
    pub(crate) fn dirty(&self, kind: Dirty) -> u64 {
        self.dirty[kind as usize].get()
    }
}

impl F2fs {
    /// Takes up to `n` blocks into use; how many there were room for, at least one
    /// (`inc_valid_block_count`). `i_blocks` is the caller's. Errors: `NoSpace`.
    pub(crate) fn inc_valid_blocks(&self, n: u64) -> FsResult<u64> {
        let c = &self.counts;
        let room = c.user.get().saturating_sub(c.blocks.get());
        let granted = n.min(room);
        if granted == 0 && n > 0 {
            return Err(FsError::NoSpace);
        }
        c.blocks.set(c.blocks.get() + granted);
        c.given.set(c.given.get() + granted);
        Ok(granted)
    }

    /// Gives `n` blocks back (`dec_valid_block_count`).
    pub(crate) fn dec_valid_blocks(&self, n: u64) {
        let c = &self.counts;
        c.blocks.set(c.blocks.get().saturating_sub(n));
    }

    /// Takes a block for a node into use (`inc_valid_node_count`). `i_blocks` is the caller's.
    /// Errors: `NoSpace`.
    pub(super) fn inc_valid_node(&self) -> FsResult<()> {
        let c = &self.counts;
        if c.blocks.get() + 1 > c.user.get() || c.nodes.get() + 1 > c.nodes_max.get() {
            return Err(FsError::NoSpace);
        }
        c.blocks.set(c.blocks.get() + 1);
        c.nodes.set(c.nodes.get() + 1);
        c.given.set(c.given.get() + 1);
        Ok(())
    }

    /// Gives the block of a node back (`dec_valid_node_count`).
    pub(super) fn dec_valid_node(&self) {
        let c = &self.counts;
        c.blocks.set(c.blocks.get().saturating_sub(1));
        c.nodes.set(c.nodes.get().saturating_sub(1));
    }

    /// Is there room for roll-forward: would all fsynced nodes and what was given out fit
    /// (`f2fs_space_for_roll_forward`)?
    pub(crate) fn space_for_roll_forward(&self) -> bool {
        let c = &self.counts;
        c.last_blocks.get() + c.given.get() <= c.user.get()
    }

    /// Numbers of `statfs` (`f2fs_statfs`).
    pub(crate) fn stat(&self) -> wp_vfs::StatFs {
        let c = &self.counts;
        let free = c.user.get().saturating_sub(c.blocks.get());
        // Numbers 0 to 2 are nobody's.
        let nodes = u64::from(c.nodes_max.get()).saturating_sub(3);
        let (inodes, inodes_free) = if nodes > c.user.get() {
            (c.user.get(), free)
        } else {
            (nodes, nodes.saturating_sub(u64::from(c.nodes.get())).min(free))
        };
        wp_vfs::StatFs {
            block_bytes: 4096,
            blocks: self.g.blocks.saturating_sub(u64::from(self.g.segment0)),
            blocks_free: free,
            blocks_available: free,
            inodes,
            inodes_free,
        }
    }
}
