//! Space allocated beforehand that was written.

use wp_base::FsResult;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::disk::file_extent::{FileExtentItem, extent_type};

use super::extents::key_of;
use super::{FilePart, wrong};

impl Core<'_> {
    /// Bytes `start` to `end` of a file, allocated beforehand, are written: the extents there are
    /// regular ones. `btrfs_mark_extent_written`.
    pub fn mark_written(&mut self, tree: u64, ino: u64, start: u64, end: u64) -> FsResult<()> {
        let mut at = start;
        while at < end {
            let part = self.part_from(tree, ino, at)?.filter(|p| p.start <= at && p.end > at);
            let Some(part) = part.filter(FilePart::is_regular) else {
                return Err(wrong("btrfs file extent", ino, "an extent where data was written"));
            };
            let to = part.end.min(end);
            if part.is_prealloc() {
                self.mark_piece(tree, ino, at, to)?;
            }
            at = to;
        }
        Ok(())
    }

    /// The same of bytes that lie in one item: what is before and behind stays as it is, and what
    /// is written joins its neighbours that continue it.
    fn mark_piece(&mut self, tree: u64, ino: u64, start: u64, end: u64) -> FsResult<()> {
        let part = self.part_from(tree, ino, start)?;
        let Some((part, item)) = part.and_then(|p| Some((p, p.item?))) else { return Ok(()) };
        self.begin()?;
        let transid = self.transid();
        let origin = part.start.wrapping_sub(item.offset.get());
        let continues = |p: &FilePart| {
            p.item.is_some_and(|i| {
                i.head.kind == extent_type::REGULAR
                    && i.disk_bytenr == item.disk_bytenr
                    && i.head.compression == 0
                    && p.start.wrapping_sub(i.offset.get()) == origin
            })
        };
        let before = match start.checked_sub(1) {
            Some(at) if start == part.start => self.part_from(tree, ino, at)?,
            _ => None,
        };
        let before = before.filter(|p| p.end == start && continues(p));
        let behind = if end == part.end { self.part_from(tree, ino, end)? } else { None };
        let behind = behind.filter(|p| p.start == end && continues(p));
        let (from, to) = (before.map_or(start, |p| p.start), behind.map_or(end, |p| p.end));
        let piece = |kind, from: u64, to: u64| {
            let mut new: FileExtentItem = item;
            new.head.kind = kind;
            new.head.generation = transid.into();
            new.offset = from.wrapping_sub(origin).into();
            new.num_bytes = (to - from).into();
            new
        };
        let mut pieces = vec![(from, piece(extent_type::REGULAR, from, to))];
        if part.start < start {
            pieces.push((part.start, piece(extent_type::PREALLOC, part.start, start)));
        }
        if end < part.end {
            pieces.push((end, piece(extent_type::PREALLOC, end, part.end)));
        }
        let old: Vec<u64> = before.iter().chain([&part]).chain(&behind).map(|p| p.start).collect();
        let r = self.data_ref(tree, ino, part.start, &item)?;
        let counts = self.counts_data(tree)?;
        // In place where an item with this key is there; else it goes, or comes.
        for at in old.iter().filter(|at| !pieces.iter().any(|(p, _)| p == *at)) {
            self.remove_item(tree, key_of(ino, *at))?;
            if counts {
                self.drop_data_ref(r)?;
            }
        }
        for (at, new) in &pieces {
            let key = key_of(ino, *at);
            if old.contains(at) {
                self.replace_item(tree, key, new.as_bytes())?;
            } else {
                self.insert_item(tree, key, new.as_bytes())?;
                if counts {
                    self.add_data_ref(r)?;
                }
            }
        }
        Ok(())
    }
}
