//! `fio`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_machine::workload::fio;
use wp_vfs::Options;
use wp_workload::fio::{Class, JobFile, OPTIONS, OptionInfo, Severity};

use crate::output::{Exit, Out};

mod line;
mod table;

pub use line::with_verb;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Check job files: which options are exact, approximated or refused.
    Check(Check),
    /// Run jobs, with fio's own command line; `run` may be left out.
    ///
    /// `writepath fio --name=x --rw=randwrite ... [JOB FILE]...` takes what fio 3.33 takes, and
    /// prints what it prints.
    Run(line::Run),
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath fio check job.fio\n\
    \x20 writepath fio check jobs/ more.fio\n\
    \x20 writepath fio check --all")]
struct Check {
    /// Job files, or folders of job files; several make a table by option
    job: Vec<PathBuf>,
    /// Values for ${NAME}: NAME:VALUE;NAME:VALUE
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    vars: String,
    /// List all options of fio instead of those of a file
    #[arg(long, conflicts_with = "job", required_unless_present = "job")]
    all: bool,
}

fn line(text: &mut String, key: &str, class: &str, note: &str) {
    writeln!(text, "{key:<28} {class:<13} {note}").expect("a string takes it");
}

fn info(o: &OptionInfo) -> Value {
    json!({ "option": o.name, "aliases": o.aliases, "class": o.class.word(), "note": o.note })
}

/// Checks one file, as `fio check` does.
pub fn check_file(path: &std::path::Path, vars: &str, out: &Out) -> ExitCode {
    let (job, vars) = (vec![path.to_owned()], vars.to_owned());
    run(&Args { what: What::Check(Check { job, vars, all: false }) }, out)
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let check = match &a.what {
        What::Check(check) => check,
        What::Run(a) => return line::run(a, out),
    };
    let mut text = String::new();
    let Some(path) = check.job.first() else {
        for o in OPTIONS {
            line(&mut text, o.name, o.class.word(), o.note);
        }
        let all: Vec<Value> = OPTIONS.iter().map(info).collect();
        return out.result(&json!({ "schema": "writepath.fio-options/1", "options": all }), &text);
    };
    let variables = match fio::variables(&check.vars) {
        Ok(v) => v,
        Err(e) => return out.fail(Exit::Usage, "vars", &e, ""),
    };
    if check.job.len() > 1 || path.is_dir() {
        return match table::files(&check.job) {
            Ok(files) if files.jobs.is_empty() => {
                let folders: Vec<String> =
                    check.job.iter().map(|f| f.shown().to_string()).collect();
                let message = format!("{}: no job file in this folder", folders.join(", "));
                out.fail(Exit::Usage, "job", &message, "writepath fio check --help")
            }
            Ok(files) => table::run(&files, &variables, out),
            Err((path, e)) => out.host_error(&path, &e),
        };
    }
    let mut loaded = match fio::read(path, &variables) {
        Ok(l) => l,
        Err(e) => return out.host_error(path, &e),
    };
    loaded.file.fit_empty();
    checked(&loaded.file, out)
}

/// What a job file asks for: its options, defaults that differ here, and what is wrong in it.
fn checked(file: &JobFile, out: &Out) -> ExitCode {
    let mut text = String::new();
    let options = used(file, &mut text);
    let mut unwritten = Vec::new();
    for (job, option, default) in file.unwritten() {
        if unwritten.is_empty() {
            text.push_str("\nfio's defaults that are not written in the file, and differ here:\n");
        }
        let shown = format!("[{job}] {}={default}", option.name);
        line(&mut text, &shown, option.class.word(), option.note);
        unwritten.push(json!({
            "section": job, "key": option.name, "value": default, "class": option.class.word(),
            "note": option.note,
        }));
    }
    for d in &file.diagnostics {
        write!(text, "\n{d}\n").expect("a string takes it");
    }
    let diagnostics: Vec<Value> = file
        .diagnostics
        .iter()
        .map(|d| {
            let severity = if d.severity == Severity::Error { "error" } else { "warning" };
            json!({
                "severity": severity, "file": &*d.at.file, "line": d.at.line,
                "column": d.at.column, "message": d.message, "help": d.help,
            })
        })
        .collect();
    let doc = json!({
        "schema": "writepath.fio-check/1", "options": options, "unwritten": unwritten,
        "diagnostics": diagnostics, "jobs": file.jobs.len(),
    });
    out.answer(exit(file), &doc, &text)
}

/// The options that a job file has.
fn used(file: &JobFile, text: &mut String) -> Vec<Value> {
    let mut options = Vec::new();
    for u in &file.used {
        let (class, note) = match u.option {
            Some(_) if u.refused && u.option.is_some_and(|o| o.class.word() != "refused") => {
                ("refused", "this value is not supported; see below")
            }
            Some(o) if !u.refused && o.class == Class::Refused => {
                ("off", "accepted: this value asks for nothing")
            }
            Some(o) => (o.class.word(), o.note),
            None => ("unknown", "not an option of fio 3.33"),
        };
        let shown = format!("[{}] {}={}", u.section, u.key, u.value);
        line(text, &shown, class, note);
        options.push(json!({
            "section": u.section, "key": u.key, "value": u.value, "class": class, "note": note,
            "line": u.at.line, "column": u.at.column,
        }));
    }
    options
}

/// How a command with this file ends, if it does not run it.
fn exit(file: &JobFile) -> Exit {
    match (file.has_errors(), file.is_unsupported()) {
        (false, _) => Exit::Ok,
        (true, true) => Exit::Unsupported,
        (true, false) => Exit::Usage,
    }
}

/// Answers for a `--workload fio,job=FILE` whose file has errors. `None`: it has none, or it is
/// another workload, or what is wrong is not the file. With `on_image` the files may exist.
pub fn refused(workload: &str, on_image: bool, out: &Out) -> Option<ExitCode> {
    let (name, rest) = super::name_and_rest(workload);
    if name != "fio" {
        return None;
    }
    let options = Options::parse(rest, fio::ENTRY.options).ok()?;
    let option = |key: &str| options.get(key, fio::ENTRY.options).unwrap_or_default().to_owned();
    refused_file(std::path::Path::new(&option("job")), &option("vars"), on_image, out)
}

/// The same for a job file.
pub fn refused_file(
    job: &std::path::Path,
    vars: &str,
    on_image: bool,
    out: &Out,
) -> Option<ExitCode> {
    let mut loaded = fio::read(job, &fio::variables(vars).ok()?).ok()?;
    if !on_image {
        loaded.file.fit_empty();
    }
    if !loaded.file.has_errors() {
        return None;
    }
    let job = job.shown();
    let vars = if vars.is_empty() { String::new() } else { format!(" --vars '{vars}'") };
    let help = format!("writepath fio check {job}{vars}");
    let message = format!("{job}:\n{}", loaded.file.rendered());
    Some(out.fail(exit(&loaded.file), "job", &message, &help))
}
