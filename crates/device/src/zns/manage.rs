//! Commands for zones: open, close, finish, reset, report; and the map, which resets share with
//! units that are to be programmed.
//!
//! Reset:   forgets the places of what the host has written, which is what it takes its time for;
//!          one reset after the other. The map serves a slice of it and a unit in turns.
//! Finish:  programs padding from where the zone ends, as a writer among the others. One that has
//!          completed is durable, so one of a zone that writes have filled waits for their units.

use std::collections::VecDeque;

use wp_base::event::{Op, ZoneOp};
use wp_base::{Sector, Span, Time, ZoneState};
use wp_block::{Effects, Status};

use crate::zns::flash::SLOT_SECTORS;
use crate::zns::{CONVENTIONAL, NONE, Timer, Zns, ZoneBuf};

/// Slots of a MiB.
const MIB_SLOTS: u64 = 256;

/// A finish under way.
#[derive(Clone)]
pub(super) struct Finish {
    key: u32,
    /// Units of padding still to be begun.
    pub units: u32,
    /// Slots that the host had written.
    written: u32,
    is_started: bool,
}

/// What the map is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Reset(Span),
    Unit(u32),
}

/// The map's queue.
#[derive(Clone, Default)]
pub(super) struct MapEngine {
    /// Resets: (request, what is left of it).
    resets: VecDeque<(u32, Span)>,
    /// Units that wait for their turn.
    units: VecDeque<u32>,
    turn: Option<Turn>,
}

impl Zns {
    /// May the command be done with the zone at `at`? Its zone; of those for all zones none.
    pub(super) fn check_zone_command(&self, op: ZoneOp, at: Sector) -> Result<u32, Status> {
        if op == ZoneOp::Report {
            return Ok(NONE);
        }
        if op == ZoneOp::ResetAll {
            let busy =
                |(zone, b): (&u32, &ZoneBuf)| b.finish.is_some() || self.is_being_written(*zone);
            let sequential = self.bufs.iter().filter(|(zone, _)| **zone != CONVENTIONAL);
            let none = self.resetting.is_empty() && !sequential.into_iter().any(busy);
            return if none { Ok(NONE) } else { Err(Status::Io) };
        }
        let zone = self.table.beginning_at(at)?;
        let in_the_way = self.resetting.contains(&zone)
            || self.bufs.get(&zone).is_some_and(|b| b.finish.is_some());
        match op {
            ZoneOp::Reset if self.is_being_written(zone) => Err(Status::Io),
            _ if in_the_way => Err(Status::Io),
            ZoneOp::Reset | ZoneOp::Finish => self.table.check_alive(zone).map(|()| zone),
            ZoneOp::Open => self.table.clone().open(zone).map(|()| zone),
            _ => self.table.clone().close(zone).map(|()| zone),
        }
    }

    /// Is data on its way to the zone? A reset beside it has no order with it, and is refused.
    fn is_being_written(&self, zone: u32) -> bool {
        self.bufs.get(&zone).is_some_and(|b| b.flying > 0 || !b.waiting.is_empty())
    }

    /// What a command changes at once, in the order in which commands come.
    pub(super) fn begin_zone_command(&mut self, key: u32) {
        let rq = self.request(key);
        let (op, zone) = (rq.op, rq.zone);
        let Op::Zone(op) = op else { return };
        let checked = "the command was checked when it came";
        match op {
            ZoneOp::Open => self.table.open(zone).expect(checked),
            ZoneOp::Close => self.table.close(zone).expect(checked),
            ZoneOp::Reset => drop(self.resetting.insert(zone)),
            ZoneOp::ResetAll => {
                let zones = self.table.zones().iter().enumerate();
                let full = zones.filter(|(_, z)| !matches!(z.state, ZoneState::NotWp));
                self.resetting.extend(full.map(|(i, _)| i as u32));
            }
            ZoneOp::Finish => {
                let state = self.table.get(zone).state;
                let waits = state == ZoneState::Full && self.is_in_doubt(zone);
                if waits || (state != ZoneState::Full && state != ZoneState::Empty) {
                    let z = *self.table.get(zone);
                    let written = ((z.wp.0 - z.start.0) / SLOT_SECTORS) as u32;
                    let finish = Finish { key, units: 0, written, is_started: false };
                    self.buf(zone).finish = Some(finish);
                }
                if state == ZoneState::Empty {
                    self.finished.insert(zone, 0);
                    // Units from before a reset may still be on their way.
                    let capacity = (self.config.zones.capacity_sectors / SLOT_SECTORS) as u32;
                    if let Some(buf) = self.bufs.get_mut(&zone) {
                        (buf.arrived, buf.durable) = (capacity, capacity);
                    }
                }
                self.table.finish(zone).expect(checked);
                self.more.finishes += 1;
            }
            ZoneOp::Append | ZoneOp::Report => {}
        }
    }

