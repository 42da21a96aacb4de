//! What a mount does after a crash: log trees, which fsyncs wrote, are brought into the trees of
//! files, and a commit makes that last.
//!
//! Picture:    super block -> log root tree -> a log tree for each subvolume (`log`) -> in three
//!             rounds over all of them: inodes, with what was deleted from directories and
//!             attributes (`inodes`); names of directories; names of inodes (`refs`), extents
//!             (`extents`), attributes. Then link counts, then [`Core::commit_plan`].
//! Invariants: 1. pure and synchronous; nothing is written but the commit, and that only when all
//!                has gone well.
//!             2. blocks of logs are taken out of the free space before anything is allocated.
//!             3. without a log nothing is changed.
//! Left out:   bad copies of tree blocks are written anew by the file system that mounts, not by
//!             [`recover`]; deleting inodes without names, which a mount does in a later
//!             transaction: they keep their orphan items, as after a crash between the two.
//! Source:     `btrfs_recover_log_trees` and what it calls, for what is done in which order.

#![deny(clippy::indexing_slicing)]

mod csums;
mod extents;
mod inodes;
mod log;
mod names;
mod old;
mod refs;

use std::collections::BTreeSet;
use std::fmt;

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use wp_vfs::FileType;

use crate::core::{Core, Disk};
use crate::disk::dir;
use crate::disk::inode::mode;
use crate::disk::{Key, Timespec, kind};
use crate::era::Era;
use crate::image;
use crate::site;
use crate::trans::Plan;

use log::{Log, LogRoots};
pub use old::{OldReplay, Overgrown};

pub(crate) use log::blocks as log_blocks;

/// How to recover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoverOptions {
    /// Time that inodes and directories get which lose a name, in seconds since 1970.
    pub now: u64,
    /// The kernel's rules.
    pub era: Era,
    /// Rules that are left out, as older kernels did.
    pub old: OldReplay,
    /// What happens where Linux 6.12 panics.
    pub overgrown: Overgrown,
}

impl Default for RecoverOptions {
    fn default() -> RecoverOptions {
        RecoverOptions {
            now: 1_388_534_400,
            era: Era::of(Era::COMPARED),
            old: OldReplay::default(),
            overgrown: Overgrown::default(),
        }
    }
}

/// What recovery found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Was there a log?
    pub is_needed: bool,
    /// Subvolumes with a log, those that are gone left out.
    pub subvolumes: Vec<u64>,
    /// Blocks of logs.
    pub blocks: u64,
    /// Inodes that came from logs.
    pub inodes: u64,
    /// Names that were added.
    pub names: u64,
    /// Names that were removed.
    pub unlinked: u64,
    /// Extents that came from logs.
    pub extents: u64,
    /// Inodes that were left without a name.
    pub orphans: u64,
    /// Places where Linux 6.12 panics instead (`BUG` in `btrfs_extend_item`, called by
    /// `overwrite_item`), so that the file system does not mount; here the replay goes on.
    pub panics: u64,
    /// The commit that made it last; 0: none.
    pub generation: u64,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_needed {
            return f.write_str("no log");
        }
        write!(
            f,
            "log of {} subvolumes replayed: {} blocks, {} inodes, {} names added, {} removed, \
             {} extents, {} orphans; commit {}",
            self.subvolumes.len(),
            self.blocks,
            self.inodes,
            self.names,
            self.unlinked,
            self.extents,
            self.orphans,
            self.generation
        )?;
        if self.panics > 0 {
            write!(f, "; Linux 6.12 panics at {} places", self.panics)?;
        }
        Ok(())
    }
}

/// Does what a mount does after a crash, into `overlay`. Without a log that is nothing.
///
/// Errors: those with which a mount fails. Then nothing was written.
pub fn recover(overlay: &Overlay<'_>, options: &RecoverOptions) -> FsResult<Recovery> {
    let sb = image::super_block(overlay)?;
    if sb.log_root.get() == 0 {
        return Ok(Recovery::default());
    }
    let mut core = Core::open_with(Disk::of_view(overlay), sb, crate::disk::SuperBlock::AT)?;
    let mut done = replay(&mut core, options)?;
    let Plan { generation, blocks, supers } = core.commit_plan()?;
    done.generation = generation;
    for block in &blocks {
        for at in &block.places {
            overlay.write_at(*at, &block.bytes)?;
        }
    }
    // Trees before the super blocks that lead to them, and the first of those before its copies.
    let barrier = || {
        if site::RECOVER_LAST.on() {
            overlay.barrier()
        }
    };
    barrier();
    for (at, bytes) in supers {
        // A copy that the device says it has, and the image is too short for.
        if at.checked_add(crate::disk::wide(bytes.len())).is_some_and(|e| e <= overlay.len_bytes())
        {
            overlay.write_at(at, &bytes)?;
            barrier();
        }
    }
    Ok(done)
}

