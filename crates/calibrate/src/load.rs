//! A closed loop on a device alone: what fio does with `direct=1` on a drive, without a host.
//!
//! Picture:    jobs that keep a number of operations in flight -> commands, cut to what the device
//!             takes -> device -> mean latency, rate, mean latency of a sync.
//! Laws:       an operation's latency begins when its job gives it away, so it counts what waits
//!             before a full device; a sync waits for its job's operations and for its flush;
//!             between an operation and the next its job takes `host_ns`.
//! Left out:   merging, elevators, interrupts: what they take of a real drive's latencies is taken
//!             for the drive's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{Rng, SECTOR_BYTES, Sector, Span, Time};
use wp_block::{Admit, DevRequest, DeviceModel, Effects};
use wp_medium::Slice;

/// Where random operations go, and what is written before reads: in every die of any preset.
const AREA_BYTES: u64 = 64 << 20;
/// Bytes of a write that prepares a device.
const FILL_BYTES: u64 = 512 << 10;
/// Operations that count, at least.
const COUNTED: u64 = 600;
/// Bytes that count at most, beyond those that fill the buffer: long operations are alike sooner.
const COUNTED_BYTES: u64 = 64 << 20;

/// What is asked of a drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Load {
    /// Read, write or append.
    pub op: Op,
    /// At random places?
    pub random: bool,
    /// Bytes of an operation.
    pub bytes: u32,
    /// Number of operations each job keeps in flight.
    pub depth: u32,
    /// Jobs; of a zoned drive each has a zone of its own.
    pub jobs: u32,
    /// Number of writes between two syncs; 0 is never.
    pub sync_every: u32,
    /// Is each write durable before it counts (O_SYNC)? By FUA where the drive has that, by a flush
    /// behind it where not.
    pub forced: bool,
    /// What a job takes between the end of an operation and the next.
    pub host_ns: u64,
}

impl Load {
    /// What it is, in a few words: `randwrite 4k depth 1 x 2 fsync 1`.
    pub fn name(&self) -> String {
        let op = match (self.op, self.random) {
            (Op::Read, false) => "read",
            (Op::Read, true) => "randread",
            (Op::Write, true) => "randwrite",
            (Op::Zone(_), _) => "append",
            _ => "write",
        };
        let size = match self.bytes {
            b if b.is_multiple_of(1 << 20) => format!("{}m", b >> 20),
            b => format!("{}k", b >> 10),
        };
        let mut t = format!("{op} {size} depth {}", self.depth);
        if self.jobs > 1 {
            t += &format!(" jobs {}", self.jobs);
        }
        if self.sync_every > 0 {
            t += &format!(" fsync {}", self.sync_every);
        }
        if self.forced {
            t += " sync";
        }
        t
    }
}

/// What a drive did with a load.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Figures {
    /// Mean latency of an operation in nanoseconds.
    pub mean_ns: Option<f64>,
    /// Operations a second.
    pub iops: Option<f64>,
    /// Mean latency of a sync in nanoseconds.
    pub sync_ns: Option<f64>,
}

impl Figures {
    /// All of them, in a fixed order.
    pub fn all(&self) -> [Option<f64>; 3] {
        [self.mean_ns, self.iops, self.sync_ns]
    }
}

#[derive(Clone, Default)]
struct Job {
    flying: u32,
    busy: Time,
    unsynced: u32,
    is_syncing: bool,
    /// Next sector of sequential operations, and the zone's first.
    at: u64,
    start: u64,
}

struct Command {
    owner: u64,
    op: Op,
    at: u64,
    sectors: u32,
}

/// An operation under way.
struct Flight {
    job: usize,
    given: Time,
    commands: u32,
    /// Is it a flush of its own?
    is_sync: bool,
    /// Has a flush to follow before it ends?
    to_flush: bool,
}

enum Wake {
    Device(u64),
    Job(usize),
}

