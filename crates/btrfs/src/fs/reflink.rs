//! Extents that files share: clones of ranges, and equal ranges made one.
//!
//! Picture:    both files locked -> what is dirty of both ranges is written, and items lead to it
//!             -> the ranges are checked (and compared) -> for each extent of the source, in one
//!             step: what the target has there is dropped, an item of the target leads to the same
//!             extent, which has one reference more.
//! Invariants: 1. an item leads to a part of an extent: `offset` and `num_bytes`; the reference is
//!                to the whole, and names the byte of the file at which the whole would begin.
//!             2. the next fsync of the target examines all its items: no extent of the target is
//!                noted as new.
//! Source:     fs/btrfs/reflink.c, fs/remap_range.c (`__generic_remap_file_range_prep`) of Linux
//!             6.12.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_vfs::Share;

use crate::core::Core;
use crate::disk::file_extent::FileExtentItem;
use crate::disk::{FileExtent, Key, kind, wide};
use crate::items::FilePart;

use super::inode::Inode;
use super::{BLOCK, Btrfs};

/// Longest piece of a dedupe (`BTRFS_MAX_DEDUPE_LEN`).
const DEDUPE_PIECE: u64 = 16 << 20;
/// Extents of the target that one item of promised metadata covers the removal of.
const DROPPED_PER_ITEM: u64 = 32;

/// A range of one file, and where it goes in another.
struct Ranges<'a> {
    source: &'a Rc<Inode>,
    /// First byte in the source, and in the target.
    from: u64,
    target: &'a Rc<Inode>,
    to: u64,
    /// Bytes as they were asked for.
    asked: u64,
    /// The same up to the end of the last block.
    len: u64,
    /// Does the target get new times? Not by a dedupe, which changes no contents.
    touches: bool,
}

/// The end of the block that byte `end` of a file ends in, as far as a damaged length allows.
fn block_end(end: u64) -> u64 {
    end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX / BLOCK * BLOCK)
}

impl Ranges<'_> {
    /// Where byte `at` of the source goes; what is before the range, to its begin.
    fn place(&self, at: u64) -> u64 {
        self.to + at.saturating_sub(self.from)
    }
    /// The end of the range in the target, in whole blocks.
    fn end(&self) -> u64 {
        self.to + self.len
    }
}

impl Btrfs {
    /// Has the target share what the source has in a range; answers how many bytes.
    ///
    /// Waits: for the locks of both files, for what is dirty in the ranges, for direct I/O, for
    /// room. Errors: `Invalid` for ranges that are not of whole blocks (but for the end of the
    /// source, at or behind that of the target), overlap, or begin behind the end of the source,
    /// and for files of which one has checksums and the other has not; `Differs`, `TooBig`,
    /// `ReadOnly`, `NoSpace`, `Io`. `btrfs_remap_file_range`.
    pub(super) async fn share_range(
        &self,
        (source, from): (&Rc<Inode>, u64),
        (target, to): (&Rc<Inode>, u64),
        len: u64,
        how: Share,
    ) -> FsResult<u64> {
        self.check_writable_in(target)?;
        let is_same = source.handle == target.handle;
        // `lock_two_nondirectories`, which has the order of addresses.
        let (first, second) =
            if source.handle <= target.handle { (source, target) } else { (target, source) };
        let _first = first.lock.lock().await;
        let _second = if is_same { None } else { Some(second.lock.lock().await) };
        let len = self.prepare((source, from), (target, to), len, how).await?;
        if len == 0 {
            return Ok(0);
        }
        let ranges = Ranges {
            source,
            from,
            target,
            to,
            asked: len,
            len: len.next_multiple_of(BLOCK),
            touches: how != Share::Dedupe,
        };
        match how {
            Share::Dedupe => self.dedupe(&ranges).await?,
            Share::Copy | Share::Clone => self.clone_files(&ranges).await?,
        }
        Ok(len)
    }

