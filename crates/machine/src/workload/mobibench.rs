//! MobiBench's file test. What it does is in `wp_workload::mobibench`.

use wp_base::FsError;
use wp_cache::Fut;
use wp_vfs::{OptionError, OptionSpec, Options, Vfs, When};
use wp_workload::mobibench::{Access, MobiBench, Sync, Version, mobibench};

use super::{WorkloadEntry, WorkloadReport, number};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "access",
        when: When::Always,
        default: "write",
        help: "-a: write, randwrite, read, randread, append",
    },
    OptionSpec {
        key: "sync",
        when: When::Always,
        default: "normal",
        help: "-y: normal, osync, fsync, direct, sync+direct, fdatasync, fbarrier, fdatabarrier",
    },
    OptionSpec {
        key: "file_kib",
        when: When::Always,
        default: "1024",
        help: "-f: total file size, KiB",
    },
    OptionSpec {
        key: "record_kib",
        when: When::Always,
        default: "4",
        help: "-r: record size, KiB",
    },
    OptionSpec { key: "threads", when: When::Always, default: "1", help: "-t: threads" },
    OptionSpec {
        key: "version",
        when: When::Always,
        default: "2014",
        help: "2014: sequential writes go to a new file; 2020: to a file that is filled first",
    },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "mobibench",
    about: "file test of MobiBench: sequential or random records, fsync at the end",
    options: OPTIONS,
    check: |o| plan(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    room: |_, _| Vec::new(),
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

/// One of several by its name. Errors: another.
fn one_of<T: Copy>(
    o: &Options,
    key: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, OptionError> {
    let text = o.get(key, OPTIONS).unwrap_or_default();
    all.iter().copied().find(|t| name(*t) == text).ok_or_else(|| OptionError {
        key: key.to_owned(),
        value: text.to_owned(),
        why: format!("one of {}", all.iter().map(|t| name(*t)).collect::<Vec<_>>().join(", ")),
    })
}

fn plan(o: &Options) -> Result<MobiBench, OptionError> {
    let version = |v| if v == Version::Y2014 { "2014" } else { "2020" };
    let plan = MobiBench {
        file_bytes: number(o, OPTIONS, "file_kib", 1..=1 << 30)? << 10,
        record_bytes: number(o, OPTIONS, "record_kib", 1..=1 << 20)? << 10,
        access: one_of(o, "access", &Access::ALL, Access::name)?,
        sync: one_of(o, "sync", &Sync::ALL, Sync::name)?,
        threads: number(o, OPTIONS, "threads", 1..=100)? as u32,
        version: one_of(o, "version", &[Version::Y2014, Version::Y2020], version)?,
    };
    let error = |key: &str, why: &str| OptionError {
        key: key.to_owned(),
        value: o.get(key, OPTIONS).unwrap_or_default().to_owned(),
        why: why.to_owned(),
    };
    if plan.access == Access::Append && plan.version == Version::Y2014 {
        return Err(error("access", "append exists since 2020: with version=2014 use write"));
    }
    if plan.file_bytes / u64::from(plan.threads) < plan.record_bytes {
        return Err(error("record_kib", "a thread's part of the file is shorter than a record"));
    }
    Ok(plan)
}

async fn run(vfs: &Vfs, o: &Options) -> Result<WorkloadReport, FsError> {
    let plan = plan(o).map_err(|_| FsError::Invalid("workload options"))?;
    let found = mobibench(vfs, &plan, &|| {}).await?;
    let percentile = |share| found.latency.histogram.percentile(share).unwrap_or(0);
    let numbers = [
        ("records", found.records),
        ("bytes", found.bytes),
        ("elapsed_ns", found.elapsed_ns),
        ("kib_per_s", (found.mib_per_s() * 1024.0) as u64),
        ("iops", found.iops() as u64),
        ("record_p50_ns", percentile(50_000_000)),
        ("record_p99_ns", percentile(99_000_000)),
    ];
    let numbers = numbers.map(|(k, v)| (k.to_owned(), v)).to_vec();
    Ok(WorkloadReport { numbers, ..WorkloadReport::default() })
}
