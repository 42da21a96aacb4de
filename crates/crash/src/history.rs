//! From a tape to what a power failure can leave at each of its positions.
//!
//! Picture:    tape -> [`Unit`]s (what is kept or lost as one) and [`Frame`]s (stretches of the
//!             tape in which the same units are unpersisted over the same durable base).
//! Invariants: 1. an image that a cut in frame `f` can leave is `f.base` with some of `f.live` laid
//!                over in order, and every such choice is one (but see [`Frame::epochs`] and
//!                [`ZoneSpace`]);
//!             2. a unit is unpersisted (in flight or in the volatile cache) in consecutive frames:
//!                from its `born` to before its `gone`;
//!             3. it says nothing of probabilities.
//! Epochs:     a device with barrier writes ([`Tape::ordered`]) keeps what it received in order:
//!             what is durable takes along all of the epochs before.
//! Source:     NVMe and SATA write-cache rules: FLUSH covers what was completed before it was sent,
//!             FUA the command itself; a block of `atomic` bytes is old or new, never mixed.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::event::{Flags, Op};
use wp_base::{SECTOR_BYTES, Sector, Zone};
use wp_block::{KeepInZone, LossEffect, ZoneOrder};
use wp_medium::{Medium, Slice};

use crate::flushed::Flushed;
use crate::states::Kept;
use crate::stretches::first_gone;
use crate::tape::{Entry, Tape, device_of};
use crate::zoned::ZoneSpace;

/// What a drive promises, and how it breaks its promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contract {
    /// It has a volatile cache: a completed write may be lost until it is flushed. If not, only
    /// writes in flight may.
    pub volatile: bool,
    /// Bytes that are written whole or not at all, at addresses that are multiples of it: 512, 4096
    /// or more.
    pub atomic: u32,
    /// FLUSH is acknowledged and not done.
    pub lying_flush: bool,
    /// FUA is acknowledged and taken for a plain write.
    pub lost_fua: bool,
    /// Barrier writes are acknowledged and taken for plain ones, by a device that says it honours
    /// them ([`Tape::ordered`]).
    pub lost_barriers: bool,
    /// What of a sequential zone it keeps; means nothing for a device without zones.
    pub zone_order: ZoneOrder,
}

impl Contract {
    /// An honest drive with a volatile cache and an atomic unit of 4 KiB.
    pub const HONEST: Contract = Contract {
        volatile: true,
        atomic: 4096,
        lying_flush: false,
        lost_fua: false,
        lost_barriers: false,
        zone_order: ZoneOrder::Prefix,
    };
}

/// A part of a write that is kept or lost as one.
#[derive(Clone, Debug)]
pub struct Unit {
    /// First sector.
    pub at: Sector,
    /// What it holds, in order.
    pub data: Vec<Slice>,
    /// Number of the request on the tape that it is a part of.
    pub request: u64,
    /// Position on the tape at which it became unpersisted.
    pub pos: usize,
    /// First frame in which it is unpersisted.
    pub born: u32,
    /// First frame in which it is not unpersisted any more: it is durable, or covered by something
    /// durable. `u32::MAX`: it is still unpersisted at the end of the tape.
    pub gone: u32,
    /// Was it made durable (and not covered by something newer)?
    pub durable: bool,
    /// Barriers of the device before it, or [`NO_EPOCH`].
    pub epoch: u32,
    /// What it does.
    pub effect: LossEffect,
    /// The unit of the part that is still unpersisted, since something durable covered another
    /// part.
    pub heir: Option<u32>,
    id: OnceCell<u128>,
}

/// The epoch of what no barrier puts in order: nobody promises when a discard takes effect.
pub const NO_EPOCH: u32 = u32::MAX;

/// Of each device the last epoch of some units.
#[derive(Clone, Default, Debug)]
pub(crate) struct LastEpochs(Vec<(u64, u32)>);

