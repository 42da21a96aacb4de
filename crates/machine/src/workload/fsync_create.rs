//! N new files, one small write to each, `fsync` of the last; then the same over what is there.
//!
//! The program of the recorded runs of Linux 6.18: unlike `fsync-last` it makes its files in the
//! traced part, so the directory, the inode bitmap and the super block are part of what is seen.

use wp_base::event::{Class, Event};
use wp_base::{FsError, FsResult, Span};
use wp_cache::Fut;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, OptionError, OptionSpec, Options, Vfs, When};

use super::{WorkloadEntry, WorkloadReport};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec { key: "n", when: When::Always, default: "10", help: "number of files" },
    OptionSpec { key: "bytes", when: When::Always, default: "2048", help: "length of each file" },
    OptionSpec {
        key: "watch",
        when: When::Always,
        default: "70",
        help: "seconds to record after each fsync",
    },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "fsync-create",
    about: "write N new small files, fsync the last; then overwrite them and fsync again",
    options: OPTIONS,
    check: |o| Plan::of(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    room: |_, _| Vec::new(),
    run: |vfs, o| run(vfs, o),
};

/// The two parts, in order: files are made, files are written over.
pub const CASES: [&str; 2] = ["alloc", "over"];

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Files.
    pub files: u32,
    /// Bytes written to each.
    pub bytes: u32,
    /// Milliseconds to record after each fsync, by case.
    pub watch_ms: [u64; 2],
    /// Milliseconds after the fsync at which somebody else calls `sync`, by case.
    pub syncs_ms: [Vec<u64>; 2],
}

impl Plan {
    fn of(o: &Options) -> Result<Plan, OptionError> {
        let number =
            |key: &str, range: std::ops::RangeInclusive<u64>| -> Result<u64, OptionError> {
                let text = o.get(key, OPTIONS).unwrap_or_default();
                text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| OptionError {
                    key: key.to_owned(),
                    value: text.to_owned(),
                    why: format!("a whole number from {} to {}", range.start(), range.end()),
                })
            };
        let watch = number("watch", 0..=1_000_000)? * 1000;
        Ok(Plan {
            files: number("n", 1..=1_000_000)? as u32,
            bytes: number("bytes", 1..=4096)? as u32,
            watch_ms: [watch, watch],
            syncs_ms: [Vec::new(), Vec::new()],
        })
    }
}

/// A moment of the run that the trace marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Files are made or opened, and written.
    Write,
    /// `fsync` is called. Its mark is that of `fsync-last` in the first part, so that what explains
    /// an fsync finds this one too.
    Fsync,
    /// It has returned.
    Return,
    /// Watching ends; `sync` is called.
    Sync,
    /// That has returned.
    End,
}

impl Moment {
    /// The text of its mark in case `case` (an index of [`CASES`]).
    pub fn mark(self, case: usize) -> &'static str {
        use super::fsync_last::{MARK_END, MARK_FSYNC, MARK_RETURN, MARK_WRITE};
        match (self, case) {
            (Moment::Write, 0) => MARK_WRITE,
            (Moment::Fsync, 0) => MARK_FSYNC,
            (Moment::Return, 0) => MARK_RETURN,
            (Moment::Sync, 0) => "sync",
            (Moment::End, 0) => MARK_END,
            (Moment::Write, _) => "over-write",
            (Moment::Fsync, _) => "over-fsync",
            (Moment::Return, _) => "over-fsync-return",
            (Moment::Sync, _) => "over-sync",
            (Moment::End, _) => "over-end",
        }
    }
}

fn mark(vfs: &Vfs, moment: Moment, case: usize) {
    let text = moment.mark(case);
    vfs.rt().emit(Class::MARK, || Event::Mark { text: text.into() });
}

fn run<'a>(vfs: &'a Vfs, options: &'a Options) -> Fut<'a, WorkloadReport> {
    Box::pin(async move {
        let plan = Plan::of(options).map_err(|_| FsError::Invalid("workload options"))?;
        play(vfs, &plan).await
    })
}

/// Runs both parts. Errors: what the file system answers.
pub async fn play(vfs: &Vfs, plan: &Plan) -> FsResult<WorkloadReport> {
    vfs.sync().await?;
    vfs.rt().sleep(Span::secs(1)).await;
    let mut numbers = Vec::new();
    for (case, name) in CASES.iter().enumerate() {
        let ns = part(vfs, plan, case).await?;
        let key = if case == 0 { "fsync_ns".to_owned() } else { format!("{name}_fsync_ns") };
        numbers.push((key, ns));
    }
    Ok(WorkloadReport { numbers, ..WorkloadReport::default() })
}

async fn part(vfs: &Vfs, plan: &Plan, case: usize) -> FsResult<u64> {
    let rt = vfs.rt();
    mark(vfs, Moment::Write, case);
    let flags = if case == 0 { OpenFlags::CREATE } else { OpenFlags::WRITE };
    let mut last = None;
    for i in 0..plan.files {
        let fd = vfs.open(&format!("f_{i}"), flags, 0o644).await?;
        let id = u64::from(i) * 2 + case as u64 + 0x5EED_0000;
        vfs.pwrite(fd, 0, &[Slice::pattern(id, 0, plan.bytes)]).await?;
        if i + 1 == plan.files {
            last = Some(fd);
        } else {
            vfs.close(fd).await?;
        }
    }
    let fd = last.ok_or(FsError::BadFile)?;
    mark(vfs, Moment::Fsync, case);
    let start = rt.now();
    vfs.fsync(fd).await?;
    let took = rt.now().since(start).0;
    mark(vfs, Moment::Return, case);
    vfs.close(fd).await?;
    let others: Vec<_> = plan.syncs_ms[case]
        .iter()
        .map(|ms| {
            let (vfs, at) = (vfs.clone(), Span::millis(*ms));
            rt.spawn("sync", async move {
                vfs.rt().sleep(at).await;
                vfs.sync().await
            })
        })
        .collect();
    rt.sleep(Span::millis(plan.watch_ms[case])).await;
    for other in others {
        other.await?;
    }
    mark(vfs, Moment::Sync, case);
    vfs.sync().await?;
    mark(vfs, Moment::End, case);
    Ok(took)
}
