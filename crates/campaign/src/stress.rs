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
        self.steps.push(Step::call(call));
    }

    fn open(&mut self, fd: u32, name: &str, direct: bool, dsync: bool) {
        let how = Flags { write: true, create: true, direct, dsync, ..Flags::default() };
        self.call(Call::Open(fd, name.to_owned(), how));
    }

    fn write(&mut self, fd: u32, at: u64, len: u64) {
        let like_a_log = len == BLOCK && self.rng.below(4) == 0;
        self.write_as(fd, at, len, like_a_log);
    }

    /// A write whose contents look like a block of a journal, or not.
    fn write_as(&mut self, fd: u32, at: u64, len: u64, like_a_log: bool) {
        self.written += 1;
        let seed = self.written + if like_a_log { MAGIC_SEED } else { 0 };
        self.call(Call::pwrite(fd, len as u32, at, seed));
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
            3 => self.call(Call::Sync),
            _ => self.call(Call::Fsync(fd)),
        }
    }
}

/// Three files that grow, are overwritten and synced `rounds` times, quicker than the flusher comes
/// by: with `data=journal` and the smallest journal the log comes round every few of them, and what
/// it holds must be written home for it.
pub fn log(seed: u64, rounds: u32) -> Program {
    let mut w = Writer::new(seed, "log programs");
    let mut ends = [0u64; 3];
    for fd in 0..3 {
        w.open(fd, &format!("f{fd}"), false, false);
    }
    for round in 0..rounds {
        let fd = w.rng.below(3) as u32;
        let end = &mut ends[fd as usize];
        match w.rng.below(10) {
            0 => w.call(Call::Mkdir(format!("d{round}"))),
            1 => {
                let len = w.rng.below(100) * KIB;
                *end = len.next_multiple_of(BLOCK);
                w.call(Call::Ftruncate(fd, len));
            }
            2 => {
                let (at, blocks) = (w.rng.below(8) * BLOCK, 1 + w.rng.below(6));
                *end = (*end).max(at + blocks * BLOCK);
                (0..blocks).for_each(|i| w.write(fd, at + i * BLOCK, BLOCK));
            }
            n => {
                let blocks = 60 + w.rng.below(160);
                let at = if n < 7 { *end } else { w.rng.below(3) * BLOCK };
                *end = (*end).max(at + blocks * BLOCK);
                w.write(fd, at, blocks * BLOCK);
            }
        }
        match w.rng.below(8) {
            0 => w.call(Call::Syncfs(ROOT)),
            1 => w.steps.push(Step::Nap(NAPS[1])),
            _ => w.call(Call::Fsync(fd)),
        }
        if w.rng.below(16) == 0 {
            w.nap();
        }
    }
    Program(w.steps)
}

/// The image of a disk in a file, whose blocks look like those of a journal more often than not.
pub fn image(seed: u64, rounds: u32) -> Program {
    let mut w = Writer::new(seed, "image programs");
    w.open(0, "image", false, false);
    for _ in 0..rounds {
        let (at, blocks) = (w.rng.below(64), 20 + w.rng.below(50));
        for block in at..at + blocks {
            let like_a_log = w.rng.below(4) > 0;
            w.write_as(0, block * BLOCK, BLOCK, like_a_log);
        }
        w.call(Call::Fsync(0));
    }
    Program(w.steps)
}

