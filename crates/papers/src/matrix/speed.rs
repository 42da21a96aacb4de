//! How quick a combination is, and what it writes: four workloads, one after the other on one
//! machine, with a `sync` behind each.
//!
//! On ext4 a file that is never written holds most of the drive, and where blocks are discarded an
//! `fstrim` comes first. F2FS has neither: its logs go round all of the drive, and no `fstrim` is
//! modelled, so it is as `mkfs.f2fs -t 0` leaves it, with what it discards by itself.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use wp_base::rng::Rng;
use wp_base::{FsResult, Sector, Span};
use wp_machine::profile::PROFILES;
use wp_machine::workload::wl_varmail::{self, mail_loop};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_medium::Slice;
use wp_vfs::{AtomicWrite, OpenFlags, Vfs};
use wp_workload::fio::Stat;

use super::{Combination, Length};
use crate::inode_trim;

/// CPU of all of them: one of the papers' PCs, with costs for every operation.
const CPU: &str = "i7-3770";
/// Little memory, so that a short run is written back, too.
const MEMORY: &str = "dirty_bytes=33554432,dirty_background_bytes=16777216";
/// Bytes of the file that is written over.
const FILE_BYTES: u64 = 16 << 20;
const BLOCK: u64 = 4096;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// The mail loop of four threads: an operation is an append with its fsync.
    Mail,
    /// 4 KiB at random over a file, with an fsync after each.
    Overwrite,
    /// The same with `O_DIRECT`, and no fsync.
    Direct,
    /// 2000 files made, synced, deleted, synced, again and again.
    Churn,
}

impl Workload {
    /// All.
    pub const ALL: [Workload; 4] =
        [Workload::Mail, Workload::Overwrite, Workload::Direct, Workload::Churn];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Mail => "mail",
            Workload::Overwrite => "overwrite",
            Workload::Direct => "direct",
            Workload::Churn => "churn",
        }
    }
}

/// What a workload came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Speed {
    /// Which.
    pub workload: Workload,
    /// Operations.
    pub operations: u64,
    /// Virtual time that they took, nanoseconds.
    pub elapsed_ns: u64,
    /// Half of what waits for the drive (fsync, a direct write, a sync) took at most so long,
    /// nanoseconds.
    pub p50_ns: u64,
    /// 99 of a hundred.
    pub p99_ns: u64,
    /// How often something waited so.
    pub waits: u64,
    /// Flushes that the drive was sent meanwhile.
    pub flushes: u64,
    /// Bytes that the programs wrote.
    pub program_bytes: u64,
    /// Bytes that the drive was sent, until the end of the sync behind it.
    pub drive_bytes: u64,
    /// Bytes that were programmed into its flash.
    pub flash_bytes: u64,
}

impl Speed {
    /// Operations a second.
    pub fn ops_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Flushes for each wait.
    pub fn flushes_per_wait(&self) -> f64 {
        self.flushes as f64 / self.waits.max(1) as f64
    }

    /// Bytes sent to the drive, for each that the programs wrote.
    pub fn sent(&self) -> f64 {
        self.drive_bytes as f64 / self.program_bytes.max(1) as f64
    }

    /// Bytes programmed, for each that was sent: the drive's own write amplification.
    pub fn programmed(&self) -> f64 {
        self.flash_bytes as f64 / self.drive_bytes.max(1) as f64
    }
}

/// What a program did: operations, what waited, bytes.
struct Done {
    operations: u64,
    waits: Stat,
    bytes: u64,
}

fn spec(c: &Combination, seed: u64) -> Result<MachineSpec, MachineError> {
    let profile = PROFILES.iter().find(|p| p.name == CPU).expect("a profile of our own table");
    // A file system that has been in use for a while: no tables are left to be zeroed.
    let tables = if c.fs.name == "ext4" { "noinit_itable" } else { "" };
    Ok(MachineSpec {
        seed,
        cpu: profile.model(),
        device: c.drive.device.to_owned(),
        device_params: c.drive.for_speed(),
        more: Vec::new(),
        elevator: c.elevator(),
        start: Sector(if c.drive.is_zoned() { 0 } else { 2048 }),
        sectors: c.drive.sectors(),
        fs: c.fs,
        fs_options: c.options(&[MEMORY, tables])?,
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: c.kernel(),
    })
}

/// Bytes written to the drive, programmed into its flash, and flushes, so far.
fn counted(machine: &Machine, c: &Combination) -> [u64; 3] {
    let all: BTreeMap<&str, u64> =
        machine.queue.with_device(|d| d.counters()).into_iter().collect();
    let of = |name: &str| all.get(name).copied().unwrap_or(0);
    let flash = match all.get("flash_slots_programmed") {
        Some(slots) => slots * BLOCK,
        None => {
            let unit = ["planes", "page_bytes", "pages_per_program"].map(|k| c.drive.parameter(k));
            of("units_programmed") * unit.iter().product::<u64>()
        }
    };
    [of("written_sectors") * wp_base::SECTOR_BYTES, flash, of("flushes")]
}

