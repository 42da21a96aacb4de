//! Directories in the logs of Linux before 5.18: every entry of a changed leaf, also those of past
//! transactions, with an unchanged entry at each end of a range; before 5.17 by hash and by index.
//!
//! Source: fs/btrfs/tree-log.c in 5.15.215 (`log_dir_items`, `btrfs_del_dir_entries_in_log`).

use std::rc::Rc;

use wp_base::FsResult;
use wp_vfs::FileType;

use crate::disk::dir::{entries, name_hash};
use crate::disk::{Entry, Key, kind};

use super::super::inode::Inode;
use super::{Log, LogResult, Stop};

/// Entries and the ranges that a log has all of them in.
type Kinds = (u8, u8);

const BY_HASH: Kinds = (kind::DIR_ITEM, kind::DIR_LOG_ITEM);
const BY_INDEX: Kinds = (kind::DIR_INDEX, kind::DIR_LOG_INDEX);

impl Log<'_> {
    /// Entries of a directory that lie in changed leaves. `log_directory_changes`.
    pub fn changed_leaves(&mut self, dir: &Rc<Inode>) -> LogResult<()> {
        if self.era().logs_hashes() {
            self.changed_leaves_of(dir, BY_HASH)?;
        }
        self.changed_leaves_of(dir, BY_INDEX)
    }

    fn changed_leaves_of(&mut self, dir: &Rc<Inode>, (kind, range): Kinds) -> LogResult<()> {
        // The entry before, and where the range of the present run of changed leaves begins.
        let mut before: Option<(Key, Vec<u8>)> = None;
        let mut begin = None;
        let mut from = Key::new(dir.ino, kind, 0);
        while let Some(path) = self.c.seek(self.tree, from)? {
            let is_changed = self.c.leaf(&path)?.header().generation.get() >= self.transid;
            let Some((key, bytes)) = self.c.item(&path)? else { break };
            if key.objectid != dir.ino || key.kind != kind {
                break;
            }
            let bytes = bytes.to_vec();
            if is_changed {
                if begin.is_none() {
                    begin = Some(match &before {
                        None => 0,
                        Some((end, item)) => {
                            self.put_if_new(*end, item)?;
                            end.offset
                        }
                    });
                }
                self.put_if_new(key, &bytes)?;
                let entry = entries(&bytes).next().and_then(Result::ok).ok_or(Stop::Full)?;
                self.new_dentries |= self.leads_to_more(&entry);
            } else if let Some(begin) = begin.take() {
                self.put_if_new(key, &bytes)?;
                self.range(range, dir.ino, (begin, key.offset))?;
            }
            before = Some((key, bytes));
            let Some(next) = key.next() else { break };
            from = next;
        }
        let last = before.map(|(key, _)| key.offset);
        let begin = begin.or_else(|| last.map_or(Some(0), |last| last.checked_add(1)));
        match begin {
            Some(begin) => Ok(self.range(range, dir.ino, (begin, u64::MAX))?),
            None => Ok(()),
        }
    }

    /// Is the inode of an entry in the log to be logged, too?
    pub fn leads_to_more(&self, entry: &Entry<'_>) -> bool {
        let is_new = entry.transid >= self.transid;
        let is_dir = entry.kind == FileType::Dir.entry();
        let counts = is_new || is_dir && self.era().logs_old_directories();
        counts && entry.location.kind == kind::INODE_ITEM
    }

    /// Puts an item into the log if it has not the same. `overwrite_item`.
    fn put_if_new(&mut self, key: Key, bytes: &[u8]) -> FsResult<()> {
        match self.c.lookup(self.log, key)? {
            Some(same) if same == bytes => Ok(()),
            _ => self.put(key, bytes),
        }
    }

    /// Removes an entry by hash from what is logged of a directory.
    pub fn forget_hash(&mut self, dir: u64, name: &[u8]) -> FsResult<()> {
        let key = Key::new(dir, kind::DIR_ITEM, name_hash(name));
        let Some(mut item) = self.c.lookup(self.log, key)? else { return Ok(()) };
        let found = entries(&item).map_while(Result::ok).find(|e| e.name == name);
        let Some((at, bytes)) = found.map(|e| (e.at, e.bytes)) else { return Ok(()) };
        item.drain(at..at + bytes);
        match item.is_empty() {
            true => self.c.remove_item(self.log, key),
            false => self.c.replace_item(self.log, key, &item),
        }
    }
}
