//! Traces with one request a line, in columns that a description names.
//!
//! Picture:    `time:ns,lba:512,size:bytes,op` -> [`Columns`] -> fields of a line -> an event.
//! Laws:       1. every column that has a unit states it: there is no default;
//!             2. fields are separated by commas or semicolons if the first line has one, by blanks
//!                if not;
//!             3. a request that does not begin or end with a sector is taken with the sectors
//!                around it;
//!             4. a first line without a number where numbers belong is a title, and so is the same
//!                line further down (files one after the other).
//! Left out:   quoted fields, and addresses that count from a partition: --offset moves them.

use wp_base::Sector;
use wp_base::event::{Flags, Op};

use crate::blkparse::shortened;
use crate::error::{Place, Wrong};
use crate::item::{Event, Item, Names, Skip, Step};
use crate::lines::{Lines, Source, sectors_of, time_ns, whole};
use crate::rwbs;
use crate::trace::Parse;

/// Units of time: how they are written, and picoseconds.
const TIME_UNITS: [(&str, u64); 6] = [
    ("s", 1_000_000_000_000),
    ("ms", MILLISECOND_PS),
    ("us", 1_000_000),
    ("ns", 1_000),
    ("ps", 1),
    // A FILETIME of Windows.
    ("100ns", 100_000),
];
/// Picoseconds of a millisecond, the unit of DiskSim.
const MILLISECOND_PS: u64 = 1_000_000_000;
/// Largest block that an address or a size counts: a flash superblock is far smaller.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Most columns of a description.
const COLUMNS_MAX: usize = 64;

/// How a field names the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Codes {
    /// A word (`R`, `Write`), or the letters of blkparse.
    Words,
    /// A number each for some operations, in the order of [`OPS`].
    Numbers([Option<u64>; 4]),
    /// A hexadecimal number whose lowest bit says that it reads.
    Bit0,
}

/// The operations and the letters that stand for them in a description.
const OPS: [(&str, Op); 4] =
    [("r", Op::Read), ("w", Op::Write), ("d", Op::Discard), ("f", Op::Flush)];

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    /// When the request was sent; picoseconds of a unit.
    Time(u64),
    /// How long it took; picoseconds of a unit. `optional`: the field may be empty.
    Took { unit_ps: u64, optional: bool },
    /// Its address; bytes of a unit.
    Lba(u64),
    /// Its length; bytes of a unit.
    Size(u64),
    /// What it does. `optional`: a request whose field is empty is counted and left out.
    Op { codes: Codes, optional: bool },
    /// The device; several are joined by a dot.
    Device,
    /// Nothing that is wanted.
    Other,
}

/// What the columns of a trace hold, and in which units.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    text: String,
    columns: Vec<Column>,
    /// More fields may follow.
    is_open: bool,
}

impl Columns {
    /// How a description is written, for messages.
    pub const SYNTAX: &str = "columns: time:UNIT lba:UNIT size:UNIT op dev took:UNIT - (any) … \
        (more); UNIT of time and took: s ms us ns ps 100ns; of lba and size: bytes, or bytes of a \
        block (512, 4096); op (R W read write …), op:r=0/w=1 or op:bit0 (hex, lowest bit reads)";

    /// Reads a description: names of columns with their units, separated by commas.
    ///
    /// Errors: a name or unit that there is not, a unit that is missing, a column that is missing
    /// or there twice; in words.
    pub fn parse(text: &str) -> Result<Columns, String> {
        let mut columns = Vec::new();
        let mut is_open = false;
        for item in text.split(',').map(str::trim) {
            if is_open {
                return Err(format!("`{item}` is behind `...`, which must be the last"));
            }
            match item {
                "..." | "…" => is_open = true,
                _ => columns.push(column(item)?),
            }
            if columns.len() > COLUMNS_MAX {
                return Err(format!("more than {COLUMNS_MAX} columns"));
            }
        }
        let count = |is: fn(&Column) -> bool| columns.iter().filter(|c| is(c)).count();
        let once = [
            ("lba", count(|c| matches!(c, Column::Lba(_))), true),
            ("size", count(|c| matches!(c, Column::Size(_))), true),
            ("op", count(|c| matches!(c, Column::Op { .. })), true),
            ("time", count(|c| matches!(c, Column::Time(_))), false),
            ("took", count(|c| matches!(c, Column::Took { .. })), false),
        ];
        for (name, n, is_needed) in once {
            match n {
                0 if is_needed => return Err(format!("no column `{name}`")),
                0 | 1 => {}
                _ => return Err(format!("`{name}` is there {n} times")),
            }
        }
        Ok(Columns { text: text.to_owned(), columns, is_open })
    }

