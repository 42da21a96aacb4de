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
    let out = Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).current_dir(dir).output();
    let out = out.expect("it was built");
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
        let extra = ["--count", "34", "--json", "--state-file", "c", "--budget", "0s"];
        let a = writepath(dir.path(), &[LIAR, &extra, &["--minimise", "1"]]);
        rounds += 1;
        if part(&a) == 34 {
            break a;
        }
        assert!(rounds < 5, "{}", a.stdout);
    };
    assert_eq!(rounds, 3);
    assert_eq!(last.stdout.lines().last(), whole.stdout.lines().last());
    // Another campaign's file, and one that is none.
    let a = writepath(dir.path(), &[LIAR, &["--count", "35", "--state-file", "c"]]);
    assert_eq!(a.code, 2);
    assert!(a.stderr.contains("another campaign's"), "{}", a.stderr);
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
    assert!(a.stdout.contains("known, in"), "{}", a.stdout);
    let a = writepath(dir.path(), &[LIAR, &["--count", "1", "--first", "9"], &["--known", "no"]]);
    assert_eq!(a.code, 2);
    std::fs::write(dir.path().join("bad"), "[[known]]\nrule = \"O9\"\nwhy = \"x\"\n").expect("ok");
    let a = writepath(dir.path(), &[LIAR, &["--known", "bad"]]);
    assert!(a.code == 2 && a.stderr.contains("no rule called `O9`"), "{}", a.stderr);
    let never = "[[known]]\nrule = \"O5-order\"\nwhy = \"once\"\n";
    std::fs::write(dir.path().join("never"), never).expect("ok");
    let a = writepath(dir.path(), &[LIAR, few, &["--known", "never"]]);
    assert!(a.code == 1 && a.stdout.contains("NEVER MET"), "{}", a.stdout);
}

#[test]
fn a_failure_is_reduced_shown_by_its_line_and_replayed_from_its_reproducer() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = writepath(dir.path(), &[LIAR, &["--count", "2", "--reproducer", "r"]]);
    assert_eq!(a.code, 1, "{}", a.stderr);
    assert!(a.stdout.contains("O4-lost-sync, reduced from"), "{}", a.stdout);
    let line = a.stdout.lines().rfind(|l| l.contains("--state")).expect("a line").trim();
    // As a shell would have it.
    let line = line.replacen("writepath", env!("CARGO_BIN_EXE_writepath"), 1);
    let shown = Command::new("sh").arg("-c").arg(&line).output().expect("it runs");
    assert_eq!(shown.status.code(), Some(1), "it shows a broken rule");
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("O4-lost-sync broken"), "{line}\n{shown}");
    assert!(shown.contains("The power goes"), "{shown}");
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
