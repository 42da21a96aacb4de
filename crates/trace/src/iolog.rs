//! fio's iolog, versions 2 and 3, read.
//!
//! Picture:    `fio version 3 iolog`, then `time path action [offset length]`; version 2 has no
//!             time. Actions: add, open, close of a file; read, write, trim, sync, datasync; wait.
//! Laws:       times of version 3 are microseconds since the run began. A `wait` of version 2 gives
//!             the milliseconds since then, whatever the manual says: fio 3.33 with waits of 300,
//!             600 and 900 takes 0.8 s, and with 300 and 300 0.2 s. A file is a device here: a
//!             trace of several must be told which.
//!             What does not begin or end with a sector is taken with the sectors around it.
//! Source:     fio(1), "Trace file format v2" and "v3"; fio 3.33 run.

use wp_base::Sector;
use wp_base::event::{Flags, Op};

use crate::blkparse::shortened;
use crate::error::Wrong;
use crate::item::{Event, Item, Names, Skip, Step};
use crate::lines::{Lines, Source, digits, sectors_of, word};
use crate::trace::Parse;

/// How the first line begins.
pub(crate) const FIRST: &str = "fio version ";

/// A log of fio.
pub(crate) struct Text<'a> {
    lines: Lines<'a>,
    version: u32,
    /// Of version 2: what the last wait said.
    at_ns: u64,
}

impl<'a> Text<'a> {
    pub fn new(from: Source<'a>) -> Text<'a> {
        Text { lines: Lines::new(from), version: 0, at_ns: 0 }
    }

    fn begin(&mut self) -> Result<(), Wrong> {
        let text = self.lines.text();
        let version = text.strip_prefix(FIRST).and_then(|v| v.strip_suffix(" iolog"));
        match version.and_then(digits::<u32>) {
            Some(v @ 2..=3) => self.version = v,
            Some(v) => {
                return Err(self.lines.wrong(
                    format!("unsupported iolog version {v}"),
                    "supported: versions 2 and 3; fio --write_iolog writes 3",
                ));
            }
            None => {
                let what = format!("not the first line of an iolog: `{}`", shortened(text));
                return Err(self.lines.wrong(what, "expected `fio version 3 iolog`"));
            }
        }
        Ok(())
    }

    fn line(&mut self, names: &mut Names) -> Result<Item, Wrong> {
        let place = self.lines.place();
        let text = self.lines.text();
        let wrong = |what: &str| {
            let what = format!("{what}: `{}`", shortened(text));
            let expected = if self.version == 3 { "microseconds " } else { "" };
            Wrong::new(place, what, format!("expected `{expected}path action offset length`"))
        };
        let mut rest = text;
        let mut at_ns = self.at_ns;
        if self.version == 3 {
            let (time, after) = word(rest);
            let us = digits::<u64>(time).and_then(|us| us.checked_mul(1000));
            at_ns = us.ok_or_else(|| wrong("no time"))?;
            rest = after;
        }
        let (path, rest) = word(rest);
        let (action, rest) = word(rest);
        let op = match action {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Discard,
            "sync" | "datasync" => Op::Flush,
            "add" | "open" | "close" => return Ok(Item::Skip(Skip::Note, 1)),
            "wait" => {
                let (ms, _) = word(rest);
                let ms = digits::<u64>(ms).and_then(|ms| ms.checked_mul(1_000_000));
                let ms = ms.ok_or_else(|| wrong("no wait time"))?;
                self.at_ns = self.at_ns.max(ms);
                return Ok(Item::Skip(Skip::Note, 1));
            }
            _ => return Err(wrong("not an iolog action")),
        };
        let mut event = Event {
            at_ns,
            step: Step::Whole { done_ns: None },
            op,
            zeroes: false,
            flags: Flags::NONE,
            at: Sector(0),
            sectors: 0,
            device: names.of_text(path, place)?,
            file: 0,
            place,
        };
        if op == Op::Flush {
            return Ok(Item::Event(event));
        }
        let (offset, rest) = word(rest);
        let (length, behind) = word(rest);
        let (Some(offset), Some(length), "") =
            (digits(offset), digits::<u64>(length), behind.trim())
        else {
            return Err(wrong("no offset and length"));
        };
        if length == 0 {
            return Ok(Item::Skip(Skip::NoData, 1));
        }
        let range = sectors_of(offset, length).ok_or_else(|| wrong("too long"))?;
        (event.at, event.sectors) = (Sector(range.0), range.1);
        Ok(Item::Event(event))
    }
}

impl Parse for Text<'_> {
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong> {
        while self.lines.advance()? {
            if self.lines.text().starts_with('#') {
                return Ok(Some(Item::Skip(Skip::Note, 1)));
            }
            if self.version == 0 {
                self.begin()?;
            } else if !self.lines.text().is_empty() {
                return self.line(names).map(Some);
            }
        }
        Ok(None)
    }
}
