//! Trees as the last commit has them, while they are changed.

use wp_base::FsResult;

use crate::core::{Core, Root};
use crate::trans::PlanBlock;

/// Set in the number of a tree: as the last commit has it. No tree has such a number on the disk.
const COMMITTED: u64 = 1 << 61;

impl Core<'_> {
    /// All blocks that were changed so far, and those of logs, as they are written before a commit:
    /// when one of them is changed again it is copied first. `btree_write_cache_pages`, when a
    /// flusher calls it.
    pub(crate) fn seal_early(&mut self) -> FsResult<(Vec<PlanBlock>, Vec<PlanBlock>)> {
        Ok((self.seal_blocks()?, self.seal_log_blocks()?))
    }

    /// The roots of these trees and the block groups are in memory. `btrfs_init_root_free_objectid`
    /// aside, what `open_ctree` reads.
    pub(crate) fn read_at_mount(&mut self, trees: &[u64]) -> FsResult<()> {
        for tree in trees {
            self.load_root(*tree)?;
        }
        self.space().map(|_| ())
    }

    /// Looks at a tree as the last commit has it, under the number that `look` is given. Its blocks
    /// are on the device still, as nothing that a transaction frees is used again before its
    /// commit. `search_commit_root`.
    pub(crate) fn with_committed<T>(
        &mut self,
        tree: u64,
        look: impl FnOnce(&mut Self, u64) -> FsResult<T>,
    ) -> FsResult<T> {
        self.open_root(tree)?;
        let root = self.root(tree)?;
        if root.node == root.item.bytenr.get() {
            return look(self, tree);
        }
        let old = Root::new(root.owner, root.key, root.item);
        let open = COMMITTED | tree;
        self.roots.insert(open, old);
        // What was copied since was in memory, and stays there in the kernel.
        let known = self.missed.len();
        let found = look(self, open);
        self.missed.truncate(known);
        self.roots.remove(&open);
        found
    }
}
