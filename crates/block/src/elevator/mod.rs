//! Elevators: in which order queued requests go to the device.
//!
//! To add one: a file, a variant of [`ElevatorKind`], a line in [`ELEVATORS`].

mod cfq;
mod deadline;
mod interface;
mod mq_deadline;
mod none;
mod noop;
mod zone_locks;

use wp_base::kernel::Version;

pub use cfq::{Cfq, CfqTunables};
pub use deadline::{Deadline, DeadlineTunables};
pub use interface::{Elevator, ElvCx, ElvSetup, Kick, Layer};
pub use mq_deadline::MqDeadline;
pub use none::NoElevator;
pub use noop::Noop;

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
