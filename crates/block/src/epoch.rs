//! Epochs: which ordered writes go to the device before which others (BarrierFS).
//!
//! Picture:    task A: w w w|B   -> epoch, closed by the write with a barrier
//!             task B:  w   w    -> another epoch, open
//!             plug -> **gate** -> elevator -> dispatch -> device: w w w+B  w w …
//!
//! A write with [`Flags::ORDERED`] belongs to its task's open epoch (interrupt context has one of
//! its own); one with [`Flags::BARRIER`] closes it, and so does [`crate::BlockQueue::close_epoch`].
//! The device sees a linear stream with marks: all that it has received up to and with a write that
//! carries [`Flags::BARRIER`] persists before anything that it receives later.
//!
//! Law:        *a write of an epoch persists before every ordered write that is submitted after
//!             the epoch was closed*, whoever submits it. So closed epochs have one order on the
//!             queue, that in which they were closed, and this is the order in which they reach
//!             the device.
//! Why this:   an epoch that is open has promised nothing yet, so it keeps nobody waiting; a
//!             journal's commit thread must not wait for whatever other tasks happen to write.
//!             What it does depend on (a file's data, which `fsync`'s caller writes in an epoch
//!             that stays open) it has waited for to be dispatched, [`crate::Bio::on_dispatch`];
//!             then those data are in the stream before the barrier of the first epoch that is
//!             closed afterwards. So "dispatched before" and "closed before" are all that a file
//!             system needs to say, and both hold across tasks. (The paper's scheduler stops the
//!             whole queue at a barrier: whatever was queued by any task is then before it. That
//!             is more order than the law, for which nobody waits here.)
//! Gate:       a request of an epoch, when it leaves its task's plug, waits before the elevator
//!             until each epoch that was closed by then, and before its own, has been accepted by
//!             the device to its last request. Behind the gate, the elevator sorts and merges what
//!             it likes; it never holds two things that must not change places. Orderless requests
//!             do not stop at it. `QueueConfig::epoch_gate` off: what the published kernel does,
//!             which reassigns barriers and holds nothing back.
//! Barrier:    is reassigned: of a closed epoch, the request that is accepted last carries it,
//!             the others lose it (in the published kernel, with the gate off, the write that
//!             closed the epoch keeps its own as well).
//! Flushes:    an ordered write with PREFLUSH or FUA stops at the gate as well, and then takes its
//!             steps in the flush machine; it counts as on its way until its data are accepted,
//!             and these carry the barrier if they are the last. Order comes from the epoch,
//!             durability from the flags; neither stands in for the other.
//! Invariants: 1. a request on its way belongs to at most one epoch, and nothing joins it but what
//!                belongs to the same: `merge.rs`;
//!             2. an epoch in `open` has requests on its way (one without is forgotten: what it had
//!                is in the stream already);
//!             3. requests of epoch `n` wait only for epochs below `n`, of which all requests have
//!                been allocated: a bio joins an epoch, or closes it, only once it has its request.
//!                So the gate always opens, however few requests there are.
//! Left out:   a write that fails before it reaches the device takes the barrier that it would
//!             have carried with it; a bio that is refused at once (beyond the end) closes nothing.
//!             Of the published kernel: it counts no epochs under deadline, and merges ordered with
//!             orderless requests.
//! Source:     BarrierFS (FAST'18), sections 3 and 4: epoch-based scheduling, order-preserving
//!             dispatch; behaviour of `blk_queue_bio()`, `elv_dispatch_sort()`,
//!             `blk_finish_epoch()`, `blk_request_dispatched()` of its published kernel (3.10.61).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use wp_base::event::{Flags, Op};
use wp_medium::Slice;
use wp_rt::TaskId;

use crate::end::End;
use crate::engine::{Core, Ctx, Ready};
use crate::epoch_log::EpochLog;
use crate::pool::{BioInfo, NO_EPOCH, RqId};
use crate::slab::Slab;

struct Epoch {
    task: Option<TaskId>,
    /// Requests (and bios that wait for their zone) that the device has not accepted.
    pending: u32,
    /// Its place in the order of closing, from 1; 0 while it is open.
    number: u64,
}

