//! File data: reading, buffered writing, delayed allocation and writeback.
//!
//! Three kinds of write are told apart, because the eras treat them differently: *allocating* (the
//! block has no place yet), *extending inside a block* (the block has its place, the size grows),
//! *overwrite*.
//! Source: Linux `fs/ext4/inode.c` (`ext4_da_write_begin/end`, `ext4_writepages`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::{Ahead, BufFlag, Buffer, Readahead, ReadaheadRules};
use wp_jbd2::{Handle, Ordered};
use wp_medium::{PAGE_BYTES, Pieces, Slice, join};
use wp_rt::{CpuOp, MaybeReady, soon};

use super::extents::Run;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;
use crate::site;

/// Pages in one bio of file data (`BIO_MAX_VECS`).
const BIO_PAGES: usize = 256;
/// Credits of a handle that allocates one run: a path of nodes that may split, inode, bitmap,
/// descriptor.
pub(super) const CREDITS_ALLOCATE: u32 = 40;
/// Whoever allocates, or files an inode, has a handle.
const ALLOCATES: &str = "only a delayed write of 5.15 and later has no handle";
/// How often an allocation that found no space is tried again after a commit
/// (`ext4_should_retry_alloc`).
pub(super) const RETRIES: u32 = 3;

/// What a write has left to do for the inode's slot in its table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// The size on disk moves.
    Grow,
    /// Only the size in memory has moved, and that says so.
    Touch,
}

/// What is told of new times that were logged (`ext4_dirty_inode`): nobody hears of a journal that
/// takes nothing; who needs a handle next does.
fn heard(logged: FsResult<()>) -> FsResult<()> {
    match logged {
        Err(FsError::Io | FsError::ReadOnly) => Ok(()),
        other => other,
    }
}

impl Ext4 {
    /// Block `index` of a file, up to date: from the cache, the device, or zeroes where there is
    /// none.
    pub(super) async fn data_block(&self, inode: &Inode, index: u64) -> FsResult<Rc<Buffer>> {
        let b = inode.map.get(index);
        loop {
            if b.flag(BufFlag::Uptodate) {
                return Ok(b);
            }
            if b.flag(BufFlag::Reading) {
                b.wait_clear(BufFlag::Reading).await;
                continue;
            }
            b.set(BufFlag::Reading);
            let got = self.fill_block(inode, &b).await;
            b.clear(BufFlag::Reading);
            b.wake();
            got?;
        }
    }

    /// [`Ext4::lookup`] for those who do not hold the map: not in the middle of another's change.
    pub(super) async fn find_run(&self, inode: &Inode, index: u64) -> FsResult<Result<Run, u64>> {
        let _map = inode.map_lock.lock().await;
        soon!(self.lookup(inode, index))
    }

    async fn fill_block(&self, inode: &Inode, b: &Rc<Buffer>) -> FsResult<()> {
        let mapped = if b.flag(BufFlag::Unwritten) {
            None
        } else if b.flag(BufFlag::Mapped) {
            Some(b.phys())
        } else {
            match self.find_run(inode, b.block()).await? {
                Ok(run) => {
                    if !run.unwritten {
                        b.map_to(run.phys);
                    }
                    (!run.unwritten).then_some(run.phys)
                }
                Err(_) => None,
            }
        };
        let contents = match mapped {
            None => Slice::zero(self.bs().bytes()),
            Some(phys) => {
                let bio = Bio::read(self.bs().sector_of(phys), self.bs().sectors(), Flags::NONE);
                let got = self.bdev.queue().submit_wait(bio).await.map_err(|_| FsError::Io)?;
                join(got)
            }
        };
        if !b.flag(BufFlag::Uptodate) {
            b.set_contents(contents);
            b.set(BufFlag::Uptodate);
        }
        Ok(())
    }

    /// Reads up to `len` bytes from `offset`, by reference where blocks are whole.
    pub(super) async fn read_data(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
        ahead: &Readahead,
    ) -> FsResult<Vec<Slice>> {
        let got = self.read_cached(inode, offset, len, ahead).await?;
        if self.opts.relatime {
            Box::pin(self.update_atime(inode)).await?;
        }
        Ok(got)
    }

