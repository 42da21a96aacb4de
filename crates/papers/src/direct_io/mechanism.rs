//! What each file system does to blocks, journal and log when it is written past the cache: counted
//! in our own traces, named by the image's bytes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wp_base::event::{BlockAction, Class, Event, Op, Record};
use wp_base::{FsResult, Span};
use wp_machine::{Machine, MachineError};
use wp_medium::Slice;
use wp_report::document::nullable;
use wp_vfs::{BlockMap, Fd, OpenFlags, Vfs};
use wp_workload::mobibench::{MobiBench, order};

use super::run::{Plan, System};

/// Bytes of the file.
const FILE: u64 = 16 << 20;
/// Bytes of the partition: a small one, for every block of it is named.
const PARTITION: u64 = 1 << 30;
/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Until nothing is left to be written.
const SETTLED: Span = Span::secs(70);
/// The task that writes.
const TASK: &str = "direct";

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Does each write make the file longer? Else it is over what is there.
    pub extends: bool,
    /// Bytes of a write.
    pub bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Over what is there: out of order?
    pub at_random: bool,
}

impl Case {
    /// 4 KiB over what is there.
    pub const OVER: Case = Case { extends: false, bytes: BLOCK, writes: 256, at_random: true };
    /// The table's cases. Numbers and sizes of the writes are those of the runs of real kernels, so
    /// that both can be compared.
    pub const ALL: [Case; 3] = [
        Case::OVER,
        Case { extends: false, bytes: 1 << 20, writes: 16, at_random: true },
        Case { extends: true, bytes: BLOCK, writes: 256, at_random: false },
    ];

    /// Its name in reports.
    pub fn name(&self) -> String {
        let what = if self.extends { "extend by" } else { "over" };
        let size = if self.bytes >= 1 << 20 {
            format!("{} MiB", self.bytes >> 20)
        } else {
            format!("{} KiB", self.bytes >> 10)
        };
        format!("{what} {size}, {} times", self.writes)
    }

    fn places(&self) -> Vec<u64> {
        let mut all: Vec<u64> = match self.at_random && !self.extends {
            true => order(FILE / self.bytes),
            false => (0..self.writes).collect(),
        };
        all.truncate(self.writes as usize);
        all
    }
}

/// What went to the device while something was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Bios that write.
    pub bios: u64,
    /// Those of them that begin where the one before ended.
    pub next: u64,
    /// Flushes.
    pub flushes: u64,
    /// Blocks by the task that sent them.
    pub by_task: BTreeMap<String, u64>,
    /// Blocks by what they are.
    pub by_class: BTreeMap<String, u64>,
}

impl Sent {
    /// Blocks that are not the file's.
    pub fn metadata(&self) -> u64 {
        self.by_class.iter().filter(|(class, _)| *class != "data").map(|(_, n)| n).sum()
    }

    /// Blocks of a class.
    pub fn of(&self, class: &str) -> u64 {
        self.by_class.get(class).copied().unwrap_or(0)
    }

    /// Blocks that a task sent.
    pub fn sent_by(&self, task: &str) -> u64 {
        self.by_task.get(task).copied().unwrap_or(0)
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mechanism {
    /// System.
    pub system: String,
    /// What was written.
    pub case: Case,
    /// Share of the file's blocks that were written elsewhere than where blocks of it lay; nothing
    /// of those that lay nowhere.
    #[serde(deserialize_with = "nullable")]
    pub moved: Option<f64>,
    /// During the writes.
    pub writes: Sent,
    /// During the fdatasync behind them, which need not write what only times have changed.
    pub fdatasync: Sent,
    /// During the fsync behind that.
    pub fsync: Sent,
    /// What the mount has to tell its user.
    pub notes: Vec<String>,
}

impl Mechanism {
    /// Blocks that the writing task sent during the writes.
    pub fn own_blocks(&self) -> u64 {
        self.writes.sent_by(TASK)
    }
}

async fn fill(v: &Vfs, extends: bool) -> FsResult<()> {
    let fd = v.open("/f", OpenFlags::CREATE, 0o644).await?;
    if !extends {
        let step = 512 << 10;
        for at in (0..FILE).step_by(step) {
            v.pwrite(fd, at, &[Slice::pattern(0, at, step as u32)]).await?;
        }
    }
    v.fsync(fd).await?;
    v.close(fd).await?;
    v.sync().await?;
    v.rt().sleep(SETTLED).await;
    v.fs().drop_caches();
    Ok(())
}

/// Does something on the machine; the events of that. Errors: as the machine's.
fn step<T: 'static>(
    machine: &Machine,
    what: impl Future<Output = FsResult<T>> + 'static,
) -> Result<(T, Vec<Record>), MachineError> {
    let out = machine
        .block_on(TASK, what)?
        .map_err(|error| MachineError::Fs { during: "direct writes", error })?;
    Ok((out, machine.rt.probe().take()))
}

/// Names blocks by two images: what the first does not know, the second may.
struct Names {
    start: u64,
    maps: Vec<Box<dyn BlockMap>>,
}

impl Names {
    fn read(machine: &Machine) -> Result<Box<dyn BlockMap>, MachineError> {
        let view = machine.view();
        (machine.spec().fs.blocks)(&view)
            .map_err(|error| MachineError::Fs { during: "classes of blocks", error })
    }

