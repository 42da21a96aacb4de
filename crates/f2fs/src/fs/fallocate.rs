//! `fallocate`: space, holes, zeroes, ranges taken out and put in.
//!
//! Source: Linux `fs/f2fs/file.c` (`f2fs_fallocate` and what it calls).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::Slice;
use wp_vfs::Reserve;

use super::data::BLOCK;
use super::dnode::{Dnode, Find, Found};
use super::inode::{Inode, fi};
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::addr;

impl F2fs {
    /// `f2fs_fallocate`. The caller has the inode's `lock`.
    ///
    /// Errors: `Invalid` for what is no regular file, and for ranges that are not whole blocks
    /// where they must be; `TooBig`; `NoSpace`; `Unsupported`.
    pub(super) async fn reserve_space(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        how: Reserve,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        self.check_writable()?;
        if !inode.is_file() {
            return Err(FsError::Invalid("fallocate: not a regular file"));
        }
        if len == 0 {
            return Err(FsError::Invalid("fallocate: no length"));
        }
        F2fs::check_not_atomic(inode)?;
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        if end > inode.shape().blocks_max() * BLOCK {
            return Err(FsError::TooBig);
        }
        self.update_time(inode);
        match how {
            Reserve::Punch if offset >= inode.size.get() => return Ok(()),
            Reserve::Punch => self.punch(inode, offset, end).await?,
            Reserve::Collapse => self.collapse(inode, offset, len).await?,
            Reserve::Insert => self.insert(inode, offset, len).await?,
            Reserve::Zero { keep_size } => self.zero_range(inode, offset, end, keep_size).await?,
            Reserve::Space { keep_size } => self.expand(inode, offset, end, keep_size).await?,
        }
        self.touch(inode);
        Ok(())
    }

    /// A longer file, or blocks beyond the end of one that keeps its length.
    fn end_at(&self, inode: &Rc<Inode>, to: u64, keep_size: bool) {
        if to <= inode.size.get() {
            return;
        }
        if keep_size {
            self.keep_size(inode);
        } else {
            self.set_size(inode, to);
        }
    }

    /// `expand_inode_data`.
    async fn expand(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
        keep_size: bool,
    ) -> FsResult<()> {
        self.convert_inline(inode).await?;
        self.zero_beyond_end(inode, end, true).await?;
        self.balance_fs(true).await;
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        // A call a node, so that what was reached is known if space runs out.
        let mut at = first;
        while at < last {
            let next = (at + 1018).min(last);
            match self.reserve_range(inode, at, next).await {
                Ok(()) => at = next,
                Err(e) => {
                    let done = self.reserved_from(inode, at, next).await?;
                    if done > first {
                        self.end_at(inode, (done * BLOCK).min(end), keep_size);
                    }
                    return Err(e);
                }
            }
        }
        self.end_at(inode, end, keep_size);
        Ok(())
    }

    /// The first block of `from..to` that has no space.
    async fn reserved_from(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> FsResult<u64> {
        let mut at = from;
        while at < to && self.address(inode, at).await? != addr::NULL {
            at += 1;
        }
        Ok(at)
    }

    /// Zeroes a part of a block, which gets space (`fill_zero`).
    pub(super) async fn fill_zero(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
        from: u64,
        to: u64,
    ) -> FsResult<()> {
        if from >= to {
            return Ok(());
        }
        self.balance_fs(true).await;
        let op = self.lock_op().await;
        let b = self.new_block(inode, index, false).await?;
        drop(op);
        self.wait_on_page_writeback(&b, Kind::Data, true).await;
        b.with_mut(|bytes| bytes[from as usize..to as usize].fill(0));
        self.dirty_data(inode, &b);
        Ok(())
    }

    /// `punch_hole`.
    async fn punch(self: &Rc<Self>, inode: &Rc<Inode>, offset: u64, end: u64) -> FsResult<()> {
        self.convert_inline(inode).await?;
        self.zero_beyond_end(inode, end, false).await?;
        let (mut first, last) = (offset / BLOCK, end / BLOCK);
        if first == last {
            return self.fill_zero(inode, first, offset % BLOCK, end % BLOCK).await;
        }
        if !offset.is_multiple_of(BLOCK) {
            self.fill_zero(inode, first, offset % BLOCK, BLOCK).await?;
            first += 1;
        }
        self.fill_zero(inode, last, 0, end % BLOCK).await?;
        if first < last {
            self.balance_fs(true).await;
            let _op = self.lock_op().await;
            let _tree = inode.map_lock.lock().await;
            self.drop_pages(inode, first, last).await;
            self.truncate_hole(inode, first, last).await?;
        }
        Ok(())
    }

    /// `f2fs_zero_range`.
    async fn zero_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
        keep_size: bool,
    ) -> FsResult<()> {
        self.convert_inline(inode).await?;
        self.write_back(inode, offset, end).await?;
        self.zero_beyond_end(inode, end, false).await?;
        let mut reached = inode.size.get();
        let out = self.zero_blocks(inode, offset, end, &mut reached).await;
        if !(keep_size && self.opts.old_zero_range) {
            self.end_at(inode, reached, keep_size);
        }
        out
    }

