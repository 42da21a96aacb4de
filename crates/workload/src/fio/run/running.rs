//! What a job has done so far, and how an operation that ends is counted.

use wp_base::{FsError, FsResult, Span, Time};
use wp_medium::Slice;
use wp_vfs::Fd;

use super::super::control::Control;
use super::super::job::Job;
use super::super::logs::{self, Logged};
use super::super::queue::Queue;
use super::super::result::{DepthCounts, DirectionResult, JobResult, errno};
use super::super::samples::Sampler;
use super::super::sequence::Direction;
use super::super::setup::Layout;
use super::super::stats::Stat;
use super::super::verify::{EILSEQ, Expected, History};
use super::super::zoned;
use super::Task;
use super::depth::Search;
use super::issue::Pauses;
use super::least::LeastRates;

/// Linux: `ETIMEDOUT`, what fio ends a job with whose latency is beyond `max_latency`.
const ETIMEDOUT: i32 = 110;

/// Linux: `EIO`.
const EIO: i32 = 5;

/// Does a job go on after an error of reads, of writes (0, 1), or of verification (2)? Without
/// `ignore_error`, `continue_on_error` is about these two errors only.
fn goes_on_after(job: &Job, kind: usize, error: i32) -> bool {
    let ignored = &job.ignored_errors[kind];
    match ignored.is_empty() {
        true => job.continue_on_error[kind] && [EIO, EILSEQ].contains(&error),
        false => ignored.contains(&error),
    }
}

/// Samplers of bandwidth and rate, by direction.
pub(super) fn samplers(job: &Job, now: Time) -> [[Sampler; 2]; 3] {
    let periods = [job.bw_period_ns, job.iops_period_ns];
    std::array::from_fn(|_| periods.map(|p| Sampler::new(p, now.0)))
}

/// A read or write of a job.
pub(in crate::fio) struct Operation {
    /// Number of its file.
    pub file: usize,
    /// Index of its direction.
    pub direction: usize,
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
    /// When it was prepared.
    pub start: Time,
    /// When its submission had returned; `None` of a synchronous engine.
    pub issued: Option<Time>,
    /// The zone that it holds.
    pub held: Option<Held>,
    /// What a read must give.
    pub expected: Expected,
}

/// A zone that an operation is on its way to.
pub(in crate::fio) struct Held {
    pub(super) file: usize,
    /// Its number.
    pub(super) zone: usize,
    /// It is to be reset first; of a trim that is all.
    pub(super) resets: bool,
}

/// What a job has done so far.
pub(in crate::fio) struct Running {
    pub(super) layout: Layout,
    pub(super) fds: Vec<Option<Fd>>,
    /// Files that are open; engine `null` has no descriptors.
    pub(super) is_open: Vec<bool>,
    /// Of a job on zones: its part of each file's.
    pub(super) places: Vec<zoned::Place>,
    pub(super) control: Control,
    /// When the job began, for `write_iolog`: a ramp does not move it.
    pub(super) begun: Time,
    pub(super) epoch: Time,
    pub(super) round: Time,
    pub(super) writes: u64,
    /// Operations issued.
    pub(super) total: u64,
    pub(super) think_from: u64,
    /// Bytes issued, by direction.
    pub(in crate::fio) issued: [u64; 3],
    /// Nothing counts yet (`ramp_time`).
    pub(super) is_ramping: bool,
    /// A round has ended, and no other has begun.
    pub(super) is_between: bool,
    /// When the last think time ended.
    pub(super) think_since: Time,
    /// Bandwidth and rate, by direction.
    pub(super) samplers: [[Sampler; 2]; 3],
    /// What was written and not yet read back.
    pub(super) history: History,
    /// The last operation was no read.
    pub(super) after_write: bool,
    /// The depth that is sought.
    pub(super) search: Option<Search>,
    /// What was counted of rates that it must not fall below.
    pub(super) least: LeastRates,
    /// Random times of its rate.
    pub(super) pauses: Option<Pauses>,
    /// Offset of the last operation of a synchronous engine.
    pub(super) last_offset: u64,
    /// There is no space left, which is what the job is for.
    pub(super) is_full: bool,
    /// File and offset of the last write.
    pub(super) last_written: Option<(usize, u64)>,
    pub(in crate::fio) result: JobResult,
}

impl Running {
    /// Lets the counting begin, once the ramp is over.
    pub(super) fn end_ramp(&mut self, task: &Task) {
        let span = Span::micros(task.job.ramp_time);
        if self.is_ramping && task.now().since(self.epoch) >= span {
            self.is_ramping = false;
            self.reset(task);
        }
    }

    /// Has an error ended the job?
    pub(super) fn has_failed(&self) -> bool {
        self.result.error != 0 && self.result.errors == 0
    }

    /// What happens to a file, for the log.
    pub(super) fn note(&mut self, now: Time, file: usize, word: &str) {
        let at_ns = now.since(self.begun).0;
        if let Some(log) = &mut self.result.iolog {
            log.event(at_ns, file, word);
        }
    }

    /// A sync, for the log.
    pub(super) fn note_sync(&mut self, now: Time, file: usize, word: &str, queue: Option<&Queue>) {
        let at_ns = now.since(self.begun).0;
        let offset = queue.map_or(self.last_offset, Queue::free_offset);
        if let Some(log) = &mut self.result.iolog {
            log.sync(at_ns, file, word, offset);
        }
    }

    /// An operation begins, for the log.
    pub(super) fn log_operation(
        &mut self,
        now: Time,
        file: usize,
        direction: Direction,
        (offset, length): (u64, u64),
    ) {
        self.last_offset = offset;
        let at_ns = now.since(self.begun).0;
        if let Some(log) = &mut self.result.iolog {
            log.operation(at_ns, file, direction, (offset, length));
        }
    }

