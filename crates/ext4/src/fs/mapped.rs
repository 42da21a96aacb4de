//! Stores through mappings of files, and `sync_file_range`.
//!
//! Source: Linux `ext4_page_mkwrite` (`fs/ext4/inode.c`), `sync_file_range` (`fs/sync.c`).

use std::rc::Rc;

use wp_base::FsResult;
use wp_block::Quasi;
use wp_cache::{BufFlag, Buffer, Readahead, WbControl};
use wp_medium::{PAGE_BYTES, Slice};
use wp_vfs::{ErrSeqCursor, page_stores};

use super::inode::Inode;
use super::mount::Ext4;
use crate::site;

impl Ext4 {
    /// Waits until a block of a file, which is to change, is not being written any more.
    pub(super) async fn wait_stable(&self, b: &Buffer) {
        self.bdev.note_data_wait(b, Quasi::Data);
        b.wait_clear(BufFlag::Writeback).await;
    }

    /// Stores `data` at `offset`, page by page: each is read, every block of it up to the end of
    /// the file gets its place or the promise of one, and is dirty (`block_page_mkwrite`).
    ///
    /// Waits: for the inode's lock, which a fault does not take: a store beside a `write` is one of
    /// both orders. Errors: as [`Ext4::write_data`].
    pub(super) async fn write_mapped(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        data: &[Slice],
        ahead: &Readahead,
    ) -> FsResult<()> {
        for store in page_stores(offset, data) {
            let start = store.start;
            let _lock = self.lock_alone(inode).await;
            let (size, bs) = (inode.size.get(), u64::from(self.bs().bytes()));
            if let Some(window) = ahead.at_fault(&inode.map, start / bs, size, &self.readahead()) {
                self.start_reads(inode, window).await;
            }
            let held =
                self.read_data(inode, start, PAGE_BYTES as u64, &Readahead::default()).await?;
            let bytes = store.over(&held);
            if bytes.is_empty() {
            } else if self.has_places(inode, start / bs, bytes.len() as u64) {
                self.update_time(inode).await?;
                self.dirty_blocks(inode, start / bs, &bytes).await;
                self.wb.balance_dirty().await;
            } else {
                self.write_data(inode, start, &[Slice::from_bytes(&bytes)]).await?;
            }
        }
        Ok(())
    }

    /// Without delayed allocation nothing is left to do where every block of the page has its
    /// place: no handle is started (`ext4_bh_unmapped`).
    fn has_places(&self, inode: &Inode, first: u64, bytes: u64) -> bool {
        let last = first + bytes.div_ceil(u64::from(self.bs().bytes()));
        let has_place = |i| {
            let b = inode.map.peek(i);
            b.is_some_and(|b| b.flag(BufFlag::Mapped) && !b.flag(BufFlag::Unwritten))
        };
        !self.delays(inode) && !self.journals_data(inode) && (first..last).all(has_place)
    }

    async fn dirty_blocks(&self, inode: &Inode, first: u64, bytes: &[u8]) {
        for (index, part) in (first..).zip(bytes.chunks(self.bs().bytes() as usize)) {
            let b = inode.map.get(index);
            if self.opts.writeback.era.stable_pages() && site::STABLE.on() {
                b.wait_clear(BufFlag::Writeback).await;
            }
            b.put(0, &Slice::from_bytes(part));
            inode.map.mark_dirty(&b);
        }
    }

    /// Writes what is dirty of bytes `from..to` and waits for it. Errors: `Io`, as a sync tells it.
    pub(super) async fn write_and_wait(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (from, to): (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        let range = self.pages_of(from / bs, to.div_ceil(bs));
        inode.map.settle_range(range).await;
        let wbc = WbControl { range, ..WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        inode.map.settle_range(range).await;
        written.and(self.tell(inode, told))
    }
}
