//! What the paper leaves to later: workloads on a drive that is old and nearly full.
//!
//! The drive has been overwritten at random for long before it gets the file system, and was never
//! told what nobody needs: every slot of it is valid. Where blocks are discarded, an `fstrim` comes
//! first; with `inode_trim=safe` that takes the tables' free blocks too. One file holds most of the
//! space, and is not written.

use serde::{Deserialize, Serialize};
use wp_base::{FsResult, Sector};
use wp_machine::profile::Profile;
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Options, Reserve, Vfs};
use wp_workload::filebench::{self, Personality, RunLength};
use wp_workload::fio::Stat;
use wp_workload::innodb::{OltpInsert, oltp_insert};

use super::Trim;

/// The drive: 4 GiB, a thirteenth more flash, superblocks of 4 MiB.
pub const DRIVE: [(&str, u64); 9] = [
    ("channels", 4),
    ("dies_per_channel", 1),
    ("planes", 1),
    ("page_bytes", 8192),
    ("pages_per_block", 128),
    ("blocks_per_plane", 1104),
    ("capacity_bytes", 4 << 30),
    ("aged_fill", 1000),
    ("gc_low_superblocks", 8),
];

/// MiB of the partition that stay free beside what the workload holds at first.
const FREE_MIB: u64 = 320;

/// Little memory, so that files are written back while there are more to come.
const MEMORY: &str = ",dirty_bytes=33554432,dirty_background_bytes=16777216";

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// filebench's mail server, 16 threads.
    Varmail,
    /// filebench's file server, 16 threads, 600 files of 128 KiB.
    Fileserver,
    /// InnoDB's inserts.
    Oltp,
    /// 2000 files of 4 KiB made, synced, deleted, synced, again and again: the paper's own program.
    CreateDelete,
}

impl Work {
    /// All.
    pub const ALL: [Work; 4] = [Work::Varmail, Work::Fileserver, Work::Oltp, Work::CreateDelete];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Work::Varmail => "varmail",
            Work::Fileserver => "fileserver",
            Work::Oltp => "oltp-insert",
            Work::CreateDelete => "create and delete",
        }
    }

    /// Its word in results and figures.
    pub fn key(self) -> &'static str {
        match self {
            Work::Varmail => "varmail",
            Work::Fileserver => "fileserver",
            Work::Oltp => "oltp",
            Work::CreateDelete => "create-delete",
        }
    }
}

/// What a workload did to the drive, from its start on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wear {
    /// The workload.
    pub work: Work,
    /// What is discarded.
    pub trim: Trim,
    /// The tables were not discarded at first: only what files that are deleted leave of them.
    pub only_deleted: bool,
    /// Operations (flowops, inserts, files made and deleted) a second.
    pub rate: f64,
    /// Latency of what waits for the drive (fsync, fdatasync in an insert, writes of whole files,
    /// sync), nanoseconds: median, 99th and 99.9th of hundred.
    pub latency_ns: [u64; 3],
    /// Slots of 4 KiB that the host wrote.
    pub host_slots: u64,
    /// Slots that garbage collection copied.
    pub copied_slots: u64,
    /// Slots programmed, over those that the host wrote.
    pub amplification: f64,
    /// Blocks of the flash that were erased.
    pub erased_blocks: u64,
    /// Discards.
    pub discards: u64,
}

/// Fills all but a part with a file that is not written and, if it `trims`, tells the drive what is
/// free. Errors: as the calls.
pub async fn fill_and_trim(v: &Vfs, trims: bool) -> FsResult<()> {
    let fd = v.open("ballast", OpenFlags::CREATE, 0o644).await?;
    let free = v.stat_fs().await?;
    let room = free.blocks_free * u64::from(free.block_bytes);
    let space = Reserve::Space { keep_size: false };
    v.fallocate(fd, space, 0, room.saturating_sub(FREE_MIB << 20)).await?;
    v.close(fd).await?;
    v.sync().await?;
    if trims {
        v.fstrim(0, u64::MAX, 0).await?;
    }
    Ok(())
}

/// Operations a second, and what waits for the drive.
type Done = (f64, Stat);

/// Millionths of a percent.
const QUANTILES: [u64; 3] = [50_000_000, 99_000_000, 99_900_000];

async fn bench(v: &Vfs, p: &Personality, loops: u64, waits: &str, seed: u64) -> FsResult<Done> {
    let found = filebench::run(v, p, RunLength::Loops(loops), seed).await?;
    let stat = found.ops.get(waits).map(|o| o.latency.clone()).unwrap_or_default();
    Ok((found.ops_per_second(), stat))
}

