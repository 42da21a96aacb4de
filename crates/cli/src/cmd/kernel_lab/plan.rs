//! What a command line of `kernel-lab` asks for, read once. What is wrong in it is found here.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use wp_machine::make_device;
use wp_machine::profile::Profile;
use wp_machine::spec::device;
use wp_parity::kernel_lab::fstests::{Checkout, Limits};
use wp_parity::kernel_lab::suite::{Row, SUITES, Suite as Table};
use wp_parity::kernel_lab::{CutBy, FILE_SYSTEMS, MOST_JOBS, Plan, ProgramPlan};
use wp_serve::drive::freeze::Loss;

use super::args::{Args, DEVICE, FS};
use crate::cmd::host_command;
use crate::output::{Exit, Out};

/// Virtual seconds that the machine stays on behind a program: twice the age at which Linux writes
/// back what is dirty (`dirty_expire_centisecs`).
const REST_S: u64 = 60;

/// What the name of a suite of xfstests begins with; the group follows.
const FSTESTS: &str = "fstests-";

/// What is wrong in a command line.
pub(super) struct Wrong {
    code: &'static str,
    message: String,
    help: String,
}

impl Wrong {
    fn new(code: &'static str, message: String, help: &str) -> Wrong {
        Wrong { code, message, help: help.to_owned() }
    }

    /// Tells it.
    pub(super) fn told(&self, out: &Out) -> ExitCode {
        out.fail(Exit::Usage, self.code, &self.message, &self.help)
    }
}

/// What is asked for.
pub(super) enum Asked {
    /// A guest is checked or made.
    Setup(Setup),
    /// Power failures in one setting.
    Campaign(Guest, Box<Campaign>),
    /// A table of campaigns.
    Suite(Guest, Suite),
    /// Tests of xfstests.
    Fstests(Guest, Box<Fstests>),
    /// A program of the host.
    Program(Guest, Box<Program>),
}

/// The guest that runs.
pub(super) struct Guest {
    pub kernel: Option<PathBuf>,
    pub root: Option<PathBuf>,
    pub memory_mib: u32,
}

/// What becomes of a guest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Check,
    Take,
    Build,
}

/// `--setup`.
pub(super) struct Setup {
    pub step: Step,
    pub kernel: Option<PathBuf>,
    pub root: Option<PathBuf>,
    /// The kernel's source.
    pub source: Option<PathBuf>,
    /// The folder that a guest is made in.
    pub to: Option<PathBuf>,
}

/// Power failures in one setting.
pub(super) struct Campaign {
    pub plan: Plan,
    /// The device, as the user wrote it.
    pub device: String,
    /// The file for requests and completions.
    pub trace: Option<PathBuf>,
    /// The folder for images of failed states.
    pub keep: Option<PathBuf>,
    /// The file for the guest's log.
    pub messages: Option<PathBuf>,
    /// Is the program also run on our own file system?
    pub beside: bool,
    /// Is every power failure printed?
    pub all: bool,
}

/// What else a program runs on, to be compared.
#[derive(Clone)]
pub(super) struct Other {
    /// The kernel; `None`: the same.
    pub kernel: Option<PathBuf>,
    /// Mount options; `None`: the same.
    pub mount: Option<String>,
}

/// A program of the host.
#[derive(Clone)]
pub(super) struct Program {
    pub plan: ProgramPlan,
    /// The program, as the user wrote it.
    pub line: String,
    /// The folder in which the user wrote it.
    pub folder: PathBuf,
    /// The device, as the user wrote it.
    pub device: String,
    /// The file for requests and completions.
    pub trace: Option<PathBuf>,
    /// The file for the log of what the drive was sent.
    pub save_log: Option<PathBuf>,
    /// How its crash states are explored, if they are.
    pub explore: Option<Explore>,
    /// What it is compared with.
    pub other: Option<Other>,
}

/// How crash states are explored.
#[derive(Clone)]
pub(super) struct Explore {
    /// File system and options for recovery; `None`: as the guest's.
    pub recover_as: Option<String>,
    /// States that the guest's kernel recovers.
    pub sample: Option<usize>,
    /// The folder for images of states that its kernel does not recover as it should.
    pub keep: Option<PathBuf>,
    pub seed: u64,
}

