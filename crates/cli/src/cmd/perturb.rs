//! `perturb`: the papers' figures on a perturbed device profile.
//!
//! A profile is changed for a whole process, so each change is a process of its own.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};
use wp_lab::each::each;
use wp_lab::perturb::{CHANGES, FIGURES, Figure, STILL, Way};
use wp_lab::results::Results;
use wp_lab::scale::{self, Scale};

use super::keep::Keep;
use crate::output::{Exit, Out};

const LINE: &str = "a string takes it";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Papers; all if left out: ext4-fsync, f2fs-oprw, direct-io, inode-trim, journal-conflict.
    papers: Vec<String>,
    /// Seed of every random stream.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results go.
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Run all of it, also what an earlier run of the same program found and kept there.
    #[arg(long)]
    again: bool,
    /// Processes beside each other; as many as there are cores if left out.
    #[arg(long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
    /// Only the figures, as JSON, with every flash drive changed so: `program=2,buffer=1/2`.
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

/// Runs the verb. Exit 1 if a figure moves against its prediction and nobody has said why.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(p) = a.papers.iter().find(|p| FIGURES.iter().all(|f| f.paper != **p)) {
        let what = format!("no paper called `{p}` in this build");
        return out.fail(Exit::Usage, "paper", &what, "writepath list papers");
    }
    match &a.device_scale {
        Some(text) => match Scale::parse(text) {
            Ok(scale) => figures(a, scale, out),
            Err(e) => {
                let e = format!("device-scale: {e}");
                out.fail(Exit::Usage, "device-scale", &e, "as program=2,buffer=1/2")
            }
        },
        None => table(a, out),
    }
}

/// The figures in this process.
fn figures(a: &Args, scale: Scale, out: &Out) -> ExitCode {
    scale::set(scale);
    let mut values = serde_json::Map::new();
    for f in a.figures() {
        match (f.measure)(a.seed) {
            Ok(value) => values.insert(f.name(), json!(value)),
            Err(e) => {
                out.note(&format!("{}:", f.name()));
                return out.machine_error(&e);
            }
        };
    }
    let document = json!({
        "schema": "writepath.perturb.figures/1", "device_scale": scale.to_string(),
        "seed": a.seed, "figures": values,
    });
    let mut text = String::new();
    for f in a.figures() {
        writeln!(text, "{:<70} {:>12.4} {}", f.name(), values_of(&document, f), f.unit)
            .expect(LINE);
    }
    out.result(&document, &text)
}

fn values_of(document: &Value, f: &Figure) -> f64 {
    document["figures"][f.name()].as_f64().unwrap_or(f64::NAN)
}

/// The figures of another process. Errors: what it said, and its exit code.
fn other(a: &Args, change: &str) -> Result<Value, (String, u8)> {
    let host = |e: std::io::Error| (e.to_string(), Exit::HostIo as u8);
    let mut command = Command::new(std::env::current_exe().map_err(host)?);
    command.args(["perturb", "--json", "--seed", &a.seed.to_string(), "--device-scale", change]);
    let done = command.args(&a.papers).stdin(Stdio::null()).output().map_err(host)?;
    let document = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null);
    match (done.status.code(), &document) {
        (Some(0), Value::Object(_)) => Ok(document),
        (code, document) => {
            let said = document["error"]["message"].as_str().unwrap_or_default();
            let said = format!("{} {said}", String::from_utf8_lossy(&done.stderr).trim());
            let code = code.and_then(|c| u8::try_from(c).ok()).unwrap_or(Exit::Interrupted as u8);
            Err((said.trim().to_owned(), code))
        }
    }
}

