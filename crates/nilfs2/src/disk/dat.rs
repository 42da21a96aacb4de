//! Entries of the DAT: where a virtual block number lies, and which checkpoints see it.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One entry. `struct nilfs_dat_entry`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DatEntry {
    /// `de_blocknr`, its block; 0: none was assigned yet.
    pub blocknr: U64,
    /// `de_start`, the first checkpoint that sees it.
    pub start: U64,
    /// `de_end`, the first that does not see it any more; [`Self::LIVE`]: the newest does.
    pub end: U64,
    /// `de_rsv`.
    pub rsv: U64,
}
const _: () = assert!(size_of::<DatEntry>() == 32);

impl DatEntry {
    /// `NILFS_CNO_MAX`: no end yet.
    pub const LIVE: u64 = u64::MAX;
    /// `NILFS_CNO_MIN`, where the lives of new and of freed numbers start.
    pub const FIRST: u64 = 1;
}
