//! Tests of xfstests in a guest, on two drives (the test device and the scratch device), in virtual
//! time: as many in one boot as go.
//!
//! Picture:    [`Checkout`] (a built tree of xfstests on the host) -> names of a group's tests ->
//!             [`Checkout::boot`] -> a [`Tested`] for each, as it ends, from what its `check` has
//!             printed. Behind a test that ends its guest the next boot goes on.
//! Invariants: 1. a test that did not run is never one that passed: xfstests' own reason is kept;
//!             2. each test has a test device that was made anew; the scratch device is made by
//!                the tests themselves;
//!             3. a test alone in its boot sends the test device the same bytes each time
//!                ([`Tested::digest`]). Behind others in a boot it has the same outcome, time and
//!                numbers of requests; its bytes were seen to differ by random numbers of the
//!                kernel (`i_generation` of ext4).
//! Source:     xfstests' `check` (lines of a test, of the summary; it calls `logger` before each)
//!             and `common/preamble` (`_begin_fstest` and the groups behind it).

mod boot;
mod verdict;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wp_base::Time;
use wp_base::plain::Shown as _;
use wp_machine::make_device;
use wp_serve::drive::Drive;
use wp_serve::drive::freeze::Loss;

use self::boot::Watch;
pub use self::verdict::Verdict;
use super::program::{PROGRAM_C, ProgramError, ProgramPlan, places};
use super::session::{self, Share};
use super::{Kernel, mkfs_command, quoted};

/// What `check` calls before each test.
const BEFORE_TEST: &str = include_str!("before_test.sh");
/// The test device in the guest, and the pipe to the drive's log (`host.c`).
const TEST_DEVICE: &str = "/dev/vda";
const ACK: &str = "/run/writepath-ack";
/// Where `check` puts its results.
const RESULTS: &str = "/run/results";
/// Memory of the guest, for what `check` writes: its results, and, where the kernel has overlayfs,
/// links that some tests make beside themselves.
const RUN: &str = "/run";
/// No configuration of the checkout takes the place of ours.
const NO_CONFIG: &str = "/run/writepath-no-config";
/// Users of xfstests (its README), with numbers that no system gives away.
const USERS: [(&str, u32); 3] = [("fsgqa", 31_415), ("fsgqa2", 31_416), ("123456-fsgqa", 31_417)];
/// What a test's header begins with.
const HEADER: &str = "_begin_fstest";
/// Programs of the host without which hardly a test runs, with their Debian packages.
const NEEDED: [(&str, &str); 5] = [
    ("bash", "bash"),
    ("perl", "perl"),
    ("xfs_io", "xfsprogs"),
    ("bc", "bc"),
    ("getfattr", "attr"),
];

/// A built tree of xfstests.
#[derive(Clone, Debug)]
pub struct Checkout {
    folder: PathBuf,
}

/// What the test device was sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Sent {
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// FLUSHes.
    pub flushes: u64,
    /// Discards, and writes of zeroes without data.
    pub discards: u64,
}

/// A test that was tried.
#[derive(Clone, Debug)]
pub struct Tested {
    /// Its name: `generic/001`.
    pub test: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Version of the guest's kernel.
    pub kernel: String,
    /// Virtual nanoseconds from its mkfs to the next test, or to the guest's end.
    pub virtual_ns: u64,
    /// Wall-clock time that it took.
    pub wall: Duration,
    /// What the test device was sent.
    pub sent: Sent,
    /// CRC-32C over every write that the test device was sent, in order, with its contents.
    pub digest: u32,
}

/// How much time a test may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Wall-clock time of a test, and of a boot until the first one.
    pub wall: Duration,
    /// Time of the guest's clock.
    pub virtual_time: Duration,
}

/// What happens in a guest with tests.
#[derive(Clone, Debug)]
pub enum Event {
    /// A test runs; its name is empty while the guest boots. Told often.
    Runs(String),
    /// A test has ended.
    Ended(Box<Tested>),
}

