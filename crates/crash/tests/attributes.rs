//! Symbolic links and extended attributes: what is promised of them, and what must never be seen.

use std::rc::Rc;

use wp_base::FsError;
use wp_crash::{Did, Ledger, Outcome, Profile, Rule, Survivor, judge};
use wp_medium::Slice;
use wp_vfs::{DeviceNumber, FileFlags, FileType, Stat, TimeSpec};
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
            let flags = match call {
                Call::Chattr(_, flags) => Some(flags),
                _ => None,
            };
            Did { ino, mtime, flags, ..Did::of(call) }
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

#[test]
fn fsync_promises_flags_and_fdatasync_does_not() {
    let new = Stat { mode: 0o644, ..Stat::default() };
    let set = Stat { flags: FileFlags::SYNC, ..new };
    let calls = "open 0 f rw,creat; chattr f sync; ";
    assert_eq!(broken_by(&format!("{calls}fsync 0"), set).0, []);
    let (rules, said) = broken_by(&format!("{calls}fsync 0"), new);
    assert_eq!(rules, [Rule::LostSync]);
    assert!(said.contains("flags sync as of `chattr f sync`") && said.contains("flags none"));
    assert_eq!(broken_by(&format!("{calls}fdatasync 0"), new).0, []);
    // A write to such a file is durable when it returns.
    let wrote = format!("{calls}pwrite 0 4096 0 1");
    assert_eq!(broken_by(&wrote, set).0, [Rule::LostSync]);
    assert_eq!(broken_by(&wrote.replace("chattr f sync", "chattr f nodump"), new).0, []);
    // `journal-data` changes after the other flags, in a transaction of its own.
    let twice = format!("{calls}fsync 0; chattr f journal-data");
    assert_eq!(broken_by(&twice, new).0, []);
    let both = Stat { flags: FileFlags(FileFlags::SYNC.0 | FileFlags::JOURNAL_DATA.0), ..new };
    assert_eq!(broken_by(&twice, both).0, [Rule::LostSync]);
    assert_eq!(broken_by(&format!("{twice}; fsync 0"), new).0, [Rule::LostSync]);
}

#[test]
fn what_is_made_in_a_set_group_id_directory_has_its_group() {
    let text = "mkdir d; chown d 5 77; chmod d 2755; open 0 d/f rw,creat; mkdir d/e; fsync 0";
    let steps = Program::parse(&text.replace("; ", "\n")).expect("a program");
    let dids: Vec<Did> = steps
        .calls()
        .map(|call| {
            let ino = matches!(call, Call::Open(..)).then_some(INO);
            Did { ino, ..Did::of(call.clone()) }
        })
        .collect();
    let n = dids.len() as u32;
    let ledger = Ledger::new(&dids, 4096);
    let dir = |path: &str, mode, owner| Survivor {
        path: path.to_owned(),
        kind: FileType::Dir,
        ino: 20 + path.len() as u64,
        nlink: 2,
        stat: Some(Stat { mode, owner, ..Stat::default() }),
        ..file("", &[])
    };
    let found = |group, mode| {
        let stat = Some(Stat { mode: 0o644, owner: (0, group), ..Stat::default() });
        let files = vec![
            dir("d", 0o2755, (5, 77)),
            dir("d/e", mode, (0, group)),
            Survivor { path: "d/f".to_owned(), stat, ..file("", &[]) },
        ];
        let files = files.into_iter().map(Rc::new).collect();
        let outcome = Outcome { files, ..Outcome::default() };
        let found = judge(&ledger, &outcome, (n, n), &Profile::EXT4);
        found.iter().map(|v| (v.rule, v.path.clone())).collect::<Vec<_>>()
    };
    assert_eq!(found(77, 0o2755), []);
    let lost = |rule, path: &str| (rule, path.to_owned());
    assert!(found(0, 0o2755).contains(&lost(Rule::LostSync, "d/f")));
    assert!(found(77, 0o755).contains(&lost(Rule::Exposure, "d/e")));
}

#[test]
fn the_root_directory_keeps_its_attributes_after_its_fsync() {
    let broken = |text: &str, mode| {
        let steps = Program::parse(&text.replace("; ", "\n")).expect("a program");
        let dids: Vec<Did> = steps.calls().map(|call| Did::of(call.clone())).collect();
        let root = Some(Stat { mode, ..Stat::default() });
        let outcome = Outcome { root, ..Outcome::default() };
        let n = dids.len() as u32;
        let found = judge(&Ledger::new(&dids, 4096), &outcome, (n, n), &Profile::EXT4);
        found.iter().map(|v| (v.rule, v.path.clone())).collect::<Vec<_>>()
    };
    let synced = "open 0 . r; chmod . 700; fsync 0";
    assert_eq!(broken(synced, 0o700), []);
    assert_eq!(broken(synced, 0o755), [(Rule::LostSync, ".".to_owned())]);
    assert_eq!(broken("open 0 . r; chmod . 700; syncfs 0", 0o755).len(), 1);
    assert_eq!(broken("open 0 . r; chmod . 700", 0o755), []);
    assert_eq!(broken("open 0 . r; chmod . 700; fdatasync 0", 0o755), []);
}

