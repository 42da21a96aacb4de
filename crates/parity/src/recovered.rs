//! Ours beside real kernels: the files that a recovery brings back.
//!
//! Picture:    a crashed image that a real kernel left (`ext4-*`, `f2fs-*`, `nilfs2-*`), or a log
//!             of dm-log-writes cut at a mark (`iolog-*`) -> recovery in memory -> every file,
//!             against what the manifest says the kernel found in it.
//! Invariants: 1. nothing is written but memory: the images stay as they are.
//!             2. what a manifest says of a file is compared; what it does not say is not.

mod f2fs;
mod nilfs2;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_base::{FsResult, Sector};
use wp_ext4::image::{AtMount, Image, InspectOptions, list, recover_at_mount};
use wp_jbd2::RecoverPolicy;
use wp_machine::files::Bytes;
use wp_medium::write_log::{LogEntry, Until, WriteLog};
use wp_medium::{MediumView, Overlay, View};
use wp_vfs::FileInfo;

/// One image under the rules of one kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// Folder of the reference data, with `@mark` for a log.
    pub case: String,
    /// Kernel: `6.18`.
    pub kernel: String,
    /// Files that the kernel found; 0 where it refused the mount.
    pub expected: usize,
    /// Those of them that are the same here in everything that the manifest says.
    pub equal: usize,
    /// Files that only we found.
    pub surplus: usize,
    /// Transactions that were replayed.
    pub transactions: u32,
    /// Nodes of the fsync log that were applied (F2FS).
    pub nodes: u32,
    /// Blocks of them that were written home; of F2FS data that came back.
    pub blocks: u64,
    /// Blocks that were not, being revoked.
    pub revoked: u64,
    /// Fast commits.
    pub fast_commits: u32,
    /// Orphans that were deleted.
    pub deleted: u32,
    /// Orphans that were cut to their size.
    pub truncated: u32,
    /// What `mount` answers here, where it fails.
    pub refused: Option<String>,
    /// Did the kernel refuse too?
    pub refused_there: bool,
    /// The first thing that is not as the kernel has it.
    pub difference: Option<String>,
}

impl Row {
    fn empty(case: String, kernel: (u16, u16), refused_there: bool, expected: usize) -> Row {
        Row {
            case,
            kernel: format!("{}.{}", kernel.0, kernel.1),
            expected,
            equal: 0,
            surplus: 0,
            transactions: 0,
            nodes: 0,
            blocks: 0,
            revoked: 0,
            fast_commits: 0,
            deleted: 0,
            truncated: 0,
            refused: None,
            refused_there,
            difference: None,
        }
    }

    /// Is all as the kernel has it?
    pub fn is_equal(&self) -> bool {
        self.difference.is_none()
    }
}

/// Every case in the folder `reference` of the reference data, in order of names.
///
/// Also the names of the cases that are not compared here. `at` hears of each case: how many are
/// done, of how many, and its name. Errors: what cannot be read, in words.
pub fn rows(
    reference: &Path,
    at: &dyn Fn(u64, u64, &str),
) -> Result<(Vec<Row>, Vec<String>), String> {
    let host = |e: std::io::Error| format!("{}: {e}", reference.shown());
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(reference).map_err(host)? {
        names.push(entry.map_err(host)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    let all = names.len() as u64;
    for (done, name) in (0..).zip(names) {
        at(done, all, &name);
        let folder = reference.join(&name);
        if name.starts_with("ext4-") && folder.join("image.img.zst").exists() {
            images(&name, &folder, &mut rows)?;
        }
        if name.starts_with("f2fs-") && folder.join("manifest.json").exists() {
            f2fs::images(&name, &folder, &mut rows)?;
        }
        if name.starts_with("nilfs2-") && folder.join("image.img.zst").exists() {
            nilfs2::images(&name, &folder, &mut rows)?;
        }
        if name.starts_with("btrfs-") && folder.is_dir() {
            // Compared by hashes of their files: `cargo test -p wp-btrfs --test all
            // reference_images`.
            skipped.push(name.clone());
        }
        match name.as_str() {
            "iolog-ext4" => marks(&name, &folder, row, &mut rows)?,
            "iolog-f2fs" => marks(&name, &folder, f2fs::row, &mut rows)?,
            "iolog-nilfs2" => marks(&name, &folder, nilfs2::row, &mut rows)?,
            _ => {}
        }
    }
    Ok((rows, skipped))
}

/// Unpacks a file of the reference data.
pub fn unpacked(path: &Path) -> Result<Bytes, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", path.shown());
    let packed = std::fs::read(path).map_err(wrong)?;
    zstd::decode_all(packed.as_slice()).map(Bytes).map_err(wrong)
}

fn manifest(folder: &Path) -> Result<Value, String> {
    let path = folder.join("manifest.json");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.shown()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.shown()))
}

