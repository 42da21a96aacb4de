//! `deadline`: batches in sector order, reads before writes, and an age at which a request jumps
//! the batch.
//!
//! Picture:    one FIFO and one sector index a direction. A batch runs upwards by sector until it
//!             has issued `fifo_batch` requests or has no neighbour; the next batch is of reads,
//!             unless writes have been passed over `writes_starved` times.
//! Source:     behaviour of `block/deadline-iosched.c` up to 4.20 and `block/mq-deadline.c` (6.1),
//!             whose order of service without priorities is nearly the same (`mq_deadline.rs`).

use wp_base::event::Op;
use wp_base::{Sector, Span, Time};
use wp_rt::TaskId;

use crate::elevator::interface::{Elevator, ElvCx, Kick};
use crate::elevator::zone_locks::ZoneLocks;
use crate::pool::{BioInfo, List, Pool, RqId};
use crate::quasi::BOOSTED;
use crate::sorted::SectorIndex;

/// Settings, as in `/sys/block/*/queue/iosched`.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineTunables {
    /// Age at which a read jumps the batch (`read_expire`).
    pub read_expire: Span,
    /// Age at which a write does (`write_expire`).
    pub write_expire: Span,
    /// Requests of a batch (`fifo_batch`).
    pub fifo_batch: u32,
    /// Batches of reads that writes let pass (`writes_starved`).
    pub writes_starved: u32,
}

impl Default for DeadlineTunables {
    /// 500 ms, 5 s, 16, 2: the kernel's in every version.
    fn default() -> DeadlineTunables {
        DeadlineTunables {
            read_expire: Span::millis(500),
            write_expire: Span::secs(5),
            fifo_batch: 16,
            writes_starved: 2,
        }
    }
}

const READ: usize = 0;
const WRITE: usize = 1;

#[derive(Default)]
struct Side {
    fifo: List,
    sorted: SectorIndex,
    /// Where the batch goes on.
    next: Option<RqId>,
}

/// How far the present batch is. mq-deadline has one for all classes of priority.
#[derive(Clone, Copy, Default)]
pub(super) struct Batch {
    /// Requests issued in this batch.
    batched: u32,
    /// Batches of reads since the last of writes.
    starved: u32,
    /// Direction of the batch (`last_dir`).
    dir: usize,
}

/// The elevator `deadline`.
#[derive(Default)]
pub struct Deadline {
    tunables: DeadlineTunables,
    sides: [Side; 2],
    batch: Batch,
    /// Does a direction keep its place while the other has its batch (mq-deadline since 5.14)?
    keeps_place: bool,
}

fn side_of(op: Op) -> usize {
    if op == Op::Read { READ } else { WRITE }
}

impl Deadline {
    /// An empty one with the kernel's settings.
    pub fn new() -> Deadline {
        Deadline::default()
    }

    /// An empty one that keeps each direction's place.
    pub(super) fn keeping_place() -> Deadline {
        Deadline { keeps_place: true, ..Deadline::default() }
    }

    /// Takes a request out of its side; a batch that was to go on with it has lost its place.
    fn take(&mut self, pool: &mut Pool, rq: RqId) {
        let side = &mut self.sides[side_of(pool[rq].op)];
        side.fifo.remove(pool, rq);
        side.sorted.remove(pool[rq].at, rq);
        if side.next == Some(rq) {
            side.next = None;
        }
    }

    /// Has the oldest request of a direction waited too long?
    fn is_expired(&self, cx: &ElvCx<'_>, dir: usize) -> bool {
        self.sides[dir].fifo.first().is_some_and(|rq| cx.pool[rq].deadline <= cx.now)
    }

    /// Which request a new batch of `dir` begins with.
    fn first_of_batch(&self, cx: &ElvCx<'_>, dir: usize, locks: &ZoneLocks) -> Option<RqId> {
        match self.next_free(cx, dir, locks) {
            Some(rq) if !self.is_expired(cx, dir) => Some(rq),
            _ => self.oldest_free(cx, dir, locks),
        }
    }

