//! Replay on a device whose every command takes the same time, so that all times can be said
//! beforehand.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use wp_base::event::{Flags, Op};
use wp_base::{Sector, Span, Time};
use wp_block::{Admit, CrashView, DevRequest, DeviceModel, Effects, Limits, Status};
use wp_medium::{Medium, Slice};
use wp_trace::replay::{Mode, Options, Outcome, ReplayError, replay};
use wp_trace::{Event, Place, Request, Step};

/// What a device was sent: when, what, where, how much, how.
type Sent = Rc<RefCell<Vec<(u64, Op, u64, u32, Flags)>>>;

/// A device that writes down what it takes.
struct Watched {
    device: Box<dyn DeviceModel>,
    sent: Sent,
}

impl DeviceModel for Watched {
    fn limits(&self) -> &Limits {
        self.device.limits()
    }
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        let seen = (now.0, rq.op, rq.at.0, rq.sectors, rq.flags);
        let bytes: u64 = rq.data.iter().map(|s: &Slice| u64::from(s.len())).sum();
        assert_eq!(bytes, if rq.op == Op::Write { u64::from(rq.sectors) * 512 } else { 0 });
        let admit = self.device.submit(now, rq, fx);
        if matches!(admit, Admit::Accepted) {
            self.sent.borrow_mut().push(seen);
        }
        admit
    }
    fn timer(&mut self, now: Time, token: u64, fx: &mut Effects) {
        self.device.timer(now, token, fx);
    }
    fn crash_view(&self, now: Time) -> CrashView {
        self.device.crash_view(now)
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        self.device.fork()
    }
    fn medium(&self) -> Medium {
        self.device.medium()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.device.counters()
    }
}

const LATENCY: u64 = 15_000;

fn request(at_ns: u64, op: Op, at: u64, sectors: u32, done_ns: Option<u64>) -> Request {
    let event = Event {
        at_ns,
        step: Step::Issue,
        op,
        zeroes: false,
        flags: Flags::NONE,
        at: Sector(at),
        sectors,
        device: 0,
        file: 0,
        place: Place::Line(1),
    };
    Request { event, done_ns }
}

fn play(
    replaced: &[(&str, u64)],
    requests: &[Request],
    options: Options,
) -> (Result<Outcome, ReplayError>, Sent) {
    let sent = Sent::default();
    let fixed = [&[("latency_ns", LATENCY), ("capacity_bytes", 1 << 20)], replaced].concat();
    let device = wp_device::find("fixed").expect("in the list").make(&fixed).expect("possible");
    let device = Box::new(Watched { device, sent: sent.clone() });
    let requests = requests.iter().copied().map(Ok);
    (replay(device, requests, &options, &mut |_| true), sent)
}

fn times(sent: &Sent) -> Vec<u64> {
    sent.borrow().iter().map(|s| s.0).collect()
}

fn mode(mode: Mode, depth: u32) -> Options {
    Options { mode, depth: Some(depth), ..Options::default() }
}

#[test]
fn as_fast_as_possible_keeps_so_many_under_way() {
    let requests: Vec<Request> =
        (0..6).map(|n| request(n * 1_000_000, Op::Read, n * 8, 8, None)).collect();
    let (one, sent) = play(&[], &requests, mode(Mode::Afap, 1));
    assert_eq!(times(&sent), [0, 15_000, 30_000, 45_000, 60_000, 75_000]);
    let one = one.expect("played");
    assert_eq!((one.end, one.trace), (Span(6 * LATENCY), Span(5_000_000)));
    assert_eq!((one.reads.requests, one.reads.bytes_done), (6, 6 * 4096));
    assert_eq!((one.reads.service.min, one.reads.service.max), (LATENCY, LATENCY));
    let (_, sent) = play(&[], &requests, mode(Mode::Afap, 4));
    assert_eq!(times(&sent), [0, 0, 0, 0, 15_000, 15_000]);
    // A device that takes fewer makes the others wait.
    let (two, sent) = play(&[("queue_depth", 2)], &requests, mode(Mode::Afap, 4));
    assert_eq!(times(&sent), [0, 0, 15_000, 15_000, 30_000, 30_000]);
    assert!(two.expect("played").busy > 0);
}

#[test]
fn at_the_times_of_the_trace_a_slow_device_is_late_and_it_is_told() {
    let at = [7_000, 12_000, 13_000, 100_000];
    let requests: Vec<Request> = at.iter().map(|t| request(*t, Op::Read, 0, 8, None)).collect();
    let (deep, sent) = play(&[], &requests, mode(Mode::Timed, 8));
    assert_eq!(times(&sent), [0, 5_000, 6_000, 93_000]);
    assert_eq!(deep.expect("played").late.count, 0);
    let (o, sent) = play(&[("queue_depth", 1)], &requests, mode(Mode::Timed, 8));
    assert_eq!(times(&sent), [0, 15_000, 30_000, 93_000]);
    let o = o.expect("played");
    assert_eq!((o.late.count, o.late.min, o.late.max), (2, 10_000, 24_000));
    assert_eq!((o.reads.service.max, o.reads.response.max), (LATENCY, LATENCY + 24_000));
}