impl LastEpochs {
    /// One of the units.
    pub(crate) fn note(&mut self, unit: &Unit) {
        if unit.epoch == NO_EPOCH {
            return;
        }
        let device = device_of(unit.request);
        match self.0.iter_mut().find(|e| e.0 == device) {
            Some(entry) => entry.1 = entry.1.max(unit.epoch),
            None => self.0.push((device, unit.epoch)),
        }
    }
}

impl Unit {
    /// Is it of an epoch before the last of its device?
    pub(crate) fn is_before(&self, last: &LastEpochs) -> bool {
        let device = device_of(self.request);
        last.0.iter().any(|(d, last)| *d == device && self.epoch < *last)
    }

    fn new(at: Sector, data: Vec<Slice>, request: u64, pos: usize, born: u32) -> Unit {
        Unit {
            at,
            data,
            request,
            pos,
            born,
            gone: u32::MAX,
            durable: false,
            epoch: 0,
            effect: LossEffect::Data,
            heir: None,
            id: OnceCell::new(),
        }
    }

    /// Its length in sectors.
    pub fn sectors(&self) -> u64 {
        self.data.iter().map(|s| u64::from(s.len())).sum::<u64>() / SECTOR_BYTES
    }

    /// Identity of its contents; for a unit that is one slice.
    pub fn id(&self) -> u128 {
        *self.id.get_or_init(|| match &self.data[..] {
            [one] => one.id(),
            many => many.iter().fold(0, |h: u128, s| {
                h.rotate_left(17).wrapping_mul(0x0000_0100_0000_01B3_0000_0100_0000_01B3) ^ s.id()
            }),
        })
    }

    /// Lays it over `medium`.
    pub fn apply(&self, medium: &mut Medium) {
        let mut at = self.at;
        for slice in &self.data {
            medium.write(at, slice);
            at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
        }
    }

    fn covers(&self, other: &Unit) -> bool {
        self.at <= other.at && other.at.0 + other.sectors() <= self.at.0 + self.sectors()
    }

    fn meets(&self, other: &Unit) -> bool {
        self.at.0 < other.at.0 + other.sectors() && other.at.0 < self.at.0 + self.sectors()
    }
}

/// A stretch of the tape in which nothing changes for a power failure.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Position on the tape of the entry that began it.
    pub pos: usize,
    /// Everything durable.
    pub base: Medium,
    /// Unpersisted units, in the order in which the device got them.
    pub live: Vec<u32>,
    /// How many of them, at the end, are unpersisted for the first time.
    pub new: usize,
    /// Do epochs bind: what of an epoch is kept presupposes all of the epochs before?
    pub epochs: bool,
    /// Zones with nothing of `live` kept; none of a device without.
    pub zones: Option<Rc<Vec<Zone>>>,
}

/// All that a tape says of power failures.
#[derive(Clone, Debug)]
pub struct History {
    /// Units, in order.
    pub units: Vec<Unit>,
    /// Frames, in order. The first is the beginning of the tape.
    pub frames: Vec<Frame>,
    /// Length of the tape.
    pub end: usize,
    /// The device's zones, if it has any.
    pub zones: Option<ZoneSpace>,
    /// For each unit the first frame in which it or a later one is gone.
    pub(crate) first_gone: Vec<u32>,
}

struct Builder {
    units: Vec<Unit>,
    frames: Vec<Frame>,
    base: Medium,
    live: Vec<u32>,
    epochs: bool,
    space: Option<ZoneSpace>,
    /// What is durable of the zones.
    zones: Option<Rc<Vec<Zone>>>,
}

impl Builder {
    fn new(tape: &Tape, epochs: bool, order: ZoneOrder) -> Builder {
        let space = tape.zones.as_ref().map(|z| ZoneSpace { limits: z.limits, order });
        let (base, zones) = (tape.base.clone(), tape.zones.as_ref().map(|z| z.table.clone()));
        let first = Frame {
            pos: 0,
            base: base.clone(),
            live: Vec::new(),
            new: 0,
            epochs,
            zones: zones.clone(),
        };
        Builder {
            units: Vec::new(),
            frames: vec![first],
            base,
            live: Vec::new(),
            epochs,
            space,
            zones,
        }
    }

