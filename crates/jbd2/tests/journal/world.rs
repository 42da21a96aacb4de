//! A small world for journal tests: a device with a volatile cache that remembers every state a
//! power cut could find, and a file system of numbered blocks.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use wp_base::event::{Class, Event, Flags, Op, Record};
use wp_base::{BlockSize, FsResult, Rng, SECTOR_BYTES, Sector, Span, Time};
use wp_block::{
    Admit, BlockQueue, CrashView, DevRequest, DeviceModel, Effects, Limits, LossEffect, LossUnit,
    LossWhy, QueueConfig, Status,
};
use wp_cache::{Bdev, Buffer, WbPolicy, Writeback};
use wp_jbd2::{Journal, JournalOptions, LogMap, disk};
use wp_medium::{Medium, MediumView, Slice};
use wp_rt::{Outcome, Rt};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

/// First device block of the log.
pub const LOG_AT: u64 = 400;

/// What a power cut at one instant could find.
#[derive(Clone)]
pub struct Snapshot {
    pub at: Time,
    pub durable: Medium,
    /// Completed but not flushed, or in flight.
    pub pending: Vec<LossUnit>,
    /// Newest transaction that somebody had been told is committed, and whether any was.
    pub acked: Option<u32>,
}

/// Does this request fail?
pub type Fault = Box<dyn Fn(&DevRequest) -> bool>;

/// What the device and the test share.
pub struct Shared {
    pub snapshots: RefCell<Vec<Snapshot>>,
    pub keep_snapshots: Cell<bool>,
    pub acked: Cell<Option<u32>>,
    /// Requests that fail.
    pub fault: RefCell<Option<Fault>>,
    /// The device's contents.
    pub store: RefCell<Store>,
    pub write_latency: Cell<Span>,
    pub flush_latency: Cell<Span>,
    /// Draw latencies between half and one and a half of the above.
    pub jitter: Cell<bool>,
}

#[derive(Clone, Default)]
pub struct Store {
    pub durable: Medium,
    pub pending: Vec<LossUnit>,
}

impl Store {
    /// Nothing of an epoch is durable before all of the epochs before is.
    fn persist_before(&mut self, epoch: u32) {
        let pending = std::mem::take(&mut self.pending);
        let (before, rest) = pending.into_iter().partition(|u: &LossUnit| u.epoch < epoch);
        self.pending = rest;
        for unit in before {
            unit.apply(&mut self.durable);
        }
    }

    fn apply(&self) -> Medium {
        let mut m = self.durable.clone();
        for u in &self.pending {
            if u.acked {
                u.apply(&mut m);
            }
        }
        m
    }
}

pub struct TestDevice {
    limits: Limits,
    shared: Rc<Shared>,
    in_flight: VecDeque<(u64, DevRequest)>,
    seq: u64,
    /// Barrier writes received so far.
    epoch: u32,
    rng: Rng,
}

impl TestDevice {
    fn latency(&mut self, base: Span) -> Span {
        if self.shared.jitter.get() { Span(base.0 / 2 + self.rng.below(base.0)) } else { base }
    }
    fn snapshot(&self, now: Time) {
        if !self.shared.keep_snapshots.get() {
            return;
        }
        let store = self.shared.store.borrow();
        self.shared.snapshots.borrow_mut().push(Snapshot {
            at: now,
            durable: store.durable.clone(),
            pending: store.pending.clone(),
            acked: self.shared.acked.get(),
        });
    }
}

fn overlaps(a: &LossUnit, at: Sector, sectors: u64) -> bool {
    a.at.0 < at.0 + sectors && at.0 < a.at.0 + a.sectors()
}

