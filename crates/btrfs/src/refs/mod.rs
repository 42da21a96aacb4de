//! Who uses which extent, counted late: what is added and dropped in a transaction is collected
//! ("delayed references"), and what is left of it when it is run goes to the extent tree.
//!
//! Picture:    [`Refs`] = a head for each extent with changes -> for each user ([`Reference`]) how
//!             many uses came or went. `Core::run_refs` takes heads by ascending address and
//!             changes EXTENT_ITEMs, METADATA_ITEMs and keyed references (`item`); that changes
//!             trees, which adds to heads, until none is left.
//! Invariants: 1. uses that come and go again before they are run are never seen by the extent
//!                tree.
//!             2. of one extent, uses that come are run before those that go, so that its item is
//!                there as long as it is needed.
//! Source:     fs/btrfs/delayed-ref.c and extent-tree.c.

#![deny(clippy::indexing_slicing)]

mod csums;
mod item;
mod run;

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::{FileExtent, Key, NodeRef, Reference, id, kind, wide};

/// Changes of an extent's uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// Bytes of the extent.
    pub bytes: u64,
    /// Level of a tree block; `None`: data.
    pub level: Option<u8>,
    /// For each user, uses that came less those that went; never 0.
    pub users: BTreeMap<Reference, i64>,
    /// Those of them that came, in order.
    pub added: Vec<Reference>,
    /// The extent was allocated in this transaction, and has no item yet.
    pub is_new: bool,
    /// Flags that its item is to get.
    pub set_flags: u64,
    /// Uses that came less those that went, in the whole transaction.
    pub total: i64,
}

/// Changes that wait to be run.
#[derive(Clone, Default, Debug)]
pub struct Refs {
    heads: BTreeMap<u64, Head>,
    /// From which address on the next head is looked for.
    run_from: u64,
    /// The head that is being run.
    running: Option<u64>,
}

impl Refs {
    /// How many extents have changes that were not run?
    pub fn waiting(&self) -> u64 {
        wide(self.heads.len())
    }

    /// A transaction begins: heads are run from the first address on.
    pub(crate) fn start_over(&mut self) {
        self.run_from = 0;
    }

    fn change(&mut self, bytenr: u64, bytes: u64, level: Option<u8>, who: Reference, by: i64) {
        let head = self.heads.entry(bytenr).or_default();
        (head.bytes, head.level) = (bytes, level);
        head.total += by;
        let before = head.users.get(&who).copied().unwrap_or(0);
        let now = before + by;
        if now == 0 {
            head.users.remove(&who);
        } else {
            head.users.insert(who, now);
        }
        if before > 0 && now <= 0 {
            head.added.retain(|w| *w != who);
        } else if before <= 0 && now > 0 {
            head.added.push(who);
        }
    }

    /// If nothing is left to be run for a block, forgets it: answers whether it was allocated in
    /// this transaction and never counted. `check_ref_cleanup`.
    fn forget_if_idle(&mut self, bytenr: u64) -> bool {
        let is_idle = |h: &Head| h.users.is_empty() && (h.set_flags == 0 || h.is_new);
        if self.running == Some(bytenr) || !self.heads.get(&bytenr).is_some_and(is_idle) {
            return false;
        }
        self.heads.remove(&bytenr).is_some_and(|h| h.is_new)
    }
}

/// A use of a data extent by a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataRef {
    /// Address of the extent.
    pub bytenr: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Tree of the file.
    pub root: u64,
    /// The file.
    pub inode: u64,
    /// Byte of the file at which the extent's start is or would be: the item's key offset less its
    /// offset in the extent.
    pub offset: u64,
}

impl DataRef {
    fn who(&self) -> Reference {
        Reference::Data { root: self.root, objectid: self.inode, offset: self.offset }
    }
}

