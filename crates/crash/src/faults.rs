//! A device that fails the requests that it is told to, and one that begins them late or leaves
//! out parts of them.
//!
//! Picture:    queue -> [`Late`] -> tape -> [`Faulty`] -> device. What fails never reaches the
//!             device and ends at once with an error, as dm-flakey's `error_writes` and dm-error
//!             do it. To a power failure it is a write that may be there or not. What is late is
//!             none at all to it until it is begun, and what was sent after it may be durable
//!             before it: a drive takes the commands of its queue in whatever order it likes.
//! Left out:   retries of the drivers below, which would only take time before the same end.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::event::{Flags, Op};
use wp_base::{SECTOR_BYTES, Sector, Span, Time};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits, Status};
use wp_medium::{Medium, PAGE_BYTES};
use wp_workload::program::{Asked, Fault, Place, Slow, Step, Tear};

/// What blocks of the device are, as far as faults tell them apart: sorted runs of sectors, first
/// and one after the last.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    /// Blocks that were free in the new file system.
    pub data: Vec<(u64, u64)>,
    /// The journal.
    pub journal: Vec<(u64, u64)>,
}

fn touches(runs: &[(u64, u64)], at: Sector, sectors: u32) -> bool {
    let after = runs.partition_point(|(_, end)| *end <= at.0);
    runs.get(after).is_some_and(|(first, _)| *first < at.0 + u64::from(sectors))
}

#[derive(Debug, Default)]
struct State {
    regions: Regions,
    armed: Vec<Fault>,
    late: Vec<Slow>,
    torn: Vec<Tear>,
    failed: u64,
    /// Pages of the data region that were written.
    written: BTreeSet<u64>,
}

/// The pages that a request touches.
fn pages(rq: &DevRequest) -> std::ops::Range<u64> {
    let page = PAGE_BYTES as u64 / SECTOR_BYTES;
    rq.at.0 / page..(rq.at.0 + u64::from(rq.sectors)).div_ceil(page)
}

/// Is a request one that `fault` names, and is it that one's turn?
fn is_next(fault: &mut Fault, regions: &Regions, written: &BTreeSet<u64>, rq: &DevRequest) -> bool {
    let asked = match fault.asked {
        Asked::Read => rq.op == Op::Read,
        Asked::Write => rq.op == Op::Write,
        Asked::Flush => rq.op == Op::Flush,
        Asked::Discard => rq.op == Op::Discard,
    };
    let data = touches(&regions.data, rq.at, rq.sectors);
    let journal = touches(&regions.journal, rq.at, rq.sectors);
    let there = match fault.place {
        Place::Any => true,
        Place::Data => data,
        Place::Fresh => data && pages(rq).any(|p| !written.contains(&p)),
        Place::Journal => journal,
        Place::Metadata => !data && !journal && rq.op != Op::Flush,
        Place::Fua => rq.flags.has(Flags::FUA),
        Place::Sectors(at, n) => touches(&[(at, at + u64::from(n))], rq.at, rq.sectors),
    };
    if !asked || !there {
        return false;
    }
    if fault.skip > 0 {
        fault.skip -= 1;
        return false;
    }
    match &mut fault.times {
        Some(0) => return false,
        Some(n) => *n -= 1,
        None => {}
    }
    true
}

/// Says what is to fail, and what is to be late. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Faults(Rc<RefCell<State>>);

impl Faults {
    /// Nothing fails on a device with these regions.
    pub fn new(regions: Regions) -> Faults {
        Faults(Rc::new(RefCell::new(State { regions, ..State::default() })))
    }

    /// The run begins: what was written before does not count as written.
    pub fn begin(&self) {
        self.0.borrow_mut().written.clear();
    }

    /// From now on these fail as well.
    pub fn fail(&self, fault: Fault) {
        self.0.borrow_mut().armed.push(fault);
    }

    /// From now on these are late as well.
    pub fn slow(&self, slow: Slow) {
        self.0.borrow_mut().late.push(slow);
    }

    /// From now on parts of these are left out as well.
    pub fn tear(&self, tear: Tear) {
        self.0.borrow_mut().torn.push(tear);
    }

    /// From now on nothing fails, and nothing is late or torn.
    pub fn heal(&self) {
        let mut state = self.0.borrow_mut();
        state.armed.clear();
        state.late.clear();
        state.torn.clear();
    }

    /// Which sectors of this one are left out, from its first and how many?
    fn part_left_out(&self, rq: &DevRequest) -> Option<(u32, u32)> {
        let State { regions, torn, written, .. } = &mut *self.0.borrow_mut();
        let mut part = None;
        for tear in torn {
            if is_next(&mut tear.which, regions, written, rq) {
                let sector = SECTOR_BYTES as u32;
                let from = (tear.from / sector).min(rq.sectors);
                part = Some((from, (tear.bytes / sector).min(rq.sectors - from)));
            }
        }
        part.filter(|(_, sectors)| *sectors > 0 && rq.op == Op::Write)
    }

