//! The flush machine: what becomes of [`Flags::PREFLUSH`] and [`Flags::FUA`] on a device with a
//! volatile cache.
//!
//! A request is a sequence of up to three steps; which ones it needs follows from its flags and the
//! device:
//!
//! | request        | device with FUA         | without FUA           |
//! |----------------|-------------------------|-----------------------|
//! | flush, no data | preflush                | preflush              |
//! | PREFLUSH       | preflush, data          | preflush, data        |
//! | FUA            | data with FUA (plain)   | data, postflush       |
//! | PREFLUSH, FUA  | preflush, data with FUA | preflush, data, postflush |
//!
//! (Without a volatile cache the flags are dropped when the bio enters the queue, and a flush has
//! ended there.)
//!
//! A flush with [`Flags::BARRIER`] is a cache barrier (eMMC 5.1): one command of its own where the
//! device has such, else a flush. It orders what has completed before it and what is submitted
//! after its completion, and waits for no flash.
//!
//! Sharing:    a request that needs a flush waits in the pending list. One flush at a time is in
//!             the device; when it is issued, all that is pending becomes running and moves on
//!             together when it completes, while the next ones gather in the other list. While any
//!             sequence has its data under way, a flush is put off, so that those data can share
//!             their postflush; but not longer than `Habits::flush_patience`.
//!             A flush of a set of sectors ([`crate::FlushSet`]) is a command of its own, shared
//!             with none: what another asks for is another set.
//! Queues:     each hardware queue has a machine of its own (`blk_flush_queue` of a
//!             `blk_mq_hw_ctx`), and a request belongs to that of the core which it was submitted
//!             on: flushes of different queues are not shared.
//! Invariants: 1. a flush that serves a request's step was issued after the step before it had
//!                completed;
//!             2. at most one flush of a queue is in the device or on its way there.
//! Events:     `I` of the request with its flags; `D FWS 0` of each flush; `D`, `C` of the data; at
//!             the end of the sequence a second `C` with 0 sectors. The first flush is issued by
//!             whoever submits, the rest by the completion of the step before (`swapper`). blk-mq
//!             has kblockd issue all of them (`FF`), and no `I`.
//! Source:     behaviour of `block/blk-flush.c`; events of real traces of 3.4.2, 3.8.0 and 4.6.2.

use wp_base::event::{BlockAction, Flags, Op};
use wp_base::{Sector, Time};

use crate::device::Status;
use crate::engine::{Core, Ctx};
use crate::pool::NO_EPOCH;
use crate::pool::{BioInfo, IoClass, RqId, State};
use crate::site;

const PREFLUSH: u8 = 1;
const DATA: u8 = 2;
const POSTFLUSH: u8 = 4;
const STEPS: u8 = PREFLUSH | DATA | POSTFLUSH;

/// The state of one hardware queue's flush sequences.
#[derive(Default)]
pub(crate) struct FlushMachine {
    /// Double buffer: requests that wait for a flush.
    waiting: [Vec<RqId>; 2],
    /// Which of the two is pending. The other one is running if a flush is under way, else empty.
    pending: usize,
    /// The flush under way.
    running: Option<RqId>,
    /// When the first request of the pending list came.
    pending_since: Time,
    /// Requests of sequences whose data are under way.
    data_in_flight: u32,
}

