//! Programs that delete all files of a block of the inode table, when the log holds no copy of that
//! block any more: what a discard takes then, no recovery brings back.
//!
//! With `inode_size=1024` four inodes share a block of 4 KiB.

use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, Writer};

/// Files that may go.
const FILES: u32 = 12;
const FD: u32 = 0;
/// The file whose writes move the log on.
const BUSY: u32 = 1;
const NAPS: [u64; 4] = [0, 300, 20_000, 6_000_000];

/// How the log is made to go round.
#[derive(Clone, Copy)]
struct Round {
    /// Writes with an fsync after each.
    writes: u64,
    /// Bytes of each.
    bytes: u32,
    /// Each behind the last one, so that its blocks are logged.
    append: bool,
}

impl Round {
    fn write(self, w: &mut Writer, n: &mut u64) {
        let at = if self.append { *n * u64::from(self.bytes) } else { 0 };
        w.write(BUSY, at, self.bytes);
        w.call(Call::Fsync(BUSY));
        *n += 1;
    }
}

/// Files made, everything home, the log gone round; then neighbours deleted, some made again, with
/// commits by others between.
pub fn tables(seed: u64) -> Program {
    emptied(seed, Round { writes: 70, bytes: 8192, append: true })
}

/// The same for `data=journal`, whose log goes round in a few writes.
pub fn tables_data_logged(seed: u64) -> Program {
    emptied(seed, Round { writes: 8, bytes: 150 * BLOCK, append: false })
}

fn emptied(seed: u64, round: Round) -> Program {
    let mut w = Writer::new(seed, "programs that empty inode tables");
    for file in 0..FILES {
        w.open(FD, &format!("f{file}"), CREATE);
        w.write(FD, 0, BLOCK);
        w.call(Call::Fsync(FD));
        w.call(Call::Close(FD));
    }
    w.call(Call::Sync);
    w.open(BUSY, "busy", CREATE);
    let mut done = 0;
    while done < round.writes {
        round.write(&mut w, &mut done);
    }
    w.call(Call::Sync);
    round.write(&mut w, &mut done);
    w.steps.push(Step::Case("empty".to_owned()));
    for _ in 0..2 + w.below(8) {
        let (first, many) = (w.below(u64::from(FILES)) as u32, 3 + w.below(6) as u32);
        for file in first..(first + many).min(FILES) {
            w.call(Call::Unlink(format!("f{file}")));
        }
        w.nap(&NAPS);
        if w.below(2) == 0 {
            round.write(&mut w, &mut done);
            w.nap(&NAPS);
        }
        for _ in 0..w.below(4) {
            let file = w.below(u64::from(FILES));
            w.open(FD, &format!("f{file}"), CREATE);
            w.write(FD, 0, BLOCK);
            if w.below(2) == 0 {
                w.call(Call::Fsync(FD));
            }
            w.call(Call::Close(FD));
            w.nap(&NAPS);
        }
        if w.below(3) == 0 {
            w.call(Call::Sync);
        }
    }
    Program(w.steps)
}
