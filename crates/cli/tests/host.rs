//! What the program does to its user's files, processes and sockets.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

fn program(dir: &Path, args: &[&str]) -> Command {
    // Who starts the tests may ignore a hangup (nohup), and the program would then, too.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_writepath")]);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    program(dir, args).output().expect("run")
}

fn code(dir: &Path, args: &[&str]) -> Option<i32> {
    run(dir, args).status.code()
}

/// A program under way. It ends with its test, also with one that fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for Started {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// A program under way, whose stderr is in `said`.
fn start(dir: &Path, args: &[&str]) -> Started {
    let said = File::create(dir.join("said")).expect("made");
    Started(program(dir, args).stdout(Stdio::null()).stderr(said).spawn().expect("started"))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let found = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        holds()
    });
    assert!(found, "it never comes: {what}");
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is there");
}

/// Waits until a program says that it will stop, or has stopped.
fn hear_of_the_first_signal(of: &mut Child, dir: &Path) {
    eventually("the first signal", || {
        let said = fs::read_to_string(dir.join("said")).expect("read");
        said.contains("a second signal stops at once") || of.try_wait().expect("asked").is_some()
    });
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("listed");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("listed").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The one folder in a folder.
fn only(dir: &Path) -> PathBuf {
    let names = names(dir);
    assert_eq!(names.len(), 1, "{names:?}");
    dir.join(&names[0])
}

/// Is a process there whose number is in `file`?
fn lives(file: &Path) -> bool {
    let number = fs::read_to_string(file).expect("its number");
    let stat = fs::read_to_string(Path::new("/proc").join(number.trim()).join("stat"));
    stat.is_ok_and(|s| !s.contains(") Z "))
}

const RUN: [&str; 7] = ["run", "--fs", "ext4", "--workload", "fsync-last", "--seed", "1"];

#[test]
fn a_server_saves_at_every_signal_and_its_sockets_are_private() {
    for end in [Signal::INT, Signal::TERM, Signal::HUP] {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path();
        let args = "serve nbd --device fixed,capacity_bytes=1048576 --socket s --control c \
                    --save disk.img --trace trace --log-writes log";
        let mut server = start(at, &args.split_whitespace().collect::<Vec<_>>());
        eventually("the control socket", || at.join("c").exists());
        for socket in ["s", "c"] {
            let meta = fs::symlink_metadata(at.join(socket)).expect("there");
            assert!(meta.file_type().is_socket());
            assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{socket}");
        }
        signal(&server, end);
        let status = server.wait().expect("ended");
        let said = fs::read_to_string(at.join("said")).expect("read");
        assert_eq!(status.code(), Some(0), "{end:?}: {said}");
        assert_eq!(names(at), ["disk.img", "log", "said", "trace"], "{end:?}");
        assert_eq!(fs::metadata(at.join("disk.img")).expect("there").len(), 1 << 20);
    }
}

#[test]
fn a_line_of_the_control_socket_replaces_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::write(at.join("mine"), "the user's").expect("written");
    let args = "serve nbd --device fixed,capacity_bytes=1048576 --socket s --control c";
    let mut server = start(at, &args.split_whitespace().collect::<Vec<_>>());
    eventually("the control socket", || at.join("c").exists());
    let mut control = UnixStream::connect(at.join("c")).expect("connected");
    control.write_all(b"save mine\nsave new\nquit\n").expect("written");
    let mut answers = String::new();
    control.read_to_string(&mut answers).expect("read");
    let answers: Vec<&str> = answers.lines().collect();
    assert!(answers[0].contains("it exists") && answers[0].contains("\"ok\":false"), "{answers:?}");
    assert!(answers[1].contains("\"ok\":true"), "{answers:?}");
    assert!(server.wait().expect("ended").success());
    assert_eq!(fs::read(at.join("mine")).expect("read"), b"the user's");
    assert_eq!(fs::metadata(at.join("new")).expect("there").len(), 1 << 20);
}

