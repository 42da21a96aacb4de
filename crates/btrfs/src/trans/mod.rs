//! Transactions: what was changed since the last commit, and what is to be written for it.
//!
//! Picture:    the first change begins a transaction ([`Core::begin`]). [`Core::commit_plan`]:
//!             references run -> root items of files' trees -> root items of the other trees, items
//!             of block groups, references again, until nothing changes -> [`Plan`]: tree blocks,
//!             then (when these are durable) super blocks. [`Core::committed`] says that they are,
//!             and what the transaction freed can be used.
//! Invariants: 1. the next transaction may begin when there is a plan, before it is written: it
//!                copies all blocks of the plan before it changes them.
//!             2. one plan at a time: the next is made after `committed`.
//! Left out:   quotas, and what is done before a commit for calls that run (delayed
//!             items, ordered extents), which is the file system's.
//! Source:     `btrfs_commit_transaction` and what it calls.

#![deny(clippy::indexing_slicing)]

mod commit;
mod committed;
mod drop;
pub mod logs;
mod subvolumes;
mod supers;

use std::collections::BTreeSet;
use std::rc::Rc;

pub use drop::Dropped;
pub use subvolumes::NewRoot;
use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::SuperBlock;

/// The running transaction, and what is known of the last.
#[derive(Clone, Debug)]
pub(crate) struct Trans {
    /// Number of the running transaction, or of the last.
    pub id: u64,
    pub is_running: bool,
    /// Was the first stage of its commit done?
    pub is_prepared: bool,
    /// Trees of files that were changed.
    pub file_trees: BTreeSet<u64>,
    /// Other trees with a new root, in the order in which their root items are written.
    pub others: Vec<u64>,
    /// Blocks of a plan that is not on the device yet.
    pub unwritten: BTreeSet<u64>,
    /// Those of them that no tree has any more.
    pub forgotten: Vec<u64>,
    /// Is a plan being written?
    pub is_writing: bool,
    /// A change failed half way.
    pub is_broken: bool,
    /// Is what the transaction has a log's replay? The first tree of files is not open then.
    pub is_replay: bool,
    /// Did a commit write the device's counts of errors?
    pub has_dev_stats: bool,
    /// The super block as the last commit has it, for those that log syncs write.
    pub last_super: Option<Box<SuperBlock>>,
}

impl Trans {
    pub fn new(generation: u64) -> Trans {
        Trans {
            id: generation,
            is_running: false,
            is_prepared: false,
            file_trees: BTreeSet::new(),
            others: Vec::new(),
            unwritten: BTreeSet::new(),
            forgotten: Vec::new(),
            is_writing: false,
            is_broken: false,
            is_replay: false,
            has_dev_stats: false,
            last_super: None,
        }
    }
}

/// A tree block to be written.
#[derive(Clone, Debug)]
pub struct PlanBlock {
    /// Logical address.
    pub logical: u64,
    /// Byte addresses on the device: one for each copy.
    pub places: Vec<u64>,
    /// What is written, with its checksum.
    pub bytes: Rc<[u8]>,
}

/// What is to be written for a commit.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of the transaction.
    pub generation: u64,
    /// Tree blocks, by logical address.
    pub blocks: Vec<PlanBlock>,
    /// Super blocks with their byte addresses, when all blocks are durable.
    pub supers: Vec<(u64, Vec<u8>)>,
}

impl Core<'_> {
    /// Number of the running transaction; of the last if none runs.
    pub fn transid(&self) -> u64 {
        self.trans.id
    }

    /// Is there something to commit?
    pub fn is_running(&self) -> bool {
        self.trans.is_running
    }

    /// Did a change fail half way? Then nothing can be committed any more.
    pub fn is_broken(&self) -> bool {
        self.trans.is_broken
    }

    /// A change failed half way: nothing is committed any more.
    pub(crate) fn break_off(&mut self) {
        self.trans.is_broken = true;
    }

    /// Begins a transaction if none runs. Errors: `ReadOnly` after a failure; `Unsupported` for an
    /// image that is not written here. `start_transaction`, `join_transaction`.
    pub fn begin(&mut self) -> FsResult<()> {
        if self.trans.is_broken {
            return Err(FsError::ReadOnly);
        }
        if self.trans.is_running {
            return Ok(());
        }
        self.check_writable()?;
        // The super block of the commit is read again, and its log is one newer.
        let Some(id) = self.trans.id.checked_add(1).filter(|id| *id < u64::MAX) else {
            let (found, field) = (self.trans.id, "generation");
            let expected = "such that there is a number for one more transaction";
            return Err(FsError::corrupt("btrfs super block", field, 0, found, expected));
        };
        self.load_space()?;
        for tree in [crate::disk::id::CSUM_TREE, crate::disk::id::DEV_TREE] {
            self.open_root(tree)?;
        }
        if self.trans.last_super.is_none() {
            self.trans.last_super = Some(self.sb.clone());
        }
        self.refs.start_over();
        self.trans.id = id;
        self.trans.is_running = true;
        Ok(())
    }

    /// A tree is about to be changed. `btrfs_record_root_in_trans`.
    pub(crate) fn join(&mut self, tree: u64) -> FsResult<()> {
        self.begin()?;
        self.open_root(tree)?;
        let id = self.trans.id;
        let root = self.root_mut(tree)?;
        if root.is_shareable && root.last_trans != id {
            root.last_trans = id;
            root.commit_node = root.node;
            self.trans.file_trees.insert(tree);
        }
        Ok(())
    }

    /// After a change that failed half way, nothing more is committed, whatever it failed with.
    /// `btrfs_abort_transaction`.
    pub(crate) fn guard<T>(&mut self, done: FsResult<T>) -> FsResult<T> {
        self.trans.is_broken |= done.is_err();
        done
    }

    /// A tree of those that are not of files has a new root. `add_root_to_dirty_list`: the extent
    /// tree comes last, for the others change it.
    pub(crate) fn note_dirty_root(&mut self, tree: u64) {
        if tree == crate::disk::id::EXTENT_TREE {
            self.trans.others.push(tree);
        } else {
            self.trans.others.insert(0, tree);
        }
    }
}
