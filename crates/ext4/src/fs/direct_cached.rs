//! Direct writes that go through the cache after all.
//!
//! Source: Linux `ext4_file_write_iter`, `ext4_dio_write_iter` (`fs/ext4/file.c`).

use std::rc::Rc;

use wp_base::FsResult;
use wp_medium::Slice;
use wp_vfs::{ErrSeqCursor, SyncKind};

use super::inode::Inode;
use super::mount::Ext4;

impl Ext4 {
    /// There is no direct I/O for the file.
    pub(super) async fn through_cache(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: Option<u64>,
        data: &[Slice],
        (sync, told): (Option<SyncKind>, &ErrSeqCursor),
    ) -> FsResult<u64> {
        let lock = self.lock_alone(inode).await;
        let at = offset.unwrap_or(inode.size.get());
        let n = Box::pin(self.write_data(inode, at, data)).await?;
        drop(lock);
        self.synced(inode, (at, n), sync, told).await
    }

    /// Somebody holds a cached block: through the cache, and out of it again.
    pub(super) async fn and_out_of_it(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        at: u64,
        data: &[Slice],
        (sync, told): (Option<SyncKind>, &ErrSeqCursor),
    ) -> FsResult<u64> {
        let lock = self.lock_alone(inode).await;
        let n = Box::pin(self.write_data(inode, at, data)).await?;
        drop(lock);
        self.write_back(inode, at, at + n).await?;
        self.drop_cache(inode, at, at + n).await;
        self.synced(inode, (at, n), sync, told).await
    }
}
