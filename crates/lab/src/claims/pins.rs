//! Pinned verdicts: `papers/verdicts.toml` says what each claim's verdict is, so that a change of
//! one is a reviewed diff.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;
use std::path::Path;

use super::{ClaimError, Judged, Verdict};

/// Pinned verdicts: paper -> claim -> verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins(pub(super) BTreeMap<String, BTreeMap<String, Verdict>>);

/// A claim whose verdict is not the pinned one.
#[derive(Clone, Debug, PartialEq)]
pub struct VerdictChange {
    /// Slug of the paper.
    pub paper: String,
    /// Id of the claim.
    pub id: String,
    /// What is pinned; `None` for a claim that is new.
    pub pinned: Option<Verdict>,
    /// What the run says; `None` for a pinned claim that it did not emit.
    pub now: Option<Verdict>,
}

impl fmt::Display for VerdictChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |verdict: Option<Verdict>| verdict.map_or("nothing", Verdict::name);
        let (pinned, now) = (name(self.pinned), name(self.now));
        write!(f, "{} {}: pinned {pinned}, now {now}", self.paper, self.id)
    }
}

/// What the file says about itself; kept when it is rewritten.
const HEAD: &str = "\
# The verdict of every claim that `reproduce` emits, so that a change of verdict is a reviewed diff.
# Compared by the tests; rewritten by a run with WRITEPATH_BLESS=1. \
Table: paper; key: claim; value: verdict.
";

impl Pins {
    /// The pins that were compiled in.
    pub fn committed() -> Pins {
        Pins::parse(super::VERDICTS_TOML).expect("a test parses the committed file")
    }

    /// The pinned verdict of a claim.
    pub fn of(&self, paper: &str, id: &str) -> Option<Verdict> {
        self.0.get(paper)?.get(id).copied()
    }

    /// Ids of a paper's claims, sorted.
    pub fn ids(&self, paper: &str) -> impl Iterator<Item = &str> {
        self.0.get(paper).into_iter().flat_map(|claims| claims.keys().map(String::as_str))
    }

    /// Reads a pin file.
    pub fn parse(text: &str) -> Result<Pins, ClaimError> {
        toml::from_str(text).map(Pins).map_err(|e| ClaimError::Syntax(e.to_string()))
    }

    /// Every claim of the paper whose verdict changed, came or went, in order of id.
    pub fn compare(&self, paper: &str, judged: &[Judged]) -> Vec<VerdictChange> {
        let none = BTreeMap::new();
        let pinned = self.0.get(paper).unwrap_or(&none);
        let now: BTreeMap<&str, Verdict> =
            judged.iter().map(|judged| (judged.id.as_str(), judged.verdict)).collect();
        let mut ids: Vec<&str> =
            pinned.keys().map(String::as_str).chain(now.keys().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        let change = |id: &&str| VerdictChange {
            paper: paper.to_owned(),
            id: (*id).to_owned(),
            pinned: pinned.get(*id).copied(),
            now: now.get(*id).copied(),
        };
        ids.iter().map(change).filter(|change| change.pinned != change.now).collect()
    }

    /// Replaces the pins of the paper by these verdicts.
    pub fn set(&mut self, paper: &str, judged: &[Judged]) {
        let verdicts = judged.iter().map(|judged| (judged.id.clone(), judged.verdict));
        self.0.insert(paper.to_owned(), verdicts.collect());
    }

    /// The file, one line a claim.
    pub fn to_toml(&self) -> String {
        let mut text = HEAD.to_owned();
        for (paper, verdicts) in &self.0 {
            write!(text, "\n[{paper}]\n").expect("a string takes all");
            for (id, verdict) in verdicts {
                writeln!(text, "{id:?} = {:?}", verdict.name()).expect("a string takes all");
            }
        }
        text
    }
}

/// Compares the verdicts of a paper with the pin file, or rewrites its part when `bless`.
///
/// Errors: `Host` if the file cannot be read or written, `Syntax` if it is none.
pub fn check_pins(
    file: &Path,
    paper: &str,
    judged: &[Judged],
    bless: bool,
) -> Result<Vec<VerdictChange>, ClaimError> {
    let host = |e: std::io::Error| ClaimError::Host(format!("{}: {e}", file.display()));
    let mut pins = Pins::parse(&std::fs::read_to_string(file).map_err(host)?)?;
    if !bless {
        return Ok(pins.compare(paper, judged));
    }
    pins.set(paper, judged);
    std::fs::write(file, pins.to_toml()).map_err(host)?;
    Ok(Vec::new())
}
