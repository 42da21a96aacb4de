//! One module a verb.

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

use wp_base::Sector;
use wp_base::event::Record;
use wp_base::stage::Stages;
use wp_lab::results::{device_limits, read_classes, read_events, setting};
pub use wp_lab::spec::{devices, file_system, name_and_rest, size};

use wp_report::run::Run;

use crate::output::Out;

/// What a result holds: its events, and the classes of their blocks where it has them.
pub struct Recorded {
    /// All events.
    pub records: Vec<Record>,
    /// Classes of block events, by record index.
    pub classes: BTreeMap<usize, String>,
    /// The words of its file system.
    pub stages: &'static Stages,
    /// Is what its device has completed safe from power cuts?
    pub survives: bool,
    /// Sectors of its device's zones, if it has some.
    pub zone_sectors: Option<u64>,
    /// First sector of its partition.
    pub start: Sector,
}

impl Recorded {
    /// For views.
    pub fn run(&self) -> Run<'_> {
        Run {
            records: &self.records,
            classes: &self.classes,
            stages: self.stages,
            survives: self.survives,
            zone_sectors: self.zone_sectors,
        }
    }
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
    let resolved = dir.join("resolved.toml");
    let wrong = |e: std::io::Error| out.host_error(&resolved, &e);
    let mut recorded = Recorded {
        records,
        classes,
        stages: &wp_base::stage::UNKNOWN,
        survives: false,
        zone_sectors: None,
        start: Sector(0),
    };
    // Events alone are a run, too, of which less is known.
    if resolved.exists() {
        let setting = setting(&dir).map_err(wrong)?;
        let limits = device_limits(&dir).map_err(wrong)?;
        recorded.stages = setting.fs.stages;
        recorded.start = setting.start;
        recorded.survives = !limits.volatile_cache;
        recorded.zone_sectors = limits.zones.map(|z| z.zone_sectors);
    }
    Ok(recorded)
}
