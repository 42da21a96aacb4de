//! Where everything lies, and how much is kept back.

use wp_base::{FsError, FsResult, Zone, ZoneKind};

use crate::disk::super_block::DeviceEntry;
use crate::disk::{CheckpointHead, NatEntry, SEGMENT_BLOCKS, SitEntry, SuperBlock, feature};

use super::{MADE, MkfsOptions};

/// Bytes of a segment.
const SEGMENT_BYTES: u64 = 2 << 20;
/// Bytes for both bitmaps in a checkpoint's first block. `MAX_BITMAP_SIZE_IN_CKPT`.
const BITMAP_BYTES: u32 = CheckpointHead::CHECKSUM_AT - CheckpointHead::BYTES as u32;
/// Percent of the node ids that `-i` gives. `DEFAULT_NAT_ENTRY_RATIO`.
const NAT_PERCENT: u32 = 20;
/// Endings of names that mkfs.f2fs 1.15 takes for cold, and for hot data.
const COLD: &str = "mp wm og jp avi m4v m4p mkv mov webm wav m4a 3gp opus flac gif png svg webp \
                    jar deb iso gz xz zst pdf pyc ttc ttf exe apk cnt exo odex vdex so";
const HOT: &str = "db vmdk vdi qcow2";

/// A layout.
#[derive(Clone)]
pub struct Plan {
    /// The super block, sealed.
    pub super_block: SuperBlock,
    /// Segments kept for cleaning.
    pub reserved_segments: u32,
    /// Segments kept back in all.
    pub overprovision_segments: u32,
    /// Percent that was chosen.
    pub overprovision: f64,
    /// Segments of the main area that can be written.
    pub usable_segments: u32,
    /// First segments of the logs: hot, warm and cold data, hot, warm and cold node.
    pub logs: [u32; 6],
}

impl Plan {
    /// Lays out a file system. Errors: as [`super::mkfs`].
    pub fn new(o: &MkfsOptions) -> FsResult<Plan> {
        check(o)?;
        let zone_blocks = o.zones.as_ref().and_then(|z| z.first()).map(|z| z.sectors / 8);
        let per_section = match zone_blocks {
            Some(blocks) => (blocks / u64::from(SEGMENT_BLOCKS)) as u32,
            None => o.segments_per_section,
        };
        let per_zone = per_section * o.sections_per_zone;
        let mut sb = SuperBlock::zeroed();
        sb.magic = SuperBlock::MAGIC.into();
        (sb.major_ver, sb.minor_ver) = (1.into(), 15.into());
        let log = o.sector_bytes.trailing_zeros();
        (sb.log_sectorsize, sb.log_sectors_per_block) = (log.into(), (12 - log).into());
        (sb.log_blocksize, sb.log_blocks_per_seg) = (12.into(), 9.into());
        (sb.segs_per_sec, sb.secs_per_zone) = (per_section.into(), o.sections_per_zone.into());
        let blocks = o.devices.iter().map(|d| d.bytes / 4096).sum::<u64>();
        sb.block_count = blocks.into();
        let all = areas(o, per_zone, &mut sb)?;
        let total = sb.segment_count.get();
        let meta = (sb.main_blkaddr.get() - sb.segment0_blkaddr.get()) / SEGMENT_BLOCKS;
        let zones = (total / per_zone).saturating_sub(meta / per_zone);
        sb.section_count = (zones * o.sections_per_zone).into();
        sb.segment_count_main = (zones * per_zone).into();
        let usable = usable(o, &sb, all).checked_sub(meta).ok_or(FsError::NoSpace)?;
        if zones <= 6 || total < SuperBlock::SEGMENTS_MIN {
            return Err(FsError::NoSpace);
        }
        let percent = o.overprovision.unwrap_or_else(|| best_percent(&sb, usable));
        let reserved = reserved(&sb, usable, percent) as u32;
        if percent == 0.0 || zones * per_zone - 6 < reserved || usable < reserved {
            return Err(FsError::NoSpace);
        }
        let spare = (f64::from(usable - reserved) * percent / 100.0) as u32 + reserved;
        if usable <= spare {
            return Err(FsError::NoSpace);
        }
        names(o, &mut sb)?;
        let logs = logs(o, zones, per_zone);
        sb.seal();
        Ok(Plan {
            super_block: sb,
            reserved_segments: reserved,
            overprovision_segments: spare,
            overprovision: percent,
            usable_segments: usable,
            logs,
        })
    }
}

