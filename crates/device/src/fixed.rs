//! Every command takes the same time, whatever its size; many at once.
//!
//! The kernel's null_blk with `completion_nsec`, `irqmode=2`, `cache_size` and `fua`: on it, the
//! duration of a call divided by the latency is the length of its chain of device waits, and can be
//! compared with the real kernel's.
//!
//! Zones:      with `zone_bytes`, as null_blk's: a write pointer moves when a write is submitted,
//!             as many zones are open as one likes, a reset takes what all else takes.
//! Crash:      a sequential zone keeps a prefix. A forced write to one makes durable what came
//!             before it. With `barrier_writes` epochs are kept in order; a write that goes through
//!             takes the cache with it if a barrier stands between (`contents.rs`).

mod zoned;

use std::collections::VecDeque;

use wp_base::event::{DeviceWork, Flags, Op, Work, ZoneOp};
use wp_base::{SECTOR_BYTES, Span, Time, Zone};
use wp_block::{
    Admit, CrashView, DevRequest, DeviceModel, Done, Effects, FlushSet, Limits, LossEffect,
    LossUnit, LossWhy,
};
use wp_medium::Medium;

use crate::check::check;
use crate::config::{ConfigError, Settings};
use crate::contents::{Contents, Put, zeroes};
use crate::untorn::with_promise;
use crate::zns::table::ZoneTable;

/// What one is like.
#[derive(Clone, Copy, Debug)]
pub struct FixedConfig {
    /// Time from submission to completion of every command, flushes included.
    pub latency: Span,
    /// Bytes that the volatile cache holds; 0 for none.
    pub cache_bytes: u64,
    /// What it says of itself.
    pub limits: Limits,
}

impl FixedConfig {
    /// From a preset's values. Errors: a count out of its range, or FUA without a cache to bypass.
    pub fn from_settings(s: &Settings) -> Result<FixedConfig, ConfigError> {
        let bytes = s.get("physical_block_bytes");
        let physical_bytes = match bytes {
            512 | 1024 | 2048 | 4096 => bytes as u32,
            _ => {
                let why = "must be a power of two from 512 to 4096";
                return Err(ConfigError::new("physical_block_bytes", bytes, why));
            }
        };
        let limits = Limits {
            zones: zoned::limits(s)?,
            physical_bytes,
            ordered_writes: s.switch("optr")?,
            range_flush: s.switch("range_flush")?,
            ..simple_limits(s)?
        };
        check_order(&limits)?;
        let longest = u64::from(limits.max_sectors) * SECTOR_BYTES;
        let limits = with_promise(limits, s, (longest, "max_request_sectors"))?;
        if limits.barrier_writes && limits.zones.is_some() {
            let why = "cannot be combined with zones, which order their writes";
            return Err(ConfigError::new("barrier_writes", 1, why));
        }
        Ok(FixedConfig {
            latency: Span(s.get("latency_ns")),
            cache_bytes: s.get("cache_bytes"),
            limits,
        })
    }
}

/// Errors: an order of all writes on zones, of several queues, or beside one of barriers; a FLUSH
/// of ranges where an order says what is durable.
pub(crate) fn check_order(limits: &Limits) -> Result<(), ConfigError> {
    let zoned = limits.zones.is_some();
    let (key, why) = match limits {
        l if l.ordered_writes && zoned => ("optr", "cannot be combined with zones"),
        l if l.ordered_writes && l.hardware_queues > 1 => {
            ("optr", "needs hardware_queues = 1: several queues have no order")
        }
        l if l.ordered_writes && l.barrier_writes => {
            ("optr", "orders every write: leave barrier_writes away")
        }
        l if l.range_flush && (l.keeps_order() || zoned) => (
            "range_flush",
            "cannot be combined with an order of writes (barrier_writes, optr, zones)",
        ),
        _ => return Ok(()),
    };
    Err(ConfigError::new(key, 1, why))
}

/// Limits of the devices without geometry.
pub(crate) fn simple_limits(s: &Settings) -> Result<Limits, ConfigError> {
    let discard = s.switch("discard")?;
    Ok(Limits {
        sectors: s.capacity_sectors("capacity_bytes")?,
        logical_bytes: 512,
        physical_bytes: 4096,
        queue_depth: s.count("queue_depth", 65536)?,
        max_sectors: s.count("max_request_sectors", 1 << 21)?,
        max_segments: s.count("max_segments", 65536)?,
        volatile_cache: s.get("cache_bytes") > 0,
        fua: s.switch("fua")?,
        discard,
        flush_beside_others: s.switch("flush_beside_others")?,
        hardware_queues: 1,
        barrier: false,
        barrier_writes: s.switch("barrier_writes")?,
        ordered_writes: false,
        range_flush: false,
        atomic_bytes: 0,
        atomic_boundary_bytes: 0,
        zones: None,
        discard_granularity_sectors: if discard { 8 } else { 0 },
        discard_zeroes: discard,
    })
}

/// The device.
#[derive(Clone)]
pub struct Fixed {
    config: FixedConfig,
    contents: Contents,
    /// Commands in flight, in the order in which they will complete: one latency for all, so that
    /// of submission.
    flying: VecDeque<Flying>,
    zones: Option<ZoneTable>,
    counts: Counts,
}

#[derive(Clone)]
struct Flying {
    rq: DevRequest,
    /// For a flush: what was complete when it was submitted.
    mark: u64,
}

/// Commands by kind, and sectors.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) discards: u64,
    pub(crate) fua_writes: u64,
    pub(crate) read_sectors: u64,
    pub(crate) written_sectors: u64,
}