struct Loop {
    device: Box<dyn DeviceModel>,
    load: Load,
    area: u64,
    jobs: Vec<Job>,
    timers: BinaryHeap<Reverse<(Time, u64, u64, bool)>>,
    order: u64,
    now: Time,
    fx: Effects,
    ready: VecDeque<Command>,
    /// At the device: whose, and whether it is a flush.
    at_device: BTreeMap<u64, (u64, bool)>,
    flights: BTreeMap<u64, Flight>,
    id: u64,
    flushes: u32,
    rng: Rng,
    failed: bool,
    done: (u64, u64),
    syncs: (u64, u64),
}

/// The figures of a device under a load. Errors: what it cannot be asked for.
pub fn run(device: Box<dyn DeviceModel>, load: &Load) -> Result<Figures, String> {
    let limits = *device.limits();
    let unit = u64::from(limits.logical_bytes);
    if load.bytes == 0 || !u64::from(load.bytes).is_multiple_of(unit) {
        return Err(format!("{}: not in whole blocks of {unit} bytes", load.name()));
    }
    let zone_bytes = limits.zones.map(|z| z.capacity_sectors * SECTOR_BYTES);
    if limits.zones.is_some() && load.op == Op::Write && load.random {
        return Err(format!("{}: zones accept no random writes", load.name()));
    }
    if limits.zones.is_some_and(|z| load.jobs > z.max_open.max(1)) {
        return Err(format!("{}: more zones than the drive can keep open", load.name()));
    }
    if limits.zones.is_none() && matches!(load.op, Op::Zone(_)) {
        return Err(format!("{}: the class has no zones", load.name()));
    }
    let room = zone_bytes.unwrap_or(limits.sectors * SECTOR_BYTES / u64::from(load.jobs.max(1)));
    let area = AREA_BYTES.min(room) / u64::from(load.bytes) * u64::from(load.bytes);
    if area < u64::from(load.bytes) * 4 {
        return Err(format!("{}: the drive is too small for it", load.name()));
    }
    let mut l = Loop::new(device, *load, area);
    if load.op == Op::Read {
        l.prepare()?;
    }
    let fill = if load.op == Op::Read { 0 } else { 2 * buffer_bytes(&*l.device) };
    let warm = fill / u64::from(load.bytes) + 2 * u64::from(load.depth * load.jobs);
    let most = COUNTED.max(4 * u64::from(load.depth * load.jobs));
    let count = most.min((COUNTED_BYTES / u64::from(load.bytes)).max(64)).max(warm.min(4 * most));
    l.measure(warm, count)
}

/// What a device takes in at most before its flash sets the pace: told by the greatest preset.
fn buffer_bytes(device: &dyn DeviceModel) -> u64 {
    if device.limits().volatile_cache { 4 << 20 } else { 1 << 20 }
}

impl Loop {
    fn new(device: Box<dyn DeviceModel>, load: Load, area: u64) -> Loop {
        let sectors = device.limits().sectors;
        let zones = device.limits().zones;
        let jobs = (0..load.jobs.max(1)).map(|j| {
            let start = match zones {
                // Conventional zones come first, and are none.
                Some(z) => z.start_of(z.conventional + j).0,
                None => u64::from(j) * (sectors / u64::from(load.jobs.max(1)) / 8 * 8),
            };
            Job { at: start, start, ..Job::default() }
        });
        Loop {
            jobs: jobs.collect(),
            device,
            load,
            area: area / SECTOR_BYTES,
            timers: BinaryHeap::new(),
            order: 0,
            now: Time::ZERO,
            fx: Effects::new(),
            ready: VecDeque::new(),
            at_device: BTreeMap::new(),
            flights: BTreeMap::new(),
            id: 0,
            flushes: 0,
            rng: Rng::stream(1, "calibrate"),
            failed: false,
            done: (0, 0),
            syncs: (0, 0),
        }
    }

    fn wake(&mut self, at: Time, what: &Wake) {
        self.order += 1;
        let (token, is_job) = match what {
            Wake::Device(token) => (*token, false),
            Wake::Job(n) => (*n as u64, true),
        };
        self.timers.push(Reverse((at, self.order, token, is_job)));
    }

