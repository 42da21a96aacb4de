//! Extents in use, and who uses them.
//!
//! Picture:    EXTENT_ITEM or METADATA_ITEM = [`ExtentItem`], for an EXTENT_ITEM of a tree block
//!             [`TreeBlockInfo`], then references in the item, each a type byte and what belongs
//!             to it, by ascending type. What does not fit has items of its own, with keys by type
//!             and hash or address.

use wp_base::crc::crc32c;
use wp_base::{Corruption, FsResult};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DiskKey, Key, kind, view, wide};

/// `struct btrfs_extent_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ExtentItem {
    /// `refs`, sum of all references' counts.
    pub refs: U64,
    /// `generation`, transaction that made the extent.
    pub generation: U64,
    /// `flags`, see [`flag`].
    pub flags: U64,
}
const _: () = assert!(size_of::<ExtentItem>() == 24);

/// Bits of `flags`.
pub mod flag {
    /// Contents of files.
    pub const DATA: u64 = 1;
    /// A block of a tree.
    pub const TREE_BLOCK: u64 = 1 << 1;
    /// What this tree block points to is counted by its address, not by its tree.
    pub const FULL_BACKREF: u64 = 1 << 8;
}

/// In an EXTENT_ITEM of a tree block, of before skinny metadata. `struct btrfs_tree_block_info`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TreeBlockInfo {
    /// `key`, the block's first.
    pub key: DiskKey,
    /// `level`.
    pub level: u8,
}
const _: () = assert!(size_of::<TreeBlockInfo>() == 18);

/// A file has this extent. `struct btrfs_extent_data_ref`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ExtentDataRef {
    /// `root`, tree of the file.
    pub root: U64,
    /// `objectid`, inode.
    pub objectid: U64,
    /// `offset`: byte of the file at which the extent's start would be.
    pub offset: U64,
    /// `count` of file extents of which this is true.
    pub count: U32,
}
const _: () = assert!(size_of::<ExtentDataRef>() == 28);

/// A leaf has this extent. `struct btrfs_shared_data_ref`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SharedDataRef {
    /// `count`.
    pub count: U32,
}
const _: () = assert!(size_of::<SharedDataRef>() == 4);

/// Who uses an extent, without how often.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reference {
    /// TREE_BLOCK_REF: this tree.
    Tree {
        /// The tree.
        root: u64,
    },
    /// EXTENT_DATA_REF: a file.
    Data {
        /// Its tree.
        root: u64,
        /// Its inode.
        objectid: u64,
        /// Byte of the file at which the extent's start would be; may wrap.
        offset: u64,
    },
    /// SHARED_BLOCK_REF: this tree block points to it.
    SharedTree {
        /// Logical address of that block.
        parent: u64,
    },
    /// SHARED_DATA_REF: this leaf points to it.
    SharedData {
        /// Logical address of that leaf.
        parent: u64,
    },
}

/// `hash_extent_data_ref`: offset of the key of an EXTENT_DATA_REF item.
pub fn data_ref_hash(root: u64, objectid: u64, offset: u64) -> u64 {
    let high = crc32c(!0, &root.to_le_bytes());
    let low = crc32c(crc32c(!0, &objectid.to_le_bytes()), &offset.to_le_bytes());
    (u64::from(high) << 31) ^ u64::from(low)
}

impl Reference {
    /// Its type byte: that of a key, too.
    pub fn kind(self) -> u8 {
        match self {
            Reference::Tree { .. } => kind::TREE_BLOCK_REF,
            Reference::Data { .. } => kind::EXTENT_DATA_REF,
            Reference::SharedTree { .. } => kind::SHARED_BLOCK_REF,
            Reference::SharedData { .. } => kind::SHARED_DATA_REF,
        }
    }

    /// Bytes of a reference of this type byte in an item, the type included. `None`: no such type.
    /// `btrfs_extent_inline_ref_size`.
    pub fn inline_bytes_of(kind: u8) -> Option<usize> {
        Some(match kind {
            kind::TREE_BLOCK_REF | kind::SHARED_BLOCK_REF | kind::EXTENT_OWNER_REF => 9,
            kind::SHARED_DATA_REF => 13,
            kind::EXTENT_DATA_REF => 29,
            _ => return None,
        })
    }

