//! Tree blocks: nodes of pointers and leaves of items.
//!
//! Picture:    node (level 1 to 7) = [`Header`], then [`KeyPtr`]s.
//!             leaf (level 0) = [`Header`], then [`Item`]s from the front and their bytes from the
//!             end: the first item's bytes are the last of the block. Offsets count from the
//!             header's end.
//! Invariants: keys ascend; the bytes of items lie without gap, each before those of the item
//!             before it. [`NodeRef::verify`] has seen this of what it gives out.

use std::mem::offset_of;

use wp_base::{Corruption, FsResult};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CsumKind, DiskKey, Key, SuperBlock, at32, csum, id, view, wide};

/// At the start of every tree block. `struct btrfs_header`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// `csum` of all that follows.
    pub csum: [u8; csum::SPACE],
    /// `fsid`: [`SuperBlock::tree_uuid`].
    pub fsid: [u8; 16],
    /// `bytenr`, the block's own logical address.
    pub bytenr: U64,
    /// `flags`, see [`flag`], and in the upper byte a revision: [`Self::REVISION`].
    pub flags: U64,
    /// `chunk_tree_uuid`.
    pub chunk_tree_uuid: [u8; 16],
    /// `generation`, transaction that wrote it.
    pub generation: U64,
    /// `owner`, tree that it was made for.
    pub owner: U64,
    /// `nritems`: items, or pointers.
    pub nritems: U32,
    /// `level`, 0: leaf.
    pub level: u8,
}
/// Bytes of a header.
pub const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(HEADER_BYTES == 101);
const _: () = assert!(offset_of!(Header, bytenr) == 48);
const _: () = assert!(offset_of!(Header, generation) == 80);

/// Bits of `flags` in a [`Header`].
pub mod flag {
    /// `BTRFS_HEADER_FLAG_WRITTEN`: it is, or is being written: not to be changed in place.
    pub const WRITTEN: u64 = 1;
    /// `BTRFS_HEADER_FLAG_RELOC`: of a tree that balance moves.
    pub const RELOC: u64 = 1 << 1;
}

impl Header {
    /// `BTRFS_MIXED_BACKREF_REV` in its place: set in all blocks since 2009.
    pub const REVISION: u64 = 1 << 56;
}

/// An item of a leaf. `struct btrfs_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Item {
    /// `key`.
    pub key: DiskKey,
    /// `offset` of its bytes from the header's end.
    pub offset: U32,
    /// `size`, bytes.
    pub size: U32,
}
/// Bytes of an item without what it holds.
pub const ITEM_BYTES: usize = size_of::<Item>();
const _: () = assert!(ITEM_BYTES == 25);

/// A pointer of a node. `struct btrfs_key_ptr`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct KeyPtr {
    /// `key`: the child's first.
    pub key: DiskKey,
    /// `blockptr`, the child's logical address.
    pub blockptr: U64,
    /// `generation` of the child.
    pub generation: U64,
}
/// Bytes of a pointer.
pub const PTR_BYTES: usize = size_of::<KeyPtr>();
const _: () = assert!(PTR_BYTES == 33);

/// Bytes for items and what they hold. `BTRFS_LEAF_DATA_SIZE`.
pub const fn leaf_space(node_bytes: usize) -> usize {
    node_bytes - HEADER_BYTES
}

/// Pointers that a node has room for. `BTRFS_NODEPTRS_PER_BLOCK`.
pub const fn ptrs_max(node_bytes: usize) -> usize {
    leaf_space(node_bytes) / PTR_BYTES
}

/// What is known of a block before it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its logical address.
    pub bytenr: u64,
    /// Its generation, if that is known.
    pub generation: Option<u64>,
    /// Its level, if that is known.
    pub level: Option<u8>,
    /// Its first key, if that is known: it is below a node then, and not empty.
    pub first_key: Option<Key>,
    /// The tree that it is of, or the one that its parent was made for. `None`: any.
    pub owner: Option<u64>,
}

impl Expected {
    /// A block of which only the address is known.
    pub fn at(bytenr: u64) -> Expected {
        Expected { bytenr, generation: None, level: None, first_key: None, owner: None }
    }

