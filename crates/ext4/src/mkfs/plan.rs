//! Sizes: from options to a super block that holds every number but those of the finished tree.
//!
//! Source: mke2fs(8), mke2fs.conf(5) of Debian 12; `ext2fs_initialize`, `calc_reserved_gdt_blocks`
//!         and `ext2fs_default_journal_size` of e2fsprogs 1.47.0 for the rules.

use crate::disk::feature::{self, compat, incompat, ro_compat};
use crate::disk::geometry::is_sparse_group;
use crate::disk::{SuperBlock, hi32, htree, ino, lo32};

use super::options::{Features, JournalSize, MkfsError, MkfsOptions};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Features that this mkfs can give, see [`MkfsError::UnsupportedFeatures`].
const KNOWN: Features = Features {
    compat: compat::HAS_JOURNAL
        | compat::EXT_ATTR
        | compat::RESIZE_INODE
        | compat::DIR_INDEX
        | compat::FAST_COMMIT
        | compat::STABLE_INODES
        | compat::ORPHAN_FILE,
    incompat: incompat::FILETYPE
        | incompat::EXTENTS
        | incompat::BIT64
        | incompat::FLEX_BG
        | incompat::EA_INODE
        | incompat::CSUM_SEED
        | incompat::LARGEDIR,
    ro_compat: ro_compat::SPARSE_SUPER
        | ro_compat::LARGE_FILE
        | ro_compat::HUGE_FILE
        | ro_compat::GDT_CSUM
        | ro_compat::DIR_NLINK
        | ro_compat::EXTRA_ISIZE
        | ro_compat::METADATA_CSUM
        | ro_compat::BIGALLOC
        | ro_compat::VERITY,
};

/// The sizes that are decided before anything is placed.
pub(super) struct Plan {
    /// Every field but counts of free things, the journal's backup, inode numbers and checksum.
    pub(super) sb: SuperBlock,
    /// Blocks of the journal, its fast-commit area included; 0 is none.
    pub(super) journal_blocks: u32,
    /// Of those, blocks of the fast-commit area.
    pub(super) fast_commit_blocks: u32,
    /// Blocks of the orphan file; 0 is none.
    pub(super) orphan_blocks: u32,
}

/// Decides all sizes.
pub(super) fn plan(o: &MkfsOptions) -> Result<Plan, MkfsError> {
    let usage = Usage::of(o.bytes & !4095);
    let block_size = o.block_size.unwrap_or(usage.block_size);
    check_options(o, block_size)?;
    let blocks = (o.bytes & !4095) / u64::from(block_size);
    let features = effective_features(o, blocks)?;
    let bits = cluster_bits(o, &features, block_size)?;
    let blocks = blocks >> bits << bits;
    let usual_ratio = usage.inode_ratio.max(block_size << bits);
    let inodes = wanted_inodes(o, blocks, block_size, usual_ratio, &features)?;
    let sizes = fit(o, &features, (block_size, bits), blocks, inodes)?;
    let (journal_blocks, fast_commit_blocks) = journal_size(o, &features, &sizes, block_size)?;
    let mut features = features;
    if journal_blocks == 0 {
        features.compat &= !(compat::HAS_JOURNAL | compat::ORPHAN_FILE);
    }
    let orphan_blocks = match o.orphan_file_blocks {
        _ if !features.has_compat(compat::ORPHAN_FILE) => 0,
        Some(n) => n.max(1),
        None if sizes.blocks < 128 * 1024 => 32,
        None if sizes.blocks < 2 * 1024 * 1024 => lo32(sizes.blocks / 4096),
        None => 512,
    };
    let need = ino::GOOD_OLD_FIRST + u32::from(orphan_blocks > 0);
    let have = sizes.inodes_per_group * sizes.groups;
    if have < need {
        return Err(MkfsError::TooFewInodes(have.into()));
    }
    Ok(Plan {
        sb: super_block(o, &features, (block_size, bits), &sizes),
        journal_blocks,
        fast_commit_blocks,
        orphan_blocks,
    })
}

/// Defaults by the device's size (`fs_types` of mke2fs.conf).
struct Usage {
    block_size: u32,
    inode_ratio: u32,
}

