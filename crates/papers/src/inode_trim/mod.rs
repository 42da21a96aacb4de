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
use serde::{Deserialize, Serialize};
use wp_machine::MachineError;
use wp_report::claim::Judged;

/// The paper's slug.
pub const SLUG: &str = "inode-trim";

/// A run beside those that claims are about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What is different.
    pub name: String,
    /// With discard alone.
    pub discard: RunOutcome,
    /// With blocks of inode tables too.
    pub safe: RunOutcome,
}

/// The paper's run with each way to discard; keys are [`Trim::name`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// See [`Trim::None`].
    #[serde(rename = "no discard")]
    pub none: RunOutcome,
    /// See [`Trim::Discard`].
    pub discard: RunOutcome,
    /// See [`Trim::Naive`].
    #[serde(rename = "inode trim, naive")]
    pub naive: RunOutcome,
    /// See [`Trim::Safe`].
    #[serde(rename = "inode trim, safe")]
    pub safe: RunOutcome,
}

impl Runs {
    /// The run with `trim`.
    pub fn of(&self, trim: Trim) -> &RunOutcome {
        match trim {
            Trim::None => &self.none,
            Trim::Discard => &self.discard,
            Trim::Naive => &self.naive,
            Trim::Safe => &self.safe,
        }
    }
}

/// Everything that `reproduce inode-trim` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.reproduce/1")]
pub struct Results {
    /// Seed of every random stream.
    pub seed: u64,
    /// The paper's slug.
    pub papers: [String; 1],
    /// Figures 2 and 3.
    pub runs: Runs,
    /// Every second file deleted.
    #[serde(rename = "every_second_deleted")]
    pub half: RunOutcome,
    /// 15 of each 16.
    #[serde(rename = "15_of_16_deleted")]
    pub most: RunOutcome,
    /// Other eras, journals and inodes; nothing with `quick`.
    pub others: Vec<Row>,
    /// What is assumed, varied: pages with discard, and with the tables'; nothing with `quick`.
    pub varied: Vec<(String, u64, u64)>,
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
) -> Result<Option<Results>, MachineError> {
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
            name: (*name).to_owned(),
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
        varied.push(((*name).to_owned(), pages(Trim::Discard)?, pages(Trim::Safe)?));
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
    Ok(Some(Results::new(seed, (found, perturbed), (others, varied, worn))?))
}

/// What was varied beside the paper's runs.
type Beside = (Vec<Row>, Vec<(String, u64, u64)>, Vec<Wear>);

impl Results {
    /// Of the runs with each way to discard and those that delete a part, and of what is beside
    /// them; judged. Errors: claims that cannot be judged.
    fn new(
        seed: u64,
        (runs, parts): (Vec<RunOutcome>, Vec<RunOutcome>),
        (others, varied, wear): Beside,
    ) -> Result<Results, MachineError> {
        let [none, discard, naive, safe] =
            <[RunOutcome; 4]>::try_from(runs).expect("one of each way was run");
        let [half, most] = <[RunOutcome; 2]>::try_from(parts).expect("two were run");
        let mut found = Results {
            seed,
            papers: [SLUG.to_owned()],
            runs: Runs { none, discard, naive, safe },
            half,
            most,
            others,
            varied,
            wear,
            claims: Vec::new(),
        };
        found.claims = judge::judge(&found)?;
        Ok(found)
    }
}
