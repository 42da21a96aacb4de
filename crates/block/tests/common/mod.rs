//! A small device of the tests' own, and short ways to ask.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::event::{Class, Flags, Op};
use wp_base::{Rng, SECTOR_BYTES, Sector, Span, Time};
use wp_block::{
    Admit, Bio, BlockQueue, CrashView, DevRequest, DeviceModel, Done, Effects, Limits, QueueConfig,
    trace,
};
use wp_medium::{Medium, Slice};
use wp_rt::Rt;

/// What the device was asked, in the order in which it took it: (op, flags, sector, sectors).
pub type Log = Rc<RefCell<Vec<(Op, Flags, u64, u32)>>>;

/// Writes in the order in which the device took them: (sector, data, has it a barrier).
pub type Received = Rc<RefCell<Vec<(u64, Vec<Slice>, bool)>>>;

/// How long commands take.
#[derive(Clone)]
pub enum Latency {
    /// Each this long, all at once.
    Fixed(Span),
    /// From nothing to this long, at random: completions out of order.
    Random(Rng, u64),
}

/// What is durable: counts of writes and discards in the order in which they completed in the
/// device.
#[derive(Default)]
pub struct Durability {
    /// Writes that have completed.
    pub completed: Cell<u64>,
    /// Of those, the first this many are durable.
    pub durable: Cell<u64>,
    /// Sector of a write -> what must be durable when it is carried out.
    pub needs: RefCell<BTreeMap<u64, u64>>,
    /// Sector of a write -> its own number.
    pub number: RefCell<BTreeMap<u64, u64>>,
}

/// Accepts, waits, then reads or writes. No order is promised between commands that overlap in
/// time.
#[derive(Clone)]
pub struct TestDevice {
    pub limits: Limits,
    pub latency: Latency,
    pub log: Log,
    pub durability: Rc<Durability>,
    pub received: Received,
    /// Sector -> 512 bytes.
    pub bytes: BTreeMap<u64, Vec<u8>>,
    /// Commands under way, with what a flush among them makes durable.
    flying: BTreeMap<u64, (DevRequest, u64)>,
    tokens: u64,
    /// Answers Busy this many times.
    pub refuse: u32,
    /// Fails commands that touch this sector.
    pub bad: Option<u64>,
}

impl TestDevice {
    pub fn new(limits: Limits) -> TestDevice {
        TestDevice {
            limits,
            latency: Latency::Fixed(Span::micros(100)),
            log: Log::default(),
            durability: Rc::default(),
            received: Rc::default(),
            bytes: BTreeMap::new(),
            flying: BTreeMap::new(),
            tokens: 0,
            refuse: 0,
            bad: None,
        }
    }

    fn carry_out(&mut self, rq: &DevRequest, covers: u64) -> Vec<Slice> {
        let d = self.durability.clone();
        match rq.op {
            Op::Zone(_) => Vec::new(),
            Op::Flush => {
                d.durable.set(d.durable.get().max(covers));
                Vec::new()
            }
            Op::Write => {
                if let Some(needs) = d.needs.borrow().get(&rq.at.0) {
                    assert!(
                        d.durable.get() >= *needs,
                        "written before what it was to follow was durable"
                    );
                }
                d.completed.set(d.completed.get() + 1);
                d.number.borrow_mut().insert(rq.at.0, d.completed.get());
                let bytes: Vec<u8> = Slice::concat(&rq.data);
                assert_eq!(
                    bytes.len() as u64,
                    u64::from(rq.sectors) * SECTOR_BYTES,
                    "data of the request's length"
                );
                for (i, sector) in bytes.chunks(512).enumerate() {
                    self.bytes.insert(rq.at.0 + i as u64, sector.to_vec());
                }
                Vec::new()
            }
            Op::Discard => {
                (0..u64::from(rq.sectors)).for_each(|i| drop(self.bytes.remove(&(rq.at.0 + i))));
                Vec::new()
            }
            Op::Read => (0..u64::from(rq.sectors))
                .map(|i| match self.bytes.get(&(rq.at.0 + i)) {
                    Some(b) => Slice::from_bytes(b),
                    None => Slice::zero(512),
                })
                .collect(),
        }
    }
}

