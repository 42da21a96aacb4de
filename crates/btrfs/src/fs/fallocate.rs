//! Space allocated beforehand, holes made.
//!
//! Source: fs/btrfs/file.c (`btrfs_fallocate`, `btrfs_zero_range`, `btrfs_punch_hole`), inode.c
//! (`__btrfs_prealloc_file_range`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_vfs::Reserve;

use crate::disk::file_extent::{FileExtentItem, extent_type};
use crate::disk::inode::flag;

use super::inode::Inode;
use super::{BLOCK, Btrfs};

/// Longest extent that is allocated at a time. `SZ_256M` in `__btrfs_prealloc_file_range`.
const PIECE: u64 = 256 << 20;

impl Btrfs {
    /// `btrfs_fallocate`. Waits: for direct I/O, what was written there, room.
    pub(super) async fn fallocate(
        &self,
        inode: &Rc<Inode>,
        how: Reserve,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        if len == 0 {
            return Err(FsError::Invalid("fallocate: no bytes"));
        }
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        if end > i64::MAX.cast_unsigned() {
            return Err(FsError::TooBig);
        }
        if !inode.is_file() {
            return Err(FsError::Invalid("fallocate: only of regular files"));
        }
        let _lock = self.lock_alone(inode).await;
        self.check_writable()?;
        match how {
            // `btrfs_fallocate`
            Reserve::Collapse | Reserve::Insert => Err(FsError::NotInKernel),
            Reserve::Punch => self.punch(inode, offset, end).await,
            Reserve::Space { keep_size } | Reserve::Zero { keep_size } => {
                let (from, to) = (offset / BLOCK * BLOCK, end.next_multiple_of(BLOCK));
                self.modified(inode).await?;
                let size = inode.size();
                if from > size {
                    self.expand(inode, size, from).await?;
                } else if end > size && !size.is_multiple_of(BLOCK) {
                    self.zero_part(inode, size, size.next_multiple_of(BLOCK)).await?;
                }
                self.write_ordered(inode, from, to).await?;
                if let Reserve::Zero { .. } = how {
                    return self.zero_range(inode, (offset, end), keep_size).await;
                }
                self.fill_holes(inode, from, to).await?;
                self.grow(inode, end, keep_size).await
            }
        }
    }

    /// New times, in the tree as well; within the tick of the last ones nothing is changed, and no
    /// transaction begins. `file_modified`, `inode_needs_update_time`.
    pub(super) async fn modified(&self, inode: &Rc<Inode>) -> FsResult<()> {
        let now = self.time();
        let is_new = {
            let item = inode.item.borrow();
            item.mtime != now || item.ctime != now
        };
        if !is_new {
            return Ok(());
        }
        let _p = self.reserve(1).await?;
        self.stamp(inode, true);
        let done = self.must(|c| self.update_inode(c, inode));
        self.settled(done).await
    }

    /// The file reaches up to `end`, if it is to. `btrfs_fallocate_update_isize`.
    async fn grow(&self, inode: &Rc<Inode>, end: u64, keep_size: bool) -> FsResult<()> {
        if keep_size || end <= inode.size() {
            return Ok(());
        }
        let _p = self.reserve(1).await?;
        self.stamp(inode, false);
        inode.set_size(end);
        inode.disk_size.set(end);
        let done = self.must(|c| self.update_inode(c, inode));
        self.settled(done).await
    }

