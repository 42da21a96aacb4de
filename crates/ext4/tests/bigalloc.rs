//! Clusters: space is taken and freed by them, whatever blocks of them are mapped. Against a model
//! in memory, e2fsck and our own check.

use std::collections::BTreeMap;

use wp_base::{FsError, Rng, Span};
use wp_ext4::fs::DataMode;
use wp_ext4::mkfs::Features;
use wp_medium::Slice;
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};

type Model = BTreeMap<String, Vec<u8>>;

async fn read(v: &Vfs, name: &str) -> Vec<u8> {
    let fd = v.open(name, OpenFlags::READ, 0).await.expect("opens");
    let got = v.pread(fd, 0, 1 << 30).await.expect("reads");
    v.close(fd).await.expect("closes");
    Slice::concat(&got)
}

fn big(era: &'static str, block_size: u32, cluster_size: u32) -> Setup {
    Setup {
        block_size,
        cluster_size: Some(cluster_size),
        features: Features::today(),
        ..Setup::new(era)
    }
}

fn put(f: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (at, end) = (at as usize, at as usize + bytes.len());
    f.resize(f.len().max(end), 0);
    f[at..end].copy_from_slice(bytes);
}

/// One call on an open file, and on its model.
async fn step(v: &Vfs, fd: Fd, f: &mut Vec<u8>, rng: &mut Rng, (n, setup): (u64, &Setup)) {
    let (block, cluster) =
        (u64::from(setup.block_size), u64::from(setup.cluster_size.expect("bigalloc")));
    let at = rng.below(60) * block + if rng.below(3) == 0 { rng.below(block) } else { 0 };
    let len = 1 + rng.below(6 * block);
    match rng.below(12) {
        0..=4 => {
            let s = Slice::pattern(n, 0, len as u32);
            assert_eq!(v.pwrite(fd, at, std::slice::from_ref(&s)).await, Ok(len));
            put(f, at, &s.to_vec());
        }
        5 => {
            let size = rng.below(70 * block);
            v.ftruncate(fd, size).await.expect("cuts");
            f.resize(size as usize, 0);
        }
        6..=7 => {
            let how =
                if rng.below(2) == 0 { Reserve::Punch } else { Reserve::Zero { keep_size: true } };
            v.fallocate(fd, how, at, len).await.expect("zeroes");
            let size = f.len();
            let to = ((at + len) as usize).min(size);
            f[(at as usize).min(to)..to].fill(0);
        }
        8 => {
            v.fallocate(fd, Reserve::Space { keep_size: false }, at, len).await.expect("reserves");
            f.resize(f.len().max((at + len) as usize), 0);
        }
        9 if setup.era.starts_with(['5', '6']) => {
            let (at, len) = (rng.below(12) * cluster, (1 + rng.below(3)) * cluster);
            if at + len < f.len() as u64 {
                if rng.below(2) == 0 {
                    v.fallocate(fd, Reserve::Collapse, at, len).await.expect("collapses");
                    f.drain(at as usize..(at + len) as usize);
                } else if f.len() < 100 * block as usize {
                    v.fallocate(fd, Reserve::Insert, at, len).await.expect("inserts");
                    f.splice(at as usize..at as usize, vec![0; len as usize]);
                }
                let odd = v.fallocate(fd, Reserve::Collapse, block, block).await;
                assert!(matches!(odd, Err(FsError::Invalid(_))), "not of whole clusters: {odd:?}");
            }
        }
        10 => v.fsync(fd).await.expect("syncs"),
        _ => v.rt().sleep(Span::millis(rng.below(9000))).await,
    }
}

