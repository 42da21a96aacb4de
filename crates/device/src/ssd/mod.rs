//! An SSD with a page-mapping FTL and a volatile write buffer.
//!
//! Picture:    host -> controller (one command at a time) -> link -> buffer (tokens) -> program
//!             units -> dies. A write completes when its data are in the buffer; a FLUSH when all
//!             that was complete before it is programmed; a FUA write when it is itself. A unit
//!             that FLUSH or FUA finds half full is padded.
//! Laws:       for a request that is alone:
//!             - write: command + link + write overhead (if the buffer is not full);
//!             - FUA write: the same + channel(unit) + tPROG;
//!             - flush of one unit: command + channel(unit) + tPROG + flush overhead;
//!             - flush of nothing: command + flush overhead;
//!             - read: command + tR + channel + link + read overhead; from the buffer no tR and
//!               channel;
//!             - many writes: as fast as the slowest of controller, link, channels, and dies with
//!               unit / (channel(unit) + tPROG) each.
//! Crash:      durable is what was programmed (with PLP: what was acknowledged); everything else in
//!             the buffer is a loss unit, each slot of 4 KiB by itself either old or new.
//!             With `barrier_writes` units are lost by epochs (`order`).
//! Invariants: 1. timers are set for when something ends, never to look whether it has;
//!             2. contents stand in a [`Medium`] by host address and in the buffer, and the map
//!                decides which of the two a reader sees.
//! Flash:      `ftl` the map, `choose` which superblock is collected, `gc` how, `blocks` bad ones;
//!             [`FtlConfig`] its settings, [`Ssd::usage`] its statistics.
//! SLC cache:  `slc`: host units are programmed faster until it is full.
//! Wears out:  once too few superblocks are left writes and discards fail
//!             ([`wp_block::Status::Io`]); what was acknowledged stays readable.
//! Left out:   merging of writes to one slot within the buffer; time and traffic of the map itself;
//!             a command that is being decoded already holds its place before the flash and the
//!             link.
//! Source:     buffer as tokens with early completion: the order-preserving F2FS paper's emulator
//!             (NVMeVirt).

mod aged;
mod blocks;
mod buffer;
mod choose;
mod config;
mod crash;
mod durable;
mod front;
mod ftl;
mod gc;
mod order;
mod policy;
mod pool;
mod report;
mod runmap;
mod shuffle;
mod slc;
mod steady;
mod sync;
mod tell;
mod untorn;

pub use config::SsdConfig;
pub use ftl::SuperState;
pub(crate) use policy::FTL;
pub use policy::{AgedStart, FtlConfig, GcPolicy};
pub use report::{SuperblockReport, Usage};
pub(crate) use slc::SLC;
pub use slc::SlcConfig;
pub(crate) use sync::SYNC;
pub use sync::SyncConfig;

use std::collections::VecDeque;

use wp_base::Time;
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits};
use wp_medium::Medium;

use crate::lane::Lane;
use crate::nand::Nand;

use buffer::Buffer;
use durable::Durable;
use ftl::Ftl;
use gc::Gc;
use order::InOrder;
use pool::Pool;
use slc::Slc;
use sync::SyncState;

/// The device.
#[derive(Clone)]
pub struct Ssd {
    config: SsdConfig,
    nand: Nand,
    ftl: Ftl,
    buffer: Buffer,
    durable: Durable,
    gc: Gc,
    /// Requests in the device.
    pool: Pool,
    /// Writes that wait for tokens, in order.
    token_queue: VecDeque<u32>,
    /// Writes whose data have arrived and that wait for a free superblock, in order, each since
    /// when.
    space_queue: VecDeque<(u32, Time)>,
    /// Flushes that wait for programs.
    flushes: Vec<PendingFlush>,
    /// When the controller takes its next command.
    controller: Time,
    /// To the host; from the host, if it moves both ways at once.
    links: [Lane; 2],
    /// Order number of the last write or discard that arrived.
    seq: u64,
    /// Barrier writes received: the epoch of what is received now.
    epoch: u32,
    /// Where writes are taken in order: when the data of the last one have come.
    moved: Time,
    /// What keeps epochs in order, in a drive that does, and whose buffer is volatile.
    order: Option<InOrder>,
    /// Writes and discards fail: too many flash blocks have.
    read_only: bool,
    sync: SyncState,
    slc: Slc,
    counts: Counts,
}

/// A flush and what it waits for.
#[derive(Clone)]
struct PendingFlush {
    key: u32,
    /// Units begun before this serial are what it waits for.
    before_serial: u64,
    /// How many of them are still to be programmed.
    units: u32,
    /// Of a ranged flush: serials of those that hold something of its set.
    only: Option<Vec<u64>>,
}

impl PendingFlush {
    /// Does it wait for the unit of this serial?
    fn waits_for(&self, serial: u64) -> bool {
        match &self.only {
            Some(serials) => serials.contains(&serial),
            None => serial < self.before_serial,
        }
    }
}

