//! Why one fsync took its time: its critical path, as a table whose shares add up to 100 %.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde_json::{Value, json};
use wp_base::Time;
use wp_base::event::{Event, Flags, Op, Record, rwbs};

use crate::commands::{Inside, Part};
use crate::requests::Request;
use crate::walk::{Doing, Role, Step, Walk, length};

/// Hundredths of a percent in the whole.
const WHOLE: u64 = 10_000;

/// Why there is nothing to explain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoSuchSync {
    /// The run has fewer.
    Fewer {
        /// Which was asked for, from 1.
        asked: usize,
        /// How many there are.
        there: usize,
    },
    /// It does not return within the run.
    Open,
    /// The events do not say who woke whom.
    NoWakeups,
}

impl fmt::Display for NoSuchSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuchSync::Fewer { asked, there } => {
                write!(f, "there is no fsync number {asked}: the run has {there}")
            }
            NoSuchSync::Open => f.write_str("the fsync does not return within the run"),
            NoSuchSync::NoWakeups => f.write_str(
                "its events do not say who woke whom, as an older version wrote them: run it again",
            ),
        }
    }
}

impl std::error::Error for NoSuchSync {}

/// One step of the critical path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Nanoseconds since the call.
    pub from_ns: u64,
    /// Its length.
    pub ns: u64,
    /// The task that ran, or that waited.
    pub who: String,
    /// The stage: one of few names.
    pub stage: String,
    /// What the device did meanwhile; empty if that is not known, or not in the device.
    pub part: String,
    /// The die that did it; empty if none did.
    pub place: String,
    /// What it ran, or what it waited for and who had issued that.
    pub what: String,
    /// Hundredths of a percent of the call.
    pub share: u64,
}

/// A stage: links of one name together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Nanoseconds.
    pub ns: u64,
    /// Hundredths of a percent; those of all stages add up to 10000.
    pub share: u64,
    /// The same by what the device did; empty if that is not known. Adds up to this stage.
    pub parts: Vec<Stage>,
}

/// The critical path of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// `fsync` or `fdatasync`.
    pub call: String,
    /// What it was called on.
    pub target: String,
    /// By whom.
    pub task: String,
    /// When, nanoseconds of virtual time.
    pub at_ns: u64,
    /// How long it took.
    pub total_ns: u64,
    /// The path, in order of time; lengths add up to the total.
    pub links: Vec<Link>,
    /// The same by stage, in the order in which they begin; shares add up to 10000.
    pub stages: Vec<Stage>,
}

/// Explains the `op`-th fsync or fdatasync (from 1). `classes`: what the blocks of a block event
/// are, by the record's index, where that is known.
pub fn explain(
    records: &[Record],
    classes: &BTreeMap<usize, String>,
    op: usize,
) -> Result<Explanation, NoSuchSync> {
    let call = Call::find(records, op)?;
    let walk = Walk::new(records);
    let inside = Inside::new(records, &walk.requests);
    Ok(call.explain(&Namer { records, classes, walk: &walk, inside: &inside }))
}

/// An fsync that returns within the run: indexes of its records.
pub(crate) struct Call {
    pub enter: usize,
    pub exit: usize,
}

impl Call {
    /// The `op`-th, from 1.
    pub fn find(records: &[Record], op: usize) -> Result<Call, NoSuchSync> {
        let is_sync =
            |r: &Record| matches!(r.event, Event::SyscallEnter { name: "fsync" | "fdatasync", .. });
        let calls: Vec<usize> =
            records.iter().zip(0..).filter(|(r, _)| is_sync(r)).map(|(_, i)| i).collect();
        let &enter = op
            .checked_sub(1)
            .and_then(|i| calls.get(i))
            .ok_or(NoSuchSync::Fewer { asked: op, there: calls.len() })?;
        let Event::SyscallEnter { id: call, .. } = records[enter].event else {
            return Err(NoSuchSync::Open);
        };
        let exit = (enter..records.len())
            .find(|&i| matches!(records[i].event, Event::SyscallExit { id, .. } if id == call))
            .ok_or(NoSuchSync::Open)?;
        if !records.iter().any(|r| matches!(r.event, Event::Wakeup { .. })) {
            return Err(NoSuchSync::NoWakeups);
        }
        Ok(Call { enter, exit })
    }

