//! Symbolic links and extended attributes: what is promised of them, and what must never be seen.

use std::rc::Rc;

use wp_crash::{Did, Ledger, Outcome, Profile, Rule, Survivor, judge};
use wp_vfs::{DeviceNumber, FileType, Stat, TimeSpec};
use wp_workload::program::{Call, Program, Step, contents};

const PROGRAM: &str = "open 0 f rw,creat
setxattr f user.a 24 1
fsync 0
setxattr f user.a 40 2
symlink f l
fdatasync 0
removexattr f user.a
sync";
/// Inode of `f`.
const INO: u64 = 12;

fn ledger() -> Ledger {
    let steps = Program::parse(PROGRAM).expect("a program").0;
    let dids: Vec<Did> = steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Call(_, call) => Some(call),
            _ => None,
        })
        .map(|call| {
            let ino = matches!(call, Call::Open(..)).then_some(INO);
            Did { ino, ..Did::of(call) }
        })
        .collect();
    Ledger::new(&dids, 4096)
}

fn file(path: &str, xattrs: &[(&str, u32, u32)]) -> Survivor {
    let value = |(name, len, seed): &(&str, u32, u32)| {
        ((*name).to_owned(), contents(*seed, 0, *len).to_vec())
    };
    Survivor {
        path: path.to_owned(),
        kind: FileType::File,
        ino: INO,
        nlink: 1,
        size: 0,
        stat: None,
        target: None,
        xattrs: Some(xattrs.iter().map(value).collect()),
        blocks: Vec::new(),
        tail: None,
        allocated: None,
    }
}

fn link(target: &str) -> Survivor {
    Survivor {
        kind: FileType::Symlink,
        ino: INO + 1,
        size: target.len() as u64,
        target: Some(target.to_owned()),
        ..file("l", &[])
    }
}

/// Rules that are broken by a cut after `ended` calls, with the words of the first.
fn broken(files: Vec<Survivor>, ended: u32) -> (Vec<Rule>, String) {
    let outcome = Outcome { files: files.into_iter().map(Rc::new).collect(), ..Outcome::default() };
    let found = judge(&ledger(), &outcome, (ended, ended), &Profile::EXT4);
    let words = found.first().map_or(String::new(), |v| format!("{}; {}", v.expected, v.seen));
    (found.iter().map(|v| v.rule).collect(), words)
}

#[test]
fn an_attribute_is_there_from_the_fsync_on_in_that_version_or_a_later_one() {
    let (first, second) = (("user.a", 24, 1), ("user.a", 40, 2));
    // Before the fsync nothing is promised.
    assert_eq!(broken(vec![file("f", &[])], 2).0, []);
    assert_eq!(broken(vec![file("f", &[first])], 2).0, []);
    let (rules, words) = broken(vec![file("f", &[])], 3);
    assert_eq!(rules, [Rule::LostSync]);
    let expected = "user.a as of `setxattr f user.a 24 1` or later, as `fsync 0` promised";
    assert_eq!(words, format!("{expected}; no such attribute"));
    assert_eq!(broken(vec![file("f", &[first])], 3).0, []);
    // fdatasync promises nothing of them.
    for value in [first, second] {
        assert_eq!(broken(vec![file("f", &[value]), link("f")], 6).0, [], "{value:?}");
    }
    let unread = Survivor { xattrs: None, ..file("f", &[]) };
    let (rules, words) = broken(vec![unread], 3);
    assert_eq!(rules, [Rule::LostSync]);
    assert!(words.ends_with("attributes that cannot be read"), "{words}");
    // A sync after it was removed promises that it is gone.
    assert_eq!(broken(vec![file("f", &[]), link("f")], 8).0, []);
    let (rules, words) = broken(vec![file("f", &[second]), link("f")], 8);
    assert_eq!(rules, [Rule::LostSync]);
    assert!(words.ends_with("an older value of 40 bytes"), "{words}");
}

