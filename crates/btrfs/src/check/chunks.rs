//! Super blocks, chunks, the device's parts and block groups: all of them say the same.

use std::collections::BTreeMap;

use wp_medium::View;

use crate::disk::chunk::group;
use crate::disk::{
    BlockGroupItem, Chunk, DevExtent, DevItem, Key, SuperBlock, id, kind, view as field,
};

use super::extents::Extents;
use super::finding::{At, Kind};
use super::volume::{Found, Seen, Start, Volume, Walk};
use super::{Report, read_super};

/// Copies of the super block: they are of the same file system, and no newer.
pub(super) fn check_copies(view: &dyn View, first: &SuperBlock, report: &mut Report) {
    for at in SuperBlock::copies(first.dev_item.total_bytes.get().min(view.len_bytes())).skip(1) {
        let place = format!("copy of the super block at byte {at:#x}");
        match read_super(view, at) {
            Ok(sb) => match sb.verify_sum(at) {
                Ok(()) if sb.fsid != first.fsid => {
                    report.add(Kind::SuperCopies, place, "another file system", "the same");
                }
                Ok(()) if sb.generation.get() > first.generation.get() => {
                    let right = format!("{} or less", first.generation.get());
                    report.add(Kind::SuperCopies, place, sb.generation.get(), right);
                }
                Ok(()) => {}
                Err(e) => report.error(Kind::SuperCopies, place, e),
            },
            Err(e) => report.error(Kind::SuperCopies, place, e),
        }
    }
}

/// What is said of the device.
#[derive(Default)]
pub(super) struct Device {
    item: Option<(DevItem, At)>,
    /// By byte of the device: bytes, the chunk, where the item stands.
    extents: BTreeMap<u64, (u64, u64, At)>,
    /// By logical address: bytes, type, used, where the item stands.
    groups: BTreeMap<u64, (u64, u64, u64, At)>,
    has_dev_tree: bool,
}

impl Device {
    /// Reads the chunk tree: what it says of chunks is added to those of the super block.
    pub fn read_chunks(
        &mut self,
        volume: &mut Volume<'_>,
        start: &Start,
        seen: &mut Seen,
        report: &mut Report,
    ) {
        let mut found: Vec<(Key, Chunk, u64)> = Vec::new();
        let mut walk = Walk { volume, extents: None, seen, report, dropped: None };
        walk.tree(start, &mut |item, _, report| match item.at.key.kind {
            kind::CHUNK_ITEM => match Chunk::load(item.bytes, item.at.byte) {
                Ok((chunk, n)) if n == item.bytes.len() => {
                    found.push((item.at.key, chunk, item.at.byte));
                }
                Ok((_, n)) => report.add(Kind::Chunk, item.at, item.bytes.len(), n),
                Err(e) => report.error(Kind::Chunk, item.at, e),
            },
            kind::DEV_ITEM => match DevItem::load(item.at.key, item.bytes, item.at.byte) {
                Ok(dev) => self.item = Some((dev, item.at)),
                Err(e) => report.error(Kind::Chunk, item.at, e),
            },
            _ => {}
        });
        let listed: Vec<u64> = volume.chunks.keys().copied().collect();
        for start in listed {
            if !found.iter().any(|(key, _, _)| key.offset == start) {
                let place = format!("super block: system chunk {start}");
                report.add(Kind::Chunk, place, "no item", "a chunk of the chunk tree");
            }
        }
        for (key, chunk, at) in found {
            let is_listed = volume.chunks.contains_key(&key.offset);
            let is_system = chunk.head.kind.get() & group::SYSTEM != 0;
            if is_system && !is_listed {
                let place = At { tree: id::CHUNK_TREE, key, byte: at };
                report.add(Kind::Chunk, place, "not there", "in the super block's array");
            }
            volume.add_chunk(key, &chunk, at, report);
        }
    }

    /// An item of the device tree.
    pub fn item(&mut self, item: &Found<'_>, report: &mut Report) {
        self.has_dev_tree = true;
        if item.at.key.kind != kind::DEV_EXTENT {
            return;
        }
        let Some(e) = field::<DevExtent>(item.bytes, 0) else {
            report.add(Kind::Item, item.at, item.bytes.len(), "48 bytes");
            return;
        };
        let fixed = (e.chunk_tree.get(), e.chunk_objectid.get());
        if fixed != (id::CHUNK_TREE, id::FIRST_CHUNK_TREE) {
            report.add(Kind::DevExtent, item.at, format!("chunk {fixed:?}"), "(3, 256)");
        }
        let at = item.at.key.offset;
        let new = (e.length.get(), e.chunk_offset.get(), item.at);
        self.extents.insert(at, new);
    }