#[test]
fn an_image_whose_name_is_taken_meanwhile_is_kept_beside_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let args = "serve nbd --device fixed,capacity_bytes=1048576 --socket s --control c --save end";
    let mut server = start(at, &args.split_whitespace().collect::<Vec<_>>());
    eventually("the control socket", || at.join("c").exists());
    let control = |lines: &[&str]| run(at, &[&["serve", "control", "c"][..], lines].concat());
    let asked = control(&["status", "save end"]);
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    assert!(String::from_utf8_lossy(&asked.stdout).contains("save end: {\"bytes\":1048576"));
    // A line that is refused ends it with 1, and those behind it are not sent.
    assert_eq!(control(&["save end", "quit"]).status.code(), Some(1));
    assert!(control(&["quit"]).status.success());
    assert_eq!(server.wait().expect("ended").code(), Some(2));
    let said = fs::read_to_string(at.join("said")).expect("read");
    assert!(said.contains("end.1"), "{said}");
    for name in ["end", "end.1"] {
        assert_eq!(fs::metadata(at.join(name)).expect("there").len(), 1 << 20, "{name}");
    }
    assert_eq!(control(&["status"]).status.code(), Some(74), "nobody is there any more");
    assert_eq!(control(&["a\nb"]).status.code(), Some(2));
}

#[test]
fn what_a_check_command_has_started_ends_with_the_program() {
    for (end, expected) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path();
        fs::create_dir(at.join("trees")).expect("made");
        // Apart from what is counted below: a run may be ended between its two steps.
        let runs = tempfile::tempdir().expect("a directory");
        let pid = runs.path().join("pid");
        let check = format!("sleep 1000 & echo $! >{0}.$$; mv {0}.$$ {0}; wait", pid.display());
        let args = [
            "crash",
            "wild",
            "--count",
            "4",
            "--accept",
            "known.toml",
            "--check-dir",
            "trees",
            "--check-timeout",
            "1h",
            "--check",
            &check,
        ];
        let mut crash = start(at, &args);
        eventually("a run of the command", || pid.exists());
        let scratch = only(&at.join("trees"));
        let mode = fs::metadata(&scratch).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(lives(&pid));
        signal(&crash, end);
        hear_of_the_first_signal(&mut crash, at);
        // It may have ended by itself meanwhile.
        let _ = kill_process(Pid::from_child(&crash), Signal::TERM);
        assert_eq!(crash.wait().expect("ended").code(), Some(expected), "{end:?}");
        // The list is whole if the first signal was enough for an end in order, or not there.
        let left: Vec<String> = names(at).into_iter().filter(|n| n != "known.toml").collect();
        assert_eq!(left, ["said", "trees"]);
        assert_eq!(names(&at.join("trees")), [""; 0]);
        eventually("the end of what it started", || !lives(&pid));
    }
}

#[test]
fn a_check_command_that_takes_too_long_ends_with_all_that_it_started() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let check = format!("sleep 1000 & echo $! >{}; wait", at.join("pid").display());
    let args = [
        "crash",
        "open 0 a rw,creat; fsync 0",
        "--check-timeout",
        "1s",
        "--minimise",
        "0",
        "--check-dir",
        ".",
        "--budget",
        "1s",
        "--check",
        &check,
    ];
    assert_ne!(code(at, &args), Some(74));
    eventually("the end of what it started", || !lives(&at.join("pid")));
    assert_eq!(names(at), ["pid"]);
}