/// A request before the gate.
struct Held {
    rq: RqId,
    /// The last epoch that it waits for.
    after: u64,
}

/// The epochs of one queue.
#[derive(Default)]
pub(crate) struct Epochs {
    slots: Slab<Epoch>,
    /// Open ones. Few tasks have one.
    open: Vec<u32>,
    /// Closed ones, in their order, from the first that has a request on its way.
    closed: VecDeque<u32>,
    /// How many have been closed.
    count: u64,
    held: VecDeque<Held>,
    /// Receives a record of what was submitted, if there is one.
    pub log: Option<Rc<RefCell<EpochLog>>>,
}

impl Epochs {
    /// The open epoch of a task.
    pub fn of(&self, task: Option<TaskId>) -> u32 {
        let is_its = |slot: &&u32| self.slots.get(**slot).task == task;
        self.open.iter().find(is_its).copied().unwrap_or(NO_EPOCH)
    }

    /// A bio that will have a request of its own (or wait for its zone) joins its task's epoch.
    pub fn enlist(&mut self, bio: &mut BioInfo, segs: &[Slice]) {
        self.note(bio, segs);
        let mut slot = self.of(bio.task);
        if slot == NO_EPOCH {
            slot = self.slots.put(Epoch { task: bio.task, pending: 0, number: 0 });
            self.open.push(slot);
        }
        self.slots.get_mut(slot).pending += 1;
        bio.epoch = slot;
        if bio.flags.has(Flags::BARRIER) {
            self.close(slot);
        }
    }

    fn note(&self, bio: &BioInfo, segs: &[Slice]) {
        if let Some(log) = &self.log {
            log.borrow_mut().sent(bio.task, bio.at, segs, bio.flags);
        }
    }

    fn close(&mut self, slot: u32) {
        self.count += 1;
        self.slots.get_mut(slot).number = self.count;
        self.open.retain(|s| *s != slot);
        self.closed.push_back(slot);
    }

    /// Two requests of the epoch have become one.
    pub fn merged(&mut self, slot: u32) {
        if slot != NO_EPOCH {
            self.slots.get_mut(slot).pending -= 1;
        }
    }

    /// Would a request that is accepted now be the last one of its epoch, which is closed?
    fn is_last(&self, slot: u32) -> bool {
        let epoch = self.slots.get(slot);
        epoch.number > 0 && epoch.pending == 1
    }

    /// One request less is on its way.
    fn leave(&mut self, slot: u32) {
        let epoch = self.slots.get_mut(slot);
        epoch.pending -= 1;
        if epoch.pending > 0 {
            return;
        }
        if epoch.number == 0 {
            self.open.retain(|s| *s != slot);
            self.slots.take(slot);
            return;
        }
        while let Some(first) = self.closed.front().copied()
            && self.slots.get(first).pending == 0
        {
            self.closed.pop_front();
            self.slots.take(first);
        }
    }

    /// The last epoch such that it and all before have been accepted whole.
    fn done(&self) -> u64 {
        self.closed.front().map_or(self.count, |first| self.slots.get(*first).number - 1)
    }

    /// Is anything closed and not yet accepted whole? Then there is a gate.
    #[inline]
    pub fn is_gate_shut(&self) -> bool {
        !self.closed.is_empty()
    }

    /// The last epoch that one of these has to wait for.
    fn before(&self, slot: u32) -> u64 {
        match self.slots.get(slot).number {
            0 => self.count,
            number => number - 1,
        }
    }

    /// Epochs closed so far.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Core {
    /// Closes the open epoch of a task. False: no request of the epoch is in flight.
    pub fn close_epoch(&mut self, task: Option<TaskId>) -> bool {
        let slot = self.epochs.of(task);
        if slot == NO_EPOCH {
            return false;
        }
        self.epochs.close(slot);
        if let Some(log) = &self.epochs.log {
            log.borrow_mut().close(task);
        }
        true
    }