    /// How late is this one to begin, if it is to be late?
    fn delay(&self, rq: &DevRequest) -> Option<Span> {
        let State { regions, late, written, .. } = &mut *self.0.borrow_mut();
        let mut us = None;
        for slow in late {
            if is_next(&mut slow.which, regions, written, rq) {
                us = us.max(Some(slow.us));
            }
        }
        us.map(|us| Span(us * 1000))
    }

    /// Does what a step of a program says about the device. False: the step is not about the
    /// device.
    pub fn obey(&self, step: &Step) -> bool {
        match step {
            Step::Fail(fault) => self.fail(*fault),
            Step::Slow(slow) => self.slow(*slow),
            Step::Tear(tear) => self.tear(*tear),
            Step::Heal => self.heal(),
            _ => return false,
        }
        true
    }

    /// Requests that have failed.
    pub fn failed(&self) -> u64 {
        self.0.borrow().failed
    }

    /// Is this one to fail?
    fn hits(&self, rq: &DevRequest) -> bool {
        let state = &mut *self.0.borrow_mut();
        let mut hit = false;
        for fault in &mut state.armed {
            hit |= is_next(fault, &state.regions, &state.written, rq);
        }
        state.failed += u64::from(hit);
        if !hit && rq.op == Op::Write && touches(&state.regions.data, rq.at, rq.sectors) {
            state.written.extend(pages(rq));
        }
        hit
    }
}

/// A device that fails what [`Faults`] says.
pub struct Faulty {
    inner: Box<dyn DeviceModel>,
    faults: Faults,
}

impl Faulty {
    /// Puts `faults` before `inner`.
    pub fn new(inner: Box<dyn DeviceModel>, faults: Faults) -> Faulty {
        Faulty { inner, faults }
    }
}

impl DeviceModel for Faulty {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        if self.faults.hits(&rq) {
            fx.fail(rq.id, Status::Io);
            return Admit::Accepted;
        }
        self.inner.submit(now, rq, fx)
    }

    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        self.inner.timer(now, token, fx);
    }

    fn crash_view(&self, now: Time) -> CrashView {
        self.inner.crash_view(now)
    }

    /// The copy fails nothing: it is another history.
    fn fork(&self) -> Box<dyn DeviceModel> {
        self.inner.fork()
    }

    fn zones(&self) -> Vec<wp_base::Zone> {
        self.inner.zones()
    }
    fn medium(&self) -> Medium {
        self.inner.medium()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}

/// Timers of [`Late`] and not of the device before which it is.
const OWN_TIMER: u64 = 1 << 63;

/// A device that begins late, and writes a part of, what [`Faults`] says.
pub struct Late {
    inner: Box<dyn DeviceModel>,
    faults: Faults,
    /// What has not begun, by the token of its timer.
    held: BTreeMap<u64, DevRequest>,
    next: u64,
    /// Requests that the device has.
    inside: u32,
}

impl Late {
    /// Puts what `faults` says of late ones before `inner`.
    pub fn new(inner: Box<dyn DeviceModel>, faults: Faults) -> Late {
        Late { inner, faults, held: BTreeMap::new(), next: OWN_TIMER, inside: 0 }
    }

    /// The request with what is there now in place of a part of it.
    fn torn(&self, mut rq: DevRequest, (from, sectors): (u32, u32)) -> DevRequest {
        let mut own = Medium::new();
        let mut at = rq.at;
        for slice in &rq.data {
            own.write(at, slice);
            at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
        }
        let mut at = rq.at.advance(u64::from(from));
        for slice in self.inner.medium().read(at, sectors) {
            own.write(at, &slice);
            at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
        }
        rq.data = own.read(rq.at, rq.sectors);
        rq
    }

    fn begin(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        let before = fx.done.len();
        let admit = self.inner.submit(now, rq, fx);
        self.inside += u32::from(matches!(admit, Admit::Accepted));
        self.inside -= (fx.done.len() - before) as u32;
        admit
    }
}

