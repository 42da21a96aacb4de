//! What of the drive's times a claim needs to hold: all of them, those of a FLUSH alone, or none.
//!
//! Each paper's experiment runs as it is on drives on which fewer times count
//! ([`wp_machine::scale::Times`]). A claim that holds with a FLUSH alone follows from what
//! a FLUSH costs and from how many there are; the rest of the drive has no part in it. One that
//! holds with no time at all is about what is sent, or about the host.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use wp_machine::MachineError;
pub use wp_report::claim::Needs;
use wp_report::claim::{Judged, Verdict};

use crate::{direct_io, ext4_fsync, f2fs_oprw, inode_trim, journal_conflict};

/// The papers, in the order in which they are run.
pub const PAPERS: [&str; 5] =
    [ext4_fsync::SLUG, f2fs_oprw::SLUG, direct_io::SLUG, inode_trim::SLUG, journal_conflict::SLUG];

/// What is changed for each drive, as [`wp_machine::scale::Scale::parse`] reads it: nothing; all
/// times but those of a FLUSH left out; all times left out.
const DRIVES: [&str; 3] = ["times=all", "times=flush", "times=none"];

/// The drives on which a paper runs, as [`wp_machine::scale::Scale::parse`] reads them. The threads
/// of journal-conflict run for a time, and a drive that answers at once lets them do so much in it
/// that the run does not end.
pub fn drives(slug: &str) -> &'static [&'static str] {
    if slug == journal_conflict::SLUG { &DRIVES[..2] } else { &DRIVES }
}

/// The claims of one paper on the drives of this process ([`wp_machine::scale`]), without those of
/// power failures in ext4-fsync.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "schema", rename = "writepath.perturb.claims/1")]
pub struct Claims {
    /// What is changed.
    pub device_scale: String,
    /// Slug of the paper.
    pub paper: String,
    /// Seed of every random stream.
    pub seed: u64,
    /// Judged claims.
    pub claims: Vec<Judged>,
}

/// Runs a paper's experiment, whole; `progress` as the paper's own. `None`: stopped by it.
///
/// Errors: as the machines'; a paper that nobody knows.
pub fn judged(
    slug: &str,
    seed: u64,
    progress: &mut dyn FnMut(usize, usize, &str) -> bool,
) -> Result<Option<Vec<Judged>>, MachineError> {
    Ok(match slug {
        ext4_fsync::SLUG => {
            ext4_fsync::reproduce(seed, false, Vec::new(), progress)?.map(|r| r.claims)
        }
        f2fs_oprw::SLUG => {
            let plan = f2fs_oprw::Plan { seed, quick: false, cuts: None, workers: 1 };
            match f2fs_oprw::reproduce(&plan, &|_, _, _| true)? {
                f2fs_oprw::Ended::Whole(found) => Some(found.claims),
                f2fs_oprw::Ended::Stopped(_) => None,
            }
        }
        direct_io::SLUG => direct_io::reproduce(seed, false, progress)?.map(|r| r.claims),
        inode_trim::SLUG => inode_trim::reproduce(seed, false, progress)?.map(|r| r.claims),
        journal_conflict::SLUG => {
            journal_conflict::reproduce(seed, false, progress)?.map(|r| r.claims)
        }
        _ => return Err(MachineError::Config(format!("no paper called `{slug}`"))),
    })
}

/// What the file says about itself.
const HEAD: &str = "\
# What of the drive's times each claim needs to hold: nothing, flush or drive.
# Compared by `writepath perturb --claims`; rewritten by a run of it with WRITEPATH_BLESS=1.
# Table: paper; key: claim. A claim that does not hold in a run without power failures has none.
";

/// What each claim needs, as pinned: paper -> claim -> times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins(BTreeMap<String, BTreeMap<String, Needs>>);

impl Pins {
    /// The pins that were compiled in: `papers/needs.toml`.
    pub fn committed() -> Pins {
        let text = include_str!("../../../../papers/needs.toml");
        Pins(toml::from_str(text).expect("a test parses the committed file"))
    }

