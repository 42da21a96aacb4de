//! Direct I/O: between the caller's memory and the device, past the cache.
//!
//! Source: fs/btrfs/direct-io.c (`btrfs_direct_read`, `btrfs_direct_write`,
//! `btrfs_dio_iomap_begin`).

use std::cell::RefCell;
use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::{Bio, Status};
use wp_cache::{Readahead, WbControl};
use wp_medium::{Pieces, Slice};
use wp_rt::{Completion, CpuOp, LockGuard};
use wp_vfs::{ErrSeqCursor, Kiocb, SyncKind};

use crate::disk::{id, wide};

use super::inode::Inode;
use super::ordered::{Ordered, Place};
use super::{BLOCK, Btrfs, sector};

/// Bytes of a bio at most. `BIO_MAX_VECS` pages.
const BIO_BYTES: u64 = 256 * BLOCK;

/// A bio of a write, with its copies, on its way.
struct SentPiece {
    done: Rc<Completion>,
    failed: Rc<RefCell<bool>>,
    /// Where its bytes end in the file.
    end: u64,
}

/// A read of what lies at byte `place` of the device.
fn read_bio(place: u64, bytes: u64) -> Bio {
    Bio::read(sector(place), u32::try_from(bytes / 512).unwrap_or(0), Flags::SYNC)
}

/// Counts direct I/O under way (`inode_dio_begin`, `inode_dio_end`).
struct Dio(Rc<Inode>);

impl Dio {
    fn begin(inode: &Rc<Inode>) -> Dio {
        inode.dio.set(inode.dio.get() + 1);
        Dio(inode.clone())
    }
}

impl Drop for Dio {
    fn drop(&mut self) {
        self.0.dio.set(self.0.dio.get().saturating_sub(1));
        if self.0.dio.get() == 0 {
            self.0.dio_done.wake_all();
        }
    }
}

impl Btrfs {
    /// Does it go past the cache? What is not in whole sectors of the file system does not, and is
    /// no error either. `check_direct_IO`.
    fn takes_direct(inode: &Inode, offset: u64, len: u64) -> bool {
        inode.is_file() && (offset | len).is_multiple_of(BLOCK)
    }

    /// Forgets clean blocks of bytes `from..to`, also those that are being read.
    async fn drop_cache(&self, inode: &Inode, from: u64, to: u64) {
        let (from, to) = (from / BLOCK, to.div_ceil(BLOCK));
        inode.map.wait_reads(from, to).await;
        inode.map.invalidate(from, to);
    }

    /// Reads past the cache. Waits: for what was written there, for the device.
    pub(super) async fn read_direct(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
        io: &Kiocb,
    ) -> FsResult<Vec<Slice>> {
        if !Btrfs::takes_direct(inode, offset, len) {
            return self.read_data(inode, offset, len, &Readahead::default()).await;
        }
        let end = inode.size().min(offset.saturating_add(len));
        if offset >= end {
            return Ok(Vec::new());
        }
        self.write_ordered(inode, offset, end).await?;
        let to = end.next_multiple_of(BLOCK);
        let parts = self.with(|c| c.parts(inode.tree, inode.ino, offset, to));
        let parts = self.settled(parts).await?;
        // An inline extent comes from the cache.
        if parts.iter().any(|p| p.is_inline()) {
            return self.read_data(inode, offset, len, &Readahead::default()).await;
        }
        if parts.iter().any(|p| p.item.is_some_and(|i| i.head.compression != 0)) {
            return Err(FsError::Unsupported("btrfs: compressed extents".to_owned()));
        }
        let _dio = Dio::begin(inode);
        let mut reads = Vec::new();
        let mut at = offset;
        while at < to {
            let part = parts.iter().find(|p| p.end > at);
            let (stop, address) = match part {
                Some(p) if p.start > at => (p.start, None),
                Some(p) if p.is_prealloc() => (p.end, None),
                Some(p) => (p.end, p.address(at)),
                None => (to, None),
            };
            let stop = stop.min(to).min(at + BIO_BYTES);
            reads.push((at, stop - at, address, None));
            at = stop;
        }
        let plug = self.part.plug();
        for (_, bytes, address, sent) in &mut reads {
            let Some(address) = *address else { continue };
            let places = self.core.borrow().chunks().places(address, *bytes)?;
            let Some(first) = places.first().copied() else { continue };
            self.rt.cpu(CpuOp::BioSubmit, 1).await;
            *sent = Some(self.part.send(read_bio(first, *bytes)));
        }
        drop(plug);
        if reads.iter().any(|(.., sent)| sent.is_some()) {
            io.queued().await;
        }
        let mut found = Vec::new();
        for (at, bytes, address, sent) in reads {
            let first = match sent {
                Some(sent) => Some(sent.wait().await),
                None => None,
            };
            found.push((at, bytes, address, first));
        }
        io.in_thread().await;
        let mut out = Vec::new();
        for (at, bytes, address, first) in found {
            out.extend(self.checked_piece(inode, (at, bytes), address, first).await?);
        }
        Ok(Pieces::new(&out).take(u32::try_from(end - offset).unwrap_or(u32::MAX)))
    }

