//! What an SSD is like, and which numbers make none.

use wp_base::{SECTOR_BYTES, Span};
use wp_block::Limits;

use crate::config::{ConfigError, Settings};
use crate::fixed::check_order;
use crate::nand::{Geometry, SLOT_BYTES, Timing};
use crate::ssd::blocks::superblocks_of;
use crate::ssd::policy::FtlConfig;
use crate::ssd::slc::SlcConfig;
use crate::ssd::sync::SyncConfig;
use crate::untorn::with_promise;

/// Sectors of a slot.
const SLOT_SECTORS: u32 = (SLOT_BYTES / SECTOR_BYTES) as u32;

/// What an SSD is like.
#[derive(Clone, Copy, Debug)]
pub struct SsdConfig {
    /// What it says of itself.
    pub limits: Limits,
    /// Sizes of its flash.
    pub geometry: Geometry,
    /// Times of its flash.
    pub timing: Timing,
    /// Rate of the host link in megabytes (10^6 bytes) per second.
    pub link_mb_s: u32,
    /// Do reads and writes move at once (PCIe), or one at a time (SATA)?
    pub link_full_duplex: bool,
    /// Time that the controller spends on a command; one command at a time.
    pub command: Span,
    /// Time that a read takes besides, holding nothing up.
    pub read_overhead: Span,
    /// The same for a write, after its data have arrived.
    pub write_overhead: Span,
    /// The same for a flush, after everything has been programmed.
    pub flush_overhead: Span,
    /// The same for a discard.
    pub discard_overhead: Span,
    /// Slots (tokens) of the write buffer.
    pub buffer_slots: u32,
    /// A program unit that has been filling for so long is padded and programmed; zero is never.
    pub internal_flush: Span,
    /// Does the buffer survive a power cut?
    pub plp: bool,
    /// Garbage is collected while fewer superblocks than these are free.
    pub gc_low: u32,
    /// Slots that the host can address.
    pub user_slots: u32,
    /// Superblocks without which it would be too full to go on.
    pub superblocks_least: u32,
    /// How its flash is managed.
    pub ftl: FtlConfig,
    /// What a sync costs beside programming.
    pub sync: SyncConfig,
    /// Its SLC cache.
    pub slc: SlcConfig,
}

/// Longest write that surely lies in one program unit, and what that is called: one that begins
/// within a slot touches a slot more, unless a boundary keeps it in its unit.
fn whole_at_most(s: &Settings, geometry: &Geometry) -> (u64, &'static str) {
    let unit = u64::from(geometry.unit_slots) * SLOT_BYTES;
    match s.get("atomic_boundary_bytes") {
        b if (SLOT_BYTES..=unit).contains(&b) => (unit, "a program unit"),
        _ => (
            unit - SLOT_BYTES,
            "a program unit less 4 KiB (all of it with atomic_boundary_bytes up to that)",
        ),
    }
}

impl SsdConfig {
    /// From a preset's values. Errors: a number out of range; a buffer that cannot hold a request;
    /// a geometry with no room for garbage collection.
    pub fn from_settings(s: &Settings) -> Result<SsdConfig, ConfigError> {
        let geometry = Geometry::from_settings(s)?;
        let timing = Timing::from_settings(s, &geometry)?;
        let plp = s.switch("plp")?;
        let discard = s.switch("discard")?;
        let sectors = s.capacity_sectors("capacity_bytes")?;
        let max_sectors = s.count("max_request_sectors", 1 << 16)?;
        let user_slots = sectors * SECTOR_BYTES / SLOT_BYTES;
        let ftl = FtlConfig::from_settings(s, user_slots)?;
        let sync = SyncConfig::from_settings(s)?;
        let limits = Limits {
            sectors,
            logical_bytes: SECTOR_BYTES as u32,
            physical_bytes: SLOT_BYTES as u32,
            queue_depth: s.count("queue_depth", 65536)?,
            max_sectors,
            max_segments: s.count("max_segments", 65536)?,
            volatile_cache: !plp || sync.with_plp,
            fua: s.switch("fua")?,
            discard,
            flush_beside_others: s.switch("flush_beside_others")?,
            hardware_queues: s.count("hardware_queues", 1 << 10)?,
            barrier: false,
            barrier_writes: s.switch("barrier_writes")?,
            ordered_writes: s.switch("optr")?,
            range_flush: s.switch("range_flush")?,
            atomic_bytes: 0,
            atomic_boundary_bytes: 0,
            zones: None,
            discard_granularity_sectors: if discard { ftl.trim_slots * SLOT_SECTORS } else { 0 },
            discard_zeroes: discard && !ftl.old_after_trim,
        };
        check_order(&limits)?;
        let limits = with_promise(limits, s, whole_at_most(s, &geometry))?;
        let gc_low = gc_low(s, &ftl)?;
        let superblocks_least = check_space(s, &geometry, &ftl, gc_low, user_slots)?;
        Ok(SsdConfig {
            limits,
            geometry,
            timing,
            link_mb_s: s.count("link_mb_s", 1_000_000)?,
            link_full_duplex: s.switch("link_full_duplex")?,
            command: Span(s.get("command_ns")),
            read_overhead: Span(s.get("read_overhead_ns")),
            write_overhead: Span(s.get("write_overhead_ns")),
            flush_overhead: Span(s.get("flush_overhead_ns")),
            discard_overhead: Span(s.get("discard_overhead_ns")),
            buffer_slots: buffer_slots(s, &geometry, &ftl, max_sectors)?,
            internal_flush: Span(s.get("internal_flush_ns")),
            plp,
            gc_low,
            // Fewer than the flash has slots, and those were counted in 32 bits.
            user_slots: user_slots as u32,
            superblocks_least,
            ftl,
            sync,
            slc: SlcConfig::from_settings(s)?,
        })
    }
}

