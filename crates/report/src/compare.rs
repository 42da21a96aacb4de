//! Two runs beside each other, in words and as tables: how long their syncs take, what they send
//! for them, where their time goes, and what is sent in each phase.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wp_base::event::Event;

use crate::causality::{Causes, Span};
use crate::explain::{Lines, Namer, meaning, micros, path, width};
use crate::run::{Call, Seen};
use crate::walk::Role;

/// Requests and their sectors.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Requests.
    pub requests: u64,
    /// Sectors.
    pub sectors: u64,
}

/// Requests by kind.
type Kinds = BTreeMap<String, Counted>;

/// What one run's calls come to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Measured {
    /// Calls.
    pub calls: u64,
    /// Their time, nanoseconds.
    pub total_ns: u64,
    /// Stages of their paths in the order in which they begin, nanoseconds.
    pub stages: Vec<(String, u64)>,
    /// Of those, nanoseconds in which a request had others ahead of it in the device.
    pub behind: BTreeMap<String, u64>,
    /// What was sent for them.
    pub sent: Kinds,
    /// What was sent in all, phase by phase: the mark that begins it, and the requests.
    pub phases: Vec<(String, Kinds)>,
}

/// Adds requests of a kind.
fn count(kinds: &mut Kinds, kind: String, sectors: u32) {
    let counted = kinds.entry(kind).or_default();
    counted.requests += 1;
    counted.sectors += u64::from(sectors);
}

impl Measured {
    /// Of some calls of a run.
    pub fn new(seen: &Seen<'_>, calls: &[Call]) -> Measured {
        let records = seen.run.records;
        let mut out = Measured { calls: calls.len() as u64, ..Measured::default() };
        for call in calls {
            let ns = records[call.exit].at.since(records[call.enter].at).0;
            out.total_ns = out.total_ns.saturating_add(ns);
            for link in path(seen, *call) {
                let issued = link.request.and_then(|i| seen.walk.requests[i].issued);
                if issued.is_some_and(|m| seen.in_device(m.index) > 0) {
                    *out.behind.entry(link.stage.clone()).or_default() += link.ns;
                }
                match out.stages.iter_mut().find(|(name, _)| *name == link.stage) {
                    Some((_, ns)) => *ns = ns.saturating_add(link.ns),
                    None => out.stages.push((link.stage, link.ns)),
                }
            }
        }
        let spans: Vec<Span<'_>> =
            calls.iter().map(|c| (c.enter, c.exit, &*records[c.enter].task)).collect();
        let causes = Causes::new(records, &seen.pieces, &spans);
        let caused = causes.requests(&seen.walk.requests);
        let names: Vec<Namer<'_>> = calls.iter().map(|c| Namer::new(seen, *c)).collect();
        let mark = |r: &wp_base::event::Record| match &r.event {
            Event::Mark { text } => Some(text.to_string()),
            _ => None,
        };
        let marks: Vec<(usize, String)> =
            records.iter().enumerate().filter_map(|(i, r)| Some((i, mark(r)?))).collect();
        out.phases = std::iter::once("(start)".to_owned())
            .chain(marks.iter().map(|(_, text)| text.clone()))
            .map(|name| (name, Kinds::new()))
            .collect();
        let anybody = names.first();
        for (i, r) in seen.walk.requests.iter().enumerate() {
            let Some(issued) = r.issued.filter(|_| r.sectors > 0 || r.is_flush()) else { continue };
            let role = if r.is_flush() { Role::Flush } else { Role::Own };
            let of: BTreeSet<usize> = caused[i].clone();
            // What is another file's to one call is its own to another.
            if let Some(named) = of.first().map(|n| &names[*n]) {
                count(&mut out.sent, named.kind(r, role), r.sectors);
            }
            if let Some(named) = of.first().map(|n| &names[*n]).or(anybody) {
                let phase = marks.partition_point(|(at, _)| *at < issued.index);
                count(&mut out.phases[phase].1, named.kind(r, role), r.sectors);
            }
        }
        out
    }

