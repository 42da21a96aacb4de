//! From the buffer to the dies: units that fill, wait and are programmed; tokens; `wp-nand`.

use std::collections::VecDeque;

use wp_base::event::{DeviceWork, Die, Work};
use wp_base::{SECTOR_BYTES, Sector, Span, Time};
use wp_block::Effects;
use wp_medium::Slice;

use crate::contents::{cut, write_all};
use crate::nand::SLOT_BYTES;
use crate::zns::{CONVENTIONAL, NONE, Timer, Zns};

/// Sectors of a slot.
pub(crate) const SLOT_SECTORS: u64 = SLOT_BYTES / SECTOR_BYTES;

/// Zones that follow one another begin this many dies apart, so that they do not all write the
/// same die at the same time. Any number without a factor in common with the dies does.
const DIE_STEP: u32 = 5;

/// Neighbouring slots of one request in a unit.
#[derive(Clone)]
pub(super) struct Entry {
    /// First slot on the device.
    pub slot: u32,
    pub slots: u32,
    /// Order in which the request's data came.
    pub seq: u64,
    pub data: Vec<Slice>,
}

impl Entry {
    /// Its place on the device: first sector, sectors.
    fn range(&self) -> (Sector, u32) {
        (Sector(u64::from(self.slot) * SLOT_SECTORS), self.slots * SLOT_SECTORS as u32)
    }
}

/// A program unit between its first slot and its end on the flash.
#[derive(Clone)]
pub(super) struct Unit {
    /// Its zone, or [`CONVENTIONAL`].
    pub zone: u32,
    pub die: u32,
    /// Slots in use; none of padding.
    pub filled: u32,
    /// Slots of the zone up to its end.
    pub end: u32,
    /// Is it a finish's?
    pub padding: bool,
    /// Has its zone been reset since? Then it holds nothing.
    pub dead: bool,
    /// Since when the die has programmed it; `NEVER` until then.
    pub started: Time,
    /// Order in which units were begun.
    pub serial: u64,
    pub programmed: bool,
    /// Has the device made it durable without programming it?
    pub saved: bool,
    pub entries: Vec<Entry>,
}

/// The units, and the dies' queues.
#[derive(Clone)]
pub(super) struct Units {
    units: Vec<Option<Unit>>,
    spare: Vec<u32>,
    /// Units that wait for each die, and whether it programs.
    queues: Vec<(VecDeque<u32>, bool)>,
    serial: u64,
}

impl Units {
    pub(super) fn new(dies: u32) -> Units {
        Units {
            units: Vec::new(),
            spare: Vec::new(),
            queues: vec![(VecDeque::new(), false); dies as usize],
            serial: 0,
        }
    }

    pub(super) fn get(&self, key: u32) -> &Unit {
        self.units[key as usize].as_ref().expect("keys are of units in the buffer")
    }

    pub(super) fn get_mut(&mut self, key: u32) -> &mut Unit {
        self.units[key as usize].as_mut().expect("keys are of units in the buffer")
    }

    /// Serial number that the next unit gets.
    pub(super) fn next_serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter().flatten()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Unit> {
        self.units.iter_mut().flatten()
    }

    fn begin(&mut self, zone: u32, die: u32, end: u32, padding: bool) -> u32 {
        let unit = Unit {
            zone,
            die,
            filled: 0,
            end,
            padding,
            dead: false,
            started: Time::NEVER,
            serial: self.serial,
            programmed: false,
            saved: false,
            entries: Vec::new(),
        };
        self.serial += 1;
        match self.spare.pop() {
            Some(key) => {
                self.units[key as usize] = Some(unit);
                key
            }
            None => {
                self.units.push(Some(unit));
                self.units.len() as u32 - 1
            }
        }
    }

    /// What a unit holds is gone; the unit too, unless it still is to be programmed.
    pub(super) fn drop_data(&mut self, key: u32, filling: bool) {
        let unit = self.get_mut(key);
        if filling || unit.programmed {
            self.remove(key);
        } else {
            unit.dead = true;
            unit.entries.clear();
        }
    }

    fn remove(&mut self, key: u32) -> Unit {
        self.spare.push(key);
        self.units[key as usize].take().expect("keys are of units in the buffer")
    }
}

