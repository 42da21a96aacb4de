//! From a write or flush to its completion.

use wp_base::event::{DeviceWork, Flags, Op, Work, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector, Span, Time};
use wp_block::{DevRequest, Done, Effects, Status};

use crate::check::check;
use crate::config::transfer_ns;
use crate::contents::write_all;
use crate::zns::flash::SLOT_SECTORS;
use crate::zns::table::Opened;
use crate::zns::{CONVENTIONAL, NONE, Request, Timer, Zns};

/// Bytes of a transfer whose pages an NVMe command names itself (PRP1 and PRP2).
const PAGES_IN_COMMAND: u64 = 8192;

impl Zns {
    /// Takes a request for which there is room in the queue. Errors: it cannot be done.
    pub(super) fn accept(
        &mut self,
        now: Time,
        mut rq: DevRequest,
        fx: &mut Effects,
    ) -> Result<(), Status> {
        check(&self.config.limits, &rq)?;
        let mut extra = (Span::ZERO, Span::ZERO);
        let mut zone = NONE;
        match rq.op {
            Op::Write | Op::Zone(ZoneOp::Append) => {
                zone = self.writable_zone(&rq)?;
                // Before its pointer moves.
                self.buf(zone);
                match self.reserve(&mut rq, zone) {
                    Ok(opened) => extra = self.write_extra(&rq, opened),
                    Err(status) => {
                        self.drop_if_idle(zone);
                        return Err(status);
                    }
                }
            }
            Op::Zone(op) => zone = self.check_zone_command(op, rq.at)?,
            Op::Discard => return Err(Status::NotSupported),
            Op::Read | Op::Flush => {}
        }
        self.counts.note(&rq);
        let decoded = self.cpu.reserve(now, now, self.config.command);
        let id = rq.id;
        let from = decoded.before(self.config.command).max(now);
        fx.tell(|| DeviceWork::front(Work::Decode, id, now, from, decoded));
        let DevRequest { id, op, flags, at, sectors, data } = rq;
        let fua = flags.has(Flags::FUA) && !self.config.plp;
        let in_transfer = op.writes();
        let request =
            Request { id, op, fua, at, sectors, zone, decoded, in_transfer, extra, seq: 0, data };
        let key = self.insert(request);
        match op {
            Op::Write | Op::Zone(ZoneOp::Append) => {
                self.more.appends += u64::from(op != Op::Write);
                let waits = !self.bufs[&zone].waiting.is_empty();
                if waits || !self.admit(now, key, fx) {
                    self.more.token_waits += 1;
                    self.buf(zone).waiting.push_back(key);
                }
            }
            Op::Read => self.read(now, key, fx),
            _ => {
                self.begin_zone_command(key);
                Timer::Decoded.set(decoded, u64::from(key), fx);
            }
        }
        Ok(())
    }

    /// The zone that a write or append is for.
    fn writable_zone(&self, rq: &DevRequest) -> Result<u32, Status> {
        let zones = &self.config.zones;
        let zone = if rq.op == Op::Write {
            let end = rq.at.advance(u64::from(rq.sectors));
            match zones.is_sequential(rq.at) {
                true => zones.zone_of(rq.at),
                false if zones.is_sequential(Sector(end.0 - 1)) => return Err(Status::Io),
                false => CONVENTIONAL,
            }
        } else {
            self.table.beginning_at(rq.at)?
        };
        if self.resetting.contains(&zone) { Err(Status::Io) } else { Ok(zone) }
    }

    /// Moves `wp-zns` over a write; an append learns its place.
    fn reserve(&mut self, rq: &mut DevRequest, zone: u32) -> Result<Opened, Status> {
        let sectors = u64::from(rq.sectors);
        match rq.op {
            _ if zone == CONVENTIONAL => Ok(Opened::Was),
            Op::Write => self.table.write(rq.at, sectors).map(|(_, opened)| opened),
            _ => {
                let (at, opened) = self.table.append(zone, sectors)?;
                rq.at = at;
                Ok(opened)
            }
        }
    }

