//! Running jobs on a mounted file system, in virtual time.

use std::collections::BTreeMap;
use std::fmt;

use wp_base::event::ZoneOp;
use wp_base::rng::mix64;
use wp_base::{FsError, FsResult, Span, Time};
use wp_medium::Slice;
use wp_vfs::{Fd, FileType, IoCall, OpenFlags, SyncKind, Vfs};

use super::control::Control;
use super::job::{Engine, Job, JobFile, SyncWhat};
use super::logs::{self, Logged};
use super::queue::Queue;
use super::samples::Sampler;
use super::sequence::{Action, Direction, Sequence};
use super::setup::{self, Existing, Layout};
use super::stats::Stat;
use super::zoned::{self, Chosen};

/// Linux: `ETIMEDOUT`, what fio ends a job with whose latency is beyond `max_latency`.
const ETIMEDOUT: i32 = 110;

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Seed of jobs with `randrepeat=0`.
    pub chance: u64,
    /// Sync the file that fio would (axboe/fio #1904).
    pub bugs: bool,
    /// The file system has no `fallocate`: files are made without, as fio goes on without.
    pub no_fallocate: bool,
}

/// Why jobs did not finish.
#[derive(Debug)]
pub enum RunError {
    /// A job that cannot be, on the files that are there.
    Job(String),
    /// The file system's answer.
    Fs(FsError),
}

