//! The summary of a log: who owns each of its blocks.
//!
//! Picture:    head, then for each file its [`FileInfo`] and an item a block, data before nodes of
//!             its map; blocks of the log follow the summary in that order.
//! Invariants: no item crosses the end of a block: the rest of the block stays zero, and the item
//!             stands in the next.

use std::mem::offset_of;

use wp_base::crc::crc32_le;
use wp_base::{Corruption, FsResult};
use wp_medium::View;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Geometry, index, ino, lo32, view, wide};

/// Head of a log. `struct nilfs_segment_summary`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SummaryHead {
    /// `ss_datasum`, checksum of the whole log but for this field.
    pub datasum: U32,
    /// `ss_sumsum`, checksum of the summary behind this field.
    pub sumsum: U32,
    /// `ss_magic`, always [`Self::MAGIC`].
    pub magic: U32,
    /// `ss_bytes` of this head.
    pub bytes: U16,
    /// `ss_flags`, see [`flag`].
    pub flags: U16,
    /// `ss_seq`, counts segments as they are written.
    pub seq: U64,
    /// `ss_create`, in seconds since 1970.
    pub create: U64,
    /// `ss_next`, first block of the segment where logs go on when this one is full.
    pub next: U64,
    /// `ss_nblocks`, blocks of the log with its summary.
    pub nblocks: U32,
    /// `ss_nfinfo`, files in it.
    pub nfinfo: U32,
    /// `ss_sumbytes` of the summary.
    pub sumbytes: U32,
    /// `ss_pad`.
    pub pad: U32,
    /// `ss_cno`, checkpoint that it belongs to. Logs of before Linux 3.6 have it not.
    pub cno: U64,
}
const _: () = assert!(size_of::<SummaryHead>() == SummaryHead::BYTES);
const _: () = assert!(offset_of!(SummaryHead, cno) == 56);

/// Bits of `ss_flags`.
pub mod flag {
    /// `NILFS_SS_LOGBGN`: first of the logs that belong together.
    pub const BEGIN: u16 = 1;
    /// `NILFS_SS_LOGEND`: last of them.
    pub const END: u16 = 2;
    /// `NILFS_SS_SR`: ends with a super root.
    pub const SUPER_ROOT: u16 = 4;
    /// `NILFS_SS_SYNDT`: only data of one file, of an fdatasync.
    pub const DATA_SYNC: u16 = 8;
    /// `NILFS_SS_GC`: written by the cleaner.
    pub const CLEANER: u16 = 16;
}

/// A file in a log. `struct nilfs_finfo`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct RawFile {
    /// `fi_ino`.
    ino: U64,
    /// `fi_cno`, of the files' version; 0 in those whose inodes stand in the super root.
    cno: U64,
    /// `fi_nblocks`, blocks in this log.
    nblocks: U32,
    /// `fi_ndatablk`, those of them that are data.
    ndatablk: U32,
}
const _: () = assert!(size_of::<RawFile>() == 24);

impl SummaryHead {
    /// Bytes with a checkpoint's number.
    pub const BYTES: usize = 64;
    /// Bytes without it.
    pub const BYTES_OLD: usize = 56;
    /// `NILFS_SEGSUM_MAGIC`.
    pub const MAGIC: u32 = 0x1eaf_fa11;

    /// All zero.
    pub fn zeroed() -> SummaryHead {
        SummaryHead::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// The head in a log's first block.
    pub fn load(block: &[u8]) -> SummaryHead {
        view::<SummaryHead>(block, 0).copied().unwrap_or_else(SummaryHead::zeroed)
    }

    /// Has it all of these flags?
    pub fn has(&self, flags: u16) -> bool {
        self.flags.get() & flags == flags
    }

    /// Is the checksum of the log that has this head at block `start` right? Errors: `Io`.
    pub fn has_data_sum(&self, view: &dyn View, g: &Geometry, start: u64) -> FsResult<bool> {
        let skipped = wide(size_of::<U32>());
        let bytes = g.byte_of(u64::from(self.nblocks.get())).saturating_sub(skipped);
        let sums = (g.crc_seed, self.datasum.get());
        view.has_crc32(g.byte_of(start) + skipped, bytes, sums)
    }

    /// Blocks of the summary.
    pub fn summary_blocks(&self, g: &Geometry) -> u64 {
        u64::from(self.sumbytes.get()).div_ceil(wide(g.block_bytes()))
    }
}

/// Checksum of a log's blocks, the first field of the first left out: `ss_datasum`.
pub fn data_sum<'a>(seed: u32, blocks: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut skip = size_of::<U32>();
    blocks.into_iter().fold(seed, |sum, block| {
        let bytes = block.get(std::mem::take(&mut skip)..).unwrap_or(&[]);
        crc32_le(sum, bytes)
    })
}

