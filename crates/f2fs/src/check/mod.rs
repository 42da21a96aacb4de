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
//! Left out:   contents of quota files, compressed clusters, encrypted names.
//! Source:     what fsck.f2fs(8) checks; `tests/check_vs_fsck.rs` holds the two side by side.

#![deny(clippy::indexing_slicing)]

mod finding;
mod tables;
mod totals;
mod walk;

use wp_base::FsResult;
use wp_medium::{Overlay, View};

use crate::image::{RecoverOptions, Zone, recover};

pub use finding::{Finding, Kind, Report};

/// How to check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Recover in memory first, so; `None`: check what the last checkpoint has.
    pub recover: Option<RecoverOptions>,
    /// Zones of the last device, if logs and blocks are to be held against write pointers.
    pub zones: Option<Vec<Zone>>,
}

/// Checks an image. Never writes to it. Errors: of the view, and of recovery.
pub fn check(view: &dyn View, options: &CheckOptions) -> FsResult<Report> {
    let overlay = Overlay::new(view);
    let mut report = Report::default();
    if let Some(how) = &options.recover {
        report.recovered = recover(&overlay, how)?.is_needed();
    }
    let Some(tables) = tables::Tables::read(&overlay, &mut report)? else { return Ok(report) };
    let seen = walk::walk(&tables, &mut report)?;
    totals::check(&tables, &seen, options.zones.as_deref(), &mut report)?;
    Ok(report)
}
