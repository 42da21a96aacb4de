//! Experiment files: `run FILE`, `check` and `merge`.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_experiment::{
    Checked, Ended, Experiment, Kept, MergeError, Plan, Ready, Row, Shard, Tried, claims::Answered,
    is_experiment, load, merge as merge_shards, ready, run_all, table,
};
use wp_machine::MachineError;
use wp_workload::fio::{Diagnostic, Severity};

use super::reproduce;
use crate::output::{Exit, Out, path};
use crate::outputs;
use crate::progress::Progress;

/// What `run` takes for an experiment file.
#[derive(clap::Args)]
pub struct RunArgs {
    /// Experiment file (TOML) to run instead of one workload
    ///
    /// Runs every point of the file with every seed and judges its claims; exit code 1 if a claim
    /// does not hold. docs/experiments.md describes the format.
    #[arg(conflicts_with_all = [
        "fs", "device", "workload", "elevator", "cpu", "partition_start", "partition_size", "image",
        "save_image", "fio_json", "no_events", "events",
    ])]
    pub file: Option<PathBuf>,
    /// Run shard I of N; `writepath merge` joins the shards
    ///
    /// Runs every N-th run of the experiment, from run number I on.
    #[arg(long, value_name = "I/N", requires = "file", help_heading = "Experiments")]
    shard: Option<String>,
    /// Number of parallel runs [default: number of cores]
    #[arg(long, value_name = "N", requires = "file", help_heading = "Experiments")]
    jobs: Option<NonZeroUsize>,
    /// Repeat every run and compare with the saved results
    ///
    /// Exit code 6 if a result differs.
    #[arg(long, requires = "file", help_heading = "Experiments")]
    verify: bool,
    /// Repeat runs that an earlier command finished
    #[arg(long, requires = "file", help_heading = "Experiments")]
    again: bool,
    /// Make the runs on the workers of this Dask cluster: tcp://HOST:8786
    ///
    /// Needs the Python package `writepath` (docs/python.md) for the host's `python3`, and the same
    /// one on each worker. The result is the same as without it.
    #[arg(long, value_name = "ADDRESS", requires = "file", help_heading = "Experiments")]
    #[arg(conflicts_with_all = ["shard", "jobs", "verify", "again"])]
    dask: Option<String>,
}

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath check experiment.toml\n\
    \x20 writepath check job.fio --vars SIZE:64m")]
pub struct CheckArgs {
    /// Experiment (TOML), fio job or filebench model
    file: PathBuf,
    /// Variables of a job or model: NAME:VALUE;NAME:VALUE
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    vars: String,
    /// Kind of the file: experiment, fio or wml [default: detected]
    #[arg(long)]
    kind: Option<String>,
}

/// Arguments of `merge`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath merge results/shard-1 results/shard-2")]
pub struct MergeArgs {
    /// Folders that `run --shard` wrote
    #[arg(required = true)]
    shards: Vec<PathBuf>,
    /// Results folder
    #[arg(long, default_value = "results")]
    out: PathBuf,
}

const LINE: &str = "a string takes it";

/// Diagnostics for `--json`.
fn documents(all: &[Diagnostic]) -> Vec<Value> {
    let one = |d: &Diagnostic| {
        let severity = if d.severity == Severity::Error { "error" } else { "warning" };
        json!({
            "severity": severity, "file": &*d.at.file, "line": d.at.line, "column": d.at.column,
            "message": d.message, "help": d.help,
        })
    };
    all.iter().map(one).collect()
}

/// Diagnostics as text.
fn rendered(all: &[Diagnostic]) -> String {
    all.iter().map(|d| format!("{d}\n\n")).collect()
}

/// Reads an experiment, or says what is wrong with it and with which code to end.
fn read(file: &Path, seed: Option<u64>, out: &Out) -> Result<Experiment, ExitCode> {
    let Checked { experiment, diagnostics } =
        load(file, seed).map_err(|e| out.host_error(file, &e))?;
    experiment.ok_or_else(|| {
        let n = diagnostics.len();
        let doc = json!({
            "schema": "writepath.check/1", "kind": "experiment",
            "diagnostics": documents(&diagnostics),
            "error": { "code": "experiment", "message": format!("{n} errors in {}", file.shown()),
                "help": "docs/experiments.md has the format" },
        });
        out.note(rendered(&diagnostics).trim_end());
        out.answer(Exit::Usage, &doc, "")
    })
}