impl DeviceModel for TestDevice {
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        if self.in_flight.len() >= self.limits.queue_depth as usize {
            return Admit::Busy(rq);
        }
        self.seq += 1;
        let base = match rq.op {
            Op::Flush => self.shared.flush_latency.get(),
            _ => self.shared.write_latency.get(),
        };
        let latency = self.latency(base);
        if rq.op == Op::Write {
            self.shared.store.borrow_mut().pending.push(LossUnit {
                epoch: self.epoch,
                effect: LossEffect::Data,
                at: rq.at,
                data: rq.data.clone(),
                acked: false,
                why: LossWhy::InTransfer,
                seq: self.seq,
            });
        }
        if rq.flags.has(Flags::BARRIER) && self.limits.barrier_writes {
            self.epoch += 1;
        }
        fx.timers.push((now + latency, self.seq));
        self.in_flight.push_back((self.seq, rq));
        Admit::Accepted
    }
    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        let at =
            self.in_flight.iter().position(|(s, _)| *s == token).expect("a timer for each request");
        let (seq, rq) = self.in_flight.remove(at).expect("just found");
        let failed = self.shared.fault.borrow().as_ref().is_some_and(|f| f(&rq));
        let mut data = Vec::new();
        {
            let mut store = self.shared.store.borrow_mut();
            match rq.op {
                Op::Write if failed => store.pending.retain(|u| u.seq != seq),
                Op::Write => {
                    // A flush may have had to wait for it, with all of its epoch.
                    let Some(i) = store.pending.iter().position(|u| u.seq == seq) else {
                        fx.complete(rq.id);
                        return;
                    };
                    store.pending[i].acked = true;
                    store.pending[i].why = LossWhy::InBuffer;
                    if rq.flags.has(Flags::FUA) {
                        let epoch = store.pending[i].epoch;
                        store.persist_before(epoch);
                        let i = store.pending.iter().position(|u| u.seq == seq);
                        let unit = store.pending.remove(i.expect("of its own epoch"));
                        unit.apply(&mut store.durable);
                        let (at, n) = (unit.at, unit.sectors());
                        store.pending.retain(|u| u.seq > seq || !overlaps(u, at, n));
                    }
                }
                Op::Flush => {
                    let arrived = store.pending.iter().filter(|u| u.acked && u.seq < seq);
                    let newest = arrived.map(|u| u.epoch).max().unwrap_or(0);
                    store.persist_before(newest);
                    let (done, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut store.pending)
                        .into_iter()
                        .partition(|u| u.acked && u.seq < seq);
                    for u in done {
                        u.apply(&mut store.durable);
                    }
                    store.pending = rest;
                }
                Op::Read => data = store.apply().read(rq.at, rq.sectors),
                Op::Discard | Op::Zone(_) => {}
            }
        }
        if failed {
            fx.fail(rq.id, Status::Io);
        } else {
            fx.done.push(wp_block::Done { id: rq.id, status: Ok(()), data, appended: None });
        }
        self.snapshot(now);
    }
    fn crash_view(&self, _now: Time) -> CrashView {
        let store = self.shared.store.borrow();
        CrashView { medium: store.durable.clone(), loss: store.pending.clone(), zones: None }
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        panic!("the test keeps snapshots instead of forks")
    }
    fn medium(&self) -> Medium {
        self.shared.store.borrow().apply()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// How to build a world.
pub struct Config {
    pub seed: u64,
    pub block: u32,
    pub log_blocks: u32,
    pub compat: u32,
    pub incompat: u32,
    pub options: JournalOptions,
    pub queue: QueueConfig,
    pub fua: bool,
    /// The device keeps the order of barrier writes.
    pub keeps_order: bool,
    /// The log in two pieces with a gap between.
    pub split_log: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 1,
            block: 1024,
            log_blocks: 1024,
            compat: 0,
            incompat: disk::INCOMPAT_REVOKE | disk::INCOMPAT_CSUM_V3 | disk::INCOMPAT_64BIT,
            options: JournalOptions::default(),
            queue: QueueConfig::linux(4, 6).with_elevator(wp_block::ElevatorKind::Noop),
            fua: true,
            keeps_order: false,
            split_log: false,
        }
    }
}

/// A device, a cache and a journal.
pub struct World {
    pub rt: Rt,
    pub shared: Rc<Shared>,
    pub bdev: Rc<Bdev>,
    pub wb: Rc<Writeback>,
    pub journal: Rc<Journal>,
    pub log: LogMap,
    pub bs: BlockSize,
}

