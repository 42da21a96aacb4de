//! The workspace on disk: where it is and which files belong to it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the repository.
pub struct TextFile {
    /// Path from the workspace root, with `/` between its parts.
    pub path: String,
    /// Its contents.
    pub text: String,
}

/// Finds the workspace root: the nearest directory upwards whose `Cargo.toml` has `[workspace]`.
pub fn root() -> Result<PathBuf, String> {
    let start = std::env::current_dir().map_err(|e| format!("current directory: {e}"))?;
    start
        .ancestors()
        .find(|dir| {
            std::fs::read_to_string(dir.join("Cargo.toml"))
                .is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
        })
        .map(Path::to_path_buf)
        .ok_or_else(|| "no workspace above the current directory".to_owned())
}

/// The folder of builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Reads every text file that is committed or would be by `git add .`, in path order.
///
/// Without git (an unpacked archive) it walks the directory and leaves out build results.
pub fn text_files(root: &Path) -> Result<Vec<TextFile>, String> {
    let mut paths = match tracked(root) {
        Some(paths) => paths,
        None => {
            let mut paths = Vec::new();
            walk(root, "", &mut paths)?;
            paths
        }
    };
    paths.sort();
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        // A file that is in the index but was deleted has nothing to check.
        let Ok(bytes) = std::fs::read(root.join(&path)) else {
            continue;
        };
        // Images and other binary evidence are not text.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        files.push(TextFile { path, text });
    }
    Ok(files)
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let list = String::from_utf8(output.stdout).ok()?;
    Some(list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, under: &str, paths: &mut Vec<String>) -> Result<(), String> {
    let dir = root.join(under);
    let entries = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", dir.display()))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = if under.is_empty() { name.clone() } else { format!("{under}/{name}") };
        let kind = entry.file_type().map_err(|e| format!("{path}: {e}"))?;
        if kind.is_dir() && !["target", "results", ".git"].contains(&name.as_str()) {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}
