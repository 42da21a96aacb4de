//! What every elevator offers, and what it is told.
//!
//! Invariants: 1. every request that is inserted comes out of [`Elevator::next`] once, unless it is
//!                merged away;
//!             2. an elevator that holds requests and answers `None` while none of the queue's
//!                requests is in the device has asked for a timer: otherwise nobody would ask it
//!                again.

use wp_base::{Sector, Time};

use crate::device::Limits;
use crate::era::Era;
use crate::pool::{BioInfo, Pool, RqId};
use wp_rt::TaskId;

/// What an elevator works on.
pub struct ElvCx<'a> {
    /// Now.
    pub now: Time,
    /// The requests.
    pub pool: &'a mut Pool,
    /// Set by the elevator: call [`Elevator::timer`] then. A later setting replaces an earlier one.
    pub timer: Option<Time>,
}

/// Should the queue be run at once, before anything else is inserted?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// As usual.
    No,
    /// Run it now.
    Run,
}

/// An order of service (`struct elevator_type`).
pub trait Elevator {
    /// May `bio` join the queued request (`elevator_allow_merge_fn`)?
    fn allow_merge(&self, _pool: &Pool, _rq: RqId, _bio: &BioInfo) -> bool {
        true
    }
    /// A queued request that starts where `bio` ends, if it looks for such (`elevator_merge_fn`).
    fn starting_at_end(&self, _pool: &Pool, _bio: &BioInfo) -> Option<RqId> {
        None
    }
    /// The requests that would be neighbours by sector: (before, after), as far as it keeps track
    /// (`elevator_former_req_fn`, `elevator_latter_req_fn`).
    fn neighbours(&self, pool: &Pool, rq: RqId) -> (Option<RqId>, Option<RqId>);
    /// Takes a request (`elevator_add_req_fn`).
    fn insert(&mut self, cx: &mut ElvCx<'_>, rq: RqId) -> Kick;
    /// A front merge moved a queued request from `old_at` to where it is now
    /// (`elevator_merged_fn`).
    fn moved(&mut self, _cx: &mut ElvCx<'_>, _rq: RqId, _old_at: Sector) {}
    /// Forgets `gone`, whose bios have joined `kept` (`elevator_merge_req_fn`).
    fn absorbed(&mut self, cx: &mut ElvCx<'_>, kept: RqId, gone: RqId);
    /// Gives the next request up for dispatch, or nothing for now (`elevator_dispatch_fn`).
    fn next(&mut self, cx: &mut ElvCx<'_>) -> Option<RqId>;
    /// The driver has seen the request (`elevator_activate_req_fn`).
    fn issued(&mut self, _cx: &mut ElvCx<'_>, _rq: RqId) {}
    /// The request has completed (`elevator_completed_req_fn`).
    fn completed(&mut self, _cx: &mut ElvCx<'_>, _rq: RqId) {}
    /// The timer that it asked for (it may come later than asked, never earlier).
    fn timer(&mut self, _cx: &mut ElvCx<'_>) -> Kick {
        Kick::No
    }
    /// Did the device refuse a request in the last while (`hctx->dispatch_busy`)? Told before each
    /// [`Elevator::next`] of blk-mq.
    fn pressed(&mut self, _busy: bool) {}
    /// Somebody waits for this asynchronous request, which it holds (QASIO): it goes before other
    /// asynchronous ones.
    fn boost(&mut self, _cx: &mut ElvCx<'_>, _rq: RqId, _waiter: Option<TaskId>) {}
    /// Requests that it holds.
    fn queued(&self) -> usize;
}

/// What an elevator is told of its queue when it is made.
#[derive(Clone, Copy, Debug)]
pub struct ElvSetup {
    /// The device's limits.
    pub limits: Limits,
    /// Does the device turn (`QUEUE_FLAG_NONROT` clear)?
    pub rotational: bool,
    /// The rules of its kernel.
    pub era: Era,
}

/// Which of Linux's two block layers.
///
/// Until 4.20 a SCSI, ATA or MMC disk has one locked queue (`scsi_mod.use_blk_mq=0`, the default);
/// from 5.0 on there is nothing but blk-mq. What follows from that is in `mq.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// One queue: elevators noop, deadline, cfq. Whoever submits or completes issues.
    Single,
    /// blk-mq: elevators none, mq-deadline. What is not issued by its submitter, is by kblockd.
    Multi,
}
