//! One module a verb.

pub mod calibrate;
pub mod clean;
pub mod compare;
pub mod crash;
pub mod device;
pub mod diff;
pub mod durability;
pub mod eras;
pub mod experiment;
pub mod explain;
pub mod filebench;
pub mod fio;
pub mod fsck;
mod host_command;
pub mod host_program;
pub mod inspect;
pub mod keep;
pub mod kernel_crash;
pub mod kernel_lab;
mod kernel_trees;
pub mod kernels;
pub mod list;
pub mod man;
pub mod matrix;
pub mod mkfs;
pub mod mount;
pub mod perturb;
pub mod recover;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod serve;
pub mod technique_claims;
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
use wp_machine::results::{
    NoResult, device_limits, events_left_out, events_of, find, read_classes,
    read_events_with_classes, setting,
};
pub use wp_machine::spec::{devices, file_system, name_and_rest, size};
use wp_report::run::Run;

pub use self::host_command::host_command;
use crate::output::{Exit, Out};

/// What a result holds: its events, and the classes of their blocks where it has them.
pub struct Recorded {
    /// All events.
    pub records: Vec<Record>,
    /// Classes of block events, by record index.
    pub classes: BTreeMap<usize, String>,
    /// The words of its file system.
    pub stages: &'static Stages,
    /// Is what its device has completed safe from power failures?
    pub survives: bool,
    /// Sectors of its device's zones, if it has some.
    pub zone_sectors: Option<u64>,
    /// First sector of its partition.
    pub start: Sector,
    /// Events of the run that are not in `records`.
    pub left_out: u64,
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

/// The folder of a result and its events, from whatever names it; on failure says why and with
/// which code to end. Says so if the result does not have all events of its run.
pub fn result_paths(run: &Path, out: &Out) -> Result<(PathBuf, PathBuf), ExitCode> {
    let dir = result_folder(run, out)?;
    if run.is_file() {
        return Ok((dir, run.to_owned()));
    }
    let Some(events) = events_of(&dir) else {
        let what = format!("{}: no events are recorded", dir.shown());
        return Err(out.fail(Exit::Usage, "events", &what, "run it again with --events all"));
    };
    let left_out = events_left_out(&dir);
    if left_out > 0 {
        out.note(&format!(
            "note: {}: the last {left_out} events of the run are not recorded; a larger \
             --max-events records them",
            dir.shown()
        ));
    }
    Ok((dir, events))
}

/// The folder of a result; on failure says why and with which code to end.
pub fn result_folder(run: &Path, out: &Out) -> Result<PathBuf, ExitCode> {
    find(run).map_err(|e| {
        let exit = if matches!(e, NoResult::Host(..)) { Exit::HostIo } else { Exit::Usage };
        out.fail(exit, "result", &e.to_string(), RESULTS)
    })
}

const RESULTS: &str = "name a result, such as results/latest; `writepath list results` lists them";

/// Reads a result; on failure says why and with which code to end.
pub fn recorded(run: &Path, out: &Out) -> Result<Recorded, ExitCode> {
    let (dir, events) = result_paths(run, out)?;
    let (records, classes) = read_events_with_classes(&events).map_err(|e| {
        match e.kind() {
            // It has the file's name, and the line.
            std::io::ErrorKind::InvalidData => {
                out.fail(Exit::Usage, "result", &e.to_string(), RESULTS)
            }
            _ => {
                let message = format!("{}: {e}", events.shown());
                out.fail(Exit::HostIo, "host-io", &message, RESULTS)
            }
        }
    })?;
    let lines = dir.join("lines.tsv");
    let classes = match classes.is_empty() {
        true => read_classes(&lines, &records).map_err(|e| out.host_error(&lines, &e))?,
        false => classes,
    };
    let resolved = dir.join("resolved.toml");
    let wrong = |e: std::io::Error| out.host_error(&resolved, &e);
    let mut recorded = Recorded {
        records,
        classes,
        stages: &wp_base::stage::UNKNOWN,
        survives: false,
        zone_sectors: None,
        start: Sector(0),
        left_out: events_left_out(&dir),
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
