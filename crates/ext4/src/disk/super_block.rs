//! The super block: 1024 bytes at byte 1024 of the device, and its backups.

use std::mem::offset_of;

use wp_base::{BlockSize, Corruption};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::feature::{compat, incompat, ro_compat};
use super::{hi32, lo32};

/// The super block. `struct ext4_super_block`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SuperBlock {
    /// `s_inodes_count`.
    pub inodes_count: U32,
    /// `s_blocks_count_lo`; see [`Self::blocks_count`].
    pub blocks_count_lo: U32,
    /// `s_r_blocks_count_lo`, blocks that only root may use.
    pub r_blocks_count_lo: U32,
    /// `s_free_blocks_count_lo`; brought up to date at unmount only.
    pub free_blocks_count_lo: U32,
    /// `s_free_inodes_count`; brought up to date at unmount only.
    pub free_inodes_count: U32,
    /// `s_first_data_block`: 1 with blocks of 1 KiB, else 0.
    pub first_data_block: U32,
    /// `s_log_block_size`: block size is `1024 << log`.
    pub log_block_size: U32,
    /// `s_log_cluster_size`: as `log_block_size` without bigalloc.
    pub log_cluster_size: U32,
    /// `s_blocks_per_group`.
    pub blocks_per_group: U32,
    /// `s_clusters_per_group`.
    pub clusters_per_group: U32,
    /// `s_inodes_per_group`.
    pub inodes_per_group: U32,
    /// `s_mtime`, last mount, seconds since 1970.
    pub mtime: U32,
    /// `s_wtime`, last write of the super block, seconds since 1970.
    pub wtime: U32,
    /// `s_mnt_count`, mounts since the last check.
    pub mnt_count: U16,
    /// `s_max_mnt_count`: check after this number of mounts; 0xFFFF means never.
    pub max_mnt_count: U16,
    /// `s_magic`, always [`Self::MAGIC`].
    pub magic: U16,
    /// `s_state`: [`Self::STATE_VALID`], [`Self::STATE_ERROR`], [`Self::STATE_ORPHANS`].
    pub state: U16,
    /// `s_errors`: on an error 1 continue, 2 read-only, 3 panic.
    pub errors: U16,
    /// `s_minor_rev_level`.
    pub minor_rev_level: U16,
    /// `s_lastcheck`, seconds since 1970.
    pub lastcheck: U32,
    /// `s_checkinterval`, seconds.
    pub checkinterval: U32,
    /// `s_creator_os`: 0 Linux, 1 Hurd.
    pub creator_os: U32,
    /// `s_rev_level`: 0 without, 1 with the fields from `first_ino` on.
    pub rev_level: U32,
    /// `s_def_resuid`, who may use reserved blocks.
    pub def_resuid: U16,
    /// `s_def_resgid`.
    pub def_resgid: U16,
    /// `s_first_ino`, first inode that is not reserved.
    pub first_ino: U32,
    /// `s_inode_size`, bytes.
    pub inode_size: U16,
    /// `s_block_group_nr`, group in which this copy lies.
    pub block_group_nr: U16,
    /// `s_feature_compat`.
    pub feature_compat: U32,
    /// `s_feature_incompat`.
    pub feature_incompat: U32,
    /// `s_feature_ro_compat`.
    pub feature_ro_compat: U32,
    /// `s_uuid`.
    pub uuid: [u8; 16],
    /// `s_volume_name`, padded with zeroes.
    pub volume_name: [u8; 16],
    /// `s_last_mounted`, a path, padded with zeroes.
    pub last_mounted: [u8; 64],
    /// `s_algorithm_usage_bitmap`, unused.
    pub algorithm_usage_bitmap: U32,
    /// `s_prealloc_blocks`, unused.
    pub prealloc_blocks: u8,
    /// `s_prealloc_dir_blocks`, unused.
    pub prealloc_dir_blocks: u8,
    /// `s_reserved_gdt_blocks`, kept free after the descriptors for growth.
    pub reserved_gdt_blocks: U16,
    /// `s_journal_uuid`, of an external journal.
    pub journal_uuid: [u8; 16],
    /// `s_journal_inum`, inode of the journal.
    pub journal_inum: U32,
    /// `s_journal_dev`, of an external journal.
    pub journal_dev: U32,
    /// `s_last_orphan`, head of the chain of orphans.
    pub last_orphan: U32,
    /// `s_hash_seed` of directory hashes.
    pub hash_seed: [U32; 4],
    /// `s_def_hash_version`, see `htree`.
    pub def_hash_version: u8,
    /// `s_jnl_backup_type`: 1 when `jnl_blocks` is a copy of the journal inode's map.
    pub jnl_backup_type: u8,
    /// `s_desc_size`, bytes; used with 64BIT only.
    pub desc_size: U16,
    /// `s_default_mount_opts`.
    pub default_mount_opts: U32,
    /// `s_first_meta_bg`.
    pub first_meta_bg: U32,
    /// `s_mkfs_time`, seconds since 1970.
    pub mkfs_time: U32,
    /// `s_jnl_blocks`: the journal inode's 15 block words, then high and low half of its size.
    pub jnl_blocks: [U32; 17],
    /// `s_blocks_count_hi`.
    pub blocks_count_hi: U32,
    /// `s_r_blocks_count_hi`.
    pub r_blocks_count_hi: U32,
    /// `s_free_blocks_count_hi`.
    pub free_blocks_count_hi: U32,
    /// `s_min_extra_isize`, bytes that every inode has beyond 128.
    pub min_extra_isize: U16,
    /// `s_want_extra_isize`, bytes that a new inode gets beyond 128.
    pub want_extra_isize: U16,
    /// `s_flags`, see [`Self::FLAG_SIGNED_HASH`].
    pub flags: U32,
    /// `s_raid_stride`, blocks.
    pub raid_stride: U16,
    /// `s_mmp_update_interval`, seconds.
    pub mmp_update_interval: U16,
    /// `s_mmp_block`.
    pub mmp_block: U64,
    /// `s_raid_stripe_width`, blocks.
    pub raid_stripe_width: U32,
    /// `s_log_groups_per_flex`: `1 << log` groups share their metadata's place.
    pub log_groups_per_flex: u8,
    /// `s_checksum_type`: 1 is CRC-32C.
    pub checksum_type: u8,
    /// `s_encryption_level`.
    pub encryption_level: u8,
    /// `s_reserved_pad`.
    pub reserved_pad: u8,
    /// `s_kbytes_written`, ever, in KiB.
    pub kbytes_written: U64,
    /// `s_snapshot_inum`, unused.
    pub snapshot_inum: U32,
    /// `s_snapshot_id`, unused.
    pub snapshot_id: U32,
    /// `s_snapshot_r_blocks_count`, unused.
    pub snapshot_r_blocks_count: U64,
    /// `s_snapshot_list`, unused.
    pub snapshot_list: U32,
    /// `s_error_count`, errors seen.
    pub error_count: U32,
    /// `s_first_error_time`, seconds since 1970.
    pub first_error_time: U32,
    /// `s_first_error_ino`.
    pub first_error_ino: U32,
    /// `s_first_error_block`.
    pub first_error_block: U64,
    /// `s_first_error_func`.
    pub first_error_func: [u8; 32],
    /// `s_first_error_line`.
    pub first_error_line: U32,
    /// `s_last_error_time`, seconds since 1970.
    pub last_error_time: U32,
    /// `s_last_error_ino`.
    pub last_error_ino: U32,
    /// `s_last_error_line`.
    pub last_error_line: U32,
    /// `s_last_error_block`.
    pub last_error_block: U64,
    /// `s_last_error_func`.
    pub last_error_func: [u8; 32],
    /// `s_mount_opts`, text.
    pub mount_opts: [u8; 64],
    /// `s_usr_quota_inum`.
    pub usr_quota_inum: U32,
    /// `s_grp_quota_inum`.
    pub grp_quota_inum: U32,
    /// `s_overhead_clusters`, blocks of metadata, as `statfs` subtracts them.
    pub overhead_clusters: U32,
    /// `s_backup_bgs`, groups of the two backups of sparse_super2.
    pub backup_bgs: [U32; 2],
    /// `s_encrypt_algos`.
    pub encrypt_algos: [u8; 4],
    /// `s_encrypt_pw_salt`.
    pub encrypt_pw_salt: [u8; 16],
    /// `s_lpf_ino`, lost+found.
    pub lpf_ino: U32,
    /// `s_prj_quota_inum`.
    pub prj_quota_inum: U32,
    /// `s_checksum_seed`, with CSUM_SEED.
    pub checksum_seed: U32,
    /// `s_wtime_hi`, bits 32 to 39 of `wtime`; the next five likewise.
    pub wtime_hi: u8,
    /// `s_mtime_hi`.
    pub mtime_hi: u8,
    /// `s_mkfs_time_hi`.
    pub mkfs_time_hi: u8,
    /// `s_lastcheck_hi`.
    pub lastcheck_hi: u8,
    /// `s_first_error_time_hi`.
    pub first_error_time_hi: u8,
    /// `s_last_error_time_hi`.
    pub last_error_time_hi: u8,
    /// `s_first_error_errcode`.
    pub first_error_errcode: u8,
    /// `s_last_error_errcode`.
    pub last_error_errcode: u8,
    /// `s_encoding` of file names, with casefold.
    pub encoding: U16,
    /// `s_encoding_flags`.
    pub encoding_flags: U16,
    /// `s_orphan_file_inum`, with orphan_file.
    pub orphan_file_inum: U32,
    /// `s_reserved`.
    pub reserved: [U32; 94],
    /// `s_checksum`, CRC-32C of all bytes before it.
    pub checksum: U32,
}
const _: () = assert!(size_of::<SuperBlock>() == SuperBlock::BYTES);
const _: () = assert!(offset_of!(SuperBlock, magic) == 0x38);
const _: () = assert!(offset_of!(SuperBlock, first_ino) == 0x54);
const _: () = assert!(offset_of!(SuperBlock, feature_incompat) == 0x60);
const _: () = assert!(offset_of!(SuperBlock, uuid) == 0x68);
const _: () = assert!(offset_of!(SuperBlock, journal_uuid) == 0xD0);
const _: () = assert!(offset_of!(SuperBlock, hash_seed) == 0xEC);
const _: () = assert!(offset_of!(SuperBlock, default_mount_opts) == 0x100);
const _: () = assert!(offset_of!(SuperBlock, blocks_count_hi) == 0x150);
const _: () = assert!(offset_of!(SuperBlock, kbytes_written) == 0x178);
const _: () = assert!(offset_of!(SuperBlock, error_count) == 0x194);
const _: () = assert!(offset_of!(SuperBlock, mount_opts) == 0x200);
const _: () = assert!(offset_of!(SuperBlock, checksum_seed) == 0x270);
const _: () = assert!(offset_of!(SuperBlock, orphan_file_inum) == 0x280);
const _: () = assert!(offset_of!(SuperBlock, checksum) == 0x3FC);

