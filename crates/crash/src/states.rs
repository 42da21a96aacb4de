//! Which states of a frame are looked at.
//!
//! A frame adds the states that contain one of its new units; all others were states of an earlier
//! frame. So a walk over all frames visits those ([`of_frame`]); a cut at one instant may leave any
//! ([`of_instant`]). Up to [`Plan::complete`] unpersisted writes every one is visited; beyond, the
//! named families below, then seeded samples.

use std::collections::BTreeSet;

use wp_base::Zone;
use wp_base::rng::Rng;

use crate::history::{Frame, History, LastEpochs};
use crate::zoned::Prefixes;

/// Which unpersisted writes are kept: bit `i` is `live[i]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Kept(Vec<u64>);

impl Kept {
    /// None of `n`.
    pub fn none(n: usize) -> Kept {
        Kept(vec![0; n.div_ceil(64)])
    }

    /// All of `n`.
    pub fn all(n: usize) -> Kept {
        let mut k = Kept::none(n);
        (0..n).for_each(|i| k.set(i, true));
        k
    }

    /// Is unit `i` kept?
    #[inline]
    pub fn has(&self, i: usize) -> bool {
        self.0.get(i / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }

    /// Keeps or loses unit `i`.
    pub fn set(&mut self, i: usize, kept: bool) {
        let (word, bit) = (&mut self.0[i / 64], 1u64 << (i % 64));
        if kept { *word |= bit } else { *word &= !bit }
    }

    /// How many are kept.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }
}

/// How much of each frame is visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Unpersisted writes up to which every state is visited.
    pub complete: u32,
    /// Units beyond which the family of pair losses is left out (it has n² members).
    pub pairs: u32,
    /// Seeded samples of a frame beyond the families.
    pub samples: u32,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { complete: 16, pairs: 64, samples: 64 }
    }
}

/// States of one frame: visited, and how many there are.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Visited {
    /// Visited.
    pub states: u64,
    /// Base-2 logarithm of how many choices there are (unpersisted writes).
    pub of_log2: u32,
    /// Are all that the frame adds visited?
    pub complete: bool,
}

/// Calls `visit` for each state that frame `number` adds and that is looked at, every one once;
/// stops when it returns false.
pub fn of_frame(
    history: &History,
    number: usize,
    plan: &Plan,
    seed: u64,
    visit: &mut dyn FnMut(&Kept) -> bool,
) -> Visited {
    let added = history.frames[number].new;
    if number > 0 && added == 0 {
        let of_log2 = history.frames[number].live.len() as u32;
        return Visited { states: 0, of_log2, complete: true };
    }
    // Before the first frame there is none that has its states.
    states(history, number, (plan, seed), (number > 0).then_some(added), visit)
}

/// States of frame `number` that [`of_frame`] visits, at most: those that ordering rules out are
/// among them.
pub fn most_of_frame(history: &History, number: usize, plan: &Plan) -> u64 {
    let frame = &history.frames[number];
    let (n, added) = (frame.live.len() as u64, frame.new as u64);
    match (number, added) {
        (1.., 0) => 0,
        _ if n > u64::from(plan.complete) => {
            let pairs = if n <= u64::from(plan.pairs) { n * (n - 1) / 2 } else { 0 };
            3 * n + pairs + u64::from(plan.samples) + u64::from(number == 0)
        }
        (0, _) => 1 << n,
        _ => ((1 << added) - 1) << (n - added),
    }
}

/// The same of all states that a cut within frame `number` may leave, also those that earlier
/// frames have.
pub fn of_instant(
    history: &History,
    number: usize,
    plan: &Plan,
    seed: u64,
    visit: &mut dyn FnMut(&Kept) -> bool,
) -> Visited {
    states(history, number, (plan, seed), None, visit)
}

