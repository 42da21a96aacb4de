//! From a request to its completion.

use std::rc::Rc;

use wp_base::event::{DeviceWork, Flags, Op, Work};
use wp_base::{SECTOR_BYTES, Sector, Span, Time};
use wp_block::{DevRequest, Done, Effects, Status};
use wp_medium::Slice;

use crate::check::check;
use crate::config::transfer_ns;
use crate::contents::{Taken, cut};
use crate::fixed::is_barrier_write;
use crate::nand::{Geometry, SLOT_BYTES};
use crate::ssd::buffer::{Buffer, Entry, Unit, UnitState};
use crate::ssd::durable::{Discard, SLOT_SECTORS, sector_of};
use crate::ssd::ftl::{Stream, Superblock};
use crate::ssd::pool::Request;
use crate::ssd::runmap::{NONE, Run};
use crate::ssd::tell::Cause;
use crate::ssd::{Ssd, Timer};

/// Host slots that a range of sectors touches: (first, how many).
fn slots_of(at: Sector, sectors: u32) -> (u32, u32) {
    let first = at.0 / SLOT_SECTORS;
    let end = (at.0 + u64::from(sectors)).div_ceil(SLOT_SECTORS);
    // Checked against the capacity, whose slots are counted in 32 bits.
    (first as u32, (end - first) as u32)
}

/// Calls `f` for the host slots of `old` whose version on the flash is still in the buffer.
fn contest_flying(
    geometry: &Geometry,
    superblocks: &[Superblock],
    buffer: &Buffer,
    old: Run,
    mut f: impl FnMut(u32, u32),
) {
    let mut done = 0;
    while old.value != NONE && done < old.len {
        let ppa = old.value + done;
        let n = (geometry.unit_slots - ppa % geometry.unit_slots).min(old.len - done);
        // Asking the superblock first spares nearly everybody the search for the unit.
        if superblocks[(ppa / geometry.superblock_slots) as usize].flying > 0
            && buffer.find(ppa / geometry.unit_slots).is_some_and(|u| u.stream.is_host())
        {
            f(old.at + done, n);
        }
        done += n;
    }
}

impl Ssd {
    /// Takes a request for which there is room in the queue.
    pub(super) fn accept(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) {
        if let Err(status) = check(&self.config.limits, &rq) {
            fx.fail(rq.id, status);
            return;
        }
        if self.read_only && matches!(rq.op, Op::Write | Op::Discard) {
            fx.fail(rq.id, Status::Io);
            return;
        }
        self.counts.requests.note(&rq);
        self.controller = self.controller.max(now) + self.config.command;
        let decoded = self.controller;
        let epoch = self.epoch;
        if rq.op == Op::Write {
            self.epoch += u32::from(is_barrier_write(&self.config.limits, &rq));
            if let Some(order) = &mut self.order {
                order.expect(epoch, 1);
            }
        }
        let DevRequest { id, op, flags, at, sectors, data } = rq;
        self.tell_decoded(now, decoded, id, fx);
        // With a buffer that survives, being in it is being durable.
        let fua = flags.has(Flags::FUA) && !self.config.plp;
        let request = Request {
            id,
            op,
            fua,
            epoch,
            in_transfer: op == Op::Write,
            at,
            sectors,
            decoded,
            left: 0,
            data,
        };
        match op {
            Op::Read => {
                // Where it is and what it is: two ways through memory that need not wait for each
                // other.
                self.durable.touch(slots_of(at, sectors).0);
                self.read(now, decoded, request, fx);
            }
            Op::Write => {
                self.ftl.touch_soon(slots_of(at, sectors).0);
                let key = self.pool.insert(request);
                if !self.waits_for_flush(key) {
                    self.write(now, key, fx);
                }
            }
            Op::Flush => {
                let key = self.pool.insert(request);
                if !self.waits_for_flush(key) {
                    self.flush(now, decoded, key, fx);
                }
            }
            Op::Discard => {
                let key = self.pool.insert(request);
                Timer::Complete.set(decoded + self.config.discard_overhead, u64::from(key), fx);
            }
            Op::Zone(_) => unreachable!("it has no zones, and checks refuse it"),
        }
    }

