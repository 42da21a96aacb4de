//! All calls of a run together: how long they took, where their time went, how many waited for work
//! that others had asked for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::causality::Span;
use crate::explain::{Lines, micros, path, percent, width};
use crate::run::{Call, Seen};
use crate::shared::Served;

/// A stage over all calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageSum {
    /// Its name.
    pub name: String,
    /// Nanoseconds in all calls.
    pub ns: u64,
    /// Hundredths of a percent of all calls' time.
    pub share: u64,
    /// Calls whose path has it.
    pub calls: u32,
    /// The longest in one call.
    pub most_ns: u64,
}

/// What some calls have in common.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// How many.
    pub calls: u32,
    /// Their names.
    pub names: String,
    /// Sum, least, and most of their lengths, nanoseconds.
    pub total_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// 99 of 100 are no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Number of the longest, from 1.
    pub slowest: usize,
    /// Stages, those with most time first.
    pub stages: Vec<StageSum>,
    /// Calls that some shared work served.
    pub served: u32,
    /// Of these, calls that waited for work which another task had asked for or which had begun
    /// before.
    pub joined: u32,
    /// Time in which the path was in other tasks than the caller and the system's own.
    pub others_ns: u64,
    /// Pieces of shared work by name, how many served calls, and how many calls.
    pub shared: Vec<(String, u32, u32)>,
}

/// The value that `percent` of 100 are no greater than; of sorted values.
fn at_percent(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Sums up calls of a run.
pub fn summary(seen: &Seen<'_>, calls: &[Call]) -> Summary {
    let records = seen.run.records;
    let mut out = Summary { calls: calls.len() as u32, ..Summary::default() };
    let mut names: Vec<&str> = calls.iter().map(|c| seen.call_name(c.enter)).collect();
    names.sort_unstable();
    names.dedup();
    out.names = names.join(" and ");
    let mut lengths = Vec::new();
    let mut stages: BTreeMap<String, StageSum> = BTreeMap::new();
    for call in calls {
        let ns = records[call.exit].at.since(records[call.enter].at).0;
        if lengths.is_empty() || ns > out.max_ns {
            (out.max_ns, out.slowest) = (ns, call.number);
        }
        lengths.push(ns);
        let caller = &*records[call.enter].task;
        let mut within: BTreeMap<String, u64> = BTreeMap::new();
        for link in path(seen, *call) {
            if link.who != caller && seen.run.stages.server(&link.who).is_none() {
                out.others_ns = out.others_ns.saturating_add(link.ns);
            }
            *within.entry(link.stage).or_default() += link.ns;
        }
        for (name, ns) in within {
            let new = StageSum { name: name.clone(), ns: 0, share: 0, calls: 0, most_ns: 0 };
            let sum = stages.entry(name).or_insert(new);
            sum.ns = sum.ns.saturating_add(ns);
            sum.calls += 1;
            sum.most_ns = sum.most_ns.max(ns);
        }
    }
    lengths.sort_unstable();
    out.total_ns = lengths.iter().fold(0, |sum, ns| sum.saturating_add(*ns));
    (out.p50_ns, out.p99_ns) = (at_percent(&lengths, 50), at_percent(&lengths, 99));
    let mut stages: Vec<StageSum> = stages.into_values().collect();
    stages.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.name.cmp(&b.name)));
    let shares = crate::explain::shares(&stages.iter().map(|s| s.ns).collect::<Vec<_>>());
    for (stage, share) in stages.iter_mut().zip(shares) {
        stage.share = share;
    }
    out.stages = stages;
    shared(seen, calls, &mut out);
    out
}

/// Counts who shared what.
fn shared(seen: &Seen<'_>, calls: &[Call], out: &mut Summary) {
    let records = seen.run.records;
    let spans: Vec<Span<'_>> =
        calls.iter().map(|c| (c.enter, c.exit, &*records[c.enter].task)).collect();
    let served = Served::new(records, &seen.pieces, &spans);
    let mut is_served = vec![false; calls.len()];
    let mut is_joined = vec![false; calls.len()];
    let mut kinds: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (i, piece) in seen.pieces.iter().enumerate() {
        let mut any = 0;
        for c in served.calls(i) {
            any += 1;
            is_served[c] = true;
            let (enter, _, task) = spans[c];
            let own = match piece.asked.first() {
                Some(first) => first.task == task && first.at.index >= enter,
                None => piece.begin.index >= enter,
            };
            is_joined[c] |= !own;
        }
        if any > 0 {
            let one = seen.run.stages.shared(piece.work).map_or(piece.work, |s| s.one);
            let kind = kinds.entry(one).or_default();
            *kind = (kind.0 + 1, kind.1 + any);
        }
    }
    let count = |all: &[bool]| all.iter().filter(|b| **b).count() as u32;
    (out.served, out.joined) = (count(&is_served), count(&is_joined));
    out.shared = kinds.into_iter().map(|(k, (n, calls))| (k.to_owned(), n, calls)).collect();
}

