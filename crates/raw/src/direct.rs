//! `O_DIRECT` on a device: bios between the caller's memory and the device.

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector};
use wp_block::{Bio, InFlight};
use wp_medium::{Pieces, Slice};
use wp_rt::CpuOp;
use wp_vfs::{ErrSeqCursor, Kiocb, SyncKind, failed_write};

use crate::node::Node;

/// Bytes of one bio (`BIO_MAX_VECS` pages).
const BIO_BYTES: u64 = 256 * 4096;

impl Node {
    fn check_aligned(&self, offset: u64, len: u64) -> FsResult<()> {
        if (offset | len).is_multiple_of(u64::from(self.part.limits().logical_bytes)) {
            return Ok(());
        }
        Err(FsError::Invalid("direct I/O: offset and length must be whole sectors"))
    }

    /// Reads past the cache; fewer bytes at the end of the device. Waits: for writeback of the
    /// range, for the device.
    ///
    /// Errors: `Invalid` for a range that is not in whole sectors, `Io`.
    pub(crate) async fn read_direct(
        &self,
        offset: u64,
        len: u64,
        io: &Kiocb,
    ) -> FsResult<Vec<Slice>> {
        self.check_aligned(offset, len)?;
        let end = self.bytes().min(offset.saturating_add(len));
        if offset >= end {
            return Ok(Vec::new());
        }
        self.write_back(offset, end).await?;
        let plug = (end - offset > BIO_BYTES).then(|| self.part.plug());
        let mut sent = Vec::new();
        let mut at = offset;
        while at < end {
            let n = BIO_BYTES.min(end - at);
            self.rt.cpu(CpuOp::BioSubmit, 1).await;
            let bio = Bio::read(Sector(at / SECTOR_BYTES), (n / SECTOR_BYTES) as u32, Flags::NONE);
            sent.push(self.part.send(bio));
            at += n;
        }
        drop(plug);
        io.queued().await;
        let mut out = Vec::new();
        let mut failed = false;
        for bio in sent {
            match bio.wait().await {
                Ok(read) => out.extend(read),
                Err(_) => failed = true,
            }
        }
        if failed { Err(FsError::Io) } else { Ok(out) }
    }

    /// Writes past the cache. Waits: for writeback of the range, for the device; of a descriptor
    /// that is `O_SYNC` or `O_DSYNC` for a flush, too, though its bios are forced (FUA).
    ///
    /// Errors: `Invalid` for a range that is not in whole sectors, and for an untorn write that is
    /// not one bio; `NoSpace` beyond the end, `Io`.
    pub(crate) async fn write_direct(
        &self,
        offset: u64,
        data: &[Slice],
        sync: Option<SyncKind>,
        told: &ErrSeqCursor,
        io: &Kiocb,
    ) -> FsResult<u64> {
        let len = data.iter().map(|s| u64::from(s.len())).sum();
        self.check_aligned(offset, len)?;
        let end = offset + self.room(offset, len)?;
        if io.is_untorn() && (end - offset < len || len > BIO_BYTES) {
            // No short write (`blkdev_write_iter`), and no second bio.
            return Err(FsError::Invalid("RWF_ATOMIC: beyond the end, or more than one bio"));
        }
        if offset == end {
            return Ok(0);
        }
        self.write_back(offset, end).await?;
        let (first, behind) = self.blocks(offset, end);
        self.bdev.mapping().wait_reads(first, behind).await;
        self.bdev.mapping().invalidate(first, behind);
        let force = if sync.is_some() && self.part.limits().fua { Flags::FUA } else { Flags::NONE };
        let untorn = if io.is_untorn() { Flags::ATOMIC } else { Flags::NONE };
        let sent = self.send_writes(offset, end, data, force | untorn).await;
        io.queued().await;
        let mut failed = Ok(());
        for bio in sent {
            failed = failed.and(bio.wait().await.map(drop));
        }
        // Read into the cache meanwhile.
        self.bdev.mapping().wait_reads(first, behind).await;
        self.bdev.mapping().invalidate(first, behind);
        failed.map_err(failed_write)?;
        if let Some(kind) = sync {
            io.in_thread().await;
            self.sync(kind, told).await?;
        }
        Ok(end - offset)
    }

    async fn send_writes(
        &self,
        offset: u64,
        end: u64,
        data: &[Slice],
        how: Flags,
    ) -> Vec<InFlight> {
        let plug = (end - offset > BIO_BYTES).then(|| self.part.plug());
        let mut pieces = Pieces::new(data);
        let mut sent = Vec::new();
        let mut at = offset;
        while at < end {
            let n = BIO_BYTES.min(end - at);
            let mut slices = Vec::with_capacity((n / 4096) as usize + 1);
            let mut left = n;
            while left > 0 {
                let part = left.min(4096);
                slices.push(pieces.take_one(part as u32));
                left -= part;
            }
            self.rt.cpu(CpuOp::BioSubmit, 1).await;
            let flags = Flags::SYNC | Flags::IDLE | how;
            sent.push(self.part.send(Bio::write(Sector(at / SECTOR_BYTES), slices, flags)));
            at += n;
        }
        drop(plug);
        sent
    }
}
