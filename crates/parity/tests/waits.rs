//! Wait for wait: the recorded programs of Linux 6.12, and random ones on a guest that is booted.

use std::path::Path;

use wp_campaign::programs::atomic;
use wp_machine::registry;
use wp_machine::testing::skipped;
use wp_parity::kernel_lab::Kernel;
use wp_parity::vtime::config::find;
use wp_parity::vtime::guest::{Guest, Ran, timed};
use wp_parity::vtime::random::{CALLS, Extras, Verdict, both, findings, generate, judge};
use wp_parity::vtime::{CONFIGS, Config, Program, compare_recorded};
use wp_workload::program::{Call, Label, Step};

use crate::guest::guest;

#[test]
fn every_call_waits_as_often_as_in_linux_6_12_unless_listed() {
    let report = compare_recorded("").expect("runs");
    let calls: usize = report.configs.iter().map(|c| c.calls.len()).sum();
    assert!(calls >= 16 * 240, "only {calls} calls were compared");
    let text: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "{} findings:\n{}", text.len(), text.join("\n"));
}

#[test]
fn calls_that_wait_are_told_from_calls_that_do_not() {
    // The comparison would pass without a device if every call took no time.
    let report = compare_recorded("ext4-default").expect("runs");
    let ours = |place: &str| {
        let rows = &report.configs[0].calls;
        rows.iter().find(|r| r.place == place).map(|r| r.ours.clone()).unwrap_or_default()
    };
    assert_eq!(ours("N10.alloc4k fsync 1"), "4");
    assert_eq!(ours("N10.alloc4k fsync_again 2"), "1");
    assert_eq!(ours("seq20ms over 0"), "0");
}

/// A recorded run: `== CONFIG MOUNTED WHY`, the program, `--`, what `prog.c` printed.
fn recorded_run(text: &str) -> (&'static Config, Program, Ran) {
    let (head, rest) = text.split_once('\n').expect("a head");
    let mut words = head.split(' ');
    let config = find(words.next().expect("a configuration")).expect("one of ours");
    let mount_ns = words.next().and_then(|t| t.parse().ok()).expect("a time");
    let (program, out) = rest.split_once("--\n").expect("a program, and what it did");
    let timed = out.lines().map(|l| timed(l).expect("a call")).collect();
    (config, Program::parse(program).expect("a program"), Ran { mount_ns, timed })
}

#[test]
fn programs_that_differed_once_wait_as_in_linux_6_12() {
    let path = wp_machine::testing::repository("kernels/linux-6.12/programs.txt");
    let text = std::fs::read_to_string(path).expect("recorded runs");
    let runs: Vec<_> = text.split("== ").skip(1).map(recorded_run).collect();
    assert!(runs.len() >= 10, "{}", runs.len());
    for (config, program, theirs) in runs {
        let verdict = judge(config, &program, &theirs, false);
        assert!(matches!(verdict, Verdict::Same(_)), "{} {}: {verdict:?}", config.name, program);
    }
}

/// Programs of a quick look; `writepath kernels random` runs as many as asked for.
const PROGRAMS: u64 = 20;

/// What programs are made of besides the plain calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    Nothing,
    Aio,
    Reads,
    AllCalls,
}

fn random_programs(fs: &str, with: With) {
    let calls = match with {
        With::Nothing => "",
        With::Aio => ", asynchronous calls",
        With::Reads => ", reads",
        With::AllCalls => ", all calls",
    };
    let check = &format!("random programs of {fs} beside a guest{calls}");
    let kernel = match guest(&[fs]) {
        Ok(kernel) => kernel,
        Err(why) => return skipped(check, &why),
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let guest = match Guest::new(&kernel, scratch.path()) {
        Ok(g) => g,
        Err(why) => return skipped(check, &why),
    };
    let plain: Vec<&Config> = CONFIGS
        .iter()
        .filter(|c| c.fs == fs && c.not_modelled.is_empty())
        .filter(|c| !c.ours.contains("data=journal"))
        .collect();
    // NILFS2 has none.
    let extras = Extras {
        direct: true,
        fallocate: fs != "nilfs2",
        aio: with == With::Aio,
        reads: with == With::Reads,
        calls: with == With::AllCalls,
        offers: registry::find_fs(fs).expect("a file system").offers,
    };
    let programs: Vec<(&Config, Program)> = (0..PROGRAMS)
        .map(|i| (plain[i as usize % plain.len()], generate(i, CALLS, extras)))
        .collect();
    let batch: Vec<(&Config, &Program)> = programs.iter().map(|(c, p)| (*c, p)).collect();
    // A `syncfs` of btrfs sends a leaf once more in Linux: `btrfs_delayed_update_inode`.
    let requests = fs != "btrfs";
    let verdicts = match both(&guest, &batch, requests) {
        Ok(v) => v,
        Err(why) => return skipped(check, &why),
    };
    assert_eq!(verdicts.len() as u64, PROGRAMS);
    let not_run = |v: &&Verdict| matches!(v, Verdict::NotRun(_));
    assert_eq!(verdicts.iter().find(not_run), None);
    let findings = findings(&batch, &verdicts, requests).expect("the list parses");
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "{}", text.join("\n"));
}