    /// Writes what is dirty, and checks the ranges; answers the bytes that are to be shared, 0 if
    /// there is nothing to do. `btrfs_remap_file_range_prep`.
    async fn prepare(
        &self,
        (source, from): (&Rc<Inode>, u64),
        (target, to): (&Rc<Inode>, u64),
        len: u64,
        how: Share,
    ) -> FsResult<u64> {
        if source.has_sums() != target.has_sums() {
            return Err(FsError::Invalid("a clone between files with and without checksums"));
        }
        let block_of = |at: u64| at / BLOCK * BLOCK;
        let written = match len {
            // Of a range that begins behind the end it is a number below 0.
            0 if how != Share::Dedupe => block_end(source.size()).wrapping_sub(block_of(from)),
            len => block_end(len),
        };
        // All of the source: what is written in place is in place before its extent is shared.
        self.start_flush(source).await;
        for (inode, at) in [(source, block_of(from)), (target, block_of(to))] {
            // `btrfs_wait_ordered_range`, which takes a range that wraps for one without an end.
            let end = match at.checked_add(written) {
                Some(0) | None => u64::MAX,
                Some(end) => end,
            };
            self.write_ordered(inode, at, end).await?;
        }
        let len = match len {
            0 if how == Share::Dedupe || from == source.size() => return Ok(0),
            0 if from > source.size() => {
                return Err(FsError::Invalid("a clone from behind the end of the source"));
            }
            0 => source.size() - from,
            len => len,
        };
        let len = self.check_ranges((source, from), (target, to), len, how)?;
        if len == 0 {
            return Ok(0);
        }
        for inode in [source, target] {
            while inode.dio.get() > 0 {
                inode.dio_done.wait().await;
            }
        }
        self.write_ordered(source, from, from + len).await?;
        self.write_ordered(target, to, to + len).await?;
        if how == Share::Dedupe && !self.are_equal((source, from), (target, to), len).await? {
            return Err(FsError::Differs);
        }
        // A part of the last block is shared at the end of the target only
        // (`generic_remap_check_len`).
        let is_within = !len.is_multiple_of(BLOCK) && to + len < target.size();
        let len = match (is_within, how) {
            (false, _) => len,
            (true, Share::Clone) => {
                return Err(FsError::Invalid("a clone of a part of a block into a file"));
            }
            (true, Share::Copy | Share::Dedupe) => block_of(len),
        };
        if len > 0 && how != Share::Dedupe {
            self.modified(target).await?;
        }
        Ok(len)
    }

    /// Can these ranges be shared? Answers their length, which a copy and a dedupe may find
    /// shorter. `generic_remap_checks`.
    fn check_ranges(
        &self,
        (source, from): (&Inode, u64),
        (target, to): (&Inode, u64),
        asked: u64,
        how: Share,
    ) -> FsResult<u64> {
        if !from.is_multiple_of(BLOCK) || !to.is_multiple_of(BLOCK) {
            return Err(FsError::Invalid("a clone of ranges that begin within a block"));
        }
        let ends = from.checked_add(asked).zip(to.checked_add(asked));
        let Some((from_end, to_end)) = ends else {
            return Err(FsError::Invalid("a clone of ranges without an end"));
        };
        let (source_size, target_size) = (source.size(), target.size());
        let is_dedupe = how == Share::Dedupe;
        if is_dedupe && (from_end > source_size || to >= target_size || to_end > target_size) {
            return Err(FsError::Invalid("a dedupe behind the end of a file"));
        }
        if from >= source_size {
            return Err(FsError::Invalid("a clone from behind the end of the source"));
        }
        let most = i64::MAX.cast_unsigned();
        if to >= most {
            return Err(FsError::TooBig);
        }
        let mut len = asked.min(source_size - from).min(most - to);
        let covered = if from + len == source_size && (!is_dedupe || to + len == target_size) {
            block_end(source_size) - from
        } else {
            len = len / BLOCK * BLOCK;
            len
        };
        if source.handle == target.handle && to + covered > from && to < from + covered {
            return Err(FsError::Invalid("a clone of ranges of one file that overlap"));
        }
        if len != asked && how == Share::Clone {
            return Err(FsError::Invalid("a clone of a range that is not of whole blocks"));
        }
        Ok(len)
    }