    async fn zero_blocks(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
        reached: &mut u64,
    ) -> FsResult<()> {
        let (mut at, last) = (offset / BLOCK, end / BLOCK);
        if at == last {
            self.fill_zero(inode, at, offset % BLOCK, end % BLOCK).await?;
            *reached = end.max(*reached);
            return Ok(());
        }
        if !offset.is_multiple_of(BLOCK) {
            self.fill_zero(inode, at, offset % BLOCK, BLOCK).await?;
            at += 1;
            *reached = (at * BLOCK).max(*reached);
        }
        while at < last {
            let op = self.lock_op().await;
            let tree = inode.map_lock.lock().await;
            self.drop_pages(inode, at, last).await;
            let Found::At(dn) = self.dnode(inode, at, Find::Alloc).await? else {
                return Err(FsError::Invalid("a block beside inline data"));
            };
            let n = (last - at).min(u64::from(dn.slots - dn.slot)) as u32;
            let zeroed = self.zero_slots(inode, &dn, dn.slot..dn.slot + n).await;
            drop((tree, op));
            self.balance_fs(true).await;
            at += zeroed?;
            *reached = (at * BLOCK).max(*reached);
            if at < last && zeroed_is_short(&dn, n, at, last) {
                return Err(FsError::NoSpace);
            }
        }
        if !end.is_multiple_of(BLOCK) {
            self.fill_zero(inode, last, 0, end % BLOCK).await?;
            *reached = end.max(*reached);
        }
        Ok(())
    }

    /// Blocks of one node become promised ones (`f2fs_do_zero_range`). How many.
    async fn zero_slots(
        &self,
        inode: &Rc<Inode>,
        dn: &Dnode,
        slots: std::ops::Range<u32>,
    ) -> FsResult<u64> {
        self.reserve(inode, dn, slots.clone()).await?;
        let short = slots.clone().find(|s| dn.addr(inode, *s) == addr::NULL);
        let end = short.unwrap_or(slots.end);
        let old: Vec<(u32, u32)> = (slots.start..end)
            .map(|s| (s, dn.addr(inode, s)))
            .filter(|(_, at)| addr::is_block(*at))
            .collect();
        let new: Vec<(u32, u32)> = old.iter().map(|(s, _)| (*s, addr::NEW)).collect();
        if !new.is_empty() {
            self.set_addrs(inode, dn, &new).await;
        }
        old.iter().for_each(|(_, at)| self.invalidate(*at));
        let len = end - slots.start;
        self.update_extent(inode, dn.first + u64::from(slots.start), len, 0);
        if short.is_some() && len == 0 {
            return Err(FsError::NoSpace);
        }
        Ok(u64::from(len))
    }

    fn check_whole(offset: u64, len: u64) -> FsResult<()> {
        if (offset | len).is_multiple_of(BLOCK) {
            Ok(())
        } else {
            Err(FsError::Invalid("fallocate: offset and length must be whole blocks"))
        }
    }

    /// Nothing is kept of runs any more (`f2fs_drop_extent_tree`).
    fn drop_extents(&self, inode: &Rc<Inode>) {
        if inode.is(fi::NO_EXTENT) {
            return;
        }
        inode.set(fi::NO_EXTENT);
        if inode.extents.borrow_mut().clear() {
            self.mark_inode_dirty(inode, true);
        }
    }

    /// `f2fs_collapse_range`.
    async fn collapse(self: &Rc<Self>, inode: &Rc<Inode>, offset: u64, len: u64) -> FsResult<()> {
        if offset + len >= inode.size.get() {
            return Err(FsError::Invalid("fallocate: the range must end before EOF"));
        }
        F2fs::check_whole(offset, len)?;
        self.convert_inline(inode).await?;
        self.write_back(inode, offset, u64::MAX).await?;
        self.balance_fs(true).await;
        let (start, from) = (offset / BLOCK, (offset + len) / BLOCK);
        let blocks = inode.size.get().div_ceil(BLOCK);
        {
            let _op = self.lock_op().await;
            let _tree = inode.map_lock.lock().await;
            self.drop_extents(inode);
            self.drop_pages(inode, start, u64::MAX).await;
            self.check_movable(inode, from, blocks).await?;
            for n in 0..blocks - from {
                self.shift_block(inode, from + n, start + n, true).await?;
            }
        }
        // What was moved by copying is sent, and nothing of the old places stays in the cache.
        drop(self.write_back(inode, offset, u64::MAX).await);
        self.drop_pages(inode, start, u64::MAX).await;
        let size = inode.size.get() - len;
        self.truncate_blocks(inode, size, true).await?;
        self.set_size(inode, size);
        Ok(())
    }

