//! A verb says yes only of what it did: calls that fail, words that match nothing, results that are
//! recorded in part, commands that did not run.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Exit code, and what it said.
fn call(at: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    let out = command.args(args).current_dir(at).output().expect("started");
    let said = [out.stdout, out.stderr].concat();
    (out.status.code().expect("no signal"), String::from_utf8_lossy(&said).into_owned())
}

/// Calls that end with a code, and part of what they say.
fn check(at: &Path, cases: &[(&[&str], i32, &str)]) {
    for (args, code, says) in cases {
        let (ended, said) = call(at, args);
        assert_eq!(ended, *code, "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn a_program_whose_calls_all_fail_is_explored_by_no_mode() {
    let dir = tempfile::tempdir().expect("a directory");
    check(
        dir.path(),
        &[
            (&["crash", "fsync 9", "--fs", "f2fs"], 4, "calls failed"),
            (&["crash", "fsync 9", "--fs", "f2fs", "--every-mode"], 4, "calls failed"),
            (&["crash", "compare", "fsync 9", "--fs", "ext4", "--fs", "f2fs"], 4, "calls failed"),
        ],
    );
}

#[test]
fn an_expectation_behind_many_failures_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = format!("mkdir e;{}expect ENOENT;mkdir d", "fsync 9;".repeat(8));
    let (code, said) = call(dir.path(), &["crash", &program]);
    assert_eq!(code, 4, "{said}");
}

#[test]
fn the_largest_numbers_end_and_nothing_is_a_bug() {
    let dir = tempfile::tempdir().expect("a directory");
    let max = u64::MAX.to_string();
    let near = (u64::MAX - 15).to_string();
    let wild = ["crash", "wild", "--no-check", "--complete", "2", "--samples", "1"];
    let small = ["crash", "seq-1", "--count", "1", "--no-check", "--complete", "2"];
    for args in [
        [&wild[..], &["--seed", &max, "--count", "2"]].concat(),
        [&wild[..], &["--seed", "0", "--first", &near, "--count", "10"]].concat(),
        [&small[..], &["--workers", &max]].concat(),
    ] {
        let (code, said) = call(dir.path(), &args);
        assert!(matches!(code, 0 | 1), "{args:?}: {code} {said}");
    }
    assert_eq!(call(dir.path(), &[&wild[..], &["--calls", "4294967295"]].concat()).0, 2);
}

#[test]
fn a_command_that_could_not_run_is_asked_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let check = ["--check", "exit 1", "--check-dir", "trees", "--state-file", "state"];
    let args = [&["crash", "open 0 a rw,creat; fsync 0"][..], &check].concat();
    // There is no room for a tree.
    fs::create_dir(at.join("trees")).expect("made");
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", "size=4k", "tmpfs"]).arg(at.join("trees"));
    let is_mounted = mount.status().is_ok_and(|s| s.success());
    if !is_mounted {
        return wp_machine::testing::skipped(
            "a check command that cannot run",
            "no tmpfs can be mounted",
        );
    }
    let (first, said) = call(at, &args);
    let unmounted = Command::new("umount").arg(at.join("trees")).status();
    assert!(unmounted.expect("umount runs").success());
    assert_eq!(first, 74, "{said}");
    let (second, said) = call(at, &args);
    assert_eq!(second, 1, "the command says no to every tree: {said}");
}

#[test]
fn a_command_that_the_shell_expands_keeps_no_verdict() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = ["--check", "sh $D/check.sh", "--state-file", "state"];
    let args = [&["crash", "open 0 a rw,creat; fsync 0"][..], &state].concat();
    let (code, said) = call(dir.path(), &args);
    assert!(code == 2 && said.contains("--check"), "{code} {said}");
}

#[test]
fn a_claim_that_does_not_hold_is_no_yes_of_verify_either() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let experiment = |script: &str, claim: &str| {
        format!(
            "schema = \"writepath/1\"\nname = \"t\"\n[device]\npreset = \"fixed\"\n\
             capacity_bytes = \"64MiB\"\n[fs]\nkind = \"ext4\"\nera = \"4.6\"\n\
             {script}\n[[claim]]\n{claim}\n"
        )
    };
    let run = "[workload]\nname = \"fsync-last\"\nn = 2\nwatch = \"1s\"";
    let wrong = "id = \"slow\"\nexpr = \"fsync_ns\"\nat_most = 1";
    fs::write(at.join("t.toml"), experiment(run, wrong)).expect("written");
    let (plain, said) = call(at, &["run", "t.toml"]);
    assert_eq!(plain, 1, "{said}");
    let (verified, said) = call(at, &["run", "t.toml", "--verify"]);
    assert_eq!(verified, 1, "{said}");
}

#[test]
fn words_that_match_nothing_are_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let log = wp_machine::testing::repository("fuzz/seeds/log_writes/log-4096");
    let log = log.to_str().expect("text");
    check(
        at,
        &[
            (&["replay", log, "--to-mark", "typo"], 2, "no mark `typo`"),
            (&["replay", log, "--to-entry", "999999"], 2, "no entry 999999"),
            (&["replay", log, "--to-entry", "999999", "--out", "i"], 2, "fewer entries"),
            (&["matrix", "--only", "ext4/3.8,typo"], 2, "typo"),
            (&["kernels", "mounts", "--rounds", "0"], 2, "rounds"),
            (&["kernels", "mounts", "--guest", "/nonexistent"], 3, "/nonexistent"),
            (&["run", "--fio-json", "f.json"], 2, "no fio report"),
        ],
    );
    assert!(fs::read_dir(at).expect("listed").next().is_none(), "nothing is left");
}

#[test]
fn results_that_are_recorded_in_part_are_not_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let run = ["run", "--workload", "fsync-last,n=3,watch=1", "--max-events", "100", "--out"];
    for out in ["a", "b"] {
        assert_eq!(call(at, &[&run[..], &[out]].concat()).0, 0);
    }
    check(
        at,
        &[
            (&["diff", "a", "b"], 2, "are not recorded"),
            (&["compare", "a", "b"], 2, "are not recorded"),
        ],
    );
    // What is wrong with a file is an error of usage, not of the host.
    let result = fs::canonicalize(at.join("a/latest")).expect("there");
    fs::write(result.join("resolved.toml"), "[").expect("written");
    check(at, &[(&["explain", "a"], 2, "resolved.toml")]);
}
