//! What Linux refuses of items when it reads a leaf, before anybody asks for them.
//!
//! Picture:    all trees ([`check_trees`]) -> each block once -> each leaf's items ([`Leaf`]); then
//!             what a mount compares: sizes of the device, and chunks with the device's extents.
//! Invariants: 1. no bytes make it panic; a block is read once, so its time grows with the image.
//!             2. it refuses nothing that Linux 6.12 takes: `fsck` is what compares trees.
//! Left out:   trees that a balance was moving, and those of subvolumes that are half deleted.
//! Source:     fs/btrfs/tree-checker.c, `btrfs_read_chunk_tree`, `btrfs_verify_dev_extents`.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};
use wp_vfs::FileType;

use crate::disk::chunk::group;
use crate::disk::extent::Extent;
use crate::disk::inode::{flag, mode};
use crate::disk::node::Expected;
use crate::disk::{
    BlockGroupItem, Chunk, DevExtent, DevItem, FileExtent, InodeItem, Key, NodeRef, RootItem,
    SuperBlock, dir, id, inode, kind, misc, view, wide,
};

use super::{Image, Tree};

/// Findings that are kept.
const MOST: usize = 100;
const SECTOR: u64 = 4096;
/// `BTRFS_INODE_FLAG_MASK`, and in the upper half `BTRFS_INODE_RO_FLAG_MASK`.
const INODE_FLAGS: u64 = ((1 << 12) - 1) | flag::ROOT_ITEM_INIT | (1 << 32);

/// All that Linux refuses to read of an image, as far as it is an item's or the device's.
pub(super) fn check_trees(image: &Image<'_>) -> Vec<FsError> {
    let mut walk = Walk { image, seen: BTreeSet::new(), found: Vec::new(), trees: Vec::new() };
    let mut device = Device::default();
    walk.tree(&image.chunk_tree(), &mut device);
    walk.tree(&image.root_tree, &mut device);
    for tree in std::mem::take(&mut walk.trees) {
        walk.tree(&tree, &mut device);
    }
    if walk.found.is_empty() {
        walk.found.extend(device.check(image).err());
    }
    walk.found
}

/// A walk over all trees.
struct Walk<'w, 'a> {
    image: &'w Image<'a>,
    /// Blocks that were seen: snapshots share them.
    seen: BTreeSet<u64>,
    found: Vec<FsError>,
    /// Trees that the root tree names.
    trees: Vec<Tree>,
}

impl Walk<'_, '_> {
    fn tree(&mut self, tree: &Tree, device: &mut Device) {
        let root = Expected {
            bytenr: tree.bytenr,
            generation: Some(tree.generation),
            level: Some(tree.level),
            first_key: None,
            owner: Some(tree.id),
        };
        self.block(&root, tree.id, device);
    }

    fn block(&mut self, what: &Expected, tree: u64, device: &mut Device) {
        if !self.seen.insert(what.bytenr) || self.found.len() >= MOST {
            return;
        }
        let bytes = match self.image.tree_block(what) {
            Ok(bytes) => bytes,
            Err(e) => return self.found.push(e),
        };
        let node = NodeRef::trusted(&bytes);
        if let Some(below) = node.level().checked_sub(1) {
            for ptr in (0..node.len()).filter_map(|slot| node.ptr(slot)) {
                let child = Expected {
                    bytenr: ptr.blockptr.get(),
                    generation: Some(ptr.generation.get()),
                    level: Some(below),
                    first_key: Some(ptr.key.get()),
                    owner: Some(tree),
                };
                self.block(&child, tree, device);
            }
            return;
        }
        let at = self.image.place(what.bytenr);
        let leaf = self.image.leaf(node);
        for slot in 0..node.len() {
            let (Some(key), Some(bytes)) = (node.key(slot), node.data(slot)) else { break };
            let at = at + wide(node.data_at(slot));
            if let Err(e) = leaf.check(slot, key, bytes, at) {
                self.found.push(e);
                // Linux refuses the leaf as a whole.
                return;
            }
            match (tree, key.kind) {
                (id::ROOT_TREE, kind::ROOT_ITEM) => self.add_tree(key, bytes, at),
                (id::CHUNK_TREE, _) | (id::DEV_TREE, kind::DEV_EXTENT) => {
                    device.item(key, bytes, at);
                }
                _ => {}
            }
        }
    }

