//! `fio check` of several job files: one line for each, and how many of the files that use an
//! option or an engine run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_machine::workload::fio;
use wp_workload::fio::{Diagnostic, JobFile, Severity, Used, Variables};

use crate::output::{Exit, Out};

/// What a file uses, and whether it runs.
struct Checked {
    path: PathBuf,
    /// The first error; `None`: it runs.
    error: Option<Diagnostic>,
    exit: Exit,
    features: BTreeSet<String>,
}

/// Characters of an unknown option that is listed by its name.
const KEY_MAX: usize = 40;
/// Bytes from the beginning of a file in which a job file has its first section.
const HEAD: u64 = 1 << 16;

/// Files to check, and those of folders that are no job files.
#[derive(Default)]
pub(super) struct Files {
    pub(super) jobs: Vec<PathBuf>,
    pub(super) others: Vec<PathBuf>,
}

/// Is there a section, and nothing that is no text?
fn is_job_file(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    let mut lines = head.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    Ok(!head.contains(&0) && lines.any(|l| l.starts_with(b"[") && l.contains(&b']')))
}

/// The files that are named, and the job files in the folders that are named, in order.
pub(super) fn files(named: &[PathBuf]) -> Result<Files, (PathBuf, std::io::Error)> {
    let Files { jobs: mut all, mut others } = Files::default();
    for path in named {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let fail = |e| (path.clone(), e);
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let entry = entry.map_err(fail)?.path();
            if !entry.is_file() {
                continue;
            }
            match is_job_file(&entry) {
                Ok(true) => inside.push(entry),
                Ok(false) => others.push(entry),
                Err(e) => return Err((entry, e)),
            }
        }
        inside.sort();
        all.append(&mut inside);
    }
    others.sort();
    Ok(Files { jobs: all, others })
}

/// Checks all of them.
pub(super) fn run(files: &Files, variables: &Variables, out: &Out) -> ExitCode {
    let mut all = Vec::new();
    for path in &files.jobs {
        match check(path, variables) {
            Ok(checked) => all.push(checked),
            Err(e) => return out.host_error(path, &e),
        }
    }
    let mut text = String::new();
    for c in &all {
        let word = match &c.error {
            None => "runs".to_owned(),
            Some(d) if c.exit == Exit::Unsupported => format!("refused: {}", first_line(d)),
            Some(d) => format!("wrong: {}", first_line(d)),
        };
        writeln!(text, "{}: {word}", c.path.shown()).expect("a string takes it");
    }
    let run = all.iter().filter(|c| c.error.is_none()).count();
    let features = features(&all);
    writeln!(text, "\n{run} of {} files run", all.len()).expect("a string takes it");
    if !files.others.is_empty() {
        let n = files.others.len();
        writeln!(text, "{n} other files in the folders have no [section] or are no text")
            .expect("a string takes it");
    }
    text.push('\n');
    writeln!(text, "{:<28} {:>6} {:>6}", "option or engine", "files", "run")
        .expect("a string takes it");
    for (feature, files, run) in &features {
        writeln!(text, "{feature:<28} {files:>6} {run:>6}").expect("a string takes it");
    }
    let listed: Vec<Value> = all.iter().map(file).collect();
    let features: Vec<Value> = features
        .iter()
        .map(|(f, n, run)| json!({ "feature": f, "files": n, "run": run }))
        .collect();
    let doc = json!({
        "schema": "writepath.fio-check-files/1", "files": listed, "run": run, "features": features,
        "other_files": files.others.iter().map(|p| p.shown().to_string()).collect::<Vec<_>>(),
    });
    let is = |exit: Exit| all.iter().any(|c| c.error.is_some() && c.exit == exit);
    let exit = match (is(Exit::Unsupported), is(Exit::Usage)) {
        (true, _) => Exit::Unsupported,
        (false, true) => Exit::Usage,
        (false, false) => Exit::Ok,
    };
    out.answer(exit, &doc, &text)
}

fn check(path: &Path, variables: &Variables) -> std::io::Result<Checked> {
    let mut file = fio::read(path, variables)?.file;
    file.fit_empty();
    let exit = super::exit(&file);
    Ok(Checked { path: path.to_owned(), error: first_error(&file), exit, features: used(&file) })
}

/// Of a file that asks for what is not supported, the first that says so: what else is wrong may
/// follow from it.
fn first_error(file: &JobFile) -> Option<Diagnostic> {
    let errors = || file.diagnostics.iter().filter(|d| d.severity == Severity::Error);
    errors().find(|d| d.is_unsupported).or_else(|| errors().next()).cloned()
}

/// The options of a file by their first names, and its engines.
fn used(file: &JobFile) -> BTreeSet<String> {
    let feature = |u: &Used| match u.option {
        Some(o) if o.name == "ioengine" => format!("ioengine={}", u.value),
        Some(o) => o.name.to_owned(),
        None if u.key.len() <= KEY_MAX && u.key.chars().all(|c| c.is_ascii_graphic()) => {
            u.key.clone()
        }
        None => "(unknown)".to_owned(),
    };
    file.used.iter().map(feature).collect()
}

/// Each feature, how many files use it, and how many of those run: the most used first.
fn features(all: &[Checked]) -> Vec<(String, u64, u64)> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for c in all {
        for feature in &c.features {
            let (files, run) = counts.entry(feature).or_default();
            *files += 1;
            *run += u64::from(c.error.is_none());
        }
    }
    let mut list: Vec<(String, u64, u64)> =
        counts.into_iter().map(|(f, (n, run))| (f.to_owned(), n, run)).collect();
    list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    list
}

fn first_line(d: &Diagnostic) -> String {
    let message = d.message.lines().next().unwrap_or_default();
    format!("line {}: {message}", d.at.line)
}

fn file(c: &Checked) -> Value {
    let mut doc = json!({ "file": c.path.shown().to_string(), "runs": c.error.is_none() });
    if let Some(d) = &c.error {
        doc["exit_code"] = json!(c.exit as u8);
        doc["line"] = json!(d.at.line);
        doc["message"] = json!(d.message);
        doc["help"] = json!(d.help);
    }
    doc
}
