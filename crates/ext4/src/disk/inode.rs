//! Inodes: 128 bytes, and in larger ones the fields that `i_extra_isize` announces.

use std::mem::offset_of;

use wp_base::DeviceNumber;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{hi16, hi32, lo16, lo32};

/// The first 128 bytes of an inode. `struct ext4_inode`, with its Linux variants of the unions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Inode {
    /// `i_mode`: type and permissions.
    pub mode: U16,
    /// `i_uid`, low half; see [`Self::uid`].
    pub uid_lo: U16,
    /// `i_size_lo`, bytes; see [`Self::size`].
    pub size_lo: U32,
    /// `i_atime`, seconds.
    pub atime: U32,
    /// `i_ctime`, seconds.
    pub ctime: U32,
    /// `i_mtime`, seconds.
    pub mtime: U32,
    /// `i_dtime`: when it was deleted, in seconds; of an orphan the next inode in the chain.
    pub dtime: U32,
    /// `i_gid`, low half.
    pub gid_lo: U16,
    /// `i_links_count`.
    pub links_count: U16,
    /// `i_blocks_lo`, in sectors of 512 bytes, or in blocks with [`flag::HUGE_FILE`].
    pub blocks_lo: U32,
    /// `i_flags`, see [`flag`].
    pub flags: U32,
    /// `osd1.linux1.l_i_version`, low half of the change counter.
    pub version_lo: U32,
    /// `i_block`: extent root, 15 block pointers, a short symbolic link, or inline data.
    pub block: [u8; 60],
    /// `i_generation`.
    pub generation: U32,
    /// `i_file_acl_lo`, block of extended attributes.
    pub file_acl_lo: U32,
    /// `i_size_high`.
    pub size_hi: U32,
    /// `i_obso_faddr`, unused.
    pub obso_faddr: U32,
    /// `osd2.linux2.l_i_blocks_high`.
    pub blocks_hi: U16,
    /// `osd2.linux2.l_i_file_acl_high`.
    pub file_acl_hi: U16,
    /// `osd2.linux2.l_i_uid_high`.
    pub uid_hi: U16,
    /// `osd2.linux2.l_i_gid_high`.
    pub gid_hi: U16,
    /// `osd2.linux2.l_i_checksum_lo`.
    pub checksum_lo: U16,
    /// `osd2.linux2.l_i_reserved`.
    pub reserved: U16,
}
const _: () = assert!(size_of::<Inode>() == Inode::BYTES);
const _: () = assert!(offset_of!(Inode, block) == 0x28);
const _: () = assert!(offset_of!(Inode, generation) == 0x64);
const _: () = assert!(offset_of!(Inode, blocks_hi) == 0x74);
const _: () = assert!(offset_of!(Inode, checksum_lo) == Inode::CHECKSUM_LO_AT);

/// Bytes 128 to 160 of a large inode. A field exists only within `extra_isize` bytes from here.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InodeExtra {
    /// `i_extra_isize`, bytes in use beyond 128, these two included. In-inode attributes follow.
    pub extra_isize: U16,
    /// `i_checksum_hi`.
    pub checksum_hi: U16,
    /// `i_ctime_extra`: nanoseconds << 2 | two more bits of the seconds.
    pub ctime_extra: U32,
    /// `i_mtime_extra`.
    pub mtime_extra: U32,
    /// `i_atime_extra`.
    pub atime_extra: U32,
    /// `i_crtime`, seconds, when it was made.
    pub crtime: U32,
    /// `i_crtime_extra`.
    pub crtime_extra: U32,
    /// `i_version_hi`.
    pub version_hi: U32,
    /// `i_projid`.
    pub projid: U32,
}
const _: () = assert!(size_of::<InodeExtra>() == InodeExtra::BYTES);
const _: () = assert!(offset_of!(InodeExtra, crtime) == 0x10);

