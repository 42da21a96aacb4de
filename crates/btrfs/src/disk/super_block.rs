//! The super block: at 64 KiB, and copies at 64 MiB and 256 GiB where the device has room.

use std::mem::offset_of;

use wp_base::{Corruption, FsError, FsResult};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::chunk::group;
use super::feature::incompat;
use super::{Chunk, CsumKind, DevItem, DiskKey, Key, at32, csum, feature, kind, lo32, view, wide};

/// Bits of `flags`.
pub mod flag {
    /// `BTRFS_HEADER_FLAG_WRITTEN`, set in every super block that was written.
    pub const WRITTEN: u64 = 1;
    /// `BTRFS_SUPER_FLAG_ERROR`.
    pub const ERROR: u64 = 1 << 2;
    /// `BTRFS_SUPER_FLAG_SEEDING`.
    pub const SEEDING: u64 = 1 << 32;
    /// `BTRFS_SUPER_FLAG_METADUMP`.
    pub const METADUMP: u64 = 1 << 33;
    /// `BTRFS_SUPER_FLAG_METADUMP_V2`.
    pub const METADUMP_V2: u64 = 1 << 34;
    /// `BTRFS_SUPER_FLAG_CHANGING_FSID`.
    pub const CHANGING_FSID: u64 = 1 << 35;
    /// `BTRFS_SUPER_FLAG_CHANGING_FSID_V2`.
    pub const CHANGING_FSID_V2: u64 = 1 << 36;

    /// What a mount takes. `BTRFS_SUPER_FLAG_SUPP`, with `BTRFS_HEADER_FLAG_RELOC`.
    pub const SUPPORTED: u64 = WRITTEN | 1 << 1 | ERROR | SEEDING | METADUMP | METADUMP_V2;
}

/// Where the roots were at one of the last four commits. `struct btrfs_root_backup`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RootBackup {
    /// `tree_root`, address of the root tree's root.
    pub tree_root: U64,
    /// `tree_root_gen`.
    pub tree_root_gen: U64,
    /// `chunk_root`.
    pub chunk_root: U64,
    /// `chunk_root_gen`.
    pub chunk_root_gen: U64,
    /// `extent_root`.
    pub extent_root: U64,
    /// `extent_root_gen`.
    pub extent_root_gen: U64,
    /// `fs_root`.
    pub fs_root: U64,
    /// `fs_root_gen`.
    pub fs_root_gen: U64,
    /// `dev_root`.
    pub dev_root: U64,
    /// `dev_root_gen`.
    pub dev_root_gen: U64,
    /// `csum_root`.
    pub csum_root: U64,
    /// `csum_root_gen`.
    pub csum_root_gen: U64,
    /// `total_bytes`.
    pub total_bytes: U64,
    /// `bytes_used`.
    pub bytes_used: U64,
    /// `num_devices`.
    pub num_devices: U64,
    /// `unused_64`.
    pub unused_64: [U64; 4],
    /// `tree_root_level`.
    pub tree_root_level: u8,
    /// `chunk_root_level`.
    pub chunk_root_level: u8,
    /// `extent_root_level`.
    pub extent_root_level: u8,
    /// `fs_root_level`.
    pub fs_root_level: u8,
    /// `dev_root_level`.
    pub dev_root_level: u8,
    /// `csum_root_level`.
    pub csum_root_level: u8,
    /// `unused_8`.
    pub unused_8: [u8; 10],
}
const _: () = assert!(size_of::<RootBackup>() == 168);

/// Room for chunks of the system. `BTRFS_SYSTEM_CHUNK_ARRAY_SIZE`.
pub const SYSTEM_CHUNK_ARRAY_BYTES: usize = 2048;

