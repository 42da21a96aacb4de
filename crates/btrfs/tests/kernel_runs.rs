//! Random calls on the real kernel, cut off; what it found after its next mount must be what we
//! find.
//!
//! `WRITEPATH_BTRFS_RUNS` names a folder that `tests/kernel_runs/run.sh` filled, in a guest.

use crate::judge;
use crate::skip;
use std::collections::BTreeMap;
use std::path::Path;

use crate::images::Bytes;
use wp_base::FsError;
use wp_btrfs::check::{CheckOptions, check};
use wp_btrfs::image::{Image, InspectOptions, list, survey};
use wp_btrfs::replay::{Overgrown, RecoverOptions, recover};
use wp_medium::{Overlay, View};
use wp_vfs::FileInfo;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What the guest says of a file, by path: a line, and a hash.
fn theirs(folder: &Path, seed: u64) -> BTreeMap<String, String> {
    let read = |name| std::fs::read_to_string(folder.join(format!("{name}-{seed}.txt")));
    let mut hashes = BTreeMap::new();
    for line in read("sha").unwrap_or_default().lines() {
        let (hash, path) = line.split_once("  ./").expect("a hash");
        hashes.insert(path.to_owned(), hash.to_owned());
    }
    let mut out = BTreeMap::new();
    for line in read("list").expect("a listing").lines() {
        let mut parts = line.split('\t');
        assert_eq!(parts.next(), Some("F"), "seed {seed}: {line}");
        let path = parts.next().expect("a path").to_owned();
        let mut fixed: Vec<&str> = parts.by_ref().take(6).collect();
        let mut xattrs: Vec<&str> = parts.collect();
        xattrs.sort_unstable();
        fixed.extend(xattrs);
        let hash = hashes.get(&path).map_or("", String::as_str);
        out.insert(path, format!("{} {hash}", fixed.join("|")));
    }
    out
}

fn ours(f: &FileInfo) -> String {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let (bits, is_dir) = match f.kind.word() {
        "dir" => (0o040_000, true),
        "symlink" => (0o120_000, false),
        _ => (0o100_000, false),
    };
    let mut parts = vec![
        format!("{:o}", bits | f.mode),
        f.nlink.to_string(),
        f.ino.to_string(),
        if is_dir { 0 } else { f.size }.to_string(),
        if is_dir { 0 } else { f.sectors }.to_string(),
        f.target.as_deref().map_or(String::new(), text),
    ];
    parts.extend(f.xattrs.iter().map(|x| format!("{}={}", text(&x.name), hex(&x.value))));
    format!("{} {}", parts.join("|"), f.sha256.map_or(String::new(), |d| d.to_string()))
}

#[test]
fn recovery_finds_what_the_real_kernel_finds() {
    // A few runs are here: names deleted and replaced, links.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel_runs");
    compare(&own);
    match std::env::var_os("WRITEPATH_BTRFS_RUNS") {
        Some(folder) => compare(Path::new(&folder)),
        None => {
            skip::skipped("btrfs recovery of more calls", "WRITEPATH_BTRFS_RUNS names no folder");
        }
    }
}

fn compare(folder: &Path) {
    let mut runs: Vec<u64> = std::fs::read_dir(folder)
        .expect("a folder")
        .filter_map(|e| {
            let name = e.expect("an entry").file_name().into_string().ok()?;
            name.strip_prefix("list-")?.strip_suffix(".txt")?.parse().ok()
        })
        .collect();
    runs.sort_unstable();
    let (mut replayed, mut wrong) = (0, Vec::new());
    for seed in &runs {
        let image = folder.join(format!("crash-{seed}.img"));
        let bytes = std::fs::read(image).unwrap_or_else(|_| {
            let packed = folder.join(format!("crash-{seed}.img.zst"));
            let packed = std::fs::read(packed).expect("an image");
            zstd::decode_all(packed.as_slice()).expect("a whole archive")
        });
        let bytes = Bytes(bytes);
        let overlay = Overlay::new(&bytes);
        let done = match recover(&overlay, &RecoverOptions::default()) {
            Ok(done) => done,
            Err(e) => {
                wrong.push(format!("seed {seed}: {e}"));
                continue;
            }
        };
        replayed += u32::from(done.is_needed);
        assert_eq!(done.panics, 0, "seed {seed}: the kernel mounted it");
        println!("seed {seed}: {done}");
        let image = Image::open(&overlay).expect("it opens");
        let (files, findings) = list(&image, &InspectOptions::default());
        assert_eq!(findings, [], "seed {seed}");
        let text = |f: &FileInfo| (String::from_utf8_lossy(&f.path).into_owned(), ours(f));
        let own: BTreeMap<String, String> = files.iter().map(text).collect();
        let right = theirs(folder, *seed);
        for path in own.keys().chain(right.keys()) {
            if own.get(path) != right.get(path) {
                let (a, b) = (own.get(path), right.get(path));
                wrong.push(format!("seed {seed}: {path}:\n  ours   {a:?}\n  theirs {b:?}"));
            }
        }
        for view in [&bytes as &dyn View, &overlay] {
            let options = CheckOptions { recover: None, contents: true };
            let report = check(view, &options).expect("can be checked");
            if !report.is_clean() {
                wrong.push(format!("seed {seed}: {:#?}", report.findings));
            }
        }
        if judge::is_here("btrfs recovered runs") {
            let mut all = bytes.0.clone();
            overlay.each_page(|n, page| {
                let at = n as usize * 4096;
                all[at..at + 4096].copy_from_slice(page.bytes());
            });
            let file = tempfile::NamedTempFile::new().expect("a scratch file");
            std::fs::write(file.path(), all).expect("room");
            let said = judge::judge(file.path(), &["--check-data-csum"]);
            if !said.is_empty() {
                wrong.push(format!("seed {seed}: btrfs check: {said}"));
            }
        }
    }
    println!("{} runs, {replayed} with a log", runs.len());
    assert!(replayed > 0);
    wrong.dedup();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Linux 6.12.117 wrote these logs, for files with many names in one directory, and its next mount
/// ended in `Kernel panic - not syncing: BUG!`, in `btrfs_extend_item` below `overwrite_item`,
/// `add_inode_ref`: one by random calls, one with the defaults of mkfs.btrfs: a file with 42 more
/// names of 182 bytes, sync, 30 more, fsync. Here the replay goes through; that the kernel's does
/// not is told.
#[test]
fn a_log_that_the_kernel_panics_on_is_told() {
    for name in ["panic-2226", "panic-default"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel_runs");
        let packed = std::fs::read(folder.join(format!("{name}.img.zst"))).expect("an image");
        let bytes = Bytes(zstd::decode_all(packed.as_slice()).expect("a whole archive"));
        let overlay = Overlay::new(&bytes);
        let done = recover(&overlay, &RecoverOptions::default()).expect("recovers");
        assert_eq!(done.panics, 1, "{name}: {done}");
        let options = CheckOptions { recover: None, contents: true };
        let report = check(&overlay, &options).expect("can be checked");
        assert!(report.is_clean(), "{name}: {:#?}", report.findings);
        // Who judges states after a crash takes it as one that does not mount.
        let kernel = RecoverOptions { overgrown: Overgrown::Panic, ..RecoverOptions::default() };
        let what = survey(&Overlay::new(&bytes), &kernel);
        assert!(matches!(what, Err(FsError::Corrupt(_))), "{name}: {what:?}");
    }
}
