//! What two runs did differently, event by event.
//!
//! Events are aligned phase by phase (from mark to mark), by action, letters, number of sectors,
//! class and issuer. Sectors count from the partition's start, so that runs on different partitions
//! compare; a pair that is equal but for the sector is `moved`. Times are shown, and judged only if
//! asked for.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};
use wp_base::event::{BlockAction, Event, Op, Record, rwbs};
use wp_base::{Sector, Time};

use crate::myers::{Edit, align};

/// Differences that the text lists in each phase before it only counts.
const LISTED_MAX: usize = 40;

/// A run to compare.
pub struct Side<'a> {
    /// Its name in the output.
    pub name: &'a str,
    /// Its events.
    pub records: &'a [Record],
    /// Classes of the blocks of block events, by record index; may be empty.
    pub classes: &'a BTreeMap<usize, String>,
    /// First sector of its partition.
    pub start: Sector,
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct What {
    /// Letters of block actions, and `J` for the journal's events.
    pub actions: String,
    /// Do times, counted from the phase's start, matter?
    pub times: bool,
}

impl Default for What {
    fn default() -> What {
        What { actions: "QMFIDCJ".to_owned(), times: false }
    }
}

/// An event as it is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    key: String,
    /// Sectors from the partition's start.
    sector: Option<i64>,
    /// Nanoseconds from the phase's start.
    at: u64,
}

/// How a line differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only in A.
    OnlyA,
    /// Only in B.
    OnlyB,
    /// In both, at another sector.
    Moved,
    /// In both, at another time.
    Retimed,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::OnlyA => "only-a",
            Kind::OnlyB => "only-b",
            Kind::Moved => "moved",
            Kind::Retimed => "retimed",
        }
    }
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// How.
    pub kind: Kind,
    /// The event: action, letters, sectors, class, issuer.
    pub event: String,
    /// Relative sector in A.
    pub a_sector: Option<i64>,
    /// Relative sector in B.
    pub b_sector: Option<i64>,
    /// Nanoseconds since the phase's start in A.
    pub a_ns: Option<u64>,
    /// The same in B.
    pub b_ns: Option<u64>,
}

/// A phase: from a mark to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Text of the mark; `(start)` before the first.
    pub name: String,
    /// Events in A.
    pub a_events: usize,
    /// Events in B.
    pub b_events: usize,
    /// Events of both, sector and all.
    pub same: usize,
    /// Length in A, nanoseconds, to the next mark or the last event.
    pub a_ns: u64,
    /// The same in B.
    pub b_ns: u64,
    /// What differs, in order.
    pub lines: Vec<Line>,
}

impl Phase {
    /// Its name and how many events are the same and differ.
    fn heading(&self) -> String {
        let count = |kind: Kind| self.lines.iter().filter(|l| l.kind == kind).count();
        format!(
            "== {}: {} same, {} only in A, {} only in B, {} moved, {} retimed; {} ns in A, {} ns in B",
            self.name,
            self.same,
            count(Kind::OnlyA),
            count(Kind::OnlyB),
            count(Kind::Moved),
            count(Kind::Retimed),
            self.a_ns,
            self.b_ns
        )
    }
}

/// The comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diff {
    /// Name of A.
    pub a: String,
    /// Name of B.
    pub b: String,
    /// Phases in the order of the marks.
    pub phases: Vec<Phase>,
}

struct Stretch {
    name: String,
    from: Time,
    to: Time,
    entries: Vec<Entry>,
}

/// Compares two runs.
pub fn diff(a: &Side<'_>, b: &Side<'_>, what: &What) -> Diff {
    // Without classes on one side they tell nothing.
    let classes = !a.classes.is_empty() && !b.classes.is_empty();
    let (left, right) = (stretches(a, what, classes), stretches(b, what, classes));
    let names = |s: &[Stretch]| s.iter().map(|x| x.name.clone()).collect::<Vec<_>>();
    let phases = align(&names(&left), &names(&right)).into_iter().map(|e| match e {
        Edit::Both(x, y) => phase(Some(&left[x]), Some(&right[y]), what),
        Edit::Left(x) => phase(Some(&left[x]), None, what),
        Edit::Right(y) => phase(None, Some(&right[y]), what),
    });
    Diff { a: a.name.to_owned(), b: b.name.to_owned(), phases: phases.collect() }
}

