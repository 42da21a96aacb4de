//! Programs on a device that fails writes of file data.
//!
//! Source: the PostgreSQL thread of 2018 ("fsyncgate"): processes with a file open each, one of
//!         which calls fsync; Rebello et al., ATC 2020: what is in the cache after a failed fsync.

use wp_workload::program::{Asked, Call, Fault, Flags, Place, Program, Step};

use super::{BLOCK, CREATE, READ, WRITE, Writer};

/// Sleeps, microseconds: none, a little, until the flusher has written what is dirty.
const NAPS: [u64; 4] = [0, 500, 20_000, 36_000_000];
const FILES: u32 = 2;
/// Blocks that each file has from the start.
const BLOCKS: u64 = 4;
/// Descriptors of a program.
const DESCRIPTORS: u32 = 5;

/// Files whose blocks are durable; descriptor `n` is of file `n`.
fn files(w: &mut Writer, how: Flags) {
    for file in 0..FILES {
        w.open(file, &format!("f{file}"), Flags { create: true, ..how });
        w.write(file, 0, BLOCKS as u32 * BLOCK);
        w.call(Call::Fsync(file));
    }
}

fn fault(w: &mut Writer) {
    let (skip, times) = (w.below(3) as u32, w.below(4) as u32);
    let times = (times > 0).then_some(times);
    w.steps.push(Step::Fail(Fault { asked: Asked::Write, place: Place::Data, skip, times }));
}

/// Several files open at once, some the same file, some closed and opened again: writes, fsync and
/// fdatasync through any of them, while writes of data fail now and then.
pub fn several_files_open(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs with errors");
    files(&mut w, WRITE);
    let mut open: Vec<(u32, u32)> = (0..FILES).map(|f| (f, f)).collect();
    let mut size = [BLOCKS; FILES as usize];
    w.steps.push(Step::Case("errors".to_owned()));
    for _ in 0..24 {
        let (fd, file) = open[w.below(open.len() as u64) as usize];
        match w.below(100) {
            0..=29 => {
                let end = &mut size[file as usize];
                let block = w.rng.below(*end + 1);
                *end = (*end).max(block + 1);
                w.write(fd, block * u64::from(BLOCK), BLOCK);
            }
            30..=57 => w.call(Call::Fsync(fd)),
            58..=63 => w.call(Call::Fdatasync(fd)),
            64..=75 => {
                let free = (0..DESCRIPTORS).find(|fd| !open.iter().any(|o| o.0 == *fd));
                let file = w.below(u64::from(FILES)) as u32;
                if let Some(fd) = free {
                    let how = Flags { dsync: w.below(5) == 0, ..WRITE };
                    w.open(fd, &format!("f{file}"), how);
                    open.push((fd, file));
                }
            }
            76..=79 if open.len() > 1 => {
                open.retain(|o| o.0 != fd);
                w.call(Call::Close(fd));
            }
            80..=89 => fault(&mut w),
            90..=91 => w.steps.push(Step::Heal),
            _ => w.nap(&NAPS),
        }
    }
    Program(w.steps)
}

/// Files that are synced, of which some go, are cut or replaced; then the commit of that fails, as
/// writes to the journal do.
pub fn failing_commit(seed: u64) -> Program {
    const KEPT: u32 = 2;
    let mut w = Writer::new(seed, "programs whose commit fails");
    for file in 0..=KEPT {
        let blocks = 1 + w.below(4) as u32;
        w.open(file, &format!("f{file}"), Flags { create: true, ..WRITE });
        w.write(file, 0, blocks * BLOCK);
        w.call(Call::Fsync(file));
    }
    (0..KEPT).for_each(|file| w.call(Call::Close(file)));
    for _ in 0..1 + w.below(3) {
        let file = format!("f{}", w.below(u64::from(KEPT)));
        match w.below(4) {
            0 | 1 => w.call(Call::Unlink(file)),
            2 => {
                w.open(KEPT + 1, &file, Flags { create: true, truncate: true, ..WRITE });
                w.call(Call::Close(KEPT + 1));
            }
            _ => w.call(Call::Rename(file, "f2".to_owned())),
        }
    }
    let block = w.below(4);
    w.write(KEPT, block * u64::from(BLOCK), BLOCK);
    let (skip, times) = (w.below(2) as u32, Some(1 + w.below(2) as u32));
    w.steps.push(Step::Fail(Fault { asked: Asked::Write, place: Place::Journal, skip, times }));
    w.call(Call::Fsync(KEPT));
    w.nap(&[500, 20_000]);
    Program(w.steps)
}

