//! `zonemode=zbd`: where the operations of a job on zones go.
//!
//! Picture:    [`super::Sequence`] proposes a place -> [`Place::choose`] moves it: a write to a
//!             write pointer, of which some are open at a time; a read to what is written; a trim
//!             becomes a reset of its zone.
//! Invariants: 1. operations of one job at a time are on their way to a zone.
//!             2. a zone's write pointer here moves when a write is chosen, in the order of
//!                submission.
//! Left out:   `zoneskip`, zones that fail.
//! Source:     fio's manual; `zbd.c` of fio 3.33 for which zone is chosen when a limit of open
//!             zones is reached. Compared with logs of the installed fio.

mod setup;
mod table;

use std::cell::RefCell;
use std::rc::Rc;

pub use setup::{Devices, places};
pub use table::Zones;

use super::job::Job;
use super::sequence::Direction;

/// What an operation asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// What it does.
    pub direction: Direction,
    /// Where the sequence has it, in bytes.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
    /// Nothing of the job is on its way: it need not wait for that again.
    pub is_idle: bool,
}

/// Where an operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// Here.
    At {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// The zone that it holds until it ends ([`Place::ended`]).
        zone: Option<usize>,
        /// The zone is to be reset before.
        resets: bool,
    },
    /// Once the job's own operations have ended, ask again.
    Quiesce,
    /// Once another job's have, ask again.
    Busy,
    /// Nowhere: the file is done.
    Nowhere,
    /// A write is longer than a zone: fio ends its job with `EINVAL`.
    TooLong,
}

/// A job's part of a device's zones.
#[derive(Clone, Debug)]
pub struct Place {
    zones: Rc<RefCell<Zones>>,
    job: u32,
    is_random: bool,
    min_bs: [u64; 3],
    start: u64,
    span: u64,
    /// First zone, and the one behind the last.
    first: usize,
    end: usize,
    reads_beyond: bool,
    /// Zones that this job writes at a time; 0: as many as all.
    most_open: usize,
    open: usize,
    /// Bytes of data beyond which zones are reset, and the number of writes from one reset to the
    /// next.
    threshold: Option<(u64, u64)>,
}

impl Place {
    /// The part `start..start + span` of a device, in whole zones: the range is rounded.
    ///
    /// Errors: what fio refuses as well.
    pub fn new(
        job: &Job,
        zones: &Rc<RefCell<Zones>>,
        (start, span): (u64, u64),
    ) -> Result<Place, String> {
        let table = zones.borrow();
        let zone = table.zone_bytes;
        let behind = table.entries.len() as u64 * zone;
        if start.saturating_add(span) > behind {
            return Err(format!(
                "offset and size end at {}; its zones end at {behind}",
                start + span
            ));
        }
        if job.zone_size > 0 && job.zone_size != zone {
            return Err(format!("zonesize {}: the device's zones have {zone}", job.zone_size));
        }
        if job.trims && job.bs[2] != zone {
            return Err(format!("a trim resets a zone, and bs is {}: set bs={zone}", job.bs[2]));
        }
        let behind = table.at((start + span).saturating_sub(1)) + 1;
        let range = table.entries.get(table.at(start)..behind).unwrap_or_default();
        let (mut start, mut span) = (start, span);
        if range.iter().any(|e| e.is_sequential) {
            if job.writes || job.trims {
                let end = (start + span) / zone * zone;
                start = start.next_multiple_of(zone);
                span = end.saturating_sub(start);
            }
            if span == 0 {
                return Err(format!("offset and size leave less than one zone of {zone} bytes"));
            }
        }
        if job.job_max_open_zones > 0 && table.most_open == 0 {
            return Err("job_max_open_zones needs max_open_zones, or a device's limit".to_owned());
        }
        let share = |n: u64| (u128::from(span) * u128::from(n) / 1_000_000) as u64;
        let part = job.zone_reset_threshold.unwrap_or(0);
        let mut place = Place {
            zones: zones.clone(),
            job: job.thread_number,
            is_random: job.random,
            min_bs: job.min_bs,
            start,
            span,
            first: table.at(start),
            end: table.at(start + span),
            reads_beyond: job.read_beyond_wp,
            most_open: job.job_max_open_zones as usize,
            open: 0,
            threshold: job.zone_reset_every.map(|every| (share(part), every)),
        };
        drop(table);
        place.restart();
        Ok(place)
    }

    /// A round of the job begins: what counts towards the next reset begins anew.
    pub fn restart(&mut self) {
        if let Some((_, every)) = self.threshold {
            self.zones.borrow_mut().writes_left = every;
        }
    }

    /// Has the device nothing that may be read?
    pub fn has_nothing(&self) -> bool {
        !self.reads_beyond && self.zones.borrow().is_empty()
    }

