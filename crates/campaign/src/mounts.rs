//! Cuts during a mount: the power comes back, the file system is mounted on what the cut left, and
//! power fails again, at any moment until it was unmounted.
//!
//! A mount changes no file. So whatever a second cut leaves must be recovered to the files that the
//! state of the first is recovered to, also where the clean-up of orphans goes through the journal.

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_crash::{Explorer, History, Ledger, Outcome, Plan, Profile, Rule, Survivor, Violation};

use super::campaign::Campaign;
use super::play::{Played, mount};
use super::reservoir::{Reservoir, Taken};
use super::story::Cut;

/// States of a mount: all up to 6 unpersisted units; beyond that, families and samples.
const PLAN: Plan = Plan { complete: 6, pairs: 12, samples: 12, pages: Plan::PAGES, most: u64::MAX };

/// The states of a program whose mounts are cut. Up to half of them, if that number exists, are
/// states whose clean-up goes through the journal.
pub(super) struct Choice {
    most: usize,
    journaled: Reservoir,
    others: Reservoir,
}

impl Choice {
    /// Of program `number`.
    pub fn new(c: &Campaign, number: u64) -> Choice {
        let seed = c.seed ^ (number << 20);
        let most = c.mounts as usize;
        Choice {
            most,
            journaled: Reservoir::new(most.div_ceil(2), seed, "mounts with orphans"),
            others: Reservoir::new(most, seed, "mounts"),
        }
    }

    /// A state comes by.
    pub fn offer(&mut self, v: &wp_crash::Visit<'_>) {
        if v.is_new && v.outcome.refused.is_none() {
            if v.outcome.journaled { self.journaled.offer(v) } else { self.others.offer(v) }
        }
    }

    /// Those that were chosen.
    pub fn take(&mut self) -> Vec<Taken> {
        let mut taken = self.journaled.take();
        taken.extend(self.others.take());
        taken.truncate(self.most);
        taken
    }
}

/// Its outcome.
#[derive(Default)]
pub(super) struct MountCuts {
    /// Mounts that were cut.
    pub mounts: u64,
    /// States that their cuts leave, visited.
    pub raw: u64,
    /// Recovered.
    pub distinct: u64,
    /// States that come to something else, by the state that was mounted.
    pub failures: Vec<(Taken, Violation, u64)>,
}

/// Mounts each of the states of a program, and cuts that. `None`: given up.
pub(super) fn cut(
    c: &Campaign,
    played: &Rc<Played>,
    history: &History,
    states: Vec<Taken>,
    abandon: &dyn Fn() -> bool,
) -> Option<MountCuts> {
    let mut out = MountCuts::default();
    for state in states {
        if abandon() {
            return None;
        }
        let lost = state.lost(history);
        let fs = (c.bench.fs, &c.bench.fs_options);
        let medium = Cut { fs, played, history, frame: state.frame, lost: &lost }.medium();
        out.mounts += 1;
        match mount(&c.bench, played, medium) {
            Ok(again) => {
                let found = explore(c, &again, &state.outcome, &mut out, abandon)?;
                if let Some((violation, states)) = found {
                    out.failures.push((state, violation, states));
                }
            }
            // It was halted, perhaps in the middle of this mount.
            Err(_) if abandon() => return None,
            Err(e) => {
                let v = violation(Rule::Recoverable, "", e.to_string(), "a mount, as in recovery");
                out.failures.push((state, v, 1));
            }
        }
    }
    Some(out)
}

