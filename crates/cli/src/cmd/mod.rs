//! One module a verb.

pub mod calibrate;
pub mod compare;
pub mod crash;
pub mod device;
pub mod diff;
pub mod experiment;
pub mod explain;
pub mod filebench;
pub mod fio;
pub mod fsck;
pub mod inspect;
pub mod keep;
pub mod kernel_crash;
pub mod kernel_lab;
pub mod kernels;
pub mod list;
pub mod man;
pub mod matrix;
pub mod mkfs;
pub mod mutate;
pub mod perturb;
pub mod recover;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod serve;
pub mod techniques;
pub mod today;
pub mod trace;
pub mod verbs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::Sector;
use wp_base::event::Record;
use wp_base::plain::Shown as _;
use wp_base::stage::Stages;
use wp_lab::results::{device_limits, read_classes, read_events, setting};
pub use wp_lab::spec::{devices, file_system, name_and_rest, size};
use wp_report::run::Run;

use crate::output::{Exit, Out};

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

/// A result's directory and its events file, from either, or from a folder that holds one result.
pub fn result_paths(run: &Path) -> (PathBuf, PathBuf) {
    if run.is_dir() {
        let dir = only_result_below(run).unwrap_or_else(|| run.to_owned());
        return (dir.clone(), dir.join("events.ndjson"));
    }
    let dir = run.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
    (dir, run.to_owned())
}

/// The one folder in `dir` that holds events, if `dir` has none itself.
fn only_result_below(dir: &Path) -> Option<PathBuf> {
    if dir.join("events.ndjson").exists() {
        return None;
    }
    let mut found = std::fs::read_dir(dir)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("events.ndjson").exists());
    let one = found.next()?;
    found.next().is_none().then_some(one)
}

/// Reads a result; on failure says why and with which code to end.
pub fn recorded(run: &Path, out: &Out) -> Result<Recorded, ExitCode> {
    let (dir, events) = result_paths(run);
    let records = read_events(&events).map_err(|e| {
        let help = "a result is a folder that `writepath run` made: results/NAME/HASH";
        match e.kind() {
            // It has the file's name, and the line.
            std::io::ErrorKind::InvalidData => {
                out.fail(Exit::Usage, "result", &e.to_string(), help)
            }
            _ => {
                let message = format!("{}: {e}", events.shown());
                out.fail(Exit::HostIo, "host-io", &message, help)
            }
        }
    })?;
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
