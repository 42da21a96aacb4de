//! MobiBench's file test: one file a thread, written or read record by record.
//!
//! Picture:    (fill the file) -> drop caches -> \[clock\] record, record, … one fsync \[clock\]
//! Invariants: 1. in random order every record is met once, in the order that MobiBench gives for
//!                that number of records: it does not hang on a seed.
//!             2. the last fsync is inside the time that is measured, and the fill is not.
//! Source:     ESOS-Lab/Mobibench, `shell/mobibench.c` of 10 January 2014 and of May 2023, which
//!             differ in what a sequential write begins with ([`Version`]).
//! Left out:   `mmap` (`-y 5` to `7`); databases (`-d`); scripts (`-g`); overlap (`-v`).

mod twister;

use wp_base::{FsError, FsResult};
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Vfs};

use self::twister::Twister;
use crate::fio::Stat;

/// The key of its generator.
const KEY: [u64; 4] = [0x12345, 0x23456, 0x34567, 0x45678];
/// Bytes of a write that fills a file.
const FILL: u64 = 512 << 10;
/// Bits that its files are made with.
const MODE: u32 = 0o766;

/// Which MobiBench: they differ in sequential writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Until 2019: a sequential write removes its file first, so each record makes it longer.
    Y2014,
    /// From 2020: a sequential write is over a file that is filled first; what removes it is
    /// `append`.
    Y2020,
}

/// `-a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// 0.
    Write,
    /// 1.
    RandomWrite,
    /// 2.
    Read,
    /// 3.
    RandomRead,
    /// 4, of the later version.
    Append,
}

impl Access {
    /// All, in the order of their numbers.
    pub const ALL: [Access; 5] =
        [Access::Write, Access::RandomWrite, Access::Read, Access::RandomRead, Access::Append];

    /// Its name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Write => "write",
            Access::RandomWrite => "randwrite",
            Access::Read => "read",
            Access::RandomRead => "randread",
            Access::Append => "append",
        }
    }

    const fn is_random(self) -> bool {
        matches!(self, Access::RandomWrite | Access::RandomRead)
    }

    const fn is_write(self) -> bool {
        matches!(self, Access::Write | Access::RandomWrite | Access::Append)
    }
}

/// `-y`. Reads are with `O_DIRECT`, whatever it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// 0: through the cache.
    Normal,
    /// 1: `O_SYNC`.
    OSync,
    /// 2: an fsync behind each record.
    Fsync,
    /// 3: `O_DIRECT`.
    Direct,
    /// 4: `O_SYNC` and `O_DIRECT`.
    SyncDirect,
    /// 8: an fdatasync behind each record.
    Fdatasync,
    /// `fbarrier` of BarrierFS behind each record.
    Fbarrier,
    /// `fdatabarrier` of BarrierFS behind each record.
    Fdatabarrier,
}

impl Sync {
    /// All.
    pub const ALL: [Sync; 8] = [
        Sync::Normal,
        Sync::OSync,
        Sync::Fsync,
        Sync::Direct,
        Sync::SyncDirect,
        Sync::Fdatasync,
        Sync::Fbarrier,
        Sync::Fdatabarrier,
    ];

    /// Its name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Sync::Normal => "normal",
            Sync::OSync => "osync",
            Sync::Fsync => "fsync",
            Sync::Direct => "direct",
            Sync::SyncDirect => "sync+direct",
            Sync::Fdatasync => "fdatasync",
            Sync::Fbarrier => "fbarrier",
            Sync::Fdatabarrier => "fdatabarrier",
        }
    }
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MobiBench {
    /// `-f`, bytes of all files.
    pub file_bytes: u64,
    /// `-r`, bytes.
    pub record_bytes: u64,
    /// `-a`.
    pub access: Access,
    /// `-y`.
    pub sync: Sync,
    /// `-t`.
    pub threads: u32,
    /// Which one.
    pub version: Version,
}

