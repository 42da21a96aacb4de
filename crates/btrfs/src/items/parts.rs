//! Parts of files as items describe them: where bytes are, and files cut a few items at a time.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::file_extent::{FileExtentItem, extent_type, inline_bytes};
use crate::disk::node::{ITEM_BYTES, leaf_space};
use crate::disk::{DirItem, FileExtent, Key, kind, view_mut, wide};

use super::extents::{key_of, sector_end};
use super::{NameEntry, wrong};

/// A part of a file that one item describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePart {
    /// First byte of the file.
    pub start: u64,
    /// Byte behind it; of an inline one not rounded.
    pub end: u64,
    /// The item; `None`: the bytes are in the item (inline).
    pub item: Option<FileExtentItem>,
}

impl FilePart {
    /// Does it name a place on the device?
    pub fn has_place(&self) -> bool {
        self.item.is_some_and(|i| i.has_place())
    }
    /// Space allocated beforehand, not written?
    pub fn is_prealloc(&self) -> bool {
        self.item.is_some_and(|i| i.head.kind == extent_type::PREALLOC && i.has_place())
    }
    /// Are the bytes not in the item?
    pub fn is_regular(&self) -> bool {
        self.item.is_some()
    }
    /// The bytes are in the item?
    pub fn is_inline(&self) -> bool {
        self.item.is_none()
    }
    /// Logical address of byte `at` of the file, which lies in it; `None` without a place.
    pub fn address(&self, at: u64) -> Option<u64> {
        let i = self.item.filter(FileExtentItem::has_place)?;
        Some(i.disk_bytenr.get() + i.offset.get() + (at - self.start))
    }
    /// The part of the extent from byte `at` of the file on; `at` lies in the extent.
    pub fn behind(&self, at: u64) -> FilePart {
        let item = self.item.map(|mut i| {
            i.offset = (i.offset.get() + (at - self.start)).into();
            i.num_bytes = (self.end - at).into();
            i
        });
        FilePart { start: at, end: self.end, item }
    }
    /// Bytes that it counts for in the inode's `nbytes`.
    pub fn counted(&self) -> u64 {
        if self.is_inline() || self.has_place() { self.end - self.start } else { 0 }
    }
}

fn part_of(key: Key, item: &[u8], at: u64) -> FsResult<FilePart> {
    let extent = FileExtent::load(key, item, at)?;
    let end = key.offset.checked_add(extent.len()).ok_or_else(|| {
        FsError::corrupt("btrfs file extent", "num_bytes", at, extent.len(), "an end below 2^64")
    })?;
    let item = match extent {
        FileExtent::Inline(..) => None,
        FileExtent::Regular(e) => Some(e),
    };
    Ok(FilePart { start: key.offset, end, item })
}

