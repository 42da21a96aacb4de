//! CloudPhysics' traces: binary records of SCSI commands at a virtual disk, read.
//!
//! Picture:    version 1, 32 bytes: serial number, length, scatter-gather entries (4 bytes each),
//!             command, version (2 each), block, time (8 each). Version 2, 40 bytes: command,
//!             version (2 each), serial number, length, entries (4 each), block, time, response
//!             time (8 each). Little-endian; the version is the upper byte of its field.
//! Laws:       times are microseconds, blocks 512 bytes, lengths bytes. Reads and writes are told
//!             by the SCSI operation code; SYNCHRONIZE CACHE is a flush; other commands are counted
//!             and left out.
//! Left out:   the response time of version 2: no public text says its unit.
//! Source:     `vscsi_trace_format.h` and `vscsi.h` of libCacheSim, which CloudPhysics wrote, and
//!             its `scripts/traces` (times, blocks); T10's list of operation codes.

use wp_base::event::{Flags, Op};
use wp_base::{SECTOR_BYTES, Sector};

use crate::error::{Place, Wrong};
use crate::item::{Event, Item, Names, Skip, Step};
use crate::lines::{Source, sectors_of};
use crate::trace::Parse;

/// Nanoseconds of a microsecond.
const MICROSECOND_NS: u64 = 1_000;
/// Records at the beginning that must say their version.
const LOOKED_AT: usize = 64;

/// A version of the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    fn record_bytes(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    /// Where the fields are: command, version, length, block, time.
    fn fields(self) -> [usize; 5] {
        match self {
            Version::One => [12, 14, 4, 16, 24],
            Version::Two => [0, 2, 8, 16, 24],
        }
    }

    /// Does a record say that it is of this version, with a possible command?
    fn is_of(self, record: &[u8]) -> bool {
        let [command, version, ..] = self.fields();
        let number = if self == Version::One { 1 } else { 2 };
        record.get(version + 1) == Some(&number) && record.get(command + 1) == Some(&0)
    }

    /// By the first records of a file.
    fn of(head: &[u8]) -> Option<Version> {
        [Version::Two, Version::One].into_iter().find(|version| {
            let mut records = head.chunks_exact(version.record_bytes()).take(LOOKED_AT);
            // One record may be anything.
            let enough = head.len() >= 2 * version.record_bytes();
            enough && records.all(|record| version.is_of(record))
        })
    }
}

/// Does a file begin with such records?
pub(crate) fn begins(head: &[u8]) -> bool {
    Version::of(head).is_some()
}

/// What an operation code of SCSI does.
fn operation(code: u16) -> Option<Op> {
    match code {
        // READ (6), (10), (12), (16).
        0x08 | 0x28 | 0xA8 | 0x88 => Some(Op::Read),
        // WRITE (6), (10), (12), (16), and WRITE AND VERIFY (10), (12), (16).
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => Some(Op::Write),
        // SYNCHRONIZE CACHE (10), (16).
        0x35 | 0x91 => Some(Op::Flush),
        _ => None,
    }
}

/// Records of a file.
pub(crate) struct Records<'a> {
    from: Source<'a>,
    version: Option<Version>,
    offset: u64,
}

impl<'a> Records<'a> {
    pub fn new(from: Source<'a>) -> Records<'a> {
        Records { from, version: None, offset: 0 }
    }

    /// The version, which the first records say. Errors: they say none.
    fn version(&mut self) -> Result<Option<Version>, Wrong> {
        if self.version.is_some() {
            return Ok(self.version);
        }
        let place = Place::Byte(0);
        let head = self.from.fill_buf().map_err(|e| Wrong::unreadable(place, &e))?;
        if head.is_empty() {
            return Ok(None);
        }
        if head.len() < 2 * Version::Two.record_bytes() && Version::of(head).is_none() {
            return Err(Wrong::torn(place, "fewer than two records, which say the version"));
        }
        self.version = Version::of(head);
        match self.version {
            None => {
                let what = "its records are neither of version 1 nor of version 2";
                Err(Wrong::new(place, what, "expected a vscsi trace of CloudPhysics"))
            }
            some => Ok(some),
        }
    }
}

fn number<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

impl Parse for Records<'_> {
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong> {
        let Some(version) = self.version()? else { return Ok(None) };
        let place = Place::Byte(self.offset);
        let mut record = [0; 40];
        let record = &mut record[..version.record_bytes()];
        let mut read = 0;
        while read < record.len() {
            match self.from.read(&mut record[read..]) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Wrong::unreadable(place, &e)),
            }
        }
        if read == 0 {
            return Ok(None);
        }
        if read < record.len() {
            let what = format!("a record of {} bytes is truncated after {read}", record.len());
            return Err(Wrong::torn(place, what));
        }
        self.offset += record.len() as u64;
        let wrong =
            |what: String| Wrong::new(place, what, "expected a vscsi trace of CloudPhysics");
        if !version.is_of(record) {
            return Err(wrong("a record of another version".to_owned()));
        }
        let [command, _, length, block, time] = version.fields();
        let code = u16::from_le_bytes(number(record, command));
        let bytes = u64::from(u32::from_le_bytes(number(record, length)));
        let block = u64::from_le_bytes(number(record, block));
        let us = u64::from_le_bytes(number(record, time));
        let Some(op) = operation(code) else {
            return Ok(Some(Item::Skip(Skip::DriverCommand, 1)));
        };
        let is_flush = op == Op::Flush;
        if bytes == 0 && !is_flush {
            return Ok(Some(Item::Skip(Skip::NoData, 1)));
        }
        let at_ns = us.checked_mul(MICROSECOND_NS);
        let at_ns = at_ns.ok_or_else(|| wrong(format!("{us} us is no time")))?;
        let range = block.checked_mul(SECTOR_BYTES).and_then(|at| sectors_of(at, bytes));
        let (at, sectors) = range.ok_or_else(|| wrong(format!("block {block} is no block")))?;
        Ok(Some(Item::Event(Event {
            at_ns,
            step: Step::Whole { done_ns: None },
            op,
            zeroes: false,
            flags: Flags::NONE,
            at: Sector(if is_flush { 0 } else { at }),
            sectors: if is_flush { 0 } else { sectors },
            device: names.of_text("0", place)?,
            file: 0,
            place,
        })))
    }
}
