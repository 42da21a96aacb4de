//! Files of which little changes before they are synced, each in a way that some version of ext4
//! forgot to make durable.

use wp_workload::program::{Alloc, Call, Flags, Program, Step};

use super::{BLOCK, CREATE, DIRECT, Writer};

/// `O_RDWR|O_DIRECT|O_DSYNC`.
const DIRECT_DSYNC: Flags = Flags { dsync: true, ..DIRECT };

fn at(block: u64) -> u64 {
    block * u64::from(BLOCK)
}

/// A file of some blocks that is durable.
fn kept(seed: u64, blocks: u64, bytes: u64) -> Writer {
    let mut w = Writer::new(seed, "durable programs");
    w.open(0, "f", CREATE);
    w.write(0, 0, (at(blocks) + bytes) as u32);
    w.call(Call::Fsync(0));
    w.steps.push(Step::Case("durable".to_owned()));
    w
}

/// Its length alone changes: within its last block, or by `ftruncate`.
pub fn lengths(seed: u64) -> Program {
    let mut w = kept(seed, seed % 3, 100);
    let size = at(seed % 3) + 100;
    for _ in 0..1 + w.below(2) {
        match w.below(3) {
            0 => w.write(0, size, 100),
            1 => w.call(Call::Ftruncate(0, size + 1 + 500 * (seed % 5))),
            _ => w.call(Call::Ftruncate(0, size / 2)),
        }
        w.call(Call::Fdatasync(0));
    }
    Program(w.steps)
}

/// Holes are punched into it.
pub fn holes(seed: u64) -> Program {
    let mut w = kept(seed, 4, 0);
    for _ in 0..1 + w.below(2) {
        let (from, blocks) = (w.below(3), 1 + w.below(2));
        // At blocks or not: what is within a block is zeroed in the cache.
        let odd = w.below(2) * 512;
        w.call(Call::Fallocate(0, Alloc::Punch, at(from) + odd, at(blocks)));
        w.call(Call::Fdatasync(0));
    }
    Program(w.steps)
}

/// Space behind its end is asked for.
pub fn space(seed: u64) -> Program {
    let blocks = 1 + seed % 4;
    let mut w = kept(seed, blocks, 0);
    let more = 1 + w.below(8);
    w.call(Call::Fallocate(0, Alloc::Keep, at(blocks), at(more)));
    w.call(Call::Fdatasync(0));
    Program(w.steps)
}

/// Space is asked for through a descriptor that makes it durable, behind a write that is not.
pub fn asked(seed: u64) -> Program {
    let mut w = kept(seed, 1, 0);
    if seed.is_multiple_of(2) {
        let end = 8 + w.below(4);
        w.write(0, at(end), BLOCK);
    }
    w.open(1, "f", Flags { dsync: true, ..super::WRITE });
    let blocks = 2 + w.below(4);
    w.call(Call::Fallocate(1, Alloc::Extend, 0, at(blocks)));
    Program(w.steps)
}

/// Parts of its pages are overwritten.
pub fn parts(seed: u64) -> Program {
    let mut w = kept(seed, 4, 0);
    w.call(Call::Sync);
    for _ in 0..1 + w.below(3) {
        let (part, parts) = (w.below(14), 1 + w.below(2));
        w.write(0, part * 1024, parts as u32 * 1024);
        w.call(Call::Fdatasync(0));
    }
    Program(w.steps)
}

/// It grows through a descriptor that writes at the end, each write durable when it returns.
pub fn at_the_end(seed: u64) -> Program {
    let mut w = kept(seed, 1 + seed % 2, 0);
    w.open(1, "f", Flags { append: true, sync: true, ..super::WRITE });
    for _ in 0..1 + w.below(3) {
        w.write(1, 0, BLOCK);
    }
    Program(w.steps)
}

/// It grows by direct writes, each durable when it returns.
pub fn appended(seed: u64) -> Program {
    let mut blocks = seed % 3;
    let mut w = kept(seed, blocks.max(1), 0);
    blocks = blocks.max(1);
    w.open(1, "f", DIRECT_DSYNC);
    for _ in 0..1 + w.below(3) {
        let n = 1 + w.below(3);
        w.write(1, at(blocks), at(n) as u32);
        blocks += n;
        w.nap(&[0, 100, 20_000]);
    }
    Program(w.steps)
}

/// It grows through the cache, and is then written past it before its new end.
pub fn behind(seed: u64) -> Program {
    let mut w = kept(seed, 1, 0);
    let end = 4 + w.below(4);
    w.write(0, at(end), BLOCK);
    w.open(1, "f", DIRECT_DSYNC);
    for _ in 0..1 + w.below(2) {
        let block = 1 + w.below(end - 1);
        w.write(1, at(block), BLOCK);
    }
    Program(w.steps)
}

/// Asynchronous direct writes into it, durable when they have ended.
pub fn queued(seed: u64) -> Program {
    let mut w = kept(seed, 4, 0);
    w.open(1, "f", DIRECT_DSYNC);
    for n in 0..1 + w.below(3) {
        let block = w.below(4);
        w.call(Call::AioWrite { fd: 1, len: BLOCK, at: at(block), seed: 100 + n as u32 });
        w.call(Call::AioWait(1));
    }
    Program(w.steps)
}
