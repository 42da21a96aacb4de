//! Workload definitions of MQSim, read and played.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::Span;
use wp_base::event::Op;
use wp_trace::mqsim::{self, Flow, Generator, Synthetic, TraceFlow, Workload};
use wp_trace::replay::{Mode, Options, Outcome, Pace, Stream, replay_streams};
use wp_trace::{File, Place, Request, Trace, TraceError};

const COMMON: &str = "<Priority_Class>HIGH</Priority_Class>
<Device_Level_Data_Caching_Mode>WRITE_CACHE</Device_Level_Data_Caching_Mode>
<Channel_IDs>0,1</Channel_IDs><Chip_IDs>0</Chip_IDs><Die_IDs>0</Die_IDs><Plane_IDs>0</Plane_IDs>
<Initial_Occupancy_Percentage>0</Initial_Occupancy_Percentage>";

/// A flow that makes requests; `changes` replace parameters.
fn made(changes: &[(&str, &str)]) -> String {
    let mut values = vec![
        ("Working_Set_Percentage", "50"),
        ("Synthetic_Generator_Type", "QUEUE_DEPTH"),
        ("Read_Percentage", "0"),
        ("Address_Distribution", "random_uniform"),
        ("Percentage_of_Hot_Region", "0"),
        ("Generated_Aligned_Addresses", "true"),
        ("Address_Alignment_Unit", "16"),
        ("Request_Size_Distribution", "FIXED"),
        ("Average_Request_Size", "8"),
        ("Variance_Request_Size", "0"),
        ("Seed", "798"),
        ("Average_No_of_Reqs_in_Queue", "4"),
        ("Bandwidth", "0"),
        ("Stop_Time", "0"),
        ("Total_Requests_To_Generate", "200"),
    ];
    for (name, value) in changes {
        match values.iter_mut().find(|(n, _)| n == name) {
            Some(found) => found.1 = value,
            None => values.push((name, value)),
        }
    }
    let values = values.iter().filter(|(_, v)| !v.is_empty());
    let values: Vec<String> = values.map(|(n, v)| format!("<{n}>{v}</{n}>\n")).collect();
    let name = "IO_Flow_Parameter_Set_Synthetic";
    format!("<{name}>\n{COMMON}\n{}</{name}>\n", values.concat())
}

fn traced(percent: u32, rounds: u32, unit: &str) -> String {
    let name = "IO_Flow_Parameter_Set_Trace_Based";
    format!(
        "<{name}>{COMMON}<File_Path>traces/a&amp;b.trace</File_Path>
         <Percentage_To_Be_Executed>{percent}</Percentage_To_Be_Executed>
         <Relay_Count>{rounds}</Relay_Count><Time_Unit>{unit}</Time_Unit></{name}>"
    )
}

fn parse(flows: &[String]) -> Result<Workload, TraceError> {
    let root = "MQSim_IO_Scenarios";
    let text = format!(
        "<?xml version=\"1.0\"?>\n<{root}>\n<IO_Scenario>\n{}</IO_Scenario></{root}>\n",
        flows.concat()
    );
    assert!(mqsim::begins(text.as_bytes()));
    mqsim::parse("w.xml", &text)
}

fn synthetic(changes: &[(&str, &str)]) -> Synthetic {
    let workload = parse(&[made(changes)]).unwrap_or_else(|e| panic!("{e} ({})", e.help));
    match &workload.scenarios[0].flows[0] {
        Flow::Synthetic(made) => made.clone(),
        Flow::Trace(_) => panic!("another flow"),
    }
}

fn requests(made: &Synthetic, place: (u64, u64)) -> Vec<Request> {
    made.requests_in(1, place).map(|r| r.expect("it is made")).collect()
}