    /// What a write takes when its data have come: of the controller, and besides.
    fn write_extra(&self, rq: &DevRequest, opened: Opened) -> (Span, Span) {
        let c = &self.config;
        let (mut cpu, mut rest) = (c.write_cpu, c.write_overhead);
        if rq.op != Op::Write {
            cpu += c.append_cpu;
            rest += c.append_overhead;
        }
        let bytes = u64::from(rq.sectors) * SECTOR_BYTES;
        if !bytes.is_multiple_of(c.map_bytes) {
            cpu += c.partial_cpu;
            rest += c.partial_overhead;
        }
        rest += match opened {
            Opened::Was => Span::ZERO,
            Opened::FromEmpty => c.implicit_open,
            Opened::FromClosed => c.reopen,
        };
        (cpu, rest)
    }

    /// What fetching the list of a transfer's pages takes.
    pub(super) fn list_span(&self, sectors: u32) -> Span {
        if u64::from(sectors) * SECTOR_BYTES > PAGES_IN_COMMAND {
            self.config.list
        } else {
            Span::ZERO
        }
    }

    /// What moving `sectors` at `mb_s` takes.
    pub(super) fn link_span(sectors: u32, mb_s: u32) -> Span {
        Span(transfer_ns(u64::from(sectors) * SECTOR_BYTES, u64::from(mb_s)))
    }

    /// The data of write `key` are in the buffer.
    pub(super) fn arrived(&mut self, now: Time, key: u32, fx: &mut Effects) {
        self.seq += 1;
        let seq = self.seq;
        let rq = self.request_mut(key);
        rq.in_transfer = false;
        rq.seq = seq;
        let (zone, at, fua) = (rq.zone, rq.at, rq.fua);
        let data = std::mem::take(&mut rq.data);
        write_all(&mut self.current, at, &data);
        self.buf(zone).flying -= 1;
        if self.config.serial {
            self.close_others(now, zone, fx);
        }
        self.place(now, zone, (at.0 / SLOT_SECTORS) as u32, seq, data, fx);
        self.arm_internal_flush(now, fx);
        if fua {
            let end = self.bufs[&zone].arrived;
            let serial = self.units.next_serial();
            self.close_unit(now, zone, fx);
            if zone == CONVENTIONAL {
                // As a flush: its units are those begun by now.
                let left = self.unsaved_units(Some(zone));
                self.wait_for_units(now, key, serial, left, fx);
            } else {
                self.buf(zone).fua.push((end, key));
            }
        } else {
            self.placed(now, key, fx);
        }
        self.try_finish(now, zone, fx);
        self.share_out(now, fx);
        self.drop_if_idle(zone);
    }

    /// A write has got where it must be: the controller tells the host.
    pub(super) fn placed(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let (cpu, rest) = self.request(key).extra;
        let told = self.cpu.reserve(now, now, cpu) + rest;
        Timer::Complete.set(told, u64::from(key), fx);
    }

    /// A command is over.
    pub(super) fn complete(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let zone_command = match self.request(key).op {
            Op::Zone(op) => op != ZoneOp::Append,
            _ => false,
        };
        if zone_command {
            self.end_zone_command(now, key, fx);
        }
        let rq = self.remove(key);
        let appended = (rq.op == Op::Zone(ZoneOp::Append)).then_some(rq.at);
        fx.done.push(Done { id: rq.id, status: Ok(()), data: rq.data, appended });
    }

    // ---- flush ----

    /// Units with data that is not durable, of one zone or of all.
    fn unsaved_units(&self, of: Option<u32>) -> u32 {
        let counts = |u: &&super::Unit| {
            !u.padding && !u.saved && !u.programmed && of.is_none_or(|z| z == u.zone)
        };
        self.units.all().filter(counts).count() as u32
    }

