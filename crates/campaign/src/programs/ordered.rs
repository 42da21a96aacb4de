//! Programs that need order more than durability: a log before its data, as databases have it, with
//! `fbarrier` and `fdatabarrier` where others call `fsync` and `fdatasync`.
//!
//! Source: BarrierFS (Won et al., FAST 2018): SQLite's journal and database with barriers between.

use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, Writer};

const NAPS: [u64; 5] = [0, 300, 20_000, 6_000_000, 31_000_000];
/// Files of data; the log's descriptor is the one after.
const FILES: u32 = 2;
const LOG: u32 = FILES;
/// Blocks that each has from the start.
const BLOCKS: u64 = 4;

/// Transactions: pages to the log, a barrier, pages in place, a barrier. The log is overwritten,
/// grows, or is made anew; now and then something is made durable.
pub fn logs(seed: u64) -> Program {
    transactions(seed, &NAPS)
}

/// The same in quick succession.
pub fn bursts(seed: u64) -> Program {
    transactions(seed, &NAPS[..2])
}

fn transactions(seed: u64, naps: &[u64]) -> Program {
    let mut w = Writer::new(seed, "programs that order");
    for fd in 0..FILES {
        w.open(fd, &format!("f{fd}"), CREATE);
        w.write(fd, 0, BLOCKS as u32 * BLOCK);
        w.call(Call::Fsync(fd));
    }
    w.open(LOG, "log", CREATE);
    w.steps.push(Step::Case("transactions".to_owned()));
    let mut end = 0;
    for n in 0..8 {
        match w.below(6) {
            0 => {
                w.call(Call::Rename("log".to_owned(), format!("log{n}")));
                w.call(Call::Close(LOG));
                w.open(LOG, "log", CREATE);
                end = 0;
            }
            1 => end = 0,
            _ => {}
        }
        let pages = 1 + w.below(3);
        w.write(LOG, end * u64::from(BLOCK), pages as u32 * BLOCK);
        end += pages;
        barrier(&mut w, LOG);
        let fd = w.below(u64::from(FILES)) as u32;
        for _ in 0..1 + w.below(2) {
            let at = w.below(BLOCKS + 2) * u64::from(BLOCK);
            w.write(fd, at, BLOCK);
        }
        barrier(&mut w, fd);
        w.nap(naps);
    }
    Program(w.steps)
}

fn barrier(w: &mut Writer, fd: u32) {
    let call = match w.below(8) {
        0..=3 => Call::Fdatabarrier(fd),
        4..=6 => Call::Fbarrier(fd),
        _ => Call::Fsync(fd),
    };
    w.call(call);
}
