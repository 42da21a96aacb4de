//! The program of paper `inode-trim`: files are made and synced, some or all are deleted, and a
//! minute goes by.

use serde::Serialize;
use wp_base::{FsError, FsResult, Span, Time};
use wp_cache::Fut;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, OptionError, OptionSpec, Options, Vfs, When};

use super::{WorkloadEntry, WorkloadReport, number};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec { key: "n", when: When::Always, default: "2000", help: "number of files" },
    OptionSpec { key: "bytes", when: When::Always, default: "4096", help: "bytes per file" },
    OptionSpec {
        key: "prefix",
        when: When::Always,
        default: "fio.0.",
        help: "prefix of file names; a number follows",
    },
    OptionSpec {
        key: "directory",
        when: When::Always,
        default: "0",
        help: "1: create them in their own directory",
    },
    OptionSpec {
        key: "delete",
        when: When::Always,
        default: "all",
        help: "all; half: every second file; 15of16: all but the first of each inode-table block",
    },
    OptionSpec {
        key: "inodes_per_block",
        when: When::Always,
        default: "16",
        help: "delete=15of16: inodes per inode-table block",
    },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "create-delete",
    about: "create files, sync, delete them, sync (paper inode-trim)",
    options: OPTIONS,
    check: |o| Plan::of(o).map(|_| ()),
    inputs: |_| Ok(Vec::new()),
    room: |_, _| Vec::new(),
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

/// Which files go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deleted {
    /// Every one.
    All,
    /// Every second one.
    Half,
    /// All but the one whose inode is the first of its block.
    AllButOneOfABlock,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Files.
    pub files: u32,
    /// Bytes of each.
    pub bytes: u32,
    /// What their names begin with; a number follows.
    pub name: String,
    /// Are they in a directory of their own?
    pub in_directory: bool,
    /// Which go.
    pub deleted: Deleted,
    /// Inodes of a block of the table.
    pub inodes_per_block: u64,
}

impl Plan {
    fn of(o: &Options) -> Result<Plan, OptionError> {
        let text = |key: &str| o.get(key, OPTIONS).unwrap_or_default().to_owned();
        let wrong = |key: &str, why: &str| OptionError {
            key: key.to_owned(),
            value: text(key),
            why: why.to_owned(),
        };
        let name = text("prefix");
        if name.is_empty() || name.len() > 200 || name.contains('/') {
            return Err(wrong("prefix", "the beginning of a file name, without `/`"));
        }
        let deleted = match text("delete").as_str() {
            "all" => Deleted::All,
            "half" => Deleted::Half,
            "15of16" => Deleted::AllButOneOfABlock,
            _ => return Err(wrong("delete", "one of all, half, 15of16")),
        };
        Ok(Plan {
            files: number(o, OPTIONS, "n", 1..=1_000_000)? as u32,
            bytes: number(o, OPTIONS, "bytes", 1..=1 << 20)? as u32,
            name,
            in_directory: number(o, OPTIONS, "directory", 0..=1)? == 1,
            deleted,
            inodes_per_block: number(o, OPTIONS, "inodes_per_block", 1..=64)?,
        })
    }
}

/// When what was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moments {
    /// `sync` has returned behind the last unlink, and a second has passed.
    pub deleted: Time,
    /// A minute later: what was dirty has been written back.
    pub written_back: Time,
}

/// Makes the files, syncs, deletes them, syncs, and waits a minute. Errors: as the system calls.
pub async fn play(v: &Vfs, plan: &Plan) -> FsResult<Moments> {
    let directory = if plan.in_directory { "files/" } else { "" };
    if plan.in_directory {
        v.mkdir("files", 0o755).await?;
    }
    let name = |n: u32| format!("{directory}{}{n}", plan.name);
    for n in 0..plan.files {
        let fd = v.open(&name(n), OpenFlags::CREATE, 0o644).await?;
        v.pwrite(fd, 0, &[Slice::pattern(u64::from(n), 0, plan.bytes)]).await?;
        v.close(fd).await?;
    }
    v.sync().await?;
    for n in 0..plan.files {
        let goes = match plan.deleted {
            Deleted::All => true,
            Deleted::Half => n % 2 == 0,
            Deleted::AllButOneOfABlock => {
                (v.stat(&name(n)).await?.ino.0 - 1) % plan.inodes_per_block != 0
            }
        };
        if goes {
            v.unlink(&name(n)).await?;
        }
    }
    v.sync().await?;
    // A worker may have discards to send.
    v.rt().sleep(Span::secs(1)).await;
    let deleted = v.rt().now();
    v.rt().sleep(Span::secs(60)).await;
    Ok(Moments { deleted, written_back: v.rt().now() })
}

async fn run(vfs: &Vfs, o: &Options) -> FsResult<WorkloadReport> {
    let plan = Plan::of(o).map_err(|_| FsError::Invalid("workload options"))?;
    let from = vfs.rt().now();
    let moments = play(vfs, &plan).await?;
    let numbers = vec![
        ("files".to_owned(), u64::from(plan.files)),
        ("elapsed_ns".to_owned(), moments.deleted.since(from).0),
    ];
    Ok(WorkloadReport { numbers, ..WorkloadReport::default() })
}
