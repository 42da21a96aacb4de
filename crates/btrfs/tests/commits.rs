//! Changes through the core, committed, and looked at by `btrfs check`.

use crate::commit;
use crate::program;
use crate::tools;
use crate::world;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::Rng;
use wp_btrfs::core::Core;
use wp_btrfs::disk::chunk::group;
use wp_btrfs::disk::file_extent::{FileExtentItem, extent_type};
use wp_btrfs::disk::inode::{mode, ref_bytes};
use wp_btrfs::disk::misc::csum_key;
use wp_btrfs::disk::{InodeItem, Key, dir, id, kind};
use wp_btrfs::refs::DataRef;
use wp_vfs::FileType;
use zerocopy::IntoBytes;

const MIB: u64 = 1 << 20;
const ROOT: u64 = 256;

/// Makes file `ino` with these extents' lengths in the root directory, by single items.
fn make_file(core: &mut Core<'_>, file: &File, ino: u64, extents: &[u64]) -> Vec<DataRef> {
    let name = format!("file-{ino}");
    let location = Key::new(ino, kind::INODE_ITEM, 0);
    let transid = core.transid() + u64::from(!core.is_running());
    let entry = dir::entry_bytes(location, transid, FileType::File.entry(), name.as_bytes(), b"");
    let index = ino - 255;
    let hash = dir::name_hash(name.as_bytes());
    let mut refs = Vec::new();
    let mut at = 0;
    for bytes in extents {
        let Ok((place, got)) = core.alloc_data(*bytes, *bytes, 0) else { break };
        assert_eq!(got, *bytes);
        let data: Vec<u8> = (0..got).map(|n| (n * 7 + ino) as u8).collect();
        for physical in core.chunks().places(place, got).expect("a place") {
            file.write_all_at(&data, physical).expect("room");
        }
        let mut sums = Vec::new();
        for sector in data.chunks(4096) {
            core.common().csum.push(sector, &mut sums);
        }
        core.insert_item(id::CSUM_TREE, csum_key(place), &sums).expect("sums");
        let r = DataRef { bytenr: place, bytes: got, root: id::FS_TREE, inode: ino, offset: at };
        core.add_new_data_ref(r).expect("a reference");
        let item = FileExtentItem::new(extent_type::REGULAR, transid, (place, got), 0, got);
        let key = Key::new(ino, kind::EXTENT_DATA, at);
        core.insert_item(id::FS_TREE, key, item.as_bytes()).expect("an extent");
        refs.push(r);
        at += got;
    }
    let mut inode = InodeItem::zeroed();
    inode.generation = transid.into();
    inode.transid = transid.into();
    inode.size = at.into();
    inode.nbytes = at.into();
    inode.nlink = 1.into();
    inode.mode = (mode::FILE | 0o644).into();
    core.insert_item(id::FS_TREE, location, inode.as_bytes()).expect("an inode");
    let back = ref_bytes(index, name.as_bytes());
    core.insert_item(id::FS_TREE, Key::new(ino, kind::INODE_REF, ROOT), &back).expect("a name");
    core.insert_item(id::FS_TREE, Key::new(ROOT, kind::DIR_ITEM, hash), &entry).expect("no clash");
    core.insert_item(id::FS_TREE, Key::new(ROOT, kind::DIR_INDEX, index), &entry).expect("new");
    grow_root(core, 2 * name.len() as i64);
    refs
}

fn remove_file(core: &mut Core<'_>, ino: u64, refs: &[DataRef]) {
    let name = format!("file-{ino}");
    for r in refs {
        core.remove_item(id::FS_TREE, Key::new(ino, kind::EXTENT_DATA, r.offset)).expect("there");
        core.drop_data_ref(*r).expect("a reference");
    }
    let hash = dir::name_hash(name.as_bytes());
    for key in [
        Key::new(ino, kind::INODE_ITEM, 0),
        Key::new(ino, kind::INODE_REF, ROOT),
        Key::new(ROOT, kind::DIR_ITEM, hash),
        Key::new(ROOT, kind::DIR_INDEX, ino - 255),
    ] {
        core.remove_item(id::FS_TREE, key).expect("it is there");
    }
    grow_root(core, -2 * name.len() as i64);
}

fn grow_root(core: &mut Core<'_>, by: i64) {
    core.change_item(id::FS_TREE, Key::new(ROOT, kind::INODE_ITEM, 0), |bytes| {
        let mut inode = *wp_btrfs::disk::view::<InodeItem>(bytes, 0).expect("an inode");
        inode.size = inode.size.get().saturating_add_signed(by).into();
        bytes.copy_from_slice(inode.as_bytes());
    })
    .expect("the root directory");
}