impl From<FsError> for RunError {
    fn from(e: FsError) -> RunError {
        RunError::Fs(e)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Job(what) => f.write_str(what),
            RunError::Fs(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

/// What one direction did.
#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    /// Operations.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Operations that gave less than was asked.
    pub short: u64,
    /// Time in which this direction could run, in nanoseconds.
    pub runtime_ns: u64,
    /// Latency of submission, of asynchronous engines.
    pub slat: Stat,
    /// Latency of completion: the system call; of asynchronous engines from the submission's end
    /// until the job has taken the event.
    pub clat: Stat,
    /// Both together.
    pub lat: Stat,
    /// Samples of the bandwidth, in KiB per second.
    pub bw: Stat,
    /// Samples of the rate, in operations per second.
    pub iops: Stat,
    /// Jobs that these are the numbers of; 0: one.
    pub jobs: u64,
}

/// How deep the queue was, in fio's classes.
#[derive(Clone, Debug, Default)]
pub struct DepthCounts {
    /// Operations by the depth at which they were issued: 1, 2, 4, 8, 16, 32, 64 and more.
    pub levels: [u64; 7],
    /// Submissions by their size: 0, up to 4, 8, 16, 32, 64, more.
    pub submits: [u64; 7],
    /// As `submits`, of taking what has ended.
    pub completes: [u64; 7],
}

/// What a job did.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// The job.
    pub job: Job,
    /// Reads, writes, trims.
    pub directions: [DirectionResult; 3],
    /// Syncs among the operations; fio neither counts nor measures those at the end of a round and
    /// before a close.
    pub syncs: u64,
    /// Those of them that are no `fdatasync`: fio's report has only these as `total_ios`.
    pub full_syncs: u64,
    /// Latency of syncs.
    pub sync: Stat,
    /// How deep its queue was.
    pub depth: DepthCounts,
    /// Zones that were reset before they were written again, or as a trim.
    pub zone_resets: u64,
    /// `invalidate` was asked for, and the file system cannot drop a file's pages.
    pub stays_cached: bool,
    /// From the job's beginning to its end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Operations that failed, and that the job went on after.
    pub errors: u64,
    /// The `errno` of the first of them, or of what ended the job; 0: none.
    pub error: i32,
    /// Every operation, for a job that writes logs.
    pub logged: Vec<Logged>,
}

/// Runs all jobs: lays their files out, then starts them together, group by group where `stonewall`
/// says so.
///
/// Waits for all I/O. Errors: the first job's, in the file's order.
pub async fn run(
    vfs: &Vfs,
    file: &JobFile,
    options: RunOptions,
) -> Result<Vec<JobResult>, RunError> {
    let mut layouts = Vec::new();
    for job in &file.jobs {
        layouts.push(if job.create_serialize { Some(lay_out(vfs, job).await?) } else { None });
    }
    let mut devices = zoned::Devices::new();
    let mut places = Vec::new();
    for (job, layout) in file.jobs.iter().zip(&mut layouts) {
        places.push(match layout {
            Some(layout) => zoned::places(vfs, job, layout, &mut devices)
                .await
                .map_err(|e| RunError::Job(format!("job `{}`: {e}", job.name)))?,
            None => Vec::new(),
        });
    }
    let mut results = Vec::new();
    let mut tasks = Vec::new();
    let control = Control::new(vfs.rt(), &file.jobs);
    let planned = file.jobs.iter().zip(layouts).zip(places);
    for (n, ((job, layout), places)) in planned.enumerate() {
        if job.stonewall {
            for task in tasks.drain(..) {
                results.push(task.await?);
            }
        }
        let behind = file.jobs[n + 1..].iter().find(|j| j.stonewall);
        let last = behind.map_or(u32::MAX, |j| j.thread_number - 1);
        let control = control.clone();
        let task = Task { vfs: vfs.clone(), job: job.clone(), options, control, last };
        let name = format!("fio/{}", job.thread_number);
        tasks.push(vfs.rt().spawn(name, task.run(layout, places)));
    }
    for task in tasks {
        results.push(task.await?);
    }
    Ok(results)
}

/// Linux' number of an error.
fn errno(e: &FsError) -> i32 {
    match e.errno() {
        "ENOENT" => 2,
        "EBADF" => 9,
        "EINVAL" => 22,
        "EFBIG" => 27,
        "ENOSPC" => 28,
        "EROFS" => 30,
        "EDQUOT" => 122,
        _ => 5,
    }
}

type Outcome = Result<JobResult, RunError>;

/// Makes the directories on the way to a job's files.
async fn directories(vfs: &Vfs, job: &Job) -> FsResult<()> {
    for dir in job.directories() {
        match vfs.mkdir(&dir, 0o755).await {
            Ok(()) | Err(FsError::Exists) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Shares a job's bytes among its files and makes those that must be there first.
async fn lay_out(vfs: &Vfs, job: &Job) -> Result<Layout, RunError> {
    let mut existing = BTreeMap::new();
    if !job.is_on_devices() {
        directories(vfs, job).await?;
    }
    let wrong = |e: String| RunError::Job(format!("job `{}`: {e}", job.name));
    for path in job.paths() {
        match vfs.stat(&path).await {
            Ok(attr) => {
                let is_device = attr.kind == FileType::Block;
                existing.insert(path, Existing { length: attr.size, is_device });
            }
            Err(FsError::NotFound) if job.is_on_devices() => {
                return Err(wrong(format!("the machine has no further device for /{path}")));
            }
            Err(FsError::NotFound) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let there = &mut |p: &str| existing.get(p).copied().unwrap_or_default();
    let layout = setup::layout(job, there).map_err(wrong)?;
    // Jobs that read need bytes there; jobs that only write begin with an empty file.
    let filled = job.reads || job.overwrite;
    for (n, file) in layout.files.iter().enumerate() {
        if !file.extend || job.create_on_open {
            continue;
        }
        if !job.file_append || filled {
            match vfs.unlink(&file.path).await {
                Ok(()) | Err(FsError::NotFound) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let fd = vfs.open(&file.path, OpenFlags::CREATE, 0o644).await?;
        if let Some(how) = job.reserve_first {
            match vfs.fallocate(fd, how, 0, file.length).await {
                // As fio, which goes on without.
                Ok(()) | Err(FsError::Unsupported(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        if filled || job.truncate_first {
            vfs.ftruncate(fd, file.length).await?;
        }
        if filled {
            let tag = mix64(u64::from(job.thread_number) << 32 | n as u64);
            let mut at = 0;
            while at < file.length {
                let len = job.max_bs[1].min(file.length - at);
                at += vfs.write(fd, &[Slice::pattern(tag, at, len as u32)]).await?;
            }
            if job.create_fsync {
                vfs.fsync(fd).await?;
            }
        }
        vfs.close(fd).await?;
    }
    Ok(layout)
}

struct Task {
    vfs: Vfs,
    job: Job,
    options: RunOptions,
    control: Control,
    /// Number of the last job before the next stonewall.
    last: u32,
}

impl Task {
    fn now(&self) -> Time {
        self.vfs.rt().now()
    }

    async fn run(self, layout: Option<Layout>, places: Vec<zoned::Place>) -> Outcome {
        self.control.begin(&self.job).await;
        let outcome = self.perform(layout, places).await;
        let failed = outcome.as_ref().map_or(true, |r| r.error != 0);
        self.control.end(&self.job, failed, self.last);
        outcome
    }

    async fn perform(&self, layout: Option<Layout>, places: Vec<zoned::Place>) -> Outcome {
        let layout = match layout {
            Some(l) => l,
            None => lay_out(&self.vfs, &self.job).await?,
        };
        let mut sequence =
            Sequence::new(&self.job, &layout, self.options.chance, self.options.bugs)
                .map_err(|e| RunError::Job(format!("job `{}`: {e}", self.job.name)))?;
        if self.job.startdelay > 0 {
            self.vfs.rt().sleep(Span::micros(self.job.startdelay)).await;
        }
        if self.job.pre_read {
            self.read_before(&layout).await?;
        }
        let mut run = Running {
            is_ramping: self.job.ramp_time > 0,
            is_between: false,
            think_since: self.now(),
            fds: vec![None; layout.files.len()],
            places,
            control: self.control.clone(),
            layout,
            epoch: self.now(),
            round: self.now(),
            writes: 0,
            total: 0,
            think_from: 0,
            issued: [0; 3],
            samplers: samplers(&self.job, self.now()),
            result: JobResult {
                job: self.job.clone(),
                directions: std::array::from_fn(|_| DirectionResult {
                    jobs: 1,
                    ..DirectionResult::default()
                }),
                syncs: 0,
                full_syncs: 0,
                sync: Stat::default(),
                depth: DepthCounts::default(),
                zone_resets: 0,
                stays_cached: false,
                elapsed_ns: 0,
                errors: 0,
                error: 0,
                logged: Vec::new(),
            },
        };
        let mut queue = match self.job.engine.is_async() && self.job.engine != Engine::Posixaio {
            true => Some(Queue::new(&self.vfs, &self.job).await?),
            false => None,
        };
        loop {
            run.end_ramp(self);
            if self.is_over(&run) || run.result.error != 0 && run.result.errors == 0 {
                sequence.terminate();
            }
            let nothing = run.places.first().is_some_and(zoned::Place::has_nothing);
            sequence.set_has_nothing(nothing);
            match sequence.next_action() {
                Action::Done => break,
                Action::Place { file, direction, offset, length } => {
                    let ask = (file, direction, (offset, length));
                    self.place(&mut sequence, &mut run, &mut queue, ask).await?;
                }
                action => self.act(action, &mut run, &mut queue).await?,
            }
        }
        if run.is_ramping {
            // fio counts nothing before the ramp is over.
            run.reset(self);
        }
        if self.job.unlink {
            for file in run.layout.files.iter().filter(|f| !f.is_device) {
                match self.vfs.unlink(&file.path).await {
                    Ok(()) | Err(FsError::NotFound) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        run.result.elapsed_ns = self.now().since(run.epoch).0;
        for (d, [bw, iops]) in run.result.directions.iter_mut().zip(run.samplers) {
            (d.bw, d.iops) = (bw.stat, iops.stat);
        }
        Ok(run.result)
    }

    /// Is there no time left, or has another job's end ended this one?
    fn is_over(&self, run: &Running) -> bool {
        let limit = Span::micros(self.job.runtime);
        let is_late =
            self.job.runtime > 0 && !run.is_ramping && self.now().since(run.epoch) >= limit;
        is_late || self.control.is_ending(&self.job)
    }

    /// Reads the job's files through the page cache.
    async fn read_before(&self, layout: &Layout) -> FsResult<()> {
        for file in &layout.files {
            let fd = self.vfs.open(&file.path, OpenFlags::READ, 0o644).await?;
            let mut at = 0;
            while at < file.length {
                let len = self.job.max_bs[0].min(file.length - at);
                self.vfs.pread(fd, at, len).await?;
                at += len;
            }
            self.vfs.close(fd).await?;
        }
        Ok(())
    }

    async fn open(&self, run: &Running, i: usize) -> FsResult<Fd> {
        let base = match self.job.writes {
            _ if self.job.trims || self.job.writes && run.layout.files[i].is_device => {
                OpenFlags::WRITE
            }
            true => OpenFlags::CREATE,
            false => OpenFlags::READ,
        };
        let flags = OpenFlags {
            direct: self.job.direct,
            sync: self.job.open_sync == Some(SyncKind::Full),
            dsync: self.job.open_sync == Some(SyncKind::DataOnly),
            ..base
        };
        self.vfs.open(&run.layout.files[i].path, flags, 0o644).await
    }

    async fn act(
        &self,
        action: Action,
        run: &mut Running,
        queue: &mut Option<Queue>,
    ) -> FsResult<()> {
        if let Some(queue) = queue
            && matches!(action, Action::Close { .. } | Action::RoundEnd { .. })
        {
            queue.drain(run).await?;
        }
        match action {
            Action::Open(i) => {
                if std::mem::take(&mut run.is_between) && self.job.unlink_each_loop {
                    for file in run.layout.files.iter().filter(|f| !f.is_device) {
                        match self.vfs.unlink(&file.path).await {
                            Ok(()) | Err(FsError::NotFound) => {}
                            Err(e) => return Err(e),
                        }
                    }
                }
                let fd = self.open(run, i).await?;
                if self.job.invalidate && !self.vfs.fadvise_dontneed(fd).await? {
                    run.result.stays_cached = true;
                }
                run.fds[i] = Some(fd);
            }
            Action::Close { file } => {
                let fd = run.fds[file].take().ok_or(FsError::BadFile)?;
                self.vfs.close(fd).await?;
            }
            Action::Io { file, direction, offset, length } => {
                self.io(run, queue, file, direction, (offset, length)).await?;
            }
            Action::Sync { file, what } => {
                let fd = run.fds[file].ok_or(FsError::BadFile)?;
                match queue {
                    Some(queue) => queue.sync(run, fd, what).await?,
                    None => self.sync(run, fd, what).await?,
                }
                run.result.syncs += 1;
                run.result.full_syncs += u64::from(what == SyncWhat::All);
            }
            Action::RoundEnd { sync } => {
                for i in 0..if sync { run.fds.len() } else { 0 } {
                    match run.fds[i] {
                        Some(fd) => self.vfs.fsync(fd).await?,
                        None => {
                            let fd = self.open(run, i).await?;
                            self.vfs.fsync(fd).await?;
                            self.vfs.close(fd).await?;
                        }
                    }
                }
                run.is_between = true;
                run.places.iter_mut().for_each(zoned::Place::restart);
                let span = self.now().since(run.round).0;
                run.round = self.now();
                for d in &mut run.result.directions {
                    if d.ios > 0 {
                        d.runtime_ns += span;
                    }
                }
            }
            Action::Place { .. } | Action::Done => {}
        }
        Ok(())
    }

    /// An operation on zones: where the sequence has it, or where they let it go.
    async fn place(
        &self,
        sequence: &mut Sequence,
        run: &mut Running,
        queue: &mut Option<Queue>,
        (file, direction, (offset, length)): (usize, Direction, (u64, u64)),
    ) -> FsResult<()> {
        if !self.has_turn(run, direction.index()).await {
            return Ok(());
        }
        loop {
            let is_idle = queue.as_ref().is_none_or(Queue::is_idle);
            let ask = zoned::Ask { direction, offset, length, is_idle };
            let proposed = offset;
            let shorten = &mut |length| sequence.mark(file, direction, (proposed, length));
            match run.places[file].choose(ask, shorten) {
                Chosen::Nowhere => {
                    sequence.no_place(file);
                    return Ok(());
                }
                Chosen::Quiesce => {
                    if let Some(queue) = queue {
                        queue.drain(run).await?;
                    }
                }
                Chosen::Busy => {
                    if let Some(queue) = queue {
                        queue.drain(run).await?;
                    }
                    self.control.wait_for_zone().await;
                }
                Chosen::At { offset, length, zone, resets } => {
                    sequence.placed(file, direction, (offset, length));
                    run.result.zone_resets += u64::from(resets);
                    let held = zone.map(|zone| Held { file, zone, resets });
                    if let Some(held) = &held
                        && direction != Direction::Trim
                    {
                        self.reset_zone(run, held).await?;
                    }
                    return self.issue(run, queue, file, direction, (offset, length), held).await;
                }
            }
        }
    }

    /// Resets a zone, if it is to be.
    async fn reset_zone(&self, run: &Running, held: &Held) -> FsResult<()> {
        let place = &run.places[held.file];
        if !held.resets || !place.resets_device() {
            return Ok(());
        }
        let fd = run.fds[held.file].ok_or(FsError::BadFile)?;
        self.vfs.manage_zone(fd, ZoneOp::Reset, place.start_of(held.zone)).await
    }

    async fn sync(&self, run: &mut Running, fd: Fd, what: SyncWhat) -> FsResult<()> {
        let start = self.now();
        match what {
            SyncWhat::All => self.vfs.fsync(fd).await?,
            SyncWhat::Data => self.vfs.fdatasync(fd).await?,
        }
        run.result.sync.add(self.now().since(start).0);
        run.result.depth.level(1, 1);
        Ok(())
    }

    async fn io(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        file: usize,
        direction: Direction,
        (offset, length): (u64, u64),
    ) -> FsResult<()> {
        if !self.has_turn(run, direction.index()).await {
            return Ok(());
        }
        self.issue(run, queue, file, direction, (offset, length), None).await
    }

    /// Waits: until the next operation may begin. False: there is no time left for it.
    async fn has_turn(&self, run: &Running, d: usize) -> bool {
        while let Some(span) = self.control.held_back(&self.job) {
            if self.is_over(run) {
                return false;
            }
            self.vfs.rt().sleep(span).await;
        }
        self.keep_rate(run, d).await;
        true
    }

    async fn issue(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        file: usize,
        direction: Direction,
        (offset, length): (u64, u64),
        held: Option<Held>,
    ) -> FsResult<()> {
        let d = direction.index();
        let fd = run.fds[file].ok_or(FsError::BadFile)?;
        let call = match direction {
            Direction::Write => {
                run.writes += 1;
                Some(IoCall::Write(offset, vec![self.contents(run.writes - 1, offset, length)]))
            }
            Direction::Read => Some(IoCall::Read(offset, length)),
            Direction::Trim => None,
        };
        let op = Operation { direction: d, offset, length, start: self.now(), issued: None, held };
        match (call, queue.as_mut()) {
            (Some(call), Some(queue)) => queue.io(run, fd, call, op).await?,
            (Some(call), None) => self.wait_for(run, fd, call, op).await?,
            (None, queue) => self.trim(run, queue, fd, op).await?,
        }
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
        }
        let done = match &op.held {
            Some(held) => self.reset_zone(run, held).await,
            None => self.vfs.discard(fd, op.offset, op.length).await,
        };
        self.waited(run, &op, done.map(|()| op.length))
    }

    /// One operation of a synchronous engine.
    async fn wait_for(
        &self,
        run: &mut Running,
        fd: Fd,
        call: IoCall,
        op: Operation,
    ) -> FsResult<()> {
        let done = match call {
            IoCall::Write(offset, data) => self.vfs.pwrite(fd, offset, &data).await,
            IoCall::Read(offset, length) => {
                let data = self.vfs.pread(fd, offset, length).await;
                data.map(|data| data.iter().map(|s| u64::from(s.len())).sum())
            }
            IoCall::Sync(_) => return Err(FsError::Invalid("fio: a sync among operations")),
        };
        self.waited(run, &op, done)
    }

    /// Counts an operation that was waited for.
    fn waited(&self, run: &mut Running, op: &Operation, done: FsResult<u64>) -> FsResult<()> {
        run.issued[op.direction] += op.length;
        let depth = &mut run.result.depth;
        depth.level(1, 1);
        depth.submitted(1);
        depth.completed(1);
        run.ended(self.now(), op, done)?;
        run.sample(self.now());
        Ok(())
    }

    /// Waits until the bytes issued so far would have taken this long at the rate asked for.
    async fn keep_rate(&self, run: &Running, d: usize) {
        let per_second = match (self.job.rate[d], self.job.rate_iops[d]) {
            (0, 0) => return,
            (0, iops) => iops.saturating_mul(self.job.min_bs[d]),
            (rate, _) => rate,
        };
        // fio reckons in whole microseconds.
        let micros = u128::from(run.issued[d]) * 1_000_000 / u128::from(per_second);
        let micros = u64::try_from(micros).unwrap_or(u64::MAX / 2000).min(u64::MAX / 2000);
        let due = run.epoch + Span::micros(micros);
        if due > self.now() {
            self.vfs.rt().sleep_until(due).await;
        }
    }

    fn contents(&self, write: u64, offset: u64, length: u64) -> Slice {
        let len = length as u32;
        let job = &self.job;
        let own = u64::from(job.thread_number) << 40;
        if job.zero_buffers {
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

/// Samplers of bandwidth and rate, by direction.
fn samplers(job: &Job, now: Time) -> [[Sampler; 2]; 3] {
    let periods = [job.bw_period_ns, job.iops_period_ns];
    std::array::from_fn(|_| periods.map(|p| Sampler::new(p, now.0)))
}

/// A read or write of a job.
pub(super) struct Operation {
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
}

/// A zone that an operation is on its way to.
pub(super) struct Held {
    file: usize,
    /// Its number.
    zone: usize,
    /// It is to be reset first; of a trim that is all.
    resets: bool,
}

/// What a job has done so far.
pub(super) struct Running {
    layout: Layout,
    fds: Vec<Option<Fd>>,
    /// Of a job on zones: its part of each file's.
    places: Vec<zoned::Place>,
    control: Control,
    epoch: Time,
    round: Time,
    writes: u64,
    /// Operations issued.
    total: u64,
    think_from: u64,
    /// Bytes issued, by direction.
    pub(super) issued: [u64; 3],
    /// Nothing counts yet (`ramp_time`).
    is_ramping: bool,
    /// A round has ended, and no other has begun.
    is_between: bool,
    /// When the last think time ended.
    think_since: Time,
    /// Bandwidth and rate, by direction.
    samplers: [[Sampler; 2]; 3],
    pub(super) result: JobResult,
}

impl Running {
    /// Lets the counting begin, once the ramp is over.
    fn end_ramp(&mut self, task: &Task) {
        let span = Span::micros(task.job.ramp_time);
        if self.is_ramping && task.now().since(self.epoch) >= span {
            self.is_ramping = false;
            self.reset(task);
        }
    }

    /// Forgets what was counted; time begins now.
    fn reset(&mut self, task: &Task) {
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
        self.samplers = samplers(&task.job, now);
    }

    /// Counts an operation that has ended.
    ///
    /// Errors: its own, unless the job goes on after errors.
    pub(super) fn ended(&mut self, now: Time, op: &Operation, done: FsResult<u64>) -> FsResult<()> {
        if let Some(held) = &op.held {
            let end = (op.direction == Direction::Write.index()).then(|| op.offset + op.length);
            self.places[held.file].ended(held.zone, end);
            self.control.zone_freed();
        }
        let result = &mut self.result;
        let done = match done {
            Ok(done) => done,
            Err(e) if result.job.continue_on_error[usize::from(op.direction > 0)] => {
                result.errors += 1;
                if result.error == 0 {
                    result.error = errno(&e);
                }
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
        if result.job.max_latency > 0 && latency > result.job.max_latency.saturating_mul(1000) {
            result.error = ETIMEDOUT;
        }
        Ok(())
    }

    /// Takes the samples of bandwidth and rate that are due.
    pub(super) fn sample(&mut self, now: Time) {
        for ([bw, iops], d) in self.samplers.iter_mut().zip(&self.result.directions) {
            bw.take(now.0, d.bytes, 1024);
            iops.take(now.0, d.ios, 1);
        }
    }
}
