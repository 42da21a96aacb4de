//! Paper `journal-conflict`: conflicts of BarrierFS' journal, counted by what the block is, what
//! they do to scaling, and a journaling without them.
//!
//! Inputs are filebench's varmail, the kernel (3.10.61) and the drive's class. The paper says
//! neither whether its tables are of the durable or the ordering kind (1,271 fsyncs a second tell
//! that they are durable) nor what kernel its F2FS is of (assumed: the same). Costs of the CPU are
//! assumed; each scaling claim has its interval when every one of them, and every assumed number of
//! the drive, varies.

mod judge;
pub mod real;
mod run;

pub use run::{
    ByType, Counts, DEVICE, FLOWOP_NS, KERNEL, Load, Outcome, PROFILE, Plan, System, TYPES,
    profile, run,
};
use serde::{Deserialize, Serialize};
use wp_base::Span;
use wp_machine::MachineError;
use wp_report::claim::Judged;
use wp_workload::filebench::RunLength;

use super::vary::{self, Variation};

/// The paper's slug.
pub const SLUG: &str = "journal-conflict";

/// Threads of the graphs.
pub const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 40];

/// A graph's points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// What is run.
    pub load: Load,
    /// All its runs: systems in their order, threads rising.
    pub points: Vec<Outcome>,
}

impl Graph {
    /// The run of this system with `threads` threads.
    pub fn of(&self, system: System, threads: u32) -> Option<&Outcome> {
        self.points.iter().find(|o| o.system == system.name() && o.threads == threads)
    }
}

/// What the scaling claims are made of, from one set of costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// BFS-DR, varmail: 2 and 8 threads.
    pub bfs: [f64; 2],
    /// BFS-DR, modified: 2 and 8 threads.
    pub bfs_modified: [f64; 2],
    /// EXT4-DR, 8 threads: varmail, modified.
    pub ext4: [f64; 2],
    /// F2FS, 8 threads: varmail, modified.
    pub f2fs: [f64; 2],
}

impl Rates {
    /// Measures them. Errors: as the machines'.
    fn measure(length: RunLength, seed: u64, change: &Variation) -> Result<Rates, MachineError> {
        let of = |system, load, threads| {
            let mut plan = Plan::paper(system, load, threads, length, seed);
            change.apply(&mut plan.params, &mut plan.cpu);
            plan.flowop_ns = change.own("flowop_ns", plan.flowop_ns);
            Ok::<f64, MachineError>(run(&plan)?.ops_per_second)
        };
        let (v, m) = (Load::Varmail, Load::NoCreateDelete);
        Ok(Rates {
            bfs: [of(System::BfsDr, v, 2)?, of(System::BfsDr, v, 8)?],
            bfs_modified: [of(System::BfsDr, m, 2)?, of(System::BfsDr, m, 8)?],
            ext4: [of(System::Ext4Dr, v, 8)?, of(System::Ext4Dr, m, 8)?],
            f2fs: [of(System::F2fs, v, 8)?, of(System::F2fs, m, 8)?],
        })
    }
}

/// Everything that `reproduce journal-conflict` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.reproduce/1")]
pub struct Results {
    /// Seed of every random stream.
    pub seed: u64,
    /// The paper's slug.
    pub papers: [String; 1],
    /// Tables 2 and 3: BFS-DR with 8 threads.
    pub tables: [Outcome; 2],
    /// Graphs 1 and 2.
    pub graphs: [Graph; 2],
    /// The cure on the same graphs.
    pub cure: [Graph; 2],
    /// What is assumed, varied; nothing with `quick`.
    pub varied: Vec<(String, Rates)>,
    /// Variations that no machine can have.
    pub impossible: Vec<String>,
    /// Judged claims.
    pub claims: Vec<Judged>,
}

/// How long the runs are, in virtual time.
struct Lengths {
    table: RunLength,
    graph: RunLength,
    varied: RunLength,
}

/// The paper's tables are of 60 seconds; shares and rates are steady after two, and the files of
/// the modified workload, which only grow, need memory.
const FULL: Lengths = Lengths {
    table: RunLength::Time(Span::secs(10)),
    graph: RunLength::Time(Span::secs(2)),
    varied: RunLength::Time(Span::millis(500)),
};

const QUICK: Lengths = Lengths {
    table: RunLength::Time(Span::secs(4)),
    graph: RunLength::Time(Span::secs(1)),
    varied: RunLength::Time(Span::secs(1)),
};

/// Every assumed number, halved and doubled; then all CPU costs together.
fn variations() -> Vec<Variation> {
    let by = vary::BY_TWO;
    let mut all = vary::of_cpu(profile(), by);
    all.extend(vary::of_device(DEVICE, by));
    all.extend(Variation::of_own("flowop_ns", by));
    all.extend(Variation::of_all_cpu(by));
    all
}

/// Runs it all. `progress(done, all, name)` is told before each run, and stops it by `false`: then
/// the answer is `None`. Errors: as the machines'.
pub fn reproduce(
    seed: u64,
    quick: bool,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<Results>, MachineError> {
    let lengths = if quick { QUICK } else { FULL };
    let loads = [Load::Varmail, Load::NoCreateDelete];
    let threads: &[u32] = if quick { &[2, 8] } else { &THREADS };
    let changes = if quick { Vec::new() } else { variations() };
    let runs = 2 + 2 * threads.len() * (System::PAPER.len() + System::CURE.len()) + changes.len();
    let mut done = 0;
    let mut next = |name: &str| {
        done += 1;
        progress(done, runs, name)
    };
    let mut tables = Vec::new();
    for load in loads {
        if !next(load.name()) {
            return Ok(None);
        }
        tables.push(run(&Plan::paper(System::BfsDr, load, 8, lengths.table, seed))?);
    }
    let mut graphs = Vec::new();
    for (load, systems) in loads
        .iter()
        .map(|l| (*l, &System::PAPER[..]))
        .chain(loads.iter().map(|l| (*l, &System::CURE[..])))
    {
        let mut points = Vec::new();
        for system in systems {
            for n in threads {
                if !next(&format!("{} {}, {n} threads", load.name(), system.name())) {
                    return Ok(None);
                }
                points.push(run(&Plan::paper(*system, load, *n, lengths.graph, seed))?);
            }
        }
        graphs.push(Graph { load, points });
    }
    let (mut varied, mut impossible) = (Vec::new(), Vec::new());
    for change in &changes {
        if !next(&change.name) {
            return Ok(None);
        }
        match Rates::measure(lengths.varied, seed, change) {
            Ok(rates) => varied.push((change.name.clone(), rates)),
            Err(MachineError::Config(_)) => impossible.push(change.name.clone()),
            Err(e) => return Err(e),
        }
    }
    let (Ok(tables), Ok([graph1, graph2, cure1, cure2])) =
        (<[Outcome; 2]>::try_from(tables), <[Graph; 4]>::try_from(graphs))
    else {
        return Err(MachineError::Config("two tables and four graphs".to_owned()));
    };
    let mut found = Results {
        seed,
        papers: [SLUG.to_owned()],
        tables,
        graphs: [graph1, graph2],
        cure: [cure1, cure2],
        varied,
        impossible,
        claims: Vec::new(),
    };
    found.claims = judge::judge(&found)?;
    Ok(Some(found))
}
