//! `syncfs`: one file system, not the whole machine.
//!
//! Source: Linux `sync_filesystem` (`fs/sync.c`), `ext4_sync_fs` (`fs/ext4/super.c`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_vfs::ErrSeqCursor;

use super::mount::Ext4;
use crate::site;

impl Ext4 {
    /// Data of all files is sent, the commit is started, metadata of older transactions is sent
    /// home, and then all of that is waited for in the same order.
    ///
    /// Waits: for data, for the commit or, where none will flush, for a flush, for metadata.
    ///
    /// Errors: `Io` if metadata could not be written home; if the commit failed and, through each
    ///         open file once, if any data or metadata failed, each since the kernel does so.
    pub(super) async fn sync_file_system(self: &Rc<Self>, told: &ErrSeqCursor) -> FsResult<()> {
        if !self.is_mounted() {
            return Err(FsError::ReadOnly);
        }
        let done = self.send_and_wait().await;
        let failed =
            self.opts.era.syncfs_tells_errors() && self.wb.errors().check_and_advance(&told.fs);
        done.and(if failed { Err(FsError::Io) } else { Ok(()) })
    }

    /// `sync_filesystem`.
    async fn send_and_wait(self: &Rc<Self>) -> FsResult<()> {
        if self.is_stopped() {
            // It is read-only: there is nothing to write.
            return Ok(());
        }
        let tells = self.opts.era.syncfs_tells_commit();
        let counts = |done: FsResult<()>| if tells { done } else { Ok(()) };
        if site::SYNCFS_SEND.on() {
            self.wb.write_files(false).await;
        }
        counts(self.sync_journal(false).await)?;
        self.bdev.start_sync().await?;
        if site::SYNCFS_WRITE.on() {
            self.wb.write_files(true).await;
        }
        if site::SYNCFS_WAIT.on() {
            self.wb.wait_files().await;
        }
        self.sync_forgets_errors();
        counts(self.sync_journal(true).await)?;
        if site::SYNCFS_HOME.on() { self.bdev.sync().await } else { Ok(()) }
    }

    /// `ext4_sync_fs`: asks for a commit of what is running and, with `wait`, waits for it; without
    /// a commit that will flush the device it flushes it, whether or not anything was written.
    async fn sync_journal(self: &Rc<Self>, wait: bool) -> FsResult<()> {
        let journal = self.journal();
        let running = journal.running_tid().or(journal.committing_tid());
        let latest = running.unwrap_or_else(|| journal.commit_sequence());
        let needs_flush = wait
            && self.opts.sync_flushes()
            && self.opts.era.sync_flushes()
            && !journal.will_send_data_barrier(latest);
        if let Some(tid) = running {
            if site::SYNCFS_ASK.on() {
                journal.request_commit(tid);
            }
            if wait && self.opts.dual.is_none() && site::SYNCFS_COMMIT.on() {
                journal.wait_commit(tid).await?;
            }
        }
        if wait && self.opts.dual.is_some() && site::SYNCFS_COMMIT.on() {
            // A commit that is over need not be durable.
            journal.force_commit().await?;
        }
        if needs_flush && site::SYNCFS_FLUSH.on() {
            self.bdev.queue().flush().await.map_err(|_| FsError::Io)?;
        }
        Ok(())
    }
}
