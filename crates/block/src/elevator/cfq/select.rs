//! Whose turn it is.

use wp_base::{Span, Time};

use super::Cfq;
use super::queue::Workload;
use crate::elevator::interface::ElvCx;
use crate::pool::{Request, RqId};

/// Shortest slice of a workload (`CFQ_MIN_TT`: 2 jiffies at 250 Hz).
const WORKLOAD_SLICE_MIN: Span = Span::millis(8);
/// A queue put first is due this much before the one that was.
const FRONT: i64 = 1_000_000_000;

impl Cfq {
    /// The queue to dispatch from (`cfq_select_queue()`); `None` to wait.
    pub(super) fn select(&mut self, now: Time) -> Option<u32> {
        if self.queued == 0 {
            return None;
        }
        if let Some(a) = self.active {
            let queue = self.queues.get(a);
            if !queue.slice_used(now) || queue.must_dispatch {
                if !queue.sorted.is_empty() {
                    return Some(a);
                }
                if self.idle_until.is_some() {
                    return None;
                }
                let fresh =
                    queue.slice_new || queue.slice_end.since(now) > now.since(queue.slice_start);
                if queue.is_seeky() && queue.idle_window && fresh {
                    // It seeks, and the device is faster than it is: idling gains nothing.
                    let queue = self.queues.get_mut(a);
                    (queue.deep, queue.idle_window) = (false, false);
                }
                if self.queues.get(a).dispatched > 0 && self.should_idle(a) {
                    return None;
                }
            }
            self.expire(now, false);
        }
        self.choose_workload(now);
        let (_, q) = self.trees[self.serving as usize].first()?;
        self.activate(q);
        Some(q)
    }

    fn activate(&mut self, q: u32) {
        let queue = self.queues.get_mut(q);
        queue.slice_new = true;
        queue.slice_end = Time::ZERO;
        queue.slice_dispatched = 0;
        queue.wait_request = false;
        queue.must_dispatch = false;
        queue.fifo_checked = false;
        self.idle_until = None;
        self.active = Some(q);
    }

    /// Goes on with the workload being served, or picks the one whose first queue is due first
    /// (`cfq_choose_wl()`), and gives it its share of the target latency.
    fn choose_workload(&mut self, now: Time) {
        if self.trees[self.serving as usize].len() > 0 && now <= self.serving_until {
            return;
        }
        let due = |w: &Workload| self.trees[*w as usize].first().map(|(key, _)| key);
        let first = Workload::ALL.into_iter().filter(|w| due(w).is_some()).min_by_key(due);
        let Some(first) = first else { return };
        self.serving = first;
        let t = &self.tunables;
        let count = self.trees[first as usize].len() as u64;
        let share = t.target_latency.0 * count / u64::from(self.busy.max(1));
        let slice = if first == Workload::Async {
            share * t.slice_async.0 / t.slice_sync.0
        } else {
            share.max(2 * t.slice_idle.0)
        };
        self.serving_until = now + Span(slice.max(WORKLOAD_SLICE_MIN.0));
    }

    /// The length of a queue's slice (`cfq_scaled_cfqq_slice()`): shorter when synchronous queues
    /// are many.
    fn slice_of(&self, sync: bool) -> Span {
        let t = &self.tunables;
        let slice = if sync { t.slice_sync.0 } else { t.slice_async.0 };
        let peers = if sync { u64::from(self.busy_sync) } else { 1 };
        let expected = t.slice_sync.0 * peers;
        if expected <= t.target_latency.0 {
            return Span(slice);
        }
        let low = slice.min(2 * t.slice_idle.0 * slice / t.slice_sync.0);
        Span((slice * t.target_latency.0 / expected).max(low))
    }

    /// Puts a queue on its workload's tree: by its due time, or first (`cfq_service_tree_add()`).
    pub(super) fn put_on_tree(&mut self, now: Time, q: u32, first: bool) {
        self.leave_tree(q);
        let t = &self.tunables;
        let (workload, sync) = (self.queues.get(q).workload(), self.queues.get(q).sync);
        let queue = self.queues.get_mut(q);
        let tree = &mut self.trees[workload as usize];
        let key = if first {
            tree.first().map_or(now.0 as i64, |(key, _)| key) - FRONT
        } else {
            // Asynchronous queues are due later, by what synchronous ones have more.
            let more = if sync { 0 } else { t.slice_sync.0 - t.slice_async.0.min(t.slice_sync.0) };
            let others = u64::from(self.busy.saturating_sub(1));
            now.0 as i64 + (others * more) as i64 - std::mem::take(&mut queue.slice_left)
        };
        tree.insert(key, q);
        (queue.on_tree, queue.workload, queue.key) = (true, workload, key);
    }

    fn leave_tree(&mut self, q: u32) {
        let queue = self.queues.get_mut(q);
        if queue.on_tree {
            self.trees[queue.workload as usize].remove(queue.key, q);
            queue.on_tree = false;
        }
    }

    /// The queue has no requests and is not active.
    pub(super) fn take_off_tree(&mut self, q: u32) {
        self.leave_tree(q);
        self.busy -= 1;
        self.busy_sync -= u32::from(self.queues.get(q).sync);
    }

    /// Ends the active queue's turn (`cfq_slice_expired()`). What is left of its slice is kept if
    /// it was cut short.
    pub(super) fn expire(&mut self, now: Time, cut_short: bool) {
        let Some(a) = self.active.take() else { return };
        self.idle_until = None;
        let slice = self.slice_of(self.queues.get(a).sync);
        let queue = self.queues.get_mut(a);
        queue.wait_request = false;
        if cut_short {
            queue.slice_left = if queue.slice_new {
                slice.0 as i64
            } else {
                queue.slice_end.0 as i64 - now.0 as i64
            };
        }
        if queue.sorted.is_empty() {
            self.take_off_tree(a);
        } else {
            self.put_on_tree(now, a, false);
        }
    }

