//! Zones of a zoned device: what a mount does about write pointers that are not where the logs go
//! on.
//!
//! Source:     `fix_curseg_write_pointer`, `check_zone_write_pointer`.

use wp_base::{FsError, FsResult, Sector, Zone, ZoneKind, ZoneState};

use crate::disk::{Log, cp_flag};

use super::Rules;
use super::tables::Tables;

/// Sectors of a block.
const SECTORS: u64 = 8;

/// The zones of a file system, by block address.
#[derive(Clone, Default, Debug)]
pub(super) struct ZoneTable {
    zones: Vec<Zone>,
}

impl ZoneTable {
    /// Zones as the image reports them, in order; none of an image that reports none.
    ///
    /// Errors: `Invalid` for zones that do not follow one another, or are not made of blocks.
    pub(super) fn new(zones: Vec<Zone>) -> FsResult<ZoneTable> {
        let follow = zones.windows(2).all(|w| match w {
            [a, b] => a.start.0 + a.sectors == b.start.0,
            _ => true,
        });
        if !follow || zones.iter().any(|z| (z.sectors | z.start.0) % SECTORS != 0) {
            return Err(FsError::Invalid("zone report: whole zones, one behind the other"));
        }
        Ok(ZoneTable { zones })
    }

    /// The zones.
    pub(super) fn into_zones(self) -> Vec<Zone> {
        self.zones
    }

    /// Is there a report?
    pub(super) fn is_known(&self) -> bool {
        !self.zones.is_empty()
    }

    /// The zone that a block lies in.
    fn find(&self, addr: u32) -> Option<&Zone> {
        let sector = Sector(u64::from(addr) * SECTORS);
        let after = self.zones.partition_point(|z| z.start <= sector);
        let zone = self.zones.get(after.checked_sub(1)?)?;
        let holds = sector < zone.start.advance(zone.sectors);
        (holds && zone.kind == ZoneKind::Sequential).then_some(zone)
    }

    /// Everything of its zone below `head`, where a log goes on, has been written.
    pub(super) fn written_to(&mut self, head: u32) {
        let Some(start) = self.find(head).map(|z| z.start) else { return };
        let head = Sector(u64::from(head) * SECTORS);
        if let Some(z) = self.zones.iter_mut().find(|z| z.start == start && z.wp < head) {
            (z.wp, z.state) = (head, ZoneState::ImplicitOpen);
        }
    }

    /// The write pointer of its zone, if a block was not written, as that tells. Nothing where
    /// nothing tells.
    pub(super) fn not_written(&self, addr: u32) -> Option<u32> {
        self.find(addr).map(|z| block(z.wp)).filter(|pointer| addr >= *pointer)
    }

    /// Was nothing written to the zone of a block since its reset? Yes where there is no write
    /// pointer.
    pub(super) fn is_empty(&self, addr: u32) -> bool {
        self.find(addr).is_none_or(|z| z.wp == z.start)
    }

    /// Blocks of a section that can be written: its zone's capacity.
    pub(super) fn usable(&self, start: u32, blocks: u32) -> u32 {
        self.find(start).map_or(blocks, |z| u32::try_from(z.capacity / SECTORS).unwrap_or(blocks))
    }
}

/// The block that begins at, or holds, a sector.
fn block(sector: Sector) -> u32 {
    u32::try_from(sector.0 / SECTORS).unwrap_or(u32::MAX)
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
    /// Of both those that are left until the recovery's checkpoint is durable: reset, finished.
    pub later: (Vec<u32>, Vec<u32>),
    /// Zones with a valid block at or behind the write pointer: (first block, that block).
    pub beyond: Vec<(u32, u32)>,
}

impl ZoneRepair {
    /// Were zones reset or finished?
    pub(super) fn touches_any(&self) -> bool {
        let (reset, finished) = &self.later;
        [&self.reset, &self.finished, reset, finished].iter().any(|zones| !zones.is_empty())
    }

    /// Leaves until later what no log needs now: a zone that no log goes on in (`is_log`, of its
    /// first block) keeps its blocks and its write pointer, which another recovery would look at.
    pub(super) fn put_off(&mut self, is_log: impl Fn(u32) -> bool) {
        let (now, later) = std::mem::take(&mut self.reset).into_iter().partition(|z| is_log(*z));
        self.reset = now;
        self.later = (later, std::mem::take(&mut self.finished));
    }
}

/// Moves logs that do not go on at their zone's write pointer; resets zones with nothing in them.
/// `f2fs_fix_curseg_write_pointer`, `f2fs_check_write_pointer`.
pub(super) fn repair(
    t: &mut Tables<'_>,
    zones: &mut ZoneTable,
    rules: Rules,
) -> FsResult<ZoneRepair> {
    let mut out = ZoneRepair::default();
    let is_clean = t.image.checkpoint().has(cp_flag::UMOUNT);
    for log in Log::ALL {
        let (segment, offset) = t.log_head(log);
        let start = t.g.block(section_start(t, segment), 0);
        let Some(zone) = zones.find(start).copied() else { continue };
        let head = t.g.block(segment, offset);
        let agrees = zone.wp.0 % SECTORS == 0 && block(zone.wp) == head;
        if agrees && (is_clean || !rules.leave_zones()) {
            continue;
        }
        let is_new = offset == 0 && segment == section_start(t, segment);
        if !(is_new && rules.leave_zones()) {
            t.new_section(log)?;
            out.moved.push(Moved { log, from: (segment, offset), to: t.log_head(log) });
        }
        let to = t.log_head(log);
        check_zone(t, zones, zone.start, rules, &mut out)?;
        let fresh = zones.find(t.g.block(to.0, 0)).copied();
        if let Some(fresh) = fresh.filter(|z| z.wp != z.start) {
            reset(zones, fresh.start, &mut out);
        }
    }
    let starts: Vec<Sector> = zones.zones.iter().map(|z| z.start).collect();
    for start in starts {
        check_zone(t, zones, start, rules, &mut out)?;
    }
    Ok(out)
}

fn section_start(t: &Tables<'_>, segment: u32) -> u32 {
    t.g.section_of(segment) * t.g.section_segments
}

fn reset(zones: &mut ZoneTable, start: Sector, out: &mut ZoneRepair) {
    out.reset.push(block(start));
    if let Some(z) = zones.zones.iter_mut().find(|z| z.start == start) {
        (z.wp, z.state) = (z.start, ZoneState::Empty);
    }
}

fn check_zone(
    t: &mut Tables<'_>,
    zones: &mut ZoneTable,
    start: Sector,
    rules: Rules,
    out: &mut ZoneRepair,
) -> FsResult<()> {
    let first = block(start);
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
        last = crate::disk::bits::last(&map).map(|n| t.g.block(s, n));
        if last.is_some() {
            break;
        }
    }
    let pointer = block(zone.wp);
    match last {
        Some(last) if last >= pointer => out.beyond.push((first, last)),
        None if zone.wp != zone.start => reset(zones, start, out),
        // Valid blocks, and room behind them that no log will write: since 6.9 it is closed.
        Some(_)
            if rules.leave_zones()
                && zone.state != ZoneState::Full
                && zone.wp != zone.writable_end() =>
        {
            out.finished.push(first);
            if let Some(z) = zones.zones.iter_mut().find(|z| z.start == start) {
                (z.wp, z.state) = (z.writable_end(), ZoneState::Full);
            }
        }
        _ => {}
    }
    Ok(())
}