    pub(crate) fn explain(&self, named: &Namer<'_>) -> Explanation {
        let (enter, exit) = (&named.records[self.enter], &named.records[self.exit]);
        let steps = named.walk.back(self.exit, enter.at);
        let links = named.links(&steps, enter.at);
        let (call, target) = match &enter.event {
            Event::SyscallEnter { name, target, .. } => (*name, &**target),
            _ => ("", ""),
        };
        Explanation {
            call: call.to_owned(),
            target: target.to_owned(),
            task: enter.task.to_string(),
            at_ns: enter.at.0,
            total_ns: exit.at.since(enter.at).0,
            stages: stages(&links),
            links,
        }
    }
}

/// Are these blocks nodes of F2FS: `inode+node*2`?
fn is_node(class: &str) -> bool {
    class.split('+').all(|part| matches!(part.split('*').next(), Some("inode" | "node")))
}

pub(crate) struct Namer<'a> {
    pub records: &'a [Record],
    pub classes: &'a BTreeMap<usize, String>,
    pub walk: &'a Walk<'a>,
    pub inside: &'a Inside,
}

impl Namer<'_> {
    /// Steps with names; work in a row is one link, named by what it leads to.
    pub(crate) fn links(&self, steps: &[Step], start: Time) -> Vec<Link> {
        let mut out: Vec<Link> = Vec::new();
        // Latest first: what CPU time leads to is known when it is met.
        let mut leads_to: Option<String> = None;
        for s in steps.iter().rev() {
            let (stage, what) = match &s.doing {
                Doing::Cpu(what) => {
                    let stage = leads_to.as_ref().map_or("wake up and return".to_owned(), |to| {
                        format!("prepare and dispatch: {to}")
                    });
                    (stage, (*what).to_owned())
                }
                Doing::Request(i, role) => {
                    let r = &self.walk.requests[*i];
                    let kind = self.kind(r, *role);
                    let goal = match role {
                        Role::PreFlush => "commit record".to_owned(),
                        _ => kind.clone(),
                    };
                    leads_to = Some(goal);
                    (format!("wait: {kind}"), self.describe(r))
                }
                Doing::Elevator(i) => {
                    let r = &self.walk.requests[*i];
                    (format!("in the elevator: {}", self.kind(r, Role::Own)), self.describe(r))
                }
                Doing::Runnable => {
                    ("ready, and no core free".to_owned(), "waits for a core".to_owned())
                }
                Doing::Sleep => ("sleep".to_owned(), "nothing else ends it".to_owned()),
                Doing::Unknown => ("other wait".to_owned(), "no event ends it".to_owned()),
            };
            let from_ns = s.from.since(start).0;
            let cpu = matches!(s.doing, Doing::Cpu(_));
            let parts = match s.doing {
                Doing::Request(i, _) => self.inside.parts(i, s.from, s.to),
                _ => Vec::new(),
            };
            let link = Link {
                from_ns,
                ns: length(s).0,
                who: s.who.clone(),
                stage: stage.clone(),
                part: String::new(),
                place: String::new(),
                what: what.clone(),
                share: 0,
            };
            if !parts.is_empty() {
                let of = |p: Part| Link {
                    from_ns: p.from.since(start).0,
                    ns: p.to.since(p.from).0,
                    part: p.name.to_owned(),
                    place: p.place,
                    ..link.clone()
                };
                out.extend(parts.into_iter().rev().map(of));
                continue;
            }
            match out.last_mut() {
                Some(l) if cpu && l.stage == stage && l.who == s.who => {
                    l.from_ns = from_ns;
                    l.ns += length(s).0;
                    l.what = format!("{what}, {}", l.what);
                }
                _ => out.push(link),
            }
        }
        out.reverse();
        let worked = |l: &&mut Link| l.stage.starts_with("prepare") || l.stage.starts_with("wake");
        for l in out.iter_mut().filter(worked) {
            l.what = counted(&l.what);
        }
        let shares = shares(&out.iter().map(|l| l.ns).collect::<Vec<_>>());
        for (link, share) in out.iter_mut().zip(shares) {
            link.share = share;
        }
        out
    }

    /// What a request is, in a few words.
    pub(crate) fn kind(&self, r: &Request, role: Role) -> String {
        match role {
            Role::PreFlush => return "pre-flush".to_owned(),
            Role::PostFlush => return "post-flush".to_owned(),
            Role::Flush => return "flush".to_owned(),
            Role::Ahead => return "requests ahead in the device".to_owned(),
            Role::Own => {}
        }
        let first = r.bios.first().map(|b| b.queued.index);
        let journal = first.is_some_and(|i| self.records[i].task.starts_with("jbd2"));
        let class = first.and_then(|i| self.classes.get(&i)).map_or("", String::as_str);
        match r.op {
            Op::Read => "read",
            Op::Discard => "discard",
            Op::Zone(op) => op.name(),
            Op::Flush => "flush",
            Op::Write if r.sectors == 0 => "flush",
            Op::Write if is_node(class) => "node",
            Op::Write if r.flags.any(Flags::PREFLUSH | Flags::FUA) => "commit record",
            Op::Write if class.starts_with("journal") => "journal blocks",
            Op::Write if class.starts_with("data") => self.data(journal),
            Op::Write if !class.is_empty() => "metadata",
            Op::Write if journal && first.is_some_and(|i| self.logging(i)) => "journal blocks",
            Op::Write => self.data(journal),
        }
        .to_owned()
    }

    fn data(&self, journal: bool) -> &'static str {
        if journal { "ordered data of other files" } else { "data" }
    }

    /// Is the journal past the data of its transaction at this record?
    fn logging(&self, index: usize) -> bool {
        let phase = self.records[..index].iter().rev().find_map(|r| match r.event {
            Event::Jbd2 { what, .. } if what.starts_with("commit_") => Some(what),
            _ => None,
        });
        phase.is_none_or(|p| p == "commit_logging")
    }

    /// Requests that were in the device when it was issued.
    fn ahead(&self, r: &Request) -> usize {
        let Some(issued) = r.issued else { return 0 };
        let within = |o: &&Request| {
            o.issued.is_some_and(|m| m.index < issued.index)
                && o.done.is_none_or(|m| m.index > issued.index)
        };
        self.walk.requests.iter().filter(within).count()
    }

    fn describe(&self, r: &Request) -> String {
        let issuer = r.issued.map_or("nobody", |m| &*self.records[m.index].task);
        if r.sectors == 0 {
            return format!("flush of the device's cache, issued by {issuer}");
        }
        let queued = r.bios.first().map(|b| b.queued.index);
        let by = queued.map_or(issuer, |i| &*self.records[i].task);
        let mut text = format!("{} {} + {} of {by}", rwbs(r.op, r.flags), r.at.0, r.sectors);
        if issuer != by {
            write!(text, ", issued by {issuer}").expect("a string takes it");
        }
        if let Some(class) = r.issued.and_then(|m| self.classes.get(&m.index)) {
            write!(text, " ({class})").expect("a string takes it");
        }
        let ahead = self.ahead(r);
        if ahead > 0 {
            write!(text, ", with {ahead} ahead of it in the device").expect("a string takes it");
        }
        text
    }
}

