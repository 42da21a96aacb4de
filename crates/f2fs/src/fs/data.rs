//! File data in the page cache: reads and buffered writes.
//!
//! Source: Linux `fs/f2fs/data.c` (`f2fs_write_begin`, `f2fs_get_new_data_page`,
//! `f2fs_mpage_readpages`), `fs/f2fs/file.c` (`f2fs_file_write_iter`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_cache::{Ahead, BufFlag, Buffer, Readahead, ReadaheadRules};
use wp_medium::{Pieces, Slice};
use wp_rt::CpuOp;

use super::dnode::{Find, Found};
use super::inode::{Inode, fi};
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::addr;
use crate::disk::inode::inline;

/// Blocks in one bio (`BIO_MAX_VECS`).
pub(super) const BIO_BLOCKS: usize = 256;
/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;

impl F2fs {
    /// Block `index` of a file, up to date: from the cache, the inode, the device, or zeroes where
    /// there is none.
    pub(super) async fn data_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
    ) -> FsResult<Rc<Buffer>> {
        loop {
            let b = inode.map.get(index);
            if b.flag(BufFlag::Uptodate) {
                return Ok(b);
            }
            if b.flag(BufFlag::Reading) {
                b.wait_clear(BufFlag::Reading).await;
                continue;
            }
            let tree = inode.map_lock.lock().await;
            let is_ours = inode.map.peek(index).is_some_and(|now| Rc::ptr_eq(&now, &b));
            if !is_ours || b.flag(BufFlag::Uptodate) || b.flag(BufFlag::Reading) {
                continue;
            }
            if inode.has_inline(inline::DATA) {
                self.fill_inline(inode, &b).await?;
                return Ok(b);
            }
            let at = self.readable(inode, index).await?;
            if b.flag(BufFlag::Uptodate) || b.flag(BufFlag::Reading) {
                continue;
            }
            if !addr::is_block(at) {
                b.set_contents(Slice::zero(b.len()));
                b.set(BufFlag::Uptodate);
                return Ok(b);
            }
            let at = self.checked(inode, at)?;
            self.start_read(vec![b.clone()], at, Flags::NONE);
            // A truncate waits for the read, so the lock may go.
            drop(tree);
            b.wait_clear(BufFlag::Reading).await;
            return if b.flag(BufFlag::Uptodate) { Ok(b) } else { Err(FsError::Io) };
        }
    }

    /// Block `index`, up to date, if it is not a hole (`f2fs_get_lock_data_page`).
    pub(super) async fn existing_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
    ) -> FsResult<Option<Rc<Buffer>>> {
        if self.address(inode, index).await? == addr::NULL {
            return Ok(None);
        }
        self.data_block(inode, index).await.map(Some)
    }

    /// Block `index` with space promised, up to date (`f2fs_get_new_data_page`); with `grow` the
    /// file reaches over it. The caller has [`F2fs::lock_op`].
    pub(super) async fn new_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
        grow: bool,
    ) -> FsResult<Rc<Buffer>> {
        let tree = inode.map_lock.lock().await;
        let (_, at) = self.reserve_block(inode, index).await?;
        let b = inode.map.get(index);
        if !b.flag(BufFlag::Uptodate) && at == addr::NEW {
            b.set_contents(Slice::zero(b.len()));
            b.set(BufFlag::Uptodate);
        }
        drop(tree);
        let b = if b.flag(BufFlag::Uptodate) { b } else { self.data_block(inode, index).await? };
        if grow && inode.size.get() < (index + 1) * BLOCK {
            self.set_size(inode, (index + 1) * BLOCK);
        }
        Ok(b)
    }

    /// Reads up to `len` bytes from `offset`, by reference where blocks are whole.
    pub(super) async fn read_data(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
        ahead: &Readahead,
    ) -> FsResult<Vec<Slice>> {
        let asked = offset.saturating_add(len);
        let end = inode.size.get().min(asked);
        let rules = self.readahead();
        let mut out = Vec::new();
        let mut at = offset;
        // A truncate may come between two blocks: beyond its end nothing may enter the cache.
        while at < end.min(inode.size.get()) {
            let index = at / BLOCK;
            if !inode.has_inline(inline::DATA)
                && let Some(window) = ahead.at(&inode.map, index, (asked, inode.size.get()), &rules)
            {
                self.start_reads(inode, window).await;
            }
            let b = self.data_block(inode, index).await?;
            self.rt.cpu(CpuOp::PageRead, 1).await;
            let skip = at % BLOCK;
            let n = (BLOCK - skip).min(end - at);
            let n = n.min(inode.size.get().saturating_sub(at));
            if n == 0 {
                break;
            }
            out.push(b.snapshot().sub(skip as u32, n as u32));
            at += n;
        }
        Ok(out)
    }

    /// How files are read ahead (`sb->s_bdi`).
    pub(super) fn readahead(&self) -> ReadaheadRules {
        ReadaheadRules::of(&self.opts.writeback.era, self.io.part().limits().max_sectors)
    }

    /// Starts reading what of a window is not in the cache (`f2fs_mpage_readpages`); what has no
    /// place on the device is zeroes. Waits: for the map of blocks.
    /// What goes wrong is found by whoever uses the block.
    pub(super) async fn start_reads(self: &Rc<Self>, inode: &Rc<Inode>, window: Ahead) {
        let missing = |i: u64| inode.map.is_missing(i);
        let _plug = self.io.part().plug();
        let mut i = window.from;
        while i < window.to {
            if !missing(i) {
                i += 1;
                continue;
            }
            let _tree = inode.map_lock.lock().await;
            let found = match inode.is_held_back() {
                true => self.readable(inode, i).await.map(|at| (at, 1)),
                false => self.run_at(inode, i, window.to).await,
            };
            let Ok((start, run)) = found else { return };
            // A truncate may have come: beyond its end nothing may enter the cache.
            let end = inode.size.get().div_ceil(BLOCK).min(window.to);
            let last = end.min(i.saturating_add(run.clamp(1, BIO_BLOCKS as u64)));
            let bufs: Vec<Rc<Buffer>> =
                (i..last).take_while(|i| missing(*i)).map(|i| inode.map.get(i)).collect();
            if i >= end {
                break;
            }
            if bufs.is_empty() {
                // Somebody has read it meanwhile.
                continue;
            }
            i += bufs.len() as u64;
            match addr::is_block(start) {
                true => self.start_read(bufs, start, Flags::RAHEAD),
                false => bufs.iter().for_each(|b| {
                    b.set_contents(Slice::zero(b.len()));
                    b.set(BufFlag::Uptodate);
                }),
            }
        }
    }

    /// Address of a block (`NULL` and `NEW` too), and how many blocks up to `end` go on from it:
    /// with consecutive addresses, or all nowhere. The caller has the inode's `map_lock`.
    pub(super) async fn run_at(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
        end: u64,
    ) -> FsResult<(u32, u64)> {
        let most = end.saturating_sub(index).max(1);
        if let Some((at, run)) = inode.extents.borrow().find(index) {
            return Ok((at, run.min(most)));
        }
        match self.dnode(inode, index, Find::Lookup).await? {
            Found::Hole(next) => Ok((addr::NULL, next.saturating_sub(index).clamp(1, most))),
            Found::At(dn) => {
                let first = self.checked(inode, dn.addr(inode, dn.slot))?;
                let follows = |k: u32| {
                    let found = dn.addr(inode, dn.slot + k);
                    if addr::is_block(first) { found == first + k } else { found == first }
                };
                let slots = u64::from(dn.slots - dn.slot).min(most) as u32;
                let run = (0..slots).take_while(|k| follows(*k)).count() as u64;
                Ok((first, run.max(1)))
            }
        }
    }

    /// New times, at the resolution of the tick (`file_update_time`). With `lazytime`, F2FS's
    /// default, that alone makes no inode dirty: an fsync, or a sync of all, takes them along.
    pub(super) fn update_time(&self, inode: &Rc<Inode>) {
        let now = self.time();
        let same = {
            let f = inode.f.borrow();
            f.mtime == now && f.ctime == now
        };
        if !same {
            let mut f = inode.f.borrow_mut();
            (f.ctime, f.mtime) = (now, now);
            inode.map.mark_times_dirty();
        }
    }

    /// Buffered write (`f2fs_file_write_iter`). The caller has the inode's `lock`.
    ///
    /// Returns the bytes written: fewer than asked if space ran out after some. Errors: `NoSpace`,
    /// `TooBig`, `Io` once writing has stopped.
    pub(super) async fn write_data(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        data: &[Slice],
    ) -> FsResult<u64> {
        self.check_writable()?;
        self.note_request();
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        let most = inode.shape().blocks_max() * BLOCK;
        if offset >= most {
            return Err(FsError::TooBig);
        }
        let end = end.min(most);
        if len == 0 {
            return Ok(0);
        }
        self.update_time(inode);
        self.zero_beyond_end(inode, end, !inode.is(fi::ATOMIC)).await?;
        if inode.has_inline(inline::DATA) && end > u64::from(inode.shape().inline_bytes()) {
            self.convert_inline(inode).await?;
        }
        let (promised, whole) = self.preallocate(inode, offset, end).await?;
        let mut pieces = Pieces::new(data);
        let mut at = offset;
        let mut failed = None;
        while at < end {
            let n = (BLOCK - at % BLOCK).min(end - at) as u32;
            let chunk = pieces.take_one(n);
            match self.write_block(inode, at, &chunk, whole).await {
                Ok(()) => at += u64::from(n),
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
            self.wb.balance_dirty().await;
        }
        if promised && inode.size.get() < end {
            self.truncate_file(inode).await?;
        }
        match failed {
            Some(e) if at == offset => Err(e),
            _ => Ok(at - offset),
        }
    }

    /// Can something be changed? Errors: `ReadOnly` after unmount, `Io` once writing has stopped.
    pub(super) fn check_writable(&self) -> FsResult<()> {
        match (self.is_mounted(), self.cp_error()) {
            (false, _) => Err(FsError::ReadOnly),
            (_, true) => Err(FsError::Io),
            _ => Ok(()),
        }
    }

    /// Promises space to the blocks that are written whole (`f2fs_preallocate_blocks`). Whether
    /// there are any, and whether each got it.
    async fn preallocate(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<(bool, bool)> {
        let is_apart = inode.is(fi::ATOMIC) && self.opts.atomic_all_apart;
        if inode.has_inline(inline::DATA) || is_apart {
            return Ok((false, false));
        }
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        if first >= last {
            return Ok((false, true));
        }
        match self.reserve_range(inode, first, last).await {
            Ok(()) => Ok((true, true)),
            Err(FsError::NoSpace) => Ok((true, false)),
            Err(e) => Err(e),
        }
    }

    /// Promises space to blocks `from..to` (`f2fs_map_blocks` with `F2FS_GET_BLOCK_PRE_AIO`).
    /// Errors: `NoSpace` if not all could have it.
    pub(super) async fn reserve_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> FsResult<()> {
        let mut at = from;
        while at < to {
            if self.is_lfs() {
                self.balance_fs(true).await;
            }
            let op = self.lock_op().await;
            let tree = inode.map_lock.lock().await;
            let Found::At(dn) = self.dnode(inode, at, Find::Alloc).await? else {
                return Err(FsError::Invalid("a block beside inline data"));
            };
            let n = (to - at).min(u64::from(dn.slots - dn.slot)) as u32;
            let slots = dn.slot..dn.slot + n;
            let null = slots.clone().filter(|s| dn.addr(inode, *s) == addr::NULL).count() as u64;
            let got = self.reserve(inode, &dn, slots).await?;
            drop((tree, op));
            if null > 0 {
                self.balance_fs(true).await;
            }
            if got < null {
                return Err(FsError::NoSpace);
            }
            at += u64::from(n);
        }
        Ok(())
    }

    async fn write_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        at: u64,
        chunk: &Slice,
        promised: bool,
    ) -> FsResult<()> {
        let n = chunk.len();
        let b = self.begin_write(inode, at, n, promised).await?;
        self.rt.cpu(CpuOp::PageWrite, 1).await;
        b.put((at % BLOCK) as u32, chunk);
        b.set(BufFlag::Uptodate);
        self.dirty_data(inode, &b);
        let end = at + u64::from(n);
        if end > inode.size.get() {
            self.set_size(inode, end);
            let cow = inode.cow.borrow().clone().filter(|_| inode.is(fi::ATOMIC));
            if let Some(cow) = cow {
                self.set_size(&cow, end);
            }
        }
        Ok(())
    }

    /// The block that bytes `at..at + n` lie in, with space, ready to take them
    /// (`f2fs_write_begin`).
    async fn begin_write(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        at: u64,
        n: u32,
        promised: bool,
    ) -> FsResult<Rc<Buffer>> {
        let index = at / BLOCK;
        let whole = u64::from(n) == BLOCK;
        if index > 0 {
            self.convert_inline(inode).await?;
        }
        let b = inode.map.get(index);
        b.wait_clear(BufFlag::Reading).await;
        let mut fresh = false;
        if inode.has_inline(inline::DATA) {
            self.begin_inline(inode, &b).await?;
        } else if inode.is(fi::ATOMIC) {
            fresh = self.reserve_apart(inode, index).await?;
        } else if !(whole && promised) {
            let beyond = index * BLOCK >= inode.size.get();
            let mut found = addr::NULL;
            if !beyond {
                found = self.address(inode, index).await?;
            }
            if found == addr::NULL {
                let _op = self.lock_op().await;
                let _tree = inode.map_lock.lock().await;
                (_, found) = self.reserve_block(inode, index).await?;
            }
            fresh = found == addr::NEW;
        }
        self.wait_on_page_writeback(&b, Kind::Data, false).await;
        if whole || b.flag(BufFlag::Uptodate) {
            return Ok(b);
        }
        let covers = at.is_multiple_of(BLOCK) && at + u64::from(n) >= inode.size.get();
        if covers || fresh {
            b.set_contents(Slice::zero(b.len()));
            return Ok(b);
        }
        self.data_block(inode, index).await
    }

    /// Writes back cached blocks of bytes `from..to` and waits (`filemap_write_and_wait_range`).
    pub(super) async fn write_back(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let range = block_range(from, to);
        let wbc = wp_cache::WbControl { range, ..wp_cache::WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        inode.map.wait_range(range).await.and(written)
    }
}

/// Blocks that hold bytes `from..to`, both ends included.
pub(super) fn block_range(from: u64, to: u64) -> (u64, u64) {
    (from / BLOCK, to.div_ceil(BLOCK).max(from / BLOCK + 1) - 1)
}
