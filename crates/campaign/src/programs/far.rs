//! Programs that change files where an inode has no addresses of its own any more, and make that
//! durable: lengths, holes and zeroes, by fdatasync as by fsync.
//!
//! An inode of F2FS has up to 923 addresses, one of ext4 with block lists twelve.

use wp_workload::program::{Alloc, Call, Program, Step};

use super::{BLOCK, CREATE, Writer};

const NAPS: [u64; 3] = [0, 3_000, 6_000_000];
const FD: u32 = 0;
/// Blocks before the end that hold something.
const HELD: u64 = 16;

/// One file of some four MiB, mostly a hole, synced; then changes around its end, each perhaps
/// followed by a sync.
pub fn behind_the_inode(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that work far behind");
    w.open(FD, "far", CREATE);
    let block = u64::from(BLOCK);
    // Whole blocks and a part of one, mostly more than an inode takes.
    let mut size = (915 + w.below(24)) * block + w.below(3) * 1000;
    let from = (size / block - HELD) * block;
    w.write(FD, from, (size - from) as u32);
    w.call(Call::Fsync(FD));
    w.steps.push(Step::Case("change".to_owned()));
    for _ in 0..6 {
        match w.below(8) {
            // To the end and behind it, in pieces of blocks.
            0..=2 => {
                let len = (1 + w.below(6)) * 512;
                w.write(FD, size, len as u32);
                size += len;
            }
            3 => {
                let from = size / block - 1 - w.below(12);
                w.write(FD, from * block, BLOCK);
            }
            kind => {
                let how = [Alloc::Punch, Alloc::Zero, Alloc::Keep, Alloc::ZeroKeep];
                let how = how[kind as usize - 4];
                let blocks = 1 + w.below(3);
                let from = match how {
                    Alloc::Punch => size / block - blocks - w.below(12),
                    _ => size / block + w.below(6),
                };
                w.call(Call::Fallocate(FD, how, from * block, blocks * block));
                if how == Alloc::Zero {
                    size = size.max((from + blocks) * block);
                }
            }
        }
        match w.below(8) {
            0..=3 => w.call(Call::Fdatasync(FD)),
            4..=6 => w.call(Call::Fsync(FD)),
            _ => w.nap(&NAPS),
        }
    }
    Program(w.steps)
}
