//! Paper `f2fs-oprw`: order-preserving recovery for F2FS on a zoned SSD.
//!
//! Inputs are table 3.1 (the CPU profile and the drive's latencies) and what the paper gives of its
//! machines; everything else is run and judged by the claims that were fixed before.
//! Left out: figure 6.3 (several threads).

mod cuts;
mod flows;
mod fsync;
mod jobs;
mod judge;
mod machine;
mod macros;
mod pictures;
mod results;
mod rollforward;
mod surface;

use std::sync::atomic::{AtomicUsize, Ordering};

pub use cuts::{CutCounts, CutPlan, Drive, cut, program};
pub use flows::{Drawn, FLOWS, Look, Pointers, Recorded, Recovered, record, shortest};
pub use fsync::{Figure, Point, Rate, SIZES_KIB, Stages, rate, stages};
pub use machine::{Mode, Setup, profile};
pub use macros::{FLOWOP_NS, Macros, Others, Rates, Scaling, THINK_NS};
pub use pictures::{AfterCut, Moment, Picture, Pictures, Recordings, recordings};
pub use results::{Region, Results, RollForward, Share};
pub use rollforward::{Chain, Costs, Done, NODES, Row, chain, rows};
use serde::{Deserialize, Serialize};
pub use surface::{SurfacePoint, surface};
use wp_machine::MachineError;
use wp_report::claim::Judged;

use self::jobs::{Job, Runs, Varied};
use self::judge::judge;
use crate::vary::{self, Range, Variation};

/// The paper's slug.
pub const SLUG: &str = "f2fs-oprw";

/// Cuts of a mode in a default run, as in the paper, and how many seeds they are of.
pub const CUTS: (u64, u64) = (1000, 100);
/// Seeds of a long run, at least.
pub const LONG_SEEDS: u64 = 2000;
/// Modes that a long run is about; the controls have [`CUTS`] in it too.
const LONG_ROWS: [&str; 4] = ["posix", "strict_fixed", "OPRW posix", "nobarrier"];
/// Seeds and cuts of each at a point of the surface, and in a long run.
const SURFACE: (u64, u64) = (10, 100);
const LONG_SURFACE: (u64, u64) = (40, 500);

/// A row of table 6.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutRow {
    /// What was cut.
    pub name: String,
    /// Mode.
    pub mode: String,
    /// Drive.
    pub drive: Drive,
    /// Its outcome.
    pub counts: CutCounts,
}

/// The rows of table 6.2: the paper's three, its two controls, and what a drive without PLP does to
/// nobarrier, which no claim is about.
pub fn cut_rows() -> Vec<(&'static str, Mode, Drive)> {
    let none = Drive::PRESET;
    vec![
        ("posix", Mode::Posix, none),
        ("strict_fixed", Mode::StrictFixed, none),
        ("OPRW posix", Mode::OprwPosix, none),
        ("posix, PLP", Mode::Posix, Drive { plp: true, ..none }),
        ("posix, serial", Mode::Posix, Drive { serial: true, ..none }),
        ("strict (kernel)", Mode::Strict, none),
        ("nobarrier", Mode::NoBarrier, none),
        ("OPRW nobarrier", Mode::OprwNoBarrier, none),
    ]
}

/// The figures that claims are about, with what assumed parameters leave open.
pub struct Ranges {
    /// Figure 6.1 (a).
    pub strict_over_posix: Range,
    /// See there.
    pub oprw_over_posix: Range,
    /// Figure 6.1 (b).
    pub min: Range,
    /// See there.
    pub max: Range,
    /// Figure 6.2 (b).
    pub varmail: Range,
    /// See there.
    pub oltp: Range,
    /// varmail gains more.
    pub above: Range,
    /// Table 6.3, by row.
    pub extra: Vec<Range>,
}

/// What the runs found.
pub struct Reproduction {
    /// Table 3.1.
    pub stages: Stages,
    /// Figure 6.1.
    pub points: Vec<Point>,
    /// The same in short.
    pub figure: Figure,
    /// Figure 6.2.
    pub macros: Macros,
    /// Beside it; nothing with `quick`.
    pub others: Option<Others>,
    /// Figure 6.3; nothing with `quick`.
    pub scaling: Vec<Scaling>,
    /// Table 6.2.
    pub cuts: Vec<CutRow>,
    /// Its region; nothing with `quick`.
    pub surface: Vec<SurfacePoint>,
    /// Table 6.3; nothing with `quick`.
    pub recovery: Vec<Row>,
    /// What its work is taken to cost.
    pub costs: Costs,
    /// Judged claims.
    pub claims: Vec<Judged>,
    /// Variations of assumed parameters behind the intervals.
    pub variations: usize,
    /// Those of them that no machine can have.
    pub impossible: Vec<String>,
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed.
    pub seed: u64,
    /// No intervals, no surface, no table 6.3.
    pub quick: bool,
    /// A long run: cuts of each of the four modes that it is about, if not [`CUTS`].
    pub cuts: Option<u64>,
    /// Threads for power failures.
    pub workers: usize,
}

impl Plan {
    /// Seeds of a row of table 6.2, and cuts of each.
    fn cuts(&self, row: &str) -> (u64, u64) {
        match self.cuts.filter(|_| LONG_ROWS.contains(&row)) {
            None => (CUTS.1, CUTS.0 / CUTS.1),
            Some(n) => {
                let seeds = LONG_SEEDS.min(n.max(1));
                (seeds, n.max(1).div_ceil(seeds))
            }
        }
    }
}

