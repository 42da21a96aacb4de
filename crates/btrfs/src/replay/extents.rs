//! Extents of files in the log: they replace what was there.

use wp_base::FsResult;
use zerocopy::IntoBytes;

use crate::disk::feature::incompat;
use crate::disk::file_extent::{FileExtentItem, compression};
use crate::disk::{FileExtent, Key, kind, wide};
use crate::refs::DataRef;
use crate::site;

use super::{Replay, broken};

const SECTOR: u64 = 4096;

/// How long an extent reaches, in the file.
fn end_of(key: Key, extent: &FileExtent<'_>) -> FsResult<u64> {
    let end = key.offset.checked_add(extent.len());
    end.ok_or_else(|| broken("file extent", extent.len(), format!("an end below 2^64 ({key})")))
}

impl Replay<'_, '_> {
    fn data_ref(&self, ino: u64, at: u64, e: &FileExtentItem) -> DataRef {
        DataRef {
            bytenr: e.disk_bytenr.get(),
            bytes: e.disk_num_bytes.get(),
            root: self.tree,
            inode: ino,
            offset: at.wrapping_sub(e.offset.get()),
        }
    }

    /// The first extent that ends behind `at`, and begins before `end`.
    fn extent_from(&mut self, ino: u64, at: u64, end: u64) -> FsResult<Option<(Key, Vec<u8>)>> {
        let key = |offset| Key::new(ino, kind::EXTENT_DATA, offset);
        if let Some(before) = at.checked_sub(1)
            && let Some((k, item)) = self.core.last(self.tree, key(0), key(before))?
            && end_of(k, &FileExtent::load(k, &item, 0)?)? > at
        {
            return Ok(Some((k, item)));
        }
        match end.checked_sub(1) {
            Some(last) if last >= at => self.core.first(self.tree, key(at), key(last)),
            _ => Ok(None),
        }
    }

    /// Drops what a file has from byte `start` to `end`; answers bytes of data that it had there.
    /// `btrfs_drop_extents`.
    pub(super) fn drop_extents(&mut self, ino: u64, start: u64, end: u64) -> FsResult<u64> {
        let mut dropped = 0;
        let mut from = start;
        while let Some((key, item)) = self.extent_from(ino, from, end)? {
            let extent = FileExtent::load(key, &item, 0)?;
            let stop = end_of(key, &extent)?;
            let part = match extent {
                FileExtent::Inline(..) => None,
                FileExtent::Regular(e) => Some(e),
            };
            if key.offset >= start && stop <= end {
                // All of it.
                self.core.remove_item(self.tree, key)?;
                match part {
                    Some(e) if e.has_place() => {
                        self.core.drop_data_ref(self.data_ref(ino, key.offset, &e))?;
                        dropped += stop - key.offset;
                    }
                    Some(_) => {}
                    None => dropped += stop - key.offset,
                }
            } else {
                let Some(e) = part else {
                    return Err(broken("file extent", key.offset, "not inline where it is split"));
                };
                dropped += self.trim(ino, key, e, (start, end))?;
            }
            if stop >= end {
                break;
            }
            from = stop.max(start);
        }
        Ok(dropped)
    }

    /// Takes the middle, the end or the start from an extent; answers bytes of data that it had
    /// there.
    fn trim(&mut self, ino: u64, key: Key, e: FileExtentItem, cut: (u64, u64)) -> FsResult<u64> {
        let stop = key.offset + e.num_bytes.get();
        let (from, to) = (cut.0.max(key.offset), cut.1.min(stop));
        if !from.is_multiple_of(SECTOR) || !to.is_multiple_of(SECTOR) {
            return Err(broken("file extent", from, "ends at sectors"));
        }
        let old = self.data_ref(ino, key.offset, &e);
        if to < stop {
            let mut rest = e;
            rest.offset = (e.offset.get() + (to - key.offset)).into();
            rest.num_bytes = (stop - to).into();
            let next = Key::new(ino, kind::EXTENT_DATA, to);
            if from == key.offset {
                // The same item, later.
                self.core.remove_item(self.tree, key)?;
            } else if e.has_place() {
                // It begins at the same byte, if all of it were there: one use more of the same.
                self.core.add_data_ref(old)?;
            }
            self.core.insert_item(self.tree, next, rest.as_bytes())?;
        }
        if from > key.offset {
            let mut first = e;
            first.num_bytes = (from - key.offset).into();
            self.core.replace_item(self.tree, key, first.as_bytes())?;
        }
        Ok(if e.has_place() { to - from } else { 0 })
    }

