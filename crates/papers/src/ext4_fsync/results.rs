//! What a run found, as text, JSON and page are made from it.

use serde::{Deserialize, Serialize};
use wp_report::claim::Judged;

use super::traces::{self, Trace};
use super::{CutRow, Nulls, Point, Reproduction, Row, SLUG};
use crate::kernels::{Comparison, RealKernels};
use crate::today::{Today, TodayComparison};

/// Everything that `reproduce ext4-fsync` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.reproduce/1")]
pub struct Results {
    /// Seed of every random stream.
    pub seed: u64,
    /// The paper's slug.
    pub papers: [String; 1],
    /// One row a run of the traces and figure 9 (3 KB).
    pub rows: Vec<Row>,
    /// The traces of ten files, the paper's number.
    pub traces: Vec<Trace>,
    /// Figures 10 and 11 (2 KB).
    pub figures_10_11: Vec<Point>,
    /// The same on the phone.
    pub figures_10_11_phone: Vec<Point>,
    /// Ours and the null predictors beside the paper. Nothing with `quick`.
    pub null_predictors: Nulls,
    /// Judged claims.
    pub claims: Vec<Judged>,
    /// Power failures; empty if they were not requested.
    pub cuts: Vec<CutRow>,
    /// The same program on the recorded kernels of the paper's time.
    pub real_kernels: RealKernels,
    /// A program of later recordings on Linux 6.18.
    pub linux_6_18: Today,
    /// Variations of assumed parameters behind the intervals.
    pub variations: usize,
    /// Those of them that no device can have.
    pub impossible_variations: Vec<String>,
}

impl Results {
    /// Of a run, and of the comparisons with recorded kernels.
    pub fn new(
        seed: u64,
        found: &Reproduction,
        real: &Comparison,
        today: &TodayComparison,
    ) -> Results {
        Results {
            seed,
            papers: [SLUG.to_owned()],
            rows: found.rows.clone(),
            traces: traces::traces(&found.runs),
            figures_10_11: found.points.clone(),
            figures_10_11_phone: found.phone.clone(),
            null_predictors: found.nulls.clone(),
            claims: found.claims.clone(),
            cuts: found.cuts.clone(),
            real_kernels: real.results(),
            linux_6_18: today.results(),
            variations: found.variations,
            impossible_variations: found.impossible.clone(),
        }
    }
}