#[test]
fn random_calls_leave_a_sound_image_and_all_bytes() {
    for (era, block, cluster, data, nodelalloc, seed) in [
        ("6.18", 4096, 16384, DataMode::Ordered, false, 1),
        ("6.12", 4096, 65536, DataMode::Ordered, false, 2),
        ("6.12", 2048, 8192, DataMode::Writeback, false, 3),
        ("5.10", 4096, 16384, DataMode::Journal, false, 4),
        ("4.6", 4096, 16384, DataMode::Ordered, true, 5),
        ("3.8", 4096, 8192, DataMode::Ordered, false, 6),
    ] {
        let setup = Setup { data, nodelalloc, seed, ..big(era, block, cluster) };
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, with) = (vfs.clone(), setup.clone());
        let model = w.run(async move {
            let before = settled(&v).await;
            let mut rng = Rng::stream(seed, "clusters");
            let mut model = Model::new();
            for n in 0..900 {
                let name = format!("f{}", rng.below(6));
                if rng.below(25) == 0 {
                    assert_eq!(v.unlink(&name).await.is_ok(), model.remove(&name).is_some());
                    continue;
                }
                let direct = rng.below(4) == 0 && data != DataMode::Journal;
                let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
                let f = model.entry(name.clone()).or_default();
                if direct {
                    let at = rng.below(60) * u64::from(block);
                    let len = (1 + rng.below(6)) * u64::from(block);
                    let flags = OpenFlags { direct: true, ..OpenFlags::WRITE };
                    let past = v.open(&name, flags, 0).await.expect("opens");
                    let s = Slice::pattern(n, 1, len as u32);
                    assert_eq!(v.pwrite(past, at, std::slice::from_ref(&s)).await, Ok(len));
                    put(f, at, &s.to_vec());
                    v.close(past).await.expect("closes");
                } else {
                    step(&v, fd, f, &mut rng, (n, &with)).await;
                }
                v.close(fd).await.expect("closes");
                if n % 10 == 0 {
                    assert!(read(&v, &name).await == model[&name], "{era}: call {n}, {name}");
                }
            }
            for (name, bytes) in &model {
                assert!(read(&v, name).await == *bytes, "{era}: {name}");
            }
            let kept: Model = model.clone();
            let copy = "copy".to_owned();
            for name in kept.keys() {
                v.unlink(name).await.expect("removes");
            }
            settled(&v).await;
            assert_eq!(settled(&v).await.blocks_free, before.blocks_free, "{era}: space is back");
            let bytes = kept.into_values().next().unwrap_or_default();
            let fd = v.open(&copy, OpenFlags::CREATE, 0o644).await.expect("opens");
            let pages: Vec<Slice> = bytes.chunks(4096).map(Slice::from_bytes).collect();
            v.pwrite(fd, 0, &pages).await.expect("writes");
            v.close(fd).await.expect("closes");
            Model::from([(copy, bytes)])
        });
        w.unmount(&vfs);
        let image = w.medium();
        assert_e2fsck_clean(&image, setup.mib, era);
        drop(vfs);
        w.end();
        let w = World::with_image(&setup, &image);
        let vfs = w.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        w.run(async move {
            for (name, bytes) in &model {
                assert!(read(&v, name).await == *bytes, "{name} after a mount");
            }
        });
        drop((vfs, image));
        w.end();
        assert_nothing_lives();
    }
}

async fn settled(v: &Vfs) -> wp_vfs::StatFs {
    v.sync().await.expect("syncs");
    v.rt().sleep(Span::secs(12)).await;
    v.sync().await.expect("syncs");
    v.stat_fs().await.expect("tells")
}

#[test]
fn half_used_clusters_stay_sound_in_the_middle_of_it() {
    // Left as it is, with files that have every kind of piece.
    for (era, seed) in [("6.18", 1), ("6.1", 2), ("4.6", 3)] {
        let setup = Setup { seed, ..big(era, 4096, 16384) };
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, with) = (vfs.clone(), setup.clone());
        w.run(async move {
            let mut rng = Rng::stream(seed, "halves");
            for name in 0..40 {
                let fd =
                    v.open(&format!("f{name}"), OpenFlags::CREATE, 0o644).await.expect("opens");
                let mut f = Vec::new();
                for n in 0..30 {
                    step(&v, fd, &mut f, &mut rng, (n, &with)).await;
                }
                assert!(read(&v, &format!("f{name}")).await == f, "{era}: f{name}");
                v.close(fd).await.expect("closes");
            }
            v.mkdir("d", 0o755).await.expect("makes");
            for n in 0..600 {
                let name = format!("d/{n}-{}", "n".repeat(60));
                v.symlink(&"t".repeat(100 + n % 3), &name).await.expect("links");
            }
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, era);
        drop(vfs);
        w.end();
        assert_nothing_lives();
    }
}

