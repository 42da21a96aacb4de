//! CFQ alone, without a device.

use wp_base::event::{Flags, Op};
use wp_base::kernel::Version;
use wp_base::{Sector, Time};

use super::*;
use crate::device::Limits;
use crate::era::Era;
use crate::pool::IoClass;

struct Bench {
    cfq: Cfq,
    pool: Pool,
    now: Time,
}

impl Bench {
    fn new(rotational: bool) -> Bench {
        let limits = Limits { queue_depth: 31, volatile_cache: true, ..Limits::plain(1 << 31) };
        let cfq = Cfq::new(&ElvSetup { limits, rotational, era: Era::of(Version(4, 6, 0)) });
        Bench { cfq, pool: Pool::default(), now: Time(1_000_000_000) }
    }
    fn add(&mut self, at: u64, flags: Flags) -> RqId {
        self.add_for(at, flags, None)
    }
    fn add_for(&mut self, at: u64, flags: Flags, task: Option<TaskId>) -> RqId {
        let info = BioInfo {
            op: Op::Write,
            flags,
            at: Sector(at),
            sectors: 8,
            segments: 1,
            task,
            core: 0,
            class: IoClass::BestEffort,
            epoch: crate::pool::NO_EPOCH,
        };
        let rq = self.pool.alloc(&info, self.now);
        let mut cx = ElvCx { now: self.now, pool: &mut self.pool, timer: None };
        self.cfq.insert(&mut cx, rq);
        rq
    }
    fn next(&mut self) -> Option<u64> {
        let mut cx = ElvCx { now: self.now, pool: &mut self.pool, timer: None };
        let rq = self.cfq.next(&mut cx)?;
        self.cfq.issued(&mut cx, rq);
        self.cfq.completed(&mut cx, rq);
        Some(self.pool[rq].at.0)
    }
    fn order(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

#[test]
fn a_queue_goes_up_and_back_only_a_short_way() {
    let mut b = Bench::new(false);
    for at in [500_000, 100, 400_000, 499_900, 600_000] {
        b.add(at, Flags::NONE);
    }
    // From 0 upwards; nothing lies behind.
    assert_eq!(b.order(), [100, 400_000, 499_900, 500_000, 600_000]);
    // The head is at 600008: 599000 is 1008 back, which counts as 2016; 601000 is 992 ahead.
    for at in [599_000, 601_000, 2_000_000, 100] {
        b.add(at, Flags::NONE);
    }
    // From 601008, 599000 is 2008 back (4016), 2000000 far ahead; then ahead; then, as 100 is too
    // far back, the start.
    assert_eq!(b.order(), [601_000, 599_000, 2_000_000, 100]);
}

#[test]
fn a_late_request_comes_first_once_a_slice() {
    let mut b = Bench::new(false);
    b.add(900_000, Flags::NONE);
    b.now += Span::millis(251);
    b.add(100, Flags::NONE);
    b.add(200, Flags::NONE);
    assert_eq!(b.order(), [900_000, 100, 200]);
}

#[test]
fn metadata_with_priority_goes_before_its_equals() {
    let mut b = Bench::new(false);
    b.add(1_000, Flags::NONE);
    assert_eq!(b.next(), Some(1_000));
    b.add(900, Flags::PRIO);
    b.add(1_100, Flags::NONE);
    assert_eq!(b.order(), [900, 1_100]);
}

#[test]
fn queues_of_tasks_that_are_gone_are_forgotten() {
    let rt = wp_rt::Rt::new(1);
    let ids = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    for _ in 0..2_000 {
        let (r, ids) = (rt.clone(), ids.clone());
        rt.spawn("t", async move { ids.borrow_mut().push(r.current()) });
    }
    rt.run();
    let mut b = Bench::new(false);
    for task in ids.take() {
        b.add_for(8, Flags::SYNC, task);
        assert_eq!(b.next(), Some(8));
        assert!(b.cfq.queues.len() <= IDLE_QUEUES_MAX);
    }
}
