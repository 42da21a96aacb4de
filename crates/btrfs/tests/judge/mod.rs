//! `btrfs check`.

use std::path::Path;
use std::process::Command;

use crate::skip::skipped;

/// Is `btrfs` of btrfs-progs 6.2 here? Says so if not.
pub fn is_here(check: &str) -> bool {
    let version = Command::new("btrfs").arg("--version").output();
    let found = version.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("v6.2"));
    if !found {
        skipped(check, "btrfs 6.2 is not here");
    }
    found
}

/// What `btrfs check` has against an image in a file; empty: nothing. `more`: further options.
pub fn judge(image: &Path, more: &[&str]) -> String {
    let mut program = Command::new("timeout");
    program.args(["20", "btrfs", "check", "--readonly"]).args(more).arg(image);
    let run = program.output().expect("it runs");
    let text = [run.stdout, run.stderr].concat();
    if run.status.success() { String::new() } else { String::from_utf8_lossy(&text).into_owned() }
}
