//! Block traces of real kernels and of fio, read beside the tools that made them; and `replay` as a
//! user meets it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use wp_base::event::Op;
use wp_machine::testing::{reference, skipped};
use wp_trace::{Action, File, Format, Item, Request, Requests, Select, Step, Trace};
use wp_workload::fio::{self, Direction, Sequence, Variables};

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

fn replayed(dir: &Path, args: &[&str]) -> Value {
    let a = writepath(dir, &[&["replay", "--json"], args].concat());
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    let doc: Value = serde_json::from_str(&a.stdout).expect("one JSON document");
    assert_eq!(doc["schema"], "writepath.replay-trace/1");
    doc
}

/// What a compressed file of the references holds.
fn unpacked(path: &Path) -> Vec<u8> {
    let file = std::fs::File::open(path).expect("there");
    zstd::decode_all(file).expect("zstd")
}

fn open(files: &[(String, Vec<u8>)]) -> Trace<'_> {
    let file = |(name, bytes): &'_ (String, Vec<u8>)| name.clone() + &bytes.len().to_string();
    let files = files
        .iter()
        .map(|f| File { name: file(f), from: Box::new(&f.1[..]) as Box<dyn Read + '_> })
        .collect();
    Trace::open(files, None, false).expect("recognised")
}

fn requests(files: &[(String, Vec<u8>)], action: Option<Action>) -> Vec<Request> {
    let mut trace = open(files);
    let select = Select { action, ..Select::default() };
    let all: Result<Vec<Request>, _> = Requests::new(&mut trace, select).collect();
    all.unwrap_or_else(|e| panic!("{e}"))
}

/// Bios and discards of each phase, as the recorder of the trace counted them.
#[test]
fn phases_of_recorded_ftraces_have_the_bios_that_their_summaries_say() {
    let dir = reference("ext4-trim");
    for run in ["discard", "fstrim", "lazy"] {
        let summary = std::fs::read(dir.join(format!("{run}.json"))).expect("there");
        let summary: Value = serde_json::from_slice(&summary).expect("JSON");
        let file = (run.to_owned(), unpacked(&dir.join(format!("{run}.trace.txt.zst"))));
        let files = [file];
        let mut trace = open(&files);
        assert_eq!(trace.format(), Format::Ftrace);
        let (mut phase, mut found) = (String::new(), BTreeMap::<(String, &str), u64>::new());
        let mut discards = Vec::new();
        while let Some(item) = trace.next_item() {
            match item.expect("nothing is wrong") {
                Item::Mark { text, .. } => {
                    phase = text.strip_prefix("WL ").expect("its marks begin so").to_owned();
                }
                Item::Event(e) => {
                    assert_eq!(e.step, Step::Queue);
                    let kind = match e.op {
                        Op::Write => "write_bios",
                        Op::Discard => "discard_bios",
                        _ => continue,
                    };
                    *found.entry((phase.clone(), kind)).or_default() += 1;
                    // What mkfs discards is not among those that it lists.
                    if e.op == Op::Discard && phase != "mkfs" {
                        discards.push((phase.clone(), e.at.0 / 8, u64::from(e.sectors) / 8));
                    }
                }
                Item::Skip(..) => {}
            }
        }
        let phases = summary["per_phase"].as_object().expect("phases");
        let mut listed = 0;
        for (phase, counts) in phases {
            for kind in ["write_bios", "discard_bios"] {
                let theirs = counts[kind].as_u64().unwrap_or(0);
                let ours = found.get(&(phase.clone(), kind)).copied().unwrap_or(0);
                assert_eq!(ours, theirs, "{run}: {kind} of {phase}");
                listed += theirs;
            }
        }
        assert_eq!(found.values().sum::<u64>(), listed, "{run}: {found:?}");
        let theirs: Vec<(String, u64, u64)> =
            serde_json::from_value(summary["discards_first40"].clone()).expect("a list");
        assert_eq!(discards, theirs, "{run}");
    }
}

/// Paths below a folder of the references whose names end so.
fn recorded(folders: &[&str], end: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for folder in folders {
        let entries = std::fs::read_dir(reference(folder))
            .expect("a folder")
            .map(|e| e.expect("readable").path());
        all.extend(entries.filter(|p| p.to_str().is_some_and(|p| p.ends_with(end))));
    }
    all.sort();
    all
}

/// The lines of an action that have a request, taken apart here by position: (ns, letters, sector,
/// sectors).
fn columns(text: &str, action: &str) -> Vec<(u64, String, u64, u32)> {
    let mut out = Vec::new();
    for line in text.lines().filter(|l| l.starts_with("  7,0 ")) {
        let w: Vec<&str> = line.split_whitespace().collect();
        if w[5] != action {
            continue;
        }
        let number = |i: usize| w.get(i).and_then(|w| w.parse().ok()).unwrap_or(0);
        let sectors = if w.get(8) == Some(&"+") { number(9) as u32 } else { 0 };
        if sectors > 0 || w[6].starts_with('F') {
            let at = if sectors > 0 { number(7) } else { 0 };
            out.push((
                w[3].replace('.', "").parse().expect("a time"),
                w[6].to_owned(),
                at,
                sectors,
            ));
        }
    }
    out
}

fn as_columns(requests: &[Request]) -> Vec<(u64, u64, u32)> {
    requests.iter().map(|r| (r.event.at_ns, r.event.at.0, r.event.sectors)).collect()
}

#[test]
fn text_of_blkparse_is_read_line_by_line() {
    let paths = recorded(&["otherfs-fsync-trace", "direct-io"], ".bp.txt.zst");
    let mut lines = 0;
    for path in &paths {
        let bytes = unpacked(path);
        let text = String::from_utf8(bytes.clone()).expect("text");
        let files = [(path.display().to_string(), bytes)];
        for (action, letter) in [(Action::Queue, "Q"), (Action::Issue, "D")] {
            let theirs = columns(&text, letter);
            let ours = requests(&files, Some(action));
            let places: Vec<_> = theirs.iter().map(|l| (l.0, l.2, l.3)).collect();
            assert_eq!(as_columns(&ours), places, "{path:?} {letter}");
            for (r, (_, letters, ..)) in ours.iter().zip(&theirs) {
                let is = match r.event.op {
                    Op::Read => letters.contains('R'),
                    Op::Discard => letters.contains('D'),
                    Op::Flush => letters.starts_with('F'),
                    _ => letters.contains('W') || letters.starts_with('N'),
                };
                assert!(is, "{path:?}: {letters} as {:?}", r.event.op);
            }
            lines += ours.len();
        }
    }
    assert!(paths.len() > 40 && lines > 1500, "{} {lines}", paths.len());
}

/// Binary traces of two CPUs of a real kernel: what blkparse prints of them is what we read.
#[test]
fn binary_traces_are_what_blkparse_prints_of_them() {
    let check = "recorded blktrace files beside blkparse";
    if Command::new("blkparse").arg("-V").output().is_err() {
        skipped(check, "blkparse is not installed (package blktrace)");
        return;
    }
    let paths = recorded(&["otherfs-fsync-trace"], ".blktrace.0.zst");
    let dir = tempfile::tempdir().expect("a directory");
    let mut compared = 0;
    for path in &paths {
        let name = path.to_str().expect("text");
        let mut files = Vec::new();
        for cpu in 0..2 {
            let part = name.replace(".blktrace.0.zst", &format!(".blktrace.{cpu}.zst"));
            let bytes = unpacked(Path::new(&part));
            std::fs::write(dir.path().join(format!("t.blktrace.{cpu}")), &bytes).expect("written");
            files.push((part, bytes));
        }
        let out = Command::new("blkparse").args(["-i", "t"]).current_dir(dir.path()).output();
        let out = out.expect("blkparse runs");
        assert!(out.status.success());
        let text = [(format!("{name} as text"), out.stdout)];
        for action in [Action::Queue, Action::Issue] {
            let (b, t) = (requests(&files, Some(action)), requests(&text, Some(action)));
            // blkparse counts from the first event of a request or plug.
            let first = |r: &[Request]| r.first().map_or(0, |r| r.event.at_ns);
            let all = |requests: &[Request]| -> Vec<_> {
                let from = first(requests);
                let one = |r: &Request| {
                    let e = &r.event;
                    (e.at_ns - from, e.op, e.flags, e.at, e.sectors, r.done_ns.map(|d| d - from))
                };
                requests.iter().map(one).collect()
            };
            assert_eq!(all(&b), all(&t), "{name} {action:?}");
            compared += b.len();
        }
    }
    assert!(paths.len() > 15 && compared > 120, "{} {compared}", paths.len());
}

/// fio writes down what it would do; our own sequence of the same job says what that is.
#[test]
fn a_log_of_fio_holds_the_jobs_own_sequence() {
    let check = "fio's iolog of a job beside our sequence of it";
    let version = Command::new("fio").arg("--version").output();
    if !version.is_ok_and(|v| v.stdout.starts_with(b"fio-3.33")) {
        skipped(check, "fio 3.33 is not installed");
        return;
    }
    let jobs = [
        "rw=randrw\nsize=8m\nbs=4k\nfsync=3\n",
        "rw=randwrite\nsize=4m\nbsrange=512-16k\nfdatasync=5\n",
        "rw=write\nsize=1m\nbs=8k\nfsync=1\nend_fsync=1\n",
        "rw=read\nsize=1m\nbs=128k\n",
    ];
    for job in jobs {
        let dir = tempfile::tempdir().expect("a directory");
        let text = format!("[j]\nfilename=f\n{job}");
        std::fs::write(dir.path().join("job.fio"), &text).expect("written");
        let args = ["--ioengine=null", "--thread=1", "--write_iolog=log", "job.fio"];
        let out = Command::new("fio").args(args).current_dir(dir.path()).output().expect("runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let log = std::fs::read(dir.path().join("log")).expect("a log");
        let theirs = requests(&[("log".to_owned(), log)], None);
        let theirs: Vec<(Op, u64, u32)> =
            theirs.iter().map(|r| (r.event.op, r.event.at.0, r.event.sectors)).collect();

        let file = fio::parse("job.fio", text.as_bytes(), &|_| None, &Variables::default());
        let plan = fio::layout(&file.jobs[0], &mut |_| fio::Existing::default()).expect("a plan");
        let mut sequence = Sequence::new(&file.jobs[0], &plan, 0, true).expect("a sequence");
        let mut ours = Vec::new();
        loop {
            match sequence.next_action() {
                fio::Action::Done => break,
                fio::Action::Io { direction, offset, length, .. } => {
                    let op = if direction == Direction::Read { Op::Read } else { Op::Write };
                    ours.push((op, offset / 512, (length / 512) as u32));
                }
                fio::Action::Sync { .. } | fio::Action::RoundEnd { sync: true } => {
                    ours.push((Op::Flush, 0, 0));
                }
                _ => {}
            }
        }
        assert!(ours.len() >= 8, "{job}: {}", ours.len());
        assert_eq!(theirs, ours, "{job}");
    }
}

/// A run of ours, exported in each format, goes onto a device again.
#[test]
fn a_trace_may_come_through_a_pipe() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("made");
    let text = "8,0 0 1 0.000001000 1 D W 8 + 8 [a]\n8,0 0 2 0.000002000 1 C W 8 + 8 [0]\n";
    std::fs::write(dir.path().join("text"), text).expect("written");
    let mut writer = Command::new("sh");
    let mut writer = writer.args(["-c", "cat text > pipe"]).current_dir(dir.path()).spawn();
    let doc = replayed(dir.path(), &["pipe"]);
    assert!(writer.as_mut().expect("started").wait().expect("ended").success());
    assert_eq!(doc["requests"], 1, "{doc}");
}

#[test]
fn what_trace_writes_is_replayed() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = ["run", "--json", "--partition-size", "64M", "--out", "r"];
    let a = writepath(
        dir.path(),
        &[&run[..], &["--cpu", "free", "--workload", "fsync-last,n=3"]].concat(),
    );
    assert_eq!(a.code, 0, "{}", a.stderr);
    let doc: Value = serde_json::from_str(&a.stdout).expect("one JSON document");
    let result = doc["result"].as_str().expect("a path");
    let events = dir.path().join(result).join("events.parquet");
    let events = wp_machine::results::read_events(&events).expect("events");
    let issued = writepath(dir.path(), &["trace", result, "--to", "paper"]).stdout.lines().count();
    assert!(issued > 20 && events.len() > issued);
    for (format, file) in [("blktrace", "t.blktrace.0"), ("blkparse", "t.txt"), ("paper", "p.txt")]
    {
        let a = writepath(dir.path(), &["trace", result, "--to", format, "--out", file]);
        assert_eq!(a.code, 0, "{}", a.stderr);
    }
    let kinds = |doc: &Value| -> Vec<(u64, u64)> {
        let ops = ["read", "write", "discard", "flush"].map(|op| &doc["ops"][op]);
        ops.iter()
            .map(|o| (o["requests"].as_u64().unwrap_or(0), o["bytes"].as_u64().unwrap_or(0)))
            .collect()
    };
    for mode in ["afap", "timed", "think"] {
        let binary = replayed(dir.path(), &["t", "--mode", mode]);
        assert_eq!(kinds(&binary).iter().map(|k| k.0).sum::<u64>(), issued as u64);
        assert_eq!(binary["trace"]["device"], "8,16");
        let text = replayed(dir.path(), &["t.txt", "--mode", mode]);
        for key in ["ops", "virtual_ns", "counters", "late_ns"] {
            assert_eq!(binary[key], text[key], "{key} of {mode}");
        }
        let again = replayed(dir.path(), &["t", "--mode", mode]);
        assert_eq!(binary, again, "the same bytes");
        if mode != "think" {
            assert_eq!(kinds(&replayed(dir.path(), &["p.txt", "--mode", mode])), kinds(&binary));
        }
    }
    // The device of the trace is the one that it is replayed onto: at the times of the trace every
    // request takes what it took, for nothing but its requests counts.
    let same = replayed(dir.path(), &["t", "--mode", "timed", "--depth", "64"]);
    for op in ["write", "flush"] {
        let (ours, theirs) = (&same["ops"][op]["service_ns"], &same["ops"][op]["recorded_ns"]);
        assert_eq!(ours["count"], theirs["count"]);
        assert_eq!((&ours["max"], &ours["min"]), (&theirs["max"], &theirs["min"]), "{op}");
        assert_eq!(ours["mean"], theirs["mean"], "{op}");
    }
}

