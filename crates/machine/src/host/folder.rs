//! Folders of results.
//!
//! Picture:    a new folder is written under a temporary name and renamed; one that is there is
//!             brought up to date file by file, its manifest last.
//! Invariants: 1. only files that the old manifest names are replaced or removed: what the user
//!                has put there stays;
//!             2. equal runs at once leave one whole result, and each of them succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path};

use rustix::fs::{FlockOperation, flock};
use wp_base::plain::Shown as _;

use super::leftover::{Leftover, hold};
use super::output::{self, Existing, folder_of, rename_new};
use super::text;
use crate::results::sha256;

/// The file with the hashes of the others.
pub const MANIFEST: &str = "MANIFEST.json";

/// Writes `files`, by names relative to `dir`, and among them the manifest.
///
/// Errors: the host's; `AlreadyExists` for a file that is there and that no earlier result has
///         written.
pub fn write(dir: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    std::fs::create_dir_all(folder_of(dir))?;
    match std::fs::symlink_metadata(dir) {
        Ok(_) => update(dir, files),
        Err(_) => match make(dir, files) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => update(dir, files),
            done => done,
        },
    }
}

/// A new folder. Errors: the host's; `AlreadyExists`: somebody else has made it meanwhile.
fn make(dir: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let (temporary, held) = hold(|| {
        let made = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(folder_of(dir))?;
        let path = std::path::absolute(made.keep())?;
        Ok((path.clone(), Leftover::Directory(path)))
    })?;
    for (name, bytes) in files {
        let path = temporary.join(name);
        std::fs::create_dir_all(folder_of(&path))?;
        let mut file = File::create_new(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
    }
    held.release(|| rename_new(&temporary, dir))
}

/// A folder that is there.
fn update(dir: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let lock = File::open(dir)?;
    // Without locks (some network file systems) each file is whole all the same.
    drop(flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from));
    let old = named(dir);
    for name in files.keys().map(String::as_str).chain([MANIFEST]) {
        // A link's target is no result, and a pipe cannot be looked into.
        let there = std::fs::symlink_metadata(dir.join(name));
        if there.is_ok_and(|m| !m.is_file()) {
            let why = format!("{name} in {} is not a regular file: move it away", dir.shown());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
    }
    for (name, bytes) in files.iter().filter(|(name, _)| *name != MANIFEST) {
        let is_foreign = |there: Vec<u8>| !old.contains(name) && there != *bytes;
        if std::fs::read(dir.join(name)).is_ok_and(is_foreign) {
            let why = format!(
                "{name} in {} does not belong to an earlier result: move it away",
                dir.shown()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
    }
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::create_dir_all(folder_of(&path))?;
        output::write(&path, bytes, Existing::Replace)
    };
    for (name, bytes) in files.iter().filter(|(name, _)| *name != MANIFEST) {
        put(name, bytes)?;
    }
    for name in old.iter().filter(|name| !files.contains_key(*name)) {
        match std::fs::remove_file(dir.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    files.get(MANIFEST).map_or(Ok(()), |bytes| put(MANIFEST, bytes))
}

/// The files of the result that a folder holds. None: there is no manifest, or it is damaged.
fn named(dir: &Path) -> BTreeSet<String> {
    hashes(dir).into_keys().collect()
}

/// The same with the SHA-256 of each.
fn hashes(dir: &Path) -> BTreeMap<String, String> {
    let manifest = text::bytes(&dir.join(MANIFEST)).unwrap_or_default();
    let manifest: BTreeMap<String, String> = serde_json::from_slice(&manifest).unwrap_or_default();
    let is_below =
        |name: &String| Path::new(name).components().all(|c| matches!(c, Component::Normal(_)));
    manifest.into_iter().filter(|(name, _)| is_below(name)).collect()
}

/// Is a folder a result: has its manifest what was asked for, with a hash?
pub fn is_result(dir: &Path) -> bool {
    let is_hash = |h: &String| h.len() == 64 && h.bytes().all(|b| b.is_ascii_hexdigit());
    hashes(dir).get("resolved.toml").is_some_and(is_hash)
}

/// Lets the link `name` beside `dir` lead there. Errors: the host's; `AlreadyExists`: it is there,
/// and is no link.
pub fn link_to(dir: &Path, name: &str) -> io::Result<()> {
    let parent = folder_of(dir);
    lead(parent, name, Path::new(dir.file_name().unwrap_or_default()))
}

/// Errors: the host's; `AlreadyExists`: there is something of that name, and it is no link.
fn lead(parent: &Path, name: &str, target: &Path) -> io::Result<()> {
    let link = parent.join(name);
    if std::fs::symlink_metadata(&link).is_ok_and(|m| !m.is_symlink()) {
        let why = format!("{} is not a symbolic link: move it away", link.shown());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let (temporary, held) = hold(|| {
        let prefix = format!(".{name}.");
        let made = tempfile::Builder::new()
            .prefix(&prefix)
            .make_in(parent, |path| symlink(target, path))?;
        let path = std::path::absolute(made.into_temp_path().keep().map_err(|e| e.error)?)?;
        Ok((path.clone(), Leftover::File(path)))
    })?;
    held.release(|| std::fs::rename(&temporary, &link))
}

/// Lets the link `name` in `root` lead to `target`, which is below `root`. It is a convenience:
/// what stands in its way stays, and a file system without links has none.
pub fn lead_to(root: &Path, name: &str, target: &Path) {
    drop(lead(root, name, target));
}

/// Removes the files of a result that a folder holds, as far as they are what the result wrote, and
/// the folder if nothing else is in it. Returns what is left. Errors: the host's.
pub fn remove(dir: &Path) -> io::Result<Vec<String>> {
    let hashes = hashes(dir);
    let mut is_whole = true;
    for (name, hash) in hashes.iter().map(|(n, h)| (n.as_str(), Some(h))).chain([(MANIFEST, None)])
    {
        // A link, a folder or a changed file is the user's.
        let path = dir.join(name);
        let is_file = std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file());
        let is_ours = match hash {
            Some(hash) => is_file && sha256(&std::fs::read(&path)?) == *hash,
            None => is_whole,
        };
        if is_ours && is_file {
            std::fs::remove_file(&path)?;
        } else {
            is_whole &= !path.exists();
        }
        let mut folder = folder_of(&path);
        while folder != dir && folder.starts_with(dir) && std::fs::remove_dir(folder).is_ok() {
            folder = folder_of(folder);
        }
    }
    let mut left = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        left.push(entry?.file_name().to_string_lossy().into_owned());
    }
    left.sort();
    if left.is_empty() {
        std::fs::remove_dir(dir)?;
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let mut all: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(n, b)| ((*n).to_owned(), b.as_bytes().to_vec())).collect();
        let manifest: BTreeMap<&str, &str> = files.iter().map(|(n, _)| (*n, "hash")).collect();
        let manifest = serde_json::to_vec(&manifest).expect("written");
        all.insert(MANIFEST.to_owned(), manifest);
        all
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("listed");
        let mut names: Vec<String> = entries
            .map(|e| e.expect("listed").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_second_result_replaces_the_first_and_nothing_else() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("name/0123");
        write(&dir, &result(&[("a", "1"), ("inputs/b", "2")])).expect("written");
        std::fs::write(dir.join("notes.txt"), "the user's").expect("written");
        write(&dir, &result(&[("a", "3"), ("c", "4")])).expect("written");
        assert_eq!(names(&dir), [MANIFEST, "a", "c", "inputs", "notes.txt"]);
        assert_eq!(names(&dir.join("inputs")), [""; 0]);
        assert_eq!(std::fs::read(dir.join("a")).expect("read"), b"3");
        assert_eq!(names(&root.path().join("name")), ["0123"]);
    }

    #[test]
    fn what_a_link_in_it_leads_to_is_not_written_and_a_pipe_is_not_opened() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let root = tempfile::tempdir().expect("a directory");
        let (dir, precious) = (root.path().join("0123"), root.path().join("precious"));
        write(&dir, &result(&[("a", "1")])).expect("written");
        std::fs::write(&precious, "the user's").expect("written");
        std::fs::remove_file(dir.join("a")).expect("removed");
        symlink(&precious, dir.join("a")).expect("linked");
        let refused = write(&dir, &result(&[("a", "2")])).expect_err("a link");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&precious).expect("read"), b"the user's");
        std::fs::remove_file(dir.join("a")).expect("removed");
        mknodat(CWD, dir.join("a"), FileType::Fifo, Mode::RWXU, 0).expect("made");
        let refused = write(&dir, &result(&[("a", "2")])).expect_err("a pipe");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_of_no_result_is_not_replaced() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("0123");
        std::fs::create_dir(&dir).expect("made");
        std::fs::write(dir.join("a"), "the user's").expect("written");
        let e = write(&dir, &result(&[("a", "1"), ("b", "2")])).expect_err("refused");
        assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(&dir), ["a"]);
        assert_eq!(std::fs::read(dir.join("a")).expect("read"), b"the user's");
    }

    #[test]
    fn a_manifest_names_nothing_outside_of_its_folder() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("0123");
        std::fs::create_dir(&dir).expect("made");
        let outside = root.path().join("outside");
        std::fs::write(&outside, "the user's").expect("written");
        let evil = format!("{{\"../outside\": \"\", \"{}\": \"\"}}", outside.display());
        std::fs::write(dir.join(MANIFEST), evil).expect("written");
        write(&dir, &result(&[("a", "1")])).expect("written");
        assert!(outside.exists());
    }

    #[test]
    fn equal_runs_at_once_all_succeed() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("name/0123");
        let files = result(&[("a", "1"), ("b", "2"), ("c/d", "3")]);
        std::thread::scope(|s| {
            let runs: Vec<_> = (0..8).map(|_| s.spawn(|| write(&dir, &files))).collect();
            runs.into_iter().for_each(|r| r.join().expect("no panic").expect("written"));
        });
        assert_eq!(names(&dir), [MANIFEST, "a", "b", "c"]);
        assert_eq!(names(&root.path().join("name")), ["0123"]);
    }

    #[test]
    fn a_link_is_led_elsewhere_and_a_file_of_its_name_stays() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["one", "two"] {
            link_to(&root.path().join(name), "latest").expect("linked");
            let target = std::fs::read_link(root.path().join("latest")).expect("a link");
            assert_eq!(target, Path::new(name));
        }
        std::fs::write(root.path().join("mine"), "").expect("written");
        assert!(link_to(&root.path().join("two"), "mine").is_err());
        assert_eq!(names(root.path()), ["latest", "mine"]);
    }
}
