//! A device and the little that drives it: a clock, its timers, and what it has completed.

pub mod oracle;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use wp_base::event::{DeviceWork, Flags, Op};
use wp_base::{Sector, Time};
use wp_block::{Admit, DevRequest, DeviceModel, Done, Effects};
use wp_device::ssd::{Ssd, SsdConfig};
use wp_device::{ConfigError, Settings, find};
use wp_medium::Slice;

pub struct World<D: DeviceModel + ?Sized> {
    pub now: Time,
    pub next_id: u64,
    timers: BinaryHeap<Reverse<(Time, u64, u64)>>,
    set: u64,
    fx: Effects,
    /// Completed and not yet asked for.
    pub done: BTreeMap<u64, (Time, Done)>,
    /// Completions in order: (time, id).
    pub log: Vec<(Time, u64)>,
    pub device: Box<D>,
    /// What the device told, if it is listened to.
    pub works: Vec<DeviceWork>,
}

impl<D: DeviceModel + ?Sized> World<D> {
    pub fn new(device: Box<D>) -> World<D> {
        World {
            now: Time::ZERO,
            next_id: 1,
            timers: BinaryHeap::new(),
            set: 0,
            fx: Effects::new(),
            done: BTreeMap::new(),
            log: Vec::new(),
            device,
            works: Vec::new(),
        }
    }

    /// Listens to what the device does within.
    pub fn listen(&mut self) {
        self.fx.listening = true;
    }

    fn absorb(&mut self) {
        self.works.append(&mut self.fx.works);
        for (at, token) in self.fx.timers.drain(..) {
            assert!(at >= self.now, "a timer in the past");
            self.set += 1;
            self.timers.push(Reverse((at, self.set, token)));
        }
        for done in self.fx.done.drain(..) {
            self.log.push((self.now, done.id));
            assert!(self.done.insert(done.id, (self.now, done)).is_none(), "completed twice");
        }
    }

    /// Submits; `None` if the device is busy.
    pub fn try_submit(
        &mut self,
        op: Op,
        flags: Flags,
        at: u64,
        sectors: u32,
        data: Vec<Slice>,
    ) -> Option<u64> {
        let id = self.next_id;
        let rq = DevRequest { id, op, flags, at: Sector(at), sectors, data };
        match self.device.submit(self.now, rq, &mut self.fx) {
            Admit::Accepted => {
                self.next_id += 1;
                self.absorb();
                Some(id)
            }
            Admit::Busy(rq) => {
                assert_eq!(rq.id, id);
                None
            }
        }
    }

    pub fn submit(&mut self, op: Op, flags: Flags, at: u64, sectors: u32, data: Vec<Slice>) -> u64 {
        self.try_submit(op, flags, at, sectors, data).expect("the queue has room")
    }

    pub fn write(&mut self, at: u64, data: Slice) -> u64 {
        self.submit(Op::Write, Flags::NONE, at, data.len() / 512, vec![data])
    }

    pub fn write_fua(&mut self, at: u64, data: Slice) -> u64 {
        self.submit(Op::Write, Flags::FUA, at, data.len() / 512, vec![data])
    }

    pub fn read(&mut self, at: u64, sectors: u32) -> u64 {
        self.submit(Op::Read, Flags::NONE, at, sectors, Vec::new())
    }

    pub fn flush(&mut self) -> u64 {
        self.submit(Op::Flush, Flags::NONE, 0, 0, Vec::new())
    }

    pub fn discard(&mut self, at: u64, sectors: u32) -> u64 {
        self.submit(Op::Discard, Flags::NONE, at, sectors, Vec::new())
    }

    /// Fires the next timer; false if there is none.
    pub fn step(&mut self) -> bool {
        let Some(Reverse((at, _, token))) = self.timers.pop() else { return false };
        self.now = at;
        self.device.timer(at, token, &mut self.fx);
        self.absorb();
        true
    }

    /// When the next timer fires.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, ..))| *at)
    }

    /// Fires timers up to `at`, and goes there.
    pub fn run_to(&mut self, at: Time) {
        while self.next_timer().is_some_and(|t| t <= at) {
            self.step();
        }
        self.now = self.now.max(at);
    }

    /// Runs until `id` is complete. Returns when, and what.
    pub fn wait(&mut self, id: u64) -> (Time, Done) {
        while !self.done.contains_key(&id) {
            assert!(self.step(), "request {id} never completes");
        }
        self.done.remove(&id).expect("just seen")
    }

    /// Runs until no timer is left.
    pub fn drain(&mut self) {
        while self.step() {}
    }

    pub fn count(&self, name: &str) -> u64 {
        let all = self.device.counters();
        all.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

/// A second world in the same state.
pub fn forked(world: &World<dyn DeviceModel>) -> World<dyn DeviceModel> {
    World {
        now: world.now,
        next_id: world.next_id,
        timers: world.timers.clone(),
        set: world.set,
        fx: Effects::new(),
        done: world.done.clone(),
        log: world.log.clone(),
        device: world.device.fork(),
        works: Vec::new(),
    }
}

/// The bytes of slices.
pub fn bytes(slices: &[Slice]) -> Vec<u8> {
    Slice::concat(slices)
}

/// A small SSD: 2 channels of 2 dies, program units of 4 slots, superblocks of 32 units; round
///              times.
pub const SMALL: [(&str, u64); 24] = [
    ("capacity_bytes", 4096 * 1000),
    ("queue_depth", 32),
    ("max_request_sectors", 256),
    ("fua", 1),
    ("link_mb_s", 512),
    ("command_ns", 1_000),
    ("read_overhead_ns", 300),
    ("write_overhead_ns", 2_000),
    ("flush_overhead_ns", 500),
    ("discard_overhead_ns", 400),
    ("buffer_bytes", 4096 * 64),
    ("channels", 2),
    ("dies_per_channel", 2),
    ("planes", 2),
    ("page_bytes", 8192),
    ("pages_per_program", 1),
    ("pages_per_block", 8),
    ("blocks_per_plane", 20),
    ("read_ns", 50_000),
    ("program_ns", 600_000),
    ("erase_ns", 3_000_000),
    ("bus_mb_s", 400),
    ("gc_low_superblocks", 3),
    ("internal_flush_ns", 0),
];

pub fn small_config(replaced: &[(&str, u64)]) -> Result<SsdConfig, ConfigError> {
    let mut s = Settings::of(find("ssd-128").expect("it is in the list").params);
    for (key, value) in SMALL.iter().chain(replaced) {
        s.set(key, *value)?;
    }
    SsdConfig::from_settings(&s)
}

pub fn small(replaced: &[(&str, u64)]) -> World<Ssd> {
    World::new(Box::new(Ssd::new(small_config(replaced).expect("a possible device"))))
}