#[test]
fn a_definition_is_what_its_parameters_say() {
    let workload = parse(&[made(&[]), traced(50, 1, "PICOSECOND")]).expect("a definition");
    let scenario = &workload.scenarios[0];
    assert_eq!(scenario.what(), "1 synthetic flow, 1 trace");
    assert_eq!((&scenario.unsupported, &scenario.notes[..]), (&None, &[][..]));
    let Flow::Trace(flow) = &scenario.flows[1] else { panic!("another flow") };
    assert_eq!((flow.path.as_str(), flow.percent, flow.rounds), ("traces/a&b.trace", 50, 1));
    assert!(flow.columns.text().starts_with("time:ps,"), "{}", flow.columns.text());
    assert_eq!(flow.requests_of(7), 3);
    let made = synthetic(&[("Stop_Time", "1000"), ("Total_Requests_To_Generate", "0")]);
    assert_eq!((made.generator, made.until), (Generator::QueueDepth(4), Some(Span(1000))));
    // 8 sectors at 4096000 bytes a second are 1 ms.
    let paced = [("Synthetic_Generator_Type", "BANDWIDTH"), ("Bandwidth", "4096000")];
    assert_eq!(synthetic(&paced).generator, Generator::Interval(1_000_000));
}

#[test]
fn what_a_definition_gets_wrong_is_named_with_its_line() {
    let bad = [
        (("Read_Percentage", "101"), "Read_Percentage: `101`"),
        (("Read_Percentage", ""), "has no Read_Percentage"),
        (("Seed", "-1"), "Seed: `-1`"),
        (("Address_Distribution", "ZIPF"), "Address_Distribution: `ZIPF`"),
        (("Average_Request_Size", "0"), "Average_Request_Size: `0`"),
        (("Total_Requests_To_Generate", "0"), "makes no request"),
        (("Colour", "red"), "no parameter is called Colour"),
        (("Synthetic_Generator_Type", "BANDWIDTH"), "Bandwidth: `0`"),
        (("Address_Distribution", "RANDOM_HOTCOLD"), "Percentage_of_Hot_Region: `0`"),
    ];
    for (change, says) in bad {
        let e = parse(&[made(&[change])]).expect_err(says);
        assert!(e.what.contains(says) && !e.help.is_empty(), "{says}: {e}");
        assert!(matches!(e.place, Place::Line(n) if n >= 4), "{e}");
    }
    for (text, says) in [
        ("<MQSim_IO_Scenarios></MQSim_IO_Scenarios>", "no scenario"),
        ("<MQSim_IO_Scenarios><IO_Scenario/></MQSim_IO_Scenarios>", "without flows"),
        ("<MQSim_IO_Scenarios><X/></MQSim_IO_Scenarios>", "`<X>` is not `<IO_Scenario>`"),
        ("<Execution_Parameter_Set/>", "is not `<MQSim_IO_Scenarios>`"),
        ("<MQSim_IO_Scenarios><IO_Scenario><Y/></IO_Scenario></MQSim_IO_Scenarios>", "is no flow"),
    ] {
        let e = mqsim::parse("w.xml", text).expect_err(says);
        assert!(e.what.contains(says) && e.file == "w.xml", "{e}");
    }
}

#[test]
fn flows_with_dies_of_their_own_are_not_supported_and_what_has_no_effect_is_told() {
    let other = made(&[]).replace("<Channel_IDs>0,1<", "<Channel_IDs>2,3<");
    let scenario = &parse(&[made(&[]), other]).expect("a definition").scenarios[0];
    assert!(scenario.unsupported.as_ref().is_some_and(|(_, what)| what.contains("Channel_IDs")));
    let other = made(&[("Intensity", "5")])
        .replace("HIGH", "URGENT")
        .replace("WRITE_CACHE", "TURNED_OFF")
        .replace("Percentage>0</Initial", "Percentage>75</Initial");
    let notes = &parse(&[made(&[]), other]).expect("a definition").scenarios[0].notes;
    for says in ["Priority_Class", "TURNED_OFF", "Initial_Occupancy_Percentage 75", "Intensity"] {
        assert!(notes.iter().any(|n| n.contains(says)), "{says}: {notes:?}");
    }
}

