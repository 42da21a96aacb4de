//! One device, through its page cache.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{BlockSize, FsError, FsResult, SECTOR_BYTES, Sector};
use wp_block::{Bio, Partition};
use wp_cache::{
    Ahead, Bdev, BufFlag, Buffer, Readahead, ReadaheadRules, WbControl, WbPolicy, Writeback,
};
use wp_medium::{Pieces, Slice};
use wp_rt::{CpuOp, Lock, Rt};
use wp_vfs::{ErrSeqCursor, SyncKind};

/// Blocks of one bio that fills the cache (`BIO_MAX_VECS`).
const BIO_BLOCKS: u64 = 256;

/// Most sectors of one discard bio: `bi_size` has 32 bits (`bio_discard_limit`).
const DISCARD_SECTORS: u64 = (u32::MAX as u64) / SECTOR_BYTES / 8 * 8;

/// A device that programs may open.
pub(crate) struct Node {
    pub(crate) rt: Rt,
    pub(crate) part: Partition,
    pub(crate) bdev: Rc<Bdev>,
    pub(crate) wb: Rc<Writeback>,
    /// Held by whoever writes through the cache (`inode_lock` of the device's inode).
    pub(crate) lock: Lock<()>,
    /// Open descriptors.
    pub(crate) opens: Cell<u32>,
}

impl Node {
    pub(crate) fn new(rt: &Rt, part: Partition) -> Node {
        let policy = WbPolicy::default();
        let wb = Writeback::new(rt, part.clone(), policy);
        let bytes = part.sectors() * SECTOR_BYTES;
        // `set_init_blocksize`: the largest size up to a page that the device is a multiple of.
        let logical = u64::from(part.limits().logical_bytes);
        let block = [4096, 2048, 1024].into_iter().find(|n| bytes.is_multiple_of(*n));
        let block = block.filter(|n| *n >= logical).unwrap_or(logical);
        let block = BlockSize::new(block as u32).expect("a sector is a block size");
        let bdev = Bdev::new(rt, part.clone(), block, &wb);
        Node {
            rt: rt.clone(),
            part,
            bdev,
            wb,
            lock: Lock::new(rt, "block device", ()),
            opens: Cell::new(0),
        }
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.part.sectors() * SECTOR_BYTES
    }

    fn block(&self) -> u64 {
        u64::from(self.bdev.block_size().bytes())
    }

    /// Blocks that hold bytes `from..to`: the first, and the one behind the last.
    pub(crate) fn blocks(&self, from: u64, to: u64) -> (u64, u64) {
        (from / self.block(), to.div_ceil(self.block()))
    }

