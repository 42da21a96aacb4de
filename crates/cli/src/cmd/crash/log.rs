//! `crash log`: power failures of what a log has recorded, and no program is run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_campaign::{LogError, LogFile, LoggedRun, Space};
use wp_crash::Plan;
use wp_machine::registry;
use wp_machine::spec::recoverable;

use super::args::{
    ChecksArgs, FS, GeneratedArgs, HelpArgs, MachineArgs, RulesArgs, SPACE, SamplesArgs, ShowArgs,
    StatesArgs,
};
use super::check::Check;
use super::hunt;
use super::plan::{Effort, Keep, Named, One, Wrong};
use super::programs::Programs;
use super::setup::{Given, Of, Setup, crash_states, known, sampled_plan};
use crate::images::refuse_container;
use crate::internal::shell;
use crate::output::{Exit, Out, path as path_value};

/// Marks that an error lists.
const MARKS: usize = 12;

/// What a log lies over, and which part of it is meant.
#[derive(clap::Args)]
pub(super) struct OverArgs {
    /// Image of the device before the first entry [default: all zeroes]
    #[arg(long, value_name = "IMAGE")]
    #[arg(help_heading = "Log")]
    pub base: Option<PathBuf>,
    /// Leave out crash points before this mark, as mkfs
    #[arg(long, value_name = "MARK")]
    #[arg(help_heading = "Log")]
    pub from: Option<String>,
    /// End at this mark
    #[arg(long, value_name = "MARK")]
    #[arg(help_heading = "Log")]
    pub to: Option<String>,
}

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath crash log app.log --base base.img --fs ext4 --check ./check.sh --marks\n\
    \x20 writepath crash log nbd.log --from mkfs --fs f2fs\n\
    \x20 writepath crash show app.log 4:0,1 --base base.img --image state.img")]
pub(super) struct LogArgs {
    #[command(flatten)]
    pub help: HelpArgs,
    /// A log of dm-log-writes, also from `writepath serve --log-writes`
    pub log: PathBuf,
    #[command(flatten)]
    pub over: OverArgs,
    /// Tell the check the marks as acknowledgements (WRITEPATH_ACKED)
    ///
    /// A mark (`dmsetup message DEVICE 0 mark TEXT`) is then a promise: the check sees all marks
    /// that were set before the power failure.
    #[arg(long, requires = "a_check")]
    #[arg(help_heading = "Log")]
    pub marks: bool,
    /// Size of the device: 64M [default: what base and log need]
    #[arg(long)]
    #[arg(help_heading = "Log")]
    pub size: Option<String>,
    /// File system and options for recovery
    ///
    /// The option `era` is the kernel version whose recovery is used.
    #[arg(long, value_name = "FS", default_value = FS)]
    pub fs: String,
    /// Save progress to FILE; the same command resumes from it
    #[arg(long, value_name = "FILE")]
    pub state_file: Option<PathBuf>,
    /// Seed of sampled crash states
    #[arg(long, default_value_t = 1)]
    #[arg(help_heading = "Crash states")]
    pub seed: u64,
    #[command(flatten)]
    pub explore: ExploreArgs,
}

/// How the states of a log are explored, wherever it comes from.
#[derive(clap::Args)]
pub struct ExploreArgs {
    /// Threads that check trees [default: the CPUs]
    ///
    /// One thread explores the log. Its recovered trees are checked (--check, --checker) by N
    /// processes, each in a directory of its own.
    #[arg(long, value_name = "N")]
    #[arg(help_heading = "Checks")]
    pub(super) workers: Option<usize>,
    /// Stop the exploration after this time: 90s, 5m
    ///
    /// The states that the guest's kernel mounts (kernel-lab --sample) have this time as well.
    #[arg(long, value_name = "TIME")]
    #[arg(help_heading = "Crash states")]
    pub(super) budget: Option<String>,
    /// permitted, or a device fault: lying-flush, lost-fua
    #[arg(long, default_value = SPACE)]
    #[arg(help_heading = "Crash states")]
    pub(super) space: String,
    /// Bytes that the drive writes atomically [default: 4096]
    #[arg(long, value_name = "BYTES")]
    #[arg(help_heading = "Crash states")]
    pub(super) atomic: Option<u32>,
    #[command(flatten)]
    pub(super) samples: SamplesArgs,
    /// Crash each new recovery in N states of its writes; 0: never
    #[arg(long, default_value_t = 0)]
    #[arg(help_heading = "Crash states", value_name = "N")]
    pub(super) second: u32,
    /// Skip the fsck of each recovered image
    #[arg(long)]
    #[arg(help_heading = "Checks")]
    pub(super) no_check: bool,
    #[command(flatten)]
    pub(super) checks: ChecksArgs,
}