/// Checksum of a summary of `sumbytes` bytes: `ss_sumsum`.
pub fn summary_sum(seed: u32, summary: &[u8], sumbytes: u64) -> u32 {
    crc32_le(seed, summary.get(8..index(sumbytes)).unwrap_or(&[]))
}

/// A block of a file in a log. `union nilfs_binfo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// Its virtual block number; 0 in the DAT.
    pub virtual_block: u64,
    /// Its place in the file, for nodes of the DAT their first key; 0 in nodes of other files,
    /// where no log has it.
    pub offset: u64,
    /// Level in the block map, 0 for data; known of data and of nodes of the DAT.
    pub level: u8,
}

/// A file in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileInfo {
    /// Inode number.
    pub ino: u64,
    /// Checkpoint of the version; 0 in files whose inodes stand in the super root.
    pub cno: u64,
    /// Blocks of data.
    pub data: Vec<BlockInfo>,
    /// Nodes of its block map.
    pub nodes: Vec<BlockInfo>,
}

impl FileInfo {
    /// Bytes of an item of data.
    pub fn data_bytes(ino: u64) -> usize {
        if ino == ino::DAT { 8 } else { 16 }
    }
    /// Bytes of an item of a node.
    pub fn node_bytes(ino: u64) -> usize {
        if ino == ino::DAT { 16 } else { 8 }
    }
}

/// Where items of a summary stand, one after the other: the one rule for readers and writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    at: usize,
    block_bytes: usize,
}

/// Bytes of a file's head.
pub const FILE_BYTES: usize = size_of::<RawFile>();

impl Cursor {
    /// Behind a header of `head_bytes` bytes.
    pub const fn new(head_bytes: usize, block_bytes: usize) -> Cursor {
        Cursor { at: head_bytes, block_bytes }
    }
    /// Position of the next item, which has `bytes` bytes; the cursor moves behind it.
    pub const fn place(&mut self, bytes: usize) -> usize {
        if self.at % self.block_bytes + bytes > self.block_bytes {
            self.at = self.at.next_multiple_of(self.block_bytes);
        }
        self.at += bytes;
        self.at - bytes
    }
    /// Bytes up to here.
    pub const fn bytes(&self) -> usize {
        self.at
    }
}

/// A whole summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The head.
    pub head: SummaryHead,
    /// The files, in order.
    pub files: Vec<FileInfo>,
}

impl Summary {
    /// Reads the summary in `bytes`, its blocks one after the other. `at`: byte address, for the
    /// error.
    ///
    /// Errors: more items than the log has blocks, or than the summary has room for.
    pub fn load(bytes: &[u8], g: &Geometry, at: u64) -> Result<Summary, Corruption> {
        let head = SummaryHead::load(bytes);
        let wrong = |field, found: u64, expected: String| Corruption {
            structure: "nilfs2 log summary",
            field,
            at,
            found,
            expected,
        };
        let mut cursor = Cursor::new(usize::from(head.bytes.get()), g.block_bytes());
        let mut left = u64::from(head.nblocks.get());
        let mut files = Vec::new();
        for _ in 0..head.nfinfo.get() {
            let short = |c: &Cursor| {
                wrong("ss_sumbytes", wide(bytes.len()), format!("{} or more", c.bytes()))
            };
            let place = cursor.place(FILE_BYTES);
            let raw = view::<RawFile>(bytes, place).ok_or_else(|| short(&cursor))?;
            let (blocks, data) = (u64::from(raw.nblocks.get()), u64::from(raw.ndatablk.get()));
            if blocks == 0 || blocks > left || data > blocks {
                let expected = format!("1 to {left}, {data} of them data");
                return Err(wrong("fi_nblocks", blocks, expected));
            }
            left -= blocks;
            let ino = raw.ino.get();
            let mut file =
                FileInfo { ino, cno: raw.cno.get(), data: Vec::new(), nodes: Vec::new() };
            for n in 0..blocks {
                let is_data = n < data;
                let bytes_of = if is_data { FileInfo::data_bytes } else { FileInfo::node_bytes };
                let place = cursor.place(bytes_of(ino));
                let item = bytes.get(place..).and_then(|rest| info(rest, ino, is_data));
                let list = if is_data { &mut file.data } else { &mut file.nodes };
                list.push(item.ok_or_else(|| short(&cursor))?);
            }
            files.push(file);
        }
        Ok(Summary { head, files })
    }

