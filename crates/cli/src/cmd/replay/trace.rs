//! `replay` of a block trace onto a device model.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wp_base::plain;
use wp_base::plain::Shown as _;
use wp_trace::replay::{Mode, Options, ReplayError, replay};
use wp_trace::{Action, Format, Requests, Select, Trace, TraceError};

use super::print;
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// What a trace is replayed onto if nothing is said.
const DEVICE: &str = "ssd-128";
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// Arguments that say something of a block trace only.
#[derive(clap::Args)]
pub(super) struct TraceArgs {
    /// Trace format: blktrace, blkparse, ftrace, … [default: detected]
    ///
    /// blktrace (binary), blkparse, ftrace (also of `trace-cmd report` and `perf script`), iolog
    /// (fio), disksim, msr.
    #[arg(long)]
    format: Option<String>,
    /// Device model and parameters (`list devices`) [default: ssd-128]
    #[arg(long, value_name = "DEVICE")]
    on: Option<String>,
    /// Submission times: afap, timed or think [default: afap]
    ///
    /// afap: as fast as the device accepts requests. timed: at the times of the trace. think: with
    /// the trace's pause after the last completion before them.
    #[arg(long)]
    mode: Option<String>,
    /// Maximum requests in flight [default: what the device accepts]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// Device or file of a trace that has several: 8,16
    #[arg(long, value_name = "MAJ,MIN")]
    from: Option<String>,
    /// Take requests where queued (Q) or issued (D) [default: D, else Q]
    #[arg(long, value_name = "Q|D")]
    action: Option<String>,
    /// Sectors to add to each address; may be negative
    #[arg(long, value_name = "SECTORS", allow_negative_numbers = true)]
    offset: Option<i64>,
    /// Wrap sectors beyond the device's end (modulo its size)
    #[arg(long)]
    wrap: bool,
    /// Widen requests to whole device blocks
    #[arg(long)]
    align: bool,
    /// Write this much of the device first: 64G
    ///
    /// Flash that was never written answers reads at once and needs no garbage collection.
    #[arg(long, value_name = "SIZE")]
    fill: Option<String>,
    /// Accept a trace that ends within a record
    #[arg(long)]
    torn_ok: bool,
}

impl TraceArgs {
    /// The first that was given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            (self.format.is_some(), "--format"),
            (self.on.is_some(), "--on"),
            (self.mode.is_some(), "--mode"),
            (self.depth.is_some(), "--depth"),
            (self.from.is_some(), "--from"),
            (self.action.is_some(), "--action"),
            (self.offset.is_some(), "--offset"),
            (self.wrap, "--wrap"),
            (self.align, "--align"),
            (self.fill.is_some(), "--fill"),
            (self.torn_ok, "--torn-ok"),
        ];
        all.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

/// Is it the name of stdin?
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Counts what is read, for progress.
struct Counted<R> {
    from: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = self.from.read(out)?;
        self.bytes.set(self.bytes.get() + n as u64);
        Ok(n)
    }
}

/// The files that names stand for: of `t` that is not there, `t.blktrace.0`, `t.blktrace.1`, …
pub fn files(named: &[PathBuf], out: &Out) -> Vec<PathBuf> {
    let of_cpu = |base: &str, cpu: usize| PathBuf::from(format!("{base}.blktrace.{cpu}"));
    let mut all = Vec::new();
    for path in named {
        let name = path.shown();
        if !is_stdin(path) && !path.exists() && of_cpu(&name, 0).exists() {
            all.extend((0..).map(|cpu| of_cpu(&name, cpu)).take_while(|p| p.exists()));
            continue;
        }
        if let ([_], Some(base)) = (named, name.strip_suffix(".blktrace.0"))
            && of_cpu(base, 1).exists()
        {
            out.note(&format!(
                "note: {name} has the requests of CPU 0 only; `replay {base}` reads all CPUs"
            ));
        }
        all.push(path.clone());
    }
    all
}

/// The options that are words, read.
struct Words {
    format: Option<Format>,
    select: Select,
    options: Options,
}

