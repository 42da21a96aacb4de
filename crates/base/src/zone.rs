//! Zones of a block device: what a report says of each.
//!
//! Names and numbers are those of the kernel's `struct blk_zone` (`include/uapi/linux/blkzoned.h`),
//! which NVMe's and ZBC's reports are turned into.

use crate::Sector;

/// What may be written where (`enum blk_zone_type`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZoneKind {
    /// Anywhere; it has no write pointer.
    Conventional,
    /// At the write pointer only.
    Sequential,
}

/// State of a zone (`enum blk_zone_cond`; NVMe ZNS command set 1.1, figure 10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZoneState {
    /// It has no write pointer: a conventional zone.
    NotWp,
    /// Nothing written since the reset.
    Empty,
    /// Opened by a write.
    ImplicitOpen,
    /// Opened by a command.
    ExplicitOpen,
    /// Written, and no resources of an open zone are held for it.
    Closed,
    /// It takes no more.
    Full,
    /// It can be read only, for good.
    ReadOnly,
    /// Nothing can be done with it, for good.
    Offline,
}

impl ZoneState {
    /// Number in a kernel's report.
    pub fn number(self) -> u8 {
        match self {
            ZoneState::NotWp => 0,
            ZoneState::Empty => 1,
            ZoneState::ImplicitOpen => 2,
            ZoneState::ExplicitOpen => 3,
            ZoneState::Closed => 4,
            ZoneState::ReadOnly => 0xd,
            ZoneState::Full => 0xe,
            ZoneState::Offline => 0xf,
        }
    }

    /// The state of that number in a kernel's report.
    pub fn from_number(number: u8) -> Option<ZoneState> {
        use ZoneState::{
            Closed, Empty, ExplicitOpen, Full, ImplicitOpen, NotWp, Offline, ReadOnly,
        };
        [NotWp, Empty, ImplicitOpen, ExplicitOpen, Closed, ReadOnly, Full, Offline]
            .into_iter()
            .find(|s| s.number() == number)
    }

    /// Does it hold one of the device's open resources?
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitOpen | ZoneState::ExplicitOpen)
    }

    /// Does it hold one of the device's active resources?
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneState::Closed
    }
}

/// A zone in a report (`struct blk_zone`). Everything in sectors of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Zone {
    /// Its first sector.
    pub start: Sector,
    /// From its start to the next zone's.
    pub sectors: u64,
    /// How many of them can be written, from the first.
    pub capacity: u64,
    /// Where the next write has to begin. Of a full zone the end of its capacity, though a kernel
    /// reports its end; of a conventional one its start, which means nothing.
    pub wp: Sector,
    /// What may be written where.
    pub kind: ZoneKind,
    /// Its state.
    pub state: ZoneState,
}

impl Zone {
    /// First sector behind what can be written.
    pub fn writable_end(&self) -> Sector {
        self.start.advance(self.capacity)
    }

    /// Those of `zones` that lie whole within `sectors` from `start`, addressed from there.
    pub fn within(zones: &[Zone], start: Sector, sectors: u64) -> Vec<Zone> {
        let end = start.0.saturating_add(sectors);
        let inside = |z: &&Zone| z.start >= start && z.start.0 + z.sectors <= end;
        let own = |z: &Zone| Zone {
            start: Sector(z.start.0 - start.0),
            wp: Sector(z.wp.0 - start.0),
            ..*z
        };
        zones.iter().filter(inside).map(own).collect()
    }

    /// Has `at` been written since the zone was reset, as far as its write pointer tells? Always in
    /// a conventional zone, whose pointer tells nothing.
    pub fn is_below_wp(&self, at: Sector) -> bool {
        self.kind == ZoneKind::Conventional || at < self.wp
    }
}

/// What a zoned device says of its zones (`struct queue_limits`: `chunk_sectors`,
/// `max_open_zones`, `max_active_zones`, `max_zone_append_sectors`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneLimits {
    /// Sectors from one zone's start to the next one's.
    pub zone_sectors: u64,
    /// Sectors of a sequential zone that can be written.
    pub capacity_sectors: u64,
    /// How many zones; all of one size.
    pub zones: u32,
    /// How many of them, from the first, are conventional.
    pub conventional: u32,
    /// Most zones that may be open at once; 0: no limit.
    pub max_open: u32,
    /// Most zones that may be open or closed at once; 0: no limit.
    pub max_active: u32,
    /// Largest zone append in sectors; 0: the device has none.
    pub append_max_sectors: u32,
}

impl ZoneLimits {
    /// Number of the zone that holds `at`.
    pub fn zone_of(&self, at: Sector) -> u32 {
        u32::try_from(at.0 / self.zone_sectors).unwrap_or(u32::MAX)
    }

    /// First sector of a zone.
    pub fn start_of(&self, zone: u32) -> Sector {
        Sector(u64::from(zone) * self.zone_sectors)
    }

    /// Must `at` be written in order? Not in a conventional zone, nor beyond the last.
    pub fn is_sequential(&self, at: Sector) -> bool {
        (self.conventional..self.zones).contains(&self.zone_of(at))
    }

    /// Are `at` and the sector before `end` in one zone?
    pub fn is_within_one(&self, at: Sector, end: Sector) -> bool {
        end.0 <= at.0 || self.zone_of(at) == self.zone_of(Sector(end.0 - 1))
    }

    /// The zones as they are before anything was written.
    pub fn fresh(&self) -> Vec<Zone> {
        let zone = |n: u32| {
            let start = self.start_of(n);
            let (kind, state, capacity) = if n < self.conventional {
                (ZoneKind::Conventional, ZoneState::NotWp, self.zone_sectors)
            } else {
                (ZoneKind::Sequential, ZoneState::Empty, self.capacity_sectors)
            };
            Zone { start, sectors: self.zone_sectors, capacity, wp: start, kind, state }
        };
        (0..self.zones).map(zone).collect()
    }
}