/// Major and minor version at the start of `6.18.44-...`.
fn version(text: &str) -> Option<(u16, u16)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The kernels that a manifest has seen recover its image, and whether they refused.
fn kernels(manifest: &Value) -> Vec<((u16, u16), bool)> {
    let mut out = Vec::new();
    let first = manifest["kernel"].as_str().and_then(version);
    out.extend(first.map(|v| (v, manifest["kernel_mount_rc"].as_i64().unwrap_or(0) != 0)));
    let check = &manifest["cross_check"];
    let same = check["differences"].as_array().is_some_and(Vec::is_empty);
    let other = check["kernel"].as_str().and_then(version).filter(|_| same);
    out.extend(other.map(|v| (v, false)));
    // Where kernels differ, the manifest says so in words: `{"6.1.176 (UML)": "mount refused,
    // .."}`.
    for (kernel, said) in check.as_object().into_iter().flatten() {
        if let (Some(v), Some(said)) = (version(kernel), said.as_str()) {
            out.push((v, said.starts_with("mount refused")));
        }
    }
    out
}

fn images(name: &str, folder: &Path, rows: &mut Vec<Row>) -> Result<(), String> {
    let manifest = manifest(folder)?;
    let image = unpacked(&folder.join("image.img.zst"))?;
    let seen = kernels(&manifest);
    if seen.is_empty() {
        return Err(format!("{}: its manifest names no kernel", folder.shown()));
    }
    for (kernel, refused) in seen {
        let files = manifest["expected_after_recovery"].as_array();
        let expected = files.filter(|_| !refused).map_or(&[][..], Vec::as_slice);
        rows.push(row(name.to_owned(), kernel, refused, &image, expected));
    }
    Ok(())
}

/// How a case is made a row: name, kernel, did the kernel refuse, image, files that it found.
type MakeRow = fn(String, (u16, u16), bool, &dyn View, &[Value]) -> Row;

fn marks(name: &str, folder: &Path, row: MakeRow, rows: &mut Vec<Row>) -> Result<(), String> {
    let manifest = manifest(folder)?;
    let log = unpacked(&folder.join("log.img.zst"))?;
    let log = WriteLog::open(&log).map_err(|e| format!("{name}: {e}"))?;
    let kernel = manifest["kernel"].as_str().and_then(version).unwrap_or((6, 1));
    // In the order of the log; the device is as long as all of it needs, or as its file system
    // says.
    let entries: Vec<LogEntry> =
        log.entries().collect::<FsResult<_>>().map_err(|e| format!("{name}: {e}"))?;
    let written = entries.iter().map(LogEntry::end_bytes).max().unwrap_or(0);
    for mark in entries.iter().map(|e| e.mark.as_str()).filter(|m| !m.is_empty()) {
        let Some(expected) = manifest["expected_at_mark"][mark].as_array() else { continue };
        let (medium, _) =
            log.replay(Until::Mark(mark)).map_err(|e| format!("{name}@{mark}: {e}"))?;
        let bytes = written.max(f2fs::bytes(&medium).unwrap_or(0));
        let view = MediumView { medium, start: Sector(0), bytes };
        rows.push(row(format!("{name}@{mark}"), kernel, false, &view, expected));
    }
    Ok(())
}

