//! The mounted file system where it is hard: fragmented files, large directories, several tasks at
//! once, no space, and images that are wrong.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};
use wp_base::{FsError, Rng, Sector, Span, live};
use wp_ext4::fs::{Ext4, Mounted};
use wp_ext4::mkfs::Features;
use wp_medium::{Medium, Slice};
use wp_vfs::{OpenFlags, StatFs, Vfs};

/// Contents of the files that must be there, by name.
type Model = BTreeMap<String, Vec<u8>>;

async fn read_all(v: &Vfs, name: &str) -> Vec<u8> {
    let fd = v.open(name, OpenFlags::READ, 0).await.expect("opens");
    let got = v.pread(fd, 0, 1 << 40).await.expect("reads");
    v.close(fd).await.expect("closes");
    Slice::concat(&got)
}

async fn settled(v: &Vfs) -> StatFs {
    v.sync().await.expect("syncs");
    v.stat_fs().await.expect("tells")
}

async fn write_at(v: &Vfs, name: &str, at: u64, data: Slice) -> Result<u64, FsError> {
    let fd = v.open(name, OpenFlags::CREATE, 0o644).await?;
    let done = v.pwrite(fd, at, &[data]).await;
    v.close(fd).await?;
    done
}

/// Mounts `image` anew and compares every file.
fn assert_holds(setup: &Setup, image: &Medium, model: &Model, what: &str) {
    let w = World::with_image(setup, image);
    let vfs = w.mount(setup).expect("mounts again");
    let (v, model, what) = (vfs.clone(), model.clone(), what.to_owned());
    w.run(async move {
        for (name, bytes) in &model {
            let got = read_all(&v, name).await;
            assert!(got == *bytes, "{what}: {name} has {} bytes, not {}", got.len(), bytes.len());
        }
    });
    drop(vfs);
    w.end();
}

