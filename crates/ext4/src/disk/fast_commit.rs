//! Records of the journal's fast-commit area: a tag, a length, a value; little-endian, unlike the
//! journal.

use std::mem::offset_of;

use wp_base::crc::crc32c;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What precedes a value. `struct ext4_fc_tl`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TagLength {
    /// `fc_tag`, see [`tag`].
    pub tag: U16,
    /// `fc_len`, bytes of the value.
    pub len: U16,
}
const _: () = assert!(size_of::<TagLength>() == 4);

/// Value of a [`tag::HEAD`]. `struct ext4_fc_head`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Head {
    /// `fc_features`, none is known.
    pub features: U32,
    /// `fc_tid`, the transaction whose place these records take.
    pub tid: U32,
}
const _: () = assert!(size_of::<Head>() == 8);

/// Value of a [`tag::TAIL`], which ends a fast commit. `struct ext4_fc_tail`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Tail {
    /// `fc_tid`.
    pub tid: U32,
    /// `fc_crc`, of all records since the previous tail, this one's first bytes included.
    pub crc: U32,
}
const _: () = assert!(size_of::<Tail>() == 8);
const _: () = assert!(offset_of!(Tail, crc) == 4);

/// Values of `fc_tag`.
pub mod tag {
    /// `EXT4_FC_TAG_ADD_RANGE`, the first of the records that change something.
    pub const ADD_RANGE: u16 = 1;
    /// `EXT4_FC_TAG_PAD`, the last tag between head and tail.
    pub const PAD: u16 = 7;
    /// `EXT4_FC_TAG_TAIL`.
    pub const TAIL: u16 = 8;
    /// `EXT4_FC_TAG_HEAD`.
    pub const HEAD: u16 = 9;
}

/// Do the area's blocks, in order, hold a whole fast commit on top of transaction `tid`, so that a
/// kernel would replay it? Source: `ext4_fc_replay_scan`.
pub fn holds_commit<'a>(blocks: impl IntoIterator<Item = &'a [u8]>, tid: u32) -> bool {
    let mut crc = 0u32;
    for (n, block) in blocks.into_iter().enumerate() {
        let mut rest = block;
        while let Ok((head, after)) = TagLength::read_from_prefix(rest) {
            let len = usize::from(head.len.get());
            let Some(value) = after.get(..len) else { return false };
            let is_first = n == 0 && rest.len() == block.len();
            let kind = head.tag.get();
            if is_first && kind != tag::HEAD {
                return false;
            }
            crc = crc32c(crc, head.as_bytes());
            match kind {
                tag::HEAD => match Head::read_from_prefix(value) {
                    Ok((h, _)) if h.tid.get() == tid => crc = crc32c(crc, value),
                    _ => return false,
                },
                tag::TAIL => {
                    let Ok((t, _)) = Tail::read_from_prefix(value) else { return false };
                    return t.tid.get() == tid && t.crc.get() == crc32c(crc, t.tid.as_bytes());
                }
                tag::ADD_RANGE..=tag::PAD => crc = crc32c(crc, value),
                _ => return false,
            }
            rest = after.get(len..).unwrap_or(&[]);
        }
    }
    false
}
