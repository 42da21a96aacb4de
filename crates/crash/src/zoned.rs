//! Zones in crash states: what of a zone may be kept, and what its write pointer is then.
//!
//! Two spaces: per zone a prefix of the unpersisted units ([`ZoneOrder::Prefix`]), or any of them
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

/// For each unpersisted unit the one before it in its zone, without which it cannot be kept.
#[derive(Default)]
pub(crate) struct Prefixes(Vec<u32>);

/// No unit is before it.
const NOTHING: u32 = u32::MAX;

impl Prefixes {
    fn is_held(&self, i: usize, kept: &Kept) -> bool {
        self.0[i] == NOTHING || kept.has(self.0[i] as usize)
    }

    /// May a cut keep just these?
    pub(crate) fn allow(&self, kept: &Kept) -> bool {
        (0..self.0.len()).all(|i| !kept.has(i) || self.is_held(i, kept))
    }

    /// Loses what nothing may keep: in each zone all behind the first that is lost.
    pub(crate) fn trim(&self, kept: &mut Kept) {
        for i in 0..self.0.len() {
            if !self.is_held(i, kept) {
                kept.set(i, false);
            }
        }
    }
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

    /// What must be kept of `live` for what to be kept as well.
    pub(crate) fn prefixes(&self, units: &[Unit], live: &[u32]) -> Prefixes {
        if self.order == ZoneOrder::Holes {
            return Prefixes::default();
        }
        // Few zones are written to at a time.
        let mut last: Vec<(u32, u32)> = Vec::new();
        let before = (0..).zip(live).map(|(i, n)| {
            let Some(zone) = self.zone(&units[*n as usize]) else { return NOTHING };
            match last.iter_mut().find(|(z, _)| *z == zone) {
                Some((_, at)) => std::mem::replace(at, i),
                None => {
                    last.push((zone, i));
                    NOTHING
                }
            }
        });
        Prefixes(before.collect())
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
    pub fn with<'u>(&self, table: &[Zone], units: impl Iterator<Item = &'u Unit>) -> Vec<Zone> {
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
