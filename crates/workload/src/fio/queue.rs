//! A job with several operations in flight: fio's rules of when to submit and when to reap.
//!
//! Picture:    prepared -> (`iodepth_batch` of them) submitted -> reaped: at `iodepth`, down to
//!             `iodepth_low`, `iodepth_batch_complete_min` to `_max` at a time.
//! Invariants: with libaio, which has no call for it here, a sync is made at once, beside what is
//!             in flight.
//! Source:     fio's manual; the shares of depths, submissions and completions that the installed
//!             fio reports (`cli/tests/fio_jobs.rs`).

use wp_base::{FsError, FsResult, Time};
use wp_vfs::{Fd, IoCall, IoContext, Iocb, SyncKind, Vfs};

use super::job::{Engine, Job, SyncWhat};
use super::result::DepthCounts;
use super::run::{Operation, Running};

/// What is on its way.
enum Slot {
    Io(Operation),
    /// A sync, and when its submission had returned.
    Sync(Time),
}

/// The queue of one job.
pub(super) struct Queue {
    vfs: Vfs,
    context: IoContext,
    rules: Rules,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Offset of the last operation of each slot, as fio's `io_u` keep it.
    offsets: Vec<u64>,
    /// Prepared, and not yet submitted.
    prepared: Vec<Iocb>,
    /// Prepared since a full batch was submitted. fio does not begin anew where it reaps, which
    /// submits what is prepared as well.
    of_batch: usize,
    /// Was what ended last a sync? `None`: nothing has since somebody asked.
    last_ended: Option<bool>,
    /// Where in fio's ring of `depth` places for libaio the next call goes: one submission takes
    /// none beyond the ring's end.
    ring_at: usize,
}

/// How many, of a job's options.
#[derive(Clone, Copy)]
struct Rules {
    depth: usize,
    batch: usize,
    reap_min: usize,
    reap_max: usize,
    low: usize,
    /// A sync is one more call in the queue.
    queues_syncs: bool,
}

impl Rules {
    /// With fio's corrections of values that cannot be.
    fn of(job: &Job) -> Rules {
        let depth = job.iodepth.max(1) as usize;
        let within = |n: u64| match n as usize {
            0 => depth,
            n if n > depth => depth,
            n => n,
        };
        let reap_min = (job.batch_complete_min as usize).min(depth);
        Rules {
            depth,
            // The C library takes calls one by one.
            batch: if job.engine == Engine::Posixaio { 1 } else { within(job.batch) },
            reap_min,
            reap_max: (job.batch_complete_max as usize).max(reap_min),
            low: within(job.iodepth_low),
            queues_syncs: job.engine != Engine::Libaio,
        }
    }
}

impl Queue {
    /// Errors: the context's.
    pub(super) async fn new(vfs: &Vfs, job: &Job) -> FsResult<Queue> {
        let rules = Rules::of(job);
        let room = rules.depth as u32;
        let context = match job.engine {
            Engine::IoUring => vfs.io_uring_setup(room).await?,
            Engine::Posixaio => vfs.aio_threads(room)?,
            _ => vfs.io_setup(room).await?,
        };
        Ok(Queue {
            vfs: vfs.clone(),
            context,
            rules,
            slots: (0..rules.depth).map(|_| None).collect(),
            free: (0..rules.depth).rev().collect(),
            offsets: vec![0; rules.depth],
            prepared: Vec::new(),
            of_batch: 0,
            ring_at: 0,
            last_ended: None,
        })
    }

    fn now(&self) -> Time {
        self.vfs.rt().now()
    }

    /// Was what ended last a sync? A sync that is in flight has not ended.
    pub(super) fn take_last_ended(&mut self) -> Option<bool> {
        self.last_ended.take()
    }

    /// Has every operation ended?
    pub(super) fn is_idle(&self) -> bool {
        self.depth() == 0
    }

    /// The offset that the next slot had before: fio logs it with a sync.
    pub(super) fn free_offset(&self) -> u64 {
        self.free.last().map_or(0, |place| self.offsets[*place])
    }

    /// An operation that was waited for took the next slot.
    pub(super) fn passed_by(&mut self, offset: u64) {
        if let Some(place) = self.free.last() {
            self.offsets[*place] = offset;
        }
    }