    /// The bytes of the file at `at` that lie at `address`, from the first copy, which was read, or
    /// from the first other one with the right checksums.
    async fn checked_piece(
        &self,
        inode: &Inode,
        (at, bytes): (u64, u64),
        address: Option<u64>,
        mut first: Option<Result<Vec<Slice>, Status>>,
    ) -> FsResult<Vec<Slice>> {
        let Some(address) = address else {
            return Ok((0..bytes / BLOCK).map(|_| Slice::zero(4096)).collect());
        };
        let sums = match inode.has_sums() {
            true => self.with(|c| c.data_sums(id::CSUM_TREE, address, bytes / BLOCK))?,
            false => Vec::new(),
        };
        let kind = self.core.borrow().common().csum;
        let places = self.core.borrow().chunks().places(address, bytes)?;
        let mut why = String::new();
        for place in places {
            let read = match first.take() {
                Some(read) => read,
                None => self.part.submit_wait(read_bio(place, bytes)).await,
            };
            let Ok(data) = read else {
                why = format!("inode {} byte {at}, at byte {place}: the device failed", inode.ino);
                continue;
            };
            let mut pieces = Pieces::new(&data);
            let out: Vec<Slice> = (0..bytes / BLOCK).map(|_| pieces.take_one(4096)).collect();
            let wrong = (0..)
                .zip(&out)
                .zip(&sums)
                .find(|((_, s), sum)| sum.is_none_or(|sum| kind.sum(&s.to_vec()) != sum));
            let Some(((n, _), _)) = wrong else { return Ok(out) };
            let n: u64 = n;
            let (file, place) = (at + n * BLOCK, place + n * BLOCK);
            why = format!("inode {} byte {file}, at byte {place}: wrong checksum", inode.ino);
        }
        let mut notes = self.bad_data.borrow_mut();
        if notes.len() < 100 && !notes.contains(&why) {
            notes.push(why);
        }
        Err(FsError::Io)
    }