    fn mean(&self, ns: u64) -> u64 {
        ns.checked_div(self.calls).unwrap_or(0)
    }

    fn stage(&self, name: &str) -> u64 {
        self.stages.iter().find(|(n, _)| n == name).map_or(0, |(_, ns)| self.mean(*ns))
    }
}

/// Two runs' calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// Name of A.
    pub a: String,
    /// Name of B.
    pub b: String,
    /// Names of the calls.
    pub calls: String,
    /// A's.
    pub left: Measured,
    /// B's.
    pub right: Measured,
}

/// `2` or `1.50`: a mean in hundredths.
fn hundredths(n: u64, of: u64) -> String {
    let all = (n * 100).checked_div(of).unwrap_or(0);
    match all % 100 {
        0 => (all / 100).to_string(),
        rest => format!("{}.{rest:02}", all / 100),
    }
}

/// Names of both maps, in order.
fn names<'a>(a: &'a Kinds, b: &'a Kinds) -> BTreeSet<&'a str> {
    a.keys().chain(b.keys()).map(String::as_str).collect()
}

impl Comparison {
    /// A difference in what is sent for a call, in words; nothing if there is none.
    fn difference(&self, kind: &str) -> Option<String> {
        let of = |m: &Measured| m.sent.get(kind).copied().unwrap_or_default();
        let (a, b) = (of(&self.left), of(&self.right));
        let (na, nb) = (self.left.calls, self.right.calls);
        let (ra, rb) = (hundredths(a.requests, na), hundredths(b.requests, nb));
        let (sa, sb) = (hundredths(a.sectors, na), hundredths(b.sectors, nb));
        let is_flush = a.sectors == 0 && b.sectors == 0;
        let plural = |n: &str| if n == "1" { "request" } else { "requests" };
        if (&ra, &sa) == (&rb, &sb) {
            return None;
        }
        Some(match (a.requests, b.requests) {
            (_, 0) if is_flush => format!("it sends no {kind} ({ra} before)"),
            (0, _) if is_flush => format!("it sends {rb} of {kind}"),
            (_, 0) => format!("it does not write {kind} ({sa} sectors in {ra} {})", plural(&ra)),
            (0, _) => format!("it writes {kind} ({sb} sectors in {rb} {})", plural(&rb)),
            _ if is_flush => format!("{rb} instead of {ra} of {kind}"),
            _ if sa == sb => format!("{kind}: {rb} instead of {ra} requests"),
            _ => format!("{kind}: {sb} instead of {sa} sectors"),
        })
    }

    /// What B does differently, in words.
    pub fn prose(&self) -> String {
        let (a, b) = (&self.left, &self.right);
        if a.calls == 0 || b.calls == 0 {
            return format!(
                "A has {} {} calls and B {}: their times cannot be compared.",
                a.calls, self.calls, b.calls
            );
        }
        let (ta, tb) = (a.mean(a.total_ns), b.mean(b.total_ns));
        let mean = if a.calls.max(b.calls) > 1 { "mean " } else { "" };
        let mut out = match ta.cmp(&tb) {
            std::cmp::Ordering::Equal => {
                format!("B's {mean}{} takes as long as A's: {} us.", self.calls, micros(ta))
            }
            order => {
                let (slow, fast, word) = match order {
                    std::cmp::Ordering::Greater => (ta, tb, "faster"),
                    _ => (tb, ta, "slower"),
                };
                let times = u128::from(slow) * 100 / u128::from(fast.max(1));
                format!(
                    "B's {mean}{} is {}.{:02} times {word} than A's: {} us instead of {} us.",
                    self.calls,
                    times / 100,
                    times % 100,
                    micros(tb),
                    micros(ta)
                )
            }
        };
        let told: Vec<String> =
            names(&a.sent, &b.sent).into_iter().filter_map(|k| self.difference(k)).collect();
        if told.is_empty() {
            out.push_str(" Both send the same requests for it.");
        } else {
            out.push_str(&format!(" B sends different requests for it: {}.", told.join("; ")));
        }
        out.push_str(&self.most());
        out.push_str(&self.moved());
        out
    }