/// `added`: only states with one of so many units, the last ones; `None`: all.
fn states(
    history: &History,
    number: usize,
    (plan, seed): (&Plan, u64),
    added: Option<usize>,
    visit: &mut dyn FnMut(&Kept) -> bool,
) -> Visited {
    let frame = &history.frames[number];
    let n = frame.live.len();
    let mut out = Visited { states: 0, of_log2: n as u32, complete: true };
    let prefixes = history.prefixes(frame);
    let legal = |k: &Kept| history.permits_with(frame, &prefixes, k);
    if n <= plan.complete as usize {
        let fresh = added.map(|new| ((1u64 << new) - 1) << (n - new));
        // From everything kept downwards: what is near to the truth comes first.
        for mask in (0..1u64 << n).rev() {
            let kept = Kept(vec![mask; n.div_ceil(64)]);
            if fresh.is_none_or(|fresh| mask & fresh != 0) && legal(&kept) {
                out.states += 1;
                if !visit(&kept) {
                    return out;
                }
            }
        }
        return out;
    }
    out.complete = false;
    let is_wanted = |k: &Kept| added.is_none_or(|new| (n - new..n).any(|i| k.has(i)));
    let mut seen = BTreeSet::new();
    let mut go = |mut k: Kept| {
        if frame.epochs {
            fill_epochs(history, frame, &mut k);
        }
        prefixes.trim(&mut k);
        if is_wanted(&k) && legal(&k) && seen.insert(k.clone()) {
            out.states += 1;
            return visit(&k);
        }
        true
    };
    families(n, plan, &mut go);
    if added.is_none() && !go(Kept::none(n)) {
        return out;
    }
    let mut rng = Rng::stream(seed ^ number as u64, "crash states");
    for _ in 0..plan.samples {
        let mut k = Kept::none(n);
        // Even odds for every unit would hardly ever leave nearly all or nearly none.
        let odds = 1 + rng.below(15);
        (0..n).for_each(|i| k.set(i, rng.below(16) < odds));
        if let Some(new) = added {
            k.set(n - 1 - rng.below(new as u64) as usize, true);
        }
        if !go(k) {
            break;
        }
    }
    out
}

/// Prefixes, single losses, pairs of losses, single survivals.
fn families(n: usize, plan: &Plan, go: &mut dyn FnMut(Kept) -> bool) {
    let mut prefix = Kept::all(n);
    for i in (0..n).rev() {
        if !go(prefix.clone()) {
            return;
        }
        prefix.set(i, false);
    }
    for i in 0..n {
        let mut k = Kept::all(n);
        k.set(i, false);
        let mut alone = Kept::none(n);
        alone.set(i, true);
        if !go(k.clone()) || !go(alone) {
            return;
        }
        if n <= plan.pairs as usize {
            for j in i + 1..n {
                let mut pair = k.clone();
                pair.set(j, false);
                if !go(pair) {
                    return;
                }
            }
        }
    }
}

impl History {
    /// The zones after a cut in frame `number` that keeps these: what a report says then. None of a
    /// device without zones.
    pub fn zones_of(&self, number: usize, kept: &Kept) -> Vec<Zone> {
        let frame = &self.frames[number];
        let (Some(space), Some(table)) = (&self.zones, &frame.zones) else { return Vec::new() };
        let live = frame.live.iter().enumerate().filter(|(i, _)| kept.has(*i));
        space.with(table, live.map(|(_, n)| &self.units[*n as usize]))
    }

    /// May a cut in frame `number` leave this choice? Without epochs and zones every one.
    pub fn permits(&self, number: usize, kept: &Kept) -> bool {
        let frame = &self.frames[number];
        self.permits_with(frame, &self.prefixes(frame), kept)
    }

    fn permits_with(&self, frame: &Frame, prefixes: &Prefixes, kept: &Kept) -> bool {
        (!frame.epochs || is_legal(self, frame, kept)) && prefixes.allow(kept)
    }

    fn prefixes(&self, frame: &Frame) -> Prefixes {
        let space = self.zones.as_ref();
        space.map_or_else(Prefixes::default, |s| s.prefixes(&self.units, &frame.live))
    }
}

/// With barriers some whole number of epochs is there, of the next anything, of later nothing; of
/// each device for itself.
fn is_legal(history: &History, frame: &Frame, kept: &Kept) -> bool {
    let last = last_epochs(history, frame, kept);
    let missing = (0..frame.live.len()).filter(|i| !kept.has(*i));
    missing.map(|i| &history.units[frame.live[i] as usize]).all(|u| !u.is_before(&last))
}

/// Of each device of which something is kept that has an epoch: the last such epoch.
fn last_epochs(history: &History, frame: &Frame, kept: &Kept) -> LastEpochs {
    let mut last = LastEpochs::default();
    let units = (0..frame.live.len()).filter(|i| kept.has(*i));
    units.for_each(|i| last.note(&history.units[frame.live[i] as usize]));
    last
}

/// Keeps whatever the last epoch of which something is kept presupposes.
fn fill_epochs(history: &History, frame: &Frame, kept: &mut Kept) {
    let last = last_epochs(history, frame, kept);
    for (i, n) in frame.live.iter().enumerate() {
        if history.units[*n as usize].is_before(&last) {
            kept.set(i, true);
        }
    }
}
