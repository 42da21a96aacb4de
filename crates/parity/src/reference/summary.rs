//! What a run dispatched: phase by phase, class by class, by whom, how and when.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ReferenceError, TraceLine};

/// The task that writes and calls fsync, in the recorded runs and in ours.
const FSYNC_TASK: &str = "w2";
/// Sectors of one 4 KiB block, the unit of all counts.
const BLOCK_SECTORS: u32 = 8;
/// Dispatches of one class further apart than this are two moments. In the recorded runs those of
/// one moment span less than 0.1 s, and two moments are a flusher tick (5 s) apart or more.
const MOMENT_GAP_NS: i64 = 2_000_000_000;

/// When a block was dispatched (or an inode filed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Before fsync was called.
    Write,
    /// Inside fsync, its end included.
    Fsync,
    /// After fsync returned.
    After,
    /// In the `sync` that ended the watching, where a recorded run has one.
    Sync,
}

impl Phase {
    /// All phases of a run that ends with one `sync`, in order.
    pub const SYNCED: [Phase; 4] = [Phase::Write, Phase::Fsync, Phase::After, Phase::Sync];
    /// All phases of the older recordings, in order.
    pub const ALL: [Phase; 3] = [Phase::Write, Phase::Fsync, Phase::After];

    /// The word that stands in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Write => "write",
            Phase::Fsync => "fsync",
            Phase::After => "after",
            Phase::Sync => "sync",
        }
    }

    fn of(ns: i64, fsync_end_ns: i64) -> Phase {
        match ns {
            ns if ns < 0 => Phase::Write,
            ns if ns <= fsync_end_ns => Phase::Fsync,
            _ => Phase::After,
        }
    }
}

/// Who dispatched: the task that was current.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Issuer {
    /// The task that calls fsync.
    Fsync,
    /// The journal's thread.
    Jbd2,
    /// Writeback of the device: `flush-8:16`, later `kworker/u4:1`.
    Flusher,
    /// No task of its own: an interrupt on an idle CPU, `ksoftirqd`, or kblockd (`kworker/0:1H`),
    /// which are the same completion context on a busier machine.
    Swapper,
    /// Anything else, by name.
    Other(String),
}

impl Issuer {
    /// The issuer that a task name stands for.
    pub fn of(comm: &str) -> Issuer {
        let kworker = comm.strip_prefix("kworker/");
        match comm {
            FSYNC_TASK => Issuer::Fsync,
            _ if comm.starts_with("jbd2/") => Issuer::Jbd2,
            _ if comm.starts_with("flush-") => Issuer::Flusher,
            _ if kworker.is_some_and(|name| name.starts_with('u')) => Issuer::Flusher,
            "<idle>" | "swapper" => Issuer::Swapper,
            _ if comm.starts_with("swapper/") || comm.starts_with("ksoftirqd/") => Issuer::Swapper,
            _ if kworker.is_some_and(|name| name.ends_with('H')) => Issuer::Swapper,
            _ => Issuer::Other(comm.to_owned()),
        }
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Issuer::Fsync => "fsync",
            Issuer::Jbd2 => "jbd2",
            Issuer::Flusher => "flusher",
            Issuer::Swapper => "swapper",
            Issuer::Other(comm) => comm,
        })
    }
}

impl From<Issuer> for String {
    fn from(issuer: Issuer) -> String {
        issuer.to_string()
    }
}

/// The inverse of `Display`, and of a task's name where a recorded summary has one.
impl From<String> for Issuer {
    fn from(name: String) -> Issuer {
        match name.as_str() {
            "fsync" => Issuer::Fsync,
            "jbd2" => Issuer::Jbd2,
            "flusher" => Issuer::Flusher,
            name => Issuer::of(name),
        }
    }
}

/// What one issuer dispatched of one class in one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// 4 KiB blocks; of class `flush`, commands.
    pub blocks: u32,
    /// Requests that held some of them.
    pub requests: u32,
    /// RWBS flags seen.
    pub flags: BTreeSet<String>,
}

/// Dispatches close together in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// First dispatch, nanoseconds since fsync was called.
    pub first_ns: i64,
    /// Last dispatch.
    pub last_ns: i64,
    /// 4 KiB blocks.
    pub blocks: u32,
}

/// One class of blocks in one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Who dispatched how many, and with which flags.
    pub by: BTreeMap<Issuer, Share>,
    /// When, in order.
    pub moments: Vec<Moment>,
}

impl ClassSummary {
    /// 4 KiB blocks of all issuers.
    pub fn blocks(&self) -> u32 {
        self.by.values().map(|share| share.blocks).sum()
    }

