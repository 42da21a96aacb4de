//! `perturb`: the papers' figures and claims on a perturbed device profile.
//!
//! A profile is changed for a whole process, so each change is a process of its own.

mod claims;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_machine::host::{group, program};
use wp_machine::parallel::each;
use wp_machine::results::Results as Folder;
use wp_machine::scale::{self, Scale};
use wp_papers::perturb::{CHANGES, FIGURES, Figure, Outcome, Results, STILL, Way};
use wp_report::document;

use super::keep::Keep;
use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath perturb\n\
    \x20 writepath perturb ext4-fsync\n\
    \x20 writepath perturb inode-trim --device-scale program=2\n\
    \x20 writepath perturb ext4-fsync --claims")]
pub struct Args {
    /// Papers whose figures to repeat [default: all]
    ///
    /// ext4-fsync, f2fs-oprw, direct-io, inode-trim, journal-conflict.
    papers: Vec<String>,
    /// Judge claims where only a FLUSH takes time, or nothing of the drive
    ///
    /// Says of each claim what of the drive's times its verdict needs: nothing, flush or drive.
    /// Exit 1 if that is not as pinned (papers/needs.toml).
    #[arg(long)]
    claims: bool,
    /// Seed of every random stream
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Results folder
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Rerun everything, also results kept from an earlier run
    #[arg(long)]
    again: bool,
    /// Parallel processes [default: number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
    /// Print figures or claims on one scaled drive only
    ///
    /// program=2,buffer=1/2 (factors), times=flush or times=none (which times of the drive count).
    #[arg(long, value_name = "SCALE")]
    device_scale: Option<String>,
}

impl Args {
    fn figures(&self) -> Vec<&'static Figure> {
        let is_wanted =
            |f: &&Figure| self.papers.is_empty() || self.papers.iter().any(|p| p == f.paper);
        FIGURES.iter().filter(is_wanted).collect()
    }
}

/// Runs the verb. Exit 1 if a figure moves against its prediction and no reason is listed, or as
/// predicted where a reason says that it does not.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(p) = a.papers.iter().find(|p| FIGURES.iter().all(|f| f.paper != **p)) {
        let what = format!("no paper called `{p}` in this build");
        return out.fail(Exit::Usage, "paper", &what, "writepath list papers");
    }
    match &a.device_scale {
        Some(text) => match Scale::parse(text) {
            Ok(scale) if a.claims => claims::on_one_drive(a, scale, out),
            Ok(scale) => figures(a, scale, out),
            Err(e) => {
                let e = format!("device-scale: {e}");
                out.fail(Exit::Usage, "device-scale", &e, "as program=2,buffer=1/2")
            }
        },
        None if a.claims => claims::table(a, out),
        None => table(a, out),
    }
}

/// The figures in this process.
fn figures(a: &Args, scale: Scale, out: &Out) -> ExitCode {
    scale::set(scale);
    let mut values = BTreeMap::new();
    for f in a.figures() {
        match (f.measure)(a.seed) {
            Ok(value) if value.is_finite() => values.insert(f.name(), value),
            Ok(value) => {
                let what = format!("{}: the result {value} is not a number", f.name());
                return out.fail(Exit::Bug, "no-number", &what, "");
            }
            Err(e) => {
                out.note(&format!("{}:", f.name()));
                return out.machine_error(&e);
            }
        };
    }
    let mut text = String::new();
    for f in a.figures() {
        writeln!(text, "{:<70} {:>12.4} {}", f.name(), values[&f.name()], f.unit).expect(LINE);
    }
    let found = Results { device_scale: scale.to_string(), seed: a.seed, figures: values };
    out.result(&json!(found), &text)
}

/// What a command prints with `--json` if it fails.
#[derive(Deserialize)]
struct Refused {
    error: Refusal,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// A run of this verb on one drive, in a process of its own: its papers, and what is changed.
struct Task<'a> {
    papers: Vec<&'a str>,
    change: &'a str,
}

