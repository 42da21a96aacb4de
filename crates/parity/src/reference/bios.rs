//! What a run queued: phase by phase, how many blocks of each class and how many bios with which
//! flags, in which order, in which seconds. For recorded runs of today's kernels, which list bios
//! rather than dispatched requests.
//!
//! Source: `classify.py` of the reference data, whose terms these are.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::compare::{Difference, What};
use super::summary::Phase;

/// From how many files on the number of journal blocks may differ a little: descriptors.
const MANY_FILES: u32 = 1000;
/// By how much.
const JOURNAL_SLACK: u32 = 2;
/// Writes of one class closer together than this many seconds are one moment.
const MOMENT_GAP_S: i64 = 3;

/// One phase of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseBios {
    /// Blocks written, by class.
    pub blocks: BTreeMap<String, u32>,
    /// Bios, by flags (`WS`, `FWFSM`; an empty flush is `FWS`).
    pub bios: BTreeMap<String, u32>,
}

/// One part of a run: files made and written, or written over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseBios {
    /// What was queued in each phase.
    pub phases: BTreeMap<Phase, PhaseBios>,
    /// Before and during fsync: `WS data 1`, `WSM journal 14`, … in the order of queueing.
    pub order: Vec<String>,
    /// After it: by class, (second, blocks).
    pub seconds: BTreeMap<String, Vec<(i64, u32)>>,
}

/// One bio that writes or flushes.
#[derive(Clone, Debug)]
pub struct QueuedBio {
    /// When, in nanoseconds since fsync returned; negative before.
    pub ns: i64,
    /// Phase.
    pub phase: Phase,
    /// Flags.
    pub rwbs: String,
    /// Class of each of its blocks; empty for a flush.
    pub classes: Vec<String>,
}

impl CaseBios {
    /// Adds up the bios of a run, in their order.
    pub fn of(bios: &[QueuedBio]) -> CaseBios {
        let mut case = CaseBios::default();
        let mut order: Vec<(String, u32)> = Vec::new();
        for bio in bios {
            let phase = case.phases.entry(bio.phase).or_default();
            *phase.bios.entry(bio.rwbs.clone()).or_default() += 1;
            for class in &bio.classes {
                *phase.blocks.entry(class.clone()).or_default() += 1;
                if bio.phase == Phase::After {
                    let second = bio.ns / 1_000_000_000;
                    let seconds = case.seconds.entry(class.clone()).or_default();
                    match seconds.last_mut() {
                        Some((s, n)) if *s == second => *n += 1,
                        _ => seconds.push((second, 1)),
                    }
                }
            }
            if matches!(bio.phase, Phase::Write | Phase::Fsync) {
                let class = bio.classes.first().map_or("flush", String::as_str);
                let step = format!("{} {class}", bio.rwbs);
                let blocks = bio.classes.len().max(1) as u32;
                match order.last_mut() {
                    Some((s, n)) if *s == step => *n += blocks,
                    _ => order.push((step, blocks)),
                }
            }
        }
        case.order = order.into_iter().map(|(step, n)| format!("{step} {n}")).collect();
        case
    }
}