impl DeviceModel for Late {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        // One that waits has its place in the drive's queue.
        if self.inside + self.held.len() as u32 >= self.inner.limits().queue_depth {
            return Admit::Busy(rq);
        }
        let rq = match self.faults.part_left_out(&rq) {
            Some(part) => self.torn(rq, part),
            None => rq,
        };
        let Some(late) = self.faults.delay(&rq) else { return self.begin(now, rq, fx) };
        fx.timers.push((now + late, self.next));
        self.held.insert(self.next, rq);
        self.next += 1;
        Admit::Accepted
    }

    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        if token < OWN_TIMER {
            let before = fx.done.len();
            self.inner.timer(now, token, fx);
            self.inside -= (fx.done.len() - before) as u32;
            return;
        }
        let Some(rq) = self.held.remove(&token) else { return };
        if let Admit::Busy(rq) = self.begin(now, rq, fx) {
            // A device that can do one thing at a time is at something else.
            fx.timers.push((now + Span::micros(10), token));
            self.held.insert(token, rq);
        }
    }

    fn crash_view(&self, now: Time) -> CrashView {
        self.inner.crash_view(now)
    }

    /// The copy is never late: it is another history.
    fn fork(&self) -> Box<dyn DeviceModel> {
        self.inner.fork()
    }

    fn medium(&self) -> Medium {
        self.inner.medium()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rq(op: Op, at: u64, sectors: u32) -> DevRequest {
        DevRequest { id: 1, op, flags: Flags::NONE, at: Sector(at), sectors, data: Vec::new() }
    }

    #[test]
    fn what_is_named_fails_after_what_is_skipped_and_so_often() {
        let regions = Regions { data: vec![(64, 128)], journal: vec![(16, 32)] };
        let faults = Faults::new(regions);
        let fault = |place, skip, times| Fault { asked: Asked::Write, place, skip, times };
        faults.fail(fault(Place::Data, 1, Some(2)));
        let hits = |op, at, n| faults.hits(&rq(op, at, n));
        assert!(!hits(Op::Write, 64, 8), "the first is skipped");
        assert!(!hits(Op::Write, 16, 8) && !hits(Op::Read, 64, 8) && !hits(Op::Write, 128, 8));
        assert!(hits(Op::Write, 60, 8) && hits(Op::Write, 127, 8), "touching is enough");
        assert!(!hits(Op::Write, 64, 8), "twice and no more");
        faults.fail(fault(Place::Sectors(8, 1), 0, None));
        faults.fail(fault(Place::Journal, 0, None));
        let hits = |op, at, n| faults.hits(&rq(op, at, n));
        assert!(hits(Op::Write, 0, 16) && !hits(Op::Write, 0, 8) && hits(Op::Write, 31, 1));
        assert_eq!(faults.failed(), 4);
        faults.heal();
        assert!(!faults.hits(&rq(Op::Write, 31, 1)));
    }

    /// Does all at once, and has no room for a second request while one is late.
    struct Quick(Medium, Limits);

    impl DeviceModel for Quick {
        fn limits(&self) -> &Limits {
            &self.1
        }
        fn submit(&mut self, _: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
            let mut at = rq.at;
            for slice in &rq.data {
                self.0.write(at, slice);
                at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
            }
            fx.complete(rq.id);
            Admit::Accepted
        }
        fn timer(&mut self, _: Time, _: u64, _: &mut Effects) {}
        fn crash_view(&self, _: Time) -> CrashView {
            CrashView { medium: self.0.clone(), loss: Vec::new(), zones: None }
        }
        fn fork(&self) -> Box<dyn DeviceModel> {
            Box::new(Quick(self.0.clone(), self.1))
        }
        fn medium(&self) -> Medium {
            self.0.clone()
        }
        fn counters(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }
    }

    #[test]
    fn what_is_late_has_its_place_and_is_begun_then_and_what_is_torn_keeps_what_was_there() {
        use wp_medium::Slice;
        let limits = Limits {
            queue_depth: 1,
            max_sectors: 1024,
            volatile_cache: true,
            fua: true,
            ..Limits::plain(1024)
        };
        let faults = Faults::new(Regions::default());
        let mut device = Late::new(Box::new(Quick(Medium::new(), limits)), faults.clone());
        let which = Fault { asked: Asked::Write, place: Place::Any, skip: 0, times: Some(1) };
        faults.slow(Slow { which, us: 50 });
        let write = |byte: u8| {
            let data = vec![Slice::from_bytes(&[byte; 1024])];
            DevRequest { id: 1, op: Op::Write, flags: Flags::NONE, at: Sector(8), sectors: 2, data }
        };
        let first = |d: &Late| {
            d.medium().read(Sector(8), 2).iter().fold(Vec::new(), |mut v, s| {
                v.extend(s.to_vec());
                v
            })
        };
        let mut fx = Effects::new();
        assert!(matches!(device.submit(Time(1000), write(1), &mut fx), Admit::Accepted));
        assert!(fx.done.is_empty());
        assert_eq!(fx.timers, [(Time(51_000), OWN_TIMER)]);
        assert!(matches!(device.submit(Time(1000), write(2), &mut fx), Admit::Busy(_)));
        assert!(first(&device).iter().all(|b| *b == 0), "it has not begun");
        device.timer(Time(51_000), OWN_TIMER, &mut fx);
        assert_eq!(fx.done.len(), 1);
        assert!(first(&device).iter().all(|b| *b == 1));
        faults.tear(Tear { which, from: 512, bytes: 4096 });
        assert!(matches!(device.submit(Time(60_000), write(3), &mut fx), Admit::Accepted));
        let now = first(&device);
        assert!(now[..512].iter().all(|b| *b == 3) && now[512..].iter().all(|b| *b == 1));
    }
}
