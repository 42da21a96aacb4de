//! What an fsync sends on a real btrfs (Linux 6.18, loop device), and on ours (6.12): every bio of
//! it, with flags, length and block. Files are of 2 KiB, which btrfs keeps in their items. What is
//! sent after the fsync is not recorded; it shows in the places of the next one's blocks.

use wp_machine::workload::fsync_create::CASES;

use crate::fsync_bios;
use crate::fsync_bios::{Bio, recorded, summaries};

/// The recorded runs.
const OPTIONS: &str = "era=6.12.117,metadata=single";
const LATE: &str = "blocks that were copied before: an inode's item and a name's place in its \
                    directory are written late there, by the next commit \
                    (btrfs_delayed_update_inode, btrfs_insert_delayed_dir_index), which so copies \
                    leaves again that had been sent; ours are written at once";
const EARLY: &str = "as above: what is written late there has split no leaves before the fsync";

/// What differs, as `run: by how many blocks ours are behind theirs`, and why.
const DIFFERENCES: &[(&str, &str)] =
    &[("N1 over: 4", LATE), ("N100 alloc: -16", EARLY), ("N100 over: 40", LATE)];

/// By how much all bios that have a place, but super blocks, lie before theirs; `None`: flags,
/// lengths or order differ, or not all by as much.
fn behind(ours: &[Bio], theirs: &[Bio]) -> Option<i64> {
    let shape = |all: &[Bio]| -> Vec<_> { all.iter().map(|b| (b.0.clone(), b.2)).collect() };
    if shape(ours) != shape(theirs) {
        return None;
    }
    let is_tree = |b: &&Bio| b.2 > 1;
    let pairs = ours.iter().filter(is_tree).zip(theirs.iter().filter(is_tree));
    let by: Vec<i64> = pairs.map(|(a, b)| b.1 - a.1).collect();
    let fixed =
        |all: &[Bio]| -> Vec<i64> { all.iter().filter(|b| !is_tree(b)).map(|b| b.1).collect() };
    let is_same = by.windows(2).all(|w| w[0] == w[1]) && fixed(ours) == fixed(theirs);
    by.first().copied().filter(|_| is_same)
}

#[test]
fn an_fsync_sends_what_linux_6_18_sends() {
    let all = summaries("summary_2k.json");
    let mut found = Vec::new();
    for files in [1, 10, 100] {
        let ours = fsync_bios::ours(&wp_btrfs::ENTRY, OPTIONS, files, 2048);
        for (case, ours) in CASES.iter().zip(ours) {
            let name = format!("btrfs-N{files}-{case}");
            // Of ten files there are binary traces only.
            let theirs = match all.get(&name) {
                Some(theirs) => theirs.clone(),
                None => recorded(&format!("2k.{name}.tr.blktrace")),
            };
            assert!(!theirs.is_empty(), "{name}");
            match behind(&ours, &theirs) {
                Some(0) => {}
                Some(by) => found.push(format!("N{files} {case}: {by}")),
                None => panic!("{name}: {ours:?}, there {theirs:?}"),
            }
        }
    }
    let listed: Vec<&str> = DIFFERENCES.iter().map(|(what, _)| *what).collect();
    assert!(DIFFERENCES.iter().all(|(_, why)| !why.is_empty()));
    assert_eq!(found, listed, "differences, and what is listed:\n{}", found.join("\n"));
}
