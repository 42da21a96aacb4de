//! Buffered writes.
//!
//! Source: fs/btrfs/file.c (`btrfs_buffered_write`, `btrfs_write_check`), inode.c
//! (`btrfs_cont_expand`, `btrfs_truncate_block`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_medium::{Pieces, Slice};
use wp_rt::CpuOp;

use crate::disk::index;

use super::inode::{IN_PLACE, Inode};
use super::{BLOCK, Btrfs};

/// Blocks that a write prepares at a time: as many pages as pointers to them fit in one.
const CHUNK: u64 = 512 * BLOCK;

/// What a piece of a write has been promised.
struct Promised {
    /// Bytes of data that are promised and not used yet.
    data: u64,
    /// Is it written in place, without a promise of data?
    in_place: bool,
}

impl Btrfs {
    /// Writes at `offset`. The caller has the inode's lock. Returns the bytes written: fewer than
    /// asked if space ran out after some. Errors: `NoSpace`, `TooBig`, `ReadOnly`, `Io`.
    pub(super) async fn write_data(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        data: &[Slice],
    ) -> FsResult<u64> {
        self.check_writable()?;
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        if end > i64::MAX.cast_unsigned() {
            return Err(FsError::TooBig);
        }
        if len == 0 {
            return Ok(0);
        }
        self.start_write(inode, offset, end).await?;
        let mut pieces = Pieces::new(data);
        let mut at = offset;
        let mut failed = None;
        while at < end && failed.is_none() {
            let to = end.min((at / BLOCK * BLOCK).saturating_add(CHUNK));
            let done = self.write_chunk(inode, at, to, &mut pieces).await;
            at = done.0;
            failed = done.1;
            self.wb.balance_dirty().await;
        }
        match failed {
            Some(e) if at == offset => Err(e),
            _ => Ok(at - offset),
        }
    }

    /// New times; a write behind the end makes the file longer first. `btrfs_write_check`.
    pub(super) async fn start_write(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        self.stamp(inode, true);
        let size = inode.size();
        if offset > size {
            self.expand(inode, size, end.next_multiple_of(BLOCK)).await?;
        }
        Ok(())
    }

    /// What is behind a file's end in its last block becomes zero, and the blocks from there up to
    /// `to` are noted as changed: with NO_HOLES a hole has no item in the file's tree, yet a log
    /// has to tell replay that what the last commit had there is gone. `btrfs_cont_expand`.
    pub(super) async fn expand(&self, inode: &Rc<Inode>, size: u64, to: u64) -> FsResult<()> {
        let start = size.next_multiple_of(BLOCK);
        if size < start {
            self.zero_part(inode, size, start).await?;
            if self.opts.mend.cut {
                self.write_ordered(inode, size, start).await?;
            }
        }
        let end = to.next_multiple_of(BLOCK);
        if start < end {
            // Without a running transaction the last commit has the hole already.
            let transid = self.with(|c| Ok(c.transid()))?;
            self.note_modified(inode, start, end, transid);
        }
        Ok(())
    }

    /// Makes bytes `from..to` of one block zero, as a write. `btrfs_truncate_block`.
    pub(super) async fn zero_part(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let promised = self.promise(inode, from, to).await?;
        let start = from / BLOCK * BLOCK;
        let done = async {
            loop {
                self.wait_ordered(inode, start, start + BLOCK).await;
                let b = self.block(inode, start / BLOCK).await?;
                b.wait_clear(BufFlag::Writeback).await;
                if self.ordered_at(inode, start).is_none() && b.flag(BufFlag::Uptodate) {
                    return Ok(b);
                }
            }
        };
        let mut promised = promised;
        let out = match done.await {
            Ok(b) => {
                b.with_mut(|bytes| {
                    let range = index(from - start)..index(to - start);
                    if let Some(part) = bytes.get_mut(range) {
                        part.fill(0);
                    }
                });
                self.make_dirty(inode, &b, &mut promised);
                Ok(())
            }
            Err(e) => Err(e),
        };
        self.give_back(inode, &promised);
        out
    }

