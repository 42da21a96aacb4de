//! `replay` of a workload definition of MQSim: the flows of a scenario on one device.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_trace::mqsim::{self, Flow, Generator, Scenario, TraceFlow, Workload};
use wp_trace::replay::{Mode, Pace, Stream, replay_streams};
use wp_trace::{Item, Trace, TraceError};

use super::print::OfWorkload;
use super::trace::{TraceArgs, device_of, finish, progress};
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Largest definition: a scenario of ten flows has 12 KB.
const BYTES_MAX: u64 = 16 << 20;
/// Bytes by which a definition is told.
const HEAD_BYTES: u64 = 4096;

/// Is a file a workload definition?
pub(super) fn is_one(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(mqsim::begins(&head))
}

/// The scenario that is asked for. Errors, told to the user: there is none of that number, or
/// several and none was chosen.
fn chosen<'w>(
    path: &Path,
    workload: &'w Workload,
    number: Option<usize>,
    out: &Out,
) -> Result<&'w Scenario, ExitCode> {
    let n = workload.scenarios.len();
    let listed: Vec<String> = (1..)
        .zip(&workload.scenarios)
        .map(|(n, s)| format!("{n}: {} (line {})", s.what(), s.line))
        .collect();
    let listed = listed.join("; ");
    let number = match number {
        None if n == 1 => 1,
        None => {
            let what = format!("{}: {n} scenarios, and none is chosen", path.shown());
            let help = format!("--scenario N takes one: {listed}");
            return Err(out.fail(Exit::Usage, "scenario", &what, &help));
        }
        Some(number) => number,
    };
    let found = number.checked_sub(1).and_then(|i| workload.scenarios.get(i));
    found.ok_or_else(|| {
        let what = format!("--scenario {number}: {} has no such scenario", path.shown());
        out.fail(Exit::Usage, "scenario", &what, &listed)
    })
}

/// Begins to read the trace of a flow.
fn open<'a>(path: &Path, flow: &TraceFlow, torn_ok: bool) -> Result<Trace<'a>, TraceError> {
    let name = path.shown();
    let from = File::open(path).map_err(|e| TraceError {
        file: name.clone(),
        place: wp_trace::Place::Byte(0),
        what: format!("cannot be read: {e}"),
        help: String::new(),
        host: true,
    })?;
    let file = wp_trace::File { name, from: Box::new(from) };
    Trace::open_columns(vec![file], &flow.columns, torn_ok)
}

/// Requests that a trace has.
fn count(mut trace: Trace<'_>, say: &dyn Fn(u64)) -> Result<u64, TraceError> {
    let mut n = 0u64;
    while let Some(item) = trace.next_item() {
        if let Item::Event(_) = item? {
            n += 1;
            if n.is_multiple_of(1 << 16) {
                say(n);
            }
        }
    }
    Ok(n)
}

/// Replays.
pub(super) fn run(path: &Path, a: &TraceArgs, out: &Out) -> ExitCode {
    let read = wp_machine::host::text::read_at_most(path, BYTES_MAX);
    let text = match read {
        Ok(text) => text,
        Err(e) => return out.host_error(path, &e),
    };
    let workload = match mqsim::parse(&path.shown(), &text) {
        Ok(workload) => workload,
        Err(e) => return out.trace_error(&e),
    };
    let scenario = match chosen(path, &workload, a.scenario, out) {
        Ok(scenario) => scenario,
        Err(code) => return code,
    };
    if let Some((line, what)) = &scenario.unsupported {
        let what = format!("{}: line {line}: {what}: not supported", path.shown());
        let help = "flows share all dies here; give them the same IDs";
        return out.fail(Exit::Unsupported, "partition", &what, help);
    }
    let options = match a.options(Mode::Timed) {
        Ok(options) => options,
        Err((key, what, help)) => return out.fail(Exit::Usage, key, &what, &help),
    };
    let (on, device) = match device_of(a, out) {
        Ok(device) => device,
        Err(code) => return code,
    };
    let stop = out.interrupt_in_parts();
    let live = Progress::new("replay");
    let part = device.limits().sectors / scenario.flows.len() as u64;
    // Flows begin at whole blocks of the device.
    let unit = u64::from(device.limits().logical_bytes) / wp_base::SECTOR_BYTES;
    let part = part - part % unit.max(1);
    if part == 0 {
        let what = format!("{on} has no room for {} flows", scenario.flows.len());
        return out.fail(Exit::Usage, "on", &what, "a larger device");
    }
    let mut streams = Vec::new();
    for (n, flow) in (0u64..).zip(&scenario.flows) {
        let place = (n * part, part);
        match stream(path, flow, (n as u32, place), a.torn_ok, &live) {
            Ok(stream) => streams.push(stream),
            Err(e) => return out.trace_error(&e),
        }
    }
    let mut go_on = progress(&live, &stop, &String::new);
    let played = replay_streams(device, streams, &options, &mut go_on);
    drop(go_on);
    drop(live);
    let of = OfWorkload { path, scenario, on: &on, options: &options };
    finish(played, out, |e, what, help| {
        // A request is of a line of its trace, or of none.
        let flow = scenario.flows.get(e.device as usize);
        let help = help.to_owned();
        match flow {
            Some(Flow::Synthetic(_)) | None => TraceError {
                file: path.shown(),
                place: wp_trace::Place::Line(scenario.line),
                what,
                help,
                host: false,
            },
            Some(Flow::Trace(flow)) => {
                TraceError { file: flow.path.clone(), place: e.place, what, help, host: false }
            }
        }
    })
    .map_or_else(
        |code| code,
        |outcome| {
            let exit = super::trace::exit_of(&outcome);
            out.answer(exit, &of.document(&outcome), &of.text(&outcome))
        },
    )
}

/// The requests of a flow in its part of the device, and its pace.
fn stream<'a>(
    definition: &Path,
    flow: &'a Flow,
    (number, place): (u32, (u64, u64)),
    torn_ok: bool,
    live: &Progress,
) -> Result<Stream<'a>, TraceError> {
    match flow {
        Flow::Synthetic(made) => Ok(Stream {
            requests: Box::new(made.requests_in(number, place)),
            pace: match made.generator {
                Generator::QueueDepth(depth) => Pace::Depth { depth, until: made.until },
                Generator::Interval(_) => Pace::Timed,
            },
        }),
        Flow::Trace(flow) => {
            // MQSim runs in the folder of the definition.
            let folder = definition.parent().map_or_else(PathBuf::new, Path::to_path_buf);
            let path = folder.join(&flow.path);
            let say = |n: u64| live.say(format_args!("{}: {n} requests", path.shown()));
            let lines = count(open(&path, flow, torn_ok)?, &say)?;
            let again = Box::new(move || open(&path, flow, torn_ok));
            let requests = TraceFlow::replay(again, flow.requests_of(lines), (number, place));
            Ok(Stream { requests: Box::new(requests), pace: Pace::Timed })
        }
    }
}
