//! eMMC: one bus, a small controller, a cache that can be told to flush or only to keep an order.
//!
//! Picture:    command -> bus (one transfer at a time, half duplex) -> cache -> flash. A cache that
//!             is full, CACHE_FLUSH, and reliable writes pay for programming.
//! Commands:   write (into the cache if it is on); **reliable write** (what Linux's mmc block
//!             driver makes of FUA: past the cache, programmed before it completes); CACHE_FLUSH
//!             (`EXT_CSD[32]`); **cache barrier** (eMMC 5.1, `BARRIER` bit of `EXT_CSD[32]`, here a
//!             flush request with [`Flags::BARRIER`]): everything in the cache reaches the flash
//!             before anything that comes later; discard. One at a time, or up to `queue_depth`
//!             with the command queue of 5.1, whose overhead is then hidden behind the transfer
//!             before.
//!             With `barrier_writes`, which no standard has, a write with [`Flags::BARRIER`] is one
//!             with a cache barrier behind it, in one command (the barrier command that the
//!             BarrierFS paper asks of such devices).
//! Cut:        what is in the cache is lost by epochs: some whole number of them is durable, of the
//!             next one any part, of later ones nothing ([`wp_block::CrashView::is_legal`]). More
//!             than `barriers_max` epochs are not kept apart: the barrier flushes, as the standard
//!             allows.
//! Left out:   packed commands (Linux had them from 3.8 to 4.8, off by default on most hosts);
//!             background operations and garbage collection; RPMB; a map's own writes (they are in
//!             `flush_ns`); errors.
//! Source:     JESD84-B51 6.6.31, 6.6.37 as `devices.md` 5.5 has them; `drivers/mmc/card/block.c`.

use std::collections::VecDeque;

use wp_base::event::{Flags, Op};
use wp_base::{Span, Time};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Done, Effects, Limits};
use wp_medium::Medium;

use crate::check::check;
use crate::config::{ConfigError, Settings, transfer_ns};
use crate::contents::{Contents, Put};
use crate::fixed::{Counts, in_transfer, is_barrier_write, simple_limits};

/// What one is like.
#[derive(Clone, Copy, Debug)]
pub struct EmmcConfig {
    /// What it says of itself.
    pub limits: Limits,
    /// Bytes that the volatile cache holds; 0: it is off.
    pub cache_bytes: u64,
    /// Rate of the bus in megabytes (10^6 bytes) per second.
    pub bus_mb_s: u32,
    /// Time of a command besides its data and the flash.
    pub command: Span,
    /// Time of a page read.
    pub read: Span,
    /// Time in which `program_bytes` are programmed.
    pub program: Span,
    /// Bytes that are programmed at once: a page of every plane.
    pub program_bytes: u32,
    /// Time of CACHE_FLUSH besides programming.
    pub flush: Span,
    /// Time of a cache barrier.
    pub barrier: Span,
    /// Time of a discard.
    pub discard: Span,
    /// Epochs that the cache keeps apart.
    pub barriers_max: u32,
}

impl EmmcConfig {
    /// From a preset's values. Errors: a count out of its range; barriers without a cache.
    pub fn from_settings(s: &Settings) -> Result<EmmcConfig, ConfigError> {
        let cache_bytes = s.get("cache_bytes");
        let barrier = s.switch("barrier")?;
        if barrier && cache_bytes == 0 {
            return Err(ConfigError::new("barrier", 1, "needs a cache (cache_bytes)"));
        }
        if s.switch("barrier_writes")? && !barrier {
            let why = "needs barrier = 1 (cache barrier)";
            return Err(ConfigError::new("barrier_writes", 1, why));
        }
        Ok(EmmcConfig {
            limits: Limits { barrier, ..simple_limits(s)? },
            cache_bytes,
            bus_mb_s: s.count("bus_mb_s", 1_000_000)?,
            command: Span(s.get("command_ns")),
            read: Span(s.get("read_ns")),
            program: Span(s.get("program_ns")),
            program_bytes: s.count("program_bytes", 1 << 24)?,
            flush: Span(s.get("flush_ns")),
            barrier: Span(s.get("barrier_ns")),
            discard: Span(s.get("discard_ns")),
            barriers_max: s.count("barriers_max", 1 << 16)?,
        })
    }

    /// Time in which `bytes` are programmed.
    fn program_ns(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.program_bytes)) * self.program.0
    }
}

/// The device.
#[derive(Clone)]
pub struct Emmc {
    config: EmmcConfig,
    contents: Contents,
    /// Accepted commands; the first is being served.
    queue: VecDeque<Queued>,
    counts: Counts,
    barriers: u64,
    /// Epoch that began with the last flush.
    flushed_epoch: u32,
    programmed_bytes: u64,
}

#[derive(Clone)]
struct Queued {
    rq: DevRequest,
    /// For a flush: what was complete when it was submitted.
    mark: u64,
}

