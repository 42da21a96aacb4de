//! Inodes and their names as they themselves know them.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{lo16, lo32_of, view};
use wp_base::DeviceNumber;
use wp_base::crc::crc32c;

/// A time. `struct btrfs_timespec`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Timespec {
    /// `sec` since 1970; negative before.
    pub sec: U64,
    /// `nsec`.
    pub nsec: U32,
}
const _: () = assert!(size_of::<Timespec>() == 12);

impl Timespec {
    /// A time in whole seconds since 1970.
    pub fn seconds(sec: u64) -> Timespec {
        Timespec { sec: sec.into(), nsec: 0.into() }
    }
}

/// An inode. `struct btrfs_inode_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InodeItem {
    /// `generation`, transaction that made it.
    pub generation: U64,
    /// `transid`, transaction that changed it last.
    pub transid: U64,
    /// `size` in bytes; of a directory twice the lengths of its names.
    pub size: U64,
    /// `nbytes`, space in use.
    pub nbytes: U64,
    /// `block_group`, a hint that is not used any more.
    pub block_group: U64,
    /// `nlink`, names.
    pub nlink: U32,
    /// `uid`.
    pub uid: U32,
    /// `gid`.
    pub gid: U32,
    /// `mode`, type and permissions.
    pub mode: U32,
    /// `rdev`.
    pub rdev: U64,
    /// `flags`, see [`flag`].
    pub flags: U64,
    /// `sequence`, counts changes.
    pub sequence: U64,
    /// `reserved`.
    pub reserved: [U64; 4],
    /// `atime`.
    pub atime: Timespec,
    /// `ctime`.
    pub ctime: Timespec,
    /// `mtime`.
    pub mtime: Timespec,
    /// `otime`, when it was made.
    pub otime: Timespec,
}
const _: () = assert!(size_of::<InodeItem>() == 160);
const _: () = assert!(offset_of!(InodeItem, mode) == 52);
const _: () = assert!(offset_of!(InodeItem, atime) == 112);

/// Bits of `flags`. `BTRFS_INODE_*`.
pub mod flag {
    /// Data has no checksums.
    pub const NODATASUM: u64 = 1;
    /// Data is written in place.
    pub const NODATACOW: u64 = 1 << 1;
    /// May not be changed.
    pub const READONLY: u64 = 1 << 2;
    /// Not to be compressed.
    pub const NOCOMPRESS: u64 = 1 << 3;
    /// Has extents allocated beforehand.
    pub const PREALLOC: u64 = 1 << 4;
    /// Writes wait.
    pub const SYNC: u64 = 1 << 5;
    /// `chattr +i`.
    pub const IMMUTABLE: u64 = 1 << 6;
    /// `chattr +a`.
    pub const APPEND: u64 = 1 << 7;
    /// No dump.
    pub const NODUMP: u64 = 1 << 8;
    /// Access times are not kept.
    pub const NOATIME: u64 = 1 << 9;
    /// Changes of the directory wait.
    pub const DIRSYNC: u64 = 1 << 10;
    /// To be compressed.
    pub const COMPRESS: u64 = 1 << 11;
    /// In root items: the inode there has a meaning.
    pub const ROOT_ITEM_INIT: u64 = 1 << 31;
}

impl InodeItem {
    /// All zero.
    pub fn zeroed() -> InodeItem {
        InodeItem::read_from_bytes(&[0; 160]).expect("the size is right")
    }
    /// The type bits of `mode`.
    pub fn file_type(&self) -> u32 {
        self.mode.get() & mode::TYPE
    }
    /// Number of a device; 0 of other files.
    pub fn device(&self) -> DeviceNumber {
        match matches!(self.file_type(), mode::CHAR | mode::BLOCK) {
            true => DeviceNumber::of_kernel(lo32_of(self.rdev.get())),
            false => DeviceNumber::default(),
        }
    }
    /// A directory?
    pub fn is_dir(&self) -> bool {
        self.file_type() == mode::DIR
    }
    /// A regular file?
    pub fn is_file(&self) -> bool {
        self.file_type() == mode::FILE
    }
    /// A symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.file_type() == mode::SYMLINK
    }
}

