//! Changes through the core, committed, and looked at by `btrfs check`.

mod commit;
mod program;
mod skip;
mod tools;
mod world;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::Rng;
use wp_btrfs::core::Core;
use wp_btrfs::disk::file_extent::{FileExtentItem, extent_type};
use wp_btrfs::disk::inode::{mode, ref_bytes};
use wp_btrfs::disk::misc::csum_key;
use wp_btrfs::disk::{FileKind, InodeItem, Key, dir, id, kind};
use wp_btrfs::refs::DataRef;
use zerocopy::IntoBytes;

const MIB: u64 = 1 << 20;
const ROOT: u64 = 256;

/// Makes file `ino` with these extents' lengths in the root directory, by single items.
fn make_file(core: &mut Core<'_>, file: &File, ino: u64, extents: &[u64]) -> Vec<DataRef> {
    let name = format!("file-{ino}");
    let location = Key::new(ino, kind::INODE_ITEM, 0);
    let transid = core.transid() + u64::from(!core.is_running());
    let entry = dir::entry_bytes(location, transid, FileKind::File, name.as_bytes(), b"");
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
        core.run_some_refs(200).expect("references");
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
        (64 * MIB, &["-m", "single"], &[]),
    ];
    for (bytes, options, extents) in cases {
        let image = program::mkfs(bytes, options);
        let file = image.as_file();
        let mut next = 257;
        for round in 0..2 {
            let mut core = world::open(file).expect("it opens");
            let chunks = core.chunks().iter().count();
            let mut files = fill(&mut core, file, &mut next, extents);
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
