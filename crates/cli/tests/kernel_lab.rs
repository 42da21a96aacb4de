//! `kernel-lab --run` and `--explore` as a user types them, in a guest.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use wp_machine::testing::skipped;
use wp_parity::kernel_lab::Kernel;

/// Writes a file, syncs it and acknowledges that, three times.
const APP: &str = "#!/bin/sh\nfor n in 1 2 3; do\n  \
                   dd if=/dev/zero of=f$n bs=4k count=2 conv=fsync 2> /dev/null\n  \
                   echo f$n > \"$WRITEPATH_ACK\"\ndone\n";
/// What was acknowledged is there, and what the set-up made.
const CHECK: &str = "#!/bin/sh\ntest -e old || { echo old is gone; exit 1; }\n\
                     while read f; do test -s $f || { echo $f is gone; exit 1; }; done \
                     < \"$WRITEPATH_ACKED\"\n";

fn is_there(check: &str) -> bool {
    let gcc = Command::new("gcc").arg("--version").output().map(drop).map_err(|e| e.to_string());
    match Kernel::find(None, None).and(gcc) {
        Ok(()) => true,
        Err(why) => {
            skipped(check, &why);
            false
        }
    }
}

/// A folder with the program and its check.
fn folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in [("app.sh", APP), ("check.sh", CHECK)] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("changed");
    }
    dir
}

/// Exit status, stdout and stderr.
fn writepath(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).current_dir(dir).output();
    let out = out.expect("it was built");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (out.status.code().expect("it ends by itself"), text(out.stdout), text(out.stderr))
}

fn last(stdout: &str, stderr: &str) -> Value {
    let line = stdout.lines().last().unwrap_or_else(|| panic!("{stderr}"));
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"))
}

/// The program of a folder on a file system, set up with a file.
fn args<'a>(fs: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let all = ["kernel-lab", "--fs", fs, "--setup", "echo x > old", "--run", "./app.sh"];
    [&all[..], more].concat()
}

#[test]
fn crash_states_of_a_program_in_a_guest_are_those_of_the_log_it_leaves() {
    if !is_there("crash states of a program on a real ext4") {
        return;
    }
    let dir = folder();
    let explore =
        ["--check", "./check.sh", "--explore", "--sample", "20", "--save-log", "a.log", "--json"];
    let (code, out, err) = writepath(dir.path(), &args("ext4", &explore));
    assert_eq!(code, 0, "{out}{err}");
    let all = last(&out, &err);
    assert_eq!(all["broken"]["O8-application"], 0, "{all}");
    assert_eq!((&all["kernel"]["mounted"], &all["kernel"]["equal"]), (&20.into(), &20.into()));
    assert_eq!(all["log"]["order"], "submission and completion");
    // The same states, from the file alone.
    let (from, to) = (["--from", "writepath begin"], ["--to", "writepath end"]);
    let era = ["--fs", "ext4,era=6.12", "--size", "512M", "--marks", "--json"];
    let check = ["--check", "./check.sh"];
    let log = [&["crash", "log", "a.log"][..], &from, &to, &era, &check].concat();
    let (code, out, err) = writepath(dir.path(), &log);
    assert_eq!(code, 0, "{out}{err}");
    let again = last(&out, &err);
    for key in ["totals", "broken", "check_cmd"] {
        assert_eq!(again[key], all[key], "{key}");
    }
}

#[test]
fn a_kernel_that_recovers_its_own_file_system_is_asked_with_the_check() {
    if !is_there("crash states of a program on a real XFS") {
        return;
    }
    let dir = folder();
    let explore = ["--explore", "--sample", "12", "--json", "--check"];
    for (check, code, broken) in [("./check.sh", 0, 0), ("echo no >&2; exit 1", 1, 12)] {
        let keep = format!("images-{code}");
        let more = [&explore[..], &[check, "--keep", &keep]].concat();
        let (exit, out, err) = writepath(dir.path(), &args("xfs", &more));
        assert_eq!(exit, code, "{out}{err}");
        let kept = std::fs::read_dir(dir.path().join(&keep)).expect("a folder").count();
        assert_eq!(kept, if code == 0 { 0 } else { 4 }, "{err}");
        let all = last(&out, &err);
        assert_eq!(
            (&all["mounted"], &all["broken"]["O8-application"]),
            (&12.into(), &broken.into())
        );
    }
}

/// F2FS loses what its fsync returned for (R1), and no prefix of what it wrote shows that.
#[test]
fn a_state_that_no_replay_reaches_is_told_as_such() {
    if !is_there("a broken promise of a real F2FS at no prefix of its log") {
        return;
    }
    let dir = folder();
    let explore = ["--check", "./check.sh", "--explore", "--sample", "0"];
    let (code, out, err) = writepath(dir.path(), &args("f2fs", &explore));
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("at no prefix of the log: dm-log-writes' replay"), "{out}{err}");
    assert!(out.contains("recovered to the same files, 0 to others"), "{out}{err}");
}