    /// The description that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The units, for people: `time ns, address 512 bytes, size bytes`.
    pub fn units(&self) -> String {
        let time = |ps: u64| TIME_UNITS.iter().find(|u| u.1 == ps).map_or("?", |u| u.0);
        let bytes = |n: u64| match n {
            1 => "bytes".to_owned(),
            n => format!("{n} bytes"),
        };
        let one = |c: &Column| match *c {
            Column::Time(ps) => Some(format!("time {}", time(ps))),
            Column::Took { unit_ps, .. } => Some(format!("response time {}", time(unit_ps))),
            Column::Lba(n) => Some(format!("address {}", bytes(n))),
            Column::Size(n) => Some(format!("size {}", bytes(n))),
            Column::Op { .. } | Column::Device | Column::Other => None,
        };
        self.columns.iter().filter_map(one).collect::<Vec<_>>().join(", ")
    }

    /// Is this how the columns are called? No number is where numbers belong.
    fn is_title(&self, fields: &[&str]) -> bool {
        let is_number = |c: &Column, f: &str| {
            let numeric = !matches!(c, Column::Op { .. } | Column::Device | Column::Other);
            numeric && f.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        };
        let has_letters = fields.iter().any(|f| f.contains(|c: char| c.is_alphabetic()));
        let mut pairs = self.columns.iter().zip(fields);
        self.fits(fields.len()) && has_letters && !pairs.any(|(c, f)| is_number(c, f))
    }

    fn fits(&self, fields: usize) -> bool {
        fields == self.columns.len() || (self.is_open && fields > self.columns.len())
    }

    /// When the request of a line was sent, if the line has such fields.
    pub(crate) fn time_of(&self, text: &str) -> Option<u64> {
        let fields = Separator::of(text).split(text);
        let at = self.columns.iter().position(|c| matches!(c, Column::Time(_)))?;
        let Column::Time(unit_ps) = self.columns[at] else { return None };
        time_ns(fields.get(at)?, unit_ps)
    }

    /// What a line says, whose fields are separated by its own separator.
    pub(crate) fn line(&self, text: &str, at: Place, names: &mut Names) -> Result<Item, Wrong> {
        self.fields(&Separator::of(text).split(text), text, at, names)
    }

    fn fields(
        &self,
        fields: &[&str],
        text: &str,
        place: Place,
        names: &mut Names,
    ) -> Result<Item, Wrong> {
        let wrong = |what: &str| {
            let what = format!("{what}: `{}`", shortened(text));
            Wrong::new(place, what, format!("expected the columns {}", self.text))
        };
        if !self.fits(fields.len()) {
            let least = if self.is_open { "at least " } else { "" };
            return Err(wrong(&format!(
                "not {least}{} fields but {}",
                self.columns.len(),
                fields.len()
            )));
        }
        let mut read = Read::default();
        for (n, (column, field)) in self.columns.iter().zip(fields).enumerate() {
            let bad = |what: &str| wrong(&format!("field {} is not {what}", n + 1));
            match *column {
                Column::Time(unit_ps) => {
                    read.at_ns = time_ns(field, unit_ps).ok_or_else(|| bad("a time"))?;
                }
                Column::Took { optional: true, .. } if field.is_empty() => {}
                Column::Took { unit_ps, .. } => {
                    let ns = time_ns(field, unit_ps).ok_or_else(|| bad("a response time"))?;
                    read.took_ns = Some(ns);
                }
                Column::Lba(unit) => {
                    let at = whole(field).ok_or_else(|| bad("an address"))?;
                    read.at_byte = at.checked_mul(unit).ok_or_else(|| bad("a possible address"))?;
                }
                Column::Size(unit) => {
                    let size = whole(field).ok_or_else(|| bad("a size"))?;
                    read.bytes = size.checked_mul(unit).ok_or_else(|| bad("a possible size"))?;
                }
                Column::Op { optional: true, .. } if field.is_empty() => {
                    return Ok(Item::Skip(Skip::NoOperation, 1));
                }
                Column::Op { codes, .. } => {
                    read.op = Some(operation(codes, field).ok_or_else(|| bad("an operation"))?);
                }
                Column::Device => {
                    if field.is_empty() {
                        return Err(bad("a device"));
                    }
                    if !read.device.is_empty() {
                        read.device.push('.');
                    }
                    read.device.push_str(field);
                }
                Column::Other => {}
            }
        }
        read.item(place, names, &wrong)
    }
}

