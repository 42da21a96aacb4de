//! Reasons and remarks of claims in Korean, from `papers/reasons.toml`.

use std::collections::BTreeSet;

use serde::Deserialize;
use wp_base::phrase;

use super::ClaimError;

/// The reasons, as committed.
const REASONS_TOML: &str = include_str!("../../../../papers/reasons.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    reason: Vec<RawReason>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReason {
    en: String,
    ko: String,
}

/// Reasons in English and Korean, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasons(Vec<[String; 2]>);

impl Reasons {
    /// The reasons that were compiled in.
    pub fn committed() -> Reasons {
        Reasons::parse(REASONS_TOML).expect("a test parses the committed file")
    }

    /// Reads a file of reasons.
    ///
    /// Errors: `Syntax` (unknown keys too; a reason whose languages have other parts or numbers);
    /// `Twice`.
    pub fn parse(text: &str) -> Result<Reasons, ClaimError> {
        let raw: RawFile = toml::from_str(text).map_err(|e| ClaimError::Syntax(e.to_string()))?;
        let mut known = BTreeSet::new();
        for RawReason { en, ko } in &raw.reason {
            if numbers(en) != numbers(ko) {
                let what = format!("`{en}` and `{ko}` have other parts or numbers");
                return Err(ClaimError::Syntax(what));
            }
            if !known.insert(en) {
                return Err(ClaimError::Twice(en.clone()));
            }
        }
        Ok(Reasons(raw.reason.into_iter().map(|r| [r.en, r.ko]).collect()))
    }

    /// A reason in Korean. `None`: it, or a piece of it, has none.
    pub fn korean(&self, english: &str) -> Option<String> {
        phrase::translate(&self.0, english)
    }

    /// English and Korean of each.
    pub fn pairs(&self) -> &[[String; 2]] {
        &self.0
    }
}

/// Numbers and parts (`{0}`) of a text, sorted.
fn numbers(text: &str) -> Vec<&str> {
    let is_in = |c: char| c.is_ascii_digit() || ".,{}".contains(c);
    let pieces = text.split(|c| !is_in(c)).map(|w| w.trim_matches(['.', ',']));
    let mut all: Vec<&str> = pieces.filter(|w| w.contains(|c: char| c.is_ascii_digit())).collect();
    all.sort_unstable();
    all
}
