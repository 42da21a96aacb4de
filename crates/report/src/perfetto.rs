//! A run as a trace for the Perfetto viewer.
//!
//! Tracks: one per task (system calls), the journal (commits and their phases), marks, and lanes of
//! block requests, because slices of one track must nest. One flow per fsync leads from its slice
//! to the commits and block requests that it caused. Field numbers: `perfetto_trace.proto`.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use wp_base::Time;
use wp_base::event::{Event, Record, rwbs};

use crate::requests::{Request, requests};

/// `Trace`.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// Its packets.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Which writer; never 0.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// An event.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// 1: the writer's state is fresh.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Its number.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Its name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// It stands for a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// It stands for a thread.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track that it is shown under.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Its number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// `ThreadDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// Its process.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its number.
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Named values.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// [`BEGIN`], [`END`] or [`INSTANT`].
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Its track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// Its name.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// Flows that go through it.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// A text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// Its name.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}

/// A slice begins.
pub const BEGIN: i32 = 1;
/// The track's innermost slice ends.
pub const END: i32 = 2;
/// A point in time.
pub const INSTANT: i32 = 3;

const PID: i32 = 1;
const PROCESS: u64 = 1;
const JOURNAL: u64 = 2;
const MARKS: u64 = 3;
/// First track of a task.
const TASKS: u64 = 1000;
/// First lane of block requests.
const LANES: u64 = 1_000_000;

/// An fsync in the trace.
struct Sync<'a> {
    /// Record of its enter: the number of its flow, counted from 1.
    index: usize,
    task: &'a str,
    from: Time,
    to: Time,
}

impl Sync<'_> {
    fn flow(&self) -> u64 {
        self.index as u64 + 1
    }
}

/// A commit of the journal.
struct Commit<'a> {
    tid: u32,
    task: &'a str,
    from: Time,
    to: Time,
    /// Phases and where each begins.
    phases: Vec<(&'a str, Time)>,
}

/// The trace's bytes.
pub fn write(records: &[Record]) -> Vec<u8> {
    trace(records).encode_to_vec()
}

/// The trace as messages.
pub fn trace(records: &[Record]) -> Trace {
    let last = records.last().map_or(Time::ZERO, |r| r.at);
    let syncs = syncs(records, last);
    let commits = commits(records, last);
    let mut w = Writer::default();
    w.track(PROCESS, "writepath", None);
    w.track(JOURNAL, "journal", Some(PROCESS));
    w.track(MARKS, "marks", Some(PROCESS));
    w.calls(records, &syncs, last);
    w.journal(records, &commits, &syncs);
    w.blocks(records, &commits, &syncs, last);
    // Stable: what one track says in one nanosecond stays in its order.
    w.events.sort_by_key(|p| p.timestamp);
    let mut packet = w.tracks;
    packet.append(&mut w.events);
    if let Some(first) = packet.first_mut() {
        first.sequence_flags = Some(1);
    }
    Trace { packet }
}

fn syncs(records: &[Record], last: Time) -> Vec<Sync<'_>> {
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

fn exits(records: &[Record]) -> BTreeMap<u64, Time> {
    let exit = |r: &Record| match r.event {
        Event::SyscallExit { id, .. } => Some((id, r.at)),
        _ => None,
    };
    records.iter().filter_map(exit).collect()
}

fn commits(records: &[Record], last: Time) -> Vec<Commit<'_>> {
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

#[derive(Default)]
struct Writer {
    tracks: Vec<TracePacket>,
    events: Vec<TracePacket>,
}

impl Writer {
    fn packet() -> TracePacket {
        TracePacket { trusted_packet_sequence_id: Some(1), ..TracePacket::default() }
    }

