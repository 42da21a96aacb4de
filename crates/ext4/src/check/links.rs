//! Parents, reachability, link counts.

use std::collections::BTreeSet;

use crate::disk::ino;
use crate::disk::inode::mode;

use super::finding::Kind;
use super::state::{State, Used};

/// Most links of a directory before its count says 1 (`EXT4_LINK_MAX`).
const LINK_MAX: u32 = 65_000;

/// Compares names with inodes.
pub(super) fn pass(s: &mut State<'_>) {
    if s.budget == 0 {
        return;
    }
    let mut reached: BTreeSet<u32> = BTreeSet::from([ino::ROOT]);
    let mut lost: BTreeSet<u32> = BTreeSet::new();
    let numbers: Vec<(u32, u32, u32)> =
        s.dirs.iter().map(|(n, d)| (*n, d.parent, d.dot_dot)).collect();
    for (number, parent, dot_dot) in &numbers {
        let right = if *number == ino::ROOT { ino::ROOT } else { *parent };
        if right != 0 && *dot_dot != right && *dot_dot != 0 {
            s.add(Kind::DirParent, format!("inode {number}, `..`"), dot_dot, right);
        }
        // Upwards until something known; a loop ends at what this walk has met.
        let (mut path, mut at) = (Vec::new(), *number);
        let mut met = BTreeSet::new();
        let is_reached = loop {
            if reached.contains(&at) {
                break true;
            }
            if at == 0 || lost.contains(&at) || !met.insert(at) {
                break false;
            }
            path.push(at);
            at = s.dirs.get(&at).map_or(0, |d| d.parent);
        };
        if is_reached {
            reached.extend(path);
        } else {
            lost.extend(path);
            let place = format!("inode {number}");
            s.add(Kind::Unattached, place, "an unreachable directory", "a name");
        }
    }
    let used: Vec<(u32, Used)> = s.used.iter().map(|(n, u)| (*n, *u)).collect();
    for (number, Used { mode: m, links, names, indexed }) in used {
        if number < s.g.first_inode && number != ino::ROOT {
            continue;
        }
        let is_dir = m & mode::TYPE == mode::DIR;
        let place = format!("inode {number}, i_links_count");
        if names == 0 && !is_dir {
            s.add(Kind::Unattached, format!("inode {number}"), "no name", "a name");
            continue;
        }
        let right = if is_dir && names > LINK_MAX { 1 } else { names };
        let has_any = is_dir && indexed && links == 1;
        if has_any && right != 1 {
            // "Any number", which a kernel keeps once there have been too many.
            s.harmless(Kind::LinkCount, place, links, right);
        } else if u32::from(links) != right && reached_or_file(&reached, number, is_dir) {
            s.add(Kind::LinkCount, place, links, right);
        }
    }
}

/// Of an unattached directory nobody knows how many links it should have.
fn reached_or_file(reached: &BTreeSet<u32>, number: u32, is_dir: bool) -> bool {
    !is_dir || reached.contains(&number)
}
