//! Direct I/O: between the caller's memory and the device, past the cache.
//!
//! Picture:    lock -> (it grows: onto the orphan chain) -> write back and drop cached blocks ->
//!             map and submit piece by piece -> wait -> convert what was unwritten -> (it grows:
//!             new size, off the chain) -> sync if asked.
//! Invariants: 1. blocks inside the file become written only after their data; blocks beyond its
//!                end are written at once, and a crash cuts them off by the orphan chain.
//!             2. a plain overwrite holds `i_dio_count`, not the lock, while its data is under way.
//!             3. an asynchronous call lets its caller go on once its bios are on their way, unless
//!                it grows the file or is not in whole blocks (`IOMAP_DIO_FORCE_WAIT`).
//! Source:     Linux `ext4_dio_write_iter`, `ext4_dio_write_end_io` (`fs/ext4/file.c`),
//!             `ext4_iomap_alloc` (`fs/ext4/inode.c`), `__iomap_dio_rw`; before 5.5
//!             `ext4_direct_IO`, which takes the same steps.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector};
use wp_block::{Bio, InFlight};
use wp_cache::{Readahead, WbControl};
use wp_medium::{Pieces, Slice};
use wp_rt::{CpuOp, LockGuard, soon};
use wp_vfs::{ErrSeqCursor, Kiocb, SyncKind, failed_write};

use super::data::{CREDITS_ALLOCATE, RETRIES};
use super::extents::{Fill, Run};
use super::inode::Inode;
use super::mount::Ext4;
use super::untorn::flag_of;
use crate::disk::inode::flag;
use crate::site;

/// Blocks that one step maps at most (`DIO_MAX_BLOCKS`).
const MAP_BLOCKS: u64 = 4096;

/// One mapped piece of a write.
pub(super) struct Piece {
    pub run: Run,
    /// Allocated or unwritten: what the data does not cover of its blocks must be zeroes.
    pub fresh: bool,
}

/// A write of which all bios are on their way.
struct Sent {
    waits: Vec<InFlight>,
    /// Why it ended early.
    failed: FsResult<()>,
    /// Some of its blocks were unwritten.
    unwritten: bool,
    /// All bios are forced, or need not be.
    fua: bool,
    /// Its caller wants it durable.
    syncs: bool,
}

impl Sent {
    fn is_under_way(&self) -> bool {
        !self.waits.is_empty()
    }
}

/// Counts direct I/O that runs without the lock (`inode_dio_begin`, `inode_dio_end`).
struct Dio {
    inode: Rc<Inode>,
    /// Its caller has gone on, and holds the lock for nothing more.
    is_queued: bool,
}

impl Dio {
    fn begin(inode: &Rc<Inode>) -> Dio {
        inode.dio.set(inode.dio.get() + 1);
        Dio { inode: inode.clone(), is_queued: false }
    }

    /// Its caller goes on before it is done.
    fn queued(&mut self) {
        self.is_queued = true;
        self.inode.dio_queued.set(self.inode.dio_queued.get() + 1);
        self.tell();
    }

    fn tell(&self) {
        if self.inode.dio.get() == self.inode.dio_queued.get() {
            self.inode.dio_done.wake_all();
        }
    }
}

impl Drop for Dio {
    fn drop(&mut self) {
        self.inode.dio.set(self.inode.dio.get() - 1);
        if self.is_queued {
            self.inode.dio_queued.set(self.inode.dio_queued.get() - 1);
        }
        self.tell();
    }
}

