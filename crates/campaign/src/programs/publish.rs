//! Programs that make a file, sync it, give it its name and tell the world of it: with and without
//! an fsync of the directory before they tell.
//!
//! Source: LevelDB issues 189 and 195, RocksDB issue 10573: `CURRENT` and new files without an
//!         fsync of the directory.

use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, READ, Writer};

const NAPS: [u64; 4] = [0, 300, 20_000, 6_000_000];
const FD: u32 = 0;
const DIR_FD: u32 = 1;

/// No fsync of the directory: names are told of that a power failure takes.
pub fn without_directory(seed: u64) -> Program {
    publish(seed, false, true)
}

/// With it.
pub fn with_directory(seed: u64) -> Program {
    publish(seed, true, true)
}

/// No fsync of the directory, and files have their name from the start: POSIX lets them vanish,
/// ext4's fsync of a new file keeps its name.
pub fn created(seed: u64) -> Program {
    publish(seed, false, false)
}

fn publish(seed: u64, sync_dir: bool, renames: bool) -> Program {
    let mut w = Writer::new(seed, "programs that publish");
    w.call(Call::Mkdir("db".to_owned()));
    w.open(DIR_FD, "db", READ);
    w.call(Call::Syncfs(DIR_FD));
    w.steps.push(Step::Case("publish".to_owned()));
    for n in 0..2 + w.below(4) {
        let name = format!("db/{n}");
        let made = if renames { format!("{name}.tmp") } else { name.clone() };
        w.open(FD, &made, CREATE);
        let len = (1 + w.below(4)) as u32 * BLOCK;
        w.write(FD, 0, len);
        w.call(Call::Fsync(FD));
        w.call(Call::Close(FD));
        let told = match w.below(3) {
            _ if !renames => name,
            // A pointer to the newest, as CURRENT.
            0 => "db/CURRENT".to_owned(),
            _ => name,
        };
        if renames {
            w.call(Call::Rename(made, told.clone()));
        }
        if sync_dir {
            w.call(Call::Fsync(DIR_FD));
        }
        w.call(Call::Mark(told));
        w.nap(&NAPS);
    }
    Program(w.steps)
}
