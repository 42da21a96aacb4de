//! Reads: from the flash what is there, from the buffer what is not yet, zeroes beyond the pointer.

use wp_base::event::{DeviceWork, Die, Work};
use wp_base::{SECTOR_BYTES, Time};
use wp_block::Effects;

use crate::nand::SLOT_BYTES;
use crate::zns::flash::SLOT_SECTORS;
use crate::zns::{CONVENTIONAL, NONE, Timer, Zns};

/// Where a slot is: on a die, at a slot of a unit, and for how many slots more.
struct Place {
    die: u32,
    first: u32,
    slots: u32,
}

impl Zns {
    /// Read `key` goes to the dies that hold its slots.
    pub(super) fn read(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let rq = self.request(key);
        let (id, decoded, sectors) = (rq.id, rq.decoded, rq.sectors);
        let first = (rq.at.0 / SLOT_SECTORS) as u32;
        let slots = (u64::from(sectors) / SLOT_SECTORS) as u32;
        let ready = decoded + self.list_span(sectors);
        let (mut done, mut end, mut hit) = (0, ready, 0);
        while done < slots {
            let (place, n) = self.find(first + done, slots - done);
            match place {
                Some(p) => {
                    let from = ready.max(now);
                    let to = self.nand.read(now, from, p.die, p.first, p.slots);
                    self.tell_read(id, from, to, &p, fx);
                    end = end.max(to);
                }
                None => hit += n,
            }
            done += n;
        }
        if hit > 0 {
            self.more.buffer_hits += u64::from(hit);
            let bytes = u64::from(hit) * SLOT_BYTES;
            fx.tell(|| DeviceWork {
                bytes,
                ..DeviceWork::front(Work::BufferHit, id, ready, ready, ready)
            });
        }
        let span = Zns::link_span(sectors, self.config.link_read_mb_s);
        let moved = self.links[0].reserve(now, end, span);
        fx.tell(|| DeviceWork {
            bytes: u64::from(sectors) * SECTOR_BYTES,
            ..DeviceWork::front(Work::Transfer, id, end, moved.before(span), moved)
        });
        Timer::Read.set(moved, u64::from(key), fx);
    }

    /// The data of read `key` are with the host.
    pub(super) fn read_moved(&mut self, now: Time, key: u32, fx: &mut Effects) {
        let rq = self.request(key);
        let data = self.current.read(rq.at, rq.sectors);
        self.request_mut(key).data = data;
        let told = self.cpu.reserve(now, now, self.config.read_cpu) + self.config.read_overhead;
        Timer::Complete.set(told, u64::from(key), fx);
    }

    /// Where `slot` of the device is on the flash, and how many of `most` slots the answer is for.
    /// `None`: in the buffer, or never written.
    fn find(&self, slot: u32, most: u32) -> (Option<Place>, u32) {
        let zones = &self.config.zones;
        let zone_slots = (zones.zone_sectors / SLOT_SECTORS) as u32;
        let zone = slot / zone_slots;
        if zone < zones.conventional {
            return (self.find_conventional(slot), 1);
        }
        let at = slot % zone_slots;
        let most = most.min(zone_slots - at);
        let z = self.table.get(zone);
        let host = self.finished.get(&zone).copied();
        let written = host.unwrap_or(((z.wp.0 - z.start.0) / SLOT_SECTORS) as u32);
        let programmed = match self.bufs.get(&zone) {
            // Up to the first unit that still is in the buffer; free durability is no programming.
            Some(buf) => {
                let units = buf.units.iter().map(|key| self.unit(*key));
                let begins = units.map(|u| u.end - u.filled).min();
                begins.unwrap_or(buf.durable).min(written)
            }
            None => written,
        };
        if at >= programmed {
            return (None, most);
        }
        let unit_slots = self.config.geometry.unit_slots;
        let (first, unit) = match self.layouts.get(&zone) {
            Some(layout) => {
                let i = layout.starts.partition_point(|(first, _)| *first <= at);
                layout.starts[i - 1]
            }
            None => (0, 0),
        };
        let place = at - first;
        let in_unit = place % unit_slots;
        let n = most.min(unit_slots - in_unit).min(programmed - at);
        let die = self.die_of(zone, unit + place / unit_slots);
        (Some(Place { die, first: in_unit, slots: n }), n)
    }

    fn find_conventional(&self, slot: u32) -> Option<Place> {
        let place = *self.conventional.get(&slot)?;
        let unit_slots = u64::from(self.config.geometry.unit_slots);
        let (serial, first) = (place / unit_slots, (place % unit_slots) as u32);
        let units = self.bufs.get(&CONVENTIONAL).into_iter().flat_map(|b| &b.units);
        let in_buffer = units.map(|key| self.unit(*key).serial).any(|s| s == serial);
        // Units are begun in turn on the dies, whoever fills them: near enough for a read.
        let die = (serial % u64::from(self.config.geometry.dies)) as u32;
        (!in_buffer).then_some(Place { die, first, slots: 1 })
    }

    fn tell_read(&self, id: u64, from: Time, to: Time, p: &Place, fx: &mut Effects) {
        fx.tell(|| {
            let rows = self.config.geometry.page_rows(p.first, p.slots);
            DeviceWork {
                die: Some(Die { channel: p.die % self.config.geometry.channels, die: p.die }),
                bus: self.config.timing.slot.times(u64::from(p.slots)),
                cells: self.config.timing.read.times(u64::from(rows)),
                bytes: u64::from(p.slots) * SLOT_BYTES,
                ..DeviceWork::front(Work::Read, id, from, from, to)
            }
        });
        debug_assert_ne!(p.die, NONE);
    }
}