/// Runs the workloads. `None`: `go_on`, asked before each, said no.
///
/// Errors: a machine that cannot be; a file system that fails.
pub fn run(
    c: &Combination,
    length: Length,
    seed: u64,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Vec<Speed>>, MachineError> {
    let machine = Machine::new(spec(c, seed)?, None)?;
    let vfs = machine.mount()?;
    let failed = |error| MachineError::Fs { during: "workload", error };
    if c.fs.name == "ext4" {
        let (v, trims) = (vfs.clone(), c.has("discard"));
        let prepared = async move { inode_trim::fill_and_trim(&v, trims).await };
        machine.block_on("prepare", prepared)?.map_err(failed)?;
    }
    let mut speeds = Vec::new();
    for workload in Workload::ALL {
        if !go_on() {
            return Ok(None);
        }
        speeds.push(one(c, &machine, &vfs, workload, length)?);
    }
    machine.unmount(&vfs)?;
    Ok(Some(speeds))
}

/// Runs a workload.
fn one(
    c: &Combination,
    machine: &Machine,
    vfs: &Vfs,
    workload: Workload,
    length: Length,
) -> Result<Speed, MachineError> {
    let failed = |error| MachineError::Fs { during: "workload", error };
    let v = vfs.clone();
    let ready =
        machine.block_on("prepare", async move { prepare(&v, workload).await })?.map_err(failed)?;
    let (before, from) = (counted(machine, c), machine.rt.now());
    let how = (workload, Over::of(c, workload));
    let v = vfs.clone();
    let done = machine
        .block_on("program", async move { play(&v, how, length, ready).await })?
        .map_err(failed)?;
    let (after, ns) = (counted(machine, c), machine.rt.now().since(from).0);
    // What is in memory yet belongs to it.
    let v = vfs.clone();
    machine.block_on("sync", async move { v.sync().await })?.map_err(failed)?;
    let end = counted(machine, c);
    let share = |s| done.waits.histogram.percentile(s).unwrap_or(0);
    Ok(Speed {
        workload,
        operations: done.operations,
        elapsed_ns: ns,
        p50_ns: share(50_000_000),
        p99_ns: share(99_000_000),
        waits: done.waits.count,
        flushes: after[2] - before[2],
        program_bytes: done.bytes,
        drive_bytes: end[0] - before[0],
        flash_bytes: end[1] - before[1],
    })
}

/// Makes what the workload needs, and returns its file.
async fn prepare(v: &Vfs, workload: Workload) -> FsResult<Option<wp_vfs::Fd>> {
    let flags = match workload {
        Workload::Mail | Workload::Churn => return Ok(None),
        Workload::Overwrite => OpenFlags::WRITE,
        Workload::Direct => OpenFlags { direct: true, ..OpenFlags::WRITE },
    };
    let fd = v.open("data", OpenFlags::CREATE, 0o644).await?;
    const PIECE: u64 = 1 << 20;
    for n in 0..FILE_BYTES / PIECE {
        v.pwrite(fd, n * PIECE, &[Slice::pattern(1, n * PIECE, PIECE as u32)]).await?;
    }
    v.fsync(fd).await?;
    v.close(fd).await?;
    v.sync().await?;
    Ok(Some(v.open("data", flags, 0).await?))
}

/// How a block is written over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// A write, then an fsync.
    Synced,
    /// An atomic write of F2FS: its commit is what waits.
    Committed,
    /// A write past the cache.
    Direct,
    /// The same with `RWF_ATOMIC`.
    Untorn,
}

impl Over {
    fn of(c: &Combination, workload: Workload) -> Over {
        match workload == Workload::Direct {
            true if c.has("untorn") => Over::Untorn,
            true => Over::Direct,
            false if c.has("f2fs-atomic") => Over::Committed,
            false => Over::Synced,
        }
    }
}

async fn play(
    v: &Vfs,
    (workload, over): (Workload, Over),
    length: Length,
    file: Option<wp_vfs::Fd>,
) -> FsResult<Done> {
    match (workload, file) {
        (Workload::Mail, _) => mail(v, length).await,
        (Workload::Churn, _) => {
            let rounds = length.pick(1, 8);
            let (operations, waits) = inode_trim::create_and_delete(v, rounds).await?;
            Ok(Done { operations, waits, bytes: operations / 2 * BLOCK })
        }
        (_, Some(fd)) => overwrite(v, fd, length, over).await,
        (_, None) => unreachable!("it was prepared"),
    }
}

async fn mail(v: &Vfs, length: Length) -> FsResult<Done> {
    let plan = wl_varmail::Plan {
        threads: 4,
        length: Span::millis(length.pick(60, 500)),
        seed: 7,
        bytes: 16_384,
    };
    let appended = Rc::new(Cell::new(0));
    let count = appended.clone();
    let found = mail_loop(v, &plan, Rc::new(move || count.set(count.get() + 1))).await?;
    let mut waits = Stat::default();
    found.fsync_ns.iter().for_each(|ns| waits.add(*ns));
    let operations = appended.get();
    Ok(Done { operations, waits, bytes: operations * u64::from(plan.bytes) })
}

/// Blocks at random.
async fn overwrite(v: &Vfs, fd: wp_vfs::Fd, length: Length, over: Over) -> FsResult<Done> {
    let operations = length.pick(200, 2000);
    let mut rng = Rng::stream(1, "matrix overwrites");
    let mut waits = Stat::default();
    for n in 0..operations {
        let at = rng.below(FILE_BYTES / BLOCK) * BLOCK;
        let data = [Slice::pattern(2 + n, at, BLOCK as u32)];
        if over == Over::Committed {
            v.atomic_write(fd, AtomicWrite::Start).await?;
        }
        let direct = v.rt().now();
        match over {
            Over::Untorn => v.pwrite_atomic(fd, at, &[&data]).await?,
            _ => v.pwrite(fd, at, &data).await?,
        };
        let written = v.rt().now();
        match over {
            Over::Synced => v.fsync(fd).await?,
            Over::Committed => v.atomic_write(fd, AtomicWrite::Commit).await?,
            Over::Direct | Over::Untorn => {}
        }
        let is_direct = matches!(over, Over::Direct | Over::Untorn);
        waits.add(v.rt().now().since(if is_direct { direct } else { written }).0);
    }
    Ok(Done { operations, waits, bytes: operations * BLOCK })
}
