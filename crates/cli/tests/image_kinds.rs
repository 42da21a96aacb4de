//! Images that are something else than a file system on its own: what the verbs call them, which
//! exit code that is, and what is read of them all the same.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use wp_machine::testing::skipped;

/// A crashed ext4 of 64 MiB, whose log has all of its files.
const CRASHED: &[u8] = include_bytes!("testdata/crashed-ext4.img.zst");

/// Exit code, stdout and stderr of a command in `dir`.
fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    let output = command.args(args).current_dir(dir).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Runs a tool of the host in `dir`. `None`, after saying that `check` was skipped: it is missing,
/// or too old to know an option.
fn tool(dir: &Path, check: &str, line: &str) -> Option<String> {
    let path = format!("PATH=$PATH:/usr/sbin:/sbin; {line}");
    let output = Command::new("sh").args(["-c", &path]).current_dir(dir).output().expect("sh");
    if !output.status.success() {
        let tools = ["mke2fs", "mkfs.btrfs", "mkfs.f2fs", "dumpe2fs", "e2fsck"];
        let name = tools.iter().find(|t| line.contains(**t)).unwrap_or(&"a tool");
        skipped(check, &format!("{name} is missing, or too old"));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A sparse file of `bytes` bytes with pieces in it.
fn file(path: &Path, bytes: u64, pieces: &[(u64, &[u8])]) {
    let file = File::create(path).expect("made");
    file.set_len(bytes).expect("sparse");
    pieces.iter().for_each(|(at, piece)| file.write_all_at(piece, *at).expect("written"));
}

const VERBS: [&[&str]; 4] = [
    &["inspect", "x"],
    &["fsck", "x"],
    &["fsck", "--recover", "x"],
    &["recover", "x", "--to", "y"],
];

#[test]
fn all_verbs_name_what_a_file_is_in_the_same_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let cases: &[(u64, &[u8], i32, &str, &str)] = &[
        (0, b"BZh9", 3, "a bzip2 file", "bzip2 -dc x"),
        (0, b"\x8b\x66\x95\x72\xe2\x25\x5c\xbd", 3, "a btrfs-image dump", "btrfs-image -r x"),
        (0, b"\x1f\x8b\x08", 1, "a gzip file, damaged at byte", "copy or download"),
        (0, b"\xfd7zXZ\0", 1, "an xz file, damaged at byte", "copy or download"),
        (0, b"\x28\xb5\x2f\xfd", 1, "a zstd file, damaged at byte", "copy or download"),
        (0, b"QFI\xfb\0\0\0\x03", 1, "a qcow2 image, damaged at byte 20", "copy or download"),
        (0, b"QFI\xfb\0\0\0\x07", 3, "qcow2 version 7", "qemu-img convert -O raw x"),
        (0, b"\x3a\xff\x26\xed", 3, "an Android sparse image 0.0", "simg2img x"),
        (0, b"LUKS\xba\xbe", 3, "a LUKS volume", "cryptsetup open x"),
        (4086, b"SWAPSPACE2", 3, "swap space", "no files"),
        (0, b"XFSB", 3, "an XFS file system", "ext4"),
        (32769, b"CD001", 3, "an ISO 9660 image", "ext4"),
        (0, b"", 1, "no known file system", "mkfs"),
    ];
    for (place, magic, code, what, help) in cases {
        file(&at.join("x"), 1 << 20, &[(*place, magic)]);
        let said: Vec<_> = VERBS.iter().map(|verb| run(at, verb)).collect();
        for (found, stdout, err) in &said {
            assert_eq!((*found, stdout.as_str()), (*code, ""), "{what}: {err}");
            assert!(err.contains(what) && err.contains(help), "{what}: {err}");
            assert_eq!(*err, said[0].2, "one file has one name");
        }
        assert!(!at.join("y").exists(), "{what}");
    }
    // Loaded as the contents of a device, a container is none.
    file(&at.join("x"), 1 << 20, &[(0, b"QFI\xfb")]);
    for args in [
        &["serve", "nbd", "--image", "x", "--socket", "s"][..],
        &["serve", "nbd", "--device", "ssd-128", "--load", "x", "--socket", "s"],
    ] {
        let (code, _, err) = run(at, args);
        assert_eq!((code, err.contains("a qcow2 image")), (3, true), "{args:?}: {err}");
    }
}

/// A disk with an MBR whose second partition, at 1 MiB, is an ext4 of 16 MiB.
fn disk(at: &Path) {
    assert_eq!(run(at, &["mkfs", "ext4", "part", "--size", "16M"]).0, 0);
    let mut table = vec![0; 64];
    let mut entry = |n: usize, kind: u8, start: u32, sectors: u32| {
        table[n * 16 + 4] = kind;
        table[n * 16 + 8..n * 16 + 12].copy_from_slice(&start.to_le_bytes());
        table[n * 16 + 12..n * 16 + 16].copy_from_slice(&sectors.to_le_bytes());
    };
    entry(0, 0x82, 64, 1024);
    entry(1, 0x83, 2048, 32768);
    entry(2, 0x83, 40000, 99999);
    table.extend([0x55, 0xaa]);
    let part = fs::read(at.join("part")).expect("read");
    file(&at.join("disk"), 32 << 20, &[(446, &table), (1 << 20, &part)]);
}

#[test]
fn a_partition_is_read_by_number_or_offset_and_the_table_names_both() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    disk(at);
    let (code, _, err) = run(at, &["inspect", "disk"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("MBR partition table with 3 partitions"), "{err}");
    assert!(err.contains("2 at byte 1048576 (ext4)"), "{err}");
    assert!(err.contains("3 at byte 20480000 (behind the end of the file)"), "{err}");
    let whole = run(at, &["inspect", "part"]);
    for how in [["--partition", "2"], ["--offset", "1M"], ["--offset", "1048576"]] {
        let (code, stdout, err) = run(at, &["inspect", "disk", how[0], how[1]]);
        assert_eq!((code, stdout), (0, whole.1.replace("part", "disk")), "{err}");
        let (code, stdout, err) = run(at, &["fsck", "disk", how[0], how[1]]);
        assert_eq!((code, stdout.starts_with("disk: ext4, clean\n")), (0, true), "{stdout}{err}");
    }
    for (how, code, says) in [
        (["--partition", "1"], 1, "no known file system"),
        (["--partition", "3"], 1, "the image is truncated"),
        (["--partition", "7"], 2, "not in the MBR table"),
        (["--offset", "1000"], 2, "512-byte sectors"),
        (["--offset", "1G"], 2, "behind the end"),
        (["--offset", "x"], 2, "--offset x"),
    ] {
        let (found, _, err) = run(at, &["fsck", "disk", how[0], how[1]]);
        assert_eq!((found, err.contains(says)), (code, true), "{how:?}: {err}");
    }
    let (code, _, err) = run(at, &["fsck", "part", "--partition", "1"]);
    assert_eq!((code, err.contains("no partition table")), (2, true), "{err}");
}

#[test]
fn a_recovery_of_a_partition_changes_that_partition_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    // 64 MiB of a crashed ext4 with 49 files in the log, in the third MiB of a disk of others.
    let part = zstd::decode_all(CRASHED).expect("it was packed");
    file(&at.join("part"), part.len() as u64, &[(0, &part)]);
    let (first, end) = (3 << 20, (3 << 20) + part.len());
    let around = [7; 4096];
    let make = |name: &str| {
        let path = at.join(name);
        let pieces = [(first as u64 - 4096, &around[..]), (end as u64, &around[..])];
        file(&path, end as u64 + (4 << 20), &pieces);
        let image = File::options().write(true).open(&path).expect("open");
        for (n, page) in part.chunks(4096).enumerate() {
            if page.iter().any(|b| *b != 0) {
                image.write_all_at(page, (first + n * 4096) as u64).expect("written");
            }
        }
    };
    make("disk");
    let (code, _, err) = run(at, &["recover", "part"]);
    assert_eq!(code, 0, "{err}");
    let right = fs::read(at.join("part")).expect("read");
    assert!(right != part, "there is something to recover");
    let before = fs::read(at.join("disk")).expect("read");
    for args in [
        &["recover", "disk", "--offset", "3M", "--to", "copy"][..],
        &["recover", "disk", "--offset", "3145728"],
    ] {
        let (code, stdout, err) = run(at, args);
        assert_eq!(code, 0, "{stdout}{err}");
        let name = if args.len() > 4 { "copy" } else { "disk" };
        let after = fs::read(at.join(name)).expect("read");
        assert_eq!(after.len(), before.len(), "all of the disk");
        assert!(after[..first] == before[..first] && after[end..] == before[end..], "{name}");
        assert!(after[first..end] == right[..], "{name}: as the partition by itself");
    }
    let blocks = |name: &str| fs::metadata(at.join(name)).expect("there").blocks();
    assert!(blocks("copy") <= blocks("disk") + 64, "holes stay");
}

