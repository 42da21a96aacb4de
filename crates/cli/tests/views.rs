//! `trace`, `explain` and `diff` on results that `run` left.

use std::path::{Path, PathBuf};
use std::process::Command;

fn writepath(args: &[&str]) -> (i32, String, String) {
    let out =
        Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).output().expect("it was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (out.status.code().expect("it ends by itself"), text(out.stdout), text(out.stderr))
}

fn run(dir: &Path, extra: &[&str]) -> PathBuf {
    let out = dir.to_str().expect("text");
    let mut args = vec!["run", "--json", "--partition-size", "64M", "--out", out];
    args.extend_from_slice(extra);
    let (code, stdout, stderr) = writepath(&args);
    assert_eq!(code, 0, "{stderr}");
    let doc: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON document");
    PathBuf::from(doc["result"].as_str().expect("a path"))
}

fn json(args: &[&str]) -> (i32, serde_json::Value) {
    let (code, stdout, stderr) = writepath(args);
    (code, serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}")))
}

#[test]
fn a_result_is_explained_and_compared_and_written_for_other_tools() {
    let dir = tempfile::tempdir().expect("a directory");
    let old =
        run(dir.path(), &["--fs", "ext4,era=3.4", "--workload", "fsync-last,n=3,case=extend"]);
    let elsewhere = ["--partition-start", "4096"];
    let moved =
        [&["--fs", "ext4,era=3.4", "--workload", "fsync-last,n=3,case=extend"][..], &elsewhere];
    let moved = run(dir.path(), &moved.concat());
    let new =
        run(dir.path(), &["--fs", "ext4,era=3.8", "--workload", "fsync-last,n=3,case=extend"]);
    let (old, moved, new) =
        (old.to_str().expect("text"), moved.to_str().expect("text"), new.to_str().expect("text"));

    let resolved = std::fs::read_to_string(Path::new(old).join("resolved.toml")).expect("there");
    resolved.parse::<toml::Table>().expect("it is TOML");

    let (code, doc) = json(&["explain", old, "--json"]);
    assert_eq!((code, &doc["schema"]), (0, &"writepath.explain/1".into()));
    let percents = doc["stages"].as_array().expect("a list").iter();
    let hundredths = |s: &serde_json::Value| {
        s["percent"].as_str().and_then(|p| p.replace('.', "").parse::<u64>().ok())
    };
    assert_eq!(percents.map(|s| hundredths(s).expect("a number")).sum::<u64>(), 10_000);
    assert_eq!(json(&["explain", old, "--op", "9", "--json"]).0, 2);
    let (code, flow) = json(&["explain", old, "--flow", "--json"]);
    assert_eq!((code, &flow["schema"]), (0, &"writepath.flow/1".into()));
    let steps = flow["steps"].as_array().expect("a list").iter();
    assert_eq!(steps.filter_map(|s| s["ns"].as_u64()).sum::<u64>(), doc["total_ns"]);
    assert_eq!(flow["survives"], false, "ssd-128 has a volatile cache");

    let (code, sum) = json(&["explain", old, "--summary", "--json"]);
    assert_eq!((code, &sum["calls"], &sum["total_ns"]), (0, &1.into(), &doc["total_ns"]));
    assert_eq!(json(&["explain", old, "--slowest", "--json"]).1, doc, "there is one");
    let (_, syncs) = json(&["explain", old, "--call", "sync", "--all", "--json"]);
    assert_eq!(syncs["calls"].as_array().map(Vec::len), Some(3), "{syncs}");
    let (code, text, _) = writepath(&["explain", old, "--flow", "--to", "mermaid"]);
    assert!(code == 0 && text.starts_with("sequenceDiagram\n"), "{text}");
    assert_eq!(writepath(&["explain", old, "--flow", "--to", "pdf"]).0, 2);
    let runs = ["--workload", "fsync-last,n=3,case=extend", "--partition-size", "64M", "--json"];
    let by_name = ["diff", "--fs", "ext4,era=3.4", "--fs", "ext4,era=3.8"];
    let (code, by_name) = json(&[&by_name[..], &runs].concat());
    let (_, by_result) = json(&["diff", old, new, "--json"]);
    assert_eq!((code, &by_name["compared"]), (1, &by_result["compared"]), "run by itself");
    let prose = by_name["compared"]["prose"].as_str().expect("words");
    let other = "it does not write ordered data of other files (16 sectors in 2 requests)";
    assert!(prose.contains(other), "{prose}");
    assert_eq!(writepath(&["diff", "--fs", "ext4,era=3.4"]).0, 2, "one is not two");

    assert_eq!(json(&["diff", old, old, "--times", "--json"]).0, 0);
    assert_eq!(json(&["diff", old, moved, "--json"]).0, 0, "another partition, the same run");
    let (code, doc) = json(&["diff", old, new, "--actions", "D", "--json"]);
    assert_eq!(code, 1);
    let fsync = doc["phases"].as_array().expect("a list").iter().find(|p| p["phase"] == "fsync");
    let first = &fsync.expect("the phase of the fsync")["differences"][0];
    assert_eq!(first["kind"], "only-a", "era 3.4 writes the other files' data: {doc}");

    let file = dir.path().join("t.blktrace.0");
    let file = file.to_str().expect("text");
    for format in ["blktrace", "perfetto", "blkparse"] {
        let (code, _, stderr) = writepath(&["trace", old, "--to", format, "--out", file]);
        assert_eq!(code, 0, "{stderr}");
        assert!(std::fs::metadata(file).expect("written").len() > 1000);
        std::fs::remove_file(file).expect("removed");
    }
    assert_eq!(
        writepath(&["trace", old, "--to", "blktrace"]).0,
        2,
        "a terminal is no place for it"
    );
}