impl Core<'_> {
    /// Has the running transaction changed another use of an extent of data than this one?
    /// `check_delayed_ref`.
    pub fn has_other_changes(&self, r: DataRef) -> bool {
        let own = r.who();
        let head = self.refs.heads.get(&r.bytenr);
        head.is_some_and(|h| h.users.keys().any(|who| *who != own))
    }

    /// A new extent of data, reserved before, has its first use.
    /// `btrfs_alloc_reserved_file_extent`.
    pub fn add_new_data_ref(&mut self, r: DataRef) -> FsResult<()> {
        self.add_data_ref(r)?;
        if let Some(head) = self.refs.heads.get_mut(&r.bytenr) {
            head.is_new = true;
        }
        Ok(())
    }

    /// An extent of data has one more use. `btrfs_inc_extent_ref`.
    pub fn add_data_ref(&mut self, r: DataRef) -> FsResult<()> {
        self.begin()?;
        self.refs.change(r.bytenr, r.bytes, None, r.who(), 1);
        Ok(())
    }

    /// An extent of data has one use less. `btrfs_free_extent`.
    pub fn drop_data_ref(&mut self, r: DataRef) -> FsResult<()> {
        self.begin()?;
        self.refs.change(r.bytenr, r.bytes, None, r.who(), -1);
        Ok(())
    }

    /// A tree block was allocated.
    pub(crate) fn add_block_ref(&mut self, bytenr: u64, level: u8, owner: u64) -> FsResult<()> {
        let bytes = self.block_bytes();
        self.refs.change(bytenr, bytes, Some(level), Reference::Tree { root: owner }, 1);
        if let Some(head) = self.refs.heads.get_mut(&bytenr) {
            head.is_new = true;
        }
        Ok(())
    }

    /// A tree has no use for a block of its own any more.
    pub(crate) fn free_block(&mut self, tree: u64, block: u64) -> FsResult<()> {
        let owner = self.root(tree)?.owner;
        self.free_block_as(owner, block, 0, true)
    }

    /// The same; `is_last`: no other tree has it either. `btrfs_free_tree_block`.
    pub(crate) fn free_block_as(
        &mut self,
        owner: u64,
        block: u64,
        parent: u64,
        is_last: bool,
    ) -> FsResult<()> {
        let node = self.node(block)?;
        let (header, bytes) = (*node.header(), self.block_bytes());
        if owner != id::TREE_LOG {
            let who = if parent == 0 {
                Reference::Tree { root: owner }
            } else {
                Reference::SharedTree { parent }
            };
            self.refs.change(block, bytes, Some(header.level), who, -1);
        }
        if !is_last {
            return Ok(());
        }
        self.forget_block(block);
        if header.generation.get() != self.transid() {
            return Ok(());
        }
        if owner != id::TREE_LOG && !self.refs.forget_if_idle(block) {
            return Ok(());
        }
        if header.flags.get() & crate::disk::node::flag::WRITTEN != 0 {
            self.pin_reserved(block, bytes)
        } else {
            self.free_reserved(block, bytes)
        }
    }

    /// A use of a tree block that stays another's ends. `btrfs_free_extent` of a tree block.
    pub(crate) fn drop_block_ref(&mut self, block: u64, level: u8, who: Reference) {
        let bytes = self.block_bytes();
        self.refs.change(block, bytes, Some(level), who, -1);
    }

    /// Has a tree block this use, with what was not run yet? `check_ref_exists`.
    pub(crate) fn has_reference(
        &mut self,
        block: u64,
        level: u8,
        who: Reference,
    ) -> FsResult<bool> {
        if self.has_stored_reference(block, level, who)? {
            return Ok(true);
        }
        Ok(self.refs.heads.get(&block).is_some_and(|head| head.users.contains_key(&who)))
    }

    /// Uses of a tree block and flags of its item, with what was not run yet.
    /// `btrfs_lookup_extent_info`.
    pub(crate) fn extent_refs(&mut self, block: u64, level: u8) -> FsResult<(u64, u64)> {
        let (mut refs, mut flags) =
            match self.find_extent(block, Some(level), self.block_bytes())? {
                Some((_, _, extent)) => (extent.head.refs.get(), extent.head.flags.get()),
                None => (0, 0),
            };
        if let Some(head) = self.refs.heads.get(&block) {
            let waiting: i64 = head.users.values().sum();
            refs = refs.saturating_add_signed(waiting);
            flags |= head.set_flags;
        }
        Ok((refs, flags))
    }

    /// What a block points to is counted by its address from now on.
    /// `btrfs_set_disk_extent_flags`.
    pub(crate) fn set_full_backref(&mut self, block: u64, level: u8) -> FsResult<()> {
        let bytes = self.block_bytes();
        let head = self.refs.heads.entry(block).or_default();
        (head.bytes, head.level) = (bytes, Some(level));
        head.set_flags |= crate::disk::extent::flag::FULL_BACKREF;
        Ok(())
    }

    /// Adds, or drops, a use of everything that a block points to: by the block's address
    /// (`parent`), else by its tree. `__btrfs_mod_ref`.
    pub(crate) fn count_children(
        &mut self,
        block: &Rc<[u8]>,
        owner: u64,
        parent: Option<u64>,
        adds: bool,
    ) -> FsResult<()> {
        let node = NodeRef::trusted(block);
        let by = if adds { 1 } else { -1 };
        if let Some(below) = node.level().checked_sub(1) {
            let who = parent
                .map_or(Reference::Tree { root: owner }, |parent| Reference::SharedTree { parent });
            for i in 0..node.len() {
                if let Some(ptr) = node.ptr(i) {
                    let bytes = self.block_bytes();
                    self.refs.change(ptr.blockptr.get(), bytes, Some(below), who, by);
                }
            }
            return Ok(());
        }
        for (key, item) in node.items() {
            if let Some((bytenr, bytes, offset)) = data_of(key, item)? {
                let (root, objectid) = (owner, key.objectid);
                let who = parent.map_or(Reference::Data { root, objectid, offset }, |parent| {
                    Reference::SharedData { parent }
                });
                self.refs.change(bytenr, bytes, None, who, by);
            }
        }
        Ok(())
    }
}

/// The data extent that an item names: address, bytes, and byte of the file at which it would
/// start.
fn data_of(key: Key, item: &[u8]) -> FsResult<Option<(u64, u64, u64)>> {
    if key.kind != kind::EXTENT_DATA {
        return Ok(None);
    }
    match FileExtent::load(key, item, 0)? {
        FileExtent::Regular(e) if e.has_place() => {
            let offset = key.offset.wrapping_sub(e.offset.get());
            Ok(Some((e.disk_bytenr.get(), e.disk_num_bytes.get(), offset)))
        }
        _ => Ok(None),
    }
}

/// An extent's item is not there, though a use of it went.
fn lost(bytenr: u64, what: &str) -> FsError {
    FsError::corrupt("btrfs extent tree", "item", 0, bytenr, what)
}