/// What the device has done, besides what its flash has.
#[derive(Clone, Copy, Default)]
struct Counts {
    requests: crate::fixed::Counts,
    slots_written: u64,
    units_padded: u64,
    slots_padded: u64,
    token_waits: u64,
    space_waits: u64,
    slots_read_from_buffer: u64,
    slots_read_from_flash: u64,
    read_modify_writes: u64,
    internal_flushes: u64,
    gc_victims: u64,
    gc_victims_for_wear: u64,
    gc_slots_moved: u64,
}

/// Kinds of timers; a token is the kind in its top byte and a number below.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timer {
    /// Request (key) completes.
    Complete = 0,
    /// A write's (key) data are in the buffer.
    Arrived = 1,
    /// A unit (key) is programmed.
    Programmed = 2,
    /// The unit of this serial has been filling for too long.
    Overdue = 3,
    /// Garbage collection has read its batch.
    GcRead = 4,
    /// A superblock is erased.
    Erased = 5,
    /// A FLUSH holds other commands no longer.
    FlushHeld = 6,
}

impl Timer {
    fn token(self, number: u64) -> u64 {
        debug_assert!(number < 1 << 56);
        (self as u64) << 56 | number
    }

    fn set(self, at: Time, number: u64, fx: &mut Effects) {
        fx.timers.push((at, self.token(number)));
    }
}

impl Ssd {
    /// All zero, idle, nothing mapped.
    pub fn new(config: SsdConfig) -> Ssd {
        Ssd {
            config,
            nand: Nand::new(config.geometry, config.timing),
            ftl: Ftl::new(&config),
            buffer: Buffer::new(config.geometry.dies, config.buffer_slots),
            durable: Durable::default(),
            gc: Gc::new(),
            pool: Pool::default(),
            token_queue: VecDeque::new(),
            space_queue: VecDeque::new(),
            flushes: Vec::new(),
            controller: Time::ZERO,
            links: [Lane::default(), Lane::default()],
            seq: 0,
            epoch: 0,
            moved: Time::ZERO,
            order: (config.limits.keeps_order() && !config.plp).then(InOrder::default),
            read_only: false,
            sync: SyncState::new(config.ftl.seed),
            slc: Slc::new(config.slc),
            counts: Counts::default(),
        }
    }

    /// What it is like.
    pub fn config(&self) -> &SsdConfig {
        &self.config
    }

    /// Bytes of memory that the map and the tree of contents take, apart from the contents
    /// themselves: what grows as the device is written to at random, and does not as it is written
    /// to in order.
    pub fn map_bytes(&self) -> u64 {
        self.ftl.map_bytes() + self.durable.medium().memory_nodes() as u64 * 800
    }

    /// Panics unless the map, its inverse and the counts of valid slots agree. Walks the whole
    /// device.
    pub fn assert_valid(&self) {
        self.ftl.assert_valid();
    }
}

impl DeviceModel for Ssd {
    fn limits(&self) -> &Limits {
        &self.config.limits
    }

    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        if self.pool.live() >= self.config.limits.queue_depth {
            return Admit::Busy(rq);
        }
        self.accept(now, rq, fx);
        Admit::Accepted
    }

    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        // Every number below the kind was a 32-bit key or count, or a serial that is only compared.
        let number = token & ((1 << 56) - 1);
        let key = number as u32;
        match token >> 56 {
            t if t == Timer::Complete as u64 => self.complete(key, fx),
            t if t == Timer::Arrived as u64 => self.arrived(now, key, fx),
            t if t == Timer::Programmed as u64 => self.programmed(now, key, fx),
            t if t == Timer::Overdue as u64 => self.overdue(now, number, fx),
            t if t == Timer::GcRead as u64 => self.gc_has_read(now, fx),
            t if t == Timer::Erased as u64 => self.erased(now, key, fx),
            t if t == Timer::FlushHeld as u64 => self.flush_held(now, fx),
            other => unreachable!("timer kind {other}"),
        }
    }

    fn crash_view(&self, now: Time) -> CrashView {
        self.view_after_crash(now)
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn medium(&self) -> Medium {
        self.current()
    }

    fn flash_blocks(&self) -> Vec<u64> {
        self.usage().blocks_by_valid
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counts;
        let n = self.nand.counts();
        let mut list = c.requests.list();
        list.extend([
            ("host_slots_written", c.slots_written),
            ("units_programmed", n.programs),
            ("units_padded", c.units_padded),
            ("slots_padded", c.slots_padded),
            ("token_waits", c.token_waits),
            ("space_waits", c.space_waits),
            ("slots_read_from_buffer", c.slots_read_from_buffer),
            ("slots_read_from_flash", c.slots_read_from_flash),
            ("read_modify_writes", c.read_modify_writes),
            ("internal_flushes", c.internal_flushes),
            ("gc_victims", c.gc_victims),
            ("gc_slots_moved", c.gc_slots_moved),
            ("flash_page_rows_read", n.reads),
            ("flash_blocks_erased", n.erases * u64::from(self.config.geometry.planes)),
            ("free_superblocks", self.ftl.free_superblocks() as u64),
        ]);
        list.extend(self.flash_counters());
        list
    }
}