fn put(model: &mut Model, name: &str, at: usize, bytes: &[u8]) {
    let f = model.entry(name.to_owned()).or_default();
    if f.len() < at + bytes.len() {
        f.resize(at + bytes.len(), 0);
    }
    f[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn every_second_block_makes_deep_trees_that_can_be_cut_and_filled_again() {
    for (features, nodelalloc, era) in [
        (Features::era_2012(), false, "3.4"),
        (Features::era_2012(), true, "4.6"),
        (Features::today(), false, "4.6"),
        (Features::today(), false, "6.1"),
    ] {
        let mut setup = Setup::new(era);
        setup.block_size = 1024;
        setup.features = features;
        setup.nodelalloc = nodelalloc;
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let model = w.run(async move {
            let mut model = Model::new();
            write_at(&v, "keep", 0, Slice::pattern(1, 0, 5000)).await.expect("writes");
            put(&mut model, "keep", 0, &Slice::pattern(1, 0, 5000).to_vec());
            let before = settled(&v).await;
            let mut rng = Rng::stream(3, "cuts");
            // 84 entries a leaf of 1 KiB and four in the root: 336 extents reach depth 1, 1000
            // depth 2.
            for (round, extents) in [3u64, 200, 1000, 1500].into_iter().enumerate() {
                let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
                let order: Vec<u64> = match round % 2 {
                    0 => (0..extents).collect(),
                    _ => (0..extents).rev().collect(),
                };
                for i in order {
                    let s = Slice::pattern(i, 0, 1024);
                    v.pwrite(fd, i * 2048, std::slice::from_ref(&s)).await.expect("writes");
                    put(&mut model, "f", i as usize * 2048, &s.to_vec());
                    if i % 100 == 7 {
                        v.fsync(fd).await.expect("syncs");
                    }
                }
                v.fsync(fd).await.expect("syncs");
                let mut size = extents * 2048;
                while size > 0 {
                    size = if size < 5000 { 0 } else { size - 1 - rng.below(size.min(400_000)) };
                    v.ftruncate(fd, size).await.expect("cuts");
                    model.get_mut("f").expect("there").resize(size as usize, 0);
                    assert!(read_all(&v, "f").await == model["f"], "cut to {size}");
                    let at = rng.below(size + 4096);
                    let s = Slice::pattern(size, 5, 3000);
                    v.pwrite(fd, at, std::slice::from_ref(&s)).await.expect("writes");
                    put(&mut model, "f", at as usize, &s.to_vec());
                    if rng.below(3) == 0 {
                        v.sync().await.expect("syncs");
                    }
                }
                v.close(fd).await.expect("closes");
                v.unlink("f").await.expect("removes");
                model.remove("f");
                let after = settled(&v).await;
                let after = if after == before { after } else { settled(&v).await };
                assert_eq!(after, before, "{extents} extents");
            }
            // One more that stays, deep and cut.
            for i in 0..1200u64 {
                let s = Slice::pattern(i, 1, 1024);
                write_at(&v, "deep", i * 2048, s.clone()).await.expect("writes");
                put(&mut model, "deep", i as usize * 2048, &s.to_vec());
            }
            v.sync().await.expect("syncs");
            v.truncate("deep", 1_500_001).await.expect("cuts");
            model.get_mut("deep").expect("there").resize(1_500_001, 0);
            model
        });
        w.unmount(&vfs);
        let image = w.medium();
        assert_e2fsck_clean(&image, setup.mib, "fragmented");
        drop(vfs);
        w.end();
        assert_holds(&setup, &image, &model, "fragmented");
        drop(image);
        assert_nothing_lives();
    }
}

#[test]
fn directories_grow_over_many_blocks_and_every_name_is_found() {
    for (features, block_size, era) in [
        (Features::era_2012(), 1024, "3.4"),
        (Features::today(), 1024, "4.6"),
        (Features::today(), 4096, "5.15"),
    ] {
        let mut setup = Setup::new(era);
        setup.block_size = block_size;
        setup.features = features;
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let names = w.run(async move {
            let before = settled(&v).await;
            let mut rng = Rng::stream(7, "names");
            let mut names = std::collections::BTreeSet::new();
            for round in 0..2 {
                v.mkdir("d", 0o755).await.expect("makes");
                for i in 0..700u64 {
                    let len = 1 + rng.below(255) as usize;
                    let mut name = format!("{i}-{}", "n".repeat(255));
                    name.truncate(len.max(4));
                    let path = format!("d/{name}");
                    match v
                        .open(&path, OpenFlags { exclusive: true, ..OpenFlags::CREATE }, 0o644)
                        .await
                    {
                        Ok(fd) => {
                            assert!(names.insert(name), "{path} was there");
                            v.close(fd).await.expect("closes");
                        }
                        Err(e) => {
                            assert_eq!(e, FsError::Exists);
                            assert!(names.contains(&name), "{path} was not there");
                        }
                    }
                    if rng.below(3) == 0 {
                        let victim = names
                            .iter()
                            .nth(rng.below(names.len() as u64) as usize)
                            .expect("one")
                            .clone();
                        if rng.below(2) == 0 {
                            v.unlink(&format!("d/{victim}")).await.expect("removes");
                        } else {
                            let to = format!("r{i}{}", "x".repeat(rng.below(250) as usize));
                            let (a, b) = (format!("d/{victim}"), format!("d/{to}"));
                            v.rename(&a, &b).await.expect("renames");
                            names.insert(to);
                        }
                        names.remove(&victim);
                    }
                }
                let listed: std::collections::BTreeSet<String> = v
                    .read_dir("d")
                    .await
                    .expect("lists")
                    .into_iter()
                    .map(|e| String::from_utf8(e.name).expect("ours"))
                    .collect();
                assert_eq!(listed, names);
                if round == 0 {
                    for name in std::mem::take(&mut names) {
                        v.unlink(&format!("d/{name}")).await.expect("removes");
                    }
                    v.rmdir("d").await.expect("removes");
                    settled(&v).await;
                    assert_eq!(settled(&v).await, before);
                }
            }
            names
        });
        w.unmount(&vfs);
        let image = w.medium();
        assert_e2fsck_clean(&image, setup.mib, "directory");
        drop(vfs);
        w.end();
        let model = names.into_iter().map(|n| (format!("d/{n}"), Vec::new())).collect();
        assert_holds(&setup, &image, &model, "directory");
    }
    assert_nothing_lives();
}

#[test]
fn no_space_loses_nothing_that_was_accepted() {
    for (block_size, nodelalloc, seed) in
        [(1024, false, 1), (4096, false, 2), (1024, true, 3), (4096, true, 4)]
    {
        let mut setup = Setup::new("4.6");
        setup.mib = 16;
        setup.block_size = block_size;
        setup.nodelalloc = nodelalloc;
        setup.seed = seed;
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let model = w.run(async move { fill(&v, seed).await });
        w.unmount(&vfs);
        let image = w.medium();
        assert_e2fsck_clean(&image, setup.mib, "full");
        drop(vfs);
        w.end();
        assert_holds(&setup, &image, &model, "full");
        drop(image);
        assert_nothing_lives();
    }
}

async fn fill(v: &Vfs, seed: u64) -> Model {
    let mut rng = Rng::stream(seed, "fill");
    let mut model = Model::new();
    let mut full = 0;
    let mut step = 0u64;
    while full < 150 {
        step += 1;
        assert!(step < 40_000, "it never fills");
        let name = format!("f{}", rng.below(60));
        let denied = match rng.below(if full > 40 { 9 } else { 7 }) {
            0..=2 => {
                let at = rng.below(400) * 512;
                let s = Slice::pattern(step, 0, 1 + rng.below(60_000) as u32);
                match write_at(v, &name, at, s.clone()).await {
                    Ok(n) => {
                        put(&mut model, &name, at as usize, &s.sub(0, n as u32).to_vec());
                        n < u64::from(s.len())
                    }
                    Err(e) => {
                        assert_eq!(e, FsError::NoSpace);
                        // The file may have been made before there was no room for its bytes.
                        if v.stat(&name).await.is_ok() {
                            model.entry(name).or_default();
                        }
                        true
                    }
                }
            }
            3..=4 => match v.mkdir(&format!("d{step}"), 0o755).await {
                Ok(()) => false,
                Err(e) => {
                    assert_eq!(e, FsError::NoSpace);
                    true
                }
            },
            5 => match v.symlink(&"t".repeat(300), &format!("l{step}")).await {
                Ok(()) => false,
                Err(e) => {
                    assert_eq!(e, FsError::NoSpace);
                    assert_eq!(v.unlink(&format!("l{step}")).await, Err(FsError::NotFound));
                    true
                }
            },
            6 => {
                v.sync().await.expect("what was accepted can be written");
                false
            }
            7 => {
                assert_eq!(v.unlink(&name).await.is_ok(), model.remove(&name).is_some());
                false
            }
            _ => {
                let size = rng.below(20_000);
                match (v.truncate(&name, size).await, model.get_mut(&name)) {
                    (Ok(()), Some(f)) => f.resize(size as usize, 0),
                    (Err(FsError::NotFound), None) => {}
                    (got, f) => panic!("{got:?}, {:?}", f.is_some()),
                }
                false
            }
        };
        full += u64::from(denied);
    }
    v.sync().await.expect("what was accepted can be written");
    for (name, bytes) in &model {
        assert!(read_all(v, name).await == *bytes, "{name}");
    }
    // Deleting gives room back.
    let keep: Vec<String> = model.keys().take(3).cloned().collect();
    for name in model.keys().filter(|n| !keep.contains(n)) {
        v.unlink(name).await.expect("removes");
    }
    model.retain(|n, _| keep.contains(n));
    let s = Slice::pattern(seed, 9, 1 << 20);
    assert_eq!(write_at(v, "again", 0, s.clone()).await, Ok(1 << 20), "there is room again");
    put(&mut model, "again", 0, &s.to_vec());
    model
}

#[test]
fn inodes_run_out_and_come_back() {
    let mut setup = Setup::new("4.6");
    setup.mib = 16;
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let before = settled(&v).await;
        for round in 0..3 {
            let mut made = 0;
            let error = loop {
                match v.open(&format!("f{made}"), OpenFlags::CREATE, 0o644).await {
                    Ok(fd) => v.close(fd).await.expect("closes"),
                    Err(e) => break e,
                }
                made += 1;
            };
            assert_eq!((error, made), (FsError::NoSpace, before.inodes_free), "round {round}");
            assert_eq!(v.mkdir("d", 0o755).await, Err(FsError::NoSpace));
            for i in 0..made {
                v.unlink(&format!("f{i}")).await.expect("removes");
            }
        }
        assert_eq!(settled(&v).await.inodes_free, before.inodes_free);
    });
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, "no inodes");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

