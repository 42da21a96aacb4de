//! Running a personality on a mounted file system, in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::rng::{Rng, mix64};
use wp_base::{FsError, FsResult, Span, Time};
use wp_medium::Slice;
use wp_rt::TaskId;
use wp_vfs::{Fd, OpenFlags, Vfs};

use super::fileset::{Files, Want};
use super::personality::{Flowop, Personality};
use crate::fio::Stat;

/// Bytes written at a time when files are made at the start.
const PREALLOC_CHUNK: u64 = 1 << 20;

/// When threads stop, at the end of the flowop or list that they are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunLength {
    /// `run SECONDS`, in nanoseconds.
    Time(Span),
    /// After so many times through the list, each thread.
    Loops(u64),
}

/// What one kind of flowop did.
#[derive(Clone, Debug, Default)]
pub struct OpCount {
    /// How many counted.
    pub count: u64,
    /// Latencies.
    pub latency: Stat,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct BenchResult {
    /// By name of the flowop, all threads.
    pub ops: BTreeMap<&'static str, OpCount>,
    /// Whole lists gone through.
    pub loops: u64,
    /// From the start of the threads until the last has ended, nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes appended.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
    /// Files that exist at the end.
    pub files: u64,
    /// By thread, the first first.
    pub threads: Vec<ThreadResult>,
}

/// What one thread did.
#[derive(Clone, Debug, Default)]
pub struct ThreadResult {
    /// By name of the flowop.
    pub ops: BTreeMap<&'static str, u64>,
    /// Whole lists gone through.
    pub loops: u64,
}

impl ThreadResult {
    /// Flowops that counted.
    pub fn operations(&self) -> u64 {
        self.ops.values().sum()
    }
}

/// Who is told of what while a personality runs.
#[derive(Clone)]
pub struct Watch {
    /// How often fsync has returned, each time it has.
    pub at_fsync: Rc<dyn Fn(u64)>,
    /// A thread's number, from 0, and its task, before it runs.
    pub on_thread: Rc<dyn Fn(u32, TaskId)>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { at_fsync: Rc::new(|_| {}), on_thread: Rc::new(|_, _| {}) }
    }
}

impl BenchResult {
    /// Flowops that counted: the unit of filebench's summary.
    pub fn operations(&self) -> u64 {
        self.ops.values().map(|o| o.count).sum()
    }

    /// Operations a second. 0 for a run of no time.
    pub fn ops_per_second(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        self.operations() as f64 * 1e9 / self.elapsed_ns as f64
    }
}

struct Shared {
    files: RefCell<Files>,
    result: RefCell<BenchResult>,
    /// Writes so far: each has contents of its own.
    writes: RefCell<u64>,
    syncs: Cell<u64>,
    watch: Watch,
    seed: u64,
}

/// Makes the fileset, syncs, and runs the threads. The same seed makes the same files and lengths.
///
/// Errors: what the file system answers, and `Invalid` where a flowop finds no file.
pub async fn run(
    vfs: &Vfs,
    personality: &Personality,
    length: RunLength,
    seed: u64,
) -> FsResult<BenchResult> {
    run_watched(vfs, personality, length, seed, Watch::default()).await
}

