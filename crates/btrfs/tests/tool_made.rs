//! Images that other programs made: what passes `btrfs check` passes ours, and is listed.

use crate::host;
use crate::judge;
use crate::skip::skipped;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use wp_base::{FsError, FsResult};
use wp_btrfs::check::{CheckOptions, Finding, check};
use wp_btrfs::image::{Image, InspectOptions, list};
use wp_medium::View;
use wp_vfs::finding::Severity;

/// An image in a file.
struct OnDisk(File);

impl View for OnDisk {
    fn len_bytes(&self) -> u64 {
        self.0.metadata().expect("there").len()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.0.read_exact_at(out, at).map_err(|_| FsError::Io)
    }
}

/// What our check has against an image, but for what does no harm.
fn ours(image: &OnDisk) -> Vec<Finding> {
    let report = check(image, &CheckOptions { contents: true, ..CheckOptions::default() });
    let findings = report.expect("it is read").findings;
    findings.into_iter().filter(|f| f.severity == Severity::Error).collect()
}

/// A tree with a file of each sort, names of one inode in two directories, and links of 1 byte and
/// of many.
fn tree(dir: &Path) {
    let at = |name: &str| dir.join(name);
    for below in ["sub", "many"] {
        std::fs::create_dir_all(at(below)).expect("made");
    }
    std::fs::write(at("a"), b"inline").expect("written");
    std::fs::write(at("large"), vec![7; 300_000]).expect("written");
    std::fs::write(at("empty"), b"").expect("written");
    (0..200).for_each(|n| std::fs::write(at(&format!("many/{n}")), b"x").expect("written"));
    for (n, target) in ["a", "sub/hard", &"t".repeat(1000)].iter().enumerate() {
        std::os::unix::fs::symlink(target, at(&format!("link-{n}"))).expect("made");
    }
    std::fs::hard_link(at("a"), at("sub/hard")).expect("made");
    std::fs::hard_link(at("a"), at("second")).expect("made");
    File::create(at("sparse")).expect("made").set_len(1 << 20).expect("grown");
}

#[test]
fn what_mkfs_btrfs_copies_into_an_image_is_sound_and_listed() {
    if !judge::is_here("btrfs of mkfs.btrfs --rootdir") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (root, path) = (dir.path().join("tree"), dir.path().join("image"));
    std::fs::create_dir(&root).expect("made");
    tree(&root);
    let ways: [&[&str]; 6] = [
        &[],
        &["--shrink"],
        &["-n", "4096"],
        &["-m", "single", "-d", "single"],
        &["-O", "^no-holes"],
        &["-R", "^free-space-tree"],
    ];
    for how in ways {
        File::create(&path).expect("made").set_len(256 << 20).expect("grown");
        let mut mkfs = Command::new("mkfs.btrfs");
        mkfs.args(["-q", "-f"]).args(how).arg("--rootdir").arg(&root).arg(&path);
        assert!(mkfs.output().expect("runs").status.success(), "{how:?}");
        assert_eq!(judge::judge(&path, &[]), "", "{how:?}");
        let image = OnDisk(File::open(&path).expect("opens"));
        assert_eq!(ours(&image), [], "{how:?}");
        let opened = Image::open(&image).expect("opens");
        let (files, findings) = list(&opened, &InspectOptions::default());
        assert!(findings.is_empty(), "{how:?}: {findings:?}");
        assert_eq!(files.len(), 2 + 200 + 3 + 3 + 2 + 1, "{how:?}");
        let target = |name: &[u8]| {
            let link = files.iter().find(|f| f.path == name).expect("listed");
            link.target.clone().expect("a link")
        };
        assert_eq!(target(b"link-0"), b"a");
        assert_eq!(target(b"link-2"), [b't'; 1000]);
    }
}

/// Runs a program; did it do what it was to?
fn did(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|o| o.status.success())
}

#[test]
fn the_first_space_cache_of_linux_has_users() {
    let what = "btrfs with the first space cache";
    if !judge::is_here(what) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("image"), dir.path().join("mounted"));
    // The cache is written of block groups of 100 MB and more.
    File::create(&image).expect("made").set_len(3 << 30).expect("grown");
    std::fs::create_dir(&at).expect("made");
    let (image, at) = (image.to_str().expect("text"), at.to_str().expect("text"));
    assert!(did("mkfs.btrfs", &["-q", "-f", "-R", "^free-space-tree", image]));
    if !did("mount", &["-t", "btrfs", "-o", "loop,space_cache=v1", image, at]) {
        skipped(what, "this user or kernel mounts no btrfs");
        return;
    }
    for n in 0..3 {
        std::fs::write(format!("{at}/f{n}"), vec![n; 100_000]).expect("written");
        assert!(did("sync", &["-f", at]));
    }
    host::unmount(at);
    assert_eq!(judge::judge(Path::new(image), &[]), "");
    let image = OnDisk(File::open(image).expect("opens"));
    assert_eq!(ours(&image), []);
}
