//! Where the bytes of a file are.

use std::mem::offset_of;

use wp_base::{Corruption, FsResult};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Key, view, wide};

/// All extents begin with this. First 21 bytes of `struct btrfs_file_extent_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FileExtentHead {
    /// `generation`, transaction that made it.
    pub generation: U64,
    /// `ram_bytes`, bytes when not compressed.
    pub ram_bytes: U64,
    /// `compression`, see [`compression`].
    pub compression: u8,
    /// `encryption`, 0.
    pub encryption: u8,
    /// `other_encoding`, 0.
    pub other_encoding: U16,
    /// `type`, see [`extent_type`].
    pub kind: u8,
}
const _: () = assert!(size_of::<FileExtentHead>() == FileExtent::INLINE_HEAD);

/// An extent that is not inline. `struct btrfs_file_extent_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FileExtentItem {
    /// What inline extents have as well.
    pub head: FileExtentHead,
    /// `disk_bytenr`, logical address of the whole extent; 0: a hole.
    pub disk_bytenr: U64,
    /// `disk_num_bytes`, its length.
    pub disk_num_bytes: U64,
    /// `offset` in it (when not compressed) at which this part begins.
    pub offset: U64,
    /// `num_bytes` of the file that this part is.
    pub num_bytes: U64,
}
const _: () = assert!(size_of::<FileExtentItem>() == FileExtent::BYTES);
const _: () = assert!(offset_of!(FileExtentItem, disk_bytenr) == 21);

/// Numbers of `type`.
pub mod extent_type {
    /// The bytes follow in the item.
    pub const INLINE: u8 = 0;
    /// Data of an extent.
    pub const REGULAR: u8 = 1;
    /// An extent that was not written yet: reads as zeroes.
    pub const PREALLOC: u8 = 2;
}

/// Numbers of `compression`.
pub mod compression {
    /// None.
    pub const NONE: u8 = 0;
    /// zlib.
    pub const ZLIB: u8 = 1;
    /// LZO.
    pub const LZO: u8 = 2;
    /// Zstandard.
    pub const ZSTD: u8 = 3;
}

/// An extent of a file, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileExtent<'a> {
    /// The bytes themselves; compressed if the head says so.
    Inline(FileExtentHead, &'a [u8]),
    /// Data, a hole (`disk_bytenr` 0), or space allocated beforehand.
    Regular(FileExtentItem),
}

impl<'a> FileExtent<'a> {
    /// Bytes of an item that is not inline.
    pub const BYTES: usize = 53;
    /// Bytes before the data of an inline one. `BTRFS_FILE_EXTENT_INLINE_DATA_START`.
    pub const INLINE_HEAD: usize = 21;

    /// The extent that an item with this key is: it ends below 2^64, and so does its data. `at`:
    /// byte address, for the error.
    ///
    /// Source: `check_extent_data_item`, for what hangs on the item alone.
    pub fn load(key: Key, item: &'a [u8], at: u64) -> FsResult<FileExtent<'a>> {
        let fail = |field, found: u64, expected: &str| {
            let expected = format!("{expected} {key}");
            Err(Corruption { structure: "btrfs file extent", field, at, found, expected }.into())
        };
        let Some(head) = view::<FileExtentHead>(item, 0) else {
            return fail("size", wide(item.len()), "21 or more");
        };
        if !key.offset.is_multiple_of(4096) {
            return fail("key.offset", key.offset, "a multiple of the sector size");
        }
        if head.compression > compression::ZSTD {
            return fail("compression", head.compression.into(), "0 to 3");
        }
        if head.encryption != 0 {
            return fail("encryption", head.encryption.into(), "0");
        }
        match head.kind {
            extent_type::INLINE => {
                let data = item.get(Self::INLINE_HEAD..).unwrap_or(&[]);
                if key.offset != 0 {
                    return fail("key.offset", key.offset, "0 for an inline extent");
                }
                if head.compression == 0 && head.ram_bytes.get() != wide(data.len()) {
                    return fail("ram_bytes", head.ram_bytes.get(), "the bytes of the item");
                }
                Ok(FileExtent::Inline(*head, data))
            }
            extent_type::REGULAR | extent_type::PREALLOC => {
                let whole = view::<FileExtentItem>(item, 0).filter(|_| item.len() == Self::BYTES);
                let Some(whole) = whole else { return fail("size", wide(item.len()), "53") };
                for (field, n) in [
                    ("ram_bytes", head.ram_bytes),
                    ("disk_bytenr", whole.disk_bytenr),
                    ("disk_num_bytes", whole.disk_num_bytes),
                    ("offset", whole.offset),
                    ("num_bytes", whole.num_bytes),
                ] {
                    if !n.get().is_multiple_of(4096) {
                        return fail(field, n.get(), "a multiple of the sector size");
                    }
                }
                let end = whole.offset.get().checked_add(whole.num_bytes.get());
                if whole.num_bytes.get() == 0 || end.is_none_or(|e| e > head.ram_bytes.get()) {
                    return fail("num_bytes", whole.num_bytes.get(), "a part of the extent");
                }
                if key.offset.checked_add(whole.num_bytes.get()).is_none() {
                    return fail("num_bytes", whole.num_bytes.get(), "an end below 2^64");
                }
                let longest = whole.disk_num_bytes.get().max(head.ram_bytes.get());
                let address = whole.disk_bytenr.get();
                if address != 0 && address.checked_add(longest).is_none() {
                    return fail("disk_bytenr", address, "an end below 2^64");
                }
                Ok(FileExtent::Regular(*whole))
            }
            other => fail("type", other.into(), "0 to 2"),
        }
    }

    /// Bytes of the file that it covers.
    pub fn len(&self) -> u64 {
        match self {
            FileExtent::Inline(head, _) => head.ram_bytes.get(),
            FileExtent::Regular(e) => e.num_bytes.get(),
        }
    }

    /// Does it cover none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FileExtentItem {
    /// An extent of its parts, not compressed.
    pub fn new(kind: u8, generation: u64, disk: (u64, u64), offset: u64, bytes: u64) -> Self {
        FileExtentItem {
            head: FileExtentHead {
                generation: generation.into(),
                ram_bytes: (if disk.0 == 0 { bytes } else { disk.1 }).into(),
                compression: compression::NONE,
                encryption: 0,
                other_encoding: 0.into(),
                kind,
            },
            disk_bytenr: disk.0.into(),
            disk_num_bytes: disk.1.into(),
            offset: offset.into(),
            num_bytes: bytes.into(),
        }
    }

    /// Does it name a place on the device, rather than a hole?
    pub fn has_place(&self) -> bool {
        self.disk_bytenr.get() != 0
    }
}

/// The bytes of an inline extent.
pub fn inline_bytes(generation: u64, data: &[u8]) -> Vec<u8> {
    let head = FileExtentHead {
        generation: generation.into(),
        ram_bytes: wide(data.len()).into(),
        compression: compression::NONE,
        encryption: 0,
        other_encoding: 0.into(),
        kind: extent_type::INLINE,
    };
    [head.as_bytes(), data].concat()
}
