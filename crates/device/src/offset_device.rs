//! A device whose sectors are counted from somewhere else: the second of two that a file system
//! has one behind the other.
//!
//! Picture:    0 ........ `at` |---- inner device ----| end
//! Invariants: 1. to the queue above there are no sectors before `at`: nothing may be sent there;
//!             2. events, tapes and crash views have the places that an image of both devices has;
//!             3. a zoned device gets `at` / zone size additional conventional zones in front.

use std::rc::Rc;

use wp_base::event::Op;
use wp_base::{Sector, Time, Zone, ZoneLimits};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, FlushSet, Limits, ZoneCut};
use wp_medium::Medium;

use crate::config::ConfigError;

/// The device.
pub struct OffsetDevice {
    inner: Box<dyn DeviceModel>,
    at: u64,
    limits: Limits,
}

impl OffsetDevice {
    /// Puts `inner` behind `at`. Errors: a zoned device that would not begin where a zone does.
    pub fn new(inner: Box<dyn DeviceModel>, at: Sector) -> Result<OffsetDevice, ConfigError> {
        let mut limits = *inner.limits();
        limits.sectors += at.0;
        if let Some(zones) = &mut limits.zones {
            let before = u32::try_from(at.0 / zones.zone_sectors).ok();
            let Some(before) = before.filter(|_| at.0.is_multiple_of(zones.zone_sectors)) else {
                let why = format!("no whole zones of {} lie before it", zones.zone_sectors);
                return Err(ConfigError::new("first sector", at.0, why));
            };
            zones.zones += before;
            zones.conventional += before;
        }
        Ok(OffsetDevice { inner, at: at.0, limits })
    }

    /// The zones in front, and the device's own.
    fn table(&self, own: &[Zone]) -> Vec<Zone> {
        let Some(limits) = self.limits.zones else { return Vec::new() };
        let before = (self.at / limits.zone_sectors) as usize;
        let fresh = ZoneLimits { conventional: limits.zones, ..limits }.fresh();
        let moved = own.iter().map(|z| Zone {
            start: z.start.advance(self.at),
            wp: z.wp.advance(self.at),
            ..*z
        });
        fresh.into_iter().take(before).chain(moved).collect()
    }

    /// Moves what a call has appended.
    fn told(&self, fx: &mut Effects, (done, works): (usize, usize)) {
        for d in &mut fx.done[done..] {
            d.appended = d.appended.map(|at| at.advance(self.at));
        }
        for w in &mut fx.works[works..] {
            w.holds.iter_mut().for_each(|(at, _)| *at = at.advance(self.at));
        }
    }
}

impl DeviceModel for OffsetDevice {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, now: Time, mut rq: DevRequest, fx: &mut Effects) -> Admit {
        let before = (fx.done.len(), fx.works.len());
        // A flush, and what concerns all zones, have no place.
        if rq.at.0 >= self.at {
            rq.at.0 -= self.at;
        } else {
            assert!(rq.sectors == 0, "sector {} is no device's", rq.at.0);
        }
        if rq.op == Op::Flush && !rq.data.is_empty() {
            rq.data = FlushSet::decode(&rq.data).moved_back(self.at).encode();
        }
        let place = rq.at;
        let admit = match self.inner.submit(now, rq, fx) {
            Admit::Busy(mut rq) => {
                if rq.op == Op::Flush && !rq.data.is_empty() {
                    rq.data = FlushSet::decode(&rq.data).moved(self.at).encode();
                }
                Admit::Busy(DevRequest { at: place.advance(self.at), ..rq })
            }
            accepted => accepted,
        };
        self.told(fx, before);
        admit
    }

    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        let before = (fx.done.len(), fx.works.len());
        self.inner.timer(now, token, fx);
        self.told(fx, before);
    }

    fn crash_view(&self, now: Time) -> CrashView {
        let mut view = self.inner.crash_view(now);
        view.medium = view.medium.moved(self.at);
        view.loss.iter_mut().for_each(|u| u.at = u.at.advance(self.at));
        view.zones = view.zones.map(|z| ZoneCut {
            limits: self.limits.zones.unwrap_or(z.limits),
            table: Rc::new(self.table(&z.table)),
            order: z.order,
        });
        view
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(OffsetDevice { inner: self.inner.fork(), at: self.at, limits: self.limits })
    }

    fn medium(&self) -> Medium {
        self.inner.medium().moved(self.at)
    }

    fn zones(&self) -> Vec<Zone> {
        self.table(&self.inner.zones())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}