/// A result of before the device told anything.
#[test]
fn a_result_without_the_devices_events_is_read_as_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let result = run(dir.path(), &["--workload", "fsync-last,n=3,case=extend"]);
    // Uncompressed, as version 0.1 had them.
    let (table, events) = (result.join("events.parquet"), result.join("events.ndjson"));
    let records = wp_machine::results::read_events(&table).expect("there");
    let text = wp_machine::results::events_to_ndjson(&records);
    let text = String::from_utf8(text).expect("text");
    let result = result.to_str().expect("text");
    let (_, new) = json(&["explain", result, "--json"]);
    let told = ["command", "done", "device"].map(|e| format!("\"e\":\"{e}\""));
    let old: String =
        text.split_inclusive('\n').filter(|l| !told.iter().any(|t| l.contains(t))).collect();
    assert!(old.len() < text.len());
    std::fs::remove_file(&table).expect("removed");
    std::fs::write(&events, old).expect("written");
    let (code, doc) = json(&["explain", result, "--json"]);
    assert_eq!((code, &doc["total_ns"]), (0, &new["total_ns"]));
    let stages = |doc: &serde_json::Value| -> Vec<(String, u64)> {
        let all = doc["stages"].as_array().expect("a list").iter();
        let of = |s: &serde_json::Value| {
            (s["stage"].to_string(), s["ns"].as_u64().expect("nanoseconds"))
        };
        all.map(of).collect()
    };
    assert_eq!(stages(&doc), stages(&new), "what the device tells changes no stage");
    // Compressed, as version 0.2 had them.
    let plain = std::fs::read(&events).expect("there");
    std::fs::remove_file(&events).expect("removed");
    let packed = zstd::encode_all(&*plain, 3).expect("packed");
    std::fs::write(events.with_extension("ndjson.zst"), packed).expect("written");
    assert_eq!(json(&["explain", result, "--json"]), (0, doc.clone()));
    let list = doc["stages"].as_array().expect("a list");
    assert!(list.iter().all(|s| s["parts"].as_array().is_some_and(Vec::is_empty)));
    let file = dir.path().join("t.pftrace");
    let to = ["--to", "perfetto", "--out", file.to_str().expect("text")];
    assert_eq!(writepath(&[&["trace", result][..], &to].concat()).0, 0);
}
