//! Barriers: what one put before other calls is there if something of those is, and otherwise it
//! need not be.

use std::rc::Rc;

use wp_crash::{Did, Ledger, Outcome, Profile, Rule, Survivor, judge};
use wp_medium::Slice;
use wp_vfs::FileType;
use wp_workload::program::{Call, Program, Step, contents};

const BLOCK: u32 = 4096;
/// Inodes of `f` and `g`.
const INO: [u64; 2] = [12, 13];

fn ledger(program: &str) -> Ledger {
    let steps = Program::parse(&program.replace(';', "\n")).expect("a program").0;
    let calls = steps.into_iter().filter_map(|step| match step {
        Step::Call(_, call) => Some(call),
        _ => None,
    });
    let dids: Vec<Did> = calls
        .map(|call| {
            let ino = match &call {
                Call::Open(fd, ..) => Some(INO[*fd as usize]),
                _ => None,
            };
            Did { ino, ..Did::of(call) }
        })
        .collect();
    Ledger::new(&dids, BLOCK)
}

/// File `n` with blocks of these seeds; 0: zeroes.
fn file(n: usize, seeds: &[u32]) -> Survivor {
    let block = |(at, seed): (usize, &u32)| {
        let data = match seed {
            0 => Slice::zero(BLOCK),
            seed => contents(*seed, at as u64 * u64::from(BLOCK), BLOCK),
        };
        (at as u64, data.id())
    };
    Survivor {
        path: ["f", "g"][n].to_owned(),
        kind: FileType::File,
        ino: INO[n],
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

/// Rules that are broken when all calls have returned, and the words of the first.
fn broken(program: &str, files: &[Survivor], profile: Profile) -> (Vec<Rule>, String) {
    let calls = program.split(';').count() as u32;
    let files = files.iter().cloned().map(Rc::new).collect();
    let outcome = Outcome { files, ..Outcome::default() };
    let found = judge(&ledger(program), &outcome, (calls, calls), &profile);
    let words = found.first().map_or(String::new(), |v| format!("{}; {}", v.expected, v.seen));
    (found.iter().map(|v| v.rule).collect(), words)
}

const TWO: &str = "open 0 f rw,creat;open 1 g rw,creat;pwrite 0 4096 0 1;pwrite 1 4096 0 2;sync;\
                   pwrite 0 4096 0 3;fdatabarrier 0;pwrite 1 4096 0 4";

#[test]
fn what_came_after_a_barrier_presupposes_what_it_covered() {
    let p = Profile::EXT4;
    assert_eq!(broken(TWO, &[file(0, &[3]), file(1, &[4])], p).0, []);
    assert_eq!(broken(TWO, &[file(0, &[3]), file(1, &[2])], p).0, []);
    // Nothing of what came after: nothing need be there.
    assert_eq!(broken(TWO, &[file(0, &[1]), file(1, &[2])], p).0, []);
    let (rules, words) = broken(TWO, &[file(0, &[1]), file(1, &[4])], p);
    assert_eq!(rules, [Rule::Order]);
    assert_eq!(
        words,
        "data of `pwrite 0 4096 0 3` or later, as `fdatabarrier 0` ordered before \
         `pwrite 1 4096 0 4`, which survived; data of `pwrite 0 4096 0 1`"
    );
    // It says nothing of other files.
    let other = TWO.replace("fdatabarrier 0", "fdatabarrier 1");
    assert_eq!(broken(&other, &[file(0, &[1]), file(1, &[4])], p).0, []);
}

#[test]
fn a_name_or_a_length_shows_that_a_call_came_after() {
    let name = "open 0 f rw,creat;pwrite 0 4096 0 1;fbarrier 0;mkdir d";
    let dir = Survivor { kind: FileType::Dir, path: "d".to_owned(), ino: 14, ..file(0, &[]) };
    assert_eq!(broken(name, &[file(0, &[1])], Profile::EXT4).0, []);
    assert_eq!(broken(name, &[], Profile::EXT4).0, []);
    let (rules, words) = broken(name, &[file(0, &[]), dir.clone()], Profile::EXT4);
    assert_eq!(rules, [Rule::Order]);
    assert!(words.contains("before `mkdir d`, which survived"), "{words}");
    assert_eq!(broken(name, &[file(0, &[1]), dir], Profile::EXT4).0, []);
    let length = "open 0 f rw,creat;open 1 g rw,creat;sync;pwrite 0 4096 0 1;fbarrier 0;\
                  ftruncate 1 8192";
    let (rules, _) = broken(length, &[file(0, &[]), file(1, &[0, 0])], Profile::EXT4);
    assert_eq!(rules, [Rule::Order]);
}

#[test]
fn contents_that_were_there_before_the_barrier_show_nothing() {
    let again = "open 0 f rw,creat;open 1 g rw,creat;pwrite 0 4096 0 1;pwrite 1 4096 0 2;sync;\
                 pwrite 0 4096 0 3;fdatabarrier 0;pwrite 1 4096 0 4;pwrite 1 4096 0 2";
    assert_eq!(broken(again, &[file(0, &[1]), file(1, &[2])], Profile::EXT4).0, []);
}

#[test]
fn where_fsync_only_orders_it_promises_no_durability() {
    let fsync = TWO.replace("fdatabarrier 0", "fsync 0");
    let orders = Profile { syncs_only_order: true, ..Profile::EXT4 };
    let lost = [file(0, &[1]), file(1, &[2])];
    assert_eq!(broken(&fsync, &lost, Profile::EXT4).0, [Rule::LostSync]);
    assert_eq!(broken(&fsync, &lost, orders).0, []);
    let inverted = [file(0, &[1]), file(1, &[4])];
    assert_eq!(broken(&fsync, &inverted, orders).0, [Rule::Order]);
}
