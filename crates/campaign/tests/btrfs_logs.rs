//! Bugs of btrfs' logs (A13 to A20, N16 to N25, N31, V24), each in the program that was reported,
//! or in the shortest that the explorer left: found with the rule left out, and not with it. Found
//! by generated programs: `tests/bugs.rs`.

use std::fmt::Write as _;

use wp_campaign::bugs::{affected, find, fixed};
use wp_campaign::{Campaign, Source, run};
use wp_crash::Rule;
use wp_workload::program::Program;

/// `+ path`: a file is made; `s path`: it is synced; `d path`: a directory is.
fn program(text: &str) -> Program {
    let mut steps = String::new();
    for line in text.split(';').map(str::trim) {
        let done = match line.split_once(' ') {
            Some(("+", path)) => writeln!(steps, "open 0 {path} rw,creat\nclose 0"),
            Some(("s", path)) => writeln!(steps, "open 1 {path} rw\nfsync 1\nclose 1"),
            Some(("d", path)) => writeln!(steps, "open 1 {path} r\nfsync 1\nclose 1"),
            _ => writeln!(steps, "{line}"),
        };
        done.expect("text");
    }
    Program::parse(&steps).expect("a program")
}

/// Bugs, with the rule that is broken and a program: those of CrashMonkey's reports where they have
/// one.
const PROGRAMS: [(&str, &str); 23] = [
    // newBugs 1.
    (
        "A13",
        "mkdir A; + A/bar; s A/bar; mkdir B; + B/bar; rename B/bar A/bar; + A/foo; s A/foo; d A",
    ),
    // The comment on `last_unlink_trans` in `btrfs_log_inode`.
    ("A13.moved", "mkdir A; mkdir B; + A/foo; sync; rename A/foo B/foo; d A"),
    // newBugs 2, as the mend has it.
    ("A14", "mkdir A; mkdir B; + B/bar; sync; rename B/bar A/bar; rename A B; s B/bar"),
    // newBugs 3.
    ("A15", "mkdir A; mkdir B; mkdir A/C; + B/foo; s B/foo; link B/foo A/C/foo; d A"),
    // newBugs 4, with a file in the directory.
    ("A16", "mkdir A; + A/foo; sync; rename A B; d B"),
    // newBugs 5.
    ("A17", "mkdir A; mkdir B; + A/foo; link A/foo B/foo; s A/foo; s B/foo"),
    // reproducedBugs 1 and 2.
    ("A18.34", "mkdir A; + A/foo; sync; + A/bar; d A; s A/bar"),
    (
        "A18.39",
        "mkdir A; mkdir A/B; + A/B/foo; link A/B/foo A/B/bar; sync; unlink A/B/bar; s A/B/foo",
    ),
    // newBugs 6, 7, and 8 with the commit in between that its mend speaks of.
    ("A20.6", "mkdir t; mkdir t/A; + t/foo; + t/A/foo; s t/A/foo; d t"),
    ("A20.7", "+ foo; mkdir A; link foo A/bar; s foo"),
    (
        "A20.8",
        "open 2 foo rw,creat; pwrite 2 16384 0 1; fallocate 2 keep 16384 4096; fsync 2; sync; \
         fallocate 2 keep 20480 4096; fsync 2",
    ),
    ("N16", "open 2 foo rw,creat; pwrite 2 4096 0 1; sync; unlink foo; pwrite 2 4096 0 2; fsync 2"),
    // generic/764: nothing but the name is lost.
    ("N16", "mkdir d; open 2 d/foo rw,creat; sync; unlink d/foo; fsync 2"),
    ("N18", "mkdir A; sync; rename A B; + B/foo; s B/foo"),
    ("N18", "mkdir A; + A/foo; sync; rename A B; open 2 B/foo rw; pwrite 2 4096 0 1; fsync 2"),
    (
        "N19",
        "mkdir a; open 2 a/b rw,creat; sync; pwrite 2 4096 0 1; fsync 2; mkdir a/c; link a/b b; \
         unlink a/b; fsync 2",
    ),
    ("N20", "open 2 a rw,creat; fallocate 2 keep 0 4096; fsync 2; sync; link a b; d ."),
    ("N21", "mkdir a; + a/b; sync; link a/b c; unlink a/b; d a"),
    (
        "N22",
        "open 2 a rw,creat; fsync 2; fallocate 2 keep 0 65536; sync; pwrite 2 4096 0 1; fdatasync 2",
    ),
    (
        "N23",
        "open 2 a rw,creat; sync; pwrite 2 4096 0 1; fdatasync 2; + b; drop_caches; rename a c; s b",
    ),
    ("N24", "symlink v1 cur; sync; symlink v2 tmp; d .; rename tmp cur; d ."),
    (
        "N25",
        "open 2 a rw,creat; mkdir A; + A/f; pwrite 2 4096 0 1; sync; ftruncate 2 1; fsync 2; \
         ftruncate 2 2; rename A/f f; d A",
    ),
    ("N31", "subvolume_create s; snapshot . t; rmdir t/s; d t"),
];

