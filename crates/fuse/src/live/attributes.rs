//! Extended attributes and flags of files.

use wp_base::{FsError, FsResult};
use wp_vfs::{FileFlags, XattrSet};
use wp_workload::program::{Call, Data};

use super::Live;

impl Live {
    pub(crate) async fn set_xattr(
        &self,
        node: u64,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
    ) -> FsResult<()> {
        let (path, name) = (self.path(node)?, xattr_name(name)?);
        if how != XattrSet::Any {
            let there = self.vfs.get_xattr(&path, &name).await;
            match (how, there) {
                (XattrSet::Create, Ok(_)) => return Err(FsError::Exists),
                (XattrSet::Replace, Err(e)) => return Err(e),
                _ => {}
            }
        }
        let (len, data) = (value.len() as u32, Data::given(value));
        self.call(Call::SetXattr { path, name, len, data }).await
    }

    pub(crate) async fn get_xattr(&self, node: u64, name: &[u8]) -> FsResult<Vec<u8>> {
        let ino = self.nodes.borrow().ino(node)?;
        self.vfs.fs().get_xattr(ino, name).await
    }

    /// Flags of a file or directory (`lsattr`).
    pub(crate) async fn flags(&self, node: u64) -> FsResult<u32> {
        // It is in memory from here on.
        self.attr(node).await?;
        let ino = self.nodes.borrow().ino(node)?;
        Ok(self.vfs.fs().flags_in_memory(ino).0)
    }

    /// Sets the flags of a file or directory (`chattr`), all of them.
    pub(crate) async fn set_flags(&self, node: u64, flags: u32) -> FsResult<()> {
        if flags & !FileFlags::SETTABLE.0 != 0 {
            return Err(FsError::NotInKernel);
        }
        self.call(Call::Chattr(self.path(node)?, FileFlags(flags))).await
    }

    /// The names, each with a zero byte behind it.
    pub(crate) async fn list_xattrs(&self, node: u64) -> FsResult<Vec<u8>> {
        let ino = self.nodes.borrow().ino(node)?;
        let names = self.vfs.fs().list_xattrs(ino).await?;
        Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
    }

    pub(crate) async fn remove_xattr(&self, node: u64, name: &[u8]) -> FsResult<()> {
        self.call(Call::RemoveXattr(self.path(node)?, xattr_name(name)?)).await
    }
}

fn xattr_name(name: &[u8]) -> FsResult<String> {
    String::from_utf8(name.to_vec()).map_err(|_| FsError::Invalid("a name that is no UTF-8"))
}
