//! Programs that write pages of files untorn (`RWF_ATOMIC`): over written blocks, holes, allocated
//! space and mixtures of them, with plain writes, cuts and syncs between.

use wp_workload::program::{Alloc, Call, Flags, Program};

use super::{BLOCK, CREATE, WRITE, Writer};

const NAPS: [u64; 4] = [0, 0, 300, 6_000_000];
/// Pages of 16 KiB in each file.
const PAGES: u64 = 4;
/// Blocks of an untorn write: each a power of two, up to a cluster of 16 KiB.
const LENGTHS: [u32; 3] = [1, 2, 4];
const PAGE: u64 = 4 * BLOCK as u64;
/// Files: descriptors past the cache, and those of the same files through it.
const FILES: [(&str, u32, u32); 2] = [("a", 0, 2), ("b", 1, 3)];

/// Two files, partly laid out and synced; then pages and blocks of both.
pub fn pages(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs with untorn writes");
    for (name, direct, cached) in FILES {
        w.open(direct, name, Flags { direct: true, ..CREATE });
        w.open(cached, name, WRITE);
        for page in 0..PAGES {
            lay_out(&mut w, direct, cached, page * PAGE);
        }
        if w.below(4) > 0 {
            w.call(Call::Fsync(direct));
        }
    }
    w.nap(&NAPS);
    for _ in 0..6 + w.below(8) {
        let (name, direct, cached) = FILES[w.below(2) as usize];
        let page = w.below(PAGES) * PAGE;
        match w.below(16) {
            0..=7 => untorn(&mut w, direct, page),
            8 => w.write(direct, page, 4 * BLOCK),
            9 => {
                let (at, len) = (w.below(PAGE - 1), 1 + w.below(6000) as u32);
                w.write(cached, page + at, len);
            }
            10 => lay_out(&mut w, direct, cached, page),
            11 => w.call(Call::Fdatasync(direct)),
            12 => w.call(Call::Fsync(direct)),
            13 => {
                let (at, len) = (page + w.below(4) * u64::from(BLOCK), u64::from(BLOCK));
                w.call(Call::Fallocate(direct, Alloc::Punch, at, len));
            }
            14 => {
                let length = page + w.below(PAGE);
                w.call(Call::Truncate(name.to_owned(), length));
            }
            _ => w.nap(&NAPS),
        }
    }
    w.nap(&NAPS);
    Program(w.steps)
}

/// An untorn write at its natural place in a page.
fn untorn(w: &mut Writer, fd: u32, page: u64) {
    let blocks = LENGTHS[w.below(3) as usize];
    let place = w.below(u64::from(4 / blocks)) * u64::from(blocks * BLOCK);
    w.written += 1;
    let (len, data) = (blocks * BLOCK, w.written.into());
    w.call(Call::Pwrite { fd, len, at: page + place, data, atomic: true });
}

/// A page as an application may have made it: written, allocated, a hole, or a mixture.
fn lay_out(w: &mut Writer, direct: u32, cached: u32, page: u64) {
    match w.below(5) {
        0 => w.write(direct, page, 4 * BLOCK),
        1 => w.write(cached, page, 4 * BLOCK),
        2 => w.call(Call::Fallocate(direct, Alloc::Extend, page, PAGE)),
        3 => w.write(cached, page + u64::from(BLOCK), BLOCK),
        _ => {}
    }
}