/// Mounts a damaged image and does a little of everything; returns the first refusal.
fn use_damaged(setup: &Setup, image: &Medium) -> (Option<FsError>, bool, Medium) {
    let w = World::with_image(setup, image);
    let (refused, mounted) = match w.mount(setup) {
        Err(e) => (Some(e), false),
        Ok(vfs) => {
            let v = vfs.clone();
            let first = w.run(async move { a_little(&v).await.err() });
            let fs = vfs.fs().clone();
            let unmounted = w.run(async move { fs.unmount().await });
            (first.or(unmounted.err()), true)
        }
    };
    let after = w.medium();
    w.end();
    (refused, mounted, after)
}

async fn a_little(v: &Vfs) -> Result<(), FsError> {
    v.read_dir("/").await?;
    v.read_dir("dir").await?;
    v.stat("dir/file").await?;
    let fd = v.open("dir/deep", OpenFlags::WRITE, 0).await?;
    v.pread(fd, 0, 1 << 20).await?;
    v.pwrite(fd, 777, &[Slice::pattern(4, 0, 40_000)]).await?;
    v.fsync(fd).await?;
    v.close(fd).await?;
    v.truncate("dir/deep", 100_000).await?;
    v.unlink("dir/file").await?;
    v.mkdir("dir/new", 0o755).await?;
    v.unlink("dir/deep").await?;
    v.sync().await
}