/// Appends and rewrites of single blocks, one dirty at a time, each followed by syncs through any
/// descriptor, while writes to new blocks fail now and then: what a kernel on a loop device over a
/// full tmpfs can be asked too. Nothing sleeps.
pub fn fresh_blocks(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs on new blocks");
    const ROOT_FD: u32 = 9;
    files(&mut w, WRITE);
    w.open(ROOT_FD, ".", READ);
    let mut open: Vec<(u32, u32)> = (0..FILES).map(|f| (f, f)).collect();
    let mut size = [BLOCKS; FILES as usize];
    for _ in 0..20 {
        let (fd, file) = open[w.below(open.len() as u64) as usize];
        match w.below(100) {
            0..=49 => {
                let end = &mut size[file as usize];
                let block = if w.rng.below(3) == 0 { w.rng.below(*end) } else { *end };
                *end = (*end).max(block + 1);
                w.write(fd, block * u64::from(BLOCK), BLOCK);
                let same: Vec<u32> = open.iter().filter(|o| o.1 == file).map(|o| o.0).collect();
                for _ in 0..1 + w.below(3) {
                    let fd = same[w.below(same.len() as u64) as usize];
                    w.call(Call::Fsync(fd));
                }
            }
            50..=61 => w.call(Call::Fdatasync(fd)),
            62..=72 => {
                let free = (0..DESCRIPTORS).find(|fd| !open.iter().any(|o| o.0 == *fd));
                let file = w.below(u64::from(FILES)) as u32;
                if let Some(fd) = free {
                    let how = Flags { dsync: w.below(4) == 0, ..WRITE };
                    w.open(fd, &format!("f{file}"), how);
                    open.push((fd, file));
                }
            }
            73..=75 if open.len() > 1 => {
                open.retain(|o| o.0 != fd);
                w.call(Call::Close(fd));
            }
            76..=87 => w.steps.push(Step::Fail(Fault {
                asked: Asked::Write,
                place: Place::Fresh,
                skip: 0,
                times: None,
            })),
            88..=94 => w.steps.push(Step::Heal),
            _ => {
                w.call(Call::DropCaches);
                let at = w.below(size[file as usize]) * u64::from(BLOCK);
                w.call(Call::Pread { fd, len: BLOCK, at });
            }
        }
    }
    // At the end: a block of an extent tree may be among what `syncfs` cannot write, and when the
    // journal hears of that is a matter of milliseconds.
    for fd in [ROOT_FD, ROOT_FD] {
        w.call(Call::Syncfs(fd));
    }
    for (fd, _) in open {
        w.call(Call::Fsync(fd));
    }
    Program(w.steps)
}

/// A write that fails, fsync until it says that all is well, reads before and after the cache is
/// dropped.
pub fn read_back(seed: u64) -> Program {
    read_back_through(seed, WRITE)
}

/// The same past the cache (`O_DIRECT`).
pub fn read_back_direct(seed: u64) -> Program {
    read_back_through(seed, Flags { direct: true, ..CREATE })
}

fn read_back_through(seed: u64, how: Flags) -> Program {
    let mut w = Writer::new(seed, "programs that read back");
    files(&mut w, how);
    w.steps.push(Step::Case("read-back".to_owned()));
    for _ in 0..3 {
        let fd = w.below(u64::from(FILES)) as u32;
        let at = w.below(BLOCKS) * u64::from(BLOCK);
        if w.below(3) > 0 {
            fault(&mut w);
        }
        w.write(fd, at, BLOCK);
        w.nap(&NAPS);
        for _ in 0..1 + w.below(3) {
            w.call(Call::Fsync(fd));
        }
        w.call(Call::Pread { fd, len: BLOCK, at });
        w.steps.push(Step::Heal);
        if w.below(2) == 0 {
            w.call(Call::DropCaches);
        }
        w.call(Call::Pread { fd, len: BLOCK, at });
        if w.below(2) == 0 {
            w.call(Call::Fsync(fd));
        }
    }
    Program(w.steps)
}