    /// Is it worth keeping the device idle for this queue (`cfq_should_idle()`)?
    pub(super) fn should_idle(&self, q: u32) -> bool {
        let t = &self.tunables;
        if t.slice_idle == Span::ZERO {
            return false;
        }
        let queue = self.queues.get(q);
        if queue.idle_window && self.idles {
            return true;
        }
        // The last one of its tree: the next to come would find the device with somebody else.
        let tree = queue.workload as usize;
        let thinks = self.tree_think[tree].mean().is_some_and(|m| m > t.slice_idle);
        queue.sync && queue.on_tree && self.trees[tree].len() == 1 && !thinks
    }

    /// May the queue have one more in the device (`cfq_may_dispatch()`)?
    pub(super) fn may_dispatch(&self, now: Time, q: u32) -> bool {
        let queue = self.queues.get(q);
        if self.in_flight[0] > 0 && self.should_idle(q) {
            return false;
        }
        if self.in_flight[1] > 0 && !queue.sync {
            return false;
        }
        let quantum = self.tunables.quantum;
        let mut most = (quantum / 2).max(1);
        if queue.dispatched >= most {
            let alone_sync = queue.sync && self.busy_sync == 1;
            if self.busy > 1 && self.slice_used_soon(now, q) && !alone_sync {
                return false;
            }
            most = if self.busy == 1 || alone_sync { u32::MAX } else { quantum };
        }
        if !queue.sync
            && let Some(delayed) = self.delayed_sync
        {
            // One more for each synchronous slice since a synchronous request was slow.
            let depth = now.since(delayed).0 / self.tunables.slice_sync.0;
            let depth = if depth == 0 && queue.dispatched == 0 { 1 } else { depth };
            most = most.min(u32::try_from(depth).unwrap_or(u32::MAX));
        }
        queue.dispatched < most
    }

    fn slice_used_soon(&self, now: Time, q: u32) -> bool {
        let queue = self.queues.get(q);
        let idle = self.tunables.slice_idle.times(u64::from(queue.dispatched));
        queue.slice_new || now + idle > queue.slice_end
    }

    /// The queue's next request: the oldest if it is late, once a slice; else the nearest.
    pub(super) fn choose(&mut self, cx: &ElvCx<'_>, q: u32) -> RqId {
        let (head, t) = (self.head_at, self.tunables);
        let queue = self.queues.get_mut(q);
        if queue.sorted.len() == 1 {
            queue.fifo_checked = true;
            return queue.sorted.first().expect("one is there");
        }
        if !queue.fifo_checked {
            queue.fifo_checked = true;
            let oldest = queue.fifo.first().expect("a selected queue has requests");
            if cx.pool[oldest].deadline <= cx.now {
                return oldest;
            }
        }
        let above = queue.sorted.at_or_after(head);
        let below = queue.sorted.before(head);
        match (above, below) {
            (Some(up), Some(down)) => {
                let (a, b) = (&cx.pool[up], &cx.pool[down]);
                if prefers(a, b, head.0, t.back_max_sectors, t.back_penalty) { up } else { down }
            }
            (Some(up), None) => up,
            (None, Some(down)) => {
                // Nothing ahead: back to the start, unless the nearest behind is within a short way
                // back.
                let first = queue.sorted.first().expect("a selected queue has requests");
                if cx.pool[down].at.0 + t.back_max_sectors >= head.0 { down } else { first }
            }
            (None, None) => queue.sorted.first().expect("a selected queue has requests"),
        }
    }

    /// A request of the active queue has completed: its slice begins, ends, or it is waited for.
    pub(super) fn active_completed(&mut self, now: Time, q: u32, sync: bool) {
        let slice = self.slice_of(self.queues.get(q).sync);
        let queue = self.queues.get_mut(q);
        if queue.slice_new {
            queue.slice_new = false;
            queue.slice_start = now;
            queue.slice_end = now + slice;
        }
        if queue.slice_used(now) {
            self.expire(now, true);
        } else if sync && queue.sorted.is_empty() {
            self.arm_idle(now, q);
        }
    }

    /// Keeps the device idle for the active queue for a while, if that is worth it
    /// (`cfq_arm_slice_timer()`).
    fn arm_idle(&mut self, now: Time, q: u32) {
        if !self.idles || !self.should_idle(q) || self.queues.get(q).dispatched > 0 {
            return;
        }
        let idle = self.tunables.slice_idle;
        let queue = self.queues.get_mut(q);
        if queue.think.mean().is_some_and(|mean| mean > queue.slice_end.since(now)) {
            return;
        }
        queue.wait_request = true;
        self.idle_until = Some(now + idle);
    }
}

/// Is `up`, ahead of the head, better than `down`, behind it (`cfq_choose_req()`)?
fn prefers(up: &Request, down: &Request, head: u64, back_max: u64, penalty: u64) -> bool {
    use wp_base::event::Flags;
    if up.is_sync() != down.is_sync() {
        return up.is_sync();
    }
    let (prio_up, prio_down) = (up.flags.has(Flags::PRIO), down.flags.has(Flags::PRIO));
    if prio_up != prio_down {
        return prio_up;
    }
    if down.at.0 + back_max < head {
        return true;
    }
    // On a tie the higher sector wins.
    up.at.0 - head <= (head - down.at.0) * penalty
}