pub const DEVICE_BYTES: u64 = 64 << 20;

pub fn log_map(c: &Config) -> LogMap {
    if !c.split_log {
        return LogMap::contiguous(LOG_AT, c.log_blocks);
    }
    let half = c.log_blocks / 2;
    LogMap {
        blocks: vec![(0, LOG_AT, half), (half, LOG_AT + u64::from(half) + 7, c.log_blocks - half)],
    }
}

/// A superblock as mke2fs writes it.
pub fn empty_superblock(c: &Config) -> disk::SuperBlock {
    let mut sb: disk::SuperBlock = zerocopy::FromZeros::new_zeroed();
    sb.header = disk::Header {
        magic: U32::new(disk::MAGIC),
        blocktype: U32::new(disk::SUPER_V2),
        sequence: U32::new(0),
    };
    sb.blocksize = U32::new(c.block);
    sb.maxlen = U32::new(c.log_blocks);
    sb.first = U32::new(1);
    sb.sequence = U32::new(1);
    sb.feature_compat = U32::new(c.compat);
    sb.feature_incompat = U32::new(c.incompat);
    sb.uuid = *b"writepath-test-1";
    sb.nr_users = U32::new(1);
    if c.incompat & (disk::INCOMPAT_CSUM_V2 | disk::INCOMPAT_CSUM_V3) != 0 {
        sb.checksum_type = disk::CHECKSUM_TYPE_CRC32C;
        sb.checksum = U32::new(sb.checksum_now());
    }
    sb
}

pub fn world(c: &Config) -> World {
    let log = log_map(c);
    let mut medium = Medium::new();
    let bs = BlockSize::new(c.block).expect("a block size");
    medium.write_bytes(LOG_AT * u64::from(c.block), empty_superblock(c).as_bytes());
    world_on(c, medium, log, bs)
}

/// As [`world`], over contents that have a journal.
pub fn world_on(c: &Config, medium: Medium, log: LogMap, bs: BlockSize) -> World {
    let rt = Rt::new(c.seed);
    let shared = Rc::new(Shared {
        snapshots: RefCell::default(),
        keep_snapshots: Cell::new(false),
        acked: Cell::new(None),
        fault: RefCell::new(None),
        store: RefCell::new(Store { durable: medium, pending: Vec::new() }),
        write_latency: Cell::new(Span::micros(100)),
        flush_latency: Cell::new(Span::micros(400)),
        jitter: Cell::new(false),
    });
    let limits = Limits {
        sectors: DEVICE_BYTES / SECTOR_BYTES,
        logical_bytes: 512,
        physical_bytes: 512,
        queue_depth: 31,
        max_sectors: 1024,
        max_segments: 256,
        volatile_cache: true,
        fua: c.fua,
        discard: false,
        flush_beside_others: true,
        hardware_queues: 1,
        barrier: false,
        barrier_writes: c.keeps_order,
        ordered_writes: false,
        range_flush: false,
        atomic_bytes: 0,
        atomic_boundary_bytes: 0,
        zones: None,
        discard_granularity_sectors: 0,
        discard_zeroes: false,
    };
    let device = TestDevice {
        limits,
        shared: shared.clone(),
        in_flight: VecDeque::new(),
        seq: 0,
        epoch: 0,
        rng: rt.rng("test device"),
    };
    let queue = BlockQueue::new(&rt, c.queue.clone(), Box::new(device));
    let part = queue.whole();
    let wb = Writeback::new(&rt, part.clone(), WbPolicy::default());
    let bdev = Bdev::new(&rt, part.clone(), bs, &wb);
    let (rt2, bdev2, log2, options) = (rt.clone(), bdev.clone(), log.clone(), c.options.clone());
    let journal = rt
        .block_on("mount", async move { Journal::load(&rt2, &bdev2, log2, options).await })
        .expect("mounts without waiting for ever")
        .expect("mounts");
    World { rt, shared, bdev, wb, journal, log, bs }
}