    /// A flush is understood.
    pub(super) fn flush(&mut self, now: Time, key: u32, fx: &mut Effects) {
        if self.config.plp {
            Timer::Complete.set(now + self.config.flush_overhead, u64::from(key), fx);
            return;
        }
        let serial = self.units.next_serial();
        self.close_all(now, fx);
        let left = self.unsaved_units(None);
        self.wait_for_units(now, key, serial, left, fx);
    }

    fn wait_for_units(&mut self, now: Time, key: u32, serial: u64, left: u32, fx: &mut Effects) {
        if left == 0 {
            self.flushed(now, key, fx);
        } else {
            self.flushes.push((key, serial, left));
        }
    }

    fn flushed(&mut self, now: Time, key: u32, fx: &mut Effects) {
        if self.request(key).op == Op::Flush {
            Timer::Complete.set(now + self.config.flush_overhead, u64::from(key), fx);
        } else {
            self.placed(now, key, fx);
        }
    }

    /// All units that fill are programmed as they are.
    fn close_all(&mut self, now: Time, fx: &mut Effects) {
        self.close_others(now, NONE, fx);
    }

    /// The same but for the unit of one zone.
    fn close_others(&mut self, now: Time, but: u32, fx: &mut Effects) {
        let fills = |(z, b): &(&u32, &super::ZoneBuf)| b.filling != NONE && **z != but;
        let zones: Vec<u32> = self.bufs.iter().filter(fills).map(|(z, _)| *z).collect();
        for zone in zones {
            self.close_unit(now, zone, fx);
        }
    }

    /// A unit with data is durable: flushes that waited for it go on.
    pub(super) fn flush_progress(&mut self, now: Time, zone: u32, serial: u64, fx: &mut Effects) {
        let mut ended = Vec::new();
        for i in 0..self.flushes.len() {
            let (key, before, left) = self.flushes[i];
            let rq = self.request(key);
            if serial < before && (rq.op == Op::Flush || rq.zone == zone) {
                self.flushes[i].2 = left - 1;
                if left == 1 {
                    ended.push(key);
                }
            }
        }
        self.flushes.retain(|(.., left)| *left > 0);
        for key in ended {
            self.flushed(now, key, fx);
        }
    }

    // ---- the device's own flush ----

    fn arm_internal_flush(&mut self, now: Time, fx: &mut Effects) {
        let period = self.config.internal_flush;
        if period > Span::ZERO && !self.config.plp && !self.flush_armed {
            self.flush_armed = true;
            // The emulator's copies the pointers at fixed times, whatever came when.
            let due = match self.config.internal_flush_free {
                true => Time((now.0 / period.0 + 1) * period.0),
                false => now + period,
            };
            Timer::Overdue.set(due, 0, fx);
        }
    }

    /// The buffer is to be made durable.
    pub(super) fn overdue(&mut self, now: Time, fx: &mut Effects) {
        self.flush_armed = false;
        self.more.internal_flushes += 1;
        if !self.config.internal_flush_free {
            self.close_all(now, fx);
            return;
        }
        self.durable = self.current.clone();
        for unit in self.units.all_mut() {
            unit.saved = true;
            if unit.zone == CONVENTIONAL {
                for e in &unit.entries {
                    (e.slot..e.slot + e.slots).for_each(|slot| {
                        let newest = self.newest.entry(slot).or_default();
                        *newest = e.seq.max(*newest);
                    });
                }
            }
        }
        let mut waited = Vec::new();
        for buf in self.bufs.values_mut() {
            buf.durable = buf.arrived;
            waited.extend(buf.fua.drain(..).map(|(_, key)| key));
        }
        for key in waited {
            self.placed(now, key, fx);
        }
        for (key, ..) in std::mem::take(&mut self.flushes) {
            self.flushed(now, key, fx);
        }
    }
}
