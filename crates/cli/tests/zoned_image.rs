//! `inspect` and `recover` of a crashed file system on a conventional and a zoned device.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn writepath(args: &[&str]) -> (i32, serde_json::Value) {
    let out = Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).arg("--json").output();
    let out = out.expect("it was built");
    let doc = serde_json::from_slice(&out.stdout).unwrap_or(serde_json::Value::Null);
    (out.status.code().expect("it ends by itself"), doc)
}

/// The reference image `f2fs-zns`: its folder, or `None` after saying that it is not here.
fn folder(check: &str) -> Option<PathBuf> {
    let all = std::env::var_os("WRITEPATH_REFERENCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference"),
        PathBuf::from,
    );
    let folder = all.join("f2fs-zns");
    if folder.join("manifest.json").exists() {
        return Some(folder);
    }
    let line = format!("{check}: reference image f2fs-zns is not here");
    eprintln!("SKIPPED: {line}");
    if let Some(path) = std::env::var_os("WRITEPATH_SKIPS") {
        let list = std::fs::OpenOptions::new().append(true).create(true).open(path);
        list.and_then(|mut f| writeln!(f, "{line}")).expect("the skip list can be written");
    }
    None
}

fn unpack(from: &Path, to: &Path) {
    let packed = std::fs::read(from).expect("there");
    std::fs::write(to, zstd::decode_all(packed.as_slice()).expect("whole")).expect("room");
}

#[test]
fn what_was_not_written_is_left_out_and_the_repaired_image_is_sound() {
    let Some(from) = folder("recover --oprw of a zoned image") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    for name in ["conv.img", "zoned.img"] {
        unpack(&from.join(format!("{name}.zst")), Path::new(&path(name)));
    }
    let report = std::fs::read_to_string(from.join("zoned.zones.txt")).expect("there");
    // The warm data log's zone, as if its last 9 blocks had been in the buffer only.
    let shorter = report.replace("wptr 0x000258", "wptr 0x000210");
    assert_ne!(report, shorter);
    let (whole, cut) = (path("whole.txt"), path("cut.txt"));
    std::fs::write(&whole, report).expect("room");
    std::fs::write(&cut, shorter).expect("room");
    let (conv, zoned) = (path("conv.img"), path("zoned.img"));
    let oprw = |zones: &str| {
        let args = ["inspect", "--era", "5.14", "--oprw", "--zones", zones, &conv, &zoned];
        let (code, doc) = writepath(&args);
        assert_eq!(code, 0, "{doc}");
        doc["left_out"].as_array().expect("a list").len()
    };
    assert_eq!((oprw(&whole), oprw(&cut)), (0, 5));
    let (c, z, after) = (path("c.img"), path("z.img"), path("after.txt"));
    let args = ["recover", "--era", "5.14", "--oprw", "--zones", &cut, &conv, &zoned];
    let to = ["--to", &c, "--to", &z, "--zones-to", &after];
    let (code, doc) = writepath(&[&args[..], &to].concat());
    assert_eq!((code, doc["left_out"].as_array().map(Vec::len)), (0, Some(5)), "{doc}");
    // Repaired, there is nothing left to recover, and no file is of what was never written.
    let (code, doc) = writepath(&["inspect", "--era", "5.14", "--zones", &after, &c, &z]);
    assert_eq!((code, &doc["recovered"]), (0, &false.into()), "{doc}");
    // A second run does not write over what the first one wrote.
    assert_eq!(writepath(&[&args[..], &to].concat()).0, 2);
    // The devices the other way round, and a report that is none.
    assert_eq!(writepath(&["inspect", "--zones", &cut, &zoned, &conv]).0, 1);
    assert_eq!(writepath(&["inspect", "--zones", &c, &conv, &zoned]).0, 2);
}
