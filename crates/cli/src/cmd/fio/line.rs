//! `fio run`: fio's own command line on a simulated machine.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Parser;
use serde_json::{Value, json};
use wp_base::event::Class;
use wp_base::plain::Shown as _;
use wp_machine::host::{Existing, Output, Shape};
use wp_machine::workload::fio;
use wp_machine::{Machine, MachineError};
use wp_workload::fio::{Bins, CommandLine, JobFile, JobResult, RunError, RunOptions, Severity};

use super::super::run::{self, FS, Setup};
use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
#[command(
    override_usage = "writepath fio [fio's options] [--set KEY=VALUE] [JOB FILE]...",
    after_help = "Examples:\n\
    \x20 writepath fio --name=x --rw=randwrite --bs=4k --size=64m --fsync=1\n\
    \x20 writepath fio job.fio --output-format=json --output=report.json\n\
    \x20 writepath fio --name=x --size=1g --rw=read --direct=1 --set device=emmc-16 --set fs=f2fs"
)]
pub struct Run {
    /// fio's own arguments; --set KEY=VALUE sets the machine
    ///
    /// `--name=NAME` begins a job; options before the first one are those of all jobs. Supported of
    /// fio itself: --output, --output-format (normal, json, json+, terse), --minimal, --section,
    /// --showcmd, --parse-only. KEY of --set is an option of `writepath run`: fs, device, elevator,
    /// cpu, seed, partition-start, partition-size, image; or a parameter: device.queue_depth,
    /// fs.era. `--vars NAME:VALUE` gives ${NAME}; `--compat bugs` syncs the file that fio syncs.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<String>,
}

/// Keys that are not fio's.
const OWN: [&str; 3] = ["set", "vars", "compat"];

/// What fio itself may be asked for that changes nothing here.
const WITHOUT_EFFECT: [&str; 10] = [
    "eta",
    "eta-newline",
    "eta-interval",
    "status-interval",
    "alloc-size",
    "max-jobs",
    "debug",
    "aux-path",
    "append-terse",
    "idle-prof",
];

/// What is done here.
const DONE: [&str; 12] = [
    "output",
    "output-format",
    "minimal",
    "terse-version",
    "section",
    "showcmd",
    "parse-only",
    "version",
    "help",
    "readonly",
    "warnings-fatal",
    "cmdhelp",
];

/// The machine, as `run` takes it.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct MachineArgs {
    #[arg(long)]
    fs: Option<String>,
    #[command(flatten)]
    setup: Setup,
}

/// How the report is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Formats {
    normal: bool,
    json: bool,
    bins: bool,
    terse: bool,
}

