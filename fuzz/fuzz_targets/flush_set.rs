//! See `wp_fuzz::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wp_fuzz::run("flush_set", data));
