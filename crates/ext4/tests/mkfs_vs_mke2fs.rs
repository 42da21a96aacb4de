//! Our mkfs against the real one: the same bytes for the same UUID, hash seed and time.
//!
//! Differences that remain: none. (A difference would be listed here by field, with its reason.)
//! Skipped, and says so, where `mke2fs` is missing or is not version 1.47.0: other versions have
//! other defaults.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use crate::skip;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use wp_base::Rng;
use wp_ext4::mkfs::{Features, InodeTables, JournalSize, MkfsError, MkfsOptions, mkfs};

const UUID: [u8; 16] = [0x0F, 0x0F, 0x0F, 0x0F, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 1, 0x12];
const UUID_TEXT: &str = "0f0f0f0f-0000-4000-8000-000000000112";
const SEED: [u8; 16] =
    [0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0, 0, 0, 0, 1, 0x12];
const SEED_TEXT: &str = "11111111-2222-3333-4444-000000000112";
const NOW: u32 = 1_700_000_000;

const TODAY_16_MIB: &str = "6607c753a162482b";
const ERA_64_MIB: &str = "d5b1033c3c0936a1";
const TODAY_1_GIB: &str = "08a6a2f0889942d8";
const ERA_29_GIB: &str = "764af3593b6d2184";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A case: what we are asked, and what mke2fs is.
struct Case {
    options: MkfsOptions,
    args: Vec<String>,
}

fn case(bytes: u64, features: Features, args: &[&str]) -> Case {
    let mut options = MkfsOptions::new(bytes, features);
    options.uuid = UUID;
    options.hash_seed = SEED;
    options.now = NOW;
    Case { options, args: args.iter().map(|a| (*a).to_owned()).collect() }
}

fn today(bytes: u64) -> Case {
    case(bytes, Features::today(), &[])
}

fn era(bytes: u64) -> Case {
    let flags = ["-O", "^64bit,^metadata_csum,^orphan_file,uninit_bg", "-I", "256"];
    case(bytes, Features::era_2012(), &flags)
}

impl Case {
    /// Turns the feature `name` on or off on both sides.
    fn feature(mut self, name: &str, on: bool) -> Case {
        self.options.features = self.options.features.set(name, on).unwrap();
        self.args.extend(["-O".to_owned(), format!("{}{name}", if on { "" } else { "^" })]);
        self
    }

    fn with(mut self, args: &[&str], change: impl FnOnce(&mut MkfsOptions)) -> Case {
        self.args.extend(args.iter().map(|a| (*a).to_owned()));
        change(&mut self.options);
        self
    }
}