    /// Gives space to holes of `from..to`, and to those behind the end.
    async fn fill_holes(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let parts = self.with(|c| c.parts(inode.tree, inode.ino, from, to));
        let parts = self.settled(parts).await?;
        let mut holes = Vec::new();
        let mut at = from;
        for p in parts {
            if p.start > at {
                holes.push((at, p.start));
            }
            // A hole may have an item, in an image of an old kernel.
            if p.item.is_some_and(|i| !i.has_place()) {
                holes.push((p.start.max(from), p.end.min(to)));
            }
            at = at.max(p.end.next_multiple_of(BLOCK));
        }
        if at < to {
            holes.push((at, to));
        }
        let bytes: u64 = holes.iter().map(|(a, b)| b - a).sum();
        if bytes == 0 {
            return Ok(());
        }
        self.reserve_data(bytes).await?;
        let mut left = bytes;
        let mut out = Ok(());
        for (from, to) in holes {
            let mut at = from;
            while at < to && out.is_ok() {
                match self.prealloc_piece(inode, at, (to - at).min(PIECE)).await {
                    Ok(n) => (at, left) = (at + n, left.saturating_sub(n)),
                    Err(e) => out = Err(e),
                }
            }
        }
        self.unreserve_data(left);
        out
    }

    /// Allocates an extent at `at`, of up to `bytes`. Answers how many it got. The promise of data
    /// is used. `__btrfs_prealloc_file_range`.
    async fn prealloc_piece(&self, inode: &Rc<Inode>, at: u64, bytes: u64) -> FsResult<u64> {
        let _p = self.reserve(4).await?;
        let hint = self.with(|c| self.hint(c, inode, at))?;
        let (address, n) = self.with(|c| c.alloc_data(bytes, BLOCK, hint))?;
        self.unreserve_data(n);
        let done = self.must(|c| {
            let transid = c.transid_begun()?;
            let dropped = c.drop_extents(inode.tree, inode.ino, at, at + n)?;
            let kind = extent_type::PREALLOC;
            let item = FileExtentItem::new(kind, transid, (address, n), 0, n);
            c.insert_extent_item(inode.tree, inode.ino, at, &item, true)?;
            inode.add_bytes(n, dropped);
            inode.change(|i| i.flags = (i.flags.get() | flag::PREALLOC).into());
            self.stamp(inode, false);
            self.note_modified(inode, at, at + n, transid);
            self.update_inode(c, inode)
        });
        self.settled(done.map(|()| n)).await
    }

    /// Takes the space of `from..to` away. `btrfs_punch_hole`.
    async fn punch(&self, inode: &Rc<Inode>, mut from: u64, to: u64) -> FsResult<()> {
        self.write_ordered(inode, from, to).await?;
        let was = from;
        from = self.behind_hole(inode, from).await?;
        if from >= to {
            return Ok(());
        }
        self.modified(inode).await?;
        let end = inode.size().next_multiple_of(BLOCK);
        let (mut a, b) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
        if from / BLOCK == (to - 1) / BLOCK && to - from < BLOCK {
            if from < end {
                self.zero_part(inode, from, to).await?;
                return self.zeroed(inode).await;
            }
            return Ok(());
        }
        if from < end && from < a {
            self.zero_part(inode, from, a).await?;
        }
        if from == was {
            a = self.behind_hole(inode, a).await?;
            if a >= to {
                return if from < end { self.zeroed(inode).await } else { Ok(()) };
            }
        }
        let mut has_zeroed = from < end;
        if b < to && to < end && self.behind_hole(inode, b).await? == b {
            self.zero_part(inode, b, to).await?;
            has_zeroed = true;
        }
        if a < b {
            return self.drop_range(inode, a, b).await;
        }
        if has_zeroed { self.zeroed(inode).await } else { Ok(()) }
    }

    /// A hole that took parts of blocks only: an fsync has to see that the inode has changed.
    /// `truncated_block` of `btrfs_punch_hole`.
    async fn zeroed(&self, inode: &Rc<Inode>) -> FsResult<()> {
        self.stamp(inode, true);
        let _p = self.reserve(1).await?;
        let done = self.must(|c| self.update_inode(c, inode));
        self.settled(done).await
    }

    /// `at`, or where the hole ends that it lies in. `find_first_non_hole`.
    async fn behind_hole(&self, inode: &Rc<Inode>, at: u64) -> FsResult<u64> {
        let found = self.with(|c| {
            let mut block = at / BLOCK * BLOCK;
            while let Some(p) = c.part_from(inode.tree, inode.ino, block)? {
                if p.start > block {
                    return Ok(p.start);
                }
                // A hole may have an item, in an image of an old kernel.
                if p.is_inline() || p.has_place() {
                    return Ok(at.max(block));
                }
                block = p.end;
            }
            Ok(u64::MAX)
        });
        self.settled(found).await
    }