/// Runs an experiment file; `seed` is in place of its own.
pub fn run(file: &Path, a: &RunArgs, (seed, root): (Option<u64>, &Path), out: &Out) -> ExitCode {
    let shard = match a.shard.as_deref().map(Shard::parse).transpose() {
        Ok(shard) => shard.unwrap_or(Shard::WHOLE),
        Err(e) => return out.fail(Exit::Usage, "shard", &e, "such as --shard 2/8"),
    };
    let e = match read(file, seed, out) {
        Ok(e) => e,
        Err(code) => return code,
    };
    if let Some(address) = &a.dask {
        return on_dask(address, file, (seed, root), out);
    }
    let program = match reproduce::kept::program() {
        Ok(program) => program,
        Err(e) => return out.host_error(Path::new("this program"), &e),
    };
    if let Err(code) = outputs::folder(root, out) {
        return code;
    }
    let work = Work { e: &e, a, shard, out, stop: out.interrupt_in_parts() };
    let kept = Kept::new(root.join("kept").join("runs"), &program);
    if a.verify {
        return verify(&work, &kept, root);
    }
    let rows = match work.rows(Some(&kept), a.again) {
        Ok(rows) => rows,
        Err(code) => return code,
    };
    let ready = ready(&e, &rows, shard);
    match ready.write(root) {
        Ok(written) => answer(&e, &rows, &ready, &written.dir, out),
        Err(error) => out.host_error(root, &error),
    }
}

/// Has the Python package make the runs on a cluster, and answer in place of this program.
fn on_dask(address: &str, file: &Path, (seed, root): (Option<u64>, &Path), out: &Out) -> ExitCode {
    let mut command = wp_machine::host::program::python();
    command.args(["-m", "writepath.dask_run", "--address", address, "--file"]);
    command.arg(file).arg("--out").arg(root);
    if let Some(seed) = seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if out.is_json() {
        command.arg("--json");
    }
    const HELP: &str = "install the package: docs/python.md";
    let refused = |what: &str| out.fail(Exit::Unsupported, "dask", what, HELP);
    let found = wp_machine::host::program::python()
        .args(["-c", "import writepath.dask_run"])
        .stderr(std::process::Stdio::null())
        .status();
    if !found.is_ok_and(|status| status.success()) {
        return refused("--dask needs the Python package `writepath`, which python3 does not have");
    }
    match command.status().map(|status| status.code().and_then(|c| u8::try_from(c).ok())) {
        Ok(Some(code)) => ExitCode::from(code),
        Ok(None) => out.fail(Exit::Interrupted, "interrupted", "interrupted", "run it again"),
        Err(e) => refused(&format!("python3: {e}")),
    }
}

/// An experiment under way.
struct Work<'a> {
    e: &'a Experiment,
    a: &'a RunArgs,
    shard: Shard,
    out: &'a Out,
    stop: Arc<AtomicBool>,
}

impl Work<'_> {
    /// Makes the runs, or says why not and with which code to end.
    fn rows(&self, kept: Option<&Kept>, again: bool) -> Result<Vec<Row>, ExitCode> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let workers = self.a.jobs.map_or_else(cores, NonZeroUsize::get);
        let plan = Plan { shard: self.shard, workers, kept, again };
        let (stop, shown) = (&self.stop, Progress::new("run"));
        let progress = |done: usize, of: usize, name: &str| {
            shown.at(done as u64, of as u64, name);
            !stop.load(Ordering::SeqCst)
        };
        let ended = run_all(self.e, &plan, &progress);
        drop(shown);
        match ended {
            Ok(Ended::Whole(rows)) => Ok(rows),
            Ok(Ended::Stopped(done)) => Err(self.out.fail(
                Exit::Interrupted,
                "interrupted",
                &format!("interrupted: {done} of {} runs are kept", self.e.runs()),
                "run the same command to continue",
            )),
            Ok(Ended::Failed(n, error)) => Err(self.failed(n, &error)),
            Err(e) => Err(self.out.host_error(Path::new("kept runs"), &e)),
        }
    }

    fn failed(&self, n: usize, error: &MachineError) -> ExitCode {
        self.out.note(&format!("run {n}: {}", self.e.describe(n)));
        self.out.machine_error(error)
    }
}