#[test]
fn what_is_wrong_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let line = |n: u64, what: &str| format!("8,0 0 {n} 0.00000{n}000 1 {what}\n");
    let two = line(1, "D W 8 + 8 [a]") + &line(2, "C W 8 + 8 [0]");
    let other = "8,16 0 3 0.000003000 1 D W 8 + 8 [a]\n";
    let far = line(1, "D W 999999999999 + 8 [a]");
    let torn = two.clone() + "8,0 0 3 0.0000";
    let files = [
        ("good", &two),
        ("two", &(two.clone() + other)),
        ("far", &far),
        ("torn", &torn),
        ("empty", &String::new()),
    ];
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let cases: [(&[&str], i32, &str); 13] = [
        (&["good"], 0, ""),
        (&["two"], 2, "--from 8,0"),
        (&["two", "--from", "8,16"], 0, ""),
        (&["two", "--from", "9,9"], 2, "8,0 (1), 8,16 (1)"),
        (&["far"], 2, "line 1: sectors 999999999999 + 8 are beyond"),
        (&["far", "--wrap"], 0, ""),
        (&["torn"], 2, "--torn-ok"),
        (&["torn", "--torn-ok"], 0, ""),
        (&["empty"], 2, "--format"),
        (&["good", "--mode", "slow"], 2, "afap, timed, think"),
        (&["good", "--on", "no-such"], 2, "list devices"),
        (&["good", "--out", "image"], 2, "not a dm-log-writes log"),
        (&["missing"], 74, "missing"),
    ];
    for (args, code, says) in cases {
        let a = writepath(dir.path(), &[&["replay"], args].concat());
        assert_eq!(a.code, code, "{args:?}: {}{}", a.stdout, a.stderr);
        assert!(a.stderr.contains(says), "{args:?}: {}", a.stderr);
        let a = writepath(dir.path(), &[&["replay", "--json"], args].concat());
        let doc: Value = serde_json::from_str(&a.stdout).expect("one JSON document");
        assert_eq!(doc["ok"], code == 0, "{args:?}");
    }
}