    /// Where a batch goes on, past requests whose zone is being written
    /// (`deadline_next_request()`).
    fn next_free(&self, cx: &ElvCx<'_>, dir: usize, locks: &ZoneLocks) -> Option<RqId> {
        let side = &self.sides[dir];
        let after = |rq: &RqId| side.sorted.around(cx.pool[*rq].at, *rq).1;
        std::iter::successors(side.next, after).find(|rq| locks.allow(&cx.pool[*rq]))
    }

    /// The oldest request whose zone is not being written (`deadline_fifo_request()`).
    fn oldest_free(&self, cx: &ElvCx<'_>, dir: usize, locks: &ZoneLocks) -> Option<RqId> {
        let after = |rq: &RqId| List::around(cx.pool, *rq).1;
        std::iter::successors(self.sides[dir].fifo.first(), after)
            .find(|rq| locks.allow(&cx.pool[*rq]))
    }

    fn choose(&self, cx: &ElvCx<'_>, batch: &mut Batch, locks: &ZoneLocks) -> Option<RqId> {
        // Of the single-queue elevator only the direction of the batch has a place.
        if let Some(rq) = self.next_free(cx, batch.dir, locks)
            && batch.batched < self.tunables.fifo_batch
        {
            return Some(rq);
        }
        let has = |dir: usize| self.oldest_free(cx, dir, locks).is_some();
        let dir = match (has(READ), has(WRITE)) {
            (false, false) => return None,
            (true, false) => READ,
            (false, true) => WRITE,
            (true, true) if batch.starved >= self.tunables.writes_starved => WRITE,
            (true, true) => READ,
        };
        let passed_over = dir == READ && has(WRITE);
        batch.starved = if passed_over { batch.starved + 1 } else { 0 };
        (batch.batched, batch.dir) = (0, dir);
        self.first_of_batch(cx, dir, locks)
    }

    /// The next request, if it was queued at `latest` or before.
    pub(super) fn next_of(
        &mut self,
        cx: &mut ElvCx<'_>,
        batch: &mut Batch,
        latest: Option<Time>,
        locks: &ZoneLocks,
    ) -> Option<RqId> {
        let rq = self.choose(cx, batch, locks)?;
        let dir = side_of(cx.pool[rq].op);
        if latest.is_some_and(|at| cx.pool[rq].deadline > at + self.patience(dir)) {
            return None;
        }
        let (_, after) = self.sides[dir].sorted.around(cx.pool[rq].at, rq);
        self.take(cx.pool, rq);
        if !self.keeps_place {
            self.sides[READ].next = None;
            self.sides[WRITE].next = None;
        }
        self.sides[dir].next = after;
        batch.batched += 1;
        Some(rq)
    }

    /// Age at which a request of a direction jumps the batch.
    fn patience(&self, dir: usize) -> Span {
        if dir == READ { self.tunables.read_expire } else { self.tunables.write_expire }
    }
}

impl Elevator for Deadline {
    fn starting_at_end(&self, _pool: &Pool, bio: &BioInfo) -> Option<RqId> {
        self.sides[side_of(bio.op)].sorted.at_or_after(bio.end())
    }

    fn neighbours(&self, pool: &Pool, rq: RqId) -> (Option<RqId>, Option<RqId>) {
        self.sides[side_of(pool[rq].op)].sorted.around(pool[rq].at, rq)
    }

    fn insert(&mut self, cx: &mut ElvCx<'_>, rq: RqId) -> Kick {
        let dir = side_of(cx.pool[rq].op);
        cx.pool[rq].deadline = cx.now + self.patience(dir);
        let side = &mut self.sides[dir];
        side.sorted.insert(cx.pool[rq].at, rq);
        side.fifo.push(cx.pool, rq);
        Kick::No
    }

    fn moved(&mut self, cx: &mut ElvCx<'_>, rq: RqId, old_at: Sector) {
        let side = &mut self.sides[side_of(cx.pool[rq].op)];
        side.sorted.remove(old_at, rq);
        side.sorted.insert(cx.pool[rq].at, rq);
    }

