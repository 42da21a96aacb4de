//! Which states of a frame are explored.
//!
//! A frame adds the states that contain one of its new units; all others were states of an earlier
//! frame. So a walk over all frames explores the added ones ([`of_frame`]); a power failure at one
//! instant may leave any ([`of_instant`]). With up to [`Plan::complete`] unpersisted units every
//! state is explored; beyond that, the named families below, then seeded samples.

use std::collections::BTreeSet;

use wp_base::Zone;
use wp_base::rng::Rng;

use crate::history::{Frame, History, LastEpochs};
use crate::zoned::Prefixes;

/// Which unpersisted units are kept: bit `i` is `live[i]`.
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

    /// As words of 64 units.
    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }

    /// How many are kept.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }
}

/// How much of each frame is visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Number of unpersisted units up to which every state is explored.
    pub complete: u32,
    /// Units beyond which the family of pair losses is left out (it has n² members).
    pub pairs: u32,
    /// Seeded samples of a frame beyond the families.
    pub samples: u32,
    /// Pages that the recoveries of a family of a frame may read together: its prefixes, single
    /// losses or single survivals. If it takes more to recover each that recovery can tell,
    /// evenly chosen ones are shown.
    pub pages: u64,
    /// States of a frame at most, evenly chosen by the seed: for a check that takes long.
    pub most: u64,
}

impl Plan {
    /// [`Plan::pages`] where nobody says otherwise: if a recovery reads 1400 pages, each of them an
    /// unpersisted unit, the loss of every one is explored.
    pub const PAGES: u64 = 1 << 21;
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { complete: 16, pairs: 64, samples: 64, pages: Plan::PAGES, most: u64::MAX }
    }
}

/// States of one frame: visited, and how many there are.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Visited {
    /// Visited.
    pub states: u64,
    /// Base-2 logarithm of the number of choices, that is the number of unpersisted units.
    pub of_log2: u32,
    /// Are all that the frame adds visited?
    pub complete: bool,
}

/// What follows a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next state.
    Go,
    /// The next state; this one was left out and does not count.
    LeftOut,
    /// Nothing.
    Stop,
}

/// A state of a family that has one for each unit of a frame, by its unit. No order binds the
/// frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Member {
    /// All units but this and later ones are lost. The first that is shown keeps everything.
    UpTo(usize),
    /// This unit alone is lost.
    Without(usize),
    /// This unit alone is kept.
    Alone(usize),
}

/// Is shown the states of a frame. A function that returns whether to go on is one.
pub trait Visitor {
    /// A state; what it is if it belongs to a family.
    fn visit(&mut self, kept: &Kept, member: Option<Member>) -> Next;
}

impl<F: FnMut(&Kept) -> bool> Visitor for F {
    fn visit(&mut self, kept: &Kept, _: Option<Member>) -> Next {
        if self(kept) { Next::Go } else { Next::Stop }
    }
}

/// Shows each explored state that frame `number` adds once.
pub fn of_frame(
    history: &History,
    number: usize,
    plan: &Plan,
    seed: u64,
    visitor: &mut dyn Visitor,
) -> Visited {
    let added = history.frames[number].new;
    if number > 0 && added == 0 {
        let of_log2 = history.frames[number].live.len() as u32;
        return Visited { states: 0, of_log2, complete: true };
    }
    // Before the first frame there is none that has its states.
    states(history, number, (plan, seed), (number > 0).then_some(added), visitor)
}

/// States of frame `number` that [`of_frame`] visits, at most: those that ordering rules out are
/// among them.
pub fn most_of_frame(history: &History, number: usize, plan: &Plan) -> u64 {
    all_of_frame(history, number, plan).min(plan.most)
}