    /// Write `key` has its turn.
    pub(super) fn write(&mut self, now: Time, key: u32, fx: &mut Effects) {
        if self.token_queue.is_empty() && self.take_tokens(now, key, fx) {
            return;
        }
        self.counts.token_waits += 1;
        self.token_queue.push_back(key);
    }

    /// Lets write `key` on the link once it is decoded, if there are tokens for it.
    fn take_tokens(&mut self, now: Time, key: u32, fx: &mut Effects) -> bool {
        let request = self.pool.get(key);
        let (_, slots) = slots_of(request.at, request.sectors);
        let Some(left) = self.buffer.tokens.checked_sub(slots) else { return false };
        self.buffer.tokens = left;
        let (mut ready, sectors) = (request.decoded.max(now), request.sectors);
        if self.config.limits.keeps_order() {
            ready = ready.max(self.moved);
        }
        let (id, decoded) = (request.id, request.decoded);
        let moved = self.link(usize::from(self.config.link_full_duplex), now, ready, sectors);
        self.moved = moved;
        self.tell_wait(Work::AwaitBuffer, decoded, now, id, fx);
        self.tell_transfer(ready, moved, sectors, id, fx);
        Timer::Arrived.set(moved + self.config.write_overhead, u64::from(key), fx);
        true
    }

    /// Moves `sectors` over the link, not before `ready`. Returns the end.
    fn link(&mut self, lane: usize, now: Time, ready: Time, sectors: u32) -> Time {
        let span = self.link_span(sectors);
        self.links[lane].reserve(now, ready, span)
    }

    /// What moving `sectors` takes.
    pub(super) fn link_span(&self, sectors: u32) -> Span {
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        Span(transfer_ns(bytes, u64::from(self.config.link_mb_s)))
    }

    /// Programs have given tokens back: writes that wait may go.
    fn admit_waiting(&mut self, now: Time, fx: &mut Effects) {
        while let Some(key) = self.token_queue.front().copied() {
            if !self.take_tokens(now, key, fx) {
                break;
            }
            self.token_queue.pop_front();
        }
    }

    /// The data of write `key` have come.
    pub(super) fn arrived(&mut self, now: Time, key: u32, fx: &mut Effects) {
        if self.read_only {
            self.refuse(key, fx);
        } else if self.space_queue.is_empty() && self.has_room(key) {
            self.place(now, key, fx);
        } else {
            self.counts.space_waits += 1;
            self.space_queue.push_back((key, now));
            self.collect_garbage(now, fx);
        }
    }

    fn has_room(&self, key: u32) -> bool {
        let request = self.pool.get(key);
        let (_, slots) = slots_of(request.at, request.sectors);
        let unit = self.config.geometry.unit_slots;
        let stream = self.stream_of(request);
        let here = self.buffer.open_room(stream, unit);
        slots <= here || (slots - here).div_ceil(unit) <= self.ftl.units_left(stream)
    }

    /// The stream that takes a write, whole: what is written together stays so.
    fn stream_of(&self, request: &Request) -> Stream {
        self.ftl.stream_of(slots_of(request.at, request.sectors).0)
    }

    /// Too many flash blocks have failed to take anything more: writes fail from now on, those that
    /// wait included. What was acknowledged is kept and read.
    pub(super) fn become_read_only(&mut self, fx: &mut Effects) {
        self.read_only = true;
        for (key, _) in std::mem::take(&mut self.space_queue) {
            self.refuse(key, fx);
        }
        for key in std::mem::take(&mut self.token_queue) {
            let request = self.pool.remove(key);
            self.write_came(request.epoch, 0);
            fx.fail(request.id, Status::Io);
        }
    }