fn is_clean(image: &tempfile::NamedTempFile, when: &str) {
    let said = tools::check(image.path());
    assert!(said.is_empty(), "{when}: {said}");
}

#[test]
fn an_empty_commit_is_sound() {
    if !tools::has_tool("btrfs empty commit", "btrfs") {
        return;
    }
    for options in [&["-m", "single"][..], &["-m", "dup"], &["-n", "4096", "-m", "dup"]] {
        let image = program::mkfs(256 * MIB, options);
        for n in 0..3 {
            let mut core = world::open(image.as_file()).expect("it opens");
            commit::commit(&mut core, image.as_file()).expect("a commit");
            is_clean(&image, &format!("{options:?}, commit {n}"));
        }
    }
}

#[test]
fn the_checker_tells_a_use_that_nobody_counts() {
    if !tools::has_tool("btrfs checker", "btrfs") {
        return;
    }
    let image = program::mkfs(256 * MIB, &[]);
    let mut core = world::open(image.as_file()).expect("it opens");
    let refs = make_file(&mut core, image.as_file(), 257, &[8192]);
    core.drop_data_ref(refs[0]).expect("a reference");
    commit::commit(&mut core, image.as_file()).expect("a commit");
    assert!(!tools::check(image.path()).is_empty());
}

#[test]
fn files_come_and_go_over_many_commits() {
    if !tools::has_tool("btrfs commits", "btrfs") {
        return;
    }
    let cases: [(u64, &[&str]); 5] = [
        (256 * MIB, &["-m", "single"]),
        (256 * MIB, &["-m", "dup"]),
        (512 * MIB, &["-m", "dup", "-d", "dup", "-n", "4096"]),
        (256 * MIB, &["-n", "4096", "-m", "single"]),
        (300 * MIB, &["--csum", "xxhash"]),
    ];
    for (bytes, options) in cases {
        let image = program::mkfs(bytes, options);
        let file = image.as_file();
        let mut rng = Rng::stream(3, &format!("{options:?}"));
        let mut files: BTreeMap<u64, Vec<DataRef>> = BTreeMap::new();
        let mut next = 257;
        for round in 0..12 {
            let mut core = world::open(file).expect("it opens");
            for _ in 0..2 {
                for _ in 0..150 {
                    if rng.below(3) == 0 && !files.is_empty() {
                        let n = rng.below(files.len() as u64) as usize;
                        let ino = *files.keys().nth(n).expect("one of them");
                        let refs = files.remove(&ino).expect("it is there");
                        remove_file(&mut core, ino, &refs);
                    } else {
                        let extents: Vec<u64> =
                            (0..rng.below(4)).map(|_| 4096 * (1 + rng.below(12))).collect();
                        let refs = make_file(&mut core, file, next, &extents);
                        files.insert(next, refs);
                        next += 1;
                    }
                }
                commit::commit(&mut core, file).expect("a commit");
            }
            if round % 4 == 3 {
                is_clean(&image, &format!("{options:?}, round {round}"));
            }
        }
        let mut core = world::open(file).expect("it opens");
        for (ino, refs) in files {
            remove_file(&mut core, ino, &refs);
        }
        commit::commit(&mut core, file).expect("a commit");
        is_clean(&image, &format!("{options:?}, all removed"));
    }
}

/// Fills a device with files until there is no room for the next one.
fn fill(
    core: &mut Core<'_>,
    file: &File,
    next: &mut u64,
    extents: &[u64],
    runs: bool,
) -> BTreeMap<u64, Vec<DataRef>> {
    const ITEMS: u64 = 6;
    let mut files = BTreeMap::new();
    let mut fresh = true;
    loop {
        match core.reserve(ITEMS + 2 * extents.len() as u64) {
            Ok(()) => {}
            // What was freed counts after a commit.
            Err(_) if !fresh => {
                commit::commit(core, file).expect("a commit");
                fresh = true;
                continue;
            }
            Err(e) => {
                assert_eq!(e, wp_base::FsError::NoSpace);
                return files;
            }
        }
        let refs = make_file(core, file, *next, extents);
        core.unreserve(ITEMS + 2 * extents.len() as u64);
        if runs {
            core.run_some_refs(200).expect("references");
        }
        let is_last = refs.len() < extents.len();
        files.insert(*next, refs);
        *next += 1;
        fresh = false;
        if is_last {
            return files;
        }
    }
}

