//! Inserts as SQLite makes them with a rollback journal (`journal_mode=DELETE`,
//! `synchronous=FULL`): what OPTR and F2FS' atomic writes are judged on.
//!
//! Source: sqlite.org/fileformat.html, section 3 (rollback journal), and
//!         sqlite.org/atomiccommit.html for the order of calls: records of the old pages, sync,
//!         their number in the header, sync, the pages in the database, sync, the journal removed.

use wp_base::FsResult;
use wp_machine::MachineError;
use wp_medium::Slice;
use wp_vfs::{AtomicWrite, Fd, OpenFlags, Vfs};

use super::beside::Setup;

/// Bytes of a page of the database.
const PAGE: u64 = 4096;
/// Bytes of the journal's header: a sector.
const HEADER: u64 = 512;
/// Bytes of a record: page number, page, checksum.
const RECORD: u64 = 4 + PAGE + 4;
/// Pages of the database.
const PAGES: u64 = 1024;
/// Pages that an insert changes: a leaf and the header of the database.
const CHANGED: u64 = 2;

/// How a transaction becomes durable and atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Commit {
    /// Every sync is an fsync.
    Syncs,
    /// Those that only order (of the journal) start the write and wait for nothing.
    Orders,
    /// No journal: F2FS writes the pages atomically, and an fdatasync follows
    /// (`SQLITE_ENABLE_BATCH_ATOMIC_WRITE`, as `sqlite3PagerCommitPhaseOne` does it).
    Batch,
}

async fn order(v: &Vfs, fd: Fd, commit: Commit) -> FsResult<()> {
    match commit {
        Commit::Syncs | Commit::Batch => v.fsync(fd).await,
        Commit::Orders => v.fadvise_dontneed(fd).await.map(drop),
    }
}

async fn write_pages(v: &Vfs, db: Fd, n: u64, page: impl Fn(u64) -> u64) -> FsResult<()> {
    for k in 0..CHANGED {
        v.pwrite(db, page(k), &[Slice::pattern(n + 2, page(k), PAGE as u32)]).await?;
    }
    Ok(())
}

async fn insert(v: &Vfs, db: Fd, n: u64, commit: Commit) -> FsResult<()> {
    let page = |k: u64| if k == 0 { 0 } else { 1 + n % (PAGES - 1) } * PAGE;
    if commit == Commit::Batch {
        v.atomic_write(db, AtomicWrite::Start).await?;
        write_pages(v, db, n, page).await?;
        v.atomic_write(db, AtomicWrite::Commit).await?;
        return v.fdatasync(db).await;
    }
    let journal = v.open("db-journal", OpenFlags::CREATE, 0o644).await?;
    v.pwrite(journal, 0, &[Slice::pattern(n, 0, HEADER as u32)]).await?;
    for k in 0..CHANGED {
        let at = HEADER + k * RECORD;
        v.pwrite(journal, at, &[Slice::pattern(n, at, RECORD as u32)]).await?;
    }
    order(v, journal, commit).await?;
    v.pwrite(journal, 0, &[Slice::pattern(n + 1, 0, HEADER as u32)]).await?;
    order(v, journal, commit).await?;
    write_pages(v, db, n, page).await?;
    v.fsync(db).await?;
    v.close(journal).await?;
    v.unlink("db-journal").await
}

/// Makes the database, durable.
async fn database(v: &Vfs) -> FsResult<Fd> {
    let db = v.open("db", OpenFlags::CREATE, 0o644).await?;
    for n in 0..PAGES {
        v.pwrite(db, n * PAGE, &[Slice::pattern(1, n * PAGE, PAGE as u32)]).await?;
    }
    v.fsync(db).await?;
    v.sync().await?;
    Ok(db)
}

/// What came of inserts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inserts {
    /// Inserts per second.
    pub per_second: f64,
    /// FLUSHes that the drive was sent, for each insert.
    pub flushes: f64,
}

/// Makes `count` inserts. Errors: a machine that cannot be; a file system that fails.
pub(super) fn run(setup: &Setup, count: u64, commit: Commit) -> Result<Inserts, MachineError> {
    let failed = |error| MachineError::Fs { during: "workload", error };
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let v = vfs.clone();
    let db = machine.block_on("prepare", async move { database(&v).await })?.map_err(failed)?;
    let flushes = || {
        let all = machine.queue.with_device(|d| d.counters());
        all.iter().find(|(name, _)| *name == "flushes").map_or(0, |c| c.1)
    };
    let (before, from) = (flushes(), machine.rt.now());
    let v = vfs.clone();
    let played = async move {
        for n in 0..count {
            insert(&v, db, n, commit).await?;
        }
        FsResult::Ok(())
    };
    machine.block_on("sqlite", played)?.map_err(failed)?;
    let (took, sent) = (machine.rt.now().since(from).0, flushes() - before);
    machine.unmount(&vfs)?;
    Ok(Inserts {
        per_second: count as f64 * 1e9 / took.max(1) as f64,
        flushes: sent as f64 / count.max(1) as f64,
    })
}
