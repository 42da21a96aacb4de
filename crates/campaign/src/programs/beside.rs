//! A file that is written and synced, while another process syncs it as well: what two calls make
//! of one another, that want the same to be durable.

use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, Writer};

/// Microseconds before a write, and from there to its fsync: the other's may have begun by then.
const BEFORE: [u64; 5] = [300, 1_000, 2_000, 3_000, 3_600];
const BETWEEN: [u64; 3] = [0, 100, 300];
const FD: u32 = 0;

/// A block is written twice, each time with an fsync a moment later.
pub fn synced(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs beside others");
    w.open(FD, "file", CREATE);
    w.steps.push(Step::Case("beside".to_owned()));
    for _ in 0..2 {
        w.nap(&BEFORE);
        w.write(FD, 0, BLOCK);
        w.nap(&BETWEEN);
        w.call(Call::Fsync(FD));
    }
    Program(w.steps)
}
