//! The programs of `apps`, each with settings that are safe and with some that are not: what their
//! documentation says they keep must be kept, and what it says they lose must be found lost.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::programs::{BINARY, app, can_mount, crash, document, has, said};

/// How a server is explored in a test: not its preparation, and few states of each crash point.
const SERVER: [&str; 6] = ["--after-acks", "1", "--max-states", "1", "--check-timeout", "60s"];

/// In how many states the checker of an application refuses what it has acknowledged. `settings`:
/// arguments of its `run`; `word`: that of its `check`.
fn broken(dir: &Path, name: &str, settings: &str, word: &str, more: &[&str]) -> u64 {
    let checker = format!("{} {word}", app(&format!("{name}/check")));
    let run = app(&format!("{name}/run"));
    let command: Vec<&str> = [run.as_str()].into_iter().chain(settings.split(' ')).collect();
    let shm = Path::new("/dev/shm").is_dir().then_some(["--check-dir", "/dev/shm"]);
    let fixed = ["--json", "--no-check", "--minimise", "0", "--checker", &checker];
    let args: Vec<&str> =
        fixed.iter().chain(more).copied().chain(shm.into_iter().flatten()).collect();
    let done = crash(dir, &args, &command);
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(matches!(done.status.code(), Some(0 | 1)), "{name} {settings}: {out} {}", said(&done));
    let (last, _) = document(&done);
    let checked = last["check_cmd"]["runs"].as_u64().expect("a number");
    assert!(checked >= 3, "{name} {settings}: {last}");
    last["broken"]["O8-application"].as_u64().unwrap_or(0)
}

