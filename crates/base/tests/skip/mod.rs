//! Checks that cannot run here: printed, and listed for `./test`.
//!
//! One file for the tests of all crates below `wp-machine`, whose `testing::skipped` is the same.

use std::io::Write;

/// Says that `check` is left out, and why.
pub fn skipped(check: &str, why: &str) {
    let line = format!("{check}: {why}");
    eprintln!("SKIPPED: {line}");
    if let Some(path) = std::env::var_os("WRITEPATH_SKIPS") {
        let list = std::fs::OpenOptions::new().append(true).create(true).open(path);
        list.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()))
            .expect("the skip list can be written");
    }
}
