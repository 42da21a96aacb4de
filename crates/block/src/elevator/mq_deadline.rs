//! `mq-deadline`: `deadline` for blk-mq; since 5.14 with classes of I/O priority.
//!
//! Picture:    one [`Deadline`] a class: real time, best effort, idle. A class is served only when
//!             those above have nothing queued and nothing in the device; a request of a lower
//!             class that has waited for [`AGING`] goes first.
//! Differs:    from 5.14 on batches are counted over all classes, as in the kernel's
//!             `deadline_data`; a machine whose tasks have one class does not see it.
//! Zones:      until 6.9 a write for a sequential zone locks it when it is given up for dispatch;
//!             others for that zone are passed over until it has completed.
//! Left out:   `async_depth`, as requests are limited by `nr_requests` a direction.
//! Source:     behaviour of `block/mq-deadline.c` (5.10, 6.1): commits "block/mq-deadline: Add I/O
//!             priority support" (5.14), "block/mq-deadline: Prioritize high-priority requests"
//!             (5.17).

use wp_base::{Sector, Span, ZoneLimits};

use super::deadline::{Batch, Deadline};
use super::interface::{Elevator, ElvCx, Kick};
use super::zone_locks::ZoneLocks;
use crate::era::Era;
use crate::pool::{BioInfo, IoClass, Pool, RqId};

/// Age at which a request of a lower class goes before those above (`prio_aging_expire`).
const AGING: Span = Span::secs(10);

/// The elevator `mq-deadline`.
pub struct MqDeadline {
    /// By class; all requests are in the middle one before 5.14.
    classes: [Deadline; 3],
    /// Inserted and neither completed nor merged away, by class (`dd_queued()`).
    open: [u32; 3],
    batch: Batch,
    has_classes: bool,
    ages: bool,
    locks: ZoneLocks,
    has_locks: bool,
}

impl MqDeadline {
    /// An empty one, by the rules of its kernel.
    pub fn new(era: &Era) -> MqDeadline {
        MqDeadline {
            classes: std::array::from_fn(|_| {
                if era.has_io_classes() { Deadline::keeping_place() } else { Deadline::new() }
            }),
            open: [0; 3],
            batch: Batch::default(),
            has_classes: era.has_io_classes(),
            ages: era.ages_io_classes(),
            locks: ZoneLocks::default(),
            has_locks: era.locks_zones(),
        }
    }

    /// For a device with these zones, which it locks if its kernel does.
    #[must_use]
    pub fn with_zones(mut self, zones: Option<ZoneLimits>) -> MqDeadline {
        self.locks = ZoneLocks::of(zones.filter(|_| self.has_locks));
        self
    }

    fn lock(&mut self, pool: &Pool, rq: Option<RqId>) -> Option<RqId> {
        if let Some(rq) = rq {
            self.locks.lock(&pool[rq]);
        }
        rq
    }

    fn class(&self, class: IoClass) -> usize {
        if self.has_classes { class as usize } else { IoClass::BestEffort as usize }
    }

    fn of(&self, pool: &Pool, rq: RqId) -> usize {
        self.class(pool[rq].class)
    }
}

impl Elevator for MqDeadline {
    fn allow_merge(&self, pool: &Pool, rq: RqId, bio: &BioInfo) -> bool {
        // `blk_rq_merge_ok()`
        !self.has_classes || pool[rq].class == bio.class
    }

    fn starting_at_end(&self, pool: &Pool, bio: &BioInfo) -> Option<RqId> {
        self.classes[self.class(bio.class)].starting_at_end(pool, bio)
    }

    fn neighbours(&self, pool: &Pool, rq: RqId) -> (Option<RqId>, Option<RqId>) {
        self.classes[self.of(pool, rq)].neighbours(pool, rq)
    }

    fn insert(&mut self, cx: &mut ElvCx<'_>, rq: RqId) -> Kick {
        let class = self.of(cx.pool, rq);
        self.open[class] += 1;
        self.classes[class].insert(cx, rq)
    }

    fn moved(&mut self, cx: &mut ElvCx<'_>, rq: RqId, old_at: Sector) {
        let class = self.of(cx.pool, rq);
        self.classes[class].moved(cx, rq, old_at);
    }