/// The super block. `struct btrfs_super_block`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SuperBlock {
    /// `csum` of all that follows.
    pub csum: [u8; csum::SPACE],
    /// `fsid`, identity that users see.
    pub fsid: [u8; 16],
    /// `bytenr`, where this copy lies on the device.
    pub bytenr: U64,
    /// `flags`, see [`flag`].
    pub flags: U64,
    /// `magic`, always [`Self::MAGIC`].
    pub magic: U64,
    /// `generation`, number of the last transaction that was committed.
    pub generation: U64,
    /// `root`, logical address of the root tree's root.
    pub root: U64,
    /// `chunk_root`, of the chunk tree's.
    pub chunk_root: U64,
    /// `log_root`, of the tree of log trees; 0: there is no log.
    pub log_root: U64,
    /// `__unused_log_root_transid`.
    pub unused_log_root_transid: U64,
    /// `total_bytes`, sum of the devices' lengths.
    pub total_bytes: U64,
    /// `bytes_used` by extents, each counted once however many copies it has.
    pub bytes_used: U64,
    /// `root_dir_objectid`: 6.
    pub root_dir_objectid: U64,
    /// `num_devices`.
    pub num_devices: U64,
    /// `sectorsize` in bytes, unit of data extents.
    pub sectorsize: U32,
    /// `nodesize`, bytes of a tree block.
    pub nodesize: U32,
    /// `__unused_leafsize`, as `nodesize`.
    pub unused_leafsize: U32,
    /// `stripesize`, as `sectorsize`.
    pub stripesize: U32,
    /// `sys_chunk_array_size`, bytes of the array in use.
    pub sys_chunk_array_size: U32,
    /// `chunk_root_generation`.
    pub chunk_root_generation: U64,
    /// `compat_flags`, none defined.
    pub compat_flags: U64,
    /// `compat_ro_flags`, see [`feature::compat_ro`].
    pub compat_ro_flags: U64,
    /// `incompat_flags`, see [`feature::incompat`].
    pub incompat_flags: U64,
    /// `csum_type`, see [`CsumKind`].
    pub csum_type: U16,
    /// `root_level`.
    pub root_level: u8,
    /// `chunk_root_level`.
    pub chunk_root_level: u8,
    /// `log_root_level`.
    pub log_root_level: u8,
    /// `dev_item`, of the device that this is on.
    pub dev_item: DevItem,
    /// `label`, ends with a zero byte.
    pub label: [u8; 256],
    /// `cache_generation` of the free-space cache that the tree replaces.
    pub cache_generation: U64,
    /// `uuid_tree_generation`: as `generation` if the uuid tree is right.
    pub uuid_tree_generation: U64,
    /// `metadata_uuid`, in tree blocks if the feature METADATA_UUID is on.
    pub metadata_uuid: [u8; 16],
    /// `nr_global_roots`, extent tree v2.
    pub nr_global_roots: U64,
    /// `reserved`.
    pub reserved: [U64; 27],
    /// `sys_chunk_array`: keys with chunks, of the system's block groups.
    pub sys_chunk_array: [u8; SYSTEM_CHUNK_ARRAY_BYTES],
    /// `super_roots`, a ring.
    pub super_roots: [RootBackup; 4],
    /// `padding`.
    pub padding: [u8; 565],
}
const _: () = assert!(size_of::<SuperBlock>() == SuperBlock::BYTES);
const _: () = assert!(offset_of!(SuperBlock, magic) == 0x40);
const _: () = assert!(offset_of!(SuperBlock, sectorsize) == 0x90);
const _: () = assert!(offset_of!(SuperBlock, csum_type) == 0xC4);
const _: () = assert!(offset_of!(SuperBlock, dev_item) == 0xC9);
const _: () = assert!(offset_of!(SuperBlock, cache_generation) == 0x22B);
const _: () = assert!(offset_of!(SuperBlock, sys_chunk_array) == 0x32B);
const _: () = assert!(offset_of!(SuperBlock, super_roots) == 0xB2B);

impl SuperBlock {
    /// Bytes that it has. `BTRFS_SUPER_INFO_SIZE`.
    pub const BYTES: usize = 4096;
    /// Byte address of the first copy. `BTRFS_SUPER_INFO_OFFSET`.
    pub const AT: u64 = 64 << 10;
    /// Byte address of the magic in it.
    pub const MAGIC_AT: u64 = 0x40;
    /// `BTRFS_MAGIC`.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"_BHRfS_M");
    /// Most copies. `BTRFS_SUPER_MIRROR_MAX`.
    pub const COPIES_MAX: u32 = 3;
    /// Levels of a tree are below this. `BTRFS_MAX_LEVEL`.
    pub const LEVELS: u8 = 8;

    /// Byte addresses of all copies that there can be. `btrfs_sb_offset`.
    pub fn places() -> impl Iterator<Item = u64> {
        (0..Self::COPIES_MAX).map(|n| if n == 0 { Self::AT } else { (16 << 10) << (12 * n) })
    }

    /// Byte addresses of the copies that a commit writes to a device of `device_bytes` bytes: no
    /// copy reaches the end of the device. `write_dev_supers`.
    pub fn copies(device_bytes: u64) -> impl Iterator<Item = u64> {
        Self::places().filter(move |at| at + wide(Self::BYTES) < device_bytes)
    }