fn stretches(side: &Side<'_>, what: &What, classes: bool) -> Vec<Stretch> {
    let first = side.records.first().map_or(Time::ZERO, |r| r.at);
    let new = |name: &str, at| Stretch { name: name.to_owned(), from: at, to: at, entries: vec![] };
    let mut out = vec![new("(start)", first)];
    for (index, r) in side.records.iter().enumerate() {
        let last = out.last_mut().expect("there is always one");
        last.to = r.at;
        if let Event::Mark { text } = &r.event {
            out.push(new(text, r.at));
            continue;
        }
        let class = side.classes.get(&index).filter(|_| classes).map_or("-", String::as_str);
        let Some((key, sector)) = key(r, class, what) else { continue };
        // A trace from outside may name any sector.
        let within = |s: Sector| i128::from(s.0) - i128::from(side.start.0);
        let sector = sector.map(|s| i64::try_from(within(s)).unwrap_or(i64::MAX));
        last.entries.push(Entry { key, sector, at: r.at.since(last.from).0 });
    }
    out
}

fn key(r: &Record, class: &str, what: &What) -> Option<(String, Option<Sector>)> {
    match &r.event {
        Event::Block { action, op, flags, at, sectors, .. } => {
            let letter = action.letter();
            let queue = matches!(action, BlockAction::Plug | BlockAction::Unplug);
            if !what.actions.contains(letter) {
                return None;
            }
            let op = if *sectors == 0 { Op::Write } else { *op };
            let letters = if queue { "N".to_owned() } else { rwbs(op, *flags) };
            let sector = (*sectors > 0 && !queue).then_some(*at);
            Some((format!("{letter} {letters} +{sectors} {class} [{}]", r.task), sector))
        }
        Event::Jbd2 { what: name, .. } if what.actions.contains('J') => {
            Some((format!("J {name} [{}]", r.task), None))
        }
        _ => None,
    }
}

fn phase(a: Option<&Stretch>, b: Option<&Stretch>, what: &What) -> Phase {
    let entries = |s: Option<&Stretch>| s.map_or(Vec::new(), |s| s.entries.clone());
    let (left, right) = (entries(a), entries(b));
    let keys = |e: &[Entry]| e.iter().map(|e| e.key.clone()).collect::<Vec<_>>();
    let mut lines = Vec::new();
    let mut same = 0;
    for edit in align(&keys(&left), &keys(&right)) {
        let (x, y) = match edit {
            Edit::Both(x, y) => (Some(&left[x]), Some(&right[y])),
            Edit::Left(x) => (Some(&left[x]), None),
            Edit::Right(y) => (None, Some(&right[y])),
        };
        let kind = match (x, y) {
            (Some(x), Some(y)) if x.sector != y.sector => Kind::Moved,
            (Some(x), Some(y)) if what.times && x.at != y.at => Kind::Retimed,
            (Some(_), Some(_)) | (None, None) => {
                same += 1;
                continue;
            }
            (Some(_), None) => Kind::OnlyA,
            (None, Some(_)) => Kind::OnlyB,
        };
        lines.push(Line {
            kind,
            event: x.or(y).map_or(String::new(), |e| e.key.clone()),
            a_sector: x.and_then(|e| e.sector),
            b_sector: y.and_then(|e| e.sector),
            a_ns: x.map(|e| e.at),
            b_ns: y.map(|e| e.at),
        });
    }
    let ns = |s: Option<&Stretch>| s.map_or(0, |s| s.to.since(s.from).0);
    Phase {
        name: a.or(b).map_or(String::new(), |s| s.name.clone()),
        a_events: left.len(),
        b_events: right.len(),
        same,
        a_ns: ns(a),
        b_ns: ns(b),
        lines,
    }
}

impl Diff {
    /// Is there any difference?
    pub fn differs(&self) -> bool {
        self.phases.iter().any(|p| !p.lines.is_empty())
    }

    /// How many events of each phase differ, in a line each.
    pub fn counts(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| writeln!(out, "{text}").expect("a string takes it");
        for p in self.phases.iter().filter(|p| !p.lines.is_empty()) {
            line(p.heading());
        }
        line(match self.differs() {
            true => "the runs differ (--events lists the events)".to_owned(),
            false => "no difference".to_owned(),
        });
        out
    }

