//! CFQ: a queue for each task's synchronous requests, one for all asynchronous ones, served in turn
//!      by time slices.
//!
//! Picture:    queue = requests by sector, and by age; service tree = queues by when they are due;
//!             three trees (workloads): synchronous without idling, synchronous with idling,
//!             asynchronous. `next`: the active queue while its slice lasts, else the first queue
//!             of the workload that is due.
//! Behaviour:  synchronous before asynchronous: a synchronous request preempts an asynchronous
//!             queue, asynchronous ones wait while synchronous ones are in the device, and their
//!             depth is kept low after a synchronous one was slow. Slices of 100 ms and 40 ms.
//!             Inside a queue: nearest to the head's place going up, going back at twice the price
//!             and at most 16 MiB; a request older than 125 ms (250 ms if asynchronous) first, once
//!             a slice.
//! Idling:     when the active synchronous queue runs empty, the device is kept idle for it for up
//!             to 8 ms, unless its tasks think too long, seek, or said that no more is to come (a
//!             write without [`Flags::IDLE`]); never on a device that does not turn and queues
//!             commands (`nonrot` and `hw_tag`).
//! Invariants: 1. a queue is on a tree exactly while it has requests, or is active;
//!             2. `None` from `next` with requests held means: commands are in the device, or a
//!                timer is set.
//! Left out:   control groups and their idling, I/O priorities and classes (all tasks are best
//!             effort, 4), queues that cooperate on one region, `hw_tag` by observation (a queue
//!             depth of 5 or more counts as tagged queuing), jiffies (times are exact). The next
//!             request of a queue is chosen when it is dispatched.
//! Source:     behaviour of `block/cfq-iosched.c` of Linux 3.4 to 4.6.

mod queue;
mod select;

use std::cell::Cell;

use wp_base::event::{Flags, Op};
use wp_base::{Sector, Span, Time};
use wp_rt::TaskId;

use crate::elevator::interface::{Elevator, ElvCx, ElvSetup, Kick};
use crate::pool::{BioInfo, NONE, Pool, Request, RqId, is_sync};
use crate::quasi::BOOSTED;
use crate::slab::Slab;

use queue::{Queue, Think, Tree, Workload};

/// CFQ's settings (`/sys/block/*/queue/iosched/`); the defaults are those of every kernel that had
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CfqTunables {
    /// `slice_sync`: 100 ms.
    pub slice_sync: Span,
    /// `slice_async`: 40 ms.
    pub slice_async: Span,
    /// `slice_idle`: 8 ms.
    pub slice_idle: Span,
    /// `target_latency`: 300 ms; with more synchronous queues than fit, slices shrink.
    pub target_latency: Span,
    /// `fifo_expire_sync`: 125 ms.
    pub fifo_sync: Span,
    /// `fifo_expire_async`: 250 ms.
    pub fifo_async: Span,
    /// `quantum`: requests of one queue in the device, 8; half of it once others wait.
    pub quantum: u32,
    /// `slice_async_rq`: 2; an asynchronous queue gets 16 requests a slice from it at priority 4.
    pub slice_async_rq: u32,
    /// `back_seek_max`: 16 MiB, in sectors.
    pub back_max_sectors: u64,
    /// `back_seek_penalty`: 2.
    pub back_penalty: u64,
}

impl Default for CfqTunables {
    fn default() -> CfqTunables {
        CfqTunables {
            slice_sync: Span::millis(100),
            slice_async: Span::millis(40),
            slice_idle: Span::millis(8),
            target_latency: Span::millis(300),
            fifo_sync: Span::millis(125),
            fifo_async: Span::millis(250),
            quantum: 8,
            slice_async_rq: 2,
            back_max_sectors: 16 * 2048,
            back_penalty: 2,
        }
    }
}

/// Queue depth from which a device counts as queuing commands (`CFQ_HW_QUEUE_MIN`).
const HW_QUEUE_MIN: u32 = 5;
/// Queues kept for tasks without requests, for what was learnt about them.
const IDLE_QUEUES_MAX: usize = 256;
/// Requests this near to the head's place count as near (`CFQQ_CLOSE_THR`).
const CLOSE_SECTORS: u64 = 8 * 1024;

