//! Images that a real kernel left behind at a power cut: all of their trees are read, each item is
//! what its key says, and a commit on top of them is sound.

use crate::commit;
use crate::images;
use crate::reference;
use crate::tools;
use crate::world;
use std::io::Write;

use wp_btrfs::core::{Core, Disk};
use wp_btrfs::disk::extent::Extent;
use wp_btrfs::disk::{
    BlockGroupItem, Chunk, DevExtent, FileExtent, InodeItem, Key, RootItem, RootRef, dir, id,
    inode, kind, view,
};
use wp_btrfs::replay::{RecoverOptions, recover};
use wp_medium::Overlay;

/// Names of the crashed images.
const IMAGES: [&str; 5] =
    ["btrfs-plain", "btrfs-subvol", "btrfs-treelog", "btrfs-n4k", "btrfs-xxhash"];

fn is_sound(key: Key, item: &[u8]) -> bool {
    match key.kind {
        kind::INODE_ITEM => view::<InodeItem>(item, 0).is_some() && item.len() == 160,
        kind::INODE_REF => inode::refs(item, key.offset).all(|n| n.is_ok()),
        kind::DIR_ITEM | kind::DIR_INDEX | kind::XATTR_ITEM => dir::entries(item).all(|e| {
            let hashed = key.kind != kind::DIR_INDEX;
            e.is_ok_and(|e| !hashed || dir::name_hash(e.name) == key.offset)
        }),
        kind::EXTENT_DATA => FileExtent::load(key, item, 0).is_ok(),
        kind::ROOT_ITEM => RootItem::load(item, 0).is_ok(),
        kind::ROOT_REF | kind::ROOT_BACKREF => RootRef::load(item).is_some(),
        kind::EXTENT_ITEM | kind::METADATA_ITEM => Extent::load(key, item, 0).is_ok(),
        kind::BLOCK_GROUP_ITEM => view::<BlockGroupItem>(item, 0).is_some(),
        kind::DEV_EXTENT => view::<DevExtent>(item, 0).is_some(),
        kind::CHUNK_ITEM => {
            Chunk::load(item, 0).is_ok_and(|(c, n)| n == item.len() && c.store() == item)
        }
        _ => kind::name(key.kind).is_some(),
    }
}

/// Reads all items of a tree; how many.
fn read_all(core: &mut Core<'_>, tree: u64, case: &str) -> u64 {
    core.verify_tree(tree).unwrap_or_else(|e| panic!("{case}, tree {tree}: {e}"));
    let Some(mut path) = core.seek(tree, Key::MIN).expect("it reads") else { return 0 };
    let mut n = 0;
    loop {
        let (key, item) = core.item(&path).expect("it reads").expect("an item");
        assert!(is_sound(key, item), "{case}, tree {tree}: {key}");
        n += 1;
        if !core.next(&mut path).expect("it reads") {
            return n;
        }
    }
}

/// Linux opens the first tree of files when the commit of what its log had is done, so that this
/// commit's list of roots lacks it. What mkfs.btrfs and all other commits write has it: the images
/// show that.
#[test]
fn the_commit_of_a_replay_knows_no_tree_of_files() {
    let Some((bytes, _)) = reference::reference("btrfs replay's roots", "btrfs-treelog") else {
        return;
    };
    let image = images::Bytes(bytes);
    let overlay = Overlay::new(&image);
    let newest = |core: &Core<'_>| {
        let sb = core.super_block();
        let all = sb.super_roots.iter().find(|b| b.tree_root_gen == sb.generation);
        let b = all.expect("a list of roots");
        (b.fs_root.get(), b.fs_root_gen.get(), b.fs_root_level, b.csum_root.get())
    };
    let before = newest(&Core::open(Disk::of_view(&overlay)).expect("it opens"));
    assert!(before.0 > 0 && before.1 > 0 && before.3 > 0, "{before:?}");
    assert!(recover(&overlay, &RecoverOptions::default()).expect("recovers").is_needed);
    let mut core = Core::open(Disk::of_view(&overlay)).expect("it opens");
    let after = newest(&core);
    assert!(after.3 > 0, "{after:?}");
    assert_eq!((after.0, after.1, after.2), (0, 0, 0));
    core.commit_plan().expect("a commit");
    let next = newest(&core);
    assert!(next.0 > 0 && next.1 > 0, "{next:?}");
}

#[test]
fn crashed_images_are_read_and_written() {
    for case in IMAGES {
        let Some((bytes, _)) = reference::reference("btrfs images", case) else { return };
        let mut image = tempfile::NamedTempFile::new().expect("a scratch file");
        image.write_all(&bytes).expect("room");
        let file = image.as_file();
        let mut core = world::open(file).expect("it opens");
        let mut trees = vec![id::ROOT_TREE, id::CHUNK_TREE];
        let mut from = Key::MIN;
        while let Some((key, _)) = core.first(id::ROOT_TREE, from, Key::MAX).expect("it reads") {
            if key.kind == kind::ROOT_ITEM {
                trees.push(key.objectid);
            }
            from = key.next().expect("not the last");
        }
        assert!(trees.len() >= 9, "{case}: {trees:?}");
        let items: u64 = trees.iter().map(|tree| read_all(&mut core, *tree, case)).sum();
        assert!(items > 100, "{case}: {items} items");

        // What the log has is given up here, as `btrfs rescue zero-log` does.
        commit::commit(&mut core, file).expect("a commit");
        let mut core = world::open(file).expect("it opens");
        let more: u64 = trees.iter().map(|tree| read_all(&mut core, *tree, case)).sum();
        assert!(more >= items.saturating_sub(20), "{case}: {items} items, then {more}");
        if tools::has_tool("btrfs images checked", "btrfs") {
            assert_eq!(tools::check(image.path()), "", "{case}");
        }
    }
}
