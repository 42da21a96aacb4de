//! Differences between two runs, and the list of those that we know and can explain.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ReferenceError;
use super::summary::{ClassSummary, Issuer, Moment, Phase, RunSummary};

/// Two moments are the same if their ends are no further apart than this.
const SAME_SECOND_NS: i64 = 1_000_000_000;
/// The class under which filings are listed.
const FILED_CLASS: &str = "file_inode";

/// In what two runs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// How many blocks.
    Blocks,
    /// Who dispatched them, the number being the same.
    Issuer,
    /// The RWBS flags.
    Flags,
    /// When, by more than a second, or in other portions.
    Seconds,
    /// How often an inode was filed.
    Filed,
    /// In which order.
    Order,
    /// Whether it can be run at all.
    Run,
}

impl What {
    /// The word that stands in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            What::Blocks => "blocks",
            What::Issuer => "issuer",
            What::Flags => "flags",
            What::Seconds => "seconds",
            What::Filed => "filed",
            What::Order => "order",
            What::Run => "run",
        }
    }
}

/// One difference between a run of ours and the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the recorded run, e.g. `linux-3.4/cfq_alloc_N10`.
    pub run: String,
    /// Phase.
    pub phase: Phase,
    /// Class of blocks; `file_inode` for filings.
    pub class: String,
    /// In what they differ.
    pub what: What,
    /// Ours.
    pub ours: String,
    /// The kernel's.
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { run, phase, class, what, ours, theirs } = self;
        let (phase, what) = (phase.name(), what.name());
        write!(f, "{run} {phase} {class} {what}: Writepath {ours}, Linux {theirs}")
    }
}

impl Difference {
    /// The entry for `differences.toml`, its function and reason still to be found.
    pub fn to_toml(&self) -> String {
        let Difference { run, phase, class, what, ours, theirs } = self;
        let (phase, what) = (phase.name(), what.name());
        format!(
            "[[difference]]\nrun = {run:?}\nphase = {phase:?}\nclass = {class:?}\n\
             what = {what:?}\nours = {ours:?}\ntheirs = {theirs:?}\n\
             kernel_function = \"\"\nwhy = \"\"\n"
        )
    }
}

/// Every difference between our run and the kernel's, in order of phase, class and kind.
///
/// Of a class that differs in blocks neither issuers nor moments are listed besides: they cannot
/// be the same. A class that only one side has is a difference in blocks.
pub fn compare(run: &str, ours: &RunSummary, theirs: &RunSummary) -> Vec<Difference> {
    let none = BTreeMap::new();
    let mut differences = Vec::new();
    for phase in Phase::ALL {
        let (our, their) =
            (ours.phases.get(&phase).unwrap_or(&none), theirs.phases.get(&phase).unwrap_or(&none));
        let classes: BTreeSet<&String> = our.keys().chain(their.keys()).collect();
        for class in classes {
            for (what, ours, theirs) in compare_class(our.get(class), their.get(class)) {
                let (run, class) = (run.to_owned(), class.clone());
                differences.push(Difference { run, phase, class, what, ours, theirs });
            }
        }
        let (filed, expected) = (ours.filed.of(phase), theirs.filed.of(phase));
        if filed != expected {
            differences.push(Difference {
                run: run.to_owned(),
                phase,
                class: FILED_CLASS.to_owned(),
                what: What::Filed,
                ours: filed.to_string(),
                theirs: expected.to_string(),
            });
        }
    }
    differences
}

fn compare_class(
    ours: Option<&ClassSummary>,
    theirs: Option<&ClassSummary>,
) -> Vec<(What, String, String)> {
    let empty = ClassSummary::default();
    let (ours, theirs) = (ours.unwrap_or(&empty), theirs.unwrap_or(&empty));
    let mut found = Vec::new();
    if ours.blocks() != theirs.blocks() {
        found.push((What::Blocks, issuers_text(ours), issuers_text(theirs)));
        if ours.by.is_empty() || theirs.by.is_empty() {
            return found;
        }
    } else if blocks_by_issuer(ours) != blocks_by_issuer(theirs) {
        found.push((What::Issuer, issuers_text(ours), issuers_text(theirs)));
    }
    let same_issuers = ours.by.keys().eq(theirs.by.keys());
    if flags(ours, same_issuers) != flags(theirs, same_issuers) {
        found.push((What::Flags, flags_text(ours), flags_text(theirs)));
    }
    if ours.blocks() == theirs.blocks() && !same_moments(&ours.moments, &theirs.moments) {
        found.push((What::Seconds, seconds_text(ours), seconds_text(theirs)));
    }
    found
}

fn blocks_by_issuer(class: &ClassSummary) -> Vec<(&Issuer, u32)> {
    class.by.iter().map(|(issuer, share)| (issuer, share.blocks)).collect()
}

