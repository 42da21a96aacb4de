//! Extended attributes: after the extra fields of an inode, and in a block of their own.
//!
//! Picture:    block = [`XattrHeader`], entries ascending, four zero bytes, gap, values from the
//!             end downwards; inode = [`XattrIbodyHeader`], entries in any order, four zero bytes,
//!             gap, values. An entry's value offset counts from the block's start, or from the
//!             inode's first entry.

use std::mem::offset_of;

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{index, wide};

/// Header of an attribute block. `struct ext4_xattr_header`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct XattrHeader {
    /// `h_magic`, always [`MAGIC`].
    pub magic: U32,
    /// `h_refcount`, inodes that share the block.
    pub refcount: U32,
    /// `h_blocks`, always 1.
    pub blocks: U32,
    /// `h_hash` of all entries, see [`block_hash`].
    pub hash: U32,
    /// `h_checksum`.
    pub checksum: U32,
    /// `h_reserved`.
    pub reserved: [U32; 3],
}
const _: () = assert!(size_of::<XattrHeader>() == 32);
const _: () = assert!(offset_of!(XattrHeader, checksum) == 16);

/// Header of the attributes in an inode. `struct ext4_xattr_ibody_header`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct XattrIbodyHeader {
    /// `h_magic`, always [`MAGIC`].
    pub magic: U32,
}
const _: () = assert!(size_of::<XattrIbodyHeader>() == 4);

/// What precedes an attribute's name. `struct ext4_xattr_entry`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct XattrEntryHeader {
    /// `e_name_len`, bytes, without the prefix that `name_index` stands for.
    pub name_len: u8,
    /// `e_name_index`, see [`PREFIXES`].
    pub name_index: u8,
    /// `e_value_offs`.
    pub value_offs: U16,
    /// `e_value_inum`, inode that holds the value; 0 is here.
    pub value_inum: U32,
    /// `e_value_size`, bytes.
    pub value_size: U32,
    /// `e_hash`, see [`entry_hash`]; 0 in inodes before Linux 4.13.
    pub hash: U32,
}
const _: () = assert!(size_of::<XattrEntryHeader>() == ENTRY_BYTES);
const _: () = assert!(offset_of!(XattrEntryHeader, hash) == 12);

/// `EXT4_XATTR_MAGIC`.
pub const MAGIC: u32 = 0xEA02_0000;
/// Bytes of an entry before its name.
pub const ENTRY_BYTES: usize = 16;
/// `EXT4_XATTR_REFCOUNT_MAX`.
pub const REFCOUNT_MAX: u32 = 1024;
/// `EXT4_XATTR_INDEX_SYSTEM`, whose attribute "data" holds what does not fit `i_block` of inline
/// data.
pub const INDEX_SYSTEM: u8 = 7;
/// Name of that attribute, without prefix.
pub const INLINE_DATA_NAME: &[u8] = b"data";

/// (`e_name_index`, prefix). The two POSIX ACL names are whole and have no further name.
pub const PREFIXES: &[(u8, &str)] = &[
    (0, ""),
    (1, "user."),
    (2, "system.posix_acl_access"),
    (3, "system.posix_acl_default"),
    (4, "trusted."),
    (6, "security."),
    (INDEX_SYSTEM, "system."),
    (8, "system.richacl"),
    (9, "encryption."),
    (10, "gnu."),
];

/// Splits a full name into `e_name_index` and the rest; the longest prefix wins.
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES
        .iter()
        .filter(|(i, _)| *i != 0)
        .filter_map(|(i, p)| full.strip_prefix(p.as_bytes()).map(|rest| (p.len(), *i, rest)))
        .max_by_key(|(len, ..)| *len)
        .map(|(_, i, rest)| (i, rest))
}

/// Bytes of an entry with a name of `name_len` bytes (`EXT4_XATTR_LEN`).
pub const fn entry_space(name_len: usize) -> usize {
    (ENTRY_BYTES + name_len).next_multiple_of(4)
}

/// Bytes that a value takes (`EXT4_XATTR_SIZE`).
pub const fn value_space(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

/// An attribute in place.
#[derive(Clone, Copy, Debug)]
pub struct XattrEntry<'a> {
    /// Where its entry starts, in bytes from the first entry.
    pub offset: usize,
    /// The fixed fields.
    pub header: XattrEntryHeader,
    /// Name without prefix.
    pub name: &'a [u8],
    /// Value; empty if it lies in an inode of its own.
    pub value: &'a [u8],
}

