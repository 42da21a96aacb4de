//! A run as a trace for the Perfetto viewer.
//!
//! Tracks: one per task (system calls), the journal (commits and their phases), marks, lanes of
//! bios and of requests, and of the device its commands and one per die. What may overlap has
//! lanes, because slices of one track must nest. One flow per fsync leads from its slice over the
//! commits, bios and requests that it caused and their commands to what the dies did while it
//! waited. A viewer links the slices of a flow in the order in which they come in the file.

mod blocks;
mod device;
mod flows;
mod proto;

pub use proto::*;

use std::collections::BTreeMap;

use prost::Message;
use wp_base::Time;
use wp_base::event::{Event, Record};

use flows::{Commit, Sync, commits, exits, serves, syncs};

use crate::commands::Inside;
use crate::requests::requests;

/// Process of the simulated system, and its number.
const SYSTEM: u64 = 1;
/// Process of the device, and its number.
const DEVICE: u64 = 2;
const JOURNAL: u64 = 3;
const MARKS: u64 = 4;
const BIOS: u64 = 5;
const REQUESTS: u64 = 6;
const COMMANDS: u64 = 7;
const DIES: u64 = 8;
/// First track of a task.
const TASKS: u64 = 1000;
/// First lane under a track, for its number.
const LANES: u64 = 1_000_000;

/// The trace's bytes.
pub fn write(records: &[Record]) -> Vec<u8> {
    trace(records).encode_to_vec()
}

/// The trace as messages.
pub fn trace(records: &[Record]) -> Trace {
    let last = records.last().map_or(Time::ZERO, |r| r.at);
    let syncs = syncs(records, last);
    let commits = commits(records, last);
    let requests = requests(records);
    let inside = Inside::new(records, &requests);
    let mut w = Writer::default();
    w.process(SYSTEM, "writepath");
    w.group(MARKS, "marks", SYSTEM);
    w.group(JOURNAL, "journal", SYSTEM);
    w.calls(records, &syncs, last);
    w.journal(records, &commits, &syncs);
    let caused = flows::requests(records, &requests, &commits, &syncs);
    w.blocks(records, &requests, &caused, last);
    if !inside.commands.is_empty() || !inside.works.is_empty() {
        w.process(DEVICE, "device");
        w.device(&inside, &caused.requests, &syncs, last);
    }
    // Stable: what one track says in one nanosecond stays in its order, and so does a flow.
    w.events.sort_by_key(|p| p.timestamp);
    let mut packet = w.tracks;
    packet.append(&mut w.events);
    if let Some(first) = packet.first_mut() {
        first.sequence_flags = Some(1);
    }
    Trace { packet }
}

#[derive(Default)]
struct Writer {
    tracks: Vec<TracePacket>,
    events: Vec<TracePacket>,
}

/// Tracks of one kind of thing that may overlap.
struct Lanes {
    parent: u64,
    name: &'static str,
    /// Until when each is taken.
    until: Vec<Time>,
}

impl Lanes {
    fn new(parent: u64, name: &'static str) -> Lanes {
        Lanes { parent, name, until: Vec::new() }
    }

    /// The first lane that is free.
    fn take(&mut self, w: &mut Writer, from: Time, to: Time) -> u64 {
        let uuid = |lane: usize| self.parent * LANES + lane as u64;
        let lane = self.until.iter().position(|&until| until <= from).unwrap_or_else(|| {
            let n = self.until.len();
            w.child(uuid(n), &format!("{} {n}", self.name), self.parent, n as u64);
            self.until.push(Time::ZERO);
            n
        });
        self.until[lane] = to;
        uuid(lane)
    }
}

impl Writer {
    fn packet() -> TracePacket {
        TracePacket { trusted_packet_sequence_id: Some(1), ..TracePacket::default() }
    }

    fn descriptor(&mut self, descriptor: TrackDescriptor) {
        self.tracks.push(TracePacket { track_descriptor: Some(descriptor), ..Self::packet() });
    }

