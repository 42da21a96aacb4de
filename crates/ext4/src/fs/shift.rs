//! Ranges taken out of a file and put into it: what is behind them moves.
//!
//! Picture:    data behind the range are written and dropped from the cache -> extents of the range
//!             go -> each leaf's extents get other logical blocks, from the left for a collapse and
//!             from the right for an insertion.
//! Invariants: the caller holds the inode's `lock`, and no direct I/O is under way.
//! Source:     Linux `ext4_collapse_range`, `ext4_insert_range`, `ext4_ext_shift_extents`
//!             (`fs/ext4/extents.c`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_jbd2::Handle;
use wp_medium::PAGE_BYTES;

use super::extents::{Node, joins};
use super::fast_commit::Ineligible;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::Extent;

/// Credits of one leaf that is shifted, with the nodes above it.
const CREDITS_LEAF: u32 = 8;
/// Credits of the handle that they are taken from (`ext4_writepage_trans_blocks`).
const CREDITS_SHIFT: u32 = 48;
/// Nodes that it may free.
const REVOKES_SHIFT: u32 = 8;

/// Which way extents move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Left,
    Right,
}

impl Ext4 {
    /// Takes bytes `offset..end` out (`FALLOC_FL_COLLAPSE_RANGE`). Errors: `Invalid` for a range
    /// that is not of whole blocks (clusters with bigalloc), or that reaches the end of the file.
    pub(super) async fn collapse(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        self.check_whole(offset, end)?;
        if end >= inode.size.get() {
            return Err(FsError::Invalid("a range to collapse ends before the file does"));
        }
        let bs = u64::from(self.bs().bytes());
        let (first, last) = (offset / bs, end / bs);
        // What goes is not written.
        self.before_shift(inode, offset, &[(page_of(offset), offset), (end, u64::MAX)]).await?;
        let mut h = self.start_revoking(CREDITS_SHIFT, self.revokes(REVOKES_SHIFT)).await?;
        self.fast_ineligible(&h, Ineligible::FallocateRange);
        {
            let _map = inode.map_lock.lock().await;
            self.discard_prealloc(inode);
            let mut at = first;
            while at < last {
                h = self.room_for_leaf(h, CREDITS_SHIFT).await?;
                at = self.remove_step(&h, inode, at, last).await?;
            }
            h = self.shift(h, inode, last, last - first, Way::Left).await?;
        }
        let size = inode.size.get() - (end - offset);
        inode.size.set(size);
        inode.disksize.set(size);
        self.end_shift(h, inode).await
    }

    /// Puts a hole in at `offset`, up to `end` (`FALLOC_FL_INSERT_RANGE`). Errors: `Invalid` for a
    /// range that is not of whole blocks, or that begins behind the file; `TooBig`.
    pub(super) async fn insert_hole(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        self.check_whole(offset, end)?;
        if offset >= inode.size.get() {
            return Err(FsError::Invalid("a range is inserted before the end of the file"));
        }
        let bs = u64::from(self.bs().bytes());
        let size = inode.size.get().checked_add(end - offset).ok_or(FsError::TooBig)?;
        if size > self.size_limit(inode) {
            return Err(FsError::TooBig);
        }
        let last = self.path(inode, u32::MAX - 1).await?.pop();
        let last = last.and_then(|leaf| leaf.leaf.last().map(Extent::end)).unwrap_or(0);
        if last + (end - offset) / bs >= u64::from(u32::MAX) {
            return Err(FsError::Invalid("extents would move beyond the last block of a file"));
        }
        self.before_shift(inode, offset, &[(page_of(offset), u64::MAX)]).await?;
        let h = self.start_revoking(CREDITS_SHIFT, self.revokes(REVOKES_SHIFT)).await?;
        self.fast_ineligible(&h, Ineligible::FallocateRange);
        // Longer first: should the move be cut short, nothing is behind the end.
        inode.size.set(size);
        inode.disksize.set(inode.disksize.get() + (end - offset));
        let now = self.time();
        inode.set_mtime(now);
        inode.set_ctime(now);
        self.write_inode(&h, inode).await?;
        let h = {
            let _map = inode.map_lock.lock().await;
            self.discard_prealloc(inode);
            self.split_at(&h, inode, offset / bs).await?;
            self.shift(h, inode, offset / bs, (end - offset) / bs, Way::Right).await?
        };
        self.note_shift(&h, inode);
        self.sync_with(&h, inode);
        self.stop(h, Ok(())).await
    }

    /// fdatasync waits for it, in kernels that count holes.
    fn note_shift(&self, h: &Handle, inode: &Inode) {
        if self.opts.era.holes_count_for_fdatasync() {
            inode.datasync_tid.set(h.tid());
        }
    }

    fn check_whole(&self, offset: u64, end: u64) -> FsResult<()> {
        match (offset | end).is_multiple_of(u64::from(self.geo.cluster_bytes())) {
            true => Ok(()),
            false => Err(FsError::Invalid("a range that moves others is of whole clusters")),
        }
    }

