//! Requests that the device is to fail, as a step of a program.
//!
//! ```text
//! fail write data 2 1        the third write of file data from here on fails
//! fail flush any 0 always    every cache flush fails
//! fail write 2048+8 0 3      three writes that touch these 8 sectors of the device fail
//! heal                       nothing fails any more
//! ```

use std::fmt;

use super::Words;

/// What kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A cache flush.
    Flush,
}

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All.
    Any,
    /// Those to blocks that were free in the new file system: file data, mostly.
    Data,
    /// Those of them that touch a page which nobody has written yet: what a loop device over a full
    /// tmpfs fails.
    Fresh,
    /// Those to the journal.
    Journal,
    /// Those to all other blocks: metadata at home.
    Metadata,
    /// Those with FUA.
    Fua,
    /// Those that touch sectors of the device: the first, and how many.
    Sectors(u64, u32),
}

/// Requests that fail, from the step on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of request.
    pub asked: Asked,
    /// Which.
    pub place: Place,
    /// How many of them still succeed.
    pub skip: u32,
    /// How many fail then; `None`: all, until `heal`.
    pub times: Option<u32>,
}

const ASKED: [(&str, Asked); 3] =
    [("read", Asked::Read), ("write", Asked::Write), ("flush", Asked::Flush)];
const PLACES: [(&str, Place); 6] = [
    ("any", Place::Any),
    ("data", Place::Data),
    ("fresh", Place::Fresh),
    ("journal", Place::Journal),
    ("meta", Place::Metadata),
    ("fua", Place::Fua),
];

fn named<T: Copy>(of: &[(&str, T)], word: &str) -> Option<T> {
    of.iter().find(|(n, _)| *n == word).map(|(_, t)| *t)
}

fn name<T: PartialEq>(of: &[(&'static str, T)], t: &T) -> &'static str {
    of.iter().find(|(_, x)| x == t).map_or("", |(n, _)| n)
}

impl Fault {
    pub(super) fn parse(w: &mut Words<'_>) -> Result<Fault, String> {
        let word = w.text()?;
        let asked = named(&ASKED, word).ok_or(format!("`{word}`: one of read, write, flush"))?;
        let word = w.text()?;
        let sectors = || {
            let (at, n) = word.split_once('+')?;
            Some(Place::Sectors(at.parse().ok()?, n.parse().ok()?))
        };
        let place = named(&PLACES, word).or_else(sectors).ok_or(format!(
            "`{word}`: one of any, data, fresh, journal, meta, fua, SECTOR+COUNT"
        ))?;
        let skip = w.small(u32::MAX)?;
        let times = match w.text()? {
            "always" => None,
            n => Some(n.parse().map_err(|_| format!("`{n}`: a whole number, or always"))?),
        };
        Ok(Fault { asked, place, skip, times })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fail {} ", name(&ASKED, &self.asked))?;
        match &self.place {
            Place::Sectors(at, n) => write!(f, "{at}+{n}")?,
            other => f.write_str(name(&PLACES, other))?,
        }
        match self.times {
            None => write!(f, " {} always", self.skip),
            Some(n) => write!(f, " {} {n}", self.skip),
        }
    }
}
