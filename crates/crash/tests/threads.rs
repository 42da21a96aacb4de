//! Calls that overlap: each may have come first, unless what they answered says which did; a sync
//! promises what had returned when it began.

use std::rc::Rc;

use wp_base::{FsError, Time};
use wp_crash::{Did, Entry, Ledger, Outcome, Overlaps, Profile, Rule, Survivor, Tape, Used, judge};
use wp_medium::Slice;
use wp_vfs::FileType;
use wp_workload::program::{Call, Program, Step, contents};

const BLOCK: u32 = 4096;

/// A run: lines of a program, with `!ERROR` behind a call that fails, and in which order calls
/// begin (their numbers) and return (the same number again). The file `x` has inode 100 + its
/// letter.
struct Run {
    ledger: Result<Ledger, String>,
    tape: Tape,
}

impl Run {
    fn new(program: &str, order: &[u32]) -> Run {
        let mut errors = Vec::new();
        let lines: Vec<&str> = program
            .split(';')
            .map(|line| {
                let (call, error) = line.split_once(" !").unwrap_or((line, ""));
                errors.push(match error {
                    "" => None,
                    "ENOENT" => Some(FsError::NotFound),
                    "EEXIST" => Some(FsError::Exists),
                    other => panic!("{other}"),
                });
                call
            })
            .collect();
        let steps = Program::parse(&lines.join("\n")).expect("a program").0;
        let mut files = std::collections::BTreeMap::new();
        let mut dids = Vec::new();
        for (step, error) in steps.iter().zip(errors) {
            let Step::Call(by, call) = step else { panic!("{step}") };
            let mut did = Did { thread: by.thread, error, ..Did::of(call.clone()) };
            match call {
                Call::Open(fd, path, how) => {
                    let ino = 100 + u64::from(path.bytes().next().unwrap_or(0));
                    did.ino = Some(ino);
                    files.insert(*fd, Used { ino, direct: how.direct });
                }
                call => {
                    let fds = call.clone();
                    let mut fds = fds;
                    did.uses = fds.descriptors_mut().iter().map(|fd| files[fd]).collect();
                }
            }
            dids.push(did);
        }
        let mut begun = std::collections::BTreeSet::new();
        let entries = order.iter().map(|n| match begun.insert(*n) {
            true => (Time(0), Entry::Begin(*n)),
            false => (Time(0), Entry::End(*n)),
        });
        let tape = Tape::of(entries.collect());
        let overlaps = Overlaps::of(&tape, dids.len());
        Run { ledger: Ledger::of_run(&[], &dids, BLOCK, &overlaps), tape }
    }

    /// Rules that are broken when power fails behind the first `entries` entries of the tape.
    fn broken_at(&self, entries: usize, files: &[Survivor]) -> Vec<Rule> {
        let count = |f: fn(&Entry) -> bool| {
            self.tape.entries[..entries].iter().filter(|(_, e)| f(e)).count() as u32
        };
        let begun = count(|e| matches!(e, Entry::Begin(_)));
        let ended = count(|e| matches!(e, Entry::End(_)));
        let files = files.iter().cloned().map(Rc::new).collect();
        let outcome = Outcome { files, ..Outcome::default() };
        let ledger = self.ledger.as_ref().expect("few orders");
        let found = judge(ledger, &outcome, (begun, ended), &Profile::EXT4);
        found.iter().map(|v| v.rule).collect()
    }

    /// The same when all has returned.
    fn broken(&self, files: &[Survivor]) -> Vec<Rule> {
        self.broken_at(self.tape.entries.len(), files)
    }
}

/// A file whose inode is that of the letter `was`, with these blocks.
fn file(path: &str, was: char, blocks: &[Slice]) -> Survivor {
    Survivor {
        path: path.to_owned(),
        kind: FileType::File,
        ino: 100 + u64::from(was),
        nlink: 1,
        size: blocks.len() as u64 * u64::from(BLOCK),
        stat: None,
        target: None,
        xattrs: Some(Vec::new()),
        blocks: (0..).zip(blocks.iter().map(Slice::id)).collect(),
        tail: None,
        allocated: None,
    }
}