    /// A flush or a command for zones is understood.
    pub(super) fn decoded(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let rq = self.request(key);
        let (op, zone) = (rq.op, rq.zone);
        let c = &self.config;
        let Op::Zone(op) = op else { return self.flush(now, key, fx) };
        let span = match op {
            ZoneOp::Open => c.open,
            ZoneOp::Close => c.close,
            ZoneOp::Report => c.report,
            ZoneOp::Finish => match self.bufs.get(&zone).and_then(|b| b.finish.as_ref()) {
                Some(finish) if finish.key == key => return self.try_finish(now, zone, fx),
                _ => c.finish,
            },
            ZoneOp::Reset | ZoneOp::ResetAll | ZoneOp::Append => {
                let cost = self.reset_cost(zone);
                self.more.resets += 1;
                self.map.resets.push_back((key, cost));
                if self.map.turn.is_none() {
                    self.map_next(now, fx);
                }
                return;
            }
        };
        Timer::Complete.set(now + span, u64::from(key), fx);
    }

    /// A command for zones is over.
    pub(super) fn end_zone_command(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let rq = self.request(key);
        let zones: Vec<u32> = match rq.op {
            Op::Zone(ZoneOp::Reset) => vec![rq.zone],
            Op::Zone(ZoneOp::ResetAll) => self.resetting.iter().copied().collect(),
            _ => return,
        };
        for zone in zones {
            self.empty(zone);
            self.resetting.remove(&zone);
        }
        self.share_out(now, fx);
    }

    // ---- finish ----

    /// Would a power cut take something of what was written to the zone?
    fn is_in_doubt(&self, zone: u32) -> bool {
        let capacity = (self.config.zones.capacity_sectors / SLOT_SECTORS) as u32;
        !self.config.plp && self.bufs.get(&zone).is_some_and(|b| b.durable < capacity)
    }

    /// Begins a finish once nothing is on its way to the zone any more.
    pub(super) fn try_finish(&mut self, now: Time, zone: u32, fx: &mut Effects) {
        let capacity = (self.config.zones.capacity_sectors / SLOT_SECTORS) as u32;
        let unit_slots = self.config.geometry.unit_slots;
        let Some(buf) = self.bufs.get_mut(&zone) else { return };
        let quiet = buf.flying == 0 && buf.waiting.is_empty();
        let arrived = buf.arrived;
        match &mut buf.finish {
            Some(finish) if quiet && !finish.is_started => {
                finish.is_started = true;
                finish.units = (capacity - arrived) / unit_slots;
            }
            _ => return,
        }
        self.close_unit(now, zone, fx);
        self.share_out(now, fx);
        self.finish_progress(now, zone, fx);
    }

    /// Is a finish of `zone` over?
    pub(super) fn finish_progress(&mut self, now: Time, zone: u32, fx: &mut Effects) {
        let Some(buf) = self.bufs.get_mut(&zone) else { return };
        let over = |f: &Finish| f.is_started && f.units == 0;
        if buf.outstanding > 0 || !buf.finish.as_ref().is_some_and(over) {
            return;
        }
        if let Some(finish) = buf.finish.take() {
            self.finished.insert(zone, finish.written);
            Timer::Complete.set(now, u64::from(finish.key), fx);
        }
        self.drop_if_idle(zone);
    }

