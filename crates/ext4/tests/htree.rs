//! Hash-tree directories against a set of names, e2fsck, debugfs and the host's kernel.

use crate::host;
use crate::support;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives, has, save};
use wp_base::{FsError, Rng};
use wp_ext4::disk::hash::DirHash;
use wp_ext4::mkfs::Features;
use wp_medium::Medium;
use wp_vfs::{OpenFlags, Vfs};

type Names = BTreeSet<String>;

/// The images that differ in what a tree looks like.
fn setups() -> Vec<(String, Setup)> {
    let mut out = Vec::new();
    for (block_size, era) in [(1024, "3.4"), (4096, "4.6")] {
        for (features, sums) in [(Features::era_2012(), "no"), (Features::today(), "with")] {
            let mut setup = Setup::new(era);
            setup.block_size = block_size;
            setup.features = features;
            out.push((format!("{block_size} bytes, {sums} metadata_csum"), setup));
        }
    }
    out
}

/// Names of many lengths; with 1 KiB blocks some thousands need two levels.
fn name(rng: &mut Rng, n: u64) -> String {
    let len = 1 + rng.below(120) as usize;
    let letters = "abcdefghij".repeat(13);
    format!("{n}-{}{}", &letters[..len], if n.is_multiple_of(5) { "ä" } else { "" })
}

/// Makes a directory with `count` links to one file, and a model of it.
async fn fill(v: &Vfs, count: u64, rng: &mut Rng) -> Names {
    v.mkdir("d", 0o755).await.expect("makes a directory");
    let fd = v.open("file", OpenFlags::CREATE, 0o644).await.expect("opens");
    v.close(fd).await.expect("closes");
    let mut names = Names::new();
    for n in 0..count {
        let name = name(rng, n);
        v.link("file", &format!("d/{name}")).await.expect("adds a name");
        names.insert(name);
    }
    names
}

async fn names_in(v: &Vfs, dir: &str) -> Names {
    let list = v.read_dir(dir).await.expect("lists");
    let names: Names = list.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
    assert_eq!(names.len(), list.len(), "a name is listed twice");
    names
}

/// Adds, removes and renames by chance, on a directory and on its model.
async fn churn(v: &Vfs, names: &mut Names, steps: u64, rng: &mut Rng) {
    let pick = |names: &Names, rng: &mut Rng| {
        names.iter().nth(rng.below(names.len() as u64) as usize).cloned()
    };
    let first = 1_000_000 * (1 + rng.below(1_000_000));
    for step in first..first + steps {
        match rng.below(4) {
            0 | 1 => {
                let name = name(rng, step);
                v.link("file", &format!("d/{name}")).await.expect("adds");
                names.insert(name);
            }
            2 => {
                let Some(name) = pick(names, rng) else { continue };
                v.unlink(&format!("d/{name}")).await.expect("removes");
                names.remove(&name);
            }
            _ => {
                let Some(from) = pick(names, rng) else { continue };
                let to = name(rng, step);
                v.rename(&format!("d/{from}"), &format!("d/{to}")).await.expect("renames");
                names.remove(&from);
                names.insert(to);
            }
        }
    }
}