    /// An extent of the log. `replay_one_extent`.
    pub(super) fn replay_extent(&mut self, key: Key, item: &[u8]) -> FsResult<()> {
        let ino = key.objectid;
        let extent = FileExtent::load(key, item, 0)?;
        self.inode_needed(ino)?;
        let have = self.core.lookup(self.tree, key)?;
        let (bytes, dropped);
        match extent {
            FileExtent::Inline(head, _) => {
                bytes = head.ram_bytes.get();
                let end =
                    key.offset.checked_add(bytes).and_then(|e| e.checked_next_multiple_of(SECTOR));
                let Some(end) = end else {
                    return Err(broken("file extent", bytes, "an end below 2^64"));
                };
                dropped = self.drop_extents(ino, key.offset, end)?;
                self.overwrite_item(key, item)?;
            }
            FileExtent::Regular(e) => {
                if have.as_deref() == Some(item) {
                    return Ok(());
                }
                let end = end_of(key, &extent)?;
                dropped = match site::REPLAY_DROP.on() {
                    true => self.drop_extents(ino, key.offset, end)?,
                    false => 0,
                };
                bytes = if e.has_place() { e.num_bytes.get() } else { 0 };
                let flags = self.core.super_block().incompat_flags.get();
                let keeps_holes = flags & incompat::NO_HOLES == 0;
                if e.has_place() || keeps_holes {
                    self.core.insert_item(self.tree, key, item)?;
                }
                if e.has_place() {
                    self.use_extent(self.data_ref(ino, key.offset, &e))?;
                    if site::REPLAY_SUMS.on() {
                        self.replay_sums(&e)?;
                    }
                }
            }
        }
        self.state.done.extents += 1;
        let mut inode = self.inode_needed(ino)?;
        inode.nbytes = inode.nbytes.get().saturating_add(bytes).saturating_sub(dropped).into();
        self.put_inode(ino, &inode)
    }

    /// An extent of data gets a use; one that is not in the extent tree is allocated, at its place.
    fn use_extent(&mut self, r: DataRef) -> FsResult<()> {
        let place = (r.bytenr, r.bytes);
        if self.state.allocated.contains(&place)
            || self.core.find_extent(r.bytenr, None, r.bytes)?.is_some()
        {
            return self.core.add_data_ref(r);
        }
        if !r.bytes.is_multiple_of(SECTOR) || r.bytes == 0 {
            return Err(broken("file extent", r.bytes, "whole sectors"));
        }
        self.core.take_for_log(r.bytenr, r.bytes, false)?;
        self.state.allocated.insert(place);
        self.core.add_new_data_ref(r)
    }

    /// The log's checksums of an extent replace those of the checksum tree.
    fn replay_sums(&mut self, e: &FileExtentItem) -> FsResult<()> {
        let (start, bytes) = if e.head.compression == compression::NONE {
            (e.disk_bytenr.get().wrapping_add(e.offset.get()), e.num_bytes.get())
        } else {
            (e.disk_bytenr.get(), e.disk_num_bytes.get())
        };
        let Some(end) = start.checked_add(bytes) else {
            return Err(broken("file extent", start, "an end below 2^64"));
        };
        let each = self.core.common().csum.bytes();
        for (at, sums) in self.log.sums(start, end, each) {
            let covers = wide(sums.len() / each) * SECTOR;
            self.core.drop_csums(at, covers)?;
            super::csums::insert(self.core, at, &sums)?;
        }
        Ok(())
    }
}
