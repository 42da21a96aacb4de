//! Syncs: of a file, of a range of it, of everything.
//!
//! Source: fs/nilfs2/file.c (`nilfs_sync_file`), super.c (`nilfs_sync_fs`), fs/sync.c,
//!         fs/fs-writeback.c (`sync_inodes_sb`).

use wp_base::{FsError, FsResult, Ino};
use wp_cache::WbControl;
use wp_medium::Slice;
use wp_vfs::{ErrSeqCursor, SyncKind};

use super::ops::Mounted;
use crate::site;

impl Mounted {
    /// Sends what is dirty of bytes `from..to`, and waits. Errors: `Io`, as a sync tells it.
    pub(super) async fn write_and_wait(
        &self,
        ino: Ino,
        (from, to): (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        let fs = &self.0;
        // A directory's pages are written as a file's are.
        fs.inode(ino.0)?;
        if to <= from {
            return Ok(());
        }
        let (map, bits) = (fs.pages.inode(ino.0).map.clone(), fs.g.block_bits);
        let range = (from >> bits, (to - 1) >> bits);
        map.settle_range(range).await;
        let written = map.writepages(&WbControl { range, ..WbControl::sync_all() }).await;
        map.settle_range(range).await;
        let has_failed = map.errors().check_and_advance(&told.data);
        written.and(if has_failed { Err(FsError::Io) } else { Ok(()) })
    }

    /// Sends what lies dirty below a direct write, or below any place of its file.
    ///
    /// Waits: for a log, if any page of the file is dirty: which one, `nilfs_writepages` does not
    /// ask before it makes a log of the range, or of everything. `kiocb_invalidate_pages`.
    pub(super) async fn invalidate(
        &self,
        ino: Ino,
        offset: Option<u64>,
        data: &[Slice],
    ) -> FsResult<()> {
        let fs = &self.0;
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        if len == 0 || !fs.pages.inode(ino.0).map.has_dirty() {
            return Ok(());
        }
        let at = match offset {
            Some(at) => at,
            None => self.file(ino)?.size.get(),
        };
        let bits = fs.g.block_bits;
        fs.write_data(ino.0, at >> bits, at.saturating_add(len - 1) >> bits).await
    }

    /// Has the flusher send what lies dirty file by file, in the order in which they became dirty,
    /// as if each were to be fdatasynced: one whose inode changed takes all others with it, and so
    /// does one of metadata. `writeback_inodes_sb`, `sync_inodes_sb`.
    ///
    /// Nobody is told of a failure here; the checkpoint that follows tells.
    pub(super) async fn sync_inodes(&self) {
        let wb = &self.0.pages.wb;
        wb.write_files(false).await;
        if site::SYNC_LOG.on() {
            wb.write_files(true).await;
            wb.wait_files().await;
        }
    }

    /// `nilfs_sync_fs` that does not wait.
    pub(super) async fn flush_super(&self) -> FsResult<()> {
        self.0.update_stale_super().await?;
        self.0.flush_device().await
    }

    /// `nilfs_sync_fs` that waits.
    pub(super) async fn sync_rest(&self) -> FsResult<()> {
        if site::SYNC_LOG.on() {
            self.0.write_all().await?;
        }
        self.flush_super().await
    }

    /// Sends what a sync of blocks asks for, and flushes the device. `nilfs_sync_file`.
    pub(super) async fn sync(
        &self,
        ino: u64,
        kind: SyncKind,
        (from, to): (u64, u64),
    ) -> FsResult<()> {
        let fs = &self.0;
        fs.check_writable()?;
        let bits = fs.g.block_bits;
        // A file none of whose blocks changed is clean for Linux, whatever its inode says.
        let has_blocks = fs.store.borrow().is_file_dirty(ino) || fs.in_log.borrow().contains(&ino);
        let has_inode = fs.opts.sync_inodes && fs.inode_sync.borrow().contains(&ino);
        if (has_blocks || has_inode) && site::FSYNC_LOG.on() {
            match kind {
                SyncKind::DataOnly => fs.write_data(ino, from >> bits, to >> bits).await?,
                SyncKind::Full => fs.write_all().await?,
            }
        }
        fs.flush_device().await
    }
}
