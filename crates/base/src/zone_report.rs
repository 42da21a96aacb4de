//! Reports of zones as text: that of `blkzone report` (util-linux 2.38).
//!
//! Text:   a line a zone, the write pointer counted from the zone's start; that of a full zone at
//!         the zone's end (as NVMe's driver reports it), that of a conventional one 0.

use std::fmt::Write;

use crate::{Sector, Zone, ZoneKind, ZoneState};

/// What a report is made of besides the numbers: names by state.
const STATES: [(ZoneState, &str); 8] = [
    (ZoneState::NotWp, "nw"),
    (ZoneState::Empty, "em"),
    (ZoneState::ImplicitOpen, "oi"),
    (ZoneState::ExplicitOpen, "oe"),
    (ZoneState::Closed, "cl"),
    (ZoneState::ReadOnly, "ro"),
    (ZoneState::Full, "fu"),
    (ZoneState::Offline, "ol"),
];

/// Zones as `blkzone report` prints them.
pub fn text(zones: &[Zone]) -> String {
    let mut out = String::new();
    for z in zones {
        let (number, name) = match z.kind {
            ZoneKind::Conventional => (1, "CONVENTIONAL"),
            ZoneKind::Sequential => (2, "SEQ_WRITE_REQUIRED"),
        };
        let wp = match (z.kind, z.state) {
            (ZoneKind::Conventional, _) => 0,
            (_, ZoneState::Full) => z.sectors,
            _ => z.wp.0 - z.start.0,
        };
        let state = STATES.iter().find(|(s, _)| *s == z.state).map_or("x?", |(_, name)| name);
        writeln!(
            out,
            "  start: 0x{:09x}, len 0x{:06x}, cap 0x{:06x}, wptr 0x{wp:06x} reset:0 non-seq:0, \
             zcond:{:2}({state}) [type: {number}({name})]",
            z.start.0,
            z.sectors,
            z.capacity,
            z.state.number(),
        )
        .expect("a string takes everything");
    }
    out
}

/// Reads what `blkzone report` printed. Errors: the line that is none of its, and why.
pub fn parse(text: &str) -> Result<Vec<Zone>, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(n, line)| zone_of_line(line).map_err(|e| format!("line {n}: {e}"))).collect()
}

/// The text between `key` and the next comma, blank or bracket behind it.
fn field<'a>(line: &'a str, key: &str) -> Result<&'a str, String> {
    let Some((_, rest)) = line.split_once(key) else { return Err(format!("`{key}` is missing")) };
    let rest = rest.trim_start();
    let end = rest.find([',', ' ', '(', ')', ']']).unwrap_or(rest.len());
    Ok(&rest[..end])
}

fn number(line: &str, key: &str) -> Result<u64, String> {
    let text = field(line, key)?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{key}` is {text:?}, which is not a number"))
}

fn zone_of_line(line: &str) -> Result<Zone, String> {
    let (start, sectors) = (number(line, "start:")?, number(line, ", len")?);
    // util-linux before 2.37 has no capacity.
    let capacity = if line.contains(", cap ") { number(line, ", cap")? } else { sectors };
    let wp = number(line, "wptr")?;
    let kind = match number(line, "type:")? {
        1 => ZoneKind::Conventional,
        2 => ZoneKind::Sequential,
        other => return Err(format!("`type:` is {other}; only 1 and 2 are known here")),
    };
    let state = u8::try_from(number(line, "zcond:")?).ok().and_then(ZoneState::from_number);
    let Some(state) = state else { return Err("`zcond:` is not a state of a zone".to_owned()) };
    if sectors == 0 || capacity == 0 || capacity > sectors || wp > sectors {
        let what = format!("len {sectors:#x}, cap {capacity:#x}, wptr {wp:#x}");
        return Err(format!("{what} cannot be those of one zone"));
    }
    if start.checked_add(sectors).is_none() {
        return Err(format!("`start:` is {start:#x}, which no device reaches"));
    }
    let start = Sector(start);
    let wp = match (kind, state) {
        (ZoneKind::Conventional, _) => start,
        (_, ZoneState::Full) => start.advance(capacity),
        _ => start.advance(wp),
    };
    Ok(Zone { start, sectors, capacity, wp, kind, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As util-linux 2.38 printed it for null_blk (reference images of zoned F2FS).
    const REPORT: &str = concat!(
        "  start: 0x000000000, len 0x008000, cap 0x008000, wptr 0x000000 ",
        "reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]\n",
        "  start: 0x000008000, len 0x008000, cap 0x006000, wptr 0x000288 ",
        "reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]\n",
        "  start: 0x000010000, len 0x008000, cap 0x006000, wptr 0x000000 ",
        "reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]\n",
        "  start: 0x000018000, len 0x008000, cap 0x006000, wptr 0x008000 ",
        "reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]\n",
        "  start: 0x000020000, len 0x008000, cap 0x006000, wptr 0x000000 ",
        "reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]\n",
    );

    #[test]
    fn a_report_is_read_and_printed_as_it_was() {
        let zones = parse(REPORT).expect("a report");
        assert_eq!(zones[1].wp, Sector(0x8288));
        assert_eq!((zones[3].wp, zones[3].state), (Sector(0x1E000), ZoneState::Full));
        assert!(zones[0].is_below_wp(Sector(77)) && !zones[2].is_below_wp(Sector(0x10000)));
        assert_eq!(text(&zones), REPORT);
    }

    #[test]
    fn what_is_no_report_is_told_by_line() {
        let bad = REPORT.replace("cap 0x006000, wptr 0x000288", "cap 0x00600g, wptr 0x000288");
        let error = parse(&bad).expect_err("no number");
        assert_eq!(error, "line 2: `, cap` is \"0x00600g\", which is not a number");
        let bad = REPORT.replace("wptr 0x000288", "wptr 0x00f288");
        let error = parse(&bad).expect_err("behind its end");
        assert_eq!(
            error,
            "line 2: len 0x8000, cap 0x6000, wptr 0xf288 cannot be those of one zone"
        );
        for cut in 0..REPORT.len() {
            // No prefix of it panics.
            let _ = parse(&REPORT[..cut]);
        }
        assert!(parse("zones: 7").is_err());
    }
}
