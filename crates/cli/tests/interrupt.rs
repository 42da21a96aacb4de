//! An interrupt ends every verb within 2 s, with one answer; what is done stays. What is kept is of
//! the program that did it.

#![expect(clippy::disallowed_methods, reason = "how long an end takes is of the host")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_writepath");

/// How long an end may take: what is promised, and as much again for a machine that is busy.
const WITHIN: Duration = Duration::from_secs(4);

/// A command that is given a signal when `part` is there, and how long it went on then.
fn interrupted(dir: &Path, args: &str, part: &Path, with: Signal) -> (Output, Duration) {
    // Who starts the tests may ignore a hangup (nohup), and the program would then, too.
    let child = Command::new("env")
        .args(["--default-signal=HUP", PROGRAM])
        .args(args.split_ascii_whitespace().map(|a| a.replace('\u{a0}', " ")))
        .arg("--json")
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    while !part.exists() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), with).expect("it is there");
    let began = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    (output, began.elapsed())
}

/// One part that takes a moment, and one that takes hours.
const EXPERIMENT: &str = "schema = \"writepath/1\"\nname = \"long\"\n[workload]\n\
    name = \"varmail\"\n[sweep]\n\"workload.seconds\" = [\"1s\", \"100000s\"]\n";

#[test]
fn every_verb_ends_within_its_time_and_answers_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::write(at.join("long.toml"), EXPERIMENT).expect("written");
    let kept = at.join("a/kept/runs");
    for (args, with, code) in [
        ("run long.toml --jobs 1 --out a", Signal::INT, 130),
        ("run --workload varmail,seconds=100000 --out b", Signal::TERM, 143),
        ("reproduce direct-io --out c", Signal::TERM, 143),
        ("reproduce --out d", Signal::INT, 130),
        ("matrix --out e", Signal::HUP, 129),
        ("perturb --out f", Signal::INT, 130),
    ] {
        // Of the others no part is there so soon.
        let part = if args.contains("long") { &kept } else { at };
        let (output, took) = interrupted(at, args, part, with);
        let said = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {said}{stderr}");
        assert!(took < WITHIN, "{args}: {took:?} after the signal");
        let answer: Value = serde_json::from_str(&said).expect("one document");
        assert_eq!(answer["ok"], false, "{args}: {said}");
        assert_eq!(answer["error"]["code"], "interrupted", "{args}: {said}");
    }
    // The part that was done is there, and no result of the whole.
    let runs = fs::read_dir(&kept).expect("kept").count();
    assert_eq!(runs, 1);
    assert!(!at.join("a/long").exists() && !at.join("b").exists());
}

/// A block trace of disksim that takes minutes, and measurements of a drive that take long to fit.
fn long_inputs(at: &Path) {
    let trace: String = (0..3_000_000u64)
        .map(|n| {
            format!("{}.{:03} 0 {} 8 {}\n", n / 20, n % 20 * 50, n * 7919 % 24_000_000 * 8, n % 2)
        })
        .collect();
    fs::write(at.join("t.disksim"), trace).expect("written");
    let mut points = "op,bs,qd,iops,lat_us\n".to_owned();
    for (op, bs, qd) in ["randread", "randwrite", "read", "write"]
        .iter()
        .flat_map(|op| ["4k", "16k", "64k"].map(|bs| (op, bs)))
        .flat_map(|(op, bs)| [1, 2, 4, 8, 16, 32].map(|qd| (op, bs, qd)))
    {
        points += &format!("{op},{bs},{qd},{},{}\n", 9000 + 1000 * qd, 100 + 10 * qd);
    }
    fs::write(at.join("points.csv"), points).expect("written");
}

#[test]
fn work_that_is_done_in_steps_answers_with_those_that_are_done() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    long_inputs(at);
    // A program that takes long by itself, and an image that takes long to make.
    let nap = "open 0 a rw,creat\npwrite 0 0 4096 1\nfsync 0\nnap 4000000000\nfsync 0\n";
    fs::write(at.join("nap"), nap).expect("written");
    fs::write(at.join("short"), nap.replace("nap 4000000000\n", "")).expect("written");
    for args in [
        "replay t.disksim --format disksim",
        "replay t.disksim --format disksim --fill 100G",
        "calibrate points.csv --class ssd",
        "crash seq-3",
        "crash nap --concurrent-sync-us 100",
        "crash short --size 1T",
        "crash seq-1 --every-mode --check sleep\u{a0}1000",
    ] {
        let (output, took) = interrupted(at, args, at, Signal::INT);
        let said = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{args}: {said}{stderr}");
        assert!(took < WITHIN, "{args}: {took:?} after the signal");
        // `crash` is a stream: its last line is the answer.
        let answer = if args.starts_with("crash") { said.lines().last() } else { Some(&*said) };
        let answer: Value = serde_json::from_str(answer.expect("a line")).expect("one document");
        assert_eq!(answer["ok"], false, "{args}: {said}");
    }
}

/// A read of a pipe that says nothing looks at no flag.
#[test]
fn a_replay_that_waits_for_a_pipe_ends() {
    let mut child = Command::new(PROGRAM)
        .args(["replay", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let stdin = child.stdin.take();
    std::thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
    let output = child.wait_with_output().expect("it ends");
    assert!(began.elapsed() < WITHIN, "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(130));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(answer["error"]["code"], "interrupted", "{answer}");
    drop(stdin);
}

#[test]
fn a_second_signal_ends_it_though_nobody_reads_what_it_says() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("set");
    let mut full = &writer;
    while std::io::Write::write(&mut full, &[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("set");
    let mut child = Command::new(PROGRAM)
        .args(["crash", "seq-3"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(writer)
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
        std::thread::sleep(Duration::from_millis(200));
    }
    let code = loop {
        match child.try_wait().expect("asked") {
            Some(status) => break status.code(),
            None if began.elapsed() > WITHIN => {
                child.kill().expect("killed");
                panic!("it still runs");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(code, Some(130));
    drop(reader);
}

#[test]
fn what_is_kept_is_of_the_program_that_ran_and_not_of_one_built_since() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("program");
    // Not `fs::copy`: a process that another test begins meanwhile would have the copy open for
    // writing, and what is so open cannot be run.
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status().expect("cp runs");
    assert!(copied.success(), "{copied}");
    let run = |program: &Path| {
        let mut command = Command::new(program);
        command.args(["reproduce", "ext4-fsync", "--quick", "--out", "out"]);
        command.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let running = run(&program);
    // As a build does: another file of the same name.
    fs::remove_file(&program).expect("removed");
    fs::write(&program, "another").expect("written");
    let first = running.wait_with_output().expect("it ends");
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    let again = run(Path::new(PROGRAM)).wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("results (kept from an earlier run)"), "{said}");
}

/// SIGKILL leaves the program no time to end the processes of its papers: they end by themselves.
#[test]
fn a_program_that_is_killed_leaves_no_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .args(["reproduce", "direct-io", "journal-conflict", "--jobs", "2"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it was built");
    let at_work = || {
        let all = std::fs::read_dir("/proc").expect("a host with /proc").filter_map(Result::ok);
        all.filter(|p| std::fs::read_link(p.path().join("cwd")).is_ok_and(|d| d == dir.path()))
            .count()
    };
    let wait_for = |is_so: &dyn Fn(usize) -> bool| {
        for _ in 0..400 {
            if is_so(at_work()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    };
    assert!(wait_for(&|n| n == 3), "the program and two papers: {}", at_work());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(wait_for(&|n| n == 0), "{} are left", at_work());
}