    /// Promises room for a write of `from..to`. Waits: for room.
    async fn promise(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<Promised> {
        let bytes = to.next_multiple_of(BLOCK) - from / BLOCK * BLOCK;
        let mut in_place = false;
        match self.reserve_data(bytes).await {
            Ok(()) => {}
            Err(FsError::NoSpace) if self.stays_in_place(inode, from, to).await? => {
                in_place = true;
            }
            Err(e) => return Err(e),
        }
        let needed = {
            let runs = inode.delalloc.borrow();
            let extents = crate::disk::wide(runs.len()) + 1;
            self.items_for(extents, runs.bytes() + bytes)
        };
        // What others of this inode have been promised meanwhile is not counted twice.
        let more = needed.saturating_sub(inode.items_held.get());
        match self.reserve(more).await {
            Ok(p) => inode.items_held.set(inode.items_held.get() + p.keep()),
            Err(e) => {
                self.unreserve_data(if in_place { 0 } else { bytes });
                return Err(e);
            }
        }
        Ok(Promised { data: if in_place { 0 } else { bytes }, in_place })
    }

    fn give_back(&self, inode: &Inode, promised: &Promised) {
        self.unreserve_data(promised.data);
        self.give_spare(inode);
    }

    /// Would all of `from..to` be written in place? `btrfs_check_nocow_lock`.
    async fn stays_in_place(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<bool> {
        use crate::disk::inode::flag;
        if !inode.has(flag::NODATACOW | flag::PREALLOC) {
            return Ok(false);
        }
        let (from, to) = (from / BLOCK * BLOCK, to.next_multiple_of(BLOCK));
        self.wait_ordered(inode, from, to).await;
        let found = self.with(|c| {
            let mut at = from;
            for part in c.parts(inode.tree, inode.ino, from, to)? {
                if part.start > at || !self.is_written_in_place(c, inode, &part, (from, to))? {
                    return Ok(false);
                }
                at = part.end;
            }
            Ok(at >= to)
        });
        self.settled(found).await
    }

    async fn write_chunk(
        &self,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        pieces: &mut Pieces<'_>,
    ) -> (u64, Option<FsError>) {
        let mut promised = match self.promise(inode, from, to).await {
            Ok(p) => p,
            Err(e) => return (from, Some(e)),
        };
        let mut at = from;
        let mut failed = None;
        while at < to {
            let n = (BLOCK - at % BLOCK).min(to - at);
            let chunk = pieces.take_one(u32::try_from(n).unwrap_or(0));
            match self.write_block_data(inode, at, &chunk, &mut promised).await {
                Ok(()) => at += n,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        self.give_back(inode, &promised);
        (at, failed)
    }

    async fn write_block_data(
        &self,
        inode: &Rc<Inode>,
        at: u64,
        chunk: &Slice,
        promised: &mut Promised,
    ) -> FsResult<()> {
        let start = at / BLOCK * BLOCK;
        let n = u64::from(chunk.len());
        self.rt.cpu(CpuOp::PageWrite, 1).await;
        let b = loop {
            let b = if n == BLOCK {
                let b = inode.map.get(start / BLOCK);
                b.wait_clear(BufFlag::Reading).await;
                b
            } else {
                self.block(inode, start / BLOCK).await?
            };
            b.wait_clear(BufFlag::Writeback).await;
            // What is on its way there arrives first (`lock_and_cleanup_extent_if_need`).
            if self.ordered_at(inode, start).is_some() {
                self.wait_ordered(inode, start, start + BLOCK).await;
                continue;
            }
            let is_ours = inode.map.peek(start / BLOCK).is_some_and(|now| Rc::ptr_eq(&now, &b));
            if is_ours && !b.flag(BufFlag::Reading) && !b.flag(BufFlag::Writeback) {
                break b;
            }
        };
        if self.has_failed.get() {
            return Err(FsError::ReadOnly);
        }
        b.put(u32::try_from(at - start).unwrap_or(0), chunk);
        b.set(BufFlag::Uptodate);
        self.make_dirty(inode, &b, promised);
        if at + n > inode.size() {
            inode.set_size(at + n);
        }
        Ok(())
    }

    /// Puts bytes into block `i` of a file, and zeroes behind them, as a write that does not change
    /// the length; `change` follows without a wait in between. The caller has the inode's lock.
    /// `copy_inline_to_page`.
    pub(super) async fn fill_block(
        &self,
        inode: &Rc<Inode>,
        i: u64,
        data: &[u8],
        change: impl FnOnce() -> FsResult<()>,
    ) -> FsResult<()> {
        let mut promised = self.promise(inode, i * BLOCK, (i + 1) * BLOCK).await?;
        let b = inode.map.get(i);
        b.wait_clear(BufFlag::Reading).await;
        b.wait_clear(BufFlag::Writeback).await;
        b.with_mut(|bytes| {
            bytes.fill(0);
            bytes.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        });
        b.set(BufFlag::Uptodate);
        self.make_dirty(inode, &b, &mut promised);
        let done = change();
        self.give_back(inode, &promised);
        done
    }

    /// A block was written, and has no place yet. `btrfs_dirty_folio`.
    fn make_dirty(&self, inode: &Inode, b: &Rc<Buffer>, promised: &mut Promised) {
        if !b.flag(BufFlag::Delay) {
            b.set(BufFlag::Delay);
            if promised.in_place {
                b.set(IN_PLACE);
            } else {
                promised.data = promised.data.saturating_sub(BLOCK);
            }
            let mut runs = inode.delalloc.borrow_mut();
            runs.cut(b.block() * BLOCK, BLOCK);
            // There was none, so it cannot be there twice.
            let _ = runs.add(b.block() * BLOCK, BLOCK);
        }
        inode.map.mark_dirty(b);
    }
}
