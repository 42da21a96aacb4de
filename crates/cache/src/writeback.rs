//! One device's flusher: who is cleaned, when, and how much.
//!
//! Picture:    dirty list (by age) -> io list -> `Mapping::writepages`. A tick every 5 s writes
//!             what is older than 30 s; work items (sync) and the background limit write at once.
//! Units:      ages are in jiffies, as in the kernel: whether a mapping that was dirtied a
//!             millisecond after another expires at the same tick depends on that, and is seen in
//!             the traces.
//! Source:     `fs/fs-writeback.c` (`wb_check_old_data_flush`, `queue_io`, `wb_writeback`),
//!             `mm/page-writeback.c` (`balance_dirty_pages`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use wp_base::{FsResult, Span, Time};
use wp_block::Partition;
use wp_rt::{Completion, Rt, Ticks, WaitQueue};

use crate::dirty_list::DirtyList;
use crate::errseq::ErrSeq;
use crate::mapping::{Mapping, WbControl};
use crate::share::Share;

/// Blocks that one mapping may write before the next one has its turn (`MAX_WRITEBACK_PAGES`).
const CHUNK_BLOCKS: u64 = 1024;

/// How a flusher behaves: kernel settings and what differs between eras.
#[derive(Clone, Debug)]
pub struct WbPolicy {
    /// Name of the flusher's task as traces show it: `flush-8:16`, later `kworker/u4:1`.
    pub task: String,
    /// Timer ticks a second. 250 is what the paper's distributions and the reference kernels use.
    pub hz: u64,
    /// `dirty_writeback_centisecs`: how often the flusher looks (5 s).
    pub interval: Span,
    /// `dirty_expire_centisecs`: the age at which data must be written (30 s).
    pub expire: Span,
    /// One plug around all inodes of a pass ("writeback: plug writeback at a high level", 4.3)
    /// rather than one an inode: neighbouring files' blocks then share a request.
    pub plug_across_inodes: bool,
    /// Timers are kept in a wheel without cascading (4.8): see [`wp_rt::Ticks`].
    pub wheel_timers: bool,
    /// The flusher is a thread of its own and not a kworker (before 3.10): between two looks it
    /// sleeps by `schedule_timeout`, which knows no slack.
    pub own_thread: bool,
    /// Dirty blocks above which the flusher starts by itself (`dirty_background_ratio`).
    pub background_blocks: u64,
    /// Dirty blocks above which writers wait (`dirty_ratio`).
    pub dirty_blocks: u64,
    /// Blocks that other devices had written shortly before. The background limit is shared by what
    /// each has written lately: where others have, a device that has written nothing for some
    /// seconds has no part of it, and its flusher writes at its next look all that is dirty
    /// (`wb_over_bg_thresh`). To the flusher a file system can be a device of its own, beside the
    /// block device through which mkfs wrote (`super_setup_bdi`).
    pub others_wrote: u64,
}

impl Default for WbPolicy {
    fn default() -> WbPolicy {
        WbPolicy {
            task: "kworker/u4:1".to_owned(),
            hz: 250,
            interval: Span::secs(5),
            expire: Span::secs(30),
            plug_across_inodes: true,
            wheel_timers: false,
            own_thread: false,
            // 10 % and 20 % of the 6 GB of the paper's PC, in 4 KiB blocks.
            background_blocks: 157_000,
            dirty_blocks: 314_000,
            others_wrote: 0,
        }
    }
}

struct Work {
    sync: bool,
    /// Files only, not the device's own mapping: the work is for one super block.
    files_only: bool,
    done: Rc<Completion>,
}

/// A device's flusher.
pub struct Writeback {
    rt: Rt,
    policy: WbPolicy,
    part: Partition,
    /// Dirty mappings, without those that the flusher has in hand (`b_dirty`).
    dirty: RefCell<DirtyList<Mapping>>,
    /// The flusher has some in hand (`b_io`, `b_more_io`).
    in_hand: Cell<bool>,
    works: RefCell<VecDeque<Work>>,
    wake: Rc<WaitQueue>,
    /// Jiffy at which the flusher looks next; `None`: when somebody calls it.
    next_look: Cell<Option<u64>>,
    last_old_flush: Cell<Option<u64>>,
    nr_dirty: Cell<u64>,
    nr_writeback: Cell<u64>,
    /// Those of them that are files', not the device's own.
    files_writeback: Cell<u64>,
    /// Blocks ever sent to be written.
    nr_written: Cell<u64>,
    /// Dirty blocks that are in no mapping.
    dirty_elsewhere: Cell<u64>,
    /// `None`: no others have written.
    share: Option<Share>,
    /// Failed writes of any of its mappings (`s_wb_err`).
    errors: ErrSeq,
    room: WaitQueue,
    idle: WaitQueue,
    stopped: Cell<bool>,
    /// The last pass above the background limit could write nothing: wait for time or a call.
    stuck: Cell<bool>,
}

