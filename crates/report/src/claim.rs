//! A claim of a paper with our number and the verdict: what `claims.json` holds, and what text and
//! page are made from.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::document::nullable;

/// Does the number fall out of the model, or was it put in?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It falls out of running the model.
    Prediction,
    /// It sets a parameter of the model, and proves nothing.
    Input,
}

/// A value as the paper states it: a number, or a word where it gives none ("larger").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PaperValue {
    /// A number, in the claim's unit.
    Number(#[serde(serialize_with = "plain")] f64),
    /// A word.
    Word(String),
}

impl fmt::Display for PaperValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PaperValue::Number(n) if is_whole(*n) => write!(f, "{}", *n as i64),
            PaperValue::Number(n) => write!(f, "{n}"),
            PaperValue::Word(word) => f.write_str(word),
        }
    }
}

/// What we say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Ours is in the band, and so is all that the interval of each parameter gives.
    Match,
    /// It is not.
    Differs,
    /// A closed form of the inputs is in the band too, and within 3 % of ours.
    FollowsFromInputs,
    /// The paper contradicts itself, its own trace or the kernel source; `why` is the proof.
    PaperInconsistent,
    /// We have no number; `why` says why.
    NotModelled,
}

impl Verdict {
    /// All, in the order of reports.
    pub const ALL: [Verdict; 5] = [
        Verdict::Match,
        Verdict::Differs,
        Verdict::FollowsFromInputs,
        Verdict::PaperInconsistent,
        Verdict::NotModelled,
    ];

    /// The word that stands in reports and pins.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Match => "match",
            Verdict::Differs => "differs",
            Verdict::FollowsFromInputs => "follows-from-inputs",
            Verdict::PaperInconsistent => "paper-inconsistent",
            Verdict::NotModelled => "not-modelled",
        }
    }
}

/// The times of a drive that a claim needs to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// None.
    Nothing,
    /// Those of a FLUSH.
    Flush,
    /// More than those.
    Drive,
}

impl Needs {
    /// All, from least to most.
    pub const ALL: [Needs; 3] = [Needs::Nothing, Needs::Flush, Needs::Drive];

    /// The least with which a claim holds: its verdicts on the whole drive, where the times of a
    /// FLUSH alone count, and where none do, if it ran there. `None`: it does not hold on the whole
    /// drive, and its other verdicts do not count.
    pub fn of(verdicts: &[Verdict]) -> Option<Needs> {
        let holds = |at: usize| {
            let found = verdicts.get(at);
            found.is_some_and(|v| matches!(v, Verdict::Match | Verdict::FollowsFromInputs))
        };
        match [holds(0), holds(1), holds(2)] {
            [false, _, _] => None,
            [_, _, true] => Some(Needs::Nothing),
            [_, true, _] => Some(Needs::Flush),
            _ => Some(Needs::Drive),
        }
    }

    /// In a word, as pins and documents have it.
    pub const fn name(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::Flush => "flush",
            Needs::Drive => "drive",
        }
    }
}

/// A claim with our number and the verdict; serialised, it is one element of `claims.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Slug of the paper.
    pub paper: String,
    /// Id of the claim.
    pub id: String,
    /// What is claimed.
    pub what: String,
    /// The paper's value.
    pub paper_value: PaperValue,
    /// Our value; `None` only with `NotModelled`.
    #[serde(serialize_with = "plain_option", deserialize_with = "nullable")]
    pub ours: Option<f64>,
    /// Unit of the values.
    #[serde(deserialize_with = "nullable")]
    pub unit: Option<String>,
    /// Lowest and highest value that matches.
    #[serde(serialize_with = "plain_pair")]
    pub band: [f64; 2],
    /// Prediction or input.
    pub kind: Kind,
    /// What the null predictor gives.
    #[serde(serialize_with = "plain_option", deserialize_with = "nullable")]
    pub null: Option<f64>,
    /// What the interval of each parameter gives.
    #[serde(serialize_with = "plain_pair_option", deserialize_with = "nullable")]
    pub interval: Option<[f64; 2]>,
    /// The verdict.
    pub verdict: Verdict,
    /// Reason, proof or remark; may be empty for a match.
    pub why: String,
}

/// Whole numbers below this are exact in an `f64`, and are written without a fraction.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// Writes 8.0 as 8: a count is a count.
fn plain<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
    Plain(*value).serialize(out)
}

fn plain_option<S: Serializer>(value: &Option<f64>, out: S) -> Result<S::Ok, S::Error> {
    value.map(Plain).serialize(out)
}

fn plain_pair<S: Serializer>(pair: &[f64; 2], out: S) -> Result<S::Ok, S::Error> {
    pair.map(Plain).serialize(out)
}

fn plain_pair_option<S: Serializer>(pair: &Option<[f64; 2]>, out: S) -> Result<S::Ok, S::Error> {
    pair.map(|pair| pair.map(Plain)).serialize(out)
}

/// Is it a count, which is written without a fraction?
fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() < EXACT_BELOW
}

struct Plain(f64);

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        if is_whole(self.0) { out.serialize_i64(self.0 as i64) } else { out.serialize_f64(self.0) }
    }
}
