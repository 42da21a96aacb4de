//! What sysbench's `oltp_insert` makes InnoDB ask of a file system: one autocommitted insert after
//! the other.
//!
//! Picture:    insert -> redo log (written where it lies, `fdatasync`) -> with a binary log, that
//!             too (appended, `fdatasync`); the table's file grows a MiB at a time.
//! Source:     system calls of MariaDB 10.11 under sysbench 1.0.20 (one thread,
//!             `innodb_flush_log_at_trx_commit=1`, `innodb_flush_method=fsync`): 16,925 commits
//!             made 16,928 writes of 1024 bytes (69 %) or 512 (30 %) to the redo log, which begin
//!             512 bytes further (70 %) or where the last began (30 %): the tail block is written
//!             again.
//! Left out:   several threads (group commit), checkpoints and their doublewrite buffer (none came
//!             in those runs).

use wp_base::rng::{Rng, mix64};
use wp_base::{FsResult, Span};
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

use crate::fio::Stat;

/// A redo log's block in bytes (`OS_FILE_LOG_BLOCK_SIZE`).
const LOG_BLOCK: u64 = 512;
/// Blocks of its header (`LOG_FILE_HDR_SIZE`).
const LOG_HEADER: u64 = 4 * LOG_BLOCK;
/// Bytes by which a table's file grows.
const GROWTH: u64 = 1 << 20;
const MIB: u64 = 1 << 20;

/// How to insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OltpInsert {
    /// Inserts.
    pub inserts: u64,
    /// Bytes of the redo log: written through, and then from its beginning again.
    pub log_bytes: u64,
    /// Is there a binary log (`sync_binlog=1`)?
    pub binlog: bool,
    /// Bytes of an event of it.
    pub binlog_bytes: u64,
    /// Percent of commits that fill their log block, so that the next begins a block further.
    pub advance_percent: u64,
    /// Inserts after which the table's file grows by a MiB: a row and its entry of the secondary
    /// index take some 230 bytes.
    pub rows_per_growth: u64,
    /// Nanoseconds that server and client compute for each insert.
    pub think_ns: u64,
}

impl Default for OltpInsert {
    fn default() -> OltpInsert {
        OltpInsert {
            inserts: 10_000,
            log_bytes: 96 << 20,
            binlog: false,
            binlog_bytes: 412,
            advance_percent: 70,
            rows_per_growth: GROWTH / 230,
            think_ns: 0,
        }
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct OltpResult {
    /// Inserts.
    pub inserts: u64,
    /// From the first insert to the last commit, nanoseconds.
    pub elapsed_ns: u64,
    /// Latency of an insert, computing included.
    pub latency: Stat,
    /// Writes to the redo log of 512 and of 1024 bytes.
    pub log_writes: [u64; 2],
    /// Calls of fdatasync.
    pub syncs: u64,
    /// MiB that the table's file has grown.
    pub growths: u64,
}

impl OltpResult {
    /// Inserts a second. 0 for a run of no time.
    pub fn per_second(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        self.inserts as f64 * 1e9 / self.elapsed_ns as f64
    }
}

/// Makes the files of a database, syncs, and inserts.
///
/// Errors: what the file system answers; a redo log without room for a block is `Invalid`.
pub async fn oltp_insert(vfs: &Vfs, plan: &OltpInsert, seed: u64) -> FsResult<OltpResult> {
    if plan.log_bytes < LOG_HEADER + 2 * LOG_BLOCK {
        return Err(wp_base::FsError::Invalid("oltp-insert: log_bytes: 3072 or more"));
    }
    let log = vfs.open("ib_logfile0", OpenFlags::CREATE, 0o660).await?;
    // InnoDB writes the whole log once, so that what follows allocates nothing.
    let mut at = 0;
    while at < plan.log_bytes {
        let n = (plan.log_bytes - at).min(MIB);
        at += vfs.pwrite(log, at, &[Slice::zero(n as u32)]).await?;
    }
    let table = vfs.open("sbtest1.ibd", OpenFlags::CREATE, 0o660).await?;
    let binlog = match plan.binlog {
        true => Some(vfs.open("binlog.000001", OpenFlags::CREATE, 0o660).await?),
        false => None,
    };
    vfs.sync().await?;
    let mut run = Run {
        vfs,
        plan,
        rng: Rng::stream(seed, "oltp-insert"),
        seed,
        log,
        table,
        binlog,
        log_at: LOG_HEADER,
        binlog_at: 0,
        result: OltpResult::default(),
    };
    let start = vfs.rt().now();
    for n in 0..plan.inserts {
        let from = vfs.rt().now();
        run.insert(n).await?;
        run.result.latency.add(vfs.rt().now().since(from).0);
    }
    let mut result = run.result;
    result.inserts = plan.inserts;
    result.elapsed_ns = vfs.rt().now().since(start).0;
    for fd in [Some(log), Some(table), binlog].into_iter().flatten() {
        vfs.close(fd).await?;
    }
    Ok(result)
}

struct Run<'a> {
    vfs: &'a Vfs,
    plan: &'a OltpInsert,
    rng: Rng,
    seed: u64,
    log: Fd,
    table: Fd,
    binlog: Option<Fd>,
    log_at: u64,
    binlog_at: u64,
    result: OltpResult,
}

impl Run<'_> {
    async fn insert(&mut self, n: u64) -> FsResult<()> {
        if self.plan.think_ns > 0 {
            self.vfs.rt().sleep(Span(self.plan.think_ns)).await;
        }
        if n > 0 && n.is_multiple_of(self.plan.rows_per_growth.max(1)) {
            self.grow().await?;
        }
        // One that fills its block goes on in the next: both are written.
        let advances = self.rng.below(100) < self.plan.advance_percent;
        let bytes = if advances { 2 * LOG_BLOCK } else { LOG_BLOCK };
        if self.log_at + bytes > self.plan.log_bytes {
            self.log_at = LOG_HEADER;
        }
        let data = Slice::pattern(mix64(self.seed ^ n << 8), 0, bytes as u32);
        self.vfs.pwrite(self.log, self.log_at, &[data]).await?;
        self.result.log_writes[usize::from(advances)] += 1;
        self.log_at += bytes - LOG_BLOCK;
        self.sync(self.log).await?;
        if let Some(fd) = self.binlog {
            let data =
                Slice::pattern(mix64(self.seed ^ n << 8 ^ 1), 0, self.plan.binlog_bytes as u32);
            self.binlog_at += self.vfs.pwrite(fd, self.binlog_at, &[data]).await?;
            self.sync(fd).await?;
        }
        Ok(())
    }

    async fn sync(&mut self, fd: Fd) -> FsResult<()> {
        self.result.syncs += 1;
        self.vfs.fdatasync(fd).await
    }

    /// The table's file is made a MiB longer, which is written, with three syncs about it.
    async fn grow(&mut self) -> FsResult<()> {
        let at = self.result.growths * GROWTH;
        let space = Reserve::Space { keep_size: false };
        self.vfs.fallocate(self.table, space, at, GROWTH).await?;
        self.sync(self.table).await?;
        let data = Slice::pattern(mix64(self.seed ^ at ^ 2), 0, GROWTH as u32);
        self.vfs.pwrite(self.table, at, &[data]).await?;
        self.sync(self.table).await?;
        self.sync(self.table).await?;
        self.result.growths += 1;
        Ok(())
    }
}
