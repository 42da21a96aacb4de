//! Why one call took its time: its critical path, as a table whose shares add up to 100 %, and what
//! goes with it: who waited for whom, and which requests it did not need.

pub(crate) mod meaning;
mod names;
mod say;
mod text;

use wp_base::event::Event;

pub(crate) use names::{Namer, PREPARE, files, plain, shares};
pub(crate) use text::{Lines, micros, percent, signed, width};

use crate::necessity::{Needed, needed};
use crate::run::{Call, Seen};
use crate::waits::{Edge, Group, edges, groups};

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
    /// The request that was waited for, as an index into those of the run.
    pub request: Option<usize>,
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
    /// Its number among the calls of its kind, from 1.
    pub number: usize,
    /// `fsync`, `fdatasync`, ….
    pub call: String,
    /// What it was called on.
    pub target: String,
    /// By whom.
    pub task: String,
    /// When, nanoseconds of virtual time.
    pub at_ns: u64,
    /// How long it took.
    pub total_ns: u64,
    /// In plain words, what it waited for most, and why.
    pub why: String,
    /// The path, in order of time; lengths add up to the total.
    pub links: Vec<Link>,
    /// The same by stage, in the order in which they begin; shares add up to 10000.
    pub stages: Vec<Stage>,
    /// Who waited for whom.
    pub edges: Vec<Edge>,
    /// Shared work that it waited for: transactions, checkpoints, logs.
    pub groups: Vec<Group>,
    /// What was sent for it, or kept it waiting, and whether it needed that.
    pub requests: Vec<Needed>,
}

/// Explains a call. Panics if it is none of the run.
pub fn explain(seen: &Seen<'_>, call: Call) -> Explanation {
    let named = Namer::new(seen, call);
    let (enter, exit) = (&seen.run.records[call.enter], &seen.run.records[call.exit]);
    let links = named.links(&seen.walk.back(call.exit, enter.at), enter.at);
    let name = match enter.event {
        Event::SyscallEnter { name, .. } => name,
        _ => "",
    };
    let mut out = Explanation {
        number: call.number,
        call: name.to_owned(),
        target: seen.target(call.enter).into_owned(),
        task: enter.task.to_string(),
        at_ns: enter.at.0,
        total_ns: exit.at.since(enter.at).0,
        why: String::new(),
        stages: stages(&links),
        links,
        edges: edges(&named, call),
        groups: groups(seen, call),
        requests: Vec::new(),
    };
    out.requests = needed(&named, call, &out.links);
    out.why = say::why(&named, &out);
    out
}

/// The path alone, in a cheaper way: total, stages, and links.
pub(crate) fn path(seen: &Seen<'_>, call: Call) -> Vec<Link> {
    let at = seen.run.records[call.enter].at;
    Namer::new(seen, call).links(&seen.walk.back(call.exit, at), at)
}

pub(crate) fn stages(links: &[Link]) -> Vec<Stage> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::run::{Run, SYNCS};
    use wp_base::stage::UNKNOWN;

    #[test]
    fn shares_of_any_parts_add_up_to_the_whole() {
        for parts in [vec![1, 1, 1], vec![7], vec![0, 3, 5, 1_000_000_007], vec![u64::MAX, 1, 2]] {
            assert_eq!(shares(&parts).iter().sum::<u64>(), 10_000, "{parts:?}");
        }
        assert_eq!(shares(&[0, 0]), [0, 0]);
    }

    #[test]
    fn a_missing_call_is_counted() {
        let classes = BTreeMap::new();
        let run = Run {
            records: &[],
            classes: &classes,
            stages: &UNKNOWN,
            survives: false,
            zone_sectors: None,
        };
        let e = Seen::new(run).call(SYNCS, 1).expect_err("none");
        assert_eq!(e.to_string(), "no fsync or fdatasync call number 1: the run has 0");
    }
}
