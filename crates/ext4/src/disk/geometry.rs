//! Where things lie, as the super block describes it.

use wp_base::{BlockSize, FsError, FsResult};

use super::{SuperBlock, compat, incompat, index, ino, lo32, ro_compat};

/// Largest cluster: `EXT4_MAX_CLUSTER_LOG_SIZE` (30), from 1 KiB on.
pub(crate) const CLUSTER_LOG_MAX: u32 = 30 - 10;

/// The layout of a file system, computed once and checked.
///
/// Invariants: group numbers are below `groups`; every group but the last has `blocks_per_group`
///             blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size.
    pub block_size: BlockSize,
    /// Blocks of the file system, those before `first_data_block` included.
    pub blocks_count: u64,
    /// First block of group 0: 1 with blocks of 1 KiB, else 0.
    pub first_data_block: u32,
    /// Blocks in a group.
    pub blocks_per_group: u32,
    /// Binary logarithm of the blocks of a cluster, the unit of the block bitmaps; 0 without
    /// bigalloc (`s_cluster_bits`).
    pub cluster_bits: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// Inodes of the file system.
    pub inodes_count: u32,
    /// Groups.
    pub groups: u32,
    /// Bytes of an inode.
    pub inode_bytes: u16,
    /// Bytes of a group descriptor.
    pub desc_bytes: u16,
    /// Blocks of an inode table.
    pub itable_blocks: u32,
    /// Blocks of the group descriptors.
    pub gdt_blocks: u32,
    /// Blocks kept free after the descriptors.
    pub reserved_gdt_blocks: u16,
    /// Groups whose metadata lies together; 1 without flex_bg.
    pub groups_per_flex: u32,
    /// First inode that is not reserved.
    pub first_inode: u32,
    backups: Backups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    /// In every group.
    All,
    /// In groups 0, 1 and powers of 3, 5, 7.
    Sparse,
    /// In group 0 and these (0 is none).
    Two([u32; 2]),
}

/// Where an inode lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeSlot {
    /// Its group.
    pub group: u32,
    /// Its number in the group, from 0: its bit in the inode bitmap.
    pub index: u32,
    /// Block of it, counted from the first block of the group's inode table.
    pub table_block: u32,
    /// Byte of it in that block.
    pub offset: u32,
}

impl Geometry {
    /// Computes and checks the layout. `SuperBlock::verify` must have been called.
    ///
    /// Errors: `Corrupt` if fields contradict each other; `Unsupported` for meta_bg, bigalloc with
    ///         blocks of 1 KiB, and blocks of more than 4 KiB.
    pub fn from_super(sb: &SuperBlock) -> FsResult<Geometry> {
        Self::refuse_unsupported(sb)?;
        let wrong = |field, found: u64, expected: &str| {
            Err(FsError::corrupt("ext4 super block", field, SuperBlock::AT, found, expected))
        };
        let Some(block_size) = sb.block_size() else {
            return wrong("s_log_block_size", sb.log_block_size.get().into(), "0 to 6");
        };
        if block_size.bytes() > 4096 {
            return Err(FsError::Unsupported(format!(
                "ext4 blocks of {} bytes",
                block_size.bytes()
            )));
        }
        let bits = block_size.bytes() * 8;
        let first = sb.first_data_block.get();
        if first != u32::from(block_size.bytes() == 1024) {
            return wrong("s_first_data_block", first.into(), "1 with 1 KiB blocks, else 0");
        }
        let (blocks, per_group) = (sb.blocks_count(), sb.blocks_per_group.get());
        let cluster_bits = Self::cluster_bits_of(sb)?;
        if !Self::is_group(per_group, cluster_bits, bits) {
            let expected = "a multiple of 8 from 256 to a block's bits; of clusters with bigalloc";
            return wrong("s_blocks_per_group", per_group.into(), expected);
        }
        if blocks <= u64::from(first) {
            return wrong("s_blocks_count", blocks, "more than s_first_data_block");
        }
        let groups = (blocks - u64::from(first)).div_ceil(per_group.into());
        let inode_bytes = sb.inode_bytes();
        if inode_bytes < 128
            || !inode_bytes.is_power_of_two()
            || u32::from(inode_bytes) > block_size.bytes()
        {
            return wrong(
                "s_inode_size",
                inode_bytes.into(),
                "a power of two from 128 to the block size",
            );
        }
        let desc_bytes = sb.desc_bytes();
        let long = sb.has_incompat(incompat::BIT64);
        if long && (!(64..=1024).contains(&desc_bytes) || !desc_bytes.is_power_of_two()) {
            return wrong("s_desc_size", desc_bytes.into(), "a power of two from 64 to 1024");
        }
        let inodes_per_block = block_size.bytes() / u32::from(inode_bytes);
        let inodes_per_group = sb.inodes_per_group.get();
        if inodes_per_group < inodes_per_block || inodes_per_group > bits {
            return wrong(
                "s_inodes_per_group",
                inodes_per_group.into(),
                "a block of them to a block's bits",
            );
        }
        let inodes = groups.saturating_mul(inodes_per_group.into());
        if inodes != u64::from(sb.inodes_count.get()) {
            let expected = format!("{inodes}, s_inodes_per_group in each of {groups} groups");
            return wrong("s_inodes_count", sb.inodes_count.get().into(), &expected);
        }
        if sb.first_inode() < ino::GOOD_OLD_FIRST || sb.first_inode() > sb.inodes_count.get() {
            return wrong("s_first_ino", sb.first_inode().into(), "11 to s_inodes_count");
        }
        if u32::from(sb.reserved_gdt_blocks.get()) > block_size.bytes() / 4 {
            let found = sb.reserved_gdt_blocks.get();
            return wrong(
                "s_reserved_gdt_blocks",
                found.into(),
                "at most a quarter of a block's bytes",
            );
        }
        // What is larger is as if there was none (`ext4_fill_flex_info`); the check finds it.
        let flex_log = Some(sb.log_groups_per_flex).filter(|log| *log <= 31).unwrap_or(0);
        // Groups fit: there are at most as many as inodes, and those have been found to fit 32
        // bits.
        let groups = lo32(groups);
        let per_desc_block = block_size.bytes() / u32::from(desc_bytes);
        Ok(Geometry {
            block_size,
            blocks_count: blocks,
            first_data_block: first,
            blocks_per_group: per_group,
            cluster_bits,
            inodes_per_group,
            inodes_count: sb.inodes_count.get(),
            groups,
            inode_bytes,
            desc_bytes,
            itable_blocks: inodes_per_group.div_ceil(inodes_per_block),
            gdt_blocks: groups.div_ceil(per_desc_block),
            reserved_gdt_blocks: sb.reserved_gdt_blocks.get(),
            groups_per_flex: if sb.has_incompat(incompat::FLEX_BG) { 1 << flex_log } else { 1 },
            first_inode: sb.first_inode(),
            backups: if sb.has_compat(compat::SPARSE_SUPER2) {
                Backups::Two(sb.backup_bgs.map(|g| g.get()))
            } else if sb.has_ro_compat(ro_compat::SPARSE_SUPER) {
                Backups::Sparse
            } else {
                Backups::All
            },
        })
    }