impl Writeback {
    /// A flusher for what lies on `part`, with its task started.
    pub fn new(rt: &Rt, part: Partition, policy: WbPolicy) -> Rc<Writeback> {
        let ticks = Ticks { hz: policy.hz, wheel: policy.wheel_timers };
        let wb = Rc::new(Writeback {
            dirty_elsewhere: Cell::new(0),
            share: (policy.others_wrote > 0)
                .then(|| Share::new(ticks, ticks.at(rt.now()), policy.others_wrote)),
            rt: rt.clone(),
            part,
            dirty: RefCell::default(),
            in_hand: Cell::new(false),
            works: RefCell::default(),
            wake: Rc::new(WaitQueue::new(rt, "flusher work")),
            next_look: Cell::new(None),
            last_old_flush: Cell::new(None),
            nr_dirty: Cell::new(0),
            nr_writeback: Cell::new(0),
            files_writeback: Cell::new(0),
            nr_written: Cell::new(0),
            errors: ErrSeq::default(),
            room: WaitQueue::new(rt, "dirty limit"),
            idle: WaitQueue::new(rt, "all writeback"),
            stopped: Cell::new(false),
            stuck: Cell::new(false),
            policy,
        });
        // The task holds the flusher weakly between rounds, so that a dropped world is freed.
        let (weak, wake) = (Rc::downgrade(&wb), wb.wake.clone());
        rt.spawn_daemon(wb.policy.task.as_str(), run(weak, wake, rt.clone()));
        wb
    }

    /// The policy it follows.
    pub fn policy(&self) -> &WbPolicy {
        &self.policy
    }

    /// Timer ticks since power-on.
    pub fn jiffies(&self) -> u64 {
        self.jiffies_of(self.rt.now())
    }

    fn ticks(&self) -> Ticks {
        Ticks { hz: self.policy.hz, wheel: self.policy.wheel_timers }
    }

    fn jiffies_of(&self, at: Time) -> u64 {
        self.ticks().at(at)
    }

    fn time_of(&self, jiffies: u64) -> Time {
        self.ticks().time(jiffies)
    }

    fn span_jiffies(&self, span: Span) -> u64 {
        self.ticks().of(span)
    }

    /// The jiffy of the next look, an interval from now; `woken` by whoever makes the first thing
    /// dirty (`bdi_wakeup_thread_delayed`), not by the flusher itself.
    fn alarm(&self, woken: bool) -> u64 {
        let now = self.jiffies();
        let at = now + self.span_jiffies(self.policy.interval);
        if self.policy.own_thread && !woken {
            return at;
        }
        self.ticks().fires(now, at)
    }

    /// Failed writes of any file or of metadata, as `syncfs` tells of them (`s_wb_err`, 5.8).
    pub fn errors(&self) -> &ErrSeq {
        &self.errors
    }

    /// Blocks dirty now, over all mappings.
    pub fn dirty_blocks(&self) -> u64 {
        self.nr_dirty.get()
    }

    pub(crate) fn account_dirty(&self, blocks: u64) {
        self.nr_dirty.set(self.nr_dirty.get() + blocks);
        if self.nr_dirty.get() == self.policy.background_blocks + 1 {
            self.wake.wake_all();
        }
    }

    pub(crate) fn account_clean(&self, blocks: u64) {
        self.nr_dirty.set(self.nr_dirty.get() - blocks);
    }

    /// Dirty blocks were thrown away: that makes room as well.
    pub(crate) fn account_dropped(&self, blocks: u64) {
        self.account_clean(blocks);
        self.room.wake_all();
    }

    pub(crate) fn account_submitted(&self, blocks: u64, device: bool) {
        if !device {
            self.files_writeback.set(self.files_writeback.get() + blocks);
        }
        self.nr_writeback.set(self.nr_writeback.get() + blocks);
        self.nr_written.set(self.nr_written.get() + blocks);
    }