/// Bits of `i_flags`.
pub mod flag {
    /// `EXT4_COMPR_FL`: compressed, which no kernel does.
    pub const COMPR: u32 = 0x4;
    /// `EXT4_SYNC_FL`.
    pub const SYNC: u32 = 0x8;
    /// `EXT4_IMMUTABLE_FL`.
    pub const IMMUTABLE: u32 = 0x10;
    /// `EXT4_APPEND_FL`.
    pub const APPEND: u32 = 0x20;
    /// `EXT4_NODUMP_FL`.
    pub const NODUMP: u32 = 0x40;
    /// `EXT4_NOATIME_FL`.
    pub const NOATIME: u32 = 0x80;
    /// `EXT4_ENCRYPT_FL`.
    pub const ENCRYPT: u32 = 0x800;
    /// `EXT4_INDEX_FL`: the directory has a hash tree.
    pub const INDEX: u32 = 0x1000;
    /// `EXT4_JOURNAL_DATA_FL`: data go through the journal.
    pub const JOURNAL_DATA: u32 = 0x4000;
    /// `EXT4_DIRSYNC_FL`.
    pub const DIRSYNC: u32 = 0x1_0000;
    /// `EXT4_TOPDIR_FL`: subdirectories are unrelated and are spread out.
    pub const TOPDIR: u32 = 0x2_0000;
    /// `EXT4_HUGE_FILE_FL`: `i_blocks` counts blocks, not sectors.
    pub const HUGE_FILE: u32 = 0x4_0000;
    /// `EXT4_EXTENTS_FL`: `i_block` is the root of an extent tree.
    pub const EXTENTS: u32 = 0x8_0000;
    /// `EXT4_VERITY_FL`.
    pub const VERITY: u32 = 0x10_0000;
    /// `EXT4_EA_INODE_FL`: holds the value of a large attribute.
    pub const EA_INODE: u32 = 0x20_0000;
    /// `EXT4_EOFBLOCKS_FL`: blocks are allocated beyond the end (kernels before 5.7).
    pub const EOFBLOCKS: u32 = 0x40_0000;
    /// `EXT4_INLINE_DATA_FL`: data lie in `i_block` and in an attribute.
    pub const INLINE_DATA: u32 = 0x1000_0000;
    /// `EXT4_PROJINHERIT_FL`.
    pub const PROJINHERIT: u32 = 0x2000_0000;
    /// `EXT4_CASEFOLD_FL`.
    pub const CASEFOLD: u32 = 0x4000_0000;
}

/// Bits of `i_mode`.
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
    /// Mask of the permissions, with setuid, setgid and sticky.
    pub const PERMISSIONS: u16 = 0x0FFF;
}

/// A point in time as inodes hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl Stamp {
    /// From the 32-bit field and its extra word (zero if the inode has none).
    ///
    /// The two low bits of `extra` extend the *signed* 32-bit seconds upwards, so that the range is
    /// 1901 to 2446. Nanoseconds of a second or more are an error of the image; they are passed on.
    pub fn decode(secs: U32, extra: U32) -> Stamp {
        let low = i64::from(i32::from_le_bytes(secs.get().to_le_bytes()));
        let epoch = i64::from(extra.get() & 3) << 32;
        Stamp { secs: low + epoch, nanos: extra.get() >> 2 }
    }

    /// The 32-bit field and the extra word.
    pub fn encode(self) -> (U32, U32) {
        let secs = u64::from_le_bytes(self.secs.to_le_bytes());
        let low = lo32(secs);
        // What decoding the low word alone would lose, in units of 2^32 seconds.
        let rest = self.secs.wrapping_sub(i64::from(i32::from_le_bytes(low.to_le_bytes())));
        let epoch = hi32(u64::from_le_bytes(rest.to_le_bytes())) & 3;
        (low.into(), (self.nanos << 2 | epoch).into())
    }
}

impl Inode {
    /// Its size in bytes.
    pub const BYTES: usize = 128;
    /// Where the low half of the checksum stands.
    pub const CHECKSUM_LO_AT: usize = 0x7C;
    /// Pointers in `block` of a file without extents: 12 direct ones and three indirect.
    pub const DIRECT_BLOCKS: u32 = 12;
    /// Longest symbolic link that fits into `block` with its terminating zero.
    pub const FAST_SYMLINK_MAX: usize = 59;

