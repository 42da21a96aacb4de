//! The published BarrierFS kernel beside ours: its counters of a varmail run, and ours of the same
//! workload on a machine like the one that it ran on.
//!
//! Inputs, none of them BarrierFS's. Two CPUs and a drive whose costs bring the *stock* kernel of
//! the same tree, `stock.t4.s7.fsync.del` and `.nodel`, near what it reached in that emulator:
//! operations a second, fsyncs a commit, half of its fsyncs' time, and conflicts an operation on
//! the group descriptors and on the inode table. (Not the time of a commit that it prints: the mean
//! of the last few, 1662 and 744 us in these two.) An emulator does not slow everything down alike:
//! what works on pages and speaks to the device is dearer than the rest. That matters: between an
//! append and the allocation that writes it back there is little but system calls, and blocks of
//! the inode table are conflicts when a commit begins there; all others are when one is under way.
//! With everything seven times as dear as on the profile's CPU the same operations a second came
//! out, and twice as many conflicts on the inode table. Files are taken at random: the stock
//! kernel's handles find 2.6 to 2.9 blocks of the inode table a loop that no transaction has, as
//! many as a loop takes files, and rotors would take neighbours. The disk is virtio's, which does
//! not tell what it has dispatched ([`wp_block::Habits::tells_dispatch`]): BarrierFS waits for
//! completion there.
//!
//! What is judged is none of them: how many calls; of BarrierFS, how many of them conflicts and of
//! what type, how many fsyncs go into a commit, and how many commits were delayed.

use std::collections::BTreeMap;

use serde::Serialize;
use wp_base::Span;
use wp_machine::MachineError;
use wp_rt::{CostProfile, CpuModel, CpuOp};
use wp_workload::filebench::RunLength;

use super::run::{Load, Outcome, Plan, System, TYPES, profile, run};

/// How much dearer the reference's CPUs were than the profile's.
pub const SLOWER: u64 = 2;
/// What else was dearer there, nanoseconds each.
pub const DEARER: [(CpuOp, u64); 3] = [
    (CpuOp::PageWriteback, 240_000),
    (CpuOp::RequestDispatch, 75_000),
    (CpuOp::Completion, 150_000),
];
/// What a command took there. Recorded are 0.2 to 0.5 ms from dispatch to completion, with tracing.
pub const LATENCY_NS: u64 = 260_000;

/// Counters of a run, as the reference kernel printed them.
#[derive(Clone, Debug, Serialize)]
pub struct Reference {
    /// Flowops.
    pub operations: u64,
    /// Loops.
    pub loops: u64,
    /// fsyncs.
    pub fsyncs: u64,
    /// Threads.
    pub threads: u32,
    /// Rows of counters by type of block, in the order of [`TYPES`].
    pub by_type: BTreeMap<String, [u64; 6]>,
    /// Rows of one number.
    pub single: BTreeMap<String, u64>,
}

/// Reads `varmail/*.tsv`. Errors: the line that is not understood.
pub fn parse(text: &str) -> Result<Reference, String> {
    let mut out = Reference {
        operations: 0,
        loops: 0,
        fsyncs: 0,
        threads: 0,
        by_type: BTreeMap::new(),
        single: BTreeMap::new(),
    };
    let number = |text: &str, line: &str| {
        text.parse::<u64>().map_err(|_| format!("`{text}` in `{line}` is not a number"))
    };
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["varmail", ..] => {
                for word in &words {
                    match word.split_once('=') {
                        Some(("ops", n)) => out.operations = number(n, line)?,
                        Some(("loops", n)) => out.loops = number(n, line)?,
                        Some(("syncs", n)) => out.fsyncs = number(n, line)?,
                        Some(("threads", n)) => out.threads = number(n, line)? as u32,
                        _ => {}
                    }
                }
            }
            ["counter", ..] => {}
            [name, s, g, db, ib, it, d] => {
                let mut row = [0; 6];
                for (place, text) in row.iter_mut().zip([s, g, db, ib, it, d]) {
                    *place = number(text, line)?;
                }
                out.by_type.insert(name.to_owned(), row);
            }
            [name, n] => {
                out.single.insert(name.to_owned(), number(n, line)?);
            }
            _ => {}
        }
    }
    if out.operations == 0 || out.by_type.is_empty() {
        return Err("no run of varmail, or no counters".to_owned());
    }
    Ok(out)
}