    pub(crate) fn account_written(&self, blocks: u64, device: bool) {
        self.nr_writeback.set(self.nr_writeback.get() - blocks);
        self.note_written(blocks);
        if !device {
            self.files_writeback.set(self.files_writeback.get() - blocks);
        }
        if self.nr_writeback.get() == 0 || (!device && self.files_writeback.get() == 0) {
            self.idle.wake_all();
        }
        self.room.wake_all();
    }

    /// So many blocks have arrived that are in no mapping of its own.
    pub fn note_written(&self, blocks: u64) {
        if let Some(share) = &self.share {
            share.add(self.jiffies(), blocks);
        }
    }

    /// So many blocks are dirty that are in no mapping: they count against the share.
    pub fn set_dirty_elsewhere(&self, blocks: u64) {
        self.dirty_elsewhere.set(blocks);
    }

    /// Is more dirty than the device's share of the background limit? `wb_over_bg_thresh`.
    fn is_over_share(&self) -> bool {
        let Some(share) = &self.share else { return false };
        let dirty = self.nr_dirty.get() + self.dirty_elsewhere.get();
        dirty > share.of(self.policy.background_blocks, self.jiffies())
    }

    /// Puts a mapping that has just become dirty on the list, and sets the alarm if it is the
    /// first.
    pub(crate) fn enqueue(&self, map: &Rc<Mapping>) {
        let mut dirty = self.dirty.borrow_mut();
        if dirty.is_empty() && self.next_look.get().is_none() {
            self.next_look.set(Some(self.alarm(true)));
            self.wake.wake_all();
        }
        dirty.push_back(map.clone());
    }

    /// Somebody else than the flusher has written an inode to its block
    /// (`writeback_single_inode`): clean, its mapping leaves the list; with dirty pages it is the
    /// youngest there. Nothing happens to one that the flusher has in hand.
    pub fn inode_written(&self, map: &Mapping) {
        let mut dirty = self.dirty.borrow_mut();
        let Some(map) = dirty.remove(map) else { return };
        if map.has_dirty() {
            dirty.push_back(map);
        } else {
            map.set_dirtied(None);
        }
    }

    /// Can a writer dirty another block without waiting in [`Writeback::balance_dirty`]?
    pub fn has_room(&self) -> bool {
        self.nr_dirty.get() + self.nr_writeback.get() < self.policy.dirty_blocks
    }

    /// Lets a writer wait while too much is dirty (`balance_dirty_pages`).
    ///
    /// Waits: until dirty and in-flight blocks are below the midpoint of the two limits.
    pub async fn balance_dirty(&self) {
        let (low, high) = (self.policy.background_blocks, self.policy.dirty_blocks);
        if self.nr_dirty.get() + self.nr_writeback.get() <= high {
            return;
        }
        self.wake.wake_all();
        while self.nr_dirty.get() + self.nr_writeback.get() > low.midpoint(high) {
            self.room.wait().await;
        }
    }

    /// Has the flusher write everything that is dirty; with `sync` as SYNC I/O.
    ///
    /// Waits: until all of it has been submitted.
    pub async fn write_all(&self, sync: bool) {
        self.write_what(sync, false).await;
    }

    /// [`Writeback::write_all`] of the files, not of the device's own mapping, which is another
    /// super block's (`writeback_inodes_sb`, `sync_inodes_sb`).
    pub async fn write_files(&self, sync: bool) {
        self.write_what(sync, true).await;
    }

    async fn write_what(&self, sync: bool, files_only: bool) {
        // Without anything on its lists the flusher is not asked (`wb_has_dirty_io`).
        let idle = self.dirty.borrow().is_empty() && !self.in_hand.get();
        if self.stopped.get() || (files_only && idle) {
            return;
        }
        let done = Rc::new(Completion::new(&self.rt, "flusher work item"));
        self.works.borrow_mut().push_back(Work { sync, files_only, done: done.clone() });
        self.wake.wake_all();
        done.wait().await;
    }

    /// Waits until no block of any mapping is under writeback.
    pub async fn wait_idle(&self) {
        while self.nr_writeback.get() > 0 {
            self.idle.wait().await;
        }
    }

    /// Waits until no block of any file is under writeback (`wait_sb_inodes`).
    pub async fn wait_files(&self) {
        while self.files_writeback.get() > 0 {
            self.idle.wait().await;
        }
    }

