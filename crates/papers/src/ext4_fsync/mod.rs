//! Paper `ext4-fsync`: what fsync makes the block layer, jbd2 and the disk do, in three eras of
//! ext4.
//!
//! Nothing here is a number of the paper: runs are made, events and image bytes are counted, and
//! the claims (fixed in `papers/claims.toml`) are judged.

mod cuts;
mod judge;
mod latency;
mod null;
mod results;
mod run;
mod traces;

pub use cuts::{CutRow, cut_era};
pub use latency::variations;
pub use null::{Beside, Costs, Nulls};
pub use results::Results;
pub use run::{OnDisk, RunOutcome, RunPlan, Short, run, short};
use serde::{Deserialize, Serialize};
pub use traces::{Logged, Request, Trace};
use wp_base::Sector;
use wp_machine::MachineError;
use wp_parity::reference::Phase;
use wp_report::claim::Judged;

use self::judge::{beside, judge};
use self::latency::Latency;

/// The paper's slug.
pub const SLUG: &str = "ext4-fsync";
/// Its eras.
pub const ERAS: [&str; 3] = ["3.4", "3.8", "4.6"];
/// The three kinds of write. The paper's non-allocating case is `extend`; see mechanisms.md DIFF 1.
pub const CASES: [&str; 3] = ["alloc", "extend", "over"];
/// Numbers of files of figures 10 and 11. The traces and figure 9 (10 files in the paper) go up to
/// 100.
pub const FILES: [u32; 4] = [1, 10, 100, 1000];
/// First sector of the paper's partition.
pub const PARTITION_START: Sector = Sector(187_035_648);
/// Its length: 29 GiB.
pub const PARTITION_SECTORS: u64 = 29 * 1024 * 1024 * 2;

/// A block of figure 11 or of the traces, for the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Era.
    pub era: String,
    /// Case.
    pub case: String,
    /// Files.
    pub files: u32,
    /// Data blocks that the fsync wrote to the data area.
    pub data_blocks: u32,
    /// Journal blocks with descriptors, without the commit record.
    pub journal_blocks: u32,
    /// Files whose data is on disk at return.
    pub data_files: u32,
    /// Files whose inode-table block is in the journal at return.
    pub table_files: u32,
    /// Files whose logged inode has this write's size.
    pub size_files: u32,
    /// Duration of the fsync.
    pub fsync_ns: u64,
}

/// The preset that stands for the PC's drive.
pub const DEVICE: &str = "ssd-128";

/// A run of figures 10 and 11.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Device preset.
    pub device: String,
    /// Era.
    pub era: String,
    /// Case.
    pub case: String,
    /// Files.
    pub files: u32,
    /// Data blocks that the fsync wrote to the data area (figure 11).
    pub data_blocks: u32,
    /// Metadata blocks in the journal when it returns, without descriptors and commit record.
    pub metadata_blocks: u32,
    /// Duration of the fsync (figure 10).
    pub fsync_ns: u64,
}

/// What the runs found.
pub struct Reproduction {
    /// One row a run of the traces and figure 9 (3 KB).
    pub rows: Vec<Row>,
    /// Figures 10 and 11 (2 KB).
    pub points: Vec<Point>,
    /// The same on the phone: the paper has era 3.4 there, and no claim of ours is about it.
    pub phone: Vec<Point>,
    /// Ours and the null predictors beside the paper. Nothing with `quick`.
    pub nulls: Nulls,
    /// Judged claims.
    pub claims: Vec<Judged>,
    /// The runs behind `rows`.
    pub runs: Vec<RunOutcome>,
    /// Variations of assumed parameters behind the intervals.
    pub variations: usize,
    /// Those of them that no device can have.
    pub impossible: Vec<String>,
    /// Power failures, by era and kind of program; empty if they were not requested.
    pub cuts: Vec<CutRow>,
}

/// Runs everything and judges. `progress(done, all, name)` is called before each run; `false`
/// stops.
///
/// With `quick`, no runs of 100 files or more and no intervals. `cuts`: what [`cut_era`] found, if
/// power failures were tried.
pub fn reproduce(
    seed: u64,
    quick: bool,
    cuts: Vec<CutRow>,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<Reproduction>, MachineError> {
    let (few, many) = if quick { (2, 2) } else { (3, 4) };
    let each = |f: fn(&str, &str, u32, u64) -> RunPlan, files: &[u32]| -> Vec<RunPlan> {
        let mut plans = Vec::new();
        for era in ERAS {
            for case in CASES {
                plans.extend(files.iter().map(|n| f(era, case, *n, seed)));
            }
        }
        plans
    };
    let (traces, figures) =
        (each(RunPlan::paper, &FILES[..few]), each(RunPlan::figure_10, &FILES[..many]));
    let phones = each(RunPlan::phone, &FILES[..many]);
    let varied = if quick { Vec::new() } else { variations() };
    let all = traces.len() + figures.len() + phones.len() + varied.len();
    let mut runs = Vec::new();
    for plan in &traces {
        if !progress(runs.len(), all, &plan.name()) {
            return Ok(None);
        }
        runs.push(run(plan)?);
    }
    let mut points = Vec::new();
    for plan in figures.iter().chain(&phones) {
        let name = format!("{} {} 2 KB", plan.device, plan.name());
        if !progress(traces.len() + points.len(), all, &name) {
            return Ok(None);
        }
        points.push(point(&run(plan)?));
    }
    let phone = points.split_off(figures.len());
    let mut latency = Latency::measure(seed, &FILES[..many], &|p| p)?;
    let mut impossible = Vec::new();
    for (i, v) in varied.iter().enumerate() {
        if !progress(traces.len() + figures.len() + phones.len() + i, all, &v.name) {
            return Ok(None);
        }
        let changed = |mut plan: RunPlan| {
            v.apply(&mut plan.device_params, &mut plan.cpu);
            plan
        };
        match Latency::measure(seed, &FILES, &changed) {
            Ok(l) => latency.widen(l),
            // Half of a flash array does not hold its capacity: that device cannot be.
            Err(MachineError::Config(_)) => impossible.push(v.name.clone()),
            Err(e) => return Err(e),
        }
    }
    let rows: Vec<Row> = runs.iter().map(row).collect();
    let claims = judge(&runs, &points, &latency, &cuts, quick)?;
    let nulls = if quick { Nulls::default() } else { beside(&points, &latency)? };
    let variations = varied.len();
    Ok(Some(Reproduction {
        rows,
        points,
        phone,
        nulls,
        claims,
        runs,
        variations,
        impossible,
        cuts,
    }))
}

fn point(r: &RunOutcome) -> Point {
    let row = row(r);
    let Row { era, case, files, data_blocks, fsync_ns, .. } = row;
    let device = r.plan.device.clone();
    Point { device, era, case, files, data_blocks, metadata_blocks: r.metadata_logged, fsync_ns }
}

fn row(r: &RunOutcome) -> Row {
    let count = |v: &[bool]| v.iter().filter(|b| **b).count() as u32;
    let blocks = |class: &str| r.summary.class(Phase::Fsync, class).map_or(0, |c| c.blocks());
    Row {
        era: r.plan.era.clone(),
        case: r.plan.case.clone(),
        files: r.plan.files,
        data_blocks: blocks("data_last") + blocks("data_others"),
        journal_blocks: blocks("journal"),
        data_files: count(&r.data_on_disk),
        table_files: count(&r.table_logged),
        size_files: count(&r.size_logged),
        fsync_ns: r.fsync_ns,
    }
}
