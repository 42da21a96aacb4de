//! What a run found, as JSON and page are made from it.

use serde::{Deserialize, Serialize};
use wp_report::claim::Judged;
use wp_report::document::nullable;

use super::pictures::Pictures;
use super::{
    Costs, CutRow, Figure, Macros, Others, Point, Reproduction, Row, SLUG, Scaling, Stages,
    SurfacePoint,
};

/// The share of failures in a row of table 6.2.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Failures by power failures.
    pub share: f64,
    /// Its 95 % interval over seeds.
    pub interval: [f64; 2],
}

/// A point of the region of table 6.2.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Dies in all.
    pub dies: u64,
    /// Of how many channels.
    pub channels: u64,
    /// Buffer.
    pub buffer_mib: u64,
    /// Period of the free flush; 0: none.
    pub period_us: u64,
    /// Share of failures.
    pub rate: f64,
    /// Its 95 % interval over seeds.
    pub interval: [f64; 2],
    /// Is the paper's count compatible with it?
    pub as_paper: bool,
}

/// A row of table 6.3 as times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RollForward {
    /// Nodes scanned.
    pub nodes: u64,
    /// Milliseconds without the check.
    pub ms: f64,
    /// Milliseconds of the check.
    pub check_ms: f64,
    /// Extra time of OPRW over F2FS, as a share.
    pub extra: f64,
    /// Blocks that only the recovery with the check read.
    pub extra_blocks: u64,
}

/// Everything that `reproduce f2fs-oprw` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.reproduce/1")]
pub struct Results {
    /// Seed of every random stream.
    pub seed: u64,
    /// The paper's slug.
    pub papers: [String; 1],
    /// Table 3.1.
    pub table_3_1_us: Stages,
    /// Figure 6.1.
    pub figure_6_1_ns: Vec<Point>,
    /// The same in short.
    pub figure_6_1: Figure,
    /// Figure 6.2.
    pub figure_6_2: Macros,
    /// Beside it; nothing with `quick`.
    #[serde(deserialize_with = "nullable")]
    pub figure_6_2_others: Option<Others>,
    /// Figure 6.3; nothing with `quick`.
    pub figure_6_3: Vec<Scaling>,
    /// Table 6.2.
    pub table_6_2: Vec<CutRow>,
    /// The shares of its rows, in order.
    pub table_6_2_shares: Vec<Share>,
    /// Its region; nothing with `quick`.
    pub surface: Vec<Region>,
    /// Table 6.3; nothing with `quick`.
    pub table_6_3: Vec<Row>,
    /// What its work is taken to cost.
    pub table_6_3_costs_ns: Costs,
    /// Its rows as times.
    pub table_6_3_ms: Vec<RollForward>,
    /// Judged claims.
    pub claims: Vec<Judged>,
    /// Variations of assumed parameters behind the intervals.
    pub variations: usize,
    /// Those of them that no machine can have.
    pub impossible_variations: Vec<String>,
    /// Figures 2.1 and 5.1 to 5.4.
    pub figures_2_1_and_5: Pictures,
}

impl From<&SurfacePoint> for Region {
    fn from(p: &SurfacePoint) -> Region {
        let SurfacePoint { dies, channels, buffer_mib, period_us, rate, interval } = *p;
        let as_paper = p.is_papers();
        Region { dies, channels, buffer_mib, period_us, rate, interval, as_paper }
    }
}

impl RollForward {
    fn new(row: &Row, costs: &Costs) -> RollForward {
        RollForward {
            nodes: row.plain.nodes,
            ms: row.plain.ms(costs),
            check_ms: row.oprw.check_ms(costs),
            extra: row.extra(costs),
            extra_blocks: row.extra_blocks,
        }
    }
}

impl Results {
    /// Of a run and its figures 2.1 and 5.
    pub fn new(seed: u64, found: &Reproduction, pictures: Pictures) -> Results {
        let share = |r: &CutRow| Share { share: r.counts.rate(), interval: r.counts.interval() };
        let times = |r: &Row| RollForward::new(r, &found.costs);
        Results {
            seed,
            papers: [SLUG.to_owned()],
            table_3_1_us: found.stages,
            figure_6_1_ns: found.points.clone(),
            figure_6_1: found.figure,
            figure_6_2: found.macros,
            figure_6_2_others: found.others,
            figure_6_3: found.scaling.clone(),
            table_6_2: found.cuts.clone(),
            table_6_2_shares: found.cuts.iter().map(share).collect(),
            surface: found.surface.iter().map(Region::from).collect(),
            table_6_3: found.recovery.clone(),
            table_6_3_costs_ns: found.costs,
            table_6_3_ms: found.recovery.iter().map(times).collect(),
            claims: found.claims.clone(),
            variations: found.variations,
            impossible_variations: found.impossible.clone(),
            figures_2_1_and_5: pictures,
        }
    }
}