impl Zns {
    // ---- tokens ----

    /// May `zone` have `slots` tokens? Its share is that of one writer of all, unless it has
    /// nothing on its way to the flash: then nothing would give it any back.
    fn may_take(&self, zone: u32, slots: u32) -> bool {
        if self.tokens < slots {
            return false;
        }
        if self.tokens - slots >= self.config.buffer_slots / 2 {
            return true;
        }
        let buf = &self.bufs[&zone];
        let others = self.bufs.iter().filter(|(z, b)| **z != zone && b.is_writer()).count();
        let share = self.config.buffer_slots / (others as u32 + 1);
        buf.held + slots <= share || (buf.outstanding == 0 && buf.flying == 0)
    }

    fn take_tokens(&mut self, zone: u32, slots: u32) {
        self.tokens -= slots;
        self.buf(zone).held += slots;
    }

    /// Lets writes and finishes go on that wait for tokens, zone by zone, one each in turn.
    pub(super) fn share_out(&mut self, now: Time, fx: &mut Effects) {
        loop {
            let wants = |b: &super::ZoneBuf| !b.waiting.is_empty() || b.finish.is_some();
            let ahead = self.bufs.range(self.turn + 1..).chain(self.bufs.range(..=self.turn));
            let zones: Vec<u32> = ahead.filter(|(_, b)| wants(b)).map(|(z, _)| *z).collect();
            let mut any = false;
            for zone in zones {
                let gone = match self.bufs[&zone].waiting.front().copied() {
                    Some(key) => self.admit(now, key, fx),
                    None => self.pad_one(now, zone, fx),
                };
                if gone {
                    self.turn = zone;
                    any = true;
                }
            }
            if !any {
                return;
            }
        }
    }

    /// A write gets its tokens and goes over the link, if it may.
    pub(super) fn admit(&mut self, now: Time, key: u32, fx: &mut Effects) -> bool {
        let rq = self.request(key);
        let (zone, sectors, id, decoded) = (rq.zone, rq.sectors, rq.id, rq.decoded);
        let slots = (u64::from(sectors) / SLOT_SECTORS) as u32;
        if !self.may_take(zone, slots) {
            return false;
        }
        self.take_tokens(zone, slots);
        let list = self.list_span(sectors);
        let span = Zns::link_span(sectors, self.config.link_mb_s);
        let buf = self.buf(zone);
        if buf.waiting.front() == Some(&key) {
            buf.waiting.pop_front();
        }
        buf.flying += 1;
        // Data of one zone come in its order.
        let ready = (decoded.max(now) + list).max(buf.last_arrival);
        let moved = self.links[1].reserve(now, ready, span);
        self.buf(zone).last_arrival = moved;
        if decoded < now {
            fx.tell(|| DeviceWork::front(Work::AwaitBuffer, id, decoded, decoded, now));
        }
        fx.tell(|| DeviceWork {
            bytes: u64::from(sectors) * SECTOR_BYTES,
            ..DeviceWork::front(Work::Transfer, id, ready, moved.before(span), moved)
        });
        Timer::Arrived.set(moved, u64::from(key), fx);
        true
    }

    // ---- units ----

    /// Begins a unit of `zone`.
    fn begin_unit(&mut self, zone: u32, padding: bool) -> u32 {
        let dies = self.config.geometry.dies;
        let layout = self.layouts.entry(zone).or_default();
        let number = layout.next;
        layout.next += 1;
        // Units of the conventional zones are found again by their serial.
        let die = match zone {
            CONVENTIONAL => (self.units.next_serial() % u64::from(dies)) as u32,
            _ => self.die_of(zone, number),
        };
        let end = self.bufs[&zone].arrived;
        self.units.begin(zone, die, end, padding)
    }

    /// The die of unit `number` of a zone.
    pub(super) fn die_of(&self, zone: u32, number: u32) -> u32 {
        let dies = self.config.geometry.dies;
        (zone.wrapping_mul(DIE_STEP) % dies + number) % dies
    }

