//! Records of the journal's fast-commit area: a tag, a length, a value; little-endian, unlike the
//! journal.

use std::mem::offset_of;

use wp_base::crc::crc32c;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::dir::NAME_MAX;
use super::{Extent, Inode};

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

/// Value of a [`tag::ADD_RANGE`]. `struct ext4_fc_add_range`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AddRange {
    /// `fc_ino`.
    pub ino: U32,
    /// `fc_ex`, as in a leaf of the tree.
    pub extent: Extent,
}
const _: () = assert!(size_of::<AddRange>() == 16);

/// Value of a [`tag::DEL_RANGE`]. `struct ext4_fc_del_range`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DelRange {
    /// `fc_ino`.
    pub ino: U32,
    /// `fc_lblk`, first logical block.
    pub logical: U32,
    /// `fc_len`, blocks.
    pub blocks: U32,
}
const _: () = assert!(size_of::<DelRange>() == 12);

/// Value of [`tag::CREAT`], [`tag::LINK`] and [`tag::UNLINK`] before the name. `struct
/// ext4_fc_dentry_info`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NameHead {
    /// `fc_parent_ino`, the directory.
    pub parent: U32,
    /// `fc_ino`.
    pub ino: U32,
}
const _: () = assert!(size_of::<NameHead>() == 8);

/// Values of `fc_tag`.
pub mod tag {
    /// `EXT4_FC_TAG_ADD_RANGE`, the first of the records that change something.
    pub const ADD_RANGE: u16 = 1;
    /// `EXT4_FC_TAG_DEL_RANGE`.
    pub const DEL_RANGE: u16 = 2;
    /// `EXT4_FC_TAG_CREAT`: a name of a new inode, whose [`INODE`] came before.
    pub const CREAT: u16 = 3;
    /// `EXT4_FC_TAG_LINK`.
    pub const LINK: u16 = 4;
    /// `EXT4_FC_TAG_UNLINK`.
    pub const UNLINK: u16 = 5;
    /// `EXT4_FC_TAG_INODE`: number, then the inode's bytes.
    pub const INODE: u16 = 6;
    /// `EXT4_FC_TAG_PAD`, up to the block's end.
    pub const PAD: u16 = 7;
    /// `EXT4_FC_TAG_TAIL`.
    pub const TAIL: u16 = 8;
    /// `EXT4_FC_TAG_HEAD`.
    pub const HEAD: u16 = 9;
}

/// A directory entry of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    /// The directory.
    pub parent: u32,
    /// Whose name it is.
    pub ino: u32,
    /// 1 to 255 bytes.
    pub name: &'a [u8],
}

/// A record, as far as replaying takes notice of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// Blocks that a file has.
    AddRange(AddRange),
    /// Logical blocks that a file has no longer.
    DelRange(DelRange),
    /// A new file's name.
    Create(Name<'a>),
    /// Another name.
    Link(Name<'a>),
    /// A name that is gone.
    Unlink(Name<'a>),
    /// An inode, but for its map.
    Inode {
        /// Its number.
        ino: u32,
        /// 128 bytes or more.
        raw: &'a [u8],
    },
    /// Starts a commit on top of a transaction.
    Head(Head),
    /// Ends one.
    Tail(Tail),
    /// Nothing.
    Pad,
}

impl<'a> Record<'a> {
    /// Reads a value. `None`: no such tag, or a length that it cannot have in a file system with
    /// inodes of `inode_bytes`. Source: `ext4_fc_value_len_isvalid`.
    pub fn read(kind: u16, value: &'a [u8], inode_bytes: u16) -> Option<Record<'a>> {
        let name = || {
            let (head, name) = NameHead::read_from_prefix(value).ok()?;
            let fits = (1..=NAME_MAX).contains(&name.len());
            fits.then_some(Name { parent: head.parent.get(), ino: head.ino.get(), name })
        };
        Some(match kind {
            tag::ADD_RANGE => Record::AddRange(AddRange::read_from_bytes(value).ok()?),
            tag::DEL_RANGE => Record::DelRange(DelRange::read_from_bytes(value).ok()?),
            tag::CREAT => Record::Create(name()?),
            tag::LINK => Record::Link(name()?),
            tag::UNLINK => Record::Unlink(name()?),
            tag::INODE => {
                let (ino, raw) = U32::read_from_prefix(value).ok()?;
                let fits = (Inode::BYTES..=usize::from(inode_bytes)).contains(&raw.len());
                fits.then_some(Record::Inode { ino: ino.get(), raw })?
            }
            tag::PAD => Record::Pad,
            tag::TAIL => Record::Tail(Tail::read_from_prefix(value).ok()?.0),
            tag::HEAD => Record::Head(Head::read_from_bytes(value).ok()?),
            _ => return None,
        })
    }
}

/// What a scan says to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scanned {
    /// There may be more in the next block.
    Continue,
    /// Here the area ends.
    Stop,
}

/// Why no kernel mounts an area: its first commit is not whole, or it needs a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadArea {
    /// A record that cannot be before the first whole commit (`ECANCELED`).
    Record,
    /// The first commit's checksum or transaction is wrong (`EFSBADCRC`).
    Checksum,
    /// Features that no kernel has (`EOPNOTSUPP`).
    Features(u32),
}

/// The scan of a fast-commit area, block by block: which commits are whole and follow one
/// transaction.
///
/// Source: `ext4_fc_replay_scan`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan {
    tid: u32,
    inode_bytes: u16,
    is_first: bool,
    crc: u32,
    seen: u32,
    /// Records up to the last whole commit's tail, that included.
    pub records: u32,
    /// Whole commits.
    pub commits: u32,
}