#[test]
fn btrfs_that_is_not_read_is_named_by_its_feature() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    for (options, says) in [
        ("-d single -m single x z", "btrfs on 2 devices"),
        ("-d raid1 -m raid1 x z", "btrfs on 2 devices"),
        ("--csum sha256 x", "checksum sha256"),
        ("--csum blake2 x", "checksum blake2"),
        ("-s 65536 -n 65536 x", "sector size 65536"),
        ("-d raid0 x", "profile: RAID0"),
    ] {
        let line = format!("rm -f x z; truncate -s 256M x z && mkfs.btrfs -q -f {options}");
        let check = format!("btrfs by feature: {says}");
        if tool(at, &check, &line).is_none() {
            continue;
        }
        for verb in VERBS {
            let (code, _, err) = run(at, verb);
            assert_eq!((code, err.contains(says)), (3, true), "{options}: {verb:?}: {err}");
        }
    }
    for options in [
        "--csum xxhash",
        "-O ^no-holes",
        "-R ^free-space-tree",
        "-M",
        "-O ^skinny-metadata",
        "-O ^skinny-metadata,^extref,^no-holes",
    ] {
        let line = format!("rm -f x; truncate -s 130M x && mkfs.btrfs -q -f {options} x");
        if tool(at, &format!("btrfs that is read: {options}"), &line).is_none() {
            continue;
        }
        assert_eq!(run(at, &["fsck", "x"]).0, 0, "{options}");
        assert_eq!(run(at, &["inspect", "x"]).0, 0, "{options}");
    }
    // A damaged super block is a btrfs all the same.
    if tool(at, "a damaged btrfs", "rm -f x; truncate -s 130M x && mkfs.btrfs -q x").is_some() {
        let image = File::options().write(true).open(at.join("x")).expect("open");
        image.write_all_at(&[0xff; 8], 65536 + 0x70).expect("written");
        let (code, stdout, _) = run(at, &["fsck", "x"]);
        assert_eq!(code, 1);
        assert!(stdout.contains("btrfs, not clean") && stdout.contains("csum"), "{stdout}");
        let (code, stdout, _) = run(at, &["inspect", "x"]);
        let says = ": no, because btrfs super block";
        assert_eq!((code, stdout.contains(says)), (1, true), "{stdout}");
    }
}

