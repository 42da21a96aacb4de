//! Images that real kernels left behind at a power cut: we must find in them what the real kernel
//! found.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use crate::skip;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::process::Command;

use crate::reference::{Bytes, reference};
use wp_base::FsError;
use wp_ext4::image::{BlockClass, BlockClasses, Image, InspectOptions, inspect, list, recover};
use wp_jbd2::RecoverPolicy;
use wp_medium::{Overlay, View};

const RECOVERABLE: [&str; 15] = [
    "ext4-nocsum",
    "ext4-j1k",
    "ext4-ordered",
    "ext4-journal",
    "ext4-writeback",
    "ext4-revoke",
    "ext4-wrap",
    "ext4-torncommit",
    "ext4-jcsum1",
    "ext4-badcsum",
    "ext4-async",
    "ext4-orphan",
    "ext4-orphanfile",
    "ext4-fc",
    "ext4-fcnodir",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A file as a line, so that a difference is readable.
fn expected_lines(manifest: &serde_json::Value) -> Vec<String> {
    let mut lines: Vec<String> = manifest["expected_after_recovery"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| {
            let text = |key: &str| f[key].as_str().unwrap_or("-").to_owned();
            let number = |key: &str| f[key].as_u64().map_or("-".to_owned(), |n| n.to_string());
            let pairs = f["xattr_hex"].as_object().into_iter().flatten();
            let xattrs: BTreeMap<&str, &str> =
                pairs.map(|(k, v)| (k.as_str(), v.as_str().unwrap_or("-"))).collect();
            let mode = u32::from_str_radix(text("mode").trim_start_matches("0o"), 8).unwrap();
            let mode = mode & 0o7777;
            format!(
                "{} {} ino {} mode {mode:04o} links {} owner {}:{} size {} sectors {} sha {} to {} \
                 {xattrs:?}",
                text("path"),
                text("type"),
                number("ino"),
                number("nlink"),
                number("uid"),
                number("gid"),
                number("size"),
                number("blocks512"),
                text("sha256"),
                text("target"),
            )
        })
        .collect();
    lines.sort();
    lines
}

fn our_lines(files: &[wp_vfs::FileInfo]) -> Vec<String> {
    let mut lines: Vec<String> = files
        .iter()
        .map(|f| {
            let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
            let is_file = f.sha256.is_some();
            let if_file = |n: u64| if is_file { n.to_string() } else { "-".to_owned() };
            let xattrs: BTreeMap<String, String> =
                f.xattrs.iter().map(|x| (text(&x.name), hex(&x.value))).collect();
            format!(
                "{} {} ino {} mode {:04o} links {} owner {}:{} size {} sectors {} sha {} to {} \
                 {xattrs:?}",
                text(&f.path),
                f.kind.word(),
                f.ino,
                f.mode,
                f.nlink,
                f.uid,
                f.gid,
                if_file(f.size),
                if_file(f.sectors),
                f.sha256.map_or("-".to_owned(), |d| d.to_string()),
                f.target.as_deref().map_or("-".to_owned(), text),
            )
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn recovered_files_are_those_that_the_kernel_found() {
    for name in RECOVERABLE {
        let Some((image, manifest)) =
            reference("recovered_files_are_those_that_the_kernel_found", name)
        else {
            continue;
        };
        let found =
            inspect(&image, &InspectOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.recovery.is_needed(), "{name}");
        assert!(found.findings.is_empty(), "{name}: {:?}", found.findings);
        assert!(found.files.is_sorted_by(|a, b| a.path < b.path), "{name}");
        let (ours, theirs) = (our_lines(&found.files), expected_lines(&manifest));
        for (a, b) in ours.iter().zip(&theirs) {
            assert_eq!(a, b, "{name}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let deleted = manifest["kernel_dmesg"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|l| l.as_str()?.split_once("): ")?.1.strip_suffix(" orphan inodes deleted"))
            .map(|n| n.parse::<u32>().unwrap())
            .sum::<u32>();
        assert_eq!(found.recovery.orphans_deleted, deleted, "{name}");
    }
}

/// What `e2fsck -fn` says of the recovered image, and its exit code as the last line.
fn e2fsck(name: &str, image: &Bytes, overlay: &Overlay<'_>) -> Vec<String> {
    let path =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.recovered.img"));
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&image.0).unwrap();
    for (at, slice) in overlay.writes() {
        file.seek(SeekFrom::Start(at.bytes())).unwrap();
        file.write_all(&slice.to_vec()).unwrap();
    }
    drop(file);
    let out = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8_lossy(&out.stdout).replace(path.to_str().unwrap(), "IMAGE");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.push(format!("rc={}", out.status.code().unwrap()));
    lines
}

#[test]
fn e2fsck_says_of_recovered_images_what_it_said_after_the_kernel() {
    let test = "e2fsck_says_of_recovered_images_what_it_said_after_the_kernel";
    if !skip::has_tool(test, "e2fsck") {
        return;
    }
    for name in RECOVERABLE {
        let Some((image, manifest)) = reference(test, name) else { continue };
        let overlay = Overlay::new(&image);
        recover(&overlay, &RecoverPolicy::linux(6, 18), 1_800_000_000).unwrap();
        let ours = e2fsck(name, &image, &overlay);
        // The manifest has stderr too, and of a long answer the last lines.
        let theirs: Vec<&str> = manifest["e2fsck_fn_after_recovery"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|l| l.as_str())
            .filter(|l| !l.starts_with("e2fsck 1.47.0"))
            .collect();
        assert!(ours.len() >= theirs.len(), "{name}: {ours:#?}");
        assert_eq!(ours[ours.len() - theirs.len()..], theirs, "{name}");
    }
}

#[test]
fn recovering_twice_changes_nothing_more() {
    for name in RECOVERABLE {
        let Some((image, _)) = reference("recovering_twice_changes_nothing_more", name) else {
            continue;
        };
        let once = Overlay::new(&image);
        recover(&once, &RecoverPolicy::linux(6, 18), 1).unwrap();
        let twice = Overlay::new(&once);
        let second = recover(&twice, &RecoverPolicy::linux(6, 18), 1).unwrap();
        assert!(!second.is_needed(), "{name}");
        assert!(twice.pages().is_empty(), "{name}");
    }
}

#[test]
fn fast_commits_are_counted_as_the_image_holds_them() {
    for (name, commits, records) in [("ext4-fc", 11, 56), ("ext4-fcnodir", 10, 49)] {
        let Some((image, _)) = reference("fast_commits_are_counted_as_the_image_holds_them", name)
        else {
            continue;
        };
        let overlay = Overlay::new(&image);
        let found = recover(&overlay, &RecoverPolicy::linux(6, 18), 1).unwrap();
        let fc = found.fast_commits;
        assert_eq!((fc.commits, fc.records), (commits, records), "{name}");
        // A kernel before 5.10 does not know the feature.
        let old = recover(&Overlay::new(&image), &RecoverPolicy::linux(5, 9), 1).unwrap_err();
        assert!(matches!(old, FsError::Unsupported(_)), "{name}: {old}");
    }
}

#[test]
fn every_block_has_a_class_and_used_ones_have_owners() {
    for name in RECOVERABLE {
        let Some((image, _)) = reference("every_block_has_a_class_and_used_ones_have_owners", name)
        else {
            continue;
        };
        let overlay = Overlay::new(&image);
        recover(&overlay, &RecoverPolicy::linux(6, 18), 1).unwrap();
        let image = Image::open(&overlay).unwrap();
        let classes = BlockClasses::of(&image).unwrap();
        let g = *image.geometry();
        let free =
            (0..g.blocks_count).filter(|b| classes.class(*b) == BlockClass::Free).count() as u64;
        assert_eq!(free, image.super_block().free_blocks_count(), "{name}");
        let unowned: Vec<u64> =
            (0..g.blocks_count).filter(|b| classes.class(*b) == BlockClass::Unowned).collect();
        assert!(unowned.is_empty(), "{name}: {unowned:?}");
        let sum: u64 = classes.runs().map(|(_, blocks, _)| blocks).sum();
        assert_eq!(sum + free, g.blocks_count, "{name}");
        assert_eq!(classes.class(g.blocks_count), BlockClass::Outside);
        // Log block 0 is the journal's super block.
        let log = (0..g.blocks_count)
            .find(|b| classes.class(*b) == BlockClass::Journal { log: 0 })
            .unwrap();
        let mut magic = [0u8; 4];
        overlay.read_at(log * u64::from(g.block_size.bytes()), &mut magic).unwrap();
        assert_eq!(u32::from_be_bytes(magic), wp_jbd2::disk::MAGIC, "{name}");
        let (files, _) = list(&image, &InspectOptions { hash: false, ..InspectOptions::default() });
        for f in files.iter().filter(|f| f.kind.word() == "file" && f.size > 0) {
            let record = image.inode(f.ino as u32).unwrap();
            let map = image.map(&record).unwrap();
            let first = map.runs.first().expect("a file with bytes has blocks");
            let class = BlockClass::Data { ino: f.ino as u32, logical: first.logical };
            assert_eq!(classes.class(first.start), class, "{name}");
        }
    }
}

#[test]
fn a_bad_image_is_refused_with_its_reason() {
    let Some((image, _)) = reference("a_bad_image_is_refused_with_its_reason", "ext4-ordered")
    else {
        return;
    };
    let whole = image.0;
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        Image::open(&Bytes(bytes)).err().expect("refused").to_string()
    };
    type Case<'a> = (&'a dyn Fn(&mut Vec<u8>), &'a str);
    let cases: [Case<'_>; 7] = [
        (
            &|b| b.truncate(100),
            "EUCLEAN: ext4 image at byte 0: length is 0x64, expected 2048 bytes or more",
        ),
        (
            &|b| b.truncate(1 << 20),
            "EUCLEAN: ext4 image at byte 0: length is 0x100000, expected 67108864 bytes or more",
        ),
        (
            &|b| b[1024 + 0x38] = 0,
            "EUCLEAN: ext4 super block at byte 1024: s_magic is 0xef00, expected 0xef53",
        ),
        (&|b| b[1024 + 0x78] = b'x', "EUCLEAN: ext4 super block at byte 1024: s_checksum"),
        (&|b| b[4096 + 0x0C] ^= 1, "EUCLEAN: ext4 group descriptor at byte 4096: bg_checksum"),
        (
            &|b| reseal(b, 0x60, 0x8000_0000),
            "EOPNOTSUPP: ext4 with incompatible feature 0x80000000",
        ),
        (&|b| reseal(b, 0x60, 0x0001_0000), "EOPNOTSUPP: ext4 with incompatible feature encrypt"),
    ];
    for (change, text) in cases {
        let error = error(change);
        assert!(error.starts_with(text), "{error} does not start with {text}");
    }
}

/// Sets bits of the 32-bit word at `at` of the super block, and its checksum.
fn reseal(bytes: &mut [u8], at: usize, bits: u32) {
    let word = &mut bytes[1024 + at..1024 + at + 4];
    let value = u32::from_le_bytes(word.try_into().unwrap()) | bits;
    word.copy_from_slice(&value.to_le_bytes());
    let crc = wp_base::crc::crc32c(!0, &bytes[1024..1024 + 0x3FC]);
    bytes[1024 + 0x3FC..2048].copy_from_slice(&crc.to_le_bytes());
}
