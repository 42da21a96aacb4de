//! What a zoned SSD is like, and which numbers make none.

use wp_base::{SECTOR_BYTES, Span, ZoneLimits};
use wp_block::{Limits, ZoneOrder};

use crate::config::{ConfigError, Settings};
use crate::nand::{Geometry, SLOT_BYTES, Timing};

/// What a zoned SSD is like.
#[derive(Clone, Copy, Debug)]
pub struct ZnsConfig {
    /// What it says of itself.
    pub limits: Limits,
    /// Its zones: the same that `limits` has.
    pub zones: ZoneLimits,
    /// Sizes of its flash; a zone's capacity is a superblock.
    pub geometry: Geometry,
    /// Times of its flash.
    pub timing: Timing,
    /// Rate of the link from the host in megabytes (10^6 bytes) per second.
    pub link_mb_s: u32,
    /// Rate of the link to the host, which moves beside.
    pub link_read_mb_s: u32,
    /// Controller's time to understand a command; one thing at a time.
    pub command: Span,
    /// Controller's time for a write whose data have come.
    pub write_cpu: Span,
    /// The same for a read.
    pub read_cpu: Span,
    /// The same that an append takes besides.
    pub append_cpu: Span,
    /// The same that a write of less than whole [`ZnsConfig::map_bytes`] takes besides.
    pub partial_cpu: Span,
    /// Bytes that are written without looking at their neighbours.
    pub map_bytes: u64,
    /// Time that a write takes besides, holding nothing up.
    pub write_overhead: Span,
    /// The same for an append, besides that.
    pub append_overhead: Span,
    /// The same for a write of less than whole `map_bytes`, besides that.
    pub partial_overhead: Span,
    /// The same for a read.
    pub read_overhead: Span,
    /// Time to fetch a list of pages for a transfer of more than two (NVMe PRP list).
    pub list: Span,
    /// Time of a flush besides programming.
    pub flush_overhead: Span,
    /// Time of an explicit open, of a close, of a report, of a finish without padding.
    pub open: Span,
    /// See there.
    pub close: Span,
    /// See there.
    pub report: Span,
    /// See there.
    pub finish: Span,
    /// What the first write to an empty zone takes besides.
    pub implicit_open: Span,
    /// What the first write to a closed zone takes besides.
    pub reopen: Span,
    /// Time of a reset of an empty zone.
    pub reset: Span,
    /// What each MiB that the host has written takes besides.
    pub reset_mib: Span,
    /// What a zone takes besides that is written in part, and not finished.
    pub reset_open: Span,
    /// A reset's turn at the map, between those of units to be programmed.
    pub reset_slice: Span,
    /// A unit's turn at the map while a reset is being done.
    pub reset_unit: Span,
    /// Slots (tokens) of the write buffer.
    pub buffer_slots: u32,
    /// What has been in the buffer for so long is made durable; zero is never. If that is free, so
    /// often everything in the buffer is.
    pub internal_flush: Span,
    /// For nothing (as the emulator of the order-preserving F2FS paper), not by programming it?
    pub internal_flush_free: bool,
    /// Is what has come programmed in the order in which it came, one unit at a time? Then a unit
    /// is closed as soon as something comes for another zone.
    pub serial: bool,
    /// Does the buffer survive a power cut?
    pub plp: bool,
    /// What of a zone's buffer a cut may keep.
    pub order: ZoneOrder,
}

impl ZnsConfig {
    /// From a preset's values. Errors: a number out of range; zones that are not those of the
    /// flash; a buffer that cannot hold a unit of each active zone and a request.
    pub fn from_settings(s: &Settings) -> Result<ZnsConfig, ConfigError> {
        let geometry = Geometry::from_settings(s)?;
        let suspend = Span(s.get("suspend_ns"));
        let timing = Timing { suspend, ..Timing::from_settings(s, &geometry)? };
        let plp = s.switch("plp")?;
        let max_sectors = s.count("max_request_sectors", 1 << 16)?;
        let zones = zones(s, &geometry)?;
        if zones.append_max_sectors > max_sectors {
            let reason = format!("must not be more than max_request_sectors ({max_sectors})");
            let value = u64::from(zones.append_max_sectors);
            return Err(ConfigError::new("append_max_sectors", value, reason));
        }
        let limits = Limits {
            logical_bytes: SLOT_BYTES as u32,
            physical_bytes: SLOT_BYTES as u32,
            queue_depth: s.count("queue_depth", 65536)?,
            max_sectors,
            max_segments: s.count("max_segments", 65536)?,
            volatile_cache: !plp,
            fua: s.switch("fua")?,
            zones: Some(zones),
            ..Limits::plain(zones.zone_sectors * u64::from(zones.zones))
        };
        let span = |key: &str| Span(s.get(key));
        let reset_slice = span("reset_slice_ns");
        if reset_slice == Span::ZERO {
            return Err(ConfigError::new("reset_slice_ns", 0, "must not be 0"));
        }
        Ok(ZnsConfig {
            limits,
            zones,
            geometry,
            timing,
            link_mb_s: s.count("link_mb_s", 1_000_000)?,
            link_read_mb_s: s.count("link_read_mb_s", 1_000_000)?,
            command: span("command_ns"),
            write_cpu: span("write_cpu_ns"),
            read_cpu: span("read_cpu_ns"),
            append_cpu: span("append_cpu_ns"),
            partial_cpu: span("partial_cpu_ns"),
            map_bytes: u64::from(s.count("map_bytes", 1 << 24)?),
            write_overhead: span("write_overhead_ns"),
            append_overhead: span("append_overhead_ns"),
            partial_overhead: span("partial_overhead_ns"),
            read_overhead: span("read_overhead_ns"),
            list: span("list_ns"),
            flush_overhead: span("flush_overhead_ns"),
            open: span("open_ns"),
            close: span("close_ns"),
            report: span("report_ns"),
            finish: span("finish_ns"),
            implicit_open: span("implicit_open_ns"),
            reopen: span("reopen_ns"),
            reset: span("reset_ns"),
            reset_mib: span("reset_mib_ns"),
            reset_open: span("reset_open_ns"),
            reset_slice,
            reset_unit: span("reset_unit_ns"),
            buffer_slots: buffer_slots(s, &geometry, &zones, max_sectors)?,
            internal_flush: span("internal_flush_ns"),
            internal_flush_free: s.switch("internal_flush_free")?,
            serial: s.switch("serial_programming")?,
            plp,
            order: if s.switch("dies_out_of_order")? {
                ZoneOrder::Holes
            } else {
                ZoneOrder::Prefix
            },
        })
    }
}

