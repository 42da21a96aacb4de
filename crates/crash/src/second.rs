//! Cuts of a recovery: some of what it writes is there, and it is recovered again.
//!
//! Picture:    what a recovery writes, and the zones that it resets or finishes, are units; a
//!             choice of them, laid over the state that was recovered, is the state of a second
//!             cut.
//! Invariants: 1. units are not ordered among one another but by the flushes between stages
//!                ([`Outcome::stages`]): with one of a stage all of those before it are there, and
//!                with one of the zones that are reset or finished behind them
//!                ([`Outcome::managed_last`]) all pages;
//!             2. of a sequential zone a prefix of what was written is there, and the write pointer
//!                stands behind it; what was written after a reset is there with the reset only.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector, Zone, ZoneKind, ZoneState};
use wp_medium::{PAGE_BYTES, Slice, View};

use crate::state::Pages;
use crate::subject::{Outcome, Subject};

/// Sectors of a page.
const SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;

/// What a recovery does to a device, one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    /// Writes a page: index into all of [`Outcome::stages`].
    Page(usize),
    /// Resets the zone that begins there.
    Reset(Sector),
    /// Finishes it.
    Finish(Sector),
}

/// Cuts the recovery that came to `outcome`: at most `most` choices of what it writes are recovered
/// in turn, and must come to the same; else [`Outcome::not_idempotent`] says which did not.
/// `in_order`: stages are in order; else they are one. Returns how many were tried.
pub(crate) fn cuts(
    subject: &dyn Subject,
    state: &dyn Pages,
    outcome: &mut Outcome,
    (in_order, most): (bool, usize),
) -> u64 {
    let mut stages = std::mem::take(&mut outcome.stages);
    if !in_order {
        // Of each page what it holds in the end.
        let all: BTreeMap<u64, Slice> = stages.into_iter().flatten().collect();
        stages = vec![all.into_iter().collect()];
    }
    let writes: Vec<(u64, Slice)> = stages.iter().flatten().cloned().collect();
    let zones = state.zones();
    let mut tried = BTreeSet::new();
    let managed = [of_zones(&outcome.managed), of_zones(&outcome.managed_last)];
    for kept in cuts_of(&stages, managed) {
        if tried.len() >= most {
            break;
        }
        let over = Over::new(state, &writes, (&zones, &outcome.managed.0), &kept);
        if !tried.insert((over.contents(), over.zones.clone())) {
            continue;
        }
        let again = subject.recover(&over);
        if again.refused != outcome.refused
            || again.files != outcome.files
            || again.snapshots != outcome.snapshots
        {
            let lost = writes.iter().map(|w| w.0).filter(|p| !over.over.contains_key(p));
            let lost: Vec<String> = lost.map(|p| p.to_string()).collect();
            outcome.not_idempotent = Some(match &again.refused {
                Some(why) => format!("without pages {}: {why}", lost.join(", ")),
                None => format!("other files without pages {}", lost.join(", ")),
            });
            break;
        }
    }
    tried.len() as u64
}

/// What is there at each of the cuts: of one stage a choice, of those before it everything.
/// `managed`: what is done to zones with the first pages, and behind the last ones.
fn cuts_of(
    stages: &[Vec<(u64, Slice)>],
    [first, last]: [Vec<Unit>; 2],
) -> impl Iterator<Item = Vec<Unit>> {
    let mut next = 0;
    let mut units: Vec<Vec<Unit>> = stages
        .iter()
        .map(|stage| {
            next += stage.len();
            (next - stage.len()..next).map(Unit::Page).collect()
        })
        .collect();
    match units.first_mut() {
        Some(stage) => stage.extend(first),
        None => units.push(first),
    }
    units.push(last);
    let mut before = Vec::new();
    units.into_iter().flat_map(move |stage| {
        let whole = before.clone();
        before.extend_from_slice(&stage);
        choices(stage.len()).map(move |c| [&whole[..], &pick(&stage, &c)].concat())
    })
}

