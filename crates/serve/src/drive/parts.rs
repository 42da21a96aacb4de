//! A client's request in parts that a device takes, and what comes back of them.

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_block::{DevRequest, Limits, Status};
use wp_medium::write_log::{LogEntry, LogFlags};
use wp_medium::{PAGE_BYTES, Slice};

use super::{Request, What, flags};

const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;

/// A request on its way.
pub(super) struct Parent {
    /// What it is.
    pub what: What,
    /// When it came.
    pub since: Time,
    /// First sector.
    pub at: Sector,
    /// Length in sectors.
    pub sectors: u64,
    /// Parts that are not done.
    pub left: u32,
    /// Does a flush have to follow?
    pub fua: bool,
    /// What the parts said.
    pub status: Result<(), Status>,
    /// Where an append has written.
    pub appended: Option<Sector>,
    /// What it writes, if somebody wants to know afterwards.
    pub written: Vec<Slice>,
    /// Its number in the log of writes, if there is one.
    pub number: u64,
    /// Was it to be durable when it is answered?
    forced: bool,
    /// What the parts of a read found.
    reads: Vec<(u32, Vec<Slice>)>,
}

impl Parent {
    /// Of a request of which nothing is done.
    pub fn of(request: &Request, since: Time) -> Parent {
        Parent {
            what: request.what,
            since,
            at: request.at,
            sectors: request.sectors,
            left: 0,
            fua: request.fua && request.what.changes(),
            status: Ok(()),
            appended: None,
            written: Vec::new(),
            number: 0,
            forced: request.fua,
            reads: Vec::new(),
        }
    }

    /// Does the device get it as discards, which cannot be forced?
    pub fn is_discard(&self, limits: &Limits) -> bool {
        match self.what {
            What::Discard => true,
            What::WriteZeroes { unmap } => unmap && discards_to_zero(limits, self.at, self.sectors),
            What::Read | What::Write | What::Flush | What::Zone(_) => false,
        }
    }

    /// Is it one that a log of writes knows?
    pub fn has_entry(&self) -> bool {
        !matches!(self.what, What::Read)
            && !matches!(self.what, What::Zone(op) if op != ZoneOp::Append)
    }

    /// As an entry of a log of writes; `None`: it has changed nothing that such a log knows.
    pub fn entry(&self) -> Option<LogEntry> {
        let forced = if self.forced { LogFlags::FUA } else { LogFlags::default() };
        match self.what {
            What::Write | What::Zone(ZoneOp::Append) => {
                let at = self.appended.unwrap_or(self.at);
                Some(LogEntry::write(at, self.written.clone(), forced))
            }
            What::Flush => Some(LogEntry::write(Sector(0), Vec::new(), LogFlags::FLUSH)),
            // What was discarded reads as zeroes to whoever replays the log.
            What::Discard | What::WriteZeroes { .. } => {
                Some(LogEntry::discard(self.at, self.sectors))
            }
            What::Read | What::Zone(_) => None,
        }
    }

    /// What part `n` brought.
    pub fn put(&mut self, n: u32, data: Vec<Slice>, appended: Option<Sector>) {
        if !data.is_empty() {
            self.reads.push((n, data));
        }
        self.appended = self.appended.or(appended);
    }

    /// What all parts of a read found, in order.
    pub fn into_data(mut self) -> Vec<Slice> {
        self.reads.sort_by_key(|(n, _)| *n);
        self.reads.into_iter().flat_map(|(_, data)| data).collect()
    }
}

/// A device's request without data.
pub(super) fn device_request(id: u64, op: Op, at: Sector, sectors: u32) -> DevRequest {
    DevRequest { id, op, flags: Flags::NONE, at, sectors, data: Vec::new() }
}

/// Bytes as slices that a medium keeps without copying: cut at pages of 4 KiB of the device; a page
/// of zeroes is kept as none.
///
/// Panics unless they are whole sectors.
pub fn slices_of(at: Sector, bytes: &[u8]) -> Vec<Slice> {
    assert!((bytes.len() as u64).is_multiple_of(SECTOR_BYTES), "{} bytes", bytes.len());
    let mut out = Vec::with_capacity(bytes.len() / PAGE_BYTES + 2);
    let mut rest = bytes;
    let mut sector = at.0;
    while !rest.is_empty() {
        let room = (PAGE_SECTORS - sector % PAGE_SECTORS) * SECTOR_BYTES;
        let n = rest.len().min(room as usize);
        let (part, behind) = rest.split_at(n);
        out.push(match is_zero(part) {
            true => Slice::zero(n as u32),
            false => Slice::from_bytes(part),
        });
        // What lies behind the end of all addresses is refused later.
        sector = sector.wrapping_add(n as u64 / SECTOR_BYTES);
        rest = behind;
    }
    out
}

/// Are these all zero? Most that are not are seen at once.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0) && bytes.iter().all(|b| *b == 0)
}

