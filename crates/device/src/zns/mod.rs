//! A zoned SSD (NVMe ZNS) with a volatile write buffer, or one that survives.
//!
//! Picture:    host -> controller (one thing at a time, twice for each command) -> link -> buffer
//!             (tokens) -> program units, one filling for each zone -> map -> dies. A write
//!             completes when its data are in the buffer. A zone has two write pointers: `wp-zns`,
//!             which the host sees and which moves when a write is taken, and `wp-nand`, which
//!             moves when a program unit has been programmed and all before it in the zone have.
//! Laws:       for a command that is alone:
//!             - write: command + link + write cpu + write overhead, and what appends, lists, parts
//!               of mapping units, opening and reopening take besides;
//!             - read: command + tR + channel + link + read cpu + read overhead;
//!             - flush: command + channel(unit) + tPROG + flush overhead, if a unit is not durable;
//!             - finish: as fast as the dies program padding; nothing if nothing was written;
//!             - reset: by what the host has written; one after the other; it takes turns with
//!               units that are to be programmed.
//!             A zone is striped over all dies, so one zone is as fast as many. Writers share the
//!             buffer evenly: with `n` zones being programmed each has a share of 1/n of its
//!             tokens.
//! Crash:      durable of a zone is the prefix up to `wp-nand` (with PLP: up to what has arrived),
//!             and the zone's write pointer is there after power returns. What is in the buffer
//!             comes as loss units; which of them a cut may keep says [`wp_block::ZoneOrder`], and
//!             what *this model* leaves at the instant is none of them. A reset or finish that has
//!             completed is durable; one under way is a loss unit.
//! Conventional zones: written anywhere through a stream of units of their own, mapped slot by
//! slot.
//! Left out:   garbage collection of conventional zones (their flash is taken to be plenty), erases
//!             (they are done long before a zone is written again, and no measurement shows them),
//!             read-ahead, room for padding in a zone's flash blocks, zone random write areas,
//!             errors of the flash.
//! Source:     buffer as tokens with two pointers: the order-preserving F2FS paper's emulator
//!             (NVMeVirt), 5.3; states: NVMe ZNS command set 1.1.

mod config;
mod crash;
mod flash;
mod front;
mod manage;
mod read;
pub(crate) mod table;

pub use config::ZnsConfig;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wp_base::event::Op;
use wp_base::{Sector, Time, Zone, ZoneState};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits};
use wp_medium::{Medium, Slice};

use crate::fixed::Counts;
use crate::lane::Lane;
use crate::nand::Nand;

use flash::{Unit, Units};
use manage::MapEngine;
use table::ZoneTable;

/// No request, unit or zone.
const NONE: u32 = u32::MAX;
/// Number that the stream of the conventional zones goes by.
const CONVENTIONAL: u32 = u32::MAX - 1;

/// A command in the device.
#[derive(Clone)]
struct Request {
    id: u64,
    op: Op,
    fua: bool,
    at: Sector,
    sectors: u32,
    /// Its zone, or [`CONVENTIONAL`].
    zone: u32,
    /// When the controller has understood it.
    decoded: Time,
    /// Are its data still on their way?
    in_transfer: bool,
    /// What it takes besides, once its data have come: controller, and holding nothing up.
    extra: (wp_base::Span, wp_base::Span),
    /// Order in which its data came; 0 until then.
    seq: u64,
    data: Vec<Slice>,
}

/// What the device holds of a zone (or of the conventional ones) that is not idle.
#[derive(Clone, Default)]
struct ZoneBuf {
    /// Slots from the zone's start whose data have come.
    arrived: u32,
    /// Slots from the zone's start that are programmed: `wp-nand`.
    durable: u32,
    /// Units that hold the slots between, in order: key.
    units: VecDeque<u32>,
    /// The unit that fills, or [`NONE`].
    filling: u32,
    /// Units closed and not programmed, padding included.
    outstanding: u32,
    /// Tokens that it holds.
    held: u32,
    /// Writes that wait for tokens, in order: request.
    waiting: VecDeque<u32>,
    /// Writes whose data are on the way.
    flying: u32,
    /// When the last of these comes.
    last_arrival: Time,
    /// FUA writes: (programmed up to here, request).
    fua: Vec<(u32, u32)>,
    /// A finish under way.
    finish: Option<manage::Finish>,
}

impl ZoneBuf {
    fn is_idle(&self) -> bool {
        self.filling == NONE
            && self.outstanding == 0
            && self.waiting.is_empty()
            && self.flying == 0
            && self.finish.is_none()
    }

    /// Does it compete for tokens?
    fn is_writer(&self) -> bool {
        self.outstanding > 0 || !self.waiting.is_empty() || self.finish.is_some()
    }
}