    /// Prepared and in flight.
    pub(super) fn depth(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// One operation. Waits: until there is room for the next.
    pub(super) async fn io(
        &mut self,
        run: &mut Running,
        fd: Fd,
        call: IoCall,
        op: Operation,
    ) -> FsResult<()> {
        run.issued[op.direction] += op.length;
        self.add(run, fd, call, Slot::Io(op)).await
    }

    /// A sync. Waits: of libaio for it, of io_uring for room.
    pub(super) async fn sync(&mut self, run: &mut Running, fd: Fd, what: SyncWhat) -> FsResult<()> {
        let kind = match what {
            SyncWhat::All => SyncKind::Full,
            SyncWhat::Data => SyncKind::DataOnly,
        };
        if self.rules.queues_syncs {
            let slot = Slot::Sync(self.now());
            return self.add(run, fd, IoCall::Sync(kind), slot).await;
        }
        self.submit_prepared(run).await?;
        let start = self.now();
        match what {
            SyncWhat::All => self.vfs.fsync(fd).await?,
            SyncWhat::Data => self.vfs.fdatasync(fd).await?,
        }
        run.result.sync.add(self.now().since(start).0);
        run.result.depth.level(self.depth() + 1, 1);
        self.last_ended = Some(true);
        Ok(())
    }

    /// Before a call that the queue does not hold: fio's engine is busy until what was prepared has
    /// gone, and then something is reaped.
    pub(super) async fn submit_prepared(&mut self, run: &mut Running) -> FsResult<()> {
        if self.prepared.is_empty() {
            return Ok(());
        }
        self.commit_batch(run).await?;
        self.reap(run, true).await
    }

    async fn add(&mut self, run: &mut Running, fd: Fd, call: IoCall, slot: Slot) -> FsResult<()> {
        let place = self.free.pop().ok_or(FsError::Invalid("fio: the queue is full"))?;
        if let Slot::Io(op) = &slot {
            self.offsets[place] = op.offset;
        }
        self.slots[place] = Some(slot);
        self.prepared.push(Iocb { fd, call, tag: place as u64 });
        self.of_batch += 1;
        if self.of_batch >= self.rules.batch {
            self.commit_batch(run).await?;
        }
        let is_full = self.depth() >= self.rules.depth.min(run.depth_limit().unwrap_or(usize::MAX));
        if is_full || self.rules.reap_min == 0 {
            self.reap(run, is_full).await?;
        }
        Ok(())
    }

    /// Submits what was prepared, and counts at which depth.
    async fn commit_batch(&mut self, run: &mut Running) -> FsResult<()> {
        run.result.depth.level(self.depth(), std::mem::take(&mut self.of_batch) as u64);
        self.commit(run).await
    }

    /// Submits what was prepared.
    async fn commit(&mut self, run: &mut Running) -> FsResult<()> {
        let mut left = std::mem::take(&mut self.prepared);
        while !left.is_empty() {
            let n = match self.rules.queues_syncs {
                true => left.len(),
                false => left.len().min(self.rules.depth - self.ring_at),
            };
            let tags: Vec<usize> = left.iter().map(|c| c.tag as usize).collect();
            let begun = self.context.submit(left[..n].to_vec()).await? as usize;
            self.ring_at = (self.ring_at + begun) % self.rules.depth;
            let issued = self.now();
            for place in tags.iter().take(begun) {
                match &mut self.slots[*place] {
                    Some(Slot::Io(op)) => {
                        op.issued = Some(issued);
                        let counts = &mut run.result.directions[op.direction];
                        counts.slat.add(issued.since(op.start).0);
                    }
                    Some(Slot::Sync(at)) => *at = issued,
                    None => {}
                }
            }
            run.result.depth.submitted(begun);
            left.drain(..begun);
        }
        Ok(())
    }

    /// Takes what has ended. Waits: for as many as the job wants at once.
    async fn reap(&mut self, run: &mut Running, is_full: bool) -> FsResult<()> {
        loop {
            let min = self.rules.reap_min.min(self.depth()).max(1);
            self.complete(run, min).await?;
            if !is_full || self.depth() <= self.rules.low {
                return Ok(());
            }
        }
    }

    /// Waits: for everything.
    pub(super) async fn drain(&mut self, run: &mut Running) -> FsResult<()> {
        while self.depth() > 0 {
            self.complete(run, self.depth()).await?;
        }
        Ok(())
    }

    async fn complete(&mut self, run: &mut Running, min: usize) -> FsResult<()> {
        self.commit(run).await?;
        let max = self.rules.reap_max.min(self.depth()).max(min);
        let events = self.context.get_events(min, max).await?;
        let now = self.now();
        run.result.depth.completed(events.len());
        for event in events {
            let place = event.tag as usize;
            let Some(slot) = self.slots.get_mut(place).and_then(Option::take) else { continue };
            self.free.push(place);
            self.last_ended = Some(matches!(slot, Slot::Sync(_)));
            match slot {
                Slot::Sync(issued) => {
                    event.result?;
                    run.result.sync.add(now.since(issued).0);
                }
                Slot::Io(op) => run.ended(now, &op, event.result, &event.data)?,
            }
        }
        run.sample(now);
        Ok(())
    }
}

impl DepthCounts {
    /// Counts all of another's.
    pub(super) fn merge(&mut self, other: &DepthCounts) {
        let all = |c: &DepthCounts| [c.levels, c.submits, c.completes];
        let mine = [&mut self.levels, &mut self.submits, &mut self.completes];
        for (a, b) in mine.into_iter().zip(all(other)) {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        }
    }

    /// `n` operations at a depth.
    pub(super) fn level(&mut self, depth: usize, n: u64) {
        let class = (depth.max(1).ilog2() as usize).min(6);
        self.levels[class] += n;
    }

    /// A call that submitted `n`.
    pub(super) fn submitted(&mut self, n: usize) {
        self.submits[DepthCounts::class(n)] += 1;
    }

    /// A call that took `n` ends.
    pub(super) fn completed(&mut self, n: usize) {
        self.completes[DepthCounts::class(n)] += 1;
    }

    /// fio's classes of how many: 0, up to 4, 8, 16, 32, 64, more.
    fn class(n: usize) -> usize {
        match n {
            0 => 0,
            1..=4 => 1,
            n => (n.next_power_of_two().ilog2() as usize - 1).min(6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_that_fio_prints() {
        let classes = [0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65].map(DepthCounts::class);
        assert_eq!(classes, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]);
        let mut counts = DepthCounts::default();
        for depth in [1, 2, 3, 4, 7, 8, 16, 32, 63, 64, 1000] {
            counts.level(depth, 1);
        }
        assert_eq!(counts.levels, [1, 2, 2, 1, 1, 2, 2]);
    }
}
