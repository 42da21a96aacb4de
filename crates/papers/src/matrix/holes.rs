//! Known holes: what may be lost in a combination though it was promised, and what fixes it.
//!
//! A failure is attributed to a hole by experiment, not by its symptom: it must be gone with all
//! holes of the combination fixed, and present with all fixed but that one. It is attributed to
//! several together if it is present with all fixed but those, and gone with any of them fixed as
//! well.

use std::borrow::Cow;
use std::collections::BTreeSet;

use wp_campaign::bugs;
use wp_crash::Rule;

use super::Combination;

/// A hole.
#[derive(Clone, Debug)]
pub struct Hole {
    /// Its number, of `crash bug`; or the name of the rule of `list eras` that fixed it.
    pub id: &'static str,
    /// Rules that it breaks.
    pub rules: &'static [Rule],
    /// Options that fix it.
    pub mend: Cow<'static, str>,
}

/// A hole of techniques and drives, and which combinations have it.
struct Known {
    id: &'static str,
    rules: &'static [Rule],
    mend: &'static str,
    is_in: fn(&Combination) -> bool,
}

const LOST: &[Rule] = &[Rule::LostSync];
const FAST: &[Rule] = &[Rule::LostSync, Rule::Metadata, Rule::Recoverable, Rule::Order];
const SHOWN: &[Rule] = &[Rule::Exposure, Rule::LostSync, Rule::Metadata, Rule::Recoverable];

fn has_fast_commits(c: &Combination) -> bool {
    c.has("fast-commit")
}

fn has_iomap(c: &Combination) -> bool {
    c.has("buffered-iomap")
}

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

/// Those of techniques and drives. What a version of a file system forgets is in the table of
/// `crash bug` ([`of_version`]).
const KNOWN: &[Known] = &[
    Known {
        id: "A3",
        rules: &[Rule::Exposure],
        mend: "files_in_map_blocks",
        is_in: |c| c.has("no-filing"),
    },
    Known {
        id: "sync_flushes",
        rules: LOST,
        mend: "sync_flushes",
        is_in: |c| c.fs.name == "ext4" && c.kernel() < (3, 11) && is_volatile(c),
    },
    Known {
        id: "A6",
        rules: &[Rule::Metadata, Rule::Recoverable, Rule::LostSync, Rule::Exposure, Rule::Order],
        mend: "nobarrier=0",
        is_in: |c| c.has("nobarrier") && is_volatile(c),
    },
    Known {
        id: "A8",
        rules: SHOWN,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| is_f2fs(c) && (c.has("posix") || c.has("strict")) && is_volatile(c),
    },
    Known {
        id: "A9",
        rules: SHOWN,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| c.has("strict") && c.drive.is_zoned() && is_volatile(c),
    },
    Known {
        id: "A11",
        rules: SHOWN,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| c.has("fsync-nobarrier") && is_volatile(c),
    },
    Known {
        id: "A21.10",
        rules: LOST,
        mend: "fsync_mode=strict_fixed",
        is_in: |c| is_f2fs(c) && (c.has("posix") || c.has("fsync-nobarrier")),
    },
    Known { id: "R1", rules: SHOWN, mend: "wait_first_node", is_in: is_f2fs },
    Known { id: "R2", rules: LOST, mend: "wait_last_node", is_in: is_strict },
    Known { id: "N3", rules: SHOWN, mend: "wait_earlier_nodes", is_in: is_strict },
    Known {
        id: "N4",
        rules: LOST,
        mend: "size_before_sync",
        is_in: |c| is_f2fs(c) && c.kernel() >= (5, 17),
    },
    Known { id: "N12", rules: LOST, mend: "fsync_alone", is_in: is_f2fs },
    Known { id: "N70", rules: LOST, mend: "sync_attributes", is_in: is_f2fs },
    Known { id: "N2", rules: LOST, mend: "mode=lfs", is_in: |c| is_f2fs(c) && !c.drive.is_zoned() },
    Known { id: "N11", rules: SHOWN, mend: "direct=log", is_in: is_past_the_cache },
    Known {
        id: "N13",
        rules: LOST,
        mend: "direct=log",
        is_in: |c| is_past_the_cache(c) && c.kernel() >= (5, 17),
    },
    Known {
        id: "H2",
        rules: LOST,
        mend: "rflush=log",
        is_in: |c| c.has("rflush-published") && is_volatile(c),
    },
    Known { id: "H1", rules: FAST, mend: "fast_fix=blocks", is_in: has_fast_commits },
    Known { id: "N33", rules: FAST, mend: "fast_fix=head", is_in: has_fast_commits },
    Known { id: "N34", rules: FAST, mend: "fast_fix=unnamed", is_in: has_fast_commits },
    Known { id: "N35", rules: FAST, mend: "fast_fix=unlinked", is_in: has_fast_commits },
    Known { id: "N36", rules: FAST, mend: "fast_fix=ineligible", is_in: has_fast_commits },
    Known { id: "N37", rules: FAST, mend: "fast_fix=untracked", is_in: has_fast_commits },
    Known { id: "N38", rules: FAST, mend: "fast_fix=directories", is_in: has_fast_commits },
    Known { id: "N39", rules: FAST, mend: "fast_fix=company", is_in: has_fast_commits },
    Known { id: "N40", rules: FAST, mend: "fast_fix=attributes", is_in: has_fast_commits },
    Known { id: "N44", rules: FAST, mend: "fast_fix=area", is_in: has_fast_commits },
    Known { id: "N45", rules: FAST, mend: "fast_fix=orphans", is_in: has_fast_commits },
    Known { id: "N55", rules: FAST, mend: "fast_fix=zeroed", is_in: has_fast_commits },
    Known { id: "N60", rules: &[Rule::SizeAhead], mend: "iomap_fix=tail", is_in: has_iomap },
    Known { id: "N61", rules: &[Rule::SizeAhead], mend: "iomap_fix=length", is_in: has_iomap },
    Known { id: "N62", rules: &[Rule::Errors], mend: "iomap_fix=errors", is_in: has_iomap },
    Known {
        id: "N32",
        rules: LOST,
        mend: "size_before_sync",
        is_in: |c| c.fs.name == "ext4" && c.kernel() >= (5, 5),
    },
];