    /// The stage that differs most.
    fn most(&self) -> String {
        let all = self.stage_names();
        let by = |name: &&str| self.left.stage(name).abs_diff(self.right.stage(name));
        let Some(most) = all.iter().copied().max_by_key(by).filter(|name| by(name) > 0) else {
            return String::new();
        };
        let (a, b) = (self.left.stage(most), self.right.stage(most));
        let times = match (a, b) {
            (0, _) => format!("only B has it, {} us", micros(b)),
            (_, 0) => format!("only A has it, {} us", micros(a)),
            _ => format!("{} us in A, {} us in B", micros(a), micros(b)),
        };
        let behind = |name: &str, m: &Measured, all: u64| {
            let ns = m.mean(m.behind.get(most).copied().unwrap_or(0));
            // What is behind others for a moment is not what the stage waits for.
            (ns * 2 > all && all > 0).then(|| {
                format!("{} us of {name} queued behind other requests in the drive", micros(ns))
            })
        };
        let queued: Vec<String> = [behind("A", &self.left, a), behind("B", &self.right, b)]
            .into_iter()
            .flatten()
            .collect();
        let queued =
            if queued.is_empty() { String::new() } else { format!(", {}", queued.join(", ")) };
        format!(" The stage `{most}` ({}) differs most: {times}{queued}.", meaning::of_stage(most))
    }

    /// Kinds of requests that are sent in another phase, as often in all.
    fn moved(&self) -> String {
        let mut out = String::new();
        let total = |m: &Measured, kind: &str| -> u64 {
            m.phases.iter().filter_map(|(_, k)| k.get(kind)).map(|c| c.sectors).sum()
        };
        let data = |kind: &str| kind.starts_with("data") || kind.starts_with("ordered data");
        let sum = |m: &Measured| -> u64 {
            let kinds: BTreeSet<&str> =
                m.phases.iter().flat_map(|(_, k)| k.keys().map(String::as_str)).collect();
            kinds.into_iter().filter(|k| data(k)).map(|k| total(m, k)).sum()
        };
        if sum(&self.left) == sum(&self.right) && sum(&self.left) > 0 {
            let sent = |m: &Measured| -> u64 {
                m.sent.iter().filter(|(k, _)| data(k)).map(|(_, c)| c.sectors).sum()
            };
            let (a, b) = (sent(&self.left), sent(&self.right));
            if a != b {
                let sectors = a.abs_diff(b);
                let when = if a > b { "B writes outside the calls" } else { "A did outside them" };
                out = format!(" In all both write the same data: {sectors} sectors of it {when}.");
            }
        }
        out
    }

    /// Names of stages, A's in its order, then those that only B has.
    fn stage_names(&self) -> Vec<&str> {
        let mut out: Vec<&str> = self.left.stages.iter().map(|(n, _)| n.as_str()).collect();
        for (name, _) in &self.right.stages {
            if !out.contains(&name.as_str()) {
                out.push(name);
            }
        }
        out
    }

    /// The words, then stages, requests of the calls, and requests of each phase that differs.
    pub fn text(&self) -> String {
        let mut out = Lines::default();
        out.add(&format!("A {}", self.a));
        out.add(&format!("B {}", self.b));
        out.add("");
        out.say(&self.prose());
        let stages = self.stage_names();
        if !stages.is_empty() {
            out.add("");
            let wide = width(stages.iter().copied(), 5);
            out.add(&format!(
                "{:<wide$} {:>12} {:>12} {:>13}",
                "stage", "A us", "B us", "B - A us"
            ));
            for name in stages {
                let (a, b) = (self.left.stage(name), self.right.stage(name));
                out.add(&row(name, wide, a, b));
            }
            let (a, b) = (&self.left, &self.right);
            out.add(&row("total", wide, a.mean(a.total_ns), b.mean(b.total_ns)));
        }
        self.kinds(&mut out, "sent for the calls", &self.left.sent, &self.right.sent);
        let none = Kinds::new();
        for (i, (name, a)) in self.left.phases.iter().enumerate() {
            let b = self.right.phases.get(i).filter(|(n, _)| n == name).map_or(&none, |(_, k)| k);
            if a != b {
                self.kinds(&mut out, &format!("sent in phase `{name}`"), a, b);
            }
        }
        out.0
    }