fn of_zones((reset, finished): &(Vec<Sector>, Vec<Sector>)) -> Vec<Unit> {
    let reset = reset.iter().map(|at| Unit::Reset(*at));
    reset.chain(finished.iter().map(|at| Unit::Finish(*at))).collect()
}

fn pick(of: &[Unit], choice: &[bool]) -> Vec<Unit> {
    of.iter().zip(choice).filter(|(_, kept)| **kept).map(|(u, _)| *u).collect()
}

/// Choices of `n` units: all up to 6 of them; beyond, none lost, each lost, each alone, prefixes.
fn choices(n: usize) -> Box<dyn Iterator<Item = Vec<bool>>> {
    if n <= 6 {
        return Box::new(
            (0..1u32 << n).rev().map(move |m| (0..n).map(|i| m >> i & 1 == 1).collect()),
        );
    }
    let one = (0..n).flat_map(move |i| {
        [
            (0..n).map(|j| j != i).collect(),
            (0..n).map(|j| j == i).collect(),
            (0..n).map(|j| j < i).collect::<Vec<bool>>(),
        ]
    });
    Box::new(std::iter::once(vec![true; n]).chain(one))
}

/// A state with some of what a recovery did laid over it.
struct Over<'a> {
    below: &'a dyn Pages,
    over: BTreeMap<u64, &'a Slice>,
    zones: Vec<Zone>,
    /// Pages of zones that were reset: zeroes, where nothing was written since.
    reset: Vec<std::ops::Range<u64>>,
}

impl<'a> Over<'a> {
    /// `resets`: what the whole of the recovery would reset.
    fn new(
        below: &'a dyn Pages,
        writes: &'a [(u64, Slice)],
        (zones, resets): (&[Zone], &[Sector]),
        kept: &[Unit],
    ) -> Over<'a> {
        let mut over: BTreeMap<u64, &Slice> = BTreeMap::new();
        for unit in kept {
            if let Unit::Page(i) = unit {
                over.insert(writes[*i].0, &writes[*i].1);
            }
        }
        let (mut zones, mut reset) = (zones.to_vec(), Vec::new());
        for zone in zones.iter_mut().filter(|z| z.kind == ZoneKind::Sequential) {
            let all = page(zone.start)..page(zone.start.advance(zone.sectors));
            if kept.contains(&Unit::Reset(zone.start)) {
                (zone.wp, zone.state) = (zone.start, ZoneState::Empty);
                reset.push(all.clone());
            } else if resets.contains(&zone.start) {
                over.retain(|p, _| !all.contains(p));
            }
            let mut next = page(zone.wp);
            let written: Vec<u64> = over.range(all).map(|(p, _)| *p).collect();
            for p in written {
                if p == next {
                    next += 1;
                } else {
                    over.remove(&p);
                }
            }
            if next > page(zone.wp) {
                (zone.wp, zone.state) = (Sector(next * SECTORS), ZoneState::ImplicitOpen);
            }
            if zone.wp >= zone.writable_end() || kept.contains(&Unit::Finish(zone.start)) {
                (zone.wp, zone.state) = (zone.writable_end(), ZoneState::Full);
            }
        }
        Over { below, over, zones, reset }
    }

    /// The pages that lie over, by what they hold.
    fn contents(&self) -> Vec<(u64, u128)> {
        self.over.iter().map(|(page, s)| (*page, s.id())).collect()
    }

    fn was_reset(&self, page: u64) -> bool {
        self.reset.iter().any(|r| r.contains(&page))
    }
}

/// The page that a sector lies in.
fn page(at: Sector) -> u64 {
    at.0 / SECTORS
}

