//! Dirty blocks of files: given places, and sent.
//!
//! Picture:    `writepages` looks at dirty blocks in order. One that has no place gets one together
//!             with all that follow it without a gap (`run_delalloc`): in the inode's item, in
//!             place, or in new extents. What lies side by side in one extent is one bio.
//! Source:     fs/btrfs/inode.c (`btrfs_run_delalloc_range`, `cow_file_range`,
//!             `run_delalloc_nocow`), extent_io.c (`extent_write_cache_pages`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::{BufFlag, Buffer, Fut, Mapping, WbControl, WbOps};
use wp_medium::Slice;
use wp_rt::CpuOp;

use crate::core::Core;
use crate::disk::extent::flag as extent_flag;
use crate::disk::inode::flag;
use crate::disk::{Reference, id};
use crate::items::FilePart;
use crate::refs::DataRef;

use super::inode::{IN_PLACE, Inode};
use super::ordered::{Ordered, Place};
use super::{BLOCK, Btrfs, sector};

/// Blocks of a bio at most. `BIO_MAX_VECS`.
const BIO_BLOCKS: usize = 256;
/// Longest extent. `BTRFS_MAX_EXTENT_SIZE`.
const EXTENT_MAX: u64 = 128 << 20;

/// Blocks that are about to be sent as one bio.
#[derive(Default)]
struct Gathered {
    bufs: Vec<Rc<Buffer>>,
    segs: Vec<Slice>,
    ordered: Option<Rc<Ordered>>,
}

impl Btrfs {
    /// The address near which an inode's data is to be. `btrfs_get_extent_allocation_hint`.
    pub(super) fn hint(&self, c: &mut Core<'static>, inode: &Inode, at: u64) -> FsResult<u64> {
        let ordered = inode.ordered.borrow();
        let address = |o: &Ordered| o.disk.0 + o.offset;
        let of_part = |p: FilePart| p.address(p.start).unwrap_or(0);
        if let Some(o) = ordered.range(..=at).next_back().map(|(_, o)| o).filter(|o| o.end() > at) {
            return Ok(address(o));
        }
        let next = c.part_from(inode.tree, inode.ino, at)?;
        let coming = ordered.range(at..).next().map(|(start, o)| (*start, address(o)));
        match (next, coming) {
            (Some(p), Some((start, _))) if p.start <= start => return Ok(of_part(p)),
            (_, Some((_, address))) => return Ok(address),
            (Some(p), None) => return Ok(of_part(p)),
            (None, None) => {}
        }
        let Some(before) = at.checked_sub(1) else { return Ok(0) };
        let key = |at| crate::disk::Key::new(inode.ino, crate::disk::kind::EXTENT_DATA, at);
        let last = c.last(inode.tree, key(0), key(before))?;
        let gone = ordered.range(..at).next_back().map(|(start, o)| (*start, address(o)));
        match (last, gone) {
            (Some((k, _)), Some((start, address))) if start >= k.offset => Ok(address),
            (None, Some((_, address))) => Ok(address),
            (Some((k, _)), _) => {
                Ok(c.part_from(inode.tree, inode.ino, k.offset)?.map_or(0, of_part))
            }
            (None, None) => Ok(0),
        }
    }

    /// What was written in `start..end` has no place any more to wait for: it got one, or is
    /// dropped. `keeps`: the promise of its data is kept, for an extent that is allocated.
    pub(super) fn end_delalloc(&self, inode: &Inode, start: u64, end: u64) {
        let mut bytes = 0;
        for b in inode.map.range(start / BLOCK, end / BLOCK) {
            if b.clear(BufFlag::Delay) && !b.clear(IN_PLACE) {
                bytes += BLOCK;
            }
        }
        inode.delalloc.borrow_mut().cut(start, end - start);
        self.unreserve_data(bytes);
    }

