//! A device that fails the requests that it is told to.
//!
//! Picture:    queue -> tape -> [`Faulty`] -> device. What fails never reaches the device and ends
//!             at once with an error, as dm-flakey's `error_writes` and dm-error do it. To a power
//!             cut it is a write that may be there or not.
//! Left out:   retries of the drivers below, which would only take time before the same end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::event::{Flags, Op};
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits, Status};
use wp_medium::{Medium, PAGE_BYTES};
use wp_workload::program::{Asked, Fault, Place};

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
    failed: u64,
    /// Pages of the data region that were written.
    written: BTreeSet<u64>,
}

/// The pages that a request touches.
fn pages(rq: &DevRequest) -> std::ops::Range<u64> {
    let page = PAGE_BYTES as u64 / SECTOR_BYTES;
    rq.at.0 / page..(rq.at.0 + u64::from(rq.sectors)).div_ceil(page)
}

/// Says what is to fail. Clones share it.
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

    /// From now on nothing fails.
    pub fn heal(&self) {
        self.0.borrow_mut().armed.clear();
    }

    /// Requests that have failed.
    pub fn failed(&self) -> u64 {
        self.0.borrow().failed
    }

    /// Is this one to fail?
    fn hits(&self, rq: &DevRequest) -> bool {
        let state = &mut *self.0.borrow_mut();
        let regions = &state.regions;
        let mut hit = false;
        for fault in &mut state.armed {
            let asked = match fault.asked {
                Asked::Read => rq.op == Op::Read,
                Asked::Write => rq.op == Op::Write,
                Asked::Flush => rq.op == Op::Flush,
            };
            let data = touches(&regions.data, rq.at, rq.sectors);
            let journal = touches(&regions.journal, rq.at, rq.sectors);
            let there = match fault.place {
                Place::Any => true,
                Place::Data => data,
                Place::Fresh => data && pages(rq).any(|p| !state.written.contains(&p)),
                Place::Journal => journal,
                Place::Metadata => !data && !journal && rq.op != Op::Flush,
                Place::Fua => rq.flags.has(Flags::FUA),
                Place::Sectors(at, n) => touches(&[(at, at + u64::from(n))], rq.at, rq.sectors),
            };
            if !asked || !there {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            match &mut fault.times {
                Some(0) => continue,
                Some(n) => *n -= 1,
                None => {}
            }
            hit = true;
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
}
