//! `crash log` as a user meets it: a log of a real kernel, a log of a reproducer, a log over NBD.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use wp_machine::testing::reference;

struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

fn writepath(dir: &Path, args: &[&str]) -> Answer {
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

fn summary(a: &Answer) -> Value {
    let last = a.stdout.lines().last().unwrap_or_else(|| panic!("{}", a.stderr));
    serde_json::from_str(last).expect("an object a line")
}

/// The log of dm-log-writes that Linux 6.1.176 wrote on a file system, unpacked.
fn of_linux(dir: &Path, fs: &str) -> PathBuf {
    let packed = reference(&format!("iolog-{fs}/log.img.zst"));
    let packed = std::fs::read(&packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
    let log = zstd::decode_all(&*packed).expect("a log");
    let path = dir.join(format!("{fs}.log"));
    std::fs::write(&path, log).expect("written");
    path
}

#[test]
fn every_state_of_a_log_of_linux_is_sound() {
    let dir = tempfile::tempdir().expect("a directory");
    for (fs, options, states) in
        [("ext4", "ext4,era=6.1", (17, 17_245)), ("f2fs", "f2fs,era=6.1", (13, 661))]
    {
        of_linux(dir.path(), fs);
        let log = format!("{fs}.log");
        let args = ["crash", "log", &log, "--fs", options, "--from", "base", "--size", "64M"];
        let a = writepath(dir.path(), &[&args[..], &["--json"]].concat());
        assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
        let all = summary(&a);
        assert_eq!(all["totals"]["cuts"], states.0, "{all}");
        assert_eq!(all["totals"]["raw_states"], states.1, "{all}");
        assert_eq!(all["log"]["marks"], 9);
        let a = writepath(dir.path(), &args);
        assert!(a.stdout.contains("completion order only"), "{}", a.stdout);
        assert!(a.stdout.contains("O4-lost-sync         not checked"), "{}", a.stdout);
    }
}

#[test]
fn a_check_is_told_the_marks_of_a_log() {
    let dir = tempfile::tempdir().expect("a directory");
    of_linux(dir.path(), "ext4");
    // What was marked before the power failure, and that what the mark `fsync_n1` is of is there.
    let check = "cat \"$WRITEPATH_ACKED\" >> \"$OLDPWD/told\"; \
                 ! grep -q fsync_n1 \"$WRITEPATH_ACKED\" || test -e n1";
    std::fs::write(dir.path().join("check.sh"), check).expect("written");
    let script = dir.path().join("check.sh");
    let line = format!("OLDPWD={} sh {}", dir.path().display(), script.display());
    let args = ["crash", "log", "ext4.log", "--fs", "ext4,era=6.1", "--from", "base"];
    let args = [&args[..], &["--check", &line]].concat();
    let a = writepath(dir.path(), &args);
    assert_eq!(a.code, 0, "{}{}", a.stdout, a.stderr);
    let told = || std::fs::read_to_string(dir.path().join("told")).expect("it ran");
    assert_eq!(told(), "", "without --marks nothing is promised");
    let a = writepath(dir.path(), &[&args[..], &["--marks"]].concat());
    assert!(told().contains("mkfs\nbase\nfsync_n1\n"), "{}{}", told(), a.stdout);
    assert!(a.stdout.contains("O8-application"), "{}{}", a.stdout, a.stderr);
}

/// A drive that drops FLUSHes loses many writes at once; few of them are what breaks a rule.
#[test]
fn a_failing_state_of_a_log_is_reduced_to_the_fewest_lost_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    of_linux(dir.path(), "ext4");
    let log = ["crash", "log", "ext4.log", "--fs", "ext4,era=6.1", "--from", "base"];
    let more = ["--space", "lying-flush", "--max-states", "64", "--check", "false", "--json"];
    let a = writepath(dir.path(), &[&log[..], &["--size", "64M"], &more].concat());
    assert_eq!(a.code, 1, "{}{}", a.stdout, a.stderr);
    let all = summary(&a);
    let of = |key: &str, rule: &str| {
        let mut each = all[key].as_array().expect("failures").iter();
        each.find(|f| f["rule"] == rule).unwrap_or_else(|| panic!("{key}: {all}")).clone()
    };
    let lost = |f: &Value| f["lost"].as_array().map(Vec::len).unwrap_or_else(|| panic!("{f}"));
    // It fails whatever is lost.
    assert_eq!(lost(&of("minimised", "O8-application")), 0);
    let (first, minimal) = (of("found", "O1-metadata"), of("minimised", "O1-metadata"));
    assert!(lost(&first) > 1, "{first}");
    assert_eq!(lost(&minimal), 1, "{minimal}");
    assert_eq!(minimal["lost_writes"].as_array().map(Vec::len), Some(1), "{minimal}");
    // The line shows the state, and without a loss there is nothing wrong.
    let line = minimal["replay"].as_str().expect("a line");
    let line = line.replacen("writepath", env!("CARGO_BIN_EXE_writepath"), 1);
    let frame = minimal["frame"].to_string();
    let place = minimal["lost"][0].to_string();
    let whole = line.replacen(&format!("{frame}:{place}"), &frame, 1);
    for (line, is_broken) in [(&line, true), (&whole, false)] {
        let a = answer(Command::new("sh").args(["-c", line]).current_dir(dir.path()));
        assert_eq!(a.stdout.contains("O1-metadata broken"), is_broken, "{line}\n{}", a.stdout);
    }
}

#[test]
fn the_log_of_a_reproducer_breaks_in_the_same_way() {
    let dir = tempfile::tempdir().expect("a directory");
    for (bug, era, rule) in
        [("V14", "btrfs,era=6.18.29", "O0-recoverable"), ("V26", "ext4,era=5.4.33", "O1-metadata")]
    {
        let a =
            writepath(dir.path(), &["crash", "bug", bug, "--minimise", "1", "--reproducer", "r"]);
        // 1: it does not become small.
        assert!(a.code <= 1, "{}{}", a.stdout, a.stderr);
        let at = format!("r/{bug}");
        let read = |name: &str| std::fs::read(dir.path().join(name)).expect("it was written");
        let state: Value =
            serde_json::from_slice(&read(&format!("{at}/state.json"))).expect("json");
        let (log, base) = (format!("{at}/writes.log"), format!("{at}/base.raw"));
        let args = ["crash", "log", &log, "--base", &base, "--fs", era];
        let a = writepath(dir.path(), &[&args[..], &["--json"]].concat());
        assert_eq!(a.code, 1, "{bug}: {}{}", a.stdout, a.stderr);
        let all = summary(&a);
        let same = |f: &&Value| f["rule"] == rule && f["seen"] == state["seen"];
        let found = all["found"].as_array().expect("failures").iter().find(same);
        let found = found.unwrap_or_else(|| panic!("{bug}: {state}: {all}"));
        // The line that is printed shows the state, which is the one that the reproducer is of.
        let line = found["replay"].as_str().expect("a line");
        let line = line.replacen("writepath", env!("CARGO_BIN_EXE_writepath"), 1);
        let line = format!("{line} --image back-{bug}");
        let a = answer(Command::new("sh").args(["-c", &line]).current_dir(dir.path()));
        assert!(
            a.code == 1 && a.stdout.contains(&format!("{rule} broken")),
            "{line}\n{}",
            a.stdout
        );
        assert!(read(&format!("back-{bug}")) == read(&format!("{at}/crashed.raw")), "{line}");
    }
}

#[test]
fn what_cannot_be_explored_is_said_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    of_linux(dir.path(), "ext4");
    std::fs::write(dir.path().join("no.log"), "no log").expect("written");
    // A head without entries: nothing that a power failure could lose.
    let mut empty = [0x006a_7366_7773_6872_u64, 1, 0, 512].map(u64::to_le_bytes).concat();
    empty.resize(512, 0);
    std::fs::write(dir.path().join("empty.log"), empty).expect("written");
    let cases: [(&[&str], i32, &str, &str); 7] = [
        (&["empty.log"], 2, "no write to lose (marks: none)", "replay LOG"),
        (&["ext4.log", "--fs", "xfs"], 2, "no file system called `xfs`", "its own kernel"),
        (&["ext4.log"], 2, "no ext4 on the device", "a mark behind mkfs"),
        (&["ext4.log", "--from", "x"], 2, "no mark `x` (marks: mkfs, base,", "replay LOG"),
        (&["ext4.log", "--from", "base", "--size", "1M"], 2, "need 67108864 bytes", ""),
        (&["ext4.log", "--from", "base", "--space", "modelled"], 2, "a log has permitted", ""),
        (&["no.log"], 1, "no.log", ""),
    ];
    for (args, code, what, help) in cases {
        let a = writepath(dir.path(), &[&["crash", "log"], args].concat());
        assert_eq!(a.code, code, "{args:?}: {}{}", a.stdout, a.stderr);
        assert!(a.stderr.contains(what) && a.stderr.contains(help), "{args:?}: {}", a.stderr);
    }
    let a = writepath(dir.path(), &["crash", "ext4.log"]);
    assert!(a.stderr.contains("writepath crash log ext4.log"), "{}", a.stderr);
}
