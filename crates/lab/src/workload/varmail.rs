//! filebench's `varmail` (paper f2fs-oprw; paper journal-conflict). What it does is in
//! `wp_workload::filebench`.

use wp_base::{FsError, Span};
use wp_cache::Fut;
use wp_vfs::{OptionError, OptionSpec, Options, Vfs, When};
use wp_workload::filebench::{self, Personality, RunLength};

use super::{WorkloadEntry, WorkloadReport, number};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec { key: "threads", when: When::Always, default: "16", help: "threads" },
    OptionSpec {
        key: "files",
        when: When::Always,
        default: "1000",
        help: "files of the set, four fifths of which are there at the start",
    },
    OptionSpec {
        key: "seconds",
        when: When::Always,
        default: "60",
        help: "how long it runs; 0: for `loops`",
    },
    OptionSpec {
        key: "loops",
        when: When::Always,
        default: "1000",
        help: "with seconds=0: times that each thread goes through the list",
    },
    OptionSpec {
        key: "flowop_ns",
        when: When::Always,
        default: "0",
        help: "nanoseconds of a thread's own computing for each flowop",
    },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "varmail",
    about: "filebench's mail server: 13 flowops a loop, 2 of them fsync",
    options: OPTIONS,
    check: |o| plan(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

fn plan(o: &Options) -> Result<(Personality, RunLength), OptionError> {
    let threads = number(o, OPTIONS, "threads", 1..=1024)? as u32;
    let mut personality = filebench::varmail(threads);
    personality.fileset.entries = number(o, OPTIONS, "files", 5..=1_000_000)? as u32;
    personality.flowop_ns = number(o, OPTIONS, "flowop_ns", 0..=1_000_000_000)?;
    let loops = number(o, OPTIONS, "loops", 1..=1_000_000_000)?;
    let length = match number(o, OPTIONS, "seconds", 0..=1_000_000)? {
        0 => RunLength::Loops(loops),
        n => RunLength::Time(Span::secs(n)),
    };
    Ok((personality, length))
}

async fn run(vfs: &Vfs, o: &Options) -> Result<WorkloadReport, FsError> {
    let (personality, length) = plan(o).map_err(|_| FsError::Invalid("workload options"))?;
    let seed = vfs.rt().rng("varmail").next_u64();
    let found = filebench::run(vfs, &personality, length, seed).await?;
    let mut report = WorkloadReport::default();
    let mut add = |key: &str, n: u64| report.numbers.push((key.to_owned(), n));
    add("operations", found.operations());
    add("elapsed_ns", found.elapsed_ns);
    add("operations_per_s", found.ops_per_second() as u64);
    add("loops", found.loops);
    add("written_bytes", found.written);
    add("read_bytes", found.read);
    add("files", found.files);
    for (name, op) in &found.ops {
        add(&format!("{name}.count"), op.count);
        let percentile = |share| op.latency.histogram.percentile(share).unwrap_or(0);
        add(&format!("{name}.p50_ns"), percentile(50_000_000));
        add(&format!("{name}.p99_ns"), percentile(99_000_000));
    }
    Ok(report)
}
