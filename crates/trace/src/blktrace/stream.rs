//! Records read one after the other, and what of them is a request.

use std::io::Read;

use wp_base::SECTOR_BYTES;
use wp_base::event::{Flags, Op};

use super::record::{HEADER_BYTES, Raw};
use super::{
    CGROUP, DISCARD, FLAG_BITS, FLUSH, MINOR_BITS, NOTIFY, NOTIFY_MESSAGE, PASSTHROUGH, WRITE, code,
};
use crate::error::{Place, Wrong};
use crate::item::{Event, Item, Names, Skip, Step};
use crate::rwbs::{self, Named};
use crate::trace::Parse;

/// Records of a file, in its order.
pub(crate) struct Records<R> {
    from: R,
    offset: u64,
}

impl<R: Read> Records<R> {
    pub fn new(from: R) -> Records<R> {
        Records { from, offset: 0 }
    }

    /// The next record, and the byte it starts at. Errors: one that is cut off, or none of version
    /// 7.
    pub fn next_record(&mut self) -> Result<Option<(u64, Raw)>, Wrong> {
        let at = self.offset;
        let place = Place::Byte(at);
        let mut header = [0; HEADER_BYTES];
        let n = self.fill(&mut header)?;
        if n == 0 {
            return Ok(None);
        }
        if n < HEADER_BYTES {
            let what = format!("a record of {HEADER_BYTES} bytes is truncated after {n}");
            return Err(Wrong::torn(place, what));
        }
        let (mut raw, length) = Raw::load(&header).map_err(|what| {
            Wrong::new(place, what, "blktrace of Linux 2.6.17 and later writes version 7")
        })?;
        raw.pdu.resize(length, 0);
        let mut pdu = std::mem::take(&mut raw.pdu);
        let n = self.fill(&mut pdu)?;
        if n < length {
            let what = format!("{length} bytes must follow the record, found {n}");
            return Err(Wrong::torn(place, what));
        }
        raw.pdu = pdu;
        Ok(Some((at, raw)))
    }

    /// Reads until `out` is full or the file ends.
    fn fill(&mut self, out: &mut [u8]) -> Result<usize, Wrong> {
        let mut n = 0;
        while n < out.len() {
            match self.from.read(&mut out[n..]) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let place = Place::Byte(self.offset);
                    return Err(Wrong::unreadable(place, &e));
                }
            }
        }
        self.offset += n as u64;
        Ok(n)
    }
}

impl<R: Read> Parse for Records<R> {
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong> {
        let Some((offset, raw)) = self.next_record()? else { return Ok(None) };
        if raw.action & NOTIFY != 0 {
            if raw.action & !CGROUP == NOTIFY_MESSAGE {
                let text = raw.pdu.get(cgroup_bytes(raw.action)..).unwrap_or_default();
                let text = String::from_utf8_lossy(text);
                let text = text.trim_end_matches('\0').to_owned();
                return Ok(Some(Item::Mark { at_ns: raw.at.0, text }));
            }
            return Ok(Some(Item::Skip(Skip::Note, 1)));
        }
        let step = match code(raw.action) {
            1 => Step::Queue,
            7 => Step::Issue,
            8 => Step::Complete,
            _ => return Ok(Some(Item::Skip(Skip::Action, 1))),
        };
        if raw.action & PASSTHROUGH != 0 {
            return Ok(Some(Item::Skip(Skip::DriverCommand, 1)));
        }
        let named = match raw.action {
            a if a & DISCARD != 0 => Named::Discard,
            a if a & WRITE != 0 => Named::Write,
            _ => Named::Read,
        };
        let flags = flags(raw.action);
        let sectors = raw.bytes.div_ceil(SECTOR_BYTES as u32);
        let (op, zeroes) = match rwbs::of_step(step, named, flags, raw.sector.0, sectors) {
            Ok(found) => found,
            Err(why) => return Ok(Some(Item::Skip(why, 1))),
        };
        let place = Place::Byte(offset);
        let (major, minor) = (raw.device >> MINOR_BITS, raw.device & ((1 << MINOR_BITS) - 1));
        let is_flush = op == Op::Flush;
        Ok(Some(Item::Event(Event {
            at_ns: raw.at.0,
            step,
            op,
            zeroes,
            flags,
            at: if is_flush { wp_base::Sector(0) } else { raw.sector },
            sectors: if is_flush { 0 } else { sectors },
            device: names.of_numbers(major, minor, place)?,
            file: 0,
            place,
        })))
    }
}

/// Bytes of a control group's number before what follows a record.
pub(super) fn cgroup_bytes(action: u32) -> usize {
    if action & CGROUP != 0 { 8 } else { 0 }
}

/// The flags that categories tell.
pub(super) fn flags(action: u32) -> Flags {
    let set = FLAG_BITS.into_iter().filter(|(_, bit)| action & bit != 0);
    let flags = set.fold(Flags::NONE, |flags, (flag, _)| flags | flag);
    debug_assert_eq!(action & FLUSH != 0, flags.has(Flags::PREFLUSH));
    flags
}