    fn add_tree(&mut self, key: Key, bytes: &[u8], at: u64) {
        let Ok(item) = RootItem::load(bytes, at) else { return };
        if key.objectid != id::TREE_RELOC && item.drop_progress.get() == Key::MIN {
            self.trees.push(Tree {
                id: key.objectid,
                bytenr: item.bytenr.get(),
                level: item.level,
                generation: item.generation.get(),
                item,
            });
        }
    }
}

impl Image<'_> {
    fn leaf<'l>(&'l self, node: NodeRef<'l>) -> Leaf<'l> {
        Leaf { sb: &self.sb, csum_bytes: self.common.csum.bytes(), node }
    }

    /// Checks the items of the leaf at `bytenr`; a node has none. Errors: `Corrupt`.
    ///
    /// Source: `btrfs_check_leaf`, which Linux calls for every leaf that it reads.
    pub(super) fn check_leaf(&self, node: NodeRef<'_>, bytenr: u64) -> FsResult<()> {
        let (leaf, at) = (self.leaf(node), self.place(bytenr));
        let slots = if node.level() == 0 { node.len() } else { 0 };
        for slot in 0..slots {
            let (Some(key), Some(bytes)) = (node.key(slot), node.data(slot)) else { break };
            leaf.check(slot, key, bytes, at + wide(node.data_at(slot)))?;
        }
        Ok(())
    }
}

/// A leaf, for its items.
struct Leaf<'l> {
    sb: &'l SuperBlock,
    csum_bytes: usize,
    node: NodeRef<'l>,
}