    fn track(&mut self, uuid: u64, name: &str, parent: Option<u64>) {
        let process = parent
            .is_none()
            .then(|| ProcessDescriptor { pid: Some(PID), process_name: Some(name.to_owned()) });
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            name: parent.map(|_| name.to_owned()),
            process,
            thread: None,
            parent_uuid: parent,
        };
        self.tracks.push(TracePacket { track_descriptor: Some(descriptor), ..Self::packet() });
    }

    fn thread(&mut self, uuid: u64, name: &str) {
        let tid = (uuid - TASKS) as i32 + PID + 1;
        let thread = Some(ThreadDescriptor {
            pid: Some(PID),
            tid: Some(tid),
            thread_name: Some(name.to_owned()),
        });
        let descriptor = TrackDescriptor { uuid: Some(uuid), thread, ..TrackDescriptor::default() };
        self.tracks.push(TracePacket { track_descriptor: Some(descriptor), ..Self::packet() });
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
                    let event = self.event(r.at, track, BEGIN);
                    event.name = Some((*name).to_owned());
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
            let event = self.event(c.from, JOURNAL, BEGIN);
            event.name = Some(format!("commit {}", c.tid));
            event.flow_ids = syncs.iter().filter(|s| serves(c, s)).map(Sync::flow).collect();
            for (i, (phase, from)) in c.phases.iter().enumerate() {
                self.event(*from, JOURNAL, BEGIN).name = Some((*phase).to_owned());
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

    fn blocks(
        &mut self,
        records: &[Record],
        commits: &[Commit<'_>],
        syncs: &[Sync<'_>],
        last: Time,
    ) {
        let mut all = requests(records);
        all.retain(|r| r.start().is_some() && (r.is_flush() || r.sectors > 0));
        all.sort_by_key(|r| r.start().map(|m| m.index));
        // Until when each lane is taken.
        let mut lanes: Vec<Time> = Vec::new();
        for r in &all {
            let from = r.start().expect("others were left out").at;
            let to = r.end().map_or(last, |m| m.at);
            let lane = lanes.iter().position(|&until| until <= from).unwrap_or_else(|| {
                self.track(LANES + lanes.len() as u64, &format!("block {}", lanes.len()), Some(1));
                lanes.push(Time::ZERO);
                lanes.len() - 1
            });
            lanes[lane] = to;
            let track = LANES + lane as u64;
            let issuer = r.issued.map_or("", |m| &*records[m.index].task);
            let event = self.event(from, track, BEGIN);
            event.name = Some(if r.is_flush() {
                "flush".to_owned()
            } else {
                format!("{} +{}", rwbs(r.op, r.flags), r.sectors)
            });
            event.debug_annotations = vec![
                number("sector", r.at.0),
                number("sectors", u64::from(r.sectors)),
                number("bios", r.bios.len() as u64),
                text("issuer", issuer),
            ];
            if let Some(issued) = r.issued {
                event.debug_annotations.push(number("Q2D ns", issued.at.since(from).0));
            }
            event.flow_ids = syncs
                .iter()
                .filter(|s| from <= s.to && to >= s.from)
                .filter(|s| caused(records, r, s, commits, &all))
                .map(Sync::flow)
                .collect();
            self.event(to, track, END);
        }
    }
}

/// Did the fsync wait for this commit? It ended within the call.
fn serves(c: &Commit<'_>, s: &Sync<'_>) -> bool {
    c.to > s.from && c.to <= s.to
}

/// Was the request issued for the fsync: by its task, by a commit that served it, or as a flush
/// around such a request?
fn caused(
    records: &[Record],
    r: &Request,
    s: &Sync<'_>,
    commits: &[Commit<'_>],
    all: &[Request],
) -> bool {
    if r.is_flush() {
        let Some(issued) = r.issued else { return false };
        return all.iter().any(|of| {
            let around = of.start().is_some_and(|m| m.index < issued.index)
                && of.end().is_none_or(|m| m.index > issued.index);
            of.is_sequence() && around && caused(records, of, s, commits, all)
        });
    }
    let tasks: BTreeSet<(&str, Time)> =
        r.bios.iter().map(|b| (&*records[b.queued.index].task, b.queued.at)).collect();
    tasks.into_iter().any(|(task, at)| {
        let own = task == s.task && at >= s.from && at <= s.to;
        let journal =
            || commits.iter().any(|c| serves(c, s) && task == c.task && at >= c.from && at <= c.to);
        own || journal()
    })
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
