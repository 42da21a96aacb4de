//! One module a verb.

pub mod calibrate;
pub mod compare;
pub mod crash;
pub mod device;
pub mod diff;
pub mod explain;
pub mod filebench;
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
use wp_lab::results::{read_classes, read_events};
pub use wp_lab::spec::{devices, file_system, name_and_rest, size};

use crate::output::Out;

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
