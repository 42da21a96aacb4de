//! Directories that are being listed.

use wp_base::{FsError, FsResult};
use wp_vfs::FileType;

use super::Live;
use crate::nodes::ROOT;

impl Live {
    /// Gives entries of a listing from `from` on, with what comes behind each, until `take` has
    /// enough.
    pub(crate) fn list(
        &self,
        node: u64,
        handle: u64,
        from: u64,
        mut take: impl FnMut(u64, u64, FileType, &[u8]) -> bool,
    ) -> FsResult<()> {
        let lists = self.lists.borrow();
        let list = lists.get(&handle).ok_or(FsError::BadFile)?;
        let dots = [(node, FileType::Dir, &b"."[..]), (ROOT, FileType::Dir, &b".."[..])];
        let all =
            dots.into_iter().chain(list.iter().map(|(ino, e)| (*ino, e.kind, e.name.as_slice())));
        for (n, (ino, kind, name)) in all.enumerate().skip(from as usize) {
            if take(ino, n as u64 + 1, kind, name) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn close_dir(&self, handle: u64) -> FsResult<()> {
        self.lists.borrow_mut().remove(&handle);
        self.release(handle as u32).await
    }

    /// Reads an open directory from its beginning (`rewinddir`).
    pub(crate) async fn rewind(&self, node: u64, handle: u64) -> FsResult<()> {
        let ino = self.nodes.borrow().ino(node)?;
        let entries = self.vfs.fs().read_dir(ino).await?;
        let mut nodes = self.nodes.borrow_mut();
        let list = entries.into_iter().map(|e| (nodes.number(e.ino), e)).collect();
        self.lists.borrow_mut().insert(handle, list);
        Ok(())
    }
}