/// A word that cannot be: the option, what is wrong, and a hint.
pub type NoWord = (&'static str, String, String);

fn one_of(key: &'static str, word: &str, all: &[&str]) -> NoWord {
    (key, format!("--{key} {word}: unknown"), format!("use {}", all.join(", ")))
}

/// A format by its name. Errors: there is none of that name.
pub fn format_of(name: Option<&str>) -> Result<Option<Format>, NoWord> {
    let formats: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    match name {
        None | Some("auto") => Ok(None),
        Some(name) => Format::find(name).map(Some).ok_or_else(|| one_of("format", name, &formats)),
    }
}

/// A step by its letter. Errors: another letter.
pub fn action_of(letter: Option<&str>) -> Result<Option<Action>, NoWord> {
    match letter {
        None => Ok(None),
        Some("Q") => Ok(Some(Action::Queue)),
        Some("D") => Ok(Some(Action::Issue)),
        Some(other) => Err(one_of("action", other, &["Q", "D"])),
    }
}

fn words(a: &TraceArgs) -> Result<Words, NoWord> {
    let format = format_of(a.format.as_deref())?;
    let mode = a.mode.as_deref().unwrap_or("afap");
    let modes: Vec<&str> = Mode::ALL.iter().map(|m| m.name()).collect();
    let mode = Mode::find(mode).ok_or_else(|| one_of("mode", mode, &modes))?;
    let action = action_of(a.action.as_deref())?;
    if a.depth == Some(0) {
        return Err(("depth", "--depth 0: no request could be sent".to_owned(), String::new()));
    }
    let fill_bytes = match a.fill.as_deref().map(crate::cmd::size).transpose() {
        Ok(bytes) => bytes.unwrap_or(0),
        Err(e) => return Err(("fill", e, String::new())),
    };
    let options = Options {
        mode,
        depth: a.depth,
        offset: a.offset.unwrap_or(0),
        wrap: a.wrap,
        align: a.align,
        fill_bytes,
    };
    Ok(Words { format, select: Select { device: a.from.clone(), action }, options })
}

fn trace_error(out: &Out, e: &TraceError) -> ExitCode {
    out.fail(Exit::Usage, "trace", &plain::name(&e.to_string()), &e.help)
}

/// Replays.
pub(super) fn run(named: &[PathBuf], a: &TraceArgs, out: &Out) -> ExitCode {
    let Words { format, select, options } = match words(a) {
        Ok(w) => w,
        Err((key, what, help)) => return out.fail(Exit::Usage, key, &what, &help),
    };
    let on = a.on.as_deref().unwrap_or(DEVICE);
    let device = wp_lab::spec::device(on).and_then(|(name, params)| {
        let entry = wp_device::find(&name).ok_or_else(|| format!("no device called `{name}`"))?;
        let params: Vec<(&str, u64)> = params.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        entry.make(&params).map_err(|e| e.to_string())
    });
    let device = match device {
        Ok(device) => device,
        Err(e) => return out.fail(Exit::Usage, "on", &e, "writepath list devices"),
    };
    let bytes = Rc::new(Cell::new(0));
    let mut total = 0;
    let mut inputs = Vec::new();
    let paths = files(named, out);
    for path in &paths {
        let from: Box<dyn Read> = if is_stdin(path) {
            Box::new(std::io::stdin().lock())
        } else {
            match File::open(path) {
                Ok(file) => {
                    total += file.metadata().map_or(0, |m| m.len());
                    Box::new(file)
                }
                Err(e) => return out.host_error(path, &e),
            }
        };
        let from = Box::new(Counted { from, bytes: bytes.clone() });
        inputs.push(wp_trace::File { name: path.shown(), from });
    }
    let mut trace = match Trace::open(inputs, format, a.torn_ok) {
        Ok(trace) => trace,
        Err(e) => return trace_error(out, &e),
    };
    let mut requests = Requests::new(&mut trace, select);
    let stop = out.interrupt();
    let live = Progress::new("replay");
    #[expect(clippy::disallowed_methods, reason = "progress is of the host")]
    let mut shown = Instant::now();
    let mut go_on = |p: wp_trace::replay::Progress| {
        if shown.elapsed() >= PROGRESS {
            #[expect(clippy::disallowed_methods, reason = "progress is of the host")]
            {
                shown = Instant::now();
            }
            let share = bytes.get().saturating_mul(100).checked_div(total);
            let share = share.map_or(String::new(), |s| format!("{:>3} % ", s.min(100)));
            let elapsed = print::seconds(p.elapsed.0);
            live.say(format_args!("{share}{} requests, {elapsed}", p.requests));
        }
        !stop.load(Ordering::SeqCst)
    };
    let played = replay(device, requests.by_ref(), &options, &mut go_on);
    drop(live);
    let outcome = match played {
        Ok(outcome) => outcome,
        Err(ReplayError::Trace(e)) => return trace_error(out, &e),
        Err(ReplayError::Request { request, what, help }) => {
            return trace_error(out, &requests.trace().error(&request.event, what, help));
        }
        Err(ReplayError::Stuck(at)) => {
            let what = format!("the device has neither completed nor set a timer at {} ns", at.0);
            return out.fail(Exit::Bug, "stuck", &what, "this is a bug: please report it");
        }
    };
    if outcome.requests() == 0 && !outcome.interrupted {
        return nothing(&requests, out);
    }
    let of = print::Of { files: &paths, requests: &requests, on, options: &options };
    let exit = match (outcome.interrupted, outcome.failed() + outcome.failed_fill) {
        (true, _) => Exit::Interrupted,
        (false, 0) => Exit::Ok,
        (false, _) => Exit::Simulated,
    };
    out.answer(exit, &print::document(&of, &outcome), &print::text(&of, &outcome))
}

/// A trace without a request that is wanted.
fn nothing(requests: &Requests<'_, '_>, out: &Out) -> ExitCode {
    let trace = requests.trace();
    let skipped: Vec<String> =
        trace.skipped().iter().map(|(why, n)| format!("{} {n}", why.name())).collect();
    let what = format!("no request matches; skipped: {}", skipped.join(", "));
    let names = trace.names().all();
    let help = if names.is_empty() {
        "check the format: --format".to_owned()
    } else {
        format!("the trace has {}: check --from and --action", names.join(" and "))
    };
    out.fail(Exit::Usage, "empty", &what, &help)
}
