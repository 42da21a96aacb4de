//! Options of a mount that cannot be together.

use wp_base::{FsError, FsResult};

use super::data_journal::DataMode;
use super::mount::{MountOptions, ZEROOUT_KIB};
use super::table_trim::TableTrim;

impl MountOptions {
    /// Errors: `Invalid` for options that this kernel refuses together.
    pub(super) fn check(&self) -> FsResult<()> {
        let ordered = self.data == DataMode::Ordered;
        if self.async_commit && self.table_trim == TableTrim::Safe {
            // Nothing is flushed between a discard and the revokes of what it replaces.
            return Err(FsError::Invalid("inode_trim=safe with journal_async_commit"));
        }
        if self.ordering_only && self.dual.is_none() {
            return Err(FsError::Invalid("ordering_only without journaling=barrier"));
        }
        if self.force_copy && self.dual.is_some_and(|d| d.versions.is_some()) {
            return Err(FsError::Invalid(
                "force_copy with jh_versions, which logs copies already: use one of them",
            ));
        }
        if self.dual.is_some() {
            if self.async_commit {
                return Err(FsError::Invalid("journal_async_commit with journaling=barrier"));
            }
            if self.discard || self.table_trim != TableTrim::Off {
                // A discard has no place in the order of writes.
                return Err(FsError::Invalid("discard, inode_trim with journaling=barrier"));
            }
        }
        if self.zeroout_kib != ZEROOUT_KIB && !self.era.zeroes_by_kib {
            return Err(FsError::Invalid("extent_max_zeroout_kb: before 3.7 it is 7 blocks"));
        }
        if self.async_commit && ordered && self.era.refuses_async_ordered {
            return Err(FsError::Invalid("journal_async_commit in data=ordered mode"));
        }
        Ok(())
    }
}