    /// What a claim needs.
    pub fn of(&self, paper: &str, id: &str) -> Option<Needs> {
        self.0.get(paper)?.get(id).copied()
    }

    /// How many claims of a paper are pinned.
    pub fn of_paper(&self, paper: &str) -> impl Iterator<Item = (&str, Needs)> {
        self.0.get(paper).into_iter().flatten().map(|(id, needs)| (id.as_str(), *needs))
    }

    /// Replaces those of a paper.
    pub fn set(&mut self, paper: &str, found: impl Iterator<Item = (String, Needs)>) {
        self.0.insert(paper.to_owned(), found.collect());
    }

    /// The file, one line a claim.
    pub fn to_toml(&self) -> String {
        let mut text = HEAD.to_owned();
        for (paper, claims) in &self.0 {
            write!(text, "\n[{paper}]\n").expect("a string takes all");
            for (id, needs) in claims {
                writeln!(text, "{id:?} = {:?}", needs.name()).expect("a string takes all");
            }
        }
        text
    }
}

/// A claim on the three drives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Slug of the paper.
    pub paper: String,
    /// Id of the claim.
    pub id: String,
    /// Its values on [`drives`].
    pub ours: Vec<Option<f64>>,
    /// Its verdicts there.
    pub verdicts: Vec<Verdict>,
    /// What follows, if the claim holds on the whole drive.
    pub needs: Option<Needs>,
    /// What is pinned.
    pub pinned: Option<Needs>,
}

/// The rows of a paper: its claims on each of its [`drives`], without those that the whole drive
/// does not judge. Errors: a claim that is not on every drive; no drive.
pub fn rows(on: &[Claims], pins: &Pins) -> Result<Vec<Row>, String> {
    let whole = on.first().ok_or("no drive was measured")?;
    let row = |c: &Judged| {
        let find = |claims: &'_ Claims| claims.claims.iter().position(|o| o.id == c.id);
        let found = on.iter().map(|claims| find(claims).map(|at| &claims.claims[at]));
        let all: Option<Vec<&Judged>> = found.collect();
        let lacks = || format!("{} {}: a drive lacks this claim", whole.paper, c.id);
        let all = all.ok_or_else(lacks)?;
        let verdicts: Vec<Verdict> = all.iter().map(|j| j.verdict).collect();
        Ok(Row {
            paper: whole.paper.clone(),
            id: c.id.clone(),
            ours: all.iter().map(|j| j.ours).collect(),
            needs: Needs::of(&verdicts),
            verdicts,
            pinned: pins.of(&whole.paper, &c.id),
        })
    };
    whole.claims.iter().filter(|c| c.verdict != Verdict::NotModelled).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_the_least_with_which_it_holds() {
        use Verdict::{Differs, FollowsFromInputs, Match};
        assert_eq!(Needs::of(&[Match, Match, Match]), Some(Needs::Nothing));
        assert_eq!(Needs::of(&[Match, Match, Differs]), Some(Needs::Flush));
        assert_eq!(Needs::of(&[Match, Differs, Differs]), Some(Needs::Drive));
        assert_eq!(Needs::of(&[Match, FollowsFromInputs, Differs]), Some(Needs::Flush));
        assert_eq!(Needs::of(&[Differs, Differs, Differs]), None, "it holds nowhere");
        assert_eq!(Needs::of(&[Match, Match]), Some(Needs::Flush), "no run without time");
        assert!(Needs::ALL.iter().all(|n| serde_json::json!(n) == n.name()));
    }

    #[test]
    fn the_committed_file_is_as_it_would_be_written_and_has_every_paper() {
        let pins = Pins::committed();
        assert_eq!(pins.to_toml(), include_str!("../../../../papers/needs.toml"));
        let verdicts = crate::claims::Pins::committed();
        for paper in PAPERS {
            let known: Vec<&str> = verdicts.ids(paper).collect();
            assert!(pins.of_paper(paper).count() > 0, "{paper}");
            assert!(pins.of_paper(paper).all(|(id, _)| known.contains(&id)), "{paper}");
        }
    }
}
