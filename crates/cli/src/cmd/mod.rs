//! One module a verb.

pub mod crash;
pub mod device;
pub mod diff;
pub mod explain;
pub mod fio;
pub mod fsck;
pub mod inspect;
pub mod kernel_crash;
pub mod kernels;
pub mod list;
pub mod mkfs;
pub mod mutate;
pub mod recover;
pub mod replay;
pub mod reproduce;
pub mod run;
pub mod today;
pub mod trace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::event::Record;
use wp_lab::registry;
use wp_lab::results::{read_classes, read_events};
use wp_vfs::{FsEntry, Options};

use crate::output::Out;

/// Splits `ext4,era=3.4,nobarrier` into an entry's name and its options.
pub fn name_and_rest(text: &str) -> (&str, &str) {
    text.split_once(',').unwrap_or((text, ""))
}

/// A file system with options, from `ext4,era=3.4`.
pub fn file_system(text: &str) -> Result<(&'static FsEntry, Options), String> {
    let (name, rest) = name_and_rest(text);
    let fs = registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, name)?;
    let options = Options::parse(rest, fs.options).map_err(|e| e.to_string())?;
    Ok((fs, options))
}

/// A device preset's name and the parameters that replace its own, from `ssd-128,queue_depth=1`.
pub fn device(text: &str) -> Result<(String, Vec<(String, u64)>), String> {
    let (name, rest) = name_and_rest(text);
    let mut params = Vec::new();
    for p in rest.split(',').filter(|p| !p.is_empty()) {
        let (key, value) =
            p.split_once('=').ok_or_else(|| format!("device parameter `{p}`: write key=number"))?;
        let value = value
            .parse()
            .map_err(|_| format!("device parameter {key}: `{value}` is not a whole number"))?;
        params.push((key.to_owned(), value));
    }
    Ok((name.to_owned(), params))
}

/// Bytes from `64M`, `29GiB`, `4096`.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let n: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not a size; write 4096, 64M or 29GiB"))?;
    let unit =
        match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i')
        {
            "" => 1,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1u64 << 40,
            other => return Err(format!("`{other}` is not a unit; use K, M, G or T")),
        };
    n.checked_mul(unit).ok_or_else(|| format!("`{text}` is too large"))
}

/// What a result holds: its events, and the classes of their blocks where it has them.
pub struct Recorded {
    /// All events.
    pub records: Vec<Record>,
    /// Classes of block events, by record index.
    pub classes: BTreeMap<usize, String>,
    /// The result's directory.
    pub dir: PathBuf,
}

/// A result's directory and its events file, from either.
pub fn result_paths(run: &Path) -> (PathBuf, PathBuf) {
    if run.is_dir() {
        return (run.to_owned(), run.join("events.ndjson"));
    }
    let dir = run.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
    (dir, run.to_owned())
}

/// Reads a result; on failure says why and with which code to end.
pub fn recorded(run: &Path, out: &Out) -> Result<Recorded, ExitCode> {
    let (dir, events) = result_paths(run);
    let records = read_events(&events).map_err(|e| out.host_error(&events, &e))?;
    let lines = dir.join("lines.tsv");
    let classes = read_classes(&lines, &records).map_err(|e| out.host_error(&lines, &e))?;
    Ok(Recorded { records, classes, dir })
}