    fn add(&mut self, line: &TraceLine, blocks: u32) {
        let share = self.by.entry(Issuer::of(&line.comm)).or_default();
        share.blocks += blocks;
        share.requests += 1;
        share.flags.insert(line.rwbs.clone());
        let ns = line.ns_from_fsync_start;
        match self.moments.last_mut() {
            Some(moment) if ns - moment.last_ns <= MOMENT_GAP_NS => {
                moment.last_ns = ns;
                moment.blocks += blocks;
            }
            _ => self.moments.push(Moment { first_ns: ns, last_ns: ns, blocks }),
        }
    }
}

/// How often an inode was filed with the running transaction (`jbd2_journal_file_inode`), by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filed {
    /// Inside `write()`.
    pub write: u32,
    /// Inside the fsync.
    pub fsync: u32,
    /// After it: by writeback.
    pub after: u32,
}

impl Filed {
    /// Counts the `file_inode` lines of a trace that has them.
    pub fn count(lines: &[TraceLine], fsync_end_ns: i64) -> Filed {
        let mut filed = Filed::default();
        for line in lines.iter().filter(|line| line.action == 'J' && line.rwbs == "file_inode") {
            *match Phase::of(line.ns_from_fsync_start, fsync_end_ns) {
                Phase::Write => &mut filed.write,
                Phase::Fsync => &mut filed.fsync,
                Phase::After | Phase::Sync => &mut filed.after,
            } += 1;
        }
        filed
    }

    /// The count of one phase.
    pub fn of(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Write => self.write,
            Phase::Fsync => self.fsync,
            Phase::After | Phase::Sync => self.after,
        }
    }
}

/// What a run did, in the terms in which two runs are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Phase -> class -> what was dispatched.
    pub phases: BTreeMap<Phase, BTreeMap<String, ClassSummary>>,
    /// Filings by phase.
    pub filed: Filed,
}

impl RunSummary {
    /// What was dispatched of a class in a phase.
    pub fn class(&self, phase: Phase, class: &str) -> Option<&ClassSummary> {
        self.phases.get(&phase)?.get(class)
    }

    /// Blocks of a class that an issuer dispatched in a phase; 0 if none.
    pub fn blocks(&self, phase: Phase, class: &str, issuer: &Issuer) -> u32 {
        let share = self.class(phase, class).and_then(|summary| summary.by.get(issuer));
        share.map_or(0, |share| share.blocks)
    }
}

/// Summarises the dispatches (`D` lines) of a run.
///
/// `files` is N: the data of `f_(N-1)`, the file that is fsynced, is class `data_last`, that of the
/// others `data_others`; every other class keeps its name. Lines later than `window_ns` after the
/// fsync was called are left out, as the recording stopped there.
/// Errors: a request whose sectors are not those of its blocks; lines out of order.
pub fn summarise(
    lines: &[TraceLine],
    fsync_end_ns: i64,
    files: u32,
    window_ns: i64,
    filed: Filed,
) -> Result<RunSummary, ReferenceError> {
    let mut summary = RunSummary { phases: BTreeMap::new(), filed };
    let last = format!("f_{}", i64::from(files) - 1);
    let mut before_ns = i64::MIN;
    for line in lines.iter().filter(|line| line.action == 'D') {
        let ns = line.ns_from_fsync_start;
        if ns > window_ns {
            break;
        }
        let wrong = |what: &str| ReferenceError(format!("{what}: {line:?}"));
        if ns < before_ns {
            return Err(wrong("dispatched before the line above it"));
        }
        before_ns = ns;
        let classes = classes_of(&line.class, &last).ok_or_else(|| wrong("not a class"))?;
        let is_flush = line.class == "flush";
        let blocks: u32 = classes.values().sum();
        let sectors = if is_flush { 0 } else { blocks * BLOCK_SECTORS };
        if line.sectors != sectors {
            return Err(wrong("the sectors are not those of its blocks"));
        }
        let phase = summary.phases.entry(Phase::of(ns, fsync_end_ns)).or_default();
        for (class, blocks) in classes {
            phase.entry(class).or_default().add(line, blocks);
        }
    }
    Ok(summary)
}

/// Blocks by class of one request: `inode_table*2+gdt` is two of one and one of the other.
fn classes_of(text: &str, last: &str) -> Option<BTreeMap<String, u32>> {
    let mut classes = BTreeMap::new();
    for place in text.split('+') {
        let (name, count) = match place.split_once('*') {
            Some((name, count)) => (name, count.parse::<u32>().ok().filter(|&n| n > 0)?),
            None => (place, 1),
        };
        let class = match name.strip_prefix("data:") {
            Some(file) if file == last => "data_last",
            Some(_) => "data_others",
            None if name.is_empty() => return None,
            None => name,
        };
        *classes.entry(class.to_owned()).or_insert(0) += count;
    }
    Some(classes)
}
