//! Direct I/O: between the caller's memory and the device, past the cache.
//!
//! In place where a block has its place; with `mode=lfs` to a new one; on zoned devices writes go
//! through the cache. With `direct=log` all of them go another way: [`super::direct_log`].
//!
//! Source: Linux `fs/f2fs/file.c` (`f2fs_dio_write_iter`, `f2fs_should_use_dio`), `fs/f2fs/data.c`
//! (`f2fs_iomap_begin`, `f2fs_map_blocks`), `fs/iomap/direct-io.c`.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_cache::Readahead;
use wp_medium::{Pieces, Slice};
use wp_rt::{CpuOp, LockGuard};
use wp_vfs::{ErrSeqCursor, Kiocb, SyncKind};

use super::data::{BIO_BLOCKS, BLOCK, block_range};
use super::dnode::{Find, Found};
use super::inode::{Inode, fi};
use super::io::DirectBios;
use super::mount::F2fs;
use crate::disk::addr;
use crate::disk::inode::inline;
use crate::site;

/// Direct I/O under way: garbage collection leaves the file's blocks where they are
/// (`inode_dio_begin`, `inode_dio_end`; `i_gc_rwsem`, taken to read).
pub(super) struct Dio {
    inode: Rc<Inode>,
    /// Its caller has gone on, and holds the lock no more.
    is_queued: bool,
}

impl Dio {
    /// Waits: for garbage collection of a block.
    async fn begin(inode: &Rc<Inode>) -> Dio {
        while inode.is_moved.get() {
            inode.dio_done.wait().await;
        }
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

    /// Waits: for that, and for all other direct I/O.
    pub(super) async fn alone(inode: &Rc<Inode>) -> Dio {
        while inode.is_moved.get() || inode.dio.get() > 0 {
            inode.dio_done.wait().await;
        }
        inode.dio.set(1);
        Dio { inode: inode.clone(), is_queued: false }
    }
}

/// A block of the file is being moved: no direct I/O begins (`i_gc_rwsem`, taken to write).
pub(super) struct Move(Rc<Inode>);

impl Move {
    /// `None` while direct I/O is under way: what is on its way must find its block where it was
    /// looked up.
    pub(super) fn try_begin(inode: &Rc<Inode>) -> Option<Move> {
        if inode.dio.get() > 0 {
            return None;
        }
        let was_moved = inode.is_moved.replace(true);
        assert!(!was_moved, "blocks are moved one at a time");
        Some(Move(inode.clone()))
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        self.0.is_moved.set(false);
        self.0.dio_done.wake_all();
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

/// Does a run begin where another ends, and fit its bio? What lies side by side is one bio, across
/// nodes, too: `f2fs_map_blocks` goes on in the next one, and `blockdev_direct_IO` of old joined
/// what it was given.
fn goes_on((from, len): (u32, u32), start: u32, n: u64) -> bool {
    addr::is_block(from)
        && from.checked_add(len) == Some(start)
        && u64::from(len) + n <= BIO_BLOCKS as u64
}

/// Consecutive blocks of a write: where they go, and whether they were given that place just now.
struct Piece {
    start: u32,
    n: u64,
    fresh: bool,
}

/// A write of which all bios are on their way.
struct Sent {
    waits: Vec<FsResult<DirectBios>>,
    /// Why it ended early.
    failed: FsResult<()>,
    /// Where it ends in the file, in bytes.
    end: u64,
}

/// Is a write durable when it is done (`IOMAP_DIO_WRITE_FUA`), and how it is sent then?
struct Force {
    holds: bool,
    flag: Flags,
}

impl F2fs {
    /// The inode's lock, with no direct I/O under way.
    pub(super) async fn lock_alone<'a>(&self, inode: &'a Inode) -> LockGuard<'a, ()> {
        let guard = inode.lock.lock().await;
        while inode.dio.get() > 0 {
            inode.dio_done.wait().await;
        }
        guard
    }

