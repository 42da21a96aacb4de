//! Image files and block devices that are recovered where they lie.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use wp_vfs::RecoveryPlan;

use super::{Place, Target, on_devices};

/// A device of the image, open for reading and writing.
pub struct InPlace {
    path: PathBuf,
    file: File,
    is_file: bool,
}

impl InPlace {
    /// Opens an image. Nothing is written yet.
    ///
    /// Errors: the host's; what is neither a regular file nor a block device; a block device that
    ///         somebody has mounted (`EBUSY`).
    pub fn open(path: &Path) -> io::Result<InPlace> {
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::other("not a regular file and not a block device"));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if kind.is_block_device() {
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let file = options.open(path)?;
        Ok(InPlace { path: path.to_owned(), file, is_file: kind.is_file() })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reserves space for all of `plan`'s holes on the devices, so that a host without room says so
    /// before anything is written. A file system that reserves none is no error.
    ///
    /// Errors: number of the device, and the host's.
    pub fn reserve(
        devices: &[InPlace],
        places: &[Place],
        plan: &RecoveryPlan,
    ) -> Result<(), (usize, io::Error)> {
        for (device, at, bytes) in plan.stages.iter().flat_map(|s| on_devices(s, places)) {
            let Some(target) = devices.get(device).filter(|t| t.is_file) else { continue };
            let len = bytes.len() as u64;
            let made = fallocate(&target.file, FallocateFlags::KEEP_SIZE, at, len);
            if let Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) = made {
                return Err((device, e.into()));
            }
        }
        Ok(())
    }
}

impl Target for InPlace {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}