impl DeviceModel for TestDevice {
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        assert!(self.flying.len() < self.limits.queue_depth as usize, "more than the queue depth");
        assert!(
            rq.op == Op::Discard || rq.sectors <= self.limits.max_sectors,
            "a request too large"
        );
        assert!(!rq.flags.has(Flags::PREFLUSH), "the flush machine takes PREFLUSH out");
        assert!(self.limits.fua || !rq.flags.has(Flags::FUA), "FUA to a device without");
        assert!(
            self.limits.volatile_cache || rq.op != Op::Flush,
            "a flush to a device without a cache"
        );
        if self.refuse > 0 {
            self.refuse -= 1;
            return Admit::Busy(rq);
        }
        self.log.borrow_mut().push((rq.op, rq.flags, rq.at.0, rq.sectors));
        if rq.op == Op::Write {
            let barrier = rq.flags.has(Flags::BARRIER);
            self.received.borrow_mut().push((rq.at.0, rq.data.clone(), barrier));
        }
        let span = match &mut self.latency {
            Latency::Fixed(span) => *span,
            Latency::Random(rng, most) => Span(rng.below(*most + 1)),
        };
        if span == Span::ZERO {
            // Some complete before the call returns.
            let covers = self.durability.completed.get();
            let data = self.carry_out(&rq, covers);
            fx.done.push(Done { id: rq.id, status: Ok(()), data, appended: None });
            return Admit::Accepted;
        }
        self.tokens += 1;
        self.flying.insert(self.tokens, (rq, self.durability.completed.get()));
        fx.timers.push((now + span, self.tokens));
        Admit::Accepted
    }
    fn timer(&mut self, _now: Time, token: u64, fx: &mut Effects) {
        let (rq, covers) = self.flying.remove(&token).expect("a timer of a command");
        let bad = self.bad.is_some_and(|b| (rq.at.0..rq.at.0 + u64::from(rq.sectors)).contains(&b));
        if bad {
            fx.fail(rq.id, wp_block::Status::Io);
            return;
        }
        let data = self.carry_out(&rq, covers);
        fx.done.push(Done { id: rq.id, status: Ok(()), data, appended: None });
    }
    fn crash_view(&self, _now: Time) -> CrashView {
        CrashView { medium: Medium::default(), loss: Vec::new(), zones: None }
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }
    fn medium(&self) -> Medium {
        Medium::default()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A disk of 1 TiB, 32 commands, 256 sectors a request, volatile cache, no FUA: QEMU's AHCI disk.
pub fn limits() -> Limits {
    Limits {
        volatile_cache: true,
        discard: true,
        discard_granularity_sectors: 8,
        discard_zeroes: true,
        ..Limits::plain(1 << 31)
    }
}

pub struct World {
    pub rt: Rt,
    pub queue: Rc<BlockQueue>,
    pub log: Log,
}

pub fn world(config: QueueConfig, device: TestDevice) -> World {
    let rt = Rt::new(1);
    rt.probe().set_mask(Class::BLOCK);
    world_on(rt, config, device)
}

pub fn world_on(rt: Rt, config: QueueConfig, device: TestDevice) -> World {
    let log = device.log.clone();
    let queue = BlockQueue::new(&rt, config, Box::new(device));
    World { rt, queue, log }
}

impl World {
    /// What happened, in short lines, only the actions given (all if empty).
    pub fn shape(&self, actions: &str) -> String {
        trace::shape(&self.rt.probe().take(), actions)
    }
}

/// A block of 4 KiB.
pub fn block(at: u64, tag: u64, flags: Flags) -> Bio {
    Bio::write(Sector(at), vec![Slice::pattern(tag, 0, 4096)], flags)
}

/// What jbd2 writes its commit record with.
pub fn commit_flags() -> Flags {
    Flags::SYNC | Flags::PREFLUSH | Flags::FUA
}
