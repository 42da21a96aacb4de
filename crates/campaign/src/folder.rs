//! Program files, alone or in a folder.
//!
//! A line `# File systems: ext4, F2FS` at the top of a program says that it is for these only.

use std::path::{Path, PathBuf};

use wp_base::plain::Shown as _;
use wp_machine::host::text;
use wp_workload::program::Program;

/// How the line begins that says for which file systems a program is.
const ONLY: &str = "# File systems:";

/// A program of a file.
#[derive(Clone, Debug)]
pub struct ProgramFile {
    /// The file.
    pub path: PathBuf,
    /// Its name without folder and suffix.
    pub name: String,
    /// Its steps.
    pub program: Program,
    /// The file systems that it is for, in lower case; empty: all.
    only: Vec<String>,
}

impl ProgramFile {
    /// Reads a file. Errors: the host's, and what is wrong in it, with its name.
    fn read(path: &Path) -> Result<ProgramFile, String> {
        let at = |e: String| format!("{}: {e}", path.shown());
        let text = text::read(path).map_err(|e| at(e.to_string()))?;
        let program = Program::parse(&text).map_err(at)?;
        let head = text.lines().take_while(|l| l.starts_with('#'));
        let only = head.filter_map(|l| l.strip_prefix(ONLY)).flat_map(|names| names.split(','));
        let only = only.map(|n| n.trim().trim_end_matches('.').to_lowercase()).collect();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(ProgramFile { path: path.to_owned(), name, program, only })
    }

    /// Is it for this file system?
    pub fn is_for(&self, fs: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|n| n == fs)
    }
}

/// The program of a file, or those of a folder (`*.txt`), in order of their names.
///
/// Errors: the host's, what is wrong in a file, a folder without programs.
pub fn read(path: &Path) -> Result<Vec<ProgramFile>, String> {
    if !path.is_dir() {
        return ProgramFile::read(path).map(|one| vec![one]);
    }
    let at = |e: std::io::Error| format!("{}: {e}", path.shown());
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut files: Vec<PathBuf> = entries.map_err(at)?.into_iter().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "txt") && f.is_file());
    files.sort();
    if files.is_empty() {
        return Err(format!("{}: no program (*.txt) in this folder", path.shown()));
    }
    files.iter().map(|f| ProgramFile::read(f)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_a_folder_come_by_name_and_may_be_for_some_file_systems() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("written");
        };
        assert!(read(dir.path()).is_err_and(|e| e.contains("no program")));
        write("b.txt", "# about\n# File systems: ext4, F2FS.\nsync\n");
        write("a.txt", "sync\n# File systems: btrfs\nsync\n");
        write("README.md", "no program\n");
        let all = read(dir.path()).expect("two programs");
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let are_for = |fs: &str| all.iter().map(|p| p.is_for(fs)).collect::<Vec<_>>();
        // Only the head of a file says it.
        assert_eq!(are_for("btrfs"), [true, false]);
        assert_eq!(are_for("f2fs"), [true, true]);
        assert_eq!(read(&dir.path().join("a.txt")).expect("a file")[0].program.0.len(), 2);
        write("c.txt", "snyc\n");
        assert!(read(dir.path()).is_err_and(|e| e.contains("c.txt: line 1")));
    }
}
