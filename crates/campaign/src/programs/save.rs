//! Programs that save documents in place: the file is cut to nothing, written and closed, without
//! fsync. Others are synced meanwhile.

use wp_workload::program::{Call, Flags, Program, Step};

use super::{BLOCK, CREATE, WRITE, Writer};

const NAPS: [u64; 4] = [0, 300, 20_000, 6_000_000];
const FILES: u64 = 3;
const FD: u32 = 0;
const OTHER_FD: u32 = 1;

/// Saves of documents, between them fsync of a log and sleeps.
pub fn in_place(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that save");
    w.open(OTHER_FD, "log", CREATE);
    for n in 0..FILES {
        w.open(FD, &format!("doc{n}"), CREATE);
        w.write(FD, 0, 2 * BLOCK);
        w.call(Call::Fsync(FD));
        w.call(Call::Close(FD));
    }
    w.steps.push(Step::Case("save".to_owned()));
    let mut logged = 0;
    for _ in 0..12 {
        match w.below(10) {
            0..=4 => {
                let name = format!("doc{}", w.rng.below(FILES));
                w.open(FD, &name, Flags { truncate: true, ..WRITE });
                let len = (1 + w.below(4)) as u32 * BLOCK;
                w.write(FD, 0, len);
                w.call(Call::Close(FD));
            }
            5..=7 => {
                w.write(OTHER_FD, logged, BLOCK);
                logged += u64::from(BLOCK);
                w.call(Call::Fsync(OTHER_FD));
            }
            _ => w.nap(&NAPS),
        }
    }
    Program(w.steps)
}
