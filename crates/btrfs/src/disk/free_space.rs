//! The free-space tree: for each block group, what is free in it.
//!
//! Picture:    FREE_SPACE_INFO, then either FREE_SPACE_EXTENTs or FREE_SPACE_BITMAPs.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How the free space of a block group is kept. `struct btrfs_free_space_info`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FreeSpaceInfo {
    /// `extent_count`, runs that are free, also where bitmaps say so.
    pub extent_count: U32,
    /// `flags`, see [`USING_BITMAPS`].
    pub flags: U32,
}
const _: () = assert!(size_of::<FreeSpaceInfo>() == 8);

/// Bit of `flags`: bitmaps, not extents. `BTRFS_FREE_SPACE_USING_BITMAPS`.
pub const USING_BITMAPS: u32 = 1;

/// Bytes of a bitmap. `BTRFS_FREE_SPACE_BITMAP_SIZE`.
pub const BITMAP_BYTES: usize = 256;

/// Addresses that a bitmap covers, with this sector size. `free_space_bitmap_size`.
pub const fn bitmap_covers(sector_bytes: u32) -> u64 {
    super::wide(BITMAP_BYTES * 8 * super::at32(sector_bytes))
}

/// Is the sector with this index free in a bitmap? Bit 0 of byte 0 is the first.
pub fn is_set(bitmap: &[u8], n: usize) -> bool {
    bitmap.get(n / 8).is_some_and(|byte| byte & (1 << (n % 8)) != 0)
}

/// Marks `count` sectors from index `from` on as free, or not.
pub fn set(bitmap: &mut [u8], from: usize, count: usize, is_free: bool) {
    for n in from..from + count {
        if let Some(byte) = bitmap.get_mut(n / 8) {
            if is_free {
                *byte |= 1 << (n % 8);
            } else {
                *byte &= !(1 << (n % 8));
            }
        }
    }
}
