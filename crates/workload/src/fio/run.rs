//! Running jobs on a mounted file system, in virtual time.

use std::fmt;

use wp_base::event::ZoneOp;
use wp_base::rng::mix64;
use wp_base::{FsError, FsResult, SECTOR_BYTES, Span, Time};
use wp_medium::Slice;
use wp_vfs::{Fd, IoCall, OpenFlags, Reserve, SyncKind, Vfs};

use super::control::Control;
use super::job::{Engine, Job, JobFile, SyncWhat, Verify};
use super::lay_out::lay_out;
use super::logs::{self, Logged};
use super::queue::Queue;
use super::result::{DepthCounts, DirectionResult, JobResult, errno};
use super::samples::Sampler;
use super::sequence::{Action, Direction, Sequence};
use super::setup::Layout;
use super::stats::Stat;
use super::verify::{Contents, EILSEQ, Expected, History, Piece};
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

/// Runs all jobs: lays their files out, then starts them together, group by group where `stonewall`
/// says so.
///
/// Waits for all I/O. An error of the file system ends its job only. Errors: of a job whose sizes
/// and files do not fit.
pub async fn run(
    vfs: &Vfs,
    file: &JobFile,
    options: RunOptions,
) -> Result<Vec<JobResult>, RunError> {
    let jobs = with_zones(vfs, &file.jobs).await?;
    let contents = Contents::new(&jobs);
    let mut layouts = Vec::new();
    for job in &jobs {
        let layout = if job.create_serialize { Some(lay_out(vfs, job).await) } else { None };
        if let Some(Ok(layout)) = &layout {
            contents.laid_out(layout);
        }
        layouts.push(match layout {
            // The job fails, as in fio, when it is its turn.
            Some(Err(RunError::Fs(e))) => Some(Err(e)),
            other => other.transpose()?.map(Ok),
        });
    }
    let mut devices = zoned::Devices::new();
    let mut places = Vec::new();
    for (job, layout) in jobs.iter().zip(&mut layouts) {
        places.push(match layout {
            Some(Ok(layout)) => zoned::places(vfs, job, layout, &mut devices)
                .await
                .map_err(|e| RunError::Job(format!("job `{}`: {e}", job.name)))?,
            Some(Err(_)) | None => Vec::new(),
        });
    }
    let mut results = Vec::new();
    let mut tasks = Vec::new();
    let control = Control::new(vfs.rt(), &jobs);
    let planned = jobs.iter().zip(layouts).zip(places);
    for (n, ((job, layout), places)) in planned.enumerate() {
        if job.stonewall {
            for task in tasks.drain(..) {
                results.push(task.await?);
            }
        }
        let behind = jobs[n + 1..].iter().find(|j| j.stonewall);
        let last = behind.map_or(u32::MAX, |j| j.thread_number - 1);
        let control = control.clone();
        let (vfs, job, contents) = (vfs.clone(), job.clone(), contents.clone());
        let rt = vfs.rt().clone();
        let task = Task { vfs, job: job.clone(), options, control, contents, last };
        let name = format!("fio/{}", job.thread_number);
        tasks.push(rt.spawn(name, task.run(layout, places)));
    }
    for task in tasks {
        results.push(task.await?);
    }
    Ok(results)
}

/// The jobs, numbers of zones replaced by bytes of their devices' zones.
async fn with_zones(vfs: &Vfs, jobs: &[Job]) -> Result<Vec<Job>, RunError> {
    let mut all = Vec::new();
    for job in jobs {
        let is_open = job.zone_size == 0 && job.in_zones.iter().any(Option::is_some);
        let (true, Some(path)) = (is_open, job.paths().first().cloned()) else {
            all.push(job.clone());
            continue;
        };
        let fd = vfs.open(&path, OpenFlags::READ, 0).await?;
        let zones = vfs.report_zones(fd).await?;
        vfs.close(fd).await?;
        let Some(zone) = zones.first() else {
            let what = format!("job `{}`: sizes in zones, and /{path} has none", job.name);
            return Err(RunError::Job(what));
        };
        all.push(job.clone().with_zones_of(zone.sectors * SECTOR_BYTES));
    }
    Ok(all)
}

