//! Inodes, names and attributes.

use wp_base::{FsError, FsResult};
use wp_vfs::Xattr;

use crate::disk::dir::{self, NAME_MAX};
use crate::disk::{InodeItem, Key, RootRef, id, kind, view, wide};

use super::{Image, Tree};

/// A file of the image: its inode, and where that stands.
#[derive(Clone, Debug)]
pub struct Record {
    /// The tree that it is in.
    pub tree: Tree,
    /// Inode number.
    pub ino: u64,
    /// Byte address of the inode item.
    pub at: u64,
    /// The inode.
    pub inode: InodeItem,
    /// Is it the empty directory that stands for a subvolume which is not there?
    pub is_stub: bool,
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An inode of the same tree.
    Inode(u64),
    /// A subvolume.
    Subvolume(u64),
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirName {
    /// The name.
    pub name: Vec<u8>,
    /// What it names.
    pub target: Target,
    /// Its place in the directory's order.
    pub index: u64,
    /// Byte address of the entry.
    pub at: u64,
}

impl Image<'_> {
    /// An inode of a tree of files. Errors: `NotFound` where there is none; `Corrupt`.
    pub fn inode(&self, tree: &Tree, ino: u64) -> FsResult<Record> {
        let found = self.get(tree, Key::new(ino, kind::INODE_ITEM, 0))?;
        let (bytes, at) = found.ok_or(FsError::NotFound)?;
        let inode = view::<InodeItem>(&bytes, 0).filter(|_| bytes.len() == 160);
        let Some(inode) = inode.copied() else {
            return Err(FsError::corrupt("btrfs inode", "size", at, wide(bytes.len()), "160"));
        };
        Ok(Record { tree: *tree, ino, at, inode, is_stub: false })
    }

    /// What a name of a directory leads to. A subvolume that the directory's tree has no reference
    /// to is an empty directory: `btrfs_lookup_dentry`, `new_simple_dir`.
    pub fn follow(&self, parent: &Record, name: &DirName) -> FsResult<Record> {
        let number = match name.target {
            Target::Inode(ino) => return self.inode(&parent.tree, ino),
            Target::Subvolume(number) => number,
        };
        let key = Key::new(parent.tree.id, kind::ROOT_REF, number);
        let is_there = match self.get(&self.root_tree, key)? {
            Some((bytes, _)) => RootRef::load(&bytes)
                .is_some_and(|(r, n)| r.dirid.get() == parent.ino && n == name.name),
            None => false,
        };
        let tree = if is_there { self.tree(number)? } else { None };
        if let Some(tree) = tree {
            return self.inode(&tree, tree.item.root_dirid.get());
        }
        let mut inode = InodeItem::zeroed();
        inode.mode = 0o040_755.into();
        inode.nlink = 1.into();
        let ino = id::EMPTY_SUBVOL_DIR;
        Ok(Record { tree: parent.tree, ino, at: name.at, inode, is_stub: true })
    }

    /// The names of a directory but `.` and `..`, in the order in which Linux lists them.
    ///
    /// Errors: `Corrupt` for an entry that contradicts itself. Source: `check_dir_item`.
    pub fn names(&self, file: &Record) -> FsResult<Vec<DirName>> {
        if !file.inode.is_dir() {
            return Err(FsError::NotDir);
        }
        let mut names = Vec::new();
        if file.is_stub {
            return Ok(names);
        }
        let key = |offset| Key::new(file.ino, kind::DIR_INDEX, offset);
        self.each(&file.tree, key(0), key(u64::MAX), &mut |item| {
            let fail = |field, found: u64, expected: &str| {
                Err(FsError::corrupt("btrfs directory entry", field, item.at, found, expected))
            };
            let mut all = dir::entries(item.bytes);
            let (Some(Ok(entry)), None) = (all.next(), all.next()) else {
                return fail("size", wide(item.bytes.len()), "one whole entry");
            };
            if entry.name.is_empty() || entry.name.len() > NAME_MAX || !entry.data.is_empty() {
                return fail("name_len", wide(entry.name.len()), "1 to 255, and no data");
            }
            if entry.name.contains(&b'/') || entry.name.contains(&0) {
                return fail("name", 0, "no slash and no zero byte");
            }
            if entry.kind >= dir::XATTR {
                return fail("type", entry.kind.into(), "a type of file");
            }
            let to = entry.location;
            let target = match to.kind {
                kind::INODE_ITEM => Target::Inode(to.objectid),
                kind::ROOT_ITEM => Target::Subvolume(to.objectid),
                other => return fail("location", other.into(), "an inode or a subvolume"),
            };
            let (name, index) = (entry.name.to_vec(), item.key.offset);
            names.push(DirName { name, target, index, at: item.at });
            Ok(true)
        })?;
        Ok(names)
    }

    /// The extended attributes of a file, by name.
    pub fn xattrs(&self, file: &Record) -> FsResult<Vec<Xattr>> {
        let mut out = Vec::new();
        if file.is_stub {
            return Ok(out);
        }
        let key = |offset| Key::new(file.ino, kind::XATTR_ITEM, offset);
        self.each(&file.tree, key(0), key(u64::MAX), &mut |item| {
            for entry in dir::entries(item.bytes) {
                match entry {
                    Ok(e) if e.kind == dir::XATTR && !e.name.is_empty() => {
                        out.push(Xattr { name: e.name.to_vec(), value: e.data.to_vec() });
                    }
                    Ok(e) => {
                        let (found, expected) = (e.kind.into(), "an attribute with a name");
                        return Err(FsError::corrupt(
                            "btrfs xattr",
                            "type",
                            item.at,
                            found,
                            expected,
                        ));
                    }
                    Err(place) => {
                        let expected = "a whole attribute";
                        return Err(FsError::corrupt(
                            "btrfs xattr",
                            "size",
                            item.at,
                            wide(place),
                            expected,
                        ));
                    }
                }
            }
            Ok(true)
        })?;
        out.sort();
        Ok(out)
    }
}
