//! Tests of xfstests in a guest: each in a guest of its own, on two drives (the test device and the
//! scratch device), in virtual time.
//!
//! Picture:    [`Checkout`] (a built tree of xfstests on the host) -> names of a group's tests ->
//!             [`Checkout::run`] -> [`Tested`] from what its `check` has printed.
//! Invariants: 1. a test that did not run is never one that passed: xfstests' own reason is kept;
//!             2. the same test with the same kernel, drive and options sends the drives the same
//!                bytes ([`Tested::digest`]).
//! Source:     xfstests' `check` (lines of a test, of the summary) and `common/preamble`
//!             (`_begin_fstest` and the groups behind it).

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wp_base::crc::crc32c;
use wp_base::plain::Shown as _;
use wp_medium::write_log::write_log;
use wp_serve::drive::Counts;

use super::program::{ProgramError, ProgramPlan, Ran, places, run_program};
use super::{Kernel, quoted};

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

/// What came of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed; what `check` printed of it.
    Failed(String),
    /// It did not run; xfstests' reason.
    NotRun(String),
    /// It took more wall-clock time than it may.
    TooLong,
}

impl Verdict {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "failed",
            Verdict::NotRun(_) => "not run",
            Verdict::TooLong => "too long",
        }
    }
}

/// A test that was tried.
#[derive(Clone, Debug)]
pub struct Tested {
    /// Its name: `generic/001`.
    pub test: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Version of the guest's kernel; empty if it took too long.
    pub kernel: String,
    /// Virtual nanoseconds from the guest's first to the end of `check`.
    pub virtual_ns: u64,
    /// Wall-clock time that the guest took.
    pub wall: Duration,
    /// What the test device was asked.
    pub counts: Counts,
    /// CRC-32C over every write that the test device was sent, in order, with its contents.
    pub digest: u32,
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

    /// Runs one test. `plan` has file system, drive and limit; its commands are replaced.
    ///
    /// Errors: the guest's; interrupted. A test that takes too long is no error.
    pub fn run(
        &self,
        kernel: &Kernel,
        plan: &ProgramPlan,
        test: &str,
        scratch: &Path,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<Tested, ProgramError> {
        let plan = self.plan(plan, test)?;
        #[expect(clippy::disallowed_methods, reason = "real time is reported beside virtual time")]
        let begun = Instant::now();
        let ran = match run_program(kernel, &plan, scratch, None, progress) {
            Ok(ran) => ran,
            Err(ProgramError::TooLong(..)) => {
                return Ok(Tested {
                    test: test.to_owned(),
                    verdict: Verdict::TooLong,
                    kernel: String::new(),
                    virtual_ns: 0,
                    wall: begun.elapsed(),
                    counts: Counts::default(),
                    digest: 0,
                });
            }
            Err(e) => return Err(e),
        };
        Ok(Tested {
            test: test.to_owned(),
            verdict: verdict_of(&ran.output, test),
            kernel: ran.kernel.clone(),
            virtual_ns: ran.ended_ns,
            wall: begun.elapsed(),
            counts: ran.counts,
            digest: digest(&ran).map_err(|e| format!("what {test} wrote: {e}"))?,
        })
    }

    fn plan(&self, plan: &ProgramPlan, test: &str) -> Result<ProgramPlan, String> {
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
            ("TEST_DEV", "/dev/vda".to_owned()),
            ("TEST_DIR", at.to_owned()),
            ("SCRATCH_DEV", "/dev/vdc".to_owned()),
            ("SCRATCH_MNT", scratch.to_owned()),
            ("RESULT_BASE", format!("{RUN}/results")),
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
        Ok(ProgramPlan {
            setup: None,
            run: format!(
                "cd {RUN} && mkdir results up work && mount -t overlay -o \
                 lowerdir={folder},upperdir={RUN}/up,workdir={RUN}/work none {folder} \
                 2> /dev/null; \
                 {}cd {folder} && {} exec ./check {test}",
                users(),
                settings.join(" ")
            ),
            folders,
            rest_s: 0,
            scratch_drive: true,
            ..plan.clone()
        })
    }
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

/// What `check` says of a test: a line that begins with its name, and a summary that names it.
fn verdict_of(output: &str, test: &str) -> Verdict {
    let of_test = |line: &&str| line.split_whitespace().next() == Some(test);
    let line = output.lines().find(of_test).unwrap_or_default();
    if let Some((_, why)) = line.split_once("[not run]") {
        return Verdict::NotRun(why.trim().to_owned());
    }
    let names = |head: &str| {
        let mut of = output.lines().filter_map(|l| l.strip_prefix(head));
        of.any(|rest| rest.split_whitespace().any(|name| name == test))
    };
    let passed = output.lines().any(|l| l == "Passed all 1 tests");
    match (names("Ran:"), names("Failures:"), passed) {
        (true, false, true) => Verdict::Passed,
        // `check` itself failed, or said something that is not known.
        _ => Verdict::Failed(output.trim_end().to_owned()),
    }
}

/// A checksum of everything that is written to it.
struct Digest(u32);

impl io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = crc32c(self.0, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn digest(ran: &Ran) -> io::Result<u32> {
    let mut digest = Digest(u32::MAX);
    write_log(&mut digest, ran.sector_bytes, &ran.writes)?;
    Ok(digest.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_check_prints_is_what_came_of_the_test() {
        let passed = "generic/001         2s\nRan: generic/001\nPassed all 1 tests\n";
        assert_eq!(verdict_of(passed, "generic/001"), Verdict::Passed);
        let not_run = "generic/004        [not run] no O_TMPFILE\nRan: generic/004\n\
                       Not run: generic/004\nPassed all 1 tests\n";
        assert_eq!(verdict_of(not_run, "generic/004"), Verdict::NotRun("no O_TMPFILE".into()));
        let failed = "generic/009        - output mismatch (see /x)\nRan: generic/009\n\
                      Failures: generic/009\nFailed 1 of 1 tests\n";
        assert!(matches!(verdict_of(failed, "generic/009"), Verdict::Failed(_)));
        for odd in ["", "mount: no\n", "Passed all 1 tests\n", "Passed all 0 tests\n"] {
            assert!(matches!(verdict_of(odd, "generic/001"), Verdict::Failed(_)), "{odd}");
        }
    }

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
