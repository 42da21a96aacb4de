//! Checkpoints, and the head of the file that holds them.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Inode;

/// Neighbours in the list of snapshots. `struct nilfs_snapshot_list`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SnapshotList {
    /// `ssl_next`, the next older snapshot's number, 0: none.
    pub next: U64,
    /// `ssl_prev`, the next newer one's.
    pub prev: U64,
}

/// Head of the file. `struct nilfs_cpfile_header`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CheckpointHeader {
    /// `ch_ncheckpoints`, valid checkpoints.
    pub ncheckpoints: U64,
    /// `ch_nsnapshots`, those of them that are snapshots.
    pub nsnapshots: U64,
    /// `ch_snapshot_list`: `prev` is the newest snapshot, `next` the oldest.
    pub snapshot_list: SnapshotList,
}

/// Bytes of the head.
pub const HEADER_BYTES: usize = size_of::<CheckpointHeader>();
const _: () = assert!(HEADER_BYTES == 32);

/// One checkpoint. `struct nilfs_checkpoint`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Checkpoint {
    /// `cp_flags`, see [`flag`].
    pub flags: U32,
    /// `cp_checkpoints_count`, valid ones in this block; in the first entry of a block but the
    /// file's first.
    pub checkpoints_count: U32,
    /// `cp_snapshot_list`.
    pub snapshot_list: SnapshotList,
    /// `cp_cno`, its number.
    pub cno: U64,
    /// `cp_create`, when it was made, in seconds since 1970.
    pub create: U64,
    /// `cp_nblk_inc`, blocks of the log that made it.
    pub nblk_inc: U64,
    /// `cp_inodes_count`.
    pub inodes_count: U64,
    /// `cp_blocks_count`, of all files and of the inode file.
    pub blocks_count: U64,
    /// `cp_ifile_inode`: the inode of the inode file.
    pub ifile_inode: Inode,
}
const _: () = assert!(size_of::<Checkpoint>() == 192);
const _: () = assert!(offset_of!(Checkpoint, ifile_inode) == 64);

/// Bits of `cp_flags`.
pub mod flag {
    /// `NILFS_CHECKPOINT_SNAPSHOT`: never removed by the cleaner.
    pub const SNAPSHOT: u32 = 1;
    /// `NILFS_CHECKPOINT_INVALID`: there is none of this number.
    pub const INVALID: u32 = 2;
    /// `NILFS_CHECKPOINT_SKETCH`, unused.
    pub const SKETCH: u32 = 4;
    /// `NILFS_CHECKPOINT_MINOR`: no file of users changed.
    pub const MINOR: u32 = 8;
}

impl Checkpoint {
    /// Is there one of this number?
    pub fn is_valid(&self) -> bool {
        self.flags.get() & flag::INVALID == 0
    }
    /// Is it a snapshot?
    pub fn is_snapshot(&self) -> bool {
        self.flags.get() & flag::SNAPSHOT != 0
    }
}