/// What is done of the long parts when a run is stopped.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Table 6.2; the last row may be of fewer seeds than was asked for.
    pub cuts: Vec<CutRow>,
    /// Points of its region.
    pub surface: Vec<SurfacePoint>,
}

/// How far a run came.
pub enum Ended {
    /// To its end.
    Whole(Box<Reproduction>),
    /// It was stopped.
    Stopped(Part),
}

/// Runs everything and judges. `progress(done, all, name)` is called before each part, and by those
/// that take long now and then; `false` stops.
///
/// Errors: machines that cannot be or do not finish.
pub fn reproduce(
    plan: &Plan,
    progress: &(dyn Fn(usize, usize, &str) -> bool + Sync),
) -> Result<Ended, MachineError> {
    let mut part = Part::default();
    Ok(match all(plan, progress, &mut part)? {
        Some(found) => Ended::Whole(Box::new(found)),
        None => Ended::Stopped(part),
    })
}

/// `None`: stopped; `part` has what was done.
fn all(
    plan: &Plan,
    progress: &(dyn Fn(usize, usize, &str) -> bool + Sync),
    part: &mut Part,
) -> Result<Option<Reproduction>, MachineError> {
    let varied = if plan.quick { Vec::new() } else { variations() };
    let jobs = Job::all(plan.quick, &varied);
    let parts = jobs.len() + cut_rows().len() + usize::from(!plan.quick);
    let at = AtomicUsize::new(0);
    let go_on = |name: &str| progress(at.load(Ordering::SeqCst), parts, name);
    let next = |name: &str| {
        at.fetch_add(1, Ordering::SeqCst);
        go_on(name)
    };
    for (name, mode, drive) in cut_rows() {
        if !next(&format!("cuts: {name}")) {
            return Ok(None);
        }
        let (seeds, each) = plan.cuts(name);
        let one = CutPlan { mode, drive, seeds: (plan.seed, seeds), cuts: each };
        let go = |done| go_on(&format!("power failures: {name}, {done} of {seeds} seeds"));
        let counts = cut(&one, plan.workers, &go)?;
        let is_whole = counts.runs == seeds;
        if counts.runs > 0 {
            let (name, mode) = (name.to_owned(), mode.name().to_owned());
            part.cuts.push(CutRow { name, mode, drive, counts });
        }
        if !is_whole {
            return Ok(None);
        }
    }
    if !plan.quick {
        if !next("surface") {
            return Ok(None);
        }
        let go = |done, all| go_on(&format!("surface, {done} of {all} points"));
        let size = if plan.cuts.is_some() { LONG_SURFACE } else { SURFACE };
        if !surface(size, plan.workers, &mut part.surface, &go)? {
            return Ok(None);
        }
    }
    let Some(done) = Runs::of(&jobs, plan, &next)? else { return Ok(None) };
    let figure = Figure::of(&done.points);
    let costs = Costs::paper();
    let mut ranges = Ranges::new(&figure, &done.macros, &done.recovery, &costs);
    let mut impossible = Vec::new();
    for (v, runs) in varied.iter().zip(&done.varied) {
        match runs {
            Some(runs) => ranges.widen(runs, &done.recovery, &costs.varied(v)),
            None => impossible.push(v.name.clone()),
        }
    }
    let mut found = Reproduction {
        stages: done.stages,
        points: done.points,
        figure,
        macros: done.macros,
        others: done.others,
        scaling: done.scaling,
        cuts: std::mem::take(&mut part.cuts),
        surface: std::mem::take(&mut part.surface),
        recovery: done.recovery,
        costs,
        claims: Vec::new(),
        variations: varied.len(),
        impossible,
    };
    found.claims = judge(&found, &ranges, plan.quick)?;
    Ok(Some(found))
}

/// Every assumed parameter of drive, CPU and experiment.
fn variations() -> Vec<Variation> {
    let mut out = vary::of_device("zn540-4tb", vary::BY_HALF);
    out.extend(vary::of_cpu(profile(), vary::BY_HALF));
    out.extend(
        ["flowop_ns", "think_ns"].into_iter().flat_map(|key| Variation::of_own(key, vary::BY_HALF)),
    );
    out.extend(Costs::variations());
    out
}

impl Ranges {
    fn new(figure: &Figure, macros: &Macros, recovery: &[Row], costs: &Costs) -> Ranges {
        let (varmail, oltp) = (macros.varmail.gain(), macros.oltp.gain());
        Ranges {
            strict_over_posix: Range::new(figure.strict_over_posix),
            oprw_over_posix: Range::new(figure.oprw_over_posix),
            min: Range::new(figure.min.0),
            max: Range::new(figure.max.0),
            varmail: Range::new(varmail),
            oltp: Range::new(oltp),
            above: Range::new(f64::from(u8::from(varmail > oltp))),
            extra: recovery.iter().map(|r| Range::new(r.extra(costs))).collect(),
        }
    }

    /// Takes in what came of one parameter changed; the costs of a recovery need no run.
    fn widen(&mut self, runs: &Varied, recovery: &[Row], costs: &Costs) {
        for (range, row) in self.extra.iter_mut().zip(recovery) {
            range.widen(row.extra(costs));
        }
        if let Some(macros) = &runs.macros {
            let (varmail, oltp) = (macros.varmail.gain(), macros.oltp.gain());
            self.varmail.widen(varmail);
            self.oltp.widen(oltp);
            self.above.widen(f64::from(u8::from(varmail > oltp)));
        }
        if let Some(figure) = &runs.figure {
            self.strict_over_posix.widen(figure.strict_over_posix);
            self.oprw_over_posix.widen(figure.oprw_over_posix);
            self.min.widen(figure.min.0);
            self.max.widen(figure.max.0);
        }
    }
}
