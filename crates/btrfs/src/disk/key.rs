//! Keys: what every item and every pointer is found by.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::id;

/// A key in memory. Compares as the format does: objectid, then type, then offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// `objectid`: an inode, a tree, an address.
    pub objectid: u64,
    /// `type`, see [`kind`].
    pub kind: u8,
    /// `offset`: its meaning hangs on the type.
    pub offset: u64,
}

impl Key {
    /// The least key.
    pub const MIN: Key = Key { objectid: 0, kind: 0, offset: 0 };
    /// The greatest.
    pub const MAX: Key = Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX };

    /// A key of its three parts.
    pub const fn new(objectid: u64, kind: u8, offset: u64) -> Key {
        Key { objectid, kind, offset }
    }

    /// The key after this one; the greatest has none.
    pub fn next(self) -> Option<Key> {
        let Key { objectid, kind, offset } = self;
        if let Some(offset) = offset.checked_add(1) {
            return Some(Key { objectid, kind, offset });
        }
        if let Some(kind) = kind.checked_add(1) {
            return Some(Key { objectid, kind, offset: 0 });
        }
        objectid.checked_add(1).map(|objectid| Key { objectid, kind: 0, offset: 0 })
    }
}

/// Names as the kernel's messages have them: `(256 INODE_ITEM 0)`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Numbers at the end of the range are negative ones.
        if self.objectid >= id::LAST_FREE {
            write!(f, "(-{} ", self.objectid.wrapping_neg())?;
        } else {
            write!(f, "({} ", self.objectid)?;
        }
        match kind::name(self.kind) {
            Some(name) => write!(f, "{name} {})", self.offset),
            None => write!(f, "{} {})", self.kind, self.offset),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key as it stands on the disk. `struct btrfs_disk_key`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DiskKey {
    /// `objectid`.
    pub objectid: U64,
    /// `type`.
    pub kind: u8,
    /// `offset`.
    pub offset: U64,
}
const _: () = assert!(size_of::<DiskKey>() == 17);

impl DiskKey {
    /// The key in memory.
    #[inline]
    pub fn get(&self) -> Key {
        Key { objectid: self.objectid.get(), kind: self.kind, offset: self.offset.get() }
    }
}

impl From<Key> for DiskKey {
    fn from(k: Key) -> DiskKey {
        DiskKey { objectid: k.objectid.into(), kind: k.kind, offset: k.offset.into() }
    }
}

/// Types of items: `BTRFS_*_KEY`.
pub mod kind {
    /// (inode, this, 0): [`super::super::InodeItem`].
    pub const INODE_ITEM: u8 = 1;
    /// (inode, this, directory): [`super::super::inode::InodeRef`]s with names.
    pub const INODE_REF: u8 = 12;
    /// (inode, this, hash of directory and name): [`super::super::inode::InodeExtref`]s.
    pub const INODE_EXTREF: u8 = 13;
    /// (inode, this, hash of name): [`super::super::DirItem`]s with names and values.
    pub const XATTR_ITEM: u8 = 24;
    /// fs-verity's descriptor.
    pub const VERITY_DESC_ITEM: u8 = 36;
    /// fs-verity's tree.
    pub const VERITY_MERKLE_ITEM: u8 = 37;
    /// (`id::ORPHAN`, this, inode or tree): to be deleted; no bytes.
    pub const ORPHAN_ITEM: u8 = 48;
    /// (directory, this, first): until 2021, hashes of names that a log has all of.
    pub const DIR_LOG_ITEM: u8 = 60;
    /// (directory, this, first): indexes that a log has all of, [`super::super::DirLogItem`].
    pub const DIR_LOG_INDEX: u8 = 72;
    /// (directory, this, hash of name): [`super::super::DirItem`]s.
    pub const DIR_ITEM: u8 = 84;
    /// (directory, this, index): one [`super::super::DirItem`].
    pub const DIR_INDEX: u8 = 96;
    /// (inode, this, byte of the file): [`super::super::FileExtent`].
    pub const EXTENT_DATA: u8 = 108;
    /// (`id::EXTENT_CSUM`, this, address): checksums of sectors from there on.
    pub const EXTENT_CSUM: u8 = 128;
    /// (tree, this, 0 or transaction): [`super::super::RootItem`].
    pub const ROOT_ITEM: u8 = 132;
    /// (subvolume, this, its parent): [`super::super::RootRef`].
    pub const ROOT_BACKREF: u8 = 144;
    /// (subvolume, this, one in it): [`super::super::RootRef`].
    pub const ROOT_REF: u8 = 156;
    /// (address, this, bytes): [`super::super::ExtentItem`].
    pub const EXTENT_ITEM: u8 = 168;
    /// (address, this, level): [`super::super::ExtentItem`] of a tree block.
    pub const METADATA_ITEM: u8 = 169;
    /// (address, this, 0): owner of an extent, of simple quotas.
    pub const EXTENT_OWNER_REF: u8 = 172;
    /// (address, this, tree): a tree has this block.
    pub const TREE_BLOCK_REF: u8 = 176;
    /// (address, this, hash): [`super::super::extent::ExtentDataRef`].
    pub const EXTENT_DATA_REF: u8 = 178;
    /// (address, this, parent's address): a block has this block.
    pub const SHARED_BLOCK_REF: u8 = 182;
    /// (address, this, parent's address): [`super::super::extent::SharedDataRef`].
    pub const SHARED_DATA_REF: u8 = 184;
    /// (address, this, bytes): [`super::super::BlockGroupItem`].
    pub const BLOCK_GROUP_ITEM: u8 = 192;
    /// (address, this, bytes of the group): [`super::super::FreeSpaceInfo`].
    pub const FREE_SPACE_INFO: u8 = 198;
    /// (address, this, bytes): free; no bytes.
    pub const FREE_SPACE_EXTENT: u8 = 199;
    /// (address, this, bytes): a bit a sector, set where free.
    pub const FREE_SPACE_BITMAP: u8 = 200;
    /// (device, this, byte of the device): [`super::super::DevExtent`].
    pub const DEV_EXTENT: u8 = 204;
    /// (`id::DEV_ITEMS`, this, device): [`super::super::DevItem`].
    pub const DEV_ITEM: u8 = 216;
    /// (`id::FIRST_CHUNK_TREE`, this, address): [`super::super::Chunk`].
    pub const CHUNK_ITEM: u8 = 228;
    /// State of quotas.
    pub const QGROUP_STATUS: u8 = 240;
    /// Usage of a quota group.
    pub const QGROUP_INFO: u8 = 242;
    /// Limit of a quota group.
    pub const QGROUP_LIMIT: u8 = 244;
    /// Two quota groups, one in the other.
    pub const QGROUP_RELATION: u8 = 246;
    /// State that goes away when an operation ends (balance).
    pub const TEMPORARY_ITEM: u8 = 248;
    /// State that stays ((`id::DEV_STATS`, this, device): counts of errors).
    pub const PERSISTENT_ITEM: u8 = 249;
    /// Device replacement.
    pub const DEV_REPLACE: u8 = 250;
    /// (first half of a uuid, this, second half): subvolumes with it.
    pub const UUID_KEY_SUBVOL: u8 = 251;
    /// The same, of received subvolumes.
    pub const UUID_KEY_RECEIVED_SUBVOL: u8 = 252;
    /// A string.
    pub const STRING_ITEM: u8 = 253;

    /// Its name, as `btrfs inspect-internal dump-tree` prints it.
    pub fn name(kind: u8) -> Option<&'static str> {
        Some(match kind {
            INODE_ITEM => "INODE_ITEM",
            INODE_REF => "INODE_REF",
            INODE_EXTREF => "INODE_EXTREF",
            XATTR_ITEM => "XATTR_ITEM",
            VERITY_DESC_ITEM => "VERITY_DESC_ITEM",
            VERITY_MERKLE_ITEM => "VERITY_MERKLE_ITEM",
            ORPHAN_ITEM => "ORPHAN_ITEM",
            DIR_LOG_ITEM => "DIR_LOG_ITEM",
            DIR_LOG_INDEX => "DIR_LOG_INDEX",
            DIR_ITEM => "DIR_ITEM",
            DIR_INDEX => "DIR_INDEX",
            EXTENT_DATA => "EXTENT_DATA",
            EXTENT_CSUM => "EXTENT_CSUM",
            ROOT_ITEM => "ROOT_ITEM",
            ROOT_BACKREF => "ROOT_BACKREF",
            ROOT_REF => "ROOT_REF",
            EXTENT_ITEM => "EXTENT_ITEM",
            METADATA_ITEM => "METADATA_ITEM",
            EXTENT_OWNER_REF => "EXTENT_OWNER_REF",
            TREE_BLOCK_REF => "TREE_BLOCK_REF",
            EXTENT_DATA_REF => "EXTENT_DATA_REF",
            SHARED_BLOCK_REF => "SHARED_BLOCK_REF",
            SHARED_DATA_REF => "SHARED_DATA_REF",
            BLOCK_GROUP_ITEM => "BLOCK_GROUP_ITEM",
            FREE_SPACE_INFO => "FREE_SPACE_INFO",
            FREE_SPACE_EXTENT => "FREE_SPACE_EXTENT",
            FREE_SPACE_BITMAP => "FREE_SPACE_BITMAP",
            DEV_EXTENT => "DEV_EXTENT",
            DEV_ITEM => "DEV_ITEM",
            CHUNK_ITEM => "CHUNK_ITEM",
            QGROUP_STATUS => "QGROUP_STATUS",
            QGROUP_INFO => "QGROUP_INFO",
            QGROUP_LIMIT => "QGROUP_LIMIT",
            QGROUP_RELATION => "QGROUP_RELATION",
            TEMPORARY_ITEM => "TEMPORARY_ITEM",
            PERSISTENT_ITEM => "PERSISTENT_ITEM",
            DEV_REPLACE => "DEV_REPLACE",
            UUID_KEY_SUBVOL => "UUID_KEY_SUBVOL",
            UUID_KEY_RECEIVED_SUBVOL => "UUID_KEY_RECEIVED_SUBVOL",
            STRING_ITEM => "STRING_ITEM",
            _ => return None,
        })
    }
}
