//! filebench's `varmail` (paper f2fs-oprw; paper journal-conflict). What it does is in
//! `wp_workload::filebench`;
//! it is `filebench,personality=varmail` with options of its own.

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
        help: "files of the set; about 80 % of them exist at the start",
    },
    OptionSpec {
        key: "seconds",
        when: When::Always,
        default: "60",
        help: "seconds to run; 0: run `loops`",
    },
    OptionSpec {
        key: "loops",
        when: When::Always,
        default: "1000",
        help: "with seconds=0: passes of each thread through the list",
    },
    OptionSpec {
        key: "flowop_ns",
        when: When::Always,
        default: "0",
        help: "CPU time of a thread per flowop, ns",
    },
    super::SEED,
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "varmail",
    about: "mail server of filebench: 13 flowops per loop, 2 of them fsync",
    options: OPTIONS,
    check: |o| plan(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    room: |_, _| Vec::new(),
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

fn plan(o: &Options) -> Result<(Personality, RunLength), OptionError> {
    super::check_seed(o)?;
    let threads = number(o, OPTIONS, "threads", 1..=1024)?;
    let files = number(o, OPTIONS, "files", 5..=1_000_000)?;
    let given = [("nthreads", threads), ("nfiles", files)];
    let given = given.map(|(name, n)| (name.to_owned(), n.to_string())).into();
    let mut personality =
        filebench::built_in("varmail", &given).expect("it comes with it").personality;
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
    let seed = super::seed(vfs, o, "varmail")?;
    let found = filebench::run(vfs, &personality, length, seed).await?;
    Ok(super::filebench::report(&found))
}
