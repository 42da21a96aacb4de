//! Images of mkfs.btrfs.

use std::process::Command;

/// Runs mkfs.btrfs on a new file.
pub fn mkfs(bytes: u64, options: &[&str]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(bytes).expect("room");
    let run = Command::new("mkfs.btrfs").args(["-q", "-f"]).args(options).arg(file.path()).output();
    let run = run.expect("it runs");
    assert!(run.status.success(), "{options:?}: {}", String::from_utf8_lossy(&run.stderr));
    file
}