#[test]
fn a_check_directory_must_exist() {
    let dir = tempfile::tempdir().expect("a directory");
    let done = run(dir.path(), &["crash", "wild", "--check", "true", "--check-dir", "a/b"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: --check-dir: a/b: "), "{said}");
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn an_image_is_made_beside_the_users_files_and_never_in_place_of_a_node() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let mkfs = |image: &str, more: &[&str]| {
        let mut args = vec!["mkfs", "ext4", image, "--size", "16M"];
        args.extend(more);
        run(at, &args)
    };
    fs::write(at.join("victim"), "the user's").expect("written");
    symlink("victim", at.join("disk.part")).expect("linked");
    assert!(mkfs("disk.img", &[]).status.success());
    assert_eq!(fs::read(at.join("victim")).expect("read"), b"the user's");
    assert_eq!(mkfs("disk.img", &[]).status.code(), Some(2), "it exists");
    assert!(mkfs("disk.img", &["--force"]).status.success());
    assert!(Command::new("mkfifo").arg(at.join("pipe")).status().expect("run").success());
    symlink("missing", at.join("nowhere")).expect("linked");
    for (image, why) in [
        ("pipe", "it is not a regular file: an image needs one"),
        ("/dev/full", "it is not a regular file: an image needs one"),
        ("/dev/stdout", "it is not a regular file: an image needs one"),
        ("nowhere", "it is a dangling symbolic link"),
        ("missing/disk.img", "no such directory"),
        (".", "it is a directory"),
    ] {
        let done = mkfs(image, &["--force"]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(74), "{image}: {said}");
        assert_eq!(said, format!("error: {image}: {why}\n"));
    }
    // Too small: the file system is refused when the output is begun already.
    assert_ne!(code(at, &["mkfs", "ext4", "new.img", "--size", "4K"]), Some(0));
    assert_eq!(names(at), ["disk.img", "disk.part", "nowhere", "pipe", "victim"]);
    assert!(fs::metadata("/dev/full").expect("there").file_type().is_char_device());
}

/// Every verb that writes a file: its arguments, with OUT for the file, and whether work of minutes
/// would go before.
const OUTPUTS: [&str; 12] = [
    "run --fs ext4 --workload fsync-last --save-image OUT",
    "run --fs ext4 --workload fio,job=long.fio --fio-json OUT",
    "serve nbd --device fixed --socket s --save OUT",
    "serve nbd --device fixed --socket s --trace OUT",
    "serve nbd --device fixed --socket s --log-writes OUT",
    "serve vhost-user-blk --device fixed --socket s --save OUT",
    "crash show wild 1 --image OUT",
    "crash wild --count 1000000 --accept OUT",
    "mkfs ext4 OUT --size 64M",
    "calibrate missing --class ssd --out OUT",
    "explain missing --flow --out OUT",
    "trace result --to csv --out OUT",
];

#[test]
fn outputs_are_tried_before_work_begins_and_replace_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::write(at.join("there"), "the user's").expect("written");
    let job = "[j]\nfilename=f\nrw=write\nbs=4k\nsize=64m\nloops=1000000\nfsync=1\n";
    fs::write(at.join("long.fio"), job).expect("written");
    fs::create_dir(at.join("result")).expect("made");
    let event = concat!(
        r#"{"t":0,"task":"t","e":"block","a":"D","op":"Write","#,
        r#""fl":0,"s":0,"n":8,"x":0}"#
    );
    fs::write(at.join("result/events.ndjson"), event).expect("written");
    let before = names(at);
    for line in OUTPUTS {
        for (out, expected) in [("there", 2), ("no/such/file", 74), ("there/below", 74), (".", 74)]
        {
            let line = line.replace("OUT", out);
            let done = run(at, &line.split_whitespace().collect::<Vec<_>>());
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(expected), "{line}: {said}");
            assert!(said.starts_with(&format!("error: {out}")), "{line}: {said}");
            assert_eq!(names(at), before, "{line}");
        }
    }
    assert_eq!(fs::read(at.join("there")).expect("read"), b"the user's");
    for line in [
        "run --fs ext4 --workload fio,job=long.fio --out OUT",
        "reproduce ext4-fsync --out OUT",
        "matrix --out OUT",
        "perturb --out OUT",
        "crash wild --count 1000000 --reproducer OUT",
    ] {
        let line = line.replace("OUT", "there/below");
        let done = run(at, &line.split_whitespace().collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(74), "{line}: {said}");
        assert!(said.contains("ot a directory"), "{line}: {said}");
    }
}

#[test]
fn text_goes_through_stdout_and_pipes() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    assert!(run(at, &RUN).status.success());
    let result = only(&at.join("results/fsync-last"));
    let result = result.display().to_string();
    let whole = run(at, &["trace", &result, "--to", "csv"]).stdout;
    let through = run(at, &["trace", &result, "--to", "csv", "--out", "/dev/stdout"]).stdout;
    assert!(through.starts_with(&whole) && !whole.is_empty());
    // What stood in the file before stays before.
    let mut file = File::create(at.join("log")).expect("made");
    file.write_all(b"before\n").expect("written");
    let out = file.try_clone().expect("cloned");
    let args = ["trace", &result, "--to", "csv", "--out", "/dev/stdout"];
    assert!(program(at, &args).stdout(out).status().expect("run").success());
    let log = fs::read(at.join("log")).expect("read");
    assert!(log.starts_with(&[b"before\n", &whole[..]].concat()));
    assert_eq!(code(at, &["trace", &result, "--to", "csv", "--out", "/dev/full"]), Some(74));
    assert!(fs::metadata("/dev/stdout").is_ok());
}