/// Runs it. Errors: the exit code, after saying why.
pub(super) fn run(a: &LogArgs, out: &Out) -> Result<ExitCode, ExitCode> {
    let programs = opened(&a.log, (&a.over, a.size.as_deref(), a.marks), &a.fs, out)?;
    let state_file = a.state_file.clone();
    let plan = plan(&a.explore, (&a.fs, a.seed, state_file), programs);
    hunt::run(plan.map_err(|wrong| wrong.told(out))?, None, out)
}

/// What is done when a log is explored: further lines for people and keys for programs; does it
/// agree with what was found?
pub struct Beside {
    /// Lines.
    pub text: String,
    /// Its key in the document, and what is there.
    pub document: (&'static str, Value),
    /// Is all as it should be?
    pub is_sound: bool,
}

/// The states of a log that was explored, for somebody who recovers them as well.
pub struct ExploredLog<'a> {
    /// The log.
    pub run: &'a LoggedRun,
    /// Which states, how many of each crash point, and the seed.
    pub states: (Space, Plan, u64),
    /// Frame and lost units of the failures that were kept.
    pub failures: Vec<(usize, Vec<usize>)>,
    /// Was it stopped?
    pub is_stopped: bool,
}

/// Does something with an explored log. Errors: the exit code, after saying why.
pub type Then<'a> = &'a mut dyn FnMut(&ExploredLog) -> Result<Beside, ExitCode>;

/// Explores a log as `crash log` does, recovered as the file system `fs`, and does `then` with it.
/// Errors: the exit code, after saying why.
pub fn explore(
    file: LogFile,
    (fs, seed): (&str, u64),
    a: &ExploreArgs,
    then: Then<'_>,
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    let (entry, options) = recoverable(fs).map_err(|e| no_recovery(fs, &e, out))?;
    let path = file.path.clone();
    let run = LoggedRun::open(file, entry, &options);
    let programs = run.map(Programs::logged).map_err(|e| told(&e, &path, entry.name, out))?;
    let plan = plan(a, (fs, seed, None), programs).map_err(|wrong| wrong.told(out))?;
    hunt::run(plan, Some(then), out)
}

/// States of a log of a file system of which Writepath has no recovery. Errors: the exit code,
/// after saying why.
pub fn of_any(
    file: LogFile,
    a: &ExploreArgs,
    out: &Out,
) -> Result<(LoggedRun, Space, Plan), ExitCode> {
    let path = file.path.clone();
    let run = LoggedRun::of_any(file).map_err(|e| told(&e, &path, "file system", out))?;
    verify_space(&a.space).map_err(|wrong| wrong.told(out))?;
    let space = crash_states(&a.space, a.atomic).map_err(|e| Wrong::from(e).told(out))?;
    Ok((run, space, sampled_plan(&a.samples)))
}

impl ExploreArgs {
    /// The user's check as a shell command of one run: `None`: there is none. `true`: it is one
    /// that stays up.
    pub fn check(&self) -> Option<(&str, bool)> {
        let (run, stays) = (self.checks.check.as_deref(), self.checks.checker.as_deref());
        run.map(|line| (line, false)).or(stays.map(|line| (line, true)))
    }

