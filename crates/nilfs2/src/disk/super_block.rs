//! The super block: at byte 1024, and again in the last 4 KiB of the device.

use std::mem::offset_of;

use wp_base::Corruption;
use wp_base::crc::crc32_le;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::wide;

/// Bits of `s_state`.
pub mod state {
    /// `NILFS_VALID_FS`: unmounted in order.
    pub const VALID: u16 = 1;
    /// `NILFS_ERROR_FS`: errors were seen.
    pub const ERROR: u16 = 2;
    /// `NILFS_RESIZE_FS`: a resize was begun.
    pub const RESIZE: u16 = 4;
}

/// Bits of `s_feature_compat_ro`.
pub mod feature_ro {
    /// `NILFS_FEATURE_COMPAT_RO_BLOCK_COUNT`: checkpoints count blocks and inodes.
    pub const BLOCK_COUNT: u64 = 1;
}

/// The super block. `struct nilfs_super_block`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SuperBlock {
    /// `s_rev_level`, major revision: 2.
    pub rev_level: U32,
    /// `s_minor_rev_level`: 0.
    pub minor_rev_level: U16,
    /// `s_magic`, always [`Self::MAGIC`].
    pub magic: U16,
    /// `s_bytes` that the checksum covers.
    pub bytes: U16,
    /// `s_flags`, unused.
    pub flags: U16,
    /// `s_crc_seed`, of every checksum of the file system.
    pub crc_seed: U32,
    /// `s_sum`, checksum; counts as zero itself.
    pub sum: U32,
    /// `s_log_block_size`: a block has `1 << (10 + log)` bytes.
    pub log_block_size: U32,
    /// `s_nsegments`, segments.
    pub nsegments: U64,
    /// `s_dev_size`, bytes of the device.
    pub dev_size: U64,
    /// `s_first_data_block`, first block of segment 0.
    pub first_data_block: U64,
    /// `s_blocks_per_segment`.
    pub blocks_per_segment: U32,
    /// `s_r_segments_percentage`, kept free for the cleaner.
    pub r_segments_percentage: U32,
    /// `s_last_cno`, checkpoint of the log that `last_pseg` names.
    pub last_cno: U64,
    /// `s_last_pseg`, first block of a log with a super root.
    pub last_pseg: U64,
    /// `s_last_seq`, sequence number of that log.
    pub last_seq: U64,
    /// `s_free_blocks_count`.
    pub free_blocks_count: U64,
    /// `s_ctime`, when the file system was made, in seconds since 1970.
    pub ctime: U64,
    /// `s_mtime`, last mount.
    pub mtime: U64,
    /// `s_wtime`, last write of the super block.
    pub wtime: U64,
    /// `s_mnt_count`, mounts.
    pub mnt_count: U16,
    /// `s_max_mnt_count`.
    pub max_mnt_count: U16,
    /// `s_state`, see [`state`].
    pub state: U16,
    /// `s_errors`, what to do on errors.
    pub errors: U16,
    /// `s_lastcheck`.
    pub lastcheck: U64,
    /// `s_checkinterval`, seconds.
    pub checkinterval: U32,
    /// `s_creator_os`, 0: Linux.
    pub creator_os: U32,
    /// `s_def_resuid`.
    pub def_resuid: U16,
    /// `s_def_resgid`.
    pub def_resgid: U16,
    /// `s_first_ino`, first inode of users.
    pub first_ino: U32,
    /// `s_inode_size`, bytes.
    pub inode_size: U16,
    /// `s_dat_entry_size`, bytes.
    pub dat_entry_size: U16,
    /// `s_checkpoint_size`, bytes.
    pub checkpoint_size: U16,
    /// `s_segment_usage_size`, bytes.
    pub segment_usage_size: U16,
    /// `s_uuid`.
    pub uuid: [u8; 16],
    /// `s_volume_name`.
    pub volume_name: [u8; 80],
    /// `s_c_interval`, seconds between logs; 0: the default.
    pub c_interval: U32,
    /// `s_c_block_max`, dirty blocks that start a log; 0: the default.
    pub c_block_max: U32,
    /// `s_feature_compat`.
    pub feature_compat: U64,
    /// `s_feature_compat_ro`, see [`feature_ro`].
    pub feature_compat_ro: U64,
    /// `s_feature_incompat`.
    pub feature_incompat: U64,
    /// `s_reserved`.
    pub reserved: [U32; 186],
}
const _: () = assert!(size_of::<SuperBlock>() == SuperBlock::SPACE);
const _: () = assert!(offset_of!(SuperBlock, sum) == 0x10);
const _: () = assert!(offset_of!(SuperBlock, last_cno) == 0x38);
const _: () = assert!(offset_of!(SuperBlock, mnt_count) == 0x70);
const _: () = assert!(offset_of!(SuperBlock, inode_size) == 0x90);
const _: () = assert!(offset_of!(SuperBlock, uuid) == 0x98);
const _: () = assert!(offset_of!(SuperBlock, reserved) == SuperBlock::BYTES);

