//! What lies behind the end of a file when it grows.
//!
//! Source: Linux `fs/f2fs/file.c` (`f2fs_zero_post_eof_page`, `do_zero_post_eof_page`).

use std::rc::Rc;

use wp_base::FsResult;
use wp_cache::BufFlag;

use super::data::BLOCK;
use super::inode::Inode;
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::inode::inline;

impl F2fs {
    /// Before a file grows to `size` bytes: cached bytes behind its old end become zero. With
    /// `writes` and fsync_mode=strict the zeroes are on the device before the new length can be,
    /// so that no power cut shows what the device had there.
    ///
    /// Waits: for writeback of the last block; in strict mode for its read and write. Errors: `Io`,
    /// `NoSpace`.
    pub(super) async fn zero_beyond_end(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        size: u64,
        writes: bool,
    ) -> FsResult<()> {
        let old = inode.size.get();
        if old >= size || !self.opts.era.zero_beyond_end() {
            return Ok(());
        }
        let (index, skip) = (old / BLOCK, old % BLOCK);
        if let Some(b) = inode.map.peek(index).filter(|_| skip > 0) {
            self.wait_on_page_writeback(&b, Kind::Data, true).await;
            if b.flag(BufFlag::Uptodate) {
                let to = (size - index * BLOCK).min(BLOCK);
                b.with_mut(|bytes| bytes[skip as usize..to as usize].fill(0));
            }
        }
        let (first, end) = (old.div_ceil(BLOCK), size / BLOCK);
        if first < end && !inode.map.range(first, end).is_empty() {
            self.drop_pages(inode, first, end).await;
        }
        if writes
            && skip > 0
            && self.opts.fsync_mode.keeps_names()
            && self.opts.era.strict_writes_zeroes()
        {
            self.write_zeroes(inode, size).await?;
        }
        Ok(())
    }

    /// Zeroes on the device what is behind the end in the last block (`do_zero_post_eof_page`).
    async fn write_zeroes(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> FsResult<()> {
        let old = inode.size.get();
        if inode.has_inline(inline::DATA) {
            if size <= u64::from(inode.shape().inline_bytes()) {
                return Ok(());
            }
            self.convert_inline(inode).await?;
        }
        let (index, skip) = (old / BLOCK, old % BLOCK);
        let to = (skip + size - old).min(BLOCK);
        self.fill_zero(inode, index, skip, to).await?;
        self.write_back(inode, old, index * BLOCK + to).await
    }
}