    /// The bytes `start..end`, which were written, get extents. `cow_file_range`.
    fn allocate(&self, inode: &Rc<Inode>, start: u64, end: u64) -> FsResult<()> {
        let mut hint = self.with(|c| self.hint(c, inode, start))?;
        let mut at = start;
        while at < end {
            let wanted = (end - at).min(EXTENT_MAX);
            let (address, bytes) = self.with(|c| c.alloc_data(wanted, BLOCK, hint))?;
            self.set_places(inode, (at, bytes), (address, bytes), 0, Place::New);
            hint = address + bytes;
            at += bytes;
        }
        Ok(())
    }

    fn set_places(
        &self,
        inode: &Rc<Inode>,
        (at, bytes): (u64, u64),
        disk: (u64, u64),
        offset: u64,
        place: Place,
    ) {
        let o = self.add_ordered(inode, (at, bytes), disk, offset, place);
        for b in inode.map.range(at / BLOCK, (at + bytes) / BLOCK) {
            b.map_to(o.address(b.block() * BLOCK) / BLOCK);
        }
        self.end_delalloc(inode, at, at + bytes);
        o.items.set(self.spare_items(inode));
    }

    /// Is a part of a file written in place? `can_nocow_file_extent`.
    pub(super) fn is_written_in_place(
        &self,
        c: &mut Core<'static>,
        inode: &Inode,
        part: &FilePart,
        (from, to): (u64, u64),
    ) -> FsResult<bool> {
        let Some(item) = part.item.filter(|i| i.has_place() && i.head.compression == 0) else {
            return Ok(false);
        };
        if !inode.is_nodatacow() && !part.is_prealloc() {
            return Ok(false);
        }
        c.open_root(inode.tree)?;
        if item.head.generation.get() <= c.root(inode.tree)?.item.last_snapshot.get() {
            return Ok(false);
        }
        let (address, bytes) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
        let offset = part.start.wrapping_sub(item.offset.get());
        let own = Reference::Data { root: inode.tree, objectid: inode.ino, offset };
        if let Some((_, _, extent)) = c.find_extent(address, None, bytes)? {
            let is_own = extent.head.flags.get() & extent_flag::DATA != 0
                && extent.refs.iter().all(|r| r.who == own)
                && extent.head.refs.get() == extent.refs.iter().map(|r| u64::from(r.count)).sum();
            if !is_own {
                return Ok(false);
            }
        }
        let r = DataRef { bytenr: address, bytes, root: inode.tree, inode: inode.ino, offset };
        if c.has_other_changes(r) {
            return Ok(false);
        }
        let Some(at) = part.address(from.max(part.start)) else { return Ok(false) };
        let bytes = to.min(part.end) - from.max(part.start);
        Ok(c.csums(id::CSUM_TREE, at, bytes / BLOCK)?.iter().all(Option::is_none))
    }

    /// The same for files that are written in place where they can be. `run_delalloc_nocow`.
    fn allocate_in_place(&self, inode: &Rc<Inode>, start: u64, end: u64) -> FsResult<()> {
        let parts = self.with(|c| c.parts(inode.tree, inode.ino, start, end))?;
        let mut at = start;
        for part in parts {
            let range = (start, end);
            if !self.with(|c| self.is_written_in_place(c, inode, &part, range))? {
                continue;
            }
            let Some(item) = part.item else { continue };
            let (from, to) = (part.start.max(at), part.end.min(end));
            if at < from {
                self.allocate_missing(inode, at, from)?;
            }
            let place = if part.is_prealloc() { Place::Prealloc } else { Place::Same };
            let disk = (item.disk_bytenr.get(), item.disk_num_bytes.get());
            let offset = item.offset.get() + (from - part.start);
            self.set_places(inode, (from, to - from), disk, offset, place);
            at = to;
        }
        if at < end { self.allocate_missing(inode, at, end) } else { Ok(()) }
    }

    /// `fallback_to_cow`.
    fn allocate_missing(&self, inode: &Rc<Inode>, start: u64, end: u64) -> FsResult<()> {
        for b in inode.map.range(start / BLOCK, end / BLOCK) {
            if b.flag(BufFlag::Delay) && b.clear(IN_PLACE) {
                self.data_promised.set(self.data_promised.get() + BLOCK);
            }
        }
        self.allocate(inode, start, end)
    }