fn check(o: &MkfsOptions) -> FsResult<()> {
    let unknown = o.features & !MADE;
    if unknown != 0 {
        let names = feature::names(unknown);
        return Err(FsError::Unsupported(format!("mkfs: feature {names}")));
    }
    if !o.sector_bytes.is_power_of_two() || !(512..=4096).contains(&o.sector_bytes) {
        return Err(FsError::Invalid("sector_bytes: 512, 1024, 2048 or 4096"));
    }
    // `c.segs_per_sec` times `c.secs_per_zone` segments must be addressable.
    let (s, z) = (o.segments_per_section, o.sections_per_zone);
    if s == 0 || z == 0 || s.checked_mul(z).is_none_or(|n| n > 1 << 20) {
        return Err(FsError::Invalid("segments of a section, sections of a zone: 1 or more"));
    }
    let needs_extra = feature::PRJQUOTA
        | feature::INODE_CHKSUM
        | feature::FLEXIBLE_INLINE_XATTR
        | feature::INODE_CRTIME
        | feature::COMPRESSION;
    if o.features & needs_extra != 0 && o.features & feature::EXTRA_ATTR == 0 {
        return Err(FsError::Invalid("features: extra_attr is needed by another one"));
    }
    if o.devices.is_empty() || o.devices.len() > 8 {
        return Err(FsError::Invalid("devices: 1 to 8"));
    }
    if o.devices.iter().any(|d| d.path.len() > 63 || d.bytes / 4096 > u64::from(u32::MAX)) {
        return Err(FsError::Invalid("devices: paths up to 63 bytes, up to 16 TiB"));
    }
    if o.overprovision.is_some_and(|p| !(0.0..100.0).contains(&p)) {
        return Err(FsError::Invalid("overprovision: 0 to 100 percent"));
    }
    if let Some(zones) = &o.zones {
        let len = zones.first().map_or(0, |z| z.sectors);
        if len == 0 || len % (SEGMENT_BYTES / 512) != 0 || zones.iter().any(|z| z.sectors != len) {
            return Err(FsError::Invalid("zones: of one size, a multiple of 2 MiB"));
        }
        if o.devices.len() == 1 && zones.first().is_none_or(|z| z.kind == ZoneKind::Sequential) {
            return Err(FsError::Invalid("zones: a single device begins with conventional ones"));
        }
    }
    Ok(())
}

/// Places of all areas before the main one; segments of all devices.
fn areas(o: &MkfsOptions, per_zone: u32, sb: &mut SuperBlock) -> FsResult<u32> {
    let zone_bytes = u64::from(per_zone) * SEGMENT_BYTES;
    let mut start = (2u64 * 4096).div_ceil(zone_bytes) * zone_bytes;
    if let ([first, _, ..], Some(_)) = (&o.devices[..], &o.zones) {
        // The second device begins where a zone does.
        start += first.bytes % zone_bytes;
    }
    let small = FsError::NoSpace;
    let segment0 = u32::try_from(start / 4096).map_err(|_| small.clone())?;
    let mut total = 0u32;
    for (n, d) in o.devices.iter().enumerate() {
        let bytes = if n == 0 { d.bytes.checked_sub(start) } else { Some(d.bytes) };
        let segments = (bytes.ok_or_else(|| small.clone())? / SEGMENT_BYTES) as u32;
        total += segments;
        if let Some(entry) = sb.devs.get_mut(n).filter(|_| o.devices.len() > 1) {
            *entry = DeviceEntry { path: [0; 64], total_segments: segments.into() };
            entry.path.iter_mut().zip(d.path.bytes()).for_each(|(to, b)| *to = b);
        }
    }
    // Whole zones count, though what is left over counts as usable.
    let all = total;
    let total = total / per_zone * per_zone;
    sb.segment0_blkaddr = segment0.into();
    sb.cp_blkaddr = segment0.into();
    sb.segment_count = total.into();
    sb.segment_count_ckpt = 2.into();
    let sit = total.div_ceil(SitEntry::PER_BLOCK).div_ceil(SEGMENT_BLOCKS);
    sb.segment_count_sit = (2 * sit).into();
    let left = u64::from(total.checked_sub(2 + 2 * sit).ok_or_else(|| small.clone())?) * 512;
    let nat = left.div_ceil(u64::from(NatEntry::PER_BLOCK)).div_ceil(512) as u32;
    let sit_bytes = sit * SEGMENT_BLOCKS / 8;
    let (nat, payload) = if o.large_nat_bitmap {
        let nat = (nat * NAT_PERCENT / 100).max(1);
        let over = (sit_bytes + nat * SEGMENT_BLOCKS / 8).saturating_sub(BITMAP_BYTES);
        (nat, over.div_ceil(4096))
    } else if sit_bytes > BITMAP_BYTES - 64 {
        (nat.min(BITMAP_BYTES * 8 / SEGMENT_BLOCKS), sit_bytes.div_ceil(4096))
    } else {
        (nat.min((BITMAP_BYTES - sit_bytes) * 8 / SEGMENT_BLOCKS), 0)
    };
    sb.segment_count_nat = (2 * nat).into();
    sb.cp_payload = payload.into();
    let left = total.checked_sub(2 + 2 * sit + 2 * nat).ok_or(small)?;
    let mut ssa = left.div_ceil(SEGMENT_BLOCKS);
    let rest = (2 + 2 * sit + 2 * nat + ssa) % per_zone;
    if rest != 0 {
        ssa += per_zone - rest;
    }
    sb.segment_count_ssa = ssa.into();
    let mut at = segment0 + 2 * SEGMENT_BLOCKS;
    sb.sit_blkaddr = at.into();
    at += 2 * sit * SEGMENT_BLOCKS;
    sb.nat_blkaddr = at.into();
    at += 2 * nat * SEGMENT_BLOCKS;
    sb.ssa_blkaddr = at.into();
    sb.main_blkaddr = (at + ssa * SEGMENT_BLOCKS).into();
    Ok(all)
}