    /// Blocks that hold it: `head` with lengths and its own checksum filled in, then the files.
    /// What covers the whole log ([`data_sum`]) is the caller's.
    pub fn store(&self, g: &Geometry) -> Vec<u8> {
        let mut cursor = Cursor::new(SummaryHead::BYTES, g.block_bytes());
        let mut out = Vec::with_capacity(g.block_bytes());
        let mut put = |bytes: &[u8]| {
            let at = cursor.place(bytes.len());
            out.resize(at, 0);
            out.extend_from_slice(bytes);
        };
        for f in &self.files {
            let raw = RawFile {
                ino: f.ino.into(),
                cno: f.cno.into(),
                nblocks: lo32(wide(f.data.len() + f.nodes.len())).into(),
                ndatablk: lo32(wide(f.data.len())).into(),
            };
            put(raw.as_bytes());
            for (list, is_data) in [(&f.data, true), (&f.nodes, false)] {
                for b in list {
                    let (words, n) = item(b, f.ino, is_data);
                    put(words.as_bytes().get(..n).unwrap_or(&[]));
                }
            }
        }
        out.resize(cursor.bytes().next_multiple_of(g.block_bytes()), 0);
        let mut head = self.head;
        head.magic = SummaryHead::MAGIC.into();
        head.bytes = super::lo16(wide(SummaryHead::BYTES)).into();
        head.nfinfo = lo32(wide(self.files.len())).into();
        head.sumbytes = lo32(wide(cursor.bytes())).into();
        head.write_to_prefix(&mut out).expect("a block has room for the head");
        head.sumsum = summary_sum(g.crc_seed, &out, wide(cursor.bytes())).into();
        head.write_to_prefix(&mut out).expect("a block has room for the head");
        out
    }
}

/// Sets `ss_datasum` in a log's first block.
pub fn set_data_sum(first: &mut [u8], sum: u32) {
    if let Some(head) = super::view_mut::<SummaryHead>(first, 0) {
        head.datasum = sum.into();
    }
}

fn info(bytes: &[u8], ino: u64, is_data: bool) -> Option<BlockInfo> {
    let word = |n: usize| view::<U64>(bytes, n * 8).map(|w| w.get());
    Some(match (ino == ino::DAT, is_data) {
        (true, true) => BlockInfo { virtual_block: 0, offset: word(0)?, level: 0 },
        (true, false) => {
            let level = super::lo8(word(1)?);
            BlockInfo { virtual_block: 0, offset: word(0)?, level }
        }
        (false, true) => BlockInfo { virtual_block: word(0)?, offset: word(1)?, level: 0 },
        (false, false) => BlockInfo { virtual_block: word(0)?, offset: 0, level: 0 },
    })
}

/// The words of an item, and how many bytes of them count.
fn item(b: &BlockInfo, ino: u64, is_data: bool) -> ([U64; 2], usize) {
    let (words, n) = match (ino == ino::DAT, is_data) {
        (true, true) => ([b.offset, 0], FileInfo::data_bytes(ino)),
        (true, false) => ([b.offset, b.level.into()], FileInfo::node_bytes(ino)),
        (false, true) => ([b.virtual_block, b.offset], FileInfo::data_bytes(ino)),
        (false, false) => ([b.virtual_block, 0], FileInfo::node_bytes(ino)),
    };
    (words.map(U64::from), n)
}
