//! The commit: whether a fast one will do, and what it writes.
//!
//! Source: Linux 6.12 `ext4_fc_commit`, `ext4_fc_perform_commit`.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_jbd2::FastBegin;
use wp_jbd2::disk::tid_after;
use wp_rt::soon;

use super::records::Records;
use super::{NameChange, Tracked};
use crate::disk::fast_commit::{AddRange, DelRange, Head, NameHead, tag};
use crate::disk::{self, Extent};
use crate::fs::extents::longest;
use crate::fs::inode::Inode;
use crate::fs::mount::Ext4;
use crate::site;

impl Ext4 {
    /// Makes the changes of a file in transaction `tid` durable, by a fast commit, which is of all
    /// files, or by an i-transaction, where one will do.
    ///
    /// Waits: for the commit under way; for open handles (until 6.15 for the whole of it); for the
    /// blocks of the commit. Errors: `Io`.
    pub(in crate::fs) async fn fast_commit(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        tid: u32,
    ) -> FsResult<()> {
        if !self.fast.is_on() {
            return self.journal().complete_transaction(tid).await;
        }
        match self.opts.fast.ijournal {
            true => Box::pin(self.sync_one(inode, tid)).await,
            false => self.fast_commit_all(tid).await,
        }
    }

    /// A fast commit of all that is tracked (`ext4_fc_commit`).
    async fn fast_commit_all(self: &Rc<Self>, tid: u32) -> FsResult<()> {
        let (fast, journal) = (&self.fast, self.journal());
        let done = fast.done.get();
        loop {
            match journal.begin_fast(tid).await {
                Ok(FastBegin::Started) => break,
                Ok(FastBegin::Over) => {
                    // Somebody's fast commit since then had these changes in it.
                    let had_it = fast.done.get() > done && !self.opts.fast.fixes.company;
                    if !had_it && tid_after(tid, journal.commit_sequence()) {
                        continue;
                    }
                    journal.count_fast(|c| c.skipped += 1);
                    return Ok(());
                }
                Ok(FastBegin::TooEarly) | Err(_) => {
                    journal.count_fast(|c| c.failed += 1);
                    return journal.complete_transaction(tid).await;
                }
            }
        }
        if self.opts.era.fast_locks_updates() && site::FAST_LOCK.on() {
            journal.lock_updates().await;
        }
        match self.write_fast().await {
            Ok(Some(blocks)) => {
                fast.done.set(fast.done.get().wrapping_add(1));
                journal.count_fast(|c| {
                    c.commits += 1;
                    c.blocks += blocks as u64;
                    c.single += u64::from(blocks == 1);
                });
                journal.end_fast();
                Ok(())
            }
            Ok(None) => {
                journal.count_fast(|c| c.ineligible += 1);
                journal.end_fast_in_full().await
            }
            Err(_) => {
                journal.count_fast(|c| c.failed += 1);
                journal.end_fast_in_full().await
            }
        }
    }

    /// Writes what was tracked, and waits for it. Returns the blocks; `None`: the file system is
    /// ineligible. Errors: `NoSpace` if the area is full, `Io`.
    async fn write_fast(self: &Rc<Self>) -> FsResult<Option<usize>> {
        let (fast, journal) = (&self.fast, self.journal());
        if fast.ineligible.get() {
            return Ok(None);
        }
        let mut inodes = self.fast_inodes();
        let had_data = self.write_ordered_of(&inodes).await?;
        if !self.opts.era.fast_locks_updates() {
            // Handles go on; who would change one of these inodes waits.
            if site::FAST_LOCK.on() {
                journal.lock_updates().await;
            }
            inodes = self.fast_inodes();
            for inode in &inodes {
                inode.fast.set(Tracked { committing: true, ..inode.fast.get() });
            }
            journal.unlock_updates();
            if fast.ineligible.get() {
                return Ok(None);
            }
        }
        let barrier = self.opts.barrier;
        let mut records = self.new_records(0);
        records.spare = u32::from(self.opts.fast.fixes.area);
        let tid = journal.running_tid().ok_or(FsError::Io)?;
        let plug = self.bdev.queue().plug();
        self.put_all(&mut records, tid, &inodes).await?;
        let alone = records.writes.is_empty() && !had_data;
        let flushes = !(self.opts.fast.selective_flush && alone);
        journal.count_fast(|c| c.without_flush += u64::from(barrier && !flushes));
        self.end_records(&mut records, self.opts.fast.fixes.blocks, flushes).await?;
        drop(plug);
        if site::FAST_WAIT.on() {
            records.writes.wait(records.writes.len()).await?;
        }
        let forced = barrier && site::FAST_FIRST.on();
        let first = if forced { Flags::PREFLUSH | Flags::FUA } else { Flags::NONE };
        records.submit_first(first)?;
        let blocks = records.writes.len();
        if site::FAST_WAIT.on() {
            records.writes.wait(blocks).await?;
        }
        Ok(Some(blocks))
    }

