//! What the device told: its commands, the requests that they are of, and the work that each
//! waited for.

use std::collections::BTreeMap;

use wp_base::event::{DeviceWork, Event, Flags, Op, Record, Work};
use wp_base::{Sector, Span, Time};

use crate::requests::{Moment, Request};

/// A command: a request, or a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Its number in the trace.
    pub id: u64,
    /// Operation.
    pub op: Op,
    /// Flags that the device saw.
    pub flags: Flags,
    /// First sector.
    pub at: Sector,
    /// Sectors; 0 for a flush.
    pub sectors: u32,
    /// When the device took it.
    pub taken: Moment,
    /// When it completed it.
    pub ended: Option<Moment>,
    /// Index of its request.
    pub request: Option<usize>,
    /// Indexes into [`Inside::works`] of what it waited for, in the order in which they ended.
    pub works: Vec<usize>,
}

/// Everything that the device told.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Inside {
    /// Commands, in the order in which they were taken.
    pub commands: Vec<Command>,
    /// All work, in the order in which it was told.
    pub works: Vec<DeviceWork>,
    /// Request -> its commands.
    by_request: BTreeMap<usize, Vec<usize>>,
    /// Work on dies, in the order in which it began.
    on_dies: Vec<usize>,
    /// The longest of it.
    longest: Span,
}

/// A stretch of a request's time in the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its beginning.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// What it went into.
    pub name: &'static str,
    /// The die that did it, or for which it was waited.
    pub place: String,
}

impl Inside {
    /// From a run's records and its requests. Empty if the run recorded nothing of the kind.
    pub fn new(records: &[Record], requests: &[Request]) -> Inside {
        let mut inside = Inside::default();
        let mut by_id: BTreeMap<u64, usize> = BTreeMap::new();
        let mut issued: Vec<(usize, usize)> =
            requests.iter().zip(0..).filter_map(|(r, i)| Some((r.issued?.index, i))).collect();
        issued.sort_unstable();
        for (index, r) in records.iter().enumerate() {
            let now = Moment { at: r.at, index };
            match &r.event {
                &Event::Command { id, op, flags, at, sectors } => {
                    let before = issued.partition_point(|(i, _)| *i < index);
                    let of = |i: &usize| holds(&requests[*i], now, at, sectors);
                    let request = issued[..before].iter().rev().map(|(_, i)| *i).find(of);
                    let n = inside.commands.len();
                    by_id.insert(id, n);
                    if let Some(request) = request {
                        inside.by_request.entry(request).or_default().push(n);
                    }
                    inside.commands.push(Command {
                        id,
                        op,
                        flags,
                        at,
                        sectors,
                        taken: now,
                        ended: None,
                        request,
                        works: Vec::new(),
                    });
                }
                Event::CommandEnd { id, .. } => {
                    if let Some(&n) = by_id.get(id) {
                        inside.commands[n].ended = Some(now);
                    }
                }
                Event::Device(work) => {
                    for n in work.commands.iter().filter_map(|id| by_id.get(id)) {
                        inside.commands[*n].works.push(inside.works.len());
                    }
                    inside.works.push((**work).clone());
                }
                _ => {}
            }
        }
        inside.keep_awaited();
        inside.on_dies =
            (0..inside.works.len()).filter(|&i| inside.works[i].die.is_some()).collect();
        inside.on_dies.sort_by_key(|&i| inside.works[i].from);
        let lengths = inside.on_dies.iter().map(|&i| &inside.works[i]).map(|w| w.to.since(w.from));
        inside.longest = lengths.max().unwrap_or_default();
        inside
    }

    /// Work on dies that overlaps this time.
    fn busy(&self, from: Time, to: Time) -> impl Iterator<Item = usize> {
        let begun = |t: Time| self.on_dies.partition_point(|&i| self.works[i].from < t);
        let some = &self.on_dies[begun(from.before(self.longest)).min(begun(to))..begun(to)];
        some.iter().copied().filter(move |&i| self.works[i].to > from)
    }

    /// A command does not wait for what ends after it.
    fn keep_awaited(&mut self) {
        let works = &self.works;
        for c in &mut self.commands {
            c.works.retain(|&w| c.ended.is_none_or(|end| works[w].to <= end.at));
            c.works.sort_by_key(|&w| (works[w].to, works[w].from));
        }
    }

    /// The commands of a request.
    pub fn of(&self, request: usize) -> impl Iterator<Item = &Command> {
        self.by_request.get(&request).into_iter().flatten().map(|&n| &self.commands[n])
    }

