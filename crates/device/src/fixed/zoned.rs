//! Zones of the device that takes the same time for everything.
//!
//! Source: Linux `drivers/block/null_blk/zoned.c`.

use std::rc::Rc;

use wp_base::event::{Op, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector, ZoneKind, ZoneLimits, ZoneState};
use wp_block::{DevRequest, LossEffect, LossUnit, LossWhy, Status, ZoneCut, ZoneOrder, powered_up};

use super::Fixed;
use crate::config::{ConfigError, Settings};
use crate::contents::{Put, zeroes};

/// The zones that a preset asks for; none with `zone_bytes = 0`. Errors: a size that is no power
/// of two of blocks or does not divide the device, a capacity larger than it, too many
/// conventional zones.
pub(super) fn limits(s: &Settings) -> Result<Option<ZoneLimits>, ConfigError> {
    let zone_bytes = s.get("zone_bytes");
    if zone_bytes == 0 {
        return Ok(None);
    }
    let device = s.get("capacity_bytes");
    let fits = zone_bytes.is_power_of_two() && zone_bytes >= 4096;
    let count = u32::try_from(device / zone_bytes.max(1)).ok();
    let count = count.filter(|_| fits && device.is_multiple_of(zone_bytes));
    let Some(zones) = count else {
        let reason = "must be a power of two, at least 4096, and divide capacity_bytes";
        return Err(ConfigError::new("zone_bytes", zone_bytes, reason));
    };
    let capacity = match s.get("zone_capacity_bytes") {
        0 => zone_bytes,
        bytes if bytes <= zone_bytes && bytes.is_multiple_of(4096) => bytes,
        bytes => {
            let reason =
                format!("must be a multiple of 4096 and at most zone_bytes ({zone_bytes})");
            return Err(ConfigError::new("zone_capacity_bytes", bytes, reason));
        }
    };
    let conventional = s.get("conventional_zones");
    let Some(conventional) = u32::try_from(conventional).ok().filter(|n| *n < zones) else {
        let reason = format!("must be fewer than the zones in all ({zones})");
        return Err(ConfigError::new("conventional_zones", conventional, reason));
    };
    Ok(Some(ZoneLimits {
        zone_sectors: zone_bytes / SECTOR_BYTES,
        capacity_sectors: capacity / SECTOR_BYTES,
        zones,
        conventional,
        max_open: 0,
        max_active: 0,
        append_max_sectors: s.count("max_request_sectors", 1 << 21)?,
    }))
}

impl Fixed {
    /// Does a sequential zone hold `at`?
    pub(super) fn is_sequential(&self, at: Sector) -> bool {
        self.config.limits.zones.is_some_and(|z| z.is_sequential(at))
    }

    /// What a command does to its zone when it is submitted. An append is given its place. Errors:
    /// the zone does not take it.
    pub(super) fn take_zone(&mut self, rq: &mut DevRequest) -> Result<(), Status> {
        let sequential = self.is_sequential(rq.at);
        let Some(table) = &mut self.zones else { return Ok(()) };
        match rq.op {
            Op::Write if sequential => {
                table.write(rq.at, u64::from(rq.sectors))?;
            }
            Op::Zone(ZoneOp::Append) => {
                let zone = table.beginning_at(rq.at)?;
                (rq.at, _) = table.append(zone, u64::from(rq.sectors))?;
            }
            Op::Zone(ZoneOp::Reset) => drop(table.beginning_at(rq.at)?),
            Op::Zone(ZoneOp::Open) => table.beginning_at(rq.at).and_then(|z| table.open(z))?,
            Op::Zone(ZoneOp::Close) => table.beginning_at(rq.at).and_then(|z| table.close(z))?,
            Op::Zone(ZoneOp::Finish) => table.beginning_at(rq.at).and_then(|z| table.finish(z))?,
            _ => {}
        }
        Ok(())
    }

    /// A reset is done: its zones are empty, for good.
    pub(super) fn reset_zones(&mut self, op: Op, at: Sector) {
        let Some(table) = &mut self.zones else { return };
        let all = op == Op::Zone(ZoneOp::ResetAll);
        let written: Vec<(u32, Sector, u64)> = (0u32..)
            .zip(table.zones().iter())
            .filter(|(_, z)| z.kind == ZoneKind::Sequential && (all || z.start == at))
            .map(|(n, z)| (n, z.start, z.wp.0 - z.start.0))
            .collect();
        for (n, start, sectors) in written {
            table.reset(n);
            if sectors > 0 {
                self.contents.write(start, sectors, zeroes(sectors), Put::Through);
            }
        }
    }

    /// The zones that a power cut leaves: pointers where what may be lost begins. Resets under way
    /// join what may be there.
    pub(super) fn zones_after_crash(&self, loss: &mut Vec<LossUnit>) -> Option<ZoneCut> {
        let (table, limits) = (self.zones.as_ref()?, self.config.limits.zones?);
        let mut zones = table.zones().to_vec();
        for unit in loss.iter().filter(|u| limits.is_sequential(u.at)) {
            let zone = &mut zones[limits.zone_of(unit.at) as usize];
            if unit.at < zone.wp {
                zone.wp = unit.at;
                zone.state = ZoneState::Closed;
            }
        }
        let next = loss.last().map_or(self.contents.mark(), |u| u.seq + 1);
        let resets = self.flying.iter().filter_map(|f| match f.rq.op {
            Op::Zone(ZoneOp::Reset) => Some(Some(f.rq.at)),
            Op::Zone(ZoneOp::ResetAll) => Some(None),
            _ => None,
        });
        let mut seq = next;
        for which in resets {
            let written = table.zones().iter().filter(|z| {
                z.kind == ZoneKind::Sequential
                    && z.wp > z.start
                    && which.is_none_or(|at| at == z.start)
            });
            for z in written {
                loss.push(LossUnit {
                    epoch: 0,
                    effect: LossEffect::ZoneReset,
                    at: z.start,
                    data: zeroes(z.wp.0 - z.start.0),
                    acked: false,
                    why: LossWhy::InTransfer,
                    seq,
                });
                seq += 1;
            }
        }
        powered_up(&mut zones);
        Some(ZoneCut { limits, table: Rc::new(zones), order: ZoneOrder::Prefix })
    }
}
