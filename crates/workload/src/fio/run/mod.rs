//! Running jobs on a mounted file system, in virtual time.

mod depth;
mod issue;
mod least;
mod read_back;
mod running;

use std::collections::BTreeMap;
use std::fmt;

use wp_base::event::ZoneOp;
use wp_base::{FsError, FsResult, SECTOR_BYTES, Span, Time};
use wp_vfs::{Advice, Fd, OpenFlags, SyncKind, Vfs};

use super::control::Control;
use super::job::{Engine, Hint, Job, JobFile, SyncWhat};
use super::lay_out::lay_out;
use super::queue::Queue;
use super::replay::Step;
use super::result::JobResult;
use super::sequence::{Action, Direction, Sequence};
use super::setup::Layout;
use super::verify::{Contents, History};
use super::zoned::{self, Chosen};
use depth::{Next, Search};
use issue::Pauses;
use least::LeastRates;
use running::{Held, samplers};
pub(super) use running::{Operation, Running};

/// Linux: `EIO`, what fio ends a job with that is slower than it may be.
const EIO: i32 = 5;

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
    // Jobs share the zones of a file, and it is as long as the longest of them makes it.
    let mut lengths = BTreeMap::new();
    for file in layouts.iter().flatten().flatten().flat_map(|l| &l.files) {
        let longest = lengths.entry(file.path.clone()).or_insert(0);
        *longest = file.length.max(*longest);
    }
    let mut places = Vec::new();
    for (job, layout) in jobs.iter().zip(&mut layouts) {
        places.push(match layout {
            Some(Ok(layout)) => zoned::places(vfs, job, layout, (&mut devices, &lengths))
                .await
                .map_err(|e| RunError::Job(format!("job `{}`: {e}", job.name)))?,
            Some(Err(_)) | None => Vec::new(),
        });
    }
    let mut results = Vec::new();
    let mut tasks = Vec::new();
    let control = Control::new(vfs.rt(), &jobs);
    let watch = jobs.iter().any(|j| j.steady_state.is_some()).then(|| {
        let rt = vfs.rt().clone();
        vfs.rt().spawn("fio/steadystate", control.clone().watch(rt))
    });
    let steady = control.steady().clone();
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
    if let Some(watch) = watch {
        watch.await;
    }
    // Of a group once all of it has ended.
    results.iter_mut().for_each(|r| r.steadiness = steady.of(&r.job));
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
        self.control.steady().end(&self.job);
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
        let mut sequence = match self.job.replayed {
            Some(_) => None,
            None => Some(
                Sequence::new(&self.job, &layout, self.options.chance, self.options.bugs)
                    .map_err(|e| RunError::Job(format!("job `{}`: {e}", self.job.name)))?,
            ),
        };
        let delay = self.job.delay();
        if delay > 0 {
            self.vfs.rt().sleep(Span::micros(delay)).await;
        }
        if self.job.pre_read {
            self.read_before(&layout).await?;
        }
        let mut run = Running {
            is_ramping: self.job.ramp_time > 0,
            is_between: false,
            think_since: self.now(),
            fds: vec![None; layout.files.len()],
            is_open: vec![false; layout.files.len()],
            places,
            control: self.control.clone(),
            layout,
            begun: self.now(),
            epoch: self.now(),
            round: self.now(),
            writes: 0,
            total: 0,
            think_from: 0,
            issued: [0; 3],
            samplers: samplers(&self.job, self.now()),
            history: History::new(&self.job),
            after_write: true,
            search: self.job.latency_target.map(|t| Search::new(t, self.job.iodepth, self.now())),
            least: LeastRates::default(),
            pauses: Pauses::new(&self.job, self.options.chance),
            last_offset: 0,
            is_full: false,
            last_written: None,
            result: JobResult::new(&self.job),
        };
        self.control.steady().begin(&self.job, self.now());
        let mut queue = match self.job.engine.is_async() {
            true => Some(Queue::new(&self.vfs, &self.job).await?),
            false => None,
        };
        let done = match &mut sequence {
            Some(sequence) => self.follow(sequence, &mut run, &mut queue).await,
            None => self.replay(&mut run, &mut queue).await,
        };
        if let Err(e) = done {
            run.result.end_with(e);
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

    /// Does what the sequence has, to its end.
    async fn follow(
        &self,
        sequence: &mut Sequence,
        run: &mut Running,
        queue: &mut Option<Queue>,
    ) -> FsResult<()> {
        loop {
            run.end_ramp(self);
            if self.is_over(run) || run.has_failed() {
                sequence.terminate();
            }
            if sequence.is_at_operation() && self.verify_due(run, queue, sequence).await? {
                continue;
            }
            let nothing = run.places.first().is_some_and(zoned::Place::has_nothing);
            sequence.set_has_nothing(nothing);
            let action = sequence.next_action();
            if let Some(offset) = sequence.take_tried() {
                run.last_offset = offset;
                queue.iter_mut().for_each(|q| q.passed_by(offset));
            }
            match action {
                Action::Done => return Ok(()),
                Action::Verify => self.verify_all(run, queue, sequence).await?,
                Action::Place { file, direction, offset, length } => {
                    let ask = (file, direction, (offset, length));
                    self.place(sequence, run, queue, ask).await?;
                }
                action => {
                    self.act(action, run, queue).await?;
                    if let Some(queue) = queue.as_mut().filter(|_| action.is_of_a_file()) {
                        let was_sync = queue.take_last_ended();
                        let is_sync = matches!(action, Action::Sync { .. });
                        // A sync in flight keeps no other back.
                        if let Some(was_sync) = was_sync.or(is_sync.then_some(false)) {
                            sequence.ended(was_sync);
                        }
                    }
                    if self.look(run, queue).await? {
                        sequence.terminate();
                    }
                }
            }
        }
    }

    /// Does what the job's log has.
    async fn replay(&self, run: &mut Running, queue: &mut Option<Queue>) -> FsResult<()> {
        let Some(log) = self.job.replayed.clone() else { return Ok(()) };
        let mut last = self.now();
        for line in &log.lines {
            run.end_ramp(self);
            let is_due = self.sleep_until(run, line.due.instant(run.begun, last)).await;
            if !is_due || self.is_over(run) || run.has_failed() {
                break;
            }
            last = self.now();
            let file = line.file;
            let action = match line.step {
                Step::Open => Action::Open(file),
                Step::Close => Action::Close { file },
                Step::Io(direction, offset, length) => {
                    Action::Io { file, direction, offset, length }
                }
                Step::Sync(what) => Action::Sync { file, what },
            };
            self.act(action, run, queue).await?;
            if self.look(run, queue).await? {
                break;
            }
        }
        self.act(Action::RoundEnd { sync: self.job.end_fsync }, run, queue).await?;
        for i in 0..run.fds.len() {
            if run.is_open[i] {
                self.close(run, i).await?;
            }
        }
        Ok(())
    }

    /// After an operation: are its rates and latencies as they are to be? True: the job is over.
    async fn look(&self, run: &mut Running, queue: &mut Option<Queue>) -> FsResult<bool> {
        if run.is_ramping || run.result.directions.iter().all(|d| d.bytes == 0) {
            return Ok(false);
        }
        let times = (run.round, self.now());
        if let Some(what) = run.least.unmet(&self.job, times, &run.result.directions) {
            (run.result.error, run.result.unmet) = (EIO, Some(what));
            return Ok(true);
        }
        let ios = run.operations();
        let Some(search) = &mut run.search else { return Ok(false) };
        let next = search.look(self.now(), ios);
        run.result.latency_depth = search.depth;
        if next == Next::Go {
            return Ok(false);
        }
        if let Some(queue) = queue {
            queue.drain(run).await?;
        }
        if next == Next::FinalRun {
            run.reset(self);
        }
        let ios = run.operations();
        if let Some(search) = &mut run.search {
            search.begin(self.now(), ios);
        }
        Ok(next == Next::Done)
    }

    /// Is there no time left, or has another job's end ended this one?
    fn is_over(&self, run: &Running) -> bool {
        let limit = Span::micros(self.job.runtime);
        let is_late =
            self.job.runtime > 0 && !run.is_ramping && self.now().since(run.epoch) >= limit;
        is_late || run.is_full || self.control.is_ending(&self.job)
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

    /// Opens a file as a job's loop does: its clean pages are dropped.
    async fn open(&self, run: &mut Running, i: usize) -> FsResult<()> {
        if self.job.engine.is_of_names() {
            self.call_on_name(run, i).await?;
        } else if self.job.engine != Engine::Null {
            let fd = self.descriptor(run, i).await?;
            run.fds[i] = Some(fd);
            self.drop_pages(run, fd).await?;
            self.give_hint(fd).await?;
        }
        run.is_open[i] = true;
        run.note(self.now(), i, "open");
        Ok(())
    }

    /// The one call for each file that counts.
    async fn call_on_name(&self, run: &mut Running, i: usize) -> FsResult<()> {
        let path = &run.layout.files[i].path;
        let start = self.now();
        match self.job.engine {
            Engine::Filestat => {
                self.vfs.stat(path).await?;
            }
            Engine::Filedelete => self.vfs.unlink(path).await?,
            _ => run.fds[i] = Some(self.vfs.open(path, OpenFlags::CREATE, 0o600).await?),
        }
        let took = self.now().since(start).0;
        let direction = usize::from(!self.job.reads);
        run.result.directions[direction].clat.add(took);
        run.log_latency(self.now(), direction, took);
        Ok(())
    }

    async fn close(&self, run: &mut Running, i: usize) -> FsResult<()> {
        run.is_open[i] = false;
        run.note(self.now(), i, "close");
        match run.fds[i].take() {
            Some(fd) => self.vfs.close(fd).await,
            None => Ok(()),
        }
    }

    /// What `invalidate` asks for.
    async fn drop_pages(&self, run: &mut Running, fd: Fd) -> FsResult<()> {
        if self.job.invalidate && !self.vfs.fadvise_dontneed(fd).await? {
            run.result.stays_cached = true;
        }
        Ok(())
    }

    /// What `fadvise_hint` asks for.
    async fn give_hint(&self, fd: Fd) -> FsResult<()> {
        let advice = match self.job.hint {
            Hint::None => return Ok(()),
            Hint::Random => Advice::Random,
            Hint::Sequential => Advice::Sequential,
            Hint::Pattern if self.job.random => Advice::Random,
            Hint::Pattern => Advice::Sequential,
        };
        self.vfs.fadvise(fd, advice).await
    }

    async fn descriptor(&self, run: &Running, i: usize) -> FsResult<Fd> {
        let changes = self.job.trims || self.job.writes;
        let base = if run.layout.files[i].is_device && changes {
            OpenFlags::WRITE
        } else if self.job.writes || self.job.engine.lays_out() {
            OpenFlags::CREATE
        } else {
            OpenFlags::READ
        };
        let flags = OpenFlags {
            direct: self.job.direct.is_on(),
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
                let is_new = std::mem::take(&mut run.is_between);
                if is_new && self.job.unlink_each_loop && self.job.engine != Engine::Null {
                    for file in run.layout.files.iter().filter(|f| !f.is_device) {
                        match self.vfs.unlink(&file.path).await {
                            Ok(()) | Err(FsError::NotFound) => {}
                            Err(e) => return Err(e),
                        }
                    }
                }
                self.open(run, i).await?;
            }
            Action::Close { file } => self.close(run, file).await?,
            Action::Rewind { .. } | Action::Sync { .. } if self.job.engine.does_nothing() => {
                self.null_act(action, run);
            }
            Action::Rewind { file } => {
                let fd = run.fds[file].ok_or(FsError::BadFile)?;
                if !self.job.direct.is_on() {
                    self.drop_pages(run, fd).await?;
                }
            }
            Action::Io { file, direction, offset, length } => {
                self.io(run, queue, file, direction, (offset, length)).await?;
            }
            Action::Sync { file, what } => {
                let fd = run.fds[file].ok_or(FsError::BadFile)?;
                run.note_sync(self.now(), file, what.word(), queue.as_ref());
                // It counts where it is issued, whatever becomes of it.
                run.result.syncs += 1;
                run.result.full_syncs += u64::from(what == SyncWhat::All);
                if self.job.engine.lays_out() {
                    // They make their own call of it, of no bytes or as no write.
                    return Err(FsError::Invalid("the engine has no call for a sync"));
                }
                match queue {
                    Some(queue) => queue.sync(run, fd, what).await?,
                    None => self.sync(run, fd, what).await?,
                }
            }
            Action::RoundEnd { sync } => {
                for i in 0..if sync { run.fds.len() } else { 0 } {
                    self.sync_at_end(run, queue.as_ref(), i).await?;
                }
                run.end_round(self.now());
                run.places.iter_mut().for_each(zoned::Place::restart);
            }
            Action::Place { .. } | Action::Verify | Action::Done => {}
        }
        Ok(())
    }

    /// The sync of `end_fsync` and `fsync_on_close`.
    async fn sync_at_end(
        &self,
        run: &mut Running,
        queue: Option<&Queue>,
        i: usize,
    ) -> FsResult<()> {
        let was_open = run.is_open[i];
        if !was_open {
            self.open(run, i).await?;
        }
        run.note_sync(self.now(), i, "sync", queue);
        match (self.job.engine, run.fds[i]) {
            // The bytes of the operation before are reserved again.
            (engine, _) if engine.does_nothing() || engine == Engine::Falloc => {}
            (Engine::Ftruncate, _) => {
                return Err(FsError::Invalid("engine ftruncate has no fsync"));
            }
            (_, fd) => self.vfs.fsync(fd.ok_or(FsError::BadFile)?).await?,
        }
        if !was_open {
            self.close(run, i).await?;
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
        if !self.has_turn(run, direction).await? {
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
                Chosen::TooLong => {
                    return Err(FsError::Invalid("a write is longer than a zone (bs, zonesize)"));
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
        if let Action::Sync { file, what } = action {
            run.note_sync(self.now(), file, what.word(), None);
            if !self.job.engine.is_of_names() {
                run.result.sync.add(0);
            }
            run.result.depth.level(1, 1);
            run.result.syncs += 1;
            run.result.full_syncs += u64::from(what == SyncWhat::All);
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
        if !self.has_turn(run, direction).await? {
            return Ok(());
        }
        self.issue(run, queue, file, direction, (offset, length), None).await
    }

    /// Waits: until the next operation may begin. False: there is no time left for it.
    async fn has_turn(&self, run: &mut Running, direction: Direction) -> FsResult<bool> {
        while let Some(span) = self.control.held_back(&self.job) {
            if self.is_over(run) {
                return Ok(false);
            }
            self.vfs.rt().sleep(span).await;
        }
        run.after_write = direction == Direction::Write;
        Ok(self.keep_rate(run, direction.index()).await)
    }
}
