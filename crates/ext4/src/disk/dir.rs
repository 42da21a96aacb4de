//! Directory blocks: entries that cover the block without a gap.
//!
//! Picture:    entry = [`DirEntryHeader`], name, padding up to `rec_len`; the last one ends with
//!             the block, or 12 bytes before it at [`DirEntryTail`] when metadata has checksums.
//! Invariants: 1. `rec_len` is a multiple of 4 and at least `8 + name_len`.
//!             2. an entry never crosses the end of its block.
//!             3. inode 0 marks an entry that is free.

use std::mem::offset_of;

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{index, wide};

/// What precedes a name. `struct ext4_dir_entry_2`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DirEntryHeader {
    /// `inode`; 0 is a free entry.
    pub inode: U32,
    /// `rec_len`, see [`rec_len_load`].
    pub rec_len: U16,
    /// `name_len`, bytes.
    pub name_len: u8,
    /// `file_type`, see [`wp_vfs::FileType::entry`]; the high byte of the name's length without the
    /// filetype feature.
    pub file_type: u8,
}
const _: () = assert!(size_of::<DirEntryHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(DirEntryHeader, file_type) == 7);

/// Checksum at the end of a directory block, disguised as a free entry. `struct
/// ext4_dir_entry_tail`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DirEntryTail {
    /// `det_reserved_zero1`, the free entry's inode.
    pub zero1: U32,
    /// `det_rec_len`, always 12.
    pub rec_len: U16,
    /// `det_reserved_zero2`.
    pub zero2: u8,
    /// `det_reserved_ft`, always [`Self::FILE_TYPE`].
    pub file_type: u8,
    /// `det_checksum`, of the block before this tail.
    pub checksum: U32,
}
const _: () = assert!(size_of::<DirEntryTail>() == DirEntryTail::BYTES);
const _: () = assert!(offset_of!(DirEntryTail, checksum) == 8);

/// Bytes of an entry before its name.
pub const HEADER_BYTES: usize = 8;
/// Longest name in bytes (`EXT4_NAME_LEN`).
pub const NAME_MAX: usize = 255;
/// Shortest `rec_len`: header and four bytes of name.
pub const REC_LEN_MIN: usize = 12;

impl DirEntryTail {
    /// Its size in bytes.
    pub const BYTES: usize = 12;
    /// `EXT4_FT_DIR_CSUM`.
    pub const FILE_TYPE: u8 = 0xDE;

    /// The tail of a directory block, if it has one.
    pub fn find(block: &[u8]) -> Option<DirEntryTail> {
        let (_, tail) = DirEntryTail::read_from_suffix(block).ok()?;
        let is_tail = tail.zero1.get() == 0
            && tail.rec_len.get() == 12
            && tail.zero2 == 0
            && tail.file_type == Self::FILE_TYPE;
        is_tail.then_some(tail)
    }

    /// Writes a tail with `checksum` at the end of `block`. Panics if the block is shorter than a
    /// tail.
    pub fn put(block: &mut [u8], checksum: u32) {
        let tail = DirEntryTail {
            zero1: 0.into(),
            rec_len: 12.into(),
            zero2: 0,
            file_type: Self::FILE_TYPE,
            checksum: checksum.into(),
        };
        tail.write_to_suffix(block).expect("a block is longer than its tail");
    }
}

/// Length of an entry from its field. In blocks of 64 KiB 0 and 0xFFFF stand for the whole block.
pub fn rec_len_load(field: u16, block_bytes: usize) -> usize {
    match field {
        0 | u16::MAX if block_bytes == 1 << 16 => block_bytes,
        n => usize::from(n),
    }
}

/// The field for an entry of `len` bytes. Panics if it is longer than a block of 64 KiB.
pub fn rec_len_store(len: usize) -> u16 {
    if len == 1 << 16 { u16::MAX } else { u16::try_from(len).expect("an entry fits its block") }
}

