//! Binary blktrace records, version 7: what `blkparse`, `btt` and fio read.
//!
//! Formats: `blktrace_api.h`. A record is 48 bytes and `pdu_len` bytes behind them ([`Header`]: the
//! writer and both readers have it in common). Files of big-endian machines are read. The stream
//! starts with a message at time 0, because blkparse counts times from the first record, and names
//! every process before its first event, or blkparse would print none.
//! Left out: several CPUs when writing (all is CPU 0). Names of tasks are cut to 15 bytes, as the
//!           kernel's are.

use std::collections::BTreeMap;
use std::fmt;

use wp_base::event::{BlockAction, Event, Flags, Op, Record, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_block::trace::TraceDevice;

mod record;
mod stream;

use record::HEADER_BYTES;
pub use record::begins;
pub use record::{Header, Raw};
pub(crate) use stream::Records;

use crate::error::Place;

const COMM_BYTES: usize = 16;

// Categories: the upper half of an action.
const READ: u32 = 1 << 16;
const WRITE: u32 = 2 << 16;
const FLUSH: u32 = 4 << 16;
const SYNC: u32 = 8 << 16;
const QUEUE: u32 = 16 << 16;
const REQUEUE: u32 = 32 << 16;
const ISSUE: u32 = 64 << 16;
const COMPLETE: u32 = 128 << 16;
/// A driver's own command: neither sectors nor direction mean what they do elsewhere.
const PASSTHROUGH: u32 = 512 << 16;
const NOTIFY: u32 = 1024 << 16;
const AHEAD: u32 = 2048 << 16;
const META: u32 = 4096 << 16;
const DISCARD: u32 = 8192 << 16;
const FUA: u32 = 32768 << 16;

/// `__BLK_TA_CGROUP`: the number of a control group stands before what else follows.
const CGROUP: u32 = 1 << 8;

const NOTIFY_PROCESS: u32 = NOTIFY;
const NOTIFY_MESSAGE: u32 = NOTIFY | 2;
/// What the message at time 0 says.
const MESSAGE: &[u8] = b"writepath";
/// Minor numbers have 20 bits in the kernel's own device numbers.
const MINOR_BITS: u32 = 20;

/// Code and category of each action.
const ACTIONS: [(BlockAction, u32); 12] = [
    (BlockAction::Queue, 1 | QUEUE),
    (BlockAction::BackMerge, 2 | QUEUE),
    (BlockAction::FrontMerge, 3 | QUEUE),
    (BlockAction::GetRequest, 4 | QUEUE),
    (BlockAction::Requeue, 6 | REQUEUE),
    (BlockAction::Issue, 7 | ISSUE),
    (BlockAction::Complete, 8 | COMPLETE),
    (BlockAction::Plug, 9 | QUEUE),
    (BlockAction::Unplug, 10 | QUEUE),
    (BlockAction::Insert, 12 | QUEUE),
    (BlockAction::Split, 13),
    (BlockAction::Remap, 15 | QUEUE),
];
const FLAG_BITS: [(Flags, u32); 5] = [
    (Flags::PREFLUSH, FLUSH),
    (Flags::FUA, FUA),
    (Flags::SYNC, SYNC),
    (Flags::META, META),
    (Flags::RAHEAD, AHEAD),
];

/// Why bytes are no trace of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damaged {
    /// Byte at which the record starts.
    pub offset: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for Damaged {}

/// The code of an action, without its categories.
fn code(action: u32) -> u32 {
    action & 0xff
}

fn device_number(major: u32, minor: u32) -> u32 {
    major << MINOR_BITS | minor
}

/// The block events of `records` as the bytes of one `<name>.blktrace.0`.
///
/// Processes are numbered as in `wp_block::trace::blkparse`. A request of 4 GiB or more is written
/// as the largest whole number of sectors that the format holds.
pub fn write(records: &[Record], device: TraceDevice) -> Vec<u8> {
    let TraceDevice { major, minor, partition_minor } = device;
    let whole = device_number(major, minor);
    let mut out = Vec::new();
    let note = |action, pid, pdu: &[u8]| Raw {
        sequence: 0,
        at: Time::ZERO,
        sector: Sector(0),
        bytes: 0,
        action,
        pid,
        device: whole,
        cpu: 0,
        error: 0,
        pdu: pdu.to_vec(),
    };
    note(NOTIFY_MESSAGE, 0, MESSAGE).put(&mut out);
    let mut pids: BTreeMap<&str, u32> = BTreeMap::from([("swapper", 0)]);
    note(NOTIFY_PROCESS, 0, &comm("swapper")).put(&mut out);
    let mut sequence = 0;
    for r in records {
        let Event::Block { action, op, flags, at, sectors, extra } = r.event else { continue };
        sequence += 1;
        let next = 1000 + pids.len() as u32;
        let pid = *pids.entry(&r.task).or_insert_with(|| {
            note(NOTIFY_PROCESS, next, &comm(&r.task)).put(&mut out);
            next
        });
        let (_, code) =
            ACTIONS.into_iter().find(|(a, _)| *a == action).expect("the table has every action");
        let queue = matches!(action, BlockAction::Plug | BlockAction::Unplug);
        let categories = if queue { READ } else { categories(op, flags) };
        let pdu = match action {
            BlockAction::Unplug => u64::from(sectors).to_be_bytes().to_vec(),
            BlockAction::Split => extra.to_be_bytes().to_vec(),
            BlockAction::Remap => {
                let mut pdu = device_number(major, partition_minor).to_be_bytes().to_vec();
                pdu.extend_from_slice(&whole.to_be_bytes());
                pdu.extend_from_slice(&extra.to_be_bytes());
                pdu
            }
            _ => Vec::new(),
        };
        let bytes = if queue { 0 } else { bytes_of(sectors) };
        let raw = Raw {
            sequence,
            at: r.at,
            sector: at,
            bytes,
            action: code | categories,
            pid,
            device: whole,
            cpu: 0,
            error: 0,
            pdu,
        };
        raw.put(&mut out);
    }
    out
}

fn bytes_of(sectors: u32) -> u32 {
    let sector = SECTOR_BYTES as u32;
    sectors.min(u32::MAX / sector) * sector
}

fn comm(task: &str) -> [u8; COMM_BYTES] {
    let mut out = [0; COMM_BYTES];
    let n = task.len().min(COMM_BYTES - 1);
    out[..n].copy_from_slice(&task.as_bytes()[..n]);
    out
}

fn categories(op: Op, flags: Flags) -> u32 {
    let direction = match op {
        Op::Read => READ,
        Op::Write | Op::Flush => WRITE,
        Op::Discard => WRITE | DISCARD,
        // By the parity of their numbers (`op_is_write()`), which is all that a file keeps of them.
        Op::Zone(ZoneOp::Open | ZoneOp::Finish | ZoneOp::Report) => READ,
        Op::Zone(_) => WRITE,
    };
    let set = FLAG_BITS.into_iter().filter(|(flag, _)| flags.has(*flag));
    set.fold(direction, |bits, (_, bit)| bits | bit)
}

/// The records of a file. Errors: a record that is cut off, another magic number or version.
pub fn read(bytes: &[u8]) -> Result<Vec<Raw>, Damaged> {
    let mut records = Records::new(bytes);
    let mut out = Vec::new();
    loop {
        match records.next_record() {
            Ok(Some((_, raw))) => out.push(raw),
            Ok(None) => return Ok(out),
            Err(e) => {
                let Place::Byte(offset) = e.place else { unreachable!("a binary file has bytes") };
                return Err(Damaged { offset: offset as usize, what: e.what });
            }
        }
    }
}

/// A file's block events. Notes become names of tasks; what the format does not hold (the duration
/// at a completion, priorities) is 0. Errors: those of [`read`], and an action that is none of
/// ours.
pub fn records(bytes: &[u8]) -> Result<Vec<Record>, Damaged> {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut out = Vec::new();
    let mut offset = 0;
    for raw in read(bytes)? {
        let wrong = |what: &str| Damaged { offset, what: what.to_owned() };
        let length = HEADER_BYTES + raw.pdu.len();
        if raw.action & NOTIFY != 0 {
            if raw.action & !CGROUP == NOTIFY_PROCESS {
                let end = raw.pdu.iter().position(|&b| b == 0).unwrap_or(raw.pdu.len());
                let name = String::from_utf8_lossy(&raw.pdu[..end]).into_owned();
                names.insert(raw.pid, name);
            }
        } else {
            let action = ACTIONS
                .into_iter()
                .find(|(_, known)| code(*known) == code(raw.action))
                .map(|(action, _)| action)
                .ok_or_else(|| wrong(&format!("unknown action {:#x}", raw.action)))?;
            out.push(Record {
                at: raw.at,
                task: names.get(&raw.pid).map_or("", String::as_str).into(),
                event: event(&raw, action).ok_or_else(|| wrong("too few bytes follow it"))?,
            });
        }
        offset += length;
    }
    Ok(out)
}

fn event(raw: &Raw, action: BlockAction) -> Option<Event> {
    let pdu = raw.pdu.get(stream::cgroup_bytes(raw.action)..)?;
    let big = |at: usize| Some(u64::from_be_bytes(pdu.get(at..at + 8)?.try_into().ok()?));
    let mut sectors = raw.bytes / SECTOR_BYTES as u32;
    let mut extra = 0;
    match action {
        BlockAction::Unplug => sectors = u32::try_from(big(0)?).ok()?,
        BlockAction::Split => extra = big(0)?,
        BlockAction::Remap => extra = big(8)?,
        _ => {}
    }
    let queue = matches!(action, BlockAction::Plug | BlockAction::Unplug);
    let flags = stream::flags(raw.action);
    let op = match raw.action {
        a if a & DISCARD != 0 => Op::Discard,
        // The flush command: an empty write.
        a if a & FLUSH != 0 && raw.bytes == 0 => Op::Flush,
        a if a & WRITE != 0 || queue => Op::Write,
        _ => Op::Read,
    };
    Some(Event::Block { action, op, flags, at: raw.sector, sectors, extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Record> {
        let event = |n: u64, task: &str, action, flags, sectors, extra| Record {
            at: Time(n * 1000 + 1),
            task: task.into(),
            event: Event::Block { action, op: Op::Write, flags, at: Sector(n), sectors, extra },
        };
        let mut out: Vec<Record> = Vec::new();
        for (n, (action, _)) in ACTIONS.into_iter().enumerate() {
            let extra = u64::from(action == BlockAction::Remap) * 77;
            let flags = if matches!(action, BlockAction::Plug | BlockAction::Unplug) {
                Flags::NONE
            } else {
                Flags::SYNC | Flags::META
            };
            let sectors = if action == BlockAction::Plug { 0 } else { 8 };
            out.push(event(n as u64, "jbd2/sdb1-8", action, flags, sectors, extra));
        }
        out
    }

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = write(&sample(), TraceDevice::default());
        assert_eq!(records(&bytes).expect("undamaged"), sample());
        assert_eq!(read(&bytes).expect("undamaged")[0].pdu, MESSAGE);
    }

    #[test]
    fn a_file_cut_off_anywhere_is_refused_with_the_place_or_ends_between_records() {
        let bytes = write(&sample(), TraceDevice::default());
        let mut whole = 0;
        for end in 0..bytes.len() {
            match records(&bytes[..end]) {
                Ok(_) => whole += 1,
                Err(e) => assert!(e.offset <= end && e.to_string().contains("byte "), "{e}"),
            }
        }
        assert_eq!(whole, read(&bytes).expect("undamaged").len());
    }

    #[test]
    fn no_changed_byte_makes_the_reader_panic() {
        let bytes = write(&sample(), TraceDevice::default());
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0xff, bytes[at] ^ 1] {
                let mut changed = bytes.clone();
                changed[at] = value;
                drop(records(&changed));
            }
        }
        let mut other = bytes;
        other[0] = 2;
        assert!(read(&other).expect_err("another version").what.contains("version 2"));
    }
}
