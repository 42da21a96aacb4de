//! The free-space tree: all that no extent has.

use std::collections::BTreeMap;

use crate::disk::free_space::{BITMAP_BYTES, USING_BITMAPS, is_set};
use crate::disk::{FreeSpaceInfo, Key, id, index, kind, view, wide};

use super::Report;
use super::extents::Extents;
use super::finding::{At, Kind};
use super::volume::{Found, Volume};

const SECTOR: u64 = 4096;

/// Free space of a block group.
struct Group {
    bytes: u64,
    flags: u32,
    /// How many runs it says.
    count: u32,
    /// Runs, joined where they touch.
    runs: Vec<(u64, u64)>,
    /// Runs as items or bits have them.
    counted: u32,
    at: At,
    is_bad: bool,
}

/// What the tree says, by block group.
#[derive(Default)]
pub(super) struct FreeSpace {
    groups: BTreeMap<u64, Group>,
    last: u64,
}

impl Group {
    fn add(&mut self, start: u64, bytes: u64, is_new: bool) {
        self.counted += u32::from(is_new);
        match self.runs.last_mut() {
            Some((from, n)) if *from + *n == start => *n += bytes,
            _ => self.runs.push((start, bytes)),
        }
    }
}

impl FreeSpace {
    /// An item of the tree.
    pub fn item(&mut self, item: &Found<'_>, report: &mut Report) {
        let Key { objectid: start, kind, offset: bytes } = item.at.key;
        if kind == kind::FREE_SPACE_INFO {
            let Some(info) = view::<FreeSpaceInfo>(item.bytes, 0) else {
                report.add(Kind::Item, item.at, item.bytes.len(), "8 bytes");
                return;
            };
            let (count, flags) = (info.extent_count.get(), info.flags.get());
            let (runs, at) = (Vec::new(), item.at);
            let new = Group { bytes, flags, count, runs, counted: 0, at, is_bad: false };
            self.groups.insert(start, new);
            self.last = start;
            return;
        }
        let Some(group) = self.groups.get_mut(&self.last) else {
            report.add(Kind::FreeSpace, item.at, "no free-space info before it", "one");
            return;
        };
        let uses_bitmaps = group.flags & USING_BITMAPS != 0;
        let end = start.checked_add(bytes);
        let limit = self.last.saturating_add(group.bytes);
        let mut wrong = |found: &str, expected: &str| {
            report.add(Kind::FreeSpace, item.at, found, expected);
            group.is_bad = true;
        };
        if end.is_none_or(|e| e > limit) || start < self.last || bytes == 0 {
            return wrong("a run", "a range inside its block group");
        }
        if !start.is_multiple_of(SECTOR) || !bytes.is_multiple_of(SECTOR) {
            return wrong("a run", "whole sectors");
        }
        match kind {
            kind::FREE_SPACE_EXTENT if !uses_bitmaps => group.add(start, bytes, true),
            kind::FREE_SPACE_BITMAP if uses_bitmaps => {
                let sectors = bytes / SECTOR;
                let size = index(sectors.div_ceil(8));
                if item.bytes.len() != size || size > BITMAP_BYTES {
                    return wrong("a bitmap of another size", "a bit for each sector");
                }
                for n in (0..sectors).filter(|n| is_set(item.bytes, index(*n))) {
                    let at = start + n * SECTOR;
                    let touches = group.runs.last().is_some_and(|(s, n)| s + n == at);
                    group.add(at, SECTOR, !touches);
                }
            }
            _ => wrong("an item of another type", "the type in the free-space info"),
        }
    }

    /// Holds it against the extent tree.
    pub fn compare(&self, volume: &Volume<'_>, extents: &Extents, report: &mut Report) {
        for (start, chunk) in &volume.chunks {
            let Some(group) = self.groups.get(start) else {
                let key = Key::new(*start, kind::FREE_SPACE_INFO, chunk.bytes);
                let place = At { tree: id::FREE_SPACE_TREE, key, byte: 0 };
                report.add(Kind::FreeSpace, place, "none", "an item for each block group");
                continue;
            };
            if group.bytes != chunk.bytes {
                report.add(Kind::FreeSpace, group.at, group.bytes, chunk.bytes);
                continue;
            }
            if group.is_bad {
                continue;
            }
            if group.count != group.counted {
                let found = format!("{} runs", group.count);
                report.add(Kind::FreeSpaceCount, group.at, found, group.counted);
            }
            let right = complement(extents, *start, chunk.bytes);
            if group.runs != right {
                let at = group.runs.iter().zip(&right).find(|(a, b)| a != b);
                let (found, expected) = match at {
                    Some((a, b)) => (format!("{a:?}"), format!("{b:?}")),
                    None => (format!("{} runs", group.runs.len()), right.len().to_string()),
                };
                report.add(Kind::FreeSpace, group.at, found, format!("free: {expected}"));
            }
        }
        for (start, group) in &self.groups {
            if volume.chunks.contains_key(start) {
                continue;
            }
            // What mkfs.btrfs leaves is no group's. Within a group it hides what comes behind it.
            let end = start.checked_add(group.bytes);
            let touches = |end| {
                let before = volume.chunks.range(..end).next_back();
                before.is_some_and(|(at, chunk)| at.saturating_add(chunk.bytes) > *start)
            };
            // mkfs.btrfs makes its first block groups at the lowest addresses, and removes them.
            let first = volume.chunks.keys().next().copied().unwrap_or(0);
            let kind = match end {
                Some(end) if !touches(end) && *start < first => Kind::FreeSpaceStray,
                _ => Kind::FreeSpace,
            };
            report.add(kind, group.at, wide(group.runs.len()), "no such group");
        }
    }
}

/// What no extent has of a block group.
fn complement(extents: &Extents, start: u64, bytes: u64) -> Vec<(u64, u64)> {
    let end = start.saturating_add(bytes);
    let mut out = Vec::new();
    let mut at = start;
    for (from, e) in extents.all.range(start..end) {
        if *from > at {
            out.push((at, from - at));
        }
        at = at.max(from.saturating_add(e.bytes));
    }
    if at < end {
        out.push((at, end - at));
    }
    out
}
