//! From a measured point to a run of the model.
//!
//! Host:  what the measuring programs take for a command besides the drive is theirs, not the
//!        model's: fio over SPDK fills its buffer and submits (1/iops - latency of the points at
//!        depth 1, a line in the size); the small SPDK programs time their submission too; io_uring
//!        adds the kernel.
//! Load:  a loaded point is judged by its rate over that of the unloaded point of the same folder.
//!        One command of the load is run beside the foreground; over a period of the load the
//!        foreground has its slow rate for as long as that takes, and its own for the rest.

use std::cell::RefCell;
use std::collections::BTreeMap;

use wp_base::event::{Op, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector, Span};
use wp_device::zns::{Zns, ZnsConfig};

use super::Judged;
use super::points::{Point, Regime};
use super::run::{Job, Loop, Next, Rates};

/// fio over SPDK for a write: so much, and so much a KiB.
const FIO_WRITE: (u64, u64) = (800, 34);
/// The same for a read, whatever its size.
const FIO_READ: u64 = 490;
/// What the small SPDK programs time besides the command.
const CUSTOM_US: f64 = 0.74;
/// fio over io_uring passthrough: 3 to 5 us more a command (the data's README).
const URING: u64 = 4_500;

/// Zones that jobs write, and zones for commands beside them.
const FOREGROUND: u32 = 10;
const BACKGROUND: u32 = 200;
/// A finish beside load runs on the last 1/32 of a zone, and counts 32 times.
const FINISH_PART: u32 = 32;

/// All scenes of one device.
pub(super) struct Scenes<'p> {
    config: ZnsConfig,
    points: &'p [Point],
    /// Highest rate of each kind and size.
    ceilings: BTreeMap<(String, u32), f64>,
    /// Rates of foregrounds of the second study: kind, depth, zones.
    alone: RefCell<BTreeMap<Foreground, f64>>,
    /// Beside one command of load: seconds that this took, and foreground commands meanwhile.
    beside: RefCell<BTreeMap<Beside, (f64, f64)>>,
}

type Foreground = (String, u32, u32);
/// A foreground, the command beside it, and the milliseconds that are counted behind that.
type Beside = (Foreground, ZoneOp, u64);
/// What a model says of a point: its regime, microseconds and rate.
type Modelled = (Regime, (Option<f64>, Option<f64>));