    /// Merges an ordered bio into a request of its epoch, or gives it back.
    #[cold]
    pub fn join_epoch(&mut self, cx: &Ctx, mut bio: Ready) -> Result<(), Ready> {
        let info = bio.info;
        let segs = if self.epochs.log.is_some() { bio.segs.clone() } else { Vec::new() };
        let slot = self.epochs.of(bio.info.task);
        if slot == NO_EPOCH {
            return Err(bio);
        }
        bio.info.epoch = slot;
        let merged = self.join(cx, bio);
        if merged.is_ok() {
            self.epochs.note(&info, &segs);
            if info.flags.has(Flags::BARRIER) {
                self.epochs.close(slot);
            }
        }
        merged
    }

    /// Must a bio of this epoch stay out of the elevator's requests, as those are behind the gate?
    pub fn may_not_pass(&self, cx: &Ctx, bio: &BioInfo) -> bool {
        bio.epoch != NO_EPOCH && cx.config.epoch_gate && self.epochs.is_gate_shut()
    }

    /// Keeps a request back if the gate is shut for it.
    #[inline]
    pub fn stops_at_gate(&mut self, cx: &Ctx, rq: RqId) -> bool {
        self.epochs.is_gate_shut() && self.hold(cx, rq)
    }

    fn hold(&mut self, cx: &Ctx, rq: RqId) -> bool {
        let slot = self.pool[rq].epoch;
        if slot == NO_EPOCH || !cx.config.epoch_gate {
            return false;
        }
        let after = self.epochs.before(slot);
        if after <= self.epochs.done() {
            return false;
        }
        self.epochs.held.push_back(Held { rq, after });
        self.counters.gated += 1;
        true
    }

    /// Gives a request that has an epoch its barrier, or takes it away, as things are now.
    pub fn mark_barrier(&mut self, cx: &Ctx, rq: RqId) {
        let r = &mut self.pool[rq];
        if r.epoch == NO_EPOCH {
            return;
        }
        if self.epochs.is_last(r.epoch) {
            r.flags |= Flags::BARRIER;
        } else if cx.config.epoch_gate {
            r.flags = r.flags.without(Flags::BARRIER);
        }
    }

    /// The device has accepted all of a request that somebody watches.
    pub fn accepted(&mut self, cx: &Ctx, rq: RqId) {
        if self.pool[rq].epoch != NO_EPOCH {
            self.counters.barriers += u64::from(self.pool[rq].flags.has(Flags::BARRIER));
            self.leave_epoch(cx, rq);
        }
        if !cx.config.habits.tells_dispatch {
            return;
        }
        let Core { pool, wholes, dispatched, .. } = self;
        pool.for_each_end(rq, |end| match end {
            End::Telling(telling) => dispatched.extend(telling.dispatched.take()),
            End::Part(whole, _) => {
                let whole = wholes.get_mut(*whole);
                whole.unsent -= 1;
                if whole.unsent == 0 {
                    dispatched.extend(whole.dispatched.take());
                }
            }
            End::Nobody | End::Call(_) | End::Waiter(_) => {}
        });
    }

    /// A request is not on its way any more: it was accepted, or it failed before.
    pub fn leave_epoch(&mut self, cx: &Ctx, rq: RqId) {
        let slot = std::mem::replace(&mut self.pool[rq].epoch, NO_EPOCH);
        if slot == NO_EPOCH {
            return;
        }
        let before = self.epochs.done();
        self.epochs.leave(slot);
        if !self.epochs.held.is_empty() && self.epochs.done() > before {
            self.open_gate(cx);
        }
    }

    /// Lets in whatever waits for no epoch any more, in the order in which it came.
    fn open_gate(&mut self, cx: &Ctx) {
        let done = self.epochs.done();
        for _ in 0..self.epochs.held.len() {
            let Some(held) = self.epochs.held.pop_front() else { return };
            if held.after > done {
                self.epochs.held.push_back(held);
            } else {
                self.let_in(cx, held.rq);
            }
        }
    }

    fn let_in(&mut self, cx: &Ctx, rq: RqId) {
        if !cx.is_mq() {
            // Whoever accepts a request runs the queue.
            self.insert(cx, rq, true);
            return;
        }
        let r = &self.pool[rq];
        if r.op == Op::Flush || r.flags.any(Flags::PREFLUSH | Flags::FUA) {
            self.flush_insert(cx, rq);
        } else {
            self.insert_mq(cx, rq);
        }
        self.mq.wanted = true;
    }
}