    /// Writes past the cache. Waits: for the lock, for what was written there, the device, and with
    /// `sync` for what an fsync waits for.
    pub(super) async fn write_direct(
        &self,
        inode: &Rc<Inode>,
        offset: Option<u64>,
        data: &[Slice],
        (sync, told): (Option<SyncKind>, &ErrSeqCursor),
        io: &Kiocb,
    ) -> FsResult<u64> {
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        let lock = inode.lock.lock().await;
        self.check_writable()?;
        let at = offset.unwrap_or_else(|| inode.size());
        let end = at.checked_add(len).ok_or(FsError::TooBig)?;
        if end > i64::MAX.cast_unsigned() {
            return Err(FsError::TooBig);
        }
        if len == 0 {
            return Ok(0);
        }
        // What a caller changes on its way would not have the checksum that it was sent with: data
        // with sums goes through the cache, unless the rule is left out.
        let past_cache = !inode.has_sums() || self.opts.direct_sums;
        let n = if Btrfs::takes_direct(inode, at, len) && past_cache {
            self.start_write(inode, at, end).await?;
            self.transfer(inode, (at, end), data, lock, io).await
        } else {
            let done = self.write_data(inode, at, data).await;
            drop(lock);
            match done {
                Ok(n) => self.send_cached(inode, at, at + n).await.map(|()| n),
                Err(e) => Err(e),
            }
        };
        self.note_write(inode);
        let n = n?;
        if let Some(kind) = sync
            && n > 0
        {
            self.fsync(inode, kind, told).await?;
        }
        Ok(n)
    }

    /// Sends bytes `from..to`, which were written to the cache, waits until the device has them,
    /// not until items lead to them, and forgets them.
    async fn send_cached(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let range = (from / BLOCK, to.div_ceil(BLOCK).saturating_sub(1));
        let wbc = WbControl { range, ..WbControl::sync_all() };
        inode.map.writepages(&wbc).await?;
        self.wait_blocks(inode, range).await?;
        self.drop_cache(inode, from, to).await;
        Ok(())
    }

    async fn transfer(
        &self,
        inode: &Rc<Inode>,
        (from, to): (u64, u64),
        data: &[Slice],
        lock: LockGuard<'_, ()>,
        io: &Kiocb,
    ) -> FsResult<u64> {
        self.write_ordered(inode, from, to).await?;
        self.drop_cache(inode, from, to).await;
        let dio = Dio::begin(inode);
        let mut lock = Some(lock);
        // Items of extents, of the inode, and of checksums; what is in place needs fewer.
        let mut items = 0;
        let planned = self.plan_direct(inode, from, to, &mut items).await;
        let out = match planned {
            Ok(extents) => {
                let sent = self.send_direct(inode, extents, data).await;
                // What grows the file keeps its lock until the length is there.
                if io.is_async() && !sent.is_empty() && to <= inode.size() {
                    lock = None;
                    io.queued().await;
                }
                let out = self.end_direct(inode, from, sent).await;
                io.in_thread().await;
                out
            }
            Err(e) => Err(e),
        };
        drop(lock);
        self.unpromise(items);
        drop(dio);
        self.drop_cache(inode, from, to).await;
        out
    }

    /// Places for a write: new extents, or those that are there. `btrfs_get_blocks_direct_write`.
    async fn plan_direct(
        &self,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        items: &mut u64,
    ) -> FsResult<Vec<Rc<Ordered>>> {
        use crate::disk::inode::flag;
        let mut in_place = Vec::new();
        if inode.has(flag::NODATACOW | flag::PREALLOC) {
            let found = self.with(|c| {
                let mut all = Vec::new();
                for part in c.parts(inode.tree, inode.ino, from, to)? {
                    if self.is_written_in_place(c, inode, &part, (from, to))? {
                        all.push(part);
                    }
                }
                Ok(all)
            });
            in_place = self.settled(found).await?;
        }
        let kept: u64 = in_place.iter().map(|p| p.end.min(to) - p.start.max(from)).sum();
        let wanted = self.items_for(wide(in_place.len()) * 2 + 2, to - from);
        let promise = self.reserve(wanted).await?;
        let new = to - from - kept;
        if new > 0 {
            self.reserve_data(new).await?;
        }
        *items = promise.keep();
        let mut out = Vec::new();
        let mut at = from;
        let mut result = Ok(());
        while at < to && result.is_ok() {
            let part = in_place.iter().find(|p| p.end > at).copied();
            match part.and_then(|p| Some((p, p.item?))) {
                Some((p, item)) if p.start <= at => {
                    let stop = p.end.min(to);
                    let place = if p.is_prealloc() { Place::Prealloc } else { Place::Same };
                    let disk = (item.disk_bytenr.get(), item.disk_num_bytes.get());
                    let offset = item.offset.get() + (at - p.start);
                    out.push(self.add_ordered(inode, (at, stop - at), disk, offset, place));
                    at = stop;
                }
                next => {
                    let stop = next.map_or(to, |(p, _)| p.start.min(to));
                    let made = self.with(|c| {
                        let hint = self.hint(c, inode, at)?;
                        c.alloc_data(stop - at, BLOCK, hint)
                    });
                    match made {
                        Ok(disk) => {
                            let range = (at, disk.1);
                            out.push(self.add_ordered(inode, range, disk, 0, Place::New));
                            at += disk.1;
                        }
                        Err(e) => result = Err(e),
                    }
                }
            }
        }
        self.unreserve_data(new);
        self.settle().await?;
        if result.is_err() && out.is_empty() {
            return result.map(|()| out);
        }
        Ok(out)
    }