#[test]
fn a_file_owns_its_clusters_whole_and_neighbours_share_one() {
    let setup = big("6.18", 4096, 16384);
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let before = settled(&v).await.blocks_free;
        let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        let one = Slice::pattern(1, 0, 4096);
        let sectors = async || v.stat("f").await.expect("tells").blocks_512;
        for (block, clusters) in [(1, 1), (3, 1), (9, 2), (8, 2), (0, 2)] {
            v.pwrite(fd, block * 4096, std::slice::from_ref(&one)).await.expect("writes");
            assert_eq!(sectors().await, clusters * 32, "delayed, block {block}");
            let free = v.stat_fs().await.expect("tells").blocks_free;
            assert_eq!(before - free, clusters * 4, "promised, block {block}");
            if block != 9 {
                v.fsync(fd).await.expect("syncs");
                assert_eq!(sectors().await, clusters * 32, "block {block}");
            }
        }
        // The last mapped block of a cluster takes it away, and a delayed one keeps it.
        v.pwrite(fd, 10 * 4096, std::slice::from_ref(&one)).await.expect("writes");
        v.fallocate(fd, Reserve::Punch, 8 * 4096, 4096).await.expect("punches");
        v.fsync(fd).await.expect("syncs");
        assert_eq!(sectors().await, 64);
        v.pwrite(fd, 11 * 4096, std::slice::from_ref(&one)).await.expect("writes");
        v.fallocate(fd, Reserve::Punch, 9 * 4096, 2 * 4096).await.expect("punches");
        assert_eq!(sectors().await, 64, "promised again");
        v.fsync(fd).await.expect("syncs");
        assert_eq!(sectors().await, 64);
        v.ftruncate(fd, 9 * 4096).await.expect("cuts");
        assert_eq!(sectors().await, 32);
        v.close(fd).await.expect("closes");
        v.unlink("f").await.expect("removes");
        assert_eq!(settled(&v).await.blocks_free, before);
    });
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, "shared clusters");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

#[test]
fn a_full_disk_of_clusters_loses_nothing() {
    for (cluster, nodelalloc, seed) in [(16384, false, 1), (65536, false, 2), (16384, true, 3)] {
        let setup = Setup { mib: 24, nodelalloc, seed, ..big("6.12", 4096, cluster) };
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            let mut rng = Rng::stream(seed, "full");
            let mut model = Model::new();
            let mut denied = 0;
            for n in 0..6000u64 {
                if denied > 60 {
                    break;
                }
                let name = format!("f{}", rng.below(500));
                let (at, len) = (rng.below(50) * 4096, 1 + rng.below(40_000) as u32);
                let fd = match v.open(&name, OpenFlags::CREATE, 0o644).await {
                    Ok(fd) => fd,
                    Err(e) => {
                        assert_eq!(e, FsError::NoSpace);
                        denied += 1;
                        continue;
                    }
                };
                let f = model.entry(name.clone()).or_default();
                let s = Slice::pattern(n, 0, len);
                match v.pwrite(fd, at, std::slice::from_ref(&s)).await {
                    Ok(wrote) => put(f, at, &s.sub(0, wrote as u32).to_vec()),
                    Err(e) => {
                        assert_eq!(e, FsError::NoSpace);
                        denied += 1;
                    }
                }
                v.close(fd).await.expect("closes");
                if rng.below(40) == 0 {
                    v.sync().await.expect("what was accepted can be written");
                }
            }
            assert!(denied > 60, "it never fills");
            v.sync().await.expect("what was accepted can be written");
            for (name, bytes) in &model {
                assert!(read(&v, name).await == *bytes, "{name}");
            }
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, "full");
        drop(vfs);
        w.end();
        assert_nothing_lives();
    }
}
