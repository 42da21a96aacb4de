//! `replay` of a block trace onto a device model.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wp_block::DeviceModel;
use wp_trace::replay::{Mode, Options, Outcome, ReplayError, replay};
use wp_trace::{Devices, Event, Requests, Select, TraceError};

use super::input::{Inputs, NoWord, Reading, action_of, one_of};
use super::print;
use crate::output::{Exit, Out};
use crate::progress::{Progress, now};

/// What a trace is replayed onto if nothing is said.
const DEVICE: &str = "ssd-128";
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// Arguments that say something of a block trace only.
#[derive(clap::Args)]
pub(super) struct TraceArgs {
    /// Trace format (`list formats`) [default: detected where unambiguous]
    ///
    /// blktrace (binary), blkparse, ftrace (also of `trace-cmd report` and `perf script`), iolog
    /// (fio), biosnoop, disksim, mqsim (also ssdsim), msr, spc, alibaba, tencent, systor, fiu,
    /// cloudphysics. `list formats` tells the units of each.
    #[arg(long)]
    format: Option<String>,
    /// Columns of any other text: time:ns,lba:512,size:bytes,op
    ///
    /// Names in the order of the columns, with their units. time and took (the response time): s,
    /// ms, us, ns, ps or 100ns. lba (the address) and size: bytes, or the bytes of a block (512,
    /// 4096). op: R, W, read, write, …, or op:r=0/w=1 for numbers (also d and f), or op:bit0 for
    /// hexadecimal flags whose lowest bit reads. dev: the device; several are joined by a dot. -:
    /// any field; ... at the end: more fields. took? and op? may be empty.
    #[arg(long, value_name = "LIST", conflicts_with = "format")]
    columns: Option<String>,
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
    /// Device or file of a trace that has several (repeatable), or all
    ///
    /// A name as the trace has it: 8,16, 3, host.0, a path. Several devices lie one behind the
    /// other on the simulated one, in the order in which the trace meets them, each from a whole
    /// MiB.
    #[arg(long, value_name = "DEVICE")]
    from: Vec<String>,
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
    pub torn_ok: bool,
    /// Scenario of an MQSim workload definition, from 1 [default: the only one]
    #[arg(long, value_name = "N")]
    pub scenario: Option<usize>,
}

impl TraceArgs {
    /// The first that was given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            (self.format.is_some(), "--format"),
            (self.columns.is_some(), "--columns"),
            (self.on.is_some(), "--on"),
            (self.mode.is_some(), "--mode"),
            (self.depth.is_some(), "--depth"),
            (!self.from.is_empty(), "--from"),
            (self.action.is_some(), "--action"),
            (self.offset.is_some(), "--offset"),
            (self.wrap, "--wrap"),
            (self.align, "--align"),
            (self.fill.is_some(), "--fill"),
            (self.torn_ok, "--torn-ok"),
            (self.scenario.is_some(), "--scenario"),
        ];
        all.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// The first that was given and that a workload definition says itself.
    pub fn given_beside_a_workload(&self) -> Option<&'static str> {
        let all = [
            (self.format.is_some(), "--format"),
            (self.columns.is_some(), "--columns"),
            (self.mode.is_some(), "--mode"),
            (!self.from.is_empty(), "--from"),
            (self.action.is_some(), "--action"),
            (self.offset.is_some(), "--offset"),
        ];
        all.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// How to replay in a mode. Errors: a depth of none, a size that is none.
    pub fn options(&self, mode: Mode) -> Result<Options, NoWord> {
        if self.depth == Some(0) {
            return Err(("depth", "--depth 0: no request could be sent".to_owned(), String::new()));
        }
        let fill_bytes = match self.fill.as_deref().map(crate::cmd::size).transpose() {
            Ok(bytes) => bytes.unwrap_or(0),
            Err(e) => return Err(("fill", e, String::new())),
        };
        Ok(Options {
            mode,
            depth: self.depth,
            offset: self.offset.unwrap_or(0),
            wrap: self.wrap,
            align: self.align,
            fill_bytes,
        })
    }
}

/// The options that are words, read.
struct Words {
    reading: Reading,
    select: Select,
    options: Options,
}

fn words(a: &TraceArgs) -> Result<Words, NoWord> {
    let reading = Reading::of_words(a.format.as_deref(), a.columns.as_deref(), a.torn_ok)?;
    let mode = a.mode.as_deref().unwrap_or("afap");
    let modes: Vec<&str> = Mode::ALL.iter().map(|m| m.name()).collect();
    let mode = Mode::find(mode).ok_or_else(|| one_of("mode", mode, &modes))?;
    let action = action_of(a.action.as_deref())?;
    let options = a.options(mode)?;
    let select = Select { devices: Devices::named(&a.from), action, ..Select::default() };
    Ok(Words { reading, select, options })
}

