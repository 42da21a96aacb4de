//! What distinguishes one queue from another: elevator, driver, and the habits of kernels of
//! different years.

use wp_base::Span;
use wp_base::kernel::Version;

use crate::device::Limits;
use crate::elevator::{ELEVATORS, Elevator, ElevatorEntry, ElevatorKind, ElvSetup, Layer};
use crate::era::Era;
use crate::sync_depth::SyncDepth;
use crate::tuning::Tuning;

/// How the driver moves a request's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverKind {
    /// One command for the whole request, by scatter-gather DMA.
    ScatterGather,
    /// A device without scatter-gather: one command for each segment (for a read, each 4 KiB). The
    /// request completes when all have; each counts against the queue depth.
    OneSegmentPerDma,
}

/// Which plugged requests a new bio is compared with (`attempt_plug_merge()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlugScan {
    /// All, newest first: single-queue kernels (2.6.39 to 4.20).
    All,
    /// The newest only: `blk_attempt_plug_merge()` of multi-queue kernels (6.1).
    Newest,
}

/// Who runs the queue when a plug is flushed because its task waits.
///
/// The kernel does either, by the kind of wait, which a suspend hook cannot tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitUnplug {
    /// The task itself: what `io_schedule()` does (a wait for I/O, for a request, for a page).
    Task,
    /// `kworker/0:1H`, a moment later: what `schedule()` does (a wait for a lock, for a kernel
    /// thread), as the task's stack may be deep (`blk_schedule_flush_plug()`). Seen on 3.10.61: `D`
    /// of a flusher's data by `kworker/0:1H`.
    Kblockd,
}

/// How bios are held back in a task's plug. Source: behaviour of `blk_queue_bio()` and
/// `blk_flush_plug_list()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlugPolicy {
    /// Requests after which the next one flushes the plug first (`BLK_MAX_REQUEST_COUNT`).
    pub requests_max: u32,
    /// A plugged request of this number of bytes or more flushes the plug before the next is added
    /// (`BLK_PLUG_FLUSH_SIZE`; 0: never).
    pub flush_bytes: u32,
    /// Are they sorted by sector when they are flushed?
    pub sort: bool,
    /// What a bio is compared with.
    pub scan: PlugScan,
    /// Who issues after a flush that a wait caused. Waits under a plug are nearly always for I/O.
    pub on_wait: WaitUnplug,
}

impl PlugPolicy {
    /// As kernels with these rules do in a block layer.
    ///
    /// What a wait flushes is issued by kblockd in blk-mq (`blk_schedule_flush_plug()`, since 4.11
    /// for `io_schedule()` too; source: events of real traces of 5.10.223).
    fn of(era: &Era, layer: Layer) -> PlugPolicy {
        let is_multi = layer == Layer::Multi;
        PlugPolicy {
            requests_max: if era.has_large_plugs() { 32 } else { 16 },
            flush_bytes: if era.limits_plug_bytes() { 128 << 10 } else { 0 },
            sort: !is_multi && era.sorts_plug(),
            scan: if era.compares_newest() { PlugScan::Newest } else { PlugScan::All },
            on_wait: if is_multi { WaitUnplug::Kblockd } else { WaitUnplug::Task },
        }
    }
}

/// Who lets one write at a time into a sequential zone, so that they arrive in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneWrites {
    /// Nobody.
    Nobody,
    /// mq-deadline, which locks the zone of each write that it gives up for dispatch (4.16 to 6.9);
    /// with `none` nobody, and flush sequences go round the elevator and its lock.
    Elevator,
    /// The block layer, before there is a request: bios for a zone that is being written wait in
    /// its plug (6.10 and later, commit "block: Introduce zone write plugging").
    Plug,
}