    async fn read_cached(
        &self,
        inode: &Inode,
        offset: u64,
        len: u64,
        ahead: &Readahead,
    ) -> FsResult<Vec<Slice>> {
        let bs = u64::from(self.bs().bytes());
        let asked = offset.saturating_add(len);
        let end = inode.size.get().min(asked);
        let mut out = Vec::new();
        let mut at = offset;
        // A truncate may come between two blocks: beyond its end nothing may enter the cache.
        while at < end.min(inode.size.get()) {
            let index = at / bs;
            let size = inode.size.get();
            if let Some(window) = ahead.at(&inode.map, index, (asked, size), &self.readahead()) {
                self.start_reads(inode, window).await;
            }
            let b = self.data_block(inode, index).await?;
            self.rt.cpu(CpuOp::PageRead, 1).await;
            let skip = at % bs;
            let n = (bs - skip).min(end - at);
            // Cut off since: what stood there is no longer the file's.
            let n = n.min(inode.size.get().saturating_sub(at));
            if n == 0 {
                break;
            }
            out.push(b.snapshot().sub(skip as u32, n as u32));
            at += n;
        }
        Ok(out)
    }

    /// Blocks in one bio of file data.
    pub(super) fn bio_blocks(&self) -> usize {
        BIO_PAGES * self.page_blocks()
    }

    /// Blocks of a page.
    pub(super) fn page_blocks(&self) -> usize {
        (PAGE_BYTES / self.bs().bytes() as usize).max(1)
    }

    /// How files are read ahead (`sb->s_bdi`).
    pub(super) fn readahead(&self) -> ReadaheadRules {
        ReadaheadRules::of(&self.opts.writeback.era, self.bdev.queue().limits().max_sectors)
    }

    /// Starts reading what of a window is not in the cache (`ext4_readahead`); what has no place on
    /// the device is zeroes. Waits: for the map of blocks.
    /// What goes wrong is found by whoever uses the block.
    pub(super) async fn start_reads(&self, inode: &Inode, window: Ahead) {
        let missing = |i: u64| inode.map.is_missing(i);
        let _plug = self.bdev.queue().plug();
        let mut i = window.from;
        while i < window.to {
            if !missing(i) {
                i += 1;
                continue;
            }
            let Ok(run) = self.find_run(inode, i).await else { return };
            // A truncate may have come: beyond its end nothing may enter the cache.
            let end = inode.size.get().div_ceil(u64::from(self.bs().bytes())).min(window.to);
            let (phys, len) = match run {
                Ok(run) => ((!run.unwritten).then_some(run.phys), u64::from(run.len)),
                Err(hole) => (None, hole),
            };
            let last = end.min(i.saturating_add(len.clamp(1, self.bio_blocks() as u64)));
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
            match phys {
                Some(phys) => self.start_read(phys, bufs),
                None => bufs.iter().for_each(|b| {
                    b.set_contents(Slice::zero(b.len()));
                    b.set(BufFlag::Uptodate);
                }),
            }
        }
    }

    /// Reads blocks that lie side by side from `phys` on, in one bio.
    fn start_read(&self, phys: u64, bufs: Vec<Rc<Buffer>>) {
        for (i, b) in bufs.iter().enumerate() {
            b.map_to(phys + i as u64);
            b.set(BufFlag::Reading);
        }
        let size = self.bs();
        let sectors = size.sectors() * bufs.len() as u32;
        let bio = Bio::read(size.sector_of(phys), sectors, Flags::RAHEAD).on_end(move |end| {
            let mut pieces = Pieces::new(&end.data);
            for b in &bufs {
                b.clear(BufFlag::Reading);
                if end.status.is_ok() && !b.flag(BufFlag::Uptodate) {
                    b.set_contents(pieces.take_one(size.bytes()));
                    b.set(BufFlag::Uptodate);
                } else if end.status.is_ok() {
                    pieces.take(size.bytes());
                }
                b.wake();
            }
        });
        self.bdev.queue().submit(bio);
    }

