//! One run: filebench's varmail, or what is left of it without deleting and creating, on one of the
//! systems.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wp_base::Sector;
use wp_machine::profile::{PROFILES, Profile};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_rt::CpuModel;
use wp_vfs::{FsEntry, JournalConflict, Options};
use wp_workload::filebench::{
    self, Drawn, Fileset, Kind, Num, Personality, RandKind, RunLength, Step,
};

/// Kernel of the paper's BarrierFS and EXT4.
pub const KERNEL: &str = "3.10.61";
/// Preset of its drive.
pub const DEVICE: &str = "850pro-256";
/// CPU profile of its PC.
pub const PROFILE: &str = "i7-3770";
/// Nanoseconds of filebench's own computing for each flowop: clock reads, locks, choice of a file.
/// Assumed.
pub const FLOWOP_NS: f64 = 1_000.0;

/// Types of block, in the order of the paper's tables.
pub const TYPES: [&str; 6] = ["S", "G", "DB", "IB", "IT", "D"];

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Load {
    /// varmail.
    Varmail,
    /// Without deletefile, and with openfile in the place of createfile: 12 flowops a loop.
    NoCreateDelete,
}

impl Load {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Load::Varmail => "varmail",
            Load::NoCreateDelete => "modified",
        }
    }

    /// The personality.
    pub fn personality(self, threads: u32) -> Personality {
        match self {
            Load::Varmail => filebench::varmail(threads),
            Load::NoCreateDelete => filebench::varmail_nodel(threads),
        }
    }
}

/// What it runs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum System {
    /// EXT4, durable.
    Ext4Dr,
    /// EXT4 with nobarrier.
    Ext4Od,
    /// BarrierFS, durable.
    BfsDr,
    /// BarrierFS, fsync as fbarrier.
    BfsOd,
    /// F2FS.
    F2fs,
    /// BarrierFS with three versions of each buffer.
    Versions3,
    /// The same, with coalescing.
    Coalescing3,
    /// The same, with compound flush: CJFS.
    Cjfs3,
    /// CJFS with five versions, and a flush for five.
    Cjfs5,
    /// BarrierFS in which no transaction finds its version taken: the test for conflicts is off.
    NoConflicts,
    /// CJFS in which none does: compound flush for three.
    NoConflictsCompound,
}

impl System {
    /// The paper's, in the order of its graphs.
    pub const PAPER: [System; 5] =
        [System::Ext4Dr, System::Ext4Od, System::BfsDr, System::BfsOd, System::F2fs];
    /// The cure, each part switched on in turn, and the systems that it is compared with.
    pub const CURE: [System; 7] = [
        System::BfsDr,
        System::Versions3,
        System::Coalescing3,
        System::Cjfs3,
        System::Cjfs5,
        System::NoConflicts,
        System::NoConflictsCompound,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            System::Ext4Dr => "EXT4-DR",
            System::Ext4Od => "EXT4-OD",
            System::BfsDr => "BFS-DR",
            System::BfsOd => "BFS-OD",
            System::F2fs => "F2FS",
            System::Versions3 => "+versions 3",
            System::Coalescing3 => "+coalescing",
            System::Cjfs3 => "+compound 3 (CJFS)",
            System::Cjfs5 => "CJFS, 5 and 5",
            System::NoConflicts => "no conflicts",
            System::NoConflictsCompound => "no conflicts, compound 3",
        }
    }

    /// File system and its options, beside the era.
    pub fn file_system(self) -> (&'static FsEntry, &'static str) {
        let options = match self {
            System::Ext4Dr => "",
            System::Ext4Od => "nobarrier",
            System::BfsDr => "journaling=barrier",
            System::BfsOd => "journaling=barrier,ordering_only",
            System::F2fs => return (&wp_f2fs::ENTRY, ""),
            System::Versions3 => "journaling=barrier,jh_versions=3",
            System::Coalescing3 => "journaling=barrier,jh_versions=3,coalesce",
            System::Cjfs3 => "journaling=barrier,jh_versions=3,coalesce,compound_flush=3",
            System::Cjfs5 => "journaling=barrier,jh_versions=5,coalesce,compound_flush=5",
            System::NoConflicts => "journaling=barrier,jh_versions=all",
            System::NoConflictsCompound => "journaling=barrier,jh_versions=all,compound_flush=3",
        };
        (&wp_ext4::ENTRY, options)
    }
}

/// A run to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On what.
    pub system: System,
    /// What.
    pub load: Load,
    /// Threads.
    pub threads: u32,
    /// How long.
    pub length: RunLength,
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Nanoseconds of filebench's own computing for each flowop.
    pub flowop_ns: f64,
    /// Device preset.
    pub device: &'static str,
    /// Replaced parameters of the device.
    pub params: Vec<(String, u64)>,
    /// Bytes of the partition; `None`: all of the device.
    pub bytes: Option<u64>,
    /// All files of this length, in bytes, instead of filebench's gamma distribution.
    pub file_bytes: Option<u64>,
    /// Does each open, creation and removal take a file at random, and not the one behind the last
    /// (filebench's rotors)?
    pub at_random: bool,
    /// More options of the file system.
    pub more: &'static str,
    /// The partition's name, as [`MachineSpec::disk`].
    pub disk: &'static str,
    /// Seed.
    pub seed: u64,
}