/// Habits that show in a trace or change the order of dispatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Habits {
    /// Emit `A` (remap) before `Q` for bios of a partition? `Q` carries the absolute sector either
    /// way. Every kernel does; traces that list only Q I M D C leave it out.
    pub remap_event: bool,
    /// Emit `C` for the flush machine's own cache flush (`C FWS 0`)? Not in 3.4.2, 3.8.0 and
    /// 3.10.61, yes in 4.6.2 (real traces). The change lies in `blk_update_request()`, which used
    /// to return before its trace point when a request had no bio.
    pub flush_done_event: bool,
    /// Does the driver take a request off the elevator, and is `D` seen, before it finds the device
    /// full (`blk_peek_request()` before the check of the queue depth)? True for every SCSI or ATA
    /// disk of the single-queue kernels: one request more than the queue depth is issued. False:
    /// what the device has no room for stays in the elevator, where bios can still join it
    /// (multi-queue kernels).
    pub issue_ahead: bool,
    /// Does the driver tell what it has dispatched? In the kernel that BarrierFS was published with
    /// the SCSI layer alone does (`blk_request_dispatched()` is called in `scsi_lib.c` only): with
    /// any other driver, virtio's for one, what waits for dispatch waits for completion.
    pub tells_dispatch: bool,
    /// How long a flush may be put off by data of other flush sequences (`FLUSH_PENDING_TIMEOUT`):
    /// 5 s. As in the kernel, it is checked only when some flush sequence moves on.
    pub flush_patience: Span,
}

/// A queue's set-up.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Which block layer; it must be that of the elevator.
    pub layer: Layer,
    /// The rules of its kernel.
    pub era: Era,
    /// Order of service.
    pub elevator: ElevatorKind,
    /// Requests of each kind (synchronous, asynchronous) that `submit_throttled` allows at once
    /// (`/sys/block/*/queue/nr_requests`). 128 in every kernel here (`BLKDEV_MAX_RQ`).
    pub nr_requests: u32,
    /// How data moves.
    pub driver: DriverKind,
    /// How bios are held back.
    pub plug: PlugPolicy,
    /// Kernel habits.
    pub habits: Habits,
    /// Does an epoch of ordered writes wait until those that were closed before it have been
    /// dispatched? True: the BarrierFS paper's order-preserving dispatch. False: what its published
    /// kernel does, which hands barriers on and stops nothing. Nothing else sees it.
    pub epoch_gate: bool,
    /// Limit on asynchronous requests while somebody syncs; no kernel has it.
    pub sync_depth: Option<SyncDepth>,
    /// Does an asynchronous write that somebody waits for go before other asynchronous ones
    /// (QASIO)? For cfq and deadline; no kernel has it.
    pub boost: bool,
    /// Count waits for asynchronous writes, without changing anything.
    pub counts_quasi: bool,
    /// Does the device turn? CFQ idles for such devices (`QUEUE_FLAG_NONROT` clear).
    pub rotational: bool,
    /// The device's name, such as `sdb`.
    pub name: String,
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
}

impl QueueConfig {
    /// The set-up of a disk in Linux `major.minor`, with the kernel's default elevator: cfq until
    /// 4.20, mq-deadline from 5.0 on.
    pub fn linux(major: u16, minor: u16) -> QueueConfig {
        QueueConfig::of(Era::of(Version(major, minor, 0)))
    }

    /// The set-up of a disk with these rules, and the kernel's default elevator.
    pub fn of(era: Era) -> QueueConfig {
        let layer = if era.is_multi_queue() { Layer::Multi } else { Layer::Single };
        QueueConfig {
            layer,
            era,
            elevator: match layer {
                Layer::Single => ElevatorKind::Cfq,
                Layer::Multi => ElevatorKind::MqDeadline,
            },
            nr_requests: 128,
            driver: DriverKind::ScatterGather,
            plug: PlugPolicy::of(&era, layer),
            habits: Habits {
                remap_event: false,
                flush_done_event: era.completes_flush_event(),
                issue_ahead: layer == Layer::Single,
                tells_dispatch: true,
                flush_patience: Span::secs(5),
            },
            epoch_gate: true,
            sync_depth: None,
            boost: false,
            counts_quasi: false,
            rotational: false,
            name: "sdb".to_string(),
            major: 8,
            minor: 16,
        }
    }