/// Bytes that an entry with a name of `name_len` bytes needs.
pub const fn space(name_len: usize) -> usize {
    (HEADER_BYTES + name_len).next_multiple_of(4)
}

/// An entry in place.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Where it starts in its block, in bytes.
    pub offset: usize,
    /// Inode; 0 if it is free.
    pub inode: u32,
    /// Bytes up to the next entry.
    pub rec_len: usize,
    /// Type byte, see [`wp_vfs::FileType::from_entry`].
    pub file_type: u8,
    /// Name, as bytes.
    pub name: &'a [u8],
}

impl DirEntry<'_> {
    /// Bytes that could be given to another entry: all of a free one, the padding of one in use.
    pub fn spare(&self) -> usize {
        if self.inode == 0 {
            self.rec_len
        } else {
            self.rec_len.saturating_sub(space(self.name.len()))
        }
    }
}

/// The entries of a directory block, free ones included. Ends after the first error.
#[derive(Clone, Debug)]
pub struct DirIter<'a> {
    block: &'a [u8],
    block_bytes: usize,
    at: u64,
    offset: usize,
    inodes_count: u32,
}

impl<'a> DirIter<'a> {
    /// Over `block`, which was read from byte address `at` (for error messages) of a file system
    /// with `inodes_count` inodes. Leave out the checksum tail or not: it reads as a free entry.
    pub fn new(block: &'a [u8], at: u64, inodes_count: u32) -> DirIter<'a> {
        DirIter { block, block_bytes: block.len(), at, offset: 0, inodes_count }
    }

    fn parse(&self) -> Result<DirEntry<'a>, Corruption> {
        let offset = self.offset;
        let wrong = |field, found: usize, expected: String| Corruption {
            structure: "ext4 directory entry",
            field,
            at: self.at.saturating_add(wide(offset)),
            found: wide(found),
            expected,
        };
        let rest = self.block.get(offset..).unwrap_or(&[]);
        let Ok((header, names)) = DirEntryHeader::read_from_prefix(rest) else {
            return Err(wrong("rec_len", rest.len(), "entries that end with the block".to_owned()));
        };
        let rec_len = rec_len_load(header.rec_len.get(), self.block_bytes);
        if rec_len < REC_LEN_MIN || !rec_len.is_multiple_of(4) || rec_len > rest.len() {
            let expected = format!("a multiple of 4 from 12 to {}", rest.len());
            return Err(wrong("rec_len", rec_len, expected));
        }
        let name_len = usize::from(header.name_len);
        let Some(name) = names.get(..name_len).filter(|_| space(name_len) <= rec_len) else {
            return Err(wrong("name_len", name_len, format!("at most {}", rec_len - HEADER_BYTES)));
        };
        if header.inode.get() > self.inodes_count {
            let expected = format!("at most {}", self.inodes_count);
            return Err(wrong("inode", index(header.inode.get()), expected));
        }
        Ok(DirEntry {
            offset,
            inode: header.inode.get(),
            rec_len,
            file_type: header.file_type,
            name,
        })
    }
}

impl<'a> Iterator for DirIter<'a> {
    type Item = Result<DirEntry<'a>, Corruption>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.block.len() {
            return None;
        }
        let entry = self.parse();
        match &entry {
            Ok(e) => self.offset += e.rec_len,
            Err(_) => self.offset = self.block.len(),
        }
        Some(entry)
    }
}

/// Offset and inode of the entry in use of that name. For blocks that have been verified: a
/// malformed entry ends the search and is not reported.
pub fn find(block: &[u8], name: &[u8]) -> Option<(usize, u32)> {
    let mut offset = 0;
    let end = name.last_chunk::<2>().map(|end| (name.len() - 2, end));
    loop {
        let (header, names) = DirEntryHeader::ref_from_prefix(block.get(offset..)?).ok()?;
        // The last two bytes tell most names of a directory apart, without a call.
        if usize::from(header.name_len) == name.len()
            && end.is_none_or(|(at, end)| names.get(at..at + 2) == Some(&end[..]))
            && names.starts_with(name)
            && header.inode.get() != 0
        {
            return Some((offset, header.inode.get()));
        }
        let rec_len = rec_len_load(header.rec_len.get(), block.len());
        if rec_len < REC_LEN_MIN {
            return None;
        }
        offset += rec_len;
    }
}

