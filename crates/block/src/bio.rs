//! A bio: what a file system asks of a block device. One contiguous range, any number of slices.

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector};
use wp_medium::Slice;

use crate::device::Status;
use crate::flush_set::FlushSet;

/// Called once when a bio ends, in interrupt context: it may submit and wake, it cannot wait.
pub type EndIo = Box<dyn FnOnce(BioEnd)>;

/// Called once when a bio is dispatched, in interrupt context: it may submit and wake, it cannot
/// wait. See [`Bio::on_dispatch`].
pub type OnDispatch = Box<dyn FnOnce()>;

/// How a bio ended.
#[derive(Clone, Debug)]
pub struct BioEnd {
    /// Did it succeed?
    pub status: Result<(), Status>,
    /// What a read found: `sectors * 512` bytes in order. Empty for everything else, and for a read
    /// that failed.
    pub data: Vec<Slice>,
    /// Where a zone append has written, counted as its bio's `at` was.
    pub appended: Option<Sector>,
}

impl BioEnd {
    pub(crate) fn without_data(status: Result<(), Status>) -> BioEnd {
        BioEnd { status, data: Vec::new(), appended: None }
    }
}

/// One request to the block layer (`struct bio`).
///
/// Shape: a write's length is that of `segs`, whole sectors; `sectors` says it for reads and
/// discards. A flush is [`Op::Flush`], or a write with [`Flags::PREFLUSH`] and no data: the two are
/// the same. The layer sends [`Flags::PREFLUSH`] and [`Flags::FUA`] through the flush machine,
/// whatever the device has. [`Flags::ORDERED`] and [`Flags::BARRIER`] mean something on writes,
/// where a barrier is always ordered: see `epoch.rs`.
pub struct Bio {
    /// What to do.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// First sector, counted from the start of the partition (or device) that it is submitted to.
    pub at: Sector,
    /// What to write, by reference: whoever changes a page afterwards changes a copy.
    pub segs: Vec<Slice>,
    /// Sectors that a read or discard covers.
    pub sectors: u32,
    /// Whom to tell; nobody if `None`.
    pub end: Option<EndIo>,
    /// Whom to tell of its dispatch; nobody if `None`.
    pub dispatched: Option<OnDispatch>,
}

impl Bio {
    /// Writes `segs` at `at`. Nobody is told: see [`Bio::on_end`].
    pub fn write(at: Sector, segs: Vec<Slice>, flags: Flags) -> Bio {
        let sectors = bytes_of(&segs).div_ceil(SECTOR_BYTES) as u32;
        Bio { op: Op::Write, flags, at, segs, sectors, end: None, dispatched: None }
    }

    /// Reads `sectors` at `at`.
    pub fn read(at: Sector, sectors: u32, flags: Flags) -> Bio {
        Bio { op: Op::Read, flags, at, segs: Vec::new(), sectors, end: None, dispatched: None }
    }

    /// Says that `sectors` at `at` are no longer needed.
    pub fn discard(at: Sector, sectors: u32, flags: Flags) -> Bio {
        Bio { op: Op::Discard, ..Bio::read(at, sectors, flags) }
    }

    /// Appends `segs` to the zone that begins at `at`; its end tells where they are
    /// ([`BioEnd::appended`]). Neither split nor merged (`REQ_NOMERGE`).
    pub fn append(at: Sector, segs: Vec<Slice>, flags: Flags) -> Bio {
        Bio { op: Op::Zone(ZoneOp::Append), ..Bio::write(at, segs, flags) }
    }

    /// Does something with the zone that begins at `at` (`blkdev_zone_mgmt()`, which sends them
    /// synchronous); of [`ZoneOp::ResetAll`] and [`ZoneOp::Report`] `at` means nothing.
    pub fn zone(op: ZoneOp, at: Sector) -> Bio {
        Bio { op: Op::Zone(op), ..Bio::read(at, 0, Flags::SYNC) }
    }

    /// Empties the device's volatile cache: `blkdev_issue_flush()` sends it synchronous (`FWS`).
    pub fn flush() -> Bio {
        Bio { op: Op::Flush, ..Bio::read(Sector(0), 0, Flags::PREFLUSH | Flags::SYNC) }
    }

    /// Makes some sectors of the device durable; counted from its start, also in a partition. Fails
    /// on a device without [`crate::Limits::range_flush`].
    pub fn flush_set(set: &FlushSet) -> Bio {
        Bio { segs: set.encode(), ..Bio::flush() }
    }

    /// A cache barrier: see [`crate::BlockQueue::barrier`].
    pub fn barrier() -> Bio {
        let flush = Bio::flush();
        Bio { flags: flush.flags | Flags::BARRIER, ..flush }
    }

    /// With `end` to be called at its end.
    #[must_use]
    pub fn on_end(mut self, end: impl FnOnce(BioEnd) + 'static) -> Bio {
        self.end = Some(Box::new(end));
        self
    }

    /// With `dispatched` to be called once, before its end: when the device has accepted the
    /// request that carries it (`blk_request_dispatched()` of BarrierFS's kernel), all of them if
    /// it was split. A bio that does not get that far (it is refused, or fails before; a flush
    /// without data, which the flush machine stands in for) is told of just before its end. In the
    /// order of dispatch, in interrupt context, at the same instant.
    #[must_use]
    pub fn on_dispatch(mut self, dispatched: impl FnOnce() + 'static) -> Bio {
        self.dispatched = Some(Box::new(dispatched));
        self
    }
}

/// Total length of `segs` in bytes.
pub(crate) fn bytes_of(segs: &[Slice]) -> u64 {
    segs.iter().map(|s| u64::from(s.len())).sum()
}

/// Splits `segs` after `bytes`: the first part is returned, the rest stays.
pub(crate) fn split_front(segs: &mut Vec<Slice>, bytes: u64) -> Vec<Slice> {
    let mut left = bytes;
    let mut whole = 0usize;
    while left > 0 && u64::from(segs[whole].len()) <= left {
        left -= u64::from(segs[whole].len());
        whole += 1;
    }
    let mut front: Vec<Slice> = segs.drain(..whole).collect();
    if left > 0 {
        let cut = segs[0].clone();
        front.push(cut.sub(0, left as u32));
        segs[0] = cut.sub(left as u32, cut.len() - left as u32);
    }
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_at_every_sector_loses_no_byte() {
        let whole = vec![Slice::pattern(1, 0, 4096), Slice::pattern(2, 0, 512), Slice::zero(1024)];
        let bytes: Vec<u8> = Slice::concat(&whole);
        for sector in 0..=bytes.len() as u64 / 512 {
            let mut rest = whole.clone();
            let front = split_front(&mut rest, sector * 512);
            assert_eq!(bytes_of(&front), sector * 512);
            let again: Vec<u8> = front.iter().chain(&rest).flat_map(Slice::to_vec).collect();
            assert_eq!(again, bytes);
        }
    }
}
