//! Trees of files: names, in the four places that know each.

use std::collections::{BTreeMap, BTreeSet};

use wp_vfs::FileType;

use crate::disk::dir::{self, NAME_MAX, name_hash};
use crate::disk::inode::{self, extref_hash};
use crate::disk::{Key, id, kind, wide};

use super::Report;
use super::extents::Extents;
use super::finding::{At, Kind};
use super::inodes::{Inode, Rules};
use super::is_of_inode;
use super::roots::Roots;
use super::sums::PieceSeen;
use super::volume::{Found, Seen};

/// What is known of a name.
#[derive(Default)]
struct Name {
    /// By its hash: where it leads, and its type byte.
    item: Option<(Key, u8, At)>,
    /// By its place: that, and the same.
    index: Option<(u64, Key, u8, At)>,
    /// By the inode: this, and the place.
    back: Option<(u64, u64, At)>,
}

/// A tree that is being checked.
pub(super) struct Tree<'e> {
    number: u64,
    root_dir: u64,
    extents: &'e Extents,
    rules: Rules,
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<(u64, Vec<u8>), Name>,
    orphans: BTreeMap<u64, At>,
    pieces: Vec<PieceSeen>,
    /// Inodes without checksums.
    without_sums: BTreeSet<u64>,
}

/// All trees of files.
pub(super) struct Trees<'e> {
    extents: &'e Extents,
    rules: Rules,
    pieces: Vec<PieceSeen>,
}

impl<'e> Trees<'e> {
    pub fn new(extents: &'e Extents, rules: Rules) -> Trees<'e> {
        Trees { extents, rules, pieces: Vec::new() }
    }

    pub fn begin(&self, number: u64, root_dir: u64) -> Tree<'e> {
        Tree {
            number,
            root_dir,
            extents: self.extents,
            rules: self.rules,
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            orphans: BTreeMap::new(),
            pieces: Vec::new(),
            without_sums: BTreeSet::new(),
        }
    }

    /// A tree was read, as a whole or not.
    pub fn end(&mut self, tree: Tree<'_>, is_whole: bool, roots: &mut Roots, report: &mut Report) {
        if is_whole {
            tree.check_names(roots, report);
            tree.check_inodes(report);
        }
        let Tree { pieces, without_sums, .. } = tree;
        self.pieces.extend(pieces.into_iter().map(|mut p| {
            p.has_sums = !without_sums.contains(&p.at.key.objectid);
            p
        }));
    }

    pub fn into_pieces(self) -> Vec<PieceSeen> {
        self.pieces
    }
}

