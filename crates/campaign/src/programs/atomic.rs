//! Programs that write files atomically, with all that can come between: a sync, a checkpoint,
//! another file's fsync, caches that are dropped, an abort, a close. Not an fsync of the file
//! itself: F2FS makes it longer then (N42).
//!
//! An inode of F2FS has up to 923 addresses, so that a commit takes one node or two.

use wp_vfs::AtomicWrite;
use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, WRITE, Writer};

const NAPS: [u64; 3] = [0, 200, 6_000_000];
/// More than a tick.
const TICKS_US: u64 = 12_000;
/// Places of blocks that a transaction writes: in the inode, and of the first file also behind it.
/// The second one is replaced: recovery does not free nodes that the file has lost, and what they
/// lead to comes back, as after a truncate.
const PLACES: [u64; 8] = [0, 1, 2, 3, 5, 930, 931, 1950];
/// Those in the inode.
const NEAR: u64 = 5;
const NAMES: [&str; 2] = ["a", "b"];

/// Two files, durable; then transactions on both, each committed, aborted or left.
pub fn transactions(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that write atomically");
    for (fd, name) in (0..).zip(NAMES) {
        w.open(fd, name, CREATE);
        w.write(fd, 0, 4 * BLOCK);
        if fd == 0 && w.below(2) == 0 {
            w.write(fd, 930 * u64::from(BLOCK), BLOCK);
        }
    }
    w.call(Call::Sync);
    if w.below(2) == 0 {
        w.call(Call::Fsync(0));
    }
    w.steps.push(Step::Case("transactions".to_owned()));
    let mut is_running = [false; 2];
    for _ in 0..6 + w.below(5) {
        let fd = w.below(2) as u32;
        let runs = &mut is_running[fd as usize];
        match (*runs, w.below(16)) {
            (false, 0..=11) => {
                let replaces = fd == 1 && w.below(3) == 0;
                let how = if replaces { AtomicWrite::Replace } else { AtomicWrite::Start };
                w.call(Call::Atomic(fd, how));
                some_writes(&mut w, fd);
                *runs = true;
            }
            (true, 0..=7) => {
                w.call(Call::Atomic(fd, AtomicWrite::Commit));
                *runs = false;
            }
            (true, 8) => {
                w.call(Call::Atomic(fd, AtomicWrite::Abort));
                *runs = false;
            }
            (true, 9) => {
                w.call(Call::Close(fd));
                w.open(fd, NAMES[fd as usize], WRITE);
                *runs = false;
            }
            (_, 10..=12) => some_writes(&mut w, fd),
            (_, _) => {
                let idle = (0..2).find(|fd| !is_running[*fd as usize]);
                between(&mut w, fd, idle);
            }
        }
    }
    w.call(Call::Close(1));
    w.call(Call::Sync);
    w.nap(&NAPS);
    Program(w.steps)
}

/// A few writes, of whole blocks and of parts.
fn some_writes(w: &mut Writer, fd: u32) {
    // In the tick of what was synced before, F2FS does not store a new length of whole blocks
    // (`f2fs_skip_inode_update`), and recovery does not find it.
    w.steps.push(Step::Nap(TICKS_US));
    for _ in 0..1 + w.below(3) {
        let places = if fd == 0 { PLACES.len() as u64 } else { NEAR };
        let place = PLACES[w.below(places) as usize] * u64::from(BLOCK);
        match w.below(4) {
            0 => {
                let (at, len) = (w.below(3000), 1 + w.below(6000));
                w.write(fd, place + at, len as u32);
            }
            _ => w.write(fd, place, BLOCK),
        }
    }
}

/// What may come at any time; `idle`: a file without a transaction.
fn between(w: &mut Writer, fd: u32, idle: Option<u32>) {
    match (w.below(6), idle) {
        (0, _) => w.call(Call::Sync),
        (1, Some(idle)) => w.call(Call::Fsync(idle)),
        (2, Some(idle)) => w.call(Call::Fdatasync(idle)),
        (3, _) => w.call(Call::DropCaches),
        (4, _) => w.call(Call::Chmod(NAMES[fd as usize].to_owned(), 0o600)),
        _ => w.nap(&NAPS),
    }
}