/// Tests of xfstests.
pub(super) struct Fstests {
    /// The suite, as the user named it.
    pub name: String,
    /// What each test has, but for its commands.
    pub plan: ProgramPlan,
    pub tree: Checkout,
    /// Their names, in the order in which they run.
    pub tests: Vec<String>,
    pub limits: Limits,
    /// The device, as the user wrote it.
    pub device: String,
}

/// A table of campaigns.
pub(super) struct Suite {
    pub table: &'static Table,
    /// A campaign for each row.
    pub campaigns: Vec<Campaign>,
}

impl Asked {
    /// Errors: what is wrong in the arguments.
    pub(super) fn new(a: &Args) -> Result<Asked, Wrong> {
        let (kernel, root) = (a.kernel.clone(), a.root.clone());
        let memory_mib = a.memory;
        if let (false, Some(option)) = (a.explore, a.states.first_given()) {
            let message = format!("{option} is of crash states that are explored");
            return Err(Wrong::new("explore", message, "add --run CMD --explore"));
        }
        if let Some(line) = &a.run {
            let program = program(a, line)?;
            return Ok(Asked::Program(Guest { kernel, root, memory_mib }, Box::new(program)));
        }
        if let Some(what) = &a.setup {
            let step = match what.as_str() {
                "check" => Step::Check,
                "take" => Step::Take,
                "build" => Step::Build,
                other => {
                    let message = format!("--setup {other}: use check, take or build");
                    let help = "a command that prepares files needs --run CMD";
                    return Err(Wrong::new("setup", message, help));
                }
            };
            let (source, to) = (a.source.clone(), a.to.clone());
            return Ok(Asked::Setup(Setup { step, kernel, root, source, to }));
        }
        let guest = Guest { kernel, root, memory_mib };
        match &a.suite {
            Some(name) => match name.strip_prefix(FSTESTS) {
                Some(group) => Ok(Asked::Fstests(guest, Box::new(fstests(a, name, group)?))),
                None => Ok(Asked::Suite(guest, suite(a, name)?)),
            },
            None => {
                let row = (&*a.fs, &*a.mount, &*a.device, a.jobs);
                Ok(Asked::Campaign(guest, Box::new(campaign(a, row, a.keep.clone())?)))
            }
        }
    }
}

/// The tests of a group. Errors: no tree, no such group or test.
fn fstests(a: &Args, name: &str, group: &str) -> Result<Fstests, Wrong> {
    verify_fs(&a.fs)?;
    let Some(folder) = &a.tests else {
        let message = format!("--suite {name}: needs the tests");
        return Err(Wrong::new("suite", message, "--tests DIR, a built checkout of xfstests"));
    };
    let wrong = |e: String| Wrong::new("tests", e, "git clone xfstests-dev, run make in it");
    let tree = Checkout::find(folder).map_err(wrong)?;
    let of_group =
        tree.group(group).map_err(|e| Wrong::new("tests", e, "--suite fstests-quick"))?;
    if let Some(unknown) = a.only.iter().find(|test| !tree.has(test)) {
        let message = format!("--only {unknown}: {} has no such test", folder.display());
        return Err(Wrong::new("tests", message, "--only generic/001,generic/002"));
    }
    // The order is xfstests' own: it does not depend on how the tests were named.
    let mut tests = if a.only.is_empty() { of_group } else { a.only.clone() };
    tests.sort();
    tests.dedup();
    let limits = Limits { wall: guest_limit(a)?, virtual_time: virtual_limit(a)? };
    let plan = ProgramPlan {
        fs: a.fs.clone(),
        mount: a.mount.clone(),
        mkfs: a.mkfs.clone(),
        device: drive_of(&a.device)?,
        setup: None,
        run: String::new(),
        folders: Vec::new(),
        rest_s: 0,
        cpu: cpu(a)?,
        limit: guest_limit(a)?,
    };
    let device = a.device.clone();
    Ok(Fstests { name: name.to_owned(), plan, tree, tests, limits, device })
}

