//! The items of a new file system, and leaves of them.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};
use wp_vfs::FileType;
use zerocopy::{FromZeros, IntoBytes};

use crate::disk::extent::flag;
use crate::disk::inode::{self, ref_bytes};
use crate::disk::misc::uuid_key;
use crate::disk::node::{self, HEADER_BYTES, ITEM_BYTES};
use crate::disk::{
    BlockGroupItem, Chunk, DevExtent, ExtentItem, FreeSpaceInfo, Header, InodeItem, Item, Key,
    Reference, RootItem, Timespec, at32, dir, id, kind, lo32, wide,
};

use super::layout::{Layout, NewChunk};
use super::{MkfsOptions, dev_item};

type Items = BTreeMap<Key, Vec<u8>>;

/// The transaction in which directories are made.
const FIRST_GENERATION: u64 = 3;
/// The one in which the tree of data that is moved is made.
const RELOC_GENERATION: u64 = 5;

/// All leaves: logical addresses with contents.
pub(super) fn leaves(o: &MkfsOptions, layout: &Layout) -> FsResult<Vec<(u64, Vec<u8>)>> {
    let mut out = Vec::new();
    for l in &layout.leaves {
        let items = match l.tree {
            id::ROOT_TREE => root_tree(o, layout),
            id::EXTENT_TREE => extent_tree(o, layout),
            id::CHUNK_TREE => chunk_tree(o, layout),
            id::DEV_TREE => dev_tree(o, layout),
            id::FS_TREE => directory(o, FIRST_GENERATION, o.node_bytes.into(), o.now),
            id::UUID_TREE => {
                let key = uuid_key(o.subvolume_uuid, kind::UUID_KEY_SUBVOL);
                Items::from([(key, id::FS_TREE.to_le_bytes().to_vec())])
            }
            id::FREE_SPACE_TREE => free_space_tree(o, layout),
            id::DATA_RELOC_TREE => directory(o, RELOC_GENERATION, 0, 0),
            _ => Items::new(),
        };
        let header = Header {
            bytenr: l.logical.into(),
            generation: l.generation.into(),
            owner: l.tree.into(),
            ..header(o)
        };
        out.push((l.logical, leaf(o, header, &items)?));
    }
    Ok(out)
}

fn header(o: &MkfsOptions) -> Header {
    Header {
        fsid: o.uuid,
        flags: (node::flag::WRITTEN | Header::REVISION).into(),
        chunk_tree_uuid: o.chunk_uuid,
        ..Header::new_zeroed()
    }
}

/// A leaf of these items. Errors: `NoSpace` if they do not fit.
fn leaf(o: &MkfsOptions, mut header: Header, items: &Items) -> FsResult<Vec<u8>> {
    let mut block = vec![0; at32(o.node_bytes)];
    header.nritems = lo32(items.len()).into();
    let (mut at, mut end) = (HEADER_BYTES, block.len());
    let mut put = |at: usize, bytes: &[u8]| {
        block
            .get_mut(at..at + bytes.len())
            .ok_or(FsError::NoSpace)
            .map(|p| p.copy_from_slice(bytes))
    };
    put(0, header.as_bytes())?;
    for (key, bytes) in items {
        end -= bytes.len();
        if end < at + ITEM_BYTES {
            return Err(FsError::NoSpace);
        }
        let (key, offset) = ((*key).into(), lo32(end - HEADER_BYTES).into());
        let item = Item { key, offset, size: lo32(bytes.len()).into() };
        put(at, item.as_bytes())?;
        put(end, bytes)?;
        at += ITEM_BYTES;
    }
    o.csum.seal(&mut block);
    Ok(block)
}

fn dir_inode(o: &MkfsOptions, generation: u64, nbytes: u64, otime: u64) -> InodeItem {
    let now = Timespec::seconds(o.now);
    InodeItem {
        generation: generation.into(),
        nbytes: nbytes.into(),
        nlink: 1.into(),
        mode: (inode::mode::DIR | 0o755).into(),
        atime: now,
        ctime: now,
        mtime: now,
        otime: Timespec::seconds(otime),
        ..InodeItem::zeroed()
    }
}

/// A tree with a root directory.
fn directory(o: &MkfsOptions, generation: u64, nbytes: u64, otime: u64) -> Items {
    let inode = dir_inode(o, generation, nbytes, otime);
    let ino = id::FIRST_FREE;
    Items::from([
        (Key::new(ino, kind::INODE_ITEM, 0), inode.as_bytes().to_vec()),
        (Key::new(ino, kind::INODE_REF, ino), ref_bytes(0, b"..")),
    ])
}