fn row(
    case: String,
    kernel: (u16, u16),
    refused_there: bool,
    image: &dyn View,
    expected: &[Value],
) -> Row {
    let overlay = Overlay::new(image);
    let done = recover_at_mount(&overlay, &RecoverPolicy::linux(kernel.0, kernel.1), 1);
    let AtMount { recovery, mounted } = &done;
    let journal = recovery.journal.as_ref();
    let mut row = Row {
        transactions: journal.map_or(0, |j| j.transactions()),
        blocks: journal.map_or(0, |j| j.blocks_replayed),
        revoked: journal.map_or(0, |j| j.blocks_revoked),
        fast_commits: recovery.fast_commits.commits,
        deleted: recovery.orphans_deleted,
        truncated: recovery.orphans_truncated,
        refused: done.errno().map(str::to_owned),
        ..Row::empty(case, kernel, refused_there, expected.len())
    };
    if let Err((stage, e)) = mounted {
        if !refused_there {
            row.difference = Some(format!("refused: {stage:?}: {e}"));
        }
        return row;
    }
    if refused_there {
        row.difference = Some("mounted; the kernel refuses".to_owned());
        return row;
    }
    let found = match Image::open(&overlay) {
        Ok(image) => list(&image, &InspectOptions::default()),
        Err(e) => {
            row.difference = Some(e.to_string());
            return row;
        }
    };
    let (files, findings) = found;
    row.difference = findings.first().map(|f| f.error.to_string());
    compare(&mut row, files, expected);
    row
}

/// Holds what was found against what the manifest says; counts, and keeps the first difference.
fn compare(row: &mut Row, files: Vec<FileInfo>, expected: &[Value]) {
    let mut ours: BTreeMap<String, FileInfo> =
        files.into_iter().map(|f| (text(&f.path), f)).collect();
    for file in expected {
        let path = file["path"].as_str().unwrap_or("");
        let difference = match ours.remove(path) {
            None => Some(format!("{path} is missing")),
            Some(f) => difference(&f, file).map(|what| format!("{path}: {what}")),
        };
        match difference {
            None => row.equal += 1,
            some => row.difference = row.difference.take().or(some),
        }
    }
    row.surplus = ours.len();
    let more = ours.keys().next().map(|path| format!("{path} should not be there"));
    row.difference = row.difference.take().or(more);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What of a file is not as the manifest has it.
fn difference(f: &FileInfo, expected: &Value) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let is_file = f.sha256.is_some();
    for (key, theirs) in expected.as_object().into_iter().flatten() {
        let ours = match key.as_str() {
            "path" => continue,
            "type" => json!(f.kind.word()),
            "ino" => json!(f.ino),
            "nlink" => json!(f.nlink),
            "uid" => json!(f.uid),
            "gid" => json!(f.gid),
            "size" if is_file => json!(f.size),
            "blocks512" if is_file => json!(f.sectors),
            "sha256" => json!(f.sha256.map(|d| d.to_string())),
            "target" => json!(f.target.as_deref().map(text)),
            "mode" => {
                // With the bits of the type, which `type` has too.
                let theirs = theirs.as_str().unwrap_or("").trim_start_matches("0o");
                let theirs = u32::from_str_radix(theirs, 8).unwrap_or(0) & 0o7777;
                if theirs == f.mode {
                    continue;
                }
                json!(format!("{:o}", f.mode))
            }
            "xattr_hex" => {
                let pairs = f.xattrs.iter().map(|x| (text(&x.name), json!(hex(&x.value))));
                Value::Object(pairs.collect())
            }
            other => json!(format!("{other} is not compared")),
        };
        if ours != *theirs {
            return Some(format!("{key} is {ours}, the kernel's {theirs}"));
        }
    }
    None
}
