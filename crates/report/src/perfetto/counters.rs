//! Counters: requests in the elevator and in the device, what is in the device's buffer, and write
//! pointers of zones.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::Time;
use wp_base::event::Work;

use super::{BY_RANK, CounterDescriptor, TrackDescriptor};
use super::{COUNTER, COUNTERS, LANES, SYSTEM, UNIT_BYTES, UNIT_COUNT, Writer};
use crate::run::Seen;

/// Zones whose write pointers are shown, at most: those that are written first.
const ZONES_MAX: usize = 64;

/// By how much a counter changes, and when.
type Changes = Vec<(Time, i64)>;

impl Writer {
    pub(super) fn counters(&mut self, seen: &Seen<'_>) {
        self.group(COUNTERS, "counters", SYSTEM);
        let (mut waiting, mut sent) = (Changes::new(), Changes::new());
        for r in &seen.walk.requests {
            if let (Some(queued), Some(issued)) = (r.start(), r.issued) {
                if queued.at < issued.at {
                    waiting.extend([(queued.at, 1), (issued.at, -1)]);
                }
                sent.push((issued.at, 1));
                sent.extend(r.done.map(|m| (m.at, -1)));
            }
        }
        self.changes(0, "requests waiting for dispatch", UNIT_COUNT, waiting);
        self.changes(1, "requests in the device", UNIT_COUNT, sent);
        self.changes(2, "bytes in the device's buffer, not on its flash", UNIT_BYTES, buffer(seen));
        self.pointers(seen);
    }

    /// A counter that begins with 0.
    fn changes(&mut self, n: u64, name: &str, unit: i32, mut changes: Changes) {
        if changes.is_empty() {
            return;
        }
        changes.sort_by_key(|(at, _)| *at);
        let mut value = 0i64;
        let mut values: Vec<(Time, i64)> = Vec::new();
        for (at, by) in changes {
            // What was there when the run began is not known: it never was less than nothing.
            value = value.saturating_add(by).max(0);
            match values.last_mut() {
                Some(last) if last.0 == at => last.1 = value,
                _ => values.push((at, value)),
            }
        }
        self.counter(n, name, unit, &values);
    }

    fn counter(&mut self, n: u64, name: &str, unit: i32, values: &[(Time, i64)]) {
        let track = COUNTERS * LANES + n;
        self.descriptor(TrackDescriptor {
            uuid: Some(track),
            name: Some(name.to_owned()),
            parent_uuid: Some(COUNTERS),
            counter: Some(CounterDescriptor { unit: Some(unit) }),
            child_ordering: Some(BY_RANK),
            sibling_order_rank: i32::try_from(n).ok(),
            ..TrackDescriptor::default()
        });
        for (at, value) in values {
            self.event(*at, track, COUNTER).counter_value = Some(*value);
        }
    }

    /// Write pointers, sectors from each zone's start, as completed writes move them.
    fn pointers(&mut self, seen: &Seen<'_>) {
        let Some(zone_sectors) = seen.run.zone_sectors else { return };
        let mut zones: BTreeMap<u64, Vec<(Time, i64)>> = BTreeMap::new();
        for r in seen.walk.requests.iter().filter(|r| r.op.writes() && r.sectors > 0) {
            let Some(done) = r.done else { continue };
            let zone = r.at.0 / zone_sectors;
            if !zones.contains_key(&zone) && zones.len() == ZONES_MAX {
                continue;
            }
            let end = r.at.0 % zone_sectors + u64::from(r.sectors);
            zones.entry(zone).or_default().push((done.at, end as i64));
        }
        for ((zone, mut values), n) in zones.into_iter().zip(10..) {
            values.sort_by_key(|(at, _)| *at);
            let name = format!("write pointer of zone {zone}, sectors");
            self.counter(n, &name, UNIT_COUNT, &values);
        }
    }
}

/// Bytes that came into the device's buffer, and that its dies took out of it.
fn buffer(seen: &Seen<'_>) -> Changes {
    let commands = seen.inside.commands.iter().filter(|c| c.op.writes());
    let writes: BTreeSet<u64> = commands.map(|c| c.id).collect();
    let mut out = Changes::new();
    for w in &seen.inside.works {
        let bytes = w.bytes as i64;
        match w.what {
            Work::Transfer if w.commands.iter().all(|id| writes.contains(id)) => {
                out.push((w.to, bytes))
            }
            Work::Program if !w.gc => out.push((w.to, -bytes)),
            _ => {}
        }
    }
    // Without both the sum says nothing.
    let both = out.iter().any(|c| c.1 > 0) && out.iter().any(|c| c.1 < 0);
    if both { out } else { Changes::new() }
}
