//! Known bugs as acceptance tests: generated programs find each bug where it is, and do not find it
//! where it was fixed.

mod atomic;
mod attributes;
mod cause;
mod fast_commit;
mod table;
mod techniques;
mod versions;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use cause::{Cause, cause};
use serde::Serialize;
pub use table::ZONES;
pub(crate) use table::mends;
use wp_base::FsError;
use wp_crash::{Profile, Rule, Totals};
use wp_machine::MachineError;
use wp_machine::spec::file_system;
use wp_workload::program::{Interleavings, Program};

use crate::campaign::{Campaign, Watch, resume};
use crate::findings::{Findings, Found};
use crate::play::{Bench, play};
use crate::programs::Make;
use crate::sequences::{self, Of};
use crate::source::Source;
use crate::space::Space;
use crate::wild::Extras;

/// One side of a bug.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// File system and options, as on the command line.
    fs: &'static str,
    /// Device preset and replaced parameters.
    device: &'static str,
    params: &'static [(&'static str, u64)],
    elevator: &'static str,
    space: Space,
    /// Recovery writes what is to be last only when the rest is durable.
    recovery_in_order: bool,
    /// Another process syncs beside the program, every N µs.
    company_us: u64,
    /// The kernel refuses this mount: no program has to run.
    refused: bool,
}

/// A bug.
#[derive(Debug)]
pub struct Bug {
    /// Its number in the list.
    pub id: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    affected: Side,
    fixed: Side,
    /// The rule that it breaks.
    pub rule: Rule,
    profile: Profile,
    /// What the fixed side is checked against, if that is something else.
    fixed_profile: Option<Profile>,
    programs: Programs,
    /// What the fixed side runs, if that is something else.
    fixed_programs: Option<Programs>,
    second_cuts: u32,
    /// The rule of `list eras` that makes the difference.
    pub rule_name: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Programs {
    /// Every sequence of this number of operations.
    Sequences(u32),
    /// Random ones, at most this number in the affected mode.
    Wild(u64),
    /// Those of a generator, at most this number.
    Made(Make, u64),
    /// This one.
    Text(&'static str),
    /// The interleavings of this one's threads.
    Threads(&'static str),
}

const PLAIN: Side = Side {
    fs: "ext4,era=4.6",
    device: "fixed",
    params: &[],
    elevator: "cfq",
    space: Space::HONEST,
    recovery_in_order: true,
    company_us: 0,
    refused: false,
};
const BUG: Bug = Bug {
    id: "",
    what: "",
    affected: PLAIN,
    fixed: PLAIN,
    rule: Rule::Exposure,
    profile: Profile::EXT4,
    fixed_profile: None,
    programs: Programs::Sequences(1),
    fixed_programs: None,
    second_cuts: 0,
    rule_name: None,
};
/// The program that shows a bug, if it is one of its own.
pub fn text(bug: &Bug) -> Option<&'static str> {
    match bug.programs {
        Programs::Text(text) => Some(text),
        _ => None,
    }
}

/// File system and era of its affected and of its fixed side, if both name one.
pub fn versions_of(bug: &Bug) -> Option<[(&'static str, &'static str); 2]> {
    let of = |side: &Side| {
        let mut parts = side.fs.split(',');
        Some((parts.next()?, parts.find_map(|p| p.strip_prefix("era="))?))
    };
    Some([of(&bug.affected)?, of(&bug.fixed)?])
}

/// All that this build can show.
pub fn all() -> impl Iterator<Item = &'static Bug> {
    let own = table::BUGS.iter().chain(versions::BUGS);
    own.chain(fast_commit::BUGS).chain(techniques::BUGS).chain(atomic::BUGS).chain(attributes::BUGS)
}

/// The bug of a number.
pub fn find(id: &str) -> Option<&'static Bug> {
    all().find(|b| b.id == id)
}

/// What came of a side.
#[derive(Clone, Debug, Serialize)]
pub struct SideResult {
    /// Programs cut.
    pub programs: u64,
    /// States visited.
    pub raw: u64,
    /// States recovered.
    pub distinct: u64,
    /// States in which the rule is broken.
    pub broken: u64,
    /// The first: program, frame, units lost, and what is wrong.
    pub first: Option<String>,
    /// States visited before the first, of those of its chunk of programs.
    pub states_to_find: Option<u64>,
    /// Why the kernel refuses to mount so, if it does.
    pub refused: Option<String>,
}

/// What came of a bug.
#[derive(Clone, Debug, Serialize)]
pub struct BugResult {
    /// Its number.
    pub id: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// The rule that says so.
    pub rule: &'static str,
    /// Where it is.
    pub affected: SideResult,
    /// Where it was fixed.
    pub fixed: SideResult,
}

impl BugResult {
    /// Found where it is, and not where it is not?
    pub fn holds(&self) -> bool {
        self.affected.broken > 0 && self.fixed.broken == 0
    }
}

