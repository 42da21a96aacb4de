//! Checkpoints.
//!
//! Source: Linux `fs/f2fs/checkpoint.c`.

use std::rc::Rc;

use wp_base::FsResult;
use wp_rt::Permit;

use super::mount::F2fs;

/// Why a checkpoint is written (`CP_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// `CP_SYNC`: somebody asked.
    Sync,
    /// `CP_UMOUNT`.
    Umount,
    /// `CP_RECOVERY`.
    Recovery,
}

/// State of checkpoints.
pub(crate) struct CpState {}

/// An operation under way: no checkpoint starts until it is dropped.
pub(crate) struct OpGuard {
    _permit: Permit,
}

impl F2fs {
    /// Begins an operation that changes something (`f2fs_lock_op`). Waits: for a checkpoint.
    pub(crate) async fn lock_op(&self) -> OpGuard {
        OpGuard { _permit: self.cp_rwsem.acquire(1).await }
    }

    /// As [`F2fs::lock_op`] if it need not wait (`f2fs_trylock_op`).
    pub(crate) fn try_lock_op(&self) -> Option<OpGuard> {
        self.cp_rwsem.try_acquire(1).map(|p| OpGuard { _permit: p })
    }

    /// Has writing stopped, because of an error (`f2fs_cp_error`)?
    pub(crate) fn cp_error(&self) -> bool {
        todo!()
    }

    /// Stops writing (`f2fs_stop_checkpoint`).
    pub(crate) fn stop_checkpoint(&self) {
        todo!()
    }

    /// The image contradicts itself: a check is due (`SBI_NEED_FSCK`).
    pub(crate) fn set_need_fsck(&self) {
        todo!()
    }

    /// Every fsync until the next checkpoint is one (`SBI_NEED_CP`).
    pub(crate) fn set_need_cp(&self) {
        todo!()
    }

    /// Is it so?
    pub(crate) fn is_need_cp(&self) -> bool {
        todo!()
    }

    /// Something is to be written by a checkpoint (`SBI_IS_DIRTY`).
    pub(crate) fn set_fs_dirty(&self) {
        todo!()
    }

    /// Version of the last checkpoint (`cur_cp_version`).
    pub(crate) fn cp_version(&self) -> u64 {
        self.cp.borrow().head().checkpoint_ver.get()
    }

    /// Writes a checkpoint, if anything changed since the last (`f2fs_sync_fs` with `sync`;
    /// without, nothing).
    pub(crate) async fn sync_checkpoint(self: &Rc<Self>) -> FsResult<()> {
        self.write_checkpoint(Reason::Sync).await
    }

    /// Writes a checkpoint (`f2fs_write_checkpoint`).
    pub(crate) async fn write_checkpoint(self: &Rc<Self>, reason: Reason) -> FsResult<()> {
        let _ = reason;
        todo!()
    }
}
