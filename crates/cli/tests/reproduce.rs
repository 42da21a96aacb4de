//! Several papers in one command: order of what is printed, what is kept from one run to the next,
//! and what is not.

use std::path::Path;
use std::process::{Command, Stdio};

struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The two papers whose quick runs are the shortest, named in another order than the list's.
fn reproduce(out: &Path, more: &[&str]) -> Answer {
    let done = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .args(["reproduce", "--quick", "inode-trim", "ext4-fsync", "--out"])
        .arg(out)
        .args(more)
        .output()
        .expect("it was built");
    Answer {
        code: done.status.code(),
        stdout: String::from_utf8(done.stdout).expect("text"),
        stderr: String::from_utf8(done.stderr).expect("text"),
    }
}

#[test]
fn papers_are_run_once_and_shown_again_in_the_order_of_the_list() {
    let scratch = tempfile::tempdir().expect("a folder");
    let out = scratch.path().join("results");
    let first = reproduce(&out, &[]);
    assert_eq!(first.code, Some(0), "all as pinned: {}{}", first.stdout, first.stderr);
    let strict = reproduce(&out, &["--strict"]);
    assert_eq!(strict.code, Some(1), "some claims differ: {}", strict.stderr);
    assert!(first.stderr.contains("inode-trim: ") && first.stderr.contains("ext4-fsync: "));
    let at = |text: &str, what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    let table = at(&first.stdout, "paper              ");
    assert!(first.stdout.contains(" as pinned, 0 changed"), "{}", first.stdout);
    assert!(at(&first.stdout, "reproduce-ext4-fsync") < at(&first.stdout, "reproduce-inode-trim"));
    assert!(table < at(&first.stdout, "tables: ") && first.stdout.contains("report.html"));
    let lines = first.stdout[table..].lines().skip(1).take_while(|l| !l.is_empty());
    let rows: Vec<Vec<&str>> = lines.map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows.iter().map(|r| r[0]).collect::<Vec<_>>(), ["ext4-fsync", "inode-trim", "all"]);
    let sum =
        |n: usize| rows[..2].iter().map(|r| r[n].parse::<u32>().expect("a number")).sum::<u32>();
    for n in 1..7 {
        assert_eq!(sum(n).to_string(), rows[2][n], "{rows:?}");
    }
    assert!(sum(1) > 40, "claims of both");

    // The same again, from what is there.
    let again = reproduce(&out, &[]);
    assert_eq!((again.code, &again.stdout), (first.code, &first.stdout));
    assert!(again.stderr.is_empty(), "nothing was run: {}", again.stderr);
    // One of them alone has the same results.
    let one = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .args(["reproduce", "--quick", "inode-trim", "--out"])
        .arg(&out)
        .output()
        .expect("it was built");
    assert!(String::from_utf8_lossy(&one.stderr).contains("results (kept from an earlier run): "));
    assert!(String::from_utf8_lossy(&one.stdout).starts_with("Paper inode-trim"));

    // What was changed is not shown.
    let tables = std::fs::read_dir(out.join("reproduce-inode-trim"))
        .expect("a folder")
        .map(|e| e.expect("an entry").path().join("tables.txt"))
        .next()
        .expect("results");
    let whole = std::fs::read(&tables).expect("it is there");
    std::fs::write(&tables, "all claims match\n").expect("written");
    let mended = reproduce(&out, &["--jobs", "1"]);
    assert!(mended.stderr.contains("inode-trim: ") && !mended.stderr.contains("ext4-fsync: "));
    assert_eq!(std::fs::read(&tables).expect("it is there"), whole);

    // JSON is one document.
    let json = reproduce(&out, &["--json"]);
    let doc: serde_json::Value = serde_json::from_str(&json.stdout).expect("one document");
    let papers = doc["papers"].as_array().expect("a list");
    assert_eq!(papers.len(), 2);
    assert_eq!(papers[0]["papers"][0], "ext4-fsync");
    assert_eq!((&doc["ok"], json.code), (&serde_json::Value::Bool(true), Some(0)));
    assert_eq!(doc["claims"]["differs"].to_string(), rows[2][3]);
}

#[test]
fn an_interrupt_keeps_what_is_done() {
    let scratch = tempfile::tempdir().expect("a folder");
    let out = scratch.path().join("results");
    // One after the other, the longest first: none is done when the interrupt comes.
    let child = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .args(["reproduce", "inode-trim", "direct-io", "--jobs", "2", "--out"])
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was built");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    // As a terminal does, to the command and those that it started; here to it alone.
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(told.is_ok_and(|s| s.success()));
    let done = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted; finished and kept: "), "{stderr}");
    assert!(stderr.contains("run the same command to continue"), "{stderr}");
}