fn populated(setup: &Setup) -> Medium {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        v.mkdir("dir", 0o755).await.expect("makes");
        write_at(&v, "dir/file", 0, Slice::pattern(1, 0, 9000)).await.expect("writes");
        for i in 0..400u64 {
            write_at(&v, "dir/deep", i * 2048, Slice::pattern(i, 0, 1024)).await.expect("writes");
        }
    });
    w.unmount(&vfs);
    let image = w.medium();
    drop(vfs);
    w.end();
    image
}

#[test]
fn damage_is_named_and_never_panics_and_a_refused_mount_writes_nothing() {
    for features in [Features::today(), Features::era_2012()] {
        let mut setup = Setup::new("4.6");
        setup.mib = 16;
        setup.block_size = 1024;
        setup.features = features;
        let image = populated(&setup);
        assert_eq!(use_damaged(&setup, &image).0, None, "the undamaged image works");
        let mut rng = Rng::stream(1, "damage");
        let mut blocks: Vec<u64> = Vec::new();
        for (at, sectors) in image.runs() {
            blocks.extend(
                (at.0 / 2..(at.0 + sectors).div_ceil(2)).filter(|b| *b < 600 || b % 64 == 0),
            );
        }
        blocks.dedup();
        let (mut mounts, mut refusals) = (0, 0);
        for round in 0..600 {
            // Super block and descriptors as often as everything else.
            let block = match rng.below(4) {
                0 => 1 + rng.below(2),
                _ => blocks[rng.below(blocks.len() as u64) as usize],
            };
            let mut bad = image.clone();
            let at =
                block * 1024 + if rng.below(2) == 0 { rng.below(1024) } else { 4 * rng.below(32) };
            let mut byte = [0u8];
            bad.read_bytes(at, &mut byte);
            byte[0] ^= 1 << rng.below(8);
            bad.write_bytes(at, &byte);
            let (refused, mounted, after) = use_damaged(&setup, &bad);
            if !mounted {
                refusals += 1;
                let e = refused.expect("why");
                assert!(
                    matches!(e, FsError::Corrupt(_) | FsError::Unsupported(_)),
                    "round {round}, byte {at}: {e}"
                );
                let mut places = Vec::new();
                bad.diff(&after, &mut |at, _| places.push(at));
                assert_eq!(places, Vec::<Sector>::new(), "round {round}, byte {at}: {e}");
            } else {
                mounts += 1;
            }
        }
        assert!(mounts > 50 && refusals > 10, "{mounts} {refusals}");
    }
    assert_nothing_lives();
}