/// A zone's units on the flash.
#[derive(Clone)]
struct Layout {
    /// (first slot of the zone, number of the unit that it is in), where a unit begins that is not
    /// behind a full one.
    starts: Vec<(u32, u32)>,
    /// Number of the next unit.
    next: u32,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { starts: vec![(0, 0)], next: 0 }
    }
}

/// The device.
#[derive(Clone)]
pub struct Zns {
    config: ZnsConfig,
    nand: Nand,
    table: ZoneTable,
    /// By zone, or [`CONVENTIONAL`]; only those that are not idle.
    bufs: BTreeMap<u32, ZoneBuf>,
    layouts: BTreeMap<u32, Layout>,
    units: Units,
    requests: Vec<Option<Request>>,
    spare: Vec<u32>,
    live: u32,
    tokens: u32,
    /// Zone whose turn it was last to get tokens.
    turn: u32,
    cpu: Lane,
    /// To the host, from the host.
    links: [Lane; 2],
    map: MapEngine,
    /// Flushes that wait: (request, units begun before this, how many of them are left).
    flushes: Vec<(u32, u64, u32)>,
    /// What a reader sees.
    current: Medium,
    /// What is programmed; not kept up with PLP.
    durable: Medium,
    /// Conventional slots: slot -> unit serial and place in it (as one number).
    conventional: BTreeMap<u32, u64>,
    /// Conventional slots of which a newer version is programmed than some in the buffer.
    newest: BTreeMap<u32, u64>,
    /// Zones that a finish has made full, and how much the host had written: slots.
    finished: BTreeMap<u32, u32>,
    /// Zones of a reset that is under way.
    resetting: BTreeSet<u32>,
    /// Order number of the last data that came.
    seq: u64,
    flush_armed: bool,
    counts: Counts,
    more: MoreCounts,
}

/// What the device has done, besides its flash and the common counts.
#[derive(Clone, Copy, Default)]
struct MoreCounts {
    appends: u64,
    resets: u64,
    finishes: u64,
    units_padded: u64,
    slots_padded: u64,
    pad_units: u64,
    token_waits: u64,
    internal_flushes: u64,
    buffer_hits: u64,
}

/// Kinds of timers; a token is the kind in its top byte and a number below.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timer {
    /// Request (key) completes.
    Complete = 0,
    /// A write's (key) data are in the buffer.
    Arrived = 1,
    /// A unit (key) is programmed, unless it was suspended.
    Programmed = 2,
    /// The buffer is to be made durable.
    Overdue = 3,
    /// The map has finished a turn.
    Map = 4,
    /// A read's (key) data have come over the link.
    Read = 5,
    /// A reset, finish or flush (key) has been understood.
    Decoded = 6,
}

impl Timer {
    fn set(self, at: Time, number: u64, fx: &mut Effects) {
        debug_assert!(number < 1 << 56);
        fx.timers.push((at, (self as u64) << 56 | number));
    }
}

impl Zns {
    /// All zones empty, idle.
    pub fn new(config: ZnsConfig) -> Zns {
        Zns {
            config,
            nand: Nand::new(config.geometry, config.timing),
            table: ZoneTable::new(config.zones),
            bufs: BTreeMap::new(),
            layouts: BTreeMap::new(),
            units: Units::new(config.geometry.dies),
            requests: Vec::new(),
            spare: Vec::new(),
            live: 0,
            tokens: config.buffer_slots,
            turn: 0,
            cpu: Lane::default(),
            links: [Lane::default(), Lane::default()],
            map: MapEngine::default(),
            flushes: Vec::new(),
            current: Medium::new(),
            durable: Medium::new(),
            conventional: BTreeMap::new(),
            newest: BTreeMap::new(),
            finished: BTreeMap::new(),
            resetting: BTreeSet::new(),
            seq: 0,
            flush_armed: false,
            counts: Counts::default(),
            more: MoreCounts::default(),
        }
    }

    /// Its numbers.
    pub fn config(&self) -> &ZnsConfig {
        &self.config
    }

    /// A zone has failed: it is [`ZoneState::ReadOnly`] or [`ZoneState::Offline`] for good. Panics
    /// for another state.
    pub fn fail_zone(&mut self, zone: u32, state: ZoneState) {
        self.table.fail(zone, state);
    }

    /// Panics unless tokens, units and states agree.
    pub fn assert_valid(&self) {
        self.table.assert_valid();
        let held: u32 = self.bufs.values().map(|b| b.held).sum();
        assert_eq!(held + self.tokens, self.config.buffer_slots, "tokens are lost or made");
        for (zone, buf) in &self.bufs {
            assert!(!buf.is_idle(), "zone {zone} is kept though it is idle");
            assert!(buf.durable <= buf.arrived, "zone {zone}");
        }
    }

