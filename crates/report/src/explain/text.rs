//! An explanation as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::names::{WAIT, shares};
use super::{Explanation, Link, Stage, meaning};
use crate::necessity::{self, Need};
use crate::waits::Group;

/// Characters of a line of running text.
pub(crate) const WIDE: usize = 100;

pub(crate) fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// The same of a time that may lie before the call.
pub(crate) fn signed(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", micros(ns.unsigned_abs()))
}

pub(crate) fn percent(share: u64) -> String {
    format!("{}.{:02}", share / 100, share % 100)
}

/// What the device did, and where.
fn part_of(l: &Link) -> String {
    if l.place.is_empty() { l.part.clone() } else { format!("{}, {}", l.part, l.place) }
}

/// The widest of some texts, at least `least`.
pub(crate) fn width<'a>(texts: impl Iterator<Item = &'a str>, least: usize) -> usize {
    texts.map(|t| t.chars().count()).max().unwrap_or(0).max(least)
}

/// A text that grows by lines.
#[derive(Default)]
pub(crate) struct Lines(pub String);

impl Lines {
    pub fn add(&mut self, text: &str) {
        writeln!(self.0, "{}", text.trim_end()).expect("a string takes it");
    }

    /// Running text, in lines of at most [`WIDE`] characters where its words allow.
    pub fn say(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDE {
                self.add(&line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.add(&line);
    }
}

impl Explanation {
    /// For people: the answer in words, the table of stages, who waited for whom, what was not
    /// needed, and the path.
    pub fn text(&self) -> String {
        let mut out = Lines::default();
        out.say(&self.why);
        self.table(&mut out);
        self.drive(&mut out);
        self.whom(&mut out);
        self.necessity(&mut out);
        self.path(&mut out);
        self.meanings(&mut out);
        out.0
    }

    /// The drive's share of the call: stages in which it had a request that was waited for, and its
    /// parts, the longest first, in nanoseconds.
    fn of_drive(&self) -> (u64, Vec<(&str, u64)>) {
        let mut parts: Vec<(&str, u64)> = Vec::new();
        let stages = self.stages.iter().filter(|s| s.name.starts_with(WAIT));
        let total = stages.clone().map(|s| s.ns).sum();
        for part in stages.flat_map(|s| &s.parts) {
            match parts.iter_mut().find(|(name, _)| *name == part.name) {
                Some((_, ns)) => *ns += part.ns,
                None => parts.push((&part.name, part.ns)),
            }
        }
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        (total, parts)
    }

    fn drive(&self, out: &mut Lines) {
        let (drive, parts) = self.of_drive();
        let host = self.total_ns.saturating_sub(drive);
        let shares = shares(&[drive, host]);
        out.add("");
        let mut text = format!(
            "The drive took {} of {} us ({} %), the host the other {} us ({} %).",
            micros(drive),
            micros(self.total_ns),
            percent(shares[0]),
            micros(host),
            percent(shares[1])
        );
        let told = parts.iter().filter(|(name, _)| !name.is_empty());
        let told: Vec<String> =
            told.map(|(name, ns)| format!("{name} {} us", micros(*ns))).collect();
        if !told.is_empty() {
            text.push_str(&format!(" In the drive: {}.", told.join(", ")));
        }
        out.say(&text);
    }

    /// What the stages and parts of the table are.
    fn meanings(&self, out: &mut Lines) {
        let (_, parts) = self.of_drive();
        let parts = parts.iter().filter_map(|(name, _)| {
            let shown = if name.is_empty() { "not told" } else { name };
            meaning::of_part(name).map(|what| (shown.to_owned(), what.to_owned()))
        });
        let stages = self.stages.iter().map(|s| (s.name.clone(), meaning::of_stage(&s.name)));
        let all: Vec<(String, String)> = stages.chain(parts).collect();
        let wide = width(all.iter().map(|(name, _)| name.as_str()), 0);
        out.add("");
        for (name, what) in &all {
            out.add(&format!("{name:<wide$}  {what}"));
        }
    }

    /// As table 3.1 of paper f2fs-oprw, with the device's parts of each stage under it.
    fn table(&self, out: &mut Lines) {
        out.add("");
        let parts = |s: &Stage| width(s.parts.iter().map(|p| p.name.as_str()), 6) + 2;
        let stages = self.stages.iter();
        let wide = stages.map(|s| s.name.chars().count().max(parts(s))).max().unwrap_or(0).max(5);
        out.add(&format!("{:<wide$} {:>14} {:>9}", "stage", "latency (us)", "ratio (%)"));
        for s in &self.stages {
            let (us, share) = (micros(s.ns), percent(s.share));
            out.add(&format!("{:<wide$} {us:>14} {share:>9}", s.name));
            for p in &s.parts {
                let (us, share) = (micros(p.ns), percent(p.share));
                let name = if p.name.is_empty() { "not told" } else { &p.name };
                out.add(&format!("  {name:<0$} {us:>14} {share:>9}", wide - 2));
            }
        }
        let whole = percent(self.stages.iter().map(|s| s.share).sum());
        out.add(&format!("{:<wide$} {:>14} {whole:>9}", "total", micros(self.total_ns)));
    }

    fn whom(&self, out: &mut Lines) {
        if !self.edges.is_empty() {
            let who = width(self.edges.iter().map(|e| e.waiter.as_str()), 8);
            let whom = width(self.edges.iter().map(|e| e.whom.as_str()), 4);
            let on = width(self.edges.iter().map(|e| e.on.as_str()), 8);
            out.add("");
            out.add(&format!(
                "{:<who$}  {:<whom$}  {:<on$} {:>12} {:>12} {:>6}",
                "waited", "for", "because of", "from us", "us", "times"
            ));
            for e in &self.edges {
                let (from, us) = (micros(e.from_ns), micros(e.ns));
                out.add(&format!(
                    "{:<who$}  {:<whom$}  {:<on$} {from:>12} {us:>12} {:>6}",
                    e.waiter, e.whom, e.on, e.count
                ));
            }
        }
        for g in &self.groups {
            out.add("");
            out.say(&told(g));
        }
    }

    /// What was sent, by kind and by whether it was needed.
    fn necessity(&self, out: &mut Lines) {
        let groups = necessity::grouped(&self.requests);
        if groups.is_empty() {
            return;
        }
        let kind = width(groups.iter().map(|g| g.kind.as_str()), 8);
        let by = width(groups.iter().map(|g| g.by.as_str()), 2);
        out.add("");
        out.add(&format!(
            "{:<kind$}  {:<by$} {:>6} {:>8} {:>12}  needed",
            "requests", "of", "number", "sectors", "on path us"
        ));
        for g in &groups {
            let on_path = if g.path_ns == 0 { "-".to_owned() } else { micros(g.path_ns) };
            out.add(&format!(
                "{:<kind$}  {:<by$} {:>6} {:>8} {on_path:>12}  {}: {}",
                g.kind,
                g.by,
                g.count,
                g.sectors,
                g.need.name(),
                g.rule
            ));
        }
    }

    fn path(&self, out: &mut Lines) {
        out.add("");
        let who = width(self.links.iter().map(|l| l.who.as_str()), 3);
        let stage = width(self.links.iter().map(|l| l.stage.as_str()), 5);
        let part = self.links.iter().map(|l| part_of(l).chars().count()).max().unwrap_or(0);
        let part = if part == 0 { 0 } else { part.max(9) + 2 };
        let head = if part == 0 { "" } else { "in device" };
        out.add(&format!(
            "{:>12} {:>12} {:>7}  {:<who$}  {:<stage$}  {head:<part$}what",
            "from us", "us", "%", "who", "stage"
        ));
        for l in &self.links {
            let (from, us, share) = (micros(l.from_ns), micros(l.ns), percent(l.share));
            out.add(&format!(
                "{from:>12} {us:>12} {share:>7}  {:<who$}  {:<stage$}  {:<part$}{}",
                l.who,
                l.stage,
                part_of(l),
                l.what
            ));
        }
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
        let edges: Vec<Value> = self
            .edges
            .iter()
            .map(|e| {
                json!({ "waiter": e.waiter, "on": e.on, "whom": e.whom, "from_ns": e.from_ns,
                    "ns": e.ns, "count": e.count })
            })
            .collect();
        let groups: Vec<Value> = self.groups.iter().map(|g| group_json(g, &self.task)).collect();
        json!({
            "schema": "writepath.explain/1", "number": self.number, "call": self.call,
            "target": self.target, "task": self.task, "at_ns": self.at_ns,
            "total_ns": self.total_ns, "why": self.why, "stages": stages_json(&self.stages),
            "waits": edges, "shared": groups, "path": links,
            "requests": self.requests.iter().map(necessity::Needed::json).collect::<Vec<_>>(),
            "drive_ns": self.of_drive().0, "drive_parts": self.of_drive().1.iter()
                .map(|(part, ns)| json!({ "part": part, "ns": ns })).collect::<Vec<_>>(),
            "not_needed": self.requests.iter()
                .filter(|r| r.need == Need::NotNeeded).count(),
        })
    }
}

/// A piece of shared work in a sentence.
fn told(g: &Group) -> String {
    let asked = match &g.asked[..] {
        [] if g.why.is_empty() => "requested by no task".to_owned(),
        [] => g.why.clone(),
        list => {
            let one = |a: &crate::waits::AskedBy| {
                let why = if a.why.is_empty() { String::new() } else { format!(" ({})", a.why) };
                format!("{} at {} us{why}", a.who, signed(a.at_ns))
            };
            format!("requested by {}", list.iter().map(one).collect::<Vec<_>>().join(", "))
        }
    };
    let calls = match g.calls {
        0 | 1 => "only this call waited for it".to_owned(),
        n => format!("{n} calls waited for it"),
    };
    let (begin, end) = (signed(g.begin_ns), signed(g.end_ns));
    format!("{}: {asked}; done by {} from {begin} to {end} us; {calls}", g.name, g.by.join(" and "))
}

fn group_json(g: &Group, task: &str) -> Value {
    let asked = g.asked.iter();
    let asked: Vec<Value> =
        asked.map(|a| json!({ "who": a.who, "at_ns": a.at_ns, "why": a.why })).collect();
    json!({ "name": g.name, "by": g.by, "asked": asked, "begin_ns": g.begin_ns,
        "end_ns": g.end_ns, "why": g.why, "calls": g.calls, "own": g.is_own(task) })
}

fn stages_json(stages: &[Stage]) -> Vec<Value> {
    let part = |p: &Stage| json!({ "part": p.name, "ns": p.ns, "percent": percent(p.share) });
    let stage = |s: &Stage| {
        json!({ "stage": s.name, "ns": s.ns, "percent": percent(s.share),
            "parts": s.parts.iter().map(part).collect::<Vec<_>>() })
    };
    stages.iter().map(stage).collect()
}
