//! Inodes: the first node of a file.
//!
//! Picture:    360 bytes of fields | 923 words | 5 node ids. The words are, in this order: extra
//!             fields (`extra_isize` bytes, with EXTRA_ATTR) | addresses of data, or a reserved
//!             word and inline data or names | attributes (`inline_xattr_size` words).
//! Source:     `struct f2fs_inode`, `get_extra_isize`, `inline_xattr_addr`, `inline_data_addr`.

use std::mem::offset_of;

use wp_base::{Corruption, DeviceNumber};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Block, Footer, Node, Shape, index};

/// Three words that cache the file's largest run. `struct f2fs_extent`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct LargestExtent {
    /// `fofs`, first block in the file.
    pub fofs: U32,
    /// `blk`, its address.
    pub blk: U32,
    /// `len` in blocks; 0: none.
    pub len: U32,
}

/// A time stamp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Stamp {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds in the second.
    pub nanos: u32,
}

/// An inode. `struct f2fs_inode`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Inode {
    /// `i_mode`: type and permissions, as ext4 has them.
    pub mode: U16,
    /// `i_advise`, see [`advise`].
    pub advise: u8,
    /// `i_inline`, see [`inline`].
    pub inline: u8,
    /// `i_uid`.
    pub uid: U32,
    /// `i_gid`.
    pub gid: U32,
    /// `i_links`.
    pub links: U32,
    /// `i_size` in bytes.
    pub size: U64,
    /// `i_blocks`: blocks of nodes and data, this one included.
    pub blocks: U64,
    /// `i_atime`, seconds.
    pub atime: U64,
    /// `i_ctime`, seconds.
    pub ctime: U64,
    /// `i_mtime`, seconds.
    pub mtime: U64,
    /// `i_atime_nsec`.
    pub atime_nsec: U32,
    /// `i_ctime_nsec`.
    pub ctime_nsec: U32,
    /// `i_mtime_nsec`.
    pub mtime_nsec: U32,
    /// `i_generation`.
    pub generation: U32,
    /// `i_current_depth`: levels of a directory; of a regular file `i_gc_failures` in its low half.
    pub current_depth: U32,
    /// `i_xattr_nid`: node with further attributes; 0: none.
    pub xattr_nid: U32,
    /// `i_flags`, see [`flag`].
    pub flags: U32,
    /// `i_pino`: the directory that has its name.
    pub pino: U32,
    /// `i_namelen` of `name`, bytes.
    pub namelen: U32,
    /// `i_name`: its name, so that recovery can put it back.
    pub name: [u8; 255],
    /// `i_dir_level`: a directory's hash table starts that many times doubled.
    pub dir_level: u8,
    /// `i_ext`.
    pub ext: LargestExtent,
    words: [U32; 923],
    nids: [U32; 5],
}
const _: () = assert!(size_of::<Inode>() == Node::BODY_BYTES);
const _: () = assert!(offset_of!(Inode, current_depth) == 72);
const _: () = assert!(offset_of!(Inode, name) == 92);
const _: () = assert!(offset_of!(Inode, dir_level) == 347);
const _: () = assert!(offset_of!(Inode, words) == Inode::WORDS_AT);

/// Fields in the first of an inode's words, as far as `extra_isize` reaches.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InodeExtra {
    /// `i_extra_isize`, bytes of these fields.
    pub extra_isize: U16,
    /// `i_inline_xattr_size`, words for attributes, with FLEXIBLE_INLINE_XATTR.
    pub inline_xattr_size: U16,
    /// `i_projid`.
    pub projid: U32,
    /// `i_inode_checksum` of the whole block.
    pub inode_checksum: U32,
    /// `i_crtime`, seconds, when it was made.
    pub crtime: U64,
    /// `i_crtime_nsec`.
    pub crtime_nsec: U32,
    /// `i_compr_blocks`, blocks that compression saved.
    pub compr_blocks: U64,
    /// `i_compress_algorithm`.
    pub compress_algorithm: u8,
    /// `i_log_cluster_size`, blocks of a cluster.
    pub log_cluster_size: u8,
    /// `i_compress_flag`.
    pub compress_flag: U16,
}
const _: () = assert!(size_of::<InodeExtra>() == InodeExtra::BYTES);
const _: () = assert!(offset_of!(InodeExtra, inode_checksum) == 8);

impl InodeExtra {
    /// Size of all of them. `F2FS_TOTAL_EXTRA_ATTR_SIZE`.
    pub const BYTES: usize = 36;
}