/// Every difference between our part of a run and the kernel's.
pub fn compare_bios(run: &str, files: u32, ours: &CaseBios, theirs: &CaseBios) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |phase: Phase, class: &str, what: What, ours: String, theirs: String| {
        let (run, class) = (run.to_owned(), class.to_owned());
        found.push(Difference { run, phase, class, what, ours, theirs });
    };
    let none = PhaseBios::default();
    for phase in [Phase::Write, Phase::Fsync, Phase::After, Phase::Sync] {
        let (our, their) =
            (ours.phases.get(&phase).unwrap_or(&none), theirs.phases.get(&phase).unwrap_or(&none));
        let classes: BTreeSet<&String> = our.blocks.keys().chain(their.blocks.keys()).collect();
        let mut exact = true;
        for class in classes {
            let count = |p: &PhaseBios| p.blocks.get(class).copied().unwrap_or(0);
            let (o, t) = (count(our), count(their));
            exact &= o == t;
            let slack = class == "journal" && files >= MANY_FILES && t > 0;
            if o.abs_diff(t) > if slack { JOURNAL_SLACK } else { 0 } {
                add(phase, class, What::Blocks, o.to_string(), t.to_string());
            } else if phase == Phase::After && (o, t) != (0, 0) {
                let moments = |c: &CaseBios| moments(c.seconds.get(class).map_or(&[], |s| s));
                let (o, t) = (moments(ours), moments(theirs));
                if !same_moments(&o, &t) {
                    add(phase, class, What::Seconds, text(&o), text(&t));
                }
            }
        }
        let bios = |p: &PhaseBios| {
            let part = |(k, n): (&String, &u32)| if exact { format!("{k} {n}") } else { k.clone() };
            p.bios.iter().map(part).collect::<Vec<_>>().join(", ")
        };
        if bios(our) != bios(their) {
            add(phase, "all", What::Flags, bios(our), bios(their));
        }
        if phase == Phase::Fsync {
            let steps = |c: &CaseBios| {
                let step = |s: &String| match s.rsplit_once(' ') {
                    Some((s, _)) if !exact => s.to_owned(),
                    _ => s.clone(),
                };
                c.order.iter().map(step).collect::<Vec<_>>().join(", ")
            };
            if steps(ours) != steps(theirs) {
                add(phase, "all", What::Order, steps(ours), steps(theirs));
            }
        }
    }
    found
}

/// Seconds that follow each other closely, as one: (first second, blocks).
fn moments(seconds: &[(i64, u32)]) -> Vec<(i64, u32)> {
    let mut out: Vec<(i64, i64, u32)> = Vec::new();
    for (s, n) in seconds {
        match out.last_mut() {
            Some((_, last, blocks)) if *s - *last < MOMENT_GAP_S => {
                *last = *s;
                *blocks += n;
            }
            _ => out.push((*s, *s, *n)),
        }
    }
    out.into_iter().map(|(first, _, n)| (first, n)).collect()
}

fn same_moments(ours: &[(i64, u32)], theirs: &[(i64, u32)]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|((a, _), (b, _))| (a - b).abs() <= 1)
}

fn text(moments: &[(i64, u32)]) -> String {
    moments.iter().map(|(s, n)| format!("{n} at {s}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bio(ns: i64, phase: Phase, rwbs: &str, classes: &[&str]) -> QueuedBio {
        let classes = classes.iter().map(|c| (*c).to_owned()).collect();
        QueuedBio { ns, phase, rwbs: rwbs.to_owned(), classes }
    }

    #[test]
    fn what_differs_is_named_once() {
        let kernel = CaseBios::of(&[
            bio(-9, Phase::Fsync, "WS", &["data"]),
            bio(-8, Phase::Fsync, "WSM", &["journal"]),
            bio(-7, Phase::Fsync, "WSM", &["journal"]),
            bio(30_000_000_001, Phase::After, "WM", &["super"]),
        ]);
        assert_eq!(kernel.order, ["WS data 1", "WSM journal 2"]);
        assert!(compare_bios("r", 1, &kernel, &kernel).is_empty());
        let ours = CaseBios::of(&[
            bio(-9, Phase::Fsync, "WS", &["data"]),
            bio(-8, Phase::Fsync, "WSM", &["journal"]),
            bio(35_000_000_001, Phase::After, "WM", &["super"]),
        ]);
        let found = compare_bios("r", 1, &ours, &kernel);
        let kinds: Vec<_> = found.iter().map(|d| (d.phase, d.what)).collect();
        assert_eq!(kinds, [(Phase::Fsync, What::Blocks), (Phase::After, What::Seconds)]);
        // Of many files the journal's descriptors may be a few more or fewer.
        let found = compare_bios("r", 1000, &ours, &kernel);
        assert_eq!(found.iter().map(|d| d.what).collect::<Vec<_>>(), [What::Seconds]);
    }
}