/// Two writes and a flush, where they are queued, issued and completed.
fn small_trace(slower_us: u32) -> String {
    let mut text = String::new();
    for i in 0..40u32 {
        let (t, at) = (i * 1_000, 2048 + i * 8);
        let done = t + 100 + slower_us;
        for (us, step, n) in [(t, 'Q', 1), (t + 10, 'D', 2), (done, 'C', 3)] {
            let seconds = format!("{}.{:06}000", us / 1_000_000, us % 1_000_000);
            text +=
                &format!("  8,16   0 {:>8} {seconds:>14}  1  {step}  WS {at} + 8 [a]\n", i * 3 + n);
        }
    }
    text
}

#[test]
fn a_trace_is_compared_with_itself_and_with_a_slower_one() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("real"), small_trace(0)).expect("written");
    std::fs::write(dir.path().join("sim"), small_trace(500)).expect("written");
    let a = writepath(dir.path(), &["compare", "real", "real", "--max-ks", "0", "--json"]);
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    let doc: Value = serde_json::from_str(&a.stdout).expect("one document");
    assert_eq!((&doc["schema"], &doc["ok"]), (&"writepath.compare/1".into(), &true.into()));
    let measures = doc["measures"].as_array().expect("a list");
    assert!(measures.iter().all(|m| m["distance"] == 0.0), "{measures:?}");
    assert_eq!((&doc["aligned"]["same"], &doc["aligned"]["in_order"]), (&40.into(), &1.0.into()));

    let a = writepath(dir.path(), &["compare", "real", "sim"]);
    assert_eq!(a.code, 1, "{}{}", a.stdout, a.stderr);
    assert!(a.stdout.contains("D2C of write: distance 1.000 (at most 0.100)"), "{}", a.stdout);
    let a = writepath(dir.path(), &["compare", "real", "sim", "--max-ks", "1"]);
    assert!(a.code == 0 && a.stdout.contains("within limits"), "{}", a.stdout);

    std::fs::write(dir.path().join("none"), "no trace\n").expect("written");
    for (args, want) in [
        (["compare", "real", "none"], "none: line 1: no line has a known"),
        (["compare", "-", "-"], "stdin can be one of the traces only"),
        (["compare", "real", "gone"], "gone: No such file"),
        (["compare", "real", "--max-ks=2"], "--max-ks 2: must be from 0 to 1"),
    ] {
        let args: Vec<&str> = match args[2].starts_with("--") {
            true => vec![args[0], args[1], args[1], args[2]],
            false => args.to_vec(),
        };
        let a = writepath(dir.path(), &args);
        assert!(a.code != 0 && a.stderr.contains(want), "{}", a.stderr);
    }
}

