//! Comparison of traces: with itself, with what is known to be different, with brute force.

use proptest::prelude::*;
use wp_base::Sector;
use wp_base::event::{Flags, Op};
use wp_trace::compare::{Comparison, Limits, Side, compare};
use wp_trace::{Action, Event, File, Place, Request, Requests, Select, Step, Trace};

const NOTHING: Limits = Limits { ks_max: 0.0, missing_max: 0.0 };

fn request(at_ns: u64, op: Op, at: u64, sectors: u32, took: Option<u64>) -> Request {
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
    Request { event, done_ns: took.map(|ns| at_ns + ns) }
}

/// A journal's life: data, log, flush, forced record, a read now and then.
fn life() -> Vec<Request> {
    let mut all = Vec::new();
    for i in 0..200u64 {
        let t = i * 1_000_000;
        all.push(request(t, Op::Write, 100_000 + i * 8, 8, Some(50_000 + i * 100)));
        all.push(request(t + 100_000, Op::Write, 2_000 + i * 16, 16, Some(60_000)));
        all.push(request(t + 200_000, Op::Flush, 0, 0, Some(300_000 + i * 1_000)));
        let mut record = request(t + 600_000, Op::Write, 2_016 + i * 16, 8, Some(90_000));
        record.event.flags = Flags::FUA;
        all.push(record);
        if i % 3 == 0 {
            all.push(request(t + 700_000, Op::Read, (i * 7919) % 5_000 * 8, 8, Some(80_000 + i)));
        }
    }
    all
}

fn side(requests: Vec<Request>) -> Side {
    Side { requests, action: Some(Action::Issue), queued: Vec::new() }
}

fn of(real: Vec<Request>, sim: Vec<Request>) -> Comparison {
    compare(&side(real), &side(sim), None)
}

fn distance(c: &Comparison, name: &str, op: Option<Op>) -> f64 {
    let m = c.measures.iter().find(|m| m.name == name && m.op == op);
    m.and_then(|m| m.distance()).unwrap_or_else(|| panic!("no {name} of {op:?}"))
}

#[test]
fn a_trace_beside_itself_differs_in_nothing() {
    let c = of(life(), life());
    assert_eq!(c.aligned.same, life().len());
    assert_eq!((c.aligned.offset, c.aligned.in_order, c.aligned.inverted), (0, 1.0, 0.0));
    assert_eq!((c.aligned.missing, c.aligned.extra, c.aligned.elsewhere), (0, 0, 0));
    assert!(c.kinds.values().all(|n| n[0] == n[1]) && c.kinds.len() == 5, "{:?}", c.kinds);
    assert!(c.sequential.values().all(|s| s[0] == s[1]));
    assert!(c.measures.iter().all(|m| m.distance() == Some(0.0)), "{:?}", c.measures);
    assert_eq!(c.over(&NOTHING), Vec::<String>::new());
    assert!(c.has_judged_latency());
}

#[test]
fn requests_that_were_left_out_are_the_ones_that_are_missing() {
    let fewer: Vec<Request> =
        life().into_iter().enumerate().filter(|(i, _)| i % 10 != 0).map(|(_, r)| r).collect();
    let (all, left) = (life().len(), fewer.len());
    let c = of(life(), fewer.clone());
    assert_eq!((c.aligned.missing, c.aligned.extra), (all - left, 0));
    assert_eq!(c.missing(), [(all - left) as f64 / all as f64, 0.0]);
    let over = c.over(&Limits { ks_max: 1.0, missing_max: 0.05 });
    assert_eq!(over.len(), 1, "{over:?}");
    assert!(over[0].contains("of REAL's requests"), "{over:?}");
    let back = of(fewer, life());
    assert_eq!((back.aligned.missing, back.aligned.extra), (0, all - left));
}

#[test]
fn slower_writes_show_in_writes_alone() {
    let mut slow = life();
    for r in slow.iter_mut().filter(|r| r.event.op == Op::Write) {
        r.done_ns = r.done_ns.map(|d| d + 25_000);
    }
    let c = of(life(), slow);
    assert!(distance(&c, "D2C", Some(Op::Write)) > 0.5);
    assert_eq!(distance(&c, "D2C", Some(Op::Read)), 0.0);
    assert_eq!(distance(&c, "D2C", Some(Op::Flush)), 0.0);
    assert_eq!(c.over(&Limits { ks_max: 0.1, missing_max: 0.0 }).len(), 1);
    assert_eq!(c.aligned.in_order, 1.0);
}

