//! `calibrate`: measurements of a real drive, a preset of its class.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_base::event::{Flags, Op};
use wp_base::plain::Shown as _;
use wp_calibrate::{CLASSES, Calibrated, Class, Held, Input, Judged, Plan, Served, Unidentified};
use wp_calibrate::{calibrate, parse, recorded};
use wp_machine::host::Shape;
use wp_machine::spec::Base;
use wp_trace::{Action, Devices, File, Format, Request, Requests, Select, Trace, TraceError};

use super::replay::input_files;
use crate::output::{Exit, Out, path};
use crate::outputs;
use crate::progress::Progress;

const FITS: &str = "a string takes everything";
/// Longest input: a report of a hundred jobs with all bins is some megabytes.
const BYTES_MAX: u64 = 256 << 20;
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath calibrate report.json --class ssd --out my.toml\n\
    \x20 writepath calibrate t --class emmc --base emmc-16,queue_depth=1")]
pub struct Args {
    /// fio, pg_test_fsync, ioping or iostat reports, CSV lists or block traces
    ///
    /// Reports of `fio --output-format=json` (direct=1, one job a load, `stonewall` between them);
    /// output of `pg_test_fsync`, `ioping` or `iostat -x -o JSON`; lists with the columns
    /// op,bs,qd,iops,lat_us and optionally jobs, fsync and sync_us; or binary block traces of
    /// `blktrace`, where NAME stands for NAME.blktrace.0 and those of the other CPUs.
    /// docs/calibrate.md has the jobs.
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Class of the drive: ssd, emmc, fixed, plain or zns
    ///
    /// plain executes one command after the other.
    #[arg(long)]
    class: String,
    /// Start from this preset or device file, not from that of the class
    ///
    /// Parameters after it (ssd-p16,queue_depth=256) are fixed and not fitted. So are numbers of a
    /// file whose source begins with `given`.
    #[arg(long, value_name = "DEVICE")]
    base: Option<String>,
    /// Hold out loads that match, such as op=randread,depth=32; none: no load
    ///
    /// Keys: op, bs, depth, jobs, fsync; a load is held out if all given keys match. Without the
    /// option, a rule holds out about a third of the loads.
    #[arg(long, value_name = "KEYS")]
    hold_out: Vec<String>,
    /// Device of a block trace that has several: 8,16
    #[arg(long, value_name = "MAJ,MIN")]
    from: Option<String>,
    /// Accept a block trace that ends within a record
    #[arg(long)]
    torn_ok: bool,
    /// Write the fitted device to FILE [default: write nothing]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// An option that is refused: which, why, and the hint.
type Wrong = (&'static str, String, &'static str);

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let file = match outputs::asked(a.out.as_deref(), Shape::Text, out) {
        Ok(file) => file,
        Err(code) => return code,
    };
    let mut input = Input::default();
    for path in &a.inputs {
        match one(a, path, out) {
            Ok(more) => {
                input.measured.extend(more.measured);
                input.skipped.extend(more.skipped);
            }
            Err(code) => return code,
        }
    }
    let (class, (base, begun, given), held) = match asked(a) {
        Ok(asked) => asked,
        Err((key, what, help)) => return out.fail(Exit::Usage, key, &what, help),
    };
    let Some(base) = wp_device::find(&base) else {
        let what = format!("no device called `{base}`");
        return out.fail(Exit::Usage, "base", &what, "writepath list devices");
    };
    let plan = Plan { class, base, begun: &begun, given: &given, held: held.as_deref() };
    let found = match calibrate(&input, &plan, &mut progress(out)) {
        Ok(found) => found,
        Err(e) => return out.fail(Exit::Usage, "calibrate", &e, "docs/calibrate.md"),
    };
    if let Some(file) = file
        && let Err(code) = outputs::finish(file, found.file.text().as_bytes(), out)
    {
        return code;
    }
    let exit = if found.interrupted { Exit::Interrupted } else { Exit::Ok };
    out.answer(exit, &document(a, &found), &print(a, &found))
}

/// Reads an input; on failure says why and with which code to end.
fn one(a: &Args, path: &Path, out: &Out) -> Result<Input, ExitCode> {
    let files = input_files(std::slice::from_ref(&path.to_owned()), out);
    let first = files.first().map_or(path, PathBuf::as_path);
    let mut head = Vec::new();
    let opened = std::fs::File::open(first).and_then(|f| f.take(4).read_to_end(&mut head));
    opened.map_err(|e| out.host_error(first, &e))?;
    let wrong = |what: &str, help: &str| out.fail(Exit::Usage, "input", what, help);
    let name = path.shown();
    if wp_trace::blktrace::begins(&head) {
        let served = served(a, &files, out)?;
        return recorded(&name, &served).map_err(|e| {
            wrong(&e, "record some seconds of each load in docs/calibrate.md with blktrace")
        });
    }
    let bytes = read(path).map_err(|e| out.host_error(path, &e))?;
    parse(&name, &bytes).map_err(|e| wrong(&e, "docs/calibrate.md"))
}

