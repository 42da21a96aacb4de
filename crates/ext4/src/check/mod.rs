//! Our own check of an image: is it what the format says, all of it?
//!
//! Picture:    [`check`] = super block and descriptors (`supers`) -> inodes and their maps
//!             (`inodes`, `blocks`, `xattrs`) -> journal, orphan file, resize inode (`special`) ->
//!             directories (`dirs`, `htree`) -> parents and links (`links`) -> bitmaps and counts
//!             (`counts`). One `State` goes through all of them.
//! Invariants: 1. no bytes make it panic; its memory grows with the image's length only, its time
//!                with a budget of blocks walked.
//!             2. it uses `disk` (offsets, checksums) and nothing of the maker, the readers and the
//!                allocator, whose mistakes it is to find. (Recovery, if asked for, is `image`'s.)
//!             3. one damage may give several findings; a sound image gives none but harmless ones.
//! Left out:   what [`not_checked`] says of an image; contents of the log;
//!             `Unsupported`: inline data, attribute inodes, encryption, casefold, verity,
//!             meta_bg, bigalloc with blocks of 1 KiB.
//! Source:     Linux Documentation/filesystems/ext4; what e2fsck 1.47.0 minds was found by trying
//!             and from its messages. tests/damage/exceptions.rs lists where we differ on purpose.

#![deny(clippy::indexing_slicing)]

mod base;
mod bits;
mod blocks;
mod counts;
mod dirs;
mod finding;
mod htree;
mod inodes;
mod links;
mod special;
mod state;
mod supers;
mod xattrs;

use wp_base::{FsError, FsResult};
use wp_jbd2::RecoverPolicy;
use wp_medium::{Overlay, Sound, View};

use crate::disk::{SuperBlock, compat, incompat, ro_compat};
use crate::image;

pub use finding::{Class, Finding, Kind, Report};
pub use wp_vfs::finding::Severity;

use state::State;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Recover in memory first, and check the result.
    pub recover: bool,
    /// The kernel whose rules recovery follows.
    pub policy: RecoverPolicy,
    /// Seconds since 1970: the time of deletion of orphans that recovery frees.
    pub now: u32,
    /// Nobody but the kernel has had the file system since mkfs: what lies behind the inodes that a
    /// group calls used is zero, once it says so. (e2fsck counts the used ones anew, and may leave
    /// old inodes behind them.)
    pub tables_zeroed: bool,
    /// Findings kept; more are counted.
    pub findings_max: usize,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            recover: false,
            policy: RecoverPolicy::e2fsck(),
            now: 1_388_534_400,
            tables_zeroed: false,
            findings_max: 1000,
        }
    }
}

/// Checks the file system in `view`.
///
/// An image that needs recovery is checked as it stands, and what a replay puts right is marked so;
/// with [`CheckOptions::recover`] it is recovered in memory first.
/// Errors: `Unsupported` for features that we cannot check; `Io` where `view` cannot be read.
///         Whatever is wrong with the image is a finding.
pub fn check(view: &dyn View, options: &CheckOptions) -> FsResult<Report> {
    check_one_of(view, options, &Sound::default())
}

/// Checks one of a set of images; `sound` is the set's. What it finds is what [`check`] finds.
///
/// Errors: [`check`]'s.
pub fn check_one_of(view: &dyn View, options: &CheckOptions, sound: &Sound) -> FsResult<Report> {
    let overlay = Overlay::new(view);
    let needed = needs_recovery(view);
    let recovered = if options.recover || needed {
        image::recover(&overlay, &options.policy, options.now).map(|r| r.is_needed())
    } else {
        Ok(false)
    };
    if options.recover {
        return match recovered {
            Ok(recovered) => {
                let mut report = check_as_is(&overlay, options, sound)?;
                report.recovered = recovered;
                Ok(report)
            }
            Err(FsError::Unsupported(what)) => Err(FsError::Unsupported(what)),
            Err(e) => {
                let mut report = check_as_is(view, options, sound)?;
                let found = e.to_string();
                report.add(Kind::Recovery, "journal".to_owned(), found, "a log to replay");
                Ok(report)
            }
        };
    }
    let mut report = check_as_is(view, options, sound)?;
    if recovered == Ok(true) {
        let after = check_as_is(&overlay, options, sound)?;
        report.mark_fixed_by_replay(&after);
    }
    Ok(report)
}

/// What an image has and [`check`] does not look at. `None`: it has no super block.
pub fn not_checked(view: &dyn View) -> Option<Vec<&'static str>> {
    let mut bytes = [0u8; SuperBlock::BYTES];
    view.read_at(SuperBlock::AT, &mut bytes).ok()?;
    let sb = SuperBlock::load(&bytes).filter(|sb| sb.magic.get() == SuperBlock::MAGIC)?;
    let mut all = vec!["contents of files (ext4 has no checksums of data)"];
    if sb.has_ro_compat(ro_compat::QUOTA) {
        all.push("quotas (`e2fsck -fn` compares the quota files with what is in use)");
    }
    if sb.has_compat(compat::HAS_JOURNAL) && !sb.has_internal_journal() {
        all.push("the journal, which is on another device");
    }
    Some(all)
}

fn needs_recovery(view: &dyn View) -> bool {
    let mut bytes = [0u8; SuperBlock::BYTES];
    view.read_at(SuperBlock::AT, &mut bytes).is_ok()
        && SuperBlock::load(&bytes).is_some_and(|sb| {
            sb.magic.get() == SuperBlock::MAGIC
                && (sb.has_incompat(incompat::RECOVER) || sb.last_orphan.get() != 0)
        })
}

fn check_as_is(view: &dyn View, options: &CheckOptions, sound: &Sound) -> FsResult<Report> {
    let mut report = Report::keeping(options.findings_max);
    let Some(mut state) = State::open(view, sound, &mut report)? else { return Ok(report) };
    if supers::tables(&mut state) {
        inodes::pass(&mut state);
        if options.tables_zeroed {
            inodes::unused(&mut state);
        }
        special::pass(&mut state);
        dirs::pass(&mut state);
        links::pass(&mut state);
        counts::pass(&mut state);
    }
    state.finish(&mut report);
    Ok(report)
}
