//! The formats, and how they are told from one another.

use crate::blktrace;
use crate::error::{Place, Wrong};
use crate::item::Names;
use crate::{biosnoop, blkparse, dialects, ftrace, iolog, vscsi};

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
    /// biosnoop of bcc and libbpf-tools.
    Biosnoop,
    /// DiskSim's ASCII format.
    Disksim,
    /// The ASCII traces of MQSim and of SSDsim.
    Mqsim,
    /// The comma-separated traces of MSR Cambridge.
    Msr,
    /// The trace file format of the Storage Performance Council (UMass' Financial, WebSearch).
    Spc,
    /// The block traces of Alibaba Cloud, 2020.
    Alibaba,
    /// The block traces of Tencent CBS, 2018.
    Tencent,
    /// The traces of a virtual desktop infrastructure of SYSTOR '17.
    Systor,
    /// The traces of Florida International University (I/O Deduplication, SRCMap).
    Fiu,
    /// CloudPhysics' binary vscsi traces, versions 1 and 2.
    Cloudphysics,
    /// Columns that a description names ([`crate::Columns`]).
    Columns,
}

impl Format {
    /// All that have a name to ask for them.
    pub const ALL: [Format; 14] = [
        Format::Blktrace,
        Format::Blkparse,
        Format::Ftrace,
        Format::Iolog,
        Format::Disksim,
        Format::Msr,
        Format::Biosnoop,
        Format::Mqsim,
        Format::Spc,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor,
        Format::Fiu,
        Format::Cloudphysics,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Ftrace => "ftrace",
            Format::Iolog => "iolog",
            Format::Biosnoop => "biosnoop",
            Format::Disksim => "disksim",
            Format::Mqsim => "mqsim",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor => "systor",
            Format::Fiu => "fiu",
            Format::Cloudphysics => "cloudphysics",
            Format::Columns => "columns",
        }
    }

    /// By its name; `ssdsim` is `mqsim`.
    pub fn find(name: &str) -> Option<Format> {
        if name == "ssdsim" {
            return Some(Format::Mqsim);
        }
        Format::ALL.into_iter().find(|f| f.name() == name)
    }

    /// What it is, for a list.
    pub fn what(self) -> &'static str {
        match self {
            Format::Blktrace => "binary records of blktrace (`trace --to blktrace`)",
            Format::Blkparse => "text of blkparse, and of `trace --to paper`",
            Format::Ftrace => "block events of ftrace, trace-cmd report and perf script",
            Format::Iolog => "fio's iolog, versions 2 and 3",
            Format::Biosnoop => "biosnoop of bcc and libbpf-tools, with its title",
            Format::Disksim => "ASCII traces of DiskSim",
            Format::Mqsim => "ASCII traces of MQSim and SSDsim (or ssdsim)",
            Format::Msr => "MSR Cambridge",
            Format::Spc => "Storage Performance Council (UMass Financial, WebSearch)",
            Format::Alibaba => "Alibaba Cloud block traces, 2020",
            Format::Tencent => "Tencent CBS, 2018",
            Format::Systor => "SYSTOR '17, virtual desktops",
            Format::Fiu => "Florida International University",
            Format::Cloudphysics => "CloudPhysics, binary vscsi records of versions 1 and 2",
            Format::Columns => "columns of --columns",
        }
    }

    /// Its columns as `--columns` describes them; `None` of a format that is not made of columns.
    pub fn columns(self) -> Option<&'static str> {
        dialects::DIALECTS.iter().find(|d| d.format == self).map(|d| d.columns)
    }

    /// The units of its times, addresses and sizes, for people.
    pub fn units(self) -> String {
        match self {
            Format::Blktrace => "time ns, address 512 bytes, size bytes".to_owned(),
            Format::Blkparse | Format::Ftrace => {
                "time s, address 512 bytes, size 512 bytes".to_owned()
            }
            Format::Iolog => {
                "time us (version 2: waits in ms), address bytes, size bytes".to_owned()
            }
            Format::Biosnoop => {
                "time s (of the completion), response time ms, address 512 bytes, size bytes"
                    .to_owned()
            }
            Format::Cloudphysics => "time us, address 512 bytes, size bytes".to_owned(),
            _ => dialects::columns_of(self).map_or(String::new(), |c| c.units()),
        }
    }
}

/// Beginnings of files that hold others, and what unpacks them.
const PACKED: [(&[u8], &str); 6] = [
    (b"\x28\xb5\x2f\xfd", "zstd -dc"),
    (b"\x1f\x8b", "gzip -dc"),
    (b"\xfd7zXZ", "xz -dc"),
    (b"BZh", "bzip2 -dc"),
    (b"\x04\x22\x4d\x18", "lz4 -dc"),
    (b"PK\x03\x04", "unzip -p"),
];
/// Lines by which a format is told.
const LINES_MAX: usize = 256;

/// The format of a file that begins so.
pub(crate) fn detect(head: &[u8]) -> Result<Format, Wrong> {
    if blktrace::begins(head) {
        return Ok(Format::Blktrace);
    }
    if let Some((_, tool)) = PACKED.iter().find(|(magic, _)| head.starts_with(magic)) {
        let help = format!("{tool} FILE | writepath replay -");
        return Err(Wrong::new(Place::Byte(0), "a compressed file", help));
    }
    if vscsi::begins(head) {
        return Ok(Format::Cloudphysics);
    }
    if head.starts_with(iolog::FIRST.as_bytes()) {
        return Ok(Format::Iolog);
    }
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('<') {
        let help = "a workload definition of MQSim is replayed by its file's name, alone";
        return Err(Wrong::new(Place::Line(1), "an XML file", help));
    }
    let mut lines: Vec<(u64, &str)> = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        // The last one may be cut off here; it is looked at if there is no other.
        if !line.ends_with('\n') && !lines.is_empty() {
            break;
        }
        let line = line.trim();
        if line.starts_with("# tracer:") {
            return Ok(Format::Ftrace);
        }
        if line.is_empty() || line.starts_with('#') || lines.len() == LINES_MAX {
            continue;
        }
        let mut names = Names::default();
        let place = Place::Line(number);
        if blkparse::line(line, place, &mut names).is_ok_and(|item| item.is_some()) {
            return Ok(Format::Blkparse);
        }
        if ftrace::line(line, place, &mut names).is_ok_and(|item| item.is_some()) {
            return Ok(Format::Ftrace);
        }
        if biosnoop::is_title(line) {
            return Ok(Format::Biosnoop);
        }
        lines.push((number, line));
    }
    if let Some(format) = dialects::detect(&lines)? {
        return Ok(format);
    }
    let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    let help = format!(
        "name the format (--format {}) or the columns (--columns time:ns,lba:512,size:bytes,op); \
         `writepath list formats`",
        names.join("|")
    );
    Err(Wrong::new(Place::Line(1), "no line has a known block-trace format", help))
}
