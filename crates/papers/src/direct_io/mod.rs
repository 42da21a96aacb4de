//! Paper `direct-io`: `O_DIRECT` writes on file systems that write in place, copy, or keep a log.
//!
//! Inputs are MobiBench, the kernel (3.13-rc2, with F2FS's direct writes, which are in place) and
//! the drive's class. The paper does not tell how large the file was: assumed, and varied like
//! every assumed cost of CPU and drive. What MobiBench's sequential write was over is not told
//! either: its source of that time makes a new file, and that is judged; the later source writes
//! over one that it has filled, and that is printed beside.
//!
//! BTRFS is that of 6.12 on the paper's block layer and drive: the rules of older ones are not
//! known here, so its numbers are an approximation. Means are of the ratios at each size. The five
//! runs of a point differ in when the program starts after the mount, and that makes hardly any
//! difference: nothing else here is chance, and MobiBench's order of records is always the same.
//! Intervals are of the shorter file ([`SHORT_FILE_BYTES`]), and of one run each.

pub mod cuts;
mod judge;
pub mod mechanism;
mod run;

pub use cuts::Left;
pub use mechanism::{Case, Mechanism, Sent};
pub use run::{
    DEVICE, FILE_BYTES, Figure, KERNEL, Outcome, PROFILE, Plan, Reading, SHORT_FILE_BYTES, SIZES,
    System, TODAY, profile, run,
};
use serde::{Deserialize, Serialize};
use wp_machine::MachineError;
use wp_report::claim::Judged;

use super::vary::{self, Variation};

/// The paper's slug.
pub const SLUG: &str = "direct-io";

/// Runs of each point.
pub const RUNS: u64 = 5;

/// A point of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// System.
    pub system: System,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Each run.
    pub runs: Vec<Outcome>,
}

impl Point {
    /// What the figure shows of a run: MiB a second, or records a second.
    pub fn shown(figure: Figure, o: &Outcome) -> f64 {
        if figure == Figure::Random { o.iops } else { o.mib_per_s }
    }

    /// Mean of the runs.
    pub fn mean(&self, figure: Figure) -> f64 {
        let sum: f64 = self.runs.iter().map(|o| Point::shown(figure, o)).sum();
        sum / self.runs.len().max(1) as f64
    }

    /// Difference of best and worst run, over the mean.
    pub fn spread(&self, figure: Figure) -> f64 {
        let all = || self.runs.iter().map(|o| Point::shown(figure, o));
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        (high - low) / self.mean(figure)
    }
}

/// The points of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Which.
    pub figure: Figure,
    /// System by system, sizes rising.
    pub points: Vec<Point>,
}

impl Graph {
    /// The mean at a size; nothing of what was not run.
    pub fn of(&self, system: System, record_bytes: u64) -> Option<f64> {
        let is_it = |p: &&Point| p.system == system && p.record_bytes == record_bytes;
        self.points.iter().find(is_it).map(|p| p.mean(self.figure))
    }

    /// Mean over all sizes of a system's part of F2FS. Nothing if a point is missing.
    fn over_f2fs(&self, system: System) -> Option<f64> {
        let ratio = |size| Some(self.of(system, size)? / self.of(System::F2fs, size)?);
        let all: Option<Vec<f64>> = SIZES.into_iter().map(ratio).collect();
        Some(all?.iter().sum::<f64>() / SIZES.len() as f64)
    }

    /// At how many of these sizes is a system above others?
    fn first_at(&self, sizes: &[u64], system: System, others: &[System]) -> Option<f64> {
        let mut n = 0;
        for size in sizes {
            let ours = self.of(system, *size)?;
            let all: Option<Vec<f64>> = others.iter().map(|o| self.of(*o, *size)).collect();
            n += u32::from(all?.iter().all(|other| ours > *other));
        }
        Some(f64::from(n))
    }
}