    /// Ends the task at its next look. For unmount.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.wake.wake_all();
    }

    /// Moves what is old enough (or everything) out of the dirty list, oldest first.
    fn take_expired(&self, older_than: Option<u64>, files_only: bool) -> VecDeque<Rc<Mapping>> {
        self.dirty.borrow_mut().take(|m| {
            let expired = older_than.is_none_or(|limit| m.dirtied().is_none_or(|d| d <= limit));
            expired && !(files_only && m.is_device())
        })
    }

    /// Writes the mappings that are older than `older_than` jiffies (all if `None`), of its own
    /// accord.
    async fn pass(&self, older_than: Option<u64>, stop_below: Option<u64>) {
        let io = self.take_expired(older_than, false);
        let stop = || {
            // Somebody waits for a work item, this would have gone on by itself (`wb_writeback()`).
            !self.works.borrow().is_empty() || stop_below.is_some_and(|b| self.nr_dirty.get() <= b)
        };
        self.write_list(io, false, &stop).await;
    }

    async fn write_list(&self, mut io: VecDeque<Rc<Mapping>>, sync: bool, stop: &dyn Fn() -> bool) {
        self.in_hand.set(!io.is_empty());
        let outer = self.policy.plug_across_inodes.then(|| self.part.plug());
        while let Some(map) = io.pop_front() {
            if stop() {
                io.push_front(map);
                break;
            }
            let wbc =
                if sync { WbControl::sync_all() } else { WbControl::background(CHUNK_BLOCKS) };
            let pages: FsResult<()> = map.writepages(&wbc).await;
            let written = pages.and(map.write_inode().await);
            if !map.has_dirty() {
                map.set_dirtied(None);
            } else if written.is_err() || wbc.budget.get() > 0 {
                // Dirtied again meanwhile, or it could not be written: a full age from now, not in
                // a circle.
                map.set_dirtied(Some(self.jiffies()));
                self.dirty.borrow_mut().push_back(map);
            } else {
                io.push_back(map);
            }
        }
        drop(outer);
        // What was taken and not written goes back where it was: before everything younger.
        let mut dirty = self.dirty.borrow_mut();
        while let Some(map) = io.pop_back() {
            dirty.push_front(map);
        }
        self.in_hand.set(false);
    }

    /// One look: work items, old data, the background limit.
    async fn look(&self) {
        loop {
            let work = self.works.borrow_mut().pop_front();
            let Some(work) = work else { break };
            let io = self.take_expired(None, work.files_only);
            self.write_list(io, work.sync, &|| false).await;
            work.done.done();
        }
        let now = self.jiffies();
        let due = self
            .last_old_flush
            .get()
            .is_none_or(|last| now >= last + self.span_jiffies(self.policy.interval));
        if due {
            self.last_old_flush.set(Some(now));
            if self.nr_dirty.get() > 0 || !self.dirty.borrow().is_empty() {
                let limit = now.checked_sub(self.span_jiffies(self.policy.expire));
                if let Some(limit) = limit {
                    self.pass(Some(limit), None).await;
                }
            }
        }
        if self.is_over_share() {
            self.pass(None, None).await;
        }
        if self.nr_dirty.get() > self.policy.background_blocks {
            let before = (self.nr_dirty.get(), self.nr_written.get());
            self.pass(None, Some(self.policy.background_blocks)).await;
            // A device that fails every write must not keep the flusher in a circle.
            self.stuck.set(before == (self.nr_dirty.get(), self.nr_written.get()));
        }
    }
}

/// The flusher's task.
async fn run(weak: Weak<Writeback>, wake: Rc<WaitQueue>, rt: Rt) {
    loop {
        let Some(wb) = weak.upgrade() else { return };
        if wb.stopped.get() {
            return;
        }
        let alarm = wb.next_look.get().map(|j| wb.time_of(j));
        let pending = !wb.works.borrow().is_empty()
            || alarm.is_some_and(|at| at <= rt.now())
            || (wb.nr_dirty.get() > wb.policy.background_blocks && !wb.stuck.get());
        if !pending {
            wb.stuck.set(false);
            drop(wb);
            match alarm {
                Some(at) => {
                    let span = at.since(rt.now());
                    wp_rt::wait_timeout(&wake, span).await;
                }
                None => wake.wait().await,
            }
            continue;
        }
        wb.next_look.set(None);
        wb.look().await;
        let more = !wb.dirty.borrow().is_empty();
        if more && wb.next_look.get().is_none() {
            wb.next_look.set(Some(wb.alarm(false)));
        }
    }
}
