//! Zones of a zoned device: reports as `blkzone report` prints them, and what a mount does about
//! write pointers that are not where the logs go on.
//!
//! Source:     blkzone(8); `fix_curseg_write_pointer`, `check_zone_write_pointer`.

use wp_base::{FsError, FsResult};

use crate::disk::{Geometry, Log, cp_flag};

use super::Rules;
use super::tables::Tables;

/// Kind of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneKind {
    /// Written anywhere.
    Conventional,
    /// Written one block after another only.
    Sequential,
}

/// A zone as a device reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// First sector of 512 bytes on its device.
    pub start: u64,
    /// Length in sectors.
    pub len: u64,
    /// Sectors that can be written.
    pub cap: u64,
    /// Sectors written.
    pub written: u64,
    /// Kind.
    pub kind: ZoneKind,
    /// Condition, as the report's number: 1 empty, 2 and 3 open, 4 closed, 14 full.
    pub condition: u8,
}

/// `zcond` of a full zone.
const FULL: u8 = 14;
/// Sectors of a block.
const SECTORS: u64 = 8;

/// Reads what `blkzone report` prints, a line a zone.
///
/// Errors: `Invalid` for a line that is none; sectors of a zone that has more written than it has.
pub fn parse_zones(text: &str) -> FsResult<Vec<Zone>> {
    text.lines().filter(|l| !l.trim().is_empty()).map(parse_line).collect()
}

fn parse_line(line: &str) -> FsResult<Zone> {
    let wrong = FsError::Invalid("zone report: a line of `blkzone report`");
    let number = |name: &str| -> Option<u64> {
        let (_, rest) = line.split_once(name)?;
        let text = rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        let text = text.get(..end)?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let fields = (|| {
        let kind = match number("[type:")? {
            1 => ZoneKind::Conventional,
            2 | 3 => ZoneKind::Sequential,
            _ => return None,
        };
        let condition = u8::try_from(number("zcond:")?).ok()?;
        let len = number(" len ")?;
        // A report without capacities is of zones that can be filled.
        let cap = number(" cap ").unwrap_or(len);
        let written = if condition == FULL { cap } else { number("wptr ")? };
        Some(Zone { start: number("start:")?, len, cap, written, kind, condition })
    })();
    fields.filter(|z| z.written <= z.len && z.cap <= z.len && z.len > 0).ok_or(wrong)
}

/// The zones of a file system, by block address.
#[derive(Clone, Default, Debug)]
pub(super) struct ZoneTable {
    /// First block of the zoned device.
    base: u32,
    zones: Vec<Zone>,
}

impl ZoneTable {
    /// Zones of the last device of the file system, in order.
    ///
    /// Errors: `Invalid` for zones that do not follow one another, or are not made of blocks.
    pub(super) fn new(g: &Geometry, zones: &[Zone]) -> FsResult<ZoneTable> {
        let mut next = 0;
        for z in zones {
            if z.start != next || z.len % SECTORS != 0 {
                return Err(FsError::Invalid("zone report: whole zones in order, from sector 0"));
            }
            next = z.start.saturating_add(z.len);
        }
        let base = g.devices.last().map_or(0, |d| d.start);
        Ok(ZoneTable { base, zones: zones.to_vec() })
    }

    /// The zone that a block lies in.
    fn find(&self, addr: u32) -> Option<&Zone> {
        let sector = u64::from(addr.checked_sub(self.base)?) * SECTORS;
        let after = self.zones.partition_point(|z| z.start <= sector);
        let zone = self.zones.get(after.checked_sub(1)?)?;
        (sector < zone.start + zone.len && zone.kind == ZoneKind::Sequential).then_some(zone)
    }

    fn block(&self, sector: u64) -> u32 {
        u32::try_from(u64::from(self.base) + sector / SECTORS).unwrap_or(u32::MAX)
    }

    /// Was a block written, as its zone's write pointer tells? Yes where nothing tells.
    pub(super) fn is_written(&self, addr: u32) -> bool {
        self.find(addr).is_none_or(|z| addr < self.block(z.start + z.written))
    }

    /// Blocks of a section that can be written: its zone's capacity.
    pub(super) fn usable(&self, start: u32, blocks: u32) -> u32 {
        self.find(start).map_or(blocks, |z| u32::try_from(z.cap / SECTORS).unwrap_or(blocks))
    }
}

/// A log that goes on in another section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Which.
    pub log: Log,
    /// Segment and block where it stood.
    pub from: (u32, u32),
    /// Segment and block where it goes on.
    pub to: (u32, u32),
}

