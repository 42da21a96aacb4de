//! The mounted file system against itself and against e2fsck.

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};
use wp_base::{FsError, Rng};
use wp_ext4::mkfs::Features;
use wp_medium::Slice;
use wp_vfs::OpenFlags;

#[test]
fn an_unused_file_system_survives_mount_and_unmount() {
    for era in ["3.4", "3.8", "4.6"] {
        let setup = Setup::new(era);
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, era);
        drop(vfs);
        w.end();
        assert_nothing_lives();
    }
}

#[test]
fn what_is_written_and_synced_is_read_again_after_a_remount() {
    for (block_size, features) in
        [(4096, Features::era_2012()), (1024, Features::era_2012()), (4096, Features::today())]
    {
        let mut setup = Setup::new("4.6");
        setup.block_size = block_size;
        setup.features = features;
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            v.mkdir("d", 0o755).await?;
            let fd = v.open("d/file", OpenFlags::CREATE, 0o644).await?;
            v.pwrite(fd, 0, &[Slice::pattern(1, 0, 10_000)]).await?;
            v.pwrite(fd, 5_000, &[Slice::pattern(2, 0, 3)]).await?;
            v.fsync(fd).await?;
            v.close(fd).await?;
            v.symlink("d/file", "short").await?;
            v.symlink(&"x".repeat(200), "long").await?;
            v.link("d/file", "other").await?;
            v.rename("short", "d/renamed").await
        })
        .expect("all of it works");
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, "files");
        let image = w.medium();
        drop(vfs);
        w.end();

        let w = World::with_image(&setup, &image);
        let vfs = w.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        let (bytes, nlink, long) = w.run(async move {
            let fd = v.open("other", OpenFlags::READ, 0).await.expect("opens");
            let got = v.pread(fd, 0, 20_000).await.expect("reads");
            v.close(fd).await.expect("closes");
            let bytes: Vec<u8> = Slice::concat(&got);
            let nlink = v.stat("d/file").await.expect("stat").nlink;
            let root = v.read_dir("/").await.expect("lists");
            let long = root.iter().find(|e| e.name == b"long").expect("there").ino;
            (bytes, nlink, v.fs().read_link(long).await.expect("a link"))
        });
        let mut expected = Slice::pattern(1, 0, 10_000).to_vec();
        expected[5_000..5_003].copy_from_slice(&Slice::pattern(2, 0, 3).to_vec());
        assert_eq!(bytes, expected);
        assert_eq!(nlink, 2);
        assert_eq!(long, "x".repeat(200).into_bytes());
        w.unmount(&vfs);
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
}

/// A seeded program of file operations, and the same on a map in memory; every answer must be
/// equal.
#[test]
fn a_random_program_gives_what_a_model_gives_and_leaves_a_clean_image() {
    for (seed, era, block_size, nodelalloc) in [
        (1, "3.4", 4096, false),
        (2, "3.8", 1024, false),
        (3, "4.6", 4096, true),
        (4, "4.6", 1024, false),
    ] {
        let mut setup = Setup::new(era);
        setup.block_size = block_size;
        setup.nodelalloc = nodelalloc;
        setup.seed = seed;
        if seed == 4 {
            setup.features = Features::today();
        }
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let model = w.run(async move { program(&v, seed).await });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, &format!("seed {seed}"));
        let image = w.medium();
        drop(vfs);
        w.end();
        let w = World::with_image(&setup, &image);
        let vfs = w.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        w.run(async move {
            for (name, bytes) in &model {
                let fd = v.open(name, OpenFlags::READ, 0).await.expect("there");
                let got = v.pread(fd, 0, 1 << 30).await.expect("reads");
                let got = Slice::concat(&got);
                v.close(fd).await.expect("closes");
                assert!(got == *bytes, "{name}: {} bytes, expected {}", got.len(), bytes.len());
            }
        });
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
}