#[test]
fn a_link_to_nowhere_can_be_created_through() {
    let setup = Setup::new("4.6");
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        v.mkdir("d", 0o755).await.expect("makes");
        v.symlink("d/target", "l").await.expect("links");
        v.symlink("loop", "loop").await.expect("links");
        let fd = v.open("l", OpenFlags::CREATE, 0o644).await.expect("makes d/target");
        v.close(fd).await.expect("closes");
        assert!(v.stat("d/target").await.is_ok());
        let exclusive = OpenFlags { exclusive: true, ..OpenFlags::CREATE };
        v.unlink("d/target").await.expect("removes");
        assert_eq!(v.open("l", exclusive, 0o644).await, Err(FsError::Exists));
        assert_eq!(v.open("loop", OpenFlags::CREATE, 0o644).await, Err(FsError::Loop));
        v.link("l", "d/l2").await.expect("links the link");
        v.sync().await.expect("syncs");
        v.rt().sleep(Span::secs(40)).await;
    });
    w.unmount(&vfs);
    assert_eq!(vfs_sync(&w, &vfs), Err(FsError::ReadOnly));
    assert_e2fsck_clean(&w.medium(), setup.mib, "links");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

fn vfs_sync(w: &World, vfs: &Vfs) -> Result<(), FsError> {
    let v = vfs.clone();
    w.run(async move { v.sync().await })
}

#[test]
fn with_almost_no_cache_everything_is_still_right() {
    for (seed, block_size, era) in [(1, 1024, "3.4"), (2, 4096, "4.6"), (3, 1024, "6.1")] {
        let mut setup = Setup::new(era);
        setup.block_size = block_size;
        let w = World::fresh(&setup);
        let (rt, part, o) = (w.rt.clone(), w.part.clone(), setup.mount_options());
        let fs = w.run(async move { Ext4::mount(&rt, part, o).await }).expect("mounts");
        fs.set_cache_limits(6, 20);
        let vfs = Vfs::new(&w.rt, Rc::new(Mounted(fs.clone())));
        let v = vfs.clone();
        let bdev = fs.bdev().clone();
        let model = w.run(async move {
            let mut rng = Rng::stream(seed, "small");
            let mut model = Model::new();
            for d in 0..4 {
                v.mkdir(&format!("d{d}"), 0o755).await.expect("makes");
            }
            for step in 0..1500u64 {
                let name = format!("d{}/f{}", rng.below(4), rng.below(20));
                match rng.below(10) {
                    0..=4 => {
                        let at = rng.below(80_000);
                        let s = Slice::pattern(step, 0, 1 + rng.below(30_000) as u32);
                        let n = write_at(&v, &name, at, s.clone()).await;
                        assert_eq!(n, Ok(u64::from(s.len())));
                        put(&mut model, &name, at as usize, &s.to_vec());
                    }
                    5 => {
                        let gone = v.unlink(&name).await.is_ok();
                        assert_eq!(gone, model.remove(&name).is_some());
                    }
                    6 => {
                        let size = rng.below(70_000);
                        if let Some(f) = model.get_mut(&name) {
                            v.truncate(&name, size).await.expect("cuts");
                            f.resize(size as usize, 0);
                        }
                    }
                    7 => v.sync().await.expect("syncs"),
                    8 => v.rt().sleep(Span::millis(rng.below(20_000))).await,
                    _ => {
                        if let Some(f) = model.get(&name) {
                            assert!(read_all(&v, &name).await == *f, "step {step}, {name}");
                        }
                    }
                }
            }
            v.sync().await.expect("syncs");
            v.rt().sleep(Span::secs(90)).await;
            for name in model.keys() {
                v.stat(name).await.expect("there");
            }
            model
        });
        assert!(bdev.mapping().len() < 100, "{} blocks are cached", bdev.mapping().len());
        drop(bdev);
        assert!(live::count(live::Kind::Inode) < 20, "{} inodes", live::count(live::Kind::Inode));
        w.unmount(&vfs);
        let image = w.medium();
        assert_e2fsck_clean(&image, setup.mib, "small cache");
        drop((vfs, fs));
        w.end();
        assert_holds(&setup, &image, &model, "small cache");
        drop(image);
        assert_nothing_lives();
    }
}