/// Brings the log that the super block names into the trees of files: a commit is to follow.
/// Without a log that is nothing.
///
/// Errors: `Corrupt` for a log that contradicts itself or the trees; `NoSpace`.
pub fn replay(core: &mut Core<'_>, options: &RecoverOptions) -> FsResult<Recovery> {
    let mut done = Recovery::default();
    if core.super_block().log_root.get() == 0 {
        return Ok(done);
    }
    done.is_needed = true;
    let generation = core.super_block().generation.get().wrapping_add(1);
    core.begin()?;
    core.trans.is_replay = true;
    let roots = LogRoots::read(core, generation)?;
    done.blocks += roots.pin(core)?;
    // Subvolumes with greater numbers come first, in every round.
    let mut logs = Vec::new();
    for (subvolume, item) in roots.all.iter().rev() {
        let has_tree = core.find_root(*subvolume)? && core.root(*subvolume)?.item.refs.get() > 0;
        if !has_tree {
            // It was deleted: its log stays as it is for the rest of the transaction.
            let bytes = crate::disk::wide(core.node_bytes());
            core.take_for_log(item.bytenr.get(), bytes, true)?;
            continue;
        }
        let log = Log::read(core, *subvolume, item)?;
        done.blocks += log.pin(core)?;
        core.join(*subvolume)?;
        done.subvolumes.push(*subvolume);
        logs.push(log);
    }
    let (allocated, delayed) = (BTreeSet::new(), names::Delayed::new());
    let (now, old, overgrown) = (options.now, options.old, options.overgrown);
    let (era, ignores) = (options.era, false);
    let mut state = State { now, old, overgrown, era, ignores, done, allocated, delayed };
    let mut fixups = vec![BTreeSet::new(); logs.len()];
    for stage in [Stage::Inodes, Stage::Names, Stage::All] {
        for (log, fixup) in logs.iter().zip(&mut fixups) {
            let tree = log.subvolume;
            let mut one = Replay { core, tree, log, fixup, state: &mut state };
            one.run(stage)?;
            if stage == Stage::All {
                one.fix_link_counts()?;
            }
        }
    }
    names::insert_delayed(core, &mut state.delayed)?;
    Ok(state.done)
}

/// A round over the logs. `LOG_WALK_REPLAY_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Inodes,
    Names,
    All,
}

/// What all logs share.
struct State {
    now: u64,
    old: OldReplay,
    overgrown: Overgrown,
    era: Era,
    /// Are items skipped: those of an inode without names, deleted while it was open? Its names go
    /// with the directory's deletions.
    ignores: bool,
    done: Recovery,
    /// Data extents that no item in the extent tree has yet: address and bytes.
    allocated: BTreeSet<(u64, u64)>,
    delayed: names::Delayed,
}

/// The replay of one log.
struct Replay<'r, 'a> {
    core: &'r mut Core<'a>,
    /// The subvolume.
    tree: u64,
    log: &'r Log,
    /// Inodes whose names are to be counted in the end. As in Linux they have items in the tree
    /// until then, of `BTRFS_TREE_LOG_FIXUP_OBJECTID`.
    fixup: &'r mut BTreeSet<u64>,
    state: &'r mut State,
}

/// A log that cannot be replayed.
fn broken(field: &'static str, found: u64, expected: impl Into<String>) -> FsError {
    FsError::corrupt("btrfs log", field, 0, found, expected)
}

/// What is found where something must be.
fn missing(what: &'static str, number: u64) -> impl FnOnce(FsError) -> FsError {
    move |e| match e {
        FsError::NotFound => broken(what, number, "such as is there"),
        other => other,
    }
}

