//! Names as inodes know them: INODE_REF, and INODE_EXTREF where one item is too small.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::inode::{Name, extref_bytes, extref_hash, extrefs, ref_bytes, refs};
use crate::disk::{Key, kind};
use crate::tree::Purpose;

use super::wrong;

fn ref_key(ino: u64, dir: u64) -> Key {
    Key::new(ino, kind::INODE_REF, dir)
}

fn extref_key(ino: u64, dir: u64, name: &[u8]) -> Key {
    Key::new(ino, kind::INODE_EXTREF, extref_hash(dir, name))
}

/// The entry of a name in an item's entries.
fn entry<'a>(
    names: impl Iterator<Item = Result<Name<'a>, usize>>,
    ino: u64,
    dir: u64,
    name: &[u8],
) -> FsResult<Option<Name<'a>>> {
    for n in names {
        let n = n.map_err(|_| wrong("btrfs inode reference", ino, "whole entries"))?;
        if n.parent == dir && n.name == name {
            return Ok(Some(n));
        }
    }
    Ok(None)
}

impl Core<'_> {
    /// An inode has a name in a directory. Errors: `Exists`; `TooManyLinks` if neither form has
    /// room. `btrfs_insert_inode_ref`.
    pub fn add_ref(
        &mut self,
        tree: u64,
        ino: u64,
        dir: u64,
        index: u64,
        name: &[u8],
    ) -> FsResult<()> {
        let bytes = ref_bytes(index, name);
        match self.append_ref(tree, ref_key(ino, dir), dir, name, &bytes) {
            Err(FsError::TooBig) => {
                let bytes = extref_bytes(dir, index, name);
                match self.append_ref(tree, extref_key(ino, dir, name), dir, name, &bytes) {
                    Err(FsError::TooBig) => Err(FsError::TooManyLinks),
                    other => other,
                }
            }
            other => other,
        }
    }

    fn append_ref(
        &mut self,
        tree: u64,
        key: Key,
        dir: u64,
        name: &[u8],
        bytes: &[u8],
    ) -> FsResult<()> {
        match self.insert_item(tree, key, bytes) {
            Err(FsError::Exists | FsError::TooBig) => {}
            other => return other,
        }
        let Some(item) = self.lookup(tree, key)? else { return Err(FsError::TooBig) };
        let ino = key.objectid;
        let known = if key.kind == kind::INODE_REF {
            entry(refs(&item, dir), ino, dir, name)?
        } else {
            entry(extrefs(&item), ino, dir, name)?
        };
        if known.is_some() {
            return Err(FsError::Exists);
        }
        let (path, _) = self.search(tree, key, Purpose::Extend(bytes.len()))?;
        self.extend_item(&path, bytes.len())?;
        if let Some(room) = self.item_mut(&path)?.get_mut(item.len()..) {
            room.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// An inode has a name less; answers its index in the directory. Errors: `NotFound`.
    /// `btrfs_del_inode_ref`.
    pub fn remove_ref(&mut self, tree: u64, ino: u64, dir: u64, name: &[u8]) -> FsResult<u64> {
        for key in [ref_key(ino, dir), extref_key(ino, dir, name)] {
            let Some(item) = self.lookup(tree, key)? else { continue };
            let found = if key.kind == kind::INODE_REF {
                entry(refs(&item, dir), ino, dir, name)?
            } else {
                entry(extrefs(&item), ino, dir, name)?
            };
            if let Some(n) = found {
                let (mut path, _) = self.search(tree, key, Purpose::Delete)?;
                self.cut_item(tree, &mut path, n.at, n.bytes, item.len())?;
                return Ok(n.index);
            }
        }
        Err(FsError::NotFound)
    }

    /// The names of an inode: directory, index and name.
    pub fn refs_of(&mut self, tree: u64, ino: u64) -> FsResult<Vec<(u64, u64, Vec<u8>)>> {
        let mut out = Vec::new();
        let mut from = Key::new(ino, kind::INODE_REF, 0);
        let last = Key::new(ino, kind::INODE_EXTREF, u64::MAX);
        while let Some((key, item)) = self.first(tree, from, last)? {
            let mut add = |n: Result<Name<'_>, usize>| {
                let n = n.map_err(|_| wrong("btrfs inode reference", ino, "whole entries"))?;
                out.push((n.parent, n.index, n.name.to_vec()));
                Ok::<(), FsError>(())
            };
            if key.kind == kind::INODE_REF {
                refs(&item, key.offset).try_for_each(&mut add)?;
            } else {
                extrefs(&item).try_for_each(&mut add)?;
            }
            let Some(next) = key.next() else { break };
            from = next;
        }
        Ok(out)
    }
}
