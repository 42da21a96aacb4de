//! `recover`: an image is recovered, or as it was, or can be recovered again; a copy is whole, or
//! not there.
//!
//! `testdata/crashed-ext4.img.zst`: 64 MiB of our ext4 at a power failure, 49 files, all in the
//! log.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_writepath");
const CRASHED: &[u8] = include_bytes!("testdata/crashed-ext4.img.zst");
const FILES: usize = 49;
const PAGE: usize = 4096;

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn writepath(args: &[&str]) -> (i32, String, String) {
    answer(Command::new(PROGRAM).args(args).output())
}

fn answer(out: std::io::Result<Output>) -> (i32, String, String) {
    let out = out.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (out.status.code().unwrap_or(-1), text(out.stdout), text(out.stderr))
}

/// Writes the crashed image, holes and all.
fn crashed(path: &Path) -> Vec<u8> {
    let bytes = zstd::decode_all(CRASHED).expect("it was packed");
    let file = std::fs::File::create(path).expect("made");
    file.set_len(bytes.len() as u64).expect("sparse");
    for (n, page) in bytes.chunks(PAGE).enumerate().filter(|(_, p)| p.iter().any(|b| *b != 0)) {
        file.write_all_at(page, (n * PAGE) as u64).expect("written");
    }
    bytes
}

/// Path, length and hash of every file.
fn files(path: &Path) -> BTreeSet<String> {
    let (code, out, err) = writepath(&["inspect", "--hash", "--json", text(path)]);
    assert_eq!(code, 0, "{out}{err}");
    let doc: serde_json::Value = serde_json::from_str(&out).expect("a document");
    let line = |f: &serde_json::Value| format!("{} {} {}", f["path"], f["size"], f["sha256"]);
    doc["files"].as_array().expect("files").iter().map(line).collect()
}

fn listed(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<std::fs::DirEntry>| {
        e.expect("listed").file_name().into_string().expect("text")
    };
    let mut all: Vec<String> = std::fs::read_dir(dir).expect("a directory").map(name).collect();
    all.sort();
    all
}

#[test]
fn killed_at_any_page_of_the_file_it_recovers_again_to_the_same_files() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        wp_machine::testing::skipped("killed at any page", "prlimit is missing");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let [image, whole] = ["image", "whole"].map(|n| dir.path().join(n));
    let before = crashed(&image);
    assert_eq!(writepath(&["recover", text(&image), "--to", text(&whole)]).0, 0);
    let want = files(&whole);
    assert_eq!(want.len(), FILES);
    let after = std::fs::read(&whole).expect("there");
    let (old, new) = (before.chunks(PAGE), after.chunks(PAGE));
    let changed: Vec<usize> =
        old.zip(new).enumerate().filter(|(_, (a, b))| a != b).map(|(n, _)| n).collect();
    assert!(changed.len() > 20, "{changed:?}");
    let mut killed = 0;
    for page in &changed {
        crashed(&image);
        // The host kills it where it writes behind that.
        let limit = format!("--fsize={}", page * PAGE);
        let ran = Command::new("prlimit").args([&limit, PROGRAM, "recover", text(&image)]).output();
        killed += usize::from(answer(ran).0 != 0);
        let (code, out, err) = writepath(&["recover", text(&image)]);
        assert_eq!(code, 0, "behind page {page}: {out}{err}");
        assert_eq!(files(&image), want, "behind page {page}");
    }
    assert_eq!(killed, changed.len(), "every limit was met");
}

/// A file system of the host that is full but for so many KiB.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Option<Tmpfs> {
        let dir = tempfile::tempdir().expect("a directory");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1400K", "recover", text(dir.path())])
            .output();
        mount.is_ok_and(|o| o.status.success()).then(|| Tmpfs(dir))
    }

    fn fill_but(&self, kib: u64) {
        let s = rustix::fs::statvfs(self.0.path()).expect("it is mounted");
        let room = s.f_bavail * s.f_frsize;
        let fill = room.saturating_sub(kib << 10) as usize;
        std::fs::write(self.0.path().join("fill"), vec![1; fill]).expect("there is room");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.path()).output());
    }
}

#[test]
fn a_full_disk_of_any_size_loses_nothing() {
    let Some(full) = Tmpfs::new() else {
        wp_machine::testing::skipped("a full disk of any size", "this user cannot mount a tmpfs");
        return;
    };
    let path = full.0.path().join("image");
    crashed(&path);
    let want = files(&path);
    assert_eq!(want.len(), FILES);
    let mut refused = 0;
    for kib in (0..=220).step_by(4) {
        for name in listed(full.0.path()) {
            std::fs::remove_file(full.0.path().join(name)).expect("gone");
        }
        let before = crashed(&path);
        full.fill_but(kib);
        let (code, out, err) = writepath(&["recover", text(&path)]);
        if code != 0 {
            refused += 1;
            assert_eq!(code, 74, "{kib} KiB: {out}{err}");
            assert!(err.contains("help: nothing was written"), "{kib} KiB: {err}");
            assert!(std::fs::read(&path).expect("there") == before, "{kib} KiB: as it was");
        }
        std::fs::remove_file(full.0.path().join("fill")).expect("gone");
        assert_eq!(writepath(&["recover", text(&path)]).0, 0, "{kib} KiB");
        assert_eq!(files(&path), want, "{kib} KiB");
    }
    assert!(refused > 5, "{refused} sizes were too small");
    // A copy needs room for itself; without it there is none, nor anything else.
    full.fill_but(40);
    let copy = full.0.path().join("copy");
    let (code, _, err) = writepath(&["recover", text(&path), "--to", text(&copy)]);
    assert_eq!(code, 74, "{err}");
    assert_eq!(listed(full.0.path()), ["fill", "image"]);
}

