//! Numbers near the greatest in every item of a sound image: nobody adds to them unseen.

use crate::hostile::{MIB, sound, use_it};
use crate::mounted::{Setup, World};
use wp_base::FsResult;
use wp_btrfs::check::{CheckOptions, check};
use wp_btrfs::disk::node::{HEADER_BYTES, ITEM_BYTES};
use wp_btrfs::disk::{NodeRef, id, kind};
use wp_btrfs::image::{InspectOptions, inspect};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Reserve};

/// Calls of all kinds, each of which may fail.
async fn calls(v: wp_vfs::Vfs) -> FsResult<()> {
    let names = ["000000000000000000000000000198", "000000000000000000000000000199"];
    let mut pair = Vec::new();
    for name in names {
        pair.extend(v.open(name, OpenFlags::WRITE, 0).await);
    }
    if let [a, b] = pair[..] {
        for (from, to) in [(a, b), (b, a)] {
            let _ = v.dedupe_range((from, 0), (to, 0), 8192).await;
            let _ = v.clone_range((from, 0), (to, 4096), 4096).await;
            let _ = v.copy_file_range((from, 0), (to, 8192), 50_000).await;
            let _ = v.clone_range((from, 0), (to, 0), 0).await;
            let _ = v.clone_range((from, 4096), (to, 1 << 40), 0).await;
            let _ = v.pread(to, 0, 1 << 20).await;
        }
    }
    for fd in pair {
        let _ = v.close(fd).await;
    }
    for name in names {
        let _ = (v.stat(name).await, v.truncate(name, 50_000).await, v.truncate(name, 5000).await);
        if let Ok(f) = v.open(name, OpenFlags::CREATE, 0o644).await {
            let _ = v.pread(f, 0, 1 << 20).await;
            let _ = v.pwrite(f, 3000, &[Slice::from_bytes(&[1; 4096])]).await;
            let _ = v.fsync(f).await;
            let _ = v.fallocate(f, Reserve::Space { keep_size: true }, 0, 1 << 16).await;
            let _ = v.close(f).await;
        }
        let _ = v.link(name, &format!("{name}-too")).await;
        let _ = v.rename(name, "other").await;
        let _ = v.unlink("other").await;
    }
    v.mkdir("d", 0o755).await?;
    v.sync().await
}

/// A number of an item, or of its key, says the greatest that there is, or near that: whoever reads
/// it answers with an error, or does not care. `HOSTILE_ROUNDS` sets how many are tried.
#[test]
fn no_number_near_its_end_stops_the_program() {
    let rounds: u64 =
        std::env::var("HOSTILE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let first: u64 = std::env::var("HOSTILE_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let sound = sound();
    let trees = [1, 2, 3, 4, id::FS_TREE, id::CSUM_TREE, id::UUID_TREE, id::FREE_SPACE_TREE];
    let all = trees.map(|tree| (tree, sound.find(tree, |_, _| true)));
    let (mut refused, mut used) = (0, 0);
    for seed in first..first + rounds {
        let mut rng = wp_base::Rng::stream(seed, "hostile");
        let (tree, items) = &all[rng.below(all.len() as u64) as usize];
        if items.is_empty() {
            continue;
        }
        let (leaf, slot) = items[rng.below(items.len() as u64) as usize];
        let ends = [u64::MAX, u64::MAX - 1, u64::MAX - 4095, u64::MAX - 8191, 1 << 63, 0];
        let end = ends[rng.below(ends.len() as u64) as usize];
        let mut image = sound.clone();
        let mut said = String::new();
        image.block(leaf, |block| {
            let node = NodeRef::trusted(block);
            let (key, at) = (node.key(slot).expect("a key"), node.data_at(slot));
            let size = node.data(slot).map_or(0, <[u8]>::len);
            let head = HEADER_BYTES + slot * ITEM_BYTES;
            let (place, n) = match rng.below(8) {
                0 => (head, 8),
                1 | 2 => (head + 9, 8),
                _ if size < 8 => (at, size),
                3 => (at + rng.below(size as u64 - 3) as usize, 4),
                // Numbers stand at odd places behind bytes, and behind names.
                4 => (at + rng.below(size as u64 - 7) as usize, 8),
                5 if key.kind == kind::EXTENT_DATA && size == 53 => {
                    (at + 21 + 8 * rng.below(4) as usize, 8)
                }
                _ => (at + 8 * rng.below(size as u64 / 8) as usize, 8),
            };
            let n = n.min(block.len() - place);
            block[place..place + n].copy_from_slice(&end.to_le_bytes()[8 - n..]);
            said = format!(
                "seed {seed}: tree {tree} {key}, byte {} of {size}",
                place as i64 - at as i64
            );
        });
        println!("{said}: {end:#x}");
        if image.with(use_it).is_err() {
            refused += 1;
        } else {
            used += 1;
        }
        let view = image.view();
        let options = InspectOptions { hash_bytes_max: 64 << 20, ..Default::default() };
        let _ = (check(&view, &CheckOptions::default()), inspect(&view, &options));
        let setup = Setup { mib: MIB, node_bytes: 4096, ..Setup::new() };
        let w = World::empty(&setup);
        w.load(&image.medium);
        if let Ok(vfs) = w.mount(&setup) {
            let v = vfs.clone();
            let _ = w.run(calls(v));
            let fs = vfs.fs().clone();
            let _ = w.run(async move { fs.unmount().await });
        }
    }
    println!("{refused} refused, {used} used");
    assert!(refused > rounds / 10 && used > rounds / 10, "{refused} refused, {used} used");
}
