//! Programs with the write pattern of SQLite's rollback journal: copies of pages into a journal,
//! fsync of it, pages in place in the database, fsync, the journal deleted.
//!
//! With several journals (one database each, as with ATTACH) only the last one is fsynced before
//! the databases are written: what paper `ext4-fsync` warns of.
//!
//! Source: sqlite.org/fileformat.html, section 3 (rollback journal: header of one sector, records
//!         of page number, page and checksum); paper `ext4-fsync`, section 6.

use wp_base::rng::Rng;
use wp_workload::program::{Call, Flags, Program, Step};

/// Bytes of a page of the database.
const PAGE: u32 = 4096;
/// Bytes of the journal's header: a sector.
const HEADER: u32 = 512;
/// Bytes of a record: page number, page, checksum.
const RECORD: u32 = 4 + PAGE + 4;
/// Pages of a database.
const PAGES: u64 = 256;
const NAPS: [u64; 4] = [0, 300, 2_000, 15_000];

struct Writer {
    steps: Vec<Step>,
    seed: u32,
}

impl Writer {
    fn call(&mut self, call: Call) {
        self.steps.push(Step::call(call));
    }

    fn write(&mut self, fd: u32, at: u64, len: u32) {
        self.seed += 1;
        let seed = self.seed;
        self.call(Call::pwrite(fd, len, at, seed));
    }
}

/// Transactions on `journals` databases, each with its journal.
pub fn program(seed: u64, journals: u32) -> Program {
    let mut rng = Rng::stream(seed, "database programs");
    let mut w = Writer { steps: Vec::new(), seed: 0 };
    let how = Flags { write: true, create: true, ..Flags::default() };
    for db in 0..journals {
        w.call(Call::Open(db, format!("db{db}"), how));
        w.write(db, 0, (PAGES * u64::from(PAGE)) as u32);
        w.call(Call::Fsync(db));
    }
    for _ in 0..2 + rng.below(2) {
        let pages: Vec<u64> = (0..journals).map(|_| 1 + rng.below(96)).collect();
        for db in 0..journals {
            let fd = journals + db;
            w.call(Call::Open(fd, format!("db{db}-journal"), how));
            w.write(fd, 0, HEADER);
            for record in 0..pages[db as usize] {
                w.write(fd, u64::from(HEADER) + record * u64::from(RECORD), RECORD);
            }
            let nap = NAPS[rng.below(NAPS.len() as u64) as usize];
            if nap > 0 {
                w.steps.push(Step::Nap(nap));
            }
        }
        w.call(Call::Fsync(2 * journals - 1));
        for db in 0..journals {
            for _ in 0..pages[db as usize].min(8) {
                let page = rng.below(PAGES);
                w.write(db, page * u64::from(PAGE), PAGE);
            }
            w.call(Call::Fsync(db));
        }
        for db in 0..journals {
            w.call(Call::Close(journals + db));
            w.call(Call::Unlink(format!("db{db}-journal")));
        }
    }
    Program(w.steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_of_their_seed_and_parse() {
        for seed in 0..20 {
            let p = program(seed, 1 + (seed % 3) as u32);
            assert_eq!(Program::parse(&p.to_string()), Ok(p));
        }
    }
}