/// A pipe says its bytes once, and `compare` reads a trace twice. What a trace lacks is told.
#[test]
fn a_pipe_is_compared_as_the_file_is_and_lost_events_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("real"), small_trace(0)).expect("written");
    let run = |command: &str| {
        let line = command.replace("writepath", env!("CARGO_BIN_EXE_writepath"));
        let out = Command::new("bash").args(["-c", &line]).current_dir(dir.path()).output();
        let out = out.expect("a shell");
        (out.status.code(), String::from_utf8(out.stdout).expect("text"))
    };
    let numbers = |(code, text): (Option<i32>, String)| {
        assert_eq!(code, Some(0), "{text}");
        text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let file = numbers(run("writepath compare real real"));
    assert_eq!(numbers(run("writepath compare <(cat real) real")), file);
    assert_eq!(numbers(run("writepath compare real - <real")), file);
    assert_eq!(numbers(run("cat real | writepath compare - <(cat real)")), file);
    let lost: String = (0..9u64)
        .map(|n| format!("  a-1 [000] .... 1.00{n}: block_rq_issue: 8,16 WS 4096 () {n} + 8 [a]\n"))
        .collect();
    std::fs::write(dir.path().join("lost"), lost + "CPU:1 [LOST 12 EVENTS]\n").expect("written");
    let (code, text) = run("writepath compare lost lost");
    assert_eq!(code, Some(0), "{text}");
    let note = "note  lost: incomplete: the tracer lost 12 events";
    assert_eq!(text.matches(note).count(), 2, "{text}");
}

