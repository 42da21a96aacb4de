//! Pinned verdicts: `papers/verdicts.toml` says what each claim's verdict is, so that a change of
//! one is a reviewed diff.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;
use std::path::Path;

use wp_base::plain::Shown as _;
use wp_report::claim::{Judged, Verdict};

use super::ClaimError;

/// Pinned verdicts: paper -> claim -> verdict; of quick runs those that are others, under
/// `paper --quick`.
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
# A table `paper --quick` has the claims that a quick run judges otherwise.
";

impl Pins {
    /// The pins that were compiled in.
    pub fn committed() -> Pins {
        Pins::parse(super::VERDICTS_TOML).expect("a test parses the committed file")
    }

    /// The pinned verdict of a claim, in a quick run or a whole one.
    pub fn of(&self, paper: &str, id: &str, quick: bool) -> Option<Verdict> {
        let of_quick = self.0.get(&quick_table(paper)).filter(|_| quick);
        let other = of_quick.and_then(|claims| claims.get(id));
        other.or_else(|| self.0.get(paper)?.get(id)).copied()
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
    pub fn compare(&self, paper: &str, judged: &[Judged], quick: bool) -> Vec<VerdictChange> {
        let pinned: BTreeMap<&str, Verdict> = self
            .ids(paper)
            .filter_map(|id| self.of(paper, id, quick).map(|verdict| (id, verdict)))
            .collect();
        let now: BTreeMap<&str, Verdict> =
            judged.iter().map(|judged| (judged.id.as_str(), judged.verdict)).collect();
        let mut ids: Vec<&str> = pinned.keys().chain(now.keys()).copied().collect();
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

    /// Replaces the pins of the paper by these verdicts; those of a quick run where they are
    /// others than the whole one's.
    pub fn set(&mut self, paper: &str, judged: &[Judged], quick: bool) {
        let is_other = |j: &&Judged| !quick || self.of(paper, &j.id, false) != Some(j.verdict);
        let kept = judged.iter().filter(is_other);
        let verdicts: BTreeMap<String, Verdict> =
            kept.map(|judged| (judged.id.clone(), judged.verdict)).collect();
        let table = if quick { quick_table(paper) } else { paper.to_owned() };
        match verdicts.is_empty() {
            true => drop(self.0.remove(&table)),
            false => drop(self.0.insert(table, verdicts)),
        }
    }

    /// The file, one line a claim.
    pub fn to_toml(&self) -> String {
        let mut text = HEAD.to_owned();
        for (paper, verdicts) in &self.0 {
            let name = if paper.contains(' ') { format!("{paper:?}") } else { paper.clone() };
            write!(text, "\n[{name}]\n").expect("a string takes all");
            for (id, verdict) in verdicts {
                writeln!(text, "{id:?} = {:?}", verdict.name()).expect("a string takes all");
            }
        }
        text
    }
}

/// The table of what quick runs judge otherwise.
fn quick_table(paper: &str) -> String {
    format!("{paper} --quick")
}

/// Compares the verdicts of a paper, of a quick run or a whole one, with the pin file, or rewrites
/// its part when `bless`.
///
/// Errors: `Host` if the file cannot be read or written, `Syntax` if it is none.
pub fn check_pins(
    file: &Path,
    paper: &str,
    judged: &[Judged],
    quick: bool,
    bless: bool,
) -> Result<Vec<VerdictChange>, ClaimError> {
    let host = |e: std::io::Error| ClaimError::Host(format!("{}: {e}", file.shown()));
    let mut pins = Pins::parse(&std::fs::read_to_string(file).map_err(host)?)?;
    if !bless {
        return Ok(pins.compare(paper, judged, quick));
    }
    pins.set(paper, judged, quick);
    std::fs::write(file, pins.to_toml()).map_err(host)?;
    Ok(Vec::new())
}