impl Leaf<'_> {
    /// `check_leaf_item`. Kinds that are not known pass, as in Linux.
    fn check(&self, slot: usize, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        match key.kind {
            kind::EXTENT_DATA => self.file_extent(slot, key, bytes, at),
            kind::EXTENT_CSUM => self.sums(slot, key, bytes, at),
            kind::DIR_ITEM | kind::DIR_INDEX | kind::XATTR_ITEM => self.names(slot, key, bytes, at),
            kind::INODE_REF => {
                self.of_one_inode(slot, key, at)?;
                match inode::refs(bytes, key.offset).find_map(Result::err) {
                    Some(_) => {
                        wrong("inode reference", "size", at, wide(bytes.len()), "whole ones")
                    }
                    None => Ok(()),
                }
            }
            kind::BLOCK_GROUP_ITEM => self.group(key, bytes, at),
            kind::CHUNK_ITEM => self.sb.check_kinds(&Chunk::load_item(bytes, at)?, at),
            kind::DEV_ITEM => DevItem::load(key, bytes, at).map(drop),
            kind::INODE_ITEM => self.inode(key, bytes, at),
            kind::ROOT_ITEM => self.root(key, bytes, at),
            kind::EXTENT_ITEM | kind::METADATA_ITEM => self.extent(slot, key, bytes, at),
            kind::TREE_BLOCK_REF | kind::SHARED_BLOCK_REF if !bytes.is_empty() => {
                wrong("keyed reference", "size", at, wide(bytes.len()), "0")
            }
            _ => Ok(()),
        }
    }

    /// The newest generation that something of a leaf can have: a log is one newer.
    fn newest(&self) -> u64 {
        self.sb.generation.get().saturating_add(1)
    }

    fn before(&self, slot: usize) -> Option<Key> {
        self.node.key(slot.checked_sub(1)?)
    }

    /// `check_prev_ino`: an inode's items follow each other.
    fn of_one_inode(&self, slot: usize, key: Key, at: u64) -> FsResult<()> {
        let owner = self.node.header().owner.get();
        match self.before(slot) {
            Some(before) if id::is_file_tree(owner) && before.objectid != key.objectid => {
                let expected = format!("{}, as of the item before it {key}", before.objectid);
                Err(FsError::corrupt("btrfs item", "objectid", at, key.objectid, expected))
            }
            _ => Ok(()),
        }
    }

    /// `check_extent_data_item`.
    fn file_extent(&self, slot: usize, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        self.of_one_inode(slot, key, at)?;
        let FileExtent::Regular(_) = FileExtent::load(key, bytes, at)? else { return Ok(()) };
        let Some(before) = self.before(slot) else { return Ok(()) };
        if before.objectid != key.objectid || before.kind != key.kind {
            return Ok(());
        }
        let data = slot.checked_sub(1).and_then(|n| self.node.data(n)).unwrap_or(&[]);
        let Ok(extent) = FileExtent::load(before, data, at) else { return Ok(()) };
        let end = before.offset.saturating_add(extent.len());
        if matches!(extent, FileExtent::Regular(_)) && end > key.offset {
            let expected = format!("{end} or more: they overlap {key}");
            return Err(FsError::corrupt("btrfs file extent", "offset", at, key.offset, expected));
        }
        Ok(())
    }

    /// `check_csum_item`.
    fn sums(&self, slot: usize, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        if key.objectid != id::EXTENT_CSUM {
            return wrong("checksum item", "objectid", at, key.objectid, "-10");
        }
        misc::check_csum_item(key, bytes.len(), self.csum_bytes, at)?;
        let Some(before) = self.before(slot).filter(|b| b.kind == key.kind) else { return Ok(()) };
        let data = slot.checked_sub(1).and_then(|n| self.node.data(n)).unwrap_or(&[]);
        let sectors = wide(data.len() / self.csum_bytes.max(1));
        let end = before.offset.saturating_add(sectors.saturating_mul(SECTOR));
        if end > key.offset {
            let expected = format!("{end} or more: they overlap {key}");
            let structure = "btrfs checksum item";
            return Err(FsError::corrupt(structure, "offset", at, key.offset, expected));
        }
        Ok(())
    }

    /// `check_dir_item`.
    fn names(&self, slot: usize, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        self.of_one_inode(slot, key, at)?;
        let bad = |field, found, expected| wrong("directory item", field, at, found, expected);
        for entry in dir::entries(bytes) {
            let Ok(e) = entry else {
                return bad("size", wide(bytes.len()), "whole entries");
            };
            let is_xattr = e.kind == dir::XATTR;
            if e.kind > dir::XATTR || is_xattr != (key.kind == kind::XATTR_ITEM) {
                return bad("type", e.kind.into(), "a type of this item");
            }
            if !is_xattr {
                location(e.location, at)?;
            }
            if e.name.len() > dir::NAME_MAX {
                return bad("name_len", wide(e.name.len()), "255 or less");
            }
            if !is_xattr && !e.data.is_empty() {
                return bad("data_len", wide(e.data.len()), "0");
            }
            let is_hashed = key.kind != kind::DIR_INDEX;
            if is_hashed && dir::name_hash(e.name) != key.offset {
                let expected = format!("the hash {:#x} {key}", dir::name_hash(e.name));
                let structure = "btrfs directory item";
                return Err(FsError::corrupt(structure, "hash", at, key.offset, expected));
            }
        }
        Ok(())
    }

    /// `check_block_group_item`.
    fn group(&self, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        let bad = |field, found, expected| wrong("block group", field, at, found, expected);
        let item = view::<BlockGroupItem>(bytes, 0).filter(|_| bytes.len() == 24);
        let Some(item) = item else { return bad("size", wide(bytes.len()), "24") };
        let flags = item.flags.get();
        if key.offset == 0 {
            return bad("length", 0, "1 or more");
        }
        if item.chunk_objectid.get() != id::FIRST_CHUNK_TREE {
            return bad("chunk_objectid", item.chunk_objectid.get(), "256");
        }
        if item.used.get() > key.offset {
            return bad("used", item.used.get(), "the length of the group or less");
        }
        if (flags & group::PROFILES).count_ones() > 1 {
            return bad("flags", flags, "one profile");
        }
        let kinds = flags & group::KINDS;
        let both = group::DATA | group::METADATA;
        if kinds.count_ones() != 1 && kinds != both {
            return bad("flags", flags, "data, metadata or system");
        }
        Ok(())
    }

    /// `check_inode_item`.
    fn inode(&self, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        let bad = |field, found, expected| wrong("inode", field, at, found, expected);
        let item = view::<InodeItem>(bytes, 0).filter(|_| bytes.len() == size_of::<InodeItem>());
        let Some(i) = item else { return bad("size", wide(bytes.len()), "160") };
        inode_key(key, at)?;
        for (field, n) in [("generation", i.generation), ("transid", i.transid)] {
            if n.get() > self.newest() {
                return bad(field, n.get(), "one newer than the super block's, or less");
            }
        }
        let m = i.mode.get();
        if m & !(mode::TYPE | 0o7777) != 0 || FileType::from_mode(m).is_none() {
            return bad("mode", m.into(), "a type and permissions");
        }
        if i.is_dir() && i.nlink.get() > 1 {
            return bad("nlink", i.nlink.get().into(), "1 or less for a directory");
        }
        match i.flags.get() & !INODE_FLAGS {
            0 => Ok(()),
            unknown => bad("flags", unknown, "known flags"),
        }
    }

    /// `check_root_item`.
    fn root(&self, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        let bad = |field, found, expected| wrong("root item", field, at, found, expected);
        if key.objectid == 0 {
            return bad("key.objectid", 0, "1 or more");
        }
        let item = RootItem::load(bytes, at)?;
        for (field, n) in [
            ("generation", item.generation),
            ("generation_v2", item.generation_v2),
            ("last_snapshot", item.last_snapshot),
        ] {
            if n.get() > self.newest() {
                return bad(field, n.get(), "one newer than the super block's, or less");
            }
        }
        if item.drop_level >= SuperBlock::LEVELS {
            return bad("drop_level", item.drop_level.into(), "0 to 7");
        }
        Ok(())
    }

    /// `check_extent_item`.
    fn extent(&self, slot: usize, key: Key, bytes: &[u8], at: u64) -> FsResult<()> {
        let bad = |field, found, expected| wrong("extent item", field, at, found, expected);
        if !key.objectid.is_multiple_of(SECTOR) {
            return bad("bytenr", key.objectid, "a multiple of the sector size");
        }
        let is_skinny = key.kind == kind::METADATA_ITEM;
        if !is_skinny && !key.offset.is_multiple_of(SECTOR) {
            return bad("length", key.offset, "a multiple of the sector size");
        }
        let extent = Extent::load(key, bytes, at)?;
        if extent.head.refs.get() == 0 {
            return bad("refs", 0, "1 or more");
        }
        if extent.head.generation.get() > self.newest() {
            let expected = "one newer than the super block's, or less";
            return bad("generation", extent.head.generation.get(), expected);
        }
        let node_bytes = u64::from(self.sb.nodesize.get());
        if extent.level.is_some() && !is_skinny && key.offset != node_bytes {
            return bad("length", key.offset, "the size of a tree block");
        }
        let Some(before) = self.before(slot) else { return Ok(()) };
        let before_bytes = match before.kind {
            kind::EXTENT_ITEM => before.offset,
            kind::METADATA_ITEM => node_bytes,
            _ => return Ok(()),
        };
        match before.objectid.checked_add(before_bytes) {
            Some(end) if end <= key.objectid => Ok(()),
            _ => bad("bytenr", key.objectid, "one behind the extent before it"),
        }
    }
}