    fn absorbed(&mut self, cx: &mut ElvCx<'_>, kept: RqId, gone: RqId) {
        let class = self.of(cx.pool, gone);
        self.open[class] -= 1;
        self.classes[class].absorbed(cx, kept, gone);
    }

    fn next(&mut self, cx: &mut ElvCx<'_>) -> Option<RqId> {
        let batch = &mut self.batch;
        // Nothing is that old before.
        let can_be_old = self.ages && cx.now.0 > AGING.0;
        if can_be_old && self.open.iter().filter(|n| **n > 0).count() > 1 {
            let latest = cx.now.before(AGING);
            for class in &mut self.classes[IoClass::BestEffort as usize..] {
                let aged = class.next_of(cx, batch, Some(latest), &self.locks);
                if aged.is_some() {
                    return self.lock(cx.pool, aged);
                }
            }
        }
        for (class, open) in self.classes.iter_mut().zip(self.open) {
            let rq = class.next_of(cx, batch, None, &self.locks);
            if rq.is_some() {
                return self.lock(cx.pool, rq);
            }
            // Before 5.17 a lower class did not wait for what is in the device.
            if self.ages && open > 0 {
                return None;
            }
        }
        None
    }

    fn completed(&mut self, cx: &mut ElvCx<'_>, rq: RqId) {
        let class = self.of(cx.pool, rq);
        self.open[class] -= 1;
        self.locks.unlock(&cx.pool[rq]);
    }

    fn queued(&self) -> usize {
        self.classes.iter().map(Elevator::queued).sum()
    }
}

#[cfg(test)]
mod tests {
    use wp_base::event::Op;
    use wp_base::kernel::Version;

    use super::*;
    use wp_base::Time;
    use wp_base::event::Flags;

    struct Bench {
        elevator: MqDeadline,
        pool: Pool,
        now: Time,
    }

    impl Bench {
        fn new(major: u16, minor: u16) -> Bench {
            let now = Time(60_000_000_000);
            Bench {
                elevator: MqDeadline::new(&Era::of(Version(major, minor, 0))),
                pool: Pool::default(),
                now,
            }
        }
        fn add(&mut self, at: u64, class: IoClass) {
            let (at, flags) = (Sector(at), Flags::NONE);
            let (op, task, core) = (Op::Write, None, 0);
            let epoch = crate::pool::NO_EPOCH;
            let info = BioInfo { op, flags, at, sectors: 8, segments: 1, task, core, class, epoch };
            let rq = self.pool.alloc(&info, self.now);
            let mut cx = ElvCx { now: self.now, pool: &mut self.pool, timer: None };
            self.elevator.insert(&mut cx, rq);
        }
        fn next(&mut self) -> Option<(RqId, u64)> {
            let mut cx = ElvCx { now: self.now, pool: &mut self.pool, timer: None };
            let rq = self.elevator.next(&mut cx)?;
            Some((rq, self.pool[rq].at.0))
        }
        fn complete(&mut self, rq: RqId) {
            let mut cx = ElvCx { now: self.now, pool: &mut self.pool, timer: None };
            self.elevator.completed(&mut cx, rq);
        }
    }

    #[test]
    fn classes_are_served_by_rank_since_5_14_and_ignored_before() {
        for ((major, minor), expected) in [((5, 10), [0, 80, 160]), ((6, 1), [160, 80, 0])] {
            let mut b = Bench::new(major, minor);
            b.add(0, IoClass::Idle);
            b.add(80, IoClass::BestEffort);
            b.add(160, IoClass::RealTime);
            let mut order = Vec::new();
            while let Some((rq, at)) = b.next() {
                order.push(at);
                b.complete(rq);
            }
            assert_eq!(order, expected, "{major}.{minor}");
        }
    }

    #[test]
    fn a_lower_class_waits_for_what_is_in_the_device_until_it_is_old() {
        let mut b = Bench::new(6, 1);
        b.add(0, IoClass::RealTime);
        b.add(80, IoClass::Idle);
        let (first, at) = b.next().expect("queued");
        assert_eq!(at, 0);
        assert!(b.next().is_none(), "the first has not completed");
        b.now += Span::secs(9);
        assert!(b.next().is_none());
        b.now += Span::secs(1);
        assert_eq!(b.next().map(|(_, at)| at), Some(80), "ten seconds old");
        b.complete(first);
    }
}