    /// Holds a block that is sound by itself against what leads to it. `at`: byte address, for the
    /// error.
    ///
    /// Source: `btrfs_verify_level_key`, `btrfs_check_eb_owner`, `verify_parent_transid`.
    pub fn verify(&self, node: &NodeRef<'_>, at: u64) -> FsResult<()> {
        let h = node.header();
        let fail = |field, found: u64, expected: String| {
            let expected = format!("{expected} (block {})", self.bytenr);
            Err(Corruption { structure: "btrfs tree block", field, at, found, expected }.into())
        };
        if self.level.is_some_and(|l| l != h.level) {
            return fail("level", h.level.into(), self.level.unwrap_or(0).to_string());
        }
        if self.generation.is_some_and(|g| g != h.generation.get()) {
            let right = self.generation.unwrap_or(0);
            return fail("generation", h.generation.get(), format!("{right:#x}"));
        }
        if let Some(right) = self.first_key {
            match node.key(0) {
                Some(found) if found == right => {}
                Some(found) => {
                    return fail("first key", found.objectid, format!("{right}, not {found}"));
                }
                None => return fail("nritems", 0, "1 or more, below a node".to_owned()),
            }
        }
        let owner = h.owner.get();
        if let Some(tree) = self.owner
            && !id::may_have(tree, owner)
        {
            let right = match id::is_file_tree(tree) {
                true => "a tree of files".to_owned(),
                false => tree.cast_signed().to_string(),
            };
            return fail("owner", owner, right);
        }
        Ok(())
    }
}

/// What all blocks of a file system share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    /// Checksum.
    pub csum: CsumKind,
    /// Uuid in the blocks.
    pub fsid: [u8; 16],
    /// Bytes of a block.
    pub node_bytes: usize,
}

/// A tree block that was verified.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    bytes: &'a [u8],
}

