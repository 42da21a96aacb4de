//! Bad input: one clear error that names the place, the documented exit code, nothing lost.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

fn writepath(args: &[&str]) -> Answer {
    let out =
        Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).output().expect("it was built");
    Answer {
        code: out.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(out.stdout).expect("text"),
        stderr: String::from_utf8(out.stderr).expect("text"),
    }
}

fn image(dir: &Path, fs: &str) -> PathBuf {
    let path = dir.join("image");
    let a = writepath(&["mkfs", fs, path.to_str().expect("text"), "--size", "32M"]);
    assert_eq!(a.code, 0, "{}", a.stderr);
    path
}

fn patch(path: &Path, at: u64, change: impl FnOnce(&mut [u8; 4])) {
    let f = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("opens");
    let mut b = [0u8; 4];
    f.read_exact_at(&mut b, at).expect("reads");
    change(&mut b);
    f.write_all_at(&b, at).expect("writes");
}

fn inspect(path: &Path) -> Answer {
    writepath(&["inspect", path.to_str().expect("text"), "--json"])
}

/// The error text of a `--json` answer, which must be one document.
fn error_of(a: &Answer) -> String {
    let doc: serde_json::Value = serde_json::from_str(&a.stdout).expect("one JSON document");
    assert_eq!(doc["ok"], false);
    doc["error"]["message"].as_str().expect("a message").to_owned()
}

#[test]
fn an_image_that_is_cut_off_is_named_with_the_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(dir.path(), "ext4,era=4.6");
    let before = std::fs::metadata(&path).expect("there").len();
    for keep in [1 << 20, 3000, 100, 0] {
        let cut = dir.path().join("cut");
        std::fs::copy(&path, &cut).expect("copied");
        std::fs::File::options().write(true).open(&cut).and_then(|f| f.set_len(keep)).expect("cut");
        let a = inspect(&cut);
        assert_eq!(a.code, 1, "{keep}: {}", a.stdout);
        // Of a part of the file system a mount says no; what is shorter is none.
        let is_none = keep < 2048;
        let text = if is_none { error_of(&a) } else { a.stdout.clone() };
        assert!(text.contains("cut"), "{keep}: {text}");
        assert_eq!(text.contains("\"mountable\""), !is_none, "{keep}: {text}");
    }
    assert_eq!(std::fs::metadata(&path).expect("there").len(), before);
}

#[test]
fn a_wrong_checksum_is_named_with_field_and_value() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(dir.path(), "ext4,era=6.18");
    // A byte of the volume name: the super block's checksum no longer fits.
    patch(&path, 1024 + 0x78, |b| b[0] ^= 0x55);
    let a = inspect(&path);
    assert_eq!(a.code, 1);
    let doc: serde_json::Value = serde_json::from_str(&a.stdout).expect("a document");
    assert_eq!(doc["mountable"]["answer"], "no");
    let text = doc["mountable"]["why"].as_str().expect("a reason");
    assert!(text.contains("s_checksum") && text.contains("byte 1024"), "{text}");
}

#[test]
fn an_unknown_feature_is_refused_by_name_or_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(dir.path(), "ext4,era=4.6");
    patch(&path, 1024 + 0x60, |b| b[3] |= 0x40);
    let a = inspect(&path);
    assert_eq!(a.code, 3, "{}", a.stdout);
    assert!(error_of(&a).contains("0x40000000"), "{}", a.stdout);
}

#[test]
fn options_that_cannot_be_are_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let out = out.to_str().expect("text");
    for (args, says) in [
        (&["run", "--fs", "ext4,nobarier"][..], "nobarrier"),
        (&["run", "--fs", "ext5"], "ext4"),
        (&["run", "--fs", "ext4,era=x"], "kernel version"),
        (&["run", "--fs", "ext4,era=2.6.32"], "runs as in Linux 3.3 to"),
        (&["crash", "--fs", "nilfs2,era=4.4"], "has the rules of Linux 5.10 to"),
        (&["crash", "--fs", "f2fs,era=4.9"], "has the rules of Linux 4.19 to"),
        (&["run", "--fs", "f2fs,era=3.9"], "runs as in Linux 3.10 to"),
        (&["crash", "--fs", "ext4,era=debian-1"], "neither a kernel version nor a distribution"),
        (&["crash", "--device", "ssd-129"], "error: no device called `ssd-129`"),
        (
            &["crash", "show", "seq-1", "3", "--elevator", "lift"],
            "error: no elevator called `lift`",
        ),
        (&["crash", "wild", "--atomic", "3"], "not a power of two"),
        (&["crash", "bug", "A3", "--minimise", "0"], "0 is not in 1.."),
        (&["kernel-lab", "--kernel", "none", "--loss", "x"], "use model or contract"),
        (&["kernel-lab", "--kernel", "none", "--run", " "], "--run: the command is empty"),
        (&["kernel-lab", "--run", "a", "--setup", ""], "--setup: the command is empty"),
        (&["kernel-lab", "--run", "a", "--guest-limit", "0s"], "must be more than 0"),
        (&["kernel-lab", "--run", "a", "--fs", "vfat"], "--fs vfat: not supported"),
        (&["kernel-lab", "--setup", "./app.sh"], "use check, take or build"),
        (&["kernel-lab", "--kernel", "none", "--device", "ssd-129"], "no device called `ssd-129`"),
        (&["kernel-lab", "--kernel", "none", "--cycles", "0"], "must be from 1 to 1000000"),
        (&["run", "--device", "ssd-129"], "ssd-128"),
        (&["run", "--device", "ssd-128,capacity_bytes=100"], "capacity_bytes"),
        (&["run", "--elevator", "lift"], "cfq"),
        (&["run", "--workload", "fsync-last,n=0"], "at least 1"),
        (&["run", "--workload", "fsync-last,case=none"], "alloc"),
        (&["run", "--cpu", "z80"], "i7-4770"),
        (&["run", "--partition-size", "12Q"], "unit"),
        (&["run", "--partition-size", "9999G"], "does not fit"),
        (&["run", "--device", "zn540"], "without zones"),
        (
            &["run", "--fs", "f2fs", "--device", "zn540", "--partition-start", "2048"],
            "begins with a zone",
        ),
        (&["reproduce", "no-such-paper"], "no-such-paper"),
        (&["list", "nothing"], "nothing"),
        (&["no-such-verb"], "no-such-verb"),
    ] {
        let mut all = args.to_vec();
        if args[0] == "run" || args[0] == "reproduce" {
            all.extend(["--out", out]);
        }
        let a = writepath(&all);
        assert_eq!(a.code, 2, "{args:?}: {} {}", a.stdout, a.stderr);
        assert!(a.stderr.contains(says), "{args:?}: {}", a.stderr);
        assert_eq!(a.stdout, "", "{args:?}: errors go to stderr");
    }
    assert!(!Path::new(out).exists(), "nothing ran, nothing was written");
}

