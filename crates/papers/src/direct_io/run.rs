//! One run: MobiBench on one of the systems, on a machine of its own.

use serde::{Deserialize, Serialize};
use wp_base::{Sector, Span};
use wp_machine::profile::{PROFILES, Profile};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_rt::CpuModel;
use wp_vfs::{FsEntry, Options};
use wp_workload::mobibench::{Access, MobiBench, Sync, Version, mobibench};

/// Kernel of the paper: Linux 3.13-rc2, with F2FS's new direct writes.
pub const KERNEL: &str = "3.13";
/// A kernel of today, for what has changed.
pub const TODAY: &str = "6.12";
/// Preset of its drive.
pub const DEVICE: &str = "840pro-128";
/// CPU profile of its PC.
pub const PROFILE: &str = "i7-3820";
/// Bytes of MobiBench's file. The paper does not tell: assumed.
pub const FILE_BYTES: u64 = 32 << 20;
/// The same where assumed numbers, this one too, are varied, and with `quick`: four of the largest
/// records.
pub const SHORT_FILE_BYTES: u64 = 16 << 20;
/// Sizes of a record: 4 KiB to 4 MiB.
pub const SIZES: [u64; 11] = {
    let mut all = [4 << 10; 11];
    let mut i = 1;
    while i < all.len() {
        all[i] = all[i - 1] * 2;
        i += 1;
    }
    all
};

/// What it runs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum System {
    /// F2FS with direct writes in place: the paper's.
    F2fs,
    /// EXT4.
    Ext4,
    /// BTRFS, by the rules of today's kernel on the paper's block layer: no older ones are known
    /// here.
    Btrfs,
    /// NILFS2, which has no direct writes.
    Nilfs2,
    /// F2FS whose direct writes go to its logs: the paper's future work.
    F2fsLog,
    /// F2FS of today.
    F2fsToday,
    /// F2FS of today, `mode=lfs`.
    F2fsLogToday,
    /// EXT4 of today.
    Ext4Today,
    /// BTRFS of today.
    BtrfsToday,
    /// BTRFS of today, `nodatacow`: over what is there, in place.
    BtrfsInPlaceToday,
    /// NILFS2 of today.
    Nilfs2Today,
}

impl System {
    /// The paper's; F2FS first, with which the others are compared.
    pub const PAPER: [System; 4] = [System::F2fs, System::Ext4, System::Btrfs, System::Nilfs2];
    /// Beyond it.
    pub const BEYOND: [System; 7] = [
        System::F2fsLog,
        System::F2fsToday,
        System::F2fsLogToday,
        System::Ext4Today,
        System::BtrfsToday,
        System::BtrfsInPlaceToday,
        System::Nilfs2Today,
    ];

    /// All.
    pub fn all() -> impl Iterator<Item = System> {
        System::PAPER.into_iter().chain(System::BEYOND)
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            System::F2fs => "F2FS",
            System::Ext4 => "EXT4",
            System::Btrfs => "BTRFS",
            System::Nilfs2 => "NILFS2",
            System::F2fsLog => "F2FS, to its logs",
            System::F2fsToday => "F2FS 6.12",
            System::F2fsLogToday => "F2FS 6.12 mode=lfs",
            System::Ext4Today => "EXT4 6.12",
            System::BtrfsToday => "BTRFS 6.12",
            System::BtrfsInPlaceToday => "BTRFS 6.12 nodatacow",
            System::Nilfs2Today => "NILFS2 6.12",
        }
    }

    /// Is its kernel of today?
    pub const fn is_of_today(self) -> bool {
        matches!(
            self,
            System::F2fsToday
                | System::F2fsLogToday
                | System::Ext4Today
                | System::BtrfsToday
                | System::BtrfsInPlaceToday
                | System::Nilfs2Today
        )
    }

    /// Kernel around the file system: that of the block layer.
    pub(super) const fn kernel(self) -> (u16, u16) {
        if self.is_of_today() { (6, 12) } else { (3, 13) }
    }

    /// File system and options.
    pub(super) fn file_system(self) -> (&'static FsEntry, String) {
        let is_btrfs =
            matches!(self, System::Btrfs | System::BtrfsToday | System::BtrfsInPlaceToday);
        // Of btrfs one era is known, whatever kernel is around it.
        let era = if self.is_of_today() || is_btrfs { TODAY } else { KERNEL };
        let (fs, more): (&FsEntry, _) = match self {
            System::F2fs | System::F2fsToday => (&wp_f2fs::ENTRY, ""),
            System::F2fsLog => (&wp_f2fs::ENTRY, ",direct=log"),
            System::F2fsLogToday => (&wp_f2fs::ENTRY, ",mode=lfs"),
            // One that has been in use for a while: no tables are left to be zeroed.
            System::Ext4 | System::Ext4Today => (&wp_ext4::ENTRY, ",relatime,noinit_itable"),
            // The paper's kernel had no rule against it.
            System::Btrfs => (&wp_btrfs::ENTRY, ",direct_sums"),
            System::BtrfsToday => (&wp_btrfs::ENTRY, ""),
            System::BtrfsInPlaceToday => (&wp_btrfs::ENTRY, ",nodatacow"),
            System::Nilfs2 | System::Nilfs2Today => (&wp_nilfs2::ENTRY, ""),
        };
        (fs, format!("era={era}{more}"))
    }
}