    /// New times; what is dirty of some bytes is written, and all from the page of `offset` on
    /// leaves the cache.
    async fn before_shift(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        writes: &[(u64, u64)],
    ) -> FsResult<()> {
        if self.journals_data(inode) && !self.opts.era.journalled_data_home() {
            // What was logged is written in place only once it has committed.
            self.journal().force_commit().await?;
        }
        self.update_time(inode).await?;
        let bs = u64::from(self.bs().bytes());
        let size = inode.size.get().max(offset + 1);
        for (from, to) in writes {
            // Bytes of the last page, both ends included (`filemap_write_and_wait_range`).
            let to = (*to).min(size);
            if *from <= to {
                self.write_range(inode, *from, to + 1).await?;
            }
        }
        self.drop_blocks_in(inode, page_of(offset) / bs, size.div_ceil(bs) + 1).await;
        Ok(())
    }

    /// What ends a collapse: times, the inode, and the transaction that fdatasync waits for.
    async fn end_shift(self: &Rc<Self>, h: Handle, inode: &Rc<Inode>) -> FsResult<()> {
        let now = self.time();
        inode.set_mtime(now);
        inode.set_ctime(now);
        let out = self.write_inode(&h, inode).await;
        self.note_shift(&h, inode);
        self.sync_with(&h, inode);
        self.stop(h, out).await
    }

    /// The handle with room for `credits` more, or one of the next transaction
    /// (`ext4_datasem_ensure_credits`).
    async fn room_for_leaf(self: &Rc<Self>, h: Handle, credits: u32) -> FsResult<Handle> {
        if h.extend_with(credits, REVOKES_SHIFT) {
            return Ok(h);
        }
        self.stop(h, Ok(())).await?;
        self.start_revoking(credits.max(CREDITS_SHIFT), self.revokes(REVOKES_SHIFT)).await
    }

    /// Moves every extent from block `from` on by `by` blocks, leaf by leaf, and makes one of
    /// neighbours in a leaf that continue each other. The caller holds `map_lock`.
    async fn shift(
        self: &Rc<Self>,
        mut h: Handle,
        inode: &Rc<Inode>,
        from: u64,
        by: u64,
        way: Way,
    ) -> FsResult<Handle> {
        let narrow = |n: u64| u32::try_from(n).map_err(|_| FsError::TooBig);
        let (from, by) = (narrow(from)?, narrow(by)?);
        // The leaf by a block that leads to it.
        let mut at = Some(match way {
            Way::Left => from,
            Way::Right => u32::MAX - 1,
        });
        while let Some(leads) = at {
            h = self.room_for_leaf(h, CREDITS_LEAF).await?;
            let mut path = self.path(inode, leads).await?;
            at = match way {
                Way::Left => next_leaf(&path),
                Way::Right => leaf_before(&path, from),
            };
            let leaf = path.last_mut().expect("a path has a leaf");
            if shift_leaf(&mut leaf.leaf, from, by, way) {
                self.store_and_fix(&h, inode, &mut path).await?;
            }
        }
        inode.blocks_met.borrow_mut().clear();
        Ok(h)
    }
}

/// Where the page of a byte begins.
fn page_of(byte: u64) -> u64 {
    byte / PAGE_BYTES as u64 * PAGE_BYTES as u64
}

/// A block that leads to the next leaf.
fn next_leaf(path: &[Node]) -> Option<u32> {
    let above = path.iter().rev().skip(1);
    above.filter_map(|n| n.inner.get(n.pos + 1)).map(|i| i.logical()).next()
}

/// A block that leads to the leaf before this one, if that may have extents from `from` on.
fn leaf_before(path: &[Node], from: u32) -> Option<u32> {
    let mut above = path.iter().rev().skip(1);
    let first = above.find(|n| n.pos > 0).and_then(|n| n.inner.get(n.pos)).map(|i| i.logical())?;
    // All of the leaf before lies below its first block.
    (first > from).then(|| first - 1)
}

/// Did anything move?
fn shift_leaf(leaf: &mut Vec<Extent>, from: u32, by: u32, way: Way) -> bool {
    let first = leaf.partition_point(|e| e.logical() < from);
    if first == leaf.len() {
        return false;
    }
    for e in &mut leaf[first..] {
        let to = match way {
            Way::Left => e.logical() - by,
            Way::Right => e.logical() + by,
        };
        *e = Extent::new(to, e.start(), e.blocks(), e.is_unwritten());
    }
    let mut i = match way {
        Way::Left => first.max(1),
        Way::Right => first + 1,
    };
    while i < leaf.len() {
        let (a, b) = (leaf[i - 1], leaf[i]);
        if joins(&a, &b) {
            let both = a.blocks() + b.blocks();
            leaf[i - 1] = Extent::new(a.logical(), a.start(), both, a.is_unwritten());
            leaf.remove(i);
        } else {
            i += 1;
        }
    }
    true
}
