//! Results as their user meets them: compressed and bounded events, the newest one, lists, removal.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code, the JSON document, stderr.
fn call(at: &Path, args: &[&str]) -> (i32, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    let out = command.args(args).arg("--json").current_dir(at).output().expect("started");
    let doc = serde_json::from_slice(&out.stdout).expect("one JSON document");
    (out.status.code().expect("no signal"), doc, String::from_utf8_lossy(&out.stderr).into_owned())
}

const RUN: [&str; 3] = ["run", "--workload", "fsync-last,n=3,watch=1"];

#[test]
fn every_view_takes_a_folder_a_file_in_it_and_the_newest() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let (code, none, _) = call(at, &["explain", "results"]);
    assert_eq!(code, 74, "{none}");
    fs::create_dir(at.join("results")).expect("made");
    for verb in ["explain", "trace", "report"] {
        let (code, none, _) = call(at, &[verb, "results"]);
        assert_eq!((code, none["ok"].clone()), (2, false.into()), "{verb}: {none}");
    }
    let (code, doc, _) = call(at, &RUN);
    assert_eq!(code, 0, "{doc}");
    let result = doc["result"].as_str().expect("a path").to_owned();
    let events = format!("{result}/events.parquet");
    for named in [&*result, "results/latest", "results", "results/fsync-last", &*events] {
        let (code, doc, said) = call(at, &["explain", named]);
        assert_eq!((code, said.as_str()), (0, ""), "{named}: {doc}");
        assert_eq!(call(at, &["trace", named]).0, 0, "{named}");
        assert_eq!(call(at, &["diff", named, &result]).0, 0, "{named}");
        let page = ["report", named, "--out", "page.html"];
        assert_eq!(call(at, &page).0, 0, "{named}");
    }
    // Several and none of them the newest: they are named.
    call(at, &[&RUN[..], &["--seed", "2"]].concat());
    let (code, several, _) = call(at, &["explain", "results/fsync-last"]);
    let said = several["error"]["message"].as_str().expect("a message").to_owned();
    assert!(code == 2 && said.contains("2 results are below it"), "{said}");
    assert_eq!(call(at, &["explain", "results"]).0, 0, "the newest of them");
    // A run without events says how to have some.
    let (_, doc, _) = call(at, &[&RUN[..], &["--no-events"]].concat());
    assert!(!at.join(doc["result"].as_str().expect("a path")).join("events.parquet").exists());
    let (code, none, _) = call(at, &["explain", "results/latest"]);
    assert!(code == 2 && none["error"]["help"].as_str().expect("help").contains("--events all"));
}

#[test]
fn what_is_left_out_is_said_by_the_run_and_by_every_view() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let (_, all, _) = call(at, &RUN);
    let (code, some, said) = call(at, &[&RUN[..], &["--max-events", "200"]].concat());
    assert_eq!(code, 0);
    assert_ne!(all["result"], some["result"], "it takes the place of no whole result");
    assert_eq!(some["events"], all["events"]);
    let left_out = all["events"].as_u64().expect("a number") - 200;
    assert_eq!(
        (all["events_left_out"].as_u64(), some["events_left_out"].as_u64()),
        (Some(0), Some(left_out))
    );
    assert!(said.contains("the first 200 of "), "{said}");
    let (code, doc, said) = call(at, &["trace", "results/latest"]);
    assert_eq!(code, 0, "{doc}");
    assert!(said.contains(&format!("the last {left_out} events")), "{said}");
    assert_eq!(call(at, &[&RUN[..], &["--max-events", "0"]].concat()).0, 2);
}

#[test]
fn damaged_events_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let (_, doc, _) = call(at, &RUN);
    let events = at.join(doc["result"].as_str().expect("a path")).join("events.parquet");
    let whole = fs::read(&events).expect("read");
    for bytes in [&whole[..whole.len() / 2], &[&whole[..20], &[0xff; 40]].concat()[..]] {
        fs::write(&events, bytes).expect("written");
        let (code, doc, _) = call(at, &["explain", "results"]);
        let said = doc["error"]["message"].as_str().expect("a message").to_owned();
        assert!(code == 2 && said.contains("events.parquet:"), "{code} {said}");
    }
}

#[test]
fn results_are_listed_and_removed_and_what_the_user_put_there_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let (code, none, _) = call(at, &["list", "results"]);
    assert_eq!(code, 74, "{none}");
    let (_, first, _) = call(at, &RUN);
    let (_, second, _) = call(at, &[&RUN[..], &["--seed", "2"]].concat());
    let first = at.join(first["result"].as_str().expect("a path"));
    fs::write(first.join("notes.txt"), "the user's").expect("written");
    fs::write(at.join("results/mine"), "the user's").expect("written");
    let (code, listed, _) = call(at, &["list", "results"]);
    assert_eq!((code, listed["count"].as_u64()), (0, Some(2)), "{listed}");
    let latest: Vec<&Value> = listed["results"].as_array().expect("a list").iter().collect();
    let latest: Vec<&Value> = latest.into_iter().filter(|r| r["is_latest"] == true).collect();
    assert_eq!(latest.len(), 1);
    assert_eq!(latest[0]["path"], second["result"]);
    let (code, dry, _) = call(at, &["clean", "--dry-run"]);
    assert_eq!((code, dry["results"].as_array().map(Vec::len)), (0, Some(2)));
    assert!(first.join("summary.json").exists());
    let (code, kept, _) = call(at, &["clean", "--keep-latest"]);
    assert_eq!((code, kept["results"].as_array().map(Vec::len)), (0, Some(1)));
    assert_eq!(kept["results"][0]["kept_files"][0], "notes.txt");
    let (code, _, _) = call(at, &["clean"]);
    assert_eq!(code, 0);
    assert_eq!(fs::read(first.join("notes.txt")).expect("read"), b"the user's");
    let mut left: Vec<String> = fs::read_dir(at.join("results"))
        .expect("listed")
        .map(|e| e.expect("listed").file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["fsync-last", "mine"]);
    assert_eq!(call(at, &["clean"]).0, 2, "nothing is left to do");
}

#[test]
fn where_the_time_went_adds_up_and_versions_that_do_not_differ_give_a_hint() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    call(at, &RUN);
    let (_, doc, _) = call(at, &["explain", "results"]);
    let parts = doc["drive_parts"].as_array().expect("a list").iter();
    let sum: u64 = parts.map(|p| p["ns"].as_u64().expect("a number")).sum();
    let (drive, total) = (doc["drive_ns"].as_u64(), doc["total_ns"].as_u64());
    assert_eq!(Some(sum), drive);
    assert!(drive > Some(0) && drive < total, "{drive:?} {total:?}");
    let versions = ["diff", "--fs", "ext4,era=3.4", "--fs", "ext4,era=3.8"];
    let (_, alike, _) = call(at, &versions);
    assert!(alike["hint"].as_str().expect("a hint").contains("case=extend"));
    let (_, chosen, _) =
        call(at, &[&versions[..], &["--workload", "fsync-last,case=extend"]].concat());
    assert_eq!(chosen["hint"], Value::Null);
}