impl Usage {
    fn of(bytes: u64) -> Usage {
        let (block_size, inode_ratio) = match bytes {
            b if b < 3 * MIB => (1024, 8192),
            b if b < 512 * MIB => (1024, 4096),
            b if b < 4 * TIB => (4096, 16384),
            b if b < 16 * TIB => (4096, 32768),
            _ => (4096, 65536),
        };
        Usage { block_size, inode_ratio }
    }
}

fn check_options(o: &MkfsOptions, block_size: u32) -> Result<(), MkfsError> {
    if ![1024, 2048, 4096].contains(&block_size) {
        return Err(MkfsError::BlockSize(block_size));
    }
    if !o.inode_size.is_power_of_two() || o.inode_size < 128 || o.inode_size > block_size {
        return Err(MkfsError::InodeSize(o.inode_size));
    }
    if let Some(r) = o.inode_ratio.filter(|r| !(1024..=65536 * 1024).contains(r)) {
        return Err(MkfsError::InodeRatio(r));
    }
    if let Some(n) = o.blocks_per_group
        && (n < 256 || n > 8 * block_size || n % 8 != 0)
    {
        return Err(MkfsError::BlocksPerGroup(n));
    }
    let flex = o.groups_per_flex;
    if o.features.has_incompat(incompat::FLEX_BG) && (flex < 2 || !flex.is_power_of_two()) {
        return Err(MkfsError::GroupsPerFlex(flex));
    }
    if o.reserved_percent > 50 {
        return Err(MkfsError::ReservedPercent(o.reserved_percent));
    }
    if o.now == 0 {
        return Err(MkfsError::NoTime);
    }
    Ok(())
}

fn effective_features(o: &MkfsOptions, blocks: u64) -> Result<Features, MkfsError> {
    let mut f = o.features;
    let unknown = [
        feature::names(f.compat & !KNOWN.compat, compat::NAMES),
        feature::names(f.incompat & !KNOWN.incompat, incompat::NAMES),
        feature::names(f.ro_compat & !KNOWN.ro_compat, ro_compat::NAMES),
    ]
    .into_iter()
    .filter(|names| !names.is_empty())
    .collect::<Vec<_>>()
    .join(",");
    if !unknown.is_empty() {
        return Err(MkfsError::UnsupportedFeatures(unknown));
    }
    let needs = [
        (f.has_incompat(incompat::BIT64), "64bit", f.has_incompat(incompat::EXTENTS), "extent"),
        (
            f.has_compat(compat::RESIZE_INODE),
            "resize_inode",
            f.has_ro_compat(ro_compat::SPARSE_SUPER),
            "sparse_super",
        ),
        (
            f.has_incompat(incompat::CSUM_SEED),
            "metadata_csum_seed",
            f.has_ro_compat(ro_compat::METADATA_CSUM),
            "metadata_csum",
        ),
        (
            f.has_compat(compat::ORPHAN_FILE),
            "orphan_file",
            f.has_compat(compat::HAS_JOURNAL),
            "has_journal",
        ),
        (
            f.has_compat(compat::FAST_COMMIT),
            "fast_commit",
            f.has_compat(compat::HAS_JOURNAL),
            "has_journal",
        ),
        (
            f.has_ro_compat(ro_compat::BIGALLOC),
            "bigalloc",
            f.has_incompat(incompat::EXTENTS),
            "extent",
        ),
    ];
    if let Some((_, a, _, b)) = needs.into_iter().find(|(has, _, needed, _)| *has && !needed) {
        return Err(MkfsError::FeatureNeeds(a, b));
    }
    if f.has_ro_compat(ro_compat::METADATA_CSUM) && f.has_ro_compat(ro_compat::GDT_CSUM) {
        return Err(MkfsError::FeatureExcludes("metadata_csum", "uninit_bg"));
    }
    if f.has_ro_compat(ro_compat::BIGALLOC) && f.has_compat(compat::FAST_COMMIT) {
        // Kernels take both; replay of fast commits by clusters is left out here.
        return Err(MkfsError::UnsupportedFeatures(
            "bigalloc and fast_commit (or ijournal) together".to_owned(),
        ));
    }
    if blocks > u64::from(u32::MAX) {
        if !f.has_incompat(incompat::BIT64) {
            return Err(MkfsError::TooManyBlocks(blocks));
        }
        // The resize inode is an indirect file: its block numbers have 32 bits.
        f.compat &= !compat::RESIZE_INODE;
    }
    Ok(f)
}