async fn program(v: &wp_vfs::Vfs, seed: u64) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut rng = Rng::stream(seed, "program");
    let mut model: std::collections::BTreeMap<String, Vec<u8>> = Default::default();
    for d in 0..3 {
        v.mkdir(&format!("d{d}"), 0o755).await.expect("makes a directory");
    }
    for step in 0..600u64 {
        let name = format!("d{}/f{}", rng.below(3), rng.below(25));
        match rng.below(12) {
            0..=4 => {
                let at = rng.below(60_000);
                let len = 1 + rng.below(20_000) as u32;
                let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
                let data = Slice::pattern(step, 0, len);
                assert_eq!(v.pwrite(fd, at, std::slice::from_ref(&data)).await, Ok(u64::from(len)));
                if rng.below(4) == 0 {
                    v.fsync(fd).await.expect("syncs");
                }
                v.close(fd).await.expect("closes");
                let file = model.entry(name).or_default();
                let end = at as usize + len as usize;
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[at as usize..end].copy_from_slice(&data.to_vec());
            }
            5 => {
                let got = v.unlink(&name).await;
                assert_eq!(got.is_ok(), model.remove(&name).is_some(), "{name}: {got:?}");
            }
            6..=7 => {
                let size = rng.below(80_000);
                let got = v.truncate(&name, size).await;
                match model.get_mut(&name) {
                    Some(f) => {
                        got.expect("truncates");
                        f.resize(size as usize, 0);
                    }
                    None => assert_eq!(got, Err(FsError::NotFound)),
                }
            }
            8 => {
                let to = format!("d{}/f{}", rng.below(3), rng.below(25));
                let got = v.rename(&name, &to).await;
                if model.contains_key(&name) {
                    got.expect("renames");
                    let f = model.remove(&name).expect("it is there");
                    model.insert(to, f);
                } else {
                    assert_eq!(got, Err(FsError::NotFound));
                }
            }
            9 => v.rt().sleep(wp_base::Span::millis(rng.below(9_000))).await,
            10 => v.sync().await.expect("syncs"),
            _ => {
                if let Some(f) = model.get(&name) {
                    let fd = v.open(&name, OpenFlags::READ, 0).await.expect("there");
                    let got = v.pread(fd, 0, 1 << 30).await.expect("reads");
                    let got = Slice::concat(&got);
                    v.close(fd).await.expect("closes");
                    assert!(
                        got == *f,
                        "step {step}, {name}: {} bytes, expected {}",
                        got.len(),
                        f.len()
                    );
                }
            }
        }
    }
    model
}

#[test]
fn a_full_file_system_says_so_and_loses_nothing() {
    let mut setup = Setup::new("4.6");
    setup.mib = 16;
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    let written = w.run(async move {
        let keep = v.open("keep", OpenFlags::CREATE, 0o644).await.expect("opens");
        v.pwrite(keep, 0, &[Slice::pattern(1, 0, 8192)]).await.expect("writes");
        v.fsync(keep).await.expect("syncs");
        let fd = v.open("big", OpenFlags::CREATE, 0o644).await.expect("opens");
        let mut at = 0u64;
        loop {
            match v.pwrite(fd, at, &[Slice::pattern(2, at, 65_536)]).await {
                Ok(n) if n > 0 => at += n,
                Ok(_) => panic!("a write of nothing"),
                Err(e) => {
                    assert_eq!(e, FsError::NoSpace);
                    break;
                }
            }
        }
        v.fsync(fd).await.expect("what was accepted can be written");
        let got: Vec<u8> = Slice::concat(&v.pread(keep, 0, 9000).await.expect("reads"));
        assert_eq!(got, Slice::pattern(1, 0, 8192).to_vec());
        v.close(keep).await.expect("closes");
        v.close(fd).await.expect("closes");
        v.unlink("big").await.expect("removes");
        let fd = v.open("again", OpenFlags::CREATE, 0o644).await.expect("opens");
        let n =
            v.pwrite(fd, 0, &[Slice::pattern(3, 0, 1 << 20)]).await.expect("there is room again");
        assert_eq!(n, 1 << 20);
        v.close(fd).await.expect("closes");
        at
    });
    assert!(written > 8 << 20, "only {written} bytes fit");
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, "full");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}