/// Makes all runs again and compares what comes out with what is there, or with a first time.
fn verify(work: &Work<'_>, kept: &Kept, root: &Path) -> ExitCode {
    let (e, out) = (work.e, work.out);
    let first = match work.rows(None, true) {
        Ok(rows) => ready(e, &rows, work.shard),
        Err(code) => return code,
    };
    let dir = root.join(&first.place);
    let against = if dir.exists() {
        first
    } else {
        if let Err(error) = first.write(root) {
            return out.host_error(root, &error);
        }
        match work.rows(Some(kept), true) {
            Ok(rows) => ready(e, &rows, work.shard),
            Err(code) => return code,
        }
    };
    let differ = against.compare(root);
    let doc = json!({
        "schema": "writepath.verify/1", "name": e.name, "runs": e.runs(), "result": path(&dir),
        "differ": differ,
    });
    if differ.is_empty() {
        let mut text = format!("identical: {} files in {}\n", against.files.len(), dir.shown());
        if against.differs() {
            text.push_str("a claim of the experiment does not hold\n");
            return out.answer(Exit::No, &doc, &text);
        }
        return out.result(&doc, &text);
    }
    let text: String = differ.iter().map(|d| format!("{}: {d}\n", dir.shown())).collect();
    out.answer(Exit::NotSame, &doc, &text)
}

/// What came out: a table of points, the claims, where the results are.
fn answer(e: &Experiment, rows: &[Row], ready: &Ready, dir: &Path, out: &Out) -> ExitCode {
    let mut notes: Vec<&str> =
        rows.iter().flat_map(|r| &r.outcome.notes).map(String::as_str).collect();
    notes.sort_unstable();
    notes.dedup();
    notes.into_iter().for_each(|note| out.note(note));
    let mut text = points(e, rows);
    if !ready.claims.is_empty() {
        text.push('\n');
        let judged: Vec<_> = ready.claims.iter().map(shown).collect();
        reproduce::claims_table(&mut text, &judged);
    }
    writeln!(text, "\nresult: {}", dir.shown()).expect(LINE);
    let mut doc = ready.summary.clone();
    doc["claims"] = json!(ready.claims);
    doc["result"] = path(dir);
    let exit = if ready.differs() { Exit::No } else { Exit::Ok };
    out.answer(exit, &doc, &text)
}

/// A claim for the table: one of the file's own has its band in place of a paper's value.
fn shown(a: &Answered) -> wp_report::claim::Judged {
    use wp_report::claim::PaperValue;
    let mut judged = a.judged.clone();
    if matches!(&judged.paper_value, PaperValue::Word(word) if word.is_empty()) {
        let [low, high] = judged.band;
        let edge = |x: f64| number(x);
        let text = match () {
            () if low == high => edge(low),
            () if high == f64::MAX => format!(">= {}", edge(low)),
            () if low == f64::MIN => format!("<= {}", edge(high)),
            () => format!("{}..{}", edge(low), edge(high)),
        };
        judged.paper_value = PaperValue::Word(text);
    }
    judged
}

/// A number for people: seven digits at most that mean something.
fn number(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e15 {
        return format!("{x:.0}");
    }
    let digits = (4 - (x.abs().log10().floor() as i32)).clamp(0, 9) as usize;
    let text = format!("{x:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Most columns of metrics that are shown unasked.
const COLUMNS: usize = 6;

/// The metrics of the table: those that the file asks for, those of its claims, or the workload's.
fn columns(e: &Experiment, rows: &[Row]) -> Vec<String> {
    if !e.show.is_empty() {
        return e.show.clone();
    }
    let mut all: Vec<String> = Vec::new();
    for said in &e.claims {
        said.expr.metrics(&mut |name, _, _| {
            if !all.iter().any(|known| known == name) {
                all.push(name.to_owned());
            }
        });
    }
    if all.is_empty() {
        let names = rows.first().map(|r| r.outcome.metrics.keys());
        let own = |n: &&String| {
            !["device", "fs.", "conflicts.", "virtual_time_ns"].iter().any(|p| n.starts_with(p))
        };
        all.extend(names.into_iter().flatten().filter(own).cloned());
    }
    all.truncate(COLUMNS);
    all
}

/// A line a point: its values, and means of metrics over its seeds.
fn points(e: &Experiment, rows: &[Row]) -> String {
    let metrics = columns(e, rows);
    let keys = e.sweep.columns();
    let head = keys.iter().map(|k| (*k).to_owned()).chain(metrics.iter().cloned());
    let mut lines: Vec<Vec<String>> = vec![head.collect()];
    for n in 0..e.points.len() {
        let of = table::of_point(rows, n);
        if of.is_empty() {
            continue;
        }
        let cell = |name: &String| match table::metric_of(&of, name) {
            None => "-".to_owned(),
            Some(s) if s.spread() == 0.0 => number(s.mean),
            Some(s) => format!("{} ±{:.1}%", number(s.mean), s.spread() * 50.0),
        };
        let labels = e.sweep.labels(n).into_iter().map(str::to_owned);
        lines.push(labels.chain(metrics.iter().map(cell)).collect());
    }
    let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (cell, w))| match i < keys.len() {
                true => format!("{cell:<w$}"),
                false => format!("{cell:>w$}"),
            })
            .collect();
        writeln!(text, "{}", cells.join("  ").trim_end()).expect(LINE);
    }
    text
}