    /// Lays the data of a write into units of its zone.
    pub(super) fn place(
        &mut self,
        now: Time,
        zone: u32,
        slot: u32,
        seq: u64,
        data: Vec<Slice>,
        fx: &mut Effects,
    ) {
        let unit_slots = self.config.geometry.unit_slots;
        let bytes: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        let slots = (bytes / SLOT_BYTES) as u32;
        let (mut done, mut data) = (0, data);
        while done < slots {
            let mut key = self.bufs[&zone].filling;
            if key == NONE {
                key = self.begin_unit(zone, false);
                let buf = self.buf(zone);
                buf.filling = key;
                buf.units.push_back(key);
            }
            let unit = self.units.get_mut(key);
            let n = (slots - done).min(unit_slots - unit.filled);
            let piece = if n == slots {
                std::mem::take(&mut data)
            } else {
                cut(&data, u64::from(done) * SLOT_BYTES, u64::from(n) * SLOT_BYTES)
            };
            if zone == CONVENTIONAL {
                for i in 0..n {
                    let place = unit.serial * u64::from(unit_slots) + u64::from(unit.filled + i);
                    self.conventional.insert(slot + done + i, place);
                }
            }
            unit.entries.push(Entry { slot: slot + done, slots: n, seq, data: piece });
            unit.saved = false;
            unit.filled += n;
            unit.end += n;
            let full = unit.filled == unit_slots;
            done += n;
            self.buf(zone).arrived += n;
            if full {
                self.close_unit(now, zone, fx);
            }
        }
    }

    /// The unit that `zone` fills is to be programmed as it is.
    pub(super) fn close_unit(&mut self, now: Time, zone: u32, fx: &mut Effects) {
        let Some(buf) = self.bufs.get_mut(&zone) else { return };
        let key = std::mem::replace(&mut buf.filling, NONE);
        if key == NONE {
            return;
        }
        buf.outstanding += 1;
        let padded = self.config.geometry.unit_slots - self.units.get(key).filled;
        if padded > 0 {
            self.more.units_padded += 1;
            self.more.slots_padded += u64::from(padded);
            let first = self.bufs[&zone].arrived;
            let layout = self.layouts.entry(zone).or_default();
            layout.starts.push((first, layout.next));
        }
        self.dispatch(now, key, fx);
    }

    /// A finish pads one unit more, if it has tokens. False: not now, or not any more.
    pub(super) fn pad_one(&mut self, now: Time, zone: u32, fx: &mut Effects) -> bool {
        let unit_slots = self.config.geometry.unit_slots;
        let left = self.bufs[&zone].finish.as_ref().map_or(0, |f| f.units);
        if left == 0 || !self.may_take(zone, unit_slots) {
            return false;
        }
        self.take_tokens(zone, unit_slots);
        let key = self.begin_unit(zone, true);
        let buf = self.buf(zone);
        buf.outstanding += 1;
        if let Some(finish) = &mut buf.finish {
            finish.units -= 1;
        }
        self.more.pad_units += 1;
        self.dispatch(now, key, fx);
        true
    }

    /// A unit goes to its die, by way of the map if that is busy.
    fn dispatch(&mut self, now: Time, key: u32, fx: &mut Effects) {
        if !self.map_takes(key) {
            self.send_to_die(now, key, fx);
        }
    }

    pub(super) fn send_to_die(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let queue = self.queue_of(key);
        self.units.queues[queue].0.push_back(key);
        self.start_next(now, queue, fx);
    }

    /// The queue that a unit waits in: its die's, or the one of all.
    fn queue_of(&self, key: u32) -> usize {
        if self.config.serial { 0 } else { self.unit(key).die as usize }
    }

    fn start_next(&mut self, now: Time, queue: usize, fx: &mut Effects) {
        let (waiting, busy) = &mut self.units.queues[queue];
        if *busy {
            return;
        }
        let Some(key) = waiting.pop_front() else { return };
        *busy = true;
        let die = self.unit(key).die;
        let padding = self.unit(key).padding;
        let (start, end) = match padding {
            true => self.nand.pad(now, now, die),
            false => self.nand.program(now, now, die, self.nand.timing().program),
        };
        self.units.get_mut(key).started = start;
        Timer::Programmed.set(end, u64::from(key), fx);
    }

