//! The words of a line.

use std::fmt::{self, Write as _};

use wp_vfs::TimeSpec;

use crate::fio::MICROS_MAX;

use super::call::FDS;

/// A path as one word.
pub(super) struct Word<'a>(pub(super) &'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            // `#` begins a comment, `;` ends a step.
            match c.is_whitespace() || c.is_control() || matches!(c, '\\' | '#' | ';') {
                true => c.to_string().bytes().try_for_each(|b| write!(f, "\\{b:03o}"))?,
                false => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Errors: a backslash without three octal digits; bytes that are no text.
fn unescaped(word: &str) -> Result<String, String> {
    if !word.contains('\\') {
        return Ok(word.to_owned());
    }
    let bad = || format!("`{word}`: a backslash stands before three octal digits, as in \\040");
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (digits, more) = rest.split_at_checked(3).ok_or_else(bad)?;
        let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
        let byte = u8::from_str_radix(digits, 8).ok().filter(|b| *b > 0);
        bytes.push(byte.ok_or_else(bad)?);
        rest = more;
    }
    String::from_utf8(bytes).map_err(|_| format!("`{word}`: no UTF-8"))
}

/// Names of a table, for an error.
pub(super) fn one_of<T>(table: &[(&'static str, T)]) -> String {
    table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

pub(super) struct Words<'a>(pub(super) std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    pub(super) fn text(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }
    /// Is the next word, which need not be there, this one?
    pub(super) fn option(&mut self, word: &str) -> Result<bool, String> {
        match self.0.next() {
            None => Ok(false),
            Some(w) if w == word => Ok(true),
            Some(w) => Err(format!("`{w}`: nothing or {word}")),
        }
    }
    /// Microseconds, as [`Words::number`].
    pub(super) fn micros(&mut self) -> Result<u64, String> {
        let us = self.number()?;
        match us <= MICROS_MAX {
            true => Ok(us),
            false => Err(format!("`{us}`: at most {MICROS_MAX} us, ten years")),
        }
    }

    /// Is this the next word? Then it is taken.
    pub(super) fn has(&mut self, word: &str) -> bool {
        let is_next = self.0.clone().next() == Some(word);
        if is_next {
            self.0.next();
        }
        is_next
    }

    pub(super) fn number(&mut self) -> Result<u64, String> {
        let w = self.text()?;
        w.parse().map_err(|_| format!("`{w}`: a whole number is needed"))
    }
    pub(super) fn small(&mut self, below: u32) -> Result<u32, String> {
        let n = self.number()?;
        u32::try_from(n)
            .ok()
            .filter(|n| *n < below)
            .ok_or_else(|| format!("{n}: must be below {below}"))
    }
    pub(super) fn fd(&mut self) -> Result<u32, String> {
        self.small(FDS)
    }
    /// A word in which white space and backslashes are octal escapes, as in `/proc/mounts`.
    pub(super) fn owned(&mut self) -> Result<String, String> {
        unescaped(self.text()?)
    }
    /// Permission bits, in octal.
    pub(super) fn octal(&mut self) -> Result<u32, String> {
        let w = self.text()?;
        let bits = u32::from_str_radix(w, 8).ok().filter(|bits| *bits <= 0o7777);
        bits.ok_or_else(|| format!("`{w}`: permission bits are octal, 0 to 7777"))
    }

    /// Seconds since 1970, with up to nine digits behind a point.
    pub(super) fn time(&mut self) -> Result<TimeSpec, String> {
        let w = self.text()?;
        let parsed = || {
            let (secs, nanos) = w.split_once('.').unwrap_or((w, "0"));
            let digits = nanos.len() <= 9 && nanos.bytes().all(|b| b.is_ascii_digit());
            let nanos: u32 = digits.then(|| format!("{nanos:0<9}"))?.parse().ok()?;
            let secs: u32 = secs.parse().ok()?;
            Some(TimeSpec { secs: i64::from(secs), nanos })
        };
        parsed().ok_or_else(|| format!("`{w}`: a time is seconds since 1970, as 1000000000.5"))
    }
}
