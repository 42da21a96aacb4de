//! Which sync caused what.

use std::collections::BTreeMap;

use wp_base::Time;
use wp_base::event::{Event, Record};

use crate::causality::Causes;
use crate::requests::Request;
use crate::run::SYNCS;

/// An fsync or fdatasync in the trace.
pub(super) struct Sync<'a> {
    /// Record of its enter: the number of its flow, counted from 1.
    pub index: usize,
    /// Record of its return; the last one of the run if that is not within it.
    pub exit: usize,
    pub task: &'a str,
    pub to: Time,
}

impl Sync<'_> {
    pub fn flow(&self) -> u64 {
        self.index as u64 + 1
    }
}

/// Flows that go through bios (by request and place in it) and through requests.
pub(super) struct Caused {
    pub bios: Vec<Vec<Vec<u64>>>,
    pub requests: Vec<Vec<u64>>,
}

pub(super) fn syncs(records: &[Record], last: Time) -> Vec<Sync<'_>> {
    let mut exits: BTreeMap<u64, usize> = BTreeMap::new();
    for (i, r) in records.iter().enumerate() {
        if let Event::SyscallExit { id, .. } = r.event {
            exits.insert(id, i);
        }
    }
    let mut out = Vec::new();
    for (index, r) in records.iter().enumerate() {
        let Event::SyscallEnter { name, id, .. } = r.event else { continue };
        if SYNCS.contains(&name) {
            let exit = exits.get(&id).copied();
            let to = exit.map_or(last, |i| records[i].at);
            let exit = exit.unwrap_or(records.len() - 1);
            out.push(Sync { index, exit, task: &r.task, to });
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

/// What goes through each bio and request.
pub(super) fn requests(causes: &Causes<'_>, requests: &[Request], syncs: &[Sync<'_>]) -> Caused {
    let flow = |call: usize| syncs[call].flow();
    let of_bios = |r: &Request| -> Vec<Vec<u64>> {
        r.bios.iter().map(|b| causes.bio(b).into_iter().map(flow).collect()).collect()
    };
    let all = causes.requests(requests);
    Caused {
        bios: requests.iter().map(of_bios).collect(),
        requests: all.into_iter().map(|calls| calls.into_iter().map(flow).collect()).collect(),
    }
}
