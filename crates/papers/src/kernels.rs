//! Compares our eras with recorded runs of the real kernels: same program, same disk layout, same
//! classes.
//!
//! The differences that we know and can explain are listed in `papers/ext4-fsync/differences.toml`;
//! one that is not listed, or is listed and gone, is a finding.

use serde::{Deserialize, Serialize};
use wp_machine::MachineError;
use wp_parity::reference::{
    Difference, Finding, KernelRun, ListedDifference, RunSummary, WriteCase, check_differences,
    compare, kernel_runs, parse_differences,
};

use super::ext4_fsync::{RunPlan, run};

/// Microseconds after a tick (HZ = 250) at which our writes may begin. It is not known where in a
/// tick the recorded program began, and this decides whether the flusher writes what was dirtied a
/// tick apart in one wake-up or in two. A run is compared with all of these, in order, until one
/// has no difference, else with the first of those with the fewest.
pub const PHASES_US: [u64; 4] = [500, 1500, 2500, 3500];

/// The list of known differences.
pub const DIFFERENCES_TOML: &str = include_str!("../../../papers/ext4-fsync/differences.toml");

/// One run beside the kernel's.
pub struct Pair {
    /// The recorded run.
    pub kernel: KernelRun,
    /// Ours.
    pub ours: RunSummary,
    /// The one of [`PHASES_US`] at which ours began.
    pub phase_us: u64,
    /// How they differ.
    pub differences: Vec<Difference>,
}

/// What the comparison found.
pub struct Comparison {
    /// Every run, in the order of the recordings.
    pub pairs: Vec<Pair>,
    /// Differences that are known.
    pub listed: Vec<ListedDifference>,
    /// Where list and runs disagree; empty if all is as it should be.
    pub findings: Vec<Finding>,
}

/// A line of the overview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Run.
    pub run: String,
    /// Differences, all of them listed if the comparison has no findings.
    pub differences: usize,
}

/// The comparison as results hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealKernels {
    /// The overview: a line a run.
    pub runs: Vec<Line>,
    /// Differences that are known.
    pub listed_differences: Vec<ListedDifference>,
    /// Where list and runs disagree, in words.
    pub findings: Vec<String>,
}

impl Comparison {
    /// As results hold it.
    pub fn results(&self) -> RealKernels {
        let line =
            |p: &Pair| Line { run: p.kernel.spec.name.clone(), differences: p.differences.len() };
        RealKernels {
            runs: self.pairs.iter().map(line).collect(),
            listed_differences: self.listed.clone(),
            findings: self.findings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Later kernels that were recorded with the paper's program.
const LATER: [&str; 1] = ["5.10"];

/// Can this build do the run at all?
fn is_ours(k: &KernelRun) -> bool {
    let s = &k.spec;
    let known = super::ext4_fsync::ERAS.iter().chain(&LATER).any(|era| *era == s.kernel);
    known && s.files <= 100
}

/// The recorded elevator, or the nearest that is built.
fn elevator(name: &str) -> String {
    let built = wp_block::ELEVATORS.iter().any(|e| e.name == name);
    if built { name.to_owned() } else { name.trim_start_matches("mq-").to_owned() }
}

/// The run's plan: the references' disk has a volatile cache and no FUA.
fn plan(k: &KernelRun, seed: u64) -> RunPlan {
    let s = &k.spec;
    let case = match s.case {
        WriteCase::Alloc => "alloc",
        WriteCase::Extend => "extend",
        WriteCase::Over => "over",
    };
    RunPlan {
        elevator: elevator(&s.elevator),
        device: "sata-disk-nofua".to_owned(),
        nodelalloc: s.nodelalloc,
        dioread_lock: s.dioread_lock,
        // All were made with the features of the paper's time.
        features: Some("2012"),
        watch: s.window_ns() as u64 / 1_000_000_000 + 2,
        ..RunPlan::paper(&s.kernel, case, s.files, seed)
    }
}

/// Ours at the phase that fits best.
fn best_phase(kernel: KernelRun, seed: u64) -> Result<Pair, MachineError> {
    let mut best: Option<(u64, RunSummary, Vec<Difference>)> = None;
    for phase in PHASES_US {
        let ours = run(&RunPlan { phase, ..plan(&kernel, seed) })?.summary;
        let found = compare(&kernel.spec.name, &ours, &kernel.summary);
        if best.as_ref().is_none_or(|(_, _, least)| found.len() < least.len()) {
            best = Some((phase, ours, found));
        }
        if best.as_ref().is_some_and(|(_, _, least)| least.is_empty()) {
            break;
        }
    }
    let (phase_us, ours, differences) = best.expect("there are phases");
    Ok(Pair { kernel, ours, phase_us, differences })
}

/// Runs every recorded run that this build can do, and compares.
pub fn compare_all(
    seed: u64,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<Comparison>, MachineError> {
    let kernels: Vec<KernelRun> = kernel_runs().into_iter().filter(is_ours).collect();
    let config = |e: &dyn std::fmt::Display| MachineError::Config(e.to_string());
    let listed = parse_differences(DIFFERENCES_TOML).map_err(|e| config(&e))?;
    let all = kernels.len();
    let mut pairs = Vec::new();
    for (i, kernel) in kernels.into_iter().enumerate() {
        if !progress(i, all, &kernel.spec.name) {
            return Ok(None);
        }
        pairs.push(best_phase(kernel, seed)?);
    }
    let found: Vec<Difference> = pairs.iter().flat_map(|p| p.differences.clone()).collect();
    let ran: Vec<&str> = pairs.iter().map(|p| p.kernel.spec.name.as_str()).collect();
    let findings = check_differences(&listed, &found, &ran);
    Ok(Some(Comparison { pairs, listed, findings }))
}
