//! What of the paper is runs that know nothing of each other, as jobs for several threads.

use wp_machine::MachineError;
use wp_machine::parallel::each;

use super::Plan;
use super::fsync::{self, Figure, Point, SIZES_KIB, Stages, stages};
use super::machine::{Mode, Setup};
use super::macros::{self, Macros, Others, Scaling, THREADS};
use super::rollforward::{Costs, NODES, Row, rows};
use crate::vary::Variation;

/// Requests, loops and inserts of a variation's runs: a steady rate needs fewer.
const SHORT: (u64, (u64, u64)) = (80, (150, 500));

/// A run, or a few that belong together.
pub(super) enum Job<'a> {
    /// Table 6.3.
    Recovery,
    /// What stands beside figure 6.2.
    Others,
    /// Figure 6.2.
    Macros,
    /// Table 3.1.
    Stages,
    /// Figure 6.3, with this number of threads.
    Threads(u32),
    /// Figure 6.1, requests of this number of KiB.
    Point(u64),
    /// All that depends on one parameter, with it changed.
    Varied(&'a Variation),
}

/// What came of one.
enum Answer {
    Recovery(Vec<Row>),
    Others(Others),
    Macros(Macros),
    Stages(Stages),
    Threads(Scaling),
    Point(Point),
    /// `None`: no machine can have it.
    Varied(Option<Varied>),
}

/// What one parameter changed made of the figures; `None`: they do not depend on it.
pub(super) struct Varied {
    pub figure: Option<Figure>,
    pub macros: Option<Macros>,
}

impl<'a> Job<'a> {
    /// Those of a run, the longest first.
    pub fn all(quick: bool, varied: &'a [Variation]) -> Vec<Job<'a>> {
        let mut all = Vec::new();
        if !quick {
            all.extend([Job::Recovery, Job::Others]);
            all.extend(THREADS.map(Job::Threads));
        }
        all.extend([Job::Macros, Job::Stages]);
        all.extend(SIZES_KIB.map(Job::Point));
        all.extend(varied.iter().map(Job::Varied));
        all
    }

    fn name(&self) -> String {
        match self {
            Job::Recovery => "table 6.3".to_owned(),
            Job::Others => "beside figure 6.2".to_owned(),
            Job::Macros => "figure 6.2".to_owned(),
            Job::Stages => "table 3.1".to_owned(),
            Job::Threads(n) => format!("figure 6.3, {n} threads"),
            Job::Point(kib) => format!("figure 6.1, {kib} KiB"),
            Job::Varied(v) => v.name.clone(),
        }
    }

    fn run(&self, seed: u64) -> Result<Answer, MachineError> {
        let paper = |mode, plp| Setup::paper(mode, plp, seed);
        Ok(match self {
            Job::Recovery => Answer::Recovery(rows(seed, &NODES)?),
            Job::Others => Answer::Others(Others::measure(seed)?),
            Job::Macros => {
                let think = (macros::FLOWOP_NS, macros::THINK_NS);
                let size = (macros::LOOPS, macros::INSERTS);
                Answer::Macros(Macros::measure(&paper, think, size)?)
            }
            Job::Threads(n) => Answer::Threads(Scaling::measure(*n, seed)?),
            Job::Stages => Answer::Stages(stages(&paper(Mode::Posix, true))?),
            Job::Point(kib) => Answer::Point(Point::measure(*kib, fsync::REQUESTS, &paper)?),
            Job::Varied(v) => match Varied::measure(v, seed) {
                Ok(varied) => Answer::Varied(Some(varied)),
                Err(MachineError::Config(_)) => Answer::Varied(None),
                Err(e) => return Err(e),
            },
        })
    }
}

impl Varied {
    fn measure(v: &Variation, seed: u64) -> Result<Varied, MachineError> {
        if Costs::paper().varied(v).is_varied() {
            return Ok(Varied { figure: None, macros: None });
        }
        let of = |mode, plp| {
            let mut setup = Setup::paper(mode, plp, seed);
            v.apply(&mut setup.params, &mut setup.cpu);
            setup
        };
        let given = (macros::FLOWOP_NS, macros::THINK_NS);
        let think = (v.own("flowop_ns", given.0), v.own("think_ns", given.1));
        let macros = Some(Macros::measure(&of, think, SHORT.1)?);
        if think != given {
            return Ok(Varied { figure: None, macros });
        }
        let points: Result<Vec<Point>, MachineError> =
            SIZES_KIB.iter().map(|kib| Point::measure(*kib, SHORT.0, &of)).collect();
        Ok(Varied { figure: Some(Figure::of(&points?)), macros })
    }
}

/// What came of all of them.
pub(super) struct Runs {
    pub stages: Stages,
    pub points: Vec<Point>,
    pub macros: Macros,
    pub others: Option<Others>,
    /// Figure 6.3; empty with `quick`.
    pub scaling: Vec<Scaling>,
    /// Empty with `quick`.
    pub recovery: Vec<Row>,
    /// In the order of the variations.
    pub varied: Vec<Option<Varied>>,
}

impl Runs {
    /// Runs them; `next` is told of each as it begins, and stops with `false`: `None` then.
    ///
    /// Errors: of the first job that has one.
    pub fn of(
        jobs: &[Job<'_>],
        plan: &Plan,
        next: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Option<Runs>, MachineError> {
        let run = |job: &Job<'_>| next(&job.name()).then(|| job.run(plan.seed));
        let (mut stages, mut macros, mut others) = (None, None, None);
        let (mut points, mut recovery, mut varied) = (Vec::new(), Vec::new(), Vec::new());
        let mut scaling = Vec::new();
        for answer in each(plan.workers, jobs.len(), || (), |(), i| run(&jobs[i])) {
            match answer.transpose()? {
                None => return Ok(None),
                Some(Answer::Recovery(rows)) => recovery = rows,
                Some(Answer::Others(o)) => others = Some(o),
                Some(Answer::Macros(m)) => macros = Some(m),
                Some(Answer::Stages(s)) => stages = Some(s),
                Some(Answer::Threads(s)) => scaling.push(s),
                Some(Answer::Point(p)) => points.push(p),
                Some(Answer::Varied(v)) => varied.push(v),
            }
        }
        Ok(match (stages, macros) {
            (Some(stages), Some(macros)) => {
                Some(Runs { stages, points, macros, others, scaling, recovery, varied })
            }
            _ => None,
        })
    }
}