impl Task<'_> {
    fn name(&self, a: &Args) -> String {
        let change = if self.change.is_empty() { "unchanged" } else { self.change };
        if a.claims { format!("{} {change}", self.papers.join(" ")) } else { change.to_owned() }
    }

    /// What it printed. Errors: what it said, and its exit code.
    fn result<T: DeserializeOwned>(&self, a: &Args) -> Result<T, (String, u8)> {
        let host = |e: std::io::Error| (e.to_string(), Exit::HostIo as u8);
        let mut command = program::command();
        command.args(["perturb", "--json", "--seed", &a.seed.to_string()]);
        command.args(["--device-scale", self.change]).args(a.claims.then_some("--claims"));
        let done = group::output(command.args(&self.papers)).map_err(host)?;
        let text = String::from_utf8_lossy(&done.stdout);
        let code = done.status.code().and_then(|c| u8::try_from(c).ok());
        if code == Some(0) {
            let wrong = |e| (format!("the answer of the other process: {e}"), Exit::Bug as u8);
            return document::read(&text).map_err(wrong);
        }
        let said = document::read(&text).map_or(String::new(), |Refused { error }| error.message);
        // Its progress is not why it failed.
        let noted = String::from_utf8_lossy(&done.stderr);
        let noted: Vec<&str> = noted.lines().filter(|l| !l.contains(" so far: ")).collect();
        let said = format!("{} {said}", noted.join("\n").trim());
        Err((said.trim().to_owned(), code.unwrap_or(Exit::Interrupted as u8)))
    }
}

