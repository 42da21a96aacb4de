//! Zone write plugging (6.10 and later): one write at a time for a sequential zone.
//!
//! Picture:    bio -> merge -> [zone plug: free -> go on, and it is taken | taken -> wait in it] ->
//!             request; when a request for the zone is freed, kblockd makes one of the oldest bio
//!             that waits and of those that continue it.
//! Holds for:  writes, those of flush sequences too. Zone appends are ordered by the device and
//!             pass.
//! Left out:   the block layer's own idea of the write pointer (a write beside it fails here in the
//!             device, there before it, with the same error); a workqueue of its own.
//! Source:     behaviour of `blk_zone_wplug_handle_write()`, `blk_zone_wplug_bio_work()`,
//!             `blk_zone_write_plug_init_request()` (`block/blk-zoned.c`, 6.10).

use std::collections::{BTreeMap, VecDeque};

use wp_base::Sector;
use wp_base::event::{BlockAction, Flags, Op};

use crate::config::ZoneWrites;
use crate::engine::{Core, Ctx, Ready};
use crate::merge::{self, Side};
use crate::pool::RqId;

/// Zones that are being written.
#[derive(Default)]
pub(crate) struct ZonePlugs {
    /// Zone -> bios that wait for it.
    taken: BTreeMap<u32, VecDeque<Ready>>,
    /// Zones whose next bio kblockd is to start.
    ready: VecDeque<u32>,
}

impl ZonePlugs {
    /// Bios that wait.
    pub fn held(&self) -> usize {
        self.taken.values().map(VecDeque::len).sum()
    }
}

/// The zone that an operation has to take, if it has to.
fn zone_to_take(cx: &Ctx, op: Op, at: Sector, sectors: u32) -> Option<u32> {
    let zones = cx.limits.zones?;
    let takes = op == Op::Write
        && sectors > 0
        && zones.is_sequential(at)
        && cx.config.zone_writes() == ZoneWrites::Plug;
    takes.then(|| zones.zone_of(at))
}

impl Core {
    /// Takes the bio's zone for it and gives it back; keeps it if the zone is taken.
    pub fn hold_in_zone(&mut self, cx: &Ctx, mut bio: Ready) -> Option<Ready> {
        let Some(zone) = zone_to_take(cx, bio.info.op, bio.info.at, bio.info.sectors) else {
            return Some(bio);
        };
        match self.zone_plugs.taken.get_mut(&zone) {
            Some(waiting) => {
                if bio.info.flags.has(Flags::ORDERED) {
                    self.epochs.enlist(&mut bio.info, &bio.segs);
                }
                waiting.push_back(bio);
                None
            }
            None => {
                self.zone_plugs.taken.insert(zone, VecDeque::new());
                Some(bio)
            }
        }
    }

    /// A request is done with: whatever waits for its zone may go.
    pub fn release_zone(&mut self, cx: &Ctx, rq: RqId) {
        let r = &self.pool[rq];
        let Some(zone) = zone_to_take(cx, r.op, r.at, r.sectors) else { return };
        match self.zone_plugs.taken.get(&zone) {
            Some(waiting) if waiting.is_empty() => drop(self.zone_plugs.taken.remove(&zone)),
            Some(_) => {
                self.zone_plugs.ready.push_back(zone);
                self.mq.wanted = true;
            }
            None => {}
        }
    }

    /// kblockd: makes requests of bios whose zone has become free.
    pub fn start_held(&mut self, cx: &Ctx) {
        while let Some(zone) = self.zone_plugs.ready.pop_front() {
            let Some(waiting) = self.zone_plugs.taken.get_mut(&zone) else { continue };
            let Some(bio) = waiting.pop_front() else { continue };
            let info = bio.info;
            cx.event(BlockAction::GetRequest, info.op, info.flags, info.at, info.sectors, 0);
            let rq = self.pool.alloc(&info, cx.rt.now());
            self.count(cx, rq);
            self.pool.attach(rq, info.sectors, bio.segs, bio.end, false);
            self.join_held(cx, zone, rq);
            if self.pool[rq].flags.any(Flags::PREFLUSH | Flags::FUA) {
                self.flush_insert(cx, rq);
            } else {
                self.insert_mq(cx, rq);
            }
        }
    }

    /// Appends to a request the bios of its zone that continue it.
    fn join_held(&mut self, cx: &Ctx, zone: u32, rq: RqId) {
        let Some(mut waiting) = self.zone_plugs.taken.remove(&zone) else { return };
        while let Some(next) = waiting.front() {
            let continues = merge::side(&self.pool[rq], &next.info) == Some(Side::Back)
                && merge::grow(&mut self.pool[rq], &next.info, Side::Back, &cx.limits);
            if !continues {
                break;
            }
            if let Some(next) = waiting.pop_front() {
                self.epochs.merged(next.info.epoch);
                self.merge_bio(cx, rq, Side::Back, next);
            }
        }
        self.zone_plugs.taken.insert(zone, waiting);
    }
}