/// The paper's own program, `rounds` times: how many files were made and deleted, and what each
/// sync took. Errors: as the calls.
pub async fn create_and_delete(v: &Vfs, rounds: u64) -> FsResult<(u64, Stat)> {
    let mut syncs = Stat::default();
    v.mkdir("files", 0o755).await?;
    for round in 0..rounds {
        for step in 0..2 {
            for n in 0..super::FILES {
                let name = format!("files/f{n}");
                if step == 1 {
                    v.unlink(&name).await?;
                    continue;
                }
                let data = Slice::pattern(round << 32 | u64::from(n), 0, 4096);
                let fd = v.open(&name, OpenFlags::CREATE, 0o644).await?;
                v.pwrite(fd, 0, &[data]).await?;
                v.close(fd).await?;
            }
            let from = v.rt().now();
            v.sync().await?;
            syncs.add(v.rt().now().since(from).0);
        }
    }
    Ok((2 * rounds * u64::from(super::FILES), syncs))
}

async fn play(v: &Vfs, work: Work, scale: u64, seed: u64) -> FsResult<Done> {
    match work {
        Work::Varmail => bench(v, &filebench::varmail(16), 6 * scale, "fsync", seed).await,
        Work::Fileserver => {
            bench(v, &filebench::fileserver(16, 600), 6 * scale, "writewholefile", seed).await
        }
        Work::Oltp => {
            let plan = OltpInsert { inserts: 200 * scale, ..OltpInsert::default() };
            let found = oltp_insert(v, &plan, seed).await?;
            Ok((found.per_second(), found.latency))
        }
        Work::CreateDelete => {
            let start = v.rt().now();
            let (files, syncs) = create_and_delete(v, scale.div_ceil(5)).await?;
            let ns = v.rt().now().since(start).0.max(1);
            Ok((files as f64 * 1e9 / ns as f64, syncs))
        }
    }
}

/// The rows of each workload: what is discarded, and whether tables only of deleted files.
pub const ROWS: [(Trim, bool); 4] =
    [(Trim::None, false), (Trim::Discard, false), (Trim::Safe, true), (Trim::Safe, false)];

/// Runs a workload; `scale` says how long: 100 is some hundreds of MiB.
///
/// Errors: as of machines and file systems.
pub fn wear(
    work: Work,
    (trim, only_deleted): (Trim, bool),
    scale: u64,
    seed: u64,
) -> Result<Wear, MachineError> {
    let fs = wp_machine::registry::FILE_SYSTEMS[0];
    // `fstrim` passes over tables that are still to be zeroed, and here nobody zeroes them.
    let tables = if only_deleted { ",lazy_itable_init,noinit_itable" } else { "" };
    let options = format!("era=6.18{MEMORY}{}{tables}", trim.options());
    let fs_options =
        Options::parse(&options, fs.options).map_err(|e| MachineError::Config(e.to_string()))?;
    let machine = Machine::new(
        MachineSpec {
            seed,
            cpu: Profile::known("i7-4770").model(),
            device: "ssd-128".to_owned(),
            device_params: DRIVE.map(|(key, n)| (key.to_owned(), n)).to_vec(),
            more: Vec::new(),
            elevator: String::new(),
            start: Sector(2048),
            sectors: None,
            fs,
            fs_options,
            disk: "sdb1".to_owned(),
            device_number: (8, 16),
            kernel: (6, 18),
        },
        None,
    )?;
    let vfs = machine.mount()?;
    let failed = |error| MachineError::Fs { during: "workload", error };
    let v = vfs.clone();
    machine
        .block_on("prepare", async move { fill_and_trim(&v, trim != Trim::None).await })?
        .map_err(failed)?;
    let counters = || machine.queue.with_device(|d| d.counters());
    let before = counters();
    let v = vfs.clone();
    let (rate, stat) = machine
        .block_on("workload", async move { play(&v, work, scale, seed).await })?
        .map_err(failed)?;
    // What is in memory yet belongs to it.
    machine.unmount(&vfs)?;
    let after = counters();
    let grown = |name: &str| {
        let of = |all: &[(&str, u64)]| all.iter().find(|(k, _)| *k == name).map_or(0, |(_, n)| *n);
        of(&after).saturating_sub(of(&before))
    };
    let host = grown("host_slots_written");
    Ok(Wear {
        work,
        trim,
        only_deleted,
        rate,
        latency_ns: QUANTILES.map(|q| stat.histogram.percentile(q).unwrap_or(0)),
        host_slots: host,
        copied_slots: grown("gc_slots_moved"),
        amplification: grown("flash_slots_programmed") as f64 / host.max(1) as f64,
        erased_blocks: grown("flash_blocks_erased"),
        discards: grown("discards"),
    })
}
