//! Atomic writes: all that one made is there or nothing, and nothing before it was committed.

use std::rc::Rc;

use wp_crash::{Did, Ledger, Outcome, Profile, Rule, Survivor, judge};
use wp_medium::Slice;
use wp_vfs::FileType;
use wp_workload::program::{Call, Program, Step, contents};

const BLOCK: u32 = 4096;
const INO: u64 = 12;

fn ledger(program: &str) -> Ledger {
    let steps = Program::parse(&program.replace(';', "\n")).expect("a program").0;
    let calls = steps.into_iter().filter_map(|step| match step {
        Step::Call(_, call) => Some(call),
        _ => None,
    });
    let did = |call| {
        let ino = matches!(call, Call::Open(..)).then_some(INO);
        Did { ino, ..Did::of(call) }
    };
    Ledger::new(&calls.map(did).collect::<Vec<_>>(), BLOCK)
}

/// The file with blocks of these seeds; 0: zeroes.
fn file(seeds: &[u32]) -> Survivor {
    let block = |(at, seed): (usize, &u32)| {
        let data = match seed {
            0 => Slice::zero(BLOCK),
            seed => contents(*seed, at as u64 * u64::from(BLOCK), BLOCK),
        };
        (at as u64, data.id())
    };
    Survivor {
        path: "f".to_owned(),
        kind: FileType::File,
        ino: INO,
        nlink: 1,
        size: seeds.len() as u64 * u64::from(BLOCK),
        stat: None,
        target: None,
        xattrs: Some(Vec::new()),
        blocks: seeds.iter().enumerate().map(block).collect(),
        tail: None,
        allocated: None,
    }
}

/// Rules that are broken after `calls` of a program's calls.
fn after(program: &str, calls: u32, seeds: &[u32], profile: Profile) -> Vec<Rule> {
    let outcome = Outcome { files: vec![Rc::new(file(seeds))], ..Outcome::default() };
    let found = judge(&ledger(program), &outcome, (calls, calls), &profile);
    found.iter().map(|v| v.rule).collect()
}

const TWO: &str = "open 0 f rw,creat;pwrite 0 8192 0 1;sync;atomic_start 0;pwrite 0 4096 0 2;\
                   pwrite 0 4096 4096 3;atomic_commit 0";

#[test]
fn a_part_of_a_commit_is_a_mixture_and_all_of_it_or_none_is_not() {
    let p = Profile::POSIX;
    assert_eq!(after(TWO, 7, &[1, 1], p), []);
    assert_eq!(after(TWO, 7, &[2, 3], p), []);
    assert_eq!(after(TWO, 7, &[2, 1], p), [Rule::MixedVersions]);
    assert_eq!(after(TWO, 7, &[1, 3], p), [Rule::MixedVersions]);
}

/// What no version had, and not what the sync before promised.
const NOT_YET: [Rule; 2] = [Rule::Exposure, Rule::LostSync];

#[test]
fn nothing_is_there_before_the_commit_is_called() {
    assert_eq!(after(TWO, 6, &[1, 1], Profile::POSIX), []);
    assert_eq!(after(TWO, 6, &[2, 3], Profile::POSIX), NOT_YET);
    let aborted = TWO.replace("atomic_commit", "atomic_abort");
    assert_eq!(after(&aborted, 7, &[1, 1], Profile::POSIX), []);
    assert_eq!(after(&aborted, 7, &[1, 3], Profile::POSIX), NOT_YET);
    let closed = TWO.replace("atomic_commit 0", "close 0;open 0 f rw;atomic_commit 0");
    // What is called then is an fdatasync, which promises as much as the sync.
    let broken = [Rule::Exposure, Rule::LostSync, Rule::LostSync];
    assert_eq!(after(&closed, 9, &[2, 3], Profile::POSIX), broken);
}

#[test]
fn a_commit_is_durable_only_for_who_assumes_it_and_after_a_sync() {
    let held = Profile { commits_hold: true, ..Profile::POSIX };
    assert_eq!(after(TWO, 7, &[1, 1], held), [Rule::LostSync]);
    let synced = format!("{TWO};fsync 0");
    assert_eq!(after(&synced, 8, &[1, 1], Profile::POSIX), [Rule::LostSync]);
    // Without a start it is an fdatasync.
    let plain = "open 0 f rw,creat;pwrite 0 8192 0 1;sync;pwrite 0 4096 0 2;atomic_commit 0";
    assert_eq!(after(plain, 5, &[1, 1], Profile::POSIX), [Rule::LostSync]);
}

#[test]
fn a_length_is_part_of_a_commit() {
    let longer = "open 0 f rw,creat;pwrite 0 4096 0 1;sync;atomic_start 0;pwrite 0 4096 0 2;\
                  pwrite 0 4096 8192 3;atomic_commit 0";
    assert_eq!(after(longer, 7, &[2, 0, 3], Profile::POSIX), []);
    assert_eq!(after(longer, 7, &[1], Profile::POSIX), []);
    assert_eq!(after(longer, 7, &[2], Profile::POSIX), [Rule::MixedVersions]);
    assert_eq!(after(longer, 7, &[1, 0, 3], Profile::POSIX), [Rule::MixedVersions]);
}

#[test]
fn a_replaced_file_has_only_what_was_written_since() {
    let text = TWO.replace("atomic_start", "atomic_replace");
    let text = text.replace("pwrite 0 4096 0 2;", "");
    assert_eq!(after(&text, 6, &[0, 3], Profile::POSIX), []);
    assert_eq!(after(&text, 6, &[1, 1], Profile::POSIX), []);
    assert_eq!(after(&text, 6, &[1, 3], Profile::POSIX), [Rule::MixedVersions]);
}

#[test]
fn what_a_later_call_wrote_over_says_nothing_of_the_commit_before() {
    let later = format!("{TWO};pwrite 0 4096 0 4");
    assert_eq!(after(&later, 8, &[4, 3], Profile::POSIX), []);
    assert_eq!(after(&later, 8, &[4, 1], Profile::POSIX), []);
    assert_eq!(after(&later, 8, &[2, 1], Profile::POSIX), [Rule::MixedVersions]);
}