/// SQLite's own documentation says which of its settings keep what; so must the states.
#[test]
fn sqlite_keeps_what_its_settings_promise_and_loses_the_rest() {
    let check = "applications::sqlite_keeps_what_its_settings_promise_and_loses_the_rest";
    if !can_mount(check) || !has("python3", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str, word: &str| broken(dir.path(), "sqlite", settings, word, &[]);
    // Every transaction that was acknowledged is there.
    for settings in ["delete extra 5", "truncate full 5", "wal full 5"] {
        assert_eq!(go(settings, ""), 0, "{settings}");
    }
    // The removal of the journal is not durable, so that the last one may be rolled back.
    assert!(go("delete full 5", "") > 0);
    assert_eq!(go("delete full 5", "lost"), 0);
    assert!(go("wal normal 5", "") > 0);
    assert_eq!(go("wal normal 5", "lost"), 0);
    // The database is damaged.
    assert!(go("wal off 20", "lost") > 0);
}

#[test]
fn lmdb_is_safe_and_is_not_without_its_syncs() {
    let check = "applications::lmdb_is_safe_and_is_not_without_its_syncs";
    if !can_mount(check) || !has("python3", check) {
        return;
    }
    let probe = "import ctypes.util,sys; sys.exit(ctypes.util.find_library('lmdb') is None)";
    let found = Command::new("python3").args(["-c", probe]).status();
    if !found.is_ok_and(|s| s.success()) {
        return wp_machine::testing::skipped(check, "needs liblmdb (Debian: liblmdb0)");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |flags: &str, word: &str| broken(dir.path(), "lmdb", flags, word, &[]);
    assert_eq!(go("safe 8", ""), 0);
    assert!(go("nosync 8", "") > 0);
}

#[test]
fn git_needs_its_fsyncs_and_that_of_a_directory() {
    let check = "applications::git_needs_its_fsyncs_and_that_of_a_directory";
    if !can_mount(check) || !has("python3", check) || !has("git", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str, word: &str| broken(dir.path(), "git", settings, word, &[]);
    assert_eq!(go("all+dir 2", ""), 0);
    // The name of a branch is renamed into place, and its directory is not synced.
    assert!(go("all 2", "") > 0);
    assert_eq!(go("all 2", "lost"), 0);
    assert!(go("none 3", "lost") > 0);
}

#[test]
fn redis_loses_what_it_has_not_synced_and_starts() {
    let check = "applications::redis_loses_what_it_has_not_synced_and_starts";
    if !can_mount(check) || !has("python3", check) || !has("redis-server", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str, word: &str| broken(dir.path(), "redis", settings, word, &[]);
    assert_eq!(go("always 10", ""), 0);
    assert!(go("everysec 10", "") > 0);
    assert_eq!(go("everysec 10", "lost"), 0);
}

#[test]
fn etcd_loses_what_it_has_not_synced() {
    let check = "applications::etcd_loses_what_it_has_not_synced";
    if !can_mount(check) || !has("python3", check) || !has("etcd", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str| broken(dir.path(), "etcd", settings, "", &SERVER);
    assert_eq!(go("safe 5"), 0);
    assert!(go("--unsafe-no-fsync 5") > 0);
}

#[test]
fn dpkg_installs_whole_files_unless_its_syncs_are_off() {
    let check = "applications::dpkg_installs_whole_files_unless_its_syncs_are_off";
    if !can_mount(check) || !has("python3", check) || !has("dpkg-deb", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str| broken(dir.path(), "dpkg", settings, "", &["--after-acks", "1"]);
    assert_eq!(go("safe 2"), 0);
    assert!(go("--force-unsafe-io 2") > 0);
}

#[test]
fn rocksdb_loses_what_is_written_without_sync() {
    let check = "applications::rocksdb_loses_what_is_written_without_sync";
    if !can_mount(check) || !has("python3", check) {
        return;
    }
    let found = Command::new("sh").args(["-c", "ls /usr/lib/*/librocksdb.so.*"]).output();
    if !found.is_ok_and(|o| o.status.success()) {
        return wp_machine::testing::skipped(check, "needs librocksdb (Debian: rocksdb-tools)");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str| broken(dir.path(), "rocksdb", settings, "", &["--after-acks", "1"]);
    assert_eq!(go("sync 10"), 0);
    assert!(go("nosync 10") > 0);
}

#[test]
fn postgresql_survives_and_does_not_without_fsync() {
    let check = "applications::postgresql_survives_and_does_not_without_fsync";
    let found = "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb";
    let found = Command::new("sh").args(["-c", found]).output();
    if !can_mount(check) || !has("python3", check) || !has("unshare", check) {
        return;
    }
    if !found.is_ok_and(|o| o.status.success()) || !has("psql", check) {
        return wp_machine::testing::skipped(check, "needs initdb (Debian: postgresql)");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str| broken(dir.path(), "postgres", settings, "", &SERVER);
    assert_eq!(go("safe 4"), 0);
    assert!(go("fsync=off 4") > 0);
}

#[test]
fn innodb_keeps_each_commit_and_not_with_a_log_that_is_not_synced() {
    let check = "applications::innodb_keeps_each_commit_and_not_with_a_log_that_is_not_synced";
    let is_there = ["python3", "mariadbd", "mariadb-install-db", "mariadb"];
    if !can_mount(check) || !is_there.iter().all(|program| has(program, check)) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let go = |settings: &str| broken(dir.path(), "innodb", settings, "", &SERVER);
    assert_eq!(go("safe 4"), 0);
    assert!(go("flush_log_at_trx_commit=2 4") > 0);
}

/// `--after-acks` leaves out what an exploration of everything shows with fewer acknowledgements,
/// and nothing else; `--max-states` leaves out some.
#[test]
fn crash_points_before_an_acknowledgement_are_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = "open 0 a rw,creat\npwrite 0 8192 0 1\nfsync 0\nack 0\npwrite 0 8192 4096 2\n\
        pwrite 0 4096 16384 3\nack 1\nmkdir d\nfsync 0\nack 2\nopen 1 d/b rw,creat\n\
        pwrite 1 9000 0 4\nfdatasync 1\nack 3\nrename d/b d/c\nsync\n";
    fs::write(dir.path().join("p.txt"), program).expect("written");
    // A line for each tree: how many lines were acknowledged, and a sum of the files.
    let look = "while IFS=\"$(printf '\\t')\" read -r tree acked; do \
        cd \"$tree\"; echo $(wc -l < \"$acked\") $(find . | sort | cksum) \
        $(find . -type f | sort | xargs -r cksum | cksum) >> \"$LOG\"; echo ok; done";
    let seen = |log: &str, more: &[&str]| {
        let log = dir.path().join(log);
        let done = Command::new(BINARY)
            .args(["crash", "p.txt", "--workers", "1", "--checker", look])
            .args(more)
            .env("LOG", &log)
            .current_dir(dir.path())
            .output()
            .expect("run");
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        let text = fs::read_to_string(log).expect("a log");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let states = said.lines().find_map(|l| l.trim().strip_prefix("crash states "));
        (lines, states.and_then(|n| n.trim().parse().ok()).expect("a number"))
    };
    let all: (Vec<String>, u64) = seen("all", &[]);
    for after in 1..=4u64 {
        let acks = |l: &String| l.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0u64);
        let expected: Vec<String> = all.0.iter().filter(|l| acks(l) >= after).cloned().collect();
        assert!(!expected.is_empty() && expected.len() < all.0.len(), "{after}: {all:?}");
        let seen = seen(&format!("after{after}"), &["--after-acks", &after.to_string()]);
        assert_eq!(seen.0, expected);
    }
    let few = seen("few", &["--max-states", "1"]);
    assert!(few.0.iter().all(|l| all.0.contains(l)), "{few:?}");
    assert!(few.1 < all.1, "{} of {} states", few.1, all.1);
    let too_many = Command::new(BINARY)
        .args(["crash", "p.txt", "--after-acks", "5"])
        .current_dir(dir.path())
        .output()
        .expect("run");
    assert_eq!(too_many.status.code(), Some(2));
    assert!(said(&too_many).contains("makes 4 acknowledgements"), "{}", said(&too_many));
}