impl Replay<'_, '_> {
    /// `replay_one_buffer`, for all of them.
    fn run(&mut self, stage: Stage) -> FsResult<()> {
        let log = self.log;
        if self.state.ignores && !self.state.era.replay_skips_by_last() {
            self.state.ignores = false;
        }
        for (key, item) in &log.items {
            let (key, item) = (*key, item.as_slice());
            if key.kind == kind::INODE_ITEM {
                let inode = log::inode_of(item, key)?;
                let is_gone = inode.nlink.get() == 0;
                if is_gone != self.state.ignores
                    && (stage == Stage::Inodes || !self.state.era.replay_skips_by_last())
                {
                    self.state.ignores = is_gone;
                }
                if !self.state.ignores && stage == Stage::Inodes {
                    self.replay_inode(key, item, inode.file_type())?;
                }
            }
            if self.state.ignores {
                continue;
            }
            match (key.kind, stage) {
                (kind::DIR_INDEX, Stage::Names) => self.replay_name(key, item)?,
                (kind::XATTR_ITEM, Stage::All) => self.overwrite_item(key, item)?,
                (kind::INODE_REF | kind::INODE_EXTREF, Stage::All) => {
                    self.replay_refs(key, item)?;
                }
                (kind::EXTENT_DATA, Stage::All) => self.replay_extent(key, item)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn replay_inode(&mut self, key: Key, item: &[u8], file_type: u32) -> FsResult<()> {
        self.state.done.inodes += 1;
        self.delete_xattrs(key.objectid)?;
        if file_type == mode::DIR {
            self.delete_names(key.objectid)?;
        }
        self.overwrite_item(key, item)?;
        if file_type == mode::FILE {
            // Extents that were allocated beyond the end may come back with the log: so what is
            // there now beyond it goes first.
            let mut inode = self.inode_needed(key.objectid)?;
            let from = inode.size.get().checked_next_multiple_of(4096);
            if let Some(from) = from.filter(|_| site::REPLAY_BEYOND.on()) {
                let dropped = self.drop_extents(key.objectid, from, u64::MAX)?;
                inode.nbytes = inode.nbytes.get().saturating_sub(dropped).into();
            }
            self.put_inode(key.objectid, &inode)?;
        }
        self.count_names_later(key.objectid)
    }

    /// A name of a directory in the log. `replay_one_dir_item`, `replay_one_name`.
    fn replay_name(&mut self, key: Key, item: &[u8]) -> FsResult<()> {
        let mut all = dir::entries(item);
        let (Some(Ok(entry)), None) = (all.next(), all.next()) else {
            return Err(broken("directory entry", key.offset, "one whole entry"));
        };
        let (folder, index, name) = (key.objectid, key.offset, entry.name);
        self.inode_needed(folder)?;
        let to = entry.location;
        let exists = self.core.lookup(self.tree, to)?.is_some();
        let found = self.dir_item(folder, name)?;
        let by_name = self.settle(folder, found, (to, entry.kind), exists)?;
        let found = self.dir_index(folder, index, name)?;
        let by_index = self.settle(folder, found, (to, entry.kind), exists)?;
        if by_name && by_index {
            return Ok(());
        }
        // With the inode's own name for it in the log, that brings the entry.
        if self.log.has_ref(to.objectid, folder, name) {
            return Ok(());
        }
        match self.insert_name(folder, index, name, to.objectid) {
            Ok(()) if entry.kind != FileType::Dir.entry() => self.count_names_later(to.objectid),
            Ok(()) | Err(FsError::NotFound | FsError::Exists) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Is an entry that is there the same as the log's? If it is another, it goes, provided that
    /// the log's leads somewhere. `delete_conflicting_dir_entry`.
    fn settle(
        &mut self,
        folder: u64,
        found: Option<names::Found>,
        new: (Key, u8),
        exists: bool,
    ) -> FsResult<bool> {
        let Some(found) = found else { return Ok(false) };
        if (found.location, found.kind) == new {
            return Ok(true);
        }
        if exists {
            self.drop_entry(folder, &found)?;
        }
        Ok(false)
    }

    fn now(&self) -> Timespec {
        Timespec::seconds(self.state.now)
    }
}
