//! Zones at a power cut.

use std::rc::Rc;

use wp_base::{Sector, Zone, ZoneLimits, ZoneState};

/// What of a sequential zone's unflushed units a power cut may keep.
///
/// Between zones nothing is ordered, either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZoneOrder {
    /// A prefix: nothing that was written later is there without what was written before it. The
    /// write pointer is where it ends.
    Prefix,
    /// Any: flash dies finish out of order and the device does not hide it. The write pointer is
    /// behind the last unit that is there; units before it may be missing and read as zeroes.
    Holes,
}

/// The zones of a device at a power cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneCut {
    /// What the device says of its zones.
    pub limits: ZoneLimits,
    /// The zones as they will be reported if only what is durable is there.
    pub table: Rc<Vec<Zone>>,
    /// What of the rest may be there too.
    pub order: ZoneOrder,
}

impl ZoneCut {
    /// May a cut keep just these of units at these sectors, which come in device order?
    pub fn is_legal(
        &self,
        units: impl Iterator<Item = (usize, Sector)>,
        kept: &impl Fn(usize) -> bool,
    ) -> bool {
        if self.order == ZoneOrder::Holes {
            return true;
        }
        let mut cut_off: Vec<u32> = Vec::new();
        for (i, at) in units {
            let zone = self.limits.zone_of(at);
            if !self.limits.is_sequential(at) {
                continue;
            }
            if !kept(i) {
                cut_off.push(zone);
            } else if cut_off.contains(&zone) {
                return false;
            }
        }
        true
    }
}

/// What becomes of its place when a unit is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LossEffect {
    /// It holds the unit's data; a sequential zone is written up to its end.
    Data,
    /// The zone that begins there is empty.
    ZoneReset,
    /// The zone that begins there is full.
    ZoneFinish,
}

/// What keeping a unit does to a table of zones.
pub trait KeepInZone {
    /// A unit of `sectors` at `at` is there after the cut.
    fn keep(&self, zones: &mut [Zone], effect: LossEffect, at: Sector, sectors: u64);
}

impl KeepInZone for ZoneLimits {
    fn keep(&self, zones: &mut [Zone], effect: LossEffect, at: Sector, sectors: u64) {
        if !self.is_sequential(at) {
            return;
        }
        let Some(zone) = zones.get_mut(self.zone_of(at) as usize) else { return };
        let end = zone.writable_end();
        match effect {
            LossEffect::Data => {
                zone.wp = zone.wp.max(at.advance(sectors)).min(end);
                zone.state = if zone.wp == end { ZoneState::Full } else { ZoneState::Closed };
            }
            LossEffect::ZoneReset => (zone.wp, zone.state) = (zone.start, ZoneState::Empty),
            LossEffect::ZoneFinish => (zone.wp, zone.state) = (end, ZoneState::Full),
        }
    }
}

/// A report of zones as after a loss of power: what was open is closed, or empty again if nothing
/// was written (NVMe ZNS command set 1.1, 2.1.1.3: a reset of the controller closes what is open).
pub fn powered_up(zones: &mut [Zone]) {
    for zone in zones.iter_mut().filter(|z| z.state.is_active()) {
        zone.state = if zone.wp == zone.start { ZoneState::Empty } else { ZoneState::Closed };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ZoneLimits = ZoneLimits {
        zone_sectors: 0x8000,
        capacity_sectors: 0x6000,
        zones: 5,
        conventional: 1,
        max_open: 14,
        max_active: 14,
        append_max_sectors: 256,
    };

    #[test]
    fn what_is_kept_moves_pointers_and_power_closes_zones() {
        let mut zones = LIMITS.fresh();
        LIMITS.keep(&mut zones, LossEffect::Data, Sector(0x8000), 0x288);
        LIMITS.keep(&mut zones, LossEffect::ZoneFinish, Sector(0x18000), 0);
        assert_eq!(zones[1].wp, Sector(0x8288));
        assert_eq!((zones[3].wp, zones[3].state), (Sector(0x1E000), ZoneState::Full));
        zones[1].state = ZoneState::ImplicitOpen;
        powered_up(&mut zones);
        assert_eq!(zones[1].state, ZoneState::Closed);
    }

    #[test]
    fn a_prefix_has_no_hole_and_zones_are_apart() {
        let cut = |order| ZoneCut { limits: LIMITS, table: Rc::new(LIMITS.fresh()), order };
        let places = [0x8000, 0x10000, 0x8008, 0, 0x10008].map(Sector);
        let legal = |order, kept: [bool; 5]| {
            cut(order).is_legal(places.iter().copied().enumerate(), &|i| kept[i])
        };
        let mut counts = [0, 0];
        for mask in 0..32u32 {
            let kept = std::array::from_fn(|i| mask >> i & 1 == 1);
            counts[0] += u32::from(legal(ZoneOrder::Prefix, kept));
            counts[1] += u32::from(legal(ZoneOrder::Holes, kept));
        }
        // Three prefixes in each of two zones, and a conventional sector or not.
        assert_eq!(counts, [3 * 3 * 2, 32]);
    }
}