#[test]
fn thousands_of_names_are_found_again_and_e2fsck_agrees_with_their_order() {
    for (what, setup) in setups() {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let names = w.run(async move {
            let mut rng = Rng::stream(1, "names");
            let mut names = fill(&v, 4000, &mut rng).await;
            churn(&v, &mut names, 2000, &mut rng).await;
            assert_eq!(v.link("file", "d/.").await, Err(FsError::Exists));
            for name in names.iter().step_by(7) {
                assert_eq!(v.link("file", &format!("d/{name}")).await, Err(FsError::Exists));
            }
            assert_eq!(v.stat("d/not there").await.map(|_| ()), Err(FsError::NotFound));
            assert_eq!(v.rmdir("d").await, Err(FsError::NotEmpty));
            names
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, &what);
        let image = w.medium();
        drop(vfs);
        w.end();

        let w = World::with_image(&setup, &image);
        let vfs = w.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        w.run(async move {
            assert_eq!(names_in(&v, "d").await, names);
            for name in &names {
                v.stat(&format!("d/{name}")).await.expect("is found");
            }
            // Empty, and gone: nothing is left that belongs to it.
            v.mkdir("other", 0o755).await.expect("makes a directory");
            v.rename("d", "other/d").await.expect("moves, '..' with it");
            for name in &names {
                v.unlink(&format!("other/d/{name}")).await.expect("removes");
            }
            v.rmdir("other/d").await.expect("is empty");
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, &what);
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn a_directory_that_moves_keeps_a_sound_root() {
    for (what, setup) in setups() {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            let names = fill(&v, 400, &mut Rng::stream(2, "names")).await;
            v.mkdir("other", 0o755).await.expect("makes a directory");
            v.rename("d", "other/d").await.expect("moves");
            assert_eq!(names_in(&v, "other/d").await, names);
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, &what);
        drop(vfs);
        w.end();
    }
}

/// Every version and sign of the hash, chosen by the super block.
#[test]
fn e2fsck_agrees_with_every_hash_version_and_both_signs() {
    let setup = Setup { block_size: 1024, ..Setup::new("4.6") };
    for version in 0..3u8 {
        for sign in [1u8, 2] {
            let mut image = setup.image();
            // s_def_hash_version and s_flags; without metadata_csum nothing seals them.
            for (at, byte) in [(1024 + 0xFC, version), (1024 + 0x160, sign)] {
                image.write_bytes(at, &[byte]);
            }
            let w = World::with_image(&setup, &image);
            let vfs = w.mount(&setup).expect("mounts");
            let v = vfs.clone();
            w.run(async move {
                let names = fill(&v, 700, &mut Rng::stream(3, "names")).await;
                for name in &names {
                    v.stat(&format!("d/{name}")).await.expect("is found");
                }
            });
            w.unmount(&vfs);
            assert_e2fsck_clean(&w.medium(), setup.mib, &format!("hash {version}, sign {sign}"));
            drop(vfs);
            w.end();
        }
    }
}

#[test]
fn names_hash_as_debugfs_hashes_them() {
    if !has("debugfs", "names hash as debugfs hashes them") {
        return;
    }
    let mut rng = Rng::stream(4, "names");
    for round in 0..12u64 {
        let seed: [u8; 16] = std::array::from_fn(|_| rng.below(256) as u8);
        let hex: Vec<String> = seed.iter().map(|b| format!("{b:02x}")).collect();
        let uuid = [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]]
            .map(|part| part.concat())
            .join("-");
        let (words, _) = seed.as_chunks::<4>();
        let words: [u32; 4] = std::array::from_fn(|i| u32::from_le_bytes(words[i]));
        for (version, word) in [(0, "legacy"), (1, "half_md4"), (2, "tea")] {
            let name = name(&mut rng, round);
            let ask = format!("dx_hash -h {word} -s {uuid} {name}");
            let out = Command::new("debugfs").args(["-R", &ask]).output().expect("runs");
            let ours = DirHash::new(version, true, words).expect("a version").hash(name.as_bytes());
            assert_eq!(
                String::from_utf8_lossy(&out.stdout).trim(),
                format!("Hash of {name} is {:#x} (minor {:#x})", ours.major, ours.minor)
            );
        }
    }
}

#[test]
fn a_tree_of_two_full_levels_takes_no_more_and_stays_sound() {
    let mut setup = Setup::new("4.6");
    setup.block_size = 1024;
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    let count = w.run(async move {
        v.mkdir("d", 0o755).await.expect("makes a directory");
        let fd = v.open("file", OpenFlags::CREATE, 0o644).await.expect("opens");
        v.close(fd).await.expect("closes");
        for n in 0..64_000u64 {
            // The longest names: three fill a block.
            match v.link("file", &format!("d/{n:0>250}")).await {
                Ok(()) => {}
                Err(e) => {
                    assert_eq!(e, FsError::NoSpace);
                    v.link("file", "beside").await.expect("the disk has room");
                    assert_eq!(names_in(&v, "d").await.len() as u64, n);
                    v.unlink(&format!("d/{:0>250}", n / 2)).await.expect("removes");
                    return n;
                }
            }
        }
        panic!("the tree holds too many names");
    });
    assert!(count > 10_000, "only {count} names");
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, "two full levels");
    drop(vfs);
    w.end();
}

#[test]
fn a_full_disk_stops_a_tree_anywhere_and_leaves_it_sound() {
    for mib in [8, 9] {
        let mut setup = Setup::new("4.6");
        (setup.block_size, setup.mib) = (1024, mib);
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            v.mkdir("d", 0o755).await.expect("makes a directory");
            let fd = v.open("file", OpenFlags::CREATE, 0o644).await.expect("opens");
            v.close(fd).await.expect("closes");
            let mut refused = 0;
            let mut rng = Rng::stream(mib, "full");
            let mut there = Names::new();
            for n in 0..60_000u64 {
                let name = format!("{n:0>width$}", width = 100 + rng.below(140) as usize);
                match v.link("file", &format!("d/{name}")).await {
                    Ok(()) => drop(there.insert(name)),
                    Err(e) => {
                        assert_eq!(e, FsError::NoSpace);
                        refused += 1;
                        if refused > 40 {
                            break;
                        }
                    }
                }
            }
            assert!(refused > 40, "the disk did not fill");
            assert_eq!(names_in(&v, "d").await, there);
        });
        w.unmount(&vfs);
        assert_e2fsck_clean(&w.medium(), setup.mib, "a full disk");
        drop(vfs);
        w.end();
    }
}