impl World {
    /// Runs a task to its end; panics where it cannot end.
    pub fn run<T: 'static>(&self, f: impl Future<Output = T> + 'static) -> T {
        match self.rt.block_on("test", f) {
            Ok(v) => v,
            Err(outcome) => panic!("{outcome}"),
        }
    }

    /// Lets all foreground tasks end.
    pub fn settle(&self) {
        match self.rt.run() {
            Outcome::Idle => {}
            other => panic!("{other}"),
        }
    }

    pub fn trace(&self) {
        self.rt.probe().set_mask(Class(Class::JBD2.0 | Class::BLOCK.0));
    }

    /// Journal events so far, as `what tid`.
    pub fn journal_events(&self) -> Vec<(String, u32, u64)> {
        self.rt
            .probe()
            .since(0)
            .into_iter()
            .filter_map(|r| match r.event {
                Event::Jbd2 { what, tid, value } => Some((what.to_owned(), tid, value)),
                _ => None,
            })
            .collect()
    }

    pub fn events(&self) -> Vec<Record> {
        self.rt.probe().since(0)
    }

    /// The contents of a block after a power cut that loses nothing.
    pub fn on_device(&self, block: u64) -> Vec<u8> {
        let mut out = vec![0; self.bs.bytes() as usize];
        self.shared.store.borrow().apply().read_bytes(block * u64::from(self.bs.bytes()), &mut out);
        out
    }

    pub fn view(&self, medium: Medium) -> MediumView {
        MediumView { medium, start: Sector(0), bytes: DEVICE_BYTES }
    }

    pub fn durable(&self) -> Medium {
        self.shared.store.borrow().durable.clone()
    }

    pub fn all(&self) -> Medium {
        self.shared.store.borrow().apply()
    }

    /// Ends the world as a power cut does.
    pub fn cut(self) {
        self.rt.cut();
    }
}

/// What operation `id` leaves in a block. Every third looks like a control block, so that it is
/// escaped.
pub fn contents(id: u64, block: u64, bytes: usize) -> Vec<u8> {
    if id == 0 {
        return vec![0; bytes];
    }
    let seed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (block << 40);
    let mut out = vec![0; bytes];
    for (word, i) in out.as_chunks_mut::<8>().0.iter_mut().zip(0u64..) {
        *word = (seed ^ i).to_le_bytes();
    }
    if id.is_multiple_of(3) {
        out[..4].copy_from_slice(&disk::MAGIC.to_be_bytes());
    }
    out
}

/// What happened to a block in a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Set(u64),
    /// Freed: its contents mean nothing.
    Free,
}

/// Every change, in order.
#[derive(Clone, Default)]
pub struct History(pub Rc<RefCell<Vec<(u32, u64, Change)>>>);

impl History {
    pub fn note(&self, tid: u32, block: u64, change: Change) {
        self.0.borrow_mut().push((tid, block, change));
    }
    /// Each block's last change in a transaction up to `tid`.
    pub fn upto(&self, tid: u32) -> BTreeMap<u64, Change> {
        let mut out = BTreeMap::new();
        for (t, block, change) in self.0.borrow().iter() {
            if disk::tid_at_least(tid, *t) {
                out.insert(*block, *change);
            }
        }
        out
    }
}

/// Sets blocks to operation `id` in one handle; returns its transaction.
pub async fn set_blocks(
    j: &Rc<Journal>,
    bdev: &Rc<Bdev>,
    history: &History,
    id: u64,
    blocks: &[u64],
) -> FsResult<u32> {
    let h = j.start(blocks.len() as u32).await?;
    for block in blocks {
        let b = bdev.read(*block).await?;
        h.get_write_access(&b).await?;
        fill(&b, id);
        history.note(h.tid(), *block, Change::Set(id));
        h.dirty_metadata(&b)?;
    }
    let tid = h.tid();
    h.stop().await?;
    Ok(tid)
}

pub fn fill(b: &Rc<Buffer>, id: u64) {
    let bytes = contents(id, b.block(), b.len() as usize);
    b.set_contents(Slice::from_bytes(&bytes));
}