impl Scan {
    /// Of commits on top of transaction `tid`.
    pub fn new(tid: u32, inode_bytes: u16) -> Scan {
        Scan { tid, inode_bytes, is_first: true, crc: 0, seen: 0, records: 0, commits: 0 }
    }

    /// Looks at the next block. Errors: see [`BadArea`]; none once a whole commit was seen, but for
    /// features.
    pub fn block(&mut self, block: &[u8]) -> Result<Scanned, BadArea> {
        let mut rest = block;
        while let Ok((head, after)) = TagLength::read_from_prefix(rest) {
            let kind = head.tag.get();
            if std::mem::take(&mut self.is_first) && kind != tag::HEAD {
                return Ok(Scanned::Stop);
            }
            let len = usize::from(head.len.get());
            let record =
                after.get(..len).and_then(|v| Some((v, Record::read(kind, v, self.inode_bytes)?)));
            let Some((value, record)) = record else { return self.end(BadArea::Record) };
            match record {
                Record::Head(h) if h.features.get() != 0 => {
                    return Err(BadArea::Features(h.features.get()));
                }
                Record::Head(h) if h.tid.get() != self.tid => return Ok(Scanned::Stop),
                Record::Tail(t) => {
                    self.seen += 1;
                    let crc = crc32c(crc32c(self.crc, head.as_bytes()), t.tid.as_bytes());
                    self.crc = 0;
                    if t.tid.get() != self.tid || t.crc.get() != crc {
                        return self.end(BadArea::Checksum);
                    }
                    self.records = self.seen;
                    self.commits += 1;
                }
                _ => {
                    self.seen += 1;
                    self.crc = crc32c(crc32c(self.crc, head.as_bytes()), value);
                }
            }
            rest = after.get(len..).unwrap_or(&[]);
        }
        Ok(Scanned::Continue)
    }

    fn end(&self, why: BadArea) -> Result<Scanned, BadArea> {
        if self.records > 0 { Ok(Scanned::Stop) } else { Err(why) }
    }
}

/// The records of a block that was scanned, in order.
pub fn records(block: &[u8], inode_bytes: u16) -> impl Iterator<Item = Record<'_>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let (head, after) = TagLength::read_from_prefix(rest).ok()?;
        let len = usize::from(head.len.get());
        let record = Record::read(head.tag.get(), after.get(..len)?, inode_bytes)?;
        rest = after.get(len..).unwrap_or(&[]);
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
        let len = u16::try_from(value.len()).expect("short");
        out.extend_from_slice(TagLength { tag: kind.into(), len: len.into() }.as_bytes());
        out.extend_from_slice(value);
    }

    fn commit(out: &mut Vec<u8>, from: usize, tid: u32) {
        let tl = TagLength { tag: tag::TAIL.into(), len: 8.into() };
        let crc = crc32c(0, out.get(from..).expect("a part"));
        let crc = crc32c(crc32c(crc, tl.as_bytes()), &tid.to_le_bytes());
        put(out, tag::TAIL, Tail { tid: tid.into(), crc: crc.into() }.as_bytes());
    }

    fn area(tid: u32) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, tag::HEAD, Head { features: 0.into(), tid: tid.into() }.as_bytes());
        put(&mut out, tag::UNLINK, b"\x02\0\0\0\x0c\0\0\0name");
        commit(&mut out, 0, tid);
        let second = out.len();
        put(&mut out, tag::PAD, &[0; 30]);
        commit(&mut out, second, tid);
        out
    }

    #[test]
    fn whole_commits_are_counted_and_a_torn_one_ends_the_area() {
        let mut whole = area(7);
        let mut scan = Scan::new(7, 256);
        assert_eq!(scan.block(&whole), Ok(Scanned::Continue));
        assert_eq!((scan.records, scan.commits), (5, 2));
        assert_eq!(records(&whole, 256).count(), 5);
        let last = whole.len() - 1;
        *whole.get_mut(last).expect("a byte") ^= 1;
        let mut scan = Scan::new(7, 256);
        assert_eq!(scan.block(&whole), Ok(Scanned::Stop));
        assert_eq!((scan.records, scan.commits), (3, 1));
    }

    #[test]
    fn a_first_commit_that_is_torn_is_an_error_and_one_of_another_transaction_is_none() {
        let mut torn = area(7);
        *torn.get_mut(20).expect("a byte") ^= 1;
        assert_eq!(Scan::new(7, 256).block(&torn), Err(BadArea::Checksum));
        let mut scan = Scan::new(8, 256);
        assert_eq!(scan.block(&area(7)), Ok(Scanned::Stop));
        assert_eq!(scan.records, 0);
        assert_eq!(Scan::new(7, 256).block(&[0; 64]), Ok(Scanned::Stop));
    }

    #[test]
    fn names_and_inodes_have_lengths_that_they_can_have() {
        let value = [1u8; 400];
        let read = |kind, n| Record::read(kind, value.get(..n).expect("shorter"), 256).is_some();
        assert_eq!([8, 9, 263, 264].map(|n| read(tag::LINK, n)), [false, true, true, false]);
        assert_eq!([131, 132, 260, 261].map(|n| read(tag::INODE, n)), [false, true, true, false]);
        assert_eq!([7, 8, 300].map(|n| read(tag::TAIL, n)), [false, true, true]);
        assert!(!read(0, 4) && !read(10, 4) && read(tag::PAD, 0));
    }
}