/// All changes beside each other, and what came of them.
fn table(a: &Args, out: &Out) -> ExitCode {
    let kept = match Keep::new(&a.out, "perturb", &format!("{:?} {}", a.papers, a.seed)) {
        Ok(kept) => kept,
        Err(e) => return out.host_error(std::path::Path::new("this program"), &e),
    };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = a.jobs.map_or_else(cores, std::num::NonZeroUsize::get);
    let all: Vec<&str> = std::iter::once("").chain(CHANGES).collect();
    let done = each(
        jobs,
        all.len(),
        || (),
        |(), n| {
            let change = all[n];
            let found = kept.find(change).filter(|_| !a.again);
            Some(found.map_or_else(
                || {
                    let document = other(a, change)?;
                    out.note(&format!(
                        "done: {}",
                        if change.is_empty() { "as it is" } else { change }
                    ));
                    kept.note(change, document.clone())
                        .map(|()| document)
                        .map_err(|e| (e.to_string(), Exit::HostIo as u8))
                },
                Ok,
            ))
        },
    );
    let mut documents = Vec::new();
    for (change, found) in all.iter().zip(done) {
        match found {
            Some(Ok(document)) => documents.push(document),
            Some(Err((said, code))) => {
                out.note(&format!("error: {change}: {said}"));
                out.note("help: what is done is kept: the same command goes on");
                return ExitCode::from(code);
            }
            None => unreachable!("no piece ends it"),
        }
    }
    answer(a, out, &documents)
}

/// Rows of the table, and how many went against their prediction, and of those without a reason.
fn answer(a: &Args, out: &Out, documents: &[Value]) -> ExitCode {
    let mut text = format!(
        "Every flash drive of the papers with a program time of twice as long, half its buffer, and\n\
         both. A change of up to {:.0} % counts as still; in brackets what was predicted,\n\
         where something else came.\n\n{:>14} {:>22} {:>22} {:>22}\n",
        STILL * 100.0,
        "as it is",
        "program x2",
        "buffer x1/2",
        "both"
    );
    let (mut rows, mut against, mut unexplained) = (Vec::new(), 0, 0);
    for f in a.figures() {
        let values: Vec<f64> = documents.iter().map(|d| values_of(d, f)).collect();
        let ways: Vec<Way> = values[1..].iter().map(|v| Way::of(values[0], *v)).collect();
        let fails = ways.iter().zip(f.predicted).filter(|(way, p)| **way != *p).count();
        against += fails;
        unexplained += if f.found.is_empty() { fails } else { 0 };
        let mut line = format!("{:>14}", number(values[0]));
        for ((value, way), predicted) in values[1..].iter().zip(&ways).zip(f.predicted) {
            let mark =
                if *way == predicted { String::new() } else { format!(" ({})", predicted.name()) };
            let cell = format!("{} {}{mark}", number(*value), way.name());
            write!(line, " {cell:>22}").expect(LINE);
        }
        writeln!(text, "{} ({})\n{line}\n    {}", f.name(), f.unit, f.why).expect(LINE);
        if fails > 0 {
            let found = if f.found.is_empty() { "not explained" } else { f.found };
            writeln!(text, "    AGAINST: {found}").expect(LINE);
        }
        rows.push(json!({
            "paper": f.paper, "place": f.place, "what": f.what, "unit": f.unit, "why": f.why,
            "before": values[0], "after": values[1..], "went": ways, "predicted": f.predicted,
            "against": fails, "found": if fails > 0 { f.found } else { "" },
        }));
    }
    let all = 3 * rows.len();
    writeln!(
        text,
        "\n{} of {all} as predicted, {against} against, {unexplained} of them not explained",
        all - against
    )
    .expect(LINE);
    let document = json!({
        "schema": "writepath.perturb/1", "seed": a.seed, "changes": CHANGES, "figures": rows,
        "moves": all, "against": against, "unexplained": unexplained,
    });
    let mut results = Results::default();
    results.add(
        "resolved.toml",
        format!("schema = \"writepath/1\"\nperturb = {:?}\nseed = {}\n", a.papers, a.seed),
    );
    results.add("perturb.json", serde_json::to_vec_pretty(&document).unwrap_or_default());
    results.add("perturb.txt", text.clone());
    match results.write(&a.out, "perturb") {
        Ok(dir) => out.note(&format!("results: {}", dir.display())),
        Err(e) => return out.host_error(&a.out, &e),
    }
    out.answer(if unexplained > 0 { Exit::No } else { Exit::Ok }, &document, &text)
}

/// With three digits that count, or whole.
fn number(v: f64) -> String {
    match v.abs() {
        n if n >= 100.0 => format!("{v:.0}"),
        n if n >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.3}"),
    }
}