    /// A block group.
    pub fn group(&mut self, item: &Found<'_>, report: &mut Report) {
        let Some(g) = field::<BlockGroupItem>(item.bytes, 0) else {
            report.add(Kind::Item, item.at, item.bytes.len(), "24 bytes");
            return;
        };
        if g.chunk_objectid.get() != id::FIRST_CHUNK_TREE {
            report.add(Kind::BlockGroup, item.at, g.chunk_objectid.get(), "chunk_objectid 256");
        }
        let Key { objectid: start, offset: bytes, .. } = item.at.key;
        self.groups.insert(start, (bytes, g.flags.get(), g.used.get(), item.at));
    }

    /// Everything was read: is it the same?
    pub fn finish(&self, volume: &Volume<'_>, extents: &Extents, seen: &Seen, report: &mut Report) {
        self.compare_groups(volume, extents, seen, report);
        self.compare_device(volume, report);
    }

    fn compare_groups(
        &self,
        volume: &Volume<'_>,
        extents: &Extents,
        seen: &Seen,
        report: &mut Report,
    ) {
        let mut sum = 0u64;
        for (start, (bytes, flags, used, at)) in &self.groups {
            sum = sum.saturating_add(*used);
            match volume.chunks.get(start) {
                None => report.add(Kind::BlockGroup, at, start, "a chunk with the same address"),
                Some(chunk) => {
                    let right = (chunk.bytes, chunk.flags);
                    if (*bytes, *flags) != right {
                        let found = format!("{bytes} bytes, type {flags:#x}");
                        let right = format!("{} bytes, type {:#x}", right.0, right.1);
                        report.add(Kind::BlockGroup, at, found, right);
                    }
                }
            }
            let end = start.saturating_add(*bytes);
            let inside = extents.all.range(*start..end).map(|(_, e)| e.bytes);
            let right = inside.fold(0, u64::saturating_add);
            if *used != right && !seen.is_torn {
                report.add(Kind::BlockGroupUsed, at, used, right);
            }
        }
        for (start, chunk) in &volume.chunks {
            if !self.groups.contains_key(start) && !seen.is_torn {
                let key = Key::new(*start, kind::BLOCK_GROUP_ITEM, chunk.bytes);
                let place = At { tree: id::EXTENT_TREE, key, byte: 0 };
                report.add(Kind::BlockGroup, place, "none", "one for each chunk");
            }
        }
        let said = volume.sb.bytes_used.get();
        if said != sum && !seen.is_torn {
            report.add(Kind::SuperCount, "super block: bytes_used", said, sum);
        }
    }

    fn compare_device(&self, volume: &Volume<'_>, report: &mut Report) {
        let mut used = 0u64;
        let mut end = 0u64;
        for (start, (bytes, logical, at)) in &self.extents {
            used = used.saturating_add(*bytes);
            if *start < end {
                report.add(Kind::DevExtent, at, start, format!("{end} or more: they overlap"));
            }
            end = start.saturating_add(*bytes);
            let chunk = volume.chunks.get(logical);
            let is_ours = at.key.objectid == volume.sb.dev_item.devid.get();
            let is_right = chunk.is_some_and(|c| c.bytes == *bytes && c.places.contains(start));
            let is_right = is_right && is_ours;
            if !is_right {
                report.add(
                    Kind::DevExtent,
                    at,
                    format!("chunk {logical}"),
                    "the device extent of that chunk",
                );
            }
        }
        if self.has_dev_tree {
            for (logical, chunk) in &volume.chunks {
                for place in &chunk.places {
                    if self.extents.get(place).is_none_or(|(_, l, _)| l != logical) {
                        let key = Chunk::key(*logical);
                        let at = At { tree: id::CHUNK_TREE, key, byte: chunk.at };
                        report.add(Kind::DevExtent, at, format!("none for {place}"), "one");
                    }
                }
            }
        }
        let Some((item, at)) = &self.item else {
            report.add(Kind::Chunk, "chunk tree", "no device", "one");
            return;
        };
        let sb = &volume.sb.dev_item;
        let number = (item.devid.get(), item.uuid);
        if number != (sb.devid.get(), sb.uuid) {
            report.add(Kind::Chunk, at, format!("device {}", item.devid.get()), sb.devid.get());
        }
        if item.fsid != volume.common.fsid {
            report.add(Kind::Chunk, at, "a device of another file system", "of this file system");
        }
        if item.bytes_used.get() != used {
            report.add(Kind::SuperCount, at, item.bytes_used.get(), format!("bytes_used {used}"));
        }
        for (name, said, right) in [
            ("bytes_used", sb.bytes_used.get(), item.bytes_used.get()),
            ("total_bytes", sb.total_bytes.get(), item.total_bytes.get()),
        ] {
            if said != right {
                let place = format!("super block: dev_item.{name}");
                report.add(Kind::SuperCount, place, said, format!("{right}, as in the chunk tree"));
            }
        }
        if item.total_bytes.get() != volume.sb.total_bytes.get() {
            let right = format!("total_bytes {}", volume.sb.total_bytes.get());
            report.add(Kind::SuperCount, at, item.total_bytes.get(), right);
        }
    }
}