/// The elevator `cfq`.
pub struct Cfq {
    tunables: CfqTunables,
    /// Does the device not turn?
    nonrot: bool,
    /// Does idling make sense on this device?
    idles: bool,
    queues: Slab<Queue>,
    /// Synchronous queues by task, sorted.
    by_task: Vec<(Option<TaskId>, u32)>,
    /// The entry that was found last.
    last_found: Cell<(Option<TaskId>, u32)>,
    async_queue: Option<u32>,
    /// By [`Workload`].
    trees: [Tree; 3],
    tree_think: [Think; 3],
    active: Option<u32>,
    serving: Workload,
    serving_until: Time,
    /// Queues on trees.
    busy: u32,
    busy_sync: u32,
    /// Requests held.
    queued: usize,
    /// Dispatched and not completed: [asynchronous, synchronous].
    in_flight: [u32; 2],
    /// Where the last dispatched request ended.
    head_at: Sector,
    /// Until when the device is kept idle for the active queue.
    idle_until: Option<Time>,
    /// When a synchronous request last took longer than its deadline.
    delayed_sync: Option<Time>,
}

impl Cfq {
    /// With the kernel's defaults.
    pub fn new(setup: &ElvSetup) -> Cfq {
        Cfq::with(setup, CfqTunables::default())
    }

    /// With other settings.
    pub fn with(setup: &ElvSetup, tunables: CfqTunables) -> Cfq {
        Cfq {
            tunables,
            nonrot: !setup.rotational,
            idles: tunables.slice_idle != Span::ZERO
                && (setup.rotational || setup.limits.queue_depth < HW_QUEUE_MIN),
            queues: Slab::default(),
            by_task: Vec::new(),
            last_found: Cell::new((None, NONE)),
            async_queue: None,
            trees: Default::default(),
            tree_think: Default::default(),
            active: None,
            serving: Workload::SyncNoIdle,
            serving_until: Time::ZERO,
            busy: 0,
            busy_sync: 0,
            queued: 0,
            in_flight: [0; 2],
            head_at: Sector(0),
            idle_until: None,
            delayed_sync: None,
        }
    }

    /// The queue that a request of this kind and task belongs to, if there is one.
    fn find_queue(&self, sync: bool, task: Option<TaskId>) -> Option<u32> {
        if !sync {
            return self.async_queue;
        }
        // The same task asks several times for one bio.
        let (last_task, last) = self.last_found.get();
        if last != NONE && last_task == task {
            return Some(last);
        }
        let at = self.by_task.binary_search_by_key(&task, |e| e.0).ok()?;
        self.last_found.set(self.by_task[at]);
        Some(self.by_task[at].1)
    }

    /// The queue for it; made if there is none.
    fn queue_for(&mut self, sync: bool, task: Option<TaskId>) -> u32 {
        if let Some(q) = self.find_queue(sync, task) {
            return q;
        }
        if self.queues.len() >= IDLE_QUEUES_MAX {
            self.forget_idle_queues();
        }
        let q = self.queues.put(Queue::new(sync));
        if sync {
            let at = self.by_task.partition_point(|e| e.0 < task);
            self.by_task.insert(at, (task, q));
        } else {
            self.async_queue = Some(q);
        }
        q
    }

    /// Drops the queues of tasks that have nothing here; they start afresh if they come back.
    fn forget_idle_queues(&mut self) {
        let queues = &mut self.queues;
        let active = self.active;
        self.last_found.set((None, NONE));
        self.by_task.retain(|(_, q)| {
            let used = queues.get(*q).is_used() || active == Some(*q);
            if !used {
                queues.take(*q);
            }
            used
        });
    }

    /// Updates what is known of the queue's habits by the request that is being added.
    fn learn(&mut self, now: Time, q: u32, rq: &Request) {
        let (t, nonrot) = (self.tunables, self.nonrot);
        let queue = self.queues.get_mut(q);
        if queue.sync {
            queue.think.update(now, t.slice_idle);
            self.tree_think[queue.workload as usize].update(now, t.slice_idle);
        }
        let queue = self.queues.get_mut(q);
        queue.note_seek(rq, nonrot);
        queue.update_idle_window(rq, &t);
    }

