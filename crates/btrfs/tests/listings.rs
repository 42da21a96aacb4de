//! Images that real kernels left behind at a power cut: we must find in them what the real kernel
//! found, and what we write when we recover must be sound for `btrfs check`.

use crate::images::Bytes;
use crate::judge;
use crate::reference::reference;
use serde_json::Value;
use wp_btrfs::check::{CheckOptions, check};
use wp_btrfs::image::{Image, InspectOptions, list};
use wp_btrfs::replay::{RecoverOptions, recover};
use wp_medium::{Overlay, View};
use wp_vfs::FileInfo;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What a manifest says of a file, and the same of ours: of what it does not say, nothing.
fn lines(f: &FileInfo, expected: &Value) -> (String, String) {
    let text = |b: &[u8]| Value::from(String::from_utf8_lossy(b).into_owned());
    let (mut ours, mut theirs) = (String::new(), String::new());
    for (key, value) in expected.as_object().expect("a file") {
        let own = match key.as_str() {
            "path" => text(&f.path),
            "type" => f.kind.word().into(),
            "ino" => f.ino.into(),
            "nlink" => f.nlink.into(),
            "uid" => f.uid.into(),
            "gid" => f.gid.into(),
            "size" => f.size.into(),
            "blocks512" => f.sectors.into(),
            "sha256" => f.sha256.map(|d| d.to_string()).into(),
            "target" => f.target.as_deref().map_or(Value::Null, text),
            "xattr_hex" => {
                let all = f.xattrs.iter();
                all.map(|x| (String::from_utf8_lossy(&x.name).into_owned(), hex(&x.value)))
                    .collect()
            }
            "mode" => {
                let mode = value.as_str().expect("octal").trim_start_matches("0o");
                let mode = u32::from_str_radix(mode, 8).expect("octal");
                if mode & 0o7777 == f.mode { value.clone() } else { f.mode.into() }
            }
            other => panic!("{other} is nothing that we compare"),
        };
        ours += &format!("{key} {own} ");
        theirs += &format!("{key} {value} ");
    }
    (ours, theirs)
}

/// Compares the files of an image, without recovery, with a manifest's.
fn same_files(case: &str, image: &Image<'_>, files: &Value) {
    let (ours, findings) = list(image, &InspectOptions::default());
    assert_eq!(findings, [], "{case}");
    let theirs = files.as_array().expect("files");
    let paths = |f: &Value| f["path"].as_str().expect("a path").as_bytes().to_vec();
    let mut names: Vec<Vec<u8>> = theirs.iter().map(paths).collect();
    names.sort();
    assert_eq!(ours.iter().map(|f| f.path.clone()).collect::<Vec<_>>(), names, "{case}");
    for file in theirs {
        let own = ours.iter().find(|f| f.path == paths(file)).expect("it is among the names");
        let (a, b) = lines(own, file);
        assert_eq!(a, b, "{case}");
    }
}

/// Names of the crashed images that real kernels left.
const IMAGES: [&str; 5] =
    ["btrfs-n4k", "btrfs-plain", "btrfs-subvol", "btrfs-treelog", "btrfs-xxhash"];

#[test]
fn every_image_recovers_to_the_files_of_the_real_kernel() {
    for name in IMAGES {
        let Some((bytes, manifest)) = reference("btrfs recovery", name) else { return };
        let bytes = Bytes(bytes);
        let overlay = Overlay::new(&bytes);
        let options = RecoverOptions::default();
        let done = recover(&overlay, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{name}: {done}");
        let image = Image::open(&overlay).unwrap_or_else(|e| panic!("{name}, recovered: {e}"));
        same_files(name, &image, &manifest["expected_after_recovery"]);
        for view in [&bytes as &dyn View, &overlay] {
            let options = CheckOptions { recover: None, contents: true };
            let report = check(view, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(report.findings, [], "{name}");
        }
        // Whether there was a log is what the kernel says.
        let said = manifest["kernel_dmesg"].as_array().expect("messages").iter();
        let mut said = said.filter_map(|l| l.as_str());
        assert_eq!(done.is_needed, said.any(|l| l.contains("start tree-log replay")), "{name}");
        // Recovered once, there is nothing left to recover.
        let again = Overlay::new(&overlay);
        let twice = recover(&again, &options).unwrap_or_else(|e| panic!("{name}, twice: {e}"));
        assert!(!twice.is_needed && again.is_empty(), "{name}: {twice}");
        if judge::is_here("btrfs recovered images") {
            let mut all = bytes.0.clone();
            overlay.each_page(|n, page| {
                let at = n as usize * 4096;
                all[at..at + 4096].copy_from_slice(page.bytes());
            });
            let file = tempfile::NamedTempFile::new().expect("a scratch file");
            std::fs::write(file.path(), all).expect("room");
            assert_eq!(judge::judge(file.path(), &["--check-data-csum"]), "", "{name}");
        }
    }
}