#[test]
fn a_device_of_ones_own_stands_where_a_preset_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let mine = "schema = \"writepath-device/1\"\nbase = \"fixed\"\n[parameters]\nlatency_ns = \
                { value = 70000, unit = \"ns\", source = \"given: me\" }\n";
    std::fs::write(dir.path().join("my.toml"), mine).expect("written");
    std::fs::write(dir.path().join("t"), small_trace(0)).expect("written");
    for on in ["my.toml", "./my.toml", "file:my.toml,queue_depth=2"] {
        let doc = replayed(dir.path(), &["t", "--on", on]);
        assert_eq!(doc["ops"]["write"]["service_ns"]["mean"], 70_000, "{on}: {doc}");
    }
    let a = writepath(dir.path(), &["list", "devices", "my.toml"]);
    assert!(a.stdout.contains("70000 ns       given: me"), "{}", a.stdout);
    std::fs::write(dir.path().join("my.toml"), mine.replace("latency", "latancy"))
        .expect("written");
    let a = writepath(dir.path(), &["replay", "t", "--on", "my.toml"]);
    let want = "my.toml:4:1: fixed has no parameter `latancy_ns`; did you mean `latency_ns`?";
    assert!(a.code == 2 && a.stderr.contains(want), "{}", a.stderr);
}

