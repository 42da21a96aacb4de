//! Which requests a device refuses before it looks at their contents.

use wp_base::SECTOR_BYTES;
use wp_base::event::{Flags, Op, ZoneOp};
use wp_block::{DevRequest, Limits, Status};

/// Is the request one that a device of these limits can do?
///
/// Panics if a write's data are not as long as it says: that is a bug above, not a bad request.
pub(crate) fn check(limits: &Limits, rq: &DevRequest) -> Result<(), Status> {
    let sectors = u64::from(rq.sectors);
    let unit = u64::from(limits.logical_bytes) / SECTOR_BYTES;
    let in_range = sectors > 0
        && rq.at.0.checked_add(sectors).is_some_and(|end| end <= limits.sectors)
        && rq.at.0.is_multiple_of(unit)
        && sectors.is_multiple_of(unit);
    let supported = match rq.op {
        Op::Flush if rq.data.is_empty() || limits.range_flush => return Ok(()),
        Op::Flush => return Err(Status::NotSupported),
        Op::Discard => limits.discard,
        Op::Write => !rq.flags.has(Flags::FUA) || limits.fua,
        Op::Read => true,
        Op::Zone(ZoneOp::Append) => {
            limits.zones.is_some_and(|z| rq.sectors <= z.append_max_sectors)
        }
        Op::Zone(_) if limits.zones.is_some() => return Ok(()),
        Op::Zone(_) => false,
    };
    if !supported {
        return Err(Status::NotSupported);
    }
    if !in_range || (rq.op != Op::Discard && rq.sectors > limits.max_sectors) {
        return Err(Status::Io);
    }
    // The driver's check (`nvme_valid_atomic_write()`): the drive would tear it in silence.
    if rq.flags.has(Flags::ATOMIC) && !limits.keeps_whole(rq.at, sectors) {
        return Err(Status::Invalid);
    }
    if rq.op.writes() {
        let bytes: u64 = rq.data.iter().map(|s| u64::from(s.len())).sum();
        assert_eq!(
            bytes,
            sectors * SECTOR_BYTES,
            "request {} holds other data than it says",
            rq.id
        );
    }
    Ok(())
}
