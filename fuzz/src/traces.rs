//! Traces in columns of one's own, and workload definitions of MQSim.

use std::collections::BTreeSet;

use wp_base::event::Op;
use wp_trace::mqsim::{self, Flow, Generator, TraceFlow};
use wp_trace::replay::{Mode, Options, Outcome, Pace, ReplayError, Stream, replay, replay_streams};
use wp_trace::{Columns, Devices, File, Request, Requests, Select, Trace, bases, survey};

/// Requests that are played.
const PLAYED_MAX: usize = 2000;
/// Bytes of the device that they are played on.
const DEVICE_BYTES: u64 = 1 << 24;

fn file(bytes: &[u8]) -> Vec<File<'_>> {
    vec![File { name: "trace".to_owned(), from: Box::new(bytes) }]
}

fn device() -> Box<dyn wp_block::DeviceModel> {
    let fixed = wp_device::find("fixed").expect("a device of ours");
    fixed.make(&[("capacity_bytes", DEVICE_BYTES)]).expect("a possible device")
}

fn options() -> Options {
    Options { mode: Mode::Timed, wrap: true, align: true, ..Options::default() }
}

/// A description of columns in the first line, and a text: every request has a device that the
/// survey found, at or behind the base of the device.
pub fn columns(input: &[u8]) {
    let end = input.iter().position(|b| *b == b'\n').unwrap_or(input.len());
    let (described, text) = (&input[..end], input.get(end + 1..).unwrap_or(&[]));
    let described = String::from_utf8_lossy(described);
    let columns = match Columns::parse(&described) {
        Ok(columns) => columns,
        Err(what) => return assert!(!what.is_empty()),
    };
    assert_eq!(Columns::parse(columns.text()).as_ref(), Ok(&columns));
    assert!(columns.units().contains("size"));
    let open = || Trace::open_columns(file(text), &columns, true).expect("it is described");
    let select = Select { devices: Devices::All, ..Select::default() };
    let Ok(found) = survey(&mut open(), &select, &mut |_| true) else { return };
    let names: BTreeSet<&str> = found.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names.len(), found.len(), "a device is found once");
    let select = Select { bases: bases(&found), ..select };
    let all: u64 = found.iter().map(|f| f.requests).sum();
    let mut trace = open();
    let read: Result<Vec<Request>, _> = Requests::new(&mut trace, select.clone()).collect();
    let read = read.expect("the survey read it");
    assert_eq!(read.len() as u64, all);
    let mut last = 0;
    for r in &read {
        let e = &r.event;
        let base = select.bases[trace.names().name(e.device)];
        assert!(e.op == Op::Flush || e.at.0 >= base, "{e:?} before {base}");
        assert_eq!(e.sectors == 0, e.op == Op::Flush);
        assert!(e.at_ns >= last && r.done_ns.is_none_or(|done| done >= e.at_ns));
        last = e.at_ns;
    }
    let some = read.into_iter().take(PLAYED_MAX).map(Ok);
    played(replay(device(), some, &options(), &mut |_| true));
}

/// A replay that ended, or was refused for a request that it names.
fn played(how: Result<Outcome, ReplayError>) {
    match how {
        Ok(outcome) => assert_eq!(outcome.failed(), 0),
        Err(ReplayError::Request { what, .. }) => assert!(!what.is_empty()),
        Err(ReplayError::Trace(e)) => assert!(!e.what.is_empty()),
        Err(stuck @ ReplayError::Stuck(_)) => panic!("{stuck:?}"),
    }
}

/// A workload definition, and behind a line `----` the trace of its flows. What is generated lies
/// in the part of its flow.
pub fn mqsim(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (definition, trace) = text.split_once("\n----\n").unwrap_or((&text, ""));
    let workload = match mqsim::parse("workload.xml", definition) {
        Ok(workload) => workload,
        Err(e) => return assert!(!e.what.is_empty()),
    };
    for scenario in workload.scenarios.iter().take(2) {
        assert!(!scenario.flows.is_empty() && !scenario.what().is_empty());
        let sectors = DEVICE_BYTES / wp_base::SECTOR_BYTES;
        let part = sectors / scenario.flows.len() as u64 / 8 * 8;
        if part == 0 {
            continue;
        }
        let flows = (0u32..).zip(&scenario.flows);
        let streams = flows.map(|(n, flow)| stream(flow, n, (u64::from(n) * part, part), trace));
        played(replay_streams(device(), streams.collect(), &options(), &mut |_| true));
    }
}

/// The beginning of a flow in its part of the device.
fn stream<'a>(flow: &'a Flow, n: u32, place: (u64, u64), trace: &'a str) -> Stream<'a> {
    let within = move |r: &Result<Request, _>| {
        let Ok(r) = r else { return };
        let e: &wp_trace::Event = &r.event;
        assert!(e.at.0 >= place.0 && e.device == n, "{e:?} before {place:?}");
    };
    match flow {
        Flow::Synthetic(made) => {
            let requests = made.requests_in(n, place).take(PLAYED_MAX).inspect(within);
            let requests = requests.inspect(move |r| {
                let e = r.as_ref().expect("it is generated").event;
                assert!(e.at.0 + u64::from(e.sectors) <= place.0 + place.1, "{e:?} {place:?}");
            });
            let pace = match made.generator {
                Generator::QueueDepth(depth) => Pace::Depth { depth, until: made.until },
                Generator::Interval(_) => Pace::Timed,
            };
            Stream { requests: Box::new(requests), pace }
        }
        Flow::Trace(flow) => {
            let open = || Trace::open_columns(file(trace.as_bytes()), &flow.columns, true);
            let lines = trace.lines().count() as u64;
            let requests = TraceFlow::replay(Box::new(open), flow.requests_of(lines), (n, place));
            let requests = requests.take(PLAYED_MAX).inspect(within);
            Stream { requests: Box::new(requests), pace: Pace::Timed }
        }
    }
}
