//! Images that Linux does not mount, or that say what cannot be: refused with what is wrong and
//! where, before anything is written; and never a panic.

use crate::hostile::{Hostile, MIB, sound, use_it};
use crate::mounted::{Setup, World};
use wp_base::FsError;
use wp_btrfs::check::{CheckOptions, Kind, check};
use wp_btrfs::disk::chunk::group;
use wp_btrfs::disk::file_extent::extent_type;
use wp_btrfs::disk::node::{HEADER_BYTES, PTR_BYTES};
use wp_btrfs::disk::{
    BlockGroupItem, Chunk, DevExtent, DevItem, FreeSpaceInfo, Header, InodeItem, Key, RootItem,
    SuperBlock, extent, id, kind, view_mut,
};
use wp_btrfs::image::{InspectOptions, inspect};
use wp_btrfs::refs::DataRef;
use wp_btrfs::tree::page;
use wp_medium::Slice;
use wp_vfs::OpenFlags;
use zerocopy::IntoBytes;

/// What a use of the image ends in: an error that names `what`. Our check finds it as well.
fn refused(image: &Hostile, what: &str) {
    let said = image.with(use_it).expect_err(what).to_string();
    assert!(said.contains(what), "{what}: {said}");
    let report = check(&image.view(), &CheckOptions::default());
    assert!(!report.is_ok_and(|r| r.is_clean()), "{what}: clean for our check");
    let setup = Setup { mib: MIB, ..Setup::new() };
    let w = World::empty(&setup);
    w.load(&image.medium);
    // What is not looked at by a mount is met later.
    if let Ok(vfs) = w.mount(&setup) {
        let v = vfs.clone();
        w.run(async move {
            let f = v.open("new", OpenFlags::CREATE, 0o644).await?;
            v.pwrite(f, 0, &[Slice::from_bytes(&[1; 4096])]).await?;
            v.close(f).await?;
            v.sync().await
        })
        .map_or_else(|e| assert!(!e.to_string().is_empty()), |()| ());
    }
}

fn is(wanted: u8) -> impl Fn(Key, &[u8]) -> bool {
    move |key, _| key.kind == wanted
}

#[test]
fn a_sound_image_is_used() {
    let image = sound();
    assert_eq!(image.with(use_it), Ok(()));
}

#[test]
fn a_change_that_failed_half_way_is_not_committed() {
    let image = sound();
    let left = image.with(|core| {
        core.remove_item(id::CHUNK_TREE, Key::new(id::DEV_ITEMS, kind::DEV_ITEM, 1))?;
        let made = core.ensure_data(64 << 20).expect_err("the device has no item");
        assert!(made.to_string().contains("dev item"), "{made}");
        assert!(core.is_broken());
        assert_eq!(core.ensure_data(64 << 20), Err(FsError::ReadOnly));
        assert_eq!(core.reserve(1), Err(FsError::ReadOnly));
        assert_eq!(core.commit_prepare(), Err(FsError::ReadOnly));
        Ok(core.commit_plan().map(|_| ()))
    });
    assert_eq!(left, Ok(Err(FsError::ReadOnly)));
    // The same from within a commit.
    let left = image.with(|core| {
        let (place, bytes) = core.alloc_data(8192, 8192, 0)?;
        let (bytenr, root, inode, offset) = (place, id::FS_TREE, 257, 1 << 30);
        core.add_new_data_ref(DataRef { bytenr, bytes, root, inode, offset })?;
        // Its item is there already: `Exists` in the middle of running references.
        let key = Key::new(place, kind::EXTENT_ITEM, bytes);
        core.insert_item(id::EXTENT_TREE, key, &[0; 24])?;
        assert!(core.commit_plan().is_err());
        Ok(core.commit_plan().map(|_| ()))
    });
    assert_eq!(left, Ok(Err(FsError::ReadOnly)));
}