    /// Buffered write (`generic_file_write` over the delalloc operations). The caller holds the
    /// inode's `lock`.
    ///
    /// Returns the bytes written: fewer than asked if space ran out after some. Errors: `NoSpace`,
    /// `TooBig`.
    pub(super) async fn write_data(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        data: &[Slice],
    ) -> FsResult<u64> {
        if self.is_stopped() {
            return Err(FsError::ReadOnly);
        }
        let bs = u64::from(self.bs().bytes());
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        self.check_size(inode, offset.saturating_add(1))?;
        let end = end.min(self.size_limit(inode));
        if len == 0 {
            return Ok(0);
        }
        if end > i32::MAX as u64 {
            Box::pin(self.announce_size(end)).await?;
        }
        soon!(self.update_time(inode))?;
        let old = inode.size.get();
        if inode.iomap.get() && offset > old {
            Box::pin(self.grow_over(inode, old, offset)).await?;
        }
        let mut pieces = Pieces::new(data);
        let mut at = offset;
        while at < end {
            let skip = at % bs;
            let n = (bs - skip).min(end - at) as u32;
            let chunk = pieces.take_one(n);
            // Linux ends a page as a whole (`generic_perform_write`).
            let after = at + u64::from(n);
            let ends_page = after == end || after.is_multiple_of(PAGE_BYTES as u64);
            match self.write_block(inode, at, &chunk, ends_page).await {
                Ok(()) => {
                    if at == offset && old < offset && site::EXTEND_GAP.on() {
                        Box::pin(self.zero_gap(inode, old, offset)).await?;
                    }
                    at = after;
                }
                Err(e) if at == offset => return Err(e),
                Err(_) => {
                    // What was written of the page stays: Linux prepares all of a page first, and
                    // has none of it.
                    let last = inode.map.get((at - 1) / bs);
                    let sizes = self.sizes_after(None, inode, &last, at, true)?;
                    Box::pin(self.follow(None, inode, sizes, at)).await?;
                    break;
                }
            }
            self.wb.balance_dirty().await;
        }
        Ok(at - offset)
    }

    /// A read's new access time, under `relatime`: if the file was changed since the last, or that
    /// is a day ago (`touch_atime`, `relatime_need_update`).
    pub(super) async fn update_atime(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        const DAY: i64 = 24 * 3600;
        if self.is_stopped() {
            return Ok(());
        }
        let (now, atime) = (self.time(), inode.atime());
        let key = |t: wp_vfs::TimeSpec| (t.secs, t.nanos);
        let changed = [inode.mtime(), inode.ctime()].iter().any(|t| key(*t) >= key(atime));
        if atime == now || !(changed || now.secs - atime.secs >= DAY) {
            return Ok(());
        }
        inode.set_atime(now);
        heard(soon!(self.dirty_inode(inode)))
    }