/// The attributes listed from byte `first` of `area`; value offsets count from byte `base` of
/// `area`.
///
/// For a block: the whole block, `first` 32, `base` 0. For an inode: the bytes after
/// `i_extra_isize`, `first` 4, `base` 4. `at` is the byte address of `area`. The list ends with
/// four zero bytes.
/// Errors: an entry or a value that does not lie in `area`.
pub fn load(
    area: &[u8],
    at: u64,
    first: usize,
    base: usize,
) -> Result<Vec<XattrEntry<'_>>, Corruption> {
    let mut out = Vec::new();
    let mut pos = first;
    loop {
        let wrong = |field, found: usize, expected: &str| Corruption {
            structure: "ext4 xattr entry",
            field,
            at: at.saturating_add(wide(pos)),
            found: wide(found),
            expected: expected.to_owned(),
        };
        let rest = area.get(pos..).unwrap_or(&[]);
        let Some(word) = rest.first_chunk::<4>() else {
            return Err(wrong("e_name_len", rest.len(), "a list that ends with four zero bytes"));
        };
        if *word == [0; 4] {
            return Ok(out);
        }
        let Ok((header, names)) = XattrEntryHeader::read_from_prefix(rest) else {
            return Err(wrong("e_name_len", rest.len(), "an entry within its area"));
        };
        let name_len = usize::from(header.name_len);
        let Some(name) = names.get(..name_len) else {
            return Err(wrong("e_name_len", name_len, "a name within its area"));
        };
        let size = index(header.value_size.get());
        let value = if size == 0 || header.value_inum.get() != 0 {
            &[][..]
        } else {
            let from = base + usize::from(header.value_offs.get());
            let Some(value) = from.checked_add(size).and_then(|to| area.get(from..to)) else {
                return Err(wrong("e_value_size", size, "a value within its area"));
            };
            value
        };
        out.push(XattrEntry { offset: pos - first, header, name, value });
        pos += entry_space(name_len);
    }
}

/// `e_hash` of a name (without prefix) and a value, as today's kernels compute it.
///
/// Characters count as unsigned (Linux 6.2 and later; before that as the machine's `char`, so that
/// names beyond ASCII had other hashes). The value counts in words of four bytes, padded with
/// zeroes.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let hash = name.iter().fold(0u32, |h, c| h << 5 ^ h >> 27 ^ u32::from(*c));
    value.chunks(4).fold(hash, |h, chunk| {
        let mut word = [0u8; 4];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        h << 16 ^ h >> 16 ^ u32::from_le_bytes(word)
    })
}

/// `h_hash` of a block from its entries' hashes in order; 0 (never shared) if any of them is 0.
pub fn block_hash(hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut all = 0u32;
    for h in hashes {
        if h == 0 {
            return 0;
        }
        all = all << 16 ^ all >> 16 ^ h;
    }
    all
}

/// An attribute on its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// `e_name_index`.
    pub index: u8,
    /// Name without prefix.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl Attribute {
    /// The order of entries in a block (`xattr_find_entry`): by prefix, length of name, name.
    pub fn order(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }
}

/// Bytes that attributes take behind the header, with the zero word that ends their list.
pub fn space(all: &[Attribute]) -> usize {
    all.iter().map(|a| entry_space(a.name.len()) + value_space(a.value.len())).sum::<usize>() + 4
}

/// Writes attributes to `area` as [`load`] reads them, all behind `first` anew; returns their
/// hashes. `hashed`: the entries carry them (those in inodes do not). Panics if they do not fit.
pub fn store(
    area: &mut [u8],
    first: usize,
    base: usize,
    all: &[Attribute],
    hashed: bool,
) -> Vec<u32> {
    let fits = "the caller has counted the space";
    area.get_mut(first..).expect(fits).fill(0);
    let (mut at, mut end) = (first, area.len());
    let mut hashes = Vec::new();
    for a in all {
        let hash = entry_hash(&a.name, &a.value);
        hashes.push(hash);
        let mut value_offs = 0;
        if !a.value.is_empty() {
            end -= value_space(a.value.len());
            area.get_mut(end..end + a.value.len()).expect(fits).copy_from_slice(&a.value);
            value_offs = end - base;
        }
        let head = XattrEntryHeader {
            name_len: u8::try_from(a.name.len()).expect("names have 255 bytes at most"),
            name_index: a.index,
            value_offs: u16::try_from(value_offs).expect("a block has 64 KiB at most").into(),
            value_inum: 0.into(),
            value_size: u32::try_from(a.value.len()).expect("a value fits its area").into(),
            hash: if hashed { hash } else { 0 }.into(),
        };
        head.write_to_prefix(area.get_mut(at..).expect(fits)).expect(fits);
        let name = at + ENTRY_BYTES;
        area.get_mut(name..name + a.name.len()).expect(fits).copy_from_slice(&a.name);
        at += entry_space(a.name.len());
    }
    assert!(at + 4 <= end, "attributes overlap");
    hashes
}

/// From ext4's ACL (version 1, ids only where they mean something) to the interface's (version 2,
/// eight bytes an entry). Source: `ext4_acl_from_disk`, `posix_acl_to_xattr`.
///
/// `at` is the value's byte address. Errors: another version, half an entry.
pub fn acl_value(disk: &[u8], at: u64) -> Result<Vec<u8>, Corruption> {
    const USER: u16 = 2;
    const GROUP: u16 = 8;
    let wrong = |found: usize| Corruption {
        structure: "ext4 acl",
        field: "length",
        at,
        found: wide(found),
        expected: "version 1 and whole entries".to_owned(),
    };
    let Some((version, mut rest)) = disk.split_first_chunk::<4>() else {
        return Err(wrong(disk.len()));
    };
    if u32::from_le_bytes(*version) != 1 {
        return Err(wrong(disk.len()));
    }
    let mut out = 2u32.to_le_bytes().to_vec();
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let [a, b, ..] = *head;
        let tag = u16::from_le_bytes([a, b]);
        out.extend_from_slice(head);
        rest = after;
        if tag == USER || tag == GROUP {
            let (id, after) = rest.split_first_chunk::<4>().ok_or_else(|| wrong(disk.len()))?;
            out.extend_from_slice(id);
            rest = after;
        } else {
            out.extend_from_slice(&[0xFF; 4]);
        }
    }
    if rest.is_empty() { Ok(out) } else { Err(wrong(disk.len())) }
}
