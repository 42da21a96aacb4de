//! Inodes.

use std::mem::offset_of;

use wp_base::DeviceNumber;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockMap, lo32};

/// An inode. `struct nilfs_inode`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Inode {
    /// `i_blocks`, space in use in units of 512 bytes, nodes of the block map included.
    pub blocks: U64,
    /// `i_size`, length in bytes.
    pub size: U64,
    /// `i_ctime`, seconds.
    pub ctime: U64,
    /// `i_mtime`, seconds; access times are not kept.
    pub mtime: U64,
    /// `i_ctime_nsec`.
    pub ctime_nsec: U32,
    /// `i_mtime_nsec`.
    pub mtime_nsec: U32,
    /// `i_uid`.
    pub uid: U32,
    /// `i_gid`.
    pub gid: U32,
    /// `i_mode`, type and permissions.
    pub mode: U16,
    /// `i_links_count`.
    pub links_count: U16,
    /// `i_flags`.
    pub flags: U32,
    /// `i_bmap`: where its blocks are, or the number of a device.
    pub bmap: BlockMap,
    /// `i_xattr`, unused.
    pub xattr: U64,
    /// `i_generation`.
    pub generation: U32,
    /// `i_pad`.
    pub pad: U32,
}
const _: () = assert!(size_of::<Inode>() == Inode::BYTES);
const _: () = assert!(offset_of!(Inode, mode) == 48);
const _: () = assert!(offset_of!(Inode, bmap) == 56);
const _: () = assert!(offset_of!(Inode, xattr) == 112);

impl Inode {
    /// Bytes that have a meaning. `NILFS_MIN_INODE_SIZE`.
    pub const BYTES: usize = 128;

    /// All zero.
    pub fn zeroed() -> Inode {
        Inode::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// The type bits of `i_mode`.
    pub fn kind(&self) -> u16 {
        self.mode.get() & mode::TYPE
    }
    /// A regular file?
    pub fn is_file(&self) -> bool {
        self.kind() == mode::FILE
    }
    /// A directory?
    pub fn is_dir(&self) -> bool {
        self.kind() == mode::DIR
    }
    /// A symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.kind() == mode::SYMLINK
    }
    /// Has it a block map, rather than the number of a device or nothing?
    pub fn has_map(&self) -> bool {
        self.is_file() || self.is_dir() || self.is_symlink()
    }
    /// Number of a device; 0 of other files. `i_device_code` is where the block map would be.
    pub fn device(&self) -> DeviceNumber {
        match matches!(self.kind(), mode::CHAR | mode::BLOCK) {
            true => DeviceNumber::of_wide(lo32(self.bmap.words[0].get())),
            false => DeviceNumber::default(),
        }
    }
    /// Sets it.
    pub fn set_device(&mut self, device: DeviceNumber) {
        self.bmap.words[0] = u64::from(device.wide()).into();
    }
    /// Adds `blocks` blocks of 2^`block_bits` bytes to the space in use; a negative number removes
    /// them.
    pub fn add_blocks(&mut self, blocks: i64, block_bits: u32) {
        let sectors = blocks << (block_bits - 9);
        self.blocks = self.blocks.get().saturating_add_signed(sectors).into();
    }
}

/// Type bits of `i_mode`.
pub mod mode {
    /// All of them.
    pub const TYPE: u16 = 0o170_000;
    /// A regular file.
    pub const FILE: u16 = 0o100_000;
    /// A directory.
    pub const DIR: u16 = 0o040_000;
    /// A symbolic link.
    pub const SYMLINK: u16 = 0o120_000;
    /// A character device.
    pub const CHAR: u16 = 0o020_000;
    /// A block device.
    pub const BLOCK: u16 = 0o060_000;
}