/// The requests of a trace that were given to a driver and completed, in the order of dispatch.
fn served(a: &Args, paths: &[PathBuf], out: &Out) -> Result<Vec<Served>, ExitCode> {
    let mut files = Vec::new();
    for path in paths {
        let from = std::fs::File::open(path).map_err(|e| out.host_error(path, &e))?;
        files.push(File { name: path.shown(), from: Box::new(from) });
    }
    let wrong = |e: TraceError| {
        // A drive is fitted to one device.
        let is_choice = e.help.contains("--from all");
        let help = if is_choice { "--from takes one of them".to_owned() } else { e.help };
        out.trace_error(&TraceError { help, ..e })
    };
    let mut trace = Trace::open(files, Some(Format::Blktrace), a.torn_ok).map_err(wrong)?;
    let devices = a.from.clone().map_or(Devices::One, |name| Devices::These(vec![name]));
    let select = Select { devices, action: Some(Action::Issue), ..Select::default() };
    let mut all = Vec::new();
    for request in Requests::new(&mut trace, select) {
        let Request { event: e, done_ns } = request.map_err(wrong)?;
        let Some(done_ns) = done_ns else { continue };
        let op = if e.zeroes { Op::Discard } else { e.op };
        let forced = e.flags.has(Flags::FUA) || e.flags.has(Flags::PREFLUSH);
        let (at, sectors, issued_ns) = (e.at.0, e.sectors, e.at_ns);
        all.push(Served { op, forced: forced && op == Op::Write, at, sectors, issued_ns, done_ns });
    }
    Ok(all)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    wp_machine::host::text::at_most(path, BYTES_MAX)
}

type Asked = (&'static Class, Base, Option<Vec<Held>>);

fn asked(a: &Args) -> Result<Asked, Wrong> {
    let Some(class) = CLASSES.iter().find(|c| c.name == a.class) else {
        let names: Vec<&str> = CLASSES.iter().map(|c| c.name).collect();
        let what = format!("--class {}: unknown (classes: {})", a.class, names.join(", "));
        return Err(("class", what, "--class ssd"));
    };
    let base = match &a.base {
        None => (class.base.to_owned(), Vec::new(), Vec::new()),
        Some(text) => {
            wp_machine::spec::base(text).map_err(|e| ("base", e, "writepath list devices"))?
        }
    };
    let held = match a.hold_out.as_slice() {
        [] => None,
        [none] if none == "none" => Some(Vec::new()),
        all => {
            let all: Result<Vec<Held>, String> = all.iter().map(|t| Held::parse(t)).collect();
            Some(all.map_err(|e| ("hold-out", e, "--hold-out op=randread,bs=64k"))?)
        }
    };
    Ok((class, base, held))
}

/// Shows how far it is; says no after an interrupt.
fn progress(out: &Out) -> impl FnMut(u64) -> bool {
    let (stop, live) = (out.interrupt_in_parts(), Progress::new("calibrate"));
    #[expect(clippy::disallowed_methods, reason = "progress is of the host")]
    let mut shown = Instant::now();
    move |runs| {
        if shown.elapsed() >= PROGRESS {
            #[expect(clippy::disallowed_methods, reason = "progress is of the host")]
            {
                shown = Instant::now();
            }
            live.say(format_args!("{runs} runs of the model"));
        }
        !stop.load(Ordering::SeqCst)
    }
}

/// Median and worst of the errors of one half, and how many.
fn summary(judged: &[Judged], held_out: bool) -> Option<(f64, f64, usize)> {
    let half = judged.iter().filter(|j| j.held_out == held_out);
    let mut errors: Vec<f64> = half.map(Judged::error).collect();
    errors.sort_by(f64::total_cmp);
    let n = errors.len();
    let worst = *errors.last()?;
    Some(((errors[(n - 1) / 2] + errors[n / 2]) / 2.0, worst, n))
}

/// Each load: the drive, the model, and the error.
fn loads(c: &Calibrated) -> String {
    let mut t = String::new();
    writeln!(
        t,
        "{:<38}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}  half",
        "load", "us", "model", "1/s", "model", "sync us", "model", "error"
    )
    .expect(FITS);
    for j in &c.judged {
        let (real, model) = (&j.measured.figures, &j.model);
        let us = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{:.1}", v / 1e3));
        let rate = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.0}"));
        writeln!(
            t,
            "{:<38}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>7.1} %  {}",
            j.measured.load.name(),
            us(real.mean_ns),
            us(model.mean_ns),
            rate(real.iops),
            rate(model.iops),
            us(real.sync_ns),
            us(real.sync_ns.and(model.sync_ns)),
            j.error() * 100.0,
            if j.held_out { "held out" } else { "fitted" },
        )
        .expect(FITS);
    }
    t
}

