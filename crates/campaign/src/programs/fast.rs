//! Programs whose fast commits are longer than a block: many new names between two syncs.

use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, Writer};

/// A file is appended to and synced, again and again: more of the shortest fast commits than
/// the area has blocks, on the smallest file system.
pub fn appends(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that append");
    w.open(0, "a", CREATE);
    w.call(Call::Fsync(0));
    for n in 0..20 {
        w.write(0, n * u64::from(BLOCK), BLOCK);
        w.call(Call::Fsync(0));
    }
    Program(w.steps)
}

/// A file is synced, which is a full commit; then files with long names are made, and the first
/// file is written and synced.
pub fn names(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs with many new names");
    w.open(0, "a", CREATE);
    w.call(Call::Fsync(0));
    w.steps.push(Step::Case("names".to_owned()));
    for n in 0..10 + w.below(20) {
        let long = "n".repeat(200 + w.below(40) as usize);
        w.open(1, &format!("{long}{n}"), CREATE);
        w.call(Call::Close(1));
    }
    w.write(0, 0, BLOCK);
    let sync = if w.below(2) == 0 { Call::Fdatasync(0) } else { Call::Fsync(0) };
    w.call(sync);
    if w.below(2) == 0 {
        w.write(0, u64::from(BLOCK), BLOCK);
        w.call(Call::Fsync(0));
    }
    Program(w.steps)
}