/// Flags with who used them; without, where the issuers differ (which is listed by itself).
fn flags(class: &ClassSummary, by_issuer: bool) -> BTreeSet<(Option<&Issuer>, &str)> {
    let tag = |issuer| by_issuer.then_some(issuer);
    let pairs = class.by.iter().flat_map(|(issuer, share)| {
        share.flags.iter().map(move |flag| (tag(issuer), flag.as_str()))
    });
    pairs.collect()
}

fn same_moments(ours: &[Moment], theirs: &[Moment]) -> bool {
    let near = |a: i64, b: i64| (a - b).abs() <= SAME_SECOND_NS;
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).all(|(ours, theirs)| {
            ours.blocks == theirs.blocks
                && near(ours.first_ns, theirs.first_ns)
                && near(ours.last_ns, theirs.last_ns)
        })
}

/// `33 flusher, 66 swapper`; `0` for nothing.
pub(super) fn issuers_text(class: &ClassSummary) -> String {
    if class.by.is_empty() {
        return "0".to_owned();
    }
    let parts = class.by.iter().map(|(issuer, share)| format!("{} {issuer}", share.blocks));
    parts.collect::<Vec<_>>().join(", ")
}

/// `WS` if all issuers use the same flags, else `fsync WS, flusher W`.
pub(super) fn flags_text(class: &ClassSummary) -> String {
    let join =
        |flags: &BTreeSet<String>| flags.iter().map(String::as_str).collect::<Vec<_>>().join("/");
    let mut kinds: Vec<String> = class.by.values().map(|share| join(&share.flags)).collect();
    kinds.dedup();
    if kinds.len() == 1 {
        return kinds.remove(0);
    }
    let parts = class.by.iter().map(|(issuer, share)| format!("{issuer} {}", join(&share.flags)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Whole seconds, rounded: `30`, `5-7` for a moment that lasts, `9 at 5, 1 at 30` for two.
pub(super) fn seconds_text(class: &ClassSummary) -> String {
    let round = |ns: i64| (ns + 500_000_000).div_euclid(1_000_000_000);
    let span = |moment: &Moment| match (round(moment.first_ns), round(moment.last_ns)) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    match class.moments.as_slice() {
        [one] => span(one),
        many => {
            let parts = many.iter().map(|moment| format!("{} at {}", moment.blocks, span(moment)));
            parts.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A difference that we know, with the function of the kernel that makes it and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedDifference {
    /// Name of the recorded run.
    pub run: String,
    /// Phase.
    pub phase: Phase,
    /// Class of blocks.
    pub class: String,
    /// In what they differ.
    pub what: What,
    /// Ours.
    pub ours: String,
    /// The kernel's.
    pub theirs: String,
    /// What in the kernel makes it so.
    pub kernel_function: String,
    /// Why ours does not.
    pub why: String,
}

impl ListedDifference {
    fn difference(&self) -> Difference {
        Difference {
            run: self.run.clone(),
            phase: self.phase,
            class: self.class.clone(),
            what: self.what,
            ours: self.ours.clone(),
            theirs: self.theirs.clone(),
        }
    }
}

/// Reads `differences.toml`.
///
/// Errors: not such a file; an entry twice, or without a function or a reason.
pub fn parse_differences(text: &str) -> Result<Vec<ListedDifference>, ReferenceError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        difference: Vec<ListedDifference>,
    }
    let file: File = toml::from_str(text).map_err(|e| ReferenceError(e.to_string()))?;
    let mut seen = BTreeSet::new();
    for listed in &file.difference {
        let difference = listed.difference();
        if listed.kernel_function.trim().is_empty() || listed.why.trim().is_empty() {
            return Err(ReferenceError(format!("no function or no reason: {difference}")));
        }
        if !seen.insert(difference.clone()) {
            return Err(ReferenceError(format!("listed twice: {difference}")));
        }
    }
    Ok(file.difference)
}

/// Where the list and the runs disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A difference that is not listed.
    Unlisted(Difference),
    /// An entry that no run shows any more.
    Stale(Difference),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unlisted(difference) => write!(f, "unlisted: {difference}"),
            Finding::Stale(difference) => write!(f, "stale: {difference}"),
        }
    }
}

/// Compares the list with the differences found in the runs `ran`.
///
/// An entry is judged only if its run was run, so that a few runs can be compared alone.
pub fn check_differences(
    listed: &[ListedDifference],
    found: &[Difference],
    ran: &[&str],
) -> Vec<Finding> {
    let known: BTreeSet<Difference> = listed.iter().map(ListedDifference::difference).collect();
    let found: BTreeSet<&Difference> = found.iter().collect();
    let unlisted = found.iter().filter(|difference| !known.contains(**difference));
    let stale = known
        .iter()
        .filter(|difference| ran.contains(&difference.run.as_str()) && !found.contains(difference));
    unlisted
        .map(|difference| Finding::Unlisted((*difference).clone()))
        .chain(stale.map(|difference| Finding::Stale(difference.clone())))
        .collect()
}