    /// Its range in bytes, rounded to zones: first byte and length.
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.span)
    }

    /// Is a reset a command of the device, and no affair of fio's own?
    pub fn resets_device(&self) -> bool {
        !self.zones.borrow().is_emulated
    }

    /// First byte of a zone.
    pub fn start_of(&self, zone: usize) -> u64 {
        self.zones.borrow().entries[zone].start
    }

    /// An operation on a zone has ended; `end`: behind its last byte if it was a write.
    pub fn ended(&mut self, zone: usize, end: Option<u64>) {
        let mut table = self.zones.borrow_mut();
        let entry = &mut table.entries[zone];
        entry.owner = entry.owner.filter(|(_, n)| *n > 1).map(|(job, n)| (job, n - 1));
        let is_full = end.is_some_and(|end| end >= entry.capacity_end);
        if is_full && table.close_at(zone) {
            self.open = self.open.saturating_sub(1);
        }
    }

    /// Where an operation goes. What is chosen has begun: its zone is held, a write's pointer has
    /// moved. `shorten`: called once with the length of what is chosen, and answers with the one
    /// that it is to have.
    pub fn choose(&mut self, ask: Ask, shorten: &mut dyn FnMut(u64) -> u64) -> Chosen {
        match self.choose_zone(ask, shorten) {
            Chosen::At { offset, length, zone: None, resets } => {
                Chosen::At { offset, length: shorten(length), zone: None, resets }
            }
            chosen => chosen,
        }
    }

    fn choose_zone(&mut self, ask: Ask, shorten: &mut dyn FnMut(u64) -> u64) -> Chosen {
        let zones = self.zones.clone();
        let mut table = zones.borrow_mut();
        let mut offset = ask.offset;
        let zone = table.at(offset);
        let Some(entry) = table.entries.get(zone) else { return Chosen::Nowhere };
        if !entry.is_sequential {
            return self.conventional(&table, zone, ask);
        }
        let is_read = ask.direction == Direction::Read;
        if is_read && self.reads_beyond && !entry.is_offline {
            return self.unheld((offset, ask.length));
        }
        if ask.direction == Direction::Write && !self.is_random && offset >= entry.capacity_end {
            offset = entry.start + table.zone_bytes;
            if !self.contains(offset) {
                return Chosen::Nowhere;
            }
        }
        let zone = table.at(offset);
        let chosen = match ask.direction {
            Direction::Read => self.read(&table, zone, (offset, ask.length)),
            Direction::Write => self.write(&mut table, zone, (offset, ask.length), ask.is_idle),
            Direction::Trim => self.trim(&table, zone, (offset, ask.length)),
        };
        let Chosen::At { offset, length, zone: Some(zone), resets } = chosen else {
            return chosen;
        };
        if table.entries[zone].owner.is_some_and(|(job, _)| job != self.job) {
            return Chosen::Busy;
        }
        if resets && !ask.is_idle {
            return Chosen::Quiesce;
        }
        let resets = resets && table.reset_at(zone);
        let length = shorten(length);
        if length == 0 {
            return Chosen::Nowhere;
        }
        let offset = if ask.direction == Direction::Write {
            let at = table.entries[zone].wp;
            table.written_to(zone, at + length);
            at
        } else {
            offset
        };
        let entry = &mut table.entries[zone];
        entry.owner = Some((self.job, entry.owner.map_or(1, |(_, n)| n + 1)));
        Chosen::At { offset, length, zone: Some(zone), resets }
    }

    fn contains(&self, offset: u64) -> bool {
        offset.checked_sub(self.start).is_some_and(|at| at < self.span)
    }

    fn unheld(&self, (offset, length): (u64, u64)) -> Chosen {
        Chosen::At { offset, length, zone: None, resets: false }
    }

    /// A conventional zone takes everything, and a write does not go on into a sequential one.
    fn conventional(&self, table: &Zones, zone: usize, ask: Ask) -> Chosen {
        let (offset, length) = (ask.offset, ask.length);
        let next = table.entries.get(zone + 1).filter(|e| e.is_sequential);
        let border = next.map_or(u64::MAX, |e| e.start);
        if ask.direction != Direction::Write || offset + length <= border {
            return self.unheld((offset, length));
        }
        let min = self.min_bs[1];
        let (offset, room) = match offset + min > border {
            true => {
                let moved = table.entries[zone].start + (border - offset);
                (moved, length.min(border - moved))
            }
            false => (offset, border - offset),
        };
        self.unheld((offset, room / min * min))
    }

    fn held(&self, zone: usize, (offset, length): (u64, u64), resets: bool) -> Chosen {
        Chosen::At { offset, length, zone: Some(zone), resets }
    }

    /// The nearest other zone with `bytes` to read: the next ones of a sequential job.
    fn with_data(&self, table: &Zones, zone: usize, bytes: u64) -> Option<usize> {
        let has = |n: usize| {
            let e = &table.entries[n];
            !e.is_offline && e.start + bytes <= e.wp
        };
        for step in 1..=self.end.max(zone) {
            let after = Some(zone + step).filter(|n| *n < self.end);
            if after.is_none() && !self.is_random {
                return None;
            }
            let before = zone.checked_sub(step).filter(|n| *n >= self.first && self.is_random);
            if let Some(found) = [after, before].into_iter().flatten().find(|n| has(*n)) {
                return Some(found);
            }
        }
        None
    }

    fn read(&self, table: &Zones, asked: usize, (offset, length): (u64, u64)) -> Chosen {
        let min = self.min_bs[0];
        let readable = |n: usize| {
            let e = &table.entries[n];
            if e.is_offline { 0 } else { e.wp - e.start }
        };
        let (mut zone, mut at) = (asked, offset);
        let is_behind = !self.is_random && offset + min > table.entries[asked].wp;
        if readable(asked) < min || is_behind {
            let Some(found) = self.with_data(table, asked, min) else { return Chosen::Nowhere };
            zone = found;
            if !self.is_random {
                at = table.entries[found].start;
            }
        }
        let (entry, range) = (&table.entries[zone], readable(zone));
        if range <= length {
            at = entry.start;
        } else if self.is_random {
            let from = offset - table.entries[asked].start;
            at = entry.start + from % (range - length) / min * min;
        }
        if !entry.is_sequential {
            return self.unheld((at, length));
        }
        let length = length.min(entry.wp - at) / min * min;
        self.held(zone, (at, length), false)
    }

    fn trim(&self, table: &Zones, zone: usize, (offset, length): (u64, u64)) -> Chosen {
        let entry = &table.entries[zone];
        if !self.is_random || entry.wp > entry.start {
            return self.held(zone, (offset, length), true);
        }
        match self.with_data(table, zone, 1) {
            Some(zone) => self.held(zone, (table.entries[zone].start, length), true),
            None => Chosen::Nowhere,
        }
    }

    fn write(
        &mut self,
        table: &mut Zones,
        asked: usize,
        (offset, length): (u64, u64),
        is_idle: bool,
    ) -> Chosen {
        let min = self.min_bs[1];
        if length > table.zone_bytes {
            return Chosen::TooLong;
        }
        let zone = match self.opens(table, asked) {
            true => asked,
            false => match self.other(table, offset, is_idle) {
                Ok(zone) => zone,
                Err(answer) => return answer,
            },
        };
        let mut resets = table.entries[zone].wp + min > table.entries[zone].capacity_end;
        match self.threshold {
            Some((bytes, _)) if table.valid < bytes => {}
            Some((_, every)) if table.writes_left <= 1 => {
                resets = true;
                // Asked again it is still due.
                table.writes_left = if is_idle { every } else { 1 };
            }
            Some(_) => table.writes_left -= 1,
            None => {}
        }
        let entry = &table.entries[zone];
        let at = if resets { entry.start } else { entry.wp };
        let length = length.min(entry.capacity_end - at) / min * min;
        if length < min || !self.contains(at) {
            return Chosen::Nowhere;
        }
        self.held(zone, (at, length), resets)
    }

    /// Is a zone one of those that are written, or can it be one more?
    fn opens(&mut self, table: &mut Zones, zone: usize) -> bool {
        let entry = &table.entries[zone];
        if entry.is_offline {
            return false;
        }
        if table.most_open == 0 {
            return true;
        }
        if entry.is_open {
            return entry.wp < entry.capacity_end;
        }
        if (self.most_open > 0 && self.open >= self.most_open)
            || table.open.len() >= table.most_open
        {
            return false;
        }
        table.open_at(zone);
        self.open += 1;
        true
    }

    /// The zone of the open ones that stands for an offset, by its share of the range.
    fn share(&self, table: &Zones, offset: u64) -> usize {
        let at = u128::from(offset - self.start) * table.open.len() as u128;
        (at / u128::from(self.span)) as usize
    }

    /// Another zone to write, as no more may be open: one that is, or one more when one of them is
    /// full.
    fn other(&mut self, table: &mut Zones, offset: u64, is_idle: bool) -> Result<usize, Chosen> {
        let min = self.min_bs[1];
        let has_room = |e: &table::Entry| e.wp + min <= e.capacity_end;
        let start = table.open.get(self.share(table, offset)).copied().unwrap_or(0);
        let mut zone = start.clamp(self.first, self.end - 1);
        if !table.open.is_empty() {
            let from = self.share(table, offset);
            let ring = (0..table.open.len()).map(|n| table.open[(from + n) % table.open.len()]);
            let own = |n: &usize| (self.first..self.end).contains(n);
            zone = ring.into_iter().find(own).ok_or(Chosen::Nowhere)?;
            if has_room(&table.entries[zone]) {
                return Ok(zone);
            }
        }
        let is_limited = table.open.len() == self.end - self.first
            || table.open.len() == table.most_open
            || (self.most_open > 0 && self.open == self.most_open);
        if is_limited && !is_idle {
            return Err(Chosen::Quiesce);
        }
        for _ in 0..self.span / table.zone_bytes {
            zone += 1;
            if table.entries.get(zone).is_none_or(|e| !self.contains(e.start)) {
                zone = self.first;
            }
            let entry = &table.entries[zone];
            if entry.is_sequential && !entry.is_open && self.opens(table, zone) {
                return Ok(zone);
            }
        }
        let inside = table.open.iter().filter(|n| (self.first..self.end).contains(*n));
        match inside.copied().find(|n| has_room(&table.entries[*n])) {
            Some(zone) => Ok(zone),
            None if !is_idle => Err(Chosen::Quiesce),
            None => Err(Chosen::Nowhere),
        }
    }
}
