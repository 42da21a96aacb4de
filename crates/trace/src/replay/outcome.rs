//! What a replay did.

use wp_base::Span;
use wp_base::event::Op;
use wp_block::Status;
use wp_workload::fio::Stat;

use crate::item::Event;

/// Requests of one kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OpCounts {
    /// Taken from the trace.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of those that completed well.
    pub bytes_done: u64,
    /// Those that the device answered with an error.
    pub failed: u64,
    /// Those of which nothing had to be sent: flushes of a device without volatile cache, discards
    /// of one that takes none.
    pub not_sent: u64,
    /// From when the device took it to its completion, in ns.
    pub service: Stat,
    /// From when it was due to its completion, in ns.
    pub response: Stat,
    /// What the trace recorded, in ns, where it did.
    pub recorded: Stat,
}

/// What one of several streams did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StreamCounts {
    /// Requests that ended.
    pub requests: u64,
    /// Bytes of those that completed well.
    pub bytes_done: u64,
    /// From when each was due to its completion, in ns.
    pub response: Stat,
}

/// What a replay did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Reads.
    pub reads: OpCounts,
    /// Writes.
    pub writes: OpCounts,
    /// Discards.
    pub discards: OpCounts,
    /// Flushes that the trace has as such. (Those around a write count with it.)
    pub flushes: OpCounts,
    /// What each stream did; empty if there are none.
    pub streams: Vec<StreamCounts>,
    /// From the beginning to the last completion.
    pub end: Span,
    /// From the first request of the trace to the last that was sent, as recorded.
    pub trace: Span,
    /// Of `timed`: those that the device took later than they were due, and how much later, in ns.
    pub late: Stat,
    /// The first request that failed, and how.
    pub first_failed: Option<(Event, Status)>,
    /// Most requests at a time.
    pub depth: u64,
    /// Times that the device was full when something was to be sent.
    pub busy: u64,
    /// Commands beyond one for each request: it was longer than the device takes, or wrapped.
    pub split: u64,
    /// Requests that were folded onto the device.
    pub wrapped: u64,
    /// Requests that were widened to whole blocks.
    pub widened: u64,
    /// What filling took.
    pub fill: Span,
    /// Commands of filling that failed.
    pub failed_fill: u64,
    /// The device's own counters at the end.
    pub counters: Vec<(&'static str, u64)>,
    /// And when the replay began.
    pub counters_before: Vec<(&'static str, u64)>,
    /// Somebody ended it early.
    pub interrupted: bool,
}

impl Outcome {
    /// The kinds, by name.
    pub fn kinds(&self) -> [(&'static str, &OpCounts); 4] {
        [
            ("read", &self.reads),
            ("write", &self.writes),
            ("discard", &self.discards),
            ("flush", &self.flushes),
        ]
    }

    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.kinds().iter().map(|(_, c)| c.requests).sum()
    }

    /// Requests that the device answered with an error.
    pub fn failed(&self) -> u64 {
        self.kinds().iter().map(|(_, c)| c.failed).sum()
    }

    pub(super) fn of(&mut self, op: Op) -> &mut OpCounts {
        match op {
            Op::Read => &mut self.reads,
            Op::Write | Op::Zone(_) => &mut self.writes,
            Op::Discard => &mut self.discards,
            Op::Flush => &mut self.flushes,
        }
    }
}