    /// Writes what is read later, and has it programmed.
    fn prepare(&mut self) -> Result<(), String> {
        for job in 0..self.jobs.len() {
            let (mut at, end) = (self.jobs[job].start, self.jobs[job].start + self.area);
            while at < end {
                let sectors = (FILL_BYTES / SECTOR_BYTES).min(end - at) as u32;
                self.give(usize::MAX, Op::Write, at, sectors);
                at += u64::from(sectors);
                self.drain(8)?;
            }
        }
        self.drain(0)?;
        if self.device.limits().volatile_cache {
            self.give(usize::MAX, Op::Flush, 0, 0);
        }
        self.drain(0)?;
        // Whatever is left to be done, is done by then.
        let until = self.now + Span::secs(1);
        while self.timers.peek().is_some_and(|t| t.0.0 <= until) {
            self.step()?;
        }
        self.now = until;
        Ok(())
    }

    fn drain(&mut self, most: usize) -> Result<(), String> {
        while self.flights.len() > most {
            self.step()?;
        }
        Ok(())
    }

    /// Gives an operation away, in pieces that the device takes.
    fn give(&mut self, job: usize, op: Op, at: u64, sectors: u32) {
        self.id += 1;
        let owner = self.id << 1;
        let (mut at, mut left, mut commands) = (at, sectors, 0);
        let most = match op {
            Op::Flush => u32::MAX,
            _ => self.device.limits().max_sectors / 8 * 8,
        };
        loop {
            let part = left.min(most.max(8));
            self.ready.push_back(Command { owner, op, at, sectors: part });
            commands += 1;
            if matches!(op, Op::Read | Op::Write) {
                at += u64::from(part);
            }
            left -= part;
            if left == 0 {
                break;
            }
        }
        let to_flush = self.load.forced
            && job != usize::MAX
            && op == Op::Write
            && self.device.limits().volatile_cache
            && !self.device.limits().fua;
        let is_sync = op == Op::Flush;
        self.flights.insert(owner, Flight { job, given: self.now, commands, is_sync, to_flush });
        self.dispatch();
    }

    fn dispatch(&mut self) {
        while let Some(command) = self.ready.front() {
            let limits = self.device.limits();
            let is_flush = command.op == Op::Flush;
            let alone = !limits.flush_beside_others
                && (self.flushes > 0 || (is_flush && !self.at_device.is_empty()));
            if alone || self.at_device.len() >= limits.queue_depth as usize {
                return;
            }
            let Some(Command { owner, op, at, sectors }) = self.ready.pop_front() else { return };
            self.id += 1;
            let data = if op.writes() { vec![Slice::zero(sectors * 512)] } else { Vec::new() };
            let by_itself = self.load.forced && op == Op::Write && limits.fua;
            let flags = if by_itself { Flags::FUA } else { Flags::NONE };
            let rq = DevRequest { id: self.id, op, flags, at: Sector(at), sectors, data };
            self.at_device.insert(self.id, (owner, is_flush));
            self.flushes += u32::from(is_flush);
            if let Admit::Busy(_) = self.device.submit(self.now, rq, &mut self.fx) {
                self.at_device.remove(&self.id);
                self.flushes -= u32::from(is_flush);
                self.ready.push_front(Command { owner, op, at, sectors });
                self.absorb();
                return;
            }
            self.absorb();
        }
    }

    fn absorb(&mut self) {
        for (at, token) in std::mem::take(&mut self.fx.timers) {
            self.wake(at, &Wake::Device(token));
        }
        for done in std::mem::take(&mut self.fx.done) {
            let Some((owner, is_flush)) = self.at_device.remove(&done.id) else { continue };
            self.flushes -= u32::from(is_flush);
            self.failed |= done.status.is_err();
            let Some(flight) = self.flights.get_mut(&owner) else { continue };
            flight.commands -= 1;
            if flight.commands > 0 {
                continue;
            }
            if std::mem::take(&mut flight.to_flush) {
                flight.commands = 1;
                self.ready.push_back(Command { owner, op: Op::Flush, at: 0, sectors: 0 });
                continue;
            }
            let is_sync = flight.is_sync;
            self.end(owner, is_sync);
        }
    }

