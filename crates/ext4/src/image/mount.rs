//! What a mount checks besides what opening and recovery read: fields of the super block, where
//! the group's own blocks lie, and the blocks of the root directory and of the journal.
//!
//! Invariants: no bytes make it panic; nothing here writes.
//! Left out:   quota files, which a mount with the `quota` feature reads too.
//! Source:     fs/ext4 of Linux 6.12: `__ext4_fill_super`, `ext4_inode_info_init`,
//!             `ext4_handle_clustersize`, `ext4_setup_system_zone`, `__ext4_iget`.

use wp_base::{FsError, FsResult};

use crate::disk::feature::{compat, ro_compat};
use crate::disk::geometry::CLUSTER_LOG_MAX;
use crate::disk::inode::flag;
use crate::disk::{SuperBlock, ino};

use super::{Image, InodeRecord};

/// Direct pointers of an inode. `EXT4_NDIR_BLOCKS`.
const DIRECT: usize = 12;

/// Checks what a mount by Linux `version` checks of the file system as it was read, before it is
/// recovered. Errors: `Corrupt`.
pub(super) fn check_super(image: &Image<'_>, version: (u16, u16)) -> FsResult<()> {
    let (sb, g) = (image.super_block(), image.geometry());
    let wrong = |field, found: u32, expected: String| {
        let structure = "ext4 super block";
        Err(FsError::corrupt(structure, field, SuperBlock::AT, found.into(), expected))
    };
    if sb.has_compat(compat::HAS_JOURNAL) && sb.journal_inum.get() != 0 && sb.journal_dev.get() != 0
    {
        let expected = "0: the journal is an inode".to_owned();
        return wrong("s_journal_dev", sb.journal_dev.get(), expected);
    }
    let cluster = sb.log_cluster_size.get();
    if cluster > CLUSTER_LOG_MAX {
        return wrong("s_log_cluster_size", cluster, format!("0 to {CLUSTER_LOG_MAX}"));
    }
    // "ext4: add more mount time checks of the superblock".
    let is_big = sb.has_ro_compat(ro_compat::BIGALLOC);
    if version >= (4, 18) && cluster != sb.log_block_size.get() && !is_big {
        let expected = format!("{}, as s_log_block_size", sb.log_block_size.get());
        return wrong("s_log_cluster_size", cluster, expected);
    }
    let per_group = sb.clusters_per_group.get();
    if version >= CLUSTERS_SINCE && per_group != g.blocks_per_group && !is_big {
        let expected = format!("{}, as s_blocks_per_group", g.blocks_per_group);
        return wrong("s_clusters_per_group", per_group, expected);
    }
    let hash = sb.def_hash_version;
    if version >= HASHES_SINCE && hash > HASH_MAX {
        let expected = format!("a hash that a directory can have, 0 to {HASH_MAX}");
        return wrong("s_def_hash_version", hash.into(), expected);
    }
    // "ext4: add more paranoia checking in ext4_expand_extra_isize handling".
    let room = g.inode_bytes.saturating_sub(128);
    if version >= (5, 5) && room > 0 && sb.has_ro_compat(ro_compat::EXTRA_ISIZE) {
        let sizes = [
            ("s_want_extra_isize", sb.want_extra_isize),
            ("s_min_extra_isize", sb.min_extra_isize),
        ];
        for (field, size) in sizes {
            if size.get() > room {
                return wrong(field, size.get().into(), format!("{room} or less"));
            }
        }
    }
    Ok(())
}

/// The first version that refuses an unknown default hash, and the last that is known: SipHash is
/// none. `ext4_hash_info_init`.
const HASHES_SINCE: (u16, u16) = (6, 11);
const HASH_MAX: u8 = 5;

/// The first version that compares groups of clusters with groups of blocks without bigalloc, too.
const CLUSTERS_SINCE: (u16, u16) = (6, 1);

/// Checks what a mount by Linux `version` checks of the recovered file system. Errors: `Corrupt`.
pub(super) fn check_blocks(image: &Image<'_>, version: (u16, u16)) -> FsResult<()> {
    let root = image.inode(ino::ROOT)?;
    check_inode(image, &root)?;
    let acl = root.inode.file_acl();
    if acl != 0 && !image.geometry().holds(acl, 1) {
        return bad_block(&root, "i_file_acl", acl);
    }
    let sb = image.super_block();
    let journal = match sb.has_internal_journal() {
        true => Some(image.inode(sb.journal_inum.get())?),
        false => None,
    };
    if let Some(journal) = &journal {
        check_inode(image, journal)?;
    }
    // "ext4: don't allow overlapping system zones".
    if version < (5, 9) {
        return Ok(());
    }
    let mut zones = system_zones(image)?;
    let Some(journal) = journal else { return Ok(()) };
    // The journal's blocks become such a zone one run after the other.
    for run in &image.map(&journal)?.runs {
        let end = run.start + u64::from(run.blocks);
        let at = zones.partition_point(|(start, ..)| *start < run.start);
        let before = at.checked_sub(1).and_then(|n| zones.get(n));
        if before.is_some_and(|zone| run.start < zone.1)
            || zones.get(at).is_some_and(|zone| zone.0 < end)
        {
            return bad_block(&journal, "i_block", run.start);
        }
        zones.insert(at, (run.start, end, 0));
    }
    Ok(())
}

/// The places of blocks that are in the inode itself lie in the file system. `__ext4_iget`.
fn check_inode(image: &Image<'_>, record: &InodeRecord) -> FsResult<()> {
    let i = &record.inode;
    if i.has(flag::INLINE_DATA) {
        return Ok(());
    }
    if i.has(flag::EXTENTS) {
        // Of a tree with levels only the root is read, which needs no more than a mount that
        // lists the directory.
        let depth = record
            .raw
            .get(0x2E..0x30)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u16::from_le_bytes);
        return if depth == 0 { image.map(record).map(drop) } else { Ok(()) };
    }
    for n in 0..DIRECT {
        let block = u64::from(i.pointer(n));
        if block != 0 && !image.geometry().holds(block, 1) {
            return bad_block(record, "i_block", block);
        }
    }
    Ok(())
}

fn bad_block(record: &InodeRecord, field: &'static str, block: u64) -> FsResult<()> {
    let expected = format!("a block for data (inode {})", record.number);
    Err(FsError::corrupt("ext4 inode", field, record.at, block, expected))
}

/// First block and the one behind the last of what each group keeps for itself, sorted; they do
/// not overlap. `ext4_setup_system_zone`, `add_system_zone`.
fn system_zones(image: &Image<'_>) -> FsResult<Vec<(u64, u64, u32)>> {
    let g = image.geometry();
    let mut zones = Vec::new();
    for (n, desc) in (0..).zip(image.groups()) {
        let mut add = |start: u64, blocks: u64| {
            if blocks > 0 {
                zones.push((start, start.saturating_add(blocks), n));
            }
        };
        add(g.group_start(n), g.base_meta_blocks(n).into());
        add(desc.block_bitmap(), 1);
        add(desc.inode_bitmap(), 1);
        add(desc.inode_table(), g.itable_blocks.into());
    }
    zones.sort_unstable();
    for pair in zones.windows(2) {
        let [before, after] = pair else { continue };
        if after.0 < before.1 {
            let (block, at) = g.desc_place(after.2);
            let at = image.byte_of(block) + at as u64;
            let expected = format!("blocks of its own, not those of group {}", before.2);
            return Err(FsError::corrupt("ext4 group descriptor", "block", at, after.0, expected));
        }
    }
    Ok(zones)
}
