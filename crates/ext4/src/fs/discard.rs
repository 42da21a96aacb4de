//! `discard`: what a transaction freed is given back to the device once that is durable.
//!
//! Picture:    freed -> list of its transaction, neighbours in one -> commit callback -> the
//!             device, by era in the commit itself (one after the other; together) or by a worker
//!             later -> free for others.
//! Invariants: 1. blocks are discarded when the transaction that freed them has committed, or
//!                failed to unless `discard_committed` is set, and not given out before; data of
//!                data=writeback at once. What the worker discards nobody is given meanwhile.
//!             2. bitmaps, inode tables and descriptors are never discarded.
//!             3. the worker begins nothing once an unmount has asked it to end.
//!             4. who finds no space while the worker holds some waits for it, and it lets the rest
//!                go (`s_retry_alloc_pending`).
//! Left out:   the interruption of a `FITRIM` by a signal.
//! Source:     Linux `fs/ext4/mballoc.c` (`ext4_free_blocks`, `ext4_try_merge_freed_extent`,
//!             `ext4_process_freed_data`, `ext4_discard_work`, `ext4_try_to_trim_range`,
//!             `ext4_trim_fs`), `fs/ext4/balloc.c` (`ext4_should_retry_alloc`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, Sector};
use wp_block::Bio;
use wp_rt::{Rt, WaitQueue};

use super::mount::Ext4;
use super::table_trim::TableTrim;
use crate::site;

/// Blocks of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Freed {
    group: u32,
    start: u32,
    count: u32,
}

impl Freed {
    fn end(&self) -> u32 {
        self.start + self.count
    }

    /// Are they next to each other?
    fn touches(&self, other: &Freed) -> bool {
        self.group == other.group && (self.end() == other.start || other.end() == self.start)
    }
}

/// What is to be discarded.
pub(super) struct Discards {
    /// By transaction, in the order in which the last part of each came (`s_freed_data_list`).
    freed: RefCell<BTreeMap<u32, Vec<Freed>>>,
    /// Freed for good (`s_discard_list`).
    due: RefCell<VecDeque<Freed>>,
    wake: Rc<WaitQueue>,
    /// The worker, when it is asked to end.
    idle: WaitQueue,
    works: Cell<bool>,
    stopped: Cell<bool>,
    /// The worker discards something, or is about to.
    busy: Cell<bool>,
    /// Pieces of free space that nobody is given, and how many were given back.
    held: Cell<u32>,
    returned: Cell<u64>,
    /// Who waits for it for want of space (`s_retry_alloc_pending`).
    hurried: Cell<u32>,
    /// Groups whose free space has all been discarded since something in them was freed.
    trimmed: RefCell<BTreeSet<u32>>,
    /// Least blocks of a piece when that was (`s_last_trim_minblks`).
    last_least: Cell<u32>,
}

impl Discards {
    pub(super) fn new(rt: &Rt) -> Discards {
        Discards {
            freed: RefCell::default(),
            due: RefCell::default(),
            wake: Rc::new(WaitQueue::new(rt, "ext4 discard work")),
            idle: WaitQueue::new(rt, "ext4 discard end"),
            works: Cell::new(false),
            stopped: Cell::new(false),
            busy: Cell::new(false),
            held: Cell::new(0),
            returned: Cell::new(0),
            hurried: Cell::new(0),
            trimmed: RefCell::default(),
            last_least: Cell::new(0),
        }
    }

    /// Something of `group` was freed (`EXT4_MB_GRP_CLEAR_TRIMMED`).
    pub(super) fn untrim(&self, group: u32) {
        self.trimmed.borrow_mut().remove(&group);
    }

    /// Waits until the worker holds no free space: what it has not begun is left to the next
    /// `fstrim`; and if one of those holds some, until it gives a piece back. `false`: nobody does.
    pub(super) async fn hurry(&self) -> bool {
        if self.busy.get() {
            self.hurried.set(self.hurried.get() + 1);
            self.idle.wait_until(|| !self.busy.get()).await;
            self.hurried.set(self.hurried.get() - 1);
            return true;
        }
        if self.held.get() == 0 {
            return false;
        }
        let before = self.returned.get();
        self.idle.wait_until(|| self.returned.get() != before).await;
        true
    }

    /// Blocks that transaction `tid` frees.
    fn add(&self, tid: u32, mut new: Freed) {
        let mut freed = self.freed.borrow_mut();
        let list = freed.entry(tid).or_default();
        while let Some(i) = list.iter().position(|f| f.touches(&new)) {
            let old = list.remove(i);
            new.start = new.start.min(old.start);
            new.count += old.count;
        }
        list.push(new);
    }
}