    /// All zero.
    pub fn zeroed() -> Inode {
        Inode::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// A copy of the first 128 of `bytes`. `None` if there are fewer.
    pub fn load(bytes: &[u8]) -> Option<Inode> {
        Inode::read_from_prefix(bytes).ok().map(|(inode, _)| inode)
    }

    /// The size in bytes of the inode `raw`; 0 if those are too few bytes.
    pub fn size_in(raw: &[u8]) -> u64 {
        Inode::ref_from_prefix(raw).map_or(0, |(inode, _)| inode.size())
    }

    /// Writes it over the first 128 bytes of `out`. Panics if there are fewer.
    pub fn store(&self, out: &mut [u8]) {
        self.write_to_prefix(out).expect("the caller gives a whole inode");
    }

    /// The type bits of `mode`, see [`mode`].
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
    /// Has it all these flags?
    pub fn has(&self, flags: u32) -> bool {
        self.flags.get() & flags == flags
    }
    /// Owner.
    pub fn uid(&self) -> u32 {
        u32::from(self.uid_lo.get()) | u32::from(self.uid_hi.get()) << 16
    }
    /// Group.
    pub fn gid(&self) -> u32 {
        u32::from(self.gid_lo.get()) | u32::from(self.gid_hi.get()) << 16
    }
    /// Sets owner and group.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        self.uid_lo = lo16(uid).into();
        self.uid_hi = hi16(uid).into();
        self.gid_lo = lo16(gid).into();
        self.gid_hi = hi16(gid).into();
    }
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.size_lo.get()) | u64::from(self.size_hi.get()) << 32
    }
    /// Sets the size in bytes.
    pub fn set_size(&mut self, bytes: u64) {
        self.size_lo = lo32(bytes).into();
        self.size_hi = hi32(bytes).into();
    }
    /// The 48-bit block count as stored: sectors, or blocks with [`flag::HUGE_FILE`].
    pub fn blocks_raw(&self) -> u64 {
        u64::from(self.blocks_lo.get()) | u64::from(self.blocks_hi.get()) << 32
    }
    /// Space in use, in sectors of 512 bytes. `sectors_per_block` is the block size in sectors.
    pub fn sectors(&self, sectors_per_block: u32) -> u64 {
        let unit = if self.has(flag::HUGE_FILE) { u64::from(sectors_per_block) } else { 1 };
        self.blocks_raw().saturating_mul(unit)
    }
    /// Sets the block count as stored; only 48 bits exist.
    pub fn set_blocks_raw(&mut self, count: u64) {
        self.blocks_lo = lo32(count).into();
        self.blocks_hi = lo16(hi32(count)).into();
    }
    /// Block of extended attributes; 0 is none.
    pub fn file_acl(&self) -> u64 {
        u64::from(self.file_acl_lo.get()) | u64::from(self.file_acl_hi.get()) << 32
    }
    /// Sets the block of extended attributes.
    pub fn set_file_acl(&mut self, block: u64) {
        self.file_acl_lo = lo32(block).into();
        self.file_acl_hi = lo16(hi32(block)).into();
    }
    /// Pointer `n` (0 to 14) of a file without extents; 0 is a hole. Panics beyond 14.
    pub fn pointer(&self, n: usize) -> u32 {
        let (words, _) = self.block.as_chunks::<4>();
        u32::from_le_bytes(*words.get(n).expect("there are 15 pointers"))
    }
    /// Sets pointer `n` (0 to 14). Panics beyond 14.
    pub fn set_pointer(&mut self, n: usize, block: u32) {
        let (words, _) = self.block.as_chunks_mut::<4>();
        *words.get_mut(n).expect("there are 15 pointers") = block.to_le_bytes();
    }
    /// Number of a device; 0 of other files (`ext4_iget`).
    pub fn device(&self) -> DeviceNumber {
        match matches!(self.kind(), mode::CHAR_DEVICE | mode::BLOCK_DEVICE) {
            true => DeviceNumber::of_words(self.pointer(0), self.pointer(1)),
            false => DeviceNumber::default(),
        }
    }
    /// Sets it (`ext4_do_update_inode`).
    pub fn set_device(&mut self, device: DeviceNumber) {
        let (narrow, wide) = device.words();
        self.set_pointer(0, narrow);
        self.set_pointer(1, wide);
    }
    /// Is it a symbolic link whose target lies in `block`?
    ///
    /// A link without data blocks is one; an attribute block does not count as data.
    /// Source: `ext4_inode_is_fast_symlink`.
    pub fn is_fast_symlink(&self, sectors_per_block: u32) -> bool {
        if !self.is_symlink() || self.has(flag::INLINE_DATA) {
            return false;
        }
        let attributes = if self.file_acl() != 0 { u64::from(sectors_per_block) } else { 0 };
        self.sectors(sectors_per_block) == attributes
    }
}

impl InodeExtra {
    /// Its size in bytes.
    pub const BYTES: usize = 32;
    /// Bytes of `extra_isize` without which there is no `checksum_hi`.
    pub const WITH_CHECKSUM_HI: u16 = 4;

    /// All zero.
    pub fn zeroed() -> InodeExtra {
        InodeExtra::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// The extra fields of the inode `raw` (all its bytes). Fields beyond `extra_isize` are zero,
    /// and all are if the inode has 128 bytes.
    pub fn load(raw: &[u8]) -> InodeExtra {
        let mut whole = [0u8; Self::BYTES];
        let rest = raw.get(Inode::BYTES..).unwrap_or(&[]);
        let isize = rest.first_chunk::<2>().map_or(0, |b| u16::from_le_bytes(*b));
        let have = rest.iter().take(usize::from(isize).max(2));
        whole.iter_mut().zip(have).for_each(|(to, from)| *to = *from);
        InodeExtra::read_from_bytes(&whole).expect("the size is right")
    }

    /// Writes the fields within `extra_isize` to the inode `raw` (all its bytes). Panics if `raw`
    /// is too short for them.
    pub fn store(&self, raw: &mut [u8]) {
        let have = usize::from(self.extra_isize.get()).min(Self::BYTES);
        let to =
            raw.get_mut(Inode::BYTES..Inode::BYTES + have).expect("extra_isize fits the inode");
        to.copy_from_slice(self.as_bytes().get(..have).expect("no more than there are"));
    }
}