    /// Fails write `key`, which has tokens.
    fn refuse(&mut self, key: u32, fx: &mut Effects) {
        let request = self.pool.remove(key);
        self.write_came(request.epoch, 0);
        self.buffer.tokens += slots_of(request.at, request.sectors).1;
        fx.fail(request.id, Status::Io);
    }

    /// Superblocks have become free: writes that wait for room may go.
    pub(super) fn place_waiting(&mut self, now: Time, fx: &mut Effects) {
        while let Some((key, since)) = self.space_queue.front().copied() {
            if !self.has_room(key) {
                break;
            }
            self.space_queue.pop_front();
            self.tell_wait(Work::AwaitErased, since, now, self.pool.get(key).id, fx);
            self.place(now, key, fx);
        }
    }

    /// Puts write `key` into program units, and completes it unless it is FUA.
    fn place(&mut self, now: Time, key: u32, fx: &mut Effects) {
        self.seq += 1;
        let request = self.pool.get_mut(key);
        request.in_transfer = false;
        let (id, at, sectors, fua) = (request.id, request.at, request.sectors, request.fua);
        let epoch = request.epoch;
        let data = std::mem::take(&mut request.data);
        let (lpn, slots) = slots_of(at, sectors);
        let stream = self.ftl.stream_of(lpn);
        let (data, ready) = self.whole_slots(now, (at, sectors), data, id, fx);
        self.counts.slots_written += u64::from(slots);
        let waiter = if fua { key } else { NONE };
        self.make_room_for_whole(now, stream, (at, sectors), slots, fx);
        let whose = (waiter, epoch);
        let entries = self.fill_units((now, ready), stream, (lpn, slots), whose, data, fx);
        self.write_came(epoch, entries);
        if fua {
            self.pool.get_mut(key).left = u64::from(entries);
            if self.order.is_some() {
                // What is before it may lie in another stream's unit.
                self.pad_host(now, fx);
            }
            self.pad_and_close(now, stream, fx);
        } else {
            fx.complete(self.pool.remove(key).id);
        }
    }

    /// `data` with the rest of the slots that they begin and end in, and when these old parts have
    /// been read.
    fn whole_slots(
        &mut self,
        now: Time,
        (at, sectors): (Sector, u32),
        data: Vec<Slice>,
        id: u64,
        fx: &mut Effects,
    ) -> (Vec<Slice>, Time) {
        let (lpn, slots) = slots_of(at, sectors);
        let (head, end) = (at.0 - sector_of(lpn).0, at.0 + u64::from(sectors));
        let slots_end = sector_of(lpn + slots).0;
        if head == 0 && end == slots_end {
            return (data, now);
        }
        let mut ready = now;
        // The old parts are of one slot or of two.
        let last = lpn + slots - 1;
        let mut old = vec![lpn, last];
        old.dedup();
        for old in old {
            let cut_here = (old == lpn && head > 0) || (old == last && end < slots_end);
            let ppa = self.ftl.find_readable(old, 1).value;
            if cut_here && ppa != NONE && self.unit_in_buffer(ppa).is_none() {
                self.counts.read_modify_writes += 1;
                let unit = self.config.geometry.unit_slots;
                let what = (ppa / unit, ppa % unit, 1);
                ready = ready.max(self.read_flash((now, now), what, Cause::Command(id), fx));
            }
        }
        let mut whole = self.look_up(sector_of(lpn), head as u32);
        whole.extend(data);
        whole.extend(self.look_up(Sector(end), (slots_end - end) as u32));
        (whole, ready)
    }