    /// New times, at the resolution of the tick: a second write within it changes nothing
    /// (`file_update_time`).
    pub(super) fn update_time<'a>(
        self: &'a Rc<Self>,
        inode: &Rc<Inode>,
    ) -> MaybeReady<'a, FsResult<()>> {
        if !self.set_times(inode) {
            return MaybeReady::now(Ok(()));
        }
        match self.dirty_inode(inode) {
            MaybeReady::Now(Some(logged)) => MaybeReady::now(heard(logged)),
            logged => MaybeReady::later(async { heard(logged.await) }),
        }
    }

    /// Sets new times; are they new?
    fn set_times(&self, inode: &Inode) -> bool {
        let now = self.time();
        if inode.mtime() == now && inode.ctime() == now {
            return false;
        }
        inode.set_mtime(now);
        inode.set_ctime(now);
        true
    }

    async fn write_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        at: u64,
        chunk: &Slice,
        ends_page: bool,
    ) -> FsResult<()> {
        let mut tries = 0;
        loop {
            match self.write_block_once(inode, at, chunk, ends_page).await {
                // Boxed: few writes meet it, and all would have room for it.
                Err(FsError::NoSpace)
                    if tries < RETRIES && Box::pin(self.commit_for_space()).await? =>
                {
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Blocks freed by a transaction come back when it is durable. `false`: there is none to wait
    /// for. The caller has no handle open.
    pub(super) async fn commit_for_space(&self) -> FsResult<bool> {
        if !self.groups.has_pending() {
            // Free, and kept from us while it is discarded.
            return Ok(self.discards.hurry().await && self.groups.free_blocks.get() > 0);
        }
        Box::pin(self.journal().force_commit()).await?;
        Ok(true)
    }

    async fn write_block_once(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        at: u64,
        chunk: &Slice,
        ends_page: bool,
    ) -> FsResult<()> {
        let (bs, n) = (self.bs().bytes(), chunk.len());
        let index = at / u64::from(bs);
        let skip = (at % u64::from(bs)) as u32;
        let delay = self.delays(inode);
        let h = match delay {
            true if self.opts.era.delalloc_write_without_handle() => None,
            true => Some(soon!(self.start(1))?),
            false => Some(soon!(self.start(CREDITS_ALLOCATE))?),
        };
        let out = async {
            let b = inode.map.get(index);
            if self.opts.writeback.era.stable_pages() && site::STABLE.on() {
                self.wait_stable(&b).await;
            }
            let allocated = match self.promise_now(inode, &b, delay) {
                Some(done) => done.map(|()| false)?,
                None => Box::pin(self.prepare_block(h.as_ref(), inode, &b, delay)).await?,
            };
            if n < bs && !b.flag(BufFlag::Uptodate) {
                if b.flag(BufFlag::New) || b.flag(BufFlag::Delay) {
                    b.set_contents(Slice::zero(bs));
                    b.set(BufFlag::Uptodate);
                } else {
                    Box::pin(self.data_block(inode, index)).await?;
                }
            }
            let journalled = self.journals_data(inode);
            // Journalled data is never delayed: it has its handle.
            if let (true, Some(h)) = (journalled, &h) {
                Box::pin(self.data_access(h, inode, &b)).await?;
            }
            self.rt.cpu(CpuOp::PageWrite, 1).await;
            b.put(skip, chunk);
            b.set(BufFlag::Uptodate);
            let end = at + u64::from(n);
            if let (true, Some(h)) = (journalled, &h) {
                self.data_dirty(h, inode, &b)?;
            }
            if let (false, Some(h)) = (delay, &h) {
                self.order_written(h, inode, &b, allocated)?;
            }
            if delay && !ends_page {
                // The size on disk moves at the page's end, if its last block has a place then.
                if end > inode.size.get() {
                    inode.size.set(end);
                    inode.map.mark_inode_dirty();
                }
            } else if end > inode.size.get() || end > inode.disksize.get() {
                let after = self.sizes_after(h.as_ref(), inode, &b, end, delay)?;
                self.follow(h.as_ref(), inode, after, end).await?;
            }
            if !journalled {
                inode.map.mark_dirty(&b);
            }
            Ok(())
        }
        .await;
        match h {
            Some(h) => soon!(self.stop(h, out)),
            None => out,
        }
    }

    /// Are places for what is written to the inode now given by writeback?
    pub(super) fn delays(&self, inode: &Inode) -> bool {
        self.opts.delalloc && !self.is_tight() && !self.journals_data(inode)
    }

    /// Free space is short against what is promised: allocate at once (`ext4_nonda_switch`).
    fn is_tight(&self) -> bool {
        let (free, dirty) = (self.groups.free_blocks.get(), self.reserved_blocks.get());
        2 * free < 3 * dirty || free < dirty + 4 * 32
    }

    /// Sees to it that a delayed write has a place or a promise of one, where that need not wait
    /// and `delay` is what the write is. `None`, and nothing is done, where it may have to.
    fn promise_now(&self, inode: &Inode, b: &Buffer, delay: bool) -> Option<FsResult<()>> {
        let unwritten = b.flag(BufFlag::Unwritten);
        if (b.flag(BufFlag::Mapped) && (delay || !unwritten)) || (b.flag(BufFlag::Delay) && delay) {
            return Some(Ok(()));
        }
        if !delay || !inode.has(flag::EXTENTS) {
            return None;
        }
        let _map = inode.map_lock.try_lock()?;
        match self.root_lookup(inode, u32::try_from(b.block()).ok()?) {
            // What the rest of the cluster has, takes a look that may wait.
            Ok(found) => match found? {
                Err(_) if self.geo.cluster_bits > 0 => None,
                found => Some(self.promise(inode, b, found, false)),
            },
            Err(e) => Some(Err(e)),
        }
    }

    /// The same for a block of which the map says `found`; `placed`: another block of its cluster
    /// has a place. The caller holds the map.
    pub(super) fn promise(
        &self,
        inode: &Inode,
        b: &Buffer,
        found: Result<Run, u64>,
        placed: bool,
    ) -> FsResult<()> {
        if let Ok(run) = found {
            b.map_to(run.phys);
            if run.unwritten {
                b.set(BufFlag::New);
                // Writeback splits it off and has it converted.
                b.set(BufFlag::Unwritten);
            }
            return Ok(());
        }
        if self.delay(inode, b, placed) { Ok(()) } else { Err(FsError::NoSpace) }
    }

    /// Gives the block a place, or a promise of one. `true`: it was allocated now.
    async fn prepare_block(
        self: &Rc<Self>,
        h: Option<&Handle>,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
        delay: bool,
    ) -> FsResult<bool> {
        let map = inode.map_lock.lock().await;
        let found = soon!(self.lookup(inode, b.block()))?;
        let placed = self.geo.cluster_bits > 0
            && found.is_err()
            && Box::pin(self.cluster_has_place(inode, b.block())).await?;
        if delay {
            return self.promise(inode, b, found, placed).map(|()| false);
        }
        let h = h.expect(ALLOCATES);
        if let Some(done) = Box::pin(self.place_iomap(h, inode, b, &found)).await {
            return done;
        }
        if let Ok(run) = found {
            b.map_to(run.phys);
            if !run.unwritten {
                return Ok(false);
            }
            b.set(BufFlag::New);
            self.initialise(h, inode, b.block(), b.block() + 1).await?;
            soon!(self.write_inode(h, inode))?;
            if site::INIT_TID.on() {
                inode.datasync_tid.set(h.tid());
            }
            b.clear(BufFlag::Unwritten);
            return Ok(true);
        }
        if self.free_for_delay() == 0 && !b.flag(BufFlag::Delay) && !placed {
            return Err(FsError::NoSpace);
        }
        let run = self.allocate(h, inode, b.block(), 1, true).await?;
        drop(map);
        self.undelay(inode, b);
        b.map_to(run.phys);
        b.set(BufFlag::New);
        Ok(true)
    }

    pub(super) fn unreserve(&self, inode: &Inode, blocks: u64) {
        inode.reserved.set(inode.reserved.get() - blocks);
        self.reserved_blocks.set(self.reserved_blocks.get() - blocks);
    }

    /// Puts the file on the ordered list for a block that `write()` has given its place, and in
    /// some eras for one that has it.
    fn order_written(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        b: &Buffer,
        allocated: bool,
    ) -> FsResult<()> {
        let era = &self.opts.era;
        let files = era.files_every_nodelalloc_write() || (allocated && era.files_in_map_blocks());
        // Without it nobody waits for its data, or it goes through the journal.
        if self.orders_data(inode) && files && site::FILE_ALLOCATED.on() {
            self.file_inode(h, inode, b.block(), b.block() + 1)?;
        }
        Ok(())
    }

    /// What follows the copy of a page that ends at `end`, in block `b`: sizes, and in some eras
    /// the ordered list. Waits for nothing; what is left to do is for [`Ext4::follow`].
    pub(super) fn sizes_after(
        self: &Rc<Self>,
        h: Option<&Handle>,
        inode: &Rc<Inode>,
        b: &Buffer,
        end: u64,
        delay: bool,
    ) -> FsResult<After> {
        let era = &self.opts.era;
        let grows = end > inode.size.get();
        let mapped = b.flag(BufFlag::Mapped) && !b.flag(BufFlag::Unwritten);
        if delay
            && self.orders_data(inode)
            && grows
            && mapped
            && end > inode.disksize.get()
            && era.files_extending_write()
            && site::FILE_EXTENDING.on()
        {
            self.file_inode(h.expect(ALLOCATES), inode, b.block(), b.block() + 1)?;
        }
        if grows {
            inode.size.set(end);
        }
        // The size on disk moves only over blocks that have their place.
        if !inode.iomap.get() && end > inode.disksize.get() && (mapped || !site::SIZE_MAPPED.on()) {
            return Ok(After::Grow);
        }
        if grows {
            inode.map.mark_inode_dirty();
            if era.size_change_dirties_inode() {
                return Ok(After::Touch);
            }
        }
        Ok(After::Nothing)
    }

    /// Logs what [`Ext4::sizes_after`] a write to `end` has left.
    pub(super) async fn follow(
        self: &Rc<Self>,
        h: Option<&Handle>,
        inode: &Rc<Inode>,
        after: After,
        end: u64,
    ) -> FsResult<()> {
        match after {
            After::Nothing => Ok(()),
            After::Grow => self.grow_on_disk(h, inode, end).await,
            After::Touch => self.touch_inode(h, inode).await,
        }
    }

    /// The size on disk moves to `end`, in the write's handle or one of its own.
    async fn grow_on_disk(
        self: &Rc<Self>,
        h: Option<&Handle>,
        inode: &Rc<Inode>,
        end: u64,
    ) -> FsResult<()> {
        inode.disksize.set(end);
        let own = match h {
            Some(_) => None,
            None => Some(soon!(self.start(2))?),
        };
        let h = h.or(own.as_ref()).expect("one of the two");
        let out = soon!(self.write_inode(h, inode));
        match own {
            Some(own) => soon!(self.stop(own, out)),
            None => out,
        }
    }

    /// Puts the inode on the transaction's ordered list, for blocks `from..to`.
    pub(super) fn file_inode(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> FsResult<()> {
        h.file_inode_range(&self.jinode(inode), Ordered::WriteAndWait, self.pages_of(from, to))
    }

    /// First and last block of the pages that hold blocks `from..to`: what is written is pages.
    pub(super) fn pages_of(&self, from: u64, to: u64) -> (u64, u64) {
        let n = (PAGE_BYTES as u64 / u64::from(self.bs().bytes())).max(1);
        (from / n * n, to.max(from + 1).div_ceil(n).saturating_mul(n) - 1)
    }
}