#[test]
fn a_device_fills_up_and_is_emptied_again() {
    if !tools::has_tool("btrfs full", "btrfs") {
        return;
    }
    let cases: [(u64, &[&str], &[u64]); 5] = [
        (256 * MIB, &["-m", "single"], &[4 * MIB, 4096]),
        (256 * MIB, &["-m", "dup"], &[MIB, 64 << 10]),
        (256 * MIB, &["-m", "dup", "-d", "dup", "-n", "4096"], &[MIB]),
        // Metadata runs out first.
        (128 * MIB, &["-m", "dup", "-n", "4096"], &[4096]),
        (46 * MIB, &["-m", "single"], &[]),
    ];
    for (bytes, options, extents) in cases {
        let image = program::mkfs(bytes, options);
        let file = image.as_file();
        let mut next = 257;
        for round in 0..2 {
            let mut core = world::open(file).expect("it opens");
            let chunks = core.chunks().iter().count();
            let mut files = fill(&mut core, file, &mut next, extents, round > 0);
            commit::commit(&mut core, file).expect("a commit");
            let grown = core.chunks().iter().count() - chunks;
            assert!(round > 0 || grown > 0, "{options:?}: no chunk was made");
            is_clean(&image, &format!("{options:?}, full, {} files", files.len()));
            let data: u64 = files.values().flatten().map(|r| r.bytes).sum();
            println!("{options:?}: {} files, {data} bytes, {grown} chunks", files.len());
            // Every other one, then all: removals go on where nothing else does.
            for left in [2, 1] {
                let gone: Vec<u64> = files.keys().copied().filter(|n| n % left == 0).collect();
                for (n, ino) in gone.into_iter().enumerate() {
                    if core.reserve_for_removal(8).is_err() {
                        commit::commit(&mut core, file).expect("a commit");
                        core.reserve_for_removal(8).expect("room to remove");
                    }
                    let refs = files.remove(&ino).expect("it is there");
                    remove_file(&mut core, ino, &refs);
                    core.unreserve(8);
                    if n % 500 == 499 {
                        commit::commit(&mut core, file).expect("a commit");
                    }
                }
                commit::commit(&mut core, file).expect("a commit");
                is_clean(&image, &format!("{options:?}, emptied by {left}"));
            }
        }
    }
}

/// A file with parts of an extent that another has, each at another offset.
fn share(core: &mut Core<'_>, ino: u64, r: &DataRef, parts: u64) -> Vec<DataRef> {
    let name = format!("file-{ino}");
    let location = Key::new(ino, kind::INODE_ITEM, 0);
    let mut inode = InodeItem::zeroed();
    inode.size = (parts * 8192).into();
    inode.nbytes = (parts * 4096).into();
    (inode.nlink, inode.mode) = (1.into(), (mode::FILE | 0o644).into());
    core.insert_inode(id::FS_TREE, ino, &inode).expect("new");
    core.add_ref(id::FS_TREE, ino, ROOT, ino - 255, name.as_bytes()).expect("new");
    let name = name.as_bytes();
    core.add_name(id::FS_TREE, ROOT, ino - 255, name, location, FileType::File.entry())
        .expect("new");
    grow_root(core, 2 * name.len() as i64);
    let transid = core.transid();
    (0..parts)
        .map(|n| {
            let whole = (r.bytenr, r.bytes);
            let item = FileExtentItem::new(extent_type::REGULAR, transid, whole, 4096, 4096);
            core.insert_extent_item(id::FS_TREE, ino, n * 8192, &item, false).expect("new");
            DataRef { inode: ino, offset: (n * 8192).wrapping_sub(4096), ..*r }
        })
        .collect()
}

#[test]
fn an_extent_with_many_users_has_references_of_their_own() {
    if !tools::has_tool("btrfs many users", "btrfs") {
        return;
    }
    for options in [&["-n", "4096"][..], &["-n", "16384", "-m", "single"]] {
        let image = program::mkfs(256 * MIB, options);
        let file = image.as_file();
        let mut core = world::open(file).expect("it opens");
        let first = make_file(&mut core, file, 257, &[8192]);
        commit::commit(&mut core, file).expect("a commit");
        let mut files = BTreeMap::new();
        for ino in 258..330 {
            files.insert(ino, share(&mut core, ino, &first[0], 1 + ino % 9));
            if ino % 20 == 0 {
                commit::commit(&mut core, file).expect("a commit");
            }
        }
        commit::commit(&mut core, file).expect("a commit");
        let from = Key::new(first[0].bytenr, kind::EXTENT_DATA_REF, 0);
        let to = Key { offset: u64::MAX, ..from };
        assert!(core.first(id::EXTENT_TREE, from, to).expect("it reads").is_some());
        is_clean(&image, "many users");
        // The one that made it goes first; of the others some in one transaction with new ones.
        core = world::open(file).expect("it opens");
        remove_file(&mut core, 257, &first);
        let mut rng = Rng::stream(1, "users");
        while !files.is_empty() {
            for _ in 0..20 {
                let n = rng.below(files.len().max(1) as u64) as usize;
                let Some(ino) = files.keys().nth(n).copied() else { break };
                // `remove_file` finds extents by their reference: offsets are of the file here.
                let refs = files.remove(&ino).expect("it is there");
                core.remove_inode_items(id::FS_TREE, Key::new(ino, kind::EXTENT_DATA, 0), 100)
                    .expect("it is sound");
                assert!(!refs.is_empty());
                remove_file(&mut core, ino, &[]);
                if rng.below(6) == 0 && ino < 1000 {
                    files.insert(ino + 1000, share(&mut core, ino + 1000, &first[0], 3));
                }
            }
            commit::commit(&mut core, file).expect("a commit");
            is_clean(&image, &format!("{} left", files.len()));
        }
        let gone = core.lookup(id::EXTENT_TREE, Key::new(first[0].bytenr, kind::EXTENT_ITEM, 8192));
        assert_eq!(gone, Ok(None));
    }
}

