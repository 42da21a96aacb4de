//! Our own check of a file system: every structure against every other that says the same.
//!
//! Picture:    super blocks -> checkpoint -> SIT, NAT (`tables`) -> from the root through all
//!             names and nodes (`walk`), noting who refers to which block -> SIT, NAT, summaries
//!             and counts against that (`totals`), logs against zones.
//! Invariants: 1. shares with `image` and `mkfs` only `disk`: a mistake there is seen here. (With
//!                `recover`, what `image` makes of a crashed image is checked.)
//!             2. no bytes make it panic, and each node and block is read once a reference.
//!             3. what cannot be read is a finding, and what hangs on it is not reported again as
//!                lost.
//!             4. of a set of images ([`check_one_of`]) what is the same in all of them is checked
//!                only once; the findings are those of [`check`].
//! Left out:   what [`not_checked`] says of an image.
//! Source:     what fsck.f2fs(8) checks; `tests/check_vs_fsck.rs` compares the two.

#![deny(clippy::indexing_slicing)]

mod extent;
mod finding;
mod tables;
mod totals;
mod walk;

use wp_base::FsResult;
use wp_medium::{Overlay, Sound, View};

use crate::disk::feature;
use crate::image::{RecoverOptions, recover};

pub use finding::{Finding, Kind, Report};

/// How to check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Recover in memory first, so, and hold logs and blocks against the write pointers of zones
    /// that the image reports; `None`: check what the last checkpoint has.
    pub recover: Option<RecoverOptions>,
}

/// What an image has and [`check`] does not look at.
pub fn not_checked(view: &dyn View) -> Vec<&'static str> {
    let features = tables::features(view);
    let has = |bit: u32| features & bit != 0;
    let mut all = vec!["contents of files (F2FS has no checksums of data)"];
    if has(feature::QUOTA_INO) || has(feature::PRJQUOTA) {
        all.push("quotas");
    }
    if has(feature::COMPRESSION) {
        all.push("what compressed clusters unpack to");
    }
    if has(feature::ENCRYPT) {
        all.push("encrypted names");
    }
    if has(feature::VERITY) {
        all.push("Merkle trees of fs-verity");
    }
    all
}

/// Checks an image. Never writes to it. Errors: of the view, and of recovery.
pub fn check(view: &dyn View, options: &CheckOptions) -> FsResult<Report> {
    check_one_of(view, options, &Sound::default())
}

/// Checks one of a set of images; `sound` is the set's. What it finds is what [`check`] finds.
///
/// Errors: as [`check`].
pub fn check_one_of(view: &dyn View, options: &CheckOptions, sound: &Sound) -> FsResult<Report> {
    let overlay = Overlay::new(view);
    let mut report = Report::default();
    if let Some(how) = &options.recover {
        report.recovered = recover(&overlay, how)?.is_needed();
    }
    let Some(tables) = tables::Tables::read(&overlay, sound, &mut report)? else {
        return Ok(report);
    };
    let seen = walk::walk(&tables, &mut report)?;
    // Logs and pointers agree when a mount has repaired them, not before.
    let zones = if options.recover.is_some() { overlay.zones() } else { Vec::new() };
    totals::check(&tables, &seen, &zones, &mut report)?;
    Ok(report)
}