impl SuperBlock {
    /// Its size in bytes.
    pub const BYTES: usize = 1024;
    /// Byte address of the first copy on the device, whatever the block size.
    pub const AT: u64 = 1024;
    /// `EXT4_SUPER_MAGIC`.
    pub const MAGIC: u16 = 0xEF53;
    /// `EXT4_VALID_FS` in `state`: cleanly unmounted.
    pub const STATE_VALID: u16 = 1;
    /// `EXT4_ERROR_FS` in `state`: errors were seen; a check is due.
    pub const STATE_ERROR: u16 = 2;
    /// `EXT4_ORPHAN_FS` in `state`: orphans are being cleaned up.
    pub const STATE_ORPHANS: u16 = 4;
    /// `EXT2_FLAGS_SIGNED_HASH` in `flags`: names are hashed as signed characters.
    pub const FLAG_SIGNED_HASH: u32 = 1;
    /// `EXT2_FLAGS_UNSIGNED_HASH` in `flags`.
    pub const FLAG_UNSIGNED_HASH: u32 = 2;
    /// `EXT4_CRC32C_CHKSUM` in `checksum_type`.
    pub const CHECKSUM_CRC32C: u8 = 1;
    /// The largest `log_block_size` that the format allows (64 KiB).
    pub const LOG_BLOCK_SIZE_MAX: u32 = 6;

