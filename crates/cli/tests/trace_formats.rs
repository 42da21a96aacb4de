//! Traces of other tools as a user meets them: formats, columns, devices, and MQSim's workloads.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

fn writepath(dir: &Path, args: &[&str]) -> Answer {
    let out = Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).current_dir(dir).output();
    let out = out.expect("it was built");
    Answer {
        code: out.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(out.stdout).expect("text"),
        stderr: String::from_utf8(out.stderr).expect("text"),
    }
}

fn document(dir: &Path, args: &[&str]) -> Value {
    let a = writepath(dir, &[args, &["--json"]].concat());
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    serde_json::from_str(&a.stdout).expect("one JSON document")
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

const FIVE: &str = "938513000 0 264719 16 0\n938828000 0 197570 16 0\n938944000 0 93230 32 1\n";
const THREE: &str = "0.0 0 1000 8 1\n1.0 1 2000 8 1\n2.0 3 3000 8 0\n";

#[test]
fn nanoseconds_of_mqsim_are_not_milliseconds_of_disksim() {
    let dir = folder(&[("t", FIVE)]);
    let a = writepath(dir.path(), &["replay", "t", "--mode", "timed"]);
    assert_eq!((a.code, a.stdout.as_str()), (2, ""));
    for says in ["--format disksim", "span 431 s", "--format mqsim", "span 0.000431 s"] {
        assert!(a.stderr.contains(says), "{says}: {}", a.stderr);
    }
    let span = |format| document(dir.path(), &["replay", "t", "--format", format])["trace"].clone();
    for (format, ns) in [("mqsim", 431_000), ("ssdsim", 431_000), ("disksim", 431_000_000_000u64)] {
        assert_eq!(span(format)["span_ns"], ns, "{format}");
    }
    let columns = ["replay", "t", "--columns", "time:ns,dev,lba:512,size:512,op:w=0/r=1"];
    assert_eq!(document(dir.path(), &columns)["trace"]["span_ns"], 431_000);
    let a = writepath(dir.path(), &["replay", "t", "--format", "disksim"]);
    assert!(a.stdout.contains("units    time ms"), "{}", a.stdout);
    assert!(a.stdout.contains("all times are whole numbers, read as milliseconds"), "{}", a.stdout);
}

#[test]
fn columns_that_say_too_little_are_refused_with_their_syntax() {
    let dir = folder(&[("t", FIVE)]);
    for (columns, says) in [
        ("time,lba:512,size:bytes,op", "--columns: `time` has no unit"),
        ("time:ns,lba:512,op", "--columns: no column `size`"),
    ] {
        for args in [vec!["replay", "t"], vec!["compare", "t", "t"]] {
            let a = writepath(dir.path(), &[&args[..], &["--columns", columns]].concat());
            assert!(a.code == 2 && a.stderr.contains(says), "{}", a.stderr);
            assert!(a.stderr.contains("UNIT of time"), "{}", a.stderr);
        }
    }
    let a = writepath(dir.path(), &["replay", "t", "--columns", "op", "--format", "msr"]);
    assert_eq!(a.code, 2, "{}", a.stderr);
    let a = writepath(dir.path(), &["replay", "t", "--format", "dixsim"]);
    assert!(a.code == 2 && a.stderr.contains("cloudphysics"), "{}", a.stderr);
}

#[test]
fn all_devices_are_replayed_each_from_its_own_sector() {
    let dir = folder(&[("t", THREE)]);
    let a = writepath(dir.path(), &["replay", "t"]);
    assert_eq!(a.code, 2);
    let says = "3 devices in 3 requests, and none is chosen: 0 (1), 1 (1), 3 (1)";
    assert!(a.stderr.contains(says), "{}", a.stderr);
    assert!(a.stderr.contains("--from all"), "{}", a.stderr);
    let doc = document(dir.path(), &["replay", "t", "--from", "all"]);
    assert_eq!((&doc["requests"], &doc["trace"]["device"]), (&3.into(), &Value::Null));
    let bases: Vec<_> = doc["trace"]["devices"].as_array().expect("a list").iter().collect();
    let bases: Vec<_> = bases.iter().map(|d| (&d["name"], &d["base_sector"])).collect();
    let expected = [("0", 0), ("1", 2048), ("3", 4096)].map(|(n, b)| (n.into(), b.into()));
    assert_eq!(bases, expected.iter().map(|(n, b): &(Value, Value)| (n, b)).collect::<Vec<_>>());
    let two = document(dir.path(), &["replay", "t", "--from", "3", "--from", "0"]);
    assert_eq!(
        (&two["requests"], &two["trace"]["skipped"]["other_devices"]),
        (&2.into(), &1.into())
    );
    // A pipe is read twice, too.
    let line = format!("cat t | {} replay - --from all --json", env!("CARGO_BIN_EXE_writepath"));
    let piped = Command::new("bash").args(["-c", &line]).current_dir(dir.path()).output();
    let piped: Value = serde_json::from_slice(&piped.expect("a shell").stdout).expect("JSON");
    assert_eq!(piped["trace"]["devices"], doc["trace"]["devices"]);
    let a = writepath(dir.path(), &["replay", "t", "--from", "2"]);
    let says = "no request of 2: 0 (1), 1 (1), 3 (1)";
    assert!(a.code == 2 && a.stderr.contains(says), "{}", a.stderr);
    let both = ["compare", "t", "t", "--from", "all", "--sim-from", "all"];
    assert_eq!(document(dir.path(), &both)["aligned"]["same"], 3);
    let a = writepath(dir.path(), &["compare", "t", "t", "--from", "all"]);
    assert!(a.code == 2 && a.stderr.contains("--sim-from all"), "{}", a.stderr);
}

#[test]
fn a_trace_of_completions_alone_says_so() {
    let text = "1,0 15 1 0.000000000 19146 C WS 2048 + 8 [0]\n\
                1,0 15 2 0.000003084 19146 C WS 2056 + 8 [0]\n";
    let dir = folder(&[("t", text)]);
    for args in [&["replay", "t"][..], &["compare", "t", "t"]] {
        let a = writepath(dir.path(), args);
        assert_eq!(a.code, 2);
        assert!(a.stderr.contains("t: the trace has only completions (C): 2"), "{}", a.stderr);
        assert!(a.stderr.contains("Q or D is needed"), "{}", a.stderr);
    }
}

const WORKLOAD: &str = "<MQSim_IO_Scenarios>
<IO_Scenario>
<IO_Flow_Parameter_Set_Synthetic>
<Working_Set_Percentage>50</Working_Set_Percentage>
<Synthetic_Generator_Type>QUEUE_DEPTH</Synthetic_Generator_Type>
<Read_Percentage>100</Read_Percentage>
<Address_Distribution>RANDOM_UNIFORM</Address_Distribution>
<Generated_Aligned_Addresses>true</Generated_Aligned_Addresses>
<Address_Alignment_Unit>16</Address_Alignment_Unit>
<Request_Size_Distribution>FIXED</Request_Size_Distribution>
<Average_Request_Size>8</Average_Request_Size>
<Seed>798</Seed>
<Average_No_of_Reqs_in_Queue>16</Average_No_of_Reqs_in_Queue>
<Stop_Time>0</Stop_Time>
<Total_Requests_To_Generate>100</Total_Requests_To_Generate>
</IO_Flow_Parameter_Set_Synthetic>
<IO_Flow_Parameter_Set_Trace_Based>
<File_Path>t</File_Path>
<Percentage_To_Be_Executed>100</Percentage_To_Be_Executed>
<Relay_Count>2</Relay_Count>
<Time_Unit>NANOSECOND</Time_Unit>
</IO_Flow_Parameter_Set_Trace_Based>
</IO_Scenario>
</MQSim_IO_Scenarios>
";

#[test]
fn a_workload_definition_of_mqsim_runs() {
    let two = WORKLOAD.replace(
        "</MQSim_IO_Scenarios>",
        "<IO_Scenario><IO_Flow_Parameter_Set_Trace_Based><File_Path>gone</File_Path>\
         <Percentage_To_Be_Executed>100</Percentage_To_Be_Executed><Relay_Count>1</Relay_Count>\
         <Time_Unit>MICROSECOND</Time_Unit></IO_Flow_Parameter_Set_Trace_Based></IO_Scenario>\
         </MQSim_IO_Scenarios>",
    );
    let torn = WORKLOAD.replace("</IO_Scenario>", "");
    let dir = folder(&[("w.xml", WORKLOAD), ("two.xml", &two), ("torn.xml", &torn), ("t", FIVE)]);
    let aligned = FIVE.replace("264719", "264720").replace("197570", "197576");
    std::fs::write(dir.path().join("t"), aligned.replace("93230", "93232")).expect("written");
    let doc = document(dir.path(), &["replay", "w.xml"]);
    assert_eq!(doc["schema"], "writepath.replay-workload/1");
    let flows: Vec<_> = doc["flows"].as_array().expect("flows").iter().collect();
    let requests: Vec<_> = flows.iter().map(|f| &f["requests"]).collect();
    assert_eq!(requests, [&Value::from(100), &Value::from(6)]);
    assert_eq!(doc, document(dir.path(), &["replay", "w.xml"]));
    let cases: [(&[&str], i32, &str); 6] = [
        (&["two.xml"], 2, "2: 1 trace"),
        (&["two.xml", "--scenario", "3"], 2, "no such scenario"),
        (&["two.xml", "--scenario", "2"], 74, "gone"),
        (&["w.xml", "--mode", "timed"], 2, "--mode does not apply"),
        (&["torn.xml"], 2, "ends `<IO_Scenario>`"),
        (&["t", "--scenario", "1"], 2, "--scenario does not apply"),
    ];
    for (args, code, says) in cases {
        let a = writepath(dir.path(), &[&["replay"], args].concat());
        assert!(a.code == code && a.stderr.contains(says), "{args:?}: {} {}", a.code, a.stderr);
    }
}

#[test]
fn formats_are_listed_with_their_units() {
    let dir = folder(&[]);
    let doc = document(dir.path(), &["list", "formats"]);
    let names: Vec<_> =
        doc["formats"].as_array().expect("a list").iter().map(|f| f["name"].as_str()).collect();
    let help = writepath(dir.path(), &["replay", "--help"]).stdout;
    for name in names.iter().flatten() {
        assert!(help.contains(name), "{name} is not in the help");
    }
    assert_eq!(names.len(), wp_trace::Format::ALL.len());
    let a = writepath(dir.path(), &["list", "formats", "tencent"]);
    assert!(a.stdout.contains("columns: time:s,lba:512,size:512,op:r=0/w=1,dev"), "{}", a.stdout);
}
