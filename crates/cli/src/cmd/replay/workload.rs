//! `replay` of a workload definition of MQSim: the flows of a scenario on one device.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_block::DeviceModel;
use wp_trace::mqsim::{self, Flow, Generator, Scenario, TraceFlow, Workload};
use wp_trace::replay::{Mode, Pace, Stream, replay_streams};
use wp_trace::{Event, Item, Trace, TraceError};

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

/// Sectors of the device that each flow has: whole blocks. Errors: there is no room.
fn part_of(
    scenario: &Scenario,
    (on, device): (&str, &dyn DeviceModel),
    out: &Out,
) -> Result<u64, ExitCode> {
    let part = device.limits().sectors / scenario.flows.len() as u64;
    let unit = u64::from(device.limits().logical_bytes) / wp_base::SECTOR_BYTES;
    let part = part - part % unit.max(1);
    if part > 0 {
        return Ok(part);
    }
    let what = format!("{on} has no room for {} flows", scenario.flows.len());
    Err(out.fail(Exit::Usage, "on", &what, "a larger device"))
}

/// Where a request that failed comes from: a line of its flow's trace, or the scenario.
fn place_of(path: &Path, scenario: &Scenario, e: &Event, what: String, help: &str) -> TraceError {
    let (file, place) = match scenario.flows.get(e.device as usize) {
        Some(Flow::Trace(flow)) => (flow.path.clone(), e.place),
        Some(Flow::Synthetic(_)) | None => (path.shown(), wp_trace::Place::Line(scenario.line)),
    };
    TraceError { file, place, what, help: help.to_owned(), host: false }
}

/// Replays.
pub(super) fn run(path: &Path, a: &TraceArgs, out: &Out) -> ExitCode {
    match replayed(path, a, out) {
        Ok(code) | Err(code) => code,
    }
}

fn replayed(path: &Path, a: &TraceArgs, out: &Out) -> Result<ExitCode, ExitCode> {
    let text = wp_machine::host::text::read_at_most(path, BYTES_MAX);
    let text = text.map_err(|e| out.host_error(path, &e))?;
    let workload = mqsim::parse(&path.shown(), &text).map_err(|e| out.trace_error(&e))?;
    let scenario = chosen(path, &workload, a.scenario, out)?;
    if let Some((line, what)) = &scenario.unsupported {
        let what = format!("{}: line {line}: {what}: not supported", path.shown());
        let help = "flows share all dies here; give them the same IDs";
        return Err(out.fail(Exit::Unsupported, "partition", &what, help));
    }
    let options = a.options(Mode::Timed);
    let options = options.map_err(|(key, what, help)| out.fail(Exit::Usage, key, &what, &help))?;
    let (on, device) = device_of(a, out)?;
    let stop = out.interrupt_in_parts();
    let live = Progress::new("replay");
    let part = part_of(scenario, (&on, &*device), out)?;
    let mut streams = Vec::new();
    for (n, flow) in (0u64..).zip(&scenario.flows) {
        let place = (n * part, part);
        let stream = stream(path, flow, (n as u32, place), a.torn_ok, &live);
        streams.push(stream.map_err(|e| out.trace_error(&e))?);
    }
    let mut go_on = progress(&live, &stop, &String::new);
    let played = replay_streams(device, streams, &options, &mut go_on);
    drop(go_on);
    drop(live);
    let of = OfWorkload { path, scenario, on: &on, options: &options };
    let outcome = finish(played, out, |e, what, help| place_of(path, scenario, e, what, help))?;
    let exit = super::trace::exit_of(&outcome);
    Ok(out.answer(exit, &of.document(&outcome), &of.text(&outcome)))
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
