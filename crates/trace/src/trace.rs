//! A trace: one file or several, in the order of time.
//!
//! Picture:    file -> parser of its format -> window -> merge -> items in the order of time.
//! Invariants: 1. memory does not grow with the length of a file: a window holds `WINDOW` events;
//!             2. items of one instant keep the order of their file, and files the order in which
//!                they were given.
//! Left out:   order over more than a window. Kernels write what each CPU saw, and tools sort it
//!             within buffers; an event that comes later than that is given where it stands.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufReader, Cursor, Read};

use crate::blktrace::Records;
use crate::columns::{self, Columns};
use crate::error::{Place, TraceError, Wrong};
use crate::format::{self, Format};
use crate::item::{Event, Item, Names, Skip, Skipped};
use crate::lines::Source;
use crate::{biosnoop, blkparse, dialects, ftrace, iolog, vscsi};

/// Events of a file that are put in order: what a CPU's interrupts and its tasks record of one
/// moment is far less out of order than that.
const WINDOW: usize = 1024;
/// Bytes at the beginning of a file by which its format is told.
const HEAD_BYTES: u64 = 64 * 1024;

/// Reads one file of one format.
pub(crate) trait Parse {
    /// What comes next; `None` at the end.
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong>;

    /// What somebody who reads the numbers should know of how this was read.
    fn note(&self) -> Option<&'static str> {
        None
    }
}

/// Something in the window.
struct Held {
    at_ns: u64,
    order: u64,
    item: Item,
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.order)
    }
}
impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Held {}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

struct Part<'a> {
    name: String,
    parser: Box<dyn Parse + 'a>,
    window: BinaryHeap<Reverse<Held>>,
    order: u64,
    ended: bool,
    /// Told when what was read before has been given.
    wrong: Option<Wrong>,
}

/// A file to read: its name for messages, and its bytes.
pub struct File<'a> {
    /// As it is named in messages.
    pub name: String,
    /// Where its bytes come from.
    pub from: Box<dyn Read + 'a>,
}

/// A trace that is being read.
pub struct Trace<'a> {
    parts: Vec<Part<'a>>,
    format: Format,
    units: String,
    names: Names,
    skipped: Skipped,
    torn_ok: bool,
}

