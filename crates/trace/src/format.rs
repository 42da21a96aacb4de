//! The formats, and how they are told from one another.

use crate::blktrace;
use crate::error::{Place, Wrong};
use crate::item::Names;
use crate::{blkparse, disksim, ftrace, iolog, msr};

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Format {
    /// blktrace's binary records.
    Blktrace,
    /// blkparse's default text, and the listing `-f "%T.%9t %a %d %S + %n [%C]\n"`.
    Blkparse,
    /// Block events of ftrace, trace-cmd or perf script as text.
    Ftrace,
    /// fio's iolog, versions 2 and 3.
    Iolog,
    /// DiskSim's ASCII format.
    Disksim,
    /// The comma-separated traces of MSR Cambridge.
    Msr,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] = [
        Format::Blktrace,
        Format::Blkparse,
        Format::Ftrace,
        Format::Iolog,
        Format::Disksim,
        Format::Msr,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Ftrace => "ftrace",
            Format::Iolog => "iolog",
            Format::Disksim => "disksim",
            Format::Msr => "msr",
        }
    }

    /// By its name.
    pub fn find(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.name() == name)
    }
}

/// Beginnings of compressed files, and what unpacks them.
const PACKED: [(&[u8], &str); 3] =
    [(b"\x28\xb5\x2f\xfd", "zstd -dc"), (b"\x1f\x8b", "gzip -dc"), (b"\xfd7zXZ", "xz -dc")];

/// The format of a file that begins so.
pub(crate) fn detect(head: &[u8]) -> Result<Format, Wrong> {
    if blktrace::begins(head) {
        return Ok(Format::Blktrace);
    }
    if let Some((_, tool)) = PACKED.iter().find(|(magic, _)| head.starts_with(magic)) {
        let help = format!("{tool} FILE | writepath replay -");
        return Err(Wrong::new(Place::Byte(0), "a compressed file", help));
    }
    if head.starts_with(iolog::FIRST.as_bytes()) {
        return Ok(Format::Iolog);
    }
    let text = String::from_utf8_lossy(head);
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if line.starts_with("# tracer:") {
            return Ok(Format::Ftrace);
        }
        let mut names = Names::default();
        let place = Place::Line(1);
        if blkparse::line(line, place, &mut names).is_ok_and(|item| item.is_some()) {
            return Ok(Format::Blkparse);
        }
        if ftrace::line(line, place, &mut names).is_ok_and(|item| item.is_some()) {
            return Ok(Format::Ftrace);
        }
        if msr::line(line, place, &mut names).is_ok() {
            return Ok(Format::Msr);
        }
        if disksim::line(line, place, &mut names).is_ok() {
            return Ok(Format::Disksim);
        }
    }
    let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    let help = format!("name the format: --format {}", names.join("|"));
    Err(Wrong::new(Place::Line(1), "no line has a known block-trace format", help))
}
