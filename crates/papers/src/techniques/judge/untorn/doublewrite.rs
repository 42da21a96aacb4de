//! Pages flushed as InnoDB flushes them: through a doublewrite buffer, or untorn without one.
//!
//! Picture:    with: a batch to the buffer, fdatasync, each page to its place, fdatasync. Without:
//!             each page to its place, untorn, fdatasync.
//! Source:     MySQL 8.0 manual, "Doublewrite Buffer"; `innodb_doublewrite_pages`, 64 here. Pages
//!             of 4 KiB (`innodb_page_size=4k`), as ext4 without bigalloc writes one block untorn.

use wp_base::FsResult;
use wp_base::rng::Rng;
use wp_machine::{Machine, MachineError};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

use super::super::Ask;
use super::super::beside::{Setup, params};
use crate::journal_conflict::profile;

const PAGE: u32 = 4096;
/// Pages of a batch.
const BATCH: u64 = 64;
/// Pages of the table.
const TABLE: u64 = 4096;

/// Without a doublewrite buffer over with one.
pub(super) struct Ratio {
    /// Bytes written to the drive.
    pub bytes: f64,
    /// Pages per second.
    pub speed: f64,
}

/// Sectors written to the drive, of a device that counts them.
fn written(machine: &Machine) -> u64 {
    let all = machine.queue.with_device(|d| d.counters());
    all.iter().find(|(name, _)| *name == "written_sectors").map_or(0, |c| c.1)
}

/// Makes the table, all of it written, and the buffer.
async fn made(v: Vfs) -> FsResult<()> {
    for (name, pages) in [("table", TABLE), ("buffer", BATCH)] {
        let fd = v.open(name, OpenFlags::CREATE, 0o644).await?;
        for n in 0..pages {
            let at = n * u64::from(PAGE);
            v.pwrite(fd, at, &[Slice::pattern(1, at, PAGE)]).await?;
        }
        v.fsync(fd).await?;
        v.close(fd).await?;
    }
    v.sync().await
}

async fn flush(v: Vfs, batches: u64, doublewrite: bool, seed: u64) -> FsResult<()> {
    let how = OpenFlags { direct: true, ..OpenFlags::WRITE };
    let table = v.open("table", how, 0).await?;
    let buffer = v.open("buffer", how, 0).await?;
    let mut rng = Rng::stream(seed, "doublewrite");
    for batch in 0..batches {
        let mut pages: Vec<u64> = (0..BATCH).map(|_| rng.below(TABLE)).collect();
        pages.sort_unstable();
        let data = |page: u64| Slice::pattern(batch + 2, page * u64::from(PAGE), PAGE);
        if doublewrite {
            let all: Vec<Slice> = pages.iter().map(|page| data(*page)).collect();
            v.pwrite(buffer, 0, &all).await?;
            v.fdatasync(buffer).await?;
        }
        for page in pages {
            let at = page * u64::from(PAGE);
            match doublewrite {
                true => v.pwrite(table, at, &[data(page)]).await?,
                false => v.pwrite_atomic(table, at, &[&[data(page)]]).await?,
            };
        }
        v.fdatasync(table).await?;
    }
    Ok(())
}

/// Sectors and nanoseconds that the flushing takes.
fn run(ask: Ask, doublewrite: bool) -> Result<(u64, u64), MachineError> {
    let setup = Setup {
        fs: "ext4,era=6.18,block_size=4096,noinit_itable".to_owned(),
        device: "990pro-2tb",
        params: params(&[("atomic_bytes", 16 << 10)]),
        elevator: String::new(),
        kernel: (6, 18),
        cpu: profile().model(),
        seed: ask.seed,
    };
    let failed = |error| MachineError::Fs { during: "workload", error };
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    machine.block_on("prepare", made(vfs.clone()))?.map_err(failed)?;
    let (sectors, from) = (written(&machine), machine.rt.now());
    let batches = ask.pick(4, 64);
    let flushed = flush(vfs.clone(), batches, doublewrite, ask.seed);
    machine.block_on("flush", flushed)?.map_err(failed)?;
    let took = machine.rt.now().since(from).0;
    let sectors = written(&machine) - sectors;
    machine.unmount(&vfs)?;
    Ok((sectors, took))
}

/// Measures both.
pub(super) fn ratio(ask: Ask) -> Result<Ratio, MachineError> {
    let (with, without) = (run(ask, true)?, run(ask, false)?);
    if with.0 == 0 || without.0 == 0 {
        return Err(MachineError::Config("doublewrite: the drive counted no sectors".to_owned()));
    }
    Ok(Ratio { bytes: without.0 as f64 / with.0 as f64, speed: with.1 as f64 / without.1 as f64 })
}
