//! Which images can be mounted read-write.
//!
//! Source: Linux `ext4_feature_set_ok` (`fs/ext4/super.c`); the lists are ours.

use wp_base::{FsError, FsResult};

use crate::disk::{SuperBlock, compat, feature, incompat, ro_compat};

/// Incompatible features that the runtime can write.
const INCOMPAT_WRITABLE: u32 = incompat::FILETYPE
    | incompat::RECOVER
    | incompat::EXTENTS
    | incompat::BIT64
    | incompat::FLEX_BG
    | incompat::CSUM_SEED;
/// Read-only compatible features that it can write.
const RO_COMPAT_WRITABLE: u32 = ro_compat::SPARSE_SUPER
    | ro_compat::LARGE_FILE
    | ro_compat::HUGE_FILE
    | ro_compat::GDT_CSUM
    | ro_compat::DIR_NLINK
    | ro_compat::EXTRA_ISIZE
    | ro_compat::METADATA_CSUM
    | ro_compat::BIGALLOC
    | ro_compat::ORPHAN_PRESENT;

/// Can an image with these features be written? Errors: `Unsupported`, with the features' names.
///
/// A `compat` feature never stands in the way; `fast_commit` only says that the journal may have an
/// area for it, which is not used.
pub(super) fn check(sb: &SuperBlock) -> FsResult<()> {
    let unknown = sb.feature_incompat.get() & !INCOMPAT_WRITABLE;
    if unknown != 0 {
        return Err(FsError::Unsupported(format!(
            "mounting an ext4 with incompat feature {}: this build cannot write it",
            feature::names(unknown, incompat::NAMES)
        )));
    }
    let unknown = sb.feature_ro_compat.get() & !RO_COMPAT_WRITABLE;
    if unknown != 0 {
        return Err(FsError::Unsupported(format!(
            "mounting an ext4 read-write with ro_compat feature {}: this build cannot write it",
            feature::names(unknown, ro_compat::NAMES)
        )));
    }
    if sb.has_ro_compat(ro_compat::BIGALLOC) && sb.has_compat(compat::FAST_COMMIT) {
        let what = "mounting an ext4 with bigalloc and fast_commit: one of the two only";
        return Err(FsError::Unsupported(what.to_owned()));
    }
    // `ext4_feature_set_ok` says the same of an orphan file that nobody announced.
    if sb.has_ro_compat(ro_compat::ORPHAN_PRESENT) && !sb.has_compat(compat::ORPHAN_FILE) {
        return Err(FsError::corrupt(
            "ext4 super block",
            "s_feature_ro_compat",
            SuperBlock::AT,
            u64::from(sb.feature_ro_compat.get()),
            "no orphan_present without orphan_file",
        ));
    }
    Ok(())
}
