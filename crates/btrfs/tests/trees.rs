//! A tree against a map: items come, go, grow, shrink and split at random; after each few changes
//! every block is looked at, and after each commit the tree is read again from the device.

use crate::commit;
use crate::world;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::{FsError, Rng};
use wp_btrfs::core::Core;
use wp_btrfs::disk::node::{ITEM_BYTES, leaf_space};
use wp_btrfs::disk::{Key, id};
use wp_btrfs::mkfs::{MkfsOptions, mkfs};
use wp_btrfs::tree::Purpose;

/// The tree that is played with: its items mean nothing to the core.
const TREE: u64 = id::UUID_TREE;

fn new_image(o: &MkfsOptions) -> File {
    let file = tempfile::tempfile().expect("a scratch file");
    file.set_len(o.bytes).expect("room");
    for (at, piece) in mkfs(o).expect("it fits").pieces {
        file.write_all_at(&piece, at).expect("room");
    }
    file
}

fn random_key(rng: &mut Rng, range: u64) -> Key {
    Key::new(rng.below(range), 100 + rng.below(3) as u8, rng.below(4))
}

fn random_bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    // Mostly small items, seldom such as fill a leaf.
    let n = match rng.below(20) {
        0 => rng.below(most + 1),
        1..=4 => rng.below(most / 8),
        _ => rng.below(60),
    };
    let mut bytes = vec![0; n as usize];
    rng.fill(&mut bytes);
    bytes
}

type Model = BTreeMap<Key, Vec<u8>>;

fn compare(core: &mut Core<'_>, model: &Model) {
    let shape = core.verify_tree(TREE).expect("it is sound");
    assert_eq!(shape.items, model.len() as u64);
    let mut expected = model.iter();
    if let Some(mut path) = core.seek(TREE, Key::MIN).expect("it reads") {
        loop {
            let (key, bytes) = core.item(&path).expect("it reads").expect("an item");
            assert_eq!(Some((&key, bytes)), expected.next().map(|(k, b)| (k, &b[..])));
            if !core.next(&mut path).expect("it reads") {
                break;
            }
        }
    }
    assert_eq!(expected.next(), None);
}

fn step(core: &mut Core<'_>, model: &mut Model, rng: &mut Rng, range: u64, grows: bool) {
    let most = (leaf_space(core.node_bytes()) - ITEM_BYTES) as u64;
    let key = random_key(rng, range);
    match rng.below(10) {
        0..=4 if grows || rng.below(3) == 0 => {
            let bytes = random_bytes(rng, most);
            let done = core.insert_item(TREE, key, &bytes);
            match model.entry(key) {
                // Linux looks first whether the item could grow by so much.
                Entry::Occupied(_) => {
                    assert!(matches!(done, Err(FsError::Exists | FsError::TooBig)), "{done:?}");
                }
                Entry::Vacant(place) => {
                    done.expect("room");
                    place.insert(bytes);
                }
            }
        }
        5 => {
            if let Some(bytes) = model.get_mut(&key) {
                *bytes = random_bytes(rng, most);
                core.replace_item(TREE, key, bytes).expect("it is there");
            }
        }
        6 => {
            // Several that follow each other, at once.
            let first = Key { offset: 10 + rng.below(1000), ..key };
            let mut new = Vec::new();
            let room = model.range(first..).next().map_or(u64::MAX, |(k, _)| {
                if (k.objectid, k.kind) == (first.objectid, first.kind) {
                    k.offset - first.offset
                } else {
                    u64::MAX
                }
            });
            for n in 0..(1 + rng.below(5)).min(room) {
                new.push((Key { offset: first.offset + n, ..first }, random_bytes(rng, 200)));
            }
            let items: Vec<_> = new.iter().map(|(k, b)| (*k, &b[..])).collect();
            core.insert_items(TREE, &items).expect("room");
            model.extend(new);
        }
        7 => {
            // Split, where the next offset is not taken.
            let next = Key { offset: key.offset + 1, ..key };
            if let Some(bytes) = model.get_mut(&key)
                && bytes.len() > 2
                // An item that fills its leaf has no room for a second head; Linux refuses, too.
                && bytes.len() + ITEM_BYTES <= most as usize
            {
                let at = 1 + rng.below(bytes.len() as u64 - 1) as usize;
                let rest = bytes.split_off(at);
                match model.entry(next) {
                    Entry::Occupied(_) => {
                        model.get_mut(&key).expect("it is there").extend(rest);
                    }
                    Entry::Vacant(place) => {
                        core.split_item(TREE, key, at, next).expect("room");
                        place.insert(rest);
                    }
                }
            }
        }
        8 => {
            // A run, as far as it is in one leaf.
            let (mut path, _) = core.search(TREE, key, Purpose::Delete).expect("it reads");
            let leaf = core.leaf(&path).expect("it is there");
            let n = (leaf.len() - path.slot()).min(1 + rng.below(20) as usize);
            let gone: Vec<Key> =
                (path.slot()..path.slot() + n).filter_map(|i| leaf.key(i)).collect();
            if n > 0 {
                core.remove_items(TREE, &mut path, n).expect("they are there");
            }
            for key in gone {
                assert!(model.remove(&key).is_some());
            }
        }
        _ => {
            let done = core.remove_item(TREE, key);
            assert_eq!(done.is_ok(), model.remove(&key).is_some());
        }
    }
}

#[test]
fn a_tree_is_as_a_map_says() {
    let mut highest = 0;
    for (node_bytes, seed, range) in
        [(4096, 1, 150), (4096, 2, 2500), (16384, 3, 800), (65536, 4, 900), (8192, 5, 400)]
    {
        let o = MkfsOptions { node_bytes, dup_metadata: false, ..MkfsOptions::new(512 << 20) };
        let file = new_image(&o);
        let mut rng = Rng::stream(seed, "trees");
        // What mkfs put there.
        let mut core = world::open(&file).expect("it opens");
        let (key, bytes) =
            core.first(TREE, Key::MIN, Key::MAX).expect("it reads").expect("a subvolume");
        let mut model = Model::from([(key, bytes)]);
        for round in 0..12 {
            let grows = round % 4 != 3;
            for n in 0..800 {
                step(&mut core, &mut model, &mut rng, range, grows);
                if n % 100 == 0 {
                    compare(&mut core, &model);
                }
            }
            compare(&mut core, &model);
            let root = core.root(TREE).expect("it is open").node;
            highest = highest.max(core.node(root).expect("it is in memory").level());
            commit::commit(&mut core, &file).expect("a commit");
            if round % 3 == 0 {
                core = world::open(&file).expect("it opens");
            } else {
                core.drop_clean();
            }
            compare(&mut core, &model);
        }
        for key in std::mem::take(&mut model).into_keys() {
            core.remove_item(TREE, key).expect("it is there");
        }
        compare(&mut core, &model);
        for tree in [id::ROOT_TREE, id::EXTENT_TREE, id::FREE_SPACE_TREE, id::CHUNK_TREE] {
            core.verify_tree(tree).expect("it is sound");
        }
        commit::commit(&mut core, &file).expect("a commit");
    }
    assert!(highest >= 2, "trees of {highest} levels only");
}
