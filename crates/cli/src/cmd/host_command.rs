//! Shell commands of a user that run in another folder than the one where they were written.

use std::path::Path;

use crate::internal::shell;
use wp_base::plain::Shown as _;

/// The same with its first word from the root on, if that is a file of `folder` (`./check.sh`).
pub fn host_command(line: &str, folder: &Path) -> String {
    let trimmed = line.trim_start();
    let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
    let (word, rest) = trimmed.split_at(end);
    let is_relative = word.starts_with("./") || word.starts_with("../");
    let path = folder.join(word.strip_prefix("./").unwrap_or(word));
    if is_relative && path.is_file() {
        return format!("{}{rest}", shell(&path.shown()));
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_folder_is_found_from_elsewhere_and_nothing_else_is_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("check.sh"), "").expect("written");
        let at = dir.path().display();
        let of = |line: &str| host_command(line, dir.path());
        assert_eq!(of("./check.sh -v x"), format!("{at}/check.sh -v x"));
        assert_eq!(of("  ./check.sh"), format!("{at}/check.sh"));
        for same in ["check.sh", "./other.sh", "test -e a", "sh ./check.sh", "", "/bin/true"] {
            assert_eq!(of(same), same);
        }
    }
}
