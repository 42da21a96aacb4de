//! The real programs, where they are installed.

use std::process::Command;

use crate::skip::skipped;

/// Is version 2.2.9 of `tool` (of nilfs-tools) here? Other versions have other defaults.
pub fn has_tool(check: &str, tool: &str) -> bool {
    let version = Command::new(tool).arg("-V").output();
    let found = version.is_ok_and(|o| {
        let both = [o.stdout, o.stderr].concat();
        String::from_utf8_lossy(&both).contains("2.2.9")
    });
    if !found {
        skipped(check, &format!("{tool} 2.2.9 is not here"));
    }
    found
}