impl Tree<'_> {
    /// An item of the tree.
    pub fn item(&mut self, item: &Found<'_>, seen: &mut Seen, report: &mut Report) {
        let key = item.at.key;
        match key.kind {
            kind::ORPHAN_ITEM if key.objectid == id::ORPHAN => {
                self.orphans.insert(key.offset, item.at);
                return;
            }
            _ if key.objectid == id::FREE_SPACE => return,
            k if !is_of_inode(k) => {
                report.add(Kind::Item, item.at, k, "an item of a subvolume tree");
                return;
            }
            _ => {}
        }
        let inode = self.inodes.entry(key.objectid).or_insert_with(|| Inode::new(item.at));
        match key.kind {
            kind::INODE_ITEM => {
                inode.load(item, report);
                if !inode.has_sums() {
                    self.without_sums.insert(key.objectid);
                }
            }
            kind::EXTENT_DATA => {
                let piece = inode.extent(item, self.extents, seen, report);
                self.pieces.extend(piece);
            }
            kind::INODE_REF | kind::INODE_EXTREF => self.back_names(item, report),
            kind::DIR_ITEM | kind::DIR_INDEX => self.entries(item, report),
            kind::XATTR_ITEM => check_xattrs(item, report),
            _ => {}
        }
    }

    fn back_names(&mut self, item: &Found<'_>, report: &mut Report) {
        let (key, mut bad) = (item.at.key, None);
        let mut found = Vec::new();
        let mut keep = |name: Result<inode::Name<'_>, usize>| match name {
            Ok(n) => found.push((n.parent, n.index, n.name.to_vec())),
            Err(at) => bad = Some(at),
        };
        if key.kind == kind::INODE_REF {
            inode::refs(item.bytes, key.offset).for_each(&mut keep);
        } else {
            inode::extrefs(item.bytes).for_each(&mut keep);
        }
        if let Some(at) = bad {
            report.add(Kind::Item, item.at, format!("truncated at {at}"), "whole names");
        }
        if found.is_empty() && bad.is_none() {
            report.add(Kind::Item, item.at, "nothing", "a name");
        }
        for (parent, index, name) in found {
            if key.kind == kind::INODE_EXTREF && extref_hash(parent, &name) != key.offset {
                let right = extref_hash(parent, &name);
                report.add(Kind::Dentry, item.at, key.offset, format!("the hash {right}"));
            }
            let ino = key.objectid;
            if let Some(inode) = self.inodes.get_mut(&ino) {
                inode.names += 1;
            }
            if parent == ino {
                // The root directory, whose name is `..`.
                if ino != self.root_dir || index != 0 || name != b".." {
                    report.add(
                        Kind::Dentry,
                        item.at,
                        "its own directory",
                        "another directory, or `..` with index 0",
                    );
                }
                continue;
            }
            if name.is_empty() || name.len() > NAME_MAX {
                report.add(Kind::Dentry, item.at, name.len(), "a name of 1 to 255 bytes");
            }
            let known = self.names.entry((parent, name)).or_default();
            if known.back.replace((ino, index, item.at)).is_some() {
                report.add(Kind::Dentry, item.at, "the name of another inode", "one inode");
            }
        }
    }

    fn entries(&mut self, item: &Found<'_>, report: &mut Report) {
        let key = item.at.key;
        let mut n = 0;
        for entry in dir::entries(item.bytes) {
            let e = match entry {
                Ok(e) => e,
                Err(at) => {
                    report.add(Kind::Item, item.at, format!("truncated at {at}"), "whole entries");
                    return;
                }
            };
            n += 1;
            if e.name.is_empty() || e.name.len() > NAME_MAX || !e.data.is_empty() {
                report.add(Kind::Dentry, item.at, e.name.len(), "1 to 255 bytes, no value");
            }
            if let Some(inode) = self.inodes.get_mut(&key.objectid) {
                inode.name_bytes = inode.name_bytes.saturating_add(wide(e.name.len()));
            }
            let known = self.names.entry((key.objectid, e.name.to_vec())).or_default();
            let was = if key.kind == kind::DIR_ITEM {
                if name_hash(e.name) != key.offset {
                    let right = name_hash(e.name);
                    report.add(Kind::Dentry, item.at, key.offset, format!("the hash {right}"));
                }
                known.item.replace((e.location, e.kind, item.at)).is_some()
            } else {
                let new = (key.offset, e.location, e.kind, item.at);
                known.index.replace(new).is_some()
            };
            if was {
                report.add(Kind::Dentry, item.at, "a duplicate name", "once");
            }
        }
        if n == 0 || (key.kind == kind::DIR_INDEX && n > 1) {
            report.add(Kind::Dentry, item.at, format!("{n} entries"), "one name per index");
        }
    }

    /// Is it an inode that a mount removes, with what is left in it?
    fn is_orphan(&self, ino: u64) -> bool {
        let is_unlinked = |i: &Inode| i.is_there() && i.links() == 0;
        self.orphans.contains_key(&ino) && self.inodes.get(&ino).is_some_and(is_unlinked)
    }

    fn check_names(&self, roots: &mut Roots, report: &mut Report) {
        for ((folder, name), n) in self.names.iter().filter(|((f, _), _)| !self.is_orphan(*f)) {
            let text = String::from_utf8_lossy(name).into_owned();
            let mut wrong = |at: &At, found: String, expected: &str| {
                report.add(Kind::Dentry, format!("{at}, name {text:?}"), found, expected);
            };
            let (item, index) = match (&n.item, &n.index, &n.back) {
                (Some(item), Some(index), _) => (item, index),
                (None, Some((.., at)), _) => {
                    wrong(at, "no DIR_ITEM".to_owned(), "one");
                    continue;
                }
                (Some((.., at)), None, _) => {
                    wrong(at, "no DIR_INDEX".to_owned(), "one");
                    continue;
                }
                (None, None, Some((.., at))) => {
                    wrong(at, "no entries".to_owned(), "both DIR_ITEM and DIR_INDEX");
                    continue;
                }
                (None, None, None) => continue,
            };
            let at = &index.3;
            if (item.0, item.1) != (index.1, index.2) {
                wrong(&item.2, format!("{} type {}", item.0, item.1), "as the other entry");
            }
            if !self.inodes.get(folder).is_some_and(Inode::is_dir) {
                wrong(at, "an entry".to_owned(), "its parent directory");
            }
            let to = index.1;
            match to.kind {
                kind::INODE_ITEM => {
                    match &n.back {
                        Some((ino, place, _)) if (*ino, *place) == (to.objectid, index.0) => {}
                        Some((ino, place, at)) => {
                            wrong(at, format!("inode {ino}, index {place}"), "as the entry");
                        }
                        None => wrong(at, "no inode reference".to_owned(), "the same"),
                    }
                    match self.inodes.get(&to.objectid) {
                        Some(inode) if inode.is_there() => {
                            let right = FileType::entry_of_mode(inode.mode());
                            if right != index.2 {
                                wrong(at, format!("type {}", index.2), "the inode's type");
                            }
                        }
                        _ => wrong(at, format!("{to}"), "an existing inode"),
                    }
                    if to.offset != 0 {
                        wrong(at, format!("{to}"), "an inode key");
                    }
                }
                kind::ROOT_ITEM => {
                    let entry = (*folder, index.0, name.clone());
                    if !roots.is_named(self.number, to.objectid, &entry) {
                        wrong(at, format!("{to}"), "name and index of its reference");
                    }
                    if index.2 != FileType::Dir.entry() {
                        wrong(at, format!("type {}", index.2), "a directory");
                    }
                    if n.back.is_some() {
                        wrong(at, "an inode reference".to_owned(), "none for a subvolume");
                    }
                }
                _ => wrong(at, format!("{to}"), "an inode or a subvolume"),
            }
        }
    }

    fn check_inodes(&self, report: &mut Report) {
        // The cache of free inode numbers, which Linux 5.11 gave up: a file without a name.
        for (ino, inode) in self.inodes.iter().filter(|(ino, _)| **ino != id::FREE_INO) {
            let is_orphan = self.orphans.contains_key(ino);
            inode.check(*ino, is_orphan, self.rules, report);
        }
        if !self.inodes.get(&self.root_dir).is_some_and(Inode::is_dir) {
            let place = format!("tree {}", self.number.cast_signed());
            report.add(Kind::Inode, place, "no root directory", self.root_dir);
        }
        for (ino, at) in &self.orphans {
            if !self.inodes.get(ino).is_some_and(|i| i.is_there() && i.links() == 0) {
                report.add(Kind::Orphan, at, ino, "an inode without links");
            }
        }
    }
}

fn check_xattrs(item: &Found<'_>, report: &mut Report) {
    for entry in dir::entries(item.bytes) {
        match entry {
            Ok(e) => {
                if e.name.is_empty() || e.name.len() > NAME_MAX {
                    report.add(Kind::Xattr, item.at, e.name.len(), "a name of 1 to 255 bytes");
                }
                if e.kind != dir::XATTR {
                    report.add(Kind::Xattr, item.at, e.kind, "the xattr type");
                }
                if name_hash(e.name) != item.at.key.offset {
                    let right = format!("the hash {}", name_hash(e.name));
                    report.add(Kind::Xattr, item.at, item.at.key.offset, right);
                }
            }
            Err(at) => report.add(Kind::Xattr, item.at, format!("truncated at {at}"), "whole ones"),
        }
    }
}