/// A run to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On what.
    pub system: System,
    /// What.
    pub program: MobiBench,
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Replaced parameters of the drive.
    pub params: Vec<(String, u64)>,
    /// Bytes of the partition; `None`: all of the drive.
    pub bytes: Option<u64>,
    /// Seed.
    pub seed: u64,
}

/// What a sequential write is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reading {
    /// A new file, as MobiBench of that time: each record makes it longer.
    Fresh,
    /// A file that is there, as MobiBench since 2020.
    Filled,
}

/// One of the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Figure {
    /// 1: records in order.
    Sequential(Reading),
    /// 2: records out of order, over a file that is there.
    Random,
}

impl Figure {
    /// All.
    pub const ALL: [Figure; 3] =
        [Figure::Sequential(Reading::Fresh), Figure::Random, Figure::Sequential(Reading::Filled)];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Figure::Sequential(Reading::Fresh) => {
                "Figure 1: sequential, MiB/s, a new file (MobiBench of 2014)"
            }
            Figure::Sequential(Reading::Filled) => {
                "Figure 1, second reading: an existing file (MobiBench of 2020)"
            }
            Figure::Random => "Figure 2: random, records per second, an existing file",
        }
    }

    /// The same, short.
    pub const fn short(self) -> &'static str {
        match self {
            Figure::Sequential(Reading::Fresh) => "sequential, new file",
            Figure::Sequential(Reading::Filled) => "sequential, filled file",
            Figure::Random => "random",
        }
    }

    /// The program with records of this size.
    pub fn program(self, record_bytes: u64, file_bytes: u64) -> MobiBench {
        let (access, version) = match self {
            Figure::Sequential(Reading::Fresh) => (Access::Write, Version::Y2014),
            Figure::Sequential(Reading::Filled) => (Access::Write, Version::Y2020),
            Figure::Random => (Access::RandomWrite, Version::Y2014),
        };
        MobiBench { file_bytes, record_bytes, access, sync: Sync::Direct, threads: 1, version }
    }
}

/// The PC's CPU profile.
pub fn profile() -> &'static Profile {
    PROFILES.iter().find(|p| p.name == PROFILE).expect("a profile of our own table")
}

impl Plan {
    /// The paper's machine.
    pub fn paper(system: System, program: MobiBench, seed: u64) -> Plan {
        let cpu = profile().model();
        Plan { system, program, cpu, params: Vec::new(), bytes: None, seed }
    }

    /// What the machine is made of. Errors: options that cannot be.
    pub fn spec(&self) -> Result<MachineSpec, MachineError> {
        let (fs, text) = self.system.file_system();
        let fs_options =
            Options::parse(&text, fs.options).map_err(|e| MachineError::Config(e.to_string()))?;
        Ok(MachineSpec {
            seed: self.seed,
            cpu: self.cpu.clone(),
            device: DEVICE.to_owned(),
            device_params: self.params.clone(),
            more: Vec::new(),
            elevator: String::new(),
            start: Sector(2048),
            sectors: self.bytes.map(|b| b / wp_base::SECTOR_BYTES),
            fs,
            fs_options,
            disk: "sdb1".to_owned(),
            device_number: (8, 16),
            kernel: self.system.kernel(),
        })
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// MiB a second, MobiBench's MB.
    pub mib_per_s: f64,
    /// Records a second.
    pub iops: f64,
}

/// Longest time between the mount and the start of the program: twice what journals and logs wait
/// before they write by themselves.
const AFTER_MOUNT: Span = Span::secs(10);

/// Makes a run. Errors: as the machine's.
pub fn run(plan: &Plan) -> Result<Outcome, MachineError> {
    let machine = Machine::new(plan.spec()?, None)?;
    let vfs = machine.mount()?;
    let (v, program) = (vfs.clone(), plan.program);
    let found = machine
        .block_on("mobibench", async move {
            // People do not start programs at a tick: all that differs between five runs.
            let wait = v.rt().rng("mobibench").below(AFTER_MOUNT.0);
            v.rt().sleep(Span(wait)).await;
            mobibench(&v, &program, &|| {}).await
        })?
        .map_err(|error| MachineError::Fs { during: "MobiBench", error })?;
    machine.unmount(&vfs)?;
    Ok(Outcome { mib_per_s: found.mib_per_s(), iops: found.iops() })
}