impl FlushMachine {
    /// Is a flush under way?
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl Core {
    /// The hardware queue that a request belongs to.
    fn hardware_queue(&self, rq: RqId) -> usize {
        self.pool[rq].core as usize % self.flush.len()
    }

    /// Is a flush under way?
    pub fn is_flushing(&self) -> bool {
        self.flush.iter().any(FlushMachine::is_running)
    }

    /// Takes a request with PREFLUSH or FUA (`blk_insert_flush()`).
    pub fn flush_insert(&mut self, cx: &Ctx, rq: RqId) {
        if self.stops_at_gate(cx, rq) {
            return;
        }
        let has_set = self.pool[rq].sectors == 0 && self.pool.has_data(rq);
        let r = &mut self.pool[rq];
        let mut needed = 0;
        let flush = if r.sectors > 0 { &site::PREFLUSH } else { &site::EMPTY_FLUSH };
        if (r.flags.has(Flags::PREFLUSH) || r.op == Op::Flush) && flush.on() {
            needed |= PREFLUSH;
        }
        if r.sectors > 0 {
            needed |= DATA;
        }
        if r.flags.has(Flags::FUA) && !cx.limits.fua {
            if site::POSTFLUSH.on() {
                needed |= POSTFLUSH;
            }
            r.flags = r.flags.without(Flags::FUA);
        } else if r.flags.has(Flags::FUA) && !site::FUA_KEPT.on() {
            r.flags = r.flags.without(Flags::FUA);
        }
        let is_barrier = r.op == Op::Flush && r.flags.has(Flags::BARRIER) && cx.limits.barrier;
        r.flags = r.flags.without(Flags::PREFLUSH) | Flags::SYNC;
        let is_ranged = has_set && needed == PREFLUSH;
        if needed == DATA || is_barrier || is_ranged {
            self.dispatch.push_back(rq);
            return;
        }
        r.state.set(State::FLUSH_SEQ);
        self.flush_step(cx, rq, STEPS & !needed, Ok(()));
    }

    /// `steps` of the request are done: on to the next one (`blk_flush_complete_seq()`).
    fn flush_step(&mut self, cx: &Ctx, rq: RqId, steps: u8, status: Result<(), Status>) {
        let queue = self.hardware_queue(rq);
        let r = &mut self.pool[rq];
        assert!(r.steps & steps == 0, "a flush step is done once");
        r.steps |= steps;
        let left = STEPS & !r.steps;
        // The lowest bit is the next step.
        let next = left & left.wrapping_neg();
        if status.is_err() || next == 0 {
            if status.is_err() {
                r.status = status;
            }
            self.flush_end(cx, rq);
        } else if next == DATA {
            self.flush[queue].data_in_flight += 1;
            self.flush_queue(cx, rq, true);
        } else {
            let machine = &mut self.flush[queue];
            let joins = machine.running.is_some() && !site::FLUSH_AFTER.on();
            let list = machine.pending ^ usize::from(joins);
            if machine.waiting[list].is_empty() {
                machine.pending_since = cx.rt.now();
            }
            machine.waiting[list].push(rq);
        }
        self.flush_kick(cx, queue);
    }

    /// The whole sequence is done.
    fn flush_end(&mut self, cx: &Ctx, rq: RqId) {
        // The request's range has been completed before (or never was one): what is left of it is
        // nothing, at its end.
        self.completed(cx, rq, self.pool[rq].end(), 0);
        // Only if it failed before its data were sent.
        self.leave_epoch(cx, rq);
        self.end_bios(rq, Vec::new());
        self.free(cx, rq);
        self.counters.completed += 1;
    }

    /// Issues a flush if one is wanted and none stands against it (`blk_kick_flush()`).
    fn flush_kick(&mut self, cx: &Ctx, queue: usize) {
        let f = &mut self.flush[queue];
        if f.running.is_some() || f.waiting[f.pending].is_empty() {
            return;
        }
        let now = cx.rt.now();
        if f.data_in_flight > 0 && now < f.pending_since + cx.config.habits.flush_patience {
            return;
        }
        f.pending ^= 1;
        let info = BioInfo {
            op: Op::Flush,
            flags: if cx.is_mq() { Flags::PREFLUSH } else { Flags::PREFLUSH | Flags::SYNC },
            at: Sector(0),
            sectors: 0,
            segments: 0,
            task: None,
            // Fewer queues than cores are counted in 32 bits.
            core: queue as u32,
            class: IoClass::BestEffort,
            epoch: NO_EPOCH,
        };
        let rq = self.pool.alloc(&info, now);
        self.pool[rq].state.set(State::FLUSH_RQ);
        self.flush[queue].running = Some(rq);
        self.counters.flushes += 1;
        self.flush_queue(cx, rq, false);
    }

    /// Queues a step (`blk_flush_queue_rq()`): blk-mq leaves it to kblockd.
    fn flush_queue(&mut self, cx: &Ctx, rq: RqId, at_head: bool) {
        if cx.is_mq() {
            self.requeue_mq(rq, at_head);
        } else if at_head {
            self.dispatch.push_front(rq);
        } else {
            self.dispatch.push_back(rq);
        }
    }

    /// The flush has completed: what waited for it moves on (`flush_end_io()`).
    pub fn flush_done(&mut self, cx: &Ctx, flush: RqId) {
        let queue = self.hardware_queue(flush);
        assert_eq!(self.flush[queue].running, Some(flush), "one flush at a time");
        let (status, op, flags) =
            (self.pool[flush].status, self.pool[flush].op, self.pool[flush].flags);
        if cx.config.habits.flush_done_event || cx.is_mq() {
            let took = cx.rt.now().since(self.pool[flush].queued).0;
            cx.event(BlockAction::Complete, op, flags, Sector(0), 0, took);
        }
        self.pool.free(flush);
        let machine = &mut self.flush[queue];
        let running = machine.pending ^ 1;
        let mut list = std::mem::take(&mut machine.waiting[running]);
        machine.running = None;
        self.counters.flush_steps += list.len() as u64;
        for rq in list.drain(..) {
            let left = STEPS & !self.pool[rq].steps;
            self.flush_step(cx, rq, left & left.wrapping_neg(), status);
        }
        // The list's memory, unless somebody has begun a new one.
        let spare = &mut self.flush[queue].waiting[running];
        if spare.capacity() == 0 {
            *spare = list;
        }
    }

    /// A sequence's data have completed.
    pub fn flush_data_done(&mut self, cx: &Ctx, rq: RqId) {
        let queue = self.hardware_queue(rq);
        self.flush[queue].data_in_flight -= 1;
        let status = self.pool[rq].status;
        self.flush_step(cx, rq, DATA, status);
    }
}