#[test]
fn thought_is_the_gap_less_the_recorded_service_time() {
    // Recorded: 40 us each, then 10 us of thought; the device here takes 15 us.
    let requests: Vec<Request> =
        (0..4).map(|n| request(n * 50_000, Op::Read, 0, 8, Some(n * 50_000 + 40_000))).collect();
    let (_, sent) = play(&[], &requests, mode(Mode::Think, 8));
    assert_eq!(times(&sent), [0, 25_000, 50_000, 75_000]);
    // Nothing recorded: the whole gap is thought.
    let unknown: Vec<Request> = (0..3).map(|n| request(n * 50_000, Op::Read, 0, 8, None)).collect();
    let (_, sent) = play(&[], &unknown, mode(Mode::Think, 8));
    assert_eq!(times(&sent), [0, 65_000, 130_000]);
}

/// The law of `think`, for a device that takes all and a fixed time for each, with no bound.
fn thought(requests: &[Request]) -> Vec<u64> {
    let mut sent: Vec<u64> = Vec::new();
    for (i, r) in requests.iter().enumerate() {
        let done = |j: usize| requests[j].done_ns.unwrap_or(requests[j].event.at_ns);
        let before = (0..i).filter(|j| done(*j) <= r.event.at_ns).max_by_key(|j| (done(*j), *j));
        let due = match before {
            Some(p) => sent[p] + LATENCY + (r.event.at_ns - done(p)),
            None => r.event.at_ns - requests[0].event.at_ns,
        };
        sent.push(due.max(sent.last().copied().unwrap_or(0)));
    }
    sent
}

proptest! {
    #[test]
    fn think_is_its_law(
        // In steps of 5 us, so that many things are at one time.
        gaps in prop::collection::vec((0u64..8, prop::option::of(0u64..18)), 1..60),
    ) {
        let mut at = 5_000;
        let requests: Vec<Request> = gaps.iter().map(|(gap, took)| {
            at += gap * 5_000;
            request(at, Op::Read, 0, 8, took.map(|t| at + t * 5_000))
        }).collect();
        let (o, sent) = play(&[], &requests, mode(Mode::Think, 64));
        prop_assert_eq!(o.expect("played").reads.requests, requests.len() as u64);
        prop_assert_eq!(times(&sent), thought(&requests));
    }
}

fn ops(sent: &Sent) -> Vec<(u64, Op, u64, u32, bool)> {
    let one = |s: &(u64, Op, u64, u32, Flags)| (s.0, s.1, s.2, s.3, s.4.has(Flags::FUA));
    sent.borrow().iter().map(one).collect()
}

#[test]
fn a_commit_record_is_flush_and_write_as_the_device_can() {
    let mut commit = request(0, Op::Write, 8, 8, None);
    commit.event.flags = Flags::PREFLUSH | Flags::FUA;
    let after = request(0, Op::Read, 0, 8, None);
    let (f, w) = ((Op::Flush, 0, 0), (Op::Write, 8, 8));
    let (o, sent) = play(&[], &[commit, after], mode(Mode::Afap, 1));
    let plain = |t: u64, (op, at, n): (Op, u64, u32), fua: bool| (t, op, at, n, fua);
    let read = |t| (t, Op::Read, 0, 8, false);
    assert_eq!(ops(&sent), [plain(0, f, false), plain(15_000, w, true), read(30_000)]);
    let o = o.expect("played");
    assert_eq!((o.writes.requests, o.flushes.requests), (1, 0));
    assert_eq!(o.writes.service.max, 2 * LATENCY);
    let (_, sent) = play(&[("fua", 0)], &[commit, after], mode(Mode::Afap, 1));
    let three = [plain(0, f, false), plain(15_000, w, false), plain(30_000, f, false)];
    assert_eq!(ops(&sent), [&three[..], &[read(45_000)]].concat());
    // Without a volatile cache there is nothing to flush.
    let none = [("fua", 0), ("cache_bytes", 0)];
    let alone = request(0, Op::Flush, 0, 0, None);
    let (o, sent) = play(&none, &[commit, alone], mode(Mode::Afap, 1));
    assert_eq!(ops(&sent), [plain(0, w, false)]);
    let o = o.expect("played");
    assert_eq!((o.flushes.requests, o.flushes.not_sent), (1, 1));
}

#[test]
fn a_flush_is_sent_alone_where_it_must_be() {
    let requests: Vec<Request> = [Op::Read, Op::Flush, Op::Read]
        .into_iter()
        .map(|op| request(0, op, 0, if op == Op::Flush { 0 } else { 8 }, None))
        .collect();
    let (_, sent) = play(&[], &requests, mode(Mode::Afap, 8));
    assert_eq!(times(&sent), [0, 0, 0]);
    let (_, sent) = play(&[("flush_beside_others", 0)], &requests, mode(Mode::Afap, 8));
    assert_eq!(times(&sent), [0, 15_000, 30_000]);
}

