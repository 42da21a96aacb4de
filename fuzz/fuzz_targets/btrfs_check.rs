//! See `wp_fuzz::TARGETS`.
#![no_main]

use wp_fuzz::base::Family;

libfuzzer_sys::fuzz_target!(
    // Bases are made first: what that runs through is not what an input reaches.
    init: (0..Family::Btrfs.count()).for_each(|n| drop(Family::Btrfs.base(n))),
    |data: &[u8]| wp_fuzz::run("btrfs_check", data)
);