impl Checkout {
    /// The tree in a folder. Errors: it is none, it is not built, or the host lacks a program.
    pub fn find(folder: &Path) -> Result<Checkout, String> {
        let folder = folder.canonicalize().map_err(|e| format!("{}: {e}", folder.shown()))?;
        let has = |name: &str| folder.join(name).is_file();
        if !has("check") || !has("common/preamble") || !folder.join("tests/generic").is_dir() {
            return Err(format!(
                "{}: not a checkout of xfstests: it has no check, common/preamble or tests/generic",
                folder.shown()
            ));
        }
        if !has("ltp/fsstress") {
            let at = folder.shown();
            return Err(format!("{at}: not built: run make in it (there is no ltp/fsstress)"));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs: Vec<PathBuf> =
            std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
        let lacks = |program: &str| !dirs.iter().any(|dir| dir.join(program).is_file());
        let lacking: Vec<&str> =
            NEEDED.iter().filter(|(p, _)| lacks(p)).map(|(_, package)| *package).collect();
        if !lacking.is_empty() {
            return Err(format!("xfstests needs programs of {}: install them", lacking.join(", ")));
        }
        Ok(Checkout { folder })
    }

    /// Names of the generic tests of a group, in order. Errors: none is in it; the host's.
    pub fn group(&self, group: &str) -> Result<Vec<String>, String> {
        let folder = self.folder.join("tests/generic");
        let at = |e: io::Error| format!("{}: {e}", folder.shown());
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(at)? {
            let entry = entry.map_err(at)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.bytes().all(|b| b.is_ascii_digit()) {
                continue;
            }
            // A test may hold bytes that are no UTF-8.
            let text = std::fs::read(entry.path()).map_err(at)?;
            if groups_of(&String::from_utf8_lossy(&text)).any(|g| g == group) {
                all.push(format!("generic/{name}"));
            }
        }
        if all.is_empty() {
            let at = self.folder.shown();
            return Err(format!("{at}: no generic test is in group `{group}`"));
        }
        all.sort();
        Ok(all)
    }

    /// Is there a test of this name?
    pub fn has(&self, test: &str) -> bool {
        let is_name =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        let parts: Vec<&str> = test.split('/').collect();
        parts.len() == 2
            && parts.into_iter().all(is_name)
            && self.folder.join("tests").join(test).is_file()
    }

    /// Boots a guest and runs these tests in it, in this order, until one of them ends the guest;
    /// how many have an outcome. Each begins with a test device that was made anew. `plan` has file
    /// system and drive; its commands are replaced. `tell` says whether to stop.
    ///
    /// Errors: no test had an outcome; interrupted.
    pub fn boot(
        &self,
        kernel: &Kernel,
        plan: &ProgramPlan,
        (tests, limits): (&[String], Limits),
        scratch: &Path,
        tell: &mut dyn FnMut(Event) -> bool,
    ) -> Result<usize, ProgramError> {
        let (name, params) = &plan.device;
        let model = || make_device(name, params).map_err(|e| e.to_string());
        let test_device = model()?;
        let plan = self.plan(plan, tests)?;
        let script = plan.script(test_device.limits().zones.is_some())?;
        let share = Share::new(scratch)?;
        share.compile_with_host("program", PROGRAM_C)?;
        share.write("run.sh", script.as_bytes())?;
        let mut drive = Drive::new(name, test_device, Loss::Model);
        drive.keep_writes();
        let other = Drive::new(name, model()?, Loss::Model);
        let mut watch = Watch::new(tests, &share, limits, tell);
        let mut turn = |at: Time, drives: &mut [Drive]| watch.turn(at, drives);
        let ended = session::serve_with(kernel, &share, (drive, Some(other)), plan.cpu, &mut turn)?;
        let mut drive = ended.drive;
        watch.end(Time(ended.virtual_ns), &mut drive)
    }

    fn plan(&self, plan: &ProgramPlan, tests: &[String]) -> Result<ProgramPlan, String> {
        let folders = vec![self.folder.clone()];
        let mut free = places(&folders);
        let two = (free.next(), free.next());
        drop(free);
        let (Some(at), Some(scratch)) = two else {
            return Err("xfstests needs two of /mnt, /media, /srv".to_owned());
        };
        let mut settings = vec![
            ("HOST_OPTIONS", NO_CONFIG.to_owned()),
            ("FSTYP", plan.fs.clone()),
            ("TEST_DEV", TEST_DEVICE.to_owned()),
            ("TEST_DIR", at.to_owned()),
            ("SCRATCH_DEV", "/dev/vdc".to_owned()),
            ("SCRATCH_MNT", scratch.to_owned()),
            ("RESULT_BASE", RESULTS.to_owned()),
        ];
        if !plan.mount.is_empty() {
            settings.push(("MOUNT_OPTIONS", format!("-o {}", plan.mount)));
            settings.push(("TEST_FS_MOUNT_OPTS", format!("-o {}", plan.mount)));
        }
        if !plan.mkfs.is_empty() {
            settings.push(("MKFS_OPTIONS", plan.mkfs.clone()));
        }
        let settings: Vec<String> =
            settings.iter().map(|(k, v)| format!("{k}={}", quoted(v))).collect();
        let folder = quoted(&self.folder.shown().to_string());
        let before = before_test(plan, at, scratch)?;
        Ok(ProgramPlan {
            setup: None,
            run: format!(
                "cd {RUN} && mkdir results up work bin && \
                 mount -t overlay -o lowerdir={folder},upperdir={RUN}/up,workdir={RUN}/work \
                 none {folder} 2> /dev/null; \
                 {}printf %s {} > {RUN}/bin/logger && chmod +x {RUN}/bin/logger && \
                 cd {folder} && {} PATH={RUN}/bin:$PATH exec ./check --exact-order {}",
                users(),
                quoted(&before),
                settings.join(" "),
                tests.join(" "),
            ),
            folders,
            rest_s: 0,
            ..plan.clone()
        })
    }
}

/// The program that `check` calls before each test.
fn before_test(plan: &ProgramPlan, at: &str, scratch: &str) -> Result<String, String> {
    // Drives with zones have no xfstests here: their test devices need other mkfs options.
    let mkfs = mkfs_command(&plan.fs, &plan.mkfs, false)?;
    let options = match &*plan.mount {
        "" => String::new(),
        options => format!("-o {} ", quoted(options)),
    };
    let mount = format!("mount -t {} {options}{TEST_DEVICE} {at}", plan.fs);
    let head = BEFORE_TEST.split_once('\n').map_or("", |(head, _)| head);
    let named = [
        ("TEST_DIR", at),
        ("SCRATCH_MNT", scratch),
        ("MKFS", &mkfs),
        ("MOUNT", &mount),
        ("RESULTS", RESULTS),
        ("ACK", ACK),
    ];
    let named: String = named.iter().map(|(k, v)| format!("{k}={}\n", quoted(v))).collect();
    Ok(format!("{head}\n{named}{BEFORE_TEST}"))
}

/// Shell commands that give the guest, and not the host, the users that tests run programs as.
fn users() -> String {
    let (mut users, mut groups) = (String::new(), String::new());
    for (name, id) in USERS {
        users.push_str(&format!("{name}:*:{id}:{id}::{RUN}:/bin/bash\\n"));
        groups.push_str(&format!("{name}:*:{id}:\\n"));
    }
    let add = |file: &str, lines: &str| {
        format!(
            "grep -v '^[0-9-]*fsgqa' /etc/{file} > {RUN}/{file}; printf '{lines}' >> {RUN}/{file}; \
             mount --bind {RUN}/{file} /etc/{file}; "
        )
    };
    add("passwd", &users) + &add("group", &groups)
}

/// Groups in the header of a test.
fn groups_of(text: &str) -> impl Iterator<Item = &str> {
    let header = text.lines().find_map(|line| line.strip_prefix(HEADER));
    header.unwrap_or_default().split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_tests_are_lines_of_files_that_only_the_guest_sees() {
        let script = users().replace("/etc/", "etc/").replace(RUN, "run");
        let script = script.replace("mount --bind", "cp");
        let dir = tempfile::tempdir().unwrap();
        for name in ["etc", "run"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let old = "root:x:0:0::/:/bin/sh\nfsgqa:x:1000:1000::/home:/bin/sh\n";
        for name in ["passwd", "group"] {
            std::fs::write(dir.path().join("etc").join(name), old).unwrap();
        }
        let mut sh = std::process::Command::new("sh");
        assert!(sh.args(["-c", &script]).current_dir(dir.path()).status().unwrap().success());
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let passwd = read("etc/passwd");
        let names: Vec<&str> = passwd.lines().filter_map(|l| l.split(':').next()).collect();
        assert_eq!(names, ["root", "fsgqa", "fsgqa2", "123456-fsgqa"]);
        assert!(passwd.lines().all(|l| l.split(':').count() == 7), "{passwd}");
        assert!(read("etc/group").contains("\n123456-fsgqa:*:31417:\n"));
    }

    #[test]
    fn a_group_is_read_from_the_headers_of_its_tests() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(Checkout::find(dir.path()).unwrap_err().contains("not a checkout"));
        write("check", b"");
        write("common/preamble", b"");
        write("tests/generic/002", b"#! /bin/bash\n_begin_fstest metadata quick\n");
        write("tests/generic/001", b"#! /bin/bash\n\xff\n_begin_fstest rw quick auto\n");
        write("tests/generic/003", b"#! /bin/bash\n_begin_fstest quicker\n");
        write("tests/generic/001.out", b"_begin_fstest quick\n");
        assert!(Checkout::find(dir.path()).unwrap_err().contains("run make"));
        let tree = Checkout { folder: dir.path().to_owned() };
        assert_eq!(tree.group("quick").unwrap(), ["generic/001", "generic/002"]);
        assert!(tree.group("qui").unwrap_err().contains("`qui`"));
        assert!(tree.has("generic/003"));
        for other in ["generic/004", "generic", "../check", "generic/001.out", "generic/"] {
            assert!(!tree.has(other), "{other}");
        }
    }
}
