//! Stores through mappings of files, and `sync_file_range`.
//!
//! Source: fs/btrfs/inode.c (`btrfs_page_mkwrite`; file.c since 6.9), `sync_file_range`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{Readahead, WbControl};
use wp_medium::Slice;
use wp_vfs::{ErrSeqCursor, page_stores};

use super::inode::Inode;
use super::{BLOCK, Btrfs};

impl Btrfs {
    /// Stores `data` at `offset`, page by page: each is read, promised space, and dirty, up to the
    /// end of the file.
    ///
    /// Waits: for the inode's lock, which a fault does not take: a store beside a `write` is one of
    /// both orders. Errors: as [`Btrfs::write_data`].
    pub(super) async fn write_mapped(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: &[Slice],
        ahead: &Readahead,
    ) -> FsResult<()> {
        for store in page_stores(offset, data) {
            let start = store.start;
            let _lock = inode.lock.lock().await;
            self.read_around(inode, start / BLOCK, ahead).await;
            let held = self.read_data(inode, start, BLOCK, &Readahead::default()).await?;
            let bytes = store.over(&held);
            if !bytes.is_empty() {
                let done = self.write_data(inode, start, &[Slice::from_bytes(&bytes)]).await;
                self.note_write(inode);
                done?;
            }
        }
        Ok(())
    }

    /// Writes what is dirty of bytes `from..to` and waits for it; for ordered extents nobody waits.
    /// Errors: `Io`, as a sync tells it.
    pub(super) async fn write_and_wait(
        &self,
        inode: &Rc<Inode>,
        (from, to): (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        if to <= from {
            return Ok(());
        }
        let range = (from / BLOCK, (to - 1) / BLOCK);
        inode.map.settle_range(range).await;
        let wbc = WbControl { range, ..WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        inode.map.settle_range(range).await;
        let has_failed = inode.map.errors().check_and_advance(&told.data);
        written.and(if has_failed { Err(FsError::Io) } else { Ok(()) })
    }
}
