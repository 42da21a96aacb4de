//! Ours against the recorded kernel, and the list of the differences that are known.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use wp_machine::MachineError;
use wp_workload::program::Program;

use super::config::{CONFIGS, Config};
use super::listed::{Finding, Listed, check, parse_differences};
use super::run::{RunError, Setup, Timed, run};
use super::{cases, recorded, timeline};

/// The known differences.
pub const DIFFERENCES_TOML: &str = include_str!("../../../../kernels/linux-6.12/differences.toml");

/// Most files of the recorded cases.
const FILES: u32 = 10;

/// One call, or one moment of the timeline, on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Configuration.
    pub config: String,
    /// Case, call and index; or the moment.
    pub place: String,
    /// Ours.
    pub ours: String,
    /// The kernel's.
    pub theirs: String,
}

impl Row {
    /// Are they the same?
    pub fn is_equal(&self) -> bool {
        self.ours == self.theirs
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { config, place, ours, theirs } = self;
        write!(f, "{config}: {place}: Writepath {ours}, Linux {theirs}")
    }
}

/// A configuration, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Its name.
    pub config: String,
    /// Calls.
    pub calls: Vec<Row>,
    /// Moments of the timeline.
    pub moments: Vec<Row>,
    /// Cases that this build cannot run, with the reason.
    pub not_modelled: Vec<(String, String)>,
}

/// Everything, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// By configuration.
    pub configs: Vec<Compared>,
    /// What is not as listed.
    pub findings: Vec<Finding>,
    /// Lines of `differences.toml`.
    pub listed: usize,
}

/// Runs every recorded case of the configurations whose name begins with `only`, and compares.
///
/// Errors: a machine that stops, or kept tables of another form.
pub fn compare_recorded(only: &str) -> Result<Report, MachineError> {
    let mut configs = Vec::new();
    let chosen: Vec<&Config> =
        CONFIGS.iter().filter(|c| c.recorded && (only.is_empty() || c.name == only)).collect();
    for config in &chosen {
        configs.push(compare_config(config)?);
    }
    let listed = parse_differences(DIFFERENCES_TOML).map_err(MachineError::Config)?;
    let names: Vec<&str> = chosen.iter().map(|c| c.name).collect();
    let findings = findings(&configs, &listed, &names);
    let listed = listed.iter().map(|l| l.lines.len()).sum();
    Ok(Report { configs, findings, listed })
}

fn findings(configs: &[Compared], listed: &[Listed], chosen: &[&str]) -> Vec<Finding> {
    let found: BTreeSet<String> = configs
        .iter()
        .flat_map(|c| c.calls.iter().chain(&c.moments))
        .filter(|r| !r.is_equal())
        .map(Row::to_string)
        .collect();
    let is_ours = |line: &str| line.split(':').next().is_some_and(|c| chosen.contains(&c));
    check(&found, listed, is_ours)
}

fn compare_config(config: &Config) -> Result<Compared, MachineError> {
    let theirs = recorded::calls(config.name).map_err(MachineError::Config)?;
    let mut out = Compared {
        config: config.name.to_owned(),
        calls: Vec::new(),
        moments: Vec::new(),
        not_modelled: Vec::new(),
    };
    for group in cases::all(FILES) {
        let Some(first) = theirs.iter().find(|t| t.case == group.name) else { continue };
        let mut start = first.start_ns;
        let is_idle = group.name == "idle";
        if is_idle && config.fs != "ext4" {
            // Who wrote what when is kept of ext4 only.
            continue;
        }
        let idle = if is_idle {
            recorded::idle(config.name).map_err(MachineError::Config)?
        } else {
            (start, Vec::new())
        };
        start = idle.0;
        let setup = Setup {
            latency_ns: recorded::LATENCY_NS,
            mount_ns: recorded::mount_before(start),
            settle_s: 10,
        };
        let ours = match run(config, &group.program, &setup) {
            Ok(o) => o,
            Err(RunError::NotModelled(why)) => {
                out.not_modelled.push((group.name.clone(), why));
                continue;
            }
            Err(RunError::Machine(e)) => return Err(e),
        };
        out.calls.extend(calls(config.name, &group.program, &ours.timed, &theirs));
        if is_idle {
            let begin = ours.timed.first().map_or(0, |t| t.start_ns);
            let our =
                timeline::requests(&ours.records, &ours.view).map_err(MachineError::Config)?;
            let our = timeline::by_moment(begin, &our);
            let their = timeline::by_moment(idle.0, &idle.1);
            let all: BTreeSet<&timeline::Moment> = our.keys().chain(their.keys()).collect();
            for m in all {
                let text = |a: Option<&timeline::Amount>| {
                    a.map_or("nothing".to_owned(), ToString::to_string)
                };
                out.moments.push(Row {
                    config: config.name.to_owned(),
                    place: format!("idle {m}"),
                    ours: text(our.get(m)),
                    theirs: text(their.get(m)),
                });
            }
        }
    }
    Ok(out)
}

/// Rows of the calls that both sides have; one that only one has is `-` on the other.
fn calls(config: &str, program: &Program, ours: &[Timed], theirs: &[Timed]) -> Vec<Row> {
    let cases: BTreeSet<&str> = program
        .0
        .iter()
        .filter_map(|s| match s {
            super::Step::Case(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let key = |t: &Timed| (t.case.clone(), t.op.clone(), t.index);
    let text = |t: Option<&Timed>| {
        t.map_or("-".to_owned(), |t| {
            if t.ok { t.waits(recorded::LATENCY_NS).to_string() } else { "failed".to_owned() }
        })
    };
    let mut rows = Vec::new();
    for t in theirs.iter().filter(|t| cases.contains(t.case.as_str())) {
        let our = ours.iter().find(|o| key(o) == key(t));
        rows.push(Row {
            config: config.to_owned(),
            place: format!("{} {} {}", t.case, t.op, t.index),
            ours: text(our),
            theirs: text(Some(t)),
        });
    }
    for o in ours.iter().filter(|o| !theirs.iter().any(|t| key(t) == key(o))) {
        rows.push(Row {
            config: config.to_owned(),
            place: format!("{} {} {}", o.case, o.op, o.index),
            ours: text(Some(o)),
            theirs: "-".to_owned(),
        });
    }
    rows
}
