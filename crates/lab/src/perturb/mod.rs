//! Figures of the papers on a perturbed device profile: what the mechanism says that they do, and
//! what they do.
//!
//! Each figure stands here with the direction that its mechanism predicts and why, which was
//! written before it was run; a prediction that fails stays, with what was found to be the reason.
//! Runs are those of the papers' experiments, of quick sizes, and know nothing of it: the profile
//! is changed for the whole process ([`crate::scale`]).

mod figures;

use serde::{Deserialize, Serialize};

use crate::machine::MachineError;

pub use figures::FIGURES;

/// Which way a figure goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// It becomes larger.
    Up,
    /// Smaller.
    Down,
    /// It stays: by no more than [`STILL`].
    Still,
}

/// Change, as a part of a figure, up to which it counts as still.
pub const STILL: f64 = 0.02;

impl Way {
    /// Which way a figure went.
    pub fn of(before: f64, after: f64) -> Way {
        let change = if before == 0.0 { after } else { after / before - 1.0 };
        match change {
            c if c > STILL => Way::Up,
            c if c < -STILL => Way::Down,
            _ => Way::Still,
        }
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Up => "up",
            Way::Down => "down",
            Way::Still => "still",
        }
    }
}

/// What is changed, as [`crate::scale::Scale::parse`] reads it: programming twice as long, half the
/// buffer, both.
pub const CHANGES: [&str; 3] = ["program=2", "buffer=1/2", "program=2,buffer=1/2"];

/// A figure.
pub struct Figure {
    /// The paper's slug.
    pub paper: &'static str,
    /// Its place in the paper.
    pub place: &'static str,
    /// What is measured.
    pub what: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What it will do, for each of [`CHANGES`].
    pub predicted: [Way; 3],
    /// Why.
    pub why: &'static str,
    /// Where a prediction fails: the reason, found afterwards. Empty: none fails.
    pub found: &'static str,
    /// Measures it. Errors: as the machines'.
    pub measure: fn(u64) -> Result<f64, MachineError>,
}

impl Figure {
    /// Its name: paper, place and what.
    pub fn name(&self) -> String {
        format!("{} {}: {}", self.paper, self.place, self.what)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scale::Scale;

    #[test]
    fn every_paper_has_figures_each_once_and_with_a_reason() {
        let names: BTreeSet<String> = FIGURES.iter().map(Figure::name).collect();
        assert_eq!(names.len(), FIGURES.len());
        let papers: BTreeSet<&str> = FIGURES.iter().map(|f| f.paper).collect();
        assert_eq!(papers.len(), 5, "{papers:?}");
        assert!(FIGURES.iter().all(|f| !f.why.is_empty() && !f.unit.is_empty()));
        // Each changes something somewhere.
        for (i, change) in CHANGES.iter().enumerate() {
            assert!(Scale::parse(change).is_ok_and(|s| s != Scale::NONE));
            assert!(FIGURES.iter().any(|f| f.predicted[i] != Way::Still));
        }
    }

    #[test]
    fn a_change_below_two_hundredths_is_none() {
        assert_eq!(Way::of(100.0, 101.9), Way::Still);
        assert_eq!(Way::of(100.0, 102.1), Way::Up);
        assert_eq!(Way::of(100.0, 97.9), Way::Down);
        assert_eq!(Way::of(0.0, 0.0), Way::Still);
        assert_eq!(Way::of(0.0, 3.0), Way::Up);
    }
}
