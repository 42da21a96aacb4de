//! How segments are used, and the head of the file that says so.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Head of the file. `struct nilfs_sufile_header`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct UsageHeader {
    /// `sh_ncleansegs`, segments that are free.
    pub ncleansegs: U64,
    /// `sh_ndirtysegs`, segments in use.
    pub ndirtysegs: U64,
    /// `sh_last_alloc`, the segment that was given out last.
    pub last_alloc: U64,
}

/// Bytes of the head.
pub const HEADER_BYTES: usize = size_of::<UsageHeader>();
const _: () = assert!(HEADER_BYTES == 24);

/// One segment. `struct nilfs_segment_usage`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SegmentUsage {
    /// `su_lastmod`, when it was written last, in seconds since 1970.
    pub lastmod: U64,
    /// `su_nblocks`, blocks from its start on that logs take.
    pub nblocks: U32,
    /// `su_flags`, see [`flag`]; 0: free.
    pub flags: U32,
}
const _: () = assert!(size_of::<SegmentUsage>() == 16);

/// Bits of `su_flags`.
pub mod flag {
    /// `NILFS_SEGMENT_USAGE_ACTIVE`: logs go on here; never on the medium.
    pub const ACTIVE: u32 = 1;
    /// `NILFS_SEGMENT_USAGE_DIRTY`: in use.
    pub const DIRTY: u32 = 2;
    /// `NILFS_SEGMENT_USAGE_ERROR`: could not be written.
    pub const ERROR: u32 = 4;
}

impl SegmentUsage {
    /// Is it free?
    pub fn is_clean(&self) -> bool {
        self.flags.get() == 0
    }
    /// Is it in use?
    pub fn is_dirty(&self) -> bool {
        self.flags.get() & flag::DIRTY != 0
    }
    /// Was there an error?
    pub fn is_bad(&self) -> bool {
        self.flags.get() & flag::ERROR != 0
    }
}