    // ---- reset ----

    /// What a reset of a zone, or of all that are to be reset, takes.
    fn reset_cost(&self, zone: u32) -> Span {
        let zones = match zone {
            NONE => self.resetting.iter().copied().collect(),
            one => vec![one],
        };
        let c = &self.config;
        let mut ns = c.reset.0;
        for zone in zones {
            let z = self.table.get(zone);
            let here = ((z.wp.0 - z.start.0) / SLOT_SECTORS) as u32;
            let written = self.finished.get(&zone).copied().unwrap_or(here);
            ns += u64::from(written) * c.reset_mib.0 / MIB_SLOTS;
            let programmed = self.bufs.get(&zone).map_or(here, |b| b.durable);
            if z.state != ZoneState::Full && programmed > 0 {
                ns += c.reset_open.0;
            }
        }
        Span(ns)
    }

    /// Makes a zone empty: what it held is gone from flash and buffer.
    fn empty(&mut self, zone: u32) {
        self.table.reset(zone);
        let (start, sectors) =
            (self.config.zones.start_of(zone), self.config.zones.capacity_sectors);
        self.current.discard(start, sectors);
        self.durable.discard(start, sectors);
        self.layouts.remove(&zone);
        self.finished.remove(&zone);
        let Some(buf) = self.bufs.get_mut(&zone) else { return };
        (buf.arrived, buf.durable) = (0, 0);
        let filling = std::mem::replace(&mut buf.filling, NONE);
        for key in std::mem::take(&mut buf.units) {
            self.units.drop_data(key, key == filling);
        }
        if filling != NONE {
            // Tokens of closed units come back when they are programmed.
            let closed = self.units.all().filter(|u| u.zone == zone && !u.programmed);
            let left: u32 = closed.map(|u| u.filled).sum();
            let buf = self.buf(zone);
            let freed = buf.held - left;
            buf.held = left;
            self.tokens += freed;
        }
        debug_assert_ne!(zone, CONVENTIONAL);
        self.drop_if_idle(zone);
    }

    // ---- the map ----

    /// Does a unit have to wait for its turn at the map?
    pub(super) fn map_takes(&mut self, unit: u32) -> bool {
        let busy = self.map.turn.is_some();
        if busy {
            self.map.units.push_back(unit);
        }
        busy
    }

    fn map_next(&mut self, now: Time, fx: &mut Effects) {
        let c = &self.config;
        let after_unit = matches!(self.map.turn, Some(Turn::Unit(_)));
        let unit_waits = !self.map.units.is_empty() && !self.map.resets.is_empty();
        let turn = if unit_waits && !after_unit {
            self.map.units.pop_front().map(Turn::Unit)
        } else {
            let first = self.map.resets.front_mut();
            first.map(|(_, left)| {
                let slice = Span(left.0.min(c.reset_slice.0));
                left.0 -= slice.0;
                Turn::Reset(slice)
            })
        };
        self.map.turn = turn;
        match turn {
            Some(Turn::Reset(slice)) => Timer::Map.set(now + slice, 0, fx),
            Some(Turn::Unit(_)) => Timer::Map.set(now + c.reset_unit, 0, fx),
            None => {
                // No reset any more: units need not wait.
                for unit in std::mem::take(&mut self.map.units) {
                    self.send_to_die(now, unit, fx);
                }
            }
        }
    }

    /// The map has finished a turn.
    pub(super) fn map_turn_over(&mut self, now: Time, fx: &mut Effects) {
        if let Some(Turn::Unit(key)) = self.map.turn {
            self.send_to_die(now, key, fx);
        } else if let Some((key, left)) = self.map.resets.front().copied()
            && left == Span::ZERO
        {
            self.map.resets.pop_front();
            Timer::Complete.set(now, u64::from(key), fx);
        }
        self.map_next(now, fx);
    }
}
