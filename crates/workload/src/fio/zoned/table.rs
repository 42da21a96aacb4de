//! The zones of one device, as all jobs on it see them.

use wp_base::{SECTOR_BYTES, Zone, ZoneKind, ZoneState};

/// Most zones of a device: each is an entry in memory.
const ZONES_MAX: u64 = 1 << 22;

/// One zone. Addresses are bytes of the device.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub start: u64,
    /// Behind the last byte that can be written.
    pub capacity_end: u64,
    /// Where the next write goes.
    pub wp: u64,
    /// It has a write pointer.
    pub is_sequential: bool,
    pub is_offline: bool,
    /// It is one of those that are written now.
    pub is_open: bool,
    /// Whose operations are on their way there, and how many.
    pub owner: Option<(u32, u64)>,
}

/// The zones of a device.
#[derive(Clone, Debug)]
pub struct Zones {
    pub(super) zone_bytes: u64,
    pub(super) entries: Vec<Entry>,
    /// Zones that are written at the same time; 0: no limit, and nobody keeps count.
    pub(super) most_open: usize,
    pub(super) open: Vec<usize>,
    /// Bytes between the starts of zones and their write pointers.
    pub(super) valid: u64,
    /// Writes until the next reset that `zone_reset_frequency` asks for.
    pub(super) writes_left: u64,
    /// The device has no zones: they are fio's own, and a reset is no command.
    pub(super) is_emulated: bool,
}

impl Zones {
    /// Of a device's report. Errors: a device whose zones are not all of one size.
    pub fn of_report(report: &[Zone], most_open: u32) -> Result<Zones, String> {
        let zone_bytes = report.first().map_or(0, |z| z.sectors * SECTOR_BYTES);
        if zone_bytes == 0 || report.iter().any(|z| z.sectors * SECTOR_BYTES > zone_bytes) {
            return Err("the device's zones are not all of one size".to_owned());
        }
        let entry = |z: &Zone| {
            let is_full = matches!(z.state, ZoneState::Full | ZoneState::NotWp);
            let capacity_end = z.writable_end().bytes();
            Entry {
                start: z.start.bytes(),
                capacity_end,
                wp: if is_full { capacity_end } else { z.wp.bytes() },
                is_sequential: z.kind == ZoneKind::Sequential,
                is_offline: z.state == ZoneState::Offline,
                is_open: false,
                owner: None,
            }
        };
        let entries: Vec<Entry> = report.iter().map(entry).collect();
        let mut zones = Zones::with(entries, zone_bytes, most_open as usize, false);
        for (n, zone) in report.iter().enumerate().filter(|(_, z)| z.state.is_open()) {
            if zone.kind == ZoneKind::Sequential && zones.most_open > zones.open.len() {
                zones.open_at(n);
            }
        }
        Ok(zones)
    }

    /// Of a device or file of `bytes` that has none: all of them empty. `capacity`: of each, 0: all
    /// of it.
    ///
    /// Errors: sizes that cannot be.
    pub fn emulated(
        bytes: u64,
        zone_bytes: u64,
        capacity: u64,
        most_open: u64,
    ) -> Result<Zones, String> {
        if zone_bytes < SECTOR_BYTES {
            return Err("zonemode=zbd on what has no zones needs zonesize, of at least 512".into());
        }
        if capacity > zone_bytes {
            return Err(format!("zonecapacity {capacity} is larger than zonesize {zone_bytes}"));
        }
        if bytes < zone_bytes {
            return Err(format!("its {bytes} bytes are less than one zone: zonesize={zone_bytes}"));
        }
        let count = bytes.div_ceil(zone_bytes);
        if count > ZONES_MAX {
            return Err(format!(
                "zonesize={zone_bytes} makes {count} zones of its {bytes} bytes; at most {ZONES_MAX}"
            ));
        }
        let capacity = if capacity == 0 { zone_bytes } else { capacity };
        let entry = |n: u64| Entry {
            start: n * zone_bytes,
            capacity_end: n * zone_bytes + capacity,
            wp: n * zone_bytes,
            is_sequential: true,
            is_offline: false,
            is_open: false,
            owner: None,
        };
        let entries = (0..count).map(entry).collect();
        Ok(Zones::with(entries, zone_bytes, most_open as usize, true))
    }

    fn with(entries: Vec<Entry>, zone_bytes: u64, most_open: usize, is_emulated: bool) -> Zones {
        let sequential = entries.iter().filter(|e| e.is_sequential);
        let valid = sequential.map(|e| e.wp - e.start).sum();
        let open = Vec::new();
        Zones { zone_bytes, entries, most_open, open, valid, writes_left: u64::MAX, is_emulated }
    }

    /// The number of the zone that an address is in; one behind the last for what is beyond.
    pub(super) fn at(&self, offset: u64) -> usize {
        ((offset / self.zone_bytes) as usize).min(self.entries.len())
    }

    /// Is nothing written in a sequential zone?
    pub(super) fn is_empty(&self) -> bool {
        self.valid == 0
    }

    pub(super) fn open_at(&mut self, n: usize) {
        self.entries[n].is_open = true;
        self.open.push(n);
    }

    /// A zone is no longer written.
    pub(super) fn close_at(&mut self, n: usize) -> bool {
        let was = std::mem::take(&mut self.entries[n].is_open);
        self.open.retain(|open| *open != n);
        was
    }

    /// A zone is empty again. False: it was.
    pub(super) fn reset_at(&mut self, n: usize) -> bool {
        let entry = &mut self.entries[n];
        let data = entry.wp - entry.start;
        entry.wp = entry.start;
        self.valid = self.valid.saturating_sub(data);
        data > 0
    }

    /// Writes go on behind `end`.
    pub(super) fn written_to(&mut self, n: usize, end: u64) {
        let entry = &mut self.entries[n];
        let end = end.min(entry.capacity_end);
        self.valid += end.saturating_sub(entry.wp);
        entry.wp = end;
    }
}