/// Takes a request apart: what a device of these limits takes at once.
pub(super) fn split(limits: &Limits, rq: &Request) -> Vec<DevRequest> {
    let one = |op, sectors| vec![device_request(0, op, rq.at, sectors)];
    match rq.what {
        What::Flush => vec![device_request(0, Op::Flush, Sector(0), 0)],
        What::Zone(op) if !op.writes() => one(Op::Zone(op), 0),
        // An append has one place, so it is not taken apart; too large a one the device refuses.
        What::Zone(op) => {
            let sectors = u32::try_from(rq.sectors).unwrap_or(u32::MAX);
            vec![DevRequest {
                data: rq.data.clone(),
                flags: flags(rq.fua && limits.fua),
                ..device_request(0, Op::Zone(op), rq.at, sectors)
            }]
        }
        What::Discard => pieces(rq, u64::from(u32::MAX) / PAGE_SECTORS * PAGE_SECTORS)
            .map(|(at, n)| device_request(0, Op::Discard, at, n))
            .collect(),
        What::WriteZeroes { unmap: true } if discards_to_zero(limits, rq.at, rq.sectors) => {
            pieces(rq, u64::from(u32::MAX) / PAGE_SECTORS * PAGE_SECTORS)
                .map(|(at, n)| device_request(0, Op::Discard, at, n))
                .collect()
        }
        What::Read => pieces(rq, most(limits, false))
            .map(|(at, n)| device_request(0, Op::Read, at, n))
            .collect(),
        What::Write | What::WriteZeroes { .. } => {
            // Zeroes are one segment, whatever their length.
            let most = most(limits, rq.what == What::Write);
            let mut data = Data { slices: &rq.data, slice: 0, off: 0 };
            pieces(rq, most)
                .map(|(at, n)| DevRequest {
                    data: match rq.what {
                        What::Write => data.take(u64::from(n) * SECTOR_BYTES),
                        _ => vec![Slice::zero((u64::from(n) * SECTOR_BYTES) as u32)],
                    },
                    flags: flags(rq.fua && limits.fua),
                    ..device_request(0, Op::Write, at, n)
                })
                .collect()
        }
    }
}

/// Is a discard of just this range the same as zeroes?
fn discards_to_zero(limits: &Limits, at: Sector, sectors: u64) -> bool {
    let unit = u64::from(limits.discard_granularity_sectors.max(1));
    limits.discard
        && limits.discard_zeroes
        && at.0.is_multiple_of(unit)
        && sectors.is_multiple_of(unit)
}

/// Sectors of a part at most: whole blocks, as many segments as the device takes.
fn most(limits: &Limits, segmented: bool) -> u64 {
    let unit = (u64::from(limits.logical_bytes) / SECTOR_BYTES).max(1);
    let mut most = u64::from(limits.max_sectors);
    if segmented {
        // The first of them may begin inside a page.
        most = most.min(u64::from(limits.max_segments.saturating_sub(1)).max(1) * PAGE_SECTORS);
    }
    // What a slice of zeroes can say.
    (most.min(u64::from(u32::MAX) / SECTOR_BYTES) / unit * unit).max(unit)
}

/// (first sector, sectors) of each piece of at most `most`.
fn pieces(rq: &Request, most: u64) -> impl Iterator<Item = (Sector, u32)> {
    let (start, end) = (rq.at.0, rq.at.0 + rq.sectors);
    // Pieces end where pages do, if they can.
    let step = if most > PAGE_SECTORS { most / PAGE_SECTORS * PAGE_SECTORS } else { most };
    let first = if step > PAGE_SECTORS { step - start % PAGE_SECTORS } else { step };
    let mut at = start;
    std::iter::from_fn(move || {
        let n = (end - at).min(if at == start { first } else { step });
        let piece = (Sector(at), n as u32);
        at += n;
        (n > 0).then_some(piece)
    })
}

/// Slices, from which bytes are taken off the front.
struct Data<'a> {
    slices: &'a [Slice],
    slice: usize,
    off: u32,
}

impl Data<'_> {
    fn take(&mut self, bytes: u64) -> Vec<Slice> {
        let mut out = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let Some(slice) = self.slices.get(self.slice) else { break };
            let n = u64::from(slice.len() - self.off).min(left) as u32;
            out.push(match n == slice.len() {
                true => slice.clone(),
                false => slice.sub(self.off, n),
            });
            left -= u64::from(n);
            self.off += n;
            if self.off == slice.len() {
                self.slice += 1;
                self.off = 0;
            }
        }
        out
    }
}

/// The name of what a request does, as blktrace has it (`RWBS`).
pub(super) fn rwbs(what: What, fua: bool) -> &'static str {
    match (what, fua) {
        (What::Read, _) => "R",
        (What::Write | What::WriteZeroes { .. }, false) => "W",
        (What::Write | What::WriteZeroes { .. }, true) => "WF",
        (What::Flush, _) => "F",
        (What::Discard, _) => "D",
        (What::Zone(ZoneOp::Append), _) => "ZA",
        (What::Zone(_), _) => "ZR",
    }
}
