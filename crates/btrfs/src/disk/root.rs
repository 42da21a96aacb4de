//! Roots of trees, and where subvolumes hang.

use std::mem::offset_of;

use wp_base::{Corruption, FsResult};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DiskKey, InodeItem, Timespec, lo16, view, wide};

/// In a number of [`inode_number`]: an inode of another tree than the mounted one.
pub const OTHER_TREE: u64 = 1 << 62;
/// Bits of the inode's number in it, below those of its tree.
pub const INO_BITS: u32 = 40;
/// Bits of the tree's number.
pub const TREE_BITS: u32 = 22;

/// A number that no two inodes of an image have. One of the mounted tree has its own; one of
/// another has its tree's in front of it: Linux has a device number (`st_dev`) for each subvolume
/// instead. `None`: it has no place in it.
pub fn inode_number(tree: u64, ino: u64, mounted: u64) -> Option<u64> {
    if tree == mounted {
        return Some(ino).filter(|ino| *ino < OTHER_TREE);
    }
    let fits = tree < 1 << TREE_BITS && ino < 1 << INO_BITS;
    fits.then_some(OTHER_TREE | tree << INO_BITS | ino)
}

/// Bits of `flags`.
pub mod flag {
    /// `BTRFS_ROOT_SUBVOL_RDONLY`.
    pub const RDONLY: u64 = 1;
    /// `BTRFS_ROOT_SUBVOL_DEAD`: being deleted.
    pub const DEAD: u64 = 1 << 48;
}

/// A tree. `struct btrfs_root_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RootItem {
    /// `inode`, with few fields used.
    pub inode: InodeItem,
    /// `generation`, transaction that changed the tree last.
    pub generation: U64,
    /// `root_dirid`, inode of its root directory: 256, or 0 for trees without files.
    pub root_dirid: U64,
    /// `bytenr`, logical address of the root.
    pub bytenr: U64,
    /// `byte_limit`, unused.
    pub byte_limit: U64,
    /// `bytes_used` by the tree's own blocks.
    pub bytes_used: U64,
    /// `last_snapshot`, transaction of the last snapshot made of it.
    pub last_snapshot: U64,
    /// `flags`, see [`flag`].
    pub flags: U64,
    /// `refs`: 0 if it is being deleted.
    pub refs: U32,
    /// `drop_progress`: up to where it was deleted.
    pub drop_progress: DiskKey,
    /// `drop_level`.
    pub drop_level: u8,
    /// `level` of the root.
    pub level: u8,
    /// `generation_v2`: as `generation` if what follows is right.
    pub generation_v2: U64,
    /// `uuid`.
    pub uuid: [u8; 16],
    /// `parent_uuid`, of which it is a snapshot.
    pub parent_uuid: [u8; 16],
    /// `received_uuid`.
    pub received_uuid: [u8; 16],
    /// `ctransid`, transaction that changed an inode last.
    pub ctransid: U64,
    /// `otransid`, transaction that made it.
    pub otransid: U64,
    /// `stransid`, sent.
    pub stransid: U64,
    /// `rtransid`, received.
    pub rtransid: U64,
    /// `ctime`.
    pub ctime: Timespec,
    /// `otime`.
    pub otime: Timespec,
    /// `stime`.
    pub stime: Timespec,
    /// `rtime`.
    pub rtime: Timespec,
    /// `reserved`.
    pub reserved: [U64; 8],
}
const _: () = assert!(size_of::<RootItem>() == RootItem::BYTES);
const _: () = assert!(offset_of!(RootItem, bytenr) == 176);
const _: () = assert!(offset_of!(RootItem, generation_v2) == RootItem::LEGACY_BYTES);

impl RootItem {
    /// Bytes of it.
    pub const BYTES: usize = 439;
    /// Bytes that it had until 2012. `btrfs_legacy_root_item_size`.
    pub const LEGACY_BYTES: usize = 239;

    /// All zero.
    pub fn zeroed() -> RootItem {
        RootItem::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// The root item that these bytes are, the old short form too. `at`: byte address, for the
    /// error.
    ///
    /// Source: `btrfs_read_root_item`, `check_root_item`.
    pub fn load(item: &[u8], at: u64) -> FsResult<RootItem> {
        let fail = |field, found: u64, expected: &str| {
            let expected = expected.to_owned();
            Err(Corruption { structure: "btrfs root item", field, at, found, expected }.into())
        };
        if item.len() != Self::BYTES && item.len() != Self::LEGACY_BYTES {
            return fail("size", wide(item.len()), "439 or 239");
        }
        let mut bytes = [0; Self::BYTES];
        for (to, from) in bytes.iter_mut().zip(item) {
            *to = *from;
        }
        let mut root = RootItem::read_from_bytes(&bytes).expect("the size is right");
        if root.generation_v2 != root.generation {
            // An old kernel wrote it last: the new fields are of before.
            let kept = RootItem::LEGACY_BYTES;
            bytes.iter_mut().skip(kept).for_each(|b| *b = 0);
            root = RootItem::read_from_bytes(&bytes).expect("the size is right");
        }
        if root.level >= super::SuperBlock::LEVELS {
            return fail("level", root.level.into(), "0 to 7");
        }
        if root.bytenr.get() % 4096 != 0 {
            return fail("bytenr", root.bytenr.get(), "a multiple of the sector size");
        }
        if root.flags.get() & !(flag::RDONLY | flag::DEAD) != 0 {
            return fail("flags", root.flags.get(), "RDONLY, DEAD or none");
        }
        Ok(root)
    }
}

/// Name of a subvolume in its parent, before the name itself; of ROOT_REF and ROOT_BACKREF.
/// `struct btrfs_root_ref`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RootRef {
    /// `dirid`, directory of the parent.
    pub dirid: U64,
    /// `sequence`, index there.
    pub sequence: U64,
    /// `name_len`, bytes.
    pub name_len: U16,
}
const _: () = assert!(size_of::<RootRef>() == 18);

impl RootRef {
    /// The reference and the name that an item holds.
    pub fn load(item: &[u8]) -> Option<(RootRef, &[u8])> {
        let head = view::<RootRef>(item, 0)?;
        let end = size_of::<RootRef>() + usize::from(head.name_len.get());
        Some((*head, item.get(size_of::<RootRef>()..end)?))
    }

    /// The bytes of an item.
    pub fn store(dirid: u64, sequence: u64, name: &[u8]) -> Vec<u8> {
        let (dirid, sequence) = (dirid.into(), sequence.into());
        let head = RootRef { dirid, sequence, name_len: lo16(name.len()).into() };
        [head.as_bytes(), name].concat()
    }
}
