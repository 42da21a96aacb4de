//! What the SSD tells of its inside, if somebody listens. Nothing here changes what it does.

use wp_base::event::{DeviceWork, Die, Work};
use wp_base::{SECTOR_BYTES, Sector, Span, Time};
use wp_block::Effects;

use crate::nand::SLOT_BYTES;
use crate::ssd::Ssd;
use crate::ssd::buffer::{Entry, Unit};
use crate::ssd::durable::{SLOT_SECTORS, sector_of};
use crate::ssd::runmap::NONE;

/// Who wants something from the flash.
#[derive(Clone, Copy)]
pub(super) enum Cause {
    /// A command, by the host's name of it.
    Command(u64),
    /// Garbage collection.
    Gc,
}

impl Cause {
    fn commands(self) -> Vec<u64> {
        match self {
            Cause::Command(id) => vec![id],
            Cause::Gc => Vec::new(),
        }
    }
}

/// Where the host has an entry: first sector, sectors.
fn range(e: &Entry) -> (Sector, u32) {
    (sector_of(e.lpn), e.slots * SLOT_SECTORS as u32)
}

impl Ssd {
    fn die(&self, die: u32) -> Option<Die> {
        Some(Die { channel: die % self.config.geometry.channels, die })
    }

    /// Reads `slots` from slot `first` of `unit`, not before `ready`, and tells of it. Returns the
    /// end.
    pub(super) fn read_flash(
        &mut self,
        (now, ready): (Time, Time),
        (unit, first, slots): (u32, u32, u32),
        cause: Cause,
        fx: &mut Effects,
    ) -> Time {
        let die = self.config.geometry.die_of(unit);
        let from = ready.max(self.nand.free(die));
        let to = self.nand.read(now, ready, unit, first, slots);
        fx.tell(|| {
            let rows = self.config.geometry.page_rows(first, slots);
            DeviceWork {
                what: Work::Read,
                die: self.die(die),
                ready,
                from,
                to,
                bus: self.config.timing.slot.times(u64::from(slots)),
                cells: self.config.timing.read.times(u64::from(rows)),
                bytes: u64::from(slots) * SLOT_BYTES,
                gc: matches!(cause, Cause::Gc),
                commands: cause.commands(),
                holds: Vec::new(),
            }
        });
        to
    }

    /// Erases a block of every plane of `die`, and tells of it. Returns the end.
    pub(super) fn erase_die(&mut self, now: Time, die: u32, fx: &mut Effects) -> Time {
        let to = self.nand.erase(now, die);
        fx.tell(|| DeviceWork {
            what: Work::Erase,
            die: self.die(die),
            ready: now,
            from: to.before(self.config.timing.erase),
            to,
            bus: Span::ZERO,
            cells: self.config.timing.erase,
            bytes: 0,
            gc: true,
            commands: Vec::new(),
            holds: Vec::new(),
        });
        to
    }

    /// Unit `unit`, whose transfer began at `from`, has been programmed: told now, because now it
    /// is known who waited for it.
    pub(super) fn tell_program(&self, from: Time, to: Time, unit: &Unit, fx: &mut Effects) {
        fx.tell(|| {
            let entries = unit.entries.iter().filter(|e| e.waiter != NONE);
            let mut commands: Vec<u64> = entries.map(|e| self.pool.get(e.waiter).id).collect();
            if unit.stream.is_host() {
                let flushes = self.flushes.iter().filter(|f| unit.serial < f.before_serial);
                commands.extend(flushes.map(|f| self.pool.get(f.key).id));
            }
            commands.dedup();
            DeviceWork {
                what: Work::Program,
                die: self.die(self.config.geometry.die_of(unit.number)),
                ready: unit.ready.min(from),
                from,
                to,
                bus: self.config.timing.unit,
                cells: self.config.timing.program,
                bytes: u64::from(unit.filled) * SLOT_BYTES,
                gc: !unit.stream.is_host(),
                commands,
                holds: unit.entries.iter().map(range).collect(),
            }
        });
    }

    /// Command `id` is understood at `decoded`.
    pub(super) fn tell_decoded(&self, now: Time, decoded: Time, id: u64, fx: &mut Effects) {
        let from = decoded.before(self.config.command).max(now);
        fx.tell(|| DeviceWork::front(Work::Decode, id, now, from, decoded));
    }

    /// `sectors` of command `id`, there from `ready`, have moved over the link by `to`.
    pub(super) fn tell_transfer(
        &self,
        ready: Time,
        to: Time,
        sectors: u32,
        id: u64,
        fx: &mut Effects,
    ) {
        fx.tell(|| {
            let from = to.before(self.link_span(sectors));
            let bytes = u64::from(sectors) * SECTOR_BYTES;
            DeviceWork { bytes, ..DeviceWork::front(Work::Transfer, id, ready, from, to) }
        });
    }

    /// Command `id` has waited from `from` to `now`.
    pub(super) fn tell_wait(&self, what: Work, from: Time, now: Time, id: u64, fx: &mut Effects) {
        if from < now {
            fx.tell(|| DeviceWork::front(what, id, from, from, now));
        }
    }
}