/// `a, b, a` as `a x2, b`.
fn counted(list: &str) -> String {
    let mut names: Vec<(&str, u32)> = Vec::new();
    for name in list.split(", ") {
        match names.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    let times = |&(n, c): &(&str, u32)| if c == 1 { n.to_owned() } else { format!("{n} x{c}") };
    names.iter().map(times).collect::<Vec<_>>().join(", ")
}

/// Hundredths of a percent that add up to exactly [`WHOLE`], by largest remainder.
fn shares(parts: &[u64]) -> Vec<u64> {
    let total: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    if total == 0 {
        return vec![0; parts.len()];
    }
    let scaled = |p: u64| u128::from(p) * u128::from(WHOLE);
    let mut out: Vec<u64> = parts.iter().map(|&p| (scaled(p) / total) as u64).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(scaled(parts[i]) % total));
    let missing = WHOLE - out.iter().sum::<u64>();
    for &i in order.iter().take(missing as usize) {
        out[i] += 1;
    }
    out
}

fn stages(links: &[Link]) -> Vec<Stage> {
    let mut out: Vec<Stage> = Vec::new();
    for l in links {
        let stage = named(&mut out, &l.stage);
        stage.ns += l.ns;
        named(&mut stage.parts, &l.part).ns += l.ns;
    }
    // Of the smallest parts, so that these add up as well.
    let all: Vec<u64> = out.iter().flat_map(|s| &s.parts).map(|p| p.ns).collect();
    let mut shares = shares(&all).into_iter();
    for stage in &mut out {
        for (part, share) in stage.parts.iter_mut().zip(&mut shares) {
            part.share = share;
            stage.share += share;
        }
        if stage.parts.iter().all(|p| p.name.is_empty()) {
            stage.parts.clear();
        }
    }
    out
}

