//! O9: the same program in two settings, cut at the same calls: what can be left in one and not in
//! the other.
//!
//! Picture:    program -> run here, run there -> every state of each that a cut between two calls
//!             can leave -> recovered trees by boundary -> two sets -> what is in one alone.
//! Invariants: 1. two trees are the same if names, kinds, lengths, link targets, which names are
//!                links of one another, and contents are; inode numbers and places are not
//!                compared, and neither is what an old block holds that the program never wrote;
//!             2. a state counts at boundary `n` if the power can go between the return of call
//!                `n` and the next one, and leave it.
//! Left out:   cuts within calls: the two runs are at different points of them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use wp_crash::{Explorer, Ledger, Outcome, Survivor, judge};
use wp_machine::MachineError;
use wp_vfs::FileType;

use super::calls::Calls;
use super::campaign::Campaign;
use super::play::{Played, play};

/// A tree that recovery can leave, in words; equal texts, equal trees.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tree(pub String);

/// What can be left at a boundary.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Boundary {
    /// Calls that have returned.
    pub calls: u32,
    /// The last of them.
    pub after: String,
    /// Trees in each setting.
    pub trees: [usize; 2],
    /// Of these: those that break a rule there.
    pub broken: [usize; 2],
    /// Trees in one alone, with the rule that each breaks, if any.
    pub only: [Vec<(Tree, Option<&'static str>)>; 2],
}

/// What came of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    /// Boundaries, from before the first call to after the last.
    pub boundaries: Vec<Boundary>,
    /// Crash points of each setting whose states were only sampled: a tree in one setting alone may
    /// be one that was not reached in the other.
    pub sampled: [u64; 2],
    /// States explored.
    pub states: [u64; 2],
    /// What the calls answered.
    pub calls: [Calls; 2],
}

impl Compared {
    /// Is anything in one setting alone?
    pub fn differs(&self) -> bool {
        self.boundaries.iter().any(|b| b.only.iter().any(|o| !o.is_empty()))
    }
}

/// Trees at each boundary, with the rule broken.
type Sets = Vec<BTreeMap<Tree, Option<&'static str>>>;

/// Compares program `n` of two campaigns that have the same programs. `go_on` is asked after each
/// state; `None`: it said no.
///
/// Errors: the program cannot be played.
pub fn compare(
    here: &Campaign,
    there: &Campaign,
    n: u64,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<Compared>, MachineError> {
    let mut out = Compared::default();
    let mut sets: Vec<Sets> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for (side, c) in [here, there].into_iter().enumerate() {
        let program = c.source.program(n);
        let played = play(&c.bench, &program)?;
        out.calls[side] = Calls::of(n, &program, &played.dids);
        texts = (0..=played.dids.len() as u32).map(|v| played.ledger.text(v).to_owned()).collect();
        let Some((set, states, sampled)) = trees(c, &played, go_on) else { return Ok(None) };
        sets.push(set);
        out.states[side] = states;
        out.sampled[side] = sampled;
    }
    for (calls, after) in texts.into_iter().enumerate() {
        let at = |side: usize| sets[side].get(calls);
        let mut b = Boundary { calls: calls as u32, after, ..Boundary::default() };
        for side in 0..2 {
            let Some(mine) = at(side) else { continue };
            b.trees[side] = mine.len();
            b.broken[side] = mine.values().filter(|r| r.is_some()).count();
            let alone =
                mine.iter().filter(|(t, _)| at(1 - side).is_none_or(|o| !o.contains_key(t)));
            b.only[side] = alone.map(|(t, r)| (t.clone(), *r)).collect();
        }
        out.boundaries.push(b);
    }
    Ok(Some(out))
}

fn trees(c: &Campaign, played: &Played, go_on: &dyn Fn() -> bool) -> Option<(Sets, u64, u64)> {
    let history = c.space.history(played);
    let subject = c.subject(played, c.check);
    let mut sets: Sets = vec![BTreeMap::new(); played.dids.len() + 1];
    // Each outcome is described once; the explorer keeps them all, so that addresses are names.
    let mut known: BTreeMap<*const Outcome, Tree> = BTreeMap::new();
    let ledger = &played.ledger;
    let mut explorer = Explorer::new(&subject, c.options(c.plan, played.partition));
    explorer.watch(|visit| {
        let (begun, ended) = visit.operations;
        if begun > ended {
            return;
        }
        let address = Rc::as_ptr(visit.outcome);
        let tree = known.entry(address).or_insert_with(|| tree(visit.outcome, ledger));
        for calls in begun..=ended {
            let Some(set) = sets.get_mut(calls as usize) else { continue };
            // A tree that two states leave is legal if one of them is.
            let rule = set.get(tree).copied();
            if rule != Some(None) {
                let broken = judge(ledger, visit.outcome, (calls, calls), &c.profile);
                set.insert(tree.clone(), broken.first().map(|v| v.rule.name()));
            }
        }
    });
    let whole = explorer.explore(&played.tape, &history, ledger, &mut |_| go_on());
    let (states, sampled) = (explorer.totals.raw, explorer.totals.cuts_sampled);
    drop(explorer);
    whole.then_some((sets, states, sampled))
}

fn tree(outcome: &Outcome, ledger: &Ledger) -> Tree {
    if let Some(why) = &outcome.refused {
        return Tree(format!("cannot be mounted: {why}"));
    }
    let mut first: BTreeMap<u64, &str> = BTreeMap::new();
    let mut files: Vec<String> = Vec::new();
    for f in &outcome.files {
        files.push(match f.kind {
            FileType::Dir => format!("{}/", f.path),
            FileType::Symlink => format!("{} -> {}", f.path, f.target.as_deref().unwrap_or("")),
            FileType::File => match first.get(&f.ino) {
                Some(other) => format!("{} = {other}", f.path),
                None => {
                    first.insert(f.ino, &f.path);
                    file(f, ledger)
                }
            },
            other => format!("{} ({other:?})", f.path),
        });
    }
    Tree(if files.is_empty() { "nothing".to_owned() } else { files.join(", ") })
}

/// Path, length, and what its blocks hold where they are not zero.
fn file(f: &Survivor, ledger: &Ledger) -> String {
    let mut t = format!("{} {} bytes", f.path, f.size);
    let mut runs: Vec<(u64, u64, String)> = Vec::new();
    for (block, id) in &f.blocks {
        let what = match ledger.writer(*id) {
            Some((_, 0)) => continue,
            Some((own, version)) if own == *block => format!("`{}`", ledger.text(version)),
            Some((own, version)) => format!("block {own} of `{}`", ledger.text(version)),
            None => "data that the program never wrote".to_owned(),
        };
        match runs.last_mut() {
            Some((_, last, w)) if *last + 1 == *block && *w == what => *last = *block,
            _ => runs.push((*block, *block, what)),
        }
    }
    for (from, to, what) in runs {
        match from == to {
            true => write!(t, "; block {from}: {what}"),
            false => write!(t, "; blocks {from}-{to}: {what}"),
        }
        .expect("a string takes it");
    }
    if let Some(tail) = f.tail.as_ref().filter(|t| t.iter().any(|b| *b != 0)) {
        let sum = wp_base::crc::crc32c(0, tail);
        write!(t, "; and {} bytes, sum {sum:08x}", tail.len()).expect("a string takes it");
    }
    t
}
