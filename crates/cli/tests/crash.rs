//! `crash` as a user meets it: streams, campaign files, known failures, reproducers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

/// A drive that lies, and few states.
const LIAR: &[&str] = &[
    "crash",
    "seq-1",
    "--space",
    "lying-flush",
    "--complete",
    "6",
    "--samples",
    "4",
    "--no-check",
];

fn writepath(dir: &Path, args: &[&[&str]]) -> Answer {
    let args: Vec<&str> = args.iter().flat_map(|a| a.iter()).copied().collect();
    answer(Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).current_dir(dir))
}

fn answer(command: &mut Command) -> Answer {
    let out = command.output().expect("it was built");
    Answer {
        code: out.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(out.stdout).expect("text"),
        stderr: String::from_utf8(out.stderr).expect("text"),
    }
}

fn lines(a: &Answer) -> Vec<Value> {
    let parse = |l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"));
    a.stdout.lines().map(parse).collect()
}

#[test]
fn a_stream_has_an_object_a_line_and_a_stopped_campaign_ends_as_a_whole_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let whole = writepath(dir.path(), &[LIAR, &["--count", "34", "--json"]]);
    assert_eq!(whole.code, 1, "{}", whole.stderr);
    let all = lines(&whole);
    let of = |kind: &str| all.iter().filter(|l| l["kind"] == kind).count();
    assert!(of("failure") >= 3 && of("progress") == 3 && of("minimised") >= 1, "{}", whole.stdout);
    let summary = all.last().expect("a last line");
    assert_eq!((&summary["kind"], &summary["done"]), (&"summary".into(), &34.into()));
    let part = |a: &Answer| lines(a).last().expect("a last line")["done"].clone();
    let mut rounds = 0;
    let last = loop {
        let extra = ["--count", "34", "--json", "--state-file", "c"];
        // Short at first: it is to be stopped, and to come to the end all the same.
        let budget = format!("{}s", 1 + 2 * rounds);
        let a = writepath(dir.path(), &[LIAR, &extra, &["--minimise", "1", "--budget", &budget]]);
        rounds += 1;
        if part(&a) == 34 {
            // Nothing is left to explore; failures are reduced without a bound on time.
            break writepath(dir.path(), &[LIAR, &extra, &["--minimise", "1"]]);
        }
        assert!(rounds < 50, "{}", a.stdout);
    };
    assert_eq!(last.stdout.lines().last(), whole.stdout.lines().last());
    // Another campaign's file, and one that is none.
    let a = writepath(dir.path(), &[LIAR, &["--count", "35", "--state-file", "c"]]);
    assert_eq!(a.code, 2);
    assert!(a.stderr.contains("another campaign"), "{}", a.stderr);
    std::fs::write(dir.path().join("c"), "nothing").expect("written");
    let a = writepath(dir.path(), &[LIAR, &["--count", "34", "--state-file", "c"]]);
    assert_eq!((a.code, a.stderr.lines().count()), (2, 2), "{}", a.stderr);
}

#[test]
fn accepted_failures_are_known_and_no_failure() {
    let dir = tempfile::tempdir().expect("a directory");
    let few: &[&str] = &["--count", "4", "--minimise", "0"];
    let a = writepath(dir.path(), &[LIAR, few, &["--accept", "k.toml"]]);
    assert_eq!(a.code, 1, "{}", a.stderr);
    let a = writepath(dir.path(), &[LIAR, few, &["--known", "k.toml"]]);
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    assert!(a.stdout.contains("known failure, in"), "{}", a.stdout);
    let a = writepath(dir.path(), &[LIAR, &["--count", "1", "--first", "9"], &["--known", "no"]]);
    assert_eq!(a.code, 2);
    std::fs::write(dir.path().join("bad"), "[[known]]\nrule = \"O9\"\nwhy = \"x\"\n").expect("ok");
    let a = writepath(dir.path(), &[LIAR, &["--known", "bad"]]);
    assert!(a.code == 2 && a.stderr.contains("no rule called `O9`"), "{}", a.stderr);
    let never = "[[known]]\nrule = \"O5-order\"\nwhy = \"once\"\n";
    std::fs::write(dir.path().join("never"), never).expect("ok");
    let a = writepath(dir.path(), &[LIAR, few, &["--known", "never"]]);
    assert!(a.code == 1 && a.stdout.contains("NOT FOUND"), "{}", a.stdout);
}

