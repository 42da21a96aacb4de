//! What is wrong with a trace, where, and what to do about it.

use std::fmt;

/// A place in a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A line of a text, from 1.
    Line(u64),
    /// A byte of a binary file, from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(n) => write!(f, "line {n}"),
            Place::Byte(n) => write!(f, "byte {n}"),
        }
    }
}

/// Why a trace cannot be read on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// The file, as it was named.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong there.
    pub what: String,
    /// What to do; may be empty.
    pub help: String,
    /// The host could not read the file: its bytes are not to blame.
    pub host: bool,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.file, self.place, self.what)
    }
}

impl std::error::Error for TraceError {}

/// What a reader of one format says is wrong; it does not know what its file is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wrong {
    pub place: Place,
    pub what: String,
    pub help: String,
    /// The file ends within a record: what is before may be taken.
    pub torn: bool,
    /// See [`TraceError::host`].
    pub host: bool,
}

impl Wrong {
    pub fn new(place: Place, what: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { place, what: what.into(), help: help.into(), torn: false, host: false }
    }

    pub fn torn(place: Place, what: impl Into<String>) -> Wrong {
        let help = "the file is truncated; --torn-ok accepts the part before";
        Wrong { torn: true, ..Wrong::new(place, what, help) }
    }

    pub fn unreadable(place: Place, e: &std::io::Error) -> Wrong {
        Wrong { host: true, ..Wrong::new(place, format!("cannot be read: {e}"), "") }
    }

    pub fn of(self, file: &str) -> TraceError {
        TraceError {
            file: file.to_owned(),
            place: self.place,
            what: self.what,
            help: self.help,
            host: self.host,
        }
    }
}
