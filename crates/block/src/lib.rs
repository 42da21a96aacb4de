//! The block layer: from bios to commands of a device, as the single-queue layer of Linux 3.x and
//! 4.x did it (noop, deadline, cfq; every disk until 4.20), and as blk-mq does since 5.0 (none,
//! mq-deadline).
//!
//! Picture:    `Bio` -> `Partition` (remap) -> `BlockQueue`: plug of the task -> elevator ->
//!             dispatch queue -> driver -> [`DeviceModel`]; completion -> ends of the bios -> next
//!             dispatch, in interrupt context (`swapper`).
//! Invariants: 1. a bio ends exactly once (or never, if the power goes), in interrupt context;
//!             2. without flags nothing is ordered: requests that overlap in time and place are the
//!                submitter's affair; [`wp_base::event::Flags::PREFLUSH`] and `FUA` mean what the
//!                flush machine says (`flush.rs`), `ORDERED` and `BARRIER` what epochs do
//!                (`epoch.rs`);
//!             3. events are emitted where the kernel's trace points are: Q G M F P U I D R C, and
//!                A and X.
//! Left out:   request timeouts and retries, failfast, integrity, write-same, several hardware
//!             queues, kyber and bfq, writeback throttling; zone append for devices without it.
//!
//! Files:      `bio` → `queue`, `entry` (checks, split) → `engine` (merge, plug, insert) →
//!             `elevator/*` → `dispatch` → device; `mq`: what blk-mq does otherwise; `flush` beside
//!             the elevator; `epoch`: the gate before it; `zone_plug`: one write at a time in a
//!             zone; `merge`, `sorted`, `pool`, `slab`, `waiters` hold the data; `trace` prints.

mod atomic;
mod bio;
mod config;
mod device;
mod device_events;
mod dispatch;
mod elevator;
mod end;
mod engine;
mod entry;
mod epoch;
mod epoch_log;
mod era;
mod flush;
mod flush_set;
mod kblockd;
mod merge;
mod mq;
mod partition;
mod plug;
mod pool;
mod quasi;
mod queue;
pub mod site;
mod slab;
mod sorted;
mod sync_depth;
pub mod trace;
mod tuning;
mod waiters;
mod zone_plug;
mod zones;

pub use atomic::{AtomicLimits, is_within};
pub use bio::{Bio, BioEnd, EndIo, OnDispatch};
pub use config::{DriverKind, Habits, PlugPolicy, PlugScan, QueueConfig, WaitUnplug, ZoneWrites};
pub use device::{
    Admit, CrashView, DevRequest, DeviceModel, Done, Effects, Limits, LossUnit, LossWhy, Status,
};
pub use elevator::{
    Cfq, CfqTunables, Deadline, DeadlineTunables, ELEVATORS, Elevator, ElevatorEntry, ElevatorKind,
    ElvCx, ElvSetup, Kick, Layer, MqDeadline, NoElevator, Noop,
};
pub use engine::QueueCounters;
pub use entry::InFlight;
pub use epoch_log::{EpochIndex, EpochLog, Inversion};
pub use era::{Era, POLICIES};
pub use flush_set::FlushSet;
pub use partition::Partition;
pub use plug::PlugGuard;
pub use pool::{BioInfo, IoClass, List, Pool, Request, RqId};
pub use quasi::{Quasi, QuasiWaits};
pub use queue::BlockQueue;
pub use sync_depth::SyncDepth;
pub use zones::{KeepInZone, LossEffect, ZoneCut, ZoneOrder, powered_up};
