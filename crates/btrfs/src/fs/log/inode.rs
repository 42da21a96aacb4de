//! An inode and its items in the log.
//!
//! Source: fs/btrfs/tree-log.c (`btrfs_log_inode`, `copy_items`, `fill_inode_item`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::inode::{extrefs, flag, refs};
use crate::disk::{InodeItem, Key, kind};
use crate::era::Era;
use crate::site;

use super::super::inode::Inode;
use super::{Log, LogResult, Mode, OldLog, Stop};

impl Log<'_> {
    /// Rules that are left out.
    pub fn old(&self) -> OldLog {
        self.fs.opts.old_log
    }

    /// The kernel's rules.
    pub fn era(&self) -> Era {
        self.fs.opts.era
    }

    /// Is an inode in this log?
    pub fn has(&self, inode: &Inode) -> bool {
        inode.logged.trans.get() == self.transid
    }

    /// Is there more to be logged of an inode? `need_log_inode`.
    pub fn needs(&self, inode: &Inode) -> bool {
        if inode.is_dir() && inode.last_trans.get() < self.transid {
            return false;
        }
        !self.has(inode) || inode.logged.copy_all.get()
    }

    /// Logs an inode. `btrfs_log_inode`.
    pub fn inode(&mut self, inode: &Rc<Inode>, mode: Mode) -> LogResult<()> {
        let is_link = inode.item.borrow().is_symlink();
        let mode = if is_link && !self.era().links_exist_only() { Mode::All } else { mode };
        let l = &inode.logged;
        let was_logged = self.has(inode);
        let is_dir = inode.is_dir();
        let keeps_moved = !self.old().moves;
        let was_left = is_dir && mode == Mode::All && l.last_unlink.get() >= self.transid;
        if was_left && keeps_moved && site::LOG_MOVED.on() {
            return Err(Stop::Full);
        }
        let all_items = !is_dir && l.full_sync.get() && mode == Mode::All;
        let mut size = inode.size();
        if mode == Mode::Exists && !is_dir {
            size = match self.era().existing_keeps_size() && !was_logged {
                true => 0,
                false => self.logged_size(inode, was_logged)?,
            };
        }
        let mut fast = !is_dir && mode == Mode::All && !all_items;
        let mut copies = true;
        if all_items {
            l.full_sync.set(false);
            l.copy_all.set(false);
            if was_logged {
                self.drop_items(inode.ino, u8::MAX)?;
            }
        } else if is_dir
            || mode == Mode::Exists
            || l.copy_all.get()
            || is_link && self.fs.opts.mend.symlinks
        {
            if !(mode == Mode::Exists && l.full_sync.get()) {
                l.copy_all.set(false);
            }
            // A directory that does not count as logged may be in the log all the same.
            if was_logged || is_dir && self.era().renames_relog() {
                self.drop_items(inode.ino, kind::XATTR_ITEM)?;
            }
        } else {
            copies = false;
        }
        if is_link {
            fast = false;
        }
        if copies {
            let last = if all_items { kind::EXTENT_DATA } else { kind::INODE_EXTREF };
            self.copy_items(inode, last)?;
            self.copy_xattrs(inode)?;
        } else if !was_logged {
            self.copy_xattrs(inode)?;
        }
        self.inode_item(inode, mode, size, was_logged)?;
        if all_items {
            self.log_holes(inode)?;
            if inode.has(flag::PREALLOC) && !self.era().full_sync_skips_space() {
                self.log_prealloc(inode)?;
            }
        } else if mode == Mode::Exists && !was_logged && self.fs.opts.mend.space {
            self.keep_prealloc(inode, size)?;
        }
        if is_link && mode == Mode::All {
            self.copy_inline(inode)?;
        }
        if fast {
            self.changed_extents(inode)?;
        } else if mode == Mode::All {
            inode.logged.modified.borrow_mut().1 = Default::default();
        }
        if is_dir && mode == Mode::All {
            if !was_logged {
                l.last_index.set(crate::items::INDEX_START - 1);
            }
            self.directory(inode)?;
        }
        let is_unmarked = self.era().new_names_unmarked();
        // To be logged so that it exists is no fsync, nor is to get a name.
        let old = self.old();
        let counts = match mode {
            Mode::All => !self.is_new_name || self.era().new_names_count() || is_unmarked,
            Mode::Exists if self.is_new_name => old.names,
            Mode::Exists => old.exists || !site::LOG_EXISTS.on(),
        };
        if !(is_unmarked && self.is_new_name && is_dir && inode.ino != self.ino) {
            l.trans.set(self.transid);
            if counts {
                l.last_commit.set(l.last_sub.get());
            }
        }
        if mode == Mode::All {
            l.last_reflink.set(0);
        }
        self.conflicting_inodes()
    }

    /// The length that says no more than what is in the log, or was at the last commit: replay cuts
    /// a file to it when it is logged once more. `get_inode_size_to_log`.
    fn logged_size(&mut self, inode: &Inode, was_logged: bool) -> FsResult<u64> {
        let key = Key::new(inode.ino, kind::INODE_ITEM, 0);
        let item = if was_logged {
            self.c.lookup(self.log, key)?
        } else if inode.item.borrow().generation.get() < self.transid {
            self.c.with_committed(self.tree, |c, old| c.lookup(old, key))?
        } else {
            None
        };
        let item = item.and_then(|b| InodeItem::read_from_bytes(&b).ok());
        Ok(item.map_or(0, |i| i.size.get()).min(inode.size()))
    }

    /// `drop_inode_items`.
    fn drop_items(&mut self, ino: u64, last: u8) -> FsResult<()> {
        let (from, to) = (Key::new(ino, 0, 0), Key::new(ino, last, u64::MAX));
        while let Some((key, _)) = self.c.last(self.log, from, to)? {
            self.c.remove_item(self.log, key)?;
        }
        Ok(())
    }

    /// Puts an item into the log, over one that is there.
    pub fn put(&mut self, key: Key, bytes: &[u8]) -> FsResult<()> {
        match self.c.insert_item(self.log, key, bytes) {
            Err(FsError::Exists) => self.c.replace_item(self.log, key, bytes),
            other => other,
        }
    }

    /// Copies references, and with `last` extents, out of leaves that this transaction has changed.
    /// `copy_inode_items_to_log`.
    fn copy_items(&mut self, inode: &Rc<Inode>, last: u8) -> LogResult<()> {
        let mut from = Key::new(inode.ino, kind::INODE_REF, 0);
        let to = Key::new(inode.ino, last, u64::MAX);
        let is_old = inode.item.borrow().generation.get() < self.transid;
        let no_refs = self.old().dir_refs && inode.is_dir() && is_old;
        while let Some(path) = self.c.seek(self.tree, from)? {
            let generation = self.c.leaf(&path)?.header().generation.get();
            let Some((key, bytes)) = self.c.item(&path)? else { break };
            if key > to {
                break;
            }
            let bytes = bytes.to_vec();
            let Some(next) = key.next() else { break };
            from = next;
            match key.kind {
                _ if generation < self.transid => {}
                kind::INODE_REF if no_refs => {}
                kind::INODE_REF | kind::INODE_EXTREF => {
                    self.put(key, &bytes)?;
                    self.check_override(inode, key, &bytes)?;
                }
                kind::EXTENT_DATA
                    if key.offset < inode.size() || self.era().full_sync_skips_space() =>
                {
                    self.copy_extent(inode, key, &bytes)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Another inode had one of these names at the last commit: it is to be logged, too.
    /// `btrfs_check_ref_name_override`.
    fn check_override(&mut self, inode: &Rc<Inode>, key: Key, bytes: &[u8]) -> LogResult<()> {
        let is_new = inode.item.borrow().generation.get() >= self.transid;
        if !is_new && !self.is_in_conflicts && self.era().conflicts_of_new_only() {
            return Ok(());
        }
        let names: Vec<(u64, Vec<u8>)> = if key.kind == kind::INODE_REF {
            refs(bytes, key.offset).flatten().map(|n| (n.parent, n.name.to_vec())).collect()
        } else {
            extrefs(bytes).flatten().map(|n| (n.parent, n.name.to_vec())).collect()
        };
        for (parent, name) in names {
            let tree = self.tree;
            let found = self.c.with_committed(tree, |c, old| c.find_name(old, parent, &name))?;
            let Some(found) = found else { continue };
            let other = found.location.objectid;
            if found.location.kind != kind::INODE_ITEM {
                return Err(Stop::Full);
            }
            let is_other = other != inode.ino && other != self.ino;
            if is_other && site::LOG_CONFLICTS.on() {
                self.add_conflict(other, parent)?;
            }
        }
        Ok(())
    }

    /// `btrfs_log_all_xattrs`.
    fn copy_xattrs(&mut self, inode: &Inode) -> FsResult<()> {
        if !site::LOG_XATTRS.on() {
            return Ok(());
        }
        let mut from = Key::new(inode.ino, kind::XATTR_ITEM, 0);
        let to = Key::new(inode.ino, kind::XATTR_ITEM, u64::MAX);
        while let Some((key, bytes)) = self.c.first(self.tree, from, to)? {
            self.put(key, &bytes)?;
            let Some(next) = key.next() else { break };
            from = next;
        }
        Ok(())
    }

    fn copy_inline(&mut self, inode: &Inode) -> FsResult<()> {
        let key = Key::new(inode.ino, kind::EXTENT_DATA, 0);
        match self.c.lookup(self.tree, key)? {
            Some(bytes) => self.put(key, &bytes),
            None => Ok(()),
        }
    }

    /// `fill_inode_item`.
    fn inode_item(
        &mut self,
        inode: &Inode,
        mode: Mode,
        size: u64,
        was_logged: bool,
    ) -> FsResult<()> {
        let mut item = *inode.item.borrow();
        item.transid = self.transid.into();
        item.size = size.into();
        item.nbytes = 0.into();
        if mode == Mode::Exists && (!was_logged || self.era().existing_keeps_size()) {
            // Says to replay that it is no more than "this inode exists".
            item.generation = 0.into();
        }
        if mode == Mode::Exists && inode.is_dir() && !was_logged {
            item.size = 0.into();
        }
        self.put(Key::new(inode.ino, kind::INODE_ITEM, 0), item.as_bytes())
    }
}