    /// The key of an item of its own, of the extent at `bytenr`.
    pub fn key(self, bytenr: u64) -> Key {
        let offset = match self {
            Reference::Tree { root } => root,
            Reference::Data { root, objectid, offset } => data_ref_hash(root, objectid, offset),
            Reference::SharedTree { parent } | Reference::SharedData { parent } => parent,
        };
        Key::new(bytenr, self.kind(), offset)
    }

    /// The order among references of one type in an item is by descending value of this.
    pub fn rank(self) -> u64 {
        self.key(0).offset
    }

    /// The bytes in an item, with its count.
    pub fn inline_bytes(self, count: u32) -> Vec<u8> {
        let mut out = vec![self.kind()];
        match self {
            Reference::Data { .. } => {}
            Reference::Tree { root: n }
            | Reference::SharedTree { parent: n }
            | Reference::SharedData { parent: n } => out.extend(n.to_le_bytes()),
        }
        out.extend(self.item_bytes(count));
        out
    }

    /// The bytes of an item of its own, with its count. Those of tree blocks have none.
    pub fn item_bytes(self, count: u32) -> Vec<u8> {
        match self {
            Reference::Tree { .. } | Reference::SharedTree { .. } => Vec::new(),
            Reference::SharedData { .. } => count.to_le_bytes().to_vec(),
            Reference::Data { root, objectid, offset } => {
                let (root, objectid, offset) = (root.into(), objectid.into(), offset.into());
                ExtentDataRef { root, objectid, offset, count: count.into() }.as_bytes().to_vec()
            }
        }
    }

    /// The reference and count of an item of its own. `None`: not one, or too short.
    pub fn from_item(key: Key, item: &[u8]) -> Option<(Reference, u32)> {
        Some(match key.kind {
            kind::TREE_BLOCK_REF => (Reference::Tree { root: key.offset }, 1),
            kind::SHARED_BLOCK_REF => (Reference::SharedTree { parent: key.offset }, 1),
            kind::SHARED_DATA_REF => {
                let count = view::<SharedDataRef>(item, 0)?.count.get();
                (Reference::SharedData { parent: key.offset }, count)
            }
            kind::EXTENT_DATA_REF => data_ref(item)?,
            _ => return None,
        })
    }
}

fn data_ref(bytes: &[u8]) -> Option<(Reference, u32)> {
    let r = view::<ExtentDataRef>(bytes, 0)?;
    let (root, objectid, offset) = (r.root.get(), r.objectid.get(), r.offset.get());
    Some((Reference::Data { root, objectid, offset }, r.count.get()))
}

/// A reference within an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inline {
    /// Who.
    pub who: Reference,
    /// How often; 1 for tree blocks.
    pub count: u32,
    /// Bytes of the item before it.
    pub at: usize,
    /// Bytes of it.
    pub bytes: usize,
}

/// An EXTENT_ITEM or METADATA_ITEM, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Counts and flags.
    pub head: ExtentItem,
    /// Of tree blocks: their level.
    pub level: Option<u8>,
    /// References in the item, in its order.
    pub refs: Vec<Inline>,
    /// Bytes before the first reference.
    pub refs_at: usize,
}

