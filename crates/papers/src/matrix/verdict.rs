//! What power failures leave of a combination: a bounded campaign, and which known hole each broken
//! rule comes from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wp_campaign::{Bench, Campaign, Findings, Watch, line, resume};
use wp_crash::{Plan, Profile, Rule};
use wp_machine::MachineError;

use super::holes::{self, Hole};
use super::programs::{Part, parts};
use super::{Combination, Length};

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
pub struct CrashOutcome {
    /// Programs.
    pub programs: u64,
    /// States visited.
    pub states: u64,
    /// Those of them that recovery can tell apart: each was recovered and checked in full.
    pub distinct: u64,
    /// Broken rules, in their order.
    pub broken: Vec<Broken>,
}

impl CrashOutcome {
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
        elevator: c.elevator(),
        company_us: part.company_us,
        ..Bench::of(c.fs, options)?
    };
    let samples = length.pick(8, 48) as u32;
    let complete = length.pick(6, 10) as u32;
    let plain = Campaign::new(bench, part.source.clone(), (0, part.count));
    Ok(Campaign {
        plan: Plan {
            complete,
            samples,
            pairs: length.pick(8, 24) as u32,
            pages: Plan::PAGES,
            most: u64::MAX,
        },
        // No fix removes a guarantee of the combination.
        profile: Profile::mounted(c.fs, &c.options(&[])?),
        check: true,
        ..plain
    })
}

/// Who looks for what.
struct Search<'a> {
    c: &'a Combination,
    holes: &'a [Hole],
    length: Length,
    parts: Vec<Part>,
    go_on: &'a (dyn Fn() -> bool + Sync),
}

/// `None`: stopped from outside.
type Stopped<T> = Result<Option<T>, MachineError>;

impl Search<'_> {
    /// Runs a part.
    fn run(&self, part: &Part, mends: &[&str]) -> Stopped<(Campaign, Findings)> {
        let campaign = campaign(self.c, part, mends, self.length)?;
        let watch =
            Watch { step: &|_, _| (self.go_on)(), abandon: &|| !(self.go_on)(), at: &|_| {} };
        let found = resume(&campaign, 1, Findings::before(&campaign), &watch);
        if found.done < campaign.programs.1 {
            return Ok(None);
        }
        if let Some((n, why)) = found.unplayed() {
            let (name, part) = (self.c.name(), part.name);
            return Err(MachineError::Config(format!("{name}: {part}, program {n}: {why}")));
        }
        Ok(Some((campaign, found)))
    }

    /// Which rules are broken in these parts, with these fixes?
    fn broken(&self, parts: &BTreeSet<usize>, mends: &[&str]) -> Stopped<BTreeSet<Rule>> {
        let mut broken = BTreeSet::new();
        for n in parts {
            let Some((_, found)) = self.run(&self.parts[*n], mends)? else { return Ok(None) };
            let is_broken = |r: &Rule| found.totals.broken[*r as usize] > 0;
            broken.extend(Rule::ALL.into_iter().filter(is_broken));
        }
        Ok(Some(broken))
    }

    /// Holes that each broken rule comes from, by the parts that break it; no hole for a rule that
    /// is still broken with all holes fixed.
    fn why(
        &self,
        broken: &BTreeMap<Rule, BTreeSet<usize>>,
    ) -> Stopped<BTreeMap<Rule, Vec<String>>> {
        let every = holes::mends(self.c, self.holes);
        let every: Vec<&str> = every.iter().map(String::as_str).collect();
        let parts: BTreeSet<usize> = broken.values().flatten().copied().collect();
        let Some(unknown) = self.broken(&parts, &every)? else { return Ok(None) };
        // The first part that breaks a rule is enough to tell who can.
        let first: BTreeSet<usize> = broken.values().filter_map(BTreeSet::first).copied().collect();
        let all = self.holes;
        let mut why: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
        let mends: BTreeSet<&str> = all.iter().map(|h| &*h.mend).collect();
        for mend in mends {
            let others: Vec<&str> = every.iter().copied().filter(|m| *m != mend).collect();
            let alone = match others.is_empty() {
                true => broken.keys().copied().collect(),
                false => match self.broken(&first, &others)? {
                    Some(alone) => alone,
                    None => return Ok(None),
                },
            };
            for rule in alone.into_iter().filter(|r| broken.contains_key(r) && !unknown.contains(r))
            {
                // Holes with the same fix cannot be told apart.
                let of_rule = all.iter().filter(|h| h.mend == mend && h.rules.contains(&rule));
                let ids: Vec<&str> = of_rule.map(|h| h.id).collect();
                if !ids.is_empty() {
                    why.entry(rule).or_default().push(ids.join("/"));
                }
            }
        }
        // None does it alone: some together, which runs tell.
        for (rule, parts) in broken {
            if unknown.contains(rule) || why.contains_key(rule) {
                continue;
            }
            let Some(ids) = self.together(*rule, parts)? else { return Ok(None) };
            why.insert(*rule, ids);
        }
        Ok(Some(why))
    }

    /// A few holes that break a rule together and none of which can be fixed alone, as one: all
    /// others are fixed one after the other, as long as a run still shows the rule broken. An
    /// option that fixes no hole by itself has its own name.
    fn together(&self, rule: Rule, parts: &BTreeSet<usize>) -> Stopped<Vec<String>> {
        let all = self.holes;
        let every = holes::mends(self.c, all);
        let mut every: Vec<&str> = every.iter().map(String::as_str).collect();
        every.sort_by_key(|m| all.iter().any(|h| h.mend == *m));
        let mut mended: Vec<&str> = Vec::new();
        for mend in &every {
            mended.push(mend);
            let Some(broken) = self.broken(parts, &mended)? else { return Ok(None) };
            if !broken.contains(&rule) {
                mended.pop();
            }
        }
        let ids_of = |mend: &str| {
            let ids: Vec<&str> = all.iter().filter(|h| h.mend == mend).map(|h| h.id).collect();
            if ids.is_empty() { mend.to_owned() } else { ids.join("/") }
        };
        let open = every.iter().filter(|m| !mended.contains(m));
        Ok(Some(vec![open.map(|m| ids_of(m)).collect::<Vec<_>>().join("+")]))
    }
}

