//! blkparse's default text, read.
//!
//! Picture:    `maj,min cpu sequence seconds.nanoseconds pid action rwbs`, and by action
//!             `sector + sectors [task]`, `[task]`, …; behind them a summary, which is passed over.
//!             The listing of `trace --to paper` and of blkparse's
//!             `-f "%T.%9t %a %d %S + %n [%C]\n"` is read too: `seconds.nanoseconds action rwbs
//!             sector + sectors [task]`. It names no device: all is of `0,0`.
//! Source:     blkparse(1); its output on recorded traces.

use wp_base::Sector;
use wp_base::event::Op;

use crate::error::{Place, Wrong};
use crate::item::{Event, Item, Names, Skip, Step};
use crate::lines::{Lines, Source, decimal, digits, major_minor, word};
use crate::rwbs;
use crate::trace::Parse;

const SECOND_NS: u64 = 1_000_000_000;
/// How lines of the summary begin, which stands behind all events.
const SUMMARY: [&str; 5] = ["CPU", "Total (", "Throughput (", "Events (", "Skips:"];
/// How lines begin that blkparse prints before events when it is asked for more.
const BEFORE: [&str; 3] = ["Input file ", "Trace started at ", "blktrace version"];

/// A text of blkparse.
pub(crate) struct Text<'a> {
    lines: Lines<'a>,
    in_summary: bool,
}

impl<'a> Text<'a> {
    pub fn new(from: Source<'a>) -> Text<'a> {
        Text { lines: Lines::new(from), in_summary: false }
    }
}

impl Parse for Text<'_> {
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong> {
        while self.lines.advance()? {
            let text = self.lines.text();
            if text.starts_with('#') {
                return Ok(Some(Item::Skip(Skip::Note, 1)));
            }
            if SUMMARY.iter().any(|s| text.starts_with(s)) {
                self.in_summary = true;
            }
            // Behind a summary the output of another blkparse may begin.
            if self.in_summary
                && let Ok(Some(item)) = line(text, self.lines.place(), names)
            {
                self.in_summary = false;
                return Ok(Some(item));
            }
            if self.in_summary || text.is_empty() || BEFORE.iter().any(|b| text.starts_with(b)) {
                continue;
            }
            return match line(text, self.lines.place(), names) {
                Ok(Some(item)) => Ok(Some(item)),
                Ok(None) => Err(self.lines.wrong(
                    format!("not a blkparse line: `{}`", shortened(text)),
                    "supported: its default format, and -f \"%T.%9t %a %d %S + %n [%C]\\n\"",
                )),
                Err(e) => Err(e),
            };
        }
        Ok(None)
    }
}

/// The beginning of a line, for a message.
pub(crate) fn shortened(text: &str) -> &str {
    text.char_indices().nth(80).map_or(text, |(end, _)| &text[..end])
}

/// What a line says; `None` if it is none of blkparse's.
pub(crate) fn line(text: &str, place: Place, names: &mut Names) -> Result<Option<Item>, Wrong> {
    let (first, rest) = word(text);
    if first.contains('.') {
        let Some(at_ns) = decimal(first, SECOND_NS) else { return Ok(None) };
        return event(rest, at_ns, (0, 0), place, names);
    }
    let Some(device) = major_minor(first) else { return Ok(None) };
    let (cpu, rest) = word(rest);
    let (sequence, rest) = word(rest);
    let (time, rest) = word(rest);
    let (pid, rest) = word(rest);
    let numbers = [cpu, sequence, pid].iter().all(|w| digits::<u64>(w).is_some());
    match decimal(time, SECOND_NS) {
        Some(at_ns) if numbers => event(rest, at_ns, device, place, names),
        _ => Ok(None),
    }
}

/// `action rwbs …` of an event; also what the kernel's own `blk` tracer prints.
pub(crate) fn event(
    text: &str,
    at_ns: u64,
    device: (u32, u32),
    place: Place,
    names: &mut Names,
) -> Result<Option<Item>, Wrong> {
    let (action, rest) = word(text);
    let (letters, rest) = word(rest);
    let step = match action {
        "Q" => Step::Queue,
        "D" => Step::Issue,
        "C" => Step::Complete,
        "m" => return Ok(Some(Item::Mark { at_ns, text: rest.trim().to_owned() })),
        _ if (1..=2).contains(&action.len()) && action.bytes().all(|b| b.is_ascii_alphabetic()) => {
            return Ok(Some(Item::Skip(Skip::Action, 1)));
        }
        _ => return Ok(None),
    };
    let rest = rest.trim_start();
    let Some((at, sectors)) = range(rest) else {
        // `sector + bytes (bytes of a command)`, or the command alone.
        let is_command = rest.contains('(');
        return Ok(is_command.then_some(Item::Skip(Skip::DriverCommand, 1)));
    };
    request(letters, Fields { at_ns, step, at, sectors, device }, place, names)
}

/// `sector + sectors …`; a sector alone, or nothing but `[task]`, has no sectors.
pub(crate) fn range(text: &str) -> Option<(u64, u64)> {
    if text.starts_with('[') {
        return Some((0, 0));
    }
    let (sector, rest) = word(text);
    let sector = digits(sector)?;
    let (plus, rest) = word(rest);
    if plus != "+" {
        return plus.starts_with('[').then_some((sector, 0));
    }
    let (sectors, _) = word(rest);
    Some((sector, digits(sectors)?))
}

/// What a line of a kernel's trace says of a request.
pub(crate) struct Fields {
    pub at_ns: u64,
    pub step: Step,
    pub at: u64,
    pub sectors: u64,
    pub device: (u32, u32),
}

/// An event of a request with these letters.
pub(crate) fn request(
    letters: &str,
    t: Fields,
    place: Place,
    names: &mut Names,
) -> Result<Option<Item>, Wrong> {
    let Some((named, flags)) = rwbs::parse(letters) else {
        let what = format!("`{letters}` names no operation");
        return Err(Wrong::new(place, what, "supported: the RWBS letters of blkparse(1)"));
    };
    let Ok(sectors) = u32::try_from(t.sectors) else {
        let what = format!("a request of {} sectors", t.sectors);
        return Err(Wrong::new(place, what, "a request has less than 2 TiB"));
    };
    let (op, zeroes) = match rwbs::of_step(t.step, named, flags, t.at, sectors) {
        Ok(found) => found,
        Err(why) => return Ok(Some(Item::Skip(why, 1))),
    };
    let is_flush = op == Op::Flush;
    Ok(Some(Item::Event(Event {
        at_ns: t.at_ns,
        step: t.step,
        op,
        zeroes,
        flags,
        at: Sector(if is_flush { 0 } else { t.at }),
        sectors: if is_flush { 0 } else { sectors },
        device: names.of_numbers(t.device.0, t.device.1, place)?,
        file: 0,
        place,
    })))
}