impl Ext4 {
    /// Has the journal tell of commits, if anybody wants to know.
    pub(super) fn watch_commits(self: &Rc<Self>) {
        self.start_fast_commits();
        if !self.opts.discard && self.opts.table_trim != TableTrim::Safe {
            return;
        }
        let weak = Rc::downgrade(self);
        self.journal().on_each_commit(Rc::new(move |tid| {
            let weak = weak.clone();
            Box::pin(async move {
                if let Some(fs) = weak.upgrade() {
                    fs.table_trims.committed(tid, fs.journal().is_aborted());
                    fs.process_freed(tid).await;
                }
            })
        }));
    }

    /// Starts the worker, in eras that have one.
    pub(super) fn start_discards(self: &Rc<Self>) {
        if self.opts.discard && self.opts.era.discards_in_background() {
            self.discards.works.set(true);
            let (weak, wake) = (Rc::downgrade(self), self.discards.wake.clone());
            self.rt.spawn_daemon(self.opts.conversion_task.as_str(), run(weak, wake));
        }
    }

    /// Ends the worker. What it has not begun is left (`SB_ACTIVE` is gone); waits for the rest.
    pub(super) async fn stop_discards(&self) {
        self.discards.stopped.set(true);
        self.discards.wake.wake_all();
        self.discards.idle.wait_until(|| !self.discards.works.get()).await;
    }

    /// Takes blocks that transaction `tid` freed. With `at_once` nothing waits for its commit.
    /// `false`: there is nothing to discard them with, and whoever asks gives them back.
    pub(super) async fn discard_later(
        &self,
        tid: u32,
        (group, start, count): (u32, u32, u32),
        at_once: bool,
    ) -> bool {
        if !self.opts.discard {
            return false;
        }
        let freed = Freed { group, start, count };
        if at_once || !site::DISCARD_LATER.on() {
            self.send_discard(freed).await;
            return false;
        }
        self.discards.add(tid, freed);
        true
    }

    /// The commit callback (`ext4_process_freed_data`). The kernel's does not ask whether the
    /// commit has failed: then blocks of files that are still there on the device are discarded
    /// (N7).
    async fn process_freed(self: &Rc<Self>, tid: u32) {
        let Some(list) = self.discards.freed.borrow_mut().remove(&tid) else { return };
        let era = &self.opts.era;
        if self.opts.discard_committed && self.journal().is_aborted() {
            return list.iter().for_each(|f| self.give_back(*f));
        }
        if era.discards_in_background() {
            list.iter().for_each(|f| self.give_back(*f));
            self.discards.due.borrow_mut().extend(list);
            self.discards.busy.set(self.discards.works.get());
            return self.discards.wake.wake_all();
        }
        if era.discards_together() {
            let queue = self.bdev.queue();
            let sent: Vec<_> = list.iter().map(|f| queue.send(self.discard_bio(*f))).collect();
            for bio in sent {
                // The device cannot, or would not: it holds what nobody reads.
                let _done = bio.wait().await;
            }
        }
        for freed in list {
            if !era.discards_together() {
                self.send_discard(freed).await;
            }
            self.give_back(freed);
        }
    }

    fn give_back(&self, f: Freed) {
        self.discards.untrim(f.group);
        self.groups.mark(f.group, f.start, f.count, false);
        self.groups.came_back(f.count);
    }

    fn discard_bio(&self, f: Freed) -> Bio {
        let block = self.geo.cluster_start(f.group, f.start);
        let per = self.bs().sectors();
        let count = f.count << self.geo.cluster_bits;
        Bio::discard(Sector(block * u64::from(per)), count * per, Flags::SYNC)
    }

    /// `ext4_issue_discard`. An error tells that the device cannot discard, or did not: it holds
    /// what nobody reads.
    async fn send_discard(&self, f: Freed) {
        let _done = self.bdev.queue().submit_wait(self.discard_bio(f)).await;
    }

    /// Discards what is free of `range`, in pieces of `least` clusters or more; nobody gets a piece
    /// while it is discarded. Returns how many clusters. Source: `ext4_try_to_trim_range`.
    async fn trim(&self, range: Freed, least: u32) -> u32 {
        let (group, end, mut start) = (range.group, range.end(), range.start);
        let blocks = self.geo.clusters_in_group(group);
        let beyond = self.opts.era.trims_beyond();
        let (mut done, mut seen, mut to_end) = (0, 0, range.start == 0 && end >= blocks - 1);
        loop {
            let run = self.groups.with(group, |bits| {
                let from = bits.next(start, true).filter(|from| *from < end)?;
                let to = bits.next(from, false).unwrap_or(blocks);
                Some((from, if beyond { to } else { to.min(end) }, bits.free_blocks()))
            });
            let Some((from, to, free)) = run else { break };
            to_end |= range.start == 0 && to >= blocks - 1;
            let piece = Freed { group, start: from, count: to - from };
            if piece.count >= least {
                self.groups.mark(group, from, piece.count, true);
                self.discards.held.set(self.discards.held.get() + 1);
                self.send_discard(piece).await;
                self.groups.mark(group, from, piece.count, false);
                self.discards.held.set(self.discards.held.get() - 1);
                self.discards.returned.set(self.discards.returned.get() + 1);
                self.discards.idle.wake_all();
                done += piece.count;
            }
            seen += piece.count;
            start = to + 1;
            if free.saturating_sub(seen) < least {
                break;
            }
        }
        if to_end {
            self.discards.trimmed.borrow_mut().insert(group);
        }
        done
    }