/// Bits of `i_inline`.
pub mod inline {
    /// `F2FS_INLINE_XATTR`: there is room for attributes.
    pub const XATTR: u8 = 0x01;
    /// `F2FS_INLINE_DATA`.
    pub const DATA: u8 = 0x02;
    /// `F2FS_INLINE_DENTRY`: names are here.
    pub const DENTRY: u8 = 0x04;
    /// `F2FS_DATA_EXIST`: inline data is not all zero.
    pub const DATA_EXIST: u8 = 0x08;
    /// `F2FS_INLINE_DOTS`: `.` and `..` are not written.
    pub const DOTS: u8 = 0x10;
    /// `F2FS_EXTRA_ATTR`: there are [`super::InodeExtra`] fields.
    pub const EXTRA_ATTR: u8 = 0x20;
    /// `F2FS_PIN_FILE`: never moved.
    pub const PIN_FILE: u8 = 0x40;
    /// `F2FS_COMPRESS_RELEASED`.
    pub const COMPRESS_RELEASED: u8 = 0x80;
}

/// Bits of `i_advise`. `FADVISE_*_BIT`.
pub mod advise {
    /// Goes to the cold data log.
    pub const COLD: u8 = 0x01;
    /// `i_pino` may be wrong: an fsync makes a checkpoint.
    pub const LOST_PINO: u8 = 0x02;
    /// Contents are encrypted.
    pub const ENCRYPT: u8 = 0x04;
    /// So are the name in the inode.
    pub const ENC_NAME: u8 = 0x08;
    /// Blocks lie beyond the end: recovery does not change the size.
    pub const KEEP_SIZE: u8 = 0x10;
    /// Goes to the hot data log.
    pub const HOT: u8 = 0x20;
    /// Sealed with a Merkle tree.
    pub const VERITY: u8 = 0x40;
    /// Was truncated: recovery must look at all (6.0 and later).
    pub const TRUNC: u8 = 0x80;
}

/// Bits of `i_flags`. `F2FS_*_FL`.
pub mod flag {
    /// Compressed.
    pub const COMPR: u32 = 0x4;
    /// Written synchronously.
    pub const SYNC: u32 = 0x8;
    /// Never changed.
    pub const IMMUTABLE: u32 = 0x10;
    /// Only appended to.
    pub const APPEND: u32 = 0x20;
    /// Not dumped.
    pub const NODUMP: u32 = 0x40;
    /// No time of access.
    pub const NOATIME: u32 = 0x80;
    /// Not compressed.
    pub const NOCOMP: u32 = 0x400;
    /// Hashed directory.
    pub const INDEX: u32 = 0x1000;
    /// Directory written synchronously.
    pub const DIRSYNC: u32 = 0x1_0000;
    /// Project is inherited.
    pub const PROJINHERIT: u32 = 0x2000_0000;
    /// Directory that ignores case.
    pub const CASEFOLD: u32 = 0x4000_0000;
}

/// Bits of `i_mode` that tell the type.
pub mod mode {
    /// `S_IFMT`, mask of the type.
    pub const TYPE: u16 = 0xF000;
    /// `S_IFIFO`.
    pub const FIFO: u16 = 0x1000;
    /// `S_IFCHR`.
    pub const CHAR_DEVICE: u16 = 0x2000;
    /// `S_IFDIR`.
    pub const DIR: u16 = 0x4000;
    /// `S_IFBLK`.
    pub const BLOCK_DEVICE: u16 = 0x6000;
    /// `S_IFREG`.
    pub const FILE: u16 = 0x8000;
    /// `S_IFLNK`.
    pub const SYMLINK: u16 = 0xA000;
    /// `S_IFSOCK`.
    pub const SOCKET: u16 = 0xC000;
}

impl Inode {
    /// Where its words begin, in bytes. `offsetof(struct f2fs_inode, i_addr)`.
    pub const WORDS_AT: usize = 360;
    /// `DEF_ADDRS_PER_INODE`.
    pub const WORDS: u32 = 923;
    /// `DEF_NIDS_PER_INODE`: two direct nodes, two indirect, one double indirect.
    pub const NIDS: u32 = 5;
    /// `DEFAULT_INLINE_XATTR_ADDRS`, words.
    pub const XATTR_WORDS: u32 = 50;
    /// `DEF_INLINE_RESERVED_SIZE`, words before inline data.
    pub const INLINE_RESERVED: u32 = 1;
    /// `F2FS_NAME_LEN`.
    pub const NAME_MAX: usize = 255;

    /// The inode in a block.
    pub fn of(block: &Block) -> &Inode {
        Inode::ref_from_prefix(block).expect("a block is longer").0
    }

    /// The inode in a block, to change it.
    pub fn of_mut(block: &mut Block) -> &mut Inode {
        Inode::mut_from_prefix(block).expect("a block is longer").0
    }