#[test]
fn what_does_not_fit_is_refused_or_folded_widened_and_split_as_asked() {
    // 1 MiB has 2048 sectors.
    let over = [request(0, Op::Write, 2040, 24, None)];
    let (o, _) = play(&[], &over, Options::default());
    match o {
        Err(ReplayError::Request { what, help, .. }) => {
            assert!(what.contains("2040 + 24") && what.contains("2048"), "{what}");
            assert!(help.contains("--wrap"), "{help}");
        }
        other => panic!("{other:?}"),
    }
    let places =
        |sent: &Sent| -> Vec<(u64, u32)> { sent.borrow().iter().map(|s| (s.2, s.3)).collect() };
    let wrap = Options { wrap: true, ..Options::default() };
    let (o, sent) = play(&[], &over, wrap);
    assert_eq!(places(&sent), [(2040, 8), (0, 16)]);
    let o = o.expect("played");
    assert_eq!((o.wrapped, o.split, o.writes.requests), (1, 1, 1));
    let far = [request(0, Op::Write, 2048 * 5 + 16, 8, None)];
    assert_eq!(places(&play(&[], &far, wrap).1), [(16, 8)]);
    let moved = Options { offset: -2040, ..Options::default() };
    assert_eq!(places(&play(&[], &over, moved).1), [(0, 24)]);
    let below = play(&[], &[request(0, Op::Read, 8, 8, None)], moved).0;
    assert!(matches!(below, Err(ReplayError::Request { help, .. }) if help.contains("--offset")));
    let (o, sent) = play(&[("max_request_sectors", 10)], &over, moved);
    assert_eq!(places(&sent), [(0, 10), (10, 10), (20, 4)]);
    assert_eq!(o.expect("played").split, 2);
    // A discard is as long as it is.
    let discard = [request(0, Op::Discard, 0, 64, None)];
    assert_eq!(places(&play(&[("max_request_sectors", 8)], &discard, wrap).1), [(0, 64)]);
    let none = play(&[("discard", 0)], &discard, wrap).0.expect("played");
    assert_eq!((none.discards.requests, none.discards.not_sent), (1, 1));
    for sectors in [u32::MAX, (1 << 23) + 1] {
        let long = play(&[], &[request(0, Op::Read, 8, sectors, None)], wrap).0;
        assert!(matches!(long, Err(ReplayError::Request { .. })));
    }
    let late = [request(0, Op::Read, 0, 8, None), request(u64::MAX, Op::Read, 0, 8, None)];
    assert!(matches!(play(&[], &late, wrap).0, Err(ReplayError::Request { .. })));
}

#[test]
fn filling_counts_for_itself_and_an_end_is_told() {
    let options = Options { fill_bytes: 1 << 19, ..mode(Mode::Timed, 1) };
    let requests = [request(50, Op::Read, 0, 8, None), request(60, Op::Read, 0, 8, None)];
    let (o, sent) = play(&[], &requests, options);
    let o = o.expect("played");
    let began = o.fill.0;
    assert!(began > 0 && sent.borrow()[0].1 == Op::Write);
    let reads: Vec<u64> = times(&sent).into_iter().rev().take(2).collect();
    assert_eq!(reads, [began + LATENCY, began]);
    assert_eq!((o.end, o.writes.requests), (Span(2 * LATENCY), 0));
    let before = |name| o.counters_before.iter().find(|(n, _)| *n == name).map(|(_, n)| *n);
    assert_eq!(before("written_sectors"), Some(1024));
    // Somebody ends it.
    let endless = (0u64..).map(|n| Ok(request(n, Op::Read, 0, 8, None)));
    let device = wp_device::find("fixed").expect("in the list").make(&[]).expect("possible");
    let mut looks = 0;
    let o = replay(device, endless, &Options::default(), &mut |_| {
        looks += 1;
        looks < 3
    });
    let o = o.expect("played");
    assert!(o.interrupted && o.reads.requests == 3 * 1024 && o.reads.service.count == 3 * 1024);
}

#[test]
fn a_request_that_the_device_refuses_is_counted_and_the_first_is_told() {
    // Behind the write pointer of a zone, and at it.
    let zoned = [("zone_bytes", 1 << 18)];
    let requests = [8, 0, 16].map(|at| request(0, Op::Write, at, 8, None));
    let (o, _) = play(&zoned, &requests, mode(Mode::Afap, 1));
    let o = o.expect("played");
    assert_eq!((o.writes.requests, o.writes.failed, o.writes.service.count), (3, 2, 1));
    assert_eq!(o.writes.bytes_done, 4096);
    let (first, status) = o.first_failed.expect("two have failed");
    assert_eq!((first.at, status), (Sector(8), Status::Io));
}