/// A spool of mail: a message is written, synced and moved to where it is found; some are deleted.
/// Transactions of a few blocks each: the log comes round in the middle of any of them.
pub fn mail(seed: u64, messages: u32) -> Program {
    let mut w = Writer::new(seed, "mail programs");
    w.call(Call::Mkdir("tmp".to_owned()));
    w.call(Call::Mkdir("new".to_owned()));
    let mut there: Vec<String> = Vec::new();
    for n in 0..messages {
        let (from, to) = (format!("tmp/m{n}"), format!("new/m{n}"));
        w.open(0, &from, false, false);
        let len = 1 + w.rng.below(6 * KIB);
        w.write(0, 0, len);
        match w.rng.below(4) {
            0 => w.call(Call::Fdatasync(0)),
            _ => w.call(Call::Fsync(0)),
        }
        w.call(Call::Close(0));
        w.call(Call::Rename(from, to.clone()));
        there.push(to);
        if there.len() > 8 || w.rng.below(4) == 0 {
            let n = w.rng.below(there.len() as u64) as usize;
            w.call(Call::Unlink(there.remove(n)));
        }
        if w.rng.below(3) == 0 {
            w.call(Call::Fsync(ROOT));
        }
    }
    w.call(Call::Fsync(ROOT));
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
                // Half of them fit where a directory was.
                let blocks = if w.rng.below(2) == 0 { 1 } else { 1 + w.rng.below(8) };
                let name = format!("f{round}");
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

/// Parts of blocks, and blocks that are allocated before they are written: unaligned cuts, holes
/// and appends, `fallocate`, direct and `O_DSYNC` writes over what was not synced, and syncs
/// of others.
pub fn edges(seed: u64, rounds: u32) -> Program {
    let mut w = Writer::new(seed, "edge programs");
    // Two files, each through a plain, a direct and a direct O_DSYNC descriptor.
    for file in 0..2 {
        for (way, (direct, dsync)) in
            [(false, false), (true, false), (true, true)].iter().enumerate()
        {
            w.open(file * 3 + way as u32, &format!("f{file}"), *direct, *dsync);
        }
    }
    for round in 0..rounds {
        let file = w.rng.below(2) as u32 * 3;
        let (block, len) = (w.rng.below(6) * BLOCK, (1 + w.rng.below(3)) * BLOCK);
        match w.rng.below(12) {
            0 => {
                let len = block + w.rng.below(BLOCK);
                w.call(Call::Ftruncate(file, len));
            }
            1 => w.call(Call::Ftruncate(file, 6 * BLOCK)),
            2..=3 => {
                let modes = [Alloc::Extend, Alloc::Keep, Alloc::Punch, Alloc::Zero];
                let how = modes[w.rng.below(4) as usize];
                let (at, len) = match how {
                    Alloc::Extend | Alloc::Keep => (block, 4 * BLOCK),
                    _ => (block + w.rng.below(BLOCK), 1 + w.rng.below(2 * BLOCK)),
                };
                w.call(Call::Fallocate(file, how, at, len));
            }
            4..=5 => {
                // Within a block, as an append of a record is.
                let at = block + w.rng.below(4) * 1024;
                w.write(file, at, 1024);
            }
            6..=7 => w.write(file, block, len),
            8 => w.write(file + 1, block, len),
            9..=10 => w.write(file + 2, block, BLOCK),
            _ => w.call(Call::Mkdir(format!("d{round}"))),
        }
        match w.rng.below(8) {
            0..=1 => w.call(Call::Fdatasync(file)),
            2 => w.call(Call::Fsync(file)),
            3..=4 => w.call(Call::Fsync(ROOT)),
            5 => w.nap(),
            _ => {}
        }
    }
    w.call(Call::Fsync(ROOT));
    Program(w.steps)
}

/// Names, cuts and appends every few milliseconds, with hardly a sync: commits begin by their
/// timer, and find others at work on what they write.
pub fn bursts(seed: u64, rounds: u32) -> Program {
    let mut w = Writer::new(seed, "burst programs");
    let mut open: Vec<(u32, String)> = Vec::new();
    let mut dirs: Vec<String> = Vec::new();
    for round in 0..rounds {
        match w.rng.below(16) {
            0..=2 if open.len() < 4 => {
                let fd = (0..4).find(|fd| open.iter().all(|(o, _)| o != fd)).unwrap_or(0);
                let name = format!("f{round}");
                w.open(fd, &name, false, false);
                open.push((fd, name));
            }
            3 if !open.is_empty() => {
                let (fd, name) = open.remove(w.rng.below(open.len() as u64) as usize);
                w.call(Call::Close(fd));
                w.call(Call::Unlink(name));
            }
            4 => {
                let name = format!("d{round}");
                w.call(Call::Mkdir(name.clone()));
                dirs.push(name);
            }
            5 if !dirs.is_empty() => {
                let name = dirs.remove(w.rng.below(dirs.len() as u64) as usize);
                w.call(Call::Rmdir(name));
            }
            n if !open.is_empty() => {
                let (fd, name) = open[w.rng.below(open.len() as u64) as usize].clone();
                match n {
                    6..=7 => {
                        let len = w.rng.below(40) * 1000;
                        w.call(Call::Ftruncate(fd, len));
                    }
                    8 => {
                        let new = format!("r{round}");
                        w.call(Call::Rename(name, new.clone()));
                        if let Some(o) = open.iter_mut().find(|o| o.0 == fd) {
                            o.1 = new;
                        }
                    }
                    9 if w.rng.below(8) == 0 => w.call(Call::Fsync(fd)),
                    _ => {
                        let (at, blocks) = (w.rng.below(10) * BLOCK, 1 + w.rng.below(64));
                        w.write(fd, at, blocks * BLOCK);
                    }
                }
            }
            _ => {}
        }
        let us = 500 + w.rng.below(24_000);
        w.steps.push(Step::Nap(us));
    }
    w.steps.push(Step::Nap(2_500_000));
    Program(w.steps)
}

/// A directory with `count` names, enough for a hash tree.
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
            let some = [log(seed, 16), space(seed, 30), names(seed, 80), edges(seed, 30)];
            let more = [bursts(seed, 90), image(seed, 9), mail(seed, 30)];
            for p in some.into_iter().chain(more) {
                assert_eq!(Program::parse(&p.to_string()), Ok(p));
            }
        }
    }
}
