//! See `wp_fuzz::TARGETS`.
#![no_main]

use wp_fuzz::base::Family;

libfuzzer_sys::fuzz_target!(
    // Bases are made first: what that runs through is not what an input reaches.
    init: (0..Family::F2fs.count()).for_each(|n| drop(Family::F2fs.base(n))),
    |data: &[u8]| wp_fuzz::run("f2fs_recover", data)
);
