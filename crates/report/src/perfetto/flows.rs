//! Which fsync caused what.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::Time;
use wp_base::event::{Event, Record};

use crate::requests::{Bio, Request};

/// An fsync in the trace.
pub(super) struct Sync<'a> {
    /// Record of its enter: the number of its flow, counted from 1.
    pub index: usize,
    task: &'a str,
    pub from: Time,
    pub to: Time,
}

impl Sync<'_> {
    pub fn flow(&self) -> u64 {
        self.index as u64 + 1
    }
}

/// A commit of the journal.
pub(super) struct Commit<'a> {
    pub tid: u32,
    task: &'a str,
    pub from: Time,
    pub to: Time,
    /// Phases and where each begins.
    pub phases: Vec<(&'a str, Time)>,
}

/// Flows that go through bios (by request and place in it) and through requests.
pub(super) struct Caused {
    pub bios: Vec<Vec<Vec<u64>>>,
    pub requests: Vec<Vec<u64>>,
}

pub(super) fn syncs(records: &[Record], last: Time) -> Vec<Sync<'_>> {
    let exits = exits(records);
    let mut out = Vec::new();
    for (index, r) in records.iter().enumerate() {
        if let Event::SyscallEnter { name: "fsync" | "fdatasync", id, .. } = r.event {
            let to = exits.get(&id).copied().unwrap_or(last);
            out.push(Sync { index, task: &r.task, from: r.at, to });
        }
    }
    out
}

pub(super) fn exits(records: &[Record]) -> BTreeMap<u64, Time> {
    let exit = |r: &Record| match r.event {
        Event::SyscallExit { id, .. } => Some((id, r.at)),
        _ => None,
    };
    records.iter().filter_map(exit).collect()
}

pub(super) fn commits(records: &[Record], last: Time) -> Vec<Commit<'_>> {
    let mut out: Vec<Commit<'_>> = Vec::new();
    let mut open = false;
    for r in records {
        let Event::Jbd2 { what, tid, .. } = r.event else { continue };
        match what {
            "start_commit" => {
                if let (true, Some(c)) = (open, out.last_mut()) {
                    c.to = r.at;
                }
                out.push(Commit { tid, task: &r.task, from: r.at, to: last, phases: Vec::new() });
                open = true;
            }
            "end_commit" if open => {
                if let Some(c) = out.last_mut() {
                    c.to = r.at;
                }
                open = false;
            }
            phase if open && phase.starts_with("commit_") => {
                if let Some(c) = out.last_mut() {
                    c.phases.push((phase, r.at));
                }
            }
            _ => {}
        }
    }
    out
}

/// Did the fsync wait for this commit? It ended within the call.
pub(super) fn serves(c: &Commit<'_>, s: &Sync<'_>) -> bool {
    c.to > s.from && c.to <= s.to
}

/// Was the bio queued for the fsync: by its task, or by a commit that served it?
fn caused(records: &[Record], bio: &Bio, commits: &[Commit<'_>], s: &Sync<'_>) -> bool {
    let (task, at) = (&*records[bio.queued.index].task, bio.queued.at);
    let own = task == s.task && at >= s.from && at <= s.to;
    own || commits.iter().any(|c| {
        let within = at >= c.from && at <= c.to && task == c.task;
        within && serves(c, s)
    })
}

/// What goes through each bio and request. Through a flush command goes what goes through the
/// requests that it stands before or behind.
pub(super) fn requests(
    records: &[Record],
    requests: &[Request],
    commits: &[Commit<'_>],
    syncs: &[Sync<'_>],
) -> Caused {
    let of = |bio: &Bio| -> Vec<u64> {
        // Commits that serve a call may have begun before it.
        let might = syncs.iter().filter(|s| bio.queued.at <= s.to);
        might.filter(|s| caused(records, bio, commits, s)).map(Sync::flow).collect()
    };
    let bios: Vec<Vec<Vec<u64>>> =
        requests.iter().map(|r| r.bios.iter().map(of).collect()).collect();
    let mut all: Vec<Vec<u64>> = bios
        .iter()
        .map(|b| b.iter().flatten().copied().collect::<BTreeSet<u64>>().into_iter().collect())
        .collect();
    let sequences: Vec<usize> =
        (0..requests.len()).filter(|&i| requests[i].is_sequence() && !all[i].is_empty()).collect();
    for (i, r) in requests.iter().enumerate().filter(|(_, r)| r.is_flush()) {
        let Some(issued) = r.issued else { continue };
        let around = |of: &Request| {
            of.start().is_some_and(|m| m.index < issued.index)
                && of.end().is_none_or(|m| m.index > issued.index)
        };
        let flows: BTreeSet<u64> = sequences
            .iter()
            .filter(|&&s| around(&requests[s]))
            .flat_map(|&s| all[s].iter().copied())
            .collect();
        all[i] = flows.into_iter().collect();
    }
    Caused { bios, requests: all }
}
