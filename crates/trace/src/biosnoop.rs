//! biosnoop's table, read.
//!
//! Picture:    a title, `TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)`, and a line a request. With
//!             -Q there is a column more, `QUE(ms)` or `QLAT(ms)`; other columns are passed over.
//! Laws:       a line is printed when its request has completed, with that time: the request was
//!             sent the latency before it. Times count from the first completion: all are put
//!             a day later here, so that none is before zero.
//! Left out:   the time in the queue. bpftrace's biosnoop, which tells no sector.
//! Source:     bcc's `tools/biosnoop.py` and its `man` page; libbpf-tools' `biosnoop.c`.

use wp_base::event::Op;
use wp_base::{Sector, Span};

use crate::blkparse::shortened;
use crate::error::{Place, Wrong};
use crate::item::{Event, Item, Names, Skip, Step};
use crate::lines::{Lines, Source, digits, sectors_of, time_ns, word};
use crate::rwbs;
use crate::trace::Parse;

const SECOND_PS: u64 = 1_000_000_000_000;
const MILLISECOND_PS: u64 = 1_000_000_000;
/// Added to every time; no request takes as long.
const BEFORE: Span = Span::secs(86_400);
/// What bcc prints for a sector that it does not know.
const UNKNOWN_SECTORS: [&str; 2] = ["-1", "18446744073709551615"];

/// Is this its title?
pub(crate) fn is_title(line: &str) -> bool {
    let (time, rest) = word(line);
    matches!(time, "TIME(s)" | "TIME(ms)") && word(rest).0 == "COMM"
}

/// Where the wanted columns are, counted from the end of a line: a command's name may hold blanks.
struct Table {
    columns: usize,
    time_unit_ps: u64,
    disk: usize,
    kind: usize,
    sector: usize,
    bytes: usize,
    latency: Option<usize>,
}

impl Table {
    fn of_title(line: &str) -> Result<Table, String> {
        let titles: Vec<&str> = line.split_ascii_whitespace().collect();
        let find = |name: &str| titles.iter().rev().position(|t| *t == name);
        let need = |name: &str| find(name).ok_or_else(|| format!("no column `{name}`"));
        Ok(Table {
            columns: titles.len(),
            time_unit_ps: if titles[0] == "TIME(ms)" { MILLISECOND_PS } else { SECOND_PS },
            disk: need("DISK")?,
            kind: need("T")?,
            sector: need("SECTOR")?,
            bytes: need("BYTES")?,
            latency: find("LAT(ms)"),
        })
    }

    fn item(&self, text: &str, place: Place, names: &mut Names) -> Result<Item, Wrong> {
        let wrong = |what: &str| {
            let what = format!("{what}: `{}`", shortened(text));
            Wrong::new(place, what, "expected a line of biosnoop with the columns of the title")
        };
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words.len() < self.columns {
            return Err(wrong(&format!("not {} columns", self.columns)));
        }
        let field = |from_end: usize| words[words.len() - 1 - from_end];
        let completed = time_ns(words[0], self.time_unit_ps).ok_or_else(|| wrong("no time"))?;
        let took = match self.latency {
            None => None,
            Some(at) => {
                let took = time_ns(field(at), MILLISECOND_PS).filter(|ns| *ns <= BEFORE.0);
                Some(took.ok_or_else(|| wrong("no latency"))?)
            }
        };
        let bytes: u64 = digits(field(self.bytes)).ok_or_else(|| wrong("no bytes"))?;
        let sector = match field(self.sector) {
            unknown if UNKNOWN_SECTORS.contains(&unknown) && bytes == 0 => 0,
            sector => digits::<u64>(sector).ok_or_else(|| wrong("no sector"))?,
        };
        let letters = field(self.kind);
        let Some((named, flags)) = rwbs::parse(letters) else {
            return Err(wrong(&format!("`{letters}` names no operation")));
        };
        let range = sector.checked_mul(wp_base::SECTOR_BYTES).and_then(|at| sectors_of(at, bytes));
        let (at, sectors) = range.ok_or_else(|| wrong("no possible sector"))?;
        let (op, zeroes) = match rwbs::operation(named, flags, sectors) {
            Ok(found) => found,
            Err(why) => return Ok(Item::Skip(why, 1)),
        };
        let done_ns = completed.checked_add(BEFORE.0).ok_or_else(|| wrong("no possible time"))?;
        let is_flush = op == Op::Flush;
        Ok(Item::Event(Event {
            at_ns: done_ns - took.unwrap_or(0),
            step: Step::Whole { done_ns: took.map(|_| done_ns) },
            op,
            zeroes,
            flags,
            at: Sector(if is_flush { 0 } else { at }),
            sectors: if is_flush { 0 } else { sectors },
            device: names.of_text(field(self.disk), place)?,
            file: 0,
            place,
        }))
    }
}

/// A text of biosnoop.
pub(crate) struct Text<'a> {
    lines: Lines<'a>,
    table: Option<Table>,
}

impl<'a> Text<'a> {
    pub fn new(from: Source<'a>) -> Text<'a> {
        Text { lines: Lines::new(from), table: None }
    }
}

impl Parse for Text<'_> {
    fn next_item(&mut self, names: &mut Names) -> Result<Option<Item>, Wrong> {
        while self.lines.advance()? {
            let text = self.lines.text();
            if text.is_empty() {
                continue;
            }
            // Some versions say so before the title.
            if text.starts_with('#') || text.starts_with("Tracing ") {
                return Ok(Some(Item::Skip(Skip::Note, 1)));
            }
            if is_title(text) {
                let table = Table::of_title(text).map_err(|what| {
                    let help = "supported: biosnoop of bcc and libbpf-tools, which tell the sector";
                    self.lines.wrong(what, help)
                })?;
                self.table = Some(table);
                return Ok(Some(Item::Skip(Skip::Note, 1)));
            }
            let Some(table) = &self.table else {
                let what = format!("not the title of biosnoop: `{}`", shortened(text));
                let help = "keep the title (TIME(s) COMM PID DISK T SECTOR BYTES …): \
                            it says what the columns are";
                return Err(self.lines.wrong(what, help));
            };
            return table.item(text, self.lines.place(), names).map(Some);
        }
        Ok(None)
    }
}