impl Summary {
    fn mean(&self, ns: u64) -> u64 {
        ns.checked_div(u64::from(self.calls)).unwrap_or(0)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = Lines::default();
        if self.calls == 0 {
            out.add("the run has no such completed call");
            return out.0;
        }
        out.say(&format!(
            "{} calls of {}: mean {} us, half within {} us, 99 % within {} us, the longest \
             (number {}) {} us.",
            self.calls,
            self.names,
            micros(self.mean(self.total_ns)),
            micros(self.p50_ns),
            micros(self.p99_ns),
            self.slowest,
            micros(self.max_ns)
        ));
        for (one, pieces, calls) in &self.shared {
            let (n, hundredths) = (*pieces, u64::from(*calls) * 100 / u64::from(*pieces));
            out.say(&format!(
                "They waited for a {one} {calls} times: {n} different ones, {}.{:02} calls each.",
                hundredths / 100,
                hundredths % 100
            ));
        }
        out.say(&format!(
            "{} of {} that waited for shared work waited for work that another task requested or that began earlier; {} us of their total time was in tasks of other programs.",
            self.joined,
            self.served,
            micros(self.others_ns)
        ));
        out.add("");
        let wide = width(self.stages.iter().map(|s| s.name.as_str()), 5);
        out.add(&format!(
            "{:<wide$} {:>14} {:>9} {:>8} {:>14}",
            "stage", "mean (us)", "ratio (%)", "calls", "longest (us)"
        ));
        for s in &self.stages {
            let (us, share) = (micros(self.mean(s.ns)), percent(s.share));
            let most = micros(s.most_ns);
            out.add(&format!("{:<wide$} {us:>14} {share:>9} {:>8} {most:>14}", s.name, s.calls));
        }
        let whole = percent(self.stages.iter().map(|s| s.share).sum());
        let (mean, most) = (micros(self.mean(self.total_ns)), micros(self.max_ns));
        out.add(&format!("{:<wide$} {mean:>14} {whole:>9} {:>8} {most:>14}", "total", self.calls));
        out.0
    }

    /// As a JSON document.
    pub fn json(&self) -> Value {
        let stages: Vec<Value> = self
            .stages
            .iter()
            .map(|s| {
                json!({ "stage": s.name, "ns": s.ns, "mean_ns": self.mean(s.ns),
                    "percent": percent(s.share), "calls": s.calls, "max_ns": s.most_ns })
            })
            .collect();
        let shared: Vec<Value> = self
            .shared
            .iter()
            .map(|(what, n, calls)| json!({ "what": what, "number": n, "calls": calls }))
            .collect();
        json!({ "schema": "writepath.explain-summary/1", "calls": self.calls, "names": self.names,
            "total_ns": self.total_ns, "mean_ns": self.mean(self.total_ns), "p50_ns": self.p50_ns,
            "p99_ns": self.p99_ns, "max_ns": self.max_ns, "slowest": self.slowest,
            "stages": stages, "served": self.served, "joined": self.joined,
            "others_ns": self.others_ns, "shared": shared })
    }
}

/// One call in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its number, from 1.
    pub number: usize,
    /// Its name.
    pub call: String,
    /// What it was called on.
    pub target: String,
    /// By whom.
    pub task: String,
    /// When, nanoseconds of virtual time.
    pub at_ns: u64,
    /// How long it took.
    pub total_ns: u64,
    /// The stage that most of it went into, and how long that was.
    pub most: (String, u64),
    /// Each stage with its time, nanoseconds, in the order in which they begin: they add up to
    /// `total_ns`.
    pub stages: Vec<(String, u64)>,
}

/// Calls with what most of their time went into; with `top` only the `top` slowest, the slowest
/// first.
pub fn list(seen: &Seen<'_>, calls: &[Call], top: Option<usize>) -> Vec<Listed> {
    let records = seen.run.records;
    let length = |c: &Call| records[c.exit].at.since(records[c.enter].at).0;
    let mut calls: Vec<Call> = calls.to_vec();
    if let Some(n) = top {
        calls.sort_by_key(|c| std::cmp::Reverse(length(c)));
        calls.truncate(n);
    }
    let one = |c: &Call| {
        let links = path(seen, *c);
        let stages = crate::explain::stages(&links);
        let most = stages.iter().max_by_key(|s| s.ns);
        Listed {
            number: c.number,
            call: seen.call_name(c.enter).to_owned(),
            target: seen.target(c.enter).into_owned(),
            task: records[c.enter].task.to_string(),
            at_ns: records[c.enter].at.0,
            total_ns: length(c),
            most: most.map_or_else(Default::default, |s| (s.name.clone(), s.ns)),
            stages: stages.into_iter().map(|s| (s.name, s.ns)).collect(),
        }
    };
    calls.iter().map(one).collect()
}

/// A list as text.
pub fn list_text(list: &[Listed]) -> String {
    let mut out = Lines::default();
    let call = width(list.iter().map(|l| l.call.as_str()), 4);
    let target = width(list.iter().map(|l| l.target.as_str()), 6);
    let task = width(list.iter().map(|l| l.task.as_str()), 4);
    out.add(&format!(
        "{:>6}  {:<call$}  {:<target$}  {:<task$} {:>16} {:>14}  mostly",
        "number", "call", "on", "by", "at us", "us"
    ));
    for l in list {
        let (at, us) = (micros(l.at_ns), micros(l.total_ns));
        out.add(&format!(
            "{:>6}  {:<call$}  {:<target$}  {:<task$} {at:>16} {us:>14}  {} ({} us)",
            l.number,
            l.call,
            l.target,
            l.task,
            l.most.0,
            micros(l.most.1)
        ));
    }
    out.0
}

/// A list as JSON.
pub fn list_json(list: &[Listed]) -> Value {
    let one = |l: &Listed| {
        let stage = |(name, ns): &(String, u64)| json!({ "stage": name, "ns": ns });
        let stages: Vec<Value> = l.stages.iter().map(stage).collect();
        json!({ "number": l.number, "call": l.call, "target": l.target, "task": l.task,
            "at_ns": l.at_ns, "total_ns": l.total_ns, "most": l.most.0, "most_ns": l.most.1,
            "stages": stages })
    };
    let calls: Vec<Value> = list.iter().map(one).collect();
    json!({ "schema": "writepath.explain-list/1", "calls": calls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_there() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!((at_percent(&values, 50), at_percent(&values, 99)), (100, 198));
        assert_eq!((at_percent(&[7], 99), at_percent(&[], 50)), (7, 0));
    }
}