impl<'a> Trace<'a> {
    /// Begins to read files that make one trace; all are of one format, which the first one tells
    /// if it is not given. Several files are what several CPUs recorded.
    ///
    /// With `torn_ok` a file may end within its last record, which is left out then.
    /// Errors: a file that cannot be read, a format that is not recognised.
    pub fn open(
        files: Vec<File<'a>>,
        format: Option<Format>,
        torn_ok: bool,
    ) -> Result<Trace<'a>, TraceError> {
        Trace::open_as(files, format, None, torn_ok)
    }

    /// As [`Trace::open`], of files whose lines have these columns.
    pub fn open_columns(
        files: Vec<File<'a>>,
        columns: &Columns,
        torn_ok: bool,
    ) -> Result<Trace<'a>, TraceError> {
        Trace::open_as(files, Some(Format::Columns), Some(columns), torn_ok)
    }

    fn open_as(
        files: Vec<File<'a>>,
        format: Option<Format>,
        described: Option<&Columns>,
        torn_ok: bool,
    ) -> Result<Trace<'a>, TraceError> {
        let mut found = format;
        let mut parts = Vec::new();
        for File { name, mut from } in files {
            let mut head = Vec::new();
            if let Err(e) = (&mut from).take(HEAD_BYTES).read_to_end(&mut head) {
                return Err(Wrong::unreadable(Place::Byte(0), &e).of(&name));
            }
            let format = match found {
                Some(format) => format,
                None => format::detect(&head).map_err(|e| e.of(&name))?,
            };
            found = Some(format);
            let source: Source<'a> = Box::new(BufReader::with_capacity(
                HEAD_BYTES as usize,
                Cursor::new(head).chain(from),
            ));
            let parser: Box<dyn Parse + 'a> = match format {
                Format::Blktrace => Box::new(Records::new(source)),
                Format::Blkparse => Box::new(blkparse::Text::new(source)),
                Format::Ftrace => Box::new(ftrace::Text::new(source)),
                Format::Iolog => Box::new(iolog::Text::new(source)),
                Format::Biosnoop => Box::new(biosnoop::Text::new(source)),
                Format::Cloudphysics => Box::new(vscsi::Records::new(source)),
                of_columns => {
                    let columns = described.cloned().or_else(|| dialects::columns_of(of_columns));
                    let columns = columns.expect("every other format is a dialect");
                    Box::new(columns::Text::new(source, columns))
                }
            };
            parts.push(Part {
                name,
                parser,
                window: BinaryHeap::new(),
                order: 0,
                ended: false,
                wrong: None,
            });
        }
        let format = found.unwrap_or(Format::Blktrace);
        let units = described.map_or_else(|| format.units(), Columns::units);
        let (names, skipped) = (Names::default(), Skipped::default());
        Ok(Trace { parts, format, units, names, skipped, torn_ok })
    }

    /// The units of its times, addresses and sizes, for people.
    pub fn units(&self) -> &str {
        &self.units
    }

    /// The format that it is read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What somebody who reads the numbers should know of how it was read so far.
    pub fn notes(&self) -> Vec<String> {
        let note = |p: &Part<'_>| p.parser.note().map(|note| format!("{}: {note}", p.name));
        self.parts.iter().filter_map(note).collect()
    }

    /// The devices or files met so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// What was passed over so far.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    pub(crate) fn skip(&mut self, why: Skip) {
        self.skipped.add(why, 1);
    }

    /// An error about an event.
    pub fn error(&self, e: &Event, what: String, help: &str) -> TraceError {
        let file = self.parts.get(e.file as usize).map_or("", |p| p.name.as_str());
        Wrong::new(e.place, what, help).of(file)
    }

    /// The next event or mark; what is neither is counted. After an error comes nothing.
    pub fn next_item(&mut self) -> Option<Result<Item, TraceError>> {
        for index in 0..self.parts.len() {
            self.fill(index);
        }
        let first = |p: &Part<'_>| p.window.peek().map(|Reverse(h)| h.at_ns);
        let next =
            (0..self.parts.len()).filter_map(|i| first(&self.parts[i]).map(|at| (at, i))).min();
        if let Some((_, index)) = next {
            let Reverse(held) = self.parts[index].window.pop()?;
            return Some(Ok(held.item));
        }
        let broken = self.parts.iter_mut().find_map(|p| p.wrong.take().map(|w| w.of(&p.name)));
        if broken.is_some() {
            self.parts.iter_mut().for_each(|p| p.ended = true);
        }
        broken.map(Err)
    }

    /// Reads on until the window of a file is full, or it has ended.
    fn fill(&mut self, index: usize) {
        let part = &mut self.parts[index];
        while !part.ended && part.window.len() < WINDOW {
            let item = match part.parser.next_item(&mut self.names) {
                Ok(Some(item)) => item,
                Ok(None) => {
                    part.ended = true;
                    return;
                }
                Err(e) => {
                    part.ended = true;
                    if e.torn && self.torn_ok {
                        self.skipped.add(Skip::Torn, 1);
                    } else {
                        part.wrong = Some(e);
                    }
                    return;
                }
            };
            let (at_ns, item) = match item {
                Item::Skip(why, n) => {
                    self.skipped.add(why, n);
                    continue;
                }
                Item::Event(e) => (e.at_ns, Item::Event(Event { file: index as u32, ..e })),
                Item::Mark { at_ns, .. } => (at_ns, item),
            };
            part.order += 1;
            part.window.push(Reverse(Held { at_ns, order: part.order, item }));
        }
    }
}