    /// Sends what goes to each extent.
    async fn send_direct(
        &self,
        inode: &Rc<Inode>,
        extents: Vec<Rc<Ordered>>,
        data: &[Slice],
    ) -> Vec<SentPiece> {
        let kind = self.core.borrow().common().csum;
        let mut pieces = Pieces::new(data);
        let plug = self.part.plug();
        let mut sent = Vec::new();
        for o in &extents {
            let mut at = o.start;
            while at < o.end() {
                let bytes = (o.end() - at).min(BIO_BYTES);
                let segs: Vec<Slice> = (0..bytes / BLOCK).map(|_| pieces.take_one(4096)).collect();
                if inode.has_sums() {
                    for (n, s) in (0u64..).zip(&segs) {
                        let mut sum = Vec::with_capacity(8);
                        kind.push(&s.to_vec(), &mut sum);
                        o.add_sum(o.address(at + n * BLOCK), &sum, kind.bytes());
                    }
                }
                self.rt.cpu(CpuOp::BioSubmit, 1).await;
                sent.push(self.send_piece(inode, o, at, bytes, segs));
                at += bytes;
            }
        }
        drop(plug);
        sent
    }

    /// Waits for what was sent of a write from byte `from` on, and gives the file its length.
    /// Answers the bytes written.
    async fn end_direct(
        &self,
        inode: &Rc<Inode>,
        from: u64,
        sent: Vec<SentPiece>,
    ) -> FsResult<u64> {
        let mut failed = false;
        let mut end = from;
        for piece in sent {
            piece.done.wait().await;
            failed |= *piece.failed.borrow();
            end = end.max(piece.end);
        }
        if failed {
            return Err(FsError::Io);
        }
        if end > inode.size() {
            inode.set_size(end);
            // Items of the extents may have come with the old length.
            let _p = self.reserve(1).await?;
            inode.disk_size.set(inode.size());
            let done = self.must(|c| self.update_inode(c, inode));
            self.settled(done).await?;
        }
        Ok(end - from)
    }

    fn send_piece(
        &self,
        inode: &Rc<Inode>,
        o: &Rc<Ordered>,
        at: u64,
        bytes: u64,
        segs: Vec<Slice>,
    ) -> SentPiece {
        let done = Rc::new(Completion::new(&self.rt, "btrfs direct write"));
        let failed = Rc::new(RefCell::new(false));
        let (fs, inode, o) = (self.me.clone(), inode.clone(), o.clone());
        let answer = SentPiece { done: done.clone(), failed: failed.clone(), end: at + bytes };
        let address = o.address(at);
        self.send_copies(address, segs, Flags::SYNC | Flags::IDLE, move |has_failed| {
            *failed.borrow_mut() = has_failed;
            if let Some(fs) = fs.upgrade() {
                fs.end_part(&inode, &o, bytes, has_failed);
            }
            done.done();
        });
        answer
    }
}
