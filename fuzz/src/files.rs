//! Logs and traces: dm-log-writes, blktrace, the events of a run, traces of kernels.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use wp_base::Sector;
use wp_base::event::{Op, Record};
use wp_block::trace::{Issues, TraceDevice};
use wp_campaign::{LogFile, LoggedRun, Space, sample_log};
use wp_machine::results::{
    columns, events_to_ndjson, events_to_table, parse_classes, parse_events,
};
use wp_medium::write_log::{LogEntry, Until, WriteLog, write_log};
use wp_medium::{Medium, View};
use wp_parity::reference::{Filed, KernelRun, parse_tsv, summarise};
use wp_report::compare::Comparison;
use wp_report::diff::{Side, What, diff};
use wp_report::run::{Run, SYNCS, Seen, WHOLE, WRITES};

use wp_trace::replay::{Mode, Options, ReplayError, replay};
use wp_trace::{Action, File, Format, Requests, Select, Trace};

use super::feed::Feed;
use super::image::Sparse;

/// Contents of a medium that logs are compared by.
fn pages(medium: &Medium, bytes: u64) -> Vec<u8> {
    let mut out = vec![0; bytes as usize];
    medium.read_bytes(0, &mut out);
    out
}

/// A log as a tape: whatever it says of the order, states are those of a device.
pub fn log_tape(input: &[u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("wp-log-tape-{}-{number}", std::process::id()));
    std::fs::write(&path, input).expect("a folder for files that go");
    let from = Some(wp_medium::log_order::BEGIN.to_owned());
    for from in [None, from] {
        let file = LogFile { path: path.clone(), from, acks: true, ..LogFile::default() };
        let Ok(run) = LoggedRun::of_any(file) else { continue };
        let plan = wp_crash::Plan { complete: 4, samples: 4, most: 16, ..Default::default() };
        let sample = sample_log(&run, (Space::HONEST, &plan, 1), (4, &[]), &|| true);
        let sample = sample.expect("a log that could be read");
        assert!(sample.states.len() as u64 <= sample.of.min(4), "{}", sample.of);
        for state in &sample.states {
            let longest = state.lost.last().map_or(0, |n| n + 1);
            assert!(longest >= state.lost.len(), "units are lost once: {:?}", state.lost);
        }
    }
    std::fs::remove_file(&path).expect("it was written");
}

/// A log of dm-log-writes: what is read, is written as it was, and replays the same.
pub fn log_writes(input: &[u8]) {
    let view = Sparse::new(input);
    let Ok(log) = WriteLog::open(&view) else { return };
    let Ok(entries) = log.entries().collect::<Result<Vec<LogEntry>, _>>() else { return };
    assert_eq!(entries.len() as u64, log.entries_count());
    let whole = log.replay(Until::End);
    for entry in entries.iter().filter(|e| !e.mark.is_empty()) {
        log.replay(Until::Mark(&entry.mark)).expect("a mark that was read");
    }
    log.replay(Until::Entry(entries.len() as u64)).expect("as long as it is");
    let mut bytes = Vec::new();
    // Marks lose what is behind their first zero byte, and bytes that are no text become longer.
    if write_log(&mut bytes, log.sector_bytes(), &entries).is_err() {
        return;
    }
    let view = Sparse::new(&bytes);
    let again = WriteLog::open(&view).expect("a log that we wrote");
    let (ours, ours_bytes) = again.replay(Until::End).expect("a log that we wrote");
    let (theirs, theirs_bytes) = whole.expect("all entries were read");
    assert_eq!(ours_bytes, theirs_bytes);
    let most = theirs_bytes.min(1 << 20);
    assert!(pages(&ours, most) == pages(&theirs, most), "another log");
    assert!(view.len_bytes() >= 512);
}

/// blktrace's binary format, and what is made of what was read.
pub fn blktrace(input: &[u8]) {
    let raw = wp_trace::blktrace::read(input);
    let Ok(records) = wp_trace::blktrace::records(input) else { return };
    assert!(records.len() <= raw.expect("it was read").len());
    let bytes = wp_trace::blktrace::write(&records, TraceDevice::default());
    let again = wp_trace::blktrace::records(&bytes).expect("a trace that we wrote");
    assert_eq!(again.len(), records.len());
    views(&records, &BTreeMap::new());
}

/// Requests of a trace that are replayed.
const REPLAYED_MAX: usize = 2000;

