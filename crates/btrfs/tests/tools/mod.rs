//! The real programs, where they are installed.

use std::path::Path;
use std::process::Command;

use crate::skip::skipped;

/// Is version 6.2 of `tool` (of btrfs-progs) here? Other versions have other defaults.
pub fn has_tool(check: &str, tool: &str) -> bool {
    let version = Command::new(tool).arg("--version").output();
    let found = version.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("v6.2"));
    if !found {
        skipped(check, &format!("{tool} 6.2 is not here"));
    }
    found
}

/// What `btrfs check` has against an image; empty: nothing.
pub fn check(image: &Path) -> String {
    let mut program = Command::new("btrfs");
    program.args(["check", "--readonly", "--check-data-csum"]).arg(image);
    let run = program.output().expect("it runs");
    let text = [run.stdout, run.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if run.status.success() { String::new() } else { text }
}