impl View for Over<'_> {
    fn zones(&self) -> Vec<Zone> {
        self.zones.clone()
    }

    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        let (first, last) =
            (at / PAGE_BYTES as u64, at.saturating_add(bytes.max(1) - 1) / PAGE_BYTES as u64);
        let meets = |r: &std::ops::Range<u64>| r.start <= last && first < r.end;
        self.over.range(first..=last).next().is_none()
            && !self.reset.iter().any(meets)
            && self.below.is_fixed(at, bytes)
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.len_bytes()) {
            return Err(FsError::Io);
        }
        let mut done = 0usize;
        while done < out.len() {
            let pos = at + done as u64;
            let (page, off) = (pos / PAGE_BYTES as u64, (pos % PAGE_BYTES as u64) as usize);
            let n = (PAGE_BYTES - off).min(out.len() - done);
            let to = &mut out[done..done + n];
            match self.over.get(&page) {
                Some(s) => s.sub(off as u32, n as u32).copy_to(to),
                None if self.was_reset(page) => to.fill(0),
                None => self.below.read_at(pos, to)?,
            }
            done += n;
        }
        Ok(())
    }
}

impl Pages for Over<'_> {
    fn page_id(&self, page: u64) -> u128 {
        match self.over.get(&page) {
            Some(s) => s.id(),
            None if self.was_reset(page) => Slice::zero(PAGE_BYTES as u32).id(),
            None => self.below.page_id(page),
        }
    }

    fn page(&self, page: u64) -> Slice {
        match self.over.get(&page) {
            Some(s) => (*s).clone(),
            None if self.was_reset(page) => Slice::zero(PAGE_BYTES as u32),
            None => self.below.page(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A device of ones: a conventional zone of four pages, and sequential ones of eight.
    struct Ones(Vec<Zone>);

    impl View for Ones {
        fn len_bytes(&self) -> u64 {
            20 * PAGE_BYTES as u64
        }
        fn read_at(&self, _at: u64, out: &mut [u8]) -> FsResult<()> {
            out.fill(1);
            Ok(())
        }
        fn zones(&self) -> Vec<Zone> {
            self.0.clone()
        }
    }

    impl Pages for Ones {
        fn page_id(&self, _page: u64) -> u128 {
            page_of(1).id()
        }
        fn page(&self, _page: u64) -> Slice {
            page_of(1)
        }
    }

    fn page_of(byte: u8) -> Slice {
        Slice::from_bytes(&[byte; PAGE_BYTES])
    }

    /// Zones at pages 0, 4 and 12; `pointers` of the latter two in pages from their start.
    fn device(pointers: [u64; 2]) -> Ones {
        let zone = |start: u64, pages: u64, wp: u64, kind, state| Zone {
            start: Sector(start * SECTORS),
            sectors: pages * SECTORS,
            capacity: pages * SECTORS,
            wp: Sector((start + wp) * SECTORS),
            kind,
            state,
        };
        let state = |wp| if wp == 0 { ZoneState::Empty } else { ZoneState::Closed };
        let [a, b] = pointers;
        Ones(vec![
            zone(0, 4, 0, ZoneKind::Conventional, ZoneState::NotWp),
            zone(4, 8, a, ZoneKind::Sequential, state(a)),
            zone(12, 8, b, ZoneKind::Sequential, state(b)),
        ])
    }

    /// Writes down what it is shown: the first byte of each page, and the sequential zones' write
    /// pointers in pages.
    #[derive(Default)]
    struct Witness(RefCell<BTreeSet<(Vec<u8>, [u64; 2])>>);

    impl Subject for Witness {
        fn block_bytes(&self) -> u32 {
            4096
        }
        fn recover(&self, pages: &dyn Pages) -> Outcome {
            let mut byte = [0];
            let first = |p: u64| {
                pages.read_at(p * PAGE_BYTES as u64, &mut byte).expect("inside");
                assert_eq!(pages.page(p), page_of(byte[0]));
                assert_eq!(pages.page_id(p), page_of(byte[0]).id());
                byte[0]
            };
            let bytes = (0..20).map(first).collect();
            let zones = pages.zones();
            self.0.borrow_mut().insert((bytes, [1, 2].map(|n: usize| page(zones[n].wp))));
            Outcome::default()
        }
    }

    fn all_of(device: &Ones, outcome: Outcome) -> BTreeSet<(Vec<u8>, [u64; 2])> {
        let (witness, mut outcome) = (Witness::default(), outcome);
        let tried = cuts(&witness, device, &mut outcome, (true, 100));
        let seen = witness.0.into_inner();
        assert_eq!((tried, outcome.not_idempotent), (seen.len() as u64, None));
        seen
    }

    /// Pages with other bytes than ones.
    fn state(changed: &[(usize, u8)], pointers: [u64; 2]) -> (Vec<u8>, [u64; 2]) {
        let mut bytes = vec![1; 20];
        for (page, byte) in changed {
            bytes[*page] = *byte;
        }
        (bytes, pointers)
    }

    #[test]
    fn of_a_zone_a_prefix_is_there_and_the_last_page_with_all() {
        let first = [(3, 7), (6, 5), (7, 6)].map(|(p, b)| (p, page_of(b))).to_vec();
        let stages = vec![first, vec![(0, page_of(9))]];
        let seen = all_of(&device([2, 0]), Outcome { stages, ..Outcome::default() });
        let mut want = BTreeSet::new();
        for three in [&[][..], &[(3, 7)][..]] {
            for (zone, wp) in [(&[][..], 6), (&[(6, 5)][..], 7), (&[(6, 5), (7, 6)][..], 8)] {
                want.insert(state(&[three, zone].concat(), [wp, 12]));
            }
        }
        want.insert(state(&[(0, 9), (3, 7), (6, 5), (7, 6)], [8, 12]));
        assert_eq!(seen, want);
    }

    #[test]
    fn a_page_of_two_stages_is_as_the_later_one_leaves_it_with_all_before_that() {
        let of = |pages: &[(u64, u8)]| pages.iter().map(|(p, b)| (*p, page_of(*b))).collect();
        let stages = vec![of(&[(0, 2), (1, 3)]), of(&[(0, 4)])];
        let seen = all_of(&device([0, 0]), Outcome { stages, ..Outcome::default() });
        let want = [&[][..], &[(0, 2)], &[(1, 3)], &[(0, 2), (1, 3)], &[(0, 4), (1, 3)]];
        assert_eq!(seen, want.map(|pages| state(pages, [4, 12])).into());
    }

    #[test]
    fn what_is_written_after_a_reset_is_there_with_it_only() {
        // The first zone is reset and written; the other one is finished.
        let stages = vec![vec![(4, page_of(5))]];
        let managed = (vec![Sector(4 * SECTORS)], vec![Sector(12 * SECTORS)]);
        let seen = all_of(&device([3, 2]), Outcome { stages, managed, ..Outcome::default() });
        let zeroes: Vec<(usize, u8)> = (4..12).map(|p| (p, 0)).collect();
        let mut rewritten = zeroes.clone();
        rewritten[0] = (4, 5);
        let mut want = BTreeSet::new();
        for finished in [14, 20] {
            want.insert(state(&[], [7, finished]));
            want.insert(state(&zeroes, [4, finished]));
            want.insert(state(&rewritten, [5, finished]));
        }
        assert_eq!(seen, want);
    }

    #[test]
    fn what_is_done_to_zones_at_the_end_is_there_with_all_pages_only() {
        let stages = vec![vec![(3, page_of(7))], vec![(0, page_of(9))]];
        let managed_last = (vec![Sector(4 * SECTORS)], vec![Sector(12 * SECTORS)]);
        let outcome = Outcome { stages, managed_last, ..Outcome::default() };
        let seen = all_of(&device([3, 2]), outcome);
        let all = [(0, 9), (3, 7)];
        let reset = [&all[..], &(4..12).map(|p| (p, 0)).collect::<Vec<_>>()].concat();
        let want = [
            state(&[], [7, 14]),
            state(&[(3, 7)], [7, 14]),
            state(&all, [7, 14]),
            state(&all, [7, 20]),
            state(&reset, [4, 14]),
            state(&reset, [4, 20]),
        ];
        assert_eq!(seen, want.into());
    }
}
