//! Programs that go round the log: with `data=journal`, large writes and fsync until the log's tail
//! has moved and its space is used again.

use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, Writer};

const FILES: u32 = 2;
/// Blocks that a program logs, about: more than a log of 4 MiB holds.
const BLOCKS: u64 = 1500;

/// Overwrites of files, an fsync after each.
pub fn round_the_log(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that fill the log");
    for fd in 0..FILES {
        w.open(fd, &format!("f{fd}"), CREATE);
    }
    w.steps.push(Step::Case("fill".to_owned()));
    let mut logged = 0;
    while logged < BLOCKS {
        let (fd, blocks) = (w.below(u64::from(FILES)) as u32, 120 + w.below(110));
        w.write(fd, 0, blocks as u32 * BLOCK);
        w.call(Call::Fsync(fd));
        logged += blocks + 8;
    }
    Program(w.steps)
}
