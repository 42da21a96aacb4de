//! Extended attributes: items in the form of directories' names, with values.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::dir::{self, DirItem, entries, entry_bytes, name_hash};
use crate::disk::node::{ITEM_BYTES, leaf_space};
use crate::disk::{Key, kind};

use super::wrong;

/// How an attribute may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Set {
    /// New or not.
    #[default]
    Any,
    /// `XATTR_CREATE`: it must not be there.
    Create,
    /// `XATTR_REPLACE`: it must be there.
    Replace,
}

fn key_of(ino: u64, name: &[u8]) -> Key {
    Key::new(ino, kind::XATTR_ITEM, name_hash(name))
}

impl Core<'_> {
    /// The value of an attribute. `btrfs_getxattr`.
    pub fn xattr(&mut self, tree: u64, ino: u64, name: &[u8]) -> FsResult<Option<Vec<u8>>> {
        let Some(item) = self.lookup(tree, key_of(ino, name))? else { return Ok(None) };
        for e in entries(&item) {
            let e = e.map_err(|_| wrong("btrfs attribute", ino, "whole entries"))?;
            if e.name == name {
                return Ok(Some(e.data.to_vec()));
            }
        }
        Ok(None)
    }

    /// Sets an attribute. Errors: `Exists`, `NoData`; `Range` for more than a leaf holds.
    /// `btrfs_setxattr`.
    pub fn set_xattr(
        &mut self,
        tree: u64,
        ino: u64,
        name: &[u8],
        value: &[u8],
        how: Set,
    ) -> FsResult<()> {
        // `BTRFS_MAX_XATTR_SIZE`
        let most = leaf_space(self.node_bytes()) - ITEM_BYTES - size_of::<DirItem>();
        if name.len() + value.len() > most {
            return Err(FsError::Range);
        }
        self.begin()?;
        let is_there = self.xattr(tree, ino, name)?.is_some();
        match how {
            Set::Create if is_there => return Err(FsError::Exists),
            Set::Replace if !is_there => return Err(FsError::NoData),
            _ => {}
        }
        let key = key_of(ino, name);
        let bytes = entry_bytes(Key::MIN, self.transid(), dir::XATTR, name, value);
        if is_there {
            if let Some((_, have, all)) = self.entry_of(tree, key, name)?
                && have == all
            {
                return self.replace_item(tree, key, &bytes);
            }
            self.remove_hashed(tree, key, name)?;
        }
        self.insert_hashed(tree, key, name, &bytes)
    }

    /// Removes an attribute. Errors: `NoData`.
    pub fn remove_xattr(&mut self, tree: u64, ino: u64, name: &[u8]) -> FsResult<()> {
        match self.remove_hashed(tree, key_of(ino, name), name) {
            Err(FsError::NotFound) => Err(FsError::NoData),
            other => other,
        }
    }

    /// Names and values of all attributes, by hash. `btrfs_listxattr`.
    pub fn xattrs(&mut self, tree: u64, ino: u64) -> FsResult<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut out = Vec::new();
        let mut from = Key::new(ino, kind::XATTR_ITEM, 0);
        let last = Key::new(ino, kind::XATTR_ITEM, u64::MAX);
        while let Some((key, item)) = self.first(tree, from, last)? {
            for e in entries(&item) {
                let e = e.map_err(|_| wrong("btrfs attribute", ino, "whole entries"))?;
                out.push((e.name.to_vec(), e.data.to_vec()));
            }
            let Some(next) = key.next() else { break };
            from = next;
        }
        Ok(out)
    }
}