#[test]
fn a_copy_that_ends_where_the_device_does_is_of_mkfs_alone() {
    let bytes = (64 << 20) + 4096;
    assert_eq!(SuperBlock::copies(bytes).count(), 1);
    assert_eq!(SuperBlock::copies_of_mkfs(bytes).count(), 2);
    assert_eq!(SuperBlock::copies(bytes + 1).count(), 2);
    let mut o = wp_btrfs::mkfs::MkfsOptions::new(bytes);
    o.dup_metadata = false;
    let mut image = Hostile { medium: wp_medium::Medium::new(), bytes };
    wp_btrfs::mkfs::mkfs(&o).expect("it fits").write_to(&mut image.medium);
    let plan = image.with(|core| {
        core.begin()?;
        core.commit_plan()
    });
    let plan = plan.expect("a commit");
    assert_eq!(plan.supers.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [SuperBlock::AT]);
    for block in &plan.blocks {
        block.places.iter().for_each(|at| image.medium.write_bytes(*at, &block.bytes));
    }
    plan.supers.iter().for_each(|(at, sb)| image.medium.write_bytes(*at, sb));
    let report = check(&image.view(), &CheckOptions::default()).expect("it reads");
    assert_eq!(report.findings, []);
}

#[test]
fn numbers_near_the_end_are_refused() {
    let sound = sound();
    let end = u64::MAX;

    let mut image = sound.clone();
    image.super_block(|sb| sb.bytes_used = end.into());
    refused(&image, "bytes_used");

    // A number for one more transaction must be left, and for its log.
    let mut image = sound.clone();
    image.super_block(|sb| sb.generation = end.into());
    refused(&image, "generation");

    let mut image = sound.clone();
    image.item(id::CHUNK_TREE, is(kind::DEV_ITEM), |_, bytes| {
        view_mut::<DevItem>(bytes, 0).expect("it is one").bytes_used = end.into();
    });
    refused(&image, "bytes_used");

    let mut image = sound.clone();
    image.item(
        id::FS_TREE,
        |k, _| k.kind == kind::DIR_INDEX && k.objectid == 256,
        |key, _| {
            key.offset = end;
        },
    );
    refused(&image, "directory index");

    // A bitmap at the end of all addresses.
    let mut image = sound.clone();
    let (leaf, _) = *image.find(id::FREE_SPACE_TREE, |_, _| true).last().expect("items");
    image.block(leaf, |block| {
        let items: Vec<_> = {
            let node = wp_btrfs::disk::NodeRef::trusted(block);
            node.items().map(|(k, b)| (k, b.to_vec())).collect()
        };
        let info = items.iter().rposition(|(k, _)| k.kind == kind::FREE_SPACE_INFO);
        let info = info.expect("a group");
        let mut new = items[..=info].to_vec();
        view_mut::<FreeSpaceInfo>(&mut new[info].1, 0).expect("it is one").flags = 1.into();
        new.push((Key::new(end - 4095, kind::FREE_SPACE_BITMAP, 8192), vec![3]));
        rebuild(block, &new);
    });
    refused(&image, "free space");

    // Root items say how large trees are; nobody looks, but so much is kept for commits.
    let mut image = sound.clone();
    for tree in [id::EXTENT_TREE, id::CSUM_TREE, id::FREE_SPACE_TREE] {
        let which = |k: Key, _: &[u8]| k.kind == kind::ROOT_ITEM && k.objectid == tree;
        image.item(id::ROOT_TREE, which, |_, bytes| {
            view_mut::<RootItem>(bytes, 0).expect("it is one").bytes_used = (1 << 63).into();
        });
    }
    assert_eq!(image.with(use_it), Err(FsError::NoSpace));

    let mut image = sound.clone();
    let inline = |k: Key, b: &[u8]| k.kind == kind::EXTENT_DATA && b[20] == extent_type::INLINE;
    image.item(id::FS_TREE, inline, |key, _| key.offset = end - 4095);
    let listed = inspect(&image.view(), &InspectOptions::default()).expect("it lists");
    let said: Vec<String> = listed.findings.iter().map(|f| f.error.to_string()).collect();
    assert!(said.len() == 1 && said[0].contains("inline"), "{said:?}");
    let ino = listed.files.iter().rfind(|f| f.size == 100).expect("small files").ino;
    let cut = image.with(|core| core.truncate_extents(id::FS_TREE, ino, end));
    assert!(cut.is_ok_and(|n| n == 0));
    let cut = image.with(|core| core.cut_extents(id::FS_TREE, ino, end, 10));
    assert!(cut.is_err(), "{cut:?}");
    let report = check(&image.view(), &CheckOptions::default()).expect("it reads");
    assert!(report.findings.iter().any(|f| f.kind == Kind::FileExtent), "{report:#?}");

    // A size that no data explains is not hashed zero by zero.
    let mut image = sound.clone();
    image.item(
        id::FS_TREE,
        |k, _| k.kind == kind::INODE_ITEM && k.objectid == ino,
        |_, b| {
            view_mut::<InodeItem>(b, 0).expect("it is one").size = (1 << 39).into();
        },
    );
    let listed = inspect(&image.view(), &InspectOptions::default()).expect("it lists");
    assert!(listed.findings.is_empty(), "{:?}", listed.findings);
    let digests: Vec<String> =
        listed.files.iter().filter_map(|f| f.sha256).map(|d| d.to_string()).collect();
    assert_eq!(digests.len(), 200);
    assert_eq!(digests.iter().filter(|d| d.starts_with("sparse:")).count(), 1);

    // Compressed, an inline extent may say any length.
    let mut image = sound.clone();
    image.item(id::FS_TREE, inline, |_, bytes| {
        bytes[8..16].copy_from_slice(&(end - 5).to_le_bytes());
        bytes[16] = 1;
    });
    assert!(inspect(&image.view(), &InspectOptions::default()).is_ok());
    assert!(image.with(|core| core.drop_extents(id::FS_TREE, ino, 0, end)).is_ok());

    // More uses of an extent by one user than are counted.
    let mut image = sound.clone();
    let data = |k: Key, b: &[u8]| k.kind == kind::EXTENT_ITEM && b[16] == 1 && b.len() == 53;
    let mut r = None;
    image.item(id::EXTENT_TREE, data, |key, bytes| {
        let item = extent::Extent::load(*key, bytes, 0).expect("it is one");
        if let extent::Reference::Data { root, objectid: inode, offset } = item.refs[0].who {
            r = Some(DataRef { bytenr: key.objectid, bytes: key.offset, root, inode, offset });
        }
        bytes[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        bytes[49..].fill(0xFF);
    });
    let said = image.with(|core| {
        core.add_data_ref(r.expect("a user"))?;
        core.commit_plan().map(|_| ())
    });
    assert!(said.expect_err("too many").to_string().contains("2^32"));
}

/// A leaf of these items.
fn rebuild(block: &mut [u8], items: &[(Key, Vec<u8>)]) {
    page::header(block).nritems = 0.into();
    let sizes: Vec<_> = items.iter().map(|(k, b)| (*k, b.len())).collect();
    page::insert(block, 0, &sizes);
    for (i, (_, bytes)) in items.iter().enumerate() {
        page::data_mut(block, i).copy_from_slice(bytes);
    }
    page::wipe(block);
}

#[test]
fn blocks_that_are_not_of_their_tree_are_refused() {
    let sound = sound();
    let leaf_of = |tree| {
        let all = sound.find(tree, |_, _| true);
        let (first, last) = (all[0].0, all[all.len() - 1].0);
        assert_ne!(first, last, "tree {tree} has one leaf");
        all[all.len() / 2].0
    };
    let mut image = sound.clone();
    image.block(leaf_of(id::FS_TREE), |b| page::header(b).flags = Header::REVISION.into());
    refused(&image, "WRITTEN");

    for (tree, owner) in [(id::FS_TREE, id::CSUM_TREE), (id::EXTENT_TREE, id::FS_TREE)] {
        let mut image = sound.clone();
        image.block(leaf_of(tree), |b| page::header(b).owner = owner.into());
        refused(&image, "owner");
    }
    // Of another tree of files it may be: snapshots share blocks.
    let mut image = sound.clone();
    image.block(leaf_of(id::FS_TREE), |b| page::header(b).owner = 300.into());
    assert_eq!(image.with(|core| core.verify_tree(id::FS_TREE).map(|_| ())), Ok(()));

    let mut image = sound.clone();
    image.block(leaf_of(id::EXTENT_TREE), |b| {
        // An owner whose leaves may be empty, but not below a node.
        page::header(b).nritems = 0.into();
        page::header(b).owner = id::CSUM_TREE.into();
        page::wipe(b);
    });
    refused(&image, "below a node");

    // A block that is in memory has a second parent, which says that it begins elsewhere.
    let mut image = sound.clone();
    let root = image.with(|core| Ok(core.path(id::FS_TREE, Key::MIN)?.node(1)));
    image.block(root.expect("two levels"), |b| {
        let key = size_of::<wp_btrfs::disk::DiskKey>();
        let at = |slot: usize| HEADER_BYTES + slot * PTR_BYTES + key;
        let first: Vec<u8> = b[at(0)..at(0) + 16].to_vec();
        b[at(1)..at(1) + 16].copy_from_slice(&first);
    });
    refused(&image, "first key");
}

#[test]
fn a_device_that_chunks_do_not_agree_with_is_refused() {
    let sound = sound();
    let chunk = |flag: u64| {
        move |k: Key, b: &[u8]| {
            let chunk = (k.kind == kind::CHUNK_ITEM).then(|| Chunk::load(b, 0));
            chunk.is_some_and(|c| c.is_ok_and(|(c, _)| c.head.kind.get() & flag != 0))
        }
    };
    let (data, meta) = (chunk(group::DATA), chunk(group::METADATA));
    let mut place = 0;
    sound.clone().item(id::CHUNK_TREE, meta, |_, bytes| {
        place = Chunk::load(bytes, 0).expect("it is one").0.stripes[0].offset.get();
    });
    let stripes = size_of::<wp_btrfs::disk::ChunkHead>();
    let stripe = |bytes: &mut [u8], change: &dyn Fn(&mut wp_btrfs::disk::Stripe)| {
        change(view_mut(bytes, stripes).expect("it has one"));
    };

    let mut image = sound.clone();
    image.item(id::CHUNK_TREE, data, |_, b| stripe(b, &|s| s.offset = place.into()));
    refused(&image, "a place of its own");

    let mut image = sound.clone();
    image.item(id::CHUNK_TREE, data, |_, b| stripe(b, &|s| s.offset = (place + 4096).into()));
    refused(&image, "btrfs dev extent");

    let mut image = sound.clone();
    image.item(id::CHUNK_TREE, data, |_, b| stripe(b, &|s| s.dev_uuid[3] ^= 1));
    refused(&image, "dev_uuid");

    let mut image = sound.clone();
    image.item(id::CHUNK_TREE, data, |_, b| {
        view_mut::<wp_btrfs::disk::ChunkHead>(b, 0).expect("it is one").sector_size = 512.into();
    });
    refused(&image, "sector_size");

    let mut image = sound.clone();
    image.item(id::DEV_TREE, is(kind::DEV_EXTENT), |_, b| {
        view_mut::<DevExtent>(b, 0).expect("it is one").length = (1 << 20).into();
    });
    refused(&image, "btrfs dev extent");

    let mut image = sound.clone();
    image.item(id::DEV_TREE, is(kind::DEV_EXTENT), |key, _| key.kind += 1);
    refused(&image, "for each place of a chunk");

    let mut image = sound.clone();
    image.item(id::CHUNK_TREE, is(kind::DEV_ITEM), |key, _| key.objectid = 0);
    refused(&image, "key.objectid is 0x0, expected 1");

    let mut image = sound.clone();
    image.item(id::CHUNK_TREE, is(kind::DEV_ITEM), |key, _| key.kind += 1);
    refused(&image, "dev item");

    // What the super block says of it is not taken, and found by the check.
    let mut image = sound.clone();
    let right = image.with(|core| Ok(core.super_block().dev_item.bytes_used)).expect("it opens");
    image.super_block(|sb| sb.dev_item.bytes_used = u64::MAX.into());
    assert_eq!(image.with(|core| Ok(core.super_block().dev_item.bytes_used)), Ok(right));
    assert_eq!(image.with(use_it), Ok(()));
    let report = check(&image.view(), &CheckOptions::default()).expect("it reads");
    assert!(report.findings.iter().any(|f| f.kind == Kind::SuperCount), "{report:#?}");
}

#[test]
fn a_free_space_tree_that_contradicts_itself_is_not_used() {
    let sound = sound();
    let mut image = sound.clone();
    image.item(id::FREE_SPACE_TREE, is(kind::FREE_SPACE_INFO), |_, b| {
        let info = view_mut::<FreeSpaceInfo>(b, 0).expect("it is one");
        info.extent_count = (info.extent_count.get() + 1).into();
    });
    refused(&image, "clear_cache");

    // The entries of a group are gone, as if all of it were in use.
    let mut image = sound.clone();
    let infos = sound.find(id::FREE_SPACE_TREE, is(kind::FREE_SPACE_INFO));
    let (leaf, slot) = *infos.last().expect("groups");
    image.block(leaf, |block| {
        let items: Vec<_> = {
            let node = wp_btrfs::disk::NodeRef::trusted(block);
            node.items().take(slot).map(|(k, b)| (k, b.to_vec())).collect()
        };
        rebuild(block, &items);
    });
    refused(&image, "one for each block group");

    // mkfs.btrfs leaves entries of groups that are gone; within a live one they are none of those.
    let strays = |image: &Hostile| {
        let report = check(&image.view(), &CheckOptions::default()).expect("it reads");
        let kinds: Vec<Kind> = report.findings.iter().map(|f| f.kind).collect();
        (report.is_clean(), kinds.iter().filter(|k| **k == Kind::FreeSpaceStray).count())
    };
    let (is_clean, before) = strays(&sound);
    assert!(is_clean && before > 0);
    let mut image = sound.clone();
    let first = |k: Key, _: &[u8]| k.kind == kind::FREE_SPACE_INFO && k.objectid == 1 << 20;
    image.item(id::FREE_SPACE_TREE, first, |key, _| key.offset = 64 << 20);
    let (is_clean, after) = strays(&image);
    assert!(!is_clean && after == before - 1, "{after} of {before}");
}

#[test]
fn what_a_mount_looks_at_first_is_looked_at() {
    let sound = sound();
    let mut image = sound.clone();
    image.super_block(|sb| sb.stripesize = 12345.into());
    refused(&image, "stripesize");

    let mut image = sound.clone();
    image.super_block(|sb| sb.flags = (sb.flags.get() | 1 << 60).into());
    refused(&image, "flags");

    for tree in [id::EXTENT_TREE, id::CSUM_TREE, id::DEV_TREE, id::FREE_SPACE_TREE, id::FS_TREE] {
        let mut image = sound.clone();
        let which = |k: Key, _: &[u8]| k.kind == kind::ROOT_ITEM && k.objectid == tree;
        image.item(id::ROOT_TREE, which, |key, _| key.kind += 1);
        let said = image.with(use_it).expect_err("it is missing");
        assert!(said.to_string().contains(&format!("one of tree {tree}")), "{said}");
    }
    let mut image = sound.clone();
    let which = |k: Key, _: &[u8]| k.kind == kind::ROOT_ITEM && k.objectid == id::FS_TREE;
    image.item(id::ROOT_TREE, which, |key, _| key.kind += 1);
    let listed = inspect(&image.view(), &InspectOptions::default()).expect("it opens");
    assert!(listed.findings[0].error.to_string().contains("root item"));

    // A log that leads nowhere: only its replay would see it.
    for root in [1 << 50, 30 << 20] {
        let mut image = sound.clone();
        image.super_block(|sb| sb.log_root = root.into());
        let report = check(&image.view(), &CheckOptions::default()).expect("it reads");
        assert!(report.findings.iter().any(|f| f.kind == Kind::TreeBlock), "{report:#?}");
    }
    let mut image = sound.clone();
    image.super_block(|sb| sb.log_root = 4097.into());
    refused(&image, "log_root");
}

#[test]
fn a_bad_copy_of_a_tree_block_is_written_anew() {
    let mut image = sound();
    let (leaf, _) = image.find(id::FS_TREE, |_, _| true)[40];
    let places = image.with(|core| core.chunks().places(leaf, 4096)).expect("a place");
    let read = |medium: &wp_medium::Medium, at: u64| {
        let mut bytes = vec![0; 4096];
        medium.read_bytes(at, &mut bytes);
        bytes
    };
    let good = read(&image.medium, places[1]);
    for (n, place) in places.iter().copied().enumerate() {
        // The second is not looked at while the first is good.
        image.medium.write_bytes(place + 512, &[0xEE; 1024]);
        let bad = read(&image.medium, place);
        let setup = Setup { mib: MIB, node_bytes: 4096, ..Setup::new() };
        let w = World::empty(&setup);
        w.load(&image.medium);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            for n in 0..200u64 {
                v.stat(&format!("{n:030}")).await.expect("is there");
            }
        });
        w.unmount(&vfs);
        let after = read(&w.medium(), place);
        assert!(after == if n == 0 { good.clone() } else { bad.clone() }, "copy {n}");
        drop(vfs);
        w.end();
        image.medium.write_bytes(place, &good);
    }
}

