//! The walk over the states of one frame.

use super::{Case, Explorer, Totals, decision, state};
use crate::ends::Ends;
use crate::history::History;
use crate::states::{Kept, Member, Next, Visitor};
use crate::sums::is_sum;

/// Members of a family that are explored, however many pages their recoveries read.
const LEAST: u64 = 16;

/// Which members of the families of a frame are explored.
///
/// Of a unit that the recovery of everything reads, each member may be a recovery of its own, and
/// such a recovery reads all of these units. Any other member costs nothing: it comes to what is
/// known. So does one that is not chosen, where a recovery is known that it cannot be told from.
struct Families {
    /// Units that are read.
    units: Kept,
    /// `shown` of `of` are explored, evenly.
    shown: u64,
    of: u64,
    /// Members met so far, by family.
    met: [u64; 3],
}

impl Families {
    /// Is this member explored?
    fn is_shown(&mut self, member: Member) -> bool {
        let (family, unit) = match member {
            Member::UpTo(unit) => (0, unit),
            Member::Without(unit) => (1, unit),
            Member::Alone(unit) => (2, unit),
        };
        if !self.units.has(unit) {
            return true;
        }
        let turn = |n: u64| n * self.shown / self.of;
        let met = self.met[family];
        self.met[family] += 1;
        turn(met) < turn(met + 1)
    }
}

/// A walk over one frame, which has been entered.
pub(super) struct Walk<'w, 'e, 'c> {
    explorer: &'w mut Explorer<'e>,
    case: &'w mut Case<'c>,
    number: usize,
    /// What was done before this frame.
    before: Totals,
    go_on: &'w mut dyn FnMut(&Totals) -> bool,
    /// States of this frame that were explored.
    looked: u64,
    families: Option<Families>,
    ends: Ends,
    /// Was it to go on?
    pub(super) goes: bool,
    /// Were members of families left out?
    pub(super) thinned: bool,
}

impl<'w, 'e, 'c> Walk<'w, 'e, 'c> {
    pub(super) fn new(
        explorer: &'w mut Explorer<'e>,
        case: &'w mut Case<'c>,
        number: usize,
        go_on: &'w mut dyn FnMut(&Totals) -> bool,
    ) -> Walk<'w, 'e, 'c> {
        let before = explorer.totals;
        let ends = Ends::of(case.history, number);
        let (looked, families, goes, thinned) = (0, None, true, false);
        Walk { explorer, case, number, before, go_on, looked, families, ends, goes, thinned }
    }

    fn families(&mut self) -> &mut Families {
        let (history, number, explorer) = (self.case.history, self.number, &mut *self.explorer);
        self.families.get_or_insert_with(|| {
            let (units, pages) = explorer.reads_of_all(history, number);
            let of = u64::from(units.count());
            let shown = (explorer.options.plan.pages / pages.max(1)).max(LEAST).min(of);
            Families { units, shown, of, met: [0; 3] }
        })
    }
}

impl Explorer<'_> {
    /// Unpersisted units that the recovery of the state that keeps all of them has read, and how
    /// many pages it read.
    fn reads_of_all(&self, history: &History, number: usize) -> (Kept, u64) {
        let all = Kept::all(history.frames[number].live.len());
        let state = state(history, number, &all, (&self.pool, &self.varying), &self.options);
        let mut pages = Vec::new();
        self.known.find(|page| state.peek(page), &mut pages);
        let mut units = Kept::none(history.frames[number].live.len());
        for unit in state.units(&pages).into_iter().flatten() {
            match is_sum(unit) {
                true => {
                    state.decided(unit).units.iter().for_each(|u| units.set(*u as usize, true));
                }
                false => units.set(unit as usize, true),
            }
        }
        (units, state.pages_of(&pages))
    }

    /// Is it known what a state of a frame recovers to? The frame has been entered.
    fn is_known(&mut self, history: &History, number: usize, kept: &Kept) -> bool {
        let state = state(history, number, kept, (&self.pool, &self.varying), &self.options);
        if self.of_frame.result(|unit| decision(&state, kept, unit)).is_some() {
            return true;
        }
        let mut pages = Vec::new();
        let Some(result) = self.known.find(|page| state.peek(page), &mut pages) else {
            return false;
        };
        if let Some(units) = state.units(&pages) {
            self.of_frame.note(&units, |unit| decision(&state, kept, unit), result);
        }
        true
    }
}

impl Visitor for Walk<'_, '_, '_> {
    fn visit(&mut self, kept: &Kept, member: Option<Member>) -> Next {
        let (history, number) = (self.case.history, self.number);
        // Everything is explored first, and at any rate.
        if let Some(member) = member.filter(|_| self.looked > 0)
            && !self.families().is_shown(member)
            && !self.explorer.is_known(history, number, kept)
        {
            self.thinned = true;
            return Next::LeftOut;
        }
        let until = match member {
            Some(Member::Without(lost)) => history.until_without(number, lost),
            _ => self.ends.until(history, kept),
        };
        self.looked += 1;
        let after = self.before.raw + self.looked;
        let look = self.explorer.look(self.case, number, kept, until);
        let found = self.explorer.keep(self.case, number, kept, &look, after);
        self.goes = !found && (self.go_on)(&self.before);
        if self.goes { Next::Go } else { Next::Stop }
    }
}