/// Violations of the bug's rule with the rule of logs left out, and with it.
fn broken(id: &str, program: &Program) -> (u64, u64) {
    let bug = find(id).expect("it is in the list");
    let of = |(campaign, rule): (Campaign, Rule)| {
        let source = Source::Text(program.clone());
        let c = Campaign { source, programs: (0, 1), stop_at: Vec::new(), ..campaign };
        let f = run(&c, 1, &|_| true);
        assert!(f.not_played.is_empty(), "{id}: {:?}", f.not_played);
        assert!(f.totals.raw > 10, "{id}: {:?}", f.totals);
        (f.totals.broken[rule as usize], f.totals.broken.iter().sum::<u64>())
    };
    let affected = of(affected(bug).expect("a machine"));
    let fixed = of(fixed(bug).expect("a machine"));
    (affected.0, fixed.1)
}

#[test]
fn each_reported_program_loses_what_was_synced_without_its_rule_and_not_with_it() {
    for (id, text) in PROGRAMS {
        let (affected, fixed) = broken(id, &program(text));
        assert!(affected > 0 && fixed == 0, "{id}: {affected} without the rule, {fixed} with it");
    }
}

/// V24: whatever an inode item has and the log had is lost with each way to another name, and what
/// has items of its own is not. A guest with 6.1.176 and one with 6.12.117 show the same.
#[test]
fn each_attribute_of_a_synced_file_is_lost_with_each_new_name_until_6_12_114() {
    let bug = find("V24").expect("it is in the list");
    let broken = |program: &str| {
        let of = |(campaign, rule): (Campaign, Rule)| {
            let source = Source::Text(self::program(program));
            let c = Campaign { source, programs: (0, 1), stop_at: Vec::new(), ..campaign };
            let f = run(&c, 1, &|_| true);
            assert!(f.not_played.is_empty() && f.totals.raw > 10, "{program}: {:?}", f.totals);
            (f.totals.broken[rule as usize] > 0, f.totals.broken.iter().sum::<u64>())
        };
        let before = of(affected(bug).expect("a machine"));
        let after = of(fixed(bug).expect("a machine"));
        assert_eq!(after.1, 0, "{program}");
        before.0
    };
    let names = ["link b a/c; d a", "rename b c; + d; s d", "rename b a/c; + d; s d"];
    for attribute in ["chmod b 710", "chown b 1000 100", "utimensat b 1 2"] {
        for name in names {
            let text = format!("mkdir a; + b; sync; {attribute}; s b; {name}");
            assert!(broken(&text), "{text}");
        }
    }
    for other in ["setxattr b user.a 20 1", "open 2 b rw; pwrite 2 4096 0 1; ftruncate 2 100"] {
        for name in names {
            let text = format!("mkdir a; + b; sync; {other}; s b; {name}");
            assert!(!broken(&text), "{text}");
        }
    }
}

