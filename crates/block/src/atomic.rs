//! Untorn writes: what a drive keeps whole over a power failure, and what a queue offers of it.
//!
//! Picture:    drive (`Limits::atomic_bytes`) -> [`AtomicLimits`] of its queue
//!             (`atomic_write_{max,unit_min,unit_max,boundary}_bytes` in sysfs) ->
//!             [`Flags::ATOMIC`] on a bio, which is then never split and merged with its like only.
//! Invariant:  the promise is of old or new contents as a whole. It is none of durability, and none
//!             of order.
//! Source:     behaviour of `nvme_update_atomic_write_disk_info()`,
//!             `blk_atomic_writes_update_limits()`, `blk_validate_atomic_write_op_size()`,
//!             `bdev_can_atomic_write()` (Linux 6.12).
//!
//! [`Flags::ATOMIC`]: wp_base::event::Flags::ATOMIC

use wp_base::event::Op;
use wp_base::{SECTOR_BYTES, Sector};

use crate::config::DriverKind;
use crate::device::{Limits, Status};
use crate::entry::Range;
use crate::pool::BioInfo;
use crate::queue::BlockQueue;

/// Bytes of a page of memory, what a segment of a bio holds at least but at its two ends.
const PAGE: u64 = 4096;

/// What a queue offers (`struct queue_limits`, fields `atomic_write_*`). Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicLimits {
    /// The longest request, merged ones too (`atomic_write_max_bytes`).
    pub max: u32,
    /// The shortest write, of which each is a multiple (`atomic_write_unit_min_bytes`).
    pub unit_min: u32,
    /// The longest write (`atomic_write_unit_max_bytes`).
    pub unit_max: u32,
    /// No request may cross a multiple of it; 0: there is none (`atomic_write_boundary_bytes`).
    pub boundary: u32,
}

/// The largest power of two that is not above `bytes`; 0 of 0.
fn power_below(bytes: u64) -> u32 {
    let most = bytes.min(1 << 31);
    if most == 0 { 0 } else { 1 << most.ilog2() }
}

impl Limits {
    /// What a queue of it offers; `None`: no untorn writes.
    ///
    /// `unit_max` is what one bio surely holds: its buffer may begin and end within a page, so all
    /// segments but two are pages.
    pub fn atomic(&self) -> Option<AtomicLimits> {
        let boundary = self.atomic_boundary_bytes;
        let is_odd = boundary != 0 && !boundary.is_power_of_two();
        let chunk = self.zones.map_or(0, |z| z.zone_sectors * SECTOR_BYTES);
        let cuts = boundary != 0 && !chunk.is_multiple_of(u64::from(boundary));
        if self.atomic_bytes == 0 || is_odd || cuts {
            return None;
        }
        let largest = u64::from(self.max_sectors) * SECTOR_BYTES;
        let pages = u64::from(self.max_segments).saturating_sub(2);
        let in_bio = 2 * u64::from(self.logical_bytes) + pages * PAGE;
        let unit_limit = power_below(largest.min(in_bio));
        let drive = u64::from(self.atomic_bytes);
        Some(AtomicLimits {
            max: drive.min(largest) as u32,
            unit_min: self.logical_bytes.min(unit_limit),
            unit_max: power_below(drive).min(unit_limit),
            boundary,
        })
    }

    /// Does the drive keep a write whole, whatever its flags (NVMe has no command for it)?
    pub fn keeps_whole(&self, at: Sector, sectors: u64) -> bool {
        is_within(self.atomic_bytes, self.atomic_boundary_bytes, at, sectors)
    }
}

/// Is a write of at most `most` bytes, and within one piece of `boundary` bytes (0: no such)?
pub fn is_within(most: u32, boundary: u32, at: Sector, sectors: u64) -> bool {
    let (from, bytes) = (at.0 * SECTOR_BYTES, sectors * SECTOR_BYTES);
    let is_cut = boundary != 0
        && bytes > 0
        && from / u64::from(boundary) != (from + bytes - 1) / u64::from(boundary);
    bytes <= u64::from(most) && !is_cut
}

