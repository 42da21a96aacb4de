//! DiskSim's ASCII traces, read.
//!
//! Picture:    `time devno blkno size flags`: milliseconds with a fraction, a number, 512-byte
//!             blocks, and flags in hexadecimal whose lowest bit says that it reads.
//! Left out:   what the other flags say of the host (time-critical, …). Discards and flushes: the
//!             format has none.
//! Source:     DiskSim 4.0 reference manual, "Input format: ascii".

use wp_base::Sector;
use wp_base::event::{Flags, Op};

use crate::blkparse::shortened;
use crate::error::{Place, Wrong};
use crate::item::{Event, Item, Names, Skip, Step};
use crate::lines::{decimal, digits};

const MILLISECOND_NS: u64 = 1_000_000;
/// The flag of a read; without it a request writes.
const READ: u64 = 1;

/// What a line says.
pub(crate) fn line(text: &str, place: Place, names: &mut Names) -> Result<Item, Wrong> {
    let wrong = |what: &str| {
        let what = format!("{what}: `{}`", shortened(text));
        Wrong::new(place, what, "expected `milliseconds device block blocks flags`")
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [time, device, block, blocks, flags] = words[..] else {
        return Err(wrong("not five fields"));
    };
    let at_ns = decimal(time, MILLISECOND_NS).ok_or_else(|| wrong("no time"))?;
    let number = digits::<u32>(device).ok_or_else(|| wrong("no device number"))?;
    let at = digits(block).ok_or_else(|| wrong("no block number"))?;
    let sectors = digits(blocks).ok_or_else(|| wrong("no number of blocks"))?;
    let digits_of_flags = flags.strip_prefix("0x").unwrap_or(flags);
    let is_hex =
        !digits_of_flags.is_empty() && digits_of_flags.bytes().all(|b| b.is_ascii_hexdigit());
    let flags = u64::from_str_radix(digits_of_flags, 16).ok().filter(|_| is_hex);
    let flags = flags.ok_or_else(|| wrong("no flags"))?;
    if sectors == 0 {
        return Ok(Item::Skip(Skip::NoData, 1));
    }
    Ok(Item::Event(Event {
        at_ns,
        step: Step::Whole { done_ns: None },
        op: if flags & READ != 0 { Op::Read } else { Op::Write },
        zeroes: false,
        flags: Flags::NONE,
        at: Sector(at),
        sectors,
        device: names.of_text(&number.to_string(), place)?,
        file: 0,
        place,
    }))
}