/// What the fields of a line say.
#[derive(Default)]
struct Read {
    at_ns: u64,
    took_ns: Option<u64>,
    at_byte: u64,
    bytes: u64,
    op: Option<Result<(Op, Flags, bool), Skip>>,
    device: String,
}

impl Read {
    fn item(
        self,
        place: Place,
        names: &mut Names,
        wrong: &dyn Fn(&str) -> Wrong,
    ) -> Result<Item, Wrong> {
        let (op, flags, zeroes) = match self.op {
            Some(Ok(found)) => found,
            Some(Err(why)) => return Ok(Item::Skip(why, 1)),
            None => return Err(wrong("no operation")),
        };
        let is_flush = op == Op::Flush;
        if self.bytes == 0 && !is_flush {
            return Ok(Item::Skip(Skip::NoData, 1));
        }
        let range = sectors_of(self.at_byte, self.bytes);
        let (first, sectors) = range.ok_or_else(|| wrong("a request has less than 2 TiB"))?;
        let done_ns = match self.took_ns {
            Some(took) => {
                let done = self.at_ns.checked_add(took);
                Some(done.ok_or_else(|| wrong("no possible response time"))?)
            }
            None => None,
        };
        let device = if self.device.is_empty() { "0" } else { &self.device };
        Ok(Item::Event(Event {
            at_ns: self.at_ns,
            step: Step::Whole { done_ns },
            op,
            zeroes,
            flags,
            at: Sector(if is_flush { 0 } else { first }),
            sectors: if is_flush { 0 } else { sectors },
            device: names.of_text(device, place)?,
            file: 0,
            place,
        }))
    }
}

/// Reads the description of one column.
fn column(item: &str) -> Result<Column, String> {
    let (named, optional) = item.strip_suffix('?').map_or((item, false), |named| (named, true));
    let (name, unit) = match named.split_once(':') {
        Some((name, unit)) => (name, Some(unit)),
        None => (named, None),
    };
    if optional && !matches!(name, "took" | "op") {
        return Err(format!("`{item}`: only `took` and `op` may be empty (`?`)"));
    }
    match (name, unit) {
        ("time", unit) => Ok(Column::Time(time_unit(item, unit)?)),
        ("took", unit) => Ok(Column::Took { unit_ps: time_unit(item, unit)?, optional }),
        ("lba", unit) => Ok(Column::Lba(byte_unit(item, unit)?)),
        ("size", unit) => Ok(Column::Size(byte_unit(item, unit)?)),
        ("op", None) => Ok(Column::Op { codes: Codes::Words, optional }),
        ("op", Some("bit0")) => Ok(Column::Op { codes: Codes::Bit0, optional }),
        ("op", Some(codes)) => Ok(Column::Op { codes: numbers(item, codes)?, optional }),
        ("dev", None) => Ok(Column::Device),
        ("-", None) => Ok(Column::Other),
        _ => Err(format!("`{item}` is no column")),
    }
}

fn time_unit(item: &str, unit: Option<&str>) -> Result<u64, String> {
    let unit = unit.ok_or_else(|| format!("`{item}` has no unit: {item}:ns, {item}:us, …"))?;
    let found = TIME_UNITS.iter().find(|u| u.0 == unit);
    found.map(|u| u.1).ok_or_else(|| format!("`{item}`: `{unit}` is no unit of time"))
}

fn byte_unit(item: &str, unit: Option<&str>) -> Result<u64, String> {
    let unit = unit.ok_or_else(|| format!("`{item}` has no unit: {item}:512, {item}:bytes"))?;
    if unit == "bytes" {
        return Ok(1);
    }
    let bytes = whole(unit).filter(|n| (1..=BLOCK_BYTES_MAX).contains(n));
    bytes.ok_or_else(|| format!("`{item}`: `{unit}` is neither `bytes` nor the bytes of a block"))
}