    /// Makes `slots` slots of 4 KiB of a zone written and programmed, without time: a zone that was
    /// filled before anybody looked. Its contents read as zeroes. Panics unless it is empty and has
    /// that many.
    pub fn prefill(&mut self, zone: u32, slots: u32) {
        let start = self.config.zones.start_of(zone);
        let sectors = u64::from(slots) * flash::SLOT_SECTORS;
        assert!(slots > 0, "nothing to fill");
        let done = self.table.write(start, sectors).expect("an empty zone with room");
        debug_assert_eq!(done.0, zone);
        let layout = self.layouts.entry(zone).or_default();
        layout.next = slots.div_ceil(self.config.geometry.unit_slots);
        layout.starts.push((slots, layout.next));
        if self.table.get(zone).state.is_open() {
            self.table.close(zone).expect("it is open");
        }
    }

    fn request(&self, key: u32) -> &Request {
        self.requests[key as usize].as_ref().expect("keys are of requests in the device")
    }

    fn request_mut(&mut self, key: u32) -> &mut Request {
        self.requests[key as usize].as_mut().expect("keys are of requests in the device")
    }

    fn insert(&mut self, request: Request) -> u32 {
        self.live += 1;
        match self.spare.pop() {
            Some(key) => {
                self.requests[key as usize] = Some(request);
                key
            }
            None => {
                self.requests.push(Some(request));
                self.requests.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, key: u32) -> Request {
        self.live -= 1;
        self.spare.push(key);
        self.requests[key as usize].take().expect("keys are of requests in the device")
    }

    fn buf(&mut self, zone: u32) -> &mut ZoneBuf {
        let written = |table: &ZoneTable| {
            let z = table.get(zone);
            ((z.wp.0 - z.start.0) / flash::SLOT_SECTORS) as u32
        };
        let table = &self.table;
        self.bufs.entry(zone).or_insert_with(|| {
            let done = if zone == CONVENTIONAL { 0 } else { written(table) };
            ZoneBuf { arrived: done, durable: done, filling: NONE, ..ZoneBuf::default() }
        })
    }

    /// Forgets what is kept of a zone once it is idle.
    fn drop_if_idle(&mut self, zone: u32) {
        if self.bufs.get(&zone).is_some_and(ZoneBuf::is_idle) {
            let buf = self.bufs.remove(&zone).expect("just seen");
            debug_assert!(buf.fua.is_empty() && buf.held == 0);
            self.tokens += buf.held;
        }
        if zone == CONVENTIONAL && !self.bufs.contains_key(&zone) {
            self.newest.clear();
        }
    }

    fn unit(&self, key: u32) -> &Unit {
        self.units.get(key)
    }
}

impl DeviceModel for Zns {
    fn limits(&self) -> &Limits {
        &self.config.limits
    }

    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        if self.live >= self.config.limits.queue_depth {
            return Admit::Busy(rq);
        }
        let id = rq.id;
        if let Err(status) = self.accept(now, rq, fx) {
            fx.fail(id, status);
        }
        Admit::Accepted
    }

    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        let key = token as u32;
        match token >> 56 {
            t if t == Timer::Complete as u64 => self.complete(now, key, fx),
            t if t == Timer::Arrived as u64 => self.arrived(now, key, fx),
            t if t == Timer::Programmed as u64 => self.programmed(now, key, fx),
            t if t == Timer::Overdue as u64 => self.overdue(now, fx),
            t if t == Timer::Map as u64 => self.map_turn_over(now, fx),
            t if t == Timer::Read as u64 => self.read_moved(now, key, fx),
            t if t == Timer::Decoded as u64 => self.decoded(now, key, fx),
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
        self.current.clone()
    }

    fn zones(&self) -> Vec<Zone> {
        self.table.zones().to_vec()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (m, n) = (&self.more, self.nand.counts());
        let mut list = self.counts.list();
        list.extend([
            ("zone_appends", m.appends),
            ("zone_resets", m.resets),
            ("zone_finishes", m.finishes),
            ("zones_closed_for_others", self.table.closed_for_others),
            ("units_programmed", n.programs),
            ("units_padded", m.units_padded),
            ("slots_padded", m.slots_padded),
            ("units_of_padding", m.pad_units),
            ("token_waits", m.token_waits),
            ("internal_flushes", m.internal_flushes),
            ("slots_read_from_buffer", m.buffer_hits),
            ("flash_page_rows_read", n.reads),
        ]);
        list
    }
}
