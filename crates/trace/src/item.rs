//! What every format comes down to: steps of requests, marks, and what is passed over.

use std::collections::BTreeMap;

use wp_base::Sector;
use wp_base::event::{Flags, Op};

use crate::error::{Place, Wrong};

/// Which moment of a request an event tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A bio entered the queue: blktrace's `Q`.
    Queue,
    /// A request went to the driver: `D`.
    Issue,
    /// It completed: `C`.
    Complete,
    /// All of it at once: formats that have one line a request. When it completed, if that is told.
    Whole {
        /// Nanoseconds, on the clock of [`Event::at_ns`].
        done_ns: Option<u64>,
    },
}

/// An event of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, in nanoseconds of the trace's own clock.
    pub at_ns: u64,
    /// What happened.
    pub step: Step,
    /// Read, write, discard or flush; never anything else.
    pub op: Op,
    /// A write without data, which leaves zeroes.
    pub zeroes: bool,
    /// Those of PREFLUSH, FUA, SYNC, META and RAHEAD that the format tells.
    pub flags: Flags,
    /// First sector; 0 for a flush.
    pub at: Sector,
    /// Sectors; 0 for a flush and nothing else.
    pub sectors: u32,
    /// Number of the device or file ([`Names`]).
    pub device: u32,
    /// Which of the files that are read together.
    pub file: u32,
    /// Where in it.
    pub place: Place,
}

/// Why something is no request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Skip {
    /// Another step than the one that is replayed (`Q` where `D` is), a merge, a plug, …
    Action,
    /// An event of another device than was asked for.
    Device,
    /// It moves no data and is no flush.
    NoData,
    /// An operation with zones.
    Zone,
    /// A driver's own command (`PC`).
    DriverCommand,
    /// A request whose operation was not recorded.
    NoOperation,
    /// A note: names of processes, messages, the opening and closing of files, titles and remarks.
    Note,
    /// A line of a call stack.
    Stack,
    /// An event of something other than the block layer.
    OtherEvent,
    /// Events that the tracer itself says it lost.
    Lost,
    /// The last record, which the file ends in.
    Torn,
}

impl Skip {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Skip::Action => "other_actions",
            Skip::Device => "other_devices",
            Skip::NoData => "without_data",
            Skip::Zone => "zone_operations",
            Skip::DriverCommand => "driver_commands",
            Skip::NoOperation => "without_operation",
            Skip::Note => "notes",
            Skip::Stack => "stack_lines",
            Skip::OtherEvent => "other_events",
            Skip::Lost => "lost_by_the_tracer",
            Skip::Torn => "torn",
        }
    }
}

/// How often each was met.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Skipped(BTreeMap<Skip, u64>);

impl Skipped {
    /// Counts some.
    pub fn add(&mut self, why: Skip, n: u64) {
        *self.0.entry(why).or_default() += n;
    }

    /// How often.
    pub fn count(&self, why: Skip) -> u64 {
        self.0.get(&why).copied().unwrap_or(0)
    }

    /// All that were met.
    pub fn iter(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        self.0.iter().map(|(k, n)| (*k, *n))
    }
}

/// What a reader finds next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// An event of a request.
    Event(Event),
    /// A text that somebody wrote into the trace (`trace_marker`, a message of blktrace).
    Mark {
        /// When, as [`Event::at_ns`].
        at_ns: u64,
        /// The text.
        text: String,
    },
    /// A skipped item to be counted, and how many times.
    Skip(Skip, u64),
}

/// Most devices or files that one trace may tell of. Tencent's has 5584 volumes; a damaged one
/// would otherwise fill the memory with names.
const NAMES_MAX: usize = 1 << 16;

/// Names of devices and files, numbered in the order of appearance.
#[derive(Clone, Default, Debug)]
pub struct Names {
    by_number: BTreeMap<(u32, u32), u32>,
    by_text: BTreeMap<String, u32>,
    all: Vec<String>,
}

impl Names {
    /// The name of number `id`.
    pub fn name(&self, id: u32) -> &str {
        self.all.get(id as usize).map_or("?", String::as_str)
    }

    /// All names.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    pub(crate) fn of_numbers(&mut self, major: u32, minor: u32, at: Place) -> Result<u32, Wrong> {
        if let Some(id) = self.by_number.get(&(major, minor)) {
            return Ok(*id);
        }
        let id = self.add(format!("{major},{minor}"), at)?;
        self.by_number.insert((major, minor), id);
        Ok(id)
    }

    pub(crate) fn of_text(&mut self, text: &str, at: Place) -> Result<u32, Wrong> {
        if let Some(id) = self.by_text.get(text) {
            return Ok(*id);
        }
        let id = self.add(text.to_owned(), at)?;
        self.by_text.insert(text.to_owned(), id);
        Ok(id)
    }

    fn add(&mut self, name: String, at: Place) -> Result<u32, Wrong> {
        if self.all.len() == NAMES_MAX {
            let what = format!("more than {NAMES_MAX} devices: this is not a trace of that format");
            return Err(Wrong::new(at, what, "name the format with --format"));
        }
        self.all.push(name);
        Ok(self.all.len() as u32 - 1)
    }
}
