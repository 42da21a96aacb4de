//! Names: every block of every directory.

use std::collections::BTreeSet;

use wp_vfs::FileType;

use crate::disk::dir::{DirIter, HEADER_BYTES};
use crate::disk::{DirEntry, DirEntryTail, ino};

use super::finding::Kind;
use super::htree::Tree;
use super::state::{Dir, State};

/// Reads all directories.
pub(super) fn pass(s: &mut State<'_>) {
    let dirs = std::mem::take(&mut s.dirs);
    // Parents are noted while all directories are away, by number.
    let mut parents: Vec<(u32, u32)> = Vec::new();
    let mut dirs = dirs;
    let known: BTreeSet<u32> = dirs.keys().copied().collect();
    for (number, dir) in &mut dirs {
        one(s, *number, dir, &known, &mut parents);
    }
    s.dirs = dirs;
    for (child, parent) in parents {
        let Some(dir) = s.dirs.get_mut(&child) else { continue };
        if dir.parent == 0 && child != ino::ROOT {
            dir.parent = parent;
        } else {
            let (place, before) = (format!("inode {parent}, a name of {child}"), dir.parent);
            s.add(
                Kind::DirLinkedTwice,
                place,
                "a second name",
                format!("only the one in {before}"),
            );
        }
    }
}

fn one(
    s: &mut State<'_>,
    number: u32,
    dir: &mut Dir,
    known: &BTreeSet<u32>,
    parents: &mut Vec<(u32, u32)>,
) {
    let mut tree = Tree::new(s, number, dir);
    let mut hole = None;
    let mut next = 0u32;
    let blocks = std::mem::take(&mut dir.blocks);
    for (&logical, &block) in &blocks {
        if logical != next {
            hole = hole.or(Some(next));
        }
        next = logical.saturating_add(1);
        if !s.spend(1) {
            break;
        }
        let Some(bytes) = s.read(block) else { continue };
        let place = format!("inode {number}, block {logical}");
        let is_node = tree.as_mut().is_some_and(|t| t.is_node(logical));
        if !is_node && !s.sums.dir_block_ok(dir.seed, &bytes) {
            s.add(Kind::DirChecksum, place.clone(), "a wrong checksum", "a correct checksum");
        }
        let mut names: BTreeSet<&[u8]> = BTreeSet::new();
        let mut position = if logical == 0 { 0 } else { 2 };
        let mut last = 0;
        for entry in DirIter::new(&bytes, 0, u32::MAX) {
            let e = match entry {
                Ok(e) => e,
                Err(c) => {
                    s.add(Kind::DirEntry, format!("{place}, {}", c.field), c.found, c.expected);
                    break;
                }
            };
            last = e.offset;
            let before = position;
            position += 1;
            if before < 2 {
                let end = e.offset + HEADER_BYTES + e.name.len();
                if e.inode != 0 && bytes.get(end).is_some_and(|b| *b != 0) {
                    let place = format!("{place}, entry {before}");
                    s.add(Kind::DirDot, place, "other bytes", "a zero byte after `.` and `..`");
                }
                dot(s, number, dir, before, &e, &place);
                continue;
            }
            if e.inode == 0 {
                continue;
            }
            if !names.insert(e.name) {
                let name = String::from_utf8_lossy(e.name).into_owned();
                s.add(Kind::DirDuplicate, place.clone(), name, "no duplicate name");
            }
            if let Some(t) = tree.as_mut().filter(|_| !is_node) {
                t.name(logical, e.name);
            }
            if is_sound(s, &e, &place) && known.contains(&e.inode) {
                parents.push((e.inode, number));
            }
        }
        let tail_at = bytes.len() - DirEntryTail::BYTES;
        if s.sums.metadata() && !is_node && last != tail_at {
            let expected = "the checksum entry as the last entry";
            s.add(Kind::DirChecksum, place.clone(), last, expected);
        }
        if position < 2 {
            s.add(Kind::DirDot, place, position, "`.` and `..` first");
        }
    }
    if blocks.is_empty() {
        s.add(
            Kind::DirHole,
            format!("inode {number}"),
            "no block",
            "a first block with `.` and `..`",
        );
    }
    dir.blocks = blocks;
    if let Some(at) = hole {
        let place = format!("inode {number}, block {at}");
        s.add(Kind::DirHole, place, "a hole", "a block");
    }
    if let Some(tree) = tree {
        tree.finish(s, dir);
    }
}

/// The first two entries.
fn dot(s: &mut State<'_>, number: u32, dir: &mut Dir, n: u32, e: &DirEntry<'_>, place: &str) {
    let name: &[u8] = if n == 0 { b"." } else { b".." };
    if e.name != name || e.inode == 0 {
        let found = String::from_utf8_lossy(e.name).into_owned();
        s.add(Kind::DirDot, place.to_owned(), found, String::from_utf8_lossy(name));
        if e.inode != 0 {
            is_sound(s, e, place);
        }
        return;
    }
    if n == 0 && e.inode != number {
        s.add(Kind::DirDot, format!("{place}, `.`"), e.inode, number);
    }
    if n == 0 && e.rec_len > 12 {
        s.harmless(Kind::DirDot, format!("{place}, `.`"), e.rec_len, 12);
    }
    if n == 1 {
        dir.dot_dot = e.inode;
    }
    if !s.used.contains_key(&e.inode) {
        s.add(Kind::DirInode, format!("{place}, {name:?}"), e.inode, "an inode in use");
    }
    type_of(s, e, place);
    if let Some(u) = s.used.get_mut(&e.inode) {
        u.names += 1;
    }
}

/// Does an entry name an inode as it should? Counts the name.
fn is_sound(s: &mut State<'_>, e: &DirEntry<'_>, place: &str) -> bool {
    let name = String::from_utf8_lossy(e.name).into_owned();
    let place = format!("{place}, `{name}`");
    if e.name.is_empty() || e.name.iter().any(|b| *b == 0 || *b == b'/') {
        s.add(Kind::DirName, place.clone(), &name, "a name without `/` and zero bytes");
    }
    if e.name == b"." || e.name == b".." {
        s.add(Kind::DirDot, place.clone(), &name, "`.` and `..` once, first");
    }
    let is_reserved = e.inode < s.g.first_inode && e.inode != ino::ROOT;
    if is_reserved || e.inode > s.g.inodes_count || e.inode == ino::ROOT {
        let expected = format!("{} to {}", s.g.first_inode, s.g.inodes_count);
        s.add(Kind::DirInode, place, e.inode, expected);
        return false;
    }
    if !s.used.contains_key(&e.inode) {
        s.add(Kind::DirInode, place, e.inode, "an inode in use");
        return false;
    }
    type_of(s, e, &place);
    if let Some(u) = s.used.get_mut(&e.inode) {
        u.names += 1;
    }
    true
}

fn type_of(s: &mut State<'_>, e: &DirEntry<'_>, place: &str) {
    let Some(used) = s.used.get(&e.inode) else { return };
    let has_types = s.sb.has_incompat(crate::disk::incompat::FILETYPE);
    let right = if has_types { FileType::entry_of_mode(used.mode.into()) } else { 0 };
    if e.file_type == 0 && right != 0 {
        // "Look at the inode."
        s.harmless(Kind::DirType, place.to_owned(), e.file_type, right);
    } else if e.file_type != right {
        s.add(Kind::DirType, place.to_owned(), e.file_type, right);
    }
}
