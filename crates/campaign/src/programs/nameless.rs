//! Files that have lost their name and are still written and synced, as temporary files of
//! databases are.

use wp_workload::program::{Call, Program};

use super::{BLOCK, CREATE, Writer};

/// A file is written beside one that stays, perhaps synced, and unlinked; while it is open, blocks
/// of it are written, and its data or all of it is synced.
pub fn spill(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs without names");
    w.open(0, "kept", CREATE);
    w.write(0, 0, BLOCK);
    w.open(1, "spill", CREATE);
    w.write(1, 0, BLOCK);
    let sync = if w.below(2) == 0 { Call::Fsync(0) } else { Call::Fsync(1) };
    w.call(sync);
    w.call(Call::Unlink("spill".to_owned()));
    for _ in 0..2 + w.below(3) {
        let block = w.below(3);
        w.write(1, block * u64::from(BLOCK), BLOCK);
        let sync = match w.below(3) {
            0 => Call::Fsync(1),
            1 => Call::Fsync(0),
            _ => Call::Fdatasync(1),
        };
        w.call(sync);
    }
    w.nap(&[0, 20_000]);
    Program(w.steps)
}