    fn end(&mut self, owner: u64, is_sync: bool) {
        let Some(flight) = self.flights.remove(&owner) else { return };
        let Some(job) = self.jobs.get_mut(flight.job) else { return };
        let took = self.now.since(flight.given).0;
        if is_sync {
            job.is_syncing = false;
            self.syncs = (self.syncs.0 + 1, self.syncs.1 + took);
        } else {
            job.flying -= 1;
            job.unsynced += 1;
            self.done = (self.done.0 + 1, self.done.1 + took);
            job.busy = job.busy.max(self.now) + Span(self.load.host_ns);
        }
        let at = job.busy.max(self.now);
        self.wake(at, &Wake::Job(flight.job));
    }

    /// Lets a job give away what it may.
    fn pump(&mut self, n: usize) {
        let load = self.load;
        let sectors = load.bytes / SECTOR_BYTES as u32;
        loop {
            let job = &mut self.jobs[n];
            if job.is_syncing || job.flying >= load.depth {
                return;
            }
            if load.sync_every > 0 && job.unsynced + job.flying >= load.sync_every {
                if job.flying == 0 {
                    job.unsynced = 0;
                    if self.device.limits().volatile_cache {
                        job.is_syncing = true;
                        self.give(n, Op::Flush, 0, 0);
                        return;
                    }
                    self.syncs.0 += 1;
                    continue;
                }
                return;
            }
            if job.busy > self.now {
                let at = job.busy;
                return self.wake(at, &Wake::Job(n));
            }
            job.flying += 1;
            let at = self.place(n, sectors);
            self.give(n, load.op, at, sectors);
        }
    }

    fn place(&mut self, n: usize, sectors: u32) -> u64 {
        let (job, step) = (&mut self.jobs[n], u64::from(sectors));
        if self.load.random {
            return job.start + self.rng.below(self.area / step) * step;
        }
        let zones = self.device.limits().zones.filter(|_| self.load.op != Op::Read);
        let room = zones.map_or(self.area, |z| z.capacity_sectors);
        if job.at + step > job.start + room {
            if let Some(z) = zones {
                job.start += z.zone_sectors * u64::from(self.load.jobs.max(1));
            }
            job.at = job.start;
        }
        let at = job.at;
        job.at += step;
        if self.load.op == Op::Zone(ZoneOp::Append) { job.start } else { at }
    }

    fn step(&mut self) -> Result<(), String> {
        let Some(Reverse((at, _, token, is_job))) = self.timers.pop() else {
            return Err(format!("{}: the device does not complete it", self.load.name()));
        };
        self.now = self.now.max(at);
        if is_job {
            self.pump(token as usize);
        } else {
            self.device.timer(at, token, &mut self.fx);
            self.absorb();
            self.dispatch();
        }
        match self.failed {
            true => Err(format!("{}: the device refuses it", self.load.name())),
            false => Ok(()),
        }
    }

    fn measure(&mut self, warm: u64, count: u64) -> Result<Figures, String> {
        for n in 0..self.jobs.len() {
            self.wake(self.now, &Wake::Job(n));
        }
        while self.done.0 < warm {
            self.step()?;
        }
        let (done, syncs, begun) = (self.done, self.syncs, self.now);
        while self.done.0 < done.0 + count {
            self.step()?;
        }
        let mean = |now: (u64, u64), before: (u64, u64)| {
            let n = now.0 - before.0;
            (n > 0).then(|| (now.1 - before.1) as f64 / n as f64)
        };
        let seconds = self.now.since(begun).0.max(1) as f64 / 1e9;
        Ok(Figures {
            mean_ns: mean(self.done, done),
            iops: Some((self.done.0 - done.0) as f64 / seconds),
            sync_ns: mean(self.syncs, syncs),
        })
    }
}
