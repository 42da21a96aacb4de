//! Directories, parents and names in the log.
//!
//! Source: fs/btrfs/tree-log.c (`log_directory_changes`, `btrfs_log_inode_parent`,
//! `log_conflicting_inodes`, `btrfs_log_new_name`, `btrfs_record_unlink_dir`).

use std::collections::VecDeque;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::disk::dir::entries;
use crate::disk::{DirLogItem, Key, kind, view};
use crate::site;

use super::super::Btrfs;
use super::super::inode::Inode;
use super::{Log, LogResult, Mode, Stop};

/// Inodes in conflict that are logged at most. `MAX_CONFLICT_INODES`.
const CONFLICTS_MAX: u32 = 10;

impl Log<'_> {
    fn get(&self, ino: u64) -> LogResult<Rc<Inode>> {
        // It is in memory, or is read now; who calls holds the core.
        self.fs.inode_of(self.tree, ino).filter(|i| !i.is_gone.get()).ok_or(Stop::Full)
    }

    /// The same, read if need be.
    fn load(&mut self, ino: u64) -> FsResult<Option<Rc<Inode>>> {
        if let Some(inode) = self.fs.inode_of(self.tree, ino) {
            return Ok(Some(inode).filter(|i| !i.is_gone.get()));
        }
        let found = self.c.inode(self.tree, ino)?;
        found.map(|item| self.fs.add_inode(&self.vol, ino, item, false)).transpose()
    }

    /// A log has all names of a directory with these indexes (`kind`: or hashes).
    /// `insert_dir_log_key`.
    pub fn range(&mut self, kind: u8, dir: u64, (from, to): (u64, u64)) -> FsResult<()> {
        if !site::LOG_RANGES.on() {
            return Ok(());
        }
        let key = Key::new(dir, kind, from);
        let old = self.c.lookup(self.log, key)?;
        let old = old.and_then(|b| view::<DirLogItem>(&b, 0).map(|i| i.end.get()));
        let end = to.max(old.unwrap_or(0));
        self.put(key, DirLogItem { end: end.into() }.as_bytes())
    }

    /// New names of a directory, and where none are any more. `log_dir_items`.
    pub fn directory(&mut self, dir: &Rc<Inode>) -> LogResult<()> {
        if self.era().logs_old_names() {
            return self.changed_leaves(dir);
        }
        let mut last_old = crate::items::INDEX_START - 1;
        let mut was_changed = false;
        let mut from = Key::new(dir.ino, kind::DIR_INDEX, 0);
        while let Some(path) = self.c.seek(self.tree, from)? {
            let is_changed = self.c.leaf(&path)?.header().generation.get() >= self.transid;
            let Some((key, bytes)) = self.c.item(&path)? else { break };
            if key.objectid != dir.ino || key.kind != kind::DIR_INDEX {
                break;
            }
            let bytes = bytes.to_vec();
            let entry = entries(&bytes).next().and_then(Result::ok).ok_or(Stop::Full)?;
            if entry.transid < self.transid || !is_changed {
                // Between two leaves that are as they were nothing was removed.
                if (is_changed || was_changed) && key.offset > last_old + 1 {
                    self.range(kind::DIR_LOG_INDEX, dir.ino, (last_old + 1, key.offset - 1))?;
                }
                last_old = key.offset;
            } else {
                let is_logged = key.offset <= dir.logged.last_index.get();
                if !is_logged {
                    self.put(key, &bytes)?;
                    dir.logged.last_index.set(key.offset);
                }
                if !is_logged || self.era().relogs_entries() {
                    self.new_dentries |= self.leads_to_more(&entry);
                }
            }
            was_changed = is_changed;
            let Some(next) = key.next() else { break };
            from = next;
        }
        if last_old < u64::MAX {
            self.range(kind::DIR_LOG_INDEX, dir.ino, (last_old + 1, u64::MAX))?;
        }
        Ok(())
    }

    /// Inodes of new names that were logged, and of directories among them. `log_new_dir_dentries`.
    fn new_names(&mut self, dir: &Rc<Inode>) -> LogResult<()> {
        let skips = self.is_new_name && self.era().new_names_skip_entries();
        if skips || !site::LOG_NEW_NAMES.on() {
            return Ok(());
        }
        let mut todo = VecDeque::from([dir.clone()]);
        let kind = if self.era().logs_hashes() { kind::DIR_ITEM } else { kind::DIR_INDEX };
        while let Some(dir) = todo.pop_front() {
            let mut from = Key::new(dir.ino, kind, 0);
            let to = Key::new(dir.ino, kind, u64::MAX);
            while let Some((key, bytes)) = self.c.first(self.log, from, to)? {
                let entry = entries(&bytes).next().and_then(Result::ok).ok_or(Stop::Full)?;
                if self.leads_to_more(&entry) {
                    let child = self.load(entry.location.objectid)?.ok_or(Stop::Full)?;
                    if self.needs(&child) {
                        self.new_dentries = false;
                        let is_file = !child.is_dir() && !child.item.borrow().is_symlink();
                        let mode = if is_file { Mode::Exists } else { Mode::All };
                        self.inode(&child, mode)?;
                        if self.new_dentries {
                            todo.push_back(child);
                        }
                    }
                }
                let Some(next) = key.next() else { break };
                from = next;
            }
        }
        Ok(())
    }

    /// An inode that had a name at the last commit which another is logged with now. One that was
    /// removed since needs nothing, as replay takes the name from it; unless it was a directory:
    /// then its parent tells. `add_conflicting_inode`.
    pub fn add_conflict(&mut self, ino: u64, parent: u64) -> LogResult<()> {
        if self.conflicts_seen >= CONFLICTS_MAX && !self.era().conflicts_unlimited() {
            return Err(Stop::Full);
        }
        match self.load(ino)? {
            Some(inode) if !self.needs(&inode) => return Ok(()),
            Some(inode) => {
                self.may_conflict(&inode)?;
                self.may_be_below(&inode)?;
            }
            None => {
                let tree = self.tree;
                let old = self.c.with_committed(tree, |c, old| c.inode(old, ino))?;
                let is_dir = old.ok_or(Stop::Full)?.is_dir();
                if !is_dir && !self.era().conflicts_log_parents() {
                    return Ok(());
                }
            }
        }
        self.conflicts_seen += 1;
        self.conflicts.push((ino, parent));
        Ok(())
    }

    /// With the fix: an inode that is logged because of another one must not be below a renamed
    /// directory, since its log would have the directory's old name.
    fn may_be_below(&mut self, inode: &Inode) -> LogResult<()> {
        let has_moved = self.fs.opts.mend.renamed && self.fs.was_moved(self.c, inode)?;
        if has_moved { Err(Stop::Full) } else { Ok(()) }
    }

    /// A directory that has lost a name in this transaction would have two after a replay.
    /// `can_log_conflicting_inode`.
    fn may_conflict(&self, inode: &Inode) -> LogResult<()> {
        let has_left = inode.is_dir() && inode.logged.last_unlink.get() >= self.transid;
        if has_left && !self.era().logs_moved_conflicts() { Err(Stop::Full) } else { Ok(()) }
    }

    /// `log_conflicting_inodes`.
    pub fn conflicting_inodes(&mut self) -> LogResult<()> {
        if self.is_in_conflicts {
            return Ok(());
        }
        self.is_in_conflicts = true;
        let mut before = self.new_dentries;
        while !self.conflicts.is_empty() {
            let (ino, parent) = self.conflicts.remove(0);
            match self.load(ino)? {
                Some(inode) => {
                    if self.needs(&inode) {
                        self.inode(&inode, Mode::Exists)?;
                    }
                }
                None => {
                    let dir = self.load(parent)?.ok_or(Stop::Full)?;
                    self.may_conflict(&dir)?;
                    self.new_dentries = false;
                    self.inode(&dir, Mode::All)?;
                    if self.era().conflicts_skip_entries() {
                        // Whoever logs its own inode takes them for that one's.
                        before = self.new_dentries;
                    } else if self.new_dentries {
                        self.new_names(&dir)?;
                    }
                }
            }
        }
        self.new_dentries = before;
        self.is_in_conflicts = false;
        Ok(())
    }

    /// Directories that are new, up to the root. `log_new_ancestors`.
    fn new_ancestors(&mut self, mut dir: u64) -> LogResult<()> {
        if !site::LOG_ANCESTORS.on() {
            return Ok(());
        }
        loop {
            let inode = self.load(dir)?.ok_or(Stop::Full)?;
            let generation = inode.item.borrow().generation.get();
            let l = &inode.logged;
            let has_changed = l.last_sub.get() > l.last_commit.get();
            let needs = self.needs(&inode) || self.old().exists && has_changed;
            if generation >= self.transid && needs {
                self.inode(&inode, Mode::Exists)?;
            }
            if dir == self.vol.root_dir {
                return Ok(());
            }
            dir = self.c.parent_of(self.tree, dir)?;
        }
    }

    /// Directories that an inode had names in at the last commit. `btrfs_log_all_parents`.
    fn all_parents(&mut self, inode: &Inode) -> LogResult<()> {
        let tree = self.tree;
        let old = self.c.with_committed(tree, |c, old| c.refs_of(old, inode.ino))?;
        let mut seen = std::collections::BTreeSet::new();
        for (parent, ..) in old {
            if !seen.insert(parent) {
                continue;
            }
            let Some(dir) = self.load(parent)? else {
                // One that was removed is for a commit.
                if self.old().gone_parents || !site::LOG_GONE_PARENT.on() {
                    continue;
                }
                return Err(Stop::Full);
            };
            if !self.needs(&dir) {
                continue;
            }
            self.new_dentries = false;
            self.inode(&dir, Mode::All)?;
            if self.new_dentries {
                self.new_names(&dir)?;
            }
        }
        Ok(())
    }

    /// An inode with all that its names need. `btrfs_log_inode_parent`.
    pub fn inode_and_parents(&mut self, inode: &Rc<Inode>, mode: Mode) -> LogResult<()> {
        self.inode(inode, mode)?;
        let generation = inode.item.borrow().generation.get();
        let lost_name = inode.logged.last_unlink.get() >= self.transid;
        if inode.is_file() && generation < self.transid && !lost_name {
            return Ok(());
        }
        let log_dentries = inode.is_dir() && self.new_dentries;
        if lost_name && !self.old().parents && site::LOG_PARENTS.on() {
            self.all_parents(inode)?;
        }
        let extref = |at| Key::new(inode.ino, kind::INODE_EXTREF, at);
        let tree = self.tree;
        if inode.nlink() > 1 && self.c.first(tree, extref(0), extref(u64::MAX))?.is_some() {
            // `EMLINK`: too rare for the kernel to follow them.
            return Err(Stop::Full);
        }
        let names = self.c.refs_of(tree, inode.ino)?;
        let most = if self.old().one_parent { 1 } else { names.len() };
        for (parent, ..) in names.into_iter().take(most) {
            self.new_ancestors(parent)?;
        }
        if log_dentries { self.new_names(inode) } else { Ok(()) }
    }

    /// Removes a name from what is logged of a directory. Answers whether it was there.
    /// `del_logged_dentry`.
    fn forget_name(&mut self, dir: u64, name: &[u8], index: u64) -> FsResult<bool> {
        if self.era().logs_hashes() {
            self.forget_hash(dir, name)?;
        }
        match self.c.remove_item(self.log, Key::new(dir, kind::DIR_INDEX, index)) {
            Ok(()) => Ok(true),
            Err(FsError::NotFound) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Btrfs {
    /// Was a directory above any of an inode's names renamed in the running transaction?
    pub(in crate::fs) fn was_moved(&self, c: &mut Core<'static>, inode: &Inode) -> FsResult<bool> {
        let (tree, transid) = (inode.tree, c.transid());
        let names = c.refs_of(tree, inode.ino)?;
        for (mut dir, ..) in names {
            loop {
                let above = self.inode_of(tree, dir);
                if above.is_some_and(|i| i.logged.renamed.get() >= transid) {
                    return Ok(true);
                }
                if dir == inode.vol.root_dir {
                    break;
                }
                dir = c.parent_of(tree, dir)?;
            }
        }
        Ok(false)
    }

    /// A name was removed in the running transaction. `btrfs_record_unlink_dir`.
    pub(in crate::fs) fn note_unlink(&self, dir: &Inode, inode: &Inode) {
        let transid = self.newest();
        if !(inode.is_dir() && self.opts.era.rmdir_forgets()) {
            inode.logged.last_unlink.set(transid);
        }
        self.note_replaced(dir, inode);
    }

    /// A name became that of another inode. Linux takes no note of it.
    pub(in crate::fs) fn note_replaced(&self, dir: &Inode, inode: &Inode) {
        let transid = self.newest();
        inode.logged.unlinked.set(transid);
        if self.opts.mend.unlinked && inode.nlink() > 0 {
            dir.logged.last_unlink.set(transid);
        }
    }

    /// An inode moves to another directory in the running transaction, or has.
    /// `btrfs_record_unlink_dir`.
    pub(in crate::fs) fn note_move(&self, from: &Inode, inode: &Inode) {
        let transid = self.newest();
        let is_logged = |i: &Inode| i.logged.trans.get() == transid;
        inode.logged.last_unlink.set(transid);
        if !is_logged(from) && !is_logged(inode) {
            from.logged.last_unlink.set(transid);
        }
    }

    /// A directory is removed, before [`Btrfs::note_unlink`] says so of itself. If something moved
    /// out of it only a commit says where to, also when it is its parent that is synced.
    /// `btrfs_rmdir`, `btrfs_record_snapshot_destroy`.
    pub(in crate::fs) fn note_rmdir(&self, dir: &Inode, inode: &Inode) {
        let transid = self.newest();
        let has_moved = inode.logged.last_unlink.get() >= transid;
        if has_moved || self.opts.era.rmdir_commits_parent() {
            dir.logged.last_unlink.set(transid);
        }
    }

    /// What is logged of a name that is removed goes. `btrfs_del_inode_ref_in_log`,
    /// `btrfs_del_dir_entries_in_log`.
    pub(in crate::fs) fn forget_logged_name(
        &self,
        (dir, name): (&Rc<Inode>, &[u8]),
        inode: &Inode,
        index: u64,
    ) {
        if !inode.vol.log.is_open() {
            return;
        }
        let (in_inode, in_dir) = (self.may_be_logged(inode), self.may_be_logged(dir));
        if (!in_inode && !in_dir) || !site::LOG_UNLINK.on() {
            return;
        }
        // That it fails is noted: a commit follows.
        let _ = self.log_with(inode, true, Vec::new(), |log| {
            if in_inode {
                match log.c.remove_ref(log.log, inode.ino, dir.ino, name) {
                    Ok(_) | Err(FsError::NotFound) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            if in_dir {
                log.forget_name(dir.ino, name, index)?;
            }
            Ok(())
        });
    }

    /// Is an inode in the log of the running transaction, or does the kernel take it to be there?
    /// `inode_logged`.
    fn may_be_logged(&self, inode: &Inode) -> bool {
        let (transid, era) = (self.newest(), self.opts.era);
        let is_unknown = inode.logged.trans.get() == 0 && inode.last_trans.get() == transid;
        let has_log = inode.vol.log.is_open() || era.guesses_without_log();
        inode.logged.trans.get() == transid || is_unknown && has_log && era.guesses_logged()
    }

    /// An inode got a name, by a link or (`from`: directory, name and index before) a rename.
    /// `btrfs_log_new_name`.
    pub(in crate::fs) fn log_new_name(
        &self,
        inode: &Rc<Inode>,
        from: Option<(&Rc<Inode>, &[u8], u64)>,
    ) {
        let transid = self.newest();
        if !inode.is_dir() {
            inode.logged.last_unlink.set(transid);
        }
        if self.opts.era.renames_copy_all() {
            inode.logged.copy_all.set(true);
        }
        let from = from.filter(|(dir, ..)| self.may_be_logged(dir));
        if !self.may_be_logged(inode) && from.is_none() {
            return;
        }
        if !site::LOG_RENAME.on() {
            return;
        }
        let relogs = self.opts.era.renames_relog();
        // What cannot be logged is for the next fsync to commit.
        let _ = self.log_with(inode, true, Vec::new(), |log| {
            if let Some((dir, name, index)) = from {
                let was_there = log.forget_name(dir.ino, name, index)?;
                if relogs {
                    // With its old parents the inode has the directory logged once more.
                    dir.logged.trans.set(0);
                } else if !was_there {
                    log.range(kind::DIR_LOG_INDEX, dir.ino, (index, index))?;
                }
            }
            let inode = log.get(inode.ino)?;
            log.may_be_below(&inode)?;
            log.inode_and_parents(&inode, Mode::Exists)
        });
    }
}