    /// A die has programmed a unit, unless reads have put that off.
    pub(super) fn programmed(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let die = self.unit(key).die;
        let end = self.nand.program_end(die);
        if end > now {
            Timer::Programmed.set(end, u64::from(key), fx);
            return;
        }
        let queue = self.queue_of(key);
        self.units.queues[queue].1 = false;
        self.start_next(now, queue, fx);
        self.tell_program(now, key, fx);
        let unit = self.units.get_mut(key);
        unit.programmed = true;
        let (zone, serial, padding) = (unit.zone, unit.serial, unit.padding);
        let (dead, saved) = (unit.dead, unit.saved);
        let slots =
            if padding { self.config.geometry.unit_slots } else { self.units.get(key).filled };
        let buf = self.buf(zone);
        buf.outstanding -= 1;
        buf.held -= slots;
        self.tokens += slots;
        if padding || dead {
            self.units.remove(key);
        } else if zone == CONVENTIONAL {
            self.conventional_programmed(key);
        } else {
            self.advance(now, zone, fx);
        }
        if !padding && !saved {
            self.flush_progress(now, zone, serial, fx);
        }
        self.finish_progress(now, zone, fx);
        self.share_out(now, fx);
        self.drop_if_idle(zone);
    }

    /// Moves `wp-nand` over the units that are programmed without a gap.
    fn advance(&mut self, now: Time, zone: u32, fx: &mut Effects) {
        while let Some(key) = self.bufs[&zone].units.front().copied() {
            if !self.unit(key).programmed {
                break;
            }
            let unit = self.units.remove(key);
            let buf = self.buf(zone);
            buf.units.pop_front();
            buf.durable = buf.durable.max(unit.end);
            self.make_durable(&unit);
        }
        let durable = self.bufs[&zone].durable;
        let (ended, wait) = self.bufs[&zone].fua.iter().partition(|(end, _)| *end <= durable);
        self.buf(zone).fua = wait;
        let ended: Vec<(u32, u32)> = ended;
        for (_, key) in ended {
            self.placed(now, key, fx);
        }
    }

    fn make_durable(&mut self, unit: &Unit) {
        if self.config.plp || unit.saved {
            return;
        }
        for e in &unit.entries {
            write_all(&mut self.durable, Sector(u64::from(e.slot) * SLOT_SECTORS), &e.data);
        }
    }

    /// Units of the conventional zones are durable in any order; older data never cover newer.
    fn conventional_programmed(&mut self, key: u32) {
        let unit = self.units.remove(key);
        if let Some(buf) = self.bufs.get_mut(&CONVENTIONAL) {
            buf.units.retain(|other| *other != key);
        }
        if self.config.plp {
            return;
        }
        for e in &unit.entries {
            for i in 0..e.slots {
                let newest = self.newest.entry(e.slot + i).or_default();
                if *newest < e.seq {
                    *newest = e.seq;
                    let at = Sector(u64::from(e.slot + i) * SLOT_SECTORS);
                    let data = cut(&e.data, u64::from(i) * SLOT_BYTES, SLOT_BYTES);
                    write_all(&mut self.durable, at, &data);
                }
            }
        }
    }

    fn tell_program(&self, now: Time, key: u32, fx: &mut Effects) {
        fx.tell(|| {
            let unit = self.unit(key);
            let waits = self.flushes.iter().filter(|(_, before, _)| unit.serial < *before);
            let mut commands: Vec<u64> = waits.map(|(f, ..)| self.request(*f).id).collect();
            let buf = self.bufs.get(&unit.zone);
            let fua = buf.into_iter().flat_map(|b| &b.fua).map(|(_, f)| self.request(*f).id);
            commands.extend(fua);
            DeviceWork {
                what: Work::Program,
                die: Some(Die { channel: unit.die % self.config.geometry.channels, die: unit.die }),
                ready: unit.started,
                from: unit.started,
                to: now,
                bus: if unit.padding { Span::ZERO } else { self.config.timing.unit },
                cells: self.config.timing.program,
                bytes: u64::from(unit.filled) * SLOT_BYTES,
                gc: false,
                commands,
                holds: unit.entries.iter().map(Entry::range).collect(),
            }
        });
    }
}
