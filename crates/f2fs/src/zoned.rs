//! F2FS on a zoned device, or on several, for whoever makes images.

use wp_base::{FsError, FsResult};
use wp_medium::Medium;
use wp_vfs::{Disk, Options};

use crate::entry::{mkfs_options, write};
use crate::mkfs::DeviceSpec;

/// A new file system on devices one behind the other (`mkfs.f2fs -c`), the last of which may be
/// zoned (`-m`): by itself it begins with conventional zones.
///
/// Errors: options that cannot be; zones that do not make one, or are not the last device's;
/// `NoSpace`.
pub fn mkfs_disks(o: &Options, disks: &[Disk]) -> FsResult<Medium> {
    let (last, before) = disks.split_last().ok_or(FsError::Invalid("devices: 1 to 8"))?;
    if before.iter().any(|d| !d.zones.is_empty()) {
        return Err(FsError::Invalid("devices: only the last one may be zoned"));
    }
    let mut m = mkfs_options(o, last.bytes)?;
    let spec = |d: &Disk| DeviceSpec { path: d.name.clone(), bytes: d.bytes };
    m.devices = disks.iter().map(spec).collect();
    if !last.zones.is_empty() {
        m.set_feature("blkzoned", true)?;
        m.zones = Some(last.zones.clone());
    }
    write(&m)
}