/// Most machines that a check builds and mounts.
const MACHINES: usize = 64;

/// What a file is, by its name and what it begins with.
fn kind(file: &Path, bytes: &[u8]) -> &'static str {
    let end = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
    match end {
        "toml" => "experiment",
        "f" | "wml" => "wml",
        "fio" | "job" | "ini" => "fio",
        _ if is_experiment(bytes) => "experiment",
        _ => {
            let text = String::from_utf8_lossy(bytes);
            let mut code = text.lines().map(str::trim).filter(|l| !l.is_empty());
            match code.find(|l| !l.starts_with(['#', ';'])) {
                Some(line) if line.starts_with('[') => "fio",
                _ => "wml",
            }
        }
    }
}

/// Runs `check`.
pub fn check(a: &CheckArgs, out: &Out) -> ExitCode {
    let bytes = match wp_machine::host::text::bytes(&a.file) {
        Ok(bytes) => bytes,
        Err(e) => return out.host_error(&a.file, &e),
    };
    match a.kind.as_deref().unwrap_or_else(|| kind(&a.file, &bytes)) {
        "fio" => super::fio::check_file(&a.file, &a.vars, out),
        "wml" => super::filebench::check_file(&a.file, &a.vars, out),
        "experiment" => match read(&a.file, None, out) {
            Ok(e) => match e.try_machines(MACHINES) {
                Ok(tried) => checked(&e, tried, out),
                Err((point, error)) => {
                    out.note(&format!("{}: {}", a.file.shown(), e.sweep.describe(point)));
                    out.machine_error(&error)
                }
            },
            Err(code) => code,
        },
        other => {
            let what = format!("--kind {other}: unknown");
            out.fail(Exit::Usage, "kind", &what, "use experiment, fio or wml")
        }
    }
}

fn checked(e: &Experiment, tried: Tried, out: &Out) -> ExitCode {
    let variations = e.varied.as_ref().map_or(0, |v| v.names.len());
    let varied = if variations > 0 { format!(", {variations} variations") } else { String::new() };
    let (points, claims) = (e.points.len(), e.claims.len());
    let machines = match (tried.machines, tried.points) {
        (n, of) if of < points => {
            format!(
                "{n} machines mounted, of points 1 to {of}; the machines of the others were not"
            )
        }
        (n, _) => format!("{n} machines mounted"),
    };
    let counts = format!("{points} points{varied}, {} runs, {claims} claims; {machines}", e.runs());
    let doc = json!({
        "schema": "writepath.check/1", "kind": "experiment", "name": e.name,
        "points": points, "machines_mounted": tried.machines, "points_mounted": tried.points,
        "variations": variations, "runs": e.runs(), "claims": claims,
        "inputs": e.inputs.keys().collect::<Vec<_>>(), "resolved": e.resolved, "diagnostics": [],
    });
    out.result(&doc, &format!("{}\n# {counts}\n", e.resolved.trim_end()))
}

/// Runs `merge`.
pub fn merge(a: &MergeArgs, out: &Out) -> ExitCode {
    if let Err(code) = outputs::folder(&a.out, out) {
        return code;
    }
    let (e, rows, ready) = match merge_shards(&a.shards) {
        Ok(merged) => merged,
        Err(MergeError::Host(path, e)) => return out.host_error(&path, &e),
        Err(e @ MergeError::Wrong(_)) => {
            let help = "name every folder that `run --shard` wrote for one experiment";
            return out.fail(Exit::Usage, "merge", &e.to_string(), help);
        }
    };
    match ready.write(&a.out) {
        Ok(written) => answer(&e, &rows, &ready, &written.dir, out),
        Err(error) => out.host_error(&a.out, &error),
    }
}
