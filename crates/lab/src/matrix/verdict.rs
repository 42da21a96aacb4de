//! What power cuts leave of a combination: a bounded campaign, and which known hole each broken
//! rule comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use wp_crash::{Plan, Profile, Rule};

use super::holes::{self, Hole};
use super::programs::{Part, parts};
use super::{Combination, Length};
use crate::crash::{Bench, Campaign, Findings, line, run};
use crate::machine::MachineError;

/// A rule that is broken.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Broken {
    /// Its name.
    pub rule: String,
    /// In how many states.
    pub states: u64,
    /// Known holes that it comes from, each by itself; of several that only show together, all.
    /// Empty: none, or not all of it.
    pub holes: Vec<String>,
    /// The first failure, in words.
    pub example: String,
    /// What shows that state.
    pub command: String,
}

/// What came of the cuts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Programs.
    pub programs: u64,
    /// States visited.
    pub states: u64,
    /// Those of them that recovery can tell apart: each was recovered and checked in full.
    pub distinct: u64,
    /// Broken rules, in their order.
    pub broken: Vec<Broken>,
}

impl Verdict {
    /// Is a rule broken, and no known hole is why?
    pub fn is_unknown(&self) -> bool {
        self.broken.iter().any(|b| b.holes.is_empty())
    }

    /// In one line, without numbers that a longer campaign changes.
    pub fn outcome(&self) -> String {
        if self.broken.is_empty() {
            return "clean".to_owned();
        }
        let of = |b: &Broken| match b.holes.is_empty() {
            true => format!("{}: unknown", b.rule),
            false => format!("{}: {}", b.rule, b.holes.join(" ")),
        };
        self.broken.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

/// The campaign of a part. Errors: a machine that cannot be.
fn campaign(
    c: &Combination,
    part: &Part,
    mends: &[&str],
    length: Length,
) -> Result<Campaign, MachineError> {
    // Little memory, so that the flusher is at work.
    const FLUSHER: &str = "dirty_background_bytes=262144";
    let options = c.options(&[&[FLUSHER, part.options][..], mends].concat())?;
    let (device, device_params) = c.drive.for_cuts();
    let bench = Bench {
        device: device.to_owned(),
        device_params,
        elevator: c.elevator().to_owned(),
        company_us: part.company_us,
        ..Bench::of(c.fs, options)?
    };
    let samples = length.pick(8, 48) as u32;
    let complete = length.pick(6, 10) as u32;
    let plain = Campaign::new(bench, part.source.clone(), (0, part.count));
    Ok(Campaign {
        plan: Plan { complete, samples, pairs: length.pick(8, 24) as u32 },
        // What a mend takes away is nothing that the combination promises.
        profile: Profile::mounted(c.fs, &c.options(&[])?),
        check: true,
        ..plain
    })
}

/// Who looks for what.
struct Search<'a> {
    c: &'a Combination,
    length: Length,
    parts: Vec<Part>,
    go_on: &'a (dyn Fn() -> bool + Sync),
}

/// `None`: stopped from outside.
type Stopped<T> = Result<Option<T>, MachineError>;

impl Search<'_> {
    /// Runs a part; with `stop_at` no further than to the first failure of the rule.
    fn run(
        &self,
        part: &Part,
        mends: &[&str],
        stop_at: Option<Rule>,
    ) -> Stopped<(Campaign, Findings)> {
        let stop_at = stop_at.into_iter().collect();
        let campaign = Campaign { stop_at, ..campaign(self.c, part, mends, self.length)? };
        let stopped = AtomicBool::new(false);
        let found = run(&campaign, 1, &|_| {
            let go = (self.go_on)();
            stopped.fetch_or(!go, Ordering::SeqCst);
            go
        });
        if stopped.load(Ordering::SeqCst) {
            return Ok(None);
        }
        if let Some((n, why)) = found.not_played.first() {
            let (name, part) = (self.c.name(), part.name);
            return Err(MachineError::Config(format!("{name}: {part}, program {n}: {why}")));
        }
        Ok(Some((campaign, found)))
    }

    /// Is the rule broken in one of these parts, with these mends?
    fn breaks(&self, rule: Rule, parts: &BTreeSet<usize>, mends: &[&str]) -> Stopped<bool> {
        for n in parts {
            let Some((_, found)) = self.run(&self.parts[*n], mends, Some(rule))? else {
                return Ok(None);
            };
            if found.totals.broken[rule as usize] > 0 {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// Holes that a broken rule comes from; none if it is broken with all of them mended.
    fn why(&self, rule: Rule, parts: &BTreeSet<usize>) -> Stopped<Vec<String>> {
        let all = holes::of(self.c);
        let candidates: Vec<&&Hole> = all.iter().filter(|h| h.rules.contains(&rule)).collect();
        let every = holes::mends(self.c);
        match self.breaks(rule, parts, &every)? {
            None => return Ok(None),
            Some(true) => return Ok(Some(Vec::new())),
            Some(false) => {}
        }
        let mut found = Vec::new();
        // Holes with one mend are told apart no further.
        let mut by_mend: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
        for hole in &candidates {
            by_mend.entry(hole.mend).or_default().push(hole.id);
        }
        for (mend, ids) in &by_mend {
            let others: Vec<&str> = every.iter().copied().filter(|m| m != mend).collect();
            match self.breaks(rule, parts, &others)? {
                None => return Ok(None),
                Some(true) => found.push(ids.join("/")),
                Some(false) => {}
            }
        }
        if found.is_empty() {
            // Only together.
            let ids: Vec<&str> = candidates.iter().map(|h| h.id).collect();
            found.push(ids.join("+"));
        }
        Ok(Some(found))
    }
}

/// Cuts the power in the programs of a combination. `None`: `go_on` said no.
///
/// Errors: a machine that cannot be; a program that cannot be played.
pub fn cut(c: &Combination, length: Length, go_on: &(dyn Fn() -> bool + Sync)) -> Stopped<Verdict> {
    let search = Search { c, length, parts: parts(c, length)?, go_on };
    let mut out = Verdict::default();
    let mut broken: BTreeMap<Rule, (u64, BTreeSet<usize>, String, String)> = BTreeMap::new();
    for (n, part) in search.parts.iter().enumerate() {
        let Some((campaign, found)) = search.run(part, &[], None)? else { return Ok(None) };
        out.programs += found.totals.programs;
        out.states += found.totals.raw;
        out.distinct += found.totals.distinct;
        for rule in Rule::ALL {
            let states = found.totals.broken[rule as usize];
            if states == 0 {
                continue;
            }
            let entry = broken.entry(rule).or_default();
            entry.0 += states;
            entry.1.insert(n);
            let first = found.found.iter().find(|f| f.violation.rule == rule);
            if let Some(f) = first.filter(|_| entry.2.is_empty()) {
                let v = &f.violation;
                entry.2 = format!(
                    "{}, program {}: {}: {}; expected {}",
                    part.name, f.program, v.path, v.seen, v.expected
                );
                let program = line::quoted(&campaign.source.program(f.program));
                entry.3 = line::state(&campaign, &program, (f.frame, &f.lost));
            }
        }
    }
    for (rule, (states, parts, example, command)) in broken {
        let Some(holes) = search.why(rule, &parts)? else { return Ok(None) };
        out.broken.push(Broken { rule: rule.name().to_owned(), states, holes, example, command });
    }
    Ok(Some(out))
}