fn numbers(item: &str, codes: &str) -> Result<Codes, String> {
    let mut all = [None; 4];
    for code in codes.split('/') {
        let (letter, number) = code.split_once('=').unwrap_or((code, ""));
        let op = OPS.iter().position(|(l, _)| *l == letter);
        let (Some(op), Some(number)) = (op, whole(number)) else {
            return Err(format!("`{item}`: `{code}` is not like r=0, w=1, d=2 or f=3"));
        };
        if all[op].is_some() || all.contains(&Some(number)) {
            return Err(format!("`{item}`: `{code}` is there twice"));
        }
        all[op] = Some(number);
    }
    Ok(Codes::Numbers(all))
}

/// What a field says of the operation: it, its flags and whether it leaves zeroes; or why it is no
/// request.
fn operation(codes: Codes, field: &str) -> Option<Result<(Op, Flags, bool), Skip>> {
    let plain = |op| Some(Ok((op, Flags::NONE, false)));
    match codes {
        Codes::Bit0 => {
            let hex = field.strip_prefix("0x").unwrap_or(field);
            let is_hex = !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit());
            let flags = u64::from_str_radix(hex, 16).ok().filter(|_| is_hex)?;
            plain(if flags & 1 == 1 { Op::Read } else { Op::Write })
        }
        Codes::Numbers(all) => {
            let number = whole(field)?;
            plain(OPS[all.iter().position(|n| *n == Some(number))?].1)
        }
        Codes::Words => match field.to_ascii_lowercase().as_str() {
            "r" | "read" => plain(Op::Read),
            "w" | "write" => plain(Op::Write),
            "d" | "discard" | "trim" | "unmap" => plain(Op::Discard),
            "f" | "flush" => plain(Op::Flush),
            _ => {
                let (named, flags) = rwbs::parse(field)?;
                // What has no sectors is told by its size.
                let found = rwbs::operation(named, flags, 1);
                Some(found.map(|(op, zeroes)| (op, flags, zeroes)))
            }
        },
    }
}

/// What is between two fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Separator {
    Byte(char),
    Blanks,
}

impl Separator {
    fn of(line: &str) -> Separator {
        let found = [',', ';'].into_iter().find(|c| line.contains(*c));
        found.map_or(Separator::Blanks, Separator::Byte)
    }

    fn split(self, line: &str) -> Vec<&str> {
        match self {
            Separator::Byte(c) => line.split(c).map(str::trim).collect(),
            Separator::Blanks => line.split_ascii_whitespace().collect(),
        }
    }
}

/// A text of such lines.
pub(crate) struct Text<'a> {
    lines: Lines<'a>,
    columns: Columns,
    separator: Option<Separator>,
    title: Option<String>,
    /// The number of the column that counts milliseconds; `None` if no column does, or one of its
    /// times had a fraction.
    whole_ms: Option<usize>,
    has_requests: bool,
}

impl<'a> Text<'a> {
    pub fn new(from: Source<'a>, columns: Columns) -> Text<'a> {
        let is_ms = |c: &Column| matches!(c, Column::Time(MILLISECOND_PS));
        let whole_ms = columns.columns.iter().position(is_ms);
        let lines = Lines::new(from);
        Text { lines, columns, separator: None, title: None, whole_ms, has_requests: false }
    }
}

impl Parse for Text<'_> {
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong> {
        while self.lines.advance()? {
            let text = self.lines.text();
            if text.is_empty() {
                continue;
            }
            if text.starts_with('#') || self.title.as_deref() == Some(text) {
                return Ok(Some(Item::Skip(Skip::Note, 1)));
            }
            let is_first = self.separator.is_none();
            let separator = *self.separator.get_or_insert_with(|| Separator::of(text));
            let fields = separator.split(text);
            if is_first && self.columns.is_title(&fields) {
                self.title = Some(text.to_owned());
                return Ok(Some(Item::Skip(Skip::Note, 1)));
            }
            self.has_requests = true;
            self.whole_ms =
                self.whole_ms.filter(|n| fields.get(*n).is_none_or(|t| !t.contains('.')));
            return self.columns.fields(&fields, text, self.lines.place(), names).map(Some);
        }
        Ok(None)
    }

    fn note(&self) -> Option<&'static str> {
        let is_told = self.has_requests && self.whole_ms.is_some();
        is_told.then_some(
            "all times are whole numbers, read as milliseconds; if they are nanoseconds, as MQSim \
             and SSDsim write them: --format mqsim",
        )
    }
}
