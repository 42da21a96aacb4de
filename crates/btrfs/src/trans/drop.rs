//! A tree that was given up is deleted, leaf by leaf, beside everything else.
//!
//! Picture:    from the root down, in order of keys: a block that no other tree has is gone into,
//!             and freed on the way up; of a block that others have as well this tree's use ends.
//!             If that block is the tree's own, what is below it is counted by its address first
//!             (FULL_BACKREF), as its tree will be no more.
//! Invariants: 1. up to where it is, is in the root item (`drop_progress`), so that it can be
//!                broken off after each step and goes on there, also after a power cut.
//! Left out:   locks, read-ahead.
//! Source:     `btrfs_drop_snapshot`, `walk_down_tree`, `walk_up_tree`, `find_next_key`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::extent::flag::FULL_BACKREF;
use crate::disk::node::Expected;
use crate::disk::{DiskKey, Key, NodeRef, Reference, id, lo8};

const LEVELS: usize = 8;

/// How far it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// There is more.
    Some,
    /// The tree is gone.
    All,
}

/// What is done with what a block leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Uses end.
    Drop,
    /// They are counted by the block's address: below the block on this level, which others have.
    Update(usize),
}

/// What one step down came to.
enum Step {
    Down,
    Beside,
}

/// Where it is (`struct walk_control`, `struct btrfs_path`).
struct Walk {
    tree: u64,
    /// Transaction that made the tree, of a snapshot; what is older is not its own.
    origin: u64,
    root: u64,
    nodes: [u64; LEVELS],
    slots: [usize; LEVELS],
    refs: [u64; LEVELS],
    flags: [u64; LEVELS],
    level: usize,
    stage: Stage,
    /// Are there blocks that were not counted by address yet?
    updates: bool,
    update_progress: Key,
    drop_progress: Key,
    drop_level: usize,
    /// After a mount: uses up to here may have ended already.
    is_restarted: bool,
    looks_up: bool,
}

fn missing(block: u64) -> FsError {
    FsError::corrupt("btrfs extent item", "refs", 0, 0, format!("1 or more (block {block})"))
}

impl Walk {
    fn at<T: Copy + Default>(all: &[T; LEVELS], level: usize) -> T {
        all.get(level).copied().unwrap_or_default()
    }

    fn set<T>(all: &mut [T; LEVELS], level: usize, to: T) {
        if let Some(place) = all.get_mut(level) {
            *place = to;
        }
    }

    fn node(&self, level: usize) -> u64 {
        Walk::at(&self.nodes, level)
    }

    fn slot(&self, level: usize) -> usize {
        Walk::at(&self.slots, level)
    }

    fn is_full(&self, level: usize) -> bool {
        Walk::at(&self.flags, level) & FULL_BACKREF != 0
    }
}

