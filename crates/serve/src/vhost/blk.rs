//! Requests of virtio-blk in a queue, and their answers.
//!
//! Invariants: 1. lengths are bounded before anything is copied;
//!             2. the last byte that the guest can be written to is the status.
//! Not there:  FUA. virtio-blk has no such flag; the driver of Linux makes of a forced write a
//!             write and a flush.

use wp_base::event::ZoneOp;
use wp_base::{SECTOR_BYTES, Sector, Zone, ZoneKind, ZoneState};
use wp_block::Status;
use wp_medium::Slice;

use super::config::{MOST_RANGES, MOST_ZEROED};
use super::memory::Fault;
use super::ring::Chain;
use crate::drive::{What, slices_of};

/// Largest payload of a request.
pub const MAX_BYTES: usize = 64 << 20;
/// Bytes of a drive's name.
const ID_BYTES: usize = 20;

/// Types of requests.
mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
    pub const ZONE_APPEND: u32 = 15;
    pub const ZONE_REPORT: u32 = 16;
    pub const ZONE_OPEN: u32 = 18;
    pub const ZONE_CLOSE: u32 = 20;
    pub const ZONE_FINISH: u32 = 22;
    pub const ZONE_RESET: u32 = 24;
    pub const ZONE_RESET_ALL: u32 = 26;
}

/// What a request comes to, as the guest is told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// It is done.
    Ok = 0,
    /// It could not be done.
    IoError = 1,
    /// It is not known.
    Unsupported = 2,
    /// No such command for a zone, or no zone begins there.
    InvalidZone = 3,
    /// A write does not begin at its zone's write pointer.
    UnalignedWp = 4,
    /// As many zones are open as can be.
    OpenZones = 5,
    /// As many zones are active as can be.
    ActiveZones = 6,
}

/// A request, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// One request of a drive.
    Drive {
        /// What to do.
        what: What,
        /// First sector.
        at: Sector,
        /// Length in sectors.
        sectors: u64,
    },
    /// Several ranges, to be discarded or made zero.
    Ranges(Vec<(What, Sector, u64)>),
    /// The drive's name.
    Id,
    /// The zones from this sector on.
    Report(Sector),
    /// Nothing but a status.
    Say(Said),
}

impl Wish {
    /// The requests that a drive has for it: (what, first sector, length in sectors); of others
    /// none.
    pub fn requests(&self) -> Vec<(What, Sector, u64)> {
        match self {
            Wish::Drive { what, at, sectors } => vec![(*what, *at, *sectors)],
            Wish::Ranges(ranges) => ranges.iter().copied().filter(|r| r.2 > 0).collect(),
            Wish::Id | Wish::Report(_) | Wish::Say(_) => Vec::new(),
        }
    }
}

/// Reads a request: what it wishes, and what is to be written. Errors: its parts do not lie in the
/// guest's memory, or there is no room for a status: it cannot be answered.
pub fn read(chain: &Chain) -> Result<(Wish, Vec<Slice>), String> {
    const HEADER: usize = 16;
    let wrong = |e: Fault| format!("a request: {e}");
    let (readable, room) = (chain.readable().map_err(wrong)?, chain.writable().map_err(wrong)?);
    let mut header = [0; HEADER];
    let payload = readable.checked_sub(HEADER).ok_or("a request without a header")?;
    chain.read(0, &mut header).map_err(wrong)?;
    if room == 0 {
        return Err("a request without room for its status".to_owned());
    }
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let (number, at) = (word(0), Sector(u64::from(word(8)) | u64::from(word(12)) << 32));
    if payload > MAX_BYTES || room > MAX_BYTES {
        return Ok((Wish::Say(Said::IoError), Vec::new()));
    }
    let mut data = vec![0; payload];
    chain.read(HEADER, &mut data).map_err(wrong)?;
    Ok(wish(number, at, &data, room - 1))
}

/// What a request wishes; `room`: bytes that the guest can be written, the status aside.
fn wish(number: u32, at: Sector, data: &[u8], room: usize) -> (Wish, Vec<Slice>) {
    let whole = |bytes: usize| bytes > 0 && (bytes as u64).is_multiple_of(SECTOR_BYTES);
    let one = |what, bytes: usize| Wish::Drive { what, at, sectors: bytes as u64 / SECTOR_BYTES };
    let zone = |op| one(What::Zone(op), 0);
    let wish = match number {
        kind::IN if whole(room) => one(What::Read, room),
        kind::OUT if whole(data.len()) => {
            return (one(What::Write, data.len()), slices_of(at, data));
        }
        kind::ZONE_APPEND if whole(data.len()) && room >= 8 => {
            return (one(What::Zone(ZoneOp::Append), data.len()), slices_of(at, data));
        }
        kind::IN | kind::OUT | kind::ZONE_APPEND => Wish::Say(Said::IoError),
        kind::FLUSH => Wish::Drive { what: What::Flush, at: Sector(0), sectors: 0 },
        kind::GET_ID => Wish::Id,
        kind::DISCARD | kind::WRITE_ZEROES => ranges(number == kind::DISCARD, data),
        kind::ZONE_REPORT => Wish::Report(at),
        kind::ZONE_OPEN => zone(ZoneOp::Open),
        kind::ZONE_CLOSE => zone(ZoneOp::Close),
        kind::ZONE_FINISH => zone(ZoneOp::Finish),
        kind::ZONE_RESET => zone(ZoneOp::Reset),
        kind::ZONE_RESET_ALL => {
            Wish::Drive { what: What::Zone(ZoneOp::ResetAll), at: Sector(0), sectors: 0 }
        }
        _ => Wish::Say(Said::Unsupported),
    };
    (wish, Vec::new())
}

