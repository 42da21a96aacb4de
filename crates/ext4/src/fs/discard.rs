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
//! Left out:   `fstrim`. The kernel's worker gives up for who finds no space
//!             (`s_retry_alloc_pending`); here he is told that there is none.
//! Source:     Linux `fs/ext4/mballoc.c` (`ext4_free_blocks`, `ext4_try_merge_freed_extent`,
//!             `ext4_process_freed_data`, `ext4_discard_work`, `ext4_try_to_trim_range`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use wp_base::Sector;
use wp_base::event::Flags;
use wp_block::Bio;
use wp_rt::{Rt, WaitQueue};

use super::mount::Ext4;
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
        }
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
    /// Starts the worker, and has the journal tell of commits.
    pub(super) fn start_discards(self: &Rc<Self>) {
        if !self.opts.discard {
            return;
        }
        let weak = Rc::downgrade(self);
        self.journal().on_each_commit(Rc::new(move |tid| {
            let weak = weak.clone();
            Box::pin(async move {
                if let Some(fs) = weak.upgrade() {
                    fs.process_freed(tid).await;
                }
            })
        }));
        if self.opts.era.discards_in_background {
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
        if era.discards_in_background {
            list.iter().for_each(|f| self.give_back(*f));
            self.discards.due.borrow_mut().extend(list);
            return self.discards.wake.wake_all();
        }
        if era.discards_together {
            let queue = self.bdev.queue();
            let sent: Vec<_> = list.iter().map(|f| queue.send(self.discard_bio(*f))).collect();
            for bio in sent {
                // The device cannot, or would not: it holds what nobody reads.
                let _done = bio.wait().await;
            }
        }
        for freed in list {
            if !era.discards_together {
                self.send_discard(freed).await;
            }
            self.give_back(freed);
        }
    }

    fn give_back(&self, f: Freed) {
        self.groups.mark(f.group, f.start, f.count, false);
        self.groups.came_back(f.count);
    }

    fn discard_bio(&self, f: Freed) -> Bio {
        let block = self.geo.group_start(f.group) + u64::from(f.start);
        let per = self.bs().sectors();
        Bio::discard(Sector(block * u64::from(per)), f.count * per, Flags::SYNC)
    }

    /// `ext4_issue_discard`. An error tells that the device cannot discard, or did not: it holds
    /// what nobody reads.
    async fn send_discard(&self, f: Freed) {
        let _done = self.bdev.queue().submit_wait(self.discard_bio(f)).await;
    }

    /// What is free of blocks that were freed, piece by piece; nobody gets a piece while it is
    /// discarded (`ext4_try_to_trim_range`).
    async fn trim(&self, freed: Freed) {
        let (group, end, mut start) = (freed.group, freed.end(), freed.start);
        loop {
            let run = self.groups.with(group, |bits| {
                let from = bits.next(start, true).filter(|from| *from < end)?;
                Some((from, bits.next(from, false).unwrap_or(end).min(end)))
            });
            let Some((from, to)) = run else { return };
            let piece = Freed { group, start: from, count: to - from };
            self.groups.mark(group, from, piece.count, true);
            self.send_discard(piece).await;
            self.groups.mark(group, from, piece.count, false);
            start = to;
        }
    }
}

/// The worker's task.
async fn run(weak: Weak<Ext4>, wake: Rc<WaitQueue>) {
    loop {
        let Some(fs) = weak.upgrade() else { return };
        let stopped = fs.discards.stopped.get();
        let next = if stopped { None } else { fs.discards.due.borrow_mut().pop_front() };
        match next {
            Some(freed) => fs.trim(freed).await,
            None if stopped => {
                fs.discards.works.set(false);
                return fs.discards.idle.wake_all();
            }
            None => {
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
