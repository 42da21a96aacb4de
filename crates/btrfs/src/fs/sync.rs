//! What makes things durable.
//!
//! Source: fs/btrfs/file.c (`btrfs_sync_file`), super.c (`btrfs_sync_fs`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::WbControl;
use wp_rt::CpuOp;
use wp_vfs::{ErrSeqCursor, SyncKind};

use crate::site;

use super::Btrfs;
use super::inode::Inode;
use super::log::{Mode, Stop};

impl Btrfs {
    /// Makes a file durable; an fdatasync does the same. `btrfs_sync_file`.
    pub(super) async fn fsync(
        &self,
        inode: &Rc<Inode>,
        _kind: SyncKind,
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        self.rt.cpu(CpuOp::SyncStart, 1).await;
        let done = self.sync_inode(inode).await;
        self.rt.cpu(CpuOp::SyncEnd, 1).await;
        let has_failed = inode.map.errors().check_and_advance(&told.data);
        inode.map.take_error();
        done.and(if has_failed { Err(FsError::Io) } else { Ok(()) })
    }

    async fn start_writes(&self, inode: &Rc<Inode>) -> FsResult<()> {
        if !site::FSYNC_WRITE.on() {
            return Ok(());
        }
        let plug = self.part.plug();
        let done = inode.map.writepages(&WbControl::sync_all()).await;
        drop(plug);
        done
    }

    async fn sync_inode(&self, inode: &Rc<Inode>) -> FsResult<()> {
        self.start_writes(inode).await?;
        let lock = inode.lock.lock().await;
        self.start_writes(inode).await?;
        let full_sync = inode.logged.full_sync.get();
        let mut ordered = Vec::new();
        if full_sync {
            if site::FSYNC_WAIT.on() {
                self.write_ordered(inode, 0, u64::MAX).await?;
            }
        } else {
            ordered = self.ordered_to_log(inode);
            if site::FSYNC_WAIT.on() {
                self.wait_blocks(inode, (0, u64::MAX)).await?;
                // Direct writes are no pages; whoever made them waited for them.
                if ordered.iter().any(|o| o.has_failed.get() || o.left.get() > 0) {
                    self.wait_ordered(inode, 0, u64::MAX).await;
                }
            }
        }
        if self.has_failed.get() {
            return Err(FsError::Io);
        }
        let is_idle = ordered.is_empty();
        let is_committed = inode.last_trans.get() <= self.commits.last();
        let mend = self.opts.mend;
        let has_lost = inode.logged.unlinked.get() > self.commits.last() && inode.nlink() > 0;
        let is_moved = (mend.unlinked && has_lost)
            || (mend.renamed && self.with(|c| self.was_moved(c, inode))?);
        let is_done =
            (is_idle && self.is_in_log(inode)) || (is_committed && (full_sync || is_idle));
        if is_done && !is_moved {
            // A commit has all that was changed, for whatever reason it was set.
            inode.logged.full_sync.set(false);
            return Ok(());
        }
        if !site::FSYNC_COMMIT.on() {
            return Ok(());
        }
        let handle = self.hold_transaction().await?;
        let transid = self.newest();
        let (nameless, era) = (inode.nlink() == 0, self.opts.era);
        let logged = if is_moved || (nameless && mend.nameless) {
            Err(Stop::Full)
        } else if !self.opts.treelog {
            // Asked before all else, so that also what has no name is committed.
            Err(Stop::Full)
        } else if self.with(|c| Ok(!inode.vol.can_log(c)?))? {
            Err(Stop::Full)
        } else if (nameless && !era.logs_nameless()) || (is_idle && self.is_in_log(inode)) {
            Err(Stop::Nothing)
        } else {
            self.log_with(inode, false, ordered, |log| log.inode_and_parents(inode, Mode::All))
        };
        let read = self.settle().await;
        drop(lock);
        let synced = match logged {
            _ if read.is_err() => {
                self.logs.need_commit(transid);
                Err(Stop::Full)
            }
            Ok(((), number)) => self.sync_log(&inode.vol, transid, number).await,
            Err(stop) => Err(stop),
        };
        drop(handle);
        match synced {
            Ok(()) | Err(Stop::Nothing) => return Ok(()),
            Err(Stop::Full) => {}
        }
        self.logs.refused.set(self.logs.refused.get() + 1);
        if !site::FSYNC_FULL.on() {
            return Ok(());
        }
        if full_sync {
            return self.commit(transid).await;
        }
        // Items of what was on its way may be of a later transaction, if somebody has committed
        // this one meanwhile.
        self.write_ordered(inode, 0, u64::MAX).await?;
        self.commit_now().await
    }

    /// `sync_filesystem` and `btrfs_sync_fs`.
    pub(super) async fn sync_everything(&self) -> FsResult<()> {
        if site::SYNC_DATA.on() {
            self.wb.write_files(true).await;
        }
        // The flusher has sent tree blocks, too; what has changed since is sent by the call
        // (`btrfs_sync_fs` that does not wait).
        if !self.has_failed.get() {
            self.send_early().await?;
        }
        self.wb.wait_files().await;
        self.await_early().await;
        if site::SYNC_ORDERED.on() {
            self.wait_all_ordered().await;
        }
        if self.has_failed.get() {
            return Err(FsError::ReadOnly);
        }
        if site::SYNC_COMMIT.on() { self.commit_now().await } else { Ok(()) }
    }
}
