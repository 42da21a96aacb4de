//! What a command line of `crash` asks for, read once: sizes, times, file systems, devices, crash
//! states, rules, programs. What is wrong in it is found here and nowhere below.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use wp_base::site::Site;
use wp_campaign::bugs::{self, Bug as KnownBug};
use wp_campaign::{alike, mutate};

use super::args::{BugArgs, CompareArgs, MutateArgs, ProgramsArgs, RunArgs, ShowArgs};
use super::check::Check;
use super::programs::Programs;
use super::setup::{Given, Of, Setup, known};
use crate::output::{Exit, Out};

/// What is wrong in a command line, or in a file that it names.
#[derive(Debug)]
pub(super) struct Wrong {
    code: &'static str,
    message: String,
    help: &'static str,
}

impl Wrong {
    pub(super) fn new(code: &'static str, message: String, help: &'static str) -> Wrong {
        Wrong { code, message, help }
    }

    /// Its name for programs.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The hint.
    pub(super) fn help(&self) -> &'static str {
        self.help
    }

    /// The same with another hint.
    pub(super) fn but(self, help: &'static str) -> Wrong {
        Wrong { help, ..self }
    }

    /// Tells it.
    pub(super) fn told(&self, out: &Out) -> ExitCode {
        out.fail(Exit::Usage, self.code, &self.message, self.help)
    }
}

impl From<String> for Wrong {
    fn from(message: String) -> Wrong {
        Wrong::new("crash", message, "writepath crash --help")
    }
}

/// How much is done at once, and for how long.
pub(super) struct Effort {
    /// Threads.
    pub workers: usize,
    /// The end of all work.
    pub limit: Option<Duration>,
}

impl Effort {
    /// Errors: a budget that is no time.
    pub(super) fn new(workers: Option<usize>, budget: Option<&str>) -> Result<Effort, Wrong> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let limit = budget.map(|text| time("--budget", text)).transpose();
        let limit = limit.map_err(|e| Wrong::new("budget", e, ""))?;
        Ok(Effort { workers: workers.unwrap_or_else(cores).max(1), limit })
    }
}

/// Time from `90s`, `5m`, `2h`.
pub(super) fn time(option: &str, text: &str) -> Result<Duration, String> {
    match wp_base::quantity::nanoseconds(text) {
        Ok(0) => Err(format!("{option} {text}: must be more than 0")),
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(e) => Err(format!("{option}: {e}")),
    }
}

/// Programs, or a program of this host that is recorded first.
pub(super) enum Named {
    Programs(Programs),
    Host(HostProgram),
}

/// A program of this host.
pub(super) struct HostProgram {
    /// Its command line.
    pub command: Vec<OsString>,
    /// The file for its calls.
    pub record: Option<PathBuf>,
}

impl Named {
    fn new(a: &ProgramsArgs) -> Result<Named, Wrong> {
        if a.command.is_empty() {
            return Programs::named(&a.programs).map(Named::Programs);
        }
        Ok(Named::Host(HostProgram { command: a.command.clone(), record: a.record.clone() }))
    }
}

/// `crash run`.
pub(super) enum Run {
    /// Programs in one setting.
    One(Box<One>),
    /// Each program of a folder.
    Folder(Box<Folder>),
    /// Programs on several file systems.
    Modes(Modes),
}

/// Programs in one setting, and what is kept of it.
pub(super) struct One {
    pub setup: Setup,
    pub programs: Named,
    pub effort: Effort,
    pub keep: Keep,
}

/// What is kept of an exploration.
pub(super) struct Keep {
    /// Failures of each rule that are minimised.
    pub minimise: usize,
    /// The folder for what shows them without us.
    pub reproducer: Option<PathBuf>,
    /// The file from which the same command resumes.
    pub state_file: Option<PathBuf>,
    /// The list of known failures that is read.
    pub known: Option<PathBuf>,
    /// The list of known failures that is written.
    pub accept: Option<PathBuf>,
}

/// Each program of a folder.
pub(super) struct Folder {
    pub setup: Setup,
    pub folder: PathBuf,
    pub effort: Effort,
}

/// Programs on several file systems.
pub(super) struct Modes {
    pub setups: Vec<Setup>,
    /// Is it one file system under every kernel version?
    pub is_one: bool,
    pub programs: Named,
    pub effort: Effort,
}

