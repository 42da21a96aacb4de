//! Requests that the device is to fail, or to take its time for, as a step of a program.
//!
//! ```text
//! fail write data 2 1        the third write of file data from here on fails
//! fail flush any 0 always    every cache flush fails
//! fail write 2048+8 0 3      three writes that touch these 8 sectors of the device fail
//! slow write data 0 1 50000  the next write of file data is begun 50,000 us late
//! tear write journal 0 1 512 3584   of the next write to the journal the device says that it is
//!                            done, and bytes 512 to 4095 of it are what they were
//! heal                       nothing fails, is slow or torn any more
//! ```

use std::fmt;

use super::words::Words;

/// What kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A cache flush.
    Flush,
    /// A discard.
    Discard,
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

/// Requests that the device begins late, from the step on: it has many at once and takes them in
/// whatever order it likes, as a drive with a command queue may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Which.
    pub which: Fault,
    /// How late, microseconds.
    pub us: u64,
}

/// Writes of which the device leaves out a part, and says that all is well: no drive may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tear {
    /// Which.
    pub which: Fault,
    /// First byte in the write that is not written, a whole number of sectors.
    pub from: u32,
    /// How many bytes are not, a whole number of sectors; the rest is.
    pub bytes: u32,
}

const ASKED: [(&str, Asked); 4] = [
    ("read", Asked::Read),
    ("write", Asked::Write),
    ("flush", Asked::Flush),
    ("discard", Asked::Discard),
];
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

impl Slow {
    pub(super) fn parse(w: &mut Words<'_>) -> Result<Slow, String> {
        Ok(Slow { which: Fault::parse(w)?, us: w.micros()? })
    }
}

impl Tear {
    pub(super) fn parse(w: &mut Words<'_>) -> Result<Tear, String> {
        let which = Fault::parse(w)?;
        let mut sectors = || {
            let n = w.small(1 << 24)?;
            match n % 512 {
                0 => Ok(n),
                _ => Err(format!("{n}: must be whole sectors of 512 bytes")),
            }
        };
        Ok(Tear { which, from: sectors()?, bytes: sectors()? })
    }
}

impl fmt::Display for Tear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tear ")?;
        self.which.words(f)?;
        write!(f, " {} {}", self.from, self.bytes)
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slow ")?;
        self.which.words(f)?;
        write!(f, " {}", self.us)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fail ")?;
        self.words(f)
    }
}

impl Fault {
    /// What follows the word for the step.
    fn words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", name(&ASKED, &self.asked))?;
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
