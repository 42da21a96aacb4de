//! What a block device is to everything above it: a state machine with requests in and effects out.
//!
//! Picture:    `submit`/`timer` -> [`DeviceModel`] -> [`Effects`] (completions, timers to set).
//! Invariants: 1. a model never awaits and never reads a clock: it knows only the `now` that it is
//!                told, and `now` never goes back;
//!             2. an accepted request is completed exactly once, in some later or the same call's
//!                effects;
//!             3. what `crash_view` says is a function of the calls so far: nothing is drawn at
//!                random there.
//! Left out:   write hints; they come as fields with defaults when the first model needs them.

use wp_base::event::{DeviceWork, Flags, Op};
use wp_base::{SECTOR_BYTES, Sector, Time, Zone, ZoneLimits};
use wp_medium::{Medium, Slice};

use crate::zones::{KeepInZone, LossEffect, ZoneCut};

/// What a device says of itself (`struct queue_limits`, and the cache bits of
/// `blk_queue_write_cache()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Capacity in sectors of 512 bytes.
    pub sectors: u64,
    /// Smallest addressable unit in bytes; requests are aligned to it.
    pub logical_bytes: u32,
    /// Smallest unit in bytes that is written without read-modify-write; also the unit that cannot
    /// tear.
    pub physical_bytes: u32,
    /// Requests that the device holds at once; one more is answered with [`Admit::Busy`].
    pub queue_depth: u32,
    /// Largest request in sectors. A discard may be larger.
    pub max_sectors: u32,
    /// Most segments (slices that do not continue one another in memory) of a request.
    pub max_segments: u32,
    /// Does it report a volatile write cache? If not, it is never sent a flush.
    pub volatile_cache: bool,
    /// Does it honour [`Flags::FUA`]? If not, it is never sent one.
    pub fua: bool,
    /// Does it take [`Op::Discard`]?
    pub discard: bool,
    /// Discards that do not cover this many aligned sectors may be ignored. 0 when `discard` is
    /// not.
    pub discard_granularity_sectors: u32,
    /// Does what was discarded read as zeroes (ATA RZAT, NVMe DLFEAT)? If not, as anything that was
    /// there.
    pub discard_zeroes: bool,
    /// Can it be sent a cache flush beside other commands? Not over SATA, where FLUSH CACHE is no
    /// queued command: libata lets the queue run empty before it (`ata_std_qc_defer()`), and the
    /// single-queue layer takes nothing from the elevator while it runs (`flush_not_queueable`,
    /// since 2.6.40). Nor over eMMC, whose command line is one.
    pub flush_beside_others: bool,
    /// Submission queues: a core has one of them, and flushes of different queues are not merged
    /// (`blk_mq_hw_ctx`, each with its `blk_flush_queue`). One for SATA and eMMC.
    pub hardware_queues: u32,
    /// Does it take a cache barrier ([`Flags::BARRIER`] on an [`Op::Flush`]: eMMC 5.1
    /// `BARRIER_EN`)? If not, the block layer makes a cache flush of one.
    pub barrier: bool,
    /// Does it honour [`Flags::BARRIER`] on a write (the barrier write of the BarrierFS paper)?
    /// Everything that it received before, and the write itself, persists before anything that it
    /// receives later. Others get the flag as well, and it means nothing to them.
    pub barrier_writes: bool,
    /// Is every write a barrier write, and kept whole or not at all (OPTR)? After a power failure
    /// the writes that it received are there up to one of them, and none behind that.
    pub ordered_writes: bool,
    /// Does it take a FLUSH of some sectors only ([`crate::FlushSet`]), as the RFLUSH paper has it?
    /// If not, the block layer makes a FLUSH of all of one.
    pub range_flush: bool,
    /// Longest write in bytes that it keeps whole over a power failure, without any flag: NVMe's
    /// (AWUPF + 1) blocks, or (NAWUPF + 1) of the namespace. 0: it says nothing.
    pub atomic_bytes: u32,
    /// No write that crosses a multiple of this many bytes is kept whole: NVMe's (NABSPF + 1)
    /// blocks. 0: there is no such boundary.
    pub atomic_boundary_bytes: u32,
    /// Its zones, if it has any.
    pub zones: Option<ZoneLimits>,
}

impl Limits {
    /// Does it keep an order of writes, of all or of those with a barrier?
    pub const fn keeps_order(&self) -> bool {
        self.barrier_writes || self.ordered_writes
    }