/// What a name of a directory leads to: `check_root_key`, `check_inode_key`.
fn location(key: Key, at: u64) -> FsResult<()> {
    match key.kind {
        kind::ROOT_ITEM if id::is_file_tree(key.objectid) => Ok(()),
        kind::INODE_ITEM => inode_key(key, at),
        _ => wrong("directory item", "location", at, key.objectid, "an inode or a subvolume"),
    }
}

/// `check_inode_key`.
fn inode_key(key: Key, at: u64) -> FsResult<()> {
    let is_number = (id::FIRST_FREE..=id::LAST_FREE).contains(&key.objectid)
        || [id::ROOT_TREE_DIR, id::FREE_INO].contains(&key.objectid);
    if !is_number {
        return wrong("inode", "key.objectid", at, key.objectid, "the number of an inode");
    }
    if key.offset != 0 {
        return wrong("inode", "key.offset", at, key.offset, "0");
    }
    Ok(())
}

fn wrong(what: &str, field: &'static str, at: u64, found: u64, expected: &str) -> FsResult<()> {
    let structure = match what {
        "inode reference" => "btrfs inode reference",
        "checksum item" => "btrfs checksum item",
        "directory item" => "btrfs directory item",
        "block group" => "btrfs block group",
        "inode" => "btrfs inode",
        "root item" => "btrfs root item",
        "extent item" => "btrfs extent item",
        _ => "btrfs keyed reference",
    };
    Err(FsError::corrupt(structure, field, at, found, expected.to_owned()))
}

