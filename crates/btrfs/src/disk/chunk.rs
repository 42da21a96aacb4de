//! Chunks: which part of the device logical addresses mean; and what is said of the device.

use wp_base::{Corruption, FsError, FsResult};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Key, id, kind, lo16, view, wide};

/// Bits of a chunk's type, which is that of its block group: what it holds, and how often.
pub mod group {
    /// Contents of files.
    pub const DATA: u64 = 1;
    /// The chunk tree.
    pub const SYSTEM: u64 = 1 << 1;
    /// All other trees.
    pub const METADATA: u64 = 1 << 2;
    /// All of these.
    pub const KINDS: u64 = DATA | SYSTEM | METADATA;
    /// Stripes over devices.
    pub const RAID0: u64 = 1 << 3;
    /// Two copies on two devices.
    pub const RAID1: u64 = 1 << 4;
    /// Two copies on one device.
    pub const DUP: u64 = 1 << 5;
    /// Stripes of two copies.
    pub const RAID10: u64 = 1 << 6;
    /// One parity.
    pub const RAID5: u64 = 1 << 7;
    /// Two parities.
    pub const RAID6: u64 = 1 << 8;
    /// Three copies.
    pub const RAID1C3: u64 = 1 << 9;
    /// Four copies.
    pub const RAID1C4: u64 = 1 << 10;
    /// All ways of more than one copy or device; none of them: single.
    pub const PROFILES: u64 = RAID0 | RAID1 | DUP | RAID10 | RAID5 | RAID6 | RAID1C3 | RAID1C4;

    /// Name of a profile, for messages.
    pub fn profile_name(flags: u64) -> &'static str {
        match flags & PROFILES {
            0 => "single",
            RAID0 => "RAID0",
            RAID1 => "RAID1",
            DUP => "DUP",
            RAID10 => "RAID10",
            RAID5 => "RAID5",
            RAID6 => "RAID6",
            RAID1C3 => "RAID1C3",
            RAID1C4 => "RAID1C4",
            _ => "several profiles at once",
        }
    }
}

/// A device. `struct btrfs_dev_item`, in the super block and the chunk tree.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DevItem {
    /// `devid`, from 1 on.
    pub devid: U64,
    /// `total_bytes`, length.
    pub total_bytes: U64,
    /// `bytes_used` by chunks.
    pub bytes_used: U64,
    /// `io_align`, bytes.
    pub io_align: U32,
    /// `io_width`, bytes.
    pub io_width: U32,
    /// `sector_size`, bytes.
    pub sector_size: U32,
    /// `type`, 0.
    pub kind: U64,
    /// `generation`, 0.
    pub generation: U64,
    /// `start_offset`, 0.
    pub start_offset: U64,
    /// `dev_group`, 0.
    pub dev_group: U32,
    /// `seek_speed`, 0.
    pub seek_speed: u8,
    /// `bandwidth`, 0.
    pub bandwidth: u8,
    /// `uuid` of the device.
    pub uuid: [u8; 16],
    /// `fsid` of the file system.
    pub fsid: [u8; 16],
}
const _: () = assert!(size_of::<DevItem>() == 98);

impl DevItem {
    /// The device that an item with this key is. `at`: byte address, for the error.
    ///
    /// Source: `check_dev_item`.
    pub fn load(key: Key, bytes: &[u8], at: u64) -> FsResult<DevItem> {
        let fail = |field, found: u64, expected: &str| {
            let expected = format!("{expected} {key}");
            Err(Corruption { structure: "btrfs dev item", field, at, found, expected }.into())
        };
        if key.objectid != id::DEV_ITEMS {
            return fail("key.objectid", key.objectid, "1");
        }
        let item = view::<DevItem>(bytes, 0).filter(|_| bytes.len() == size_of::<DevItem>());
        let Some(item) = item.copied() else { return fail("size", wide(bytes.len()), "98") };
        if item.devid.get() != key.offset {
            return fail("devid", item.devid.get(), "as its key has it");
        }
        if item.bytes_used.get() > item.total_bytes.get() {
            return fail("bytes_used", item.bytes_used.get(), "total_bytes or fewer");
        }
        Ok(item)
    }
}

/// One place of a chunk. `struct btrfs_stripe`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Stripe {
    /// `devid`.
    pub devid: U64,
    /// `offset`, byte of the device.
    pub offset: U64,
    /// `dev_uuid`.
    pub dev_uuid: [u8; 16],
}
const _: () = assert!(size_of::<Stripe>() == 32);