#[test]
fn a_second_run_keeps_what_is_not_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    assert!(run(at, &RUN).status.success());
    let all = at.join("results/fsync-last");
    let result = only(&all);
    let events = fs::read(result.join("events.parquet")).expect("read");
    assert!(!events.is_empty());
    fs::write(result.join("notes.txt"), "the user's").expect("written");
    assert!(run(at, &RUN).status.success());
    assert_eq!(fs::read(result.join("notes.txt")).expect("read"), b"the user's");
    let quiet = run(at, &[&RUN[..], &["--no-events"]].concat());
    assert!(quiet.status.success());
    assert_eq!(fs::read(result.join("events.parquet")).expect("read"), events);
    assert_eq!(names(&all).len(), 2, "a run without events has a folder of its own");
    // A file that no result has written stays, and the run says so.
    fs::remove_file(result.join("MANIFEST.json")).expect("removed");
    fs::write(result.join("summary.json"), "the user's").expect("written");
    let refused = run(at, &RUN);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("summary.json"), "{said}");
    assert_eq!(fs::read(result.join("summary.json")).expect("read"), b"the user's");
}

#[test]
fn equal_runs_at_once_all_succeed() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let start = || program(at, &RUN).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let runs: Vec<Child> = (0..6).map(|_| start().expect("started")).collect();
    for mut run in runs {
        assert!(run.wait().expect("ended").success());
    }
    let result = only(&at.join("results/fsync-last"));
    let manifest = fs::read(result.join("MANIFEST.json")).expect("read");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let listed = manifest.as_object().expect("names and hashes");
    assert_eq!(listed.len() + 1, names(&result).len());
    for (name, hash) in listed {
        let bytes = fs::read(result.join(name)).expect("read");
        assert_eq!(wp_machine::results::sha256(&bytes), hash.as_str().expect("a hash"), "{name}");
    }
}

#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let args = "serve nbd --device fixed --socket s --control c";
    let said = File::create(at.join("said")).expect("made");
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_writepath")).args(args.split_whitespace()).current_dir(at);
    nohup.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let mut server = nohup.spawn().expect("started");
    eventually("the control socket", || at.join("c").exists());
    signal(&server, Signal::HUP);
    let mut control = UnixStream::connect(at.join("c")).expect("it is still there");
    control.write_all(b"status\n").expect("written");
    let mut answer = [0; 1];
    control.read_exact(&mut answer).expect("answered");
    signal(&server, Signal::TERM);
    assert!(server.wait().expect("ended").success());
}

/// Mounts and loop devices below a directory.
fn attached(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let mounts = fs::read("/proc/self/mounts").expect("read");
    let mounts = String::from_utf8_lossy(&mounts).into_owned();
    let loops = Command::new("losetup").arg("--all").output().map(|o| o.stdout);
    let loops = String::from_utf8_lossy(&loops.unwrap_or_default()).into_owned();
    let all = mounts.lines().chain(loops.lines()).map(str::to_owned);
    all.filter(|line| line.contains(&dir)).collect()
}

#[test]
fn loop_devices_and_mounts_go_with_the_second_signal() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let (at, here) = (dir.path(), dir.path().display().to_string());
    let mut crash = start(at, &["kernels", "crash", "--states", "100000000", "--dir", &here]);
    let mut ended = false;
    eventually("a mount", || {
        ended = crash.try_wait().expect("asked").is_some();
        ended || attached(at).iter().any(|line| line.starts_with("/dev/loop"))
    });
    if ended {
        let said = fs::read_to_string(at.join("said")).expect("read");
        assert!(said.contains("kernels crash was skipped"), "{said}");
        wp_machine::testing::skipped("loop devices after a signal", said.trim());
        return;
    }
    signal(&crash, Signal::TERM);
    hear_of_the_first_signal(&mut crash, at);
    // It may have ended by itself meanwhile.
    let _ = kill_process(Pid::from_child(&crash), Signal::INT);
    assert_eq!(crash.wait().expect("ended").code(), Some(143));
    eventually("the end of the loop devices", || attached(at).is_empty());
    assert_eq!(names(at), ["said"]);
}
