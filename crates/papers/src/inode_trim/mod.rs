//! Paper `inode-trim`: blocks of ext4's inode tables that no file needs any more stay valid pages
//! of the flash.
//!
//! Inputs are the paper's program (2000 files of 4 KiB, made and deleted) and its kernel (3.18.25).
//! It does not say what drive and what partition it had, how fio called the files, or whether
//! anything was written back before it counted: those are assumed, varied where they matter, and
//! said in the report.

mod judge;
mod real;
mod run;

pub use real::{DRIVE, Wear, Work, create_and_delete, fill_and_trim, wear};
pub use run::{DISKSIM, Deleted, FILES, Pages, RunOutcome, RunPlan, Trim, run};
use serde::Serialize;
use wp_machine::MachineError;

use wp_report::claim::Judged;

/// The paper's slug.
pub const SLUG: &str = "inode-trim";

/// A run beside those that claims are about.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is different.
    pub name: &'static str,
    /// With discard alone.
    pub discard: RunOutcome,
    /// With blocks of inode tables too.
    pub safe: RunOutcome,
}

/// Everything that `reproduce inode-trim` found.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Figures 2 and 3, in the order of [`Trim::ALL`].
    pub runs: Vec<RunOutcome>,
    /// Every second file deleted.
    pub half: RunOutcome,
    /// 15 of each 16.
    pub most: RunOutcome,
    /// Other eras, journals and inodes; nothing with `quick`.
    pub rows: Vec<Row>,
    /// What is assumed, varied: pages with discard, and with the tables'; nothing with `quick`.
    pub varied: Vec<(&'static str, u64, u64)>,
    /// Workloads on an old drive; nothing with `quick`.
    pub wear: Vec<Wear>,
    /// Judged claims.
    pub claims: Vec<Judged>,
}

/// How long the workloads are: see [`wear`].
const WEAR_SCALE: u64 = 100;

/// Something else about the paper's run.
type Change = fn(&mut RunPlan);

/// What is assumed, varied: what the paper does not say.
const VARIED: [(&str, Change); 8] = [
    ("names of 4 letters less", |p| p.name = "f.".to_owned()),
    ("names of 4 letters more", |p| p.name = "fio-job.0.".to_owned()),
    ("names of 10 letters more", |p| p.name = "inode-trim-job.0.".to_owned()),
    ("a directory of their own", |p| p.in_directory = true),
    ("a directory, longer names", |p| {
        p.in_directory = true;
        p.name = "inode-trim-job.0.".to_owned();
    }),
    ("4 GiB", |p| p.bytes = 4 << 30),
    ("64 GiB", |p| p.bytes = 64 << 30),
    ("features of today", |p| p.more = ",features=today".to_owned()),
];

/// What differs in each further row, as options of mkfs and mount.
const ROWS: [(&str, &str, &str); 10] = [
    ("128-byte inodes", "3.18.25", ",inode_size=128"),
    ("lazy tables", "3.18.25", ",lazy_itable_init"),
    ("data=journal", "3.18.25", ",data=journal"),
    ("data=writeback", "3.18.25", ",data=writeback"),
    ("Linux 3.4", "3.4", ""),
    ("Linux 4.6", "4.6", ""),
    ("Linux 4.14", "4.14", ""),
    ("Linux 5.15", "5.15", ""),
    ("Linux 6.18", "6.18", ""),
    ("6.18, lazy tables", "6.18", ",lazy_itable_init"),
];

/// Runs everything and judges. `progress(done, all, name)` is called before each part; `false`
/// stops, and the answer is `None`.
///
/// Errors: machines that cannot be or do not finish.
pub fn reproduce(
    seed: u64,
    quick: bool,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<Reproduction>, MachineError> {
    let rows: &[_] = if quick { &[] } else { &ROWS };
    let all = Trim::ALL.len()
        + 2
        + if quick { 0 } else { ROWS.len() + VARIED.len() + real::ROWS.len() * Work::ALL.len() };
    let mut done = 0;
    let mut next = |name: &str| {
        let go = progress(done, all, name);
        done += 1;
        go
    };
    let mut found = Vec::new();
    for trim in Trim::ALL {
        if !next(trim.name()) {
            return Ok(None);
        }
        found.push(run(&RunPlan::paper(trim, Deleted::All, seed))?);
    }
    let mut perturbed = Vec::new();
    for (name, deleted) in
        [("every second", Deleted::Half), ("15 of 16", Deleted::AllButOneOfABlock)]
    {
        if !next(name) {
            return Ok(None);
        }
        perturbed.push(run(&RunPlan::paper(Trim::Safe, deleted, seed))?);
    }
    let mut others = Vec::new();
    for (name, era, more) in rows {
        if !next(name) {
            return Ok(None);
        }
        let plan = |trim| RunPlan {
            era: (*era).to_owned(),
            more: (*more).to_owned(),
            ..RunPlan::paper(trim, Deleted::All, seed)
        };
        others.push(Row {
            name,
            discard: run(&plan(Trim::Discard))?,
            safe: run(&plan(Trim::Safe))?,
        });
    }
    let mut varied = Vec::new();
    for (name, change) in if quick { &[] } else { &VARIED[..] } {
        if !next(name) {
            return Ok(None);
        }
        let pages = |trim| {
            let mut plan = RunPlan::paper(trim, Deleted::All, seed);
            change(&mut plan);
            Ok::<u64, MachineError>(run(&plan)?.unmounted.counted())
        };
        varied.push((*name, pages(Trim::Discard)?, pages(Trim::Safe)?));
    }
    let mut worn = Vec::new();
    for work in if quick { &[] } else { &Work::ALL[..] } {
        for what in real::ROWS {
            if !next(&format!("{}, {}", work.name(), what.0.name())) {
                return Ok(None);
            }
            worn.push(wear(*work, what, WEAR_SCALE, seed)?);
        }
    }
    let most = perturbed.pop().expect("two were run");
    let half = perturbed.pop().expect("two were run");
    let mut found = Reproduction {
        runs: found,
        half,
        most,
        rows: others,
        varied,
        wear: worn,
        claims: Vec::new(),
    };
    found.claims = judge::judge(&found)?;
    Ok(Some(found))
}

impl Reproduction {
    /// The run with `trim`.
    pub fn of(&self, trim: Trim) -> &RunOutcome {
        &self.runs[Trim::ALL.iter().position(|t| *t == trim).expect("all are there")]
    }
}
