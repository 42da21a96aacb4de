//! Figures of the papers on a perturbed device profile: what the mechanism says that they do, and
//! what they do.
//!
//! Each figure stands here with the direction that its mechanism predicts and why, which was
//! written before it was run; a prediction that fails stays, with what was found to be the reason.
//! Runs are those of the papers' experiments, of quick sizes, without any change for this: the
//! profile is changed for the whole process ([`wp_machine::scale`]).

mod figures;
pub mod needs;

use std::collections::BTreeMap;

pub use figures::FIGURES;
use serde::{Deserialize, Serialize};
use wp_machine::MachineError;

/// The figures on one drive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.perturb.figures/1")]
pub struct Results {
    /// What is changed, as [`wp_machine::scale::Scale::parse`] reads it.
    pub device_scale: String,
    /// Seed of every random stream.
    pub seed: u64,
    /// The figures by their names.
    pub figures: BTreeMap<String, f64>,
}

impl Results {
    /// The value of a figure. `None`: it was not measured.
    pub fn of(&self, figure: &Figure) -> Option<f64> {
        self.figures.get(&figure.name()).copied()
    }
}

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
    /// Which way a figure went. `None`: it is no number, before or after.
    pub fn of(before: f64, after: f64) -> Option<Way> {
        let change = if before == 0.0 { after } else { after / before - 1.0 };
        match change {
            _ if !before.is_finite() || !after.is_finite() => None,
            c if c > STILL => Some(Way::Up),
            c if c < -STILL => Some(Way::Down),
            _ => Some(Way::Still),
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

/// What is changed, as [`wp_machine::scale::Scale::parse`] reads it: programming twice as long,
/// half the buffer, both.
pub const CHANGES: [&str; 3] = ["program=2", "buffer=1/2", "program=2,buffer=1/2"];

/// What a move is to the prediction, and to the reason why that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It went as predicted.
    Predicted,
    /// It did not, and there is a reason.
    Explained,
    /// It did not, and no reason is listed.
    Unexplained,
    /// It went as predicted, and there is a reason why it would not.
    StaleReason,
}

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
    /// For each of [`CHANGES`] whose prediction fails: the reason, found afterwards. Empty: it does
    /// not fail.
    pub found: [&'static str; 3],
    /// Measures it. Errors: as the machines'.
    pub measure: fn(u64) -> Result<f64, MachineError>,
}

impl Figure {
    /// Its name: paper, place and what.
    pub fn name(&self) -> String {
        format!("{} {}: {}", self.paper, self.place, self.what)
    }

    /// Which way it went with each of [`CHANGES`], and how that is to its prediction and reason.
    /// `None`: one of them is no number.
    pub fn moves(&self, before: f64, after: [f64; 3]) -> Option<[(Way, Outcome); 3]> {
        let mut all = [(Way::Still, Outcome::Predicted); 3];
        for (i, slot) in all.iter_mut().enumerate() {
            let way = Way::of(before, after[i])?;
            let outcome = match (way == self.predicted[i], self.found[i].is_empty()) {
                (true, true) => Outcome::Predicted,
                (true, false) => Outcome::StaleReason,
                (false, false) => Outcome::Explained,
                (false, true) => Outcome::Unexplained,
            };
            *slot = (way, outcome);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wp_machine::scale::Scale;

    use super::*;

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
        assert_eq!(Way::of(100.0, 101.9), Some(Way::Still));
        assert_eq!(Way::of(100.0, 102.1), Some(Way::Up));
        assert_eq!(Way::of(100.0, 97.9), Some(Way::Down));
        assert_eq!(Way::of(0.0, 0.0), Some(Way::Still));
        assert_eq!(Way::of(0.0, 3.0), Some(Way::Up));
        for (before, after) in [(f64::NAN, 1.0), (1.0, f64::NAN), (1.0, f64::INFINITY)] {
            assert_eq!(Way::of(before, after), None, "{before} {after}");
        }
    }

    #[test]
    fn a_reason_is_of_one_change_and_stale_where_nothing_fails() {
        let figure = Figure {
            paper: "",
            place: "",
            what: "",
            unit: "",
            predicted: [Way::Still; 3],
            why: "",
            found: ["because", "because", ""],
            measure: |_| Ok(0.0),
        };
        // The first fails and says why; the second does not fail; the third fails and says nothing.
        let moves = figure.moves(100.0, [110.0, 100.0, 90.0]).expect("numbers");
        let outcomes = moves.map(|(_, outcome)| outcome);
        assert_eq!(outcomes, [Outcome::Explained, Outcome::StaleReason, Outcome::Unexplained]);
        assert!(figure.moves(100.0, [110.0, f64::NAN, 90.0]).is_none());
        let plain = Figure { found: [""; 3], ..figure };
        let moves = plain.moves(100.0, [100.0; 3]).expect("numbers");
        assert!(moves.iter().all(|(_, outcome)| *outcome == Outcome::Predicted));
    }
}