#[test]
fn references_of_an_extent_stand_in_their_order() {
    let image = sound();
    let (root, objectid) = (id::FS_TREE, 300);
    let refs = [0, 4096].map(|offset| extent::Reference::Data { root, objectid, offset });
    let (a, b) = (refs[0].rank(), refs[1].rank());
    let (first, second) = if a > b { (refs[0], refs[1]) } else { (refs[1], refs[0]) };
    let key = Key::new(1 << 24, kind::EXTENT_ITEM, 8192);
    let item = |all: &[extent::Reference]| {
        let flags = extent::flag::DATA.into();
        let (refs, generation) = ((all.len() as u64).into(), 7.into());
        let mut item = extent::ExtentItem { refs, generation, flags }.as_bytes().to_vec();
        all.iter().for_each(|who| item.extend(who.inline_bytes(1)));
        item
    };
    let shared = extent::Reference::SharedData { parent: 4096 };
    let load = |all: &[extent::Reference]| extent::Extent::load(key, &item(all), 0);
    assert!(load(&[first, second, shared]).is_ok());
    for wrong in [[second, first, shared], [first, shared, second], [shared, first, second]] {
        let said = load(&wrong).expect_err("out of order").to_string();
        assert!(said.contains("behind those before"), "{said}");
    }
    // In an image both see it: who changes it, and who checks it.
    let mut image = image;
    let data = |k: Key, b: &[u8]| k.kind == kind::EXTENT_ITEM && b[16] == 1 && b.len() == 53;
    let (leaf, slot) = *image.find(id::EXTENT_TREE, data).last().expect("there is data");
    image.block(leaf, |block| {
        let mut items: Vec<_> = {
            let node = wp_btrfs::disk::NodeRef::trusted(block);
            node.items().map(|(k, b)| (k, b.to_vec())).collect()
        };
        items[slot].1 = item(&[second, first]);
        // There is room if the last goes.
        if slot + 1 < items.len() {
            items.pop();
        }
        rebuild(block, &items);
    });
    let report = check(&image.view(), &CheckOptions::default()).expect("it reads");
    assert!(report.findings.iter().any(|f| f.kind == Kind::Extent), "{report:#?}");
}

#[test]
fn a_group_is_that_of_its_chunk() {
    let mut image = sound();
    image.item(id::EXTENT_TREE, is(kind::BLOCK_GROUP_ITEM), |_, b| {
        view_mut::<BlockGroupItem>(b, 0).expect("it is one").used = u64::MAX.into();
    });
    refused(&image, "used");
}