    /// The inode's lock, with no direct I/O under way whose caller holds it in Linux, because it
    /// waits. What is in flight of callers that have gone on holds no lock.
    pub(super) async fn lock_for_write<'a>(&self, inode: &'a Inode) -> LockGuard<'a, ()> {
        let guard = inode.lock.lock().await;
        while inode.dio.get() > inode.dio_queued.get() {
            inode.dio_done.wait().await;
        }
        guard
    }

    /// `Ok(false)`: through the cache. Errors: `Invalid` for what is not in whole sectors.
    fn takes_direct(&self, inode: &Inode, offset: u64, len: u64, write: bool) -> FsResult<bool> {
        if write && inode.is(fi::ATOMIC) {
            return Err(FsError::NotInKernel);
        }
        let unit = u64::from(self.io.part().limits().logical_bytes);
        let aligned = (offset | len).is_multiple_of(BLOCK);
        let era = &self.opts.era;
        let linux_has_way = era.direct_writes()
            && !self.g.is_zoned
            && (era.direct_out_of_place() || !self.is_lfs());
        if !inode.is_file()
            || (!write && inode.has_inline(inline::DATA))
            || (write && !linux_has_way && !self.logs_direct())
        {
            return Ok(false);
        }
        match ((offset | len).is_multiple_of(unit), aligned) {
            (false, _) => {
                Err(FsError::Invalid("direct I/O: offset and length must be whole sectors"))
            }
            (true, aligned) => Ok(aligned),
        }
    }

    pub(super) async fn drop_cache(&self, inode: &Inode, from: u64, to: u64) {
        let (a, b) = block_range(from, to);
        inode.map.wait_reads(a, b + 1).await;
        inode.map.invalidate(a, b + 1);
    }

    /// Reads past the cache. Waits: for writeback of the range, for the device.
    pub(super) async fn read_direct(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
        io: &Kiocb,
    ) -> FsResult<Vec<Slice>> {
        if self.logs_direct() {
            while inode.dio.get() > 0 {
                inode.dio_done.wait().await;
            }
        }
        if !self.takes_direct(inode, offset, len, false)? {
            return self.read_data(inode, offset, len, &Readahead::default()).await;
        }
        let end = inode.size.get().min(offset.saturating_add(len));
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut dio = Dio::begin(inode).await;
        // A read takes no lock of the inode's (`f2fs_dio_read_iter`).
        dio.queued();
        self.write_back(inode, offset, end).await?;
        let last = end.div_ceil(BLOCK);
        let mut parts = Vec::new();
        let mut at = offset / BLOCK;
        {
            let _tree = inode.map_lock.lock().await;
            while at < last {
                let most = (at + BIO_BLOCKS as u64).min(last);
                let (start, n) = self.run_at(inode, at, most).await?;
                at += n;
                match parts.last_mut() {
                    Some((from, len)) if goes_on((*from, *len), start, n) => *len += n as u32,
                    _ => parts.push((start, n as u32)),
                }
            }
        }
        let plug = self.io.part().plug();
        let mut reads = Vec::new();
        for (start, n) in parts {
            reads.push(match addr::is_block(start) {
                true => Ok(self.send_direct(start, None, n, Flags::NONE).await),
                false => Err(n),
            });
        }
        drop(plug);
        if reads.iter().any(|part| part.is_ok()) {
            io.queued().await;
        }
        let mut out = Vec::new();
        for part in reads {
            match part {
                Ok(sent) => out.extend(sent?.wait().await?),
                Err(hole) => out.extend((0..hole).map(|_| Slice::zero(BLOCK as u32))),
            }
        }
        Ok(Pieces::new(&out).take((end - offset) as u32))
    }

    /// Writes past the cache. Waits: for the lock, writeback of the range, the device, and with
    /// `sync` for what an fsync waits for.
    pub(super) async fn write_direct(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: Option<u64>,
        data: &[Slice],
        (sync, told): (Option<SyncKind>, &ErrSeqCursor),
        io: &Kiocb,
    ) -> FsResult<u64> {
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        let lock = if self.logs_direct() {
            self.lock_alone(inode).await
        } else {
            self.lock_for_write(inode).await
        };
        let mut lock = Some(lock);
        self.check_writable()?;
        let at = offset.unwrap_or(inode.size.get());
        if len == 0 {
            return Ok(0);
        }
        if !self.takes_direct(inode, at, len, true)? {
            let n = self.write_data(inode, at, data).await?;
            drop(lock.take());
            let n = self.synced(inode, (at, n), sync, told).await?;
            let era = &self.opts.era;
            let waits = era.direct_through_cache_waits() || era.direct_through_cache_generic();
            if waits && n > 0 {
                self.write_back(inode, at, at + n).await?;
                self.drop_cache(inode, at, at + n).await;
            }
            return Ok(n);
        }
        let end = at.checked_add(len).ok_or(FsError::TooBig)?;
        if end > inode.shape().blocks_max() * BLOCK {
            return Err(FsError::TooBig);
        }
        if inode.gone.get() {
            return Err(FsError::NotFound);
        }
        self.update_time(inode);
        self.zero_beyond_end(inode, end, true).await?;
        self.convert_inline(inode).await?;
        let old = inode.size.get();
        // Blocks behind the end get places at once; holes inside were left to the cache once.
        let fills = self.opts.era.direct_fills_holes() || self.is_lfs();
        let allocates = fills || at >= old.next_multiple_of(BLOCK);
        // A plain overwrite is durable by itself if the device can force it.
        let limits = self.io.part().limits();
        let mut force = Force {
            holds: self.opts.era.direct_iomap()
                && sync == Some(SyncKind::DataOnly)
                && !self.is_lfs()
                && !self.logs_direct()
                && end <= old
                && (limits.fua || !limits.volatile_cache),
            flag: if limits.fua && site::DIRECT_FUA.on() { Flags::FUA } else { Flags::NONE },
        };
        let wrote = if self.logs_direct() {
            self.write_to_log(inode, (at, end), data, sync).await.map(|()| len)
        } else {
            let mut dio = Dio::begin(inode).await;
            self.write_back(inode, at, end).await?;
            self.drop_cache(inode, at, end).await;
            let sent = self.transfer(inode, (at, end), data, allocates, &mut force).await;
            if let Ok(Sent { waits, .. }) = &sent
                && !waits.is_empty()
                && end <= old
                && io.is_async()
            {
                lock = None;
                dio.queued();
                io.queued().await;
            }
            let wrote = self.transferred(sent, at).await;
            // iomap has a thread end every write; the code before it, where there is more to do.
            let is_whole = wrote.as_ref().is_ok_and(|n| *n == len);
            if self.opts.era.direct_iomap() || sync.is_some() || !is_whole {
                io.in_thread().await;
            }
            wrote
        };
        self.drop_cache(inode, at, end).await;
        let done = match wrote {
            Ok(done) => done,
            Err(e) => {
                self.truncate_file(inode).await?;
                return Err(e);
            }
        };
        // iomap makes an O_DSYNC write durable before this file system notes what the write did:
        // the new length, and that blocks were overwritten, are for a later fsync.
        let early = self.opts.era.direct_iomap();
        let grow = || {
            if done > 0 && at + done > inode.size.get() {
                self.set_size(inode, at + done);
            }
        };
        if self.opts.size_before_sync || self.logs_direct() {
            grow();
        }
        if early && !force.holds {
            self.synced(inode, (at, done), sync, told).await?;
        }
        grow();
        if done > 0 && !self.is_lfs() && !self.logs_direct() {
            inode.set(fi::UPDATE_WRITE);
        }
        let mut total = done;
        if done < len {
            let mut pieces = Pieces::new(data);
            pieces.take(done as u32);
            let rest = pieces.take((len - done) as u32);
            let n = self.write_data(inode, at + done, &rest).await?;
            self.write_back(inode, at + done, at + done + n).await?;
            self.drop_cache(inode, at + done, at + done + n).await;
            total += n;
        }
        drop(lock.take());
        if (force.holds || early) && done == len {
            return Ok(total);
        }
        self.synced(inode, (at, total), sync, told).await
    }

    /// `generic_write_sync`.
    async fn synced(
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
            self.fsync(inode, kind, block_range(at, at + n), told).await?;
        }
        Ok(n)
    }

    /// Maps piece by piece and sends: all, or what lies before a hole that is left to the cache.
    async fn transfer(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (offset, end): (u64, u64),
        data: &[Slice],
        allocates: bool,
        force: &mut Force,
    ) -> FsResult<Sent> {
        let mut pieces = Pieces::new(data);
        let mut parts = Vec::new();
        let (mut at, last) = (offset / BLOCK, end / BLOCK);
        let mut failed = Ok(());
        'all: while at < last {
            let most = (at + BIO_BLOCKS as u64).min(last);
            let runs = match self.place_direct(inode, at, most, allocates).await {
                Ok(runs) => runs,
                Err(e) => {
                    failed = Err(e);
                    break;
                }
            };
            for Piece { start, n, fresh } in runs {
                force.holds &= !fresh;
                if !addr::is_block(start) {
                    break 'all;
                }
                let slices = (0..n).map(|_| pieces.take_one(BLOCK as u32));
                let forced = if force.holds { force.flag } else { Flags::NONE };
                let flags = Flags::SYNC | Flags::IDLE | forced;
                match parts.last_mut() {
                    Some((from, to_come, len, with))
                        if *with == flags && goes_on((*from, *len), start, n) =>
                    {
                        let to_come: &mut Vec<Slice> = to_come;
                        to_come.extend(slices);
                        *len += n as u32;
                    }
                    _ => parts.push((start, slices.collect(), n as u32, flags)),
                }
                at += n;
            }
        }
        let plug = self.io.part().plug();
        let mut waits = Vec::new();
        for (start, slices, n, flags) in parts {
            self.note_device(inode.ino, start, n);
            waits.push(self.send_direct(start, Some(slices), n, flags).await);
        }
        drop(plug);
        Ok(Sent { waits, failed, end: at * BLOCK })
    }

    /// Waits for what was sent of a write from byte `offset` on. How many bytes were written.
    async fn transferred(&self, sent: FsResult<Sent>, offset: u64) -> FsResult<u64> {
        let Sent { waits, failed, end } = sent?;
        let mut done = Ok(());
        for sent in waits {
            let end = match sent {
                Ok(sent) => sent.wait().await.map(drop),
                Err(e) => Err(e),
            };
            done = done.and(end);
        }
        failed.and(done).map(|()| end - offset)
    }

    /// The places of blocks from `index` on, as runs, as far as one node has them
    /// (`f2fs_map_blocks` with `F2FS_GET_BLOCK_DIO`, which goes on in the next node: [`goes_on`]).
    async fn place_direct(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
        end: u64,
        allocates: bool,
    ) -> FsResult<Vec<Piece>> {
        if !allocates {
            let _tree = inode.map_lock.lock().await;
            let (start, n) = self.run_at(inode, index, end).await?;
            return Ok(vec![Piece { start, n, fresh: false }]);
        }
        self.balance_fs(true).await;
        let _op = self.lock_op().await;
        let _tree = inode.map_lock.lock().await;
        let Found::At(dn) = self.dnode(inode, index, Find::Alloc).await? else {
            return Err(FsError::Invalid("a block beside inline data"));
        };
        let version = self.nat(dn.nid).await?.version;
        let slots = (end - index).min(u64::from(dn.slots - dn.slot)) as u32;
        let mut runs: Vec<Piece> = Vec::new();
        for slot in dn.slot..dn.slot + slots {
            let old = self.checked(inode, dn.addr(inode, slot))?;
            let mut at = old;
            let fresh = !addr::is_block(old) || self.is_lfs();
            if fresh {
                match self.reserve(inode, &dn, slot..slot + 1).await {
                    Err(_) if !runs.is_empty() => return Ok(runs),
                    done => done?,
                };
                let log = self.log_of(inode, false);
                self.rt.cpu(CpuOp::BlockAlloc, 1).await;
                at = self.allocate_for_direct(log, old, dn.nid, slot, version).await?;
                self.move_block(inode, &dn, slot, at).await;
                inode.set(fi::APPEND_WRITE);
            }
            match runs.last_mut() {
                Some(p) if u64::from(p.start) + p.n == u64::from(at) && p.fresh == fresh => {
                    p.n += 1;
                }
                _ => runs.push(Piece { start: at, n: 1, fresh }),
            }
        }
        Ok(runs)
    }
}
