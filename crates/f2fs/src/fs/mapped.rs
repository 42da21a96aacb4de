//! Stores through mappings of files, and `sync_file_range`.
//!
//! Source: Linux `f2fs_vm_page_mkwrite` (`fs/f2fs/file.c`), `sync_file_range` (`fs/sync.c`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{Readahead, WbControl};
use wp_medium::Slice;
use wp_vfs::{ErrSeqCursor, page_stores};

use super::data::{BLOCK, block_range};
use super::inode::{Inode, fi};
use super::mount::F2fs;

impl F2fs {
    /// Stores `data` at `offset`, page by page: data in the inode move to a block first, the page
    /// is read, gets space, and is dirty.
    ///
    /// Waits: for the inode's lock, which a fault does not take: a store beside a `write` is one of
    /// both orders. Errors: as [`F2fs::write_data`].
    pub(super) async fn write_mapped(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        data: &[Slice],
        ahead: &Readahead,
    ) -> FsResult<()> {
        self.check_writable()?;
        if !inode.is_file() {
            return Err(FsError::Invalid("a mapping of what is no regular file"));
        }
        for store in page_stores(offset, data) {
            let start = store.start;
            let _lock = self.lock_for_write(inode).await;
            if inode.is(fi::ATOMIC) {
                // The store gets SIGBUS.
                return Err(FsError::Fault);
            }
            self.convert_inline(inode).await?;
            let size = inode.size.get();
            let block = start / BLOCK;
            if let Some(window) = ahead.at_fault(&inode.map, block, size, &self.readahead()) {
                self.start_reads(inode, window).await;
            }
            let held = self.read_data(inode, start, BLOCK, &Readahead::default()).await?;
            let bytes = store.over(&held);
            if !bytes.is_empty() {
                self.write_data(inode, start, &[Slice::from_bytes(&bytes)]).await?;
            }
        }
        Ok(())
    }

    /// Writes what is dirty of bytes `from..to` and waits for it. Errors: `Io`, as a sync tells it.
    pub(super) async fn write_and_wait(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (from, to): (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        let range = block_range(from, to);
        inode.map.settle_range(range).await;
        let wbc = WbControl { range, ..WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        inode.map.settle_range(range).await;
        written.and(F2fs::tell(inode, told))
    }
}
