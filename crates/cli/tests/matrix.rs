//! `matrix`, `perturb` and `list techniques` as a user meets them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn writepath(args: &[&str], out: Option<&Path>) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    command.args(args);
    if let Some(out) = out {
        command.arg("--out").arg(out);
    }
    let done = command.output().expect("it was built");
    Answer {
        code: done.status.code(),
        stdout: String::from_utf8(done.stdout).expect("text"),
        stderr: String::from_utf8(done.stderr).expect("text"),
    }
}

#[test]
fn a_matrix_is_the_same_with_any_number_of_threads_and_shown_again_from_what_is_kept() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (one, two) = (scratch.path().join("1"), scratch.path().join("2"));
    let args = |jobs| ["matrix", "--quick", "--only", "4.6/jbd2/none/plp,4.6/cure", "--jobs", jobs];
    let first = writepath(&args("1"), Some(&one));
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(
        first.stdout.contains("10 combinations: 2 clean, 0 broken by known bugs, 0 by unknown")
    );
    let second = writepath(&args("2"), Some(&two));
    assert_eq!(first.stdout, second.stdout);
    let files = |out: &Path| {
        let folder = std::fs::read_dir(out.join("matrix")).expect("results").next();
        let folder = folder.expect("one").expect("an entry").path();
        ["matrix.csv", "matrix.json", "matrix.txt"].map(|f| std::fs::read(folder.join(f)).expect(f))
    };
    assert_eq!(files(&one), files(&two));
    let csv = String::from_utf8(files(&one)[0].clone()).expect("text");
    // A head, four workloads of two, one line for each of eight that were refused.
    assert_eq!(csv.lines().count(), 1 + 8 + 8);
    let columns = |line: &str| line.split('"').next().expect("a start").matches(',').count();
    assert!(csv.lines().skip(1).all(|l| columns(l) == 13), "{csv}");
    // Damaged, it is run again; otherwise shown.
    let kept = std::fs::read_dir(one.join("kept")).expect("kept").count();
    assert_eq!(kept, 10);
    let again = writepath(&[&args("1")[..], &["--json"]].concat(), Some(&one));
    let doc: Value = serde_json::from_str(&again.stdout).expect("one document");
    assert_eq!(
        (&doc["combinations"], &doc["refused"], &doc["ok"]),
        (&10.into(), &8.into(), &true.into())
    );
    assert!(!again.stderr.contains("left"), "nothing was run: {}", again.stderr);
}

#[test]
fn what_cannot_be_asked_of_a_matrix_is_one_clear_error() {
    let a = writepath(&["matrix", "--only", "xfs"], None);
    assert_eq!(a.code, Some(2));
    assert!(a.stderr.contains("--only xfs: matches no combination"), "{}", a.stderr);
    let wrong = [
        ("program=0", "write a factor"),
        ("flash=2", "program, buffer or times"),
        ("times=read", "times=all, flush or none"),
    ];
    for (scale, said) in wrong {
        let a = writepath(&["perturb", "--device-scale", scale], None);
        assert_eq!(a.code, Some(2));
        assert!(a.stderr.contains("device-scale: ") && a.stderr.contains(said), "{}", a.stderr);
    }
    let a = writepath(&["perturb", "--claims", "--device-scale", "times=flush"], None);
    assert_eq!((a.code, a.stderr.contains("takes one paper")), (Some(2), true), "{}", a.stderr);
    let a = writepath(&["perturb", "xfs-fsync"], None);
    assert_eq!((a.code, a.stderr.contains("no paper called `xfs-fsync`")), (Some(2), true));
}

#[test]
fn the_profile_changes_for_the_process_and_every_figure_that_a_program_is_in_moves() {
    let figures = |scale| {
        let a = writepath(&["perturb", "ext4-fsync", "--json", "--device-scale", scale], None);
        assert_eq!(a.code, Some(0), "{}", a.stderr);
        let doc: Value = serde_json::from_str(&a.stdout).expect("one document");
        doc["figures"].as_object().expect("figures").clone()
    };
    let (before, after) = (figures(""), figures("program=2"));
    assert_eq!(before.len(), after.len());
    let name = "ext4-fsync figure 10: latency of the fsync, 3.8, allocating, 1 file";
    let of = |f: &serde_json::Map<String, Value>| f[name].as_f64().expect("a number");
    assert!(of(&after) > 1.2 * of(&before), "{} {}", of(&before), of(&after));
    // Without the rest of the drive the FLUSH is left, and without that the host.
    let (flush, none) = (figures("times=flush"), figures("times=none"));
    assert!(of(&before) > of(&flush) && of(&flush) > 2.0 * of(&none), "{flush:?} {none:?}");
    assert!(of(&none) > 0.0, "the host takes its time");
}

#[test]
fn techniques_are_listed_with_what_they_need_and_exclude() {
    let text = writepath(&["list", "techniques"], None).stdout;
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert!(text.contains("needs a drive that keeps the order of barrier writes"));
    assert!(text.contains("not implemented"));
    let json = writepath(&["list", "techniques", "--json"], None).stdout;
    let doc: Value = serde_json::from_str(&json).expect("one document");
    let all = doc["techniques"].as_array().expect("a list");
    let of = |name: &str| all.iter().find(|t| t["name"] == name).expect("it is there");
    let with = |t: &Value, other: &str| {
        t["conflicts"].as_array().expect("a list").iter().any(|c| c["with"] == other)
    };
    // A conflict is of both.
    assert!(with(of("discard"), "dual-mode") && with(of("dual-mode"), "discard"));
    assert_eq!(of("OptFS")["is_built"], false);
}