#[test]
fn a_failure_is_reduced_shown_by_its_line_and_replayed_from_its_reproducer() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = writepath(dir.path(), &[LIAR, &["--count", "2", "--reproducer", "r"]]);
    assert_eq!(a.code, 1, "{}", a.stderr);
    assert!(a.stdout.contains("O4-lost-sync, minimised from"), "{}", a.stdout);
    let line = a.stdout.lines().rfind(|l| l.contains("crash show")).expect("a line").trim();
    // As a shell would have it.
    let line = line.replacen("writepath", env!("CARGO_BIN_EXE_writepath"), 1);
    let shown = Command::new("sh").arg("-c").arg(&line).output().expect("it runs");
    assert_eq!(shown.status.code(), Some(1), "it shows a broken rule");
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("O4-lost-sync broken"), "{line}\n{shown}");
    assert!(shown.contains("Power fails"), "{shown}");
    let at = "r/O4-lost-sync-0";
    let log = format!("{at}/writes.log");
    let base = format!("{at}/base.raw");
    let replay = ["replay", &log, "--base", &base, "--to-mark", "cut", "--out", "again"];
    let a = writepath(dir.path(), &[&replay]);
    assert_eq!(a.code, 0, "{}", a.stderr);
    let read = |p: &str| std::fs::read(dir.path().join(p)).expect("read");
    assert!(read("again") == read(&format!("{at}/crashed.raw")));
    let readme = String::from_utf8(read(&format!("{at}/README.md"))).expect("text");
    assert!(readme.contains("mount -o loop") && readme.contains("replay-log"), "{readme}");
}

#[test]
fn every_printed_command_line_shows_its_failure() {
    let dir = tempfile::tempdir().expect("a directory");
    let threads = "open 0 a rw,creat\nopen 1 b rw,creat\nsync\njoin\nthread 1: pwrite 0 4096 0 1\n\
                   thread 2: fsync 1\n";
    std::fs::write(dir.path().join("threads.txt"), threads).expect("written");
    let program = "open 0 a rw,creat; pwrite 0 4096 0 1; fsync 0; rename a b";
    let few = ["--json", "--space", "lying-flush", "--complete", "4", "--samples", "2"];
    let cases: [&[&str]; 5] = [
        &["seq-1", "--first", "12", "--count", "2", "--size", "128M", "--device", "emmc-16"],
        &["wild", "--count", "1", "--calls", "10", "--seed", "7", "--no-direct"],
        &["threads.txt", "--trimmed", "--interleavings", "3"],
        &[program, "--fs", "f2fs", "--second", "2", "--mounts", "1", "--no-check"],
        &[program, "--require", "names+order", "--concurrent-sync-us", "500"],
    ];
    for case in cases {
        let a = writepath(dir.path(), &[&["crash"], case, &few]);
        assert_eq!(a.code, 1, "{case:?}: {}", a.stderr);
        let lines = lines(&a);
        // One of a mount shows the state that is mounted.
        let shown = lines.iter().filter(|l| l["kind"] == "failure" && l["rule"] != "O7-errors");
        let mut count = 0;
        for failure in shown.step_by(5).take(4) {
            let line = failure["replay"].as_str().expect("a command line");
            let rest = line.strip_prefix("writepath crash show ").expect("the command of a state");
            let line = format!("{} crash show {rest}", env!("CARGO_BIN_EXE_writepath"));
            let a = answer(Command::new("sh").args(["-c", &line]).current_dir(dir.path()));
            let rule = failure["rule"].as_str().expect("a rule");
            assert_eq!(a.code, 1, "{line}: {}{}", a.stdout, a.stderr);
            assert!(a.stdout.contains(&format!("{rule} broken")), "{line}: {}", a.stdout);
            count += 1;
        }
        assert!(count > 0, "{case:?}: no failure");
    }
}

#[test]
fn run_may_be_left_out_and_an_old_spelling_is_answered_with_the_new_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["seq-1", "--count", "2", "--json"];
    let [short, long] =
        [&["crash"][..], &["crash", "run"]].map(|verb| writepath(dir.path(), &[verb, &args]));
    assert_eq!((short.code, short.stdout), (0, long.stdout), "{}", long.stderr);
    let old = ["crash", "log.txt", "--fs", "ext4,nobarrier", "--state", "4:0,1"];
    let a = writepath(dir.path(), &[&old]);
    let told = "error: option --state became a subcommand\n\
                help: writepath crash show log.txt 4:0,1 --fs ext4,nobarrier\n";
    assert_eq!((a.code, &*a.stderr), (2, told));
    let a = writepath(dir.path(), &[&["crash", "--bug", "A3", "--json"]]);
    assert_eq!(
        (a.code, &document(&a)["error"]["help"]),
        (2, &"writepath crash bug A3 --json".into())
    );
}

