//! Zones in crash states: what of a zone may be kept, and what its write pointer is then.
//!
//! Two spaces: per zone a prefix of what is in doubt ([`ZoneOrder::Prefix`]), or any of it
//! ([`ZoneOrder::Holes`]: dies that finish out of order). Zones are independent. A reset or finish
//! that has completed is durable; one in flight is a unit.

use std::rc::Rc;

use wp_base::event::ZoneOp;
use wp_base::{Sector, Zone, ZoneLimits};
use wp_block::{KeepInZone, LossEffect, ZoneOrder};
use wp_medium::Slice;

use crate::history::Unit;
use crate::states::Kept;

/// Zones of a device when a tape begins: limits, and what is durable of them.
#[derive(Clone, Debug)]
pub struct TapeZones {
    /// What the device says of them.
    pub limits: ZoneLimits,
    /// The zones, as after a loss of power.
    pub table: Rc<Vec<Zone>>,
}

/// The zones of a history.
#[derive(Clone, Debug)]
pub struct ZoneSpace {
    /// What the device says of them.
    pub limits: ZoneLimits,
    /// What of a zone a cut may keep.
    pub order: ZoneOrder,
}

impl ZoneSpace {
    /// The sequential zone that a unit is in.
    fn zone(&self, unit: &Unit) -> Option<u32> {
        self.limits.is_sequential(unit.at).then(|| self.limits.zone_of(unit.at))
    }

    /// May a cut keep just these of `live`?
    pub(crate) fn is_legal(&self, units: &[Unit], live: &[u32], kept: &Kept) -> bool {
        let mut same = kept.clone();
        self.make_legal(units, live, &mut same);
        same == *kept
    }

    /// Loses what nothing may keep: in each zone all behind the first that is lost.
    pub(crate) fn make_legal(&self, units: &[Unit], live: &[u32], kept: &mut Kept) {
        if self.order == ZoneOrder::Holes {
            return;
        }
        // Few zones are written to at a time.
        let mut ended: Vec<u32> = Vec::new();
        for (i, n) in live.iter().enumerate() {
            let Some(zone) = self.zone(&units[*n as usize]) else { continue };
            match (ended.contains(&zone), kept.has(i)) {
                (true, true) => kept.set(i, false),
                (false, false) => ended.push(zone),
                _ => {}
            }
        }
    }

    /// What else of `live` is durable when `number` is: what was in its zone before it, where a
    /// zone keeps a prefix, and before a finish anyhow.
    pub(crate) fn before(&self, units: &[Unit], live: &[u32], number: u32) -> Vec<u32> {
        let unit = &units[number as usize];
        let binds = match unit.effect {
            LossEffect::Data => self.order == ZoneOrder::Prefix,
            LossEffect::ZoneReset => false,
            LossEffect::ZoneFinish => true,
        };
        let Some(zone) = self.zone(unit).filter(|_| binds) else { return Vec::new() };
        let older = live.iter().copied().filter(|n| *n < number);
        older.filter(|n| self.zone(&units[*n as usize]) == Some(zone)).collect()
    }

    /// The zones of `table` with these units kept.
    pub(crate) fn with<'u>(
        &self,
        table: &[Zone],
        units: impl Iterator<Item = &'u Unit>,
    ) -> Vec<Zone> {
        let mut zones = table.to_vec();
        for u in units {
            self.limits.keep(&mut zones, u.effect, u.at, u.sectors());
        }
        zones
    }

    /// What a command for zones makes of them: (effect, first sector, data). `now`: the zones with
    /// all that was sent before.
    pub(crate) fn command(
        &self,
        op: ZoneOp,
        at: Sector,
        now: &[Zone],
    ) -> Vec<(LossEffect, Sector, Vec<Slice>)> {
        let reset = |z: &Zone| {
            let sectors = z.wp.0 - z.start.0;
            (LossEffect::ZoneReset, z.start, crate::history::zeroes(sectors))
        };
        let written = |z: &&Zone| self.limits.is_sequential(z.start) && z.wp > z.start;
        match op {
            ZoneOp::Reset => {
                now.iter().filter(|z| z.start == at).filter(written).map(reset).collect()
            }
            ZoneOp::ResetAll => now.iter().filter(written).map(reset).collect(),
            ZoneOp::Finish => vec![(LossEffect::ZoneFinish, at, Vec::new())],
            _ => Vec::new(),
        }
    }
}