/// A block trace: the first byte says its format, the second how it is replayed onto a small
/// device. Its requests come in the order of time, each of one device; replayed, all are told.
pub fn block_trace(input: &[u8]) {
    let mut feed = Feed::new(input);
    let (which, how) = (feed.u8(), feed.u8());
    let bytes = feed.rest();
    let format = Format::ALL.get(usize::from(which)).copied();
    let file = File { name: "trace".to_owned(), from: Box::new(bytes) };
    let Ok(mut trace) = Trace::open(vec![file], format, how & 1 != 0) else { return };
    let action = [None, Some(Action::Queue), Some(Action::Issue), None];
    let action = action[usize::from(how >> 1) % 4];
    let select = Select { action, ..Select::default() };
    let all = Requests::new(&mut trace, select);
    let mut requests = Vec::new();
    for request in all.take(REPLAYED_MAX) {
        match request {
            Ok(r) => requests.push(r),
            Err(e) => {
                assert!(!e.to_string().is_empty());
                break;
            }
        }
    }
    let mut last = 0;
    for r in &requests {
        assert!(r.event.at_ns >= last && r.done_ns.is_none_or(|done| done >= r.event.at_ns));
        assert_eq!(r.event.sectors == 0, r.event.op == Op::Flush);
        assert_eq!(r.event.device, requests[0].event.device);
        last = r.event.at_ns;
    }
    let options = Options {
        mode: Mode::ALL[usize::from(how >> 3) % 3],
        depth: Some(1 + u32::from(how >> 5)),
        wrap: true,
        align: true,
        ..Options::default()
    };
    let fixed = wp_device::find("fixed").expect("a device of ours");
    let device = fixed.make(&[("capacity_bytes", 1 << 24)]).expect("a possible device");
    let given = requests.len() as u64;
    match replay(device, requests.into_iter().map(Ok), &options, &mut |_| true) {
        Ok(outcome) => assert_eq!((outcome.requests(), outcome.failed()), (given, 0)),
        Err(ReplayError::Request { what, .. }) => assert!(!what.is_empty()),
        Err(other) => panic!("{other:?}"),
    }
}

/// A run's events as a Parquet file.
pub fn events_table(input: &[u8]) {
    let Ok((records, _)) = columns::parse(input.to_vec(), "events.parquet") else { return };
    let again = events_to_table(&records, &mut |_| None).expect("events that we read");
    let (again, _) = columns::parse(again, "events.parquet").expect("events that we wrote");
    assert_eq!(again, records, "read, written and read again");
}

/// A run's events, with the lines beside them after a line `----`; every view of them.
pub fn events(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (lines, tsv) = text.split_once("\n----\n").unwrap_or((&text, ""));
    let Ok(records) = parse_events(&mut lines.as_bytes(), "events") else { return };
    let again = events_to_ndjson(&records);
    let again = parse_events(&mut again.as_slice(), "events").expect("events that we wrote");
    assert_eq!(again, records, "read, written and read again");
    let classes = parse_classes(tsv, "lines", &records).unwrap_or_default();
    views(&records, &classes);
}

/// Everything that can be made of events.
fn views(records: &[Record], classes: &BTreeMap<usize, String>) {
    let _ = wp_block::trace::blkparse(records, TraceDevice::default());
    let _ = wp_block::trace::issues(records, Issues::All);
    let _ = wp_trace::blktrace::write(records, TraceDevice::default());
    let stages = &wp_base::stage::UNKNOWN;
    let seen = Seen::new(Run { records, classes, stages, survives: false, zone_sectors: Some(64) });
    let _ = wp_report::perfetto::write(&seen);
    let _ = wp_report::requests::requests(records);
    for sum in wp_report::latency::stages(records).values() {
        let _ = sum.average();
    }
    let names = [SYNCS, WHOLE, WRITES].concat();
    let calls = seen.calls(&names);
    for call in calls.iter().take(4) {
        let e = wp_report::explain::explain(&seen, *call);
        let _ = (e.text(), e.json());
        let flow = wp_report::flow::flow(&seen, *call);
        let _ = (flow.text(), serde_json::to_string(&flow));
        let _ = (wp_report::draw::mermaid(&flow), wp_report::draw::svg(&flow));
    }
    let _ = wp_report::summary::summary(&seen, &calls).text();
    let measured = || wp_report::compare::Measured::new(&seen, &calls);
    let (a, b, calls) = ("a".to_owned(), "b".to_owned(), "fsync".to_owned());
    let same = Comparison { a, b, calls, left: measured(), right: measured() };
    let _ = (same.text(), same.json());
    let half = &records[records.len() / 2..];
    let side = |records, start| Side { name: "one", records, classes, start: Sector(start) };
    let what = What { actions: "QMFIDCJ".to_owned(), times: true };
    let none = BTreeMap::new();
    let same = diff(&side(records, 0), &side(records, 0), &what);
    assert!(!same.differs(), "a run differs from itself: {}", same.text());
    let other = Side { name: "other", records: half, classes: &none, start: Sector(8) };
    let other = diff(&side(records, 0), &other, &what);
    let _ = (other.text(), other.json());
}

/// A recorded kernel's trace: its lines, its summary by the name in the first line.
pub fn kernel_trace(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (name, tsv) = text.split_once('\n').unwrap_or(("", &text));
    let Ok(trace) = parse_tsv(tsv) else { return };
    let text = wp_machine::classify::lines_to_tsv(&trace.lines, trace.fsync_end_ns);
    assert_eq!(parse_tsv(&text).as_ref(), Ok(&trace), "read, written and read again");
    let filed = Filed::count(&trace.lines, trace.fsync_end_ns);
    for files in [0, 1, 5] {
        let _ = summarise(&trace.lines, trace.fsync_end_ns, files, i64::MAX, filed);
    }
    if let Ok(run) = KernelRun::new(name, &trace) {
        let found = wp_parity::reference::compare(name, &run.summary, &run.summary);
        assert!(found.is_empty(), "a run differs from itself: {found:?}");
        let _ = wp_parity::reference::side_by_side(name, &run.summary, &run.summary).to_text();
    }
}