    /// `FITRIM`: discards free space from byte `start` on, `len` bytes of the file system, in
    /// pieces of at least `least` bytes. Returns how many bytes were discarded.
    ///
    /// Errors: `Invalid` for a range that holds no block, or pieces longer than a group;
    ///         `Unsupported` if the device does not discard; `ReadOnly`.
    /// Source: `ext4_trim_fs`.
    pub(super) async fn fstrim(self: &Rc<Self>, start: u64, len: u64, least: u64) -> FsResult<u64> {
        let limits = self.bdev.queue().limits();
        if !limits.discard {
            return Err(FsError::Unsupported("discard: the device has none".into()));
        }
        if !self.mounted.get() {
            return Err(FsError::ReadOnly);
        }
        let block = u64::from(self.bs().bytes());
        let group = self.geo.clusters_in_group(0);
        let clusters = |bytes: u64| self.geo.clusters_of(bytes / block);
        let (first, all) = (start / block, self.geo.blocks_count);
        if clusters(least) > u64::from(group) || first >= all || len < block {
            return Err(FsError::Invalid("fstrim: range of bytes"));
        }
        let unit = u64::from(limits.discard_granularity_sectors) * wp_base::SECTOR_BYTES;
        // More than 32 bits count is more than a group has.
        let least = u32::try_from(clusters(least.max(unit))).unwrap_or(u32::MAX);
        let last = first.saturating_add(len / block - 1).min(all - 1);
        let begin = u64::from(self.geo.first_data_block);
        if least > group || last <= begin {
            return Ok(0);
        }
        let at =
            |n: u64| self.geo.locate_cluster(n).ok_or(FsError::Invalid("fstrim: range of bytes"));
        let ((first_group, first_bit), (last_group, last_bit)) = (at(first.max(begin))?, at(last)?);
        let mut done = 0;
        for group in first_group..=last_group {
            let (start, blocks) = (self.geo.group_start(group), self.geo.blocks_in_group(group));
            if first <= start.max(begin) && last + 1 >= start + u64::from(blocks) {
                done += self.fstrim_table(group).await?;
            }
            self.load_group(group).await?;
            if self.groups.with(group, |bits| bits.free_blocks()) < least.max(1) {
                continue;
            }
            let was = self.discards.trimmed.borrow().contains(&group);
            if was && least >= self.discards.last_least.get() {
                continue;
            }
            let from = if group == first_group { first_bit } else { 0 };
            let end =
                if group == last_group { last_bit + 1 } else { self.geo.clusters_in_group(group) };
            let range = Freed { group, start: from, count: end.saturating_sub(from) };
            done += u64::from(self.trim(range, least.max(1)).await) << self.geo.cluster_bits;
        }
        self.discards.last_least.set(least);
        self.table_trims_done().await;
        Ok(done * block)
    }
}

/// The worker's task.
async fn run(weak: Weak<Ext4>, wake: Rc<WaitQueue>) {
    loop {
        let Some(fs) = weak.upgrade() else { return };
        let stopped = fs.discards.stopped.get();
        let next = if stopped { None } else { fs.discards.due.borrow_mut().pop_front() };
        match next {
            // Whoever waits for space has it at once.
            Some(_) if fs.discards.hurried.get() > 0 => {}
            Some(freed) => {
                fs.trim(freed, 1).await;
            }
            None if stopped => {
                fs.discards.works.set(false);
                fs.discards.busy.set(false);
                return fs.discards.idle.wake_all();
            }
            None => {
                fs.discards.busy.set(false);
                fs.discards.idle.wake_all();
                let woken = wake.wait();
                drop(fs);
                woken.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_transaction_are_one() {
        let discards = Discards::new(&Rt::new(1));
        let freed = |group, start, count| Freed { group, start, count };
        for (tid, f) in [
            (1, freed(0, 10, 5)),
            (1, freed(0, 20, 5)),
            (2, freed(0, 15, 5)),
            (1, freed(1, 15, 5)),
            (1, freed(0, 40, 1)),
            (1, freed(0, 15, 5)),
        ] {
            discards.add(tid, f);
        }
        let lists = discards.freed.borrow();
        assert_eq!(lists[&1], [freed(1, 15, 5), freed(0, 40, 1), freed(0, 10, 15)]);
        assert_eq!(lists[&2], [freed(0, 15, 5)], "of another transaction");
    }
}