#[test]
fn a_cut_before_the_super_block_leaves_the_last_commit() {
    if !tools::has_tool("btrfs cut", "btrfs") {
        return;
    }
    for options in [&["-n", "4096", "-m", "single"][..], &["-m", "dup"]] {
        let image = program::mkfs(256 * MIB, options);
        let file = image.as_file();
        let mut rng = Rng::stream(5, "cut");
        let mut core = world::open(file).expect("it opens");
        let mut files: BTreeMap<u64, Vec<DataRef>> = BTreeMap::new();
        let mut next = 257;
        let mut change = |core: &mut Core<'_>, n: usize| {
            for _ in 0..n {
                if rng.below(2) == 0 && files.len() > 20 {
                    let n = rng.below(files.len() as u64) as usize;
                    let ino = *files.keys().nth(n).expect("one of them");
                    remove_file(core, ino, &files.remove(&ino).expect("it is there"));
                } else {
                    let sizes = [4096 * (1 + rng.below(40)), 4096];
                    files.insert(next, make_file(core, file, next, &sizes));
                    next += 1;
                }
            }
        };
        for round in 0..10 {
            change(&mut core, 60);
            let plan = core.commit_plan().expect("a commit");
            // The next transaction begins while this one is being written; its data goes to the
            // device before, its blocks at any time.
            change(&mut core, 60);
            let (early, late) = plan.blocks.split_at(plan.blocks.len() / 2);
            for block in late.iter().chain(early) {
                for at in &block.places {
                    file.write_all_at(&block.bytes, *at).expect("room");
                }
            }
            is_clean(&image, &format!("{options:?}, round {round}, before the super block"));
            for (at, bytes) in &plan.supers {
                file.write_all_at(bytes, *at).expect("room");
            }
            is_clean(&image, &format!("{options:?}, round {round}, behind it"));
            core.committed().expect("a plan");
        }
    }
}

#[test]
fn a_chunk_of_the_system_is_made_when_its_space_runs_out() {
    if !tools::has_tool("btrfs system chunk", "btrfs") {
        return;
    }
    for options in [&["-m", "single"][..], &["-m", "dup"]] {
        let image = program::mkfs(512 * MIB, options);
        let file = image.as_file();
        let mut core = world::open(file).expect("it opens");
        core.begin().expect("it can be written");
        let space = core.space().expect("it is loaded");
        let system = space.of_kind(group::SYSTEM).next().expect("one").clone();
        // Nearly all of it is taken away for a while.
        let (start, bytes) = system.free.iter().last().expect("free space");
        let taken = bytes - 256 * 1024;
        core.take_for_log(start, taken, false).expect("it is free");
        // Two chunks of data.
        let mut files = BTreeMap::new();
        for ino in 257..277 {
            files.insert(ino, make_file(&mut core, file, ino, &[4 * MIB]));
        }
        core.free_reserved(start, taken).expect("it was taken");
        commit::commit(&mut core, file).expect("a commit");
        is_clean(&image, "with another chunk of the system");
        let mut core = world::open(file).expect("it opens");
        let chunks = core.super_block().system_chunks(0).expect("it is sound");
        assert_eq!(chunks.len(), 2, "{options:?}");
        assert_eq!(core.space().expect("it loads").of_kind(group::SYSTEM).count(), 2);
        let flags: Vec<u64> = chunks.iter().map(|(_, c)| c.head.kind.get()).collect();
        assert_eq!(flags[0], flags[1]);
        for (ino, refs) in files {
            remove_file(&mut core, ino, &refs);
        }
        commit::commit(&mut core, file).expect("a commit");
        is_clean(&image, "emptied");
    }
}