#[test]
fn f2fs_that_is_not_read_is_named_by_its_feature() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let make = |options: &str| {
        let line = format!("rm -f x; truncate -s 200M x && mkfs.f2fs -q -f {options} x");
        tool(at, &format!("f2fs by feature: {options}"), &line).is_some()
    };
    if make("-O ro") {
        for verb in VERBS {
            let (code, _, err) = run(at, verb);
            assert_eq!((code, err.contains("f2fs with feature ro")), (3, true), "{verb:?}: {err}");
        }
    }
    for (options, says) in [
        ("-O extra_attr,quota", "quotas"),
        ("-O extra_attr,compression", "compressed clusters"),
        ("-O encrypt", "encrypted names"),
        ("-O casefold -C utf8", "contents of files"),
        ("-O extra_attr,inode_checksum,sb_checksum", "contents of files"),
    ] {
        if make(options) {
            let (code, stdout, err) = run(at, &["fsck", "x"]);
            assert_eq!(code, 0, "{options}: {stdout}{err}");
            assert!(stdout.contains("not checked: ") && stdout.contains(says), "{stdout}");
        }
    }
}

#[test]
fn ext4_with_protection_from_two_mounts_is_checked_as_e2fsck_checks_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let check = "multiple-mount protection of ext4";
    for features in ["mmp,^has_journal", "mmp,metadata_csum"] {
        let make =
            format!("rm -f x; truncate -s 8M x && mke2fs -q -t ext4 -b 1024 -O {features} x");
        if tool(at, check, &make).is_none() {
            return;
        }
        let block = "dumpe2fs -h x 2>/dev/null | sed -n 's/^MMP block number: *//p'";
        let Some(block) = tool(at, check, block) else { return };
        let block: u64 = block.trim().parse().expect("a number");
        assert_eq!(run(at, &["fsck", "x"]).0, 0, "{features}");
        let image = File::options().read(true).write(true).open(at.join("x")).expect("open");
        let mut good = [0; 1024];
        image.read_exact_at(&mut good, block * 1024).expect("read");
        let mut in_use = good;
        in_use[4..8].copy_from_slice(&0xE24D_4D50u32.to_le_bytes());
        for bad in [[0; 1024], in_use] {
            image.write_all_at(&bad, block * 1024).expect("written");
            let (code, stdout, _) = run(at, &["fsck", "x"]);
            assert_eq!((code, stdout.contains("error: mmp")), (1, true), "{features}: {stdout}");
            assert!(tool(at, check, "e2fsck -fn x >/dev/null 2>&1; [ $? -ge 4 ]").is_some());
            // Linux does not mount it for writing.
            for verb in [&["inspect", "x"][..], &["recover", "x", "--to", "y"]] {
                let (code, stdout, err) = run(at, verb);
                let said = stdout + &err;
                let says = said.contains("ext4 multiple-mount protection");
                assert_eq!((code, says), (1, true), "{features}: {verb:?}: {said}");
            }
        }
        image.write_all_at(&good, block * 1024).expect("written");
        assert_eq!(run(at, &["fsck", "x"]).0, 0, "{features}");
    }
}