impl Counts {
    pub(crate) fn note(&mut self, rq: &DevRequest) {
        let sectors = u64::from(rq.sectors);
        match rq.op {
            Op::Read => {
                self.reads += 1;
                self.read_sectors += sectors;
            }
            Op::Write => {
                self.writes += 1;
                self.written_sectors += sectors;
                self.fua_writes += u64::from(rq.flags.has(Flags::FUA));
            }
            Op::Flush => self.flushes += 1,
            Op::Discard => self.discards += 1,
            Op::Zone(ZoneOp::Append) => {
                self.writes += 1;
                self.written_sectors += sectors;
            }
            Op::Zone(_) => {}
        }
    }

    pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("reads", self.reads),
            ("writes", self.writes),
            ("flushes", self.flushes),
            ("discards", self.discards),
            ("fua_writes", self.fua_writes),
            ("read_sectors", self.read_sectors),
            ("written_sectors", self.written_sectors),
        ]
    }
}

/// Loss units of requests in flight: none of them was acknowledged. They come behind all that is in
/// `contents`, and the barriers among them count if the device honours such.
pub(crate) fn in_transfer<'a>(
    rqs: impl Iterator<Item = &'a DevRequest>,
    contents: &Contents,
    limits: &Limits,
) -> Vec<LossUnit> {
    let mut epoch = contents.epoch();
    let changing = rqs.filter(|rq| rq.op.writes() || rq.op == Op::Discard);
    let numbered = changing.map(|rq| {
        let own = epoch;
        epoch += u32::from(is_barrier_write(limits, rq));
        (rq, own)
    });
    let units = numbered.zip(contents.mark()..).map(|((rq, epoch), seq)| LossUnit {
        epoch,
        effect: LossEffect::Data,
        at: rq.at,
        data: if rq.op.writes() { rq.data.clone() } else { zeroes(u64::from(rq.sectors)) },
        acked: false,
        why: LossWhy::InTransfer,
        seq,
    });
    units.collect()
}

/// Does this write end an epoch?
pub(crate) fn is_barrier_write(limits: &Limits, rq: &DevRequest) -> bool {
    let is_barrier = limits.barrier_writes && rq.flags.has(Flags::BARRIER);
    rq.op == Op::Write && (is_barrier || limits.ordered_writes)
}

impl Fixed {
    /// All zero, idle.
    pub fn new(config: FixedConfig) -> Fixed {
        Fixed {
            config,
            contents: Contents::new(config.cache_bytes),
            flying: VecDeque::new(),
            zones: config.limits.zones.map(ZoneTable::new),
            counts: Counts::default(),
        }
    }
}

impl DeviceModel for Fixed {
    fn limits(&self) -> &Limits {
        &self.config.limits
    }

    fn submit(&mut self, now: Time, mut rq: DevRequest, fx: &mut Effects) -> Admit {
        if self.flying.len() >= self.config.limits.queue_depth as usize {
            return Admit::Busy(rq);
        }
        let checked = check(&self.config.limits, &rq);
        if let Err(status) = checked.and_then(|()| self.take_zone(&mut rq)) {
            fx.fail(rq.id, status);
            return Admit::Accepted;
        }
        self.counts.note(&rq);
        let end = now + self.config.latency;
        fx.tell(|| DeviceWork::front(Work::Serve, rq.id, now, now, end));
        self.flying.push_back(Flying { rq, mark: self.contents.mark() });
        fx.timers.push((end, 0));
        Admit::Accepted
    }

    fn timer(&mut self, _now: Time, _token: u64, fx: &mut Effects) {
        let Flying { rq, mark } =
            self.flying.pop_front().expect("a timer for each command in flight");
        let mut done = Done { id: rq.id, status: Ok(()), data: Vec::new(), appended: None };
        let barrier = is_barrier_write(&self.config.limits, &rq);
        match rq.op {
            Op::Read => done.data = self.contents.current().read(rq.at, rq.sectors),
            Op::Write => {
                let put = if rq.flags.has(Flags::FUA) { Put::Through } else { Put::Cached };
                if put == Put::Through && self.is_sequential(rq.at) {
                    self.contents.flush_to(self.contents.mark());
                }
                self.contents.write(rq.at, u64::from(rq.sectors), rq.data, put);
                if barrier {
                    self.contents.barrier();
                }
            }
            Op::Zone(ZoneOp::Append) => {
                self.contents.write(rq.at, u64::from(rq.sectors), rq.data, Put::Cached);
                done.appended = Some(rq.at);
            }
            Op::Zone(ZoneOp::Reset | ZoneOp::ResetAll) => self.reset_zones(rq.op, rq.at),
            Op::Zone(_) => {}
            Op::Flush if rq.data.is_empty() => self.contents.flush_to(mark),
            Op::Flush => self.contents.flush_set_to(mark, &FlushSet::decode(&rq.data)),
            Op::Discard => self.contents.discard(rq.at, u64::from(rq.sectors)),
        }
        fx.done.push(done);
    }

    fn crash_view(&self, _now: Time) -> CrashView {
        let mut view = self.contents.crash_view();
        view.loss.extend(in_transfer(
            self.flying.iter().map(|f| &f.rq),
            &self.contents,
            self.limits(),
        ));
        view.zones = self.zones_after_crash(&mut view.loss);
        view
    }

    fn zones(&self) -> Vec<Zone> {
        self.zones.as_ref().map(|t| t.zones().to_vec()).unwrap_or_default()
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn medium(&self) -> Medium {
        self.contents.current().clone()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counts.list()
    }
}