    /// Puts all of a small file into its item. Answers whether it did. `cow_file_range_inline`.
    fn make_inline(&self, inode: &Rc<Inode>, end: u64) -> FsResult<bool> {
        let size = inode.size().min(end);
        let most = self.core.borrow().inline_bytes_max();
        let is_small = size <= BLOCK && size <= most && size <= self.opts.max_inline;
        if !is_small || size < inode.size() || size == 0 {
            return Ok(false);
        }
        let Some(b) = inode.map.peek(0) else { return Ok(false) };
        let data = b.with(|bytes| bytes.get(..crate::disk::index(size)).map(<[u8]>::to_vec));
        let Some(data) = data else { return Ok(false) };
        self.must(|c| {
            let dropped = c.drop_extents(inode.tree, inode.ino, 0, BLOCK)?;
            c.insert_inline(inode.tree, inode.ino, &data)?;
            inode.add_bytes(size, dropped);
            inode.disk_size.set(inode.size());
            self.update_inode(c, inode)
        })?;
        inode.need_full_sync();
        self.end_delalloc(inode, 0, BLOCK);
        self.give_spare(inode);
        // Now, before anything is waited for: what is written from here on is for the next time.
        if b.flag(BufFlag::Dirty) && !b.flag(BufFlag::Writeback) {
            inode.map.begin_writeback(&b);
            inode.map.end_writeback(&b, false);
        }
        Ok(true)
    }

    /// The written bytes from block `index` on, as far as they go on without a gap, get places.
    /// Answers whether they are in the inode's item now. If one finds no place all are dropped,
    /// those that have found one as well. `btrfs_run_delalloc_range`,
    /// `btrfs_cleanup_ordered_extents`.
    async fn run_delalloc(&self, inode: &Rc<Inode>, index: u64) -> FsResult<bool> {
        let start = index * BLOCK;
        self.rt.cpu(CpuOp::BlockAlloc, 1).await;
        let run = {
            let runs = inode.delalloc.borrow();
            runs.iter().find(|(s, n)| *s <= start && s + n > start)
        };
        // Another pass may have been here meanwhile.
        let Some((first, bytes)) = run else { return Ok(false) };
        let end = (first + bytes).min(start + EXTENT_MAX);
        let done = if inode.has(flag::NODATACOW | flag::PREALLOC) {
            self.allocate_in_place(inode, start, end).map(|()| false)
        } else {
            match if start == 0 { self.make_inline(inode, end) } else { Ok(false) } {
                Ok(false) => self.allocate(inode, start, end).map(|()| false),
                other => other,
            }
        };
        if done.is_err() {
            for b in inode.map.range(start / BLOCK, end / BLOCK) {
                self.drop_dirty(inode, &b);
            }
        }
        if self.settle().await.is_err() {
            // The places stand, and what goes there is sent.
            self.note_lost(inode);
        }
        done
    }

    /// Something of a file does not get to the device: whoever syncs is told. `mapping_set_error`.
    fn note_lost(&self, inode: &Inode) {
        inode.map.errors().set();
        self.wb.errors().set();
    }

    /// A block that is nowhere any more has nothing to write.
    fn drop_dirty(&self, inode: &Rc<Inode>, b: &Rc<Buffer>) {
        let at = b.block() * BLOCK;
        if b.flag(BufFlag::Delay) {
            self.end_delalloc(inode, at, at + BLOCK);
            self.give_spare(inode);
        } else if b.flag(BufFlag::Dirty)
            && b.clear(BufFlag::Mapped)
            && let Some(o) = self.ordered_at(inode, at)
        {
            // It has a place, and is not sent there.
            self.end_part(inode, &o, BLOCK, true);
        }
        inode.map.clear_dirty(b);
        inode.map.drop_tag(b.block());
    }

