//! Does Linux mount it? What a mount reads and compares before it is done, in its order.
//!
//! Picture:    chunk tree -> roots of the trees -> device's extents -> block groups -> quota groups
//!             -> tree of files with its orphans -> root directory and default subvolume.
//! Invariants: 1. every leaf that is read is checked as Linux checks it ([`Image::check_leaf`]);
//!                one that a mount does not read is not checked.
//!             2. no bytes make it panic.
//! Left out:   what a mount does in the background and cannot end it: tree of uuids, cleaner,
//!             caches of free space.
//! Source:     fs/btrfs of Linux 6.12: `open_ctree`, `btrfs_read_block_groups`,
//!             `btrfs_start_pre_rw_mount`, `btrfs_fill_super`.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};

use crate::disk::chunk::group;
use crate::disk::feature::compat_ro;
use crate::disk::node::Expected;
use crate::disk::{BlockGroupItem, Key, id, kind, view};

use super::tree_check::Device;
use super::{Image, Tree};

/// `BTRFS_BALANCE_OBJECTID`, the key of a balance that was interrupted.
const BALANCE: u64 = (-4i64).cast_unsigned();
/// `BTRFS_LAST_FREE_OBJECTID` is the last that a new inode can have.
const LAST_INODE: Key = Key::new(id::LAST_FREE, u8::MAX, u64::MAX);

/// Mounts the image, whose log was replayed, as far as reading goes. Errors: those of the mount.
pub(super) fn mount(image: &Image<'_>) -> FsResult<()> {
    image.is_strict.set(true);
    let done = read(image);
    // A listing goes on beside the item that Linux refuses the leaf for.
    image.is_strict.set(false);
    done
}

fn read(image: &Image<'_>) -> FsResult<()> {
    if image.sb.root.get() == 0 {
        let at = crate::disk::SuperBlock::AT;
        return Err(FsError::corrupt("btrfs super block", "root", at, 0, "an address"));
    }
    let mut device = Device::default();
    let mut chunks = BTreeMap::new();
    image.each(&image.chunk_tree(), Key::MIN, Key::MAX, &mut |item| {
        device.item(item.key, item.bytes, item.at);
        if item.key.kind == kind::CHUNK_ITEM {
            chunks.insert(item.key.offset, item.at);
        }
        Ok(true)
    })?;
    root(image, &image.root_tree)?;
    roots(image)?;
    let devices = image.tree_needed(id::DEV_TREE)?;
    let extents = |n| Key::new(n, kind::DEV_EXTENT, 0);
    image.each(&devices, extents(1), extents(u64::MAX), &mut |item| {
        let is_extent = item.key.kind == kind::DEV_EXTENT;
        if is_extent {
            device.item(item.key, item.bytes, item.at);
        }
        Ok(is_extent)
    })?;
    device.check(image)?;
    image.get(&image.root_tree, Key::new(BALANCE, kind::TEMPORARY_ITEM, 0))?;
    let devid = image.sb.dev_item.devid.get();
    image.get(&devices, Key::new(0, kind::PERSISTENT_ITEM, devid))?;
    image.get(&devices, Key::new(0, kind::DEV_REPLACE, 0))?;
    block_groups(image, &chunks)?;
    if let Some(quota) = image.tree(id::QUOTA_TREE)?.filter(|t| root(image, t).is_ok()) {
        image.each(&quota, Key::MIN, Key::MAX, &mut |_| Ok(true))?;
    }
    orphan_roots(image)?;
    for number in [id::FS_TREE, id::DATA_RELOC_TREE] {
        orphans(image, &image.tree_needed(number)?)?;
    }
    root_directory(image)
}

/// The root of a tree. `read_tree_root_path`, `load_super_root`.
fn root(image: &Image<'_>, tree: &Tree) -> FsResult<()> {
    let expected = Expected {
        bytenr: tree.bytenr,
        generation: Some(tree.generation),
        level: Some(tree.level),
        first_key: None,
        owner: Some(tree.id),
    };
    image.tree_block(&expected).map(drop)
}