    /// Lays slots into units of `stream`, programming each that is full. Returns into how many
    /// pieces they came.
    fn fill_units(
        &mut self,
        (now, ready): (Time, Time),
        stream: Stream,
        (lpn, slots): (u32, u32),
        (waiter, epoch): (u32, u32),
        data: Vec<Slice>,
        fx: &mut Effects,
    ) -> u32 {
        let unit_slots = self.config.geometry.unit_slots;
        let (mut done, mut pieces) = (0, 0);
        let mut data = data;
        let mut taken = Taken::default();
        while done < slots {
            let unit_key = self.open_unit(now, stream, fx);
            let unit = self.buffer.unit_mut(unit_key);
            let (first, number) = (unit.filled, unit.number);
            let n = (slots - done).min(unit_slots - first);
            let piece = if n == slots {
                std::mem::take(&mut data)
            } else {
                taken.take(&data, u64::from(n) * SLOT_BYTES)
            };
            let (seq, data) = (self.seq, piece);
            let entry = Entry { lpn: lpn + done, first, slots: n, waiter, seq, epoch, data };
            Rc::make_mut(&mut unit.entries).push(entry);
            unit.filled += n;
            unit.ready = unit.ready.max(ready);
            self.map_host(lpn + done, n, number * unit_slots + first);
            if first + n == unit_slots {
                self.close_unit(now, stream, fx);
            }
            done += n;
            pieces += 1;
        }
        pieces
    }

    /// Maps slots that the host has written, and notes which of them have an older version on its
    /// way to the flash.
    fn map_host(&mut self, lpn: u32, slots: u32, ppa: u32) {
        let Ssd { ftl, buffer, durable, order, seq, config, .. } = self;
        ftl.map(lpn, slots, ppa, |superblocks, old| {
            contest_flying(&config.geometry, superblocks, buffer, old, |lpn, n| {
                durable.contest(lpn, n, *seq);
                if let Some(order) = order.as_mut() {
                    order.safe.contest(lpn, n, *seq);
                }
            });
            durable.rewrite(old.at, old.len, *seq);
            if let Some(order) = order.as_mut() {
                order.safe.rewrite(old.at, old.len, *seq);
            }
        });
    }

    /// The unit that `stream` fills; begins one if none is open. There must be one left.
    pub(super) fn open_unit(&mut self, now: Time, stream: Stream, fx: &mut Effects) -> u32 {
        if let Some(key) = self.buffer.open(stream) {
            return key;
        }
        let number = self.ftl.take_unit(stream);
        let serial = self.buffer.next_serial();
        let key = self.buffer.begin(stream, number, now);
        if stream.is_host() {
            if self.config.internal_flush > Span::ZERO {
                Timer::Overdue.set(now + self.config.internal_flush, serial, fx);
            }
            self.collect_garbage(now, fx);
        }
        key
    }

    /// The open unit of `stream` is full, or is to be programmed as it is.
    pub(super) fn close_unit(&mut self, now: Time, stream: Stream, fx: &mut Effects) {
        let Some(key) = self.buffer.open(stream) else { return };
        let unit = self.buffer.unit_mut(key);
        unit.ready = unit.ready.max(now);
        let die = self.config.geometry.die_of(unit.number);
        self.buffer.close(stream, die);
        self.start_next(now, die, fx);
    }

    /// Pads the open unit of `stream`, if it holds anything, and programs it.
    pub(super) fn pad_and_close(&mut self, now: Time, stream: Stream, fx: &mut Effects) {
        let unit_slots = self.config.geometry.unit_slots;
        let room = self.buffer.open_room(stream, unit_slots);
        // One that was only just begun has nothing to program.
        if room > 0 && room < unit_slots {
            self.counts.units_padded += 1;
            self.counts.slots_padded += u64::from(room);
            self.close_unit(now, stream, fx);
        }
    }

    /// The same for the units that host data fill.
    pub(super) fn pad_host(&mut self, now: Time, fx: &mut Effects) {
        for stream in Stream::OF_HOST {
            self.pad_and_close(now, stream, fx);
        }
    }

    /// The unit of this serial has been filling for long.
    pub(super) fn overdue(&mut self, now: Time, serial: u64, fx: &mut Effects) {
        for stream in Stream::OF_HOST {
            let open = self.buffer.open(stream);
            if open.is_some_and(|key| self.buffer.unit(key).serial == serial) {
                self.counts.internal_flushes += 1;
                self.pad_and_close(now, stream, fx);
            }
        }
    }