#[test]
fn two_mounts_are_compared_request_by_request() {
    if !is_there("a program on two mounts of a real ext4") {
        return;
    }
    let dir = folder();
    let (code, out, err) = writepath(dir.path(), &args("ext4", &["--compare-mount", ""]));
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("requests with the same contents"), "{out}");
    let (code, out, err) =
        writepath(dir.path(), &args("ext4", &["--compare-mount", "data=journal"]));
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("requests: ") && out.contains("request "), "{out}");
}

/// The same bytes are recovered to the same files by both mounts, and a check that sees the mount
/// tells them apart in every state.
#[test]
fn two_mounts_recover_the_same_states_and_verdicts_of_a_check_are_compared() {
    if !is_there("states of a real ext4 that two mounts recover") {
        return;
    }
    let dir = folder();
    let explore = ["--compare-mount", "data=journal", "--explore", "--sample", "12", "--json"];
    let apart = "! grep -q data=journal /proc/mounts";
    for (check, differing) in [("./check.sh", false), (apart, true)] {
        let (code, out, err) =
            writepath(dir.path(), &args("ext4", &[&explore[..], &["--check", check]].concat()));
        assert_eq!(code, 1, "the requests differ\n{out}{err}");
        let all: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
        let states = &all["states"];
        let count = |key: &str| states[key].as_u64().expect("a number");
        assert_eq!(count("mounted"), 12 + count("prefixes"), "{states}");
        assert!(count("prefixes") > 0, "{states}");
        let equal = if differing { 0 } else { count("mounted") };
        assert_eq!(count("equal"), equal, "{states}");
    }
}

#[test]
fn a_kernel_that_keeps_its_promises_keeps_them_at_each_prefix_of_its_log() {
    if !is_there("crash states of a real ext4 that it recovers itself") {
        return;
    }
    let dir = folder();
    let explore = ["--explore", "--recover-as", "kernel", "--sample", "12", "--json", "--check"];
    for (check, code) in [("./check.sh", 0), ("! grep -q f2 $WRITEPATH_ACKED", 1)] {
        let more = [&explore[..], &[check]].concat();
        let (exit, out, err) = writepath(dir.path(), &args("ext4", &more));
        assert_eq!(exit, code, "{out}{err}");
        let all = last(&out, &err);
        let (mounted, prefixes) = (&all["mounted"], all["prefixes"].as_u64().expect("a number"));
        assert!(*mounted == 12 && prefixes > 12, "{all}");
        // Behind the second of three acknowledgements are some of them, not all.
        let broken = all["broken_at_prefixes"]["O8-application"].as_u64().expect("a number");
        assert_eq!((1..prefixes).contains(&broken), code == 1, "{all}");
    }
}

/// A budget ends the guest, and the state at which it ended is no verdict.
#[test]
fn states_that_the_budget_leaves_out_are_told_and_are_no_success() {
    if !is_there("a budget of states") {
        return;
    }
    let dir = folder();
    let run = "--run=echo x > f; sync; echo y > g; sync";
    let more = ["--explore", "--recover-as", "kernel", "--budget", "1ns", run];
    let (code, out, err) =
        writepath(dir.path(), &[&["kernel-lab", "--fs", "ext4"], &more[..]].concat());
    assert_eq!(code, 130, "{out}{err}");
    assert!(err.contains("--budget is over: the kernel has mounted 0 of"), "{err}");
    assert!(out.contains("O0-recoverable       not checked") && !out.contains(" ok"), "{out}");
}

/// Bugs of `apps/kernel-bugs`, found again: a lost name, a lost length, a mount that fails.
#[test]
fn bugs_of_linux_are_found_in_what_it_sends_its_drive() {
    if !is_there("bugs of real kernels") {
        return;
    }
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/kernel-bugs/run");
    let find = |bug: &str| {
        let mut found = Command::new(&run);
        let found = found.args([bug, "--sample", "24", "--json"]);
        found.env("WRITEPATH", env!("CARGO_BIN_EXE_writepath")).output().expect("python3")
    };
    let promise = "O8-application";
    for (bug, rule) in [("N18", promise), ("N4", promise), ("N31", "O0-recoverable")] {
        let out = find(bug);
        let (said, err) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{bug}: {said}{err}");
        let all = last(&said, &err);
        assert!(all["broken"][rule].as_u64().is_some_and(|n| n > 0), "{bug}: {all}");
    }
    // Usage.
    assert!(!find("N1").status.success());
}
