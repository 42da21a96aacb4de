//! The extent tree: compares the recorded users of each extent with its actual users.

use std::collections::BTreeMap;

use crate::disk::chunk::group;
use crate::disk::extent::{Extent, flag};
use crate::disk::{Key, Reference, id, kind, wide};

use super::Report;
use super::chunks::Device;
use super::finding::{At, Kind};
use super::volume::{Found, Seen, Users, Volume};

/// An extent, as the tree has it.
#[derive(Clone, Debug)]
pub(super) struct ExtentSeen {
    pub bytes: u64,
    pub flags: u64,
    level: Option<u8>,
    /// How often it says that it is used.
    refs: u64,
    users: Users,
    at: At,
}

impl ExtentSeen {
    pub fn is_data(&self) -> bool {
        self.flags & flag::DATA != 0
    }
}

/// All extents, by address.
pub(super) struct Extents {
    pub all: BTreeMap<u64, ExtentSeen>,
    generation: u64,
}

impl Extents {
    /// `generation`: of the super block.
    pub fn new(generation: u64) -> Extents {
        Extents { all: BTreeMap::new(), generation }
    }

    /// The newest generation that something can have: a log is one newer than the super block.
    pub fn newest(&self) -> u64 {
        self.generation.saturating_add(1)
    }

    /// An item of the extent tree.
    pub fn item(&mut self, item: &Found<'_>, device: &mut Device, report: &mut Report) {
        let key = item.at.key;
        match key.kind {
            kind::EXTENT_ITEM | kind::METADATA_ITEM => self.extent(item, report),
            kind::BLOCK_GROUP_ITEM => device.group(item, report),
            kind::TREE_BLOCK_REF
            | kind::EXTENT_DATA_REF
            | kind::SHARED_BLOCK_REF
            | kind::SHARED_DATA_REF => {
                let Some((who, count)) = Reference::from_item(key, item.bytes) else {
                    report.add(Kind::Item, item.at, item.bytes.len(), "a complete reference");
                    return;
                };
                match self.all.get_mut(&key.objectid) {
                    Some(e) => {
                        let sum = e.users.entry(who).or_default();
                        *sum = sum.saturating_add(count.into());
                    }
                    None => report.add(Kind::Extent, item.at, "no item", "its extent's"),
                }
            }
            kind::EXTENT_OWNER_REF => {}
            other => report.add(Kind::Item, item.at, other, "an item of the extent tree"),
        }
    }

    fn extent(&mut self, item: &Found<'_>, report: &mut Report) {
        let key = item.at.key;
        let extent = match Extent::load(key, item.bytes, item.at.byte) {
            Ok(extent) => extent,
            Err(e) => return report.error(Kind::Extent, item.at, e),
        };
        let mut users = Users::new();
        for r in &extent.refs {
            let sum = users.entry(r.who).or_default();
            *sum = sum.saturating_add(r.count.into());
        }
        let generation = extent.head.generation.get();
        if generation > self.newest() {
            let found = format!("generation {generation}");
            report.add(Kind::Extent, item.at, found, format!("{} or less", self.newest()));
        }
        let is_skinny = key.kind == kind::METADATA_ITEM;
        // 0: not known here; a block's size is put in its place when it is compared.
        let bytes = if is_skinny { 0 } else { key.offset };
        let new = ExtentSeen {
            bytes,
            flags: extent.head.flags.get(),
            level: extent.level,
            refs: extent.head.refs.get(),
            users,
            at: item.at,
        };
        if self.all.insert(key.objectid, new).is_some() {
            report.add(Kind::Extent, item.at, "a second item", "one item per address");
        }
    }

    /// Sets the size of tree blocks, which their items do not say.
    pub fn fill_sizes(&mut self, node_bytes: usize) {
        for e in self.all.values_mut().filter(|e| e.at.key.kind == kind::METADATA_ITEM) {
            e.bytes = wide(node_bytes);
        }
    }