    /// Lets `die` program the next unit that waits for it, if it programs none.
    fn start_next(&mut self, now: Time, die: u32, fx: &mut Effects) {
        if let Some(key) = self.buffer.next_of(die) {
            let unit = self.buffer.unit_mut(key);
            let (nand, ready) = (&mut self.nand, unit.ready.max(now));
            let (start, end) = match unit.stream.is_host() {
                true => self.slc.program(nand, now, ready, die),
                false => nand.program(now, ready, die, nand.timing().program),
            };
            unit.state = UnitState::Programming { start };
            Timer::Programmed.set(end, u64::from(key), fx);
        }
    }

    /// Unit `key` is on the flash.
    pub(super) fn programmed(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let die = self.config.geometry.die_of(self.buffer.unit(key).number);
        let unit = self.buffer.programmed(key, die);
        if let UnitState::Programming { start } = unit.state {
            self.tell_program(start, now, &unit, fx);
        }
        self.ftl.unit_programmed(unit.number);
        // All at once, and then each: see `Medium::touch`.
        unit.entries.iter().for_each(|e| self.durable.touch(e.lpn));
        for entry in unit.entries.iter() {
            self.durable.programmed(entry.lpn, entry.slots, entry.seq, &entry.data);
            self.buffer.tokens += entry.slots;
            self.piece_programmed(now, unit.serial, entry, fx);
        }
        self.release_parked(now, fx);
        if unit.stream.is_host() {
            self.note_for_flushes(now, unit.serial, fx);
            // Now and then is enough: what is contested for too long only costs a look.
            if unit.serial.is_multiple_of(16) && self.durable.is_contested() {
                let entries = self.buffer.units().flat_map(|u| u.entries.first());
                let oldest = entries.map(|e| e.seq).min().unwrap_or(u64::MAX);
                self.durable.prune(oldest);
                if let Some(order) = &mut self.order {
                    order.prune(oldest);
                }
            }
        }
        self.buffer.recycle(unit.entries);
        self.start_next(now, die, fx);
        self.admit_waiting(now, fx);
        self.erase_emptied(now, fx);
        self.collect_garbage(now, fx);
    }

    /// A read, a flush, a discard or a write with FUA is over.
    pub(super) fn complete(&mut self, key: u32, fx: &mut Effects) {
        let request = self.pool.remove(key);
        match request.op {
            Op::Flush => {
                self.durable.settle_discards(request.left);
                if let Some(order) = &mut self.order {
                    order.safe.settle_discards(request.left);
                }
            }
            Op::Discard => self.discard(request.at, request.sectors),
            Op::Read | Op::Write | Op::Zone(_) => {}
        }
        fx.done.push(Done { id: request.id, status: Ok(()), data: request.data, appended: None });
    }

    /// Forgets the whole units of the range; of its ends, parts of units stay as they are.
    fn discard(&mut self, at: Sector, sectors: u32) {
        let unit = u64::from(self.config.ftl.trim_slots);
        let first = at.0.div_ceil(SLOT_SECTORS * unit) * unit;
        let end = (at.0 + u64::from(sectors)) / (SLOT_SECTORS * unit) * unit;
        let Some(slots) = end.checked_sub(first).filter(|n| *n > 0) else { return };
        // Within the capacity, whose slots are counted in 32 bits.
        let (lpn, slots) = (first as u32, slots as u32);
        self.seq += 1;
        let Ssd { ftl, buffer, durable, order, seq, epoch, config, .. } = self;
        ftl.unmap(lpn, slots, |superblocks, old| {
            contest_flying(&config.geometry, superblocks, buffer, old, |lpn, n| {
                durable.contest(lpn, n, *seq);
                if let Some(order) = order.as_mut() {
                    order.safe.contest(lpn, n, *seq);
                }
            });
        });
        if config.ftl.old_after_trim {
            // What it holds stays, durable as before, until its flash is erased.
            return;
        }
        let discard = Discard { seq: *seq, lpn, slots, epoch: *epoch };
        durable.discard(discard, u32::MAX);
        if let Some(order) = order {
            let open = order.first_open(*epoch);
            order.safe.discard(discard, open);
        }
        if config.plp {
            durable.settle_discards(*seq);
        }
    }

