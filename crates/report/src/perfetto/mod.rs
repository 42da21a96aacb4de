//! A run as a trace for the Perfetto viewer.
//!
//! Tracks: one per task (system calls), the critical path of each sync with its stages, one for
//! each kind of work that calls share (the journal's commits, checkpoints, logs) with its phases,
//! marks, lanes of bios and of requests, counters, and of the device its commands and one per die.
//! What may overlap has lanes, because slices of one track must nest. One flow per fsync leads from
//! its slice over the shared work, bios and requests that it caused and their commands to what the
//! dies did while it waited. A viewer links the slices of a flow in the order in which they come in
//! the file.

mod blocks;
mod counters;
mod device;
mod flows;
mod proto;

pub use proto::*;

use std::collections::BTreeMap;

use prost::Message;
use wp_base::Time;
use wp_base::event::{Event, Record};

use flows::{Sync, exits, syncs};

use crate::causality::{Causes, Span};
use crate::explain::path;
use crate::run::{Call, SYNCS, Seen, WHOLE};
use crate::shared::{Piece, Served};

/// Process of the simulated system, and its number.
const SYSTEM: u64 = 1;
/// Process of the device, and its number.
const DEVICE: u64 = 2;
const PATHS: u64 = 3;
const MARKS: u64 = 4;
const BIOS: u64 = 5;
const REQUESTS: u64 = 6;
const COMMANDS: u64 = 7;
const DIES: u64 = 8;
const COUNTERS: u64 = 9;
/// First track of shared work.
const WORK: u64 = 20;
/// First track of a task.
const TASKS: u64 = 1000;
/// First lane under a track, for its number.
const LANES: u64 = 1_000_000;
/// Syncs whose critical path is drawn, at most: of more a viewer makes nothing.
const PATHS_MAX: usize = 2000;

/// The trace's bytes.
pub fn write(seen: &Seen<'_>) -> Vec<u8> {
    trace(seen).encode_to_vec()
}

/// The trace as messages.
pub fn trace(seen: &Seen<'_>) -> Trace {
    let records = seen.run.records;
    let last = records.last().map_or(Time::ZERO, |r| r.at);
    let syncs = syncs(records, last);
    let spans: Vec<Span<'_>> = syncs.iter().map(|s| (s.index, s.exit, s.task)).collect();
    let requests = &seen.walk.requests;
    let mut w = Writer::default();
    w.process(SYSTEM, "writepath");
    w.group(MARKS, "marks", SYSTEM);
    w.calls(records, &syncs, last);
    w.paths(seen);
    w.work(seen, &syncs, &Served::new(records, &seen.pieces, &spans), last);
    w.notes(records);
    let causes = Causes::new(records, &seen.pieces, &spans);
    let caused = flows::requests(&causes, requests, &syncs);
    w.blocks(records, requests, &caused, last);
    w.counters(seen);
    let inside = &seen.inside;
    if !inside.commands.is_empty() || !inside.works.is_empty() {
        w.process(DEVICE, "device");
        w.device(inside, &caused.requests, &syncs, last);
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

/// Name of the track of some work.
fn track_name(work: &str) -> String {
    // What jbd2 does has been shown under this name.
    if work == "commit" { "journal".to_owned() } else { format!("{work}s") }
}

#[derive(Default)]
struct Writer {
    tracks: Vec<TracePacket>,
    events: Vec<TracePacket>,
}

/// Tracks of one kind of thing that may overlap.
struct Lanes {
    parent: u64,
    name: String,
    /// Until when each is taken.
    until: Vec<Time>,
}

impl Lanes {
    fn new(parent: u64, name: &str) -> Lanes {
        Lanes { parent, name: name.to_owned(), until: Vec::new() }
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

    /// The path of each sync, with its stages.
    fn paths(&mut self, seen: &Seen<'_>) {
        let names: Vec<&str> = SYNCS.iter().chain(WHOLE).copied().collect();
        let calls = seen.calls(&names);
        if calls.is_empty() || !seen.walk.knows_wakeups() {
            return;
        }
        self.group(PATHS, "critical paths", SYSTEM);
        let mut lanes = Lanes::new(PATHS, "critical path");
        for call in calls.into_iter().take(PATHS_MAX) {
            self.path(seen, call, &mut lanes);
        }
    }

    fn path(&mut self, seen: &Seen<'_>, call: Call, lanes: &mut Lanes) {
        let records = seen.run.records;
        let (from, to) = (records[call.enter].at, records[call.exit].at);
        let track = lanes.take(self, from, to);
        let (name, target) = (seen.call_name(call.enter), seen.target(call.enter));
        let title = format!("critical path of {name} {} {target}", call.number);
        self.begin(from, track, title.trim_end());
        for link in path(seen, call) {
            let begin = Time(from.0 + link.from_ns);
            let event = self.begin(begin, track, link.stage.as_str());
            event.debug_annotations = vec![text("who", &link.who), text("what", &link.what)];
            if !link.part.is_empty() {
                event.debug_annotations.push(text("in the device", &link.part));
            }
            self.event(Time(begin.0 + link.ns), track, END);
        }
        self.event(to, track, END);
    }

    /// Shared work, a track for each kind.
    fn work(&mut self, seen: &Seen<'_>, syncs: &[Sync<'_>], served: &Served, last: Time) {
        let mut kinds: Vec<(&str, Lanes)> = Vec::new();
        for (n, p) in seen.pieces.iter().enumerate() {
            let kind = kinds.iter().position(|(work, _)| *work == p.work).unwrap_or_else(|| {
                let track = WORK + kinds.len() as u64;
                let name = track_name(p.work);
                self.group(track, &name, SYSTEM);
                kinds.push((p.work, Lanes::new(track, &name)));
                kinds.len() - 1
            });
            let flows: Vec<u64> = served.calls(n).map(|call| syncs[call].flow()).collect();
            self.piece(p, &mut kinds[kind].1, flows, last);
        }
    }

    fn piece(&mut self, p: &Piece<'_>, lanes: &mut Lanes, flows: Vec<u64>, last: Time) {
        let to = p.end.map_or(last, |m| m.at);
        let track = lanes.take(self, p.begin.at, to);
        let event = self.begin(p.begin.at, track, format!("{} {}", p.work, p.id));
        event.flow_ids = flows;
        event.debug_annotations = vec![text("by", &p.tasks.join(", "))];
        if !p.why.is_empty() {
            event.debug_annotations.push(text("why", p.why));
        }
        for asked in &p.asked {
            let mut who = format!("{} at {} ns", asked.task, asked.at.at.0);
            if !asked.why.is_empty() {
                who = format!("{who}: {}", asked.why);
            }
            event.debug_annotations.push(text("requested by", &who));
        }
        for (i, (phase, from)) in p.phases.iter().enumerate() {
            self.begin(from.at, track, *phase);
            let next = p.phases.get(i + 1).map_or(to, |(_, m)| m.at);
            self.event(next, track, END);
        }
        self.event(to, track, END);
    }

    /// What the journal says besides its commits.
    fn notes(&mut self, records: &[Record]) {
        for r in records {
            let Event::Jbd2 { what, tid, value } = r.event else { continue };
            if what.starts_with("commit_") || ["start_commit", "end_commit"].contains(&what) {
                continue;
            }
            let event = self.event(r.at, MARKS, INSTANT);
            event.name = Some(what.to_owned());
            event.debug_annotations =
                vec![number("transaction", u64::from(tid)), number("value", value)];
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