/// The one document of an answer.
fn document(a: &Answer) -> Value {
    serde_json::from_str(&a.stdout).unwrap_or_else(|e| panic!("{e}: {}", a.stdout))
}

/// Does `text` say of a rule that it holds?
fn says_ok(a: &Answer) -> bool {
    a.stdout.lines().any(|l| l.starts_with('O') && l.contains("  ok"))
        || a.stdout.contains("\"ok\": true")
}

#[test]
fn nothing_explored_is_no_success() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("written");
    };
    file("empty", "# nothing\nnap 5\n");
    file("wrong", "pwrite 0 4096 0 1\nfsync 0\n");
    file("large.fio", "[a]\nrw=write\nbs=1m\nsize=80m\nfilename=f\n");
    let one = "open 0 a rw,creat; fsync 0";
    let cases: &[(i32, &str, &[&str])] = &[
        (2, "no calls", &["empty"]),
        (2, "--count 0", &["seq-1", "--count", "0"]),
        (2, "only 132 programs", &["seq-1", "--first", "132"]),
        (2, "must be more than 0", &[one, "--budget", "0s"]),
        (2, "too large", &[one, "--budget", "18446744073709551615h"]),
        (2, "nonsense", &[one, "--device", "nonsense"]),
        (2, "nonsense", &[one, "--elevator", "nonsense"]),
        (2, "ENOSPC", &[one, "--fs", "btrfs", "--size", "64M"]),
        (2, "ENOSPC", &[one, "--fs", "nilfs2", "--size", "64M"]),
        (2, "is empty", &[one, "--check", " "]),
        (2, "must be more than 0", &[one, "--check", "true", "--check-timeout", "0s"]),
        (2, "a name is empty", &["mutate", ""]),
        (2, "no bug called", &["bug", ""]),
        (2, "crash mutate SITES --search N", &[one, "--search", "1"]),
        (2, "crash show PROGRAM FRAME[:U,V]", &[one, "--image", "i"]),
        (2, "write FRAME or FRAME:U,V", &["show", one, "x"]),
        (2, "no frame 99", &["show", one, "99"]),
        (2, "nothing to compare it with", &["compare", one]),
        (2, "two settings are compared", &["compare", one, "--fs=f2fs", "--fs=ext4", "--fs=btrfs"]),
        (2, "--state-file", &["compare", one, "--fs", "f2fs", "--state-file", "s"]),
        (2, "is of one file system", &[one, "--fs", "f2fs", "--every-mode", "--accept", "a"]),
        (2, "3.3 to 6.18, not 2.6", &[one, "--fs", "ext4,era=2.6", "--every-version"]),
        (4, "all 2 calls failed", &["wrong"]),
    ];
    for (code, words, args) in cases {
        for json in [&[][..], &["--json"]] {
            let a = writepath(dir.path(), &[&["crash"], args, json]);
            assert_eq!(a.code, *code, "{args:?}: {}{}", a.stdout, a.stderr);
            let told = a.stdout.clone() + &a.stderr;
            assert!(told.contains(words), "{args:?}: {told}");
            assert!(!says_ok(&a), "{args:?}: {}", a.stdout);
        }
    }
    let few = ["--complete", "2", "--samples", "1", "--no-check", "--budget", "20s"];
    let a = writepath(dir.path(), &[&["crash", "large.fio"], &few]);
    assert_ne!(a.code, 0, "{}", a.stdout);
    assert!(a.stdout.contains("calls failed: step "), "{}{}", a.stdout, a.stderr);
    assert!(a.stdout.contains("ENOSPC") || a.stdout.contains("bytes written"), "{}", a.stdout);
}

