//! Snapshots of checkpoints: one that was durable stays, with the files that its checkpoint had.

use std::rc::Rc;

use wp_crash::{Did, Ledger, Outcome, Profile, Rule, Survivor, judge};
use wp_medium::Slice;
use wp_vfs::FileType;
use wp_workload::program::{Call, Program, Step, contents};

const INO: u64 = 12;

fn ledger(text: &str) -> Ledger {
    let steps = Program::parse(&text.replace("; ", "\n")).expect("a program").0;
    let mut next = 5;
    let dids: Vec<Did> = steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Call(_, call) => Some(call),
            _ => None,
        })
        .map(|call| {
            let ino = matches!(call, Call::Open(..)).then_some(INO);
            let checkpoint = matches!(call, Call::Mkcp(_)).then_some(next);
            next += u64::from(checkpoint.is_some());
            Did { ino, checkpoint, ..Did::of(call) }
        })
        .collect();
    Ledger::new(&dids, 4096)
}

/// `f` with one block of the write with this seed, or of none.
fn file(seed: Option<u32>) -> Rc<Survivor> {
    let blocks = seed.map(|seed| (0, contents(seed, 0, 4096).id()));
    Rc::new(Survivor {
        path: "f".to_owned(),
        kind: FileType::File,
        ino: INO,
        nlink: 1,
        size: if seed.is_some() { 4096 } else { 0 },
        stat: None,
        target: None,
        xattrs: None,
        blocks: blocks.into_iter().collect(),
        tail: None,
        allocated: None,
    })
}

/// Rules that are broken after `ended` calls if `f` is as the write of `seed` left it and these are
/// the snapshots; with the words of the first.
fn broken(
    ledger: &Ledger,
    seed: u32,
    snapshots: &[(u64, Option<u32>)],
    (begun, ended): (u32, u32),
) -> (Vec<Rule>, String) {
    let snapshots = snapshots.iter().map(|(n, seed)| (*n, vec![file(*seed)])).collect();
    let outcome = Outcome { files: vec![file(Some(seed))], snapshots, ..Outcome::default() };
    let found = judge(ledger, &outcome, (begun, ended), &Profile::POSIX);
    let words = found.first().map_or(String::new(), |v| format!("{}; {}", v.expected, v.seen));
    (found.iter().map(|v| v.rule).collect(), words)
}

const PROGRAM: &str = "open 0 f rw,creat; pwrite 0 4096 0 1; mkcp -s; pwrite 0 4096 0 2; sync; \
                       chcp cp 5; sync";

#[test]
fn a_snapshot_is_durable_with_the_sync_behind_it() {
    let ledger = ledger(PROGRAM);
    assert_ne!(Slice::zero(4096).id(), contents(1, 0, 4096).id());
    // `mkcp -s` syncs first, and makes the snapshot then.
    assert_eq!(broken(&ledger, 1, &[], (3, 3)).0, []);
    assert_eq!(broken(&ledger, 1, &[(5, Some(1))], (3, 3)).0, []);
    assert_eq!(broken(&ledger, 2, &[(5, Some(1))], (5, 5)).0, []);
    let (rules, words) = broken(&ledger, 2, &[], (5, 5));
    assert_eq!(rules, [Rule::LostSync]);
    assert_eq!(words, "snapshot 5, by `mkcp -s`; no such snapshot");
    // From the call of `chcp cp` on it may be none.
    assert_eq!(broken(&ledger, 2, &[], (6, 5)).0, []);
    assert_eq!(broken(&ledger, 2, &[], (7, 7)).0, []);
}

#[test]
fn a_snapshot_has_the_files_that_were_there() {
    let ledger = ledger(PROGRAM);
    // A later write, none, and nothing that the program wrote.
    for (seed, rule) in
        [(Some(2), Rule::Exposure), (None, Rule::LostSync), (Some(9), Rule::Exposure)]
    {
        let (rules, words) = broken(&ledger, 2, &[(5, seed)], (5, 5));
        assert!(rules.contains(&rule), "{seed:?}: {rules:?}");
        assert!(words.starts_with("in snapshot 5: "), "{words}");
    }
    // Of a checkpoint that nobody asked for, nobody knows what it has.
    assert_eq!(broken(&ledger, 2, &[(4, None), (5, Some(1))], (5, 5)).0, []);
}