#[test]
fn a_partition_that_begins_elsewhere_is_moved_back() {
    let mut moved = life();
    moved.iter_mut().filter(|r| r.event.op != Op::Flush).for_each(|r| r.event.at.0 += 2048);
    let c = of(life(), moved.clone());
    assert_eq!((c.aligned.offset, c.aligned.same), (-2048, life().len()));
    let c = compare(&side(life()), &side(moved), Some(0));
    // Without it places that coincide by chance are the only ones that are the same.
    assert!(c.aligned.elsewhere > 300 && c.aligned.missing == 0, "{:?}", c.aligned);
}

#[test]
fn requests_that_changed_places_are_counted_as_such() {
    let mut swapped = life();
    // One pair in each of the 200 rounds.
    for i in (0..swapped.len() - 1).filter(|i| i % 4 == 0) {
        let (a, b) = (swapped[i].event.at_ns, swapped[i + 1].event.at_ns);
        swapped.swap(i, i + 1);
        (swapped[i].event.at_ns, swapped[i + 1].event.at_ns) = (a, b);
    }
    let n = life().len();
    let swaps = (0..n - 1).filter(|i| i % 4 == 0).count();
    let c = of(life(), swapped);
    assert_eq!(c.aligned.same, n);
    assert_eq!(c.aligned.in_order, (n - swaps) as f64 / n as f64);
    let pairs = n as f64 * (n as f64 - 1.0) / 2.0;
    assert_eq!(c.aligned.inverted, swaps as f64 / pairs);
}

#[test]
fn lost_force_is_another_flag_and_another_kind() {
    let mut weak = life();
    weak.iter_mut().for_each(|r| r.event.flags = Flags::NONE);
    let c = of(life(), weak);
    assert_eq!((c.aligned.same, c.aligned.other_flags), (life().len(), 200));
    let m = c.measures.iter().find(|m| m.name == "FUA interval").expect("REAL has it");
    assert_eq!((m.spreads[0].count(), m.spreads[1].count(), m.distance()), (199, 0, None));
}

#[test]
fn what_waited_in_the_queue_is_told_from_what_the_device_took() {
    let text = "  8,16 0 1 0.000001000 1 Q WS 100 + 8 [a]
  8,16 0 2 0.000003000 1 Q WS 108 + 8 [a]
  8,16 0 3 0.000010000 1 D WS 100 + 16 [a]
  8,16 0 4 0.000050000 0 C WS 100 + 16 [0]
";
    let read = |action| {
        let file = File { name: "t".to_owned(), from: Box::new(text.as_bytes()) };
        let mut trace = Trace::open(vec![file], None, false).expect("a trace");
        let select = Select { action: Some(action), ..Select::default() };
        Requests::new(&mut trace, select).collect::<Result<Vec<_>, _>>().expect("requests")
    };
    let both = Side {
        requests: read(Action::Issue),
        action: Some(Action::Issue),
        queued: read(Action::Queue),
    };
    let c = compare(&both, &both, None);
    let mean = |name: &str| {
        let m = c.measures.iter().find(|m| m.name == name && m.op == Some(Op::Write));
        m.expect("it was recorded").spreads[0].mean()
    };
    assert_eq!((mean("Q2D"), mean("D2C"), mean("Q2C")), (8_000.0, 40_000.0, 48_000.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever two traces are: what is paired and what is not add up, and nothing panics.
    #[test]
    fn everything_is_somewhere(
        real in prop::collection::vec((0u64..50, 0u8..4, 0u64..20, 1u32..3, 0u64..9), 0..60),
        sim in prop::collection::vec((0u64..50, 0u8..4, 0u64..20, 1u32..3, 0u64..9), 0..60),
        offset in prop::option::of(any::<i64>()),
    ) {
        let make = |list: &[(u64, u8, u64, u32, u64)]| {
            let mut at_ns = 0;
            let ops = [Op::Read, Op::Write, Op::Discard, Op::Flush];
            list.iter().map(|(gap, op, at, sectors, took)| {
                at_ns += gap;
                request(at_ns, ops[usize::from(*op)], at * 8, *sectors, took.checked_sub(1))
            }).collect::<Vec<_>>()
        };
        let (real, sim) = (make(&real), make(&sim));
        let (n, m) = (real.len(), sim.len());
        let c = compare(&side(real), &side(sim), offset);
        let a = c.aligned;
        prop_assert_eq!(a.same + a.elsewhere + a.missing, n);
        prop_assert_eq!(a.same + a.elsewhere + a.extra, m);
        prop_assert!((0.0..=1.0).contains(&a.in_order) && (0.0..=1.0).contains(&a.inverted));
        let is_share = |d| (0.0..=1.0).contains(&d);
        prop_assert!(c.measures.iter().all(|m| m.distance().is_none_or(is_share)));
        drop(c.over(&NOTHING));
    }
}