    /// Should the queue of `rq` take over from the active one at once (`cfq_should_preempt()`)?
    fn should_preempt(&self, now: Time, q: u32, rq: &Request) -> bool {
        let Some(a) = self.active else { return false };
        let (active, new) = (self.queues.get(a), self.queues.get(q));
        if rq.is_sync() && !active.sync {
            return true;
        }
        if active.slice_used(now) {
            return true;
        }
        let empty = active.sorted.is_empty();
        if self.serving == Workload::SyncNoIdle
            && new.workload() == Workload::SyncNoIdle
            && new.on_tree
            && self.trees[new.workload as usize].len() == 2
            && empty
        {
            return true;
        }
        if rq.flags.has(Flags::PRIO) && active.prio_pending == 0 {
            return true;
        }
        if empty && !self.should_idle(a) {
            return true;
        }
        let distance = self.head_at.0.abs_diff(rq.at.0);
        active.wait_request && distance <= CLOSE_SECTORS
    }

    /// Ends the active queue's slice and puts `q` first.
    fn preempt(&mut self, now: Time, q: u32) {
        let active = self.active.expect("only an active queue is preempted");
        let changes = self.queues.get(active).workload() != self.queues.get(q).workload();
        self.expire(now, true);
        if changes {
            self.serving_until = Time::ZERO;
        }
        self.put_on_tree(now, q, true);
        self.queues.get_mut(q).slice_new = true;
    }

    /// Removes a request from its queue's lists.
    fn remove(&mut self, pool: &mut Pool, rq: RqId) -> u32 {
        let q = pool[rq].elv;
        let queue = self.queues.get_mut(q);
        queue.sorted.remove(pool[rq].at, rq);
        queue.fifo.remove(pool, rq);
        queue.prio_pending -= u32::from(pool[rq].flags.has(Flags::PRIO));
        self.queued -= 1;
        q
    }
}

impl Elevator for Cfq {
    fn allow_merge(&self, pool: &Pool, rq: RqId, bio: &BioInfo) -> bool {
        let sync = is_sync(bio.op, bio.flags);
        if sync && !pool[rq].is_sync() {
            return false;
        }
        self.find_queue(sync, bio.task) == Some(pool[rq].elv)
    }

    fn starting_at_end(&self, _pool: &Pool, bio: &BioInfo) -> Option<RqId> {
        let q = self.find_queue(is_sync(bio.op, bio.flags), bio.task)?;
        let sorted = &self.queues.get(q).sorted;
        if sorted.is_empty() { None } else { sorted.at_or_after(bio.end()) }
    }

    fn neighbours(&self, pool: &Pool, rq: RqId) -> (Option<RqId>, Option<RqId>) {
        self.queues.get(pool[rq].elv).sorted.around(pool[rq].at, rq)
    }

    fn insert(&mut self, cx: &mut ElvCx<'_>, rq: RqId) -> Kick {
        let now = cx.now;
        let sync = cx.pool[rq].is_sync();
        let q = self.queue_for(sync, cx.pool[rq].task);
        let patience = if sync { self.tunables.fifo_sync } else { self.tunables.fifo_async };
        cx.pool[rq].elv = q;
        cx.pool[rq].deadline = now + patience;
        let queue = self.queues.get_mut(q);
        queue.fifo.push(cx.pool, rq);
        queue.sorted.insert(cx.pool[rq].at, rq);
        queue.prio_pending += u32::from(cx.pool[rq].flags.has(Flags::PRIO));
        self.queued += 1;
        if !queue.on_tree {
            let sync = queue.sync;
            self.busy += 1;
            self.busy_sync += u32::from(sync);
            self.put_on_tree(now, q, false);
        }
        self.learn(now, q, &cx.pool[rq]);
        if self.active == Some(q) {
            let busy = self.busy;
            let queue = self.queues.get_mut(q);
            if !queue.wait_request {
                return Kick::No;
            }
            // More than a page has probably been merged already; less may still grow.
            if cx.pool[rq].sectors > 8 || busy > 1 {
                queue.wait_request = false;
                self.idle_until = None;
                return Kick::Run;
            }
            queue.must_dispatch = true;
            return Kick::No;
        }
        if self.should_preempt(now, q, &cx.pool[rq]) {
            self.preempt(now, q);
            return Kick::Run;
        }
        Kick::No
    }

