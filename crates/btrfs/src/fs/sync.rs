//! What makes things durable.
//!
//! Source: fs/btrfs/file.c (`btrfs_sync_file`), super.c (`btrfs_sync_fs`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::WbControl;
use wp_rt::CpuOp;
use wp_vfs::{SyncKind, Told};

use crate::site;

use super::Btrfs;
use super::inode::Inode;

impl Btrfs {
    /// Makes a file durable. `btrfs_sync_file`.
    pub(super) async fn fsync(
        &self,
        inode: &Rc<Inode>,
        _kind: SyncKind,
        told: &Told,
    ) -> FsResult<()> {
        self.rt.cpu(CpuOp::SyncStart, 1).await;
        let done = self.sync_inode(inode).await;
        self.rt.cpu(CpuOp::SyncEnd, 1).await;
        let has_failed = inode.map.errors().check_and_advance(&told.data);
        inode.map.take_error();
        done.and(if has_failed { Err(FsError::Io) } else { Ok(()) })
    }

    async fn start_writes(&self, inode: &Rc<Inode>) -> FsResult<()> {
        let plug = self.part.plug();
        let done = inode.map.writepages(&WbControl::sync_all()).await;
        drop(plug);
        done
    }

    async fn sync_inode(&self, inode: &Rc<Inode>) -> FsResult<()> {
        self.start_writes(inode).await?;
        let _lock = inode.lock.lock().await;
        self.start_writes(inode).await?;
        if site::FSYNC_WAIT.on() {
            self.write_ordered(inode, 0, u64::MAX).await?;
        }
        if self.has_failed.get() {
            return Err(FsError::Io);
        }
        let want = inode.last_trans.get();
        if want <= self.commits.last() || !site::FSYNC_COMMIT.on() {
            return Ok(());
        }
        self.commit(want).await
    }

    /// `sync_filesystem` and `btrfs_sync_fs`.
    pub(super) async fn sync_everything(&self) -> FsResult<()> {
        self.wb.write_files(true).await;
        self.wb.wait_files().await;
        self.wait_all_ordered().await;
        if self.has_failed.get() {
            return Err(FsError::ReadOnly);
        }
        self.commit_now().await
    }
}