#[test]
fn clean_is_a_word_of_fsck_and_fsck_says_what_it_did_not_check() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    for fs in ["ext4", "f2fs", "nilfs2", "btrfs"] {
        let made = run(at, &["mkfs", fs, fs, "--size", "256M"]);
        assert_eq!(made.0, 0, "{}", made.2);
        let (code, stdout, _) = run(at, &["inspect", fs]);
        assert_eq!((code, stdout.contains("clean")), (0, false), "{stdout}");
        assert!(stdout.contains("no recovery needed") && stdout.contains("writepath fsck"));
        let (code, stdout, _) = run(at, &["fsck", fs]);
        assert_eq!((code, stdout.contains(", clean\n")), (0, true), "{stdout}");
        assert!(stdout.contains("\n  not checked: "), "{stdout}");
        let (_, stdout, _) = run(at, &["fsck", fs, "--json"]);
        let doc: serde_json::Value = serde_json::from_str(&stdout).expect("a document");
        assert!(doc["not_checked"].as_array().is_some_and(|all| !all.is_empty()), "{doc}");
    }
    let check = "quotas of ext4";
    if tool(at, check, "truncate -s 8M x && mke2fs -q -t ext4 -O quota x").is_some() {
        let (code, stdout, _) = run(at, &["fsck", "x"]);
        assert_eq!((code, stdout.contains("quotas")), (0, true), "{stdout}");
    }
    // A mount of Linux takes what an orphan had from the quotas; recovery says that it does not.
    let orphan = "rm -f x y; truncate -s 8M x && mke2fs -q -t ext4 -O quota x && echo hello >h \
        && for r in 'write h f' 'sif f links_count 0' 'unlink f' 'ssv last_orphan 12'; do \
        debugfs -w -R \"$r\" x 2>/dev/null >&2 || exit; done";
    if tool(at, "quotas and an orphan of ext4", orphan).is_some() {
        let (code, stdout, err) = run(at, &["recover", "x", "--to", "y"]);
        assert_eq!((code, stdout.contains("left out: quota files")), (0, true), "{stdout}{err}");
    }
}

