//! Our check and `btrfs check` on damaged images: clean for both or for neither, but for
//! differences that are known by name.
//!
//! `CHECK_ROUNDS` sets the number of damaged images of each kind.

use crate::judge;
use crate::reference;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::damage::Map;
use crate::images::Bytes;
use wp_base::Rng;
use wp_btrfs::check::{CheckOptions, Kind, check};
use wp_btrfs::replay::{RecoverOptions, recover};
use wp_medium::Overlay;

/// Kinds of damage that only ours finds, and in what: `btrfs check` 6.2 does not look there.
const ONLY_OURS: &[(Kind, &str)] = &[
    (Kind::BlockGroup, "chunk_objectid; bits of the type that mean nothing"),
    (Kind::Chunk, "stripes, and keys of system chunks, of which the super block has a copy"),
    (Kind::DevExtent, "all but the length: its chunk is not looked up"),
    (Kind::Dentry, "offset in the key that an entry leads to; `..` of the data relocation tree"),
    (Kind::DirSize, "of a directory with an item that is cut off"),
    (Kind::Extent, "flags that are neither data nor tree block"),
    (Kind::FileExtent, "encryption"),
    (Kind::Inode, "unknown flags; inodes of the data relocation tree"),
    (Kind::Item, "items that are cut off; inode items not at 0"),
    (Kind::Links, "of an inode whose names are cut off"),
    (Kind::Root, "the default subvolume"),
    (Kind::RootRef, "the directory of a reference"),
    (Kind::Sums, "items not at sectors; checksums of what is no data"),
    (Kind::TreeBlock, "unknown bits of the header's flags; uuid of chunks"),
    (Kind::Xattr, "attributes that are cut off, hashes of their names"),
];

#[test]
fn both_checks_agree_on_damaged_images() {
    if !judge::is_here("btrfs check of damaged images") {
        return;
    }
    let rounds: u64 = std::env::var("CHECK_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let first: u64 = std::env::var("CHECK_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for name in ["btrfs-treelog", "btrfs-n4k", "btrfs-subvol", "btrfs-xxhash"] {
        let Some((bytes, _)) = reference::reference("btrfs damaged", name) else { return };
        let mut bytes = Bytes(bytes);
        let overlay = Overlay::new(&bytes);
        recover(&overlay, &RecoverOptions::default()).expect("recovers");
        let pages = overlay.pages();
        for (n, page) in pages {
            let at = n as usize * 4096;
            bytes.0[at..at + 4096].copy_from_slice(page.bytes());
        }
        let map = Map::of(&bytes);
        let scratch = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::write(scratch.path(), &bytes.0).expect("room");
        let file = File::options().write(true).open(scratch.path()).expect("a file");
        assert_eq!(judge::judge(scratch.path(), &[]), "", "{name} without damage");
        for seed in first..first + rounds {
            let mut rng = Rng::stream(seed, &format!("damaged-{name}"));
            let (at, before, said) = map.damage(&mut bytes.0, &mut rng);
            let size = map.common.node_bytes;
            file.write_all_at(&bytes.0[at..at + size], at as u64).expect("room");
            let text = judge::judge(scratch.path(), &[]);
            let is_clean = text.is_empty();
            let report = check(&bytes, &CheckOptions::default());
            let ours = report.as_ref().is_ok_and(|r| r.is_clean());
            let what = match (ours, is_clean) {
                (true, true) => "clean for both",
                (false, false) => "found by both",
                (false, true) => "found by ours alone",
                (true, false) => "found by btrfs check alone",
            };
            *counts.entry(what).or_default() += 1;
            if let (false, true, Ok(report)) = (ours, is_clean, &report) {
                let kinds: Vec<Kind> = report.findings.iter().map(|f| f.kind).collect();
                let first = kinds.iter().find(|k| !k.is_harmless());
                let is_known = first.is_some_and(|f| ONLY_OURS.iter().any(|(k, _)| k == f));
                assert!(is_known, "{name}, seed {seed}: {said}: {:#?}", report.findings);
            }
            if ours != is_clean {
                println!("{name} seed {seed}: {what}: {said}");
                match report {
                    Ok(r) => r.findings.iter().take(3).for_each(|f| println!("    {f:?}")),
                    Err(e) => println!("    {e}"),
                }
                if !is_clean {
                    let text = text.lines().filter(|l| !l.starts_with("[")).take(8);
                    text.for_each(|l| println!("    > {l}"));
                }
            }
            bytes.0[at..at + size].copy_from_slice(&before);
            file.write_all_at(&before, at as u64).expect("room");
        }
    }
    println!("{counts:?}");
    let both = counts.get("found by both").copied().unwrap_or(0);
    assert!(both > rounds, "{counts:?}");
    assert_eq!(counts.get("found by btrfs check alone"), None, "{counts:?}");
}