fn root_tree(o: &MkfsOptions, layout: &Layout) -> Items {
    let mut items = Items::new();
    for l in &layout.leaves {
        if l.tree == id::ROOT_TREE || l.tree == id::CHUNK_TREE {
            continue;
        }
        let mut root = RootItem::zeroed();
        // Trees of the program's first transactions have an inode that nobody reads.
        if l.tree != id::UUID_TREE && l.tree != id::DATA_RELOC_TREE {
            root.inode.generation = 1.into();
            root.inode.size = 3.into();
            root.inode.nlink = 1.into();
            root.inode.nbytes = u64::from(o.node_bytes).into();
            root.inode.mode = (inode::mode::DIR | 0o755).into();
        }
        (root.generation, root.generation_v2) = (l.generation.into(), l.generation.into());
        root.bytenr = l.logical.into();
        root.bytes_used = u64::from(o.node_bytes).into();
        root.refs = 1.into();
        if l.tree == id::FS_TREE || l.tree == id::DATA_RELOC_TREE {
            root.root_dirid = id::FIRST_FREE.into();
        }
        if l.tree == id::FS_TREE {
            root.uuid = o.subvolume_uuid;
            (root.ctime, root.otime) = (Timespec::seconds(o.now), Timespec::seconds(o.now));
        }
        items.insert(Key::new(l.tree, kind::ROOT_ITEM, 0), root.as_bytes().to_vec());
    }
    let dir = id::ROOT_TREE_DIR;
    let inode = dir_inode(o, FIRST_GENERATION, o.node_bytes.into(), o.now);
    items.insert(Key::new(dir, kind::INODE_ITEM, 0), inode.as_bytes().to_vec());
    items.insert(Key::new(dir, kind::INODE_REF, dir), ref_bytes(0, b".."));
    let to = Key::new(id::FS_TREE, kind::ROOT_ITEM, u64::MAX);
    let entry = dir::entry_bytes(to, 0, FileType::Dir.entry(), b"default", b"");
    items.insert(Key::new(dir, kind::DIR_ITEM, dir::name_hash(b"default")), entry);
    items.insert(Key::new(id::FS_TREE, kind::INODE_REF, dir), ref_bytes(0, b"default"));
    items
}

fn chunk_tree(o: &MkfsOptions, layout: &Layout) -> Items {
    let device = Key::new(id::DEV_ITEMS, kind::DEV_ITEM, 1);
    let mut items = Items::from([(device, dev_item(o, layout).as_bytes().to_vec())]);
    items.extend(layout.chunks.iter().map(|c| (Chunk::key(c.logical), c.item(o).store())));
    items
}

fn dev_tree(o: &MkfsOptions, layout: &Layout) -> Items {
    let extent = |c: &NewChunk, at: u64| {
        let extent = DevExtent {
            chunk_tree: id::CHUNK_TREE.into(),
            chunk_objectid: id::FIRST_CHUNK_TREE.into(),
            chunk_offset: c.logical.into(),
            length: c.bytes.into(),
            chunk_tree_uuid: o.chunk_uuid,
        };
        (Key::new(1, kind::DEV_EXTENT, at), extent.as_bytes().to_vec())
    };
    layout.chunks.iter().flat_map(|c| c.places.iter().map(move |at| extent(c, *at))).collect()
}

/// The leaves that lie in a chunk, by address.
fn leaves_in(layout: &Layout, c: &NewChunk) -> Vec<u64> {
    let mut at: Vec<u64> = layout.leaves.iter().map(|l| l.logical).collect();
    at.retain(|at| (c.logical..c.logical + c.bytes).contains(at));
    at.sort_unstable();
    at
}

fn extent_tree(o: &MkfsOptions, layout: &Layout) -> Items {
    let mut items = Items::new();
    for c in &layout.chunks {
        let used = wide(leaves_in(layout, c).len()) * u64::from(o.node_bytes);
        let group = BlockGroupItem {
            used: used.into(),
            chunk_objectid: id::FIRST_CHUNK_TREE.into(),
            flags: c.flags.into(),
        };
        let key = Key::new(c.logical, kind::BLOCK_GROUP_ITEM, c.bytes);
        items.insert(key, group.as_bytes().to_vec());
    }
    for l in &layout.leaves {
        let item = ExtentItem {
            refs: 1.into(),
            generation: l.generation.into(),
            flags: flag::TREE_BLOCK.into(),
        };
        let reference = Reference::Tree { root: l.tree }.inline_bytes(1);
        let bytes = [item.as_bytes(), &reference].concat();
        items.insert(Key::new(l.logical, kind::METADATA_ITEM, 0), bytes);
    }
    items
}

fn free_space_tree(o: &MkfsOptions, layout: &Layout) -> Items {
    let mut items = Items::new();
    let mut add = |start: u64, bytes: u64, used: &[u64]| {
        let mut at = start;
        let mut runs = 0u32;
        let ends = used.iter().map(|u| (*u, *u + u64::from(o.node_bytes)));
        for (next, behind) in ends.chain([(start + bytes, 0)]) {
            if next > at {
                items.insert(Key::new(at, kind::FREE_SPACE_EXTENT, next - at), Vec::new());
                runs += 1;
            }
            at = behind;
        }
        let info = FreeSpaceInfo { extent_count: runs.into(), flags: 0.into() };
        items.insert(Key::new(start, kind::FREE_SPACE_INFO, bytes), info.as_bytes().to_vec());
    };
    for (start, bytes) in &layout.ghosts {
        add(*start, *bytes, &[]);
    }
    for c in &layout.chunks {
        add(c.logical, c.bytes, &leaves_in(layout, c));
    }
    items
}
