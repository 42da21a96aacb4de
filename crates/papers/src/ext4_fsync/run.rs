//! One run of the paper's program: the plan, and what it left.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::Sector;
use wp_base::event::{BlockAction, Class, Event, Op, Record};
use wp_machine::classify::{Classifier, mark};
use wp_machine::profile::Profile;
use wp_machine::workload::fsync_last::{self, MARK_FSYNC, MARK_RETURN};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_medium::{MediumView, View};
use wp_parity::reference::{Filed, RunSummary, TraceLine, summarise};
use wp_rt::CpuModel;
use wp_vfs::{Options, Vfs};

use super::{PARTITION_SECTORS, PARTITION_START};

/// What to run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Kernel era.
    pub era: String,
    /// `alloc`, `extend`, `over`.
    pub case: String,
    /// Files.
    pub files: u32,
    /// Elevator.
    pub elevator: String,
    /// Device preset.
    pub device: String,
    /// Delayed allocation off?
    pub nodelalloc: bool,
    /// Mounted `dioread_lock`?
    pub dioread_lock: bool,
    /// Features of the image, if not those of its era.
    pub features: Option<&'static str>,
    /// Replaced device parameters.
    pub device_params: Vec<(String, u64)>,
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Seed.
    pub seed: u64,
    /// Seconds watched after the fsync.
    pub watch: u64,
    /// Bytes of each file afterwards.
    pub bytes: u32,
    /// `extend`: bytes that are there before.
    pub first: u32,
    /// Microseconds after a tick of the kernel at which the writes begin.
    pub phase: u64,
    /// First sector of the partition, and its length in sectors.
    pub partition: (Sector, u64),
}

impl RunPlan {
    /// The paper's PC.
    pub fn paper(era: &str, case: &str, files: u32, seed: u64) -> RunPlan {
        RunPlan {
            era: era.to_owned(),
            case: case.to_owned(),
            files,
            elevator: "cfq".to_owned(),
            device: "ssd-128".to_owned(),
            nodelalloc: false,
            dioread_lock: false,
            features: None,
            device_params: Vec::new(),
            cpu: Profile::known(PC).model(),
            seed,
            watch: 76,
            bytes: 3072,
            first: 1024,
            phase: 1000,
            partition: (PARTITION_START, PARTITION_SECTORS),
        }
    }

    /// Figures 10 and 11 on the paper's phone: its eMMC, its CPU, and the last 12 GiB of the device
    /// (assumed: as large as the user's partition of a 16 GB phone).
    pub fn phone(era: &str, case: &str, files: u32, seed: u64) -> RunPlan {
        const SECTORS: u64 = 12 << 21;
        let total = 15_758_000_128 / wp_base::SECTOR_BYTES;
        RunPlan {
            device: "emmc-16".to_owned(),
            cpu: Profile::known("snapdragon-800").model(),
            partition: (Sector(total - SECTORS), SECTORS),
            ..RunPlan::figure_10(era, case, files, seed)
        }
    }

    /// The runs of figures 10 and 11: writes of 2 KB, nothing watched afterwards.
    pub fn figure_10(era: &str, case: &str, files: u32, seed: u64) -> RunPlan {
        let bytes = if case == "extend" { 4096 } else { 2048 };
        RunPlan { bytes, first: 2048, watch: 3, ..RunPlan::paper(era, case, files, seed) }
    }

    /// A short name for progress and results.
    pub fn name(&self) -> String {
        format!("{}-{}-n{}", self.era, self.case, self.files)
    }
}

/// CPU profile of the paper's PC.
pub(super) const PC: &str = "i7-4770";

/// What a run left.
pub struct RunOutcome {
    /// The plan.
    pub plan: RunPlan,
    /// Every event of the run's traced part.
    pub records: Vec<Record>,
    /// Block and journal events with the classes of their blocks.
    pub lines: Vec<TraceLine>,
    /// Summary in the references' terms.
    pub summary: RunSummary,
    /// Duration of the fsync.
    pub fsync_ns: u64,
    /// Per file: is its data on the medium when fsync returns?
    pub data_on_disk: Vec<bool>,
    /// Per file: is the inode-table block that holds its inode in the journal when fsync returns?
    pub table_logged: Vec<bool>,
    /// Per file: does a logged copy of its inode have this write's size?
    pub size_logged: Vec<bool>,
    /// Metadata blocks in the journal when fsync returns: neither descriptors nor commit records.
    pub metadata_logged: u32,
    /// The partition after a clean unmount.
    pub image: MediumView,
}