/// A file that is deleted at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs mke2fs; `Err` is its complaint.
fn real(name: &str, case: &Case) -> Result<Scratch, String> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.img"));
    let scratch = Scratch(path.clone());
    let _ = std::fs::remove_file(&path);
    File::create(&path).unwrap().set_len(case.options.bytes).unwrap();
    // Several -O add up only if they come as one list.
    let (mut features, mut rest) = (Vec::new(), Vec::new());
    let mut args = case.args.iter();
    while let Some(arg) = args.next() {
        if arg == "-O" { features.push(args.next().unwrap().as_str()) } else { rest.push(arg) }
    }
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-U", UUID_TEXT]);
    command.args(["-E", &format!("lazy_itable_init=0,lazy_journal_init=0,hash_seed={SEED_TEXT}")]);
    if !features.is_empty() {
        command.args(["-O", &features.join(",")]);
    }
    let out = command
        .args(rest)
        .arg(&path)
        .env("E2FSPROGS_FAKE_TIME", NOW.to_string())
        .env_remove("MKE2FS_CONFIG")
        .output()
        .unwrap();
    if out.status.success() {
        Ok(scratch)
    } else {
        Err(String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

/// Parts of the file that may hold data: (byte address, bytes). All of it if that cannot be found
/// out.
fn data_ranges(path: &Path, bytes: u64) -> Vec<(u64, u64)> {
    let all = vec![(0, bytes)];
    let Ok(out) = Command::new("filefrag").args(["-e", "-v", "-b1024"]).arg(path).output() else {
        return all;
    };
    if !out.status.success() {
        return all;
    }
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut ranges = Vec::new();
    for line in text.lines() {
        // "   0:        0..       7:   ...": extent number, then its logical blocks.
        let Some((number, rest)) = line.split_once(':') else { continue };
        if number.trim().parse::<u64>().is_err() {
            continue;
        }
        let logical = rest.split(':').next().unwrap_or("");
        let Some((from, to)) = logical.split_once("..") else { continue };
        let (Ok(from), Ok(to)) = (from.trim().parse::<u64>(), to.trim().parse::<u64>()) else {
            return all;
        };
        ranges.push((from * 1024, (to + 1 - from) * 1024));
    }
    ranges
}

/// Compares our bytes with the file; returns a description of each difference (at most 20).
fn differences(case: &Case, path: &Path) -> Vec<String> {
    let layout = match mkfs(&case.options) {
        Ok(layout) => layout,
        // The real one switches to meta_bg by itself; we say so and stop.
        Err(MkfsError::NeedsMetaBg) => return Vec::new(),
        Err(e) => return vec![format!("ours refused: {e}")],
    };
    let mut file = File::open(path).unwrap();
    let mut out = Vec::new();
    let bs = u64::from(layout.geometry.block_size.bytes());
    let ours: std::collections::BTreeMap<u64, &[u8]> =
        layout.writes().map(|(at, b)| (at / bs, b)).collect();
    let mut seen = 0usize;
    let zero = vec![0u8; bs as usize];
    for (at, bytes) in data_ranges(path, case.options.bytes) {
        let (first, last) = (at / bs, (at + bytes).min(case.options.bytes).div_ceil(bs));
        let mut buffer = vec![0u8; MIB as usize];
        let mut block = first;
        while block < last {
            let n = (MIB / bs).min(last - block);
            let end = ((block + n) * bs).min(case.options.bytes);
            let part = &mut buffer[..(end - block * bs) as usize];
            file.seek(SeekFrom::Start(block * bs)).unwrap();
            file.read_exact(part).unwrap();
            for (i, theirs) in part.chunks(bs as usize).enumerate() {
                let number = block + i as u64;
                let mine = ours.get(&number).copied().inspect(|_| seen += 1).unwrap_or(&zero);
                if mine[..theirs.len()] != *theirs && out.len() < 20 {
                    let first = mine.iter().zip(theirs).position(|(a, b)| a != b).unwrap();
                    let end = (first + 16).min(theirs.len());
                    out.push(format!(
                        "block {number} byte {first:#x}: ours {:02x?}, real {:02x?}",
                        &mine[first..end],
                        &theirs[first..end]
                    ));
                }
            }
            block += n;
        }
    }
    if out.is_empty() && seen != ours.len() {
        out.push(format!("{} of our blocks lie where the real one has none", ours.len() - seen));
    }
    out
}

fn check(name: &str, case: &Case) {
    match real(name, case) {
        Ok(scratch) => {
            let found = differences(case, &scratch.0);
            assert!(found.is_empty(), "{name} ({:?}):\n{}", case.args, found.join("\n"));
        }
        Err(complaint) => {
            assert!(
                mkfs(&case.options).is_err(),
                "{name}: mke2fs refuses this, we do not: {complaint}"
            );
        }
    }
}

#[test]
fn same_bytes_for_devices_of_all_sizes() {
    if !skip::has_tool("same_bytes_for_devices_of_all_sizes", "mke2fs") {
        return;
    }
    let sizes = [
        2 * MIB,
        7 * MIB,
        16 * MIB,
        64 * MIB,
        256 * MIB,
        600 * MIB,
        GIB,
        5 * GIB,
        29 * GIB,
        200 * GIB,
    ];
    for bytes in sizes {
        check(&format!("today-{bytes}"), &today(bytes));
        check(&format!("era-{bytes}"), &era(bytes));
    }
}

#[test]
fn same_bytes_for_other_options() {
    if !skip::has_tool("same_bytes_for_other_options", "mke2fs") {
        return;
    }
    type Make = fn(u64) -> Case;
    let bases: [(&str, Make); 2] = [("today", today), ("era", era)];
    for (base, make) in bases {
        let cases = [
            make(64 * MIB).with(&["-b", "4096", "-J", "size=8"], |o| {
                o.block_size = Some(4096);
                o.journal = JournalSize::Mebibytes(8);
            }),
            make(64 * MIB).with(&["-b", "2048"], |o| o.block_size = Some(2048)),
            make(300 * MIB).with(&["-I", "128"], |o| o.inode_size = 128),
            make(GIB).with(&["-I", "128", "-G", "4"], |o| {
                o.inode_size = 128;
                o.groups_per_flex = 4;
            }),
            make(GIB).with(&["-i", "65536"], |o| o.inode_ratio = Some(65536)),
            make(GIB).with(&["-N", "5000", "-m", "1"], |o| {
                o.inodes = Some(5000);
                o.reserved_percent = 1;
            }),
            make(96 * MIB).with(&["-g", "2048"], |o| o.blocks_per_group = Some(2048)),
            make(96 * MIB).feature("flex_bg", false),
            make(3 * GIB).feature("flex_bg", false),
            make(96 * MIB).feature("has_journal", false),
            make(96 * MIB).feature("resize_inode", false),
            make(96 * MIB).feature("resize_inode", false).feature("sparse_super", false),
            make(96 * MIB).feature("orphan_file", true),
            make(8 * GIB).feature("orphan_file", true),
            make(96 * MIB).feature("fast_commit", true),
            make(96 * MIB).feature("dir_index", false).feature("filetype", false),
            make(2 * GIB).with(&["-b", "1024", "-J", "size=256"], |o| {
                o.block_size = Some(1024);
                o.journal = JournalSize::Mebibytes(256);
            }),
        ];
        for (n, case) in cases.iter().enumerate() {
            check(&format!("option-{base}-{n}"), case);
        }
    }
    check("csum-seed", &today(96 * MIB).feature("metadata_csum_seed", true));
    check("csum-32", &today(96 * MIB).feature("64bit", false));
    check("plain", &era(96 * MIB).feature("uninit_bg", false));
    let label = |o: &mut MkfsOptions| o.label[..5].copy_from_slice(b"hello");
    check("label", &today(96 * MIB).with(&["-L", "hello"], label));
}

#[test]
fn same_bytes_for_clusters() {
    if !skip::has_tool("same_bytes_for_clusters", "mke2fs") {
        return;
    }
    let clusters = |case: Case, block: &str, cluster: u32| {
        let size = cluster.to_string();
        let case = case.feature("bigalloc", true).with(&["-b", block, "-C", &size], |o| {
            o.cluster_size = Some(cluster);
        });
        let block = block.parse().unwrap();
        Case { options: MkfsOptions { block_size: Some(block), ..case.options }, ..case }
    };
    type Make = fn(u64) -> Case;
    let bases: [(&str, Make); 2] = [("today", today), ("era", era)];
    for (base, make) in bases {
        let cases = [
            clusters(make(64 * MIB), "4096", 16384),
            clusters(make(100 * MIB + 12 * 1024), "4096", 65536),
            clusters(make(GIB), "4096", 16384),
            clusters(make(3 * GIB), "4096", 16384),
            clusters(make(20 * GIB), "4096", 32768),
            clusters(make(300 * MIB), "2048", 8192),
            clusters(make(3 * GIB).feature("flex_bg", false), "4096", 16384),
            clusters(make(GIB).feature("resize_inode", false), "4096", 65536),
            clusters(make(GIB).feature("orphan_file", true), "4096", 16384),
            clusters(
                make(GIB).with(&["-i", "65536"], |o| o.inode_ratio = Some(65536)),
                "4096",
                16384,
            ),
            clusters(
                make(GIB).with(&["-J", "size=8"], |o| o.journal = JournalSize::Mebibytes(8)),
                "4096",
                16384,
            ),
        ];
        for (n, case) in cases.iter().enumerate() {
            check(&format!("clusters-{base}-{n}"), case);
        }
    }
}

#[test]
fn same_bytes_for_random_options() {
    if !skip::has_tool("same_bytes_for_random_options", "mke2fs") {
        return;
    }
    let rounds = std::env::var("MKFS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let mut rng = Rng::stream(rounds, "mkfs");
    for round in 0..rounds {
        let bytes = match rng.below(3) {
            0 => rng.below(64 * MIB),
            1 => rng.below(2 * GIB),
            _ => rng.below(64 * GIB),
        } + 512 * 1024;
        let mut case = if rng.below(2) == 0 { today(bytes) } else { era(bytes) };
        if rng.below(2) == 0 {
            let bs = 1024 << rng.below(3);
            case = case.with(&["-b", &bs.to_string()], |o| o.block_size = Some(bs));
        }
        if rng.below(3) == 0 {
            let size = 128 << rng.below(4);
            case = case.with(&["-I", &size.to_string()], |o| o.inode_size = size);
        }
        if rng.below(3) == 0 {
            let ratio = 1024 << rng.below(8);
            case = case.with(&["-i", &ratio.to_string()], |o| o.inode_ratio = Some(ratio));
        }
        if rng.below(4) == 0 {
            let n = 256 + 8 * rng.below(1000) as u32;
            case = case.with(&["-g", &n.to_string()], |o| o.blocks_per_group = Some(n));
        }
        if rng.below(4) == 0 {
            let n = 2 << rng.below(7);
            case = case.with(&["-G", &n.to_string()], |o| o.groups_per_flex = n);
        }
        if rng.below(4) == 0 {
            let n = 1 + rng.below(64) as u32;
            case =
                case.with(&["-J", &format!("size={n}")], |o| o.journal = JournalSize::Mebibytes(n));
        }
        for (name, on) in [("orphan_file", true), ("fast_commit", true), ("resize_inode", false)] {
            if rng.below(4) == 0 {
                case = case.feature(name, on);
            }
        }
        check(&format!("random-{round}-{bytes}"), &case);
    }
}

#[test]
fn the_papers_disk_lies_where_the_paper_saw_it() {
    let layout = mkfs(&era(29 * GIB).options).unwrap();
    assert_eq!(layout.journal, [(0, 3_702_784, 32768)]);
    let desc = |n: u32| {
        let (block, offset) = layout.geometry.desc_place(n);
        let at = block * 4096;
        let (_, bytes) = layout.writes().find(|(a, _)| *a == at).expect("descriptors");
        wp_ext4::disk::GroupDesc::load(&bytes[offset..offset + 32])
    };
    assert_eq!(layout.geometry.desc_place(0).0, 1);
    assert_eq!(desc(1).block_bitmap(), 1026);
    assert_eq!(desc(0).inode_table(), 1057);
}

/// Where mke2fs is missing, these hashes of its images guard the bytes.
#[test]
fn bytes_stay_as_they_were_when_they_were_mke2fs_own() {
    use sha2::{Digest, Sha256};
    let cases = [
        (today(16 * MIB), TODAY_16_MIB),
        (era(64 * MIB), ERA_64_MIB),
        (today(GIB), TODAY_1_GIB),
        (era(29 * GIB), ERA_29_GIB),
    ];
    for (case, wanted) in cases {
        let mut hash = Sha256::new();
        for (at, bytes) in mkfs(&case.options).unwrap().writes() {
            hash.update(at.to_le_bytes());
            hash.update(bytes);
        }
        let hash: String = hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
        assert_eq!(hash, wanted, "{} bytes", case.options.bytes);
    }
}

#[test]
fn a_new_file_system_on_a_medium_is_empty_and_sound() {
    use wp_base::Sector;
    use wp_ext4::image::{BlockClass, BlockClasses, Image, InspectOptions, inspect};
    use wp_medium::{Medium, MediumView, Slice};
    for case in [today(64 * MIB), era(600 * MIB), today(64 * MIB).feature("orphan_file", true)] {
        // Something lies there already, and the partition does not start at 0.
        let start = Sector(2048);
        let mut medium = Medium::new();
        medium.write(Sector(2048 + 64), &Slice::pattern(1, 0, 1 << 20));
        mkfs(&case.options).unwrap().write_to(&mut medium, start);
        let view = MediumView { medium, start, bytes: case.options.bytes };
        let found = inspect(&view, &InspectOptions::default()).unwrap();
        assert!(!found.recovery.is_needed() && found.findings.is_empty() && found.files.is_empty());
        let image = Image::open(&view).unwrap();
        let classes = BlockClasses::of(&image).unwrap();
        let blocks = image.geometry().blocks_count;
        let free = (0..blocks).filter(|b| classes.class(*b) == BlockClass::Free).count() as u64;
        assert_eq!(free, image.super_block().free_blocks_count());
    }
}

#[test]
fn e2fsck_finds_nothing() {
    if !skip::has_tool("e2fsck_finds_nothing", "e2fsck") {
        return;
    }
    let mut cases = Vec::new();
    for bytes in [16 * MIB, 64 * MIB, 256 * MIB, GIB, 5 * GIB] {
        cases.push((format!("fsck-today-{bytes}"), today(bytes).options));
        cases.push((format!("fsck-era-{bytes}"), era(bytes).options));
        let mut lazy = today(bytes).options;
        lazy.inode_tables = InodeTables::Lazy;
        cases.push((format!("fsck-lazy-{bytes}"), lazy));
    }
    for (name, options) in cases {
        let scratch = Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.img")));
        let mut file = File::create(&scratch.0).unwrap();
        file.set_len(options.bytes).unwrap();
        for (at, bytes) in mkfs(&options).unwrap().writes() {
            file.seek(SeekFrom::Start(at)).unwrap();
            std::io::Write::write_all(&mut file, bytes).unwrap();
        }
        let out = Command::new("e2fsck").arg("-fn").arg(&scratch.0).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{name}: {text}");
    }
}

#[test]
fn what_cannot_be_made_has_one_clear_reason() {
    use wp_ext4::mkfs::MkfsError::*;
    let refuse = |change: fn(&mut MkfsOptions)| {
        let mut o = today(64 * MIB).options;
        change(&mut o);
        mkfs(&o).err().expect("refused")
    };
    assert_eq!(refuse(|o| o.bytes = 4096), TooSmall(4096));
    assert_eq!(refuse(|o| o.block_size = Some(8192)), BlockSize(8192));
    assert_eq!(refuse(|o| o.inode_size = 200), InodeSize(200));
    assert_eq!(refuse(|o| o.inode_size = 2048), InodeSize(2048));
    assert_eq!(refuse(|o| o.inode_ratio = Some(100)), InodeRatio(100));
    assert_eq!(refuse(|o| o.blocks_per_group = Some(100)), BlocksPerGroup(100));
    assert_eq!(refuse(|o| o.groups_per_flex = 3), GroupsPerFlex(3));
    assert_eq!(refuse(|o| o.reserved_percent = 51), ReservedPercent(51));
    assert_eq!(refuse(|o| o.inodes = Some(1 << 20)), TooManyInodes(1 << 20));
    assert_eq!(refuse(|o| o.journal = JournalSize::Mebibytes(50)), JournalTooBig(51200));
    assert_eq!(refuse(|o| o.journal = JournalSize::Mebibytes(0)), JournalBlocks(0));
    assert_eq!(refuse(|o| o.now = 0), NoTime);
    let without =
        |name: &str| mkfs(&today(64 * MIB).feature(name, false).options).err().expect("refused");
    assert_eq!(without("extent"), FeatureNeeds("64bit", "extent"));
    assert_eq!(without("sparse_super"), FeatureNeeds("resize_inode", "sparse_super"));
    let with =
        |name: &str| mkfs(&today(64 * MIB).feature(name, true).options).err().expect("refused");
    assert_eq!(with("inline_data"), UnsupportedFeatures("inline_data".to_owned()));
    let small = UnsupportedFeatures("bigalloc and blocks of 1 KiB".to_owned());
    assert_eq!(with("bigalloc"), small);
    let big = |change: fn(&mut MkfsOptions)| {
        let case = today(64 * MIB).feature("bigalloc", true);
        mkfs(&case.with(&[], |o| (o.block_size = Some(4096), change(o)).1).options).err()
    };
    assert_eq!(big(|o| o.cluster_size = Some(12288)), Some(ClusterSize(12288)));
    assert_eq!(big(|o| o.cluster_size = Some(4096)), Some(ClusterSize(4096)));
    let both = big(|o| o.features = o.features.set("fast_commit", true).expect("known"));
    let why = UnsupportedFeatures("bigalloc and fast_commit (or ijournal) together".to_owned());
    assert_eq!(both, Some(why));
    let clusters = today(64 * MIB).with(&[], |o| o.cluster_size = Some(16384)).options;
    assert_eq!(mkfs(&clusters).err(), Some(FeatureNeeds("a cluster size", "bigalloc")));
    assert_eq!(Features::today().set("nonsense", true), Err(UnknownFeature("nonsense".to_owned())));
    let mut old = era(64 * GIB).options;
    old.bytes = 1 << 45;
    assert_eq!(mkfs(&old).err(), Some(TooManyBlocks(1 << 33)));
}