    /// For people: a heading for each phase, `-` only in A, `+` only in B, `~` in both but changed.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| writeln!(out, "{text}").expect("a string takes it");
        line(format!("A {}\nB {}", self.a, self.b));
        for p in &self.phases {
            line(p.heading());
            for l in p.lines.iter().take(LISTED_MAX) {
                let sector = |s: Option<i64>| s.map_or("-".to_owned(), |s| s.to_string());
                let ns = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
                line(match l.kind {
                    Kind::OnlyA => {
                        format!("- {} at {} ({} ns)", l.event, sector(l.a_sector), ns(l.a_ns))
                    }
                    Kind::OnlyB => {
                        format!("+ {} at {} ({} ns)", l.event, sector(l.b_sector), ns(l.b_ns))
                    }
                    Kind::Moved => {
                        let (a, b) = (sector(l.a_sector), sector(l.b_sector));
                        format!("~ {} at {a} -> {b}", l.event)
                    }
                    Kind::Retimed => {
                        format!("~ {} {} ns -> {} ns", l.event, ns(l.a_ns), ns(l.b_ns))
                    }
                });
            }
            if p.lines.len() > LISTED_MAX {
                line(format!("  and {} more (--json has all)", p.lines.len() - LISTED_MAX));
            }
        }
        line(if self.differs() { "the runs differ" } else { "no difference" }.to_owned());
        out
    }

    /// As a JSON document.
    pub fn json(&self) -> Value {
        let phases: Vec<Value> = self
            .phases
            .iter()
            .map(|p| {
                let lines: Vec<Value> = p
                    .lines
                    .iter()
                    .map(|l| {
                        json!({ "kind": l.kind.name(), "event": l.event, "a_sector": l.a_sector,
                            "b_sector": l.b_sector, "a_ns": l.a_ns, "b_ns": l.b_ns })
                    })
                    .collect();
                json!({ "phase": p.name, "a_events": p.a_events, "b_events": p.b_events,
                    "same": p.same, "a_ns": p.a_ns, "b_ns": p.b_ns, "differences": lines })
            })
            .collect();
        json!({ "schema": "writepath.diff/1", "a": self.a, "b": self.b,
            "differs": self.differs(), "phases": phases })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::event::Flags;

    fn issue(ns: u64, sector: u64, task: &str) -> Record {
        let event = Event::Block {
            action: BlockAction::Issue,
            op: Op::Write,
            flags: Flags::SYNC,
            at: Sector(sector),
            sectors: 8,
            extra: 0,
        };
        Record { at: Time(ns), task: task.into(), event }
    }

    fn mark(ns: u64, text: &str) -> Record {
        Record { at: Time(ns), task: "w".into(), event: Event::Mark { text: text.into() } }
    }

    fn compare(a: &[Record], b: &[Record], b_start: u64, times: bool) -> Diff {
        let none = BTreeMap::new();
        let side = |name, records, start| Side { name, records, classes: &none, start };
        let what = What { times, ..What::default() };
        diff(&side("a", a, Sector(0)), &side("b", b, Sector(b_start)), &what)
    }

    #[test]
    fn a_run_is_its_own_equal_and_so_is_one_on_another_partition() {
        let a = [mark(1, "x"), issue(5, 100, "w"), issue(6, 200, "j")];
        let b = [mark(1, "x"), issue(7, 150, "w"), issue(8, 250, "j")];
        assert!(!compare(&a, &a, 0, true).differs());
        assert!(!compare(&a, &b, 50, false).differs());
        let timed = compare(&a, &b, 50, true);
        assert!(timed.phases[1].lines.iter().all(|l| l.kind == Kind::Retimed));
        assert_eq!(timed.phases[1].lines.len(), 2);
    }

    #[test]
    fn what_is_missing_what_is_new_and_what_moved_is_told_by_phase() {
        let a = [issue(1, 8, "w"), mark(2, "x"), issue(5, 100, "w"), issue(6, 200, "j")];
        let b = [mark(2, "x"), issue(5, 100, "w"), issue(6, 208, "j"), issue(7, 300, "k")];
        let d = compare(&a, &b, 0, false);
        let kinds: Vec<Vec<Kind>> =
            d.phases.iter().map(|p| p.lines.iter().map(|l| l.kind).collect()).collect();
        assert_eq!(kinds, [vec![Kind::OnlyA], vec![Kind::Moved, Kind::OnlyB]]);
        assert!(d.text().contains("~ D WS +8 - [j] at 200 -> 208"), "{}", d.text());
        assert!(d.json().to_string().contains("\"differs\":true"));
    }
}