    /// Reads through the cache; fewer bytes at the end of the device. Waits: for the device.
    pub(crate) async fn read(
        &self,
        offset: u64,
        len: u64,
        ahead: &Readahead,
    ) -> FsResult<Vec<Slice>> {
        let bs = self.block();
        let end = self.bytes().min(offset.saturating_add(len));
        let rules = ReadaheadRules::of(&wp_cache::Era::default(), self.part.limits().max_sectors);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let index = at / bs;
            let window = ahead.at(self.bdev.mapping(), index, (end, self.bytes()), &rules);
            if let Some(window) = window {
                self.start_reads(window);
            }
            let b = self.bdev.read(index).await?;
            self.rt.cpu(CpuOp::PageRead, 1).await;
            let skip = at % bs;
            let n = (bs - skip).min(end - at);
            out.push(b.snapshot().sub(skip as u32, n as u32));
            at += n;
        }
        Ok(out)
    }

    /// Starts reading what of a window is not in the cache (`blkdev_readahead`).
    fn start_reads(&self, window: Ahead) {
        let map = self.bdev.mapping();
        let missing = |i: u64| map.is_missing(i);
        let _plug = self.part.plug();
        let mut i = window.from;
        while i < window.to {
            let last = window.to.min(i + BIO_BLOCKS);
            let bufs: Vec<_> = (i..last).take_while(|i| missing(*i)).map(|i| map.get(i)).collect();
            match bufs.len() as u64 {
                0 => i += 1,
                n => {
                    self.start_read(i, bufs);
                    i += n;
                }
            }
        }
    }

    /// Reads blocks side by side from `first` on, in one bio.
    fn start_read(&self, first: u64, bufs: Vec<Rc<Buffer>>) {
        bufs.iter().for_each(|b| b.set(BufFlag::Reading));
        let size = self.bdev.block_size();
        let sectors = size.sectors() * bufs.len() as u32;
        let bio = Bio::read(size.sector_of(first), sectors, Flags::RAHEAD);
        self.part.submit(bio.on_end(move |end| {
            let mut pieces = Pieces::new(&end.data);
            for b in &bufs {
                b.clear(BufFlag::Reading);
                if end.status.is_ok() {
                    let read = pieces.take_one(size.bytes());
                    if !b.flag(BufFlag::Uptodate) {
                        b.set_contents(read);
                        b.set(BufFlag::Uptodate);
                    }
                }
                b.wake();
            }
        }));
    }

    /// The bytes of a write at `offset` that are on the device. Errors: `NoSpace` for none.
    pub(crate) fn room(&self, offset: u64, len: u64) -> FsResult<u64> {
        match self.bytes().checked_sub(offset) {
            None | Some(0) if len > 0 => Err(FsError::NoSpace),
            room => Ok(len.min(room.unwrap_or(0))),
        }
    }

    /// Writes through the cache. Waits: for blocks of which it writes a part, for the flusher.
    pub(crate) async fn write(&self, offset: u64, data: &[Slice]) -> FsResult<u64> {
        let len = data.iter().map(|s| u64::from(s.len())).sum();
        let end = offset + self.room(offset, len)?;
        let _lock = self.lock.lock().await;
        let bs = self.block();
        let mut pieces = Pieces::new(data);
        let mut at = offset;
        while at < end {
            let skip = at % bs;
            let n = (bs - skip).min(end - at);
            self.rt.cpu(CpuOp::PageWrite, 1).await;
            let b = if n == bs { self.bdev.get(at / bs) } else { self.bdev.read(at / bs).await? };
            b.put(skip as u32, &pieces.take_one(n as u32));
            b.set(BufFlag::Uptodate);
            self.bdev.mark_dirty(&b);
            at += n;
            self.wb.balance_dirty().await;
        }
        Ok(end - offset)
    }

    /// `blkdev_fsync`: writes what is cached and waits, then flushes. Both kinds are the same.
    ///
    /// Errors: `Io`, as other files.
    pub(crate) async fn sync(&self, _: SyncKind, told: &ErrSeqCursor) -> FsResult<()> {
        self.rt.cpu(CpuOp::SyncStart, 1).await;
        let map = self.bdev.mapping();
        let written = map.write_and_wait().await;
        let failed = map.errors().check_and_advance(&told.data);
        self.rt.cpu(CpuOp::FlushIssue, 1).await;
        let flushed = self.part.flush().await;
        self.rt.cpu(CpuOp::SyncEnd, 1).await;
        written?;
        if failed || flushed.is_err() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Writes back cached blocks of a range of bytes and waits (`filemap_write_and_wait_range`).
    pub(crate) async fn write_back(&self, from: u64, to: u64) -> FsResult<()> {
        let (first, end) = self.blocks(from, to);
        let map = self.bdev.mapping();
        if !map.has_any(first, end) {
            return Ok(());
        }
        let wbc = WbControl { range: (first, end - 1), ..WbControl::sync_all() };
        map.writepages(&wbc).await?;
        map.wait_range((first, end - 1)).await
    }

    /// `blk_ioctl_discard`: forgets what is cached of the range and discards it. Waits: for the
    /// device.
    ///
    /// Errors: `Unsupported` of a device that does not, `Invalid` for a range that is not in whole
    /// sectors of the device or not on it, `Io`.
    pub(crate) async fn discard(&self, offset: u64, len: u64) -> FsResult<()> {
        let limits = self.part.limits();
        if !limits.discard {
            return Err(FsError::Unsupported("the device does not support discard".into()));
        }
        if !(offset | len).is_multiple_of(u64::from(limits.logical_bytes)) {
            return Err(FsError::Invalid("BLKDISCARD: offset and length must be whole sectors"));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.bytes()) {
            return Err(FsError::Invalid("BLKDISCARD: the range is not on the device"));
        }
        let (first, end) = self.blocks(offset, offset + len);
        self.bdev.mapping().truncate_range(first, end).await;
        let plug = self.part.plug();
        let (mut at, mut left) = (offset / SECTOR_BYTES, len / SECTOR_BYTES);
        let mut sent = Vec::new();
        while left > 0 {
            let n = left.min(DISCARD_SECTORS);
            self.rt.cpu(CpuOp::BioSubmit, 1).await;
            sent.push(self.part.send(Bio::discard(Sector(at), n as u32, Flags::SYNC)));
            (at, left) = (at + n, left - n);
        }
        drop(plug);
        let mut failed = false;
        for bio in sent {
            failed |= bio.wait().await.is_err();
        }
        if failed { Err(FsError::Io) } else { Ok(()) }
    }

    /// The last descriptor was closed: `sync_blockdev`, `kill_bdev`.
    pub(crate) async fn close(&self) -> FsResult<()> {
        let written = self.bdev.sync().await;
        self.bdev.mapping().truncate(0).await;
        written
    }
}
