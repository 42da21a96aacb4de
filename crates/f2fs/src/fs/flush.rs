//! Cache flushes of fsync, merged between tasks.
//!
//! Source: Linux `fs/f2fs/segment.c` (`f2fs_issue_flush`, `issue_flush_thread`).

use wp_base::FsResult;

use super::mount::F2fs;

/// Flushes under way (`struct flush_cmd_control`).
pub(crate) struct Flusher {}

impl F2fs {
    /// Empties the device's cache (`f2fs_issue_flush`); nothing if mounted with `nobarrier`.
    /// Waits: for the flush. Errors: `Io`.
    pub(crate) async fn issue_flush(&self, ino: u32) -> FsResult<()> {
        let _ = ino;
        todo!()
    }
}