#[test]
fn mkfs_does_not_overwrite_and_says_what_cannot_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(dir.path(), "ext4,era=3.4");
    let p = path.to_str().expect("text");
    let a = writepath(&["mkfs", "ext4", p, "--size", "32M"]);
    assert_eq!(a.code, 2);
    assert!(a.stderr.contains("--force"), "{}", a.stderr);
    for (fs, size, says) in [
        ("ext4,block_size=3000", "64M", "1024, 2048 or 4096"),
        ("ext4,inode_size=100", "64M", "inode size"),
        ("ext4", "10K", "too few"),
        ("ext4,uuid=xyz", "64M", "uuid"),
    ] {
        let fresh = dir.path().join("fresh");
        let a = writepath(&["mkfs", fs, fresh.to_str().expect("text"), "--size", size]);
        assert!(a.code == 2 || a.code == 3, "{fs}: {} {}", a.code, a.stderr);
        assert!(a.stderr.contains(says), "{fs}: {}", a.stderr);
        assert!(!fresh.exists(), "{fs}: nothing is left behind");
    }
}

#[test]
fn a_torn_event_file_is_named_with_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.ndjson");
    std::fs::write(&path, "{\"e\":\"block\",\"a\":\"D\",\"op\":\"Wri").expect("written");
    let a = writepath(&["trace", path.to_str().expect("text")]);
    assert_eq!(a.code, 2);
    assert!(a.stderr.contains("events.ndjson:1"), "{}", a.stderr);
}

#[test]
fn every_list_is_one_json_document() {
    for what in ["fs", "devices", "elevators", "workloads", "papers", "eras", "durability", "cpus"]
    {
        let a = writepath(&["list", what, "--json"]);
        assert_eq!(a.code, 0, "{what}: {}", a.stderr);
        let doc: serde_json::Value = serde_json::from_str(&a.stdout).expect("JSON");
        assert!(doc[what].as_array().is_some_and(|v| !v.is_empty()), "{what}");
    }
}

#[test]
fn a_size_that_is_too_small_is_told_with_the_least_that_will_do() {
    let dir = tempfile::tempdir().expect("a directory");
    for fs in ["nilfs2", "f2fs", "btrfs"] {
        let path = dir.path().join(fs);
        let path = path.to_str().expect("text");
        let a = writepath(&["mkfs", fs, path, "--size", "1M"]);
        assert_eq!(a.code, 2, "{fs}: {}", a.stderr);
        let least = a.stderr.split("--size ").nth(1).expect("a size").split(';').next();
        let least = least.expect("its end");
        assert!(a.stderr.contains("1048576 bytes are too small for"), "{}", a.stderr);
        let a = writepath(&["mkfs", fs, path, "--size", least]);
        assert_eq!(a.code, 0, "{fs} of {least}: {}", a.stderr);
        let less: u64 = least.trim_end_matches('M').parse().expect("a number");
        let a = writepath(&["mkfs", fs, path, "--force", "--size", &format!("{}M", less - 1)]);
        assert_eq!(a.code, 2, "{fs}: a MiB less does, too");
    }
}

#[test]
fn a_program_that_is_no_file_is_told_and_names_are_the_way_out() {
    let a = writepath(&["crash", "nothing.txt"]);
    assert_eq!(a.code, 2);
    let (error, help) = a.stderr.split_once("\nhelp: ").expect("both");
    assert_eq!(error, "error: nothing.txt: no such file");
    assert!(help.contains("seq-2") && help.contains("*.fio"), "{help}");
    let a = writepath(&["crash", "seq-9"]);
    assert!(a.stderr.contains("help: writepath crash --help"), "{}", a.stderr);
}
