//! Super block, group descriptors, and the places that they name.

use wp_base::{FsError, FsResult};
use wp_medium::View;

use crate::disk::mmp::Mmp;
use crate::disk::{
    Checksums, Geometry, GroupDesc, SuperBlock, compat, feature, incompat, ino, ro_compat,
};

use super::Severity;
use super::bits::Bits;
use super::finding::{Kind, Report};
use super::state::State;

/// Features that we know and cannot check.
const INCOMPAT_BEYOND_US: u32 = incompat::META_BG
    | incompat::JOURNAL_DEV
    | incompat::EA_INODE
    | incompat::INLINE_DATA
    | incompat::ENCRYPT
    | incompat::CASEFOLD;
const RO_COMPAT_BEYOND_US: u32 = ro_compat::VERITY | ro_compat::SHARED_BLOCKS | ro_compat::READONLY;
/// Features that nobody implements.
const INCOMPAT_NEVER: u32 = incompat::COMPRESSION | incompat::DIRDATA;
const RO_COMPAT_NEVER: u32 = ro_compat::BTREE_DIR | ro_compat::REPLICA;

fn all(table: &[(u32, &str)]) -> u32 {
    table.iter().fold(0, |bits, (bit, _)| bits | bit)
}

/// Reads and checks the super block. `None`: it is so wrong that nothing can be made of the rest.
pub(super) fn super_block(
    view: &dyn View,
    report: &mut Report,
) -> FsResult<Option<(SuperBlock, Geometry)>> {
    let place = |field: &str| format!("super block, {field}");
    let mut bytes = [0u8; SuperBlock::BYTES];
    let end = SuperBlock::AT + SuperBlock::BYTES as u64;
    if view.len_bytes() < end {
        report.add(Kind::DeviceTooShort, place("length"), view.len_bytes(), end);
        return Ok(None);
    }
    view.read_at(SuperBlock::AT, &mut bytes)?;
    let sb = SuperBlock::load(&bytes).ok_or(FsError::Io)?;
    if sb.magic.get() != SuperBlock::MAGIC {
        report.add(Kind::SuperMagic, place("s_magic"), sb.magic.get(), SuperBlock::MAGIC);
        return Ok(None);
    }
    if let Err(c) = sb.verify(SuperBlock::AT) {
        let kind = if c.field == "s_checksum" { Kind::SuperChecksum } else { Kind::SuperValue };
        report.add(kind, place(c.field), c.found, c.expected);
        if kind == Kind::SuperValue {
            return Ok(None);
        }
    }
    let words = [
        (sb.feature_compat.get() & !all(compat::NAMES), compat::NAMES),
        (sb.feature_incompat.get() & (!all(incompat::NAMES) | INCOMPAT_NEVER), incompat::NAMES),
        (sb.feature_ro_compat.get() & (!all(ro_compat::NAMES) | RO_COMPAT_NEVER), ro_compat::NAMES),
    ];
    for (unknown, names) in words {
        if unknown != 0 {
            let found = feature::names(unknown, names);
            report.add(Kind::SuperFeature, place("features"), found, "known features");
            return Ok(None);
        }
    }
    let beyond = [
        (sb.feature_incompat.get() & INCOMPAT_BEYOND_US, incompat::NAMES),
        (sb.feature_ro_compat.get() & RO_COMPAT_BEYOND_US, ro_compat::NAMES),
    ];
    for (bits, names) in beyond {
        if bits != 0 {
            let names = feature::names(bits, names);
            return Err(FsError::Unsupported(format!("checking ext4 with {names}")));
        }
    }
    let g = match Geometry::from_super(&sb) {
        Ok(g) => g,
        Err(FsError::Corrupt(c)) => {
            report.add(Kind::SuperValue, place(c.field), c.found, c.expected);
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    if g.bytes() > view.len_bytes() {
        report.add(Kind::DeviceTooShort, place("s_blocks_count"), g.bytes(), view.len_bytes());
        return Ok(None);
    }
    values(&sb, &g, report);
    Ok(Some((sb, g)))
}

/// What a super block says of clusters, and what it must be. With bigalloc that is part of the
/// geometry.
fn cluster_values(sb: &SuperBlock, g: &Geometry) -> Vec<(&'static str, u32, u32, &'static str)> {
    if sb.has_ro_compat(ro_compat::BIGALLOC) {
        return Vec::new();
    }
    let log = (sb.log_cluster_size.get(), sb.log_block_size.get());
    let per = sb.clusters_per_group.get();
    vec![
        ("s_log_cluster_size", log.0, log.1, "s_log_block_size"),
        ("s_clusters_per_group", per, g.blocks_per_group, "s_blocks_per_group"),
    ]
}

fn values(sb: &SuperBlock, g: &Geometry, report: &mut Report) {
    let place = |field: &str| format!("super block, {field}");
    let mut value = |field: &str, is_right: bool, found: u64, expected: &str| {
        if !is_right {
            report.add(Kind::SuperValue, place(field), found, expected);
        }
    };
    let (blocks, reserved) = (g.blocks_count, sb.r_blocks_count());
    value("s_r_blocks_count", reserved <= blocks / 2, reserved, "at most half of the blocks");
    let flex = sb.log_groups_per_flex;
    let is_flex = flex <= 31 || !sb.has_incompat(incompat::FLEX_BG);
    value("s_log_groups_per_flex", is_flex, flex.into(), "0 to 31");
    let desc = sb.desc_size.get();
    let is_size = desc <= 1024 && (desc == 0 || desc.is_power_of_two());
    value("s_desc_size", is_size, desc.into(), "0 or a power of two up to 1024");
    for (field, found, expected, name) in cluster_values(sb, g) {
        value(field, found == expected, found.into(), name);
    }
    let journal = sb.journal_inum.get();
    let has_journal = sb.has_compat(compat::HAS_JOURNAL);
    value("s_journal_inum", has_journal || journal == 0, journal.into(), "0 without has_journal");
    value(
        "s_journal_inum",
        !has_journal || journal == 0 || journal == ino::JOURNAL,
        journal.into(),
        "8",
    );
    let gdt = sb.reserved_gdt_blocks.get();
    value(
        "s_reserved_gdt_blocks",
        gdt == 0 || sb.has_compat(compat::RESIZE_INODE),
        gdt.into(),
        "0 without resize_inode",
    );
    let outside = sb.journal_uuid.iter().any(|b| *b != 0);
    value("s_journal_uuid", !outside, 1, "0 without an external journal");
    if sb.has_ro_compat(ro_compat::QUOTA) {
        let quota = [
            ("s_usr_quota_inum", sb.usr_quota_inum, Some(ino::USER_QUOTA)),
            ("s_grp_quota_inum", sb.grp_quota_inum, Some(ino::GROUP_QUOTA)),
            ("s_prj_quota_inum", sb.prj_quota_inum, None),
        ];
        for (field, number, reserved) in quota {
            let number = number.get();
            let is_own = number == 0 || Some(number) == reserved;
            let is_free = (sb.first_inode()..=sb.inodes_count.get()).contains(&number);
            value(field, is_own || is_free, number.into(), "0, its reserved inode, or a free one");
        }
    }
    if sb.uuid == [0; 16] {
        // `mke2fs -U clear`: Linux mounts it.
        let (found, expected) = ("0", "an identity");
        report.add_as(Severity::Harmless, Kind::SuperValue, place("s_uuid"), found, expected);
    }
    let mut feature = |is_wrong: bool, found: &str| {
        if is_wrong {
            report.add(Kind::SuperFeature, place("features"), found, "compatible features");
        }
    };
    let has_csum = sb.has_metadata_csum();
    feature(has_csum && sb.has_ro_compat(ro_compat::GDT_CSUM), "metadata_csum and uninit_bg");
    feature(
        sb.has_incompat(incompat::RECOVER) && !has_journal,
        "needs_recovery without has_journal",
    );
    feature(
        sb.has_incompat(incompat::CSUM_SEED) && !has_csum,
        "metadata_csum_seed without metadata_csum",
    );
    feature(
        sb.has_incompat(incompat::BIT64) && !sb.has_incompat(incompat::EXTENTS),
        "64bit without extent",
    );
    if g.inode_bytes > 128 {
        let room = g.inode_bytes - 128;
        let sizes = [
            ("s_min_extra_isize", sb.min_extra_isize.get()),
            ("s_want_extra_isize", sb.want_extra_isize.get()),
        ];
        for (field, n) in sizes {
            // Kernels use a size of their own then.
            if n != 0 && (!(4..=room).contains(&n) || !n.is_multiple_of(4)) {
                let expected = format!("a multiple of 4, from 4 to {room}");
                let kind = Kind::SuperValue;
                report.add_as(Severity::Harmless, kind, place(field), n, expected);
            }
        }
    }
    if sb.state.get() & SuperBlock::STATE_ERROR != 0 {
        let found = sb.state.get();
        let expected = "no recorded errors";
        report.add_as(Severity::Harmless, Kind::SuperState, place("s_state"), found, expected);
    }
}

/// Reads all descriptors and checks their checksums.
pub(super) fn descriptors(s: &mut State<'_>) {
    let mut table = (u64::MAX, Vec::new());
    for n in 0..s.g.groups {
        let (block, offset) = s.g.desc_place(n);
        if table.0 != block {
            table = (block, s.read(block).unwrap_or_default());
        }
        let bytes = table.1.get(offset..).and_then(|b| b.get(..usize::from(s.g.desc_bytes)));
        let desc = GroupDesc::load(bytes.unwrap_or(&[]));
        if !s.base.as_ref().is_some_and(|b| b.has(n, &desc)) && !s.sums.group_desc_ok(n, &desc) {
            let right = s.sums.group_desc(n, &desc);
            s.add(Kind::GroupChecksum, format!("group {n}"), desc.checksum.get(), right);
        }
        s.groups.push(desc);
    }
    // Metadata blocks may hold nothing else: if their places differ, everything is to be checked.
    s.base = s.base.take().filter(|b| b.has_places(&s.groups));
}

/// Claims the blocks of super blocks, descriptors, bitmaps and inode tables. Can the inodes be
/// read?
pub(super) fn tables(s: &mut State<'_>) -> bool {
    if let Some(base) = s.base.clone() {
        s.meta = Bits::over(base.meta.clone());
        s.claimed = Bits::over(base.meta.clone());
        for n in 0..s.g.groups {
            if s.g.has_super(n) && !s.is_fixed(s.g.group_start(n), 1) {
                backup(s, n);
            }
            let desc = s.groups.get(n as usize).copied().filter(|desc| !base.has(n, desc));
            if let Some(desc) = desc {
                flags(s, n, &desc);
            }
        }
        return true;
    }
    let mut is_usable = true;
    // Tables may share clusters, but no blocks.
    let mut own = (s.g.cluster_bits > 0).then(|| Bits::new(s.g.blocks_count));
    for n in 0..s.g.groups {
        take_meta(s, &mut own, s.g.group_start(n), s.g.base_meta_blocks(n).into());
        backup(s, n);
    }
    mmp(s);
    // With 1 KiB blocks, block 0 belongs to nobody and has no bit.
    let descs = s.groups.clone();
    for (n, desc) in (0u32..).zip(&descs) {
        let (first, last) = if s.g.groups_per_flex > 1 || s.sb.has_incompat(incompat::FLEX_BG) {
            (u64::from(s.g.first_data_block), s.g.blocks_count)
        } else {
            (s.g.group_start(n), s.g.group_start(n) + u64::from(s.g.blocks_in_group(n)))
        };
        let places = [
            ("block bitmap", desc.block_bitmap(), 1),
            ("inode bitmap", desc.inode_bitmap(), 1),
            ("inode table", desc.inode_table(), u64::from(s.g.itable_blocks)),
        ];
        for (what, block, blocks) in places {
            if block < first || block.checked_add(blocks).is_none_or(|end| end > last) {
                let expected = format!("{blocks} blocks within {first}..{last}");
                s.add(Kind::GroupPlace, format!("group {n}, {what}"), block, expected);
                is_usable = false;
                continue;
            }
            if take_meta(s, &mut own, block, blocks) {
                let expected = "blocks with one owner";
                s.add(Kind::GroupOverlap, format!("group {n}, {what}"), block, expected);
                // Tables on each other would make a small image hold any number of inodes.
                is_usable = false;
            }
        }
        flags(s, n, desc);
    }
    is_usable
}

/// Claims blocks of metadata; is one of them another's already? `own`: the blocks of all metadata,
/// with bigalloc.
fn take_meta(s: &mut State<'_>, own: &mut Option<Bits>, start: u64, blocks: u64) -> bool {
    let (first, clusters) = s.clusters(start, blocks);
    s.meta.add_run(first, clusters);
    let met = s.claimed.add_run(first, clusters);
    own.as_mut().map_or(met, |own| own.add_run(start, blocks)).is_some()
}

/// What a descriptor says of what is unused.
fn flags(s: &mut State<'_>, n: u32, desc: &GroupDesc) {
    let per = s.g.inodes_per_group;
    let unused = desc.itable_unused();
    let flags = GroupDesc::INODE_UNINIT | GroupDesc::BLOCK_UNINIT;
    let is_last = n + 1 == s.g.groups;
    if s.sums.descriptors() && is_last && desc.has(GroupDesc::BLOCK_UNINIT) {
        // Its bitmap must say where the device ends.
        let expected = "a bitmap in the last group";
        s.add(Kind::GroupFlags, format!("group {n}, bg_flags"), desc.flags.get(), expected);
    }
    let has_hints = desc.flags.get() & flags != 0 || unused != 0;
    if s.sums.descriptors() && unused > per {
        let place = format!("group {n}, bg_itable_unused");
        if desc.has(GroupDesc::INODE_UNINIT) {
            s.harmless(Kind::GroupFlags, place, unused, per);
        } else {
            s.add(Kind::GroupFlags, place, unused, per);
        }
    } else if s.sums.descriptors() && unused > desc.free_inodes_count() {
        let expected = format!("at most {}, bg_free_inodes_count", desc.free_inodes_count());
        s.add(Kind::GroupFlags, format!("group {n}, bg_itable_unused"), unused, expected);
    } else if !s.sums.descriptors() && has_hints {
        let expected = "none without group descriptor checksums";
        let place = format!("group {n}, bg_flags");
        s.harmless(Kind::GroupFlags, place, desc.flags.get(), expected);
    }
}

/// The block of multiple-mount protection.
fn mmp(s: &mut State<'_>) {
    let block = s.sb.mmp_block.get();
    if !s.sb.has_incompat(incompat::MMP) {
        return;
    }
    if !s.g.holds(block, 1) {
        let expected = "a block of the file system";
        s.add(Kind::SuperValue, "super block, s_mmp_block".to_owned(), block, expected);
        return;
    }
    let (cluster, _) = s.clusters(block, 1);
    s.meta.add(cluster);
    s.claimed.add(cluster);
    let Some(bytes) = s.read(block) else { return };
    let Some(mmp) = Mmp::load(&bytes) else { return };
    let place = |field: &str| format!("multiple-mount protection, block {block}, {field}");
    if mmp.magic.get() != Mmp::MAGIC {
        let (found, right) = (format!("{:#x}", mmp.magic), format!("{:#x}", Mmp::MAGIC));
        s.add(Kind::Mmp, place("mmp_magic"), found, right);
        return;
    }
    let right = s.sums.mmp(&mmp);
    if s.sums.metadata() && mmp.checksum.get() != right {
        s.add(Kind::Mmp, place("mmp_checksum"), mmp.checksum, right);
    }
    // Linux mounts one that a crash left in use, after it has waited for another number.
    if mmp.seq.get() == Mmp::SEQ_FSCK {
        let expected = "no e2fsck at work: Linux refuses to mount it";
        s.add(Kind::Mmp, place("mmp_seq"), format!("{:#x}", mmp.seq), expected);
    }
}

/// A backup's contents matter to nobody until the first copy is lost.
fn backup(s: &mut State<'_>, n: u32) {
    if n == 0 || !s.g.has_super(n) {
        return;
    }
    let Some(bytes) = s.read(s.g.group_start(n)) else { return };
    let Some(copy) = SuperBlock::load(&bytes) else { return };
    if copy.magic.get() != SuperBlock::MAGIC || copy.verify(0).is_err() || copy.uuid != s.sb.uuid {
        let place = format!("group {n}, backup of the super block");
        let right = Checksums::super_block(&copy);
        s.harmless(Kind::SuperBackup, place, copy.checksum.get(), right);
    }
}
