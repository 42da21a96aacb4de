//! What blk-mq does otherwise than the single-queue layer.
//!
//! Picture:    plug -> elevator, or straight to the device (`none`) -> device; whatever has to wait
//!             for something is later issued by kblockd (`kworker/0:1H`): requests of a task that
//!             waits under a plug, single requests for an elevator, what found the device full, and
//!             the steps of the flush machine, which go through the requeue list.
//! Events:     no `I` for what goes straight to the device or to the flush machine, nor for what
//!             joins a queued request when it comes from a plug; flushes are `FF`.
//! Left out:   several hardware queues and maps of queues; kworkers of other cores than the first
//!             (the work runs where it was queued); the shallow depth for asynchronous requests.
//! Source:     behaviour of `blk_mq_submit_bio()`, `blk_mq_flush_plug_list()`,
//!             `blk_mq_sched_dispatch_requests()`, `blk_mq_requeue_work()`,
//!             `blk_mq_sched_restart()`, `blk_mq_update_dispatch_busy()` (5.10, 6.1); events of
//!             real traces of 5.10 and 6.12.

use std::collections::VecDeque;

use wp_base::event::{BlockAction, Flags, Op};

use crate::config::WaitUnplug;
use crate::device::DeviceModel;
use crate::elevator::{ElevatorKind, Kick};
use crate::engine::{Core, Ctx};
use crate::pool::{RqId, State};

/// `BLK_MQ_DISPATCH_BUSY_EWMA_WEIGHT`, and 1 << `…_FACTOR`.
const EWMA_WEIGHT: u32 = 8;
const EWMA_BUSY: u32 = 1 << 4;

/// What a queue of blk-mq has besides.
#[derive(Default)]
pub(crate) struct MqState {
    /// Requests that kblockd is to put into the dispatch list: (request, at its head?).
    requeue: VecDeque<(RqId, bool)>,
    /// Is kblockd to run the queue?
    pub wanted: bool,
    /// How often the device has lately been full (`hctx->dispatch_busy`).
    dispatch_busy: u32,
}

impl Core {
    /// A new request that need not be plugged. False: it is one for the plug.
    pub fn add_mq(&mut self, cx: &Ctx, dev: &mut dyn DeviceModel, rq: RqId) -> bool {
        let r = &self.pool[rq];
        if r.op == Op::Flush || r.flags.any(Flags::PREFLUSH | Flags::FUA) {
            // Never plugged (`blk_insert_flush()`).
            self.flush_insert(cx, rq);
            self.start_dispatch_list(cx, dev);
            return true;
        }
        let task = r.task;
        if self.plugs.of(task).is_some() {
            return false;
        }
        if cx.config.elevator == ElevatorKind::None && self.mq.dispatch_busy == 0 {
            self.issue_directly(cx, dev, rq);
        } else {
            self.insert_mq(cx, rq);
            self.mq.wanted = true;
        }
        true
    }

    /// Data of a flush sequence that need no flush lie in the dispatch list: 6.1 has the task issue
    /// them, 5.10 kblockd.
    fn start_dispatch_list(&mut self, cx: &Ctx, dev: &mut dyn DeviceModel) {
        if self.dispatch.is_empty() {
            return;
        }
        if cx.config.era.issues_flush_data() {
            self.run(cx, dev);
        } else {
            self.mq.wanted = true;
        }
    }

    /// Hands the device a request that has been in no list (`blk_mq_try_issue_directly()`). False:
    /// the device is full, and it is queued.
    fn issue_directly(&mut self, cx: &Ctx, dev: &mut dyn DeviceModel, rq: RqId) -> bool {
        if self.stops_at_gate(cx, rq) {
            return true;
        }
        let is_full = self.blocked || self.in_device >= cx.limits.queue_depth;
        if is_full || self.current.is_some() || self.must_hold(cx, rq) {
            self.insert_mq(cx, rq);
            return false;
        }
        self.issue(cx, rq);
        self.send(cx, dev, rq);
        while self.current.is_some() && !self.blocked && self.in_device < cx.limits.queue_depth {
            self.send_piece(cx, dev);
        }
        let refused = self.blocked;
        self.pressed(refused);
        !refused
    }

