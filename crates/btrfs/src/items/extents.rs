//! Extents of files, and the references to data that go with them.

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::disk::file_extent::{FileExtentItem, compression, inline_bytes};
use crate::disk::{FileExtent, Key, id, kind, view_mut, wide};
use crate::refs::DataRef;

use super::wrong;

/// An extent of a file with what is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The bytes themselves; `bool`: compressed.
    Inline(Vec<u8>, bool),
    /// Data, a hole, or space allocated beforehand.
    Regular(FileExtentItem),
}

pub(super) fn key_of(ino: u64, at: u64) -> Key {
    Key::new(ino, kind::EXTENT_DATA, at)
}

/// Bytes of the file up to which an extent goes; of an inline one, in memory.
fn end_of(key: Key, extent: &FileExtent<'_>) -> u64 {
    key.offset.saturating_add(extent.len())
}

/// The end of the sector that byte `end` of a file ends in; the last of all if there is none below
/// 2^64.
pub(super) fn sector_end(end: u64) -> u64 {
    end.checked_next_multiple_of(4096).unwrap_or(u64::MAX)
}

impl Core<'_> {
    /// The first extent of a file that begins at or covers byte `at`, or begins behind it: first
    /// byte of the file, and the extent. `None`: there is none.
    pub fn extent_from(&mut self, tree: u64, ino: u64, at: u64) -> FsResult<Option<(u64, Extent)>> {
        if let Some((key, item)) = self.last(tree, key_of(ino, 0), key_of(ino, at))? {
            let extent = FileExtent::load(key, &item, 0)?;
            if end_of(key, &extent) > at || key.offset == at {
                return Ok(Some((key.offset, owned(&extent))));
            }
        }
        let next = key_of(ino, at.saturating_add(1));
        match self.first(tree, next, key_of(ino, u64::MAX))? {
            Some((key, item)) => Ok(Some((key.offset, owned(&FileExtent::load(key, &item, 0)?)))),
            None => Ok(None),
        }
    }

    /// Bytes of a file are in this new extent, reserved before, or in a part of one that is there:
    /// the item and its reference. What was there before was dropped.
    /// `insert_reserved_file_extent`.
    pub fn insert_extent_item(
        &mut self,
        tree: u64,
        ino: u64,
        at: u64,
        item: &FileExtentItem,
        is_new: bool,
    ) -> FsResult<()> {
        self.insert_item(tree, key_of(ino, at), item.as_bytes())?;
        if item.has_place() && self.counts_data(tree)? {
            let r = self.data_ref(tree, ino, at, item)?;
            if is_new { self.add_new_data_ref(r)? } else { self.add_data_ref(r)? }
        }
        Ok(())
    }

    /// All bytes of a file are in its item. `insert_inline_extent`.
    pub fn insert_inline(&mut self, tree: u64, ino: u64, data: &[u8]) -> FsResult<()> {
        self.begin()?;
        let bytes = inline_bytes(self.transid(), data);
        self.insert_item(tree, key_of(ino, 0), &bytes)
    }

    /// Drops what a file has in bytes `start` to `end`: extents go, are cut, or split in two.
    /// Answers the bytes that inodes count (`nbytes`) that are gone.
    ///
    /// Errors: `Unsupported` for a part of an inline extent. `btrfs_drop_extents`.
    pub fn drop_extents(&mut self, tree: u64, ino: u64, start: u64, end: u64) -> FsResult<u64> {
        let mut bytes = 0;
        let mut from = start;
        while from < end {
            let Some((key, item)) = self.overlapping(tree, ino, from, end)? else { break };
            let extent = FileExtent::load(key, &item, 0)?;
            let last = end_of(key, &extent);
            let (is_front, is_back) = (start > key.offset, end < last);
            let regular = match extent {
                FileExtent::Inline(..) if is_front || is_back => {
                    let what = "a part of an inline extent dropped";
                    return Err(FsError::Unsupported(what.to_owned()));
                }
                FileExtent::Inline(..) => {
                    bytes += extent.len();
                    self.remove_item(tree, key)?;
                    from = sector_end(last);
                    continue;
                }
                FileExtent::Regular(e) => e,
            };
            let counted = |n: u64| if regular.has_place() { n } else { 0 };
            match (is_front, is_back) {
                (true, true) => {
                    self.split_extent(tree, key, start)?;
                    // The later part is cut at its front next time.
                    from = start;
                }
                (false, true) => {
                    let (path, _) = self.search(tree, key, crate::tree::Purpose::Change)?;
                    self.set_item_key(&path, key_of(ino, end))?;
                    let gone = end - key.offset;
                    self.change_part(tree, key_of(ino, end), gone, last - end)?;
                    bytes += counted(gone);
                    from = end;
                }
                (true, false) => {
                    self.change_part(tree, key, 0, start - key.offset)?;
                    bytes += counted(last - start);
                    from = last;
                }
                (false, false) => {
                    self.drop_extent_ref(tree, key, &item)?;
                    self.remove_item(tree, key)?;
                    bytes += counted(last - key.offset);
                    from = last.max(from + 1);
                }
            }
        }
        Ok(bytes)
    }

    /// A file ends at byte `size`: drops what is behind its last sector, and cuts an inline extent.
    /// Answers as [`Self::drop_extents`]. `btrfs_truncate_inode_items`, in one step.
    pub fn truncate_extents(&mut self, tree: u64, ino: u64, size: u64) -> FsResult<u64> {
        let mut bytes = 0;
        if let Some(item) = self.lookup(tree, key_of(ino, 0))?
            && let FileExtent::Inline(head, data) = FileExtent::load(key_of(ino, 0), &item, 0)?
            && size > 0
            && size < head.ram_bytes.get()
        {
            if head.compression != compression::NONE {
                let what = "a compressed inline extent cut";
                return Err(FsError::Unsupported(what.to_owned()));
            }
            let kept = data.get(..crate::disk::index(size)).unwrap_or(data);
            let mut new = inline_bytes(head.generation.get(), kept);
            new.truncate(FileExtent::INLINE_HEAD + kept.len());
            self.replace_item(tree, key_of(ino, 0), &new)?;
            bytes += wide(data.len() - kept.len());
        }
        let end = sector_end(size);
        Ok(bytes + self.drop_extents(tree, ino, end, u64::MAX)?)
    }

    /// The first extent with bytes from `from` to `end`.
    fn overlapping(
        &mut self,
        tree: u64,
        ino: u64,
        from: u64,
        end: u64,
    ) -> FsResult<Option<(Key, Vec<u8>)>> {
        if let Some((key, item)) = self.last(tree, key_of(ino, 0), key_of(ino, from))? {
            let extent = FileExtent::load(key, &item, 0)?;
            if end_of(key, &extent) > from || key.offset == from {
                return Ok(Some((key, item)));
            }
        }
        let Some(next) = from.checked_add(1).filter(|n| *n < end) else { return Ok(None) };
        self.first(tree, key_of(ino, next), key_of(ino, end - 1))
    }

    /// Two items of one: the second begins at byte `at` of the file.
    fn split_extent(&mut self, tree: u64, key: Key, at: u64) -> FsResult<()> {
        let Some(item) = self.lookup(tree, key)? else { return Err(FsError::NotFound) };
        let FileExtent::Regular(mut e) = FileExtent::load(key, &item, 0)? else {
            return Err(wrong("btrfs file extent", key.objectid, "one that is not inline"));
        };
        let front = at - key.offset;
        let all = e.num_bytes.get();
        e.offset = (e.offset.get() + front).into();
        e.num_bytes = (all - front).into();
        self.change_part(tree, key, 0, front)?;
        self.insert_extent_item(tree, key.objectid, at, &e, false)
    }

    /// An item's part of its extent begins later by `by`, and is so long.
    fn change_part(&mut self, tree: u64, key: Key, by: u64, bytes: u64) -> FsResult<()> {
        self.change_item(tree, key, |item| {
            if let Some(e) = view_mut::<FileExtentItem>(item, 0) {
                e.offset = (e.offset.get() + by).into();
                e.num_bytes = bytes.into();
            }
        })
    }

    /// An item goes: so does its use of data, if it is an extent that has some.
    pub(super) fn drop_extent_ref(&mut self, tree: u64, key: Key, item: &[u8]) -> FsResult<()> {
        if key.kind != kind::EXTENT_DATA || !self.counts_data(tree)? {
            return Ok(());
        }
        if let FileExtent::Regular(e) = FileExtent::load(key, item, 0)?
            && e.has_place()
        {
            let r = self.data_ref(tree, key.objectid, key.offset, &e)?;
            self.drop_data_ref(r)?;
        }
        Ok(())
    }

    /// Log trees have no references to data.
    pub(super) fn counts_data(&mut self, tree: u64) -> FsResult<bool> {
        self.open_root(tree)?;
        Ok(self.root(tree)?.owner != id::TREE_LOG)
    }

    pub(super) fn data_ref(
        &self,
        tree: u64,
        inode: u64,
        at: u64,
        e: &FileExtentItem,
    ) -> FsResult<DataRef> {
        Ok(DataRef {
            bytenr: e.disk_bytenr.get(),
            bytes: e.disk_num_bytes.get(),
            root: self.root(tree)?.owner,
            inode,
            offset: at.wrapping_sub(e.offset.get()),
        })
    }
}

fn owned(extent: &FileExtent<'_>) -> Extent {
    match extent {
        FileExtent::Inline(head, data) => {
            Extent::Inline(data.to_vec(), head.compression != compression::NONE)
        }
        FileExtent::Regular(e) => Extent::Regular(*e),
    }
}
