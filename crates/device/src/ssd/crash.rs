//! What a power cut leaves, and what a reader would see.

use wp_base::Time;
use wp_base::event::Op;
use wp_block::{CrashView, LossEffect, LossUnit, LossWhy};
use wp_medium::Medium;

use crate::contents::{cut, write_all, zeroes};
use crate::nand::SLOT_BYTES;
use crate::ssd::Ssd;
use crate::ssd::buffer::{Entry, UnitState};
use crate::ssd::durable::{SLOT_SECTORS, sector_of};
use crate::ssd::runmap::NONE;

impl Ssd {
    /// See [`wp_block::DeviceModel::crash_view`].
    pub(super) fn view_after_crash(&self, now: Time) -> CrashView {
        let mut loss = Vec::new();
        let surviving = self.surviving();
        if self.config.limits.ordered_writes && !self.config.plp {
            loss = self.whole_writes();
        }
        let by_piece = loss.is_empty();
        for unit in self.buffer.units().filter(|_| by_piece) {
            let why = match unit.state {
                UnitState::Programming { start } if start <= now => LossWhy::Programming,
                _ => LossWhy::InBuffer,
            };
            for entry in unit.entries.iter() {
                self.may_be_lost(entry, why, &mut loss);
            }
        }
        for parked in self.order.iter().flat_map(|o| o.parked()).filter(|_| by_piece) {
            self.may_be_lost(&parked.entry, LossWhy::OutOfOrder, &mut loss);
        }
        for d in surviving.discards() {
            surviving.not_newer(d.lpn, d.slots, d.seq, |lpn, slots| {
                let data = zeroes(u64::from(slots) * SLOT_SECTORS);
                let (at, why) = (sector_of(lpn), LossWhy::InBuffer);
                loss.push(LossUnit {
                    at,
                    data,
                    acked: true,
                    why,
                    seq: d.seq,
                    epoch: d.epoch,
                    effect: LossEffect::Data,
                });
            });
        }
        loss.sort_by_key(|unit| (unit.seq, unit.at));
        let mut medium = surviving.medium().clone();
        if self.config.plp {
            // The buffer is programmed on the capacitors.
            loss.iter().for_each(|unit| unit.apply(&mut medium));
            loss.clear();
        }
        loss.extend(self.in_transfer());
        CrashView { medium, loss, zones: None }
    }

    /// Each write that is not safe as one unit, whatever lies over it: what is kept is a prefix.
    fn whole_writes(&self) -> Vec<LossUnit> {
        let mut pieces: Vec<&Entry> = self.buffer.units().flat_map(|u| u.entries.iter()).collect();
        pieces.extend(self.order.iter().flat_map(|o| o.parked()).map(|p| &p.entry));
        pieces.sort_unstable_by_key(|e| (e.seq, e.lpn));
        let whole = |write: &[&Entry]| LossUnit {
            at: sector_of(write[0].lpn),
            data: write.iter().flat_map(|e| e.data.iter().cloned()).collect(),
            acked: write[0].waiter == NONE,
            why: LossWhy::OutOfOrder,
            seq: write[0].seq,
            epoch: write[0].epoch,
            effect: LossEffect::Data,
        };
        pieces.chunk_by(|a, b| a.seq == b.seq).map(whole).collect()
    }

    /// Adds what of an entry, which is not durable, has nothing newer over it.
    fn may_be_lost(&self, entry: &Entry, why: LossWhy, loss: &mut Vec<LossUnit>) {
        self.surviving().not_newer(entry.lpn, entry.slots, entry.seq, |lpn, slots| {
            let skip = u64::from(lpn - entry.lpn) * SLOT_BYTES;
            loss.push(LossUnit {
                at: sector_of(lpn),
                data: cut(&entry.data, skip, u64::from(slots) * SLOT_BYTES),
                acked: entry.waiter == NONE,
                why,
                seq: entry.seq,
                epoch: entry.epoch,
                effect: LossEffect::Data,
            });
        });
    }

    /// Writes that have not reached the buffer, and discards that are being decoded: none was
    /// acknowledged.
    fn in_transfer(&self) -> Vec<LossUnit> {
        let requests = self.pool.in_order().into_iter();
        let changing =
            requests.filter(|r| r.op == Op::Discard || (r.op == Op::Write && r.in_transfer));
        let units = changing.zip(self.seq + 1..).map(|(r, seq)| LossUnit {
            // A discard is of the epoch in which it takes effect.
            epoch: if r.op == Op::Write { r.epoch } else { self.epoch },
            effect: LossEffect::Data,
            at: r.at,
            data: if r.op == Op::Write { r.data.clone() } else { zeroes(u64::from(r.sectors)) },
            acked: false,
            why: LossWhy::InTransfer,
            seq,
        });
        units.collect()
    }

    /// See [`wp_block::DeviceModel::medium`].
    pub(super) fn current(&self) -> Medium {
        let mut medium = self.durable.medium().clone();
        for d in self.durable.discards() {
            self.durable.not_newer(d.lpn, d.slots, d.seq, |lpn, slots| {
                medium.discard(sector_of(lpn), u64::from(slots) * SLOT_SECTORS);
            });
        }
        // The newest version of a slot is the one that the map points to.
        let unit_slots = self.config.geometry.unit_slots;
        for unit in self.buffer.units() {
            for entry in unit.entries.iter() {
                for i in 0..entry.slots {
                    let ppa = unit.number * unit_slots + entry.first + i;
                    if self.ftl.find_readable(entry.lpn + i, 1).value == ppa {
                        let data = cut(&entry.data, u64::from(i) * SLOT_BYTES, SLOT_BYTES);
                        write_all(&mut medium, sector_of(entry.lpn + i), &data);
                    }
                }
            }
        }
        medium
    }
}