/// `--guest-limit`.
fn guest_limit(a: &Args) -> Result<Duration, Wrong> {
    limit("guest-limit", &a.guest_limit)
}

/// `--virtual-limit`.
fn virtual_limit(a: &Args) -> Result<Duration, Wrong> {
    limit("virtual-limit", &a.virtual_limit)
}

/// A limit of time. Errors: it is none, or 0.
fn limit(option: &'static str, time: &str) -> Result<Duration, Wrong> {
    let limit = wp_base::quantity::nanoseconds(time).and_then(|ns| match ns {
        0 => Err("must be more than 0".to_owned()),
        ns => Ok(Duration::from_nanos(ns)),
    });
    limit.map_err(|e| Wrong::new(option, format!("--{option}: {e}"), &format!("--{option} 5m")))
}

fn suite(a: &Args, name: &str) -> Result<Suite, Wrong> {
    let given = [
        ("--fs", a.fs != FS),
        ("--mount", !a.mount.is_empty()),
        ("--device", a.device != DEVICE),
        ("--jobs", a.jobs != 1),
        ("--tests", a.tests.is_some()),
    ];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        let message = format!("--suite {name}: cannot be used with {option}");
        return Err(Wrong::new("suite", message, "its rows have their own"));
    }
    let Some(table) = SUITES.iter().find(|s| s.name == name) else {
        let known: Vec<&str> = SUITES.iter().map(|s| s.name).collect();
        let message = format!("--suite {name}: unknown suite");
        let help = format!("suites: {}, fstests-GROUP", known.join(", "));
        return Err(Wrong::new("suite", message, &help));
    };
    let of = |row: &Row| {
        let keep = a.keep.as_ref().map(|k| k.join(row.name().replace(' ', "-")));
        campaign(a, (row.fs, row.mount, row.device, row.jobs), keep)
    };
    Ok(Suite { table, campaigns: table.rows.iter().map(of).collect::<Result<_, _>>()? })
}

/// Errors: a file system that no guest has.
fn verify_fs(fs: &str) -> Result<(), Wrong> {
    if FILE_SYSTEMS.contains(&fs) {
        return Ok(());
    }
    let help = format!("file systems: {}", FILE_SYSTEMS.join(", "));
    Err(Wrong::new("fs", format!("--fs {fs}: not supported"), &help))
}

/// A preset and its replaced parameters. Errors: there is no such device.
fn drive_of(words: &str) -> Result<(String, Vec<(String, u64)>), Wrong> {
    let wrong = |e: String| Wrong::new("device", e, "writepath list devices");
    let device = device(words).map_err(wrong)?;
    make_device(&device.0, &device.1).map_err(|e| wrong(e.to_string()))?;
    Ok(device)
}

fn cpu(a: &Args) -> Result<&'static Profile, Wrong> {
    Profile::find(&a.cpu).map_err(|e| Wrong::new("cpu", e, "writepath list cpus"))
}

