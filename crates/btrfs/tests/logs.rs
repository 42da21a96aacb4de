//! Log trees as trees: synced, found after a cut, given up by a commit.

use crate::commit;
use crate::tools;
use crate::world;
use std::io::Write;
use std::os::unix::fs::FileExt;

use wp_base::Rng;
use wp_btrfs::core::Core;
use wp_btrfs::disk::{Key, id};
use wp_btrfs::mkfs::{MkfsOptions, mkfs};
use wp_btrfs::trans::logs::LOG_ROOT_TREE;
use zerocopy::IntoBytes;

/// Writes a log's blocks and the super block that leads to them.
fn sync(core: &mut Core<'_>, file: &std::fs::File, open: u64, is_first: bool) {
    let item = core.log_item(open).expect("it is open");
    let key = core.root(open).expect("it is open").key;
    if is_first {
        core.insert_item(LOG_ROOT_TREE, key, item.as_bytes()).expect("new");
    } else {
        core.replace_item(LOG_ROOT_TREE, key, item.as_bytes()).expect("it is there");
    }
    let root = core.log_item(LOG_ROOT_TREE).expect("it is open");
    for block in core.seal_log_blocks().expect("they are in memory") {
        for at in &block.places {
            file.write_all_at(&block.bytes, *at).expect("room");
        }
    }
    let (at, bytes) = core.super_for_log(root.bytenr.get(), root.level);
    file.write_all_at(&bytes, at).expect("room");
}

#[test]
fn logs_are_found_after_a_cut_and_given_up_by_a_commit() {
    for node_bytes in [4096, 16384] {
        let o = MkfsOptions { node_bytes, ..MkfsOptions::new(256 << 20) };
        let mut image = tempfile::NamedTempFile::new().expect("a scratch file");
        image.as_file().set_len(o.bytes).expect("room");
        for (at, piece) in mkfs(&o).expect("it fits").pieces {
            image.as_file().write_all_at(&piece, at).expect("room");
        }
        image.flush().expect("a file");
        let file = image.as_file();
        let mut rng = Rng::stream(9, "logs");
        let mut core = world::open(file).expect("it opens");
        commit::commit(&mut core, file).expect("a commit");
        for round in 0..4 {
            core.create_log(None).expect("room");
            let log = core.create_log(Some(id::FS_TREE)).expect("room");
            let mut items = std::collections::BTreeMap::new();
            for n in 0..5 {
                for _ in 0..60 {
                    let key = Key::new(256 + rng.below(500), 1, rng.below(9));
                    let bytes = vec![n; rng.below(200) as usize];
                    if items.insert(key, bytes.clone()).is_none() {
                        core.insert_item(log, key, &bytes).expect("room");
                    } else {
                        core.replace_item(log, key, &bytes).expect("it is there");
                    }
                }
                sync(&mut core, file, log, n == 0);
                // What a power cut leaves now.
                let mut after = world::open(file).expect("it opens");
                let logs = after.open_logs().expect("they are sound");
                assert_eq!(logs.len(), 1, "round {round}");
                let (tree, open) = logs[0];
                assert_eq!(tree, id::FS_TREE);
                let shape = after.verify_tree(open).expect("it is sound");
                assert_eq!(shape.items, items.len() as u64);
                for (key, bytes) in &items {
                    assert_eq!(after.lookup(open, *key), Ok(Some(bytes.clone())));
                }
                let blocks = after.log_blocks(open).expect("it is sound");
                assert_eq!(blocks.len() as u64, shape.blocks);
                // Replay pins them: a commit then does not write over them.
                for block in blocks {
                    let bytes = after.node_bytes() as u64;
                    after.take_for_log(block, bytes, true).expect("free, as the trees say");
                }
            }
            core.free_log(log).expect("it is sound");
            core.free_log(LOG_ROOT_TREE).expect("it is sound");
            commit::commit(&mut core, file).expect("a commit");
            let mut after = world::open(file).expect("it opens");
            assert_eq!(after.open_log_root(), Ok(None));
            if tools::has_tool("btrfs logs", "btrfs") {
                assert_eq!(tools::check(image.path()), "", "round {round}");
            }
            // Nothing that the logs had is lost.
            let reserved: u64 =
                core.space().expect("it is loaded").of_kind(7).map(|g| g.reserved).sum();
            let pinned: u64 =
                core.space().expect("it is loaded").of_kind(7).map(|g| g.pinned).sum();
            assert_eq!((reserved, pinned), (0, 0), "round {round}");
        }
    }
}
