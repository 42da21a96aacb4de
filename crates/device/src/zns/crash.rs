//! What a power cut leaves.

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::event::{Op, ZoneOp};
use wp_base::{Sector, Time, Zone, ZoneState};
use wp_block::{CrashView, LossEffect, LossUnit, LossWhy, ZoneCut, powered_up};

use crate::contents::{cut, zeroes};
use crate::nand::SLOT_BYTES;
use crate::zns::flash::SLOT_SECTORS;
use crate::zns::{CONVENTIONAL, Request, Zns};

impl Zns {
    /// See [`wp_block::DeviceModel::crash_view`].
    pub(super) fn view_after_crash(&self, now: Time) -> CrashView {
        let plp = self.config.plp;
        let medium = if plp { &self.current } else { &self.durable };
        let mut loss = if plp { Vec::new() } else { self.buffered(now) };
        loss.sort_by_key(|unit| (unit.seq, unit.at));
        loss.extend(self.on_their_way());
        let table = Rc::new(self.durable_table());
        let zones = ZoneCut { limits: self.config.zones, table, order: self.config.order };
        CrashView { medium: medium.clone(), loss, zones: Some(zones) }
    }

    /// The zones with their `wp-nand`.
    fn durable_table(&self) -> Vec<Zone> {
        let mut zones = self.table.zones().to_vec();
        for (zone, buf) in self.bufs.iter().filter(|(zone, _)| **zone != CONVENTIONAL) {
            let z = &mut zones[*zone as usize];
            let slots = if self.config.plp { buf.arrived } else { buf.durable };
            z.wp = z.start.advance(u64::from(slots) * SLOT_SECTORS);
            z.state = match z.state {
                dead @ (ZoneState::ReadOnly | ZoneState::Offline) => dead,
                _ if z.wp == z.writable_end() => ZoneState::Full,
                _ => ZoneState::Closed,
            };
        }
        powered_up(&mut zones);
        zones
    }

    /// What lies in the buffer and is not durable.
    fn buffered(&self, now: Time) -> Vec<LossUnit> {
        let open: BTreeSet<u64> = self.requests.iter().flatten().map(|r| r.seq).collect();
        let zone_slots = (self.config.zones.zone_sectors / SLOT_SECTORS) as u32;
        let mut loss = Vec::new();
        for unit in self.units.all().filter(|u| !u.dead && !u.padding) {
            let why = match unit.started <= now {
                true => LossWhy::Programming,
                false => LossWhy::InBuffer,
            };
            for e in &unit.entries {
                let mut put = |slot: u32, slots: u32| {
                    let skip = u64::from(slot - e.slot) * SLOT_BYTES;
                    loss.push(LossUnit {
                        at: Sector(u64::from(slot) * SLOT_SECTORS),
                        data: cut(&e.data, skip, u64::from(slots) * SLOT_BYTES),
                        acked: !open.contains(&e.seq),
                        why,
                        epoch: 0,
                        effect: LossEffect::Data,
                        seq: e.seq,
                    });
                };
                if unit.zone == CONVENTIONAL {
                    let newest = |slot: u32| self.newest.get(&slot).copied().unwrap_or(0);
                    let range = e.slot..e.slot + e.slots;
                    range.filter(|slot| newest(*slot) < e.seq).for_each(|slot| put(slot, 1));
                    continue;
                }
                let durable = self.bufs[&unit.zone].durable + unit.zone * zone_slots;
                let from = e.slot.max(durable);
                if from < e.slot + e.slots {
                    put(from, e.slot + e.slots - from);
                }
            }
        }
        loss
    }

    /// Writes that have not reached the buffer, resets and finishes under way: none acknowledged.
    fn on_their_way(&self) -> Vec<LossUnit> {
        let mut flying: Vec<&Request> = self
            .requests
            .iter()
            .flatten()
            .filter(|r| match r.op {
                Op::Write | Op::Zone(ZoneOp::Append) => r.in_transfer,
                Op::Zone(ZoneOp::Reset | ZoneOp::ResetAll | ZoneOp::Finish) => true,
                _ => false,
            })
            .collect();
        flying.sort_by_key(|r| (r.decoded, r.zone, r.at));
        let mut out = Vec::new();
        let mut put = |at: Sector, data, effect, seq| {
            let (acked, why) = (false, LossWhy::InTransfer);
            out.push(LossUnit { at, data, acked, why, epoch: 0, effect, seq });
        };
        let zones = &self.config.zones;
        // What is not written is zero already.
        let reset = |zone: u32| {
            let z = self.table.get(zone);
            zeroes(z.wp.0 - z.start.0)
        };
        for (r, seq) in flying.into_iter().zip(self.seq + 1..) {
            match r.op {
                Op::Zone(ZoneOp::Reset) => put(r.at, reset(r.zone), LossEffect::ZoneReset, seq),
                Op::Zone(ZoneOp::ResetAll) => {
                    let written = self.resetting.iter().filter(|zone| {
                        let z = self.table.get(**zone);
                        z.wp > z.start
                    });
                    for zone in written {
                        put(zones.start_of(*zone), reset(*zone), LossEffect::ZoneReset, seq);
                    }
                }
                Op::Zone(_) if r.in_transfer => put(r.at, r.data.clone(), LossEffect::Data, seq),
                Op::Zone(_) => put(r.at, Vec::new(), LossEffect::ZoneFinish, seq),
                _ => put(r.at, r.data.clone(), LossEffect::Data, seq),
            }
        }
        out
    }
}