    fn refuse_unsupported(sb: &SuperBlock) -> FsResult<()> {
        if sb.has_incompat(incompat::META_BG) {
            return Err(FsError::Unsupported("ext4 with meta_bg".to_owned()));
        }
        if sb.has_ro_compat(ro_compat::BIGALLOC) && sb.log_block_size.get() == 0 {
            // Its super block is in block 1, and its first group begins with block 0.
            return Err(FsError::Unsupported("ext4 with bigalloc and blocks of 1 KiB".to_owned()));
        }
        Ok(())
    }

    /// Can a group have this number of blocks, if a bitmap has `bits` bits?
    fn is_group(blocks: u32, cluster_bits: u32, bits: u32) -> bool {
        blocks >= 256
            && blocks >> cluster_bits <= bits
            && blocks.is_multiple_of(8 << cluster_bits.min(20))
    }

    /// [`Geometry::cluster_bits`] of a super block (`ext4_handle_clustersize`).
    fn cluster_bits_of(sb: &SuperBlock) -> FsResult<u32> {
        if !sb.has_ro_compat(ro_compat::BIGALLOC) {
            return Ok(0);
        }
        if !sb.has_incompat(incompat::EXTENTS) {
            let what = "bigalloc without extent: no kernel mounts it";
            return Err(FsError::Unsupported(what.to_owned()));
        }
        let (block, cluster) = (sb.log_block_size.get(), sb.log_cluster_size.get());
        let bits = cluster.checked_sub(block).filter(|_| cluster <= CLUSTER_LOG_MAX);
        let Some(bits) = bits else {
            let expected = format!("{block}, as s_log_block_size, to {CLUSTER_LOG_MAX}");
            let at = SuperBlock::AT;
            let structure = "ext4 super block";
            let c = FsError::corrupt(structure, "s_log_cluster_size", at, cluster.into(), expected);
            return Err(c);
        };
        let (blocks, clusters) = (sb.blocks_per_group.get(), sb.clusters_per_group.get());
        if u64::from(clusters) << bits != u64::from(blocks) {
            let (found, expected) = (clusters.into(), format!("{} clusters", blocks >> bits));
            let structure = "ext4 super block";
            let at = SuperBlock::AT;
            return Err(FsError::corrupt(structure, "s_clusters_per_group", at, found, expected));
        }
        Ok(bits)
    }

    /// Blocks of a cluster; 1 without bigalloc.
    pub fn cluster_blocks(&self) -> u32 {
        1 << self.cluster_bits
    }

    /// Bytes of a cluster; of a block without bigalloc.
    pub fn cluster_bytes(&self) -> u32 {
        self.block_size.bytes() << self.cluster_bits
    }