    /// No records yet, for a part of the area.
    pub(super) fn new_records(&self, part: u32) -> Records<'_> {
        let (journal, era) = (self.journal(), &self.opts.era);
        let flags = match era.fast_writes_as_log() {
            true => journal.options().era.log_flags(),
            false => Flags::SYNC,
        };
        let each = self.opts.barrier && era.fast_flushes_every_block() && site::FAST_EACH.on();
        let others = if each { Flags::PREFLUSH | Flags::FUA } else { Flags::NONE };
        Records::new((journal, part), &self.rt, self.bs().bytes(), flags, others)
    }

    /// Submits the tail, for which the other blocks are waited for, or not; `flushes`: what was
    /// written before is durable before it.
    pub(super) async fn end_records(
        &self,
        records: &mut Records<'_>,
        waits: bool,
        flushes: bool,
    ) -> FsResult<()> {
        if waits {
            records.writes.wait(records.writes.len()).await?;
        }
        let mut extra = Flags::NONE;
        if self.opts.barrier && flushes && site::FAST_FLUSH.on() {
            extra |= Flags::PREFLUSH;
        }
        if self.opts.barrier && site::FAST_FUA.on() {
            extra |= Flags::FUA;
        }
        records.submit_tail(extra)
    }

    /// Puts all records; the tail's block is not submitted yet.
    async fn put_all(
        self: &Rc<Self>,
        records: &mut Records<'_>,
        tid: u32,
        inodes: &[Rc<Inode>],
    ) -> FsResult<()> {
        let is_first = self.fast.is_first.replace(false);
        if is_first && self.opts.fast.fixes.head {
            records.hold_first();
        }
        if is_first && site::FAST_HEAD.on() {
            records.put_of(tag::HEAD, &Head { features: 0.into(), tid: tid.into() }).await?;
        }
        let names = self.fast.main.borrow().names.clone();
        for change in &names {
            self.put_name(records, change).await?;
        }
        // What has no name ends with a power failure: it need not be there.
        let is_logged = |i: &&Rc<Inode>| i.nlink() > 0 || !self.opts.fast.fixes.unlinked;
        for inode in inodes.iter().filter(is_logged) {
            self.put_ranges(records, inode).await?;
            self.put_raw(records, inode).await?;
        }
        records.end(tid).await
    }

    /// The inodes that the commit is of.
    fn fast_inodes(&self) -> Vec<Rc<Inode>> {
        let (all, main) = (self.inodes.borrow(), self.fast.main.borrow());
        main.inodes.iter().filter_map(|i| all.get(u64::from(*i)).cloned()).collect()
    }

    /// Sends the ordered data of files that the commit names, and waits for it. Was there any?
    pub(super) async fn write_ordered_of(&self, inodes: &[Rc<Inode>]) -> FsResult<bool> {
        let journal = self.journal();
        let files: Vec<_> = inodes.iter().filter_map(|i| i.jinode.borrow().clone()).collect();
        let mut had_data = false;
        for file in &files {
            had_data |= journal.submit_inode(file).await?;
        }
        for file in &files {
            had_data |= journal.wait_inode(file).await?;
        }
        Ok(had_data)
    }

    /// A name; before a new one its inode, so that a replay finds it.
    pub(super) async fn put_name(
        self: &Rc<Self>,
        records: &mut Records<'_>,
        change: &NameChange,
    ) -> FsResult<()> {
        if change.op == tag::CREAT {
            let inode = soon!(self.inode(change.ino))?;
            self.put_raw(records, &inode).await?;
            self.put_ranges(records, &inode).await?;
        }
        let head = NameHead { parent: change.parent.into(), ino: change.ino.into() };
        let bytes = zerocopy::IntoBytes::as_bytes(&head);
        records.put(change.op, &[bytes, &change.name]).await
    }

    /// An inode as its table block has it (`ext4_fc_write_inode`).
    pub(super) async fn put_raw(
        self: &Rc<Self>,
        records: &mut Records<'_>,
        inode: &Inode,
    ) -> FsResult<()> {
        let table = self.itable_buffer(inode.ino).await?;
        let slot = self.geo.inode_slot(inode.ino).ok_or(FsError::Invalid("inode number"))?;
        let mut len = disk::Inode::BYTES;
        if usize::from(self.geo.inode_bytes) > len {
            len += usize::from(inode.extra.borrow().extra_isize.get());
        }
        let at = slot.offset as usize;
        let raw = table.with(|b| b[at..at + len].to_vec());
        records.put(tag::INODE, &[&inode.ino.to_le_bytes(), &raw]).await
    }

    /// Where the blocks of the tracked range are (`ext4_fc_write_inode_data`).
    pub(super) async fn put_ranges(
        self: &Rc<Self>,
        records: &mut Records<'_>,
        inode: &Inode,
    ) -> FsResult<()> {
        let tracked = inode.fast.get();
        inode.fast.set(Tracked { len: 0, ..tracked });
        let ino = inode.ino.into();
        let (mut at, end) =
            (u64::from(tracked.start), u64::from(tracked.start) + u64::from(tracked.len));
        while at < end {
            let left = end - at;
            match soon!(self.lookup(inode, at))? {
                Ok(run) => {
                    let blocks = run.len.min(longest(run.unwritten)).min(left as u32);
                    let extent = Extent::new(at as u32, run.phys, blocks, run.unwritten);
                    records.put_of(tag::ADD_RANGE, &AddRange { ino, extent }).await?;
                    at += u64::from(blocks);
                }
                Err(hole) => {
                    let blocks = hole.clamp(1, left) as u32;
                    let gone = DelRange { ino, logical: (at as u32).into(), blocks: blocks.into() };
                    records.put_of(tag::DEL_RANGE, &gone).await?;
                    at += u64::from(blocks);
                }
            }
        }
        Ok(())
    }
}
