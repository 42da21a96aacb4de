//! Direct writes, as databases send them that have a cache of their own: in what a file holds, in
//! what was allocated for it and never written, in holes, and behind its end; while other files
//! come and go, so that free blocks hold what somebody wrote.

use wp_workload::program::{Alloc, Call, Flags, Program, Step};

use super::{BLOCK, CREATE, DIRECT, Writer};

/// Blocks of the table, as it is made.
const BLOCKS: u64 = 12;

/// A table of which a part is written; then direct writes to it, most of them not synced, and a
/// file that is written, synced and deleted.
pub fn database(seed: u64) -> Program {
    let mut w = Writer::new(seed, "direct programs");
    let at = |block: u64| block * u64::from(BLOCK);
    w.open(0, "table", CREATE);
    if w.below(2) == 0 {
        w.call(Call::Fallocate(0, Alloc::Extend, 0, at(BLOCKS)));
    }
    let held = 1 + w.below(BLOCKS);
    w.write(0, 0, held as u32 * BLOCK);
    w.call(Call::Fsync(0));
    w.steps.push(Step::Case("direct".to_owned()));
    let dsync = w.below(3) == 0;
    w.open(1, "table", Flags { dsync, ..DIRECT });
    let mut log = None;
    for _ in 0..6 + w.below(6) {
        match w.below(16) {
            0..=9 => {
                let block = w.below(BLOCKS + 4);
                let blocks = 1 + w.below(3) as u32;
                w.write(1, at(block), blocks * BLOCK);
            }
            10 => w.call(Call::Fsync(1)),
            11 => w.call(Call::Fdatasync(0)),
            12..=13 => {
                // The log of a transaction, and its end.
                match log.take() {
                    None => {
                        w.open(2, "log", CREATE);
                        w.write(2, 0, 2 * BLOCK);
                        w.call(Call::Fsync(2));
                        log = Some(());
                    }
                    Some(()) => {
                        w.call(Call::Close(2));
                        w.call(Call::Unlink("log".to_owned()));
                    }
                }
            }
            14 => {
                let block = w.below(BLOCKS);
                w.call(Call::Fallocate(1, Alloc::Punch, at(block), at(2)));
            }
            _ => w.nap(&[100, 1_000, 20_000]),
        }
    }
    Program(w.steps)
}

/// A file is written through the cache, synced or not, and its blocks again past it, durably.
pub fn durable(seed: u64) -> Program {
    let mut w = Writer::new(seed, "durable direct programs");
    let at = |block: u64| block * u64::from(BLOCK);
    w.open(0, "table", CREATE);
    for _ in 0..1 + w.below(3) {
        let block = w.below(4);
        w.write(0, at(block), 2 * BLOCK);
        match w.below(4) {
            0 => w.call(Call::Fsync(0)),
            1 => w.nap(&[100, 40_000_000]),
            _ => {}
        }
    }
    w.open(1, "table", Flags { dsync: true, ..DIRECT });
    for _ in 0..1 + w.below(3) {
        let block = w.below(5);
        w.write(1, at(block), BLOCK);
    }
    Program(w.steps)
}
