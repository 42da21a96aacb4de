//! The mail loop of `wl varmail`, the program that ran on real kernels for the references
//! `linux-6.12-virtual-time` and `jbd2-varmail`: call by call the same, file by file.
//!
//! Unlike filebench's it has no rotor and no shared set: every thread has a hundred names of its
//! own in one directory and takes one at random for each step, whether there is such a file or not.

use std::cell::RefCell;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Span};
use wp_cache::Fut;
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, OptionError, OptionSpec, Options, Vfs, When};

use super::{WorkloadEntry, WorkloadReport, number};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec { key: "threads", when: When::Always, default: "4", help: "threads" },
    OptionSpec { key: "ms", when: When::Always, default: "500", help: "run time, ms" },
    OptionSpec {
        key: "seed",
        when: When::Always,
        default: "7",
        help: "seed of the choice of files",
    },
    OptionSpec { key: "bytes", when: When::Always, default: "16384", help: "bytes of each append" },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "wl-varmail",
    about: "mail loop of the recorded real-kernel runs: delete, create, append, read",
    options: OPTIONS,
    check: |o| Plan::of(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    room: |_, _| Vec::new(),
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

/// Names of each thread.
const NAMES: u64 = 100;

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Threads.
    pub threads: u32,
    /// How long: a thread looks at the clock before each loop.
    pub length: Span,
    /// The program's own seed.
    pub seed: u64,
    /// Bytes of an append, and of a read.
    pub bytes: u32,
}

impl Plan {
    fn of(o: &Options) -> Result<Plan, OptionError> {
        Ok(Plan {
            threads: number(o, OPTIONS, "threads", 1..=64)? as u32,
            length: Span::millis(number(o, OPTIONS, "ms", 1..=1_000_000_000)?),
            seed: number(o, OPTIONS, "seed", 0..=u64::MAX)?,
            bytes: number(o, OPTIONS, "bytes", 1..=1 << 20)? as u32,
        })
    }
}

/// Its outcome.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Loops, of all threads.
    pub loops: u64,
    /// How long each fsync took, nanoseconds, in the order in which they returned.
    pub fsync_ns: Vec<u64>,
}

/// One step of splitmix64 without its state: the program's random numbers.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A thread of the program.
struct Thread {
    vfs: Vfs,
    id: u32,
    bytes: u32,
    random: u64,
    found: Rc<RefCell<Found>>,
    synced: Rc<dyn Fn()>,
}

impl Thread {
    fn name(&mut self) -> String {
        self.random = mix(self.random);
        format!("/m_{}_{}", self.id, self.random % NAMES)
    }

    async fn append(&self, fd: Fd) -> FsResult<()> {
        let block = Slice::pattern(self.id.into(), 0, self.bytes);
        self.vfs.write(fd, &[block]).await?;
        let from = self.vfs.rt().now();
        self.vfs.fsync(fd).await?;
        self.found.borrow_mut().fsync_ns.push(self.vfs.rt().now().since(from).0);
        (self.synced)();
        Ok(())
    }

    async fn once(&mut self) -> FsResult<()> {
        let vfs = self.vfs.clone();
        let appends = OpenFlags { write: true, append: true, ..OpenFlags::READ };
        match vfs.unlink(&self.name()).await {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let fd = vfs.open(&self.name(), OpenFlags { create: true, ..appends }, 0o644).await?;
        self.append(fd).await?;
        vfs.close(fd).await?;
        if let Some(fd) = there(vfs.open(&self.name(), appends, 0).await)? {
            vfs.pread(fd, 0, self.bytes.into()).await?;
            self.append(fd).await?;
            vfs.close(fd).await?;
        }
        if let Some(fd) = there(vfs.open(&self.name(), OpenFlags::READ, 0).await)? {
            let mut at = 0;
            loop {
                let read: u64 = vfs
                    .pread(fd, at, self.bytes.into())
                    .await?
                    .iter()
                    .map(|s| s.len() as u64)
                    .sum();
                if read == 0 {
                    break;
                }
                at += read;
            }
            vfs.close(fd).await?;
        }
        self.found.borrow_mut().loops += 1;
        Ok(())
    }
}

fn there(opened: FsResult<Fd>) -> FsResult<Option<Fd>> {
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs it in the root directory. `synced` is called after each fsync.
///
/// Errors: as the system calls.
pub async fn mail_loop(vfs: &Vfs, plan: &Plan, synced: Rc<dyn Fn()>) -> FsResult<Found> {
    let found = Rc::new(RefCell::new(Found::default()));
    let end = vfs.rt().now() + plan.length;
    let threads: Vec<_> = (0..plan.threads)
        .map(|id| {
            let mut thread = Thread {
                vfs: vfs.clone(),
                id,
                bytes: plan.bytes,
                random: mix(plan.seed.wrapping_add(id.into())),
                found: found.clone(),
                synced: synced.clone(),
            };
            vfs.rt().spawn(format!("wl/{id}"), async move {
                while thread.vfs.rt().now() < end {
                    thread.once().await?;
                }
                FsResult::Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.await?;
    }
    Ok(found.take())
}

async fn run(vfs: &Vfs, o: &Options) -> Result<WorkloadReport, FsError> {
    let plan = Plan::of(o).map_err(|_| FsError::Invalid("workload options"))?;
    let mut found = mail_loop(vfs, &plan, Rc::new(|| {})).await?;
    found.fsync_ns.sort_unstable();
    let percentile = |n: usize| found.fsync_ns.get(found.fsync_ns.len() * n / 1000);
    let numbers = [
        ("loops", found.loops),
        ("fsyncs", found.fsync_ns.len() as u64),
        ("fsync_p50_ns", percentile(500).copied().unwrap_or(0)),
        ("fsync_p99_ns", percentile(990).copied().unwrap_or(0)),
    ];
    let numbers = numbers.map(|(k, v)| (k.to_owned(), v)).to_vec();
    Ok(WorkloadReport { numbers, ..WorkloadReport::default() })
}