    /// Those that mkfs.btrfs writes: also one that ends where the device does, which no commit
    /// renews.
    pub fn copies_of_mkfs(device_bytes: u64) -> impl Iterator<Item = u64> {
        Self::places().filter(move |at| at + wide(Self::BYTES) <= device_bytes)
    }

    /// All zero.
    pub fn zeroed() -> SuperBlock {
        SuperBlock::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// The uuid in tree blocks.
    pub fn tree_uuid(&self) -> [u8; 16] {
        if self.incompat_flags.get() & feature::incompat::METADATA_UUID != 0 {
            self.metadata_uuid
        } else {
            self.fsid
        }
    }

    /// Which checksum the file system has. `at`: byte address of the copy, for the error.
    pub fn csum_kind(&self, at: u64) -> FsResult<CsumKind> {
        let number = self.csum_type.get();
        CsumKind::of(number).ok_or_else(|| match number {
            2 => FsError::Unsupported("btrfs with checksum sha256".to_owned()),
            3 => FsError::Unsupported("btrfs with checksum blake2".to_owned()),
            _ => wrong("csum_type", at, number.into(), "0 to 3".to_owned()).into(),
        })
    }

    /// Makes it the copy for byte `at` of the device and sets its checksum.
    pub fn seal(&mut self, at: u64) {
        self.bytenr = at.into();
        let kind = CsumKind::of(self.csum_type.get()).expect("a kind that was read or chosen");
        kind.seal(self.as_mut_bytes());
    }

    /// Checks magic, checksum and place only: is this a super block? `at`: byte address of the
    /// copy.
    pub fn verify_sum(&self, at: u64) -> FsResult<()> {
        if self.magic.get() != Self::MAGIC {
            let expected = format!("{:#x}", Self::MAGIC);
            return Err(wrong("magic", at, self.magic.get(), expected).into());
        }
        if self.bytenr.get() != at {
            return Err(wrong("bytenr", at, self.bytenr.get(), format!("{at:#x}")).into());
        }
        let kind = self.csum_kind(at)?;
        if !kind.is_sealed(self.as_bytes()) {
            let found = kind.stored(&self.csum);
            let right = kind.sum(self.as_bytes().get(csum::SPACE..).unwrap_or(&[]));
            return Err(wrong("csum", at, found, format!("{right:#x}")).into());
        }
        Ok(())
    }

    /// Checks everything that stands by itself. `at`: byte address of the copy.
    ///
    /// Source: `btrfs_validate_super`. That alignments hang on the page size of the machine is left
    /// out.
    pub fn verify(&self, at: u64) -> FsResult<()> {
        self.verify_sum(at)?;
        let fail = |field, found: u64, expected: &str| {
            Err(FsError::from(wrong(field, at, found, expected.to_owned())))
        };
        let size = |n: u32, min: u32| n.is_power_of_two() && (min..=65536).contains(&n);
        let (sector, node) = (self.sectorsize.get(), self.nodesize.get());
        if !size(sector, 4096) {
            return fail("sectorsize", sector.into(), "a power of two, 4096 to 65536");
        }
        if !size(node, sector) {
            return fail("nodesize", node.into(), "a power of two, the sector size to 65536");
        }
        // `open_ctree`.
        let is_mixed = self.incompat_flags.get() & incompat::MIXED_GROUPS != 0;
        if is_mixed && node != sector {
            return fail("nodesize", node.into(), "the sector size, with MIXED_GROUPS");
        }
        if self.unused_leafsize.get() != node {
            return fail("leafsize", self.unused_leafsize.get().into(), "as nodesize");
        }
        if sector != 4096 {
            return Err(FsError::Unsupported(format!("btrfs with sector size {sector}")));
        }
        for (field, level) in [
            ("root_level", self.root_level),
            ("chunk_root_level", self.chunk_root_level),
            ("log_root_level", self.log_root_level),
        ] {
            if level >= Self::LEVELS {
                return fail(field, level.into(), "0 to 7");
            }
        }
        for (field, root) in
            [("root", self.root), ("chunk_root", self.chunk_root), ("log_root", self.log_root)]
        {
            if root.get() % u64::from(sector) != 0 {
                return fail(field, root.get(), "a multiple of the sector size");
            }
        }
        if !self.stripesize.get().is_power_of_two() {
            return fail("stripesize", self.stripesize.get().into(), "a power of two");
        }
        if self.flags.get() & (flag::CHANGING_FSID | flag::CHANGING_FSID_V2) != 0 {
            let what = "btrfs with an unfinished change of its uuid (btrfstune finishes it)";
            return Err(FsError::Unsupported(what.to_owned()));
        }
        let unknown = self.flags.get() & !flag::SUPPORTED;
        if unknown != 0 {
            return fail("flags", self.flags.get(), "those that Linux 6.12 knows");
        }
        // A log is one newer.
        if self.generation.get() == u64::MAX {
            return fail("generation", self.generation.get(), "below 2^64 - 1");
        }
        if self.chunk_root_generation.get() > self.generation.get() {
            return fail("chunk_root_generation", self.chunk_root_generation.get(), "no newer one");
        }
        if self.dev_item.fsid != self.tree_uuid() {
            return fail("dev_item.fsid", 0, "the uuid of tree blocks");
        }
        if self.bytes_used.get() < 6 * u64::from(node) {
            return fail("bytes_used", self.bytes_used.get(), "6 tree blocks or more");
        }
        if self.num_devices.get() == 0 {
            return fail("num_devices", 0, "1 or more");
        }
        if self.num_devices.get() != 1 {
            let n = self.num_devices.get();
            return Err(FsError::Unsupported(format!("btrfs on {n} devices")));
        }
        let array = self.sys_chunk_array_size.get();
        if !(97..=lo32(SYSTEM_CHUNK_ARRAY_BYTES)).contains(&array) {
            return fail("sys_chunk_array_size", array.into(), "97 to 2048");
        }
        Ok(())
    }

    /// The chunks of the system's block groups. `at`: byte address of the copy, for the error.
    ///
    /// Source: `btrfs_read_sys_array`.
    pub fn system_chunks(&self, at: u64) -> FsResult<Vec<(Key, Chunk)>> {
        let from = wide(offset_of!(SuperBlock, sys_chunk_array));
        let array = self.sys_chunk_array.get(..at32(self.sys_chunk_array_size.get()));
        let array = array.unwrap_or(&self.sys_chunk_array);
        let mut out = Vec::new();
        let mut i = 0;
        while i < array.len() {
            let here = at + from + wide(i);
            let end = || FsError::from(wrong("sys_chunk_array", here, wide(i), "a key".to_owned()));
            let key = view::<DiskKey>(array, i).ok_or_else(end)?.get();
            if key.kind != kind::CHUNK_ITEM {
                let found = key.kind.into();
                return Err(wrong("sys_chunk_array", here, found, "CHUNK_ITEM".to_owned()).into());
            }
            i += size_of::<DiskKey>();
            let (chunk, bytes) = Chunk::load(array.get(i..).unwrap_or(&[]), here)?;
            self.check_kinds(&chunk, here)?;
            i += bytes;
            out.push((key, chunk));
        }
        Ok(out)
    }

    /// Data and metadata in one block group need a feature. `btrfs_check_chunk_valid`.
    pub fn check_kinds(&self, chunk: &Chunk, at: u64) -> FsResult<()> {
        let (kinds, both) = (chunk.head.kind.get(), group::DATA | group::METADATA);
        let is_mixed = self.incompat_flags.get() & incompat::MIXED_GROUPS != 0;
        if kinds & both == both && !is_mixed {
            let expected = "data or metadata, not both (without MIXED_GROUPS)";
            return Err(FsError::corrupt("btrfs chunk", "type", at, kinds, expected));
        }
        Ok(())
    }

    /// Adds a chunk to the array. Errors: `TooBig` if it is full. `btrfs_add_system_chunk`.
    pub fn add_system_chunk(&mut self, key: Key, chunk: &Chunk) -> FsResult<()> {
        let used = at32(self.sys_chunk_array_size.get());
        let mut bytes = DiskKey::from(key).as_bytes().to_vec();
        bytes.extend(chunk.store());
        let end = used + bytes.len();
        let room = self.sys_chunk_array.get_mut(used..end).ok_or(FsError::TooBig)?;
        room.copy_from_slice(&bytes);
        self.sys_chunk_array_size = lo32(end).into();
        Ok(())
    }

    /// The label as text; what is no UTF-8 is replaced.
    pub fn label(&self) -> String {
        let end = self.label.iter().position(|b| *b == 0).unwrap_or(self.label.len());
        String::from_utf8_lossy(self.label.get(..end).unwrap_or(&[])).into_owned()
    }
}

fn wrong(field: &'static str, at: u64, found: u64, expected: String) -> Corruption {
    Corruption { structure: "btrfs super block", field, at, found, expected }
}
