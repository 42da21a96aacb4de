//! Known holes: what may be lost in a combination though it was promised, and what fixes it.
//!
//! A failure is attributed to a hole by experiment, not by its symptom: it must be gone with all
//! holes of the combination fixed, and present with all fixed but that one. It is attributed to
//! several together if it is present with all fixed but those, and gone with any of them fixed as
//! well.

use std::collections::BTreeSet;

use wp_crash::Rule;

use super::Combination;
use crate::crash::bugs;

/// A hole.
pub struct Hole {
    /// Its number, of `crash --bug`; or the name of the rule of `list eras` that fixed it.
    pub id: &'static str,
    /// Rules that it breaks.
    pub rules: &'static [Rule],
    /// Options that fix it.
    pub mend: &'static str,
    /// Does a combination have it?
    pub is_in: fn(&Combination) -> bool,
}

const LOST: &[Rule] = &[Rule::LostSync];
const SHOWN: &[Rule] = &[Rule::Exposure, Rule::LostSync, Rule::Metadata, Rule::Recoverable];

fn is_volatile(c: &Combination) -> bool {
    c.drive.is_volatile()
}

fn is_f2fs(c: &Combination) -> bool {
    c.fs.name == "f2fs"
}

/// One node with the mark, by one of the strict modes.
fn is_strict(c: &Combination) -> bool {
    c.has("strict") || c.has("strict-fixed")
}

/// F2FS' direct writes as Linux has them, past the cache.
fn is_past_the_cache(c: &Combination) -> bool {
    c.has("direct-in-place") && !c.drive.is_zoned()
}

/// All that combinations of the matrix can have.
pub const HOLES: &[Hole] = &[
    Hole {
        id: "A3",
        rules: &[Rule::Exposure],
        mend: "files_in_map_blocks",
        is_in: |c| c.has("no-filing"),
    },
    Hole {
        id: "sync_flushes",
        rules: LOST,
        mend: "sync_flushes",
        is_in: |c| c.fs.name == "ext4" && c.kernel() < (3, 11) && is_volatile(c),
    },
    Hole {
        id: "A6",
        rules: &[Rule::Metadata, Rule::Recoverable, Rule::LostSync, Rule::Exposure, Rule::Order],
        mend: "nobarrier=0",
        is_in: |c| c.has("nobarrier") && is_volatile(c),
    },
    Hole {
        id: "A8",
        rules: SHOWN,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| is_f2fs(c) && (c.has("posix") || c.has("strict")) && is_volatile(c),
    },
    Hole {
        id: "A9",
        rules: SHOWN,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| c.has("strict") && c.drive.is_zoned() && is_volatile(c),
    },
    Hole {
        id: "A11",
        rules: SHOWN,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| c.has("fsync-nobarrier") && is_volatile(c),
    },
    Hole {
        id: "A21.10",
        rules: LOST,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| is_f2fs(c) && (c.has("posix") || c.has("fsync-nobarrier")),
    },
    Hole { id: "R1", rules: SHOWN, mend: "wait_first_node", is_in: is_f2fs },
    Hole { id: "R2", rules: LOST, mend: "wait_last_node", is_in: is_strict },
    Hole { id: "N3", rules: SHOWN, mend: "wait_earlier_nodes", is_in: is_strict },
    Hole {
        id: "N4",
        rules: LOST,
        mend: "size_before_sync",
        is_in: |c| is_f2fs(c) && c.kernel() >= (5, 17),
    },
    Hole { id: "N12", rules: LOST, mend: "fsync_alone", is_in: is_f2fs },
    Hole { id: "N2", rules: LOST, mend: "mode=lfs", is_in: |c| is_f2fs(c) && !c.drive.is_zoned() },
    Hole { id: "N11", rules: SHOWN, mend: "direct=log", is_in: is_past_the_cache },
    Hole {
        id: "N13",
        rules: LOST,
        mend: "direct=log",
        is_in: |c| is_past_the_cache(c) && c.kernel() >= (5, 17),
    },
];

impl Hole {
    /// What it is, in words.
    pub fn what(&self) -> String {
        if let Some(bug) = bugs::find(self.id) {
            return bug.what.to_owned();
        }
        let rules = (wp_ext4::ENTRY.eras)("3.4").unwrap_or_default();
        let rule = rules.iter().find(|r| r.name == self.id);
        rule.map_or(String::new(), |r| format!("missing before {}: {}", r.from, r.what))
    }
}

/// Those that a combination has.
pub fn of(c: &Combination) -> Vec<&'static Hole> {
    HOLES.iter().filter(|h| (h.is_in)(c)).collect()
}

/// Options that fix all of them, each once. Some fixes change the mode of fsync to one that has
/// holes of its own: those are fixed, too.
pub fn mends(c: &Combination) -> Vec<&'static str> {
    let of_strict = ["wait_last_node", "wait_earlier_nodes"];
    let more = of_strict.into_iter().filter(|_| is_f2fs(c));
    let all: BTreeSet<&str> = of(c).iter().map(|h| h.mend).chain(more).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hole_is_a_bug_that_can_be_shown_and_its_mend_an_option() {
        let all = super::super::combinations();
        for hole in HOLES {
            assert!(!hole.what().is_empty(), "{} is not in `crash --bug`", hole.id);
            let c = all.iter().find(|c| of(c).iter().any(|h| h.id == hole.id));
            let c = c.unwrap_or_else(|| panic!("{}: in no combination", hole.id));
            assert!(c.options(&[hole.mend]).is_ok(), "{}: {}", hole.id, hole.mend);
        }
    }
}