/// All states that cuts of a mount leave. The first that comes to something else than `first`, and
/// how many do. `None`: given up.
fn explore(
    c: &Campaign,
    again: &Played,
    first: &Outcome,
    out: &mut MountCuts,
    abandon: &dyn Fn() -> bool,
) -> Option<Option<(Violation, u64)>> {
    let subject = c.subject(again, c.check);
    let history = c.space.history(again);
    let mut options = c.options(PLAN, again.partition);
    (options.profile, options.keep, options.second_cuts) = (Profile::POSIX, 0, 0);
    let (mut found, mut states) = (None, 0);
    let mut explorer = Explorer::new(&subject, options);
    explorer.expect(std::iter::once(&history));
    explorer.watch(|v| {
        let Some((rule, path, seen)) = difference(first, v.outcome) else { return };
        states += 1;
        if found.is_none() {
            let live = history.frames[v.frame].live.len();
            let lost: Vec<String> =
                (0..live).filter(|i| !v.kept.has(*i)).map(|i| i.to_string()).collect();
            let seen = format!(
                "{seen} (power failure at frame {} of the mount, without [{}])",
                v.frame,
                lost.join(", ")
            );
            let expected = "the result of a mount without a power failure";
            found = Some(violation(rule, &path, seen, expected));
        }
    });
    let nobody = Ledger::new(&[], again.ledger.block_bytes() as u32);
    let whole = explorer.explore(&again.tape, &history, &nobody, &mut |_| !abandon());
    out.raw += explorer.totals.raw;
    out.distinct += explorer.totals.distinct;
    drop(explorer);
    whole.then(|| found.map(|f| (f, states)))
}

fn violation(rule: Rule, path: &str, seen: String, expected: &str) -> Violation {
    Violation { rule, path: path.to_owned(), offset: None, expected: expected.to_owned(), seen }
}

/// The first thing in which `then` is not `first`: the rule, the path, and what is there.
fn difference(first: &Outcome, then: &Outcome) -> Option<(Rule, String, String)> {
    if let Some(why) = &then.refused {
        return Some((Rule::Recoverable, String::new(), why.clone()));
    }
    if let (true, Some(fault)) = (first.faults.is_empty(), then.faults.first()) {
        return Some((Rule::Metadata, String::new(), fault.clone()));
    }
    if first.files == then.files {
        return None;
    }
    let by_path = |o: &Outcome| -> BTreeMap<String, Rc<Survivor>> {
        o.files.iter().map(|f| (f.path.clone(), f.clone())).collect()
    };
    let (a, b) = (by_path(first), by_path(then));
    let path = a.keys().chain(b.keys()).find(|p| a.get(*p) != b.get(*p))?;
    let seen = match (a.get(path), b.get(path)) {
        (Some(_), None) => "no such file".to_owned(),
        (None, Some(_)) => "the file".to_owned(),
        (Some(a), Some(b)) if a.size != b.size => {
            format!("a length of {}, {} without the power failure", b.size, a.size)
        }
        _ => "other contents or attributes".to_owned(),
    };
    Some((Rule::Recoverable, path.clone(), seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(files: &[(&str, u64)]) -> Outcome {
        let file = |(path, size): &(&str, u64)| {
            Rc::new(Survivor {
                path: (*path).to_owned(),
                kind: wp_vfs::FileType::File,
                ino: 12,
                nlink: 1,
                size: *size,
                stat: None,
                target: None,
                xattrs: Some(Vec::new()),
                blocks: Vec::new(),
                tail: None,
                allocated: None,
            })
        };
        Outcome { files: files.iter().map(file).collect(), ..Outcome::default() }
    }

    #[test]
    fn every_kind_of_difference_is_told() {
        let first = outcome(&[("a", 1), ("b", 2)]);
        let of = |then: &Outcome| difference(&first, then).map(|(r, p, s)| (r.name(), p, s));
        let is = |rule: Rule, path: &str, seen: &str| {
            Some((rule.name(), path.to_owned(), seen.to_owned()))
        };
        assert_eq!(of(&first), None);
        let shorter = is(Rule::Recoverable, "b", "a length of 1, 2 without the power failure");
        assert_eq!(of(&outcome(&[("a", 1), ("b", 1)])), shorter);
        assert_eq!(of(&outcome(&[("a", 1)])), is(Rule::Recoverable, "b", "no such file"));
        let more = outcome(&[("a", 1), ("b", 2), ("c", 0)]);
        assert_eq!(of(&more), is(Rule::Recoverable, "c", "the file"));
        let refused = Outcome { refused: Some("no".to_owned()), ..first.clone() };
        assert_eq!(of(&refused), is(Rule::Recoverable, "", "no"));
        let faulty = Outcome { faults: vec!["bit".to_owned()], ..first.clone() };
        assert_eq!(of(&faulty), is(Rule::Metadata, "", "bit"));
    }
}
