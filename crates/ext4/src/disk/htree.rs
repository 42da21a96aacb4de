//! Hash trees of directories, hidden in blocks that read as directory blocks without names.
//!
//! Picture:    block 0 = ".", ".." (up to the block's end), and inside "..": [`DxRootInfo`], then
//!             entries; other inner blocks = one free entry as long as the block, then entries.
//!             The first entry's hash is [`DxCountLimit`] instead; then come `limit - 1` entries,
//!             and with metadata_csum [`DxTail`].
//! Source:     Linux Documentation/filesystems/ext4/directory.rst.

use std::mem::offset_of;

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::dir::DirEntryHeader;
use super::wide;

/// `struct dx_root_info`, at byte 24 of block 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DxRootInfo {
    /// `reserved_zero`.
    pub reserved_zero: U32,
    /// `hash_version`, see [`hash_version`]; never an unsigned one.
    pub hash_version: u8,
    /// `info_length`, always 8.
    pub info_length: u8,
    /// `indirect_levels` below the root: 0 or 1, with large_dir 2.
    pub indirect_levels: u8,
    /// `unused_flags`.
    pub unused_flags: u8,
}
const _: () = assert!(size_of::<DxRootInfo>() == 8);

/// `struct dx_entry`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DxEntry {
    /// `hash`, lowest in the child; bit 0 says that the hash value goes on from the child before.
    pub hash: U32,
    /// `block`, logical block of the child; the upper 4 bits are reserved.
    pub block: U32,
}
const _: () = assert!(size_of::<DxEntry>() == ENTRY_BYTES);

/// `struct dx_countlimit`, in place of the first entry's hash.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DxCountLimit {
    /// `limit`, entries that fit, the first one included.
    pub limit: U16,
    /// `count`, entries in use, the first one included.
    pub count: U16,
}
const _: () = assert!(size_of::<DxCountLimit>() == 4);

/// `struct dx_tail`, after `limit` entries.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DxTail {
    /// `dt_reserved`.
    pub reserved: U32,
    /// `dt_checksum`, of the block up to the last entry in use, and of `reserved`.
    pub checksum: U32,
}
const _: () = assert!(size_of::<DxTail>() == TAIL_BYTES);
const _: () = assert!(offset_of!(DxTail, checksum) == 4);

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 8;
/// Bytes of the tail.
pub const TAIL_BYTES: usize = 8;
/// Where [`DxRootInfo`] lies in block 0: after the entries "." and "..".
pub const ROOT_INFO_AT: usize = 24;
/// Where the entries of block 0 start, [`DxCountLimit`] first.
pub const ROOT_ENTRIES_AT: usize = ROOT_INFO_AT + size_of::<DxRootInfo>();
/// Where the entries of another inner block start.
pub const NODE_ENTRIES_AT: usize = size_of::<DirEntryHeader>();
/// Mask of the block number in an entry.
pub const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// Values of `hash_version` and of the super block's `s_def_hash_version`.
pub mod hash_version {
    /// `DX_HASH_LEGACY`.
    pub const LEGACY: u8 = 0;
    /// `DX_HASH_HALF_MD4`.
    pub const HALF_MD4: u8 = 1;
    /// `DX_HASH_TEA`.
    pub const TEA: u8 = 2;
    /// `DX_HASH_LEGACY_UNSIGNED`; this and the next two are never on disk.
    pub const LEGACY_UNSIGNED: u8 = 3;
    /// `DX_HASH_HALF_MD4_UNSIGNED`.
    pub const HALF_MD4_UNSIGNED: u8 = 4;
    /// `DX_HASH_TEA_UNSIGNED`.
    pub const TEA_UNSIGNED: u8 = 5;
    /// `DX_HASH_SIPHASH`.
    pub const SIPHASH: u8 = 6;
}

/// Where the entries of an inner block start; `None` if the block does not look like one.
///
/// Source: `get_dx_countlimit`.
pub fn entries_at(block: &[u8]) -> Option<usize> {
    let (first, _) = DirEntryHeader::read_from_prefix(block).ok()?;
    let len = super::dir::rec_len_load(first.rec_len.get(), block.len());
    if len == block.len() {
        return (first.inode.get() == 0).then_some(NODE_ENTRIES_AT);
    }
    if len != 12 {
        return None;
    }
    let (second, _) = DirEntryHeader::read_from_prefix(block.get(12..)?).ok()?;
    let (info, _) = DxRootInfo::read_from_prefix(block.get(ROOT_INFO_AT..)?).ok()?;
    let is_root = super::dir::rec_len_load(second.rec_len.get(), block.len()) == block.len() - 12
        && info.reserved_zero.get() == 0
        && info.info_length == 8;
    is_root.then_some(ROOT_ENTRIES_AT)
}

/// Most entries of an inner block of `block_bytes` whose entries start at `entries_at`.
pub fn limit(block_bytes: usize, entries_at: usize, has_csum: bool) -> u16 {
    let room = block_bytes - entries_at - if has_csum { TAIL_BYTES } else { 0 };
    u16::try_from(room / ENTRY_BYTES).expect("a block holds fewer than 2^16 entries")
}

/// The entries in use of an inner block, the first one with its hash read as 0; `at` is the block's
/// byte address, `entries_at` from [`entries_at`].
///
/// Checks that `limit` is what the block can hold and `count` is 1 to `limit`, as `dx_probe` does.
pub fn load_entries(
    block: &[u8],
    at: u64,
    entries_at: usize,
    has_csum: bool,
) -> Result<Vec<DxEntry>, Corruption> {
    let wrong = |field, found, expected| Corruption {
        structure: "ext4 htree node",
        field,
        at,
        found,
        expected,
    };
    let rest = block.get(entries_at..).unwrap_or(&[]);
    let Ok((head, _)) = DxCountLimit::read_from_prefix(rest) else {
        return Err(wrong("limit", wide(rest.len()), "4 bytes or more".to_owned()));
    };
    let right = limit(block.len(), entries_at, has_csum);
    if head.limit.get() != right {
        return Err(wrong("limit", head.limit.get().into(), right.to_string()));
    }
    let count = usize::from(head.count.get());
    if count == 0 || count > usize::from(right) {
        return Err(wrong("count", wide(count), format!("1 to {right}")));
    }
    let (entries, _) = <[DxEntry]>::ref_from_prefix_with_elems(rest, count)
        .map_err(|_| wrong("count", wide(count), "entries within the block".to_owned()))?;
    let mut entries = entries.to_vec();
    entries.iter_mut().take(1).for_each(|e| e.hash = 0.into());
    Ok(entries)
}

/// Writes `entries` (the first one's hash is not kept) with their count and `limit`. Panics if they
/// do not fit.
pub fn store_entries(block: &mut [u8], entries_at: usize, has_csum: bool, entries: &[DxEntry]) {
    let limit = limit(block.len(), entries_at, has_csum);
    assert!(
        !entries.is_empty() && entries.len() <= usize::from(limit),
        "{} entries in a node of {limit}",
        entries.len()
    );
    let rest = block.get_mut(entries_at..).expect("limit() has checked the room");
    entries.write_to_prefix(rest).expect("limit() has checked the room");
    let count = u16::try_from(entries.len()).expect("at most the limit");
    let head = DxCountLimit { limit: limit.into(), count: count.into() };
    head.write_to_prefix(rest).expect("limit() has checked the room");
}