/// The PC's CPU profile.
pub fn profile() -> &'static Profile {
    PROFILES.iter().find(|p| p.name == PROFILE).expect("a profile of our own table")
}

impl Plan {
    /// The paper's machine.
    pub fn paper(system: System, load: Load, threads: u32, length: RunLength, seed: u64) -> Plan {
        Plan {
            system,
            load,
            threads,
            length,
            cpu: profile().model(),
            flowop_ns: FLOWOP_NS,
            device: DEVICE,
            params: Vec::new(),
            bytes: None,
            file_bytes: None,
            at_random: false,
            more: "",
            disk: "sdb1",
            seed,
        }
    }

    /// What the machine is made of. Errors: options that cannot be.
    pub fn spec(&self) -> Result<MachineSpec, MachineError> {
        let (fs, options) = self.system.file_system();
        // A file system that has been in use for a while: no tables are left to be zeroed.
        let relatime = if fs.name == "ext4" { "relatime,noinit_itable" } else { "" };
        let all = ["", &format!("era={KERNEL}"), relatime, options, self.more];
        let text: Vec<&str> = all.into_iter().filter(|o| !o.is_empty()).collect();
        let fs_options = Options::parse(&text.join(","), fs.options)
            .map_err(|e| MachineError::Config(e.to_string()))?;
        Ok(MachineSpec {
            seed: self.seed,
            cpu: self.cpu.clone(),
            device: self.device.to_owned(),
            device_params: self.params.clone(),
            more: Vec::new(),
            elevator: String::new(),
            start: Sector(2048),
            sectors: self.bytes.map(|b| b / wp_base::SECTOR_BYTES),
            fs,
            fs_options,
            disk: self.disk.to_owned(),
            device_number: (8, 16),
            kernel: (3, 10),
        })
    }
}

/// Conflicts: `[type][case]` in the order of [`TYPES`] and of [`wp_jbd2::Conflict::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(BTreeMap<String, BTreeMap<String, u64>>);

/// Their sum, as far as there are numbers: a document may hold any.
fn sum<'a>(counts: impl Iterator<Item = &'a u64>) -> u64 {
    counts.fold(0, |sum, n| sum.saturating_add(*n))
}

impl Counts {
    /// Of rows that `keep` takes.
    fn of(rows: &[JournalConflict], keep: impl Fn(&JournalConflict) -> bool) -> Counts {
        let mut out = Counts::default();
        for r in rows.iter().filter(|r| keep(r)) {
            let cases = out.0.entry(r.block.to_owned()).or_default();
            *cases.entry(r.case.to_owned()).or_default() += r.calls;
        }
        out
    }

    /// All of one type.
    pub fn of_type(&self, what: &str) -> u64 {
        self.0.get(what).map_or(0, |cases| sum(cases.values()))
    }

    /// All of one case.
    pub fn of_case(&self, case: &str) -> u64 {
        sum(self.0.values().filter_map(|cases| cases.get(case)))
    }

    /// All.
    pub fn total(&self) -> u64 {
        sum(self.0.values().flat_map(BTreeMap::values))
    }

    /// A type's share of all.
    pub fn share(&self, what: &str) -> f64 {
        self.of_type(what) as f64 / self.total().max(1) as f64
    }
}

/// A count for each of [`TYPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByType {
    #[serde(rename = "S")]
    superblock: u64,
    #[serde(rename = "G")]
    group_descriptors: u64,
    #[serde(rename = "DB")]
    data_bitmap: u64,
    #[serde(rename = "IB")]
    inode_bitmap: u64,
    #[serde(rename = "IT")]
    inode_table: u64,
    #[serde(rename = "D")]
    directory: u64,
}

impl ByType {
    /// Counts in the order of [`TYPES`].
    fn new(counts: [u64; TYPES.len()]) -> ByType {
        let [superblock, group_descriptors, data_bitmap, inode_bitmap, inode_table, directory] =
            counts;
        ByType { superblock, group_descriptors, data_bitmap, inode_bitmap, inode_table, directory }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        sum(self.each().iter())
    }