impl Core<'_> {
    /// Deletes a part of a tree that was given up: `most` leaves, or less. `is_restarted`: it was
    /// found at a mount.
    ///
    /// Errors: `Corrupt`, `Io`, `NoSpace`; they leave the transaction useless.
    pub fn drop_tree(&mut self, tree: u64, most: u64, is_restarted: bool) -> FsResult<Dropped> {
        self.begin()?;
        let done = self.drop_some(tree, most, is_restarted);
        self.guard(done)
    }

    fn drop_some(&mut self, tree: u64, most: u64, is_restarted: bool) -> FsResult<Dropped> {
        let mut w = self.start_drop(tree, is_restarted)?;
        for _ in 0..most.max(1) {
            self.walk_down(&mut w)?;
            if self.walk_up(&mut w)? {
                self.forget_tree(tree)?;
                return Ok(Dropped::All);
            }
            if w.stage == Stage::Drop {
                w.drop_level = w.level;
                let key = self.node(w.node(w.level))?.key(w.slot(w.level));
                w.drop_progress = key.unwrap_or(w.drop_progress);
            }
        }
        let item = &mut self.root_mut(tree)?.item;
        item.drop_progress = DiskKey::from(w.drop_progress);
        item.drop_level = lo8(w.drop_level);
        let (key, item) = (self.root(tree)?.key, self.root(tree)?.item);
        self.replace_item(id::ROOT_TREE, key, zerocopy::IntoBytes::as_bytes(&item))?;
        Ok(Dropped::Some)
    }

    fn start_drop(&mut self, tree: u64, is_restarted: bool) -> FsResult<Walk> {
        let (node, level) = self.load_root(tree)?;
        let root = self.root(tree)?;
        let progress = root.item.drop_progress.get();
        let mut w = Walk {
            tree,
            origin: root.key.offset,
            root: node,
            nodes: [0; LEVELS],
            slots: [0; LEVELS],
            refs: [0; LEVELS],
            flags: [0; LEVELS],
            level: level.into(),
            stage: Stage::Drop,
            updates: true,
            update_progress: progress,
            drop_progress: progress,
            drop_level: root.item.drop_level.into(),
            is_restarted,
            looks_up: true,
        };
        Walk::set(&mut w.nodes, level.into(), node);
        if progress.objectid == 0 {
            return Ok(w);
        }
        let to = w.drop_level;
        let mut at = usize::from(level);
        loop {
            let block = w.node(at);
            let bytes = self.bytes_of(block)?;
            let node = NodeRef::trusted(&bytes);
            let slot = node.find(progress).unwrap_or_else(|slot| slot.saturating_sub(1));
            Walk::set(&mut w.slots, at, slot);
            self.look_up(&mut w, at)?;
            if at <= to.max(1) {
                w.level = at;
                return Ok(w);
            }
            let child = self.load_child(&node, slot)?;
            at -= 1;
            Walk::set(&mut w.nodes, at, child);
        }
    }

    /// Uses and flags of the block on a level.
    fn look_up(&mut self, w: &mut Walk, level: usize) -> FsResult<()> {
        let block = w.node(level);
        let (refs, flags) = self.extent_refs(block, lo8(level))?;
        if refs == 0 {
            return Err(missing(block));
        }
        Walk::set(&mut w.refs, level, refs);
        Walk::set(&mut w.flags, level, flags);
        Ok(())
    }

    fn walk_down(&mut self, w: &mut Walk) -> FsResult<()> {
        w.looks_up = true;
        loop {
            let level = w.level;
            if !self.enter(w)? || level == 0 {
                return Ok(());
            }
            if w.slot(level) >= self.node(w.node(level))?.len() {
                return Ok(());
            }
            match self.step_down(w)? {
                Step::Down => {}
                Step::Beside => {
                    let slot = w.slot(level) + 1;
                    Walk::set(&mut w.slots, level, slot);
                }
            }
        }
    }

    /// A block is come to. Answers whether what is below it is to be seen. `walk_down_proc`.
    fn enter(&mut self, w: &mut Walk) -> FsResult<bool> {
        let (level, block) = (w.level, w.node(w.level));
        let owner = self.node(block)?.header().owner.get();
        if matches!(w.stage, Stage::Update(_)) && owner != w.tree {
            return Ok(false);
        }
        let is_unknown = match w.stage {
            Stage::Drop => Walk::at(&w.refs, level) != 1,
            Stage::Update(_) => !w.is_full(level),
        };
        if w.looks_up && is_unknown {
            self.look_up(w, level)?;
        }
        if w.stage == Stage::Drop {
            return Ok(Walk::at(&w.refs, level) == 1);
        }
        if !w.is_full(level) {
            let bytes = self.bytes_of(block)?;
            self.count_children(&bytes, owner, Some(block), true)?;
            self.count_children(&bytes, owner, None, false)?;
            self.set_full_backref(block, lo8(level))?;
            let flags = Walk::at(&w.flags, level) | FULL_BACKREF;
            Walk::set(&mut w.flags, level, flags);
        }
        Ok(true)
    }

    /// `do_walk_down`.
    fn step_down(&mut self, w: &mut Walk) -> FsResult<Step> {
        let (level, slot) = (w.level, w.slot(w.level));
        let below = level - 1;
        let bytes = self.bytes_of(w.node(level))?;
        let node = NodeRef::trusted(&bytes);
        let Some(ptr) = node.ptr(slot).copied() else { return Ok(Step::Beside) };
        let (child, generation) = (ptr.blockptr.get(), ptr.generation.get());
        if matches!(w.stage, Stage::Update(_)) && generation <= w.origin {
            // It was there before the snapshot was.
            w.looks_up = true;
            return Ok(Step::Beside);
        }
        Walk::set(&mut w.nodes, below, child);
        self.look_up(w, below)?;
        w.looks_up = false;
        if !self.is_visited(w, ptr.key.get(), generation) {
            self.end_use(w, &bytes, child)?;
            Walk::set(&mut w.nodes, below, 0);
            Walk::set(&mut w.refs, below, 0);
            Walk::set(&mut w.flags, below, 0);
            w.looks_up = true;
            return Ok(Step::Beside);
        }
        if w.stage == Stage::Drop && Walk::at(&w.refs, below) > 1 {
            w.stage = Stage::Update(below);
        }
        self.load_block(&Expected {
            bytenr: child,
            generation: Some(generation),
            level: Some(lo8(below)),
            first_key: Some(ptr.key.get()),
            owner: Some(node.header().owner.get()),
        })?;
        Walk::set(&mut w.slots, below, 0);
        w.level = below;
        Ok(Step::Down)
    }

    /// Is a block below the present one gone into? `visit_node_for_delete`.
    fn is_visited(&self, w: &Walk, key: Key, generation: u64) -> bool {
        let below = w.level - 1;
        let is_counted = below == 0 && w.is_full(below);
        match w.stage {
            Stage::Update(_) => !is_counted,
            Stage::Drop if Walk::at(&w.refs, below) == 1 => true,
            Stage::Drop if is_counted || !w.updates || generation <= w.origin => false,
            // What is before it was seen in an earlier step.
            Stage::Drop => key >= w.update_progress,
        }
    }

    /// The use of a block that others have ends. `maybe_drop_reference`.
    fn end_use(&mut self, w: &mut Walk, parent: &Rc<[u8]>, child: u64) -> FsResult<()> {
        if w.stage != Stage::Drop {
            return Ok(());
        }
        let level = w.level;
        let who = if w.is_full(level) {
            Reference::SharedTree { parent: w.node(level) }
        } else {
            self.check_owner(w, &NodeRef::trusted(parent))?;
            Reference::Tree { root: w.tree }
        };
        let below = lo8(level - 1);
        if w.is_restarted {
            if !self.has_reference(child, below, who)? {
                return Ok(());
            }
            w.is_restarted = false;
        }
        w.drop_level = level;
        if let Some(next) = self.next_key(w, level)? {
            w.drop_progress = next;
        }
        self.drop_block_ref(child, below, who);
        Ok(())
    }

    fn check_owner(&self, w: &Walk, node: &NodeRef<'_>) -> FsResult<()> {
        let owner = node.header().owner.get();
        if owner == w.tree {
            return Ok(());
        }
        let expected = format!("tree {}, which has it alone", w.tree);
        Err(FsError::corrupt("btrfs tree block", "owner", 0, owner, expected))
    }

    /// The key behind a path's place on a level, or above. `find_next_key`.
    fn next_key(&self, w: &Walk, from: usize) -> FsResult<Option<Key>> {
        for level in from..LEVELS {
            if w.node(level) == 0 {
                break;
            }
            if let Some(key) = self.node(w.node(level))?.key(w.slot(level) + 1) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Answers whether the tree's root was left. `walk_up_tree`.
    fn walk_up(&mut self, w: &mut Walk) -> FsResult<bool> {
        let n = self.node(w.node(w.level))?.len();
        let mut level = w.level;
        Walk::set(&mut w.slots, level, n);
        while level < LEVELS && w.node(level) != 0 {
            w.level = level;
            if w.slot(level) + 1 < self.node(w.node(level))?.len() {
                let slot = w.slot(level) + 1;
                Walk::set(&mut w.slots, level, slot);
                return Ok(false);
            }
            if !self.leave(w)? {
                return Ok(false);
            }
            Walk::set(&mut w.nodes, level, 0);
            level += 1;
        }
        Ok(true)
    }

    /// All below a block was seen. Answers `false` if it is to be seen once more. `walk_up_proc`.
    fn leave(&mut self, w: &mut Walk) -> FsResult<bool> {
        let (level, block) = (w.level, w.node(w.level));
        if let Stage::Update(shared) = w.stage {
            if level < shared {
                Walk::set(&mut w.refs, level, 0);
                Walk::set(&mut w.flags, level, 0);
                return Ok(true);
            }
            match self.next_key(w, level + 1)? {
                Some(key) => w.update_progress = key,
                None => w.updates = false,
            }
            w.stage = Stage::Drop;
            Walk::set(&mut w.slots, level, 0);
            if level > 0 {
                self.look_up(w, level)?;
                if Walk::at(&w.refs, level) == 1 {
                    return Ok(false);
                }
            }
        }
        let is_last = Walk::at(&w.refs, level) == 1;
        let bytes = self.bytes_of(block)?;
        let node = NodeRef::trusted(&bytes);
        if is_last && level == 0 {
            let parent = w.is_full(level).then_some(block);
            self.count_children(&bytes, node.header().owner.get(), parent, false)?;
        }
        let parent = if block == w.root {
            if w.is_full(level) {
                block
            } else {
                self.check_owner(w, &node)?;
                0
            }
        } else if w.is_full(level + 1) {
            w.node(level + 1)
        } else {
            let above = self.bytes_of(w.node(level + 1))?;
            self.check_owner(w, &NodeRef::trusted(&above))?;
            0
        };
        self.free_block_as(w.tree, block, parent, is_last)?;
        Walk::set(&mut w.refs, level, 0);
        Walk::set(&mut w.flags, level, 0);
        Ok(true)
    }

    /// Nothing is left of a tree but its root item. `btrfs_del_root`, `btrfs_add_dropped_root`.
    fn forget_tree(&mut self, tree: u64) -> FsResult<()> {
        let key = self.root(tree)?.key;
        self.remove_item(id::ROOT_TREE, key)?;
        self.remove_orphan(id::ROOT_TREE, tree)?;
        self.trans.file_trees.remove(&tree);
        self.roots.remove(&tree);
        Ok(())
    }
}