    fn absorbed(&mut self, cx: &mut ElvCx<'_>, kept: RqId, gone: RqId) {
        if cx.pool[gone].deadline < cx.pool[kept].deadline {
            // The older one's place in the line, and its deadline.
            cx.pool[kept].deadline = cx.pool[gone].deadline;
            let side = &mut self.sides[side_of(cx.pool[kept].op)];
            side.fifo.remove(cx.pool, kept);
            side.fifo.replace(cx.pool, gone, kept);
            side.fifo.push(cx.pool, gone);
        }
        self.take(cx.pool, gone);
    }

    fn next(&mut self, cx: &mut ElvCx<'_>) -> Option<RqId> {
        let mut batch = self.batch;
        let rq = self.next_of(cx, &mut batch, None, &ZoneLocks::default());
        self.batch = batch;
        rq
    }

    /// To the head of the line, expired, so that the next batch begins with it; the present one
    /// ends.
    fn boost(&mut self, cx: &mut ElvCx<'_>, rq: RqId, _waiter: Option<TaskId>) {
        let side = &mut self.sides[side_of(cx.pool[rq].op)];
        side.fifo.remove(cx.pool, rq);
        side.fifo.push_front(cx.pool, rq);
        let r = &mut cx.pool[rq];
        r.deadline = cx.now;
        r.flags |= BOOSTED;
        self.batch.batched = self.tunables.fifo_batch;
    }

    fn queued(&self) -> usize {
        self.sides.iter().map(|s| s.fifo.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::IoClass;
    use wp_base::event::Flags;

    struct Bench {
        deadline: Deadline,
        pool: Pool,
        now: Time,
    }

    impl Bench {
        fn new() -> Bench {
            let now = Time(1_000_000_000);
            Bench { deadline: Deadline::new(), pool: Pool::default(), now }
        }
        fn add(&mut self, op: Op, at: u64) {
            let (at, flags) = (Sector(at), Flags::NONE);
            let (task, core, class) = (None, 0, IoClass::BestEffort);
            let epoch = crate::pool::NO_EPOCH;
            let info = BioInfo { op, flags, at, sectors: 8, segments: 1, task, core, class, epoch };
            let rq = self.pool.alloc(&info, self.now);
            let mut cx = ElvCx { now: self.now, pool: &mut self.pool, timer: None };
            self.deadline.insert(&mut cx, rq);
        }
        fn next(&mut self) -> Option<u64> {
            let mut cx = ElvCx { now: self.now, pool: &mut self.pool, timer: None };
            let rq = self.deadline.next(&mut cx)?;
            Some(self.pool[rq].at.0)
        }
    }

    #[test]
    fn an_expired_request_begins_the_next_batch_though_the_last_one_could_go_on() {
        let far = 1_000;
        let run = |age: Span| {
            let mut b = Bench::new();
            b.add(Op::Read, 500_000);
            b.add(Op::Read, far);
            (1..40).for_each(|i| b.add(Op::Read, 500_000 + 80 * i));
            let first: Vec<u64> = (0..16).filter_map(|_| b.next()).collect();
            assert!(!first.contains(&far), "a batch goes upwards");
            b.now += age;
            b.next()
        };
        // 499 ms: sector order goes on. 500 ms: the oldest, which is far behind.
        assert_eq!(run(Span::millis(499)), Some(500_000 + 80 * 16));
        assert_eq!(run(Span::millis(500)), Some(far));
    }

    #[test]
    fn writes_let_two_batches_of_reads_pass() {
        let mut b = Bench::new();
        b.add(Op::Write, 0);
        (0..64).for_each(|i| b.add(Op::Read, 10_000 + 80 * i));
        let order: Vec<u64> = std::iter::from_fn(|| b.next()).collect();
        assert_eq!(order.iter().position(|at| *at == 0), Some(32));
        assert_eq!(order.len(), 65);
        assert_eq!(b.deadline.queued(), 0);
    }
}