    fn kinds(&self, out: &mut Lines, title: &str, a: &Kinds, b: &Kinds) {
        let all = names(a, b);
        if all.is_empty() {
            return;
        }
        out.add("");
        let wide = width(all.iter().copied(), title.chars().count());
        out.add(&format!(
            "{title:<wide$} {:>10} {:>10} {:>10} {:>10}",
            "A requests", "B requests", "A sectors", "B sectors"
        ));
        for kind in all {
            let of = |k: &Kinds| k.get(kind).copied().unwrap_or_default();
            let (a, b) = (of(a), of(b));
            out.add(&format!(
                "{kind:<wide$} {:>10} {:>10} {:>10} {:>10}",
                a.requests, b.requests, a.sectors, b.sectors
            ));
        }
    }

    /// As a JSON object.
    pub fn json(&self) -> Value {
        let stages = self.stage_names().into_iter();
        let stages: Vec<Value> = stages
            .map(|s| json!({ "stage": s, "a_ns": self.left.stage(s), "b_ns": self.right.stage(s) }))
            .collect();
        let kinds = |a: &Kinds, b: &Kinds| -> Vec<Value> {
            let row = |kind: &str| {
                let of = |k: &Kinds| k.get(kind).copied().unwrap_or_default();
                let (a, b) = (of(a), of(b));
                json!({ "kind": kind, "a_requests": a.requests, "b_requests": b.requests,
                    "a_sectors": a.sectors, "b_sectors": b.sectors })
            };
            names(a, b).into_iter().map(row).collect()
        };
        let (a, b) = (&self.left, &self.right);
        json!({ "calls": self.calls, "a_calls": a.calls, "b_calls": b.calls,
            "a_mean_ns": a.mean(a.total_ns), "b_mean_ns": b.mean(b.total_ns),
            "prose": self.prose(), "stages": stages, "sent": kinds(&a.sent, &b.sent) })
    }
}

fn row(name: &str, wide: usize, a: u64, b: u64) -> String {
    let sign = if b < a { "-" } else { "" };
    let by = format!("{sign}{}", micros(a.abs_diff(b)));
    format!("{name:<wide$} {:>12} {:>12} {by:>13}", micros(a), micros(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ns: u64, sent: &[(&str, u64, u64)]) -> Measured {
        let sent = sent
            .iter()
            .map(|&(k, requests, sectors)| (k.to_owned(), Counted { requests, sectors }));
        let stages = vec![("wait: data".to_owned(), ns)];
        Measured { calls: 1, total_ns: ns, stages, sent: sent.collect(), ..Measured::default() }
    }

    #[test]
    fn what_b_leaves_out_and_does_more_is_told_with_its_size() {
        let c = Comparison {
            a: "old".into(),
            b: "new".into(),
            calls: "fsync".into(),
            left: measured(3000, &[("others' data", 9, 72), ("flush", 2, 0), ("data", 1, 8)]),
            right: measured(2000, &[("flush", 1, 0), ("data", 1, 8), ("node", 1, 8)]),
        };
        let text = c.prose();
        assert!(
            text.starts_with(
                "B's fsync is 1.50 times faster than A's: 2.000 us instead of 3.000 us."
            )
        );
        assert!(
            text.contains("it does not write others' data (72 sectors in 9 requests)"),
            "{text}"
        );
        assert!(text.contains("1 instead of 2 of flush"), "{text}");
        assert!(text.contains("it writes node (8 sectors in 1 request)"), "{text}");
        assert!(!text.contains("write data"), "{text}");
    }
}
