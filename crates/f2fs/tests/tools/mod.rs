//! The real programs, where they are installed.

use std::process::Command;

use crate::skip::skipped;

/// Is version 1.15.0 of `tool` (of f2fs-tools) here? Other versions have other defaults and
/// messages.
pub fn has_tool(check: &str, tool: &str) -> bool {
    let version = Command::new(tool).arg("-V").output();
    let found = version.is_ok_and(|o| {
        let both = [o.stdout, o.stderr].concat();
        String::from_utf8_lossy(&both).contains("1.15.0")
    });
    if !found {
        skipped(check, &format!("{tool} 1.15.0 is not here"));
    }
    found
}
