//! Programs of this host on file systems of ours: recorded, crashed, mounted.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_writepath");

/// May this process mount FUSE file systems? If not, the check is skipped by its name.
pub(crate) fn can_mount(check: &str) -> bool {
    let door = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let is_root = rustix::process::geteuid().is_root();
    if door.is_ok() && is_root {
        return true;
    }
    wp_machine::testing::skipped(check, "needs root and /dev/fuse");
    false
}

pub(crate) fn has(program: &str, check: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    if found.is_ok_and(|o| o.status.success()) {
        return true;
    }
    wp_machine::testing::skipped(check, &format!("needs {program}"));
    false
}

pub(crate) fn app(path: &str) -> String {
    wp_machine::testing::repository("apps").join(path).to_str().expect("a path").to_owned()
}

pub(crate) fn crash(dir: &Path, args: &[&str], command: &[&str]) -> Output {
    let mut program = Command::new(BINARY);
    program.arg("crash").args(args).arg("--").args(command).current_dir(dir);
    program.stdin(Stdio::null()).output().expect("run")
}

/// The last line of `crash --json`, and all of them.
pub(crate) fn document(output: &Output) -> (Value, Vec<Value>) {
    let text = String::from_utf8_lossy(&output.stdout);
    let all: Vec<Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("an object a line")).collect();
    (all.last().cloned().expect("a line"), all)
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_program_is_found_where_the_user_names_it_from() {
    if !can_mount("programs::a_program_is_found_where_the_user_names_it_from") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("bin")).expect("made");
    for name in ["app.sh", "bin/app.sh"] {
        let path = dir.path().join(name);
        fs::write(&path, "#!/bin/sh\necho stored > f; sync f\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    }
    for name in ["./app.sh", "bin/app.sh", "./bin/../app.sh"] {
        let done = crash(dir.path(), &["--max-states", "1"], &[name]);
        assert_eq!(done.status.code(), Some(0), "{name}: {}", said(&done));
        assert!(said(&done).contains(&format!("{name}: exit 0, ")), "{}", said(&done));
    }
    // As for a shell: a plain name is one of PATH.
    let done = crash(dir.path(), &[], &["app.sh"]);
    assert_eq!(done.status.code(), Some(2), "{}", said(&done));
    assert!(said(&done).contains("error: app.sh: No such file"), "{}", said(&done));
}

#[test]
fn what_a_program_of_the_host_does_is_a_program_of_ours() {
    if !can_mount("programs::what_a_program_of_the_host_does_is_a_program_of_ours") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = "umask 022; printf hi > a; mkdir 'd d'; mv a 'd d/b'; ln 'd d/b' c; ln -s c l; \
                  printf 'one\\ntw' > $WRITEPATH_ACK; printf 'o\\n' > $WRITEPATH_ACK; \
                  sync 'd d/b'; chmod 600 c; truncate -s 5 c; rm c; \
                  (umask 077; : > private); ls -a | grep -c writepath; exit 3";
    let done = crash(dir.path(), &["--record", "recorded.txt"], &["sh", "-c", script]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let told = said(&done);
    assert!(told.contains("sh: exit 3, "), "{told}");
    assert!(told.contains("2 acknowledgements"), "{told}");
    assert!(told.starts_with("0\n"), "the file of acknowledgements is in no listing: {told}");
    let whole = fs::read_to_string(dir.path().join("recorded.txt")).expect("a program");
    for task in ["sh", "mkdir", "mv", "ln", "sync"] {
        assert!(whole.contains(&format!("task {task}\n")), "{task}: {whole}");
    }
    let is_call = |l: &&str| !l.starts_with("task ") && !l.starts_with("think ");
    let calls = whole.lines().filter(is_call);
    let recorded: String = calls.flat_map(|l| [l, "\n"]).collect();
    let expected = "open 0 a rw,creat,trunc\n\
        pwrite 0 2 0 base64:aGk=\n\
        close 0\n\
        mkdir d\\040d\n\
        renameat2 a d\\040d/b noreplace\n\
        link d\\040d/b c\n\
        symlink c l\n\
        ack base64:b25l\n\
        ack base64:dHdv\n\
        open 0 c r\n\
        fsync 0\n\
        close 0\n\
        chmod c 0600\n";
    assert!(recorded.starts_with(expected), "{recorded}");
    assert!(recorded.contains("unlink c\n"), "{recorded}");
    assert!(recorded.contains("open 0 private rw,creat,trunc,mode=0600\n"), "{recorded}");
    assert!(recorded.ends_with("nap 60000000\n"), "{recorded}");
    // What was recorded is crashed again, with the same result.
    let line = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|l| !l.contains("speed")).map(str::to_owned).collect::<Vec<_>>()
    };
    let again = Command::new(BINARY)
        .args(["crash", "recorded.txt", "--size", "512M"])
        .current_dir(dir.path())
        .output()
        .expect("run");
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    assert_eq!(line(&done), line(&again));
    // On other file systems too, which were not there when it was recorded.
    for fs in ["f2fs", "btrfs", "nilfs2", "ext4,era=3.4"] {
        let other = Command::new(BINARY)
            .args(["crash", "recorded.txt", "--fs", fs])
            .current_dir(dir.path())
            .output()
            .expect("run");
        assert_eq!(other.status.code(), Some(0), "{fs}: {}", said(&other));
    }
}