    fn process(&mut self, uuid: u64, name: &str) {
        let process =
            ProcessDescriptor { pid: Some(uuid as i32), process_name: Some(name.to_owned()) };
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid),
            process: Some(process),
            child_ordering: Some(BY_RANK),
            ..TrackDescriptor::default()
        });
    }

    /// A track under a process; its own number is its rank.
    fn group(&mut self, uuid: u64, name: &str, parent: u64) {
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            child_ordering: Some(BY_RANK),
            sibling_order_rank: Some(uuid as i32),
            ..TrackDescriptor::default()
        });
    }

    fn child(&mut self, uuid: u64, name: &str, parent: u64, rank: u64) {
        self.descriptor(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            sibling_order_rank: i32::try_from(rank).ok(),
            ..TrackDescriptor::default()
        });
    }

    fn thread(&mut self, uuid: u64, name: &str) {
        let pid = SYSTEM as i32;
        let thread = Some(ThreadDescriptor {
            pid: Some(pid),
            tid: Some((uuid - TASKS) as i32 + DEVICE as i32 + 1),
            thread_name: Some(name.to_owned()),
        });
        self.descriptor(TrackDescriptor { uuid: Some(uuid), thread, ..TrackDescriptor::default() });
    }

    fn event(&mut self, at: Time, track: u64, kind: i32) -> &mut TrackEvent {
        let event =
            TrackEvent { r#type: Some(kind), track_uuid: Some(track), ..TrackEvent::default() };
        self.events.push(TracePacket {
            timestamp: Some(at.0),
            track_event: Some(event),
            ..Self::packet()
        });
        let packet = self.events.last_mut().expect("it was pushed just now");
        packet.track_event.as_mut().expect("it was made just now")
    }

    fn begin(&mut self, at: Time, track: u64, name: impl Into<String>) -> &mut TrackEvent {
        let event = self.event(at, track, BEGIN);
        event.name = Some(name.into());
        event
    }

    fn calls(&mut self, records: &[Record], syncs: &[Sync<'_>], last: Time) {
        let exits = exits(records);
        let mut tasks: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, r) in records.iter().enumerate() {
            match &r.event {
                Event::SyscallEnter { name, id, target } => {
                    let next = TASKS + tasks.len() as u64;
                    let track = *tasks.entry(&r.task).or_insert(next);
                    if track == next {
                        self.thread(track, &r.task);
                    }
                    let event = self.begin(r.at, track, *name);
                    event.debug_annotations = vec![text("target", target)];
                    event.flow_ids =
                        syncs.iter().filter(|s| s.index == index).map(Sync::flow).collect();
                    let to = exits.get(id).copied().unwrap_or(last);
                    self.event(to, track, END);
                }
                Event::Mark { text } => {
                    self.event(r.at, MARKS, INSTANT).name = Some(text.to_string());
                }
                _ => {}
            }
        }
    }

    fn journal(&mut self, records: &[Record], commits: &[Commit<'_>], syncs: &[Sync<'_>]) {
        for c in commits {
            let event = self.begin(c.from, JOURNAL, format!("commit {}", c.tid));
            event.flow_ids = syncs.iter().filter(|s| serves(c, s)).map(Sync::flow).collect();
            for (i, (phase, from)) in c.phases.iter().enumerate() {
                self.begin(*from, JOURNAL, *phase);
                let to = c.phases.get(i + 1).map_or(c.to, |(_, at)| *at);
                self.event(to, JOURNAL, END);
            }
            self.event(c.to, JOURNAL, END);
        }
        for r in records {
            if let Event::Jbd2 { what, tid, value } = r.event {
                if what.starts_with("commit_") || ["start_commit", "end_commit"].contains(&what) {
                    continue;
                }
                let event = self.event(r.at, JOURNAL, INSTANT);
                event.name = Some(what.to_owned());
                event.debug_annotations =
                    vec![number("transaction", u64::from(tid)), number("value", value)];
            }
        }
    }
}

fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { uint_value: Some(value), string_value: None, name: Some(name.to_owned()) }
}

fn text(name: &str, value: &str) -> DebugAnnotation {
    DebugAnnotation {
        uint_value: None,
        string_value: Some(value.to_owned()),
        name: Some(name.to_owned()),
    }
}