    fn moved(&mut self, cx: &mut ElvCx<'_>, rq: RqId, old_at: Sector) {
        let queue = self.queues.get_mut(cx.pool[rq].elv);
        queue.sorted.remove(old_at, rq);
        queue.sorted.insert(cx.pool[rq].at, rq);
    }

    fn absorbed(&mut self, cx: &mut ElvCx<'_>, kept: RqId, gone: RqId) {
        let (q, other) = (cx.pool[gone].elv, cx.pool[kept].elv);
        if q == other && cx.pool[gone].deadline < cx.pool[kept].deadline {
            // The older one's place in the line, and its deadline.
            cx.pool[kept].deadline = cx.pool[gone].deadline;
            let queue = self.queues.get_mut(q);
            queue.fifo.remove(cx.pool, kept);
            queue.fifo.replace(cx.pool, gone, kept);
            queue.fifo.push(cx.pool, gone);
        }
        self.remove(cx.pool, gone);
        if self.queues.get(q).sorted.is_empty() && self.active != Some(q) {
            self.take_off_tree(q);
        }
    }

    fn next(&mut self, cx: &mut ElvCx<'_>) -> Option<RqId> {
        let q = self.select(cx.now)?;
        if !self.may_dispatch(cx.now, q) {
            return None;
        }
        let rq = self.choose(cx, q);
        self.remove(cx.pool, rq);
        let queue = self.queues.get_mut(q);
        queue.dispatched += 1;
        queue.slice_dispatched += 1;
        queue.must_dispatch = false;
        let over = !queue.sync && queue.slice_dispatched >= 8 * self.tunables.slice_async_rq;
        self.in_flight[usize::from(queue.sync)] += 1;
        if self.busy > 1 && over {
            let queue = self.queues.get_mut(q);
            queue.slice_end = cx.now;
            self.expire(cx.now, false);
        }
        Some(rq)
    }

    fn issued(&mut self, cx: &mut ElvCx<'_>, rq: RqId) {
        self.head_at = cx.pool[rq].end();
    }

    fn completed(&mut self, cx: &mut ElvCx<'_>, rq: RqId) {
        let (now, r) = (cx.now, &cx.pool[rq]);
        let (q, sync, queued) = (r.elv, r.is_sync(), r.queued);
        let queue = self.queues.get_mut(q);
        queue.dispatched -= 1;
        self.in_flight[usize::from(queue.sync)] -= 1;
        if sync {
            queue.think.last_end = now;
            self.tree_think[queue.workload as usize].last_end = now;
            if queued + self.tunables.fifo_sync <= now {
                self.delayed_sync = Some(now);
            }
        }
        if self.active == Some(q) {
            self.active_completed(now, q, sync);
            cx.timer = self.idle_until;
        }
    }

    fn timer(&mut self, cx: &mut ElvCx<'_>) -> Kick {
        match self.idle_until {
            None => return Kick::No,
            Some(at) if at > cx.now => {
                cx.timer = Some(at);
                return Kick::No;
            }
            Some(_) => self.idle_until = None,
        }
        if let Some(a) = self.active {
            let queue = self.queues.get_mut(a);
            let waits =
                queue.must_dispatch || (!queue.slice_used(cx.now) && !queue.sorted.is_empty());
            if !waits {
                queue.deep = false;
                self.expire(cx.now, false);
            }
        }
        Kick::Run
    }

    /// To the queue of who waits for it, as synchronous, with its age.
    fn boost(&mut self, cx: &mut ElvCx<'_>, rq: RqId, waiter: Option<TaskId>) {
        let due = cx.pool[rq].deadline;
        let q = self.remove(cx.pool, rq);
        if self.queues.get(q).sorted.is_empty() && self.active != Some(q) {
            self.take_off_tree(q);
        }
        let r = &mut cx.pool[rq];
        r.flags |= BOOSTED;
        r.task = waiter;
        let _runs_anyhow = self.insert(cx, rq);
        let r = &mut cx.pool[rq];
        r.deadline = r.deadline.min(due);
    }

    fn queued(&self) -> usize {
        self.queued
    }
}

/// A synchronous write that is not followed by more (`REQ_NOIDLE`; since 4.10 the absence of
/// `REQ_IDLE`).
fn is_noidle(rq: &Request) -> bool {
    rq.op != Op::Read && !rq.flags.has(Flags::IDLE)
}

#[cfg(test)]
mod tests;
