//! The block of multiple-mount protection: who has the file system.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The structure at the start of the block. `struct mmp_struct`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Mmp {
    /// `mmp_magic`, always [`Self::MAGIC`].
    pub magic: U32,
    /// `mmp_seq`: a number that whoever mounts it changes every few seconds, or a state.
    pub seq: U32,
    /// `mmp_time`, seconds since 1970; for people.
    pub time: U64,
    /// `mmp_nodename`, the host; for people.
    pub nodename: [u8; 64],
    /// `mmp_bdevname`, the device; for people.
    pub bdevname: [u8; 32],
    /// `mmp_check_interval`, seconds.
    pub check_interval: U16,
    /// `mmp_pad1` and `mmp_pad2`.
    pub pad: [u8; 906],
    /// `mmp_checksum` of all before it, from the file system's seed.
    pub checksum: U32,
}
const _: () = assert!(size_of::<Mmp>() == 1024);

impl Mmp {
    /// `EXT4_MMP_MAGIC`.
    pub const MAGIC: u32 = 0x004D_4D50;
    /// `EXT4_MMP_SEQ_FSCK`: e2fsck has it, or had when it ended early.
    pub const SEQ_FSCK: u32 = 0xE24D_4D50;

    /// That of a block; `None` if the block is shorter.
    pub fn load(block: &[u8]) -> Option<Mmp> {
        Mmp::read_from_prefix(block).ok().map(|(mmp, _)| mmp)
    }

    /// What the checksum covers.
    pub fn summed(&self) -> &[u8] {
        let bytes = self.as_bytes();
        bytes.get(..bytes.len() - size_of::<U32>()).unwrap_or(&[])
    }
}
