//! Making a drive hold what a power cut has left.
//!
//! The model stays: its flash and map are as they were, and what differs is written over it by
//! requests of its own, as a recovery in the drive would. That takes time of the model, none of the
//! client's ([`super::Model::ahead`]).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector, Time, Zone, ZoneKind, ZoneLimits, ZoneState};
use wp_block::{Admit, DevRequest, DeviceModel, Limits};
use wp_medium::{Medium, PAGE_BYTES};

use super::parts::device_request;
use super::{Drive, Model, Store};

const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;
/// Sectors of a request at most.
const STEP: u64 = 1024;

impl Drive {
    /// Has the drive hold `medium`, with `zones` if it has any. Returns how many sectors that has
    /// changed, and how many zones' write pointers went back.
    pub(super) fn restore(&mut self, medium: &Medium, zones: &[Zone]) -> (u64, usize) {
        let limits = self.limits;
        let Store::Model(m) = &mut self.store else { return (0, 0) };
        let mut differs: Vec<(Sector, u64)> = Vec::new();
        m.device.medium().diff(medium, &mut |at, n| match differs.last_mut() {
            Some((first, len)) if first.0 + *len == at.0 => *len += u64::from(n),
            _ => differs.push((at, n.into())),
        });
        let changed = differs.iter().map(|(_, n)| n).sum();
        let mut back = 0;
        let mut refills = Refills::default();
        let mut requests = Vec::new();
        if let Some(zoned) = limits.zones {
            let now = m.device.zones();
            back = now.iter().zip(zones).filter(|(now, then)| then.wp < now.wp).count();
            let touched: BTreeSet<u32> = zones_of(&zoned, &differs).collect();
            for (n, (now, then)) in (0..).zip(now.iter().zip(zones)) {
                let same = now.wp == then.wp && now.state == then.state;
                if then.kind == ZoneKind::Sequential && (!same || touched.contains(&n)) {
                    refill(now, then, touched.contains(&n), medium, &limits, &mut refills);
                }
            }
            requests = refills.in_order();
            differs.retain(|(at, _)| !zoned.is_sequential(*at));
        }
        for (at, n) in differs {
            // Whole blocks, and pages where it can be.
            let from = at.0 / PAGE_SECTORS * PAGE_SECTORS;
            let to = ((at.0 + n).div_ceil(PAGE_SECTORS) * PAGE_SECTORS).min(limits.sectors);
            writes(medium, from, to, &limits, &mut requests);
        }
        if limits.volatile_cache {
            requests.push(device_request(0, Op::Flush, Sector(0), 0));
        }
        m.play(self.now, requests);
        m.assert_holds(medium, zones);
        (changed, back)
    }

    /// Puts an image onto a drive that nobody has used, in no time of the client's. A zoned drive
    /// takes what lies in its conventional zones, and fills others up to the last thing in them.
    ///
    /// Errors: more zones would be active than the drive allows; nothing has changed then.
    pub fn load(&mut self, medium: &Medium) -> Result<(), String> {
        let zones = match self.limits.zones {
            Some(limits) => filled(&limits, medium),
            None => Vec::new(),
        };
        if let Some(limits) = self.limits.zones {
            let active = zones.iter().filter(|z| z.state == ZoneState::Closed).count() as u64;
            let most = u64::from(limits.max_active);
            if most > 0 && active > most {
                return Err(format!(
                    "the image has {active} partially written zones; the drive can have {most} \
                     active"
                ));
            }
        }
        self.restore(medium, &zones);
        self.arm();
        Ok(())
    }
}

/// The zones of an image that says nothing of write pointers.
fn filled(limits: &ZoneLimits, medium: &Medium) -> Vec<Zone> {
    let mut zones = limits.fresh();
    for (at, sectors) in medium.runs() {
        let (first, last) = (limits.zone_of(at), limits.zone_of(Sector(at.0 + sectors - 1)));
        for n in first..=last {
            let Some(zone) = zones.get_mut(n as usize) else { continue };
            if zone.kind == ZoneKind::Sequential {
                let end = at.advance(sectors).min(zone.writable_end());
                zone.wp = zone.wp.max(end);
                let is_full = zone.wp == zone.writable_end();
                zone.state = if is_full { ZoneState::Full } else { ZoneState::Closed };
            }
        }
    }
    zones
}

/// Numbers of the zones that these stretches meet.
fn zones_of(limits: &ZoneLimits, stretches: &[(Sector, u64)]) -> impl Iterator<Item = u32> {
    stretches.iter().flat_map(|(at, n)| limits.zone_of(*at)..=limits.zone_of(Sector(at.0 + n - 1)))
}

/// Commands that make of zones what they were. A drive has a limit of active zones, so those that
/// are given up go first, then what ends full, and what stays active comes last: no more are active
/// on the way than are at its end.
#[derive(Default)]
struct Refills {
    resets: Vec<DevRequest>,
    full: Vec<DevRequest>,
    active: Vec<DevRequest>,
}

impl Refills {
    fn in_order(self) -> Vec<DevRequest> {
        [self.resets, self.full, self.active].concat()
    }
}