    /// Queues a request (`blk_mq_sched_insert_request()`).
    pub fn insert_mq(&mut self, cx: &Ctx, rq: RqId) -> Kick {
        if self.stops_at_gate(cx, rq) {
            return Kick::No;
        }
        let sorts = cx.config.elevator != ElevatorKind::None;
        if sorts && self.pool[rq].is_mergeable() && self.insert_by_merge(cx, rq) {
            return Kick::No;
        }
        let r = &self.pool[rq];
        cx.event(BlockAction::Insert, r.op, r.flags, r.at, r.sectors, 0);
        self.pool[rq].state.set(State::SORTED);
        if sorts && self.pool[rq].is_mergeable() {
            self.merge.add(&mut self.pool, rq);
            if self.merge.last.is_none() {
                self.merge.last = Some(rq);
            }
        }
        self.elv(cx, |e, elv| e.insert(elv, rq))
    }

    /// Sends on what a plug held (`blk_mq_flush_plug_list()`). True: kblockd is to run the queue.
    pub fn flush_list_mq(
        &mut self,
        cx: &Ctx,
        dev: &mut dyn DeviceModel,
        list: &[RqId],
        on_wait: Option<WaitUnplug>,
    ) -> bool {
        cx.queue_event(BlockAction::Unplug, list.len() as u32);
        let later = on_wait == Some(WaitUnplug::Kblockd);
        let direct =
            cx.config.elevator == ElevatorKind::None && self.mq.dispatch_busy == 0 && !later;
        let mut issued = 0;
        if direct {
            for rq in list {
                issued += 1;
                if !self.issue_directly(cx, dev, *rq) {
                    break;
                }
            }
        }
        for rq in &list[issued..] {
            self.insert_mq(cx, *rq);
        }
        if later {
            return true;
        }
        if issued < list.len() {
            self.run(cx, dev);
        }
        false
    }

    /// Puts a step of the flush machine where kblockd finds it (`blk_flush_queue_rq()`).
    pub fn requeue_mq(&mut self, rq: RqId, at_head: bool) {
        if at_head {
            self.mq.requeue.push_front((rq, at_head));
        } else {
            self.mq.requeue.push_back((rq, at_head));
        }
        self.mq.wanted = true;
    }

    /// Requests that wait for kblockd to take them (`requeue_list` and `flush_list`).
    pub fn requeued(&self) -> usize {
        self.mq.requeue.len()
    }

    /// kblockd: moves what was requeued to the dispatch list (`blk_mq_requeue_work()`).
    pub fn take_requeued(&mut self) {
        while let Some((rq, at_head)) = self.mq.requeue.pop_front() {
            if at_head {
                self.dispatch.push_front(rq);
            } else {
                self.dispatch.push_back(rq);
            }
        }
    }

    /// A request has completed: there may be room for what waits (`blk_mq_sched_restart()`).
    pub fn restart_mq(&mut self) {
        let queued = self.elevator.queued() + self.depth.held.len();
        let waits = queued > 0 || !self.dispatch.is_empty();
        self.mq.wanted |= waits || self.current.is_some();
    }

    /// The driver took a request, or was full (`blk_mq_update_dispatch_busy()`).
    pub fn pressed(&mut self, full: bool) {
        let old = self.mq.dispatch_busy;
        if old == 0 && !full {
            return;
        }
        let now = (old * (EWMA_WEIGHT - 1) + if full { EWMA_BUSY } else { 0 }) / EWMA_WEIGHT;
        self.mq.dispatch_busy = now;
        self.elevator.pressed(now > 0);
    }
}
