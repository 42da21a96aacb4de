//! Stores through mappings of files, and `sync_file_range`.
//!
//! Source: fs/btrfs/inode.c (`btrfs_page_mkwrite`; file.c since 6.9), `sync_file_range`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{Readahead, WbControl};
use wp_medium::{Pieces, Slice};
use wp_vfs::ErrSeqCursor;

use crate::disk::index;

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
        let end = offset + data.iter().map(|s| u64::from(s.len())).sum::<u64>();
        let mut pieces = Pieces::new(data);
        let mut at = offset;
        while at < end {
            let start = at / BLOCK * BLOCK;
            let n = (start + BLOCK - at).min(end - at);
            let new = Slice::concat(&pieces.take(u32::try_from(n).unwrap_or(0)));
            let _lock = inode.lock.lock().await;
            let size = inode.size();
            self.read_around(inode, start / BLOCK, ahead).await;
            let held = self.read_data(inode, start, BLOCK, &Readahead::default()).await?;
            let mut bytes = Slice::concat(&held);
            // What the store puts behind the end of the file is lost with the page.
            let kept = (at + n).min(size.min(start + BLOCK)).saturating_sub(at);
            let within = index(at - start)..index(at + kept - start);
            if let (Some(to), Some(from)) = (bytes.get_mut(within), new.get(..index(kept))) {
                to.copy_from_slice(from);
            }
            if !bytes.is_empty() {
                let done = self.write_data(inode, start, &[Slice::from_bytes(&bytes)]).await;
                self.note_write(inode);
                done?;
            }
            at += n;
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
        inode.map.settle().await;
        let wbc = WbControl { range: (from / BLOCK, (to - 1) / BLOCK), ..WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        inode.map.settle().await;
        let has_failed = inode.map.errors().check_and_advance(&told.data);
        written.and(if has_failed { Err(FsError::Io) } else { Ok(()) })
    }
}