/// Numbers and names of all holes, in the order of reports.
pub fn ids() -> impl Iterator<Item = &'static str> {
    let of_versions = bugs::all().filter(|b| b.rule_name.is_some()).map(|b| b.id);
    KNOWN.iter().map(|h| h.id).chain(of_versions)
}

/// What a hole is, in words; nothing of one that there is not.
pub fn what(id: &str) -> String {
    if let Some(bug) = bugs::find(id) {
        return bug.what.to_owned();
    }
    let rules = (wp_ext4::ENTRY.eras)("3.4").unwrap_or_default();
    let rule = rules.iter().find(|r| r.name == id);
    rule.map_or(String::new(), |r| format!("missing before {}: {}", r.from, r.what))
}

/// What the version of a combination forgets to make durable: rules of `list eras` that have a
/// program of `crash bug` and are as in its affected version. `fix` has each from the newest one.
fn of_version(c: &Combination) -> Vec<Hole> {
    let holds = |era: &str, rule: &str| {
        let rules = (c.fs.eras)(era).unwrap_or_default();
        rules.iter().find(|r| r.name == rule).map(|r| r.holds)
    };
    let affects = |bug: &'static bugs::Bug| {
        let rule = bug.rule_name?;
        if rule.starts_with("fast_") && !has_fast_commits(c) {
            return None;
        }
        let [(fs, affected), (_, fixed)] = bugs::versions_of(bug)?;
        if fs != c.fs.name || c.fs.options.iter().all(|o| o.key != "fix") {
            return None;
        }
        let lacks = holds(c.era, rule) == holds(affected, rule);
        let differs = holds(affected, rule) != holds(fixed, rule);
        (lacks && differs).then(|| Hole {
            id: bug.id,
            rules: std::slice::from_ref(&bug.rule),
            mend: format!("fix={rule}").into(),
        })
    };
    bugs::all().filter_map(affects).collect()
}

/// Those that a combination has.
pub fn of(c: &Combination) -> Vec<Hole> {
    let known = KNOWN.iter().filter(|h| (h.is_in)(c));
    // A FLUSH of a last node cannot be narrowed, and what it hides has to show.
    let narrowed = c.has("rflush") || c.has("rflush-published");
    let mend = |mend: &'static str| match narrowed && mend.starts_with("fsync_mode=") {
        true => Cow::from("fsync_mode=posix_fixed"),
        false => mend.into(),
    };
    let known = known.map(|h| Hole { id: h.id, rules: h.rules, mend: mend(h.mend) });
    known.chain(of_version(c)).collect()
}

/// Options that fix these, each once. Some fixes change the mode of fsync to one that has holes of
/// its own: those are fixed, too.
pub fn mends(c: &Combination, holes: &[Hole]) -> Vec<String> {
    let of_strict = ["wait_last_node", "wait_earlier_nodes"];
    let more = of_strict.into_iter().filter(|_| is_f2fs(c)).map(str::to_owned);
    let all: BTreeSet<String> = holes.iter().map(|h| h.mend.to_string()).chain(more).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hole_is_a_bug_that_can_be_shown_and_its_mend_an_option() {
        let all = super::super::combinations();
        for known in KNOWN {
            let holes = |c: &&Combination| of(c).iter().any(|h| h.id == known.id);
            let c = all.iter().find(holes);
            let c = c.unwrap_or_else(|| panic!("{}: in no combination", known.id));
            let hole = of(c).into_iter().find(|h| h.id == known.id).expect("found just now");
            assert!(!what(hole.id).is_empty(), "{} is not in `crash bug`", hole.id);
            assert!(c.options(&[&hole.mend]).is_ok(), "{}: {}", hole.id, hole.mend);
        }
    }

    #[test]
    fn a_version_has_the_holes_of_its_durability_rules_and_no_others() {
        let of_era = |era: &str| {
            let all = super::super::combinations();
            let c = all.into_iter().find(|c| c.fs.name == "ext4" && c.era == era);
            let c = c.expect("a combination of the era");
            let holes = of_version(&c);
            let mends = mends(&c, &holes);
            let mends: Vec<&str> = mends.iter().map(String::as_str).collect();
            // All of them at once are one option.
            let options = c.options(&mends).expect("options");
            assert_eq!(
                options.get("fix", c.fs.options).unwrap_or_default().is_empty(),
                era == "6.18"
            );
            holes.iter().map(|h| h.id).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of_era("3.4"), "V1 V2 V3 V4 V5 V6 V7 V8 V25 V26");
        assert_eq!(of_era("3.8"), "V3 V4 V5 V6 V7 V8 V25 V26");
        assert_eq!(of_era("4.6"), "V5 V6 V7 V8 V26");
        assert_eq!(of_era("5.10"), "V9");
        assert_eq!(of_era("6.18"), "");
    }
}
