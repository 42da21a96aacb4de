//! Fast commits of ext4, ours and those of Linux 6.12: who replays whose to which tree.

use std::collections::BTreeMap;
use std::path::Path;

use wp_machine::testing::skipped;
use wp_parity::fast_commits::{
    Area, Known, State, against_e2fsck, by_kernel, difference, ours, recovered, theirs,
};

use crate::guest::guest;

/// Without `metadata_csum` e2fsck comes to the end of its replay.
const NO_SUMS: &str = ",features=^metadata_csum";

/// A folder for images.
fn in_memory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).expect("a directory")
}

fn has_e2fsck() -> bool {
    std::process::Command::new("e2fsck").arg("-V").output().is_ok()
}

/// How many states e2fsck recovers to our tree (`None`), and how many otherwise, by why.
fn judged(states: &[State]) -> BTreeMap<Option<Known>, usize> {
    let dir = in_memory();
    let image = dir.path().join("image");
    let mut counts = BTreeMap::new();
    for state in states.iter().filter(|s| matches!(s.area, Area::Whole(_))) {
        let known = against_e2fsck(state, &image).expect("no difference but the known ones");
        *counts.entry(known).or_default() += 1;
    }
    println!("e2fsck: {counts:?}");
    counts
}

/// What a guest's kernel makes of states; how many it and we refuse.
fn mounted(guest: &wp_parity::kernel_lab::Kernel, states: &[State]) -> usize {
    let dir = in_memory();
    let theirs = by_kernel(guest, dir.path(), states).expect("the guest can");
    assert_eq!(theirs.len(), states.len());
    let mut refused = 0;
    for (state, kernel) in states.iter().zip(theirs) {
        let (ours, linux) = (recovered(&state.medium), kernel.tree);
        match (&ours, &linux) {
            (Ok(a), Ok(b)) => assert_eq!(difference(a, b), None, "{}", state.name),
            (Err(_), Err(_)) => refused += 1,
            _ => panic!("{}: {:?} and {:?}", state.name, ours.err(), linux.err()),
        }
        assert_eq!(kernel.unreadable, [""; 0], "{}", state.name);
    }
    println!("guest: {} states, {refused} of them refused on both sides", states.len());
    refused
}

#[test]
fn e2fsck_replays_our_fast_commits_to_our_tree_or_differs_in_known_ways() {
    if !has_e2fsck() {
        return skipped("e2fsck replays our fast commits", "e2fsck is missing");
    }
    for more in ["", ",fast_fix=all"] {
        let states = ours(&format!("{NO_SUMS}{more}"), (1, 120), 6).expect("states");
        let counts = judged(&states);
        let all: usize = counts.values().sum();
        assert!(all > 120 && counts[&None] > 40, "`{more}`: {counts:?}");
        assert_eq!(counts.get(&Some(Known::Checksum)), None);
        // A directory makes a full commit with the fix.
        let has_directories = counts.contains_key(&Some(Known::Directory));
        assert_eq!(has_directories, more.is_empty(), "{counts:?}");
    }
    let counts = judged(&ours("", (1, 20), 6).expect("states"));
    assert!(counts[&Some(Known::Checksum)] > 10, "{counts:?}");
}

#[test]
fn linux_replays_our_fast_commits_to_our_tree() {
    let check = "linux_replays_our_fast_commits_to_our_tree";
    let guest = match guest(&["ext4"]) {
        Ok(guest) => guest,
        Err(why) => return skipped(check, &why),
    };
    for more in ["", ",fast_fix=all"] {
        let states = ours(more, (1, 200), 4).expect("states");
        assert!(states.len() > 150, "`{more}`: {}", states.len());
        mounted(&guest, &states);
    }
}

#[test]
fn we_replay_the_fast_commits_of_linux_to_its_tree() {
    let check = "we_replay_the_fast_commits_of_linux_to_its_tree";
    let guest = match guest(&["ext4"]) {
        Ok(guest) => guest,
        Err(why) => return skipped(check, &why),
    };
    let dir = in_memory();
    let states = theirs(&guest, dir.path(), "", (1, 8), 20).expect("states");
    assert!(states.len() > 100, "{}", states.len());
    mounted(&guest, &states);
    if has_e2fsck() {
        // What e2fsck makes of them is not a matter of who wrote them.
        let counts = judged(&states);
        assert!(counts[&Some(Known::Checksum)] > 20, "{counts:?}");
        let states = theirs(&guest, dir.path(), ",^metadata_csum", (1, 3), 20).expect("states");
        let counts = judged(&states);
        assert!(counts.get(&None).is_some_and(|n| *n > 5), "{counts:?}");
    }
}