/// The buffer's tokens. A write that waits for tokens must get them from programs in flight alone:
/// what lies in a unit that is not full yet comes back only when somebody fills it. So the largest
/// request and a unit of every host stream must fit at once.
fn buffer_slots(
    s: &Settings,
    geometry: &Geometry,
    ftl: &FtlConfig,
    max_sectors: u32,
) -> Result<u32, ConfigError> {
    let bytes = s.get("buffer_bytes");
    // An unaligned request touches one slot more than its length says.
    let request = u64::from(max_sectors).div_ceil(SLOT_BYTES / SECTOR_BYTES) + 1;
    let units = u64::from(geometry.unit_slots * ftl.host_streams());
    let least = (request + units) * SLOT_BYTES;
    match u32::try_from(bytes / SLOT_BYTES) {
        Ok(slots) if bytes.is_multiple_of(SLOT_BYTES) && bytes >= least => Ok(slots),
        _ => {
            let reason = format!(
                "must be a multiple of 4096 and at least {least}: the largest request and a \
                 program unit of {} bytes for each host stream",
                geometry.unit_bytes()
            );
            Err(ConfigError::new("buffer_bytes", bytes, reason))
        }
    }
}

/// Superblocks below which garbage is collected.
fn gc_low(s: &Settings, ftl: &FtlConfig) -> Result<u32, ConfigError> {
    let gc_low = s.count("gc_low_superblocks", 1 << 20)?;
    let (least, reason) = match ftl.endurance {
        0 => (2, "must be at least 2: one is reserved for moved data"),
        _ => (3, "must be at least 3 where blocks wear out: two are reserved for moved data"),
    };
    match gc_low >= least {
        true => Ok(gc_low),
        false => Err(ConfigError::new("gc_low_superblocks", u64::from(gc_low), reason)),
    }
}

/// Garbage collection must always find a superblock that gives more room than moving it takes.
/// Returns how many superblocks that needs.
fn check_space(
    s: &Settings,
    g: &Geometry,
    ftl: &FtlConfig,
    gc_low: u32,
    user_slots: u64,
) -> Result<u32, ConfigError> {
    let superblock = u64::from(g.superblock_slots);
    let superblocks = superblocks_of(g, ftl.bad_permille, ftl.seed);
    // One open for each stream, and those kept free.
    let open = ftl.open_superblocks();
    let Some(holding) = superblocks.checked_sub(gc_low + open) else {
        let reason = format!(
            "must be at least gc_low_superblocks + {} = {}, bad ones not counted ({} are)",
            open + 1,
            gc_low + open + 1,
            g.superblocks - superblocks
        );
        return Err(ConfigError::new("blocks_per_plane", u64::from(g.superblocks), reason));
    };
    // Moving a superblock may waste a unit to padding, so two units of waste in each are the least
    // that helps.
    let each = superblock.saturating_sub(2 * u64::from(g.unit_slots));
    let most = u64::from(holding) * each;
    if user_slots > most {
        let reason = format!(
            "{superblocks} superblocks of {} bytes, less {gc_low} kept free, {open} open and \
             spare for garbage collection, hold {} bytes",
            superblock * SLOT_BYTES,
            most * SLOT_BYTES
        );
        return Err(ConfigError::new("capacity_bytes", s.get("capacity_bytes"), reason));
    }
    // Fewer than there are.
    Ok(user_slots.div_ceil(each) as u32 + gc_low + open)
}