/// A program of the host, which a shell runs as `line`.
fn program(a: &Args, line: &str) -> Result<Program, Wrong> {
    verify_fs(&a.fs)?;
    for (option, command) in [("--run", Some(line)), ("--setup", a.setup.as_deref())] {
        if command.is_some_and(|c| c.trim().is_empty()) {
            let message = format!("{option}: the command is empty");
            return Err(Wrong::new("program", message, "--run ./app.sh"));
        }
    }
    let folder = std::env::current_dir()
        .map_err(|e| Wrong::new("program", format!("the working directory: {e}"), ""))?;
    let of_host = |line: &str| host_command(line, &folder);
    let (setup, run) = (a.setup.as_deref().map(of_host), of_host(line));
    let check = a.states.check().map(|(line, _)| of_host(line));
    let limit = guest_limit(a)?;
    let plan = ProgramPlan {
        fs: a.fs.clone(),
        mount: a.mount.clone(),
        mkfs: a.mkfs.clone(),
        device: drive_of(&a.device)?,
        folders: folders(&folder, [setup.as_deref(), Some(&run), check.as_deref()]),
        setup,
        run,
        rest_s: REST_S,
        cpu: cpu(a)?,
        limit,
    };
    plan.place().map_err(|e| Wrong::new("program", e, "run writepath in another folder"))?;
    let mount = a.compare_mount.clone();
    let is_compared = a.compare.is_some() || mount.is_some();
    let (recover_as, sample, seed) = (a.recover_as.clone(), a.sample, a.seed);
    let keep = a.keep.clone();
    if keep.is_some() && !a.explore {
        let message = "--keep is of crash states that are explored".to_owned();
        return Err(Wrong::new("explore", message, "add --explore --sample N"));
    }
    let explore = a.explore.then_some(Explore { recover_as, sample, keep, seed });
    Ok(Program {
        plan,
        line: line.to_owned(),
        folder,
        device: a.device.clone(),
        trace: a.trace.clone(),
        save_log: a.save_log.clone(),
        explore,
        other: is_compared.then(|| Other { kernel: a.compare.clone(), mount }),
    })
}

/// The folders that commands need: where they were written, and those of their programs; those
/// above others first.
fn folders(here: &Path, commands: [Option<&str>; 3]) -> Vec<PathBuf> {
    let program = |line: &str| {
        let word = line.split_whitespace().next()?;
        let path = Path::new(word).canonicalize().ok().filter(|path| path.is_file())?;
        let is_whole = Path::new(word).is_absolute();
        is_whole.then(|| path.parent().map(Path::to_owned)).flatten()
    };
    let mut all: Vec<PathBuf> = commands.into_iter().flatten().filter_map(program).collect();
    all.push(here.to_owned());
    all.sort_by_key(|path| (path.components().count(), path.clone()));
    all.dedup();
    all
}

/// A campaign on a file system with mount options, a device and a number of threads.
fn campaign(
    a: &Args,
    (fs, mount, drive, jobs): (&str, &str, &str, u64),
    keep: Option<PathBuf>,
) -> Result<Campaign, Wrong> {
    let Some(loss) = Loss::find(&a.loss) else {
        let message = format!("--loss {}: use model or contract", a.loss);
        return Err(Wrong::new("loss", message, "--loss model"));
    };
    verify_fs(fs)?;
    let Some(cut) = CutBy::find(&a.cut) else {
        let message = format!("--cut {}: use event, time or change", a.cut);
        return Err(Wrong::new("cut", message, "--cut event"));
    };
    for (what, n, most) in [
        ("cycles", a.cycles, 1_000_000),
        ("jobs", jobs, MOST_JOBS),
        ("blocks", a.blocks, 1 << 18),
        ("ops", a.ops, 1 << 20),
    ] {
        if !(1..=most).contains(&n) {
            let message = format!("--{what} {n}: must be from 1 to {most}");
            return Err(Wrong::new(what, message, ""));
        }
    }
    let plan = Plan {
        fs: fs.to_owned(),
        mount: mount.to_owned(),
        mkfs: a.mkfs.clone(),
        device: drive_of(drive)?,
        loss,
        cycles: a.cycles,
        seed: a.seed,
        cut,
        jobs,
        blocks: a.blocks,
        ops: a.ops,
        direct: a.direct,
        sync: a.sync,
        cpu: cpu(a)?,
    };
    Ok(Campaign {
        plan,
        device: drive.to_owned(),
        trace: a.trace.clone(),
        keep,
        messages: a.messages.clone(),
        beside: a.beside,
        all: a.all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_commands_are_there_and_those_above_others_come_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).expect("made");
        let app = dir.path().join("a/app");
        std::fs::write(&app, "").expect("written");
        let line = format!("{} with words", app.display());
        let of = |line: &str| folders(&below, [None, Some(line), Some("test -e x")]);
        assert_eq!(of(&line), [dir.path().join("a"), below.clone()]);
        for other in ["app", "/there/is/none", "./app", ""] {
            assert_eq!(of(other), std::slice::from_ref(&below), "{other}");
        }
    }
}