/// Cuts the power in the programs of a combination. `None`: `go_on` said no.
///
/// Errors: a machine that cannot be; a program that cannot be played.
pub fn cut(
    c: &Combination,
    length: Length,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Stopped<CrashOutcome> {
    cut_knowing(c, &holes::of(c), length, go_on)
}

/// The same, with these holes known and no others. Errors: as [`cut`].
pub fn cut_knowing(
    c: &Combination,
    holes: &[Hole],
    length: Length,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Stopped<CrashOutcome> {
    // Where no flush is sent, nearly every write is unpersisted to the end: a hundred thousand
    // states that say what a thousand do.
    let sends_none = c.has("nobarrier") || c.has("fsync-nobarrier");
    let length = if sends_none && c.drive.is_volatile() { Length::Quick } else { length };
    let search = Search { c, holes, length, parts: parts(c, length)?, go_on };
    let mut out = CrashOutcome::default();
    let mut broken: BTreeMap<Rule, Broken> = BTreeMap::new();
    let mut breaking: BTreeMap<Rule, BTreeSet<usize>> = BTreeMap::new();
    for (n, part) in search.parts.iter().enumerate() {
        let Some((campaign, found)) = search.run(part, &[])? else { return Ok(None) };
        out.programs += found.totals.programs;
        out.states += found.totals.raw;
        out.distinct += found.totals.distinct;
        for rule in Rule::ALL {
            let states = found.totals.broken[rule as usize];
            if states > 0 {
                breaking.entry(rule).or_default().insert(n);
                let first = || Broken::first(part, &campaign, &found, rule);
                broken.entry(rule).or_insert_with(first).states += states;
            }
        }
    }
    if broken.is_empty() {
        return Ok(Some(out));
    }
    let Some(mut why) = search.why(&breaking)? else { return Ok(None) };
    for (rule, broken) in broken {
        let holes = why.remove(&rule).unwrap_or_default();
        out.broken.push(Broken { holes, ..broken });
    }
    Ok(Some(out))
}

impl Broken {
    /// A rule as a part breaks it first, with no state counted.
    fn first(part: &Part, campaign: &Campaign, found: &Findings, rule: Rule) -> Broken {
        let mut out = Broken {
            rule: rule.name().to_owned(),
            states: 0,
            holes: Vec::new(),
            example: String::new(),
            command: String::new(),
        };
        if let Some(f) = found.found.iter().find(|f| f.violation.rule == rule) {
            let v = &f.violation;
            out.example = format!(
                "{}, program {}: {}: {}; expected {}",
                part.name, f.program, v.path, v.seen, v.expected
            );
            let program = line::quoted(&campaign.source.program(f.program));
            out.command = line::state(campaign, &program, (f.frame, &f.lost));
        }
        out
    }
}