    /// All zero.
    pub fn zeroed() -> SuperBlock {
        SuperBlock::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// A copy of the first 1024 of `bytes`. `None` if there are fewer.
    pub fn load(bytes: &[u8]) -> Option<SuperBlock> {
        SuperBlock::read_from_prefix(bytes).ok().map(|(sb, _)| sb)
    }

    /// Has it all `bits` of [`compat`]?
    pub fn has_compat(&self, bits: u32) -> bool {
        self.feature_compat.get() & bits == bits
    }

    /// Has it all `bits` of [`incompat`]?
    pub fn has_incompat(&self, bits: u32) -> bool {
        self.feature_incompat.get() & bits == bits
    }

    /// Has it all `bits` of [`ro_compat`]?
    pub fn has_ro_compat(&self, bits: u32) -> bool {
        self.feature_ro_compat.get() & bits == bits
    }

    /// Does every structure carry a CRC-32C?
    pub fn has_metadata_csum(&self) -> bool {
        self.has_ro_compat(ro_compat::METADATA_CSUM)
    }

    /// Do descriptors have a checksum, and flags that tell what is uninitialised?
    pub fn has_group_desc_csum(&self) -> bool {
        self.has_metadata_csum() || self.has_ro_compat(ro_compat::GDT_CSUM)
    }

    /// Is a journal inside the file system?
    pub fn has_internal_journal(&self) -> bool {
        self.has_compat(compat::HAS_JOURNAL) && self.journal_inum.get() != 0
    }

    /// Blocks on the device that belong to the file system.
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.blocks_count_lo, self.blocks_count_hi)
    }

    /// Blocks that only root may use.
    pub fn r_blocks_count(&self) -> u64 {
        self.wide(self.r_blocks_count_lo, self.r_blocks_count_hi)
    }

    /// Free blocks as of the last clean unmount.
    pub fn free_blocks_count(&self) -> u64 {
        self.wide(self.free_blocks_count_lo, self.free_blocks_count_hi)
    }

    /// Sets both halves of `free_blocks_count`.
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.free_blocks_count_lo = lo32(blocks).into();
        self.free_blocks_count_hi = hi32(blocks).into();
    }

    /// The high half counts with 64BIT only: without, those bytes may hold anything.
    fn wide(&self, lo: U32, hi: U32) -> u64 {
        let hi = if self.has_incompat(incompat::BIT64) { u64::from(hi.get()) << 32 } else { 0 };
        hi | u64::from(lo.get())
    }

    /// Block size; `None` if the field is beyond what the format allows.
    pub fn block_size(&self) -> Option<BlockSize> {
        let log = self.log_block_size.get();
        if log > Self::LOG_BLOCK_SIZE_MAX { None } else { BlockSize::new(1024 << log) }
    }

    /// Bytes in an inode.
    pub fn inode_bytes(&self) -> u16 {
        if self.rev_level.get() == 0 { 128 } else { self.inode_size.get() }
    }

    /// First inode that is not reserved.
    pub fn first_inode(&self) -> u32 {
        if self.rev_level.get() == 0 { super::ino::GOOD_OLD_FIRST } else { self.first_ino.get() }
    }

    /// Bytes in a group descriptor.
    pub fn desc_bytes(&self) -> u16 {
        if self.has_incompat(incompat::BIT64) { self.desc_size.get() } else { 32 }
    }

    /// Is it a super block at all? `at` is where it was read, for the answer.
    ///
    /// Checks the magic number, that no revision beyond 1 is meant, and the checksum where there is
    /// one. What the fields together describe is checked by [`super::Geometry::from_super`].
    pub fn verify(&self, at: u64) -> Result<(), Corruption> {
        let wrong = |field, found, expected: &str| {
            Err(Corruption {
                structure: "ext4 super block",
                field,
                at,
                found,
                expected: expected.to_owned(),
            })
        };
        if self.magic.get() != Self::MAGIC {
            return wrong("s_magic", u64::from(self.magic.get()), "0xef53");
        }
        if self.rev_level.get() > 1 {
            return wrong("s_rev_level", u64::from(self.rev_level.get()), "0 or 1");
        }
        if self.has_metadata_csum() {
            if self.checksum_type != Self::CHECKSUM_CRC32C {
                return wrong("s_checksum_type", u64::from(self.checksum_type), "1 (crc32c)");
            }
            let right = super::Checksums::super_block(self);
            if self.checksum.get() != right {
                let expected = format!("{right:#x}");
                return wrong("s_checksum", u64::from(self.checksum.get()), &expected);
            }
        }
        Ok(())
    }
}
