//! A device that fails what it is told to, or begins it late.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::event::Op;
use wp_base::{Span, Time};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits, Status};
use wp_medium::Medium;

/// Timers of what begins late; the device's own are below.
const OWN_TIMER: u64 = 1 << 63;

/// What fails or is late from here on.
#[derive(Default)]
pub struct Plan {
    pub ops: RefCell<Vec<Op>>,
    /// Requests that failed.
    pub failed: Cell<u32>,
    one: Cell<Option<Op>>,
    late: Cell<Option<(Op, Span)>>,
    /// Do those that are late fail then?
    late_fail: Cell<bool>,
    /// Requests that were late.
    pub late_ones: Cell<u32>,
}

impl Plan {
    pub fn fail(&self, ops: &[Op]) {
        *self.ops.borrow_mut() = ops.to_vec();
    }

    /// The next request of this kind fails.
    pub fn fail_one(&self, op: Op) {
        self.one.set(Some(op));
    }

    /// Requests of this kind get to the device so much later.
    pub fn delay(&self, op: Op, by: Span) {
        self.late.set(Some((op, by)));
    }

    /// Those that are late fail when they get there.
    pub fn fail_late(&self, fail: bool) {
        self.late_fail.set(fail);
    }

    /// All requests get to the device at once.
    pub fn hurry(&self) {
        self.late.set(None);
    }
}

/// A device behind which requests fail as planned.
pub struct Faulty {
    inner: Box<dyn DeviceModel>,
    plan: Rc<Plan>,
    /// What has not begun, by the token of its timer.
    held: BTreeMap<u64, DevRequest>,
    next: u64,
}

impl Faulty {
    pub fn new(inner: Box<dyn DeviceModel>, plan: Rc<Plan>) -> Faulty {
        Faulty { inner, plan, held: BTreeMap::new(), next: OWN_TIMER }
    }
}

impl DeviceModel for Faulty {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        let is_the_one = self.plan.one.get() == Some(rq.op);
        if is_the_one || self.plan.ops.borrow().contains(&rq.op) {
            if is_the_one {
                self.plan.one.set(None);
            }
            self.plan.failed.set(self.plan.failed.get() + 1);
            fx.fail(rq.id, Status::Io);
            return Admit::Accepted;
        }
        if let Some((_, by)) = self.plan.late.get().filter(|(op, _)| *op == rq.op) {
            fx.timers.push((now + by, self.next));
            self.held.insert(self.next, rq);
            self.next += 1;
            self.plan.late_ones.set(self.plan.late_ones.get() + 1);
            return Admit::Accepted;
        }
        self.inner.submit(now, rq, fx)
    }
    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        match self.held.remove(&token) {
            Some(rq) if self.plan.late_fail.get() => fx.fail(rq.id, Status::Io),
            Some(rq) => {
                let admit = self.inner.submit(now, rq, fx);
                assert!(matches!(admit, Admit::Accepted), "few are late");
            }
            None => self.inner.timer(now, token, fx),
        }
    }
    fn crash_view(&self, now: Time) -> CrashView {
        self.inner.crash_view(now)
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        let (inner, plan) = (self.inner.fork(), self.plan.clone());
        let held = self.held.iter().map(|(token, rq)| (*token, rq.clone())).collect();
        Box::new(Faulty { inner, plan, held, next: self.next })
    }
    fn medium(&self) -> Medium {
        self.inner.medium()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}