    /// Have both ranges the same bytes? Waits: for the device, a page of each at a time.
    /// `vfs_dedupe_file_range_compare`.
    async fn are_equal(
        &self,
        (source, from): (&Rc<Inode>, u64),
        (target, to): (&Rc<Inode>, u64),
        len: u64,
    ) -> FsResult<bool> {
        let mut at = 0;
        while at < len {
            let a = self.block(source, (from + at) / BLOCK).await?;
            let b = self.block(target, (to + at) / BLOCK).await?;
            let n = crate::disk::index((len - at).min(BLOCK));
            if a.with(|a| b.with(|b| a.get(..n) != b.get(..n))) {
                return Ok(false);
            }
            at += BLOCK;
        }
        Ok(true)
    }

    /// In pieces, of which each is one range of the target. `btrfs_extent_same`.
    async fn dedupe(&self, all: &Ranges<'_>) -> FsResult<()> {
        let mut done = 0;
        while done < all.asked {
            let asked = (all.asked - done).min(DEDUPE_PIECE);
            let len = asked.next_multiple_of(BLOCK);
            let (from, to) = (all.from + done, all.to + done);
            let piece =
                Ranges { source: all.source, from, target: all.target, to, asked, len, ..*all };
            self.clone_extents(&piece).await?;
            done += asked;
        }
        Ok(())
    }

    /// Makes the target have the range, and drops what the cache has there. `btrfs_clone_files`.
    async fn clone_files(&self, r: &Ranges<'_>) -> FsResult<()> {
        let size = r.target.size();
        if r.to > size {
            self.expand(r.target, size, r.to).await?;
            // The block at the old end may have been cut: its new extent has items before.
            self.write_ordered(r.target, size / BLOCK * BLOCK, r.to).await?;
        }
        let cloned = self.clone_extents(r).await;
        // A block that was filled from an inline extent has an extent of its own.
        let written = self.write_ordered(r.target, r.to, r.end()).await;
        self.drop_blocks(r.target, r.to / BLOCK, r.end() / BLOCK).await;
        cloned.and(written)
    }

    /// Extent by extent of the source, each in one step. `btrfs_clone`.
    async fn clone_extents(&self, r: &Ranges<'_>) -> FsResult<()> {
        let mut at = r.from;
        // The end of what the target has of the range.
        let mut done = r.to;
        while at < r.from + r.len {
            let found = self.with(|c| c.part_from(r.source.tree, r.source.ino, at));
            let found = self.settled(found).await?;
            let Some(part) = found.filter(|p| p.start < r.from + r.len) else { break };
            let to = r.place(part.start);
            let end = match part.item {
                Some(item) => self.clone_extent(r, &part, item, (done, to)).await?,
                None => self.clone_inline(r, &part, (done, to)).await?,
            };
            done = end.next_multiple_of(BLOCK);
            if end >= r.end() {
                return Ok(());
            }
            at = part.end.next_multiple_of(BLOCK);
        }
        if done < r.end() { self.clone_hole(r, done).await } else { Ok(()) }
    }

    /// Metadata for one step, which drops what the target has from `from` to `to`.
    async fn reserve_step(
        &self,
        r: &Ranges<'_>,
        from: u64,
        to: u64,
    ) -> FsResult<super::room::Promise> {
        let parts = self.with(|c| c.parts(r.target.tree, r.target.ino, from, to));
        let parts = wide(self.settled(parts).await?.len());
        self.reserve(4 + parts / DROPPED_PER_ITEM).await
    }

    /// An extent, or space allocated beforehand: another item that leads there. What the target has
    /// from `dropped` on goes: there was a hole before the extent. Answers where it ends in the
    /// target. `btrfs_replace_file_extents`, `btrfs_insert_replace_extent`.
    async fn clone_extent(
        &self,
        r: &Ranges<'_>,
        part: &FilePart,
        mut item: FileExtentItem,
        (dropped, to): (u64, u64),
    ) -> FsResult<u64> {
        let first = part.start.max(r.from);
        let bytes = part.end.min(r.from + r.len) - first;
        item.offset = (item.offset.get() + (first - part.start)).into();
        item.num_bytes = bytes.into();
        let end = to + bytes;
        let _p = self.reserve_step(r, dropped, end).await?;
        let (tree, target) = (r.target.tree, r.target);
        let done = self.must(|c| {
            let transid = c.transid_begun()?;
            let gone = c.drop_extents(tree, target.ino, dropped, end)?;
            // With NO_HOLES a hole has no item.
            if item.has_place() {
                c.insert_extent_item(tree, target.ino, to, &item, false)?;
            }
            target.add_bytes(if item.has_place() { bytes } else { 0 }, gone);
            target.need_full_sync();
            target.logged.last_reflink.set(transid);
            // Parts of one new extent: a log of both would have checksums twice.
            if item.head.generation.get() == transid && item.has_place() {
                r.source.logged.last_reflink.set(transid);
            }
            self.finish_step(c, r, end)
        });
        self.settled(done).await?;
        Ok(end)
    }

