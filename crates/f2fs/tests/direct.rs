//! Where direct writes go: in place, to new places, or through the cache, by era, mode and device.

use std::collections::BTreeMap;

use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::{Rng, Sector, Span};
use wp_f2fs::fs::{DirectMode, FsMode};
use wp_f2fs::image::Image;
use wp_medium::{MediumView, Slice};
use wp_vfs::{OpenFlags, Vfs};

const BLOCKS: u64 = 1500;
const DIRECT: OpenFlags = OpenFlags { direct: true, ..OpenFlags::CREATE };
const ZONES: &[(&str, u64)] = &[
    ("zone_bytes", 16 << 20),
    ("pages_per_block", 12),
    ("blocks_per_plane", 48),
    ("conventional_zones", 8),
];

fn zoned(setup: Setup) -> Setup {
    Setup { device: "zn540", params: ZONES, mib: 768, ..setup }
}

fn logged(setup: Setup) -> Setup {
    Setup { direct: DirectMode::Log, ..setup }
}

fn lfs(setup: Setup) -> Setup {
    Setup { mode: FsMode::Lfs, ..setup }
}

/// Where the blocks of file `f` are at the last checkpoint.
fn places(w: &World, setup: &Setup) -> BTreeMap<u64, u32> {
    let view = MediumView { medium: w.medium(), start: Sector(0), bytes: setup.mib << 20 };
    let image = Image::open(&view).expect("an image");
    let root = image.inode(image.super_block().root_ino.get()).expect("a root");
    let names = image.names(&root).expect("names");
    let f = names.iter().find(|n| n.name == b"f").expect("the file");
    let record = image.inode(f.ino).expect("an inode");
    let runs = image.map(&record).expect("a map");
    let each = |r: &wp_f2fs::image::Run| {
        let (logical, start) = (r.logical, r.start);
        (0..r.blocks).map(move |k| (logical + u64::from(k), start + k))
    };
    runs.iter().flat_map(each).collect()
}

async fn write(v: &Vfs, flags: OpenFlags, block: u64, tag: u64, blocks: u32) {
    let fd = v.open("f", flags, 0o644).await.expect("opens");
    let data = Slice::pattern(tag, 0, blocks * 4096);
    v.pwrite(fd, block * 4096, &[data]).await.expect("writes");
    v.close(fd).await.expect("closes");
}

/// Blocks that are overwritten, in order, each once.
fn chosen() -> Vec<u64> {
    let mut rng = Rng::stream(1, "direct overwrites");
    let mut all: Vec<u64> = (0..BLOCKS).collect();
    (0..40).map(|_| all.swap_remove(rng.below(all.len() as u64) as usize)).collect()
}

/// Places before and after direct overwrites.
fn moved(setup: &Setup) -> (BTreeMap<u64, u32>, BTreeMap<u64, u32>) {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        write(&v, OpenFlags::CREATE, 0, 1, BLOCKS as u32).await;
        v.sync().await.expect("syncs");
    });
    let before = places(&w, setup);
    let v = vfs.clone();
    w.run(async move {
        for (n, block) in chosen().into_iter().enumerate() {
            write(&v, DIRECT, block, 100 + n as u64, 1).await;
        }
        v.sync().await.expect("syncs");
        for (n, block) in chosen().into_iter().enumerate() {
            for flags in [OpenFlags::READ, OpenFlags { direct: true, ..OpenFlags::READ }] {
                let fd = v.open("f", flags, 0).await.expect("opens");
                let got = v.pread(fd, block * 4096, 4096).await.expect("reads");
                v.close(fd).await.expect("closes");
                let got: Vec<u8> = Slice::concat(&got);
                assert_eq!(got, Slice::pattern(100 + n as u64, 0, 4096).to_vec(), "block {block}");
            }
        }
    });
    let after = places(&w, setup);
    w.unmount(&vfs);
    w.judge(setup, "direct overwrites");
    drop(vfs);
    w.end();
    assert_nothing_lives();
    (before, after)
}