fn print(a: &Args, c: &Calibrated) -> String {
    let mut t = loads(c);
    t.push('\n');
    for (name, held_out) in [("fitted", false), ("held out", true)] {
        match summary(&c.judged, held_out) {
            Some((median, worst, n)) => writeln!(
                t,
                "{name:<9} {n:>4} loads, error: median {:.1} %, worst {:.1} %",
                median * 100.0,
                worst * 100.0
            ),
            None => writeln!(t, "{name:<9}    0 loads: the error is unknown"),
        }
        .expect(FITS);
    }
    writeln!(t, "\n{:<24}{:>14}{:>14}", "parameter", "before", "after").expect(FITS);
    for n in &c.parameters {
        writeln!(
            t,
            "{:<24}{:>14}{:>14}  {}",
            n.key,
            n.before,
            n.value,
            fate(n.unidentified, n.at_bound)
        )
        .expect(FITS);
    }
    if !c.refused.is_empty() {
        writeln!(t, "\nnot used:").expect(FITS);
        c.refused.iter().for_each(|(who, why)| writeln!(t, "  {who}: {why}").expect(FITS));
    }
    let interrupted = if c.interrupted { ", interrupted (best result so far)" } else { "" };
    match &a.out {
        Some(path) => writeln!(
            t,
            "\nwritten to {} after {} runs of the model{interrupted}",
            path.shown(),
            c.runs
        ),
        None => {
            writeln!(t, "\n{} runs of the model{interrupted}; --out FILE writes the device", c.runs)
        }
    }
    .expect(FITS);
    t
}

fn fate(unidentified: Option<Unidentified>, at_bound: bool) -> &'static str {
    match (unidentified, at_bound) {
        (Some(Unidentified::Unfelt), _) => "assumed: no fitted load depends on it",
        (Some(Unidentified::Hidden), _) => {
            "assumed: the fitted loads cannot separate it from other parameters"
        }
        (None, true) => "fitted, at the limit of its range: try another class or base",
        (None, false) => "fitted",
    }
}

/// What was measured of a load, or what the model makes of it.
fn figures(f: &wp_calibrate::Figures) -> Value {
    json!({ "mean_ns": f.mean_ns, "iops": f.iops, "sync_ns": f.sync_ns })
}

fn document(a: &Args, c: &Calibrated) -> Value {
    let loads: Vec<Value> = c
        .judged
        .iter()
        .map(|j| {
            json!({
                "load": j.measured.load.name(), "source": j.measured.source,
                "host_ns": j.measured.load.host_ns, "held_out": j.held_out,
                "measured": figures(&j.measured.figures), "measured_p99_ns": j.measured.p99_ns,
                "model": figures(&j.model), "error": j.error(),
            })
        })
        .collect();
    let numbers: Vec<Value> = c
        .parameters
        .iter()
        .map(|n| {
            json!({
                "name": n.key, "before": n.before, "value": n.value,
                "fitted": n.unidentified.is_none(), "fate": fate(n.unidentified, n.at_bound),
            })
        })
        .collect();
    let half = |held_out| {
        summary(&c.judged, held_out)
            .map(|(median, worst, n)| json!({ "loads": n, "median": median, "worst": worst }))
    };
    let refused: Vec<Value> =
        c.refused.iter().map(|(who, why)| json!({ "source": who, "reason": why })).collect();
    json!({
        "schema": "writepath.calibrate/1", "class": a.class, "base": c.file.base.name,
        "loads": loads, "fitted": half(false), "held_out": half(true), "numbers": numbers,
        "not_used": refused, "fitted_loads": summary(&c.judged, false).map_or(0, |(_, _, n)| n),
        "runs": c.runs, "interrupted": c.interrupted,
        "device": c.file.text(), "out": a.out.as_deref().map(path),
    })
}