/// A chunk without its stripes, which follow. `struct btrfs_chunk`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ChunkHead {
    /// `length` in bytes of logical addresses.
    pub length: U64,
    /// `owner`: the extent tree.
    pub owner: U64,
    /// `stripe_len`: 64 KiB.
    pub stripe_len: U64,
    /// `type`, see [`group`].
    pub kind: U64,
    /// `io_align`, bytes.
    pub io_align: U32,
    /// `io_width`, bytes.
    pub io_width: U32,
    /// `sector_size`, bytes.
    pub sector_size: U32,
    /// `num_stripes`, places.
    pub num_stripes: U16,
    /// `sub_stripes`, of RAID10.
    pub sub_stripes: U16,
}
const _: () = assert!(size_of::<ChunkHead>() == 48);

/// `BTRFS_STRIPE_LEN`: bytes.
pub const STRIPE_LEN: u64 = 64 << 10;

/// A chunk with its stripes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// All but the stripes.
    pub head: ChunkHead,
    /// Where it lies.
    pub stripes: Vec<Stripe>,
}

impl Chunk {
    /// The chunk at the head of `bytes`, and how many it has. `at`: byte address, for the error.
    ///
    /// Source: `btrfs_check_chunk_valid`, for what hangs on the chunk alone.
    pub fn load(bytes: &[u8], at: u64) -> FsResult<(Chunk, usize)> {
        let fail = |field, found: u64, expected: &str| {
            let expected = expected.to_owned();
            Err(Corruption { structure: "btrfs chunk", field, at, found, expected }.into())
        };
        let Some(head) = view::<ChunkHead>(bytes, 0).copied() else {
            return fail("length", 0, "80 bytes of item");
        };
        let n = usize::from(head.num_stripes.get());
        if n == 0 {
            return fail("num_stripes", 0, "1 or more");
        }
        let end = size_of::<ChunkHead>() + n * size_of::<Stripe>();
        let stripes = bytes.get(size_of::<ChunkHead>()..end);
        let Some(stripes) = stripes.and_then(|s| <[Stripe]>::ref_from_bytes(s).ok()) else {
            return fail("num_stripes", head.num_stripes.get().into(), "stripes within the item");
        };
        if head.length.get() == 0 || !head.length.get().is_multiple_of(4096) {
            return fail("length", head.length.get(), "a multiple of the sector size");
        }
        // The only size that the super block is taken with.
        if head.sector_size.get() != 4096 {
            return fail("sector_size", head.sector_size.get().into(), "the sector size");
        }
        if head.stripe_len.get() != STRIPE_LEN {
            return fail("stripe_len", head.stripe_len.get(), "0x10000");
        }
        let kinds = head.kind.get();
        if kinds & group::KINDS == 0 || kinds & !(group::KINDS | group::PROFILES) != 0 {
            return fail("type", kinds, "data, metadata or system, and a profile");
        }
        if kinds & group::SYSTEM != 0 && kinds & (group::DATA | group::METADATA) != 0 {
            return fail("type", kinds, "system alone");
        }
        Ok((Chunk { head, stripes: stripes.to_vec() }, end))
    }

    /// The chunk that a whole item is. `check_leaf_chunk_item`.
    pub fn load_item(bytes: &[u8], at: u64) -> FsResult<Chunk> {
        let (chunk, size) = Chunk::load(bytes, at)?;
        if size != bytes.len() {
            let (found, expected) = (wide(bytes.len()), format!("{size}"));
            return Err(FsError::corrupt("btrfs chunk", "size", at, found, expected));
        }
        Ok(chunk)
    }

    /// The bytes of its item.
    pub fn store(&self) -> Vec<u8> {
        let mut head = self.head;
        head.num_stripes = lo16(self.stripes.len()).into();
        let mut out = head.as_bytes().to_vec();
        out.extend(self.stripes.as_bytes());
        out
    }

    /// Key of the chunk at this logical address.
    pub fn key(logical: u64) -> Key {
        Key::new(id::FIRST_CHUNK_TREE, kind::CHUNK_ITEM, logical)
    }
}

/// A part of the device that a chunk has. `struct btrfs_dev_extent`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DevExtent {
    /// `chunk_tree`: 3.
    pub chunk_tree: U64,
    /// `chunk_objectid`: 256.
    pub chunk_objectid: U64,
    /// `chunk_offset`, the chunk's logical address.
    pub chunk_offset: U64,
    /// `length`, bytes.
    pub length: U64,
    /// `chunk_tree_uuid`.
    pub chunk_tree_uuid: [u8; 16],
}
const _: () = assert!(size_of::<DevExtent>() == 48);

/// How full a block group is; it covers what a chunk covers. `struct btrfs_block_group_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct BlockGroupItem {
    /// `used`, bytes of extents.
    pub used: U64,
    /// `chunk_objectid`: 256.
    pub chunk_objectid: U64,
    /// `flags`, the chunk's type.
    pub flags: U64,
}
const _: () = assert!(size_of::<BlockGroupItem>() == 24);