/// Bug 4 as it was reported: in Linux 6.12 the directory's own sync makes its new name durable, the
/// file's did not.
#[test]
fn a_renamed_directory_that_is_synced_has_its_new_name_in_6_12() {
    let text = "mkdir A; sync; rename A B; + B/foo; s B/foo; d B; nap 1000";
    let bug = find("N18").expect("it is in the list");
    let (campaign, _) = affected(bug).expect("a machine");
    let source = Source::Text(program(text));
    let c = Campaign { source, programs: (0, 1), stop_at: Vec::new(), ..campaign };
    let f = run(&c, 1, &|_| true);
    // What is found was found before the directory's fsync, the tenth call, had returned.
    assert!(!f.found.is_empty() && f.found.iter().all(|x| x.operations.1 < 10), "{:#?}", f.found);
}

/// generic/041 in few links, and N17: an item of names is replaced by the log's, and the leaf has
/// no room for both, or not even for the longer one.
#[test]
fn items_of_many_names_are_replaced_where_they_are() {
    let name = |n: u32| format!("{n:0>181}");
    let links = |from: u32, to: u32| -> String {
        (from..to).map(|n| format!("link file {}; ", name(n))).collect()
    };
    let before = format!("open 2 file rw,creat; {}sync", links(0, 45));
    let swapped = format!("{before}; unlink {}; link file {}; fsync 2", name(7), name(45));
    assert!(matches!(broken("A19", &program(&swapped)), (1.., 0)));
    assert_eq!(broken("N17", &program(&swapped)), (0, 0));
    let more = format!("{before}; {}fsync 2", links(45, 75));
    assert!(matches!(broken("N17", &program(&more)), (1.., 0)));
}

/// Programs of which the fixed side holds everything: what the file system or the judge has had
/// wrong, in the shortest form that the explorer left.
#[test]
fn what_was_once_wrong_here_is_not() {
    let programs = [
        // Data in the inode that end before the file does.
        "open 0 a rw,creat; pwrite 0 4096 0 1; ftruncate 0 1; open 1 b rw,creat,dsync; \
         ftruncate 1 1; ftruncate 0 2; pwrite 1 167936 8192 2",
        // A new file is logged as another's rename needs it, and then synced itself.
        "open 1 a rw,creat; sync; pwrite 1 4096 0 1; fdatasync 1; open 2 b rw,creat; rename a c; \
         fsync 2",
        // An inode whose name another took over, while it is open: its synced data stay in the log.
        "open 0 a rw,creat,dsync; sync; pwrite 0 4096 0 1; open 1 b rw,creat; fsync 1; rename b a; \
         rename a c; fsync 1",
        // Space of the last commit in front of an end that is not in the log.
        "open 0 . r; open 1 a rw,creat; sync; open 2 b rw,creat; fallocate 1 keep 0 4096; sync; \
         fsync 1; fsync 0; pwrite 1 4096 0 1; rename a c; pwrite 2 4096 0 2; fsync 2",
        // Who had the new file's name is below a directory that moved.
        "mkdir a; mkdir b; open 0 c rw,creat; sync; rename a b/a; rename c b/a/d; \
         open 0 c rw,creat; fsync 0",
        // The same of one that was logged before it moved there.
        "mkdir a; mkdir b; open 0 b/c rw,creat; sync; rename b/c b/d; open 1 b r; fsync 1; \
         rename a b/a; rename b/d b/a/d; open 0 d rw,creat; fsync 0",
        // What one log dropped is a hole in the next.
        "open 0 a rw,creat,dsync; pwrite 0 159744 0 1; pwrite 0 4096 0 2; ftruncate 0 0; fsync 0; \
         pwrite 0 4096 4096 3",
    ];
    let bug = find("N21").expect("it is in the list");
    for text in programs {
        let (campaign, _) = fixed(bug).expect("a machine");
        let source = Source::Text(program(text));
        let c = Campaign { source, programs: (0, 1), stop_at: Vec::new(), ..campaign };
        let f = run(&c, 1, &|_| true);
        assert!(f.not_played.is_empty() && f.totals.raw > 10, "{text}: {:?}", f.totals);
        assert!(f.found.is_empty(), "{text}: {:#?}", f.found);
    }
}
