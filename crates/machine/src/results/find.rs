//! Which folder is a result: the one answer that every command gives.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use wp_base::plain::Shown as _;

use super::{LATEST, events_of};
use crate::host::folder;

/// Folders below another one that are looked through for results: `results/NAME/HASH`.
const DEPTH: usize = 2;

/// Why a path is no result.
#[derive(Debug)]
pub enum NoResult {
    /// The host's error.
    Host(PathBuf, io::Error),
    /// No result is there or below.
    None(PathBuf),
    /// Several are below it.
    Several(PathBuf, Vec<PathBuf>),
}

impl fmt::Display for NoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoResult::Host(path, e) => write!(f, "{}: {e}", path.shown()),
            NoResult::None(path) => write!(f, "{}: no result found", path.shown()),
            NoResult::Several(path, all) => {
                let first: Vec<String> = all.iter().take(3).map(|p| p.shown()).collect();
                let more = if all.len() > first.len() { ", …" } else { "" };
                let (n, path) = (all.len(), path.shown());
                write!(f, "{path}: {n} results are below it: {}{more}", first.join(", "))
            }
        }
    }
}

/// Has a folder what makes it a result: a manifest, or events alone?
fn is_result(dir: &Path) -> bool {
    dir.join(folder::MANIFEST).is_file() || events_of(dir).is_some()
}

/// The result that a path names: its folder, a file in it, a link to it, a folder with one result
/// below it, or one with a link `latest` to it.
///
/// Errors: there is none; there are several and none is `latest`; the host's.
pub fn find(path: &Path) -> Result<PathBuf, NoResult> {
    let host = |e| NoResult::Host(path.to_owned(), e);
    let metadata = std::fs::metadata(path).map_err(host)?;
    if !metadata.is_dir() {
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Ok(dir.to_owned());
    }
    if is_result(path) {
        return Ok(path.to_owned());
    }
    let latest = path.join(LATEST);
    if is_result(&latest) {
        return Ok(latest);
    }
    let mut all = below(path, DEPTH).map_err(host)?;
    match all.len() {
        0 => Err(NoResult::None(path.to_owned())),
        1 => Ok(all.remove(0)),
        _ => Err(NoResult::Several(path.to_owned(), all)),
    }
}

/// Results below a folder, by name. Links are not followed. Errors: the host's.
fn below(dir: &Path, depth: usize) -> io::Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.path());
        }
    }
    names.sort();
    for path in names {
        if is_result(&path) {
            out.push(path);
        } else if depth > 1 {
            // One that may not be looked into has no result of this user.
            out.extend(below(&path, depth - 1).unwrap_or_default());
        }
    }
    Ok(out)
}

/// A result, for lists.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Listed {
    /// Its folder.
    pub path: PathBuf,
    /// The schema of its summary: `writepath.run/1`; empty: it has none.
    pub schema: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Events that its run had.
    pub events: u64,
    /// Does `latest` lead to it?
    pub is_latest: bool,
}

/// The results below a folder, that of `latest` marked. Errors: the host's.
pub fn found_below(root: &Path) -> io::Result<Vec<Listed>> {
    let latest = root.join(LATEST).canonicalize().ok();
    let listed = |path: PathBuf| {
        let summary = crate::host::text::bytes(&path.join(super::SUMMARY)).unwrap_or_default();
        let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap_or_default();
        Listed {
            schema: summary["schema"].as_str().unwrap_or_default().to_owned(),
            bytes: bytes_in(&path),
            events: summary["events"].as_u64().unwrap_or(0),
            is_latest: latest.is_some() && path.canonicalize().ok() == latest,
            path,
        }
    };
    Ok(below(root, DEPTH)?.into_iter().filter(|p| folder::is_result(p)).map(listed).collect())
}

/// Bytes of the files in a folder and below.
fn bytes_in(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(m) if m.is_dir() => bytes_in(&entry.path()),
        Ok(m) => m.len(),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

/// Removes a result below `root`, and the folder of its name if it was the last. Returns files in
/// it that are not of the result and stay. Errors: the host's.
pub fn remove(root: &Path, dir: &Path) -> io::Result<Vec<String>> {
    let left = folder::remove(dir)?;
    let name = dir.parent().filter(|name| *name != root);
    if let Some(name) = name {
        // A link to what is gone leads nowhere.
        let link = name.join(LATEST);
        if std::fs::read_link(&link).is_ok_and(|_| !link.exists()) {
            std::fs::remove_file(&link)?;
        }
        // Others may be in it.
        let _ = std::fs::remove_dir(name);
    }
    let link = root.join(LATEST);
    if std::fs::read_link(&link).is_ok_and(|_| !link.exists()) {
        std::fs::remove_file(&link)?;
    }
    Ok(left)
}

#[cfg(test)]
mod tests;
