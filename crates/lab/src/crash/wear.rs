//! Programs that wear a small file system: a log that comes round again and again, and free space
//! so short that what is freed is used again at once.

use wp_base::rng::Rng;
use wp_workload::program::{Alloc, Call, Flags, MAGIC_SEED, Program, Step};

const KIB: u64 = 1 << 10;
const BLOCK: u64 = 4096;
/// Descriptor of the root directory.
const ROOT: u32 = 63;
/// Sleeps, microseconds: within a commit, the commit timer, the flusher's.
const NAPS: [u64; 5] = [400, 5_000, 300_000, 6_000_000, 36_000_000];

struct Writer {
    rng: Rng,
    steps: Vec<Step>,
    written: u32,
}

impl Writer {
    fn new(seed: u64, stream: &str) -> Writer {
        let mut w = Writer { rng: Rng::stream(seed, stream), steps: Vec::new(), written: 0 };
        w.call(Call::Open(ROOT, ".".to_owned(), Flags::default()));
        w
    }

    fn call(&mut self, call: Call) {
        self.steps.push(Step::Call(None, call));
    }

    fn open(&mut self, fd: u32, name: &str, direct: bool, dsync: bool) {
        let how = Flags { write: true, create: true, direct, dsync, ..Flags::default() };
        self.call(Call::Open(fd, name.to_owned(), how));
    }

    fn write(&mut self, fd: u32, at: u64, len: u64) {
        self.written += 1;
        // One block in four looks like a journal's.
        let like_a_log = len == BLOCK && self.rng.below(4) == 0;
        let seed = self.written + if like_a_log { MAGIC_SEED } else { 0 };
        self.call(Call::Pwrite { fd, len: len as u32, at, seed });
    }

    fn nap(&mut self) {
        let us = NAPS[self.rng.below(NAPS.len() as u64) as usize];
        self.steps.push(Step::Nap(us));
    }

    fn sync(&mut self, fd: u32) {
        match self.rng.below(8) {
            0 => self.call(Call::Fdatasync(fd)),
            1 => self.call(Call::Syncfs(ROOT)),
            2 => self.nap(),
            3 => {}
            _ => self.call(Call::Fsync(fd)),
        }
    }
}

/// Three files, overwritten and synced `rounds` times: with `data=journal` and the smallest journal
/// the log comes round every few of them.
pub fn log(seed: u64, rounds: u32) -> Program {
    let mut w = Writer::new(seed, "log programs");
    for fd in 0..3 {
        w.open(fd, &format!("f{fd}"), false, false);
    }
    for round in 0..rounds {
        let fd = w.rng.below(3) as u32;
        match w.rng.below(8) {
            0 => w.call(Call::Mkdir(format!("d{round}"))),
            1 => {
                let len = w.rng.below(100) * KIB;
                w.call(Call::Ftruncate(fd, len));
            }
            2 => {
                let (at, blocks) = (w.rng.below(8) * BLOCK, 1 + w.rng.below(6));
                (0..blocks).for_each(|i| w.write(fd, at + i * BLOCK, BLOCK));
            }
            _ => {
                let (at, blocks) = (w.rng.below(3) * BLOCK, 24 + w.rng.below(120));
                w.write(fd, at, blocks * BLOCK);
            }
        }
        w.sync(fd);
        if w.rng.below(4) == 0 {
            w.nap();
        }
    }
    Program(w.steps)
}

/// Small files and directories that come and go in what a large file leaves of the space.
pub fn space(seed: u64, rounds: u32) -> Program {
    let mut w = Writer::new(seed, "space programs");
    w.open(0, "filler", false, false);
    let mut at = 0;
    // What does not fit any more is answered with an error, and is smaller the next time.
    for len in [8192, 4096, 2048, 1024, 512, 256, 128] {
        for _ in 0..2 {
            w.call(Call::Fallocate(0, Alloc::Keep, at, len * KIB));
            at += len * KIB;
        }
    }
    w.call(Call::Syncfs(ROOT));
    let mut names: Vec<(String, bool)> = Vec::new();
    for round in 0..rounds {
        match w.rng.below(10) {
            0..=2 => {
                let name = format!("d{round}");
                w.call(Call::Mkdir(name.clone()));
                names.push((name, true));
            }
            3..=5 if !names.is_empty() => {
                let n = w.rng.below(names.len() as u64) as usize;
                let (name, is_dir) = names.remove(n);
                w.call(if is_dir { Call::Rmdir(name) } else { Call::Unlink(name) });
            }
            _ => {
                let (name, blocks) = (format!("f{round}"), 1 + w.rng.below(8));
                let (direct, dsync) = (w.rng.below(4) == 0, w.rng.below(6) == 0);
                w.open(1, &name, direct, dsync);
                w.write(1, 0, blocks * BLOCK);
                w.sync(1);
                if w.rng.below(4) == 0 {
                    let len = w.rng.below(blocks) * BLOCK;
                    w.call(Call::Ftruncate(1, len));
                }
                w.call(Call::Close(1));
                names.push((name, false));
            }
        }
        match w.rng.below(6) {
            0 => w.call(Call::Syncfs(ROOT)),
            1 => w.call(Call::Fsync(ROOT)),
            2 => w.nap(),
            _ => {}
        }
    }
    Program(w.steps)
}

/// A directory of so many names that it has a hash tree.
pub fn names(seed: u64, count: u32) -> Program {
    let mut w = Writer::new(seed, "name programs");
    for n in 0..count {
        w.open(0, &format!("a-long-name-to-fill-the-block-{n}"), false, false);
        w.call(Call::Close(0));
        if w.rng.below(40) == 0 {
            w.call(Call::Fsync(ROOT));
        }
    }
    w.call(Call::Fsync(ROOT));
    Program(w.steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_of_their_seed_and_parse() {
        for seed in 0..20 {
            for p in [log(seed, 16), space(seed, 30), names(seed, 80)] {
                assert_eq!(Program::parse(&p.to_string()), Ok(p));
            }
        }
    }
}