    /// The counts in the order of [`TYPES`].
    pub fn each(&self) -> [u64; TYPES.len()] {
        [
            self.superblock,
            self.group_descriptors,
            self.data_bitmap,
            self.inode_bitmap,
            self.inode_table,
            self.directory,
        ]
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// System's name.
    pub system: String,
    /// Workload's name.
    pub load: String,
    /// Threads.
    pub threads: u32,
    /// Flowops.
    pub operations: u64,
    /// Loops.
    pub loops: u64,
    /// Flowops a second.
    pub ops_per_second: f64,
    /// fsyncs.
    pub fsyncs: u64,
    /// Half of the fsyncs took at most this long, nanoseconds.
    pub fsync_p50_ns: u64,
    /// Conflicts that filebench's threads met.
    pub conflicts: Counts,
    /// Accesses of all kinds, where they were counted (`count_access`).
    pub accesses: Counts,
    /// By thread, all types together, and each thread's of each type.
    pub by_thread: Vec<ByType>,
    /// Virtual time that those calls waited, nanoseconds.
    pub lost_ns: u64,
    /// The journal's counters, of the whole run.
    pub journal: BTreeMap<String, u64>,
    /// Cache flushes that the device was sent, of the whole run.
    pub flushes: u64,
}

impl Outcome {
    /// Conflicts an operation.
    pub fn per_op(&self) -> f64 {
        self.conflicts.total() as f64 / self.operations.max(1) as f64
    }

    /// One of the journal's counters; 0 of a file system without a journal.
    pub fn counter(&self, name: &str) -> u64 {
        self.journal.get(name).copied().unwrap_or(0)
    }

    /// Difference of the threads' totals, over their mean.
    pub fn spread(&self) -> f64 {
        let totals: Vec<u64> = self.by_thread.iter().map(ByType::total).collect();
        let (least, most) = (totals.iter().min(), totals.iter().max());
        let sum: u64 = totals.iter().sum();
        match (least, most) {
            (Some(least), Some(most)) if sum > 0 => {
                (most - least) as f64 * totals.len() as f64 / sum as f64
            }
            _ => 0.0,
        }
    }
}

/// Gives every flowop that picks a file an index drawn from all of its set's, `indexed=` of WML.
fn pick_at_random(personality: &mut Personality) {
    let [Fileset { entries: Num::Fixed(entries), .. }] = personality.filesets[..] else {
        unreachable!("the mail server has one set of files, of fixed size")
    };
    let drawn = Num::Drawn(personality.drawn.len());
    let last = (entries - 1) as f64;
    let (kind, mean) = (RandKind::Uniform, last / 2.0);
    personality.drawn.push(Drawn::Random { kind, mean, min: 0.0, round: 0.0, seed: None });
    let threads = personality.processes.iter_mut().flat_map(|p| &mut p.threads);
    for step in threads.flat_map(|t| &mut t.steps) {
        if let Step::Do(flowop) = step
            && matches!(flowop.kind, Kind::OpenFile | Kind::CreateFile | Kind::DeleteFile)
        {
            flowop.indexed = Some(drawn);
        }
    }
}

/// Makes a run. Errors: as the machine's.
pub fn run(plan: &Plan) -> Result<Outcome, MachineError> {
    let machine = Machine::new(plan.spec()?, None)?;
    let vfs = machine.mount()?;
    let mut personality = plan.load.personality(plan.threads);
    personality.flowop_ns = plan.flowop_ns as u64;
    if let Some(bytes) = plan.file_bytes {
        personality.filesets.iter_mut().for_each(|set| set.size = Num::Fixed(bytes));
    }
    if plan.at_random {
        pick_at_random(&mut personality);
    }
    let (v, seed, length) = (vfs.clone(), plan.seed, plan.length);
    let found = machine
        .block_on("filebench", async move { filebench::run(&v, &personality, length, seed).await })?
        .map_err(|error| MachineError::Fs { during: "varmail", error })?;
    let rows = vfs.fs().journal_conflicts();
    let journal = vfs.fs().counters().into_iter().map(|(k, n)| (k.to_owned(), n)).collect();
    machine.unmount(&vfs)?;
    let threads = (1..=plan.threads).map(|n| format!("filebench/{n}"));
    let is_thread = |r: &JournalConflict| r.task.starts_with("filebench/");
    let by_thread = threads
        .map(|task| {
            let of = Counts::of(&rows, |r| r.counts && r.task == task);
            ByType::new(TYPES.map(|t| of.of_type(t)))
        })
        .collect();
    let counted = |r: &&JournalConflict| r.counts && is_thread(r);
    let fsync = found.ops.get("fsync");
    let device: BTreeMap<&str, u64> =
        machine.queue.with_device(|d| d.counters()).into_iter().collect();
    Ok(Outcome {
        system: plan.system.name().to_owned(),
        load: plan.load.name().to_owned(),
        threads: plan.threads,
        operations: found.operations(),
        loops: found.loops,
        ops_per_second: found.ops_per_second(),
        fsyncs: fsync.map_or(0, |f| f.count),
        fsync_p50_ns: fsync.and_then(|f| f.latency.histogram.percentile(50_000_000)).unwrap_or(0),
        conflicts: Counts::of(&rows, |r| r.counts && is_thread(r)),
        accesses: Counts::of(&rows, is_thread),
        by_thread,
        lost_ns: rows.iter().filter(counted).map(|r| r.lost_ns).sum(),
        journal,
        flushes: device.get("flushes").copied().unwrap_or(0),
    })
}
