//! What jobs that run beside each other have to do with each other: `wait_for`, `exitall`, `flow`.
//!
//! Source: fio's manual. Flow control (observed too): a job may go on while its share of the
//! operations of its `flow_id` is at most its share of the weights of the jobs that run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::Span;
use wp_rt::{Rt, WaitQueue, wait_timeout};

use super::job::{ExitWhat, Job};
use super::steady::Watch;

/// What a job sleeps before it looks again whether it may go on, if `flow_sleep` is not given: fio
/// then asks again and again, and takes no virtual time.
const FLOW_SLEEP_US: u64 = 10;

/// Jobs of one `flow_id` that run.
#[derive(Default)]
struct Flow {
    weight: u64,
    operations: u64,
    /// Of each job, by its number.
    own: BTreeMap<u32, u64>,
}

struct Inner {
    queue: WaitQueue,
    /// An operation on a zone has ended.
    zone_freed: WaitQueue,
    /// Jobs of a name that have not ended.
    left: RefCell<BTreeMap<String, usize>>,
    /// Groups that are to end, and jobs up to this number.
    ending: RefCell<(Vec<u32>, u32)>,
    flows: RefCell<BTreeMap<u64, Flow>>,
    steady: Watch,
}

/// Shared by all jobs of a file.
#[derive(Clone)]
pub struct Control(Rc<Inner>);

impl Control {
    /// Of jobs that are to run.
    pub fn new(rt: &Rt, jobs: &[Job]) -> Control {
        let mut left = BTreeMap::new();
        for job in jobs {
            *left.entry(job.name.clone()).or_default() += 1;
        }
        Control(Rc::new(Inner {
            queue: WaitQueue::new(rt, "fio/wait_for"),
            zone_freed: WaitQueue::new(rt, "fio/zone"),
            left: RefCell::new(left),
            ending: RefCell::new((Vec::new(), 0)),
            flows: RefCell::default(),
            steady: Watch::default(),
        }))
    }

    /// Waits: until an operation on a zone has ended.
    pub async fn wait_for_zone(&self) {
        self.0.zone_freed.wait().await;
    }

    /// An operation on a zone has ended.
    pub fn zone_freed(&self) {
        self.0.zone_freed.wake_all();
    }

    /// Waits: until the job that this one waits for has ended, with all its clones.
    pub async fn begin(&self, job: &Job) {
        if let Some(name) = &job.wait_for {
            let is_over = || self.0.left.borrow().get(name).is_none_or(|n| *n == 0);
            self.0.queue.wait_until(is_over).await;
        }
        if job.flow > 0 {
            let mut flows = self.0.flows.borrow_mut();
            let flow = flows.entry(job.flow_id).or_default();
            flow.weight += job.flow;
            // fio begins to count at 1.
            flow.operations += 1;
            flow.own.insert(job.thread_number, 1);
        }
    }

    /// A job has ended; `failed`: with an error. `last`: the number of the last job that runs.
    pub fn end(&self, job: &Job, failed: bool, last: u32) {
        if let Some(n) = self.0.left.borrow_mut().get_mut(&job.name) {
            *n = n.saturating_sub(1);
        }
        if let Some(flow) = self.0.flows.borrow_mut().get_mut(&job.flow_id)
            && let Some(own) = flow.own.remove(&job.thread_number)
        {
            flow.weight -= job.flow;
            flow.operations -= own;
        }
        if job.exitall || (job.exitall_on_error && failed) {
            let mut ending = self.0.ending.borrow_mut();
            match job.exit_what {
                ExitWhat::Group => ending.0.push(job.group),
                ExitWhat::Stonewall => ending.1 = ending.1.max(last),
                ExitWhat::All => ending.1 = u32::MAX,
            }
        }
        self.0.queue.wake_all();
    }

    /// Is a job to end because another one has ended, or because it is in its steady state?
    pub fn is_ending(&self, job: &Job) -> bool {
        let ending = self.0.ending.borrow();
        job.thread_number <= ending.1
            || ending.0.contains(&job.group)
            || self.0.steady.is_attained(job)
    }

    /// The jobs that have a steady state to reach.
    pub fn steady(&self) -> &Watch {
        &self.0.steady
    }

    /// Looks at the jobs once a second. Waits: until all jobs have ended.
    pub async fn watch(self, rt: Rt) {
        while self.0.left.borrow().values().any(|n| *n > 0) {
            let due = rt.now() + Span::secs(1);
            while rt.now() < due && self.0.left.borrow().values().any(|n| *n > 0) {
                wait_timeout(&self.0.queue, due.since(rt.now())).await;
            }
            self.0.steady.tick(rt.now());
        }
    }

    /// How long a job has to wait before its next operation; `None`: it may go on, and its
    /// operation counts.
    pub fn held_back(&self, job: &Job) -> Option<Span> {
        if job.flow == 0 {
            return None;
        }
        let mut flows = self.0.flows.borrow_mut();
        let flow = flows.get_mut(&job.flow_id)?;
        let own = flow.own.get_mut(&job.thread_number)?;
        let (mine, all) = (u128::from(*own), u128::from(flow.operations));
        if mine * u128::from(flow.weight) > all * u128::from(job.flow) {
            let us = if job.flow_sleep > 0 { job.flow_sleep } else { FLOW_SLEEP_US };
            return Some(Span::micros(us));
        }
        *own += 1;
        flow.operations += 1;
        None
    }
}