impl Core<'_> {
    /// The item that byte `from` of a file lies in, or the first one behind it.
    pub fn part_from(&mut self, tree: u64, ino: u64, from: u64) -> FsResult<Option<FilePart>> {
        let low = key_of(ino, 0);
        if let Some(path) = self.seek_back(tree, key_of(ino, from))? {
            let at = self.place_of(&path);
            if let Some((key, item)) = self.item(&path)?
                && key >= low
                && key.objectid == ino
            {
                let part = part_of(key, item, at)?;
                if part.end > from || part.start == from {
                    return Ok(Some(part));
                }
            }
        }
        let Some(path) = self.seek(tree, key_of(ino, from))? else { return Ok(None) };
        let at = self.place_of(&path);
        match self.item(&path)? {
            Some((key, item)) if key.objectid == ino && key.kind == kind::EXTENT_DATA => {
                part_of(key, item, at).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// All parts of a file that overlap `from..to`, in order; holes are what lies between.
    pub fn parts(&mut self, tree: u64, ino: u64, from: u64, to: u64) -> FsResult<Vec<FilePart>> {
        let mut out = Vec::new();
        let mut at = from;
        while at < to {
            let Some(part) = self.part_from(tree, ino, at)? else { break };
            if part.start >= to {
                break;
            }
            at = part.end.max(at + 1);
            out.push(part);
        }
        Ok(out)
    }

    /// The bytes of an inline extent.
    pub fn inline_data(&mut self, tree: u64, ino: u64) -> FsResult<Option<Vec<u8>>> {
        let Some(item) = self.lookup(tree, key_of(ino, 0))? else { return Ok(None) };
        match FileExtent::load(key_of(ino, 0), &item, 0)? {
            FileExtent::Inline(head, data) if head.compression == 0 => Ok(Some(data.to_vec())),
            FileExtent::Inline(..) => {
                Err(FsError::Unsupported("btrfs: compressed extents".to_owned()))
            }
            FileExtent::Regular(_) => Ok(None),
        }
    }

    /// Most bytes that an inline extent may have. `BTRFS_MAX_INLINE_DATA_SIZE`.
    pub fn inline_bytes_max(&self) -> u64 {
        let leaf = leaf_space(self.node_bytes());
        wide(leaf - ITEM_BYTES - FileExtent::INLINE_HEAD)
    }

    /// Drops what a file has from byte `size` on, from its end: at most `most` items, so that a
    /// transaction stays small. Answers bytes less (`nbytes`), and whether it is done. An inline
    /// extent is cut. `btrfs_truncate_inode_items`.
    pub fn cut_extents(
        &mut self,
        tree: u64,
        ino: u64,
        size: u64,
        most: usize,
    ) -> FsResult<(u64, bool)> {
        let counts = self.counts_data(tree)?;
        let mut dropped = 0;
        for _ in 0..most {
            let (low, high) = (key_of(ino, 0), key_of(ino, u64::MAX));
            let Some((key, item)) = self.last(tree, low, high)? else { return Ok((dropped, true)) };
            let part = part_of(key, &item, 0)?;
            let Some(extent) = part.item else {
                if part.end <= size {
                    return Ok((dropped, true));
                }
                let keep = size.saturating_sub(part.start);
                dropped += part.end - part.start - keep;
                if keep == 0 {
                    self.remove_item(tree, key)?;
                    continue;
                }
                let data = item.get(FileExtent::INLINE_HEAD..).unwrap_or(&[]);
                let kept = data.get(..crate::disk::index(keep)).unwrap_or(data);
                let transid = self.transid_begun()?;
                self.replace_item(tree, key, &inline_bytes(transid, kept))?;
                return Ok((dropped, true));
            };
            let keep = sector_end(size.saturating_sub(part.start));
            if keep >= part.end - part.start {
                return Ok((dropped, true));
            }
            let is_counted = part.has_place();
            if keep > 0 {
                self.change_item(tree, key, |bytes| {
                    if let Some(item) = view_mut::<FileExtentItem>(bytes, 0) {
                        item.num_bytes = keep.into();
                    }
                })?;
                dropped += if is_counted { part.end - part.start - keep } else { 0 };
                return Ok((dropped, true));
            }
            let r = self.data_ref(tree, ino, part.start, &extent)?;
            self.remove_item(tree, key)?;
            if counts && is_counted {
                self.drop_data_ref(r)?;
            }
            dropped += part.counted();
        }
        Ok((dropped, false))
    }

    /// Would a name find room in its item? Asked before anything is changed. Errors: `Exists`,
    /// `NoSpace`. `btrfs_check_dir_item_collision`.
    pub fn check_name(&mut self, tree: u64, dir: u64, name: &[u8]) -> FsResult<()> {
        let key = Key::new(dir, kind::DIR_ITEM, crate::disk::dir::name_hash(name));
        let Some(item) = self.lookup(tree, key)? else { return Ok(()) };
        for entry in crate::disk::dir::entries(&item) {
            let e = entry.map_err(|_| wrong("btrfs directory item", dir, "whole entries"))?;
            if e.name == name {
                return Err(FsError::Exists);
            }
        }
        let more = size_of::<DirItem>() + name.len() + ITEM_BYTES;
        let fits = item.len() + more <= leaf_space(self.node_bytes());
        if fits { Ok(()) } else { Err(FsError::NoSpace) }
    }

    /// The names of a directory from an index on, with their indexes, in that order.
    pub fn list_names(
        &mut self,
        tree: u64,
        dir: u64,
        from: u64,
    ) -> FsResult<Vec<(u64, NameEntry)>> {
        let mut out = Vec::new();
        let mut from = from;
        while let Some((index, name)) = self.read_dir(tree, dir, from)? {
            out.push((index, name));
            let Some(next) = index.checked_add(1) else { break };
            from = next;
        }
        Ok(out)
    }

    /// The directory that a directory is in. Errors: `Corrupt` if it has no name.
    pub fn parent_of(&mut self, tree: u64, dir: u64) -> FsResult<u64> {
        let names = self.refs_of(tree, dir)?;
        names
            .first()
            .map(|(parent, ..)| *parent)
            .ok_or_else(|| wrong("btrfs inode reference", dir, "a name of the directory"))
    }

    /// Most bytes of an attribute's name and value. `BTRFS_MAX_XATTR_SIZE`.
    pub fn xattr_bytes_max(&self) -> usize {
        leaf_space(self.node_bytes()) - ITEM_BYTES - size_of::<DirItem>()
    }

    /// The checksums of `sectors` sectors from an address on, as numbers; `None` for each sector
    /// without one. `btrfs_lookup_bio_sums`.
    pub fn data_sums(&mut self, tree: u64, at: u64, sectors: u64) -> FsResult<Vec<Option<u64>>> {
        let kind = self.common().csum;
        let found = self.csums(tree, at, sectors)?;
        Ok(found.into_iter().map(|sum| sum.map(|s| kind.stored(&s))).collect())
    }

    /// Number of the transaction that runs, which begins if none does.
    pub(crate) fn transid_begun(&mut self) -> FsResult<u64> {
        self.begin()?;
        Ok(self.transid())
    }
}
