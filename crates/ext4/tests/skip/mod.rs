//! Checks that cannot run here, and those that need e2fsprogs.

use std::process::Command;

#[path = "../../../base/tests/skip/mod.rs"]
mod shared;

pub use shared::skipped;

/// Is version 1.47.0 of `tool` (of e2fsprogs) here? Other versions have other defaults and
/// messages.
pub fn has_tool(check: &str, tool: &str) -> bool {
    let version = Command::new(tool).arg("-V").output();
    let found = version.is_ok_and(|o| String::from_utf8_lossy(&o.stderr).contains("1.47.0"));
    if !found {
        skipped(check, &format!("{tool} 1.47.0 is not here"));
    }
    found
}