/// What the claims on the figures are made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Sequential: sizes up to 512 KiB at which F2FS is first.
    pub small: f64,
    /// Sequential: sizes above at which EXT4 is above F2FS.
    pub large: f64,
    /// Sequential: BTRFS over F2FS.
    pub btrfs: f64,
    /// Sequential: BTRFS with records of 1 MiB, MiB a second.
    pub btrfs_1m: f64,
    /// Sequential: NILFS2 over F2FS.
    pub nilfs2: f64,
    /// Random: sizes at which F2FS is first.
    pub random_first: f64,
    /// Random: EXT4 over F2FS.
    pub random_ext4: f64,
    /// Random: BTRFS over F2FS.
    pub random_btrfs: f64,
    /// Random: NILFS2 over F2FS.
    pub random_nilfs2: f64,
}

impl Numbers {
    /// From figures 1 and 2. Nothing if points are missing.
    fn of(sequential: &Graph, random: &Graph) -> Option<Numbers> {
        let (small, large) = SIZES.split_at(8);
        let others = [System::Ext4, System::Btrfs, System::Nilfs2];
        Some(Numbers {
            small: sequential.first_at(small, System::F2fs, &others)?,
            large: sequential.first_at(large, System::Ext4, &[System::F2fs])?,
            btrfs: sequential.over_f2fs(System::Btrfs)?,
            btrfs_1m: sequential.of(System::Btrfs, 1 << 20)?,
            nilfs2: sequential.over_f2fs(System::Nilfs2)?,
            random_first: random.first_at(&SIZES, System::F2fs, &others)?,
            random_ext4: random.over_f2fs(System::Ext4)?,
            random_btrfs: random.over_f2fs(System::Btrfs)?,
            random_nilfs2: random.over_f2fs(System::Nilfs2)?,
        })
    }
}

/// Everything that `reproduce direct-io` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.reproduce/1")]
pub struct Results {
    /// Seed of every random stream.
    pub seed: u64,
    /// The paper's slug.
    pub papers: [String; 1],
    /// Figures 1 and 2, and 1 in the other reading.
    pub graphs: Vec<Graph>,
    /// Numbers of the claims.
    pub numbers: Numbers,
    /// The same in the other reading of figure 1.
    pub filled: Numbers,
    /// Who moves blocks, and who writes what beside them.
    pub mechanisms: Vec<Mechanism>,
    /// What power failures leave of direct writes.
    pub cuts: Vec<Left>,
    /// What is assumed, varied; nothing with `quick`.
    pub varied: Vec<(String, Numbers)>,
    /// Variations that no machine can have.
    pub impossible: Vec<String>,
    /// What mounts have to tell their users.
    pub notes: Vec<String>,
    /// Judged claims.
    pub claims: Vec<Judged>,
}

/// A figure of some systems: `seeds` runs of each point, each changed by `change`. Errors: as the
/// machines'.
fn graph(
    figure: Figure,
    systems: &[System],
    file_bytes: u64,
    seeds: std::ops::Range<u64>,
    change: Option<&Variation>,
) -> Result<Graph, MachineError> {
    let mut points = Vec::new();
    for system in systems {
        for record_bytes in SIZES {
            let mut runs = Vec::new();
            for seed in seeds.clone() {
                let mut plan = Plan::paper(*system, figure.program(record_bytes, file_bytes), seed);
                if let Some(change) = change {
                    change.apply(&mut plan.params, &mut plan.cpu);
                    let bytes = change.own("file_bytes", file_bytes as f64);
                    plan.program.file_bytes = bytes as u64;
                }
                runs.push(run(&plan)?);
            }
            points.push(Point { system: *system, record_bytes, runs });
        }
    }
    Ok(Graph { figure, points })
}

/// Every assumed number, halved and doubled; then all CPU costs together.
fn variations() -> Vec<Variation> {
    let by = vary::BY_TWO;
    let mut all = vary::of_cpu(profile(), by);
    all.extend(vary::of_device(DEVICE, by));
    all.extend(Variation::of_own("file_bytes", by));
    all.extend(Variation::of_all_cpu(by));
    all
}