type Outcome = Result<JobResult, RunError>;

struct Task {
    vfs: Vfs,
    job: Job,
    options: RunOptions,
    control: Control,
    contents: Contents,
    /// Number of the last job before the next stonewall.
    last: u32,
}

impl Task {
    fn now(&self) -> Time {
        self.vfs.rt().now()
    }

    async fn run(self, layout: Option<FsResult<Layout>>, places: Vec<zoned::Place>) -> Outcome {
        self.control.begin(&self.job).await;
        let outcome = match self.perform(layout, places).await {
            Err(RunError::Fs(e)) => {
                let mut result = JobResult::new(&self.job);
                result.end_with(e);
                Ok(result)
            }
            other => other,
        };
        let failed = outcome.as_ref().map_or(true, |r| r.error != 0);
        self.control.end(&self.job, failed, self.last);
        outcome
    }

    async fn perform(
        &self,
        layout: Option<FsResult<Layout>>,
        places: Vec<zoned::Place>,
    ) -> Outcome {
        let layout = match layout {
            Some(l) => l?,
            None => {
                let layout = lay_out(&self.vfs, &self.job).await?;
                self.contents.laid_out(&layout);
                layout
            }
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
            history: History::new(&self.job),
            after_write: true,
            result: JobResult::new(&self.job),
        };
        let mut queue = match self.job.engine.is_async() {
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
                    let placed = self.place(&mut sequence, &mut run, &mut queue, ask).await;
                    if let Err(e) = placed {
                        run.result.end_with(e);
                        break;
                    }
                }
                action => {
                    if let Err(e) = self.act(action, &mut run, &mut queue).await {
                        run.result.end_with(e);
                        break;
                    }
                    if let Some(queue) = queue.as_mut().filter(|_| action.is_of_a_file()) {
                        let was_sync = queue.take_last_ended();
                        let is_sync = matches!(action, Action::Sync { .. });
                        // A sync in flight keeps no other back.
                        if let Some(was_sync) = was_sync.or(is_sync.then_some(false)) {
                            sequence.ended(was_sync);
                        }
                    }
                }
            }
        }
        if run.result.failed.is_some()
            && let Some(queue) = &mut queue
        {
            // What is in flight ends, whatever becomes of it.
            while queue.depth() > 0 {
                let before = queue.depth();
                if queue.drain(&mut run).await.is_err() && queue.depth() == before {
                    break;
                }
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
            _ if run.layout.files[i].is_device && (self.job.trims || self.job.writes) => {
                OpenFlags::WRITE
            }
            _ if self.job.engine.lays_out() => OpenFlags::CREATE,
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
        if self.job.engine == Engine::Null && !matches!(action, Action::Io { .. }) {
            self.null_act(action, run);
            return Ok(());
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
                run.note(self.now(), i, "open");
                if self.job.invalidate && !self.vfs.fadvise_dontneed(fd).await? {
                    run.result.stays_cached = true;
                }
                run.fds[i] = Some(fd);
            }
            Action::Close { file } => {
                let fd = run.fds[file].take().ok_or(FsError::BadFile)?;
                run.note(self.now(), file, "close");
                self.vfs.close(fd).await?;
            }
            Action::Io { file, direction, offset, length } => {
                self.io(run, queue, file, direction, (offset, length)).await?;
            }
            Action::Sync { file, what } => {
                let fd = run.fds[file].ok_or(FsError::BadFile)?;
                run.note(self.now(), file, what.word());
                match queue {
                    Some(queue) => queue.sync(run, fd, what).await?,
                    None => self.sync(run, fd, what).await?,
                }
                run.result.syncs += 1;
                run.result.full_syncs += u64::from(what == SyncWhat::All);
            }
            Action::RoundEnd { sync } => {
                for i in 0..if sync { run.fds.len() } else { 0 } {
                    let fd = match run.fds[i] {
                        Some(fd) => fd,
                        None => {
                            run.note(self.now(), i, "open");
                            self.open(run, i).await?
                        }
                    };
                    run.note(self.now(), i, "sync");
                    self.vfs.fsync(fd).await?;
                    if run.fds[i].is_none() {
                        run.note(self.now(), i, "close");
                        self.vfs.close(fd).await?;
                    }
                }
                run.end_round(self.now());
                run.places.iter_mut().for_each(zoned::Place::restart);
                self.verify_all(run, queue).await?;
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
        if !self.has_turn(run, queue, direction).await? {
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

    /// An action of engine `null`, which has no files.
    fn null_act(&self, action: Action, run: &mut Running) {
        match action {
            Action::Open(file) => run.note(self.now(), file, "open"),
            Action::Close { file } => run.note(self.now(), file, "close"),
            Action::Sync { file, what } => {
                run.note(self.now(), file, what.word());
                run.result.sync.add(0);
                run.result.depth.level(1, 1);
                run.result.syncs += 1;
                run.result.full_syncs += u64::from(what == SyncWhat::All);
            }
            Action::RoundEnd { .. } => run.end_round(self.now()),
            _ => {}
        }
    }

    /// Reads back what the job wrote, and compares it: after a sync, so that it comes from the
    /// drive.
    async fn verify_all(&self, run: &mut Running, queue: &mut Option<Queue>) -> FsResult<()> {
        if !run.history.is_on() {
            return Ok(());
        }
        for fd in run.fds.iter().flatten() {
            self.vfs.fsync(*fd).await?;
            self.vfs.fadvise_dontneed(*fd).await?;
        }
        let begun = self.now();
        let mut opened = Vec::new();
        while !self.is_over(run) && run.result.error == 0 {
            let Some(piece) = run.history.next() else { break };
            if run.fds[piece.file].is_none() {
                run.fds[piece.file] = Some(self.open(run, piece.file).await?);
                opened.push(piece.file);
            }
            self.read_back(run, queue, piece).await?;
        }
        if let Some(queue) = queue {
            queue.drain(run).await?;
        }
        for file in opened {
            if let Some(fd) = run.fds[file].take() {
                self.vfs.close(fd).await?;
            }
        }
        let span = self.now().since(begun).0;
        run.result.directions[0].runtime_ns += span;
        run.round = self.now();
        Ok(())
    }

    /// Reads one block back.
    async fn read_back(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        piece: Piece,
    ) -> FsResult<()> {
        let fd = run.fds[piece.file].ok_or(FsError::BadFile)?;
        let length = u64::from(piece.data.len());
        let expected = match self.job.verify {
            Some(Verify::Contents) => Expected::Bytes(vec![piece.data]),
            _ => Expected::Anything,
        };
        let (file, offset, start) = (piece.file, piece.offset, self.now());
        let op = Operation {
            file,
            direction: 0,
            offset,
            length,
            start,
            issued: None,
            held: None,
            expected,
        };
        let call = IoCall::Read(offset, length);
        match queue {
            Some(queue) => queue.io(run, fd, call, op).await,
            None => self.wait_for(run, fd, call, op).await,
        }
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
        if !self.has_turn(run, queue, direction).await? {
            return Ok(());
        }
        self.issue(run, queue, file, direction, (offset, length), None).await
    }

    /// Waits: until the next operation may begin. False: there is no time left for it.
    async fn has_turn(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        direction: Direction,
    ) -> FsResult<bool> {
        while let Some(span) = self.control.held_back(&self.job) {
            if self.is_over(run) {
                return Ok(false);
            }
            self.vfs.rt().sleep(span).await;
        }
        while let Some(piece) = run.history.next_due(run.after_write) {
            // The block may be in flight, and fio reads none that is.
            if let Some(queue) = queue {
                queue.drain(run).await?;
            }
            let file = piece.file;
            let is_open = run.fds[file].is_some();
            if !is_open {
                run.fds[file] = Some(self.open(run, file).await?);
            }
            self.read_back(run, queue, piece).await?;
            if !is_open {
                if let Some(queue) = queue {
                    queue.drain(run).await?;
                }
                if let Some(fd) = run.fds[file].take() {
                    self.vfs.close(fd).await?;
                }
            }
            run.after_write = false;
        }
        run.after_write = direction == Direction::Write;
        self.keep_rate(run, direction.index()).await;
        Ok(true)
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
        let at_ns = self.now().since(run.epoch).0;
        if let Some(log) = &mut run.result.iolog {
            log.operation(at_ns, file, direction, (offset, length));
        }
        if self.job.engine == Engine::Null {
            return self.nothing(run, (file, d), (offset, length)).await;
        }
        let fd = run.fds[file].ok_or(FsError::BadFile)?;
        if self.job.engine.lays_out() {
            let ((issued, held), expected) = ((None, None), Expected::Anything);
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
                self.contents.wrote(&run.layout.files[file].path, offset, &data);
                run.history.wrote(Piece { file, offset, data: data.clone() });
                Some(IoCall::Write(offset, vec![data]))
            }
            Direction::Read => {
                let path = &run.layout.files[file].path;
                expected = self.contents.expected(&self.job, path, offset, length);
                Some(IoCall::Read(offset, length))
            }
            Direction::Trim => None,
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
    async fn nothing(
        &self,
        run: &mut Running,
        (file, direction): (usize, usize),
        (offset, length): (u64, u64),
    ) -> FsResult<()> {
        const TAKES: Span = Span::micros(1);
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
        self.think(run, &mut None).await
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
        }
        let done = match &op.held {
            Some(held) => self.reset_zone(run, held).await,
            None => self.vfs.discard(fd, op.offset, op.length).await,
        };
        self.waited(run, &op, done.map(|()| op.length), &[])
    }

    /// One operation of an engine that changes the layout of files.
    async fn change_layout(&self, run: &mut Running, fd: Fd, op: &Operation) -> FsResult<()> {
        let done = if self.job.engine == Engine::Ftruncate {
            self.vfs.ftruncate(fd, op.offset).await
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
    async fn wait_for(
        &self,
        run: &mut Running,
        fd: Fd,
        call: IoCall,
        op: Operation,
    ) -> FsResult<()> {
        let mut read = Vec::new();
        let done = match call {
            IoCall::Write(offset, data) => self.vfs.pwrite(fd, offset, &data).await,
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
        if job.verifies() {
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

/// Does a job go on after an error of this direction?
fn goes_on_after(job: &Job, direction: usize, e: &FsError) -> bool {
    let d = usize::from(direction > 0);
    job.continue_on_error[d] || job.ignored_errors[d].contains(&errno(e))
}

/// Samplers of bandwidth and rate, by direction.
fn samplers(job: &Job, now: Time) -> [[Sampler; 2]; 3] {
    let periods = [job.bw_period_ns, job.iops_period_ns];
    std::array::from_fn(|_| periods.map(|p| Sampler::new(p, now.0)))
}

/// A read or write of a job.
pub(super) struct Operation {
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
    /// What was written and not yet read back.
    history: History,
    /// The last operation was no read.
    after_write: bool,
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

    /// What happens to a file, for the log.
    fn note(&mut self, now: Time, file: usize, word: &str) {
        let at_ns = now.since(self.epoch).0;
        if let Some(log) = &mut self.result.iolog {
            log.event(at_ns, file, word);
        }
    }

    /// A round has ended: its time counts for what the job does.
    fn end_round(&mut self, now: Time) {
        self.is_between = true;
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
    pub(super) fn ended(
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
        let done = match done {
            Ok(done) => done,
            Err(e) if goes_on_after(&result.job, op.direction, &e) => {
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
        if !op.expected.is(read) {
            let goes_on =
                result.job.continue_on_error[2] || result.job.ignored_errors[2].contains(&EILSEQ);
            result.errors += u64::from(goes_on);
            if result.error == 0 {
                result.error = EILSEQ;
            }
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