impl Ext4 {
    /// The inode's lock, with no direct I/O under way.
    pub(super) async fn lock_alone<'a>(&self, inode: &'a Inode) -> LockGuard<'a, ()> {
        let guard = inode.lock.lock().await;
        while inode.dio.get() > 0 {
            inode.dio_done.wait().await;
        }
        guard
    }

    fn check_aligned(&self, offset: u64, len: u64) -> FsResult<()> {
        let unit = u64::from(self.bdev.queue().limits().logical_bytes);
        if !(offset | len).is_multiple_of(unit) {
            return Err(FsError::Invalid("direct I/O: offset and length must be whole sectors"));
        }
        Ok(())
    }

    /// Writes back cached blocks of a range of bytes and waits (`filemap_write_and_wait_range`).
    pub(super) async fn write_back(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let range = self.block_range(from, to);
        let wbc = WbControl { range, ..WbControl::sync_all() };
        inode.map.writepages(&wbc).await?;
        inode.map.wait_range(range).await
    }

    /// Blocks that hold bytes `from..to`, both ends included.
    fn block_range(&self, from: u64, to: u64) -> (u64, u64) {
        let bs = u64::from(self.bs().bytes());
        (from / bs, to.div_ceil(bs).max(from / bs + 1) - 1)
    }

    /// Drops the cache of a range. `false`: some of it could not be dropped.
    pub(super) async fn drop_cache(&self, inode: &Inode, from: u64, to: u64) -> bool {
        let (a, b) = self.block_range(from, to);
        inode.map.wait_reads(a, b + 1).await;
        inode.map.invalidate(a, b + 1);
        !inode.map.has_any(a, b + 1)
    }

    /// Reads past the cache. Waits: for writeback of the range, for the device.
    ///
    /// Errors: `Invalid` for a range that is not in whole sectors.
    pub(super) async fn read_direct(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
        io: &Kiocb,
    ) -> FsResult<Vec<Slice>> {
        if !self.takes_direct(inode) {
            return self.read_data(inode, offset, len, &Readahead::default()).await;
        }
        self.check_aligned(offset, len)?;
        let lock = inode.lock.lock().await;
        let end = inode.size.get().min(offset.saturating_add(len));
        if offset >= end {
            return Ok(Vec::new());
        }
        self.write_back(inode, offset, end).await?;
        let mut dio = Dio::begin(inode);
        drop(lock);
        let bs = u64::from(self.bs().bytes());
        let unit = u64::from(self.bdev.queue().limits().logical_bytes);
        let plug = self.bdev.queue().plug();
        let mut parts: Vec<(u64, Option<InFlight>)> = Vec::new();
        let mut at = offset;
        while at < end {
            let (len, place) = match self.find_run(inode, at / bs).await? {
                Ok(run) => {
                    let room = u64::from(run.len) * bs - at % bs;
                    (room, (!run.unwritten).then_some(run.phys))
                }
                Err(hole) => (hole.saturating_mul(bs).saturating_sub(at % bs), None),
            };
            let n = len.min(end - at).min(self.bio_blocks() as u64 * bs);
            let bio = place.map(|phys| {
                let sector = self.bs().sector_of(phys).0 + at % bs / SECTOR_BYTES;
                let sectors = n.next_multiple_of(unit) / SECTOR_BYTES;
                Bio::read(Sector(sector), sectors as u32, Flags::NONE)
            });
            parts.push((n, bio.map(|b| self.bdev.queue().send(b))));
            at += n;
        }
        drop(plug);
        if io.is_async() && parts.iter().any(|(_, bio)| bio.is_some()) {
            dio.queued();
            io.queued().await;
        }
        let mut out = Vec::new();
        let mut failed = false;
        for (n, part) in parts {
            match part {
                None => {
                    let mut left = n;
                    while left > 0 {
                        let piece = left.min(bs);
                        out.push(Slice::zero(piece as u32));
                        left -= piece;
                    }
                }
                Some(part) => match part.wait().await {
                    Ok(got) => out.extend(Pieces::new(&got).take(n as u32)),
                    Err(_) => failed = true,
                },
            }
        }
        if failed { Err(FsError::Io) } else { Ok(out) }
    }

    /// Is there direct I/O for this file (`ext4_should_use_dio`)? Not where data is journalled.
    fn takes_direct(&self, inode: &Inode) -> bool {
        inode.disk.borrow().is_file() && inode.has(flag::EXTENTS) && !self.journals_data(inode)
    }

    /// Writes past the cache. Waits: for the lock, writeback of the range, the device, the journal.
    ///
    /// Errors: `Invalid` for a range that is not in whole sectors; `NoSpace`, when nothing counts
    ///         as written.
    // What a plain overwrite does not come to is boxed, here and below: a future is as large as the
    // largest that it awaits, and one beyond a kilobyte leaves the allocator's fast path.
    pub(super) async fn write_direct(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: Option<u64>,
        data: &[Slice],
        (sync, told): (Option<SyncKind>, &ErrSeqCursor),
        io: &Kiocb,
    ) -> FsResult<u64> {
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        if !self.takes_direct(inode) {
            return match io.is_untorn() {
                true => Err(FsError::NotInKernel),
                false => Box::pin(self.through_cache(inode, offset, data, (sync, told))).await,
            };
        }
        let lock = inode.lock.lock().await;
        let at = offset.unwrap_or(inode.size.get());
        if len == 0 {
            return Ok(0);
        }
        let end = at.checked_add(len).ok_or(FsError::TooBig)?;
        let bs = u64::from(self.bs().bytes());
        if end.div_ceil(bs) >= u64::from(u32::MAX) {
            return Err(FsError::TooBig);
        }
        self.check_aligned(at, len)?;
        self.check_untorn(io, at)?;
        if inode.gone.get() {
            return Err(FsError::NotFound);
        }
        let grows = end > inode.size.get()
            || (end > inode.disksize.get() && self.opts.era.direct_moves_disksize());
        let aligned = (at | len).is_multiple_of(bs);
        let over = !grows && aligned && self.is_written(inode, at, end).await?;
        if !over {
            // Whoever overwrites and waits holds the lock in Linux, shared.
            while inode.dio.get() > inode.dio_queued.get() {
                inode.dio_done.wait().await;
            }
        }
        soon!(self.update_time(inode))?;
        if grows {
            let h = Box::pin(self.start_growth(inode)).await?;
            if !site::DIRECT_SIZE.on() {
                inode.disksize.set(end.max(inode.disksize.get()));
                soon!(self.write_inode(&h, inode))?;
            }
            let out = match site::DIRECT_ORPHAN.on() {
                true => self.add_orphan(&h, inode).await,
                false => Ok(()),
            };
            soon!(self.stop(h, out))?;
        }
        let mut wrote = match site::DIRECT_FLUSH_CACHE.on() {
            true => self.write_back(inode, at, end).await,
            false => Ok(()),
        };
        let mut fallback = false;
        if wrote.is_ok() {
            fallback = !self.drop_cache(inode, at, end).await;
        }
        let mut durable = false;
        let mut lock = Some(lock);
        if wrote.is_ok() && !fallback {
            let mut dio = Dio::begin(inode);
            if over {
                lock = None;
            }
            let sent = self.send(inode, at, data, (sync, flag_of(io))).await;
            if io.is_async() && !grows && aligned && sent.is_under_way() {
                lock = None;
                dio.queued();
                if self.opts.era.async_syncs_early() {
                    // Whoever submits cannot be told that it failed.
                    let _ = self.synced(inode, (at, len), sync, told).await;
                    durable = true;
                }
                io.queued().await;
            }
            wrote = self.transferred(inode, (at, end), sent, io).await.map(|fua| durable |= fua);
            drop(dio);
            self.drop_cache(inode, at, end).await;
        }
        if grows && wrote.is_ok() && !fallback && self.syncs_before_growth(inode, end) && !durable {
            wrote = self.synced(inode, (at, len), sync, told).await.map(drop);
            durable = true;
        }
        let finished = if grows {
            Box::pin(self.end_growth(inode, end, wrote.is_ok() && !fallback)).await
        } else {
            Ok(())
        };
        drop(lock.take());
        wrote?;
        finished?;
        if fallback {
            return match io.is_untorn() {
                // No write through the cache is untorn.
                true => Err(FsError::Again),
                false => Box::pin(self.and_out_of_it(inode, at, data, (sync, told))).await,
            };
        }
        if durable { Ok(len) } else { self.synced(inode, (at, len), sync, told).await }
    }

    /// Does the sync come before the lengths move? Where writeback has moved them meanwhile, only
    /// the orphan is left to clean up, and that comes behind the sync.
    fn syncs_before_growth(&self, inode: &Inode, end: u64) -> bool {
        let is_moved = end <= inode.disksize.get().min(inode.size.get());
        let era = &self.opts.era;
        era.direct_syncs_before_size() || (is_moved && era.direct_cleans_up_last())
    }

    /// `generic_write_sync`.
    pub(super) async fn synced(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (at, n): (u64, u64),
        sync: Option<SyncKind>,
        told: &ErrSeqCursor,
    ) -> FsResult<u64> {
        if let Some(kind) = sync
            && n > 0
            && site::DIRECT_SYNC.on()
        {
            let range = self.block_range(at, at + n);
            Box::pin(self.fsync_range(inode, kind, range, told)).await?;
        }
        Ok(n)
    }

    /// Are all blocks of a range written ones (`ext4_overwrite_io`)?
    async fn is_written(&self, inode: &Inode, from: u64, to: u64) -> FsResult<bool> {
        let bs = u64::from(self.bs().bytes());
        let (mut block, end) = (from / bs, to.div_ceil(bs));
        while block < end {
            match self.find_run(inode, block).await? {
                Ok(run) if !run.unwritten => block += u64::from(run.len),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Maps and submits.
    async fn send(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        data: &[Slice],
        (sync, how): (Option<SyncKind>, Flags),
    ) -> Sent {
        let bs = u64::from(self.bs().bytes());
        let limits = self.bdev.queue().limits();
        let end = offset + data.iter().map(|s| u64::from(s.len())).sum::<u64>();
        let mut pieces = Pieces::new(data);
        let mut waits = Vec::new();
        let mut unwritten = false;
        // A write that needs no metadata is durable by itself if the device can force it.
        let mut fua = sync == Some(SyncKind::DataOnly) && self.opts.era.direct_dsync_fua();
        let mut at = offset;
        let mut failed = Ok(());
        let plug = self.bdev.queue().plug();
        while at < end {
            let piece = match self.map_as(inode, (at, end), how).await {
                Ok(piece) => piece,
                Err(e) => {
                    failed = Err(e);
                    break;
                }
            };
            let first = piece.run.phys;
            let skip = at % bs;
            let n = (u64::from(piece.run.len) * bs - skip).min(end - at);
            unwritten |= piece.run.unwritten;
            let clean = self.is_datasync_clean(inode) || (fua && !site::DIRECT_CLEAN.on());
            // A length that moves is metadata (`IOMAP_F_DIRTY`, `ext4_set_iomap()`).
            let old = !piece.fresh || (fua && !site::DIRECT_FRESH.on());
            fua &= old && clean && end <= inode.size.get();
            // Linux does not look at the length on disk, which a delayed write leaves behind (N32).
            fua &= !self.opts.size_before_sync || end <= inode.disksize.get();
            fua &= limits.fua || !limits.volatile_cache;
            let force = fua && limits.fua && site::DIRECT_FUA.on();
            let how = if force { Flags::FUA | how } else { how };
            // What is cut at blocks, and up to two pieces of zeroes.
            let mut slices = Vec::with_capacity((skip + n).div_ceil(bs) as usize + 2);
            let mut sector = self.bs().sector_of(first).0 + skip / SECTOR_BYTES;
            if piece.fresh && skip > 0 {
                sector = self.bs().sector_of(first).0;
                slices.push(Slice::zero(skip as u32));
            }
            let mut left = n;
            while left > 0 {
                let part = left.min(bs - (at + n - left) % bs);
                slices.push(pieces.take_one(part as u32));
                left -= part;
            }
            let tail = (at + n) % bs;
            if piece.fresh && tail > 0 {
                slices.push(Slice::zero((bs - tail) as u32));
            }
            while !slices.is_empty() {
                let rest = slices.split_off(slices.len().min(self.bio_blocks()));
                let part = std::mem::replace(&mut slices, rest);
                let bio = Bio::write(Sector(sector), part, Flags::SYNC | Flags::IDLE | how);
                sector += u64::from(bio.sectors);
                self.rt.cpu(CpuOp::BioSubmit, 1).await;
                waits.push(self.bdev.queue().send(bio));
            }
            at += n;
        }
        drop(plug);
        Sent { waits, failed, unwritten, fua, syncs: sync.is_some() }
    }

    /// Waits for what was sent, converts. `true`: every byte went out with FUA, nothing is left to
    /// make durable.
    async fn transferred(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (offset, end): (u64, u64),
        sent: Sent,
        io: &Kiocb,
    ) -> FsResult<bool> {
        let bs = u64::from(self.bs().bytes());
        let Sent { waits, mut failed, unwritten, fua, syncs } = sent;
        for wait in waits {
            if site::DIRECT_WAIT.on()
                && let Err(status) = wait.wait().await
            {
                failed = failed.and(Err(failed_write(status)));
            }
        }
        // iomap has a thread end every write, the code before it where there is more to do.
        if unwritten || syncs || self.opts.era.direct_dsync_fua() {
            io.in_thread().await;
        }
        if self.opts.dual.is_some() {
            inode.map.set_unordered(true);
        }
        failed?;
        if unwritten && site::DIRECT_CONVERT.on() {
            Box::pin(self.convert_written(inode, offset / bs, end.div_ceil(bs), io)).await?;
        }
        Ok(fua)
    }

    /// The place of the block at byte `at`, given one if it has none, and of what follows it up to
    /// `end` (`ext4_iomap_begin`).
    pub(super) async fn map_piece(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        at: u64,
        end: u64,
    ) -> FsResult<Piece> {
        let bs = u64::from(self.bs().bytes());
        let block = at / bs;
        let last = end.div_ceil(bs).min(block + MAP_BLOCKS);
        if end <= inode.size.get()
            && let Ok(mut run) = self.find_run(inode, block).await?
            && !run.unwritten
        {
            run.len = u64::from(run.len).min(last - block) as u32;
            return Ok(Piece { run, fresh: false });
        }
        Box::pin(self.map_hole(inode, block, last)).await
    }

    /// The part of [`Ext4::map_piece`] for blocks up to `last` that need a handle.
    async fn map_hole(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        block: u64,
        last: u64,
    ) -> FsResult<Piece> {
        let mut tries = 0;
        loop {
            let h = soon!(self.start(CREDITS_ALLOCATE))?;
            let map = inode.map_lock.lock().await;
            let out = self.map_in_handle(&h, inode, block, last).await;
            drop(map);
            match soon!(self.stop(h, out)) {
                Err(FsError::NoSpace) if tries < RETRIES && self.commit_for_space().await? => {
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    pub(super) async fn map_in_handle(
        self: &Rc<Self>,
        h: &wp_jbd2::Handle,
        inode: &Rc<Inode>,
        block: u64,
        last: u64,
    ) -> FsResult<Piece> {
        let bs = u64::from(self.bs().bytes());
        let beyond = block * bs >= inode.size.get();
        match soon!(self.lookup(inode, block))? {
            Ok(mut run) => {
                run.len = u64::from(run.len).min(last - block) as u32;
                if !run.unwritten {
                    return Ok(Piece { run, fresh: false });
                }
                let to = block + u64::from(run.len);
                if beyond {
                    self.initialise(h, inode, block, to).await?;
                    run.unwritten = false;
                    if self.files_direct(inode) {
                        self.file_inode(h, inode, block, to)?;
                    }
                } else {
                    self.split_at(h, inode, block).await?;
                    self.split_at(h, inode, to).await?;
                }
                soon!(self.write_inode(h, inode))?;
                if site::DIRECT_MAP_TID.on() {
                    inode.datasync_tid.set(h.tid());
                }
                Ok(Piece { run, fresh: true })
            }
            Err(hole) => {
                let free = u64::from(self.blocks_in(self.free_for_delay()));
                let want = hole.min(last - block).min(free.max(1)) as u32;
                let written = beyond || !site::DIRECT_UNWRITTEN.on();
                let fill = if written { Fill::Written } else { Fill::BeforeIo };
                let run = self.allocate_as(h, inode, block, want, false, fill).await?;
                if beyond && self.files_direct(inode) {
                    self.file_inode(h, inode, block, block + u64::from(run.len))?;
                }
                Ok(Piece { run, fresh: true })
            }
        }
    }

    /// The end of a write that grows the file: the new size and off the orphan chain
    /// (`ext4_handle_inode_extension`), or everything beyond the old size is cut off again
    /// (`ext4_truncate_failed_write`).
    async fn end_growth(self: &Rc<Self>, inode: &Rc<Inode>, end: u64, done: bool) -> FsResult<()> {
        if !done {
            let bs = u64::from(self.bs().bytes());
            self.drop_blocks(inode, inode.size.get().div_ceil(bs)).await;
            inode.disksize.set(inode.size.get());
            return self.finish_truncate(inode).await;
        }
        let h = soon!(self.start(8))?;
        let out = async {
            inode.size.set(inode.size.get().max(end));
            inode.disksize.set(inode.disksize.get().max(end));
            self.remove_orphan_with_names(&h, inode).await?;
            soon!(self.write_inode(&h, inode))
        }
        .await;
        soon!(self.stop(h, out))
    }
}
