//! The paper's machines: table 6.1's server with its drive, with and without power-loss protection.

use wp_base::Sector;
use wp_machine::profile::{PROFILES, Profile};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_rt::CpuModel;
use wp_vfs::Options;

/// Kernel of the paper.
pub const KERNEL: (u16, u16) = (5, 14);
/// CPU profile of its server.
pub const PROFILE: &str = "xeon-4116";
/// Zones of 2 GiB of the drive that the file system has: the first two are the conventional ones.
/// No fewer do: mkfs.f2fs keeps several zones back.
/// (The whole drive would need more conventional space for its tables than it has.)
pub const ZONES: u64 = 32;
/// Bytes of a zone.
const ZONE_BYTES: u64 = 2 << 30;

/// How F2FS is mounted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// `fsync_mode=posix`.
    Posix,
    /// `fsync_mode=strict` as the kernel has it on zones: no flush before the last node.
    Strict,
    /// `strict` with a flush after the data, as the paper measured it.
    StrictFixed,
    /// `fsync_mode=nobarrier`.
    NoBarrier,
    /// OPRW in posix mode.
    OprwPosix,
    /// OPRW in nobarrier mode.
    OprwNoBarrier,
}

impl Mode {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Posix => "posix",
            Mode::Strict => "strict",
            Mode::StrictFixed => "strict_fixed",
            Mode::NoBarrier => "nobarrier",
            Mode::OprwPosix => "OPRW posix",
            Mode::OprwNoBarrier => "OPRW nobarrier",
        }
    }

    /// Its mount options.
    pub const fn options(self) -> &'static str {
        match self {
            Mode::Posix => "fsync_mode=posix",
            Mode::Strict => "fsync_mode=strict",
            Mode::StrictFixed => "fsync_mode=strict_fixed",
            Mode::NoBarrier => "fsync_mode=nobarrier",
            Mode::OprwPosix => "fsync_mode=posix,oprw",
            Mode::OprwNoBarrier => "fsync_mode=nobarrier,oprw",
        }
    }
}

/// The server's CPU profile.
pub fn profile() -> &'static Profile {
    PROFILES.iter().find(|p| p.name == PROFILE).expect("a profile of our own table")
}

/// Options of F2FS in the paper's kernel.
pub fn fs_options(mode: Mode) -> String {
    format!("era={}.{}.4,{}", KERNEL.0, KERNEL.1, mode.options())
}

/// What a run is made on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Mode.
    pub mode: Mode,
    /// With power-loss protection?
    pub plp: bool,
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Replaced parameters of the drive.
    pub params: Vec<(String, u64)>,
    /// Seed.
    pub seed: u64,
}

impl Setup {
    /// The paper's.
    pub fn paper(mode: Mode, plp: bool, seed: u64) -> Setup {
        Setup { mode, plp, cpu: profile().model(), params: Vec::new(), seed }
    }

    /// The preset of its drive.
    pub fn device(&self) -> &'static str {
        if self.plp { "zn540-4tb" } else { "zn540-4tb-noplp" }
    }

    /// The machine, with a new file system. Errors: parameters that no drive can have.
    pub fn machine(&self) -> Result<Machine, MachineError> {
        Machine::new(self.spec()?, None)
    }

    /// What the machine is made of. Errors: options that cannot be.
    pub fn spec(&self) -> Result<MachineSpec, MachineError> {
        let fs = &wp_f2fs::ENTRY;
        let fs_options = Options::parse(&fs_options(self.mode), fs.options)
            .map_err(|e| MachineError::Config(e.to_string()))?;
        Ok(MachineSpec {
            seed: self.seed,
            cpu: self.cpu.clone(),
            device: self.device().to_owned(),
            device_params: self.params.clone(),
            more: Vec::new(),
            elevator: "mq-deadline".to_owned(),
            start: Sector(0),
            sectors: Some(ZONES * ZONE_BYTES / wp_base::SECTOR_BYTES),
            fs,
            fs_options,
            disk: "nvme0n1".to_owned(),
            device_number: (259, 0),
            kernel: KERNEL,
        })
    }
}