/// Segments of all devices that can be written. `f2fs_get_usable_segments`, which counts what
/// lies before segment 0 of a zoned device too.
fn usable(o: &MkfsOptions, sb: &SuperBlock, total: u32) -> u32 {
    let Some(zones) = &o.zones else { return total };
    let capacity = |z: &Zone| (z.capacity / 8).div_ceil(u64::from(SEGMENT_BLOCKS)) as u32;
    let zoned: u32 = zones.iter().map(capacity).sum();
    // Devices before the last are conventional.
    let before = sb.devices().count().saturating_sub(1);
    let others: u32 = sb.devices().take(before).map(|d| d.total_segments.get()).sum();
    zoned + others
}

/// Segments to be kept for cleaning if `percent` percent are spare.
fn reserved(sb: &SuperBlock, usable: u32, percent: f64) -> f64 {
    let per_section = f64::from(usable.div_ceil(sb.section_count.get().max(1)));
    (2.0 * (100.0 / percent + 1.0) + 6.0) * per_section
}

/// The percentage that leaves most for users. `get_best_overprovision`.
fn best_percent(sb: &SuperBlock, usable: u32) -> f64 {
    let small = sb.segment_count_main.get() < 256;
    let (mut candidate, end, step) = if small { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let (mut best, mut most) = (0.0, 0.0);
    while candidate <= end {
        let reserved = reserved(sb, usable, candidate);
        let spare = (f64::from(usable) - reserved) * candidate / 100.0;
        let space = f64::from(usable) - reserved - spare;
        if most < space {
            (best, most) = (candidate, space);
        }
        candidate += step;
    }
    best
}

/// First segments of the logs.
fn logs(o: &MkfsOptions, zones: u32, per_zone: u32) -> [u32; 6] {
    let next = |segment: u32| segment + per_zone;
    let last = |zones: u32| zones.saturating_sub(1) * per_zone;
    let (hot_node, warm_node, cold_node) = (0, per_zone, 2 * per_zone);
    let hot = next(cold_node);
    let (warm, cold) = if o.zones.is_some() {
        (next(hot), next(next(hot)))
    } else {
        let cold = last(zones >> 2).max(next(hot));
        (last(zones >> 1).max(next(cold)), cold)
    };
    [hot, warm, cold, hot_node, warm_node, cold_node]
}

/// What has names: identity, label, versions, endings, features.
fn names(o: &MkfsOptions, sb: &mut SuperBlock) -> FsResult<()> {
    (sb.node_ino, sb.meta_ino, sb.root_ino) = (1.into(), 2.into(), 3.into());
    sb.uuid = o.uuid;
    let label: Vec<u16> = o.label.encode_utf16().collect();
    if label.len() >= sb.volume_name.len() {
        return Err(FsError::Invalid("label: up to 511 characters"));
    }
    sb.volume_name.iter_mut().zip(label).for_each(|(to, c)| *to = c.into());
    let text = o.version.as_bytes();
    for to in [&mut sb.version, &mut sb.init_version] {
        to.iter_mut().zip(text).for_each(|(to, b)| *to = *b);
    }
    let (cold, hot) = (COLD.split(' '), HOT.split(' '));
    sb.extension_count = (cold.clone().count() as u32).into();
    sb.hot_ext_count = hot.clone().count() as u8;
    for (to, ending) in sb.extension_list.iter_mut().zip(cold.chain(hot)) {
        to.iter_mut().zip(ending.bytes()).for_each(|(to, b)| *to = b);
    }
    let zoned = if o.zones.is_some() { feature::BLKZONED } else { 0 };
    sb.feature = (o.features | zoned).into();
    Ok(())
}