pub(super) fn config(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// A machine on which the program has run.
struct Played {
    machine: Machine,
    vfs: Vfs,
    options: Options,
    numbers: Vec<(String, u64)>,
}

/// Runs the program on a fresh file system, recording `classes`.
fn play(plan: &RunPlan, classes: Class) -> Result<Played, MachineError> {
    let fs = wp_machine::registry::find(
        "file system",
        wp_machine::registry::FILE_SYSTEMS,
        |f| f.name,
        "ext4",
    )
    .map_err(config)?;
    let mut text = format!("era={}", plan.era);
    if plan.nodelalloc {
        text.push_str(",nodelalloc");
    }
    if plan.dioread_lock {
        text.push_str(",dioread_lock");
    }
    if let Some(features) = plan.features {
        text.push_str(",features=");
        text.push_str(features);
    }
    let fs_options = Options::parse(&text, fs.options).map_err(config)?;
    let version = wp_vfs::Version::parse(&plan.era)
        .ok_or_else(|| config(format!("`{}` is not a kernel version", plan.era)))?;
    let spec = MachineSpec {
        seed: plan.seed,
        cpu: plan.cpu.clone(),
        device: plan.device.clone(),
        device_params: plan.device_params.clone(),
        more: Vec::new(),
        elevator: plan.elevator.clone(),
        start: plan.partition.0,
        sectors: Some(plan.partition.1),
        fs,
        fs_options: fs_options.clone(),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (version.0, version.1),
    };
    let machine = Machine::new(spec, None)?;
    let vfs = machine.mount()?;
    machine.record(classes);
    let workload = Options::parse(
        &format!(
            "n={},case={},watch={},bytes={},first={},phase={}",
            plan.files, plan.case, plan.watch, plan.bytes, plan.first, plan.phase
        ),
        fsync_last::ENTRY.options,
    )
    .map_err(config)?;
    let v = vfs.clone();
    let report =
        machine.block_on("w2", async move { (fsync_last::ENTRY.run)(&v, &workload).await })?;
    let report = report.map_err(|error| MachineError::Fs { during: "workload", error })?;
    Ok(Played { machine, vfs, options: fs_options, numbers: report.numbers })
}

/// Runs one case on a fresh file system.
pub fn run(plan: &RunPlan) -> Result<RunOutcome, MachineError> {
    let classes = Class::BLOCK.0 | Class::JBD2.0 | Class::SYSCALL.0 | Class::MARK.0;
    let Played { machine, vfs, options, numbers } = play(plan, Class(classes))?;
    let records = machine.rt.probe().take();
    machine.record(Class(0));
    machine.unmount(&vfs)?;
    let view = machine.view();
    finish(plan, &machine, records, view, &options, numbers)
}

/// What the fsync did, in short.
pub struct Short {
    /// How long the fsync took, nanoseconds.
    pub fsync_ns: u64,
    /// Data blocks that it wrote.
    pub data_blocks: u32,
}

/// Only how long the fsync takes and how much data it writes: nothing is watched afterwards.
pub fn short(plan: &RunPlan) -> Result<Short, MachineError> {
    let plan = RunPlan { watch: 0, ..plan.clone() };
    let Played { machine, vfs, numbers, .. } = play(&plan, Class(Class::BLOCK.0 | Class::MARK.0))?;
    let records = machine.rt.probe().take();
    let found = numbers.iter().find(|(k, _)| k == "fsync_ns").map(|(_, v)| *v);
    drop(vfs);
    let journal = journal_sectors(&plan, &machine)
        .map_err(|error| MachineError::Fs { during: "reading the image", error })?;
    let fsync_ns = found.ok_or_else(|| config("the workload says nothing of its fsync"))?;
    Ok(Short { fsync_ns, data_blocks: data_blocks(&records, &journal)? })
}

/// Sectors of the device that the journal lies in.
fn journal_sectors(plan: &RunPlan, machine: &Machine) -> wp_base::FsResult<std::ops::Range<u64>> {
    let at = wp_ext4::evidence::landmarks(&machine.view())?;
    let start = plan.partition.0.0 + at.journal * SECTORS_PER_BLOCK;
    Ok(start..start + JOURNAL_BLOCKS * SECTORS_PER_BLOCK)
}

const SECTORS_PER_BLOCK: u64 = 8;
/// `mke2fs` makes a journal of 128 MiB on partitions of 2 to 32 GiB.
const JOURNAL_BLOCKS: u64 = 32_768;

/// Blocks that were dispatched in the fsync elsewhere than to the journal: an fsync writes no
/// metadata to their places.
fn data_blocks(records: &[Record], journal: &std::ops::Range<u64>) -> Result<u32, MachineError> {
    let of = |text| mark(records, text).ok_or_else(|| config("the trace has no fsync"));
    let (from, to) = (of(MARK_FSYNC)?, of(MARK_RETURN)?);
    let sectors: u64 = records[from..to]
        .iter()
        .filter_map(|r| match r.event {
            Event::Block { action: BlockAction::Issue, op: Op::Write, at, sectors, .. } => {
                (!journal.contains(&at.0)).then_some(u64::from(sectors))
            }
            _ => None,
        })
        .sum();
    Ok((sectors / SECTORS_PER_BLOCK) as u32)
}

fn finish(
    plan: &RunPlan,
    machine: &Machine,
    records: Vec<Record>,
    view: MediumView,
    options: &Options,
    numbers: Vec<(String, u64)>,
) -> Result<RunOutcome, MachineError> {
    let fs = machine.spec().fs;
    let wrong = |error| MachineError::Fs { during: "reading the image", error };
    let classifier = Classifier::new(fs, options, &view, plan.partition.0).map_err(wrong)?;
    let zero = mark(&records, MARK_FSYNC).ok_or_else(|| config("the trace has no fsync"))?;
    let end = mark(&records, MARK_RETURN).ok_or_else(|| config("the trace has no end of fsync"))?;
    let from = mark(&records, fsync_last::MARK_WRITE).unwrap_or(0);
    let lines = classifier.lines(&records[from..], zero - from);
    let fsync_ns = records[end].at.since(records[zero].at).0;
    let filed = Filed::count(&lines, fsync_ns as i64);
    let window = (plan.watch as i64 - 2) * 1_000_000_000;
    let summary = summarise(&lines, fsync_ns as i64, plan.files, window, filed).map_err(config)?;
    debug_assert!(numbers.iter().any(|(k, v)| k == "fsync_ns" && *v == fsync_ns));
    let part = (plan.files, plan.partition.0, u64::from(plan.bytes));
    let state = OnDisk::at_return(&lines, fsync_ns, part, &view, fs, options).map_err(wrong)?;
    Ok(RunOutcome {
        plan: plan.clone(),
        records,
        lines,
        summary,
        fsync_ns,
        data_on_disk: state.data,
        table_logged: state.table,
        size_logged: state.size,
        metadata_logged: state.blocks,
        image: view,
    })
}

/// Figure 9: what of each file is on disk when fsync returns.
pub struct OnDisk {
    /// Is its data?
    pub data: Vec<bool>,
    /// Is the inode-table block that holds its inode in the journal?
    pub table: Vec<bool>,
    /// Has a logged copy of its inode this length?
    pub size: Vec<bool>,
    /// Metadata blocks in the log.
    pub blocks: u32,
}

impl OnDisk {
    /// Data: a request that holds the file's block completed before the return. Metadata: from the
    /// log blocks that were written before the return, read from the image (the log does not wrap
    /// in this run). The program has `files` files of `bytes` bytes, named from `f_0` on, on a
    /// partition that begins at `start`. Errors: an image that cannot be read.
    pub fn at_return(
        lines: &[TraceLine],
        fsync_ns: u64,
        (files, start, bytes): (u32, Sector, u64),
        view: &dyn View,
        fs: &wp_vfs::FsEntry,
        options: &Options,
    ) -> wp_base::FsResult<OnDisk> {
        let before = |l: &&TraceLine| l.action == 'C' && l.ns_from_fsync_start <= fsync_ns as i64;
        let done: Vec<&TraceLine> = lines.iter().filter(before).filter(|l| l.sectors > 0).collect();
        let classes: BTreeSet<&str> = done.iter().flat_map(|l| l.class.split('+')).collect();
        let data = (0..files).map(|i| classes.contains(format!("data:f_{i}").as_str())).collect();
        let listing = (fs.inspect)(view, options, false)?;
        let by_name: BTreeMap<&str, u64> =
            listing.files.iter().map(|f| (f.path.as_str(), f.ino)).collect();
        let logged: Vec<(u64, u32)> = done
            .iter()
            .filter(|l| l.class.starts_with("journal"))
            .filter_map(|l| l.sector.map(|s| (s - start.0, l.sectors)))
            .collect();
        let inos: Vec<u32> = (0..files)
            .map(|i| by_name.get(format!("f_{i}").as_str()).copied().unwrap_or(0) as u32)
            .collect();
        let found = wp_ext4::evidence::logged(view, &logged, &inos)?;
        let table = found.sizes.iter().map(|sizes| !sizes.is_empty()).collect();
        let size = found.sizes.iter().map(|s| s.contains(&bytes)).collect();
        Ok(OnDisk { data, table, size, blocks: found.blocks })
    }
}
