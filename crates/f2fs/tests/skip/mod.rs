//! Checks that cannot run here: printed, and listed for `./test`.

use std::io::Write;
use std::process::Command;

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
