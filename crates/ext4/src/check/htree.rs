//! Hash trees: nodes with right limits, in order, each block once, each name where its hash says.

use std::collections::BTreeMap;

use zerocopy::FromBytes;

use crate::disk::hash::DirHash;
use crate::disk::htree::{self, DxRootInfo};
use crate::disk::incompat;

use super::finding::Kind;
use super::state::{Dir, State};

/// What a block of the directory is to its tree.
enum Place {
    Node,
    /// A leaf for hashes `from..=to`.
    Leaf {
        from: u32,
        to: u32,
    },
}

/// The tree of one directory.
pub(super) struct Tree {
    number: u32,
    hash: Option<DirHash>,
    places: BTreeMap<u32, Place>,
    /// Per leaf: lowest and highest hash seen.
    seen: BTreeMap<u32, (u32, u32)>,
}

impl Tree {
    /// Reads the nodes of `dir`. `None` if it has no tree, or none that can be walked.
    pub(super) fn new(s: &mut State<'_>, number: u32, dir: &Dir) -> Option<Tree> {
        if !dir.is_indexed {
            return None;
        }
        let place = format!("inode {number}, hash tree");
        let root = dir.blocks.get(&0).and_then(|b| s.read(*b));
        let info = root.as_ref().and_then(|b| {
            htree::entries_at(b).filter(|at| *at == htree::ROOT_ENTRIES_AT)?;
            DxRootInfo::read_from_prefix(b.get(htree::ROOT_INFO_AT..)?).ok().map(|(i, _)| i)
        });
        let Some(info) = info else {
            s.add(Kind::HtreeRoot, place, "no root", "a hash-tree root after `..`");
            return None;
        };
        let levels_max = if s.sb.has_incompat(incompat::LARGEDIR) { 2 } else { 1 };
        let hash = DirHash::of(&s.sb, info.hash_version);
        if hash.is_none() || info.indirect_levels > levels_max || info.unused_flags & 1 != 0 {
            let found = format!(
                "hash {}, {} levels, flags {}",
                info.hash_version, info.indirect_levels, info.unused_flags
            );
            s.add(
                Kind::HtreeRoot,
                place,
                found,
                "a known hash version, at most 3 levels, no flags",
            );
        }
        let mut tree = Tree { number, hash, places: BTreeMap::new(), seen: BTreeMap::new() };
        tree.places.insert(0, Place::Node);
        let level = info.indirect_levels.min(levels_max);
        tree.node(s, dir, 0, htree::ROOT_ENTRIES_AT, level, (0, u32::MAX));
        Some(tree)
    }

    fn node(
        &mut self,
        s: &mut State<'_>,
        dir: &Dir,
        logical: u32,
        entries_at: usize,
        level: u8,
        (from, to): (u32, u32),
    ) {
        let place = format!("inode {}, hash tree, block {logical}", self.number);
        let Some(bytes) = dir.blocks.get(&logical).and_then(|b| s.read(*b)) else {
            return s.add(Kind::HtreeBlock, place, "no block", "a block of the directory");
        };
        if logical != 0 && htree::entries_at(&bytes) != Some(entries_at) {
            return s.add(Kind::HtreeNode, place, "no node", "one empty entry, then hashes");
        }
        if logical != 0 && bytes.get(6..8) != Some(&[0, 0]) {
            let expected = "an empty entry without name and type";
            s.add(Kind::HtreeNode, place.clone(), "name_len or file_type", expected);
        }
        let entries = match htree::load_entries(&bytes, 0, entries_at, s.sums.metadata()) {
            Ok(entries) => entries,
            Err(c) => return s.add(Kind::HtreeNode, place, c.found, c.expected),
        };
        if !s.sums.htree_block_ok(dir.seed, &bytes, entries_at) {
            s.add(Kind::HtreeChecksum, place.clone(), "a wrong checksum", "a correct checksum");
        }
        let mut last = from;
        for (n, e) in entries.iter().enumerate() {
            let start = if n == 0 { from } else { e.hash.get() };
            if n > 0 && start <= last && n > 1 || start < last {
                s.add(Kind::HtreeNode, format!("{place}, entry {n}"), start, "ascending hashes");
            }
            last = start;
            let end = entries.get(n + 1).map_or(to, |next| next.hash.get());
            let child = e.block.get() & htree::BLOCK_MASK;
            if !dir.blocks.contains_key(&child) {
                s.add(Kind::HtreeBlock, format!("{place}, entry {n}"), child, dir.len);
                continue;
            }
            let what = if level > 0 { Place::Node } else { Place::Leaf { from: start, to: end } };
            if self.places.insert(child, what).is_some() {
                let place = format!("{place}, entry {n}");
                s.add(Kind::HtreeBlock, place, child, "a block that is in the tree only once");
                continue;
            }
            if level > 0 {
                self.node(s, dir, child, htree::NODE_ENTRIES_AT, level - 1, (start, end));
            }
        }
    }

    pub(super) fn is_node(&self, logical: u32) -> bool {
        matches!(self.places.get(&logical), Some(Place::Node))
    }

    /// Notes a name of a leaf.
    pub(super) fn name(&mut self, logical: u32, name: &[u8]) {
        let Some(hash) = self.hash.map(|h| h.hash(name).major) else { return };
        let (low, high) = self.seen.entry(logical).or_insert((hash, hash));
        (*low, *high) = ((*low).min(hash), (*high).max(hash));
    }

    /// Compares what was seen with what the tree says.
    pub(super) fn finish(self, s: &mut State<'_>, dir: &Dir) {
        for logical in dir.blocks.keys() {
            let place = format!("inode {}, hash tree, block {logical}", self.number);
            match self.places.get(logical) {
                None => s.add(Kind::HtreeBlock, place, "not in the tree", "a leaf or a node"),
                Some(Place::Node) => {}
                Some(Place::Leaf { from, to }) => {
                    let Some((low, high)) = self.seen.get(logical) else { continue };
                    // Bit 0 of a hash says that its value goes on from the block before.
                    if *low < from & !1 || *high > *to {
                        let found = format!("{low:#x}..{high:#x}");
                        s.add(Kind::HtreeHash, place, found, format!("{from:#x}..{to:#x}"));
                    }
                }
            }
        }
    }
}
