//! Programs for one kind of bug each: random, but of the shape in which applications meet it.

pub mod atomic;
pub mod beside;
pub mod direct;
pub mod durable;
pub mod emptied;
pub mod errors;
pub mod far;
pub mod fast;
pub mod fill;
pub mod logged;
pub mod moved;
pub mod nameless;
pub mod ordered;
pub mod publish;
pub mod save;
pub mod untorn;
pub mod zeroed;

use wp_base::rng::Rng;
use wp_workload::program::{Call, Flags, Program, Step};

/// Makes the program of a seed.
pub type Make = fn(u64) -> Program;

/// All, by name.
pub const NAMED: &[(&str, Make)] = &[
    ("errors", errors::several_files_open),
    ("fresh", errors::fresh_blocks),
    ("failing-commit", errors::failing_commit),
    ("read-back", errors::read_back),
    ("read-back-direct", errors::read_back_direct),
    ("publish", publish::without_directory),
    ("publish-sync", publish::with_directory),
    ("create", publish::created),
    ("save", save::in_place),
    ("fill", fill::round_the_log),
    ("fast-names", fast::names),
    ("fast-appends", fast::appends),
    ("far", far::behind_the_inode),
    ("moved", moved::directories),
    ("ordered", ordered::logs),
    ("nameless", nameless::spill),
    ("zeroed", zeroed::in_place),
    ("logged", logged::names),
    ("many-links", logged::many_links),
    ("direct", direct::database),
    ("direct-durable", direct::durable),
    ("lengths", durable::lengths),
    ("holes", durable::holes),
    ("space", durable::space),
    ("at-the-end", durable::at_the_end),
    ("parts", durable::parts),
    ("asked", durable::asked),
    ("appended", durable::appended),
    ("behind", durable::behind),
    ("queued", durable::queued),
    ("emptied", emptied::tables),
    ("emptied-data", emptied::tables_data_logged),
    ("beside", beside::synced),
    ("atomic", atomic::transactions),
    ("untorn", untorn::pages),
];

/// `O_RDWR`.
const WRITE: Flags = Flags::WRITE;
/// `O_RDWR|O_CREAT`.
const CREATE: Flags = Flags::CREATE;
/// `O_RDWR|O_DIRECT`.
const DIRECT: Flags = Flags { direct: true, ..WRITE };
/// `O_RDONLY`.
const READ: Flags = Flags::READ;

/// Bytes of a block, and of a page.
const BLOCK: u32 = 4096;

/// Writes a program.
struct Writer {
    rng: Rng,
    steps: Vec<Step>,
    written: u32,
}

impl Writer {
    fn new(seed: u64, name: &str) -> Writer {
        Writer { rng: Rng::stream(seed, name), steps: Vec::new(), written: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n.max(1))
    }

    fn call(&mut self, call: Call) {
        self.steps.push(Step::call(call));
    }

    fn open(&mut self, fd: u32, path: &str, how: Flags) {
        self.call(Call::Open(fd, path.to_owned(), how));
    }

    /// Every write has contents of its own.
    fn write(&mut self, fd: u32, at: u64, len: u32) {
        self.written += 1;
        let seed = self.written;
        self.call(Call::pwrite(fd, len, at, seed));
    }

    fn nap(&mut self, of: &[u64]) {
        let us = of[self.below(of.len() as u64) as usize];
        if us > 0 {
            self.steps.push(Step::Nap(us));
        }
    }
}

#[cfg(test)]
mod tests {
    use wp_workload::program::Program;

    #[test]
    fn programs_are_those_of_their_seed_and_parse() {
        for (_, make) in super::NAMED {
            for seed in 0..20 {
                let p = make(seed);
                assert_eq!(p, make(seed));
                assert_eq!(Program::parse(&p.to_string()), Ok(p));
            }
        }
    }
}