/// Ranges of a discard, or of a write of zeroes.
fn ranges(discards: bool, data: &[u8]) -> Wish {
    let n = data.len() / 16;
    let most = if discards { MOST_RANGES as usize } else { 1 };
    if !data.len().is_multiple_of(16) || n == 0 || n > most {
        return Wish::Say(Said::IoError);
    }
    let mut out = Vec::new();
    for range in data.chunks_exact(16) {
        let mut f = super::wire::Fields(range);
        let (Some(at), Some(sectors), Some(flags)) = (f.u64(), f.u32(), f.u32()) else {
            return Wish::Say(Said::IoError);
        };
        // Flags of a discard are reserved, of zeroes there is one: may unmap.
        if flags & !u32::from(!discards) != 0 || sectors > MOST_ZEROED {
            return Wish::Say(Said::Unsupported);
        }
        let what = match discards {
            true => What::Discard,
            false => What::WriteZeroes { unmap: flags != 0 },
        };
        out.push((what, Sector(at), u64::from(sectors)));
    }
    Wish::Ranges(out)
}

/// What a device's status is for the guest; a zoned one's I/O errors of writes are told as what
/// they are.
pub fn said(status: Result<(), Status>) -> Said {
    match status {
        Ok(()) => Said::Ok,
        Err(Status::Io | Status::Invalid) => Said::IoError,
        Err(Status::NotSupported) => Said::Unsupported,
        Err(Status::ZoneOpenResource) => Said::OpenZones,
        Err(Status::ZoneActiveResource) => Said::ActiveZones,
    }
}

/// Writes an answer: data from the front, of an append the sector in front of the status, the
/// status last. Returns how many bytes the guest was written.
pub fn write(chain: &Chain, said: Said, data: &[Slice], appended: Option<Sector>) -> u32 {
    let mut bytes = Vec::new();
    for slice in data {
        let at = bytes.len();
        bytes.resize(at + slice.len() as usize, 0);
        slice.copy_to(&mut bytes[at..]);
    }
    if let Some(at) = appended {
        bytes = at.0.to_le_bytes().to_vec();
    }
    write_bytes(chain, said, &bytes)
}

/// As [`write()`], of bytes; as many of them as there is room for.
pub fn write_bytes(chain: &Chain, said: Said, bytes: &[u8]) -> u32 {
    let Some(room) = chain.writable().ok().and_then(|n| n.checked_sub(1)) else { return 0 };
    let data = &bytes[..bytes.len().min(room)];
    if chain.write(0, data).is_err() || chain.write(room, &[said as u8]).is_err() {
        return 0;
    }
    data.len() as u32 + 1
}

/// A drive's name, as long as the protocol has it.
pub fn id(name: &str) -> Vec<u8> {
    let mut out: Vec<u8> = name.bytes().take(ID_BYTES).collect();
    out.resize(ID_BYTES, 0);
    out
}

/// A report of the zones from `at` on, in `room` bytes (`struct virtio_blk_zone_report`).
pub fn report(zones: &[Zone], at: Sector, room: usize) -> Vec<u8> {
    const HEAD: usize = 64;
    const ONE: usize = 64;
    let most = room.saturating_sub(HEAD) / ONE;
    let told: Vec<&Zone> =
        zones.iter().filter(|z| z.start.0 + z.sectors > at.0).take(most).collect();
    let mut out = vec![0; HEAD + told.len() * ONE];
    out[..8].copy_from_slice(&(told.len() as u64).to_le_bytes());
    for (n, z) in told.iter().enumerate() {
        let entry = &mut out[HEAD + n * ONE..][..ONE];
        let wp = if z.state == ZoneState::Full { z.start.advance(z.sectors) } else { z.wp };
        entry[..8].copy_from_slice(&z.capacity.to_le_bytes());
        entry[8..16].copy_from_slice(&z.start.0.to_le_bytes());
        entry[16..24].copy_from_slice(&wp.0.to_le_bytes());
        entry[24] = match z.kind {
            ZoneKind::Conventional => 1,
            ZoneKind::Sequential => 2,
        };
        entry[25] = z.state.number();
    }
    out
}

/// How many bytes a chain has room for, its status aside.
pub fn room(chain: &Chain) -> usize {
    chain.writable().map_or(0, |n| n.saturating_sub(1)).min(MAX_BYTES)
}

#[cfg(test)]
mod tests;