    /// Plans a read: every piece from where it is, then over the link.
    fn read(&mut self, now: Time, decoded: Time, mut request: Request, fx: &mut Effects) {
        let (at, end) = (request.at.0, request.at.0 + u64::from(request.sectors));
        let (lpn, slots) = slots_of(request.at, request.sectors);
        let unit_slots = self.config.geometry.unit_slots;
        let (mut done, mut last, mut from_flash) = (0, decoded, 0);
        while done < slots {
            let run = self.ftl.find_readable(lpn + done, slots - done);
            let mut n = run.len;
            let mut ready = decoded;
            if run.value != NONE {
                let first = run.value % unit_slots;
                n = n.min(unit_slots - first);
                if self.unit_in_buffer(run.value).is_some() {
                    self.counts.slots_read_from_buffer += u64::from(n);
                    fx.tell(|| DeviceWork {
                        bytes: u64::from(n) * SLOT_BYTES,
                        ..DeviceWork::front(Work::BufferHit, request.id, decoded, decoded, decoded)
                    });
                } else {
                    let what = (run.value / unit_slots, first, n);
                    let cause = Cause::Command(request.id);
                    ready = self.read_flash((now, decoded), what, cause, fx);
                    self.counts.slots_read_from_flash += u64::from(n);
                    from_flash += n;
                }
            }
            let from = sector_of(lpn + done).0.max(at);
            let to = sector_of(lpn + done + n).0.min(end);
            let moved = self.link(0, now, ready, (to - from) as u32);
            self.tell_transfer(ready, moved, (to - from) as u32, request.id, fx);
            last = last.max(moved);
            done += n;
        }
        request.data = if from_flash == slots {
            self.durable.medium().read(request.at, request.sectors)
        } else {
            self.look_up(request.at, request.sectors)
        };
        let key = self.pool.insert(request);
        Timer::Complete.set(last + self.config.read_overhead, u64::from(key), fx);
    }

    /// The unit in the buffer that holds flash slot `ppa`, if it is there still.
    pub(super) fn unit_in_buffer(&self, ppa: u32) -> Option<&Unit> {
        if !self.ftl.may_be_flying(ppa) {
            return None;
        }
        self.buffer.find(ppa / self.config.geometry.unit_slots)
    }

    /// What a reader sees: from the buffer where the newest is there, else from the flash.
    pub(super) fn look_up(&self, at: Sector, sectors: u32) -> Vec<Slice> {
        if sectors == 0 {
            return Vec::new();
        }
        let end = at.0 + u64::from(sectors);
        let (lpn, slots) = slots_of(at, sectors);
        let unit_slots = self.config.geometry.unit_slots;
        let (mut out, mut done) = (Vec::new(), 0);
        while done < slots {
            let run = self.ftl.find_readable(lpn + done, slots - done);
            let mut n = run.len;
            let here = sector_of(lpn + done).0;
            let range = |n: u32| (here.max(at.0), (here + u64::from(n) * SLOT_SECTORS).min(end));
            if run.value == NONE {
                let (from, to) = range(n);
                out.push(Slice::zero(((to - from) * SECTOR_BYTES) as u32));
                done += n;
                continue;
            }
            let first = run.value % unit_slots;
            n = n.min(unit_slots - first);
            match self.unit_in_buffer(run.value).and_then(|u| u.entry_at(first)) {
                Some(entry) => {
                    n = n.min(entry.first + entry.slots - first);
                    let (from, to) = range(n);
                    let skip =
                        u64::from(first - entry.first) * SLOT_BYTES + (from - here) * SECTOR_BYTES;
                    out.extend(cut(&entry.data, skip, (to - from) * SECTOR_BYTES));
                }
                None => {
                    let (from, to) = range(n);
                    out.extend(self.durable.medium().read(Sector(from), (to - from) as u32));
                }
            }
            done += n;
        }
        out
    }
}