/// What was done to zones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZoneRepair {
    /// Logs that go on in another section.
    pub moved: Vec<Moved>,
    /// Zones to be reset, by their first block.
    pub reset: Vec<u32>,
    /// Zones to be finished, by their first block.
    pub finished: Vec<u32>,
    /// Zones with a valid block at or behind the write pointer: (first block, that block).
    pub beyond: Vec<(u32, u32)>,
}

/// Moves logs that do not go on at their zone's write pointer; resets zones with nothing in them.
/// `f2fs_fix_curseg_write_pointer`, `f2fs_check_write_pointer`.
pub(super) fn repair(t: &mut Tables<'_>, zones: &ZoneTable, rules: Rules) -> FsResult<ZoneRepair> {
    let mut out = ZoneRepair::default();
    let mut zones = zones.clone();
    let is_clean = t.image.checkpoint().has(cp_flag::UMOUNT);
    for log in Log::ALL {
        let (segment, offset) = t.log_head(log);
        let start = t.g.block(section_start(t, segment), 0);
        let Some(zone) = zones.find(start).copied() else { continue };
        let pointer = zone.start + zone.written;
        let head = t.g.block(segment, offset);
        let agrees = pointer % SECTORS == 0 && zones.block(pointer) == head;
        if agrees && (is_clean || !rules.leave_zones) {
            continue;
        }
        let is_new = offset == 0 && segment == section_start(t, segment);
        if !(is_new && rules.leave_zones) {
            t.new_section(log)?;
            out.moved.push(Moved { log, from: (segment, offset), to: t.log_head(log) });
        }
        let to = t.log_head(log);
        check_zone(t, &mut zones, zone.start, rules, &mut out)?;
        let fresh = zones.find(t.g.block(to.0, 0)).copied();
        if let Some(fresh) = fresh.filter(|z| z.written != 0) {
            reset(&mut zones, fresh.start, &mut out);
        }
    }
    let starts: Vec<u64> = zones.zones.iter().map(|z| z.start).collect();
    for start in starts {
        check_zone(t, &mut zones, start, rules, &mut out)?;
    }
    Ok(out)
}

fn section_start(t: &Tables<'_>, segment: u32) -> u32 {
    t.g.section_of(segment) * t.g.section_segments
}

fn reset(zones: &mut ZoneTable, start: u64, out: &mut ZoneRepair) {
    out.reset.push(zones.block(start));
    if let Some(z) = zones.zones.iter_mut().find(|z| z.start == start) {
        (z.written, z.condition) = (0, 1);
    }
}

fn check_zone(
    t: &mut Tables<'_>,
    zones: &mut ZoneTable,
    start: u64,
    rules: Rules,
    out: &mut ZoneRepair,
) -> FsResult<()> {
    let first = zones.block(start);
    let (Some(zone), Some((segment, _))) = (zones.find(first).copied(), t.g.place(first)) else {
        return Ok(());
    };
    let section = t.g.section_of(segment);
    if Log::ALL.iter().any(|l| t.g.section_of(t.log_head(*l).0) == section) {
        return Ok(());
    }
    let mut last = None;
    let end = (segment + t.g.section_segments).min(t.g.segments);
    for s in (segment..end).rev() {
        let map = t.valid_map(s)?;
        last = (0..512).rev().find(|n| crate::disk::bits::test(&map, *n)).map(|n| t.g.block(s, n));
        if last.is_some() {
            break;
        }
    }
    let pointer = zones.block(zone.start + zone.written);
    match last {
        Some(last) if last >= pointer => out.beyond.push((first, last)),
        None if zone.written != 0 => reset(zones, start, out),
        // Valid blocks, and room behind them that no log will write: since 6.8 it is closed.
        Some(_) if rules.leave_zones && zone.condition != FULL && zone.written != zone.cap => {
            out.finished.push(first);
            if let Some(z) = zones.zones.iter_mut().find(|z| z.start == start) {
                (z.written, z.condition) = (z.cap, FULL);
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = "  start: 0x000028000, len 0x008000, cap 0x006000, wptr 0x000288 reset:0 \
                    non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]\n\
                    start: 0x000030000, len 0x008000, cap 0x006000, wptr 0x008000 reset:0 \
                    non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]\n";
        let zones = parse_zones(text).expect("two lines");
        let first = Zone {
            start: 0x28000,
            len: 0x8000,
            cap: 0x6000,
            written: 0x288,
            kind: ZoneKind::Sequential,
            condition: 2,
        };
        assert_eq!(zones.first(), Some(&first));
        assert_eq!(zones.get(1).map(|z| z.written), Some(0x6000), "full: as far as it goes");
        for bad in ["start: 0x0", "start: 0x0, len 0x8, cap 0x8, wptr 0x9 zcond: 2 [type: 2("] {
            assert!(parse_zones(bad).is_err(), "{bad}");
        }
    }
}