    fn class(&self, block: u64) -> &'static str {
        // A block of a log that a later one has replaced is in neither. (btrfs tells what a free
        // block is kept for.)
        let is_free =
            |c: &&str| *c == "free" || (c.starts_with("free_") && *c != "free_space_tree");
        let mut named = self.maps.iter().map(|m| m.class(block)).filter(|c| !is_free(c));
        named.next().unwrap_or("replaced")
    }

    /// Blocks of the partition that an event covers.
    fn blocks(&self, r: &Record) -> std::ops::Range<u64> {
        match r.event {
            Event::Block { at, sectors, .. } => {
                let first = (at.0 - self.start) / 8;
                first..first + u64::from(sectors) / 8
            }
            _ => 0..0,
        }
    }

    fn sent(&self, records: &[Record]) -> Sent {
        let (mut out, mut end) = (Sent::default(), None);
        for r in records {
            let Event::Block { action, op, at, sectors, .. } = r.event else { continue };
            match (action, op) {
                (BlockAction::Issue, Op::Flush) => out.flushes += 1,
                (BlockAction::Queue, Op::Write) if sectors > 0 => {
                    out.bios += 1;
                    out.next += u64::from(end == Some(at.0));
                    end = Some(at.0 + u64::from(sectors));
                    for block in self.blocks(r) {
                        *out.by_task.entry(r.task.to_string()).or_default() += 1;
                        *out.by_class.entry(self.class(block).to_owned()).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        out
    }
}

/// Blocks of the partition that hold data of files.
fn data_blocks(map: &dyn BlockMap) -> BTreeSet<u64> {
    (0..PARTITION / BLOCK).filter(|b| map.class(*b) == "data").collect()
}

/// Counts what a system does in one case. Errors: as the machine's.
pub fn mechanism(system: System, case: Case, seed: u64) -> Result<Mechanism, MachineError> {
    let mut plan = Plan::paper(system, MobiBench::default(), seed);
    plan.bytes = Some(PARTITION);
    let machine = Machine::new(plan.spec()?, None)?;
    let vfs = machine.mount()?;
    let v = vfs.clone();
    step(&machine, async move { fill(&v, case.extends).await })?;
    let before = data_blocks(&*Names::read(&machine)?);
    machine.record(Class::BLOCK);
    let v = vfs.clone();
    let (fd, writes): (Fd, _) = step(&machine, async move {
        let fd = v.open("/f", OpenFlags { direct: true, ..OpenFlags::WRITE }, 0).await?;
        for place in case.places() {
            let at = place * case.bytes;
            v.pwrite(fd, at, &[Slice::pattern(1, at, case.bytes as u32)]).await?;
        }
        Ok(fd)
    })?;
    let v = vfs.clone();
    let ((), fdatasync) = step(&machine, async move { v.fdatasync(fd).await })?;
    let v = vfs.clone();
    let ((), fsync) = step(&machine, async move { v.fsync(fd).await })?;
    machine.record(Class(0));
    let now = Names::read(&machine)?;
    let v = vfs.clone();
    step(&machine, async move {
        v.close(fd).await?;
        v.sync().await?;
        v.rt().sleep(SETTLED).await;
        Ok(())
    })?;
    let names = Names { start: plan.spec()?.start.0, maps: vec![now, Names::read(&machine)?] };
    let sent = writes.iter().filter(|r| {
        matches!(r.event, Event::Block { action: BlockAction::Queue, op: Op::Write, .. })
    });
    let data: Vec<u64> =
        sent.flat_map(|r| names.blocks(r)).filter(|b| names.class(*b) == "data").collect();
    let moved = data.iter().filter(|b| !before.contains(b)).count();
    let notes = vfs.fs().notes();
    let row = Mechanism {
        system: system.name().to_owned(),
        case,
        moved: (!case.extends).then(|| moved as f64 / data.len().max(1) as f64),
        writes: names.sent(&writes),
        fdatasync: names.sent(&fdatasync),
        fsync: names.sent(&fsync),
        notes,
    };
    machine.unmount(&vfs)?;
    Ok(row)
}
