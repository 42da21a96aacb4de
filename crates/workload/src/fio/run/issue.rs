//! One operation of a job, by its engine: from the call to its count.

use wp_base::rng::mix64;
use wp_base::{FsError, FsResult, Span, Time};
use wp_medium::Slice;
use wp_vfs::{Fd, IoCall, Reserve};

use crate::filebench::math::ln;

use super::super::job::{Engine, Job};
use super::super::queue::Queue;
use super::super::random::Taus;
use super::super::sequence::{Direction, Streams};
use super::super::value::MICROS_MAX;
use super::super::verify::Expected;
use super::Task;
use super::running::{Held, Operation, Running};

/// What an operation takes that does nothing: assumed.
const TAKES: Span = Span::micros(1);

impl Task {
    pub(super) async fn issue(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        file: usize,
        direction: Direction,
        (offset, length): (u64, u64),
        held: Option<Held>,
    ) -> FsResult<()> {
        let d = direction.index();
        run.log_operation(self.now(), file, direction, (offset, length));
        let is_write = direction == Direction::Write;
        if is_write {
            run.last_written = Some((file, offset));
        }
        if self.job.engine == Engine::Null {
            if is_write {
                run.history.wrote(file, offset, Slice::zero(length as u32));
            }
            self.nothing(run, (file, d), (offset, length)).await?;
            return self.think(run, &mut None).await;
        }
        if self.job.engine.is_of_names() {
            // Or a job for a time that opens no further file would never end.
            self.vfs.rt().sleep(TAKES).await;
            run.counted(d, length);
            return self.think(run, queue).await;
        }
        let fd = run.fds[file].ok_or(FsError::BadFile)?;
        if self.job.engine.lays_out() {
            if is_write {
                run.history.wrote(file, offset, Slice::zero(length as u32));
            }
            let expected = match direction {
                Direction::Read => self.expected(run, file, (offset, length)),
                _ => Expected::Anything,
            };
            let (issued, held) = (None, None);
            let (start, direction) = (self.now(), d);
            let op = Operation { file, direction, offset, length, start, issued, held, expected };
            self.change_layout(run, fd, &op).await?;
            return self.think(run, queue).await;
        }
        let mut expected = Expected::Anything;
        let call = match direction {
            Direction::Write => {
                run.writes += 1;
                let data = self.contents(run.writes - 1, offset, length);
                self.contents.wrote(&self.job, &run.layout.files[file].path, offset, &data);
                run.history.wrote(file, offset, data.clone());
                Some(self.job.write_of(offset, data))
            }
            Direction::Read => {
                expected = self.expected(run, file, (offset, length));
                Some(IoCall::Read(offset, length))
            }
            Direction::Trim => {
                let path = &run.layout.files[file].path;
                self.contents.trimmed(path, offset, length);
                None
            }
        };
        let start = self.now();
        let op =
            Operation { file, direction: d, offset, length, start, issued: None, held, expected };
        match (call, queue.as_mut()) {
            (Some(call), Some(queue)) => queue.io(run, fd, call, op).await?,
            (Some(call), None) => self.wait_for(run, fd, call, op).await?,
            (None, queue) => self.trim(run, queue, fd, op).await?,
        }
        self.think(run, queue).await
    }

    /// An operation of engine `null`: it takes an assumed time, or a job of a time never ended.
    pub(super) async fn nothing(
        &self,
        run: &mut Running,
        (file, direction): (usize, usize),
        (offset, length): (u64, u64),
    ) -> FsResult<()> {
        let (start, expected) = (self.now(), Expected::Anything);
        let (issued, held) = (None, None);
        let op = Operation { file, direction, offset, length, start, issued, held, expected };
        self.vfs.rt().sleep(TAKES).await;
        run.issued[direction] += length;
        let depth = &mut run.result.depth;
        depth.level(1, 1);
        depth.submitted(1);
        depth.completed(1);
        run.ended(self.now(), &op, Ok(length), &[])?;
        run.sample(self.now());
        Ok(())
    }