/// A refusal: the exit code, its name, what is wrong, and the hint.
type Wrong = (Exit, &'static str, String, String);

fn usage(code: &'static str, what: impl Into<String>, help: impl Into<String>) -> Wrong {
    (Exit::Usage, code, what.into(), help.into())
}

/// `fio run` where it is left out: fio's command line begins with an option or a job file. A
/// `--json` of ours goes to the front: behind fio's arguments it would be one of them.
pub fn with_verb(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is = |arguments: &[OsString], n: usize, words: &[&str]| {
        arguments.get(n).is_some_and(|a| words.iter().any(|w| a == w))
    };
    let at = if is(&arguments, 1, &["--json"]) { 2 } else { 1 };
    let others = ["check", "help", "--help", "-h"];
    if !is(&arguments, at, &["fio"]) || is(&arguments, at + 1, &others) {
        return arguments;
    }
    let count = arguments.len();
    let behind = arguments.split_off(at + 1);
    arguments.extend(behind.into_iter().filter(|a| a != "--json"));
    let has_json = arguments.len() < count;
    if arguments.len() > at + 1 && !is(&arguments, at + 1, &["run"]) {
        arguments.insert(at + 1, "run".into());
    }
    if has_json && at == 1 {
        arguments.insert(1, "--json".into());
    }
    arguments
}

/// Runs the verb.
pub fn run(a: &Run, out: &Out) -> ExitCode {
    let line = wp_workload::fio::read_command_line(&a.arguments, &OWN);
    match told(&line, out) {
        Ok(code) | Err(code) => code,
    }
}

fn told(line: &CommandLine, out: &Out) -> Result<ExitCode, ExitCode> {
    let fail = |(exit, code, what, help): Wrong| out.fail(exit, code, &what, &help);
    if line.command("version").is_some() {
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("fio-3.33 (writepath {version})\n");
        return Ok(out.result(&json!({ "version": "fio-3.33", "writepath": version }), &text));
    }
    commands(line).map_err(fail)?;
    let formats = formats(line).map_err(fail)?;
    let mut machine = machine(line).map_err(fail)?;
    let variables = fio::variables(line.command("vars").unwrap_or_default())
        .map_err(|e| fail(usage("vars", e, "--vars NAME:VALUE")))?;
    let bugs = match line.command("compat") {
        None | Some("intended") => false,
        Some("bugs") => true,
        Some(_) => return Err(fail(usage("compat", "--compat: one of intended, bugs", ""))),
    };
    let mut files = Vec::new();
    for name in &line.files {
        files
            .push((name.clone(), bytes_of(name).map_err(|e| out.host_error(Path::new(name), &e))?));
    }
    let include = |name: &str| wp_machine::host::text::bytes(Path::new(name)).ok();
    let mut file = wp_workload::fio::parse_all(line, &files, &include, &variables);
    if machine.setup.image().is_none() {
        file.fit_empty();
    }
    if line.command("warnings-fatal").is_some() && !file.diagnostics.is_empty() {
        let what = format!("--warnings-fatal:\n{}", file.rendered());
        return Err(fail(usage("job", what, "")));
    }
    if file.has_errors() {
        let help = "`writepath fio check --all` lists exact and refused options";
        let what = format!("in the arguments or their job files:\n{}", file.rendered());
        return Err(out.fail(super::exit(&file), "job", &what, help));
    }
    if line.command("readonly").is_some()
        && let Some(job) = file.jobs.iter().find(|j| j.writes)
    {
        let what = format!("--readonly: job `{}` writes", job.name);
        return Err(fail(usage("readonly", what, "leave out --readonly, or read only")));
    }
    for d in file.diagnostics.iter().filter(|d| d.severity == Severity::Warning) {
        out.note(&d.to_string());
    }
    let jobs = file.jobs.len();
    if line.command("showcmd").is_some() {
        let text = wp_workload::fio::shown_command(&file.sections);
        return Ok(out.result(&json!({ "jobs": jobs, "command": text.trim_end() }), &text));
    }
    if line.command("parse-only").is_some() {
        return Ok(out.result(&json!({ "jobs": jobs }), ""));
    }
    place(&mut machine, &file).map_err(|e| fail(usage("fs", e, "")))?;
    let to = match line.command("output") {
        None => None,
        Some(path) => Some(output(Path::new(path), out)?),
    };
    let (results, seconds) = simulate(&machine, &file, bugs, out)?;
    for (name, text) in wp_workload::fio::log_files(&results) {
        outputs::finish(output(Path::new(&name), out)?, text.as_bytes(), out)?;
    }
    let ended = report(line, (&file, &results), seconds, formats);
    finish(to, ended, &results, out)
}

/// A job file; `-` is the standard input.
fn bytes_of(name: &str) -> std::io::Result<Vec<u8>> {
    if name != "-" {
        return wp_machine::host::text::bytes(Path::new(name));
    }
    /// Longest job file of a pipe.
    const BYTES_MAX: u64 = 64 << 20;
    let mut bytes = Vec::new();
    std::io::stdin().take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// fio replaces an existing report.
fn output(path: &Path, out: &Out) -> Result<Output, ExitCode> {
    Output::create(path, Shape::Text, Existing::Replace).map_err(|e| out.host_error(path, &e))
}

/// Refuses what fio itself can do and a simulation cannot; says what has no effect.
fn commands(line: &CommandLine) -> Result<(), Wrong> {
    for (key, value) in &line.commands {
        let key = key.as_str();
        if OWN.contains(&key) || DONE.contains(&key) || WITHOUT_EFFECT.contains(&key) {
            if key == "terse-version" && value != "3" {
                let what = format!("--terse-version={value} is not supported");
                return Err((Exit::Unsupported, "option", what, "--terse-version=3".into()));
            }
            if ["help", "cmdhelp"].contains(&key) {
                let help = "`writepath fio run --help`, `writepath fio check --all`";
                return Err(usage("help", format!("--{key} is fio's own help"), help));
            }
            continue;
        }
        let what = format!("--{key} is not supported: it is about fio's own process and host");
        return Err((Exit::Unsupported, "option", what, "leave it out".into()));
    }
    Ok(())
}

fn formats(line: &CommandLine) -> Result<Formats, Wrong> {
    let mut formats = Formats::default();
    let asked = line.command("output-format").unwrap_or("");
    for word in asked.split(',').filter(|w| !w.is_empty()) {
        match word {
            "normal" => formats.normal = true,
            "json" => formats.json = true,
            "json+" => (formats.json, formats.bins) = (true, true),
            "terse" => formats.terse = true,
            other => {
                let what = format!("--output-format={other}: unknown");
                return Err(usage("output-format", what, "one of normal, json, json+, terse"));
            }
        }
    }
    formats.terse |= line.command("minimal").is_some();
    formats.normal |= formats == Formats::default();
    Ok(formats)
}

/// The machine that `--set` asks for.
fn machine(line: &CommandLine) -> Result<MachineArgs, Wrong> {
    const KEYS: [&str; 8] =
        ["fs", "device", "elevator", "cpu", "seed", "partition-start", "partition-size", "image"];
    let mut values: Vec<(&str, String)> = Vec::new();
    let mut more: Vec<(&str, String)> = Vec::new();
    for set in line.all("set") {
        let help = "--set KEY=VALUE, such as --set device=emmc-16, --set device.queue_depth=1";
        let Some((key, value)) = set.split_once('=') else {
            return Err(usage("set", format!("--set {set}: no `=`"), help));
        };
        let key = key.trim();
        match key.split_once('.') {
            Some((part @ ("fs" | "device"), parameter)) => {
                more.push((part, format!("{parameter}={value}")));
            }
            _ if KEYS.contains(&key) => {
                values.retain(|(k, _)| *k != key);
                values.push((key, value.to_owned()));
            }
            _ => {
                let what = format!("--set {key}: unknown (keys: {})", KEYS.join(", "));
                return Err(usage("set", what, help));
            }
        }
    }
    for (part, parameter) in more {
        let default = if part == "fs" { FS } else { "ssd-128" };
        match values.iter_mut().find(|(k, _)| *k == part) {
            Some((_, value)) => *value += &format!(",{parameter}"),
            None if part == "fs" && parameter.starts_with("era=") => {
                values.push((part, format!("ext4,{parameter}")));
            }
            None => values.push((part, format!("{default},{parameter}"))),
        }
    }
    let arguments = values.iter().map(|(k, v)| format!("--{k}={v}"));
    MachineArgs::try_parse_from(arguments).map_err(|e| {
        let text = e.render().to_string();
        let what = text.lines().next().unwrap_or_default();
        usage("set", what.trim_start_matches("error: ").to_owned(), "writepath run --help")
    })
}

/// Gives a machine that names no file system the one that its jobs are for.
///
/// Errors: jobs on devices of a machine with a file system, or the other way round.
fn place(machine: &mut MachineArgs, file: &JobFile) -> Result<(), String> {
    let none = wp_machine::registry::NONE.name;
    let device = file.device()?;
    let default = if device.is_some() { none } else { FS };
    let fs = machine.fs.get_or_insert_with(|| default.to_owned());
    let (name, _) = wp_machine::spec::name_and_rest(fs);
    match device {
        Some(device) if name != none => {
            Err(format!("the jobs use {device}, and the drive has a file system: --set fs=none"))
        }
        None if name == none => {
            let what = "the jobs use files, and --set fs=none is a drive without a file system";
            Err(format!("{what}: use filename=/dev/nvme0n1"))
        }
        _ => Ok(()),
    }
}

/// Runs the jobs on a machine of their own. Answers with what they did, and with the virtual time.
fn simulate(
    args: &MachineArgs,
    file: &JobFile,
    bugs: bool,
    out: &Out,
) -> Result<(Vec<JobResult>, u64), ExitCode> {
    let help = "`writepath list fs`, `list devices` and `list workloads` list names and options";
    let spec = run::machine_spec(args.fs.as_deref().unwrap_or(FS), &args.setup)
        .map_err(|e| out.fail(Exit::Usage, "config", &e, help))?;
    let image = match args.setup.image() {
        None => None,
        Some(path) => {
            let (m, _) = wp_machine::files::load(path).map_err(|e| out.host_error(path, &e))?;
            Some(m)
        }
    };
    let is_new = image.is_none();
    let offers_fallocate = spec.fs.offers.fallocate;
    let outcome = (|| {
        let machine = Machine::new(spec, image)?;
        let now = machine.rt.shared_now();
        let _shown = Progress::asking("fio", move || {
            let seconds = now.load(Ordering::Relaxed) as f64 / 1e9;
            format!("{seconds:.1} s of virtual time")
        });
        let vfs = machine.mount()?;
        if is_new {
            let needs = file.laid_out_bytes(!offers_fallocate).into_iter();
            let needs = needs.map(|(job, bytes)| (format!("job `{job}`"), bytes)).collect();
            run::verify_room(&machine, &vfs, "fio", needs)?;
        }
        machine.rt.probe().set_limit(0);
        machine.record(Class(0));
        let chance = machine.rt.rng("fio").next_u64();
        let options = RunOptions { chance, bugs, ..RunOptions::default() };
        let (v, jobs) = (vfs.clone(), file.clone());
        let done = machine
            .block_on("fio", async move { wp_workload::fio::run(&v, &jobs, options).await })?;
        let results = match done {
            Ok(results) => results,
            Err(RunError::Fs(error)) => return Err(MachineError::Fs { during: "fio", error }),
            Err(RunError::Job(what)) => return Err(MachineError::Config(what)),
        };
        let ended = machine.rt.now().0;
        if results.iter().any(|r| r.stays_cached) {
            let name = vfs.fs().name();
            out.note(&format!(
                "note: invalidate=1 has no effect: {name} does not drop a file's pages"
            ));
        }
        machine.unmount(&vfs)?;
        Ok((results, ended))
    })();
    outcome.map_err(|e: MachineError| out.machine_error(&e))
}

/// The report as text in the asked formats, and as a document.
fn report(
    line: &CommandLine,
    (file, results): (&JobFile, &[JobResult]),
    now_ns: u64,
    formats: Formats,
) -> (String, Value) {
    let bins = if formats.bins { Bins::All } else { Bins::None };
    let doc = wp_workload::fio::report_with(file, results, (wp_machine::EPOCH_SECS, now_ns), bins);
    let mut text = String::new();
    // A report that goes to a file begins on the terminal, as fio's does.
    if formats.normal && line.command("output").is_none() {
        text += &wp_workload::fio::heading(file);
    }
    if formats.terse {
        text += &wp_workload::fio::terse(&doc);
    }
    if formats.json {
        text += &(serde_json::to_string_pretty(&doc).unwrap_or_default() + "\n");
    }
    if formats.normal {
        text += &wp_workload::fio::normal(&doc, &wp_workload::fio::counts(results));
    }
    (text, doc)
}

fn finish(
    to: Option<Output>,
    (text, doc): (String, Value),
    results: &[JobResult],
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    let wrote: Option<PathBuf> = to.as_ref().map(|o| o.path().to_owned());
    let shown = match to {
        None => text,
        Some(to) => {
            outputs::finish(to, text.as_bytes(), out)?;
            String::new()
        }
    };
    if let Some(path) = wrote {
        out.note(&format!("written to {}", path.shown()));
    }
    let text = |r: &JobResult| Some(format!("`{}` ({})", r.job.name, r.error_text()?));
    let failed: Vec<String> = results.iter().filter_map(text).collect();
    if !failed.is_empty() {
        out.note(&format!("note: jobs with errors: {}", failed.join(", ")));
        return Ok(out.answer(Exit::Simulated, &doc, &shown));
    }
    let fills = |r: &&JobResult| r.job.fill_device;
    let short: u64 = results.iter().filter(|r| !fills(r)).map(|r| r.directions[1].short).sum();
    if short > 0 {
        out.note(&format!("note: {short} writes wrote less than they were given"));
        return Ok(out.answer(Exit::Simulated, &doc, &shown));
    }
    Ok(out.result(&doc, &shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_may_be_left_out_and_json_may_stand_anywhere() {
        for (given, read) in [
            ("w fio --name=a", "w fio run --name=a"),
            ("w fio a.fio --json", "w --json fio run a.fio"),
            ("w fio run a.fio --json", "w --json fio run a.fio"),
            ("w --json fio a.fio", "w --json fio run a.fio"),
            ("w fio check a.fio --json", "w fio check a.fio --json"),
            ("w fio", "w fio"),
            ("w run --workload fio", "w run --workload fio"),
        ] {
            let all = given.split(' ').map(OsString::from).collect();
            let expected: Vec<OsString> = read.split(' ').map(OsString::from).collect();
            assert_eq!(with_verb(all), expected, "{given}");
        }
    }
}