/// What is broken by a file with this in it at the end of a program.
fn broken_by(program: &str, stat: Stat) -> (Vec<Rule>, String) {
    let steps = Program::parse(&program.replace("; ", "\n")).expect("a program").0;
    let dids: Vec<Did> = steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Call(_, call) => Some(call),
            _ => None,
        })
        .map(|call| {
            let ino = matches!(call, Call::Open(..)).then_some(INO);
            let mtime = match call {
                Call::Utimensat(.., mtime) => Some(mtime),
                _ => None,
            };
            Did { ino, mtime, ..Did::of(call) }
        })
        .collect();
    let n = dids.len() as u32;
    let ledger = Ledger::new(&dids, 4096);
    let file = Survivor { stat: Some(stat), ..file("f", &[]) };
    let outcome = Outcome { files: vec![Rc::new(file)], ..Outcome::default() };
    let found = judge(&ledger, &outcome, (n, n), &Profile::EXT4);
    let words = found.first().map_or(String::new(), |v| format!("{}; {}", v.expected, v.seen));
    (found.iter().map(|v| v.rule).collect(), words)
}

#[test]
fn fsync_promises_permissions_owner_and_time_and_fdatasync_does_not() {
    let new = Stat { mode: 0o644, ..Stat::default() };
    let calls = "open 0 f rw,creat; chmod f 600; chown f 7 8; utimensat f 1 5.000000006; ";
    let mtime = TimeSpec { secs: 5, nanos: 6 };
    let set = Stat { mode: 0o600, owner: (7, 8), mtime, ..new };
    let (fsync, fdatasync) = (format!("{calls}fsync 0"), format!("{calls}fdatasync 0"));
    assert_eq!(broken_by(&fsync, set).0, []);
    for (stat, words) in [
        (Stat { mode: 0o644, ..set }, "permission bits 0600 as of `chmod f 0600`"),
        (Stat { owner: (0, 0), ..set }, "owner 7:8 as of `chown f 7 8`"),
        (Stat { mtime: TimeSpec { nanos: 0, ..mtime }, ..set }, "time of modification 5.000000006"),
    ] {
        let (rules, said) = broken_by(&fsync, stat);
        assert_eq!(rules, [Rule::LostSync], "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(broken_by(&fdatasync, stat).0, []);
    }
    // A later write gives the file a time that nobody chose.
    let wrote = format!("{calls}pwrite 0 1 0 1; fsync 0");
    let late = Stat { mtime: TimeSpec { secs: 9, nanos: 9 }, ..set };
    assert!(!broken_by(&wrote, late).1.contains("time of modification"));
    // Nobody ever set these.
    assert_eq!(broken_by(&fdatasync, Stat { mode: 0o777, ..set }).0, [Rule::Exposure]);
    assert_eq!(broken_by(&fdatasync, Stat { owner: (7, 0), ..set }).0, [Rule::Exposure]);
    let device = DeviceNumber { major: 1, minor: 3 };
    assert_eq!(broken_by(&fdatasync, Stat { device, ..set }).0, [Rule::Exposure]);
    // A change of owner takes set-user-ID away, and both stand in one inode.
    let suid = "open 0 f rw,creat; chmod f 4755; chown f 7 8; fsync 0";
    let kept = Stat { mode: 0o755, owner: (7, 8), ..new };
    assert_eq!(broken_by(suid, kept).0, []);
    assert_eq!(broken_by(suid, Stat { mode: 0o4755, ..kept }).0, [Rule::LostSync]);
}

#[test]
fn values_and_targets_that_nobody_gave_are_foreign() {
    for (name, len, seed) in [("user.a", 24, 9), ("user.a", 23, 1), ("user.b", 24, 1)] {
        let (rules, words) = broken(vec![file("f", &[(name, len, seed)])], 2);
        assert_eq!(rules, [Rule::Exposure], "{name} {len} {seed}");
        assert_eq!(words, format!("a value of {name} that was set; {len} other bytes"));
    }
    // What is set later cannot be there yet.
    let early = broken(vec![file("f", &[("user.a", 40, 2)])], 2);
    assert_eq!(early.0, [Rule::Exposure]);
    let there = file("f", &[("user.a", 40, 2)]);
    let (rules, words) = broken(vec![there, link("g")], 5);
    assert_eq!(rules, [Rule::Exposure]);
    assert_eq!(words, "a link to f; a link to \"g\"");
}