#[test]
fn a_write_of_no_bytes_changes_nothing() {
    for how in ["rw,creat", "rw,creat,append", "rw,creat,direct", "rw,creat,sync"] {
        let calls = format!("open 0 f {how}; pwrite 0 0 4096 1; aio_write 0 0 8192 1; aio_wait 1");
        let new = Stat { mode: 0o644, ..Stat::default() };
        assert_eq!(broken_by(&format!("{calls}; fsync 0"), new).0, [], "{how}");
        let copied = format!("{calls}; copy_file_range 0 0 0 9000 0; fsync 0");
        assert_eq!(broken_by(&copied, new).0, [], "{how}");
        // The time of modification is still the one that was set.
        let mtime = TimeSpec { secs: 5, nanos: 6 };
        let timed = format!("open 0 f rw,creat; utimensat f 1 5.000000006; {calls}; fsync 0");
        assert_eq!(broken_by(&timed, new).0, [Rule::LostSync], "{how}");
        assert_eq!(broken_by(&timed, Stat { mtime, ..new }).0, [], "{how}");
    }
}

/// Rules that a file of these blocks breaks after a call that the device failed.
fn after_failure(call: &str, size: u64, blocks: &[(u64, u32, u64)]) -> Vec<Rule> {
    let text = format!("open 0 f rw,creat\npwrite 0 12288 0 1\nfsync 0\n{call}\nsync\n");
    let program = Program::parse(&text).expect("a program");
    let dids: Vec<Did> = program
        .calls()
        .enumerate()
        .map(|(n, call)| {
            let ino = (n == 0).then_some(INO);
            let (error, size) = if n == 3 { (Some(FsError::Io), Some(size)) } else { (None, None) };
            Did { ino, error, size, ..Did::of(call.clone()) }
        })
        .collect();
    let mut ledger = Ledger::new(&dids, 4096);
    ledger.set_failed();
    let held =
        |(block, seed, from): &(u64, u32, u64)| (*block, contents(*seed, *from * 4096, 4096).id());
    let blocks = blocks.iter().map(held).collect();
    let file = Survivor { size, blocks, ..file("f", &[]) };
    let outcome = Outcome { files: vec![Rc::new(file)], ..Outcome::default() };
    let found = judge(&ledger, &outcome, (5, 5), &Profile::EXT4);
    found.iter().map(|v| v.rule).collect()
}

#[test]
fn a_change_that_failed_half_way_leaves_any_part_of_it() {
    let all = [(0, 1, 0), (1, 1, 1), (2, 1, 2)];
    // Nothing was cut; all was; the length was, and one block is still there.
    assert_eq!(after_failure("ftruncate 0 4096", 12288, &all), []);
    assert_eq!(after_failure("ftruncate 0 4096", 4096, &all[..1]), []);
    assert_eq!(after_failure("ftruncate 0 4096", 12288, &all[..1]), []);
    // What lies before the cut stays.
    assert_ne!(after_failure("ftruncate 0 4096", 4096, &[]), []);
    for half in [&all[..], &[(0, 1, 0), (1, 1, 2)], &[(0, 1, 0), (2, 1, 2)]] {
        assert_eq!(after_failure("fallocate 0 collapse 4096 4096", 12288, half), [], "{half:?}");
    }
    let inserted = [(0, 1, 0), (2, 1, 1), (3, 1, 2)];
    assert_eq!(after_failure("fallocate 0 insert 4096 4096", 16384, &inserted), []);
    assert_eq!(after_failure("fallocate 0 insert 4096 4096", 16384, &inserted[..2]), []);
    assert_eq!(after_failure("fallocate 0 insert 4096 4096", 12288, &all), []);
}

/// What is changed in place in a block that moved may stand where the block was, should the move
/// be lost: Linux 6.12.117 writes the block before it commits the move.
#[test]
fn a_block_that_moved_and_was_changed_may_be_seen_at_its_old_place() {
    let found = |change: &str, second: &[u8]| {
        let collapse = "fallocate 0 collapse 0 4096";
        let text =
            format!("open 0 f rw,creat\npwrite 0 8192 0 1\nfsync 0\n{collapse}\n{change}\nsync\n");
        let program = Program::parse(&text).expect("a program");
        let dids: Vec<Did> = program
            .calls()
            .enumerate()
            .map(|(n, call)| Did { ino: (n == 0).then_some(INO), ..Did::of(call.clone()) })
            .collect();
        let ledger = Ledger::new(&dids, 4096);
        let blocks = vec![(0, contents(1, 0, 4096).id()), (1, Slice::from_bytes(second).id())];
        let file = Survivor { size: 8192, blocks, ..file("f", &[]) };
        let outcome = Outcome { files: vec![Rc::new(file)], ..Outcome::default() };
        judge(&ledger, &outcome, (5, 4), &Profile::EXT4).len()
    };
    let old = contents(1, 4096, 4096).to_vec();
    let kept = |bytes: usize| [&old[..bytes], &vec![0; 4096 - bytes][..]].concat();
    assert_eq!(found("ftruncate 0 1", &old), 0);
    assert_eq!(found("ftruncate 0 1", &kept(1)), 0);
    assert_eq!(found("fallocate 0 punch 100 3996", &kept(100)), 0);
    // More than was cut is gone.
    assert_ne!(found("ftruncate 0 100", &kept(1)), 0);
}
