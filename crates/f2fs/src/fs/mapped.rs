//! Stores through mappings of files, and `sync_file_range`.
//!
//! Source: Linux `f2fs_vm_page_mkwrite` (`fs/f2fs/file.c`), `sync_file_range` (`fs/sync.c`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{Readahead, WbControl};
use wp_medium::{PAGE_BYTES, Pieces, Slice};
use wp_vfs::ErrSeqCursor;

use super::data::block_range;
use super::inode::Inode;
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
        let page = PAGE_BYTES as u64;
        let end = offset + data.iter().map(|s| u64::from(s.len())).sum::<u64>();
        let mut pieces = Pieces::new(data);
        let mut at = offset;
        while at < end {
            let start = at / page * page;
            let n = (start + page - at).min(end - at);
            let new = Slice::concat(&pieces.take(n as u32));
            let _lock = self.lock_for_write(inode).await;
            self.convert_inline(inode).await?;
            let size = inode.size.get();
            let block = start / page;
            if let Some(window) = ahead.at_fault(&inode.map, block, size, &self.readahead()) {
                self.start_reads(inode, window).await;
            }
            let held = self.read_data(inode, start, page, &Readahead::default()).await?;
            let mut bytes = Slice::concat(&held);
            // What the store puts behind the end of the file is lost with the page.
            let kept = (at + n).min(size.min(start + page)).saturating_sub(at) as usize;
            let within = (at - start) as usize;
            if kept > 0 {
                bytes[within..within + kept].copy_from_slice(&new[..kept]);
            }
            if !bytes.is_empty() {
                self.write_data(inode, start, &[Slice::from_bytes(&bytes)]).await?;
            }
            at += n;
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
        inode.map.settle().await;
        let wbc = WbControl { range: block_range(from, to), ..WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        inode.map.settle().await;
        written.and(F2fs::tell(inode, told))
    }
}