impl AtomicLimits {
    /// May a bio of this length be one (`blk_validate_atomic_write_op_size()`)?
    pub const fn takes(&self, bytes: u64) -> bool {
        bytes <= self.unit_max as u64 && bytes.is_multiple_of(self.unit_min as u64)
    }

    /// May a request be one, merged or not?
    pub fn is_request(&self, at: Sector, sectors: u64) -> bool {
        is_within(self.max, self.boundary, at, sectors)
    }

    /// May a partition begin there (`bdev_can_atomic_write()`)?
    pub const fn may_begin_at(&self, start: Sector) -> bool {
        let align =
            if self.unit_min > self.boundary { self.unit_min } else { self.boundary } as u64;
        (start.0 * SECTOR_BYTES).is_multiple_of(align)
    }
}

impl BlockQueue {
    /// What it offers of untorn writes: what its drive keeps, in a kernel that has them, with a
    /// driver that makes one command of a request.
    pub fn atomic_limits(&self) -> Option<AtomicLimits> {
        let config = self.config();
        let is_there = config.era.has_untorn_writes() && config.driver == DriverKind::ScatterGather;
        self.limits().atomic().filter(|_| is_there)
    }

    /// The same for a part of the device: none if it begins within a unit.
    pub(crate) fn atomic_limits_in(&self, range: Range) -> Option<AtomicLimits> {
        self.atomic_limits().filter(|a| a.may_begin_at(range.start))
    }

    /// May a bio be untorn? Nothing will split it then.
    ///
    /// Errors: [`Status::NotSupported`] for what is no write, and on a queue that offers none;
    /// [`Status::Invalid`] for a length that is no unit, and for one that would be split, by its
    /// segments or at the boundary.
    pub(crate) fn check_untorn(&self, info: &BioInfo, range: Range) -> Result<(), Status> {
        let offered = self.atomic_limits_in(range).filter(|_| info.op == Op::Write);
        let offered = offered.ok_or(Status::NotSupported)?;
        let sectors = u64::from(info.sectors);
        let is_one = offered.takes(sectors * SECTOR_BYTES)
            && offered.is_request(info.at, sectors)
            && info.segments <= self.limits().max_segments;
        if is_one { Ok(()) } else { Err(Status::Invalid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(atomic_bytes: u32, atomic_boundary_bytes: u32) -> Limits {
        Limits { atomic_bytes, atomic_boundary_bytes, ..Limits::plain(1 << 20) }
    }

    #[test]
    fn a_queue_offers_what_drive_and_bios_have_room_for() {
        assert_eq!(drive(0, 0).atomic(), None);
        let whole = drive(20 << 10, 0).atomic().expect("offered");
        let expected =
            AtomicLimits { max: 20 << 10, unit_min: 512, unit_max: 16 << 10, boundary: 0 };
        assert_eq!(whole, expected);
        // 128 KiB a request.
        let long = drive(1 << 20, 0).atomic().expect("offered");
        assert_eq!((long.max, long.unit_max), (128 << 10, 128 << 10));
        // Seven segments surely hold five pages and two sectors.
        let few = Limits { max_segments: 7, ..drive(1 << 20, 0) }.atomic().expect("offered");
        assert_eq!((few.max, few.unit_max), (128 << 10, 16 << 10));
        assert_eq!(drive(16 << 10, 12 << 10).atomic(), None, "boundaries are powers of two");
    }

    #[test]
    fn a_write_within_the_drive_s_size_and_boundary_is_whole() {
        let drive = drive(16 << 10, 16 << 10);
        assert!(drive.keeps_whole(Sector(32), 32) && drive.keeps_whole(Sector(33), 31));
        assert!(!drive.keeps_whole(Sector(33), 32), "it crosses");
        assert!(!drive.keeps_whole(Sector(0), 33), "it is too long");
        let offered = drive.atomic().expect("offered");
        assert!(offered.takes(4096) && offered.takes(16 << 10));
        assert!(!offered.takes(32 << 10) && !offered.takes(100));
        assert!(offered.may_begin_at(Sector(2048)) && !offered.may_begin_at(Sector(63)));
    }
}