/// Binary logarithm of a cluster's blocks.
fn cluster_bits(o: &MkfsOptions, f: &Features, block_size: u32) -> Result<u32, MkfsError> {
    if !f.has_ro_compat(ro_compat::BIGALLOC) {
        return match o.cluster_size {
            Some(_) => Err(MkfsError::FeatureNeeds("a cluster size", "bigalloc")),
            None => Ok(0),
        };
    }
    if block_size == 1024 {
        return Err(MkfsError::UnsupportedFeatures("bigalloc and blocks of 1 KiB".to_owned()));
    }
    if let Some(n) = o.blocks_per_group {
        // Its option counts clusters in mke2fs.
        return Err(MkfsError::BlocksPerGroup(n));
    }
    let size = o.cluster_size.unwrap_or(block_size * 16);
    let fits = size.is_power_of_two() && size > block_size && size <= 256 << 20;
    if fits { Ok((size / block_size).ilog2()) } else { Err(MkfsError::ClusterSize(size)) }
}

fn wanted_inodes(
    o: &MkfsOptions,
    blocks: u64,
    block_size: u32,
    usual_ratio: u32,
    f: &Features,
) -> Result<u64, MkfsError> {
    let ratio = o.inode_ratio.unwrap_or(usual_ratio.max(block_size));
    let mut inodes = match o.inodes {
        Some(n) if n > 0 => u64::from(n),
        _ => blocks * u64::from(block_size) / u64::from(ratio),
    };
    if inodes > u64::from(u32::MAX) {
        if !f.has_incompat(incompat::BIT64) {
            return Err(MkfsError::TooManyInodes(inodes));
        }
        inodes = u32::MAX.into();
    }
    if inodes * u64::from(o.inode_size) >= blocks * u64::from(block_size) {
        return Err(MkfsError::TooManyInodes(inodes));
    }
    // Without a wish (a device of less than one ratio), one inode for every 4 KiB.
    let inodes = if inodes == 0 { blocks / u64::from(4096 / block_size) } else { inodes };
    Ok(inodes.max(u64::from(ino::GOOD_OLD_FIRST) + 1))
}

/// Sizes that depend on each other.
struct Sizes {
    blocks: u64,
    reserved_blocks: u64,
    first_data_block: u32,
    blocks_per_group: u32,
    groups: u32,
    desc_blocks: u32,
    inodes_per_group: u32,
    itable_blocks: u32,
    reserved_gdt_blocks: u32,
}

/// Finds group sizes that fit. A last group too small for its own metadata and 50 blocks of data is
/// dropped, and where a group would have more inodes than its bitmap has bits, groups get smaller.
fn fit(
    o: &MkfsOptions,
    f: &Features,
    (block_size, cluster_bits): (u32, u32),
    blocks: u64,
    inodes: u64,
) -> Result<Sizes, MkfsError> {
    let asked = blocks;
    // mke2fs computes in double precision; the operations here are the same ones, so are their
    // roundings.
    let reserved_asked = (f64::from(o.reserved_percent) * asked as f64 / 100.0) as u64;
    let mut blocks = asked;
    let mut reserved_blocks = reserved_asked;
    let mut blocks_per_group = o.blocks_per_group.unwrap_or((block_size * 8) << cluster_bits);
    let first_data_block = u32::from(block_size == 1024);
    // Bounded: every round drops a group's rest, or 8 blocks of the group size.
    loop {
        if blocks <= first_data_block.into() {
            return Err(MkfsError::TooSmall(o.bytes));
        }
        let span = blocks - u64::from(first_data_block);
        let groups = span.div_ceil(blocks_per_group.into());
        let groups = u32::try_from(groups).map_err(|_| MkfsError::TooManyBlocks(blocks))?;
        let desc_bytes = if f.has_incompat(incompat::BIT64) { 64 } else { 32 };
        let desc_blocks = groups.div_ceil(block_size / desc_bytes);
        let per_group = inodes.div_ceil(groups.into());
        if per_group > u64::from(block_size) * 8 {
            if blocks_per_group < 264 || cluster_bits > 0 {
                return Err(MkfsError::TooManyInodes(inodes));
            }
            blocks_per_group -= 8;
            blocks = asked;
            continue;
        }
        let (inodes_per_group, itable_blocks) =
            inode_table(o.inode_size, block_size, per_group, groups);
        let reserved_gdt_blocks = if f.has_compat(compat::RESIZE_INODE) {
            growth(blocks, first_data_block, blocks_per_group, block_size, desc_bytes, desc_blocks)
        } else {
            0
        };
        if u64::from(reserved_gdt_blocks + desc_blocks) > u64::from(blocks_per_group) * 3 / 4 {
            return Err(MkfsError::NeedsMetaBg);
        }
        if 3 + itable_blocks + reserved_gdt_blocks + desc_blocks > blocks_per_group {
            return Err(MkfsError::TooManyInodes(inodes));
        }
        let sizes = Sizes {
            blocks,
            reserved_blocks,
            first_data_block,
            blocks_per_group,
            groups,
            desc_blocks,
            inodes_per_group,
            itable_blocks,
            reserved_gdt_blocks,
        };
        let rest = span % u64::from(blocks_per_group);
        let need = u64::from(sizes.last_group_metadata(f));
        if rest != 0 && groups == 1 && rest < need {
            return Err(MkfsError::TooSmall(o.bytes));
        }
        if rest == 0 || rest >= need + 50 {
            return Ok(sizes);
        }
        blocks -= rest;
        let ratio = 100.0 * reserved_asked as f64 / asked as f64;
        reserved_blocks = (ratio * blocks as f64 / 100.0) as u64;
    }
}

