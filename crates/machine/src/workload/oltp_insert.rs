//! sysbench's `oltp_insert` as InnoDB makes it (paper f2fs-oprw). What it does is in
//! `wp_workload::innodb`.

use wp_base::FsError;
use wp_cache::Fut;
use wp_vfs::{OptionError, OptionSpec, Options, Vfs, When};
use wp_workload::innodb::{OltpInsert, oltp_insert};

use super::{WorkloadEntry, WorkloadReport, number};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec { key: "inserts", when: When::Always, default: "10000", help: "number of inserts" },
    OptionSpec {
        key: "log_mib",
        when: When::Always,
        default: "96",
        help: "size of the circular redo log, MiB",
    },
    OptionSpec {
        key: "binlog",
        when: When::Always,
        default: "0",
        help: "1: also write a binary log, synced at each commit",
    },
    OptionSpec {
        key: "think_ns",
        when: When::Always,
        default: "0",
        help: "CPU time of server and client per insert, ns",
    },
    super::SEED,
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "oltp-insert",
    about: "one thread of autocommitted InnoDB inserts: redo-log write and fdatasync each",
    options: OPTIONS,
    check: |o| plan(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    room: |_, _| Vec::new(),
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

fn plan(o: &Options) -> Result<OltpInsert, OptionError> {
    super::check_seed(o)?;
    Ok(OltpInsert {
        inserts: number(o, OPTIONS, "inserts", 1..=1_000_000_000)?,
        log_bytes: number(o, OPTIONS, "log_mib", 1..=1 << 20)? << 20,
        binlog: number(o, OPTIONS, "binlog", 0..=1)? == 1,
        think_ns: number(o, OPTIONS, "think_ns", 0..=1_000_000_000)?,
        ..OltpInsert::default()
    })
}

async fn run(vfs: &Vfs, o: &Options) -> Result<WorkloadReport, FsError> {
    let plan = plan(o).map_err(|_| FsError::Invalid("workload options"))?;
    let seed = super::seed(vfs, o, "oltp-insert")?;
    let found = oltp_insert(vfs, &plan, seed).await?;
    let percentile = |share| found.latency.histogram.percentile(share).unwrap_or(0);
    let numbers = [
        ("inserts", found.inserts),
        ("elapsed_ns", found.elapsed_ns),
        ("inserts_per_s", found.per_second() as u64),
        ("insert_p50_ns", percentile(50_000_000)),
        ("insert_p99_ns", percentile(99_000_000)),
        ("log_writes_512", found.log_writes[0]),
        ("log_writes_1024", found.log_writes[1]),
        ("fdatasyncs", found.syncs),
        ("table_growths", found.growths),
    ];
    let numbers = numbers.map(|(k, v)| (k.to_owned(), v)).to_vec();
    Ok(WorkloadReport { numbers, ..WorkloadReport::default() })
}
