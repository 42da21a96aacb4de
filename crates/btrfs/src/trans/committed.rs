//! Trees as the last commit has them, while they are changed.

use wp_base::FsResult;

use crate::core::{Core, Root};

/// Set in the number of a tree: as the last commit has it. No tree has such a number on the disk.
const COMMITTED: u64 = 1 << 61;

impl Core<'_> {
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
        let found = look(self, open);
        self.roots.remove(&open);
        found
    }
}