    /// A plain disk with this number of 512-byte sectors, from which a caller changes what differs:
    /// no cache, no discard, no zones, 32 commands of 256 sectors (those of QEMU's AHCI disk).
    pub const fn plain(sectors: u64) -> Limits {
        Limits {
            sectors,
            logical_bytes: 512,
            physical_bytes: 4096,
            queue_depth: 32,
            max_sectors: 256,
            max_segments: 168,
            volatile_cache: false,
            fua: false,
            discard: false,
            discard_granularity_sectors: 0,
            discard_zeroes: false,
            flush_beside_others: true,
            hardware_queues: 1,
            barrier: false,
            barrier_writes: false,
            ordered_writes: false,
            range_flush: false,
            atomic_bytes: 0,
            atomic_boundary_bytes: 0,
            zones: None,
        }
    }
}

/// A request as the driver hands it to the device: one or more merged bios.
///
/// Shape: `data` holds `sectors * 512` bytes in order for a write, the set of a ranged flush
///        ([`crate::FlushSet`]), and nothing for the others; `sectors` is 0 for a flush. Of the
///        flags [`Flags::FUA`] means something to a device, and [`Flags::BARRIER`] on a
/// flush where the device has barriers (it is a cache barrier then, no flush) or on a write where
/// it has [`Limits::barrier_writes`]. The flush machine has taken the others apart.
#[derive(Clone, Debug)]
pub struct DevRequest {
    /// Name of the request; comes back in [`Done::id`]. Unique among those in flight.
    pub id: u64,
    /// What to do.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// First sector.
    pub at: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// What to write, by reference.
    pub data: Vec<Slice>,
}

/// How a request failed (`blk_status_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// `BLK_STS_IOERR`: the device could not do it, or the range is beyond its end.
    Io,
    /// `BLK_STS_NOTSUPP`: it does not know the operation.
    NotSupported,
    /// `BLK_STS_INVAL`: an untorn write that would be torn.
    Invalid,
    /// `BLK_STS_ZONE_OPEN_RESOURCE`: as many zones are open as can be.
    ZoneOpenResource,
    /// `BLK_STS_ZONE_ACTIVE_RESOURCE`: as many zones are open or closed as can be.
    ZoneActiveResource,
}

/// Did the device take the request?
#[derive(Debug)]
#[must_use]
pub enum Admit {
    /// It did; it will complete it.
    Accepted,
    /// It holds `queue_depth` requests already: here it is back, unchanged.
    Busy(DevRequest),
}

/// A completed request.
#[derive(Clone, Debug)]
pub struct Done {
    /// [`DevRequest::id`].
    pub id: u64,
    /// How it went.
    pub status: Result<(), Status>,
    /// What a read found: `sectors * 512` bytes in order. Empty for everything else.
    pub data: Vec<Slice>,
    /// Where a zone append has written.
    pub appended: Option<Sector>,
}

/// What a call into the device caused. The caller empties it; the device only appends.
#[derive(Default, Debug)]
pub struct Effects {
    /// Completions, in order; they happen at the `now` of the call.
    pub done: Vec<Done>,
    /// One-shot timers to set: call [`DeviceModel::timer`] at that time with that token. Never
    /// earlier than `now`.
    pub timers: Vec<(Time, u64)>,
    /// Does somebody listen to what the device does within? The caller sets it.
    pub listening: bool,
    /// What it does, if somebody listens; commands are called by their [`DevRequest::id`].
    pub works: Vec<DeviceWork>,
}

impl Effects {
    /// Nothing yet.
    pub fn new() -> Effects {
        Effects::default()
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.done.clear();
        self.timers.clear();
        self.works.clear();
    }

    /// Tells a piece of work; `make` runs only if somebody listens.
    #[inline]
    pub fn tell(&mut self, make: impl FnOnce() -> DeviceWork) {
        if self.listening {
            self.works.push(make());
        }
    }

    /// Appends a successful completion that carries no data.
    pub fn complete(&mut self, id: u64) {
        self.done.push(Done { id, status: Ok(()), data: Vec::new(), appended: None });
    }

    /// Appends a failed completion.
    pub fn fail(&mut self, id: u64, status: Status) {
        self.done.push(Done { id, status: Err(status), data: Vec::new(), appended: None });
    }
}

/// Why a unit of data may be missing after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LossWhy {
    /// In the volatile buffer, no program started.
    InBuffer,
    /// Being programmed.
    Programming,
    /// Programmed, but something that a barrier puts before it is not: recovery forgets it.
    OutOfOrder,
    /// On its way from the host, or waiting for buffer space; never acknowledged.
    InTransfer,
}

/// Data that is not yet durable: at a power cut the device may keep it, lose it, or (beyond
/// [`Limits::physical_bytes`]) keep any part of it.
#[derive(Clone, Debug)]
pub struct LossUnit {
    /// First sector.
    pub at: Sector,
    /// What was written there, in order.
    pub data: Vec<Slice>,
    /// Has the device completed the request that this belongs to?
    pub acked: bool,
    /// Where it is.
    pub why: LossWhy,
    /// Barriers before this (0 without): cache barriers that the device had completed, and barrier
    /// writes that it had received, when it received this. What of an epoch is kept presupposes all
    /// of the epochs before; a barrier write is of the epoch that it ends.
    pub epoch: u32,
    /// What it does.
    pub effect: LossEffect,
    /// Order in which the device received it. Later units overwrite earlier ones; units of one
    /// request share it.
    pub seq: u64,
}