    /// Divides the time of a request between `from` and `to` into parts without gaps: from its end
    /// backwards, along what ended last. Empty if the device recorded nothing about the request.
    pub fn parts(&self, request: usize, from: Time, to: Time) -> Vec<Part> {
        let Some(taken) = self.of(request).map(|c| c.taken.at).min() else { return Vec::new() };
        let op = self.of(request).next().map_or(Op::Write, |c| c.op);
        let mut works: Vec<&DeviceWork> =
            self.of(request).flat_map(|c| &c.works).map(|&w| &self.works[w]).collect();
        works.sort_by_key(|w| (w.to, w.from));
        let decoded = works.iter().any(|w| w.what == Work::Decode);
        let taken = taken.max(from);
        let mut back = Back { from: taken, at: to, parts: Vec::new() };
        if let Some(ended) = self.of(request).filter_map(|c| c.ended).map(|m| m.at).max() {
            back.to(ended.min(to), "completion", "");
        }
        while let Some(w) = works.pop() {
            if w.to > back.at || w.from == w.to || w.to <= taken {
                continue;
            }
            back.to(w.to, "firmware", "");
            back.work(w, op);
        }
        back.to(taken, if decoded { "firmware" } else { "queue in device" }, "");
        back.from = from;
        back.to(from, "queue before device", "");
        back.parts.reverse();
        back.parts
    }

    /// Work on dies that made this one wait after `since`: on its die, or on its channel.
    pub fn delayers(&self, work: &DeviceWork, since: Time) -> Vec<usize> {
        let from = work.ready.max(since);
        let Some(mine) = work.die.filter(|_| from < work.from) else { return Vec::new() };
        let delays = |w: &DeviceWork| {
            let Some(die) = w.die else { return false };
            let (a, b) = if die == mine { (w.from, w.to) } else { on_bus(w) };
            die.channel == mine.channel && w != work && a < work.from && b > from
        };
        self.busy(from, work.from).filter(|&i| delays(&self.works[i])).collect()
    }

    /// Work on dies that let a wait in the device's front end.
    pub fn enders(&self, wait: &DeviceWork) -> Vec<usize> {
        let ended = |w: &DeviceWork| match wait.what {
            Work::AwaitBuffer => w.what == Work::Program && w.to == wait.to,
            Work::AwaitErased => w.gc,
            _ => false,
        };
        if !matches!(wait.what, Work::AwaitBuffer | Work::AwaitErased) {
            return Vec::new();
        }
        self.busy(wait.from, wait.to).filter(|&i| ended(&self.works[i])).collect()
    }
}

/// When a die's work has its channel.
fn on_bus(w: &DeviceWork) -> (Time, Time) {
    match w.what {
        Work::Program => (w.from, w.from + w.bus),
        _ => (w.to.before(w.bus), w.to),
    }
}

/// Can a command that is taken now be of this request?
fn holds(r: &Request, now: Moment, at: Sector, sectors: u32) -> bool {
    let open = r.done.is_none_or(|m| m.index > now.index);
    let end = at.0 + u64::from(sectors);
    let within = at >= r.at && end <= r.at.0 + u64::from(r.sectors);
    open && if sectors == 0 { r.is_flush() } else { within && !r.is_flush() }
}

struct Back {
    from: Time,
    at: Time,
    /// Latest first.
    parts: Vec<Part>,
}

impl Back {
    /// Goes back to `to`; what is passed over has this name.
    fn to(&mut self, to: Time, name: &'static str, place: &str) {
        let to = to.max(self.from);
        if to < self.at {
            let part = Part { from: to, to: self.at, name, place: place.to_owned() };
            self.parts.push(part);
            self.at = to;
        }
    }

    fn work(&mut self, w: &DeviceWork, op: Op) {
        let place = w.die.map_or(String::new(), |d| format!("channel {} die {}", d.channel, d.die));
        let (work, queue) = match w.what {
            Work::Decode => ("decode", "queue for controller"),
            Work::Transfer if op == Op::Read => ("transfer to host", "queue for link"),
            Work::Transfer => ("transfer to buffer", "queue for link"),
            Work::AwaitBuffer => ("buffer full", ""),
            Work::AwaitErased => ("no erased block", ""),
            Work::Program => {
                self.to(w.to.before(w.cells), "program", &place);
                ("transfer to die", "queue for die")
            }
            Work::Read => {
                self.to(w.to.before(w.bus), "transfer from die", &place);
                self.to(w.from + w.cells, "queue for channel", &place);
                ("read", "queue for die")
            }
            other => (other.name(), "queue in device"),
        };
        self.to(w.from, work, &place);
        self.to(w.ready, queue, &place);
    }
}
