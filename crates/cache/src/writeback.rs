//! One device's flusher: who is cleaned, when, and how much.
//!
//! Picture:    dirty list (by age) -> io list -> `Mapping::writepages`, `WbOps::write_inode` ->
//!             off the lists, or the dirty list's end. A tick every 5 s writes what is older than
//!             30 s; work items (sync) and the background limit write at once. Each goes on as long
//!             as it gets anything done: what it makes dirty itself, it writes.
//! Order:      of what is on a list decides what is written twice: a file system that keeps inodes
//!             in blocks of another mapping writes those again for each inode that is behind it.
//! Units:      ages are in jiffies, as in the kernel: whether a mapping that was dirtied a
//!             millisecond after another expires at the same tick depends on that, and is seen in
//!             the traces.
//! Source:     `fs/fs-writeback.c` (`wb_check_old_data_flush`, `queue_io`, `wb_writeback`,
//!             `writeback_sb_inodes`, `requeue_inode`), `mm/page-writeback.c`
//!             (`balance_dirty_pages`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use wp_base::{FsResult, Span, Time};
use wp_block::Partition;
use wp_rt::{Completion, Rt, Ticks, WaitQueue};

use crate::dirty_list::DirtyList;
use crate::errseq::ErrSeq;
use crate::mapping::{List, Mapping, WbControl, state};
use crate::policy::WbPolicy;
use crate::share::Share;

/// Blocks that one mapping may write before the next one has its turn (`MAX_WRITEBACK_PAGES`).
const CHUNK_BLOCKS: u64 = 1024;

/// Age at which times are written that nothing else was written with
/// (`dirtytime_expire_interval`).
const TIMES_MOST: Span = Span::secs(12 * 60 * 60);

struct Work {
    sync: bool,
    /// Files only, not the device's own mapping: the work is for one super block.
    files_only: bool,
    done: Rc<Completion>,
}

/// Why the flusher writes.
#[derive(Clone, Copy)]
struct Task {
    /// Somebody waits for all of it (`for_sync`).
    sync: bool,
    /// [`Work::files_only`]
    files_only: bool,
    /// Writes only inodes that have been dirty for this number of jiffies (`for_kupdate`).
    age: Option<u64>,
    /// Stops when no more is dirty than the background limit (`for_background`).
    background: bool,
}

impl Task {
    /// Nobody waits for it: it makes room for who does.
    fn is_own(&self) -> bool {
        self.age.is_some() || self.background
    }

    fn control(&self) -> WbControl {
        match (self.sync, self.files_only) {
            (true, _) => WbControl::sync_all(),
            (false, true) => WbControl::before_sync(),
            (false, false) => WbControl::background(CHUNK_BLOCKS),
        }
    }
}

/// The flusher's lists. Invariant: a mapping is on one at most, which it knows.
#[derive(Default)]
struct Lists {
    /// Dirty mappings, oldest first.
    dirty: DirtyList<Mapping>,
    /// What is written now: the first of them.
    io: DirtyList<Mapping>,
    /// What had its share, and is not clean.
    more_io: DirtyList<Mapping>,
    /// Mappings of which only times are dirty.
    times: DirtyList<Mapping>,
}

impl Lists {
    fn of(&mut self, list: List) -> &mut DirtyList<Mapping> {
        match list {
            List::Dirty => &mut self.dirty,
            List::Io => &mut self.io,
            List::MoreIo => &mut self.more_io,
            List::Times => &mut self.times,
        }
    }

    /// Is there anything to write (`wb_has_dirty_io`)?
    fn has_any(&self) -> bool {
        !(self.dirty.is_empty() && self.io.is_empty() && self.more_io.is_empty())
    }

    fn remove(&mut self, map: &Mapping) {
        if let Some(list) = map.list().take() {
            self.of(list).remove(map);
        }
    }

    fn put(&mut self, map: &Rc<Mapping>, list: List) {
        self.remove(map);
        map.list().set(Some(list));
        self.of(list).push_back(map.clone());
    }

    /// Takes what has been dirty since `before` in line to be written; `times`: what has new times
    /// only, too (`queue_io`).
    fn queue(&mut self, before: u64, times: bool) {
        let queue = |from: &mut DirtyList<Mapping>, to: &mut DirtyList<Mapping>| {
            from.move_while(to, |m| {
                let old = m.dirtied() <= before;
                if old {
                    m.list().set(Some(List::Io));
                    m.set_state(state::QUEUED);
                }
                old
            });
        };
        self.more_io.move_while(&mut self.io, |m| {
            m.list().set(Some(List::Io));
            true
        });
        queue(&mut self.dirty, &mut self.io);
        if times {
            queue(&mut self.times, &mut self.io);
        }
    }
}