/// The stage of this name, made if there is none.
fn named<'a>(stages: &'a mut Vec<Stage>, name: &str) -> &'a mut Stage {
    let i = stages.iter().position(|s| s.name == name).unwrap_or_else(|| {
        stages.push(Stage { name: name.to_owned(), ns: 0, share: 0, parts: Vec::new() });
        stages.len() - 1
    });
    &mut stages[i]
}

pub(crate) fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

fn percent(share: u64) -> String {
    format!("{}.{:02}", share / 100, share % 100)
}

/// What the device did, and where.
fn part_of(l: &Link) -> String {
    if l.place.is_empty() { l.part.clone() } else { format!("{}, {}", l.part, l.place) }
}

impl Explanation {
    /// Two tables: stages, with the device's parts of each under it, and the path.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let total = micros(self.total_ns);
        let mut line = |text: String| writeln!(out, "{text}").expect("a string takes it");
        line(format!("{}({}) by {}: {total} us", self.call, self.target, self.task));
        line(String::new());
        let width = |s: &Stage| s.name.chars().count();
        let parts = |s: &Stage| s.parts.iter().map(width).max().map_or(0, |w| w + 2);
        let width = self.stages.iter().map(|s| width(s).max(parts(s))).max().unwrap_or(0).max(5);
        line(format!("{:<width$} {:>12} {:>7}", "stage", "us", "%"));
        for s in &self.stages {
            let (us, share) = (micros(s.ns), percent(s.share));
            line(format!("{:<width$} {us:>12} {share:>7}", s.name));
            for p in &s.parts {
                let (us, share) = (micros(p.ns), percent(p.share));
                let name = if p.name.is_empty() { "not told" } else { &p.name };
                line(format!("  {name:<0$} {us:>12} {share:>7}", width - 2));
            }
        }
        let whole = percent(self.stages.iter().map(|s| s.share).sum());
        line(format!("{:<width$} {total:>12} {whole:>7}", "total"));
        line(String::new());
        let who = self.links.iter().map(|l| l.who.chars().count()).max().unwrap_or(0).max(3);
        let stage = self.links.iter().map(|l| l.stage.chars().count()).max().unwrap_or(0).max(5);
        let part = self.links.iter().map(|l| part_of(l).chars().count()).max().unwrap_or(0);
        let part = if part == 0 { 0 } else { part.max(9) + 2 };
        let head = if part == 0 { "" } else { "in device" };
        line(format!(
            "{:>12} {:>12} {:>7}  {:<who$}  {:<stage$}  {head:<part$}what",
            "from us", "us", "%", "who", "stage"
        ));
        for l in &self.links {
            let (from, us, share) = (micros(l.from_ns), micros(l.ns), percent(l.share));
            line(format!(
                "{from:>12} {us:>12} {share:>7}  {:<who$}  {:<stage$}  {:<part$}{}",
                l.who,
                l.stage,
                part_of(l),
                l.what
            ));
        }
        out
    }

    /// As a JSON document. Shares are in percent.
    pub fn json(&self) -> Value {
        let links: Vec<Value> = self
            .links
            .iter()
            .map(|l| {
                json!({ "from_ns": l.from_ns, "ns": l.ns, "percent": percent(l.share),
                    "who": l.who, "stage": l.stage, "part": l.part, "place": l.place,
                    "what": l.what })
            })
            .collect();
        let part = |p: &Stage| json!({ "part": p.name, "ns": p.ns, "percent": percent(p.share) });
        let stages: Vec<Value> = self
            .stages
            .iter()
            .map(|s| {
                json!({ "stage": s.name, "ns": s.ns, "percent": percent(s.share),
                    "parts": s.parts.iter().map(part).collect::<Vec<_>>() })
            })
            .collect();
        json!({
            "schema": "writepath.explain/1", "call": self.call, "target": self.target,
            "task": self.task, "at_ns": self.at_ns, "total_ns": self.total_ns,
            "stages": stages, "path": links,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_any_parts_add_up_to_the_whole() {
        for parts in [vec![1, 1, 1], vec![7], vec![0, 3, 5, 1_000_000_007], vec![u64::MAX, 1, 2]] {
            assert_eq!(shares(&parts).iter().sum::<u64>(), WHOLE, "{parts:?}");
        }
        assert_eq!(shares(&[0, 0]), [0, 0]);
    }

    #[test]
    fn a_missing_fsync_is_counted() {
        let e = explain(&[], &BTreeMap::new(), 1).expect_err("none");
        assert_eq!(e.to_string(), "there is no fsync number 1: the run has 0");
    }
}