/// `a` with blocks of these seeds.
fn a(seeds: &[u32]) -> Survivor {
    let block = |(n, seed): (u64, &u32)| contents(*seed, n * u64::from(BLOCK), BLOCK);
    file("a", 'a', &(0..).zip(seeds).map(block).collect::<Vec<_>>())
}

const LOST: [Rule; 1] = [Rule::LostSync];

#[test]
fn a_sync_promises_what_had_returned_when_it_began() {
    let text = "open 0 a rw,creat;pwrite 0 4096 0 1;thread 1: pwrite 0 4096 0 2;fsync 0";
    // The write is in progress when the sync begins, and returns before it does.
    let beside = Run::new(text, &[0, 0, 1, 1, 2, 3, 2, 3]);
    assert_eq!(beside.broken(&[a(&[1])]), []);
    assert_eq!(beside.broken(&[a(&[2])]), []);
    assert_eq!(beside.broken(&[a(&[])]), LOST, "the first write had returned");
    assert_eq!(beside.broken(&[a(&[3])]).first(), Some(&Rule::Exposure));
    let before = Run::new(text, &[0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(before.broken(&[a(&[1])]), LOST);
    // Nothing is due until the sync itself has returned, whatever else has.
    let late = Run::new(text, &[0, 0, 1, 1, 3, 2, 2, 3]);
    assert_eq!(late.broken_at(7, &[a(&[])]), []);
    assert_eq!(late.broken_at(8, &[a(&[])]), LOST);
    assert_eq!(late.broken_at(8, &[a(&[2])]), []);
}

#[test]
fn two_syncs_at_once_promise_each_what_it_found() {
    let text = "open 0 a rw,creat;open 1 b rw,creat;pwrite 0 4096 0 1;thread 1: fsync 0;\
                thread 2: pwrite 1 4096 0 2;thread 2: fsync 1";
    let run = Run::new(text, &[0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 3, 5]);
    let b = |seed| file("b", 'b', &[contents(seed, 0, BLOCK)]);
    let empty = file("b", 'b', &[]);
    assert_eq!(run.broken_at(11, &[a(&[1]), empty.clone()]), []);
    assert_eq!(run.broken_at(11, &[a(&[]), empty.clone()]), LOST);
    assert_eq!(run.broken(&[a(&[1]), empty]), LOST);
    assert_eq!(run.broken(&[a(&[1]), b(2)]), []);
}

#[test]
fn of_writes_at_once_either_is_the_later_one() {
    let text = "open 0 a rw,creat;pwrite 0 8192 0 1;thread 1: pwrite 0 8192 0 2;\
                thread 2: pwrite 0 8192 0 3;fsync 0";
    let run = Run::new(text, &[0, 0, 1, 1, 2, 3, 3, 2, 4, 4]);
    assert_eq!(run.broken(&[a(&[2, 2])]), []);
    assert_eq!(run.broken(&[a(&[3, 3])]), []);
    assert_eq!(run.broken(&[a(&[1, 1])]), LOST);
    assert_eq!(run.broken(&[a(&[2, 3])]), LOST, "the lock of the file keeps writes apart");
    // No lock does that for direct ones.
    let direct = Run::new(&text.replace("creat", "creat,direct"), &[0, 0, 1, 1, 2, 3, 3, 2, 4, 4]);
    for seeds in [[2, 2], [3, 3], [2, 3], [3, 2]] {
        assert_eq!(direct.broken(&[a(&seeds)]), [], "{seeds:?}");
    }
}

#[test]
fn writes_at_once_to_one_block_come_in_either_order() {
    let text = "open 0 a rw,creat;pwrite 0 4096 0 1;thread 1: pwrite 0 512 0 2;\
                thread 2: pwrite 0 512 512 3";
    let run = Run::new(text, &[0, 0, 1, 1, 2, 3, 2, 3]);
    let with = |parts: &[(u32, u64)]| {
        let mut bytes = contents(1, 0, BLOCK).to_vec();
        for (seed, at) in parts {
            let at_byte = *at as usize;
            contents(*seed, *at, 512).copy_to(&mut bytes[at_byte..at_byte + 512]);
        }
        file("a", 'a', &[Slice::from_bytes(&bytes)])
    };
    for parts in [&[][..], &[(2, 0)], &[(3, 512)], &[(2, 0), (3, 512)]] {
        assert_eq!(run.broken(&[with(parts)]), [], "{parts:?}");
    }
    assert_ne!(run.broken(&[with(&[(4, 0)])]), []);
    // One after the other leaves no state with the second alone.
    let apart = Run::new(text, &[0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(apart.broken(&[with(&[(3, 512)])]), [Rule::Exposure]);
}

#[test]
fn names_change_in_one_order_of_calls_at_once() {
    let text = "open 0 a rw,creat;open 1 b rw,creat;thread 1: rename a c;thread 2: rename b d";
    let run = Run::new(text, &[0, 0, 1, 1, 2, 3, 2, 3]);
    let names = |a: &str, b: &str| [file(a, 'a', &[]), file(b, 'b', &[])];
    for (a, b) in [("a", "b"), ("c", "b"), ("a", "d"), ("c", "d")] {
        assert_eq!(run.broken(&names(a, b)), [], "{a} {b}");
    }
    let apart = Run::new(text, &[0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(apart.broken(&names("a", "d")), [Rule::Order]);
}

#[test]
fn what_calls_answered_says_which_came_first() {
    // There was no `b` before the rename: the unlink came later, and the sync covers both.
    let text = "open 0 a rw,creat;thread 1: rename a b;thread 2: unlink b;sync";
    let run = Run::new(text, &[0, 0, 1, 2, 1, 2, 3, 3]);
    assert_eq!(run.broken(&[]), []);
    assert_ne!(run.broken(&[file("b", 'a', &[])]), []);
    // It did not find one: it came first.
    let text = text.replace("unlink b", "unlink b !ENOENT");
    let run = Run::new(&text, &[0, 0, 1, 2, 1, 2, 3, 3]);
    assert_eq!(run.broken(&[file("b", 'a', &[])]), []);
    assert_ne!(run.broken(&[]), []);
    // Nothing says which came first: either, but not neither.
    let text = "open 0 a rw,creat;open 1 b rw,creat;thread 1: rename a b;thread 2: unlink b;sync";
    let run = Run::new(text, &[0, 0, 1, 1, 2, 3, 2, 3, 4, 4]);
    assert_eq!(run.broken(&[]), []);
    assert_eq!(run.broken(&[file("b", 'a', &[])]), []);
    assert_ne!(run.broken(&[file("a", 'a', &[]), file("b", 'b', &[])]), []);
    // Who makes a name finds none, and who comes second is told.
    let text = "thread 1: mkdir d;thread 2: mkdir d !EEXIST;thread 1: rmdir d;sync";
    let run = Run::new(text, &[0, 1, 0, 1, 2, 2, 3, 3]);
    assert_eq!(run.broken(&[]), []);
}

#[test]
fn a_descriptor_that_is_closed_beside_its_sync_promises_nothing() {
    let text = "open 0 a rw,creat;pwrite 0 4096 0 1;thread 1: fsync 0;close 0";
    let beside = Run::new(text, &[0, 0, 1, 1, 2, 3, 3, 2]);
    assert_eq!(beside.broken(&[a(&[])]), []);
    let before = Run::new(text, &[0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(before.broken(&[a(&[])]), LOST);
}

#[test]
fn a_synchronous_write_promises_its_own_bytes_beside_others() {
    let text = "open 0 a rw,creat,dsync;pwrite 0 4096 0 1;thread 1: pwrite 0 4096 0 2;\
                open 1 a rw;pwrite 1 4096 4096 3";
    let run = Run::new(text, &[0, 0, 1, 1, 2, 3, 3, 4, 4, 2]);
    assert_eq!(run.broken(&[a(&[2])]), []);
    assert_eq!(run.broken(&[a(&[2, 3])]), []);
    assert_eq!(run.broken(&[a(&[1])]), LOST);
    assert_eq!(run.broken_at(9, &[a(&[1])]), [], "it has not returned");
}

#[test]
fn too_many_orders_are_an_error() {
    let calls = 8;
    let lines: Vec<String> = (0..calls).map(|n| format!("thread {}: mkdir d{n}", n + 1)).collect();
    let all: Vec<u32> = (0..calls).collect();
    let run = Run::new(&lines.join(";"), &[&all[..], &all[..]].concat());
    let why = run.ledger.expect_err("8! orders");
    assert!(why.contains("more than 1024 orders"), "{why}");
}