impl Sizes {
    /// Blocks of a copy of super block and descriptors, with the reserved ones.
    fn copy_blocks(&self) -> u32 {
        1 + self.desc_blocks + self.reserved_gdt_blocks
    }

    /// Blocks that are free before the tables of flexible groups are placed.
    fn free_at_start(&self, f: &Features) -> u64 {
        let copies = (0..self.groups).filter(|g| has_super(f, *g)).count() as u64;
        let own = if f.has_incompat(incompat::FLEX_BG) { 0 } else { 2 + self.itable_blocks };
        let used = copies * u64::from(self.copy_blocks()) + u64::from(self.groups) * u64::from(own);
        (self.blocks - u64::from(self.first_data_block)).saturating_sub(used)
    }

    /// Blocks of metadata in the last group, were it on its own.
    fn last_group_metadata(&self, f: &Features) -> u32 {
        let copies = if has_super(f, self.groups - 1) { self.copy_blocks() } else { 0 };
        2 + self.itable_blocks + copies
    }
}

/// Has the group copies of super block and descriptors?
fn has_super(f: &Features, group: u32) -> bool {
    !f.has_ro_compat(ro_compat::SPARSE_SUPER) || is_sparse_group(group)
}

/// (inodes, blocks) of a group's table: full blocks, and a multiple of 8 inodes.
fn inode_table(inode_size: u32, block_size: u32, per_group: u64, groups: u32) -> (u32, u32) {
    let per_block = block_size / inode_size;
    let mut wish = lo32(per_group).min((1 << 16) - per_block);
    loop {
        let inodes = (wish.div_ceil(per_block) * per_block).max(8) & !7;
        if u64::from(inodes) * u64::from(groups) <= u64::from(u32::MAX) {
            return (inodes, inodes.div_ceil(per_block));
        }
        wish -= 1;
    }
}

/// Descriptor blocks to keep free, so that the file system can grow 1024-fold (to 2^32 blocks at
/// most).
fn growth(
    blocks: u64,
    first: u32,
    per_group: u32,
    block_size: u32,
    desc_bytes: u32,
    have: u32,
) -> u32 {
    let max = u64::from(u32::MAX);
    let grown = if blocks < max / 1024 { blocks * 1024 } else { max };
    let groups = (grown - u64::from(first)).div_ceil(per_group.into());
    let want = groups.div_ceil(u64::from(block_size / desc_bytes)) - u64::from(have);
    // The resize inode's double-indirect block has one pointer for each.
    lo32(want.min(u64::from(block_size / 4)))
}

