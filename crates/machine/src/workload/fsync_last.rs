//! The program of paper `ext4-fsync`: N files, one write to each, `fsync` of the last.
//!
//! Before the trace the files are made and everything is synced and idle, so that the directory,
//! the inode bitmap and the super block are not part of what is traced.

use wp_base::event::{Class, Event};
use wp_base::{FsError, FsResult, Span, Time};
use wp_cache::Fut;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, OptionError, OptionSpec, Options, Vfs, When};

use super::{WorkloadEntry, WorkloadReport};

/// Mark in the trace where the writes begin.
pub const MARK_WRITE: &str = "write";
/// Mark where fsync is called.
pub const MARK_FSYNC: &str = "fsync";
/// Mark where fsync returned.
pub const MARK_RETURN: &str = "fsync-return";
/// Mark where the watched time ends.
pub const MARK_END: &str = "end";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec { key: "n", when: When::Always, default: "10", help: "number of files" },
    OptionSpec {
        key: "case",
        when: When::Always,
        default: "alloc",
        help: "alloc: write to empty files; extend: append within the last block; over: overwrite",
    },
    OptionSpec {
        key: "bytes",
        when: When::Always,
        default: "3072",
        help: "file size after the write, bytes",
    },
    OptionSpec {
        key: "first",
        when: When::Always,
        default: "1024",
        help: "extend: file size before the write, bytes",
    },
    OptionSpec {
        key: "idle",
        when: When::Always,
        default: "34",
        help: "idle seconds before recording",
    },
    OptionSpec {
        key: "watch",
        when: When::Always,
        default: "76",
        help: "seconds to record after the fsync",
    },
    OptionSpec {
        key: "phase",
        when: When::Always,
        default: "1000",
        help: "start of the writes, us after a multiple of 20 ms (a timer tick at any HZ >= 50)",
    },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "fsync-last",
    about: "a small write to each of N files, fsync of the last (paper ext4-fsync)",
    options: OPTIONS,
    check: |o| Plan::of(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    room: |_, _| Vec::new(),
    run: |vfs, o| run(vfs, o),
};

/// The options as numbers.
#[derive(Clone, Copy, Debug)]
struct Plan {
    n: u32,
    case: Case,
    bytes: u32,
    first: u32,
    idle: u64,
    watch: u64,
    phase: u64,
}

/// Ticks of every HZ that kernels have (100, 250, 300, 1000) meet here.
const TICKS: Span = Span::millis(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Alloc,
    Extend,
    Over,
}

impl Plan {
    fn of(o: &Options) -> Result<Plan, OptionError> {
        let text = |key: &str| o.get(key, OPTIONS).unwrap_or_default().to_owned();
        let wrong = |key: &str, why: &str| OptionError {
            key: key.to_owned(),
            value: text(key),
            why: why.to_owned(),
        };
        let number = |key: &str, max: u64| -> Result<u64, OptionError> {
            let n: u64 = text(key).parse().map_err(|_| wrong(key, "a whole number is needed"))?;
            if n > max { Err(wrong(key, &format!("at most {max}"))) } else { Ok(n) }
        };
        let case = match text("case").as_str() {
            "alloc" => Case::Alloc,
            "extend" => Case::Extend,
            "over" => Case::Over,
            _ => return Err(wrong("case", "one of alloc, extend, over")),
        };
        let plan = Plan {
            n: number("n", 1_000_000)? as u32,
            case,
            bytes: number("bytes", 4096)? as u32,
            first: number("first", 4096)? as u32,
            idle: number("idle", 1_000_000)?,
            watch: number("watch", 1_000_000)?,
            phase: number("phase", TICKS.0 / 1000 - 1)?,
        };
        if plan.n == 0 {
            return Err(wrong("n", "at least 1"));
        }
        if plan.bytes == 0 || (case == Case::Extend && plan.first >= plan.bytes) {
            return Err(wrong("bytes", "more than `first`"));
        }
        Ok(plan)
    }
}

/// Contents of file `i`: a pattern that no other file and no earlier state has.
pub fn contents(i: u32, from: u32, bytes: u32, traced: bool) -> Slice {
    Slice::pattern(u64::from(i) * 2 + u64::from(traced) + 0x5EED_0000, u64::from(from), bytes)
}

fn run<'a>(vfs: &'a Vfs, options: &'a Options) -> Fut<'a, WorkloadReport> {
    Box::pin(async move {
        let plan = Plan::of(options).map_err(|_| FsError::Invalid("workload options"))?;
        prepare(vfs, &plan).await?;
        trace(vfs, &plan).await
    })
}

async fn prepare(vfs: &Vfs, plan: &Plan) -> FsResult<()> {
    let rt = vfs.rt();
    for i in 0..plan.n {
        let fd = vfs.open(&format!("f_{i}"), OpenFlags::CREATE, 0o644).await?;
        let before = match plan.case {
            Case::Alloc => 0,
            Case::Extend => plan.first,
            Case::Over => plan.bytes,
        };
        if before > 0 {
            vfs.pwrite(fd, 0, &[contents(i, 0, before, false)]).await?;
        }
        vfs.close(fd).await?;
    }
    vfs.sync().await?;
    vfs.sync().await?;
    rt.sleep(Span::secs(7)).await;
    vfs.sync().await?;
    rt.sleep(Span::secs(plan.idle)).await;
    // Whether two events fall into one tick decides what is old enough when: the phase is an input.
    let tick = rt.now().0.next_multiple_of(TICKS.0);
    rt.sleep_until(Time(tick + plan.phase * 1000)).await;
    Ok(())
}

fn mark(vfs: &Vfs, text: &'static str) {
    vfs.rt().emit(Class::MARK, || Event::Mark { text: text.into() });
}

async fn trace(vfs: &Vfs, plan: &Plan) -> FsResult<WorkloadReport> {
    let rt = vfs.rt();
    mark(vfs, MARK_WRITE);
    let write_start = rt.now();
    let mut last = None;
    for i in 0..plan.n {
        let fd = vfs.open(&format!("f_{i}"), OpenFlags::WRITE, 0).await?;
        let from = if plan.case == Case::Extend { plan.first } else { 0 };
        vfs.pwrite(fd, u64::from(from), &[contents(i, from, plan.bytes - from, true)]).await?;
        if i + 1 == plan.n {
            last = Some(fd);
        } else {
            vfs.close(fd).await?;
        }
    }
    let fd = last.ok_or(FsError::BadFile)?;
    mark(vfs, MARK_FSYNC);
    let start = rt.now();
    vfs.fsync(fd).await?;
    let end = rt.now();
    mark(vfs, MARK_RETURN);
    vfs.close(fd).await?;
    rt.sleep(Span::secs(plan.watch)).await;
    mark(vfs, MARK_END);
    Ok(WorkloadReport {
        numbers: vec![
            ("write_ns".to_owned(), start.since(write_start).0),
            ("fsync_ns".to_owned(), end.since(start).0),
        ],
        ..WorkloadReport::default()
    })
}