impl Run {
    /// Errors: what is wrong in the arguments.
    pub(super) fn new(a: &RunArgs) -> Result<Run, Wrong> {
        let effort = Effort::new(a.workers, a.budget.as_deref())?;
        let check = Check::new(&a.checks)?;
        let folder = Path::new(&a.programs.programs);
        if folder.is_dir() && a.programs.command.is_empty() {
            let setup = setup(a, of_folder(a)?, check)?;
            return Ok(Run::Folder(Box::new(Folder { setup, folder: folder.to_owned(), effort })));
        }
        let programs = Named::new(&a.programs)?;
        if let ([fs], false) = (&a.file_systems[..], a.every_mode || a.every_version) {
            let setup = setup(a, fs, check)?;
            let keep = keep(a, &setup, &programs)?;
            return Ok(Run::One(Box::new(One { setup, programs, effort, keep })));
        }
        if let Some(option) = first_given(&of_one(a)) {
            let what = format!("{option} is of one file system");
            return Err(Wrong::new("fs", what, "name one --fs, or leave it out"));
        }
        let all = match (a.every_mode, a.every_version) {
            (true, _) => every(&a.file_systems, modes)?,
            (_, true) => every(&a.file_systems, versions)?,
            _ => a.file_systems.clone(),
        };
        let setups: Result<_, Wrong> = all.iter().map(|fs| setup(a, fs, check.clone())).collect();
        let is_one = a.every_version && a.file_systems.len() == 1;
        Ok(Run::Modes(Modes { setups: setups?, is_one, programs, effort }))
    }
}

/// The file system of a folder's programs. Errors: an option that no folder has.
fn of_folder(a: &RunArgs) -> Result<&str, Wrong> {
    let further = [
        ("--every-mode", a.every_mode),
        ("--every-version", a.every_version),
        ("--check", a.checks.check.is_some()),
        ("--first", a.programs.first > 0),
        ("--count", a.programs.count.is_some()),
    ];
    let option = match &a.file_systems[..] {
        [fs] => match first_given(&of_one(a)).or(first_given(&further)) {
            None => return Ok(fs),
            Some(option) => option,
        },
        _ => "--fs more than once",
    };
    let what = format!("{option} is of one program; {} is a folder", a.programs.programs);
    Err(Wrong::new("crash", what, "name a file of the folder"))
}

