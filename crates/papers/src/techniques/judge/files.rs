//! Tasks that make files and sync each: fs_mark, and the loop of filebench's varmail.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::FsResult;
use wp_machine::MachineError;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

use super::beside::Setup;

/// What the tasks do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// One task appends 4 KiB to a file and syncs it, and again.
    Append,
    /// Each task makes files of 64 KiB in 4 KiB writes and syncs each (`fs_mark -s 65536 -w 4096`).
    Mark,
    /// Each task removes a file, makes one of 16 KiB and syncs it, reads one, appends 16 KiB to it
    /// and syncs it (varmail).
    Mail,
    /// One task appends as [`Work::Append`]; the others are at [`Work::Mark`] until it is done.
    AppendBesideMark,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// Rounds of the measured tasks per second.
    pub per_second: f64,
    /// Latency of each fsync of the task that appends, nanoseconds, in order of length.
    pub append_ns: Vec<u64>,
    /// Counters of file system and drive, less those before.
    counters: BTreeMap<String, u64>,
}

impl Made {
    /// A counter of the file system or the drive. Panics for one that there is not: ours.
    pub fn counter(&self, name: &str) -> f64 {
        let n = self.counters.get(name).unwrap_or_else(|| panic!("no counter `{name}`"));
        *n as f64
    }
}

const BLOCK: u64 = 4096;
/// Files that a task of varmail has.
const MAILS: u64 = 62;

async fn write(v: &Vfs, name: &str, from: u64, blocks: u64, seed: u64) -> FsResult<()> {
    let fd = v.open(name, OpenFlags::CREATE, 0o644).await?;
    for n in from..from + blocks {
        v.pwrite(fd, n * BLOCK, &[Slice::pattern(seed, n * BLOCK, BLOCK as u32)]).await?;
    }
    v.fsync(fd).await?;
    v.close(fd).await
}

/// Latencies of the syncs.
type Latencies = Rc<RefCell<Vec<u64>>>;

async fn append(v: &Vfs, count: u64, syncs: &Latencies) -> FsResult<()> {
    let fd = v.open("log", OpenFlags::CREATE, 0o644).await?;
    for n in 0..count {
        v.pwrite(fd, n * BLOCK, &[Slice::pattern(1, n * BLOCK, BLOCK as u32)]).await?;
        let from = v.rt().now();
        v.fsync(fd).await?;
        syncs.borrow_mut().push(v.rt().now().since(from).0);
    }
    v.close(fd).await
}

async fn mail(v: &Vfs, task: u64, round: u64) -> FsResult<()> {
    let name = |n: u64| format!("m{task}-{}", n % MAILS);
    match v.unlink(&name(round)).await {
        Ok(()) | Err(wp_base::FsError::NotFound) => {}
        Err(e) => return Err(e),
    }
    write(v, &name(round), 0, 4, round).await?;
    write(v, &name(round * 7 + 1), 4, 4, round + 1).await
}

async fn task(v: Vfs, work: Work, (n, count): (u64, u64), syncs: Latencies) -> FsResult<()> {
    if matches!(work, Work::Append | Work::AppendBesideMark) && n == 0 {
        return append(&v, count, &syncs).await;
    }
    for round in 0..count {
        match work {
            Work::Mail => mail(&v, n, round).await?,
            _ => write(&v, &format!("f{n}-{round}"), 0, 16, round).await?,
        }
    }
    Ok(())
}

/// `tasks` tasks do `count` rounds each. Errors: a machine that cannot be; a file system that
/// fails.
pub(super) fn run(setup: &Setup, work: Work, tasks: u64, count: u64) -> Result<Made, MachineError> {
    let failed = |error| MachineError::Fs { during: "workload", error };
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let counters = || {
        let drive = machine.queue.with_device(|d| d.counters());
        let own = vfs.fs().counters();
        let all = own.into_iter().map(|(k, n)| (k.to_owned(), n));
        all.chain(drive.into_iter().map(|(k, n)| (k.to_owned(), n))).collect::<BTreeMap<_, _>>()
    };
    let v = vfs.clone();
    let prepared = async move {
        let fd = v.open("log", OpenFlags::CREATE, 0o644).await?;
        v.fsync(fd).await?;
        v.close(fd).await?;
        v.sync().await
    };
    machine.block_on("prepare", prepared)?.map_err(failed)?;
    let (before, from) = (counters(), machine.rt.now());
    let (v, syncs) = (vfs.clone(), Latencies::default());
    let noted = syncs.clone();
    let played = async move {
        let one = |n: u64| task(v.clone(), work, (n, count), noted.clone());
        let start = |n: u64| v.rt().spawn(format!("task/{n}"), one(n));
        let all: Vec<_> = (0..tasks).map(start).collect();
        let mut all = all.into_iter();
        if let Some(measured) = all.next() {
            measured.await?;
        }
        if matches!(work, Work::AppendBesideMark) {
            return FsResult::Ok(v.rt().now());
        }
        for one in all {
            one.await?;
        }
        FsResult::Ok(v.rt().now())
    };
    let end = machine.block_on("files", played)?.map_err(failed)?;
    let after = counters();
    let less =
        |(k, n): (&String, &u64)| (k.clone(), n - before.get(k).copied().unwrap_or(0).min(*n));
    let rounds = if matches!(work, Work::AppendBesideMark) { count } else { count * tasks };
    let mut append_ns = syncs.take();
    append_ns.sort_unstable();
    let done = Made {
        append_ns,
        per_second: rounds as f64 * 1e9 / end.since(from).0.max(1) as f64,
        counters: after.iter().map(less).collect(),
    };
    if !matches!(work, Work::AppendBesideMark) {
        machine.unmount(&vfs)?;
    }
    Ok(done)
}
