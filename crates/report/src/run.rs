//! A recorded run, and what is put together from its events once for all views.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use wp_base::event::{Event, Record};
use wp_base::stage::Stages;

use crate::commands::Inside;
use crate::shared::{Piece, pieces};
use crate::walk::Walk;

/// Calls that are explained if nothing else is asked for.
pub const SYNCS: &[&str] = &["fsync", "fdatasync"];
/// Calls that write; they are of interest where they wait, with `O_DIRECT` or `O_SYNC`.
pub const WRITES: &[&str] = &["write", "pwrite64"];
/// Calls that promise all that was written before.
pub const WHOLE: &[&str] = &["sync", "syncfs"];

/// A recorded run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Its events.
    pub records: &'a [Record],
    /// What the blocks of block events are, by the record's index, where that is known.
    pub classes: &'a BTreeMap<usize, String>,
    /// The words of its file system.
    pub stages: &'a Stages,
    /// Is what the device has completed safe from power cuts?
    pub survives: bool,
    /// Sectors of a zone, if the device has zones.
    pub zone_sectors: Option<u64>,
}

/// Why there is nothing to explain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoSuchCall {
    /// The run has fewer.
    Fewer {
        /// Names of the calls that were asked for.
        names: String,
        /// Which, from 1.
        asked: usize,
        /// How many there are.
        there: usize,
    },
    /// It does not return within the run.
    Open,
    /// The events do not say who woke whom.
    NoWakeups,
}

impl fmt::Display for NoSuchCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuchCall::Fewer { names, asked, there } => {
                write!(f, "no {names} call number {asked}: the run has {there}")
            }
            NoSuchCall::Open => f.write_str("the call does not return within the run"),
            NoSuchCall::NoWakeups => {
                f.write_str("the events have no wake-ups: run it again with --events all")
            }
        }
    }
}

impl std::error::Error for NoSuchCall {}

/// A system call that returns within the run: indexes of its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its number among those of the names that were asked for, from 1.
    pub number: usize,
    /// Where it begins.
    pub enter: usize,
    /// Where it returns.
    pub exit: usize,
}

/// A run with its requests, wake-ups, device work and shared pieces of work put together.
pub struct Seen<'a> {
    /// The run.
    pub run: Run<'a>,
    pub(crate) walk: Walk<'a>,
    pub(crate) inside: Inside,
    pub(crate) pieces: Vec<Piece<'a>>,
    /// All calls that return: first and last record, and the task.
    pub(crate) returned: Vec<(usize, usize, &'a str)>,
    /// Descriptor -> path that was opened.
    paths: BTreeMap<u64, &'a str>,
    /// Where jbd2 goes into or leaves the phase in which it logs.
    logging: BTreeMap<usize, bool>,
    /// Where requests were issued, and where they were complete: indexes, ascending.
    issued: Vec<usize>,
    done: Vec<usize>,
}