#[test]
fn addresses_lie_in_the_working_set_of_the_flows_part() {
    let place = (16_000, 8_000);
    for distribution in ["STREAMING", "RANDOM_UNIFORM", "RANDOM_HOTCOLD"] {
        let changes = [("Address_Distribution", distribution), ("Percentage_of_Hot_Region", "20")];
        let all = requests(&synthetic(&changes), place);
        assert_eq!(all.len(), 200);
        for r in &all {
            let e = &r.event;
            assert_eq!((e.op, e.sectors, e.device, e.at.0 % 16), (Op::Write, 8, 1, 0), "{e:?}");
            // Half of 8000 sectors from 16000 on.
            assert!((16_000..20_000).contains(&e.at.0) && e.at.0 + 8 <= 20_000, "{e:?}");
        }
        let starts: std::collections::BTreeSet<u64> = all.iter().map(|r| r.event.at.0).collect();
        assert!(starts.len() > 50, "{distribution}: {}", starts.len());
        if distribution == "STREAMING" {
            let follow = all.windows(2).filter(|w| w[1].event.at.0 == w[0].event.at.0 + 16).count();
            assert!(follow >= 190, "{follow}");
        }
        if distribution == "RANDOM_HOTCOLD" {
            let hot = all.iter().filter(|r| r.event.at.0 < 16_800).count();
            assert!((135..185).contains(&hot), "80 % of 200 are in the first 20 %: {hot}");
        }
    }
}

#[test]
fn kinds_lengths_and_times_are_distributed_as_asked_and_a_seed_gives_them_again() {
    let changes = [
        ("Read_Percentage", "30"),
        ("Request_Size_Distribution", "NORMAL"),
        ("Average_Request_Size", "64"),
        ("Variance_Request_Size", "8"),
        ("Synthetic_Generator_Type", "BANDWIDTH"),
        ("Bandwidth", "32768000"),
        ("Total_Requests_To_Generate", "5000"),
    ];
    let all = requests(&synthetic(&changes), (0, 1 << 24));
    let reads = all.iter().filter(|r| r.event.op == Op::Read).count();
    assert!((1400..1600).contains(&reads), "{reads}");
    let mean = all.iter().map(|r| f64::from(r.event.sectors)).sum::<f64>() / 5000.0;
    // Rounded up, so half a sector more.
    assert!((64.0..65.2).contains(&mean), "{mean}");
    let spread = all.iter().map(|r| (f64::from(r.event.sectors) - mean).powi(2)).sum::<f64>();
    let spread = (spread / 5000.0).sqrt();
    assert!((7.5..8.5).contains(&spread), "{spread}");
    // 64 sectors at 32768000 bytes a second are 1 ms.
    let last = all[4999].event.at_ns as f64 / 5000.0;
    assert!((0.95e6..1.05e6).contains(&last), "{last}");
    assert!(all.windows(2).all(|w| w[0].event.at_ns <= w[1].event.at_ns));
    assert_eq!(requests(&synthetic(&changes), (0, 1 << 24)), all);
    let other = [&changes[..], &[("Seed", "799")]].concat();
    assert_ne!(requests(&synthetic(&other), (0, 1 << 24)), all);
}

const TRACE: &str = "1000 0 8 8 0\n2000 1 1000 8 1\n5000 0 96 8 0\n";

fn rounds(percent: u32, rounds: u32, unit: &str) -> Vec<Request> {
    let workload = parse(&[traced(percent, rounds, unit)]).expect("a definition");
    let Flow::Trace(flow) = &workload.scenarios[0].flows[0] else { panic!("another flow") };
    let flow: TraceFlow = flow.clone();
    let n = flow.requests_of(3);
    let open = Box::new(move || {
        let file = File { name: "t".to_owned(), from: Box::new(TRACE.as_bytes()) };
        Trace::open_columns(vec![file], &flow.columns, false)
    });
    TraceFlow::replay(open, n, (2, (4096, 100))).map(|r| r.expect("a trace")).collect()
}