    /// A round has ended: its time counts for what the job does.
    pub(super) fn end_round(&mut self, now: Time) {
        self.is_between = true;
        if let Some(pauses) = self.pauses.as_mut().filter(|_| !self.result.job.seed_given) {
            pauses.begin_round();
        }
        let span = now.since(self.round).0;
        self.round = now;
        let reads = self.result.job.reads;
        for (n, d) in self.result.directions.iter_mut().enumerate() {
            // Reads of a job that only writes are those of `verify`, which has a time of its own.
            if d.ios > 0 && (n > 0 || reads) {
                d.runtime_ns += span;
            }
        }
    }

    /// Forgets what was counted; time begins now.
    pub(super) fn reset(&mut self, task: &Task) {
        let now = task.now();
        (self.epoch, self.round, self.issued) = (now, now, [0; 3]);
        (self.total, self.think_from) = (0, 0);
        let result = &mut self.result;
        for d in &mut result.directions {
            *d = DirectionResult { jobs: 1, ..DirectionResult::default() };
        }
        (result.syncs, result.full_syncs) = (0, 0);
        (result.sync, result.depth) = (Stat::default(), DepthCounts::default());
        result.logged.clear();
        self.least = LeastRates::default();
        if let Some(pauses) = &mut self.pauses {
            pauses.restart();
        }
        self.samplers = samplers(&task.job, now);
        self.control.steady().begin(&task.job, now);
    }

    /// Operations that have ended.
    pub(super) fn operations(&self) -> u64 {
        self.result.directions.iter().map(|d| d.ios).sum()
    }

    /// Operations that may be in flight, if the depth is sought.
    pub(in crate::fio) fn depth_limit(&self) -> Option<usize> {
        self.search.as_ref().map(|s| s.depth as usize)
    }

    /// A latency for the logs, of no bytes.
    pub(super) fn log_latency(&mut self, now: Time, direction: usize, latency_ns: u64) {
        if logs::is_logged(&self.result.job) && !self.is_ramping {
            let (at_ns, direction) = (now.since(self.epoch).0, direction as u8);
            let line = Logged { at_ns, direction, latency_ns, bytes: 0, offset: 0 };
            self.result.logged.push(line);
        }
    }

    /// Counts an operation that does nothing, and has no latency.
    pub(super) fn counted(&mut self, direction: usize, length: u64) {
        self.issued[direction] += length;
        let depth = &mut self.result.depth;
        depth.level(1, 1);
        depth.submitted(1);
        depth.completed(1);
        let counts = &mut self.result.directions[direction];
        counts.ios += 1;
        counts.bytes += length;
        self.control.steady().count(&self.result.job, length);
    }

    /// Counts an operation that has ended.
    ///
    /// Errors: its own, unless the job goes on after errors.
    pub(in crate::fio) fn ended(
        &mut self,
        now: Time,
        op: &Operation,
        done: FsResult<u64>,
        read: &[Slice],
    ) -> FsResult<()> {
        if let Some(held) = &op.held {
            let end = (op.direction == Direction::Write.index()).then(|| op.offset + op.length);
            self.places[held.file].ended(held.zone, end);
            self.control.zone_freed();
        }
        if done.is_err() && op.direction == 1 {
            self.history.failed(op.file, op.offset);
        }
        let result = &mut self.result;
        if done.is_err() {
            // fio counts it where it issues it.
            result.directions[op.direction].ios += 1;
        }
        let done = match done {
            Ok(done) => done,
            Err(e) if goes_on_after(&result.job, usize::from(op.direction > 0), errno(&e)) => {
                result.errors += 1;
                if result.error == 0 {
                    result.error = errno(&e);
                }
                return Ok(());
            }
            Err(FsError::NoSpace) if result.job.fill_device => {
                self.is_full = true;
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let latency = now.since(op.start).0;
        let counts = &mut result.directions[op.direction];
        counts.ios += 1;
        counts.bytes += done;
        counts.short += u64::from(done < op.length);
        counts.clat.add(now.since(op.issued.unwrap_or(op.start)).0);
        counts.lat.add(latency);
        if logs::is_logged(&result.job) && !self.is_ramping {
            result.logged.push(Logged {
                at_ns: now.since(self.epoch).0,
                direction: op.direction as u8,
                latency_ns: latency,
                bytes: op.length,
                offset: op.offset,
            });
        }
        if !op.expected.is(read) {
            result.errors += u64::from(goes_on_after(&result.job, 2, EILSEQ));
            if result.error == 0 {
                result.error = EILSEQ;
            }
        }
        self.control.steady().count(&result.job, done);
        if let Some(search) = &mut self.search
            && !search.ended(latency)
        {
            result.error = ETIMEDOUT;
            let target = result.job.latency_target.map_or(0, |t| t.ns);
            let what = format!("latency_target of {target} ns not met at depth 1: {latency} ns");
            result.unmet = Some(what);
        }
        if result.job.max_latency > 0 && latency > result.job.max_latency.saturating_mul(1000) {
            result.error = ETIMEDOUT;
        }
        Ok(())
    }

    /// Takes the samples of bandwidth and rate that are due.
    pub(in crate::fio) fn sample(&mut self, now: Time) {
        for ([bw, iops], d) in self.samplers.iter_mut().zip(&self.result.directions) {
            bw.take(now.0, d.bytes, 1024);
            iops.take(now.0, d.ios, 1);
        }
    }
}