    /// `f2fs_insert_range`.
    async fn insert(self: &Rc<Self>, inode: &Rc<Inode>, offset: u64, len: u64) -> FsResult<()> {
        let old = inode.size.get();
        let size = old.checked_add(len).ok_or(FsError::TooBig)?;
        if size > inode.shape().blocks_max() * BLOCK {
            return Err(FsError::TooBig);
        }
        if offset >= old {
            return Err(FsError::Invalid("fallocate: the range is beyond EOF"));
        }
        F2fs::check_whole(offset, len)?;
        self.convert_inline(inode).await?;
        self.balance_fs(true).await;
        self.truncate_blocks(inode, old, true).await?;
        self.write_back(inode, offset, u64::MAX).await?;
        let (start, delta) = (offset / BLOCK, len / BLOCK);
        self.drop_pages(inode, start, u64::MAX).await;
        let mut end = old.div_ceil(BLOCK);
        // A checkpoint may come between two pieces, each as long as what comes in.
        while end > start {
            let first = end.saturating_sub(delta).max(start);
            let _op = self.lock_op().await;
            let _tree = inode.map_lock.lock().await;
            self.drop_extents(inode);
            self.check_movable(inode, first, end).await?;
            for index in first..end {
                self.shift_block(inode, index, index + delta, false).await?;
            }
            end = first;
        }
        let sent = self.write_back(inode, offset, u64::MAX).await;
        self.drop_pages(inode, start, u64::MAX).await;
        sent?;
        self.set_size(inode, size);
        Ok(())
    }

    /// A log-structured file system moves no block that the last checkpoint does not have
    /// (`__read_out_blkaddrs`). Errors: `NotInKernel`.
    async fn check_movable(self: &Rc<Self>, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        if !self.is_lfs() {
            return Ok(());
        }
        for index in from..to {
            let at = self.address_in(inode, index).await?;
            if addr::is_block(at) && !self.is_checkpointed_data(at) {
                return Err(FsError::NotInKernel);
            }
        }
        Ok(())
    }

    /// A block behind the end makes the file so long that it is whole (`f2fs_get_new_data_page`,
    /// `__clone_blkaddrs`).
    fn reach(&self, inode: &Rc<Inode>, block: u64) {
        let end = (block + 1) * BLOCK;
        if inode.size.get() < end {
            self.set_size(inode, end);
        }
    }

    /// Moves the contents of block `from` to `to`, which is free of dirty contents
    /// (`__clone_blkaddrs`). A block that the last checkpoint has is copied, for that checkpoint
    /// needs it where it is; another one's address moves. `full`: a hole makes a hole.
    async fn shift_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        full: bool,
    ) -> FsResult<()> {
        let source = match self.dnode(inode, from, Find::Lookup).await? {
            Found::At(dn) => Some(dn),
            Found::Hole(_) => None,
        };
        let at = source.as_ref().map_or(addr::NULL, |dn| dn.addr(inode, dn.slot));
        let at = self.checked(inode, at)?;
        if at == addr::NULL {
            if full {
                self.drop_pages(inode, to, to + 1).await;
                self.truncate_hole(inode, to, to + 1).await?;
            }
            return Ok(());
        }
        let Some(source) = source else { return Ok(()) };
        let Found::At(target) = self.dnode(inode, to, Find::Alloc).await? else {
            return Err(FsError::Invalid("a block beside inline data"));
        };
        if addr::is_block(at) && !self.is_checkpointed_data(at) {
            self.drop_pages(inode, to, to + 1).await;
            self.free_addrs(inode, &target, target.slot..target.slot + 1).await?;
            self.set_addrs(inode, &source, &[(source.slot, addr::NULL)]).await;
            self.set_addrs(inode, &target, &[(target.slot, at)]).await;
            let version = self.nat(target.nid).await?.version;
            self.replace_summary(at, target.nid, version, target.slot).await?;
            self.reach(inode, to);
            return Ok(());
        }
        // The contents go to a block of their own; also the zeroes of space without contents.
        let b = inode.map.get(from);
        if addr::is_block(at) {
            self.read_block(&b, at).await?;
        } else {
            b.set_contents(Slice::zero(b.len()));
            b.set(wp_cache::BufFlag::Uptodate);
        }
        self.reserve(inode, &target, target.slot..target.slot + 1).await?;
        self.reach(inode, to);
        let copy = inode.map.get(to);
        // What stands there is read, though nothing of it stays.
        let old = target.addr(inode, target.slot);
        if addr::is_block(old) {
            self.read_block(&copy, old).await?;
        }
        self.wait_on_page_writeback(&copy, Kind::Data, true).await;
        copy.set_contents(b.snapshot());
        copy.set(wp_cache::BufFlag::Uptodate);
        self.dirty_data(inode, &copy);
        copy.set(super::writeback::GCING);
        self.drop_pages(inode, from, from + 1).await;
        self.free_addrs(inode, &source, source.slot..source.slot + 1).await
    }
}

/// Did a node's range end before its slots did?
fn zeroed_is_short(dn: &Dnode, n: u32, at: u64, last: u64) -> bool {
    let whole = dn.first + u64::from(dn.slot + n);
    at < whole.min(last)
}
