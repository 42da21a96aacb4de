//! Lines of a text, one at a time, and what their words are.

use std::io::{BufRead, Read};

use crate::error::{Place, Wrong};

/// Longest line in bytes. A traced command with all its bytes in hexadecimal has a few hundred; a
/// file without line ends must not be taken into memory whole.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// What spreadsheets put before a text of theirs (a byte order mark).
const MARK: char = '\u{feff}';

/// The source of a trace's bytes.
pub(crate) type Source<'a> = Box<dyn BufRead + 'a>;

/// Reads lines.
pub(crate) struct Lines<'a> {
    from: Source<'a>,
    number: u64,
    bytes: Vec<u8>,
    text: String,
}

impl<'a> Lines<'a> {
    pub fn new(from: Source<'a>) -> Lines<'a> {
        Lines { from, number: 0, bytes: Vec::new(), text: String::new() }
    }

    /// The place of the line that was read last.
    pub fn place(&self) -> Place {
        Place::Line(self.number)
    }

    /// Something about that line.
    pub fn wrong(&self, what: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong::new(self.place(), what, help)
    }

    /// Reads the next line; false at the end. Errors: the host's, a line without its end.
    pub fn advance(&mut self) -> Result<bool, Wrong> {
        self.bytes.clear();
        self.number += 1;
        let read = (&mut self.from).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.bytes);
        match read {
            Err(e) => return Err(Wrong::unreadable(self.place(), &e)),
            Ok(0) => return Ok(false),
            Ok(_) => {}
        }
        if self.bytes.last() != Some(&b'\n') {
            if self.bytes.len() as u64 == LINE_BYTES_MAX {
                let what = format!("a line of more than {LINE_BYTES_MAX} bytes");
                return Err(self.wrong(what, "this text is not in that format"));
            }
            return Err(Wrong::torn(self.place(), "the last line has no end"));
        }
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(&self.bytes));
        if self.number == 1 && self.text.starts_with(MARK) {
            self.text.drain(..MARK.len_utf8());
        }
        Ok(true)
    }

    /// The line that was read last, without its end and surrounding blanks.
    pub fn text(&self) -> &str {
        self.text.trim()
    }
}

/// Splits off the first word.
pub(crate) fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""))
}

/// `8,16`.
pub(crate) fn major_minor(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(',')?;
    Some((digits(major)?, digits(minor)?))
}

/// A number that is nothing but digits.
pub(crate) fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    let only = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if only { text.parse().ok() } else { None }
}

/// A whole number, decimal or after `0x` hexadecimal.
pub(crate) fn whole(text: &str) -> Option<u64> {
    let Some(hex) = text.strip_prefix("0x") else { return digits(text) };
    let only = !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit());
    if only { u64::from_str_radix(hex, 16).ok() } else { None }
}

/// Nanoseconds from a decimal number of units of `unit_ps` picoseconds each. Digits below a
/// nanosecond are dropped.
pub(crate) fn time_ns(text: &str, unit_ps: u64) -> Option<u64> {
    let (number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut ps = u128::from(digits::<u64>(number)?) * u128::from(unit_ps);
    let mut scale = unit_ps;
    for digit in fraction.bytes() {
        scale /= 10;
        ps += u128::from(char::from(digit).to_digit(10)?) * u128::from(scale);
    }
    if fraction.is_empty() { None } else { u64::try_from(ps / 1000).ok() }
}

/// Nanoseconds from a decimal number of units that have a power of ten of them each; what is below
/// a nanosecond is cut off.
pub(crate) fn decimal(text: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut ns = digits::<u64>(whole)?.checked_mul(unit_ns)?;
    let mut scale = unit_ns;
    for digit in fraction.bytes() {
        scale /= 10;
        ns = ns.checked_add(u64::from(char::from(digit).to_digit(10)?) * scale)?;
    }
    if fraction.is_empty() { None } else { Some(ns) }
}

/// The sectors that hold some bytes: the first, and how many.
pub(crate) fn sectors_of(at_byte: u64, bytes: u64) -> Option<(u64, u32)> {
    let sector = wp_base::SECTOR_BYTES;
    let (first, last) = (at_byte / sector, at_byte.checked_add(bytes)?.div_ceil(sector));
    Some((first, u32::try_from(last - first).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("1.000000001", 1_000_000_000), Some(1_000_000_001));
        assert_eq!(decimal("12.5", 1_000_000), Some(12_500_000));
        assert_eq!(decimal("12.3456789", 1_000_000), Some(12_345_678));
        assert_eq!(decimal("3", 1_000), Some(3_000));
        for none in ["", ".5", "5.", "-1", "1e3", "1.x", "99999999999999999999", "+1"] {
            assert_eq!(decimal(none, 1_000_000_000), None, "{none}");
        }
    }

    #[test]
    fn times_of_every_unit_are_exact() {
        assert_eq!(time_ns("128166372003061629", 100_000), Some(12_816_637_200_306_162_900));
        assert_eq!(
            time_ns("1456135200.013118000", 1_000_000_000_000),
            Some(1_456_135_200_013_118_000)
        );
        assert_eq!(time_ns("12.5", 1_000_000_000), Some(12_500_000));
        assert_eq!(time_ns("938513000", 1_000), Some(938_513_000));
        assert_eq!(time_ns("938513999", 1), Some(938_513));
        assert_eq!(time_ns("7.0", 1_000), Some(7));
        for none in ["", ".5", "5.", "-1", "1e3", "1.x", "+1", "99999999999999999999"] {
            assert_eq!(time_ns(none, 1_000), None, "{none}");
        }
        // Beyond 584 years nothing is a time.
        assert_eq!(time_ns("18446744074", 1_000_000_000_000), None);
        assert_eq!(
            (whole("0x1f"), whole("31"), whole("0x"), whole("1f")),
            (Some(31), Some(31), None, None)
        );
    }

    #[test]
    fn a_text_without_line_ends_is_refused_before_it_fills_the_memory() {
        let mut lines = Lines::new(Box::new(std::io::BufReader::new(std::io::repeat(b'x'))));
        let e = lines.advance().expect_err("no line");
        assert!(!e.torn && e.what.contains("65536"), "{e:?}");
        let mut lines = Lines::new(Box::new(&b"one\ntwo"[..]));
        assert_eq!(lines.advance(), Ok(true));
        assert_eq!(lines.text(), "one");
        let e = lines.advance().expect_err("cut off");
        assert!(e.torn && e.place == Place::Line(2));
    }
}