#[test]
fn an_ext4_whose_journal_is_gone_is_refused_whatever_of_it_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let check = "parts of the journal of ext4";
    for request in [
        "clri <8>",
        "sif <8> mode 040755",
        "sif <8> links_count 0",
        "sif <8> size 1024",
        "sif <8> block[0] 0",
        "ssv journal_inum 0",
        "ssv journal_inum 12",
    ] {
        let make = "rm -f x; truncate -s 16M x && mke2fs -q -F -t ext4 -b 1024 x";
        let damage = format!("{make} && debugfs -w -R '{request}' x 2>/dev/null >&2");
        if tool(at, check, &damage).is_none() {
            return;
        }
        // e2fsck calls each damaged, and Linux mounts none.
        assert!(tool(at, check, "e2fsck -fn x >/dev/null 2>&1; [ $? -ge 4 ]").is_some());
        for verb in VERBS {
            let (code, stdout, err) = run(at, verb);
            assert_eq!(code, 1, "{request}: {verb:?}: {stdout}{err}");
        }
    }
}

/// Fields of the super block that a mount compares, by the version that does so: `inspect` says
/// what ends it.
#[test]
fn inspect_says_which_kernel_mounts_an_ext4_and_why_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let make = "truncate -s 16M x && mke2fs -q -t ext4 -b 1024 -O ^metadata_csum x";
    if tool(at, "ext4 that no kernel mounts", make).is_none() {
        return;
    }
    let image = File::options().read(true).write(true).open(at.join("x")).expect("open");
    let said = |era: &str| {
        let (code, stdout, err) = run(at, &["inspect", "x", "--era", era]);
        assert!(err.is_empty(), "{err}");
        (code, stdout.lines().next().unwrap_or("").to_owned())
    };
    assert_eq!(said("6.12"), (0, "x: ext4; mountable by Linux 6.12: yes".to_owned()));
    // Field, offset, value, oldest version that refuses, one that does not look.
    type Case<'a> = (&'a str, u64, &'a [u8], &'a str, Option<&'a str>);
    let cases: &[Case<'_>] = &[
        ("s_journal_dev", 0xE4, &[1, 8], "4.6", None),
        ("s_log_cluster_size", 0x1C, &[2], "4.18", Some("4.6")),
        ("s_log_cluster_size", 0x1C, &[40], "4.6", None),
        ("s_clusters_per_group", 0x24, &[0, 0], "6.12", Some("4.6")),
        ("s_want_extra_isize", 0x15E, &[0xff], "5.10", Some("4.6")),
        ("s_min_extra_isize", 0x15C, &[0xff], "5.10", Some("4.6")),
        ("s_def_hash_version", 0xFC, &[0x7e], "6.12", Some("6.1")),
    ];
    for (field, offset, value, since, before) in cases {
        let mut old = vec![0; value.len()];
        image.read_exact_at(&mut old, 1024 + offset).expect("read");
        image.write_all_at(value, 1024 + offset).expect("written");
        let (code, line) = said(since);
        let start = format!("x: ext4; mountable by Linux {since}: no, because ");
        assert_eq!((code, line.starts_with(&start) && line.contains(field)), (1, true), "{line}");
        if let Some(before) = before {
            assert_eq!(said(before).0, 0, "{field}: {before}");
        }
        image.write_all_at(&old, 1024 + offset).expect("written");
    }
    // What a mount passes over, `fsck` finds.
    let mut flex = [0];
    image.read_exact_at(&mut flex, 1024 + 0x174).expect("read");
    image.write_all_at(&[0xff], 1024 + 0x174).expect("written");
    assert_eq!((said("6.12").0, run(at, &["fsck", "x"]).0), (0, 1));
    image.write_all_at(&flex, 1024 + 0x174).expect("written");
    // The bitmap of inodes of group 0 where its bitmap of blocks is (descriptors are in block 2).
    let mut places = [0; 8];
    image.read_exact_at(&mut places, 2048).expect("read");
    image.write_all_at(&places[..4], 2048 + 4).expect("written");
    let (code, line) = said("6.12");
    assert_eq!((code, line.contains("those of group")), (1, true), "{line}");
}
