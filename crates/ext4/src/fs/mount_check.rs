//! Options of a mount that cannot be together.

use wp_base::{FsError, FsResult};
use wp_block::Limits;

use super::data_journal::DataMode;
use super::iomap::IomapOptions;
use super::mount::MountOptions;
use super::table_trim::TableTrim;

/// Default of [`MountOptions::zeroout_kib`] (`EXT4_EXT_ZERO_LEN`).
pub(super) const ZEROOUT_KIB: u32 = 32;

/// Techniques of the literature that change how a mount writes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Literature {
    /// `force_copy` of Alibaba Cloud Linux: a commit logs copies, so no handle waits for a log
    /// write.
    pub force_copy: bool,
    /// The drive keeps all writes in order (OPTR): no flush before a commit record. With
    /// `ordering_only` no flush at all.
    pub optr: bool,
    /// `buffered_iomap`: how regular files are written through the cache.
    pub iomap: IomapOptions,
}

impl MountOptions {
    /// Errors: `Invalid` for options that this kernel refuses together.
    pub(super) fn check(&self) -> FsResult<()> {
        let ordered = self.data == DataMode::Ordered;
        if self.async_commit && self.table_trim == TableTrim::Safe {
            // Nothing is flushed between a discard and the revokes of what it replaces.
            return Err(FsError::Invalid("inode_trim=safe with journal_async_commit"));
        }
        if self.ordering_only && self.dual.is_none() && !self.literature.optr {
            return Err(FsError::Invalid("ordering_only without journaling=barrier or optr"));
        }
        if self.literature.optr && (self.dual.is_some() || self.async_commit) {
            return Err(FsError::Invalid(
                "optr with journaling=barrier or journal_async_commit: use one of them",
            ));
        }
        if self.literature.optr && (self.discard || self.table_trim != TableTrim::Off) {
            // Nothing says where a discard is in the order of writes.
            return Err(FsError::Invalid("discard, inode_trim with optr"));
        }
        if self.literature.force_copy && self.dual.is_some_and(|d| d.versions.is_some()) {
            return Err(FsError::Invalid(
                "force_copy with jh_versions, which logs copies already: use one of them",
            ));
        }
        if self.fast.ijournal && self.async_commit {
            // Recovery could not tell their transaction from those behind the gap of such a log.
            return Err(FsError::Invalid("ijournal with journal_async_commit: use one of them"));
        }
        if self.fast.ijournal && self.data == DataMode::Writeback && self.discard {
            // There freed data is discarded at once, and an i-transaction may name it.
            return Err(FsError::Invalid("ijournal with data=writeback and discard"));
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
        if self.literature.iomap.is_wrong() {
            return Err(FsError::Invalid("iomap_fix without buffered_iomap"));
        }
        if self.zeroout_kib != ZEROOUT_KIB && !self.era.zeroes_by_kib() {
            return Err(FsError::Invalid("extent_max_zeroout_kb: before 3.7 it is 7 blocks"));
        }
        if self.async_commit && ordered && self.era.refuses_async_ordered() {
            return Err(FsError::Invalid("journal_async_commit in data=ordered mode"));
        }
        Ok(())
    }

    /// Does `sync` end with a flush if no commit sends one? With `ordering_only` on a drive that
    /// keeps all writes in order it is the one call that makes anything durable.
    pub(super) fn sync_flushes(&self) -> bool {
        self.barrier || (self.literature.optr && self.ordering_only)
    }

    /// Errors: `Unsupported` for a drive that does not keep what the options rely on.
    pub(crate) fn check_drive(&self, drive: &Limits) -> FsResult<()> {
        if self.literature.optr && drive.volatile_cache && !drive.ordered_writes {
            let what =
                "optr on a drive that does not keep all writes in order; try optr=1 in --device";
            return Err(FsError::Unsupported(what.into()));
        }
        Ok(())
    }
}