/// The same without [`Plan::most`].
fn all_of_frame(history: &History, number: usize, plan: &Plan) -> u64 {
    let frame = &history.frames[number];
    let (n, added) = (frame.live.len() as u64, frame.new as u64);
    match (number, added) {
        (1.., 0) => 0,
        _ if n > u64::from(plan.complete) => {
            let pairs = if n <= u64::from(plan.pairs) { n * (n - 1) / 2 } else { 0 };
            // Of prefixes and single survivors only those that keep a new unit.
            let fresh = if number == 0 || is_bound(history, frame) { n } else { added };
            n + 2 * fresh + pairs + u64::from(plan.samples) + u64::from(number == 0)
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
    visitor: &mut dyn Visitor,
) -> Visited {
    states(history, number, (plan, seed), None, visitor)
}

/// Does an order of the device's rule out some choices of a frame?
fn is_bound(history: &History, frame: &Frame) -> bool {
    frame.epochs || history.zones.is_some()
}

/// `added`: only states that keep one of the last `added` units; `None`: all states.
fn states(
    history: &History,
    number: usize,
    (plan, seed): (&Plan, u64),
    added: Option<usize>,
    visitor: &mut dyn Visitor,
) -> Visited {
    let frame = &history.frames[number];
    let n = frame.live.len();
    let mut out = Visited { states: 0, of_log2: n as u32, complete: true };
    // Of a frame that is the first one explored, or is looked at alone, all states are new.
    let of = match added {
        Some(_) => all_of_frame(history, number, plan),
        None if n <= plan.complete as usize => 1 << n,
        None => u64::MAX,
    };
    if of > plan.most {
        out.complete = false;
        few(history, frame, added, (plan.most, seed ^ number as u64), &mut out.states, visitor);
        return out;
    }
    if n <= plan.complete as usize {
        every(history, frame, added, &mut out.states, visitor);
        return out;
    }
    out.complete = false;
    let mut samples = Samples {
        rng: Rng::stream(seed ^ number as u64, "crash states"),
        left: plan.samples,
        fresh: n - added.unwrap_or(n)..n,
        is_first: added.is_none(),
    };
    if n <= plan.pairs as usize || is_bound(history, frame) {
        some(history, frame, added, plan, &mut samples, &mut out.states, visitor);
    } else {
        some_of_many(n, &mut samples, &mut out.states, visitor);
    }
    out
}

/// Counts a state that is shown. Does it go on?
fn show(kept: &Kept, member: Option<Member>, count: &mut u64, visitor: &mut dyn Visitor) -> bool {
    let next = visitor.visit(kept, member);
    *count += u64::from(next != Next::LeftOut);
    next != Next::Stop
}

/// Every state of few units.
fn every(
    history: &History,
    frame: &Frame,
    added: Option<usize>,
    count: &mut u64,
    visitor: &mut dyn Visitor,
) {
    let n = frame.live.len();
    let prefixes = history.prefixes(frame);
    let fresh = added.map(|new| ((1u64 << new) - 1) << (n - new));
    // From everything kept downwards: what is near to the truth comes first.
    let mut kept = Kept::none(n);
    for mask in (0..1u64 << n).rev() {
        kept.0.fill(mask);
        if fresh.is_none_or(|fresh| mask & fresh != 0)
            && history.permits_with(frame, &prefixes, &kept)
            && !show(&kept, None, count, visitor)
        {
            return;
        }
    }
}

/// Seeded choices among many units.
struct Samples {
    rng: Rng,
    left: u32,
    /// Units of which one at least is kept, unless all choices are wanted.
    fresh: std::ops::Range<usize>,
    is_first: bool,
}

impl Samples {
    /// Is it a choice that this frame adds?
    fn is_wanted(&self, k: &Kept) -> bool {
        self.is_first || self.fresh.clone().any(|i| k.has(i))
    }

    fn next(&mut self) -> Option<Kept> {
        self.left = self.left.checked_sub(1)?;
        let n = self.fresh.end;
        let mut k = Kept::none(n);
        // Even odds for every unit would hardly ever leave nearly all or nearly none.
        let odds = 1 + self.rng.below(15);
        (0..n).for_each(|i| k.set(i, self.rng.below(16) < odds));
        if !self.is_first {
            k.set(n - 1 - self.rng.below(self.fresh.len() as u64) as usize, true);
        }
        Some(k)
    }
}

/// The families and samples of units that are few, or bound by an order.
fn some(
    history: &History,
    frame: &Frame,
    added: Option<usize>,
    plan: &Plan,
    samples: &mut Samples,
    count: &mut u64,
    visitor: &mut dyn Visitor,
) {
    let n = frame.live.len();
    let prefixes = history.prefixes(frame);
    let mut seen = BTreeSet::new();
    let mut go = |mut k: Kept, samples: &Samples| {
        if frame.epochs {
            fill_epochs(history, frame, &mut k);
        }
        prefixes.trim(&mut k);
        let is_new = samples.is_wanted(&k)
            && history.permits_with(frame, &prefixes, &k)
            && seen.insert(k.clone());
        !is_new || show(&k, None, count, visitor)
    };
    if !families(n, plan, &mut |k| go(k, samples)) {
        return;
    }
    if added.is_none() && !go(Kept::none(n), samples) {
        return;
    }
    while let Some(k) = samples.next() {
        if !go(k, samples) {
            return;
        }
    }
}

/// At most `most` states of a frame: everything kept, and single losses, prefixes and random
/// choices in turn.
fn few(
    history: &History,
    frame: &Frame,
    added: Option<usize>,
    (most, seed): (u64, u64),
    count: &mut u64,
    visitor: &mut dyn Visitor,
) {
    /// Choices for each state that is wanted: of some that are drawn another one is left by what
    /// ordering allows.
    const DRAWS: u64 = 8;
    let n = frame.live.len();
    let prefixes = history.prefixes(frame);
    let mut samples = Samples {
        rng: Rng::stream(seed, "crash states"),
        left: u32::MAX,
        fresh: n - added.unwrap_or(n)..n,
        is_first: added.is_none(),
    };
    let mut rng = Rng::stream(seed, "few crash states");
    let mut seen = BTreeSet::new();
    for draw in 0..most.saturating_mul(DRAWS) {
        let mut k = match draw {
            0 => Kept::all(n),
            _ if n == 0 => return,
            _ => match draw % 3 {
                1 => {
                    let mut k = Kept::all(n);
                    k.set(rng.below(n as u64) as usize, false);
                    k
                }
                2 => {
                    let mut k = Kept::none(n);
                    (0..rng.below(n as u64) as usize).for_each(|i| k.set(i, true));
                    k
                }
                _ => match samples.next() {
                    Some(k) => k,
                    None => return,
                },
            },
        };
        if frame.epochs {
            fill_epochs(history, frame, &mut k);
        }
        prefixes.trim(&mut k);
        let is_new = samples.is_wanted(&k)
            && history.permits_with(frame, &prefixes, &k)
            && seen.insert(k.clone());
        if is_new && (!show(&k, None, count, visitor) || *count >= most) {
            return;
        }
    }
}

/// Prefixes, single losses, pairs of losses, single survivals.
fn families(n: usize, plan: &Plan, go: &mut dyn FnMut(Kept) -> bool) -> bool {
    let mut prefix = Kept::all(n);
    for i in (0..n).rev() {
        if !go(prefix.clone()) {
            return false;
        }
        prefix.set(i, false);
    }
    for i in 0..n {
        let mut k = Kept::all(n);
        k.set(i, false);
        let mut alone = Kept::none(n);
        alone.set(i, true);
        if !go(k.clone()) || !go(alone) {
            return false;
        }
        if n <= plan.pairs as usize {
            for j in i + 1..n {
                let mut pair = k.clone();
                pair.set(j, false);
                if !go(pair) {
                    return false;
                }
            }
        }
    }
    true
}

/// The same without pairs, for thousands of units, so each step has to be short: a state is the one
/// before it with one unit changed, and of prefixes and survivals only those are made that the
/// frame adds.
fn some_of_many(n: usize, samples: &mut Samples, count: &mut u64, visitor: &mut dyn Visitor) {
    let from = if samples.is_first { 0 } else { samples.fresh.start };
    let mut k = Kept::all(n);
    for i in (from..n).rev() {
        if !show(&k, Some(Member::UpTo(i)), count, visitor) {
            return;
        }
        k.set(i, false);
    }
    let (mut but, mut alone) = (Kept::all(n), Kept::none(n));
    for i in 0..n {
        but.set(i, false);
        // All but the last are a prefix, and so is the first alone.
        let is_shown = i + 1 == n && from + 1 < n;
        let is_added = samples.is_first || samples.fresh.len() > 1 || i != samples.fresh.start;
        if is_added && !is_shown && !show(&but, Some(Member::Without(i)), count, visitor) {
            return;
        }
        but.set(i, true);
        if i >= from.max(1) {
            alone.set(i, true);
            if !show(&alone, Some(Member::Alone(i)), count, visitor) {
                return;
            }
            alone.set(i, false);
        }
    }
    if samples.is_first && !show(&alone, None, count, visitor) {
        return;
    }
    let mut seen = BTreeSet::new();
    while let Some(k) = samples.next() {
        let is_new = !is_of_families(&k, n) && seen.insert(k.clone());
        if is_new && !show(&k, None, count, visitor) {
            return;
        }
    }
}

/// Is it a prefix, a single loss or a single survival?
fn is_of_families(k: &Kept, n: usize) -> bool {
    let kept = k.count() as usize;
    kept <= 1 || kept + 1 >= n || (0..kept).all(|i| k.has(i))
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

#[cfg(test)]
mod tests {
    use wp_base::event::{Flags, Op};
    use wp_base::{Sector, Time};
    use wp_medium::Slice;

    use super::*;
    use crate::history::Contract;
    use crate::tape::{Entry, Tape};

    /// `writes` single blocks, of which each completes before the next is sent.
    fn history(writes: u64) -> History {
        let submit = |id| Entry::Submit {
            id,
            op: Op::Write,
            flags: Flags::NONE,
            at: Sector(id * 8),
            sectors: 8,
            data: vec![Slice::zero(4096)],
        };
        let each = (0..writes).flat_map(|id| [submit(id), Entry::Complete { id, ok: true }]);
        let entries = each.enumerate().map(|(at, e)| (Time(at as u64), e)).collect();
        let tape = Tape::of(entries);
        History::permitted(&tape, &Contract::HONEST)
    }

    /// States that `walk` shows, and how many it counts.
    fn shown(walk: impl FnOnce(&mut u64, &mut dyn Visitor)) -> (Vec<Kept>, u64) {
        let (mut states, mut count) = (Vec::new(), 0);
        walk(&mut count, &mut |k: &Kept| {
            states.push(k.clone());
            true
        });
        (states, count)
    }

    #[test]
    fn short_steps_show_what_long_ones_show() {
        let history = history(90);
        let plan = Plan { pairs: 0, ..Plan::default() };
        let last = history.frames.len() - 1;
        for number in [last, last / 2] {
            let frame = &history.frames[number];
            let n = frame.live.len();
            for added in [None, Some(1), Some(2), Some(40), Some(n)] {
                let samples = || Samples {
                    rng: Rng::stream(7, "crash states"),
                    left: plan.samples,
                    fresh: n - added.unwrap_or(n)..n,
                    is_first: added.is_none(),
                };
                let long = shown(|count, visitor| {
                    some(&history, frame, added, &plan, &mut samples(), count, visitor);
                });
                let short = shown(|count, visitor| some_of_many(n, &mut samples(), count, visitor));
                assert!(long.1 > n as u64 && long.0.len() as u64 == long.1);
                let (mut a, mut b) = (long.0.clone(), short.0.clone());
                a.sort();
                b.sort();
                assert_eq!((a, long.1), (b, short.1), "{n} units, {added:?} of them new");
            }
        }
    }

    /// A visitor that stops is shown nothing more, and what it leaves out does not count.
    #[test]
    fn a_visitor_leaves_out_and_stops() {
        struct Few(u64);
        impl Visitor for Few {
            fn visit(&mut self, _: &Kept, member: Option<Member>) -> Next {
                self.0 += 1;
                match member {
                    Some(Member::Without(20)) => Next::Stop,
                    Some(Member::Without(_)) => Next::LeftOut,
                    _ => Next::Go,
                }
            }
        }
        let history = history(90);
        let last = history.frames.len() - 1;
        let n = history.frames[last].live.len();
        assert!(n > 64 && history.frames[last].new == 1);
        let mut few = Few(0);
        let visited = of_frame(&history, last, &Plan::default(), 1, &mut few);
        // Everything; losses of units 0 to 20, of which the last ends it and counts.
        assert_eq!((few.0, visited.states), (1 + 21, 1 + 1));
    }
}