impl SuperBlock {
    /// Room that it has.
    pub const SPACE: usize = 1024;
    /// Bytes that are checked in those that Linux makes. `NILFS_SB_BYTES`.
    pub const BYTES: usize = 0x118;
    /// Byte address of the first copy. `NILFS_SB_OFFSET_BYTES`.
    pub const AT: u64 = 1024;
    /// `NILFS_SUPER_MAGIC`.
    pub const MAGIC: u16 = 0x3434;
    /// Smallest block, in bytes.
    pub const BLOCK_BYTES_MIN: u32 = 1024;
    /// Largest `s_log_block_size`: 64 KiB.
    pub const LOG_BLOCK_SIZE_MAX: u32 = 6;
    /// `NILFS_SEG_MIN_BLOCKS`.
    pub const SEGMENT_BLOCKS_MIN: u32 = 16;
    /// Revision that there is.
    pub const REVISION: u32 = 2;

    /// Do both copies say the same of the file system, apart from what changes as it is used?
    pub fn is_copy_of(&self, other: &SuperBlock) -> bool {
        let mut same = *self;
        (same.sum, same.state, same.errors) = (other.sum, other.state, other.errors);
        (same.last_cno, same.last_pseg) = (other.last_cno, other.last_pseg);
        (same.last_seq, same.free_blocks_count) = (other.last_seq, other.free_blocks_count);
        (same.mtime, same.wtime, same.lastcheck) = (other.mtime, other.wtime, other.lastcheck);
        same.mnt_count = other.mnt_count;
        same.as_bytes() == other.as_bytes()
    }

    /// Byte address of the second copy on a device of `device_bytes` bytes.
    /// `NILFS_SB2_OFFSET_BYTES`.
    pub const fn second_at(device_bytes: u64) -> u64 {
        (device_bytes >> 12).saturating_sub(1) << 12
    }

    /// All zero.
    pub fn zeroed() -> SuperBlock {
        SuperBlock::read_from_bytes(&[0; Self::SPACE]).expect("the size is right")
    }

    /// What its checksum has to be; `None` if it cannot have one.
    pub fn right_sum(&self) -> Option<u32> {
        let at = offset_of!(SuperBlock, sum);
        let covered = self.as_bytes().get(..usize::from(self.bytes.get()))?;
        let (before, rest) = covered.split_at_checked(at)?;
        let seed = self.crc_seed.get();
        Some(crc32_le(crc32_le(crc32_le(seed, before), &[0; 4]), rest.get(4..)?))
    }

    /// Sets its checksum.
    pub fn seal(&mut self) {
        self.bytes = super::lo16(wide(Self::BYTES)).into();
        self.sum = self.right_sum().unwrap_or(0).into();
    }

    /// Checks magic and checksum. `at`: byte address of the copy, for the error.
    ///
    /// Source: `nilfs_valid_sb`.
    pub fn verify(&self, at: u64) -> Result<(), Corruption> {
        let wrong = |field, found: u64, expected: String| {
            Err(Corruption { structure: "nilfs2 super block", field, at, found, expected })
        };
        if self.magic.get() != Self::MAGIC {
            return wrong("s_magic", self.magic.get().into(), format!("{:#x}", Self::MAGIC));
        }
        match self.right_sum() {
            Some(right) if right == self.sum.get() => Ok(()),
            Some(right) => wrong("s_sum", self.sum.get().into(), format!("{right:#x}")),
            None => wrong("s_bytes", self.bytes.get().into(), "20 to 1024".to_owned()),
        }
    }

    /// Has it magic and revision of one, whatever else is wrong?
    pub fn has_magic(&self) -> bool {
        self.magic.get() == Self::MAGIC && self.rev_level.get() == Self::REVISION
    }

    /// Does the second copy, at byte `second_at`, lie within a segment by what this copy says?
    /// Then that is none. `nilfs_sb2_bad_offset`.
    pub fn overlaps(&self, second_at: u64) -> bool {
        let (per_segment, log) = (self.blocks_per_segment.get(), self.log_block_size.get());
        if per_segment < Self::SEGMENT_BLOCKS_MIN || log > Self::LOG_BLOCK_SIZE_MAX {
            return true;
        }
        (second_at >> (10 + log)) / u64::from(per_segment) < self.nsegments.get()
    }
}
