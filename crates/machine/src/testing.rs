//! What tests that need something from outside share: a skip that is seen, and snapshots.
//!
//! A test that cannot run says so and returns; `./test` lists what was skipped, and fails on it
//! with `--strict`. See docs/testing.md.

pub mod host;

use std::io::Write;
use std::path::PathBuf;

/// Says on stderr, and in the file that `WRITEPATH_SKIPS` names, that a check could not run.
///
/// One line a call, `<check>: <reason>`, appended in one write: tests run side by side.
pub fn skipped(check: &str, reason: &str) {
    let line = format!("{check}: {reason}\n");
    // A closed stderr is no reason to fail a test that only wanted to say that it did nothing.
    drop(write!(std::io::stderr(), "SKIPPED: {line}"));
    if let Some(path) = std::env::var_os("WRITEPATH_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the file that ./test made can be appended to");
    }
}

/// Should this run rewrite what is pinned (`WRITEPATH_BLESS=1`) and not compare with it?
pub fn blessing() -> bool {
    std::env::var_os("WRITEPATH_BLESS").is_some_and(|value| value == "1")
}

/// A path inside the repository, as it was when this was built.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A path in `testdata/reference`, the data of real kernels and of a real drive (its README says
/// how each was made). Panics, naming it, where it is missing: a checkout has all of it.
pub fn reference(path: &str) -> PathBuf {
    let full = repository("testdata/reference").join(path);
    assert!(full.exists(), "testdata/reference/{path} is missing: the checkout is not whole");
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found() {
        assert!(repository("Cargo.toml").exists());
        assert!(reference("README.md").exists());
    }
}