/// `era` is the version to begin with, and all are repeated without one.
#[test]
fn every_version_begins_with_the_one_that_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = "open 0 a rw,creat; fsync 0";
    let versions = |fs: &[&str]| {
        let a = writepath(dir.path(), &[&["crash", program, "--every-version", "--json"], fs]);
        assert_eq!(a.code, 0, "{fs:?}: {}", a.stderr);
        lines(&a).iter().filter_map(|l| l["fs"].as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = versions(&[]);
    assert_eq!(all[0], "ext4,era=3.3");
    let at = all.iter().position(|fs| fs == "ext4,era=6.8").expect("it has rules of its own");
    // 6.9 follows the rules of 6.8.
    assert_eq!(versions(&["--fs", "ext4,era=6.9"]), all[at..]);
}

#[test]
fn a_file_system_gets_the_room_that_it_needs() {
    let dir = tempfile::tempdir().expect("a directory");
    for fs in ["btrfs", "nilfs2"] {
        let program = ["open 0 a rw,creat; pwrite 0 4096 0 1; fsync 0", "--fs", fs, "--trimmed"];
        let a = writepath(dir.path(), &[&["crash"], &program]);
        assert_eq!(a.code, 0, "{fs}: {}{}", a.stdout, a.stderr);
        assert!(a.stdout.contains("programs                                1"));
    }
}

#[test]
fn calls_that_fail_are_told_with_their_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "# a typing error or two\nopen 0 a rw,creat\npwrite 0 4096 0 1\nfsync 1\n\n\
                rename x y\nexpect ENOENT\nunlink x\n";
    std::fs::write(dir.path().join("p"), text).expect("written");
    let a = writepath(dir.path(), &[&["crash", "p", "--trimmed"]]);
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    let told = "1 of 5 calls failed as the program expects\n  \
                2 of 5 calls failed: line 4 `fsync 1`: EBADF\n    line 6 `rename x y`: ENOENT\n";
    assert!(a.stdout.contains(told), "{}", a.stdout);
    let a = writepath(dir.path(), &[&["crash", "p", "--trimmed", "--json"]]);
    let last = lines(&a).pop().expect("a summary");
    let calls = &last["calls"];
    assert_eq!((&calls["made"], &calls["failed"]), (&5.into(), &2.into()), "{calls}");
    assert_eq!(calls["first_failed"][1]["place"], "line 6");
    // A program that says what must fail is held to it.
    let unmet = ["crash", "open 0 a rw,creat; expect ENOSPC; fsync 0", "--trimmed"];
    let a = writepath(dir.path(), &[&unmet]);
    assert_eq!(a.code, 4, "{}{}", a.stdout, a.stderr);
    assert!(a.stdout.contains("step 3 `fsync 0`: success, but the program expects ENOSPC"));
}

#[test]
fn a_check_sees_every_image_and_a_changed_check_is_another_campaign() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = |text: &str| std::fs::write(dir.path().join("check.sh"), text).expect("written");
    let path = dir.path().join("check.sh").display().to_string();
    let command = format!("sh {path}");
    let program = "open 0 a rw,creat; pwrite 0 4096 0 1; fsync 0";
    let base = ["crash", program, "--complete", "6", "--samples", "3", "--check", &command];
    script("cksum < \"$WRITEPATH_IMAGE\" >> \"$SEEN\"");
    let seen = dir.path().join("seen");
    let a = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .args(base)
        .args(["--check-image", "--json"])
        .env("SEEN", &seen)
        .output()
        .expect("it runs");
    let text = String::from_utf8(a.stdout).expect("text");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    let states = last["totals"]["raw_states"].as_u64().expect("a number");
    let shown = std::fs::read_to_string(&seen).expect("it was written").lines().count() as u64;
    let as_before = last["check_cmd"]["states_as_before"].as_u64().expect("a number");
    assert!(states > 20 && shown > states / 2, "{shown} of {states}");
    assert_eq!(shown + as_before, states, "{last}");
    // The same file of a campaign, with another script: not the old verdict.
    let kept = ["--state-file", "s"];
    script("exit 0");
    let a = writepath(dir.path(), &[&base, &kept]);
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    script("exit 1");
    let a = writepath(dir.path(), &[&base, &kept]);
    assert_eq!(a.code, 2, "{}{}", a.stdout, a.stderr);
    assert!(a.stderr.contains("another campaign"), "{}", a.stderr);
}

#[test]
fn a_budget_holds_inside_a_program_and_what_is_left_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut text = "open 0 f rw,creat\n".to_owned();
    for n in 0..100u64 {
        text += &format!("pwrite 0 1048576 {} {}\n", n << 20, n + 1);
    }
    std::fs::write(dir.path().join("p"), text + "fsync 0\n").expect("written");
    let args = ["crash", "p", "--size", "1G", "--trimmed", "--no-check", "--budget", "2s"];
    // It took 75 s and more; `timeout` leaves room for a busy machine and ends with 124.
    let mut command = Command::new("timeout");
    command.arg("40").arg(env!("CARGO_BIN_EXE_writepath")).args(args).args(["--minimise", "0"]);
    let a = answer(command.current_dir(dir.path()));
    assert_eq!(a.code, 130, "{}{}", a.stdout, a.stderr);
    assert!(a.stdout.contains("incomplete: stopped"), "{}", a.stdout);
    assert!(!says_ok(&a) || a.stdout.contains("ok so far"), "{}", a.stdout);
}