    /// All of a small file. Where the target has nothing else its item becomes the same; else the
    /// bytes go into a block of the cache. Answers where it ends in the target.
    /// `clone_copy_inline_extent`.
    async fn clone_inline(
        &self,
        r: &Ranges<'_>,
        part: &FilePart,
        (dropped, to): (u64, u64),
    ) -> FsResult<u64> {
        let (tree, target) = (r.target.tree, r.target);
        let key = |ino| Key::new(ino, kind::EXTENT_DATA, 0);
        let bytes = part.end - part.start;
        let (end, stop) = (to + bytes, to.saturating_add(bytes.next_multiple_of(BLOCK)));
        let found = self.with(|c| {
            let Some(item) = c.lookup(r.source.tree, key(r.source.ino))? else {
                return Err(FsError::NotFound);
            };
            let own = c.part_from(tree, target.ino, 0)?;
            Ok((item, own))
        });
        let (item, own) = self.settled(found).await?;
        let is_alone = match own {
            None => true,
            // Before it is a hole.
            Some(p) if p.start > 0 => false,
            Some(p) => p.is_inline(),
        };
        if to == 0 && is_alone && target.size() <= bytes {
            let _p = self.reserve_step(r, dropped, stop).await?;
            let done = self.must(|c| {
                let gone = c.drop_extents(tree, target.ino, dropped, stop)?;
                c.insert_item(tree, key(target.ino), &item)?;
                target.add_bytes(bytes, gone);
                target.need_full_sync();
                target.logged.last_reflink.set(c.transid());
                self.finish_step(c, r, stop)
            });
            self.settled(done).await?;
            return Ok(end);
        }
        let data = match FileExtent::load(key(r.source.ino), &item, 0)? {
            FileExtent::Inline(head, data) if head.compression == 0 => data.to_vec(),
            _ => return Err(FsError::Unsupported("btrfs: compressed extents".to_owned())),
        };
        let _p = self.reserve(1).await?;
        let change = || {
            self.must(|c| {
                target.logged.last_reflink.set(c.transid_begun()?);
                self.finish_step(c, r, stop)
            })
        };
        let done = self.fill_block(target, to / BLOCK, &data, change).await;
        self.settled(done).await?;
        Ok(end)
    }

    /// The range ends with a hole of the source: what the target has from `from` on goes.
    async fn clone_hole(&self, r: &Ranges<'_>, from: u64) -> FsResult<()> {
        let target = r.target;
        if from >= target.size() {
            // Behind the end no hole is noted, which the log may have to tell of.
            target.need_full_sync();
        }
        let _p = self.reserve_step(r, from, r.end()).await?;
        let done = self.must(|c| {
            let transid = c.transid_begun()?;
            let gone = c.drop_extents(target.tree, target.ino, from, r.end())?;
            target.add_bytes(0, gone);
            if from < block_end(target.size()) {
                self.note_modified(target, from, r.end(), transid);
            }
            self.finish_step(c, r, r.end())
        });
        self.settled(done).await
    }

    /// The target has the range up to `end`: its times and its length. `clone_finish_inode_update`.
    fn finish_step(&self, c: &mut Core<'static>, r: &Ranges<'_>, end: u64) -> FsResult<()> {
        let target = r.target;
        match r.touches {
            true => self.stamp(target, true),
            false => target.change(|_| {}),
        }
        // Not behind what was asked for, though the last block is shared as a whole.
        let end = end.min(r.to + r.asked);
        if end > target.size() {
            target.set_size(end);
            target.disk_size.set(end);
        }
        self.update_inode(c, target)
    }
}