    fn next(&self) -> u32 {
        self.frames.len() as u32
    }

    fn frame(&mut self, pos: usize, new: usize) {
        self.frames.push(Frame {
            pos,
            base: self.base.clone(),
            live: self.live.clone(),
            new,
            epochs: self.epochs,
            zones: self.zones.clone(),
        });
    }

    /// Makes units durable, oldest first; what they cover is gone with them.
    fn settle(&mut self, numbers: &BTreeSet<u32>) {
        let numbers = &self.with_their_zones(&self.with_their_epochs(numbers));
        let next = self.next();
        let mut covered = Vec::new();
        let others = Places::of(&self.units, &self.live, numbers);
        for n in numbers {
            let unit = &self.units[*n as usize];
            unit.apply(&mut self.base);
            // Older data below are worth nothing now, and must not be laid over this later.
            for o in others.near(unit).filter(|o| o < n) {
                if unit.meets(&self.units[o as usize]) {
                    covered.push((o, *n));
                }
            }
        }
        for (mut older, newer) in covered {
            // Of one that two of them meet the second meets what the first has left.
            while let Some(heir) = self.units[older as usize].heir {
                older = heir;
            }
            if self.units[older as usize].gone == u32::MAX {
                self.cover(older, newer, next);
            }
        }
        for n in numbers {
            let unit = &mut self.units[*n as usize];
            unit.gone = next;
            unit.durable = true;
        }
        let units = &self.units;
        self.live.retain(|n| units[*n as usize].gone == u32::MAX);
    }

    /// `numbers` and what barriers put before them.
    fn with_their_epochs(&self, numbers: &BTreeSet<u32>) -> BTreeSet<u32> {
        if !self.epochs {
            return numbers.clone();
        }
        let mut last = LastEpochs::default();
        numbers.iter().for_each(|n| last.note(&self.units[*n as usize]));
        let before = self.live.iter().filter(|n| self.units[**n as usize].is_before(&last));
        numbers.iter().chain(before).copied().collect()
    }

    /// `numbers` and what is durable with them, for the order of their zones; moves the pointers.
    fn with_their_zones(&mut self, numbers: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut all = numbers.clone();
        let Some(space) = &self.space else { return all };
        for n in numbers {
            all.extend(space.before(&self.units, &self.live, *n));
        }
        if let Some(zones) = &self.zones {
            let units = all.iter().map(|n| &self.units[*n as usize]);
            self.zones = Some(Rc::new(space.with(zones, units)));
        }
        all
    }

    /// Takes from what `older` may leave the part that `newer` has made durable.
    fn cover(&mut self, older: u32, newer: u32, next: u32) {
        let old = self.units[older as usize].clone();
        if old.gone == u32::MAX {
            self.units[older as usize].gone = next;
        }
        let new = &self.units[newer as usize];
        if new.covers(&old) {
            return;
        }
        // Laying the durable part over it is the same as leaving that part alone.
        let mut own = Medium::new();
        old.apply(&mut own);
        new.apply(&mut own);
        let data = own.read(old.at, old.sectors() as u32);
        let new = Unit::new(old.at, data, old.request, old.pos, next);
        let heir = Unit { gone: u32::MAX, epoch: old.epoch, ..new };
        let number = self.units.len() as u32;
        self.units.push(heir);
        self.units[older as usize].heir = Some(number);
        for n in self.live.iter_mut().filter(|n| **n == older) {
            *n = number;
        }
    }

    fn finish(self, end: usize) -> History {
        let first_gone = first_gone(&self.units);
        History { units: self.units, frames: self.frames, end, zones: self.space, first_gone }
    }
}

