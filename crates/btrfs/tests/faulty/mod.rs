//! A device that fails what it is told to.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::Time;
use wp_base::event::Op;
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits, Status};
use wp_medium::Medium;

/// What fails from here on.
#[derive(Default)]
pub struct Plan {
    pub ops: RefCell<Vec<Op>>,
    /// Requests that failed.
    pub failed: Cell<u32>,
}

impl Plan {
    pub fn fail(&self, ops: &[Op]) {
        *self.ops.borrow_mut() = ops.to_vec();
    }
}

/// A device behind which requests fail as planned.
pub struct Faulty {
    pub inner: Box<dyn DeviceModel>,
    pub plan: Rc<Plan>,
}

impl DeviceModel for Faulty {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        if self.plan.ops.borrow().contains(&rq.op) {
            self.plan.failed.set(self.plan.failed.get() + 1);
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
    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(Faulty { inner: self.inner.fork(), plan: self.plan.clone() })
    }
    fn medium(&self) -> Medium {
        self.inner.medium()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }
}
