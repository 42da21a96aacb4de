//! Extents and their checksums in the log.
//!
//! Source: fs/btrfs/tree-log.c (`btrfs_log_changed_extents`, `log_one_extent`,
//! `btrfs_log_prealloc_extents`, `btrfs_log_holes`).

use wp_base::FsResult;
use zerocopy::IntoBytes;

use crate::disk::file_extent::{FileExtentItem, extent_type};
use crate::disk::{FileExtent, Key, id, kind};
use crate::items::FilePart;
use crate::site;

use super::super::BLOCK;
use super::super::inode::Inode;
use super::super::ordered::Place;
use super::Log;

impl Log<'_> {
    /// Copies an extent that this transaction has made, with the checksums of its data; of an
    /// inode that shared extents in this transaction also older ones, which may be new to it. Their
    /// checksums the last commit has. `copy_items`.
    pub fn copy_extent(&mut self, inode: &Inode, key: Key, bytes: &[u8]) -> FsResult<()> {
        match FileExtent::load(key, bytes, 0)? {
            FileExtent::Inline(..) => self.put(key, bytes),
            FileExtent::Regular(e) if e.head.generation.get() >= self.transid => {
                self.put(key, bytes)?;
                self.sums_of(inode, &e, e.num_bytes.get())
            }
            FileExtent::Regular(_)
                if inode.logged.last_reflink.get() >= self.transid
                    || self.era().copies_old_extents() =>
            {
                self.put(key, bytes)
            }
            FileExtent::Regular(_) => Ok(()),
        }
    }

    /// Checksums of what an item leads to, out of the tree of checksums.
    fn sums_of(&mut self, inode: &Inode, e: &FileExtentItem, bytes: u64) -> FsResult<()> {
        let is_data = e.has_place() && e.head.kind == extent_type::REGULAR;
        if !is_data || !inode.has_sums() {
            return Ok(());
        }
        let at = e.disk_bytenr.get() + e.offset.get();
        let sums = self.c.csums(id::CSUM_TREE, at, bytes / BLOCK)?;
        let mut run: (u64, Vec<u8>) = (at, Vec::new());
        for (n, sum) in (0..).zip(sums) {
            let here = at + n * BLOCK;
            match sum {
                Some(sum) => {
                    if run.1.is_empty() {
                        run.0 = here;
                    }
                    run.1.extend(sum);
                }
                None => self.put_sums(std::mem::take(&mut run))?,
            }
        }
        self.put_sums(run)
    }

    /// `log_csums`: what is there of these addresses goes first, as they may overlap.
    fn put_sums(&mut self, (at, sums): (u64, Vec<u8>)) -> FsResult<()> {
        if sums.is_empty() || !site::LOG_SUMS.on() {
            Ok(())
        } else {
            self.c.insert_csums(self.log, at, &sums)
        }
    }

    /// Holes, so that replay drops what was there: with NO_HOLES they have no items to be copied.
    /// `btrfs_log_holes`.
    pub fn log_holes(&mut self, inode: &Inode) -> FsResult<()> {
        if !site::LOG_HOLES.on() {
            return Ok(());
        }
        let end = inode.size().next_multiple_of(BLOCK);
        let parts = self.c.parts(inode.tree, inode.ino, 0, end)?;
        let mut at = 0;
        for p in &parts {
            if p.start > at {
                self.hole(inode.ino, at, p.start)?;
            }
            at = p.end.next_multiple_of(BLOCK);
        }
        if at < end { self.hole(inode.ino, at, end) } else { Ok(()) }
    }

    fn hole(&mut self, ino: u64, from: u64, to: u64) -> FsResult<()> {
        let item = FileExtentItem::new(extent_type::REGULAR, self.transid, (0, 0), 0, to - from);
        self.put(Key::new(ino, kind::EXTENT_DATA, from), item.as_bytes())
    }

    /// Logs the space behind the end of the file. A preallocated extent that begins before the end
    /// is left as the log has it: a part of it may be written and in flight.
    /// `btrfs_log_prealloc_extents`. Replay drops what is behind the end and not in the log, so
    /// synced space is lost while a write to its front is in flight; with the fix, the space behind
    /// the end is logged as an item of its own.
    pub fn log_prealloc(&mut self, inode: &Inode) -> FsResult<()> {
        if !inode.has(crate::disk::inode::flag::PREALLOC)
            || self.old().prealloc
            || !site::LOG_PREALLOC.on()
        {
            return Ok(());
        }
        let end = inode.size().next_multiple_of(BLOCK);
        let parts = self.c.parts(inode.tree, inode.ino, end, u64::MAX)?;
        let mut behind = end;
        let mut has_dropped = false;
        for p in parts.into_iter().filter(FilePart::is_prealloc) {
            if p.start >= end {
                if !has_dropped {
                    // What an earlier fsync has logged there may be a hole now.
                    has_dropped = true;
                    self.c.drop_extents(self.log, inode.ino, behind.min(p.start), u64::MAX)?;
                }
                self.put_part(inode, &p)?;
            } else {
                behind = behind.max(p.end);
                if self.fs.opts.mend.space {
                    self.put_part(inode, &p.behind(end))?;
                }
            }
        }
        Ok(())
    }

    /// The space behind `size` that the last commit has: replay would drop it with all that is
    /// behind the length in the log. No Linux does.
    pub fn keep_prealloc(&mut self, inode: &Inode, size: u64) -> FsResult<()> {
        let (tree, end) = (self.tree, size.next_multiple_of(BLOCK));
        let parts = self.c.with_committed(tree, |c, old| c.parts(old, inode.ino, end, u64::MAX))?;
        for p in parts.into_iter().filter(FilePart::is_prealloc) {
            self.put_part(inode, &if p.start < end { p.behind(end) } else { p })?;
        }
        Ok(())
    }

    /// One item over whatever the log has there.
    fn put_part(&mut self, inode: &Inode, p: &FilePart) -> FsResult<()> {
        let Some(item) = p.item else { return Ok(()) };
        self.c.drop_extents(self.log, inode.ino, p.start, p.end)?;
        self.put(Key::new(inode.ino, kind::EXTENT_DATA, p.start), item.as_bytes())?;
        self.sums_of(inode, &item, p.end - p.start)
    }

    /// A hole over whatever the log has there.
    fn put_hole(&mut self, ino: u64, from: u64, to: u64) -> FsResult<()> {
        if from >= to || !site::LOG_HOLES.on() {
            return Ok(());
        }
        self.c.drop_extents(self.log, ino, from, to)?;
        self.hole(ino, from, to)
    }

    /// What was changed since it was logged last: extents that have items and the holes between
    /// them, then extents on their way, which the commit of this transaction waits for then.
    /// `btrfs_log_changed_extents`.
    pub fn changed_extents(&mut self, inode: &Inode) -> FsResult<()> {
        let (trans, runs) = inode.logged.modified.take();
        if trans == self.transid {
            for (start, bytes) in runs.iter() {
                let end = start + bytes;
                let mut at = start;
                for p in self.c.parts(inode.tree, inode.ino, start, end)? {
                    self.put_hole(inode.ino, at, p.start)?;
                    at = at.max(p.end.next_multiple_of(BLOCK));
                    let is_new = p.item.is_some_and(|i| i.head.generation.get() >= self.transid);
                    if is_new {
                        self.put_part(inode, &p)?;
                    }
                }
                self.put_hole(inode.ino, at, end)?;
            }
        }
        self.log_prealloc(inode)?;
        for o in std::mem::take(&mut self.ordered) {
            if o.is_logged.replace(true) || o.has_failed.get() || !site::LOG_ON_THEIR_WAY.on() {
                continue;
            }
            let kept = o.kept.get();
            if o.place != Place::Same && kept > 0 {
                self.c.drop_extents(self.log, inode.ino, o.start, o.start + kept)?;
                let item = o.item(self.transid);
                let key = Key::new(inode.ino, kind::EXTENT_DATA, o.start);
                self.put(key, item.as_bytes())?;
            }
            for (at, sums) in o.sums.borrow().iter().filter(|_| site::LOG_SUMS.on()) {
                self.c.insert_csums(self.log, *at, sums)?;
            }
            if inode.ordered.borrow().values().any(|n| std::rc::Rc::ptr_eq(n, &o))
                && !o.is_awaited.replace(true)
            {
                let pending = &self.fs.commits.pending;
                pending.set(pending.get() + 1);
            }
        }
        Ok(())
    }
}