impl Default for MobiBench {
    fn default() -> MobiBench {
        MobiBench {
            file_bytes: 1 << 20,
            record_bytes: 4 << 10,
            access: Access::Write,
            sync: Sync::Normal,
            threads: 1,
            version: Version::Y2014,
        }
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct MobiResult {
    /// Records.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// From the first record to the end of the last fsync, nanoseconds.
    pub elapsed_ns: u64,
    /// Latency of a record, with what follows each.
    pub latency: Stat,
}

impl MobiResult {
    /// Records a second.
    pub fn iops(&self) -> f64 {
        self.records as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// MiB a second, which it prints as MB.
    pub fn mib_per_s(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// The random order in which `records` records are accessed.
pub fn order(records: u64) -> Vec<u64> {
    let mut random = Twister::new(&KEY);
    let mut all: Vec<u64> = (0..records).collect();
    for i in 0..all.len() {
        // Every record changes places with any, not with those behind it only.
        let with = random.next_u64() % records;
        all.swap(i, with as usize);
    }
    all
}

/// Runs it in the root directory; `ready` is called as the clock starts.
///
/// Errors: as the system calls; `Invalid` for files shorter than a record.
pub async fn mobibench(vfs: &Vfs, plan: &MobiBench, ready: &dyn Fn()) -> FsResult<MobiResult> {
    let share = plan.file_bytes / u64::from(plan.threads.max(1));
    if plan.record_bytes == 0 || share < plan.record_bytes {
        return Err(FsError::Invalid("a file is shorter than a record"));
    }
    let mut files = Vec::new();
    for thread in 0..plan.threads {
        let name = format!("/test.dat{thread}");
        files.push(prepare(vfs, plan, &name, share).await?);
    }
    vfs.fs().drop_caches();
    ready();
    let start = vfs.rt().now();
    let tasks: Vec<_> = (1..)
        .zip(&files)
        .map(|(n, fd)| {
            let (vfs, plan, fd) = (vfs.clone(), *plan, *fd);
            vfs.rt().clone().spawn(format!("mobibench/{n}"), async move {
                records(&vfs, &plan, fd, share / plan.record_bytes).await
            })
        })
        .collect();
    let mut result = MobiResult::default();
    for task in tasks {
        let one = task.await?;
        result.records += one.records;
        result.bytes += one.bytes;
        result.latency.merge(&one.latency);
    }
    result.elapsed_ns = vfs.rt().now().since(start).0;
    for fd in files {
        vfs.close(fd).await?;
    }
    Ok(result)
}

/// The file of a thread, as it has to be, and open.
async fn prepare(vfs: &Vfs, plan: &MobiBench, name: &str, bytes: u64) -> FsResult<Fd> {
    let is_new = match plan.version {
        Version::Y2014 => matches!(plan.access, Access::Write | Access::Append),
        Version::Y2020 => plan.access == Access::Append,
    };
    if is_new {
        match vfs.unlink(name).await {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
    } else {
        fill(vfs, name, bytes).await?;
    }
    let sync = if plan.access.is_write() { plan.sync } else { Sync::Direct };
    let flags = OpenFlags {
        direct: matches!(sync, Sync::Direct | Sync::SyncDirect),
        sync: matches!(sync, Sync::OSync | Sync::SyncDirect),
        ..OpenFlags::CREATE
    };
    vfs.open(name, flags, MODE).await
}

/// Makes a file as long as it has to be: buffered writes behind what it has, and an fsync.
async fn fill(vfs: &Vfs, name: &str, bytes: u64) -> FsResult<()> {
    let fd = vfs.open(name, OpenFlags::CREATE, MODE).await?;
    let mut at = vfs.stat(name).await?.size;
    if at < bytes {
        while at < bytes {
            let n = FILL.min(bytes - at);
            at += vfs.pwrite(fd, at, &[Slice::pattern(0, at, n as u32)]).await?;
        }
        vfs.fsync(fd).await?;
    }
    vfs.close(fd).await
}

/// What a thread does while the clock runs.
async fn records(vfs: &Vfs, plan: &MobiBench, fd: Fd, n: u64) -> FsResult<MobiResult> {
    let places: Vec<u64> = if plan.access.is_random() { order(n) } else { (0..n).collect() };
    let mut result = MobiResult::default();
    let len = plan.record_bytes;
    for place in places {
        let (at, from) = (place * len, vfs.rt().now());
        result.bytes += if plan.access.is_write() {
            vfs.pwrite(fd, at, &[Slice::pattern(1, at, len as u32)]).await?
        } else {
            vfs.pread(fd, at, len).await?.iter().map(|s| u64::from(s.len())).sum()
        };
        match plan.sync {
            _ if !plan.access.is_write() => {}
            Sync::Fsync => vfs.fsync(fd).await?,
            Sync::Fdatasync => vfs.fdatasync(fd).await?,
            Sync::Fbarrier => vfs.fbarrier(fd).await?,
            Sync::Fdatabarrier => vfs.fdatabarrier(fd).await?,
            Sync::Normal | Sync::OSync | Sync::Direct | Sync::SyncDirect => {}
        }
        result.records += 1;
        result.latency.add(vfs.rt().now().since(from).0);
    }
    if plan.access.is_write() {
        vfs.fsync(fd).await?;
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program's own code gave, compiled.
    #[test]
    fn records_are_met_in_its_order() {
        assert_eq!(order(8), [3, 7, 2, 5, 6, 1, 0, 4]);
        let many = order(256);
        assert_eq!(many[..8], [58, 23, 92, 160, 17, 101, 175, 173]);
        assert_eq!(many.last(), Some(&113));
        let mut sorted = many;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..256), "each once");
    }
}