    /// What the block of byte `at` is: `None` for a hole, else whether bytes were written there and
    /// where what it lies in ends.
    async fn block_kind(&self, inode: &Rc<Inode>, at: u64) -> FsResult<Option<(bool, u64)>> {
        let start = at / BLOCK * BLOCK;
        let found = self.with(|c| c.part_from(inode.tree, inode.ino, start));
        let part = self.settled(found).await?.filter(|p| p.start <= start);
        Ok(part.and_then(|p| match (p.is_inline(), p.has_place()) {
            (true, _) => Some((true, p.end)),
            (false, true) => Some((!p.is_prealloc(), p.end)),
            (false, false) => None,
        }))
    }

    /// Drops whole blocks. `btrfs_replace_file_extents`.
    async fn drop_range(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        if from >= to {
            return Ok(());
        }
        self.write_ordered(inode, from, to).await?;
        self.drop_blocks(inode, from / BLOCK, to / BLOCK).await;
        let end = inode.size().next_multiple_of(BLOCK);
        let mut at = from;
        while at < to {
            let _p = self.reserve_removal(3).await?;
            // A few extents at a time.
            let stop = self.with(|c| {
                let mut stop = at;
                for _ in 0..16 {
                    match c.part_from(inode.tree, inode.ino, stop)? {
                        Some(p) if p.start < to => stop = p.end.max(stop + 1),
                        _ => return Ok(to),
                    }
                }
                Ok(stop.next_multiple_of(BLOCK).min(to))
            });
            let stop = self.settled(stop).await?;
            let done = self.must(|c| {
                let dropped = c.drop_extents(inode.tree, inode.ino, at, stop)?;
                inode.add_bytes(0, dropped);
                self.stamp(inode, true);
                // The hole is for the next fsync to log (`fill_holes`), without all the others.
                if at < end {
                    let transid = c.transid_begun()?;
                    self.note_modified(inode, at, stop.min(end), transid);
                }
                self.update_inode(c, inode)
            });
            self.settled(done).await?;
            at = stop;
        }
        Ok(())
    }

    /// Makes `from..to` read as zeroes, with space. `btrfs_zero_range`.
    async fn zero_range(
        &self,
        inode: &Rc<Inode>,
        (mut from, to): (u64, u64),
        keep_size: bool,
    ) -> FsResult<()> {
        // What is allocated already at the beginning stays.
        while let Some((false, end)) = self.block_kind(inode, from).await? {
            if end >= to {
                return self.grow(inode, to, keep_size).await;
            }
            from = end;
        }
        let (mut low, mut high) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
        if from / BLOCK == (to - 1) / BLOCK {
            low = from / BLOCK * BLOCK;
            high = low + BLOCK;
            if to - from < BLOCK && self.block_kind(inode, from).await?.is_some() {
                self.zero_part(inode, from, to).await?;
                return self.grow(inode, to, keep_size).await;
            }
        } else {
            if !from.is_multiple_of(BLOCK) {
                match self.block_kind(inode, from).await? {
                    None => low = from / BLOCK * BLOCK,
                    Some((true, _)) => self.zero_part(inode, from, low).await?,
                    Some((false, _)) => {}
                }
            }
            if !to.is_multiple_of(BLOCK) {
                match self.block_kind(inode, to).await? {
                    None => high = to.next_multiple_of(BLOCK),
                    Some((true, _)) => self.zero_part(inode, high, to).await?,
                    Some((false, _)) => {}
                }
            }
        }
        if low < high {
            self.drop_range(inode, low, high).await?;
            self.fill_holes(inode, low, high).await?;
        }
        self.grow(inode, to, keep_size).await
    }
}