fn campaign(bug: &Bug, side: &Side, affected: bool) -> Result<Campaign, MachineError> {
    let (fs, options) = file_system(side.fs).map_err(MachineError::Config)?;
    let mut bench = Bench {
        device: side.device.to_owned(),
        elevator: side.elevator.to_owned(),
        company_us: side.company_us,
        ..Bench::of(fs, options)?
    };
    if side.device == ZONES.0 {
        // Its zones say how large it is.
        bench.device_params.clear();
    }
    bench.device_params.retain(|(key, _)| side.params.iter().all(|(other, _)| other != key));
    bench.device_params.extend(side.params.iter().map(|(k, v)| ((*k).to_owned(), *v)));
    let fixed = bug.fixed_programs.filter(|_| !affected);
    let (source, count) = match fixed.unwrap_or(bug.programs) {
        Programs::Sequences(n) => (Source::Sequences(Of::Ace, n), sequences::count(Of::Ace, n)),
        Programs::Wild(n) => (Source::Wild { seed: 1, calls: 40, extras: Extras::DATA }, n),
        Programs::Made(make, n) => (Source::Made { seed: 1, make }, n),
        Programs::Text(text) => {
            let program = Program::parse(text).expect("a program of our own table");
            (Source::Text(program), 1)
        }
        Programs::Threads(text) => {
            let program = Program::parse(text).expect("a program of our own table");
            let all = Interleavings::of(&program, 1000, 1).expect("it has threads");
            let count = all.programs().len() as u64;
            (Source::Threads(Arc::new(all)), count)
        }
    };
    Ok(Campaign {
        space: side.space,
        profile: if affected { bug.profile } else { bug.fixed_profile.unwrap_or(bug.profile) },
        check: bug.rule == Rule::Metadata,
        second_cuts: bug.second_cuts,
        recovery_in_order: side.recovery_in_order,
        stop_at: if affected { vec![bug.rule] } else { Vec::new() },
        ..Campaign::new(bench, source, (0, count))
    })
}

/// The campaign that finds a bug where it is, and the rule that it breaks.
///
/// Errors: a machine that cannot be.
pub fn affected(bug: &Bug) -> Result<(Campaign, Rule), MachineError> {
    Ok((campaign(bug, &bug.affected, true)?, bug.rule))
}

/// The same where it was fixed.
///
/// Errors: a machine that cannot be.
pub fn fixed(bug: &Bug) -> Result<(Campaign, Rule), MachineError> {
    Ok((campaign(bug, &bug.fixed, false)?, bug.rule))
}

/// A side that cannot be mounted. Errors: it can.
fn refusal(c: &Campaign) -> Result<SideResult, MachineError> {
    match play(&c.bench, &c.source.program(0)) {
        Err(MachineError::Fs { during: "mount", error: FsError::Invalid(why) }) => Ok(SideResult {
            programs: 0,
            raw: 0,
            distinct: 0,
            broken: 0,
            first: None,
            states_to_find: None,
            refused: Some(why.to_owned()),
        }),
        Err(e) => Err(e),
        Ok(_) => Err(MachineError::Config("a mount that was to be refused".to_owned())),
    }
}

/// Tries a bug with those of each side's programs that `among` names: in the affected mode until it
/// is found, in the fixed one to the end. `tell` is called after each chunk; `go_on` is called all
/// the time. `None`: it said no.
pub fn show(
    bug: &Bug,
    among: Range<u64>,
    workers: usize,
    tell: &(dyn Fn(&Totals) + Sync),
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<BugResult>, MachineError> {
    let stopped = AtomicBool::new(false);
    let abandon = || {
        let stop = stopped.load(Ordering::Relaxed) || !go_on();
        stopped.fetch_or(stop, Ordering::Relaxed);
        stop
    };
    let step = |f: &Findings, _: &[Found]| {
        tell(&f.totals);
        !abandon()
    };
    let watch = Watch { step: &step, abandon: &abandon, at: &|_| {} };
    let side = |side: &Side, affected| -> Result<SideResult, MachineError> {
        let mut campaign = campaign(bug, side, affected)?;
        let (first, end) = campaign.programs;
        campaign.programs = (first.max(among.start), end.min(among.end));
        if side.refused {
            return refusal(&campaign);
        }
        let f = resume(&campaign, workers, Findings::before(&campaign), &watch);
        if let Some((n, why)) = f.unplayed() {
            return Err(MachineError::Config(format!("{}: program {n}: {why}", bug.id)));
        }
        let first = f.found.iter().find(|x| x.violation.rule == bug.rule);
        Ok(SideResult {
            programs: f.totals.programs,
            raw: f.totals.raw,
            distinct: f.totals.distinct,
            broken: f.totals.broken[bug.rule as usize],
            first: first.map(|x| {
                let v = &x.violation;
                format!("program {}: {}: {}; expected {}", x.program, v.path, v.seen, v.expected)
            }),
            states_to_find: first.map(|x| x.after),
            refused: None,
        })
    };
    let (affected, fixed) = (side(&bug.affected, true)?, side(&bug.fixed, false)?);
    if stopped.load(Ordering::SeqCst) {
        return Ok(None);
    }
    let (id, what, rule) = (bug.id, bug.what, bug.rule.name());
    Ok(Some(BugResult { id, what, rule, affected, fixed }))
}