/// Replays.
pub(super) fn run(named: &[PathBuf], a: &TraceArgs, out: &Out) -> ExitCode {
    let Words { reading, mut select, options } = match words(a) {
        Ok(w) => w,
        Err((key, what, help)) => return out.fail(Exit::Usage, key, &what, &help),
    };
    let (on, device) = match device_of(a, out) {
        Ok(device) => device,
        Err(code) => return code,
    };
    let inputs = match Inputs::open(named, select.devices.are_several(), out) {
        Ok(inputs) => inputs,
        Err(code) => return code,
    };
    let stop = out.interrupt_in_parts();
    let found = match inputs.lay_out(&reading, &mut select, &stop, out) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let opened = inputs.files(out).map(|files| reading.open(files));
    let mut trace = match opened {
        Ok(Ok(trace)) => trace,
        Ok(Err(e)) => return out.trace_error(&e),
        Err(code) => return code,
    };
    let mut requests = Requests::new(&mut trace, select);
    let live = Progress::new("replay");
    let share = || inputs.share();
    let mut go_on = progress(&live, &stop, &share);
    let played = replay(device, requests.by_ref(), &options, &mut go_on);
    drop(go_on);
    drop(live);
    let told = |e: &Event, what, help: &str| requests.trace().error(e, what, help);
    let outcome = match finish(played, out, told) {
        Ok(outcome) => outcome,
        Err(code) => return code,
    };
    if outcome.requests() == 0 && !outcome.interrupted {
        let (what, help) = requests.none();
        let what = format!("{}: {what}", inputs.name());
        return out.fail(Exit::Usage, "empty", &what, &help);
    }
    let of = print::Of {
        files: inputs.paths(),
        requests: &requests,
        on: &on,
        options: &options,
        found: &found,
    };
    out.answer(exit_of(&outcome), &print::document(&of, &outcome), &print::text(&of, &outcome))
}

/// The device of `--on`, and its name. Errors, told to the user: there is none.
pub(super) fn device_of(
    a: &TraceArgs,
    out: &Out,
) -> Result<(String, Box<dyn DeviceModel>), ExitCode> {
    let on = a.on.as_deref().unwrap_or(DEVICE);
    let device = wp_machine::spec::device(on).and_then(|(name, params)| {
        let entry = wp_device::find(&name).ok_or_else(|| format!("no device called `{name}`"))?;
        let params: Vec<(&str, u64)> = params.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        entry.make(&params).map_err(|e| e.to_string())
    });
    match device {
        Ok(device) => Ok((on.to_owned(), device)),
        Err(e) => Err(out.fail(Exit::Usage, "on", &e, "writepath list devices")),
    }
}

/// Shows how far a replay is, and says whether to go on. `share`: how much of the files was read.
pub(super) fn progress<'p>(
    live: &'p Progress,
    stop: &'p AtomicBool,
    share: &'p dyn Fn() -> String,
) -> impl FnMut(wp_trace::replay::Progress) -> bool + use<'p> {
    let mut shown = now();
    move |p| {
        if shown.elapsed() >= PROGRESS {
            shown = now();
            match p.filled {
                Some((done, all)) => {
                    live.say(format_args!("--fill {:>3} %", done * 100 / all.max(1)));
                }
                None => {
                    let elapsed = print::seconds(p.elapsed.0);
                    live.say(format_args!("{}{} requests, {elapsed}", share(), p.requests));
                }
            }
        }
        !stop.load(Ordering::SeqCst)
    }
}

/// The outcome of a replay. Errors, told to the user; `told` makes one of a request.
pub(super) fn finish(
    played: Result<Outcome, ReplayError>,
    out: &Out,
    told: impl Fn(&Event, String, &str) -> TraceError,
) -> Result<Outcome, ExitCode> {
    match played {
        Ok(outcome) => Ok(outcome),
        Err(ReplayError::Trace(e)) => Err(out.trace_error(&e)),
        Err(ReplayError::Request { request, what, help }) => {
            Err(out.trace_error(&told(&request.event, what, help)))
        }
        Err(ReplayError::Stuck(at)) => {
            let what = format!("the device has neither completed nor set a timer at {} ns", at.0);
            Err(out.fail(Exit::Bug, "stuck", &what, "this is a bug: please report it"))
        }
    }
}

/// The exit code of an outcome.
pub(super) fn exit_of(outcome: &Outcome) -> Exit {
    match (outcome.interrupted, outcome.failed() + outcome.failed_fill) {
        (true, _) => Exit::Interrupted,
        (false, 0) => Exit::Ok,
        (false, _) => Exit::Simulated,
    }
}