    /// What the job's read must give.
    fn expected(&self, run: &Running, file: usize, (offset, length): (u64, u64)) -> Expected {
        self.contents.expected(&self.job, &run.layout.files[file].path, offset, length)
    }

    /// The think time, if it is due.
    async fn think(&self, run: &mut Running, queue: &mut Option<Queue>) -> FsResult<()> {
        run.total += 1;
        let worked = self.now().since(run.think_since);
        let iotime = Span::micros(self.job.thinktime_iotime);
        let is_due = run.total >= run.think_from.saturating_add(self.job.thinktime_blocks)
            || (self.job.thinktime_iotime > 0 && worked >= iotime);
        if self.job.thinktime > 0 && is_due {
            if let Some(queue) = queue {
                queue.drain(run).await?;
            }
            self.vfs.rt().sleep(Span::micros(self.job.thinktime)).await;
            run.think_from = run.total;
            run.think_since = self.now();
        }
        Ok(())
    }

    /// One discard. No engine here has a call for it: fio makes it and waits, beside what is in
    /// flight, once what was prepared has been submitted.
    async fn trim(
        &self,
        run: &mut Running,
        queue: Option<&mut Queue>,
        fd: Fd,
        op: Operation,
    ) -> FsResult<()> {
        if let Some(queue) = queue {
            queue.submit_prepared(run).await?;
            queue.passed_by(op.offset);
        }
        let done = match &op.held {
            Some(held) => self.reset_zone(run, held).await,
            None => self.vfs.discard(fd, op.offset, op.length).await,
        };
        self.waited(run, &op, done.map(|()| op.length), &[])
    }

    /// One operation of an engine that changes the layout of files.
    pub(super) async fn change_layout(
        &self,
        run: &mut Running,
        fd: Fd,
        op: &Operation,
    ) -> FsResult<()> {
        let done = if self.job.engine == Engine::Ftruncate {
            match op.direction {
                1 => self.vfs.ftruncate(fd, op.offset).await,
                _ => Err(FsError::Invalid("engine ftruncate has writes only")),
            }
        } else {
            let how = match op.direction {
                0 => Reserve::Space { keep_size: true },
                1 => Reserve::Space { keep_size: false },
                _ => Reserve::Punch,
            };
            self.vfs.fallocate(fd, how, op.offset, op.length).await
        };
        self.waited(run, op, done.map(|()| op.length), &[])
    }

    /// One operation of a synchronous engine.
    pub(super) async fn wait_for(
        &self,
        run: &mut Running,
        fd: Fd,
        call: IoCall,
        op: Operation,
    ) -> FsResult<()> {
        let mut read = Vec::new();
        let done = match call {
            IoCall::Write(offset, data) => self.vfs.pwrite(fd, offset, &data).await,
            IoCall::WriteAtomic(offset, data) => self.vfs.pwrite_atomic(fd, offset, &[&data]).await,
            IoCall::Read(offset, length) => self.vfs.pread(fd, offset, length).await.map(|data| {
                read = data;
                read.iter().map(|s| u64::from(s.len())).sum()
            }),
            IoCall::Sync(_) => return Err(FsError::Invalid("fio: a sync among operations")),
        };
        self.waited(run, &op, done, &read)
    }

    /// Counts an operation that was waited for.
    fn waited(
        &self,
        run: &mut Running,
        op: &Operation,
        done: FsResult<u64>,
        read: &[Slice],
    ) -> FsResult<()> {
        run.issued[op.direction] += op.length;
        let depth = &mut run.result.depth;
        depth.level(1, 1);
        depth.submitted(1);
        depth.completed(1);
        run.ended(self.now(), op, done, read)?;
        run.sample(self.now());
        Ok(())
    }

