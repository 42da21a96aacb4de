//! The root tree: which trees there are, and where subvolumes hang.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::{Key, RootItem, RootRef, SuperBlock, dir, id, kind};

use super::Report;
use super::finding::{At, Kind};
use super::volume::{Found, Start};

/// A reference to a subvolume: directory, place in it, name.
type Ref = (u64, u64, Vec<u8>);

/// What the root tree says.
#[derive(Default)]
pub(super) struct Roots {
    items: BTreeMap<u64, (RootItem, At)>,
    /// By parent and subvolume.
    refs: BTreeMap<(u64, u64), (Ref, At)>,
    back: BTreeMap<(u64, u64), (Ref, At)>,
    orphans: BTreeSet<u64>,
    default: Option<(Key, At)>,
    /// References that a directory has an entry for.
    named: BTreeSet<(u64, u64)>,
}

impl Roots {
    /// An item of the root tree.
    pub fn item(&mut self, item: &Found<'_>, report: &mut Report) {
        let key = item.at.key;
        match key.kind {
            kind::ROOT_ITEM => match RootItem::load(item.bytes, item.at.byte) {
                Ok(root) => {
                    if key.offset != 0 && !id::is_file_tree(key.objectid) {
                        report.add(Kind::Root, item.at, key.offset, "offset 0");
                    }
                    if root.drop_level >= SuperBlock::LEVELS {
                        report.add(Kind::Root, item.at, root.drop_level, "drop_level 0 to 7");
                    }
                    self.items.insert(key.objectid, (root, item.at));
                }
                Err(e) => report.error(Kind::Root, item.at, e),
            },
            kind::ROOT_REF | kind::ROOT_BACKREF => {
                let Some((r, name)) = RootRef::load(item.bytes) else {
                    report.add(Kind::RootRef, item.at, item.bytes.len(), "a complete reference");
                    return;
                };
                let new = ((r.dirid.get(), r.sequence.get(), name.to_vec()), item.at);
                if key.kind == kind::ROOT_REF {
                    self.refs.insert((key.objectid, key.offset), new);
                } else {
                    self.back.insert((key.offset, key.objectid), new);
                }
            }
            kind::ORPHAN_ITEM => {
                self.orphans.insert(key.offset);
            }
            kind::DIR_ITEM if key.objectid == id::ROOT_TREE_DIR => {
                for entry in dir::entries(item.bytes) {
                    match entry {
                        Ok(e) if e.name == b"default" => {
                            self.default = Some((e.location, item.at));
                        }
                        Ok(_) => {}
                        Err(at) => report.add(Kind::Root, item.at, at, "whole entries"),
                    }
                }
            }
            _ => {}
        }
    }

    /// Numbers of all trees.
    pub fn numbers(&self) -> Vec<u64> {
        self.items.keys().copied().collect()
    }

    /// Where a tree begins.
    pub fn start(&self, tree: u64) -> Option<Start> {
        let (item, _) = self.items.get(&tree)?;
        let (bytenr, generation) = (item.bytenr.get(), item.generation.get());
        let key = item.drop_progress.get();
        let dropped = (key != Key::MIN).then_some((key, item.drop_level));
        Some(Start { tree, bytenr, level: item.level, generation, dropped })
    }

    /// The root directory of a tree of files.
    pub fn root_dir(&self, tree: u64) -> u64 {
        self.items.get(&tree).map_or(0, |(item, _)| item.root_dirid.get())
    }

    /// A directory has an entry for a subvolume. `false`: with another name or place than the
    /// reference says. Where the tree has no reference to it, it is a snapshot's, and empty.
    pub fn is_named(&mut self, tree: u64, subvolume: u64, entry: &Ref) -> bool {
        let Some((right, _)) = self.refs.get(&(tree, subvolume)) else { return true };
        self.named.insert((tree, subvolume));
        right == entry
    }

    /// Everything was read.
    pub fn finish(&self, report: &mut Report) {
        for ((parent, child), (r, at)) in &self.refs {
            if self.back.get(&(*parent, *child)).is_none_or(|(b, _)| b != r) {
                report.add(Kind::RootRef, at, "no back reference", "the same");
            }
            if !self.named.contains(&(*parent, *child)) {
                report.add(Kind::RootRef, at, "no name", "a directory entry");
            }
            if !self.items.contains_key(child) {
                report.add(Kind::RootRef, at, child, "an existing subvolume");
            }
        }
        for ((parent, child), (_, at)) in &self.back {
            if !self.refs.contains_key(&(*parent, *child)) {
                report.add(Kind::RootRef, at, "no reference", "the same");
            }
        }
        for (number, (item, at)) in &self.items {
            if !id::is_file_tree(*number) {
                continue;
            }
            let refs = item.refs.get();
            let is_orphan = self.orphans.contains(number);
            if refs == 0 && !is_orphan {
                report.add(Kind::Root, at, "0 references", "1, or a deleted subvolume");
            }
            let has_name = self.back.keys().any(|(_, child)| child == number);
            if refs > 0 && !has_name && *number != id::FS_TREE && !is_orphan {
                report.add(Kind::RootRef, at, "no name", "one");
            }
        }
        match &self.default {
            Some((to, at)) => {
                if to.kind != kind::ROOT_ITEM || !self.items.contains_key(&to.objectid) {
                    report.add(Kind::Root, at, to, "an existing subvolume");
                }
            }
            None => report.add(Kind::Root, "root tree", "no default subvolume", "one"),
        }
    }
}