/// Writes an entry of `rec_len` bytes at `offset` of `block`; bytes after the name stay as they
/// are. Panics if it does not fit.
pub fn put(
    block: &mut [u8],
    offset: usize,
    rec_len: usize,
    inode: u32,
    name: &[u8],
    file_type: u8,
) {
    assert!(space(name.len()) <= rec_len, "{} bytes of name in {rec_len}", name.len());
    let header = DirEntryHeader {
        inode: inode.into(),
        rec_len: rec_len_store(rec_len).into(),
        name_len: u8::try_from(name.len()).expect("a name has at most 255 bytes"),
        file_type,
    };
    let room = block.get_mut(offset..offset + rec_len).expect("an entry lies within its block");
    header.write_to_prefix(room).expect("12 bytes or more");
    let (_, to) = room.split_at_mut(HEADER_BYTES);
    to.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
}

/// Changes only the inode and type of the entry at `offset` (rename over an existing name). Panics
/// if it does not lie in `block`.
pub fn set_target(block: &mut [u8], offset: usize, inode: u32, file_type: u8) {
    let room = block.get_mut(offset..).expect("an entry lies within its block");
    let (header, _) =
        DirEntryHeader::mut_from_prefix(room).expect("an entry lies within its block");
    header.inode = inode.into();
    header.file_type = file_type;
}

/// Makes `block` one free entry, with room for a checksum tail if `has_tail` (its checksum is zero
/// then).
pub fn format(block: &mut [u8], has_tail: bool) {
    block.fill(0);
    let rec_len = block.len() - if has_tail { DirEntryTail::BYTES } else { 0 };
    put(block, 0, rec_len, 0, &[], 0);
    if has_tail {
        DirEntryTail::put(block, 0);
    }
}

/// Calls `f` with offset and name of each entry in use, as far as [`find`] would look, until it
/// answers `false`; was it always `true`?
pub fn each_name(block: &[u8], mut f: impl FnMut(usize, &[u8]) -> bool) -> bool {
    let mut offset = 0;
    while let Some((header, names)) =
        block.get(offset..).and_then(|rest| DirEntryHeader::ref_from_prefix(rest).ok())
    {
        if header.inode.get() != 0
            && let Some(name) = names.get(..usize::from(header.name_len))
            && !f(offset, name)
        {
            return false;
        }
        let rec_len = rec_len_load(header.rec_len.get(), block.len());
        if rec_len < REC_LEN_MIN {
            break;
        }
        offset += rec_len;
    }
    true
}

/// Inode and name of the entry in use at `offset`, where one starts.
pub fn entry_at(block: &[u8], offset: usize) -> Option<(u32, &[u8])> {
    let (header, names) = DirEntryHeader::ref_from_prefix(block.get(offset..)?).ok()?;
    let name = names.get(..usize::from(header.name_len))?;
    (header.inode.get() != 0).then_some((header.inode.get(), name))
}

