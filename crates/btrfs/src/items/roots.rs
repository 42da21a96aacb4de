//! Where subvolumes hang, and their identities: items of the root tree and of the tree of uuids.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::misc::uuid_key;
use crate::disk::{Key, RootRef, id, kind};

use super::wrong;

const TREE: u64 = id::ROOT_TREE;

/// The name of a subvolume, as the root tree has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootName {
    /// The directory, in the parent's tree.
    pub dir: u64,
    /// Index there.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
}

impl RootName {
    /// Is it this name in this directory?
    pub fn is_name(&self, dir: u64, name: &[u8]) -> bool {
        self.dir == dir && self.name == name
    }
}

fn ref_key(parent: u64, child: u64) -> Key {
    Key::new(parent, kind::ROOT_REF, child)
}

fn backref_key(parent: u64, child: u64) -> Key {
    Key::new(child, kind::ROOT_BACKREF, parent)
}

fn name_of(tree: u64, item: &[u8]) -> FsResult<RootName> {
    let Some((head, name)) = RootRef::load(item) else {
        return Err(wrong("btrfs root reference", tree, "a whole reference"));
    };
    let (dir, index) = (head.dirid.get(), head.sequence.get());
    Ok(RootName { dir, index, name: name.to_vec() })
}

impl Core<'_> {
    /// The name that a tree has for a subvolume.
    pub fn root_ref(&mut self, parent: u64, child: u64) -> FsResult<Option<RootName>> {
        let item = self.lookup(TREE, ref_key(parent, child))?;
        item.map(|item| name_of(parent, &item)).transpose()
    }

    /// The tree that a subvolume hangs in, and its name there. `None`: in none.
    pub fn parent_of_root(&mut self, tree: u64) -> FsResult<Option<(u64, RootName)>> {
        let found = self.first(TREE, backref_key(0, tree), backref_key(u64::MAX, tree))?;
        found.map(|(key, item)| Ok((key.offset, name_of(tree, &item)?))).transpose()
    }

    /// Does a tree have subvolumes in it? `may_destroy_subvol`.
    pub fn has_subvolumes(&mut self, tree: u64) -> FsResult<bool> {
        Ok(self.first(TREE, ref_key(tree, 0), ref_key(tree, u64::MAX))?.is_some())
    }

    /// A subvolume gets a name in a tree. `btrfs_add_root_ref`.
    pub fn add_root_ref(&mut self, parent: u64, child: u64, name: &RootName) -> FsResult<()> {
        let item = RootRef::store(name.dir, name.index, &name.name);
        self.insert_item(TREE, backref_key(parent, child), &item)?;
        self.insert_item(TREE, ref_key(parent, child), &item)
    }

    /// It loses that name; answers the name's index. Errors: `NotFound` if it is another.
    /// `btrfs_del_root_ref`.
    pub fn remove_root_ref(
        &mut self,
        parent: u64,
        child: u64,
        dir: u64,
        name: &[u8],
    ) -> FsResult<u64> {
        let mut index = 0;
        for key in [backref_key(parent, child), ref_key(parent, child)] {
            let item = self.lookup(TREE, key)?.ok_or(FsError::NotFound)?;
            let found = name_of(child, &item)?;
            if !found.is_name(dir, name) {
                return Err(FsError::NotFound);
            }
            index = found.index;
            self.remove_item(TREE, key)?;
        }
        Ok(index)
    }

    /// A subvolume has this uuid. `btrfs_uuid_tree_add`.
    pub fn add_uuid(&mut self, uuid: [u8; 16], kind: u8, subvolume: u64) -> FsResult<()> {
        let (key, new) = (uuid_key(uuid, kind), subvolume.to_le_bytes());
        match self.lookup(id::UUID_TREE, key)? {
            None => self.insert_item(id::UUID_TREE, key, &new),
            Some(have) if have.chunks(8).any(|one| one == new) => Ok(()),
            Some(have) => self.replace_item(id::UUID_TREE, key, &[&have[..], &new[..]].concat()),
        }
    }

    /// It has it no more. That it did not is no error. `btrfs_uuid_tree_remove`.
    pub fn remove_uuid(&mut self, uuid: [u8; 16], kind: u8, subvolume: u64) -> FsResult<()> {
        let (key, gone) = (uuid_key(uuid, kind), subvolume.to_le_bytes());
        let Some(have) = self.lookup(id::UUID_TREE, key)? else { return Ok(()) };
        let left: Vec<u8> = have.chunks(8).filter(|one| *one != gone).flatten().copied().collect();
        match left.len() {
            0 => self.remove_item(id::UUID_TREE, key),
            n if n == have.len() => Ok(()),
            _ => self.replace_item(id::UUID_TREE, key, &left),
        }
    }
}