#[test]
fn linux_overwrites_in_place_unless_the_mode_is_lfs() {
    for era in ["3.12", "3.13", "4.19", "5.14", "6.18"] {
        let (before, after) = moved(&Setup::new(era));
        assert_eq!(before, after, "{era}");
        let (before, after) = moved(&lfs(Setup::new(era)));
        let changed = before.iter().filter(|(n, at)| after[*n] != **at).count();
        assert_eq!(changed, chosen().len(), "{era}, mode=lfs");
    }
}

#[test]
fn direct_log_overwrites_at_the_end_of_the_log_in_the_order_of_the_writes() {
    let today = || Setup::new("6.18");
    for setup in [logged(today()), logged(lfs(today())), logged(zoned(today()))] {
        let (before, after) = moved(&setup);
        let now: Vec<u32> = chosen().iter().map(|n| after[n]).collect();
        assert!(now.windows(2).all(|w| w[1] == w[0] + 1), "{now:?}");
        let old: Vec<u32> = before.values().copied().collect();
        assert!(now.iter().all(|at| !old.contains(at)), "a block in use was overwritten");
        for (n, at) in &before {
            assert!(chosen().contains(n) || after[n] == *at, "block {n} moved");
        }
    }
}

/// Is what a direct write wrote on the device when it returns?
fn is_there(setup: &Setup) -> bool {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        write(&v, OpenFlags::CREATE, 0, 1, 64).await;
        v.sync().await.expect("syncs");
        write(&v, DIRECT, 7, 4242, 1).await;
    });
    let medium = w.medium();
    let want = Slice::pattern(4242, 0, 4096).to_vec();
    let block = |at: Sector| -> Vec<u8> { Slice::concat(&medium.read(at, 8)) };
    let all = medium.runs().flat_map(|(at, n)| (0..n / 8).map(move |k| at.advance(k * 8)));
    let found = all.filter(|at| at.0.is_multiple_of(8)).any(|at| block(at) == want);
    drop((medium, vfs));
    w.end();
    assert_nothing_lives();
    found
}

#[test]
fn on_zones_linux_left_direct_writes_in_the_cache_from_5_17_to_6_3() {
    let at = |era| is_there(&zoned(Setup::new(era)));
    assert_eq!(["5.14", "5.17", "6.1", "6.4", "6.18"].map(at), [true, false, false, true, true]);
    assert!(is_there(&logged(zoned(Setup::new("6.1")))), "direct=log");
    assert!(
        ["3.12", "3.13", "6.1"].map(|era| is_there(&Setup::new(era))).iter().all(|there| *there)
    );
}

/// How long a direct write takes that begins before a hole and ends behind it.
fn across_a_hole(setup: &Setup) -> Span {
    const HOLE: u64 = 700;
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    let took = w.run(async move {
        write(&v, OpenFlags::CREATE, 0, 1, HOLE as u32).await;
        write(&v, OpenFlags::CREATE, HOLE + 1, 2, (BLOCKS - HOLE - 1) as u32).await;
        v.sync().await.expect("syncs");
        let fd = v.open("f", DIRECT, 0).await.expect("opens");
        let from = v.rt().now();
        let data = Slice::pattern(3, 0, 3 * 4096);
        v.pwrite(fd, (HOLE - 1) * 4096, &[data]).await.expect("writes");
        let took = v.rt().now().since(from);
        v.close(fd).await.expect("closes");
        v.sync().await.expect("syncs");
        took
    });
    assert_eq!(places(&w, setup).len() as u64, BLOCKS);
    w.unmount(&vfs);
    w.judge(setup, "a direct write across a hole");
    drop(vfs);
    w.end();
    assert_nothing_lives();
    took
}

/// What is before the hole is waited for, then the rest is left to the cache.
#[test]
fn until_4_0_a_hole_ended_a_direct_write() {
    let once = across_a_hole(&Setup::new("6.18"));
    let times = ["3.12", "3.13", "4.0", "4.1", "5.14"].map(|era| across_a_hole(&Setup::new(era)));
    assert!(once > Span(0));
    let twice = Span(once.0 * 2);
    assert_eq!(times, [once, twice, twice, once, once]);
}
