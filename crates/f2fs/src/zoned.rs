//! F2FS on a zoned device, for whoever makes or recovers images: the device's zones in this crate's
//! terms.

use wp_base::{FsError, FsResult};
use wp_medium::{Medium, View};
use wp_vfs::Options;

use crate::entry::{how, mkfs_options, write};
use crate::image::{RecoverOptions, Zone, ZoneKind};

/// Zones as a device reports them, from its first sector.
pub fn zones_of(report: &[wp_base::Zone]) -> Vec<Zone> {
    let one = |z: &wp_base::Zone| {
        let is_conventional = z.kind == wp_base::ZoneKind::Conventional;
        Zone {
            start: z.start.0,
            len: z.sectors,
            cap: z.capacity,
            written: if is_conventional { 0 } else { z.wp.0 - z.start.0 },
            kind: if is_conventional { ZoneKind::Conventional } else { ZoneKind::Sequential },
            condition: z.state.number(),
        }
    };
    report.iter().map(one).collect()
}

/// How a mount with these options recovers what is on `view`: by the rules of its era, with the
/// device's zones, and with the order-preserving check where `oprw` asks for it.
///
/// Errors: `Invalid` for an era that is none, and for `oprw` without zones.
pub fn recover_options(view: &dyn View, o: &Options) -> FsResult<RecoverOptions> {
    let report = view.zones();
    let zones = (!report.is_empty()).then(|| zones_of(&report));
    let is_on = o.given().any(|(k, v)| k == "oprw" && v != "false" && v != "0");
    if is_on && zones.is_none() {
        return Err(FsError::Invalid("oprw: needs a zoned device"));
    }
    Ok(RecoverOptions { zones, oprw: is_on, ..how(o)? })
}

/// A new file system on a device with these zones, conventional ones first (`mkfs.f2fs -m`).
///
/// Errors: options that cannot be; zones that do not make one; `NoSpace`.
pub fn mkfs_zoned(o: &Options, bytes: u64, report: &[wp_base::Zone]) -> FsResult<Medium> {
    let mut m = mkfs_options(o, bytes)?;
    m.set_feature("blkzoned", true)?;
    m.zones = Some(zones_of(report));
    write(&m)
}