    /// Waits until the bytes issued so far would have taken this long at the rate asked for. False:
    /// the job is over before.
    pub(super) async fn keep_rate(&self, run: &mut Running, d: usize) -> bool {
        let Some(per_second) = rate_of(&self.job, d) else { return true };
        let micros = match &mut run.pauses {
            Some(pauses) => pauses.due_us(&self.job, d, run.issued[d]),
            // fio reckons in whole microseconds.
            None => {
                let micros = u128::from(run.issued[d]) * 1_000_000 / u128::from(per_second);
                u64::try_from(micros).unwrap_or(u64::MAX)
            }
        };
        self.sleep_until(run, run.epoch + Span::micros(micros.min(MICROS_MAX))).await
    }

    /// Sleeps; looks twice a second whether the job is to end, as fio does, and at the end of its
    /// time. False: it is over.
    pub(super) async fn sleep_until(&self, run: &Running, due: Time) -> bool {
        if due <= self.now() {
            return true;
        }
        let limit = match self.job.runtime > 0 && !run.is_ramping {
            true => run.epoch + Span::micros(self.job.runtime),
            false => Time(u64::MAX),
        };
        let end = due.min(limit);
        while self.now() < end {
            if self.is_over(run) {
                return false;
            }
            let next = end.min(self.now() + Span::millis(500));
            self.vfs.rt().sleep_until(next).await;
        }
        end == due && due < limit || !self.is_over(run)
    }

    fn contents(&self, write: u64, offset: u64, length: u64) -> Slice {
        let len = length as u32;
        let job = &self.job;
        let own = u64::from(job.thread_number) << 40;
        if job.verify.is_some() {
            // Whatever is asked for, fio writes a header and fills each buffer anew.
            Slice::pattern(mix64(own + write + 1), offset, len)
        } else if job.zero_buffers {
            Slice::zero(len)
        } else if let Some(pattern) = job.pattern {
            Slice::pattern(pattern, 0, len)
        } else if job.refill || job.scramble {
            Slice::pattern(mix64(own + write + 1), offset, len)
        } else {
            Slice::pattern(mix64(own), 0, len)
        }
    }
}

/// Bytes per second that a job is held to.
fn rate_of(job: &Job, d: usize) -> Option<u64> {
    match (job.rate[d], job.rate_iops[d]) {
        (0, 0) => None,
        (0, iops) => Some(iops.saturating_mul(job.min_bs[d])),
        (rate, _) => Some(rate),
    }
}

/// The random times of `rate_process=poisson`: from one operation to the next an exponential one.
pub(super) struct Pauses {
    fresh: [Taus; 3],
    streams: [Taus; 3],
    /// Microseconds from the beginning to the next operation, by direction, and the bytes that were
    /// issued when that was drawn.
    due: [(u64, u64); 3],
}

impl Pauses {
    pub(super) fn new(job: &Job, chance: u64) -> Option<Pauses> {
        let fresh = Streams::new(job, chance, false).pause;
        let streams = fresh.clone();
        job.poisson.then_some(Pauses { fresh, streams, due: Default::default() })
    }

    /// A round begins: so do the random numbers.
    pub(super) fn begin_round(&mut self) {
        self.streams = self.fresh.clone();
    }

    /// Time begins anew.
    pub(super) fn restart(&mut self) {
        self.due = Default::default();
    }

    /// When the next operation of a direction is due, of which `issued` bytes have been issued.
    fn due_us(&mut self, job: &Job, d: usize, issued: u64) -> u64 {
        if let Some(per_second) = rate_of(job, d)
            && self.due[d].1 != issued
        {
            // fio draws when it has issued one; its numbers are whole, and this one is an `f32`.
            let iops = (per_second / job.min_bs[d]).max(1);
            let one = (self.streams[d].next() as f64 + 1.0) / 4_294_967_296.0;
            let pause = (1_000_000 / iops) as f32 * -(ln(one) as f32);
            self.due[d] = (self.due[d].0.saturating_add(pause as u64), issued);
        }
        self.due[d].0
    }
}