    /// The set-up of a disk in kernel `version`, with the elevator of that name, or the kernel's
    /// default one.
    ///
    /// The name may be followed by parameters: `noop,fsync_depth=4` (`fsync_depth`,
    /// `fsync_window_ms`, `boost`, `count_waits`).
    ///
    /// Errors: no such elevator or parameter; one that the kernel does not have. (`noop` is taken
    /// for `none` by kernels that have only that: the same order of service under its new name.)
    pub fn for_kernel(
        version: impl Into<Version>,
        elevator: Option<&str>,
    ) -> Result<QueueConfig, String> {
        let version = version.into();
        let base = QueueConfig::of(Era::of(version));
        let mut parts = elevator.unwrap_or_default().split(',').filter(|p| !p.is_empty());
        // Parameters alone are of the kernel's own elevator.
        let own = base.elevator.name();
        let name = match parts.clone().next() {
            Some(first) if !first.contains('=') => parts.next().unwrap_or(own),
            _ => own,
        };
        let Tuning { sync_depth, boost, counts_quasi } = Tuning::parse(parts)?;
        let base = QueueConfig { sync_depth, boost, counts_quasi, ..base };
        let boosts = ["cfq", "deadline"];
        if boost && !boosts.contains(&name) {
            return Err(format!("`{name}` cannot boost (boost=1 is for cfq and deadline)"));
        }
        let name = if name == "noop" && base.layer == Layer::Multi { "none" } else { name };
        let names = |has: fn(&ElevatorEntry, Version) -> bool| -> String {
            let found: Vec<&str> =
                ELEVATORS.iter().filter(|e| has(e, version)).map(|e| e.name).collect();
            found.join(", ")
        };
        let Some(kind) = ElevatorKind::from_name(name) else {
            let known = names(|_, _| true);
            return Err(format!("no elevator called `{name}` (elevators: {known})"));
        };
        if !kind.entry().is_in(version) {
            let known = names(ElevatorEntry::is_in);
            return Err(format!("Linux {version} has no elevator `{name}` (elevators: {known})"));
        }
        Ok(base.with_elevator(kind))
    }

    /// What [`QueueConfig::for_kernel`] makes this elevator of: its name and parameters.
    pub fn elevator_text(&self) -> String {
        let (name, sync_depth) = (self.elevator.name(), self.sync_depth);
        let tuning = Tuning { sync_depth, boost: self.boost, counts_quasi: self.counts_quasi };
        format!("{name}{tuning}")
    }

    /// Its elevator, for a device with these limits.
    pub(crate) fn make_elevator(&self, limits: Limits) -> Box<dyn Elevator> {
        let setup = ElvSetup { limits, rotational: self.rotational, era: self.era };
        (self.elevator.entry().make)(&setup)
    }

    /// Who sees to it that a zone is written in order.
    pub fn zone_writes(&self) -> ZoneWrites {
        match self.layer {
            Layer::Multi if self.era.plugs_zones() => ZoneWrites::Plug,
            Layer::Multi if self.era.locks_zones() => ZoneWrites::Elevator,
            _ => ZoneWrites::Nobody,
        }
    }

    /// With another elevator, and the block layer that it belongs to.
    #[must_use]
    pub fn with_elevator(mut self, elevator: ElevatorKind) -> QueueConfig {
        self.elevator = elevator;
        let layer = elevator.entry().layer;
        if layer != self.layer {
            self.layer = layer;
            self.plug = PlugPolicy::of(&self.era, layer);
            self.habits.issue_ahead = layer == Layer::Single;
        }
        self
    }
}

impl Default for QueueConfig {
    /// Linux 4.6.
    fn default() -> QueueConfig {
        QueueConfig::linux(4, 6)
    }
}
