//! What a drive says of itself as a virtio-blk device: features and configuration space.

use wp_block::Limits;

/// Feature bits (virtio 1.3, 5.2.3 and 6).
pub mod feature {
    /// Largest number of segments of a request is told.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Nothing can be written.
    pub const RO: u64 = 1 << 5;
    /// Size of a block is told.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// There is a volatile cache, and a command to flush it.
    pub const FLUSH: u64 = 1 << 9;
    /// Physical block and best sizes are told.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// There are several queues.
    pub const MQ: u64 = 1 << 12;
    /// Discards.
    pub const DISCARD: u64 = 1 << 13;
    /// Writes of zeroes.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Zones.
    pub const ZONED: u64 = 1 << 17;
    /// Descriptors may stand in a table of their own.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// It is no legacy device.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Bytes of the configuration space.
pub const CONFIG_BYTES: usize = 96;
/// Model of a zoned device: host-managed.
const HOST_MANAGED: u8 = 1;
/// Sectors of a discard or a write of zeroes at most: 2 GiB.
pub const MOST_ZEROED: u32 = 1 << 22;
/// Ranges of a discard at most.
pub const MOST_RANGES: u32 = 32;
/// Segments of a request at most: what fits a ring of 256 with header and status.
const MOST_SEGMENTS: u32 = 254;

/// Features of a drive of these limits with `queues` queues.
pub fn features(limits: &Limits, queues: u16) -> u64 {
    let mut bits = feature::SEG_MAX
        | feature::BLK_SIZE
        | feature::TOPOLOGY
        | feature::WRITE_ZEROES
        | feature::INDIRECT_DESC
        | feature::VERSION_1;
    let mut set = |bit: u64, is_set: bool| bits |= if is_set { bit } else { 0 };
    set(feature::FLUSH, limits.volatile_cache);
    set(feature::MQ, queues > 1);
    // A zoned device has resets for that.
    set(feature::DISCARD, limits.discard && limits.zones.is_none());
    set(feature::ZONED, limits.zones.is_some());
    bits
}

/// Its configuration space (`struct virtio_blk_config`).
pub fn space(limits: &Limits, queues: u16) -> [u8; CONFIG_BYTES] {
    let mut out = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &limits.sectors.to_le_bytes());
    put(12, &limits.max_segments.clamp(1, MOST_SEGMENTS).to_le_bytes());
    put(20, &limits.logical_bytes.to_le_bytes());
    let blocks = (limits.physical_bytes / limits.logical_bytes.max(1)).max(1);
    put(24, &[blocks.ilog2() as u8]);
    put(34, &queues.to_le_bytes());
    put(36, &MOST_ZEROED.to_le_bytes());
    put(40, &MOST_RANGES.to_le_bytes());
    put(44, &limits.discard_granularity_sectors.max(limits.logical_bytes / 512).to_le_bytes());
    put(48, &MOST_ZEROED.to_le_bytes());
    put(52, &1u32.to_le_bytes());
    put(56, &[u8::from(limits.discard_zeroes)]);
    if let Some(zones) = &limits.zones {
        put(72, &(zones.zone_sectors as u32).to_le_bytes());
        put(76, &zones.max_open.to_le_bytes());
        put(80, &zones.max_active.to_le_bytes());
        // The driver refuses a device without appends; one that has none here refuses the append.
        put(84, &zones.append_max_sectors.max(limits.logical_bytes / 512).to_le_bytes());
        put(88, &limits.logical_bytes.to_le_bytes());
        put(92, &[HOST_MANAGED]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zoned_preset_says_what_its_zones_are() {
        let device = wp_device::find("zn540").unwrap().make(&[]).unwrap();
        let (limits, zones) = (*device.limits(), device.limits().zones.unwrap());
        let bits = features(&limits, 1);
        assert_ne!(bits & feature::ZONED, 0);
        assert_eq!(bits & (feature::DISCARD | feature::MQ), 0);
        let space = space(&limits, 1);
        assert_eq!(space[72..76], (zones.zone_sectors as u32).to_le_bytes());
        assert_eq!(space[92], 1);
        assert_eq!(space[..8], limits.sectors.to_le_bytes());
    }

    #[test]
    fn a_drive_without_a_cache_has_no_flush() {
        let make = |name: &str| *wp_device::find(name).unwrap().make(&[]).unwrap().limits();
        assert_eq!(features(&make("ssd-128-plp"), 1) & feature::FLUSH, 0);
        assert_ne!(features(&make("ssd-128"), 4) & (feature::FLUSH | feature::MQ), 0);
        assert_eq!(space(&make("ssd-128"), 4)[34..36], [4, 0]);
    }
}
