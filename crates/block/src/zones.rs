//! Zones at a power cut, and reports of zones as text.
//!
//! Text:   that of `blkzone report` (util-linux 2.38), which reference images of zoned devices come
//!         with: a line a zone, the write pointer counted from the zone's start, that of a full
//!         zone at the zone's end (as NVMe's driver reports it), that of a conventional one 0.

use std::fmt::Write;
use std::rc::Rc;

use wp_base::{Sector, Zone, ZoneKind, ZoneLimits, ZoneState};

use crate::device::LossEffect;

/// What of a sequential zone's unflushed units a power cut may keep.
///
/// Between zones nothing is ordered, either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZoneOrder {
    /// A prefix: nothing that was written later is there without what was written before it. The
    /// write pointer is where it ends.
    Prefix,
    /// Any: flash dies finish out of order and the device does not hide it. The write pointer is
    /// behind the last unit that is there; units before it may be missing and read as zeroes.
    Holes,
}

/// The zones of a device at a power cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneCut {
    /// What the device says of its zones.
    pub limits: ZoneLimits,
    /// The zones as they will be reported if only what is durable is there.
    pub table: Rc<Vec<Zone>>,
    /// What of the rest may be there too.
    pub order: ZoneOrder,
}

impl ZoneCut {
    /// May a cut keep just these of units at these sectors, which come in device order?
    pub fn is_legal(
        &self,
        units: impl Iterator<Item = (usize, Sector)>,
        kept: &impl Fn(usize) -> bool,
    ) -> bool {
        if self.order == ZoneOrder::Holes {
            return true;
        }
        let mut cut_off: Vec<u32> = Vec::new();
        for (i, at) in units {
            let zone = self.limits.zone_of(at);
            if !self.limits.is_sequential(at) {
                continue;
            }
            if !kept(i) {
                cut_off.push(zone);
            } else if cut_off.contains(&zone) {
                return false;
            }
        }
        true
    }
}

/// What keeping a unit does to a table of zones.
pub trait KeepInZone {
    /// A unit of `sectors` at `at` is there after the cut.
    fn keep(&self, zones: &mut [Zone], effect: LossEffect, at: Sector, sectors: u64);
}

impl KeepInZone for ZoneLimits {
    fn keep(&self, zones: &mut [Zone], effect: LossEffect, at: Sector, sectors: u64) {
        if !self.is_sequential(at) {
            return;
        }
        let Some(zone) = zones.get_mut(self.zone_of(at) as usize) else { return };
        let end = zone.writable_end();
        match effect {
            LossEffect::Data => {
                zone.wp = zone.wp.max(at.advance(sectors)).min(end);
                zone.state = if zone.wp == end { ZoneState::Full } else { ZoneState::Closed };
            }
            LossEffect::ZoneReset => (zone.wp, zone.state) = (zone.start, ZoneState::Empty),
            LossEffect::ZoneFinish => (zone.wp, zone.state) = (end, ZoneState::Full),
        }
    }
}

/// A report of zones as after a loss of power: what was open is closed, or empty again if nothing
/// was written (NVMe ZNS command set 1.1, 2.1.1.3: a reset of the controller closes what is open).
pub fn powered_up(zones: &mut [Zone]) {
    for zone in zones.iter_mut().filter(|z| z.state.is_active()) {
        zone.state = if zone.wp == zone.start { ZoneState::Empty } else { ZoneState::Closed };
    }
}

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
pub fn report_text(zones: &[Zone]) -> String {
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
pub fn parse_report(text: &str) -> Result<Vec<Zone>, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(n, line)| zone_of_line(line).map_err(|e| format!("line {n}: {e}"))).collect()
}

/// The text between `key` and the next comma, blank or bracket behind it.
fn field<'a>(line: &'a str, key: &str) -> Result<&'a str, String> {
    let Some((_, rest)) = line.split_once(key) else { return Err(format!("there is no `{key}`")) };
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
    parsed.map_err(|_| format!("`{key}` is {text:?}, which is no number"))
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
    let Some(state) = state else { return Err("`zcond:` is no state of a zone".to_owned()) };
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

    const LIMITS: ZoneLimits = ZoneLimits {
        zone_sectors: 0x8000,
        capacity_sectors: 0x6000,
        zones: 5,
        conventional: 1,
        max_open: 14,
        max_active: 14,
        append_max_sectors: 256,
    };

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
        let zones = parse_report(REPORT).expect("a report");
        assert_eq!(zones[1].wp, Sector(0x8288));
        assert_eq!((zones[3].wp, zones[3].state), (Sector(0x1E000), ZoneState::Full));
        assert!(zones[0].is_below_wp(Sector(77)) && !zones[2].is_below_wp(Sector(0x10000)));
        assert_eq!(report_text(&zones), REPORT);
        let mut expected = LIMITS.fresh();
        LIMITS.keep(&mut expected, LossEffect::Data, Sector(0x8000), 0x288);
        expected[1].state = ZoneState::ImplicitOpen;
        LIMITS.keep(&mut expected, LossEffect::ZoneFinish, Sector(0x18000), 0);
        assert_eq!(zones, expected);
        powered_up(&mut expected);
        assert_eq!(expected[1].state, ZoneState::Closed);
    }

    #[test]
    fn what_is_no_report_is_told_by_line() {
        let bad = REPORT.replace("cap 0x006000, wptr 0x000288", "cap 0x00600g, wptr 0x000288");
        let error = parse_report(&bad).expect_err("no number");
        assert_eq!(error, "line 2: `, cap` is \"0x00600g\", which is no number");
        let bad = REPORT.replace("wptr 0x000288", "wptr 0x00f288");
        let error = parse_report(&bad).expect_err("behind its end");
        assert_eq!(
            error,
            "line 2: len 0x8000, cap 0x6000, wptr 0xf288 cannot be those of one zone"
        );
        for cut in 0..REPORT.len() {
            // No prefix of it panics.
            let _ = parse_report(&REPORT[..cut]);
        }
        assert!(parse_report("zones: 7").is_err());
    }

    #[test]
    fn a_prefix_has_no_hole_and_zones_are_apart() {
        let cut = |order| ZoneCut { limits: LIMITS, table: Rc::new(LIMITS.fresh()), order };
        let places = [0x8000, 0x10000, 0x8008, 0, 0x10008].map(Sector);
        let legal = |order, kept: [bool; 5]| {
            cut(order).is_legal(places.iter().copied().enumerate(), &|i| kept[i])
        };
        let mut counts = [0, 0];
        for mask in 0..32u32 {
            let kept = std::array::from_fn(|i| mask >> i & 1 == 1);
            counts[0] += u32::from(legal(ZoneOrder::Prefix, kept));
            counts[1] += u32::from(legal(ZoneOrder::Holes, kept));
        }
        // Three prefixes in each of two zones, and a conventional sector or not.
        assert_eq!(counts, [3 * 3 * 2, 32]);
    }
}
