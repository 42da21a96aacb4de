//! Traces of several devices, and traces that have nothing of what is wanted.

use wp_trace::{
    Action, Devices, File, Found, Request, Requests, Select, Skip, Trace, TraceError, bases, survey,
};

fn open(text: &str) -> Trace<'_> {
    let file = File { name: "t".to_owned(), from: Box::new(text.as_bytes()) };
    Trace::open(vec![file], None, false).expect("recognised")
}

fn all(text: &str, select: Select) -> Result<Vec<Request>, TraceError> {
    Requests::new(&mut open(text), select).collect()
}

const THREE: &str = "0.0 0 1000 8 1\n1.0 1 2000 8 1\n2.0 3 3000 8 0\n3.0 1 0 2048 0\n";

#[test]
fn without_a_choice_the_devices_are_listed_with_their_requests() {
    let e = all(THREE, Select::default()).expect_err("three devices");
    assert_eq!(e.what, "3 devices in 4 requests, and none is chosen: 1 (2), 0 (1), 3 (1)");
    assert!(e.help.contains("--from 1") && e.help.contains("--from all"), "{}", e.help);
}

#[test]
fn devices_lie_one_behind_the_other_in_the_order_of_their_first_requests() {
    let select = Select { devices: Devices::All, ..Select::default() };
    let found = survey(&mut open(THREE), &select, &mut |_| true).expect("a trace");
    let one = |name: &str, requests, end| Found { name: name.to_owned(), requests, end };
    assert_eq!(found, [one("0", 1, 1008), one("1", 2, 2048), one("3", 1, 3008)]);
    let bases = bases(&found);
    let placed: Vec<u64> = ["0", "1", "3"].iter().map(|n| bases[*n]).collect();
    assert_eq!(placed, [0, 2048, 4096]);
    let requests = all(THREE, Select { bases, ..select }).expect("a trace");
    let at: Vec<u64> = requests.iter().map(|r| r.event.at.0).collect();
    assert_eq!(at, [1000, 4048, 7096, 2048]);
}

#[test]
fn some_of_several_devices_can_be_chosen() {
    let named =
        |names: &[&str]| Devices::named(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
    let select = Select { devices: named(&["1", "3"]), ..Select::default() };
    let mut trace = open(THREE);
    let found = survey(&mut trace, &select, &mut |_| true).expect("a trace");
    assert_eq!(found.iter().map(|f| f.requests).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(trace.skipped().count(Skip::Device), 1);
    assert_eq!(named(&[]), Devices::One);
    assert_eq!(named(&["all"]), Devices::All);
}

#[test]
fn completions_of_devices_that_share_sectors_find_their_own_requests() {
    let text = "8,0 0 1 0.000001000 1 D W 8 + 8 [a]\n8,16 0 1 0.000002000 1 D W 8 + 8 [a]\n\
                8,16 0 1 0.000003000 1 C W 8 + 8 [0]\n8,0 0 1 0.000009000 1 C W 8 + 8 [0]\n";
    let bases = [("8,16".to_owned(), 4096)].into();
    let select = Select { devices: Devices::All, bases, ..Select::default() };
    let requests = all(text, select).expect("a trace");
    let found: Vec<_> = requests.iter().map(|r| (r.event.at.0, r.done_ns)).collect();
    assert_eq!(found, [(8, Some(9_000)), (4104, Some(3_000))]);
}

/// Why there is no request.
fn none(text: &str, select: Select) -> (String, String) {
    let mut trace = open(text);
    let mut requests = Requests::new(&mut trace, select);
    assert!(requests.by_ref().next().is_none());
    requests.none()
}

#[test]
fn a_trace_without_a_wanted_request_says_what_it_has() {
    let completions = "1,0 15 1 0.000000000 19146 C WS 2048 + 8 [0]\n\
                       1,0 15 2 0.000003084 19146 C WS 2056 + 8 [0]\n";
    let (what, help) = none(completions, Select::default());
    assert_eq!(what, "the trace has only completions (C): 2");
    assert!(help.contains("Q or D is needed"), "{help}");
    let queued = "8,0 0 1 0.000001000 1 Q W 8 + 8 [a]\n8,0 0 1 0.000001500 1 C W 8 + 8 [a]\n";
    let issue = Select { action: Some(Action::Issue), ..Select::default() };
    let (what, help) = none(queued, issue);
    assert_eq!(what, "no request at D: the trace has Q 1, D 0, C 1");
    assert_eq!(help, "--action Q");
    let other = Select { devices: Devices::These(vec!["9".to_owned()]), ..Select::default() };
    let (what, _) = none(THREE, other);
    assert_eq!(what, "no request of 9: 1 (2), 0 (1), 3 (1)");
    let (what, _) = none("8,0 0 1 0.000001000 1 m N hello\n", Select::default());
    assert_eq!(what, "the trace has no request; skipped: notes 1");
}
