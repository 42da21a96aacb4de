//! The block traces of MSR Cambridge, read.
//!
//! Picture:    `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: a time of Windows
//!             (100 ns since 1601), names, `Read` or `Write`, bytes, and again 100 ns.
//! Laws:       a device is called `host.disk`. What does not begin or end with a sector is taken
//!             with the sectors around it.
//! Source:     the README of the traces (SNIA IOTTA 388).

use wp_base::Sector;
use wp_base::event::{Flags, Op};

use crate::blkparse::shortened;
use crate::error::{Place, Wrong};
use crate::item::{Event, Item, Names, Skip, Step};
use crate::lines::{digits, sectors_of};

/// Nanoseconds of a tick.
const TICK_NS: u64 = 100;
/// How a first line begins that says what the columns are.
pub(crate) const TITLE: &str = "Timestamp,";

/// What a line says.
pub(crate) fn line(text: &str, place: Place, names: &mut Names) -> Result<Item, Wrong> {
    let wrong = |what: &str| {
        let what = format!("{what}: `{}`", shortened(text));
        let help = "expected `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`";
        Wrong::new(place, what, help)
    };
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [time, host, disk, kind, offset, size, response] = fields[..] else {
        return Err(wrong("not seven fields"));
    };
    let ticks = |text: &str| digits::<u64>(text).and_then(|t| t.checked_mul(TICK_NS));
    let at_ns = ticks(time).ok_or_else(|| wrong("no time"))?;
    let took_ns = ticks(response).ok_or_else(|| wrong("no response time"))?;
    let disk = digits::<u32>(disk).ok_or_else(|| wrong("no disk number"))?;
    let op = match kind {
        "Read" => Op::Read,
        "Write" => Op::Write,
        _ => return Err(wrong("neither Read nor Write")),
    };
    let (Some(offset), Some(size)) = (digits(offset), digits::<u64>(size)) else {
        return Err(wrong("no offset and size"));
    };
    if size == 0 {
        return Ok(Item::Skip(Skip::NoData, 1));
    }
    let (first, sectors) = sectors_of(offset, size).ok_or_else(|| wrong("too long"))?;
    let done_ns = at_ns.checked_add(took_ns).ok_or_else(|| wrong("no response time"))?;
    Ok(Item::Event(Event {
        at_ns,
        step: Step::Whole { done_ns: Some(done_ns) },
        op,
        zeroes: false,
        flags: Flags::NONE,
        at: Sector(first),
        sectors,
        device: names.of_text(&format!("{host}.{disk}"), place)?,
        file: 0,
        place,
    }))
}
