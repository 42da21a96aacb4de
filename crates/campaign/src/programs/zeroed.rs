//! Files of which a part is zeroed in place (`FALLOC_FL_ZERO_RANGE`) and written again here and
//! there, as images of virtual machines are.

use wp_workload::program::{Alloc, Call, Program, Step};

use super::{BLOCK, CREATE, Writer};

/// Blocks of the file.
const BLOCKS: u64 = 16;

/// A block is written, and more, synced or not; a range is zeroed from that block on; blocks soon
/// behind it are written and synced.
pub fn in_place(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that zero");
    let at = |block: u64| block * u64::from(BLOCK);
    let first = w.below(3);
    w.open(0, "image", CREATE);
    w.write(0, at(first), BLOCK);
    if w.below(2) == 0 {
        let block = w.below(BLOCKS);
        w.write(0, at(block), BLOCK);
    }
    if w.below(3) > 0 {
        w.call(Call::Fsync(0));
    }
    w.steps.push(Step::Case("zeroed".to_owned()));
    w.call(Call::Fallocate(0, Alloc::Zero, at(first), at(BLOCKS - first)));
    for _ in 0..1 + w.below(2) {
        let block = first + 1 + w.below(7);
        w.write(0, at(block), BLOCK);
        let sync = if w.below(2) == 0 { Call::Fdatasync(0) } else { Call::Fsync(0) };
        w.call(sync);
    }
    w.nap(&[0, 20_000]);
    Program(w.steps)
}