/// Trees that there must be, and those that need only be readable. `btrfs_read_roots`.
fn roots(image: &Image<'_>) -> FsResult<()> {
    let has_space_tree = image.sb.compat_ro_flags.get() & compat_ro::FREE_SPACE_TREE != 0;
    let needed = [id::EXTENT_TREE, id::CSUM_TREE, id::DEV_TREE, id::DATA_RELOC_TREE, id::FS_TREE];
    let space = has_space_tree.then_some(id::FREE_SPACE_TREE);
    for number in needed.into_iter().chain(space) {
        root(image, &image.tree_needed(number)?)?;
    }
    if let Some(uuids) = image.tree(id::UUID_TREE)? {
        root(image, &uuids)?;
    }
    // `btrfs_init_root_free_objectid`: the last inode of each.
    for number in [id::FS_TREE, id::DATA_RELOC_TREE] {
        image.get(&image.tree_needed(number)?, LAST_INODE)?;
    }
    image.get(&image.root_tree, LAST_INODE).map(drop)
}

/// Every block group is a chunk's, and every chunk has one. `read_bg_from_eb`,
/// `check_chunk_block_group_mappings`.
fn block_groups(image: &Image<'_>, chunks: &BTreeMap<u64, u64>) -> FsResult<()> {
    let tree = image.tree_needed(id::EXTENT_TREE)?;
    let mut seen = BTreeMap::new();
    let mut from = Key::MIN;
    loop {
        let mut found = None;
        image.each(&tree, from, Key::MAX, &mut |item| {
            if item.key.kind != kind::BLOCK_GROUP_ITEM || item.key.objectid < from.objectid {
                return Ok(true);
            }
            let flags = view::<BlockGroupItem>(item.bytes, 0).map_or(0, |g| g.flags.get());
            found = Some((item.key, flags, item.at));
            Ok(false)
        })?;
        let Some((key, flags, at)) = found else { break };
        let (start, bytes) = (key.objectid, key.offset);
        let wrong = |field, found, expected: String| {
            Err(FsError::corrupt("btrfs block group", field, at, found, expected))
        };
        let Some(chunk) =
            image.chunks.iter().find(|c| c.logical <= start && start < c.logical + c.bytes)
        else {
            return wrong("key.objectid", start, "a chunk there".to_owned());
        };
        if (chunk.logical, chunk.bytes) != (start, bytes) {
            let expected =
                format!("{:#x} bytes from {:#x}, as its chunk", chunk.bytes, chunk.logical);
            return wrong("key.offset", bytes, expected);
        }
        let kinds = |flags: u64| flags & (group::KINDS | group::PROFILES);
        if kinds(chunk.flags) != kinds(flags) {
            return wrong("flags", flags, format!("{:#x}, as its chunk", chunk.flags));
        }
        seen.insert(start, ());
        match start.checked_add(bytes) {
            Some(end) => from = Key::new(end, kind::BLOCK_GROUP_ITEM, 0),
            None => break,
        }
    }
    for (logical, at) in chunks {
        if !seen.contains_key(logical) {
            let expected = "a chunk with a block group";
            return Err(FsError::corrupt("btrfs chunk", "key.offset", *at, *logical, expected));
        }
    }
    Ok(())
}

/// Subvolumes that are deleted when it is mounted: their roots are read.
/// `btrfs_find_orphan_roots`.
fn orphan_roots(image: &Image<'_>) -> FsResult<()> {
    let key = |offset| Key::new(id::ORPHAN, kind::ORPHAN_ITEM, offset);
    let mut numbers = Vec::new();
    image.each(&image.root_tree, key(0), key(u64::MAX), &mut |item| {
        numbers.push(item.key.offset);
        Ok(true)
    })?;
    for number in numbers {
        if let Some(tree) = image.root_item(number)? {
            root(image, &tree)?;
        }
    }
    Ok(())
}

/// Inodes that are removed when the tree is read. `btrfs_orphan_cleanup`.
fn orphans(image: &Image<'_>, tree: &Tree) -> FsResult<()> {
    let key = |offset| Key::new(id::ORPHAN, kind::ORPHAN_ITEM, offset);
    let mut numbers = Vec::new();
    image.each(tree, key(0), key(u64::MAX), &mut |item| {
        numbers.push(item.key.offset);
        Ok(true)
    })?;
    for number in numbers {
        match image.inode(tree, number) {
            Ok(_) | Err(FsError::NotFound) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The first directory, and the one that is shown. `btrfs_fill_super`, `mount_subvol`.
fn root_directory(image: &Image<'_>) -> FsResult<()> {
    let first = image.tree_needed(id::FS_TREE)?;
    image.inode(&first, first.item.root_dirid.get())?;
    let tree = image.tree_needed(image.default_subvolume()?)?;
    root(image, &tree)?;
    image.root().map(drop)
}