#[test]
fn a_copy_is_as_sparse_as_the_image_and_takes_no_name_that_is_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b, c] = ["a", "b", "c"].map(|n| dir.path().join(n));
    assert_eq!(writepath(&["mkfs", "ext4", text(&a), "--size", "2G"]).0, 0);
    assert_eq!(writepath(&["recover", text(&a), "--to", text(&b)]).0, 0);
    let blocks = |p: &Path| std::fs::metadata(p).expect("there").blocks();
    assert!(blocks(&b) <= blocks(&a) + 64, "{} and {} sectors", blocks(&a), blocks(&b));
    assert_eq!(std::fs::metadata(&b).expect("there").len(), 2 << 30);
    std::fs::write(&c, "mine").expect("written");
    let (code, _, err) = writepath(&["recover", text(&a), "--to", text(&c)]);
    assert_eq!((code, err.contains("c exists")), (2, true), "{err}");
    assert_eq!(std::fs::read(&c).expect("there"), b"mine");
    // What is no image is no copy either.
    let d = dir.path().join("d");
    assert_eq!(writepath(&["recover", text(&c), "--to", text(&d)]).0, 1);
    assert_eq!(listed(dir.path()), ["a", "b", "c"]);
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, _, err) = writepath(&["recover", text(dir.path())]);
    assert_eq!(code, 74, "{err}");
    assert!(err.contains("not a regular file and not a block device"), "{err}");
    assert!(err.contains("--to NEW"), "{err}");
}

#[test]
fn an_image_that_is_still_damaged_is_no_success() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    crashed(&path);
    assert_eq!(writepath(&["recover", text(&path)]).0, 0);
    // The first block of the first file's inode: whatever is written over it, its checksum fails.
    let found = writepath(&["inspect", "--json", text(&path)]).1;
    let doc: serde_json::Value = serde_json::from_str(&found).expect("a document");
    let file = doc["files"].as_array().expect("files").iter().find(|f| f["type"] == "file");
    let ino = file.expect("one")["ino"].as_u64().expect("a number");
    let bytes = std::fs::read(&path).expect("there");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    // `bg_inode_table_lo` of the first group, in blocks of 4 KiB behind the super block's.
    let at =
        u64::from(word(PAGE + 8)) * PAGE as u64 + (ino - 1) * u64::from(word(1024 + 88) & 0xFFFF);
    let image = std::fs::File::options().write(true).open(&path).expect("opens");
    image.write_all_at(&[0xA5; 24], at + 40).expect("written");
    let (code, out, err) = writepath(&["recover", text(&path)]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("still damaged, 1 finding\n  finding: /"), "{out}");
    let (code, out, _) = writepath(&["recover", "--json", text(&path)]);
    let doc: serde_json::Value = serde_json::from_str(&out).expect("a document");
    assert_eq!((code, &doc["ok"]), (1, &false.into()), "{doc}");
}

#[test]
fn every_file_system_is_read_by_the_newest_kernel_that_is_modelled() {
    let dir = tempfile::tempdir().expect("a directory");
    let known = [
        ("ext4", "3.3 to 6.18"),
        ("f2fs", "4.19 to 6.18"),
        ("btrfs", "5.15 to 7.1"),
        ("nilfs2", "5.10 to 6.12"),
    ];
    for (fs, range) in known {
        let [image, copy] = ["image", "copy"].map(|n| dir.path().join(format!("{fs}.{n}")));
        let (image, copy) = (text(&image), text(&copy));
        assert_eq!(writepath(&["mkfs", fs, image, "--size", "256M"]).0, 0);
        let verbs: [&[&str]; 3] =
            [&["inspect", image], &["fsck", "--recover", image], &["recover", image, "--to", copy]];
        for verb in verbs {
            let (code, out, err) = writepath(verb);
            assert_eq!(code, 0, "{verb:?}: {out}{err}");
            let (code, _, err) = writepath(&[verb, &["--era", "7.9"]].concat());
            assert_eq!(code, if verb[0] == "recover" { 2 } else { 3 }, "{verb:?}: {err}");
            if verb[0] != "recover" {
                let want = format!("error: {fs} has the rules of Linux {range}, not 7.9\n");
                assert!(err.starts_with(&want), "{verb:?}: {err}");
            }
        }
        std::fs::remove_file(copy).expect("gone");
        let (code, _, err) = writepath(&["recover", image, "--to", copy, "--era", "2.6"]);
        assert_eq!(code, 3, "{err}");
        assert!(!Path::new(copy).exists());
    }
}

#[test]
fn an_ext4_whose_journal_is_gone_is_refused_as_a_mount_refuses_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b] = ["a", "b"].map(|n| dir.path().join(n));
    assert_eq!(writepath(&["mkfs", "ext4", text(&a), "--size", "16M"]).0, 0);
    let cleared = Command::new("debugfs").args(["-w", "-R", "clri <8>"]).arg(&a).output();
    if !cleared.is_ok_and(|o| o.status.success()) {
        wp_machine::testing::skipped("an ext4 whose journal is gone", "debugfs is missing");
        return;
    }
    for verb in [&["inspect", text(&a)][..], &["recover", text(&a), "--to", text(&b)]] {
        let (code, stdout, err) = writepath(verb);
        let said = stdout + &err;
        let says = if verb[0] == "inspect" { "mountable by Linux" } else { "EUCLEAN" };
        assert_eq!((code, said.contains(says)), (1, true), "{verb:?}: {said}");
        assert!(said.contains("journal inode") || said.contains("ext4 inode"), "{verb:?}: {said}");
    }
    assert_eq!(listed(dir.path()), ["a"]);
}