    /// Clusters in a group; the last one may have fewer (`num_clusters_in_group`).
    pub fn clusters_in_group(&self, group: u32) -> u32 {
        self.blocks_in_group(group).div_ceil(self.cluster_blocks())
    }

    /// Group of a block, and the bit of its cluster in the block bitmap. `None` for a block outside
    /// all groups.
    pub fn locate_cluster(&self, block: u64) -> Option<(u32, u32)> {
        self.locate_block(block).map(|(group, n)| (group, n >> self.cluster_bits))
    }

    /// First block of the cluster that bit `bit` of a group's bitmap stands for.
    pub fn cluster_start(&self, group: u32, bit: u32) -> u64 {
        self.group_start(group) + (u64::from(bit) << self.cluster_bits)
    }

    /// First block of the cluster of `block`, logical or on the device: both count from 0.
    pub fn cluster_floor(&self, block: u64) -> u64 {
        block >> self.cluster_bits << self.cluster_bits
    }

    /// Clusters that `blocks` blocks from the start of a cluster need (`EXT4_NUM_B2C`).
    pub fn clusters_of(&self, blocks: u64) -> u64 {
        blocks.div_ceil(self.cluster_blocks().into())
    }

    /// First block of a group.
    pub fn group_start(&self, group: u32) -> u64 {
        u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks in a group; the last one may have fewer.
    pub fn blocks_in_group(&self, group: u32) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_start(group));
        if left < u64::from(self.blocks_per_group) { lo32(left) } else { self.blocks_per_group }
    }

    /// Group of a block and its number in it; without bigalloc that is its bit in the block bitmap.
    /// `None` for a block outside all groups.
    pub fn locate_block(&self, block: u64) -> Option<(u32, u32)> {
        if block >= self.blocks_count {
            return None;
        }
        let n = block.checked_sub(self.first_data_block.into())?;
        let per = u64::from(self.blocks_per_group);
        Some((lo32(n / per), lo32(n % per)))
    }

    /// Are blocks `start .. start + blocks` on the device, and none of them before the first group?
    /// (Linux refuses runs that touch the super block's own block too.)
    pub fn holds(&self, start: u64, blocks: u64) -> bool {
        start > u64::from(self.first_data_block)
            && start.checked_add(blocks).is_some_and(|end| end <= self.blocks_count)
    }

    /// Where inode `ino` lies. `None` for 0 and for numbers beyond the last.
    pub fn inode_slot(&self, ino: u32) -> Option<InodeSlot> {
        if ino == 0 || ino > self.inodes_count {
            return None;
        }
        let (group, n) = ((ino - 1) / self.inodes_per_group, (ino - 1) % self.inodes_per_group);
        let per_block = self.block_size.bytes() / u32::from(self.inode_bytes);
        let offset = n % per_block * u32::from(self.inode_bytes);
        Some(InodeSlot { group, index: n, table_block: n / per_block, offset })
    }

    /// Has the group a copy of super block and descriptors?
    pub fn has_super(&self, group: u32) -> bool {
        match self.backups {
            _ if group == 0 => true,
            Backups::All => true,
            Backups::Two(groups) => groups.contains(&group),
            Backups::Sparse => is_sparse_group(group),
        }
    }

    /// Block and byte in it of the primary descriptor of `group`.
    pub fn desc_place(&self, group: u32) -> (u64, usize) {
        let per_block = self.block_size.bytes() / u32::from(self.desc_bytes);
        let block = u64::from(self.first_data_block) + 1 + u64::from(group / per_block);
        (block, index(group % per_block) * usize::from(self.desc_bytes))
    }

    /// Blocks at the start of a group that hold the super block's copy, the descriptors' and the
    /// reserved ones; 0 in a group without copies.
    pub fn base_meta_blocks(&self, group: u32) -> u32 {
        if self.has_super(group) {
            1 + self.gdt_blocks + u32::from(self.reserved_gdt_blocks)
        } else {
            0
        }
    }

    /// Bytes of a bitmap of blocks that count for its checksum.
    pub fn block_bitmap_bytes(&self) -> usize {
        index((self.blocks_per_group >> self.cluster_bits) / 8)
    }

    /// Bytes of a bitmap of inodes that count for its checksum.
    pub fn inode_bitmap_bytes(&self) -> usize {
        index(self.inodes_per_group / 8)
    }

    /// Length in bytes that the device must have at least.
    pub fn bytes(&self) -> u64 {
        self.blocks_count.saturating_mul(self.block_size.bytes().into())
    }
}

/// Has the group a copy of the super block under sparse_super? Groups 0, 1 and powers of 3, 5 and 7
/// have.
pub fn is_sparse_group(group: u32) -> bool {
    group <= 1 || [3, 5, 7].iter().any(|base| is_power(group, *base))
}

/// Is `n` a power of `base`, the first one or higher?
fn is_power(n: u32, base: u64) -> bool {
    let n = u64::from(n);
    let mut power = base;
    while power < n {
        power *= base;
    }
    power == n
}