#[test]
fn without_a_guest_the_reason_is_told() {
    for wrong in ["no/such/folder", "/dev/null", "/"] {
        let why = Kernel::in_folder(Some(Path::new(wrong))).err();
        assert!(why.as_ref().is_some_and(|w| w.contains(wrong)), "{why:?}");
    }
}

#[test]
fn random_programs_wait_as_in_a_guest() {
    random_programs("ext4", With::Nothing);
}

/// Waits of `io_submit`, of `io_getevents` and of the calls beside them.
#[test]
fn asynchronous_calls_wait_as_in_a_guest() {
    random_programs("ext4", With::Aio);
    random_programs("f2fs", With::Aio);
}

/// What is read ahead, and what is forgotten.
#[test]
fn reads_wait_as_in_a_guest() {
    random_programs("ext4", With::Reads);
    random_programs("f2fs", With::Reads);
}

/// Files without a name, exchanges, devices, attributes, mappings, ranges that move, copies.
#[test]
fn all_calls_wait_as_in_a_guest() {
    for fs in ["ext4", "f2fs", "nilfs2", "btrfs"] {
        random_programs(fs, With::AllCalls);
    }
}

#[test]
fn random_programs_wait_as_in_a_guest_on_f2fs() {
    random_programs("f2fs", With::Nothing);
}

#[test]
fn random_programs_wait_as_in_a_guest_on_btrfs() {
    random_programs("btrfs", With::Nothing);
}

#[test]
fn random_programs_wait_as_in_a_guest_on_nilfs2() {
    random_programs("nilfs2", With::Nothing);
}

/// The program with every call timed, and what a commit sends given time to arrive: in which order
/// two FLUSHes in flight are served is a matter of nanoseconds. Without dropped caches: a start
/// then reads the directory's inode, which Linux has in memory as long as the file is open.
fn timed_calls(program: Program, name: String) -> Program {
    let mut steps = vec![Step::Case(name)];
    for (index, step) in (0..).zip(program.0) {
        match step {
            Step::Case(_) | Step::Call(_, Call::DropCaches) => {}
            Step::Call(_, call) => {
                let op = call.name().to_owned();
                let is_commit = op == "atomic_commit";
                steps.push(Step::timed(Label { op, index }, call));
                steps.extend(is_commit.then_some(Step::Nap(2000)));
            }
            step => steps.push(step),
        }
    }
    Program(steps)
}

/// Waits, requests and FLUSHes of each call of programs that write atomically.
#[test]
fn atomic_writes_wait_as_in_a_guest() {
    let check = "atomic writes of F2FS beside a guest";
    let kernel = match guest(&["f2fs"]) {
        Ok(kernel) => kernel,
        Err(why) => return skipped(check, &why),
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let guest = match Guest::new(&kernel, scratch.path()) {
        Ok(g) => g,
        Err(why) => return skipped(check, &why),
    };
    // One mapped block that is written over: the claim `f2aw.requests`.
    let one = "open 0 a rw,creat\npwrite 0 4096 0 1\nsync\natomic_start 0\npwrite 0 4096 0 2\n\
               atomic_commit 0\nfdatasync 0\natomic_start 0\npwrite 0 4096 0 3\nfsync 0\n\
               atomic_commit 0\nfsync 0\natomic_commit 0\natomic_replace 0\npwrite 0 10 9000 3\n\
               sync\natomic_abort 0\npread 0 4096 0\nclose 0\nsync";
    let mut programs = vec![Program::parse(one).expect("a program")];
    // Without the close and the sync at the end: a sync after a close that aborts sends one request
    // more than in Linux. Why was not found.
    programs.extend((0..PROGRAMS).map(|seed| {
        let Program(mut steps) = atomic::transactions(seed);
        let end = steps.iter().rposition(|s| matches!(s, Step::Call(_, Call::Close(_))));
        steps.truncate(end.unwrap_or(steps.len()));
        Program(steps)
    }));
    let named = (0..).zip(programs).map(|(n, p): (u32, _)| timed_calls(p, format!("atomic{n}")));
    let programs: Vec<Program> = named.collect();
    let plain: Vec<&Config> = CONFIGS.iter().filter(|c| c.name.starts_with("f2fs")).collect();
    let batch: Vec<(&Config, &Program)> =
        programs.iter().zip(plain.iter().cycle()).map(|(p, c)| (*c, p)).collect();
    let verdicts = match both(&guest, &batch, true) {
        Ok(v) => v,
        Err(why) => return skipped(check, &why),
    };
    let is_commit = |c: &&Call| c.name() == "atomic_commit";
    let commits = programs.iter().flat_map(Program::calls).filter(is_commit).count();
    assert!(commits > 20, "{commits}");
    let same = verdicts.iter().filter(|v| matches!(v, Verdict::Same(_))).count();
    assert!(same + 2 >= programs.len(), "{same} of {}", programs.len());
    let findings = findings(&batch, &verdicts, true).expect("the list parses");
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "{}", text.join("\n"));
}