impl Reference {
    /// A row of counters by type; zeroes where there is none.
    pub fn row(&self, name: &str) -> [u64; 6] {
        self.by_type.get(name).copied().unwrap_or_default()
    }

    /// Conflicts an operation.
    pub fn per_op(&self) -> f64 {
        self.row("conflict_calls").iter().sum::<u64>() as f64 / self.operations as f64
    }

    /// Commits that waited, of all.
    pub fn delayed(&self) -> f64 {
        let of = |name: &str| self.single.get(name).copied().unwrap_or(0) as f64;
        of("commits_delayed") / of("commits").max(1.0)
    }
}

/// The machine that the reference ran on, with ours.
pub fn machine() -> CpuModel {
    let ours = profile().model().profile;
    let mut slow = CostProfile::zero();
    for op in CpuOp::ALL {
        slow.set(*op, ours.get(*op) * SLOWER);
    }
    for (op, ns) in DEARER {
        slow.set(op, ns);
    }
    CpuModel { cores: 2, profile: slow }
}

/// The same run of ours: `system` is BFS-DR or EXT4-DR. Errors: as the machine's.
pub fn run_like(
    system: System,
    load: Load,
    threads: u32,
    seed: u64,
) -> Result<Outcome, MachineError> {
    let mut plan = Plan::paper(system, load, threads, RunLength::Time(Span::secs(4)), seed);
    plan.cpu = machine();
    plan.flowop_ns *= SLOWER as f64;
    plan.disk = "vda";
    plan.at_random = true;
    plan.device = "fixed";
    plan.params = vec![
        ("latency_ns".to_owned(), LATENCY_NS),
        ("capacity_bytes".to_owned(), (2 << 30) + (1 << 20)),
        ("fua".to_owned(), 0),
    ];
    plan.file_bytes = Some(16 << 10);
    plan.more = "count_access,journal_mb=128";
    run(&plan)
}

/// Theirs and ours, in lines.
pub fn beside(theirs: &Reference, ours: &Outcome) -> String {
    let heads: String = TYPES.iter().map(|t| format!("{t:>9}")).collect();
    let mut out = format!("{:<28}{heads}{:>9}\n", "", "all");
    let mut line = |name: &str, row: [f64; 6]| {
        let cells: String = row.iter().map(|v| format!("{v:>9.3}")).collect();
        out += &format!("{name:<28}{cells}{:>9.3}\n", row.iter().sum::<f64>());
    };
    let (loops, ops) = (theirs.loops as f64, theirs.operations as f64);
    line("calls a loop, theirs", theirs.row("calls").map(|n| n as f64 / loops));
    let each = |of: &dyn Fn(&str) -> u64| TYPES.map(|t| of(t) as f64);
    line("calls a loop, ours", each(&|t| ours.accesses.of_type(t)).map(|n| n / ours.loops as f64));
    line("conflicts an op, theirs", theirs.row("conflict_calls").map(|n| n as f64 / ops));
    line(
        "conflicts an op, ours",
        each(&|t| ours.conflicts.of_type(t)).map(|n| n / ours.operations as f64),
    );
    let of = |n: u64, all: u64| 100.0 * n as f64 / all.max(1) as f64;
    out += &format!(
        "commits delayed: theirs {:.1} %, ours {:.1} %; fsyncs a commit: {:.2}, {:.2}; \
         operations a second, ours: {:.0}\n",
        100.0 * theirs.delayed(),
        of(ours.counter("delayed_commits"), ours.counter("commits")),
        theirs.fsyncs as f64 / theirs.single.get("commits").copied().unwrap_or(1).max(1) as f64,
        ours.fsyncs as f64 / ours.counter("commits").max(1) as f64,
        ours.ops_per_second,
    );
    let cases = [
        ("joined", "c1_already_joined"),
        ("frozen", "c2_frozen_exists"),
        ("shadow", "c3_shadow_wait"),
        ("copy", "c4_copy_out"),
        ("logged", "c5_past_logging"),
    ];
    for (case, row) in cases {
        let theirs: u64 = theirs.row(row).iter().sum();
        out += &format!(
            "{case:<8} theirs {:.4} an op, ours {:.4}\n",
            theirs as f64 / ops,
            ours.conflicts.of_case(case) as f64 / ours.operations as f64
        );
    }
    out
}
