//! Dialects: formats with one request a line, each the name of a description of columns.
//!
//! Picture:    the first lines -> dialects that can read them -> the one that nothing else can be,
//!             or a refusal that says what the time would be in each.
//! Invariants: a format whose lines another format or unit may have as well is never chosen by its
//!             content.
//! Source:     `msr`: README of SNIA IOTTA 388. `disksim`: DiskSim 4.0 reference manual, "Input
//!             format: ascii". `mqsim`: README and `src/host/ASCII_Trace_Definition.h` of MQSim;
//!             SSDsim's `get_requests` reads the same. `spc`: SPC trace file format specification
//!             1.0.1; that blocks have 512 bytes: UMass' Financial1, whose requests of 3584 bytes
//!             follow one another 7 blocks apart. `alibaba`: README of alibaba/block-traces.
//!             `tencent`: README of SNIA IOTTA 27917. `systor`: README of SNIA IOTTA 4928. `fiu`:
//!             README of SNIA IOTTA 390 and 391.

use crate::columns::Columns;
use crate::error::{Place, Wrong};
use crate::format::Format;
use crate::item::Names;

/// A dialect.
pub(crate) struct Dialect {
    pub format: Format,
    /// Its columns, as `--columns` describes them.
    pub columns: &'static str,
    /// Its first line, where that is always or sometimes a title; in small letters.
    title: Option<&'static str>,
    /// May its content alone say that it is this? The test is of a line that the columns can read.
    is_certain: fn(&str) -> bool,
}

/// All of them.
pub(crate) const DIALECTS: [Dialect; 8] = [
    Dialect {
        format: Format::Msr,
        columns: "time:100ns,dev,dev,op,lba:bytes,size:bytes,took:100ns",
        title: Some("timestamp,hostname,disknumber,type,offset,size,responsetime"),
        is_certain: |line| line.contains(",Read,") || line.contains(",Write,"),
    },
    Dialect {
        format: Format::Disksim,
        columns: "time:ms,dev,lba:512,size:512,op:bit0",
        title: None,
        is_certain: |line| line.split_ascii_whitespace().next().is_some_and(|t| t.contains('.')),
    },
    Dialect {
        format: Format::Mqsim,
        columns: "time:ns,dev,lba:512,size:512,op:w=0/r=1",
        title: None,
        is_certain: |_| false,
    },
    Dialect {
        format: Format::Spc,
        columns: "dev,lba:512,size:bytes,op,time:s,...",
        title: None,
        is_certain: |line| {
            let mut fields = line.split(',').map(str::trim);
            let has_letter = matches!(fields.nth(3), Some("r" | "R" | "w" | "W"));
            has_letter && fields.next().is_some_and(|time| time.contains('.'))
        },
    },
    Dialect {
        format: Format::Alibaba,
        columns: "dev,op,lba:bytes,size:bytes,time:us",
        title: Some("device_id,opcode,offset,length,timestamp"),
        is_certain: |line| matches!(line.split(',').nth(1).map(str::trim), Some("R" | "W")),
    },
    Dialect {
        format: Format::Tencent,
        columns: "time:s,lba:512,size:512,op:r=0/w=1,dev",
        title: Some("timestamp,offset,size,iotype,volumeid"),
        is_certain: |_| false,
    },
    Dialect {
        format: Format::Systor,
        columns: "time:s,took:s?,op?,dev,lba:bytes,size:bytes",
        title: Some("timestamp,response,iotype,lun,offset,size"),
        is_certain: |line| {
            let mut fields = line.split(',').map(str::trim);
            let has_fraction = fields.next().is_some_and(|time| time.contains('.'));
            has_fraction && matches!(fields.nth(1), Some("R" | "W"))
        },
    },
    Dialect {
        format: Format::Fiu,
        columns: "time:ns,-,-,lba:512,size:512,op,dev,dev,...",
        title: None,
        is_certain: |line| {
            let digest = line.split_ascii_whitespace().nth(8);
            digest.is_some_and(|d| d.len() == 32 && d.bytes().all(|b| b.is_ascii_hexdigit()))
        },
    },
];

/// The columns of a dialect; `None` of a format that is none.
pub(crate) fn columns_of(format: Format) -> Option<Columns> {
    let dialect = DIALECTS.iter().find(|d| d.format == format)?;
    Some(Columns::parse(dialect.columns).expect("a test reads every description"))
}

/// How long some lines are by the units of a dialect: `0.000431 s`.
fn span(columns: &Columns, lines: &[&str]) -> String {
    let times = lines.iter().filter_map(|line| columns.time_of(line));
    let (least, most) = times.fold((u64::MAX, 0), |(a, b), t| (a.min(t), b.max(t)));
    let span = most.saturating_sub(least);
    let text = format!("{}.{:09}", span / 1_000_000_000, span % 1_000_000_000);
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The dialect of a text that begins with these lines, which are neither empty nor remarks; `None`
/// if they are of none. Errors: the lines may be of several, or of one that others look like.
pub(crate) fn detect(lines: &[(u64, &str)]) -> Result<Option<Format>, Wrong> {
    let reads = |columns: &Columns, line: &str| {
        columns.line(line, Place::Line(1), &mut Names::default()).is_ok()
    };
    for (n, (_, line)) in lines.iter().enumerate() {
        let title = line.to_ascii_lowercase().replace(' ', "");
        if let Some(found) = DIALECTS.iter().find(|d| d.title == Some(title.as_str())) {
            return Ok(Some(found.format));
        }
        let mut fits: Vec<(&Dialect, Columns)> = DIALECTS
            .iter()
            .filter_map(|d| Some((d, columns_of(d.format)?)))
            .filter(|(_, columns)| reads(columns, line))
            .collect();
        if fits.is_empty() {
            continue;
        }
        // What follows may rule some out: a fraction where another has none, an operation.
        for (_, more) in &lines[n..] {
            if let [(only, _)] = fits[..]
                && (only.is_certain)(more)
            {
                return Ok(Some(only.format));
            }
            if let Some((sure, _)) =
                fits.iter().find(|(d, c)| (d.is_certain)(more) && reads(c, more))
            {
                return Ok(Some(sure.format));
            }
            if fits.iter().any(|(_, columns)| reads(columns, more)) {
                fits.retain(|(_, columns)| reads(columns, more));
            }
        }
        let texts: Vec<&str> = lines[n..].iter().map(|l| l.1).collect();
        let choice = |(d, c): &(&Dialect, Columns)| {
            let other = if d.format == Format::Mqsim { " (or ssdsim)" } else { "" };
            let (name, units) = (d.format.name(), c.units());
            let (n, span) = (texts.len(), span(c, &texts));
            format!("--format {name}{other}: {units}, so that these {n} lines span {span}")
        };
        let all: Vec<String> = fits.iter().map(choice).collect();
        let what = "the format cannot be told from its content".to_owned();
        let help = format!("say which it is: {}; or --columns", all.join("; "));
        return Err(Wrong::new(Place::Line(lines[n].0), what, help));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_is_read() {
        for dialect in &DIALECTS {
            let columns = columns_of(dialect.format).expect("it is a dialect");
            assert_eq!(columns.text(), dialect.columns);
            assert!(columns.units().contains("time") && columns.units().contains("size"));
        }
        assert_eq!(columns_of(Format::Blkparse), None);
    }
}