/// The zones, one superblock each.
fn zones(s: &Settings, geometry: &Geometry) -> Result<ZoneLimits, ConfigError> {
    let zone_bytes = s.get("zone_bytes");
    let capacity = u64::from(geometry.superblock_slots) * SLOT_BYTES;
    if zone_bytes < capacity || !zone_bytes.is_multiple_of(SLOT_BYTES) || zone_bytes > 1 << 40 {
        let reason = format!(
            "must be a multiple of 4096, at most 1 TiB and at least {capacity}: one flash block of \
             every plane of every die"
        );
        return Err(ConfigError::new("zone_bytes", zone_bytes, reason));
    }
    let conventional = s.get("conventional_zones");
    let zones = geometry.superblocks;
    let Some(conventional) = u32::try_from(conventional).ok().filter(|n| *n < zones) else {
        let reason = format!("must be fewer than blocks_per_plane ({zones}), the zones in all");
        return Err(ConfigError::new("conventional_zones", conventional, reason));
    };
    let most = |key: &str| -> Result<u32, ConfigError> {
        let value = s.get(key);
        let fits = u32::try_from(value).ok().filter(|n| *n <= 4096 && *n > 0);
        fits.ok_or_else(|| ConfigError::new(key, value, "must be from 1 to 4096"))
    };
    let (max_open, max_active) = (most("max_open_zones")?, most("max_active_zones")?);
    if max_open > max_active {
        let reason = format!("must not be more than max_active_zones ({max_active})");
        return Err(ConfigError::new("max_open_zones", u64::from(max_open), reason));
    }
    let append = s.get("append_max_sectors");
    let Some(append_max_sectors) = u32::try_from(append).ok() else {
        return Err(ConfigError::new("append_max_sectors", append, "exceeds the largest request"));
    };
    let zone_sectors = zone_bytes / SECTOR_BYTES;
    let slots = zone_bytes / SLOT_BYTES * u64::from(zones);
    if slots >= u64::from(u32::MAX) {
        let reason = format!("makes {slots} slots of 4 KiB; addresses are of 32 bits");
        return Err(ConfigError::new("zone_bytes", zone_bytes, reason));
    }
    Ok(ZoneLimits {
        zone_sectors,
        capacity_sectors: capacity / SECTOR_BYTES,
        zones,
        conventional,
        max_open,
        max_active,
        append_max_sectors,
    })
}

/// The buffer's tokens. A write that waits must get them from programs in flight alone: what lies
/// in units that are not full comes back only when somebody fills them. So a unit of each active
/// zone and of the conventional ones, one more, and the largest request must fit at once.
fn buffer_slots(
    s: &Settings,
    geometry: &Geometry,
    zones: &ZoneLimits,
    max_sectors: u32,
) -> Result<u32, ConfigError> {
    let bytes = s.get("buffer_bytes");
    let request = u64::from(max_sectors) * SECTOR_BYTES;
    let least = (u64::from(zones.max_active) + 2) * geometry.unit_bytes() + request;
    match u32::try_from(bytes / SLOT_BYTES) {
        Ok(slots) if bytes.is_multiple_of(SLOT_BYTES) && bytes >= least => Ok(slots),
        _ => {
            let reason = format!(
                "must be a multiple of 4096 and at least {least}: a program unit of {} bytes for \
                 each active zone and two more, and the largest request",
                geometry.unit_bytes()
            );
            Err(ConfigError::new("buffer_bytes", bytes, reason))
        }
    }
}