    /// Sends what was gathered. `submit_one_bio`.
    fn submit(&self, inode: &Rc<Inode>, g: &mut Gathered, sync: bool) {
        let Some(o) = g.ordered.take() else { return };
        let (bufs, segs) = (std::mem::take(&mut g.bufs), std::mem::take(&mut g.segs));
        let Some(first) = bufs.first().map(|b| b.block() * BLOCK) else { return };
        let address = o.address(first);
        let flags = if sync { Flags::SYNC } else { Flags::NONE };
        let (fs, inode, bytes) = (self.me.clone(), inode.clone(), crate::disk::wide(bufs.len()));
        let end = move |failed: bool| {
            for b in &bufs {
                inode.writing.borrow_mut().remove(&b.block());
                inode.map.end_writeback(b, failed);
            }
            if let Some(fs) = fs.upgrade() {
                fs.end_part(&inode, &o, bytes * BLOCK, failed);
            }
        };
        self.send_copies(address, segs, flags, end);
    }

    /// Sends data to all its copies; `end` is told when all have ended, and whether all failed.
    pub(super) fn send_copies(
        &self,
        address: u64,
        segs: Vec<Slice>,
        flags: Flags,
        end: impl FnOnce(bool) + 'static,
    ) {
        let bytes = segs.iter().map(|s| u64::from(s.len())).sum();
        let places = self.core.borrow().chunks().places(address, bytes).unwrap_or_default();
        let mut end = Some(end);
        if places.is_empty() {
            if let Some(end) = end.take() {
                end(true);
            }
            return;
        }
        let state = Rc::new(std::cell::RefCell::new((places.len(), false, end)));
        for at in places {
            let state = state.clone();
            let bio = Bio::write(sector(at), segs.clone(), flags).on_end(move |done| {
                let end = {
                    let mut s = state.borrow_mut();
                    s.0 -= 1;
                    s.1 |= done.status.is_ok();
                    if s.0 == 0 { s.2.take().map(|end| (end, !s.1)) } else { None }
                };
                if let Some((end, failed)) = end {
                    end(failed);
                }
            });
            self.part.submit(bio);
        }
    }

    /// Adds a block that has a place to what is sent. `submit_one_sector`.
    async fn write_block(&self, inode: &Rc<Inode>, b: &Rc<Buffer>, g: &mut Gathered, sync: bool) {
        let at = b.block() * BLOCK;
        let Some(o) = self.ordered_at(inode, at) else {
            // Its extent has failed.
            self.drop_dirty(inode, b);
            return;
        };
        let goes_on = g.ordered.as_ref().is_some_and(|last| Rc::ptr_eq(last, &o))
            && g.bufs.last().is_some_and(|last| last.block() + 1 == b.block())
            && g.bufs.len() < BIO_BLOCKS;
        if !goes_on {
            if g.ordered.is_some() {
                self.rt.cpu(CpuOp::BioSubmit, 1).await;
            }
            self.submit(inode, g, sync);
            g.ordered = Some(o.clone());
        }
        if !b.flag(BufFlag::Dirty) || b.flag(BufFlag::Writeback) {
            return;
        }
        inode.map.begin_writeback(b);
        inode.writing.borrow_mut().insert(b.block());
        b.clear(BufFlag::Mapped);
        if inode.has_sums() {
            self.sum_block(&o, o.address(at), b);
        }
        g.bufs.push(b.clone());
        g.segs.push(b.snapshot());
    }

    fn sum_block(&self, o: &Ordered, address: u64, b: &Buffer) {
        let kind = self.core.borrow().common().csum;
        let mut sum = Vec::with_capacity(8);
        // Not `Buffer::with`: zeroes and patterns would be held from then on, here and on the
        // medium.
        let contents = b.snapshot();
        match contents.held() {
            Some(bytes) => kind.push(bytes, &mut sum),
            None => kind.push(&contents.to_vec(), &mut sum),
        }
        o.add_sum(address, &sum, kind.bytes());
    }

