//! F2FS on a zoned device, for whoever makes images.

use wp_base::{FsResult, Zone};
use wp_medium::Medium;
use wp_vfs::Options;

use crate::entry::{mkfs_options, write};

/// A new file system on a device with these zones, conventional ones first (`mkfs.f2fs -m`).
///
/// Errors: options that cannot be; zones that do not make one; `NoSpace`.
pub fn mkfs_zoned(o: &Options, bytes: u64, zones: &[Zone]) -> FsResult<Medium> {
    let mut m = mkfs_options(o, bytes)?;
    m.set_feature("blkzoned", true)?;
    m.zones = Some(zones.to_vec());
    write(&m)
}