impl<'p> Scenes<'p> {
    pub(super) fn new(config: ZnsConfig, points: &'p [Point]) -> Scenes<'p> {
        let mut ceilings: BTreeMap<(String, u32), f64> = BTreeMap::new();
        for p in points.iter().filter(|p| p.device == "zn540") {
            let most = ceilings.entry((p.op.clone(), p.size)).or_default();
            *most = most.max(p.iops.unwrap_or(0.0));
        }
        let (alone, beside) = (RefCell::default(), RefCell::default());
        Scenes { config, points, ceilings, alone, beside }
    }

    /// Runs a point. `None`: it is about something that is not modelled or not fitted here.
    pub(super) fn judge(&self, p: &Point) -> Option<Judged> {
        let (regime, model, measured) = match p.experiment.as_str() {
            "append" | "sequential_write" | "random_read" if p.device == "zn540" => {
                let rates = self.plain(p);
                (self.regime(p), both(rates), (p.mean_us, p.iops))
            }
            name if name.starts_with("with_") && p.device == "zn540-uring" => {
                let (ratio, real) = self.loaded(p, name)?;
                (Regime::Interference, (None, Some(ratio)), (None, Some(real)))
            }
            _ => {
                let (regime, model) = self.by_itself(p)?;
                (regime, model, (p.mean_us, p.iops))
            }
        };
        let error = |m: Option<f64>, real: Option<f64>| Some((m? / real? - 1.0).abs());
        let errors: Vec<f64> = [error(model.0, measured.0), error(model.1, measured.1)]
            .into_iter()
            .flatten()
            .collect();
        if errors.is_empty() {
            return None;
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        Some(Judged { point: p.clone(), regime, model, measured, error: (mean, None) })
    }

    fn regime(&self, p: &Point) -> Regime {
        let most = self.ceilings.get(&(p.op.clone(), p.size)).copied().unwrap_or(0.0);
        match p.iops {
            _ if p.in_flight() == 1 => Regime::Alone,
            Some(iops) if iops >= 0.9 * most => Regime::Plateau,
            _ => Regime::Knee,
        }
    }

    fn device(&self) -> Zns {
        Zns::new(self.config)
    }

    fn start(&self, zone: u32) -> Sector {
        self.config.zones.start_of(zone)
    }

    fn capacity_slots(&self) -> u32 {
        (self.config.zones.capacity_sectors / 8) as u32
    }

    /// A job of commands with data in zone `zone`.
    fn job(&self, op: &str, size: u32, depth: u32, zone: u32, host: u64) -> Job {
        let sectors = (u64::from(size) / SECTOR_BYTES) as u32;
        let start = self.start(zone);
        let capacity = self.config.zones.capacity_sectors;
        let zone_sectors = self.config.zones.zone_sectors;
        let (mut zone_start, mut at) = (start, 0);
        let op = match op {
            "random_read" => {
                return Job::new(depth, Span(host), true, move |_, rng| {
                    let place = rng.below(capacity / u64::from(sectors)) * u64::from(sectors);
                    Next::Command(Op::Read, start.advance(place), sectors)
                });
            }
            "append" => Op::Zone(ZoneOp::Append),
            _ => Op::Write,
        };
        Job::new(depth, Span(host), true, move |_, _| {
            if at + u64::from(sectors) > capacity {
                // Far enough that no other job gets there.
                (zone_start, at) = (zone_start.advance(32 * zone_sectors), 0);
            }
            let place = if op == Op::Write { zone_start.advance(at) } else { zone_start };
            at += u64::from(sectors);
            Next::Command(op, place, sectors)
        })
    }

    /// Writes, appends or random reads in some zones.
    fn plain(&self, p: &Point) -> Rates {
        let mut device = self.device();
        let reads = p.op == "random_read";
        let host = match reads {
            true => FIO_READ,
            false => FIO_WRITE.0 + FIO_WRITE.1 * u64::from(p.size) / 1024,
        };
        let zones = FOREGROUND..FOREGROUND + p.zones;
        if reads {
            zones.clone().for_each(|z| device.prefill(z, self.capacity_slots()));
        }
        let mut jobs: Vec<Job> = zones.map(|z| self.job(&p.op, p.size, p.depth, z, host)).collect();
        // The buffer is full three times over before anything counts.
        let buffer = u64::from(self.config.buffer_slots) * 4096;
        let fill = if reads { 2000 } else { 3 * buffer / u64::from(p.size) };
        let flying = u64::from(p.in_flight());
        Loop::new(device).rates(&mut jobs, fill + 2 * flying, 3000.max(fill) + 4 * flying)
    }

    /// Commands for zones, and writes after them, one at a time.
    fn by_itself(&self, p: &Point) -> Option<Modelled> {
        let zone = FOREGROUND;
        let at = self.start(zone);
        let slots = (p.fraction.unwrap_or(0.0) * f64::from(self.capacity_slots())).round() as u32;
        // What fills no unit lies in the buffer.
        let rest = slots % self.config.geometry.unit_slots;
        let mut device = self.device();
        if slots > rest {
            device.prefill(zone, slots - rest);
        }
        let mut l = Loop::new(device);
        if rest > 0 {
            let programmed = at.advance(u64::from(slots - rest) * 8);
            l.one(Op::Write, programmed, rest * 8);
        }
        let behind = at.advance(u64::from(slots) * 8);
        let us = match p.experiment.as_str() {
            "reset" => l.manage(ZoneOp::Reset, at),
            "finish" => l.manage(ZoneOp::Finish, at),
            "reset_after_finish" => {
                l.manage(ZoneOp::Finish, at);
                l.manage(ZoneOp::Reset, at)
            }
            "open_explicit_empty_zone" => l.manage(ZoneOp::Open, at),
            "close_explicitly_opened" => {
                let mut l = Loop::new(self.device());
                l.manage(ZoneOp::Open, at);
                l.one(Op::Write, at, 8);
                l.manage(ZoneOp::Close, at)
            }
            "first_write_after_close_explicit" => {
                let mut l = Loop::new(self.device());
                l.manage(ZoneOp::Open, at);
                l.one(Op::Write, at, 8);
                l.manage(ZoneOp::Close, at);
                l.one(Op::Write, at.advance(8), 8)
            }
            "first_write_opens_zone" => l.one(Op::Write, at, 8),
            "write_in_explicitly_opened_zone" | "no_reset" => {
                l.manage(ZoneOp::Open, at);
                l.one(Op::Write, behind, 8)
            }
            "append_in_implicitly_opened_zone" => {
                l.one(Op::Write, at, 8);
                l.one(Op::Zone(ZoneOp::Append), at, 8)
            }
            "finish_back_to_back" => {
                let us = l.manage(ZoneOp::Finish, at);
                return Some((Regime::Management, (None, Some(1e6 / us))));
            }
            "reset_back_to_back" | "reset_concurrent" => {
                return Some((Regime::Management, both(self.resets(p.zones))));
            }
            _ => return None,
        };
        let regime = if p.experiment == "no_reset" { Regime::Alone } else { Regime::Management };
        Some((regime, (Some(us + CUSTOM_US), None)))
    }

    /// Resets of full zones, some at once.
    fn resets(&self, at_once: u32) -> Rates {
        let mut device = self.device();
        let zones = 20 * at_once;
        (0..zones).for_each(|n| device.prefill(FOREGROUND + n, self.capacity_slots()));
        let (zone_sectors, mut at) = (self.config.zones.zone_sectors, self.start(FOREGROUND));
        let job = Job::new(at_once, Span(URING), true, move |_, _| {
            let here = at;
            at = at.advance(zone_sectors);
            Next::Command(Op::Zone(ZoneOp::Reset), here, 0)
        });
        Loop::new(device).rates(&mut [job], u64::from(at_once), 15 * u64::from(at_once))
    }

    // ---- load beside load ----

    /// The foreground's rate with load over that without: (model, measured).
    fn loaded(&self, p: &Point, experiment: &str) -> Option<(f64, f64)> {
        let folder = |p: &Point| p.source.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        let same = |q: &&Point| q.op == p.op && q.depth == p.depth && q.zones == p.zones;
        let here = self.points.iter().filter(|q| folder(q) == folder(p) && q.device == p.device);
        let alone = here.clone().filter(same).find(|q| q.experiment.starts_with("no_"))?;
        let load = experiment.strip_prefix("with_")?;
        let beside = format!("{load}_with_{}_q{}_z{}", p.op, p.depth, p.zones);
        let rate = here.clone().find(|q| q.experiment == beside)?.iops?;
        let real = p.iops? / alone.iops?;
        let foreground = (p.op.clone(), p.depth, p.zones);
        let own = self.rate_alone(&foreground);
        let (seconds, commands) = if load.starts_with("resets") {
            // What it has held up is made good only after it.
            let tail = if load.ends_with("unlimited") { 0 } else { 12 };
            self.rate_beside(&foreground, ZoneOp::Reset, tail)
        } else if load.starts_with("finishes") {
            self.rate_beside(&foreground, ZoneOp::Finish, 0)
        } else if load == "appends_50pct" || load == "appends_5pct" {
            let load = here.clone().find(|q| q.experiment == beside)?;
            return Some((self.beside_appends(&foreground, load) / own, real));
        } else {
            // Those called appends of 75 % are finishes again.
            return None;
        };
        let period = if load.ends_with("unlimited") { seconds } else { seconds.max(1.0 / rate) };
        Some(((commands + own * (period - seconds)) / (own * period), real))
    }

    fn foreground(&self, (op, depth, zones): &Foreground) -> (Zns, Vec<Job>) {
        let mut device = self.device();
        let zones = FOREGROUND..FOREGROUND + zones;
        if op == "random_read" {
            zones.clone().for_each(|z| device.prefill(z, self.capacity_slots()));
        }
        let jobs = zones.map(|z| self.job(op, 8192, *depth, z, URING)).collect();
        (device, jobs)
    }

    fn rate_alone(&self, foreground: &Foreground) -> f64 {
        if let Some(rate) = self.alone.borrow().get(foreground) {
            return *rate;
        }
        let (device, mut jobs) = self.foreground(foreground);
        let rates = Loop::new(device).rates_for(&mut jobs, Span::millis(60), Span::millis(120));
        self.alone.borrow_mut().insert(foreground.clone(), rates.iops);
        rates.iops
    }

    /// One reset of a full zone, or the end of a finish of an all but empty one, beside the
    /// foreground: seconds that it takes, and the foreground's commands meanwhile.
    fn rate_beside(&self, foreground: &Foreground, op: ZoneOp, tail_ms: u64) -> (f64, f64) {
        let key = (foreground.clone(), op, tail_ms);
        if let Some(known) = self.beside.borrow().get(&key) {
            return *known;
        }
        let (mut device, mut jobs) = self.foreground(foreground);
        let full = self.capacity_slots();
        let (slots, times) = match op {
            ZoneOp::Finish => (full - full / FINISH_PART, f64::from(FINISH_PART)),
            _ => (full, 1.0),
        };
        device.prefill(BACKGROUND, slots);
        let (warm, tail) = (Span::millis(40), Span::millis(tail_ms));
        let command = (op, self.start(BACKGROUND));
        let found = Loop::new(device).during(&mut jobs, warm, command, tail);
        let found = (found.0 * times, found.1 * times);
        self.beside.borrow_mut().insert(key, found);
        found
    }

    /// The foreground's rate beside appends at a rate.
    fn beside_appends(&self, foreground: &Foreground, load: &Point) -> f64 {
        let (device, mut jobs) = self.foreground(foreground);
        let gap = Span((1e9 / load.iops.unwrap_or(1.0)) as u64);
        let size = if load.size == 0 { 4096 } else { load.size };
        let inner = self.job("append", size, load.depth, BACKGROUND, URING);
        let (mut due, mut next) = (wp_base::Time::ZERO, inner.next);
        let paced = Job::new(load.depth, Span(URING), false, move |now, rng| {
            if now < due {
                return Next::Wait(due);
            }
            due = due.max(now.before(Span::millis(1))) + gap;
            next(now, rng)
        });
        jobs.push(paced);
        let warm = Span::millis(60);
        Loop::new(device).rates_for(&mut jobs, warm, Span::millis(120)).iops
    }
}

fn both(rates: Rates) -> (Option<f64>, Option<f64>) {
    (Some(rates.mean_us), Some(rates.iops))
}