impl LossUnit {
    /// Its length in sectors.
    pub fn sectors(&self) -> u64 {
        self.data.iter().map(|s| u64::from(s.len())).sum::<u64>() / SECTOR_BYTES
    }

    /// Writes it to `medium`: what happens when it is kept. (The data of a reset are zeroes, those
    /// of a finish nothing.)
    pub fn apply(&self, medium: &mut Medium) {
        let mut at = self.at;
        for slice in &self.data {
            medium.write(at, slice);
            at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
        }
    }
}

/// What a power cut at an instant can leave.
///
/// A legal image is `medium` with any subset of `loss` applied in the order of `seq`, provided that
/// nothing of an epoch is kept unless all of the epochs before is, and that a sequential zone keeps
/// what the order of its zones allows ([`CrashView::is_legal`]).
#[derive(Clone, Debug)]
pub struct CrashView {
    /// What is durable: everything flushed, written with FUA, or programmed by the device on its
    /// own account.
    pub medium: Medium,
    /// What may be missing, in device order (ascending `seq`).
    pub loss: Vec<LossUnit>,
    /// Of a zoned device: its zones if nothing of `loss` is kept, and in which order they keep.
    pub zones: Option<ZoneCut>,
}

impl CrashView {
    /// May a power cut keep just these (`kept(i)`: is `loss[i]` kept?)?
    ///
    /// Without barriers always. With them some whole number of epochs is there, of the next one
    /// anything, of later ones nothing (eMMC 5.1, 6.6.37; [`Limits::barrier_writes`]). For zones
    /// see [`crate::ZoneOrder`].
    pub fn is_legal(&self, kept: impl Fn(usize) -> bool) -> bool {
        if let Some(cut) = &self.zones
            && !cut.is_legal(self.loss.iter().map(|u| u.at).enumerate(), &kept)
        {
            return false;
        }
        let units = || self.loss.iter().enumerate();
        let last = units().filter(|(i, _)| kept(*i)).map(|(_, u)| u.epoch).max();
        last.is_none_or(|last| units().all(|(i, u)| u.epoch >= last || kept(i)))
    }

    /// The zones of a device that has kept just these; what a report says after the cut. Empty of
    /// one without zones.
    pub fn zones_of(&self, kept: impl Fn(usize) -> bool) -> Vec<Zone> {
        let Some(cut) = &self.zones else { return Vec::new() };
        let mut zones = cut.table.to_vec();
        for (_, unit) in self.loss.iter().enumerate().filter(|(i, _)| kept(*i)) {
            cut.limits.keep(&mut zones, unit.effect, unit.at, unit.sectors());
        }
        zones
    }

    /// The image in which everything that may be missing is there.
    pub fn all_kept(&self) -> Medium {
        let mut medium = self.medium.clone();
        for unit in &self.loss {
            unit.apply(&mut medium);
        }
        medium
    }
}

/// A block device. The trait lives here; models live in `wp-device`; wrappers may inject faults.
pub trait DeviceModel {
    /// What it says of itself; does not change.
    fn limits(&self) -> &Limits;

    /// Hands it a request at `now`. It completes in `fx` of this or a later call; [`Admit::Busy`]
    /// hands it back when `queue_depth` requests are in the device. Malformed requests (beyond the
    /// end, unaligned, an operation that [`Limits`] does not offer) are accepted and completed with
    /// an error.
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit;

    /// A timer of an earlier effect fired. Timers of one instant fire in the order in which they
    /// were set.
    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects);

    /// What a power cut at `now` can leave. Asking changes nothing.
    fn crash_view(&self, now: Time) -> CrashView;

    /// A copy-on-write clone in the same state: cheap enough to take at every completion. The
    /// timers that the original has set must be set for the clone as well, by whoever drives it.
    fn fork(&self) -> Box<dyn DeviceModel>;

    /// Contents as a reader would see them now: completed writes included, wherever they are.
    fn medium(&self) -> Medium;

    /// Its zones as a report would have them now, in order. None of a device without zones.
    fn zones(&self) -> Vec<Zone> {
        Vec::new()
    }

    /// Counters for reports: (name with its unit, value), always all of them, in a fixed order.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Blocks of its flash that hold data, by how many slots of 4 KiB in each are still valid:
    /// those with none come first, and could be used again with nothing copied. Empty if it does
    /// not model that. May walk the whole device.
    fn flash_blocks(&self) -> Vec<u64> {
        Vec::new()
    }
}
