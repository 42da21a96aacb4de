//! The errno of untorn writes by length, place, user buffers, `O_DIRECT`, unit and boundary.

use wp_base::Sector;
use wp_machine::spec::file_system;
use wp_machine::{Machine, MachineError, MachineSpec, registry};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Options, Vfs};

use super::super::beside::params;
use crate::journal_conflict::profile;

/// A call, and what Linux answers to it.
struct Call {
    /// The file system; none: on the block device.
    fs: &'static str,
    /// Bytes that the drive keeps whole, and its boundary.
    drive: (u64, u64),
    direct: bool,
    buffers: usize,
    len: u32,
    at: u64,
    errno: &'static str,
}

/// With blocks of 4 KiB, and clusters of 16 KiB.
const EXT4: &str = "ext4,era=6.18,block_size=4096";
const CLUSTERS: &str = "ext4,era=6.18,block_size=4096,cluster=16k";
const K4: u32 = 4 << 10;
const K16: u32 = 16 << 10;
/// What the drive of most calls keeps whole.
const DRIVE: (u64, u64) = (16 << 10, 64 << 10);

const fn device(len: u32, at: u64, errno: &'static str) -> Call {
    Call { fs: "", drive: DRIVE, direct: true, buffers: 1, len, at, errno }
}

const fn on_ext4(len: u32, at: u64, errno: &'static str) -> Call {
    Call { fs: EXT4, ..device(len, at, errno) }
}

const fn on_clusters(len: u32, at: u64, errno: &'static str) -> Call {
    Call { fs: CLUSTERS, ..device(len, at, errno) }
}

const CALLS: [Call; 29] = [
    device(512, 0, ""),
    device(K4, 0, ""),
    device(K16, 0, ""),
    device(K16, 64 << 10, ""),
    // Beyond the unit, below it, no power of two, no multiple of the length.
    device(2 * K16, 0, "EINVAL"),
    device(256, 0, "EINVAL"),
    device(3 * K4, 0, "EINVAL"),
    device(K16, 4096, "EINVAL"),
    Call { buffers: 2, ..device(K4, 0, "EINVAL") },
    Call { direct: false, ..device(K4, 0, "EOPNOTSUPP") },
    // The block layer would refuse the length, and is not asked.
    Call { direct: false, ..device(2 * K16, 0, "EOPNOTSUPP") },
    Call { drive: (0, 0), ..device(K4, 0, "EOPNOTSUPP") },
    // A unit that would cross the drive's boundary is split, and so refused.
    Call { drive: (16 << 10, 8 << 10), ..device(K16, 0, "EINVAL") },
    on_ext4(K4, 0, ""),
    on_ext4(K16, 0, "EINVAL"),
    on_ext4(2048, 0, "EINVAL"),
    on_ext4(K4, 512, "EINVAL"),
    Call { buffers: 2, ..on_ext4(K4 / 2, 0, "EINVAL") },
    Call { direct: false, ..on_ext4(K4, 0, "EOPNOTSUPP") },
    Call { direct: false, ..on_ext4(K16, 0, "EINVAL") },
    Call { drive: (2048, 0), ..on_ext4(K4, 0, "EOPNOTSUPP") },
    on_clusters(K4, 0, ""),
    on_clusters(K16, 0, ""),
    on_clusters(2 * K16, 0, "EINVAL"),
    on_clusters(K16, 4096, "EINVAL"),
    Call { drive: (8 << 10, 0), ..on_clusters(K16, 0, "EINVAL") },
    // As Linux 6.18 answers on a loop device, which offers nothing.
    Call { drive: (0, 0), ..on_clusters(K16, 0, "EOPNOTSUPP") },
    Call { drive: (0, 0), ..on_clusters(3 * K4, 0, "EOPNOTSUPP") },
    Call { drive: (0, 0), direct: false, buffers: 2, ..on_clusters(K4, 512, "EOPNOTSUPP") },
];

impl Call {
    fn machine(&self) -> Result<Machine, MachineError> {
        let (fs, fs_options) = match self.fs {
            "" => (registry::NONE, Options::default()),
            fs => file_system(fs).map_err(MachineError::Config)?,
        };
        let (bytes, boundary) = self.drive;
        let drive = [
            ("capacity_bytes", 64 << 20),
            ("atomic_bytes", bytes),
            ("atomic_boundary_bytes", boundary),
        ];
        let spec = MachineSpec {
            seed: 1,
            cpu: profile().model(),
            device: "fixed".to_owned(),
            device_params: params(&drive),
            more: Vec::new(),
            elevator: String::new(),
            start: Sector(2048),
            sectors: None,
            fs,
            fs_options,
            disk: "sda1".to_owned(),
            device_number: (8, 1),
            kernel: (6, 18),
        };
        Machine::new(spec, None)
    }

    /// What is answered here.
    fn answer(&self) -> Result<&'static str, MachineError> {
        let machine = self.machine()?;
        let vfs = machine.mount()?;
        let (path, create) = if self.fs.is_empty() { ("/dev/sda", false) } else { ("f", true) };
        let flags = OpenFlags { write: true, create, direct: self.direct, ..OpenFlags::READ };
        let data = vec![[Slice::pattern(1, 0, self.len)]; self.buffers];
        let (v, at): (Vfs, u64) = (vfs.clone(), self.at);
        let called = machine.block_on("program", async move {
            let buffers: Vec<&[Slice]> = data.iter().map(|d| &d[..]).collect();
            let fd = v.open(path, flags, 0o644).await?;
            Ok(v.pwrite_atomic(fd, at, &buffers).await)
        })?;
        let failed = |error| MachineError::Fs { during: "an open", error };
        let answer = called.map_err(failed)?.map_or_else(|e| e.errno(), |_| "");
        machine.unmount(&vfs)?;
        Ok(answer)
    }
}

/// How many calls there are, and those that are answered otherwise than by Linux.
pub(super) fn differing() -> Result<(usize, Vec<String>), MachineError> {
    let mut wrong = Vec::new();
    for (n, call) in CALLS.iter().enumerate() {
        let answer = call.answer()?;
        if answer != call.errno {
            wrong.push(format!("call {n}: `{answer}`, Linux `{}`", call.errno));
        }
    }
    Ok((CALLS.len(), wrong))
}
