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
            Reserve::Collapse | Reserve::Insert => {
                let what = "fallocate: collapse and insert, on btrfs";
                Err(FsError::Unsupported(what.to_owned()))
            }
            Reserve::Punch => self.punch(inode, offset, end).await,
            Reserve::Space { keep_size } => {
                let size = inode.size();
                if end > size {
                    self.expand(inode, size, offset).await?;
                }
                let (from, to) = (offset / BLOCK * BLOCK, end.next_multiple_of(BLOCK));
                if offset > size {
                    // A hole may stay between; nothing is written for it.
                    self.write_ordered(inode, size / BLOCK * BLOCK, from).await?;
                }
                self.write_ordered(inode, from, to).await?;
                self.fill_holes(inode, from, to).await?;
                self.grow(inode, end, keep_size).await
            }
            Reserve::Zero { keep_size } => self.zero_range(inode, (offset, end), keep_size).await,
        }
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
        let parts = self.with(|c| c.parts(self.tree, inode.ino, from, to));
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
            let dropped = c.drop_extents(self.tree, inode.ino, at, at + n)?;
            let kind = extent_type::PREALLOC;
            let item = FileExtentItem::new(kind, transid, (address, n), 0, n);
            c.insert_extent_item(self.tree, inode.ino, at, &item, true)?;
            inode.add_bytes(n, dropped);
            inode.change(|i| i.flags = (i.flags.get() | flag::PREALLOC).into());
            self.stamp(inode, false);
            self.note_modified(inode, at, at + n, transid);
            self.update_inode(c, inode)
        });
        self.settled(done.map(|()| n)).await
    }

    /// Takes the space of `from..to` away. `btrfs_punch_hole`.
    async fn punch(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        self.write_ordered(inode, from / BLOCK * BLOCK, to.next_multiple_of(BLOCK)).await?;
        let size = inode.size();
        if from >= size {
            return self.drop_range(inode, from.next_multiple_of(BLOCK), to / BLOCK * BLOCK).await;
        }
        self.stamp(inode, true);
        self.zero_edges(inode, from, to).await?;
        let (a, b) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
        if a < b {
            self.drop_range(inode, a, b).await?;
        }
        let _p = self.reserve(1).await?;
        let done = self.must(|c| self.update_inode(c, inode));
        self.settled(done).await
    }

    /// Zeroes the parts of blocks at both ends of `from..to`, as far as the file reaches and there
    /// is something.
    async fn zero_edges(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let to = to.min(inode.size().next_multiple_of(BLOCK));
        let first_end = from.next_multiple_of(BLOCK).min(to);
        if from < first_end && self.is_used(inode, from).await? {
            self.zero_part(inode, from, first_end).await?;
        }
        let last_start = to / BLOCK * BLOCK;
        if last_start >= first_end && last_start < to && self.is_used(inode, last_start).await? {
            self.zero_part(inode, last_start, to).await?;
        }
        Ok(())
    }

    /// Are there bytes in the block of byte `at`, rather than a hole or what is not written?
    async fn is_used(&self, inode: &Rc<Inode>, at: u64) -> FsResult<bool> {
        let start = at / BLOCK * BLOCK;
        if inode.map.peek(start / BLOCK).is_some_and(|b| b.flag(wp_cache::BufFlag::Dirty)) {
            return Ok(true);
        }
        self.wait_ordered(inode, start, start + BLOCK).await;
        let parts = self.with(|c| c.parts(self.tree, inode.ino, start, start + BLOCK));
        let parts = self.settled(parts).await?;
        Ok(parts.iter().any(|p| p.is_inline() || p.has_place() && !p.is_prealloc()))
    }

    /// Drops whole blocks. `btrfs_replace_file_extents`.
    async fn drop_range(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        if from >= to {
            return Ok(());
        }
        self.write_ordered(inode, from, to).await?;
        self.drop_blocks(inode, from / BLOCK, to / BLOCK).await;
        inode.logged.full_sync.set(true);
        let mut at = from;
        while at < to {
            let _p = self.reserve_removal(3).await?;
            // A few extents at a time.
            let stop = self.with(|c| {
                let mut stop = at;
                for _ in 0..16 {
                    match c.part_from(self.tree, inode.ino, stop)? {
                        Some(p) if p.start < to => stop = p.end.max(stop + 1),
                        _ => return Ok(to),
                    }
                }
                Ok(stop.next_multiple_of(BLOCK).min(to))
            });
            let stop = self.settled(stop).await?;
            let done = self.must(|c| {
                let dropped = c.drop_extents(self.tree, inode.ino, at, stop)?;
                inode.add_bytes(0, dropped);
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
        (from, to): (u64, u64),
        keep_size: bool,
    ) -> FsResult<()> {
        let size = inode.size();
        if to > size {
            self.expand(inode, size, from).await?;
        }
        let (low, high) = (from / BLOCK * BLOCK, to.next_multiple_of(BLOCK));
        self.write_ordered(inode, size.min(low) / BLOCK * BLOCK, high).await?;
        self.stamp(inode, true);
        self.zero_edges(inode, from, to).await?;
        let (a, b) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
        if a < b {
            self.drop_range(inode, a, b).await?;
        }
        // Edges that are written get their places before holes are filled.
        self.write_ordered(inode, low, high).await?;
        self.fill_holes(inode, low, high).await?;
        let _p = self.reserve(1).await?;
        let done = self.must(|c| self.update_inode(c, inode));
        self.settled(done).await?;
        drop(_p);
        self.grow(inode, to, keep_size).await
    }
}