    /// The end of each piece of work (`--budget`). Errors: what is no time; that was told.
    pub fn limit(&self, out: &Out) -> Result<Option<Duration>, ExitCode> {
        let effort = Effort::new(self.workers, self.budget.as_deref());
        Ok(effort.map_err(|e| e.told(out))?.limit)
    }

    /// Errors: an option that only an exploration has, and whoever says it wants none.
    pub fn first_given(&self) -> Option<&'static str> {
        let SamplesArgs { complete: _, samples: _, max_states, no_prune } = &self.samples;
        let all = [
            ("--check", self.checks.check.is_some()),
            ("--checker", self.checks.checker.is_some()),
            ("--known", self.checks.known.is_some()),
            ("--accept", self.checks.accept.is_some()),
            ("--budget", self.budget.is_some()),
            ("--workers", self.workers.is_some()),
            ("--atomic", self.atomic.is_some()),
            ("--space", self.space != SPACE),
            ("--max-states", max_states.is_some()),
            ("--no-prune", *no_prune),
            ("--no-check", self.no_check),
            ("--second", self.second > 0),
        ];
        all.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// Errors: a space that no log has.
fn verify_space(space: &str) -> Result<(), Wrong> {
    let spaces = ["permitted", "lying-flush", "lost-fua"];
    if spaces.contains(&space) {
        return Ok(());
    }
    let what = format!("--space {space}: a log has {}", spaces.join(", "));
    Err(Wrong::new("space", what, ""))
}

/// The log that `crash show` is given in place of a program, if it is one. Errors: as of [`run`].
pub(super) fn shown(a: &ShowArgs, out: &Out) -> Result<Option<Programs>, ExitCode> {
    let path = Path::new(&a.program);
    if !LogFile::is_log(path).unwrap_or(false) {
        return Ok(None);
    }
    if a.reproducer.is_some() {
        let what = "--reproducer is of a program; a log has none";
        return Err(out.fail(Exit::Usage, "reproducer", what, "--image writes the crashed device"));
    }
    opened(path, (&a.over, a.machine.size.as_deref(), false), &a.fs, out).map(Some)
}

/// Reads the log. Errors: as of [`run`].
fn opened(
    path: &Path,
    (over, size, acks): (&OverArgs, Option<&str>, bool),
    fs: &str,
    out: &Out,
) -> Result<Programs, ExitCode> {
    let (entry, options) = recoverable(fs).map_err(|e| no_recovery(fs, &e, out))?;
    let size = size.map(crate::cmd::size).transpose();
    let size = size.map_err(|e| out.fail(Exit::Usage, "size", &e, ""))?;
    over.base.as_deref().map_or(Ok(()), |base| refuse_container(base, out))?;
    let file = LogFile {
        path: path.to_owned(),
        base: over.base.clone(),
        bytes: size,
        from: over.from.clone(),
        to: over.to.clone(),
        acks,
        name: None,
    };
    let run = LoggedRun::open(file, entry, &options);
    run.map(Programs::logged).map_err(|e| told(&e, path, entry.name, out))
}

/// Says that there is no such file system, and what to do about one of which Writepath has no
/// recovery.
fn no_recovery(fs: &str, why: &str, out: &Out) -> ExitCode {
    let name = fs.split(',').next().unwrap_or(fs);
    let help = match registry::FILE_SYSTEMS.iter().any(|f| f.name == name) {
        true => "writepath list fs",
        false => {
            "have its own kernel recover a state: `writepath replay LOG --base IMAGE --to-mark MARK \
             --out STATE` writes one to mount"
        }
    };
    out.fail(Exit::Usage, "fs", &format!("--fs {fs}: {why}"), help)
}

/// Says why a log cannot be explored.
fn told(e: &LogError, path: &Path, fs: &str, out: &Out) -> ExitCode {
    let name = path.shown();
    match e {
        LogError::Host(path, e) => out.host_error(path, e),
        LogError::Log(e) => out.fs_error(&name, e),
        LogError::NoMark(mark, marks) => {
            let what = format!("{name}: no mark `{mark}` (marks: {})", listed(marks));
            out.fail(Exit::Usage, "mark", &what, "`writepath replay LOG` lists all entries")
        }
        LogError::NoWrite(marks) => {
            let what = format!("{name}: no write to lose (marks: {})", listed(marks));
            out.fail(Exit::Usage, "log", &what, "`writepath replay LOG` lists all entries")
        }
        LogError::NoFileSystem(why, marks) => {
            let what = format!(
                "{name}: no {fs} on the device at the first crash point: {why} (marks: {})",
                listed(marks)
            );
            let help = "name the image below the log (--base), a mark behind mkfs (--from), or \
                        the size of the device (--size)";
            out.fail(Exit::Usage, "base", &what, help)
        }
        LogError::TooShort(bytes) => {
            let what = format!("--size: base and log need {bytes} bytes");
            out.fail(Exit::Usage, "size", &what, "")
        }
        LogError::TooLong(bytes) => {
            let what = format!("{name}: a device of {bytes} bytes; at most 1 TiB is supported");
            out.fail(Exit::Unsupported, "size", &what, "")
        }
    }
}

/// Marks in a line.
fn listed(marks: &[String]) -> String {
    let first: Vec<&str> = marks.iter().take(MARKS).map(String::as_str).collect();
    match marks.len() {
        0 => "none".to_owned(),
        n if n > MARKS => format!("{}, and {} more", first.join(", "), n - MARKS),
        _ => first.join(", "),
    }
}

/// What to explore. Errors: what is wrong in the arguments.
fn plan(
    a: &ExploreArgs,
    (fs, seed, state_file): (&str, u64, Option<PathBuf>),
    programs: Programs,
) -> Result<One, Wrong> {
    verify_space(&a.space)?;
    let setup = Setup::new(&Given {
        words: [fs, "fixed", &a.space],
        machine: &MachineArgs::default(),
        states: &StatesArgs { atomic: a.atomic, ..StatesArgs::default() },
        rules: &RulesArgs { require: None, no_check: a.no_check },
        generated: &GeneratedArgs { seed, ..GeneratedArgs::default() },
        of: Of::Log,
        has_notes: true,
    })?;
    let mut setup = setup.sampled(&a.samples);
    setup.known = known(a.checks.known.as_deref(), &setup.words)?;
    (setup.check, setup.second) = (Check::new(&a.checks)?, a.second);
    let keep = Keep {
        minimise: 1,
        reproducer: None,
        state_file,
        known: a.checks.known.clone(),
        accept: a.checks.accept.clone(),
    };
    let effort = Effort::new(a.workers, a.budget.as_deref())?;
    Ok(One { setup, programs: Named::Programs(programs), effort, keep })
}

/// The first lines of a report.
pub(super) fn head(run: &LoggedRun, fs: &str, space: &str) -> String {
    let (entries, marks) = run.counts();
    let order = match run.is_ordered() {
        true => "",
        false => {
            "  completion order only: states that need a write in flight at the FLUSH are not there\n"
        }
    };
    format!(
        "{} ({entries} entries, {marks} marks, device of {} bytes) as {fs}, {space} crash \
         states:\n{order}",
        run.file().name(),
        run.bytes()
    )
}

/// The log, for programs.
pub(super) fn document(run: &LoggedRun) -> Value {
    let (entries, marks) = run.counts();
    let file = run.file();
    json!({
        "path": path_value(&file.path), "base": file.base.as_deref().map(path_value),
        "entries": entries, "marks": marks, "device_bytes": run.bytes(),
        "from": file.from, "to": file.to,
        "order": if run.is_ordered() { "submission and completion" } else { "completion" },
    })
}

/// The options that name the log's device and part again.
pub(super) fn options(file: &LogFile) -> String {
    let mut t = String::new();
    let base = file.base.as_deref().map(|base| base.shown());
    let bytes = file.bytes.map(|n| n.to_string());
    let all = [("base", &base), ("from", &file.from), ("to", &file.to), ("size", &bytes)];
    for (option, value) in all {
        if let Some(value) = value {
            t += &format!(" --{option} {}", shell(value));
        }
    }
    t
}
