//! Elevators: in which order queued requests go to the device.
//!
//! Invariants: 1. every request that is inserted comes out of [`Elevator::next`] once, unless it is
//!                merged away;
//!             2. an elevator that holds requests and answers `None` while none of the queue's
//!                requests is in the device has asked for a timer: otherwise nobody would ask it
//!                again.
//!
//! To add one: a file, a variant of [`ElevatorKind`], a line in [`ELEVATORS`].

mod cfq;
mod deadline;
mod mq_deadline;
mod none;
mod noop;

use wp_base::era::Version;
use wp_base::{Sector, Time};

use crate::device::Limits;
use crate::era::Era;
use crate::pool::{BioInfo, Pool, RqId};

pub use cfq::{Cfq, CfqTunables};
pub use deadline::{Deadline, DeadlineTunables};
pub use mq_deadline::MqDeadline;
pub use none::NoElevator;
pub use noop::Noop;

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

/// Which elevator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElevatorKind {
    /// First in, first out.
    Noop,
    /// Completely fair queueing.
    Cfq,
    /// Batches by sector, reads first, none older than its deadline.
    Deadline,
    /// blk-mq without one: each core's own queue, first in, first out.
    None,
    /// `deadline` for blk-mq, with classes of priority since 5.14.
    MqDeadline,
}

/// An elevator that can be chosen.
pub struct ElevatorEntry {
    /// As in `/sys/block/*/queue/scheduler`.
    pub name: &'static str,
    /// Its kind.
    pub kind: ElevatorKind,
    /// The block layer that it belongs to.
    pub layer: Layer,
    /// The first kernel that has it, and the first that has it no more.
    pub versions: (Version, Version),
    /// Makes one.
    pub make: fn(&ElvSetup) -> Box<dyn Elevator>,
}

impl ElevatorEntry {
    /// Does that kernel have it, for a disk that is set up as its kernel does by default?
    ///
    /// blk-mq exists since 3.13 and mq-deadline since 4.11, but disks of SCSI, ATA and MMC went
    /// over to them with 5.0, where the single-queue layer was removed.
    pub fn is_in(&self, version: Version) -> bool {
        (self.versions.0..self.versions.1).contains(&version)
    }
}

/// No version is as high.
const STILL: Version = Version(u16::MAX, 0, 0);

/// All elevators.
pub static ELEVATORS: &[ElevatorEntry] = &[
    ElevatorEntry {
        name: "noop",
        kind: ElevatorKind::Noop,
        layer: Layer::Single,
        versions: (Version(2, 6, 0), Version(5, 0, 0)),
        make: |_| Box::new(Noop::new()),
    },
    ElevatorEntry {
        name: "cfq",
        kind: ElevatorKind::Cfq,
        layer: Layer::Single,
        versions: (Version(2, 6, 0), Version(5, 0, 0)),
        make: |setup| Box::new(Cfq::new(setup)),
    },
    ElevatorEntry {
        name: "deadline",
        kind: ElevatorKind::Deadline,
        layer: Layer::Single,
        versions: (Version(2, 6, 0), Version(5, 0, 0)),
        make: |_| Box::new(Deadline::new()),
    },
    ElevatorEntry {
        name: "none",
        kind: ElevatorKind::None,
        layer: Layer::Multi,
        versions: (Version(3, 13, 0), STILL),
        make: |_| Box::new(NoElevator::new()),
    },
    ElevatorEntry {
        name: "mq-deadline",
        kind: ElevatorKind::MqDeadline,
        layer: Layer::Multi,
        versions: (Version(4, 11, 0), STILL),
        make: |setup| Box::new(MqDeadline::new(&setup.era).with_zones(setup.limits.zones)),
    },
];

impl ElevatorKind {
    /// Its entry.
    pub fn entry(self) -> &'static ElevatorEntry {
        ELEVATORS.iter().find(|e| e.kind == self).expect("every kind is registered")
    }
    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<ElevatorKind> {
        ELEVATORS.iter().find(|e| e.name == name).map(|e| e.kind)
    }
    /// Its name.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}