/// What trees say of the device.
#[derive(Default)]
pub(super) struct Device {
    /// Its bytes, as its item has them, and where that stands.
    bytes: Option<(u64, u64)>,
    /// Places of chunks: first byte of the device, the chunk, its bytes, and where its item stands.
    places: BTreeMap<u64, (u64, u64, u64)>,
    /// Parts of the device: first byte, the chunk, bytes, and where the item stands.
    extents: BTreeMap<u64, (u64, u64, u64)>,
}

impl Device {
    pub(super) fn item(&mut self, key: Key, bytes: &[u8], at: u64) {
        match key.kind {
            kind::DEV_ITEM => {
                self.bytes = view::<DevItem>(bytes, 0).map(|d| (d.total_bytes.get(), at));
            }
            kind::CHUNK_ITEM => {
                let Ok(chunk) = Chunk::load_item(bytes, at) else { return };
                for stripe in &chunk.stripes {
                    let new = (key.offset, chunk.head.length.get(), at);
                    self.places.insert(stripe.offset.get(), new);
                }
            }
            kind::DEV_EXTENT => {
                let Some(e) = view::<DevExtent>(bytes, 0) else { return };
                self.extents.insert(key.offset, (e.chunk_offset.get(), e.length.get(), at));
            }
            _ => {}
        }
    }

    /// What a mount compares of the device. Errors: `Corrupt`.
    pub(super) fn check(&self, image: &Image<'_>) -> FsResult<()> {
        let total = image.sb.total_bytes.get();
        if let Some((bytes, at)) = self.bytes.filter(|(bytes, _)| *bytes > total) {
            let expected = format!("{total:#x} or fewer, as the super block has");
            return Err(FsError::corrupt("btrfs dev item", "total_bytes", at, bytes, expected));
        }
        let mut end = 0u64;
        for (start, (chunk, bytes, at)) in &self.extents {
            let found = |field, expected: &str| {
                let expected = format!("{expected} (chunk {chunk})");
                Err(FsError::corrupt("btrfs dev extent", field, *at, *start, expected))
            };
            if *start < end {
                return found("offset", "one behind the extent before it");
            }
            end = start.saturating_add(*bytes);
            match self.places.get(start) {
                Some((of, len, _)) if of == chunk && len == bytes => {}
                _ => return found("offset", "a place of that chunk with its length"),
            }
        }
        for (start, (chunk, _, at)) in &self.places {
            if !self.extents.contains_key(start) {
                let expected = format!("a dev extent there (chunk {chunk})");
                return Err(FsError::corrupt("btrfs chunk", "offset", *at, *start, expected));
            }
        }
        Ok(())
    }
}