/// As [`run()`], watched.
///
/// Errors: as there.
pub async fn run_watched(
    vfs: &Vfs,
    personality: &Personality,
    length: RunLength,
    seed: u64,
    watch: Watch,
) -> FsResult<BenchResult> {
    let (files, made) = Files::new(&personality.fileset, &mut Rng::stream(seed, "filebench files"));
    let shared = Rc::new(Shared {
        files: RefCell::new(files),
        result: RefCell::default(),
        writes: RefCell::new(0),
        syncs: Cell::new(0),
        watch,
        seed,
    });
    shared.result.borrow_mut().threads =
        vec![ThreadResult::default(); personality.threads as usize];
    lay_out(vfs, &shared, &made).await?;
    let start = vfs.rt().now();
    let tasks: Vec<_> = (0..personality.threads)
        .map(|n| {
            let thread = Thread {
                number: n,
                vfs: vfs.clone(),
                shared: shared.clone(),
                rng: Rng::stream(seed ^ u64::from(n), "filebench thread"),
                fds: BTreeMap::new(),
                think: Span(personality.flowop_ns),
            };
            let flowops = personality.flowops.clone();
            let name = format!("filebench/{}", n + 1);
            let task = vfs.rt().spawn(name, thread.run(flowops, length, start));
            (shared.watch.on_thread)(n, task.id());
            task
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let mut result = shared.result.take();
    result.elapsed_ns = vfs.rt().now().since(start).0;
    result.files = shared.files.borrow().existing() as u64;
    Ok(result)
}

async fn lay_out(vfs: &Vfs, shared: &Shared, made: &[(usize, u64)]) -> FsResult<()> {
    let directories = shared.files.borrow().directories();
    for dir in directories {
        match vfs.mkdir(&dir, 0o755).await {
            Ok(()) | Err(FsError::Exists) => {}
            Err(e) => return Err(e),
        }
    }
    for (file, bytes) in made {
        let path = shared.files.borrow().path(*file);
        let fd = vfs.open(&path, OpenFlags::CREATE, 0o666).await?;
        let mut at = 0;
        while at < *bytes {
            let n = (*bytes - at).min(PREALLOC_CHUNK);
            at += vfs.pwrite(fd, at, &[shared.contents(n)]).await?;
        }
        vfs.close(fd).await?;
        shared.files.borrow_mut().made(*file);
    }
    vfs.sync().await
}

impl Shared {
    /// Bytes that no other write has.
    fn contents(&self, bytes: u64) -> Slice {
        let mut writes = self.writes.borrow_mut();
        *writes += 1;
        Slice::pattern(mix64(self.seed ^ *writes << 20), 0, bytes as u32)
    }
}

struct Thread {
    number: u32,
    vfs: Vfs,
    shared: Rc<Shared>,
    rng: Rng,
    /// Descriptor of WML -> (file, ours).
    fds: BTreeMap<u32, (usize, Fd)>,
    think: Span,
}

impl Thread {
    async fn run(mut self, flowops: Vec<Flowop>, length: RunLength, start: Time) -> FsResult<()> {
        let mut loops = 0;
        'run: loop {
            for op in &flowops {
                let is_over = match length {
                    RunLength::Time(span) => self.vfs.rt().now() >= start + span,
                    RunLength::Loops(n) => loops >= n,
                };
                if is_over {
                    break 'run;
                }
                if self.think > Span::ZERO {
                    self.vfs.rt().sleep(self.think).await;
                }
                let from = self.vfs.rt().now();
                let counts = self.act(*op).await?;
                let took = self.vfs.rt().now().since(from).0;
                if counts {
                    let mut result = self.shared.result.borrow_mut();
                    let entry = result.ops.entry(op.name()).or_default();
                    entry.count += 1;
                    entry.latency.add(took);
                    let ours = &mut result.threads[self.number as usize];
                    *ours.ops.entry(op.name()).or_default() += 1;
                }
            }
            loops += 1;
            let mut result = self.shared.result.borrow_mut();
            result.loops += 1;
            result.threads[self.number as usize].loops += 1;
        }
        for (_, (file, fd)) in std::mem::take(&mut self.fds) {
            self.vfs.close(fd).await?;
            self.shared.files.borrow_mut().closed(file);
        }
        Ok(())
    }

    fn fd(&self, fd: u32) -> FsResult<Fd> {
        self.fds.get(&fd).map(|(_, fd)| *fd).ok_or(FsError::BadFile)
    }

    fn pick(&self, want: Want) -> FsResult<usize> {
        let found = self.shared.files.borrow_mut().pick(want);
        found.ok_or(FsError::Invalid("filebench: no file is left that a flowop could take"))
    }

    /// Does one flowop. Does it count?
    async fn act(&mut self, op: Flowop) -> FsResult<bool> {
        match op {
            Flowop::Delete => return self.delete().await,
            Flowop::Create { fd } => self.open(fd, Want::Missing).await?,
            Flowop::Open { fd } => self.open(fd, Want::Existing).await?,
            Flowop::Close { fd } => {
                let (file, fd) = self.fds.remove(&fd).ok_or(FsError::BadFile)?;
                self.vfs.close(fd).await?;
                self.shared.files.borrow_mut().closed(file);
            }
            Flowop::ReadWhole { fd, iosize } => {
                let fd = self.fd(fd)?;
                let mut at = 0;
                loop {
                    let data = self.vfs.pread(fd, at, iosize).await?;
                    let n: u64 = data.iter().map(|s| u64::from(s.len())).sum();
                    if n == 0 {
                        break;
                    }
                    at += n;
                }
                self.shared.result.borrow_mut().read += at;
            }
            Flowop::AppendRandom { fd, iosize } => {
                let fd = self.fd(fd)?;
                let bytes = self.rng.below(iosize.max(1));
                if bytes > 0 {
                    // Its end is asked for, as by lseek.
                    let end = self.vfs.fstat(fd).await?.size;
                    let data = self.shared.contents(bytes);
                    self.vfs.pwrite(fd, end, &[data]).await?;
                    self.shared.result.borrow_mut().written += bytes;
                }
            }
            Flowop::WriteWhole { fd, iosize } => {
                let (file, fd) = *self.fds.get(&fd).ok_or(FsError::BadFile)?;
                let size = self.shared.files.borrow().size(file);
                let mut at = 0;
                while at < size {
                    let data = self.shared.contents((size - at).min(iosize.max(1)));
                    at += self.vfs.pwrite(fd, at, &[data]).await?;
                }
                self.shared.result.borrow_mut().written += size;
            }
            Flowop::Stat => {
                let file = self.pick(Want::Existing)?;
                let path = self.shared.files.borrow().path(file);
                let found = self.vfs.stat(&path).await;
                self.shared.files.borrow_mut().release(file);
                found?;
            }
            Flowop::Fsync { fd } => {
                let fd = self.fd(fd)?;
                self.vfs.fsync(fd).await?;
                self.shared.syncs.set(self.shared.syncs.get() + 1);
                (self.shared.watch.at_fsync)(self.shared.syncs.get());
            }
        }
        Ok(true)
    }

    async fn open(&mut self, fd: u32, want: Want) -> FsResult<()> {
        let file = self.pick(want)?;
        let path = self.shared.files.borrow().path(file);
        let flags = match want {
            Want::Missing => OpenFlags::CREATE,
            Want::Existing => OpenFlags::WRITE,
        };
        let ours = self.vfs.open(&path, flags, 0o666).await?;
        {
            let mut files = self.shared.files.borrow_mut();
            files.made(file);
            files.opened(file);
            files.release(file);
        }
        // A list that opens what it has not closed loses the first.
        if let Some((file, old)) = self.fds.insert(fd, (file, ours)) {
            self.vfs.close(old).await?;
            self.shared.files.borrow_mut().closed(file);
        }
        Ok(())
    }

    async fn delete(&mut self) -> FsResult<bool> {
        let file = self.pick(Want::Existing)?;
        if self.shared.files.borrow().is_open(file) {
            self.shared.files.borrow_mut().release(file);
            return Ok(false);
        }
        let path = self.shared.files.borrow().path(file);
        self.vfs.unlink(&path).await?;
        let mut files = self.shared.files.borrow_mut();
        files.deleted(file);
        files.release(file);
        Ok(true)
    }
}
