//! Asynchronous writes: nothing is promised of one until the program knows that it has ended; then
//! what a blocking write promises.

use std::rc::Rc;

use wp_crash::{Did, Ledger, Outcome, Profile, Rule, Survivor, judge};
use wp_medium::Slice;
use wp_vfs::FileType;
use wp_workload::program::{Call, Ended, Program, contents};

const BLOCK: u32 = 4096;
const INO: u64 = 12;

/// A program whose `aio_wait`s take all that was submitted before them, in order.
fn ledger(program: &str) -> (Ledger, u32) {
    let steps = Program::parse(&program.replace(';', "\n")).expect("a program");
    let mut in_flight = Vec::new();
    let dids: Vec<Did> = steps
        .calls()
        .zip(0..)
        .map(|(call, n)| {
            let mut ended = Vec::new();
            match call {
                Call::AioWrite { len, .. } => in_flight.push((n, *len)),
                Call::AioWait(least) => {
                    let taken = in_flight.drain(..in_flight.len().min(*least as usize));
                    let end = |(tag, len)| Ended { tag, result: Ok(u64::from(len)) };
                    ended.extend(taken.map(end));
                }
                _ => {}
            }
            let ino = matches!(call, Call::Open(..)).then_some(INO);
            Did { ino, ended, ..Did::of(call.clone()) }
        })
        .collect();
    (Ledger::new(&dids, BLOCK), dids.len() as u32)
}

/// Rules that are broken if power fails when all has returned, and `f` has blocks of these seeds
/// (0: zeroes).
fn broken(program: &str, seeds: &[u32]) -> Vec<Rule> {
    let block = |(at, seed): (usize, &u32)| {
        let data = match seed {
            0 => Slice::zero(BLOCK),
            seed => contents(*seed, at as u64 * u64::from(BLOCK), BLOCK),
        };
        (at as u64, data.id())
    };
    let file = Survivor {
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
    };
    let outcome = Outcome { files: vec![Rc::new(file)], ..Outcome::default() };
    let (ledger, calls) = ledger(program);
    judge(&ledger, &outcome, (calls, calls), &Profile::EXT4).iter().map(|v| v.rule).collect()
}

const FILE: &str = "open 0 f rw,creat,direct;pwrite 0 8192 0 1;fsync 0;";

fn after(program: &str, seeds: &[u32]) -> Vec<Rule> {
    broken(&format!("{FILE}{program}"), seeds)
}

#[test]
fn a_sync_covers_what_the_program_knows_to_have_ended() {
    let waited = "aio_write 0 4096 0 2;aio_wait 1;fsync 0";
    assert_eq!(after(waited, &[2, 1]), []);
    assert_eq!(after(waited, &[1, 1]), [Rule::LostSync]);
    // Not known to have ended: either may be there, and nothing else.
    let unknown = "aio_write 0 4096 0 2;fsync 0";
    assert_eq!(after(unknown, &[2, 1]), []);
    assert_eq!(after(unknown, &[1, 1]), []);
    assert_eq!(after(unknown, &[7, 1]).first(), Some(&Rule::Exposure));
    let late = "aio_write 0 4096 0 2;fsync 0;aio_wait 1";
    assert_eq!(after(late, &[1, 1]), [], "the sync came before its end");
}

#[test]
fn a_length_is_promised_from_its_writes_end_on() {
    let grown = "aio_write 0 4096 8192 2;aio_wait 1;fsync 0";
    assert_eq!(after(grown, &[1, 1, 2]), []);
    assert_eq!(after(grown, &[1, 1]), [Rule::LostSync]);
    let both = "aio_write 0 4096 8192 2;aio_write 0 4096 12288 3;aio_wait 1;fsync 0";
    assert_eq!(after(both, &[1, 1, 2]), [], "the second one is on its way");
    assert_eq!(after(both, &[1, 1, 2, 3]), [], "and may have come");
    assert_eq!(after(both, &[1, 1]), [Rule::LostSync]);
}

#[test]
fn of_writes_that_overlap_in_flight_nobody_knows_which_is_later() {
    let raced = "aio_write 0 4096 0 2;aio_write 0 4096 0 3;aio_wait 2;fsync 0";
    for seed in [2, 3] {
        assert_eq!(after(raced, &[seed, 1]), []);
    }
    let beside = "aio_write 0 4096 0 2;pwrite 0 4096 0 3;aio_wait 1;fsync 0";
    for seed in [2, 3] {
        assert_eq!(after(beside, &[seed, 1]), [], "{seed}");
    }
}