/// Unpersisted units by where they are: of thousands few overlap another.
struct Places {
    /// First sector, position among the unpersisted units, number; in order.
    units: Vec<(u64, usize, u32)>,
    /// Sectors of the longest.
    longest: u64,
}

impl Places {
    /// Those of `live` that are not in `without`.
    fn of(units: &[Unit], live: &[u32], without: &BTreeSet<u32>) -> Places {
        let others = live.iter().enumerate().filter(|(_, n)| !without.contains(n));
        let mut out = Places { units: Vec::new(), longest: 0 };
        for (position, n) in others {
            let unit = &units[*n as usize];
            out.longest = out.longest.max(unit.sectors());
            out.units.push((unit.at.0, position, *n));
        }
        out.units.sort_unstable();
        out
    }

    /// All that may meet `unit`, in the order in which they came into doubt.
    fn near(&self, unit: &Unit) -> impl Iterator<Item = u32> {
        let first = unit.at.0.saturating_sub(self.longest);
        let from = self.units.partition_point(|u| u.0 < first);
        let end = unit.at.0 + unit.sectors();
        let near = self.units[from..].iter().take_while(|u| u.0 < end);
        let mut near: Vec<(usize, u32)> = near.map(|u| (u.1, u.2)).collect();
        near.sort_unstable();
        near.into_iter().map(|(_, n)| n)
    }
}

impl History {
    /// What `contract` permits after each event of the tape, whatever the device that made it.
    pub fn permitted(tape: &Tape, contract: &Contract) -> History {
        let ends = |id: u64, flags| tape.ends_epoch(id, flags) && !contract.lost_barriers;
        let keeps_epochs = !tape.ordered.is_empty() && !contract.lost_barriers;
        let mut b = Builder::new(tape, keeps_epochs, contract.zone_order);
        // Barrier writes that each device has received.
        let mut epochs: BTreeMap<u64, u32> = BTreeMap::new();
        // The zones with all that was sent.
        let mut sent: Vec<Zone> = tape.zones.iter().flat_map(|z| z.table.to_vec()).collect();
        // Requests in flight: number -> (its units, does it go through?).
        let mut flying: BTreeMap<u64, (Vec<u32>, bool)> = BTreeMap::new();
        // Cache flushes in flight: number -> what was complete when it was sent.
        let mut flushes: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut complete: BTreeSet<u32> = BTreeSet::new();
        for (pos, (_, entry)) in tape.entries.iter().enumerate() {
            match entry {
                Entry::Submit { id, op: Op::Flush, data, .. } => {
                    let covered =
                        if contract.lying_flush { BTreeSet::new() } else { complete.clone() };
                    let by = Flushed::of(*id, data);
                    let covered = covered.into_iter().filter(|n| by.covers(&b.units[*n as usize]));
                    flushes.insert(*id, covered.collect());
                }
                Entry::Submit { op: Op::Read, .. } => {}
                Entry::Submit { id, op, flags, at, sectors, data } => {
                    let parts: Vec<(LossEffect, Sector, Vec<Slice>)> = match (op, &b.space) {
                        (Op::Discard, _) => {
                            vec![(LossEffect::Data, *at, zeroes(u64::from(*sectors)))]
                        }
                        (Op::Zone(op), Some(space)) if !op.writes() => {
                            space.command(*op, *at, &sent)
                        }
                        _ => tape.parts(*id, *at, data, contract.atomic),
                    };
                    let born = b.next();
                    let first = b.units.len() as u32;
                    let received = epochs.entry(device_of(*id)).or_default();
                    let epoch = if *op == Op::Write { *received } else { NO_EPOCH };
                    *received += u32::from(*op == Op::Write && ends(*id, *flags));
                    for (effect, at, data) in parts {
                        let unit = Unit { effect, epoch, ..Unit::new(at, data, *id, pos, born) };
                        if let Some(space) = &b.space {
                            space.limits.keep(&mut sent, effect, at, unit.sectors());
                        }
                        b.units.push(unit);
                    }
                    let numbers: Vec<u32> = (first..b.units.len() as u32).collect();
                    // What has been done to a zone is done for good.
                    let manages = matches!(op, Op::Zone(op) if !op.writes());
                    let through = manages
                        || !contract.volatile
                        || tape.durable.contains(&device_of(*id))
                        || flags.has(Flags::FUA) && !contract.lost_fua && op.writes();
                    b.live.extend(&numbers);
                    b.frame(pos, numbers.len());
                    flying.insert(*id, (numbers, through));
                }
                Entry::Complete { id, ok } => {
                    if let Some((numbers, through)) = flying.remove(id) {
                        // A write that failed may be there or not, and no flush covers it.
                        // It may be durable already, with something of an epoch behind its own.
                        let is_open = |n: &u32| b.units[*n as usize].gone == u32::MAX;
                        let is_done = keeps_epochs && !numbers.iter().any(is_open);
                        if *ok && through && !is_done {
                            b.settle(&numbers.into_iter().collect());
                            b.frame(pos, 0);
                        } else if *ok {
                            complete.extend(numbers);
                        }
                    } else if let Some(covered) = flushes.remove(id) {
                        let left: BTreeSet<u32> = covered
                            .into_iter()
                            .filter(|n| b.units[*n as usize].gone == u32::MAX)
                            .collect();
                        if *ok && !left.is_empty() {
                            complete.retain(|n| !left.contains(n));
                            b.settle(&left);
                            b.frame(pos, 0);
                        }
                    }
                }
                Entry::Model(_) | Entry::Begin(_) | Entry::End(_) => {}
            }
        }
        b.finish(tape.entries.len())
    }