impl Extent {
    /// The extent that an item with this key is. `at`: byte address, for the error.
    ///
    /// Source: `check_extent_item`.
    pub fn load(key: Key, item: &[u8], at: u64) -> FsResult<Extent> {
        let fail = |field, found: u64, expected: &str| {
            let expected = format!("{expected} {key}");
            Err(Corruption { structure: "btrfs extent item", field, at, found, expected }.into())
        };
        let Some(head) = view::<ExtentItem>(item, 0).copied() else {
            return fail("size", wide(item.len()), "24 or more");
        };
        let flags = head.flags.get();
        let is_tree = flags & flag::TREE_BLOCK != 0;
        if is_tree == (flags & flag::DATA != 0) {
            return fail("flags", flags, "data or tree block");
        }
        if !is_tree && key.kind != kind::EXTENT_ITEM {
            return fail("flags", flags, "a tree block");
        }
        let mut i = size_of::<ExtentItem>();
        let mut level = None;
        if is_tree && key.kind == kind::EXTENT_ITEM {
            let Some(info) = view::<TreeBlockInfo>(item, i) else {
                return fail("size", wide(item.len()), "room for key and level");
            };
            level = Some(info.level);
            i += size_of::<TreeBlockInfo>();
        } else if is_tree {
            level = u8::try_from(key.offset).ok();
        }
        if level.is_some_and(|l| l >= super::SuperBlock::LEVELS) || (is_tree && level.is_none()) {
            return fail("level", key.offset, "0 to 7");
        }
        let refs_at = i;
        let mut refs = Vec::new();
        let mut sum = 0u64;
        while let Some(&kind) = item.get(i) {
            let rest = item.get(i + 1..).unwrap_or(&[]);
            let who = match kind {
                kind::EXTENT_DATA_REF => data_ref(rest),
                kind::TREE_BLOCK_REF => {
                    view::<U64>(rest, 0).map(|n| (Reference::Tree { root: n.get() }, 1))
                }
                kind::SHARED_BLOCK_REF => {
                    view::<U64>(rest, 0).map(|n| (Reference::SharedTree { parent: n.get() }, 1))
                }
                kind::SHARED_DATA_REF => view::<U64>(rest, 0)
                    .zip(view::<U32>(rest, 8))
                    .map(|(n, c)| (Reference::SharedData { parent: n.get() }, c.get())),
                other => return fail("inline type", other.into(), "176, 178, 182 or 184"),
            };
            let bytes = Reference::inline_bytes_of(kind).unwrap_or(usize::MAX);
            let Some((who, count)) = who else {
                return fail("inline reference", wide(i), "one within the item");
            };
            let of_tree = matches!(who, Reference::Tree { .. } | Reference::SharedTree { .. });
            if of_tree != is_tree {
                return fail("inline type", kind.into(), "one of what the extent is");
            }
            // By ascending type, then by descending rank, on which a search for one relies.
            let order = |who: Reference| (who.kind(), !who.rank());
            if refs.last().is_some_and(|before: &Inline| order(before.who) > order(who)) {
                return fail("inline reference", wide(i), "one that comes behind those before it");
            }
            refs.push(Inline { who, count, at: i, bytes });
            sum = sum.saturating_add(count.into());
            i += bytes;
        }
        if sum > head.refs.get() {
            return fail("refs", head.refs.get(), "the sum of the references or more");
        }
        Ok(Extent { head, level, refs, refs_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_they_were_written() {
        let (refs, generation) = (6.into(), 7.into());
        let head = ExtentItem { refs, generation, flags: flag::DATA.into() };
        let mut item = head.as_bytes().to_vec();
        let data = Reference::Data { root: 5, objectid: 257, offset: 0u64.wrapping_sub(4096) };
        let shared = Reference::SharedData { parent: 1 << 20 };
        item.extend(data.inline_bytes(2));
        item.extend(shared.inline_bytes(3));
        let key = Key::new(1 << 24, kind::EXTENT_ITEM, 8192);
        let extent = Extent::load(key, &item, 0).expect("it is right");
        let found: Vec<_> = extent.refs.iter().map(|r| (r.who, r.count, r.at)).collect();
        assert_eq!(found, [(data, 2, 24), (shared, 3, 53)]);
        for cut in 25..item.len() {
            let whole = [24, 53].contains(&cut);
            let part = item.get(..cut).expect("shorter");
            assert_eq!(Extent::load(key, part, 0).is_ok(), whole, "{cut} bytes");
        }
        for who in [data, shared] {
            let own = Reference::from_item(who.key(key.objectid), &who.item_bytes(9));
            assert_eq!(own, Some((who, 9)));
        }
    }
}
