//! Files with block pointers, for images without extents: three levels, holes, cuts, and what
//! e2fsck and mke2fs say of it.

use std::collections::BTreeMap;

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};
use wp_base::Rng;
use wp_ext4::mkfs::Features;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

fn without_extents() -> Features {
    Features::era_2012().set("extent", false).expect("a feature")
}

async fn read_at(v: &Vfs, name: &str, at: u64, len: u64) -> Vec<u8> {
    let fd = v.open(name, OpenFlags::READ, 0).await.expect("opens");
    let got = v.pread(fd, at, len).await.expect("reads");
    v.close(fd).await.expect("closes");
    Slice::concat(&got)
}

/// Blocks of a sparse file by number, with what is in them.
type Blocks = BTreeMap<u64, u64>;

async fn assert_same(v: &Vfs, block: u64, blocks: &Blocks, size: u64) {
    assert_eq!(v.stat("f").await.expect("there").size, size);
    for (n, seed) in blocks {
        let got = read_at(v, "f", n * block, block).await;
        let want = Slice::pattern(*seed, 0, block as u32).to_vec();
        let whole = (size - n * block).min(block) as usize;
        assert!(got == want[..whole], "block {n}");
    }
}

#[test]
fn three_levels_of_pointers_are_filled_and_cut_at_random() {
    for (era, block_size, nodelalloc) in
        [("3.4", 1024, false), ("4.6", 4096, true), ("6.18", 1024, false), ("6.18", 2048, true)]
    {
        let mut setup = Setup::new(era);
        setup.block_size = block_size;
        setup.features = without_extents();
        setup.nodelalloc = nodelalloc;
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, block) = (vfs.clone(), u64::from(block_size));
        let (blocks, size) = w.run(async move {
            v.sync().await.expect("syncs");
            let before = v.stat_fs().await.expect("tells").blocks_free;
            let per = block / 4;
            let edges = [0, 11, 12, 13, 12 + per - 1, 12 + per, 12 + per + per * per - 1];
            let beyond = 12 + per + per * per;
            let mut rng = Rng::stream(u64::from(block_size), "pointers");
            let (mut blocks, mut size) = (Blocks::new(), 0);
            for round in 0..4u64 {
                let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
                let mut places: Vec<u64> = edges.to_vec();
                places.extend([beyond, beyond + per, beyond + per * per - 1]);
                places.extend((0..60).map(|_| rng.below(beyond + 3 * per)));
                let start = rng.below(per);
                places.extend(start..start + 40);
                for n in places {
                    let seed = round * 1_000_000 + n;
                    v.pwrite(fd, n * block, &[Slice::pattern(seed, 0, block as u32)])
                        .await
                        .expect("writes");
                    blocks.insert(n, seed);
                    size = size.max((n + 1) * block);
                }
                v.fsync(fd).await.expect("syncs");
                v.close(fd).await.expect("closes");
                assert_same(&v, block, &blocks, size).await;
                for _ in 0..4 {
                    size = rng.below(size) + 1;
                    v.truncate("f", size).await.expect("cuts");
                    blocks.retain(|n, _| n * block < size);
                    assert_same(&v, block, &blocks, size).await;
                    // What is grown again is zeroes.
                    v.truncate("f", size + block).await.expect("grows");
                    let tail = read_at(&v, "f", size, block).await;
                    assert!(tail.iter().all(|b| *b == 0), "round {round}: cut at {size}");
                    v.truncate("f", size).await.expect("cuts");
                }
            }
            v.mkdir("d", 0o755).await.expect("makes");
            for i in 0..1500 {
                let fd = v.open(&format!("d/n_{i}"), OpenFlags::CREATE, 0o644).await;
                v.close(fd.expect("opens")).await.expect("closes");
            }
            for i in 0..1500 {
                v.unlink(&format!("d/n_{i}")).await.expect("removes");
            }
            v.rmdir("d").await.expect("removes");
            let name = "x".repeat(500);
            v.symlink(&name, "link").await.expect("links");
            v.unlink("link").await.expect("removes");
            let copy = v.open("g", OpenFlags::CREATE, 0o644).await.expect("opens");
            v.pwrite(copy, 100 * block, &[Slice::pattern(5, 0, 3000)]).await.expect("writes");
            v.close(copy).await.expect("closes");
            v.unlink("g").await.expect("removes");
            v.sync().await.expect("syncs");
            let kept = v.stat("f").await.expect("there").blocks_512 * 512 / block;
            let after = v.stat_fs().await.expect("tells").blocks_free;
            assert_eq!(before - after, kept, "what is gone is free again");
            (blocks, size)
        });
        w.unmount(&vfs);
        drop(vfs);
        let image = w.medium();
        w.end();
        assert_e2fsck_clean(&image, setup.mib, &format!("{era} {block_size}"));
        let again = World::with_image(&setup, &image);
        let vfs = again.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        again.run(async move { assert_same(&v, block, &blocks, size).await });
        drop(vfs);
        again.end();
    }
    assert_nothing_lives();
}

#[test]
fn a_fresh_image_without_extents_is_clean() {
    for (mib, block_size) in [(64, 1024), (64, 4096), (600, 1024), (1024, 4096)] {
        let mut setup = Setup::new("6.18");
        (setup.mib, setup.block_size) = (mib, block_size);
        setup.features = without_extents();
        assert_e2fsck_clean(&setup.image(), mib, &format!("{mib} MiB, {block_size}"));
    }
}