    /// One dirty block. Answers whether it is on its way, or done. `extent_writepage`.
    async fn write_page(
        &self,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
        g: &mut Gathered,
        sync: bool,
    ) -> FsResult<bool> {
        if b.block() * BLOCK >= inode.size() && !b.flag(BufFlag::Mapped) {
            self.drop_dirty(inode, b);
            return Ok(false);
        }
        if b.flag(BufFlag::Delay) {
            if self.has_failed.get() {
                self.drop_dirty(inode, b);
                self.note_lost(inode);
                return Err(FsError::Io);
            }
            match self.run_delalloc(inode, b.block()).await {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                Err(e) => {
                    // What has no place is lost.
                    self.note_lost(inode);
                    return Err(e);
                }
            }
        }
        self.rt.cpu(CpuOp::PageWriteback, 1).await;
        if b.flag(BufFlag::Dirty) && !b.flag(BufFlag::Writeback) && b.flag(BufFlag::Mapped) {
            self.write_block(inode, b, g, sync).await;
        }
        Ok(true)
    }

    /// `extent_write_cache_pages` over one range of indices. Answers whether the whole range was
    /// scanned.
    async fn write_range(
        &self,
        inode: &Rc<Inode>,
        wbc: &WbControl,
        (from, to): (u64, u64),
        g: &mut Gathered,
    ) -> FsResult<bool> {
        let mut out = Ok(());
        // What somebody waits for is what is dirty now, not what becomes so meanwhile.
        for index in inode.map.tagged(from, to, usize::MAX) {
            let Some(b) = inode.map.peek(index) else {
                inode.map.drop_tag(index);
                continue;
            };
            if b.flag(BufFlag::Writeback) && b.flag(BufFlag::Dirty) {
                if !wbc.sync {
                    continue;
                }
                self.submit(inode, g, wbc.sync);
                b.wait_clear(BufFlag::Writeback).await;
            }
            if !b.flag(BufFlag::Dirty) {
                if !b.flag(BufFlag::Writeback) {
                    inode.map.drop_tag(index);
                }
                continue;
            }
            match self.write_page(inode, &b, g, wbc.sync).await {
                Ok(true) => wbc.budget.set(wbc.budget.get().saturating_sub(1)),
                Ok(false) => {}
                Err(e) => out = out.and(Err(e)),
            }
            inode.map.set_next_index(index + 1);
            if wbc.budget.get() == 0 && !wbc.sync {
                return out.map(|()| false);
            }
        }
        out.map(|()| true)
    }

    async fn write_pages(&self, inode: &Rc<Inode>, wbc: &WbControl) -> FsResult<()> {
        let mut g = Gathered::default();
        let start = if wbc.cyclic { inode.map.next_index() } else { wbc.range.0 };
        let mut out = self.write_range(inode, wbc, (start, wbc.range.1), &mut g).await;
        if matches!(out, Ok(true)) && wbc.cyclic {
            if start > 0 {
                out = self.write_range(inode, wbc, (0, start - 1), &mut g).await;
            }
            if matches!(out, Ok(true)) {
                inode.map.set_next_index(0);
            }
        }
        self.submit(inode, &mut g, wbc.sync);
        out.map(|_| ())
    }

    /// Sends what was written of a file, and waits for nothing; what fails is told to who syncs it.
    /// `filemap_flush`.
    pub(super) async fn start_flush(&self, inode: &Rc<Inode>) {
        let wbc = WbControl { sync: false, ..WbControl::sync_all() };
        let _ = inode.map.writepages(&wbc).await;
    }

    /// Sends all that was written and waits until items lead to it; what fails is told by files.
    pub(super) async fn write_all_data(&self) {
        let all: Vec<Rc<Inode>> = self.inodes.borrow().values().cloned().collect();
        for inode in all {
            let _ = inode.map.writepages(&WbControl::sync_all()).await;
        }
        self.wait_all_ordered().await;
    }
}

impl WbOps for Inode {
    fn writepages<'a>(&'a self, map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            let Some(fs) = self.fs.upgrade() else { return Ok(()) };
            let me = fs.inode_in_memory(self.handle).filter(|me| Rc::ptr_eq(&me.map, map));
            match me {
                Some(me) => fs.write_pages(&me, wbc).await,
                None => Ok(()),
            }
        })
    }
}