#[test]
fn a_trace_is_replayed_in_its_part_as_often_as_asked() {
    let short = |all: &[Request]| -> Vec<(u64, u64, Op)> {
        all.iter().map(|r| (r.event.at_ns, r.event.at.0, r.event.op)).collect()
    };
    let (r, w) = (Op::Read, Op::Write);
    // 1000 modulo 100 is the beginning; 96 + 8 would end beyond the part.
    let once = [(1000, 4104, w), (2000, 4096, r), (5000, 4096, w)];
    assert_eq!(short(&rounds(100, 1, "NANOSECOND")), once);
    assert_eq!(short(&rounds(70, 1, "MICROSECOND")), [(1_000_000, 4104, w), (2_000_000, 4096, r)]);
    let twice = rounds(50, 2, "NANOSECOND");
    assert_eq!(twice.len(), 6);
    assert_eq!(short(&twice)[3..], [(6000, 4104, w), (7000, 4096, r), (10_000, 4096, w)]);
}

fn play(streams: Vec<Stream<'_>>) -> Outcome {
    let fixed = wp_device::find("fixed").expect("a device");
    let device = fixed.make(&[("capacity_bytes", 1 << 24)]).expect("a possible device");
    let options = Options { mode: Mode::Timed, align: true, ..Options::default() };
    replay_streams(device, streams, &options, &mut |_| true).expect("nothing is wrong")
}

/// Counts how many requests are taken before the first ends.
fn counted<'a>(made: &Synthetic, taken: Rc<Cell<u64>>) -> Stream<'a> {
    let requests = made.requests_in(0, (0, 8192)).inspect(move |_| taken.set(taken.get() + 1));
    let Generator::QueueDepth(depth) = made.generator else { panic!("another generator") };
    Stream { requests: Box::new(requests), pace: Pace::Depth { depth, until: made.until } }
}

#[test]
fn streams_keep_their_depths_and_times() {
    let shallow = synthetic(&[("Average_No_of_Reqs_in_Queue", "1")]);
    let deep = synthetic(&[("Average_No_of_Reqs_in_Queue", "4")]);
    let both = play(vec![counted(&shallow, Rc::default()), counted(&deep, Rc::default())]);
    assert_eq!(both.requests(), 400);
    assert_eq!(both.streams.iter().map(|s| s.requests).collect::<Vec<_>>(), [200, 200]);
    // A stream that ends at a time.
    let taken = Rc::new(Cell::new(0));
    let until = both.end.0 / 8;
    let timed =
        synthetic(&[("Stop_Time", &until.to_string()), ("Average_No_of_Reqs_in_Queue", "1")]);
    let some = play(vec![counted(&timed, taken.clone())]);
    assert!(some.requests() > 2 && some.requests() < 200, "{}", some.requests());
    assert!(taken.get() <= some.requests() + 1);
    assert!(some.end.0 > until);
    // Times count from the beginning, not from the first request.
    let workload = parse(&[traced(100, 1, "MICROSECOND")]).expect("a definition");
    let Flow::Trace(flow) = workload.scenarios[0].flows[0].clone() else { panic!("another") };
    let open = Box::new(move || {
        let file = File { name: "t".to_owned(), from: Box::new(TRACE.as_bytes()) };
        Trace::open_columns(vec![file], &flow.columns, false)
    });
    let requests = Box::new(TraceFlow::replay(open, 3, (0, (0, 8192))));
    let timed = play(vec![Stream { requests, pace: Pace::Timed }]);
    assert!(timed.end.0 >= 5_000_000 && timed.trace == Span(5_000_000), "{timed:?}");
}

#[test]
fn a_stream_of_one_depth_is_a_replay_as_fast_as_possible_of_that_depth() {
    let made = synthetic(&[("Read_Percentage", "50")]);
    let streamed = play(vec![counted(&made, Rc::default())]);
    let fixed = wp_device::find("fixed").expect("a device");
    let device = fixed.make(&[("capacity_bytes", 1 << 24)]).expect("a possible device");
    let options = Options { depth: Some(4), align: true, ..Options::default() };
    let requests = made.requests_in(0, (0, 8192));
    let replayed = wp_trace::replay::replay(device, requests, &options, &mut |_| true);
    let replayed = replayed.expect("nothing is wrong");
    assert_eq!((streamed.end, &streamed.reads), (replayed.end, &replayed.reads));
    assert_eq!(streamed.writes, replayed.writes);
}