impl Emmc {
    /// All zero, idle.
    pub fn new(config: EmmcConfig) -> Emmc {
        Emmc {
            config,
            contents: Contents::new(config.cache_bytes),
            queue: VecDeque::new(),
            counts: Counts::default(),
            barriers: 0,
            flushed_epoch: 0,
            programmed_bytes: 0,
        }
    }

    /// Is a barrier one epoch too many?
    fn barrier_flushes(&self) -> bool {
        self.contents.epoch() - self.flushed_epoch >= self.config.barriers_max
    }

    /// Bytes that the command at the head has programmed, and how long it takes with a command's
    /// overhead of `command`.
    fn cost(&self, command: Span) -> (u64, Span) {
        let c = &self.config;
        let Some(Queued { rq, .. }) = self.queue.front() else { return (0, Span::ZERO) };
        let bytes = u64::from(rq.sectors) * wp_base::SECTOR_BYTES;
        let transfer = transfer_ns(bytes, u64::from(c.bus_mb_s));
        let (programmed, rest) = match rq.op {
            Op::Read => (0, c.read.0 + transfer),
            Op::Discard => (0, c.discard.0),
            Op::Zone(_) => unreachable!("it has no zones, and checks refuse it"),
            Op::Flush if rq.flags.has(Flags::BARRIER) && !self.barrier_flushes() => {
                (0, c.barrier.0)
            }
            Op::Flush => (self.contents.dirty_bytes(), c.flush.0),
            Op::Write => {
                let through = rq.flags.has(Flags::FUA) || c.cache_bytes == 0;
                let dirty = self.contents.dirty_bytes();
                let over = (dirty + bytes).saturating_sub(c.cache_bytes).min(bytes);
                if is_barrier_write(&c.limits, rq) && self.barrier_flushes() {
                    (dirty + bytes, transfer + c.flush.0)
                } else if through {
                    (self.contents.before() + bytes, transfer)
                } else {
                    (over, transfer)
                }
            }
        };
        (programmed, Span(command.0 + rest + c.program_ns(programmed)))
    }

    /// Begins with the first command; `first`: the device was idle.
    fn start(&mut self, now: Time, first: bool, fx: &mut Effects) {
        if self.queue.is_empty() {
            return;
        }
        let hidden = !first && self.config.limits.queue_depth > 1;
        let command = if hidden { Span::ZERO } else { self.config.command };
        let (programmed, span) = self.cost(command);
        self.programmed_bytes += programmed;
        fx.timers.push((now + span, 0));
    }

    fn flush_to(&mut self, mark: u64) {
        self.contents.flush_to(mark);
        self.flushed_epoch = self.contents.epoch();
    }
}

impl DeviceModel for Emmc {
    fn limits(&self) -> &Limits {
        &self.config.limits
    }

    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        if self.queue.len() >= self.config.limits.queue_depth as usize {
            return Admit::Busy(rq);
        }
        if let Err(status) = check(&self.config.limits, &rq) {
            fx.fail(rq.id, status);
            return Admit::Accepted;
        }
        self.counts.note(&rq);
        self.queue.push_back(Queued { rq, mark: self.contents.mark() });
        if self.queue.len() == 1 {
            self.start(now, true, fx);
        }
        Admit::Accepted
    }

    fn timer(&mut self, now: Time, _token: u64, fx: &mut Effects) {
        let Queued { rq, mark } =
            self.queue.pop_front().expect("a timer for the command being served");
        let mut done = Done { id: rq.id, status: Ok(()), data: Vec::new(), appended: None };
        match rq.op {
            Op::Read => done.data = self.contents.current().read(rq.at, rq.sectors),
            Op::Write => {
                let put = if rq.flags.has(Flags::FUA) { Put::Through } else { Put::Cached };
                let barrier = is_barrier_write(&self.config.limits, &rq);
                if put == Put::Through && self.contents.holds_older_epoch() {
                    self.flush_to(self.contents.mark());
                }
                self.contents.write(rq.at, u64::from(rq.sectors), rq.data, put);
                if barrier {
                    self.barriers += 1;
                    if self.barrier_flushes() {
                        self.flush_to(self.contents.mark());
                    }
                    self.contents.barrier();
                }
            }
            Op::Flush if rq.flags.has(Flags::BARRIER) => {
                self.barriers += 1;
                if self.barrier_flushes() {
                    self.flush_to(mark);
                }
                self.contents.barrier();
            }
            Op::Flush => self.flush_to(mark),
            Op::Discard => self.contents.discard(rq.at, u64::from(rq.sectors)),
            Op::Zone(_) => unreachable!("it has no zones, and checks refuse it"),
        }
        fx.done.push(done);
        self.start(now, false, fx);
    }

    fn crash_view(&self, _now: Time) -> CrashView {
        let mut view = self.contents.crash_view();
        let waiting = self.queue.iter().map(|q| &q.rq);
        view.loss.extend(in_transfer(waiting, &self.contents, self.limits()));
        view
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn medium(&self) -> Medium {
        self.contents.current().clone()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut list = self.counts.list();
        list.push(("barriers", self.barriers));
        list.push(("programmed_bytes", self.programmed_bytes));
        list
    }
}