/// A device's flusher.
pub struct Writeback {
    rt: Rt,
    policy: WbPolicy,
    pub(crate) part: Partition,
    lists: RefCell<Lists>,
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
        let ticks = policy.ticks();
        let wb = Rc::new(Writeback {
            dirty_elsewhere: Cell::new(0),
            share: (policy.others_wrote > 0)
                .then(|| Share::new(ticks, ticks.at(rt.now()), policy.others_wrote)),
            rt: rt.clone(),
            part,
            lists: RefCell::default(),
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
        self.policy.ticks()
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
        if !self.policy.era.flusher_is_kworker() && !woken {
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

    /// Counts `blocks` written blocks that are in no mapping of this file system.
    pub fn note_written(&self, blocks: u64) {
        if let Some(share) = &self.share {
            share.add(self.jiffies(), blocks);
        }
    }

    /// Sets how many dirty blocks are in no mapping: they count against the share.
    pub fn set_dirty_elsewhere(&self, blocks: u64) {
        self.dirty_elsewhere.set(blocks);
    }

    /// Is more dirty than the background limit, or than the device's share of it?
    /// `wb_over_bg_thresh`.
    fn is_over_background(&self) -> bool {
        let (limit, dirty) = (self.policy.background_blocks, self.nr_dirty.get());
        let is_over_share =
            |share: &Share| dirty + self.dirty_elsewhere.get() > share.of(limit, self.jiffies());
        dirty > limit || self.share.as_ref().is_some_and(is_over_share)
    }

    /// Puts a mapping that has just become dirty on its list, and sets the alarm if it is the
    /// first that is to be written.
    pub(crate) fn enqueue(&self, map: &Rc<Mapping>) {
        let mut lists = self.lists.borrow_mut();
        let had = lists.has_any();
        let list = if map.is(state::DIRTY) { List::Dirty } else { List::Times };
        lists.put(map, list);
        if !had && lists.has_any() && self.next_look.get().is_none() {
            self.next_look.set(Some(self.alarm(true)));
            self.wake.wake_all();
        }
    }

    /// Has an owner bring what it keeps of a mapping up to date, without its blocks
    /// (`sync_inode_metadata` that does not wait). Clean then, the mapping leaves the lists; if not
    /// it is the youngest, unless the flusher is about to write it. Nothing happens to one that is
    /// being written.
    pub async fn write_owner(&self, map: &Rc<Mapping>) -> FsResult<()> {
        if map.is(state::WRITING) || !map.is(state::ANY) {
            return Ok(());
        }
        map.set_state(state::WRITING);
        let done = self.write_owner_of(map, false).await;
        map.clear_state(state::WRITING);
        if !map.is(state::ANY) {
            self.set_clean(map);
        } else if !map.is(state::QUEUED) {
            self.put_back(map);
        }
        done
    }

    /// Takes a mapping off the lists whose owner is going (`inode_io_list_del`).
    pub fn forget(&self, map: &Mapping) {
        map.clear_state(state::ANY);
        self.set_clean(map);
    }

    fn set_clean(&self, map: &Mapping) {
        map.clear_state(state::QUEUED);
        self.lists.borrow_mut().remove(map);
    }

    /// Makes what is not clean the youngest of those that have as much to write.
    fn put_back(&self, map: &Rc<Mapping>) {
        if map.is(state::DIRTY) {
            self.redirty(map);
        } else {
            map.clear_state(state::QUEUED);
            map.set_dirtied(self.jiffies());
            self.lists.borrow_mut().put(map, List::Times);
        }
    }

    /// Makes it the youngest of the dirty ones (`redirty_tail`).
    fn redirty(&self, map: &Rc<Mapping>) {
        map.clear_state(state::QUEUED);
        let mut lists = self.lists.borrow_mut();
        lists.remove(map);
        if lists.dirty.back().is_some_and(|youngest| map.dirtied() < youngest.dirtied()) {
            map.set_dirtied(self.jiffies());
        }
        lists.put(map, List::Dirty);
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
        // With empty lists the flusher is not woken (`bdi_has_dirty_io`).
        let idle = {
            let lists = self.lists.borrow();
            !lists.has_any() && (!sync || lists.times.is_empty())
        };
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

    /// Writes what is dirty, in rounds, as long as a round gets anything done (`wb_writeback`).
    async fn write(&self, task: Task) {
        let mut before = self.jiffies();
        let mut queued = false;
        let outer = self.policy.era.plugs_across_inodes().then(|| self.part.plug());
        loop {
            // Somebody waits for a work item, this would have gone on by itself.
            let must_yield = task.is_own() && !self.works.borrow().is_empty();
            if must_yield || (task.background && !self.is_over_background()) {
                break;
            }
            if self.lists.borrow().io.is_empty() {
                // What becomes dirty at a later tick is not what a sync was asked for.
                match task.age {
                    Some(age) => match self.jiffies().checked_sub(age) {
                        Some(limit) => before = limit,
                        None => break,
                    },
                    None if task.background => before = self.jiffies(),
                    None => {}
                }
                self.lists.borrow_mut().queue(before, task.sync);
                queued = true;
            }
            if !self.write_io(&task).await && queued {
                break;
            }
        }
        drop(outer);
    }

    /// A round: what is in line (`writeback_sb_inodes`). Was anything done?
    async fn write_io(&self, task: &Task) -> bool {
        let began = self.jiffies();
        let before = task.age.map_or(began, |age| began.saturating_sub(age));
        let mut is_progress = false;
        loop {
            let next = self.lists.borrow().io.front().cloned();
            let Some(map) = next else { break };
            if task.files_only && map.is_device() {
                self.redirty(&map);
                continue;
            }
            if map.is(state::WRITING) && !task.sync {
                self.lists.borrow_mut().put(&map, List::MoreIo);
                continue;
            }
            let wbc = task.control();
            let had = wbc.budget.get();
            let written = self.write_one(&map, &wbc).await;
            // What fails stays dirty here, and must not be tried in a circle.
            if written.is_ok() {
                let sent = had - wbc.budget.get();
                is_progress |= sent > wbc.skipped.get() || !map.is(state::ANY);
            }
            self.requeue(&map, task, &wbc, before);
            // A look at the limit and at works, ten times a second.
            if is_progress && self.jiffies() > began + self.policy.hz / 10 {
                break;
            }
        }
        is_progress
    }

    /// Blocks, then the owner (`__writeback_single_inode`).
    async fn write_one(&self, map: &Rc<Mapping>, wbc: &WbControl) -> FsResult<()> {
        map.set_state(state::WRITING);
        let blocks: FsResult<()> = map.writepages(wbc).await;
        let owner = self.write_owner_of(map, wbc.sync).await;
        map.clear_state(state::WRITING);
        blocks.and(owner)
    }

    async fn write_owner_of(&self, map: &Rc<Mapping>, sync: bool) -> FsResult<()> {
        let most = self.span_jiffies(TIMES_MOST);
        if sync || map.times_since().is_none_or(|since| self.jiffies() > since + most) {
            map.take_times();
        }
        let is_owner_dirty = map.is(state::OWNER);
        map.clear_state(state::DIRTY);
        if map.has_dirty() {
            map.set_state(state::BLOCKS);
        }
        if is_owner_dirty { map.write_inode().await } else { Ok(()) }
    }

    /// Where a mapping goes that was written (`requeue_inode`).
    fn requeue(&self, map: &Rc<Mapping>, task: &Task, wbc: &WbControl, before: u64) {
        if map.is(state::DIRTY) && (task.sync || task.files_only) {
            // Once for each sync.
            map.set_dirtied(self.jiffies());
        }
        if !map.is(state::ANY) {
            self.set_clean(map);
        } else if wbc.skipped.get() > 0 {
            self.redirty(map);
        } else if map.has_dirty() && wbc.budget.get() == 0 && map.dirtied() <= before {
            self.lists.borrow_mut().put(map, List::MoreIo);
        } else {
            self.put_back(map);
        }
    }

    /// One look: work items, old data, the background limit.
    async fn look(&self) {
        loop {
            let work = self.works.borrow_mut().pop_front();
            let Some(work) = work else { break };
            let Work { sync, files_only, .. } = work;
            self.write(Task { sync, files_only, age: None, background: false }).await;
            work.done.done();
        }
        let now = self.jiffies();
        let due = self
            .last_old_flush
            .get()
            .is_none_or(|last| now >= last + self.span_jiffies(self.policy.interval));
        if due {
            self.last_old_flush.set(Some(now));
            if self.nr_dirty.get() > 0 || self.lists.borrow().has_any() {
                let age = Some(self.span_jiffies(self.policy.expire));
                self.write(Task { sync: false, files_only: false, age, background: false }).await;
            }
        }
        if self.is_over_background() {
            let before = (self.nr_dirty.get(), self.nr_written.get());
            let task = Task { sync: false, files_only: false, age: None, background: true };
            self.write(task).await;
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
        let more = wb.lists.borrow().has_any();
        if more && wb.next_look.get().is_none() {
            wb.next_look.set(Some(wb.alarm(false)));
        }
    }
}