fn numbers(sequential: &Graph, random: &Graph) -> Result<Numbers, MachineError> {
    let missing = || MachineError::Config("a point of a figure is missing".to_owned());
    Numbers::of(sequential, random).ok_or_else(missing)
}

/// Runs it all. `progress(done, all, name)` is told before each part, and stops it by `false`: then
/// the answer is `None`. Errors: as the machines'.
pub fn reproduce(
    seed: u64,
    quick: bool,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<Results>, MachineError> {
    let (file_bytes, runs) = if quick { (SHORT_FILE_BYTES, 1) } else { (FILE_BYTES, RUNS) };
    let systems: Vec<System> = System::all().filter(|s| !s.is_of_today()).collect();
    let changes = if quick { Vec::new() } else { variations() };
    let all = Figure::ALL.len() * systems.len()
        + System::all().count()
        + cuts::SYSTEMS.len()
        + changes.len();
    let mut done = 0;
    let mut next = |name: &str| {
        done += 1;
        progress(done, all, name)
    };
    let mut graphs = Vec::new();
    for figure in Figure::ALL {
        let mut points = Vec::new();
        for system in &systems {
            if !next(&format!("{}, {}", figure.short(), system.name())) {
                return Ok(None);
            }
            points.extend(graph(figure, &[*system], file_bytes, seed..seed + runs, None)?.points);
        }
        graphs.push(Graph { figure, points });
    }
    let mut mechanisms = Vec::new();
    for system in System::all() {
        if !next(&format!("blocks of {}", system.name())) {
            return Ok(None);
        }
        for case in Case::ALL {
            mechanisms.push(mechanism::mechanism(system, case, seed)?);
        }
    }
    let mut left = Vec::new();
    for system in cuts::SYSTEMS {
        if !next(&format!("power failures, {}", system.name())) {
            return Ok(None);
        }
        for synced in [false, true] {
            left.push(cuts::cut(system, synced, seed)?);
        }
    }
    let (mut varied, mut impossible) = (Vec::new(), Vec::new());
    for change in &changes {
        if !next(&change.name) {
            return Ok(None);
        }
        let seeds = seed..seed + 1;
        let of =
            |figure| graph(figure, &System::PAPER, SHORT_FILE_BYTES, seeds.clone(), Some(change));
        match (of(Figure::Sequential(Reading::Fresh)), of(Figure::Random)) {
            (Ok(one), Ok(two)) => varied.push((change.name.clone(), numbers(&one, &two)?)),
            (Err(MachineError::Config(_)), _) | (_, Err(MachineError::Config(_))) => {
                impossible.push(change.name.clone());
            }
            (Err(e), _) | (_, Err(e)) => return Err(e),
        }
    }
    Ok(Some(Results::new(seed, graphs, (mechanisms, left), (varied, impossible))?))
}

impl Results {
    /// Of the runs, judged. Errors: a point of a figure that is missing.
    fn new(
        seed: u64,
        graphs: Vec<Graph>,
        (mechanisms, cuts): (Vec<Mechanism>, Vec<Left>),
        (varied, impossible): (Vec<(String, Numbers)>, Vec<String>),
    ) -> Result<Results, MachineError> {
        let [one, two, other] = &graphs[..] else {
            return Err(MachineError::Config("three figures".to_owned()));
        };
        let mut notes: Vec<String> = mechanisms.iter().flat_map(|m| m.notes.clone()).collect();
        notes.dedup();
        let mut found = Results {
            seed,
            papers: [SLUG.to_owned()],
            numbers: numbers(one, two)?,
            filled: numbers(other, two)?,
            graphs,
            mechanisms,
            cuts,
            varied,
            impossible,
            notes,
            claims: Vec::new(),
        };
        found.claims = judge::judge(&found)?;
        Ok(found)
    }
}