/// Type bits of `mode`.
pub mod mode {
    /// All of them.
    pub const TYPE: u32 = 0o170_000;
    /// A regular file.
    pub const FILE: u32 = 0o100_000;
    /// A directory.
    pub const DIR: u32 = 0o040_000;
    /// A symbolic link.
    pub const SYMLINK: u32 = 0o120_000;
    /// A character device.
    pub const CHAR: u32 = 0o020_000;
    /// A block device.
    pub const BLOCK: u32 = 0o060_000;
}

/// A name in the directory that the key names, before the name itself. `struct btrfs_inode_ref`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InodeRef {
    /// `index` in the directory.
    pub index: U64,
    /// `name_len`, bytes.
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeRef>() == 10);

/// A name in any directory, before the name itself. `struct btrfs_inode_extref`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InodeExtref {
    /// `parent_objectid`, the directory.
    pub parent_objectid: U64,
    /// `index` in the directory.
    pub index: U64,
    /// `name_len`, bytes.
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeExtref>() == 18);

/// A name in an INODE_REF or INODE_EXTREF item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    /// The directory; for an INODE_REF the key's offset.
    pub parent: u64,
    /// Index in the directory.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
    /// Bytes of the item from its start to this name's entry.
    pub at: usize,
    /// Bytes of the entry.
    pub bytes: usize,
}

/// The names of an INODE_REF item whose key has offset `parent`. An entry that reaches beyond the
/// end is `Err` with its place, and the last.
pub fn refs(item: &[u8], parent: u64) -> impl Iterator<Item = Result<Name<'_>, usize>> {
    entries(item, move |rest| {
        let head = view::<InodeRef>(rest, 0)?;
        Some((parent, head.index.get(), size_of::<InodeRef>(), usize::from(head.name_len.get())))
    })
}

/// The names of an INODE_EXTREF item, as [`refs`].
pub fn extrefs(item: &[u8]) -> impl Iterator<Item = Result<Name<'_>, usize>> {
    entries(item, |rest| {
        let head = view::<InodeExtref>(rest, 0)?;
        let name = usize::from(head.name_len.get());
        Some((head.parent_objectid.get(), head.index.get(), size_of::<InodeExtref>(), name))
    })
}

fn entries<'a>(
    item: &'a [u8],
    head: impl Fn(&'a [u8]) -> Option<(u64, u64, usize, usize)>,
) -> impl Iterator<Item = Result<Name<'a>, usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = item.get(at..).filter(|rest| !rest.is_empty())?;
        let one = head(rest).and_then(|(parent, index, skip, len)| {
            let name = rest.get(skip..skip + len)?;
            Some(Name { parent, index, name, at, bytes: skip + len })
        });
        let result = one.ok_or(at);
        at = one.map_or(item.len(), |n| at + n.bytes);
        Some(result)
    })
}

/// The bytes of one entry of an INODE_REF item.
pub fn ref_bytes(index: u64, name: &[u8]) -> Vec<u8> {
    let head = InodeRef { index: index.into(), name_len: lo16(name.len()).into() };
    [head.as_bytes(), name].concat()
}

/// The bytes of one entry of an INODE_EXTREF item.
pub fn extref_bytes(parent: u64, index: u64, name: &[u8]) -> Vec<u8> {
    let (parent_objectid, index) = (parent.into(), index.into());
    let head = InodeExtref { parent_objectid, index, name_len: lo16(name.len()).into() };
    [head.as_bytes(), name].concat()
}

/// Offset of the key of an INODE_EXTREF item. `btrfs_extref_hash`.
pub fn extref_hash(parent: u64, name: &[u8]) -> u64 {
    crc32c(lo32_of(parent), name).into()
}
