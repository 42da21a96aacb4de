//! A queue of CFQ, what is learnt about it, and the trees of queues.

use wp_base::event::Flags;
use wp_base::{Sector, Span, Time};

use super::{CfqTunables, is_noidle};
use crate::pool::{List, Request};
use crate::sorted::SectorIndex;

/// Which kind of service a queue gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Workload {
    /// Synchronous, nobody idles for a single queue of it.
    SyncNoIdle = 0,
    /// Synchronous, with idling.
    SyncIdle = 1,
    /// Asynchronous.
    Async = 2,
}

impl Workload {
    pub const ALL: [Workload; 3] = [Workload::SyncNoIdle, Workload::SyncIdle, Workload::Async];
}

/// How long a task thinks between the end of a request and its next one: a decaying mean.
#[derive(Clone, Copy, Default)]
pub(super) struct Think {
    pub last_end: Time,
    samples: u64,
    total: u64,
    mean: u64,
}

impl Think {
    /// A request comes.
    pub fn update(&mut self, now: Time, slice_idle: Span) {
        let elapsed = now.since(self.last_end).0.min(2 * slice_idle.0);
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * elapsed) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    /// The mean, once there is enough to go by (`sample_valid()`).
    pub fn mean(&self) -> Option<Span> {
        (self.samples > 80).then_some(Span(self.mean))
    }
}

/// A write or read farther from the last one than this is a seek (`CFQQ_SEEK_THR`).
const SEEK_SECTORS: u64 = 8 * 100;
/// On a device that does not turn a small request counts as one (`CFQQ_SECT_THR_NONROT`).
const SMALL_SECTORS: u32 = 2 * 32;

/// Requests of one task, or all asynchronous ones (`struct cfq_queue`).
pub(super) struct Queue {
    pub sync: bool,
    pub sorted: SectorIndex,
    /// By age.
    pub fifo: List,
    /// On the tree of `workload`, at `key`.
    pub on_tree: bool,
    pub workload: Workload,
    pub key: i64,
    /// Requests in the device.
    pub dispatched: u32,
    /// Requests dispatched in this slice.
    pub slice_dispatched: u32,
    /// No request of this slice has completed: its time has not begun.
    pub slice_new: bool,
    pub slice_end: Time,
    pub slice_start: Time,
    /// Nanoseconds that the last slice left over (negative: overran).
    pub slice_left: i64,
    /// The device is kept idle for it.
    pub wait_request: bool,
    /// A request came while it was waited for.
    pub must_dispatch: bool,
    /// The oldest request's deadline has been checked in this slice.
    pub fifo_checked: bool,
    /// May it be worth idling for?
    pub idle_window: bool,
    /// Has it queued several requests at a time?
    pub deep: bool,
    pub think: Think,
    seeks: u32,
    last_at: Sector,
    pub prio_pending: u32,
}

impl Queue {
    pub fn new(sync: bool) -> Queue {
        Queue {
            sync,
            sorted: SectorIndex::default(),
            fifo: List::default(),
            on_tree: false,
            workload: if sync { Workload::SyncIdle } else { Workload::Async },
            key: 0,
            dispatched: 0,
            slice_dispatched: 0,
            slice_new: true,
            slice_end: Time::ZERO,
            slice_start: Time::ZERO,
            slice_left: 0,
            wait_request: false,
            must_dispatch: false,
            fifo_checked: false,
            idle_window: sync,
            deep: false,
            think: Think::default(),
            seeks: 0,
            last_at: Sector(0),
            prio_pending: 0,
        }
    }

    /// The workload that it would join now.
    pub fn workload(&self) -> Workload {
        match (self.sync, self.idle_window) {
            (false, _) => Workload::Async,
            (true, true) => Workload::SyncIdle,
            (true, false) => Workload::SyncNoIdle,
        }
    }

    /// Is anything of it anywhere?
    pub fn is_used(&self) -> bool {
        self.on_tree || self.dispatched > 0 || !self.sorted.is_empty()
    }

    /// Has its slice begun and ended?
    pub fn slice_used(&self, now: Time) -> bool {
        !self.slice_new && now >= self.slice_end
    }

    /// Does it jump about?
    pub fn is_seeky(&self) -> bool {
        self.seeks.count_ones() > 32 / 8
    }

    pub fn note_seek(&mut self, rq: &Request, nonrot: bool) {
        let jump = match self.last_at {
            Sector(0) => 0,
            last => last.0.abs_diff(rq.at.0),
        };
        let seek = if nonrot { rq.sectors < SMALL_SECTORS } else { jump > SEEK_SECTORS };
        self.seeks = self.seeks << 1 | u32::from(seek);
        self.last_at = rq.end();
    }

    /// Decides whether it may be worth idling for (`cfq_update_idle_window()`).
    pub fn update_idle_window(&mut self, rq: &Request, t: &CfqTunables) {
        if !self.sync {
            return;
        }
        if self.sorted.len() >= 4 {
            self.deep = true;
        }
        let noidle = is_noidle(rq) && rq.flags.has(Flags::SYNC);
        if noidle || t.slice_idle == Span::ZERO || (!self.deep && self.is_seeky()) {
            self.idle_window = false;
        } else if let Some(mean) = self.think.mean() {
            self.idle_window = mean <= t.slice_idle;
        }
    }
}

/// Queues of one workload by when they are due.
#[derive(Default)]
pub(super) struct Tree {
    /// (key, queue), ascending; equal keys in the order in which they came.
    queues: Vec<(i64, u32)>,
}

impl Tree {
    pub fn len(&self) -> usize {
        self.queues.len()
    }
    pub fn first(&self) -> Option<(i64, u32)> {
        self.queues.first().copied()
    }
    pub fn insert(&mut self, key: i64, q: u32) {
        let at = self.queues.partition_point(|e| e.0 <= key);
        self.queues.insert(at, (key, q));
    }
    pub fn remove(&mut self, key: i64, q: u32) {
        let from = self.queues.partition_point(|e| e.0 < key);
        let at = self.queues[from..]
            .iter()
            .position(|e| e.1 == q)
            .expect("it is on the tree under its key");
        self.queues.remove(from + at);
    }
}