/// What makes of a zone what it was: unless it only has to be closed, it is emptied and written
/// again up to its write pointer.
fn refill(
    now: &Zone,
    then: &Zone,
    differs: bool,
    medium: &Medium,
    limits: &Limits,
    out: &mut Refills,
) {
    let zone = |op| device_request(0, Op::Zone(op), then.start, 0);
    if now.wp == then.wp && !differs && now.state.is_open() {
        out.resets.push(zone(ZoneOp::Close));
        return;
    }
    if now.wp > now.start || now.state != ZoneState::Empty {
        out.resets.push(zone(ZoneOp::Reset));
    }
    if then.state == ZoneState::Full {
        // What was finished has zeroes behind what was written.
        let end = last_written(medium, then);
        writes(medium, then.start.0, end, limits, &mut out.full);
        if end < then.writable_end().0 {
            out.full.push(zone(ZoneOp::Finish));
        }
    } else if then.wp > then.start {
        writes(medium, then.start.0, then.wp.0, limits, &mut out.active);
        out.active.push(zone(ZoneOp::Close));
    }
}

/// Behind the last page of a zone that is not zero.
fn last_written(medium: &Medium, zone: &Zone) -> u64 {
    let mut end = zone.start.0;
    let mut at = zone.start.0;
    while at < zone.writable_end().0 {
        let n = (zone.writable_end().0 - at).min(1 << 16);
        let mut here = at;
        for slice in medium.read(Sector(at), n as u32) {
            here += u64::from(slice.len()) / SECTOR_BYTES;
            if !matches!(slice.content(), wp_medium::Content::Zero) {
                end = here;
            }
        }
        at += n;
    }
    end.div_ceil(PAGE_SECTORS) * PAGE_SECTORS
}

/// Writes of what `medium` holds in `from..to`.
fn writes(medium: &Medium, from: u64, to: u64, limits: &Limits, out: &mut Vec<DevRequest>) {
    let most = u64::from(limits.max_segments.saturating_sub(1)).max(1) * PAGE_SECTORS;
    let step = STEP.min(u64::from(limits.max_sectors)).min(most) / PAGE_SECTORS * PAGE_SECTORS;
    let mut at = from;
    while at < to {
        let n = (to - at).min(step.max(PAGE_SECTORS)) as u32;
        let data = medium.read(Sector(at), n);
        out.push(DevRequest { data, ..device_request(0, Op::Write, Sector(at), n) });
        at += u64::from(n);
    }
}

impl Model {
    /// Has the model do these, one after the other as far as it takes them, and waits until all are
    /// done; the drive's time stands at `now`.
    ///
    /// Panics if one of them fails: they are requests that it offers.
    fn play(&mut self, now: Time, requests: Vec<DevRequest>) {
        let mut time = Time(now.0.saturating_add(self.ahead));
        let mut left = requests.len();
        // A flush covers what is done, a command for a zone goes by what is written: one by one.
        let is_alone = |rq: &DevRequest| rq.op != Op::Write;
        let mut flying = 0usize;
        let mut alone = false;
        let mut queue = requests.into_iter().peekable();
        let mut held: Option<DevRequest> = None;
        while left > 0 {
            while let Some(rq) = held.take().or_else(|| queue.next()) {
                if flying > 0 && (alone || is_alone(&rq)) {
                    held = Some(rq);
                    break;
                }
                let (single, id) = (is_alone(&rq), self.new_name());
                match self.device.submit(
                    time,
                    DevRequest { id, flags: Flags::NONE, ..rq },
                    &mut self.fx,
                ) {
                    Admit::Accepted => {
                        flying += 1;
                        alone = single;
                    }
                    Admit::Busy(rq) => {
                        held = Some(rq);
                        break;
                    }
                }
            }
            let done = self.settle();
            flying -= done;
            left -= done;
            if done == 0 {
                let Some(Reverse((at, _, token))) = self.timers.pop() else { break };
                time = time.max(at);
                self.device.timer(time, token, &mut self.fx);
                let done = self.settle();
                flying -= done;
                left -= done;
            }
        }
        assert_eq!(left, 0, "the model has forgotten {left} requests");
        self.ahead = time.0 - now.0;
    }

    /// Panics unless the device holds just this: a drive that comes back with something else would
    /// be taken for a file system's failure.
    fn assert_holds(&self, medium: &Medium, zones: &[Zone]) {
        self.device.medium().diff(medium, &mut |at, n| {
            panic!("{n} sectors at {} differ from the crash state", at.0)
        });
        for (is, wanted) in self.device.zones().iter().zip(zones) {
            assert_eq!(is.wp, wanted.wp, "the zone at {} ends elsewhere", is.start.0);
        }
    }

    /// Takes in timers and completions; how many of these.
    fn settle(&mut self) -> usize {
        for (at, token) in self.fx.timers.drain(..) {
            self.timers.push(Reverse((at, self.order, token)));
            self.order += 1;
        }
        for done in &self.fx.done {
            assert!(done.status.is_ok(), "a drive could not restore itself: {:?}", done.status);
        }
        let done = self.fx.done.len();
        self.fx.clear();
        done
    }
}