/// Options of one exploration, with whether they are given.
fn of_one(a: &RunArgs) -> [(&'static str, bool); 4] {
    [
        ("--minimise", a.results.minimise.is_some()),
        ("--reproducer", a.results.reproducer.is_some()),
        ("--state-file", a.results.state_file.is_some()),
        ("--accept", a.checks.accept.is_some()),
    ]
}

fn first_given(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find_map(|(option, is_given)| is_given.then_some(*option))
}

/// The file systems as `--fs` has them: what `each` makes of those that were given.
fn every(
    given: &[String],
    each: fn(&str) -> Result<Vec<String>, String>,
) -> Result<Vec<String>, Wrong> {
    let all: Result<Vec<Vec<String>>, String> = given.iter().map(|fs| each(fs)).collect();
    Ok(all?.concat())
}

/// A file system with each set of rules, from those of its `era` on.
fn versions(fs: &str) -> Result<Vec<String>, String> {
    let (entry, given) = crate::cmd::file_system(fs)?;
    let eras = match given.given().find(|(k, _)| *k == "era") {
        None => alike::versions(entry),
        Some((_, era)) => {
            entry.check_era(era)?;
            alike::versions_from(entry, era).unwrap_or_default()
        }
    };
    let kept = given.given().filter(|(k, _)| *k != "era");
    let kept: String = kept.map(|(k, v)| format!(",{k}={v}")).collect();
    Ok(eras.iter().map(|era| format!("{},era={era}{kept}", entry.name)).collect())
}

/// A file system in each validated version and mode.
fn modes(fs: &str) -> Result<Vec<String>, String> {
    let (entry, given) = crate::cmd::file_system(fs)?;
    if entry.held.is_empty() || entry.modes.is_empty() {
        return Err(format!("--every-mode: no kernel version of {} was validated", entry.name));
    }
    let replaced: Vec<&str> =
        entry.modes.iter().flat_map(|m| m.split(',')).filter_map(|o| o.split('=').next()).collect();
    let kept = given.given().filter(|(k, _)| *k != "era" && !replaced.contains(k));
    let kept: String = kept.map(|(k, v)| format!(",{k}={v}")).collect();
    let of = |era: &str, mode: &str| {
        let comma = if mode.is_empty() { "" } else { "," };
        format!("{},era={era}{kept}{comma}{mode}", entry.name)
    };
    Ok(entry.held.iter().flat_map(|era| entry.modes.iter().map(|m| of(era, m))).collect())
}

/// The setting of a file system.
fn setup(a: &RunArgs, fs: &str, check: Option<Check>) -> Result<Setup, Wrong> {
    let setup = Setup::new(&Given {
        words: [fs, &a.device, &a.space],
        machine: &a.machine,
        states: &a.states,
        rules: &a.rules,
        generated: &a.programs.generated,
        of: Of::named(&a.programs),
        has_notes: !a.every_version,
    })?;
    let mut setup = setup.of_programs(&a.programs).sampled(&a.samples);
    setup.known = known(a.checks.known.as_deref(), &setup.words)?;
    setup.check = check;
    (setup.second, setup.mounts, setup.after_acks) = (a.second, a.mounts, a.after_acks);
    Ok(setup)
}

/// What is kept. Errors: a state file that could not be gone on from.
fn keep(a: &RunArgs, setup: &Setup, programs: &Named) -> Result<Keep, Wrong> {
    let (results, state_file) = (&a.results, a.results.state_file.clone());
    if let (Named::Host(HostProgram { record: None, .. }), Some(_)) = (programs, &state_file) {
        let what = "--state-file of a program of the host needs its recording".to_owned();
        let help = "add --record FILE: the same command goes on with it";
        return Err(Wrong::new("state-file", what, help));
    }
    if state_file.is_some() && setup.check.as_ref().is_some_and(Check::is_hidden) {
        let what =
            "--check: the shell expands a part of it, so that a change of its files is not seen";
        let help = "with --state-file name files as they are: --check 'sh ./check.sh'";
        return Err(Wrong::new("check", what.to_owned(), help));
    }
    Ok(Keep {
        minimise: results.minimise.unwrap_or(1),
        reproducer: results.reproducer.clone(),
        state_file,
        known: a.checks.known.clone(),
        accept: a.checks.accept.clone(),
    })
}

/// `crash show`.
pub(super) struct Show {
    pub setup: Setup,
    pub programs: Programs,
    /// The crash point.
    pub frame: usize,
    /// Its unpersisted writes that are lost.
    pub lost: Vec<usize>,
    /// The file for the crashed device.
    pub image: Option<PathBuf>,
    /// The folder for what shows the state without us.
    pub reproducer: Option<PathBuf>,
}

impl Show {
    /// `log`: the log that is shown, if it is no program. Errors: what is wrong in the arguments.
    pub(super) fn new(a: &ShowArgs, log: Option<Programs>) -> Result<Show, Wrong> {
        let (frame, lost) = a.state.split_once(':').unwrap_or((&a.state, ""));
        let lost: Result<Vec<usize>, _> =
            lost.split(',').filter(|w| !w.is_empty()).map(str::parse).collect();
        let (Ok(frame), Ok(lost)) = (frame.parse(), lost) else {
            let what = format!("{}: no crash state; write FRAME or FRAME:U,V", a.state);
            return Err(Wrong::new("state", what, "writepath crash show log.txt 4:0,1"));
        };
        let of = if log.is_some() { Of::Log } else { Of::Programs };
        let programs = log.map_or_else(|| Programs::named(&a.program), Ok)?;
        let mut setup = Setup::new(&Given {
            words: [&a.fs, &a.device, &a.space],
            machine: &a.machine,
            states: &a.states,
            rules: &a.rules,
            generated: &a.generated,
            of,
            has_notes: true,
        })?;
        (setup.first, setup.count, setup.second) = (a.first, Some(1), a.second);
        let (image, reproducer) = (a.image.clone(), a.reproducer.clone());
        Ok(Show { setup, programs, frame, lost, image, reproducer })
    }
}

/// `crash bug`.
pub(super) struct Bug {
    /// Bugs, at least one.
    pub wanted: Vec<&'static KnownBug>,
    /// Failures of each that are minimised, instead of looking for it.
    pub minimise: Option<usize>,
    /// The folder for what shows them without us.
    pub reproducer: Option<PathBuf>,
    pub workers: usize,
}

impl Bug {
    /// Errors: no such bug.
    pub(super) fn new(a: &BugArgs) -> Result<Bug, Wrong> {
        // A number may stand for several, each with one of its own behind a point.
        let is_wanted = |b: &&KnownBug| {
            let is_part = || b.id.strip_prefix(&*a.bug).is_some_and(|rest| rest.starts_with('.'));
            a.bug == "all" || b.id == a.bug || is_part()
        };
        let wanted: Vec<&KnownBug> = bugs::all().filter(is_wanted).collect();
        if wanted.is_empty() {
            let known: Vec<&str> = bugs::all().map(|b| b.id).collect();
            let why = format!("no bug called `{}` (bugs: all, {})", a.bug, known.join(", "));
            return Err(Wrong::new("bug", why, ""));
        }
        Ok(Bug {
            wanted,
            minimise: a.minimise.map(|n| n as usize),
            reproducer: a.reproducer.clone(),
            workers: Effort::new(a.workers, None)?.workers,
        })
    }
}

/// `crash mutate`.
pub(super) struct Mutate {
    /// Crash-safety points, at least one.
    pub sites: Vec<&'static Site>,
    /// The text of the witnesses.
    pub witnesses: String,
    /// Programs that are tried for an undetected mutant.
    pub search: mutate::Search,
    pub effort: Effort,
}

impl Mutate {
    /// Errors: what is wrong in the arguments, or with the file of witnesses.
    pub(super) fn new(a: &MutateArgs) -> Result<Mutate, Wrong> {
        let effort = Effort::new(a.workers, a.budget.as_deref())?;
        let witnesses = match a.witnesses.as_deref().map(wp_machine::host::text::read).transpose() {
            Ok(text) => text.unwrap_or_else(|| mutate::WITNESSES_TOML.to_owned()),
            Err(e) => return Err(Wrong::new("witnesses", e.to_string(), "")),
        };
        let search = a.search.map(|n| mutate::Search { survivor: n, open: n });
        let sites = sites(&a.sites).map_err(|e| Wrong::new("mutate", e, "writepath list sites"))?;
        Ok(Mutate { sites, witnesses, search: search.unwrap_or_default(), effort })
    }
}

/// The sites that `names` means: `all`, or some, joined by commas; a name may be the beginning of
/// several.
fn sites(names: &str) -> Result<Vec<&'static Site>, String> {
    let all = mutate::sites();
    if names == "all" {
        return Ok(all);
    }
    let wanted: Vec<&str> = names.split(',').collect();
    if wanted.iter().any(|w| w.is_empty()) {
        return Err(format!("`{names}`: a name is empty; `all` means every point"));
    }
    for w in &wanted {
        if !all.iter().any(|s| s.name.starts_with(w)) {
            return Err(format!("no crash-safety point called `{w}`"));
        }
    }
    Ok(all.into_iter().filter(|s| wanted.iter().any(|w| s.name.starts_with(w))).collect())
}