/// Loads one after the other on one file that is there.
const JOBS: &str = "[global]\nfilename=f\nsize=32m\ndirect=1\nioengine=psync\noverwrite=1\n\
    stonewall\n[fill]\nrw=write\nbs=1m\nend_fsync=1\n";

#[test]
fn calibrate_finds_a_hidden_drive_again_in_its_block_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut jobs = JOBS.to_owned();
    for (n, (rw, bs, more)) in [
        ("randread", "4k", ""),
        ("randread", "16k", ""),
        ("randread", "64k", ""),
        ("randread", "4k", "numjobs=4\n"),
        ("randwrite", "4k", ""),
        ("randwrite", "16k", ""),
        ("randwrite", "64k", ""),
        ("randwrite", "4k", "fdatasync=1\n"),
        ("randwrite", "16k", "fdatasync=1\n"),
        ("randwrite", "64k", "fdatasync=1\n"),
    ]
    .into_iter()
    .enumerate()
    {
        jobs += &format!("[j{n}]\nrw={rw}\nbs={bs}\nnumber_ios=400\n{more}");
    }
    std::fs::write(dir.path().join("j.fio"), jobs).expect("written");
    let truth = [("read_ns", 85_000), ("write_overhead_ns", 30_000), ("program_ns", 900_000)];
    let numbers: String = truth.iter().map(|(key, n)| format!(",{key}={n}")).collect();
    let device = format!("ssd-128{numbers}");
    let run =
        ["run", "--fs", "ext4", "--device", &device, "--workload", "fio,job=j.fio", "--out", "r"];
    let a = writepath(dir.path(), &run);
    assert_eq!(a.code, 0, "{}", a.stderr);
    let folder = a.stdout.lines().find_map(|l| l.strip_prefix("result "));
    let folder = folder.expect("where the result is").trim().to_owned();
    let to = ["trace", &folder, "--to", "blktrace", "--out", "t.blktrace.0"];
    let a = writepath(dir.path(), &to);
    assert_eq!(a.code, 0, "{}", a.stderr);
    let a = writepath(dir.path(), &["calibrate", "t", "--class", "ssd", "--json"]);
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    let doc: Value = serde_json::from_str(&a.stdout).expect("one JSON document");
    let loads: Vec<&str> =
        doc["loads"].as_array().expect("loads").iter().filter_map(|l| l["load"].as_str()).collect();
    let is_deep = |l: &&str| l.starts_with("randread 4k depth ") && !l.ends_with(" 1");
    assert!(loads.iter().any(is_deep), "{loads:?}");
    for load in ["randread 4k depth 1", "randwrite 16k depth 1", "randwrite 4k depth 1 fsync 1"] {
        assert!(loads.contains(&load), "{load}: {loads:?}\n{}", doc["not_used"]);
    }
    for (key, value) in truth {
        let found = doc["numbers"].as_array().expect("numbers").iter().find(|n| n["name"] == key);
        let found = found.expect("of the class");
        let error = found["value"].as_f64().expect("a number") / f64::from(value) - 1.0;
        assert!(found["fitted"] == true && error.abs() < 0.15, "{key} is {value}: {found}");
    }
    // A trace that is cut short tells nothing.
    let bytes = std::fs::read(dir.path().join("t.blktrace.0")).expect("there");
    std::fs::write(dir.path().join("short.blktrace.0"), &bytes[..4000]).expect("written");
    let a = writepath(dir.path(), &["calibrate", "short", "--class", "ssd", "--torn-ok"]);
    assert_eq!(a.code, 2);
    assert!(a.stderr.contains("a mean needs"), "{}", a.stderr);
    let a = writepath(dir.path(), &["calibrate", "short", "--class", "ssd"]);
    assert!(a.code == 2 && a.stderr.contains("short.blktrace.0"), "{}", a.stderr);
}
