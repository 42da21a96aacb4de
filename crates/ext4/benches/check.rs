//! Our check beside `e2fsck -fn` on a populated image of 1 GiB, in turns in one run:
//! `cargo bench -p wp-ext4 --bench check [-- IMAGE]`. Needs mke2fs and e2fsck.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use wp_base::{FsError, FsResult};
use wp_ext4::check::{CheckOptions, check};
use wp_medium::View;

/// How often each is run; the best counts.
const RUNS: u32 = 7;

struct OnDisk(File, u64);

impl View for OnDisk {
    fn len_bytes(&self) -> u64 {
        self.1
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.0.read_exact_at(out, at).map_err(|_| FsError::Io)
    }
}

/// 20,000 small files in 200 directories, 300 larger ones, and one directory of 5,000 names.
fn made(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    for d in 0..200 {
        let d = tree.join(format!("dir-{d}"));
        std::fs::create_dir_all(&d).expect("made");
        for n in 0..100usize {
            std::fs::write(d.join(format!("file-{n}")), vec![7; n * 97]).expect("written");
        }
    }
    let big = tree.join("big");
    std::fs::create_dir_all(&big).expect("made");
    for n in 0..300usize {
        std::fs::write(big.join(format!("file-{n}")), vec![9; n * 9001]).expect("written");
    }
    let many = tree.join("many");
    std::fs::create_dir_all(&many).expect("made");
    for n in 0..5000 {
        std::fs::write(many.join(format!("some-name-{n}")), []).expect("written");
    }
    let image = dir.join("image");
    File::create(&image).and_then(|f| f.set_len(1 << 30)).expect("made");
    let out = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-d"])
        .args([&tree, &image])
        .output()
        .expect("mke2fs runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Hash trees, which mke2fs does not make.
    Command::new("e2fsck").arg("-fyD").arg(&image).output().expect("e2fsck runs");
    image
}

fn main() {
    // Cargo passes `--bench`.
    let given = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let dir = tempfile::tempdir().expect("made");
    let image = given.map(PathBuf::from).unwrap_or_else(|| made(dir.path()));
    let file = File::open(&image).expect("opens");
    let len = file.metadata().expect("has a length").len();
    let view = OnDisk(file, len);
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        let start = Instant::now();
        let report = check(&view, &CheckOptions::default()).expect("can be checked");
        ours = ours.min(start.elapsed());
        assert!(report.is_clean_as_it_stands(), "{:?}", report.findings);
        let start = Instant::now();
        let out = Command::new("e2fsck").arg("-fn").arg(&image).output().expect("runs");
        theirs = theirs.min(start.elapsed());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
    println!(
        "ours {} ms, e2fsck -fn {} ms (best of {RUNS}, in turns): {:.2} of its time",
        ours.as_millis(),
        theirs.as_millis(),
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
}