    /// Type bits of its mode.
    pub fn kind(&self) -> u16 {
        self.mode.get() & mode::TYPE
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.kind() == mode::DIR
    }

    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.kind() == mode::FILE
    }

    /// Is it a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.kind() == mode::SYMLINK
    }

    /// Has it all `bits` of [`inline`]?
    pub fn has_inline(&self, bits: u8) -> bool {
        self.inline & bits == bits
    }

    /// Sets or clears `bits` of [`inline`].
    pub fn set_inline(&mut self, bits: u8, to: bool) {
        self.inline = if to { self.inline | bits } else { self.inline & !bits };
    }

    /// Has it all `bits` of [`advise`]?
    pub fn has_advice(&self, bits: u8) -> bool {
        self.advise & bits == bits
    }

    /// Its own name as far as it is there.
    pub fn own_name(&self) -> &[u8] {
        self.name.get(..index(self.namelen.get())).unwrap_or(&self.name)
    }

    /// Sets name and length. Panics beyond 255 bytes.
    pub fn set_own_name(&mut self, name: &[u8]) {
        let len = name.len();
        self.name.get_mut(..len).expect("a name has 255 bytes or less").copy_from_slice(name);
        self.namelen = super::count(len).into();
    }

    /// Time of access.
    pub fn accessed(&self) -> Stamp {
        stamp(self.atime, self.atime_nsec)
    }

    /// Time of the last change of the inode.
    pub fn changed(&self) -> Stamp {
        stamp(self.ctime, self.ctime_nsec)
    }

    /// Time of the last change of contents.
    pub fn modified(&self) -> Stamp {
        stamp(self.mtime, self.mtime_nsec)
    }

    /// Its extra fields; meaningful as far as [`Self::extra_bytes`] reaches.
    pub fn extra(&self) -> &InodeExtra {
        InodeExtra::ref_from_prefix(self.words.as_bytes()).expect("the words are more").0
    }

    /// Its extra fields, to change them.
    pub fn extra_mut(&mut self) -> &mut InodeExtra {
        InodeExtra::mut_from_prefix(self.words.as_mut_bytes()).expect("the words are more").0
    }

    /// Bytes of extra fields; 0 without them. `get_extra_isize`.
    pub fn extra_bytes(&self) -> u32 {
        if self.has_inline(inline::EXTRA_ATTR) { self.extra().extra_isize.get().into() } else { 0 }
    }

    /// Does the extra field that ends `end` bytes into [`InodeExtra`] exist? `F2FS_FITS_IN_INODE`.
    pub fn has_extra(&self, end: usize) -> bool {
        super::count(end) <= self.extra_bytes()
    }

    /// Where in the block the checksum stands, if there is room for one.
    pub fn checksum_place(&self) -> Option<usize> {
        let at = offset_of!(InodeExtra, inode_checksum);
        self.has_extra(at + 4).then_some(Inode::WORDS_AT + at)
    }

    /// When it was made, if that is kept.
    pub fn created(&self) -> Option<Stamp> {
        let end = offset_of!(InodeExtra, crtime_nsec) + 4;
        self.has_extra(end).then(|| stamp(self.extra().crtime, self.extra().crtime_nsec))
    }

    /// Word `n` of its 923, whatever it means; 0 beyond them.
    pub fn word(&self, n: u32) -> u32 {
        self.words.get(index(n)).map_or(0, |w| w.get())
    }

    /// Address `slot` of data. The shape says how many there are.
    pub fn addr(&self, shape: &Shape, slot: u32) -> u32 {
        self.word(shape.extra_words.saturating_add(slot))
    }

    /// Sets address `slot` of data. Panics beyond the words.
    pub fn set_addr(&mut self, shape: &Shape, slot: u32, to: u32) {
        let n = index(shape.extra_words + slot);
        *self.words.get_mut(n).expect("a place of the inode") = to.into();
    }

    /// Node id `n` of its five; 0 beyond them.
    pub fn nid(&self, n: u32) -> u32 {
        self.nids.get(index(n)).map_or(0, |w| w.get())
    }

    /// Sets node id `n` of its five. Panics beyond them.
    pub fn set_nid(&mut self, n: u32, to: u32) {
        *self.nids.get_mut(index(n)).expect("five of them") = to.into();
    }

    /// Room of inline data or names. `inline_data_addr`, `MAX_INLINE_DATA`.
    pub fn inline_area(&self, shape: &Shape) -> &[u8] {
        self.words.as_bytes().get(shape.inline_range()).unwrap_or(&[])
    }

    /// Room of inline data or names, to change it.
    pub fn inline_area_mut(&mut self, shape: &Shape) -> &mut [u8] {
        self.words.as_mut_bytes().get_mut(shape.inline_range()).unwrap_or(&mut [])
    }

    /// Room of attributes. `inline_xattr_addr`.
    pub fn xattr_area(&self, shape: &Shape) -> &[u8] {
        self.words.as_bytes().get(shape.xattr_range()).unwrap_or(&[])
    }

    /// Room of attributes, to change it.
    pub fn xattr_area_mut(&mut self, shape: &Shape) -> &mut [u8] {
        self.words.as_mut_bytes().get_mut(shape.xattr_range()).unwrap_or(&mut [])
    }

    /// Are its words addresses of data? Of a device they are its number, of pipes and sockets
    /// nothing.
    pub fn has_addresses(&self) -> bool {
        matches!(self.mode.get() & mode::TYPE, mode::FILE | mode::DIR | mode::SYMLINK)
    }

    /// Number of a device; 0 of other files. `__get_inode_rdev`.
    pub fn device(&self, shape: &Shape) -> DeviceNumber {
        match matches!(self.mode.get() & mode::TYPE, mode::CHAR_DEVICE | mode::BLOCK_DEVICE) {
            true => DeviceNumber::of_words(self.addr(shape, 0), self.addr(shape, 1)),
            false => DeviceNumber::default(),
        }
    }

    /// Sets it. `__set_inode_rdev`.
    pub fn set_device(&mut self, shape: &Shape, device: DeviceNumber) {
        let (narrow, wide) = device.words();
        self.set_addr(shape, 0, narrow);
        self.set_addr(shape, 1, wide);
    }

    /// Checks what reading an inode checks. `sb_feature`: of the super block; `at`: byte address,
    /// for the error. `sanity_check_inode`.
    pub fn verify(block: &Block, sb_feature: u32, at: u64) -> Result<(), Corruption> {
        let inode = Inode::of(block);
        let footer = Footer::of(block);
        let wrong = |field, found: u64, expected: String| {
            Err(Corruption { structure: "f2fs inode", field, at, found, expected })
        };
        if inode.blocks.get() == 0 {
            return wrong("i_blocks", 0, "1 or more".to_owned());
        }
        if !footer.is_inode() {
            let expected = format!("{}, as footer.nid", footer.nid.get());
            return wrong("footer.ino", footer.ino.get().into(), expected);
        }
        if inode.xattr_nid == footer.ino {
            let expected = "another node than the inode".to_owned();
            return wrong("i_xattr_nid", inode.xattr_nid.get().into(), expected);
        }
        if inode.has_inline(inline::EXTRA_ATTR) {
            if sb_feature & super::feature::EXTRA_ATTR == 0 {
                let expected = "no extra fields without extra_attr".to_owned();
                return wrong("i_inline", inode.inline.into(), expected);
            }
            let extra = inode.extra_bytes();
            if !extra.is_multiple_of(4) || index(extra) > InodeExtra::BYTES {
                let expected = format!("a multiple of 4, at most {}", InodeExtra::BYTES);
                return wrong("i_extra_isize", extra.into(), expected);
            }
        }
        if sb_feature & super::feature::FLEXIBLE_INLINE_XATTR != 0 {
            if !inode.has_inline(inline::EXTRA_ATTR) {
                let expected = "extra fields, with flexible_inline_xattr".to_owned();
                return wrong("i_inline", inode.inline.into(), expected);
            }
            let words: u32 = inode.extra().inline_xattr_size.get().into();
            let least = if inode.has_inline(inline::XATTR) { Shape::XATTR_WORDS_MIN } else { 0 };
            if !(least..=Shape::XATTR_WORDS_MAX).contains(&words) {
                let expected = format!("{least} to {} words", Shape::XATTR_WORDS_MAX);
                return wrong("i_inline_xattr_size", words.into(), expected);
            }
        }
        let casefold = sb_feature & super::feature::CASEFOLD != 0;
        if inode.flags.get() & flag::CASEFOLD != 0 && !casefold {
            let expected = "no casefold flag without the feature".to_owned();
            return wrong("i_flags", inode.flags.get().into(), expected);
        }
        let shape = Shape::of(inode, sb_feature);
        if inode.has_inline(inline::DATA) && !inode.is_file() && !inode.is_symlink() {
            let expected = "inline data in files and links only".to_owned();
            return wrong("i_inline", inode.inline.into(), expected);
        }
        if inode.has_inline(inline::DENTRY) && !inode.is_dir() {
            return wrong(
                "i_inline",
                inode.inline.into(),
                "inline names in directories".to_owned(),
            );
        }
        if inode.has_inline(inline::DATA)
            && inode.size.get() > super::wide(shape.inline_range().len())
            && !inode.is_dir()
        {
            let expected = format!("at most {} bytes inline", shape.inline_range().len());
            return wrong("i_size", inode.size.get(), expected);
        }
        Ok(())
    }
}

fn stamp(secs: U64, nanos: U32) -> Stamp {
    Stamp { secs: secs.get().cast_signed(), nanos: nanos.get() }
}