impl<'a> NodeRef<'a> {
    /// Checks a block as it was read. `at`: its byte address on the device, for the error.
    ///
    /// Source: `btrfs_validate_extent_buffer`, and of fs/btrfs/tree-checker.c what does not hang on
    /// the meaning of items.
    pub fn verify(
        bytes: &'a [u8],
        common: &Common,
        expected: &Expected,
        at: u64,
    ) -> FsResult<NodeRef<'a>> {
        let fail = |field, found: u64, right: String| {
            let expected = format!("{right} (block {})", expected.bytenr);
            Err(Corruption { structure: "btrfs tree block", field, at, found, expected }.into())
        };
        let Some(h) = view::<Header>(bytes, 0).filter(|_| bytes.len() == common.node_bytes) else {
            return fail("size", wide(bytes.len()), common.node_bytes.to_string());
        };
        if h.bytenr.get() != expected.bytenr {
            return fail("bytenr", h.bytenr.get(), format!("{:#x}", expected.bytenr));
        }
        if h.fsid != common.fsid {
            let found = view::<U64>(&h.fsid, 0).map_or(0, |n| n.get());
            return fail("fsid", found, "that of the super block".to_owned());
        }
        if !common.csum.is_sealed(bytes) {
            let right = common.csum.sum(bytes.get(csum::SPACE..).unwrap_or(&[]));
            return fail("csum", common.csum.stored(bytes), format!("{right:#x}"));
        }
        if h.level >= SuperBlock::LEVELS {
            return fail("level", h.level.into(), "0 to 7".to_owned());
        }
        if h.flags.get() & flag::WRITTEN == 0 {
            // In memory it would be taken for one of the running transaction.
            return fail(
                "flags",
                h.flags.get(),
                "WRITTEN, as of all that is on a device".to_owned(),
            );
        }
        let node = NodeRef { bytes };
        if h.level == 0 {
            node.verify_leaf(at)?
        } else {
            node.verify_ptrs(at)?
        }
        expected.verify(&node, at)?;
        Ok(node)
    }

    /// A block of which it is known that it is sound: one that was verified or made here.
    pub fn trusted(bytes: &'a [u8]) -> NodeRef<'a> {
        NodeRef { bytes }
    }

    fn verify_leaf(&self, at: u64) -> FsResult<()> {
        let space = leaf_space(self.bytes.len());
        let n = self.len();
        let owner = self.header().owner.get();
        let at_slot = |i: usize| at + wide(HEADER_BYTES + i * ITEM_BYTES);
        let fail = |field, i, found: u64, expected: String| {
            let at = at_slot(i);
            Err(Corruption { structure: "btrfs leaf", field, at, found, expected }.into())
        };
        if n == 0 {
            let never = [id::ROOT_TREE, id::EXTENT_TREE, id::CHUNK_TREE, id::DEV_TREE, id::FS_TREE];
            if never.contains(&owner) || owner == id::DATA_RELOC_TREE {
                return fail("nritems", 0, 0, format!("1 or more in tree {owner}"));
            }
            return Ok(());
        }
        if n > space / ITEM_BYTES {
            return fail("nritems", 0, wide(n), format!("{} or fewer", space / ITEM_BYTES));
        }
        let mut end = space;
        let mut before: Option<Key> = None;
        let items = self.bytes.get(HEADER_BYTES..HEADER_BYTES + n * ITEM_BYTES);
        let items = items.and_then(|b| <[Item]>::ref_from_bytes(b).ok()).unwrap_or(&[]);
        for (i, item) in items.iter().enumerate() {
            let (offset, size) = (at32(item.offset.get()), at32(item.size.get()));
            if offset.checked_add(size) != Some(end) {
                return fail("offset", i, wide(offset), format!("{end:#x} less size {size:#x}"));
            }
            if offset < n * ITEM_BYTES {
                return fail("offset", i, wide(offset), "behind the items".to_owned());
            }
            let key = item.key.get();
            if before.is_some_and(|b| b >= key) {
                let before = before.unwrap_or_default();
                return fail("key", i, key.objectid, format!("more than {before}, not {key}"));
            }
            (end, before) = (offset, Some(key));
        }
        Ok(())
    }

    fn verify_ptrs(&self, at: u64) -> FsResult<()> {
        let n = self.len();
        let fail = |field, i: usize, found: u64, expected: String| {
            let at = at + wide(HEADER_BYTES + i * PTR_BYTES);
            Err(Corruption { structure: "btrfs node", field, at, found, expected }.into())
        };
        let most = ptrs_max(self.bytes.len());
        if n == 0 || n > most {
            return fail("nritems", 0, wide(n), format!("1 to {most}"));
        }
        let mut before: Option<Key> = None;
        for i in 0..n {
            let Some(p) = self.ptr(i) else { break };
            let block = p.blockptr.get();
            if block == 0 || block % 4096 != 0 {
                return fail("blockptr", i, block, "a multiple of the sector size".to_owned());
            }
            let key = p.key.get();
            if before.is_some_and(|b| b >= key) {
                let before = before.unwrap_or_default();
                return fail("key", i, key.objectid, format!("more than {before}, not {key}"));
            }
            before = Some(key);
        }
        Ok(())
    }

    /// Its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header.
    pub fn header(&self) -> &'a Header {
        view(self.bytes, 0).expect("a block has a header")
    }

    /// Level, 0: leaf.
    pub fn level(&self) -> u8 {
        self.header().level
    }

    /// Items, or pointers.
    #[expect(clippy::len_without_is_empty, reason = "it is a count of slots, no container")]
    pub fn len(&self) -> usize {
        at32(self.header().nritems.get())
    }

    /// Where slots are: their first byte, and bytes of each.
    fn slot_bytes(&self) -> usize {
        if self.level() == 0 { ITEM_BYTES } else { PTR_BYTES }
    }

    /// The key in a slot. `None` beyond the last.
    pub fn key(&self, slot: usize) -> Option<Key> {
        if slot >= self.len() {
            return None;
        }
        view::<DiskKey>(self.bytes, HEADER_BYTES + slot * self.slot_bytes()).map(DiskKey::get)
    }

    /// The head of an item of a leaf.
    pub fn item(&self, slot: usize) -> Option<&'a Item> {
        if slot >= self.len() {
            return None;
        }
        view(self.bytes, HEADER_BYTES + slot * ITEM_BYTES)
    }

    /// The bytes of an item of a leaf.
    pub fn data(&self, slot: usize) -> Option<&'a [u8]> {
        let item = self.item(slot)?;
        let from = HEADER_BYTES.checked_add(at32(item.offset.get()))?;
        self.bytes.get(from..from.checked_add(at32(item.size.get()))?)
    }

    /// Where the bytes of an item begin in the block.
    pub fn data_at(&self, slot: usize) -> usize {
        self.item(slot).map_or(0, |item| HEADER_BYTES + at32(item.offset.get()))
    }

    /// A pointer of a node.
    pub fn ptr(&self, slot: usize) -> Option<&'a KeyPtr> {
        if slot >= self.len() {
            return None;
        }
        view(self.bytes, HEADER_BYTES + slot * PTR_BYTES)
    }

    /// Items of a leaf in order, with their bytes.
    pub fn items(&self) -> impl Iterator<Item = (Key, &'a [u8])> + use<'a> {
        let node = *self;
        (0..node.len()).filter_map(move |i| Some((node.key(i)?, node.data(i)?)))
    }

    /// The slot of a key, or where it would be.
    pub fn find(&self, key: Key) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        let step = self.slot_bytes();
        while low < high {
            let mid = low.midpoint(high);
            let at = HEADER_BYTES + mid * step;
            let Some(found) = view::<DiskKey>(self.bytes, at) else { return Err(low) };
            match found.get().cmp(&key) {
                std::cmp::Ordering::Less => low = mid + 1,
                std::cmp::Ordering::Equal => return Ok(mid),
                std::cmp::Ordering::Greater => high = mid,
            }
        }
        Err(low)
    }

    /// The slot of the child below which a key is, or would be: the last with a key of no more, or
    /// the first.
    pub fn child_of(&self, key: Key) -> usize {
        self.find(key).unwrap_or_else(|at| at.saturating_sub(1))
    }

    /// Bytes of a leaf that are free. `btrfs_leaf_free_space`.
    pub fn free_bytes(&self) -> usize {
        let n = self.len();
        let end = match n.checked_sub(1).and_then(|last| self.item(last)) {
            Some(item) => at32(item.offset.get()),
            None => leaf_space(self.bytes.len()),
        };
        end.saturating_sub(n * ITEM_BYTES)
    }
}