fn run(tool: &str, args: &[&str]) -> bool {
    Command::new(tool).args(args).output().is_ok_and(|o| o.status.success())
}

/// Runs `with` on the image, mounted by the host's kernel; `None` where that cannot be.
fn in_the_kernel<T>(
    medium: &Medium,
    mib: u64,
    with: impl FnOnce(&Path) -> T,
) -> Option<(T, Medium)> {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&at).expect("made");
    save(medium, mib, &image);
    let (i, m) = (image.display().to_string(), at.display().to_string());
    if !run("mount", &["-o", "loop", "-t", "ext4", &i, &m]) {
        return None;
    }
    let out = with(&at);
    host::unmount(&m);
    // With metadata_csum the kernel has given the journal checksums, which our jbd2 does not write.
    for feature in ["^has_journal", "has_journal"] {
        assert!(run("tune2fs", &["-O", feature, &i]), "a new journal");
    }
    let mut medium = Medium::new();
    let bytes = std::fs::read(&image).expect("readable");
    for (n, part) in bytes.chunks(1 << 20).enumerate() {
        if part.iter().any(|b| *b != 0) {
            medium.write_bytes((n as u64) << 20, part);
        }
    }
    Some((out, medium))
}

fn kernel_names(dir: &Path) -> Names {
    let list = std::fs::read_dir(dir).expect("lists");
    list.map(|e| e.expect("lists").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn the_host_kernel_and_we_change_one_directory_in_turn() {
    let check = "host kernel uses our hash trees";
    if !has("mke2fs", check) {
        return;
    }
    for (what, setup) in setups() {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let mut names = w.run(async move { fill(&v, 2500, &mut Rng::stream(5, "names")).await });
        w.unmount(&vfs);
        let mut image = w.medium();
        drop(vfs);
        w.end();
        for turn in 0..2u64 {
            let before = names.clone();
            let theirs = in_the_kernel(&image, setup.mib, |at| {
                let d = at.join("d");
                assert_eq!(kernel_names(&d), before, "{what}");
                for name in &before {
                    assert!(d.join(name).exists(), "{what}: the kernel finds {name}");
                }
                let mut now = before.clone();
                for (i, name) in before.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
                    if i % 2 == 0 {
                        std::fs::remove_file(d.join(name)).expect("removes");
                        now.remove(name);
                    } else {
                        let to = format!("kernel-{turn}-{i}-{}", "x".repeat(i % 90));
                        std::fs::hard_link(at.join("file"), d.join(&to)).expect("adds");
                        now.insert(to);
                    }
                }
                now
            });
            let Some((now, medium)) = theirs else {
                support::skip(check, "this host cannot mount an ext4 image through a loop device");
                return;
            };
            (names, image) = (now, medium);
            assert_e2fsck_clean(&image, setup.mib, &format!("{what}, after the kernel"));
            let w = World::with_image(&setup, &image);
            let vfs = w.mount(&setup).expect("mounts");
            let v = vfs.clone();
            names = w.run(async move {
                assert_eq!(names_in(&v, "d").await, names);
                for name in &names {
                    v.stat(&format!("d/{name}")).await.expect("is found");
                }
                let mut names = names;
                churn(&v, &mut names, 800, &mut Rng::stream(6 + turn, "names")).await;
                names
            });
            w.unmount(&vfs);
            image = w.medium();
            assert_e2fsck_clean(&image, setup.mib, &format!("{what}, after us"));
            drop(vfs);
            w.end();
        }
    }
}