    /// What the device that made the tape could have been left with, by its own account.
    ///
    /// `atomic` splits what the model holds as one, as in [`Contract::atomic`].
    pub fn modelled(tape: &Tape, atomic: u32) -> History {
        let mut views = tape.entries.iter().filter_map(|(_, e)| match e {
            Entry::Model(view) => view.zones.as_ref(),
            _ => None,
        });
        let order = views.next_back().map_or(ZoneOrder::Prefix, |z| z.order);
        let mut b = Builder::new(tape, true, order);
        // Unpersisted: (sequence, sector of the model's unit) -> our units.
        let mut known: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
        for (pos, (_, entry)) in tape.entries.iter().enumerate() {
            let Entry::Model(view) = entry else { continue };
            let born = b.next();
            let mut now: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
            let (mut live, mut fresh): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
            for unit in &view.loss {
                let key = (unit.seq, unit.at.0);
                if let Some(numbers) = known.remove(&key) {
                    live.extend(&numbers);
                    now.insert(key, numbers);
                    continue;
                }
                let first = b.units.len() as u32;
                let mut parts = tape.parts(0, unit.at, &unit.data, atomic);
                if unit.effect != LossEffect::Data {
                    parts = vec![(unit.effect, unit.at, unit.data.clone())];
                }
                for (_, at, data) in parts {
                    let mut u = Unit::new(at, data, unit.seq, pos, born);
                    u.epoch = unit.epoch;
                    u.effect = unit.effect;
                    b.units.push(u);
                }
                let numbers: Vec<u32> = (first..b.units.len() as u32).collect();
                fresh.extend(&numbers);
                now.insert(key, numbers);
            }
            for n in known.values().flatten() {
                b.units[*n as usize].gone = born;
                b.units[*n as usize].durable = true;
            }
            b.base = view.medium.clone();
            b.zones = view.zones.as_ref().map(|z| z.table.clone());
            let new = fresh.len();
            // Our numbers follow the order of the device; new ones are the latest.
            live.extend(fresh);
            b.live = live;
            known = now;
            b.frame(pos, new);
        }
        b.finish(tape.entries.len())
    }

