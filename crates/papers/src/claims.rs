//! Claims: what a paper says, what we found, and the verdict.
//!
//! ```text
//! papers/claims.toml -> Claims -> Book (one paper) -- emit(id, Measured) --> Judged -> JSON
//!                                                  papers/verdicts.toml (Pins) compare
//! papers/reasons.toml -> Reasons: a reason of `Judged` in Korean
//! ```
//! Invariants: 1. ids, values, bands, units and kinds come from the file and nowhere else.
//!             2. a book closes only when each id of its paper was emitted, once.
//!             3. a verdict is a function of the claim and the measurement; declaring a paper
//!                inconsistent, or a claim not modelled, takes a reason in words.
//! Source: the head of papers/claims.toml.

mod book;
mod judge;
mod pins;
mod reasons;
#[cfg(test)]
mod tests;

use std::fmt;

pub use book::Book;
pub use judge::{Measured, judge};
pub use pins::{Pins, VerdictChange, check_pins};
pub use reasons::Reasons;
use serde::Deserialize;
use wp_report::claim::{Kind, PaperValue};

/// The claims of all papers, as fixed before anything was run.
pub const CLAIMS_TOML: &str = include_str!("../../../papers/claims.toml");

/// The verdict of every claim, as committed.
const VERDICTS_TOML: &str = include_str!("../../../papers/verdicts.toml");

/// Why a claim file, a measurement or a book is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimError {
    /// The text is no list of claims (or pins).
    Syntax(String),
    /// The claim says both `exact` and `band`, or neither, or a band that is none.
    Band(String),
    /// Two claims of one paper with the same id, or one emitted twice.
    Twice(String),
    /// An id (or paper) that the file does not have.
    Unknown(String),
    /// Ids that were never emitted, in file order.
    Missing(Vec<String>),
    /// NaN or infinity where a number is needed.
    NotFinite(String),
    /// An interval that does not hold the value that it surrounds.
    Interval(String),
    /// `not-modelled`, `paper-inconsistent` without a reason in words, or a reason where a number
    /// is needed.
    NoReason(String),
    /// A host file could not be read or written.
    Host(String),
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Syntax(what) => write!(f, "claims: {what}"),
            ClaimError::Band(id) => {
                write!(f, "claim {id}: needs either exact = true or band = [low, high]")
            }
            ClaimError::Twice(id) => write!(f, "claim {id}: twice"),
            ClaimError::Unknown(id) => write!(f, "claim {id}: not in the claims file"),
            ClaimError::Missing(ids) => write!(f, "claims not emitted: {}", ids.join(", ")),
            ClaimError::NotFinite(id) => write!(f, "claim {id}: not a finite number"),
            ClaimError::Interval(id) => write!(f, "claim {id}: its interval does not hold it"),
            ClaimError::NoReason(id) => write!(f, "claim {id}: this verdict needs a reason"),
            ClaimError::Host(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for ClaimError {}

/// One claim of a paper. Read from the file only; nothing changes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Slug of the paper.
    pub paper: String,
    /// Id, unique in the paper.
    pub id: String,
    /// What is claimed, in words.
    pub what: String,
    /// The paper's value.
    pub paper_value: PaperValue,
    /// Lowest and highest value of ours that matches; equal for an exact claim.
    pub band: [f64; 2],
    /// Unit of the values, where they have one.
    pub unit: Option<String>,
    /// Prediction or input.
    pub kind: Kind,
    /// The closed form to print beside ours, in words.
    pub null: Option<String>,
    /// How to count, in words.
    pub rule: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    claim: Vec<RawClaim>,
}

/// A claim as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    paper: String,
    id: String,
    what: String,
    paper_value: PaperValue,
    exact: Option<bool>,
    band: Option<[f64; 2]>,
    unit: Option<String>,
    kind: Kind,
    null: Option<String>,
    rule: Option<String>,
}

impl RawClaim {
    fn check(self) -> Result<Claim, ClaimError> {
        let band = match (self.exact, self.band, &self.paper_value) {
            (Some(true), None, PaperValue::Number(value)) => [*value, *value],
            (None | Some(false), Some(band), _) => band,
            _ => return Err(ClaimError::Band(self.id)),
        };
        // `<=` is false for NaN, so this refuses one too.
        let is_band = band[0] <= band[1] && band.iter().all(|edge| edge.is_finite());
        if !is_band {
            return Err(ClaimError::Band(self.id));
        }
        Ok(Claim {
            paper: self.paper,
            id: self.id,
            what: self.what,
            paper_value: self.paper_value,
            band,
            unit: self.unit,
            kind: self.kind,
            null: self.null,
            rule: self.rule,
        })
    }
}

/// All claims, in file order.
#[derive(Clone, Debug)]
pub struct Claims(Vec<Claim>);

impl Claims {
    /// The claims that were compiled in.
    pub fn fixed() -> Claims {
        Claims::parse(CLAIMS_TOML).expect("a test parses the committed file")
    }

    /// Reads a claims file.
    ///
    /// Errors: `Syntax` (unknown keys too), `Band`, `Twice`.
    pub fn parse(text: &str) -> Result<Claims, ClaimError> {
        let raw: RawFile = toml::from_str(text).map_err(|e| ClaimError::Syntax(e.to_string()))?;
        let mut claims: Vec<Claim> = Vec::with_capacity(raw.claim.len());
        for claim in raw.claim {
            let claim = claim.check()?;
            if claims.iter().any(|c| c.paper == claim.paper && c.id == claim.id) {
                return Err(ClaimError::Twice(claim.id));
            }
            claims.push(claim);
        }
        Ok(Claims(claims))
    }

    /// The claims of one paper, in file order.
    pub fn of<'a>(&'a self, paper: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.0.iter().filter(move |claim| claim.paper == paper)
    }

    /// Every claim, in file order.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.0.iter()
    }
}
