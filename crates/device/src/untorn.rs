//! Which writes a drive keeps whole over a power failure: parameters of presets.
//!
//! NVMe's words: `atomic_bytes` is (AWUPF + 1) blocks, or (NAWUPF + 1) if the namespace has its
//! own; `atomic_boundary_bytes` is (NABSPF + 1) blocks. A drive with an offset (NABO) offers none
//! in Linux, and there is no parameter for one.

use wp_base::SECTOR_BYTES;
use wp_block::Limits;

use crate::config::{ConfigError, Param, Settings};
use crate::preset::p;

/// Keys.
const BYTES: &str = "atomic_bytes";
const BOUNDARY: &str = "atomic_boundary_bytes";

/// The longest size that a drive may promise: what crash states are split by at most.
const MOST: u64 = 1 << 20;

/// Its numbers in a preset: no promise.
pub(crate) const UNTORN: [Param; 2] = [
    p(BYTES, 0, "bytes", "0: no promise beyond its unit; NVMe (AWUPF + 1) blocks, or NAWUPF's"),
    p(BOUNDARY, 0, "bytes", "0: none, as without NABSPF; NVMe (NABSPF + 1) blocks"),
];

/// `limits` with the promise that the settings ask for. `unit`: what the drive can keep whole at
/// most, and why.
///
/// Errors: a size that is none of whole sectors, or that the drive cannot keep; a boundary that
/// Linux offers nothing with.
pub(crate) fn with_promise(
    limits: Limits,
    s: &Settings,
    unit: (u64, &str),
) -> Result<Limits, ConfigError> {
    let (bytes, boundary) = (s.get(BYTES), s.get(BOUNDARY));
    let bad = |key, value, why: String| Err(ConfigError::new(key, value, why));
    if !bytes.is_multiple_of(SECTOR_BYTES) || bytes > MOST {
        return bad(BYTES, bytes, "must be whole sectors of 512 bytes, up to 1 MiB".to_owned());
    }
    if bytes > unit.0 {
        let why = format!("must not be more than {}, {} bytes", unit.1, unit.0);
        return bad(BYTES, bytes, why);
    }
    let is_boundary =
        boundary == 0 || boundary.is_power_of_two() && (SECTOR_BYTES..=1 << 31).contains(&boundary);
    if !is_boundary {
        let why = "must be 0 or a power of two from 512 to 2^31: Linux offers nothing with others";
        return bad(BOUNDARY, boundary, why.to_owned());
    }
    if boundary > 0 && bytes == 0 {
        return bad(BOUNDARY, boundary, format!("means nothing without {BYTES}"));
    }
    let zone = limits.zones.map_or(0, |z| z.zone_sectors * SECTOR_BYTES);
    if boundary > 0 && !zone.is_multiple_of(boundary) {
        return bad(BOUNDARY, boundary, format!("must divide a zone, {zone} bytes"));
    }
    // What Linux calls a physical block is never larger than what is written whole.
    let physical_bytes = match bytes {
        0 => limits.physical_bytes,
        n => limits.physical_bytes.min(1 << n.ilog2()),
    };
    Ok(Limits {
        physical_bytes,
        atomic_bytes: bytes as u32,
        atomic_boundary_bytes: boundary as u32,
        ..limits
    })
}