impl<'a> Seen<'a> {
    /// Puts a run together.
    pub fn new(run: Run<'a>) -> Seen<'a> {
        let records = run.records;
        let walk = Walk::new(records);
        let inside = Inside::new(records, &walk.requests);
        let phase = |(i, r): (usize, &Record)| match r.event {
            Event::Jbd2 { what, .. } if what.starts_with("commit_") => {
                Some((i, what == "commit_logging"))
            }
            _ => None,
        };
        let sorted = |of: fn(&crate::requests::Request) -> Option<crate::requests::Moment>| {
            let mut all: Vec<usize> =
                walk.requests.iter().filter_map(|r| of(r).map(|m| m.index)).collect();
            all.sort_unstable();
            all
        };
        Seen {
            run,
            pieces: pieces(records),
            returned: returned(records),
            paths: paths(records),
            logging: records.iter().enumerate().filter_map(phase).collect(),
            issued: sorted(|r| r.issued),
            done: sorted(|r| r.issued.and(r.done)),
            walk,
            inside,
        }
    }

    /// All calls of these names that return within the run, in the order in which they begin. Of
    /// [`WRITES`] those that waited for something.
    pub fn calls(&self, names: &[&str]) -> Vec<Call> {
        let is_meant = |&(enter, exit, _): &(usize, usize, &str)| {
            let name = self.call_name(enter);
            let is_idle = WRITES.contains(&name) && !self.walk.waited(enter, exit);
            names.contains(&name) && !is_idle
        };
        let all = self.returned.iter().copied().filter(is_meant);
        (1..).zip(all).map(|(number, (enter, exit, _))| Call { number, enter, exit }).collect()
    }

    /// The call of these names with that number, from 1.
    pub fn call(&self, names: &[&str], number: usize) -> Result<Call, NoSuchCall> {
        let calls = self.calls(names);
        let found = number.checked_sub(1).and_then(|i| calls.get(i));
        let fewer =
            || NoSuchCall::Fewer { names: names.join(" or "), asked: number, there: calls.len() };
        let found = found.copied().ok_or_else(fewer);
        let is_named = |r: &Record| match r.event {
            Event::SyscallEnter { name, .. } => names.contains(&name),
            _ => false,
        };
        if found.is_err() && self.run.records.iter().filter(|r| is_named(r)).count() > calls.len() {
            return Err(NoSuchCall::Open);
        }
        if !self.walk.knows_wakeups() {
            return found.and(Err(NoSuchCall::NoWakeups));
        }
        found
    }

    pub(crate) fn call_name(&self, enter: usize) -> &'static str {
        match self.run.records[enter].event {
            Event::SyscallEnter { name, .. } => name,
            _ => "",
        }
    }

    /// What the call at a record is about: a path where it was opened in the run.
    pub(crate) fn target(&self, enter: usize) -> Cow<'a, str> {
        let Event::SyscallEnter { target, .. } = &self.run.records[enter].event else {
            return "".into();
        };
        match self.path(enter) {
            Some(path) => path.into(),
            None if target.parse::<u64>().is_ok() => format!("descriptor {target}").into(),
            None => (&**target).into(),
        }
    }

    /// The path of the descriptor that the call at a record has; nothing if it has none, or that
    /// was opened before the run.
    pub(crate) fn path(&self, enter: usize) -> Option<&'a str> {
        let Event::SyscallEnter { target, .. } = &self.run.records[enter].event else {
            return None;
        };
        self.paths.get(&target.parse::<u64>().ok()?).copied()
    }

    /// Is the journal past the data of its transaction at this record?
    pub(crate) fn logging(&self, index: usize) -> bool {
        self.logging.range(..index).next_back().is_none_or(|(_, logs)| *logs)
    }

    /// Requests that were in the device at this record.
    pub(crate) fn in_device(&self, index: usize) -> usize {
        let before = |all: &[usize]| all.partition_point(|i| *i < index);
        before(&self.issued).saturating_sub(before(&self.done))
    }
}

/// Calls that return, in the order in which they begin.
fn returned(records: &[Record]) -> Vec<(usize, usize, &str)> {
    let mut open: BTreeMap<u64, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for (i, r) in records.iter().enumerate() {
        match &r.event {
            Event::SyscallEnter { id, .. } => {
                open.insert(*id, i);
            }
            Event::SyscallExit { id, .. } => {
                all.extend(open.remove(id).map(|enter| (enter, i, &*records[enter].task)));
            }
            _ => {}
        }
    }
    all.sort_unstable();
    all
}

/// Which path each descriptor was opened on.
fn paths(records: &[Record]) -> BTreeMap<u64, &str> {
    let mut opens: BTreeMap<u64, &str> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for r in records {
        match &r.event {
            Event::SyscallEnter { name: "open", id, target } => {
                opens.insert(*id, target);
            }
            Event::SyscallExit { name: "open", id, value, ok } => {
                if let (Some(path), true) = (opens.remove(id), *ok) {
                    out.insert(*value, path);
                }
            }
            _ => {}
        }
    }
    out
}