#[test]
fn a_program_that_does_nothing_or_is_not_there_is_an_error() {
    if !can_mount("programs::a_program_that_does_nothing_or_is_not_there_is_an_error") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let nothing = crash(dir.path(), &[], &["true"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(said(&nothing).contains("no call that changes a file"), "{}", said(&nothing));
    let missing = crash(dir.path(), &[], &["./no-such-program"]);
    assert_eq!(missing.status.code(), Some(2), "{}", said(&missing));
    assert!(said(&missing).contains("no-such-program"), "{}", said(&missing));
}

/// A check that stays up sees trees one after the other; what it changes in one is not in the next.
#[test]
fn a_checker_that_stays_up_sees_what_a_command_for_each_tree_sees() {
    let check = "programs::a_checker_that_stays_up_sees_what_a_command_for_each_tree_sees";
    if !has("python3", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = "open 0 a rw,creat\npwrite 0 5000 0 1\nfsync 0\nmkdir d\nopen 1 d/b rw,creat\n\
        pwrite 1 3 0 base64:YWJj\nfsync 1\nlink a c\nack 1\nrename d/b a\nsymlink a l\n\
        ftruncate 1 1\nfsync 1\nack 2\nunlink c\nmkdir e\n\
        chmod e 0700\nopen 2 e/f rw,creat,excl,mode=0640\nchown e/f 12 34\nsync\nack 3\n";
    fs::write(dir.path().join("p.txt"), program).expect("written");
    // One line for each tree: names, kinds, lengths, links, contents, and what was acknowledged.
    let look = "import os,sys,hashlib,mmap\n\
        def see(tree, acked):\n\
        \x20   out = [open(acked).read().split()]\n\
        \x20   for root, dirs, files in sorted(os.walk(tree)):\n\
        \x20       for f in sorted(dirs + files):\n\
        \x20           p = os.path.join(root, f)\n\
        \x20           s = os.lstat(p)\n\
        \x20           what = os.readlink(p) if os.path.islink(p) else ''\n\
        \x20           if not what and not os.path.isdir(p):\n\
        \x20               what = hashlib.md5(open(p,'rb').read()).hexdigest()\n\
        \x20               what = (s.st_size, s.st_nlink, what)\n\
        \x20           out.append((os.path.relpath(p, tree), oct(s.st_mode), s.st_uid, what))\n\
        \x20   return repr(out)\n\
        log = open(sys.argv[1], 'a')\n\
        def spoil(tree):\n\
        \x20   for root, dirs, files in os.walk(tree):\n\
        \x20       for f in files:\n\
        \x20           p = os.path.join(root, f)\n\
        \x20           if os.path.islink(p): continue\n\
        \x20           if os.path.getsize(p) < 4096: open(p, 'r+b').write(b'spoiled')\n\
        \x20           else:\n\
        \x20               with open(p, 'r+b') as file: mmap.mmap(file.fileno(), 0)[4000] = 7\n\
        \x20   open(os.path.join(tree, 'more'), 'w').write('x')\n\
        \x20   os.makedirs(os.path.join(tree, 'd', 'e'), exist_ok=True)\n\
        \x20   if os.path.exists(os.path.join(tree, 'a')): os.unlink(os.path.join(tree, 'a'))\n\
        if len(sys.argv) > 2:\n\
        \x20   print(see(os.environ['WRITEPATH_TREE'], os.environ['WRITEPATH_ACKED']), file=log)\n\
        \x20   sys.exit()\n\
        for line in sys.stdin:\n\
        \x20   tree, acked = line.rstrip('\\n').split('\\t')\n\
        \x20   print(see(tree, acked), file=log, flush=True)\n\
        \x20   spoil(tree)\n\
        \x20   print('ok', flush=True)\n";
    fs::write(dir.path().join("look.py"), look).expect("written");
    let here = dir.path().display();
    // Stores through a mapping change no time of a file on tmpfs.
    let dirs = [dir.path(), Path::new("/dev/shm")];
    let seen = |option: &str, more: &str, log: &str, at: &Path| {
        let command = format!("python3 {here}/look.py {here}/{log} {more}");
        let at = at.to_str().expect("a path");
        let args = ["crash", "p.txt", "--workers", "1", "--check-dir", at, option, command.trim()];
        let done = Command::new(BINARY).args(args).current_dir(dir.path()).output().expect("run");
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        let mut lines: Vec<String> = fs::read_to_string(dir.path().join(log))
            .expect("a log")
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let each = seen("--check", "once", "each", dir.path());
    assert!(each.len() >= 6, "{each:?}");
    for (n, at) in dirs.iter().filter(|at| at.is_dir()).enumerate() {
        assert_eq!(each, seen("--checker", "", &format!("stays{n}"), at), "{at:?}");
    }
    // Modes are those of the file system, and owners too where this process may give files away.
    let last = each.iter().find(|l| l.contains("'e/f'")).expect("a tree with all files");
    assert!(last.contains("('e', '0o40700', "), "{last}");
    let owner = if rustix::process::geteuid().is_root() { "12" } else { "" };
    assert!(last.contains(&format!("('e/f', '0o100640', {owner}")), "{last}");
    // Answers that are none, and checkers that end, are told.
    for (answer, code, what) in [
        ("while read l; do echo maybe; done", 74, "neither `ok` nor `bad REASON`"),
        ("read l; exit 7", 1, "the checker ended: exit status: 7"),
        ("while read l; do echo bad too small; done", 1, "too small"),
    ] {
        let args = ["crash", "p.txt", "--minimise", "0", "--checker", answer];
        let done = Command::new(BINARY).args(args).current_dir(dir.path()).output().expect("run");
        let text = format!("{}{}", said(&done), String::from_utf8_lossy(&done.stdout));
        assert_eq!(done.status.code(), Some(code), "{answer}: {text}");
        assert!(text.contains(what), "{answer}: {text}");
    }
}

/// Checkers side by side give the result of one, and one that ends without a reason is named.
#[test]
fn checkers_side_by_side_say_what_one_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = "open 0 a rw,creat\npwrite 0 5000 0 1\nfsync 0\nack 1\nmkdir d\n\
        open 1 d/b rw,creat\npwrite 1 9000 0 2\nack 2\nrename d/b c\nunlink a\nack 3\n\
        pwrite 1 300 4096 3\nsync\nack 4\n";
    fs::write(dir.path().join("p.txt"), program).expect("written");
    let go = |workers: &str, checker: &str| {
        let args = ["crash", "p.txt", "--json", "--workers", workers, "--checker", checker];
        let done = Command::new(BINARY).args(args).current_dir(dir.path()).output().expect("run");
        let out = String::from_utf8_lossy(&done.stdout).into_owned();
        (done.status.code(), out, said(&done))
    };
    // What was acknowledged third is not there; what comes first in the queue takes longest.
    let checker = "n=0; while IFS=\"$(printf '\\t')\" read -r tree acked; do n=$((n + 1)); \
        [ $n -gt 2 ] || sleep 0.1; \
        if grep -q 3 \"$acked\" && [ ! -e \"$tree/c\" ]; then echo bad c is not there; \
        elif [ -e \"$tree/d\" ] && [ ! -d \"$tree/d\" ]; then echo bad d; else echo ok; fi; done";
    let (code, one, _) = go("1", checker);
    assert_eq!(code, Some(1), "{one}");
    assert!(one.contains("c is not there") && one.contains("\"minimised\":[{"), "{one}");
    for workers in ["2", "7"] {
        assert_eq!((code, &one), (go(workers, checker).0, &go(workers, checker).1), "{workers}");
    }
    // One of them ends at its second tree, and another one answers for that tree.
    let ends = "n=0; while read -r tree; do n=$((n + 1)); \
        [ $n -lt 2 ] || ! mkdir \"$ONCE\" 2> /dev/null || exit 9; echo ok; done";
    let ends = ends.replace("$ONCE", &dir.path().join("once").display().to_string());
    let (code, out, told) = go("2", &ends);
    assert_eq!(code, Some(74), "{out} {told}");
    assert!(out.contains("checker 1 of 2: ") || out.contains("checker 2 of 2: "), "{out}");
    assert!(out.contains("a new one answers for the same tree: exit status: 9"), "{out}");
}

/// A mount of ours for a test; it ends with it.
struct Mount {
    child: Child,
    dir: PathBuf,
}

impl Mount {
    fn new(dir: &Path, args: &[&str]) -> Mount {
        fs::create_dir_all(dir).expect("made");
        let mut program = Command::new(BINARY);
        program.arg("mount").args(args).arg(dir).stdin(Stdio::null());
        let mut child = program.stdout(Stdio::piped()).spawn().expect("started");
        let before = fs::metadata(dir).expect("there").dev();
        let is_there = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            fs::metadata(dir).is_ok_and(|m| m.dev() != before)
                || child.try_wait().is_ok_and(|s| s.is_some())
        });
        assert!(is_there, "not mounted in 30 s");
        Mount { child, dir: dir.to_owned() }
    }

    /// Unmounts, and waits for the program.
    fn end(mut self) -> i32 {
        // What looked into it last may have it open for a moment longer on a busy host.
        let unmounted = (0..600).any(|_| {
            let is_done = Command::new("umount").arg(&self.dir).status().expect("run").success();
            is_done || {
                std::thread::sleep(Duration::from_millis(50));
                false
            }
        });
        assert!(unmounted, "busy for 30 s");
        self.child.wait().expect("ended").code().expect("a code")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same calls on a mount and in a directory of the host give the same answers and files.
fn exercise(dir: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut note = |what: &str, r: std::io::Result<String>| {
        out.push(match r {
            Ok(text) => format!("{what}: {text}"),
            Err(e) => format!("{what}: {:?}", e.raw_os_error()),
        });
    };
    let at = |p: &str| dir.join(p);
    let unit = |r: std::io::Result<()>| r.map(|()| String::new());
    note("mkdir", unit(fs::create_dir(at("d"))));
    note("mkdir again", unit(fs::create_dir(at("d"))));
    note("write", unit(fs::write(at("d/f"), vec![7u8; 10_000])));
    let file = fs::OpenOptions::new().read(true).write(true).open(at("d/f")).expect("open");
    note("pwrite", unit(file.write_all_at(b"hello", 20_000)));
    note("fsync", unit(file.sync_all()));
    note("cut", unit(file.set_len(20_003)));
    note("link", unit(fs::hard_link(at("d/f"), at("g"))));
    note("symlink", unit(symlink("d/f", at("l"))));
    note("read", fs::read(at("l")).map(|b| format!("{} {:?}", b.len(), &b[19_998..])));
    note("rename over", unit(fs::rename(at("d/f"), at("g"))));
    note("names", fs::metadata(at("g")).map(|m| format!("{} {}", m.nlink(), m.len())));
    note("rename", unit(fs::rename(at("d/f"), at("d/h"))));
    note("rmdir", unit(fs::remove_dir(at("d"))));
    note("unlink a directory", unit(fs::remove_file(at("d"))));
    note("chmod", unit(fs::set_permissions(at("g"), fs::Permissions::from_mode(0o4751))));
    note("mode", fs::metadata(at("g")).map(|m| format!("{:o}", m.mode())));
    note("long name", unit(fs::write(at(&"n".repeat(256)), b"")));
    note("not a directory", unit(fs::write(at("g/x"), b"")));
    note("append", {
        let mut more = fs::OpenOptions::new().append(true).open(at("g")).expect("open");
        std::io::Write::write_all(&mut more, b"tail").map(|()| String::new())
    });
    note("length", fs::metadata(at("d/h")).map(|m| m.len().to_string()));
    note("unlinked while open", {
        let open = fs::File::open(at("g")).expect("open");
        fs::remove_file(at("g")).expect("removed");
        fs::remove_file(at("d/h")).expect("removed");
        let mut bytes = [0; 4];
        open.read_exact_at(&mut bytes, 20_003).map(|()| format!("{bytes:?}"))
    });
    for n in 0..300 {
        fs::write(at(&format!("d/{n:03}")), n.to_string()).expect("written");
    }
    let mut names: Vec<String> = fs::read_dir(at("d"))
        .expect("a directory")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    note("300 files", Ok(names.join(" ")));
    note("remove all", unit(fs::remove_dir_all(at("d"))));
    let mut names: Vec<_> =
        fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    names.retain(|n| n != "lost+found" && n != ".nilfs");
    note("left", Ok(format!("{names:?}")));
    out
}

#[test]
fn a_mount_answers_as_the_host_does() {
    if !can_mount("programs::a_mount_answers_as_the_host_does") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let host = dir.path().join("host");
    fs::create_dir(&host).expect("made");
    let expected = exercise(&host);
    for fs_name in ["ext4,era=6.18", "f2fs", "btrfs", "nilfs2"] {
        let (at, image) = (dir.path().join("mnt"), dir.path().join(format!("{fs_name}.img")));
        let saved = image.to_str().expect("a path");
        let device = "fixed,capacity_bytes=268435456";
        let mount = Mount::new(&at, &["--fs", fs_name, "--device", device, "--save", saved]);
        assert_eq!(exercise(&at), expected, "{fs_name}");
        assert_eq!(mount.end(), 0, "{fs_name}");
        let fsck = Command::new(BINARY).arg("fsck").arg(&image).output().expect("run");
        assert_eq!(fsck.status.code(), Some(0), "{fs_name}: {}", said(&fsck));
    }
}

#[test]
fn whoever_is_killed_leaves_no_mount_and_no_process() {
    if !can_mount("programs::whoever_is_killed_leaves_no_mount_and_no_process") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let temporary = dir.path().join("tmp");
    fs::create_dir(&temporary).expect("made");
    // A number that no other process sleeps.
    let script = "echo x > a; setsid sleep 98731 & sleep 98731";
    let sleeping = || {
        let found = Command::new("pgrep").args(["-x", "-f", "sleep 98731"]).output();
        found.is_ok_and(|o| o.status.success())
    };
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        let mut child = Command::new(BINARY)
            .args(["crash", "--", "sh", "-c", script])
            .env("TMPDIR", &temporary)
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        assert!((0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            sleeping()
        }));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a number");
        rustix::process::kill_process(pid, signal).expect("killed");
        child.wait().expect("ended");
        let are_gone = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            !sleeping()
        });
        assert!(are_gone, "{signal:?}");
    }
    let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
    assert!(!mounts.contains("fuse.writepath /"), "{mounts}");
    // It mounts on a directory that is there and empty, if this host has one.
    let is_empty = |dir: &&str| fs::read_dir(dir).is_ok_and(|mut all| all.next().is_none());
    if ["/mnt", "/media", "/srv"].iter().any(is_empty) {
        let left: Vec<_> = fs::read_dir(&temporary).expect("there").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Flags of files are calls of the recording; what FUSE does not pass on fails as on a file system
/// that lacks it.
#[test]
fn flags_of_files_are_passed_on_and_files_without_a_name_are_not() {
    let check = "programs::flags_of_files_are_passed_on_and_files_without_a_name_are_not";
    if !can_mount(check) || !has("chattr", check) || !has("python3", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = "echo x > a; chattr +a a; lsattr a; echo y > a || echo refused; echo y >> a; \
        chattr -a a; chattr +j a && echo journalled; mkdir d; chattr +D d; lsattr -d d; \
        python3 -c \"import os, errno
try: os.open('.', os.O_TMPFILE | os.O_RDWR)
except OSError as e: print(errno.errorcode[e.errno])
import fcntl
try: fcntl.ioctl(os.open('a', os.O_RDONLY), 0x1234)
except OSError as e: print(errno.errorcode[e.errno])\"";
    let done = crash(dir.path(), &["--record", "r.txt"], &["sh", "-c", script]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let told = said(&done);
    for line in ["-----a--------", "refused\n", "journalled\n", "ENOTSUP\n", "ENOTTY\n"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(told.lines().any(|l| l.ends_with(" d") && l.contains('D')), "{told}");
    let recorded = fs::read_to_string(dir.path().join("r.txt")).expect("a program");
    for call in ["chattr a append\n", "chattr a none\n", "chattr d dirsync\n"] {
        assert!(recorded.contains(call), "{call}: {recorded}");
    }
}

/// What a program does between its calls is in the recording, and takes time where that is asked
/// for.
#[test]
fn think_times_are_kept_where_that_is_asked_for() {
    let check = "programs::think_times_are_kept_where_that_is_asked_for";
    if !can_mount(check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = "echo x > a; sleep 0.3; echo y > b; sync b";
    let done = crash(dir.path(), &["--record", "r.txt"], &["sh", "-c", script]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let recorded = fs::read_to_string(dir.path().join("r.txt")).expect("a program");
    let thought = recorded.lines().filter_map(|l| l.strip_prefix("think "));
    let us: u64 = thought.filter_map(|us| us.parse::<u64>().ok()).sum();
    assert!(us > 250_000, "{recorded}");
    let elapsed_ns = |more: &[&str]| {
        let done = Command::new(BINARY)
            .args(["run", "--json", "--fs", "btrfs", "--replay", "r.txt"])
            .args(more)
            .current_dir(dir.path())
            .output()
            .expect("run");
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        let all: Value = serde_json::from_slice(&done.stdout).expect("a document");
        all["numbers"]["elapsed_ns"].as_u64().unwrap_or_else(|| panic!("{all}"))
    };
    let (kept, none) = (elapsed_ns(&["--think"]), elapsed_ns(&[]));
    assert!(kept >= us * 1000 && kept < us * 1000 + none * 2, "{kept} {none} {us}");
    // A recording of before has no such steps, and is the same program.
    let old: String = recorded.lines().filter(|l| !l.starts_with("think ")).map(line).collect();
    fs::write(dir.path().join("r.txt"), old).expect("written");
    assert_eq!(elapsed_ns(&["--think"]), none);
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

/// Mistakes that no tool shows which only forgets what was not synced: the directory, lengths that
/// are ahead of their data, and an fsync that succeeds after it has failed.
#[test]
fn mistakes_show_on_the_file_systems_that_do_not_forgive_them() {
    let check = "programs::mistakes_show_on_the_file_systems_that_do_not_forgive_them";
    if !can_mount(check) || !has("python3", check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let broken = |mistake: &str, is_fixed: bool| {
        let checker = format!("{} {mistake}", app("mistakes/check"));
        let mut args = vec!["--json", "--checker", &checker, "--device", "ssd-128"];
        for fs in ["ext4,era=6.18", "ext4,era=6.18,data=writeback,nodelalloc", "btrfs", "nilfs2"] {
            args.extend(["--fs", fs]);
        }
        let run = app("mistakes/run");
        let mut command = vec![run.as_str(), mistake];
        command.extend(is_fixed.then_some("fixed"));
        let done = crash(dir.path(), &args, &command);
        let (last, _) = document(&done);
        let modes = last["modes"].as_array().unwrap_or_else(|| panic!("{}", said(&done)));
        assert_eq!(modes.len(), 4, "{last}");
        let of = |m: &Value| {
            assert!(m["check_cmd"]["runs"].as_u64().is_some_and(|n| n > 3), "{m}");
            let has_speed = mistake != "retried-fsync";
            assert_eq!(m["speed"]["syncs"].as_u64().is_some_and(|n| n >= 8), has_speed, "{m}");
            m["broken"]["O8-application"].as_u64().expect("a number") > 0
        };
        modes.iter().map(of).collect::<Vec<bool>>()
    };
    assert_eq!(broken("no-directory-fsync", false), [true; 4]);
    assert_eq!(broken("no-directory-fsync", true), [false; 4]);
    assert_eq!(broken("size-ahead", false), [false, true, false, false]);
    assert_eq!(broken("size-ahead", true), [false; 4]);
    assert_eq!(broken("retried-fsync", false)[..2], [true; 2]);
    assert_eq!(broken("retried-fsync", true), [false; 4]);
}

#[test]
fn a_control_file_takes_steps_about_the_drive_and_nothing_else() {
    let check = "programs::a_control_file_takes_steps_about_the_drive_and_nothing_else";
    if !can_mount(check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = "echo x > a; echo 'fail everything' > $WRITEPATH_FAULT || echo refused; \
                  echo 'fsync 0' > $WRITEPATH_FAULT || echo refused too; \
                  echo 'fail write data 0 always' > $WRITEPATH_FAULT; \
                  sync a || echo it failed; echo heal > $WRITEPATH_FAULT; echo y > b; sync b";
    let done = crash(dir.path(), &["--record", "recorded.txt"], &["sh", "-c", script]);
    let told = said(&done);
    for line in ["refused\n", "refused too\n", "it failed\n"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let recorded = fs::read_to_string(dir.path().join("recorded.txt")).expect("a program");
    assert!(recorded.contains("fail write data 0 always\n"), "{recorded}");
    assert!(recorded.contains("expect EIO\nfsync 0\n"), "{recorded}");
    assert!(recorded.contains("heal\n"), "{recorded}");
    // It is known what failed: the states break no rule.
    assert_eq!(done.status.code(), Some(0), "{told}");
}

#[test]
fn a_full_file_system_is_enospc_for_the_program() {
    let check = "programs::a_full_file_system_is_enospc_for_the_program";
    if !can_mount(check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for fs in ["ext4", "f2fs", "btrfs", "nilfs2"] {
        let script = "dd if=/dev/zero of=big bs=1M count=240 2>&1 | grep 'No space left'; sync big";
        let args = ["--fs", fs, "--size", "192M", "--budget", "1s", "--no-check"];
        let done = crash(dir.path(), &args, &["sh", "-c", script]);
        assert!(said(&done).contains("No space left"), "{fs}: {}", said(&done));
    }
}

#[test]
fn an_exploration_of_a_program_goes_on_with_its_recording() {
    let check = "programs::an_exploration_of_a_program_goes_on_with_its_recording";
    if !can_mount(check) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    // Another recording each time.
    let script = "date +%N > a; sync a; date +%N > b; sync b";
    let command = ["sh", "-c", script];
    let needs = crash(dir.path(), &["--state-file", "s"], &command);
    assert_eq!(needs.status.code(), Some(2), "{}", said(&needs));
    assert!(said(&needs).contains("add --record"), "{}", said(&needs));
    let args = ["--json", "--record", "r.txt", "--state-file", "s"];
    let first = crash(dir.path(), &args, &command);
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    let recorded = fs::read(dir.path().join("r.txt")).expect("a recording");
    let again = crash(dir.path(), &args, &command);
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    assert!(said(&again).contains("not run again"), "{}", said(&again));
    assert_eq!(fs::read(dir.path().join("r.txt")).expect("a recording"), recorded);
    assert_eq!(document(&first).0["totals"], document(&again).0["totals"]);
    fs::remove_file(dir.path().join("r.txt")).expect("removed");
    let gone = crash(dir.path(), &args, &command);
    assert_eq!(gone.status.code(), Some(2), "{}", said(&gone));
}