    /// Holds all against what was seen in use.
    pub fn compare(&self, volume: &Volume<'_>, seen: &Seen, report: &mut Report) {
        let mut end = 0u64;
        for (start, e) in &self.all {
            if *start < end {
                report.add(Kind::ExtentPlace, e.at, start, format!("{end} or more: they overlap"));
            }
            end = start.saturating_add(e.bytes);
            self.check_place(volume, *start, e, report);
            if e.flags & !(flag::DATA | flag::TREE_BLOCK | flag::FULL_BACKREF) != 0 {
                report.add(Kind::Extent, e.at, format!("flags {:#x}", e.flags), "known ones");
            }
            let sum = e.users.values().fold(0u64, |a, b| a.saturating_add(*b));
            if e.refs != sum {
                report.add(Kind::ExtentRefs, e.at, format!("{} uses", e.refs), sum);
            }
            let Some(users) = seen.users.get(start) else {
                report.add(Kind::ExtentExtra, e.at, "an item", "a user");
                continue;
            };
            if *users != e.users {
                compare_users(e, users, report);
            }
            match (seen.data.get(start), seen.blocks.get(start)) {
                (Some(bytes), _) if e.is_data() => {
                    if *bytes != e.bytes {
                        let found = format!("{} bytes", e.bytes);
                        report.add(
                            Kind::Extent,
                            e.at,
                            found,
                            format!("{bytes}, as in file extent items"),
                        );
                    }
                }
                (_, Some(block)) if !e.is_data() => {
                    if e.level != Some(block.level) {
                        let found = format!("level {:?}", e.level);
                        report.add(Kind::Extent, e.at, found, format!("level {}", block.level));
                    }
                    // A block that is not counted by its address is one of its owner's, too.
                    let owner = Reference::Tree { root: block.owner };
                    let by_trees = e.users.keys().any(|u| matches!(u, Reference::Tree { .. }));
                    let is_full = e.flags & flag::FULL_BACKREF != 0;
                    if by_trees && !is_full && !e.users.contains_key(&owner) {
                        let found = format!("no reference of owner {}", block.owner.cast_signed());
                        report.add(Kind::ExtentRefs, e.at, found, "one");
                    }
                    let can_share = id::is_file_tree(block.owner);
                    if is_full && !can_share && block.owner != id::DATA_RELOC_TREE {
                        let found = format!("flags {:#x}", e.flags);
                        report.add(
                            Kind::Extent,
                            e.at,
                            found,
                            "no FULL_BACKREF (the block is not shared)",
                        );
                    }
                }
                (None, None) => {}
                _ => report.add(Kind::Extent, e.at, e.flags, "flags of its type"),
            }
        }
        for (start, users) in &seen.users {
            if !self.all.contains_key(start) {
                let who = users.keys().next().copied();
                let (key, what) = match seen.data.get(start) {
                    Some(bytes) => (Key::new(*start, kind::EXTENT_ITEM, *bytes), "data"),
                    None => (Key::new(*start, kind::METADATA_ITEM, 0), "a tree block"),
                };
                let at = At { tree: id::EXTENT_TREE, key, byte: volume.place(*start) };
                let expected = format!("an item: {what} of {who:?}");
                report.add(Kind::ExtentMissing, at, "none", expected);
            }
        }
    }

    fn check_place(&self, volume: &Volume<'_>, start: u64, e: &ExtentSeen, report: &mut Report) {
        let end = start.saturating_add(e.bytes);
        let is_inside = |(from, c): (u64, &super::volume::ChunkSeen)| {
            let wanted = if e.is_data() { group::DATA } else { group::METADATA | group::SYSTEM };
            end <= from.saturating_add(c.bytes) && c.flags & wanted != 0
        };
        if !volume.chunk_of(start).is_some_and(is_inside) {
            report.add(Kind::ExtentPlace, e.at, start, "inside a block group of its type");
        }
        if !e.bytes.is_multiple_of(4096) || e.bytes == 0 || !start.is_multiple_of(4096) {
            report.add(Kind::ExtentPlace, e.at, e.bytes, "whole sectors");
        }
    }
}

fn compare_users(e: &ExtentSeen, users: &Users, report: &mut Report) {
    for (who, said) in &e.users {
        let right = users.get(who).copied().unwrap_or(0);
        if right != *said {
            let found = format!("{said} references of {who:?}");
            report.add(Kind::ExtentRefs, e.at, found, format!("{right}"));
        }
    }
    for (who, right) in users.iter().filter(|(who, _)| !e.users.contains_key(who)) {
        let found = format!("no reference of {who:?}");
        report.add(Kind::ExtentRefs, e.at, found, format!("{right}"));
    }
}