    /// What the device that made the tape was left with at each moment if none of its unpersisted
    /// units is kept: the frames of [`History::modelled`] without units.
    pub fn certain(tape: &Tape) -> History {
        let mut b = Builder::new(tape, true, ZoneOrder::Prefix);
        for (pos, (_, entry)) in tape.entries.iter().enumerate() {
            let Entry::Model(view) = entry else { continue };
            b.base = view.medium.clone();
            b.zones = view.zones.as_ref().map(|z| z.table.clone());
            b.frame(pos, 0);
        }
        b.finish(tape.entries.len())
    }

    /// The last position on the tape, exclusive, at which a cut can leave what a cut in `frame`
    /// with these of its units lost (`kept(i)`: is `live[i]` kept?) leaves.
    pub fn until(&self, frame: usize, kept: impl Fn(usize) -> bool) -> usize {
        let lost = self.frames[frame].live.iter().enumerate().filter(|(i, _)| !kept(*i));
        let own = lost.map(|(_, n)| self.gone(*n)).min().unwrap_or(u32::MAX);
        self.until_gone(frame, own)
    }

    /// The same if unit `lost` of its alone is lost.
    pub(crate) fn until_without(&self, frame: usize, lost: usize) -> usize {
        self.until_gone(frame, self.gone(self.frames[frame].live[lost]))
    }

    /// The same if what is lost of its units is there to be lost until frame `own`.
    fn until_gone(&self, frame: usize, own: u32) -> usize {
        self.position(own.min(self.later_gone(frame)))
    }

    /// The first frame in which a unit is there for good that came after `frame`, and that a power
    /// failure in `frame` has lost.
    pub(crate) fn later_gone(&self, frame: usize) -> u32 {
        let after = self.units.partition_point(|u| u.born <= frame as u32);
        self.first_gone.get(after).copied().unwrap_or(u32::MAX)
    }

    /// The position on the tape at which a frame begins; the end behind the last.
    pub(crate) fn position(&self, frame: u32) -> usize {
        self.frames.get(frame as usize).map_or(self.end, |f| f.pos)
    }

    /// The first frame that ends behind this position on the tape; the last one if none does.
    pub fn frame_after(&self, pos: usize) -> usize {
        let last = self.frames.len().saturating_sub(1);
        (0..last).find(|number| self.end_of(*number) > pos).unwrap_or(last)
    }

    /// The position on the tape at which frame `number` ends.
    pub fn end_of(&self, number: usize) -> usize {
        self.frames.get(number + 1).map_or(self.end, |f| f.pos)
    }

    /// A choice of frame `from` as one of the later frame `to`: the same image, for a cut there.
    /// What came into doubt meanwhile is lost.
    pub fn later(&self, from: usize, kept: &Kept, to: usize) -> Kept {
        let mut chosen: BTreeSet<u32> = BTreeSet::new();
        let live = self.frames[from].live.iter().enumerate();
        for (_, number) in live.filter(|(i, _)| kept.has(*i)) {
            let mut unit = Some(*number);
            while let Some(n) = unit {
                chosen.insert(n);
                unit = self.units[n as usize].heir;
            }
        }
        let live = &self.frames[to].live;
        let mut out = Kept::none(live.len());
        for (i, n) in live.iter().enumerate().filter(|(_, n)| chosen.contains(n)) {
            debug_assert!(self.units[*n as usize].gone > to as u32);
            out.set(i, true);
        }
        out
    }

    /// First frame in which no part of a unit is unpersisted.
    pub(crate) fn gone(&self, unit: u32) -> u32 {
        let mut unit = &self.units[unit as usize];
        while let Some(heir) = unit.heir {
            unit = &self.units[heir as usize];
        }
        unit.gone
    }
}

pub(crate) fn zeroes(sectors: u64) -> Vec<Slice> {
    const MOST: u64 = 1 << 21;
    let whole = (0..sectors / MOST).map(|_| MOST);
    let rest = Some(sectors % MOST).filter(|n| *n > 0);
    whole.chain(rest).map(|n| Slice::zero((n * SECTOR_BYTES) as u32)).collect()
}