/// The results of all tasks, in their order; what an earlier run kept is not run again.
fn in_processes<T: Serialize + DeserializeOwned + Send + Sync>(
    a: &Args,
    out: &Out,
    tasks: &[Task<'_>],
) -> Result<Vec<T>, ExitCode> {
    outputs::folder(&a.out, out)?;
    let asked = format!("{:?} {} {}", a.papers, a.claims, a.seed);
    let kept = Keep::new(&a.out, "perturb", &asked)
        .map_err(|e| out.host_error(std::path::Path::new("this program"), &e))?;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = a.jobs.map_or_else(cores, std::num::NonZeroUsize::get);
    let (shown, ended) = (Progress::new("perturb"), AtomicU64::new(0));
    shown.at(0, tasks.len() as u64, "runs");
    let one = |(): &mut (), n: usize| {
        let task = &tasks[n];
        let name = task.name(a);
        let found = kept.find(&name).filter(|_| !a.again);
        let result = found.map_or_else(
            || {
                let measured = task.result(a)?;
                kept.note(&name, &measured)
                    .map(|()| measured)
                    .map_err(|e| (e.to_string(), Exit::HostIo as u8))
            },
            Ok,
        );
        let ended = ended.fetch_add(1, Ordering::Relaxed) + 1;
        shown.at(ended, tasks.len() as u64, format_args!("runs; done: {name}"));
        Some(result)
    };
    let done = each(jobs, tasks.len(), || (), one);
    drop(shown);
    let mut measured = Vec::new();
    for (task, found) in tasks.iter().zip(done) {
        match found {
            Some(Ok(one)) => measured.push(one),
            Some(Err((said, code))) => {
                let what = format!("{}: {said}", task.name(a));
                let help = "finished parts are kept: run the same command to continue";
                return Err(out.fail(Exit::of(code), "run", &what, help));
            }
            None => unreachable!("no piece ends it"),
        }
    }
    Ok(measured)
}

/// All changes beside each other, and their outcome.
fn table(a: &Args, out: &Out) -> ExitCode {
    let papers: Vec<&str> = a.papers.iter().map(String::as_str).collect();
    let changes = std::iter::once("").chain(CHANGES);
    let tasks: Vec<Task<'_>> =
        changes.map(|change| Task { papers: papers.clone(), change }).collect();
    match in_processes::<Results>(a, out, &tasks) {
        Ok(measured) => answer(a, out, &measured),
        Err(code) => code,
    }
}

/// The table and its document; exit 1 where a move or its reason is not as it is said here.
fn answer(a: &Args, out: &Out, measured: &[Results]) -> ExitCode {
    let mut text = format!(
        "Each figure on its unchanged flash drive, with program times doubled, with half \
         the\nbuffer, and with both. A change of up to {:.0} % counts as unchanged (still). \
         Brackets\nshow a prediction that was not met.\n\n{:>14} {:>22} {:>22} {:>22}\n",
        STILL * 100.0,
        "unchanged",
        "program x2",
        "buffer x1/2",
        "both"
    );
    let (mut rows, mut outcomes) = (Vec::new(), Vec::new());
    for f in a.figures() {
        let Some(values) = measured.iter().map(|m| m.of(f)).collect::<Option<Vec<f64>>>() else {
            let what = format!("{}: a change lacks this figure", f.name());
            return out.fail(Exit::Bug, "no-number", &what, "--again reruns everything");
        };
        let [before, after @ ..] = &values[..] else { unreachable!("values of each change") };
        let after: [f64; 3] = after.try_into().expect("values of each change");
        let Some(moves) = f.moves(*before, after) else {
            let what = format!("{}: a result is not a number: {values:?}", f.name());
            return out.fail(Exit::Bug, "no-number", &what, "--again reruns everything");
        };
        outcomes.extend(moves.map(|(_, outcome)| outcome));
        rows.push(row(f, *before, after, &moves, &mut text));
    }
    let count = |wanted: Outcome| outcomes.iter().filter(|o| **o == wanted).count();
    let (unexplained, stale) = (count(Outcome::Unexplained), count(Outcome::StaleReason));
    let (all, against) = (outcomes.len(), count(Outcome::Explained) + unexplained);
    let of_stale = match stale {
        0 => String::new(),
        n => format!(", {n} as predicted despite a listed reason"),
    };
    let (as_said, not) = (all - against, format!("{unexplained} of them without a listed reason"));
    writeln!(text, "\n{as_said} of {all} as predicted, {against} against, {not}{of_stale}")
        .expect(LINE);
    let document = json!({
        "schema": "writepath.perturb/2", "seed": a.seed, "changes": CHANGES, "figures": rows,
        "moves": all, "against": against, "unexplained": unexplained, "stale_reasons": stale,
    });
    let mut folder = Folder::default();
    folder.add(
        "resolved.toml",
        format!("schema = \"writepath/1\"\nperturb = {:?}\nseed = {}\n", a.papers, a.seed),
    );
    folder.add("perturb.json", serde_json::to_vec_pretty(&document).unwrap_or_default());
    folder.add("perturb.txt", text.clone());
    match folder.write(&a.out, "perturb") {
        Ok(dir) => out.note(&format!("results: {}", dir.shown())),
        Err(e) => return out.host_error(&a.out, &e),
    }
    out.answer(if unexplained + stale > 0 { Exit::No } else { Exit::Ok }, &document, &text)
}

/// A figure's lines of the table, and its object.
fn row(
    f: &Figure,
    before: f64,
    after: [f64; 3],
    moves: &[(Way, Outcome); 3],
    text: &mut String,
) -> Value {
    let mut line = format!("{:>14}", number(before));
    let mut told: Vec<String> = Vec::new();
    for (i, (way, outcome)) in moves.iter().enumerate() {
        let predicted = f.predicted[i];
        let mark =
            if *way == predicted { String::new() } else { format!(" ({})", predicted.name()) };
        let cell = format!("{} {}{mark}", number(after[i]), way.name());
        write!(line, " {cell:>22}").expect(LINE);
        let why = match outcome {
            Outcome::Predicted => continue,
            Outcome::Explained => format!("AGAINST: {}", f.found[i]),
            Outcome::Unexplained => format!("AGAINST, {}: no reason listed", CHANGES[i]),
            Outcome::StaleReason => {
                format!("AS PREDICTED, {}, despite the listed reason: {}", CHANGES[i], f.found[i])
            }
        };
        if !told.contains(&why) {
            told.push(why);
        }
    }
    writeln!(text, "{} ({})\n{line}\n    {}", f.name(), f.unit, f.why).expect(LINE);
    for why in &told {
        writeln!(text, "    {why}").expect(LINE);
    }
    let ways = moves.map(|(way, _)| way);
    let outcomes = moves.map(|(_, outcome)| outcome);
    json!({
        "paper": f.paper, "place": f.place, "what": f.what, "unit": f.unit, "why": f.why,
        "before": before, "after": after, "went": ways, "predicted": f.predicted,
        "outcomes": outcomes, "found": f.found,
    })
}

/// With three digits that count, or whole.
fn number(v: f64) -> String {
    match v.abs() {
        n if n >= 100.0 => format!("{v:.0}"),
        n if n >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.3}"),
    }
}