/// First entry of `block` that has room for a name of `name_len` bytes; its offset.
///
/// The block is walked as Linux does (`ext4_find_dest_de`), first fit, from the entry at `from` on:
/// 0, or an offset before which no entry has room. `Err`: the block is wrong.
pub fn find_room(
    block: &[u8],
    at: u64,
    inodes_count: u32,
    from: usize,
    name_len: usize,
) -> Result<Option<usize>, Corruption> {
    // Entries that are as they must be are passed over here; whatever else turns up, [`DirIter`]
    // judges it, from there on.
    let need = space(name_len);
    let mut offset = from;
    while let Some((header, rest)) =
        block.get(offset..).and_then(|rest| DirEntryHeader::ref_from_prefix(rest).ok())
    {
        let rec_len = rec_len_load(header.rec_len.get(), block.len());
        let used = space(usize::from(header.name_len));
        let inode = header.inode.get();
        let sound = rec_len >= REC_LEN_MIN
            && rec_len.is_multiple_of(4)
            && rec_len <= rest.len() + HEADER_BYTES
            && used <= rec_len
            && inode <= inodes_count;
        if !sound || inode == 0 || rec_len - used >= need {
            break;
        }
        offset += rec_len;
    }
    for entry in (DirIter { offset, ..DirIter::new(block, at, inodes_count) }) {
        let entry = entry?;
        let is_tail = entry.inode == 0 && entry.file_type == DirEntryTail::FILE_TYPE;
        if !is_tail && entry.spare() >= need {
            return Ok(Some(entry.offset));
        }
    }
    Ok(None)
}

/// Adds a name at the entry at `offset`, which [`find_room`] has found: takes a free entry over
/// whole, or splits one in use. Returns the offset of the new entry. Panics if there is no room.
pub fn insert(block: &mut [u8], offset: usize, inode: u32, name: &[u8], file_type: u8) -> usize {
    let bytes = block.len();
    let room = block.get_mut(offset..).expect("an entry lies within its block");
    let (header, _) =
        DirEntryHeader::mut_from_prefix(room).expect("an entry lies within its block");
    let rec_len = rec_len_load(header.rec_len.get(), bytes);
    if header.inode.get() == 0 {
        put(block, offset, rec_len, inode, name, file_type);
        return offset;
    }
    let used = space(usize::from(header.name_len));
    header.rec_len = rec_len_store(used).into();
    put(block, offset + used, rec_len - used, inode, name, file_type);
    offset + used
}

/// What happens to the bytes of a removed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wipe {
    /// They stay (Linux before 5.13).
    Keep,
    /// They are zeroed ("ext4: wipe ext4_dir_entry2 upon file deletion").
    Zero,
}

/// Removes the entry at `offset`: the one before it grows over it, or it becomes free if it is the
/// first.
///
/// Errors: the block is wrong, or no entry starts at `offset`.
pub fn remove(
    block: &mut [u8],
    at: u64,
    inodes_count: u32,
    offset: usize,
    wipe: Wipe,
) -> Result<(), Corruption> {
    let mut before = None;
    let mut target = None;
    for entry in DirIter::new(block, at, inodes_count) {
        let entry = entry?;
        if entry.offset == offset {
            target = Some(entry.rec_len);
            break;
        }
        before = Some((entry.offset, entry.rec_len));
    }
    let Some(rec_len) = target else {
        return Err(Corruption {
            structure: "ext4 directory block",
            field: "rec_len",
            at,
            found: wide(offset),
            expected: "an entry that starts here".to_owned(),
        });
    };
    let header_at = |block: &mut [u8], offset: usize, change: &dyn Fn(&mut DirEntryHeader)| {
        let room = block.get_mut(offset..).expect("an entry that was just read");
        change(DirEntryHeader::mut_from_prefix(room).expect("an entry that was just read").0);
    };
    match before {
        Some((prev, prev_len)) => {
            if wipe == Wipe::Zero {
                block
                    .get_mut(offset..offset + rec_len)
                    .expect("an entry that was just read")
                    .fill(0);
            }
            let grown = rec_len_store(prev_len + rec_len);
            header_at(block, prev, &|h| h.rec_len = grown.into());
        }
        None => {
            if wipe == Wipe::Zero {
                block
                    .get_mut(offset..offset + rec_len)
                    .expect("an entry that was just read")
                    .fill(0);
            }
            let kept = rec_len_store(rec_len);
            header_at(block, offset, &|h| {
                h.inode = 0.into();
                h.rec_len = kept.into();
            });
        }
    }
    Ok(())
}
