//! One command after the other, each with an overhead and a transfer, before a volatile cache
//! without FUA.
//!
//! A loop device on a file, or QEMU's SATA disk: writes complete into somebody's memory, FLUSH
//! costs a fixed time and the writing back of what is dirty; a cache that is full makes writes wait
//! for that as well. With `barrier_writes` the cache is written back in epochs (`contents.rs`).

use std::collections::VecDeque;

use wp_base::event::{DeviceWork, Flags, Op, Work};
use wp_base::{SECTOR_BYTES, Span, Time};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Done, Effects, Limits};
use wp_medium::Medium;

use crate::check::check;
use crate::config::{ConfigError, Settings, transfer_ns};
use crate::contents::{Contents, Put};
use crate::fixed::{Counts, in_transfer, is_barrier_write, simple_limits};

/// What one is like.
#[derive(Clone, Copy, Debug)]
pub struct PlainConfig {
    /// Time of a command besides its data.
    pub command: Span,
    /// Rate of data between host and cache, in megabytes (10^6 bytes) per second.
    pub link_mb_s: u32,
    /// Time of a flush besides what it writes back.
    pub flush: Span,
    /// Rate of writing back.
    pub writeback_mb_s: u32,
    /// Bytes that the volatile cache holds; 0 for none.
    pub cache_bytes: u64,
    /// What it says of itself.
    pub limits: Limits,
}

impl PlainConfig {
    /// From a preset's values. Errors: a count or rate out of its range.
    pub fn from_settings(s: &Settings) -> Result<PlainConfig, ConfigError> {
        Ok(PlainConfig {
            command: Span(s.get("command_ns")),
            link_mb_s: s.count("link_mb_s", 1_000_000)?,
            flush: Span(s.get("flush_ns")),
            writeback_mb_s: s.count("writeback_mb_s", 1_000_000)?,
            cache_bytes: s.get("cache_bytes"),
            limits: simple_limits(s)?,
        })
    }
}

/// The device.
#[derive(Clone)]
pub struct Plain {
    config: PlainConfig,
    contents: Contents,
    /// The command being served, then those that wait.
    queue: VecDeque<Queued>,
    counts: Counts,
}

#[derive(Clone)]
struct Queued {
    rq: DevRequest,
    /// For a flush: what was complete when it was submitted.
    mark: u64,
}

impl Plain {
    /// All zero, idle.
    pub fn new(config: PlainConfig) -> Plain {
        Plain {
            config,
            contents: Contents::new(config.cache_bytes),
            queue: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Starts the first command of the queue, if any.
    fn start(&self, now: Time, fx: &mut Effects) {
        let Some(first) = self.queue.front() else { return };
        let c = &self.config;
        let bytes = u64::from(first.rq.sectors) * SECTOR_BYTES;
        let through = first.rq.flags.has(Flags::FUA);
        let link = transfer_ns(bytes, u64::from(c.link_mb_s));
        let write_back = |bytes: u64| transfer_ns(bytes, u64::from(c.writeback_mb_s));
        let (serve, moved, back) = match first.rq.op {
            Op::Flush => (c.flush.0, 0, write_back(self.contents.dirty_bytes())),
            Op::Discard => (c.command.0, 0, 0),
            Op::Zone(_) => unreachable!("it has no zones, and checks refuse it"),
            Op::Read => (c.command.0, link, 0),
            Op::Write => {
                // What does not fit has to be written back first.
                let over =
                    (self.contents.dirty_bytes() + bytes).saturating_sub(c.cache_bytes).min(bytes);
                let before = if through { self.contents.before() } else { 0 };
                let back = if through || c.cache_bytes == 0 { before + bytes } else { over };
                (c.command.0, link, write_back(back))
            }
        };
        let mut at = now;
        let parts = [(Work::Serve, serve), (Work::Transfer, moved), (Work::WriteBack, back)];
        for (what, ns) in parts.into_iter().filter(|p| p.1 > 0) {
            let from = at;
            at += Span(ns);
            fx.tell(|| DeviceWork::front(what, first.rq.id, from, from, at));
        }
        fx.timers.push((at, 0));
    }
}

impl DeviceModel for Plain {
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
            self.start(now, fx);
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
                self.contents.write(rq.at, u64::from(rq.sectors), rq.data, put);
                if barrier {
                    self.contents.barrier();
                }
            }
            // Commands are served in order, so there may be more by now than when it was submitted:
            // only that much is promised, and a cut must be able to take the rest.
            Op::Flush => self.contents.flush_to(mark),
            Op::Discard => self.contents.discard(rq.at, u64::from(rq.sectors)),
            Op::Zone(_) => unreachable!("it has no zones, and checks refuse it"),
        }
        fx.done.push(done);
        self.start(now, fx);
    }

    fn crash_view(&self, _now: Time) -> CrashView {
        let mut view = self.contents.crash_view();
        view.loss.extend(in_transfer(
            self.queue.iter().map(|q| &q.rq),
            &self.contents,
            self.limits(),
        ));
        view
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