/// (blocks with the fast-commit area, blocks of that area).
fn journal_size(
    o: &MkfsOptions,
    f: &Features,
    s: &Sizes,
    block_size: u32,
) -> Result<(u32, u32), MkfsError> {
    if !f.has_compat(compat::HAS_JOURNAL) {
        return Ok((0, 0));
    }
    let default: u32 = match s.blocks {
        n if n < 2048 => return Ok((0, 0)),
        n if n < 32768 => 1024,
        n if n < 256 * 1024 => 4096,
        n if n < 512 * 1024 => 8192,
        n if n < 4096 * 1024 => 16384,
        n if n < 8192 * 1024 => 32768,
        n if n < 16384 * 1024 => 65536,
        n if n < 32768 * 1024 => 131_072,
        _ => 262_144,
    };
    let fast = if f.has_compat(compat::FAST_COMMIT) { default / 64 } else { 0 };
    let JournalSize::Mebibytes(size) = o.journal else {
        return Ok((default + fast, fast));
    };
    let log = u64::from(size) * MIB / u64::from(block_size);
    let total = log + u64::from(fast);
    if log < 1024 || total > 10_240_000 {
        return Err(MkfsError::JournalBlocks(total));
    }
    if total > s.free_at_start(f) / 2 {
        return Err(MkfsError::JournalTooBig(total));
    }
    Ok((lo32(total), fast))
}

fn super_block(
    o: &MkfsOptions,
    f: &Features,
    (block_size, cluster_bits): (u32, u32),
    s: &Sizes,
) -> SuperBlock {
    let mut sb = SuperBlock::zeroed();
    let log = block_size.ilog2() - 10;
    sb.inodes_count = (s.inodes_per_group * s.groups).into();
    sb.blocks_count_lo = lo32(s.blocks).into();
    sb.blocks_count_hi = hi32(s.blocks).into();
    sb.r_blocks_count_lo = lo32(s.reserved_blocks).into();
    sb.r_blocks_count_hi = hi32(s.reserved_blocks).into();
    sb.first_data_block = s.first_data_block.into();
    sb.log_block_size = log.into();
    sb.log_cluster_size = (log + cluster_bits).into();
    sb.blocks_per_group = s.blocks_per_group.into();
    sb.clusters_per_group = (s.blocks_per_group >> cluster_bits).into();
    sb.inodes_per_group = s.inodes_per_group.into();
    sb.wtime = o.now.into();
    sb.max_mnt_count = u16::MAX.into();
    sb.magic = SuperBlock::MAGIC.into();
    sb.state = SuperBlock::STATE_VALID.into();
    sb.errors = 1.into();
    sb.lastcheck = o.now.into();
    sb.rev_level = 1.into();
    sb.first_ino = ino::GOOD_OLD_FIRST.into();
    sb.inode_size = u16::try_from(o.inode_size).expect("at most a block").into();
    sb.feature_compat = f.compat.into();
    sb.feature_incompat = f.incompat.into();
    sb.feature_ro_compat = f.ro_compat.into();
    sb.uuid = o.uuid;
    sb.volume_name = o.label;
    sb.reserved_gdt_blocks = u16::try_from(s.reserved_gdt_blocks).expect("at most 1024").into();
    let (words, _) = o.hash_seed.as_chunks::<4>();
    sb.hash_seed
        .iter_mut()
        .zip(words)
        .for_each(|(to, from)| *to = u32::from_le_bytes(*from).into());
    sb.def_hash_version = htree::hash_version::HALF_MD4;
    sb.desc_size = if f.has_incompat(incompat::BIT64) { 64.into() } else { 0.into() };
    sb.default_mount_opts = (MOUNT_XATTR_USER | MOUNT_ACL).into();
    sb.mkfs_time = o.now.into();
    if o.inode_size > 128 {
        sb.min_extra_isize = 32.into();
        sb.want_extra_isize = 32.into();
    }
    // What `char` is on x86; Linux takes the hash version from here, not from the machine.
    sb.flags = SuperBlock::FLAG_SIGNED_HASH.into();
    if f.has_incompat(incompat::FLEX_BG) {
        sb.log_groups_per_flex = u8::try_from(o.groups_per_flex.ilog2()).expect("at most 31");
    }
    if f.has_ro_compat(ro_compat::METADATA_CSUM) {
        sb.checksum_type = SuperBlock::CHECKSUM_CRC32C;
    }
    if f.has_incompat(incompat::CSUM_SEED) {
        sb.checksum_seed = wp_base::crc::crc32c(!0, &o.uuid).into();
    }
    sb
}

/// `EXT4_DEFM_XATTR_USER` of `s_default_mount_opts`.
const MOUNT_XATTR_USER: u32 = 4;
/// `EXT4_DEFM_ACL`.
const MOUNT_ACL: u32 = 8;
