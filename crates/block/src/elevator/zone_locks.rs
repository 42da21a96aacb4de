//! Zones that mq-deadline has locked.

use std::collections::BTreeSet;

use wp_base::ZoneLimits;
use wp_base::event::Op;

use crate::pool::Request;

/// Zones with a write on its way (`seq_zones_wlock`).
#[derive(Default)]
pub(super) struct ZoneLocks {
    zones: Option<ZoneLimits>,
    locked: BTreeSet<u32>,
}

impl ZoneLocks {
    /// The zone that a request has to lock, if it has to.
    fn needed(&self, rq: &Request) -> Option<u32> {
        let zones = self.zones.filter(|z| rq.op == Op::Write && z.is_sequential(rq.at))?;
        Some(zones.zone_of(rq.at))
    }

    /// May it go to the device (`blk_req_can_dispatch_to_zone()`)?
    pub(super) fn allow(&self, rq: &Request) -> bool {
        self.needed(rq).is_none_or(|zone| !self.locked.contains(&zone))
    }

    /// For a device with these zones; `None`: there is nothing to lock.
    pub(super) fn of(zones: Option<ZoneLimits>) -> ZoneLocks {
        ZoneLocks { zones, ..ZoneLocks::default() }
    }

    /// A write is given up for dispatch.
    pub(super) fn lock(&mut self, rq: &Request) {
        self.locked.extend(self.needed(rq));
    }

    /// A request has completed.
    pub(super) fn unlock(&mut self, rq: &Request) {
        if let Some(zone) = self.needed(rq) {
            self.locked.remove(&zone);
        }
    }
}