/// `crash compare`.
pub(super) struct Compare {
    /// Two settings.
    pub sides: [Setup; 2],
    pub programs: Named,
}

impl Compare {
    /// Errors: what is wrong in the arguments.
    pub(super) fn new(a: &CompareArgs) -> Result<Compare, Wrong> {
        let programs = Named::new(&a.programs)?;
        let pairs = [
            pair("--fs", &a.file_systems)?,
            pair("--device", &a.devices)?,
            pair("--space", &a.spaces)?,
        ];
        if pairs.iter().all(|[here, there]| here == there) {
            let what = "there is one setting, and nothing to compare it with".to_owned();
            let help = "give --fs, --device or --space twice: --fs ext4 --fs f2fs";
            return Err(Wrong::new("compare", what, help));
        }
        let side = |n: usize| {
            let setup = Setup::new(&Given {
                words: pairs.map(|pair| pair[n]),
                machine: &a.machine,
                states: &a.states,
                rules: &a.rules,
                generated: &a.programs.generated,
                of: Of::named(&a.programs),
                has_notes: true,
            })?;
            Ok::<Setup, Wrong>(setup.of_programs(&a.programs).sampled(&a.samples))
        };
        Ok(Compare { sides: [side(0)?, side(1)?], programs })
    }
}

/// The two values of an option: both are the same if it is given once.
fn pair<'a>(option: &str, given: &'a [String]) -> Result<[&'a str; 2], Wrong> {
    match given {
        [one] => Ok([one, one]),
        [here, there] => Ok([here, there]),
        _ => Err(Wrong::from(format!("{option}: two settings are compared, not {}", given.len()))),
    }
}
